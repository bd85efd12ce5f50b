//! Section 4 and appendix A of \[S\]: FedLSA.

use serde::Serialize;

use super::{Assumption, Bound, Contraction, CorollaryChoice, check_target, effective_agents, rounds_until, unknown_constant};
use crate::RoundSetting;
use crate::constants::{Constants, noise_of_a};
use crate::fedlsa::FedLsaMean;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::problem::systems::{Moments, Systems};

/// The constants of Theorem A.5 and its corollaries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FedLsaConstants {
    /// N; `1 / max p_c` for unequal weights.
    pub agents: f64,
    /// a and eta_inf of A 2.
    pub contraction: Contraction,
    /// `C_A = max ||Abar_c||`.
    pub c_a: f64,
    /// `mean ||Sigma_A||`.
    pub sigma_a: f64,
    /// `sigma_eps`.
    pub sigma_eps: f64,
    /// `v_heter`.
    pub v_heter: f64,
    /// `mean ||Abar_c|| ||gbar_c(theta*)||`, with which agents drift apart.
    pub drift: f64,
    /// `mean ||theta*_c - theta*||`.
    pub distance: f64,
}

impl FedLsaConstants {
    /// The constants of a problem; `moments[k]` belongs to `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system or an agent's system has no unique root, or A 3 does not hold.
    pub fn new(systems: &Systems, moments: &[Moments]) -> Result<Self> {
        let root = systems.root()?;
        let constants = Constants::new(systems, Some(moments))?;
        let contraction = Contraction::new(systems, moments)?;
        let (mut sigma_a, mut drift, mut distance) = (0.0, 0.0, 0.0);
        for (k, p) in systems.kind_weights().into_iter().enumerate() {
            let system = &systems.kinds[k];
            sigma_a += p * linalg::norm2(&noise_of_a(system, &moments[k]));
            drift += p * linalg::norm2(&system.a) * linalg::norm_sq(&system.mean(&root)).sqrt();
            distance += p * linalg::distance_sq(&systems.local_root(k)?, &root).sqrt();
        }
        let none = || unknown_constant("sigma_eps", "an agent's own root is not known");
        Ok(Self {
            agents: effective_agents(systems),
            contraction,
            c_a: constants.c_a,
            sigma_a,
            sigma_eps: constants.sigma_eps.ok_or_else(none)?,
            v_heter: constants.v_heter.ok_or_else(none)?,
            drift,
            distance,
        })
    }

    /// The noise of Theorem A.5 over `sqrt(eta)`: both terms that do not depend on the bias.
    fn noise(&self) -> f64 {
        let each = self.contraction.a * self.agents;
        (self.sigma_eps / (each * share_of_a_phase())).sqrt() + (2.0 * self.v_heter / each).sqrt()
    }

    /// Theorem A.5 at a step eta with a known bias. `largest_bias` is `max_{s<t} ||thetabias_s||`, `start` is
    /// `||theta_0 - theta*||`.
    pub fn theorem_a5(&self, setting: &RoundSetting, rounds: u64, largest_bias: f64, start: f64) -> Bound {
        let Contraction { a, .. } = self.contraction;
        let (eta, steps) = (setting.step_size, rounds as f64 * setting.local_steps as f64);
        let each = a * self.agents;
        let terms = [
            ("samples at the agents' own roots", (eta * self.sigma_eps / (each * share_of_a_phase())).sqrt()),
            ("noise in A at theta*", (2.0 * eta * self.v_heter / each).sqrt()),
            ("noise in A at the bias", (2.0 * eta * self.sigma_a / each).sqrt() * largest_bias),
            ("start", (steps * (-eta * a).ln_1p()).exp() * start),
        ];
        Bound::new("[S] Theorem A.5, third term corrected", AROUND, &terms, self.assumptions(setting))
    }

    fn assumptions(&self, setting: &RoundSetting) -> Vec<Assumption> {
        let mut all = self.contraction.assumptions(setting.step_size);
        all.push(server_step(setting));
        all
    }
}

/// The quantity that Theorem A.5 bounds.
const AROUND: &str = "E^(1/2) ||theta_t - theta* - thetabias_t||^2";

