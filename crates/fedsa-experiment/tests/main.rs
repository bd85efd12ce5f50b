//! All tests of the crate in one program, so that it is linked once.

mod cart_poles;
mod deployed_levels;
mod deployed_sparse;
mod deployed_states;
mod deployed_sums;
mod deployed_tasks;
mod deployment;
mod disclosure;
mod failures;
mod handles;
mod plan;
mod predictions;
mod private_rows;
mod seeds;
mod tune_study;
