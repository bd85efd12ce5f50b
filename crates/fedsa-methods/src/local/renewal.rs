//! When agents of SHED and Q-SHED compute the eigenpairs of their Hessians anew.

use fedsa::error::{Error, Result};
use fedsa::message::{Message, Part};
use fedsa::protocol::refused;
use fedsa::schedule::renewal::Renewal;

/// The share of the largest eigenvalue that takes the place of smaller ones, and of those that are negative: what an agent
/// sends of its Hessian is positive definite, and not below it.
pub const FLOOR: f64 = 1e-12;

/// The round of the last renewal in or before the round of a question, for vectors of d components.
///
/// # Errors
/// When the server decides on renewals, and the question names a round that is none.
pub(crate) fn due(renewal: &Renewal, down: &Message, d: usize) -> Result<u64> {
    match renewal.last(down.round, d) {
        Some(due) => Ok(due),
        None => index(down.part(Part::Renewal)[0]).filter(|due| *due <= down.round).ok_or_else(|| foreign("the round of a renewal")),
    }
}

/// A whole number that a message gives.
pub(crate) fn index(x: f64) -> Option<u64> {
    (x >= 0.0 && x.fract() == 0.0 && x < f64::from(u32::MAX)).then_some(x as u64)
}

/// Why a question is refused.
pub(crate) fn foreign(what: &str) -> Error {
    refused(what, "rounds and numbers of pairs of this method")
}
