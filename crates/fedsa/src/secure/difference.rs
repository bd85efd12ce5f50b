//! Rules of an agent before it unmasks its share of a secure sum.
//!
//! A sum over few agents tells an agent of it, or the server with colluders, what the others sent. Two sums of the same content over sets
//! that differ by few agents tell the same by their difference. An agent therefore keeps the sets over which it has unmasked each content.
//!
//! Agents are known by their public keys: numbers change with the members, and a newcomer may get the number of one that left.
//!
//! The rules compare two sums at a time. They stop neither combinations of three or more sums nor sums of data that differ by a row; only
//! noise does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::keys::PublicKey;
use crate::error::{Error, ErrorCode, Result};

/// What an agent has unmasked, and the rules for what it may unmask. The caller saves it before it sends what [`DifferenceRule::may_unmask`]
/// allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferenceRule {
    /// The least number of agents of a sum, and of a difference of two sums.
    least_agents: u32,
    /// The sets of agents, without duplicates: most rounds have the same one.
    sets: Vec<BTreeSet<PublicKey>>,
    /// For each content the indices of the sets over which it was unmasked.
    unmasked: BTreeMap<[u8; 32], BTreeSet<u32>>,
    /// The index of the last set.
    last: Option<u32>,
}

impl DifferenceRule {
    /// Nothing unmasked yet. With `least_agents` of 0 or 1 everything is allowed.
    pub fn new(least_agents: u32) -> Self {
        Self { least_agents, ..Self::default() }
    }

    /// The least number of agents.
    pub fn least_agents(&self) -> u32 {
        self.least_agents
    }

    /// The same ledger with another least number of agents, as after a change of the agent's rules.
    #[must_use]
    pub fn with_least_agents(self, least_agents: u32) -> Self {
        Self { least_agents, ..self }
    }

    /// Allows or refuses to unmask this content over the agents `who`; what is allowed enters the ledger. `content` is the hash of all that
    /// the sum depends on beside the agents: the parts of the question, and the round if samples are drawn.
    ///
    /// # Errors
    /// Nothing changes then.
    /// - `who` has fewer agents than the least number (`disclosure.agents`).
    /// - The content was unmasked over other agents, and fewer than the least number belong to one of both sets alone
    ///   (`disclosure.difference`).
    pub fn may_unmask(&mut self, content: [u8; 32], who: &BTreeSet<PublicKey>) -> Result<()> {
        let least = self.least_agents as usize;
        if who.len() < least {
            let what = format!("a sum over {}, and this agent's rules ask for {least}", agents(who.len()));
            let help = "more agents that answer; or a smaller `least_agents` in the rules of the agents";
            return Err(Error::data("least_agents", what, help).coded(ErrorCode::DisclosureAgents));
        }
        self.check_difference(self.unmasked.get(&content).into_iter().flatten(), who)?;
        let at = self.sets.iter().position(|set| set == who).unwrap_or_else(|| {
            self.sets.push(who.clone());
            self.sets.len() - 1
        });
        self.unmasked.entry(content).or_default().insert(at as u32);
        self.last = Some(at as u32);
        Ok(())
    }

    /// The same for a sum outside the rounds. The last round may have summed the same numbers over other agents, whatever its question.
    ///
    /// # Errors
    /// As [`DifferenceRule::may_unmask`].
    pub fn may_unmask_outside(&mut self, content: [u8; 32], who: &BTreeSet<PublicKey>) -> Result<()> {
        self.check_difference(self.last.iter(), who)?;
        self.may_unmask(content, who)
    }

    /// Whether a sum of this content was unmasked.
    pub fn has_unmasked(&self, content: &[u8; 32]) -> bool {
        self.unmasked.contains_key(content)
    }

    fn check_difference<'a>(&self, earlier: impl Iterator<Item = &'a u32>, who: &BTreeSet<PublicKey>) -> Result<()> {
        let differing = earlier.map(|at| self.sets[*at as usize].symmetric_difference(who).count());
        let least = self.least_agents as usize;
        if let Some(few) = differing.into_iter().find(|differing| (1..least).contains(differing)) {
            let what = format!("the same sum was given over other agents: the difference would give away what {} sent", agents(few));
            let help = "the agents of the first sum; or a new round, in which the model has changed";
            return Err(Error::data("least_agents", what, help).coded(ErrorCode::DisclosureDifference));
        }
        Ok(())
    }
}

