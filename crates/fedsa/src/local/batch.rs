//! A batch: the agents for which a client rule answers in one call, and their answers.

use std::ops::Range;
use std::sync::Arc;

use super::{Agent, AgentFacts, AgentRows, LocalContext};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::rows::ControlMove;
use crate::kernel::{Chunk, Isa, LANES, Lanes, chunks, flat, flat_mut, rows};
use crate::message::{Body, Message, Part};
use crate::problem::Field;
use crate::problem::calls::Calls;
use crate::random::{Key, Purpose};
use crate::schedule::LocalPhase;

/// Some agents for a client half: one lane each, in blocks of eight. Vectors have d components.
pub struct AgentBatch<'a> {
    field: &'a Arc<dyn Field>,
    d: usize,
    seed: u64,
    /// Eight agents each, except the last.
    blocks: &'a mut [Lanes],
    /// The number of agents.
    len: usize,
    memory: &'a mut [Chunk],
    /// The number of chunks that the memory of one agent takes.
    stride: usize,
    /// The agent whose vectors are the first in `memory`.
    first: usize,
    samples: u64,
    calls: Calls,
    /// The agents from `first` on, if they compute alone (otherwise empty).
    alone: &'a mut [Box<dyn Agent>],
    /// The additional part of each agent's question; empty if none has one.
    own: Vec<Option<(Part, Body)>>,
    /// The number of bits that each agent's link carries, if limited.
    bits: Vec<Option<u64>>,
    /// Set when the round is to be abandoned.
    stop: Option<&'a Cancel>,
    /// The agents' last answers, or fewer; `None` for an agent whose answer is in the mean of the round before.
    last: Vec<Option<Last>>,
}

/// The last answer of an agent whose messages the network may have lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// The round that the agent answered last; `None` before its first answer.
    pub round: Option<u64>,
    /// Whether the mean of that round includes the answer.
    pub is_included: bool,
}

/// The multiplications of each lane between two checks of the token, for dense operators: a few milliseconds.
const WORK_BETWEEN_LOOKS: usize = 1 << 24;
/// The largest number of local steps between two checks of the token, and so of buffered step sizes.
const STEPS_BETWEEN_LOOKS: usize = 8192;

/// One agent of a batch; vectors have d components.
pub struct Lane<'a, const K: usize> {
    /// `theta_{c,h}`.
    pub theta: &'a mut [f64],
    /// The drift of the next local steps.
    pub drift: &'a mut [f64],
    /// The last observation `g_c(theta, z)`.
    pub observed: &'a [f64],
    /// The first K stored vectors of the agent.
    pub memory: [&'a mut [f64]; K],
}

impl<'a> AgentBatch<'a> {
    /// A batch of `agents`, at least one. `memory` holds the vectors of agents `first, first + 1, ...`, `stride` chunks for
    /// each. `blocks` hold the states of the agents' sampling processes, eight agents each.
    ///
    /// # Panics
    /// When there are no agents, or the number of blocks does not fit.
    #[inline]
    pub fn new(
        field: &'a Arc<dyn Field>,
        seed: u64,
        blocks: &'a mut [Lanes],
        agents: &[usize],
        first: usize,
        memory: &'a mut [Chunk],
        stride: usize,
    ) -> Self {
        assert!(!agents.is_empty() && blocks.len() == agents.len().div_ceil(LANES));
        for (lanes, agents) in blocks.iter_mut().zip(agents.chunks(LANES)) {
            lanes.len = agents.len();
            // Idle lanes repeat the last agent.
            let agents = match agents.first_chunk() {
                Some(agents) => *agents,
                None => std::array::from_fn(|l| agents[l.min(agents.len() - 1)]),
            };
            (lanes.agents, lanes.identities) = (agents, agents);
        }
        let (d, len) = (field.dim(), agents.len());
        let (samples, calls) = (0, Calls::default());
        let (own, bits, last) = (Vec::new(), Vec::new(), Vec::new());
        Self { field, d, seed, blocks, len, memory, stride, first, samples, calls, alone: &mut [], own, bits, stop: None, last }
    }

    /// Adds the agents that compute alone, from the first one on.
    #[must_use]
    pub fn with_agents(self, alone: &'a mut [Box<dyn Agent>]) -> Self {
        Self { alone, ..self }
    }

    /// Whether the agents compute alone.
    pub(crate) fn computes_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// Sets an additional part of the question for the agent in lane `l`, which computes alone.
    pub fn set_own(&mut self, l: usize, own: (Part, Body)) {
        self.own.resize(self.len, None);
        self.own[l] = Some(own);
    }

