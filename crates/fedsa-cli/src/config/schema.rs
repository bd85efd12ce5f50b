//! The tables of an experiment file.

use std::collections::BTreeMap;

use fedsa::error::{BadInput, Result, require};
use fedsa::methods;
use fedsa::record::OutputRule;
use fedsa::sampling::Sampling;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::document::{self, Assignment, Document, From, Origin, assignments};
use super::link::{self, DownlinkSpec, UplinkSpec};
use super::{find_kind, read, read_kind};
use crate::error::Failure;

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
    pub points: Vec<Point>,
}

/// One setting of everything that is swept.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The `point` column: `eta = 0.1, H = 10`; empty when nothing is swept.
    pub label: String,
    /// Short name and value of everything that is swept, in the file's order.
    pub coordinates: Vec<(String, Value)>,
    /// The file's tree at this point.
    pub table: Table,
    /// What variants and sweeps set here.
    pub origins: Vec<Origin>,
}

impl Point {
    /// The value of a coordinate as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        let (_, value) = self.coordinates.iter().find(|(n, _)| n == name)?;
        number(value)
    }

    /// Whether the coordinates have all of these values.
    pub fn is_at(&self, at: &BTreeMap<String, Value>) -> bool {
        at.iter().all(|(name, value)| self.coordinates.iter().any(|(n, v)| n == name && same(v, value)))
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// Whether two values are the same; `1` and `1.0` are, and one of a list is enough.
fn same(value: &Value, wanted: &Value) -> bool {
    match (number(value), number(wanted), wanted) {
        (Some(x), Some(y), _) => x == y,
        (_, _, Value::Array(any)) => any.iter().any(|w| same(value, w)),
        _ => value == wanted,
    }
}

/// A `[[sweep]]`: one key and its values, or several keys that move together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    /// A dotted key.
    #[serde(default)]
    key: Option<String>,
    /// Dotted keys; each value is then a list of as many.
    #[serde(default)]
    keys: Option<Vec<String>>,
    values: Vec<Value>,
    /// The coordinate's name; the last part of the (first) key by default.
    #[serde(default)]
    name: Option<String>,
    /// What the figure and the trace call each value, instead of the value.
    #[serde(default)]
    labels: Option<Vec<String>>,
}

/// A `[[variant]]`: an alternative setting of several keys, with sweeps of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    label: String,
    #[serde(default)]
    set: Table,
    #[serde(default)]
    sweep: Vec<Sweep>,
}

/// The `[run]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// Rounds T.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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

    fn check(&self) -> Result<()> {
        let accepted = format!("a count from 1 to {MAX_SEEDS}, or a list of different seeds");
        if !(1..=MAX_SEEDS).contains(&self.count()) {
            return Err(BadInput::new("seeds", format!("{} seeds", self.count()), accepted));
        }
        let mut seen = std::collections::HashSet::new();
        match self.list().into_iter().find(|seed| !seen.insert(*seed)) {
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "{ every = K }, { points = K, spacing = \"even\" or \"log\" }, or a list of rounds")]
pub enum Grid {
    /// These rounds.
    List(Vec<u64>),
    /// Every so many rounds, or so many points.
    Table(GridTable),
}

/// `{ every = 10 }`, or `{ points = 200, spacing = "log" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridTable {
    /// Every so many rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// At most so many rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u64>,
    /// How the points lie.
    #[serde(default)]
    pub spacing: Spacing,
}

/// How recorded rounds lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
        Grid::Table(GridTable { every: None, points: Some(500), spacing: Spacing::Even })
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
                match spacing {
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

    fn check(&self, rounds: u64) -> Result<()> {
        let Grid::Table(t) = self else { return Ok(()) };
        require(t.every.is_none_or(|k| k >= 1), "record.every", t.every.unwrap_or(0), "at least 1")?;
        require(t.points.is_none_or(|n| n >= 1), "record.points", t.points.unwrap_or(0), "at least 1")?;
        if t.every.is_some() && t.points.is_some() {
            return Err(BadInput::new("record", "both every and points", "every or points"));
        }
        let recorded = t.every.map_or(t.points.unwrap_or(500).min(rounds), |k| rounds / k);
        let what = format!("{recorded} recorded rounds");
        require(recorded <= MAX_RECORDED, "record", what, &format!("at most {MAX_RECORDED}: every = {}", rounds / MAX_RECORDED + 1))
    }
}

