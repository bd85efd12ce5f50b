//! The value of a policy in the states in which its episodes start, with an interval.
//!
//! [`PolicyValue::of`] gives up to three estimates. Sums run over episodes, which are assumed independent.
//!
//! - **By fitted values** (`fitted`): the mean over start states of the values that LSTD fits to all transitions. Its error comes from
//!   the data and from the features.
//! - **By importance sampling** (`importance`): returns, each decision weighted by the ratios up to it. Fitted values serve as control
//!   variate and remove most of the variance. Its mean is the policy's value for any features, if ratios are right and no episode is
//!   truncated. Without ratios it is the mean of the returns.
//!
//!   With ratios there is also a self-normalised estimate, whose weights have the mean 1 at each step.
//! - **Doubly robust** (`doubly_robust`), if actions are logged with the probabilities of the evaluated policy: as by importance
//!   sampling, with action values q fitted without ratios. Its mean is right if the ratios are right or q is right.
//!
//! Agents send sums over their episodes ([`ValueStages`]): A and b of each fold, the features of start states, and the sums of squares and
//! of weights. The contributions of single episodes stay with the agents.

mod cut;
mod estimates;
mod fitted;
mod folds;
mod importance;
pub mod improved;
mod normalised;
mod possible;
mod stages;
mod student;
mod walk;
mod weights;

pub use estimates::{EstimateTable, FEWEST_EPISODES, FittedValue, IntervalKind, ValueEstimate, WeightedValue};
use fedsa::error::{Result, require};
use fedsa::parallel;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::log_means::TraceRule;
use fedsa_problems::logs::survey::Surveyed;
use fitted::Fit;
pub use folds::FOLDS;
use folds::{EpisodeSums, FitRule};
pub use possible::PossibleValues;
pub use stages::{AfterStages, ValueStages};
pub use student::t_quantile;
use walk::View;

/// The most features: systems are dense and solved several times.
pub const MAX_FEATURES: usize = 1024;

/// The settings of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct PolicyValueSettings {
    /// The level of the intervals; 0.95 by default.
    pub level: f64,
    /// The fit adds `eps I` to its matrix for each transition; 0 by default.
    pub ridge: f64,
    /// Whether the ridge refers to all transitions together ([`default_ridge`](crate::default_ridge::default_ridge)). Then an agent's
    /// own fit has the same sum of it, and more for each transition. False by default.
    pub is_relative: bool,
    /// The seed of the folds; 0 by default.
    pub seed: u64,
}

impl Default for PolicyValueSettings {
    fn default() -> Self {
        Self { level: 0.95, ridge: 0.0, is_relative: false, seed: 0 }
    }
}

fedsa::settings::setters! { PolicyValueSettings {
    with_level(level: f64) = level;
    with_ridge(ridge: f64) = ridge;
    with_is_relative(is_relative: bool) = is_relative;
    with_seed(seed: u64) = seed;
} }

/// The value of a policy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PolicyValue {
    /// The level of all intervals.
    pub level: f64,
    /// The value by fitted values.
    pub fitted: FittedValue,
    /// The value by importance sampling, or by returns without ratios.
    pub importance: WeightedValue,
    /// The doubly robust value, if all logs describe the same actions.
    pub doubly_robust: Option<WeightedValue>,
    /// Whether importance ratios are used.
    pub has_ratios: bool,
    /// The share of clipped ratios, if any may be clipped.
    pub clipped: Option<f64>,
    /// The estimate by importance sampling with the logged ratios, if a caller has computed it in addition to clipped ones. The
    /// difference shows the bias and the saved variance due to clipping.
    pub unclipped: Option<ValueEstimate>,
}

impl PolicyValue {
    /// The value of the logged policy (with ratios, the evaluated policy), under the discount, traces and ratios of `rule`. `None` if
    /// no log has the start of an episode, there are more than [`MAX_FEATURES`] features, or the importance ratios do not fit these
    /// policies ([`Surveyed::wrong_ratios`]). Reads the logs three to nine times.
    ///
    /// # Errors
    /// When the level is not in (0, 1), or a log cannot be read.
    pub fn of(logs: &Surveyed, map: &FeatureMap, rule: TraceRule, settings: &PolicyValueSettings) -> Result<Option<Self>> {
        let PolicyValueSettings { level, ridge, is_relative, seed } = *settings;
        require(level > 0.0 && level < 1.0, "level", level, "a number above 0 and below 1")?;
        let (d, sources) = (map.len(), &logs.sources[..]);
        if d > MAX_FEATURES || rule.ratios && !logs.wrong_ratios().is_empty() {
            return Ok(None);
        }
        let view = View { map, actions: None, agents: sources.len() };
        let fit = FitRule { trace: rule, weighted: true, ridge, is_relative };
        let found = folds::sums(sources, view, fit, seed, FEWEST_EPISODES as f64)?;
        let all = Fit::new(EpisodeSums::total(&found.folds, d), fit);
        let with_ratios = logs.facts.iter().filter(|facts| rule.ratios && facts.effective_size.is_some());
        let count: usize = with_ratios.clone().map(|facts| facts.transitions).sum();
        // Each reads the logs separately, and neither needs the other.
        let importance = || importance::weighted(sources, view, fit, &found.folds, seed, (level, count > 0));
        let doubly_robust = || match actions(logs) {
            Some(k) if d * k <= MAX_FEATURES => robust(logs, View { map, actions: Some(k), agents: sources.len() }, rule, settings),
            _ => Ok(None),
        };
        let fitted = || fitted::fitted(sources, view, &all, found.agents, level);
        let both = || parallel::both(sources.len(), importance, fitted);
        let ((importance, fitted), doubly_robust) = parallel::both(sources.len(), both, doubly_robust);
        let (importance, fitted, doubly_robust) = (importance?, fitted?, doubly_robust?);
        let clipped: Option<usize> = with_ratios.map(|facts| facts.clipping.map(|clipping| clipping.clipped)).sum();
        let clipped = clipped.filter(|_| count > 0).map(|clipped| clipped as f64 / count as f64);
        Ok(fitted.zip(importance).map(|(fitted, importance)| Self {
            level,
            fitted,
            importance,
            doubly_robust,
            has_ratios: count > 0,
            clipped,
            unclipped: None,
        }))
    }
}

/// The number of actions, if all logs describe the same.
fn actions(logs: &Surveyed) -> Option<usize> {
    let first = logs.facts[0].actions?;
    logs.facts.iter().all(|facts| facts.actions == Some(first)).then_some(first)
}

/// The doubly robust value: q is fitted without ratios and without traces.
fn robust(logs: &Surveyed, view: View<'_>, rule: TraceRule, settings: &PolicyValueSettings) -> Result<Option<WeightedValue>> {
    let PolicyValueSettings { ridge, is_relative, .. } = *settings;
    let fit = FitRule { trace: TraceRule { lambda: 0.0, ..rule }, weighted: false, ridge, is_relative };
    let found = folds::sums(&logs.sources, view, fit, settings.seed, f64::INFINITY)?;
    let has_ratios = rule.ratios && logs.facts.iter().any(|facts| facts.effective_size.is_some());
    importance::weighted(&logs.sources, view, fit, &found.folds, settings.seed, (settings.level, has_ratios))
}

#[cfg(test)]
mod coverage_tests;
#[cfg(test)]
mod robust_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;
