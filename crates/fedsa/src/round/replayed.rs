//! A run whose answers arrive as a server of nodes recorded it.

use std::sync::Arc;

use super::Run;
use crate::coordinator::{ArrivalRecord, Replay};
use crate::error::Result;
use crate::local::{AgentMemory, Controls, put, stride};
use crate::message::{Message, Part};

impl Run {
    /// A run whose answers arrive as the server of the same federation recorded it from its start
    /// ([`crate::node::ServerNode::recording_arrivals`]). The same agents take part, and the same answers arrive in the same rounds, so
    /// that the iterates are those of the nodes, bit for bit, as long as an agent's answer depends on the questions that it answered: a
    /// server cannot know whether a question or its answer was lost, and here it is the answer. Sampling processes, error feedback,
    /// control variates, eigenpairs and learned Hessians of an agent that has missed a question, or that has lost its state, therefore differ.
    ///
    /// After the recorded rounds answers arrive as the link has it. The ledger counts what agents send, also what did not arrive.
    ///
    /// # Errors
    /// When the record cannot be one of this federation.
    pub fn replaying(mut self, record: &ArrivalRecord) -> Result<Self> {
        let federation = self.coordinator.federation();
        let latest = federation.uplink().late().map_or(0, |late| late.max());
        let replay = Replay::new(record, federation.agents(), latest)?;
        self.coordinator.replay(Arc::new(replay));
        // An agent that misses the first round computes from its start what the rounds have added to its control.
        let (d, client) = (self.field.dim(), &self.client);
        if let Some(controls) = client.copied_controls() {
            let start = self.coordinator.federation().start();
            self.state.memory.chunks_mut(stride(&**client, d)).for_each(|memory| put(controls, memory, d, &vec![0.0; d], start));
        }
        Ok(self)
    }

    /// Brings the controls of agents that miss the open question up to date, where agents learn what a round did from the next model and
    /// cannot learn it later: the server sends them their controls when it reaches them again.
    pub(super) fn catch_up(&mut self) {
        let Run { field, client, coordinator, state, .. } = self;
        if coordinator.replayed().is_none() {
            return;
        }
        let (d, &Message { round, exchange, .. }) = (field.dim(), &coordinator.question().down);
        let cannot_follow = |controls: &dyn Controls| !controls.is_told() && !controls.can_follow(None, 2);
        let Some(controls) = client.copied_controls().filter(|controls| exchange == 0 && cannot_follow(*controls)) else { return };
        let (theta, own, width) = (coordinator.question().down.part(Part::Model), &coordinator.question().own, stride(&**client, d));
        state.answered.resize(coordinator.federation().agents(), None);
        let mut xi = vec![0.0; d];
        for (i, c) in coordinator.missed() {
            let memory = &mut state.memory[c * width..(c + 1) * width];
            let told = own.as_ref().and_then(|own| own.each[i].as_ref());
            let is_included = told.is_none_or(|last| state.answered[c].is_some_and(|answered| *last == [answered as f64]));
            controls.of_agent(&AgentMemory::new(memory, d), theta, round, is_included, &mut xi);
            put(controls, memory, d, &xi, theta);
            state.answered[c] = Some(round);
        }
    }

    /// The agents that take part in the next round; `None` if all can.
    pub(super) fn available(&self) -> Option<Vec<usize>> {
        let federation = self.coordinator.federation();
        self.coordinator.replayed()?.available(self.coordinator.rounds(), federation.agents())
    }
}
