//! A recorded round.

use serde::{Deserialize, Serialize};

use crate::metrics::{self, Observation};
use crate::record::{Count, Ledger};

/// One recorded round of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// The round t: rounds done.
    pub round: u64,
    /// The counts since the start.
    pub ledger: Ledger,
    /// The metrics.
    pub seen: Observation,
    /// The seconds since the start, in federations of machines. Runs in one process have none, so that equal runs have equal rows. States
    /// do not keep them.
    #[serde(skip)]
    pub seconds: Option<f64>,
}

impl Recorded {
    /// A count, since the start.
    pub fn count(&self, count: &Count) -> u64 {
        (count.of)(self.round, &self.ledger)
    }

    /// A metric by its name; `error` is `mse` if measured from theta*.
    pub fn metric(&self, name: &str) -> Option<f64> {
        metrics::metric(name)?.value(&self.seen)
    }
}
