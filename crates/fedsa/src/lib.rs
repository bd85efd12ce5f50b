//! Federated stochastic approximation.
pub mod error;
pub mod kernel;
pub mod linalg;
pub mod local;
pub mod message;
pub mod methods;
pub mod node;
pub mod problem;
pub mod random;
pub mod record;
pub mod registry;
pub mod round;
pub mod sampling;
pub mod schedule;
pub mod server;
pub mod theory;
pub mod uplink;
