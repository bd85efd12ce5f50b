//! Points of drawings.

/// Its coordinates.
pub(super) type Point = (f64, f64);
