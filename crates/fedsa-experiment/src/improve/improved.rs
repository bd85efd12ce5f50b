//! A policy that was found, with its value on held-out episodes.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa_data::weights;
use fedsa_evaluate::policy_value::improved::ImprovedValue;
use fedsa_problems::control::action_values::ActionValues;
use fedsa_problems::control::improvement::{Improving, PolicyEnding};
use fedsa_problems::control::pessimism::{Caution, Coverage};
use fedsa_problems::logs::by_policy::episode_hashes;
use serde_json::{Value as Json, json};

use super::notes::FEW_ROWS;
use super::pictures::PolicyOfStates;
use super::tables::ending_name;
use super::{ImproveData, notes, pictures, tables};
use crate::evaluate::pictures::{SeenStates, ValueColumns, over_states};
use crate::folder::POLICY_PICTURES;
use crate::outcome::Outcome;
use crate::output;
use crate::picture::Picture;
use crate::run::{IfExists, Ran};
use crate::summary::Summary;

/// The file with the policy.
pub const POLICY: &str = "policy.json";

/// The distance, relative to their size, of weights that are the same to the accuracy of a link with secure sums.
const SAME: f64 = 1e-6;
/// The most further solves that show how policy iteration ends.
const SOLVES: usize = 200;

/// A policy, with its value on held-out episodes.
#[non_exhaustive]
pub struct Improved {
    /// The run of the method.
    pub ran: Ran,
    /// The logs and their features.
    pub data: ImproveData,
    /// How the iteration ended.
    pub ending: PolicyEnding,
    /// The weights, K m: those of the best member of a cycle.
    pub theta: Vec<f64>,
    /// The value on held-out episodes, beside that of the policy that acted; `None` without held-out episodes, or if it is not known.
    pub value: Option<ImprovedValue>,
    /// For each agent, the share of its logged states in which fewer than five rows are behind the greedy action.
    pub rare: Vec<(String, f64)>,
    /// The degrees of freedom of the fit.
    pub degrees: f64,
    /// The hashes of the episodes from which it was found, without those that occurred twice.
    pub training: Vec<String>,
    /// What lowers the values of rare actions.
    pub caution: Option<Caution>,
    coverage: Coverage,
}

impl Improved {
    /// The policy of a run.
    ///
    /// # Errors
    /// When the held-out episodes are not usable, or it is cancelled; the runs remain in their folder.
    pub(super) fn new(ran: Ran, data: ImproveData, improving: &Improving, cancel: &Cancel) -> Result<Self, Error> {
        let result = &ran.results.cells[0][0];
        let (theta, is_lspi) = (result.theta.clone(), ran.plan.cells[0].method.kind == "lspi");
        let has_converged = result.outcome(&ran.plan.cells[0].run.stop) == Outcome::Converged;
        let is_finite = theta.iter().all(|x| x.is_finite());
        // Rounds show that policy iteration does not settle, and further solves why.
        let end = (is_lspi && is_finite).then(|| improving.policy_end(Some(&theta), SOLVES, cancel));
        let cycle = end.as_ref().filter(|end| matches!(end.ending, PolicyEnding::Cycle(_)));
        let sound: Vec<Vec<f64>> =
            cycle.iter().flat_map(|end| &end.policies).filter(|theta| !improving.is_diverged(theta)).cloned().collect();
        let (ending, policies) = if let (Some(end), false) = (&cycle, sound.is_empty()) {
            (end.ending, sound)
        } else if !is_finite || improving.is_diverged(&theta) {
            (PolicyEnding::Diverged, vec![theta])
        } else if let Some(end) = end {
            // Further solves must change nothing: otherwise the run ended too early.
            let is_at_end = end.ending == PolicyEnding::Settled
                && linalg::distance_sq(&end.policies[0], &theta).sqrt() <= SAME * (1.0 + linalg::norm(&theta));
            (if is_at_end { PolicyEnding::Settled } else { PolicyEnding::Unsettled }, vec![theta])
        } else {
            (if has_converged { PolicyEnding::Settled } else { PolicyEnding::Unsettled }, vec![theta])
        };
        let found = || -> Result<_> {
            cancel.check()?;
            let mut best: Option<(Vec<f64>, Option<ImprovedValue>)> = None;
            for theta in policies {
                let value = data.value(&theta, improving.caution())?;
                let rank = |value: &Option<ImprovedValue>| value.as_ref().map(ImprovedValue::rank);
                if best.as_ref().is_none_or(|(_, known)| rank(&value) > rank(known)) {
                    best = Some((theta, value));
                }
            }
            let (theta, value) = best.expect("at least one policy");
            let is_finite = theta.iter().all(|x| x.is_finite());
            let coverage = improving.coverage()?;
            let rare = if is_finite { improving.rare_pairs(&coverage, &theta, FEW_ROWS) } else { Vec::new() };
            Ok((theta, value, rare, improving.degrees_of_freedom()?, coverage))
        };
        let (theta, value, rare, degrees, coverage) = found().map_err(|e| ran.unfinished(e))?;
        let rare = data.logs.facts.iter().map(|facts| facts.name.clone()).zip(rare).collect();
        let hashes = data.logs.sources.iter().map(|source| episode_hashes(&**source)).collect::<Result<Vec<_>>>();
        let mut training = hashes.map_err(|e| ran.unfinished(e))?.concat();
        training.sort_unstable();
        training = training.chunk_by(|x, y| x == y).filter(|same| same.len() == 1).map(|same| same[0].clone()).collect();
        let caution = improving.caution().cloned();
        let mut improved = Self { ran, data, ending, theta, value, rare, degrees, training, caution, coverage };
        let notes = notes::of(&improved.data, ending, improved.value.as_ref(), &improved.rare);
        improved.ran.add_notes(notes);
        improved.ran.ended.as_expected &= improved.has_settled();
        improved.ran.took_until_now();
        improved.ran.add_to_summary("logs", improved.data.read.json());
        let (value, ridges) = (tables::value_json(improved.value.as_ref()), improved.data.ridge.as_ref().map(tables::ridges_json));
        improved.ran.add_to_summary("policy", json!({ "ending": ending_name(ending), "degrees_of_freedom": degrees, "value": value }));
        if let Some(ridges) = ridges {
            improved.ran.add_to_summary("ridges_tried", ridges);
        }
        Ok(improved)
    }

