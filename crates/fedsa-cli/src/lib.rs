//! The `fedsa` program: arguments, the terminal, messages; what it runs is in `fedsa_experiment`.
//!
//! [`main_with`] is the whole program, with problems, methods, codecs and media of other crates in addition to its own.

pub mod args;
pub mod commands;
pub mod error;
mod hints;
mod program;

pub use fedsa_experiment::Extensions;
pub use program::{main_with, run_with};
