//! The best step, local steps and rounds for a budget of agent units, and the number of agents for an error.

use std::collections::HashMap;

use crate::exact_mse::InitialControls;
use crate::predict::Forecast;
use crate::work;
use fedsa::error::{Error, Result, require};

/// The factors by which step and local steps of the best choice change at the end of the search.
const FACTORS: [f64; 4] = [1.5, 1.2, 1.1, 1.05];

/// A method under a privacy budget of agent units. Every round of a run is a release, so that more rounds need more noise.
pub struct AgentPlan<'a> {
    /// The method on the problem, without the noise of releases. Its step and local steps are replaced.
    pub forecast: Forecast,
    /// `theta_0` (d).
    pub start: &'a [f64],
    /// The variance of the noise in each component of every released mean, for a run of one round; T times as much for T rounds.
    pub noise: f64,
}

/// The choices among which a plan looks.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRange {
    /// The step sizes of the coarse search.
    pub step_sizes: Vec<f64>,
    /// The numbers of local steps of the coarse search.
    pub local_steps: Vec<u64>,
    /// The most rounds.
    pub max_rounds: u64,
    /// Whether steps between those of the coarse search are tried too.
    pub refine: bool,
}

/// A choice, and what is predicted for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanChoice {
    /// The step size eta.
    pub step_size: f64,
    /// The local steps H.
    pub local_steps: u64,
    /// The rounds T.
    pub rounds: u64,
    /// The variance of the noise in each component of every released mean.
    pub noise: f64,
    /// The mean-square error after T rounds.
    pub mse: f64,
    /// The part of the error that the noise of the releases makes.
    pub by_privacy: f64,
}

/// The number of agents with which a choice reaches an error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AgentsNeeded {
    /// The number of agents.
    pub agents: u64,
    /// The choice, with that many agents.
    pub choice: PlanChoice,
}

/// The errors after 1, 2, .. rounds without noise of releases, and what noise of variance 1 adds.
struct Responses {
    without: Vec<f64>,
    added: Vec<f64>,
}

impl<'a> AgentPlan<'a> {
    /// The plan of a method with a forecast over a link whose sums are private for `rounds` rounds.
    ///
    /// # Errors
    /// When the noise of the link is not known.
    pub fn over(forecast: &Forecast, rounds: u64, start: &'a [f64]) -> Result<Self> {
        let noise = forecast.release_noise()? / rounds as f64;
        Ok(Self { forecast: forecast.clone().over_clear_link(), start, noise })
    }

    /// The error after T rounds with this step and local steps, with the noise of T rounds.
    ///
    /// # Errors
    /// When it is not known.
    pub fn choice(&self, step_size: f64, local_steps: u64, rounds: u64) -> Result<PlanChoice> {
        require(rounds >= 1, "rounds", rounds, "at least 1")?;
        let of = self.responses(step_size, local_steps, rounds)?;
        Ok(self.after(&of, step_size, local_steps, rounds, self.noise))
    }

    /// The choice with the least error.
    ///
    /// # Errors
    /// When no error is known; gives the reason. When no choice has a finite error.
    pub fn best(&self, range: &PlanRange) -> Result<PlanChoice> {
        self.search(range, |choice| choice.mse)
    }

    /// The fewest agents with which an error is at most `target`, if the agents were as many times more or fewer of each kind: weights,
    /// and with them the sensitivity, change in proportion. The noise of samples is left as it is, although it would fall as well.
    ///
    /// # Errors
    /// As [`AgentPlan::best`], and when no number of agents reaches the target within the rounds.
    pub fn agents_needed(&self, target: f64, range: &PlanRange) -> Result<AgentsNeeded> {
        require(target > 0.0 && target.is_finite(), "target", target, "a positive error")?;
        // With r times the agents the noise is divided by r^2.
        let ratio = |choice: &PlanChoice| {
            let left = target - (choice.mse - choice.by_privacy);
            if left > 0.0 { (choice.by_privacy / left).sqrt() } else { f64::INFINITY }
        };
        let found = self.search(range, ratio)?;
        let present = self.forecast.agents() as f64;
        let agents = (present * ratio(&found) * (1.0 - 1e-12)).ceil().max(1.0);
        if !agents.is_finite() {
            let what = format!("no choice has an error below {target:e} within {} rounds, however many agents there are", range.max_rounds);
            return Err(Error::not_known("target", what, "a larger error, more rounds, or a method without a bias"));
        }
        let less = (present / agents).powi(2);
        let (noise, by_privacy) = (found.noise * less, found.by_privacy * less);
        let choice = PlanChoice { noise, by_privacy, mse: found.mse - found.by_privacy + by_privacy, ..found };
        Ok(AgentsNeeded { agents: agents as u64, choice })
    }

