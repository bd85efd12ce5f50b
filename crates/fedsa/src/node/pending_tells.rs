//! What agents are told of the rounds in which they took part, which travels with their next questions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::{Body, Message, Part, TELL};
use crate::protocol::Protocol;

/// What agents have not been told yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingTells {
    /// What all participants of a round are told, by the round.
    rounds: BTreeMap<u64, RoundTell>,
    /// What each agent is told of the last round in which a question reached it; empty for methods that tell nothing.
    of: Vec<Option<Pending>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RoundTell {
    /// As the server wrote it.
    parts: Vec<(Part, Body)>,
    /// How many agents are still to be told.
    left: u64,
}

/// What one agent is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pending {
    /// The round.
    round: u64,
    /// A part of its own.
    own: Option<(Part, Body)>,
}

impl PendingTells {
    /// Nothing yet, for N agents.
    pub fn new(protocol: &Protocol, agents: usize) -> Self {
        let of = if protocol.tell.is_empty() { Vec::new() } else { vec![None; agents] };
        Self { rounds: BTreeMap::new(), of }
    }

    /// Adds what is told of a round to these agents, with the part of its own of each.
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

    /// What agent `c` is still to be told, if anything.
    pub fn get(&self, c: usize) -> Option<Message> {
        let pending = self.of.get(c)?.as_ref()?;
        let mut parts = self.rounds[&pending.round].parts.clone();
        parts.extend(pending.own.clone());
        Some(Message { round: pending.round, exchange: TELL, parts })
    }

    /// The round of which all of these agents are to be told the same; `Some(None)` if nobody is to be told anything, and `None` if they
    /// differ.
    pub fn common(&self, agents: &[usize]) -> Option<Option<u64>> {
        let of = |c: &usize| self.of.get(*c).and_then(Option::as_ref);
        let first = agents.first().and_then(of).map(|pending| pending.round);
        let is_same = |c: &usize| of(c).map(|pending| pending.round) == first && of(c).is_none_or(|pending| pending.own.is_none());
        agents.iter().all(is_same).then_some(first)
    }

    /// Forgets what agent `c` is told, because it is on its way, or of no use any more.
    pub fn remove(&mut self, c: usize) {
        let Some(pending) = self.of.get_mut(c).and_then(Option::take) else { return };
        if let Some(told) = self.rounds.get_mut(&pending.round) {
            told.left -= 1;
            if told.left == 0 {
                self.rounds.remove(&pending.round);
            }
        }
    }

    /// The agents that are still to be told something, in increasing order.
    pub fn agents(&self) -> Vec<usize> {
        (0..self.of.len()).filter(|c| self.of[*c].is_some()).collect()
    }

    /// The number of numbers that are kept.
    pub fn len(&self) -> usize {
        self.rounds.values().flat_map(|told| &told.parts).map(|(_, body)| body.len()).sum::<usize>() + self.of.len()
    }
}
