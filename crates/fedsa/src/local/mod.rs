//! Local rules: how an agent computes its answer to a message from the server.
//!
//! In a round an agent makes H steps `theta += eta_h (g_c(theta, z) + drift)` with a drift that is constant within the
//! round. Rules differ in the drift and in what they send; the loop over samples is in [`crate::kernel`]. A rule works on
//! a batch of up to eight agents; the batch of a [`crate::node::ClientNode`] has one agent.

pub mod adaptive_newton;
pub mod agent;
pub mod alone;
pub mod batched;
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
pub mod server_control;
pub mod shed;
mod tridiagonal;

use std::ops::Range;
use std::sync::Arc;

use crate::cancel::Cancel;
use crate::error::Failure;
use crate::kernel::pass::Controls;
use crate::kernel::rows::Move;
use crate::kernel::{Chunk, LANES, Lanes, chunks, flat, flat_mut, rows};
use crate::message::{Message, Part};
use crate::problem::Field;
use crate::random::{Key, Purpose};
use crate::schedule::LocalLeg;

pub use agent::{Agent, AgentFacts, LocalContext};
pub use alone::Alone;
pub use batched::{AgentRows, BatchRule, BatchedClient};
pub use control_variate::ControlVariate;
pub(crate) use control_variate::put;
pub use global_memory::GlobalMemory;
pub use plain::Plain;
pub use server_control::ServerControl;

/// A Hessian with n rows and all of its pairs take about as long as this share of `n^3` multiply-adds in products with vectors, which take
/// some 40 times as long as those in products of matrices: 8 ms at n = 300.
pub const HESSIAN_AND_PAIRS: f64 = 0.25;

/// The client half of a first-order method, which works on up to eight agents side by side.
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
    /// Computes the answer of every agent of the batch to the message `down`, and writes the answers to `out`.
    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox);
    /// The answer of round t as data, if it is no more than [`OnePass`] says and every agent answered the round before: many agents then
    /// answer in one pass, with the bits of [`Client::answer`].
    fn one_pass(&self, _t: u64) -> Option<OnePass> {
        None
    }
    /// Is called after the answer of lane `l` was encoded: `sent` (d numbers) is what the server can decode, or zeros if
    /// nothing was sent. Is not called if the link alters no messages.
    fn sent(&self, _batch: &mut AgentBatch<'_>, _l: usize, _sent: &[f64]) {}
    /// Receives the message that participants get at the end of a round and do not answer.
    fn told(&self, _batch: &mut AgentBatch<'_>, _down: &Message) {}
    /// Writes the control variate that the agent will have in round `next_round` to `xi` (d numbers), and returns whether it keeps
    /// one. `theta` is the server's iterate at the start of that round; `is_included` says whether the mean of its round includes
    /// the agent's last answer.
    fn control(&self, _memory: &AgentMemory<'_>, _theta: &[f64], _next_round: u64, _is_included: bool, _xi: &mut [f64]) -> bool {
        false
    }
    /// Where the rule says why it has failed, if it can fail: what was computed since a failure is void, and the round does not count.
    fn failure(&self) -> Option<&Failure> {
        None
    }
    /// The answers of all participants in one call, where a call costs more than an agent.
    fn batched(&self) -> Option<&BatchedClient> {
        None
    }
    /// Is given the data of the agents that it will answer for, before any other call.
    fn meet(&mut self, _field: &Arc<dyn Field>) {}
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

/// Up to eight agents, as a client half works on them. Vectors have d components.
pub struct AgentBatch<'a> {
    field: &'a dyn Field,
    d: usize,
    seed: u64,
    lanes: &'a mut Lanes,
    memory: &'a mut [Chunk],
    /// The number of chunks that the memory of one agent takes.
    stride: usize,
    /// The place of each lane's agent in `memory`, as a number of agents.
    at: [usize; LANES],
    samples: u64,
    operators: u64,
    /// True once the round is to be abandoned.
    stop: Option<&'a Cancel>,
    /// The agents' last answers; `None` where an agent answered the round before and that round's mean includes the answer.
    last: Option<Box<[Option<Last>; LANES]>>,
}

/// The last answer of an agent, whose messages the network may have lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// The round that the agent answered last; `None` before its first answer.
    pub round: Option<u64>,
    /// Whether the mean of that round includes the answer.
    pub is_included: bool,
}

