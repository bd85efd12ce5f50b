//! Additive Gauss-Markov noise on any problem (\[F\] eq. 16-18).
//!
//! The sample is `g_c(theta, z) + x` with `x <- M x + w`, `w ~ N(0, std^2 I)`, w independent per agent and of z.
//! Under i.i.d. sampling x is drawn from its stationary law `N(0, Sigma)`, `Sigma = M Sigma M^T + std^2 I`.
//! If the problem has no noise of its own, `g_c(theta, z) = gbar_c(theta)`, as in the source.
//!
//! | key | meaning |
//! | --- | --- |
//! | `std` | the standard deviation of each component of w, from 0 to 1e100 |
//! | `radius` | the spectral radius of M; 0, the default, is white noise |
//! | `seed` | the seed of M: Gaussian entries scaled to the radius |
//! | `memory` | `shared`: one M for all agents; `per-agent`: an M drawn for each |
//! | `matrix` | explicit M, d x d, instead of `radius`, `seed` and `memory` |
//! | `start` | x before the first move of a trajectory: `zero`, `random` (N(0, I)), `stationary`, or `as-sampling` |

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::memory;
use crate::scope::Scope;
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::facts::Facts;
use fedsa::problem::law::{FiniteLaw, NoiseLaw};
use fedsa::problem::systems::Moments;
use fedsa::problem::{Field, Problem, StepKernel};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};

/// The state x before the first move of a trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NoiseStart {
    /// From the stationary law if `sampling.start` is stationary, otherwise 0.
    #[default]
    AsSampling,
    /// x = 0.
    Zero,
    /// x ~ N(0, I).
    Random,
    /// x ~ N(0, Sigma), the stationary law.
    Stationary,
}

/// The `noise` table of a problem.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Noise {
    /// Standard deviation of w, at most 1e100.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub std: f64,
    /// Spectral radius of M; 0 is white noise.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub radius: f64,
    /// Seed of M.
    #[serde(default)]
    pub seed: u64,
    /// Whether agents share M.
    #[serde(default)]
    pub memory: Scope,
    /// Explicit M, instead of `radius`, `seed` and `memory`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix: Vec<Vec<f64>>,
    /// Start of trajectories of x.
    #[serde(default)]
    pub start: NoiseStart,
}

fedsa::settings::setters! { Noise {
    with_std(std: f64) = std;
    with_radius(radius: f64) = radius;
    with_seed(seed: u64) = seed;
    with_memory(memory: Scope) = memory;
    with_matrix(matrix: Vec<Vec<f64>>) = matrix;
    with_start(start: NoiseStart) = start;
} }

/// Squares and sums of squares must be finite.
fn check_std(std: f64) -> Result<()> {
    require((0.0..=1e100).contains(&std), "std", format!("{std:?}"), "from 0 to 1e100")
}

/// Checks the noise, if any.
pub(super) fn check(noise: Option<&Noise>) -> Result<()> {
    noise.map_or(Ok(()), Noise::check)
}

impl Noise {
    /// Noise with one M of this spectral radius for all agents, drawn by `seed`.
    pub const fn new(std: f64, radius: f64, seed: u64) -> Self {
        Self { std, radius, seed, memory: Scope::Shared, matrix: Vec::new(), start: NoiseStart::AsSampling }
    }

    /// Checks the ranges that apply to all problems.
    ///
    /// # Errors
    /// When a setting is out of range; the error names the key within `noise`.
    pub(super) fn check(&self) -> Result<()> {
        check_std(self.std).and_then(|()| self.check_radius()).map_err(|e| e.inside("noise"))
    }

