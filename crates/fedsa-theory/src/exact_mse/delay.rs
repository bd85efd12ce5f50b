//! The exact mean-square error of rounds that use directions from a constant number of rounds ago.

use faer::prelude::*;

use super::arrivals::RoundNoise;
use super::evolution::Evolution;
use super::{ArrivalLaw, ExactMse, MeanSquare, diverges, is_positive_definite, unstable};
use crate::RoundSetting;
use crate::map::{DENSE, LinearMap, spectral_radius};
use crate::stability::delayed_radius;
use crate::symmetric::{pack, packed_index, packed_len};
use crate::unknown::unknown;
use crate::work;
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::{Moments, Systems};
use fedsa::uplink::stage::delay::Before;

/// The exact second moments of FedLSA whose rounds use the directions of tau rounds ago, i.i.d. samples:
///
/// ```text
/// theta_{t+1} = theta_t + alpha_g sum_c w_c d_c(theta_{t-tau}),     d_c the displacement of agent c's local phase
/// ```
///
/// From round tau on each round's samples are used once, and are independent of the models up to then. With the mean map
/// `u_{t+1} = u_t - K u_{t-tau} + k`, `C_{i,j}` the covariance of `theta_i` and `theta_j`, and Q the covariance that a round
/// adds,
///
/// ```text
/// C_{t+1,j} = C_{t,j} - K C_{t-tau,j}                                            j = t-tau+1 .. t
/// C_{t+1,t+1} = C_{t+1,t} - C_{t+1,t-tau} K^T + Q(m_{t-tau} m_{t-tau}^T + C_{t-tau,t-tau})
/// ```
///
/// (`C_{t+1,t-tau}` is computed in the same way). With [`Before::First`], rounds 0 to tau all use the samples of round 0, with
/// independent weights: for i, j <= tau + 1
///
/// ```text
/// C_{i,j} = min(i,j) Q(m_0 m_0^T) + (i j - min(i,j)) alpha_g^2 (E w)^2 sum_c p_c^2 V_c(m_0 m_0^T)
/// ```
///
/// With [`Before::Nothing`], which is also the start of late answers (push), only the receivers' noise arrives in these
/// rounds. Cost: `tau d^3` per round; for the floor a linear system of `d (d+1)/2 + tau d^2` numbers.
#[derive(Debug, Clone)]
pub struct DelayedMse {
    round: RoundNoise,
    delay: usize,
    before: Before,
    /// `K = mean alpha_g sum p_c S_c Abar_c`, d x d.
    pull: Mat<f64>,
    /// `k = mean alpha_g rho_H` (d).
    push: Vec<f64>,
}

/// The means and covariances of the last tau + 1 rounds, t in slot t mod (tau + 1).
struct Past {
    dim: usize,
    slots: usize,
    /// d numbers each.
    means: Vec<Vec<f64>>,
    /// Blocks of d x d numbers.
    joint: Mat<f64>,
}

impl Past {
    fn new(dim: usize, slots: usize) -> Self {
        Self { dim, slots, means: vec![Vec::new(); slots], joint: Mat::zeros(slots * dim, slots * dim) }
    }

    /// The first row of round t.
    fn place(&self, t: usize) -> usize {
        (t % self.slots) * self.dim
    }
}

impl DelayedMse {
    /// The recursion for the given agents with a delay of `delay` rounds; `moments` is `None` if operators are noiseless.
    ///
    /// # Errors
    /// When the mean system has no unique root, the moments do not fit, or no message arrives.
    pub fn new(
        systems: &Systems,
        moments: Option<&[Moments]>,
        setting: &RoundSetting,
        batch: u64,
        arrivals: &ArrivalLaw,
        (delay, before): (usize, Before),
    ) -> Result<Self> {
        let round = RoundNoise::new(systems, moments, setting, batch, arrivals)?;
        let pull = round.mean.pull();
        let push = round.mean.rho.iter().map(|x| round.mean.server_step * x).collect();
        Ok(Self { round, delay, before, pull, push })
    }

    fn dim(&self) -> usize {
        self.push.len()
    }

    /// Applies `map`, a part of Q, to the second moment of `(u, 1)` whose mean is m and whose covariance is C; d x d.
    fn added(&self, map: &Mat<f64>, m: &[f64], covariance: impl Fn(usize, usize) -> f64) -> Mat<f64> {
        let d = self.dim();
        let at = |i: usize| if i < d { m[i] } else { 1.0 };
        let moment = pack(d + 1, |i, j| at(i) * at(j) + if j < d { covariance(i, j) } else { 0.0 });
        let packed = linalg::mat_vec(map, &moment);
        Mat::from_fn(d, d, |i, j| packed[packed_index(i, j)])
    }

