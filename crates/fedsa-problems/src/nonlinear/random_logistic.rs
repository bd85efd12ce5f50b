//! The `random-logistic` problem: nonlinear operators that are gradients, on generated data.
//!
//! Agent c holds n rows `x_j` in R^d with labels `y_j` in {-1, 1}. With the ridge mu > 0
//!
//! ```text
//! f_c(theta)      = (1/n) sum_j log(1 + exp(-y_j x_j^T theta)) + (mu/2) ||theta||^2
//! g_c(theta, j)   = y_j x_j / (1 + exp(y_j x_j^T theta)) - mu theta
//! gbar_c(theta)   = -grad f_c(theta)
//! ```
//!
//! Every `f_c` is mu-strongly convex. Its gradient has the Lipschitz constant `mu + lambda_max(X_c^T X_c / n) / 4`, for the certificate of
//! [`fedsa::problem::facts::Facts::monotone`]. Above d = 500, a cheap upper bound replaces `lambda_max`: the largest sum of absolute values
//! of a row. The certificate is then weaker. The root is the optimum of `(1/N) sum_c f_c`. [`mod@crate::rows::regression`] computes the
//! losses, their derivatives and the optimum.
//!
//! The data of agent c depend on the seed and c only. Its rows are N(m_c, I) with `m_c ~ shift N(0, I/d)`. Its labels are 1 with
//! probability `1 / (1 + exp(-x^T w_c))`, `w_c = w + spread u_c`, with w and `u_c ~ N(0, I/d)`.
//!
//! With `base_agents = B`, agent c has the data of agent c mod B.
//!
//! Samples are indices: uniform and independent, or along a chain that draws a new index with probability `1 / mixing_time`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::index_chain;
use crate::lazy_index;
use crate::memory::{self, MemoryEstimate};
use crate::noise::{self, Noise};
use crate::rows::dataset::Rows;
use crate::rows::regression::loss::{LogLoss, sigmoid};
use crate::rows::regression::{Parts, Regression};
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Isa, dot};
use fedsa::problem::{Field, equal_weights};
use fedsa::random::{ALL, Purpose, stream};
use fedsa::sampling::Sampling;

/// The `random-logistic` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RandomLogistic {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// Dimension d.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub dim: usize,
    /// Rows n per agent.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = index_chain::MAX_STATES)))]
    pub points: usize,
    /// Adds `ridge/2 ||theta||^2` to losses.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub ridge: f64,
    /// Difference of the agents' labels.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub spread: f64,
    /// Difference of the agents' rows.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub shift: f64,
    /// Distinct agents B: agent c copies agent c mod B.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub base_agents: Option<usize>,
    /// Mixing time, up to 1e9.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub mixing_time: f64,
    /// Seed.
    pub seed: u64,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { RandomLogistic {
    with_agents(agents: usize) = agents;
    with_dim(dim: usize) = dim;
    with_points(points: usize) = points;
    with_ridge(ridge: f64) = ridge;
    with_spread(spread: f64) = spread;
    with_shift(shift: f64) = shift;
    with_base_agents(base_agents: impl Into<Option<usize>>) = base_agents.into();
    with_mixing_time(mixing_time: f64) = mixing_time;
    with_seed(seed: u64) = seed;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for RandomLogistic {
    fn default() -> Self {
        Self {
            agents: 10,
            dim: 10,
            points: 50,
            ridge: 0.1,
            spread: 1.0,
            shift: 0.5,
            base_agents: None,
            mixing_time: 1.0,
            seed: 0,
            noise: None,
        }
    }
}

impl RandomLogistic {
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
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        index_chain::check_mixing_time(self.mixing_time)?;
        crate::check_linear(self.agents, self.dim)?;
        require(
            (1..=index_chain::MAX_STATES).contains(&self.points),
            "points",
            self.points,
            &format!("between 1 and {}", index_chain::MAX_STATES),
        )?;
        crate::check_size("points", &[self.agents, self.points, self.dim])?;
        require(
            self.ridge > 0.0 && self.ridge.is_finite(),
            "ridge",
            self.ridge,
            "a positive number, which makes every loss strongly convex",
        )?;
        crate::check_spread(self.spread)?;
        if let Some(base) = self.base_agents {
            let divides = base > 0 && self.agents.is_multiple_of(base);
            require(divides, "base_agents", base, &format!("a divisor of {} agents", self.agents))?;
        }
        require((0.0..=1e300).contains(&self.shift), "shift", format!("{:?}", self.shift), "from 0 to 1e300")
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        lazy_index::without_effect(self.mixing_time, sampling).or_else(|| self.noise.as_ref()?.without_effect(sampling))
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let mut s = stream(self.seed, Purpose::System, 1, ALL);
        let w: Vec<f64> = (0..self.dim).map(|_| s.normal() / (self.dim as f64).sqrt()).collect();
        let distinct = self.base_agents.unwrap_or(self.agents);
        let values = (0..self.agents).flat_map(|c| self.rows(c % distinct, &w)).collect();
        let parts = Parts {
            rows: Rows::Dense { d: self.dim, values },
            first: (0..=self.agents).map(|c| c * self.points).collect(),
            offsets: Vec::new(),
            ridge: self.ridge,
            penalised: self.dim,
            weights: equal_weights(self.agents),
            mixing_time: self.mixing_time,
            clip: None,
        };
        let problem = Regression::new(parts, LogLoss, sampling, isa)?;
        noise::field(problem, self.noise.as_ref(), sampling, isa, false)
    }

    fn memory(&self, _: &dyn Files, _: Sampling, _: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (n, d) = (self.agents as f64, self.dim as f64);
        let rows = 8.0 * n * (self.points as f64 * d + 1.0);
        let root = memory::optimum(d) + 32.0 * n * self.points as f64;
        let text = format!("{}, {} rows each, d = {}", memory::agents(self.agents), self.points, self.dim);
        let sizes = noise::with_noise((rows + root, rows), self.noise.as_ref(), self.agents, self.dim);
        Ok(MemoryEstimate::new(sizes, text))
    }
}
