//! What an experiment comes to: problems built, methods checked, starts computed.

use std::collections::HashMap;
use std::path::Path;

use fedsa::error::{BadInput, Result, require};
use fedsa::kernel::Isa;
use fedsa::methods::Shape;
use fedsa::problem::Field;
use fedsa::record::OutputRule;
use fedsa::uplink::Uplink;
use rayon::prelude::*;
use toml::{Table, Value};

use super::{predict, resolve};
use crate::config::link;
use crate::config::schema::{Centre, Controls, Refused};
use crate::config::{Experiment, MethodSpec, Point, RunSpec, Settings, Start};
use crate::error::Failure;
use crate::files::DiskFiles;
use crate::files::find::Places;

/// An experiment ready to run.
pub struct Plan {
    /// What the file says.
    pub experiment: Experiment,
    /// The distinct problems, each with its sampling.
    pub fields: Vec<PlannedField>,
    /// One per sweep point, in the file's order.
    pub points: Vec<PlannedPoint>,
    /// The labels of the methods, in the file's order; the same at every point.
    pub labels: Vec<String>,
    /// The distinct runs without their seeds: cells that come to the same share one.
    pub cells: Vec<Cell>,
}

/// A problem with its sampling.
pub struct PlannedField {
    /// The tables it was built from: equal ones give equal problems.
    pub fingerprint: String,
    /// The problem.
    pub field: Box<dyn Field>,
}

/// A sweep point.
pub struct PlannedPoint {
    /// Its coordinates.
    pub point: Point,
    /// The tables that decide what runs, defaults written out, paths absolute.
    pub resolved: Table,
    /// The index of its problem.
    pub field: usize,
    /// Its `[run]` table.
    pub run: RunSpec,
    /// For each method, the index of its cell.
    pub cells: Vec<usize>,
}

/// A method on a problem with its run settings, for all its seeds.
pub struct Cell {
    /// Says what it is but for the number of rounds and the seeds: what checkpoints go by.
    pub identity: String,
    /// The index of its problem.
    pub field: usize,
    /// The method.
    pub method: MethodSpec,
    /// The run settings.
    pub run: RunSpec,
    /// `theta_0`.
    pub start: ResolvedStart,
    /// What the `error` metric is measured from, where it is not theta*.
    pub centre: Option<Vec<f64>>,
    /// What the method gives out.
    pub output: OutputRule,
    /// The link.
    pub uplink: Uplink,
    /// The recorded rounds.
    pub grid: Vec<u64>,
    /// Why it is not run: the method cannot live with its link.
    pub refused: Option<String>,
}

/// `theta_0`, for every seed or drawn per seed.
#[derive(Debug, Clone, PartialEq)]
pub enum ResolvedStart {
    /// The same for every seed.
    Fixed(Vec<f64>),
    /// N(0, I), drawn from the run's seed.
    Normal,
}

impl ResolvedStart {
    /// `theta_0` of a seed, d components.
    pub fn of(&self, seed: u64, d: usize) -> Vec<f64> {
        match self {
            ResolvedStart::Fixed(theta) => theta.clone(),
            ResolvedStart::Normal => {
                let mut s = fedsa::random::stream(seed, fedsa::random::Purpose::Start, 0, fedsa::random::ALL);
                (0..d).map(|_| s.normal()).collect()
            }
        }
    }
}

