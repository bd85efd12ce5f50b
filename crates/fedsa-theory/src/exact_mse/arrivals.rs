//! Rounds whose mean has random weights, and the covariance that they add to the iterate.

use faer::prelude::*;

use super::phase_noise::{check, phase_noise};
use crate::RoundSetting;
use crate::fedlsa::FedLsaMean;
use crate::phase::{AffinePhase, step};
use crate::symmetric::{congruence, packed_index, packed_len};
use crate::work;
use fedsa::error::Result;
use fedsa::linalg::Mat;
use fedsa::problem::systems::{Moments, Systems};

/// The first two moments of the weights `w_c` of directions in a round's mean, `v = sum_c w_c v_c + w`:
///
/// ```text
/// E w_c = mean p_c     E w_c^2 = square p_c^2     E w_c w_c' = pairs p_c p_c'     w ~ (0, noise I)
/// ```
///
/// Agents may add independent noise of mean 0 to the directions that they send: `v_c + e_c`, `e_c ~ (0, sent_noise I)`.
///
/// The weights of a round are independent of samples and of all other rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivalLaw {
    /// `E w_c / p_c`.
    pub mean: f64,
    /// `E w_c^2 / p_c^2`.
    pub square: f64,
    /// `E w_c w_c' / (p_c p_c')` of two agents.
    pub pairs: f64,
    /// The variance of each component of the receivers' noise in v.
    pub noise: f64,
    /// The variance of each component of the noise that an agent adds to its direction.
    pub sent_noise: f64,
}

impl ArrivalLaw {
    /// The law of a clear link with all agents.
    pub fn clear() -> Self {
        Self { mean: 1.0, square: 1.0, pairs: 1.0, noise: 0.0, sent_noise: 0.0 }
    }

    /// Messages arrive with factors h that are independent over agents, 0 if lost, with `mean = E h` and `square = E h^2`.
    /// `noise_std` is the standard deviation of N w, where N is `agents`.
    pub fn by_factors(mean: f64, square: f64, noise_std: f64, agents: usize) -> Self {
        Self { mean, square, pairs: mean * mean, noise: (noise_std / agents as f64).powi(2), sent_noise: 0.0 }
    }

    /// The same law, where agents add noise with this standard deviation to each component that they send.
    #[must_use]
    pub fn with_sent_noise(self, std: f64) -> Self {
        Self { sent_noise: std * std, ..self }
    }

    /// The same law if m of N agents of equal weight participate, drawn uniformly without replacement: `w_c = h_c 1{c participates} /
    /// m`. The receivers' noise must be the noise for m agents.
    #[must_use]
    pub fn of_few(self, m: usize, agents: usize) -> Self {
        if m >= agents {
            return self;
        }
        let (m, n) = (m as f64, agents as f64);
        Self { square: self.square * n / m, pairs: self.pairs * n * (m - 1.0) / (m * (n - 1.0)), ..self }
    }
}

/// The covariance that a round of FedLSA adds to the iterate. With `D_c (u, 1)` the mean displacement of agent c's local phase,
/// `Dbar = sum p_c D_c`, `V_c` the conditional covariance of the end of the local phase, and X the second moment of `(u, 1)` at the
/// model at which the local phase starts,
///
/// ```text
/// Q(X) = alpha_g^2 [ sum_c p_c^2 (square (V_c(X) + E^2 sent_noise I) + (square - pairs) D_c X D_c^T)
///                    + (pairs - mean^2) Dbar X Dbar^T + E^2 noise I ]
/// ```
///
/// from `E sum_{c,c'} w_c w_c' d_c d_c'^T` with `E[d_c d_c'^T] = D_c X D_c'^T + [c = c'] V_c(X)`, minus the square of the
/// mean.
#[derive(Debug, Clone)]
pub(super) struct RoundNoise {
    /// The mean round, in which the server's step is `mean alpha_g`.
    pub mean: FedLsaMean,
    /// Q: packed d x packed (d+1).
    pub source: Mat<f64>,
    /// The covariance of two rounds that use the same samples with independent weights:
    /// `alpha_g^2 mean^2 sum_c p_c^2 V_c(X)`, packed d x packed (d+1).
    pub again: Mat<f64>,
    /// `alpha_g^2 E^2 noise`, the receivers' share of Q.
    pub receivers: f64,
}

