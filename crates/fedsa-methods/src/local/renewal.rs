//! When agents of SHED and Q-SHED compute the eigenpairs of their Hessians anew, and what they learn of it from questions.

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

/// The round of the Hessian of which the server holds something, as a question of round t says it: `Some(None)` for none. `None` if that is no
/// earlier round.
pub(crate) fn held_round(x: f64, t: u64) -> Option<Option<u64>> {
    if x == -1.0 { Some(None) } else { index(x).filter(|round| *round < t).map(Some) }
}

/// Whether an agent that last renewed in round `own` renews: where a renewal was due since, or where the server holds something of the Hessian
/// of a later round, of which a restored agent does not know.
pub(crate) fn is_due(own: Option<u64>, due: u64, held: Option<Option<u64>>) -> bool {
    own.is_none_or(|own| own < due || held.is_some_and(|round| round > Some(own)))
}

/// Why a question is refused.
pub(crate) fn foreign(what: &str) -> Error {
    refused(what, "rounds and numbers of pairs of this method")
}
