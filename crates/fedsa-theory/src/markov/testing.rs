//! The reference problems of the tests of this module.

use faer::prelude::*;

use super::joint::Joint;
use super::{AgentClass, MarkovAgent, MarkovFloor, MarkovRule, Move};
use crate::RoundSetting;
use crate::testing::Draw;
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::{Moments, System, Systems};

/// A move (from, to, p) with its `A` and `b`.
pub type Edge = (usize, usize, f64, Mat<f64>, Vec<f64>);

/// An agent in a problem's terms.
#[derive(Clone)]
pub struct Given {
    pub weight: f64,
    pub count: usize,
    pub states: usize,
    pub edges: Vec<Edge>,
}

impl Given {
    /// Samples of states in dimension 1: `A` and `b` by state.
    pub fn scalar(weight: f64, p: &[&[f64]], a: &[f64], b: &[f64]) -> Self {
        let k = a.len();
        let edge = |i: usize, j: usize| (i, j, p[i][j], linalg::from_rows(1, 1, &[a[i]]), vec![b[i]]);
        Self { weight, count: 1, states: k, edges: (0..k).flat_map(|i| (0..k).map(move |j| (i, j))).map(|(i, j)| edge(i, j)).collect() }
    }

    /// Random chains, `I + G/2` and b; `edges` for samples of moves rather than of states.
    pub fn random(draw: &mut Draw, weight: f64, k: usize, d: usize, edges: bool) -> Self {
        let samples: Vec<(Mat<f64>, Vec<f64>)> = (0..k * k).map(|_| (draw.stable_matrix(d), draw.vector(d))).collect();
        let rows: Vec<Vec<f64>> = (0..k).map(|_| (0..k).map(|_| draw.number() + 1.1).collect()).collect();
        let mut all = Vec::new();
        for i in 0..k {
            for j in 0..k {
                let (a, b) = samples[if edges { i * k + j } else { i }].clone();
                all.push((i, j, rows[i][j] / rows[i].iter().sum::<f64>(), a, b));
            }
        }
        Self { weight, count: 1, states: k, edges: all }
    }

    fn agent(&self, root: &[f64]) -> MarkovAgent {
        let move_of = |(i, j, p, a, b): &Edge| {
            let w = linalg::mat_vec(a, root).iter().zip(b).map(|(x, b)| x - b).collect();
            Move { from: *i as u32, to: *j as u32, p: *p, a: a.clone(), w }
        };
        MarkovAgent::from_moves(self.weight, root.len(), self.states, self.edges.iter().map(move_of).collect()).unwrap()
    }
}

/// The agents' classes, and theta*.
pub fn classes(given: &[Given]) -> (Vec<AgentClass>, Vec<f64>) {
    let d = given[0].edges[0].4.len();
    let (mut a, mut b) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
    for g in given {
        let agent = g.agent(&vec![0.0; d]);
        let p = g.weight * g.count as f64;
        a += Scale(p) * agent.mean_a();
        b.iter_mut().zip(agent.mean_w()).for_each(|(b, w)| *b -= p * w);
    }
    let root = linalg::solve(&a, &b).unwrap();
    (given.iter().map(|g| AgentClass { agent: g.agent(&root), count: g.count }).collect(), root)
}

/// R1: one agent in dimension 1.
pub fn r1() -> Vec<Given> {
    vec![Given::scalar(1.0, &[&[0.9, 0.1], &[0.2, 0.8]], &[1.5, 0.3], &[1.0, -1.0])]
}

/// R2: two or three heterogeneous agents in dimension 1.
pub fn r2(n: usize) -> Vec<Given> {
    let weights = if n == 2 { vec![0.625, 0.375] } else { vec![1.0 / 3.0; 3] };
    let agent = |c: usize| {
        let x = c as f64;
        let (a, b) = (0.1 + 0.15 * x, 0.25 - 0.07 * x);
        Given::scalar(weights[c], &[&[1.0 - a, a], &[b, 1.0 - b]], &[1.4 + 0.3 * x, 0.2 - 0.1 * x], &[1.0 + x, -1.0 + 0.5 * x * x])
    };
    (0..n).map(agent).collect()
}