/// When a run stops early; the first that holds at a recorded round.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// `||theta - theta*||^2` at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mse: Option<f64>,
    /// `||mean gbar(theta)||` at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual: Option<f64>,
    /// `||mean gbar(theta)||` at most this times what it was at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relative_residual: Option<f64>,
}

impl Stop {
    fn is_never(&self) -> bool {
        *self == Stop::default()
    }
}

/// The keys of a `[[method]]` that every method has, beside the settings of its kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MethodCommon {
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    start: Option<Start>,
    #[serde(default)]
    controls: Controls,
    #[serde(default)]
    measure_from: Centre,
    #[serde(default)]
    output: OutputSpec,
    #[serde(default)]
    expect: Option<Expect>,
    #[serde(default)]
    uplink: UplinkSpec,
    #[serde(default)]
    downlink: DownlinkSpec,
}

const METHOD_COMMON: &[&str] = &["label", "start", "controls", "measure_from", "output", "expect", "uplink", "downlink"];

/// What control variates start at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controls {
    /// 0.
    #[default]
    Zero,
    /// `xi*_c = -gbar_c(theta*)`.
    Ideal,
}

/// What the `error` metric is measured from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "\"last\", \"average\", { tail = SHARE } or { weighted = Q }")]
pub enum OutputSpec {
    /// last or average.
    Name(OutputName),
    /// A tail average.
    Tail {
        /// The share of the rounds that is averaged, the last ones.
        tail: f64,
    },
    /// One iterate, drawn with weights `Q^-(t+1)` (\[T\] Theorem 5.3: `Q = 1 - alpha mu / 2`).
    Weighted {
        /// Q, in (0, 1].
        weighted: f64,
    },
}

/// last or average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "\"ok\", \"diverges\", \"misses-target\", or [{ at = { .. }, status = \"diverges\" }] for sweep points")]
pub enum Expect {
    /// At every point.
    Always(ExpectedStatus),
    /// At some points.
    At(Vec<ExpectAt>),
}

/// A status that is expected at a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectAt {
    /// The coordinates.
    pub at: BTreeMap<String, Value>,
    /// The status.
    pub status: ExpectedStatus,
}

/// The statuses that can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectedStatus {
    /// All rounds done.
    Ok,
    /// The iterates leave every bound.
    Diverges,
    /// The target of `run.stop` is not reached.
    MissesTarget,
}

/// What the tables of one point say.
pub struct Settings {
    /// The problem's.
    pub problem: Box<dyn fedsa::problem::Settings>,
    /// The `[sampling]` table.
    pub sampling: Sampling,
    /// The `[run]` table.
    pub run: RunSpec,
    /// The methods.
    pub methods: Vec<MethodSpec>,
}

/// One `[[method]]` at one point.
pub struct MethodSpec {
    /// Its label, unique in the file.
    pub label: String,
    /// The name of its kind.
    pub kind: &'static str,
    /// Its settings.
    pub settings: Box<dyn methods::Settings>,
    /// Its own start, if it has one.
    pub start: Option<Start>,
    /// What control variates start at.
    pub controls: Controls,
    /// What `error` is measured from.
    pub measure_from: Centre,
    /// What it gives out.
    pub output: OutputSpec,
    /// The status it is expected to end with.
    pub expect: Option<ExpectedStatus>,
    /// Its uplink.
    pub uplink: UplinkSpec,
    /// Its downlink.
    pub downlink: DownlinkSpec,
}

