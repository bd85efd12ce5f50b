//! What is handed in to a coordinator, and what it says of it.

use crate::error::Error;
use crate::message::{Body, Part};
use crate::server::Letter;

/// The result of an answer that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It counts.
    Counted,
    /// It is a copy of the answer that counts already.
    Repeated,
}

/// An answer that was refused.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The agent.
    pub agent: usize,
    /// The round and exchange of the open question.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// Why.
    pub reason: Error,
}

/// An answer that was checked, and that is one to the open question.
pub(crate) struct Checked {
    /// The agent's place among those that were asked.
    pub(super) at: usize,
    pub(super) parts: Vec<(Part, Body)>,
    /// Whether it says that the agent's numbers are no longer finite.
    pub(super) is_diverged: bool,
    /// Bytes on the wire.
    pub(super) len: usize,
}

/// What single answers a coordinator has: as agents sent them, or as lanes handed them in.
pub(super) enum Answers {
    Parts(Vec<Option<Vec<(Part, Body)>>>),
    Letters(Vec<Option<Letter>>),
}

/// Whether an agent may still answer, and if not why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// Its answer to the open question is awaited.
    Awaited,
    /// Its answer to the open question counts.
    Answered,
    /// It missed what it was told or was restored from an older state, and answers nothing until its next question, which will contain
    /// its control variate. Waiting for it is in vain.
    OutOfStep,
    /// It could not be reached when the round was opened.
    Unreachable,
    /// It is asked nothing more: its answers were not believed ([`super::Coordinator::exclusions`]).
    Excluded,
    /// No question is open, or the open one is not to it.
    NotAsked,
    /// It owes no answer to the open question. Its answer to the question of an earlier round, the oldest of them this one, would count
    /// as a late one.
    Late {
        /// The round.
        round: u64,
    },
}

/// What became of one message from a lane.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Arrival {
    /// The factor with which it arrived; 0 if it did not.
    pub gain: f64,
    /// The round whose model it answers.
    pub answers: u64,
}

/// What lanes handed in: a sum, or a vector of each agent.
#[derive(Default)]
pub(super) enum FromLanes {
    #[default]
    Nothing,
    Sum {
        arrived: Vec<bool>,
    },
    Each(Vec<Option<Letter>>),
}
