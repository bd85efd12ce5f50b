//! Client rules that several methods share, and their parts.

pub mod control_variate;
pub mod descent;
pub mod global_memory;
pub mod line_search;
pub mod plain;
mod point;
pub mod refinement;
pub(crate) mod renewal;

pub use control_variate::ControlVariate;
pub use global_memory::GlobalMemory;
pub use plain::Plain;
pub(crate) use point::{Point, without_state};
