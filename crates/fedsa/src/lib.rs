//! Federated stochastic approximation.
pub mod error;
pub mod linalg;
pub mod problem;
pub mod theory;
