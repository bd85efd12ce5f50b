//! A basis of a Krylov space with its images, for both kinds of iteration.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par, Side};

use crate::linalg::{add_scaled, dot};

/// An orthonormal basis V of a space of R^n, with W = A V and T = V^T W of a symmetric operator A.
pub(super) struct Basis {
    /// Room for vectors; the first `len` are in use.
    v: Mat<f64>,
    w: Mat<f64>,
    t: Mat<f64>,
    /// The number of vectors.
    pub len: usize,
    /// The number of columns that were added last.
    last: usize,
}

/// Ritz pairs in decreasing order: values, and coefficients in a basis.
pub(super) struct Ritz {
    pub values: Vec<f64>,
    coefficients: Mat<f64>,
}

impl Basis {
    /// An empty basis of vectors of n numbers, with room for `room`.
    pub fn new(n: usize, room: usize) -> Self {
        Self { v: Mat::zeros(n, room), w: Mat::zeros(n, room), t: Mat::zeros(room, room), len: 0, last: 0 }
    }

    /// Makes room for more vectors, and keeps the present ones.
    pub fn grow(&mut self, room: usize) {
        let n = self.v.nrows();
        self.v.resize_with(n, room, |_, _| 0.0);
        self.w.resize_with(n, room, |_, _| 0.0);
        self.t.resize_with(room, room, |_, _| 0.0);
    }

    /// The number of vectors for which there is room.
    pub fn room(&self) -> usize {
        self.v.ncols()
    }

    /// The vectors, one per column.
    pub fn v(&self) -> MatRef<'_, f64> {
        self.v.subcols(0, self.len)
    }

    fn w(&self) -> MatRef<'_, f64> {
        self.w.subcols(0, self.len)
    }

    /// Adds orthonormal columns and their images.
    pub fn add(&mut self, columns: MatRef<'_, f64>, images: &Mat<f64>) {
        let (old, new) = (self.len, columns.ncols());
        self.v.subcols_mut(old, new).copy_from(columns);
        self.w.subcols_mut(old, new).copy_from(images);
        self.len += new;
        let products = self.v().transpose() * images;
        for j in 0..new {
            for i in 0..old {
                (self.t[(i, old + j)], self.t[(old + j, i)]) = (products[(i, j)], products[(i, j)]);
            }
            (0..new).for_each(|i| self.t[(old + i, old + j)] = 0.5 * (products[(old + i, j)] + products[(old + j, i)]));
        }
        self.last = new;
    }

    /// Rayleigh-Ritz on the span of V. `None` if T is not finite.
    pub fn ritz(&self) -> Option<Ritz> {
        let k = self.len;
        let t = self.t.submatrix(0, 0, k, k);
        let is_finite = (0..k).all(|j| t.col(j).iter().all(|x| x.is_finite()));
        let found = is_finite.then(|| t.self_adjoint_eigen(Side::Lower).ok())??;
        let values = (0..k).map(|j| found.S()[k - 1 - j]).collect();
        Some(Ritz { values, coefficients: found.U().reverse_cols().to_owned() })
    }

    /// The first m Ritz pairs.
    pub fn first(&self, mut ritz: Ritz, m: usize) -> (Vec<f64>, Mat<f64>) {
        let m = m.min(self.len);
        ritz.values.truncate(m);
        (ritz.values, self.v() * ritz.coefficients.subcols(0, m))
    }

    /// `A v - theta v` of the Ritz pairs `from..to`.
    pub fn residuals(&self, ritz: &Ritz, from: usize, to: usize) -> Mat<f64> {
        let y = ritz.coefficients.subcols(from, to - from);
        let scaled = Mat::from_fn(self.len, to - from, |i, j| y[(i, j)] * ritz.values[from + j]);
        self.w() * y - self.v() * scaled
    }

    /// At most `block` residuals of the Ritz pairs `from..to` that are longer than `bound`; `from` advances to the first of them.
    pub fn unconverged(&self, ritz: &Ritz, from: &mut usize, to: usize, bound: f64, block: usize) -> Mat<f64> {
        let (mut found, mut at) = (Mat::zeros(self.v.nrows(), 0), *from);
        while at < to && found.ncols() < block {
            let end = (at + block).min(to);
            let residuals = self.residuals(ritz, at, end);
            let is_long = |j: &usize| length(residuals.col_as_slice(*j)) > bound;
            let long: Vec<usize> = (0..end - at).filter(is_long).take(block - found.ncols()).collect();
            found = beside(&found, &Mat::from_fn(self.v.nrows(), long.len(), |i, j| residuals[(i, long[j])]));
            if found.ncols() == 0 {
                *from = end;
            }
            at = end;
        }
        found
    }

    /// Cuts the basis back to the first `keep` Ritz vectors.
    pub fn restart(&mut self, ritz: &Ritz, keep: usize) {
        let y = ritz.coefficients.subcols(0, keep);
        let v = self.v() * y;
        self.v.subcols_mut(0, keep).copy_from(v);
        let w = self.w() * y;
        self.w.subcols_mut(0, keep).copy_from(w);
        let mut t = self.t.submatrix_mut(0, 0, keep, keep);
        t.fill(0.0);
        (0..keep).for_each(|i| t[(i, i)] = ritz.values[i]);
        (self.len, self.last) = (keep, 0);
    }

    /// The images of the columns that were added last.
    pub fn last_images(&self) -> Mat<f64> {
        self.w.subcols(self.len - self.last, self.last).to_owned()
    }
}

