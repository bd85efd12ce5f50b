//! Dense linear algebra on top of faer.
//!
//! faer is called sequentially everywhere: parallelism is over agents, seeds
//! and methods, so results do not depend on the number of threads.

use std::cell::RefCell;

use faer::Par;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::cholesky::llt::solve::solve_in_place;
use faer::linalg::solvers::{DenseSolveCore, Solve};

use crate::error::{Error, Result};
use crate::kernel::{Isa, products, remove, triangle};

pub use faer::{Mat, MatMut, MatRef};

/// Condition number above which a linear system counts as singular.
pub const MAX_CONDITION: f64 = 1e12;

/// A matrix from its rows, `rows * cols` numbers in row-major order.
pub fn from_rows(rows: usize, cols: usize, values: &[f64]) -> Mat<f64> {
    assert_eq!(values.len(), rows * cols, "a {rows}x{cols} matrix needs {} numbers", rows * cols);
    Mat::from_fn(rows, cols, |i, j| values[i * cols + j])
}

/// The entries of a matrix in row-major order.
pub fn to_rows(m: &Mat<f64>) -> Vec<f64> {
    (0..m.nrows()).flat_map(|i| (0..m.ncols()).map(move |j| m[(i, j)])).collect()
}

/// A column from a slice.
pub fn column(v: &[f64]) -> Mat<f64> {
    Mat::from_fn(v.len(), 1, |i, _| v[i])
}

/// `m v`.
pub fn mat_vec(m: &Mat<f64>, v: &[f64]) -> Vec<f64> {
    // Column by column, as stored; each component is summed in the columns' order. A sum of floating-point numbers begins at -0.
    let mut out = vec![-0.0; m.nrows()];
    (0..m.ncols()).for_each(|j| add_scaled(&mut out, v[j], m.col_as_slice(j)));
    out
}

/// Adds `a b^T` to a matrix.
pub fn add_outer(to: &mut Mat<f64>, a: MatRef<'_, f64>, b: MatRef<'_, f64>) {
    faer::linalg::matmul::matmul(to, faer::Accum::Add, a, b.transpose(), 1.0, faer::Par::Seq);
}

/// `a^T b`, in eight partial sums.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    products::dot(Isa::best(), a, b)
}

/// `x_j^T y` of n vectors `x_j = at(j)` of y's length, with the bits of [`dot`].
pub fn dots<'a>(n: usize, at: impl Fn(usize) -> &'a [f64], y: &[f64]) -> Vec<f64> {
    let (fours, isa) = (n / 4 * 4, Isa::best());
    let in_fours = (0..fours).step_by(4).flat_map(|j| products::dots(isa, [at(j), at(j + 1), at(j + 2), at(j + 3)], y));
    in_fours.chain((fours..n).map(|j| dot(at(j), y))).collect()
}

/// The point `x + s p`, each component rounded once.
pub fn along(x: &[f64], s: f64, p: &[f64]) -> Vec<f64> {
    x.iter().zip(p).map(|(x, p)| s.mul_add(*p, *x)).collect()
}

/// Moves x to [`along`].
pub fn go_along(x: &mut [f64], s: f64, p: &[f64]) {
    x.iter_mut().zip(p).for_each(|(x, p)| *x = s.mul_add(*p, *x));
}

/// `a - b`.
pub fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Adds `a x` to y, in the components that both have.
pub fn add_scaled(y: &mut [f64], a: f64, x: &[f64]) {
    products::add_scaled(Isa::best(), y, a, x);
}

/// [`add_scaled`] for vectors of the same length. Returns the square of the sum's length, with the bits of [`dot`].
pub fn add_scaled_and_square(y: &mut [f64], a: f64, x: &[f64]) -> f64 {
    products::add_scaled_and_square(Isa::best(), y, a, x)
}

/// Scales a vector to length 1; `None` if its norm is 0 or not finite.
pub fn normalise(v: &mut [f64]) -> Option<()> {
    let norm = dot(v, v).sqrt();
    v.iter_mut().for_each(|x| *x /= norm);
    (norm > 0.0 && norm.is_finite()).then_some(())
}

