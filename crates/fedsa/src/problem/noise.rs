//! Additive Gauss-Markov noise on any problem (\[F\] eq. 16-18).
//!
//! The sample is `g_c(theta, z) + x` with `x <- M x + w`, `w ~ N(0, std^2 I)`,
//! one M for all agents, w independent per agent and of z. Under i.i.d. sampling x is
//! drawn from its stationary law `N(0, Sigma)`, `Sigma = M Sigma M^T + std^2 I`.
//! Where the problem has no noise of its own, `g_c(theta, z) = gbar_c(theta)`: the source's case.

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::arrays::{Array, Arrays};
use super::facts::Facts;
use super::law::FiniteLaw;
use super::systems::Moments;
use super::{Field, Problem};
use crate::error::{Result, require};
use crate::kernel::{Isa, Lanes};
use crate::linalg;
use crate::random::{ALL, Purpose, Stream, stream};
use crate::sampling::{ChainStart, Law, Sampling};

/// The `noise` table of a problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Standard deviation of each component of w.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub std: f64,
    /// Spectral radius of M, in [0, 1): 0 is white noise.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub radius: f64,
    /// The seed of M, Gaussian entries scaled to the radius.
    #[serde(default)]
    pub seed: u64,
}

/// The law of the noise x of one agent: `x <- M x + w`, `w ~ N(0, std^2 I)`, independent per agent.
#[derive(Debug, Clone)]
pub struct NoiseLaw {
    /// M, d x d, Schur-stable; zero for white noise.
    pub memory: Mat<f64>,
    /// The standard deviation of each component of w.
    pub std: f64,
    /// `E x x^T` in the stationary law, `Sigma = M Sigma M^T + std^2 I`, d x d.
    pub covariance: Mat<f64>,
    /// `E x_0 x_0^T` of the noise before the first sample, whose mean is 0, d x d.
    pub start: Mat<f64>,
}

/// A problem with noise added to its samples. The mean operators, the root and their facts are those of the
/// wrapped problem.
#[derive(Debug)]
pub struct Noisy<P> {
    problem: P,
    std: f64,
    /// Row-major, d x d; empty for white noise.
    memory: Vec<f64>,
    /// `Sigma`, d x d.
    covariance: Mat<f64>,
    /// Lower Cholesky factor of `Sigma`, row-major, d x d.
    factor: Vec<f64>,
    sampling: Sampling,
}

impl<P: Problem> Noisy<P> {
    /// Adds noise to a problem.
    ///
    /// # Errors
    /// When `std` is negative or the radius not in [0, 1).
    pub fn new(problem: P, noise: &Noise, sampling: Sampling) -> Result<Self> {
        require((0.0..1.0).contains(&noise.radius), "radius", noise.radius, "in [0, 1)")?;
        let d = problem.dim();
        let mut m = Mat::<f64>::zeros(d, d);
        if noise.radius > 0.0 {
            let mut s = stream(noise.seed, Purpose::Noise, 0, ALL);
            m = Mat::from_fn(d, d, |_, _| s.normal());
            let radius = linalg::spectral_radius(&m)?;
            m = faer::Scale(noise.radius / radius) * m;
        }
        Self::with_memory(problem, noise.std, m, sampling)
    }

