//! An experiment at work: plan, predict, execute, check, write.

pub mod checks;
pub mod estimate;
pub mod execute;
pub mod finished;
pub mod memory;
pub mod outcome;
pub mod output;
pub mod picture;
pub mod plan;
pub mod predict;
pub mod resolve;
pub mod results;
pub mod trace_lines;

pub use execute::{Control, Outcome, execute};
pub use plan::{Cell, Plan};
pub use predict::Predictor;
pub use results::Results;
