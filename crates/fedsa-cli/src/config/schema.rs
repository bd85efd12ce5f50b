//! The tables of an experiment file.

use std::collections::BTreeMap;

use fedsa::error::{BadInput, Result, require};
use fedsa::methods;
use fedsa::record::OutputRule;
use fedsa::sampling::Sampling;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::document::{self, Document};
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
}

/// Seeds: how many, or which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// 0, 1, .., n - 1.
    Count(u64),
    /// These.
    List(Vec<u64>),
}

impl Default for Seeds {
    fn default() -> Self {
        Seeds::Count(1)
    }
}

impl Seeds {
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
#[serde(untagged)]
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
#[serde(untagged)]
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

    fn check(&self) -> Result<()> {
        let Grid::Table(t) = self else { return Ok(()) };
        require(t.every.is_none_or(|k| k >= 1), "record.every", t.every.unwrap_or(0), "at least 1")?;
        require(t.points.is_none_or(|n| n >= 1), "record.points", t.points.unwrap_or(0), "at least 1")?;
        require(t.every.is_none() || t.points.is_none(), "record", "both every and points", "every or points, not both")
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
    uplink: Link,
    #[serde(default)]
    downlink: Link,
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
#[serde(untagged)]
pub enum OutputSpec {
    /// last or average.
    Name(OutputName),
    /// A tail average.
    Tail {
        /// The share of the rounds that is averaged, the last ones.
        tail: f64,
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
        }
    }
}

/// A link: its codec.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// `{ kind = "exact" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<CodecSpec>,
}

/// A codec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum CodecSpec {
    /// 64 bits a component.
    Exact,
}

/// A status other than ok that a run is expected to end with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
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
    pub uplink: Link,
    /// Its downlink.
    pub downlink: Link,
}

/// The `[figure]` table.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// curves (a metric along the rounds) or scaling (floors along a coordinate).
    pub kind: FigureKind,
    /// The horizontal axis: round, exchanges, samples, bits_up, or for scaling a coordinate.
    pub x: Option<String>,
    /// The metric, or several.
    pub y: Option<Metrics>,
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
#[serde(untagged)]
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

/// What the figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A metric along the rounds.
    #[default]
    Curves,
    /// Floors along a coordinate.
    Scaling,
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
        let points = expand(table, &sweeps, &variants)?;
        Ok(Self { id: id.clone(), title: text("title")?.unwrap_or(id), figure, checks, points, document: document.clone() })
    }
}

/// The most points that sweeps may come to.
const MAX_POINTS: usize = 100_000;

