//! Past rounds that stale models need, and letters that are still on their way.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::message::{Body, Message, Part};
use crate::server::Letter;

/// What agents were told in past rounds, and where their processes stood.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    past: VecDeque<Past>,
}

/// One past round at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Past {
    /// What all agents were told.
    #[serde(with = "told")]
    pub down: Message,
    /// All agents' sampling processes.
    pub chains: Vec<u64>,
}

impl History {
    /// Stands for a round before the first: nothing to answer.
    pub const NOTHING: u64 = u64::MAX;

    /// Keeps a round that opens, and as many before it as delays can reach.
    pub fn keep(&mut self, down: &Message, chains: &[u64], reach: u64) {
        while self.past.len() as u64 > reach {
            self.past.pop_front();
        }
        self.past.push_back(Past { down: down.clone(), chains: chains.to_vec() });
    }

    /// How many numbers it keeps.
    pub fn len(&self) -> usize {
        self.past.iter().map(|past| past.chains.len() + past.down.part(Part::Model).len()).sum()
    }

    /// Whether this is what is kept at the start of round `t` when delays reach `reach` rounds
    /// back, of models of `d` numbers; nothing is kept without stale models.
    pub fn is_of(&self, t: u64, reach: Option<u64>, d: usize, are_chains: impl Fn(&[u64]) -> bool) -> bool {
        let kept = reach.map_or(0, |reach| t.min(reach + 1));
        let rounds = t - kept..t;
        let fits =
            |(round, past): (u64, &Past)| past.down.round == round && past.down.part(Part::Model).len() == d && are_chains(&past.chains);
        self.past.len() as u64 == kept && rounds.zip(&self.past).all(fits)
    }

    /// A round that is kept.
    pub fn at(&self, round: u64) -> &Past {
        let first = self.past[0].down.round;
        &self.past[(round - first) as usize]
    }
}

/// A message of one model, as plain data.
mod told {
    use super::{Message, Part};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(message: &Message, to: S) -> Result<S::Ok, S::Error> {
        (message.round, message.part(Part::Model)).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Message, D::Error> {
        let (round, theta) = <(u64, Vec<f64>)>::deserialize(from)?;
        Ok(Message::one(round, 0, Part::Model, theta))
    }
}

/// Letters on their way (push), by the round in which they arrive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mail {
    letters: BTreeMap<u64, Vec<Letter>>,
}

impl Mail {
    /// A letter that arrives in round `due`.
    pub fn post(&mut self, due: u64, letter: Letter) {
        self.letters.entry(due).or_default().push(letter);
    }

    /// How many numbers are on their way.
    pub fn len(&self) -> usize {
        self.letters.values().flatten().flat_map(|letter| &letter.parts).map(|(_, body)| body.len()).sum()
    }

    /// Whether these can be under way at the start of round `t` between `agents` agents whose answers hold what
    /// `are_parts` says, when none is later than `latest` rounds; there are none without late answers.
    pub fn is_of(&self, t: u64, latest: Option<u64>, agents: usize, are_parts: impl Fn(&[(Part, Body)]) -> bool) -> bool {
        let fits = |(due, letter): (u64, &Letter)| {
            let asked = letter.answers;
            let in_time = asked < t && latest.is_some_and(|latest| due - t <= latest && due - asked <= latest);
            in_time && letter.agent < agents && are_parts(&letter.parts)
        };
        let mut letters = self.letters.iter().flat_map(|(due, letters)| letters.iter().map(|letter| (*due, letter)));
        self.letters.keys().all(|due| *due >= t) && letters.all(fits)
    }

    /// The letters that arrive in round t, in the agents' order, older ones first.
    pub fn deliver(&mut self, t: u64) -> Vec<Letter> {
        let still = self.letters.split_off(&(t + 1));
        let mut here: Vec<Letter> = std::mem::replace(&mut self.letters, still).into_values().flatten().collect();
        here.sort_by_key(|letter| (letter.agent, letter.answers));
        here
    }
}
