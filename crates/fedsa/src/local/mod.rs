//! Local rules: what an agent does with what it received.
//!
//! In a round an agent makes H steps `theta += eta_h (g_c(theta, z) + drift)`
//! with a drift that is fixed within the round. Rules differ in the drift and in
//! what they send; none owns a loop over samples. A rule works on a batch of up
//! to eight agents; a real deployment has batches of one.

pub mod agent;
pub mod control_variate;
pub mod global_memory;
pub mod newton;
pub mod plain;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::rows::Move;
use crate::kernel::{Chunk, LANES, Lanes, chunks, flat, flat_mut, rows};
use crate::message::{Message, Part};
use crate::problem::Field;
use crate::random::{Key, Purpose};
use crate::schedule::Leg;

pub use agent::{Agent, At};
pub use control_variate::ControlVariate;
pub use global_memory::GlobalMemory;
pub use plain::Plain;

/// The client half of a first-order method, which works on up to eight agents side by side.
pub trait Client: Send + Sync {
    /// How many vectors of d components an agent keeps between exchanges.
    fn memory(&self) -> usize;
    /// Whether what it keeps lasts from round to round; otherwise it lasts from one exchange of a round to the next.
    fn remembers_rounds(&self) -> bool {
        self.memory() > 0
    }
    /// How many local steps an answer in round t takes, for dividing work among threads.
    fn local_steps(&self, t: u64) -> usize;
    /// The control variates that agents keep in step with the server, if they do.
    fn controls(&self) -> Option<&dyn ControlCopies> {
        None
    }
    /// Answers a message with one message per agent, through `out`.
    fn answer(&self, batch: &mut Batch<'_>, down: &Message, out: &mut Outbox);
    /// Learns what became of the message of lane `l` in encoding: `sent` is what the
    /// server can decode, zero when there was none. Not called where nothing is altered.
    fn sent(&self, _batch: &mut Batch<'_>, _l: usize, _sent: &[f64]) {}
    /// Hears what is told at a round's end.
    fn told(&self, _batch: &mut Batch<'_>, _down: &Message) {}
    /// The agent's control variate, if it keeps one, as it will be in round
    /// `next_round` when the server's iterate then is `theta` and the agent's last answer is in its round's mean or not.
    fn control(&self, _memory: &Memory<'_>, _theta: &[f64], _next_round: u64, _is_included: bool) -> Option<Vec<f64>> {
        None
    }
}

/// Control variates of which a server node can hold a copy: agents over a network that loses messages, or that come
/// back from an older state, are brought back into step with it.
pub trait ControlCopies: Send + Sync {
    /// Whether agents are told the mean of a round at its end; otherwise they learn it from the next model.
    fn is_told(&self) -> bool;
    /// Whether an agent that last answered in some round, if in any, can work out its control from the model of
    /// `round`.
    fn can_follow(&self, answered: Option<u64>, round: u64) -> bool;
    /// Gives an agent's vectors, d numbers each, the control of the round whose model is `theta`.
    fn put(&self, memory: &mut [&mut [f64]], xi: &[f64], theta: &[f64]);
    /// The mean of a round that led from one model to the next, as agents work it out.
    fn mean(&self, round: u64, base: &[f64], theta: &[f64]) -> Vec<f64>;
    /// Moves a control by the mean of a round and the agent's own share in it, which is zero where its answer is not
    /// in the mean.
    fn settle(&self, round: u64, xi: &mut [f64], v: &[f64], own: &[f64]);
}

/// Up to eight agents in front of a client half.
pub struct Batch<'a> {
    field: &'a dyn Field,
    d: usize,
    seed: u64,
    lanes: &'a mut Lanes,
    memory: &'a mut [Chunk],
    /// Chunks that one agent's vectors take.
    stride: usize,
    /// Where each lane's agent lies in `memory`, in agents.
    at: [usize; LANES],
    samples: u64,
    operators: u64,
    /// Set when the round is to be abandoned.
    stop: Option<&'a AtomicBool>,
    /// What the agents last did, where it is not that they answered the round before and that this is in its mean.
    last: Option<Box<[Option<Last>; LANES]>>,
}

/// What an agent last did, where a network may have lost messages since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// The round that it answered last; nothing before the first.
    pub round: Option<u64>,
    /// Whether that answer is in the round's mean.
    pub is_included: bool,
}

/// Multiplications of a dense operator between two looks at the stop flag, for each lane: some
/// milliseconds.
const WORK_BETWEEN_LOOKS: usize = 1 << 24;
/// The most local steps between two looks at the stop flag. It also bounds the buffer of step sizes.
const STEPS_BETWEEN_LOOKS: usize = 8192;

/// One agent of a batch; vectors have d components.
pub struct Lane<'a, const K: usize> {
    /// `theta_{c,h}`.
    pub theta: &'a mut [f64],
    /// The drift of the next leg.
    pub drift: &'a mut [f64],
    /// The last observation `g_c(theta, z)`.
    pub observed: &'a [f64],
    /// The first K vectors that the agent keeps.
    pub memory: [&'a mut [f64]; K],
}

impl<'a> Batch<'a> {
    /// A batch of `agents` (at most eight). `memory` holds the vectors of agents
    /// `first, first + 1, ...`, `stride` chunks each. The lanes hold their processes.
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
        // Idle lanes repeat the last.
        let agents = match agents.first_chunk() {
            Some(agents) => *agents,
            None => std::array::from_fn(|l| agents[l.min(agents.len() - 1)]),
        };
        (lanes.agents, lanes.identities) = (agents, agents);
        let at = agents.map(|c| c - first);
        Self { field, d: field.dim(), seed, lanes, memory, stride, at, samples: 0, operators: 0, stop: None, last: None }
    }