/// A number of agents, as text.
fn agents(count: usize) -> String {
    if count == 1 { "1 agent".into() } else { format!("{count} agents") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENTS: u32 = 5;

    fn set(bits: u32) -> BTreeSet<PublicKey> {
        (0..AGENTS).filter(|agent| bits >> agent & 1 == 1).map(|agent| [agent as u8; 32]).collect()
    }

    fn code(rule: &mut DifferenceRule, content: u8, bits: u32) -> Option<ErrorCode> {
        rule.may_unmask([content; 32], &set(bits)).err().map(|e| e.code())
    }

    /// All pairs of sets of five agents, for every least number: the rule is that of the document, on bits.
    #[test]
    fn two_sums_differ_by_no_agent_or_by_enough() {
        for least in 0..=AGENTS + 1 {
            for (first, second) in (0..1 << AGENTS).flat_map(|first| (0..1 << AGENTS).map(move |second| (first, second))) {
                let mut rule = DifferenceRule::new(least);
                let is_small = |bits: u32| bits.count_ones() < least;
                let refused = is_small(first).then_some(ErrorCode::DisclosureAgents);
                assert_eq!(code(&mut rule, 1, first), refused, "{least} {first:b}");
                let apart = (first ^ second).count_ones();
                let expected = if is_small(second) {
                    Some(ErrorCode::DisclosureAgents)
                } else if !is_small(first) && apart > 0 && apart < least {
                    Some(ErrorCode::DisclosureDifference)
                } else {
                    None
                };
                let before = rule.clone();
                assert_eq!(code(&mut rule.clone(), 1, second), expected, "{least} {first:b} {second:b}");
                // Other content is another sum.
                assert_eq!(code(&mut rule.clone(), 2, second), is_small(second).then_some(ErrorCode::DisclosureAgents));
                if expected.is_some() {
                    assert!(code(&mut rule, 1, second).is_some() && rule == before, "a refusal leaves no trace");
                }
            }
        }
    }

    /// All sequences of three sets: what is allowed depends on all that was allowed before, and on nothing that was refused.
    #[test]
    fn every_earlier_sum_counts() {
        const LEAST: u32 = 2;
        let all = || 0..1u32 << 4;
        for (a, b, c) in all().flat_map(|a| all().flat_map(move |b| all().map(move |c| (a, b, c)))) {
            let (mut rule, mut given) = (DifferenceRule::new(LEAST), Vec::new());
            for bits in [a, b, c] {
                let apart = |other: &u32| (bits ^ other).count_ones();
                let may = bits.count_ones() >= LEAST && given.iter().all(|other| apart(other) == 0 || apart(other) >= LEAST);
                assert_eq!(code(&mut rule, 1, bits).is_none(), may, "{a:b} {b:b} {c:b}");
                if may {
                    given.push(bits);
                }
            }
        }
    }

    #[test]
    fn the_ledger_survives_a_restart_and_tells_the_agent() {
        let mut rule = DifferenceRule::new(3);
        rule.may_unmask([7; 32], &set(0b1_1111)).unwrap();
        let mut rule: DifferenceRule = postcard::from_bytes(&postcard::to_stdvec(&rule).unwrap()).unwrap();
        let e = rule.may_unmask([7; 32], &set(0b0_1111)).unwrap_err();
        assert_eq!(e.code(), ErrorCode::DisclosureDifference);
        assert!(e.what.ends_with("the difference would give away what 1 agent sent"), "{}", e.what);
        let e = rule.may_unmask([7; 32], &set(0b0_0111)).unwrap_err();
        assert!(e.what.ends_with("what 2 agents sent"), "{}", e.what);
        assert_eq!(rule.may_unmask([8; 32], &set(0b11)).unwrap_err().what, "a sum over 2 agents, and this agent's rules ask for 3");
        rule.may_unmask([7; 32], &set(0b1_1111)).unwrap();
        rule.with_least_agents(1).may_unmask([7; 32], &set(0b0_1111)).unwrap();
    }

    #[test]
    fn rounds_with_the_same_agents_share_a_set() {
        let mut rule = DifferenceRule::new(3);
        for round in 0..100 {
            rule.may_unmask([round; 32], &set(0b1_1111)).unwrap();
        }
        assert_eq!((rule.sets.len(), rule.unmasked.len()), (1, 100));
    }
}
