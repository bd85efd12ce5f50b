//! The leading eigenpair of a symmetric matrix in its packed form, by Lanczos' iteration.

use std::cell::RefCell;

use super::{sign_of, tridiagonal};
use crate::kernel::blocks::Blocks;
use crate::kernel::products::mark_nonzero;
use crate::kernel::{Chunk, Isa, flat, flat_mut, to_chunks};
use crate::linalg::{add_scaled, dot, normalise, remove};
use crate::random::{Purpose, stream};

/// The accepted relative residual `||A v - lambda v|| / |lambda|`; the error of lambda is its square.
const RESIDUAL: f64 = 1e-7;
/// Products until the iteration restarts from the best vector, and the number of restarts.
const PRODUCTS: usize = 40;
const RESTARTS: usize = 10;
/// The residual is checked after multiples of this number of products.
const EVERY: usize = 8;
/// The share of the expected remaining products before the next check; residuals fall faster and faster.
const AHEAD: f64 = 0.6;

thread_local! {
    /// Reused memory for the packed matrix.
    static BLOCKS: RefCell<Blocks> = const { RefCell::new(Blocks::empty()) };
}

/// The eigenvalue of largest magnitude and its eigenvector of length 1, of a symmetric matrix with d rows (lower triangle row by row). The
/// component of largest magnitude is positive, among equal ones the first. `None` if the matrix is 0 or not finite.
///
/// The start is the same random vector for every matrix, in the components with nonzero rows; v is 0 in the others. The result is therefore
/// a function of the matrix. If two eigenvalues of opposite sign are equally large, or the residual does not become small, v is a mixture
/// of eigenvectors, and lambda its Rayleigh quotient.
pub fn leading_pair(lower: &[f64], d: usize) -> Option<(f64, Vec<f64>)> {
    let mut draws = stream(0, Purpose::Compressor, 0, 0);
    let start: Vec<f64> = (0..d).map(|_| draws.normal()).collect();
    let components = nonzero(lower, d);
    BLOCKS.with_borrow_mut(|blocks| {
        match components.len() == d {
            true => blocks.pack(lower, d),
            false => blocks.pack_within(lower, &components),
        }
        let within: Vec<f64> = components.iter().map(|i| start[*i as usize]).collect();
        let (lambda, within) = leading_of_blocks(blocks, &within)?;
        let mut v = vec![0.0; d];
        components.iter().zip(within).for_each(|(i, x)| v[*i as usize] = x);
        Some((lambda, v))
    })
}

/// The components with nonzero rows, increasing: for sparse data, the columns in the agent's rows.
fn nonzero(lower: &[f64], d: usize) -> Vec<u32> {
    let mut marks = vec![0; d];
    mark_nonzero(Isa::best(), lower, &mut marks);
    (0..d as u32).filter(|i| marks[*i as usize] != 0).collect()
}

/// [`leading_pair`] of a packed matrix, from a start. Vectors are padded with zeros to whole chunks.
fn leading_of_blocks(blocks: &Blocks, start: &[f64]) -> Option<(f64, Vec<f64>)> {
    let d = start.len();
    let mut v = to_chunks(start);
    normalise(flat_mut(&mut v))?;
    for _ in 0..RESTARTS {
        let (next, is_good) = lanczos(blocks, v, d)?;
        v = next;
        if is_good {
            break;
        }
    }
    let mut image = vec![Chunk::default(); v.len()];
    blocks.product(Isa::best(), &v, &mut image);
    let lambda = dot(flat(&v), flat(&image));
    let mut v = flat(&v)[..d].to_vec();
    sign_of(&mut v);
    (lambda.is_finite() && lambda != 0.0).then_some((lambda, v))
}

/// At most [`PRODUCTS`] products from v: the Ritz vector of largest magnitude, and whether its residual is small.
fn lanczos(blocks: &Blocks, v: Vec<Chunk>, d: usize) -> Option<(Vec<Chunk>, bool)> {
    let (width, isa) = (v.len(), Isa::best());
    let most = PRODUCTS.min(d);
    // One vector after the other.
    let mut basis = v;
    basis.reserve_exact(most.saturating_sub(1) * width);
    let mut w = vec![Chunk::default(); width];
    let (mut diagonal, mut beside) = (Vec::new(), Vec::new());
    let (mut look, mut looked) = (EVERY, None);
    for k in 1..=most {
        let newest = &basis[(k - 1) * width..];
        blocks.product(isa, newest, &mut w);
        let w = flat_mut(&mut w);
        diagonal.push(dot(w, flat(newest)));
        // First orthogonal to the last two vectors, enough in exact arithmetic, then to all, against rounding.
        basis[k.saturating_sub(2) * width..].chunks(width).for_each(|q| remove(w, flat(q)));
        remove(w, flat(&basis));
        let norm = dot(w, w).sqrt();
        if !norm.is_finite() {
            return None;
        }
        let scale = diagonal.iter().chain(&beside).fold(norm, |m: f64, x| m.max(x.abs()));
        if scale == 0.0 {
            return None;
        }
        let ends = norm <= f64::EPSILON * scale;
        if ends || k == most || k == look {
            let (theta, y) = tridiagonal::leading_pair(&diagonal, &beside)?;
            let residual = norm * y[k - 1].abs() / theta.abs();
            let is_good = ends || residual <= RESIDUAL;
            if is_good || k == most {
                let mut ritz = vec![Chunk::default(); width];
                basis.chunks(width).zip(&y).for_each(|(q, y)| add_scaled(flat_mut(&mut ritz), *y, flat(q)));
                normalise(flat_mut(&mut ritz))?;
                return Some((ritz, is_good || k == d));
            }
            look = k + EVERY * looks_ahead(looked.replace((k, residual)), (k, residual));
        }
        beside.push(norm);
        basis.extend(w.as_chunks().0.iter().map(|w| Chunk(w.map(|x| x / norm))));
    }
    None
}

