//! The tables of an experiment file.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fedsa::error::{BadInput, Result, quoted, require};
use fedsa::record::OutputRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Value;

use super::document::Document;
use super::json_schema;
use super::link::{DownlinkSpec, UplinkSpec};
use super::reader::Reader;
use super::strict::choice;
use super::sweep::{self, Point, Sweep, Variant};
use super::{read, short};
use crate::error::Failure;
use crate::figure::{Format, Theme};

/// An experiment: what its file says, with sweeps expanded.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The file.
    pub document: Document,
    /// Its name; the output folder's by default.
    pub id: String,
    /// A line about it, the figure's title.
    pub title: String,
    /// The figure.
    pub figure: Figure,
    /// What must hold.
    pub checks: Vec<Check>,
    /// One per combination of variants and sweep values; one if there are none.
    pub points: Vec<Arc<Point>>,
}

/// The `[run]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// Rounds T.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub rounds: u64,
    /// A count (seeds 0, 1, ..), or a list.
    #[serde(default)]
    pub seeds: Seeds,
    /// `theta_0`.
    #[serde(default)]
    pub start: Start,
    /// The recorded rounds.
    #[serde(default)]
    pub record: Grid,
    /// Stops a run early.
    #[serde(default, skip_serializing_if = "Stop::is_never")]
    pub stop: Stop,
    /// What becomes of methods that cannot live with their link.
    #[serde(default, skip_serializing_if = "Refused::is_error")]
    pub refused: Refused,
}

/// What becomes of a method that cannot live with what its link delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Refused {
    /// It is bad input.
    #[default]
    Error,
    /// It is not run, and shown as refused with the reason: for tables of combinations.
    Skip,
}

impl Refused {
    fn is_error(&self) -> bool {
        *self == Refused::Error
    }
}

/// Seeds: how many, or which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a count of seeds, or a list of seeds, whole numbers of at least 0")]
pub enum Seeds {
    /// 0, 1, .., n - 1.
    Count(u64),
    /// These.
    List(Vec<u64>),
}

/// The most seeds.
const MAX_SEEDS: usize = 10_000_000;
/// The most rounds that are recorded of a run.
const MAX_RECORDED: u64 = 10_000_000;

impl Default for Seeds {
    fn default() -> Self {
        Seeds::Count(1)
    }
}

impl Seeds {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Seeds::Count(n) => usize::try_from(*n).unwrap_or(usize::MAX),
            Seeds::List(seeds) => seeds.len(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let accepted = format!("a count from 1 to {MAX_SEEDS}, or a list of different seeds");
        if !(1..=MAX_SEEDS).contains(&self.count()) {
            return Err(BadInput::new("seeds", format!("{} seeds", self.count()), accepted));
        }
        // Counted seeds differ.
        let Seeds::List(seeds) = self else { return Ok(()) };
        let mut seen = std::collections::HashSet::new();
        match seeds.iter().find(|seed| !seen.insert(**seed)) {
            None => Ok(()),
            Some(twice) => Err(BadInput::new("seeds", format!("the seed {twice} is given twice"), accepted)),
        }
    }

    /// All seeds.
    pub fn list(&self) -> Vec<u64> {
        match self {
            Seeds::Count(n) => (0..*n).collect(),
            Seeds::List(seeds) => seeds.clone(),
        }
    }
}

/// `theta_0`: zero, root, root+1, normal, limit (FedLSA's), a list, or an `.npz` or `.json` file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "zero, root, root+1, normal, limit or a file in quotes, or a list of numbers")]
pub enum Start {
    /// A name, or a file.
    Name(String),
    /// The components.
    List(Vec<f64>),
}

impl Default for Start {
    fn default() -> Self {
        Start::Name("zero".into())
    }
}

/// The recorded rounds; round 0 and the last are always among them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Grid {
    /// These rounds.
    List(Vec<u64>),
    /// Every so many rounds, or so many points.
    Table(GridTable),
}

