//! One round over any carrier.

use crate::cancel::Cancel;
use crate::coordinator::Step;
use crate::error::Result;

/// One round of a federation over any carrier. It is given up soon after `cancel` is set. A round that was left open is ended instead, and
/// counts.
///
/// # Errors
/// When messages cannot be carried at all, or a rule or an operator has failed. Missing or refused answers are no error.
pub fn round<C: Exchanges + ?Sized>(carrier: &mut C, cancel: &Cancel) -> Result<Advanced> {
    if carrier.is_torn() {
        return Ok(Advanced::Cancelled);
    }
    // The server rule opens the round with a question, to all agents or to some of them.
    let mut step = carrier.open()?;
    if step == Step::RoundOver {
        return Ok(Advanced::Over);
    }
    while step == Step::Ask {
        // The agents answer. The coordinator checks the answers and counts messages.
        if !carrier.exchange(cancel)? {
            return Ok(Advanced::Cancelled);
        }
        // The server rule receives the answers. It asks again, or the round is over.
        step = carrier.close()?;
    }
    if step == Step::Tell {
        carrier.tell()?;
    }
    Ok(Advanced::Round)
}

/// A carrier of the messages of rounds: this process ([`super::Run`]), or bytes between nodes ([`crate::session::Nodes`]).
pub trait Exchanges {
    /// Opens the next round with a question to the reachable agents; [`Step::RoundOver`] if there is no further round.
    ///
    /// # Errors
    /// When no agent can be reached, or a rule or an operator has failed.
    fn open(&mut self) -> Result<Step>;
    /// Carries the open question to the agents, and hands in their answers; false if it was cancelled.
    ///
    /// # Errors
    /// When messages cannot be carried at all, or a rule or an operator has failed.
    fn exchange(&mut self, cancel: &Cancel) -> Result<bool>;
    /// Ends the exchange, and returns the next step.
    ///
    /// # Errors
    /// When the server rule has failed.
    fn close(&mut self) -> Result<Step>;
    /// Carries the message at the end of the round to the participants ([`Step::Tell`]).
    ///
    /// # Errors
    /// As [`Exchanges::exchange`].
    fn tell(&mut self) -> Result<()> {
        Ok(())
    }
    /// Whether a round was cancelled in its middle, so that the carrier must be restored or restarted.
    fn is_torn(&self) -> bool {
        false
    }
}

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advanced {
    /// The round is done.
    Round,
    /// No round was opened: the iterates have diverged, or [`crate::message::MAX_ROUNDS`] rounds are done.
    Over,
    /// The round was cancelled before its end, or operators or a rule have failed. A carrier that [is torn](Exchanges::is_torn) must be restored
    /// before it can go on; until then it does nothing.
    Cancelled,
}
