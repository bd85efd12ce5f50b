//! A finished run, read from its folder.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa::metrics::{self, METRICS, Observation};
use fedsa::record::{COUNTS, Ledger, Outcome};
use fedsa_data::regular;
use fedsa_data::trace::{self, Trace, TraceColumn};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::axis::Axis;
use super::plan::Plan;
use super::results::{OWN_METRICS, OwnValues, Recorded, Results, SeedResult};
use crate::config::short;
use crate::folder::{self, FolderWork, Holds, TUNING};

/// A finished run, read from its folder.
#[derive(Debug, Clone)]
pub struct FinishedRun {
    /// The folder.
    pub path: PathBuf,
    /// `summary.json`.
    pub summary: Json,
    /// The text of `config.toml`.
    pub config: String,
}

/// The state of the run in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// A process is writing to it.
    UnderWay,
    /// It was interrupted.
    Interrupted,
    /// It is finished.
    Finished,
}

/// The state of the run in a folder; `None` if the folder contains no run.
pub fn state_of(path: &Path) -> Option<RunState> {
    if folder::is_under_way(path) {
        return Some(RunState::UnderWay);
    }
    match folder::holds(path) {
        Holds::Finished => Some(RunState::Finished),
        Holds::Unfinished => Some(RunState::Interrupted),
        Holds::Nothing | Holds::Foreign => None,
    }
}

impl FinishedRun {
    /// The run in a folder.
    ///
    /// # Errors
    /// When the folder contains no finished run, or its files cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let accepted = "the folder of a finished run, such as out/ID";
        if folder::work_in(path) == Some(FolderWork::Tuning) {
            let what = "this is the folder of a tuning, which has no runs";
            return Err(Error::data(name, what, format!("{accepted}; {} in it, which is the answer, can be run", TUNING[0])));
        }
        match state_of(path) {
            Some(RunState::Finished) => {}
            Some(RunState::UnderWay) => return Err(Error::format(name, "its run is under way", accepted).coded(ErrorCode::OutputBusy)),
            Some(RunState::Interrupted) if path.join("summary.json").exists() => {
                return Err(Error::format(name, "its summary.json is damaged, or was changed after fedsa wrote it", accepted));
            }
            Some(RunState::Interrupted) => {
                return Err(Error::format(name, "its run was interrupted", accepted).coded(ErrorCode::Unfinished));
            }
            None if !path.exists() => return Err(Error::data(name, "there is no such folder", accepted).coded(ErrorCode::NoFile)),
            None => return Err(Error::data(name, "this is not the folder of a run", accepted)),
        }
        let text = |file: &str| {
            let path = path.join(file);
            regular::read_text(&path)
                .map_err(|e| Error::data(path.display().to_string(), format!("cannot be read: {e}"), accepted).coded(ErrorCode::Unreadable))
        };
        let summary = serde_json::from_str(&text("summary.json")?)
            .map_err(|e| Error::format(path.join("summary.json").display().to_string(), format!("not JSON: {e}"), accepted))?;
        Ok(Self { path: path.to_path_buf(), summary, config: text("config.toml")? })
    }

    /// The settings, as a tree.
    ///
    /// # Errors
    /// When `config.toml` was changed and is invalid.
    pub fn settings(&self) -> Result<Table> {
        let bad = |what: String| Error::format(self.path.join("config.toml").display().to_string(), what, "the file that fedsa wrote");
        let table: Table = self.config.parse().map_err(|e: toml::de::Error| bad(format!("this is not TOML: {}", e.message())))?;
        if table.contains_key("method") { Ok(table) } else { Err(bad("there is no method in it".into())) }
    }

    /// The names of the caller's metrics in the results.
    pub fn own_metrics(&self) -> Vec<String> {
        let names = self.summary[OWN_METRICS].as_array();
        names.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_string)).collect()
    }

    /// The measured results, for the plan of these settings.
    ///
    /// # Errors
    /// When `trace.parquet` cannot be read, or does not belong to the plan.
    pub fn results(&self, plan: &Plan) -> Result<Results> {
        let path = self.path.join("trace.parquet");
        let table = trace::read(&path)?;
        let misfit = |what: &str| Error::new(path.display().to_string(), what, "the trace of this run, of this version of fedsa");
        let mut runs = runs_of(&table, self.own_metrics()).ok_or_else(|| misfit("columns are missing"))?;
        let mut cells: Vec<Option<Vec<SeedResult>>> = vec![None; plan.cells.len()];
        for planned in &plan.points {
            for (label, cell) in plan.labels.iter().zip(&planned.cells) {
                let seeds = runs.remove(&(label.clone(), planned.point.label.clone())).unwrap_or_default();
                if seeds.len() != plan.cells[*cell].seeds().len() {
                    return Err(misfit(&format!("it has {} seeds of {label} {}", seeds.len(), planned.point.label)));
                }
                cells[*cell].get_or_insert(seeds);
            }
        }
        Ok(Results { cells: cells.into_iter().flatten().collect() })
    }
}

