//! One exchange over all participants: batches of agents, in parallel.

use super::history::History;
use std::sync::Arc;

use crate::cancel::Cancel;
use crate::coordinator::Reply;
use crate::error::{Failure, Result};
use crate::kernel::{Chunk, LANES, Lanes, rows};
use crate::local::{Agent, AgentBatch, Client, Last, Other, Outbox};
use crate::message::{HEADER_BYTES, Message, PART_HEADER_BYTES};
use crate::problem::Field;
use crate::random::{Key, Purpose};
use crate::record::{Sent, Work};
use crate::secure::SumGrid;
use crate::server::PerRecipient;
use crate::sums::accumulate;
use crate::uplink::stage::delay::Before;
use crate::uplink::{AgentEnd, Answer, MessageKey, Uplink};

/// The state of a task's agents, from `first` on.
pub(super) struct Agents<'a> {
    pub first: usize,
    /// The memory of client rules.
    pub memory: &'a mut [Chunk],
    /// Sampling processes.
    pub chains: &'a mut [u64],
    /// Stored errors of codecs (error feedback).
    pub feedback: &'a mut [f64],
    /// Agents that compute alone (otherwise empty).
    pub alone: &'a mut [Box<dyn Agent>],
}

/// Numbers per agent in each of the arrays of [`Agents`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Strides {
    pub memory: usize,
    pub chains: usize,
    pub feedback: usize,
    pub alone: usize,
}

impl<'a> Agents<'a> {
    /// Splits before agent `at`.
    pub(super) fn split(self, at: usize, s: Strides) -> (Self, Self) {
        let n = at - self.first;
        let (m0, m1) = self.memory.split_at_mut(n * s.memory);
        let (c0, c1) = self.chains.split_at_mut(n * s.chains);
        let (f0, f1) = self.feedback.split_at_mut(n * s.feedback);
        let (a0, a1) = self.alone.split_at_mut(n * s.alone);
        let left = Self { first: self.first, memory: m0, chains: c0, feedback: f0, alone: a0 };
        (left, Self { first: at, memory: m1, chains: c1, feedback: f1, alone: a1 })
    }
}

/// Where a task puts answers: into sums of blocks, or as single answers. The other fields are empty.
pub(super) struct Rows<'a> {
    /// The weighted sums of the answers that arrive from eight participants, d numbers each.
    pub blocks: &'a mut [f64],
    /// Whether each participant's answer arrives, if blocks are summed over a link that is not clear.
    pub arrived: &'a mut [bool],
    /// Each participant's answer and its number of bytes on the wire, or the reason why it has none.
    pub answers: &'a mut [Option<Result<(Reply, usize)>>],
}

impl<'a> Rows<'a> {
    /// Splits before the participant `n`, a multiple of eight if blocks are summed.
    pub(super) fn split(self, n: usize, d: usize) -> (Self, Self) {
        let (b0, b1) = if self.blocks.is_empty() { (&mut [][..], &mut [][..]) } else { self.blocks.split_at_mut(n / LANES * d) };
        let (h0, h1) = if self.arrived.is_empty() { (&mut [][..], &mut [][..]) } else { self.arrived.split_at_mut(n) };
        let (a0, a1) = if self.answers.is_empty() { (&mut [][..], &mut [][..]) } else { self.answers.split_at_mut(n) };
        (Self { blocks: b0, arrived: h0, answers: a0 }, Self { blocks: b1, arrived: h1, answers: a1 })
    }
}

/// One thread's buffers for blocks.
pub(super) struct Worker {
    /// The blocks of a batch, eight agents each.
    pub blocks: Vec<Lanes>,
    pub outbox: Outbox,
    /// For one agent at a stale model.
    single: Lanes,
    one: Outbox,
    /// One agent's memory between the exchanges of a past round.
    past_memory: Vec<Chunk>,
    /// Buffers of codecs.
    bytes: Vec<u8>,
    decoded: Vec<f64>,
    /// The numbers of bytes of a block's answers on the wire.
    lens: Vec<usize>,
}

impl Worker {
    /// For agents of a field; agents that compute `alone` need no vectors side by side.
    pub(super) fn new(field: &dyn Field, alone: bool) -> Self {
        let (d, chain_len) = (if alone { 0 } else { field.dim() }, field.chain_len());
        Self {
            blocks: vec![Lanes::new(d, chain_len)],
            outbox: Outbox::new(d),
            single: Lanes::new(d, chain_len),
            one: Outbox::new(d),
            past_memory: Vec::new(),
            bytes: Vec::new(),
            decoded: vec![0.0; d],
            lens: Vec::new(),
        }
    }
}

