//! Server rules that several methods share, and their parts.

pub mod adaptive;
pub mod approximation;
pub mod average;
pub mod descent;
pub mod directions;
pub mod history;

pub use average::Average;