    fn check_radius(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.radius), "radius", self.radius, "in [0, 1)")
    }

    /// Whether x depends on the previous x.
    pub fn has_memory(&self) -> bool {
        self.radius > 0.0 || self.matrix.iter().flatten().any(|m| *m != 0.0)
    }

    /// The error about a noise setting without effect under this sampling. It checks `start` before the whole noise, so that a sweep over
    /// laws without trajectories finds an idle `start`.
    pub(super) fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        let starts = self.start != NoiseStart::AsSampling;
        let what = match (starts, sampling.kind == Law::Markov, self.has_memory()) {
            (true, false, _) => "a start of trajectories, and samples are not those of a trajectory",
            (true, true, false) => "a start of trajectories of white noise, which has no memory",
            _ if sampling.kind == Law::Mean => {
                let what = "additive noise, and no samples: the mean operator is used";
                return Some(Error::new("noise", what, "no noise, or another kind in [sampling]"));
            }
            _ => return None,
        };
        Some(Error::new("noise.start", what, "no start here, or kind = \"markov\" in [sampling] and noise with a radius above 0"))
    }

    /// The matrices M of `agents` agents, d x d: one for all, or one each.
    fn matrices(&self, agents: usize, d: usize) -> Result<Vec<Mat<f64>>> {
        if !self.matrix.is_empty() {
            for (key, is_given) in [("radius", self.radius != 0.0), ("seed", self.seed != 0), ("memory", self.memory != Scope::Shared)] {
                let what = format!("a {key} beside a matrix that is written out");
                if is_given {
                    return Err(Error::new(key, what, format!("no {key} beside matrix, which decides it")));
                }
            }
            let is_square = self.matrix.len() == d && self.matrix.iter().all(|row| row.len() == d);
            let shape = format!("{} rows of {} numbers", self.matrix.len(), self.matrix[0].len());
            require(is_square, "matrix", shape, &format!("{d} rows of {d} numbers, as theta has {d} components"))?;
            require(self.matrix.iter().flatten().all(|m| m.is_finite()), "matrix", "a number that is not finite", "finite numbers")?;
            return Ok(vec![Mat::from_fn(d, d, |i, j| self.matrix[i][j])]);
        }
        self.check_radius()?;
        if self.radius == 0.0 {
            return Ok(vec![Mat::zeros(d, d)]);
        }
        let draw = |c: usize| {
            let mut s = stream(self.seed, Purpose::Noise, 0, self.memory.of(c));
            let m = Mat::from_fn(d, d, |_, _| s.normal());
            let radius = linalg::spectral_radius(&m)?;
            Ok(faer::Scale(self.radius / radius) * m)
        };
        let distinct = if self.memory == Scope::Shared { 1 } else { agents };
        parallel::try_map(distinct, draw)
    }

    /// The memory that noise adds to a problem of `agents` agents in `d` dimensions: the peak, and the kept memory.
    pub(super) fn memory_of(&self, agents: f64, d: f64) -> (f64, f64) {
        let distinct = if self.memory == Scope::Shared { 1.0 } else { agents };
        // M twice, Sigma and its factor. Eigenvalues and the covariance take temporary memory.
        let kept = 4.0 * distinct * memory::matrix(d, d);
        (kept + distinct * memory::matrix(d, d) + 20.0 * memory::matrix(d, d), kept)
    }
}

/// A peak and kept memory, plus those of additive noise, if any, for this number of agents and dimensions.
pub(super) fn with_noise((peak, kept): (f64, f64), noise: Option<&Noise>, agents: usize, d: usize) -> (f64, f64) {
    let (making, noise) = noise.map_or((0.0, 0.0), |noise| noise.memory_of(agents as f64, d as f64));
    (peak + making, kept + noise)
}

/// The noise law of one agent.
#[derive(Debug)]
struct Process {
    /// M, row-major, d x d; empty for white noise.
    memory: Vec<f64>,
    /// M column by column, the order in which products are summed side by side.
    columns: Vec<f64>,
    /// `Sigma`, d x d.
    covariance: Mat<f64>,
    /// Lower Cholesky factor of `Sigma`, row-major, d x d.
    factor: Vec<f64>,
}

