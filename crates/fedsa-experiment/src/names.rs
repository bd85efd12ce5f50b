//! The names in experiment files: metrics, counts, predicted quantities.

use std::sync::LazyLock;

use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use fedsa_theory::predict;

use crate::axis::Axis;

/// The names of all metrics.
pub fn metrics() -> Vec<&'static str> {
    METRICS.iter().map(|metric| metric.name).collect()
}

/// The names of the metrics that theory predicts.
pub fn predicted_metrics() -> Vec<&'static str> {
    METRICS.iter().filter(|metric| metric.is_predicted).map(|metric| metric.name).collect()
}

/// The names of all counts.
pub fn counts() -> Vec<&'static str> {
    COUNTS.iter().map(|count| count.name).collect()
}

/// The names of all axes of curves.
pub fn axes() -> Vec<&'static str> {
    counts().into_iter().chain([Axis::SECONDS]).collect()
}

/// The exact mean-square error over the last fifth of the rounds of a run, which may be far from its limit.
pub const FINITE_FLOOR: &str = "finite_floor";

/// Names of predicted quantities: the library's, with the floor of a finite run after the floor.
pub static QUANTITIES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let own = |name: &'static str| [Some(name), (name == "floor").then_some(FINITE_FLOOR)];
    predict::QUANTITIES.iter().flat_map(|quantity| own(quantity.name)).flatten().collect()
});