    /// Says what the agent of a lane last did; without it, it answered the round before, and that is in its mean.
    pub fn set_last(&mut self, l: usize, last: Last) {
        self.last.get_or_insert_default()[l] = Some(last);
    }

    /// Whether all agents answered the round before, and are in its mean.
    #[inline]
    pub fn is_in_step(&self) -> bool {
        self.last.is_none()
    }

    /// What the agent of a lane did before round `t`.
    #[inline]
    pub fn last(&self, l: usize, t: u64) -> Last {
        self.last.as_ref().and_then(|last| last[l]).unwrap_or(Last { round: t.checked_sub(1), is_included: true })
    }

    /// Says who the agent of lane 0 is in the federation, the key of its draws, where it is not its place in the data.
    #[must_use]
    pub fn identified(self, agent: usize) -> Self {
        self.lanes.identities[0] = agent;
        self
    }

    /// Lets a flag cut local steps short. What the batch then holds is of no use: the round must be
    /// abandoned.
    #[must_use]
    pub fn stopped_by(self, stop: Option<&'a AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// The lanes in use.
    pub fn lanes(&self) -> std::ops::Range<usize> {
        0..self.lanes.len
    }

    /// The agent in lane `l`, with the first K of the vectors it keeps.
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

    /// `theta_{c,0} = theta` in every lane, no drift.
    #[inline]
    pub fn start_at(&mut self, theta: &[f64]) {
        self.place(theta);
        let Lanes { drift, is_still, .. } = &mut *self.lanes;
        if !*is_still {
            drift.fill(Chunk::default());
            *is_still = true;
        }
    }

    /// `theta_{c,0} = theta` in every lane; the drifts are as they were.
    #[inline]
    fn place(&mut self, theta: &[f64]) {
        assert!(theta.len() == self.d);
        let Lanes { theta: iterates, start, width, len, .. } = &mut *self.lanes;
        rows::place(theta, start, &mut iterates[..*len * *width]);
    }

    /// The drift of every lane is vector `j` of what its agent keeps.
    #[inline]
    pub fn drift_by(&mut self, j: usize) {
        self.lanes.is_still = false;
        for l in self.lanes() {
            let width = self.lanes.width;
            let kept = &self.memory[self.at[l] * self.stride + j * width..][..width];
            self.lanes.drift[l * width..][..width].copy_from_slice(kept);
        }
    }

    /// Moves control variates by what the iterate says that all started at, and makes them the drifts; agents keep
    /// controls, what they sent and the last model as their first three vectors.
    #[inline]
    fn settle(&mut self, moves: &[Move; LANES], afresh: bool) {
        let at = self.at.map(|at| at * self.stride);
        let Lanes { start, drift, is_still, len, .. } = &mut *self.lanes;
        *is_still = false;
        rows::settle(self.memory, &at[..*len], start, moves, afresh, drift);
    }

    /// Keeps what every lane sends as the second of its agent's vectors, less the first if `afresh`, and the iterate
    /// that all started at as the third, if there is one.
    #[inline]
    fn keep(&mut self, has_base: bool, afresh: bool, out: &mut Outbox) {
        let at = self.at.map(|at| at * self.stride);
        rows::keep(self.memory, &at[..self.lanes.len], &self.lanes.start, has_base, afresh, &mut out.values);
    }

    /// Sends `v_c = (theta_{c,H} - theta_{c,0}) / sum` of every lane, where all started at the same iterate.
    #[inline]
    pub fn send_directions(&mut self, sum: f64, part: Part, out: &mut Outbox) {
        let used = self.lanes.len * self.lanes.width;
        rows::directions(&self.lanes.theta[..used], &self.lanes.start, sum, &mut out.values[..used]);
        (out.parts, out.sent) = ([part; LANES], (1 << self.lanes.len) - 1);
    }

    /// Opens the streams of (round, purpose): every call starts them anew, so
    /// that two exchanges of a round can use the same samples.
    #[inline]
    pub fn open_streams(&mut self, purpose: Purpose, round: u64) {
        let Lanes { streams, identities, opened, .. } = &mut *self.lanes;
        let of = (self.seed, purpose, round);
        if opened.0 != of {
            *opened = (of, Key::new(self.seed, purpose, round));
        }
        rows::open(streams, &opened.1, identities);
    }

    /// The H local steps `theta_{c,h} = theta_{c,h-1} + eta_h (g_c(theta_{c,h-1}, z_h) + drift_c)`.
    #[inline]
    pub fn steps(&mut self, leg: &Leg) {
        let mut etas = std::mem::take(&mut self.lanes.etas);
        let mut piece = leg.len.min(STEPS_BETWEEN_LOOKS);
        if piece * self.d * self.d > WORK_BETWEEN_LOOKS {
            piece = (WORK_BETWEEN_LOOKS / (self.d * self.d)).max(1);
        }
        let mut done = 0;
        while done < leg.len && !self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            let next = leg.len.min(done + piece);
            // Legs of one step size are mostly those of the block before.
            let eta = leg.constant();
            if eta.is_none() || self.lanes.eta != eta || etas.len() != next - done {
                leg.fill(done..next, &mut etas);
                self.lanes.eta = eta;
            }
            self.field.leg(self.lanes, &etas);
            done = next;
        }
        self.lanes.etas = etas;
        self.count(leg.len);
    }

