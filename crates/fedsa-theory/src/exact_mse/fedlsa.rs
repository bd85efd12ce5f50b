//! FedLSA's exact mean-square error.

use super::ArrivalLaw;
use super::arrivals::RoundNoise;
use super::recursion::{Recursion, Recursive};
use crate::RoundSetting;
use crate::fedlsa::FedLsaMean;
use crate::symmetric::{congruence, packed_len};
use fedsa::error::Result;
use fedsa::linalg::Mat;
use fedsa::problem::systems::{Moments, Systems};

/// The exact second moments of FedLSA under i.i.d. samples, `batch` of them averaged in each step. With `m_t = (E theta_t - theta*, 1)`
/// and the covariance `C_t` of `theta_t`,
///
/// ```text
/// C_{t+1} = M C_t M^T + Q(m_t m_t^T + C_t)
/// ```
///
/// with M the mean round and Q the covariance that a round adds. Over a clear link Q is `alpha_g^2 sum p_c^2 V_c`, with `V_c` the
/// conditional covariance of an agent's local phase. If messages are lost or weakened at random, or only some of the agents
/// participate, the server's step in M is `mean alpha_g`, and Q includes the randomness of the weights ([`ArrivalLaw`]). Bias and noise
/// are computed separately, so that a large bias does not make the noise less accurate. Cost: one matrix of size (d+1)^2 for each
/// distinct agent, once, then `(d+1)^4` per round for any number of agents.
#[derive(Debug, Clone)]
pub struct FedLsaMse {
    mean: FedLsaMean,
    /// `C -> M C M^T + Q(C)`, packed d squared: on symmetric matrices, which contain its leading eigenvector.
    covariance: Mat<f64>,
    /// `m m^T -> Q(m m^T)`, packed d x packed (d+1).
    source: Mat<f64>,
}

impl FedLsaMse {
    /// The recursion for the given agents over a clear link; `moments[k]` belongs to `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system has no unique root or the moments do not fit.
    pub fn new(systems: &Systems, moments: &[Moments], setting: &RoundSetting, batch: u64) -> Result<Self> {
        Self::arriving(systems, Some(moments), setting, batch, &ArrivalLaw::clear())
    }

    /// The recursion if directions enter the mean with random weights; `moments` is `None` if operators are noiseless.
    ///
    /// # Errors
    /// When the mean system has no unique root, the moments do not fit, or no message arrives.
    pub fn arriving(
        systems: &Systems,
        moments: Option<&[Moments]>,
        setting: &RoundSetting,
        batch: u64,
        arrivals: &ArrivalLaw,
    ) -> Result<Self> {
        let RoundNoise { mean, source, .. } = RoundNoise::new(systems, moments, setting, batch, arrivals)?;
        let covariance = congruence(&mean.round_map()) + source.get(.., ..packed_len(systems.dim()));
        Ok(Self { mean, covariance, source })
    }

    /// The mean round.
    pub fn mean(&self) -> &FedLsaMean {
        &self.mean
    }
}

impl Recursive for FedLsaMse {
    fn recursion(&self) -> Recursion<'_> {
        let shift = self.mean.rho.iter().map(|rho| self.mean.server_step * rho).collect();
        let (covariance, source) = (&self.covariance, &self.source);
        Recursion { mean: self.mean.round_map(), shift, covariance, source, root: &self.mean.root, bias: Some(&self.mean) }
    }
}
