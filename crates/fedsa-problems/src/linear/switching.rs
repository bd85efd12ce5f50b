//! Linear operators that switch along a chain: `g_c(theta, z) = b_c - a(z) theta`.
//!
//! With probability `1 / mixing_time` the chain draws its next state uniformly, otherwise it stays. Its second eigenvalue is
//! `1 - 1 / mixing_time`, and its stationary law is uniform. Two states with a in {3, -1} show how mixing limits the step size.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::lazy_index::{self, LazyIndex};
use crate::memory::{self, MemoryEstimate};
use crate::noise::{self, Noise};
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Field, Problem, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::Sampling;

/// The `switching` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Switching {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub agents: usize,
    /// Dimension d.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub dim: usize,
    /// `a(z)` of each state.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub values: Vec<f64>,
    /// Mixing time, up to 1e9.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub mixing_time: f64,
    /// `b_c ~ spread N(0, I)`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub spread: f64,
    /// Seed.
    pub seed: u64,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { Switching {
    with_agents(agents: usize) = agents;
    with_dim(dim: usize) = dim;
    with_values(values: Vec<f64>) = values;
    with_mixing_time(mixing_time: f64) = mixing_time;
    with_spread(spread: f64) = spread;
    with_seed(seed: u64) = seed;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for Switching {
    fn default() -> Self {
        Self { agents: 1, dim: 1, values: vec![3.0, -1.0], mixing_time: 1.0, spread: 0.0, seed: 0, noise: None }
    }
}

impl ProblemSettings for Switching {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        crate::index_chain::check_mixing_time(self.mixing_time)?;
        crate::check_linear(self.agents, self.dim)?;
        let usable = !self.values.is_empty() && self.values.iter().all(|a| a.is_finite());
        require(usable, "values", format!("{:?}", self.values), "finite numbers")?;
        crate::check_spread(self.spread)
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        lazy_index::without_effect(self.mixing_time, sampling).or_else(|| self.noise.as_ref()?.without_effect(sampling))
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let state = LazyIndex::new(self.values.len(), self.mixing_time, sampling)?;
        let mean = self.values.iter().sum::<f64>() / self.values.len() as f64;
        let system = |c| {
            let mut s = stream(self.seed, Purpose::System, 0, c);
            let b = (0..self.dim).map(|_| self.spread * s.normal()).collect();
            System { a: Mat::from_fn(self.dim, self.dim, |i, j| if i == j { mean } else { 0.0 }), b }
        };
        let kinds = (0..self.agents).map(system).collect();
        let systems = Systems::new(kinds, (0..self.agents as u32).collect(), equal_weights(self.agents));
        noise::field(Chained { values: self.values.clone(), systems, state }, self.noise.as_ref(), sampling, isa, false)
    }

    fn memory(&self, _: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let bytes = memory::linear(self.agents as f64, self.dim as f64, false, 0.0, threads);
        let bytes = noise::with_noise(bytes, self.noise.as_ref(), self.agents, self.dim);
        Ok(MemoryEstimate::new(bytes, format!("{}, d = {}", memory::agents(self.agents), self.dim)))
    }
}

#[derive(Debug)]
struct Chained {
    /// a(z) of each state.
    values: Vec<f64>,
    systems: Systems,
    state: LazyIndex,
}

impl Problem for Chained {
    /// The state z.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.systems.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.systems.weights
    }
    fn chain_len(&self) -> usize {
        self.state.words()
    }
    fn start_chain(&self, _: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.state.start(stream, chain);
    }
    fn is_state(&self, _: usize, chain: &[u64]) -> bool {
        self.state.is_state(chain)
    }
    #[inline(always)]
    fn sample(&self, _: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.state.sample(chain, stream);
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let (a, b) = (self.values[*z], &self.systems.of(c).b);
        for ((out, theta), b) in out.iter_mut().zip(theta).zip(b) {
            *out = b - a * theta;
        }
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        out.copy_from_slice(&self.systems.of(c).mean(theta));
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Chained {
    fn systems(&self) -> Option<&Systems> {
        Some(&self.systems)
    }
    /// A sample is a move between states and sees the first one.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        let (values, b) = (&self.values, &self.systems.kinds[kind].b);
        let (d, n, (mass, chain)) = (b.len(), values.len(), self.state.moves());
        let law = FiniteLaw::linear(d, mass, move |z, a, to_b| {
            a.fill(0.0);
            (0..d).for_each(|i| a[i * d + i] = values[z / n]);
            to_b.copy_from_slice(b);
        });
        Some(law.with_chain(chain))
    }
}
