//! Parts of a sweep that run in other processes.

use std::path::PathBuf;
use std::time::Duration;

use fedsa::error::Error;
use fedsa_data::regular;
use fedsa_experiment::parts::{self, PartOutcome, SweepPart};
use fedsa_experiment::{IfExists, RunSettings};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine;
use crate::experiment::{CancelToken, Experiment, written};
use crate::results::RanResults;

fn settings(experiment: &Experiment, out: PathBuf, force: bool) -> RunSettings {
    RunSettings::default().with_base(&experiment.base).with_quick(experiment.quick).with_force(force).in_folder(out, IfExists::Refuse)
}

/// Runs points of a sweep in a folder, where other processes may run others. Returns the number of runs, or `None` if they were done
/// before.
#[pyfunction]
#[pyo3(signature = (experiment, notify, cancel, out, points, force, checkpoint_every))]
#[expect(clippy::too_many_arguments, reason = "a private signature with plain values")]
pub fn run_part(
    py: Python<'_>,
    experiment: &Experiment,
    notify: Option<&Bound<'_, PyAny>>,
    cancel: Option<&CancelToken>,
    out: PathBuf,
    points: &str,
    force: bool,
    checkpoint_every: f64,
) -> PyResult<Option<usize>> {
    let every = Duration::try_from_secs_f64(checkpoint_every).unwrap_or(Duration::from_secs(10));
    let settings = settings(experiment, out, force).with_checkpoint_every(every);
    engine::call_back(py, experiment.calls_back, notify, cancel.map(|token| &token.0), |progress, cancel| {
        match parts::run_part(&experiment.inner, &SweepPart::of(points.parse()?), &settings, progress, cancel)? {
            PartOutcome::Done(ran) => Ok(Some(ran.runs)),
            PartOutcome::Interrupted(_) => Err(Error::cancelled("it was cancelled", "the same call again, which goes on from its folder")),
            _ => Ok(None),
        }
    })
}

/// Merges the parts in a folder, and writes the results there.
#[pyfunction]
#[pyo3(signature = (experiment, notify, cancel, out))]
pub fn merge_parts(
    py: Python<'_>,
    experiment: &Experiment,
    notify: Option<&Bound<'_, PyAny>>,
    cancel: Option<&CancelToken>,
    out: PathBuf,
) -> PyResult<RanResults> {
    let settings = settings(experiment, out, true);
    let ran = engine::call_back(py, experiment.calls_back, notify, cancel.map(|token| &token.0), |progress, cancel| {
        written(parts::merge(experiment.inner.clone(), settings, progress, cancel)?, progress, cancel)
    })?;
    Ok(RanResults(ran))
}

/// The estimated seconds of each point on one core.
#[pyfunction]
#[pyo3(signature = (experiment, cancel))]
pub fn point_seconds(py: Python<'_>, experiment: &Experiment, cancel: Option<&CancelToken>) -> PyResult<Vec<f64>> {
    let settings = settings(experiment, PathBuf::new(), true);
    engine::call_back(py, experiment.calls_back, None, cancel.map(|token| &token.0), |_, cancel| {
        parts::seconds_of_points(&experiment.inner, &settings, cancel)
    })
}

/// The parts in a folder: the points, and whether they are finished.
#[pyfunction]
pub fn parts_in(py: Python<'_>, out: PathBuf) -> PyResult<Vec<(String, bool)>> {
    let all = engine::brief(py, || parts::parts_in(&out))?;
    Ok(all.into_iter().filter(|(part, _)| part.seeds.is_none()).map(|(part, is_done)| (part.points.to_string(), is_done)).collect())
}

/// The file of a finished part, for a machine without this disk.
#[pyfunction]
pub fn part_bytes<'py>(py: Python<'py>, out: PathBuf, points: &str) -> PyResult<Bound<'py, PyBytes>> {
    let read = || {
        let path = parts::file_of_part(&out, &SweepPart::of(points.parse()?));
        regular::read(&path, u64::MAX - 1).map_err(|e| Error::machine(format!("{}: {e}", path.display()), "a folder that can be read"))
    };
    Ok(PyBytes::new(py, &engine::brief(py, read)?))
}

/// Adds a part that ran elsewhere.
#[pyfunction]
pub fn add_part(py: Python<'_>, experiment: &Experiment, out: PathBuf, bytes: &[u8]) -> PyResult<()> {
    let settings = settings(experiment, out, true);
    engine::brief(py, || parts::add_part(&experiment.inner, &settings, bytes))
}
