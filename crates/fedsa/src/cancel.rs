//! One token by which a caller stops what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Whether what takes long is to stop. All clones are one token: whoever holds one can cancel, from any thread.
#[derive(Debug, Clone)]
pub struct Cancel(Option<Arc<AtomicBool>>);

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// A token that nobody has cancelled yet.
    pub fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// A token that cannot be cancelled, for what is short. It costs nothing.
    pub const fn never() -> Self {
        Self(None)
    }

    /// Asks everything that holds the token to stop soon.
    pub fn cancel(&self) {
        if let Some(flag) = &self.0 {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Goes on, unless it is cancelled.
    ///
    /// # Errors
    /// When it is cancelled, with the kind [`crate::error::ErrorKind::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled("it was cancelled", "the same call again")) } else { Ok(()) }
    }
}
