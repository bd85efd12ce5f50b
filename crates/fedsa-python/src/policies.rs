//! Policies from logged transitions with actions.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use fedsa::error::Error;
use fedsa_data::weights::{self, FittedModel, PolicyModel};
use fedsa_experiment::RunSettings;
use fedsa_experiment::config;
use fedsa_experiment::improve::{ImproveSettings, Improved, PolicySearch};
use fedsa_experiment::picture::DrawnFigure;
use numpy::{PyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value as Json, json};
use toml::Value;

use crate::convert;
use crate::engine::{self, Event};
use crate::errors::OrRaise;
use crate::experiment::CancelToken;
use crate::results::{Figure, RanResults, report};
use crate::values::{Given, logs_of, number_episodes};

/// The results of an improvement.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct PolicyFit {
    policy: Json,
    told: Json,
    pictures: Vec<(&'static str, DrawnFigure)>,
    ran: OnceLock<Py<RanResults>>,
}

#[pymethods]
impl PolicyFit {
    /// The text of `policy.json`.
    fn policy_json(&self) -> String {
        format!("{:#}\n", self.policy)
    }

    /// The report, as JSON.
    fn told_json(&self) -> String {
        self.told.to_string()
    }

    /// The pictures by name.
    fn pictures(&self) -> Vec<(&'static str, Figure)> {
        self.pictures.iter().map(|(name, drawn)| (*name, Figure(drawn.clone()))).collect()
    }

    /// The runs.
    fn ran(&self, py: Python<'_>) -> Option<Py<RanResults>> {
        self.ran.get().map(|ran| ran.clone_ref(py))
    }
}

/// Finds a policy.
#[pyfunction]
#[pyo3(signature = (notify, cancel, given, settings))]
pub fn improve_logs<'py>(
    py: Python<'py>,
    notify: Option<&Bound<'py, PyAny>>,
    cancel: Option<&CancelToken>,
    given: &Bound<'py, PyAny>,
    settings: &Bound<'py, PyDict>,
) -> PyResult<PolicyFit> {
    let mut settings: ImproveSettings = config::read(Value::Table(convert::table(settings)?)).or_raise(py)?;
    let logs = match given.extract::<Given<'_>>()? {
        Given::Files(files) => {
            settings.logs = files;
            None
        }
        Given::Tables(tables) => {
            let form = settings.form();
            let mut logs = engine::held(py, || logs_of(&tables, &form, None, true))?;
            logs.iter_mut().for_each(|one| number_episodes(&mut one.log));
            // The columns already have the names of logs.
            (settings.columns, settings.agent_column) = (BTreeMap::new(), None);
            Some(logs)
        }
    };
    let (fit, ran) = engine::call(py, notify, cancel.map(|token| &token.0), move |progress, cancel| {
        progress.say(Event::Stage("building", 0.0));
        let search = match logs {
            Some(logs) => PolicySearch::of_logs(&settings, logs, cancel)?,
            None => PolicySearch::new(&settings, cancel)?,
        };
        let improved = search.run(RunSettings::default(), progress, cancel)?.results(progress, cancel)?;
        Ok(parts(improved))
    })?;
    let _ = fit.ran.set(Py::new(py, RanResults(ran))?);
    Ok(fit)
}

/// The results that Python keeps.
fn parts(improved: Improved) -> (PolicyFit, fedsa_experiment::run::Ran) {
    let told = json!({
        "report": report(&improved.summary()),
        "may_be_worse": improved.may_be_worse(),
        "seconds": improved.ran.results.cells[0][0].seconds,
    });
    let drawn = |(name, picture)| (name, DrawnFigure::new(&improved.ran.plan.experiment, picture, improved.ran.config()));
    let pictures = improved.pictures().into_iter().map(drawn).collect();
    (PolicyFit { policy: improved.json(), told, pictures, ran: OnceLock::new() }, improved.ran)
}

/// Values of actions, and the policy that follows them.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ActionModel(PolicyModel);

#[pymethods]
impl ActionModel {
    /// The policy of a `policy.json`.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        let made = || match weights::from_json(text.as_bytes())? {
            FittedModel::Policy(model) => Ok(Self(model)),
            _ => Err(Error::data("path", "weights without actions", "the policy.json of an improvement; ValueFunction.load reads others")),
        };
        made().or_raise(py)
    }

    /// The names of its input columns, in order.
    fn inputs(&self) -> Vec<String> {
        self.0.inputs().to_vec()
    }

    /// The names of the actions.
    fn actions(&self) -> Vec<String> {
        self.0.actions().to_vec()
    }

    /// The values of all actions in states (n, k), n K numbers.
    fn values<'py>(&self, py: Python<'py>, states: PyReadonlyArray2<'py, f64>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let rows = states.as_slice()?;
        engine::held(py, || Ok(self.0.values(rows))).map(|values| PyArray1::from_vec(py, values))
    }

    /// The probabilities of all actions in states (n, k), n K numbers.
    fn probabilities<'py>(&self, py: Python<'py>, states: PyReadonlyArray2<'py, f64>, soften: f64) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let rows = states.as_slice()?;
        engine::held(py, || Ok(self.0.probabilities(rows, soften))).map(|law| PyArray1::from_vec(py, law))
    }
}
