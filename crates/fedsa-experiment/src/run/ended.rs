//! How runs end.

use fedsa::cancel::Cancel;
use fedsa::error::Error;

use super::{EndedRun, Ran};
use crate::execute::Interrupted;
use crate::observer::RunObserver;

/// How an experiment, or a task made of one, ended.
#[non_exhaustive]
pub enum RunOutcome<T = Ran> {
    /// All runs ended.
    Done(Box<T>),
    /// The folder had a finished run of the same settings to resume. Nothing ran or was written.
    AlreadyDone(AlreadyDone<T>),
    /// The runs, or their comparison with theory, were cancelled, and the folder has what was computed. Without a folder, and before
    /// anything is written, a cancelled call returns an error of the kind [`Cancelled`](fedsa::error::ErrorKind::Cancelled) instead.
    Interrupted(Interrupted),
}

/// Reads the results of a finished run.
type Load<T> = dyn FnOnce(&dyn RunObserver, &Cancel) -> Result<T, Error> + Send + Sync;

/// A run that ended before, in its folder.
#[non_exhaustive]
pub struct AlreadyDone<T = Ran> {
    /// Whether everything was as expected.
    pub ended: EndedRun,
    load: Box<Load<T>>,
}

impl<T> AlreadyDone<T> {
    pub(super) fn new(ended: EndedRun, load: impl FnOnce(&dyn RunObserver, &Cancel) -> Result<T, Error> + Send + Sync + 'static) -> Self {
        Self { ended, load: Box::new(load) }
    }

    /// The results, without a folder: nothing is written. It builds the problem and compares the results with theory again. It repeats runs
    /// only if the folder lacks their states, as for very large runs and copied folders.
    ///
    /// # Errors
    /// As [`super::Job::run`], and when it is cancelled.
    pub fn load(self, observer: &dyn RunObserver, cancel: &Cancel) -> Result<T, Error> {
        (self.load)(observer, cancel)
    }
}

impl<T: 'static> RunOutcome<T> {
    /// The same with `made` applied to the results, if there are any.
    ///
    /// # Errors
    /// Those of `made`.
    pub fn try_map<U>(self, made: impl FnOnce(T) -> Result<U, Error> + Send + Sync + 'static) -> Result<RunOutcome<U>, Error> {
        Ok(match self {
            Self::Done(results) => RunOutcome::Done(Box::new(made(*results)?)),
            Self::AlreadyDone(done) => {
                RunOutcome::AlreadyDone(AlreadyDone::new(done.ended, |observer, cancel| made(done.load(observer, cancel)?)))
            }
            Self::Interrupted(left) => RunOutcome::Interrupted(left),
        })
    }
}

impl<T> RunOutcome<T> {
    /// The results, of a run that ended now or before.
    ///
    /// # Errors
    /// As [`AlreadyDone::load`]; when it was interrupted.
    pub fn results(self, observer: &dyn RunObserver, cancel: &Cancel) -> Result<T, Error> {
        match self {
            Self::Done(results) => Ok(*results),
            Self::AlreadyDone(done) => done.load(observer, cancel),
            Self::Interrupted(_) => Err(Error::cancelled("it was cancelled", "the same call again, which goes on from its folder")),
        }
    }
}

/// The outcome of cancelled runs.
pub(super) fn interrupted(left: Interrupted, has_folder: bool) -> Result<RunOutcome, Error> {
    match has_folder {
        true => Ok(RunOutcome::Interrupted(left)),
        false => Err(Error::cancelled("it was cancelled", "the same call again, or a folder from which it can go on")),
    }
}
