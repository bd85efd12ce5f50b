//! Server and agents of a federation, over bytes.

use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};

use fedsa::error::Error;
use fedsa::federation::{self, Description};
use fedsa::metrics::{METRICS, Metrics, Observable, Observation};
use fedsa::node::{self, Todo};
use fedsa::problem::Field;
use fedsa::record::{COUNTS, Ledger};
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
use crate::turns::{Turns, locked};

/// The data of agents: a built problem.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct AgentData {
    field: Arc<dyn Field>,
    /// Serialises calls of Python operators, whether or not a call failed.
    turns: Arc<Turns>,
    metrics: OnceLock<Arc<Metrics>>,
    pub calls_back: bool,
}

impl AgentData {
    /// The turns for calls of Python operators, if there are any.
    pub fn turns(&self) -> Option<Arc<Turns>> {
        self.field.prefers_one_call().then(|| Arc::clone(&self.turns))
    }

    /// The inputs of their metrics.
    pub fn known(&self) -> &Arc<Metrics> {
        self.metrics.get_or_init(|| Arc::new(Metrics::new(&self.field)))
    }

    /// Refuses data of another number of agents or components.
    ///
    /// # Errors
    /// When numbers of agents or components differ.
    pub fn suits(&self, federation: &federation::Federation) -> Result<(), Error> {
        let (agents, dim) = (federation.agents(), federation.start().len());
        if (self.field.agents(), self.field.dim()) == (agents, dim) {
            return Ok(());
        }
        let what = format!("the data of {} agents with d = {}", self.field.agents(), self.field.dim());
        Err(Error::new("data", what, format!("those of all {agents} agents, d = {dim}")))
    }
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
        Ok(Self { field, turns: Arc::default(), metrics: OnceLock::new(), calls_back: experiment.calls_back })
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

/// The common settings of server and agents.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Federation(pub federation::Federation);

#[pymethods]
impl Federation {
    /// A method with Python classes as rules has keys that come with the rules.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "the arguments of the class in Python")]
    fn new(
        py: Python<'_>,
        method: (Bound<'_, PyDict>, Option<Bound<'_, HeldRules>>),
        weights: Vec<f64>,
        dim: usize,
        seed: u64,
        start: Option<Vec<f64>>,
        agreement: Option<String>,
        run: u64,
    ) -> PyResult<Self> {
        let table = convert::table(&method.0)?;
        let rules: Vec<HeldRules> = method.1.iter().map(|rules| rules.get().clone()).collect();
        let made = engine::brief(py, || {
            let (settings, uplink) = alone::method(&held::known(None, rules)?, &table, &DiskFiles::new(Places::from_env("")))?;
            // The start, its copies in the settings of both halves, and the arrays of a node.
            memory::require("dim", 64.0 * dim as f64, || format!("vectors of {dim} components"), "a smaller dim")?;
            let start = start.unwrap_or_else(|| vec![0.0; dim]);
            if start.len() != dim {
                return Err(Error::new("start", format!("{} components", start.len()), format!("{dim} components, which is `dim`")));
            }
            let federation = federation::Federation::new(&*settings, &uplink, weights, seed, start)?.of_run(run);
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

/// Refuses a server or agent that does not fit into the available memory, before it is built.
fn refuse_end(federation: &federation::Federation, agents: usize, name: &str) -> Result<(), Error> {
    let what = || format!("{name} of {} agents with d = {}", federation.agents(), federation.dim());
    memory::require("dim", federation.memory(agents), what, "a smaller dim, fewer agents, or a method that keeps no matrices")
}

/// One agent.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ClientNode {
    node: Mutex<node::ClientNode>,
    turns: Option<Arc<Turns>>,
}

#[pymethods]
impl ClientNode {
    #[new]
    fn new(py: Python<'_>, federation: &Federation, data: &AgentData, agent: usize, place: usize) -> PyResult<Self> {
        let turns = data.turns();
        let node = engine::brief(py, || {
            refuse_end(&federation.0, 1, "an agent")?;
            let _turn = turns.as_ref().map(Turns::take);
            node::ClientNode::new(&federation.0, &data.field, place, agent)
        })?;
        Ok(Self { node: Mutex::new(node), turns })
    }

    /// Answers a message of the server, if it needs an answer.
    fn handle<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = message.to_vec();
        let answer = engine::brief(py, || {
            let _turn = self.turns.as_ref().map(Turns::take);
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

/// The place of a server.
enum Place {
    Here(Box<node::ServerNode>),
    /// In a running session, to which readers send requests.
    InSession(Sender<Said>),
}

/// Messages to a session that waits for answers.
pub enum Said {
    /// A request to read its server.
    Read(Box<dyn FnOnce(&node::ServerNode) + Send>),
    /// The answers that arrived, each with its agent.
    Answers(Vec<(usize, Vec<u8>)>),
    /// Messages are no longer carried.
    Failed,
}

/// The server.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ServerNode(Mutex<Place>);

/// The next step: its name, and messages by agent.
type Asked<'py> = (&'static str, Bound<'py, PyDict>);

impl ServerNode {
    /// Uses the server.
    ///
    /// # Errors
    /// Those of the work; when a running session has the server.
    pub fn with<T>(&self, work: impl FnOnce(&mut node::ServerNode) -> Result<T, Error>) -> Result<T, Error> {
        match &mut *locked(&self.0) {
            Place::Here(server) => work(server),
            Place::InSession(_) => Err(in_session()),
        }
    }

    /// Reads the server; in a running session, when it waits for answers.
    fn read<T: Send + 'static>(&self, read: fn(&node::ServerNode) -> T) -> Result<T, Error> {
        loop {
            let (give, take) = sync_channel(1);
            match &*locked(&self.0) {
                Place::Here(server) => return Ok(read(server)),
                // If the session has ended, the server comes back soon.
                Place::InSession(session) => {
                    let _ = session.send(Said::Read(Box::new(move |server| drop(give.send(read(server))))));
                }
            }
            match take.recv() {
                Ok(value) => return Ok(value),
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Lends the server to a session, which reads it for others.
    ///
    /// # Errors
    /// When another session has it.
    pub fn lend(&self, readings: Sender<Said>) -> Result<node::ServerNode, Error> {
        let mut place = locked(&self.0);
        match std::mem::replace(&mut *place, Place::InSession(readings)) {
            Place::Here(server) => Ok(*server),
            other => {
                *place = other;
                Err(in_session())
            }
        }
    }

    /// Takes the server back.
    pub fn give_back(&self, server: node::ServerNode) {
        *locked(&self.0) = Place::Here(Box::new(server));
    }
}

fn in_session() -> Error {
    Error::new("server", "a session has it that goes on", "a call after Session.advance, or another server")
}

#[pymethods]
impl ServerNode {
    /// A server at its start.
    #[new]
    fn new(py: Python<'_>, federation: &Federation) -> PyResult<Self> {
        let made = || {
            refuse_end(&federation.0, federation.0.agents(), "a server")?;
            node::ServerNode::new(&federation.0)
        };
        Ok(Self(Mutex::new(Place::Here(Box::new(engine::brief(py, made)?)))))
    }

    /// Opens the next round, for the available agents.
    fn open<'py>(&self, py: Python<'py>, available: Option<Vec<usize>>) -> PyResult<Asked<'py>> {
        let opened = |server: &mut node::ServerNode| {
            let n = server.coordinator().federation().agents();
            if let Some(c) = available.iter().flatten().find(|c| **c >= n) {
                return Err(Error::new("available", format!("agent {c} of {n} agents"), format!("agents below {n}")));
            }
            let todo = server.open_for(available.as_deref());
            server.failure().map_or(Ok(todo), |reason| Err(reason.clone()))
        };
        todo(py, &engine::brief(py, || self.with(opened))?)
    }

    /// Takes an answer.
    fn take(&self, py: Python<'_>, agent: usize, answer: &[u8]) -> PyResult<()> {
        let answer = answer.to_vec();
        engine::brief(py, || self.with(|server| server.take(agent, &answer)))
    }

    /// Ends the exchange with the answers that have arrived.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        let closed = |server: &mut node::ServerNode| {
            let todo = server.close();
            server.failure().map_or(Ok(todo), |reason| Err(reason.clone()))
        };
        todo(py, &engine::brief(py, || self.with(closed))?)
    }

    /// Ends the round without the answers to the present question; theta does not change.
    fn give_up<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        todo(py, &engine::brief(py, || self.with(|server| Ok(server.give_up())))?)
    }

    /// The messages that would travel with the agents' next questions.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        todo(py, &engine::brief(py, || self.with(|server| Ok(server.finish())))?)
    }

    /// The asked agents that may still answer.
    fn may_still_answer(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        engine::brief(py, || self.read(node::ServerNode::may_still_answer))
    }

    /// The next step.
    fn todo<'py>(&self, py: Python<'py>) -> PyResult<Asked<'py>> {
        todo(py, &engine::brief(py, || self.read(|server| server.todo().clone()))?)
    }

