//! Turns: calls one after the other, on any thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The value of a lock, even if its last holder panicked.
pub fn locked<T>(guarded: &Mutex<T>) -> MutexGuard<'_, T> {
    guarded.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turns. A turn can be released for other work in the meantime, unlike a borrowed lock.
#[derive(Default)]
pub struct Turns {
    is_taken: Mutex<bool>,
    free: Condvar,
}

impl Turns {
    /// Waits for the turn.
    pub fn take(self: &Arc<Self>) -> Turn {
        let mut is_taken = locked(&self.is_taken);
        while *is_taken {
            is_taken = self.free.wait(is_taken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_taken = true;
        Turn(Arc::clone(self))
    }
}

/// A turn, which ends when it is dropped.
pub struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        *locked(&self.0.is_taken) = false;
        self.0.free.notify_one();
    }
}
