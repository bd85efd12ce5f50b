//! Server rules that are Python classes, called once per exchange. Their state is arrays that the engine saves and restores.

use std::sync::Arc;

use fedsa::error::{Error, Failure, Result};
use fedsa::message::{Message, Part};
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::StepSchedule;
use fedsa::server::{Broadcast, Next, Participation, Received, Server, ServerFacts};
use numpy::{PyArray1, PyArray2, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::operators::{are_tame, raise_later};
use crate::rules::{Checks, not_finite, take};

/// A server rule from Python.
pub struct ServerForm {
    /// The name of the class, for messages.
    pub name: String,
    pub step: Py<PyAny>,
    /// The message of the second of two exchanges; by default the mean of the first answers.
    pub reply: Option<Py<PyAny>>,
    /// Makes the first state from theta.
    pub start: Option<Py<PyAny>>,
    /// Whether it wants each agent's answer.
    pub wants_each: bool,
    pub checks: Arc<Checks>,
}

/// The server half.
pub struct ServerHalf {
    pub form: Arc<ServerForm>,
    /// `theta_t`.
    pub theta: Vec<f64>,
    pub steps: StepSchedule,
    pub participation: Participation,
    pub has_two_exchanges: bool,
    /// The rule's state.
    state: Vec<Kept>,
    failure: Failure,
}

/// An array of a server rule's state.
#[derive(Clone)]
struct Kept {
    name: String,
    shape: Vec<usize>,
    numbers: Vec<f64>,
}

impl ServerHalf {
    /// The rule at its start; a rule that cannot start has failed.
    pub fn new(form: Arc<ServerForm>, theta: Vec<f64>, steps: StepSchedule, participation: Participation, has_two_exchanges: bool) -> Self {
        let mut this = Self { form, theta, steps, participation, has_two_exchanges, state: Vec::new(), failure: Failure::default() };
        let state = this.calling("start", |py, name| match &this.form.start {
            None => Ok(Vec::new()),
            Some(start) => {
                let state = start.bind(py).call1((PyArray1::from_slice(py, &this.theta),))?;
                this.read_state(py, &state, name, false)
            }
        });
        match state {
            Ok(state) => this.state = state,
            Err(reason) => this.failure.set(reason),
        }
        this
    }

    fn calling<T>(&self, function: &str, call: impl FnOnce(Python<'_>, &str) -> PyResult<T>) -> Result<T> {
        let name = format!("{}.{function}", self.form.name);
        Python::attach(|py| call(py, &name).map_err(|e| raise_later(py, "server", &name, e)))
    }

    /// Reads a state; if it `is_later`, with the same names and shapes as before.
    fn read_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>, name: &str, is_later: bool) -> PyResult<Vec<Kept>> {
        let shapes = PyDict::new(py);
        for kept in &self.state {
            shapes.set_item(&kept.name, kept.shape.clone())?;
        }
        let shapes = if is_later { shapes.into_any() } else { py.None().into_bound(py) };
        let arrays = self.form.checks.state.bind(py).call1((state, shapes, name))?;
        let mut read = Vec::new();
        for (key, array) in arrays.cast::<PyDict>()? {
            let shape: Vec<usize> = array.getattr("shape")?.extract()?;
            let array = array.cast::<PyArrayDyn<f64>>()?.try_readonly()?;
            read.push(Kept { name: key.extract()?, shape, numbers: array.as_slice()?.to_vec() });
        }
        Ok(read)
    }

    /// The result of a function of the rule for the answers of an exchange, d numbers, and the state after it.
    fn called(&self, function: &Py<PyAny>, called: &str, part: Part, got: &Received<'_>) -> Result<(Vec<f64>, Vec<Kept>)> {
        let d = self.theta.len();
        let mean = self.mean(part, got);
        self.calling(called, |py, name| {
            let state = PyDict::new(py);
            for kept in &self.state {
                state.set_item(&kept.name, PyArray1::from_slice(py, &kept.numbers).reshape(kept.shape.clone())?)?;
            }
            let received = self.received(py, got, part, state.clone().unbind())?;
            let arrays = (PyArray1::from_slice(py, &self.theta), PyArray1::from_slice(py, &mean), received);
            let next = function.bind(py).call1(arrays)?;
            let next = take(py, &self.form.checks, &next, &[d], name)?;
            let state = self.read_state(py, &state, name, true)?;
            if are_tame(&self.theta) && are_tame(&mean) {
                let kept = state.iter().flat_map(|kept| &kept.numbers);
                if let Some(x) = next.iter().chain(kept).find(|x| !x.is_finite()) {
                    return Err(not_finite(py, called, name, *x, " or keeps it in its state"));
                }
            }
            Ok((next, state))
        })
    }

    /// The weighted mean of answers.
    fn mean(&self, part: Part, got: &Received<'_>) -> Vec<f64> {
        if !self.form.wants_each {
            return got.mean(part);
        }
        let answers = got.updates.iter().map(|update| Some((update.weight, update.part(part))));
        fedsa::round::sum(self.theta.len(), answers).into_iter().map(|x| x / got.asked).collect()
    }

    /// The message of a second exchange.
    fn reply(&mut self, got: &Received<'_>) -> Vec<f64> {
        let Some(reply) = &self.form.reply else { return self.mean(Part::Operator, got) };
        match self.failure.unless_failed(|| self.called(reply, "reply", Part::Operator, got)) {
            Some((reply, state)) => {
                self.state = state;
                reply
            }
            // Never used: the exchange does not count.
            None => vec![0.0; self.theta.len()],
        }
    }

    fn received<'py>(&self, py: Python<'py>, got: &Received<'_>, part: Part, state: Py<PyDict>) -> PyResult<Bound<'py, ServerRound>> {
        let each = match self.form.wants_each {
            false => None,
            true => {
                let updates = got.updates;
                let answers = PyArray2::zeros(py, [updates.len(), self.theta.len()], false);
                let mut written = answers.try_readwrite()?;
                let all = written.as_slice_mut()?.chunks_mut(self.theta.len().max(1));
                all.zip(updates).for_each(|(row, update)| row.copy_from_slice(update.part(part)));
                drop(written);
                Some(Answers {
                    agents: PyArray1::from_iter(py, updates.iter().map(|update| update.agent as i64)).unbind(),
                    weights: PyArray1::from_iter(py, updates.iter().map(|update| update.weight)).unbind(),
                    rounds: PyArray1::from_iter(py, updates.iter().map(|update| update.answers as i64)).unbind(),
                    answers: answers.unbind(),
                })
            }
        };
        let (round, asked, step_sum) = (got.round, got.asked, self.steps.of(got.round).sum);
        Bound::new(py, ServerRound { round, step_sum, asked, state, each })
    }
}

impl Server for ServerHalf {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: self.participation.of(t), down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if self.has_two_exchanges && got.exchange == 0 {
            let down = Message::one(got.round, 1, Part::Operator, self.reply(got));
            return Next::Ask(Broadcast { to: self.participation.of(got.round), down, own: None });
        }
        if let Some(next) = self.failure.unless_failed(|| self.called(&self.form.step, "step", Part::Direction, got)) {
            (self.theta, self.state) = next;
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts { failure: Some(&self.failure), ..ServerFacts::default() }
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, self.state.iter().map(|kept| &kept.numbers).collect::<Vec<_>>()))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let (theta, arrays): (_, Vec<Vec<f64>>) = unpacked(state)?;
        // The settings do not contain the rule's state, and its class may have changed.
        if !arrays.iter().map(Vec::len).eq(self.state.iter().map(|kept| kept.numbers.len())) {
            let what = format!("not the state of the server rule {}", self.form.name);
            return Err(Error::format("checkpoint", what, "a checkpoint of the same settings"));
        }
        self.theta = theta;
        self.state.iter_mut().zip(arrays).for_each(|(kept, numbers)| kept.numbers = numbers);
        self.failure.clear();
        Ok(())
    }
}

