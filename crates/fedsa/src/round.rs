//! The round loop: the only place that knows all stages.
//!
//! problem -> local rule -> uplink (codec) -> server rule -> record. Agents are
//! processed in blocks of eight, blocks in parallel; results do not depend on the
//! number of threads because every draw is keyed and every sum has one order.

use serde::{Deserialize, Serialize};

use crate::kernel::{Chunk, LANES, Lanes, chunks};
use crate::linalg;
use crate::local::{Batch, Client, Memory, Outbox, stride};
use crate::message::{HEADER_BYTES, Message, PART_HEADER_BYTES, Part};
use crate::methods::{Method, Setting, Settings};
use crate::problem::Field;
use crate::random::{Key, Purpose};
use crate::record::{Ledger, Output, OutputRule};
use crate::server::{Ask, Next, Received, Server};
use crate::uplink::Uplink;

/// How a run ended, or stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Under way, or all its rounds done.
    Ok,
    /// The iterate left every bound in this round.
    Diverged {
        /// The first round after which it had.
        round: u64,
    },
}

/// A run has diverged once `||theta||` exceeds this times `1 + max(||theta_0||, ||theta*||)`.
pub const DIVERGED: f64 = 1e8;

/// The sum that every server rule sees: weighted vectors added in blocks of eight
/// participants, in their order, then the blocks pairwise, level by level.
///
/// `blocks` holds the blocks' sums, d numbers each; the result is left in the first d.
pub fn pairwise(blocks: &mut [f64], d: usize) {
    let mut n = blocks.len() / d;
    while n > 1 {
        for i in 0..n / 2 {
            for k in 0..d {
                blocks[i * d + k] = blocks[2 * i * d + k] + blocks[(2 * i + 1) * d + k];
            }
        }
        if n % 2 == 1 {
            blocks.copy_within((n - 1) * d..n * d, n / 2 * d);
        }
        n = n.div_ceil(2);
    }
}

/// Adds `weight x` to a block's sum.
pub fn accumulate(block: &mut [f64], weight: f64, x: &[f64]) {
    block.iter_mut().zip(x).for_each(|(sum, x)| *sum += weight * x);
}

/// [`pairwise`] over messages given one by one, as a server across machines has
/// them: `None` for what is missing.
pub fn sum<'a>(d: usize, messages: impl Iterator<Item = Option<(f64, &'a [f64])>>) -> Vec<f64> {
    let mut blocks = Vec::new();
    for (i, message) in messages.enumerate() {
        if i % LANES == 0 {
            blocks.resize(blocks.len() + d, 0.0);
        }
        if let Some((weight, x)) = message {
            let start = blocks.len() - d;
            accumulate(&mut blocks[start..], weight, x);
        }
    }
    pairwise(&mut blocks, d);
    blocks.truncate(d);
    blocks
}

/// One run: a method on a field over a link, with one seed.
pub struct Run<'a> {
    field: &'a dyn Field,
    uplink: &'a Uplink,
    client: Box<dyn Client>,
    server: Box<dyn Server>,
    seed: u64,
    everyone: Vec<usize>,
    /// `theta_0`.
    start: Vec<f64>,
    state: State,
    scratch: Scratch,
}

/// Everything that lives from round to round.
#[derive(Debug, Clone)]
struct State {
    round: u64,
    memory: Vec<Chunk>,
    chains: Vec<u64>,
    ledger: Ledger,
    output: Output,
    status: Status,
}

/// Buffers that rounds reuse.
struct Scratch {
    worker: Worker,
    blocks: Vec<f64>,
}

/// What one thread needs to process blocks.
struct Worker {
    lanes: Lanes,
    outbox: Outbox,
    bytes: Vec<u8>,
}

impl Worker {
    fn new(field: &dyn Field) -> Self {
        Self { lanes: Lanes::new(field.dim(), field.chain_len()), outbox: Outbox::new(field.dim()), bytes: Vec::new() }
    }
}

/// What a leaf of the parallel recursion counted.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    part: Option<Part>,
    bytes: u64,
    samples: u64,
}

