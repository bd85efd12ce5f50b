//! Value functions of logged transitions.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, quoted};
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_data::logs::MemoryLog;
use fedsa_data::npz;
use fedsa_data::table::{self, Cells};
use fedsa_data::weights::{self, FittedModel, ValueModel as Model};
use fedsa_evaluate::held_out::{Errors, judge};
use fedsa_evaluate::policy_value::ValueEstimate;
use fedsa_experiment::RunSettings;
use fedsa_experiment::choose::{Choice, Why};
use fedsa_experiment::config;
use fedsa_experiment::evaluate::{EvaluateSettings, Evaluated, Evaluation, PictureWords};
use fedsa_experiment::picture::DrawnFigure;
use fedsa_problems::Files as _;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::autoreset::without_resets;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::replay::TraceRule;
use fedsa_problems::logs::source::{Inputs, LogSource, whole};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::{Value as Json, json};
use toml::Value;

use crate::convert;
use crate::engine::{self, Event};
use crate::errors::OrRaise;
use crate::experiment::CancelToken;
use crate::results::{Figure, RanResults, report};
use crate::tables::{GivenTable, memory_table};

/// An agent: name, transitions with a return, the error of their values, and its standard error.
type AgentError = (String, usize, Option<f64>, Option<f64>);

/// The logs: names of files, or tables.
#[derive(FromPyObject)]
pub enum Given<'py> {
    Files(Vec<String>),
    Tables(Vec<GivenTable<'py>>),
}

/// The results of an evaluation.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ValueFit {
    weights: Json,
    told: Json,
    npz: Vec<u8>,
    pictures: Vec<(&'static str, DrawnFigure)>,
    ran: OnceLock<Py<RanResults>>,
}

#[pymethods]
impl ValueFit {
    /// The text of `weights.json`.
    fn weights_json(&self) -> String {
        format!("{:#}\n", self.weights)
    }

    /// The report, as JSON.
    fn told_json(&self) -> String {
        self.told.to_string()
    }

    /// The bytes of `weights.npz`.
    fn npz<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.npz)
    }

    /// The runs.
    fn ran(&self, py: Python<'_>) -> Option<Py<RanResults>> {
        self.ran.get().map(|ran| ran.clone_ref(py))
    }

    /// The pictures by name, as SVG.
    fn pictures(&self) -> Vec<(&'static str, Figure)> {
        self.pictures.iter().map(|(name, drawn)| (*name, Figure(drawn.clone()))).collect()
    }
}

/// Fits a value function.
#[pyfunction]
#[pyo3(signature = (notify, cancel, given, settings))]
pub fn evaluate_logs<'py>(
    py: Python<'py>,
    notify: Option<&Bound<'py, PyAny>>,
    cancel: Option<&CancelToken>,
    given: &Bound<'py, PyAny>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<ValueFit> {
    let mut settings: EvaluateSettings = config::read(Value::Table(convert::table(settings)?)).or_raise(py)?;
    let logs = match given.extract::<Given<'_>>()? {
        Given::Files(files) => {
            settings.logs = files;
            None
        }
        Given::Tables(tables) => {
            let (form, chosen) = (form_of(&settings).or_raise(py)?, settings.features_to_choose().is_some());
            let features = settings.named_features().or_raise(py)?;
            let mut logs = engine::held(py, || logs_of(&tables, &form, features.as_ref(), chosen))?;
            if settings.holdout.is_some() || chosen {
                // Whole episodes are held out. Files must number them; here their ends determine them.
                logs.iter_mut().for_each(|one| number_episodes(&mut one.log));
            }
            // The columns already have the names of logs.
            (settings.columns, settings.agent_column) = (BTreeMap::new(), None);
            Some(logs)
        }
    };
    let (fit, ran) = engine::call(py, notify, cancel.map(|token| &token.0), move |progress, cancel| {
        progress.say(Event::Stage("building", 0.0));
        let evaluation = match logs {
            Some(logs) => Evaluation::of_logs(&settings, logs, cancel)?,
            None => Evaluation::new(&settings, cancel)?,
        };
        let evaluated = evaluation.run(RunSettings::default(), progress, cancel)?.results(progress, cancel)?;
        parts(evaluated)
    })?;
    let _ = fit.ran.set(Py::new(py, RanResults(ran))?);
    Ok(fit)
}