    /// The values of the actions.
    pub fn values(&self) -> ActionValues<'_> {
        ActionValues::new(&self.theta, self.data.map.len()).with_caution(self.caution.as_ref())
    }

    /// Whether the policy is as wanted: the iteration settled.
    pub fn has_settled(&self) -> bool {
        self.ending == PolicyEnding::Settled
    }

    /// Whether the new policy may be worse than the one that acted, as far as is known.
    pub fn may_be_worse(&self) -> bool {
        self.value.as_ref().is_none_or(ImprovedValue::may_be_worse)
    }

    /// The report: the run, the value of the policy, and the ridges that were tried.
    pub fn summary(&self) -> Summary {
        let mut summary = self.ran.summary();
        summary.tables.extend(self.tables());
        summary
    }

    /// The tables of values on held-out episodes, and of the ridges that were tried.
    pub fn tables(&self) -> Vec<crate::tables::SummaryTable> {
        self.value.iter().map(|value| tables::values(value, &self.rare)).chain(self.data.ridge.iter().map(tables::ridges)).collect()
    }

    /// `policy.json`.
    pub fn json(&self) -> Json {
        let ImproveData { settings, map, ridge, .. } = &self.data;
        let result = &self.ran.results.cells[0][0];
        let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
        json!({
            "format": 1,
            "actions": settings.actions,
            "feature_map": map.spec(),
            "scale": Some(map.scale()).filter(|scale| !scale.is_empty()),
            "statistics": Some(map.statistics()).filter(|statistics| !statistics.is_empty()),
            "columns": map.columns(),
            "file_columns": Some(&settings.columns).filter(|columns| !columns.is_empty()),
            "ranges": map.ranges(),
            "gamma": settings.gamma,
            "ridge": settings.ridge,
            "ridges_tried": ridge.as_ref().map(tables::ridges_json),
            "degrees_of_freedom": self.degrees,
            "method": self.ran.plan.cells[0].method.kind,
            "soften": self.data.soften,
            "caution": self.caution.as_ref().map(weights::caution_json),
            "ending": ending_name(self.ending),
            "cycle": if let PolicyEnding::Cycle(n) = self.ending { Some(n) } else { None },
            "rounds": result.rows.last().map_or(0, |row| row.round),
            "bits": result.rows.last().map_or(0, |row| row.ledger.bits_up + row.ledger.bits_down),
            "agents": self.data.logs.facts.iter().map(|log| json!({ "name": log.name, "transitions": log.transitions })).collect::<Vec<_>>(),
            "rare": self.rare.iter().map(|(name, share)| (name.clone(), json!(share))).collect::<serde_json::Map<_, _>>(),
            "training_episodes": self.training,
            "value": tables::value_json(self.value.as_ref()),
            "theta": self.theta.iter().map(|x| finite(*x)).collect::<Vec<_>>(),
        })
    }

    /// The pictures by the names of [`POLICY_PICTURES`], as far as they have content: the policy over state columns, and the values of the
    /// ridges that were tried.
    pub fn pictures(&self) -> Vec<(&'static str, Picture)> {
        let ImproveData { settings, map, ridge, logs, .. } = &self.data;
        let policy = || {
            let (values, actions) = (self.values(), &settings.actions[..]);
            let of = PolicyOfStates { map, values, coverage: &self.coverage, actions };
            over_states(&of, &SeenStates::of(&logs.facts), ValueColumns { wanted: &[], setting: None })
        };
        let possible = self.value.as_ref().map(|value| value.possible).filter(|possible| possible.is_bounded());
        // Diverged values show nothing.
        let all = [
            (self.ending != PolicyEnding::Diverged).then(policy).flatten(),
            ridge.as_ref().and_then(|choice| pictures::ridges(choice, possible)),
        ];
        POLICY_PICTURES.into_iter().zip(all).filter_map(|(stem, picture)| Some((stem, picture?))).collect()
    }

    /// `policy.json` and the pictures, with their contents.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let mut files = vec![(POLICY.to_string(), format!("{:#}\n", self.json()).into_bytes())];
        for (stem, picture) in self.pictures() {
            files.extend(output::pictures(&self.ran.plan, stem, &picture, self.ran.config()));
        }
        files
    }

    /// Writes the files of the improvement and of its run into its folder; nothing without a folder.
    ///
    /// # Errors
    /// When files cannot be made or written. The runs remain in the folder and can be resumed.
    pub fn write(&self) -> Result<(), Error> {
        self.ran.write(self.files())
    }

    /// Writes the files of an improvement without a folder into one.
    ///
    /// # Errors
    /// As [`Ran::write_into`].
    pub fn write_into(&self, path: &Path, if_exists: IfExists) -> Result<(), Error> {
        self.ran.write_into(path, if_exists, self.files())
    }
}
