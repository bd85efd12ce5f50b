//! Local rules: how an agent computes its answer to a message from the server.
//!
//! In a round an agent makes H steps `theta += eta_h (g_c(theta, z) + drift)` with a drift that is constant within the
//! round. Rules differ in the drift and in what they send; the loop over samples is in [`crate::kernel`]. A rule works on
//! a batch of any number of agents: eight for a rule of Rust, all participants for one of another language, one for a
//! [`crate::node::ClientNode`].

pub mod adaptive_newton;
pub mod agent;
pub mod alone;
mod batch;
pub mod compressor;
pub mod control_variate;
pub mod descent;
pub mod fednl;
pub mod global_memory;
pub mod leading_pair;
pub mod line_search;
pub mod linear;
pub mod newton;
pub mod packed_pair;
pub mod plain;
mod point;
pub mod q_shed;
pub mod refinement;
mod rows;
pub mod server_control;
pub mod shed;
mod tridiagonal;

use crate::error::Result;
use crate::kernel::pass::Controls;
use crate::kernel::{Chunk, chunks, flat};
use crate::message::Message;
use crate::schedule::LocalLeg;

pub use agent::{Agent, AgentFacts, LocalContext};
pub use alone::Alone;
pub(crate) use batch::set_etas;
pub use batch::{AgentBatch, Lane, Last, Outbox};
pub use control_variate::ControlVariate;
pub(crate) use control_variate::put;
pub use global_memory::GlobalMemory;
pub use plain::Plain;
pub use rows::AgentRows;
pub use server_control::ServerControl;

/// A Hessian with n rows and all of its pairs take about as long as this share of `n^3` multiply-adds in products with vectors, which take
/// some 40 times as long as those in products of matrices: 8 ms at n = 300.
pub const HESSIAN_AND_PAIRS: f64 = 0.25;

/// The client half of a first-order method. What it answers for an agent does not depend on who shares the batch.
pub trait Client: Send + Sync {
    /// How many vectors of d components an agent keeps between exchanges.
    fn memory(&self) -> usize;
    /// Whether these vectors last from round to round; otherwise they last only between the exchanges of one round.
    fn remembers_rounds(&self) -> bool {
        self.memory() > 0
    }
    /// The number of local steps that an answer in round t takes, by which work is divided among threads.
    fn local_steps(&self, t: u64) -> usize;
    /// The number of samples that an answer with an operator draws besides those of the local steps: 0 if the first local step
    /// uses the same sample.
    fn operator_samples(&self) -> usize {
        0
    }
    /// The rule of the agents' control variates, if the server can hold copies of them.
    fn controls(&self) -> Option<&dyn ControlCopies> {
        None
    }
    /// Whether a call costs more than an agent: the participants of an exchange then share one batch.
    fn prefers_one_call(&self) -> bool {
        false
    }
    /// Computes the answer of every agent of the batch to the message `down`, and writes the answers to `out`.
    ///
    /// # Errors
    /// Why a rule that can fail has failed: the round then does not count. Only rules of another language can.
    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()>;
    /// The answer of round t as data, if it is no more than [`OnePass`] says and every agent answered the round before: many agents then
    /// answer in one pass, with the bits of [`Client::answer`].
    fn one_pass(&self, _t: u64) -> Option<OnePass> {
        None
    }
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
    /// Writes the control variate that the agent will have in round `next_round` to `xi` (d numbers), and returns whether it keeps
    /// one. `theta` is the server's iterate at the start of that round; `is_included` says whether the mean of its round includes
    /// the agent's last answer.
    fn control(&self, _memory: &AgentMemory<'_>, _theta: &[f64], _next_round: u64, _is_included: bool, _xi: &mut [f64]) -> bool {
        false
    }
}

/// An answer that is local steps with the control as drift, of which the direction is sent and kept.
#[derive(Debug, Clone, Copy)]
pub struct OnePass {
    /// The local steps.
    pub leg: LocalLeg,
    /// The controls, if agents have any; otherwise they have no drift.
    pub(crate) controls: Option<Controls>,
}

/// The rule of control variates of which a server node can hold copies. With its copy the server restores the control of
/// an agent that missed messages or was restored from an older state. All vectors have d components.
///
/// A round changes a control by the agent's own answer, if the round counted it, and by a vector that is the same for all agents: the mean
/// v of the round (SCAFFLSA), or the server's control c (Scaffold).
pub trait ControlCopies: Send + Sync {
    /// Whether agents are told the vector of a round at its end; otherwise they know it from the question, or from the next model.
    fn is_told(&self) -> bool;
    /// The last round that counted an answer of the agent, as an agent assumes that last answered in round `answered` (`None`: never),
    /// unless the question of `round` says otherwise.
    fn assumed(&self, answered: Option<u64>, round: u64) -> Option<u64>;
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
    client.memory() * chunks(d)
}