/// The messages and the work of a task's agents.
pub(super) type Counted = (Sent, Work);

/// How the participants of an exchange are divided among threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Participants per undivided task.
    pub grain: usize,
    /// Agents per batch: eight, fewer if threads would idle, more if steps are few.
    pub lanes: usize,
}

impl Shares {
    /// All of `n` participants in one batch.
    pub fn of_one_call(n: usize) -> Self {
        Self { grain: n.max(1), lanes: n.next_multiple_of(LANES).max(LANES) }
    }

    /// `n` participants that compute alone, in small tasks because agents' work differs and no thread should wait long.
    pub fn of_alone(n: usize, threads: usize) -> Self {
        const TASKS: usize = 16;
        Self { grain: n.div_ceil(TASKS * threads).max(1), lanes: 1 }
    }

    /// `n` participants that take `ns` nanoseconds each. Batches have `usual` agents, or fewer to use all threads, but at least `fewest`.
    ///
    /// Waking another thread takes some microseconds, so tasks should take about 50. Small rounds stay on one thread, and blocks of eight
    /// are divided only to balance long work.
    pub fn new(n: usize, ns: f64, fewest: usize, usual: usize, threads: impl FnOnce() -> usize) -> Self {
        const TASK_NS: f64 = 50_000.0;
        let whole = Self { grain: n.max(1), lanes: usual };
        // Small rounds do not count threads, because counting starts them.
        if n as f64 * ns < 2.0 * TASK_NS {
            return whole;
        }
        let threads = threads();
        if threads == 1 {
            return whole;
        }
        // The work of the busiest thread, in agents.
        let longest = |lanes: usize| n.div_ceil(lanes).div_ceil(threads) * lanes;
        let mut lanes = whole.lanes;
        let mut tried = LANES / 2;
        while tried >= fewest && tried as f64 * ns >= TASK_NS {
            if 10 * longest(tried) <= 9 * longest(lanes) {
                lanes = tried;
            }
            tried /= 2;
        }
        let grain = (2.0 * TASK_NS / ns) as usize;
        Self { grain: (grain / lanes).max(1) * lanes, lanes }
    }
}

/// One exchange, as shared by its threads.
pub(super) struct Job<'a> {
    pub field: &'a Arc<dyn Field>,
    /// The agents' weights `p_c`.
    pub weights: &'a [f64],
    pub client: &'a dyn Client,
    pub uplink: &'a Uplink,
    pub history: &'a History,
    pub seed: u64,
    pub down: &'a Message,
    /// A part with a content of its own for some participants, in their order.
    pub own: Option<&'a PerRecipient>,
    pub participants: &'a [usize],
    /// The grid of secure sums, if the link has them.
    pub grid: Option<SumGrid>,
    /// The factors by which participants' answers arrive, if they are summed over a link that is not clear.
    pub gains: Option<&'a [f64]>,
    /// Whether this is the round's last exchange, in which local steps are made.
    pub is_last: bool,
    pub strides: Strides,
    pub shares: Shares,
    /// Set when the round is to be abandoned.
    pub cancel: &'a Cancel,
    /// Why a rule has failed, if one has.
    pub failure: &'a Failure,
}

