//! Past rounds that stale models need, and letters that are still on their way.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::protocol::Protocol;
use crate::server::Letter;

/// What agents were told in past rounds, and where their processes stood.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    past: VecDeque<Past>,
}

/// One past round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Past {
    /// What all agents were told, exchange by exchange.
    pub down: Vec<Message>,
    /// All agents' sampling processes at its start.
    pub chains: Vec<u64>,
}

impl History {
    /// Stands for a round before the first: nothing to answer.
    pub const NOTHING: u64 = u64::MAX;

    /// Keeps what an exchange tells: its first opens a round, and as many before it are kept as delays can reach.
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

    /// How many numbers it keeps.
    pub fn len(&self) -> usize {
        let told = |past: &Past| past.down.iter().flat_map(|down| &down.parts).map(|(_, body)| body.len()).sum::<usize>();
        self.past.iter().map(|past| past.chains.len() + told(past)).sum()
    }

    /// Whether this is what is kept at the start of round `t` when delays reach `reach` rounds
    /// back, of exchanges that `protocol` has; nothing is kept without stale models.
    pub fn is_of(&self, t: u64, reach: Option<u64>, protocol: &Protocol, are_chains: impl Fn(&[u64]) -> bool) -> bool {
        let kept = reach.map_or(0, |reach| t.min(reach + 1));
        let fits = |(round, past): (u64, &Past)| {
            let is_told =
                |(e, down): (usize, &Message)| (down.round, usize::from(down.exchange)) == (round, e) && protocol.check_down(down).is_ok();
            past.down.len() == protocol.exchanges.len() && past.down.iter().enumerate().all(is_told) && are_chains(&past.chains)
        };
        self.past.len() as u64 == kept && (t - kept..t).zip(&self.past).all(fits)
    }

    /// A round that is kept.
    pub fn at(&self, round: u64) -> &Past {
        let first = self.past[0].down[0].round;
        &self.past[(round - first) as usize]
    }
}

/// Letters on their way (push), by the exchange that they answer and the round in which they arrive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mail {
    letters: BTreeMap<(u8, u64), Vec<Letter>>,
}

impl Mail {
    /// A letter that arrives in round `due`.
    pub fn post(&mut self, exchange: u8, due: u64, letter: Letter) {
        self.letters.entry((exchange, due)).or_default().push(letter);
    }

    /// How many numbers are on their way.
    pub fn len(&self) -> usize {
        self.letters.values().flatten().flat_map(|letter| &letter.parts).map(|(_, body)| body.len()).sum()
    }

    /// Whether these can be under way between `agents` agents whose answers `protocol` has, when `rounds` rounds have been
    /// opened, round `t` is the next in which any arrive, and none is later than `latest` rounds; there are none without
    /// late answers.
    pub fn is_of(&self, t: u64, rounds: u64, latest: Option<u64>, agents: usize, protocol: &Protocol) -> bool {
        let fits = |((exchange, due), letter): ((u8, u64), &Letter)| {
            let asked = letter.answers;
            let in_time = asked < rounds && asked <= due && latest.is_some_and(|latest| due - t <= latest && due - asked <= latest);
            in_time && letter.agent < agents && protocol.check_answer(exchange, &letter.parts).is_ok()
        };
        let mut letters = self.letters.iter().flat_map(|(key, letters)| letters.iter().map(|letter| (*key, letter)));
        self.letters.keys().all(|(_, due)| *due >= t) && letters.all(fits)
    }

    /// The answers to an exchange that arrive in round t, in the agents' order, older ones first.
    pub fn deliver(&mut self, exchange: u8, t: u64) -> Vec<Letter> {
        let due: Vec<(u8, u64)> = self.letters.range((exchange, 0)..=(exchange, t)).map(|(key, _)| *key).collect();
        let mut here: Vec<Letter> = due.iter().filter_map(|key| self.letters.remove(key)).flatten().collect();
        here.sort_by_key(|letter| (letter.agent, letter.answers));
        here
    }
}
