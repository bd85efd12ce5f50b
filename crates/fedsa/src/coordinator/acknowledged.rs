//! The last counted answer of each agent.

use serde::{Deserialize, Serialize};

use crate::message::Part;
use crate::server::PerRecipient;

/// The answers of agents whose state depends on which of them counted ([`crate::protocol::Protocol::is_acknowledged`]).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    /// By agent; empty as long as every round has asked all agents and counted all answers.
    of: Vec<Rounds>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct Rounds {
    /// The last round that asked the agent.
    asked: Option<u64>,
    /// The last round that counted an answer of the agent.
    counted: Option<u64>,
}

impl Acknowledged {
    /// Notes which participants' answers counted in a round, of N agents. An empty list means all.
    pub fn see(&mut self, round: u64, asked: &[usize], arrived: &[bool], agents: usize) {
        if self.of.is_empty() && asked.len() == agents && !arrived.contains(&false) {
            return;
        }
        self.of_all(round, agents);
        for (i, c) in asked.iter().enumerate() {
            self.of[*c].asked = Some(round);
            if arrived.get(i).is_none_or(|arrived| *arrived) {
                self.of[*c].counted = Some(round);
            }
        }
    }

    /// Notes that no answer of the agent counts from `round` on, of N agents.
    pub fn forget(&mut self, round: u64, agent: usize, agents: usize) {
        self.of_all(round, agents);
        self.of[agent] = Rounds { asked: Some(round), counted: None };
    }

    /// An entry for each agent.
    fn of_all(&mut self, round: u64, agents: usize) {
        if self.of.is_empty() {
            let before = round.checked_sub(1);
            self.of = vec![Rounds { asked: before, counted: before }; agents];
        }
    }

    /// Whether the last answer of an agent counted.
    pub fn is_counted(&self, agent: usize) -> bool {
        self.of.get(agent).is_none_or(|rounds| rounds.asked == rounds.counted)
    }

    /// The own parts of recipients whose last answer did not count.
    pub fn told(&self, recipients: &[usize]) -> Option<PerRecipient> {
        if recipients.iter().all(|c| self.is_counted(*c)) {
            return None;
        }
        let last = |c: &usize| vec![self.of[*c].counted.map_or(-1.0, |round| round as f64)];
        let each = recipients.iter().map(|c| (!self.is_counted(*c)).then(|| last(c))).collect();
        Some(PerRecipient { part: Part::Counted, each })
    }

    /// The same for other agents, each `from` these or new.
    pub fn regrouped(&self, from: &[Option<usize>]) -> Self {
        let rounds = |c: &Option<usize>| c.map_or_else(Rounds::default, |c| self.of[c]);
        Self { of: if self.of.is_empty() { Vec::new() } else { from.iter().map(rounds).collect() } }
    }
}