impl Process {
    /// # Errors
    /// When M is not Schur-stable; the error states its spectral radius.
    fn new(std: f64, m: &Mat<f64>) -> Result<Self> {
        let d = m.nrows();
        let radius = linalg::spectral_radius(m)?;
        require(radius < 1.0, "memory", format!("a matrix of spectral radius {radius}"), "a spectral radius below 1")?;
        let covariance = linalg::discrete_lyapunov(m, &Mat::from_fn(d, d, |i, j| if i == j { std * std } else { 0.0 }));
        let factor = linalg::to_rows(&linalg::cholesky(&covariance)?);
        let is_white = m.norm_max() == 0.0;
        let memory = if is_white { Vec::new() } else { linalg::to_rows(m) };
        let columns = if is_white { Vec::new() } else { (0..d).flat_map(|j| m.col_as_slice(j)).copied().collect() };
        Ok(Self { memory, columns, covariance, factor })
    }

    /// The laws for several matrices.
    fn all(std: f64, matrices: &[Mat<f64>]) -> Result<Vec<Self>> {
        let named = |c: usize| {
            let agent = |e: Error| if matrices.len() > 1 { e.prefixed(format!("agent {c}")) } else { e };
            Process::new(std, &matrices[c]).map_err(agent)
        };
        parallel::try_map(matrices.len(), named)
    }

    /// `x ~ N(0, Sigma)`.
    fn draw_stationary(&self, stream: &mut Stream, x: &mut [f64]) {
        let d = x.len();
        let w: Vec<f64> = (0..d).map(|_| stream.normal()).collect();
        for (i, x) in x.iter_mut().enumerate() {
            *x = self.factor[i * d..=i * d + i].iter().zip(&w).map(|(l, w)| l * w).sum();
        }
    }
}

/// The error about noise settings, or a start of trajectories, without effect on a problem whose samples follow no chain.
pub(super) fn alone_without_effect(noise: Option<&Noise>, sampling: &Sampling) -> Option<Error> {
    if let Some(idle) = noise.and_then(|noise| noise.without_effect(sampling)) {
        return Some(idle);
    }
    let starts = sampling.kind == Law::Markov && sampling.start != ChainStart::Stationary;
    (starts && !noise.is_some_and(Noise::has_memory)).then(|| {
        let what = "a start of trajectories, and the problem's samples do not depend on those before";
        Error::new("sampling.start", what, "no start here, or noise with a radius above 0")
    })
}

/// A problem with noise added to its samples. The mean operators, the root and their facts are the wrapped problem's.
#[derive(Debug)]
pub struct Noisy<P> {
    problem: P,
    std: f64,
    /// One for all agents, or one each.
    processes: Vec<Process>,
    /// Whether x depends on the previous x.
    has_memory: bool,
    start: NoiseStart,
    sampling: Sampling,
}

impl<P: Problem> Noisy<P> {
    /// Adds noise to a problem.
    ///
    /// # Errors
    /// When `std` is not from 0 to 1e100, the radius not in [0, 1), or an explicit matrix not Schur-stable.
    pub fn new(problem: P, noise: &Noise, sampling: Sampling) -> Result<Self> {
        let matrices = noise.matrices(problem.weights().len(), problem.dim())?;
        let key = |e: Error| if e.key == "memory" && !noise.matrix.is_empty() { e.about("matrix") } else { e };
        Ok(Self { start: noise.start, ..Self::with_matrices(problem, noise.std, &matrices, sampling).map_err(key)? })
    }

    /// Adds noise with a given memory M (d x d); the zero matrix makes it white.
    ///
    /// # Errors
    /// When `std` is not from 0 to 1e100, or M is not Schur-stable.
    pub fn with_memory(problem: P, std: f64, m: Mat<f64>, sampling: Sampling) -> Result<Self> {
        Self::with_matrices(problem, std, &[m], sampling)
    }

