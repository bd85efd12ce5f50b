//! Batches of a log that a thread of its own reads, while the caller's thread sees the one before.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use fedsa::error::Result;

use super::first_pass::Rows;

/// The side that reads.
pub(super) struct Ahead {
    send: SyncSender<Rows>,
    returned: Receiver<Rows>,
}

/// The side that sees.
pub(super) struct Behind {
    sent: Receiver<Rows>,
    give_back: Sender<Rows>,
}

/// Both sides. One batch waits between them.
pub(super) fn both() -> (Ahead, Behind) {
    let (send, sent) = mpsc::sync_channel(1);
    // Batches that were seen go back to be filled again.
    let (give_back, returned) = mpsc::channel();
    (Ahead { send, returned }, Behind { sent, give_back })
}

impl Ahead {
    /// A batch to fill: one that was seen, with its rows, or a new one.
    pub fn batch(&self, new: impl FnOnce() -> Rows) -> Rows {
        self.returned.try_recv().unwrap_or_else(|_| new())
    }

    /// Hands a batch on; false if nobody sees any more, because of an error there.
    pub fn hand_on(&self, rows: Rows) -> bool {
        self.send.send(rows).is_ok()
    }
}

impl Behind {
    /// Calls `see` with all batches.
    ///
    /// # Errors
    /// The first of `see`.
    pub fn see(self, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<()> {
        for rows in self.sent {
            see(&rows)?;
            // Nobody takes it back after the last batch.
            let _ = self.give_back.send(rows);
        }
        Ok(())
    }
}
