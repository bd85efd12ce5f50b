//! How good a policy is: the value of the states in which its episodes start, with an interval.
//!
//! [`PolicyValue::of`] has up to three estimates. Sums run over episodes, which are taken to be independent.
//!
//! - **By fitted values** (`fitted`): the mean over start states of the values that LSTD fits to all transitions. It has the error of the
//!   features besides that of the data.
//! - **By importance sampling** (`importance`): returns, each decision weighted by the ratios up to it, with fitted values as control
//!   variate that take out most of the variance. Its mean is the policy's value where ratios are right, whatever the features are, and
//!   where no episode is cut short. Without ratios it is the mean of the returns.
//!
//! - **Doubly robust** (`doubly_robust`), where actions are logged with the probabilities of the evaluated policy: as by importance
//!   sampling, with the values of actions q fitted without ratios. Its mean is right where the ratios are, or where q is.
//!
//! What agents send are sums over their episodes: A and b of each fold, the features of start states, and the sums of squares and of
//! weights; what single episodes contribute stays with them.

mod fitted;
mod folds;
mod importance;
mod student;
mod walk;

use super::features::FeatureMap;
use super::log_means::TraceRule;
use super::survey::Surveyed;
use crate::error::{Result, require};
use fitted::Fit;
pub use folds::FOLDS;
use folds::{EpisodeSums, FitRule};
pub use student::t_quantile;
use walk::View;

/// The number of episodes below which an interval is rough.
pub const FEWEST_EPISODES: usize = 20;

/// The most features: systems are dense, and solved several times.
pub const MOST_FEATURES: usize = 1024;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PolicyValueSettings {
    /// The level of the intervals; 0.95 by default.
    pub level: f64,
    /// `eps I` is added to the matrix of the fit for each transition; 0 by default.
    pub ridge: f64,
    /// The seed of the folds; 0 by default.
    pub seed: u64,
}

impl Default for PolicyValueSettings {
    fn default() -> Self {
        Self { level: 0.95, ridge: 0.0, seed: 0 }
    }
}

crate::settings::setters! { PolicyValueSettings {
    with_level(level: f64) = level;
    with_ridge(ridge: f64) = ridge;
    with_seed(seed: u64) = seed;
} }

/// An estimate with its interval. What is not known is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ValueEstimate {
    /// The value.
    pub estimate: f64,
    /// Its standard error.
    pub se: f64,
    /// The interval: `estimate -+ t se`, with the quantile of Student's t of one degree of freedom less than there are episodes.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The number of episodes with a start.
    pub episodes: usize,
    /// How many they are worth under importance ratios: `(sum w)^2 / sum w^2`.
    pub effective_episodes: f64,
}

impl ValueEstimate {
    /// An estimate from so many episodes, with its interval.
    pub fn new(estimate: f64, se: f64, episodes: usize, effective_episodes: f64, level: f64) -> Self {
        let wide = t_quantile(level, episodes as f64 - 1.0) * se;
        Self { estimate, se, low: estimate - wide, high: estimate + wide, episodes, effective_episodes }
    }

    /// `self - other` of independent estimates, with the degrees of freedom of Welch and Satterthwaite.
    #[must_use]
    pub fn minus(&self, other: &Self, level: f64) -> Self {
        let (a, b) = (self.se * self.se, other.se * other.se);
        let part = |square: f64, n: usize| square * square / (n as f64 - 1.0);
        let freedom = (a + b).powi(2) / (part(a, self.episodes) + part(b, other.episodes));
        let (estimate, se) = (self.estimate - other.estimate, (a + b).sqrt());
        let wide = if se == 0.0 { 0.0 } else { t_quantile(level, freedom) * se };
        Self {
            estimate,
            se,
            low: estimate - wide,
            high: estimate + wide,
            episodes: self.episodes.min(other.episodes),
            effective_episodes: self.effective_episodes.min(other.effective_episodes),
        }
    }
}

/// An estimate for all start states, and for those of each agent that has some, by the agent's name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EstimateTable {
    /// Of all agents.
    pub all: ValueEstimate,
    /// Of each.
    pub agents: Vec<(String, ValueEstimate)>,
}

/// How the standard error of a fitted value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalKind {
    /// By what each episode contributes to the value in the first order.
    Influence,
    /// By leaving out each episode in turn.
    Jackknife,
}

