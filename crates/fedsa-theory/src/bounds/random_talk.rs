//! Section 5 and appendix B.1 of \[S\]: SCAFFLSA with random talk.

use super::{Assumption, Bound, CorollaryChoice, Period, check_target, rounds_until, unknown_constant};
use crate::constants::Constants;
use fedsa::error::{Result, require};

/// The Lyapunov function at the start, with controls of 0: `psi_0 = ||theta_0 - theta*||^2 + (eta / p)^2 Delta_heter`.
pub fn initial_lyapunov(constants: &Constants, eta: f64, p: f64, start: f64) -> f64 {
    start * start + (eta / p).powi(2) * constants.delta_heter
}

/// Theorem 5.1 (B.2), after K local steps with controls of 0 at the start. `start` is `||theta_0 - theta*||`, and a and L come from A
/// 3:
///
/// ```text
/// E psi_K <= (1 - zeta)^K psi_0 + 2 eta^2 sigma_omega / zeta      zeta = min(eta a, p^2),  eta <= 1 / (2 L)
/// psi = mean ||theta_c - theta*||^2 + (eta / p)^2 mean ||xi_c - xi*_c||^2
/// ```
///
/// Deviation: appendix B prints `sigma_eps`, the noise at the agents' own roots, for `sigma_omega`; section 5 has it right
/// (`theorem_b2_printed` of the tests). A 3 is used with its second inequality reversed ([`Constants::l`]).
///
/// # Errors
/// When second moments are not known, or A 3 does not hold.
pub fn theorem_5_1(constants: &Constants, eta: f64, p: f64, start: f64, steps: u64) -> Result<Bound> {
    let noise = constants.sigma_omega.ok_or_else(|| unknown_constant("sigma_omega", "second moments are not known"))?;
    bound("[S] Theorem 5.1", noise, constants, (eta, p), start, steps)
}

fn bound(statement: &'static str, noise: f64, constants: &Constants, (eta, p): (f64, f64), start: f64, steps: u64) -> Result<Bound> {
    require(eta > 0.0 && eta.is_finite(), "step_size", eta, "a positive number")?;
    require(p > 0.0 && p <= 1.0, "talk_probability", p, "in (0, 1]")?;
    let zeta = (eta * constants.a).min(p * p);
    let forgotten = (steps as f64 * (-zeta).ln_1p()).exp();
    let terms = [
        ("start", forgotten * start * start),
        ("controls at the start", forgotten * (eta / p).powi(2) * constants.delta_heter),
        ("samples", 2.0 * eta * eta * noise / zeta),
    ];
    Ok(Bound::new(statement, "E psi_K", &terms, assumptions(constants, eta)?))
}

fn assumptions(constants: &Constants, eta: f64) -> Result<Vec<Assumption>> {
    let l = constants.l.ok_or_else(|| unknown_constant("L of A 3", "a is not positive, or second moments are not known"))?;
    Ok(vec![Assumption::positive("A 3", "a", constants.a), Assumption::at_most("eta <= 1 / (2 L)", "eta", eta, 0.5 / l)])
}

/// Corollary 5.2 (B.3): half of eps^2 for the samples and half for the start,
///
/// ```text
/// eta = min(1 / (2 L), eps^2 a / (4 sigma_omega))    p = sqrt(eta a)    K = log(2 psi_0 / eps^2) / -log(1 - eta a)
/// ```
///
/// in p K rounds, in expectation. `start` is `||theta_0 - theta*||`. Deviation: Corollary B.3 prints
/// `K = max(2 L / a, 4 sigma / (eps^2 a^2)) log(psi_0 / (2 eps^2))` for `eta = min(1 / (2 L), eps^2 a / (8 sigma))`. The second
/// number should be `8 sigma / (eps^2 a^2)`, which is `1 / (eta a)`, and the logarithm lets `2 eps^2` of psi_0 remain
/// (`corollary_b3_printed` of the tests).
///
/// # Errors
/// When the target is not positive, second moments are not known, or A 3 does not hold.
pub fn corollary_5_2(constants: &Constants, start: f64, target: f64) -> Result<CorollaryChoice> {
    check_target(target)?;
    let noise = constants.sigma_omega.ok_or_else(|| unknown_constant("sigma_omega", "second moments are not known"))?;
    let eta = step(constants, target, noise, 4.0)?;
    let p = (eta * constants.a).sqrt();
    let steps = rounds_until(initial_lyapunov(constants, eta, p, start), 0.5 * target, eta * constants.a);
    let assumptions = assumptions(constants, eta)?;
    let statement = "[S] Corollary 5.2, with constants";
    CorollaryChoice { statement, target, step_size: eta, period: Period::Random(p), rounds: p * steps, samples: steps, assumptions }
        .countable()
}