impl Counted {
    fn and(self, other: Self) -> Self {
        Self { part: self.part.or(other.part), bytes: self.bytes + other.bytes, samples: self.samples + other.samples }
    }
}

/// Serialised form of [`State`] and the server's state.
#[derive(Serialize, Deserialize)]
struct Saved {
    round: u64,
    memory: Vec<f64>,
    chains: Vec<u64>,
    ledger: Ledger,
    output: Output,
    status: Status,
    server: Vec<Vec<f64>>,
}

impl<'a> Run<'a> {
    /// A run at round 0. `start` is `theta_0`, d components; settings are checked.
    pub fn new(field: &'a dyn Field, settings: &dyn Settings, uplink: &'a Uplink, output: OutputRule, seed: u64, start: Vec<f64>) -> Self {
        let agents = field.agents();
        let Method { client, server } = settings.build(&Setting { seed, agents, start: start.clone() });
        let chain_len = field.chain_len();
        let mut chains = vec![0; agents * chain_len];
        if chain_len > 0 {
            let key = Key::new(seed, Purpose::Chain, 0);
            chains.chunks_mut(chain_len).enumerate().for_each(|(c, chain)| field.start_chain(c, &mut key.stream(c), chain));
        }
        let state = State {
            round: 0,
            memory: vec![Chunk::default(); agents * stride(&*client, field.dim())],
            chains,
            ledger: Ledger::default(),
            output: Output::new(output, &start),
            status: Status::Ok,
        };
        let scratch = Scratch { worker: Worker::new(field), blocks: Vec::new() };
        Self { field, uplink, client, server, seed, everyone: (0..agents).collect(), start, state, scratch }
    }

    /// The number of rounds done.
    pub fn round(&self) -> u64 {
        self.state.round
    }

