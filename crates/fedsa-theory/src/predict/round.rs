//! A method's noiseless round: whether it is a known linear map, its mean, and its limit.

use super::{DELAYED_WORK, Forecast, LESS_DELAYED, no_steps, takes_too_long, unknown};
use crate::exact_mse::{ArrivalLaw, round_work};
use crate::fedlsa::FedLsaMean;
use crate::link::LinkLaw;
use crate::{RoundSetting, stability, work};
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::method::ControlRule;
use fedsa::method::{Drift, MissingUpdate};
use fedsa::problem::systems::Systems;
use fedsa::schedule::StepSize;
use fedsa::uplink::stage::delay::Before;

/// A round whose mean is known.
pub(super) struct Round<'a> {
    pub(super) systems: &'a Systems,
    pub(super) setting: RoundSetting,
    pub(super) link: &'a LinkLaw,
    /// m, if not all N agents participate.
    pub(super) few: Option<usize>,
}

impl Round<'_> {
    pub(super) fn agents(&self) -> usize {
        self.systems.weights.len()
    }

    /// The moments of the weights with which directions enter the mean.
    pub(super) fn arrivals(&self) -> ArrivalLaw {
        let asked = self.few.unwrap_or(self.agents());
        let LinkLaw { gain, gain_square, receiver_noise, sent_noise, .. } = *self.link;
        ArrivalLaw::by_factors(gain, gain_square, receiver_noise, asked).with_sent_noise(sent_noise).of_few(asked, self.agents())
    }

    /// Whether the link or the choice of participants adds noise.
    pub(super) fn is_noisy(&self) -> bool {
        self.link.is_noisy() || self.few.is_some()
    }

    /// Rejects links for which the mean square is not known for any method.
    pub(super) fn has_mean_square(&self) -> Result<()> {
        self.link.only_mean.map_or(Ok(()), |why| Err(unknown(why)))
    }

    /// Rejects links and participation for which only methods without memory have closed forms of the mean square.
    pub(super) fn is_plain(&self) -> Result<()> {
        if self.link.is_clear() && self.few.is_none() {
            return Ok(());
        }
        self.has_mean_square()?;
        Err(unknown("the mean-square error of methods with memory, unless all agents participate over a clear link"))
    }

    /// The variance of the noise in each component of the mean, where the link does nothing else: every message arrives at once and
    /// unchanged, from all agents.
    ///
    /// # Errors
    /// Where it does something else, as [`Round::is_plain`].
    pub(super) fn only_noise(&self) -> Result<f64> {
        let LinkLaw { gain, gain_square, ref delay, only_mean, .. } = *self.link;
        if self.few.is_none() && gain == 1.0 && gain_square == 1.0 && delay.is_none() && only_mean.is_none() {
            return Ok((self.link.noise_in_mean(&self.systems.weights) / self.agents() as f64).powi(2));
        }
        self.is_plain().map(|()| 0.0)
    }

    /// FedLSA's mean round with the mean gain of the link.
    pub(super) fn plain(&self) -> Result<FedLsaMean> {
        FedLsaMean::new(self.systems, &self.setting.with_server_step(self.setting.server_step * self.link.gain)?)
    }

    /// The delay, if it is constant.
    pub(super) fn delay(&self) -> Option<(usize, Before)> {
        self.link.delay.as_ref().and_then(|delay| Some((delay.constant()?, delay.before)))
    }

    /// The weight of a pair of different participants in the mean over pairs of agents, `N (m - 1) / (m (N - 1))`; 1 if all
    /// participate ([`stability::global_memory_radius_over`]).
    pub(super) fn mixing(&self) -> f64 {
        let n = self.agents() as f64;
        self.few.map_or(1.0, |m| n * (m as f64 - 1.0) / (m as f64 * (n - 1.0)))
    }

    /// The mean share of `v - v_c` by which an agent's control changes, `(m - 1) / (N - 1)`; 1 if all participate.
    pub(super) fn share(&self) -> f64 {
        self.few.map_or(1.0, |m| (m as f64 - 1.0) / (self.agents() as f64 - 1.0))
    }
}

