//! The outcome of a check: numbers, whether it holds, and its line in the report.

use fedsa::error::{Error, Result};
use serde::Serialize;

use crate::numbers::{number, percent, precise, rough};

/// The outcome of a check. With several points, the numbers are those of the point with the clearest failure, or else the point nearest to
/// failing.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// The check's name; the statement by default.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The label of the method.
    pub method: String,
    /// The check's statement in words.
    pub statement: String,
    /// The measured value; `None` if it is unknown or not finite.
    pub measured: Option<f64>,
    /// The expected value, if it is a number and not a range.
    pub expected: Option<f64>,
    /// The lower end of the accepted range.
    pub min: Option<f64>,
    /// The upper end of the accepted range.
    pub max: Option<f64>,
    /// The allowed absolute deviation from `expected`, or beyond `min` and `max`.
    pub tolerance: Option<f64>,
    /// The standard error of the measured value; `None` with one seed, or if it is undefined.
    pub standard_error: Option<f64>,
    /// Whether it held; false when it could not be measured.
    pub pass: bool,
    /// The reason why the check is expected to fail, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_to_fail: Option<String>,
    /// Whether `pass` is as expected. An unmeasured check is not, unless options of the command line are the cause, or it has `unmeasured =
    /// "note"`.
    pub as_expected: bool,
    /// Whether the check is weak at one or more points: see `Asked::is_weak`.
    pub weak: bool,
    /// The number of points at which it was measured.
    pub points: usize,
    /// The number of points at which it fails.
    pub failing: usize,
    /// The number of points at which it is weak.
    pub weak_points: usize,
    /// The point of the numbers; empty without a sweep.
    pub point: String,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether it need not be measured.
    #[serde(skip)]
    pub excused: bool,
    /// The composition of the tolerance in words.
    #[serde(skip)]
    allowance: String,
    /// The measured and the accepted values in words.
    #[serde(skip)]
    asked: String,
}

/// The accepted values of a measured number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Asked {
    /// Values that differ from `expected` by at most `tolerance`.
    Near { expected: f64, tolerance: f64 },
    /// Values from `min` to `max`, either of which may be infinite, widened by `slack`.
    Within { min: f64, max: f64, slack: f64 },
}

impl Asked {
    /// Values near a number.
    pub fn near(expected: f64, tolerance: f64) -> Self {
        Asked::Near { expected, tolerance }
    }

    /// Values in a range, without slack.
    pub fn within(min: Option<f64>, max: Option<f64>) -> Self {
        Asked::Within { min: min.unwrap_or(f64::NEG_INFINITY), max: max.unwrap_or(f64::INFINITY), slack: 0.0 }
    }

    /// The distance of a number from failing, relative to the size of the bound or expected value; negative if it fails.
    fn margin(self, x: f64) -> f64 {
        let margin = match self {
            Asked::Near { expected, tolerance } => (tolerance - (x - expected).abs()) / scale(expected),
            Asked::Within { min, max, slack } => {
                // An infinite bound is never approached.
                let below = if min == f64::NEG_INFINITY { f64::INFINITY } else { (x - (min - slack)) / scale(min) };
                let above = if max == f64::INFINITY { f64::INFINITY } else { (max + slack - x) / scale(max) };
                below.min(above)
            }
        };
        if x.is_nan() || margin.is_nan() { f64::NEG_INFINITY } else { margin }
    }

    /// Whether a number is accepted.
    pub fn holds(self, x: f64) -> bool {
        match self {
            Asked::Near { expected, tolerance } => (x - expected).abs() <= tolerance,
            Asked::Within { min, max, slack } => x >= min - slack && x <= max + slack,
        }
    }

    /// Whether almost any number is accepted: the allowed deviation is at least half of `expected`, `min` or `max`, or the only bound is a
    /// minimum of at most 0 for a quantity that is never negative. An expected 0 sets no scale and is never weak.
    pub fn is_weak(self) -> bool {
        match self {
            Asked::Near { expected, tolerance } => expected != 0.0 && tolerance >= 0.5 * expected.abs(),
            Asked::Within { min, max, slack } => {
                let too_wide = |bound: f64| bound.is_finite() && bound != 0.0 && slack >= 0.5 * bound.abs();
                too_wide(min) || too_wide(max) || (max == f64::INFINITY && min - slack <= 0.0)
            }
        }
    }

