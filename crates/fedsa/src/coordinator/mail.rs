//! Answers that are still on their way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::protocol::Protocol;
use crate::server::Letter;

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
