//! Calls of the engine: without the interpreter's lock, so that other Python threads run; with checks of signals, so that Ctrl-C ends the
//! call; with progress for a callback; and with panics as exceptions.
//!
//! The work runs on the pool of the package. The calling thread waits for it without the lock, and takes the lock from time to time to
//! check signals and to call back. To exclude deadlocks, work that calls Python itself ([`crate::operators`]) has one thread
//! ([`call_back`]): no thread waits for the lock while the lock's holder waits for that thread.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa_experiment::execute::total_work;
use fedsa_experiment::results::{Recorded, SeedResult};
use fedsa_experiment::{Computed, OwnMetrics, Plan, RunObserver, Stage};
use pyo3::prelude::*;
use pyo3::types::PyList;
use rayon::ThreadPool;

use crate::errors::{exception, internal};
use crate::operators::with_callbacks;
use crate::threads;

/// The time between checks of signals, and between callbacks.
const LOOK: Duration = Duration::from_millis(50);

/// The largest number of events that wait for the callback. Later ones are dropped, except warnings.
const MAX_EVENTS: usize = 10_000;

/// An event for the callback.
#[derive(Debug, Clone)]
pub enum Event {
    /// The next stage of a call, and the largest number of its local steps, if known.
    Stage(&'static str, f64),
    /// Completed local steps.
    Done(f64),
    /// The k-th of n roots or predictions is computed.
    Computing(&'static str, usize, usize),
    /// The part of a search that begins, and the spent seconds of a budget.
    Searching(String, f64),
    /// A seed of a method at a point recorded a round: the squared error, if known.
    Recorded { method: String, point: String, seed: u64, round: u64, mse: Option<f64> },
    /// A run has ended.
    Ended { method: String, point: String, seed: u64, outcome: &'static str, rounds: u64 },
    /// Something failed, but the call continues.
    Warned(String),
}

/// The progress of a call, reported from any thread.
#[derive(Default)]
pub struct Progress {
    events: Mutex<Vec<Event>>,
    /// Local steps, as the bits of a number.
    done: AtomicU64,
    plan: Mutex<Option<Arc<Plan>>>,
    /// Whether recorded rounds are events.
    pub records: bool,
    /// The caller's metrics.
    pub own: OnceLock<Own>,
}

/// A recorded round of a run.
#[derive(Debug)]
pub struct Place {
    pub method: String,
    pub point: String,
    pub seed: u64,
    pub round: u64,
}

/// The caller's metrics: their values at an iterate.
type Measure = dyn Fn(Place, &[f64]) -> Result<Vec<f64>, Error> + Send + Sync;

/// The caller's metrics.
pub struct Own {
    pub names: Arc<[String]>,
    pub keeps_iterates: bool,
    pub measure: Box<Measure>,
}

impl Progress {
    /// Reports an event.
    pub fn say(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() < MAX_EVENTS || matches!(event, Event::Warned(_)) {
            events.push(event);
        }
    }

    fn add(&self, steps: f64) {
        let _ = self.done.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some((f64::from_bits(bits) + steps).to_bits()));
    }

    fn take(&self) -> Vec<Event> {
        let mut events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        let done = f64::from_bits(self.done.load(Ordering::Relaxed));
        if done > 0.0 {
            events.push(Event::Done(done));
        }
        events
    }

    /// Method and point of a cell, at the first point that has it.
    fn names(&self, cell: usize) -> (String, String) {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(plan) = plan else { return Default::default() };
        let point = plan.points.iter().find(|planned| planned.cells.contains(&cell));
        let point = point.map(|planned| planned.point.label.clone()).unwrap_or_default();
        (plan.cells[cell].method.label.clone(), point)
    }
}

impl RunObserver for Progress {
    fn stage(&self, stage: Stage<'_>) {
        let plan = || self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        match stage {
            Stage::Building => self.say(Event::Stage("building", 0.0)),
            Stage::Planned(planned) => *plan() = Some(Arc::clone(planned)),
            Stage::Running => {
                let steps = plan().as_ref().map_or(0.0, |plan| total_work(plan));
                self.say(Event::Stage("running", steps));
            }
            Stage::Comparing => self.say(Event::Stage("comparing", 0.0)),
            _ => {}
        }
    }

    fn computing(&self, what: Computed, k: usize, n: usize) {
        self.say(Event::Computing(what.text(), k, n));
    }

    fn advanced(&self, steps: f64) {
        self.add(steps);
    }

    fn found(&self, steps: f64) {
        self.add(steps);
    }

    fn recorded(&self, cell: usize, seed: u64, row: &Recorded) {
        if self.records {
            let (method, point) = self.names(cell);
            self.say(Event::Recorded { method, point, seed, round: row.round, mse: row.metric("mse") });
        }
    }

    fn ended(&self, cell: usize, result: &SeedResult) {
        let (method, point) = self.names(cell);
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(plan) = plan else { return };
        let outcome = result.outcome(&plan.cells[cell].run.stop).name();
        let rounds = result.rows.last().map_or(0, |row| row.round);
        self.say(Event::Ended { method, point, seed: result.seed, outcome, rounds });
    }

    fn warned(&self, what: &str) {
        self.say(Event::Warned(what.to_string()));
    }

    fn own_metrics(&self) -> Option<&dyn OwnMetrics> {
        self.own.get().map(|_| self as &dyn OwnMetrics)
    }
}

impl OwnMetrics for Progress {
    fn names(&self) -> Arc<[String]> {
        self.own.get().map(|own| Arc::clone(&own.names)).unwrap_or_default()
    }

    fn measure(&self, cell: usize, seed: u64, round: u64, theta: &[f64]) -> Result<Vec<f64>, Error> {
        let (method, point) = self.names(cell);
        self.own.get().map_or(Ok(Vec::new()), |own| (own.measure)(Place { method, point, seed, round }, theta))
    }

    fn keeps_iterates(&self) -> bool {
        self.own.get().is_some_and(|own| own.keeps_iterates)
    }
}

/// The end of work on another thread: its result and the exceptions of callbacks, or the message of a panic.
type Ended<T> = Result<(Result<T, Error>, Option<PyErr>), String>;

/// Runs `work` on the pool. Signals, and exceptions of the callback `notify`, cancel the token of the work; the call then raises that
/// exception as soon as the work has ended.
///
/// # Errors
/// The error of the work; `InternalError` when it panics; exceptions of signal handlers or of the callback.
pub fn call<T: Send>(
    py: Python<'_>,
    notify: Option<&Bound<'_, PyAny>>,
    cancel: Option<&Cancel>,
    work: impl FnOnce(&Progress, &Cancel) -> Result<T, Error> + Send,
) -> PyResult<T> {
    call_back(py, false, notify, cancel, work)
}

/// [`call`] for work that calls Python if `calls_back`. It then has one thread, and an exception of a callback ends it and is raised.
///
/// # Errors
/// As [`call`], and exceptions of callbacks.
pub fn call_back<T: Send>(
    py: Python<'_>,
    calls_back: bool,
    notify: Option<&Bound<'_, PyAny>>,
    cancel: Option<&Cancel>,
    work: impl FnOnce(&Progress, &Cancel) -> Result<T, Error> + Send,
) -> PyResult<T> {
    refuse_inside(py)?;
    let pool = if calls_back { threads::alone() } else { threads::pool() }.map_err(|e| exception(py, &e))?;
    let work = |progress: &Progress, token: &Cancel, _: Calls<Infallible>| work(progress, token);
    converse(py, (&pool, calls_back), (notify, cancel), work, |_, call, _| match call {})
}

/// The channel by which work calls the waiting thread.
pub type Calls<C> = Sender<Option<C>>;

/// [`call_back`] for work that sends requests to the waiting thread, which `answer` handles with the interpreter's lock. An exception of
/// `answer` ends the work like a signal. Later calls of `answer` have `true` as last argument, and must not use Python any more.
///
/// # Errors
/// As [`call_back`], and exceptions of `answer`.
pub fn converse<C: Send, T: Send>(
    py: Python<'_>,
    (pool, calls_back): (&ThreadPool, bool),
    (notify, cancel): (Option<&Bound<'_, PyAny>>, Option<&Cancel>),
    work: impl FnOnce(&Progress, &Cancel, Calls<C>) -> Result<T, Error> + Send,
    mut answer: impl FnMut(Python<'_>, C, bool) -> PyResult<()> + Send,
) -> PyResult<T> {
    let token = cancel.map_or_else(Cancel::new, Cancel::child);
    let records = notify.is_some_and(|notify| notify.getattr("records").and_then(|is| is.is_truthy()).unwrap_or(false));
    let progress = Progress { records, ..Progress::default() };
    let notify = notify.map(|notify| notify.clone().unbind());
    let mut raised: Option<PyErr> = None;
    let ended: Ended<T> = py.detach(|| {
        let (give, take) = channel();
        let (progress, token) = (&progress, &token);
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().name("fedsa-call".into()).spawn_scoped(scope, move || {
                let work = || work(progress, token, give.clone());
                let work = || with_callbacks(Some(token.clone()), || if calls_back { attached(work) } else { work() });
                let done = catch_unwind(AssertUnwindSafe(|| pool.install(work)));
                let _ = give.send(None);
                done.map_err(|payload| message(&*payload))
            });
            let worker = match worker {
                Ok(worker) => worker,
                Err(e) => return Ok((Err(Error::machine(format!("a thread cannot be started: {e}"), "fewer threads")), None)),
            };
            let mut looked = Instant::now();
            loop {
                let mut done = match take.recv_timeout(LOOK) {
                    Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
                    Ok(Some(call)) => Python::attach(|py| answer(py, call, raised.is_some())),
                    Err(RecvTimeoutError::Timeout) => Ok(()),
                };
                // Also between calls that come without a pause.
                if done.is_ok() && raised.is_none() && looked.elapsed() >= LOOK {
                    done = Python::attach(|py| look(py, notify.as_ref(), progress));
                    looked = Instant::now();
                }
                if let Err(e) = done {
                    raised.get_or_insert(e);
                    token.cancel();
                }
            }
            worker.join().unwrap_or_else(|_| Err("the thread has ended without a result".into()))
        })
    });
    // The remaining events, such as warnings of short calls.
    let last = if raised.is_none() { look(py, notify.as_ref(), &progress).err() } else { None };
    match (raised.or(last), ended) {
        (Some(e), _) => Err(e),
        (None, Err(panic)) => Err(internal(py, &panic)),
        (None, Ok((_, Some(e)))) => Err(e),
        (None, Ok((result, None))) => result.map_err(|e| exception(py, &e)),
    }
}

/// Runs `work` without the interpreter's lock on a thread that the interpreter knows, so that callbacks find their thread prepared.
fn attached<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    Python::attach(|py| py.detach(work))
}

/// Runs `work` of milliseconds on the pool, without the interpreter's lock. It cannot be cancelled.
///
/// # Errors
/// As [`call_back`].
pub fn brief<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    refuse_inside(py)?;
    let pool = threads::pool().map_err(|e| exception(py, &e))?;
    match py.detach(|| catch_unwind(AssertUnwindSafe(|| pool.install(|| with_callbacks(None, work))))) {
        Ok((_, Some(e))) => Err(e),
        Ok((result, None)) => result.map_err(|e| exception(py, &e)),
        Err(payload) => Err(internal(py, &message(&*payload))),
    }
}

