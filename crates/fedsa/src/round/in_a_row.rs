//! Short rounds in a row: rounds of a rule that only averages ([`crate::server::Server::only_averages`]), of agents that answer in one pass.

use super::pass::{AgentsInARow, STEPS_BETWEEN_LOOKS, counted};
use super::sweep::Shares;
use super::{Advanced, Run, Working};
use crate::cancel::Cancel;
use crate::local::stride;
use crate::sums::pairwise;

impl Run {
    /// Carries up to `most` rounds. They are several only where one is short, which is then carried to its end, whether or not `cancel` is set; a
    /// single one as [`Run::advance`] does.
    pub fn advance_by(&mut self, most: u64, cancel: &Cancel) -> Advanced {
        if most > 1 && self.go_in_a_row(most) > 0 { Advanced::Round } else { self.advance(cancel) }
    }

    /// Carries rounds in a row, as far as they can be carried so; their number.
    fn go_in_a_row(&mut self, most: u64) -> u64 {
        let can = self.coordinator.can_go_in_a_row() && self.field.makes_pass() && !self.is_torn();
        let Run { field, client: Working::Lanes(client), coordinator, state, scratch, .. } = self else { return 0 };
        if !can || client.batched().is_some() || field.together().is_some() {
            return 0;
        }
        let (n, d, seed) = (field.agents(), field.dim(), coordinator.federation().seed());
        scratch.make_room(n, d, false, false);
        let never = Cancel::never();
        let ((sent, _), mut steps) = (counted(n, 0, d), 0);
        let rounds = coordinator.go_in_a_row(most, &sent, |round, model, sum| {
            // The number of steps may differ from round to round. Long rounds can be abandoned, and are shared out among threads.
            let Some(one_pass) = client.one_pass(round) else { return false };
            let is_short = n * one_pass.leg.len <= STEPS_BETWEEN_LOOKS;
            if !is_short || scratch.shares(&**field, n, one_pass.leg.len) != Shares::of_one_task(n) {
                return false;
            }
            let mut row = AgentsInARow {
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
            row.answer(round, model, &one_pass, &mut scratch.worker.lanes);
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
    use super::*;
    use crate::federation::Federation;
    use crate::kernel::Isa;
    use crate::methods::control_rule::ControlRule;
    use crate::methods::{MethodSettings, fedhsa::FedHsa, fedlsa::FedLsa, projected_td::ProjectedTd, scafflsa::Scafflsa};
    use crate::problem::garnet::Garnet;
    use crate::problem::{NoFiles, ProblemSettings as _};
    use crate::record::OutputRule;
    use crate::sampling::{Law, Sampling};

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
            let scafflsa = Scafflsa::new(0.3, steps);
            let methods: [(Box<dyn MethodSettings>, bool); 7] = [
                (Box::new(FedLsa::new(0.3, steps)), true),
                (Box::new(scafflsa.clone()), true),
                (Box::new(scafflsa.clone().with_global_step_size(0.7)), true),
                // Its agents are told what a round did.
                (Box::new(scafflsa.clone().with_rule(ControlRule::Afresh)), false),
                (Box::new(ProjectedTd::new(0.3, steps, 0.5)), true),
                (Box::new(scafflsa.with_participants(agents.div_ceil(2))), agents == 1),
                (Box::new(FedHsa::new(0.3, steps)), false),
            ];
            for (method, only_averages) in methods {
                let federation = Federation::builder(&*method).seed(3).start(vec![0.5; d]).output(output).on(&*field).unwrap();
                let new = || Run::new(&field, &federation).unwrap();
                let [mut single, mut row, mut mixed] = [new(), new(), new()];
                (0..9).for_each(|_| single.step());
                while row.round() < 9 {
                    let before = row.round();
                    assert_eq!(row.advance_by(9 - before, &Cancel::never()), Advanced::Round);
                    assert_eq!(row.round() - before, if only_averages { 9 } else { 1 }, "{method:?}");
                }
                mixed.step();
                while mixed.round() < 8 {
                    mixed.advance_by((8 - mixed.round()).min(3), &Cancel::never());
                }
                mixed.step();
                for other in [&row, &mixed] {
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

    #[test]
    fn rounds_in_a_row_end_where_the_iterates_diverge() {
        let field = Garnet::default().with_agents(9).field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        for step_size in [1e3, 1e308] {
            let federation = Federation::builder(&FedLsa::new(step_size, 2)).start(vec![1.0; 8]).on(&*field).unwrap();
            let [mut single, mut row] = [(); 2].map(|()| Run::new(&field, &federation).unwrap());
            (0..1_000).for_each(|_| single.step());
            assert_eq!(single.advance(&Cancel::never()), Advanced::Over);
            assert_eq!(row.advance_by(1_000, &Cancel::never()), Advanced::Round);
            assert_eq!(row.advance_by(1_000, &Cancel::never()), Advanced::Over);
            assert!(row.diverged().is_some() && row.diverged() == single.diverged() && row.round() == single.round());
            assert_eq!(row.ledger(), single.ledger());
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
    }
}
