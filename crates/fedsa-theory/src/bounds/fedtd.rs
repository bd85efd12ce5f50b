//! Theorems 4.2 to 4.4 of \[T\]: federated TD learning over channels.
//!
//! The proofs name the theorems' universal constants: bounds use them, [shapes](FedTdBound::theorem_4_2_shape) omit them. All agents
//! learn on one Markov reward process with features `||phi|| <= 1` and take one step a round.

use super::{Assumption, Bound, BoundShape, Term};
use fedsa::error::{Result, require};

/// The problem's constants in the theorems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FedTdBound {
    /// omega, the smallest eigenvalue of the feature covariance.
    pub omega: f64,
    /// gamma.
    pub gamma: f64,
    /// N.
    pub agents: f64,
    /// `sigma = max(1, max |r|, ||theta*||, ||theta_0 - theta*||)`.
    pub sigma: f64,
    /// `delta_0 = ||theta_0 - theta*||`.
    pub start: f64,
    /// tau, the mixing time of the operator at the level `alpha^2` (Definition 4.2.1); 1 for i.i.d. samples.
    pub tau: f64,
}

/// The channel of Theorem 4.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Erasures {
    /// p, the probability that a message arrives.
    pub success: f64,
    /// zeta, the quantiser's variance constant; 0 without one.
    pub zeta: f64,
}

/// The channel of Theorem 4.3.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverTheAirMoments {
    /// m_h, the mean gain.
    pub mean: f64,
    /// `m_h^2 + s_h^2`, the mean square gain.
    pub square: f64,
    /// The standard deviation of each component of the receiver's noise in N v.
    pub receiver_noise: f64,
    /// d.
    pub dim: usize,
}

/// `C_0, C_2, C_3` in the proof of Theorem 4.2.
const QUANTISED: [f64; 3] = [6446.0, 5162.0, 61.0];
/// `C_0, C_2, C_3, C_4` in the proof of Theorem 4.3.
const FADING: [f64; 4] = [878.0, 1346.0, 61.0, 55.0];
/// The factors of alpha/N and alpha^3 in (B.144), and C_0. The proof of Theorem 4.4 asks for a C_0 of 112 in (B.135), and for `alpha <=
/// 1 / (132 (2 tau_max + tau))` in (B.142). The second condition does not follow from the first; both follow from 264.
const DELAYED: [f64; 3] = [264.0, 352.0, 15.0];

impl FedTdBound {
    /// `omega (1 - gamma)`.
    fn pull(&self) -> f64 {
        self.omega * (1.0 - self.gamma)
    }

    fn check(&self, alpha: f64) -> Result<()> {
        require(alpha > 0.0 && alpha.is_finite(), "step_size", alpha, "a positive number")?;
        require(self.omega > 0.0 && self.omega.is_finite(), "omega", self.omega, "a positive number")?;
        require((0.0..1.0).contains(&self.gamma), "gamma", self.gamma, "in [0, 1)")?;
        require(self.agents >= 1.0 && self.agents.is_finite(), "agents", self.agents, "at least 1")?;
        require(self.tau >= 1.0 && self.tau.is_finite(), "tau", self.tau, "at least 1")
    }

