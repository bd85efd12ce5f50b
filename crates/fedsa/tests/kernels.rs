//! Every kernel gives the bits of the generic one, for every instruction set,
//! number of agents side by side, width, sampling and batch.

use std::sync::Arc;

use fedsa::kernel::{Isa, LANES, Lanes, flat};
use fedsa::problem::finite_sum::{FiniteSum, Scales};
use fedsa::problem::fixed_point::FixedPoint;
use fedsa::problem::garnet::{Garnet, Heterogeneity};
use fedsa::problem::noise::Noise;
use fedsa::problem::q_learning::QLearning;
use fedsa::problem::quadratic::{Matrices, Quadratic};
use fedsa::problem::random_logistic::RandomLogistic;
use fedsa::problem::random_mrp::{Discount, RandomMrp};
use fedsa::problem::scope::Scope;
use fedsa::problem::{Field, NoFiles, ProblemSettings, linear::LinearSystems};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};

/// Bits of the iterates, of the next operators, and of processes and streams after a leg from a fixed start.
fn after_leg(field: &Arc<dyn Field>, agents: &[usize], etas: &[f64]) -> Vec<u64> {
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
    field.leg(&mut lanes, etas);
    // What is only looked at is seen again.
    field.observe(&mut lanes, false);
    let seen = flat(&lanes.observed).to_vec();
    field.observe(&mut lanes, true);
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

fn fields() -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    let garnet = |features, heterogeneity| Box::new(Garnet { agents: 11, features, heterogeneity, ..Garnet::default() });
    let sum = |dim, chains, noise| -> Box<dyn ProblemSettings> {
        Box::new(FiniteSum { agents: 11, terms: 4, dim, scales: Scales::Exponential, chains, noise, ..FiniteSum::default() })
    };
    vec![
        ("garnet, one chunk", garnet(8, Heterogeneity::Independent) as Box<dyn ProblemSettings>),
        ("garnet, padded chunk", garnet(3, Heterogeneity::TwoKernels)),
        ("garnet, two chunks", garnet(13, Heterogeneity::Low)),
        ("garnet, three chunks", garnet(20, Heterogeneity::Identical)),
        (
            "features and gamma per agent",
            Box::new(RandomMrp {
                agents: 11,
                states: 12,
                features: 9,
                feature_scope: Scope::PerAgent,
                gamma: Discount::Uniform([0.5, 0.99]),
                ..RandomMrp::default()
            }),
        ),
        ("six chunks", Box::new(RandomMrp { agents: 11, states: 50, features: 45, kernel: Scope::PerAgent, ..RandomMrp::default() })),
        (
            "copies of base agents",
            Box::new(RandomMrp {
                agents: 11,
                states: 12,
                features: 9,
                kernel_rank: Some(3),
                rewards: Scope::PerAgent,
                base_agents: Some(11),
                ..RandomMrp::default()
            }),
        ),
        ("random-logistic", Box::new(RandomLogistic { agents: 11, dim: 9, points: 7, ..RandomLogistic::default() })),
        ("logistic", crate::common::logistic(11, 7, 9, false)),
        ("logistic, sparse", crate::common::logistic(11, 7, 16, true)),
        ("least squares", crate::common::least_squares(11, 7, 5, false)),
        ("least squares, sparse", crate::common::least_squares(11, 7, 20, true)),
        ("fixed-point", Box::new(FixedPoint { agents: 11, dim: 9, ..FixedPoint::default() })),
        ("q-learning", Box::new(QLearning { agents: 11, states: 6, ..QLearning::default() })),
        ("linear", Box::new(LinearSystems { agents: 11, dim: 5, ..LinearSystems::default() })),
        (
            "linear with noise",
            Box::new(LinearSystems { agents: 11, dim: 5, noise: Some(Noise::new(0.3, 0.8, 1)), ..LinearSystems::default() }),
        ),
        (
            "quadratic with a noise matrix per agent",
            Box::new(Quadratic {
                agents: 11,
                dim: 9,
                matrices: Matrices::IndefiniteOneAverage,
                noise: Some(Noise { memory: Scope::PerAgent, ..Noise::new(0.3, 0.8, 1) }),
                ..Quadratic::default()
            }),
        ),
        ("garnet with noise", Box::new(Garnet { agents: 11, noise: Some(Noise::new(0.3, 0.5, 1)), ..Garnet::default() })),
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
    agree_on_legs_of(57);
}

/// Short legs have loops of their own.
#[test]
fn kernels_agree_on_short_legs() {
    (1..=5).for_each(agree_on_legs_of);
}

fn agree_on_legs_of(steps: u32) {
    let etas: Vec<f64> = (0..steps).map(|h| 0.1 / (1.0 + 0.01 * f64::from(h))).collect();
    let samplings = [
        Sampling { kind: Law::Mean, ..Sampling::default() },
        Sampling::default(),
        Sampling { kind: Law::Markov, ..Sampling::default() },
        Sampling { kind: Law::Markov, start: ChainStart::State(2), ..Sampling::default() },
        Sampling { batch: 3, ..Sampling::default() },
    ];
    for (name, settings) in fields() {
        for mut sampling in samplings {
            // Additive noise has one state to start from.
            if sampling.start != ChainStart::Stationary && settings.field(&NoFiles, sampling, Isa::Portable).is_err() {
                sampling.start = ChainStart::State(0);
            }
            // One agent at a time through the generic kernel: the reference.
            let reference: Vec<Vec<u64>> = {
                let field = settings.field(&NoFiles, sampling, Isa::Portable).unwrap().generic();
                (0..field.agents()).map(|c| after_leg(&field, &[c], &etas)).collect()
            };
            for isa in Isa::available() {
                let field = settings.field(&NoFiles, sampling, isa).unwrap();
                for len in 1..=LANES {
                    let agents: Vec<usize> = (0..len).map(|l| (l * 3 + len) % 11).collect();
                    let got = after_leg(&field, &agents, &etas);
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