impl Plan {
    /// Builds everything; `base` is what relative paths are relative to, `roots` the
    /// `theta*` of problems as an earlier run of this experiment found them.
    ///
    /// # Errors
    /// When a setting or file cannot be used, at its line.
    pub fn new(experiment: Experiment, base: &Path, isa: Isa, roots: &HashMap<String, Vec<f64>>) -> Result<Self, Failure> {
        let places = Places::from_env(base);
        let located = |e: BadInput| experiment.document.failure(e);
        // Everything that needs no problem is checked first.
        let settings = experiment.settings()?;
        let labels: Vec<String> = settings[0].methods.iter().map(|m| m.label.clone()).collect();
        super::checks::validate(&experiment, &labels).map_err(located)?;
        super::picture::validate(&experiment, &labels).map_err(located)?;
        let resolved = experiment.points.iter().map(|point| resolve::point(point, &places).map_err(|e| experiment.failure_at(e, point)));
        let resolved: Vec<Table> = resolved.collect::<Result<_, _>>()?;

        let mut index: HashMap<String, usize> = HashMap::new();
        let mut wanted = Vec::new();
        let field_of: Vec<usize> = (resolved.iter().enumerate())
            .map(|(i, table)| {
                let tables = format!("problem {} sampling {}", canonical(&table["problem"]), canonical(&table["sampling"]));
                *index.entry(tables.clone()).or_insert_with(|| {
                    wanted.push((i, tables));
                    wanted.len() - 1
                })
            })
            .collect();
        let built: Vec<Result<PlannedField>> = wanted
            .par_iter()
            .map(|(i, tables)| {
                let files = DiskFiles::new(places.clone());
                let Settings { problem, sampling, .. } = &settings[*i];
                let mut field = problem.field(&files, *sampling, isa).map_err(|e| match e.key.starts_with("sampling") {
                    true => e,
                    false => e.inside("problem"),
                })?;
                let fingerprint = format!("{tables} files {:08x}", files.digest());
                if let Some(root) = roots.get(&fingerprint).filter(|root| root.len() == field.dim()) {
                    field.set_root(root.clone());
                }
                Ok(PlannedField { fingerprint, field })
            })
            .collect();
        let fields =
            built.into_iter().zip(&wanted).map(|(field, (i, _))| field.map_err(|e| experiment.failure_at(e, &experiment.points[*i])));
        let fields: Vec<PlannedField> = fields.collect::<Result<_, _>>()?;

        let mut cells: Vec<Cell> = Vec::new();
        let mut by_fingerprint: HashMap<String, usize> = HashMap::new();
        let mut points = Vec::new();
        for (i, (point, Settings { run, methods, .. })) in experiment.points.iter().zip(settings).enumerate() {
            let (field, table) = (field_of[i], &resolved[i]);
            let mut own = Vec::new();
            for (m, method) in methods.into_iter().enumerate() {
                let tables = format!("run {} method {}", canonical(&table["run"]), canonical(&table["method"][m]));
                let fingerprint = format!("{} {tables}", fields[field].fingerprint);
                let endless = without(&table["run"], &["rounds", "seeds"]);
                let identity =
                    format!("{} run {} method {}", fields[field].fingerprint, canonical(&endless), canonical(&table["method"][m]));
                let cell = match by_fingerprint.get(&fingerprint) {
                    Some(cell) => *cell,
                    None => {
                        let cell =
                            Cell::new(&identity, field, &*fields[field].field, method, run.clone(), &places, &format!("method[{m}]"))
                                .map_err(|e| experiment.failure_at(e, point))?;
                        cells.push(cell);
                        by_fingerprint.insert(fingerprint, cells.len() - 1);
                        cells.len() - 1
                    }
                };
                own.push(cell);
            }
            points.push(PlannedPoint { point: point.clone(), resolved: table.clone(), field, run, cells: own });
        }
        Ok(Self { experiment, fields, points, labels, cells })
    }

    /// The problem of a cell.
    pub fn field(&self, cell: usize) -> &dyn Field {
        &*self.fields[self.cells[cell].field].field
    }

    /// Whether anything is swept.
    pub fn is_swept(&self) -> bool {
        self.points.len() > 1 || !self.points[0].point.coordinates.is_empty()
    }
}

/// A table without some of its keys.
fn without(value: &Value, keys: &[&str]) -> Value {
    let mut value = value.clone();
    if let Value::Table(table) = &mut value {
        keys.iter().for_each(|key| {
            table.remove(*key);
        });
    }
    value
}