    /// Sets the number of bits that the link of the agent in lane `l` carries in this exchange; by default there is no limit.
    pub fn set_bits(&mut self, l: usize, bits: Option<u64>) {
        self.bits.resize(self.len, None);
        self.bits[l] = bits;
    }

    /// The agent in lane `l` that computes alone.
    pub(super) fn agent(&mut self, l: usize) -> &mut dyn Agent {
        &mut *self.alone[self.blocks[l / LANES].agents[l % LANES] - self.first]
    }

    /// Calls `see` with the agent in lane `l` that computes alone, its context in this exchange, and its message, `down` with any
    /// additional part. Its calls count.
    pub(super) fn alone<T>(&mut self, l: usize, down: &Message, see: impl FnOnce(&mut dyn Agent, &LocalContext<'_>, &Message) -> T) -> T {
        let lanes = &self.blocks[l / LANES];
        let (place, agent) = (lanes.agents[l % LANES], lanes.identities[l % LANES]);
        let bits = self.bits.get(l).copied().flatten();
        let facts = AgentFacts::of(self.field.facts());
        let at = LocalContext::new(facts, place, agent, self.seed, down.round, down.exchange, bits);
        let with_own = self.own.get(l).cloned().flatten().map(|own| {
            let mut down = down.clone();
            down.parts.push(own);
            down
        });
        let done = see(self.agent(l), &at, with_own.as_ref().unwrap_or(down));
        self.calls.add(at.calls());
        done
    }

    /// Sets the last answer of the agent in lane `l`. By default it answered the round before, whose mean includes the answer.
    pub fn set_last(&mut self, l: usize, last: Last) {
        self.last.resize(self.len, None);
        self.last[l] = Some(last);
    }

    /// Whether the mean of the round before includes the answers of all agents of the batch.
    #[inline]
    pub fn is_in_step(&self) -> bool {
        self.last.is_empty()
    }

    /// The last answer of the agent in lane `l` before round `t`.
    #[inline]
    pub fn last(&self, l: usize, t: u64) -> Last {
        let before = Last { round: t.checked_sub(1), is_included: true };
        self.last.get(l).copied().flatten().unwrap_or(before)
    }

    /// Sets the number in the federation of the agent in lane 0, which keys its random draws. By default it is the agent's
    /// place in the data.
    #[must_use]
    pub fn identified(self, agent: usize) -> Self {
        self.blocks[0].identities[0] = agent;
        self
    }

    /// Local steps end early once the round is cancelled. The batch is then incomplete, and the caller must abandon the round.
    #[must_use]
    pub fn stopped_by(self, stop: Option<&'a Cancel>) -> Self {
        Self { stop, ..self }
    }

    /// Whether the round is to be abandoned.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.is_cancelled())
    }

    /// The lanes in use.
    pub fn lanes(&self) -> Range<usize> {
        0..self.len
    }

    /// Copies of the agents as rows, for another language; a failed call then changes nothing.
    pub fn rows(&self) -> AgentRows {
        let memory: Vec<&[Chunk]> = self.lanes().map(|l| &self.memory[self.kept(l)]).collect();
        AgentRows::new(self.field, self.seed, self.blocks.to_vec(), &memory, self.stop.cloned())
    }

    /// Takes the stored vectors of [`AgentBatch::rows`].
    pub fn take_memory(&mut self, rows: &AgentRows) {
        for l in self.lanes() {
            let kept = self.kept(l);
            rows.write_memory(l, &mut self.memory[kept]);
        }
    }

    /// Answers with a part of n d numbers, agent after agent, and takes the state of [`AgentBatch::rows`]. After an operator the sampling
    /// processes do not advance: the steps of the second exchange begin with the same samples, and count them.
    pub fn answer_with(&mut self, rows: &AgentRows, part: Part, values: &[f64], out: &mut Outbox) {
        self.take_memory(rows);
        values.chunks_exact(self.d).enumerate().for_each(|(l, x)| out.send(l, part).copy_from_slice(x));
        if part == Part::Operator {
            (0..rows.evaluations()).for_each(|_| self.count_observation());
        } else {
            self.blocks.iter_mut().zip(rows.blocks()).for_each(|(lanes, row)| lanes.chains.copy_from_slice(&row.chains));
            self.count(rows.evaluations());
        }
    }

