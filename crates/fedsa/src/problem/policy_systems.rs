//! Operators whose linear systems depend on theta by a policy: `gbar_c(theta) = b_c(theta) - A_c(theta) theta`.
//!
//! Methods that improve a policy ask agents for the system under the policy of theta, and solve it for the next theta (policy iteration).

use faer::Mat;

use super::systems::{System, Systems};

/// The agents' systems under the policy that theta determines, and the matrices by which values are fitted. All are means over the agent's
/// whole law; theta has d components.
pub trait PolicySystems: Send + Sync {
    /// `A_c(theta)` and `b_c(theta)`: the solution of `A x = b` are the values of the policy that theta determines.
    fn system(&self, c: usize, theta: &[f64]) -> System;
    /// The system of the policy that logged the agent's data, if there is one. Its scale is that of the agent's rows it uses, so that the
    /// weighted sum over agents is the system of all these rows.
    fn behaviour(&self, _c: usize) -> Option<System> {
        None
    }
    /// The Gram matrix of the agent's features under the law that theta determines, with the ridge: d x d, symmetric, and positive definite in
    /// the mean. `theta + G^-1 gbar(theta)` are then the weights that fit the targets of theta by least squares.
    fn gram(&self, c: usize, theta: &[f64]) -> Mat<f64>;
    /// `out = gbar_c(theta)`, d numbers.
    fn operator(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&self.system(c, theta).mean(theta));
    }
}

/// Symmetric systems are least squares without a policy: `A_c` is the Gram matrix.
impl PolicySystems for Systems {
    fn system(&self, c: usize, _: &[f64]) -> System {
        self.of(c).clone()
    }
    fn gram(&self, c: usize, _: &[f64]) -> Mat<f64> {
        self.of(c).a.clone()
    }
}
