//! Client rules that are Python classes.
//!
//! A client rule is called once per exchange for all participants ([`local::Client::prefers_one_call`]). Its memory is arrays that the
//! engine owns, saves and restores: Python objects hold no state of a run, and several runs share them. As with operators
//! ([`crate::operators`]), the work of a call has one thread, and the call raises the rule's exception. While a rule waits for requested
//! steps, it does not hold the interpreter's lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fedsa::error::{Error, Result};
use fedsa::local::{self, AgentBatch, AgentRows, Outbox};
use fedsa::message::{Message, Part};
use fedsa::schedule::StepSchedule;
use numpy::{PyArray1, PyArray2, PyArrayDyn, PyArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{OrRaise, exception};
use crate::operators::{Draws, are_tame, copied, raise_later, rows};

/// Functions of the package that check arrays.
pub struct Checks {
    /// Converts a value to an array of this form, or raises. Its arguments: value, shape, whether they are integers, and the name for
    /// messages.
    pub array: Py<PyAny>,
    /// The same for n rows, or one row for all: value, n, d, name.
    pub rows: Py<PyAny>,
    /// Reads a state after a call, or for the first time: a mapping of names to arrays, their shapes (or none yet), name.
    pub state: Py<PyAny>,
}

/// A client rule from Python.
pub struct ClientForm {
    /// The name of the class, for messages.
    pub name: String,
    /// The names of the vectors in an agent's memory.
    pub memory: Vec<String>,
    pub answer: Py<PyAny>,
    /// Answers the first of two exchanges.
    pub report: Option<Py<PyAny>>,
    pub sent: Option<Py<PyAny>>,
    pub checks: Arc<Checks>,
}

/// Copies an array of this shape, or a value that can be converted to one.
pub fn take(py: Python<'_>, checks: &Checks, value: &Bound<'_, PyAny>, shape: &[usize], name: &str) -> PyResult<Vec<f64>> {
    let mut out = vec![0.0; shape.iter().product()];
    if !copied(value, shape, &mut out) {
        let array = checks.array.bind(py).call1((value, shape.to_vec(), false, name))?;
        if !copied(&array, shape, &mut out) {
            return Err(PyTypeError::new_err(format!("{name} returned no array of numbers")));
        }
    }
    Ok(out)
}

/// The error about a number that is not finite, although all its inputs are far from overflow.
pub fn not_finite(py: Python<'_>, key: &str, name: &str, x: f64, whose: &str) -> PyErr {
    exception(py, &Error::data(key, format!("{name} returned {x}{whose}"), "finite numbers"))
}

/// The client half.
pub struct Client {
    pub form: Arc<ClientForm>,
    pub steps: StepSchedule,
}

/// The input of the agents in a call.
#[derive(Clone, Copy)]
struct Asked<'a> {
    round: u64,
    exchange: u8,
    /// The model, unless they have answered already.
    theta: Option<&'a [f64]>,
    /// The server's message in a second exchange.
    reply: &'a [f64],
}

