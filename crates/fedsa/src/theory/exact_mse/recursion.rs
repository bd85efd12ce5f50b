//! The recursion that the exact mean-square errors of methods without control variates share.

use super::{MeanSquare, unstable};
use crate::error::Result;
use crate::linalg::{self, Mat};
use crate::theory::map::{at_rounds, first_round, spectral_radius};
use crate::theory::symmetric::{congruence, pack, packed_index, packed_len, packed_trace};

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
}

/// The packed `(m, 1) (m, 1)^T`.
fn lifted(m: &[f64]) -> Vec<f64> {
    let x: Vec<f64> = m.iter().copied().chain([1.0]).collect();
    pack(x.len(), |i, j| x[i] * x[j])
}

impl Recursion<'_> {
    /// The mean and the second moment of u at each of `rounds` (ascending), from the fixed `u_0` (d).
    ///
    /// # Errors
    /// When the rounds are not in ascending order.
    pub fn curve(&self, u_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        let (d, nc) = (u_0.len(), packed_len(u_0.len()));
        let mut curve = Vec::with_capacity(rounds.len());
        at_rounds(&self.map(), self.start(u_0), rounds, |state| {
            let bias = (0..d).map(|i| state[nc + packed_index(i, d)]).collect();
            curve.push(MeanSquare { bias, noise: packed_trace(d, state) });
        })?;
        Ok(curve)
    }

    /// The first round up to `most` with a mean-square error of at most `target`, as [`first_round`].
    pub fn rounds_to(&self, u_0: &[f64], target: f64, most: u64) -> Option<u64> {
        let (d, nc) = (u_0.len(), packed_len(u_0.len()));
        first_round(&self.map(), self.start(u_0), most, |state| {
            packed_trace(d, state) + (0..d).map(|i| state[nc + packed_index(i, d)].powi(2)).sum::<f64>() <= target
        })
    }

    /// `(C, x x^T)` at the start, both packed.
    fn start(&self, u_0: &[f64]) -> Vec<f64> {
        let mut start = vec![0.0; packed_len(u_0.len())];
        start.extend(lifted(u_0));
        start
    }

    /// A round on `(C, x x^T)`.
    fn map(&self) -> Mat<f64> {
        let d = self.shift.len();
        let (nc, nm) = (packed_len(d), packed_len(d + 1));
        let mut round = Mat::<f64>::identity(d + 1, d + 1);
        round.get_mut(..d, ..d).copy_from(&self.mean);
        self.shift.iter().enumerate().for_each(|(i, shift)| round[(i, d)] = *shift);
        let mut map = Mat::<f64>::zeros(nc + nm, nc + nm);
        map.get_mut(..nc, ..nc).copy_from(self.covariance);
        map.get_mut(..nc, nc..).copy_from(self.source);
        map.get_mut(nc.., nc..).copy_from(congruence(&round));
        map
    }

    /// The limit of the curve, whose mean is `bias` (d), from one linear solve.
    ///
    /// # Errors
    /// When the mean-square error diverges, and as `bias`, which is asked for only where it does not.
    pub fn floor(&self, bias: impl FnOnce() -> Result<Vec<f64>>) -> Result<MeanSquare> {
        let radius = spectral_radius(self.covariance)?;
        if radius >= 1.0 {
            return Err(unstable(radius));
        }
        let bias = bias()?;
        let (d, n) = (bias.len(), packed_len(bias.len()));
        let source = linalg::mat_vec(self.source, &lifted(&bias));
        let covariance = linalg::solve(&(Mat::<f64>::identity(n, n) - self.covariance), &source)?;
        Ok(MeanSquare::floor(bias, packed_trace(d, &covariance)))
    }
}