impl Forecast {
    /// The method's round, if its mean is known.
    pub(super) fn linear(&self) -> Result<Round<'_>> {
        let Self { field, shape, .. } = self;
        let systems = self.systems().ok_or_else(|| match field.facts().linear_operators() {
            Some(_) => unknown("the systems are sparse, and predictions need dense ones"),
            None => unknown("the operators are not linear"),
        })?;
        if !shape.is_linear {
            return Err(unknown("a round is not a linear map"));
        }
        let link = self.link()?;
        let few = shape.participants.filter(|m| *m < systems.weights.len());
        let alike = || systems.weights.iter().all(|p| (p - systems.weights[0]).abs() <= 1e-12 * systems.weights[0]);
        if few.is_some() && !alike() {
            return Err(unknown("only some of the agents participate, and their weights differ"));
        }
        if link.delay.is_some() && shape.drift != Drift::Zero {
            return Err(unknown("answers belong to old models, and the method remembers its earlier answers"));
        }
        let controls = matches!(shape.drift, Drift::ControlVariate { .. });
        if controls && few == Some(1) {
            return Err(unknown("with one participant per round the control variates do not change"));
        }
        // A mean gain of 1 may differ from 1 by rounding.
        let loses = (link.gain - 1.0).abs() > 1e-12;
        match self.lost {
            MissingUpdate::Controls(ControlRule::Literal) if controls && loses => {
                return Err(unknown("control variates are kept to the letter and accumulate the errors of lost messages"));
            }
            MissingUpdate::Controls(ControlRule::Afresh) if controls && few.is_some() => {
                return Err(unknown("control variates are made afresh, and those of a round's participants do not sum to 0"));
            }
            MissingUpdate::Last if few.is_some() || (loses && link.gain_square != link.gain) => {
                return Err(unknown(
                    "a missing operator is replaced by the agent's last one, and participation is partial or the link weakens messages",
                ));
            }
            _ => {}
        }
        let StepSize::Constant(eta) = shape.step_size else { return Err(unknown("the step size varies")) };
        let setting = RoundSetting::new(eta, (shape.local_steps.round() as u64).max(1))?.with_server_step(shape.alpha_g)?;
        Ok(Round { systems, setting, link, few })
    }

    /// Checks that the limit of rounds without noise is known.
    ///
    /// # Errors
    /// When it is not; gives the reason.
    pub(super) fn knows_limit(&self) -> Result<()> {
        self.stoppable(|| if self.is_nonlinear() { self.knows_nonlinear_limit() } else { self.knows_rounds() })
    }

    /// Checks that a noiseless round is a known linear map.
    ///
    /// # Errors
    /// When it is not; gives the reason.
    pub fn knows_rounds(&self) -> Result<()> {
        self.linear().map(|_| ())
    }

    /// The settings of the method's rounds.
    ///
    /// # Errors
    /// When a noiseless round is not a known linear map; gives the reason.
    pub fn round_setting(&self) -> Result<RoundSetting> {
        self.linear().map(|round| round.setting)
    }

    /// The limit of the mean iterate of FedLSA with the method's settings, d numbers.
    ///
    /// # Errors
    /// When it is not known.
    pub fn limit(&self) -> Result<Vec<f64>> {
        self.stoppable(|| {
            if self.largest_factor() == 1.0 {
                return self.linear()?.plain()?.limit();
            }
            let mut limit = self.linear()?.systems.root()?;
            linalg::add_scaled(&mut limit, 1.0, &self.bias_of_copies()?);
            Ok(limit)
        })
    }

    /// The mean iterates `E theta_t` of FedLSA with the method's settings from `theta_0`, at each of `rounds` (ascending);
    /// vectors of d components.
    ///
    /// # Errors
    /// When they are not known.
    pub fn mean(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<Vec<f64>>> {
        self.stoppable(|| self.mean_at(theta_0, rounds))
    }

    pub(super) fn mean_at(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<Vec<f64>>> {
        self.of_one_copy()?;
        let round = self.linear()?;
        let plain = round.plain()?;
        let Some(delay) = &round.link.delay else { return Ok(plain.mean(theta_0, rounds)) };
        // u_{t+1} = u_t + sum_k pi_k (k - K u_{t-k}). Terms with t < k use the first model, or are 0.
        let (pull, reach) = (plain.pull(), delay.probabilities.len());
        let mut past = vec![theta_0.iter().zip(&plain.root).map(|(x, r)| x - r).collect::<Vec<f64>>()];
        let last = rounds.last().map_or(0, |t| *t as usize);
        if last as f64 * (reach * plain.root.len()) as f64 > DELAYED_WORK {
            let (d, most) = (plain.root.len(), reach - 1);
            let what = format!("the mean of {d} features over {last} rounds with delays up to {most} rounds");
            return Err(takes_too_long(&what, LESS_DELAYED));
        }
        for t in 0..last {
            work::check()?;
            let (mut answered, mut arrived) = (vec![0.0; plain.root.len()], 0.0);
            for (k, p) in delay.probabilities.iter().enumerate().filter(|(k, _)| *k <= t || delay.before == Before::First) {
                arrived += p;
                answered.iter_mut().zip(&past[t.saturating_sub(k)]).for_each(|(a, u)| *a += p * u);
            }
            let pulled = linalg::mat_vec(&pull, &answered);
            let next = |i: usize| past[t][i] - pulled[i] + arrived * plain.server_step * plain.rho[i];
            past.push((0..pulled.len()).map(next).collect());
        }
        Ok(rounds.iter().map(|t| past[*t as usize].iter().zip(&plain.root).map(|(u, r)| u + r).collect()).collect())
    }

    /// The limit of the mean iterate minus theta* (d).
    pub(super) fn bias(&self, round: &Round<'_>) -> Result<Vec<f64>> {
        match self.shape.drift {
            Drift::Zero => round.plain()?.bias(),
            Drift::GlobalMemory { .. } => stability::global_memory_bias(round.systems, &round.setting, round.mixing()),
            Drift::ControlVariate { .. } => Ok(vec![0.0; round.systems.dim()]),
            Drift::NoSteps => Err(no_steps()),
        }
    }

    /// The squared distance of the method's limit from theta*. It is positive for FedLSA's local steps, and for FedHSA if only
    /// some of the agents participate; otherwise 0.
    ///
    /// # Errors
    /// When it is not known.
    pub fn bias_sq(&self) -> Result<f64> {
        self.stoppable(|| Ok(linalg::norm_sq(&self.bias_of_copies()?)))
    }

    /// The limit of the output without noise, minus theta* (d): the combination of those of its copies.
    fn bias_of_copies(&self) -> Result<Vec<f64>> {
        let bias = |of: &Self| if of.is_nonlinear() { of.nonlinear_bias() } else { of.bias(&of.linear()?) };
        let Some(rule) = self.copies else { return bias(self) };
        let mut sum = vec![0.0; self.field.dim()];
        for (a, step) in rule.coefficients().iter().zip(rule.steps()) {
            linalg::add_scaled(&mut sum, *a, &bias(&self.clone().with_steps_times(*step))?);
        }
        Ok(sum)
    }
}

/// The numbers of a symmetric matrix of n rows.
pub(super) fn packed(n: f64) -> f64 {
    n * (n + 1.0) / 2.0
}

/// The approximate nanoseconds for the second moments of all distinct agents' local phases with this drift, within a factor of two of
/// measurements from d = 2 to 20.
pub(super) fn phases_of_moments(round: &Round<'_>, drift: Drift) -> f64 {
    // The numbers of the state at the start: (u, 1), and the drift.
    let d = round.systems.dim() as f64;
    let n = if drift == Drift::Zero { d + 1.0 } else { 2.0 * d + 1.0 };
    let steps = round.setting.local_steps.max(1);
    // One step first, then a doubling for each binary digit of the number of steps, and one more step for each digit 1.
    let doublings = f64::from(steps.ilog2() + steps.count_ones() - 1);
    let (kinds, first) = (round.systems.kinds.len() as f64, 4000.0 + phase_products(round, d + 1.0));
    let phases = kinds * (first + doublings * phase_products(round, n));
    // A correction for all agents contributes to all moments, at the cost of one and a half doublings.
    if matches!(drift, Drift::GlobalMemory { .. }) { phases + 1.5 * kinds * phase_products(round, n) } else { phases }
}

/// The products of one doubling. In large products a multiplication takes much less than a nanosecond; for small matrices allocation
/// dominates.
fn phase_products(round: &Round<'_>, n: f64) -> f64 {
    let (start, end) = (packed(n), packed(round.systems.dim() as f64));
    1800.0 + (0.05 + 4.0 / start) * start * end * (start + end)
}

/// The approximate nanoseconds for a round of the second moments of control variates.
pub(super) fn round_of_moments(round: &Round<'_>) -> f64 {
    round_work(round.systems.kinds.len() as f64, round.systems.dim() as f64)
}