choice!(Grid, "{ every = K }, { points = K, spacing = \"even\" or \"log\" }, or a list of rounds",
    list Vec<u64> => |list| Ok(Grid::List(list)),
    table GridTable => |table| Ok(Grid::Table(table)),
);

/// `{ every = 10 }`, or `{ points = 200, spacing = "log" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GridTable {
    /// Every so many rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every: Option<u64>,
    /// At most so many rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub points: Option<u64>,
    /// How the points lie: evenly where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spacing: Option<Spacing>,
}

/// How recorded rounds lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Evenly.
    #[default]
    Even,
    /// Evenly in the logarithm.
    Log,
}

impl Default for Grid {
    fn default() -> Self {
        Grid::Table(GridTable { every: None, points: Some(500), spacing: Some(Spacing::Even) })
    }
}

impl Grid {
    /// The recorded rounds of `rounds`, increasing, 0 and the last among them.
    pub fn rounds(&self, rounds: u64) -> Vec<u64> {
        let mut out: Vec<u64> = match self {
            Grid::List(list) => list.iter().copied().filter(|t| *t <= rounds).collect(),
            Grid::Table(GridTable { every: Some(k), .. }) => (0..=rounds / k).map(|i| i * k).collect(),
            Grid::Table(GridTable { points, spacing, .. }) => {
                let n = points.unwrap_or(500).min(rounds);
                match spacing.unwrap_or_default() {
                    Spacing::Even => (0..=n).map(|i| (u128::from(i) * u128::from(rounds) / u128::from(n.max(1))) as u64).collect(),
                    Spacing::Log => (0..=n).map(|i| (rounds as f64).powf(i as f64 / n.max(1) as f64).round() as u64).collect(),
                }
            }
        };
        out.extend([0, rounds]);
        out.sort_unstable();
        out.dedup();
        out
    }

    pub(super) fn check(&self, rounds: u64) -> Result<()> {
        let t = match self {
            Grid::Table(table) => table,
            Grid::List(list) => {
                let mut seen = HashSet::new();
                let late = list.iter().position(|t| *t > rounds);
                let twice = list.iter().position(|t| !seen.insert(*t));
                let Some(i) = late.or(twice) else { return Ok(()) };
                let what = match late {
                    Some(_) => format!("the round {} of a run of {rounds}", list[i]),
                    None => format!("the round {} is given twice", list[i]),
                };
                return Err(BadInput::new(format!("record[{i}]"), what, format!("different rounds, at most rounds = {rounds}")));
            }
        };
        require(t.every.is_none_or(|k| k >= 1), "record.every", t.every.unwrap_or(0), "at least 1")?;
        require(t.points.is_none_or(|n| n >= 1), "record.points", t.points.unwrap_or(0), "at least 1")?;
        if t.every.is_some() && t.points.is_some() {
            return Err(BadInput::new("record", "both every and points", "every or points"));
        }
        if t.every.is_some() && t.spacing.is_some() {
            return Err(BadInput::new("record.spacing", "a spacing of every so many rounds", "points = K beside spacing, or every alone"));
        }
        let recorded = t.every.map_or(t.points.unwrap_or(500).min(rounds), |k| rounds / k);
        let what = format!("{recorded} recorded rounds");
        require(recorded <= MAX_RECORDED, "record", what, &format!("at most {MAX_RECORDED}: every = {}", rounds / MAX_RECORDED + 1))
    }
}

/// When a run stops early; the first that holds at a recorded round.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// `||theta - theta*||^2` at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub mse: Option<f64>,
    /// `||mean gbar(theta)||` at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub residual: Option<f64>,
    /// `||mean gbar(theta)||` at most this times what it was at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub relative_residual: Option<f64>,
}

impl Stop {
    /// The residuals that it asks for, either of which would do, of a run that starts at one.
    pub fn residuals(&self, at_start: f64) -> impl Iterator<Item = f64> {
        [self.residual, self.relative_residual.map(|x| x * at_start)].into_iter().flatten()
    }

    fn is_never(&self) -> bool {
        *self == Stop::default()
    }
}

