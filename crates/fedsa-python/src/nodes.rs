//! The ends of a federation over bytes.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fedsa::error::Error;
use fedsa::federation::{self, Description};
use fedsa::metrics::{METRICS, Metrics, Observation};
use fedsa::node::{self, Todo};
use fedsa::problem::Field;
use fedsa::record::COUNTS;
use fedsa::sampling::Sampling;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_experiment::config::alone;
use fedsa_experiment::memory;
use fedsa_experiment::plan::BuiltProblem;
use fedsa_experiment::results::Recorded;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert;
use crate::custom::HeldRules;
use crate::engine;
use crate::experiment::Experiment;
use crate::held;

/// The data of agents: a problem that is built.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct AgentData {
    field: Arc<dyn Field>,
    /// Held while operators of Python are called: what becomes of one call concerns no other.
    one: Arc<Mutex<()>>,
    metrics: OnceLock<Metrics>,
    calls_back: bool,
}

#[pymethods]
impl AgentData {
    /// The problem of an experiment's first point.
    #[staticmethod]
    fn of(py: Python<'_>, experiment: &Experiment) -> PyResult<Self> {
        let field = engine::call_back(py, experiment.calls_back, None, None, |_, cancel| {
            let files = DiskFiles::new(Places::from_env(&experiment.base)).with_cancel(cancel);
            let built = BuiltProblem::new(&experiment.inner, &files, fedsa::kernel::Isa::best())?;
            Ok(Arc::clone(built.shared_field()))
        })?;
        Ok(Self { field, one: Arc::default(), metrics: OnceLock::new(), calls_back: experiment.calls_back })
    }

    #[getter]
    fn agents(&self) -> usize {
        self.field.agents()
    }

    #[getter]
    fn dim(&self) -> usize {
        self.field.dim()
    }

    #[getter]
    fn weights<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        PyArray1::from_slice(py, self.field.weights())
    }
}

/// What all ends share.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Federation(pub federation::Federation);

#[pymethods]
impl Federation {
    /// The keys of a method come with its rules, if they are classes of Python.
    #[new]
    fn new(
        py: Python<'_>,
        method: (Bound<'_, PyDict>, Option<Bound<'_, HeldRules>>),
        weights: Vec<f64>,
        dim: usize,
        seed: u64,
        start: Option<Vec<f64>>,
        agreement: Option<String>,
    ) -> PyResult<Self> {
        let table = convert::table(&method.0)?;
        let rules: Vec<HeldRules> = method.1.iter().map(|rules| rules.get().clone()).collect();
        let made = engine::brief(py, || {
            let (settings, uplink) = alone::method(&held::known(None, rules)?, &table, &DiskFiles::new(Places::from_env("")))?;
            // The start, its copies in the settings of the two halves, and the arrays of a node.
            memory::require("dim", 64.0 * dim as f64, || format!("vectors of {dim} components"), "a smaller dim")?;
            let start = start.unwrap_or_else(|| vec![0.0; dim]);
            if start.len() != dim {
                return Err(Error::new("start", format!("{} components", start.len()), format!("{dim} components, which is `dim`")));
            }
            let federation = federation::Federation::new(&*settings, &uplink, weights, seed, start)?;
            Ok(match agreement {
                Some(text) => federation.of_problem(Description::new("agreement", Sampling::default(), dim).with(&text)),
                None => federation,
            })
        })?;
        Ok(Self(made))
    }

    #[getter]
    fn agents(&self) -> usize {
        self.0.agents()
    }

    #[getter]
    fn dim(&self) -> usize {
        self.0.dim()
    }

    #[getter]
    fn digest(&self) -> u64 {
        self.0.digest()
    }
}

/// Refuses an end that does not fit into the available memory, before it is built.
fn refuse_end(federation: &federation::Federation, agents: usize, name: &str) -> Result<(), Error> {
    let what = || format!("{name} of {} agents with d = {}", federation.agents(), federation.dim());
    memory::require("dim", federation.memory(agents), what, "a smaller dim, fewer agents, or a method that keeps no matrices")
}

/// One agent.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ClientNode {
    node: Mutex<node::ClientNode>,
    one: Option<Arc<Mutex<()>>>,
}