/// The `[figure]` table.
#[derive(Debug, Clone, Default, Deserialize)]
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
    /// mean or median over seeds.
    pub centre: CurveCentre,
    /// Coordinates that make panels; all, for curves, by default.
    pub panels: Option<Vec<String>>,
    /// Predicted levels (along the coordinate, for scaling), as method label -> quantities.
    pub levels: BTreeMap<String, Vec<String>>,
    /// Predicted curves: labels of methods whose exact mean-square error is drawn.
    pub exact: Vec<String>,
    /// The range of the vertical axis.
    pub y_range: Option<[f64; 2]>,
    /// Panels per row.
    pub columns: Option<usize>,
}

/// One metric or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CurveCentre {
    /// The mean.
    #[default]
    Mean,
    /// The median.
    Median,
}

/// A `[[check]]`: what is measured against what is expected. See `experiments/README.md`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
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
}

/// The tables that a file may have.
const TOP: &[&str] =
    &["id", "title", "description", "problem", "sampling", "method", "run", "sweep", "variant", "figure", "check", "quick"];

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
        let table = &document.table;
        if let Some(key) = table.keys().find(|k| !TOP.contains(&k.as_str())) {
            let near = super::nearest(key, TOP.iter().copied());
            let what = format!("unknown key `{key}`{}", super::did_you_mean(near));
            return Err(BadInput::new(key, what, format!("one of {}", TOP.join(", "))));
        }
        let text = |key: &str| match table.get(key) {
            None => Ok(None),
            Some(Value::String(s)) => Ok(Some(s.clone())),
            Some(other) => Err(BadInput::new(key, format!("{other} is not a text"), "a text in quotes")),
        };
        let section = |key: &str| table.get(key).cloned().unwrap_or_else(|| Value::Table(Table::new()));
        let list = |key: &str| table.get(key).cloned().unwrap_or_else(|| Value::Array(Vec::new()));
        text("description")?;
        let sweeps: Vec<Sweep> = read(list("sweep")).map_err(|e| e.inside("sweep"))?;
        let variants: Vec<Variant> = read(list("variant")).map_err(|e| e.inside("variant"))?;
        let figure = read(section("figure")).map_err(|e| e.inside("figure"))?;
        let checks = read(list("check")).map_err(|e| e.inside("check"))?;
        let id = text("id")?.unwrap_or_else(|| {
            let stem = std::path::Path::new(&document.name).file_stem();
            stem.map_or("run".into(), |s| s.to_string_lossy().into_owned())
        });
        let sane = !id.is_empty() && !id.starts_with('/') && !id.split('/').any(|part| part.is_empty() || part == "..");
        require(sane, "id", format!("\"{id}\""), "a relative path without `..`")?;
        let points = expand(document, &sweeps, &variants)?;
        Ok(Self { id: id.clone(), title: text("title")?.unwrap_or(id), figure, checks, points, document: document.clone() })
    }

    /// Reads all points' tables and checks what they say of each other.
    ///
    /// # Errors
    /// As the tables' keys demand, at their lines.
    pub fn settings(&self) -> Result<Vec<Settings>, Failure> {
        let mut all: Vec<Settings> = Vec::new();
        for point in &self.points {
            let read = || {
                let settings =
                    Settings { problem: point.problem()?, sampling: point.sampling()?, run: point.run()?, methods: point.methods()? };
                for (i, method) in settings.methods.iter().enumerate() {
                    let first = all.first().map_or(&method.label, |first| &first.methods[i].label);
                    let what = format!("`{}`, but `{first}` at the first point", method.label);
                    if method.label != *first {
                        return Err(BadInput::new(format!("method[{i}].label"), what, "the same label at every point"));
                    }
                }
                self.check_expected(point)?;
                Ok(settings)
            };
            all.push(read().map_err(|e| self.failure_at(e, point))?);
        }
        Ok(all)
    }

    /// Checks that what is expected somewhere is said of something that is swept.
    fn check_expected(&self, point: &Point) -> Result<()> {
        let tables = point.table.get("method").and_then(Value::as_array);
        for (i, method) in tables.into_iter().flatten().enumerate() {
            let Some(Expect::At(list)) = method.get("expect").cloned().and_then(|value| read(value).ok()) else { continue };
            for (j, name) in list.iter().enumerate().flat_map(|(j, e)| e.at.keys().map(move |name| (j, name))) {
                let mut names: Vec<&str> = self.points.iter().flat_map(|p| &p.coordinates).map(|(n, _)| n.as_str()).collect();
                if !names.contains(&name.as_str()) {
                    names.sort_unstable();
                    names.dedup();
                    let what = format!(
                        "nothing that is swept is called `{name}`{}",
                        super::did_you_mean(super::nearest(name, names.iter().copied()))
                    );
                    let accepted =
                        if names.is_empty() { "expect = \"diverges\", or a sweep".into() } else { format!("one of {}", names.join(", ")) };
                    return Err(BadInput::new(format!("method[{i}].expect[{j}].at.{name}"), what, accepted));
                }
            }
        }
        Ok(())
    }

    /// An error about a key at a sweep point, which is named where there are several.
    pub fn failure_at(&self, e: BadInput, point: &Point) -> Failure {
        let e = if point.label.is_empty() { e } else { BadInput { what: format!("{} (at {})", e.what, point.label), ..e } };
        self.document.failure_at(e, &point.origins)
    }
}

