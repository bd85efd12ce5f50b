//! Nonlinear operators.

pub mod fixed_point;
pub mod q_learning;
pub mod random_logistic;
