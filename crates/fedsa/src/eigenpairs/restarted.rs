//! Leading eigenpairs of a symmetric operator that is given by its products alone, from a bounded number of vectors.
//!
//! Block Lanczos with thick restarts, as a Davidson iteration without preconditioner: the basis V grows by the residuals of the leading
//! Ritz pairs that have not converged, a block at a time, and is cut back to the leading Ritz vectors when it is full. The images W = A V
//! are kept too, so that an iteration may start from any vectors, such as the eigenvectors of an earlier operator, and residuals are what
//! they are. Pairs that are already known are locked: the iteration takes place in the space that is orthogonal to them.
//!
//! Nobody can prove from products alone that no eigenvalue was missed. Before pairs are accepted a random block, orthogonal to everything
//! before it, is followed for some steps: it finds further eigenvectors of an eigenvalue that has more of them than a block has
//! columns, and eigenvectors that a start near an earlier operator's lacks.

use faer::Mat;

use super::basis::{Basis, beside, images, orthonormal};
use super::{Eigenpairs, is_finite, sign};
use crate::random::Stream;

/// The number of vectors by which the basis grows.
const BLOCK: usize = 4;
/// How many vectors the basis has room for beyond the wanted ones, or half as many as are wanted if that is more.
const EXTRA: usize = 16;
/// How many blocks are added without finding anything before pairs are accepted; the first one is random.
const CHECKS: usize = 3;
/// Products for each wanted pair and each vector of a block, after which pairs are taken as they are; and for the smallest eigenvalue, which
/// is not set off from those next to it where eigenvalues decay.
const MAX_PRODUCTS: usize = 50;
const MAX_FOR_SMALLEST: usize = 400;

/// Writes the products of the operator and some vectors of n numbers, which follow each other, one after the other into the second argument.
pub type Product<'a> = dyn FnMut(&[f64], &mut [f64]) + 'a;

/// A search for leading eigenpairs of a symmetric operator on R^n.
pub struct Search<'a> {
    /// n.
    pub n: usize,
    /// The operator.
    pub product: &'a mut Product<'a>,
    /// A pair has converged when `||A v - theta v||` is at most this share of the largest eigenvalue in magnitude.
    pub tolerance: f64,
    /// What draws the start, and the blocks that look for what was missed.
    pub draws: Stream,
    /// Products for each wanted pair and each vector of a block, after which pairs are taken as they are.
    most_products: usize,
}

impl<'a> Search<'a> {
    /// Of an operator, with a tolerance and random draws.
    pub fn new(n: usize, product: &'a mut Product<'a>, tolerance: f64, draws: Stream) -> Self {
        Self { n, product, tolerance, draws, most_products: MAX_PRODUCTS }
    }

    /// The known pairs, with their bits, and `more` pairs after them, or as many as there are. The iteration starts from the columns of
    /// `near`, n rows, which may be none. Pairs that have not converged after about 50 products for each pair are taken as they
    /// are; NaN if products are not finite.
    ///
    /// No value exceeds the last known one: where one eigenvalue is on both sides, it is found twice, with different errors.
    pub fn extend(mut self, known: Eigenpairs, more: usize, near: &Mat<f64>) -> Eigenpairs {
        let q = known.values.len();
        let more = more.min(self.n - q);
        if more == 0 {
            return known;
        }
        let (mut values, mut vectors) =
            self.leading(&known, more, near).unwrap_or_else(|| (vec![f64::NAN; more], Mat::full(self.n, more, f64::NAN)));
        if let Some(last) = known.values.last() {
            values.iter_mut().filter(|l| **l > *last).for_each(|l| *l = *last);
        }
        sign(&mut vectors);
        let vectors = if q == 0 { vectors } else { beside(&known.vectors, &vectors) };
        Eigenpairs { values: known.values.into_iter().chain(values).collect(), vectors }
    }