/// `1 - e^-2`.
fn share_of_a_phase() -> f64 {
    -(-2.0f64).exp_m1()
}

/// The methods of \[S\] have the server step 1.
pub(super) fn server_step(setting: &RoundSetting) -> Assumption {
    let alpha = setting.server_step;
    Assumption { name: "alpha_g = 1", holds: alpha == 1.0, text: format!("alpha_g = {alpha}") }
}

/// Theorem A.5 (4.1): the error around the mean's own path, `thetabias_t = sum_{s<t} Gbar^s rho_H`, which does not depend on the
/// start:
///
/// ```text
/// E^{1/2} ||theta_t - theta* - thetabias_t||^2 <= sqrt(eta sigma_eps / (a N (1 - e^-2))) + sqrt(2 eta v_heter / (a N))
///     + sqrt(2 eta mean ||Sigma_A|| / (a N)) max_{s<t} ||thetabias_s|| + (1 - eta a)^{tH} ||theta_0 - theta*||
/// ```
///
/// Here a is the largest that A 2 allows for this step size.
///
/// Deviation: the third term is printed as `2 sqrt(mean ||Sigma_A||) ||rho_H|| / (a sqrt(H N))` (`theorem_a5_printed` of the tests), and with
/// it Theorem 4.1. The proof of Lemma A.2 replaces the sum over s of `(prod_{i>s} Gbar_i - Gbar^{t-s}) rho_H` by one of its terms. The
/// sum is `sum_i (prod_{r>i} Gbar_r) (Gbar_i - Gbar) thetabias_{i-1}`, whose terms are uncorrelated.
///
/// # Errors
/// When a root is not unique, or A 3 does not hold.
pub fn theorem_a5(systems: &Systems, moments: &[Moments], setting: &RoundSetting, theta_0: &[f64], rounds: u64) -> Result<Bound> {
    let (constants, mean) = at_step(systems, moments, setting)?;
    let start = linalg::distance_sq(theta_0, &mean.root).sqrt();
    Ok(constants.theorem_a5(setting, rounds, largest_bias(&mean, rounds)?, start))
}

/// The error itself: Theorem A.5 and the bias, `E^{1/2} ||theta_t - theta*||^2 <= Theorem A.5 + ||thetabias_t||`, with the exact
/// bias of round t.
///
/// # Errors
/// As [`theorem_a5`].
pub fn total_error(systems: &Systems, moments: &[Moments], setting: &RoundSetting, theta_0: &[f64], rounds: u64) -> Result<Bound> {
    let bound = theorem_a5(systems, moments, setting, theta_0, rounds)?;
    Ok(with_bias(bound, &FedLsaMean::new(systems, setting)?, rounds))
}

/// Turns a bound of the error around the mean's own path into a bound of the error itself, with the exact bias of round t.
pub(crate) fn with_bias(mut bound: Bound, mean: &FedLsaMean, rounds: u64) -> Bound {
    let bias = linalg::distance_sq(&mean.mean(&mean.root, &[rounds])[0], &mean.root).sqrt();
    bound.of = "E^(1/2) ||theta_t - theta*||^2";
    bound.terms.push(super::Term { name: "bias", value: bias });
    bound
}

/// Corollary 4.4 (A.6): H = 1, where there is no bias. The noise of Theorem A.5 gets half of eps, the start the other half:
///
/// ```text
/// eta = min(eta_inf, (eps / (2 k))^2)      k = sqrt(sigma_eps / (a N (1 - e^-2))) + sqrt(2 v_heter / (a N))
/// T   = log(2 ||theta_0 - theta*|| / eps) / -log(1 - eta a)
/// ```
///
/// `start` is `||theta_0 - theta*||`, `target` eps^2. Deviation: the source leaves the constants open, and its step without them,
/// `a N eps^2 / max(v_heter, sigma_eps)`, misses the target (`corollary_4_4_printed` of the tests).
///
/// # Errors
/// When the target is not positive.
pub fn corollary_4_4(constants: &FedLsaConstants, start: f64, target: f64) -> Result<CorollaryChoice> {
    check_target(target)?;
    let (eps, Contraction { a, largest_step }) = (target.sqrt(), constants.contraction);
    let eta = largest_step.min((eps / (2.0 * constants.noise())).powi(2));
    let rounds = rounds_until(start, 0.5 * eps, eta * a);
    CorollaryChoice::fixed("[S] Corollary 4.4, with constants", target, eta, 1, rounds, constants.contraction.assumptions(eta))
}

