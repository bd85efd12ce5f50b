//! Problems: the agents' operators and how they are sampled.
pub mod arrays;
pub mod features;
pub mod log;
pub mod systems;
