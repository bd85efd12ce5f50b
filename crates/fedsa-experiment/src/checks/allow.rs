//! The deviations that checks allow: a relative tolerance, and standard errors over seeds.

use fedsa::error::{Error, Result};

use super::facts::PlanFacts;
use super::verdict::{self, Allowance, Asked, Measured};
use crate::config::Check;
use crate::results::Estimate;

/// The deviation that a check allows from the expected value.
pub fn allowance(check: &Check) -> Allowance {
    Allowance { relative: check.tolerance.unwrap_or(0.0), se: check.se.unwrap_or(3.0), larger: check.larger }
}

/// The measurement of a mean over seeds that must be near a number.
pub fn near(check: &Check, values: &[f64], expected: f64, place: String) -> Measured {
    let (Estimate { mean, se }, allowance) = (Estimate::of(values), allowance(check));
    let error = standard_error(values, se);
    Measured {
        standard_error: error,
        allowance: allowance.text(error),
        ..Measured::new(mean, Asked::near(expected, allowance.of(expected, se)), place)
    }
}

/// Requires several seeds if the check uses standard errors.
pub fn seeds_for_allowance(facts: &PlanFacts<'_>, check: &Check, cell: usize) -> Result<()> {
    match (check.se, check.tolerance) {
        (Some(se), _) if se > 0.0 => facts.several_seeds(cell, "se"),
        (None, None) => facts.several_seeds(cell, ""),
        _ => Ok(()),
    }
}

/// The ratio of means with the standard error of paired samples.
pub fn paired(above: &[f64], below: &[f64]) -> Result<Estimate> {
    let scale = Estimate::of(below).mean;
    if scale == 0.0 {
        return Err(Error::new("", "the floor in the denominator is 0", ""));
    }
    let mean = Estimate::of(above).mean / scale;
    let residuals: Vec<f64> = above.iter().zip(below).map(|(a, b)| (a - mean * b) / scale).collect();
    Ok(Estimate { mean, se: Estimate::of(&residuals).se })
}

/// The range of `min` and `max` in words.
pub fn range_of(check: &Check) -> String {
    verdict::range(check.min.unwrap_or(f64::NEG_INFINITY), check.max.unwrap_or(f64::INFINITY))
}

/// The round at which a check measures, in words.
pub fn when(check: &Check) -> String {
    check.by.map_or_else(|| "at the last round".to_string(), |t| format!("by round {t}"))
}

/// The standard error of a mean over seeds; one seed has none.
pub fn standard_error(values: &[f64], se: f64) -> Option<f64> {
    (values.len() > 1).then_some(se)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_paired_by_seed() {
        let Estimate { mean, se } = paired(&[2.0, 4.0], &[1.0, 2.0]).unwrap();
        assert_eq!((mean, se), (2.0, 0.0));
        assert!(paired(&[1.0], &[0.0]).is_err());
    }
}
