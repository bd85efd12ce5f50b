//! An exchange whose local steps are made for all participants at once ([`Together`]).
//!
//! A client half works on one block of lanes, and calls the field in the middle of its answer. Its answers are therefore *rehearsed*:
//! a rehearsal runs until the block needs a leg or an observation that it does not have yet, and is then given up. What all blocks need is
//! computed together, and each is rehearsed again with what it has so far, until no block needs more, or as much is there as was needed
//! in the round before. The exchange is then carried out with these results; a block that needs more after all calls the field itself. An
//! answer is a function of the agents' memory, the message and the field's results, and rehearsals work on copies: the exchange is
//! the one that every block alone would have had.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::sweep::{Agents, Counted, Job, Rows, Worker};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::{Chunk, LANES, Lanes};
use crate::problem::root::Root;
use crate::problem::systems::Moments;
use crate::problem::{Facts, Field, Together};
use crate::random::Stream;
use crate::sampling::Sampling;

/// A call of the field in the middle of an answer.
#[derive(Debug, Clone, PartialEq)]
enum Need {
    Leg(Vec<f64>),
    Observation { advance: bool },
    PassOver(usize),
}

/// What the field has computed for a block, in the order of its calls.
#[derive(Default)]
struct Script {
    /// The lanes after each call; those of the last one before it, while it is needed.
    lanes: Vec<Lanes>,
    /// What the last one needs.
    need: Option<Need>,
    /// The calls that were answered in this rehearsal.
    answered: usize,
}

/// What rounds hand on to each other.
#[derive(Default)]
pub(super) struct Spare {
    /// Lanes that are used again.
    lanes: Vec<Lanes>,
    /// The most calls of a block in each exchange of the last round.
    calls: Vec<usize>,
}

/// A field that knows what blocks need from their scripts.
struct Scripted<'a> {
    field: &'a dyn Field,
    /// The first agent of each block, increasing.
    firsts: Vec<usize>,
    /// Empty for blocks that answer at old models, which call the field themselves.
    scripts: Mutex<Vec<Option<Script>>>,
    /// Lanes that are used again.
    spare: Mutex<Vec<Lanes>>,
    /// Whether the exchange is carried out, and no longer rehearsed.
    is_carried_out: AtomicBool,
}

impl Scripted<'_> {
    fn scripts(&self) -> std::sync::MutexGuard<'_, Vec<Option<Script>>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a call from the script of its block, or notes what is needed; false if the block has no script.
    fn answer(&self, lanes: &mut Lanes, is_leg: bool, need: impl FnOnce() -> Need) -> bool {
        let Ok(block) = self.firsts.binary_search(&lanes.agents[0]) else { return false };
        let mut scripts = self.scripts();
        let Some(script) = &mut scripts[block] else { return false };
        // After a need, a rehearsal runs to its end without a meaning.
        if script.need.is_some() {
            return true;
        }
        let done = script.lanes.get(script.answered);
        if let Some(done) = done {
            lanes.take_results(done, is_leg);
            script.answered += 1;
        } else if self.is_carried_out.load(Ordering::Relaxed) {
            script.answered += 1;
            return false;
        } else {
            script.need = Some(need());
            let mut kept = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
            kept.copy_state(lanes);
            script.lanes.push(kept);
        }
        true
    }

    /// Computes what blocks need, all that need the same in one call.
    fn compute(&self, together: &dyn Together) {
        let mut scripts = self.scripts();
        let mut waiting: Vec<(Need, &mut Lanes)> = Vec::new();
        for script in scripts.iter_mut().flatten() {
            if let (Some(need), Some(lanes)) = (script.need.take(), script.lanes.last_mut()) {
                waiting.push((need, lanes));
            }
        }
        while let Some((need, _)) = waiting.first() {
            let need = need.clone();
            let (same, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(other, _)| *other == need);
            waiting = others;
            let mut blocks: Vec<&mut Lanes> = same.into_iter().map(|(_, lanes)| lanes).collect();
            match need {
                Need::Leg(etas) => together.legs(&mut blocks, &etas),
                Need::Observation { advance } => together.observations(&mut blocks, advance),
                Need::PassOver(samples) => blocks.into_iter().for_each(|lanes| self.field.pass_over(lanes, samples)),
            }
        }
    }
}