    /// Moves from round `now` to the next.
    fn advance(&self, past: &mut Past, now: usize) {
        let d = self.dim();
        // theta_{t-tau} is in the slot that theta_{t+1} takes.
        let (last, oldest) = (past.place(now), past.place(now + 1));
        let Past { slots, means, joint, .. } = past;
        let old_mean = means[(now + 1) % *slots].clone();
        let mean: Vec<f64> = (means[now % *slots].iter().zip(linalg::mat_vec(&self.pull, &old_mean)).zip(&self.push))
            .map(|((u, pulled), k)| u - pulled + k)
            .collect();
        let added = self.added(&self.round.source, &old_mean, |i, j| joint[(oldest + i, oldest + j)]);
        let row = joint.get(last..last + d, ..) - &self.pull * joint.get(oldest..oldest + d, ..);
        let own = row.get(.., last..last + d) - row.get(.., oldest..oldest + d) * self.pull.transpose() + added;
        joint.get_mut(oldest..oldest + d, ..).copy_from(&row);
        joint.get_mut(.., oldest..oldest + d).copy_from(row.transpose());
        // Made exactly symmetric, because asymmetric rounding errors would grow.
        let symmetric = Mat::from_fn(d, d, |i, j| 0.5 * (own[(i, j)] + own[(j, i)]));
        joint.get_mut(oldest..oldest + d, oldest..oldest + d).copy_from(symmetric);
        means[(now + 1) % *slots] = mean;
    }

    /// The dimension of the linear system of the floor.
    pub fn floor_size(dim: usize, delay: usize) -> usize {
        packed_len(dim) + delay * dim * dim
    }

    /// The place of the entry (i, j) of `R_lag` among the unknowns of the floor; `R_0` is packed.
    fn lag(&self, lag: usize, i: usize, j: usize) -> usize {
        let d = self.dim();
        match lag {
            0 => packed_index(i, j),
            lag => packed_len(d) + (lag - 1) * d * d + i * d + j,
        }
    }

    /// The matrix of the equations of the floor.
    fn floor_system(&self) -> Mat<f64> {
        let (d, tau, k) = (self.dim(), self.delay, &self.pull);
        let n = Self::floor_size(d, tau);
        let lag = |lag: usize, i: usize, j: usize| self.lag(lag, i, j);
        let mut system = Mat::<f64>::zeros(n, n);
        for step in 0..tau {
            for i in 0..d {
                for j in 0..d {
                    let row = lag(step + 1, i, j);
                    system[(row, row)] += 1.0;
                    system[(row, lag(step, i, j))] -= 1.0;
                    for l in 0..d {
                        // (K R^T)_ij = sum_l K_il R_jl.
                        system[(row, lag(tau - step, j, l))] += k[(i, l)];
                    }
                }
            }
        }
        // K R_0 K^T + Q(R_0) on packed matrices.
        let own = crate::symmetric::congruence(k) + self.round.source.get(.., ..packed_len(d));
        for j in 0..d {
            for i in 0..=j {
                let row = packed_index(i, j);
                for l in 0..d {
                    // (K R_tau^T)_ij + (R_tau K^T)_ij.
                    system[(row, lag(tau, j, l))] += k[(i, l)];
                    system[(row, lag(tau, i, l))] += k[(j, l)];
                }
                for column in 0..packed_len(d) {
                    system[(row, column)] -= own[(row, column)];
                }
            }
        }
        system
    }
}

impl ExactMse for DelayedMse {
    /// The radius of the map of `(theta_t .. theta_{t-tau})`; large maps are not formed as matrices.
    fn radius(&self) -> Result<f64> {
        spectral_radius(&Joint(self))
    }

    /// From one linear solve. With `R_k = Cov(theta_{t+k}, theta_t)`,
    ///
    /// ```text
    /// R_{k+1} = R_k - K R_{tau-k}^T,   k = 0 .. tau-1,        K R_tau^T + R_tau K^T = K R_0 K^T + Q(m m^T + R_0)
    /// ```
    ///
    /// The floor exists if the radius is below 1. If the map is too large for its radius, the same system with the source I in place of
    /// `Q(m m^T)` decides. The noise cannot decide: it may be 0 at the root, and then does not excite all modes.
    fn floor(&self) -> Result<MeanSquare> {
        let radius = delayed_radius(&self.pull, &unit(self.delay))?;
        if radius >= 1.0 {
            return Err(unstable(radius * radius));
        }
        if !self.round.source.is_all_finite() {
            return Err(unstable(f64::INFINITY));
        }
        let is_small = Joint(self).dim() <= DENSE;
        if is_small {
            let radius = self.radius()?;
            if radius >= 1.0 {
                return Err(unstable(radius));
            }
        }
        let (d, tau) = (self.dim(), self.delay);
        let bias = self.round.mean.bias()?;
        let source = self.added(&self.round.source, &bias, |_, _| 0.0);
        // Two sources: the noise, and I.
        let system = self.floor_system();
        let mut right = Mat::<f64>::zeros(system.nrows(), 2);
        for j in 0..d {
            (0..=j).for_each(|i| right[(packed_index(i, j), 0)] = source[(i, j)]);
            right[(packed_index(j, j), 1)] = 1.0;
        }
        let solution = work::dense((system.nrows() as f64).powi(3) / 3.0, move || linalg::solve_columns(&system, &right))??;
        if !is_small {
            // The covariance of (theta_t .. theta_{t-tau}).
            let joint = Mat::from_fn(d * (tau + 1), d * (tau + 1), |row, column| {
                let (now, before) = (row.min(column), row.max(column));
                solution[(self.lag(before / d - now / d, now % d, before % d), 1)]
            });
            if !is_positive_definite(joint.as_ref()) {
                return Err(diverges());
            }
        }
        Ok(MeanSquare::floor(bias, (0..d).map(|i| solution[(packed_index(i, i), 0)]).sum()))
    }

    fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        if !rounds.is_sorted() {
            return Err(Error::new("rounds", "rounds that are not in ascending order", "ascending round numbers"));
        }
        let (d, tau) = (self.dim(), self.delay);
        let start: Vec<f64> = theta_0.iter().zip(&self.round.mean.root).map(|(x, r)| x - r).collect();
        let first = self.added(&self.round.source, &start, |_, _| 0.0);
        let again = self.added(&self.round.again, &start, |_, _| 0.0);
        let moved: Vec<f64> = linalg::mat_vec(&self.pull, &start).iter().zip(&self.push).map(|(x, k)| k - x).collect();
        // The round in which the recursion begins, and the covariances before it.
        let (begins, is_first) = match self.before {
            Before::First => (tau + 1, true),
            Before::Nothing => (tau, false),
        };
        let early = |i: usize, j: usize| -> Mat<f64> {
            let least = i.min(j) as f64;
            if is_first {
                Scale(least) * &first + Scale((i * j) as f64 - least) * &again
            } else {
                Scale(least * self.round.receivers) * Mat::<f64>::identity(d, d)
            }
        };
        let early_mean = |i: usize| -> Vec<f64> {
            let times = if is_first { i as f64 } else { 0.0 };
            start.iter().zip(&moved).map(|(u, move_)| u + times * move_).collect()
        };
        let mut past = Past::new(d, tau + 1);
        for i in begins - tau..=begins {
            let at = past.place(i);
            past.means[i % past.slots] = early_mean(i);
            for j in begins - tau..=begins {
                let other = past.place(j);
                past.joint.get_mut(at..at + d, other..other + d).copy_from(early(i, j));
            }
        }
        let mut curve = Vec::with_capacity(rounds.len());
        let mut now = begins;
        for round in rounds.iter().map(|t| *t as usize) {
            if round <= begins {
                let covariance = early(round, round);
                curve.push(MeanSquare { bias: early_mean(round), noise: (0..d).map(|i| covariance[(i, i)]).sum() });
                continue;
            }
            while now < round {
                work::check()?;
                self.advance(&mut past, now);
                now += 1;
            }
            let at = past.place(now);
            let noise = (0..d).map(|i| past.joint[(at + i, at + i)]).sum();
            curve.push(MeanSquare { bias: past.means[now % past.slots].clone(), noise });
        }
        Ok(curve)
    }

    fn evolution(self: Box<Self>, _: &[f64]) -> Result<Evolution> {
        Err(unknown("the map of a round that uses old answers"))
    }
}

/// The law of a constant delay.
fn unit(delay: usize) -> Vec<f64> {
    let mut law = vec![0.0; delay + 1];
    law[delay] = 1.0;
    law
}

/// One round of the covariances of the last tau + 1 iterates, packed.
struct Joint<'a>(&'a DelayedMse);

impl LinearMap for Joint<'_> {
    fn work(&self) -> f64 {
        let (d, n) = (self.0.dim() as f64, (self.0.dim() * (self.0.delay + 1)) as f64);
        d * d * n + (0.5 * d * d).powi(2) + 3.0 * n * n
    }

    fn dim(&self) -> usize {
        packed_len(self.0.dim() * (self.0.delay + 1))
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        let (d, n) = (self.0.dim(), self.0.dim() * (self.0.delay + 1));
        let old = n - d;
        let at = |i: usize, j: usize| x[packed_index(i, j)];
        // Block i is theta_{t-i}. In the next moment, the first row of blocks belongs to theta_t - K theta_{t-tau} and all iterates.
        let top = Mat::from_fn(d, n, at) - &self.0.pull * Mat::from_fn(d, n, |i, j| at(old + i, j));
        let added = self.0.round.source.get(.., ..packed_len(d)) * linalg::column(&pack(d, |i, j| at(old + i, old + j)));
        let own = top.get(.., ..d) - top.get(.., old..) * self.0.pull.transpose();
        for j in 0..n {
            for i in 0..=j {
                out[packed_index(i, j)] = match (i < d, j < d) {
                    (true, true) => own[(i, j)] + added[(packed_index(i, j), 0)],
                    (true, false) => top[(i, j - d)],
                    (false, _) => at(i - d, j - d),
                };
            }
        }
    }
}
