//! Theorems 1 and 2 of \[F\], as shapes.
//!
//! \[F\] does not state its constants. With the effective step `alpha = alpha_g eta H` its recursion for a round has a contraction
//! `1 - C mu alpha`, the samples' noise `alpha^2 tau L^2 sigma^2 / (N H)` and the drift of the local steps,
//! `(alpha / mu) L^2 (eta H)^2 L^2 sigma^2` (Lemmas 1, 2, 4 and 6).

use super::{Assumption, BoundShape, Term};
use crate::RoundSetting;
use crate::fedhsa_bounds::FedHsaConstants;
use fedsa::error::{Result, require};

/// Theorem 2, and with `tau = 1` Theorem 1 (i.i.d. samples): the mean-square error falls as `exp(-mu alpha t)` to a floor of `alpha tau
/// L^2 sigma^2 / (mu N H)`, and a part of second order in the step. Neither theorem has a term for heterogeneity.
///
/// # Errors
/// When mu, the number of agents or tau is out of range.
pub fn theorem_2(constants: &FedHsaConstants, setting: &RoundSetting, agents: f64, tau: f64) -> Result<BoundShape> {
    check(constants, agents, tau)?;
    let FedHsaConstants { mu, l, sigma } = *constants;
    let (alpha, h) = (setting.server_step * setting.span(), setting.local_steps as f64);
    let floor = vec![
        Term { name: "samples", value: alpha * tau * (l * sigma).powi(2) / (mu * agents * h) },
        Term { name: "drift", value: (setting.span() * l * l * sigma / mu).powi(2) },
    ];
    let statement = if tau == 1.0 { "[F] Theorem 1" } else { "[F] Theorem 2" };
    Ok(BoundShape { statement, rate: mu * alpha, floor, assumptions: vec![Assumption::positive("Assumption 2", "mu", mu)] })
}