/// The most points that sweeps may come to.
const MAX_POINTS: usize = 100_000;

/// All combinations of variants and sweep values.
fn expand(document: &Document, sweeps: &[Sweep], variants: &[Variant]) -> Result<Vec<Point>> {
    let base = Point { label: String::new(), coordinates: Vec::new(), table: document.table.clone(), origins: Vec::new() };
    let mut points = Vec::new();
    let starts: Vec<(Point, &[Sweep], String)> = if variants.is_empty() {
        vec![(base, &[][..], String::new())]
    } else {
        let each = variants.iter().enumerate().map(|(i, variant)| {
            let mut point = base.clone();
            let place = format!("variant[{i}]");
            for Assignment { key, value, place } in assignments(&variant.set, &format!("{place}.set")) {
                let set = reachable(&key).and_then(|()| document::set(&mut point.table, &key, value));
                let set = set.map_err(|e| BadInput { key: place.clone(), ..e })?;
                point.origins.extend(set.into_iter().map(|key| Origin { key, from: From::Place(place.clone()) }));
            }
            point.coordinates.push(("variant".into(), Value::String(variant.label.clone())));
            Ok((point, variant.sweep.as_slice(), place))
        });
        each.collect::<Result<_>>()?
    };
    for (start, own, place) in starts {
        let mut here = vec![start];
        let all = sweeps.iter().enumerate().map(|(i, s)| (format!("sweep[{i}]"), s));
        let own = own.iter().enumerate().map(|(i, s)| (format!("{place}.sweep[{i}]"), s));
        for (place, sweep) in all.chain(own) {
            let count = here.len().saturating_mul(sweep.values.len());
            let too_many = format!("{} points or more", points.len().saturating_add(count));
            require(points.len().saturating_add(count) <= MAX_POINTS, &place, too_many, "sweeps over at most 100000 points in all")?;
            here = sweep.apply(&here, &place).map_err(|e| if e.key.starts_with(&place) { e } else { e.inside(&place) })?;
        }
        points.extend(here);
    }
    for point in &mut points {
        let text = |(name, value): &(String, Value)| match value {
            Value::String(s) if name == "variant" => s.clone(),
            Value::String(s) => format!("{name}={s}"),
            other => format!("{name}={other}"),
        };
        point.label = point.coordinates.iter().map(text).collect::<Vec<_>>().join(", ");
    }
    let mut labels = std::collections::HashSet::new();
    if let Some(twice) = points.iter().find(|point| !labels.insert(point.label.as_str())) {
        let table = if sweeps.is_empty() { "variant" } else { "sweep" };
        let what = format!("two points are both at `{}`", twice.label);
        return Err(BadInput::new(
            table,
            what,
            "every value and every label once; names that differ for sweeps of keys with the same last part",
        ));
    }
    overridden(document, &points)?;
    Ok(points)
}