/// The value from fitted values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FittedValue {
    /// With the weights that are fitted to all agents.
    pub table: EstimateTable,
    /// With an agent's own weights, where there are several agents and it has at least [`FEWEST_EPISODES`].
    pub own: Vec<(String, ValueEstimate)>,
    /// How the standard error of all was found.
    pub interval: IntervalKind,
    /// The mean features of the start states, d numbers.
    pub start: Vec<f64>,
}

/// The value by weighted returns.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WeightedValue {
    /// The estimates.
    pub table: EstimateTable,
    /// The estimate of all without control variate: `(1/n) sum_i sum_t gamma^t rho_{0:t} r_t`. Nothing is bootstrapped in it.
    pub plain: f64,
    /// The number of episodes that were cut short.
    pub cut: usize,
    /// What is bootstrapped there, as a part of the estimate: `(1/n) sum_i gamma^T rho_{0:T-1} v(s_T)`. An error of v there, as a share of
    /// v, is an error of the estimate by this share of it.
    pub bootstrapped: f64,
}

/// How good a policy is.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PolicyValue {
    /// The level of all intervals.
    pub level: f64,
    /// By fitted values.
    pub fitted: FittedValue,
    /// By importance sampling, or by returns where there are no ratios.
    pub importance: WeightedValue,
    /// The doubly robust value, where all logs describe the same actions.
    pub doubly_robust: Option<WeightedValue>,
    /// Whether importance ratios are used.
    pub has_ratios: bool,
    /// The share of ratios that were clipped, where some may have been.
    pub clipped: Option<f64>,
}

impl PolicyValue {
    /// The value of the policy whose transitions the logs have, under the discount, traces and ratios of `rule`. `None` where no log has
    /// the start of an episode, or there are more than [`MOST_FEATURES`]. Reads the logs three times, or four.
    ///
    /// # Errors
    /// When the level is not in (0, 1), or a log cannot be read.
    pub fn of(logs: &Surveyed, map: &FeatureMap, rule: TraceRule, settings: &PolicyValueSettings) -> Result<Option<Self>> {
        let PolicyValueSettings { level, ridge, seed } = *settings;
        require(level > 0.0 && level < 1.0, "level", level, "a number above 0 and below 1")?;
        let (d, sources) = (map.len(), &logs.sources[..]);
        if d > MOST_FEATURES {
            return Ok(None);
        }
        let view = View { map, actions: None };
        let fit = FitRule { trace: rule, weighted: true, ridge };
        let found = folds::sums(sources, view, fit, seed, FEWEST_EPISODES as f64)?;
        let all = Fit::new(EpisodeSums::total(&found.folds, d), fit);
        let importance = importance::weighted(sources, view, fit, &found.folds, seed, level)?;
        let fitted = fitted::fitted(sources, view, &all, found.agents, level)?;
        let doubly_robust = match actions(logs) {
            Some(k) if d * k <= MOST_FEATURES => robust(logs, View { map, actions: Some(k) }, rule, settings)?,
            _ => None,
        };
        let with_ratios = logs.facts.iter().filter(|facts| rule.ratios && facts.effective_size.is_some());
        let count: usize = with_ratios.clone().map(|facts| facts.transitions).sum();
        let clipped: Option<usize> = with_ratios.map(|facts| facts.clipping.map(|clipping| clipping.clipped)).sum();
        let clipped = clipped.filter(|_| count > 0).map(|clipped| clipped as f64 / count as f64);
        Ok(fitted.zip(importance).map(|(fitted, importance)| Self {
            level,
            fitted,
            importance,
            doubly_robust,
            has_ratios: count > 0,
            clipped,
        }))
    }
}

/// The number of actions that all logs describe, if they do.
fn actions(logs: &Surveyed) -> Option<usize> {
    let first = logs.facts[0].actions?;
    logs.facts.iter().all(|facts| facts.actions == Some(first)).then_some(first)
}

/// The doubly robust value: q is fitted without ratios and without traces.
fn robust(logs: &Surveyed, view: View<'_>, rule: TraceRule, settings: &PolicyValueSettings) -> Result<Option<WeightedValue>> {
    let fit = FitRule { trace: TraceRule { lambda: 0.0, ..rule }, weighted: false, ridge: settings.ridge };
    let found = folds::sums(&logs.sources, view, fit, settings.seed, f64::INFINITY)?;
    importance::weighted(&logs.sources, view, fit, &found.folds, settings.seed, settings.level)
}

#[cfg(test)]
mod robust_tests;
#[cfg(test)]
mod tests;
