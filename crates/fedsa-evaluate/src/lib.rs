//! Statements about a finished answer: values of policies from logs, standard errors of values, errors on held-out episodes. Inference
//! for generalised linear models is here too.

#![forbid(unsafe_code)]

pub mod default_ridge;
pub mod held_out;
pub mod inference;
pub mod policy_value;
pub mod uncertainty;
