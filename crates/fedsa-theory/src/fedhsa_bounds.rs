//! The constants of \[F\]'s assumptions, and the schedule of its Corollary 1.
//!
//! The bounds of \[F\] (Theorems 1 and 2) hold up to universal constants that it does not state, so only their shapes are available
//! ([`bounds::fedhsa`](super::bounds::fedhsa)). With the effective step `alpha = alpha_g eta H`, the mean-square error falls as
//! `exp(-mu alpha t)` to a floor proportional to `alpha tau sigma^2 / (N H)`, without a term of heterogeneity. Results that follow from
//! the assumptions alone are explicit.

use serde::{Deserialize, Serialize};

use super::RoundSetting;
use fedsa::error::{Error, Result, require};
use fedsa::linalg;
use fedsa::problem::Facts;
use fedsa::problem::systems::Systems;

/// The most multiplications for norms of all samples' matrices.
const MAX_WORK: f64 = 1e9;

/// Constants of Assumptions 1 and 2 of \[F\], for linear operators whose samples have finitely many values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FedHsaConstants {
    /// `mu = lambda_min(sym Abar)`: `<theta - theta*, gbar(theta)> <= -mu ||theta - theta*||^2` (Assumption 2). Not positive if
    /// the mean operator is not strongly monotone.
    pub mu: f64,
    /// `L = max ||A_c(z)||`: every sampled operator is L-Lipschitz (Assumption 1).
    pub l: f64,
    /// `sigma = max(||theta*||, max ||b_c(z)|| / L)`, with which `||g_c(theta, z)|| <= L (||theta|| + sigma)` and
    /// `||g_c(theta, z)|| <= L (||theta - theta*|| + 2 sigma)` (Assumption 1, Corollary 2).
    pub sigma: f64,
}

impl FedHsaConstants {
    /// The constants of a problem with these facts.
    ///
    /// # Errors
    /// When the mean system has no unique root, samples have no finite law of linear operators, or have too many values.
    pub fn new(systems: &Systems, facts: &dyn Facts) -> Result<Self> {
        let (d, root) = (systems.dim(), systems.root()?);
        let abar = systems.mean().a;
        let symmetric = faer::Scale(0.5) * (&abar + abar.transpose());
        let lowest = linalg::eigenvalues(&symmetric)?.iter().map(|(re, _)| *re).fold(f64::INFINITY, f64::min);
        let (mut l, mut b_norm, mut work) = (0.0f64, 0.0f64, 0.0);
        let (mut a, mut b) = (vec![0.0; d * d], vec![0.0; d]);
        for kind in 0..systems.kinds.len() {
            let none = || Error::not_known("", "samples have no finite law", "linear operators whose samples have finitely many values");
            let law = facts.law(kind).ok_or_else(none)?;
            work += law.mass().len() as f64 * 20.0 * (d as f64).powi(3);
            require(work <= MAX_WORK, "", "norms of the matrices of so many samples", "fewer agents, values or components")?;
            for z in 0..law.mass().len() {
                if !law.parts(z, &mut a, &mut b) {
                    return Err(none());
                }
                l = l.max(linalg::norm2(&linalg::from_rows(d, d, &a)));
                b_norm = b_norm.max(linalg::norm_sq(&b).sqrt());
            }
        }
        let own = if l > 0.0 { b_norm / l } else { 0.0 };
        Ok(Self { mu: lowest, l, sigma: own.max(linalg::norm_sq(&root).sqrt()) })
    }

    /// The schedule of Corollary 1 for rounds of H local steps and the server's step alpha_g, with samples of mixing time `tau`
    /// (1 for independent ones).
    ///
    /// \[F\]'s own formula has unknown constants. This one takes them from the contraction: over a round with the effective step
    /// `alpha`, the squared error of the mean operator's step contracts by `1 - 2 mu alpha + L^2 alpha^2 <= 1 - mu alpha` where
    /// `alpha <= mu / L^2`. With `alpha_t = 2 / (mu (t + t0))` the noise then falls as 1/t, and `t0 = 2 tau L^2 / mu^2` makes the
    /// first step `mu / (tau L^2)`.
    ///
    /// # Errors
    /// When mu or L is not positive, or tau below 1.
    pub fn schedule(&self, setting: &RoundSetting, tau: f64) -> Result<CorollarySchedule> {
        require(self.mu > 0.0 && self.l > 0.0, "mu", self.mu, "a strongly monotone mean operator")?;
        require(tau >= 1.0 && tau.is_finite(), "tau", tau, "at least 1")?;
        let steps = setting.server_step * setting.local_steps as f64;
        Ok(CorollarySchedule { c: 2.0 / (self.mu * steps), t0: (2.0 * tau * (self.l / self.mu).powi(2)).max(1.0) })
    }
}

