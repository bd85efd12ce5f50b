//! An exchange in which a client rule answers for all participants in one call ([`BatchedClient`]).
//!
//! The rule is called first, on copies of what agents keep. The blocks are then swept as always, with a client half that hands the answers
//! over.

use std::sync::{Mutex, PoisonError};

use super::sweep::{Agents, Counted, Job, Rows, Worker};
use crate::kernel::LANES;
use crate::local::batched::Answered;
use crate::local::{AgentBatch, BatchedClient, Client, Outbox};
use crate::message::Message;

/// A client half whose answers are there already.
struct Prepared<'a> {
    client: &'a BatchedClient,
    answered: Answered,
    /// What the server can decode of each answer, d numbers; nothing where the rule is not told.
    sent: Mutex<Vec<f64>>,
}

impl Job<'_> {
    /// [`Job::sweep`] over all participants, with one call of the rule. If it fails, nothing is swept.
    pub(super) fn sweep_batched(&self, client: &BatchedClient, agents: Agents<'_>, rows: Rows<'_>, worker: &mut Worker) -> Counted {
        let mut answers = [0; LANES];
        // Blocks with agents at old models answer one agent at a time.
        let blocks = self.participants.chunks(LANES).filter(|block| !self.stale(block, &mut answers));
        let places: Vec<usize> = blocks.flatten().copied().collect();
        if places.is_empty() {
            return self.sweep(0..self.participants.len(), agents, rows, Some(worker));
        }
        let Agents { first, memory, chains, feedback, channel } = agents;
        let called = client.answers(self.seed, &places, (chains, memory), self.cancel, self.down);
        let Some(answered) = called else { return Counted::default() };
        let hears_sent = client.hears_sent() && self.uplink.alters();
        let sent = Mutex::new(vec![0.0; if hears_sent { places.len() * self.field.dim() } else { 0 }]);
        let prepared = Prepared { client, answered, sent };
        let agents = Agents { first, memory: &mut *memory, chains, feedback, channel };
        let counted = Job { client: &prepared, ..*self }.sweep(0..self.participants.len(), agents, rows, Some(worker));
        if hears_sent {
            client.tell_sent(&places, memory, &prepared.sent.into_inner().unwrap_or_else(PoisonError::into_inner));
        }
        counted
    }
}

impl Client for Prepared<'_> {
    fn memory(&self) -> usize {
        self.client.memory()
    }

    fn local_steps(&self, t: u64) -> usize {
        self.client.local_steps(t)
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) {
        if !self.answered.hand_over(batch, out) {
            self.client.answer(batch, down, out);
        }
    }

    fn sent(&self, batch: &mut AgentBatch<'_>, l: usize, sent: &[f64]) {
        let mut all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = self.answered.row_of(batch.place_of(l))
            && let Some(kept) = all.get_mut(row * sent.len()..(row + 1) * sent.len())
        {
            kept.copy_from_slice(sent);
        }
    }
}
