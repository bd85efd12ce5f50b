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
pub(super) const RATIO: &str = "a finite number that is at least 0";
pub(super) const TARGET: &str = "a probability or density, finite and at least 0";
pub(super) const BEHAVIOUR: &str = "a probability or density above 0: what was done has one";

impl RatioColumns {
    /// From the positions of `ratio`, `target` and `behaviour`.
    ///
    /// # Errors
    /// When all three are there.
    pub fn new(ratio: Option<usize>, target: Option<usize>, behaviour: Option<usize>) -> Result<Option<Self>> {
        match (ratio, target.zip(behaviour)) {
            (Some(_), Some(_)) => {
                let [target, behaviour] = PROBABILITIES.map(quoted);
                let what = format!("a column `ratio`, and `{target}` and `{behaviour}`, which make another one");
                Err(Error::data("", what, "either the ratio or the two probabilities"))
            }
            (Some(i), None) => Ok(Some(Self::Ratio(i))),
            (None, Some((target, behaviour))) => Ok(Some(Self::Probabilities { target, behaviour })),
            (None, None) => Ok(None),
        }
    }
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