/// A decreasing local step size, `eta_t = c / (t + t0)` in round t: `step_size = { c = .., t0 = .. }` in files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CorollarySchedule {
    /// The numerator.
    pub c: f64,
    /// The offset of the rounds.
    pub t0: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Draw, Finite, federation};
    use fedsa::problem::law::FiniteLaw;

    struct Known<'a>(&'a [Finite]);

    impl Facts for Known<'_> {
        fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
            let samples = &self.0[kind].samples;
            let n = samples.len();
            Some(FiniteLaw::linear(samples[0].1.len(), vec![1.0 / n as f64; n], |z, a, b| {
                a.copy_from_slice(&linalg::to_rows(&samples[z].0));
                b.copy_from_slice(&samples[z].1);
            }))
        }
    }

    #[test]
    fn the_constants_bound_operators_and_are_reached() {
        let agents = Draw::new(31).finite(3, 3, 4);
        let (systems, _) = federation(&agents, &[1, 1, 1]);
        let FedHsaConstants { mu, l, sigma } = FedHsaConstants::new(&systems, &Known(&agents)).unwrap();
        let root = systems.root().unwrap();
        let mut draw = Draw::new(32);
        let (mut monotone, mut lipschitz) = (f64::INFINITY, 0.0f64);
        for _ in 0..20_000 {
            let u = draw.vector(3);
            let theta: Vec<f64> = u.iter().zip(&root).map(|(u, r)| 10.0 * u + r).collect();
            let size = 10.0 * linalg::norm_sq(&u).sqrt();
            let g = systems.mean().mean(&theta);
            let pull = -10.0 * g.iter().zip(&u).map(|(g, u)| g * u).sum::<f64>() / (size * size);
            assert!(pull >= mu - 1e-9);
            monotone = monotone.min(pull);
            for (a, b) in agents.iter().flat_map(|agent| &agent.samples) {
                let at = linalg::mat_vec(a, &theta);
                let norm = (0..3).map(|i| (b[i] - at[i]).powi(2)).sum::<f64>().sqrt();
                let far = linalg::norm_sq(&theta).sqrt();
                assert!(norm <= l * (far + sigma) + 1e-9 && norm <= l * (size + 2.0 * sigma) + 1e-9);
                lipschitz = lipschitz.max(linalg::norm_sq(&linalg::mat_vec(a, &u)).sqrt() / linalg::norm_sq(&u).sqrt());
            }
        }
        assert!(monotone < mu + 0.02 * mu.abs() && lipschitz > 0.98 * l, "{monotone} {mu}, {lipschitz} {l}");
    }

    #[test]
    fn the_schedule_starts_within_the_contraction_and_falls_as_one_over_t() {
        let constants = FedHsaConstants { mu: 0.5, l: 2.0, sigma: 1.0 };
        let setting = RoundSetting::new(0.1, 10).unwrap().with_server_step(0.5).unwrap();
        let CorollarySchedule { c, t0 } = constants.schedule(&setting, 3.0).unwrap();
        // The effective first step is alpha_g H c / t0 = mu / (tau L^2).
        assert!((5.0 * c / t0 - 0.5 / 12.0).abs() < 1e-15);
        // x <- (1 - mu alpha_t) x + alpha_t^2 stays below a multiple of 1 / (t + t0).
        let (mut x, mut most) = (1.0f64, 0.0f64);
        for t in 0..100_000 {
            let alpha = 5.0 * c / (t as f64 + t0);
            x = (1.0 - 0.5 * alpha) * x + alpha * alpha;
            most = most.max(x * (t as f64 + 1.0 + t0));
        }
        assert!(x * (100_000.0 + t0) <= most && most <= t0.max(2.0 * (2.0 / 0.5f64).powi(2)), "{most}");
        assert!(constants.schedule(&setting, 0.5).is_err());
        assert!(FedHsaConstants { mu: -1.0, ..constants }.schedule(&setting, 1.0).is_err());
    }
}