    /// The place of the memory of the agent in lane `l`.
    #[inline]
    fn kept(&self, l: usize) -> Range<usize> {
        let at = (self.blocks[l / LANES].agents[l % LANES] - self.first) * self.stride;
        at..at + self.stride
    }

    /// The agent in lane `l`, with its first K stored vectors.
    #[inline]
    pub fn lane<const K: usize>(&mut self, l: usize) -> Lane<'_, K> {
        let (d, kept) = (self.d, self.kept(l));
        let lanes = &mut self.blocks[l / LANES];
        let (width, l) = (lanes.width, l % LANES);
        lanes.is_still = false;
        let here = l * width..(l + 1) * width;
        let mut kept = self.memory[kept.start..][..K * width].chunks_exact_mut(width);
        Lane {
            theta: &mut flat_mut(&mut lanes.theta[here.clone()])[..d],
            drift: &mut flat_mut(&mut lanes.drift[here.clone()])[..d],
            observed: &flat(&lanes.observed[here])[..d],
            memory: std::array::from_fn(|_| &mut flat_mut(kept.next().expect("K vectors"))[..d]),
        }
    }

    /// Sets `theta_{c,0} = theta` and a drift of 0 in every lane.
    #[inline]
    pub fn start_at(&mut self, theta: &[f64]) {
        self.place(theta);
        for lanes in &mut *self.blocks {
            if !lanes.is_still {
                lanes.drift.fill(Chunk::default());
                lanes.is_still = true;
            }
        }
    }

    /// Sets `theta_{c,0} = theta`, d numbers, in every lane, and keeps the drifts.
    ///
    /// # Panics
    /// When `theta` has another length.
    #[inline]
    pub fn place(&mut self, theta: &[f64]) {
        assert!(theta.len() == self.d);
        for Lanes { theta: iterates, start, width, len, .. } in &mut *self.blocks {
            rows::place(theta, start, &mut iterates[..*len * *width]);
        }
    }

    /// Sets `theta_{c,0}` in every lane to vector `j` of the agents' memory, which all agents have in common, and keeps the drifts.
    #[inline]
    pub fn place_kept(&mut self, j: usize) {
        for b in 0..self.blocks.len() {
            let kept = self.kept(b * LANES).start;
            let Lanes { theta: iterates, start, width, len, .. } = &mut self.blocks[b];
            let vector = &flat(&self.memory[kept + j * *width..][..*width])[..self.d];
            rows::place(vector, start, &mut iterates[..*len * *width]);
        }
    }

    /// Sets the drift of every lane to vector `j` of its agent's memory.
    #[inline]
    pub fn drift_by(&mut self, j: usize) {
        for l in self.lanes() {
            let kept = self.kept(l).start;
            let lanes = &mut self.blocks[l / LANES];
            let width = lanes.width;
            lanes.is_still = false;
            lanes.drift[l % LANES * width..][..width].copy_from_slice(&self.memory[kept + j * width..][..width]);
        }
    }

    /// Updates the agents' control variates from the iterate at which all lanes started, and sets the drifts to them; `moved` is the change
    /// of each lane. The first three vectors of an agent's memory are its control variate, its last answer and the last model.
    #[inline]
    pub fn settle(&mut self, moved: impl Fn(usize) -> ControlMove, afresh: bool) {
        let (first, stride) = (self.first, self.stride);
        for (b, lanes) in self.blocks.iter_mut().enumerate() {
            let at = lanes.agents.map(|c| (c - first) * stride);
            let moves = std::array::from_fn(|l| moved((LANES * b + l).min(self.len - 1)));
            let Lanes { start, drift, is_still, len, .. } = lanes;
            *is_still = false;
            rows::settle(self.memory, &at[..*len], start, &moves, afresh, drift);
        }
    }

    /// Stores the answer of every lane as the second vector of its agent's memory, minus the first vector if `afresh`. If
    /// `has_base`, stores the iterate at which all lanes started as the third vector.
    #[inline]
    pub fn keep(&mut self, has_base: bool, afresh: bool, out: &mut Outbox) {
        let (first, stride) = (self.first, self.stride);
        for (lanes, values) in self.blocks.iter().zip(out.values.chunks_mut(LANES * chunks(self.d))) {
            let at = lanes.agents.map(|c| (c - first) * stride);
            rows::keep(self.memory, &at[..lanes.len], &lanes.start, has_base, afresh, values);
        }
    }

    /// Answers with `v_c = (theta_{c,H} - theta_{c,0}) / sum` in every lane. All lanes must have started at the same iterate.
    #[inline]
    pub fn send_directions(&mut self, sum: f64, part: Part, out: &mut Outbox) {
        let corrects = rows::corrects(Isa::best(), sum, &flat(&self.blocks[0].start)[..self.d]);
        for (lanes, values) in self.blocks.iter().zip(out.values.chunks_mut(LANES * chunks(self.d))) {
            let used = lanes.len * lanes.width;
            rows::directions(&lanes.theta[..used], &lanes.start, sum, corrects, &mut values[..used]);
        }
        out.parts[..self.len].fill(Some(part));
    }

    /// Opens the agents' random streams of (round, purpose). Every call opens them at their start, so that two exchanges of a round can use
    /// the same samples.
    #[inline]
    pub fn open_streams(&mut self, purpose: Purpose, round: u64) {
        let of = (self.seed, purpose, round);
        for Lanes { streams, identities, opened, .. } in &mut *self.blocks {
            if opened.0 != of {
                *opened = (of, Key::new(self.seed, purpose, round));
            }
            rows::open(streams, &opened.1, identities);
        }
    }

    /// Makes the H local steps `theta_{c,h} = theta_{c,h-1} + eta_h (g_c(theta_{c,h-1}, z_h) + drift_c)` in every lane.
    #[inline]
    pub fn steps(&mut self, phase: &LocalPhase) {
        let mut piece = phase.len.min(STEPS_BETWEEN_LOOKS);
        if piece * self.d * self.d > WORK_BETWEEN_LOOKS {
            let work = self.field.facts().step_work().unwrap_or(self.d * self.d);
            piece = piece.min((WORK_BETWEEN_LOOKS / work).max(1));
        }
        let mut done = 0;
        while done < phase.len && !self.is_stopped() {
            let next = phase.len.min(done + piece);
            set_etas(&mut self.blocks[0], phase, done..next);
            let etas = std::mem::take(&mut self.blocks[0].etas);
            self.field.local_phase(self.blocks, &etas);
            self.blocks[0].etas = etas;
            done = next;
        }
        self.count(phase.len);
    }

    /// Counts `evaluations` evaluations of each lane's operator, each on a batch of samples.
    #[inline]
    pub(crate) fn count(&mut self, evaluations: usize) {
        let samples = self.field.sampling().samples_per_step();
        self.samples += (evaluations * self.len * samples) as u64;
        self.calls.operators += (evaluations * self.len * samples.max(1)) as u64;
    }

    /// Evaluates `g_c(theta_{c,h}, z)` in every lane with the next sample of its stream ([`Lane::observed`]). Sampling
    /// processes and streams advance only if `advance` is true; otherwise the next step uses the same sample.
    pub fn observe(&mut self, advance: bool) {
        self.field.observe(self.blocks, advance);
        let before = self.samples;
        self.count(1);
        if !advance {
            // The next step will count these samples.
            self.samples = before;
        }
    }

    /// Counts one evaluation of each lane's operator that another batch made at an old model.
    pub(crate) fn count_observation(&mut self) {
        self.calls.operators += (self.len * self.field.sampling().samples_per_step().max(1)) as u64;
    }

    /// The evaluations of operators, losses, gradients and Hessians by this batch so far.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    /// The number of samples drawn by this batch so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