/// A setting that differs between two experiments, with both values as text; `None` if it is not set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The dotted key.
    pub key: String,
    /// Its value in the first experiment.
    pub a: Option<String>,
    /// Its value in the second experiment.
    pub b: Option<String>,
}

/// The settings in which two resolved files differ.
pub fn differences(a: &Table, b: &Table) -> Vec<Difference> {
    let flat = |table: &Table| {
        let mut out = BTreeMap::new();
        table.iter().for_each(|(key, value)| flatten(value, key, &mut out));
        out
    };
    let (a, b) = (flat(a), flat(b));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    // `unmeasured` is written by the program and is not a setting of the experiment.
    let is_setting = |key: &&&String| !(key.starts_with("check.") && key.ends_with(".unmeasured"));
    let differ = keys.iter().filter(is_setting).filter(|key| a.get(**key) != b.get(**key));
    differ.map(|key| Difference { key: (*key).clone(), a: a.get(*key).map(short), b: b.get(*key).map(short) }).collect()
}

/// A tree as dotted keys; items of lists of tables are named by label or name, otherwise by index.
fn flatten(value: &Value, key: &str, out: &mut BTreeMap<String, Value>) {
    match value {
        Value::Table(table) => table.iter().for_each(|(name, value)| flatten(value, &format!("{key}.{name}"), out)),
        Value::Array(items) if items.iter().any(Value::is_table) => {
            for (i, item) in items.iter().enumerate() {
                let name = ["label", "name"].iter().find_map(|key| item.get(key)?.as_str().map(str::to_string));
                flatten(item, &format!("{key}.{}", name.unwrap_or_else(|| i.to_string())), out);
            }
        }
        other => {
            out.insert(key.to_string(), other.clone());
        }
    }
}

/// The runs of a trace with these metrics of the caller: for every method and point, the seeds in order. `None` if columns are missing.
fn runs_of(table: &Trace, own: Vec<String>) -> Option<HashMap<(String, String), Vec<SeedResult>>> {
    let text = |name: &str| match table.column(name)? {
        TraceColumn::Str(values) => Some(values),
        _ => None,
    };
    let whole = |name: &str| match table.column(name)? {
        TraceColumn::I64(values) => Some(values),
        _ => None,
    };
    let number = |name: &str| match table.column(name)? {
        TraceColumn::OptF64(values) => Some(values),
        _ => None,
    };
    let (methods, points, outcomes, seeds) = (text("method")?, text("point")?, text("outcome")?, whole("seed")?);
    let counts: HashMap<&str, &Vec<i64>> = COUNTS.iter().map(|count| Some((count.name, whole(count.name)?))).collect::<Option<_>>()?;
    let metrics: HashMap<&str, &Vec<Option<f64>>> =
        METRICS.iter().map(|metric| Some((metric.name, number(metric.name)?))).collect::<Option<_>>()?;
    // A coordinate of this name has another type.
    let seconds = match table.column(Axis::SECONDS) {
        Some(TraceColumn::F64(seconds)) => Some(seconds),
        _ => None,
    };
    let names: Arc<[String]> = own.into();
    let own: Vec<&Vec<Option<f64>>> = names.iter().map(|name| number(name)).collect::<Option<_>>()?;
    let always = |name: &str| fedsa::metrics::metric(name).is_some_and(|metric| metric.needs == [metrics::Need::Means]);
    let mut runs: HashMap<(String, String), Vec<SeedResult>> = HashMap::new();
    for i in 0..table.rows() {
        let count = |name: &str| counts[name][i].cast_unsigned();
        let (round, ledger) = (count("round"), Ledger::from_names(count));
        // A metric of all methods is absent from a row only if it was not a number.
        let is_known = |name: &str| always(name) && metrics[name].iter().any(Option::is_some);
        let seen = Observation::from_names(|name| metrics[name][i].or_else(|| is_known(name).then_some(f64::NAN)));
        let seed = seeds[i].cast_unsigned();
        let of = runs.entry((methods[i].clone(), points[i].clone())).or_default();
        if of.last().is_none_or(|run| run.seed != seed) {
            of.push(SeedResult {
                seed,
                rows: Vec::new(),
                theta: Vec::new(),
                diverged: None,
                stopped: outcomes[i] == Outcome::Converged.name(),
                seconds: None,
                own: OwnValues { names: Arc::clone(&names), values: Vec::new() },
                iterates: Vec::new(),
            });
        }
        let run = of.last_mut().expect("just added");
        run.own.values.push(own.iter().map(|values| values[i].unwrap_or(f64::NAN)).collect());
        run.rows.push(Recorded { round, ledger, seen, seconds: seconds.map(|seconds| seconds[i]).filter(|x| x.is_finite()) });
        if outcomes[i] == (Outcome::Diverged { round }).name() {
            // A run ends with the round in which it diverged.
            run.diverged = Some(round);
        }
    }
    Some(runs)
}