impl Client {
    fn calling<T>(&self, function: &str, call: impl FnOnce(Python<'_>, &str) -> PyResult<T>) -> Result<T> {
        let name = format!("{}.{function}", self.form.name);
        Python::attach(|py| call(py, &name).map_err(|e| raise_later(py, "client", &name, e)))
    }

    /// The agents of a call as a Python object; `theta` is the model of their steps, if they make any.
    fn agents<'py>(&self, py: Python<'py>, mut rows_of: AgentRows, asked: Asked<'_>) -> PyResult<Bound<'py, Agents>> {
        let (n, d) = (rows_of.agents().len(), rows_of.dim());
        let Asked { round, exchange, theta, reply } = asked;
        let memory = PyDict::new(py);
        for (j, name) in self.form.memory.iter().enumerate() {
            memory.set_item(name, rows(py, rows_of.memory(j), n)?)?;
        }
        let numbers = PyArray1::from_iter(py, rows_of.agents().iter().map(|c| *c as i64));
        numbers.getattr("flags")?.setattr("writeable", false)?;
        let agents = Agents {
            rows: Mutex::new(Some(rows_of)),
            rng: Mutex::new(None),
            steps: self.steps,
            checks: Arc::clone(&self.form.checks),
            numbers: numbers.unbind(),
            memory: memory.unbind(),
            model: theta.map(<[f64]>::to_vec).unwrap_or_default(),
            shape: (n, d),
            round,
            exchange,
            is_tame: AtomicBool::new(are_tame(reply)),
            reply: reply.to_vec(),
        };
        Bound::new(py, agents)
    }

    /// Takes the rows back after a call, with the agents' new memory.
    fn taken(&self, py: Python<'_>, agents: &Bound<'_, Agents>, name: &str) -> PyResult<AgentRows> {
        let this = agents.get();
        let rows = py.detach(|| this.locked().take());
        let mut rows = rows.ok_or_else(|| PyTypeError::new_err("the agents of a call are taken back once"))?;
        let ((n, d), memory) = (this.shape, this.memory.bind(py));
        for (j, key) in self.form.memory.iter().enumerate() {
            let kept = memory.get_item(key)?.unwrap_or_else(|| py.None().into_bound(py));
            let kept = take(py, &this.checks, &kept, &[n, d], &format!("the memory '{key}' of {name}"))?;
            rows.memory(j).copy_from_slice(&kept);
        }
        if let Some(key) = memory.keys().iter().find_map(|key| {
            let key = key.to_string();
            (!self.form.memory.contains(&key)).then_some(key)
        }) {
            let what = format!("{name} has put '{key}' into the memory of its agents");
            return Err(exception(py, &Error::new("memory", what, format!("the names that {}.memory lists", self.form.name))));
        }
        Ok(rows)
    }
}

impl local::Client for Client {
    /// The facts of a client with the rule's named vectors, and the model between two exchanges.
    fn facts(&self) -> local::ClientFacts<'_> {
        let memory = self.form.memory.len() + usize::from(self.form.report.is_some());
        local::ClientFacts { prefers_one_call: true, ..local::ClientFacts::keeping(memory) }
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let Message { round, exchange, .. } = *down;
        let mut rows = batch.rows();
        let (model, d) = (self.form.memory.len(), rows.dim());
        let (theta, reply) = match exchange {
            0 => (down.part(Part::Model).to_vec(), &[][..]),
            // All agents of a round received the same model.
            _ => (rows.memory(model)[..d].to_vec(), down.part(Part::Operator)),
        };
        rows.open(round, &theta);
        let is_report = self.form.report.is_some() && exchange == 0;
        if is_report {
            rows.memory(model).chunks_exact_mut(d).for_each(|kept| kept.copy_from_slice(&theta));
        }
        let (function, called, part) = match &self.form.report {
            Some(report) if is_report => (report, "report", Part::Operator),
            _ => (&self.form.answer, "answer", Part::Direction),
        };
        let (rows, values) = self.calling(called, |py, name| {
            let agents = self.agents(py, rows, Asked { round, exchange, theta: Some(&theta), reply })?;
            let answer = function.bind(py).call1((PyArray1::from_slice(py, &theta), &agents))?;
            let values = take(py, &self.form.checks, &answer, &[agents.get().shape.0, d], name)?;
            let rows = self.taken(py, &agents, name)?;
            if let Some(at) = values.iter().position(|x| !x.is_finite())
                && are_tame(&theta)
                && agents.get().is_tame.load(Ordering::Relaxed)
            {
                let whose = format!(" for agent {}", rows.agents()[at / d]);
                return Err(not_finite(py, called, name, values[at], &whose));
            }
            Ok((rows, values))
        })?;
        batch.answer_with(&rows, part, &values, out);
        Ok(())
    }

