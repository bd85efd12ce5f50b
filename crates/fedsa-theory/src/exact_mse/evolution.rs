//! A mean-square error along the rounds, read from a state that a linear map advances.

use crate::map::LinearMap;
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};

/// The mean-square error along the rounds: a linear map advances a state by one round, and the error is read from the state.
pub struct Evolution {
    map: Box<dyn LinearMap>,
    start: Vec<f64>,
    read: Read,
}

/// How the mean-square error is read from the state.
pub(super) enum Read {
    /// The sum of these entries of a state of second moments.
    Sum(Vec<usize>),
    /// The squared norm of the first entries of a state without noise.
    Norm(usize),
}

impl Evolution {
    pub(super) fn of_moments(map: Box<dyn LinearMap>, start: Vec<f64>, entries: Vec<usize>) -> Self {
        Self { map, start, read: Read::Sum(entries) }
    }

    /// The error without noise: `start` is the state whose first `d` entries are `theta_0 - theta*`.
    pub fn without_noise(map: Box<dyn LinearMap>, start: Vec<f64>, d: usize) -> Self {
        Self { map, start, read: Read::Norm(d) }
    }

    /// The map of the state in a round.
    pub fn map(&self) -> &dyn LinearMap {
        &*self.map
    }

    /// The state before the first round.
    pub fn start(&self) -> &[f64] {
        &self.start
    }

    /// The mean-square error of a state.
    pub fn mse(&self, state: &[f64]) -> f64 {
        match &self.read {
            Read::Sum(entries) => entries.iter().map(|i| state[*i]).sum(),
            Read::Norm(d) => linalg::norm_sq(&state[..*d]),
        }
    }
}

/// A matrix M and a shift as the map `(x, 1) -> (M x + shift, 1)`.
pub(crate) fn affine(m: &Mat<f64>, shift: &[f64]) -> Mat<f64> {
    let d = shift.len();
    let mut map = Mat::<f64>::identity(d + 1, d + 1);
    map.get_mut(..d, ..d).copy_from(m);
    shift.iter().enumerate().for_each(|(i, x)| map[(i, d)] = *x);
    map
}

/// The offset `theta_0 - theta*` (d).
///
/// # Errors
/// When the lengths differ.
pub(crate) fn offset(theta_0: &[f64], root: &[f64]) -> Result<Vec<f64>> {
    fedsa::error::require(theta_0.len() == root.len(), "start", theta_0.len(), &format!("{} numbers", root.len()))?;
    Ok(theta_0.iter().zip(root).map(|(x, r)| x - r).collect())
}