/// `w -= (q . w) q` for orthonormal vectors q, stored one after the other.
pub fn remove(w: &mut [f64], vectors: &[f64]) {
    remove::remove(Isa::best(), w, vectors);
}

/// The product of a symmetric matrix with v, d components; the matrix is a lower triangle row by row, d (d + 1) / 2 numbers.
pub fn triangle_vec(lower: &[f64], v: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; v.len()];
    triangle::product(Isa::best(), lower, v, &mut out);
    out
}

/// The Frobenius norm of a symmetric matrix, a lower triangle row by row, of d rows.
pub fn triangle_norm(lower: &[f64], d: usize) -> f64 {
    let diagonal: f64 = (0..d).map(|i| lower[i * (i + 3) / 2].powi(2)).sum();
    (2.0 * dot(lower, lower) - diagonal).max(0.0).sqrt()
}

/// `||a - b||^2`.
pub fn distance_sq(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// `||A - B||_F^2` of symmetric matrices, of which the lower triangles are read.
pub fn symmetric_distance_sq(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    let column = |j: usize| {
        let (a, b) = (&a.col_as_slice(j)[j..], &b.col_as_slice(j)[j..]);
        2.0 * distance_sq(&a[1..], &b[1..]) + (a[0] - b[0]).powi(2)
    };
    (0..a.ncols()).map(column).sum()
}

/// `||A||_F^2` of a symmetric matrix, of which the lower triangle is read.
pub fn symmetric_norm_sq(a: &Mat<f64>) -> f64 {
    let column = |j: usize| {
        let a = &a.col_as_slice(j)[j..];
        2.0 * norm_sq(&a[1..]) + a[0].powi(2)
    };
    (0..a.ncols()).map(column).sum()
}

/// Shortens a vector that is longer than a norm to it: `x min(1, norm / ||x||)`.
pub fn shorten(x: &mut [f64], norm: f64) {
    let (unit, length) = length(x);
    let factor = norm / unit / length;
    if factor < 1.0 {
        x.iter_mut().for_each(|x| *x *= factor);
    }
}

/// The largest absolute component of x, and the norm in units of it: squares of components neither overflow nor underflow.
fn length(x: &[f64]) -> (f64, f64) {
    let unit = x.iter().fold(0.0, |unit: f64, x| unit.max(x.abs()));
    (unit, x.iter().map(|x| (x / unit).powi(2)).sum::<f64>().sqrt())
}

/// `||x||`, also of numbers whose squares overflow or underflow.
pub fn norm(x: &[f64]) -> f64 {
    let (unit, length) = length(x);
    if unit == 0.0 { 0.0 } else { unit * length }
}

/// `2^n`, exact; n is the exponent of a normal number.
pub fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// `||a||^2`.
pub fn norm_sq(a: &[f64]) -> f64 {
    a.iter().map(|x| x * x).sum()
}

/// The 2-norm condition number; infinite when the matrix is singular or not finite.
pub fn condition(m: &Mat<f64>) -> f64 {
    match m.singular_values() {
        Ok(s) if !s.is_empty() && s[s.len() - 1] > 0.0 => s[0] / s[s.len() - 1],
        _ => f64::INFINITY,
    }
}

/// The largest singular value.
pub fn norm2(m: &Mat<f64>) -> f64 {
    m.singular_values().map_or(f64::NAN, |s| s.first().copied().unwrap_or(0.0))
}

/// The largest number of rows or columns for which [`norm2_bound`] computes singular values; larger matrices take many seconds.
pub const MAX_FOR_NORM: usize = 500;

/// An upper bound of the largest singular value: the value itself up to [`MAX_FOR_NORM`] rows and columns, otherwise `sqrt(||m||_1
/// ||m||_inf)`, from the largest absolute sums of columns and rows.
pub fn norm2_bound(m: &Mat<f64>) -> f64 {
    if m.nrows().max(m.ncols()) <= MAX_FOR_NORM {
        return norm2(m);
    }
    let mut rows = vec![0.0f64; m.nrows()];
    let mut column = 0.0f64;
    for j in 0..m.ncols() {
        let entries = m.col_as_slice(j);
        column = column.max(entries.iter().map(|x| x.abs()).sum::<f64>());
        rows.iter_mut().zip(entries).for_each(|(sum, x)| *sum += x.abs());
    }
    column.sqrt() * rows.into_iter().fold(0.0, f64::max).sqrt()
}

/// Solves `m x = b`, refusing a singular or badly conditioned `m`.
///
/// # Errors
/// When `m` is not finite or its condition number exceeds [`MAX_CONDITION`], or the
/// solution is not finite.
pub fn solve(m: &Mat<f64>, b: &[f64]) -> Result<Vec<f64>> {
    Ok(solve_columns(m, &column(b))?.col_as_slice(0).to_vec())
}

/// Solves `m x = b` for all columns of b, refusing a singular or badly conditioned `m`.
///
/// # Errors
/// As [`solve`].
pub fn solve_columns(m: &Mat<f64>, b: &Mat<f64>) -> Result<Mat<f64>> {
    // The Frobenius norms bound the condition number from above and are cheaper than singular values.
    let lu = m.partial_piv_lu();
    let bound = m.norm_l2() * lu.inverse().norm_l2();
    let cond = if bound <= MAX_CONDITION { bound } else { condition(m) };
    if cond.is_nan() || cond > MAX_CONDITION {
        return Err(Error::new(
            "",
            format!("singular or badly conditioned linear system (condition number {cond:.2e})"),
            format!(
                "the matrix must be finite with a condition number of at most {MAX_CONDITION:.0e}: \
                 check for linearly dependent features or states that are never visited"
            ),
        ));
    }
    let x: Mat<f64> = lu.solve(b);
    let bad = (0..x.ncols()).find_map(|j| x.col_as_slice(j).iter().copied().enumerate().find(|(_, x)| !x.is_finite()));
    match bad {
        None => Ok(x),
        Some((i, x)) => Err(Error::new(
            "",
            format!("the solution's component {i} is {x}"),
            "a matrix and a right-hand side whose sizes are less far apart",
        )),
    }
}

/// Solves `m x = b` if the bound of the condition number by Frobenius norms, which needs no singular values, is at most [`MAX_CONDITION`];
/// otherwise `None`, as for solutions that are not finite.
pub fn solve_if_regular(m: &Mat<f64>, b: &[f64]) -> Option<Vec<f64>> {
    let lu = m.partial_piv_lu();
    let bound = m.norm_l2() * lu.inverse().norm_l2();
    let x = (bound <= MAX_CONDITION).then(|| lu.solve(column(b)).col_as_slice(0).to_vec())?;
    x.iter().all(|x| x.is_finite()).then_some(x)
}

/// The largest size of square matrices whose memory a thread keeps, and their number.
const MAX_KEPT: (usize, usize) = (1024, 2);

thread_local! {
    static SQUARES: RefCell<Vec<Mat<f64>>> = const { RefCell::new(Vec::new()) };
}

/// Calls `see` with a d x d matrix of arbitrary numbers, in memory that the thread keeps for reuse, because allocating it takes as long as
/// some products with it.
pub fn with_square<R>(d: usize, see: impl FnOnce(&mut Mat<f64>) -> R) -> R {
    let kept = SQUARES.with_borrow_mut(Vec::pop).filter(|kept| kept.nrows() == d);
    let mut square = kept.unwrap_or_else(|| Mat::zeros(d, d));
    let seen = see(&mut square);
    if d <= MAX_KEPT.0 {
        SQUARES.with_borrow_mut(|squares| squares.extend((squares.len() < MAX_KEPT.1).then_some(square)));
    }
    seen
}

/// Replaces the lower triangle of a symmetric matrix by its Cholesky factor; false if it has none. The upper triangle is not read.
pub fn factorise(a: MatMut<'_, f64>) -> bool {
    let (params, n) = (Default::default(), a.nrows());
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(n, Par::Seq, params));
    cholesky_in_place(a, Default::default(), Par::Seq, MemStack::new(&mut memory), params).is_ok()
}