/// `min(1 / (2 L), eps^2 a / (share sigma))`.
fn step(constants: &Constants, target: f64, noise: f64, share: f64) -> Result<f64> {
    let l = constants.l.ok_or_else(|| unknown_constant("L of A 3", "a is not positive, or second moments are not known"))?;
    Ok((0.5 / l).min(target * constants.a / (share * noise)))
}

#[cfg(test)]
mod tests {
    use faer::prelude::*;

    use super::*;
    use crate::bounds::testing::{CASES, Case, Looseness, cases};
    use crate::testing::{Finite, federation};
    use fedsa::linalg::{self, Mat};
    use fedsa_testing::scaffnew::{Scaffnew, ScaffnewState};

    /// Theorem B.2 as printed, with `sigma_eps`. It fails where agents have noise at theta* but not at their own roots.
    ///
    /// # Errors
    /// As [`theorem_5_1`], and when an agent's own root is not known.
    fn theorem_b2_printed(constants: &Constants, eta: f64, p: f64, start: f64, steps: u64) -> Result<Bound> {
        let noise = constants.sigma_eps.ok_or_else(|| unknown_constant("sigma_eps", "an agent's own root is not known"))?;
        bound("[S] Theorem B.2 as printed (false)", noise, constants, (eta, p), start, steps)
    }

    /// Corollary B.3 as printed, which misses targets: see [`corollary_5_2`].
    ///
    /// # Errors
    /// As [`corollary_5_2`], and when an agent's own root is not known.
    fn corollary_b3_printed(constants: &Constants, start: f64, target: f64) -> Result<CorollaryChoice> {
        check_target(target)?;
        let noise = constants.sigma_eps.ok_or_else(|| unknown_constant("sigma_eps", "an agent's own root is not known"))?;
        let eta = step(constants, target, noise, 8.0)?;
        let (a, p) = (constants.a, (eta * constants.a).sqrt());
        let assumptions = assumptions(constants, eta)?;
        let l = constants.l.unwrap_or(f64::INFINITY);
        let log = (initial_lyapunov(constants, eta, p, start) / (2.0 * target)).ln();
        let steps = ((2.0 * l / a).max(4.0 * noise / (target * a * a)) * log).ceil().max(0.0);
        let statement = "[S] Corollary B.3 as printed (false)";
        CorollaryChoice { statement, target, step_size: eta, period: Period::Random(p), rounds: p * steps, samples: steps, assumptions }
            .countable()
    }

    /// The exact second moment of `(u_1 .. u_N, x_1 .. x_N, 1)` under random talk, `u_c = theta_c - theta*` and `x_c = xi_c -
    /// xi*_c`, by enumeration of each agent's samples and of the coin.
    struct Joint {
        n: usize,
        d: usize,
        eta: f64,
        p: f64,
        weights: Vec<f64>,
        /// The mean step, and each agent's steps on `(u_c, 1)`, d x (d+1).
        mean: Mat<f64>,
        own: Vec<Vec<Mat<f64>>>,
        talk: Mat<f64>,
        moment: Mat<f64>,
    }

