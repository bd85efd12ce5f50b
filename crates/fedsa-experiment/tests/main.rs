//! All tests of the crate in one program, so that it is linked once.

mod deployed_levels;
mod deployed_sparse;
mod deployment;
mod failures;
mod handles;
mod plan;
mod predictions;
mod seeds;
mod tune_study;
