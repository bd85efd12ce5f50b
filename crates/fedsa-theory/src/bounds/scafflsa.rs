//! Section 5 and appendix B.2 of \[S\]: SCAFFLSA with a fixed period.

use serde::Serialize;

use super::fedlsa::server_step;
use super::{Assumption, Bound, Contraction, CorollaryChoice, check_target, rounds_until, unknown_constant};
use crate::RoundSetting;
use crate::constants::Constants;
use fedsa::error::Result;
use fedsa::problem::systems::{Moments, Systems};

/// The constants of Theorem 5.3 and Corollary 5.4.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ScafflsaConstants {
    /// a and eta_inf of A 2.
    pub contraction: Contraction,
    /// `C_A = max ||Abar_c||`.
    pub c_a: f64,
    /// `s = max (||Abar_c||^2 + ||Sigma_A||)`.
    pub square_norm: f64,
    /// `sigma_omega`.
    pub sigma_omega: f64,
    /// `Delta_heter`.
    pub delta_heter: f64,
}

impl ScafflsaConstants {
    /// The constants of a problem; `moments[k]` belongs to `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system has no unique root, or A 3 does not hold.
    pub fn new(systems: &Systems, moments: &[Moments]) -> Result<Self> {
        let constants = Constants::new(systems, Some(moments))?;
        let none = || unknown_constant("sigma_omega", "second moments are not known");
        Ok(Self {
            contraction: Contraction::new(systems, moments)?,
            c_a: constants.c_a,
            square_norm: constants.square_norm.ok_or_else(none)?,
            sigma_omega: constants.sigma_omega.ok_or_else(none)?,
            delta_heter: constants.delta_heter,
        })
    }

    /// The same constants with the largest a for steps up to eta.
    ///
    /// # Errors
    /// When eigenvalues cannot be computed.
    pub fn up_to(self, systems: &Systems, moments: &[Moments], eta: f64) -> Result<Self> {
        Ok(Self { contraction: Contraction::up_to(systems, moments, eta)?, ..self })
    }

    /// `a / (16 s)`.
    fn longest_span(&self) -> f64 {
        self.contraction.a / (16.0 * self.square_norm)
    }

    /// The condition of Theorem B.5 on the settings.
    fn span_is_short(&self, setting: &RoundSetting) -> Assumption {
        Assumption::at_most("eta H <= a / (16 s)", "eta H", setting.span(), self.longest_span())
    }

    /// `psi_0 = ||theta_0 - theta*||^2 + (eta H)^2 Delta_heter`, with controls of 0. `start` is `||theta_0 - theta*||`.
    pub fn initial_lyapunov(&self, setting: &RoundSetting, start: f64) -> f64 {
        start * start + setting.span().powi(2) * self.delta_heter
    }
}

/// Theorem 5.3 (B.5), after t rounds with controls of 0 at the start; `start` is `||theta_0 - theta*||`:
///
/// ```text
/// E psi_t <= (1 - eta a H / 4)^t psi_0 + 16 eta sigma_omega / a       eta H <= a / (16 s),  s = max (||Abar_c||^2 + ||Sigma_A||)
/// psi = ||theta - theta*||^2 + (eta H)^2 mean ||xi_c - xi*_c||^2
/// ```
///
/// Deviations: the condition comes from Theorem B.5, which the proof uses. Section 5 has `32 C_A^2` for `16 s` (`theorem_5_3_printed`
/// of the tests), which ignores the noise in A. The other conditions of Theorem B.5 are not needed: `eta a H <= 1` and `eta ||Abar_c||
/// <= 1` follow, since `a <= ||Abar_c||`. The proof never uses `eta H <= 1`, which depends on the unit of time. Appendix B prints
/// `sigma_eps` for `sigma_omega` (`theorem_b5_printed` of the tests).
pub fn theorem_5_3(constants: &ScafflsaConstants, setting: &RoundSetting, start: f64, rounds: u64) -> Bound {
    bound("[S] Theorem 5.3 (B.5)", constants.sigma_omega, constants, setting, start, rounds, vec![constants.span_is_short(setting)])
}

/// The terms that all forms share.
fn bound(
    statement: &'static str,
    noise: f64,
    constants: &ScafflsaConstants,
    setting: &RoundSetting,
    start: f64,
    rounds: u64,
    mut conditions: Vec<Assumption>,
) -> Bound {
    let (eta, a) = (setting.step_size, constants.contraction.a);
    let forgotten = (rounds as f64 * (-0.25 * a * setting.span()).ln_1p()).exp();
    let terms = [
        ("start", forgotten * start * start),
        ("controls at the start", forgotten * setting.span().powi(2) * constants.delta_heter),
        ("samples", 16.0 * eta * noise / a),
    ];
    conditions.extend(constants.contraction.assumptions(eta));
    conditions.push(server_step(setting));
    Bound::new(statement, "E psi_t", &terms, conditions)
}

