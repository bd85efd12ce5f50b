//! The value of a policy that chooses actions by state, beside that of the policy that acted, on the same episodes.
//!
//! The episodes must not be those that the new policy was fitted to: its values on those are too good. Both values are fitted to the
//! episodes, without ridge: action values of the new policy, `q(s, a) = psi(s, a)^T w`, where psi(s, a) has the features of s in the block of
//! a, and values of the policy that acted, from all its transitions. The difference is paired. With the contributions `h_i` of episode i to
//! the two values, `se^2 = n / (n - 1) sum_i (h_i - h'_i)^2`.
//!
//! With the probabilities of logged actions there are also an estimate by importance sampling and a doubly robust one. A greedy policy gives
//! most episodes the weight 0 after a few steps: both are refused below [`FEWEST_EPISODES`] effective episodes.

use fedsa::error::Result;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::by_policy::{StatePolicy, described};
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_means::TraceRule;
use fedsa_problems::logs::ratio_means::WrongRatios;
use fedsa_problems::logs::source::{LogSource, in_memory};
use fedsa_problems::logs::survey::Surveyed;

use super::estimates::{EstimateTable, FEWEST_EPISODES, ValueEstimate};
use super::fitted::{Fit, Starts, correction, episodes, fitted};
use super::folds::{self, AgentSums, EpisodeSums, FitRule};
use super::walk::View;
use super::{IntervalKind, MAX_FEATURES, PolicyValue, PolicyValueSettings, PossibleValues};

/// The value of a new policy beside that of the policy that acted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImprovedValue {
    /// The level of the intervals.
    pub level: f64,
    /// The value of the new policy by fitted values.
    pub new: EstimateTable,
    /// The value of the policy that acted by fitted values.
    pub acted: EstimateTable,
    /// The first minus the second, over all agents, paired by episodes.
    pub difference: ValueEstimate,
    /// The estimates for the new policy by importance sampling and doubly robust; or why there are none.
    pub weighted: std::result::Result<WeightedEstimates, NoWeights>,
    /// The values that the logged rewards allow.
    pub possible: PossibleValues,
}

/// Estimates with importance ratios.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedEstimates {
    /// By importance sampling.
    pub importance: EstimateTable,
    /// Doubly robust.
    pub doubly_robust: Option<EstimateTable>,
}

/// Why there are no estimates with importance ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoWeights {
    /// The logs lack the probabilities of the actions that were taken.
    NoProbabilities,
    /// The ratios leave so few effective episodes, or rows.
    FewEffective(f64),
    /// Their mean is far from 1: the logged probabilities cannot be those of the policy that acted.
    WrongRatios,
}

