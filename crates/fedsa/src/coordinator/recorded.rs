//! Records of arrivals, with which the engine replays a federation of nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::message::MAX_ROUNDS;

/// The answers that arrived in the exchanges of a federation, as recorded by a server ([`crate::node::ServerNode::recording_arrivals`]).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArrivalRecord {
    /// The closed exchanges, in order.
    pub exchanges: Vec<ExchangeArrivals>,
}

/// The answers that arrived in one exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeArrivals {
    /// The round in which the exchange was closed.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// The agents that computed no answer, in increasing order: unreachable or excluded ones.
    pub idle: Vec<usize>,
    /// The agents whose answers arrived, each with the answered round: this one, or an earlier one for late answers.
    pub arrived: Vec<(usize, u64)>,
}

impl ArrivalRecord {
    /// Adds a later record.
    pub fn extend(&mut self, later: ArrivalRecord) {
        self.exchanges.extend(later.exchanges);
    }
}

/// A record, indexed for the engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replay {
    /// The agents that computed nothing in the first exchange of each round.
    idle: BTreeMap<u64, BTreeSet<usize>>,
    /// The lateness in rounds of each exchange's answers, by agent.
    late: BTreeMap<(u64, u8), BTreeMap<usize, u64>>,
}

impl Replay {
    /// Indexes a record of `agents` agents whose answers may be `latest` rounds late.
    ///
    /// # Errors
    /// When these arrivals are impossible in such a federation.
    pub fn new(record: &ArrivalRecord, agents: usize, latest: u64) -> Result<Self> {
        let (mut replay, mut rounds) = (Self::default(), 0);
        let bad = |what: String| Err(Error::new("arrivals", what, "what the server of the same federation recorded from its start"));
        for ExchangeArrivals { round, exchange, idle, arrived } in &record.exchanges {
            if *round >= MAX_ROUNDS || *round + 1 < rounds || *round > rounds {
                return bad(format!("round {round} after {} rounds", rounds));
            }
            rounds = *round + 1;
            replay.late.entry((*round, *exchange)).or_default();
            // The engine also excludes agents that are excluded within a round.
            replay.idle.entry(*round).or_insert_with(|| idle.iter().copied().collect());
            let known = idle.iter().chain(arrived.iter().map(|(agent, _)| agent));
            if let Some(agent) = known.copied().find(|agent| *agent >= agents) {
                return bad(format!("agent {agent} of {agents} agents"));
            }
            for (agent, asked) in arrived {
                let delay = round.checked_sub(*asked).filter(|delay| *delay <= latest);
                let asked = replay.late.get_mut(&(*asked, *exchange)).zip(delay);
                let Some((of, delay)) = asked else {
                    return bad(format!("an answer in round {round} that this link cannot have delivered"));
                };
                if of.insert(*agent, delay).is_some() {
                    return bad(format!("two arrivals of one answer of agent {agent}, the second in round {round}"));
                }
            }
        }
        Ok(replay)
    }

    /// The lateness in rounds of an agent's answer; `None` if it did not arrive. Exchanges outside the record lose nothing.
    pub fn delay(&self, round: u64, exchange: u8, agent: usize) -> Option<u64> {
        match self.late.get(&(round, exchange)) {
            Some(late) => late.get(&agent).copied(),
            None => Some(0),
        }
    }

    /// The agents that take part in a round; `None` if all do.
    pub fn available(&self, round: u64, agents: usize) -> Option<Vec<usize>> {
        let idle = self.idle.get(&round).filter(|idle| !idle.is_empty())?;
        Some((0..agents).filter(|c| !idle.contains(c)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round, exchange, idle agents, and arrivals.
    type One<'a> = (u64, u8, &'a [usize], &'a [(usize, u64)]);

    fn of(exchanges: &[One<'_>]) -> ArrivalRecord {
        let one = |(round, exchange, idle, arrived): &One<'_>| ExchangeArrivals {
            round: *round,
            exchange: *exchange,
            idle: idle.to_vec(),
            arrived: arrived.to_vec(),
        };
        ArrivalRecord { exchanges: exchanges.iter().map(one).collect() }
    }

    #[test]
    fn a_record_says_when_each_answer_arrived() {
        let record = of(&[(0, 0, &[], &[(0, 0), (1, 0)]), (1, 0, &[0], &[(2, 0), (1, 1)]), (2, 0, &[0], &[(2, 2)])]);
        let replay = Replay::new(&record, 3, 2).unwrap();
        assert_eq!([0, 1, 2].map(|c| replay.delay(0, 0, c)), [Some(0), Some(0), Some(1)]);
        assert_eq!([0, 1, 2].map(|c| replay.delay(1, 0, c)), [None, Some(0), None]);
        assert_eq!(replay.delay(3, 0, 1), Some(0), "after the record nothing is lost");
        assert_eq!((replay.available(0, 3), replay.available(2, 3)), (None, Some(vec![1, 2])));
    }

    #[test]
    fn a_record_of_no_such_federation_is_refused() {
        let is_refused = |exchanges: &[One<'_>]| Replay::new(&of(exchanges), 2, 1).is_err();
        assert!(!is_refused(&[(0, 0, &[], &[(0, 0)]), (1, 0, &[], &[(1, 0)])]));
        assert!(is_refused(&[(1, 0, &[], &[])]), "it does not begin at the start");
        assert!(is_refused(&[(0, 0, &[], &[]), (2, 0, &[], &[])]), "a round is missing");
        assert!(is_refused(&[(0, 0, &[], &[(2, 0)])]) && is_refused(&[(0, 0, &[2], &[])]), "an agent that there is not");
        assert!(is_refused(&[(0, 0, &[], &[(0, 1)])]), "before it was asked for");
        assert!(is_refused(&[(0, 0, &[], &[(0, 0), (0, 0)])]), "twice");
        assert!(is_refused(&[(0, 0, &[], &[]), (1, 0, &[], &[]), (2, 0, &[], &[(0, 0)])]), "later than the link has it");
    }
}
