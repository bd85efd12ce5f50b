//! Temporal differences on Markov reward processes.

pub mod baird;
pub mod garnet;
pub(crate) mod gradient_samples;
pub mod gradient_td;
pub mod mrp;
pub mod random_mrp;
pub mod td0;
pub mod traces;
