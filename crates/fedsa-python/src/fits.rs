//! Regressions and classifications of rows in memory.

use fedsa::error::Error;
use fedsa::problem::dataset::{Columns, Dataset, Labels};
use fedsa::problem::preparation::partition::Partition;
use fedsa_data::linear_model::LinearModel as Model;
use fedsa_data::table::Cells;
use fedsa_data::weights::{self, FittedModel};
use fedsa_experiment::choose::LossChoice;
use fedsa_experiment::config;
use fedsa_experiment::fit::{self, Fit, FitSettings, Fitted};
use fedsa_experiment::theory::TheorySettings;
use fedsa_experiment::tune::TuneSettings;
use fedsa_experiment::{EvaluateSettings, RunSettings};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value as Json, json};
use toml::Value;

use crate::convert;
use crate::engine::{self, Event};
use crate::errors::OrRaise;
use crate::experiment::CancelToken;
use crate::results::{RanResults, report};
use crate::rows::{rows, targets, with_column};

/// The column of row weights: no column of a data frame has this name.
const ROW_WEIGHTS: &str = "\u{1}sample_weight";

/// What a fit has come to, as data.
type FitParts = (String, String, RanResults, Option<(Vec<f64>, usize)>);

/// The same for Python.
type FitResult<'py> = (String, String, RanResults, Option<Bound<'py, PyArray2<f64>>>);

/// Rows from Python: X, targets, names of columns, row weights, and a number of agents or the number of each row's agent.
#[derive(FromPyObject)]
pub struct GivenRows<'py>(Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Vec<String>>, Option<PyReadonlyArray1<'py, f64>>, Bound<'py, PyAny>);

/// The JSON schema of a task: its settings with their texts, defaults and ranges.
#[pyfunction]
pub fn task_schema(py: Python<'_>, task: &str) -> PyResult<String> {
    let schema = match task {
        "fit" => schemars::schema_for!(FitSettings),
        "evaluate" => schemars::schema_for!(EvaluateSettings),
        "theory" => schemars::schema_for!(TheorySettings),
        "tune" => schemars::schema_for!(TuneSettings),
        other => {
            let e = Error::new("task", format!("`{other}`"), "fit, evaluate, theory or tune");
            return Err(e).or_raise(py);
        }
    };
    Ok(schema.to_value().to_string())
}

