//! The keys of `[[method]]` in addition to the settings of its kind.

use std::collections::BTreeMap;

use fedsa::error::{Result, require};
use fedsa::problem::copies::CopyRule;
use fedsa::record::OutputRule;
use fedsa::settings::choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::run::StartSpec;
use crate::config::link::{DownlinkSpec, UplinkSpec};

/// Keys of a `[[method]]` outside its kind's settings: those of all methods, and those of `shaped_keys`, which only some kinds have.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct MethodCommon {
    /// The name in tables, pictures, checks and dotted keys; by default the kind.
    #[serde(default)]
    pub label: Option<String>,
    /// The method's `theta_0`; by default the run's.
    #[serde(default)]
    pub start: Option<StartSpec>,
    /// The initial control variates.
    #[serde(default)]
    pub controls: ControlsStart,
    /// The reference point of the metric `error`.
    #[serde(default)]
    pub measure_from: Centre,
    /// The measured iterate or average.
    #[serde(default)]
    pub output: OutputSpec,
    /// The expected status of its runs.
    #[serde(default)]
    pub expect: Option<Expect>,
    /// The link from agents to the server.
    #[serde(default)]
    pub uplink: UplinkSpec,
    /// The link from the server to agents.
    #[serde(default)]
    pub downlink: DownlinkSpec,
}

/// The keys of [`MethodCommon`].
pub(in crate::config) const METHOD_COMMON: &[&str] =
    &["label", "start", "controls", "measure_from", "output", "expect", "uplink", "downlink"];

/// The initial control variates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Controls")]
pub enum ControlsStart {
    /// 0.
    #[default]
    Zero,
    /// `xi*_c = -gbar_c(theta*)`.
    Ideal,
}

/// The reference point of the `error` metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Centre {
    /// `theta*`.
    #[default]
    Root,
    /// FedLSA's limit, `theta*` plus its bias.
    Limit,
}

/// The output of a method.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema)]
#[schemars(untagged, deny_unknown_fields)]
pub enum OutputSpec {
    /// One of the iterates, or their mean.
    Name(OutputName),
    /// The average of the last rounds.
    Tail {
        /// The averaged share of the rounds: 0.5 for the last half.
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        tail: f64,
    },
    /// Runs with the steps eta, 2 eta and, of three, 4 eta on the same samples, combined so that the bias is smaller.
    Extrapolated {
        /// Runs: 2 or 3.
        #[schemars(range(min = 2, max = 3))]
        extrapolate: usize,
        /// The averaged share of the rounds; the last iterate without it.
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        tail: Option<f64>,
    },
    /// theta* plus the difference from a linear twin, a run of the linearised problem on the same samples. It shows small biases.
    Twin {
        /// True.
        linear_twin: bool,
        /// The averaged share of the rounds; the last iterate without it.
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        tail: Option<f64>,
    },
    /// One iterate, drawn with weights `Q^-(t+1)` (\[T\] Theorem 5.3: `Q = 1 - alpha mu / 2`).
    Weighted {
        /// Q, in (0, 1].
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        weighted: f64,
    },
}

/// The table form of `output`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputTable {
    /// The average over this share of the rounds, counted from the end.
    tail: Option<f64>,
    /// One iterate, drawn with weights `q^-(t+1)` for this q.
    weighted: Option<f64>,
    /// The number of runs with other steps.
    extrapolate: Option<usize>,
    /// Whether to subtract a linear twin.
    linear_twin: Option<bool>,
}

choice!(OutputSpec, "\"last\", \"average\", { tail = SHARE }, { weighted = Q }, { extrapolate = 2 } or { linear_twin = true }",
    text OutputName => |name| Ok(OutputSpec::Name(name)),
    table OutputTable => |table| match table {
        OutputTable { tail, weighted: None, extrapolate: Some(extrapolate), linear_twin: None } => Ok(OutputSpec::Extrapolated { extrapolate, tail }),
        OutputTable { tail, weighted: None, extrapolate: None, linear_twin: Some(true) } => Ok(OutputSpec::Twin { linear_twin: true, tail }),
        OutputTable { tail: Some(tail), weighted: None, extrapolate: None, linear_twin: None } => Ok(OutputSpec::Tail { tail }),
        OutputTable { tail: None, weighted: Some(weighted), extrapolate: None, linear_twin: None } => Ok(OutputSpec::Weighted { weighted }),
        _ => Err("one of tail, weighted, extrapolate and linear_twin; tail also with one of the last two"),
    },
);

/// An iterate, or a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutputName {
    /// `theta_t`.
    Last,
    /// The mean of all iterates (Polyak and Ruppert).
    Average,
}

impl Default for OutputSpec {
    fn default() -> Self {
        OutputSpec::Name(OutputName::Last)
    }
}

impl OutputSpec {
    /// The library's rule for a run of `rounds`.
    ///
    /// # Errors
    /// When `tail` or `weighted` is not in (0, 1].
    pub fn rule(self, rounds: u64) -> Result<OutputRule> {
        match self {
            OutputSpec::Name(OutputName::Last) => Ok(OutputRule::Last),
            OutputSpec::Name(OutputName::Average) => Ok(OutputRule::Average),
            OutputSpec::Extrapolated { tail: None, .. } | OutputSpec::Twin { tail: None, .. } => Ok(OutputRule::Last),
            OutputSpec::Tail { tail } | OutputSpec::Extrapolated { tail: Some(tail), .. } | OutputSpec::Twin { tail: Some(tail), .. } => {
                require(tail > 0.0 && tail <= 1.0, "output.tail", tail, "a share in (0, 1]")?;
                Ok(OutputRule::TailAfter(((1.0 - tail) * rounds as f64).round() as u64))
            }
            OutputSpec::Weighted { weighted } => {
                require(weighted > 0.0 && weighted <= 1.0, "output.weighted", weighted, "in (0, 1]")?;
                Ok(OutputRule::Weighted(weighted))
            }
        }
    }
}

impl OutputSpec {
    /// The copies of theta whose combination is the output, if it is one.
    ///
    /// # Errors
    /// When their number is not 2 or 3.
    pub fn copies(self) -> Result<Option<CopyRule>> {
        match self {
            OutputSpec::Extrapolated { extrapolate, .. } => {
                require((2..=3).contains(&extrapolate), "output.extrapolate", extrapolate, "2 or 3")?;
                Ok(Some(if extrapolate == 2 { CopyRule::Two } else { CopyRule::Three }))
            }
            OutputSpec::Twin { .. } => Ok(Some(CopyRule::LinearTwin)),
            _ => Ok(None),
        }
    }
}

/// The expected status of a run.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Expect {
    /// At every point.
    Always(ExpectedStatus),
    /// At some points.
    At(Vec<ExpectAt>),
}

choice!(Expect, "\"ok\", \"diverges\", \"misses-target\", or [{ at = { .. }, status = \"diverges\" }] for sweep points",
    text ExpectedStatus => |status| Ok(Expect::Always(status)),
    list Vec<ExpectAt> => |list| Ok(Expect::At(list)),
);

/// The expected status at some points.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ExpectAt {
    /// Their coordinates.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: BTreeMap<String, Value>,
    /// The status.
    pub status: ExpectedStatus,
}

/// Statuses of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedStatus {
    /// The run does not diverge, and reaches its target if any.
    Ok,
    /// The iterates diverge.
    Diverges,
    /// The run misses its target `run.stop`.
    MissesTarget,
}
