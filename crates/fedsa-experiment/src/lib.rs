//! Experiments: from a file to results, checks and pictures.
//!
//! [`config`] reads the file, [`plan`] builds its problems and methods, [`mod@execute`] runs it, [`checks`] compares the
//! results with the file's expectations, [`output`] and [`picture`] write them. This crate does not use the command line
//! or the terminal: progress goes to an [`execute::Observer`], and failures are values.

pub mod bundled;
pub mod checks;
pub mod choose;
pub mod config;
pub mod error;
pub mod estimate;
pub mod evaluate;
pub mod excerpt;
pub mod execute;
pub mod file_schema;
pub mod finished;
pub mod fit;
pub mod folder;
pub mod kinds;
pub mod made;
pub mod memory;
pub mod numbers;
pub mod observer;
pub mod outcome;
pub mod output;
pub mod picture;
pub mod plan;
pub mod predict;
pub mod resolve;
pub mod results;
pub mod run;
pub mod stability;
pub mod theory;
pub mod trace_lines;
pub mod tune;

pub use evaluate::{EvaluateSettings, Evaluated, evaluate};
pub use execute::{Executed, RunControl, execute};
pub use fit::{FitSettings, Fitted, fit};
pub use kinds::{Extensions, Kinds};
pub use observer::{Observer, Stage, Unobserved};
pub use plan::{Plan, PlannedCell};
pub use predict::Predictor;
pub use results::Results;
pub use run::{IfExists, RunSettings, run};
