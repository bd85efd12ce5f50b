//! Reads the tables of a point into typed settings.

use std::collections::HashSet;
use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result, quoted, require};
use fedsa::message::MAX_ROUNDS;
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa_problems::ProblemSettings;
use serde::Serialize;
use toml::{Table, Value};

use super::document::{Document, SetBy};
use super::link::{self, DownlinkSpec, UplinkSpec};
use super::schema::{Centre, ControlsStart, Expect, ExpectedStatus, METHOD_COMMON, MethodCommon, OutputSpec, RunSpec, StartSpec};
use super::sections::{Methods, Sections};
use super::sweep::{self, SweepPoint};
use super::{find_kind, read_kind, read_swept, shaped_keys, short};
use crate::kinds::Kinds;

/// One `[[method]]` at one point.
#[derive(Clone)]
pub struct MethodSpec {
    /// Its label, unique in the file.
    pub label: String,
    /// The name of its kind.
    pub kind: &'static str,
    /// Its settings.
    pub settings: Arc<dyn fedsa::method::MethodSettings>,
    /// Its own start, if it has one.
    pub start: Option<StartSpec>,
    /// The initial control variates.
    pub controls: ControlsStart,
    /// The reference point of the metric `error`.
    pub measure_from: Centre,
    /// The output: an iterate or an average.
    pub output: OutputSpec,
    /// The expected status of its runs.
    pub expect: Option<ExpectedStatus>,
    /// The index of the entry of `expect` that applies, if `expect` is a list.
    pub expected_by: Option<usize>,
    /// Its uplink.
    pub uplink: UplinkSpec,
    /// Its downlink.
    pub downlink: DownlinkSpec,
}

/// A table and the settings that were read from it.
type Read<T> = Option<(Arc<Value>, T)>;

/// Reads the tables of points one after the other; a table that two points share is read once.
pub struct PointReader {
    kinds: Kinds,
    sections: Sections,
    problem: Read<Arc<dyn ProblemSettings>>,
    sampling: Read<Sampling>,
    run: Read<Arc<RunSpec>>,
    method: Vec<Read<(MethodSpec, Option<Expect>)>>,
    /// The methods of the last point.
    pub methods: Vec<MethodSpec>,
}

/// The settings of a table, which is read again only after a change.
fn cached<'r, T>(read: &'r mut Read<T>, table: &Arc<Value>, how: impl FnOnce(&Value) -> Result<T>) -> Result<&'r mut T> {
    if !read.as_ref().is_some_and(|(before, _)| Arc::ptr_eq(before, table)) {
        *read = Some((Arc::clone(table), how(table)?));
    }
    Ok(&mut read.as_mut().expect("just read").1)
}

impl PointReader {
    /// A reader of tables with these kinds.
    pub fn new(kinds: &Kinds) -> Self {
        let (kinds, sections) = (kinds.clone(), Sections::default());
        Self { kinds, sections, problem: None, sampling: None, run: None, method: Vec::new(), methods: Vec::new() }
    }

    /// Reads a point.
    ///
    /// # Errors
    /// When a table of the point cannot be read.
    pub fn read(&mut self, point: &SweepPoint) -> Result<()> {
        self.sections = point.sections();
        let missing = |table: &str, accepted: &str| Error::new("", format!("there is no {table}"), accepted);
        let table = self.sections.problem.as_ref().ok_or_else(|| missing("[problem] table", "[problem] with kind = .."))?;
        cached(&mut self.problem, table, |table| read_problem(&self.kinds, table))?;
        let none = Arc::new(Value::Table(Table::new()));
        cached(&mut self.sampling, self.sections.sampling.as_ref().unwrap_or(&none), read_sampling)?;
        let table = self.sections.run.as_ref().ok_or_else(|| missing("[run] table", "[run] with rounds = T"))?;
        cached(&mut self.run, table, |table| read_run(table).map(Arc::new))?;
        self.read_methods(point)
    }

    fn read_methods(&mut self, point: &SweepPoint) -> Result<()> {
        let tables = methods_of(&self.sections)?;
        self.method.resize_with(tables.len(), || None);
        self.methods.clear();
        let mut labels = HashSet::new();
        for (i, (table, read)) in tables.iter().zip(&mut self.method).enumerate() {
            let inside = |e: Error| e.inside(&format!("method[{i}]"));
            let (spec, expect) = &*cached(read, table, |table| read_method(&self.kinds, table)).map_err(inside)?;
            let mut spec = spec.clone();
            if let Some(Expect::At(list)) = expect {
                spec.expected_by = list.iter().position(|entry| point.is_at(&entry.at));
                spec.expect = spec.expected_by.map(|j| list[j].status);
            }
            if !labels.insert(spec.label.clone()) {
                let what = format!("two methods are called `{}`", quoted(&spec.label));
                return Err(Error::new(format!("method[{i}].label"), what, "a label of its own for each method"));
            }
            self.methods.push(spec);
        }
        Ok(())
    }

