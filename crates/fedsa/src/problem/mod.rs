//! Problems: the agents' operators and how they are sampled.
pub mod systems;
