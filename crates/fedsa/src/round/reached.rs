//! The agents that a question reaches, if it does not reach all.

use crate::coordinator::Coordinator;
use crate::server::PerRecipient;

/// The agents that a question reaches, and the part of its own that each of them gets.
pub struct Reached {
    pub agents: Vec<usize>,
    pub own: Option<PerRecipient>,
}

impl Reached {
    /// The agents that the open question reaches; `None` if it reaches all participants.
    pub fn of(coordinator: &Coordinator) -> Option<Self> {
        if coordinator.reaches_all() {
            return None;
        }
        let (places, agents): (Vec<usize>, Vec<usize>) = coordinator.recipients().unzip();
        let own = coordinator.question().own.as_ref();
        let own = own.map(|own| PerRecipient { part: own.part, each: places.iter().map(|i| own.each[*i].clone()).collect() });
        Some(Self { agents, own })
    }
}