/// The keys of a `[[method]]` beside the settings of its kind: those that every method has, and
/// those of [`super::shaped_keys`], which mean nothing to some kinds.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MethodCommon {
    /// Its name in tables, pictures, checks and dotted keys; the kind by default.
    #[serde(default)]
    pub label: Option<String>,
    /// Its own `theta_0`.
    #[serde(default)]
    pub start: Option<Start>,
    /// What control variates start at.
    #[serde(default)]
    pub controls: Controls,
    /// What the metric `error` is measured from.
    #[serde(default)]
    pub measure_from: Centre,
    /// What is measured and written.
    #[serde(default)]
    pub output: OutputSpec,
    /// The status that it must end with.
    #[serde(default)]
    pub expect: Option<Expect>,
    /// What agents' messages pass.
    #[serde(default)]
    pub uplink: UplinkSpec,
    /// What the server's messages pass.
    #[serde(default)]
    pub downlink: DownlinkSpec,
}

/// The keys of [`MethodCommon`].
pub(super) const METHOD_COMMON: &[&str] = &["label", "start", "controls", "measure_from", "output", "expect", "uplink", "downlink"];

/// What control variates start at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Controls {
    /// 0.
    #[default]
    Zero,
    /// `xi*_c = -gbar_c(theta*)`.
    Ideal,
}

/// What the `error` metric is measured from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Centre {
    /// `theta*`.
    #[default]
    Root,
    /// FedLSA's limit, `theta*` plus its bias.
    Limit,
}

/// What a method gives out: `"last"`, `"average"` (Polyak and Ruppert), or `{ tail = 0.5 }`,
/// the average of the last half of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema)]
#[schemars(untagged, deny_unknown_fields)]
pub enum OutputSpec {
    /// last or average.
    Name(OutputName),
    /// A tail average.
    Tail {
        /// The share of the rounds that is averaged, the last ones.
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        tail: f64,
    },
    /// One iterate, drawn with weights `Q^-(t+1)` (\[T\] Theorem 5.3: `Q = 1 - alpha mu / 2`).
    Weighted {
        /// Q, in (0, 1].
        #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
        weighted: f64,
    },
}

/// The table of an `output`: one of its keys.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputTable {
    /// The average over this share of the rounds, the last ones.
    tail: Option<f64>,
    /// One iterate, drawn with weights `q^-(t+1)` for this q.
    weighted: Option<f64>,
}

choice!(OutputSpec, "\"last\", \"average\", { tail = SHARE } or { weighted = Q }",
    text OutputName => |name| Ok(OutputSpec::Name(name)),
    table OutputTable => |table| match table {
        OutputTable { tail: Some(tail), weighted: None } => Ok(OutputSpec::Tail { tail }),
        OutputTable { tail: None, weighted: Some(weighted) } => Ok(OutputSpec::Weighted { weighted }),
        _ => Err("one of tail and weighted"),
    },
);