    /// The server's iterate `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.server.theta()
    }

    /// The method's output: the last iterate, or an average of iterates.
    pub fn output(&self) -> &[f64] {
        self.state.output.value(self.server.theta())
    }

    /// What was exchanged since the start.
    pub fn ledger(&self) -> Ledger {
        self.state.ledger
    }

    /// How the run stands.
    pub fn status(&self) -> Status {
        self.state.status
    }

    /// The agents' control variates as the next round will use them, if the method has any.
    pub fn controls(&self) -> Option<Vec<Vec<f64>>> {
        let (d, stride) = (self.field.dim(), stride(&*self.client, self.field.dim()));
        if stride == 0 {
            return None;
        }
        let control = |memory| self.client.control(&Memory::new(memory, d), self.server.theta(), self.state.round);
        self.state.memory.chunks(stride).map(control).collect()
    }

    /// Gives the control variates values of one's own before the first round.
    pub fn set_controls(&mut self, controls: &[Vec<f64>]) {
        let stride = stride(&*self.client, self.field.dim());
        for (memory, xi) in self.state.memory.chunks_mut(stride.max(1)).zip(controls) {
            crate::kernel::flat_mut(memory)[..xi.len()].copy_from_slice(xi);
        }
    }

    /// Runs one round; does nothing once the run has diverged.
    pub fn step(&mut self) {
        if self.state.status != Status::Ok {
            return;
        }
        let t = self.state.round;
        let mut ask = self.server.open(t);
        let tell = loop {
            let got = self.exchange(&ask);
            let answered = Received {
                round: t,
                exchange: ask.down.exchange,
                part: got.0,
                sum: &self.scratch.blocks[..self.field.dim()],
                asked: got.1,
            };
            match self.server.receive(&answered) {
                Next::Ask(next) => ask = next,
                Next::Done { tell } => break tell,
            }
        };
        if let Some(tell) = tell {
            self.tell(&tell);
        }
        self.state.round = t + 1;
        self.state.output.see(self.server.theta(), t + 1);
        let scale = self.field.root().map_or(0.0, linalg::norm_sq).max(linalg::norm_sq(&self.start)).sqrt();
        let norm = linalg::norm_sq(self.server.theta()).sqrt();
        if !norm.is_finite() || norm > DIVERGED * (1.0 + scale) {
            self.state.status = Status::Diverged { round: t + 1 };
        }
    }

    /// One exchange: the message down, every participant's answer up. The weighted
    /// sum of the answers is left in the first d of `scratch.blocks`.
    fn exchange(&mut self, ask: &Ask) -> (Part, f64) {
        let d = self.field.dim();
        let participants = ask.to.as_deref().unwrap_or(&self.everyone);
        let job = Job {
            field: self.field,
            client: &*self.client,
            uplink: self.uplink,
            seed: self.seed,
            down: &ask.down,
            participants,
            stride: stride(&*self.client, d),
            grain: grain(chunks(d), self.client.local_steps(ask.down.round)),
        };
        let State { memory, chains, ledger, .. } = &mut self.state;
        self.scratch.blocks.clear();
        self.scratch.blocks.resize(participants.len().div_ceil(LANES) * d, 0.0);
        let agents = Agents { first: 0, memory, chains };
        let counted = job.sweep(0..participants.len(), agents, &mut self.scratch.blocks, Some(&mut self.scratch.worker));
        pairwise(&mut self.scratch.blocks, d);
        ledger.down(participants.len(), ask.down.encoded_len(&*self.uplink.downlink));
        ledger.up(participants.len(), counted.bytes, counted.samples);
        let asked = ask.to.as_ref().map_or(1.0, |to| to.iter().map(|c| self.field.weights()[*c]).sum());
        (counted.part.expect("every participant answers"), asked)
    }

    /// Tells the participants something that they do not answer.
    fn tell(&mut self, tell: &Ask) {
        let d = self.field.dim();
        let participants = tell.to.as_deref().unwrap_or(&self.everyone);
        let stride = stride(&*self.client, d);
        let lanes = &mut self.scratch.worker.lanes;
        for agents in participants.chunks(LANES) {
            let first = agents[0];
            let memory = &mut self.state.memory[first * stride..];
            self.client.told(&mut Batch::new(self.field, self.seed, lanes, agents, first, memory, stride), &tell.down);
        }
        self.state.ledger.down(participants.len(), tell.down.encoded_len(&*self.uplink.downlink));
        self.state.ledger.exchanges += 1;
    }

    /// All state, as bytes.
    pub fn save(&self) -> Vec<u8> {
        let State { round, memory, chains, ledger, output, status } = self.state.clone();
        let memory = crate::kernel::flat(&memory).to_vec();
        let saved = Saved { round, memory, chains, ledger, output, status, server: self.server.state() };
        postcard::to_stdvec(&saved).expect("plain data serialises")
    }

    /// Puts back what [`Run::save`] gave, for the same settings.
    ///
    /// # Errors
    /// When the bytes are not a saved run of this shape.
    pub fn restore(&mut self, bytes: &[u8]) -> crate::error::Result<()> {
        let bad = || crate::error::BadInput::new("checkpoint", "not a saved run of these settings", "a checkpoint that this program wrote");
        let saved: Saved = postcard::from_bytes(bytes).map_err(|_| bad())?;
        let shapes = saved.memory.len() == 8 * self.state.memory.len()
            && saved.chains.len() == self.state.chains.len()
            && saved.server.iter().map(Vec::len).eq(self.server.state().iter().map(Vec::len));
        if !shapes {
            return Err(bad());
        }
        crate::kernel::flat_mut(&mut self.state.memory).copy_from_slice(&saved.memory);
        let State { round, chains, ledger, output, status, .. } = &mut self.state;
        (*round, *chains, *ledger, *output, *status) = (saved.round, saved.chains, saved.ledger, saved.output, saved.status);
        self.server.restore(saved.server);
        Ok(())
    }
}

/// Participants per parallel task: enough work, some 50 microseconds, to pay for
/// handing it over, in whole blocks.
fn grain(width: usize, local_steps: usize) -> usize {
    let ns_per_agent = 50 + 4 * width * local_steps;
    (50_000 / ns_per_agent / LANES).max(1) * LANES
}

/// The agents that a task works on: `first` and those after it.
struct Agents<'a> {
    first: usize,
    memory: &'a mut [Chunk],
    chains: &'a mut [u64],
}