    /// The tables of the last point.
    pub fn sections(&self) -> &Sections {
        &self.sections
    }

    /// The settings of the last point's problem.
    pub fn problem(&self) -> &Arc<dyn ProblemSettings> {
        &self.problem.as_ref().expect("a point was read").1
    }

    /// The `[sampling]` table of the last point.
    pub fn sampling(&self) -> Sampling {
        self.sampling.as_ref().expect("a point was read").1
    }

    /// The `[run]` table of the last point.
    pub fn run(&self) -> &Arc<RunSpec> {
        &self.run.as_ref().expect("a point was read").1
    }

    /// The whole `expect` of a method.
    pub(super) fn expect(&self, method: usize) -> Option<&Expect> {
        self.method.get(method)?.as_ref().and_then(|(_, (_, expect))| expect.as_ref())
    }

    /// Settings without effect at the last point; other points of a sweep may use them.
    pub(super) fn idle(&self) -> Vec<Error> {
        let mut idle = Vec::new();
        let sampling = self.sampling();
        if sampling.start != ChainStart::Stationary && sampling.kind != Law::Markov {
            let what = "only kind = \"markov\" has a start of trajectories";
            idle.push(without_effect("sampling.start", what, "no start here, or kind = \"markov\""));
        }
        if sampling.batch != 1 && sampling.kind == Law::Mean {
            let what = "kind = \"mean\" draws no samples, so that a batch has no effect";
            idle.push(without_effect("sampling.batch", what, "no batch here, or kind = \"iid\" or \"markov\""));
        }
        let outside = |e: &Error| e.key.starts_with("sampling");
        let of_problem = self.problem().without_effect(&sampling).map(|e| e.coded(ErrorCode::NoEffect));
        idle.extend(of_problem.map(|e| if outside(&e) { e } else { e.inside("problem") }));
        if self.run().start != StartSpec::default() && self.methods.iter().all(|method| method.start.is_some()) {
            idle.push(without_effect(
                "run.start",
                "every method has its own start, so that this one has no effect",
                "one start here, or one for each method",
            ));
        }
        for (m, method) in self.methods.iter().enumerate() {
            let codec = method.uplink.codec.as_ref().and_then(|codec| codec.get("kind")?.as_str());
            let is_budget = |table: &Table| table.get("kind").and_then(Value::as_str) == Some("bit-budget");
            if method.uplink.error_feedback && codec.is_none_or(|kind| kind == "exact") && !method.uplink.media.iter().any(is_budget) {
                let what = "an exact codec has no error that could be fed back";
                idle.push(without_effect(&format!("method[{m}].uplink.error_feedback"), what, "no error_feedback, or another codec"));
            }
        }
        idle
    }