/// R3: two classes of two-state agents, `P = lambda I + (1 - lambda) 1 pi^T`.
pub fn r3(agents: usize, lambda: f64) -> Vec<Given> {
    let weight = 1.0 / agents as f64;
    let class = |pi: [f64; 2], a: &[f64], b: &[f64]| {
        let row = |i: usize| -> Vec<f64> { (0..2).map(|j| lambda * f64::from(u8::from(i == j)) + (1.0 - lambda) * pi[j]).collect() };
        let (zero, one) = (row(0), row(1));
        Given { count: agents / 2, ..Given::scalar(weight, &[&zero, &one], a, b) }
    };
    vec![class([0.5, 0.5], &[1.6, 0.2], &[1.0, -1.0]), class([0.7, 0.3], &[0.9, -0.3], &[0.0, 2.0])]
}

/// R4: TD(0) on ten states with three features; `lazy` stays with probability .8.
pub fn r4(agents: usize, lazy: bool) -> Vec<Given> {
    let phi = |s: usize| {
        let angle = std::f64::consts::TAU * s as f64 / 10.0;
        [1.0, angle.cos(), angle.sin()].map(|x| x / 2f64.sqrt())
    };
    let agent = |c: usize| {
        let mut edges = Vec::new();
        for s in 0..10 {
            let mut p = [0.0; 10];
            for (share, to) in [(0.3, s), (0.4, (s + 1) % 10), (0.3, (s * s + c) % 10)] {
                p[to] += if lazy { 0.2 * share } else { share };
            }
            p[s] += if lazy { 0.8 } else { 0.0 };
            let reward = (s % 3) as f64 - 1.0 + 0.05 * c as f64;
            for (to, p) in p.into_iter().enumerate().filter(|(_, p)| *p > 0.0) {
                let (x, y) = (phi(s), phi(to));
                let a = Mat::from_fn(3, 3, |i, j| x[i] * (x[j] - 0.9 * y[j]));
                edges.push((s, to, p, a, x.iter().map(|x| x * reward).collect()));
            }
        }
        Given { weight: 1.0 / agents as f64, count: 1, states: 10, edges }
    };
    (0..agents).map(agent).collect()
}

/// The means and second moments of single samples under the stationary law, in the coordinates of `b = A theta* - w`.
pub fn independent(given: &[Given], root: &[f64]) -> (Systems, Vec<Moments>) {
    let d = root.len();
    let (mut kinds, mut moments) = (Vec::new(), Vec::new());
    for g in given {
        let agent = g.agent(root);
        let mut sums = Moments { aa: Mat::zeros(d * d, d * d), ab: Mat::zeros(d * d, d), bb: Mat::zeros(d, d) };
        for (q, m) in agent.charged() {
            let b: Vec<f64> = linalg::mat_vec(&m.a, root).iter().zip(&m.w).map(|(x, w)| x - w).collect();
            sums.aa += Scale(q) * Mat::from_fn(d * d, d * d, |r, c| m.a[(r / d, c / d)] * m.a[(r % d, c % d)]);
            sums.ab += Scale(q) * Mat::from_fn(d * d, d, |r, j| m.a[(r / d, j)] * b[r % d]);
            sums.bb += Scale(q) * Mat::from_fn(d, d, |i, k| b[i] * b[k]);
        }
        let b = linalg::mat_vec(&agent.mean_a(), root).iter().zip(agent.mean_w()).map(|(x, w)| x - w).collect();
        kinds.push(System { a: agent.mean_a(), b });
        moments.push(sums);
    }
    let kind_of: Vec<u32> = given.iter().zip(0..).flat_map(|(g, k)| vec![k; g.count]).collect();
    let weights = kind_of.iter().map(|k| given[*k as usize].weight).collect();
    (Systems::new(kinds, kind_of, weights), moments)
}

/// The exact floor with one sample a step; see [`Joint`].
///
/// # Errors
/// As [`Joint::new`] and [`Joint::floor`].
pub fn joint_floor(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> Result<MarkovFloor> {
    Joint::new(classes, setting, rule, 1)?.floor()
}
