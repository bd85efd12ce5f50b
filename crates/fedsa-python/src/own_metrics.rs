//! Metrics of Python: functions of theta, called at recorded rounds by the thread that waits for the run.
//!
//! A run waits for each value. It has a pool of its own, so that a metric can call the package, which then uses the package's pool.

use std::sync::mpsc::{Sender, channel};

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use numpy::PyArray1;
use pyo3::prelude::*;

use crate::engine::{self, Calls, Own, Place, Progress};
use crate::errors::OrRaise;
use crate::threads;

/// A request for the metrics at an iterate.
struct Request {
    place: Place,
    theta: Vec<f64>,
    reply: Sender<Vec<f64>>,
}

/// [`engine::call_back`] for runs with these metrics: their names, a function that returns their values, and whether the iterates are kept.
///
/// # Errors
/// As [`engine::call_back`], and exceptions of metrics.
pub fn measured<T: Send>(
    py: Python<'_>,
    calls_back: bool,
    around: (Option<&Bound<'_, PyAny>>, Option<&Cancel>),
    (names, measure, keeps_iterates): (Vec<String>, Bound<'_, PyAny>, bool),
    work: impl FnOnce(&Progress, &Cancel) -> Result<T, Error> + Send,
) -> PyResult<T> {
    engine::refuse_inside(py)?;
    let pool = if calls_back { threads::alone() } else { threads::beside() }.or_raise(py)?;
    let work = |progress: &Progress, token: &Cancel, calls: Calls<Request>| {
        let ask = move |place: Place, theta: &[f64]| asked(&calls, place, theta);
        let has_none = names.is_empty();
        let measure = move |place: Place, theta: &[f64]| if has_none { Ok(Vec::new()) } else { ask(place, theta) };
        let _ = progress.own.set(Own { names: names.into(), keeps_iterates, measure: Box::new(measure) });
        work(progress, token)
    };
    let measure = measure.unbind();
    let answer = |py: Python<'_>, request: Request, has_failed: bool| {
        // A request without a reply ends its run.
        if has_failed {
            return Ok(());
        }
        let Request { place: Place { method, point, seed, round }, theta, reply } = request;
        let values = measure.call1(py, (method, point, seed, round, PyArray1::from_vec(py, theta)))?;
        let _ = reply.send(values.extract(py)?);
        Ok(())
    };
    engine::converse(py, (&pool, calls_back), around, work, answer)
}

/// Asks the waiting thread.
fn asked(calls: &Calls<Request>, place: Place, theta: &[f64]) -> Result<Vec<f64>, Error> {
    let gone = || Error::cancelled("a metric has raised an exception", "the same call again");
    let (reply, replied) = channel();
    calls.send(Some(Request { place, theta: theta.to_vec(), reply })).map_err(|_| gone())?;
    replied.recv().map_err(|_| gone())
}
