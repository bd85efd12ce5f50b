//! Linear systems and quadratic losses.

pub mod affine;
pub mod file;
pub mod finite_sum;
pub mod quadratic;
pub mod ridge;
pub(crate) mod spectra;
pub mod switching;
