//! GMRES for the fixed point of a map that is costly to apply.

use crate::map::LinearMap;
use crate::work;
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};

/// The most vectors between two restarts, and the most numbers that they hold.
const VECTORS: usize = 300;
const NUMBERS: usize = 1 << 26;
/// The most restarts.
const RESTARTS: usize = 6;
/// The relative residual at which the iteration ends, and the residual accepted where rounding prevents it.
const TOLERANCE: f64 = 1e-13;
const ACCEPTED: f64 = 1e-10;

/// A solution of `x = map(x) + source`.
pub struct Solved {
    pub x: Vec<f64>,
    /// The largest modulus of the Ritz values of the map: an estimate of the radius of the map on what the source excites.
    pub radius: f64,
    /// The number of applications of the map.
    pub applications: usize,
}

/// The fixed point by restarted GMRES from a guess of any size. It builds Arnoldi vectors of the map itself. So the solution comes with
/// the leading eigenvalues of the map, except those that neither the source nor the guess excites.
///
/// # Errors
/// When the relative residual does not reach 1e-10 and the radius is below 1, or when the solve takes more work than
/// [`crate::work::within`] allows.
pub fn gmres(map: &dyn LinearMap, source: &[f64], guess: &[f64]) -> Result<Solved> {
    let n = map.dim();
    let (scale, size) = (linalg::norm_sq(source).sqrt(), linalg::norm_sq(guess).sqrt());
    let mut solved = Solved { x: vec![0.0; n], radius: 0.0, applications: 0 };
    if scale == 0.0 {
        return Ok(solved);
    }
    solved.x.iter_mut().zip(guess).for_each(|(x, g)| *x = if size > 0.0 { scale / size * g } else { 0.0 });
    let space = VECTORS.min(NUMBERS / n).max(20).min(n);
    let (mut residual, mut image) = (vec![0.0; n], vec![0.0; n]);
    let mut left = f64::INFINITY;
    for cycle in 0..=RESTARTS {
        work::charge(map.work())?;
        map.apply(&solved.x, &mut image);
        solved.applications += 1;
        (0..n).for_each(|i| residual[i] = source[i] + image[i] - solved.x[i]);
        let now = linalg::norm_sq(&residual).sqrt() / scale;
        if now.is_nan() || !solved.radius.is_finite() {
            solved.radius = f64::INFINITY;
            return Ok(solved);
        }
        let stalls = now > 0.5 * left;
        left = left.min(now);
        if left <= TOLERANCE || stalls || cycle == RESTARTS {
            break;
        }
        pass(map, &residual, TOLERANCE * scale, space, &mut solved)?;
    }
    // Far beyond the edge of stability the iteration may fail; the fixed point has no meaning there.
    if left <= ACCEPTED || solved.radius >= 1.0 {
        return Ok(solved);
    }
    let what = format!("the fixed point of a map of dimension {n} did not converge (relative residual {left:.1e})");
    Err(Error::not_known("", what, "a step size further from the edge of stability"))
}

/// Solves `R y = g` for an upper triangle with as many columns as g has numbers; y overwrites g.
fn solve_triangle(r: &Mat<f64>, g: &mut [f64]) {
    for k in (0..g.len()).rev() {
        let known: f64 = (k + 1..g.len()).map(|l| r[(k, l)] * g[l]).sum();
        g[k] = (g[k] - known) / r[(k, k)];
    }
}

