//! A token with which a caller stops long work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{Error, Result};

/// Whether long work should stop. All clones are one token, and each can cancel from any thread.
#[derive(Debug, Clone)]
pub struct Cancel(Option<Arc<Flag>>);

/// The shared state of a token's clones.
#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// The time at which it is cancelled automatically.
    deadline: Option<Instant>,
    /// The token that also cancels this one.
    parent: Option<Arc<Flag>>,
}

impl Flag {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || self.parent.as_ref().is_some_and(|parent| parent.is_set())
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// A token that cannot be cancelled, for short work. It costs nothing.
    pub const fn never() -> Self {
        Self(None)
    }

    /// A token for a part of the work. Cancelling this token cancels the child, but not vice versa.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Some(Arc::new(Flag { parent: self.0.clone(), ..Flag::default() })))
    }

    /// A [`child`](Self::child) that is also cancelled at the deadline, if there is one.
    #[must_use]
    pub fn until(&self, deadline: Option<Instant>) -> Self {
        Self(Some(Arc::new(Flag { deadline, parent: self.0.clone(), ..Flag::default() })))
    }

    /// Asks all work with this token to stop soon.
    pub fn cancel(&self) {
        if let Some(flag) = &self.0 {
            flag.is_set.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.is_set())
    }

    /// Returns an error if the token is cancelled.
    ///
    /// # Errors
    /// When the token is cancelled, with the kind [`crate::error::ErrorKind::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled("it was cancelled", "the same call again")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cancelled_with_the_whole_and_not_the_other_way_round() {
        let whole = Cancel::new();
        let (one, other) = (whole.child(), whole.child());
        one.cancel();
        assert!(one.is_cancelled() && one.child().is_cancelled());
        assert!(!whole.is_cancelled() && !other.is_cancelled());
        whole.cancel();
        assert!(other.is_cancelled());
        let now = Instant::now();
        let (over, ahead) = (Cancel::new().until(Some(now)), Cancel::new().until(Some(now + std::time::Duration::from_secs(3600))));
        assert!(over.is_cancelled() && over.child().is_cancelled() && !ahead.is_cancelled());
        assert!(other.until(None).is_cancelled() && !Cancel::new().until(None).is_cancelled());
        let never = Cancel::never();
        never.child().cancel();
        assert!(!never.is_cancelled());
    }
}
