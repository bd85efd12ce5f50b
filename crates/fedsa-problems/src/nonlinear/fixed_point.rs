//! The `fixed-point` problem: nonlinear operators that are no gradients. A certificate shows that the mean has exactly one root.
//!
//! Agent c has a map `F_c` of R^d. The problem is to find the fixed point of the mean map:
//!
//! ```text
//! gbar_c(theta)  = F_c(theta) - theta,    F_c(theta) = W_c tanh(theta) + b_c
//! g_c(theta, z)  = (1 + m_cz) W_c tanh(theta) + b_c + a_cz - theta
//! ```
//!
//! with tanh by component and z one of k outcomes. `W_c = W + spread (G_c - mean of all G) / sqrt(d)` with Gaussian `G_c`. W is a Gaussian
//! matrix scaled to `||W|| = contraction < 1` (2-norm). The mean of the `W_c` is therefore W for every number of agents. Since tanh is
//! 1-Lipschitz, the mean map is a contraction:
//!
//! ```text
//! <gbar(x) - gbar(y), x - y>  <=  -(1 - ||W||) ||x - y||^2
//! ```
//!
//! ([`Facts::monotone`]). Single agents are no contractions once `spread` is near 1, where `||W_c||` is about `2 spread`. Their operators
//! may then have several or unstable roots, from which local steps of one agent lead away.
//!
//! Singular values of large matrices take long. Above d = 500 the bound `2 sqrt(d) + 9` therefore replaces the norm of a Gaussian matrix;
//! one matrix in 10^17 exceeds it. W is then scaled to `||W|| <= contraction`, at least 0.8 of it. The certificate is weaker:
//! `1 - contraction`, and a Lipschitz constant of at most `1 + contraction + spread (2 + 9 / sqrt(d))`.
//!
//! The noise has mean 0 over the k outcomes. `m_cz ~ multiplicative N(0, 1)` and `a_cz ~ additive N(0, I)` are drawn once for each agent
//! and outcome, centred over the outcomes, and scaled so that their expected variance over the outcomes equals the law's variance. Outcomes
//! are drawn uniformly, or along a chain.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::index_chain;
use crate::lazy_index::{self, LazyIndex};
use crate::memory::{self, MemoryEstimate};
use crate::noise::{self, Noise};
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::facts::{Facts, Monotone};
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::{Field, Problem, equal_weights};
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::sampling::Sampling;

