//! Client rules that answer for many agents in one call, because a call costs more than an agent: those of another language.
//!
//! Whoever has such a rule implements [`BatchRule`]; [`BatchedClient`] makes a client half of it. In the engine an exchange then takes one
//! call for all participants, at a node one for its agent, with the same bits. The rule gets copies ([`AgentRows`]), and what it has
//! changed is taken over when it has answered: a call that fails leaves agents as they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::{AgentBatch, Client, Outbox};
use crate::cancel::Cancel;
use crate::error::{Error, Failure, Result};
use crate::kernel::{Chunk, LANES, Lanes, chunks, flat, flat_mut};
use crate::message::{Message, Part};
use crate::problem::Field;
use crate::random::{Key, Purpose, Stream};

/// A client rule that answers for some of the agents in one call, with one vector of d components each. What it answers for an agent must
/// not depend on who shares the call.
///
/// A round has one exchange, in which a model comes down ([`crate::protocol::Protocol::directions`]), or two, in the second of which the
/// server's reply to the first answers comes down ([`crate::protocol::Protocol::operators_then_directions`]).
pub trait BatchRule: Send + Sync + 'static {
    /// How many vectors of d components an agent keeps from round to round; zeros at the start.
    fn memory(&self) -> usize;
    /// The number of local steps that an answer in round t takes, by which the time of rounds is estimated.
    fn local_steps(&self, t: u64) -> usize;
    /// Whether a round has two exchanges.
    fn has_two_exchanges(&self) -> bool {
        false
    }
    /// Answers the model `theta` of the round, or in a second exchange [`AgentRows::reply`], for all agents of the call: n d numbers, row by
    /// row. Gives the rows back.
    ///
    /// # Errors
    /// Why that is not possible. The round then does not count.
    fn answers(&self, rows: AgentRows, theta: &[f64]) -> Result<(AgentRows, Vec<f64>)>;
    /// Whether [`BatchRule::sent`] is to be called.
    fn hears_sent(&self) -> bool {
        false
    }
    /// Is told what the server can decode of the answers, n d numbers, zeros where nothing was sent. The agents of the rows have their
    /// memory and make no steps. Is called only where a link alters messages. Gives the rows back.
    ///
    /// # Errors
    /// Why that is not possible. The round then does not count.
    fn sent(&self, rows: AgentRows, _sent: &[f64]) -> Result<AgentRows> {
        Ok(rows)
    }
}

/// The agents of a call of a [`BatchRule`]: n of them, a row each, with what they keep, their sampling processes and their random streams.
pub struct AgentRows {
    field: Arc<dyn Field>,
    seed: u64,
    round: u64,
    exchange: u8,
    /// What the server has sent in a second exchange, d numbers.
    reply: Vec<f64>,
    /// The places of their data, increasing.
    places: Vec<usize>,
    /// Their numbers in the federation.
    identities: Vec<usize>,
    /// What they keep: n d numbers for each vector.
    memory: Vec<Vec<f64>>,
    /// Eight agents each.
    blocks: Vec<Lanes>,
    stop: Option<Cancel>,
    /// The evaluations of each agent's operator so far.
    evaluations: usize,
    has_opened: bool,
}

/// The most local steps between two looks at the token.
const STEPS_BETWEEN_LOOKS: usize = 1024;

impl AgentRows {
    fn new(field: &Arc<dyn Field>, seed: u64, (round, exchange): (u64, u8), places: &[usize], vectors: usize) -> Self {
        let (n, d) = (places.len(), field.dim());
        let (places, identities) = (places.to_vec(), places.to_vec());
        Self {
            field: Arc::clone(field),
            seed,
            round,
            exchange,
            reply: Vec::new(),
            places,
            identities,
            memory: vec![vec![0.0; n * d]; vectors],
            blocks: Vec::new(),
            stop: None,
            evaluations: 0,
            has_opened: false,
        }
    }

    /// Gives the agents lanes, in which they make steps.
    fn with_lanes(mut self) -> Self {
        let (d, words) = (self.field.dim(), self.field.chain_len());
        let block = |(places, identities): (&[usize], &[usize])| {
            let mut lanes = Lanes::new(d, words);
            lanes.len = places.len();
            // Idle lanes get the last agent.
            let last = places.len() - 1;
            lanes.agents = std::array::from_fn(|l| places[l.min(last)]);
            lanes.identities = std::array::from_fn(|l| identities[l.min(last)]);
            lanes
        };
        self.blocks = self.places.chunks(LANES).zip(self.identities.chunks(LANES)).map(block).collect();
        self
    }

