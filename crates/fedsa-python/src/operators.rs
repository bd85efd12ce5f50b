//! Operators that are methods of a Python class, called once for all agents of a step.
//!
//! Callbacks run on the thread that does the work of a call, and that thread takes the interpreter's lock for each of them. To exclude
//! deadlocks, the work of a call with callbacks has one thread ([`crate::engine::call_back`]): no thread waits for the lock while the
//! lock's holder waits for that thread. The exception of a callback is stored for the caller ([`raise_later`]), and ends the work.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa::linalg::norm_sq;
use fedsa::problem::{BatchCall, BatchOperators};
use fedsa::random::{Purpose, Stream, stream};
use numpy::{PyArray1, PyArray2, PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::exception;

thread_local! {
    /// The exception of a callback of the work on this thread, and the token that ends the work.
    static RAISED: RefCell<(Option<PyErr>, Option<Cancel>)> = const { RefCell::new((None, None)) };
}

/// Runs `work`, which `cancel` ends, and returns the exception of its callbacks on this thread.
pub fn with_callbacks<T>(cancel: Option<Cancel>, work: impl FnOnce() -> T) -> (T, Option<PyErr>) {
    let before = RAISED.replace((None, cancel));
    let done = work();
    (done, RAISED.replace(before).0)
}

/// Stores an exception for the caller of the work, ends the work, and returns the engine's error.
pub fn raise_later(py: Python<'_>, key: &str, what: &str, e: PyErr) -> Error {
    let error = Error::new(key, format!("{what} raised {}", e.value(py).get_type()), "a callback that does not raise");
    RAISED.with_borrow_mut(|(raised, cancel)| {
        raised.get_or_insert(e);
        cancel.iter().for_each(Cancel::cancel);
    });
    error
}

/// The properties of operators that are known before calls.
pub struct Form {
    /// The name of the class, for messages.
    pub name: String,
    pub dim: usize,
    pub weights: Vec<f64>,
    pub sample: Py<PyAny>,
    pub start: Option<Py<PyAny>>,
    pub mean: Option<Py<PyAny>>,
    pub jacobian: Option<Py<PyAny>>,
    pub root: Option<Vec<f64>>,
    /// Converts a value to an array of this form, or raises. Its arguments: value, shape, whether they are integers, and the name for
    /// messages.
    pub check: Py<PyAny>,
}

/// The form of a state: the shape for one agent, and whether it has integers.
struct StateForm {
    shape: Vec<usize>,
    is_integer: bool,
}

impl StateForm {
    fn words(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Operators of a Python class.
pub struct Operator {
    form: Arc<Form>,
    state: Option<StateForm>,
    agents: Mutex<Option<LastAgents>>,
}

/// The agents of the last call, in Rust and in Python.
struct LastAgents {
    places: Vec<usize>,
    array: Py<PyArray1<i64>>,
}

type Array = Py<PyAny>;

impl Operator {
    /// Operators; one process is started to determine the form of its state.
    ///
    /// # Errors
    /// When that raises, or returns no state.
    pub fn new(form: Arc<Form>) -> Result<Self, Error> {
        let mut this = Self { form, state: None, agents: Mutex::new(None) };
        this.state = this.calling("start", |py| this.state_form(py))?;
        this.check_root()?;
        Ok(this)
    }

    /// Refuses a vector that is no root of the mean operator.
    fn check_root(&self) -> Result<(), Error> {
        let (Some(root), Some(mean)) = (&self.form.root, &self.form.mean) else { return Ok(()) };
        let agents: Vec<usize> = (0..self.form.weights.len()).collect();
        let size = root.iter().fold(1.0_f64, |most, x| most.max(x.abs()));
        let norm_at = |step: f64| {
            let theta: Vec<f64> = root.iter().map(|x| x + step).collect();
            let mut each = vec![0.0; agents.len() * theta.len()];
            self.calling("mean", |py| self.at(py, mean, &agents, &theta.repeat(agents.len()), &mut each, "mean"))?;
            let mut sum = vec![0.0; theta.len()];
            for (p, g) in self.form.weights.iter().zip(each.chunks(theta.len())) {
                sum.iter_mut().zip(g).for_each(|(sum, g)| *sum += p * g);
            }
            Ok::<_, Error>(norm_sq(&sum).sqrt())
        };
        let (here, there) = (norm_at(0.0)?, norm_at(size)?.max(norm_at(-size)?));
        if here <= ROOT_SHARE * there || !there.is_finite() {
            return Ok(());
        }
        let (mean, root) = (self.named("mean"), self.named("root"));
        let what =
            format!("{root} is no root of {mean}: its norm is {here:.3e} there, and at most {there:.3e} at a distance of {size:.3e}");
        Err(Error::data("root", what, "the root of the weighted mean of the agents, or no root: it is then computed with mean"))
    }

    fn named(&self, function: &str) -> String {
        format!("{}.{function}", self.form.name)
    }

    /// Calls a Python function; its exception is stored for the caller.
    fn calling<T>(&self, function: &str, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, Error> {
        Python::attach(|py| call(py).map_err(|e| raise_later(py, "operator", &self.named(function), e)))
    }

    fn state_form(&self, py: Python<'_>) -> PyResult<Option<StateForm>> {
        if self.form.start.is_none() {
            return Ok(None);
        }
        let mut draws = [stream(0, Purpose::Chain, 0, 0)];
        let state = self.started(py, 0, &mut draws)?;
        let is_integer = state.getattr("dtype")?.getattr("kind")?.extract::<String>()? == "i";
        let shape: Vec<usize> = state.getattr("shape")?.extract()?;
        if shape.is_empty() || shape[0] != 1 || shape.iter().product::<usize>() == 0 {
            let what = format!("{} returned an array of shape {shape:?} for one agent", self.named("start"));
            return Err(exception(
                py,
                &Error::data("start", what, "a first axis of length len(rng.agents), and one number an agent or more"),
            ));
        }
        Ok(Some(StateForm { shape: shape[1..].to_vec(), is_integer }))
    }

    /// The result of `start` for one agent, as an array of 64-bit numbers.
    fn started<'py>(&self, py: Python<'py>, c: usize, streams: &mut [Stream; 1]) -> PyResult<Bound<'py, PyAny>> {
        let start = self.form.start.as_ref().ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("there is no start"))?;
        let draws = Bound::new(py, Draws { streams: streams.to_vec(), agents: self.agents_array(py, &[c])? })?;
        let state = start.bind(py).call1((&draws,))?;
        streams.copy_from_slice(&draws.try_borrow()?.streams);
        self.form.check.bind(py).call1((state, py.None(), py.None(), self.named("start")))
    }

    /// The numbers of agents as an array, reused if they equal the previous call's.
    fn agents_array(&self, py: Python<'_>, agents: &[usize]) -> PyResult<Py<PyArray1<i64>>> {
        let mut last = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref().filter(|last| last.places == agents) {
            return Ok(last.array.clone_ref(py));
        }
        let array = PyArray1::from_iter(py, agents.iter().map(|c| *c as i64));
        array.getattr("flags")?.setattr("writeable", false)?;
        *last = Some(LastAgents { places: agents.to_vec(), array: array.clone().unbind() });
        Ok(array.unbind())
    }

    fn sample_in(&self, py: Python<'_>, call: BatchCall<'_>) -> PyResult<()> {
        let BatchCall { agents, theta, states, streams, out } = call;
        let n = agents.len();
        let draws = Bound::new(py, Draws { streams: streams.to_vec(), agents: self.agents_array(py, agents)? })?;
        let theta_array = rows(py, theta, n)?;
        let name = || self.named("sample");
        match &self.state {
            None => {
                let g = self.form.sample.bind(py).call1((theta_array, py.None(), &draws))?;
                self.take(py, &g, &[n, self.form.dim], out, "sample")?;
            }
            Some(form) => {
                let state = state_array(py, form, n, states)?;
                let both = self.form.sample.bind(py).call1((theta_array, state, &draws))?;
                let Some(both) = both.cast::<PyTuple>().ok().filter(|both| both.len() == 2) else {
                    let what = format!("{} returned {}", name(), both.get_type().name()?);
                    return Err(exception(py, &Error::data("sample", what, "a tuple (g, state), as there is a function start")));
                };
                self.take(py, &both.get_item(0)?, &[n, self.form.dim], out, "sample")?;
                take_state(py, &self.form.check, &both.get_item(1)?, form, n, states, &format!("the state of {}", name()))?;
            }
        }
        streams.copy_from_slice(&draws.try_borrow()?.streams);
        self.finite(py, agents, theta, out, "sample")
    }

    /// Copies an array of this shape, or a value that can be converted to one.
    fn take(&self, py: Python<'_>, value: &Bound<'_, PyAny>, shape: &[usize], out: &mut [f64], function: &str) -> PyResult<()> {
        if copied(value, shape, out) {
            return Ok(());
        }
        let array = self.form.check.bind(py).call1((value, shape.to_vec(), false, self.named(function)))?;
        if copied(&array, shape, out) {
            return Ok(());
        }
        Err(pyo3::exceptions::PyTypeError::new_err(format!("{} returned no array of numbers", self.named(function))))
    }

    /// Refuses numbers that are not finite at finite iterates. The engine itself detects diverging iterates.
    fn finite(&self, py: Python<'_>, agents: &[usize], theta: &[f64], out: &[f64], function: &str) -> PyResult<()> {
        let (d, each) = (self.form.dim, out.len() / agents.len().max(1));
        for ((c, theta), out) in agents.iter().zip(theta.chunks(d)).zip(out.chunks(each.max(1))) {
            if let Some(x) = out.iter().find(|x| !x.is_finite())
                && are_tame(theta)
            {
                let what = format!("{} returned {x} for agent {c}", self.named(function));
                return Err(exception(py, &Error::data(function, what, "finite numbers")));
            }
        }
        Ok(())
    }

    /// Calls a function of iterates and agents.
    fn at(&self, py: Python<'_>, function: &Py<PyAny>, agents: &[usize], theta: &[f64], out: &mut [f64], name: &str) -> PyResult<()> {
        let (n, d) = (agents.len(), self.form.dim);
        let value = function.bind(py).call1((rows(py, theta, n)?, self.agents_array(py, agents)?))?;
        let shape = if name == "mean" { vec![n, d] } else { vec![n, d, d] };
        self.take(py, &value, &shape, out, name)?;
        self.finite(py, agents, theta, out, name)
    }
}

/// At a root the mean operator is at most this share of its size at some distance, because a root may be known to a few digits only.
const ROOT_SHARE: f64 = 1e-3;

/// Whether numbers are far from overflow, so that results from them must be finite.
pub fn are_tame(numbers: &[f64]) -> bool {
    const TAME: f64 = 1e100;
    numbers.iter().all(|x| x.abs() < TAME)
}

/// n rows as an independent array.
pub fn rows<'py>(py: Python<'py>, numbers: &[f64], n: usize) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let array = PyArray2::zeros(py, [n, numbers.len() / n.max(1)], false);
    array.try_readwrite()?.as_slice_mut()?.copy_from_slice(numbers);
    Ok(array)
}

