//! What differential privacy costs: the errors that its noise leaves, before anything runs.
//!
//! Noise of a release is noise of variance `s^2` in each component of a mean, as a receiver's or the agents' (`over-the-air`, `noise`). So
//! floors and curves under it are those of a [`Forecast`] over such a link: [`Forecast::with_release_noise`]. With agent units every round
//! of a run is a release of a clipped mean ([`AgentBudget`]); [`AgentPlan`] finds step, local steps and rounds for a budget, and the number
//! of agents for an error. LSTD and least squares release their sums once ([`OneRelease`]). Where clipping or a codec changes messages,
//! nothing is predicted.
//!
//! Controls must be made afresh (`rule = "afresh"`): they are functions of own data and of released means, so that the rho of the rounds
//! add up. Controls that keep what was sent (`acknowledged`) contain noise of others that is not released again, and disclose more than the
//! sum of the rounds. Controls that are kept to the letter accumulate the noise ([`literal_growth`]).
//!
//! [`Forecast`]: crate::predict::Forecast
//! [`Forecast::with_release_noise`]: crate::predict::Forecast::with_release_noise

mod budget;
mod one_release;
mod plan;
#[cfg(test)]
mod tests;

pub use budget::{AgentBudget, agents_estimate, averaged_estimate, last_iterate_estimate};
pub use one_release::{MatrixNoise, OneRelease, OneReleaseError};
pub use plan::{AgentPlan, AgentsNeeded, PlanChoice, PlanRange};

use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::Systems;

/// A result is useful if its error is at most this share of the error of zero weights.
pub const USEFUL: f64 = 0.1;

/// By how much the mean-square error of SCAFFLSA with `rule = "literal"` grows in every round under noise of this variance in each
/// component of the mean: `s^2 tr(Abar^-1 Abar^-T)`. The sum of the controls is a random walk, and the iterate follows it.
///
/// # Errors
/// When the mean system is singular.
pub fn literal_growth(systems: &Systems, variance: f64) -> Result<f64> {
    let mean = systems.mean().a;
    let inverse = linalg::solve_columns(&mean, &Mat::identity(mean.nrows(), mean.ncols()))?;
    Ok(variance * inverse.squared_norm_l2())
}