    /// Adds noise with one memory M (d x d) for all agents, or one each.
    ///
    /// # Errors
    /// When `std` is not from 0 to 1e100, or a matrix is not Schur-stable.
    pub fn with_matrices(problem: P, std: f64, matrices: &[Mat<f64>], sampling: Sampling) -> Result<Self> {
        check_std(std)?;
        if let (ChainStart::State(k), 0) = (sampling.start, problem.chain_len()) {
            require(k == 0, "sampling.start", format!("state {k}"), "{ state = 0 }, which stands for noise of 0")?;
        }
        let (n, d) = (problem.weights().len(), problem.dim());
        let fits = [1, n].contains(&matrices.len()) && matrices.iter().all(|m| m.shape() == (d, d));
        require(
            fits,
            "memory",
            format!("{} matrices", matrices.len()),
            &format!("one matrix of {d} x {d} numbers, or one for each agent"),
        )?;
        let processes = Process::all(std, matrices)?;
        let has_memory = processes.iter().any(|process| !process.memory.is_empty());
        Ok(Self { problem, std, processes, has_memory, start: NoiseStart::AsSampling, sampling })
    }

    /// The noise of agent `c`.
    fn process(&self, c: usize) -> &Process {
        &self.processes[if self.processes.len() == 1 { 0 } else { c }]
    }

    /// The noise of a kind of agents; `None` if the noise differs between its agents.
    fn process_of_kind(&self, kind: usize) -> Option<&Process> {
        let agents = match self.problem.facts().systems() {
            _ if self.processes.len() == 1 => return Some(&self.processes[0]),
            Some(systems) => systems.kind_of.iter().enumerate().filter(|(_, k)| **k as usize == kind).map(|(c, _)| c).collect(),
            None => vec![kind],
        };
        if let [c] = agents[..] { Some(&self.processes[c]) } else { None }
    }
}

/// The field of a problem, with additive noise, if any.
///
/// # Errors
/// When the noise is out of range or a system is singular.
pub fn field<P: Problem>(
    problem: P,
    noise: Option<&Noise>,
    sampling: Sampling,
    isa: Isa,
    allow_singular_agents: bool,
) -> Result<Arc<dyn Field>> {
    match noise {
        None => fedsa::problem::field(problem, sampling, isa, allow_singular_agents),
        Some(noise) => {
            let noisy = Noisy::new(problem, noise, sampling).map_err(|e| e.inside("noise"))?;
            fedsa::problem::field(noisy, sampling, isa, allow_singular_agents)
        }
    }
}

/// A sample of a problem, and its noise x.
#[derive(Debug, Default)]
pub struct Observed<Z> {
    z: Z,
    /// d components.
    x: Vec<f64>,
}

impl<P: Problem> Problem for Noisy<P> {
    type Obs = Observed<P::Obs>;

    fn dim(&self) -> usize {
        self.problem.dim()
    }
    fn weights(&self) -> &[f64] {
        self.problem.weights()
    }
    /// The words of the problem's own process, then x.
    fn chain_len(&self) -> usize {
        self.problem.chain_len() + if self.sampling.kind == Law::Markov && self.has_memory { self.dim() } else { 0 }
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let (own, noise) = chain.split_at_mut(self.problem.chain_len());
        self.problem.start_chain(c, stream, own);
        let mut x = vec![0.0; noise.len()];
        match (self.start, self.sampling.start) {
            (NoiseStart::AsSampling, ChainStart::Stationary) | (NoiseStart::Stationary, _) => {
                self.process(c).draw_stationary(stream, &mut x);
            }
            (NoiseStart::Random, _) => x.iter_mut().for_each(|x| *x = stream.normal()),
            (NoiseStart::AsSampling, ChainStart::State(_)) | (NoiseStart::Zero, _) => {}
        }
        noise.iter_mut().zip(x).for_each(|(word, x)| *word = x.to_bits());
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        let (own, noise) = chain.split_at(self.problem.chain_len());
        self.problem.is_state(c, own) && noise.iter().all(|word| f64::from_bits(*word).is_finite())
    }
    #[inline(always)]
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, seen: &mut Observed<P::Obs>) {
        let d = self.dim();
        let (own, noise) = chain.split_at_mut(self.problem.chain_len());
        self.problem.sample(c, theta, own, stream, &mut seen.z);
        let x = &mut seen.x;
        x.resize(d, 0.0);
        let process = self.process(c);
        if process.memory.is_empty() {
            x.iter_mut().for_each(|x| *x = self.std * stream.normal());
        } else if noise.is_empty() {
            process.draw_stationary(stream, x);
        } else {
            x.iter_mut().for_each(|x| *x = self.std * stream.normal());
            for (word, column) in noise.iter().zip(process.columns.chunks_exact(d)) {
                let before = f64::from_bits(*word);
                x.iter_mut().zip(column).for_each(|(x, m)| *x = m.mul_add(before, *x));
            }
            noise.iter_mut().zip(x.iter()).for_each(|(word, x)| *word = x.to_bits());
        }
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], seen: &Observed<P::Obs>, out: &mut [f64]) {
        self.problem.apply(c, theta, &seen.z, out);
        out.iter_mut().zip(&seen.x).for_each(|(out, x)| *out += x);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.problem.mean(c, theta, out)
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        self.problem.local_phase(Law::Mean).filter(|_| law == Law::Mean)?;
        Some(|noisy, blocks, etas, isa| noisy.problem.local_phase(Law::Mean).expect("it has one")(&noisy.problem, blocks, etas, isa))
    }
}

