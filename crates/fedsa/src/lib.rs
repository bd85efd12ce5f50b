//! Federated stochastic approximation.
pub mod error;
pub mod kernel;
pub mod linalg;
pub mod problem;
pub mod random;
pub mod registry;
pub mod sampling;
