//! Messages at the end of rounds, which travel with the participants' next questions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Body, Message, Part, TELL};
use crate::protocol::Protocol;

/// Messages that agents have not received yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingTells {
    /// The parts for all participants, by round.
    rounds: BTreeMap<u64, RoundTell>,
    /// Each agent's pending message, about the last round in which a question reached it; empty for methods without such messages.
    of: Vec<Option<Pending>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RoundTell {
    /// As the server wrote it.
    parts: Vec<(Part, Body)>,
    /// The number of agents without this message.
    left: u64,
}

/// One agent's pending message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pending {
    /// The round.
    round: u64,
    /// A part of its own.
    own: Option<(Part, Body)>,
}

impl PendingTells {
    /// No messages, for N agents.
    pub fn new(protocol: &Protocol, agents: usize) -> Self {
        let of = if protocol.tell.is_empty() { Vec::new() } else { vec![None; agents] };
        Self { rounds: BTreeMap::new(), of }
    }

    /// Adds a round's message to these agents, each with its own part.
    pub fn add(&mut self, told: &Message, to: impl Iterator<Item = (usize, Option<(Part, Body)>)>) {
        let mut left = 0;
        for (c, own) in to {
            self.remove(c);
            self.of[c] = Some(Pending { round: told.round, own });
            left += 1;
        }
        if left > 0 {
            self.rounds.insert(told.round, RoundTell { parts: told.parts.clone(), left });
        }
    }

    /// The pending message to agent `c`, if any.
    pub fn get(&self, c: usize) -> Option<Message> {
        let pending = self.of.get(c)?.as_ref()?;
        let mut parts = self.rounds[&pending.round].parts.clone();
        parts.extend(pending.own.clone());
        Some(Message { round: pending.round, exchange: TELL, parts })
    }

    /// The round of the pending message, if it is the same for all these agents; `Some(None)` if none has one, and `None` if they differ.
    pub fn common(&self, agents: &[usize]) -> Option<Option<u64>> {
        let of = |c: &usize| self.of.get(*c).and_then(Option::as_ref);
        let first = agents.first().and_then(of).map(|pending| pending.round);
        let is_same = |c: &usize| of(c).map(|pending| pending.round) == first && of(c).is_none_or(|pending| pending.own.is_none());
        agents.iter().all(is_same).then_some(first)
    }

    /// Forgets the message to agent `c`, because it is sent or useless.
    pub fn remove(&mut self, c: usize) {
        let Some(pending) = self.of.get_mut(c).and_then(Option::take) else { return };
        if let Some(told) = self.rounds.get_mut(&pending.round) {
            told.left -= 1;
            if told.left == 0 {
                self.rounds.remove(&pending.round);
            }
        }
    }

    /// The agents with pending messages, in increasing order.
    pub fn agents(&self) -> Vec<usize> {
        (0..self.of.len()).filter(|c| self.of[*c].is_some()).collect()
    }

    /// The number of stored numbers.
    pub fn len(&self) -> usize {
        self.rounds.values().flat_map(|told| &told.parts).map(|(_, body)| body.len()).sum::<usize>() + self.of.len()
    }
}