impl Job<'_> {
    /// Processes the participants in `range`, halving it down to the grain.
    pub(super) fn sweep(&self, range: std::ops::Range<usize>, agents: Agents<'_>, rows: Rows<'_>, worker: Option<&mut Worker>) -> Counted {
        if range.len() > self.shares.grain {
            let middle = range.start + (range.len() / 2).next_multiple_of(self.shares.lanes);
            let (left, right) = agents.split(self.participants[middle], self.strides);
            let (low, high) = rows.split(middle - range.start, self.field.dim());
            let (a, b) =
                rayon::join(|| self.sweep(range.start..middle, left, low, None), || self.sweep(middle..range.end, right, high, None));
            return (a.0.and(b.0), a.1.and(b.1));
        }
        match worker {
            Some(worker) => self.blocks(range, agents, rows, worker),
            None => self.blocks(range, agents, rows, &mut Worker::new(&**self.field, self.strides.alone > 0)),
        }
    }

    /// Whether the round is to be abandoned.
    pub(super) fn is_stopped(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Processes blocks one after the other.
    pub(super) fn blocks(&self, range: std::ops::Range<usize>, agents: Agents<'_>, to: Rows<'_>, worker: &mut Worker) -> Counted {
        let d = self.field.dim();
        let side_by_side = self.shares.lanes;
        let Agents { first, memory, chains, feedback, alone } = agents;
        let (mut counted, mut computed) = Counted::default();
        let start = range.start;
        for (i, block) in self.participants[range].chunks(side_by_side).enumerate() {
            if self.is_stopped() {
                break;
            }
            let Worker { blocks, outbox, single, one, past_memory, bytes, decoded, lens } = &mut *worker;
            let blocks = lanes_for(blocks, block.len());
            self.each_chain(block, first, chains, blocks, |kept, lane| lane.copy_from_slice(kept));
            outbox.clear(block.len());
            let answers = self.answered_rounds(block);
            let mut batch = self.batch(blocks, block, start + side_by_side * i, first, (&mut *memory, &mut *alone));
            match &answers {
                Some(answers) => {
                    self.go_on(&mut batch, answers, outbox);
                    self.answer_stale(block, answers, single, one, past_memory, outbox);
                }
                None => self.attempt(|| self.client.answer(&mut batch, self.down, outbox)),
            }
            let row = side_by_side * i;
            let sums = to.blocks.get_mut(row / LANES * d..).unwrap_or_default();
            if self.gains.is_none() && to.answers.is_empty() {
                for ((at, eight), sum) in block.chunks(LANES).enumerate().zip(sums.chunks_mut(d)) {
                    self.sum(eight, LANES * at, outbox, sum, &mut counted);
                }
            } else {
                lens.clear();
                for (l, c) in block.iter().enumerate() {
                    let width = self.strides.feedback;
                    let feedback = &mut feedback[(c - first) * width..][..width];
                    lens.push(self.send(l, *c, feedback, outbox, (bytes, decoded)));
                }
                if self.uplink.alters() && !self.failure.is_set() {
                    self.attempt(|| self.client.sent(&mut batch, self.down, outbox));
                }
                if let Some(gains) = self.gains {
                    let arrived = &mut to.arrived[row..row + block.len()];
                    self.add(block, &gains[start + row..], lens, outbox, (sums, arrived), &mut counted);
                } else {
                    for (l, to) in to.answers[row..row + block.len()].iter_mut().enumerate() {
                        let round = answers.as_ref().map_or(self.down.round, |answers| answers[l]);
                        *to = outbox.take(l).map(|parts| parts.map(|parts| (Reply { round, parts }, lens[l])));
                    }
                }
            }
            computed = computed.and(Work { samples: batch.samples(), calls: batch.calls() });
            self.each_chain(block, first, chains, blocks, |kept, lane| kept.copy_from_slice(lane));
        }
        (counted, computed)
    }

    /// Adds a block's answers that arrive to the sums of each eight agents, and counts messages.
    fn add(
        &self,
        block: &[usize],
        gains: &[f64],
        lens: &[usize],
        outbox: &Outbox,
        (sums, arrived): (&mut [f64], &mut [bool]),
        counted: &mut Sent,
    ) {
        let d = self.field.dim();
        for (l, c) in block.iter().enumerate().filter(|(l, _)| lens[*l] > 0) {
            *counted = counted.and(Sent { messages: 1, vectors: 1, bytes: lens[l] as u64, ..Sent::default() });
            arrived[l] = gains[l] != 0.0;
            if let Some((_, x)) = outbox.sent(l).filter(|_| arrived[l]) {
                let sum = &mut sums[l / LANES * d..][..d];
                match self.grid {
                    Some(grid) => grid.add_share(self.weights[*c], x, &mut self.key(*c).stream(Purpose::PrivacyNoise), sum),
                    None => accumulate(sum, self.weights[*c] * gains[l], x),
                }
            }
        }
    }

    /// The key of an agent's message in this exchange.
    fn key(&self, agent: usize) -> MessageKey {
        MessageKey { seed: self.seed, round: self.down.round, exchange: self.down.exchange, agent }
    }

    /// Sends the answer of agent `c` in lane `l` over the link; the outbox then has the answer as the server will decode it. Returns the
    /// number of bytes on the wire, 0 without a message. `feedback` is the codec's stored error; `bytes` and `decoded` are buffers.
    #[inline(always)]
    fn send(&self, l: usize, c: usize, feedback: &mut [f64], outbox: &mut Outbox, (bytes, decoded): (&mut Vec<u8>, &mut [f64])) -> usize {
        let at = self.key(c);
        let grid = self.grid.map(|grid| (grid, self.weights[c]));
        let mut end = AgentEnd { uplink: self.uplink, at, feedback, grid };
        if let Some((part, x)) = outbox.sent(l) {
            let len = end.send_vector(x, bytes, decoded);
            if self.uplink.alters() {
                outbox.send(l, part).copy_from_slice(decoded);
            }
            if len.is_none() {
                outbox.set(l, Other::NotCarried);
            }
            return len.unwrap_or(0) as usize;
        }
        let (other, len) = match outbox.take_other(l) {
            Some(Other::Parts(parts)) => match end.send(parts, None) {
                Answer::Sent { parts, len, .. } => (Other::Parts(parts), len),
                Answer::NotCarried => (Other::NotCarried, 0),
                Answer::Diverged { len, .. } => (Other::Diverged, len),
            },
            Some(other) => (other, 0),
            None => return 0,
        };
        outbox.set(l, other);
        len
    }

    /// Calls a rule, and keeps the reason if it fails.
    fn attempt(&self, call: impl FnOnce() -> Result<()>) {
        if let Err(reason) = call() {
            self.failure.set(reason);
        }
    }

    /// A block of participants from `place` on; `memory` and `alone` start at agent `first`.
    #[inline]
    fn batch<'b>(
        &'b self,
        lanes: &'b mut [Lanes],
        block: &[usize],
        place: usize,
        first: usize,
        (memory, alone): (&'b mut [Chunk], &'b mut [Box<dyn Agent>]),
    ) -> AgentBatch<'b> {
        let batch = AgentBatch::new(self.field, self.seed, lanes, block, first, memory, self.strides.memory);
        let mut batch = batch.stopped_by(Some(self.cancel)).with_agents(alone);
        if let Some(own) = self.own {
            tell_own(&mut batch, own, place.., self.down.round);
        }
        if self.strides.alone > 0 && self.uplink.budget().is_some() {
            for (l, c) in block.iter().enumerate() {
                batch.set_bits(l, self.uplink.allowance(self.key(*c), self.field.dim()));
            }
        }
        batch
    }

    /// Calls `copy` with each agent's stored sampling process and with its lane's sampling process.
    #[inline(always)]
    fn each_chain(&self, batch: &[usize], first: usize, kept: &mut [u64], blocks: &mut [Lanes], copy: impl Fn(&mut [u64], &mut [u64])) {
        let len = self.strides.chains;
        for (agents, lanes) in batch.chunks(LANES).zip(blocks).filter(|_| len > 0) {
            for (c, lane) in agents.iter().zip(lanes.chains.chunks_exact_mut(len)) {
                copy(&mut kept[(c - first) * len..][..len], lane);
            }
        }
    }

    /// Makes agents that answered an earlier round also answer this one: sampling processes advance along this round's iterates, on which
    /// their law may depend. Without such processes the answers are only counted. Answers of agents in time stay in `outbox`.
    fn go_on(&self, batch: &mut AgentBatch<'_>, answers: &[u64], outbox: &mut Outbox) {
        if self.strides.chains > 0 {
            self.attempt(|| self.client.answer(batch, self.down, outbox));
            outbox.retain(|l| answers.get(l) == Some(&self.down.round));
        } else if self.is_last {
            batch.count(self.client.local_steps(self.down.round));
        } else {
            match self.client.facts().operator_samples {
                0 => batch.count_observation(),
                samples => batch.count(samples),
            }
        }
    }

    /// Adds a block's answers to its sum, over a clear link; its first agent is at `place` of the batch.
    #[inline(always)]
    fn sum(&self, block: &[usize], place: usize, outbox: &Outbox, sum: &mut [f64], counted: &mut Sent) {
        let weights = self.weights;
        let bytes = (HEADER_BYTES + PART_HEADER_BYTES + 8 * sum.len()) as u64;
        let mut count = |messages: u64| {
            counted.messages += messages;
            counted.vectors += messages;
            counted.bytes += messages * bytes;
        };
        if let Some(sent) = outbox.all_sent(place..place + block.len()) {
            let (low, high) = (block[0], block[block.len() - 1]);
            if high - low + 1 == block.len() {
                rows::weighted_sum(&weights[low..=high], sent, sum);
            } else {
                let weights: [f64; LANES] = std::array::from_fn(|l| weights[block[l.min(block.len() - 1)]]);
                rows::weighted_sum(&weights[..block.len()], sent, sum);
            }
            count(block.len() as u64);
            return;
        }
        for (l, c) in block.iter().enumerate() {
            let Some((_, x)) = outbox.sent(place + l) else { continue };
            count(1);
            accumulate(sum, weights[*c], x);
        }
    }

    /// The rounds that the agents of a batch answer; `None` if all answer this one.
    fn answered_rounds(&self, batch: &[usize]) -> Option<Vec<u64>> {
        let pull = self.uplink.pull()?;
        let t = self.down.round;
        let key = Key::new(self.seed, Purpose::Delay, t);
        let answered = |c: &usize| match t.checked_sub(pull.delay.of(t, *c, &mut key.stream(*c))) {
            Some(round) => round,
            None if pull.before == Before::First => 0,
            None => History::NOTHING,
        };
        let rounds: Vec<u64> = batch.iter().map(answered).collect();
        rounds.iter().any(|round| *round != t).then_some(rounds)
    }

    /// Computes answers of past rounds for those agents of a batch that have none yet, one agent at a time. Each exchange up to this one is
    /// repeated with the messages and the sampling process of the past round.
    fn answer_stale(
        &self,
        block: &[usize],
        answers: &[u64],
        single: &mut Lanes,
        one: &mut Outbox,
        memory: &mut Vec<Chunk>,
        outbox: &mut Outbox,
    ) {
        let stride = self.strides.memory;
        memory.resize(stride, Chunk::default());
        for (l, (c, round)) in block.iter().zip(answers).enumerate() {
            if *round == History::NOTHING || outbox.sent(l).is_some() || self.is_stopped() || self.failure.is_set() {
                continue;
            }
            let past = self.history.at(*round);
            let chain_len = self.strides.chains;
            single.chains[..chain_len].copy_from_slice(&past.chains[c * chain_len..(c + 1) * chain_len]);
            let agent = [*c];
            for down in &past.down[..=usize::from(self.down.exchange)] {
                one.clear(1);
                let mut batch = AgentBatch::new(self.field, self.seed, std::slice::from_mut(single), &agent, *c, memory, stride);
                self.attempt(|| self.client.answer(&mut batch, down, one));
            }
            if let Some((what, x)) = one.sent(0) {
                outbox.send(l, what).copy_from_slice(x);
            }
        }
    }
}

