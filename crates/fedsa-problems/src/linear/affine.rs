//! Linear systems `gbar_c(theta) = b_c - A_c theta`, with or without additive noise.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::kernel::dense::{self, Dense};
use crate::memory::{self, MemoryEstimate};
use crate::noise::{self, Noise};
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Isa, LANES, Lanes, chunks};
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Field, Problem, StepKernel, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::registry::FromTable;
use fedsa::sampling::{Law, Sampling};
use fedsa::settings::{self, Value};

/// Linear operators without noise; [`Noisy`](noise::Noisy) adds some.
#[derive(Debug)]
pub struct Linear {
    systems: Systems,
    dense: Vec<Dense>,
}

impl Linear {
    /// The H local steps on the mean operators.
    pub(crate) fn mean_steps(&self, blocks: &mut [Lanes], etas: &[f64], isa: Isa) {
        for lanes in blocks {
            let systems: [&Dense; LANES] = std::array::from_fn(|l| self.dense(lanes.agents[l.min(lanes.len - 1)]));
            dense::local_phase(lanes, &systems[..lanes.len], etas, isa);
        }
    }

    /// From the agents' systems.
    pub fn new(systems: Systems) -> Self {
        let dense = systems.kinds.iter().map(Dense::new).collect();
        Self { systems, dense }
    }

    fn dense(&self, c: usize) -> &Dense {
        &self.dense[self.systems.kind_of[c] as usize]
    }
}

impl Problem for Linear {
    type Obs = ();
    fn dim(&self) -> usize {
        self.systems.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.systems.weights
    }
    #[inline(always)]
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, _: &mut ()) {}
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], _: &(), out: &mut [f64]) {
        self.dense(c).mean(theta, out);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.dense(c).mean(theta, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    /// Every sample is the mean.
    fn local_phase(&self, _: Law) -> Option<StepKernel<Self>> {
        Some(Self::mean_steps)
    }
}

impl Facts for Linear {
    fn systems(&self) -> Option<&Systems> {
        Some(&self.systems)
    }
    fn sample_ns(&self) -> Option<f64> {
        let d = self.systems.dim();
        Some(2.0 + d as f64 * chunks(d) as f64 / 2.0)
    }
    /// One value: without noise every sample is the mean.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        let System { a, b } = &self.systems.kinds[kind];
        let d = b.len();
        Some(FiniteLaw::linear(d, vec![1.0], move |_, to_a, to_b| {
            (0..d).for_each(|i| (0..d).for_each(|j| to_a[i * d + j] = a[(i, j)]));
            to_b.copy_from_slice(b);
        }))
    }
}

/// The `linear` problem: `A_c = scale I` and `b_c ~ spread N(0, I)`, or explicit systems.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(try_from = "Given"))]
#[serde(into = "Given")]
#[non_exhaustive]
pub struct LinearSystems {
    /// The number of agents N, unless systems are explicit.
    pub agents: usize,
    /// The dimension d, unless systems are explicit.
    pub dim: usize,
    /// `A_c = scale I`.
    pub scale: f64,
    /// `b_c ~ spread N(0, I)`, independent per agent.
    pub spread: f64,
    /// The seed.
    pub seed: u64,
    /// The matrices `A_c`, N x d x d.
    pub a: Vec<Vec<Vec<f64>>>,
    /// The offsets `b_c`, N x d.
    pub b: Vec<Vec<f64>>,
    /// Additive noise.
    pub noise: Option<Noise>,
    /// Accept agents whose own system is singular; the mean must be regular.
    pub allow_singular_agents: bool,
}

fedsa::settings::setters! { LinearSystems {
    with_agents(agents: usize) = agents;
    with_dim(dim: usize) = dim;
    with_scale(scale: f64) = scale;
    with_spread(spread: f64) = spread;
    with_seed(seed: u64) = seed;
    with_a(a: Vec<Vec<Vec<f64>>>) = a;
    with_b(b: Vec<Vec<f64>>) = b;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
    with_allow_singular_agents(allow_singular_agents: bool) = allow_singular_agents;
} }

/// [`LinearSystems`] in a file: the settings of random systems, or explicit systems.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct Given {
    /// Agents N; 10 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    agents: Option<usize>,
    /// Dimension d; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    dim: Option<usize>,
    /// `A_c = scale I`; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    /// `b_c ~ spread N(0, I)`; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    spread: Option<f64>,
    /// Seed; 0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Matrices `A_c`, N x d x d.
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<Vec<Vec<Vec<f64>>>>,
    /// Offsets `b_c`, N x d.
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<Vec<Vec<f64>>>,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    noise: Option<Noise>,
    /// Accept singular agents.
    allow_singular_agents: bool,
}

impl FromTable for LinearSystems {
    fn from_table(table: &Value) -> Result<Self> {
        Self::of(settings::read(table)?)
    }
}

