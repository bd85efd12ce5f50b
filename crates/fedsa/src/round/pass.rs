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
        if has_gaps || !to.arrivals.is_empty() || self.own.is_some() || self.uplink.delay.is_some() || !self.field.makes_pass() {
            return None;
        }
        self.client.one_pass(self.down.round).filter(|one_pass| LANES * one_pass.leg.len <= STEPS_BETWEEN_LOOKS)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::federation::Federation;
    use crate::kernel::Isa;
    use crate::methods::control_rule::ControlRule;
    use crate::methods::{MethodSettings, fedlsa::FedLsa, scafflsa::Scafflsa};
    use crate::problem::garnet::Garnet;
    use crate::problem::random_mrp::RandomMrp;
    use crate::problem::scope::Scope;
    use crate::problem::{Field, NoFiles, ProblemSettings as _};
    use crate::round::Run;
    use crate::sampling::{Law, Sampling};

    /// The state after some rounds.
    fn after(field: &Arc<dyn Field>, method: &dyn MethodSettings, start: f64, rounds: usize) -> Vec<u8> {
        let start = vec![start; field.dim()];
        let federation = Federation::builder(method).seed(3).start(start).on(&**field).unwrap();
        let mut run = Run::new(field, &federation).unwrap();
        (0..rounds).for_each(|_| run.step());
        run.save().unwrap()
    }

    fn methods(step_size: f64, local_steps: usize) -> [Box<dyn MethodSettings>; 4] {
        let scafflsa = Scafflsa::new(step_size, local_steps);
        [
            Box::new(FedLsa::new(step_size, local_steps)),
            Box::new(scafflsa.clone()),
            Box::new(scafflsa.clone().with_rule(ControlRule::Afresh).with_global_step_size(0.7)),
            Box::new(scafflsa.with_participants(2)),
        ]
    }

    #[test]
    fn one_pass_has_the_bits_of_block_after_block() {
        for (agents, d, law) in [(1, 8, Law::Iid), (3, 5, Law::Markov), (6, 8, Law::Markov), (75, 8, Law::Iid), (75, 5, Law::Iid)] {
            for isa in Isa::available() {
                let settings = Garnet::default().with_agents(agents).with_features(d);
                let field = settings.field(&NoFiles, Sampling::default().with_kind(law), isa).unwrap();
                assert!(field.makes_pass() && !field.generic().makes_pass());
                for local_steps in [1, 2, 5] {
                    for method in methods(0.3, local_steps).iter().take(if agents == 1 { 3 } else { 4 }) {
                        let [pass, blocks] = [&field, &field.generic()].map(|field| after(field, &**method, 0.5, 4));
                        assert_eq!(pass, blocks, "{agents} agents, d = {d}, {law:?}, {isa:?}, {local_steps} steps, {method:?}");
                    }
                }
            }
        }
    }

    /// Tables with feature rows of their own are not alike.
    #[test]
    fn one_pass_over_agents_with_rows_of_their_own_has_the_bits_of_blocks() {
        let settings = RandomMrp::default().with_agents(11).with_states(9).with_features(6);
        let settings = settings.with_kernel(Scope::PerAgent).with_feature_scope(Scope::PerAgent);
        for (isa, law) in Isa::available().into_iter().flat_map(|isa| [(isa, Law::Iid), (isa, Law::Markov)]) {
            let field = settings.field(&NoFiles, Sampling::default().with_kind(law), isa).unwrap();
            assert!(field.makes_pass());
            for (local_steps, method) in [1, 6].into_iter().flat_map(|steps| methods(0.1, steps).map(|method| (steps, method))) {
                let [pass, blocks] = [&field, &field.generic()].map(|field| after(field, &*method, 0.5, 3));
                assert_eq!(pass, blocks, "{law:?}, {isa:?}, {local_steps} steps, {method:?}");
            }
        }
    }

    /// Where quotients overflow, and where differences may be tiny.
    #[test]
    fn one_pass_divides_as_blocks_do_at_the_ends_of_the_range() {
        for isa in Isa::available() {
            let field = Garnet::default().with_agents(11).field(&NoFiles, Sampling::default(), isa).unwrap();
            for (step_size, start) in [(1e300, 1.0), (1e-300, 1.0), (0.1, 1e308), (1e5, 1e303), (0.1, 1e-300), (0.1, 0.0), (3.0, 1e-310)] {
                for method in methods(step_size, 1) {
                    let [pass, blocks] = [&field, &field.generic()].map(|field| after(field, &*method, start, 3));
                    assert_eq!(pass, blocks, "{isa:?}, {step_size:e} from {start:e}, {method:?}");
                }
            }
        }
    }
}