/// last or average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutputName {
    /// `theta_t`.
    Last,
    /// The mean of all iterates.
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
    /// When the tail is not a share.
    pub fn rule(self, rounds: u64) -> Result<OutputRule> {
        match self {
            OutputSpec::Name(OutputName::Last) => Ok(OutputRule::Last),
            OutputSpec::Name(OutputName::Average) => Ok(OutputRule::Average),
            OutputSpec::Tail { tail } => {
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

/// A status other than ok that a run is expected to end with.
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

/// A status that is expected at a point.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectAt {
    /// The coordinates.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub at: BTreeMap<String, Value>,
    /// The status.
    pub status: ExpectedStatus,
}

/// The statuses that can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedStatus {
    /// All rounds done.
    Ok,
    /// The iterates leave every bound.
    Diverges,
    /// The target of `run.stop` is not reached.
    MissesTarget,
}

/// The `[figure]` table.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// curves (a metric along the rounds), scaling (floors along a coordinate), cost (what
    /// it takes to reach a level, along a coordinate) or table (floors in numbers).
    pub kind: FigureKind,
    /// The horizontal axis: round, exchanges, samples, bits_up, or for scaling and cost a
    /// coordinate; for a table the coordinate whose values are columns.
    pub x: Option<String>,
    /// The metric, or several.
    pub y: Option<Metrics>,
    /// What is paid: bits_up by default.
    pub cost: Option<String>,
    /// The level of the metric that is to be reached, or several.
    pub level: Option<Levels>,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: Option<bool>,
    /// mean or median over seeds; mean by default.
    pub centre: Option<CurveCentre>,
    /// What bands around means are; standard errors by default where a prediction is drawn, else standard deviations.
    pub band: Option<Band>,
    /// Coordinates that make panels; all, for curves, by default.
    pub panels: Option<Vec<String>>,
    /// Predicted levels (along the coordinate, for scaling), as method label -> quantities.
    pub levels: BTreeMap<String, Vec<String>>,
    /// Predicted curves: labels of methods whose exact mean-square error is drawn.
    pub exact: Vec<String>,
    /// Whether a panel of measured over exact means is drawn under each panel.
    pub ratios: bool,
    /// The slope of a reference line.
    pub slope: Option<f64>,
    /// The range of the vertical axis.
    pub y_range: Option<[f64; 2]>,
    /// Whether panels have one vertical range; by default where each fills a good part of it.
    pub share_y: Option<bool>,
    /// Panels per row.
    pub columns: Option<usize>,
    /// The picture's width in pixels.
    pub width: Option<f64>,
    /// Dots of a PNG to an inch of 96 pixels.
    pub dpi: Option<f64>,
    /// light or dark.
    pub theme: Theme,
    /// What is written: svg, png, pdf.
    pub formats: Option<Vec<Format>>,
}

/// One metric or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "the name of a metric in quotes, or a list of them")]
pub enum Metrics {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Metrics {
    /// As a list.
    pub fn list(&self) -> Vec<&str> {
        match self {
            Metrics::One(m) => vec![m],
            Metrics::Many(all) => all.iter().map(String::as_str).collect(),
        }
    }
}

/// One level or several.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a positive number, or a list of them")]
pub enum Levels {
    /// One.
    One(f64),
    /// Several.
    Many(Vec<f64>),
}

impl Levels {
    /// As a list.
    pub fn list(&self) -> &[f64] {
        match self {
            Levels::One(x) => std::slice::from_ref(x),
            Levels::Many(all) => all,
        }
    }
}

/// What the figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A metric along the rounds.
    #[default]
    Curves,
    /// Floors along a coordinate.
    Scaling,
    /// What it takes to reach a level of the metric, along a coordinate.
    Cost,
    /// Floors in numbers.
    Table,
}

/// The middle of a band over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CurveCentre {
    /// The mean.
    Mean,
    /// The median.
    Median,
}

/// A band around a mean over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Band {
    /// One standard deviation.
    Deviation,
    /// One standard error.
    Error,
    /// No band.
    None,
}

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

/// What stands at the top of a file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Top {
    /// The experiment's name; the output folder is `out/<id>`.
    id: Option<String>,
    /// The title of the figure; the id by default.
    title: Option<String>,
    /// For readers of the file.
    #[expect(dead_code, reason = "for readers of the file only")]
    description: Option<String>,
    /// The agents' operators.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "json_schema::problem")]
    problem: Option<Value>,
    /// How operators are seen.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "json_schema::sampling")]
    sampling: Option<Value>,
    /// What runs.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "json_schema::method")]
    method: Option<Value>,
    /// Rounds, seeds, start, recording.
    #[expect(dead_code, reason = "read point by point")]
    #[schemars(schema_with = "json_schema::run")]
    run: Option<Value>,
    /// What is varied.
    #[serde(default)]
    sweep: Vec<Sweep>,
    /// Alternative settings of several keys.
    #[serde(default)]
    variant: Vec<Variant>,
    /// What is drawn.
    #[serde(default)]
    figure: Figure,
    /// What must hold.
    #[serde(default)]
    check: Vec<Check>,
    /// Smaller settings for `--quick`: dotted keys and values.
    #[expect(dead_code, reason = "applied to the tree")]
    #[schemars(schema_with = "json_schema::quick")]
    quick: Option<Value>,
}