/// Copies an array of this shape with 64-bit numbers in C order, and returns whether it is one.
pub fn copied(value: &Bound<'_, PyAny>, shape: &[usize], out: &mut [f64]) -> bool {
    let Ok(array) = value.cast::<PyArrayDyn<f64>>() else { return false };
    if array.shape() != shape {
        return false;
    }
    let Ok(array) = array.try_readonly() else { return false };
    array.as_slice().is_ok_and(|numbers| {
        out.copy_from_slice(numbers);
        true
    })
}

/// The words of states as an array.
fn state_array(py: Python<'_>, form: &StateForm, n: usize, states: &[u64]) -> PyResult<Array> {
    let shape: Vec<usize> = std::iter::once(n).chain(form.shape.iter().copied()).collect();
    if form.is_integer {
        let array = PyArray1::from_iter(py, states.iter().map(|word| word.cast_signed()));
        return Ok(array.reshape(shape)?.into_any().unbind());
    }
    let array = PyArray1::from_iter(py, states.iter().map(|word| f64::from_bits(*word)));
    Ok(array.reshape(shape)?.into_any().unbind())
}

/// Takes the states returned by a function.
fn take_state(
    py: Python<'_>,
    check: &Py<PyAny>,
    value: &Bound<'_, PyAny>,
    form: &StateForm,
    n: usize,
    states: &mut [u64],
    name: &str,
) -> PyResult<()> {
    let shape: Vec<usize> = std::iter::once(n).chain(form.shape.iter().copied()).collect();
    let array = check.bind(py).call1((value, shape, form.is_integer, name))?;
    if form.is_integer {
        let array = array.cast::<PyArrayDyn<i64>>()?.try_readonly()?;
        states.iter_mut().zip(array.as_slice()?).for_each(|(word, x)| *word = x.cast_unsigned());
    } else {
        let array = array.cast::<PyArrayDyn<f64>>()?.try_readonly()?;
        states.iter_mut().zip(array.as_slice()?).for_each(|(word, x)| *word = x.to_bits());
    }
    Ok(())
}

