//! The `random-logistic` problem: nonlinear operators that are gradients, on data that is generated.
//!
//! Agent c holds n rows `x_j` in R^d with labels `y_j` in {-1, 1}. With the ridge mu > 0
//!
//! ```text
//! f_c(theta)      = (1/n) sum_j log(1 + exp(-y_j x_j^T theta)) + (mu/2) ||theta||^2
//! g_c(theta, j)   = y_j x_j / (1 + exp(y_j x_j^T theta)) - mu theta
//! gbar_c(theta)   = -grad f_c(theta)
//! ```
//!
//! Every `f_c` is mu-strongly convex, and its gradient Lipschitz with the constant `mu + lambda_max(X_c^T X_c / n) / 4`: the
//! certificate of [`Facts::monotone`]. Where both n and d are above 500, `lambda_max` is replaced by a cheap upper bound, the
//! largest sum of the absolute values of a row, and the certificate is weaker. The root is the optimum of `(1/N) sum_c f_c`.
//!
//! The data of agent c depend on the seed and c only. Its rows are N(m_c, I) with `m_c ~ shift N(0, I/d)`, its labels are 1 with
//! probability `1 / (1 + exp(-x^T w_c))`, `w_c = w + spread u_c`, with w and `u_c ~ N(0, I/d)`. Agents differ by `spread` in
//! their labels and by `shift` in their rows.
//!
//! Samples are indices: uniform and independent, or along a chain that draws its index anew with
//! probability `1 / mixing_time`.

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::facts::{Facts, Monotone};
use super::law::FiniteLaw;
use super::lazy_index::{self, LazyIndex};
use super::memory::{self, MemoryEstimate};
use super::noise::{self, Noise};
use super::objective::Objective;
use super::{Field, Files, Problem, ProblemSettings, equal_weights};
use crate::error::{BadInput, Result, require};
use crate::kernel::{Isa, dot};
use crate::linalg;
use crate::random::{ALL, Purpose, Stream, stream};
use crate::sampling::{Law, Sampling};

/// The `random-logistic` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomLogistic {
    /// The number of agents N. Agent c is the same for every N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::problem::MAX_AGENTS)))]
    pub agents: usize,
    /// The dimension d.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub dim: usize,
    /// The number n of rows of an agent.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = lazy_index::MOST)))]
    pub points: usize,
    /// mu: `mu/2 ||theta||^2` is added to every loss.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub ridge: f64,
    /// How far the weights behind the agents' labels are from each other.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub spread: f64,
    /// How far the means of the agents' rows are from 0.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub shift: f64,
    /// From 1 to 1e9: along a trajectory the index is drawn anew with probability 1 / mixing_time.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub mixing_time: f64,
    /// The problem's own seed.
    pub seed: u64,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

impl Default for RandomLogistic {
    fn default() -> Self {
        Self { agents: 10, dim: 10, points: 50, ridge: 0.1, spread: 1.0, shift: 0.5, mixing_time: 1.0, seed: 0, noise: None }
    }
}

impl RandomLogistic {
    fn check(&self) -> Result<()> {
        super::check_linear(self.agents, self.dim)?;
        require((1..=lazy_index::MOST).contains(&self.points), "points", self.points, &format!("between 1 and {}", lazy_index::MOST))?;
        super::check_size("points", &[self.agents, self.points, self.dim])?;
        require(
            self.ridge > 0.0 && self.ridge.is_finite(),
            "ridge",
            self.ridge,
            "a positive number, which makes every loss strongly convex",
        )?;
        super::check_spread(self.spread)?;
        require((0.0..=1e300).contains(&self.shift), "shift", format!("{:?}", self.shift), "from 0 to 1e300")
    }

    /// The signed rows `y_j x_j` of agent `c`, n x d.
    fn rows(&self, c: usize, w: &[f64]) -> Vec<f64> {
        let d = self.dim;
        let scale = 1.0 / (d as f64).sqrt();
        let mut s = stream(self.seed, Purpose::System, 0, c);
        let mean: Vec<f64> = (0..d).map(|_| self.shift * scale * s.normal()).collect();
        let own: Vec<f64> = w.iter().map(|w| w + self.spread * scale * s.normal()).collect();
        let mut rows = Vec::with_capacity(self.points * d);
        for _ in 0..self.points {
            let x: Vec<f64> = mean.iter().map(|mean| mean + s.normal()).collect();
            let y = if s.uniform() < sigmoid(dot(&x, &own)) { 1.0 } else { -1.0 };
            rows.extend(x.iter().map(|x| y * x));
        }
        rows
    }
}

impl ProblemSettings for RandomLogistic {
    fn without_effect(&self, sampling: &Sampling) -> Option<BadInput> {
        lazy_index::without_effect(self.mixing_time, sampling).or_else(|| self.noise.as_ref()?.without_effect(sampling))
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        self.check()?;
        let index = LazyIndex::new(self.points, self.mixing_time, sampling)?;
        let mut s = stream(self.seed, Purpose::System, 1, ALL);
        let w: Vec<f64> = (0..self.dim).map(|_| s.normal() / (self.dim as f64).sqrt()).collect();
        let rows = (0..self.agents).flat_map(|c| self.rows(c, &w)).collect();
        let problem = Logistic {
            d: self.dim,
            n: self.points,
            rows,
            ridge: self.ridge,
            index,
            is_mean: sampling.kind == Law::Mean,
            weights: equal_weights(self.agents),
        };
        noise::field(problem, self.noise.as_ref(), sampling, isa, false)
    }

