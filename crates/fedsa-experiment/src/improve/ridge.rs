//! The choice of the ridge: of those at which the iteration settles, the one whose policy has the best value on held-out episodes, by the low
//! end of its interval, because the largest of several uncertain values is often the luckiest. If none is surely above the value of the policy
//! that acted, for example because few held-out episodes reached a reward, values do not tell ridges apart: the one nearest to the usual ridge
//! is taken. Values that rewards do not allow say nothing; if there are no others, the largest ridge is taken.
//!
//! A ridge that looks harmless can spoil a policy without a sign of it: the iteration settles, and all pairs are covered. Values on held-out
//! episodes tell most bad ridges from good ones. The value of the chosen policy is a little too good, because it is the best of some.

use fedsa::cancel::Cancel;
use fedsa::error::Result;
use fedsa_evaluate::policy_value::ValueEstimate;
use fedsa_problems::control::improvement::{Improving, PolicyEnding};

use super::ImproveData;

/// The ridges that are tried, times the mean square of a feature.
const SHARES: [f64; 7] = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7];
/// The usual share.
const FALLBACK: f64 = 1e-4;
/// The most solves for one ridge.
const SOLVES: usize = 50;

/// The ridges that were tried.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RidgeChoice {
    /// The chosen ridge: of those at which the iteration settles, the one whose policy has the best possible value, or the largest one.
    pub chosen: f64,
    /// Whether a value decided.
    pub is_by_value: bool,
    /// All of them, from the largest.
    pub tried: Vec<TriedRidge>,
}

/// A ridge with the policy that it leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct TriedRidge {
    /// The ridge.
    pub ridge: f64,
    /// Its degrees of freedom.
    pub degrees: f64,
    /// How policy iteration ended.
    pub ending: PolicyEnding,
    /// The value of the policy on held-out episodes; `None` if it is not known.
    pub value: Option<ValueEstimate>,
    /// The value of the policy as the fit has it, which is too good.
    pub in_fit: f64,
}

impl RidgeChoice {
    /// Tries all ridges; why there is no choice, if there is none.
    ///
    /// # Errors
    /// When cancelled.
    pub(super) fn new(improving: &mut Improving, data: &ImproveData, cancel: &Cancel) -> Result<std::result::Result<Self, &'static str>> {
        if data.logs.held.iter().all(|log| log.is_empty()) {
            return Ok(Err("there are no held-out episodes to choose by"));
        }
        let scale = improving.mean_square();
        let mut tried = Vec::new();
        for ridge in SHARES.map(|share| share * scale) {
            cancel.check()?;
            improving.set_ridge(ridge, data.settings.pessimism)?;
            let end = improving.policy_end(None, SOLVES, cancel);
            let theta = &end.policies[end.policies.len() - 1];
            let value = data.value(theta, improving.caution())?.filter(|value| value.new.all.estimate.is_finite());
            let settles = end.ending == PolicyEnding::Settled;
            let rank =
                value.as_ref().filter(|value| settles && !value.is_impossible()).map(|value| (!value.may_be_worse(), value.new.all.low));
            let (degrees, ending, in_fit) = (improving.degrees_of_freedom()?, end.ending, improving.start_value(theta));
            tried.push((rank, TriedRidge { ridge, degrees, ending, value: value.map(|value| value.new.all), in_fit }));
        }
        let possible = || tried.iter().filter_map(|(rank, tried)| Some(((*rank)?, tried.ridge)));
        let best = possible().filter(|((is_better, _), _)| *is_better).max_by(|((_, x), _), ((_, y), _)| x.total_cmp(y));
        let from_usual = |ridge: f64| (ridge / (FALLBACK * scale)).ln().abs();
        let usual = || possible().min_by(|(_, x), (_, y)| from_usual(*x).total_cmp(&from_usual(*y)));
        let by_value = best.or_else(usual).map(|(_, ridge)| ridge);
        let largest = || tried.iter().find(|(_, tried)| tried.ending == PolicyEnding::Settled);
        let chosen = by_value.or_else(|| largest().map(|(_, tried)| tried.ridge));
        let is_by_value = by_value.is_some();
        let tried = tried.into_iter().map(|(_, tried)| tried).collect();
        Ok(chosen.map(|chosen| Self { chosen, is_by_value, tried }).ok_or("with none that was tried the iteration settles"))
    }
}

/// The ridge without a choice.
pub(super) fn fallback(improving: &Improving) -> f64 {
    FALLBACK * improving.mean_square()
}
