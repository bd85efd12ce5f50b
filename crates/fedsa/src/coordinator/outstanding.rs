//! Answers that missed the deadline of their exchange and may still arrive, over a link with the law `network`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// By question, the agents whose answers may still arrive, each with the factor of its answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outstanding {
    questions: BTreeMap<(u64, u8), Vec<(usize, f64)>>,
}

impl Outstanding {
    /// Notes an answer that missed the end of its exchange.
    pub fn miss(&mut self, round: u64, exchange: u8, agent: usize, gain: f64) {
        self.questions.entry((round, exchange)).or_default().push((agent, gain));
    }

    /// Forgets answers to questions before round `first`.
    pub fn forget_before(&mut self, first: u64) {
        self.questions = self.questions.split_off(&(first, 0));
    }

    /// Forgets the answers of an agent.
    pub fn forget(&mut self, agent: usize) {
        self.questions.values_mut().for_each(|missing| missing.retain(|(c, _)| *c != agent));
    }

    /// Whether an agent's answer may still arrive.
    pub fn has(&self, round: u64, exchange: u8, agent: usize) -> bool {
        self.questions.get(&(round, exchange)).is_some_and(|missing| missing.iter().any(|(c, _)| *c == agent))
    }

    /// Removes an answer that has arrived; returns its factor.
    pub fn take(&mut self, round: u64, exchange: u8, agent: usize) -> Option<f64> {
        let missing = self.questions.get_mut(&(round, exchange))?;
        let at = missing.iter().position(|(c, _)| *c == agent)?;
        Some(missing.remove(at).1)
    }

    /// The oldest round to which an answer of an agent may still arrive.
    pub fn oldest(&self, agent: usize) -> Option<u64> {
        self.questions.iter().find(|(_, missing)| missing.iter().any(|(c, _)| *c == agent)).map(|((round, _), _)| *round)
    }
}