    fn text(self) -> String {
        match self {
            Asked::Near { expected, tolerance } => format!("{} +- {}", precise(expected, tolerance), rough(tolerance)),
            Asked::Within { min, max, slack } => {
                let range = range(min, max);
                if slack > 0.0 { format!("{range} +- {}", rough(slack)) } else { range }
            }
        }
    }

    /// A measured number with enough digits to show on which side of a bound it lies.
    fn shown(self, x: f64) -> String {
        precise(
            x,
            match self {
                Asked::Near { tolerance, .. } => tolerance,
                Asked::Within { min, max, .. } => (x - min).abs().min((x - max).abs()),
            },
        )
    }

    /// The allowed deviation.
    fn tolerance(self) -> f64 {
        match self {
            Asked::Near { tolerance, .. } => tolerance,
            Asked::Within { slack, .. } => slack,
        }
    }
}

/// The scale of deviations from a number.
fn scale(x: f64) -> f64 {
    if x.is_finite() && x != 0.0 { x.abs() } else { 1.0 }
}

/// A range in words.
pub(super) fn range(min: f64, max: f64) -> String {
    match (min.is_finite(), max.is_finite()) {
        (true, true) if min == max => number(min),
        (true, true) => format!("{} to {}", number(min), number(max)),
        (true, false) => format!("at least {}", number(min)),
        (false, true) => format!("at most {}", number(max)),
        (false, false) => "anything".into(),
    }
}

/// The measurement of a check at one point.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// The number.
    pub value: f64,
    /// The accepted values.
    pub asked: Asked,
    /// The standard error of the number, if it is known.
    pub standard_error: Option<f64>,
    /// The composition of the tolerance in words.
    pub allowance: String,
    /// A reason why the check fails although the number is accepted.
    pub besides: Option<String>,
    /// Whether the check is weak at this point.
    pub weak: bool,
    /// The point.
    pub place: String,
}

impl Measured {
    /// A measured number with its accepted values.
    pub fn new(value: f64, asked: Asked, place: String) -> Self {
        Self { value, asked, standard_error: None, allowance: String::new(), besides: None, weak: asked.is_weak(), place }
    }

    fn holds(&self) -> bool {
        self.asked.holds(self.value) && self.besides.is_none()
    }

    fn margin(&self) -> f64 {
        if self.besides.is_some() { f64::NEG_INFINITY } else { self.asked.margin(self.value) }
    }
}

/// The composition of an allowed deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Allowance {
    /// The relative tolerance.
    pub relative: f64,
    /// The number of standard errors.
    pub se: f64,
    /// Whether the larger of both is allowed instead of their sum.
    pub larger: bool,
}

impl Allowance {
    /// The deviation allowed from an expected value.
    pub fn of(self, expected: f64, standard_error: f64) -> f64 {
        let (relative, random) = (self.relative * expected.abs(), self.se * standard_error);
        if self.larger { relative.max(random) } else { relative + random }
    }

    /// In words: `tolerance 10% and 3 SE of 6.2e-5`.
    pub fn text(self, standard_error: Option<f64>) -> String {
        let relative = (self.relative > 0.0).then(|| format!("tolerance {}", percent(self.relative)));
        let random = standard_error.filter(|_| self.se > 0.0).map(|error| format!("{} SE of {}", number(self.se), rough(error)));
        let joined = if self.larger { " or, if larger, " } else { " and " };
        relative.into_iter().chain(random).collect::<Vec<_>>().join(joined)
    }
}

/// A check's identification and statement, without its outcome.
pub(super) struct CheckSubject {
    pub name: Option<String>,
    pub kind: String,
    pub method: String,
    pub statement: String,
    pub expected_to_fail: Option<String>,
}

