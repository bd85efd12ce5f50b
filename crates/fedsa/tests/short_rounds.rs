//! A single step of several blocks has the bits of the generic kernel.

use std::sync::Arc;

use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::method::{ControlRule, MethodSettings};
use fedsa::problem::Field;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa_methods::{fedlsa::FedLsa, scafflsa::Scafflsa};
use fedsa_problems::scope::Scope;
use fedsa_problems::td::garnet::Garnet;
use fedsa_problems::td::random_mrp::RandomMrp;
use fedsa_problems::{NoFiles, ProblemSettings as _};

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
fn short_rounds_have_the_bits_of_the_generic_kernel() {
    for (agents, d, law) in
        [(1, 8, Law::Iid), (3, 5, Law::Markov), (6, 8, Law::Markov), (75, 8, Law::Iid), (75, 5, Law::Iid), (75, 8, Law::Markov)]
    {
        for isa in Isa::available() {
            let settings = Garnet::default().with_agents(agents).with_features(d);
            let field = settings.field(&NoFiles, Sampling::default().with_kind(law), isa).unwrap();
            for local_steps in [1, 2, 5] {
                for method in methods(0.3, local_steps).iter().take(if agents == 1 { 3 } else { 4 }) {
                    let [fast, generic] = [&field, &field.generic()].map(|field| after(field, &**method, 0.5, 4));
                    assert_eq!(fast, generic, "{agents} agents, d = {d}, {law:?}, {isa:?}, {local_steps} steps, {method:?}");
                }
            }
        }
    }
}

/// Tables with feature rows of their own are not alike.
#[test]
fn short_rounds_over_agents_with_rows_of_their_own_have_the_bits_of_the_generic_kernel() {
    let settings = RandomMrp::default().with_agents(11).with_states(9).with_features(6);
    let settings = settings.with_kernel(Scope::PerAgent).with_feature_scope(Scope::PerAgent);
    for (isa, law) in Isa::available().into_iter().flat_map(|isa| [(isa, Law::Iid), (isa, Law::Markov)]) {
        let field = settings.field(&NoFiles, Sampling::default().with_kind(law), isa).unwrap();
        for (local_steps, method) in [1, 6].into_iter().flat_map(|steps| methods(0.1, steps).map(|method| (steps, method))) {
            let [fast, generic] = [&field, &field.generic()].map(|field| after(field, &*method, 0.5, 3));
            assert_eq!(fast, generic, "{law:?}, {isa:?}, {local_steps} steps, {method:?}");
        }
    }
}

/// Where directions overflow, and where differences may be tiny.
#[test]
fn short_rounds_have_these_bits_at_the_ends_of_the_range() {
    for isa in Isa::available() {
        let field = Garnet::default().with_agents(11).field(&NoFiles, Sampling::default(), isa).unwrap();
        for (step_size, start) in [(1e300, 1.0), (1e-300, 1.0), (0.1, 1e308), (1e5, 1e303), (0.1, 1e-300), (0.1, 0.0), (3.0, 1e-310)] {
            for method in methods(step_size, 1) {
                let [fast, generic] = [&field, &field.generic()].map(|field| after(field, &*method, start, 3));
                assert_eq!(fast, generic, "{isa:?}, {step_size:e} from {start:e}, {method:?}");
            }
        }
    }
}