    /// The numbers of the agents in the federation, in the order of the rows.
    pub fn agents(&self) -> &[usize] {
        &self.identities
    }

    /// The number d of components.
    pub fn dim(&self) -> usize {
        self.field.dim()
    }

    /// The round.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The exchange of the round, from 0.
    pub fn exchange(&self) -> u8 {
        self.exchange
    }

    /// What the server has sent in a second exchange, d numbers; nothing in the first.
    pub fn reply(&self) -> &[f64] {
        &self.reply
    }

    /// Vector `j` that the agents keep, n d numbers.
    pub fn memory(&mut self, j: usize) -> &mut [f64] {
        &mut self.memory[j]
    }

    /// The agents' random streams for draws that are not samples of their operators: one for each, of the round.
    ///
    /// # Errors
    /// When the agents of this call have answered.
    pub fn streams(&self) -> Result<Vec<Stream>> {
        self.at_work()?;
        let key = Key::new(self.seed, Purpose::Rule, self.round);
        Ok(self.identities.iter().map(|c| key.stream(*c)).collect())
    }

    fn at_work(&self) -> Result<()> {
        if self.blocks.is_empty() {
            return Err(Error::new("agents", "a step or a draw of agents that have answered", "steps and draws while the rule answers"));
        }
        Ok(())
    }

    /// Makes local steps `theta_c += eta (g_c(theta_c, z) + drift_c)` with the step sizes `etas` in turn; `theta` and `drift` are n d
    /// numbers. Samples are the next ones of the round; a second exchange begins with those of the first again.
    ///
    /// # Errors
    /// When the operators fail, or the agents of this call make no steps.
    pub fn steps(&mut self, theta: &mut [f64], drift: Option<&[f64]>, etas: &[f64]) -> Result<()> {
        self.put(theta)?;
        let d = self.dim();
        match drift {
            Some(drift) => each(&mut self.blocks, |row, lanes, l| lanes.drift_mut(l)[..d].copy_from_slice(&drift[row * d..][..d])),
            None => {
                for lanes in &mut self.blocks {
                    lanes.drift.fill(Chunk::default());
                    lanes.is_still = true;
                }
            }
        }
        for etas in etas.chunks(STEPS_BETWEEN_LOOKS) {
            if self.stop.as_ref().is_some_and(Cancel::is_cancelled) {
                break;
            }
            match self.field.together() {
                Some(together) => together.legs(&mut self.blocks.iter_mut().collect::<Vec<_>>(), etas),
                None => self.blocks.iter_mut().for_each(|lanes| self.field.leg(lanes, etas)),
            }
        }
        self.evaluations += etas.len();
        each(&mut self.blocks, |row, lanes, l| theta[row * d..][..d].copy_from_slice(&lanes.theta(l)[..d]));
        self.field.failure().map_or(Ok(()), Err)
    }

    /// Evaluates `g_c(theta_c, z)`, z the next sample of the round, at n d numbers `theta`, which it replaces.
    ///
    /// # Errors
    /// As [`AgentRows::steps`].
    pub fn sample(&mut self, theta: &mut [f64]) -> Result<()> {
        self.put(theta)?;
        let d = self.dim();
        match self.field.together() {
            Some(together) => together.observations(&mut self.blocks.iter_mut().collect::<Vec<_>>(), true),
            None => self.blocks.iter_mut().for_each(|lanes| self.field.observe(lanes, true)),
        }
        self.evaluations += 1;
        each(&mut self.blocks, |row, lanes, l| {
            theta[row * d..][..d].copy_from_slice(&flat(&lanes.observed[l * lanes.width..][..lanes.width])[..d]);
        });
        self.field.failure().map_or(Ok(()), Err)
    }

    /// Puts iterates into the lanes; the first time it opens the streams of the round.
    fn put(&mut self, theta: &[f64]) -> Result<()> {
        self.at_work()?;
        if !std::mem::replace(&mut self.has_opened, true) {
            let key = Key::new(self.seed, Purpose::Sample, self.round);
            for lanes in &mut self.blocks {
                crate::kernel::rows::open(&mut lanes.streams, &key, &lanes.identities);
            }
        }
        let d = self.dim();
        each(&mut self.blocks, |row, lanes, l| lanes.theta_mut(l)[..d].copy_from_slice(&theta[row * d..][..d]));
        Ok(())
    }