    /// Adds noise with a memory M (d x d) of one's own; the zero matrix makes it white.
    ///
    /// # Errors
    /// When `std` is negative or M is not Schur-stable.
    pub fn with_memory(problem: P, std: f64, m: Mat<f64>, sampling: Sampling) -> Result<Self> {
        require(std >= 0.0 && std.is_finite(), "std", std, "at least 0")?;
        if let (ChainStart::State(k), 0) = (sampling.start, problem.chain_len()) {
            require(k == 0, "sampling.start", format!("state {k}"), "{ state = 0 }, which stands for noise of 0")?;
        }
        let d = problem.dim();
        let radius = linalg::spectral_radius(&m)?;
        require(radius < 1.0, "memory", format!("a matrix of spectral radius {radius}"), "a spectral radius below 1")?;
        let covariance = linalg::discrete_lyapunov(&m, &Mat::from_fn(d, d, |i, j| if i == j { std * std } else { 0.0 }));
        let factor = linalg::to_rows(&linalg::cholesky(&covariance)?);
        let memory = if m.norm_max() > 0.0 { linalg::to_rows(&m) } else { Vec::new() };
        Ok(Self { problem, std, memory, covariance, factor, sampling })
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

/// The field of a problem, with additive noise where there is some.
///
/// # Errors
/// When the noise is out of range or a system is singular.
pub fn field<P: Problem>(
    problem: P,
    noise: Option<&Noise>,
    sampling: Sampling,
    isa: Isa,
    allow_singular_agents: bool,
) -> Result<Box<dyn Field>> {
    match noise {
        None => super::field(problem, sampling, isa, allow_singular_agents),
        Some(noise) => {
            let noisy = Noisy::new(problem, noise, sampling).map_err(|e| e.inside("noise"))?;
            super::field(noisy, sampling, isa, allow_singular_agents)
        }
    }
}

/// A sample of a problem, and the noise x on it.
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
        self.problem.chain_len() + if self.sampling.kind == Law::Markov && !self.memory.is_empty() { self.dim() } else { 0 }
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let (own, noise) = chain.split_at_mut(self.problem.chain_len());
        self.problem.start_chain(c, stream, own);
        let mut x = vec![0.0; noise.len()];
        if self.sampling.start == ChainStart::Stationary {
            self.draw_stationary(stream, &mut x);
        }
        noise.iter_mut().zip(x).for_each(|(word, x)| *word = x.to_bits());
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        let (own, noise) = chain.split_at(self.problem.chain_len());
        self.problem.is_state(c, own) && noise.iter().all(|word| f64::from_bits(*word).is_finite())
    }
    #[inline(always)]
    fn sample(&self, c: usize, chain: &mut [u64], stream: &mut Stream, seen: &mut Observed<P::Obs>) {
        let d = self.dim();
        let (own, noise) = chain.split_at_mut(self.problem.chain_len());
        self.problem.sample(c, own, stream, &mut seen.z);
        let x = &mut seen.x;
        x.resize(d, 0.0);
        if self.memory.is_empty() {
            x.iter_mut().for_each(|x| *x = self.std * stream.normal());
        } else if noise.is_empty() {
            self.draw_stationary(stream, x);
        } else {
            for (i, x) in x.iter_mut().enumerate() {
                let w = self.std * stream.normal();
                let row = &self.memory[i * d..(i + 1) * d];
                *x = noise.iter().zip(row).fold(w, |sum, (word, m)| m.mul_add(f64::from_bits(*word), sum));
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
    fn mean_leg(&self, lanes: &mut Lanes, etas: &[f64], isa: Isa) {
        self.problem.mean_leg(lanes, etas, isa);
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
    /// Where the problem's own samples have a single value.
    fn additive_noise(&self) -> Option<Vec<NoiseLaw>> {
        let (facts, d) = (self.problem.facts(), self.problem.dim());
        let is_alone = |kind: usize| facts.law(kind).is_some_and(|law| law.mass().len() == 1);
        let alone = (0..facts.systems()?.kinds.len()).all(is_alone);
        let memory = if self.memory.is_empty() { Mat::zeros(d, d) } else { linalg::from_rows(d, d, &self.memory) };
        let start = if self.sampling.start == ChainStart::Stationary { self.covariance.clone() } else { Mat::zeros(d, d) };
        alone.then(|| vec![NoiseLaw { memory, std: self.std, covariance: self.covariance.clone(), start }])
    }
    /// The noise adds its covariance to `E[b b^T]`: it has mean 0 and is independent of z.
    fn moments(&self, kind: usize) -> Option<Moments> {
        let Moments { aa, ab, bb } = self.problem.facts().moments(kind)?;
        Some(Moments { aa, ab, bb: bb + &self.covariance })
    }
    fn export(&self) -> Option<Arrays> {
        let d = self.problem.dim();
        let mut arrays = self.problem.facts().export().unwrap_or_default();
        arrays.insert("noise_std", Array::scalar(self.std));
        if !self.memory.is_empty() {
            arrays.insert("noise_memory", Array::new(vec![d, d], self.memory.clone()).expect("a d x d matrix"));
        }
        Some(arrays)
    }
}
