//! The exact mean-square error under i.i.d. samples (in no source).
//!
//! `A(z)` and the noise are correlated, so the state includes a constant. With `u = theta - theta*` and a drift `x` that is constant
//! within a local phase, one step is linear in `(u, 1, x)`. So the second moment at the end of a local phase is linear in the second
//! moment at its start. Two agents are independent given the start:
//!
//! ```text
//! E[end_c end_c'^T | start] = F_c X F_c'^T + [c = c'] V_c(X),    X = start start^T
//! ```
//!
//! `F_c` is the mean local phase. `V_c(X)`, the conditional covariance of `theta_{c,H}`, is a linear map from packed X to packed d x d
//! matrices: `(K_c^H - F_c (x) F_c) X` with `K_c = E[M (x) M]` and M one sampled step on `(u, 1, x)`; only the block of u is not zero.
//!
//! In a round of FedHSA agents are not independent given the start, because the mean operator contains the first samples of all: see
//! [`FedHsaMse`].
//!
//! [`ArrivalLaw`] describes rounds in which messages are lost or weakened at random, or only some of the agents participate.
//! [`DelayedMse`] covers rounds that use directions from a constant number of rounds ago.

mod arrivals;
#[cfg(test)]
mod by_enumeration;
mod delay;
pub(crate) mod evolution;
mod fedhsa;
mod fedlsa;
mod phase_noise;
mod recursion;
mod scafflsa;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_fedhsa;

pub use arrivals::ArrivalLaw;
pub use delay::DelayedMse;
pub use evolution::Evolution;
pub use fedhsa::FedHsaMse;
pub use fedlsa::FedLsaMse;
pub(crate) use scafflsa::round_work;
pub use scafflsa::{InitialControls, ScafflsaMse};

use faer::{MatRef, Side};
use serde::{Deserialize, Serialize};

use fedsa::error::{Error, Result};
use fedsa::linalg;

/// Exact results for a method with independent samples: one recursion of second moments for each kind of rounds.
pub trait ExactMse {
    /// The spectral radius of the map of second moments. The mean-square error converges if it is below 1, and grows without bound if
    /// it is above 1.
    ///
    /// # Errors
    /// When the eigenvalues cannot be computed.
    fn radius(&self) -> Result<f64>;

    /// The floor: the limit of [`ExactMse::curve`] for large t. Its `bias` is the bias of the limit, so that `mse_around(&bias)` is the
    /// noise.
    ///
    /// # Errors
    /// When the mean or the mean-square error diverges, or a solve does not converge.
    fn floor(&self) -> Result<MeanSquare>;

    /// The mean and the second moment of `theta_t - theta*` at each of `rounds` (ascending), from `theta_0` (d).
    ///
    /// # Errors
    /// When the rounds are not in ascending order.
    fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>>;

    /// The mean-square error along the rounds from `theta_0` (d), as a map of a state.
    ///
    /// # Errors
    /// When `theta_0` has another length, or there is no such map.
    fn evolution(self: Box<Self>, theta_0: &[f64]) -> Result<Evolution>;
}

/// The mean and the second moment of the error `theta_t - theta*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeanSquare {
    /// The bias `E theta_t - theta*` (d).
    pub bias: Vec<f64>,
    /// The noise `E ||theta_t - E theta_t||^2`.
    pub noise: f64,
}

impl MeanSquare {
    /// A floor. Rounding can take a noise of 0 below 0.
    pub(super) fn floor(bias: Vec<f64>, noise: f64) -> Self {
        Self { bias, noise: if noise <= 0.0 { 0.0 } else { noise } }
    }

    /// `||E theta_t - theta*||^2`.
    pub fn bias_sq(&self) -> f64 {
        linalg::norm_sq(&self.bias)
    }

    /// The mean-square error `E ||theta_t - theta*||^2`.
    pub fn mse(&self) -> f64 {
        self.bias_sq() + self.noise
    }

    /// `E ||theta_t - theta* - offset||^2`; `offset` has d components. With the bias of FedLSA's limit as the offset this is the
    /// error around that limit.
    pub fn mse_around(&self, offset: &[f64]) -> f64 {
        linalg::distance_sq(&self.bias, offset) + self.noise
    }
}

/// Whether a symmetric matrix is positive definite.
///
/// This decides on a map T of second moments whose matrix is too large for eigenvalues. T maps covariances to covariances, so its
/// radius is below 1 exactly where `X = T(X) + S` has a solution that is a covariance, for a source S that excites all modes. With S =
/// I the solution is at least I, so rounding does not decide.
fn is_positive_definite(m: MatRef<'_, f64>) -> bool {
    m.is_all_finite() && m.llt(Side::Lower).is_ok()
}

/// The error for a missing floor where the radius was not computed.
fn diverges() -> Error {
    Error::not_known("step_size", "the mean-square error diverges although the mean converges", "a smaller step size or a larger batch")
}

/// The error for a missing floor.
pub(super) fn unstable(radius: f64) -> Error {
    // A map may overflow.
    let growth = if radius.is_finite() { format!(": after many rounds each one multiplies it by {radius:.6}") } else { String::new() };
    let help = "a smaller step size, fewer local steps or a larger batch";
    Error::not_known("step_size", format!("the mean-square error diverges{growth}"), help)
}
