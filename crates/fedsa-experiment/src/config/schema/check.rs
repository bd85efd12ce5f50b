//! `[[check]]`: expected results.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::config::schema_parts;

/// A `[[check]]`: compares a measured with an expected quantity.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Check {
    /// The kind of check.
    pub kind: String,
    /// The statement; by default composed of the other keys.
    #[serde(default)]
    pub name: Option<String>,
    /// Label of the method.
    #[serde(default)]
    pub method: Option<String>,
    /// Label of the other method.
    #[serde(default)]
    pub over: Option<String>,
    /// The metric; `mse` by default.
    #[serde(default)]
    pub metric: Option<String>,
    /// Coordinates of points, each a value or a list; all by default.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: BTreeMap<String, Value>,
    /// The smallest eta H of points, eta the largest step size.
    #[serde(default)]
    pub min_eta_h: Option<f64>,
    /// The largest eta H of points.
    #[serde(default)]
    pub max_eta_h: Option<f64>,
    /// The coordinate that points are compared along.
    #[serde(default)]
    pub along: Option<String>,
    /// A number; for `floor` also a predicted quantity.
    #[serde(default)]
    #[schemars(schema_with = "schema_parts::number_or_name")]
    pub expected: Option<Value>,
    /// Relative tolerance, absolute for `slope`; 0 by default.
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Standard errors added to the tolerance; 3 by default, 0 with one seed.
    #[serde(default)]
    pub se: Option<f64>,
    /// Allows the larger of tolerance and standard errors instead of the sum.
    #[serde(default)]
    pub larger: bool,
    /// The smallest accepted value.
    #[serde(default)]
    pub min: Option<f64>,
    /// The largest accepted value.
    #[serde(default)]
    pub max: Option<f64>,
    /// The round of the metric; the last by default.
    #[serde(default)]
    pub by: Option<u64>,
    /// The first round that counts; 0 by default.
    #[serde(default)]
    pub after: Option<u64>,
    /// The level to reach.
    #[serde(default)]
    pub level: Option<f64>,
    /// The count; `bits_up` by default.
    #[serde(default)]
    pub cost: Option<String>,
    /// Least ratio of predicted `bias2` to `noise` at checked points.
    #[serde(default)]
    pub bias_over_noise: Option<f64>,
    /// Why the check fails; one that holds is then unexpected.
    #[serde(default)]
    pub expected_to_fail: Option<String>,
    /// Treatment of a check that no run can answer.
    #[serde(default)]
    pub unmeasured: Unmeasured,
}

impl Check {
    /// The metric that is checked.
    pub fn metric_name(&self) -> &str {
        self.metric.as_deref().unwrap_or("mse")
    }

    /// The label of the method of a validated check.
    pub fn method_label(&self) -> &str {
        self.method.as_deref().expect("validated")
    }

    /// The label of the method to compare with, of a validated check that has one.
    pub fn over_label(&self) -> &str {
        self.over.as_deref().expect("validated")
    }

    /// The expected number; NaN if `expected` is the name of a quantity or absent.
    pub fn number(&self) -> f64 {
        let value = self.expected.as_ref();
        value.and_then(|v| v.as_float().or(v.as_integer().map(|i| i as f64))).unwrap_or(f64::NAN)
    }
}

/// Treatment of a check that no run can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unmeasured {
    /// The file is bad input.
    #[default]
    Error,
    /// The check counts as not measured and leaves the exit status alone. The program writes this into `config.toml` if command-line
    /// options leave a check unmeasured.
    Note,
}