/// One cycle: adds to `solved.x` a vector that reduces the residual.
fn pass(map: &dyn LinearMap, residual: &[f64], tolerance: f64, space: usize, solved: &mut Solved) -> Result<()> {
    let beta = linalg::norm_sq(residual).sqrt();
    if beta == 0.0 {
        return Ok(());
    }
    let mut basis = vec![residual.iter().map(|x| x / beta).collect::<Vec<f64>>()];
    // The Hessenberg matrix H of the map, and the triangle of I - H with the rotations that produce it.
    let mut h = Mat::<f64>::zeros(space + 1, space);
    let (mut r, mut rotations) = (Mat::<f64>::zeros(space + 1, space), Vec::<(f64, f64)>::new());
    let mut g = vec![0.0; space + 1];
    g[0] = beta;
    let mut w = vec![0.0; residual.len()];
    let mut used = 0;
    for j in 0..space {
        // Two products and two sums with each vector of the basis.
        work::charge(map.work() + 4.0 * (j + 1) as f64 * residual.len() as f64)?;
        map.apply(&basis[j], &mut w);
        solved.applications += 1;
        let stretch = linalg::norm_sq(&w).sqrt();
        if !stretch.is_finite() {
            solved.radius = f64::INFINITY;
            return Ok(());
        }
        // Gram-Schmidt, twice for orthogonality to rounding.
        for _ in 0..2 {
            for (i, v) in basis.iter().enumerate() {
                let c: f64 = v.iter().zip(&w).map(|(v, w)| v * w).sum();
                h[(i, j)] += c;
                w.iter_mut().zip(v).for_each(|(w, v)| *w -= c * v);
            }
        }
        let rest = linalg::norm_sq(&w).sqrt();
        h[(j + 1, j)] = rest;
        for i in 0..=j + 1 {
            r[(i, j)] = f64::from(u8::from(i == j)) - h[(i, j)];
        }
        for (i, (c, s)) in rotations.iter().enumerate() {
            let (a, b) = (r[(i, j)], r[(i + 1, j)]);
            (r[(i, j)], r[(i + 1, j)]) = (c * a + s * b, c * b - s * a);
        }
        let norm = r[(j, j)].hypot(r[(j + 1, j)]);
        let (c, s) = if norm > 0.0 { (r[(j, j)] / norm, r[(j + 1, j)] / norm) } else { (1.0, 0.0) };
        (r[(j, j)], r[(j + 1, j)]) = (norm, 0.0);
        rotations.push((c, s));
        (g[j], g[j + 1]) = (c * g[j], -s * g[j]);
        used = j + 1;
        if g[j + 1].abs() <= tolerance || rest <= f64::EPSILON * stretch {
            break;
        }
        basis.push(w.iter().map(|x| x / rest).collect());
    }
    solve_triangle(&r, &mut g[..used]);
    for (v, y) in basis.iter().zip(&g[..used]) {
        solved.x.iter_mut().zip(v).for_each(|(x, v)| *x += y * v);
    }
    let ritz = linalg::spectral_radius(&h.get(..used, ..used).to_owned()).unwrap_or(f64::INFINITY);
    solved.radius = solved.radius.max(ritz);
    Ok(())
}

#[cfg(test)]
mod tests {
    use faer::Scale;

    use super::*;
    use crate::testing::Draw;

    #[test]
    fn fixed_points_solve_their_equation_and_radii_are_known() {
        let mut draw = Draw::new(71);
        for (n, spread) in [(30, 0.9), (500, 0.7), (500, 1.6)] {
            let disc: Mat<f64> = Scale(spread / (n as f64).sqrt()) * draw.matrix(n);
            // A leading eigenvalue outside the disc.
            let m = Mat::from_fn(n, n, |i, j| disc[(i, j)] + 0.95 / n as f64);
            let source = draw.vector(n);
            let solved = gmres(&m, &source, &draw.vector(n)).unwrap();
            let mut image = vec![0.0; n];
            LinearMap::apply(&m, &solved.x, &mut image);
            let error = (0..n).map(|i| (solved.x[i] - image[i] - source[i]).abs()).fold(0.0, f64::max);
            assert!(error < 1e-9, "{n}: {error}");
            let radius = linalg::spectral_radius(&m).unwrap();
            assert!((solved.radius - radius).abs() < 1e-6 * radius, "{n}: {} {radius}", solved.radius);
        }
        assert_eq!(gmres(&draw.matrix(3), &[0.0; 3], &[1.0; 3]).unwrap().x, [0.0; 3]);
    }
}
