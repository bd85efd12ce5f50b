//! Where a rule that can fail says so.

use std::sync::{Mutex, PoisonError};

use super::Error;

/// Why a call of operators or of a rule failed: the first reason, until it is forgotten.
///
/// The functions of the hot loops return no errors. What can fail keeps a `Failure`, at which its caller looks after each exchange; what
/// was computed since the failure is void.
#[derive(Debug, Default)]
pub struct Failure(Mutex<Option<Error>>);

impl Failure {
    fn reason(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a reason, if there is none yet.
    pub fn set(&self, reason: Error) {
        self.reason().get_or_insert(reason);
    }

    /// The reason.
    pub fn get(&self) -> Option<Error> {
        self.reason().clone()
    }

    /// Whether there is a reason.
    pub fn is_set(&self) -> bool {
        self.reason().is_some()
    }

    /// Forgets the reason: whoever calls it has gone back to before what is void.
    pub fn clear(&self) {
        *self.reason() = None;
    }

    /// Does `call`, unless a call has failed before; its result if it worked.
    pub fn unless_failed<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        if self.is_set() {
            return None;
        }
        call().inspect_err(|reason| self.set(reason.clone())).ok()
    }
}