impl BatchOperators for Operator {
    fn dim(&self) -> usize {
        self.form.dim
    }
    fn weights(&self) -> &[f64] {
        &self.form.weights
    }
    fn state_len(&self) -> usize {
        self.state.as_ref().map_or(0, StateForm::words)
    }
    fn start(&self, c: usize, stream: &mut Stream, words: &mut [u64]) -> Result<(), Error> {
        let Some(form) = &self.state else { return Ok(()) };
        self.calling("start", |py| {
            let mut streams = [*stream];
            let state = self.started(py, c, &mut streams)?;
            [*stream] = streams;
            take_state(py, &self.form.check, &state, form, 1, words, &self.named("start"))
        })
    }
    fn is_state(&self, _: usize, state: &[u64]) -> bool {
        self.state.as_ref().is_none_or(|form| form.is_integer || state.iter().all(|word| f64::from_bits(*word).is_finite()))
    }
    fn sample(&self, call: BatchCall<'_>) -> Result<(), Error> {
        self.calling("sample", |py| self.sample_in(py, call))
    }
    fn has_mean(&self) -> bool {
        self.form.mean.is_some()
    }
    fn mean(&self, agents: &[usize], theta: &[f64], out: &mut [f64]) -> Result<(), Error> {
        let Some(mean) = &self.form.mean else { return Ok(()) };
        self.calling("mean", |py| self.at(py, mean, agents, theta, out, "mean"))
    }
    fn has_jacobian(&self) -> bool {
        self.form.jacobian.is_some()
    }
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut [f64]) -> Result<(), Error> {
        let Some(jacobian) = &self.form.jacobian else { return Ok(()) };
        self.calling("jacobian", |py| self.at(py, jacobian, &[c], theta, out, "jacobian"))
    }
    fn root(&self) -> Option<&[f64]> {
        self.form.root.as_deref()
    }
}

