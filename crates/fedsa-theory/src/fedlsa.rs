//! The mean iterate of FedLSA: exact at every round, and in the limit.

use faer::prelude::*;

use crate::RoundSetting;
use crate::phase::{AffinePhase, power_and_sum};
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::Systems;

/// The mean of one round of FedLSA (\[S\] eq. 13-16), exact under noiseless and under i.i.d. samples:
///
/// ```text
/// E theta_{t+1} - theta* = M (E theta_t - theta*) + alpha_g rho_H
/// M     = (1 - alpha_g) I + alpha_g Gbar,     Gbar = sum p_c (I - eta Abar_c)^H
/// rho_H = sum p_c S_c gbar_c(theta*)
/// ```
///
/// `rho_H` equals `sum p_c (I - (I - eta Abar_c)^H) (theta*_c - theta*)`, but is computed without the local roots
/// `theta*_c`, which are huge for agents with a nearly singular `Abar_c`. Likewise `I - Gbar = sum p_c S_c Abar_c` is
/// computed without cancellation. Agents of one kind are computed once.
#[derive(Debug, Clone)]
pub struct FedLsaMean {
    /// The global root `theta*` (d).
    pub root: Vec<f64>,
    /// `Gbar = sum p_c (I - eta Abar_c)^H`, d x d.
    pub gbar: Mat<f64>,
    /// `rho_H = sum p_c S_c gbar_c(theta*)` (d).
    pub rho: Vec<f64>,
    /// `I - Gbar = sum p_c S_c Abar_c`, d x d.
    contraction: Mat<f64>,
    /// alpha_g.
    pub server_step: f64,
}

impl FedLsaMean {
    /// The mean round of these agents with this setting.
    ///
    /// # Errors
    /// When the mean system has no unique root.
    pub fn new(systems: &Systems, setting: &RoundSetting) -> Result<Self> {
        let d = systems.dim();
        let root = systems.root()?;
        let mut gbar = Mat::<f64>::zeros(d, d);
        let mut contraction = Mat::<f64>::zeros(d, d);
        let mut rho = vec![0.0; d];
        for (system, weight) in systems.kinds.iter().zip(systems.kind_weights()) {
            let phase = AffinePhase::new(&system.a, setting.step_size, setting.local_steps);
            let pull = linalg::mat_vec(&phase.sum, &system.mean(&root));
            rho.iter_mut().zip(pull).for_each(|(r, x)| *r += weight * x);
            contraction += Scale(weight) * (&phase.sum * &system.a);
            gbar += Scale(weight) * phase.propagator;
        }
        Ok(Self { root, gbar, rho, contraction, server_step: setting.server_step })
    }

    /// `M = I - alpha_g (I - Gbar)`, the linear part of a round, d x d.
    pub fn round_map(&self) -> Mat<f64> {
        let d = self.root.len();
        Mat::<f64>::identity(d, d) - Scale(self.server_step) * &self.contraction
    }

    /// `K = alpha_g (I - Gbar)`, d x d, computed without cancellation; `M = I - K`.
    pub fn pull(&self) -> Mat<f64> {
        Scale(self.server_step) * &self.contraction
    }

    /// The mean iterates `E theta_t = theta* + M^t (theta_0 - theta*) + sum_{s<t} M^s alpha_g rho_H` at each of `rounds`
    /// (ascending); vectors of d components.
    pub fn mean(&self, theta_0: &[f64], rounds: &[u64]) -> Vec<Vec<f64>> {
        let m = self.round_map();
        let start: Vec<f64> = theta_0.iter().zip(&self.root).map(|(x, r)| x - r).collect();
        let push: Vec<f64> = self.rho.iter().map(|x| self.server_step * x).collect();
        let at = |t: u64| -> Vec<f64> {
            let (power, sum) = power_and_sum(&m, t);
            let (gone, pushed) = (linalg::mat_vec(&power, &start), linalg::mat_vec(&sum, &push));
            self.root.iter().zip(gone).zip(pushed).map(|((r, x), y)| r + x + y).collect()
        };
        rounds.iter().map(|t| at(*t)).collect()
    }

    /// The bias of the limit, `(I - Gbar)^-1 rho_H` (d): the limit of the mean iterate minus `theta*`. It does not depend on
    /// alpha_g.
    ///
    /// # Errors
    /// When `I - Gbar` is singular or not finite.
    pub fn bias(&self) -> Result<Vec<f64>> {
        linalg::solve(&self.contraction, &self.rho)
    }