    /// The smallest eigenvalue, by the same iteration with the operator's negative: to the tolerance, or, where that has not been reached after
    /// about 2000 products, a value above it. NaN if products are not finite.
    pub fn smallest(self) -> f64 {
        let Search { n, product, tolerance, draws, .. } = self;
        let mut minus = |x: &[f64], out: &mut [f64]| {
            product(x, out);
            out.iter_mut().for_each(|out| *out = -*out);
        };
        let search = Search { n, product: &mut minus, tolerance, draws, most_products: MAX_FOR_SMALLEST };
        -search.extend(Eigenpairs::none(n), 1, &Mat::zeros(n, 0)).values[0]
    }

    /// The m largest eigenvalues on the space orthogonal to the known vectors, with their eigenvectors; `None` if products are not finite.
    fn leading(&mut self, known: &Eigenpairs, m: usize, near: &Mat<f64>) -> Option<(Vec<f64>, Mat<f64>)> {
        let dimension = self.n - known.values.len();
        let room = (m + EXTRA.max(m / 2)).min(dimension);
        let limit = self.most_products * (m + BLOCK);
        let of_known = known.values.first().map_or(0.0, |l| l.abs());
        let mut basis = Basis::new(self.n, room);
        let start = near.subcols(0, near.ncols().min(room.saturating_sub(BLOCK))).to_owned();
        let (mut products, mut checks, mut converged) = (self.grow(&mut basis, known, start)?, 0, 0);
        if products == 0 {
            let drawn = self.block();
            products = self.grow(&mut basis, known, drawn)?;
        }
        loop {
            let (ritz, k) = (basis.ritz()?, basis.len);
            if k == dimension || products >= limit {
                return Some(basis.first(ritz, m));
            }
            let bound = self.tolerance * ritz.values[0].abs().max(ritz.values[k - 1].abs()).max(of_known);
            let passed = converged;
            let mut next = basis.unconverged(&ritz, &mut converged, m.min(k), bound, BLOCK);
            if next.ncols() == 0 && passed > 0 {
                // Those that had converged before are looked at again.
                converged = 0;
                next = basis.unconverged(&ritz, &mut converged, m.min(k), bound, BLOCK);
            }
            if next.ncols() == 0 && k >= m {
                if checks == CHECKS {
                    return Some(basis.first(ritz, m));
                }
                // A random block, then its images.
                next = if checks == 0 { self.block() } else { basis.last_images() };
                checks += 1;
            } else {
                checks = 0;
                let to = (m + BLOCK - next.ncols()).min(k);
                if m < to {
                    next = beside(&next, &basis.residuals(&ritz, m, to));
                }
            }
            if k + BLOCK > room && room < dimension {
                basis.restart(&ritz, (m + BLOCK).min(k));
            }
            let mut added = self.grow(&mut basis, known, next)?;
            if added == 0 {
                // The span is invariant: vectors from elsewhere.
                let drawn = self.block();
                added = self.grow(&mut basis, known, drawn)?;
            }
            if added == 0 {
                return Some(basis.first(basis.ritz()?, m));
            }
            products += added;
        }
    }

    /// A random block.
    fn block(&mut self) -> Mat<f64> {
        Mat::from_fn(self.n, BLOCK, |_, _| self.draws.normal())
    }

    /// Adds to a basis what columns add to its span and to that of the known vectors, as far as there is room. Returns how many vectors
    /// were added; `None` if a product is not finite.
    fn grow(&mut self, basis: &mut Basis, known: &Eigenpairs, columns: Mat<f64>) -> Option<usize> {
        let spans = [known.vectors.as_ref(), basis.v()];
        // Once more: columns that nearly depend on each other lose their orthogonality to the spans as they are scaled.
        let columns = orthonormal(&spans, orthonormal(&spans, columns));
        let columns = columns.subcols(0, columns.ncols().min(basis.room() - basis.len));
        let mut images = images(columns, self.product);
        if !is_finite(&images) {
            return None;
        }
        // What images have in the span of known vectors is the error of these.
        if !known.values.is_empty() {
            images = &images - &known.vectors * (known.vectors.transpose() * &images);
        }
        basis.add(columns, &images);
        Some(columns.ncols())
    }
}
