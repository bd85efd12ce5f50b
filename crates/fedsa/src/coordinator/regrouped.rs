//! A coordinator after agents have joined or left.

use super::{Coordinator, Exclusion, State};
use crate::error::{Error, Result, require};
use crate::federation::Federation;

impl Coordinator {
    /// The coordinator of the next epoch, between two rounds. `federation` is [`Federation::next_epoch`] of this one's federation; `from`
    /// has the previous number of each of its agents, `None` for a new one. Rounds, counts and the iterate go on. Answers on their way are
    /// lost.
    ///
    /// # Errors
    /// As [`crate::node::ServerNode::regrouped`].
    pub(crate) fn regrouped(&self, federation: &Federation, from: &[Option<usize>]) -> Result<Self> {
        self.check_regrouped(federation, from)?;
        let mut setting = federation.setting();
        setting.start = self.theta().to_vec();
        let mut next = Self::new(federation)?;
        if next.protocol != self.protocol {
            let what = "a method whose messages change with the number of agents, because all take part or no longer all";
            return Err(Error::new("participants", what, "fewer participants than agents, before and after"));
        }
        let State { opened, ledger, output, diverged, end, acknowledged, exclusions, clipped, .. } = self.state.clone();
        next.server = federation.method().server(&setting);
        if let Some(state) = self.server.regrouped(from, federation.weights()) {
            next.server.restore(&state)?;
        }
        let words = federation.uplink().media_len();
        for (c, old) in from.iter().enumerate() {
            if let Some(old) = old {
                next.state.end.channel[c * words..(c + 1) * words].copy_from_slice(&end.channel[old * words..(old + 1) * words]);
            }
        }
        next.state.end.medians = end.medians;
        next.state.acknowledged = acknowledged.regrouped(from);
        let moved = |one: Exclusion| Some(Exclusion { agent: from.iter().position(|old| *old == Some(one.agent))?, ..one });
        let exclusions = exclusions.into_iter().filter_map(moved).collect();
        let fresh = next.state;
        next.state = State { opened, ledger, output, diverged, exclusions, clipped, ..fresh };
        (next.keeps_letters, next.is_masked) = (self.keeps_letters, self.is_masked);
        Ok(next)
    }

    fn check_regrouped(&self, federation: &Federation, from: &[Option<usize>]) -> Result<()> {
        if self.is_open() {
            return Err(Error::new("epoch", "a round is under way", "agents that join or leave between two rounds"));
        }
        let own = &self.federation;
        let accepted = format!("epoch {} of the same federation, by Federation::next_epoch", own.epoch() + 1);
        let is_next = federation.epoch() == own.epoch() + 1 && federation.continues(own);
        require(is_next, "epoch", format!("epoch {}, or other settings", federation.epoch()), &accepted)?;
        let n = federation.agents();
        require(from.len() == n, "from", format!("{} entries", from.len()), &format!("one for each of {n} agents"))?;
        let known: Vec<usize> = from.iter().flatten().copied().collect();
        let is_of_one = known.iter().enumerate().all(|(i, c)| *c < own.agents() && !known[..i].contains(c));
        require(is_of_one, "from", format!("{known:?}"), &format!("numbers below {}, each once", own.agents()))?;
        if own.keeps_controls_literally() && self.protocol.tell.is_empty() {
            let what = "rule = \"literal\", under which only the agents know their controls, which must sum to zero with new weights";
            return Err(Error::new("rule", what, "rule = \"auto\" or \"acknowledged\""));
        }
        Ok(())
    }
}