    fn lane_of(&mut self, row: usize) -> (&mut Lanes, usize) {
        (&mut self.blocks[row / LANES], row % LANES)
    }

    /// Reads a row's vectors, as agents keep them.
    fn read_memory(&mut self, row: usize, kept: &[Chunk]) {
        let d = self.dim();
        for (vector, kept) in self.memory.iter_mut().zip(kept.chunks_exact(chunks(d))) {
            vector[row * d..][..d].copy_from_slice(&flat(kept)[..d]);
        }
    }

    /// Writes a row's vectors back.
    fn write_memory(&self, row: usize, kept: &mut [Chunk]) {
        let d = self.dim();
        for (vector, kept) in self.memory.iter().zip(kept.chunks_exact_mut(chunks(d))) {
            flat_mut(kept)[..d].copy_from_slice(&vector[row * d..][..d]);
        }
    }
}

/// Calls `visit` with each lane of blocks: its row, the block, the lane.
fn each(blocks: &mut [Lanes], mut visit: impl FnMut(usize, &mut Lanes, usize)) {
    let mut row = 0;
    for lanes in blocks {
        for l in 0..lanes.len {
            visit(row, lanes, l);
            row += 1;
        }
    }
}

/// The client half of a [`BatchRule`].
pub struct BatchedClient {
    rule: Box<dyn BatchRule>,
    field: Option<Arc<dyn Field>>,
    failure: Failure,
    /// The round of the last call.
    round: AtomicU64,
    /// Its exchange.
    exchange: AtomicU8,
}

/// What a rule has answered for the agents of a call.
pub(crate) struct Answered {
    rows: AgentRows,
    /// n d numbers.
    values: Vec<f64>,
    /// What they are.
    part: Part,
}

impl BatchedClient {
    /// A client half.
    pub fn new(rule: impl BatchRule) -> Self {
        let (round, exchange) = (AtomicU64::new(0), AtomicU8::new(0));
        Self { rule: Box::new(rule), field: None, failure: Failure::default(), round, exchange }
    }

    /// Calls the rule for the agents at these places of the data; nothing if it fails. `kept` has the sampling processes and the vectors
    /// of all agents, each so many words and chunks.
    pub(crate) fn answers(
        &self,
        seed: u64,
        places: &[usize],
        (chains, memory): (&[u64], &[Chunk]),
        stop: &Cancel,
        down: &Message,
    ) -> Option<Answered> {
        let field = self.field.as_ref()?;
        let (words, stride) = (field.chain_len(), super::stride(self, field.dim()));
        let mut rows = AgentRows::new(field, seed, (down.round, down.exchange), places, self.vectors()).with_lanes();
        rows.stop = Some(stop.clone());
        for (row, c) in places.iter().enumerate() {
            rows.read_memory(row, &memory[c * stride..][..stride]);
            let (lanes, l) = rows.lane_of(row);
            lanes.chains[l * words..][..words].copy_from_slice(&chains[c * words..][..words]);
        }
        self.called(rows, down)
    }

    /// How many vectors an agent keeps: those of the rule, and the model between two exchanges.
    fn vectors(&self) -> usize {
        self.rule.memory() + usize::from(self.rule.has_two_exchanges())
    }

    /// The last call.
    fn last(&self) -> (u64, u8) {
        (self.round.load(Ordering::Relaxed), self.exchange.load(Ordering::Relaxed))
    }

    fn called(&self, mut rows: AgentRows, down: &Message) -> Option<Answered> {
        self.round.store(down.round, Ordering::Relaxed);
        self.exchange.store(down.exchange, Ordering::Relaxed);
        let (d, has_two) = (rows.dim(), self.rule.has_two_exchanges());
        let part = if has_two && down.exchange == 0 { Part::Operator } else { Part::Direction };
        let theta = if down.exchange == 0 {
            let theta = down.part(Part::Model).to_vec();
            if let Some(base) = rows.memory.get_mut(self.rule.memory()) {
                base.chunks_mut(d).for_each(|base| base.copy_from_slice(&theta));
            }
            theta
        } else {
            rows.reply = down.part(Part::Operator).to_vec();
            // All agents of a round have got the same model.
            rows.memory[self.rule.memory()][..d].to_vec()
        };
        let answered = self.failure.unless_failed(|| self.rule.answers(rows, &theta));
        answered.map(|(rows, values)| Answered { rows, values, part })
    }

