//! Importance ratios of a log: a column of ratios, or two columns of probabilities.

use fedsa::error::{Error, Result, quoted};

/// The positions of the columns that give the ratio of each transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RatioColumns {
    /// `ratio`.
    Ratio(usize),
    /// `target` and `behaviour`: the probability, or density, of the action taken under the evaluated policy and under the behaviour
    /// policy.
    Probabilities { target: usize, behaviour: usize },
}

/// The columns of probabilities under the evaluated policy and under the behaviour policy.
pub(super) const PROBABILITIES: [&str; 2] = ["target", "behaviour"];
/// The names of the latter; the first existing one counts.
pub(super) const BEHAVIOURS: [&str; 2] = [PROBABILITIES[1], "behavior"];
pub(super) const RATIO: &str = "a finite number that is at least 0";
pub(super) const TARGET: &str = "a probability or density, finite and at least 0";
pub(super) const BEHAVIOUR: &str = "a probability or density above 0: what was done has one";

impl RatioColumns {
    /// From the positions of `ratio`, `target` and `behaviour`.
    ///
    /// # Errors
    /// When all three exist, or only one of the probabilities.
    pub fn new(ratio: Option<usize>, target: Option<usize>, behaviour: Option<usize>) -> Result<Option<Self>> {
        match (ratio, target, behaviour) {
            (Some(_), Some(_), Some(_)) => {
                let [target, behaviour] = PROBABILITIES.map(quoted);
                let what = format!("a column `ratio`, and `{target}` and `{behaviour}`, which make another one");
                Err(Error::data("", what, "either the ratio or the two probabilities"))
            }
            (Some(i), ..) => Ok(Some(Self::Ratio(i))),
            (None, Some(target), Some(behaviour)) => Ok(Some(Self::Probabilities { target, behaviour })),
            (None, None, None) => Ok(None),
            // Without ratios, the estimate would be for the behaviour policy.
            (None, target, _) => {
                let [mut there, mut lacking] = PROBABILITIES.map(quoted);
                if target.is_none() {
                    std::mem::swap(&mut there, &mut lacking);
                }
                let help = "both: the probability of the action that was taken under the policy that is evaluated, `target`, and under the \
                            one that acted, `behaviour`; or another name for a column that is neither";
                Err(Error::data("", format!("a column `{there}`, and no column `{lacking}`"), help))
            }
        }
    }
}

/// The requirement on `target` if the probabilities of all actions exist.
pub(super) const OF_TAKEN: &str = "the probability that its `target_` column has for the action that was taken";

/// Whether a probability `target` of the action `taken` differs, beyond rounding, from the probabilities `law` of all actions.
pub(super) fn contradicts(target: f64, law: &[f64], taken: u32) -> bool {
    const ROUNDING: f64 = 1e-4;
    law.get(taken as usize).is_some_and(|p| (p - target).abs() > ROUNDING)
}

/// A logged ratio; `None` if it is invalid.
pub(super) fn ratio(value: f64) -> Option<f64> {
    Some(value).filter(|rho| rho.is_finite() && *rho >= 0.0)
}

/// The probability of an action that was taken; `None` if it is invalid.
pub(super) fn taken_probability(value: f64) -> Option<f64> {
    ratio(value).filter(|p| *p > 0.0)
}

/// The ratio of two probabilities. The error is the position of the wrong one in [`PROBABILITIES`], with the requirement.
pub(super) fn quotient(target: f64, behaviour: f64) -> std::result::Result<f64, (usize, &'static str)> {
    ratio(target).ok_or((0, TARGET))?;
    taken_probability(behaviour).ok_or((1, BEHAVIOUR))?;
    ratio(target / behaviour).ok_or((1, "a probability or density, so large that the ratio to it is finite"))
}
