//! The server node's copies of the agents' control variates.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::local::Controls;
use crate::message::{Message, Part};
use crate::protocol::refused;
use crate::server::Letter;

/// Copies of the agents' control variates; empty for methods without them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Copies {
    /// The number of components d.
    dim: usize,
    /// `xi_c`, d numbers each.
    pub xi: Vec<f64>,
    /// The number of rounds whose end each agent's control must have seen, if agents are told means.
    pub seen: Vec<u32>,
    /// Whether each agent's own control equals its copy.
    agreement: Vec<Agreement>,
    /// The checksum of the last answer of each agent that a mean includes; 0 if there is none since the agent was sent its
    /// control.
    counted: Vec<u32>,
    /// The checksums of the answers to the open question, one for each agent that was asked; 0 without one.
    checksums: Vec<u32>,
}

/// Whether an agent's control equals the server's copy, as far as the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Agreement {
    /// They are equal.
    Equal,
    /// They differ: the next question will contain the copy.
    Differs,
    /// The last question contained the copy, and was not yet answered.
    Sent,
}

impl Copies {
    /// Copies of N controls of d components, all 0.
    pub fn new(n: usize, dim: usize) -> Self {
        Self {
            dim,
            xi: vec![0.0; n * dim],
            seen: vec![0; n],
            agreement: vec![Agreement::Equal; n],
            counted: vec![0; n],
            checksums: Vec::new(),
        }
    }

    /// The copies of the agents of the next epoch, each `from` these or new: `xi_c -= sum p_k xi_k` with the new weights `p_k`,
    /// so that they sum to zero. Each agent is sent its own.
    pub fn regrouped(&self, from: &[Option<usize>], weights: &[f64]) -> Self {
        let d = self.dim;
        let mut next = Self::new(from.len(), d);
        for (xi, old) in next.xi.chunks_mut(d).zip(from).filter_map(|(xi, old)| Some((xi, (*old)?))) {
            xi.copy_from_slice(&self.xi[old * d..(old + 1) * d]);
        }
        let mut mean = vec![0.0; d];
        for (p, xi) in weights.iter().zip(next.xi.chunks(d)) {
            mean.iter_mut().zip(xi).for_each(|(mean, xi)| *mean += p * xi);
        }
        next.xi.chunks_mut(d).for_each(|xi| xi.iter_mut().zip(&mean).for_each(|(xi, mean)| *xi -= mean));
        next.agreement.fill(Agreement::Differs);
        next
    }

    /// The copy that the next question to agent `c` must contain, because the agent's own control differs from it.
    pub fn to_send(&self, c: usize) -> Option<&[f64]> {
        let d = self.dim;
        (self.agreement[c] != Agreement::Equal).then(|| &self.xi[c * d..(c + 1) * d])
    }

    /// Whether agent `c` has said to the open question that it is out of step.
    pub fn is_out_of_step(&self, c: usize) -> bool {
        self.agreement.get(c) == Some(&Agreement::Differs)
    }

    /// Notes that a question went out to these agents; the first one of a round contains the copies that differ.
    pub fn ask(&mut self, asked: &[usize], is_first: bool) {
        self.checksums.clear();
        self.checksums.resize(asked.len(), 0);
        if is_first {
            for c in asked {
                if self.agreement[*c] == Agreement::Differs {
                    self.agreement[*c] = Agreement::Sent;
                }
            }
        }
    }

    /// Checks the answer of an agent that has not answered the open question: `seen` is the checksum of the earlier answer that its
    /// control assumes to be included.
    ///
    /// # Errors
    /// When its control is older than the question assumes; its next question will contain its control.
    pub fn check(&mut self, agent: usize, is_behind: bool, seen: u32) -> Result<()> {
        let expected = match self.agreement[agent] {
            Agreement::Equal => Some(self.counted[agent]),
            Agreement::Sent => Some(0),
            Agreement::Differs => None,
        };
        if is_behind || Some(seen) != expected {
            self.agreement[agent] = Agreement::Differs;
            let what = format!("the control variate of agent {agent} is older than the question assumes");
            return Err(refused(what, "an answer to the agent's next question, which will contain its control variate"));
        }
        Ok(())
    }

    /// Notes that an answer counts: that of the agent at place `at` among those that were asked, with this checksum.
    pub fn take(&mut self, at: usize, agent: usize, checksum: u32) {
        self.checksums[at] = checksum;
        if std::mem::replace(&mut self.agreement[agent], Agreement::Equal) == Agreement::Sent {
            self.counted[agent] = 0;
        }
    }

    /// Those of the agents that were asked which did not answer the last question: their controls may differ from their copies now.
    pub fn differ_without_answer(&mut self, asked: &[usize]) -> Vec<usize> {
        let silent = asked.iter().zip(&self.checksums).filter(|(_, checksum)| **checksum == 0).map(|(c, _)| *c);
        silent.inspect(|c| self.agreement[*c] = Agreement::Differs).collect()
    }

    /// Updates the copies at the end of a round that led to `theta`, as the agents will update their controls. `down` is what the agents
    /// that were asked are told at the end of the round, or its question if they are told nothing.
    pub fn settle(&mut self, controls: &dyn Controls, down: &Message, asked: &[usize], letters: &[Letter], theta: &[f64]) {
        let (d, shared) = (self.dim, controls.shared(down, theta));
        let mut letters = letters.iter().peekable();
        for (c, checksum) in asked.iter().zip(&self.checksums) {
            let letter = letters.next_if(|letter| letter.agent == *c);
            let own = letter.map(|letter| letter.part(Part::Direction));
            controls.settle(down.round, &mut self.xi[c * d..(c + 1) * d], &shared, own);
            if letter.is_some() {
                self.counted[*c] = *checksum;
            }
            if controls.is_told() {
                self.seen[*c] = down.round as u32 + 1;
            }
        }
    }
}