/// The number of steps of [`EVERY`] products to the next check, from the residuals of the last two checks.
fn looks_ahead(before: Option<(usize, f64)>, (k, residual): (usize, f64)) -> usize {
    let Some((earlier, larger)) = before.filter(|(_, larger)| *larger > residual) else { return 1 };
    let products = (residual / RESIDUAL).ln() / (larger / residual).ln() * (k - earlier) as f64;
    ((AHEAD * products / EVERY as f64) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use faer::{Mat, Side};

    use super::*;
    use crate::linalg::triangle_vec;

    fn lower_of(m: &Mat<f64>) -> Vec<f64> {
        (0..m.nrows()).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|at| m[at]).collect()
    }

    #[test]
    fn the_pair_is_that_of_the_full_decomposition() {
        let mut draws = stream(5, Purpose::System, 0, 0);
        for d in [1, 2, 5, 30, 90] {
            for sign in [1.0, -1.0] {
                let g = Mat::from_fn(d, d, |_, _| draws.normal());
                let m = (&g + g.transpose()) * faer::Scale(sign);
                let eigen = m.self_adjoint_eigen(Side::Lower).unwrap();
                let values: Vec<f64> = eigen.S().column_vector().iter().copied().collect();
                let expected = if values[0].abs() > values[d - 1].abs() { values[0] } else { values[d - 1] };
                let lower = lower_of(&m);
                let (lambda, v) = leading_pair(&lower, d).unwrap();
                assert!((lambda - expected).abs() < 1e-10 * expected.abs(), "{d}: {lambda}, {expected}");
                let mut residual = triangle_vec(&lower, &v);
                add_scaled(&mut residual, -lambda, &v);
                assert!(dot(&residual, &residual).sqrt() < 1e-6 * lambda.abs(), "{d}");
                let largest = v.iter().copied().fold(0.0, |m: f64, x| if x.abs() > m.abs() { x } else { m });
                assert!(largest > 0.0 && (dot(&v, &v) - 1.0).abs() < 1e-14);
            }
        }
    }

    /// Rows of zeros change nothing: the pair belongs to the rest, and is exactly 0 there.
    #[test]
    fn rows_of_zeros_have_no_part() {
        let mut draws = stream(6, Purpose::System, 0, 0);
        for (d, kept) in [(3, vec![1]), (20, vec![0, 3, 4, 11, 18]), (20, vec![19]), (40, (0..40).filter(|i| i % 3 != 0).collect())] {
            let m = Mat::from_fn(kept.len(), kept.len(), |_, _| draws.normal());
            let rest = lower_of(&(&m + m.transpose()));
            let mut lower = vec![0.0; d * (d + 1) / 2];
            for (k, i) in kept.iter().enumerate() {
                kept[..=k].iter().enumerate().for_each(|(l, j)| lower[i * (i + 1) / 2 + j] = rest[k * (k + 1) / 2 + l]);
            }
            let ((lambda, v), (expected, within)) = (leading_pair(&lower, d).unwrap(), leading_pair(&rest, kept.len()).unwrap());
            assert!((lambda - expected).abs() < 1e-12 * expected.abs(), "{d}: {lambda}, {expected}");
            for (i, x) in v.into_iter().enumerate() {
                let expected = kept.binary_search(&i).map_or(0.0, |k| within[k]);
                assert!((x - expected).abs() < 1e-5 && (expected != 0.0 || x == 0.0), "{d}, {i}: {x}, {expected}");
            }
        }
        assert_eq!(leading_pair(&[], 0), None);
    }

    #[test]
    fn simple_matrices_have_their_pairs() {
        assert_eq!(leading_pair(&[0.0; 6], 3), None);
        assert_eq!(leading_pair(&[1.0, f64::NAN, 1.0], 2), None);
        let (lambda, v) = leading_pair(&[1.0, 0.0, -3.0, 0.0, 0.0, 2.0], 3).unwrap();
        assert!((lambda + 3.0).abs() < 1e-13 && (v[1] - 1.0).abs() < 1e-13, "{lambda} {v:?}");
        // A multiple of the identity: any vector of length 1.
        let (lambda, v) = leading_pair(&[2.0, 0.0, 2.0, 0.0, 0.0, 2.0], 3).unwrap();
        assert!((lambda - 2.0).abs() < 1e-13 && (dot(&v, &v) - 1.0).abs() < 1e-13);
    }
}
