//! Failures of rules and operators.

use std::sync::{Mutex, PoisonError};

use super::Error;

/// Why a call of operators or of a rule failed: the first reason, until cleared.
///
/// Functions of hot loops return no errors. Code that can fail keeps a `Failure`, which its caller checks after each exchange; results
/// since the failure are void.
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

    /// Forgets the reason; the caller has gone back to a state before it.
    pub fn clear(&self) {
        *self.reason() = None;
    }

    /// Runs `call`, unless a call has failed before; returns its result if it succeeded.
    pub fn unless_failed<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        if self.is_set() {
            return None;
        }
        call().inspect_err(|reason| self.set(reason.clone())).ok()
    }
}