    /// Theorem 4.2 (QFedTD) without its constants: the rate `alpha omega (1 - gamma) p`, and a floor of
    /// `tau sigma^2 zeta' alpha / (omega (1 - gamma) N)` and `tau sigma^2 alpha^3 / (omega (1 - gamma))`, `zeta' = max(1, zeta)`.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn theorem_4_2_shape(&self, alpha: f64, link: &Erasures) -> Result<BoundShape> {
        self.check(alpha)?;
        link.check()?;
        let noise = self.tau * self.sigma.powi(2) / self.pull();
        let parts = [("samples and quantiser", noise * alpha * link.zeta.max(1.0) / self.agents), ("mixing", noise * alpha.powi(3))];
        Ok(shape("[T] Theorem 4.2", alpha * self.pull() * link.success, &parts))
    }

    /// Theorem 4.2 after T rounds, with the constants of its proof: `C_0 = 6446, C_2 = 5162, C_3 = 61`.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn theorem_4_2(&self, alpha: f64, link: &Erasures, rounds: u64) -> Result<Bound> {
        let BoundShape { rate, floor, .. } = self.theorem_4_2_shape(alpha, link)?;
        let [c_0, c_2, c_3] = QUANTISED;
        let begin = 4.0 * self.start.powi(2) + 2.0 * link.success * self.sigma.powi(2);
        let terms = [("start", left(rate, rounds) * begin), (floor[0].name, c_2 * floor[0].value), (floor[1].name, c_3 * floor[1].value)];
        let limit = self.pull() / (c_0 * self.tau * link.zeta.max(1.0));
        Ok(Bound::new("[T] Theorem 4.2", SQUARE, &terms, self.assumptions(alpha, limit, rounds, 2.0 * self.tau)))
    }

    /// Theorem 4.3 (OAC-FedTD) without its constants: the rate `m_h alpha omega (1 - gamma)`, and a floor of `p_h tau sigma^2` times
    /// `alpha / N` and `alpha^3`, and `tau s_w^2 d alpha / N^2`, over `m_h omega (1 - gamma)`, `p_h = max(1, m_h^2 + s_h^2)`.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn theorem_4_3_shape(&self, alpha: f64, link: &OverTheAirMoments) -> Result<BoundShape> {
        self.check(alpha)?;
        link.check()?;
        let each = self.tau / (link.mean * self.pull());
        let (power, noise) = (link.square.max(1.0) * self.sigma.powi(2), self.receivers(link));
        let parts =
            [("samples", each * power * alpha / self.agents), ("mixing", each * power * alpha.powi(3)), ("receiver", each * noise * alpha)];
        Ok(shape("[T] Theorem 4.3", alpha * self.pull() * link.mean, &parts))
    }

    /// `s_w^2 d / N^2`.
    fn receivers(&self, link: &OverTheAirMoments) -> f64 {
        (link.receiver_noise / self.agents).powi(2) * link.dim as f64
    }

    /// Theorem 4.3 after T rounds, with the constants of its proof: `C_0 = 878, C_2 = 1346, C_3 = 61, C_4 = 55`.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn theorem_4_3(&self, alpha: f64, link: &OverTheAirMoments, rounds: u64) -> Result<Bound> {
        let BoundShape { rate, floor, .. } = self.theorem_4_3_shape(alpha, link)?;
        let [c_0, c_2, c_3, c_4] = FADING;
        let begin = 4.0 * self.start.powi(2) + 2.0 * self.sigma.powi(2) + 2.0 * self.receivers(link);
        let terms = [
            ("start", left(rate, rounds) * begin),
            (floor[0].name, c_2 * floor[0].value),
            (floor[1].name, c_3 * floor[1].value),
            (floor[2].name, c_4 * floor[2].value),
        ];
        let limit = link.mean * self.pull() / (c_0 * self.tau * link.square.max(1.0));
        Ok(Bound::new("[T] Theorem 4.3", SQUARE, &terms, self.assumptions(alpha, limit, rounds, 2.0 * self.tau)))
    }

    /// Theorem 4.4 (AsyncFedTD) without its constants: the rate `alpha omega (1 - gamma) / (2 (tau + tau_max))`, and a floor of `(tau +
    /// tau_max) sigma^2 / (2 omega (1 - gamma))` times `alpha / N` and `alpha^3`. This floor grows with the delay; measured floors at
    /// small steps do not.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn theorem_4_4_shape(&self, alpha: f64, tau_max: u64) -> Result<BoundShape> {
        self.check(alpha)?;
        let wait = self.tau + tau_max as f64;
        let each = wait * self.sigma.powi(2) / (2.0 * self.pull());
        let parts = [("samples", each * alpha / self.agents), ("mixing", each * alpha.powi(3))];
        Ok(shape("[T] Theorem 4.4", alpha * self.pull() / (2.0 * wait), &parts))
    }

    /// Theorem 4.4 after T rounds with delays of at most `tau_max` rounds, with the constants of its proof, (B.144).
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn theorem_4_4(&self, alpha: f64, tau_max: u64, rounds: u64) -> Result<Bound> {
        let BoundShape { rate, floor, .. } = self.theorem_4_4_shape(alpha, tau_max)?;
        let [c_0, c_2, c_3] = DELAYED;
        let wait = self.tau + tau_max as f64;
        let terms = [
            ("start", (-rate * rounds as f64).exp() * 6.0 * self.sigma.powi(2)),
            (floor[0].name, 2.0 * c_2 * floor[0].value),
            // (B.144) has no factor tau + tau_max here.
            (floor[1].name, 2.0 * c_3 * floor[1].value / wait),
        ];
        let least = 2.0 * self.tau + tau_max as f64;
        Ok(Bound::new("[T] Theorem 4.4", SQUARE, &terms, self.assumptions(alpha, self.pull() / (c_0 * wait), rounds, least)))
    }

    fn assumptions(&self, alpha: f64, limit: f64, rounds: u64, least: f64) -> Vec<Assumption> {
        vec![
            Assumption::positive("features are independent", "omega", self.omega),
            Assumption::at_most("alpha is small enough", "alpha", alpha, limit),
            Assumption::at_most("T is large enough", "the least T", least, rounds as f64),
            Assumption::at_most("sigma >= max(1, delta_0)", "max(1, delta_0)", self.start.max(1.0), self.sigma),
        ]
    }
}

