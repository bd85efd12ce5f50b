//! `[[check]]`: expected results.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::config::schema_parts;

/// A `[[check]]`: compares a measured with an expected quantity. See `docs/src/reference/check.md`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Check {
    /// The kind of check.
    pub kind: String,
    /// The check's name; generated from the other keys by default.
    #[serde(default)]
    pub name: Option<String>,
    /// The label of the method that is checked.
    #[serde(default)]
    pub method: Option<String>,
    /// The label of the method to compare with.
    #[serde(default)]
    pub over: Option<String>,
    /// The metric: mse by default.
    #[serde(default)]
    pub metric: Option<String>,
    /// Coordinates of the points to check; all points by default.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: BTreeMap<String, Value>,
    /// Checks only points with eta H of at least this value.
    #[serde(default)]
    pub min_eta_h: Option<f64>,
    /// Checks only points with eta H of at most this value.
    #[serde(default)]
    pub max_eta_h: Option<f64>,
    /// The coordinate over which points are fitted or compared.
    #[serde(default)]
    pub along: Option<String>,
    /// The expected value: a number, or the name of a predicted quantity.
    #[serde(default)]
    #[schemars(schema_with = "schema_parts::number_or_name")]
    pub expected: Option<Value>,
    /// Relative tolerance (absolute for slopes).
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Number of standard errors that are allowed in addition to the tolerance.
    #[serde(default)]
    pub se: Option<f64>,
    /// Whether the larger of tolerance and standard errors is allowed, instead of their sum.
    #[serde(default)]
    pub larger: bool,
    /// The smallest accepted value.
    #[serde(default)]
    pub min: Option<f64>,
    /// The largest accepted value.
    #[serde(default)]
    pub max: Option<f64>,
    /// The round by which the value is read; the last round by default.
    #[serde(default)]
    pub by: Option<u64>,
    /// The first round that is considered.
    #[serde(default)]
    pub after: Option<u64>,
    /// The level that the metric must reach.
    #[serde(default)]
    pub level: Option<f64>,
    /// The count that measures cost; bits_up by default.
    #[serde(default)]
    pub cost: Option<String>,
    /// Checks only points where the predicted bias2 exceeds this multiple of the predicted noise.
    #[serde(default)]
    pub bias_over_noise: Option<f64>,
    /// The reason why the check is expected to fail, if it is.
    #[serde(default)]
    pub expected_to_fail: Option<String>,
    /// How a check that cannot be measured is treated.
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

/// How a check is treated that no run of the file can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unmeasured {
    /// The file is refused as bad input.
    #[default]
    Error,
    /// The check is reported as not measured and does not affect the exit status. The program writes this value into
    /// `config.toml` for checks that options of the command line leave unmeasured.
    Note,
}
