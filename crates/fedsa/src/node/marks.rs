//! Marks: what an agent's state is made of, in 32 bits.
//!
//! A mark is a hash of the answers that a state contains because the server counted them, and of the rounds of whose end the agent has been
//! told. Both ends compute it; an agent's answer contains the mark of the state from which it was computed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::protocol::refused;

/// The mark of a state that the agent itself knows to be out of step: no other state has it, but by chance.
pub(super) const OUT_OF_STEP: u32 = u32::MAX;

/// The mark of a state with mark `before` after an answer with this checksum counted, or after the agent was told of the end of this many
/// rounds.
pub(super) fn after(before: u32, what: u32) -> u32 {
    crc32fast::hash([before.to_le_bytes(), what.to_le_bytes()].as_flattened())
}

/// The mark of a state that began anew with the question of a round.
pub(super) fn anew(round: u64) -> u32 {
    after(OUT_OF_STEP, round as u32)
}

/// The marks that the agents' states are to have, as the server node knows them; none for methods whose agents need not know which of
/// their answers counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Marks {
    of: Vec<u32>,
    /// Whether the state of each agent had another mark, or may have, and the agent has not shown since that it is in step.
    behind: Vec<bool>,
    /// The checksums of the answers to the open question, one for each agent that was asked; 0 without one.
    answers: Vec<u32>,
    /// The agents whose answers to the open question had another mark.
    refused: BTreeSet<usize>,
}

impl Marks {
    /// Of N agents at the start of a federation.
    pub fn new(agents: usize) -> Self {
        Self { of: vec![0; agents], behind: vec![false; agents], ..Self::default() }
    }

    /// Of the agents of the next epoch, each `from` these or new. All are taken to be `behind`, or none.
    pub fn regrouped(&self, from: &[Option<usize>], behind: bool) -> Self {
        let of = from.iter().map(|old| old.and_then(|old| self.of.get(old)).copied().unwrap_or(0)).collect();
        Self { of, behind: vec![behind; from.len()], ..Self::default() }
    }

    /// Whether the next question must bring agent `c` up to date.
    pub fn is_behind(&self, c: usize) -> bool {
        self.behind.get(c).is_some_and(|behind| *behind)
    }

    /// Whether the answer of agent `c` to the open question was out of step.
    pub fn is_refused(&self, c: usize) -> bool {
        self.refused.contains(&c)
    }

    /// Notes that a question went out, and to how many agents if their answers change their states.
    pub fn ask(&mut self, asked: Option<usize>) {
        self.refused.clear();
        if let Some(asked) = asked {
            self.answers.clear();
            self.answers.resize(asked, 0);
        }
    }

    /// Notes that the question of a round lets an agent begin anew.
    pub fn begin_anew(&mut self, agent: usize, round: u64) {
        self.of[agent] = anew(round);
    }

    /// Checks the mark of an answer.
    ///
    /// # Errors
    /// When the state from which the answer was computed is not the one that the server assumes.
    pub fn check(&mut self, agent: usize, mark: u32) -> Result<()> {
        if self.of[agent] == mark {
            return Ok(());
        }
        self.behind[agent] = true;
        self.refused.insert(agent);
        let what = format!("agent {agent} does not know which of its answers counted: it missed a message, or has an older state");
        Err(refused(what, "an answer to the agent's next question, which will bring it up to date"))
    }

    /// Notes the answer of the agent at place `at` among those that were asked.
    pub fn take(&mut self, at: usize, agent: usize, checksum: u32) {
        self.answers[at] = checksum;
        self.behind[agent] = false;
    }

    /// Adds the answers that counted, at the end of their exchange.
    pub fn settle(&mut self, asked: &[usize], is_counted: impl Fn(usize) -> bool) {
        for (c, answer) in asked.iter().zip(&self.answers).filter(|(c, answer)| **answer != 0 && is_counted(**c)) {
            self.of[*c] = after(self.of[*c], *answer);
        }
    }

    /// Notes that the agents that were asked are told of the end of a round.
    pub fn tell(&mut self, asked: &[usize], round: u64) {
        asked.iter().for_each(|c| self.of[*c] = after(self.of[*c], round as u32 + 1));
    }

    /// The agents among those that were asked that did not answer: nobody knows what reached them, and they are taken to be behind.
    pub fn leave_behind(&mut self, asked: &[usize]) -> Vec<usize> {
        let silent = asked.iter().zip(&self.answers).filter(|(_, answer)| **answer == 0).map(|(c, _)| *c);
        silent.inspect(|c| self.behind[*c] = true).collect()
    }
}
