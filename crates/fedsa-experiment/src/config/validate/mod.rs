//! Validation of a file's checks and figure before anything is built.

pub mod check_kinds;
mod checks;
mod figure;

use fedsa::error::Result;

use super::Experiment;
pub use checks::validate_points;

/// Validates the keys of the checks and of the figure. `labels` are the methods' labels.
///
/// # Errors
/// When the checks or the figure name something missing, lack a key, or have a key of another kind or out of range.
pub fn experiment(experiment: &Experiment, labels: &[String]) -> Result<()> {
    checks::validate(experiment, labels)?;
    figure::validate(experiment, labels)
}