impl LinearSystems {
    /// The settings of a file; refuses contradictory ones.
    fn of(given: Given) -> Result<Self> {
        let Given { agents, dim, scale, spread, seed, a, b, noise, allow_singular_agents } = given;
        for (key, is_empty) in [("a", a.as_ref().is_some_and(Vec::is_empty)), ("b", b.as_ref().is_some_and(Vec::is_empty))] {
            if is_empty {
                return Err(Error::new(key, "[] has no agents", format!("one entry for each agent, or no {key}")));
            }
        }
        let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
        if !(a.is_empty() && b.is_empty()) {
            let (n, d) = (a.len().max(b.len()), b.first().map_or(0, Vec::len));
            let contradicts = [
                ("agents", agents.filter(|agents| *agents != n).map(|agents| format!("{agents} agents, and a and b have {n}"))),
                ("dim", dim.filter(|dim| *dim != d).map(|dim| format!("{dim} dimensions, and b has {d}"))),
                ("scale", scale.map(|scale| format!("a scale of {scale} beside systems that are written out"))),
                ("spread", spread.map(|spread| format!("a spread of {spread} beside systems that are written out"))),
                ("seed", seed.map(|seed| format!("the seed {seed} of systems that are written out"))),
            ];
            if let Some((key, Some(what))) = contradicts.into_iter().find(|(_, what)| what.is_some()) {
                return Err(Error::new(key, what, format!("no {key} beside a and b, which decide it")));
            }
        }
        let default = Self::default();
        Ok(Self {
            agents: agents.unwrap_or(default.agents),
            dim: dim.unwrap_or(default.dim),
            scale: scale.unwrap_or(default.scale),
            spread: spread.unwrap_or(default.spread),
            seed: seed.unwrap_or(default.seed),
            a,
            b,
            noise,
            allow_singular_agents,
        })
    }
}

impl From<LinearSystems> for Given {
    fn from(settings: LinearSystems) -> Self {
        let LinearSystems { agents, dim, scale, spread, seed, a, b, noise, allow_singular_agents } = settings;
        let is_drawn = a.is_empty() && b.is_empty();
        Self {
            agents: is_drawn.then_some(agents),
            dim: is_drawn.then_some(dim),
            scale: is_drawn.then_some(scale),
            spread: is_drawn.then_some(spread),
            seed: is_drawn.then_some(seed),
            a: (!a.is_empty()).then_some(a),
            b: (!b.is_empty()).then_some(b),
            noise,
            allow_singular_agents,
        }
    }
}

impl Default for LinearSystems {
    fn default() -> Self {
        Self {
            agents: 10,
            dim: 1,
            scale: 1.0,
            spread: 1.0,
            seed: 0,
            a: Vec::new(),
            b: Vec::new(),
            noise: None,
            allow_singular_agents: false,
        }
    }
}

impl ProblemSettings for LinearSystems {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        if !self.is_drawn() {
            return Ok(());
        }
        crate::check_linear(self.agents, self.dim)?;
        require(self.scale.is_finite() && self.scale != 0.0, "scale", self.scale, "a number other than 0")?;
        crate::check_spread(self.spread)
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["a", "b"]
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        noise::alone_without_effect(self.noise.as_ref(), sampling)
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let kinds = if self.is_drawn() { self.drawn()? } else { self.written()? };
        let n = kinds.len();
        let systems = Systems::new(kinds, (0..n as u32).collect(), equal_weights(n));
        noise::field(Linear::new(systems), self.noise.as_ref(), sampling, isa, self.allow_singular_agents)
    }

    fn memory(&self, _: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (n, d) = if self.a.is_empty() { (self.agents, self.dim) } else { (self.a.len(), self.b.first().map_or(0, Vec::len)) };
        let sizes = memory::linear(n as f64, d as f64, true, 0.0, threads);
        Ok(MemoryEstimate::new(noise::with_noise(sizes, self.noise.as_ref(), n, d), format!("{}, d = {d}", memory::agents(n))))
    }
}

impl LinearSystems {
    fn is_drawn(&self) -> bool {
        self.a.is_empty() && self.b.is_empty()
    }

    fn drawn(&self) -> Result<Vec<System>> {
        self.check()?;
        Ok((0..self.agents)
            .map(|c| {
                let mut s = stream(self.seed, Purpose::System, 0, c);
                let b = (0..self.dim).map(|_| self.spread * s.normal()).collect();
                System { a: Mat::from_fn(self.dim, self.dim, |i, j| if i == j { self.scale } else { 0.0 }), b }
            })
            .collect())
    }

    fn written(&self) -> Result<Vec<System>> {
        let (n, d) = (self.a.len(), self.b.first().map_or(0, Vec::len));
        require(n >= 1 && self.b.len() == n, "b", format!("{} offsets for {n} matrices", self.b.len()), "one per matrix of a")?;
        require(d >= 1 && self.b.iter().all(|b| b.len() == d), "b", "offsets of different lengths", "N vectors of d >= 1 numbers")?;
        for (c, a) in self.a.iter().enumerate() {
            let square = a.len() == d && a.iter().all(|row| row.len() == d);
            require(square, "a", format!("matrix {c} with {} rows", a.len()), &format!("N matrices of {d} x {d} numbers, as b has"))?;
        }
        let finite = self.a.iter().flatten().flatten().chain(self.b.iter().flatten()).all(|x| x.is_finite());
        require(finite, "a", "a number that is not finite", "finite")?;
        Ok((0..n).map(|c| System { a: Mat::from_fn(d, d, |i, j| self.a[c][i][j]), b: self.b[c].clone() }).collect())
    }
}
