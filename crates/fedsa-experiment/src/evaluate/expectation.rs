//! Predictions before a run: its time, and whether it will reach its target.

use fedsa::linalg;
use fedsa::method::Drift;

use crate::{Plan, estimate};

/// Predictions for an evaluation. Times are estimates in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Expectation {
    /// The largest number of rounds.
    pub max_rounds: u64,
    /// The time of these rounds.
    pub most_seconds: f64,
    /// The residual at which it ends, as a multiple of the residual at zero weights, if any.
    pub target: Option<f64>,
    /// The predicted course.
    pub course: ExpectedCourse,
}

/// The predicted course towards the target.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ExpectedCourse {
    /// Unknown: there is no target, or the method's rate is unknown.
    Unknown,
    /// The target is missed, because agents differ and local steps move the limit.
    Missed {
        /// The distance of the limit from the solution, relative to the solution's norm.
        away: f64,
    },
    /// The target is reached at about this round, because the residual falls by the radius of a round. It may be after the last round.
    Reached {
        /// The round.
        rounds: f64,
        /// The time until then.
        seconds: f64,
    },
}

impl Expectation {
    /// The predictions for the first method of a plan.
    pub fn of(plan: &Plan) -> Self {
        let run = &plan.cells[0].run;
        let (max_rounds, target, most_seconds) = (run.rounds, run.stop.relative_residual, estimate::duration(plan).total);
        let course = target.map_or(ExpectedCourse::Unknown, |target| ExpectedCourse::of(plan, target, most_seconds / max_rounds as f64));
        Self { max_rounds, most_seconds, target, course }
    }
}

impl ExpectedCourse {
    /// Without noise the residual falls asymptotically by the radius in every round.
    fn of(plan: &Plan, target: f64, seconds: f64) -> Self {
        let (field, forecast) = (plan.field(0), plan.forecast(0));
        let radius = forecast.radius().ok().filter(|radius| forecast.is_noiseless() && *radius < 1.0);
        let Some(radius) = radius else { return Self::Unknown };
        let residual = |theta: &[f64]| field.mean_operator(theta).map_or(f64::NAN, |g| linalg::norm_sq(&g).sqrt());
        if plan.cells[0].shape().drift == Drift::Zero
            && let (Ok(limit), Some(root)) = (forecast.limit(), field.root())
            && residual(&limit) > target * residual(&vec![0.0; field.dim()])
        {
            return Self::Missed { away: (linalg::distance_sq(&limit, root) / linalg::norm_sq(root)).sqrt() };
        }
        let rounds = (target.ln() / radius.max(f64::MIN_POSITIVE).ln()).ceil().max(1.0);
        Self::Reached { rounds, seconds: seconds * rounds }
    }
}
