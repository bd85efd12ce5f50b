//! Evaluation of a finished result: values of policies from logs, standard errors of values, errors on held-out episodes, and inference
//! for generalised linear models.

#![forbid(unsafe_code)]

pub mod default_ridge;
pub mod held_out;
pub mod inference;
pub mod policy_value;
pub mod uncertainty;
