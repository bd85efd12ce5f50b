//! Federations of agents that have data of their own: settings, enrolment, agents, results.

use std::path::PathBuf;
use std::sync::Mutex;

use fedsa::coordinator::Accepted;
use fedsa::enrolment;
use fedsa::error::Error;
use fedsa_data::find::Places;
use fedsa_experiment::config::Document;
use fedsa_experiment::deployment::{self, DeployedRun};
use fedsa_experiment::results::Recorded;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine;
use crate::nodes::{Federation, ServerNode, locked};
use crate::results::RanResults;

/// The settings that all ends have.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Deployment(deployment::Deployment);

#[pymethods]
impl Deployment {
    #[new]
    fn new(py: Python<'_>, text: &str, name: &str) -> PyResult<Self> {
        engine::brief(py, || Ok(Self(deployment::Deployment::new(Document::parse(name, text)?)?)))
    }

    /// The number of rounds.
    #[getter]
    fn rounds(&self) -> u64 {
        self.0.until().rounds
    }

    /// The server's side of enrolment.
    fn enrolment(&self, py: Python<'_>, least: usize, most: usize) -> PyResult<Enrolment> {
        let made = engine::brief(py, || self.0.enrolment(least..=most))?;
        Ok(Enrolment { deployment: self.0.clone(), enrolment: Mutex::new(made) })
    }

    /// An agent with its own data.
    fn agent(&self, py: Python<'_>, data: Vec<String>, base: PathBuf, number: Option<u32>) -> PyResult<LocalAgent> {
        let made =
            engine::call(py, None, None, |_, cancel| deployment::LocalAgent::new(&self.0, &data, &Places::from_env(base), number, cancel))?;
        Ok(LocalAgent(Mutex::new(made)))
    }

    /// The results of the rounds that a server has recorded.
    fn results(&self, py: Python<'_>, server: &ServerNode, rows: Vec<Vec<u8>>, seconds: f64, told: &str) -> PyResult<RanResults> {
        engine::brief(py, || {
            let rows = rows.iter().map(|row| postcard::from_bytes(row)).collect::<Result<Vec<Recorded>, _>>();
            let rows = rows.map_err(|_| Error::format("saved rounds", "not the rounds of a federation", "what this version saved"))?;
            let told = serde_json::from_str(told).map_err(|e| Error::data("told", e.to_string(), "JSON"))?;
            server.with(|server| {
                let coordinator = server.coordinator();
                let ended = DeployedRun::new(rows, coordinator.output().to_vec(), coordinator.diverged(), seconds).with_told(told);
                Ok(RanResults(self.0.results(coordinator.federation(), ended)?))
            })
        })
    }
}

/// An agent that was admitted: who it is, its number, its rows, and what is to be sent to it.
type Admitted<'py> = (String, usize, u64, Bound<'py, PyBytes>);

/// The federation, its agents, and those who cannot take part, each with the reason.
type Enrolled<'py> = (Federation, Vec<Admitted<'py>>, Vec<(String, String)>);

/// The server's side of enrolment.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Enrolment {
    deployment: deployment::Deployment,
    enrolment: Mutex<enrolment::Enrolment>,
}

#[pymethods]
impl Enrolment {
    /// What to send to so many agents.
    fn invite<'py>(&self, py: Python<'py>, count: usize) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.enrolment).invite(count))
    }

    /// Takes an application; whether it is a new one.
    fn take(&self, py: Python<'_>, sender: &str, application: &[u8]) -> PyResult<bool> {
        engine::brief(py, || Ok(locked(&self.enrolment).take(sender, application)? == Accepted::Counted))
    }

    fn applied(&self) -> Vec<String> {
        locked(&self.enrolment).applied().map(str::to_string).collect()
    }

    #[getter]
    fn has_enough(&self) -> bool {
        locked(&self.enrolment).has_enough()
    }

    #[getter]
    fn is_full(&self) -> bool {
        locked(&self.enrolment).is_full()
    }

    /// Founds the federation of those who have applied.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Enrolled<'py>> {
        let enrolled = engine::brief(py, || {
            let enrolment = locked(&self.enrolment);
            enrolment.close(self.deployment.dim(&enrolment)?)
        })?;
        let admit = |one: &enrolment::Admitted| (one.sender.clone(), one.agent, one.rows, PyBytes::new(py, &one.bytes));
        let admitted = enrolled.admissions.iter().map(admit).collect();
        let excluded = enrolled.excluded.into_iter().map(|(who, why)| (who, why.to_string())).collect();
        Ok((Federation(enrolled.federation), admitted, excluded))
    }

    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.enrolment).save())
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        engine::brief(py, || locked(&self.enrolment).restore(state))
    }
}

/// An agent with its own data.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct LocalAgent(Mutex<deployment::LocalAgent>);

#[pymethods]
impl LocalAgent {
    /// Processes a message; the answer, if it wants one.
    fn handle<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = message.to_vec();
        let answer = engine::brief(py, || locked(&self.0).handle(&message))?;
        Ok(answer.map(|answer| PyBytes::new(py, &answer)))
    }

    /// Its number, once it is admitted.
    #[getter]
    fn number(&self) -> Option<usize> {
        locked(&self.0).number()
    }

    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &engine::brief(py, || Ok(locked(&self.0).save()))?))
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let state = state.to_vec();
        engine::brief(py, || locked(&self.0).restore(&state))
    }
}