    fn sent(&self, batch: &mut AgentBatch<'_>, down: &Message, sent: &Outbox) -> Result<()> {
        let Some(function) = self.form.sent.as_ref().filter(|_| !self.form.memory.is_empty()) else { return Ok(()) };
        let (rows_of, decoded) = (batch.rows(), sent.rows(batch.lanes()));
        let rows_of = self.calling("sent", |py, name| {
            let agents = self.agents(py, rows_of, Asked { round: down.round, exchange: down.exchange, theta: None, reply: &[] })?;
            let decoded = rows(py, &decoded, agents.get().shape.0)?;
            function.bind(py).call1((decoded, &agents))?;
            self.taken(py, &agents, name)
        })?;
        batch.take_memory(&rows_of);
        Ok(())
    }
}

/// The agents of a call of a client rule: n of them, a row each.
///
/// The engine makes one for each call of a method of :class:`ClientRule`; it is of no use after the call.
///
/// Attributes
/// ----------
/// numbers : ndarray of shape (n,)
///     The numbers of the agents, increasing.
/// round : int
///     The round, from 0.
/// exchange : int
///     The exchange of the round: 1 in the second of two, otherwise 0.
/// reply : ndarray of shape (dim,) or None
///     What the server has sent in the second of two exchanges.
/// memory : dict of str to ndarray of shape (n, dim)
///     What the agents keep from round to round, by the names that the rule lists; zeros at the start. Change the arrays, or put
///     others in their place.
/// step_sizes : ndarray of shape (local_steps,)
///     The step sizes of the round.
/// step_sum : float
///     Their sum E.
/// rng : Draws
///     Random numbers of the agents for other things than samples.
///
/// Examples
/// --------
/// >>> class Steps:
/// ...     def answer(self, theta, agents):
/// ...         return (agents.steps(theta) - theta) / agents.step_sum
/// >>> import fedsa
/// >>> from fedsa import methods, problems
/// >>> method = methods.Custom(0.1, 10, client=Steps())
/// >>> fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), method, rounds=10).run().labels
/// ['custom']
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Agents {
    rows: Mutex<Option<AgentRows>>,
    rng: Mutex<Option<Py<Draws>>>,
    steps: StepSchedule,
    checks: Arc<Checks>,
    numbers: Py<PyArray1<i64>>,
    memory: Py<PyDict>,
    /// theta of the message, d numbers.
    model: Vec<f64>,
    /// n and d.
    shape: (usize, usize),
    round: u64,
    exchange: u8,
    /// The server's message in a second exchange, d numbers.
    reply: Vec<f64>,
    /// Whether all results of steps and samples are far from overflow.
    is_tame: AtomicBool,
}

impl Agents {
    fn locked(&self) -> std::sync::MutexGuard<'_, Option<AgentRows>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the rows without the interpreter's lock.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut AgentRows) -> Result<T> + Send) -> PyResult<T> {
        let over = || Error::new("agents", "the agents of a call that is over", "calls while the rule answers");
        py.detach(|| self.locked().as_mut().ok_or_else(over).and_then(work)).or_raise(py)
    }

    /// The result of steps or samples, as an array.
    fn given<'py>(&self, py: Python<'py>, numbers: &[f64]) -> PyResult<Bound<'py, PyArray2<f64>>> {
        self.is_tame.fetch_and(are_tame(numbers), Ordering::Relaxed);
        rows(py, numbers, self.shape.0)
    }

    /// n rows of an argument, or one row for all; by default the model.
    fn rows_of(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Vec<f64>> {
        let (n, d) = self.shape;
        let Some(value) = value else { return Ok(self.model.repeat(n)) };
        let mut out = vec![0.0; n * d];
        if !copied(value, &[n, d], &mut out) {
            let array = self.checks.rows.bind(py).call1((value, n, d, name))?;
            if !copied(&array, &[n, d], &mut out) {
                return Err(PyTypeError::new_err(format!("{name} is no array of numbers")));
            }
        }
        Ok(out)
    }
}

