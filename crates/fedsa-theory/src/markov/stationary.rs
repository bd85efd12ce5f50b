//! Floors, radii and curves of mean and second-moment maps that are split into cells.

use faer::Side;

use super::MarkovFloor;
use crate::fixed_point::fixed_point;
use crate::map::{DENSE, LinearMap, at_rounds, spectral_radius};
use crate::symmetric::{packed_index, packed_len};
use fedsa::error::{Error, Result};
use fedsa::linalg::Mat;

/// A round of the moments of `(y, 1)` split into cells. y has n numbers; the first d are `theta - theta*`.
///
/// Both maps are linear and keep the cells' constants, whose stationary value is known. The constants are an eigenvector of eigenvalue
/// 1, so they are fixed, and the solve is for the rest.
pub(super) trait CellMap: Sync {
    /// The dimension d of theta.
    fn dim(&self) -> usize;
    /// n.
    fn lasting(&self) -> usize;
    /// The stationary probability of each cell.
    fn law(&self) -> &[f64];
    /// One round of `E[(y, 1) 1{cell}]`, n + 1 numbers a cell.
    fn mean(&self, x: &[f64], out: &mut [f64]);
    /// One round of the packed `E[(y, 1) (y, 1)^T 1{cell}]`, `(n+1)(n+2)/2` numbers a cell.
    fn second(&self, x: &[f64], out: &mut [f64]);
    /// The approximate multiplications of a round of the second moments, one per nanosecond.
    fn second_work(&self) -> f64;
}

/// The map of means without constants.
struct Means<'a>(&'a dyn CellMap);

impl LinearMap for Means<'_> {
    fn dim(&self) -> usize {
        self.0.law().len() * self.0.lasting()
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        let n = self.0.lasting();
        self.0.on(x, out, n, n + 1, |x, out| self.0.mean(x, out));
    }

    fn work(&self) -> f64 {
        // Vectors instead of matrices.
        2.0 * self.0.second_work() / (self.0.lasting() + 1) as f64
    }
}

/// The map of second moments without means and constants.
struct Seconds<'a>(&'a dyn CellMap);

impl LinearMap for Seconds<'_> {
    fn dim(&self) -> usize {
        self.0.law().len() * packed_len(self.0.lasting())
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        let n = self.0.lasting();
        self.0.on(x, out, packed_len(n), packed_len(n + 1), |x, out| self.0.second(x, out));
    }

    fn work(&self) -> f64 {
        self.0.second_work()
    }
}

/// The map of second moments with means and constants.
struct All<'a>(&'a dyn CellMap);

impl LinearMap for All<'_> {
    fn dim(&self) -> usize {
        self.0.law().len() * packed_len(self.0.lasting() + 1)
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        self.0.second(x, out);
    }

    fn work(&self) -> f64 {
        self.0.second_work()
    }
}