/// The longest id, in bytes: names of files have at most 255.
const LONGEST_ID: usize = 200;

impl Experiment {
    /// Reads a document: expands sweeps and checks every point's tables, though not yet their values.
    ///
    /// # Errors
    /// When a key is unknown, missing or of the wrong type, at its line.
    pub fn read(document: Document) -> Result<Self, Failure> {
        let parsed = Self::read_unlocated(&document);
        parsed.map_err(|e| document.failure(e))
    }

    fn read_unlocated(document: &Document) -> Result<Self> {
        let Top { id, title, sweep: sweeps, variant: variants, figure, check: checks, .. } = read(Value::Table(document.table.clone()))?;
        let id = id.unwrap_or_else(|| {
            let stem = std::path::Path::new(&document.name).file_stem();
            stem.map_or("run".into(), |s| s.to_string_lossy().into_owned())
        });
        let is_folder = |part: &str| !part.is_empty() && !part.starts_with(".fedsa") && ![".", ".."].contains(&part);
        let sane = id.split('/').all(is_folder) && id.len() <= LONGEST_ID;
        require(sane, "id", format!("\"{}\"", quoted(&id)), "a relative path of at most 200 bytes without `.` and `..`, not of .fedsa")?;
        sweep::shown(&id).map_err(|e| e.inside("id"))?;
        if let Some(title) = &title {
            sweep::shown(title).map_err(|e| e.inside("title"))?;
        }
        let points = sweep::expand(document, sweeps, variants)?;
        Ok(Self { id: id.clone(), title: title.unwrap_or(id), figure, checks, points, document: document.clone() })
    }

    /// Reads all points' tables and checks what they say of each other.
    ///
    /// # Errors
    /// As the tables' keys demand, at their lines.
    pub fn settings(&self) -> Result<(), Failure> {
        self.read_all(|| (), |(), _| Ok(())).map(|_| ())
    }

    /// Reads all points' tables, in parallel, and keeps what `keep` makes of each, in the points' order;
    /// `begin` makes what `keep` remembers from point to point.
    ///
    /// # Errors
    /// As the tables' keys demand, or `keep`'s, at the line: those of the first point that has one.
    pub fn read_all<M, K: Send>(
        &self,
        begin: impl Fn() -> M + Sync,
        keep: impl Fn(&mut M, &Reader) -> Result<K> + Sync,
    ) -> Result<Vec<K>, Failure> {
        use rayon::prelude::*;
        /// Points that are read with one reader, which reads once what they share.
        const CHUNK: usize = 256;
        let labels = self.labels().map_err(|e| self.failure_at(e, &self.points[0]))?;
        let chunks: Vec<_> = (0..self.points.len()).step_by(CHUNK).collect();
        let read = |first: &usize| {
            let (mut reader, mut memory) = (Reader::default(), begin());
            let mut seen = Seen::default();
            let mut kept = Vec::new();
            for i in *first..self.points.len().min(first + CHUNK) {
                let point = &self.points[i];
                let mut one = || {
                    reader.read(point)?;
                    for (m, (method, first)) in reader.methods.iter().zip(&labels).enumerate() {
                        if method.label != *first {
                            let what = format!("`{}`, but `{}` at the first point", quoted(&method.label), quoted(first));
                            return Err(BadInput::new(format!("method[{m}].label"), what, "the same label at every point"));
                        }
                    }
                    seen.see(&reader, i == *first);
                    keep(&mut memory, &reader)
                };
                kept.push(one().map_err(|e| (i, e))?);
            }
            Ok((kept, seen))
        };
        let chunks: Vec<Result<_, (usize, BadInput)>> = chunks.par_iter().map(read).collect();
        let mut all = Vec::with_capacity(self.points.len());
        let mut seen: Option<Seen> = None;
        for chunk in chunks {
            let (kept, own) = chunk.map_err(|(i, e)| self.failure_at(e, &self.points[i]))?;
            all.extend(kept);
            seen = Some(seen.map_or_else(|| own.clone(), |before| before.and(&own)));
        }
        seen.map_or(Ok(()), |seen| seen.check(self)).map_err(|e| self.failure_at(e, &self.points[0]))?;
        Ok(all)
    }