    impl Joint {
        fn new(kinds: &[Finite], case: &Case, eta: f64, p: f64) -> Self {
            let (n, d) = (case.systems.weights.len(), case.systems.dim());
            let root = case.systems.root().unwrap();
            let side = 2 * n * d + 1;
            let weights = case.systems.weights.clone();
            let (mut mean, mut talk) = (Mat::<f64>::identity(side, side), Mat::<f64>::identity(side, side));
            let mut own = Vec::new();
            let mut start = vec![0.0; side];
            start[side - 1] = 1.0;
            for c in 0..n {
                let push = case.systems.of(c).mean(&root);
                let kind = &kinds[case.systems.kind_of[c] as usize];
                let steps: Vec<Mat<f64>> = (kind.samples.iter())
                    .map(|(a, b)| {
                        let at = linalg::mat_vec(a, &root);
                        // -eta A u + eta (b - A theta* - gbar(theta*)). The control has the same mean as the constant.
                        Mat::from_fn(d, d + 1, |i, j| if j < d { -eta * a[(i, j)] } else { eta * (b[i] - at[i] - push[i]) })
                    })
                    .collect();
                for i in 0..d {
                    for j in 0..d {
                        mean[(c * d + i, c * d + j)] -= eta * case.systems.of(c).a[(i, j)];
                    }
                    mean[(c * d + i, (n + c) * d + i)] = eta;
                    // xi_c = 0, xi*_c = -gbar_c(theta*).
                    start[c * d + i] = case.start[i] - root[i];
                    start[(n + c) * d + i] = push[i];
                    for (e, w) in weights.iter().enumerate() {
                        let here = f64::from(c == e);
                        talk[(c * d + i, e * d + i)] = *w;
                        talk[((n + c) * d + i, e * d + i)] = p / eta * (w - here);
                    }
                }
                own.push(steps);
            }
            let moment = Mat::from_fn(side, side, |i, j| start[i] * start[j]);
            Self { n, d, eta, p, weights, mean, own, talk, moment }
        }

        fn step(&mut self) {
            let (n, d, last) = (self.n, self.d, 2 * self.n * self.d);
            let mut next = &self.mean * &self.moment * self.mean.transpose();
            for c in 0..n {
                let at = |i: usize| if i < d { c * d + i } else { last };
                let x = Mat::from_fn(d + 1, d + 1, |i, j| self.moment[(at(i), at(j))]);
                let share = 1.0 / self.own[c].len() as f64;
                let mut average = Mat::<f64>::zeros(d, d + 1);
                self.own[c].iter().for_each(|m| average += Scale(share) * m);
                for m in &self.own[c] {
                    let away = m - &average;
                    let noise = Scale(share) * (&away * &x * away.transpose());
                    let mut block = next.get_mut(c * d..(c + 1) * d, c * d..(c + 1) * d);
                    block += noise;
                }
            }
            self.moment = Scale(self.p) * (&self.talk * &next * self.talk.transpose()) + Scale(1.0 - self.p) * next;
        }

        /// `E mean ||theta_c - theta*||^2` and `E psi`.
        fn errors(&self) -> (f64, f64) {
            let block = |c: usize| (0..self.d).map(|i| self.moment[(c * self.d + i, c * self.d + i)]).sum::<f64>();
            let mean = |shift: usize| (0..self.n).map(|c| self.weights[c] * block(shift + c)).sum::<f64>();
            (mean(0), mean(0) + (self.eta / self.p).powi(2) * mean(self.n))
        }
    }

    #[test]
    fn the_enumeration_is_theorem_b4() {
        // Abar = a I, noise in b only.
        let noise = [1.0, -1.0];
        let agent = |shift: f64| Finite { samples: noise.map(|x| (Mat::full(1, 1, 0.7), vec![shift + x])).to_vec() };
        let kinds = vec![agent(0.5), agent(-1.0), agent(2.0)];
        let (systems, moments) = federation(&kinds, &[1, 1, 1]);
        let mut case = Case { kinds: Vec::new(), systems, moments, start: vec![2.0], share: [0.0; 4] };
        let root = case.systems.root().unwrap()[0];
        let theory = Scaffnew { agents: 3, eta: 0.3, a: 0.7, p: 0.4, sigma: 1.0 };
        let u = (2.0 - root).powi(2);
        let x = (0..3).map(|c| case.systems.of(c).mean(&[root])[0].powi(2)).sum::<f64>() / 3.0;
        let curve = theory.curve(ScaffnewState { u, v: u, c: 0.0, x }, 40);
        let mut joint = Joint::new(&kinds, &case, 0.3, 0.4);
        for state in &curve {
            let (mean, psi) = joint.errors();
            assert!((mean - state.u).abs() < 1e-11 * state.u && (psi - theory.psi(state)).abs() < 1e-11 * psi);
            joint.step();
        }
        case.start.clear();
    }