impl Erasures {
    fn check(&self) -> Result<()> {
        require(self.success > 0.0 && self.success <= 1.0, "success", self.success, "in (0, 1]")?;
        require(self.zeta >= 0.0 && self.zeta.is_finite(), "zeta", self.zeta, "a number of at least 0")
    }
}

impl OverTheAirMoments {
    fn check(&self) -> Result<()> {
        require(self.mean > 0.0 && self.mean.is_finite(), "mean", self.mean, "a positive number")?;
        let is_possible = self.square >= self.mean * self.mean && self.square.is_finite();
        require(is_possible, "square", self.square, "at least the square of the mean")?;
        require(
            self.receiver_noise >= 0.0 && self.receiver_noise.is_finite(),
            "receiver_noise",
            self.receiver_noise,
            "a number of at least 0",
        )
    }
}

/// The quantity that the theorems bound.
const SQUARE: &str = "E ||theta_T - theta*||^2";

/// `(1 - rate)^T`.
fn left(rate: f64, rounds: u64) -> f64 {
    (rounds as f64 * (-rate).ln_1p()).exp()
}

fn shape(statement: &'static str, rate: f64, parts: &[(&'static str, f64)]) -> BoundShape {
    let floor = parts.iter().map(|(name, value)| Term { name, value: *value }).collect();
    BoundShape { statement, rate, floor, assumptions: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RoundSetting;
    use crate::bounds::testing::{CASES, Looseness, Process, ShapeFit};
    use crate::bounds::{CorollaryChoice, check_target};
    use crate::exact_mse::{ArrivalLaw, DelayedMse, ExactMse, FedLsaMse};
    use crate::markov::one_agent::OneAgent;
    use crate::testing::Draw;
    use fedsa::linalg;
    use fedsa::sampling::ChainStart;
    use fedsa::uplink::stage::delay::Before;

    impl FedTdBound {
        /// Corollary 4.1: `alpha = log(N T) / (omega (1 - gamma) p T)`, where `T >= 2 C_0 N tau zeta' log(N T) / (omega^2 (1 - gamma)^2 p)`,
        /// and the smallest such T with which Theorem 4.2 is at most eps^2, about
        /// `zeta' tau sigma^2 log(N T) / (p omega^2 (1 - gamma)^2 N eps^2)`. It takes tau as given, although its level is `alpha^2`.
        ///
        /// # Errors
        /// When the target is not positive, or a number is out of range.
        fn corollary_4_1(&self, link: &Erasures, target: f64) -> Result<CorollaryChoice> {
            check_target(target)?;
            self.check(1.0)?;
            link.check()?;
            let alpha = |t: f64| (self.agents * t).ln() / (self.pull() * link.success * t);
            let reaches = |t: f64| -> Result<bool> {
                Ok(t >= self.least_rounds(link, t).max(2.0 * self.tau) && self.theorem_4_2(alpha(t), link, t as u64)?.value() <= target)
            };
            // log(N t) / t falls from t = 3 on, so that what holds at T holds for all larger ones.
            let mut high = 4.0;
            while high < 1e16 && !reaches(high)? {
                high *= 2.0;
            }
            let mut low = high / 2.0;
            while high - low > 1.0 && high < 1e16 {
                let middle = (0.5 * (low + high)).floor();
                *(if reaches(middle)? { &mut high } else { &mut low }) = middle;
            }
            let bound = self.theorem_4_2(alpha(high), link, high as u64)?;
            let mut assumptions = bound.assumptions;
            assumptions.push(Assumption::at_most("T is large enough (4.9)", "the least T", self.least_rounds(link, high), high));
            CorollaryChoice::fixed("[T] Corollary 4.1", target, alpha(high), 1, high, assumptions)
        }

        /// The right-hand side of the condition on T in (4.9).
        fn least_rounds(&self, link: &Erasures, t: f64) -> f64 {
            let wait = 2.0 * QUANTISED[0] * self.agents * self.tau * link.zeta.max(1.0);
            wait * (self.agents * t).ln() / (self.pull().powi(2) * link.success)
        }
    }

    /// The constants for a process started at `theta_0`.
    fn view(process: &Process, agents: usize, tau: f64, theta_0: &[f64]) -> FedTdBound {
        let root = linalg::solve(&process.system.a, &process.system.b).unwrap();
        let start = linalg::distance_sq(theta_0, &root).sqrt();
        let sigma = linalg::norm_sq(&root).sqrt().max(start).max(1.0);
        FedTdBound { omega: process.nu, gamma: process.gamma, agents: agents as f64, sigma, start, tau }
    }

    #[test]
    fn theorems_4_2_to_4_4_hold_and_are_this_loose() {
        let mut loose = [Looseness::default(), Looseness::default(), Looseness::default(), Looseness::default()];
        for seed in 0..CASES {
            let mut draw = Draw::new(12_000 + seed);
            let process = Process::new(&mut draw, seed % 4 == 0);
            let n = 1 + draw.index(9);
            let (systems, moments) = process.federation(n);
            let theta_0 = draw.vector(2);
            let td = view(&process, n, 1.0, &theta_0);
            let share = |draw: &mut Draw| 10f64.powf(-0.5 + 0.5 * draw.number());
            // Theorem 4.2, i.i.d. samples and no quantiser: then the error is exact.
            let link = Erasures { success: 0.55 + 0.45 * draw.number(), zeta: 0.0 };
            let alpha = share(&mut draw) * td.pull() / QUANTISED[0];
            let t = 2 + (3.0 * (1.0 + draw.number()) / (alpha * td.pull())) as u64;
            let bound = td.theorem_4_2(alpha, &link, t).unwrap();
            let arrivals = ArrivalLaw::by_factors(link.success, link.success, 0.0, n);
            let exact = |alpha: f64, arrivals: &ArrivalLaw, t: u64| {
                let setting = RoundSetting::new(alpha, 1).unwrap();
                FedLsaMse::arriving(&systems, Some(&moments), &setting, 1, arrivals).unwrap().curve(&theta_0, &[t]).unwrap()[0].mse()
            };
            assert!(bound.holds(), "{bound:?}");
            loose[0].see(exact(alpha, &arrivals, t), bound.value(), &format!("seed {seed}"));
            // Theorem 4.3.
            let (mean, std) = (0.6 + 0.4 * draw.number(), 0.3 * (1.0 + draw.number()));
            let link = OverTheAirMoments { mean, square: mean * mean + std * std, receiver_noise: 1.0 + draw.number(), dim: 2 };
            let alpha = share(&mut draw) * mean * td.pull() / (FADING[0] * link.square.max(1.0));
            let bound = td.theorem_4_3(alpha, &link, t).unwrap();
            let arrivals = ArrivalLaw::by_factors(mean, link.square, link.receiver_noise, n);
            assert!(bound.holds(), "{bound:?}");
            loose[1].see(exact(alpha, &arrivals, t), bound.value(), &format!("seed {seed}"));
            // Theorem 4.4, with a constant delay.
            let tau_max = 1 + draw.index(6) as u64;
            let alpha = share(&mut draw) * td.pull() / (DELAYED[0] * (1.0 + tau_max as f64));
            let t = 2 + tau_max + draw.index(3000) as u64;
            let bound = td.theorem_4_4(alpha, tau_max, t).unwrap();
            assert!(bound.holds(), "{bound:?}");
            let setting = RoundSetting::new(alpha, 1).unwrap();
            let delay = (tau_max as usize, Before::First);
            let delayed = DelayedMse::new(&systems, Some(&moments), &setting, 1, &ArrivalLaw::clear(), delay).unwrap();
            loose[2].see(delayed.curve(&theta_0, &[t]).unwrap()[0].mse(), bound.value(), &format!("seed {seed}"));
            // Theorem 4.2 with a quantiser that sends x / q with probability q and otherwise 0. It is unbiased with the variance (1/q -
            // 1) ||x||^2, so the error is exact.
            let link = Erasures { success: 0.55 + 0.45 * draw.number(), zeta: 10f64.powf(2.0 * draw.number() - 1.0) };
            let alpha = share(&mut draw) * td.pull() / (QUANTISED[0] * link.zeta.max(1.0));
            let t = 2 + (3.0 * (1.0 + draw.number()) / (alpha * td.pull())) as u64;
            let bound = td.theorem_4_2(alpha, &link, t).unwrap();
            let arrivals = ArrivalLaw::by_factors(link.success, link.success * (1.0 + link.zeta), 0.0, n);
            assert!(bound.holds(), "{bound:?}");
            loose[3].see(exact(alpha, &arrivals, t), bound.value(), &format!("seed {seed}"));
        }
        let [clear, fading, delayed, quantised] = loose;
        println!("{}", clear.about("Theorem 4.2", 252.0));
        println!("{}", quantised.about("Theorem 4.2 with a quantiser", 252.0));
        println!("{}", fading.about("Theorem 4.3", 15_800.0));
        println!("{}", delayed.about("Theorem 4.4", 6.49));
    }

    /// One agent along its own chain, where the mean-square error is exact.
    #[test]
    fn theorem_4_2_holds_along_a_chain() {
        let (mut loose, mut floors) = (Looseness::default(), 0);
        for seed in 0..CASES / 4 {
            let mut draw = Draw::new(13_000 + seed);
            let process = Process::new(&mut draw, seed % 4 == 0);
            let theta_0 = draw.vector(2);
            // tau depends on the step. Start from the step for i.i.d. samples, and shrink it until it is small enough.
            let mut alpha = process.nu * (1.0 - process.gamma) / QUANTISED[0];
            let clear = Erasures { success: 1.0, zeta: 0.0 };
            let (td, bound) = loop {
                let td = view(&process, 1, process.mixing_time(alpha * alpha) as f64, &theta_0);
                let bound = td.theorem_4_2(alpha, &clear, 4000).unwrap();
                if bound.holds() {
                    break (td, bound);
                }
                alpha *= 0.7;
            };
            assert!(td.tau > 1.0);
            let root = linalg::solve(&process.system.a, &process.system.b).unwrap();
            let agent = process.markov(&root);
            let offset: Vec<f64> = theta_0.iter().zip(&root).map(|(x, r)| x - r).collect();
            let theory = OneAgent::new(&agent, alpha, 1).unwrap();
            let mse = theory.curve(&offset, ChainStart::Stationary, &[4000]).unwrap()[0].mse;
            loose.see(mse, bound.value(), &format!("seed {seed}"));
            // Steps are so small that the linear system of a floor may be too badly conditioned.
            if let Ok(floor) = theory.floor() {
                let settled = td.theorem_4_2(alpha, &clear, u64::MAX).unwrap();
                loose.see(floor.mse, settled.value(), &format!("seed {seed}, settled"));
                floors += 1;
            }
        }
        assert!(floors > CASES / 8, "{floors}");
        println!("{}", loose.about("Theorem 4.2 along chains", 16.5));
    }

    #[test]
    fn floors_and_rates_have_the_slopes_of_the_shapes() {
        let mut draw = Draw::new(14_000);
        let process = Process::new(&mut draw, false);
        let theta_0 = vec![1.0, -1.0];
        let (mut by_alpha, mut by_agents, mut by_success, mut rates, mut by_delay) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let floor = |alpha: f64, n: usize, p: f64| {
            let (systems, moments) = process.federation(n);
            let setting = RoundSetting::new(alpha, 1).unwrap();
            let theory = FedLsaMse::arriving(&systems, Some(&moments), &setting, 1, &ArrivalLaw::by_factors(p, p, 0.0, n)).unwrap();
            (theory.floor().unwrap().mse(), -theory.radius().unwrap().ln())
        };
        let shape = |alpha: f64, n: usize, p: f64| {
            view(&process, n, 1.0, &theta_0).theorem_4_2_shape(alpha, &Erasures { success: p, zeta: 0.0 }).unwrap()
        };
        for k in 0..4 {
            let alpha = 1e-4 * 2f64.powi(k);
            by_alpha.push((shape(alpha, 5, 0.7).leading(), floor(alpha, 5, 0.7).0));
            rates.push((shape(alpha, 5, 0.7).rate, floor(alpha, 5, 0.7).1));
            let n = 1 << k;
            by_agents.push((shape(1e-4, n, 0.7).leading(), floor(1e-4, n, 0.7).0));
            let p = 0.2 + 0.2 * f64::from(k);
            by_success.push((shape(1e-4, 5, p).rate, floor(1e-4, 5, p).1));
            let tau = 1 + k as usize;
            let (systems, moments) = process.federation(5);
            let setting = RoundSetting::new(1e-4, 1).unwrap();
            let delay = (tau, Before::First);
            let delayed = DelayedMse::new(&systems, Some(&moments), &setting, 1, &ArrivalLaw::clear(), delay).unwrap();
            let bound = view(&process, 5, 1.0, &theta_0).theorem_4_4_shape(1e-4, tau as u64).unwrap();
            by_delay.push((bound.leading(), delayed.floor().unwrap().mse()));
        }
        for points in [&by_alpha, &by_agents, &by_success, &rates] {
            let fit = ShapeFit::new(points).unwrap();
            assert!((fit.slope - 1.0).abs() < 0.02, "{fit:?} {points:?}");
        }
        // Where the receiver's noise is all, the floor falls as 1/N^2 and grows with 1/m_h and the step.
        let receiver = |alpha: f64, n: usize, mean: f64| {
            let link = OverTheAirMoments { mean, square: mean * mean, receiver_noise: 1e4, dim: 2 };
            let (systems, moments) = process.federation(n);
            let setting = RoundSetting::new(alpha, 1).unwrap();
            let arrivals = ArrivalLaw::by_factors(mean, link.square, link.receiver_noise, n);
            let exact = FedLsaMse::arriving(&systems, Some(&moments), &setting, 1, &arrivals).unwrap().floor().unwrap().mse();
            (view(&process, n, 1.0, &theta_0).theorem_4_3_shape(alpha, &link).unwrap().floor[2].value, exact)
        };
        for points in [
            [1, 3, 9].map(|n| receiver(1e-4, n, 0.8)),
            [0.5, 1.0, 2.0].map(|mean| receiver(1e-4, 3, mean)),
            [1e-5, 1e-4, 1e-3].map(|alpha| receiver(alpha, 3, 0.8)),
        ] {
            let fit = ShapeFit::new(&points).unwrap();
            assert!((fit.slope - 1.0).abs() < 0.02 && fit.constant < 1.0, "{fit:?} {points:?}");
        }
        // The floor of Theorem 4.4 grows with the delay, the exact one does not.
        let fit = ShapeFit::new(&by_delay).unwrap();
        assert!(fit.slope.abs() < 0.01, "{fit:?}");
    }

    #[test]
    fn corollary_4_1_reaches_its_targets() {
        let (mut loose, mut refused) = (Looseness::default(), 0);
        for seed in 0..CASES {
            let mut draw = Draw::new(15_000 + seed);
            let process = Process::new(&mut draw, seed % 4 == 0);
            let n = 1 + draw.index(9);
            let (systems, moments) = process.federation(n);
            let theta_0 = draw.vector(2);
            let td = view(&process, n, 1.0, &theta_0);
            let link = Erasures { success: 0.55 + 0.45 * draw.number(), zeta: 0.0 };
            let target = 10f64.powf(-2.0 + draw.number()) * td.start.powi(2);
            // Nearly parallel features take more samples than can be counted.
            let Ok(choice) = td.corollary_4_1(&link, target) else {
                refused += 1;
                continue;
            };
            assert!(choice.holds(), "{choice:?}");
            let setting = choice.round_setting().unwrap();
            let arrivals = ArrivalLaw::by_factors(link.success, link.success, 0.0, n);
            let theory = FedLsaMse::arriving(&systems, Some(&moments), &setting, 1, &arrivals).unwrap();
            loose.see(theory.curve(&theta_0, &[choice.rounds()]).unwrap()[0].mse(), target, &format!("seed {seed}"));
            // A few rounds less are not enough.
            let fewer = (0.999 * choice.rounds).floor();
            let alpha = (td.agents * fewer).ln() / (td.pull() * link.success * fewer);
            let before = td.theorem_4_2(alpha, &link, fewer as u64).unwrap();
            assert!(before.value() > target || fewer < td.least_rounds(&link, fewer), "{before:?}");
        }
        assert!(refused < CASES / 4, "{refused}");
        println!("{}", loose.about("Corollary 4.1, target over the error reached", 2.74e7));
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let td = FedTdBound { omega: 0.1, gamma: 0.5, agents: 4.0, sigma: 2.0, start: 1.0, tau: 1.0 };
        let clear = Erasures { success: 1.0, zeta: 0.0 };
        assert!(td.theorem_4_2(1e-6, &clear, 100).unwrap().holds());
        assert!(!td.theorem_4_2(0.1, &clear, 100).unwrap().holds());
        assert!(!td.theorem_4_4(1e-6, 60, 10).unwrap().holds());
        assert_eq!(td.theorem_4_2(0.0, &clear, 1).unwrap_err().key, "step_size");
        assert_eq!(td.theorem_4_2(0.1, &Erasures { success: 0.0, zeta: 0.0 }, 1).unwrap_err().key, "success");
        assert_eq!(td.corollary_4_1(&clear, -1.0).unwrap_err().key, "target");
        let air = OverTheAirMoments { mean: 1.0, square: 0.5, receiver_noise: 0.0, dim: 2 };
        assert_eq!(td.theorem_4_3(0.1, &air, 1).unwrap_err().key, "square");
    }
}