impl<'a> Agents<'a> {
    /// Splits before agent `at`.
    fn split(self, at: usize, stride: usize, chain_len: usize) -> (Self, Self) {
        let n = at - self.first;
        let (m0, m1) = self.memory.split_at_mut(n * stride);
        let (c0, c1) = self.chains.split_at_mut(n * chain_len);
        (Self { first: self.first, memory: m0, chains: c0 }, Self { first: at, memory: m1, chains: c1 })
    }
}

/// One exchange, seen by the threads that work on it.
struct Job<'a> {
    field: &'a dyn Field,
    client: &'a dyn Client,
    uplink: &'a Uplink,
    seed: u64,
    down: &'a Message,
    participants: &'a [usize],
    stride: usize,
    grain: usize,
}

impl Job<'_> {
    /// Processes the participants in `range`, halving it down to the grain.
    fn sweep(&self, range: std::ops::Range<usize>, agents: Agents<'_>, blocks: &mut [f64], worker: Option<&mut Worker>) -> Counted {
        let d = self.field.dim();
        if range.len() > self.grain {
            // The whole number of blocks nearest to half; more than a block is left to halve.
            let middle = range.start + (range.len() / 2 + LANES / 2) / LANES * LANES;
            let (left, right) = agents.split(self.participants[middle], self.stride, self.field.chain_len());
            let (low, high) = blocks.split_at_mut((middle - range.start) / LANES * d);
            let (a, b) =
                rayon::join(|| self.sweep(range.start..middle, left, low, None), || self.sweep(middle..range.end, right, high, None));
            return a.and(b);
        }
        match worker {
            Some(worker) => self.blocks(range, agents, blocks, worker),
            None => self.blocks(range, agents, blocks, &mut Worker::new(self.field)),
        }
    }

    /// Processes blocks of eight one after the other.
    fn blocks(&self, range: std::ops::Range<usize>, agents: Agents<'_>, blocks: &mut [f64], worker: &mut Worker) -> Counted {
        let d = self.field.dim();
        let chain_len = self.field.chain_len();
        let weights = self.field.weights();
        let codec = &*self.uplink.codec;
        let exact = codec.is_exact().then(|| codec.encoded_len(d, None).expect("there is no budget"));
        let mut counted = Counted::default();
        for (block, sum) in self.participants[range].chunks(LANES).zip(blocks.chunks_mut(d)) {
            let Worker { lanes, outbox, bytes } = worker;
            if chain_len > 0 {
                for (c, lane) in block.iter().zip(lanes.chains.chunks_exact_mut(chain_len)) {
                    lane.copy_from_slice(&agents.chains[(c - agents.first) * chain_len..][..chain_len]);
                }
            }
            outbox.clear();
            let mut batch = Batch::new(self.field, self.seed, lanes, block, agents.first, agents.memory, self.stride);
            self.client.answer(&mut batch, self.down, outbox);
            counted.samples += batch.samples();
            if chain_len > 0 {
                for (c, lane) in block.iter().zip(lanes.chains.chunks_exact(chain_len)) {
                    agents.chains[(c - agents.first) * chain_len..][..chain_len].copy_from_slice(lane);
                }
            }
            for (l, c) in block.iter().enumerate() {
                let Some((part, x)) = outbox.sent(l) else { continue };
                counted.part = Some(part);
                let weight = weights[*c];
                if let Some(len) = exact {
                    counted.bytes += (HEADER_BYTES + PART_HEADER_BYTES + len) as u64;
                    accumulate(sum, weight, x);
                } else {
                    bytes.clear();
                    let mut dither = crate::node::dither(self.seed, self.down, *c);
                    codec.encode(x, None, &mut dither, bytes);
                    counted.bytes += (HEADER_BYTES + PART_HEADER_BYTES + bytes.len()) as u64;
                    let mut decoded = vec![0.0; d];
                    let mut dither = crate::node::dither(self.seed, self.down, *c);
                    codec.decode(bytes, &mut dither, &mut decoded).expect("what was just encoded");
                    accumulate(sum, weight, &decoded);
                }
            }
        }
        counted
    }
}
