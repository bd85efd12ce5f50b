//! Noise of which every agent adds a share, on the grid of a secure sum.
//!
//! Nobody knows all shares. `honest` agents, h of them, are counted on: their shares alone are the noise that is claimed. So each adds
//! `N_Z(0, s^2 / h)`, and a sum over m agents has the noise variance `s^2 m / h`. A sum of discrete Gaussian numbers is not discrete
//! Gaussian, but so close to it that shares of at least [`LEAST_DEVIATION`] steps leave the claim unchanged (Kairouz, Liu and Steinke 2021,
//! Proposition 14).

use super::discrete_gaussian::DiscreteGaussian;
use crate::error::{Error, Result, require};

/// The least standard deviation of a share in steps of the grid. [`NoiseShares::gap`] is then below 1e-16 for any number of agents.
pub const LEAST_DEVIATION: f64 = 2.0;

/// The probability that noise leaves the range that [`NoiseShares::tail`] states, in a component of a round of a run.
const TAIL: f64 = 1e-9;

/// The noise of the sums of one release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseShares {
    /// `s_g`: the standard deviation that is claimed, in steps of the grid.
    pub claimed: f64,
    /// h: the number of agents whose shares make it up.
    pub honest: u32,
}

impl NoiseShares {
    /// The shares with which a release of this sensitivity in steps ([`on_grid`](super::sensitivity::on_grid)) costs `rho`:
    /// `s_g = Delta_g / sqrt(2 rho)`.
    ///
    /// # Errors
    /// When a number is not positive and finite, no agent is honest, or a share's standard deviation is below [`LEAST_DEVIATION`].
    pub fn new(sensitivity: f64, rho: f64, honest: u32) -> Result<Self> {
        require(sensitivity > 0.0 && sensitivity.is_finite(), "sensitivity", sensitivity, "a positive number")?;
        require(rho > 0.0 && rho.is_finite(), "rho", rho, "a positive number")?;
        require(honest >= 1, "honest", honest, "at least 1 agent")?;
        let shares = Self { claimed: sensitivity / (2.0 * rho).sqrt(), honest };
        let share = shares.share_variance().sqrt();
        if share < LEAST_DEVIATION {
            let bits = (LEAST_DEVIATION / share).log2().ceil();
            let what = format!("the noise of an agent has a standard deviation of {share:.3} steps of the grid");
            let help = format!("at least {LEAST_DEVIATION} steps: `bits` larger by {bits}, or a smaller `epsilon`");
            return Err(Error::new("bits", what, help));
        }
        Ok(shares)
    }

    /// `s_g^2 / h`, in squared steps of the grid.
    pub fn share_variance(&self) -> f64 {
        self.claimed * self.claimed / f64::from(self.honest)
    }

    /// The law of an agent's share, in steps of the grid, independent in each component.
    ///
    /// # Errors
    /// When it is too large for an `i64`.
    pub fn share(&self) -> Result<DiscreteGaussian> {
        DiscreteGaussian::new(self.share_variance())
    }

    /// `s_g^2 m / h`: the variance of the noise in a sum over m agents, in squared steps of the grid.
    pub fn variance(&self, agents: usize) -> f64 {
        self.share_variance() * agents as f64
    }

    /// t: the noise of a sum over m agents stays within `-t .. t` in all of n components and T rounds, but for a probability of about 1e-9:
    /// `s_g sqrt(2 (m/h) ln(2 n T / 1e-9))`.
    pub fn tail(&self, agents: usize, components: usize, rounds: u64) -> f64 {
        let all = 2.0 * components as f64 * rounds as f64 / TAIL;
        (2.0 * self.variance(agents) * all.ln()).sqrt()
    }

    /// tau of m shares ([`gap`]).
    pub fn gap(&self, agents: usize) -> f64 {
        gap(self.share_variance(), agents)
    }
}

