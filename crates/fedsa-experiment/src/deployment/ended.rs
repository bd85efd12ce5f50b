//! The results of a federation, in the form of a run's results.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use fedsa::enrolment::Membership;
use fedsa::error::Result;
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::note::{Note, NoteCode};
use fedsa_problems::rows::preparation::far_from_rows;
use toml::{Table, Value};

use super::Deployment;
use crate::checks;
use crate::config::{Document, Experiment, MethodSpec};
use crate::made;
use crate::picture;
use crate::plan::Plan;
use crate::results::{OwnValues, Recorded, Results, SeedResult};
use crate::run::{self, Ran};

/// The server's record of the rounds of a federation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeployedRun {
    /// All rounds, from round 0, with the missing weight of each. The results keep those that the settings record, and the last one, with the
    /// mean missing weight since the one before.
    pub rows: Vec<Recorded>,
    /// The output after the last one, d components.
    pub theta: Vec<f64>,
    /// The number of rounds after which divergence was found, if it was.
    pub diverged: Option<u64>,
    /// The time of these rounds, in seconds.
    pub seconds: f64,
    /// The further content of `federation` in `summary.json`.
    pub told: serde_json::Value,
    /// Notes for readers of the results.
    pub notes: Vec<Note>,
}

impl DeployedRun {
    /// The record of these rounds and this output.
    pub fn new(rows: Vec<Recorded>, theta: Vec<f64>, diverged: Option<u64>, seconds: f64) -> Self {
        Self { rows, theta, diverged, seconds, told: serde_json::Value::Null, notes: Vec::new() }
    }

    /// The same with this content of `federation` in `summary.json`.
    #[must_use]
    pub fn with_told(self, told: serde_json::Value) -> Self {
        Self { told, ..self }
    }

    /// The same with a note on numbers that agents clipped to the bound of secure sums.
    #[must_use]
    pub fn with_clipped(mut self, clipped: u64) -> Self {
        if clipped > 0 {
            let text = format!("agents clipped {clipped} numbers to the `bound` of secure-sum, which biases sums: raise `bound`");
            self.notes.push(Note::new(NoteCode::SumsClipped, text));
        }
        self
    }

    /// The same with notes on how these agents count.
    #[must_use]
    pub fn with_members(self, membership: &Membership) -> Self {
        let members = membership.members();
        let rows: Vec<f64> = members.iter().map(|one| one.weighted.unwrap_or(one.rows as f64)).collect();
        let note = far_from_rows(membership.federation().weights(), &rows, |c| members[c].sender.clone());
        Self { notes: self.notes.into_iter().chain(note).collect(), ..self }
    }
}

impl Deployment {
    /// The results of a federation with these settings, with files like those of any run ([`Ran::write_into`]). Their problem has the kind
    /// `elsewhere`, because the agents have the data; what theory and metrics need of it is unknown.
    ///
    /// # Errors
    /// When the results do not fit such a federation.
    pub fn results(&self, federation: &Federation, ended: DeployedRun) -> Result<Ran> {
        let DeployedRun { mut rows, theta, diverged, seconds, told, notes } = ended;
        let residuals: Vec<Option<f64>> = rows.iter().map(|row| row.seen.residual).collect();
        let stopped = diverged.is_none() && self.has_reached(&residuals);
        // It may have ended before the last round of its settings, without reaching a target.
        let rounds = rows.last().filter(|_| !stopped).map(|last| last.round);
        let (recorded, last) = (self.recorded(), rows.last().map(|last| last.round));
        let mut missing = Vec::new();
        rows.retain_mut(|row| {
            missing.extend(row.seen.missing_weight);
            let is_kept = Some(row.round) == last || recorded.binary_search(&row.round).is_ok();
            if is_kept && !missing.is_empty() {
                row.seen.missing_weight = Some(missing.iter().sum::<f64>() / missing.len() as f64);
                missing.clear();
            }
            is_kept
        });
        let experiment = self.elsewhere(federation.dim(), federation.weights(), rounds)?;
        let [seed] = self.run.seeds.list()[..] else { unreachable!("a deployment has one seed") };
        let result =
            SeedResult { seed, rows, theta, diverged, stopped, seconds: Some(seconds), own: OwnValues::default(), iterates: Vec::new() };
        let results = Results { cells: vec![vec![result]] };
        picture::check_axes(&experiment, &results)?;
        let mut ran = run::of_results(experiment, results, seconds)?;
        ran.add_notes(self.notes.iter().cloned().chain(notes));
        if !told.is_null() {
            ran.add_to_summary("federation", told);
        }
        Ok(ran)
    }

    /// The experiment of the results: with this number of components, agents of these weights, and this number of rounds in place of its
    /// own.
    fn elsewhere(&self, dim: usize, weights: &[f64], rounds: Option<u64>) -> Result<Experiment> {
        let document = &self.experiment.document;
        let (_, mut of) = made::problem_of(&self.experiment);
        if let Some(key) = self.source.key() {
            of.remove(key);
        }
        of.insert("kind".into(), document.table["problem"]["kind"].clone());
        let mut problem = Table::new();
        problem.insert("kind".into(), Value::String("elsewhere".into()));
        problem.insert("dim".into(), Value::Integer(dim as i64));
        problem.insert("weights".into(), Value::Array(weights.iter().map(|p| Value::Float(*p)).collect()));
        problem.insert("of".into(), Value::Table(of));
        let mut table = document.table.clone();
        table.insert("problem".into(), Value::Table(problem));
        let run = table.entry("run").or_insert_with(|| Value::Table(Table::new()));
        if let (Some(run), Some(rounds)) = (run.as_table_mut(), rounds) {
            run.insert("rounds".into(), Value::Integer(rounds as i64));
        }
        Experiment::read(Document::of_table(table, Vec::new()).with_kinds(&document.kinds))
    }

    /// Refuses figures and checks that a federation's results cannot answer, before its first round.
    ///
    /// # Errors
    /// When there is one; names its key.
    pub(super) fn check_results(&self, method: &MethodSpec) -> Result<()> {
        // The numbers of agents and components are unknown and do not matter; a start gives its number of components.
        let agents = method.settings.shape().participants.unwrap_or(0).max(AGENTS);
        let components = self.length_of_start().unwrap_or(COMPONENTS);
        let experiment = self.elsewhere(components, &vec![1.0 / agents as f64; agents], None)?;
        let plan = match Plan::new(experiment, Path::new(""), Isa::best(), &HashMap::new()) {
            Ok(plan) => plan,
            Err(e) if e.key.starts_with("figure") || e.key.starts_with("check") => return Err(e),
            // Founding, when the size is known, reports other errors in the settings.
            Err(_) => return Ok(()),
        };
        checks::unmeasured(&Arc::new(plan), Path::new("")).map(|_| ())
    }
}

impl Deployment {
    /// The number of components of a start that is given as numbers.
    fn length_of_start(&self) -> Option<usize> {
        let table = &self.experiment.document.table;
        let of_run = table.get("run").and_then(|run| run.get("start"));
        let of_method = || table.get("method").and_then(|methods| methods.get(0)).and_then(|method| method.get("start"));
        Some(of_run.or_else(of_method)?.as_array()?.len())
    }
}

/// A number of agents for plans that are never shown.
const AGENTS: usize = 16;
const COMPONENTS: usize = 64;
