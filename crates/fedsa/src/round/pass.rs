//! An exchange in one pass over what agents keep, where their answers need no more ([`OnePass`]) and the field has a kernel for it.

use std::ops::Range;

use super::sweep::{Agents, Counted, Job, Rows};
use crate::cancel::Cancel;
use crate::kernel::pass::Pass;
use crate::kernel::{Chunk, LANES, Lanes, flat_mut};
use crate::local::{OnePass, set_etas};
use crate::message::{HEADER_BYTES, PART_HEADER_BYTES, Part};
use crate::problem::Field;
use crate::problem::calls::Calls;
use crate::random::{Key, Purpose};
use crate::record::{Sent, Work};

/// The most steps of agents between two looks at the token: less than a millisecond. Longer legs look at it between their own steps.
pub(super) const STEPS_BETWEEN_LOOKS: usize = 1 << 17;

impl Job<'_> {
    /// The answer of these participants as data, if they can answer in one pass: over a clear link, at this round's model, all of them in
    /// step, without a gap between their numbers.
    pub(super) fn one_pass(&self, range: &Range<usize>, to: &Rows<'_>) -> Option<OnePass> {
        let participants = &self.participants[range.clone()];
        let has_gaps = participants.last()? - participants.first()? + 1 != participants.len();
        if has_gaps
            || to.blocks.is_empty()
            || self.gains.is_some()
            || self.own.is_some()
            || self.uplink.pull().is_some()
            || !self.field.makes_pass()
        {
            return None;
        }
        self.client.local_steps(self.down.round).one_pass.filter(|one_pass| LANES * one_pass.leg.len <= STEPS_BETWEEN_LOOKS)
    }

    /// The answers of these participants.
    pub(super) fn pass(&self, one_pass: &OnePass, range: Range<usize>, of: Agents<'_>, to: Rows<'_>, lanes: &mut Lanes) -> Counted {
        let (n, first) = (range.len(), self.participants[range.start]);
        let before = first - of.first;
        let mut agents = ConsecutiveAgents {
            field: &**self.field,
            seed: self.seed,
            first,
            weights: &self.weights[first..first + n],
            memory: &mut of.memory[before * self.strides.memory..(before + n) * self.strides.memory],
            stride: self.strides.memory,
            chains: &mut of.chains[before * self.strides.chains..(before + n) * self.strides.chains],
            sums: to.blocks,
            cancel: self.cancel,
        };
        agents.answer(self.down.round, self.down.part(Part::Model), one_pass, lanes);
        counted(n, one_pass.leg.len, self.field.dim())
    }
}

/// What n agents send and compute that make so many steps and answer with a direction of d components.
pub(super) fn counted(n: usize, steps: usize, d: usize) -> Counted {
    let (messages, samples) = (n as u64, (n * steps) as u64);
    let bytes = messages * (HEADER_BYTES + PART_HEADER_BYTES + 8 * d) as u64;
    let sent = Sent { messages, bytes, vectors: messages, ..Sent::default() };
    (sent, Work { samples, calls: Calls { operators: samples, ..Calls::default() } })
}

/// Agents whose numbers follow each other, and what they answer in one pass with.
pub(super) struct ConsecutiveAgents<'a> {
    pub field: &'a dyn Field,
    pub seed: u64,
    /// The number of the first agent.
    pub first: usize,
    /// Their weights.
    pub weights: &'a [f64],
    /// What they keep, `stride` chunks each.
    pub memory: &'a mut [Chunk],
    pub stride: usize,
    /// Their sampling processes.
    pub chains: &'a mut [u64],
    /// The weighted sums of the answers of eight agents, d numbers each.
    pub sums: &'a mut [f64],
    /// Set when the round is to be abandoned.
    pub cancel: &'a Cancel,
}

impl ConsecutiveAgents<'_> {
    /// Their answers to the model of a round.
    pub(super) fn answer(&mut self, round: u64, model: &[f64], one_pass: &OnePass, lanes: &mut Lanes) {
        let OnePass { leg, controls } = *one_pass;
        let (n, d) = (self.weights.len(), self.field.dim());
        let key = Key::new(self.seed, Purpose::Sample, round);
        flat_mut(&mut lanes.start)[..d].copy_from_slice(model);
        set_etas(lanes, &leg, 0..leg.len);
        let mut pass = Pass {
            key: &key,
            first: self.first,
            d,
            start: &lanes.start,
            etas: &lanes.etas,
            sum: leg.sum,
            weights: self.weights,
            controls,
            memory: self.memory,
            stride: self.stride,
            chains: self.chains,
            sums: self.sums,
        };
        let piece = (STEPS_BETWEEN_LOOKS / leg.len / LANES).max(1) * LANES;
        if n <= piece {
            self.field.pass(&mut pass);
        } else {
            for from in (0..n).step_by(piece).take_while(|_| !self.cancel.is_cancelled()) {
                self.field.pass(&mut pass.part(from, piece.min(n - from)));
            }
        }
    }
}
