//! Points of drawings.

/// The coordinates of a point.
pub(super) type Point = (f64, f64);
