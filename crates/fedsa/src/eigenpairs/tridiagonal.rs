//! The leading eigenpair of a small symmetric tridiagonal matrix, ten times as fast as all eigenvalues by a library.

use crate::linalg::normalise;

/// Points of an interval that are tested side by side, because one point's divisions wait for each other.
const POINTS: usize = 8;
/// Steps of the inverse iteration, and the relative distance of its shift above the eigenvalue.
const STEPS: usize = 3;
const ABOVE: f64 = 32.0 * f64::EPSILON;
/// The relative difference of eigenvalues that rounding can explain.
const ROUNDING: f64 = 8.0 * f64::EPSILON;

/// The eigenvalue of largest magnitude, of two equally large ones the positive one, and its eigenvector of length 1. `beside` are the
/// numbers beside the diagonal, one fewer than on it. `None` if the matrix is 0 or not finite.
pub fn leading_pair(diagonal: &[f64], beside: &[f64]) -> Option<(f64, Vec<f64>)> {
    let squares: Vec<f64> = beside.iter().map(|b| b * b).collect();
    let minus: Vec<f64> = diagonal.iter().map(|a| -a).collect();
    let (below, above) = bounds(diagonal, beside)?;
    let largest = largest_eigenvalue(diagonal, &squares, (below, above));
    let mut theta = largest;
    if !exceed(&minus, &squares, &[largest; POINTS])[0] {
        let of_minus = largest_eigenvalue(&minus, &squares, (-above, -below));
        if of_minus > largest * (1.0 + ROUNDING) {
            theta = -of_minus;
        }
    }
    let towards = if theta < 0.0 { &minus } else { diagonal };
    Some((theta, vector(towards, beside, theta)?))
}

/// Bounds of all eigenvalues (Gershgorin); `None` if they are not finite.
fn bounds(diagonal: &[f64], beside: &[f64]) -> Option<(f64, f64)> {
    let next = |i: usize| beside.get(i).map_or(0.0, |b| b.abs());
    let radii = (0..diagonal.len()).map(|i| next(i) + i.checked_sub(1).map_or(0.0, next));
    let widen = |(below, above): (f64, f64), (a, r): (&f64, f64)| (below.min(a - r), above.max(a + r));
    let (below, above) = diagonal.iter().zip(radii).fold((f64::INFINITY, f64::NEG_INFINITY), widen);
    // A minimum ignores NaN.
    let is_finite = diagonal.iter().chain(beside).all(|x| x.is_finite()) && below.is_finite() && above.is_finite();
    is_finite.then_some((below, above))
}

/// Whether points exceed all eigenvalues: `x I - T` is then positive definite, and the pivots of its elimination are positive.
fn exceed(diagonal: &[f64], squares: &[f64], x: &[f64; POINTS]) -> [bool; POINTS] {
    let (mut taken, mut are) = ([0.0; POINTS], [true; POINTS]);
    for (a, square) in diagonal.iter().zip(squares.iter().chain(&[0.0])) {
        for ((x, taken), are) in x.iter().zip(&mut taken).zip(&mut are) {
            let pivot = (x - a) - *taken;
            *are &= pivot > 0.0;
            *taken = square / pivot;
        }
    }
    are
}

/// The largest eigenvalue, between these bounds: the smallest number that exceeds all eigenvalues, to rounding.
fn largest_eigenvalue(diagonal: &[f64], squares: &[f64], (mut below, mut above): (f64, f64)) -> f64 {
    while above - below > f64::EPSILON * below.abs().max(above.abs()) {
        let share = (above - below) / (POINTS + 1) as f64;
        let x: [f64; POINTS] = std::array::from_fn(|l| share.mul_add((l + 1) as f64, below));
        let first = exceed(diagonal, squares, &x).iter().position(|is| *is).unwrap_or(POINTS);
        let next = (if first == 0 { below } else { x[first - 1] }, x.get(first).copied().unwrap_or(above));
        if next == (below, above) {
            break;
        }
        (below, above) = next;
    }
    above
}

