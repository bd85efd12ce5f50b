//! Objectives: problems whose operators are minus gradients, `gbar_c = -grad f_c`.
//!
//! The root of the mean operator is then the stationary point of `sum_c p_c f_c`, which second-order methods find with losses, gradients
//! and Hessians.

use std::sync::Arc;

use faer::Mat;

use crate::linalg;
use crate::problem::systems::Systems;
use crate::triangle::{Support, entries};

/// Writes the product of a Hessian and its first argument into the second; both have d numbers.
pub type HessianProducts<'a> = Box<dyn FnMut(&[f64], &mut [f64]) + 'a>;

/// The components of theta in which an agent's Hessian is not a multiple of the identity, at every theta.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveComponents {
    /// The components, increasing.
    pub components: Vec<u32>,
    /// The diagonal entry of the Hessian in all other components, whose other entries are 0.
    pub outside: f64,
}

/// The agents' losses `f_c` in R^d, with derivatives. All are deterministic: means over the agent's whole law.
pub trait Objective: Send + Sync {
    /// `f_c(theta)`; theta has d components.
    fn loss(&self, c: usize, theta: &[f64]) -> f64;
    /// `out = grad f_c(theta) = -gbar_c(theta)`, d numbers.
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]);
    /// [`Objective::loss`], and [`Objective::gradient`] into `gradient`, with the same bits; shared work may be done once.
    fn loss_and_gradient(&self, c: usize, theta: &[f64], gradient: &mut [f64]) -> f64 {
        self.gradient(c, theta, gradient);
        self.loss(c, theta)
    }
    /// The Hessian of `f_c` at theta into `out`, d x d and symmetric.
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>);
    /// The entries of the Hessian of `f_c` that may differ from 0 at any theta, and its diagonal; `None` if all may.
    fn hessian_support(&self, _c: usize) -> Option<Arc<Support>> {
        None
    }
    /// [`Objective::gradient`], d numbers, and the entries of [`Objective::hessian`] on its support, with the same bits. Without a support:
    /// the lower triangle row by row, d (d + 1) / 2 numbers.
    fn gradient_and_hessian(&self, c: usize, theta: &[f64], gradient: &mut [f64], hessian: &mut [f64]) {
        self.gradient(c, theta, gradient);
        dense_hessian(self, c, theta, hessian);
    }
    /// Whether the mean loss is convex, so that its stationary point is its minimum. Methods with Hessians or line searches refuse others.
    fn is_convex(&self) -> bool {
        true
    }
    /// Whether these are the losses of the problem's linear systems ([`Systems`]), so that the mean loss is the mean system's loss.
    fn is_of_systems(&self) -> bool {
        false
    }
    /// `out = (Hessian of f_c at theta) v`, d numbers, without forming the Hessian if possible.
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]);
    /// [`Objective::hessian_vector`] for several products at one theta, with the same bits; shared work may be done once.
    fn hessian_products<'a>(&'a self, c: usize, theta: &[f64]) -> HessianProducts<'a> {
        let theta = theta.to_vec();
        let d = theta.len().max(1);
        Box::new(move |v: &[f64], out: &mut [f64]| {
            v.chunks(d).zip(out.chunks_mut(d)).for_each(|(v, out)| self.hessian_vector(c, &theta, v, out));
        })
    }
    /// Whether it is faster to form a Hessian of `f_c` for this many products than to use [`Objective::hessian_products`]. The answer
    /// affects last digits, so it must depend on the agent only, not on the other agents in this process.
    fn is_better_formed(&self, _c: usize, _products: usize) -> bool {
        false
    }
    /// The components in which Hessians of `f_c` differ from a multiple of the identity, if known and few. An agent with sparse rows has
    /// curvature in the columns of its rows, and the ridge elsewhere.
    fn active(&self, _c: usize) -> Option<ActiveComponents> {
        None
    }
    /// [`Objective::hessian_products`] restricted to the components of [`Objective::active`]; vectors have one number for each.
    fn products_within<'a>(&'a self, c: usize, theta: &[f64], components: &'a [u32]) -> HessianProducts<'a> {
        let mut product = self.hessian_products(c, theta);
        let (mut whole, mut image, n) = (vec![0.0; theta.len()], vec![0.0; theta.len()], components.len().max(1));
        Box::new(move |v: &[f64], out: &mut [f64]| {
            for (v, out) in v.chunks(n).zip(out.chunks_mut(n)) {
                components.iter().zip(v).for_each(|(i, v)| whole[*i as usize] = *v);
                product(&whole, &mut image);
                components.iter().zip(out).for_each(|(i, out)| *out = image[*i as usize]);
            }
        })
    }
    /// `out = f_c(theta + s p)` for each of `steps`.
    fn losses_along(&self, c: usize, theta: &[f64], p: &[f64], steps: &[f64], out: &mut [f64]) {
        for (s, out) in steps.iter().zip(out) {
            *out = self.loss(c, &theta.iter().zip(p).map(|(x, p)| s.mul_add(*p, *x)).collect::<Vec<_>>());
        }
    }
}

