//! One token by which a caller stops what takes long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::{Error, Result};

/// Whether what takes long is to stop. All clones are one token: whoever holds one can cancel, from any thread.
#[derive(Debug, Clone)]
pub struct Cancel(Option<Arc<Flag>>);

/// What the clones of a token share.
#[derive(Debug, Default)]
struct Flag {
    is_set: AtomicBool,
    /// When it is cancelled by itself.
    deadline: Option<Instant>,
    /// The token that cancels this one too.
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
    /// A token that nobody has cancelled yet.
    pub fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// A token that cannot be cancelled, for what is short. It costs nothing.
    pub const fn never() -> Self {
        Self(None)
    }

    /// A token for a part of the work: it is cancelled with this one, and cancelling it does not cancel this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Some(Arc::new(Flag { parent: self.0.clone(), ..Flag::default() })))
    }

    /// A token for a part of the work that is to end by a time, if there is one: as [`child`](Self::child), and cancelled from then on.
    #[must_use]
    pub fn until(&self, deadline: Option<Instant>) -> Self {
        Self(Some(Arc::new(Flag { deadline, parent: self.0.clone(), ..Flag::default() })))
    }

    /// Asks everything that holds the token to stop soon.
    pub fn cancel(&self) {
        if let Some(flag) = &self.0 {
            flag.is_set.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.is_set())
    }

    /// Goes on, unless it is cancelled.
    ///
    /// # Errors
    /// When it is cancelled, with the kind [`crate::error::ErrorKind::Cancelled`].
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