/// The results of an evaluation that Python keeps.
fn parts(evaluated: Evaluated) -> Result<(ValueFit, fedsa_experiment::run::Ran), Error> {
    let words = PictureWords::default();
    let experiment = &evaluated.ran.plan.experiment;
    let drawn = |(name, picture)| (name, DrawnFigure::new(experiment, picture, evaluated.ran.config()));
    let pictures = evaluated.pictures(&words)?.into_iter().map(drawn).collect();
    let summary = evaluated.ran.summary_json();
    let last = evaluated.ran.results.cells[0][0].rows.last();
    let counted = |name: &str| last.map_or(0, |row| row.count(fedsa_experiment::results::paid(Some(name))));
    let told = json!({
        "choice": evaluated.choice.as_ref().map(choice_json),
        "report": report(&evaluated.summary()),
        "policy_value": summary.get("policy_value"),
        "notes": summary.get("notes"),
        "logs": summary.get("logs"),
        "clipped": evaluated.data.clipped,
        "seconds": evaluated.ran.results.cells[0][0].seconds,
        "exchanges": counted("exchanges"),
        "vectors_up": counted("vectors_up"),
        "bits_up": counted("bits_up"),
        "bits": counted("bits"),
    });
    let npz = npz::to_bytes(&evaluated.arrays()?)?;
    let fit = ValueFit { weights: evaluated.json(), told, npz, pictures, ran: OnceLock::new() };
    Ok((fit, evaluated.ran))
}

/// The reason for the choice of a method, and the candidates.
fn choice_json(choice: &Choice) -> Json {
    let considered = choice.considered.iter().map(|one| match &one.cost {
        Ok(cost) => json!({ "method": one.kind, "rounds": cost.rounds, "bits": cost.bits, "is_bound": cost.is_bound }),
        Err(e) => json!({ "method": one.kind, "why_not": e.to_string() }),
    });
    let why = match choice.why {
        Why::Cheapest(_) => "its predicted cost is the smallest",
        Why::NoCostKnown => "no cost is known beforehand, and it works wherever operators are linear",
    };
    json!({ "method": choice.kind, "why": why, "target": choice.target, "considered": considered.collect::<Vec<_>>() })
}

/// The layout of the logs: for a policy in a file they have actions.
fn form_of(settings: &EvaluateSettings) -> Result<LogForm, Error> {
    let Some(path) = &settings.policy else { return Ok(settings.form()) };
    let policy = DiskFiles::new(Places::from_env("")).policy(path)?;
    Ok(settings.form().with_actions(Some(policy.actions())))
}