/// The entries of [`Objective::hessian`] on its support.
pub fn dense_hessian(objective: &(impl Objective + ?Sized), c: usize, theta: &[f64], out: &mut [f64]) {
    let d = theta.len();
    linalg::with_square(d, |dense| {
        objective.hessian(c, theta, dense);
        match objective.hessian_support(c) {
            // Columns of the upper triangle are rows of the lower triangle.
            None => (0..d).for_each(|i| out[entries(i)..entries(i + 1)].copy_from_slice(&dense.col_as_slice(i)[..=i])),
            Some(support) => support.each(|at, _, i, j| out[at] = dense[(j, i)]),
        }
    });
}

/// Quadratic losses `f_c(theta) = theta^T A_c theta / 2 - b_c^T theta` of linear systems with symmetric `A_c`. They are losses of the
/// systems only if [`Systems::is_symmetric`].
impl Objective for Systems {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.of(c).loss(theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        out.iter_mut().zip(self.of(c).mean(theta)).for_each(|(out, g)| *out = -g);
    }
    fn hessian(&self, c: usize, _: &[f64], out: &mut Mat<f64>) {
        out.copy_from(&self.of(c).a);
    }
    fn hessian_vector(&self, c: usize, _: &[f64], v: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&linalg::mat_vec(&self.of(c).a, v));
    }
    fn is_of_systems(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::systems::System;
    use crate::random::{Purpose, stream};

    /// Derivatives are differences of the loss, to the error of central differences of a quadratic: rounding.
    #[test]
    fn derivatives_of_quadratics_are_differences_of_the_loss() {
        let (d, mut draw) = (4, stream(1, Purpose::System, 0, 0));
        let g = Mat::from_fn(d, d, |_, _| draw.normal());
        let a = &g + g.transpose();
        let b: Vec<f64> = (0..d).map(|_| draw.normal()).collect();
        let systems = Systems::new(vec![System { a, b }], vec![0], vec![1.0]);
        assert!(systems.is_symmetric());
        let objective: &dyn Objective = &systems;
        let theta: Vec<f64> = (0..d).map(|_| draw.normal()).collect();
        let v: Vec<f64> = (0..d).map(|_| draw.normal()).collect();
        let (mut gradient, mut product, mut hessian) = (vec![0.0; d], vec![0.0; d], Mat::zeros(d, d));
        objective.gradient(0, &theta, &mut gradient);
        objective.hessian(0, &theta, &mut hessian);
        objective.hessian_vector(0, &theta, &v, &mut product);
        let at = |t: f64, v: &[f64]| objective.loss(0, &theta.iter().zip(v).map(|(x, v)| x + t * v).collect::<Vec<_>>());
        // Steps of 1 are exact on a quadratic.
        let slope: f64 = gradient.iter().zip(&v).map(|(g, v)| g * v).sum();
        assert!((slope - (at(1.0, &v) - at(-1.0, &v)) / 2.0).abs() < 1e-12);
        let bend: f64 = product.iter().zip(&v).map(|(g, v)| g * v).sum();
        assert!((bend - (at(1.0, &v) - 2.0 * at(0.0, &v) + at(-1.0, &v))).abs() < 1e-12);
        let formed = linalg::mat_vec(&hessian, &v);
        assert!(linalg::distance_sq(&formed, &product).sqrt() < 1e-13);
        let mut again = vec![0.0; d];
        objective.hessian_products(0, &theta)(&v, &mut again);
        assert_eq!(again, product);
        let (both, mut images) = ([&v[..], &theta[..]].concat(), vec![0.0; 2 * d]);
        objective.hessian_products(0, &theta)(&both, &mut images);
        objective.hessian_vector(0, &theta, &theta, &mut again);
        assert_eq!(images, [&product[..], &again[..]].concat());
        let (components, mut within) = ([1, 3], [0.0; 2]);
        objective.products_within(0, &theta, &components)(&[v[1], v[3]], &mut within);
        let only = linalg::mat_vec(&hessian, &[0.0, v[1], 0.0, v[3]]);
        assert!(linalg::distance_sq(&within, &[only[1], only[3]]).sqrt() < 1e-13);
        let mut twice = [0.0; 4];
        objective.products_within(0, &theta, &components)(&[v[1], v[3], v[1], v[3]], &mut twice);
        assert_eq!(twice, [within, within].concat()[..]);
    }

    #[test]
    fn systems_that_are_not_symmetric_have_no_objective() {
        let a = linalg::from_rows(2, 2, &[1.0, 0.5, 0.5 + 1e-9, 1.0]);
        let systems = Systems::new(vec![System { a, b: vec![0.0; 2] }], vec![0], vec![1.0]);
        assert!(!systems.is_symmetric());
    }
}