/// Refuses options of the command line that no point is left with, because a sweep
/// or every variant sets the same key.
fn overridden(document: &Document, points: &[Point]) -> Result<()> {
    for Origin { key, from } in &document.origins {
        let replaced = |point: &Point| point.origins.iter().any(|later| later.decides(key));
        if matches!(from, From::Flag(_)) && points.iter().all(replaced) {
            let what = "a sweep or variant sets this key at every point, so that the option would do nothing";
            let help = "set what the sweep says, such as --set sweep.0.values=[1,2], or a key that is not swept";
            return Err(BadInput::new(key, what, help));
        }
    }
    Ok(())
}

/// The tables that sweeps and variants reach into.
const SWEPT: &[&str] = &["problem", "sampling", "method", "run"];

/// Checks that a dotted key names something that may differ from point to point.
fn reachable(key: &str) -> Result<()> {
    let first = key.split('.').next().unwrap_or(key);
    if SWEPT.contains(&first) {
        return Ok(());
    }
    let near = super::did_you_mean(super::nearest(first, SWEPT.iter().copied()));
    Err(BadInput::new(
        "",
        format!("`{key}` is in none of the tables that can differ by point{near}"),
        format!("a key in {}", SWEPT.join(", ")),
    ))
}

impl Sweep {
    fn apply(&self, points: &[Point], place: &str) -> Result<Vec<Point>> {
        let keys: Vec<&str> = match (&self.key, &self.keys) {
            (Some(key), None) => vec![key],
            (None, Some(keys)) if !keys.is_empty() => keys.iter().map(String::as_str).collect(),
            (Some(_), Some(_)) => return Err(BadInput::new("keys", "both key and keys", "key for one, or keys that move together")),
            _ => return Err(BadInput::new("", "a sweep needs key or keys", "key = \"run.rounds\", or keys = [..] that move together")),
        };
        require(!self.values.is_empty(), "values", "[]", "a list of at least one value")?;
        if let Some(labels) = &self.labels {
            let accepted = format!("one label per value, {}", self.values.len());
            require(labels.len() == self.values.len(), "labels", format!("a list of {}", labels.len()), &accepted)?;
        }
        for (j, key) in keys.iter().enumerate() {
            let at = if self.keys.is_some() { format!("keys[{j}]") } else { "key".to_string() };
            reachable(key).map_err(|e| BadInput { key: at, ..e })?;
        }
        let name = self.name.clone().unwrap_or_else(|| keys[0].rsplit('.').next().unwrap_or(keys[0]).to_string());
        let mut out = Vec::new();
        for point in points {
            for (i, value) in self.values.iter().enumerate() {
                let (values, places): (Vec<&Value>, Vec<String>) = match (value, &self.keys) {
                    (_, None) => (vec![value], vec![format!("{place}.values[{i}]")]),
                    (Value::Array(list), Some(_)) if list.len() == keys.len() => {
                        (list.iter().collect(), (0..list.len()).map(|j| format!("{place}.values[{i}][{j}]")).collect())
                    }
                    _ => {
                        let what = format!("{value} does not go with {} keys", keys.len());
                        return Err(BadInput::new(format!("values[{i}]"), what, format!("lists of {} values, one per key", keys.len())));
                    }
                };
                let mut next = point.clone();
                for (j, (key, value)) in keys.iter().zip(&values).enumerate() {
                    let at = if self.keys.is_some() { format!("{place}.keys[{j}]") } else { format!("{place}.key") };
                    let set = document::set(&mut next.table, key, (*value).clone()).map_err(|e| BadInput { key: at, ..e })?;
                    next.origins.extend(set.into_iter().map(|key| Origin { key, from: From::Place(places[j].clone()) }));
                }
                let shown = self.labels.as_ref().map_or_else(|| values[0].clone(), |labels| Value::String(labels[i].clone()));
                next.coordinates.push((name.clone(), shown));
                out.push(next);
            }
        }
        Ok(out)
    }
}