/// `e / (2 (1 - 1/e))`: `||thetabias_t|| <= ||rho_H|| / (1 - (1 - eta a)^H)`, and with Lemma C.3, `eta a H <= eta C_A H <= 1` and
/// `x / (1 - e^-x) <= 1 / (1 - 1/e)` this is at most that number times `eta H mean ||Abar_c|| ||gbar_c(theta*)|| / a`.
fn bias_factor() -> f64 {
    0.5 * 1f64.exp() / (1.0 - (-1f64).exp())
}

/// Corollary 4.5 (A.7): as many local steps as the bias allows. Noise, bias, the noise at the bias and the start get a quarter of
/// eps each:
///
/// ```text
/// eta = min(eta_inf, (eps / (4 k))^2, a N / (2 mean ||Sigma_A||))             k as in Corollary 4.4
/// H   = min(1 / (eta C_A), a eps / (4 c eta mean ||Abar_c|| ||gbar_c(theta*)||)), at least 1       c = e / (2 (1 - 1/e))
/// T   = log(4 ||theta_0 - theta*|| / eps) / (-H log(1 - eta a))
/// ```
///
/// so that T grows as `(1/eps) log(1/eps)`, and T H as `(1/eps^2) log(1/eps)`. Deviation: the source bounds the bias by its Lemma C.3,
/// which lost `||Abar_c||^2`; its number of rounds depends on the unit of time (`corollary_4_5_printed` of the tests).
///
/// # Errors
/// When the target is not positive.
pub fn corollary_4_5(constants: &FedLsaConstants, start: f64, target: f64) -> Result<CorollaryChoice> {
    check_target(target)?;
    let (eps, Contraction { a, largest_step }) = (target.sqrt(), constants.contraction);
    let eta = largest_step.min((eps / (4.0 * constants.noise())).powi(2)).min(0.5 * a * constants.agents / constants.sigma_a);
    let span = (1.0 / constants.c_a).min(0.25 * a * eps / (bias_factor() * constants.drift));
    let local_steps = ((span / eta).floor() as u64).max(1);
    let rounds = rounds_until(start, 0.25 * eps, -(local_steps as f64 * (-eta * a).ln_1p()).exp_m1());
    CorollaryChoice::fixed("[S] Corollary 4.5, with constants", target, eta, local_steps, rounds, constants.contraction.assumptions(eta))
}

fn at_step(systems: &Systems, moments: &[Moments], setting: &RoundSetting) -> Result<(FedLsaConstants, FedLsaMean)> {
    let contraction = Contraction::up_to(systems, moments, setting.step_size)?;
    let constants = FedLsaConstants { contraction, ..FedLsaConstants::new(systems, moments)? };
    Ok((constants, FedLsaMean::new(systems, setting)?))
}

