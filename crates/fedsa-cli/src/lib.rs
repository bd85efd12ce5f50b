//! The `fedsa` program.
pub mod files;
