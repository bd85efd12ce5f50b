//! The `fedsa` program: experiment files in, tables and pictures out.
pub mod config;
pub mod error;
pub mod figure;
pub mod files;
