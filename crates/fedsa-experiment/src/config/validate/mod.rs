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
/// As [`checks::validate`] and [`figure::validate`].
pub fn experiment(experiment: &Experiment, labels: &[String]) -> Result<()> {
    checks::validate(experiment, labels)?;
    figure::validate(experiment, labels)
}