/// The multiplications of each lane between two looks at the token, if operators are dense: a few milliseconds.
const WORK_BETWEEN_LOOKS: usize = 1 << 24;
/// The most local steps between two looks at the token, and so the greatest length of the buffer of step sizes.
const STEPS_BETWEEN_LOOKS: usize = 8192;

/// One agent of a batch; vectors have d components.
pub struct Lane<'a, const K: usize> {
    /// `theta_{c,h}`.
    pub theta: &'a mut [f64],
    /// The drift of the next local steps.
    pub drift: &'a mut [f64],
    /// The last observation `g_c(theta, z)`.
    pub observed: &'a [f64],
    /// The first K vectors that the agent keeps.
    pub memory: [&'a mut [f64]; K],
}

impl<'a> AgentBatch<'a> {
    /// A batch of `agents`, 1 to 8 of them. `memory` holds the vectors of agents `first, first + 1, ...`, `stride` chunks for
    /// each. `lanes` holds the states of the agents' sampling processes.
    ///
    /// # Panics
    /// When there are no agents or more than eight.
    #[inline]
    pub fn new(
        field: &'a dyn Field,
        seed: u64,
        lanes: &'a mut Lanes,
        agents: &[usize],
        first: usize,
        memory: &'a mut [Chunk],
        stride: usize,
    ) -> Self {
        assert!((1..=LANES).contains(&agents.len()));
        lanes.len = agents.len();
        // Idle lanes get the last agent.
        let agents = match agents.first_chunk() {
            Some(agents) => *agents,
            None => std::array::from_fn(|l| agents[l.min(agents.len() - 1)]),
        };
        (lanes.agents, lanes.identities) = (agents, agents);
        let at = agents.map(|c| c - first);
        Self { field, d: field.dim(), seed, lanes, memory, stride, at, samples: 0, operators: 0, stop: None, last: None }
    }

    /// Sets the last answer of the agent in lane `l`. By default it answered the round before, whose mean includes the answer.
    pub fn set_last(&mut self, l: usize, last: Last) {
        self.last.get_or_insert_default()[l] = Some(last);
    }

    /// Whether the mean of the round before includes answers of all agents of the batch.
    #[inline]
    pub fn is_in_step(&self) -> bool {
        self.last.is_none()
    }

    /// The last answer of the agent in lane `l` before round `t`.
    #[inline]
    pub fn last(&self, l: usize, t: u64) -> Last {
        self.last.as_ref().and_then(|last| last[l]).unwrap_or(Last { round: t.checked_sub(1), is_included: true })
    }

    /// Sets the number in the federation of the agent in lane 0, which keys its random draws. By default it is the agent's
    /// place in the data.
    #[must_use]
    pub fn identified(self, agent: usize) -> Self {
        self.lanes.identities[0] = agent;
        self
    }

    /// Local steps end early once the round is cancelled. The batch is then incomplete, and the caller must abandon the round.
    #[must_use]
    pub fn stopped_by(self, stop: Option<&'a Cancel>) -> Self {
        Self { stop, ..self }
    }

    /// The lanes in use.
    pub fn lanes(&self) -> std::ops::Range<usize> {
        0..self.lanes.len
    }

    /// The place in the data of the agent in lane `l`.
    pub(crate) fn place_of(&self, l: usize) -> usize {
        self.lanes.agents[l]
    }

