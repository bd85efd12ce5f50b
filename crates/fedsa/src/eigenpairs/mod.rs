//! Eigenpairs of symmetric matrices in decreasing order: all, or the leading ones by an iteration. [`restarted`] finds leading pairs of
//! operators without a matrix.
//!
//! Results depend only on the matrix and on the requested numbers of pairs, bit for bit. Eigenvectors have length 1; their component of
//! largest magnitude, the first of several, is positive.

mod basis;
mod krylov;
pub mod leading;
pub mod restarted;
mod tridiagonal;

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};

use crate::linalg::{add_scaled, factorise, with_square};
use basis::images;

/// Leading eigenpairs of a symmetric n x n matrix H.
#[derive(Debug, Clone, PartialEq)]
pub struct Eigenpairs {
    /// The eigenvalues, decreasing. NaN if H is not finite.
    pub values: Vec<f64>,
    /// The eigenvectors, one per column: n x m, or fewer columns if some values have no vector.
    pub vectors: Mat<f64>,
}

/// The iteration is used for up to n / this pairs. At n = 300 all pairs take 7 ms; with decaying eigenvalues, five pairs by the iteration
/// take 1.3 ms and ten 2.3 ms, including 0.3 ms for a factorisation.
const FEW: usize = 20;
/// The smallest n for which an iteration is used.
const SMALLEST: usize = 256;

impl Eigenpairs {
    /// No pairs of an operator on R^n.
    pub fn none(n: usize) -> Self {
        Self { values: Vec::new(), vectors: Mat::zeros(n, 0) }
    }

    /// The first m eigenpairs, or all if that is cheaper or there are no more.
    ///
    /// A block Krylov iteration computes few pairs of many. A Cholesky factorisation then proves that it missed no larger eigenvalue, as is
    /// possible if one has many eigenvectors. If it did, or takes too long, all pairs are computed.
    pub fn leading(h: &Mat<f64>, m: usize) -> Self {
        let n = h.nrows();
        let m = m.min(n);
        if !is_finite(h) {
            return Self { values: vec![f64::NAN; m], vectors: Mat::full(n, m, f64::NAN) };
        }
        let few = if has_few(n, m) { by_iteration(h, m) } else { None };
        few.unwrap_or_else(|| all(h))
    }

    /// The first m - 1 eigenpairs of an operator on R^n, and eigenvalue m without its vector, from products. `None` if forming the matrix
    /// would be faster: unless m is small, and the iteration of [`Eigenpairs::leading`] converges. `product` multiplies vectors stored one
    /// after the other.
    ///
    /// No proof is needed: a random block meets as many vectors of an eigenvalue as it has columns, and no more pairs are wanted.
    pub fn of_products(n: usize, m: usize, product: &mut dyn FnMut(&[f64], &mut [f64])) -> Option<Self> {
        if m > krylov::BLOCK || !has_few(n, m) {
            return None;
        }
        let (values, mut vectors) = krylov::leading(n, &mut |x| images(x.as_ref(), product), m, m - 1, n / 3)?;
        sign(&mut vectors);
        Some(Self { values, vectors })
    }

    /// All n pairs. These leading pairs keep their bits, even if a multiple eigenvalue is on both sides of their end. The others are the
    /// eigenpairs of H on the orthogonal space, with no value above the last leading one.
    pub fn completed(self, h: &Mat<f64>) -> Self {
        let (n, m) = (h.nrows(), self.values.len());
        if m == 0 || m == n || !is_finite(h) {
            return if m == n { self } else { Self::leading(h, n) };
        }
        let v = &self.vectors;
        // P H P with P = I - V V^T, minus a shift in the span of V to below all other eigenvalues.
        let hv = h * v;
        let inner = v.transpose() * &hv;
        let norm = h.norm_l2();
        let below = if norm > 0.0 { 2.0 * norm } else { 1.0 };
        let mut inside = hv * v.transpose();
        let corner = v * (inner - Mat::<f64>::identity(m, m) * faer::Scale(below)) * v.transpose();
        inside = h - &inside - inside.transpose() + corner;
        let rest = all(&inside).first(n - m);
        let mut vectors = Mat::zeros(n, n);
        vectors.subcols_mut(0, m).copy_from(v);
        vectors.subcols_mut(m, n - m).copy_from(&rest.vectors);
        // A multiple eigenvalue on both sides of the end is found twice, with different rounding errors. NaN stays.
        let last = self.values[m - 1];
        let rest = rest.values.into_iter().map(|l| if l > last { last } else { l });
        let values = self.values.into_iter().chain(rest).collect();
        Self { values, vectors }
    }