impl Verdict {
    /// The outcome of a check, from its measurements at all points.
    pub(super) fn of(about: CheckSubject, measured: Result<Vec<Measured>>) -> Self {
        let measured = measured.and_then(|all| match all.is_empty() {
            true => Err(Error::new("", "there is no point that the check is about", "")),
            false => Ok(all),
        });
        let mut verdict = Self::empty(about);
        let all = match measured {
            Ok(all) => all,
            Err(e) => {
                verdict.why = Some(e.what);
                return verdict;
            }
        };
        let worst = all.iter().min_by(|a, b| (a.holds(), a.margin()).partial_cmp(&(b.holds(), b.margin())).expect("no NaN")).expect("some");
        let (points, failing) = (all.len(), all.iter().filter(|m| !m.holds()).count());
        let weak_points = all.iter().filter(|m| m.weak).count();
        let (expected, min, max) = match worst.asked {
            Asked::Near { expected, .. } => (Some(expected), None, None),
            Asked::Within { min, max, .. } => (None, finite(min), finite(max)),
        };
        verdict.measured = finite(worst.value);
        (verdict.expected, verdict.min, verdict.max) = (expected, min, max);
        verdict.tolerance = finite(worst.asked.tolerance());
        verdict.standard_error = worst.standard_error.and_then(finite);
        verdict.pass = failing == 0;
        verdict.as_expected = verdict.pass == verdict.expected_to_fail.is_none();
        (verdict.weak, verdict.points, verdict.failing, verdict.weak_points) = (weak_points > 0, points, failing, weak_points);
        verdict.point = worst.place.clone();
        verdict.asked = format!("{}, expected {}", worst.asked.shown(worst.value), worst.asked.text());
        if let Some(besides) = &worst.besides {
            verdict.asked.push_str(&format!(", but {besides}"));
        }
        verdict.allowance = worst.allowance.clone();
        verdict
    }

    /// The outcome of a check that is not measured and does not affect the exit status.
    pub(super) fn excused(about: CheckSubject, why: String) -> Self {
        Self { why: Some(why), as_expected: true, excused: true, ..Self::empty(about) }
    }

    fn empty(about: CheckSubject) -> Self {
        Self {
            name: about.name.unwrap_or_else(|| about.statement.clone()),
            kind: about.kind,
            method: about.method,
            statement: about.statement,
            measured: None,
            expected: None,
            min: None,
            max: None,
            tolerance: None,
            standard_error: None,
            pass: false,
            expected_to_fail: about.expected_to_fail,
            as_expected: false,
            weak: false,
            points: 0,
            failing: 0,
            weak_points: 0,
            point: String::new(),
            why: None,
            excused: false,
            allowance: String::new(),
            asked: String::new(),
        }
    }

    /// Whether it is a note: not as expected with quick settings, or not measured and excused.
    pub fn is_note(&self, quick: bool) -> bool {
        self.excused || (quick && !self.as_expected)
    }

    /// The line of a report: `ok: NAME: 2.74e-4, expected 8.76e-5 +- 2.1e-4 (tolerance 10% and 3 SE of 6.2e-5)`.
    pub fn line(&self, quick: bool) -> String {
        if let Some(why) = &self.why {
            return match (self.excused, quick) {
                (true, _) => format!("not measured: {}: {why}", self.name),
                (false, true) => format!("note: could not be measured with the quick settings: {}: {why}", self.name),
                (false, false) => format!("FAILED: {}: could not be measured: {why}", self.name),
            };
        }
        let word = match (self.pass, self.as_expected, quick) {
            (true, true, _) => "ok",
            (false, true, _) => "fails as expected",
            (true, false, false) => "HOLDS, though expected to fail",
            (true, false, true) => "note: holds with the quick settings, though expected to fail",
            (false, false, true) => "note: not met with the quick settings",
            (false, false, false) => "FAILED",
        };
        let weak = match (self.weak_points, self.points) {
            // A failed check is not weak.
            (0, _) => String::new(),
            _ if !self.pass => String::new(),
            (k, n) if k == n => "this would hold for almost anything".to_string(),
            (k, n) => format!("at {k} of {n} points this would hold for almost anything"),
        };
        let aside: Vec<&str> = [self.allowance.as_str(), &weak].into_iter().filter(|s| !s.is_empty()).collect();
        let aside = if aside.is_empty() { String::new() } else { format!(" ({})", aside.join("; ")) };
        let place = match (self.points, self.failing) {
            (1, _) if self.point.is_empty() => String::new(),
            (1, _) => format!("; at {}", self.point),
            (n, 0) => format!("; holds at all {n} points, nearest to failing at {}", self.point),
            (n, k) => format!("; fails at {k} of {n} points, most clearly at {}", self.point),
        };
        format!("{word}: {}: {}{aside}{place}", self.name, self.asked)
    }

