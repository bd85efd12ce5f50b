//! Whether means over seeds follow a known curve.

use fedsa::error::{Error, Result};

use super::verdict::{Asked, Measured};
use crate::numbers::{number, percent};
use crate::results::Estimate;

/// The deviation of a mean over seeds from its expected value.
pub struct Deviation {
    /// In standard errors, after subtracting the slack.
    errors: f64,
    /// Whether three standard errors and the slack are at least half of the expected value.
    weak: bool,
}

impl Deviation {
    /// The deviation of values, one per seed.
    pub fn of(values: &[f64], expected: f64, slack: f64) -> Self {
        let Estimate { mean, se } = Estimate::of(values);
        let beyond = (mean - expected).abs() - slack;
        Self { errors: if beyond <= 0.0 { 0.0 } else { beyond / se }, weak: 3.0 * se + slack >= 0.5 * expected.abs() }
    }
}

/// Measures whether 95% of the deviations are within three standard errors, and all within five.
pub fn followed(deviations: &[Deviation], slack: f64, place: String) -> Result<Measured> {
    if deviations.is_empty() {
        return Err(Error::new("", "no round after the start is recorded by all seeds", ""));
    }
    let count = deviations.len() as f64;
    let within = deviations.iter().filter(|d| d.errors <= 3.0).count() as f64 / count;
    // A deviation that is NaN, for example of a diverged run, counts as the worst.
    let worst = deviations.iter().map(|d| if d.errors.is_nan() { f64::INFINITY } else { d.errors }).fold(0.0, f64::max);
    let beside = if slack > 0.0 { format!(", beside a tolerance of {}", percent(slack)) } else { String::new() };
    let measured = Measured::new(within, Asked::within(Some(0.95), None), place);
    Ok(Measured {
        allowance: format!(
            "the share of {count} rounds within 3 SE; the furthest is off by {} SE, at most 5 allowed{beside}",
            number(worst)
        ),
        besides: (worst > 5.0).then(|| format!("one round is off by {} SE", number(worst))),
        // If noise hides half of the curve at most rounds, any curve of this size would pass.
        weak: deviations.iter().filter(|d| d.weak).count() as f64 > 0.5 * count,
        ..measured
    })
}