    /// The agent in lane `l`, with the first K of the vectors that it keeps.
    #[inline]
    pub fn lane<const K: usize>(&mut self, l: usize) -> Lane<'_, K> {
        let (d, width) = (self.d, self.lanes.width);
        self.lanes.is_still = false;
        let here = l * width..(l + 1) * width;
        let mut kept = self.memory[self.at[l] * self.stride..][..K * width].chunks_exact_mut(width);
        Lane {
            theta: &mut flat_mut(&mut self.lanes.theta[here.clone()])[..d],
            drift: &mut flat_mut(&mut self.lanes.drift[here.clone()])[..d],
            observed: &flat(&self.lanes.observed[here])[..d],
            memory: std::array::from_fn(|_| &mut flat_mut(kept.next().expect("K vectors"))[..d]),
        }
    }

    /// Sets `theta_{c,0} = theta` and a drift of 0 in every lane.
    #[inline]
    pub fn start_at(&mut self, theta: &[f64]) {
        self.place(theta);
        let Lanes { drift, is_still, .. } = &mut *self.lanes;
        if !*is_still {
            drift.fill(Chunk::default());
            *is_still = true;
        }
    }

    /// Sets `theta_{c,0} = theta` in every lane, and keeps the drifts.
    #[inline]
    fn place(&mut self, theta: &[f64]) {
        assert!(theta.len() == self.d);
        let Lanes { theta: iterates, start, width, len, .. } = &mut *self.lanes;
        rows::place(theta, start, &mut iterates[..*len * *width]);
    }

    /// Sets the drift of every lane to vector `j` of its agent's memory.
    #[inline]
    pub fn drift_by(&mut self, j: usize) {
        self.lanes.is_still = false;
        for l in self.lanes() {
            let width = self.lanes.width;
            let kept = &self.memory[self.at[l] * self.stride + j * width..][..width];
            self.lanes.drift[l * width..][..width].copy_from_slice(kept);
        }
    }

    /// Updates the agents' control variates with the iterate at which all lanes started, and sets the drifts to them. The
    /// first three vectors of an agent's memory are its control, its last answer and the last model.
    #[inline]
    fn settle(&mut self, moves: &[Move; LANES], afresh: bool) {
        let at = self.at.map(|at| at * self.stride);
        let Lanes { start, drift, is_still, len, .. } = &mut *self.lanes;
        *is_still = false;
        rows::settle(self.memory, &at[..*len], start, moves, afresh, drift);
    }

    /// Stores the answer of every lane as the second vector of its agent's memory, minus the first vector if `afresh`. If
    /// `has_base`, stores the iterate at which all lanes started as the third vector.
    #[inline]
    fn keep(&mut self, has_base: bool, afresh: bool, out: &mut Outbox) {
        let at = self.at.map(|at| at * self.stride);
        rows::keep(self.memory, &at[..self.lanes.len], &self.lanes.start, has_base, afresh, &mut out.values);
    }

    /// Answers with `v_c = (theta_{c,H} - theta_{c,0}) / sum` in every lane. All lanes must have started at the same iterate.
    #[inline]
    pub fn send_directions(&mut self, sum: f64, part: Part, out: &mut Outbox) {
        let used = self.lanes.len * self.lanes.width;
        rows::directions(&self.lanes.theta[..used], &self.lanes.start, sum, &mut out.values[..used]);
        (out.parts, out.sent) = ([part; LANES], (1 << self.lanes.len) - 1);
    }

    /// Opens the agents' random streams of (round, purpose). Every call starts the streams at their beginning, so that two
    /// exchanges of a round can use the same samples.
    #[inline]
    pub fn open_streams(&mut self, purpose: Purpose, round: u64) {
        let Lanes { streams, identities, opened, .. } = &mut *self.lanes;
        let of = (self.seed, purpose, round);
        if opened.0 != of {
            *opened = (of, Key::new(self.seed, purpose, round));
        }
        rows::open(streams, &opened.1, identities);
    }

    /// Makes the H local steps `theta_{c,h} = theta_{c,h-1} + eta_h (g_c(theta_{c,h-1}, z_h) + drift_c)` in every lane.
    #[inline]
    pub fn steps(&mut self, leg: &LocalLeg) {
        let mut piece = leg.len.min(STEPS_BETWEEN_LOOKS);
        if piece * self.d * self.d > WORK_BETWEEN_LOOKS {
            let work = self.field.facts().step_work().unwrap_or(self.d * self.d);
            piece = piece.min((WORK_BETWEEN_LOOKS / work).max(1));
        }
        let mut done = 0;
        while done < leg.len && !self.stop.is_some_and(|stop| stop.is_cancelled()) {
            let next = leg.len.min(done + piece);
            set_etas(self.lanes, leg, done..next);
            let etas = std::mem::take(&mut self.lanes.etas);
            self.field.leg(self.lanes, &etas);
            self.lanes.etas = etas;
            done = next;
        }
        self.count(leg.len);
    }

    /// Counts `evaluations` evaluations of each lane's operator, each on a batch of samples.
    #[inline]
    fn count(&mut self, evaluations: usize) {
        let samples = self.field.sampling().samples_per_step();
        self.samples += (evaluations * self.lanes.len * samples) as u64;
        self.operators += (evaluations * self.lanes.len * samples.max(1)) as u64;
    }

    /// Evaluates `g_c(theta_{c,h}, z)` in every lane with the next sample of its stream ([`Lane::observed`]). Sampling
    /// processes and streams advance only if `advance` is true; otherwise the next step uses the same sample.
    pub fn observe(&mut self, advance: bool) {
        self.field.observe(self.lanes, advance);
        let before = self.samples;
        self.count(1);
        if !advance {
            // The next step uses the same samples and counts them.
            self.samples = before;
        }
    }

    /// Counts one evaluation of each lane's operator that another batch made at a past model.
    pub(crate) fn count_observation(&mut self) {
        self.operators += (self.lanes.len * self.field.sampling().samples_per_step().max(1)) as u64;
    }

    /// Advances the agents' sampling processes by the samples of `steps` steps, and counts them, without a step.
    pub fn pass_over(&mut self, steps: usize) {
        let each = self.field.sampling().samples_per_step();
        if self.lanes.chain_len > 0 {
            self.field.pass_over(self.lanes, steps * each);
        }
        self.count(steps);
    }

    /// The number of evaluations of operators by this batch so far.
    pub fn operators(&self) -> u64 {
        self.operators
    }

    /// The number of samples drawn by this batch so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// Sets the lanes' step sizes to those of some of a leg's steps.