/// The `fixed-point` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FixedPoint {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// Dimension d.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub dim: usize,
    /// `||W||`, the contraction constant of the mean map.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub contraction: f64,
    /// Difference of the agents' matrices.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub spread: f64,
    /// `b_c ~ offsets N(0, I)`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub offsets: f64,
    /// Outcomes k.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = index_chain::MAX_STATES)))]
    pub outcomes: usize,
    /// Standard deviation of `a_cz`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub additive: f64,
    /// Standard deviation of `m_cz`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub multiplicative: f64,
    /// Mixing time, up to 1e9.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub mixing_time: f64,
    /// Seed.
    pub seed: u64,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { FixedPoint {
    with_agents(agents: usize) = agents;
    with_dim(dim: usize) = dim;
    with_contraction(contraction: f64) = contraction;
    with_spread(spread: f64) = spread;
    with_offsets(offsets: f64) = offsets;
    with_outcomes(outcomes: usize) = outcomes;
    with_additive(additive: f64) = additive;
    with_multiplicative(multiplicative: f64) = multiplicative;
    with_mixing_time(mixing_time: f64) = mixing_time;
    with_seed(seed: u64) = seed;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for FixedPoint {
    fn default() -> Self {
        Self {
            agents: 10,
            dim: 10,
            contraction: 0.5,
            spread: 1.0,
            offsets: 1.0,
            outcomes: 8,
            additive: 0.3,
            multiplicative: 0.3,
            mixing_time: 1.0,
            seed: 0,
            noise: None,
        }
    }
}

impl FixedPoint {
    /// The matrices `W_c`, column by column: N x d x d.
    fn matrices(&self) -> Vec<f64> {
        let (d, size) = (self.dim, self.dim * self.dim);
        let mut s = stream(self.seed, Purpose::System, 1, ALL);
        let mut mean: Vec<f64> = (0..size).map(|_| s.normal()).collect();
        let norm = if is_large(d) { gaussian_norm(d) } else { linalg::norm2(&linalg::from_rows(d, d, &mean)) };
        mean.iter_mut().for_each(|w| *w *= self.contraction / norm);
        let scale = self.spread / (d as f64).sqrt();
        let mut all = Vec::with_capacity(self.agents * size);
        for c in 0..self.agents {
            let mut s = stream(self.seed, Purpose::System, 0, c);
            all.extend((0..size).map(|_| scale * s.normal()));
        }
        centre(&mut all, size);
        all.chunks_mut(size).for_each(|w| w.iter_mut().zip(&mean).for_each(|(w, mean)| *w += mean));
        all
    }

    /// The noise of agent `c`: `1 + m_cz` and then `a_cz` for every outcome, k x (d + 1).
    fn noise_of(&self, c: usize) -> Vec<f64> {
        let (d, k) = (self.dim, self.outcomes);
        // Centring k draws removes 1/k of their variance.
        let whole = if k > 1 { (k as f64 / (k as f64 - 1.0)).sqrt() } else { 0.0 };
        let mut s = stream(self.seed, Purpose::Noise, 0, c);
        let std = |i: usize| whole * if i == 0 { self.multiplicative } else { self.additive };
        let mut noise: Vec<f64> = (0..k * (d + 1)).map(|i| std(i % (d + 1)) * s.normal()).collect();
        centre(&mut noise, d + 1);
        noise.chunks_mut(d + 1).for_each(|z| z[0] += 1.0);
        noise
    }
}

/// Whether singular values of d x d matrices would take too long.
fn is_large(d: usize) -> bool {
    d > linalg::MAX_FOR_NORM
}

/// A bound of the norm of a d x d matrix of independent N(0, 1) entries. `E ||G|| <= 2 sqrt(d)`, and `||G||` exceeds its mean by t with a
/// probability of at most `exp(-t^2 / 2)`, 3e-18 for t = 9 (Davidson, Szarek 2001, theorem II.13).
fn gaussian_norm(d: usize) -> f64 {
    2.0 * (d as f64).sqrt() + 9.0
}

/// Subtracts the mean from vectors of `len` numbers.
fn centre(vectors: &mut [f64], len: usize) {
    let n = (vectors.len() / len) as f64;
    let mut mean = vec![0.0; len];
    vectors.chunks(len).for_each(|v| mean.iter_mut().zip(v).for_each(|(mean, x)| *mean += x / n));
    vectors.chunks_mut(len).for_each(|v| v.iter_mut().zip(&mean).for_each(|(x, mean)| *x -= mean));
}

impl ProblemSettings for FixedPoint {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        index_chain::check_mixing_time(self.mixing_time)?;
        crate::check_linear(self.agents, self.dim)?;
        let in_range = (0.0..1.0).contains(&self.contraction);
        require(in_range, "contraction", self.contraction, "in [0, 1), so that the mean map is a contraction")?;
        for (key, x) in
            [("spread", self.spread), ("offsets", self.offsets), ("additive", self.additive), ("multiplicative", self.multiplicative)]
        {
            require((0.0..=1e100).contains(&x), key, format!("{x:?}"), "from 0 to 1e100")?;
        }
        require(
            (1..=index_chain::MAX_STATES).contains(&self.outcomes),
            "outcomes",
            self.outcomes,
            &format!("between 1 and {}", index_chain::MAX_STATES),
        )?;
        crate::check_size("outcomes", &[self.agents, self.outcomes, self.dim])
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        lazy_index::without_effect(self.mixing_time, sampling).or_else(|| self.noise.as_ref()?.without_effect(sampling))
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let index = LazyIndex::new(self.outcomes, self.mixing_time, sampling)?;
        let offsets = |c: usize| {
            let mut s = stream(self.seed, Purpose::System, 2, c);
            (0..self.dim).map(move |_| self.offsets * s.normal())
        };
        let problem = Map {
            d: self.dim,
            matrices: self.matrices(),
            offsets: (0..self.agents).flat_map(offsets).collect(),
            noise: (0..self.agents).flat_map(|c| self.noise_of(c)).collect(),
            outcomes: self.outcomes,
            contraction: self.contraction,
            spread: self.spread,
            index,
            weights: equal_weights(self.agents),
        };
        noise::field(problem, self.noise.as_ref(), sampling, isa, false)
    }

    fn memory(&self, _: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (n, d, k) = (self.agents as f64, self.dim as f64, self.outcomes as f64);
        let kept = 8.0 * n * (d * d + d + k * (d + 1.0) + 1.0);
        let making = memory::jacobians(n, d, threads);
        let text = format!("{}, d = {}, {} outcomes", memory::agents(self.agents), self.dim, self.outcomes);
        let sizes = noise::with_noise((kept + making, kept), self.noise.as_ref(), self.agents, self.dim);
        Ok(MemoryEstimate::new(sizes, text))
    }
}

/// The maps of all agents.
#[derive(Debug)]
struct Map {
    d: usize,
    /// `W_c`, column by column, N x d x d.
    matrices: Vec<f64>,
    /// `b_c`, N x d.
    offsets: Vec<f64>,
    /// `1 + m_cz` and `a_cz`, N x k x (d + 1).
    noise: Vec<f64>,
    outcomes: usize,
    contraction: f64,
    spread: f64,
    index: LazyIndex,
    weights: Vec<f64>,
}

impl Map {
    /// The columns of `W_c`.
    fn columns(&self, c: usize) -> &[f64] {
        &self.matrices[c * self.d * self.d..][..self.d * self.d]
    }

    fn matrix(&self, c: usize) -> Mat<f64> {
        let columns = self.columns(c);
        Mat::from_fn(self.d, self.d, |i, j| columns[j * self.d + i])
    }

    /// Adds `scale W_c tanh(theta) + b_c - theta` to `out`.
    #[inline(always)]
    fn add(&self, c: usize, theta: &[f64], scale: f64, out: &mut [f64]) {
        for ((out, b), theta) in out.iter_mut().zip(&self.offsets[c * self.d..]).zip(theta) {
            *out += b - theta;
        }
        for (theta, column) in theta.iter().zip(self.columns(c).chunks(self.d)) {
            let t = scale * theta.tanh();
            out.iter_mut().zip(column).for_each(|(out, w)| *out = t.mul_add(*w, *out));
        }
    }
}

impl Problem for Map {
    /// The outcome.
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
    fn sample(&self, _: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.index.sample(chain, stream);
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let noise = &self.noise[(c * self.outcomes + z) * (self.d + 1)..][..self.d + 1];
        out.copy_from_slice(&noise[1..]);
        self.add(c, theta, noise[0], out);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        out.fill(0.0);
        self.add(c, theta, 1.0, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Map {
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        let columns = self.columns(c);
        for (j, theta) in theta.iter().enumerate() {
            let slope = 1.0 - theta.tanh().powi(2);
            (0..self.d).for_each(|i| out[(i, j)] = columns[j * self.d + i] * slope - f64::from(i == j));
        }
        true
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        Some(self.index.law(self.d, move |z, theta, out| self.apply(c, theta, &z, out)))
    }
    fn monotone(&self) -> Option<Monotone> {
        if is_large(self.d) {
            // Entries of a Gaussian matrix minus the mean of N such matrices have the variance 1 - 1/N.
            let size = (1.0 - 1.0 / self.weights.len() as f64).sqrt() * gaussian_norm(self.d) / (self.d as f64).sqrt();
            return Monotone::of(1.0 - self.contraction, 1.0 + self.contraction + self.spread * size);
        }
        let mut mean = Mat::zeros(self.d, self.d);
        let mut largest = 0.0f64;
        for (c, p) in self.weights.iter().enumerate() {
            let own = self.matrix(c);
            largest = largest.max(linalg::norm2(&own));
            mean += faer::Scale(*p) * own;
        }
        Monotone::of(1.0 - linalg::norm2(&mean), 1.0 + largest)
    }
    /// A matrix product, and d hyperbolic tangents, each as slow as some 20 multiplications.
    fn step_work(&self) -> Option<usize> {
        Some(self.d * (self.d + 20))
    }
}