/// Sets the lanes' step sizes for some steps of a local phase.
#[inline]
fn set_etas(lanes: &mut Lanes, phase: &LocalPhase, steps: Range<usize>) {
    // With a constant step size, the buffer mostly has these step sizes already.
    let eta = phase.constant();
    if eta.is_none() || lanes.eta != eta || lanes.etas.len() != steps.len() {
        phase.fill(steps, &mut lanes.etas);
        lanes.eta = eta;
    }
}

/// The answers of a batch: one vector of d components per agent, or parts.
#[derive(Debug, Clone)]
pub struct Outbox {
    d: usize,
    /// The answers, lane by lane, in whole chunks.
    values: Vec<Chunk>,
    /// The part of each lane's message, if it has sent one.
    parts: Vec<Option<Part>>,
    /// Each lane's content instead of a vector, for all lanes or fewer.
    other: Vec<Option<Other>>,
}

/// A lane's content instead of a vector that arrives.
#[derive(Debug, Clone)]
pub(crate) enum Other {
    /// Parts.
    Parts(Vec<(Part, Body)>),
    /// The link's budget carries no message.
    NotCarried,
    /// Numbers that are no longer finite.
    Diverged,
    /// The agent could not answer.
    Refused(Error),
}

impl Outbox {
    /// No answers, for vectors of `d` components.
    pub fn new(d: usize) -> Self {
        Self { d, values: Vec::new(), parts: Vec::new(), other: Vec::new() }
    }