/// Runs `work` on Python's memory, with the interpreter's lock: copies and loops of milliseconds.
///
/// # Errors
/// The error of the work; `InternalError` when it panics.
pub fn held<T>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error>) -> PyResult<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|e| exception(py, &e)),
        Err(payload) => Err(internal(py, &message(&*payload))),
    }
}

/// Refuses a call from a thread of the pool, that is from a callback of the engine, because it would deadlock.
pub fn refuse_inside(py: Python<'_>) -> PyResult<()> {
    match rayon::current_thread_index() {
        None => Ok(()),
        Some(_) => {
            let help = "a callback that computes its values with NumPy alone";
            Err(exception(py, &Error::new("", "a callback of the engine cannot call the engine", help)))
        }
    }
}

fn look(py: Python<'_>, notify: Option<&Py<PyAny>>, progress: &Progress) -> PyResult<()> {
    py.check_signals()?;
    let events = progress.take();
    if let Some(notify) = notify
        && !events.is_empty()
    {
        let events = events.into_iter().map(|event| event.into_python(py)).collect::<PyResult<Vec<_>>>()?;
        notify.call1(py, (PyList::new(py, events)?,))?;
    }
    Ok(())
}

impl Event {
    /// A tuple with the name of the event first.
    fn into_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let tuple = match self {
            Event::Stage(name, steps) => ("stage", name, steps).into_pyobject(py)?.into_any(),
            Event::Done(steps) => ("done", steps).into_pyobject(py)?.into_any(),
            Event::Computing(what, k, n) => ("computing", what, k, n).into_pyobject(py)?.into_any(),
            Event::Searching(what, spent) => ("searching", what, spent).into_pyobject(py)?.into_any(),
            Event::Recorded { method, point, seed, round, mse } => {
                ("recorded", method, point, seed, round, mse).into_pyobject(py)?.into_any()
            }
            Event::Ended { method, point, seed, outcome, rounds } => {
                ("ended", method, point, seed, outcome, rounds).into_pyobject(py)?.into_any()
            }
            Event::Warned(what) => ("warned", what).into_pyobject(py)?.into_any(),
        };
        Ok(tuple)
    }
}

/// The message and place of the last panic.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Stores the messages of panics for the exception, instead of printing them.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let mut last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(info.to_string());
    }));
}

/// The message of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    let last = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    last.or(text.map(str::to_string)).unwrap_or_else(|| "a panic without a message".into())
}
