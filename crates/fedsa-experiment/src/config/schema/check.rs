//! `[[check]]`: what must hold of the results.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use crate::config::json_schema;

/// A `[[check]]`: what is measured against what is expected. See `experiments/README.md`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What kind of statement it is.
    pub kind: String,
    /// Its name; made from the other keys where absent.
    #[serde(default)]
    pub name: Option<String>,
    /// The method's label.
    #[serde(default)]
    pub method: Option<String>,
    /// The method it is compared with.
    #[serde(default)]
    pub over: Option<String>,
    /// The metric: mse by default.
    #[serde(default)]
    pub metric: Option<String>,
    /// Coordinates of the points it is about; all points by default.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: BTreeMap<String, Value>,
    /// Only points with eta H at least this.
    #[serde(default)]
    pub min_eta_h: Option<f64>,
    /// Only points with eta H at most this.
    #[serde(default)]
    pub max_eta_h: Option<f64>,
    /// The coordinate along which something is fitted or compared.
    #[serde(default)]
    pub along: Option<String>,
    /// A number, or the name of a predicted quantity.
    #[serde(default)]
    #[schemars(schema_with = "json_schema::number_or_name")]
    pub expected: Option<Value>,
    /// Relative tolerance (absolute for slopes).
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Standard errors allowed beside the tolerance.
    #[serde(default)]
    pub se: Option<f64>,
    /// Whether the larger of tolerance and standard errors is allowed instead of their sum.
    #[serde(default)]
    pub larger: bool,
    /// The least value.
    #[serde(default)]
    pub min: Option<f64>,
    /// The greatest value.
    #[serde(default)]
    pub max: Option<f64>,
    /// By which round.
    #[serde(default)]
    pub by: Option<u64>,
    /// From which round on.
    #[serde(default)]
    pub after: Option<u64>,
    /// The level of the metric that is to be reached.
    #[serde(default)]
    pub level: Option<f64>,
    /// What is paid for it: bits_up by default.
    #[serde(default)]
    pub cost: Option<String>,
    /// Only points where this holds of predicted quantities: bias2 > this times noise.
    #[serde(default)]
    pub bias_over_noise: Option<f64>,
    /// Why it is expected to fail.
    #[serde(default)]
    pub expected_to_fail: Option<String>,
    /// What becomes of it when it cannot be measured.
    #[serde(default)]
    pub unmeasured: Unmeasured,
}

/// What becomes of a check that a run can never answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unmeasured {
    /// It is bad input.
    #[default]
    Error,
    /// It is reported as not measured, and does not count: what options of the command line
    /// leave unmeasured is written so into `config.toml`.
    Note,
}
