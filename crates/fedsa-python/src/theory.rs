//! Predictions for an experiment before it runs, and settings that reach a target.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa_cli::commands::theory::brief_page;
use fedsa_experiment::check;
use fedsa_experiment::config;
use fedsa_experiment::picture::DrawnFigure;
use fedsa_experiment::plan::PlanControl;
use fedsa_experiment::theory::{self, TheoryReport};
use fedsa_experiment::tune::{self, Answer, TuneOutcome, TuneSettings, TuneStage};
use fedsa_experiment::{Plan, Predictor, RunSettings};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::json;
use toml::Value;

use crate::convert;
use crate::engine::{self, Event};
use crate::errors::{OrRaise, exception};
use crate::experiment::{CancelToken, Experiment, if_exists};
use crate::results::Figure;

/// The theory of an experiment.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Theory {
    plan: Arc<Plan>,
    predictor: Arc<Predictor>,
    report: TheoryReport,
    target: Option<f64>,
    calls_back: bool,
}

#[pymethods]
impl Theory {
    #[staticmethod]
    fn of(
        py: Python<'_>,
        experiment: &Experiment,
        notify: Option<&Bound<'_, PyAny>>,
        cancel: Option<&CancelToken>,
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let settings: theory::TheorySettings = config::read(Value::Table(convert::table(settings)?)).or_raise(py)?;
        let target = settings.target_mse;
        let (inner, base, calls_back) = (experiment.inner.clone(), &experiment.base, experiment.calls_back);
        engine::call_back(py, calls_back, notify, cancel.map(|token| &token.0), |progress, cancel| {
            let control = PlanControl { cancel, solving: None };
            let plan = Arc::new(Plan::with_problem(inner, base, Isa::best(), &HashMap::new(), None, &control)?);
            let predictor = Arc::new(Predictor::new(&plan).with_cancel(cancel));
            let theory = theory::Theory::new(&predictor, settings).map_err(|e| plan.experiment.document.failure(e))?;
            let report = theory.report(&|what| progress.say(Event::Searching(format!("theory of {}", what.trim()), 0.0)))?;
            // The token of this call does not cancel later requests.
            let predictor = Arc::new(Predictor::new(&plan).with_kept(predictor.keep()));
            Ok(Self { plan, predictor, report, target, calls_back })
        })
    }

    /// All numbers, as JSON.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        engine::brief(py, || Ok(self.report.json().to_string()))
    }

    /// The page that the program prints.
    fn page(&self, py: Python<'_>) -> PyResult<String> {
        engine::brief(py, || Ok(brief_page(&self.plan, &self.report, self.target).join("\n")))
    }

    /// The predicted curve of a method: rounds, mean-square errors, their parts from bias and from noise, and their accuracy as JSON.
    #[expect(clippy::type_complexity, reason = "arrays of a curve")]
    fn curve<'py>(
        &self,
        py: Python<'py>,
        method: usize,
    ) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, String)>
    {
        let cell = self.report.methods.get(method).map_or(0, |method| method.cell);
        let (curve, accuracy) = engine::call_back(py, self.calls_back, None, None, |_, _| {
            Ok((self.predictor.curve(cell)?, self.predictor.curve_accuracy(cell)?))
        })?;
        let rounds: Vec<i64> = self.plan.cells[cell].grid.iter().map(|t| i64::try_from(*t).unwrap_or(i64::MAX)).collect();
        let of = |value: &dyn Fn(&fedsa_theory::exact_mse::MeanSquare) -> f64| PyArray1::from_iter(py, curve.iter().map(value));
        let (mse, bias, noise) = (of(&|point| point.mse()), of(&|point| point.bias_sq()), of(&|point| point.noise));
        Ok((PyArray1::from_vec(py, rounds), mse, bias, noise, json!(accuracy).to_string()))
    }

    /// A figure: `curves` or `stability`.
    fn figure(&self, py: Python<'_>, which: &str) -> PyResult<Figure> {
        let drawn = engine::call_back(py, self.calls_back, None, None, |_, _| {
            let found = theory::picture(&self.plan, &self.predictor, &format!("theory-{which}"));
            let unknown = || Error::new("figure", format!("`{which}` is not accepted"), "curves or stability");
            let picture = found.ok_or_else(unknown)?.map_err(|why| Error::not_known("figure", why, "another experiment"))?;
            Ok(DrawnFigure::new(&self.plan.experiment, picture, &toml::to_string(&self.plan.experiment.document.table).unwrap_or_default()))
        })?;
        Ok(Figure(drawn))
    }
}

