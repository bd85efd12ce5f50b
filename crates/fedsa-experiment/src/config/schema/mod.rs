//! The tables of an experiment file, one file per table.

mod check;
mod federation;
mod figure;
mod method;
mod run;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use toml::Value;

pub use check::{Check, Unmeasured};
pub use federation::FederationSpec;
pub use figure::{Band, CostLevel, CurveCentre, FigureKind, FigureSpec, Levels, MetricNames};
pub use method::{Centre, ControlsStart, Expect, ExpectAt, ExpectedStatus, OutputName, OutputSpec};
pub(super) use method::{METHOD_COMMON, MethodCommon};
pub use run::{Grid, GridTable, Refused, RunSpec, Seeds, Spacing, StartSpec, Stop};

use super::schema_parts;
use super::sweep::{Sweep, Variant};

/// The top level of a file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Top {
    /// The name; the output folder is `out/<id>`.
    pub id: Option<String>,
    /// The figure's title; by default the id.
    pub title: Option<String>,
    /// A description, ignored by the program.
    #[expect(dead_code, reason = "for readers of the file only")]
    description: Option<String>,
    /// The agents' operators.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "schema_parts::problem")]
    problem: Option<Value>,
    /// How agents sample their operators.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "schema_parts::sampling")]
    sampling: Option<Value>,
    /// The methods to run.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "schema_parts::method")]
    method: Option<Value>,
    /// Rounds, seeds, start, recording.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "run_schema")]
    run: Option<Value>,
    /// The sweeps.
    #[serde(default)]
    pub sweep: Vec<Sweep>,
    /// Alternative settings of several keys.
    #[serde(default)]
    pub variant: Vec<Variant>,
    /// The figure.
    #[serde(default)]
    pub figure: FigureSpec,
    /// The checks of the results.
    #[serde(default)]
    pub check: Vec<Check>,
    /// Timeouts and rules for answers in federations of machines; ignored in one process.
    #[serde(default)]
    pub federation: FederationSpec,
    /// Dotted keys and values of `--quick`.
    #[expect(dead_code, reason = "applied to the tree")]
    #[schemars(schema_with = "schema_parts::quick")]
    quick: Option<Value>,
}

/// The schema of `[run]`, any key of which a sweep may set.
fn run_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut run = RunSpec::json_schema(generator);
    run.remove("required");
    run
}
