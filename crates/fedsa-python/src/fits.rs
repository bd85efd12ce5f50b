//! Regression and classification of rows in memory.

use fedsa::error::{Error, quoted};
use fedsa_data::linear_model::LinearModel as Model;
use fedsa_data::memory::MemoryTable;
use fedsa_data::table::{self, Cells, TableForm};
use fedsa_data::weights::{self, FittedModel};
use fedsa_experiment::choose::LossChoice;
use fedsa_experiment::config;
use fedsa_experiment::fit::{self, Fit, FitSettings, Fitted};
use fedsa_experiment::theory::TheorySettings;
use fedsa_experiment::tune::TuneSettings;
use fedsa_experiment::{EvaluateSettings, ImproveSettings, RunSettings};
use fedsa_problems::rows::dataset::{Dataset, Labels};
use fedsa_problems::rows::preparation::partition::Partition;
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
use crate::rows::{GivenX, dataset_of, rows, targets};
use crate::tables::Columns;

/// The column of row weights, with a name that no column of a data frame has.
const ROW_WEIGHTS: &str = "\u{1}sample_weight";

/// The results of a fit, as data.
type FitParts = (String, String, RanResults, Option<(Vec<f64>, usize)>);

/// The same for Python.
type FitResult<'py> = (String, String, RanResults, Option<Bound<'py, PyArray2<f64>>>);

/// A column from Python.
type Numbers<'py> = Option<PyReadonlyArray1<'py, f64>>;

/// Rows from Python: X, targets, column names of an array, row weights, an offset that is no column of X, and the number of agents or each
/// row's agent.
pub type GivenRows<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Vec<String>>, Numbers<'py>, Numbers<'py>, Bound<'py, PyAny>);

/// The JSON schema of a task: its settings with texts, defaults and ranges.
#[pyfunction]
pub fn task_schema(py: Python<'_>, task: &str) -> PyResult<String> {
    let schema = match task {
        "fit" => schemars::schema_for!(FitSettings),
        "evaluate" => schemars::schema_for!(EvaluateSettings),
        "improve" => schemars::schema_for!(ImproveSettings),
        "theory" => schemars::schema_for!(TheorySettings),
        "tune" => schemars::schema_for!(TuneSettings),
        other => {
            let e = Error::new("task", format!("`{other}`"), "fit, evaluate, improve, theory or tune");
            return Err(e).or_raise(py);
        }
    };
    Ok(schema.to_value().to_string())
}

/// Fits rows. Returns `weights.json`, the report as JSON, the runs, and the covariance of coefficients with standard errors.
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
    let (x, y, names, row_weights, offset, agents) = given;
    let mut added = Vec::new();
    if let Some(weights) = &row_weights {
        added.push((ROW_WEIGHTS.to_string(), weights.as_slice()?));
        settings.row_weights = Some(ROW_WEIGHTS.into());
    }
    if let (Some(offset), Some(name)) = (&offset, &settings.offset) {
        added.push((name.clone(), offset.as_slice()?));
    }
    let rows = dataset_of(py, GivenX { name: "X".into(), x, names, added, categorical: settings.categorical.clone() })?;
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
    let set = Dataset { targets: Some(targets(&y)?), groups, ..rows };
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

/// The results of a fit that Python keeps.
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

/// The reason for the choice of a method, and the candidates.
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
            FittedModel::Value(_) | FittedModel::Policy(_) => {
                let help = "the weights.json of a fit; ValueFunction.load and ActionValueFunction.load read others";
                let e = Error::data("path", "weights of a value function or a policy", help);
                return Err(e).or_raise(py);
            }
        };
        Ok(Self(model))
    }

    /// The linear predictors of rows, (n, outputs); `offset` is added, if X has no such column.
    #[pyo3(signature = (x, offset=None))]
    fn scores<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        offset: Option<PyReadonlyArray1<'py, f64>>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (scores, n) = self.all(x, offset.as_ref())?;
        PyArray1::from_vec(py, scores).reshape([n, self.0.outputs()])
    }

    /// The predictions for rows, n numbers.
    #[pyo3(signature = (x, offset=None))]
    fn predictions<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
        offset: Option<PyReadonlyArray1<'py, f64>>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (scores, _) = self.all(x, offset.as_ref())?;
        match self.0.predictions(&scores).pop() {
            Some((_, Cells::Numbers(numbers))) => Ok(PyArray1::from_vec(py, numbers)),
            _ => Err(Error::data("", "classes with names", "scores of classes")).or_raise(py),
        }
    }
}

impl LinearModel {
    fn all(&self, x: &Bound<'_, PyAny>, offset: Option<&PyReadonlyArray1<'_, f64>>) -> PyResult<(Vec<f64>, usize)> {
        let (py, model) = (x.py(), &self.0);
        if let Ok(columns) = x.cast::<Columns>() {
            let mut given = MemoryTable::of("X", &columns.get().0);
            if let (Some(offset), Some(name)) = (offset, &model.offset) {
                given.add_matrix(std::slice::from_ref(name), offset.as_slice()?, 1).or_raise(py)?;
            }
            let scores =
                table::from_memory(&given, &TableForm::new(model.names())).and_then(|table| Ok((model.table_scores(&table)?, table.rows)));
            return scores.or_raise(py);
        }
        if let Some(category) = model.categories.first() {
            let what = format!("an array, and the model has levels of the column `{}`", quoted(&category.column));
            return Err(Error::data("X", what, "a data frame with the columns of the fit")).or_raise(py);
        }
        let (mut row, mut scores) = (Vec::new(), Vec::new());
        let n;
        if let Ok(dense) = x.extract::<PyReadonlyArray2<'_, f64>>() {
            n = dense.shape()[0];
            for numbers in dense.as_slice()?.chunks_exact(dense.shape()[1].max(1)) {
                row.clear();
                row.extend(numbers.iter().copied().enumerate());
                model.scores(&row, &mut scores);
            }
        } else {
            let rows = rows(x)?;
            n = rows.len();
            for i in 0..n {
                row.clear();
                row.extend(rows.row(i));
                model.scores(&row, &mut scores);
            }
        }
        if let Some(offset) = offset {
            let each = scores.chunks_exact_mut(model.outputs()).zip(offset.as_slice()?);
            each.for_each(|(scores, offset)| scores.iter_mut().for_each(|score| *score += offset));
        }
        Ok((scores, n))
    }
}