/// Random numbers of the agents of a call, each from its agent's own stream.
///
/// The engine makes one for each call of a method of :class:`Operator`.
///
/// Parameters
/// ----------
/// seed : int
///     The seed of a run; for tests of an operator without the engine.
/// agents : sequence of int
///     The numbers of the agents.
/// round : int
///     The round.
///
/// Examples
/// --------
/// >>> from fedsa.operators import Draws
/// >>> both, second = Draws(0, [3, 5], 0), Draws(0, [5], 0)
/// >>> both.normal(2).shape
/// (2, 2)
/// >>> second.normal(2)[0].tolist() == Draws(0, [3, 5], 0).normal(2)[1].tolist()
/// True
#[pyclass(module = "fedsa._fedsa")]
pub struct Draws {
    streams: Vec<Stream>,
    agents: Py<PyArray1<i64>>,
}

/// The largest number of numbers in one draw.
const MAX_NUMBERS: usize = 1 << 30;

impl Draws {
    /// Draws from these streams, for these agents.
    pub fn of(streams: Vec<Stream>, agents: Py<PyArray1<i64>>) -> Self {
        Self { streams, agents }
    }

    /// One number per agent, or rows of k.
    fn drawn(&mut self, py: Python<'_>, k: Option<Bound<'_, PyAny>>, draw: impl Fn(&mut Stream) -> f64) -> PyResult<Array> {
        let n = self.streams.len();
        let Some(k) = k else {
            return Ok(PyArray1::from_iter(py, self.streams.iter_mut().map(draw)).into_any().unbind());
        };
        let Ok(k) = k.extract::<usize>() else {
            let e =
                Error::new("k", format!("{} is not accepted", k.repr()?), "a whole number of at least 0, or none for one number an agent");
            return Err(exception(py, &e));
        };
        if n.saturating_mul(k) > MAX_NUMBERS {
            let what = format!("{k} numbers for each of {n} agents");
            return Err(exception(py, &Error::new("k", what, format!("at most {MAX_NUMBERS} numbers at once"))));
        }
        let array = PyArray2::zeros(py, [n, k], false);
        for (row, stream) in array.try_readwrite()?.as_slice_mut()?.chunks_mut(k.max(1)).zip(&mut self.streams) {
            row.iter_mut().for_each(|x| *x = draw(stream));
        }
        Ok(array.into_any().unbind())
    }
}

