//! The ledger: the cost of a run.

use serde::{Deserialize, Serialize};

use crate::message::{Body, Part, Unit};
use crate::problem::calls::Calls;

/// Counts since the start of a run, over all agents.
///
/// A message counts once, when it is sent, even if it is late or lost. A message that the link's budget does not carry is not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Exchanges: a message down to the participants and their answers. The message at the end of a round travels with the next question;
    /// it adds only bits.
    pub exchanges: u64,
    /// Samples drawn by all agents.
    pub samples: u64,
    /// Messages in both directions.
    pub messages: u64,
    /// Bits from agents to the server: eight times the encoded bytes, headers included.
    pub bits_up: u64,
    /// Bits from the server to agents.
    pub bits_down: u64,
    /// Vectors of d components from agents to the server.
    pub vectors_up: u64,
    /// Matrices, or corrections of one, from agents to the server.
    pub matrices_up: u64,
    /// Single numbers from agents to the server, such as losses of a line search.
    pub scalars_up: u64,
    /// Evaluations of operators, losses and derivatives by all agents.
    pub calls: Calls,
}

impl Ledger {
    /// Counts messages to agents, and the sum of their bytes.
    pub(crate) fn down(&mut self, agents: usize, bytes: usize) {
        self.messages += agents as u64;
        self.bits_down += 8 * bytes as u64;
    }

    /// Counts the agents' messages of an exchange.
    pub(crate) fn up(&mut self, sent: &Sent) {
        self.messages += sent.messages;
        self.bits_up += 8 * sent.bytes;
        self.vectors_up += sent.vectors;
        self.matrices_up += sent.matrices;
        self.scalars_up += sent.scalars;
    }

    /// These counts plus the agents' work.
    #[must_use]
    pub fn with(self, work: Work) -> Self {
        let mut sum = self;
        sum.samples += work.samples;
        sum.calls.add(work.calls);
        sum
    }
}

/// Computations of one or more agents since the start: the part of a ledger that the server does not see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Samples drawn.
    pub samples: u64,
    /// Evaluations of operators, losses and derivatives.
    pub calls: Calls,
}

impl Work {
    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.samples += other.samples;
        self.calls.add(other.calls);
        self
    }
}

/// Counts of agents' messages in one exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages that were sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Vectors of d components in them.
    pub vectors: u64,
    /// Matrices in them.
    pub matrices: u64,
    /// Single numbers in them.
    pub scalars: u64,
}

impl Sent {
    /// Counts one message of `bytes` bytes with these parts; models have d components.
    pub fn message(&mut self, bytes: usize, parts: &[(Part, Body)], d: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
        for (part, body) in parts {
            match part.unit() {
                Unit::Vector => self.vectors += 1,
                Unit::Vectors => self.vectors += (body.len() / d) as u64,
                Unit::Matrix => self.matrices += 1,
                Unit::Scalars => self.scalars += body.len() as u64,
                Unit::Nothing => {}
            }
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.vectors += other.vectors;
        self.matrices += other.matrices;
        self.scalars += other.scalars;
        self
    }
}