/// Settings as a tree of their keys.
fn tree<S: Serialize + ?Sized>(settings: &S) -> Result<Table> {
    Table::try_from(settings).map_err(|e| BadInput::new("", e.to_string(), "numbers and names that a TOML file can hold"))
}

impl Point {
    /// The `[sampling]` table.
    ///
    /// # Errors
    /// As the table's keys demand.
    fn sampling(&self) -> Result<Sampling> {
        let table = self.table.get("sampling").cloned().unwrap_or_else(|| Value::Table(Table::new()));
        let sampling: Sampling = read(table).map_err(|e| e.inside("sampling"))?;
        sampling.check().map_err(|e| e.inside("sampling"))?;
        Ok(sampling)
    }

    /// The `[run]` table.
    ///
    /// # Errors
    /// As the table's keys demand.
    fn run(&self) -> Result<RunSpec> {
        let table = self.table.get("run").cloned().ok_or_else(|| BadInput::new("", "there is no [run] table", "[run] with rounds = T"))?;
        let run: RunSpec = read(table).map_err(|e| e.inside("run"))?;
        let check = || {
            require((1..=u64::from(u32::MAX)).contains(&run.rounds), "rounds", run.rounds, "between 1 and 4294967295")?;
            run.seeds.check()?;
            for (key, x) in
                [("stop.mse", run.stop.mse), ("stop.residual", run.stop.residual), ("stop.relative_residual", run.stop.relative_residual)]
            {
                require(x.is_none_or(|x| x > 0.0), key, x.unwrap_or(0.0), "a positive number")?;
            }
            run.record.check(run.rounds)
        };
        check().map_err(|e: BadInput| e.inside("run"))?;
        Ok(run)
    }

    /// The settings of the problem.
    ///
    /// # Errors
    /// As the table's keys demand.
    fn problem(&self) -> Result<Box<dyn fedsa::problem::Settings>> {
        let table = match self.table.get("problem") {
            Some(Value::Table(table)) => table,
            None => return Err(BadInput::new("", "there is no [problem] table", "[problem] with kind = ..")),
            Some(other) => return Err(BadInput::new("problem", format!("{other} is not a table"), "[problem] with kind = ..")),
        };
        let mut table = table.clone();
        let kind = find_kind(fedsa::problem::KINDS, &mut table, "problem").map_err(|e| e.inside("problem"))?;
        read_kind(kind, table).map_err(|e| e.inside("problem"))
    }

    /// The methods.
    ///
    /// # Errors
    /// As the tables' keys demand, or when two labels are the same.
    fn methods(&self) -> Result<Vec<MethodSpec>> {
        let tables = match self.table.get("method") {
            Some(Value::Array(tables)) if !tables.is_empty() => tables,
            Some(Value::Table(_)) => {
                return Err(BadInput::new("method", "this is one table, not a list", "[[method]], in double brackets"));
            }
            Some(other) => return Err(BadInput::new("method", format!("{other} is not a list of tables"), "[[method]] tables")),
            None => return Err(BadInput::new("", "there is no [[method]]", "at least one [[method]] with kind = ..")),
        };
        let mut out: Vec<MethodSpec> = Vec::new();
        for (i, value) in tables.iter().enumerate() {
            let spec = self.method(value).map_err(|e| e.inside(&format!("method[{i}]")))?;
            if out.iter().any(|m| m.label == spec.label) {
                let what = format!("two methods are called `{}`", spec.label);
                return Err(BadInput::new(format!("method[{i}].label"), what, "a label of its own for each method"));
            }
            let own = !spec.label.is_empty() && spec.label != "format" && !spec.label.starts_with("theta_star");
            let accepted = "a label other than format and theta_star, which name arrays of theta.npz";
            require(own, &format!("method[{i}].label"), format!("\"{}\"", spec.label), accepted)?;
            out.push(spec);
        }
        Ok(out)
    }

