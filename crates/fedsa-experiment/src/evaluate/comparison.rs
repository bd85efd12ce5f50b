//! Comparison of federated weights with those of each agent's own data and of all data, on held-out episodes.

use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa_evaluate::held_out::{Errors, Judged, judge};
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::replay::TraceRule;
use serde_json::{Value, json};

use crate::tables::{Shown, SummaryCell, SummaryColumn, SummaryTable};

/// The compared weights, in the order of [`Judged`].
pub const WEIGHTS: [&str; 3] = ["federated", "own", "pooled"];
/// The positions of federated weights and of an agent's own in [`WEIGHTS`].
pub const FEDERATED: usize = 0;
pub const OWN: usize = 1;

/// The errors on the agents' held-out logs.
pub struct HoldoutComparison {
    /// The agents by name, each with errors under all [`WEIGHTS`].
    pub agents: Vec<(String, Judged)>,
    /// Whether weights were fitted with eligibility traces.
    pub has_traces: bool,
    /// Whether importance ratios are used.
    pub is_weighted: bool,
}

/// One of the two errors, under each of the [`WEIGHTS`].
pub type Pick = fn(&Judged) -> &[Errors];

/// The errors: name in `weights.json`, title, and position.
pub const ERRORS: [(&str, &str, Pick); 2] = [
    ("return_error", "error against Monte-Carlo returns", |judged| &judged.returns),
    ("projected_bellman_error", "projected Bellman error", |judged| &judged.bellman),
];

impl HoldoutComparison {
    /// Compares the weights `theta` of a run (d numbers) with those of each agent's own data and of all data, on the held-out logs. Own
    /// weights have the least norm if the agent's own system is singular.
    ///
    /// # Errors
    /// When the logs' episodes are not usable.
    pub fn new(held: &[Log], map: &FeatureMap, rule: TraceRule, field: &dyn Field, theta: &[f64]) -> Result<Self> {
        let systems = field.facts().td_systems().or(field.systems()).expect("logs are linear systems");
        let pooled = &field.root().expect("logs have one")[..theta.len()];
        let agents = parallel::try_map(held.len(), |c| {
            let log = &held[c];
            let system = systems.of(c);
            let own = linalg::solve_or_least(&system.a, &system.b);
            Ok::<_, Error>((log.name.clone(), judge(log, map, rule, &[theta, &own, pooled])?))
        })?;
        let weighted = rule.ratios && held.iter().any(|log| log.ratio.is_some());
        Ok(Self { agents, has_traces: rule.lambda > 0.0, is_weighted: weighted })
    }

    /// A sum of counts over all agents.
    pub fn sum(&self, of: impl Fn(&Judged) -> usize) -> usize {
        self.agents.iter().map(|(_, judged)| of(judged)).sum()
    }

    /// An error over all agents, under each of the weights.
    pub fn all(&self, pick: Pick) -> Vec<Errors> {
        (0..WEIGHTS.len()).map(|j| Errors::of_all(self.agents.iter().map(|(_, judged)| &pick(judged)[j]))).collect()
    }

    /// Whether federated weights are better than an agent's own: a table for each known error.
    pub fn tables(&self) -> Vec<SummaryTable> {
        let heads = ["", "federated", "own data only", "all data pooled", "own - federated", "does federation help?"];
        let of_error = |(_, title, pick): &(&str, &str, Pick)| {
            let all = self.all(*pick);
            all[FEDERATED].rms()?;
            let columns = heads.iter().map(|head| SummaryColumn::left(head, Shown::Short)).collect();
            let mut table = SummaryTable::new(format!("{title}, root mean square (standard error)"), columns);
            table.rows.extend(self.agents.iter().map(|(name, judged)| row(name, pick(judged))));
            table.rows.push(row("all agents", &all));
            let single = all[FEDERATED].single_episodes();
            if single > 0 {
                let agents = if single == 1 { "1 agent has".to_string() } else { format!("{single} agents have") };
                table.notes.push(format!(
                    "{agents} a single held-out episode, which counts in the error of all by how it differs from the others"
                ));
            }
            Some(table)
        };
        ERRORS.iter().filter_map(of_error).collect()
    }

    /// The object `holdout` of `weights.json`.
    pub fn json(&self, share: f64, seed: u64) -> Value {
        let errors = |of: &dyn Fn(Pick) -> Vec<Errors>| -> serde_json::Map<String, Value> {
            let of_one = |pick: Pick| {
                let errors = of(pick);
                let mut all: serde_json::Map<String, Value> = WEIGHTS
                    .iter()
                    .zip(&errors)
                    .map(|(name, errors)| ((*name).into(), json!({ "rms": errors.rms(), "se": errors.standard_error() })))
                    .collect();
                let (difference, se) = errors[OWN].minus(&errors[FEDERATED]);
                all.insert("own_minus_federated".into(), json!({ "difference": difference, "se": se, "helps": does_help(&errors) }));
                Value::Object(all)
            };
            ERRORS.iter().map(|(name, _, pick)| ((*name).into(), of_one(*pick))).collect()
        };
        let counts = |of: &dyn Fn(fn(&Judged) -> usize) -> usize| {
            json!({
                "episodes": of(|judged| judged.episodes),
                "transitions": of(|judged| judged.transitions),
                "episodes_without_returns": of(|judged| judged.episodes_cut),
                "transitions_without_returns": of(|judged| judged.transitions_cut),
            })
        };
        let joined = |mut counts: Value, errors: serde_json::Map<String, Value>| {
            counts.as_object_mut().expect("an object").extend(errors);
            counts
        };
        let agents = self.agents.iter().map(|(name, judged)| {
            let mut agent = joined(counts(&|of| of(judged)), errors(&|pick| pick(judged).to_vec()));
            agent["name"] = json!(name);
            agent
        });
        let agents: Vec<Value> = agents.collect();
        let all = joined(counts(&|of| self.sum(of)), errors(&|pick| self.all(pick)));
        json!({ "share": share, "seed": seed, "agents": agents, "all": all })
    }
}

/// Whether federated weights are better than an agent's own, in a word.
fn does_help(errors: &[Errors]) -> &'static str {
    let rounding = errors[OWN].rounding().max(errors[FEDERATED].rounding());
    // Twice the standard error: chance alone gives a larger difference in one of twenty cases.
    match errors[OWN].minus(&errors[FEDERATED]) {
        (Some(x), _) if x.abs() <= rounding => "no difference",
        (Some(x), Some(se)) if x > 2.0 * se => "yes",
        (Some(x), Some(se)) if x < -2.0 * se => "no",
        (Some(_), Some(_)) => "not clear",
        _ => "not known",
    }
}

/// A row of the table of an error.
fn row(name: &str, errors: &[Errors]) -> Vec<SummaryCell> {
    let with_error = |x: Option<f64>, se: Option<f64>| x.map_or(SummaryCell::Missing, |x| SummaryCell::Estimate(x, se));
    let (difference, se) = errors[OWN].minus(&errors[FEDERATED]);
    let mut cells = vec![name.into()];
    cells.extend(errors.iter().map(|errors| with_error(errors.rms(), errors.standard_error())));
    cells.extend([with_error(difference, se), does_help(errors).into()]);
    cells
}