    fn theta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_vec(py, engine::brief(py, || self.read(|server| server.theta().to_vec()))?))
    }

    fn rounds(&self, py: Python<'_>) -> PyResult<u64> {
        engine::brief(py, || self.read(|server| server.coordinator().rounds()))
    }

    fn diverged(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        engine::brief(py, || self.read(node::ServerNode::diverged))
    }

    /// Answers of this exchange that count.
    fn answered(&self, py: Python<'_>) -> PyResult<usize> {
        engine::brief(py, || self.read(node::ServerNode::answered))
    }

    /// The share of the answers of this exchange that count, by weight.
    fn share_answered(&self, py: Python<'_>) -> PyResult<f64> {
        engine::brief(py, || self.read(node::ServerNode::share_answered))
    }

    /// The norm of the mean operator at the iterate, as answers show it.
    fn residual(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        engine::brief(py, || self.read(node::ServerNode::residual))
    }

    /// Whether the answers to the open question can show the residual: masked answers do not.
    fn shows_residual(&self, py: Python<'_>) -> PyResult<bool> {
        engine::brief(py, || self.read(node::ServerNode::shows_residual))
    }

    /// The excluded agents, which get no more questions, each with the reason.
    fn exclusions(&self, py: Python<'_>) -> PyResult<Vec<(usize, String)>> {
        let of = |server: &node::ServerNode| server.coordinator().exclusions().iter().map(|one| (one.agent, one.reason.clone())).collect();
        engine::brief(py, || self.read(of))
    }

    /// The server of the next epoch; `before` has the agents' previous numbers.
    fn regrouped(&self, py: Python<'_>, federation: &Federation, before: Vec<Option<usize>>) -> PyResult<Self> {
        let next = engine::brief(py, || self.with(|server| server.regrouped(&federation.0, &before)))?;
        Ok(Self(Mutex::new(Place::Here(Box::new(next)))))
    }

    /// The norm of the weighted mean of the controls, 0 up to rounding; `None` without copies of controls.
    fn control_sum(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let norm = |server: &node::ServerNode| {
            let (mut sum, weights) = (vec![0.0; server.theta().len()], server.coordinator().federation().weights());
            let are_kept = server.each_control(&mut |c, xi| sum.iter_mut().zip(xi).for_each(|(sum, xi)| *sum += weights[c] * xi));
            are_kept.then(|| fedsa::linalg::norm_sq(&sum).sqrt())
        };
        engine::brief(py, || self.read(norm))
    }

    /// The metrics that follow from these data of all agents, by name.
    fn metrics<'py>(&self, py: Python<'py>, data: &AgentData) -> PyResult<Bound<'py, PyDict>> {
        let seen = engine::call_back(py, data.calls_back, None, None, |_, _| {
            self.with(|server| {
                data.suits(server.coordinator().federation())?;
                let _turn = data.turns().as_ref().map(Turns::take);
                data.known().try_observe(&*server, None, 0.0)
            })
        })?;
        let out = PyDict::new(py);
        put_metrics(&out, &seen)?;
        Ok(out)
    }

    /// The present round with its counts, for [`crate::deployments::Deployment`].
    fn recorded<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let row = |server: &node::ServerNode| {
            let coordinator = server.coordinator();
            Recorded { round: coordinator.rounds(), ledger: coordinator.ledger(), seen: Observation::default(), seconds: None }
        };
        let row = engine::brief(py, || self.read(row))?;
        Ok(PyBytes::new(py, &postcard::to_stdvec(&row).expect("plain data serialises")))
    }

    /// The counts, by name.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = |server: &node::ServerNode| (server.coordinator().rounds(), server.coordinator().ledger());
        let (rounds, ledger) = engine::brief(py, || self.read(counted))?;
        let out = PyDict::new(py);
        put_counts(&out, rounds, &ledger)?;
        Ok(out)
    }

    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &engine::brief(py, || self.read(node::ServerNode::save))?))
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let state = state.to_vec();
        engine::brief(py, || self.with(|server| server.restore(&state)))
    }
}

/// Counts by name.
pub fn put_counts(out: &Bound<'_, PyDict>, rounds: u64, ledger: &Ledger) -> PyResult<()> {
    COUNTS.iter().try_for_each(|count| out.set_item(count.name, (count.of)(rounds, ledger)))
}

/// Known metrics by name.
pub fn put_metrics(out: &Bound<'_, PyDict>, seen: &Observation) -> PyResult<()> {
    METRICS.iter().filter_map(|metric| Some((metric.name, metric.value(seen)?))).try_for_each(|(name, x)| out.set_item(name, x))
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