/// All combinations of variants and sweep values.
fn expand(table: &Table, sweeps: &[Sweep], variants: &[Variant]) -> Result<Vec<Point>> {
    let base = Point { label: String::new(), coordinates: Vec::new(), table: table.clone() };
    let mut points = Vec::new();
    let starts: Vec<(Point, &[Sweep], String)> = if variants.is_empty() {
        vec![(base, &[][..], String::new())]
    } else {
        let each = variants.iter().enumerate().map(|(i, variant)| {
            let mut point = base.clone();
            let place = format!("variant[{i}]");
            for (key, value) in &variant.set {
                document::set(&mut point.table, key, value.clone()).map_err(|e| e.inside(&format!("{place}.set")))?;
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
            here = sweep.apply(&here).map_err(|e| e.inside(&place))?;
            require(here.len() + points.len() <= MAX_POINTS, &place, here.len(), &format!("sweeps over at most {MAX_POINTS} points"))?;
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
    Ok(points)
}

impl Sweep {
    fn apply(&self, points: &[Point]) -> Result<Vec<Point>> {
        let keys: Vec<&str> = match (&self.key, &self.keys) {
            (Some(key), None) => vec![key],
            (None, Some(keys)) if !keys.is_empty() => keys.iter().map(String::as_str).collect(),
            _ => return Err(BadInput::new("key", "a sweep needs key or keys", "key = \"run.rounds\", or keys = [..] that move together")),
        };
        require(!self.values.is_empty(), "values", "[]", "a list of at least one value")?;
        if let Some(labels) = &self.labels {
            let accepted = format!("one label per value, {}", self.values.len());
            require(labels.len() == self.values.len(), "labels", labels.len(), &accepted)?;
        }
        let name = self.name.clone().unwrap_or_else(|| keys[0].rsplit('.').next().unwrap_or(keys[0]).to_string());
        let mut out = Vec::new();
        for point in points {
            for (i, value) in self.values.iter().enumerate() {
                let values: Vec<&Value> = match (value, &self.keys) {
                    (_, None) => vec![value],
                    (Value::Array(list), Some(_)) if list.len() == keys.len() => list.iter().collect(),
                    _ => return Err(BadInput::new("values", format!("{value}"), format!("lists of {} values, one per key", keys.len()))),
                };
                let mut next = point.clone();
                for (key, value) in keys.iter().zip(&values) {
                    document::set(&mut next.table, key, (*value).clone())?;
                }
                let shown = self.labels.as_ref().map_or_else(|| values[0].clone(), |labels| Value::String(labels[i].clone()));
                next.coordinates.push((name.clone(), shown));
                out.push(next);
            }
        }
        Ok(out)
    }
}

impl Point {
    /// The `[sampling]` table.
    ///
    /// # Errors
    /// As the table's keys demand.
    pub fn sampling(&self) -> Result<Sampling> {
        let table = self.table.get("sampling").cloned().unwrap_or_else(|| Value::Table(Table::new()));
        let sampling: Sampling = read(table).map_err(|e| e.inside("sampling"))?;
        sampling.check().map_err(|e| e.inside("sampling"))?;
        Ok(sampling)
    }

    /// The `[run]` table.
    ///
    /// # Errors
    /// As the table's keys demand.
    pub fn run(&self) -> Result<RunSpec> {
        let table = self.table.get("run").cloned().ok_or_else(|| BadInput::new("", "there is no [run] table", "[run] with rounds = T"))?;
        let run: RunSpec = read(table).map_err(|e| e.inside("run"))?;
        let check = || {
            require((1..=u64::from(u32::MAX)).contains(&run.rounds), "rounds", run.rounds, "between 1 and 4294967295")?;
            require(!run.seeds.list().is_empty(), "seeds", "none", "a count of at least 1, or a list of seeds")?;
            for (key, x) in
                [("stop.mse", run.stop.mse), ("stop.residual", run.stop.residual), ("stop.relative_residual", run.stop.relative_residual)]
            {
                require(x.is_none_or(|x| x > 0.0), key, x.unwrap_or(0.0), "a positive number")?;
            }
            run.record.check()
        };
        check().map_err(|e: BadInput| e.inside("run"))?;
        Ok(run)
    }

    /// The settings of the problem.
    ///
    /// # Errors
    /// As the table's keys demand.
    pub fn problem(&self) -> Result<Box<dyn fedsa::problem::Settings>> {
        let Some(Value::Table(table)) = self.table.get("problem") else {
            return Err(BadInput::new("", "there is no [problem] table", "[problem] with kind = .."));
        };
        let mut table = table.clone();
        let kind = find_kind(fedsa::problem::KINDS, &mut table, "problem").map_err(|e| e.inside("problem"))?;
        read_kind(kind, table).map_err(|e| e.inside("problem"))
    }

    /// The methods.
    ///
    /// # Errors
    /// As the tables' keys demand, or when two labels are the same.
    pub fn methods(&self) -> Result<Vec<MethodSpec>> {
        let tables = match self.table.get("method") {
            Some(Value::Array(tables)) if !tables.is_empty() => tables,
            _ => return Err(BadInput::new("", "there is no [[method]]", "at least one [[method]] with kind = ..")),
        };
        let mut out: Vec<MethodSpec> = Vec::new();
        for (i, value) in tables.iter().enumerate() {
            let spec = self.method(value).map_err(|e| e.inside(&format!("method[{i}]")))?;
            if out.iter().any(|m| m.label == spec.label) {
                let what = format!("two methods are called `{}`", spec.label);
                return Err(BadInput::new(format!("method[{i}].label"), what, "a label of its own for each method"));
            }
            out.push(spec);
        }
        Ok(out)
    }

    fn method(&self, value: &Value) -> Result<MethodSpec> {
        let Value::Table(table) = value else { return Err(BadInput::new("", "not a table", "[[method]] tables")) };
        let (mut common, mut own) = (Table::new(), Table::new());
        for (key, value) in table {
            let to = if METHOD_COMMON.contains(&key.as_str()) { &mut common } else { &mut own };
            to.insert(key.clone(), value.clone());
        }
        let kind = find_kind(methods::KINDS, &mut own, "method")?;
        let settings = read_kind(kind, own).map_err(|mut e| {
            if e.what.starts_with("unknown key") {
                e.help = format!("{}, {}", e.help, METHOD_COMMON.join(", "));
            }
            e
        })?;
        let common: MethodCommon = read(Value::Table(common))?;
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
