//! Agents of a batch as rows of arrays, for rules of another language.

use std::sync::Arc;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::{self, Chunk, LANES, Lanes, chunks, flat, flat_mut};
use crate::problem::Field;
use crate::random::{Key, Purpose, Stream};

/// The n agents of a batch ([`super::AgentBatch::rows`]), one row each, with copies of their stored vectors, sampling processes and random
/// streams.
pub struct AgentRows {
    field: Arc<dyn Field>,
    seed: u64,
    /// Eight agents each.
    blocks: Vec<Lanes>,
    /// Their numbers in the federation.
    agents: Vec<usize>,
    /// The stored vectors, n d numbers each.
    memory: Vec<Vec<f64>>,
    stop: Option<Cancel>,
    /// The round whose streams are open.
    round: Option<u64>,
    /// The evaluations of each agent's operator so far.
    evaluations: usize,
}

/// The largest number of local steps between two checks of the token.
const STEPS_BETWEEN_LOOKS: usize = 1024;

impl AgentRows {
    /// Rows of these blocks, with the memory of each agent.
    pub(super) fn new(field: &Arc<dyn Field>, seed: u64, blocks: Vec<Lanes>, memory: &[&[Chunk]], stop: Option<Cancel>) -> Self {
        let d = field.dim();
        let vectors = memory.first().map_or(0, |kept| kept.len() / chunks(d).max(1));
        let vector = |j: usize| memory.iter().flat_map(move |kept| &flat(&kept[j * chunks(d)..])[..d]).copied().collect();
        let agents = blocks.iter().flat_map(|lanes| &lanes.identities[..lanes.len]).copied().collect();
        let memory = (0..vectors).map(vector).collect();
        Self { field: Arc::clone(field), seed, blocks, agents, memory, stop, round: None, evaluations: 0 }
    }

    /// The numbers of the agents in the federation, in the order of the rows.
    pub fn agents(&self) -> &[usize] {
        &self.agents
    }

    /// The number d of components.
    pub fn dim(&self) -> usize {
        self.field.dim()
    }

    /// The agents' stored vector `j`, n d numbers.
    pub fn memory(&mut self, j: usize) -> &mut [f64] {
        &mut self.memory[j]
    }

    /// The agents' random streams for draws other than samples, one for each agent, of the open round.
    ///
    /// # Errors
    /// When no round is open.
    pub fn streams(&self) -> Result<Vec<Stream>> {
        let key = Key::new(self.seed, Purpose::Rule, self.open_round()?);
        Ok(self.agents.iter().map(|c| key.stream(*c)).collect())
    }

    /// The open round.
    fn open_round(&self) -> Result<u64> {
        let closed = || Error::new("agents", "a step or a draw of agents that have answered", "steps and draws while the rule answers");
        self.round.ok_or_else(closed)
    }

    /// Opens the samples of a round, which steps and observations use in turn. Must precede steps and draws. The second exchange of a round
    /// begins with the first one's samples. `model` has the d numbers of the round's model, whose policy some problems keep for all steps.
    ///
    /// # Panics
    /// When `model` has another length.
    pub fn open(&mut self, round: u64, model: &[f64]) {
        self.round = Some(round);
        let d = self.dim();
        self.blocks.iter_mut().for_each(|lanes| flat_mut(&mut lanes.start)[..d].copy_from_slice(model));
        let key = Key::new(self.seed, Purpose::Sample, round);
        self.blocks.iter_mut().for_each(|lanes| kernel::rows::open(&mut lanes.streams, &key, &lanes.identities));
    }

    /// Makes local steps `theta_c += eta (g_c(theta_c, z) + drift_c)` with the step sizes `etas` in turn; `theta` and `drift` are n d
    /// numbers.
    ///
    /// # Errors
    /// When the operators fail, or no round is open.
    pub fn steps(&mut self, theta: &mut [f64], drift: Option<&[f64]>, etas: &[f64]) -> Result<()> {
        self.put(theta)?;
        let d = self.dim();
        match drift {
            Some(drift) => self.each(|row, lanes, l| lanes.drift_mut(l)[..d].copy_from_slice(&drift[row * d..][..d])),
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
            self.field.local_phase(&mut self.blocks, etas);
        }
        self.evaluations += etas.len();
        self.each(|row, lanes, l| theta[row * d..][..d].copy_from_slice(&lanes.theta(l)[..d]));
        self.field.failure().map_or(Ok(()), Err)
    }

    /// Replaces the n d numbers `theta` by `g_c(theta_c, z)`, with z the next sample of the round.
    ///
    /// # Errors
    /// As [`AgentRows::steps`].
    pub fn sample(&mut self, theta: &mut [f64]) -> Result<()> {
        self.put(theta)?;
        let d = self.dim();
        self.field.observe(&mut self.blocks, true);
        self.evaluations += 1;
        self.each(|row, lanes, l| theta[row * d..][..d].copy_from_slice(&flat(&lanes.observed[l * lanes.width..])[..d]));
        self.field.failure().map_or(Ok(()), Err)
    }

    /// Puts iterates into the lanes.
    fn put(&mut self, theta: &[f64]) -> Result<()> {
        self.open_round()?;
        let d = self.dim();
        self.each(|row, lanes, l| lanes.theta_mut(l)[..d].copy_from_slice(&theta[row * d..][..d]));
        Ok(())
    }

    /// Calls `visit` with each row, its block and its lane.
    fn each(&mut self, mut visit: impl FnMut(usize, &mut Lanes, usize)) {
        for row in 0..self.agents.len() {
            visit(row, &mut self.blocks[row / LANES], row % LANES);
        }
    }

    /// Writes the stored vectors of a row's agent.
    pub(super) fn write_memory(&self, row: usize, kept: &mut [Chunk]) {
        let d = self.dim();
        for (vector, kept) in self.memory.iter().zip(kept.chunks_exact_mut(chunks(d))) {
            flat_mut(kept)[..d].copy_from_slice(&vector[row * d..][..d]);
        }
    }

    /// The blocks.
    pub(super) fn blocks(&self) -> &[Lanes] {
        &self.blocks
    }

    /// The evaluations of each agent's operator so far.
    pub(super) fn evaluations(&self) -> usize {
        self.evaluations
    }
}
