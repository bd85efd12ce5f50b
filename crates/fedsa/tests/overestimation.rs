//! Rounds and local steps of synchronous federated Q-learning, on the problem that is hard for it: one state with two equal actions of reward
//! 1. Either stays with probability `p = (4 gamma - 1) / (3 gamma)` and otherwise leads to an absorbing state of value 0.
//!
//! Noise makes the largest value of an action too large. Local steps add this up: the averaged values are too high by a share that depends on
//! `eta H` alone. A fixed share needs `eta H` fixed, and with `eta ~ 1 - gamma` rounds in proportion to `1 / (1 - gamma)`.

use std::sync::Arc;

use crate::common::{method, run_from};
use fedsa::kernel::Isa;
use fedsa::problem::{Facts, Field, Problem, equal_weights, field as field_of};
use fedsa::random::Stream;
use fedsa::sampling::{Law, Sampling};

const AGENTS: usize = 50;

/// Every step updates both actions, each with a next state of its own.
struct TwoActions {
    gamma: f64,
    stays: f64,
    weights: Vec<f64>,
}

impl TwoActions {
    fn field(gamma: f64) -> Arc<dyn Field> {
        let problem = Self { gamma, stays: (4.0 * gamma - 1.0) / (3.0 * gamma), weights: equal_weights(AGENTS) };
        field_of(problem, Sampling::default().with_kind(Law::Iid), Isa::best(), true).unwrap()
    }
}

impl Facts for TwoActions {}

impl Problem for TwoActions {
    type Obs = [bool; 2];
    fn dim(&self) -> usize {
        2
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], draws: &mut Stream, z: &mut [bool; 2]) {
        z.iter_mut().for_each(|stays| *stays = draws.uniform() < self.stays);
    }
    fn apply(&self, _: usize, theta: &[f64], z: &[bool; 2], out: &mut [f64]) {
        let best = theta[0].max(theta[1]);
        for ((g, theta), stays) in out.iter_mut().zip(theta).zip(z) {
            *g = 1.0 + if *stays { self.gamma * best } else { 0.0 } - theta;
        }
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

/// The stationary mean of `max_a q - q*` at the start of rounds with `eta H = x`, and its standard error.
fn overestimation(gamma: f64, x: f64, steps: usize) -> (f64, f64) {
    const PARTS: usize = 10;
    let eta = (1.0 - gamma) / 10.0;
    let h = (x / eta).round() as usize;
    let best = 1.0 / (1.0 - (4.0 * gamma - 1.0) / 3.0);
    let fedlsa = method("fedlsa", &format!(r#"{{"step_size": {eta}, "local_steps": {h}}}"#));
    let mut run = run_from(&TwoActions::field(gamma), &*fedlsa, 7, &[best; 2]);
    // Twelve times the memory of the mean values.
    let memory = (12.0 / (eta * (1.0 - gamma) * 4.0 / 3.0)) as usize;
    (0..memory / h).for_each(|_| run.step());
    let rounds = (steps / h / PARTS).max(1);
    let part = |_: usize| {
        let one = |_: usize| {
            run.step();
            run.theta()[0].max(run.theta()[1]) - best
        };
        (0..rounds).map(one).sum::<f64>() / rounds as f64
    };
    let means: Vec<f64> = (0..PARTS).map(part).collect();
    let mean = means.iter().sum::<f64>() / PARTS as f64;
    let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (PARTS - 1) as f64;
    (mean, (variance / PARTS as f64).sqrt())
}

/// `(1/x) int_0^x sqrt(1 - exp(-2 u)) du`, by the midpoint rule.
fn share(x: f64) -> f64 {
    let n = 100_000;
    (0..n).map(|i| (1.0 - (-2.0 * x * (f64::from(i) + 0.5) / f64::from(n)).exp()).sqrt()).sum::<f64>() / f64::from(n)
}

#[test]
fn overestimation_is_a_function_of_step_size_times_local_steps() {
    for (gamma, steps) in [(0.8, 200_000), (0.9, 400_000), (0.95, 800_000)] {
        let (all, se_all) = overestimation(gamma, 8.0, steps);
        for x in [0.35, 1.0, 2.0] {
            let (some, se) = overestimation(gamma, x, steps);
            let (ratio, expected) = (some / all, share(x) / share(8.0));
            let error = ratio * ((se / some).powi(2) + (se_all / all).powi(2)).sqrt();
            assert!((ratio - expected).abs() < 3.0 * error + 0.12 * expected, "gamma {gamma}, {x}: {ratio} +- {error}, {expected}");
            assert!(error < 0.1 * expected, "gamma {gamma}, {x}: {ratio} +- {error}");
        }
    }
}