#[inline]
pub(crate) fn set_etas(lanes: &mut Lanes, leg: &LocalLeg, steps: Range<usize>) {
    // A leg with constant steps mostly has the step sizes of the block before.
    let eta = leg.constant();
    if eta.is_none() || lanes.eta != eta || lanes.etas.len() != steps.len() {
        leg.fill(steps, &mut lanes.etas);
        lanes.eta = eta;
    }
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

/// The answers of a batch before the codec encodes them: one vector of d components per agent.
#[derive(Debug, Clone)]
pub struct Outbox {
    d: usize,
    /// The answers, lane by lane, in whole chunks.
    values: Vec<Chunk>,
    /// The part of each lane's message.
    parts: [Part; LANES],
    /// Whether each lane sent a message: bit l for lane l.
    sent: u32,
}

impl Outbox {
    /// No answers; for vectors of `d` components.
    pub fn new(d: usize) -> Self {
        Self { d, values: vec![Chunk::default(); LANES * chunks(d)], parts: [Part::Direction; LANES], sent: 0 }
    }

    /// Removes all answers.
    #[inline]
    pub fn clear(&mut self) {
        self.sent = 0;
    }

    /// Adds the answer of lane `l`; the caller writes its d components.
    pub fn send(&mut self, l: usize, part: Part) -> &mut [f64] {
        self.parts[l] = part;
        self.sent |= 1 << l;
        let width = chunks(self.d);
        &mut flat_mut(&mut self.values[l * width..(l + 1) * width])[..self.d]
    }

    /// The answer of lane `l`, if there is one.
    pub fn sent(&self, l: usize) -> Option<(Part, &[f64])> {
        let width = chunks(self.d);
        (self.sent >> l & 1 == 1).then(|| (self.parts[l], &flat(&self.values[l * width..(l + 1) * width])[..self.d]))
    }

    /// The answers of the first `len` lanes, in whole chunks, if all of them have one.
    #[inline]
    pub(crate) fn all_sent(&self, len: usize) -> Option<&[Chunk]> {
        let all = (1 << len) - 1;
        (self.sent & all == all).then(|| &self.values[..len * chunks(self.d)])
    }
}

/// The number of chunks that the memory of one agent takes.
pub fn stride(client: &dyn Client, d: usize) -> usize {
    client.memory() * chunks(d)
}