fn check(constants: &FedHsaConstants, agents: f64, tau: f64) -> Result<()> {
    require(constants.mu > 0.0, "mu", constants.mu, "a strongly monotone mean operator")?;
    require(agents >= 1.0 && agents.is_finite(), "agents", agents, "at least 1")?;
    require(tau >= 1.0 && tau.is_finite(), "tau", tau, "at least 1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Accuracy;
    use crate::bounds::testing::{Case, ShapeFit, cases};
    use crate::exact_mse::{ExactMse, FedHsaMse};
    use crate::predict::Forecast;
    use crate::testing::federation;
    use fedsa::kernel::Isa;
    use fedsa::linalg;
    use fedsa::sampling::{Law, Sampling};
    use fedsa::uplink::Uplink;
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    /// Corollary 1, after T rounds with steps of order 1/t: `tau L^2 sigma^2 / (mu^2 N H T)`, up to a factor.
    ///
    /// # Errors
    /// As [`theorem_2`], and when there are no rounds.
    fn corollary_1(constants: &FedHsaConstants, local_steps: u64, agents: f64, tau: f64, rounds: u64) -> Result<f64> {
        check(constants, agents, tau)?;
        require(rounds >= 1, "rounds", rounds, "at least 1")?;
        let FedHsaConstants { mu, l, sigma } = *constants;
        Ok(tau * (l * sigma / mu).powi(2) / (agents * local_steps as f64 * rounds as f64))
    }

    fn constants(case: &Case) -> FedHsaConstants {
        let (mut l, mut b) = (0.0f64, 0.0f64);
        for (a, y) in case.kinds.iter().flat_map(|kind| &kind.samples) {
            l = l.max(linalg::norm2(a));
            b = b.max(linalg::norm_sq(y).sqrt());
        }
        let root = linalg::norm_sq(&case.systems.root().unwrap()).sqrt();
        let abar = case.systems.mean().a;
        let lowest = linalg::eigenvalues(&(faer::Scale(0.5) * (&abar + abar.transpose()))).unwrap();
        FedHsaConstants { mu: lowest.iter().map(|(re, _)| *re).fold(f64::INFINITY, f64::min), l, sigma: root.max(b / l) }
    }

    /// The exact floor.
    fn floor(case: &Case, copies: usize, setting: &RoundSetting) -> f64 {
        let (systems, moments) = federation(&case.kinds, &vec![copies; case.kinds.len()]);
        FedHsaMse::new(&systems, &moments, setting, 1).unwrap().floor().unwrap().mse()
    }

    #[test]
    fn floors_have_the_slopes_of_theorem_1() {
        let mut slopes = [const { Vec::new() }; 3];
        // With every agent near singular the steps would have to be smaller.
        for case in cases(80).iter().enumerate().filter(|(i, _)| i % 4 != 0).map(|(_, case)| case) {
            let known = constants(case);
            let alpha = 1e-3 * known.mu / (known.l * known.l);
            let kinds = case.kinds.len();
            let point = |alpha: f64, copies: usize, h: u64| {
                let setting = RoundSetting::new(alpha / h as f64, h).unwrap();
                let shape = theorem_2(&known, &setting, (kinds * copies) as f64, 1.0).unwrap();
                (shape.leading(), floor(case, copies, &setting))
            };
            let by_alpha: Vec<_> = [1.0, 3.0, 10.0].map(|s| point(s * alpha, 1, 4)).to_vec();
            let by_agents: Vec<_> = [1, 3, 10].map(|n| point(alpha, n, 4)).to_vec();
            let by_steps: Vec<_> = [1, 5, 25].map(|h| point(alpha, 2, h)).to_vec();
            for (slopes, points) in slopes.iter_mut().zip([by_alpha, by_agents, by_steps]) {
                let fit = ShapeFit::new(&points).unwrap();
                assert!((fit.slope - 1.0).abs() < 0.05 && fit.constant < 1.0, "{fit:?} {points:?}");
                slopes.push(fit.slope);
            }
        }
        for (name, slopes) in ["alpha", "N", "H"].into_iter().zip(&mut slopes) {
            slopes.sort_by(f64::total_cmp);
            println!("slope in {name}: {} to {}", slopes[0], slopes[slopes.len() - 1]);
        }
    }

    /// Along chains, theory knows the floor exactly for few agents only.
    #[test]
    fn floors_along_chains_have_the_slopes_of_theorem_2() {
        let mut slopes = [const { Vec::new() }; 2];
        for seed in 0..12 {
            let garnet = Garnet::default().with_agents(2).with_states(4).with_features(2).with_gamma(0.5).with_seed(seed);
            let sampling = Sampling::default().with_kind(Law::Markov);
            let field = garnet.field(&NoFiles, sampling, Isa::best()).unwrap();
            let known = FedHsaConstants::new(field.systems().unwrap(), field.facts()).unwrap();
            if known.mu <= 0.0 {
                continue;
            }
            let alpha = 1e-3 * known.mu / (known.l * known.l);
            // The mixing time of chains that are not this slow is a constant factor of the floor.
            let point = |alpha: f64, h: u64| {
                let setting = RoundSetting::new(alpha / h as f64, h).unwrap();
                let shape = theorem_2(&known, &setting, 2.0, 5.0).unwrap();
                let forecast = Forecast::over(&field, &FedHsa::new(setting.step_size, h as usize), &Uplink::default());
                let floor = forecast.predicted_floor().unwrap();
                assert!(floor.accuracy == Accuracy::Exact && shape.statement == "[F] Theorem 2");
                (shape.leading(), floor.value.mse())
            };
            // Within a round the samples of a chain depend on each other, so the slope in H needs many steps.
            for (slopes, points) in
                slopes.iter_mut().zip([[1.0, 3.0, 10.0].map(|s| point(s * alpha, 4)), [16, 32, 64].map(|h| point(alpha, h))])
            {
                let fit = ShapeFit::new(&points).unwrap();
                assert!((fit.slope - 1.0).abs() < 0.1 && fit.constant < 1.0, "seed {seed}: {fit:?} {points:?}");
                slopes.push(fit.slope);
            }
        }
        for (name, slopes) in ["alpha", "H"].into_iter().zip(&mut slopes) {
            slopes.sort_by(f64::total_cmp);
            println!("slope in {name} of {} problems: {} to {}", slopes.len(), slopes[0], slopes[slopes.len() - 1]);
            assert!(slopes.len() >= 6);
        }
    }

    #[test]
    fn the_error_falls_at_the_rate_of_theorem_1() {
        for case in cases(40).iter().enumerate().filter(|(i, _)| i % 4 != 0).map(|(_, case)| case) {
            let known = constants(case);
            for (h, share) in [(1, 0.01), (8, 0.01), (8, 0.03)] {
                let setting = RoundSetting::new(share * known.mu / (known.l * known.l) / h as f64, h).unwrap();
                let shape = theorem_2(&known, &setting, case.systems.weights.len() as f64, 1.0).unwrap();
                // The radius of second moments: 1 - 2 mu alpha for symmetric matrices, less otherwise.
                let radius = FedHsaMse::new(&case.systems, &case.moments, &setting, 1).unwrap().radius().unwrap();
                assert!(-radius.ln() >= shape.rate, "{radius} {shape:?}");
            }
        }
    }

    #[test]
    fn decreasing_steps_have_the_slopes_of_corollary_1() {
        // In one dimension a round of the covariance is C <- radius C + source.
        let case = cases(40).into_iter().enumerate().find(|(i, c)| i % 4 != 0 && c.systems.dim() == 1 && c.kinds.len() > 1).unwrap().1;
        let known = constants(&case);
        let run = |copies: usize, h: u64, rounds: u64| -> (f64, f64) {
            let (systems, moments) = federation(&case.kinds, &vec![copies; case.kinds.len()]);
            let root = systems.root().unwrap()[0];
            let schedule = known.schedule(&RoundSetting::new(1.0, h).unwrap(), 1.0).unwrap();
            let (mut mean, mut noise) = (case.start[0] - root, 0.0);
            for t in 0..rounds {
                let setting = RoundSetting::new(schedule.c / (t as f64 + schedule.t0), h).unwrap();
                let theory = FedHsaMse::new(&systems, &moments, &setting, 1).unwrap();
                let here = theory.curve(&[root + mean], &[1]).unwrap().remove(0);
                noise = theory.radius().unwrap() * noise + here.noise;
                mean = here.bias[0];
            }
            (corollary_1(&known, h, systems.weights.len() as f64, 1.0, rounds).unwrap(), mean * mean + noise)
        };
        let t0 = known.schedule(&RoundSetting::new(1.0, 1).unwrap(), 1.0).unwrap().t0;
        let first = (20.0 * t0) as u64;
        for points in [
            vec![run(1, 3, first), run(1, 3, 2 * first), run(1, 3, 4 * first)],
            vec![run(1, 3, first), run(2, 3, first), run(4, 3, first)],
            vec![run(2, 1, first), run(2, 2, first), run(2, 4, first)],
        ] {
            let fit = ShapeFit::new(&points).unwrap();
            assert!((fit.slope - 1.0).abs() < 0.15 && fit.constant < 1.0, "{fit:?} {points:?}");
        }
        assert!(corollary_1(&known, 1, 1.0, 1.0, 0).is_err() && corollary_1(&known, 1, 1.0, 0.5, 3).is_err());
    }
}
