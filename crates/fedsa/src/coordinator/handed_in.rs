//! What is handed in to a coordinator, and what it says of it.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::message::{Body, Part};

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

/// Whether an agent may still answer, and if not why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentStatus {
    /// Its answer to the open question is awaited.
    Awaited,
    /// Its answer to the open question counts.
    Answered,
    /// It missed what it was told or was restored from an older state, so that its answer was refused: its next question will bring it up
    /// to date. Waiting for it is in vain.
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

/// The answers to the open question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Replies {
    /// One entry for each agent that was asked. The list is empty while nobody has answered.
    Each(Vec<Option<Reply>>),
    /// `sum p_c x_c` over the answers that arrived, d numbers in the order of [`crate::sums`].
    Sum {
        /// The sum.
        sum: Vec<f64>,
        /// Whether the answer arrived, for each agent that was asked; empty if all did.
        arrived: Vec<bool>,
    },
}

/// The answer of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// The round whose model it answers.
    pub round: u64,
    /// The parts that the server can decode.
    pub parts: Vec<(Part, Body)>,
}

impl Replies {
    /// No answers.
    pub fn none() -> Self {
        Replies::Each(Vec::new())
    }

    /// The answers one by one; none if there is only their sum.
    pub fn each(&self) -> &[Option<Reply>] {
        match self {
            Replies::Each(each) => each,
            Replies::Sum { .. } => &[],
        }
    }

    /// The answer of the agent at a place among those that were asked, if it has one.
    pub fn of(&self, place: usize) -> Option<&Reply> {
        self.each().get(place)?.as_ref()
    }

    /// Adds the answer of the agent at a place among `asked` agents.
    pub fn add(&mut self, place: usize, asked: usize, reply: Reply) {
        if let Replies::Each(each) = self {
            each.resize(asked, None);
            each[place] = Some(reply);
        }
    }
}