    /// The tables of the last point, with defaults written out.
    ///
    /// # Errors
    /// When a setting cannot be written in a TOML file.
    pub fn resolved(&self) -> Result<Table> {
        let methods: Vec<Value> = (0..self.methods.len()).map(|m| self.resolved_method(m)).collect::<Result<_>>()?;
        let all = [
            ("problem", self.resolved_problem()?),
            ("sampling", self.resolved_sampling()?),
            ("run", self.resolved_run()?),
            ("method", Value::Array(methods)),
        ];
        Ok(all.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    }

    /// `[problem]` with its defaults.
    ///
    /// # Errors
    /// As [`PointReader::resolved`].
    pub fn resolved_problem(&self) -> Result<Value> {
        let mut table = tree(&**self.problem())?;
        let given = self.sections.problem.as_ref().and_then(|table| table.get("kind")).and_then(Value::as_str).unwrap_or_default();
        let kind = self.kinds.problems().iter().find(|kind| kind.is_called(given)).map_or(given, |kind| kind.name);
        table.insert("kind".into(), Value::String(kind.to_string()));
        Ok(Value::Table(table))
    }

    /// `[sampling]` with its defaults.
    ///
    /// # Errors
    /// As [`PointReader::resolved`].
    pub fn resolved_sampling(&self) -> Result<Value> {
        tree(&self.sampling()).map(Value::Table)
    }

    /// `[run]` with its defaults.
    ///
    /// # Errors
    /// As [`PointReader::resolved`].
    pub fn resolved_run(&self) -> Result<Value> {
        tree(&**self.run()).map(Value::Table)
    }

    /// One `[[method]]` with the defaults of its kind.
    ///
    /// # Errors
    /// As [`PointReader::resolved`].
    pub fn resolved_method(&self, method: usize) -> Result<Value> {
        let spec = &self.methods[method];
        let mut table = tree(&*spec.settings)?;
        let given = self.method[method].as_ref().map(|(given, _)| &**given);
        let common = METHOD_COMMON.iter().filter_map(|key| Some(((*key).to_string(), given?.get(*key)?.clone())));
        table.extend(common);
        table.insert("kind".into(), Value::String(spec.kind.to_string()));
        table.insert("label".into(), Value::String(spec.label.clone()));
        Ok(Value::Table(table))
    }
}

/// The tables of a file without its sweeps, with defaults. Each table is resolved alone, and incomplete ones are omitted.
pub fn complete(kinds: &Kinds, sections: &Sections) -> Vec<(&'static str, Value)> {
    let point = SweepPoint::of(sections.clone());
    let mut reader = PointReader { sections: sections.clone(), ..PointReader::new(kinds) };
    let mut out = Vec::new();
    let mut keep = |key, value: Result<Value>| out.extend(value.ok().map(|value| (key, value)));
    if let Some(table) = &sections.problem
        && cached(&mut reader.problem, table, |table| read_problem(kinds, table)).is_ok()
    {
        keep("problem", reader.resolved_problem());
    }
    let none = Arc::new(Value::Table(Table::new()));
    if cached(&mut reader.sampling, sections.sampling.as_ref().unwrap_or(&none), read_sampling).is_ok() {
        keep("sampling", reader.resolved_sampling());
    }
    if let Some(table) = &sections.run
        && cached(&mut reader.run, table, |table| read_run(table).map(Arc::new)).is_ok()
    {
        keep("run", reader.resolved_run());
    }
    if reader.read_methods(&point).is_ok() {
        keep("method", (0..reader.methods.len()).map(|m| reader.resolved_method(m)).collect::<Result<_>>().map(Value::Array));
    }
    out
}

/// A setting that others make useless.
fn without_effect(key: &str, what: &str, help: &str) -> Error {
    Error::new(key, what, help).coded(ErrorCode::NoEffect)
}

/// Settings as a tree of their keys.
fn tree<S: Serialize + ?Sized>(settings: &S) -> Result<Table> {
    Table::try_from(settings).map_err(|e| Error::new("", e.to_string(), "numbers and names that a TOML file can hold"))
}

fn read_problem(kinds: &Kinds, value: &Value) -> Result<Arc<dyn ProblemSettings>> {
    let Value::Table(table) = value else {
        return Err(Error::new("problem", format!("{} is not a table", short(value)), "[problem] with kind = .."));
    };
    let mut table = table.clone();
    let mut read = || read_kind(find_kind(kinds.problems(), &mut table, "problem")?, &table);
    read().map(Arc::from).map_err(|e: Error| e.inside("problem"))
}

fn read_sampling(value: &Value) -> Result<Sampling> {
    let read = || {
        let sampling: Sampling = read_swept(value)?;
        sampling.check()?;
        Ok(sampling)
    };
    read().map_err(|e: Error| e.inside("sampling"))
}

fn read_run(value: &Value) -> Result<RunSpec> {
    let read = || {
        let run: RunSpec = read_swept(value)?;
        require((1..=MAX_ROUNDS).contains(&run.rounds), "rounds", run.rounds, &format!("between 1 and {MAX_ROUNDS}"))?;
        run.seeds.check()?;
        let stop = &run.stop;
        let targets = [
            ("stop.mse", stop.mse),
            ("stop.residual", stop.residual),
            ("stop.relative_residual", stop.relative_residual),
            ("stop.gap", stop.gap),
        ];
        for (key, x) in targets {
            require(x.is_none_or(|x| x > 0.0 && x.is_finite()), key, x.unwrap_or(0.0), "a positive number")?;
        }
        run.record.check(run.rounds)?;
        Ok(run)
    };
    read().map_err(|e: Error| e.inside("run"))
}

/// Refuses a table `[problem]` that no experiment can have; keys are relative to the table.
pub(super) fn check_problem(kinds: &Kinds, table: &Table) -> Result<()> {
    let read = || read_problem(kinds, &Value::Table(table.clone()))?.check().map_err(|e| e.inside("problem"));
    read().map_err(|e: Error| {
        let key = e.key.strip_prefix("problem").unwrap_or(&e.key).trim_start_matches('.').to_string();
        e.about(key)
    })
}

/// The method of a table `[[method]]`; keys are relative to the table.
pub(super) fn method_alone(kinds: &Kinds, table: &Table) -> Result<MethodSpec> {
    let mut table = table.clone();
    super::presets::expand_one(&mut table);
    read_method(kinds, &Value::Table(table)).map(|(method, _)| method)
}

/// Checks the value of `run.name` that the caller has set and is about to replace.
///
/// # Errors
/// When the value is invalid.
pub fn check_before_replacing(document: &Document, name: &str) -> Result<()> {
    let key = format!("run.{name}");
    let is_set = document.origins.iter().any(|origin| matches!(origin.from, SetBy::Caller(_)) && origin.decides(&key));
    let Some(value) = document.table.get("run").and_then(|run| run.get(name)).filter(|_| is_set) else { return Ok(()) };
    let alone = [("rounds", Value::Integer(1)), (name, value.clone())].map(|(key, value)| (key.to_string(), value));
    read_run(&Value::Table(alone.into_iter().collect())).map_err(|e| document.failure(e)).map(|_| ())
}

/// The tables of the methods, at least one.
fn methods_of(sections: &Sections) -> Result<&[Arc<Value>]> {
    match &sections.method {
        Some(Methods::Each(tables)) if !tables.is_empty() => Ok(tables),
        Some(Methods::Each(_)) => Err(Error::new("method", "[] is not a list of tables", "at least one [[method]] with kind = ..")),
        Some(Methods::Other(value)) => Err(match &**value {
            Value::Table(_) => Error::new("method", "this is one table, not a list", "[[method]], in double brackets"),
            other => Error::new("method", format!("{} is not a list of tables", short(other)), "[[method]] tables"),
        }),
        None => Err(Error::new("", "there is no [[method]]", "at least one [[method]] with kind = ..")),
    }
}

/// A method and its whole `expect`, which may still be a list.
fn read_method(kinds: &Kinds, value: &Value) -> Result<(MethodSpec, Option<Expect>)> {
    let Value::Table(table) = value else {
        return Err(Error::new("", format!("{} is not a table", short(value)), "[[method]] tables"));
    };
    let (mut common, mut own) = (Table::new(), Table::new());
    for (key, value) in table {
        let to = if METHOD_COMMON.contains(&key.as_str()) { &mut common } else { &mut own };
        to.insert(key.clone(), value.clone());
    }
    let kind = find_kind(kinds.methods(), &mut own, "method").map_err(|e| {
        let presets: Vec<&str> = fedsa_methods::presets::PRESETS.iter().map(|p| p.name).collect();
        let help = format!("{}, {}", e.help, presets.join(", "));
        e.helped(help)
    })?;
    let settings = read_kind(kind, &own).map_err(|mut e| {
        if e.code() == ErrorCode::UnknownKey && own.contains_key(&e.key) {
            let common: Vec<&str> = METHOD_COMMON.iter().copied().filter(|key| shaped_keys::has(kind, key)).collect();
            e.help = format!("{}, {}", e.help, common.join(", "));
        }
        e
    })?;
    // Checks without a problem, whose number of agents is unknown.
    if let Err(e) = settings.check(usize::MAX)
        && e.key != "participants"
    {
        return Err(e);
    }
    shaped_keys::check(kinds.methods(), kind, &*settings, &common)?;
    let common: MethodCommon = read_swept(&Value::Table(common))?;
    link::build(kinds, &common.uplink, &common.downlink, None)?;
    let label = common.label.unwrap_or_else(|| kind.name.to_string());
    sweep::shown(&label).map_err(|e| e.inside("label"))?;
    let accepted = "a label other than format and theta_star, which name arrays of theta.npz";
    require(label != "format" && !label.starts_with("theta_star"), "label", format!("\"{}\"", quoted(&label)), accepted)?;
    let expect = match &common.expect {
        Some(Expect::Always(status)) => Some(*status),
        Some(Expect::At(list)) if list.is_empty() => {
            return Err(Error::new(
                "expect",
                "[] says nothing",
                "\"ok\", \"diverges\", \"misses-target\", or [{ at = { .. }, status = \"diverges\" }]",
            ));
        }
        _ => None,
    };
    let spec = MethodSpec {
        label,
        kind: kind.name,
        settings: settings.into(),
        start: common.start,
        controls: common.controls,
        measure_from: common.measure_from,
        output: common.output,
        expect,
        expected_by: None,
        uplink: common.uplink,
        downlink: common.downlink,
    };
    Ok((spec, common.expect))
}
