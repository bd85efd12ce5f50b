//! Tests of the closure against reference numbers, the exact joint chain and the recursions for independent samples.

use super::*;
use crate::theory::markov::MarkovAgent;
use crate::theory::markov::chain::Move;

/// A problem: moves (from, to, p) with (A, b) of each agent, their weights and counts.
pub struct Problem {
    pub agents: Vec<Samples>,
}

/// One agent: weight, count, states, and moves with their samples.
pub struct Samples {
    pub weight: f64,
    pub count: usize,
    pub states: usize,
    pub moves: Vec<(u32, u32, f64, Mat<f64>, Vec<f64>)>,
}

impl Samples {
    /// Scalar samples of states.
    pub fn of_states(weight: f64, count: usize, p: &[&[f64]], a: &[f64], b: &[f64]) -> Self {
        let mut moves = Vec::new();
        for (i, row) in p.iter().enumerate() {
            for (j, q) in row.iter().enumerate() {
                moves.push((i as u32, j as u32, *q, Mat::full(1, 1, a[i]), vec![b[i]]));
            }
        }
        Self { weight, count, states: p.len(), moves }
    }

    fn agent(&self, root: &[f64]) -> MarkovAgent {
        let shifted = |a: &Mat<f64>, b: &[f64]| linalg::mat_vec(a, root).iter().zip(b).map(|(x, b)| x - b).collect();
        let moves = (self.moves.iter()).map(|(i, j, p, a, b)| Move { from: *i, to: *j, p: *p, a: a.clone(), w: shifted(a, b) });
        MarkovAgent::from_moves(self.weight, root.len(), self.states, moves.collect()).unwrap()
    }
}

impl Problem {
    /// The classes, with the global root.
    pub fn classes(&self) -> (Vec<AgentClass>, Vec<f64>) {
        let d = self.agents[0].moves[0].4.len();
        let (mut a, mut b) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
        for samples in &self.agents {
            // With root 0, w is -b.
            let agent = samples.agent(&vec![0.0; d]);
            let weight = samples.weight * samples.count as f64;
            a += faer::Scale(weight) * agent.mean_a();
            b.iter_mut().zip(agent.mean_w()).for_each(|(b, w)| *b -= weight * w);
        }
        let root = linalg::solve(&a, &b).unwrap();
        (self.agents.iter().map(|s| AgentClass { agent: s.agent(&root), count: s.count }).collect(), root)
    }
}

/// Reference agents of two states, different from each other.
pub fn two_states(n: usize) -> Problem {
    let weights: &[f64] = if n == 2 { &[0.625, 0.375] } else { &vec![1.0 / n as f64; n] };
    let agent = |k: usize| {
        let c = k as f64;
        let (up, down) = (0.1 + 0.15 * c, 0.25 - 0.07 * c);
        let p: [&[f64]; 2] = [&[1.0 - up, up], &[down, 1.0 - down]];
        Samples::of_states(weights[k], 1, &p, &[1.4 + 0.3 * c, 0.2 - 0.1 * c], &[1.0 + c, -1.0 + 0.5 * c * c])
    };
    Problem { agents: (0..n).map(agent).collect() }
}

/// Temporal differences on ten states, agent c of n.
pub fn td(c: usize, n: usize, lazy: bool) -> Samples {
    let phi = |s: usize| {
        let angle = std::f64::consts::TAU * s as f64 / 10.0;
        [1.0, angle.cos(), angle.sin()].map(|x| x / 2f64.sqrt())
    };
    let mut moves = Vec::new();
    for s in 0..10 {
        let reward = (s % 3) as f64 - 1.0 + 0.05 * c as f64;
        let mut add = |to: usize, p: f64| {
            let (now, next) = (phi(s), phi(to));
            let a = Mat::from_fn(3, 3, |i, j| now[i] * (now[j] - 0.9 * next[j]));
            moves.push((s as u32, to as u32, p, a, now.map(|x| x * reward).to_vec()));
        };
        let p = if lazy { 0.2 } else { 1.0 };
        add(s, 0.3 * p + 1.0 - p);
        add((s + 1) % 10, 0.4 * p);
        add((s * s + c) % 10, 0.3 * p);
    }
    Samples { weight: 1.0 / n as f64, count: 1, states: 10, moves }
}

fn floor(problem: &Problem, eta: f64, h: u64, rule: Rule) -> MarkovFloor {
    let (classes, _) = problem.classes();
    Closure::new(&classes, &RoundSetting::new(eta, h).unwrap(), rule).unwrap().floor().unwrap()
}

fn close(got: f64, want: f64, relative: f64, what: &str) {
    assert!((got - want).abs() <= relative * want.abs(), "{what}: {got:.12e} {want:.12e}");
}

#[test]
fn reference_floors_of_two_and_three_agents() {
    use Rule::{FedHsa, FedLsa, Scafflsa};
    let table = [
        (2, FedLsa, 1, 0.0307600406, 0.2062426711),
        (2, Scafflsa, 1, 0.0307600406, 0.2062426711),
        (2, FedLsa, 3, 0.0317230778, 0.2501711181),
        (2, FedHsa, 3, 0.0308628545, 0.2070474612),
        (2, Scafflsa, 3, 0.0314386869, 0.2413936317),
        (3, FedLsa, 1, 0.0040078457, 0.0240690134),
        (3, Scafflsa, 1, 0.0040078457, 0.0240690134),
        (3, FedLsa, 3, 0.0043223110, 0.0444000673),
        (3, FedHsa, 3, 0.0040259311, 0.0245585249),
        (3, Scafflsa, 3, 0.0041123398, 0.0288599793),
    ];
    for (n, rule, h, small, large) in table {
        for (eta, want) in [(0.05, small), (0.3, large)] {
            let got = floor(&two_states(n), eta, h, rule).mse;
            println!("{n} {rule:?} {h} {eta}: {got:.10} {want:.10}");
            assert!((got - want).abs() < 1e-10, "{n} {rule:?} {h} {eta}: {got:.10} {want:.10}");
        }
    }
}