#[pymethods]
impl Agents {
    #[getter]
    fn numbers(&self, py: Python<'_>) -> Py<PyArray1<i64>> {
        self.numbers.clone_ref(py)
    }

    #[getter]
    fn round(&self) -> u64 {
        self.round
    }

    #[getter]
    fn exchange(&self) -> u8 {
        self.exchange
    }

    #[getter]
    fn reply<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f64>>> {
        (self.exchange > 0).then(|| PyArray1::from_slice(py, &self.reply))
    }

    #[getter]
    fn memory(&self, py: Python<'_>) -> Py<PyDict> {
        self.memory.clone_ref(py)
    }

    #[getter]
    fn step_sizes<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        let (phase, mut etas) = (self.steps.of(self.round), Vec::new());
        phase.fill(0..phase.len, &mut etas);
        PyArray1::from_vec(py, etas)
    }

    #[getter]
    fn step_sum(&self) -> f64 {
        self.steps.of(self.round).sum
    }

    #[getter]
    fn rng(&self, py: Python<'_>) -> PyResult<Py<Draws>> {
        let streams = self.with(py, |rows| rows.streams())?;
        // Created before the lock is taken: no Python object is created while another Python thread may wait for the lock.
        let made = Py::new(py, Draws::of(streams, self.numbers.clone_ref(py)))?;
        Ok(self.rng.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(made).clone_ref(py))
    }

    /// Make local steps ``theta += eta (g_c(theta, z) + drift)``, with the next samples of the agents.
    ///
    /// Parameters
    /// ----------
    /// theta : array of shape (n, dim) or (dim,), optional
    ///     Where the steps start; the model of the message by default.
    /// drift : array of shape (n, dim) or (dim,), optional
    ///     What is added to the operators; 0 by default.
    /// step_sizes : array of shape (h,), optional
    ///     A step is made with each of them, in turn; those of the round by default.
    ///
    /// Returns
    /// -------
    /// ndarray of shape (n, dim)
    ///     The last iterates.
    #[pyo3(signature = (theta = None, *, drift = None, step_sizes = None))]
    fn steps<'py>(
        &self,
        py: Python<'py>,
        theta: Option<&Bound<'py, PyAny>>,
        drift: Option<&Bound<'py, PyAny>>,
        step_sizes: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let mut at = self.rows_of(py, theta, "theta")?;
        let drift = drift.map(|drift| self.rows_of(py, Some(drift), "drift")).transpose()?;
        let mut etas = Vec::new();
        match step_sizes {
            None => {
                let phase = self.steps.of(self.round);
                phase.fill(0..phase.len, &mut etas);
            }
            Some(given) => {
                let array = self.checks.array.bind(py).call1((given, py.None(), false, "step_sizes"))?;
                let array = array.cast::<PyArrayDyn<f64>>()?.try_readonly()?;
                etas.extend_from_slice(array.as_slice()?);
            }
        }
        let at = self.with(py, move |rows| rows.steps(&mut at, drift.as_deref(), &etas).map(|()| at))?;
        self.given(py, &at)
    }

    /// Evaluate the operators on the next sample of each agent.
    ///
    /// Parameters
    /// ----------
    /// theta : array of shape (n, dim) or (dim,), optional
    ///     The iterates; the model of the message by default.
    ///
    /// Returns
    /// -------
    /// ndarray of shape (n, dim)
    ///     ``g_c(theta_c, z)``, which points where theta should move.
    #[pyo3(signature = (theta = None))]
    fn sample<'py>(&self, py: Python<'py>, theta: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let mut at = self.rows_of(py, theta, "theta")?;
        let g = self.with(py, move |rows| rows.sample(&mut at).map(|()| at))?;
        self.given(py, &g)
    }
}
