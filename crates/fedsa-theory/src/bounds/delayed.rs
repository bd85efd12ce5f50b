//! Theorems 5.3 and 5.4 of \[T\]: stochastic approximation with delayed updates, one agent.
//!
//! Their proofs name the universal constants, so that both are bounds here.

use super::{Assumption, Bound};
use crate::fedhsa_bounds::FedHsaConstants;
use fedsa::error::{Result, require};

/// The problem's constants in the theorems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayedSaBound {
    /// mu of Assumption 7, at most 1.
    pub mu: f64,
    /// L of Assumptions 8 and 9, at least 1.
    pub l: f64,
    /// sigma of Assumption 9, at least 1, `||theta_0||` and `||theta*||`.
    pub sigma: f64,
    /// `r_0 = ||theta_0 - theta*||`.
    pub start: f64,
    /// tau_mix, the mixing time of the operator at the level alpha (Definition 5.2.1); 1 for i.i.d. samples.
    pub tau_mix: u64,
}

/// `B` over sigma^2, C and C' of Theorem 5.4.
const VARYING: [f64; 3] = [9.0, 196.0, 98.0];

impl DelayedSaBound {
    /// The constants of a problem with one agent, from the constants of \[F\], with mu, L and sigma moved into the ranges that the
    /// proofs assume.
    pub fn new(constants: &FedHsaConstants, theta_0_norm: f64, start: f64, tau_mix: u64) -> Self {
        // The larger L keeps max ||b|| / L at most sigma.
        let sigma = constants.sigma.max(theta_0_norm).max(1.0);
        Self { mu: constants.mu.min(1.0), l: constants.l.max(1.0), sigma, start, tau_mix }
    }

    /// The larger of both times.
    fn wait(&self, tau: u64) -> f64 {
        self.tau_mix.max(tau).max(1) as f64
    }

    fn assumptions(&self, alpha: f64, c: f64, tau: u64) -> Result<Vec<Assumption>> {
        require(alpha > 0.0 && alpha.is_finite(), "step_size", alpha, "a positive number")?;
        Ok(vec![
            Assumption::positive("Assumption 7", "mu", self.mu),
            Assumption::at_most("mu <= 1", "mu", self.mu, 1.0),
            Assumption::at_most("L >= 1", "1", 1.0, self.l),
            Assumption::at_most("r_0 <= 2 sigma", "r_0", self.start, 2.0 * self.sigma),
            Assumption::at_most("alpha is small enough", "alpha", alpha, self.mu / (c * self.l * self.l * self.wait(tau))),
        ])
    }

