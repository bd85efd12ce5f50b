//! The linear systems of a linear problem.
//!
//! A linear operator is `g_c(theta, z) = b_c(z) - A_c(z) theta` (\[S\] eq. 1-2). Agents with the same tables share a [`System`]: a million
//! agents on two kernels have two systems.

use std::sync::OnceLock;

use faer::Mat;

use crate::problem::root::{Root, RootSource};

use crate::error::Result;
use crate::linalg;

/// One mean operator `gbar(theta) = b - A theta`, `A = E A(z)` (d x d), `b = E b(z)` (d).
#[derive(Debug, Clone)]
pub struct System {
    /// `Abar`, d x d.
    pub a: Mat<f64>,
    /// `bbar`, d.
    pub b: Vec<f64>,
}

impl System {
    /// `gbar(theta) = b - A theta`.
    pub fn mean(&self, theta: &[f64]) -> Vec<f64> {
        linalg::mat_vec(&self.a, theta).iter().zip(&self.b).map(|(ax, b)| b - ax).collect()
    }

    /// `theta^T A theta / 2 - b^T theta`; `gbar` is minus its gradient if A is symmetric.
    pub fn loss(&self, theta: &[f64]) -> f64 {
        let product = linalg::mat_vec(&self.a, theta);
        theta.iter().zip(&product).zip(&self.b).map(|((x, ax), b)| x * (0.5 * ax - b)).sum()
    }
}

/// Second moments of one agent's samples `(A(z), b(z))` under i.i.d. sampling, one sample per step. `vec` stacks rows: entry `(i, j)` of a
/// d x d matrix is `i * d + j`.
#[derive(Debug, Clone)]
pub struct Moments {
    /// `E[A (x) A]`, d^2 x d^2: row `(i, k)`, column `(j, l)` holds `E[A_ij A_kl]`.
    pub aa: Mat<f64>,
    /// `E[A (x) b]`, d^2 x d: row `(i, k)`, column `j` holds `E[A_ij b_k]`.
    pub ab: Mat<f64>,
    /// `E[b b^T]`, d x d.
    pub bb: Mat<f64>,
}

impl Moments {
    /// The moments of samples that do not vary.
    pub fn of_mean(system: &System) -> Self {
        let (a, b, d) = (&system.a, &system.b, system.b.len());
        Self {
            aa: Mat::from_fn(d * d, d * d, |i, j| a[(i / d, j / d)] * a[(i % d, j % d)]),
            ab: Mat::from_fn(d * d, d, |i, j| a[(i / d, j)] * b[i % d]),
            bb: Mat::from_fn(d, d, |i, j| b[i] * b[j]),
        }
    }
}

/// All agents' systems, each distinct one once.
#[derive(Debug, Clone)]
pub struct Systems {
    /// The distinct systems.
    pub kinds: Vec<System>,
    /// The index into `kinds` of every agent.
    pub kind_of: Vec<u32>,
    /// The agents' weights `p_c`, summing to 1.
    pub weights: Vec<f64>,
    /// Whether all matrices are symmetric (cached).
    is_symmetric: OnceLock<bool>,
}

impl Systems {
    /// These systems. The matrices must not change after [`Systems::is_symmetric`].
    pub fn new(kinds: Vec<System>, kind_of: Vec<u32>, weights: Vec<f64>) -> Self {
        Self { kinds, kind_of, weights, is_symmetric: OnceLock::new() }
    }

    /// The dimension d.
    pub fn dim(&self) -> usize {
        self.kinds[0].b.len()
    }

    /// The same systems with `ridge I` added to every matrix.
    #[must_use]
    pub fn with_ridge(mut self, ridge: f64) -> Self {
        for system in &mut self.kinds {
            (0..system.b.len()).for_each(|i| system.a[(i, i)] += ridge);
        }
        self
    }

    /// The system of agent `c`.
    pub fn of(&self, c: usize) -> &System {
        &self.kinds[self.kind_of[c] as usize]
    }

    /// The summed weight of the agents of each kind.
    pub fn kind_weights(&self) -> Vec<f64> {
        let mut w = vec![0.0; self.kinds.len()];
        for (kind, p) in self.kind_of.iter().zip(&self.weights) {
            w[*kind as usize] += p;
        }
        w
    }

    /// Whether every `Abar_c` is symmetric, to rounding: the operators are then minus the gradients of quadratics. Cached.
    pub fn is_symmetric(&self) -> bool {
        const ROUNDING: f64 = 1e-14;
        *self.is_symmetric.get_or_init(|| {
            self.kinds.iter().all(|System { a, .. }| {
                let most = ROUNDING * a.norm_max();
                (0..a.nrows()).all(|i| (0..i).all(|j| (a[(i, j)] - a[(j, i)]).abs() <= most))
            })
        })
    }

    /// The mean system `sum_c p_c Abar_c`, `sum_c p_c bbar_c`.
    pub fn mean(&self) -> System {
        let d = self.dim();
        let mut a = Mat::<f64>::zeros(d, d);
        let mut b = vec![0.0; d];
        for (system, w) in self.kinds.iter().zip(self.kind_weights()) {
            for i in 0..d {
                for j in 0..d {
                    a[(i, j)] += w * system.a[(i, j)];
                }
                b[i] += w * system.b[i];
            }
        }
        System { a, b }
    }

    /// The root `theta*` of the mean operator (\[S\] eq. 1).
    ///
    /// # Errors
    /// When the mean system is singular or badly conditioned.
    pub fn root(&self) -> Result<Vec<f64>> {
        let mean = self.mean();
        linalg::solve(&mean.a, &mean.b).map_err(|e| e.about("").prefixed("the mean of all agents' operators"))
    }

    /// The root, or the solution of least norm if the mean system is singular or badly conditioned.
    pub fn least_root(&self) -> Root {
        let mean = self.mean();
        let solved = linalg::least_norm(&mean.a, &linalg::column(&mean.b));
        let rank = solved.rank();
        let theta = solved.x.col_as_slice(0).to_vec();
        Root { theta, source: if rank < self.dim() { RootSource::LeastNorm { rank } } else { RootSource::Linear } }
    }

    /// The root `theta*_c` of a kind's own operator; `Err` names the agent.
    pub fn local_root(&self, kind: usize) -> Result<Vec<f64>> {
        let system = &self.kinds[kind];
        linalg::solve(&system.a, &system.b).map_err(|e| {
            let agent = self.kind_of.iter().position(|k| *k as usize == kind).unwrap_or(0);
            e.about("").prefixed(format!("agent {agent}"))
        })
    }
}
