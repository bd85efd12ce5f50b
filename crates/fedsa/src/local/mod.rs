//! Local rules: how an agent computes its answer to a message from the server.
//!
//! In a round an agent makes H steps `theta += eta_h (g_c(theta, z) + drift)` with a drift that is constant within the
//! round, or within a local phase of fewer steps. Rules differ in the drift and in what they send; the loop over samples is in
//! [`crate::kernel`]. A rule works on a batch of any number of agents: eight or 64 for a rule of Rust, all participants for one of another
//! language, one for a [`crate::node::ClientNode`].

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

/// A Hessian with n rows and all of its pairs take about as long as this share of `n^3` multiply-adds in products with vectors, which take
/// some 40 times as long as those in products of matrices: 8 ms at n = 300.
pub const HESSIAN_AND_PAIRS: f64 = 0.25;

/// The client half of a method. The answer of an agent does not depend on who shares the batch.
pub trait Client: Send + Sync {
    /// What agents keep, and how they are called.
    fn facts(&self) -> ClientFacts<'_>;
    /// The number of local steps that an answer in round t takes, by which work is divided among threads.
    fn local_steps(&self, t: u64) -> usize;
    /// The rule of the agents' control variates, if they have any.
    fn controls(&self) -> Option<&dyn Controls> {
        None
    }
    /// Computes the answer of every agent of the batch to the message `down`, and writes the answers to `out`.
    ///
    /// # Errors
    /// Why a rule that can fail has failed: the round then does not count. Only rules of another language can.
    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()>;
    /// Is called after the answers of a batch to `down` were encoded: `sent` has what the server can decode of each, zeros if nothing was sent. Is not
    /// called if the link alters no messages.
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
    /// Their rule, if the server can hold copies of control variates.
    pub fn copied_controls(&self) -> Option<&dyn Controls> {
        self.controls().filter(|controls| controls.can_be_copied())
    }
}

/// What agents keep, and how they are called.
#[derive(Clone, Copy, Default)]
pub struct ClientFacts<'a> {
    /// How many vectors of d components an agent keeps between exchanges.
    pub memory: usize,
    /// Whether these vectors last from round to round; otherwise they last only between the exchanges of one round.
    pub remembers_rounds: bool,
    /// The number of samples that an answer with an operator draws besides those of the local steps. It is 0 if the first local step uses the
    /// same sample.
    pub operator_samples: usize,
    /// Whether a call costs more than an agent: the participants of an exchange then share one batch.
    pub prefers_one_call: bool,
    /// How agents are made that compute alone, with a typed state of their own each; `None` if vectors are all that agents keep.
    pub agents: Option<&'a MakeAgent>,
}

impl ClientFacts<'_> {
    /// Of a rule whose agents keep so many vectors from round to round, and nothing else.
    pub fn keeping(memory: usize) -> Self {
        Self { memory, remembers_rounds: memory > 0, ..Self::default() }
    }
}

/// The rule of control variates. With a copy of it a server restores the control of an agent that missed messages or was restored from an
/// older state. All vectors have d components.
///
/// A round changes a control by the agent's own answer, if the round counted it, and by a vector that is the same for all agents: the mean
/// v of the round (SCAFFLSA), or the server's control c (Scaffold).
pub trait Controls: Send + Sync {
    /// Whether a server can hold copies of controls.
    fn can_be_copied(&self) -> bool {
        true
    }
    /// Writes the control that an agent will have in round `next_round` to `xi`. `theta` is the server's iterate at the start of that round;
    /// `is_included` says whether the mean of its round includes the agent's last answer.
    fn of_agent(&self, memory: &AgentMemory<'_>, theta: &[f64], next_round: u64, is_included: bool, xi: &mut [f64]);
    /// Whether agents are told the vector of a round at its end; otherwise they know it from the question, or from the next model.
    fn is_told(&self) -> bool;
    /// Whether an agent that last answered in round `answered` (`None`: never) can compute its control at the question of
    /// `round`.
    fn can_follow(&self, answered: Option<u64>, round: u64) -> bool;
    /// Sets the vectors that an agent keeps to the control `xi` of the round whose model is `theta`.
    fn put(&self, memory: &mut [&mut [f64]], xi: &[f64], theta: &[f64]);
    /// The vector of a round that is the same for all agents. `down` is what agents were told at its end, or the round's question if they
    /// are told nothing; `theta` is the model after the round.
    fn shared(&self, down: &Message, theta: &[f64]) -> Vec<f64>;
    /// Updates a control `xi` of an agent that was asked in a round: with the round's `shared` vector, and with the agent's answer `own` if
    /// the round counted it.
    fn settle(&self, round: u64, xi: &mut [f64], shared: &[f64], own: Option<&[f64]>);
}

/// The vectors that one agent keeps, read only.
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

/// Sets an agent's memory to the control of the round whose model is `theta`.
pub(crate) fn put(controls: &dyn Controls, memory: &mut [Chunk], d: usize, xi: &[f64], theta: &[f64]) {
    let mut vectors: Vec<&mut [f64]> = memory.chunks_mut(chunks(d)).map(|vector| &mut flat_mut(vector)[..d]).collect();
    controls.put(&mut vectors, xi, theta);
}