    /// Counts so many evaluations of each lane's operator, each on a batch of samples.
    #[inline]
    fn count(&mut self, evaluations: usize) {
        let samples = self.field.sampling().samples_per_step();
        self.samples += (evaluations * self.lanes.len * samples) as u64;
        self.operators += (evaluations * self.lanes.len * samples.max(1)) as u64;
    }

    /// `g_c(theta_{c,h}, z)` at the lanes' iterates with the next sample of their
    /// streams. The agents' processes and streams move on only if `advance`:
    /// otherwise the next step sees the same sample.
    pub fn observe(&mut self, advance: bool) {
        self.field.observe(self.lanes, advance);
        let before = self.samples;
        self.count(1);
        if !advance {
            // The next step sees the same samples again.
            self.samples = before;
        }
    }

    /// Counts an observation of each lane that is made elsewhere, at a past model.
    pub(crate) fn count_observation(&mut self) {
        self.operators += (self.lanes.len * self.field.sampling().samples_per_step().max(1)) as u64;
    }

    /// Moves the agents' processes on by `steps` samples' worth without a step.
    pub fn pass_over(&mut self, steps: usize) {
        let each = self.field.sampling().samples_per_step();
        if self.lanes.chain_len > 0 {
            self.field.pass_over(self.lanes, steps * each);
        }
        self.count(steps);
    }

    /// Evaluations of operators by this batch so far.
    pub fn operators(&self) -> u64 {
        self.operators
    }

    /// Samples drawn by this batch so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// The vectors that one agent keeps, to look at.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    data: &'a [Chunk],
    d: usize,
}

impl<'a> Memory<'a> {
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

/// The answers of a batch: one vector part per agent, as the codec will see it.
#[derive(Debug, Clone)]
pub struct Outbox {
    d: usize,
    /// What was sent, lane by lane, whole chunks each.
    values: Vec<Chunk>,
    /// The part of each lane's message.
    parts: [Part; LANES],
    /// Whether each lane sent a message: bit l for lane l.
    sent: u32,
}

impl Outbox {
    /// For vectors of `d` components.
    pub fn new(d: usize) -> Self {
        Self { d, values: vec![Chunk::default(); LANES * chunks(d)], parts: [Part::Direction; LANES], sent: 0 }
    }

    /// Forgets all messages.
    #[inline]
    pub fn clear(&mut self) {
        self.sent = 0;
    }

    /// The message of lane `l`: one vector of d components, to be filled in.
    pub fn send(&mut self, l: usize, part: Part) -> &mut [f64] {
        self.parts[l] = part;
        self.sent |= 1 << l;
        let width = chunks(self.d);
        &mut flat_mut(&mut self.values[l * width..(l + 1) * width])[..self.d]
    }

    /// What lane `l` sent.
    pub fn sent(&self, l: usize) -> Option<(Part, &[f64])> {
        let width = chunks(self.d);
        (self.sent >> l & 1 == 1).then(|| (self.parts[l], &flat(&self.values[l * width..(l + 1) * width])[..self.d]))
    }

    /// What the first `len` lanes sent, whole chunks each, if all of them did.
    #[inline]
    pub(crate) fn all_sent(&self, len: usize) -> Option<&[Chunk]> {
        let all = (1 << len) - 1;
        (self.sent & all == all).then(|| &self.values[..len * chunks(self.d)])
    }
}

/// Chunks that an agent's vectors take.
pub fn stride(client: &dyn Client, d: usize) -> usize {
    client.memory() * chunks(d)
}
