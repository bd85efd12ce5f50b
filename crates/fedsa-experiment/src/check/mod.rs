//! A check before an experiment runs: its plan, whether it is accepted, its memory, and its time.

mod json;

pub use json::CheckedJson;

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use serde_json::Value as Json;

use crate::config::Experiment;
use crate::plan::PlanControl;
use crate::run::RunSettings;
use crate::{Plan, checks, run_memory, stability};

/// The largest number of problems, and of points, that are listed one by one.
pub const LISTED: usize = 100;

/// An experiment that was checked.
pub struct Checked {
    /// Its plan.
    pub plan: Arc<Plan>,
    /// For each of its checks, the reason why it would not be measured.
    pub unmeasured: Vec<Option<String>>,
    /// Whether its quick settings apply.
    pub quick: bool,
    /// The peak memory that it needs, in bytes.
    pub bytes: f64,
    /// The number of each of the plan's points in the sweep.
    pub numbers: Vec<usize>,
    /// Why it would be refused: too little memory, or known instability.
    pub refusal: Option<Error>,
}

/// Checks an experiment: builds its problems, and runs nothing.
///
/// # Errors
/// When a setting or file cannot be used, one of its checks can never be measured, or it is cancelled.
pub fn check(experiment: Experiment, settings: &RunSettings, cancel: &Cancel) -> Result<Checked, Error> {
    let numbers = (0..experiment.points.len()).collect();
    checked(experiment, numbers, settings, cancel)
}

/// Checks these points of an experiment, without its checks of results.
///
/// # Errors
/// As [`check`].
pub fn check_points(experiment: &Experiment, points: Vec<usize>, settings: &RunSettings, cancel: &Cancel) -> Result<Checked, Error> {
    checked(experiment.at_points(points.iter().copied()), points, settings, cancel)
}

fn checked(experiment: Experiment, numbers: Vec<usize>, settings: &RunSettings, cancel: &Cancel) -> Result<Checked, Error> {
    let control = PlanControl { cancel, solving: None };
    let plan = Arc::new(Plan::with_problem(experiment, &settings.base, settings.isa, &HashMap::new(), None, &control)?);
    let unmeasured = checks::unmeasured(&plan, &settings.base)?;
    let accepted = run_memory::refuse(&plan).map_err(|e| plan.experiment.document.failure(e));
    let refusal = accepted.and_then(|()| stability::refuse_unstable(&plan, settings.force, cancel)).err();
    cancel.check()?;
    let bytes = run_memory::of_plan(&plan);
    Ok(Checked { plan, unmeasured, quick: settings.quick, bytes, numbers, refusal })
}

impl Checked {
    /// All numbers, to be serialised in memory that does not grow with the number of points.
    pub fn written(&self) -> CheckedJson<'_> {
        CheckedJson::of(self)
    }

    /// All numbers as JSON.
    pub fn json(&self) -> Json {
        serde_json::to_value(self.written()).expect("plain data")
    }

    /// The number of messages that agents send in a run of a cell, and how many arrive on average, if that is less than one.
    pub fn few_arrive(&self, number: usize) -> Option<(f64, f64)> {
        let (cell, field) = (&self.plan.cells[number], self.plan.field(number));
        let agents = cell.shape().participants.unwrap_or(field.agents());
        let (sent, share) = (agents as f64 * cell.run.rounds as f64, cell.share_arriving(field));
        (sent * share < 1.0).then_some((sent, sent * share))
    }
}
