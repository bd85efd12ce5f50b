//! Every kernel gives the bits of the generic one, for every instruction set,
//! number of agents side by side, width, sampling and batch.

use std::sync::Arc;

use fedsa::kernel::{Isa, LANES, Lanes, flat};
use fedsa::problem::Field;
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa_problems::control::policy_gradient::PolicyGradient;
use fedsa_problems::control::sarsa::Sarsa;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::linear::finite_sum::{FiniteSum, Scales};
use fedsa_problems::linear::quadratic::{Matrices, Quadratic};
use fedsa_problems::noise::Noise;
use fedsa_problems::nonlinear::fixed_point::FixedPoint;
use fedsa_problems::nonlinear::q_learning::QLearning;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::scope::Scope;
use fedsa_problems::td::baird::Baird;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::td::gradient_td::TdOperator;
use fedsa_problems::td::random_mrp::{Discount, RandomMrp};
use fedsa_problems::{NoFiles, ProblemSettings};

/// Bits of the iterates, of the next operators, and of processes and streams after a local phase from a fixed start.
fn after_phase(field: &Arc<dyn Field>, agents: &[usize], etas: &[f64]) -> Vec<u64> {
    let d = field.dim();
    let mut lanes = Lanes::new(d, field.chain_len());
    lanes.len = agents.len();
    for (l, c) in agents.iter().enumerate() {
        lanes.agents[l] = *c;
        lanes.set_stream(l, stream(3, Purpose::Sample, 7, *c));
        let mut start = stream(3, Purpose::Start, 0, *c);
        let len = lanes.chain_len;
        field.start_chain(*c, &mut start, &mut lanes.chains[l * len..(l + 1) * len]);
        for i in 0..d {
            lanes.theta_mut(l)[i] = start.normal();
            lanes.drift_mut(l)[i] = 0.1 * start.normal();
        }
    }
    field.local_phase(std::slice::from_mut(&mut lanes), etas);
    // What is only looked at is seen again.
    field.observe(std::slice::from_mut(&mut lanes), false);
    let seen = flat(&lanes.observed).to_vec();
    field.observe(std::slice::from_mut(&mut lanes), true);
    assert_eq!(flat(&lanes.observed), seen);
    let mut bits: Vec<u64> = Vec::new();
    for l in 0..agents.len() {
        bits.extend(flat(&lanes.theta)[l * 8 * lanes.width..][..d].iter().map(|x| x.to_bits()));
        bits.extend(flat(&lanes.observed)[l * 8 * lanes.width..][..d].iter().map(|x| x.to_bits()));
        bits.push(lanes.stream(l).bits());
    }
    bits.extend(&lanes.chains[..agents.len() * lanes.chain_len]);
    bits
}

/// A problem without trajectories.
const EPISODES: &str = "policy-gradient";

