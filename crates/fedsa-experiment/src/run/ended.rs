//! How runs end.

use fedsa::cancel::Cancel;
use fedsa::error::Error;

use super::{EndedRun, Ran};
use crate::execute::Interrupted;
use crate::observer::RunObserver;

/// How an experiment ended, or what is made of one.
#[non_exhaustive]
pub enum RunOutcome<T = Ran> {
    /// All runs ended.
    Done(Box<T>),
    /// The folder held a finished run of the same settings, which was to go on. Nothing was run or written.
    AlreadyDone(AlreadyDone<T>),
    /// The runs were cancelled, or their comparison with theory, and the folder keeps what was computed. Without a folder, and before
    /// anything was written, a call that is cancelled ends in an error of the kind
    /// [`Cancelled`](fedsa::error::ErrorKind::Cancelled) instead.
    Interrupted(Interrupted),
}

/// Reads the results of a finished run.
type Load<T> = dyn FnOnce(&dyn RunObserver, &Cancel) -> Result<T, Error> + Send + Sync;

/// A run that had ended before, in its folder.
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

    /// The results, without a folder: nothing is written. The problem is built and the results are compared with theory again. Runs are
    /// not run again, unless their states are not in the folder: those of very large runs are not, nor those of a copied folder.
    ///
    /// # Errors
    /// As [`super::Job::run`], and when it is cancelled.
    pub fn load(self, observer: &dyn RunObserver, cancel: &Cancel) -> Result<T, Error> {
        (self.load)(observer, cancel)
    }
}

impl<T: 'static> RunOutcome<T> {
    /// The same with what `made` makes of the results, where there are any.
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
    /// The results, whether it has ended now or before.
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

/// The end of runs that were cancelled.
pub(super) fn interrupted(left: Interrupted, has_folder: bool) -> Result<RunOutcome, Error> {
    match has_folder {
        true => Ok(RunOutcome::Interrupted(left)),
        false => Err(Error::cancelled("it was cancelled", "the same call again, or a folder from which it can go on")),
    }
}