    /// The labels of the methods, in the file's order; the same at every point.
    ///
    /// # Errors
    /// As the tables' keys demand.
    pub fn labels(&self) -> Result<Vec<String>> {
        let mut reader = Reader::default();
        reader.read(&self.points[0])?;
        Ok(reader.methods.iter().map(|method| method.label.clone()).collect())
    }

    /// An error about a key at a sweep point, which is named where there are several.
    pub fn failure_at(&self, e: BadInput, point: &Point) -> Failure {
        let e = if point.label.is_empty() { e } else { BadInput { what: format!("{} (at {})", e.what, quoted(&point.label)), ..e } };
        self.document.failure_at(e, &point.origins())
    }
}

/// What has been seen of several points.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Settings that had no effect at any of them.
    idle: Vec<BadInput>,
    /// For each method the entries of `expect` that were the first to match somewhere.
    matched: Vec<HashSet<usize>>,
    /// The `expect` of each method, where it is a list; the longest.
    expected: Vec<Vec<ExpectAt>>,
}

impl Seen {
    fn see(&mut self, reader: &Reader, is_first: bool) {
        let idle = reader.idle();
        match is_first {
            true => self.idle = idle,
            false => self.idle.retain(|e| idle.iter().any(|other| other.key == e.key)),
        }
        self.matched.resize_with(reader.methods.len(), HashSet::new);
        self.expected.resize_with(reader.methods.len(), Vec::new);
        for (m, method) in reader.methods.iter().enumerate() {
            self.matched[m].extend(method.expected_by);
            if let Some(Expect::At(list)) = reader.expect(m)
                && list.len() > self.expected[m].len()
            {
                self.expected[m].clone_from(list);
            }
        }
    }

    /// Of these points and those.
    fn and(mut self, other: &Seen) -> Self {
        self.idle.retain(|e| other.idle.iter().any(|idle| idle.key == e.key));
        for (m, matched) in other.matched.iter().enumerate() {
            self.matched[m].extend(matched);
            if other.expected[m].len() > self.expected[m].len() {
                self.expected[m].clone_from(&other.expected[m]);
            }
        }
        self
    }

    /// Refuses what has no effect at any point.
    fn check(&self, experiment: &Experiment) -> Result<()> {
        if let Some(idle) = self.idle.first() {
            return Err(idle.clone());
        }
        let unmatched = |(m, list): (usize, &Vec<ExpectAt>)| Some((m, (0..list.len()).find(|j| !self.matched[m].contains(j))?));
        let Some((m, j)) = self.expected.iter().enumerate().find_map(unmatched) else { return Ok(()) };
        let (entry, key, names) = (&self.expected[m][j], format!("method[{m}].expect[{j}]"), experiment.coordinate_names());
        if let Some(name) = entry.at.keys().find(|name| !names.contains(&name.as_str())) {
            let near = super::did_you_mean(super::nearest(name, names.iter().copied()));
            let what = format!("nothing that is swept is called `{}`{near}", quoted(name));
            let accepted =
                if names.is_empty() { "expect = \"diverges\", or a sweep".into() } else { format!("one of {}", names.join(", ")) };
            return Err(BadInput::new(format!("{key}.at.{name}"), what, accepted));
        }
        let at: Vec<String> = entry.at.iter().map(|(name, value)| format!("{name} = {}", short(value))).collect();
        let what = format!("no point is at {}, or entries before this one match all that are", at.join(", "));
        Err(BadInput::new(key, what, "values that are swept, and each point in one entry"))
    }
}

impl Experiment {
    /// The names of everything that is swept, sorted.
    pub fn coordinate_names(&self) -> Vec<&str> {
        let names: HashSet<&str> = self.points.iter().flat_map(|p| &p.coordinates).map(|(name, _)| name.as_str()).collect();
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names
    }
}
