//! Server rules that several methods share, and what they are made of.

pub mod adaptive;
pub mod approximation;
pub mod average;
pub mod descent;
pub mod directions;
pub mod history;

pub use average::Average;
