//! Leading eigenpairs by a block Krylov iteration with full orthogonalisation.

use faer::Mat;

use super::basis::{Basis, orthonormal};
use crate::random::{Purpose, stream};

/// An eigenpair has converged when its residual `||A v - theta v||` is below this share of the largest eigenvalue.
pub(super) const TOLERANCE: f64 = 1e-13;
/// The same if only the eigenvalue is wanted: its error is the squared residual over the distance to the next one.
const TOLERANCE_OF_VALUES: f64 = 1e-8;
/// The number of vectors that A multiplies at once: a product with a matrix takes hardly longer than one with a vector.
pub(super) const BLOCK: usize = 4;
/// The initial room for vectors beyond the wanted ones.
const ROOM: usize = 6 * BLOCK;
/// The basis grows by 1 / this between two checks of pairs, which take the time of many products.
const LOOKS: usize = 4;

/// The m largest eigenvalues of a symmetric operator on R^n, decreasing, and in columns the eigenvectors of the first `vectors` of them; `None`
/// if they do not converge within about `limit` products. `apply` multiplies n x k matrices by A.
///
/// The basis grows by the images of the last block (block Lanczos), orthogonalised against all before. A block finds at most as many
/// vectors of one eigenvalue as it has columns; the caller must check that none is missing.
pub(super) fn leading(
    n: usize,
    apply: &mut dyn FnMut(&Mat<f64>) -> Mat<f64>,
    m: usize,
    vectors: usize,
    limit: usize,
) -> Option<(Vec<f64>, Mat<f64>)> {
    let most = limit.min(n);
    if m == 0 || m + 2 * BLOCK > most {
        return None;
    }
    let mut draws = stream(0, Purpose::Pairs, 0, 0);
    let mut drawn = || Mat::from_fn(n, BLOCK, |_, _| draws.normal());
    let mut basis = Basis::new(n, most.min(m + ROOM));
    let mut next = orthonormal(&[], drawn());
    let mut look = m + 4 * BLOCK;
    loop {
        let images = apply(&next);
        if basis.len + next.ncols() > basis.room() {
            basis.grow(most.min(2 * basis.room()));
        }
        basis.add(next.as_ref(), &images);
        let is_full = basis.len + BLOCK > most;
        if basis.len >= look || is_full {
            let ritz = basis.ritz()?;
            let scale = ritz.values[0].abs().max(ritz.values[basis.len - 1].abs());
            let are_known = |mut from, to, tolerance| basis.unconverged(&ritz, &mut from, to, tolerance * scale, 1).ncols() == 0;
            if are_known(0, vectors, TOLERANCE) && are_known(vectors, m, TOLERANCE_OF_VALUES) {
                let (values, all) = basis.first(ritz, m);
                return Some((values, all.subcols(0, vectors).to_owned()));
            }
            look = basis.len + BLOCK.max(basis.len / LOOKS);
        }
        if is_full {
            return None;
        }
        next = orthonormal(&[basis.v()], images);
        if next.ncols() == 0 {
            // The span is invariant, so go on with random vectors.
            next = orthonormal(&[basis.v()], drawn());
        }
        if next.ncols() == 0 {
            return None;
        }
    }
}