/// The input of a server rule, in addition to theta and the mean of the answers.
///
/// The engine makes one for each call of :meth:`ServerRule.step`.
///
/// Attributes
/// ----------
/// round : int
///     The round, from 0.
/// step_sum : float
///     The sum E of the step sizes of the round.
/// asked : float
///     The sum of the weights of the agents that were asked.
/// state : dict of str to ndarray
///     What the rule keeps, as ``start`` has named it. Change the arrays, or put others of the same shape in their place.
/// answers : ndarray of shape (n, dim) or None
///     The answers that arrived, if the rule wants each of them.
/// agents : ndarray of shape (n,) or None
///     The agents that sent them.
/// weights : ndarray of shape (n,) or None
///     Their weights, times the factors by which the answers arrived.
/// rounds : ndarray of shape (n,) or None
///     The rounds that they answer.
///
/// Examples
/// --------
/// >>> class Average:
/// ...     def step(self, theta, mean, at):
/// ...         return theta + at.step_sum * mean
/// >>> import fedsa
/// >>> from fedsa import methods, problems
/// >>> method = methods.Custom(0.1, 10, server=Average())
/// >>> fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), method, rounds=10).run().labels
/// ['custom']
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct ServerRound {
    #[pyo3(get)]
    round: u64,
    #[pyo3(get)]
    step_sum: f64,
    #[pyo3(get)]
    asked: f64,
    #[pyo3(get)]
    state: Py<PyDict>,
    each: Option<Answers>,
}

/// The answers one by one.
struct Answers {
    agents: Py<PyArray1<i64>>,
    weights: Py<PyArray1<f64>>,
    rounds: Py<PyArray1<i64>>,
    answers: Py<PyArray2<f64>>,
}

#[pymethods]
impl ServerRound {
    #[getter]
    fn answers(&self, py: Python<'_>) -> Option<Py<PyArray2<f64>>> {
        self.each.as_ref().map(|each| each.answers.clone_ref(py))
    }

    #[getter]
    fn agents(&self, py: Python<'_>) -> Option<Py<PyArray1<i64>>> {
        self.each.as_ref().map(|each| each.agents.clone_ref(py))
    }

    #[getter]
    fn weights(&self, py: Python<'_>) -> Option<Py<PyArray1<f64>>> {
        self.each.as_ref().map(|each| each.weights.clone_ref(py))
    }

    #[getter]
    fn rounds(&self, py: Python<'_>) -> Option<Py<PyArray1<i64>>> {
        self.each.as_ref().map(|each| each.rounds.clone_ref(py))
    }
}