    /// The tables that decide what runs, with defaults written out.
    ///
    /// # Errors
    /// As the tables' keys demand.
    pub fn resolved(&self) -> Result<Table> {
        self.resolved_sections().into_iter().map(|(key, value)| Ok((key.to_string(), value?))).collect()
    }

    /// As [`Point::resolved`], table by table.
    pub fn resolved_sections(&self) -> [(&'static str, Result<Value>); 4] {
        let kind = |value: Option<&Value>, name: &dyn Fn(&str) -> Option<&'static str>| {
            let given = value.and_then(|v| v.get("kind")).and_then(Value::as_str).and_then(name);
            Value::String(given.unwrap_or_default().to_string())
        };
        let problem = || {
            let mut table = tree(&*self.problem()?)?;
            let name = |name: &str| fedsa::problem::KINDS.iter().find(|k| k.is_called(name)).map(|k| k.name);
            table.insert("kind".into(), kind(self.table.get("problem"), &name));
            Ok(Value::Table(table))
        };
        let methods = || {
            let specs = self.methods()?;
            let given = self.table.get("method").and_then(Value::as_array).into_iter().flatten();
            let each = specs.iter().zip(given).map(|(spec, given)| {
                let mut table = tree(&*spec.settings)?;
                let common = METHOD_COMMON.iter().filter_map(|key| Some(((*key).to_string(), given.get(*key)?.clone())));
                table.extend(common);
                table.insert("kind".into(), Value::String(spec.kind.to_string()));
                table.insert("label".into(), Value::String(spec.label.clone()));
                Ok(Value::Table(table))
            });
            Ok(Value::Array(each.collect::<Result<_>>()?))
        };
        [
            ("problem", problem()),
            ("sampling", self.sampling().and_then(|s| Ok(Value::Table(tree(&s)?)))),
            ("run", self.run().and_then(|r| Ok(Value::Table(tree(&r)?)))),
            ("method", methods()),
        ]
    }

    fn method(&self, value: &Value) -> Result<MethodSpec> {
        let Value::Table(table) = value else { return Err(BadInput::new("", format!("{value} is not a table"), "[[method]] tables")) };
        let (mut common, mut own) = (Table::new(), Table::new());
        for (key, value) in table {
            let to = if METHOD_COMMON.contains(&key.as_str()) { &mut common } else { &mut own };
            to.insert(key.clone(), value.clone());
        }
        let kind = find_kind(methods::KINDS, &mut own, "method").map_err(|e| {
            let presets: Vec<&str> = super::presets::PRESETS.iter().map(|p| p.name).collect();
            BadInput { help: format!("{}, {}", e.help, presets.join(", ")), ..e }
        })?;
        let settings = read_kind(kind, own).map_err(|mut e| {
            if e.what.starts_with("unknown key") {
                e.help = format!("{}, {}", e.help, METHOD_COMMON.join(", "));
            }
            e
        })?;
        // What needs no problem to be seen; the number of agents is not known yet.
        if let Err(e) = settings.check(usize::MAX)
            && e.key != "participants"
        {
            return Err(e);
        }
        let common: MethodCommon = read(Value::Table(common))?;
        link::build(&common.uplink, &common.downlink, None)?;
        let expect = match common.expect {
            None => None,
            Some(Expect::Always(status)) => Some(status),
            Some(Expect::At(list)) => list.iter().find(|e| self.is_at(&e.at)).map(|e| e.status),
        };
        Ok(MethodSpec {
            label: common.label.unwrap_or_else(|| kind.name.to_string()),
            kind: kind.name,
            settings,
            start: common.start,
            controls: common.controls,
            measure_from: common.measure_from,
            output: common.output,
            expect,
            uplink: common.uplink,
            downlink: common.downlink,
        })
    }
}
