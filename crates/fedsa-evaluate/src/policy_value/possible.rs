//! The values that logged rewards allow.

use super::ValueEstimate;

/// The tolerance, relative to the largest possible magnitude of a value, because features are inexact.
const SLACK: f64 = 0.01;

/// The range of the values that rewards allow: from `r / (1 - gamma)` for the least reward r to that for the greatest one, and including 0 if
/// episodes end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PossibleValues {
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
}

impl PossibleValues {
    /// For the least and the greatest reward.
    pub fn new((least, most): (f64, f64), gamma: f64, ends: bool) -> Self {
        // Without discount, returns of long episodes have no bound.
        let forever = |r: f64| if r == 0.0 { 0.0 } else { r / (1.0 - gamma) };
        let (low, high) = (forever(least), forever(most));
        if ends { Self { low: low.min(0.0), high: high.max(0.0) } } else { Self { low, high } }
    }

    /// Whether the range has both ends.
    pub fn is_bounded(self) -> bool {
        (self.high - self.low).is_finite()
    }

    /// Whether a value is possible. One that is not finite is not known, and says nothing.
    pub fn allow(self, value: f64) -> bool {
        let slack = if self.is_bounded() { SLACK * self.low.abs().max(self.high.abs()) } else { 0.0 };
        !value.is_finite() || (self.low - slack..=self.high + slack).contains(&value)
    }

    /// Whether an estimate is possible: its interval overlaps the range.
    pub fn allow_estimate(self, e: &ValueEstimate) -> bool {
        match e.low.is_finite() && e.high.is_finite() {
            true => self.allow(e.estimate.clamp(self.low, self.high).clamp(e.low, e.high)),
            false => self.allow(e.estimate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewards_bound_values() {
        let of = |rewards, ends| PossibleValues::new(rewards, 0.9, ends);
        let close = |x: PossibleValues, low: f64, high: f64| (x.low - low).abs() < 1e-12 && (x.high - high).abs() < 1e-12;
        assert!(close(of((1.0, 2.0), false), 10.0, 20.0));
        assert!(close(of((1.0, 2.0), true), 0.0, 20.0));
        assert!(close(of((-3.0, -1.0), true), -30.0, 0.0));
        let all = PossibleValues::new((0.0, 1.0), 1.0, true);
        assert_eq!((all.low, all.high, all.is_bounded()), (0.0, f64::INFINITY, false));
        assert!(all.allow(1e300) && !all.allow(-1e-3));
    }

    #[test]
    fn estimates_are_possible_if_their_intervals_reach_the_range() {
        let range = PossibleValues { low: 0.0, high: 20.0 };
        let is_possible = |estimate, se| range.allow_estimate(&ValueEstimate::new(estimate, se, 1000, 1000.0, 0.95));
        // The slack is .2.
        assert!(range.allow(20.19) && !range.allow(20.21) && range.allow(f64::NAN));
        assert!(is_possible(20.19, 0.0) && !is_possible(20.21, 0.0) && is_possible(21.0, 0.5) && !is_possible(21.0, 0.3));
        assert!(is_possible(-1.0, 0.5) && !is_possible(-1.0, 0.3) && is_possible(10.0, 1.0) && is_possible(10.0, 100.0));
        assert!(is_possible(10.0, f64::NAN) && !is_possible(30.0, f64::NAN));
    }
}