#[pymethods]
impl ClientNode {
    #[new]
    fn new(py: Python<'_>, federation: &Federation, data: &AgentData, agent: usize, place: usize) -> PyResult<Self> {
        let one = data.field.together().is_some().then(|| Arc::clone(&data.one));
        let node = engine::brief(py, || {
            refuse_end(&federation.0, 1, "an agent")?;
            let _one = one.as_deref().map(locked);
            node::ClientNode::new(&federation.0, &data.field, place, agent)
        })?;
        Ok(Self { node: Mutex::new(node), one })
    }

    /// Answers a message of the server, if it wants an answer.
    fn handle<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = message.to_vec();
        let answer = engine::brief(py, || {
            let _one = self.one.as_deref().map(locked);
            locked(&self.node).handle(&message)
        })?;
        Ok(answer.map(|answer| PyBytes::new(py, &answer)))
    }

    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &engine::brief(py, || Ok(locked(&self.node).save()))?))
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let state = state.to_vec();
        engine::brief(py, || locked(&self.node).restore(&state))
    }
}

/// The server.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ServerNode(pub Mutex<node::ServerNode>);

/// What is to be done: its name, and messages by agent.
type Asked<'py> = (&'static str, Bound<'py, PyDict>);

#[pymethods]
impl ServerNode {
    #[new]
    fn new(py: Python<'_>, federation: &Federation) -> PyResult<Self> {
        let made = || {
            refuse_end(&federation.0, federation.0.agents(), "a server")?;
            node::ServerNode::new(&federation.0)
        };
        Ok(Self(Mutex::new(engine::brief(py, made)?)))
    }

