//! Batches of a log read by a separate thread while the calling thread processes the batch before.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use fedsa::error::Result;

use super::first_pass::Rows;

/// The reading side.
pub(super) struct Ahead {
    send: SyncSender<Rows>,
    returned: Receiver<Rows>,
}

/// The processing side.
pub(super) struct Behind {
    sent: Receiver<Rows>,
    give_back: Sender<Rows>,
}

/// Both sides. One batch waits between them.
pub(super) fn both() -> (Ahead, Behind) {
    let (send, sent) = mpsc::sync_channel(1);
    // Processed batches go back to be filled again.
    let (give_back, returned) = mpsc::channel();
    (Ahead { send, returned }, Behind { sent, give_back })
}

impl Ahead {
    /// A batch to fill: a processed one, with its rows, or a new one.
    pub fn batch(&self, new: impl FnOnce() -> Rows) -> Rows {
        self.returned.try_recv().unwrap_or_else(|_| new())
    }

    /// Passes a batch on; false if processing has stopped, because of an error there.
    pub fn hand_on(&self, rows: Rows) -> bool {
        self.send.send(rows).is_ok()
    }
}

impl Behind {
    /// Calls `see` with all batches.
    ///
    /// # Errors
    /// The first error of `see`.
    pub fn see(self, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<()> {
        for rows in self.sent {
            see(&rows)?;
            // After the last batch, the reader no longer takes batches back.
            let _ = self.give_back.send(rows);
        }
        Ok(())
    }
}