impl<P: Problem> Facts for Noisy<P> {
    fn base(&self) -> Option<&dyn Facts> {
        Some(self.problem.facts())
    }
    /// Gaussian noise has no finite law.
    fn law(&self, _: usize) -> Option<FiniteLaw<'_>> {
        None
    }
    /// A normal number for each component, and a product with M or a factor of Sigma.
    fn sample_ns(&self) -> Option<f64> {
        let d = self.problem.dim() as f64;
        let own = if self.has_memory { 10.0 * d + 0.5 * d * d } else { 10.0 * d };
        Some(own + self.problem.facts().sample_ns().unwrap_or(d))
    }
    /// Defined if the problem's own samples have a single value.
    fn additive_noise(&self) -> Option<Vec<NoiseLaw>> {
        let (facts, d) = (self.problem.facts(), self.problem.dim());
        let is_alone = |kind: usize| facts.law(kind).is_some_and(|law| law.mass().len() == 1);
        let law = |process: &Process| {
            let zero = || Mat::zeros(d, d);
            let start = match (self.start, self.sampling.start) {
                (NoiseStart::AsSampling, ChainStart::Stationary) | (NoiseStart::Stationary, _) => process.covariance.clone(),
                (NoiseStart::Random, _) => Mat::identity(d, d),
                (NoiseStart::AsSampling, ChainStart::State(_)) | (NoiseStart::Zero, _) => zero(),
            };
            let memory = if process.memory.is_empty() { zero() } else { linalg::from_rows(d, d, &process.memory) };
            NoiseLaw { memory, std: self.std, covariance: process.covariance.clone(), start }
        };
        let alone = (0..facts.systems()?.kinds.len()).all(is_alone);
        alone.then(|| self.processes.iter().map(law).collect())
    }
    /// The noise adds its covariance to `E[b b^T]`: it has mean 0 and is independent of z.
    fn moments(&self, kind: usize) -> Option<Moments> {
        let covariance = &self.process_of_kind(kind)?.covariance;
        let Moments { aa, ab, bb } = self.problem.facts().moments(kind)?;
        Some(Moments { aa, ab, bb: bb + covariance })
    }
    fn export(&self) -> Option<Arrays> {
        let d = self.problem.dim();
        let mut arrays = self.problem.facts().export().unwrap_or_default();
        arrays.insert("noise_std", Array::scalar(self.std));
        if self.has_memory {
            let n = self.processes.len();
            let shape = if n == 1 { vec![d, d] } else { vec![n, d, d] };
            let of = |process: &Process| if process.memory.is_empty() { vec![0.0; d * d] } else { process.memory.clone() };
            let memory = self.processes.iter().flat_map(of).collect();
            arrays.insert("noise_memory", Array::new(shape, memory).expect("d x d matrices"));
        }
        Some(arrays)
    }
}
