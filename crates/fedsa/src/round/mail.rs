//! Past rounds, which answers to stale models need, and answers that are still on their way.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::protocol::Protocol;
use crate::server::Letter;

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
    /// The number that stands for a round before the first, for which there is no answer.
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

    /// Whether this is a possible history at the start of round `t` if delays are at most `reach` rounds and messages are those
    /// of `protocol`. Without stale models (`reach` is `None`) it must be empty.
    pub fn is_of(&self, t: u64, reach: Option<u64>, protocol: &Protocol, are_chains: impl Fn(&[u64]) -> bool) -> bool {
        let kept = reach.map_or(0, |reach| t.min(reach + 1));
        let fits = |(round, past): (u64, &Past)| {
            let is_told =
                |(e, down): (usize, &Message)| (down.round, usize::from(down.exchange)) == (round, e) && protocol.check_down(down).is_ok();
            past.down.len() == protocol.exchanges.len() && past.down.iter().enumerate().all(is_told) && are_chains(&past.chains)
        };
        self.past.len() as u64 == kept && (t - kept..t).zip(&self.past).all(fits)
    }

    /// A past round that the history holds.
    pub fn at(&self, round: u64) -> &Past {
        let first = self.past[0].down[0].round;
        &self.past[(round - first) as usize]
    }
}

/// Answers on their way (push), by the exchange that they answer and the round in which they arrive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mail {
    letters: BTreeMap<(u8, u64), Vec<Letter>>,
}

impl Mail {
    /// Adds an answer that arrives in round `due`.
    pub fn post(&mut self, exchange: u8, due: u64, letter: Letter) {
        self.letters.entry((exchange, due)).or_default().push(letter);
    }

    /// The number of numbers on their way.
    pub fn len(&self) -> usize {
        self.letters.values().flatten().flat_map(|letter| &letter.parts).map(|(_, body)| body.len()).sum()
    }

    /// Whether these answers can be on their way after `rounds` rounds have been opened, if round `t` is the next in which
    /// answers arrive: they are those of `agents` agents under `protocol`, and at most `latest` rounds late. Without late
    /// answers (`latest` is `None`) there must be none.
    pub fn is_of(&self, t: u64, rounds: u64, latest: Option<u64>, agents: usize, protocol: &Protocol) -> bool {
        let fits = |((exchange, due), letter): ((u8, u64), &Letter)| {
            let asked = letter.answers;
            let in_time = asked < rounds && asked <= due && latest.is_some_and(|latest| due - t <= latest && due - asked <= latest);
            in_time && letter.agent < agents && protocol.check_answer_shape(exchange, &letter.parts).is_ok()
        };
        let mut letters = self.letters.iter().flat_map(|(key, letters)| letters.iter().map(|letter| (*key, letter)));
        self.letters.keys().all(|(_, due)| *due >= t) && letters.all(fits)
    }

    /// Removes and returns the answers to an exchange that arrive by round t, in the agents' order, older ones first.
    pub fn deliver(&mut self, exchange: u8, t: u64) -> Vec<Letter> {
        let due: Vec<(u8, u64)> = self.letters.range((exchange, 0)..=(exchange, t)).map(|(key, _)| *key).collect();
        let mut here: Vec<Letter> = due.iter().filter_map(|key| self.letters.remove(key)).flatten().collect();
        here.sort_by_key(|letter| (letter.agent, letter.answers));
        here
    }
}