#[pymethods]
impl Draws {
    #[new]
    #[pyo3(signature = (seed, agents, round = 0))]
    fn new(py: Python<'_>, seed: u64, agents: Vec<usize>, round: u64) -> Self {
        let streams = agents.iter().map(|c| stream(seed, Purpose::Sample, round, *c)).collect();
        Self { streams, agents: PyArray1::from_iter(py, agents.iter().map(|c| *c as i64)).unbind() }
    }

    /// The numbers of the agents of the call, increasing: an array (n,).
    #[getter]
    fn agents(&self, py: Python<'_>) -> Py<PyArray1<i64>> {
        self.agents.clone_ref(py)
    }

    /// Draw numbers uniform in [0, 1).
    ///
    /// Parameters
    /// ----------
    /// k : int, optional
    ///     How many for each agent.
    ///
    /// Returns
    /// -------
    /// ndarray of shape (n, k), or (n,) without k
    ///     The numbers; each row is the next of its agent's stream.
    #[pyo3(signature = (k = None))]
    fn random(&mut self, py: Python<'_>, k: Option<Bound<'_, PyAny>>) -> PyResult<Array> {
        self.drawn(py, k, Stream::uniform)
    }

    /// Draw standard normal numbers.
    ///
    /// Parameters
    /// ----------
    /// k : int, optional
    ///     How many for each agent.
    ///
    /// Returns
    /// -------
    /// ndarray of shape (n, k), or (n,) without k
    ///     The numbers; each row is the next of its agent's stream.
    #[pyo3(signature = (k = None))]
    fn normal(&mut self, py: Python<'_>, k: Option<Bound<'_, PyAny>>) -> PyResult<Array> {
        self.drawn(py, k, Stream::normal)
    }
}
