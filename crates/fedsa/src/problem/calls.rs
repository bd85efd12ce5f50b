//! Oracle calls: evaluations of operators, losses and derivatives.

use serde::{Deserialize, Serialize};

/// Calls of oracles since the start, over all agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Evaluations of an operator, `g_c(theta, z)` for one sample or `gbar_c(theta)`.
    pub operators: u64,
    /// Losses.
    pub losses: u64,
    /// Gradients.
    pub gradients: u64,
    /// Hessians, and matrices of linear operators.
    pub hessians: u64,
    /// Products of a Hessian and a vector.
    pub hessian_vectors: u64,
}

impl Calls {
    /// Adds the calls of others.
    pub fn add(&mut self, other: Calls) {
        self.operators += other.operators;
        self.losses += other.losses;
        self.gradients += other.gradients;
        self.hessians += other.hessians;
        self.hessian_vectors += other.hessian_vectors;
    }

    /// Every count.
    pub fn all(&self) -> [u64; 5] {
        [self.operators, self.losses, self.gradients, self.hessians, self.hessian_vectors]
    }
}
