//! The `fedsa` program: experiment files in, tables and pictures out.

pub mod args;
pub mod bundled;
pub mod commands;
pub mod config;
pub mod error;
pub mod excerpt;
pub mod experiment;
pub mod figure;
pub mod files;
pub mod machine;
pub mod numbers;