    /// The note under a picture, for checks that fail, hold unexpectedly or are not measured.
    pub fn note(&self, quick: bool) -> Option<String> {
        let name = &self.name;
        if let Some(why) = &self.why {
            let reason = self.expected_to_fail.is_none() || !self.as_expected || self.excused;
            return reason.then(|| format!("Not measured: {name}: {why}"));
        }
        match (self.pass, &self.expected_to_fail) {
            (false, Some(reason)) => Some(format!("Expected to fail: {name}: {reason}")),
            (false, None) if quick => Some(format!("Not met with the quick settings: {name}")),
            (false, None) => Some(format!("Check failed: {name}")),
            (true, Some(_)) => {
                let with = if quick { " with the quick settings" } else { "" };
                Some(format!("Expected to fail, but holds{with}: {name}"))
            }
            (true, None) => None,
        }
    }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(expected_to_fail: Option<&str>) -> CheckSubject {
        let (name, kind, method) = (Some("SCAFFLSA stops at its noise".to_string()), "floor".to_string(), "SCAFFLSA".to_string());
        CheckSubject { name, kind, method, statement: "the floor".into(), expected_to_fail: expected_to_fail.map(str::to_string) }
    }

    fn floor(value: f64, expected: f64, error: f64, place: &str) -> Measured {
        let allowance = Allowance { relative: 0.1, se: 3.0, larger: false };
        let asked = Asked::near(expected, allowance.of(expected, error));
        Measured { standard_error: Some(error), allowance: allowance.text(Some(error)), ..Measured::new(value, asked, place.into()) }
    }

    #[test]
    fn a_line_says_value_expectation_and_tolerance() {
        let weak = Verdict::of(about(None), Ok(vec![floor(2.7367e-4, 8.764284e-5, 6.234e-5, "")]));
        assert_eq!(
            weak.line(false),
            "ok: SCAFFLSA stops at its noise: 2.74e-4, expected 8.76e-5 +- 2.0e-4 (tolerance 10% and 3 SE of 6.2e-5; \
             this would hold for almost anything)"
        );
        assert!(weak.pass && weak.weak && weak.measured == Some(2.7367e-4) && weak.expected == Some(8.764284e-5));
        assert_eq!(weak.tolerance, Some(0.1 * 8.764284e-5 + 3.0 * 6.234e-5));
        let fails = Verdict::of(about(None), Ok(vec![floor(2.0, 1.0, 0.01, "N = 1"), floor(9.0, 1.0, 0.01, "N = 2")]));
        assert_eq!(
            fails.line(false),
            "FAILED: SCAFFLSA stops at its noise: 9, expected 1 +- 0.13 (tolerance 10% and 3 SE of 0.01); \
             fails at 2 of 2 points, most clearly at N = 2"
        );
        assert!(fails.line(true).starts_with("note: not met with the quick settings: SCAFFLSA"));
        let one = Verdict::of(about(Some("why")), Ok(vec![floor(1.05, 1.0, 0.01, "N = 1"), floor(1.2, 1.0, 0.1, "N = 2")]));
        assert!(one.line(false).starts_with("HOLDS, though expected to fail: ") && !one.as_expected, "{}", one.line(false));
        assert!(one.line(false).ends_with("; holds at all 2 points, nearest to failing at N = 1"), "{}", one.line(false));
    }

