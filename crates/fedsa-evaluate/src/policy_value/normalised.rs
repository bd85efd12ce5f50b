//! Self-normalised importance sampling: the weights of each step are divided by their mean over episodes.
//!
//! ```text
//! J = (1/n) sum_i v(s_{i,0}) + sum_t gamma^t R_t,     R_t = sum_i rho_{i,0:t} delta_{i,t} / sum_i rho_{i,0:t}
//! ```
//!
//! with `delta` as in the unbiased estimate. An episode that has ended keeps its last weight, and its errors are 0 from then on. The estimate is
//! biased by O(1/n) and consistent; its variance is usually smaller. The standard error is that of the ratios in the first order: of the
//! mean of
//!
//! ```text
//! h_i = v(s_{i,0}) + sum_t gamma^t (n rho_{i,0:t} / W_t) (delta_{i,t} - R_t),     W_t = sum_i rho_{i,0:t}.
//! ```
//!
//! What the weights of v add where episodes are cut short comes to it, as that of the unbiased estimate (`cut`).
//!
//! Agents send the sums of weights and of weighted errors by step, and then the sum and the sum of squares of `h_i`.

use super::weights::Weights;

/// What the weights of a set of episodes are divided by.
#[derive(Debug, Clone)]
pub(super) struct Normaliser {
    /// The estimate but for `v(s_0)`.
    later: f64,
    /// `gamma^t n / W_t`, and `R_t`.
    rates: Vec<f64>,
    means: Vec<f64>,
    /// `sum_{s >= t} rates[s] means[s]`, for an episode of t steps.
    rest: Vec<f64>,
}

impl Normaliser {
    /// Of `n` episodes with these weights; `None` where episodes are longer than what weights are kept for.
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

    /// What step t of an episode adds to `h_i`.
    pub fn step(&self, t: usize, weight: f64, error: f64) -> f64 {
        // Without weight nothing counts, whatever it is.
        if weight == 0.0 { 0.0 } else { self.rates[t] * weight * (error - self.means[t]) }
    }

    /// What an episode of `len` steps adds after its end.
    pub fn end(&self, len: usize, weight: f64) -> f64 {
        -weight * self.rest[len]
    }

    /// The estimate, given the mean of `v(s_0)`.
    pub fn value(&self, start: f64) -> f64 {
        start + self.later
    }
}