/// The eigenvector of a matrix for its largest eigenvalue, `|theta|`, by inverse iteration: with a shift just above it, `shift I - T` is
/// positive definite and needs no pivots. `diagonal` is T's diagonal. `beside` are T's entries beside it, or -T's if `theta < 0`. `None` if
/// T is 0.
fn vector(diagonal: &[f64], beside: &[f64], theta: f64) -> Option<Vec<f64>> {
    let (sign, shift, least) = (theta.signum(), theta.abs() * (1.0 + ABOVE), f64::EPSILON * theta.abs());
    // L D L^T: the entries below the diagonal of L, and the inverse of D.
    let (mut below, mut inverse) = (Vec::with_capacity(beside.len()), Vec::with_capacity(diagonal.len()));
    let mut taken = 0.0;
    for (i, a) in diagonal.iter().enumerate() {
        let pivot = shift - a - taken;
        // Rounding may cancel the last pivots.
        let by = 1.0 / pivot.max(least);
        inverse.push(by);
        if let Some(b) = beside.get(i) {
            below.push(-sign * b * by);
            taken = b * b * by;
        }
    }
    let mut y = vec![1.0; diagonal.len()];
    for _ in 0..STEPS {
        normalise(&mut y)?;
        (1..y.len()).for_each(|i| y[i] -= below[i - 1] * y[i - 1]);
        y.iter_mut().zip(&inverse).for_each(|(y, by)| *y *= by);
        (1..y.len()).rev().for_each(|i| y[i - 1] -= below[i - 1] * y[i]);
    }
    normalise(&mut y)?;
    Some(y)
}

#[cfg(test)]
mod tests {
    use faer::{Mat, Side};

    use super::*;
    use crate::random::{Purpose, stream};

    /// Random tridiagonal matrices, and graded ones whose leading eigenvector is nearly within the first rows, as after many steps.
    #[test]
    fn vectors_of_tridiagonal_matrices_are_those_of_the_full_decomposition() {
        let mut draws = stream(6, Purpose::System, 0, 0);
        for k in [1, 2, 3, 8, 24, 40] {
            for (sign, grade) in [(1.0, 1.0), (-1.0, 1.0), (1.0, 0.5), (-1.0, 0.5)] {
                let scale = |i: usize| f64::powi(grade, i as i32);
                let diagonal: Vec<f64> = (0..k).map(|i| sign * (2.0 + draws.normal()) * scale(i)).collect();
                let beside: Vec<f64> = (1..k).map(|i| draws.normal().abs() * scale(i)).collect();
                let t = Mat::from_fn(k, k, |i, j| {
                    if i == j {
                        diagonal[i]
                    } else if i.abs_diff(j) == 1 {
                        beside[i.min(j)]
                    } else {
                        0.0
                    }
                });
                let eigen = t.self_adjoint_eigen(Side::Lower).unwrap();
                let values: Vec<f64> = eigen.S().column_vector().iter().copied().collect();
                let at = if values[0].abs() > values[k - 1].abs() { 0 } else { k - 1 };
                let (theta, y) = leading_pair(&diagonal, &beside).unwrap();
                assert!((theta - values[at]).abs() < 1e-14 * theta.abs(), "{k}");
                let expected = eigen.U().col(at);
                let side = if (0..k).map(|i| expected[i] * y[i]).sum::<f64>() < 0.0 { -1.0 } else { 1.0 };
                assert!((0..k).all(|i| (side * y[i] - expected[i]).abs() < 1e-12), "{k}, {y:?}, {expected:?}");
            }
        }
        assert_eq!(leading_pair(&[0.0; 3], &[0.0; 2]), None);
    }

    #[test]
    fn of_equally_large_eigenvalues_the_positive_one_leads() {
        for (diagonal, beside) in [([2.0, -2.0], [0.0]), ([-2.0, 2.0], [0.0]), ([0.0, 0.0], [2.0])] {
            let (theta, y) = leading_pair(&diagonal, &beside).unwrap();
            assert!((theta - 2.0).abs() < 1e-14 && (y[0].hypot(y[1]) - 1.0).abs() < 1e-14, "{diagonal:?}");
        }
        assert_eq!(leading_pair(&[1.0, f64::NAN], &[0.5]), None);
        assert_eq!(leading_pair(&[1.0, 2.0], &[f64::INFINITY]), None);
    }
}
