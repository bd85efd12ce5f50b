//! Runs under Markov samples against exact first and second moments on the joint chain.
//!
//! Every check has a twin that must fail: the same runs against the prediction for another batch.

use std::sync::Arc;

use crate::common::{Mean, engine, follows, method};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::record::OutputRule;
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::linear::switching::Switching;
use fedsa_problems::td::garnet::Garnet;
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_theory::RoundSetting;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::markov::joint::Joint;
use fedsa_theory::markov::one_agent::OneAgent;
use fedsa_theory::markov::{AgentClass, MarkovAgent, MarkovRule};

const SEEDS: u64 = 3000;
const ROUNDS: u64 = 25;

fn classes(field: &Arc<dyn Field>) -> Vec<AgentClass> {
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    let agent = |(kind, weight): (&u32, &f64)| MarkovAgent::new(&field.facts().law(*kind as usize).unwrap(), *weight, root).unwrap();
    systems.kind_of.iter().zip(&systems.weights).map(|pair| AgentClass { agent: agent(pair), count: 1 }).collect()
}

/// Deviations in standard errors of `||theta_t - theta*||^2` and of the components of theta_t, all rounds, and of the wrong
/// prediction.
fn deviations(field: &Arc<dyn Field>, kind: &str, rule: MarkovRule, steps: u64, eta: f64) -> [Vec<f64>; 2] {
    let settings = method(kind, &format!(r#"{{"step_size": {eta}, "local_steps": {steps}}}"#));
    let root = field.root().unwrap();
    let d = root.len();
    let start: Vec<f64> = root.iter().zip([1.0, -1.0, 0.5]).map(|(x, away)| x + away).collect();
    let (uplink, mut means) = (Uplink::default(), vec![vec![Mean::default(); d + 1]; ROUNDS as usize]);
    for seed in 0..SEEDS {
        let mut run = engine(field, &*settings, &uplink, OutputRule::Last, seed, start.clone()).unwrap();
        for means in &mut means {
            run.step();
            let error = run.theta().iter().zip(root).map(|(x, r)| x - r);
            means.iter_mut().zip(error.chain([linalg::distance_sq(run.theta(), root)])).for_each(|(mean, x)| mean.see(x));
        }
    }
    let (classes, setting) = (classes(field), RoundSetting::new(eta, steps).unwrap());
    let offset: Vec<f64> = start.iter().zip(root).map(|(x, r)| x - r).collect();
    let rounds: Vec<u64> = (1..=ROUNDS).collect();
    let Sampling { batch, start, .. } = field.sampling();
    [batch as u64, batch as u64 + 1].map(|batch| {
        let exact = Joint::new(&classes, &setting, rule, batch).unwrap();
        let curve = exact.curve(&offset, &InitialControls::Zero, start, &rounds).unwrap();
        let of = |(means, point): (&Vec<Mean>, &fedsa_theory::markov::MarkovFloor)| -> Vec<f64> {
            means.iter().zip(point.bias.iter().copied().chain([point.mse])).map(|(mean, x)| mean.off(x)).collect()
        };
        means.iter().zip(&curve).flat_map(of).collect()
    })
}

#[test]
fn rounds_of_all_methods_have_the_moments_of_the_joint_chain() {
    let garnet = Garnet::default().with_agents(2).with_states(5).with_features(2).with_min_class(None).with_gamma(0.7).with_seed(4);
    for (kind, rule) in [("fedlsa", MarkovRule::FedLsa), ("fedhsa", MarkovRule::FedHsa), ("scafflsa", MarkovRule::Scafflsa)] {
        for (start, batch) in [(ChainStart::Stationary, 1), (ChainStart::State(classes_state(&garnet)), 2)] {
            let field = garnet
                .field(&NoFiles, Sampling::default().with_kind(Law::Markov).with_batch(batch).with_start(start), Isa::best())
                .unwrap();
            let [right, wrong] = deviations(&field, kind, rule, 3, 0.8);
            follows(&right).unwrap_or_else(|e| panic!("{kind}, batch {batch}: {e}"));
            assert!(follows(&wrong).is_err(), "{kind}: the batch shows");
        }
    }
}

/// A state that both agents' chains keep.
fn classes_state(garnet: &Garnet) -> u32 {
    let field = garnet.field(&NoFiles, Sampling::default().with_kind(Law::Markov), Isa::best()).unwrap();
    let all = classes(&field);
    *all[0].agent.labels.iter().find(|s| all[1].agent.labels.contains(s)).unwrap()
}

#[test]
fn one_agent_of_the_switch_has_the_moments_of_its_chain() {
    let switch = Switching::default().with_dim(2).with_values(vec![1.5, 0.2, 0.9]).with_mixing_time(4.0).with_spread(1.0);
    for batch in [1, 3] {
        let field = switch.field(&NoFiles, Sampling::default().with_kind(Law::Markov).with_batch(batch), Isa::best()).unwrap();
        let [right, wrong] = deviations(&field, "fedlsa", MarkovRule::FedLsa, 1, 0.4);
        follows(&right).unwrap_or_else(|e| panic!("batch {batch}: {e}"));
        assert!(follows(&wrong).is_err(), "the batch shows");
        // The joint chain of one agent is the agent's.
        let agents = classes(&field);
        let setting = RoundSetting::new(0.4, 1).unwrap();
        let joint = Joint::new(&agents, &setting, MarkovRule::FedLsa, batch as u64).unwrap().floor().unwrap();
        let one = OneAgent::new(&agents[0].agent, 0.4, batch as u64).unwrap().floor().unwrap();
        assert!((joint.mse - one.mse).abs() < 1e-13 && linalg::distance_sq(&joint.bias, &one.bias) < 1e-26);
    }
}
