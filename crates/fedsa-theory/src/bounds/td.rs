//! Lemma 3.1 of \[S\] and its corollaries for TD(0) with linear features.

use super::fedlsa::{FedLsaConstants, corollary_4_5};
use super::scafflsa::{ScafflsaConstants, corollary_5_4};
use super::{Bound, Contraction, CorollaryChoice};
use crate::RoundSetting;
use crate::constants::TdConstants;
use fedsa::error::{Result, require};

/// A federation of TD(0) learners for Lemma 3.1 and its corollaries: rewards in [0, 1], `||phi|| <= 1`, i.i.d. transitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TdFederation {
    /// gamma, nu and the constants that follow from them; nu is the smallest over agents.
    pub constants: TdConstants,
    /// N; `1 / max p_c` for unequal weights.
    pub agents: f64,
    /// `mean ||theta*_c||^2`.
    pub local_roots_sq: f64,
    /// `mean ||theta*_c - theta*||^2`.
    pub distance_sq: f64,
    /// `||theta*||^2`.
    pub root_sq: f64,
}

impl TdFederation {
    /// The bounds of Lemma 3.1 for the constants of Theorem A.5. `mean ||Abar_c|| ||gbar_c(theta*)||` is at most
    /// `(1 + gamma)^2 mean ||theta*_c - theta*||`.
    ///
    /// # Errors
    /// When a number is negative or not finite.
    pub fn fedlsa(&self) -> Result<FedLsaConstants> {
        self.check()?;
        let (td, distance) = (self.constants, self.distance_sq.sqrt());
        Ok(FedLsaConstants {
            agents: self.agents,
            contraction: self.contraction(),
            c_a: td.c_a,
            sigma_a: td.sigma_a,
            sigma_eps: td.sigma_a * (self.local_roots_sq + 1.0),
            v_heter: td.sigma_a * self.distance_sq,
            drift: td.c_a * td.c_a * distance,
            distance,
        })
    }

    /// The bounds of Lemma 3.1 for the constants of Theorem 5.3: `sigma_omega` as `sigma_eps`, with `||theta*||^2` for
    /// `||theta*_c||^2`, and `Delta_heter <= (1 + gamma)^2 mean ||theta*_c - theta*||^2`.
    ///
    /// # Errors
    /// When a number is negative or not finite.
    pub fn scafflsa(&self) -> Result<ScafflsaConstants> {
        self.check()?;
        let td = self.constants;
        Ok(ScafflsaConstants {
            contraction: self.contraction(),
            c_a: td.c_a,
            // ||Abar||^2 + ||Sigma_A|| <= 2 ||E A^T A|| and E A^T A <= (1 + gamma)^2.
            square_norm: td.sigma_a,
            sigma_omega: td.sigma_a * (self.root_sq + 1.0),
            delta_heter: td.c_a * td.c_a * self.distance_sq,
        })
    }

    fn contraction(&self) -> Contraction {
        Contraction { a: self.constants.a, largest_step: self.constants.eta_inf }
    }

    fn check(&self) -> Result<()> {
        require(self.agents >= 1.0 && self.agents.is_finite(), "agents", self.agents, "at least 1")?;
        for (key, x) in [("local_roots", self.local_roots_sq), ("distance", self.distance_sq), ("root", self.root_sq)] {
            require(x >= 0.0 && x.is_finite(), key, x, "a number of at least 0")?;
        }
        Ok(())
    }

    /// Corollary 4.3: Theorem A.5 with the constants of Lemma 3.1. `largest_bias` is `max_{s<t} ||thetabias_s||`, `start` is
    /// `||theta_0 - theta*||`.
    ///
    /// # Errors
    /// When a number is negative or not finite.
    pub fn corollary_4_3(&self, setting: &RoundSetting, rounds: u64, largest_bias: f64, start: f64) -> Result<Bound> {
        let bound = self.fedlsa()?.theorem_a5(setting, rounds, largest_bias, start);
        Ok(Bound { statement: "[S] Corollary 4.3, third term corrected", ..bound })
    }