/// Replaces the right-hand side x by the solution with a symmetric matrix, and the matrix's lower triangle by its Cholesky factor; `None`
/// if it has none.
fn solve_by_factor(mut a: MatMut<'_, f64>, x: &mut Mat<f64>) -> Option<()> {
    factorise(a.as_mut()).then(|| solve_in_place(a.as_ref(), x.as_mut(), Par::Seq, MemStack::new(&mut [])))
}

/// Solves `m x = b` by Cholesky's factorisation of a symmetric positive definite d x d matrix; b and x have d components. Only the
/// lower triangle of m is read.
///
/// `None` if m is not positive definite, or the solution is not finite (m is singular to working precision, or m or b is not finite). Such
/// an x is no Newton step: with an indefinite m it may lead uphill. Callers then fall back, mostly to steepest descent. Unlike [`solve`],
/// it does not check the condition number: a step with a badly conditioned Hessian still leads downhill.
pub fn solve_definite(m: &Mat<f64>, b: &[f64]) -> Option<Vec<f64>> {
    with_square(m.nrows(), |factor| {
        (0..m.ncols()).for_each(|j| factor.col_as_slice_mut(j)[j..].copy_from_slice(&m.col_as_slice(j)[j..]));
        let mut x = column(b);
        solve_by_factor(factor.as_mut(), &mut x)?;
        let x = x.col_as_slice(0).to_vec();
        x.iter().all(|x| x.is_finite()).then_some(x)
    })
}