type Named = (&'static str, Box<dyn ProblemSettings>);

fn fields() -> Vec<Named> {
    // Unbounded exponentials end in numbers that are none within the local phases of these suites, and bits of those mean nothing: their features
    // are smaller.
    let is_bounded = |named: &Named| !crate::common::is_unbounded(named.0);
    let generalised = crate::common::generalised(11, 7, 5).into_iter().filter(is_bounded).chain(crate::common::gentle(11, 7, 5)).collect();
    [garnets(), reward_processes(), off_policy(), objectives_and_operators(), linear_systems(), finite_sums(), generalised]
        .into_iter()
        .flatten()
        .collect()
}

fn garnets() -> Vec<Named> {
    let garnet =
        |features, heterogeneity| Box::new(Garnet::default().with_agents(11).with_features(features).with_heterogeneity(heterogeneity));
    vec![
        ("garnet, one chunk", garnet(8, Heterogeneity::Independent)),
        ("garnet, padded chunk", garnet(3, Heterogeneity::TwoKernels)),
        ("garnet, two chunks", garnet(13, Heterogeneity::Low)),
        ("garnet, three chunks", garnet(20, Heterogeneity::Identical)),
        ("garnet with noise", Box::new(Garnet::default().with_agents(11).with_noise(Noise::new(0.3, 0.5, 1)))),
    ]
}

fn reward_processes() -> Vec<Named> {
    let process = |states, features| RandomMrp::default().with_agents(11).with_states(states).with_features(features);
    let per_agent = process(12, 9).with_feature_scope(Scope::PerAgent).with_gamma(Discount::Uniform([0.5, 0.99]));
    let copies = process(12, 9).with_kernel_rank(3).with_rewards(Scope::PerAgent).with_base_agents(11);
    vec![
        ("features and gamma per agent", Box::new(per_agent)),
        ("six chunks", Box::new(process(50, 45).with_kernel(Scope::PerAgent))),
        ("copies of base agents", Box::new(copies)),
    ]
}

fn off_policy() -> Vec<Named> {
    let baird = |operator| Box::new(Baird::default().with_agents(11).with_operator(operator).with_reward(1.0).with_spread(0.5));
    vec![("baird, td", baird(TdOperator::Td)), ("baird, gtd2", baird(TdOperator::Gtd2)), ("baird, tdc", baird(TdOperator::Tdc))]
}

fn objectives_and_operators() -> Vec<Named> {
    vec![
        ("random-logistic", Box::new(RandomLogistic::default().with_agents(11).with_dim(9).with_points(7))),
        ("logistic", crate::common::logistic(11, 7, 9, false)),
        ("logistic, sparse", crate::common::logistic(11, 7, 16, true)),
        ("least squares", crate::common::least_squares(11, 7, 5, false)),
        ("least squares, sparse", crate::common::least_squares(11, 7, 20, true)),
        ("fixed-point", Box::new(FixedPoint::default().with_agents(11).with_dim(9))),
        ("q-learning", Box::new(QLearning::default().with_agents(11).with_states(6))),
        ("sarsa", Box::new(Sarsa::default().with_agents(11).with_states(6))),
        (EPISODES, Box::new(PolicyGradient::default().with_agents(11).with_states(6).with_length(5))),
    ]
}

fn linear_systems() -> Vec<Named> {
    let linear = LinearSystems::default().with_agents(11).with_dim(5);
    let quadratic = Quadratic::default()
        .with_agents(11)
        .with_dim(9)
        .with_matrices(Matrices::IndefiniteOneAverage)
        .with_noise(Noise::new(0.3, 0.8, 1).with_memory(Scope::PerAgent));
    vec![
        ("linear", Box::new(linear.clone())),
        ("linear with noise", Box::new(linear.with_noise(Noise::new(0.3, 0.8, 1)))),
        ("quadratic with a noise matrix per agent", Box::new(quadratic)),
    ]
}

fn finite_sums() -> Vec<Named> {
    let sum = |dim, chains, noise| -> Box<dyn ProblemSettings> {
        Box::new(
            FiniteSum::default()
                .with_agents(11)
                .with_terms(4)
                .with_dim(dim)
                .with_scales(Scales::Exponential)
                .with_chains(chains)
                .with_noise(noise),
        )
    };
    vec![
        ("finite sum, padded chunk", sum(3, Scope::Shared, None)),
        ("finite sum, one chunk", sum(8, Scope::PerAgent, None)),
        ("finite sum, two chunks", sum(10, Scope::Shared, None)),
        ("finite sum, two chunks, noise", sum(16, Scope::Shared, Some(Noise::new(0.3, 0.5, 1)))),
        ("finite sum, three chunks", sum(17, Scope::PerAgent, None)),
        ("finite sum, seven chunks", sum(53, Scope::Shared, None)),
    ]
}

#[test]
fn kernels_agree_to_the_bit() {
    agree_on_phases_of(57);
}

/// Short local phases have loops of their own.
#[test]
fn kernels_agree_on_short_phases() {
    (1..=5).for_each(agree_on_phases_of);
}

fn agree_on_phases_of(steps: u32) {
    let etas: Vec<f64> = (0..steps).map(|h| 0.1 / (1.0 + 0.01 * f64::from(h))).collect();
    let samplings = [
        Sampling::default().with_kind(Law::Mean),
        Sampling::default(),
        Sampling::default().with_kind(Law::Markov),
        Sampling::default().with_kind(Law::Markov).with_start(ChainStart::State(2)),
        Sampling::default().with_batch(3),
    ];
    for (name, settings) in fields() {
        let has_trajectories = name != EPISODES;
        for mut sampling in samplings.into_iter().filter(|sampling| has_trajectories || sampling.kind != Law::Markov) {
            // Additive noise has one state to start from.
            if sampling.start != ChainStart::Stationary && settings.field(&NoFiles, sampling, Isa::Portable).is_err() {
                sampling.start = ChainStart::State(0);
            }
            // One agent at a time through the generic kernel: the reference.
            let reference: Vec<Vec<u64>> = {
                let field = settings.field(&NoFiles, sampling, Isa::Portable).unwrap().generic();
                let all: Vec<Vec<u64>> = (0..field.agents()).map(|c| after_phase(&field, &[c], &etas)).collect();
                let is_number = |word: &u64| f64::from_bits(*word).is_finite();
                assert!(all.iter().all(|bits| bits[..2 * field.dim()].iter().all(is_number)), "{name}, {sampling:?}");
                all
            };
            for isa in Isa::available() {
                let field = settings.field(&NoFiles, sampling, isa).unwrap();
                for len in 1..=LANES {
                    let agents: Vec<usize> = (0..len).map(|l| (l * 3 + len) % 11).collect();
                    let got = after_phase(&field, &agents, &etas);
                    let per_lane = 2 * field.dim() + 1;
                    for (l, c) in agents.iter().enumerate() {
                        let lane = &got[l * per_lane..(l + 1) * per_lane];
                        assert_eq!(lane, &reference[*c][..per_lane], "{name}, {sampling:?}, {isa:?}, {len} lanes, agent {c}");
                        let chain = field.chain_len();
                        let words = &got[len * per_lane + l * chain..][..chain];
                        assert_eq!(words, &reference[*c][per_lane..], "{name}, {sampling:?}, {isa:?}, {len} lanes, agent {c}");
                    }
                }
            }
        }
    }
}