    /// Theorem 5.4: delays that vary up to `tau_max`, `B = 9 sigma^2`,
    ///
    /// ```text
    /// E r_T^2 <= 2 B exp(-2 alpha mu T) + 98 alpha L^2 (tau_mix + tau_max) B / mu     alpha <= mu / (196 L^2 max(tau_mix, tau_max))
    /// ```
    ///
    /// # Errors
    /// When the step size is not positive.
    pub fn theorem_5_4(&self, alpha: f64, tau_max: u64, rounds: u64) -> Result<Bound> {
        let [b, c, c_2] = VARYING;
        let b = b * self.sigma.powi(2);
        let wait = (self.tau_mix + tau_max) as f64;
        let terms = [
            ("start", 2.0 * b * (-2.0 * alpha * self.mu * rounds as f64).exp()),
            ("samples", c_2 * alpha * self.l * self.l * wait * b / self.mu),
        ];
        let mut assumptions = self.assumptions(alpha, c, tau_max)?;
        let least = (2 * tau_max + self.tau_mix) as f64;
        assumptions.push(Assumption::at_most("T >= 2 tau_max + tau_mix", "2 tau_max + tau_mix", least, rounds as f64));
        Ok(Bound::new("[T] Theorem 5.4", "E ||theta_T - theta*||^2", &terms, assumptions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RoundSetting;
    use crate::bounds::testing::{CASES, Looseness, one_agent};
    use crate::exact_mse::{ArrivalLaw, DelayedMse, ExactMse};
    use crate::testing::{Draw, Finite};
    use fedsa::linalg;
    use fedsa::uplink::stage::delay::Before;

    /// `B` of Lemma 5.3 over sigma^2, C_1 and C_2 of Theorem 5.3.
    const CONSTANT: [f64; 3] = [111.0, 300.0, 300.0];

    impl DelayedSaBound {
        /// Theorem 5.3: constant delay tau, and an iterate drawn with the weights `(1 - alpha mu / 2)^-(t+1)` from rounds 0 to T:
        ///
        /// ```text
        /// E r_out^2 <= (1 - alpha mu / 2)^{T+1} (2 r_0^2 / (alpha mu) + 8 tau_mix B / mu) + 300 alpha L^2 max(tau, tau_mix) sigma^2 / mu
        /// ```
        ///
        /// with `B = 111 sigma^2` and `alpha <= mu / (300 L^2 max(tau, tau_mix))`. Deviations from (C.79): \[T\] multiplies the second
        /// term by r_0^2, which (C.76) does not, and has the factor 4 for `2 W_{tau_mix - 1} <= 4 tau_mix` times `2 / (alpha mu)` times
        /// alpha. Its condition has 100, and 150 for C_1; `1 - alpha mu + 150 alpha^2 L^2 tau <= 1 - alpha mu / 2` asks for 300.
        ///
        /// # Errors
        /// When the step size is not positive.
        fn theorem_5_3(&self, alpha: f64, tau: u64, rounds: u64) -> Result<Bound> {
            let [b, c_1, c_2] = CONSTANT;
            let forgotten = (((rounds + 1) as f64) * (-0.5 * alpha * self.mu).ln_1p()).exp();
            let terms = [
                ("start", forgotten * 2.0 * self.start.powi(2) / (alpha * self.mu)),
                ("chain at the start", forgotten * 8.0 * self.tau_mix as f64 * b * self.sigma.powi(2) / self.mu),
                ("samples", c_2 * alpha * (self.l * self.sigma).powi(2) * self.wait(tau) / self.mu),
            ];
            Ok(Bound::new("[T] Theorem 5.3", "E ||theta_out - theta*||^2", &terms, self.assumptions(alpha, c_1, tau)?))
        }
    }

    fn view(agent: &Finite, theta_0: &[f64]) -> (DelayedSaBound, Vec<f64>) {
        let system = agent.system();
        let root = linalg::solve(&system.a, &system.b).unwrap();
        let symmetric = faer::Scale(0.5) * (&system.a + system.a.transpose());
        let mu = linalg::eigenvalues(&symmetric).unwrap().iter().map(|(re, _)| *re).fold(f64::INFINITY, f64::min);
        let l = agent.samples.iter().map(|(a, _)| linalg::norm2(a)).fold(0.0, f64::max);
        let b = agent.samples.iter().map(|(_, b)| linalg::norm_sq(b).sqrt()).fold(0.0, f64::max);
        let sigma = (b / l).max(linalg::norm_sq(&root).sqrt());
        let start = linalg::distance_sq(theta_0, &root).sqrt();
        (DelayedSaBound::new(&FedHsaConstants { mu, l, sigma }, linalg::norm_sq(theta_0).sqrt(), start, 1), root)
    }

    #[test]
    fn theorems_5_3_and_5_4_hold_and_are_this_loose() {
        let mut loose = [Looseness::default(), Looseness::default()];
        for seed in 0..CASES {
            let mut draw = Draw::new(16_000 + seed);
            let agent = one_agent(&mut draw, seed);
            let (systems, moments) = crate::testing::federation(std::slice::from_ref(&agent), &[1]);
            let theta_0 = draw.vector(systems.dim());
            let (sa, _) = view(&agent, &theta_0);
            let tau = 1 + draw.index(8) as u64;
            let rounds = 2 * tau + 2 + draw.index(400) as u64;
            for (k, c) in [CONSTANT[1], VARYING[1]].into_iter().enumerate() {
                let alpha = 10f64.powf(-0.5 + 0.5 * draw.number()) * sa.mu / (c * sa.l * sa.l * tau as f64);
                let setting = RoundSetting::new(alpha, 1).unwrap();
                let delay = (tau as usize, Before::Nothing);
                let theory = DelayedMse::new(&systems, Some(&moments), &setting, 1, &ArrivalLaw::clear(), delay).unwrap();
                let curve = theory.curve(&theta_0, &(0..=rounds).collect::<Vec<_>>()).unwrap();
                let (bound, measured) = if k == 0 {
                    let weights: Vec<f64> = (0..=rounds).map(|t| (1.0 - 0.5 * alpha * sa.mu).powf(-(t as f64 + 1.0))).collect();
                    let sum: f64 = weights.iter().sum();
                    let out: f64 = curve.iter().zip(&weights).map(|(here, w)| here.mse() * w).sum();
                    (sa.theorem_5_3(alpha, tau, rounds).unwrap(), out / sum)
                } else {
                    (sa.theorem_5_4(alpha, tau, rounds).unwrap(), curve[rounds as usize].mse())
                };
                assert!(bound.holds(), "{bound:?}");
                loose[k].see(measured, bound.value(), &format!("seed {seed}, {bound:?}"));
            }
        }
        let [constant, varying] = loose;
        println!("{}", constant.about("Theorem 5.3", 312_000.0));
        println!("{}", varying.about("Theorem 5.4", 20.1));
    }

    /// Random delays in each round, by simulation.
    #[test]
    fn theorem_5_4_holds_with_delays_that_vary() {
        for seed in 0..20 {
            let mut draw = Draw::new(17_000 + seed);
            let agent = one_agent(&mut draw, seed);
            let theta_0 = draw.vector(agent.samples[0].1.len());
            let (sa, root) = view(&agent, &theta_0);
            let (tau_max, rounds, runs) = (5u64, 60u64, 200);
            let alpha = sa.mu / (VARYING[1] * sa.l * sa.l * tau_max as f64);
            let bound = sa.theorem_5_4(alpha, tau_max, rounds).unwrap();
            assert!(bound.holds());
            let (mut sum, mut square) = (0.0, 0.0);
            for _ in 0..runs {
                let (mut past, mut samples) = (vec![theta_0.clone()], Vec::new());
                for t in 0..rounds as usize {
                    samples.push(draw.index(agent.samples.len()));
                    let old = t - draw.index(t.min(tau_max as usize) + 1);
                    let zero = vec![0.0; root.len()];
                    let moved = agent.step(samples[old], &past[old], alpha, &zero);
                    let next = past[t].iter().zip(moved.iter().zip(&past[old])).map(|(x, (m, o))| x + m - o).collect();
                    past.push(next);
                }
                let error = linalg::distance_sq(&past[rounds as usize], &root);
                sum += error;
                square += error * error;
            }
            let runs = f64::from(runs);
            let mean = sum / runs;
            let se = ((square / runs - mean * mean).max(0.0) / runs).sqrt();
            assert!(mean + 4.0 * se <= bound.value(), "{mean} +- {se}, {}", bound.value());
        }
    }

    #[test]
    fn a_step_or_a_run_out_of_range_is_named() {
        let sa = DelayedSaBound { mu: 0.5, l: 2.0, sigma: 1.0, start: 1.0, tau_mix: 1 };
        assert!(sa.theorem_5_4(1e-4, 3, 100).unwrap().holds());
        assert!(!sa.theorem_5_4(1e-1, 3, 100).unwrap().holds() && !sa.theorem_5_4(1e-4, 60, 100).unwrap().holds());
        assert!(!sa.theorem_5_3(1e-2, 3, 100).unwrap().holds());
        assert_eq!(sa.theorem_5_3(0.0, 3, 100).unwrap_err().key, "step_size");
    }
}