/// [`solve_definite`] for a matrix with entries beside the diagonal only in the rows and columns of `components`, which increase. Only
/// these are factorised; the other components take a division each.
pub fn solve_definite_within(m: &Mat<f64>, b: &[f64], components: &[u32]) -> Option<Vec<f64>> {
    let (d, n) = (m.nrows(), components.len());
    with_square(d, |factor| {
        let mut inside = Mat::from_fn(n, 1, |i, _| b[components[i] as usize]);
        for (k, j) in components.iter().enumerate() {
            let (from, to) = (m.col_as_slice(*j as usize), &mut factor.col_as_slice_mut(k)[k..n]);
            to.iter_mut().zip(&components[k..]).for_each(|(to, i)| *to = from[*i as usize]);
        }
        solve_by_factor(factor.submatrix_mut(0, 0, n, n), &mut inside)?;
        let mut x: Vec<f64> = b.iter().enumerate().map(|(i, b)| b / m[(i, i)]).collect();
        components.iter().zip(inside.col_as_slice(0)).for_each(|(i, inside)| x[*i as usize] = *inside);
        let is_definite = (0..d).all(|i| m[(i, i)] > 0.0);
        (is_definite && x.iter().all(|x| x.is_finite())).then_some(x)
    })
}

/// Solutions of least norm, and the null space.
#[derive(Debug, Clone)]
pub struct LeastNorm {
    /// A solution for each column of the right-hand side.
    pub x: Mat<f64>,
    /// An orthonormal basis of the matrix's null space, d numbers each; empty if the matrix is regular.
    pub null: Vec<Vec<f64>>,
}

impl LeastNorm {
    /// The effective rank: the number of singular values above `d eps` times the largest.
    pub fn rank(&self) -> usize {
        self.x.nrows() - self.null.len()
    }
}

