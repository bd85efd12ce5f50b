//! One token by which a caller stops what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Whether what takes long is to stop. All clones are one token: whoever holds one can cancel, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that nobody has cancelled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everything that holds the token to stop soon.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Goes on, unless it is cancelled.
    ///
    /// # Errors
    /// When it is cancelled, with the kind [`crate::error::ErrorKind::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled("it was cancelled", "the same call again")) } else { Ok(()) }
    }
}