/// The images of columns under an operator that multiplies vectors stored one after the other.
pub(super) fn images(columns: MatRef<'_, f64>, product: &mut dyn FnMut(&[f64], &mut [f64])) -> Mat<f64> {
    let vectors: Vec<f64> = columns.col_iter().flat_map(|column| column.iter().copied()).collect();
    let mut images = vec![0.0; vectors.len()];
    product(&vectors, &mut images);
    MatRef::from_column_major_slice(&images, columns.nrows(), columns.ncols()).to_owned()
}

/// `||x||`.
fn length(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

/// `[a b]`.
pub(super) fn beside(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), a.ncols() + b.ncols());
    out.subcols_mut(0, a.ncols()).copy_from(a);
    out.subcols_mut(a.ncols(), b.ncols()).copy_from(b);
    out
}

/// The smallest remaining length of a column that counts as a new direction.
const NOTHING_LEFT: f64 = 1e-12;

/// An orthonormal basis of the directions that the columns of x add to the span of some matrices' orthonormal columns.
pub(super) fn orthonormal(spans: &[MatRef<'_, f64>], mut x: Mat<f64>) -> Mat<f64> {
    let n = x.nrows();
    let dimension: usize = spans.iter().map(|v| v.ncols()).sum();
    let mut left = vec![1.0; x.ncols()];
    // Twice is enough (Kahan, Parlett), unless almost nothing is left.
    for pass in 0..3 {
        for (j, left) in left.iter_mut().enumerate() {
            let column = x.col_as_slice_mut(j);
            let now = length(column);
            let scale = if now > 0.0 { 1.0 / now } else { 0.0 };
            *left *= if pass > 0 { now } else { f64::from(now > 0.0) };
            column.iter_mut().for_each(|x| *x *= scale);
        }
        for v in spans.iter().filter(|v| v.ncols() > 0) {
            let inside = v.transpose() * &x;
            matmul(&mut x, Accum::Add, v, &inside, -1.0, Par::Seq);
        }
    }
    // Columns that are kept move to the front.
    let mut kept = 0;
    for j in (0..x.ncols()).filter(|j| left[*j] > NOTHING_LEFT) {
        let (mut basis, mut rest) = x.as_mut().split_at_col_mut(j);
        let column = rest.as_mut().col_mut(0).try_as_col_major_mut().expect("columns in one piece").as_slice_mut();
        let mut left = 1.0;
        for _ in 0..3 {
            for q in 0..kept {
                let q = basis.as_ref().col(q).try_as_col_major().expect("columns in one piece").as_slice();
                let share = dot(q, column);
                add_scaled(column, -share, q);
            }
            let now = length(column);
            left *= now;
            if now == 0.0 {
                break;
            }
            column.iter_mut().for_each(|x| *x /= now);
        }
        if left > NOTHING_LEFT && kept + dimension < n {
            if kept < j {
                basis.as_mut().col_mut(kept).try_as_col_major_mut().expect("columns in one piece").as_slice_mut().copy_from_slice(column);
            }
            kept += 1;
        }
    }
    x.truncate(n, kept);
    x
}
