//! A problem: an agent evaluates one row of its linear system at a time, drawn at random.
//!
//! `g_c(theta, z) = d (b_c - A_c theta)_z e_z`, z uniform on the d rows; its mean is `b_c - A_c theta`.

use std::sync::Arc;

use fedsa::error::require;
use fedsa::linalg::Mat;
use fedsa::prelude::*;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Facts, Sampled, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa_problems::{Files, ProblemSettings, memory};
use serde::{Deserialize, Serialize};

/// The keys of `[problem]`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The number of agents N.
    pub agents: usize,
    /// The dimension d.
    pub dim: usize,
    /// The standard deviation of the entries of `A_c` around I, and of those of `b_c` around 1.
    pub spread: f64,
    /// The problem's own seed.
    #[serde(default)]
    pub seed: u64,
}

/// The agents' systems, whose rows are sampled.
struct SampledRows(Systems);

impl ProblemSettings for Rows {
    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let (n, d) = (self.agents, self.dim);
        require((1..=100_000).contains(&n), "agents", n, "between 1 and 100000")?;
        require((1..=1000).contains(&d), "dim", d, "between 1 and 1000")?;
        require((0.0..1e100).contains(&self.spread), "spread", self.spread, "at least 0")?;
        let system = |c: usize| {
            let mut draws = stream(self.seed, Purpose::System, 0, c);
            let mut around = |mean: f64| mean + self.spread * draws.normal();
            let a = Mat::from_fn(d, d, |i, j| around(if i == j { 1.0 } else { 0.0 }));
            System { a, b: (0..d).map(|_| around(1.0)).collect() }
        };
        let (kind_of, weights) = ((0..n as u32).collect(), equal_weights(n));
        let systems = Systems::new((0..n).map(system).collect(), kind_of, weights);
        Ok(Arc::new(Sampled::new(SampledRows(systems), sampling, isa)?))
    }

    fn memory(&self, _: &dyn Files, _: Sampling, _: usize) -> Result<memory::MemoryEstimate> {
        let kept = self.agents as f64 * memory::matrix(self.dim as f64, self.dim as f64 + 1.0);
        Ok(memory::MemoryEstimate { peak: 2.0 * kept, kept, sizes: format!("{} agents, d = {}", self.agents, self.dim) })
    }
}

impl Problem for SampledRows {
    type Obs = usize;
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.0.weights
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = (stream.uniform() * self.dim() as f64) as usize;
    }
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let System { a, b } = self.0.of(c);
        let row = b[*z] - theta.iter().enumerate().map(|(j, theta)| a[(*z, j)] * theta).sum::<f64>();
        out.fill(0.0);
        out[*z] = theta.len() as f64 * row;
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        out.copy_from_slice(&self.0.of(c).mean(theta));
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

/// The operators are linear and a sample has d values: theory knows limits, rates and floors.
impl Facts for SampledRows {
    fn systems(&self) -> Option<&Systems> {
        Some(&self.0)
    }
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        let (System { a, b }, d) = (&self.0.kinds[kind], self.0.dim());
        Some(FiniteLaw::linear(d, vec![1.0 / d as f64; d], move |z, to_a, to_b| {
            let scale = |i: usize| if i == z { d as f64 } else { 0.0 };
            (0..d * d).for_each(|k| to_a[k] = scale(k / d) * a[(k / d, k % d)]);
            (0..d).for_each(|i| to_b[i] = scale(i) * b[i]);
        }))
    }
}
