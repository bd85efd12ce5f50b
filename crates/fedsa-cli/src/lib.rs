//! The `fedsa` program: arguments, terminal, messages. `fedsa_experiment` does the work.
//!
//! [`main_with`] is the whole program, with problems, methods, codecs and media of other crates added.

pub mod args;
pub mod commands;
pub mod error;
mod hints;
mod program;

pub use fedsa_experiment::Extensions;
pub use program::{main_with, run_with};