    /// Corollary 4.6 (A.8): Corollary 4.5 with the constants of Lemma 3.1. `target` is eps^2.
    ///
    /// # Errors
    /// When the target is not positive, or a number is negative or not finite.
    pub fn corollary_4_6(&self, start: f64, target: f64) -> Result<CorollaryChoice> {
        Ok(CorollaryChoice { statement: "[S] Corollary 4.6, with constants", ..corollary_4_5(&self.fedlsa()?, start, target)? })
    }

    /// Corollary 5.5: Corollary 5.4 with the constants of Lemma 3.1. `target` is eps^2.
    ///
    /// # Errors
    /// When the target is not positive, or a number is negative or not finite.
    pub fn corollary_5_5(&self, start: f64, target: f64) -> Result<CorollaryChoice> {
        Ok(CorollaryChoice { statement: "[S] Corollary 5.5, with constants", ..corollary_5_4(&self.scafflsa()?, start, target)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::fedlsa::theorem_a5;
    use crate::bounds::testing::{CASES, Looseness, Process, features};
    use crate::constants::Constants;
    use crate::exact_mse::{ExactMse, FedLsaMse, InitialControls, ScafflsaMse};
    use crate::testing::Draw;
    use fedsa::linalg;
    use fedsa::problem::systems::{Moments, Systems};

    /// Agents with different kernels and rewards; features are nearly parallel in every fourth problem.
    struct Td {
        systems: Systems,
        moments: Vec<Moments>,
        federation: TdFederation,
        root: Vec<f64>,
    }

    fn problem(seed: u64) -> Td {
        let mut draw = Draw::new(5_000 + seed);
        let n = 1 + draw.index(3);
        let gamma = 0.5 + 0.45 * draw.number();
        let phi = features(&mut draw, seed.is_multiple_of(4));
        let processes: Vec<Process> = (0..n).map(|_| Process::with_features(&mut draw, phi.clone(), gamma)).collect();
        let nu = processes.iter().map(|process| process.nu).fold(f64::INFINITY, f64::min);
        let (kinds, moments) = processes.into_iter().map(|process| (process.system, process.moments)).unzip();
        let systems = Systems::new(kinds, (0..n as u32).collect(), vec![1.0 / n as f64; n]);
        let root = systems.root().unwrap();
        let (mut local_roots_sq, mut distance_sq) = (0.0, 0.0);
        for k in 0..n {
            let local = systems.local_root(k).unwrap();
            local_roots_sq += linalg::norm_sq(&local) / n as f64;
            distance_sq += linalg::distance_sq(&local, &root) / n as f64;
        }
        let constants = TdConstants::new(gamma, nu).unwrap();
        let root_sq = linalg::norm_sq(&root);
        Td { systems, moments, federation: TdFederation { constants, agents: n as f64, local_roots_sq, distance_sq, root_sq }, root }
    }

    #[test]
    fn lemma_3_1_holds_and_is_this_loose() {
        let mut loose: Vec<Looseness> = (0..10).map(|_| Looseness::default()).collect();
        for seed in 0..CASES {
            let Td { systems, moments, federation, .. } = problem(seed);
            let known = Constants::new(&systems, Some(&moments)).unwrap();
            let sharp = FedLsaConstants::new(&systems, &moments).unwrap();
            let (td, plain, controlled) = (federation.constants, federation.fedlsa().unwrap(), federation.scafflsa().unwrap());
            let here = Contraction::up_to(&systems, &moments, td.eta_inf).unwrap();
            let pairs = [
                (known.c_a, td.c_a),
                (known.sigma_a.unwrap(), td.sigma_a),
                (known.sigma_eps.unwrap(), plain.sigma_eps),
                (known.v_heter.unwrap(), plain.v_heter),
                (sharp.drift, plain.drift),
                (known.l.unwrap(), td.l_sharp),
                (1.0 / here.a, 1.0 / td.a),
                (known.square_norm.unwrap(), controlled.square_norm),
                (known.sigma_omega.unwrap(), controlled.sigma_omega),
                (known.delta_heter, controlled.delta_heter),
            ];
            for (k, (measured, bound)) in pairs.into_iter().enumerate() {
                loose[k].see(measured, bound, &format!("constant {k}, seed {seed}"));
            }
        }
        let documented = [
            ("C_A", 4.7),
            ("Sigma_A", 42.7),
            ("sigma_eps", 1413.0),
            ("v_heter", 54.5),
            ("drift", 75.6),
            ("L", 6.5),
            ("1/a", 3.17),
            ("s", 20.0),
            ("sigma_omega", 819.0),
            ("Delta_heter", 152.0),
        ];
        for ((name, median), loose) in documented.into_iter().zip(loose) {
            println!("{}", loose.about(&format!("Lemma 3.1, {name}"), median));
        }
    }

    #[test]
    fn its_corollaries_hold_and_are_this_loose() {
        let (mut bound, mut plain, mut controlled) = (Looseness::default(), Looseness::default(), Looseness::default());
        let mut refused = 0;
        for seed in 0..CASES {
            let Td { systems, moments, federation, root } = problem(seed);
            let mut draw = Draw::new(9_000 + seed);
            let theta_0 = draw.vector(2);
            let start = linalg::distance_sq(&theta_0, &root).sqrt();
            // Corollary 4.3, with the bias of the theorem on this problem.
            let setting =
                RoundSetting::new(federation.constants.eta_inf * (0.55 + 0.45 * draw.number()), 1 + draw.index(8) as u64).unwrap();
            let t = 1 + draw.index(300) as u64;
            let exact = theorem_a5(&systems, &moments, &setting, &theta_0, t).unwrap();
            let sharp = Contraction::up_to(&systems, &moments, setting.step_size).unwrap();
            let scale = (2.0 * setting.step_size * FedLsaConstants::new(&systems, &moments).unwrap().sigma_a
                / (sharp.a * federation.agents))
                .sqrt();
            let largest = if scale > 0.0 { exact.terms[2].value / scale } else { 0.0 };
            let general = federation.corollary_4_3(&setting, t, largest, start).unwrap();
            assert!(general.holds(), "{general:?}");
            let theory = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
            let path: Vec<f64> = theory.mean().mean(&root, &[t])[0].iter().zip(&root).map(|(x, r)| x - r).collect();
            let rms = theory.curve(&theta_0, &[t]).unwrap()[0].mse_around(&path).max(0.0).sqrt();
            bound.see(rms, general.value(), &format!("seed {seed}"));
            // Corollaries 4.6 and 5.5.
            let target = start * start * 10f64.powf(-1.0 + draw.number());
            let choices = (federation.corollary_4_6(start, target), federation.corollary_5_5(start, target));
            let (Ok(choice), Ok(other)) = choices else {
                refused += 1;
                continue;
            };
            let theory = FedLsaMse::new(&systems, &moments, &choice.round_setting().unwrap(), 1).unwrap();
            plain.see(theory.curve(&theta_0, &[choice.rounds()]).unwrap()[0].mse(), target, &format!("{seed}, {choice:?}"));
            assert!(choice.holds() && other.holds());
            let setting = other.round_setting().unwrap();
            let theory = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
            controlled.see(theory.curve(&theta_0, &[other.rounds()]).unwrap()[0].mse(), target, &format!("{seed}, {other:?}"));
        }
        // Nearly parallel features need more samples than can be counted.
        assert!(refused < CASES / 5, "{refused}");
        println!("{}", bound.about("Corollary 4.3", 52.5));
        println!("{}", plain.about("Corollary 4.6, target over the error reached", 3.15e5));
        println!("{}", controlled.about("Corollary 5.5, target over the error reached", 1.79e6));
    }

    #[test]
    fn numbers_below_zero_are_refused() {
        let federation = TdFederation {
            constants: TdConstants::new(0.5, 0.1).unwrap(),
            agents: 2.0,
            local_roots_sq: 1.0,
            distance_sq: -1.0,
            root_sq: 1.0,
        };
        assert_eq!(federation.corollary_4_6(1.0, 0.1).unwrap_err().key, "distance");
        assert_eq!(TdFederation { agents: 0.0, ..federation }.scafflsa().unwrap_err().key, "agents");
    }
}
