//! Runs that replay the arrivals that a server of nodes recorded.

use std::sync::Arc;

use super::Run;
use crate::coordinator::{ArrivalRecord, Replay};
use crate::error::Result;
use crate::local::{AgentMemory, Controls, put, stride};
use crate::message::{Message, Part};

impl Run {
    /// Replays the arrivals that the server of the same federation recorded from its start
    /// ([`crate::node::ServerNode::recording_arrivals`]). The same agents take part, and the same answers arrive in the same rounds.
    /// Iterates agree with the nodes', bit for bit, if agents' answers depend only on the questions that they answered. A server cannot
    /// know whether a question or its answer was lost; the replay loses the answer. If an agent missed a question or lost its state, its
    /// sampling process, error feedback, control variate, eigenpairs and learned Hessian therefore differ.
    ///
    /// After the recorded rounds, answers arrive as over the link. The ledger counts all sent messages, also lost ones.
    ///
    /// # Errors
    /// When the record cannot belong to this federation.
    pub fn replaying(mut self, record: &ArrivalRecord) -> Result<Self> {
        let federation = self.coordinator.federation();
        let latest = federation.uplink().late().map_or(0, |late| late.max());
        let replay = Replay::new(record, federation.agents(), latest)?;
        self.coordinator.replay(Arc::new(replay));
        // An agent that misses the first round computes from its start the changes of its control variate.
        let (d, client) = (self.field.dim(), &self.client);
        if let Some(controls) = client.copied_controls() {
            let start = self.coordinator.federation().start();
            self.state.memory.chunks_mut(stride(&**client, d)).for_each(|memory| put(controls, memory, d, &vec![0.0; d], start));
        }
        Ok(self)
    }

    /// Updates the control variates of agents that miss the open question, for methods whose agents infer a round's update from the next
    /// model and cannot infer it later. A server of nodes sends them their control variates when it reaches them again.
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