impl Job<'_> {
    /// Processes all participants.
    pub(super) fn carry_out(&self, agents: Agents<'_>, rows: Rows<'_>, worker: &mut Worker, spare: &mut Spare) -> Counted {
        match (self.client.batched(), self.field.together()) {
            (Some(client), _) => self.sweep_batched(client, agents, rows, worker),
            (None, Some(together)) => self.sweep_together(together, agents, rows, worker, spare),
            (None, None) => self.sweep(0..self.participants.len(), agents, rows, Some(worker)),
        }
    }

    /// [`Job::sweep`] over all participants, with the local steps of all blocks in one call each.
    fn sweep_together(
        &self,
        together: &dyn Together,
        agents: Agents<'_>,
        rows: Rows<'_>,
        worker: &mut Worker,
        spare: &mut Spare,
    ) -> Counted {
        let blocks: Vec<&[usize]> = self.participants.chunks(LANES).collect();
        let mut answers = [0; LANES];
        let script = |block: &&[usize]| (!self.stale(block, &mut answers)).then(Script::default);
        let scripted = Scripted {
            field: self.field,
            firsts: blocks.iter().map(|block| block[0]).collect(),
            scripts: Mutex::new(blocks.iter().map(script).collect()),
            spare: Mutex::new(std::mem::take(&mut spare.lanes)),
            is_carried_out: AtomicBool::new(false),
        };
        let exchange = usize::from(self.down.exchange);
        let known = spare.calls.get(exchange).copied();
        let job = Job { field: &scripted, ..*self };
        let mut memory = Vec::new();
        let mut rehearsed: Vec<usize> = (0..blocks.len()).filter(|i| scripted.scripts()[*i].is_some()).collect();
        let mut computed = 0;
        while !rehearsed.is_empty() && Some(computed) != known {
            if self.is_stopped() || self.field.failure().is_some() {
                return Counted::default();
            }
            for i in &rehearsed {
                job.rehearse(blocks[*i], LANES * i, &agents, worker, &mut memory);
            }
            let mut scripts = scripted.scripts();
            scripts.iter_mut().flatten().for_each(|script| script.answered = 0);
            rehearsed.retain(|i| scripts[*i].as_ref().is_some_and(|script| script.need.is_some()));
            drop(scripts);
            scripted.compute(together);
            computed += 1;
        }
        scripted.is_carried_out.store(true, Ordering::Relaxed);
        let counted = job.sweep(0..self.participants.len(), agents, rows, Some(worker));
        let Scripted { scripts, spare: lanes, .. } = scripted;
        let scripts = scripts.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Where all blocks answer at old models, nothing is learnt.
        if let Some(calls) = scripts.iter().flatten().map(|script| script.answered).max() {
            spare.calls.resize(spare.calls.len().max(exchange + 1), 0);
            spare.calls[exchange] = calls;
        }
        spare.lanes = lanes.into_inner().unwrap_or_else(PoisonError::into_inner);
        spare.lanes.extend(scripts.into_iter().flatten().flat_map(|script| script.lanes));
        counted
    }

    /// Runs the answer of a block on copies of what its agents keep; `place` is that of its first agent among the participants.
    fn rehearse(&self, block: &[usize], place: usize, agents: &Agents<'_>, worker: &mut Worker, memory: &mut Vec<Chunk>) {
        let (low, high, stride, words) = (block[0], block[block.len() - 1], self.strides.memory, self.strides.chains);
        memory.clear();
        memory.extend_from_slice(&agents.memory[(low - agents.first) * stride..(high + 1 - agents.first) * stride]);
        for (c, lane) in block.iter().zip(worker.lanes.chains.chunks_exact_mut(words.max(1))) {
            lane.copy_from_slice(&agents.chains[(c - agents.first) * words..][..words]);
        }
        worker.outbox.clear();
        let mut batch = self.batch(&mut worker.lanes, block, place, low, memory);
        self.client.answer(&mut batch, self.down, &mut worker.outbox);
    }
}

/// All that is not a step is what the field says.
impl Field for Scripted<'_> {
    fn dim(&self) -> usize {
        self.field.dim()
    }
    fn weights(&self) -> &[f64] {
        self.field.weights()
    }
    fn chain_len(&self) -> usize {
        self.field.chain_len()
    }
    fn sampling(&self) -> Sampling {
        self.field.sampling()
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.field.start_chain(c, stream, chain);
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.field.is_state(c, chain)
    }
    fn leg(&self, lanes: &mut Lanes, etas: &[f64]) {
        if !self.answer(lanes, true, || Need::Leg(etas.to_vec())) {
            self.field.leg(lanes, etas);
        }
    }
    fn observe(&self, lanes: &mut Lanes, advance: bool) {
        if !self.answer(lanes, false, || Need::Observation { advance }) {
            self.field.observe(lanes, advance);
        }
    }
    fn pass_over(&self, lanes: &mut Lanes, samples: usize) {
        if !self.answer(lanes, false, || Need::PassOver(samples)) {
            self.field.pass_over(lanes, samples);
        }
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.field.mean(c, theta, out)
    }
    fn has_mean(&self) -> bool {
        self.field.has_mean()
    }
    fn facts(&self) -> &dyn Facts {
        self.field.facts()
    }
    fn solution(&self) -> std::result::Result<&Root, &str> {
        self.field.solution()
    }
    fn solve(&self, cancel: &Cancel) -> Result<()> {
        self.field.solve(cancel)
    }
    fn set_root(&self, root: Vec<f64>) {
        self.field.set_root(root);
    }
    fn generic(&self) -> Arc<dyn Field> {
        self.field.generic()
    }
    fn second_moments(&self, kind: usize) -> Option<Arc<Moments>> {
        self.field.second_moments(kind)
    }
    fn failure(&self) -> Option<Error> {
        self.field.failure()
    }
}
