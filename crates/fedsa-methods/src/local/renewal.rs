//! The rounds in which agents of SHED and Q-SHED recompute the eigenpairs of their Hessians.

use fedsa::error::{Error, Result};
use fedsa::message::{Message, Part};
use fedsa::protocol::refused;
use fedsa::schedule::renewal::Renewal;

/// Eigenvalues below this share of the largest one, and negative ones, count as this share. The sent approximation of the Hessian is then
/// positive definite, and not below the Hessian.
pub const FLOOR: f64 = 1e-12;

/// The round of the last renewal up to the round of a question, for vectors of d components.
///
/// # Errors
/// When the server decides on renewals, and the question names an impossible round.
pub(crate) fn due(renewal: &Renewal, down: &Message, d: usize) -> Result<u64> {
    match renewal.last(down.round, d) {
        Some(due) => Ok(due),
        None => index(down.part(Part::Renewal)[0]).filter(|due| *due <= down.round).ok_or_else(|| foreign("the round of a renewal")),
    }
}

/// A whole number in a message.
pub(crate) fn index(x: f64) -> Option<u64> {
    (x >= 0.0 && x.fract() == 0.0 && x < f64::from(u32::MAX)).then_some(x as u64)
}

/// The error of a refused question.
pub(crate) fn foreign(what: &str) -> Error {
    refused(what, "rounds and numbers of pairs of this method")
}
