//! Server rules that several methods share, and what they are made of.

pub mod adaptive;
pub mod approximation;
pub mod average;
pub mod descent;
pub mod directions;
pub mod history;
mod included;

pub use average::Average;
pub(crate) use included::Included;
