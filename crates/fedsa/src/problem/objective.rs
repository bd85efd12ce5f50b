//! Objectives: operators that are minus a gradient.

use faer::Mat;

use super::systems::{System, Systems};

/// Agents' objectives `f_c` with `gbar_c = -grad f_c`; theta has d components.
pub trait Objective: Send + Sync {
    /// `f_c(theta)`.
    fn loss(&self, c: usize, theta: &[f64]) -> f64;
    /// `out = grad f_c(theta)`, d components.
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]);
    /// `out = Hess f_c(theta)`, d x d.
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>);
    /// `out = Hess f_c(theta) v`, d components.
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]);
}

/// Linear systems whose `A_c` are symmetric: `f_c(theta) = theta^T A_c theta / 2 - b_c^T theta`.
impl Objective for Systems {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        let System { a, b } = self.of(c);
        let product = crate::linalg::mat_vec(a, theta);
        product.iter().zip(b).zip(theta).map(|((ax, b), x)| x * (0.5 * ax - b)).sum()
    }

    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        out.iter_mut().zip(self.of(c).mean(theta)).for_each(|(out, g)| *out = -g);
    }

    fn hessian(&self, c: usize, _: &[f64], out: &mut Mat<f64>) {
        out.copy_from(&self.of(c).a);
    }

    fn hessian_vector(&self, c: usize, _: &[f64], v: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&crate::linalg::mat_vec(&self.of(c).a, v));
    }
}

/// Linear systems as an objective, if every `A_c` is symmetric to the last bit.
pub fn of_systems(systems: &Systems) -> Option<&dyn Objective> {
    let is_symmetric = |a: &Mat<f64>| (0..a.nrows()).all(|i| (0..i).all(|j| a[(i, j)] == a[(j, i)]));
    systems.kinds.iter().all(|system| is_symmetric(&system.a)).then_some(systems)
}