/// `tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2 s^2 k/(k+1))`: how far the sum of m discrete Gaussian numbers of variance `s^2` is from a discrete
/// Gaussian one. A release of n components then costs `(Delta/s + sqrt(n) tau)^2 / 2` instead of `(Delta/s)^2 / 2`.
pub fn gap(share_variance: f64, agents: usize) -> f64 {
    let rate = -2.0 * std::f64::consts::PI.powi(2) * share_variance;
    10.0 * (1..agents).map(|k| (rate * k as f64 / (k as f64 + 1.0)).exp()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::accounting::{rho, rho_of};
    use crate::privacy::sensitivity::{Relation, clipped, on_grid};

    #[test]
    fn the_gap_is_negligible_from_two_steps_on() {
        assert_eq!(format!("{:.8}", gap(1.0, 10)), "0.00054352");
        for agents in [2, 10, 100, 1_000_000] {
            assert!(gap(LEAST_DEVIATION * LEAST_DEVIATION, agents) < 1e-16, "{agents}");
        }
        assert_eq!(gap(1.0, 1), 0.0);
    }

    #[test]
    fn shares_of_honest_agents_are_the_claimed_noise() {
        let shares = NoiseShares::new(600.0, 0.02, 80).unwrap();
        assert!((rho_of(600.0, shares.claimed).unwrap() - 0.02).abs() < 1e-15);
        assert!((shares.variance(80) / shares.claimed.powi(2) - 1.0).abs() < 1e-15);
        assert!((shares.variance(100) / shares.variance(80) - 1.25).abs() < 1e-15);
        assert!(shares.share().is_ok());
    }

    #[test]
    fn shares_of_less_than_two_steps_are_refused_with_the_bits_that_help() {
        let sensitivity = |bits: i32| on_grid(0.01, bits, 1, Relation::Removed);
        let e = NoiseShares::new(sensitivity(10), 0.5, 100).unwrap_err();
        assert!(e.key == "bits" && e.what.contains("1.074") && e.help.contains("larger by 1"), "{e:?}");
        let finer = NoiseShares::new(sensitivity(11), 0.5, 100).unwrap();
        assert!(finer.share_variance().sqrt() >= 2.0);
        for (sensitivity, rho, honest, key) in [(0.0, 1.0, 1, "sensitivity"), (1.0, f64::INFINITY, 1, "rho"), (1e3, 1.0, 0, "honest")] {
            assert_eq!(NoiseShares::new(sensitivity, rho, honest).unwrap_err().key, key);
        }
    }

    #[test]
    fn noise_stays_within_its_tail() {
        let shares = NoiseShares::new(100.0, 0.5, 4).unwrap();
        let (agents, components, rounds) = (5, 10, 20);
        let tail = shares.tail(agents, components, rounds);
        let all = 2.0 * (components as u64 * rounds) as f64;
        // A Gaussian number of this variance exceeds t with at most the probability exp(-t^2 / (2 s^2)) on each side.
        assert!(all * (-tail * tail / (2.0 * shares.variance(agents))).exp() <= 1.000_001e-9);
        let share = shares.share().unwrap();
        let mut random = crate::random::stream(4, crate::random::Purpose::Fresh, 0, 0);
        let sums: Vec<i64> = (0..20_000).map(|_| (0..agents).map(|_| share.sample(&mut random)).sum()).collect();
        assert!(sums.iter().all(|sum| (*sum as f64).abs() <= tail));
        let variance = sums.iter().map(|sum| (*sum as f64).powi(2)).sum::<f64>() / sums.len() as f64;
        let error = shares.variance(agents) * (2.0 / sums.len() as f64).sqrt();
        assert!((variance - shares.variance(agents)).abs() <= 4.0 * error, "{variance}");
    }

    #[test]
    fn few_bits_cost_accuracy() {
        // 1000 agents, 10 components, B = C = 2, P = 1, h = 800, epsilon 1 at 1e-5 over ten rounds.
        let (agents, components, rounds, clip) = (1000, 10, 10, 2.0);
        let each = rho(1.0, 1e-5).unwrap() / rounds as f64;
        let delta = clipped(1.0 / agents as f64, clip, Relation::Removed);
        let over_ideal = |width: i32| {
            let at =
                |bits: i32| NoiseShares { claimed: on_grid(delta, bits, components, Relation::Removed) / (2.0 * each).sqrt(), honest: 800 };
            let room = 2f64.powi(width - 1) - 1.0;
            let fits = |bits: i32| 2f64.powi(bits) * clip + 0.5 * agents as f64 + at(bits).tail(agents, components, rounds) <= room;
            let bits = (-20..64).filter(|bits| fits(*bits)).max().expect("a grid");
            // Without rounding, with all the agents' shares.
            let ideal = delta * delta / (2.0 * each) * agents as f64 / 800.0 * 4f64.powi(bits);
            (at(bits).variance(agents) + agents as f64 / 12.0) / ideal
        };
        for (width, want) in [(14, "1.95"), (16, "1.20")] {
            assert_eq!(format!("{:.2}", over_ideal(width)), want);
        }
        assert_eq!(format!("{:.3}", over_ideal(20)), "1.012");
    }
}
