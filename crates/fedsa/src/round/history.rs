//! Past rounds, for answers to stale models.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::message::Message;

/// The messages to agents in past rounds, and the states of the agents' sampling processes at the start of these rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    past: VecDeque<Past>,
}

/// One past round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Past {
    /// The message to all agents, for each exchange.
    pub down: Vec<Message>,
    /// The states of all agents' sampling processes at the start of the round.
    pub chains: Vec<u64>,
}

impl History {
    /// Stands for a round before the first, which has no answer.
    pub const NOTHING: u64 = u64::MAX;

    /// Adds the message of an exchange. The first exchange opens a round; the `reach` rounds before it are kept.
    pub fn keep(&mut self, down: &Message, chains: &[u64], reach: u64) {
        if down.exchange > 0 {
            let round = self.past.back_mut().expect("a round that was opened");
            return round.down.push(down.clone());
        }
        while self.past.len() as u64 > reach {
            self.past.pop_front();
        }
        self.past.push_back(Past { down: vec![down.clone()], chains: chains.to_vec() });
    }

    /// The number of numbers that the history holds.
    pub fn len(&self) -> usize {
        let told = |past: &Past| past.down.iter().flat_map(|down| &down.parts).map(|(_, body)| body.len()).sum::<usize>();
        self.past.iter().map(|past| past.chains.len() + told(past)).sum()
    }

    /// A past round that the history holds.
    pub fn at(&self, round: u64) -> &Past {
        let first = self.past[0].down[0].round;
        &self.past[(round - first) as usize]
    }
}
