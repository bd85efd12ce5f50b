//! Short rounds in a row: rounds of a rule that only averages ([`crate::server::Server::only_averages`]), of agents that answer in one pass.

use super::pass::{ConsecutiveAgents, STEPS_BETWEEN_LOOKS, counted};
use super::sweep::Shares;
use super::{Advanced, Run, Working};
use crate::cancel::Cancel;
use crate::local::stride;
use crate::sums::pairwise;

impl Run {
    /// Carries one round as [`Run::advance`] does, or up to `most` rounds that are short: between two of them it stops once `cancel` is set.
    pub fn advance_by(&mut self, most: u64, cancel: &Cancel) -> Advanced {
        if most > 1 && self.go_in_a_row(most, cancel) > 0 { Advanced::Round } else { self.advance(cancel) }
    }

    /// Carries up to `most` rounds in a row, until one cannot be carried so or `cancel` is set; their number.
    pub(crate) fn go_in_a_row(&mut self, most: u64, cancel: &Cancel) -> u64 {
        let can = self.coordinator.can_go_in_a_row() && self.field.makes_pass() && !self.is_torn();
        let Run { field, client: Working::Lanes(client), coordinator, state, scratch, .. } = self else { return 0 };
        let (n, d, seed) = (field.agents(), field.dim(), coordinator.federation().seed());
        if !can || n > STEPS_BETWEEN_LOOKS || client.batched().is_some() || field.together().is_some() {
            return 0;
        }
        scratch.make_room(n, d, false, false);
        let never = Cancel::never();
        let ((sent, _), mut steps) = (counted(n, 0, d), 0);
        let rounds = coordinator.go_in_a_row(most, &sent, |round, model, sum| {
            let Some(one_pass) = client.one_pass(round).filter(|_| !cancel.is_cancelled()) else { return false };
            // The number of steps may differ from round to round. Long rounds can be abandoned, and are shared out among threads.
            let is_short = n * one_pass.leg.len <= STEPS_BETWEEN_LOOKS;
            if !is_short || scratch.shares(&**field, n, one_pass.leg.len) != Shares::of_one_task(n) {
                return false;
            }
            let mut agents = ConsecutiveAgents {
                field: &**field,
                seed,
                first: 0,
                weights: field.weights(),
                memory: &mut state.memory,
                stride: stride(&**client, d),
                chains: &mut state.chains,
                sums: &mut scratch.blocks,
                cancel: &never,
            };
            agents.answer(round, model, &one_pass, &mut scratch.worker.lanes);
            steps += one_pass.leg.len;
            pairwise(&mut scratch.blocks, d);
            sum.copy_from_slice(&scratch.blocks[..d]);
            true
        });
        let (_, computed) = counted(n, steps, d);
        state.work = state.work.and(computed);
        rounds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::federation::Federation;
    use crate::federation::rules::{AnswerRules, MissingAnswers};
    use crate::kernel::Isa;
    use crate::methods::control_rule::ControlRule;
    use crate::methods::{MethodSettings, fedhsa::FedHsa, fedlsa::FedLsa, projected_td::ProjectedTd, scafflsa::Scafflsa};
    use crate::problem::garnet::Garnet;
    use crate::problem::{NoFiles, ProblemSettings as _};
    use crate::record::OutputRule;
    use crate::sampling::{Law, Sampling};
    use crate::schedule::{Decay, Per, StepSize};
    use crate::uplink::Uplink;
    use crate::uplink::codec::Float32;
    use crate::uplink::medium::erasure::Erasure;

    /// Methods, and whether they only average with all agents.
    fn methods(agents: usize, steps: usize) -> [(Box<dyn MethodSettings>, bool); 8] {
        let scafflsa = Scafflsa::new(0.3, steps);
        let decaying = StepSize::Decaying(Decay { c: 0.3, t0: 1.0, power: 0.6, per: Per::Step });
        [
            (Box::new(FedLsa::new(0.3, steps)), true),
            (Box::new(FedLsa::new(decaying, steps)), true),
            (Box::new(scafflsa.clone()), true),
            (Box::new(scafflsa.clone().with_global_step_size(0.7)), true),
            // Its agents are told what a round did.
            (Box::new(scafflsa.clone().with_rule(ControlRule::Afresh)), false),
            (Box::new(ProjectedTd::new(0.3, steps, 0.5)), true),
            (Box::new(scafflsa.with_participants(agents.div_ceil(2))), agents == 1),
            (Box::new(FedHsa::new(0.3, steps)), false),
        ]
    }

    /// Of rules that only average, and of others, which are carried one by one.
    #[test]
    fn rounds_in_a_row_have_the_bits_of_single_ones() {
        for (agents, d, law, steps, output) in [
            (1, 8, Law::Iid, 1, OutputRule::Last),
            (5, 3, Law::Markov, 3, OutputRule::Average),
            (70, 8, Law::Iid, 1, OutputRule::TailAfter(4)),
            (70, 8, Law::Markov, 2, OutputRule::Weighted(0.9)),
        ] {
            let settings = Garnet::default().with_agents(agents).with_features(d);
            let field = settings.field(&NoFiles, Sampling::default().with_kind(law), Isa::best()).unwrap();
            for (method, only_averages) in methods(agents, steps) {
                let federation = Federation::builder(&*method).seed(3).start(vec![0.5; d]).output(output).on(&*field).unwrap();
                let new = || Run::new(&field, &federation).unwrap();
                let [mut single, mut joined, mut mixed] = [new(), new(), new()];
                (0..9).for_each(|_| single.step());
                while joined.round() < 9 {
                    let before = joined.round();
                    assert_eq!(joined.advance_by(9 - before, &Cancel::never()), Advanced::Round);
                    assert_eq!(joined.round() - before, if only_averages { 9 } else { 1 }, "{method:?}");
                }
                mixed.step();
                while mixed.round() < 8 {
                    mixed.advance_by((8 - mixed.round()).min(3), &Cancel::never());
                }
                mixed.step();
                for other in [&joined, &mixed] {
                    assert_eq!(
                        other.save().unwrap(),
                        single.save().unwrap(),
                        "{agents} agents, d = {d}, {law:?}, {steps} steps, {method:?}"
                    );
                    assert_eq!((other.ledger(), other.output()), (single.ledger(), single.output()));
                    assert_eq!(other.coordinator().question(), single.coordinator().question());
                }
            }
        }
    }

    /// Where answers may be lost, late, altered or looked at one by one, and where an answer was lost before.
    #[test]
    fn rounds_that_are_not_only_sums_are_carried_one_by_one() {
        let field = Garnet::default().with_agents(9).field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let rows = |uplink: &Uplink, rules: AnswerRules| {
            let federation = Federation::builder(&FedLsa::new(0.1, 1)).uplink(uplink).on(&*field).unwrap().with_rules(rules).unwrap();
            let mut run = Run::new(&field, &federation).unwrap();
            run.go_in_a_row(5, &Cancel::never())
        };
        let lost = Uplink { media: vec![Arc::new(Erasure::new(0.5))], ..Uplink::default() };
        let altered = Uplink { codec: Arc::new(Float32 {}), ..Uplink::default() };
        let altered_down = Uplink { downlink: Arc::new(Float32 {}), ..Uplink::default() };
        assert_eq!(rows(&Uplink::default(), AnswerRules::default()), 5);
        assert_eq!([&lost, &altered, &altered_down].map(|uplink| rows(uplink, AnswerRules::default())), [0; 3]);
        assert_eq!(rows(&Uplink::default(), AnswerRules::default().with_missing(MissingAnswers::Reweighted)), 0);
    }

    #[test]
    fn rounds_in_a_row_end_where_the_iterates_diverge() {
        let field = Garnet::default().with_agents(9).field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        for step_size in [1e3, 1e308] {
            let federation = Federation::builder(&FedLsa::new(step_size, 2)).start(vec![1.0; 8]).on(&*field).unwrap();
            let [mut single, mut joined] = [(); 2].map(|()| Run::new(&field, &federation).unwrap());
            (0..1_000).for_each(|_| single.step());
            assert_eq!(single.advance(&Cancel::never()), Advanced::Over);
            assert_eq!(joined.advance_by(1_000, &Cancel::never()), Advanced::Round);
            assert_eq!(joined.advance_by(1_000, &Cancel::never()), Advanced::Over);
            assert!(joined.diverged().is_some() && joined.diverged() == single.diverged() && joined.round() == single.round());
            assert_eq!((joined.ledger(), joined.save().unwrap()), (single.ledger(), single.save().unwrap()));
        }
    }

    /// Long rounds are carried one by one, so that they can be abandoned.
    #[test]
    fn long_rounds_are_not_carried_in_a_row() {
        let field = Garnet::default().with_agents(9).field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let federation = Federation::builder(&FedLsa::new(0.1, STEPS_BETWEEN_LOOKS)).start(vec![1.0; 8]).on(&*field).unwrap();
        let mut run = Run::new(&field, &federation).unwrap();
        let now = Cancel::new();
        now.cancel();
        assert_eq!((run.advance_by(5, &now), run.is_torn()), (Advanced::Cancelled, true));
        // Short ones stop between two of them.
        let federation = Federation::builder(&FedLsa::new(0.1, 1)).start(vec![1.0; 8]).on(&*field).unwrap();
        let mut run = Run::new(&field, &federation).unwrap();
        assert_eq!((run.go_in_a_row(5, &now), run.go_in_a_row(5, &Cancel::never()), run.round()), (0, 5, 5));
    }
}
