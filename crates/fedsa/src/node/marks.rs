//! Marks: 32-bit hashes of the answers in agents' states.
//!
//! A mark is a hash of the counted answers that a state contains, and of the rounds whose last message the agent has received. Both ends
//! compute it. An answer contains the mark of the state from which it was computed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::protocol::refused;

/// The mark of a state that the agent itself knows to be out of step. Other states have it only by chance.
pub(super) const OUT_OF_STEP: u32 = u32::MAX;

/// The mark after `before`, once an answer with the checksum `what` counted, or the agent received the message at the end of round `what -
/// 1`.
pub(super) fn after(before: u32, what: u32) -> u32 {
    crc32fast::hash([before.to_le_bytes(), what.to_le_bytes()].as_flattened())
}

/// The mark of a state that started again with a round's question.
pub(super) fn anew(round: u64) -> u32 {
    after(OUT_OF_STEP, round as u32)
}

/// The marks that the server node expects of the agents' states; empty for methods whose agents need not know which of their answers
/// counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Marks {
    of: Vec<u32>,
    /// Whether each agent's state had, or may have, another mark, and no later answer has had the right one.
    behind: Vec<bool>,
    /// The checksums of the participants' answers to the open question; 0 for a missing answer.
    answers: Vec<u32>,
    /// The agents whose answers to the open question had another mark.
    refused: BTreeSet<usize>,
}

impl Marks {
    /// The marks of N agents at the start of a federation.
    pub fn new(agents: usize) -> Self {
        Self { of: vec![0; agents], behind: vec![false; agents], ..Self::default() }
    }

    /// The marks of the next epoch's agents, each `from` these or new. `behind` applies to all.
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

    /// Notes that a question was sent; `asked` is the number of participants, if answers change their states.
    pub fn ask(&mut self, asked: Option<usize>) {
        self.refused.clear();
        if let Some(asked) = asked {
            self.answers.clear();
            self.answers.resize(asked, 0);
        }
    }

    /// Notes that an agent starts again with a round's question.
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

    /// Notes the answer of the participant at place `at`.
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

    /// Notes the message at the end of a round to the participants.
    pub fn tell(&mut self, asked: &[usize], round: u64) {
        asked.iter().for_each(|c| self.of[*c] = after(self.of[*c], round as u32 + 1));
    }

    /// Marks the participants that did not answer as behind, because it is unknown which messages reached them; returns them.
    pub fn leave_behind(&mut self, asked: &[usize]) -> Vec<usize> {
        let silent = asked.iter().zip(&self.answers).filter(|(_, answer)| **answer == 0).map(|(c, _)| *c);
        silent.inspect(|c| self.behind[*c] = true).collect()
    }
}