/// Checks an experiment. Returns all numbers as JSON, and the exception with which it would be refused, if any.
#[pyfunction]
pub fn check_experiment(
    py: Python<'_>,
    experiment: &Experiment,
    notify: Option<&Bound<'_, PyAny>>,
    cancel: Option<&CancelToken>,
    force: bool,
) -> PyResult<(String, Option<Py<PyAny>>)> {
    let settings = RunSettings::default().with_base(&experiment.base).with_quick(experiment.quick).with_force(force);
    let (text, refusal) = engine::call_back(py, experiment.calls_back, notify, cancel.map(|token| &token.0), |_, cancel| {
        let checked = check::check(experiment.inner.clone(), &settings, cancel)?;
        let json = serde_json::to_string(&checked.written()).expect("plain data");
        Ok((json, checked.refusal))
    })?;
    Ok((text, refusal.map(|e| exception(py, &e).into_value(py).into_any())))
}

/// The answer of a tuning.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Tuned {
    summary: String,
    report: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
    frontier: DrawnFigure,
}

#[pymethods]
impl Tuned {
    /// The request, the answer, and the tried choices, as JSON.
    #[getter]
    fn summary(&self) -> &str {
        &self.summary
    }

    /// The report as text.
    #[getter]
    fn report(&self) -> Vec<String> {
        self.report.clone()
    }

    /// The figure: cost against error.
    fn figure(&self) -> Figure {
        Figure(self.frontier.clone())
    }

    /// The files with their contents: the experiment of the answer, the figure, the summary.
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (name, bytes) in &self.files {
            out.set_item(name, PyBytes::new(py, bytes))?;
        }
        Ok(out)
    }
}

/// Searches the cheapest settings.
#[pyfunction]
pub fn tune_experiment(
    py: Python<'_>,
    experiment: &Experiment,
    notify: Option<&Bound<'_, PyAny>>,
    cancel: Option<&CancelToken>,
    options: &Bound<'_, PyDict>,
    folder: Option<(PathBuf, String)>,
) -> PyResult<Tuned> {
    let options: TuneSettings = config::read(Value::Table(convert::table(options)?)).or_raise(py)?;
    let mut settings = RunSettings::default().with_base(&experiment.base);
    if let Some((folder, word)) = folder {
        settings = settings.in_folder(folder, if_exists(&word));
    }
    engine::call_back(py, experiment.calls_back, notify, cancel.map(|token| &token.0), |progress, cancel| {
        let mut observe = |stage: TuneStage<'_>| {
            if let TuneStage::Began(began) = stage {
                progress.say(Event::Searching(began.what.clone(), began.spent));
            }
        };
        match tune::tune(&experiment.inner, &options, &settings, &mut observe, cancel)? {
            TuneOutcome::Done(mut answer) => {
                answer.write()?;
                let Answer { tuning, tuned, .. } = &*answer;
                Ok(Tuned {
                    summary: tuning.summary(tuned).to_string(),
                    report: tuning.report(tuned),
                    files: tuning.files(tuned)?,
                    frontier: tuning.drawn(tuned)?,
                })
            }
            _ => Err(Error::cancelled("it was cancelled", "the same call with `resume`, which goes on from its folder")),
        }
    })
}