/// Corollary 5.4 (B.6): half of eps^2 for the samples and half for the start,
///
/// ```text
/// eta = min(eta_inf, a eps^2 / (32 sigma_omega), a / (16 s))     H = a / (16 eta s), rounded down
/// T   = log(2 psi_0 / eps^2) / -log(1 - eta a H / 4)             about (64 s / a^2) log(2 psi_0 / eps^2)
/// ```
///
/// T grows with the logarithm of the target only. `start` is `||theta_0 - theta*||`. Deviations: a third limit of eta, without which
/// H may be below 1. The source prints `(256 s^2 / a^2) Delta_heter` in psi_0, where `(eta H)^2 Delta_heter` is
/// `(a^2 / (256 s^2)) Delta_heter`, and asks for `a <= 1`, which depends on the unit of time and is not needed.
///
/// # Errors
/// When the target is not positive.
pub fn corollary_5_4(constants: &ScafflsaConstants, start: f64, target: f64) -> Result<CorollaryChoice> {
    check_target(target)?;
    let Contraction { a, largest_step } = constants.contraction;
    let span = constants.longest_span();
    let eta = largest_step.min(a * target / (32.0 * constants.sigma_omega)).min(span);
    // A span that is a multiple of eta up to rounding counts as a multiple.
    let local_steps = ((span / eta * (1.0 + 1e-12)).floor() as u64).max(1);
    let setting = RoundSetting::new(eta, local_steps)?;
    let rounds = rounds_until(constants.initial_lyapunov(&setting, start), 0.5 * target, 0.25 * a * setting.span());
    let mut assumptions = constants.contraction.assumptions(eta);
    assumptions.push(constants.span_is_short(&setting));
    CorollaryChoice::fixed("[S] Corollary 5.4, with constants", target, eta, local_steps, rounds, assumptions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::testing::{CASES, Looseness, cases};
    use crate::exact_mse::{ExactMse, InitialControls, ScafflsaMse};
    use crate::testing::{Finite, federation};
    use fedsa::linalg::{self, Mat};

    /// Theorem 5.3 with the conditions of section 5: `eta <= 1 / C_A`, `H <= min(a / (32 eta C_A^2), 1 / eta, 1 / (eta a))`. Its proof does
    /// not cover strong noise in A.
    fn theorem_5_3_printed(constants: &ScafflsaConstants, setting: &RoundSetting, start: f64, rounds: u64) -> Bound {
        let (a, c_a, span) = (constants.contraction.a, constants.c_a, setting.span());
        let conditions = vec![
            Assumption::at_most("eta <= 1 / C_A", "eta", setting.step_size, 1.0 / c_a),
            Assumption::at_most("H <= a / (32 eta C_A^2)", "eta H", span, a / (32.0 * c_a * c_a)),
            Assumption::at_most("H <= 1 / eta", "eta H", span, 1.0),
            Assumption::at_most("H <= 1 / (eta a)", "eta H", span, 1.0 / a),
        ];
        bound("[S] Theorem 5.3 as printed", constants.sigma_omega, constants, setting, start, rounds, conditions)
    }

    /// Theorem B.5 as printed, with `sigma_eps`. It fails where agents have noise at theta* but not at their own roots.
    fn theorem_b5_printed(constants: &ScafflsaConstants, sigma_eps: f64, setting: &RoundSetting, start: f64, rounds: u64) -> Bound {
        bound("[S] Theorem B.5 as printed (false)", sigma_eps, constants, setting, start, rounds, vec![constants.span_is_short(setting)])
    }

    #[test]
    fn theorem_5_3_holds_and_is_this_loose() {
        let (mut lyapunov, mut settled, mut printed) = (Looseness::default(), Looseness::default(), Looseness::default());
        for (i, case) in cases(CASES).iter().enumerate() {
            let constants = ScafflsaConstants::new(&case.systems, &case.moments).unwrap();
            let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt();
            // Spans up to the longest, in steps of one to sixty.
            let span = constants.longest_span() * 10f64.powf(-case.share[0]);
            let h = 1 + (60.0 * case.share[1] * case.share[1]) as u64;
            let eta = (span / h as f64).min(constants.contraction.largest_step);
            let setting = RoundSetting::new(eta, h).unwrap();
            // While the start is forgotten, and long after.
            let scale = 1.0 / (constants.contraction.a * setting.span());
            let t = 1 + (2.0 * case.share[2] * scale) as u64;
            let theory = ScafflsaMse::new(&case.systems, &case.moments, &setting, 1, &InitialControls::Zero).unwrap();
            let here = constants.up_to(&case.systems, &case.moments, eta).unwrap();
            for (loose, t) in [(&mut lyapunov, t), (&mut settled, (300.0 * scale) as u64)] {
                let bound = theorem_5_3(&here, &setting, start, t);
                let what = format!("case {i}, {setting:?}, t = {t}, {bound:?}");
                assert!(bound.holds(), "{what}");
                let (psi, mse) = (theory.lyapunov(&case.start, &[t]).unwrap()[0], theory.curve(&case.start, &[t]).unwrap()[0].mse());
                assert!(mse <= psi * (1.0 + 1e-9));
                loose.see(psi, bound.value(), &what);
            }
            // As printed, at its own longest span.
            let span = constants.contraction.a / (32.0 * here.c_a * here.c_a);
            let eta = (span.min(1.0) / h as f64).min(constants.contraction.largest_step);
            let (setting, here) = (RoundSetting::new(eta, h).unwrap(), constants.up_to(&case.systems, &case.moments, eta).unwrap());
            let bound = theorem_5_3_printed(&here, &setting, start, t);
            let theory = ScafflsaMse::new(&case.systems, &case.moments, &setting, 1, &InitialControls::Zero).unwrap();
            if bound.holds() {
                printed.see(theory.lyapunov(&case.start, &[t]).unwrap()[0], bound.value(), &format!("case {i}, {bound:?}"));
            }
        }
        println!("{}", lyapunov.about("Theorem 5.3, while the start is forgotten", 98.5));
        println!("{}", settled.about("Theorem 5.3, settled", 227.0));
        println!("{}", printed.about("Theorem 5.3 with the printed conditions", 896.0));
    }

    #[test]
    fn the_printed_theorem_b5_is_violated_and_the_corrected_one_holds() {
        // Agent 0 has noise in A and its root at 0, where the noise is 0; agent 1 has none.
        let kinds = vec![
            Finite { samples: [1.5, 0.5].map(|a| (Mat::full(1, 1, a), vec![0.0])).to_vec() },
            Finite { samples: vec![(Mat::full(1, 1, 1.0), vec![2.0])] },
        ];
        let (systems, moments) = federation(&kinds, &[1, 1]);
        let constants = ScafflsaConstants::new(&systems, &moments).unwrap();
        let sigma_eps = Constants::new(&systems, Some(&moments)).unwrap().sigma_eps.unwrap();
        let setting = RoundSetting::new(0.005, 4).unwrap();
        let theory = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
        let psi = theory.lyapunov(&systems.root().unwrap(), &[20_000]).unwrap()[0];
        let printed = theorem_b5_printed(&constants, sigma_eps, &setting, 0.0, 20_000);
        assert!(printed.holds() && psi > 1e3 * printed.value(), "{psi} {printed:?}");
        assert!(psi <= theorem_5_3(&constants, &setting, 0.0, 20_000).value());
    }

    #[test]
    fn corollary_5_4_reaches_its_targets() {
        let mut loose = Looseness::default();
        for (i, case) in cases(CASES).iter().enumerate() {
            let constants = ScafflsaConstants::new(&case.systems, &case.moments).unwrap();
            let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt();
            let target = start * start * 10f64.powf(-0.5 - 3.0 * case.share[3]);
            let choice = corollary_5_4(&constants, start, target).unwrap();
            assert!(choice.holds(), "case {i}: {choice:?}");
            let setting = choice.round_setting().unwrap();
            let theory = ScafflsaMse::new(&case.systems, &case.moments, &setting, 1, &InitialControls::Zero).unwrap();
            let psi = theory.lyapunov(&case.start, &[choice.rounds()]).unwrap()[0];
            loose.see(psi, target, &format!("case {i}, {choice:?}"));
        }
        println!("{}", loose.about("Corollary 5.4, target over psi", 1084.0));
    }

    #[test]
    fn rounds_grow_with_the_logarithm_of_the_target() {
        let case = &cases(6)[5];
        let constants = ScafflsaConstants::new(&case.systems, &case.moments).unwrap();
        let rounds = |target: f64| corollary_5_4(&constants, 3.0, target).unwrap().rounds;
        let each = rounds(1e-8) - rounds(1e-6);
        assert!((rounds(1e-10) - rounds(1e-8) - each).abs() < 0.02 * each);
        assert_eq!(corollary_5_4(&constants, 1.0, 0.0).unwrap_err().key, "target");
    }
}