    /// The first m of these pairs.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn first(mut self, m: usize) -> Self {
        self.values.truncate(m);
        self.vectors = self.vectors.subcols(0, m).to_owned();
        self
    }

    /// Eigenvector j, n numbers.
    pub fn vector(&self, j: usize) -> &[f64] {
        self.vectors.col_as_slice(j)
    }
}

/// Whether an iteration is used for m of n pairs.
fn has_few(n: usize, m: usize) -> bool {
    m > 0 && n >= SMALLEST && m * FEW <= n
}

/// The smallest eigenvalue of a symmetric matrix, by an iteration with its inverse if it is positive definite; NaN if it is not
/// finite.
pub fn smallest(h: &Mat<f64>) -> f64 {
    let n = h.nrows();
    if !is_finite(h) {
        return f64::NAN;
    }
    if n >= SMALLEST
        && let Ok(factor) = h.llt(Side::Lower)
        && let Some((values, _)) = krylov::leading(n, &mut |x| factor.solve(x), 1, 1, n / 4)
    {
        let least = 1.0 / values[0];
        // Proves that there is no smaller eigenvalue.
        let shift = least * (1.0 - 1e-6) - f64::EPSILON * h.norm_l2();
        let is_least = with_square(n, |below| {
            below.copy_from(h);
            (0..n).for_each(|i| below[(i, i)] -= shift);
            factorise(below.as_mut())
        });
        if least > 0.0 && is_least {
            return least;
        }
    }
    h.self_adjoint_eigenvalues(Side::Lower).map_or(f64::NAN, |values| values[0])
}

fn is_finite(h: &Mat<f64>) -> bool {
    (0..h.ncols()).all(|j| h.col_as_slice(j).iter().all(|x| x.is_finite()))
}

/// All eigenpairs.
fn all(h: &Mat<f64>) -> Eigenpairs {
    let n = h.nrows();
    let Ok(found) = h.self_adjoint_eigen(Side::Lower) else {
        return Eigenpairs { values: vec![f64::NAN; n], vectors: Mat::full(n, n, f64::NAN) };
    };
    // faer's eigenvalues increase.
    let vectors = Mat::from_fn(n, n, |i, j| found.U()[(i, n - 1 - j)]);
    let mut pairs = Eigenpairs { values: (0..n).rev().map(|j| found.S()[j]).collect(), vectors };
    sign(&mut pairs.vectors);
    pairs
}

/// The first m pairs by an iteration, if it converges and misses none.
fn by_iteration(h: &Mat<f64>, m: usize) -> Option<Eigenpairs> {
    let n = h.nrows();
    let (values, mut vectors) = krylov::leading(n, &mut |x| h * x, m, m, n / 3)?;
    // sigma I - H + sum_j l_j v_j v_j^T is positive definite for sigma a little above l_m only if no larger pair was missed.
    let scale = values[0].abs().max(values[m - 1].abs());
    let sigma = values[m - 1] + krylov::TOLERANCE.sqrt() * scale;
    let none_missed = with_square(n, |rest| {
        for k in 0..n {
            let (column, h) = (&mut rest.col_as_slice_mut(k)[k..], &h.col_as_slice(k)[k..]);
            column.iter_mut().zip(h).for_each(|(x, h)| *x = -h);
            column[0] += sigma;
            (0..m).for_each(|j| add_scaled(column, values[j] * vectors[(k, j)], &vectors.col_as_slice(j)[k..]));
        }
        factorise(rest.as_mut())
    });
    none_missed.then(|| {
        sign(&mut vectors);
        Eigenpairs { values, vectors }
    })
}

/// Makes the component of largest magnitude of each column positive.
fn sign(vectors: &mut Mat<f64>) {
    (0..vectors.ncols()).for_each(|j| sign_of(vectors.col_as_slice_mut(j)));
}

/// The same for one vector.
fn sign_of(v: &mut [f64]) {
    let largest = v.iter().fold(0.0f64, |most, x| if x.abs() > most.abs() { *x } else { most });
    if largest < 0.0 {
        v.iter_mut().for_each(|x| *x = -*x);
    }
}

#[cfg(test)]
mod tests;
