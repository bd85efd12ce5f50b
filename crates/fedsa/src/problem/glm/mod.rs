//! Generalised linear models and other losses of linear predictors: families, the problem on the agents' rows, and inference from sums that
//! agents send.

mod agent_sums;
mod estimate;
pub mod family;
pub mod inference;
mod optimum;
mod problem;
mod units;

pub(in crate::problem) use problem::{LossSettings, RowLosses};
