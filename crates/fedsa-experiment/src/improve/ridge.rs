//! The choice of the ridge: of those at which the iteration settles, the one whose policy has the best value on held-out episodes, by the low
//! end of its interval, because the largest of several uncertain values is often the luckiest. If none is surely above the value of the policy
//! that acted, for example because few held-out episodes reached a reward, values do not tell ridges apart, and the one nearest to the usual
//! ridge is taken.
//!
//! A ridge that looks harmless can spoil a policy without a sign of it: the iteration settles, and all pairs are covered. Values on held-out
//! episodes tell most bad ridges from good ones. The value of the chosen policy is a little too good, because it is the best of some.

use fedsa::cancel::Cancel;
use fedsa::error::Result;
use fedsa_evaluate::policy_value::ValueEstimate;
use fedsa_evaluate::policy_value::improved::ImprovedValue;
use fedsa_problems::control::improvement::{Improving, PolicyEnding};

use super::{ImproveData, ImproveMethod};

/// The ridges that are tried, times the mean square of a feature.
const SHARES: [f64; 7] = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7];
/// The usual share.
const FALLBACK: f64 = 1e-4;
/// The most solves for one ridge.
const SOLVES: usize = 50;

/// Why a ridge was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RidgeReason {
    /// Its policy is surely better than the one that acted, with the best value.
    Value,
    /// No policy is surely better. It is nearest to the usual ridge, of those at which the iteration settles.
    Usual,
    /// The iteration settles at none. It is the usual ridge.
    Unsettled,
}

/// The ridges that were tried.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RidgeChoice {
    /// The chosen ridge.
    pub chosen: f64,
    /// Why it was chosen.
    pub reason: RidgeReason,
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
    /// Tries all ridges for a method. There must be held-out episodes.
    ///
    /// # Errors
    /// When cancelled.
    pub(super) fn new(improving: &mut Improving, data: &ImproveData, method: ImproveMethod, cancel: &Cancel) -> Result<Self> {
        let scale = improving.mean_square();
        let mut tried = Vec::new();
        for ridge in SHARES.map(|share| share * scale) {
            cancel.check()?;
            improving.set_ridge(ridge, data.settings.pessimism)?;
            let end = improving.policy_end(None, SOLVES, cancel);
            let theta = &end.policies[end.policies.len() - 1];
            // Sweeps of fitted Q-iteration may leave a policy at which policy iteration settles.
            let leaves = method == ImproveMethod::Fqi && end.ending == PolicyEnding::Settled && improving.radius(theta)? >= 1.0;
            let ending = if leaves { PolicyEnding::Diverged } else { end.ending };
            let value = data.value(theta, improving.caution())?.filter(|value| value.new.all.estimate.is_finite());
            let rank = value.as_ref().map(ImprovedValue::rank);
            let (degrees, in_fit) = (improving.degrees_of_freedom()?, improving.start_value(theta));
            tried.push((rank, TriedRidge { ridge, degrees, ending, value: value.map(|value| value.new.all), in_fit }));
        }
        let settled = || tried.iter().filter(|(_, tried)| tried.ending == PolicyEnding::Settled);
        let better = settled().filter_map(|(rank, tried)| Some(((*rank)?, tried.ridge))).filter(|((is_better, ..), _)| *is_better);
        let best = better.max_by(|((.., x), _), ((.., y), _)| x.total_cmp(y)).map(|(_, ridge)| (ridge, RidgeReason::Value));
        let from_usual = |ridge: f64| (ridge / fallback(improving)).ln().abs();
        let usual = || settled().map(|(_, tried)| tried.ridge).min_by(|x, y| from_usual(*x).total_cmp(&from_usual(*y)));
        let usual = || usual().map_or((fallback(improving), RidgeReason::Unsettled), |ridge| (ridge, RidgeReason::Usual));
        let (chosen, reason) = best.unwrap_or_else(usual);
        Ok(Self { chosen, reason, tried: tried.into_iter().map(|(_, tried)| tried).collect() })
    }
}

/// The ridge without a choice.
pub(super) fn fallback(improving: &Improving) -> f64 {
    FALLBACK * improving.mean_square()
}
