//! The recursion for exact mean-square errors of methods without control variates.

use super::evolution::{Evolution, affine, offset};
use super::{ExactMse, MeanSquare, unstable};
use crate::fedlsa::FedLsaMean;
use crate::map::{at_rounds, spectral_radius};
use crate::symmetric::{congruence, pack, packed_index, packed_len, packed_trace};
use crate::work;
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};

/// One round of the mean m and the covariance C of `u = theta - theta*`, with `x = (m, 1)` (d + 1):
///
/// ```text
/// x <- [[M, shift], [0, 1]] x,    C <- covariance C + source (x x^T)
/// ```
pub(super) struct Recursion<'a> {
    /// M, d x d.
    pub mean: Mat<f64>,
    /// d numbers.
    pub shift: Vec<f64>,
    /// The map of packed d x d matrices.
    pub covariance: &'a Mat<f64>,
    /// From packed matrices of d + 1 rows to packed ones of d rows.
    pub source: &'a Mat<f64>,
    /// theta*, d numbers.
    pub root: &'a [f64],
    /// The mean round that gives the limit's bias; `None` where the bias is 0.
    pub bias: Option<&'a FedLsaMean>,
}

/// A method whose second moments follow a [`Recursion`].
pub(super) trait Recursive {
    fn recursion(&self) -> Recursion<'_>;
}

impl<T: Recursive> ExactMse for T {
    fn radius(&self) -> Result<f64> {
        spectral_radius(self.recursion().covariance)
    }

    fn floor(&self) -> Result<MeanSquare> {
        self.recursion().floor()
    }

    fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        let of = self.recursion();
        let u_0: Vec<f64> = theta_0.iter().zip(of.root).map(|(x, r)| x - r).collect();
        of.curve(&u_0, rounds)
    }

    fn evolution(self: Box<Self>, theta_0: &[f64]) -> Result<Evolution> {
        let of = self.recursion();
        Ok(of.evolution(&offset(theta_0, of.root)?))
    }
}

/// The packed `(m, 1) (m, 1)^T`.
fn lifted(m: &[f64]) -> Vec<f64> {
    let x: Vec<f64> = m.iter().copied().chain([1.0]).collect();
    pack(x.len(), |i, j| x[i] * x[j])
}

impl Recursion<'_> {
    /// The mean and the second moment of u at each of `rounds` (ascending), from the fixed `u_0` (d).
    fn curve(&self, u_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        let (d, nc) = (u_0.len(), packed_len(u_0.len()));
        let (map, start) = self.lifted(u_0);
        let mut curve = Vec::with_capacity(rounds.len());
        at_rounds(&map, start, rounds, |state| {
            let bias = (0..d).map(|i| state[nc + packed_index(i, d)]).collect();
            curve.push(MeanSquare { bias, noise: packed_trace(d, state) });
        })?;
        Ok(curve)
    }

    /// The curve as a map of a state.
    fn evolution(&self, u_0: &[f64]) -> Evolution {
        let (d, nc) = (u_0.len(), packed_len(u_0.len()));
        let (map, start) = self.lifted(u_0);
        let diagonal = (0..d).map(|i| packed_index(i, i));
        Evolution::of_moments(Box::new(map), start, diagonal.clone().chain(diagonal.map(|i| nc + i)).collect())
    }

    /// The map of `(C, x x^T)`, both packed, and its start.
    fn lifted(&self, u_0: &[f64]) -> (Mat<f64>, Vec<f64>) {
        let d = u_0.len();
        let (nc, nm) = (packed_len(d), packed_len(d + 1));
        let round = affine(&self.mean, &self.shift);
        let mut map = Mat::<f64>::zeros(nc + nm, nc + nm);
        map.get_mut(..nc, ..nc).copy_from(self.covariance);
        map.get_mut(..nc, nc..).copy_from(self.source);
        map.get_mut(nc.., nc..).copy_from(congruence(&round));
        let mut start = vec![0.0; nc];
        start.extend(lifted(u_0));
        (map, start)
    }

    /// The limit of the curve, from one linear solve.
    fn floor(&self) -> Result<MeanSquare> {
        let radius = spectral_radius(self.covariance)?;
        if radius >= 1.0 {
            return Err(unstable(radius));
        }
        let bias = self.bias.map_or_else(|| Ok(vec![0.0; self.root.len()]), FedLsaMean::bias)?;
        let (d, n) = (bias.len(), packed_len(bias.len()));
        let source = linalg::mat_vec(self.source, &lifted(&bias));
        let covariance = {
            let equation = Mat::<f64>::identity(n, n) - self.covariance;
            work::dense((n as f64).powi(3) / 3.0, move || linalg::solve(&equation, &source))??
        };
        Ok(MeanSquare::floor(bias, packed_trace(d, &covariance)))
    }
}