    fn memory(&self, _: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (n, d) = (self.agents as f64, self.dim as f64);
        let rows = 8.0 * n * (self.points as f64 * d + 1.0);
        // Newton's method sums Jacobians in 64 groups and factorises their mean.
        let root = memory::jacobians(n, d, threads);
        let text = format!("{}, {} rows each, d = {}", memory::agents(self.agents), self.points, self.dim);
        let sizes = memory::with_noise((rows + root, rows), self.noise.as_ref(), self.agents, self.dim);
        Ok(MemoryEstimate::new(sizes, text))
    }
}

/// `1 / (1 + exp(-t))`.
#[inline(always)]
fn sigmoid(t: f64) -> f64 {
    1.0 / (1.0 + (-t).exp())
}

/// The data of all agents.
#[derive(Debug)]
struct Logistic {
    d: usize,
    n: usize,
    /// `y_j x_j`, N x n x d in row-major order.
    rows: Vec<f64>,
    ridge: f64,
    index: LazyIndex,
    is_mean: bool,
    weights: Vec<f64>,
}

impl Logistic {
    /// The signed rows of agent `c`.
    fn rows(&self, c: usize) -> impl Iterator<Item = &[f64]> {
        self.rows[c * self.n * self.d..][..self.n * self.d].chunks(self.d)
    }

    /// `out = sum_j weight(y_j x_j^T theta) y_j x_j / n + scale v`.
    #[inline(always)]
    fn sum(&self, c: usize, theta: &[f64], scale: f64, v: &[f64], out: &mut [f64], weight: impl Fn(f64, &[f64]) -> f64) {
        out.fill(0.0);
        for row in self.rows(c) {
            let weight = weight(dot(row, theta), row);
            out.iter_mut().zip(row).for_each(|(out, x)| *out = weight.mul_add(*x, *out));
        }
        out.iter_mut().zip(v).for_each(|(out, v)| *out = *out / self.n as f64 + scale * v);
    }
}

impl Problem for Logistic {
    /// The index of a row.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.d
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        self.index.words()
    }
    fn start_chain(&self, _: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.index.start(stream, chain);
    }
    fn is_state(&self, _: usize, chain: &[u64]) -> bool {
        self.index.is_state(chain)
    }
    #[inline(always)]
    fn sample(&self, _: usize, chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.index.sample(chain, stream);
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let row = &self.rows[(c * self.n + z) * self.d..][..self.d];
        let pull = sigmoid(-dot(row, theta));
        for ((out, x), theta) in out.iter_mut().zip(row).zip(theta) {
            *out = pull * x - self.ridge * theta;
        }
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.sum(c, theta, -self.ridge, theta, out, |t, _| sigmoid(-t));
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Logistic {
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        Some(self.index.law(self.d, move |j, theta, out| self.apply(c, theta, &j, out)))
    }
    fn monotone(&self) -> Option<Monotone> {
        let top = |c: usize| {
            let rows: Vec<f64> = self.rows(c).flatten().copied().collect();
            let rows = linalg::from_rows(self.n, self.d, &rows);
            // X^T X and X X^T have the same largest eigenvalue: that of the smaller one.
            let factor: linalg::MatRef<'_, f64> = if self.n < self.d { rows.as_ref() } else { rows.transpose() };
            let mut gram = Mat::zeros(factor.nrows(), factor.nrows());
            linalg::add_outer(&mut gram, factor, factor);
            linalg::norm2_bound(&gram) / self.n as f64
        };
        let lipschitz = (0..self.weights.len()).map(|c| self.ridge + top(c) / 4.0).fold(0.0, f64::max);
        Some(Monotone { modulus: self.ridge, lipschitz })
    }
    /// Two products with each row, and an exponential, which takes as long as some 20 multiplications.
    fn step_work(&self) -> Option<usize> {
        Some(if self.is_mean { self.n } else { 1 } * (2 * self.d + 20))
    }
}

impl Objective for Logistic {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        // log(1 + exp(-t)) without overflow.
        let log = |t: f64| (-t).max(0.0) + (-t.abs()).exp().ln_1p();
        let losses: f64 = self.rows(c).map(|row| log(dot(row, theta))).sum();
        losses / self.n as f64 + self.ridge / 2.0 * linalg::norm_sq(theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.sum(c, theta, self.ridge, theta, out, |t, _| -sigmoid(-t));
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        out.fill(0.0);
        for row in self.rows(c) {
            let pull = sigmoid(-dot(row, theta));
            let bend = pull * (1.0 - pull) / self.n as f64;
            for j in 0..self.d {
                (0..self.d).for_each(|i| out[(i, j)] += bend * (row[i] * row[j]));
            }
        }
        (0..self.d).for_each(|i| out[(i, i)] += self.ridge);
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        let bend = |t: f64, row: &[f64]| {
            let pull = sigmoid(-t);
            pull * (1.0 - pull) * dot(row, v)
        };
        self.sum(c, theta, self.ridge, v, out, bend);
    }
}