    fn after(&self, of: &Responses, step_size: f64, local_steps: u64, rounds: u64, of_one: f64) -> PlanChoice {
        let noise = of_one * rounds as f64;
        let by_privacy = noise * of.added[rounds as usize - 1];
        PlanChoice { step_size, local_steps, rounds, noise, mse: of.without[rounds as usize - 1] + by_privacy, by_privacy }
    }

    /// Second moments are linear in the variance of the noise.
    fn responses(&self, step_size: f64, local_steps: u64, rounds: u64) -> Result<Responses> {
        let of = self.forecast.clone().with_step(step_size).with_local_steps(local_steps);
        let all: Vec<u64> = (1..=rounds).collect();
        let curve = |of: &Forecast| of.curve(self.start, &InitialControls::Zero, &all);
        let noisy = curve(&of.clone().with_release_noise(1.0)?)?;
        // Under mean sampling all noise is that of the releases.
        let clear = if of.is_noiseless() { None } else { Some(curve(&of)?) };
        let base = |t: usize| clear.as_ref().map_or(0.0, |clear| clear[t].noise);
        Ok(Responses {
            without: noisy.iter().enumerate().map(|(t, point)| point.bias_sq() + base(t)).collect(),
            added: noisy.iter().enumerate().map(|(t, point)| point.noise - base(t)).collect(),
        })
    }

    /// The choice of the least score: a coarse search, then changes of the best choice by shrinking factors.
    fn search(&self, range: &PlanRange, score: impl Fn(&PlanChoice) -> f64) -> Result<PlanChoice> {
        require(range.max_rounds >= 1, "max_rounds", range.max_rounds, "at least 1")?;
        let mut seen: HashMap<(u64, u64), Option<PlanChoice>> = HashMap::new();
        let mut reason = None;
        let mut at = |step: f64, h: u64| -> Result<Option<PlanChoice>> {
            work::check()?;
            if let Some(known) = seen.get(&(step.to_bits(), h)) {
                return Ok(*known);
            }
            let best = match self.responses(step, h, range.max_rounds) {
                Ok(of) => (1..=range.max_rounds)
                    .map(|t| self.after(&of, step, h, t, self.noise))
                    .filter(|choice| choice.mse.is_finite())
                    .min_by(|a, b| score(a).total_cmp(&score(b))),
                Err(e) => {
                    reason = Some(e);
                    None
                }
            };
            seen.insert((step.to_bits(), h), best);
            Ok(best)
        };
        let mut best: Option<PlanChoice> = None;
        let improve = |found: Option<PlanChoice>, best: &mut Option<PlanChoice>| -> bool {
            let better = found.filter(|found| best.is_none_or(|best| score(found) < score(&best)));
            better.inspect(|better| *best = Some(*better)).is_some()
        };
        for h in &range.local_steps {
            for step in &range.step_sizes {
                improve(at(*step, *h)?, &mut best);
            }
        }
        for factor in FACTORS.iter().filter(|_| range.refine) {
            while let Some(now) = best {
                let h = |by: f64| ((now.local_steps as f64 * by).round() as u64).max(1);
                let moves = [(factor.recip(), 1.0), (*factor, 1.0), (1.0, factor.recip()), (1.0, *factor), (*factor, factor.recip())];
                let mut moved = false;
                for (of_step, of_h) in moves {
                    moved |= improve(at(now.step_size * of_step, h(of_h))?, &mut best);
                }
                if !moved {
                    break;
                }
            }
        }
        let nothing = || Error::not_known("step_size", "no choice has a finite error", "smaller step sizes");
        best.ok_or_else(|| reason.unwrap_or_else(nothing))
    }
}