/// A value as text with the keys of tables sorted.
fn canonical(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let mut keys: Vec<&String> = table.keys().collect();
            keys.sort();
            let inner: Vec<String> = keys.iter().map(|k| format!("{k}={}", canonical(&table[*k]))).collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

impl Cell {
    fn new(
        identity: &str,
        index: usize,
        field: &dyn Field,
        method: MethodSpec,
        run: RunSpec,
        places: &Places,
        place: &str,
    ) -> Result<Self> {
        let files = DiskFiles::new(places.clone());
        let inside = |e: BadInput| e.inside(place);
        method.settings.check(field.agents()).map_err(inside)?;
        let output = method.output.rule(run.rounds).map_err(inside)?;
        let (start, key) = match &method.start {
            Some(start) => (start, format!("{place}.start")),
            None => (&run.start, "run.start".to_string()),
        };
        let start = resolve_start(start, field, &method, &files).map_err(|e| e.inside(&key))?;
        let centre = match method.measure_from {
            Centre::Root => None,
            Centre::Limit => Some(predict::limit(field, &method.settings.shape()).map_err(|e| e.inside(&format!("{place}.measure_from")))?),
        };
        if method.controls == Controls::Ideal {
            let has = matches!(method.settings.shape().drift, fedsa::methods::Drift::ControlVariate { .. });
            let known = field.root().is_some() && field.systems().is_some();
            require(has && known, "controls", "\"ideal\"", "ideal only for methods with control variates on linear problems")
                .map_err(inside)?;
        }
        let uplink = link::build(&method.uplink, &method.downlink, Some(&files)).map_err(inside)?;
        let fits = uplink.check(field.agents(), field.dim()).and_then(|()| check_traces(&uplink, run.rounds));
        fits.map_err(|e| link::located(&method.uplink, e).inside(place))?;
        let refused = match check_link(field, &method, &uplink) {
            Ok(()) => None,
            Err(e) if run.refused == Refused::Skip => Some(e.what),
            Err(e) => return Err(e.inside(&format!("{place}.uplink"))),
        };
        let grid = run.record.rounds(run.rounds);
        let identity = format!("{identity} files {:08x}", files.digest());
        Ok(Self { identity, field: index, method, run, start, centre, output, uplink, grid, refused })
    }

    /// What theory sees of the method over its link: closed forms are those of clear links.
    pub fn shape(&self) -> Shape {
        let shape = self.method.settings.shape();
        Shape { is_linear: shape.is_linear && self.uplink.is_clear(), ..shape }
    }

    /// The seeds to run: none where it is refused.
    pub fn seeds(&self) -> Vec<u64> {
        if self.refused.is_some() { Vec::new() } else { self.run.seeds.list() }
    }

    /// Local steps of all agents over all rounds of one seed: what its run costs.
    pub fn work(&self, field: &dyn Field) -> f64 {
        let shape = self.method.settings.shape();
        let agents = shape.participants.unwrap_or(field.agents()) as f64;
        self.run.rounds as f64 * agents * (shape.local_steps + 10.0)
    }
}

/// Whether a link's traces are long enough for the run.
fn check_traces(uplink: &Uplink, rounds: u64) -> Result<()> {
    let delays = [uplink.delay.as_ref().map(|pull| &pull.delay), uplink.late.as_ref()];
    delays.into_iter().flatten().try_for_each(|delay| delay.check_rounds(rounds)).map_err(|e| e.inside("uplink.media"))
}

/// Whether the method lives with its link.
fn check_link(field: &dyn Field, method: &MethodSpec, uplink: &Uplink) -> Result<()> {
    let link = uplink.facts();
    let setting = fedsa::methods::Setting { seed: 0, weights: field.weights(), start: vec![0.0; field.dim()], link };
    let built = method.settings.build(&setting);
    built.check_link(&link).map_err(|e| BadInput { key: String::new(), ..e })
}

fn resolve_start(start: &Start, field: &dyn Field, method: &MethodSpec, files: &DiskFiles) -> Result<ResolvedStart> {
    const NAMES: &str = "zero, root, root+1, normal, limit, a list of d numbers, or a file (.npz with theta, or .json)";
    let d = field.dim();
    let root = || field.root().map(<[f64]>::to_vec).ok_or_else(|| BadInput::new("", "theta* is not known for this problem", NAMES));
    let theta = match start {
        Start::List(theta) => theta.clone(),
        Start::Name(name) => match name.as_str() {
            "zero" => vec![0.0; d],
            "root" => root()?,
            "root+1" => root()?.iter().map(|x| x + 1.0).collect(),
            "normal" => return Ok(ResolvedStart::Normal),
            "limit" => predict::limit(field, &method.settings.shape())?,
            file if file.contains('.') => files.vector(file).map_err(|e| BadInput::new("", e.to_string(), e.help))?,
            other => {
                let near = crate::config::nearest(other, ["zero", "root", "root+1", "normal", "limit"].into_iter());
                let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(BadInput::new("", format!("there is no start `{other}`{near}"), NAMES));
            }
        },
    };
    let accepted = format!("{d} finite numbers, one per feature");
    if theta.len() != d {
        return Err(BadInput::new("", format!("{} numbers for d = {d}", theta.len()), accepted));
    }
    if let Some(i) = theta.iter().position(|x| !x.is_finite()) {
        return Err(BadInput::new("", format!("component {i} is {}", theta[i]), accepted));
    }
    Ok(ResolvedStart::Fixed(theta))
}