    /// Opens the next round, for the agents that are available.
    fn open<'py>(&self, py: Python<'py>, available: Option<Vec<usize>>) -> PyResult<Asked<'py>> {
        let todo_now = engine::brief(py, || {
            let mut server = locked(&self.0);
            let n = server.coordinator().federation().agents();
            if let Some(c) = available.iter().flatten().find(|c| **c >= n) {
                return Err(Error::new("available", format!("agent {c} of {n} agents"), format!("agents below {n}")));
            }
            let todo = server.open_for(available.as_deref());
            server.failure().map_or(Ok(todo), |reason| Err(reason.clone()))
        })?;
        todo(py, &todo_now)
    }

    /// Takes an answer.
    fn take(&self, py: Python<'_>, agent: usize, answer: &[u8]) -> PyResult<()> {
        let answer = answer.to_vec();
        engine::brief(py, || locked(&self.0).take(agent, &answer))
    }

    /// Ends the exchange with the answers that are there.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        let todo_now = engine::brief(py, || {
            let mut server = locked(&self.0);
            let todo = server.close();
            server.failure().map_or(Ok(todo), |reason| Err(reason.clone()))
        })?;
        todo(py, &todo_now)
    }

    /// Ends the round without the answers to the present question; theta does not change.
    fn give_up<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        todo(py, &engine::brief(py, || Ok(locked(&self.0).give_up()))?)
    }

    /// The agents that were asked and may still answer.
    fn may_still_answer(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        engine::brief(py, || Ok(locked(&self.0).may_still_answer()))
    }

    /// What is to be done now.
    fn todo<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        todo(py, &engine::brief(py, || Ok(locked(&self.0).todo().clone()))?)
    }

    fn theta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_vec(py, engine::brief(py, || Ok(locked(&self.0).theta().to_vec()))?))
    }

    fn rounds(&self, py: Python<'_>) -> PyResult<u64> {
        engine::brief(py, || Ok(locked(&self.0).coordinator().rounds()))
    }

    fn diverged(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        engine::brief(py, || Ok(locked(&self.0).diverged()))
    }

    /// Answers of this exchange that count.
    fn answered(&self, py: Python<'_>) -> PyResult<usize> {
        engine::brief(py, || Ok(locked(&self.0).answered()))
    }

    /// The share of the answers of this exchange that count, by weight.
    fn share_answered(&self, py: Python<'_>) -> PyResult<f64> {
        engine::brief(py, || Ok(locked(&self.0).share_answered()))
    }

    /// The norm of the mean of the answers of this exchange that count.
    fn residual(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        engine::brief(py, || Ok(locked(&self.0).mean_answer().map(|(_, norm)| norm)))
    }

    /// Who is asked nothing more because their answers were not believed, each with the reason.
    fn exclusions(&self, py: Python<'_>) -> PyResult<Vec<(usize, String)>> {
        let of = |one: &fedsa::coordinator::Exclusion| (one.agent, one.reason.clone());
        engine::brief(py, || Ok(locked(&self.0).coordinator().exclusions().iter().map(of).collect()))
    }

    /// The server of the next epoch, of which `before` has the numbers so far.
    fn regrouped(&self, py: Python<'_>, federation: &Federation, before: Vec<Option<usize>>) -> PyResult<Self> {
        Ok(Self(Mutex::new(engine::brief(py, || locked(&self.0).regrouped(&federation.0, &before))?)))
    }

    /// The norm of the controls' mean by their weights, which is 0 but for rounding; `None` without copies of controls.
    fn control_sum(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        engine::brief(py, || {
            let server = locked(&self.0);
            let mut sum = vec![0.0; server.theta().len()];
            for (c, p) in server.coordinator().federation().weights().iter().enumerate() {
                let Some(xi) = server.control(c) else { return Ok(None) };
                sum.iter_mut().zip(xi).for_each(|(sum, xi)| *sum += p * xi);
            }
            Ok(Some(fedsa::linalg::norm_sq(&sum).sqrt()))
        })
    }

    /// The metrics that these data tell of all agents, by name.
    fn metrics<'py>(&self, py: Python<'py>, data: &AgentData) -> PyResult<Bound<'py, PyDict>> {
        let seen = engine::call_back(py, data.calls_back, None, None, |_, _| {
            let server = locked(&self.0);
            let (agents, dim) = (server.coordinator().federation().agents(), server.theta().len());
            if (data.field.agents(), data.field.dim()) != (agents, dim) {
                let what = format!("the data of {} agents with d = {}", data.field.agents(), data.field.dim());
                return Err(Error::new("data", what, format!("those of all {agents} agents, d = {dim}")));
            }
            let _one = locked(&data.one);
            let seen = data.metrics.get_or_init(|| Metrics::new(&data.field)).observe(&*server, None, 0.0);
            let failure = data.field.failure();
            data.field.recover();
            failure.map_or(Ok(seen), Err)
        })?;
        let out = PyDict::new(py);
        for metric in METRICS {
            if let Some(x) = metric.value(&seen) {
                out.set_item(metric.name, x)?;
            }
        }
        Ok(out)
    }

    /// The round that it stands at, with its counts, for [`crate::deployments::Deployment`].
    fn recorded<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let row = engine::brief(py, || {
            let server = locked(&self.0);
            let coordinator = server.coordinator();
            Ok(Recorded { round: coordinator.rounds(), ledger: coordinator.ledger(), seen: Observation::default() })
        })?;
        Ok(PyBytes::new(py, &postcard::to_stdvec(&row).expect("plain data serialises")))
    }

    /// What was counted, by name.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (rounds, ledger) = engine::brief(py, || {
            let server = locked(&self.0);
            Ok((server.coordinator().rounds(), server.coordinator().ledger()))
        })?;
        let out = PyDict::new(py);
        for count in COUNTS {
            out.set_item(count.name, (count.of)(rounds, &ledger))?;
        }
        Ok(out)
    }

    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &engine::brief(py, || Ok(locked(&self.0).save()))?))
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let state = state.to_vec();
        engine::brief(py, || locked(&self.0).restore(&state))
    }
}

/// The node, whatever became of its last holder.
pub fn locked<T>(node: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

fn todo<'py>(py: Python<'py>, todo: &Todo) -> PyResult<Asked<'py>> {
    let messages = PyDict::new(py);
    let name = match todo {
        Todo::Ask { to, bytes } | Todo::Tell { to, bytes } => {
            for (agent, bytes) in to.iter().zip(bytes) {
                messages.set_item(agent, PyBytes::new(py, bytes))?;
            }
            if matches!(todo, Todo::Ask { .. }) { "ask" } else { "tell" }
        }
        Todo::RoundOver => "over",
    };
    Ok((name, messages))
}
