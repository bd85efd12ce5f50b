//! Self-normalised importance sampling: the weights of each step are divided by their mean over episodes.
//!
//! ```text
//! J = (1/n) sum_i v(s_{i,0}) + sum_t gamma^t R_t,     R_t = sum_i rho_{i,0:t} delta_{i,t} / sum_i rho_{i,0:t}
//! ```
//!
//! with `delta` as in the unbiased estimate. A finished episode keeps its last weight; its errors are 0 from then on. The estimate is
//! biased by O(1/n) and consistent; its variance is usually smaller. The standard error is the error of the ratios to first order, that
//! is, of the mean of
//!
//! ```text
//! h_i = v(s_{i,0}) + sum_t gamma^t (n rho_{i,0:t} / W_t) (delta_{i,t} - R_t),     W_t = sum_i rho_{i,0:t}.
//! ```
//!
//! If episodes are truncated, the contribution of the weights of v is added, as for the unbiased estimate (`cut`).
//!
//! Agents send the sums of weights and of weighted errors by step, and then the sum and the sum of squares of `h_i`.

use super::weights::Weights;

/// The divisors of the weights of a set of episodes.
#[derive(Debug, Clone)]
pub(super) struct Normaliser {
    /// The estimate without `v(s_0)`.
    later: f64,
    /// `gamma^t n / W_t`, and `R_t`.
    rates: Vec<f64>,
    means: Vec<f64>,
    /// `sum_{s >= t} rates[s] means[s]`, for an episode of t steps.
    rest: Vec<f64>,
}

impl Normaliser {
    /// The divisors for `n` episodes with these weights; `None` if episodes are longer than the steps for which weights are kept.
    pub fn new(weights: &Weights, n: usize, gamma: f64) -> Option<Self> {
        let sums = weights.sums()?;
        let (mut later, mut discount) = (0.0, 1.0);
        let (mut rates, mut means) = (Vec::with_capacity(sums.len()), Vec::with_capacity(sums.len()));
        for (weight, error) in sums {
            let mean = if weight > 0.0 { error / weight } else { 0.0 };
            rates.push(if weight > 0.0 { discount * n as f64 / weight } else { 0.0 });
            means.push(mean);
            later += discount * mean;
            discount *= gamma;
        }
        let mut rest = vec![0.0; rates.len() + 1];
        for t in (0..rates.len()).rev() {
            rest[t] = rest[t + 1] + rates[t] * means[t];
        }
        Some(Self { later, rates, means, rest })
    }

    /// The contribution of step t of an episode to `h_i`.
    pub fn step(&self, t: usize, weight: f64, error: f64) -> f64 {
        // Without weight, no value counts, finite or not.
        if weight == 0.0 { 0.0 } else { self.rates[t] * weight * (error - self.means[t]) }
    }

    /// The contribution of an episode of `len` steps after its end.
    pub fn end(&self, len: usize, weight: f64) -> f64 {
        -weight * self.rest[len]
    }

    /// The estimate, given the mean of `v(s_0)`.
    pub fn value(&self, start: f64) -> f64 {
        start + self.later
    }
}