/// `max_{s<t} ||thetabias_s||`, with `thetabias_s = (I - Gbar^s) thetabias`. Once Gbar^s has all but vanished, or after 10^5 rounds, an
/// upper bound replaces the rest.
pub(crate) fn largest_bias(mean: &FedLsaMean, rounds: u64) -> Result<f64> {
    const MOST: u64 = 100_000;
    let limit = mean.bias()?;
    let size = linalg::norm_sq(&limit).sqrt();
    let (mut left, mut most) = (limit.clone(), 0.0f64);
    for s in 0..rounds {
        most = most.max(linalg::distance_sq(&limit, &left).sqrt());
        let rest = linalg::norm_sq(&left).sqrt();
        if s == MOST || rest <= f64::EPSILON * size {
            return Ok(most.max(size + rest));
        }
        left = linalg::mat_vec(&mean.gbar, &left);
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::testing::{CASES, Case, Looseness, cases};
    use crate::exact_mse::{ExactMse, FedLsaMse};
    use crate::testing::{Finite, federation};
    use fedsa::linalg::Mat;

    /// Theorem A.5 as printed. It is false: see [`theorem_a5`].
    ///
    /// # Errors
    /// As [`theorem_a5`].
    fn theorem_a5_printed(systems: &Systems, moments: &[Moments], setting: &RoundSetting, theta_0: &[f64], rounds: u64) -> Result<Bound> {
        let (constants, mean) = at_step(systems, moments, setting)?;
        let start = linalg::distance_sq(theta_0, &mean.root).sqrt();
        let mut bound = constants.theorem_a5(setting, rounds, 0.0, start);
        let phases = setting.local_steps as f64 * constants.agents;
        bound.statement = "[S] Theorem A.5 as printed (false)";
        bound.terms[2].value =
            2.0 * constants.sigma_a.sqrt() * linalg::norm_sq(&mean.rho).sqrt() / (constants.contraction.a * phases.sqrt());
        Ok(bound)
    }

    /// Lemma A.4: the bias approaches its limit, `||thetabias_t - thetabias|| <= (1 - eta a)^{tH} ||(I - Gbar)^-1|| ||rho_H||`.
    ///
    /// # Errors
    /// As [`theorem_a5`].
    fn lemma_a4(systems: &Systems, moments: &[Moments], setting: &RoundSetting, rounds: u64) -> Result<Bound> {
        let mean = FedLsaMean::new(systems, &setting.with_server_step(1.0)?)?;
        let contraction = Contraction::up_to(systems, moments, setting.step_size)?;
        let singular = mean.pull().singular_values().map_err(|_| unknown_constant("||(I - Gbar)^-1||", "I - Gbar is not finite"))?;
        let inverse = 1.0 / singular.last().copied().unwrap_or(0.0);
        let steps = rounds as f64 * setting.local_steps as f64;
        let forgotten = (steps * (-setting.step_size * contraction.a).ln_1p()).exp();
        let terms = [("start of the bias", forgotten * inverse * linalg::norm_sq(&mean.rho).sqrt())];
        let mut assumptions = contraction.assumptions(setting.step_size);
        assumptions.push(server_step(setting));
        Ok(Bound::new("[S] Lemma A.4", "||thetabias_t - thetabias||", &terms, assumptions))
    }

    /// Lemma C.3 (16): `||rho_H|| <= (eta^2 H (H-1) / 2) mean ||Abar_c|| ||gbar_c(theta*)|| exp(eta (H-2) ||Abar_c||)`.
    ///
    /// Deviation: printed as `eta^2 H^2 mean exp(eta H ||Abar_c||) ||theta*_c - theta*||` (`lemma_c3_printed`), without the factor
    /// `||Abar_c||^2 / 2` of its proof, so that it fails for large matrices. `||gbar_c(theta*)||` takes the place of
    /// `||Abar_c|| ||theta*_c - theta*||`, so that nearly singular agents do not matter.
    ///
    /// # Errors
    /// When the mean system has no unique root.
    fn lemma_c3(systems: &Systems, setting: &RoundSetting) -> Result<Bound> {
        let root = systems.root()?;
        let (eta, h) = (setting.step_size, setting.local_steps as f64);
        let each = |(system, p): (&fedsa::problem::systems::System, f64)| {
            let norm = linalg::norm2(&system.a);
            p * norm * linalg::norm_sq(&system.mean(&root)).sqrt() * (eta * (h - 2.0).max(0.0) * norm).exp()
        };
        let mean: f64 = systems.kinds.iter().zip(systems.kind_weights()).map(each).sum();
        let terms = [("drift", 0.5 * eta * eta * h * (h - 1.0) * mean)];
        Ok(Bound::new("[S] Lemma C.3, corrected", "||rho_H||", &terms, Vec::new()))
    }

    /// Lemma C.3 as printed. It is false: see [`lemma_c3`].
    ///
    /// # Errors
    /// When the mean system or an agent's system has no unique root.
    fn lemma_c3_printed(systems: &Systems, setting: &RoundSetting) -> Result<Bound> {
        let root = systems.root()?;
        let (eta, h) = (setting.step_size, setting.local_steps as f64);
        let mut mean = 0.0;
        for (k, p) in systems.kind_weights().into_iter().enumerate() {
            let norm = linalg::norm2(&systems.kinds[k].a);
            mean += p * (eta * h * norm).exp() * linalg::distance_sq(&systems.local_root(k)?, &root).sqrt();
        }
        Ok(Bound::new("[S] Lemma C.3 as printed (false)", "||rho_H||", &[("drift", eta * eta * h * h * mean)], Vec::new()))
    }

    /// Corollary 4.4 with all constants that its source leaves open equal to 1, which misses targets.
    ///
    /// # Errors
    /// When the target is not positive.
    fn corollary_4_4_printed(constants: &FedLsaConstants, start: f64, target: f64) -> Result<CorollaryChoice> {
        check_target(target)?;
        let Contraction { a, largest_step } = constants.contraction;
        let eta = largest_step.min(a * constants.agents * target / constants.v_heter.max(constants.sigma_eps));
        let rounds = ((start / target.sqrt()).ln() / (eta * a)).ceil().max(0.0);
        CorollaryChoice::fixed("[S] Corollary 4.4 as printed", target, eta, 1, rounds, constants.contraction.assumptions(eta))
    }

    /// Corollary 4.5 with all constants that its source leaves open equal to 1. Its rounds change with the unit of time: `A -> s A`,
    /// `b -> s b` is the same problem with the step `eta / s`, and its T is divided by s^2 where the second term decides.
    ///
    /// # Errors
    /// When the target is not positive.
    fn corollary_4_5_printed(constants: &FedLsaConstants, start: f64, target: f64) -> Result<CorollaryChoice> {
        check_target(target)?;
        let (eps, Contraction { a, largest_step }) = (target.sqrt(), constants.contraction);
        let noise = constants.v_heter.max(constants.sigma_eps);
        let eta = largest_step.min(a * constants.agents * target / noise);
        let local_steps = ((noise / (constants.distance * constants.agents * eps)).floor() as u64).max(1);
        let rounds = (1.0 / (a * largest_step)).max(constants.distance / (a * a * eps)) * (start / eps).ln();
        let assumptions = constants.contraction.assumptions(eta);
        CorollaryChoice::fixed("[S] Corollary 4.5 as printed", target, eta, local_steps, rounds.ceil().max(0.0), assumptions)
    }

    /// A setting within A 2 and a round for a case.
    fn setting(case: &Case) -> (RoundSetting, u64) {
        let contraction = Contraction::new(&case.systems, &case.moments).unwrap();
        let eta = contraction.largest_step * 10f64.powf(-2.0 * case.share[0]);
        let h = 1 + (case.share[1] * case.share[1] * 60.0) as u64;
        // From the first round to long after the start is forgotten.
        let scale = 1.0 / (eta * contraction.a * h as f64);
        let t = 1 + (10.0 * case.share[2] * scale) as u64;
        (RoundSetting::new(eta, h).unwrap(), t)
    }

    /// `E^{1/2} ||theta_t - theta* - thetabias_t||^2` and `E ||theta_t - theta*||^2`, exact.
    fn measured(case: &Case, setting: &RoundSetting, t: u64) -> (f64, f64) {
        let theory = FedLsaMse::new(&case.systems, &case.moments, setting, 1).unwrap();
        let here = theory.curve(&case.start, &[t]).unwrap().remove(0);
        let mean = theory.mean();
        let path = mean.mean(&mean.root, &[t]).remove(0);
        let bias: Vec<f64> = path.iter().zip(&mean.root).map(|(x, r)| x - r).collect();
        (here.mse_around(&bias).max(0.0).sqrt(), here.mse())
    }

    #[test]
    fn theorem_a5_holds_and_is_this_loose() {
        let (mut around, mut total, mut lemma) = (Looseness::default(), Looseness::default(), Looseness::default());
        for (i, case) in cases(CASES).iter().enumerate() {
            let (setting, t) = setting(case);
            let (rms, mse) = measured(case, &setting, t);
            let what = format!("case {i}, {setting:?}, t = {t}");
            let bound = theorem_a5(&case.systems, &case.moments, &setting, &case.start, t).unwrap();
            assert!(bound.holds(), "{what}: {bound:?}");
            around.see(rms, bound.value(), &what);
            let bound = total_error(&case.systems, &case.moments, &setting, &case.start, t).unwrap();
            total.see(mse.sqrt(), bound.value(), &what);
            let mean = FedLsaMean::new(&case.systems, &setting).unwrap();
            let (limit, path) = (mean.limit().unwrap(), mean.mean(&mean.root, &[t]).remove(0));
            let bound = lemma_a4(&case.systems, &case.moments, &setting, t).unwrap();
            lemma.see(linalg::distance_sq(&limit, &path).sqrt(), bound.value(), &what);
        }
        println!("{}", around.about("Theorem A.5", 2.8));
        println!("{}", total.about("Theorem A.5 and the bias", 2.3));
        println!("{}", lemma.about("Lemma A.4", 24.5));
    }

    #[test]
    fn lemma_c3_holds_and_is_this_loose() {
        let mut loose = Looseness::default();
        for (i, case) in cases(CASES).iter().enumerate() {
            let (setting, _) = setting(case);
            let rho = linalg::norm_sq(&FedLsaMean::new(&case.systems, &setting).unwrap().rho).sqrt();
            loose.see(rho, lemma_c3(&case.systems, &setting).unwrap().value(), &format!("case {i}"));
        }
        println!("{}", loose.about("Lemma C.3", 20.0));
        // As printed it fails for large matrices: A = 10, 30 and theta*_c - theta* = 3, -1.
        let agent = |a: f64, root: f64| Finite { samples: vec![(Mat::full(1, 1, a), vec![a * root])] };
        let (systems, _) = federation(&[agent(10.0, 3.0), agent(30.0, -1.0)], &[1, 1]);
        let setting = RoundSetting::new(0.001, 2).unwrap();
        let rho = linalg::norm_sq(&FedLsaMean::new(&systems, &setting).unwrap().rho).sqrt();
        assert!(rho > 30.0 * lemma_c3_printed(&systems, &setting).unwrap().value());
        assert!(rho <= lemma_c3(&systems, &setting).unwrap().value());
    }

    /// Three scalar agents, multiplicative noise on one: `A = .013, .02, .01`, `theta*_c - theta* = 0, 1, -2`.
    #[test]
    fn the_printed_theorem_a5_is_violated_and_the_corrected_one_holds() {
        let agent = |a: f64, sd: f64, local_root: f64| Finite {
            samples: vec![(Mat::full(1, 1, a + sd), vec![a * local_root]), (Mat::full(1, 1, a - sd), vec![a * local_root])],
        };
        let (systems, moments) = federation(&[agent(0.013, 0.05, 0.0), agent(0.02, 0.0, 1.0), agent(0.01, 0.0, -2.0)], &[1, 1, 1]);
        let setting = RoundSetting::new(0.1, 2).unwrap();
        let theory = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
        let start = systems.root().unwrap();
        let rounds = 100_000;
        let here = theory.curve(&start, &[rounds]).unwrap().remove(0);
        let rms = here.noise.sqrt();
        let printed = theorem_a5_printed(&systems, &moments, &setting, &start, rounds).unwrap();
        let corrected = theorem_a5(&systems, &moments, &setting, &start, rounds).unwrap();
        assert!(printed.holds() && corrected.holds());
        assert!((rms - 7.2e-6).abs() < 0.05e-6, "{rms:e}");
        assert!((printed.value() - 1.6e-6).abs() < 0.05e-6, "{printed:?}");
        assert!((corrected.value() - 1.7e-5).abs() < 0.05e-5, "{corrected:?}");
        // Only the third term is not zero.
        assert!(corrected.terms.iter().enumerate().all(|(i, term)| (term.value > 1e-12) == (i == 2)), "{corrected:?}");
    }

    #[test]
    fn corollaries_reach_their_targets_within_their_rounds() {
        let mut used = [Looseness::default(), Looseness::default()];
        let (mut local, mut seen) = (0, 0);
        for (i, case) in cases(CASES).iter().enumerate() {
            let constants = FedLsaConstants::new(&case.systems, &case.moments).unwrap();
            let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt();
            let target = start * start * 10f64.powf(-0.5 - 3.0 * case.share[3]);
            for (k, choice) in
                [corollary_4_4(&constants, start, target).unwrap(), corollary_4_5(&constants, start, target).unwrap()].iter().enumerate()
            {
                assert!(choice.holds(), "case {i}: {choice:?}");
                let setting = choice.round_setting().unwrap();
                let theory = FedLsaMse::new(&case.systems, &case.moments, &setting, 1).unwrap();
                let mse = theory.curve(&case.start, &[choice.rounds()]).unwrap()[0].mse();
                used[k].see(mse, target, &format!("case {i}, {choice:?}"));
                local += usize::from(setting.local_steps > 1);
                seen += usize::from(k == 1);
            }
        }
        // More than one local step in half of all problems at least.
        assert!(2 * local > seen, "{local} of {seen}");
        let [without, with] = used;
        println!("{}", without.about("Corollary 4.4, target over the error reached", 46.0));
        println!("{}", with.about("Corollary 4.5, target over the error reached", 171.0));
    }

    #[test]
    fn printed_corollaries_miss_their_targets() {
        // Noise in b only, sigma_eps = 1: A 2 holds with a = 1 up to eta = 1/2.
        let agent = Finite { samples: [1.0, -1.0].map(|b| (Mat::full(1, 1, 1.0), vec![b])).to_vec() };
        let (systems, moments) = federation(&[agent], &[1]);
        let contraction = Contraction::up_to(&systems, &moments, 0.5).unwrap();
        let constants = FedLsaConstants { contraction, ..FedLsaConstants::new(&systems, &moments).unwrap() };
        assert!((contraction.a - 1.0).abs() < 1e-12);
        let reached = |choice: &CorollaryChoice, start: f64, systems: &Systems, moments: &[Moments]| {
            let theory = FedLsaMse::new(systems, moments, &choice.round_setting().unwrap(), 1).unwrap();
            let root = systems.root().unwrap();
            theory.curve(&[root[0] + start], &[choice.rounds()]).unwrap()[0].mse()
        };
        let target = 0.01;
        let printed = corollary_4_4_printed(&constants, 3.0, target).unwrap();
        assert!(reached(&printed, 3.0, &systems, &moments) > 1.3 * target);
        assert!(reached(&corollary_4_4(&constants, 3.0, target).unwrap(), 3.0, &systems, &moments) <= target);

        // The same problem in two units of time: local steps become s^2 times as many, and the bias s^2 times as large.
        let agent = |scale: f64, a: f64, root: f64| {
            let b = [5.0, -5.0].map(|noise| scale * (a * root + noise));
            Finite { samples: b.map(|b| (Mat::full(1, 1, scale * a), vec![b])).to_vec() }
        };
        for (scale, printed_reaches) in [(0.2, true), (10.0, false)] {
            let (systems, moments) = federation(&[agent(scale, 1.0, 1.0), agent(scale, 2.0, -0.5)], &[1, 1]);
            let constants = FedLsaConstants::new(&systems, &moments).unwrap();
            let printed = corollary_4_5_printed(&constants, 3.0, target).unwrap();
            assert_eq!(reached(&printed, 3.0, &systems, &moments) <= target, printed_reaches, "{printed:?}");
            assert!(reached(&corollary_4_5(&constants, 3.0, target).unwrap(), 3.0, &systems, &moments) <= target);
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        let case = &cases(1)[0];
        let constants = FedLsaConstants::new(&case.systems, &case.moments).unwrap();
        for target in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(corollary_4_4(&constants, 1.0, target).unwrap_err().key, "target");
            assert_eq!(corollary_4_5(&constants, 1.0, target).unwrap_err().key, "target");
        }
        assert_eq!(corollary_4_4(&constants, 1.0, 1e-300).unwrap_err().key, "target");
        let setting = RoundSetting::new(1.5 * constants.contraction.largest_step, 2).unwrap();
        let broken = FedLsaConstants::theorem_a5(&constants, &setting, 3, 0.0, 1.0);
        assert!(!broken.holds() && broken.assumptions.iter().any(|a| !a.holds && a.text.contains(", above ")));
    }
}