/// Fits rows. Returns `weights.json`, what is to be told as JSON, the runs, and the covariance of coefficients with standard errors.
#[pyfunction]
#[pyo3(signature = (notify, cancel, given, settings))]
pub fn fit_rows<'py>(
    py: Python<'py>,
    notify: Option<&Bound<'py, PyAny>>,
    cancel: Option<&CancelToken>,
    given: GivenRows<'py>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<FitResult<'py>> {
    let mut settings: FitSettings = config::read(Value::Table(convert::table(settings)?)).or_raise(py)?;
    let GivenRows(x, y, names, sample_weight, agents) = given;
    let mut rows = rows(&x)?;
    let mut names = names.unwrap_or_else(|| (1..=rows.columns()).map(|j| j.to_string()).collect());
    if let Some(weights) = sample_weight {
        rows = with_column(rows, weights.as_slice()?);
        names.push(ROW_WEIGHTS.into());
        settings.row_weights = Some(ROW_WEIGHTS.into());
    }
    let groups = match agents.extract::<u64>() {
        Ok(count) => {
            settings.agents = Some(count);
            None
        }
        Err(_) => {
            settings.partition = Some(Partition::ByColumn);
            settings.group = Some("agents".into());
            Some(Labels::Numbers(agents.extract::<PyReadonlyArray1<'_, f64>>()?.as_slice()?.to_vec()))
        }
    };
    let targets = Some(targets(&y)?);
    let set = Dataset { name: "X".into(), rows, columns: Columns::Named(names), targets, groups, texts: Vec::new(), notes: Vec::new() };
    let (weights, told, ran, covariances) = engine::call(py, notify, cancel.map(|token| &token.0), move |progress, cancel| {
        progress.say(Event::Stage("building", 0.0));
        set.check()?;
        let fit = Fit::of_sets(&settings, vec![set], cancel)?;
        let (choice, tol) = (fit.choice().map(choice_json), fit.settings().tol);
        let fitted = fit.run(RunSettings::default(), progress, cancel)?.results(progress, cancel)?;
        parts(fitted, choice, tol)
    })?;
    let covariances = covariances.map(|(rows, p)| PyArray1::from_vec(py, rows).reshape([p, p])).transpose()?;
    Ok((weights, told, ran, covariances))
}

/// The parts of a fit that are kept.
fn parts(fitted: Fitted, choice: Option<Json>, tol: f64) -> Result<FitParts, Error> {
    let spent = |spent: &fit::MethodSpending| {
        json!({
            "method": spent.method,
            "rounds": spent.rounds,
            "exchanges": spent.exchanges,
            "vectors_up": spent.vectors_up,
            "bits_up": spent.bits_up,
            "bits": spent.bits,
            "hessians": spent.hessians,
            "seconds": spent.seconds,
            "gradient_norm": spent.residual,
            "objective": spent.loss,
            "outcome": spent.outcome.name(),
        })
    };
    let summary = fitted.ran.summary_json();
    let told = json!({
        "spent": fitted.spent().iter().map(spent).collect::<Vec<_>>(),
        "choice": choice,
        "tol": tol,
        "report": report(&fitted.summary()),
        "inference": summary.get("inference"),
    });
    let covariances = fitted.inference.as_ref().map(|found| (found.covariances.clone(), found.coefficients.len()));
    Ok((fitted.json().to_string(), told.to_string(), RanResults(fitted.ran), covariances))
}

/// Why a method was chosen, and what was considered.
fn choice_json(choice: &LossChoice) -> Json {
    let considered = choice.considered.iter().map(|one| {
        let cost = one.cost;
        json!({
            "method": one.kind,
            "rounds": cost.rounds,
            "exchanges": cost.exchanges,
            "bits": cost.bits,
            "seconds": cost.seconds,
            "if_alike": one.if_alike,
        })
    });
    json!({ "method": choice.kind, "why": choice.why, "objective": choice.goal.name(), "considered": considered.collect::<Vec<_>>() })
}

/// A fitted regression or classification.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct LinearModel(Model);

#[pymethods]
impl LinearModel {
    /// The model of the text of a `weights.json`.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let model = match weights::from_json(text.as_bytes()).or_raise(py)? {
            FittedModel::Linear(model) => model,
            FittedModel::Value(_) => {
                let e = Error::data("path", "weights of a value function", "the weights.json of a fit; ValueFunction.load reads these");
                return Err(e).or_raise(py);
            }
        };
        Ok(Self(model))
    }

    /// The linear predictors of rows, (n, outputs).
    fn scores<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let scores = self.all(x)?;
        let width = self.0.outputs();
        PyArray1::from_vec(py, scores.0).reshape([scores.1, width])
    }

    /// What is predicted of rows, n numbers.
    fn predictions<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (scores, _) = self.all(x)?;
        match self.0.predictions(&scores).pop() {
            Some((_, Cells::Numbers(numbers))) => Ok(PyArray1::from_vec(py, numbers)),
            _ => Err(Error::data("", "classes with names", "scores of classes")).or_raise(py),
        }
    }
}

impl LinearModel {
    fn all(&self, x: &Bound<'_, PyAny>) -> PyResult<(Vec<f64>, usize)> {
        let mut row = Vec::new();
        if let Ok(dense) = x.extract::<PyReadonlyArray2<'_, f64>>() {
            let (n, d) = (dense.shape()[0], dense.shape()[1]);
            let mut scores = Vec::with_capacity(n * self.0.outputs());
            for numbers in dense.as_slice()?.chunks_exact(d.max(1)) {
                row.clear();
                row.extend(numbers.iter().copied().enumerate());
                self.0.scores(&row, &mut scores);
            }
            return Ok((scores, n));
        }
        let rows = rows(x)?;
        let mut scores = Vec::with_capacity(rows.len() * self.0.outputs());
        for i in 0..rows.len() {
            row.clear();
            row.extend(rows.row(i));
            self.0.scores(&row, &mut scores);
        }
        Ok((scores, rows.len()))
    }
}