    #[test]
    fn ranges_say_what_lies_in_them() {
        let line = |asked: Asked, value: f64| Verdict::of(about(None), Ok(vec![Measured::new(value, asked, String::new())])).line(false);
        assert_eq!(line(Asked::within(Some(1.5), None), 2.7993), "ok: SCAFFLSA stops at its noise: 2.80, expected at least 1.5");
        assert_eq!(line(Asked::within(Some(1.5), None), 1.49996), "FAILED: SCAFFLSA stops at its noise: 1.49996, expected at least 1.5");
        assert_eq!(
            line(Asked::Within { min: 1.0, max: 1.2, slack: 0.01 }, 1.1),
            "ok: SCAFFLSA stops at its noise: 1.1, expected 1 to 1.2 +- 0.01"
        );
        assert!(
            line(Asked::within(None, Some(1e-20)), f64::NAN).starts_with("FAILED: SCAFFLSA stops at its noise: not a number, expected")
        );
    }

    #[test]
    fn both_ends_of_a_range_have_slack_and_the_nearer_one_counts() {
        let asked = Asked::Within { min: 1.0, max: 2.0, slack: 0.1 };
        for (x, holds) in [(0.89, false), (0.91, true), (2.09, true), (2.11, false)] {
            assert_eq!(asked.holds(x), holds, "{x}");
            assert_eq!(asked.margin(x) >= 0.0, holds, "{x}");
        }
        // (0.95 - 0.9) / 1 and (2.1 - 1.9) / 2 are nearer than the other ends.
        assert!((asked.margin(0.95) - 0.05).abs() < 1e-12 && (asked.margin(1.9) - 0.1).abs() < 1e-12);
        assert_eq!(Asked::within(Some(1.0), None).margin(1.5), 0.5);
        assert_eq!(Asked::within(None, None).margin(1.5), f64::INFINITY);
    }

    #[test]
    fn a_check_holds_if_it_holds_at_all_points() {
        let asked = Asked::within(None, Some(1.0));
        let at = |x: f64, place: &str| Measured::new(x, asked, place.into());
        let verdict = Verdict::of(about(None), Ok(vec![at(0.5, "N = 1"), at(1.5, "N = 2"), at(0.9, "N = 3")]));
        assert!(!verdict.pass && !verdict.as_expected);
        assert_eq!((verdict.points, verdict.failing, verdict.point.as_str()), (3, 1, "N = 2"));
    }

    #[test]
    fn what_is_not_measured_never_fails_as_expected() {
        let missing = || Err(Error::new("", "FedLSA diverged", ""));
        let verdict = Verdict::of(about(Some("it diverges")), missing());
        assert!(!verdict.pass && !verdict.as_expected && verdict.measured.is_none());
        assert_eq!(verdict.line(false), "FAILED: SCAFFLSA stops at its noise: could not be measured: FedLSA diverged");
        assert_eq!(verdict.note(false).unwrap(), "Not measured: SCAFFLSA stops at its noise: FedLSA diverged");
        assert!(!Verdict::of(about(None), Ok(Vec::new())).as_expected);
        let excused = Verdict::excused(about(Some("it diverges")), "one seed".into());
        assert!(excused.as_expected && !excused.pass && excused.is_note(false));
        assert_eq!(excused.line(false), "not measured: SCAFFLSA stops at its noise: one seed");
    }

    #[test]
    fn what_holds_for_almost_anything_is_weak() {
        let near = Asked::near;
        let within = |min, max, slack| Asked::Within { min, max, slack };
        let infinite = f64::INFINITY;
        for (asked, weak) in [
            (near(1.0, 0.49), false),
            (near(1.0, 0.5), true),
            (near(-1.0, 0.6), true),
            (near(0.0, 0.2), false),
            (within(5.0, infinite, 0.0), false),
            (within(0.0, infinite, 0.0), true),
            (within(5.0, infinite, 5.0), true),
            (within(-infinite, 1.0, 0.0), false),
            (within(0.0, 1.0445, 0.01), false),
            (within(-infinite, 1.0, 0.7), true),
        ] {
            assert_eq!(asked.is_weak(), weak, "{asked:?}");
        }
    }
}
