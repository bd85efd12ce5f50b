//! Leading eigenpairs of a symmetric operator from its products, with a bounded number of vectors.
//!
//! Block Lanczos with thick restarts, as a Davidson iteration without preconditioner. The basis V grows, a block at a time, by the
//! residuals of leading Ritz pairs that have not converged; a full basis is cut back to the leading Ritz vectors. The images W = A V are
//! also kept, so an iteration may start from any vectors, such as eigenvectors of an earlier operator, and residuals are exact. Known pairs
//! are locked: the iteration stays orthogonal to them.
//!
//! Products alone cannot prove that no eigenvalue was missed. Before pairs are accepted, the iteration continues for some steps from a
//! random block orthogonal to the basis. This finds further eigenvectors of an eigenvalue that has more than a block has columns, and
//! eigenvectors that the start lacks.

use faer::Mat;

use super::basis::{Basis, beside, images, orthonormal};
use super::{Eigenpairs, is_finite, sign};
use crate::random::Stream;

/// The number of vectors by which the basis grows.
const BLOCK: usize = 4;
/// The room for vectors beyond the wanted ones; half of the wanted number if that is more.
const EXTRA: usize = 16;
/// The number of blocks, the first one random, that must find nothing before pairs are accepted.
const CHECKS: usize = 3;
/// The largest numbers of products per wanted pair and vector of a block: in general, and for the smallest eigenvalue, which is badly
/// separated if eigenvalues decay.
const MAX_PRODUCTS: usize = 50;
const MAX_FOR_SMALLEST: usize = 400;

/// Writes the operator's products with vectors of n numbers, stored one after the other, into the second argument.
pub type Product<'a> = dyn FnMut(&[f64], &mut [f64]) + 'a;

/// A search for leading eigenpairs of a symmetric operator on R^n.
pub struct Search<'a> {
    /// n.
    pub n: usize,
    /// The operator.
    pub product: &'a mut Product<'a>,
    /// A pair has converged when `||A v - theta v||` is at most this share of the largest eigenvalue in magnitude.
    pub tolerance: f64,
    /// Draws the start, and the blocks that search for missed pairs.
    pub draws: Stream,
    /// The largest number of products per wanted pair and vector of a block; pairs are then taken without convergence.
    most_products: usize,
}

impl<'a> Search<'a> {
    /// A search for pairs of an operator, with a tolerance and random draws.
    pub fn new(n: usize, product: &'a mut Product<'a>, tolerance: f64, draws: Stream) -> Self {
        Self { n, product, tolerance, draws, most_products: MAX_PRODUCTS }
    }

    /// The known pairs, with their bits, and up to `more` pairs after them. The iteration starts from the columns of `near`, n rows,
    /// possibly none. Pairs that have not converged after about 50 products each are taken without convergence; NaN if products are not
    /// finite.
    ///
    /// No value exceeds the last known one: a multiple eigenvalue on both sides is found twice, with different errors.
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

    /// The smallest eigenvalue, by the same iteration with the negative operator: to the tolerance, or a value above it after about 2000
    /// products. NaN if products are not finite.
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
                // Check pairs again that had converged.
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
                // The span is invariant, so go on with random vectors.
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

    /// Extends a basis by the directions that columns add to its span and the known vectors, as far as there is room. Returns the number of
    /// added vectors; `None` if a product is not finite.
    fn grow(&mut self, basis: &mut Basis, known: &Eigenpairs, columns: Mat<f64>) -> Option<usize> {
        let spans = [known.vectors.as_ref(), basis.v()];
        // Twice, because nearly dependent columns lose orthogonality when they are scaled.
        let columns = orthonormal(&spans, orthonormal(&spans, columns));
        let columns = columns.subcols(0, columns.ncols().min(basis.room() - basis.len));
        let mut images = images(columns, self.product);
        if !is_finite(&images) {
            return None;
        }
        // Components of images in the span of known vectors are the errors of these.
        if !known.values.is_empty() {
            images = &images - &known.vectors * (known.vectors.transpose() * &images);
        }
        basis.add(columns, &images);
        Some(columns.ncols())
    }
}