impl ImprovedValue {
    /// The values on these logs of all agents, with actions; logs without rows do not count. `None` if no log has the start of an episode, or
    /// there are more than [`MAX_FEATURES`] features of pairs.
    ///
    /// # Errors
    /// When a log has no actions.
    pub fn of(logs: &[Log], map: &FeatureMap, policy: StatePolicy<'_>, gamma: f64, settings: &PolicyValueSettings) -> Result<Option<Self>> {
        let described: Vec<Log> = logs.iter().filter(|log| !log.is_empty()).map(|log| described(log, policy)).collect::<Result<_>>()?;
        let Some(actions) = described.iter().find_map(|log| Some(log.actions.as_ref()?.count)) else { return Ok(None) };
        if map.len() * actions > MAX_FEATURES {
            return Ok(None);
        }
        let rewards = logs.iter().flat_map(|log| &log.rewards);
        let range = rewards.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), r| (least.min(*r), most.max(*r)));
        let possible = PossibleValues::new(range, gamma, logs.iter().any(|log| log.done.contains(&true)));
        let weighted = weighted(&described, map, gamma, settings)?;
        let sources = in_memory(described);
        let rule = TraceRule { gamma, lambda: 0.0, ratios: false, clip: None };
        let fit = FitRule { trace: rule, weighted: false, ridge: 0.0, is_relative: false };
        let of = |actions| Fitted::new(&sources, View { map, actions, agents: sources.len() }, fit, settings);
        let (new, acted) = (of(Some(actions))?, of(None)?);
        let Some((new, acted)) = new.zip(acted) else { return Ok(None) };
        let n = new.influences.len() as f64;
        let squares: f64 = new.influences.iter().zip(&acted.influences).map(|(x, y)| (x - y).powi(2)).sum();
        let starts = new.table.all.episodes;
        let se = (correction(n) * squares).sqrt();
        let difference = ValueEstimate::new(
            new.table.all.estimate - acted.table.all.estimate,
            if new.table.all.se.is_finite() && acted.table.all.se.is_finite() { se } else { f64::NAN },
            starts,
            starts as f64,
            settings.level,
        );
        let level = settings.level;
        Ok(Some(Self { level, new: new.table, acted: acted.table, difference, weighted, possible }))
    }

    /// Whether the new policy is worse, or may be: the interval of the difference is not above 0, or the value is impossible.
    pub fn may_be_worse(&self) -> bool {
        self.is_impossible() || self.difference.low.is_nan() || self.difference.low <= 0.0
    }

    /// The order of policies; the larger rank is better. A policy that is surely better than the one that acted comes first, then one with a
    /// possible value. Within these the low end of the interval decides: the largest of several uncertain values is often the luckiest.
    pub fn rank(&self) -> (bool, bool, f64) {
        let low = Some(self.new.all.low).filter(|low| low.is_finite()).unwrap_or(f64::NEG_INFINITY);
        (!self.may_be_worse(), !self.is_impossible(), low)
    }

    /// Whether the fitted value of the new policy is outside of what rewards allow, or not finite.
    pub fn is_impossible(&self) -> bool {
        !self.new.all.estimate.is_finite() || !self.possible.allow_estimate(&self.new.all)
    }
}

/// A value by fitted values, with the contributions of all episodes.
struct Fitted {
    table: EstimateTable,
    influences: Vec<f64>,
}

impl Fitted {
    fn new(sources: &[Box<dyn LogSource>], view: View<'_>, rule: FitRule, settings: &PolicyValueSettings) -> Result<Option<Self>> {
        let found = folds::sums(sources, view, rule, settings.seed, FEWEST_EPISODES as f64)?;
        let fit = Fit::new(EpisodeSums::total(&found.folds, view.len()), rule);
        if fit.sums.starts == 0.0 {
            return Ok(None);
        }
        let starts = Starts::new(fit.sums.starts, fit.sums.mean_start(), &fit);
        let mut influences = Vec::new();
        for source in sources {
            episodes(&**source, view, rule, &fit.theta, fit.kind == IntervalKind::Jackknife, &mut |episode| {
                influences.push(starts.influence(episode, &fit.change(episode), &fit));
            })?;
        }
        let agents: Vec<AgentSums> = found.agents;
        Ok(fitted(sources, view, &fit, agents, settings.level)?.map(|value| Self { table: value.table, influences }))
    }
}

/// The estimates with importance ratios.
fn weighted(
    logs: &[Log],
    map: &FeatureMap,
    gamma: f64,
    settings: &PolicyValueSettings,
) -> Result<std::result::Result<WeightedEstimates, NoWeights>> {
    if logs.iter().any(|log| log.ratio.is_none()) {
        return Ok(Err(NoWeights::NoProbabilities));
    }
    let surveyed = Surveyed::new(in_memory(logs.to_vec()), 0.0, 0)?;
    let rule = TraceRule { gamma, lambda: 0.0, ratios: true, clip: None };
    let Some(value) = PolicyValue::of(&surveyed, map, rule, settings)? else {
        let few = surveyed.wrong_ratios().into_iter().find_map(|wrong| match wrong {
            WrongRatios::FewRows(of) => Some(of.effective),
            WrongRatios::Mean(..) => None,
        });
        return Ok(Err(few.map_or(NoWeights::WrongRatios, NoWeights::FewEffective)));
    };
    let effective = value.importance.table.all.effective_episodes;
    if effective < FEWEST_EPISODES as f64 {
        return Ok(Err(NoWeights::FewEffective(effective)));
    }
    let doubly_robust = value.doubly_robust.map(|robust| robust.table);
    Ok(Ok(WeightedEstimates { importance: value.importance.table, doubly_robust }))
}

#[cfg(test)]
#[path = "improved_tests.rs"]
mod tests;
