//! Additive Gauss-Markov noise on any problem (\[F\] eq. 16-18).
//!
//! The sample is `gbar_c(theta) + x` with `x <- M x + w`, `w ~ N(0, std^2 I)`,
//! one M for all agents, w independent per agent. Under i.i.d. sampling x is
//! drawn from its stationary law `N(0, Sigma)`, `Sigma = M Sigma M^T + std^2 I`.

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::Problem;
use super::arrays::{Array, Arrays};
use super::systems::{Moments, Systems};
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

/// A problem whose samples are its mean operators plus noise.
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
        if let ChainStart::State(k) = sampling.start {
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

impl<P: Problem> Problem for Noisy<P> {
    /// The noise x, d components.
    type Obs = Vec<f64>;

    fn dim(&self) -> usize {
        self.problem.dim()
    }
    fn weights(&self) -> &[f64] {
        self.problem.weights()
    }
    fn chain_len(&self) -> usize {
        if self.sampling.kind == Law::Markov && !self.memory.is_empty() { self.dim() } else { 0 }
    }
    fn start_chain(&self, _: usize, stream: &mut Stream, chain: &mut [u64]) {
        let mut x = vec![0.0; chain.len()];
        if self.sampling.start == ChainStart::Stationary {
            self.draw_stationary(stream, &mut x);
        }
        chain.iter_mut().zip(x).for_each(|(word, x)| *word = x.to_bits());
    }
    fn is_state(&self, _: usize, chain: &[u64]) -> bool {
        chain.iter().all(|word| f64::from_bits(*word).is_finite())
    }
    #[inline(always)]
    fn sample(&self, _: usize, chain: &mut [u64], stream: &mut Stream, x: &mut Vec<f64>) {
        let d = self.dim();
        x.resize(d, 0.0);
        if self.memory.is_empty() {
            x.iter_mut().for_each(|x| *x = self.std * stream.normal());
        } else if chain.is_empty() {
            self.draw_stationary(stream, x);
        } else {
            for (i, x) in x.iter_mut().enumerate() {
                let w = self.std * stream.normal();
                let row = &self.memory[i * d..(i + 1) * d];
                *x = chain.iter().zip(row).fold(w, |sum, (word, m)| m.mul_add(f64::from_bits(*word), sum));
            }
            chain.iter_mut().zip(x.iter()).for_each(|(word, x)| *word = x.to_bits());
        }
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], x: &Vec<f64>, out: &mut [f64]) {
        self.problem.mean(c, theta, out);
        out.iter_mut().zip(x).for_each(|(out, x)| *out += x);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.problem.mean(c, theta, out);
    }
    fn systems(&self) -> Option<&Systems> {
        self.problem.systems()
    }
    fn moments(&self, kind: usize) -> Option<Moments> {
        let system = &self.systems()?.kinds[kind];
        let b = linalg::column(&system.b);
        Some(Moments { aa: linalg::kron(&system.a, &system.a), ab: linalg::kron(&system.a, &b), bb: &b * b.transpose() + &self.covariance })
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        self.problem.gram()
    }
    fn stationary(&self, kind: usize) -> Option<&[f64]> {
        self.problem.stationary(kind)
    }
    fn export(&self) -> Option<Arrays> {
        let d = self.dim();
        let mut arrays = self.problem.export().unwrap_or_default();
        arrays.insert("noise_std", Array::scalar(self.std));
        if !self.memory.is_empty() {
            arrays.insert("noise_memory", Array::new(vec![d, d], self.memory.clone()).expect("a d x d matrix"));
        }
        Some(arrays)
    }
    fn mean_leg(&self, lanes: &mut Lanes, etas: &[f64], isa: Isa) {
        self.problem.mean_leg(lanes, etas, isa);
    }
}
