//! The `fedsa` program: arguments, the terminal, messages; what it runs is in `fedsa_experiment`.

pub mod args;
pub mod commands;
pub mod error;