/// Tells the agents of a batch, at these places among the recipients, their own parts before `round`: the last round whose mean includes
/// their answer.
pub(super) fn tell_own(batch: &mut AgentBatch<'_>, own: &PerRecipient, places: impl Iterator<Item = usize>, round: u64) {
    for (l, i) in batch.lanes().zip(places) {
        if own.each[i].is_some() {
            batch.set_last(l, Last { round: round.checked_sub(1), is_included: false });
            if let Some(own) = own.of(i).filter(|_| batch.computes_alone()) {
                batch.set_own(l, own);
            }
        }
    }
}

/// The blocks of a batch of n agents.
#[inline]
pub(super) fn lanes_for(blocks: &mut Vec<Lanes>, n: usize) -> &mut [Lanes] {
    let needed = n.div_ceil(LANES);
    while blocks.len() < needed {
        blocks.push(blocks[0].clone());
    }
    &mut blocks[..needed]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_work_is_shared_out() {
        let of = |n, ns, threads| Shares::new(n, ns, 1, LANES, || threads);
        // A hundred agents with one step stay together, as does all work on one thread.
        assert_eq!(of(100, 24.0, 2), Shares { grain: 100, lanes: LANES });
        assert_eq!(of(8, 1e9, 1), Shares { grain: 8, lanes: LANES });
        // Many blocks are not divided; few blocks are divided as far as that balances the work.
        assert_eq!(of(100_000, 60.0, 2).lanes, LANES);
        // Larger batches stay whole; tasks are multiples of them.
        let shares = Shares::new(100_000, 60.0, 4, 64, || 2);
        assert!(shares.lanes == 64 && shares.grain.is_multiple_of(64));
        assert_eq!(of(16, 1e6, 2), Shares { grain: LANES, lanes: LANES });
        assert_eq!(of(8, 1e6, 2), Shares { grain: 4, lanes: 4 });
        assert_eq!(of(8, 1e6, 8), Shares { grain: 1, lanes: 1 });
        assert_eq!(Shares::new(8, 1e6, 4, LANES, || 8), Shares { grain: 4, lanes: 4 });
        // Blocks are not divided into parts too small for a task.
        assert_eq!(of(8, 20_000.0, 2).lanes, 4);
        assert_eq!(of(8, 20_000.0, 8).lanes, 4);
    }
}
