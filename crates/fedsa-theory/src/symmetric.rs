//! Symmetric matrices as vectors, and congruences `X -> F X F^T` as matrices.
//!
//! The upper triangle is packed column by column, entry `(i, j)` with `i <= j` at `j (j + 1) / 2 + i`, so that the block of
//! the first coordinates is a prefix.

use fedsa::linalg::Mat;

/// The number of entries of a packed symmetric n x n matrix.
pub fn packed_len(n: usize) -> usize {
    n * (n + 1) / 2
}

/// The index of entry `(i, j)` in a packed matrix.
pub fn packed_index(i: usize, j: usize) -> usize {
    let (i, j) = (i.min(j), i.max(j));
    packed_len(j) + i
}

/// The upper triangle of the n x n matrix with the given entries, packed.
pub fn pack(n: usize, entry: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..n).flat_map(|j| (0..=j).map(move |i| (i, j))).map(|(i, j)| entry(i, j)).collect()
}

/// The trace of a packed matrix.
pub fn packed_trace(n: usize, packed: &[f64]) -> f64 {
    (0..n).map(|i| packed[packed_index(i, i)]).sum()
}

/// The matrix of `X -> F X F^T` on packed symmetric matrices; F is n x n.
pub fn congruence(f: &Mat<f64>) -> Mat<f64> {
    let n = f.nrows();
    let mut out = Mat::<f64>::zeros(packed_len(n), packed_len(n));
    for j in 0..n {
        for i in 0..=j {
            let (fi, fj) = (f.col_as_slice(i), f.col_as_slice(j));
            let image = out.col_as_slice_mut(packed_index(i, j));
            let half = if i == j { 0.5 } else { 1.0 };
            for b in 0..n {
                let (fib, fjb) = (half * fi[b], half * fj[b]);
                let column = &mut image[packed_len(b)..=packed_len(b) + b];
                for ((x, fia), fja) in column.iter_mut().zip(fi).zip(fj) {
                    *x = fia * fjb + fja * fib;
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::LinearMap;
    use crate::testing::Draw;

    #[test]
    fn congruence_is_the_product() {
        let mut draw = Draw::new(6);
        let (f, g) = (draw.matrix(4), draw.matrix(4));
        let x = &g * g.transpose();
        let want = &f * &x * f.transpose();
        let mut got = vec![0.0; packed_len(4)];
        congruence(&f).apply(&pack(4, |i, j| x[(i, j)]), &mut got);
        for i in 0..4 {
            for j in 0..4 {
                assert!((got[packed_index(i, j)] - want[(i, j)]).abs() < 1e-14);
            }
        }
    }
}
