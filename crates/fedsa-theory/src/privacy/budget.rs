//! A privacy budget of agent units, and the noise that it asks for.

use fedsa::error::{Result, require};
use fedsa::privacy::accounting;
use fedsa::privacy::sensitivity::{Relation, clipped};

/// (epsilon, delta) for all data of an agent, whose messages are clipped to a norm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgentBudget {
    /// epsilon.
    pub epsilon: f64,
    /// delta.
    pub delta: f64,
    /// How two data sets differ.
    pub relation: Relation,
    /// C: messages are clipped to this norm.
    pub clip: f64,
    /// `p_max`: the largest weight of an agent.
    pub largest_weight: f64,
}

impl AgentBudget {
    /// The rho that all releases of a run may add up to.
    ///
    /// # Errors
    /// When epsilon, delta, the norm or the weight is out of range.
    pub fn rho(&self) -> Result<f64> {
        require(self.epsilon > 0.0, "epsilon", self.epsilon, "a positive number")?;
        require(self.clip > 0.0 && self.clip.is_finite(), "clip", self.clip, "a positive norm")?;
        require(self.largest_weight > 0.0 && self.largest_weight <= 1.0, "weights", self.largest_weight, "above 0, at most 1")?;
        accounting::rho(self.epsilon, self.delta)
    }

    /// Delta: by how much an agent changes the mean of a round, in the 2-norm.
    pub fn sensitivity(&self) -> f64 {
        clipped(self.largest_weight, self.clip, self.relation)
    }

    /// `s^2 = k T Delta^2 / (2 rho)`: the variance of the noise in each component of every mean of T rounds with k releases each.
    ///
    /// # Errors
    /// As [`AgentBudget::rho`].
    pub fn noise(&self, rounds: u64, releases: u32) -> Result<f64> {
        Ok(rounds as f64 * f64::from(releases) * self.sensitivity().powi(2) / (2.0 * self.rho()?))
    }

    /// The epsilon of a run so far: of `releases` means with noise of this variance, at the budget's delta.
    ///
    /// # Errors
    /// When the variance is not positive, or delta is out of range.
    pub fn spent(&self, releases: u64, variance: f64) -> Result<f64> {
        let each = accounting::rho_of(self.sensitivity(), variance.sqrt())?;
        accounting::epsilon(releases as f64 * each, self.delta)
    }
}

/// `kappa d Delta^2 / (4 rho lambda^2)`: the noise of the last iterate for small steps, where `kappa = E T lambda` and lambda is the
/// smallest eigenvalue. It does not depend on T at a given kappa.
pub fn last_iterate_estimate(kappa: f64, dim: usize, sensitivity: f64, rho: f64, lambda: f64) -> f64 {
    kappa * dim as f64 * sensitivity * sensitivity / (4.0 * rho * lambda * lambda)
}

/// `d Delta^2 / (rho lambda^2)`: the noise of the mean of the last T/2 iterates for small steps and a large kappa, which no longer depends
/// on kappa.
pub fn averaged_estimate(dim: usize, sensitivity: f64, rho: f64, lambda: f64) -> f64 {
    dim as f64 * sensitivity * sensitivity / (rho * lambda * lambda)
}

/// `(C / lambda) sqrt(kappa d / (4 rho target))`: the number of agents of equal weight with which [`last_iterate_estimate`] is at most the
/// target, units removed.
pub fn agents_estimate(clip: f64, lambda: f64, kappa: f64, dim: usize, rho: f64, target: f64) -> f64 {
    clip / lambda * (kappa * dim as f64 / (4.0 * rho * target)).sqrt()
}
