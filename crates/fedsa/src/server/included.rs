//! Which answers are in a round's mean, where agents must know it.

use super::{Own, foreign_state};
use crate::error::Result;
use crate::message::Part;

/// For each agent the last round whose mean has its answer. An agent takes the round before for included unless it is
/// told otherwise, so that nothing is kept or sent until an answer is missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Included {
    agents: usize,
    /// Empty until an answer is missing; then one entry an agent, -1 for never.
    last: Vec<f64>,
}

impl Included {
    /// For so many agents, all of which are asked in every round.
    pub fn new(agents: usize) -> Self {
        Self { agents, last: Vec::new() }
    }

    /// Sees who arrived in a round; an empty list says that all did.
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

    /// What agents are to be told with the question of a round.
    pub fn own(&self, round: u64) -> Option<Own> {
        let before = round as f64 - 1.0;
        if self.last.iter().all(|last| *last == before) {
            return None;
        }
        let each = self.last.iter().map(|last| (*last != before).then(|| vec![*last])).collect();
        Some(Own { part: Part::Included, each })
    }

    /// What is to be saved.
    pub fn state(&self) -> Vec<f64> {
        self.last.clone()
    }

    /// Whether saved numbers are such a state when so many rounds have been opened.
    pub fn check(&self, saved: &[f64], opened: u64) -> Result<()> {
        let is_round = |t: &f64| *t >= -1.0 && *t < opened as f64 && t.fract() == 0.0;
        let fits = saved.is_empty() || saved.len() == self.agents && saved.iter().all(is_round);
        if fits { Ok(()) } else { Err(foreign_state()) }
    }

    /// Puts back what [`Included::state`] gave.
    pub fn restore(&mut self, saved: Vec<f64>) {
        self.last = saved;
    }
}
