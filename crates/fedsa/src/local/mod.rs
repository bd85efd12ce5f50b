//! Local rules: how an agent computes its answer to a message from the server.
//!
//! In a round an agent makes H steps `theta += eta_h (g_c(theta, z) + drift)` with a drift that is constant within the round, or within a
//! shorter local phase. Rules differ in the drift and in their answers; the loop over samples is in [`crate::kernel`]. A rule works on a
//! batch of any number of agents: mostly eight or 64 in Rust, all participants in another language, one in a [`crate::node::ClientNode`].

pub mod agent;
mod batch;
mod by_agent;
mod rows;

use crate::error::Result;
use crate::kernel::{Chunk, chunks, flat, flat_mut};
use crate::message::Message;

pub use agent::{Agent, AgentFacts, LocalContext, MakeAgent};
pub(crate) use batch::Other;
pub use batch::{AgentBatch, Lane, Last, Outbox};
pub use by_agent::ByAgent;
pub use rows::AgentRows;

/// A Hessian of n rows and all its eigenpairs take about as long as this times `n^3` multiply-adds of matrix-vector products: 8 ms at n =
/// 300. (Matrix-vector products take about 40 times as long per multiply-add as matrix products.)
pub const HESSIAN_AND_PAIRS: f64 = 0.25;

/// The client half of a method. An agent's answer does not depend on the other agents of its batch.
pub trait Client: Send + Sync {
    /// The agents' stored vectors, and how agents are called.
    fn facts(&self) -> ClientFacts<'_>;
    /// The number of local steps of an answer in round t, used to divide work among threads.
    fn local_steps(&self, t: u64) -> usize;
    /// The rule of the agents' control variates, if they have any.
    fn controls(&self) -> Option<&dyn Controls> {
        None
    }
    /// Writes the answers of the batch's agents to the message `down` to `out`.
    ///
    /// # Errors
    /// When the rule has failed, as only rules of another language can. The round then does not count.
    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()>;
    /// Called after the answers of a batch to `down` were encoded, if the link alters messages: `sent` has each answer as the server can
    /// decode it, zeros if nothing was sent.
    ///
    /// # Errors
    /// As [`Client::answer`].
    fn sent(&self, _batch: &mut AgentBatch<'_>, _down: &Message, _sent: &Outbox) -> Result<()> {
        Ok(())
    }
    /// Receives the message that participants get at the end of a round and do not answer.
    fn told(&self, _batch: &mut AgentBatch<'_>, _down: &Message) {}
}

impl dyn Client + '_ {
    /// The rule of control variates, if the server can hold copies of them.
    pub fn copied_controls(&self) -> Option<&dyn Controls> {
        self.controls().filter(|controls| controls.can_be_copied())
    }
}

/// The agents' stored vectors, and how agents are called.
#[derive(Clone, Copy, Default)]
pub struct ClientFacts<'a> {
    /// The number of vectors of d components that an agent keeps between exchanges.
    pub memory: usize,
    /// Whether these vectors last from round to round, not only between the exchanges of one round.
    pub remembers_rounds: bool,
    /// The number of samples that an answer with an operator draws; 0 if the first local step uses the same sample.
    pub operator_samples: usize,
    /// Whether calls are expensive, so that the participants of an exchange share one batch.
    pub prefers_one_call: bool,
    /// Makes agents that compute alone, each with its own typed state; `None` if agents keep only vectors.
    pub agents: Option<&'a MakeAgent>,
}

impl ClientFacts<'_> {
    /// The facts of a rule whose agents keep only `memory` vectors, from round to round.
    pub fn keeping(memory: usize) -> Self {
        Self { memory, remembers_rounds: memory > 0, ..Self::default() }
    }
}

/// The rule of control variates. With it a server restores the control variate of an agent that missed messages or has an older state.
/// Vectors have d components.
///
/// A round changes a control variate by the agent's own answer, if it counted, and by a shared vector: the round's mean v (SCAFFLSA), or
/// the server's control variate c (Scaffold).
pub trait Controls: Send + Sync {
    /// Whether a server can hold copies of control variates.
    fn can_be_copied(&self) -> bool {
        true
    }
    /// Writes an agent's control variate of round `next_round` to `xi`. `theta` is the server's iterate at the start of that round;
    /// `is_included` says whether the agent's last answer is in the mean of its round.
    fn of_agent(&self, memory: &AgentMemory<'_>, theta: &[f64], next_round: u64, is_included: bool, xi: &mut [f64]);
    /// Whether agents get the shared vector at the end of the round; otherwise they know it from the question or the next model.
    fn is_told(&self) -> bool;
    /// Whether an agent that last answered in round `answered` (`None`: never) can compute its control variate at the question of `round`.
    fn can_follow(&self, answered: Option<u64>, round: u64) -> bool;
    /// Sets an agent's stored vectors to the control variate `xi` of the round with model `theta`.
    fn put(&self, memory: &mut [&mut [f64]], xi: &[f64], theta: &[f64]);
    /// The shared vector of a round. `down` is the message at its end, or its question if there is no such message; `theta` is the model
    /// after the round.
    fn shared(&self, down: &Message, theta: &[f64]) -> Vec<f64>;
    /// Updates a participant's control variate `xi` with the round's `shared` vector, and with its answer `own` if it counted.
    fn settle(&self, round: u64, xi: &mut [f64], shared: &[f64], own: Option<&[f64]>);
}

/// One agent's stored vectors, read only.
#[derive(Clone, Copy)]
pub struct AgentMemory<'a> {
    data: &'a [Chunk],
    d: usize,
}

impl<'a> AgentMemory<'a> {
    /// The vectors of an agent, d components each.
    pub fn new(data: &'a [Chunk], d: usize) -> Self {
        Self { data, d }
    }

    /// Vector `j`.
    pub fn vector(&self, j: usize) -> &'a [f64] {
        let width = chunks(self.d);
        &flat(&self.data[j * width..][..width])[..self.d]
    }
}

/// The number of chunks that the memory of one agent takes.
pub fn stride(client: &dyn Client, d: usize) -> usize {
    client.facts().memory * chunks(d)
}

/// Sets an agent's memory to the control variate of the round with model `theta`.
pub(crate) fn put(controls: &dyn Controls, memory: &mut [Chunk], d: usize, xi: &[f64], theta: &[f64]) {
    let mut vectors: Vec<&mut [f64]> = memory.chunks_mut(chunks(d)).map(|vector| &mut flat_mut(vector)[..d]).collect();
    controls.put(&mut vectors, xi, theta);
}
