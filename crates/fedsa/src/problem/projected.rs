//! The mean-square projected Bellman error, which GTD2 and TDC minimise.
//!
//! ```text
//! MSPBE(theta) = (b - A theta)^T C^+ (b - A theta)
//! A = E rho phi (phi - gamma phi')^T,   b = E rho r phi,   C = E phi phi^T
//! ```
//!
//! (Sutton et al. 2009, "Fast gradient-descent methods for temporal-difference learning with linear function approximation", eq. 4 and 7.)
//! `C^+` is the inverse on the span of the features: b and the columns of A lie in that span. If A is regular the minimum is 0, at TD's
//! root. If A is singular there may be many minima; the one of least norm is used.

use faer::{Mat, Side};

use crate::linalg;
use crate::problem::systems::System;

/// The projected Bellman error of the mean of all agents.
#[derive(Debug, Clone)]
pub struct ProjectedBellman {
    /// A and b, with any ridge in A.
    mean: System,
    /// `W`, r x d, with `W^T W = C^+`; r is the rank of C.
    whitening: Mat<f64>,
}

/// Weights that minimise the projected Bellman error.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimiser {
    /// `theta`, d numbers: the minimum of least norm.
    pub theta: Vec<f64>,
    /// `C^+ (b - A theta)`, d numbers: the limit of the second half of the iterate of GTD2 and TDC; 0 if A is regular.
    pub auxiliary: Vec<f64>,
    /// The effective rank of A.
    pub rank: usize,
}

impl ProjectedBellman {
    /// From A, b and the symmetric C, d x d. `None` if C is not finite.
    pub fn new(mean: System, c: &Mat<f64>) -> Option<Self> {
        if !c.is_all_finite() {
            return None;
        }
        let d = c.nrows();
        let eigen = c.self_adjoint_eigen(Side::Lower).ok()?;
        let values = eigen.S().column_vector();
        let largest = (0..d).map(|i| values[i]).fold(0.0, f64::max);
        // Smaller eigenvalues are rounding errors.
        let kept: Vec<usize> = (0..d).filter(|i| values[*i] > d as f64 * f64::EPSILON * largest).collect();
        let whitening = Mat::from_fn(kept.len(), d, |k, j| eigen.U()[(j, kept[k])] / values[kept[k]].sqrt());
        Some(Self { mean, whitening })
    }

    /// The effective rank of C: the dimension of the span of the states' features.
    pub fn feature_rank(&self) -> usize {
        self.whitening.nrows()
    }

    /// `W (b - A theta)`, r numbers.
    fn whitened(&self, theta: &[f64]) -> Vec<f64> {
        linalg::mat_vec(&self.whitening, &self.mean.mean(theta))
    }

    /// The error at `theta`, d numbers.
    pub fn error(&self, theta: &[f64]) -> f64 {
        linalg::norm_sq(&self.whitened(theta))
    }

    /// The minimiser of the error.
    pub fn minimiser(&self) -> Minimiser {
        let (System { a, b }, d) = (&self.mean, self.mean.b.len());
        let solved = linalg::least_norm(a, &linalg::column(b));
        if solved.rank() == d {
            return Minimiser { theta: solved.x.col_as_slice(0).to_vec(), auxiliary: vec![0.0; d], rank: d };
        }
        // min ||W b - W A theta||, with W A, r x d, padded by rows of zeros.
        let (r, product) = (self.feature_rank(), &self.whitening * a);
        let square = Mat::from_fn(d, d, |i, j| if i < r { product[(i, j)] } else { 0.0 });
        let right = linalg::mat_vec(&self.whitening, b);
        let right = Mat::from_fn(d, 1, |i, _| right.get(i).copied().unwrap_or(0.0));
        let solved = linalg::least_norm(&square, &right);
        let theta = solved.x.col_as_slice(0).to_vec();
        let left = linalg::column(&self.whitened(&theta));
        let auxiliary = (self.whitening.transpose() * left).col_as_slice(0).to_vec();
        Minimiser { theta, auxiliary, rank: solved.rank() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(b - A theta)^T C^-1 (b - A theta)` by a linear solve, and its minimum by the normal equations.
    #[test]
    fn the_error_is_the_quadratic_form_and_its_minimum_solves_the_normal_equations() {
        let a = linalg::from_rows(2, 2, &[1.0, 2.0, 0.5, 1.0]);
        let c = linalg::from_rows(2, 2, &[2.0, 0.5, 0.5, 1.0]);
        let b = vec![1.0, -1.0];
        let error = ProjectedBellman::new(System { a: a.clone(), b: b.clone() }, &c).unwrap();
        let system = System { a: a.clone(), b };
        for theta in [[0.0, 0.0], [1.0, -2.0], [0.3, 0.7]] {
            let g = system.mean(&theta);
            let expected = linalg::dot(&g, &linalg::solve(&c, &g).unwrap());
            assert!((error.error(&theta) - expected).abs() < 1e-13 * (1.0 + expected));
        }
        let found = error.minimiser();
        assert_eq!((found.rank, error.feature_rank()), (1, 2));
        let u = linalg::solve(&c, &system.mean(&found.theta)).unwrap();
        assert!(linalg::distance_sq(&u, &found.auxiliary).sqrt() < 1e-13);
        let gradient = linalg::mat_vec(&a.transpose().to_owned(), &u);
        assert!(linalg::norm_sq(&gradient).sqrt() < 1e-13, "{gradient:?}");
        // Of least norm: A has the null direction (2, -1).
        assert!((2.0 * found.theta[0] - found.theta[1]).abs() < 1e-13, "{found:?}");
        // The minimum is not 0, since b is not in the range of A.
        assert!(error.error(&found.theta) > 0.1);
    }

    #[test]
    fn where_a_is_regular_the_minimum_is_the_root() {
        let a = linalg::from_rows(2, 2, &[1.0, 2.0, -0.5, 1.0]);
        let system = System { a: a.clone(), b: vec![1.0, 3.0] };
        let found = ProjectedBellman::new(system.clone(), &Mat::identity(2, 2)).unwrap().minimiser();
        assert_eq!(found, Minimiser { theta: linalg::solve(&a, &system.b).unwrap(), auxiliary: vec![0.0; 2], rank: 2 });
        assert!(ProjectedBellman::new(system, &Mat::full(2, 2, f64::NAN)).is_none());
    }
}
