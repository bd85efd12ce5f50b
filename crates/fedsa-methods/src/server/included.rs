//! Which agents' answers a round's mean includes, for methods whose agents must know it.

use fedsa::message::Part;
use fedsa::server::Own;
use serde::{Deserialize, Serialize};

/// The last round whose mean includes an answer of the agent, for each agent. An agent assumes that the mean of the round
/// before includes its answer, unless it is told otherwise. Until an answer is lost, nothing is kept and nothing is sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Included {
    agents: usize,
    /// Empty until an answer is lost; then one entry per agent, -1 for no round.
    last: Vec<f64>,
}

impl Included {
    /// For agents that are all asked in every round.
    pub fn new(agents: usize) -> Self {
        Self { agents, last: Vec::new() }
    }

    /// Records whose answers arrived in a round. An empty list means that all answers arrived.
    pub fn see(&mut self, round: u64, arrived: &[bool]) {
        if self.last.is_empty() {
            if arrived.iter().all(|arrived| *arrived) {
                return;
            }
            self.last = vec![round as f64 - 1.0; self.agents];
        }
        for (c, last) in self.last.iter_mut().enumerate() {
            if arrived.get(c).is_none_or(|arrived| *arrived) {
                *last = round as f64;
            }
        }
    }

    /// The part that agents whose last answer was lost get with the question of a round.
    pub fn own(&self, round: u64) -> Option<Own> {
        let before = round as f64 - 1.0;
        if self.last.iter().all(|last| *last == before) {
            return None;
        }
        let each = self.last.iter().map(|last| (*last != before).then(|| vec![*last])).collect();
        Some(Own { part: Part::Included, each })
    }
}