/// The logs of tables, each of one agent, unless a column names agents.
pub fn logs_of(tables: &[GivenTable<'_>], form: &LogForm, features: Option<&FeatureSpec>, chosen: bool) -> Result<Vec<MemoryLog>, Error> {
    form.check()?;
    let all = tables.iter().map(memory_table).collect::<Result<Vec<_>, _>>()?;
    // As for files: logged features are the default if every table has some.
    let inputs = match features {
        Some(features) => features.inputs(),
        None if chosen => Inputs::States,
        None => {
            let has = all.iter().map(|table| table.has_features(form)).collect::<Result<Vec<_>, _>>()?;
            if has.into_iter().all(|has| has) { Inputs::Features } else { Inputs::States }
        }
    };
    let mut form = form.clone();
    form.inputs = inputs;
    let mut logs = Vec::new();
    for table in &all {
        logs.extend(table.logs(&form)?);
    }
    Ok(logs)
}

/// The logs of files, complete.
fn logs_of_files(sources: &[String], form: &LogForm, cancel: &Cancel) -> Result<Vec<Log>, Error> {
    let logs = DiskFiles::new(Places::from_env("")).with_cancel(cancel).logs(sources, form)?;
    whole_logs(logs, form)
}

/// Complete logs without rows of automatic resets.
fn whole_logs(logs: Vec<Box<dyn LogSource>>, form: &LogForm) -> Result<Vec<Log>, Error> {
    without_resets(logs, form.keep_autoreset_rows).iter().map(|log| whole(&**log)).collect()
}

/// An estimate of a policy's value in Python: estimate, standard error, ends of the interval, episodes, their effective number.
type GivenEstimate = (f64, f64, f64, f64, usize, f64);

/// The difference of two estimates on independent logs, with an interval of this level.
#[pyfunction]
pub fn value_difference(a: GivenEstimate, b: GivenEstimate, level: f64) -> GivenEstimate {
    // The difference does not depend on the ends of their intervals.
    let of = |(estimate, se, _, _, episodes, effective): GivenEstimate| ValueEstimate::new(estimate, se, episodes, effective, level);
    let ValueEstimate { estimate, se, low, high, episodes, effective_episodes, .. } = of(a).minus(&of(b), level);
    (estimate, se, low, high, episodes, effective_episodes)
}

/// A fitted value function.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ValueModel(Model);

#[pymethods]
impl ValueModel {
    /// The function of a `weights.json`, with the covariance of its `weights.npz`.
    #[new]
    fn new(py: Python<'_>, text: &str, npz: Option<&[u8]>) -> PyResult<Self> {
        let made = || {
            let FittedModel::Value(mut model) = weights::from_json(text.as_bytes())? else {
                let help = "the weights.json of an evaluation; FederatedRegressor.load and FederatedClassifier.load read those of a fit, \
                            and ActionValueFunction.load a policy";
                return Err(Error::data("path", "weights of a regression or classification, or a policy", help));
            };
            if let Some(bytes) = npz {
                model.take_covariance(&npz::from_bytes(bytes)?)?;
            }
            Ok(model)
        };
        made().or_raise(py).map(Self)
    }

    /// The names of its input columns, in order.
    fn inputs(&self) -> Vec<String> {
        self.0.inputs().to_vec()
    }

    /// The names that columns had in the files of the logs.
    fn file_columns(&self) -> BTreeMap<String, String> {
        self.0.file_columns().clone()
    }

    /// The values of states (n, k).
    fn values<'py>(&self, py: Python<'py>, states: PyReadonlyArray2<'py, f64>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let states = states.as_slice()?;
        engine::held(py, || Ok(self.0.apply(states))).map(|values| PyArray1::from_vec(py, values))
    }

    /// Their standard errors, which need the covariance.
    fn errors<'py>(&self, py: Python<'py>, states: PyReadonlyArray2<'py, f64>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let states = states.as_slice()?;
        engine::held(py, || Ok(self.0.standard_errors(states))).map(|errors| PyArray1::from_vec(py, errors))
    }

    /// The features of states, row by row.
    fn features<'py>(&self, py: Python<'py>, states: PyReadonlyArray2<'py, f64>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (map, k) = (self.0.map(), self.0.inputs().len());
        let mut out = vec![0.0; states.shape()[0] * map.len()];
        let rows = states.as_slice()?.chunks_exact(k).zip(out.chunks_exact_mut(map.len()));
        rows.for_each(|(state, phi)| map.eval(state, phi));
        Ok(PyArray1::from_vec(py, out))
    }

    /// The root-mean-square error against the returns of episodes: by agent (name, transitions with a return, error, standard error), and
    /// over all.
    fn return_errors(
        &self,
        py: Python<'_>,
        given: &Bound<'_, PyAny>,
        columns: BTreeMap<String, String>,
        agent_column: Option<String>,
        gamma: f64,
        lam: f64,
    ) -> PyResult<Vec<AgentError>> {
        let mut form = LogForm::default().with_columns(columns).with_agent_column(agent_column);
        let spec = self.0.map().spec();
        let mut logs = match given.extract::<Given<'_>>()? {
            Given::Tables(tables) => engine::held(py, || {
                let logs = logs_of(&tables, &form, Some(spec), false)?;
                whole_logs(logs.into_iter().map(|log| Box::new(log) as Box<dyn LogSource>).collect(), &form)
            })?,
            Given::Files(files) => {
                form.inputs = spec.inputs();
                engine::call(py, None, None, |_, cancel| logs_of_files(&files, &form, cancel))?
            }
        };
        logs.iter_mut().for_each(number_episodes);
        engine::brief(py, || {
            let rule = TraceRule { gamma, lambda: lam, ratios: true, clip: None };
            let mut judged = Vec::with_capacity(logs.len());
            for log in &logs {
                if log.columns != self.0.inputs() {
                    let what = format!("its state columns are {}", quoted(log.columns.join(", ")));
                    return Err(Error::data(quoted(&log.name), what, format!("those of the fit: {}", self.0.inputs().join(", "))));
                }
                judged.push((log.name.clone(), judge(log, self.0.map(), rule, &[self.0.theta()])?));
            }
            let one = |name: &str, count: usize, errors: &Errors| (name.to_string(), count, errors.rms(), errors.standard_error());
            let count = |judged: &fedsa_evaluate::held_out::Judged| judged.transitions - judged.transitions_cut;
            let mut all: Vec<_> = judged.iter().map(|(name, of)| one(name, count(of), &of.returns[0])).collect();
            let total = Errors::of_all(judged.iter().map(|(_, of)| &of.returns[0]));
            all.push(one("all agents", judged.iter().map(|(_, of)| count(of)).sum(), &total));
            Ok(all)
        })
    }
}

/// Numbers the episodes of a log without numbers.
pub fn number_episodes(log: &mut Log) {
    if log.episode.is_none() {
        let begins: Vec<bool> = (0..log.len()).map(|i| i > 0 && log.begins(i)).collect();
        let number = |count: &mut i64, begins: &bool| {
            *count += i64::from(*begins);
            Some(*count)
        };
        log.episode = Some(begins.iter().scan(0, number).collect());
    }
}

/// The bytes of a file of logs with these columns: `csv` or `parquet`.
#[pyfunction]
pub fn table_bytes<'py>(py: Python<'py>, given: Vec<(String, PyReadonlyArray1<'py, f64>)>, format: &str) -> PyResult<Bound<'py, PyBytes>> {
    let columns = given.into_iter().map(|(name, numbers)| Ok((name, Cells::Numbers(numbers.as_slice()?.to_vec()))));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let is_csv = format == "csv";
    let bytes = engine::brief(py, || if is_csv { table::to_csv(&columns) } else { table::to_parquet(columns) })?;
    Ok(PyBytes::new(py, &bytes))
}
