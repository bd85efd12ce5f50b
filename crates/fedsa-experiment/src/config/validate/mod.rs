//! Whether the checks and the figure of a file can be, before anything is built.

pub mod check_kinds;
mod checks;
mod figure;

use fedsa::error::Result;

use super::Experiment;
pub use checks::validate_points;

/// Checks the keys of the checks and of the figure. `labels` are those of the methods.
///
/// # Errors
/// When a check or the figure names what is not there, lacks a key, or has a key of another kind or out of range.
pub fn experiment(experiment: &Experiment, labels: &[String]) -> Result<()> {
    checks::validate(experiment, labels)?;
    figure::validate(experiment, labels)
}
