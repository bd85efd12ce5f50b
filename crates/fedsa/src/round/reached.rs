//! The agents that a question reaches, if it does not reach all.

use crate::coordinator::Coordinator;
use crate::server::PerRecipient;

/// The agents that a question reaches: all participants, or some of them.
pub struct Reached {
    agents: Vec<usize>,
    own: Option<PerRecipient>,
    answered: Option<Vec<Option<u64>>>,
}

impl Reached {
    /// The agents that the open question reaches; `None` if it reaches all and arrivals are not replayed. `last` are the rounds that all
    /// agents answered last; they are updated.
    pub fn of(coordinator: &Coordinator, last: &mut Vec<Option<u64>>) -> Option<Self> {
        let is_replay = coordinator.replayed().is_some();
        if !is_replay && coordinator.reaches_all() {
            return None;
        }
        let ask = coordinator.question();
        let (places, agents): (Vec<usize>, Vec<usize>) = coordinator.recipients().unzip();
        let own = ask.own.as_ref().map(|own| PerRecipient { part: own.part, each: places.iter().map(|i| own.each[*i].clone()).collect() });
        let answered = is_replay.then(|| {
            last.resize(coordinator.federation().agents(), None);
            agents.iter().map(|c| last[*c].replace(ask.down.round)).collect()
        });
        Some(Self { agents, own, answered })
    }

    /// The agents, and the part of its own that each of them gets.
    pub fn parts(&self) -> (&[usize], Option<&PerRecipient>) {
        (&self.agents, self.own.as_ref())
    }

    /// The round that each of them answered last, if arrivals are replayed. Otherwise every agent that answers has also answered the round
    /// before.
    pub fn answered(&self) -> Option<&[Option<u64>]> {
        self.answered.as_deref()
    }
}
