//! Importance ratios of a log: a column of them, or two of probabilities.

use fedsa::error::{Error, Result, quoted};

/// The positions of the columns that give the ratio of each transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RatioColumns {
    /// `ratio`.
    Ratio(usize),
    /// `target` and `behaviour`: the probability, or density, of the action that was taken under the policy that is evaluated and under
    /// the one that acted.
    Probabilities { target: usize, behaviour: usize },
}

/// The column of probabilities under the policy that is evaluated, and under the one that acted.
pub(super) const PROBABILITIES: [&str; 2] = ["target", "behaviour"];
/// The names of the latter, the first that is there.
pub(super) const BEHAVIOURS: [&str; 2] = [PROBABILITIES[1], "behavior"];
pub(super) const RATIO: &str = "a finite number that is at least 0";
pub(super) const TARGET: &str = "a probability or density, finite and at least 0";
pub(super) const BEHAVIOUR: &str = "a probability or density above 0: what was done has one";

impl RatioColumns {
    /// From the positions of `ratio`, `target` and `behaviour`.
    ///
    /// # Errors
    /// When all three are there, and where one of the probabilities is there alone.
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
            // Without ratios it would be the policy that acted whose values are estimated.
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

/// What `target` has to be where the probabilities of all actions are there.
pub(super) const OF_TAKEN: &str = "the probability that its `target_` column has for the action that was taken";

/// Whether a probability `target` of the action `taken` is another one than the probabilities `law` of all actions say, beyond rounding.
pub(super) fn contradicts(target: f64, law: &[f64], taken: u32) -> bool {
    const ROUNDING: f64 = 1e-4;
    law.get(taken as usize).is_some_and(|p| (p - target).abs() > ROUNDING)
}

/// A ratio as it was logged; `None` if it is none.
pub(super) fn ratio(value: f64) -> Option<f64> {
    Some(value).filter(|rho| rho.is_finite() && *rho >= 0.0)
}

/// The ratio of two probabilities; the error is the one that is wrong, by its position in [`PROBABILITIES`], with what is wanted.
pub(super) fn quotient(target: f64, behaviour: f64) -> std::result::Result<f64, (usize, &'static str)> {
    ratio(target).ok_or((0, TARGET))?;
    ratio(behaviour).filter(|b| *b > 0.0).ok_or((1, BEHAVIOUR))?;
    ratio(target / behaviour).ok_or((1, "a probability or density, so large that the ratio to it is finite"))
}
