//! The kinds of checks in files: their keys, and the accepted values.
//!
//! `checks/kinds/` has what each kind measures.

use toml::Value;

use crate::config::Check;
use crate::names::{self, QUANTITIES};

/// The keys and values that a kind of check accepts.
pub struct CheckRules {
    /// The name of the kind.
    pub name: &'static str,
    /// Required keys, in addition to those that every check needs.
    pub(super) needs: &'static [&'static str],
    /// Keys of which at least one is required, if the list is not empty.
    pub(super) needs_one: &'static [&'static str],
    /// Optional keys, in addition to those that every check may have.
    pub(super) takes: &'static [&'static str],
    /// Keys that `min` or `max` would make ineffective.
    pub(super) ignored_beside_range: &'static [&'static str],
    /// The names that `metric` accepts.
    pub(super) metrics: fn(&Check) -> Vec<&'static str>,
    /// Whether `expected` may name a predicted quantity.
    pub(super) may_expect_quantities: bool,
    /// Refuses an expected number that no run can have. The error is the text of the accepted values.
    pub(super) accepts: fn(f64) -> Result<(), &'static str>,
}

/// A kind with only the common keys, for all metrics and any number.
const PLAIN: CheckRules = CheckRules {
    name: "",
    needs: &[],
    needs_one: &[],
    takes: &[],
    ignored_beside_range: &[],
    metrics: |_| names::metrics(),
    may_expect_quantities: false,
    accepts: |_| Ok(()),
};

/// All kinds.
const CHECK_KINDS: &[CheckRules] = &[
    CheckRules {
        name: "floor",
        needs: &["expected"],
        takes: &["metric", "tolerance", "se", "larger"],
        may_expect_quantities: true,
        metrics: metrics_of_floor,
        accepts: at_least_0,
        ..PLAIN
    },
    CheckRules {
        name: "ratio",
        needs: &["over"],
        needs_one: &["min", "max", "tolerance"],
        takes: &["metric", "se"],
        ignored_beside_range: &["tolerance"],
        ..PLAIN
    },
    CheckRules { name: "reaches", needs: &["max"], takes: &["metric", "by"], ..PLAIN },
    CheckRules { name: "curve", takes: &["metric", "tolerance"], metrics: |_| names::predicted_metrics(), ..PLAIN },
    CheckRules { name: "slope", needs: &["along", "expected", "tolerance"], takes: &["metric"], ..PLAIN },
    CheckRules { name: "spread", needs: &["along", "tolerance"], takes: &["metric", "se"], ..PLAIN },
    CheckRules { name: "coincide", needs: &["tolerance"], needs_one: &["along", "over"], takes: &["metric"], ..PLAIN },
    CheckRules { name: "rounds", needs: &["over", "max", "tolerance"], takes: &["metric", "expected"], accepts: positive, ..PLAIN },
    CheckRules { name: "predicted", needs: &["metric", "expected", "tolerance"], metrics: |_| QUANTITIES.to_vec(), ..PLAIN },
    CheckRules {
        name: "final",
        needs_one: &["expected", "min", "max"],
        takes: &["metric", "tolerance", "se", "larger", "by", "along"],
        ignored_beside_range: &["expected", "tolerance", "se", "larger"],
        metrics: |_| [names::metrics(), vec!["distance"]].concat(),
        accepts: at_least_0,
        ..PLAIN
    },
    CheckRules { name: "gap", needs: &["over", "along", "min"], takes: &["metric"], ..PLAIN },
    CheckRules { name: "peak", needs_one: &["min", "max"], takes: &["metric", "after"], ..PLAIN },
    CheckRules { name: "cost", needs: &["level"], needs_one: &["min", "max"], takes: &["over", "metric", "cost", "along"], ..PLAIN },
    CheckRules { name: "rate", needs: &["by"], needs_one: &["min", "max"], takes: &["metric", "after"], ..PLAIN },
];

/// The names of the kinds.
pub fn names() -> Vec<&'static str> {
    CHECK_KINDS.iter().map(|rules| rules.name).collect()
}

/// The rules of a check whose kind is known.
pub(super) fn rules_of(check: &Check) -> &'static CheckRules {
    CHECK_KINDS.iter().find(|rules| rules.name == check.kind).expect("validated")
}

/// The metrics of floors; with a predicted quantity, those that theory predicts.
fn metrics_of_floor(check: &Check) -> Vec<&'static str> {
    let against_theory = matches!(check.expected, Some(Value::String(_)));
    if against_theory { names::predicted_metrics() } else { names::metrics() }
}

/// Accepts values that a metric can have.
fn at_least_0(expected: f64) -> Result<(), &'static str> {
    if expected >= 0.0 { Ok(()) } else { Err("at least 0, as metrics are") }
}

fn positive(expected: f64) -> Result<(), &'static str> {
    if expected > 0.0 { Ok(()) } else { Err("a positive number") }
}
