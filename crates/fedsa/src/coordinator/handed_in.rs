//! Answers that are handed in to a coordinator, and its results.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::message::{Body, Part};

/// The result of an accepted answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It counts.
    Counted,
    /// It is a copy of an answer that already counts.
    Repeated,
}

/// An answer that was refused.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The agent.
    pub agent: usize,
    /// The round of the open question.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// The reason.
    pub reason: Error,
}

/// A checked answer to the open question.
pub(crate) struct Checked {
    /// The agent's place among the participants.
    pub(super) at: usize,
    pub(super) parts: Vec<(Part, Body)>,
    /// Whether the agent's numbers are no longer finite.
    pub(super) is_diverged: bool,
    /// Bytes on the wire.
    pub(super) len: usize,
}

/// Whether an agent may still answer, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentStatus {
    /// Its answer to the open question is awaited.
    Awaited,
    /// Its answer to the open question counts.
    Answered,
    /// It missed a message or has an older state, so its answer was refused. Its next question will bring it up to date; do not wait for
    /// it.
    OutOfStep,
    /// It was not reachable when the round was opened.
    Unreachable,
    /// It was excluded because of a faulty answer ([`super::Coordinator::exclusions`]).
    Excluded,
    /// It has no open question.
    NotAsked,
}

/// The answers to the open question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Replies {
    /// One entry for each participant. The list is empty before the first answer.
    Each(Vec<Option<Reply>>),
    /// `sum p_c x_c` over the answers that arrived, d numbers in the order of [`crate::sums`].
    Sum {
        /// The sum.
        sum: Vec<f64>,
        /// Whether each participant's answer arrived; empty if all did.
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

    /// The single answers; none if there is only their sum.
    pub fn each(&self) -> &[Option<Reply>] {
        match self {
            Replies::Each(each) => each,
            Replies::Sum { .. } => &[],
        }
    }

    /// The answer of the participant at a place, if any.
    pub fn of(&self, place: usize) -> Option<&Reply> {
        self.each().get(place)?.as_ref()
    }

    /// Adds the answer of the participant at a place, of `asked` participants.
    pub fn add(&mut self, place: usize, asked: usize, reply: Reply) {
        if let Replies::Each(each) = self {
            each.resize(asked, None);
            each[place] = Some(reply);
        }
    }
}
