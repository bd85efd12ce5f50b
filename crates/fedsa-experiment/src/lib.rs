//! Experiments: from settings or a file to results, checks and pictures.
//!
//! | what | input | result |
//! | --- | --- | --- |
//! | [`fn@run`] | an experiment | [`run::Ran`] |
//! | [`parts::run_part`], [`fn@parts::merge`] | points of a sweep; all of them | a part; [`run::Ran`] |
//! | [`fn@check::check`] | an experiment | [`check::Checked`] |
//! | [`fn@fit`] | [`FitSettings`], or data sets in memory ([`fit::Fit::of_sets`]) | [`Fitted`] |
//! | [`fn@improve`] | [`ImproveSettings`], or logs in memory ([`improve::PolicySearch::of_logs`]) | [`Improved`] |
//! | [`fn@evaluate`] | [`EvaluateSettings`], or logs in memory ([`evaluate::Evaluation::of_logs`]) | [`Evaluated`] |
//! | [`fn@apply::apply`] | weights and data | [`apply::Applied`] |
//! | [`fn@theory::theory`] | an experiment | [`theory::TheoryReport`] |
//! | [`fn@tune::tune`] | an experiment and a target | [`tune::Answer`] |
//! | [`choose::choose`] | a problem | [`choose::Choice`] |
//! | [`redraw::redraw`] | the folder of a run | [`redraw::Redrawn`] |
//! | [`foretold::foretold`] | the folder of a run | [`theory::TheoryReport`] |
//! | [`compare::compare`] | the folders of two runs | [`compare::Comparison`] |
//!
//! Results are data; separate calls write files. Below these, [`config`] reads experiment files, [`plan`] builds problems and
//! methods, [`mod@execute`] runs them, [`checks`] compares results with what the file expects, [`output`] and [`picture`] make files.
//! This crate does not use the command line or the terminal: progress goes to a [`RunObserver`], and failures are values.

pub mod apply;
pub mod axis;
pub mod bundled;
pub mod check;
pub mod checks;
pub mod choose;
pub mod compare;
pub mod config;
pub mod deployment;
pub mod error;
pub mod estimate;
pub mod evaluate;
pub mod excerpt;
pub mod execute;
pub mod file_schema;
pub mod finished;
pub mod fit;
pub mod folder;
pub mod foretold;
pub mod improve;
pub mod kinds;
pub mod made;
pub mod memory;
pub mod names;
pub mod numbers;
pub mod observer;
pub mod options;
pub mod outcome;
pub mod output;
pub mod parts;
pub mod picture;
pub mod plan;
pub mod predict;
pub mod redraw;
pub mod resolve;
pub mod results;
pub mod run;
pub mod run_memory;
pub mod stability;
pub mod summary;
pub mod tables;
pub mod theory;
pub mod trace_lines;
pub mod tune;

pub use evaluate::{EvaluateSettings, Evaluated, evaluate};
pub use execute::{Executed, RunControl, execute};
pub use fit::{FitSettings, Fitted, fit};
pub use improve::{ImproveSettings, Improved, improve};
pub use kinds::{Extensions, Kinds};
pub use observer::{Computed, OwnMetrics, RunObserver, Stage, Unobserved};
pub use plan::{Plan, PlannedCell};
pub use predict::Predictor;
pub use results::Results;
pub use run::{IfExists, RunSettings, run};
pub use summary::Summary;

/// The examples of the book are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/extend/library.md")]
mod book {}