    /// Removes all answers, and makes room for n agents.
    #[inline]
    pub fn clear(&mut self, n: usize) {
        if self.parts.len() < n {
            self.parts.resize(n.next_multiple_of(LANES), None);
            self.values.resize(self.parts.len() * chunks(self.d), Chunk::default());
        }
        self.parts.fill(None);
        self.other.clear();
    }

    /// Sets the content of lane `l` instead of a vector.
    pub(crate) fn set(&mut self, l: usize, other: Other) {
        self.other.resize(self.parts.len(), None);
        self.other[l] = Some(other);
    }

    /// Adds the answer of lane `l` as parts, if it is not one vector.
    pub fn send_parts(&mut self, l: usize, parts: Vec<(Part, Body)>) {
        self.set(l, Other::Parts(parts));
    }

    /// Removes and returns the content of lane `l` instead of a vector.
    pub(crate) fn take_other(&mut self, l: usize) -> Option<Other> {
        self.other.get_mut(l).and_then(Option::take)
    }

    /// Sets the answer of lane `l` as the server can decode it; `None` if the link's budget carried no message.
    pub(crate) fn arrived(&mut self, l: usize, parts: Option<&[(Part, Body)]>) {
        match (self.parts[l], parts) {
            (Some(part), Some([(_, Body::Numbers(x))])) => self.send(l, part).copy_from_slice(x),
            (Some(part), _) => self.send(l, part).fill(0.0),
            (None, Some(parts)) => self.set(l, Other::Parts(parts.to_vec())),
            (None, None) => self.set(l, Other::NotCarried),
        }
    }

    /// The parts of lane `l` that the server can decode, `Some(None)` if the link's budget carried no message; `None` if the agent has sent
    /// no parts.
    pub fn decoded(&self, l: usize) -> Option<Option<&[(Part, Body)]>> {
        match self.other.get(l)?.as_ref()? {
            Other::Parts(parts) => Some(Some(parts)),
            Other::NotCarried => Some(None),
            Other::Diverged | Other::Refused(_) => None,
        }
    }

    /// Removes and returns the answer of lane `l` as it arrives, if any.
    ///
    /// # Errors
    /// Why the agent could not answer.
    pub(crate) fn take(&mut self, l: usize) -> Option<Result<Vec<(Part, Body)>>> {
        match self.take_other(l) {
            Some(Other::Parts(parts)) => Some(Ok(parts)),
            Some(Other::Diverged) => Some(Ok(vec![(Part::Diverged, Body::Numbers(Vec::new()))])),
            Some(Other::Refused(reason)) => Some(Err(reason)),
            Some(Other::NotCarried) => None,
            None => self.sent(l).map(|(part, x)| Ok(vec![(part, Body::Numbers(x.to_vec()))])),
        }
    }

    /// Removes the answers of lanes for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        self.parts.iter_mut().enumerate().filter(|(l, _)| !keep(*l)).for_each(|(_, part)| *part = None);
    }

    /// Adds the answer of lane `l`; the caller writes its d components.
    pub fn send(&mut self, l: usize, part: Part) -> &mut [f64] {
        self.parts[l] = Some(part);
        let width = chunks(self.d);
        &mut flat_mut(&mut self.values[l * width..(l + 1) * width])[..self.d]
    }

    /// The answer of lane `l`, if there is one.
    pub fn sent(&self, l: usize) -> Option<(Part, &[f64])> {
        let width = chunks(self.d);
        self.parts[l].map(|part| (part, &flat(&self.values[l * width..(l + 1) * width])[..self.d]))
    }

    /// The answers of these lanes, d numbers each, agent after agent; zeros for missing ones.
    pub fn rows(&self, lanes: Range<usize>) -> Vec<f64> {
        let zero = vec![0.0; self.d];
        lanes.flat_map(|l| self.sent(l).map_or(&zero[..], |(_, x)| x)).copied().collect()
    }

    /// The answers of these lanes, in whole chunks, if all of them have one.
    #[inline]
    pub(crate) fn all_sent(&self, lanes: Range<usize>) -> Option<&[Chunk]> {
        let width = chunks(self.d);
        self.parts[lanes.clone()].iter().all(Option::is_some).then(|| &self.values[lanes.start * width..lanes.end * width])
    }
}
