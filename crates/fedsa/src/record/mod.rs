//! The record of a run: the ledger, the output rule, and the outcome.

pub mod counts;
pub mod ledger;
pub mod outcome;
pub mod output;

pub use counts::{COUNTS, Count, count};
pub use ledger::{Ledger, Sent, Work};
pub use outcome::{INCOMPLETE, Missed, OUTCOMES, Outcome};
pub use output::{Output, OutputRule};
