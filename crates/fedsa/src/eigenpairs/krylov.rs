//! Leading eigenpairs by a block Krylov iteration with full orthogonalisation and thick restarts.

use faer::{Mat, MatRef, Side};

use crate::random::{Purpose, stream};

/// An eigenpair has converged when its residual `||A v - theta v||` is below this share of the largest eigenvalue.
pub(super) const TOLERANCE: f64 = 1e-13;
/// The number of vectors that A is applied to at once.
const BLOCK: usize = 8;

/// The m largest eigenvalues of a symmetric operator on R^n, decreasing, with their eigenvectors in columns; `None` if they do
/// not converge within about `limit` products. `apply` multiplies n x k matrices by A.
///
/// The basis grows by the residuals of the leading pairs that have not converged, a block at a time (block Lanczos, as a
/// Davidson iteration without preconditioner), and is cut back to the leading pairs when it is full. A block finds as many
/// vectors of one eigenvalue as it has columns; the caller must check that none is missing.
pub(super) fn leading(n: usize, apply: &dyn Fn(&Mat<f64>) -> Mat<f64>, m: usize, limit: usize) -> Option<(Vec<f64>, Mat<f64>)> {
    let block = BLOCK.min(n);
    let most = (2 * m + 6 * block).min(n);
    if m == 0 || m + block > most {
        return None;
    }
    let mut draws = stream(0, Purpose::Pairs, 0, 0);
    let start = Mat::from_fn(n, block, |_, _| draws.normal());
    let mut v = orthonormal(&[], start);
    let mut w = apply(&v);
    let mut products = v.ncols();
    loop {
        // Rayleigh-Ritz on the span of V: A V = W.
        let t = v.transpose() * &w;
        let t = (&t + t.transpose()) * faer::Scale(0.5);
        let ritz = t.self_adjoint_eigen(Side::Lower).ok()?;
        let k = v.ncols();
        let kept = k.min(m + block);
        let y = Mat::from_fn(k, kept, |i, j| ritz.U()[(i, k - 1 - j)]);
        let theta: Vec<f64> = (0..kept).map(|j| ritz.S()[k - 1 - j]).collect();
        let (vy, wy) = (&v * &y, &w * &y);
        let residual = |j: usize| {
            let theta = theta[j];
            wy.col_as_slice(j).iter().zip(vy.col_as_slice(j)).map(move |(w, v)| w - theta * v)
        };
        let scale = ritz.S()[0].abs().max(ritz.S()[k - 1].abs());
        let missing: Vec<usize> =
            (0..kept.min(m)).filter(|j| residual(*j).map(|r| r * r).sum::<f64>().sqrt() > TOLERANCE * scale).collect();
        if missing.is_empty() && kept >= m {
            let values = theta[..m].to_vec();
            return Some((values, vy.subcols(0, m).to_owned()));
        }
        if products > limit {
            return None;
        }
        // While the span is smaller than m, residuals of all pairs; they are those of the last block.
        let next: Vec<usize> = missing.into_iter().chain(m..kept).take(block).collect();
        let mut columns = Mat::zeros(n, next.len());
        for (to, j) in next.iter().enumerate() {
            residual(*j).enumerate().for_each(|(i, r)| columns[(i, to)] = r);
        }
        if k + columns.ncols() > most {
            (v, w) = (vy, wy);
        }
        let mut added = orthonormal(&[v.as_ref()], columns);
        if added.ncols() == 0 {
            // The span is invariant, and too small: vectors from elsewhere.
            added = orthonormal(&[v.as_ref()], Mat::from_fn(n, block.min(n - v.ncols()), |_, _| draws.normal()));
        }
        if added.ncols() == 0 {
            return None;
        }
        let image = apply(&added);
        products += added.ncols();
        (v, w) = (beside(&v, &added), beside(&w, &image));
    }
}

/// `[a b]`.
pub(super) fn beside(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
    let mut out = Mat::zeros(a.nrows(), a.ncols() + b.ncols());
    out.subcols_mut(0, a.ncols()).copy_from(a);
    out.subcols_mut(a.ncols(), b.ncols()).copy_from(b);
    out
}

/// An orthonormal basis of what the columns of x add to the span of the orthonormal columns of some matrices.
pub(super) fn orthonormal(spans: &[MatRef<'_, f64>], mut x: Mat<f64>) -> Mat<f64> {
    let n = x.nrows();
    let dimension: usize = spans.iter().map(|v| v.ncols()).sum();
    let mut left = vec![1.0; x.ncols()];
    let length = |column: &[f64]| column.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut basis: Vec<Vec<f64>> = Vec::new();
    // Twice is enough (Kahan, Parlett), unless next to nothing is left.
    for pass in 0..3 {
        for (j, left) in left.iter_mut().enumerate() {
            let column = x.col_as_slice_mut(j);
            let now = length(column);
            let scale = if now > 0.0 { 1.0 / now } else { 0.0 };
            *left *= if pass > 0 { now } else { f64::from(now > 0.0) };
            column.iter_mut().for_each(|x| *x *= scale);
        }
        for v in spans.iter().filter(|v| v.ncols() > 0) {
            x = &x - v * (v.transpose() * &x);
        }
    }
    for j in (0..x.ncols()).filter(|j| left[*j] > 1e-12) {
        let mut column = x.col_as_slice(j).to_vec();
        let mut left = 1.0;
        for _ in 0..3 {
            for q in &basis {
                let dot: f64 = q.iter().zip(&column).map(|(q, x)| q * x).sum();
                column.iter_mut().zip(q).for_each(|(x, q)| *x -= dot * q);
            }
            let now = length(&column);
            left *= now;
            if now == 0.0 {
                break;
            }
            column.iter_mut().for_each(|x| *x /= now);
        }
        if left > 1e-12 && basis.len() + dimension < n {
            basis.push(column);
        }
    }
    Mat::from_fn(n, basis.len(), |i, j| basis[j][i])
}
