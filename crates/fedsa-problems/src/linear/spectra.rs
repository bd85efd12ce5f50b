//! Random symmetric matrices with prescribed extreme eigenvalues, and checks of given matrices.

use faer::{Mat, Side};

use fedsa::error::{Error, Result, require};
use fedsa::problem::systems::{System, Systems};
use fedsa::random::{Purpose, Stream, stream};

/// The purposes of streams of [`Purpose::System`], as the round in their keys. Terms of finite sums use two each from [`TERMS`].
pub(crate) const OFFSET: u64 = 0;
pub(crate) const SPREAD: u64 = 1;
pub(crate) const DISAGREEMENT: u64 = 2;
pub(crate) const SCALE: u64 = 3;
pub(crate) const MATRIX: u64 = 4;
pub(crate) const CHAIN: u64 = 5;
pub(crate) const TERMS: u64 = 16;

/// A d x d matrix of N(0, 1) entries.
pub(crate) fn gaussian(d: usize, stream: &mut Stream) -> Mat<f64> {
    Mat::from_fn(d, d, |_, _| stream.normal())
}

/// `(G + G^T) / 2`, symmetric to the bit.
pub(crate) fn symmetric_part(g: &Mat<f64>) -> Mat<f64> {
    Mat::from_fn(g.nrows(), g.nrows(), |i, j| 0.5 * (g[(i, j)] + g[(j, i)]))
}

/// `G^T G / d`, symmetric to the bit.
pub(crate) fn wishart(g: &Mat<f64>) -> Mat<f64> {
    symmetric_part(&(faer::Scale(1.0 / g.nrows() as f64) * (g.transpose() * g)))
}

/// The least and the greatest eigenvalue of a symmetric matrix.
///
/// # Errors
/// When the matrix is not finite or the iteration does not converge.
pub(crate) fn extremes(a: &Mat<f64>) -> Result<(f64, f64)> {
    let bad = || Error::new("", "eigenvalues of a matrix that is not finite", "finite numbers, less large");
    if !a.is_all_finite() {
        return Err(bad());
    }
    let all = a.self_adjoint_eigenvalues(Side::Lower).map_err(|_| bad())?;
    Ok(all.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x))))
}

/// Prescribed extreme eigenvalues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spectrum {
    /// The least eigenvalue.
    pub least: f64,
    /// The greatest, for an affine map of the spectrum; without it, a shift.
    pub greatest: Option<f64>,
}

impl Spectrum {
    /// # Errors
    /// When the least eigenvalue is not positive, or the greatest is smaller.
    pub fn check(self) -> Result<()> {
        require(self.least > 0.0 && self.least <= 1e100, "least_eigenvalue", self.least, "a positive number, at most 1e100")?;
        let Some(greatest) = self.greatest else { return Ok(()) };
        let accepted = format!("from least_eigenvalue = {} to 1e100", self.least);
        require(greatest >= self.least && greatest <= 1e100, "greatest_eigenvalue", greatest, &accepted)
    }

    /// Shifts a symmetric matrix by a multiple of I, or maps it affinely, to these extreme eigenvalues.
    ///
    /// # Errors
    /// As [`extremes`].
    pub fn impose(self, a: &mut Mat<f64>) -> Result<()> {
        let (low, high) = extremes(a)?;
        // A matrix with a single eigenvalue can only be shifted.
        let scale = self.greatest.filter(|_| high > low).map_or(1.0, |greatest| (greatest - self.least) / (high - low));
        if scale != 1.0 {
            *a *= faer::Scale(scale);
        }
        let shift = self.least - scale * low;
        (0..a.nrows()).for_each(|i| a[(i, i)] += shift);
        Ok(())
    }
}

/// Adds `k u_c` to each offset, with `u_c ~ N(0, I)` centred so that `sum_c p_c u_c = 0`.
pub(crate) fn disagree(k: f64, seed: u64, weights: &[f64], offsets: &mut [&mut [f64]]) {
    if k == 0.0 {
        return;
    }
    let d = offsets.first().map_or(0, |b| b.len());
    let draw = |c: usize| -> Vec<f64> {
        let mut s = stream(seed, Purpose::System, DISAGREEMENT, c);
        (0..d).map(|_| s.normal()).collect()
    };
    let mut mean = vec![0.0; d];
    for (c, p) in weights.iter().enumerate() {
        mean.iter_mut().zip(draw(c)).for_each(|(mean, u)| *mean += p * u);
    }
    for (c, b) in offsets.iter_mut().enumerate() {
        b.iter_mut().zip(draw(c)).zip(&mean).for_each(|((b, u), mean)| *b += k * (u - mean));
    }
}

/// `n` numbers `scale N(0, 1)`.
pub(crate) fn normals(n: usize, scale: f64, mut stream: Stream) -> Vec<f64> {
    (0..n).map(|_| scale * stream.normal()).collect()
}

/// Refuses an asymmetric matrix; the error states the largest asymmetry and its position.
///
/// # Errors
/// When the asymmetry exceeds rounding.
pub(crate) fn check_symmetric(key: &str, agent: usize, a: &Mat<f64>) -> Result<()> {
    const ROUNDING: f64 = 1e-14;
    let gap = |i: usize, j: usize| (a[(i, j)] - a[(j, i)]).abs();
    let pairs = (0..a.nrows()).flat_map(|i| (0..i).map(move |j| (j, i)));
    let Some((i, j)) = pairs.max_by(|x, y| gap(x.0, x.1).total_cmp(&gap(y.0, y.1))) else { return Ok(()) };
    if gap(i, j) <= ROUNDING * a.norm_max() {
        return Ok(());
    }
    let (upper, lower) = (a[(i, j)], a[(j, i)]);
    let what = format!(
        "the matrix of agent {agent} is not symmetric: entry [{i}][{j}] is {upper} and entry [{j}][{i}] is {lower}, {} apart",
        gap(i, j)
    );
    Err(Error::new(key, what, "symmetric matrices: the losses theta^T A theta / 2 - b^T theta have no other gradients"))
}

/// Refuses systems whose average matrix is not positive definite; the error states its least eigenvalue.
///
/// # Errors
/// When the least eigenvalue is not positive, to rounding.
pub(crate) fn check_average(key: &str, systems: &Systems) -> Result<()> {
    let System { a, .. } = systems.mean();
    let (least, greatest) = extremes(&a)?;
    if least > 1e-15 * greatest.abs().max(least.abs()) {
        return Ok(());
    }
    let what = format!("the average of the agents' matrices is not positive definite: its least eigenvalue is {least:.6e}");
    Err(Error::new(key, what, "matrices whose average has positive eigenvalues; single agents may have others"))
}