/// The solutions of `m x = b` for all columns of b, or the least-squares solutions of least norm if the square matrix m is singular to
/// rounding. Zeros if m is 0 or not finite.
pub fn least_norm(m: &Mat<f64>, b: &Mat<f64>) -> LeastNorm {
    let d = m.nrows();
    let unit = |i: usize| -> Vec<f64> { (0..d).map(|j| if i == j { 1.0 } else { 0.0 }).collect() };
    // Components with zero rows and columns, such as features that no state has, stay 0. The rest is smaller, and may be regular.
    let is_used = |i: usize| (0..d).any(|j| m[(i, j)] != 0.0 || m[(j, i)] != 0.0);
    let (used, unused): (Vec<usize>, Vec<usize>) = (0..d).partition(|i| is_used(*i));
    let mut null: Vec<Vec<f64>> = unused.into_iter().map(unit).collect();
    let mut x = Mat::zeros(d, b.ncols());
    if used.is_empty() {
        return LeastNorm { x, null };
    }
    let n = used.len();
    let small = Mat::from_fn(n, n, |i, j| m[(used[i], used[j])]);
    let right = Mat::from_fn(n, b.ncols(), |i, j| b[(used[i], j)]);
    let mut put = |solved: &Mat<f64>| (0..n).for_each(|i| (0..b.ncols()).for_each(|j| x[(used[i], j)] = solved[(i, j)]));
    if let Ok(solved) = solve_columns(&small, &right) {
        put(&solved);
        return LeastNorm { x, null };
    }
    let Ok(svd) = small.svd() else { return LeastNorm { x, null: (0..d).map(unit).collect() } };
    let s = svd.S().column_vector();
    let is_kept = |k: usize| s[k] > d as f64 * f64::EPSILON * s[0];
    let shares = svd.U().transpose() * &right;
    put(&(svd.V() * Mat::from_fn(n, b.ncols(), |k, j| if is_kept(k) { shares[(k, j)] / s[k] } else { 0.0 })));
    null.extend((0..n).filter(|k| !is_kept(*k)).map(|k| {
        let mut direction = vec![0.0; d];
        used.iter().enumerate().for_each(|(i, to)| direction[*to] = svd.V()[(i, k)]);
        direction
    }));
    LeastNorm { x, null }
}

/// [`least_norm`] of one right-hand side.
pub fn solve_or_least(m: &Mat<f64>, b: &[f64]) -> Vec<f64> {
    least_norm(m, &column(b)).x.col_as_slice(0).to_vec()
}

/// All eigenvalues of a square matrix as (real, imaginary).
///
/// # Errors
/// When the matrix is not finite or the iteration does not converge.
pub fn eigenvalues(m: &Mat<f64>) -> Result<Vec<(f64, f64)>> {
    let bad = || Error::new("", "eigenvalues of a matrix that is not finite", "all entries must be finite numbers");
    if !m.is_all_finite() {
        return Err(bad());
    }
    Ok(m.eigenvalues().map_err(|_| bad())?.iter().map(|z| (z.re, z.im)).collect())
}

/// The largest modulus of the eigenvalues.
///
/// # Errors
/// As [`eigenvalues`].
pub fn spectral_radius(m: &Mat<f64>) -> Result<f64> {
    Ok(eigenvalues(m)?.iter().map(|(re, im)| re.hypot(*im)).fold(0.0, f64::max))
}

/// The Kronecker product: row `(i, k)`, column `(j, l)` holds `a_ij b_kl`.
pub fn kron(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
    let (rows, cols) = (b.nrows(), b.ncols());
    Mat::from_fn(a.nrows() * rows, a.ncols() * cols, |r, c| a[(r / rows, c / cols)] * b[(r % rows, c % cols)])
}

/// The solution of `X = M X M^T + Q` for a Schur-stable M, by doubling.
pub fn discrete_lyapunov(m: &Mat<f64>, q: &Mat<f64>) -> Mat<f64> {
    let (mut m, mut x) = (m.clone(), q.clone());
    // After k doublings x holds the first 2^k terms of sum_i M^i Q M^T^i.
    while m.norm_l2() > 0.0 && m.norm_l2().is_finite() {
        x = &x + &m * &x * m.transpose();
        m = &m * &m;
    }
    x
}

