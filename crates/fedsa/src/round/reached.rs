//! The agents that a question reaches, where some are asked that it does not reach.

use crate::coordinator::Coordinator;
use crate::server::PerRecipient;

/// The agents that a question reaches, which need not be all that are asked.
pub struct Reached {
    agents: Vec<usize>,
    own: Option<PerRecipient>,
    answered: Option<Vec<Option<u64>>>,
}

impl Reached {
    /// Those of the open question, if arrivals are replayed or it does not reach all. `last` are the rounds that all agents answered last; they are brought up to
    /// date.
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

    /// The agents, and what each of them gets of its own.
    pub fn parts(&self) -> (&[usize], Option<&PerRecipient>) {
        (&self.agents, self.own.as_ref())
    }

    /// The round that each of them answered last, if arrivals are replayed: otherwise who answers has answered the round before.
    pub fn answered(&self) -> Option<&[Option<u64>]> {
        self.answered.as_deref()
    }
}