impl dyn CellMap + '_ {
    /// Applies a map of `long` numbers per cell to the first `short` of them; the others are 0.
    fn on(&self, x: &[f64], out: &mut [f64], short: usize, long: usize, map: impl Fn(&[f64], &mut [f64])) {
        let full = extended(x, short, long);
        let mut image = vec![0.0; full.len()];
        map(&full, &mut image);
        out.copy_from_slice(&shortened(&image, short, long));
    }

    /// The spectral radius of the means.
    #[cfg(test)]
    pub(super) fn mean_radius(&self) -> Result<f64> {
        spectral_radius(&Means(self))
    }

    /// The spectral radius of the second moments.
    pub(super) fn second_radius(&self) -> Result<f64> {
        spectral_radius(&Seconds(self))
    }

    /// The stationary second moment of `(y, 1)` in every cell, packed.
    pub(super) fn stationary(&self) -> Result<Vec<f64>> {
        let (n, cells) = (self.lasting(), self.law().len());
        let (short, long) = (packed_len(n), packed_len(n + 1));
        let seconds = Seconds(self);
        if seconds.dim() <= DENSE {
            let radius = self.second_radius()?;
            if radius >= 1.0 {
                return Err(unstable(Some(radius)));
            }
        } else if !self.converges()? {
            return Err(unstable(self.second_radius().ok()));
        }
        // The means for the cells' constants.
        let mut constants = vec![0.0; cells * (n + 1)];
        constants.chunks_exact_mut(n + 1).zip(self.law()).for_each(|(cell, q)| cell[n] = *q);
        let mut image = vec![0.0; constants.len()];
        self.mean(&constants, &mut image);
        let means = fixed_point(&Means(self), &shortened(&image, n, n + 1))?;
        // The second moments for these means and constants.
        let mut given = vec![0.0; cells * long];
        for ((cell, mean), q) in given.chunks_exact_mut(long).zip(means.chunks_exact(n)).zip(self.law()) {
            cell[short..short + n].copy_from_slice(mean);
            cell[short + n] = *q;
        }
        let mut image = vec![0.0; given.len()];
        self.second(&given, &mut image);
        let solved = fixed_point(&seconds, &shortened(&image, short, long))?;
        given.chunks_exact_mut(long).zip(solved.chunks_exact(short)).for_each(|(cell, x)| cell[..short].copy_from_slice(x));
        Ok(given)
    }

    /// Whether second moments converge, for maps too large for eigenvalues. The map takes covariances to covariances, so its radius is
    /// below 1 exactly where `X = map(X) + I` has a solution that is positive definite in every cell.
    fn converges(&self) -> Result<bool> {
        let (n, seconds) = (self.lasting(), Seconds(self));
        let mut identity = vec![0.0; packed_len(n)];
        (0..n).for_each(|i| identity[packed_index(i, i)] = 1.0);
        // Proportional to the law: otherwise rarely visited cells would set the scale.
        let source: Vec<f64> = self.law().iter().flat_map(|q| identity.iter().map(move |x| q * x)).collect();
        let x = fixed_point(&seconds, &source)?;
        Ok(x.chunks_exact(packed_len(n)).zip(self.law()).all(|(cell, q)| {
            // In cells of negligible probability, rounding errors of the solution exceed the values.
            *q < 1e-6 || Mat::from_fn(n, n, |i, j| cell[packed_index(i, j)]).llt(Side::Lower).is_ok()
        }))
    }

    pub(super) fn floor(&self) -> Result<MarkovFloor> {
        Ok(self.summed(&self.stationary()?))
    }

    /// The errors after each of `rounds` (ascending) from second moments of `(y, 1)`.
    pub(super) fn curve(&self, start: Vec<f64>, rounds: &[u64]) -> Result<Vec<MarkovFloor>> {
        let mut curve = Vec::with_capacity(rounds.len());
        at_rounds(&All(self), start, rounds, |x| curve.push(self.summed(x)))?;
        Ok(curve)
    }

    /// Second moments of `(y, 1)` for a fixed y and the law q of the cells.
    pub(super) fn start(&self, y: &[f64], q: &[f64]) -> Vec<f64> {
        let n = self.lasting();
        let at = |i: usize| if i == n { 1.0 } else { y[i] };
        let entries: Vec<f64> = (0..=n).flat_map(|j| (0..=j).map(move |i| (i, j))).map(|(i, j)| at(i) * at(j)).collect();
        q.iter().flat_map(|q| entries.iter().map(move |x| q * x)).collect()
    }

    /// The bias and the mean-square error of theta from second moments of `(y, 1)`.
    fn summed(&self, x: &[f64]) -> MarkovFloor {
        let (d, n) = (self.dim(), self.lasting());
        let sum = |i: usize, j: usize| -> f64 { x.chunks_exact(packed_len(n + 1)).map(|cell| cell[packed_index(i, j)]).sum() };
        MarkovFloor { bias: (0..d).map(|i| sum(i, n)).collect(), mse: (0..d).map(|i| sum(i, i)).sum() }
    }
}

/// `short` numbers per cell, followed by zeros up to `long`.
fn extended(x: &[f64], short: usize, long: usize) -> Vec<f64> {
    let mut out = vec![0.0; x.len() / short * long];
    out.chunks_exact_mut(long).zip(x.chunks_exact(short)).for_each(|(out, x)| out[..short].copy_from_slice(x));
    out
}

/// The first `short` of `long` numbers per cell.
fn shortened(x: &[f64], short: usize, long: usize) -> Vec<f64> {
    x.chunks_exact(long).flat_map(|cell| cell[..short].iter().copied()).collect()
}

/// The error for a missing floor.
pub(super) fn unstable(radius: Option<f64>) -> Error {
    let growth =
        radius.filter(|r| r.is_finite()).map_or(String::new(), |r| format!(": after many rounds each one multiplies it by {r:.6}"));
    let help = "a smaller step size, fewer local steps or a larger batch";
    Error::not_known("step_size", format!("the mean-square error under Markov samples diverges{growth}"), help)
}
