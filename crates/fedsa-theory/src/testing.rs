//! Small random problems for the tests of this module.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::{Moments, System, Systems};

/// The largest entry of `|a - b|`.
pub fn max_difference(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    (a - b).norm_max()
}

/// A seeded source of small problems.
pub struct Draw(Xoshiro256PlusPlus);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Uniform on [-1, 1).
    pub fn number(&mut self) -> f64 {
        self.0.random_range(-1.0..1.0)
    }

    pub fn index(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    pub fn vector(&mut self, d: usize) -> Vec<f64> {
        (0..d).map(|_| self.number()).collect()
    }

    pub fn matrix(&mut self, d: usize) -> Mat<f64> {
        Mat::from_fn(d, d, |_, _| self.number())
    }

    /// `I + G/2`: not symmetric, eigenvalues in the right half-plane.
    pub fn stable_matrix(&mut self, d: usize) -> Mat<f64> {
        let g = self.matrix(d);
        Mat::from_fn(d, d, |i, j| f64::from(i == j) + 0.5 * g[(i, j)])
    }

    /// `n` agents of equal weight with different systems.
    pub fn systems(&mut self, n: usize, d: usize) -> Systems {
        let kinds = (0..n).map(|_| System { a: self.stable_matrix(d), b: self.vector(d) }).collect();
        Systems::new(kinds, (0..n as u32).collect(), vec![1.0 / n as f64; n])
    }

    /// Agents with finite observation spaces of `m` equally likely samples each.
    pub fn finite(&mut self, n: usize, d: usize, m: usize) -> Vec<Finite> {
        (0..n).map(|_| Finite { samples: (0..m).map(|_| (self.stable_matrix(d), self.vector(d))).collect() }).collect()
    }
}

/// An agent whose sample is one of a few pairs `(A(z), b(z))`, equally likely.
pub struct Finite {
    pub samples: Vec<(Mat<f64>, Vec<f64>)>,
}

impl Finite {
    pub fn system(&self) -> System {
        let (d, m) = (self.samples[0].1.len(), self.samples.len() as f64);
        let a = Mat::from_fn(d, d, |i, j| self.samples.iter().map(|(a, _)| a[(i, j)]).sum::<f64>() / m);
        let b = (0..d).map(|i| self.samples.iter().map(|(_, b)| b[i]).sum::<f64>() / m).collect();
        System { a, b }
    }

    /// The moments from their definition.
    pub fn moments(&self) -> Moments {
        let (d, m) = (self.samples[0].1.len(), self.samples.len() as f64);
        let mean = |f: &dyn Fn(&Mat<f64>, &[f64]) -> f64| self.samples.iter().map(|(a, b)| f(a, b)).sum::<f64>() / m;
        Moments {
            aa: Mat::from_fn(d * d, d * d, |r, c| mean(&|a, _| a[(r / d, c / d)] * a[(r % d, c % d)])),
            ab: Mat::from_fn(d * d, d, |r, j| mean(&|a, b| a[(r / d, j)] * b[r % d])),
            bb: Mat::from_fn(d, d, |i, k| mean(&|_, b| b[i] * b[k])),
        }
    }

    /// One step `theta + eta (g(theta, z) + drift)` with sample `z`.
    pub fn step(&self, z: usize, theta: &[f64], eta: f64, drift: &[f64]) -> Vec<f64> {
        let (a, b) = &self.samples[z];
        let at = linalg::mat_vec(a, theta);
        (0..theta.len()).map(|i| theta[i] + eta * (b[i] - at[i] + drift[i])).collect()
    }
}

/// All agents' systems and moments, `copies[c]` agents of kind `c`, equal weights.
pub fn federation(kinds: &[Finite], copies: &[usize]) -> (Systems, Vec<Moments>) {
    let kind_of: Vec<u32> = copies.iter().enumerate().flat_map(|(k, n)| vec![k as u32; *n]).collect();
    let weights = vec![1.0 / kind_of.len() as f64; kind_of.len()];
    (Systems::new(kinds.iter().map(Finite::system).collect(), kind_of, weights), kinds.iter().map(Finite::moments).collect())
}
