//! The estimated time of the points of a sweep, before they run.

use std::collections::HashMap;

use fedsa::cancel::Cancel;
use fedsa::error::Error;

use crate::config::Experiment;
use crate::plan::PlanControl;
use crate::run::RunSettings;
use crate::{Plan, estimate};

/// The number of points with problems in memory at a time.
const TOGETHER: usize = 2048;

/// The estimated time of each point on one core, in seconds: all its methods with all seeds. Points are planned some at a time, so that the
/// memory does not grow with their number.
///
/// # Errors
/// When a setting or file cannot be used, or it is cancelled.
pub fn seconds_of_points(experiment: &Experiment, settings: &RunSettings, cancel: &Cancel) -> Result<Vec<f64>, Error> {
    let points: Vec<usize> = (0..experiment.points.len()).collect();
    let mut seconds = Vec::with_capacity(points.len());
    for some in points.chunks(TOGETHER) {
        let control = PlanControl { cancel, solving: None };
        let part = experiment.at_points(some.iter().copied());
        let plan = Plan::with_problem(part, &settings.base, settings.isa, &HashMap::new(), None, &control)?;
        let cells = estimate::duration(&plan).cells;
        seconds.extend(plan.points.iter().map(|point| point.cells.iter().map(|cell| cells[*cell]).sum::<f64>()));
    }
    Ok(seconds)
}