impl RoundNoise {
    /// The covariance for the given agents; `moments[k]` belongs to `systems.kinds[k]`; `None` if operators are noiseless.
    ///
    /// # Errors
    /// When the mean system has no unique root, the moments do not fit, or no message arrives.
    pub fn new(systems: &Systems, moments: Option<&[Moments]>, setting: &RoundSetting, batch: u64, arrivals: &ArrivalLaw) -> Result<Self> {
        if let Some(moments) = moments {
            check(systems, moments, batch)?;
        }
        let d = systems.dim();
        let alpha = setting.server_step;
        let mean = FedLsaMean::new(systems, &setting.with_server_step(alpha * arrivals.mean)?)?;
        let mut squares = vec![0.0; systems.kinds.len()];
        systems.kind_of.iter().zip(&systems.weights).for_each(|(k, p)| squares[*k as usize] += p * p);
        let (rows, columns) = (packed_len(d), packed_len(d + 1));
        let (mut source, mut again) = (Mat::<f64>::zeros(rows, columns), Mat::<f64>::zeros(rows, columns));
        if let Some(moments) = moments {
            let noises: Vec<Mat<f64>> = work::map(systems.kinds.len(), |k| {
                // One mean step on (u, 1): u + eta gbar_c(theta* + u).
                let (system, mut f) = (&systems.kinds[k], Mat::<f64>::identity(d + 1, d + 1));
                f.get_mut(..d, ..d).copy_from(step(&system.a, setting.step_size));
                let push = system.mean(&mean.root);
                (0..d).for_each(|i| f[(i, d)] = setting.step_size * push[i]);
                phase_noise(system, &moments[k], &mean.root, batch, setting, &f)
            })?;
            for (noise, square) in noises.iter().zip(&squares) {
                source += Scale(alpha * alpha * square * arrivals.square) * noise;
                again += Scale((alpha * arrivals.mean).powi(2) * square) * noise;
            }
        }
        let (spread, common) = (arrivals.square - arrivals.pairs, arrivals.pairs - arrivals.mean * arrivals.mean);
        if spread != 0.0 || common != 0.0 {
            let mut dbar = Mat::<f64>::zeros(d + 1, d + 1);
            for ((system, weight), square) in systems.kinds.iter().zip(systems.kind_weights()).zip(&squares) {
                let displacement =
                    displacement(&AffinePhase::new(&system.a, setting.step_size, setting.local_steps), &system.a, &system.mean(&mean.root));
                source += Scale(alpha * alpha * square * spread) * congruence(&displacement).get(..rows, ..);
                dbar += Scale(weight) * displacement;
            }
            source += Scale(alpha * alpha * common) * congruence(&dbar).get(..rows, ..);
        }
        let span = (alpha * setting.span()).powi(2);
        let (receivers, agents) = (span * arrivals.noise, span * arrivals.sent_noise * arrivals.square * squares.iter().sum::<f64>());
        (0..d).for_each(|i| source[(packed_index(i, i), packed_index(d, d))] += receivers + agents);
        Ok(Self { mean, source, again, receivers })
    }
}

/// `D_c`: `(u, 1) -> -S_c Abar_c u + S_c gbar_c(theta*)`, with a last row of zeros.
fn displacement(phase: &AffinePhase, a: &Mat<f64>, push: &[f64]) -> Mat<f64> {
    let d = push.len();
    let mut map = Mat::<f64>::zeros(d + 1, d + 1);
    map.get_mut(..d, ..d).copy_from(Scale(-1.0) * (&phase.sum * a));
    let push = fedsa::linalg::mat_vec(&phase.sum, push);
    (0..d).for_each(|i| map[(i, d)] = push[i]);
    map
}
