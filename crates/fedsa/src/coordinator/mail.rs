//! Answers that are still on their way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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

    /// Removes and returns the answers to an exchange that arrive by round t, in the agents' order, older ones first.
    pub fn deliver(&mut self, exchange: u8, t: u64) -> Vec<Letter> {
        let due: Vec<(u8, u64)> = self.letters.range((exchange, 0)..=(exchange, t)).map(|(key, _)| *key).collect();
        let mut here: Vec<Letter> = due.iter().filter_map(|key| self.letters.remove(key)).flatten().collect();
        here.sort_by_key(|letter| (letter.agent, letter.answers));
        here
    }
}
