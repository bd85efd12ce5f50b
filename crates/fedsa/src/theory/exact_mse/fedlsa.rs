//! FedLSA's exact mean-square error.

use faer::prelude::*;
use rayon::prelude::*;

use super::leg_noise::{check, leg_noise};
use super::{MeanSquare, unstable};
use crate::error::Result;
use crate::linalg::{self, Mat};
use crate::problem::systems::{Moments, Systems};
use crate::theory::Setting;
use crate::theory::fedlsa::FedLsa;
use crate::theory::leg::step;
use crate::theory::map::{at_rounds, spectral_radius};
use crate::theory::symmetric::{congruence, pack, packed_index, packed_len, packed_trace};

/// The exact second moments of FedLSA under i.i.d. samples, `batch` of them
/// averaged in each step. With `m_t = (E theta_t - theta*, 1)` and the
/// covariance `C_t` of `theta_t`,
///
/// ```text
/// C_{t+1} = M C_t M^T + alpha_g^2 sum p_c^2 V_c(m_t m_t^T + C_t)
/// ```
///
/// with M the mean round and `V_c` the conditional covariance of an agent's
/// leg. The noise is carried by itself, so nothing is lost where the bias is
/// much larger. Cost: one matrix of size (d+1)^2 a distinct agent, once, then
/// `(d+1)^4` a round whatever the number of agents.
#[derive(Debug, Clone)]
pub struct FedLsaMse {
    mean: FedLsa,
    /// `C -> M C M^T + alpha_g^2 sum p_c^2 V_c(C)`, packed d squared.
    covariance: Mat<f64>,
    /// `m m^T -> alpha_g^2 sum p_c^2 V_c(m m^T)`, packed d x packed (d+1).
    source: Mat<f64>,
}

impl FedLsaMse {
    /// The recursion for the given agents; `moments[k]` belongs to `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system has no unique root or the moments do not fit.
    pub fn new(systems: &Systems, moments: &[Moments], setting: &Setting, batch: u64) -> Result<Self> {
        check(systems, moments, batch)?;
        let d = systems.dim();
        let mean = FedLsa::new(systems, setting)?;
        let mut squares = vec![0.0; systems.kinds.len()];
        systems.kind_of.iter().zip(&systems.weights).for_each(|(k, p)| squares[*k as usize] += p * p);
        let noises: Vec<Mat<f64>> = (systems.kinds.par_iter().zip(moments))
            .map(|(system, moments)| {
                // One mean step on (u, 1): u + eta gbar_c(theta* + u).
                let mut f = Mat::<f64>::identity(d + 1, d + 1);
                f.get_mut(..d, ..d).copy_from(step(&system.a, setting.step_size));
                let push = system.mean(&mean.root);
                (0..d).for_each(|i| f[(i, d)] = setting.step_size * push[i]);
                leg_noise(system, moments, &mean.root, batch, setting, &f)
            })
            .collect();
        let mut source = Mat::<f64>::zeros(packed_len(d), packed_len(d + 1));
        for (noise, square) in noises.iter().zip(&squares) {
            source += Scale(setting.server_step * setting.server_step * square) * noise;
        }
        let covariance = congruence(&mean.round_map()) + source.get(.., ..packed_len(d));
        Ok(Self { mean, covariance, source })
    }

    /// The mean iterate behind it.
    pub fn mean(&self) -> &FedLsa {
        &self.mean
    }

    /// The spectral radius of the second-moment map (the d^2 map, on symmetric
    /// matrices, where its leading eigenvector is): below 1 the mean-square
    /// error converges, above it grows without bound.
    ///
    /// # Errors
    /// When the eigenvalues cannot be computed.
    pub fn radius(&self) -> Result<f64> {
        spectral_radius(&self.covariance)
    }

    /// The law of `theta_t` at the wanted rounds (ascending), from a fixed `theta_0`.
    ///
    /// # Errors
    /// When the rounds are not in ascending order.
    pub fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        let d = theta_0.len();
        let (nc, nm) = (packed_len(d), packed_len(d + 1));
        // On (C, m m^T), both packed.
        let mut lifted = Mat::<f64>::identity(d + 1, d + 1);
        lifted.get_mut(..d, ..d).copy_from(self.mean.round_map());
        (0..d).for_each(|i| lifted[(i, d)] = self.mean.server_step * self.mean.rho[i]);
        let mut map = Mat::<f64>::zeros(nc + nm, nc + nm);
        map.get_mut(..nc, ..nc).copy_from(&self.covariance);
        map.get_mut(..nc, nc..).copy_from(&self.source);
        map.get_mut(nc.., nc..).copy_from(congruence(&lifted));

        let mut start = vec![0.0; nc];
        let u: Vec<f64> = theta_0.iter().zip(&self.mean.root).map(|(x, r)| x - r).chain([1.0]).collect();
        start.extend(pack(d + 1, |i, j| u[i] * u[j]));
        let mut curve = Vec::with_capacity(rounds.len());
        at_rounds(&map, start, rounds, |state| {
            let bias = (0..d).map(|i| state[nc + packed_index(i, d)]).collect();
            curve.push(MeanSquare { bias, noise: packed_trace(d, state) });
        })?;
        Ok(curve)
    }

    /// The floor: the law of `theta_t` as t grows, from one linear solve.
    /// `bias` is that of the limit, so `mse_around(&bias)` is the noise alone.
    ///
    /// # Errors
    /// When the mean-square error diverges.
    pub fn floor(&self) -> Result<MeanSquare> {
        let radius = self.radius()?;
        if radius >= 1.0 {
            return Err(unstable(radius));
        }
        let bias = self.mean.bias()?;
        let d = bias.len();
        let m: Vec<f64> = bias.iter().copied().chain([1.0]).collect();
        let source = linalg::mat_vec(&self.source, &pack(d + 1, |i, j| m[i] * m[j]));
        let n = packed_len(d);
        let covariance = linalg::solve(&(Mat::<f64>::identity(n, n) - &self.covariance), &source)?;
        Ok(MeanSquare { bias, noise: packed_trace(d, &covariance) })
    }
}