    #[test]
    fn theorem_5_1_holds_and_is_this_loose() {
        let (mut lyapunov, mut error) = (Looseness::default(), Looseness::default());
        for (i, case) in cases(CASES).iter().enumerate() {
            let constants = Constants::new(&case.systems, Some(&case.moments)).unwrap();
            let eta = 0.5 / constants.l.unwrap() * 10f64.powf(-1.5 * case.share[0]);
            let p = (0.05 + 0.95 * case.share[1]).min(1.0);
            let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt();
            let mut joint = Joint::new(&case.kinds, case, eta, p);
            let steps = 1 + (600.0 * case.share[2] * case.share[2]) as u64;
            for step in 1..=steps {
                joint.step();
                if step == 1 || step == steps / 4 || step == steps {
                    let bound = theorem_5_1(&constants, eta, p, start, step).unwrap();
                    assert!(bound.holds());
                    let (mse, psi) = joint.errors();
                    lyapunov.see(psi, bound.value(), &format!("case {i}, step {step}"));
                    error.see(mse, bound.value(), &format!("case {i}, step {step}"));
                }
            }
        }
        println!("{}", lyapunov.about("Theorem 5.1, psi", 2.66));
        println!("{}", error.about("Theorem 5.1, error", 2.98));
    }

    #[test]
    fn the_printed_theorem_b2_is_violated_and_the_corrected_one_holds() {
        // Agent 0 has noise in A and its root at 0, where the noise is 0; agent 1 has none.
        let kinds = vec![
            Finite { samples: [1.5, 0.5].map(|a| (Mat::full(1, 1, a), vec![0.0])).to_vec() },
            Finite { samples: vec![(Mat::full(1, 1, 1.0), vec![2.0])] },
        ];
        let (systems, moments) = federation(&kinds, &[1, 1]);
        let start = systems.root().unwrap();
        let case = Case { kinds: Vec::new(), systems, moments, start, share: [0.0; 4] };
        let constants = Constants::new(&case.systems, Some(&case.moments)).unwrap();
        let (eta, p) = (0.1, 0.5);
        let mut joint = Joint::new(&kinds, &case, eta, p);
        (0..400).for_each(|_| joint.step());
        let (_, psi) = joint.errors();
        let printed = theorem_b2_printed(&constants, eta, p, 0.0, 400).unwrap();
        assert!(printed.holds() && psi > 1e3 * printed.value(), "{psi} {printed:?}");
        assert!(psi <= theorem_5_1(&constants, eta, p, 0.0, 400).unwrap().value());
    }

    #[test]
    fn corollary_5_2_reaches_its_targets() {
        let mut loose = Looseness::default();
        let mut skipped = 0;
        for (i, case) in cases(CASES).iter().enumerate() {
            let constants = Constants::new(&case.systems, Some(&case.moments)).unwrap();
            let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt();
            let target = start * start * 10f64.powf(-0.3 - 1.2 * case.share[3]);
            let choice = corollary_5_2(&constants, start, target).unwrap();
            assert!(choice.holds());
            let Period::Random(p) = choice.period else { panic!("random talk") };
            if choice.samples > 20_000.0 {
                skipped += 1;
                continue;
            }
            let mut joint = Joint::new(&case.kinds, case, choice.step_size, p);
            (0..choice.samples as u64).for_each(|_| joint.step());
            loose.see(joint.errors().1, target, &format!("case {i}, {choice:?}"));
        }
        // Nearly singular agents need more steps than the test follows.
        assert!(skipped < CASES as usize / 3, "{skipped}");
        println!("{}, {skipped} not followed", loose.about("Corollary 5.2, target over psi", 13.2));
    }

    #[test]
    fn the_printed_corollary_b3_misses_its_target() {
        // Without noise, and with a target of two thirds of psi_0, the printed corollary takes no step at all.
        let kinds = vec![Finite { samples: vec![(Mat::full(1, 1, 1.0), vec![1.0])] }];
        let (systems, moments) = federation(&kinds, &[1]);
        let constants = Constants::new(&systems, Some(&moments)).unwrap();
        let printed = corollary_b3_printed(&constants, 3.0, 6.0).unwrap();
        assert!(printed.samples == 0.0 && 9.0 > printed.target);
        let right = corollary_5_2(&constants, 3.0, 6.0).unwrap();
        assert!(right.samples >= 1.0 && 9.0 * (1.0 - right.step_size).powf(2.0 * right.samples) <= 6.0);
        assert!(theorem_5_1(&constants, 0.1, 1.5, 1.0, 3).is_err() && corollary_5_2(&constants, 1.0, 0.0).is_err());
    }
}