    /// The limit of the mean iterate, `theta* + (I - Gbar)^-1 rho_H` (d), if the round map is stable.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pub fn limit(&self) -> Result<Vec<f64>> {
        Ok(self.root.iter().zip(self.bias()?).map(|(r, b)| r + b).collect())
    }

    /// `||(I - Gbar)^-1 rho_H||^2`.
    ///
    /// # Errors
    /// As [`bias`](Self::bias).
    pub fn bias_sq(&self) -> Result<f64> {
        Ok(linalg::norm_sq(&self.bias()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Draw, max_difference};
    use fedsa::problem::systems::System;

    /// A noiseless round, step by step and agent by agent.
    fn round(systems: &Systems, setting: &RoundSetting, theta: &[f64]) -> Vec<f64> {
        let mut next = theta.to_vec();
        for (c, p) in systems.weights.iter().enumerate() {
            let mut local = theta.to_vec();
            for _ in 0..setting.local_steps {
                let g = systems.of(c).mean(&local);
                local.iter_mut().zip(g).for_each(|(x, g)| *x += setting.step_size * g);
            }
            for i in 0..theta.len() {
                next[i] += setting.server_step * p * (local[i] - theta[i]);
            }
        }
        next
    }

    #[test]
    fn noiseless_runs_follow_the_mean_and_land_on_the_limit() {
        let mut systems = Draw::new(7).systems(3, 4);
        systems.weights = vec![0.5, 0.3, 0.2];
        let setting = RoundSetting::new(0.1, 7).unwrap().with_server_step(0.8).unwrap();
        let theory = FedLsaMean::new(&systems, &setting).unwrap();
        let theta_0 = vec![1.0, -2.0, 0.5, 3.0];
        let mut theta = theta_0.clone();
        for t in 1..=400 {
            theta = round(&systems, &setting, &theta);
            if [1, 2, 5, 400].contains(&t) {
                assert!(linalg::distance_sq(&theory.mean(&theta_0, &[t])[0], &theta).sqrt() < 1e-13, "round {t}");
            }
        }
        assert!(linalg::distance_sq(&theory.limit().unwrap(), &theta).sqrt() < 1e-13);
        assert!(theory.bias_sq().unwrap() > 1e-4);
        let identity = Mat::<f64>::identity(4, 4);
        assert!(max_difference(&(&identity - &theory.gbar), &theory.contraction) < 1e-14);
    }

    #[test]
    fn two_local_steps_are_proposition_1() {
        // [F] Proposition 1, its A_i = -Abar_i: eta (2 A + eta A2)^-1 mean A_i^2 (theta*_i - theta*).
        let systems = Draw::new(8).systems(4, 3);
        let eta = 0.07;
        let theory = FedLsaMean::new(&systems, &RoundSetting::new(eta, 2).unwrap()).unwrap();
        let theta_star = systems.root().unwrap();
        let (mut a, mut a2, mut rhs) = (Mat::<f64>::zeros(3, 3), Mat::<f64>::zeros(3, 3), vec![0.0; 3]);
        for c in 0..4 {
            let ai = Scale(-1.0) * &systems.kinds[c].a;
            let square = &ai * &ai;
            let offset: Vec<f64> = systems.local_root(c).unwrap().iter().zip(&theta_star).map(|(x, y)| x - y).collect();
            rhs.iter_mut().zip(linalg::mat_vec(&square, &offset)).for_each(|(r, x)| *r += eta / 4.0 * x);
            a += Scale(0.25) * ai;
            a2 += Scale(0.25) * square;
        }
        let want = linalg::solve(&(Scale(2.0) * a + Scale(eta) * a2), &rhs).unwrap();
        assert!(linalg::distance_sq(&want, &theory.bias().unwrap()).sqrt() < 1e-12);
    }

    #[test]
    fn agents_that_share_a_system_count_by_weight() {
        let two = Draw::new(9).systems(2, 3);
        let kind_of = (0..1_000_000).map(|c| u32::from(c % 4 == 0)).collect();
        let many = Systems::new(two.kinds.clone(), kind_of, vec![1e-6; 1_000_000]);
        let weighted = Systems::new(two.kinds, two.kind_of, vec![0.75, 0.25]);
        let setting = RoundSetting::new(0.05, 50).unwrap();
        let of = |s: &Systems| FedLsaMean::new(s, &setting).unwrap().limit().unwrap();
        assert!(linalg::distance_sq(&of(&many), &of(&weighted)).sqrt() < 1e-12);
    }

    #[test]
    fn a_nearly_singular_agent_costs_no_accuracy() {
        // Agent 0 is nearly singular in its second coordinate, its local root near 1e10 away.
        let diagonal = |x: f64, y: f64, b: [f64; 2]| System { a: linalg::from_rows(2, 2, &[x, 0.0, 0.0, y]), b: b.to_vec() };
        let kinds = vec![diagonal(1.0, 1e-10, [1.0, 1.0]), diagonal(2.0, 1.0, [0.0, 0.5])];
        let systems = Systems::new(kinds, vec![0, 1], vec![0.5, 0.5]);
        let (eta, h) = (0.1, 10u64);
        let theory = FedLsaMean::new(&systems, &RoundSetting::new(eta, h).unwrap()).unwrap();
        // Second coordinate: S_0 = eta H (1 - O(1e-10)), S_1 = 1 - .9^10.
        let a = 1e-10f64;
        let theta = 1.5 / (1.0 + a);
        let s0 = (0..h).map(|k| eta * (1.0 - eta * a).powi(k as i32)).sum::<f64>();
        let s1 = 1.0 - 0.9f64.powi(10);
        let want = 0.5 * s0 * (1.0 - a * theta) + 0.5 * s1 * (0.5 - theta);
        assert!((theory.rho[1] - want).abs() < 1e-14);
    }
}