    /// Whether the rule is to be told what was sent.
    pub(crate) fn hears_sent(&self) -> bool {
        self.rule.hears_sent()
    }

    /// Tells the rule what was sent of the answers at these places, n d numbers; `memory` is that of all agents.
    pub(crate) fn tell_sent(&self, places: &[usize], memory: &mut [Chunk], sent: &[f64]) {
        let Some(field) = &self.field else { return };
        let stride = super::stride(self, field.dim());
        let mut rows = AgentRows::new(field, 0, self.last(), places, self.vectors());
        for (row, c) in places.iter().enumerate() {
            rows.read_memory(row, &memory[c * stride..][..stride]);
        }
        if let Some(rows) = self.failure.unless_failed(|| self.rule.sent(rows, sent)) {
            for (row, c) in places.iter().enumerate() {
                rows.write_memory(row, &mut memory[c * stride..][..stride]);
            }
        }
    }
}

impl Answered {
    /// The row of the agent at a place of the data, if the rule was called for it.
    pub(crate) fn row_of(&self, place: usize) -> Option<usize> {
        self.rows.places.binary_search(&place).ok()
    }

    /// Hands the answers of a batch over, and what its agents have become; false if the rule was not called for them.
    pub(crate) fn hand_over(&self, batch: &mut AgentBatch<'_>, out: &mut Outbox) -> bool {
        let (d, words, stride) = (batch.d, batch.lanes.chain_len, batch.stride);
        for l in batch.lanes() {
            let Some(row) = self.row_of(batch.lanes.agents[l]) else { return false };
            self.rows.write_memory(row, &mut batch.memory[batch.at[l] * stride..][..stride]);
            out.send(l, self.part).copy_from_slice(&self.values[row * d..][..d]);
            if self.part == Part::Direction {
                let (lanes, at) = (&self.rows.blocks[row / LANES], row % LANES);
                batch.lanes.chains[l * words..][..words].copy_from_slice(&lanes.chains[at * words..][..words]);
            }
        }
        if self.part == Part::Direction {
            batch.count(self.rows.evaluations);
        } else {
            // The second exchange begins with the same samples, and counts them.
            (0..self.rows.evaluations).for_each(|_| batch.count_observation());
        }
        true
    }
}

impl Client for BatchedClient {
    fn memory(&self) -> usize {
        self.vectors()
    }

    fn local_steps(&self, t: u64) -> usize {
        self.rule.local_steps(t)
    }

    /// The answers of a batch by itself: of a node's agent, or of one at a stale model.
    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) {
        let Some(field) = &self.field else { return };
        let (len, words) = (batch.lanes.len, batch.lanes.chain_len);
        let mut rows = AgentRows::new(field, batch.seed, (down.round, down.exchange), &batch.lanes.agents[..len], self.vectors());
        rows.identities = batch.lanes.identities[..len].to_vec();
        rows = rows.with_lanes();
        rows.stop = batch.stop.cloned();
        for l in batch.lanes() {
            rows.read_memory(l, &batch.memory[batch.at[l] * batch.stride..][..batch.stride]);
            let (lanes, at) = rows.lane_of(l);
            lanes.chains[at * words..][..words].copy_from_slice(&batch.lanes.chains[l * words..][..words]);
        }
        if let Some(answered) = self.called(rows, down) {
            answered.hand_over(batch, out);
        }
    }

    fn sent(&self, batch: &mut AgentBatch<'_>, l: usize, sent: &[f64]) {
        let Some(field) = self.field.as_ref().filter(|_| self.rule.hears_sent()) else { return };
        let place = [batch.lanes.agents[l]];
        let kept = &mut batch.memory[batch.at[l] * batch.stride..][..batch.stride];
        let mut rows = AgentRows::new(field, batch.seed, self.last(), &place, self.vectors());
        rows.identities = vec![batch.lanes.identities[l]];
        rows.read_memory(0, kept);
        if let Some(rows) = self.failure.unless_failed(|| self.rule.sent(rows, sent)) {
            rows.write_memory(0, kept);
        }
    }

    fn failure(&self) -> Option<&Failure> {
        Some(&self.failure)
    }

    fn batched(&self) -> Option<&BatchedClient> {
        Some(self)
    }

    fn meet(&mut self, field: &Arc<dyn Field>) {
        self.field = Some(Arc::clone(field));
    }
}