/// The lower Cholesky factor; zero for the zero matrix.
///
/// # Errors
/// When the matrix is not positive definite.
pub fn cholesky(m: &Mat<f64>) -> Result<Mat<f64>> {
    if m.norm_l2() == 0.0 {
        return Ok(m.clone());
    }
    let factor = m.llt(faer::Side::Lower);
    factor.map(|f| f.L().to_owned()).map_err(|_| Error::new("", "a matrix that is not positive definite", "a positive definite matrix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_of_their_own_while_they_are_used() {
        for d in [0, 3, 5, 3] {
            with_square(d, |a| {
                a.fill(1.0);
                with_square(d, |b| b.fill(2.0));
                assert_eq!(*a, Mat::full(d, d, 1.0));
            });
        }
    }

    #[test]
    fn several_inner_products_are_those_of_each_vector() {
        let y: Vec<f64> = (0..13).map(|i| (i as f64).sin()).collect();
        for n in 0..10 {
            let x: Vec<Vec<f64>> = (0..n).map(|j| (0..13).map(|i| ((i * (j + 2)) as f64).cos()).collect()).collect();
            let each: Vec<u64> = x.iter().map(|x| dot(x, &y).to_bits()).collect();
            assert_eq!(dots(n, |j| &x[j], &y).into_iter().map(f64::to_bits).collect::<Vec<_>>(), each);
        }
    }

    #[test]
    fn definite_systems_are_solved_from_their_lower_triangle() {
        let mut m = from_rows(2, 2, &[4.0, f64::NAN, 2.0, 5.0]);
        assert_eq!(solve_definite(&m, &[8.0, 12.0]), Some(vec![1.0, 2.0]));
        m[(0, 0)] = -4.0;
        assert_eq!(solve_definite(&m, &[8.0, 12.0]), None);
    }

    #[test]
    fn only_definite_systems_with_finite_solutions_are_solved() {
        // The upper triangle is not read.
        let m = from_rows(2, 2, &[4.0, f64::NAN, 1.0, 3.0]);
        let x = solve_definite(&m, &[1.0, 2.0]).unwrap();
        assert!(distance_sq(&x, &[1.0 / 11.0, 7.0 / 11.0]).sqrt() < 1e-15, "{x:?}");
        let diagonal = |a: f64, b: f64| from_rows(2, 2, &[a, 0.0, 0.0, b]);
        for m in [diagonal(1.0, -1.0), diagonal(0.0, 0.0), diagonal(1.0, 0.0), diagonal(1.0, f64::NAN)] {
            assert_eq!(solve_definite(&m, &[1.0, 1.0]), None, "{m:?}");
        }
        // Definite, and the solution overflows.
        assert_eq!(solve_definite(&diagonal(1.0, 1e-300), &[1.0, 1e300]), None);
        assert_eq!(solve_definite(&diagonal(1.0, 1.0), &[1.0, f64::INFINITY]), None);
    }

    /// The norm is the distance from 0, to the bit; upper triangles are not read.
    #[test]
    fn norms_of_symmetric_matrices_are_distances_from_zero() {
        let entry = |i: usize, j: usize| if i < j { f64::NAN } else { ((3 * i + 7 * j) as f64).sin() };
        for n in [0, 1, 2, 7] {
            let m = Mat::from_fn(n, n, entry);
            assert_eq!(symmetric_norm_sq(&m), symmetric_distance_sq(&Mat::zeros(n, n), &m));
        }
        assert_eq!(symmetric_norm_sq(&from_rows(2, 2, &[1.0, f64::NAN, -2.0, 3.0])), 18.0);
    }

    #[test]
    fn norms_of_large_matrices_are_bounded() {
        let small = from_rows(2, 2, &[1.0, 2.0, -3.0, 4.0]);
        assert_eq!(norm2_bound(&small), norm2(&small));
        // u v^T with u = (1, .., 1) and v = (1, 0, .., 0): ||u v^T|| = sqrt(n), and so is the bound.
        let n = MAX_FOR_NORM + 1;
        let large = Mat::from_fn(n, n, |_, j| if j == 0 { -1.0 } else { 0.0 });
        assert!((norm2_bound(&large) - (n as f64).sqrt()).abs() < 1e-12);
    }
}
