//! A linear map given by its action: spectral radius and trajectory.
//!
//! Small maps are converted to matrices; large maps are only applied to vectors.

use crate::phase::power_and_sum;
use crate::work;
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};

/// A real linear map of a state: one noiseless round of a method, or one
/// round of its second moments.
pub trait LinearMap: Send + Sync {
    /// The dimension of the state.
    fn dim(&self) -> usize;

    /// `out = map(x)`, both of length [`dim`](LinearMap::dim).
    fn apply(&self, x: &[f64], out: &mut [f64]);

    /// The approximate nanoseconds of an application on one core, in multiplications ([`crate::work`]).
    fn work(&self) -> f64 {
        (self.dim() as f64).powi(2)
    }

    /// As [`LinearMap::work`], for [`LinearMap::to_matrix`].
    fn matrix_work(&self) -> f64 {
        self.dim() as f64 * self.work()
    }

    /// The map as a matrix, column by column.
    fn to_matrix(&self) -> Mat<f64> {
        let n = self.dim();
        let mut matrix = Mat::<f64>::zeros(n, n);
        let mut unit = vec![0.0; n];
        for j in 0..n {
            unit[j] = 1.0;
            self.apply(&unit, matrix.col_as_slice_mut(j));
            unit[j] = 0.0;
        }
        matrix
    }
}

impl LinearMap for Mat<f64> {
    fn dim(&self) -> usize {
        self.nrows()
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for (j, xj) in x.iter().enumerate() {
            for (o, m) in out.iter_mut().zip(self.col_as_slice(j)) {
                *o += m * xj;
            }
        }
    }

    fn matrix_work(&self) -> f64 {
        self.work()
    }

    fn to_matrix(&self) -> Mat<f64> {
        self.clone()
    }
}

/// Up to this dimension, maps become dense matrices.
pub(crate) const DENSE: usize = 250;
/// Up to this dimension, maps become dense matrices if Krylov methods fail.
const DENSE_FALLBACK: usize = 2000;
/// The largest Krylov space, in vectors and in numbers.
const KRYLOV: usize = 300;
const KRYLOV_NUMBERS: usize = 1 << 26;
/// The residual `||map v - lambda v|| / |lambda|` at which an eigenvalue counts as found.
const EIGEN_TOLERANCE: f64 = 1e-10;
/// A map that multiplies the norm of a vector by more than this counts as unstable, because rounding errors would exceed
/// every bound.
const OVERFLOW: f64 = 1e100;

/// The largest modulus of the map's eigenvalues; infinite when the map overflows.
///
/// Computed with a dense matrix up to dimension 250. Larger maps use Arnoldi iteration from a fixed generic start, with
/// full reorthogonalisation and without restarts; the result is accepted if the residual of the leading Ritz pair is below
/// 1e-10 of its modulus. If it is not within 300 vectors, a dense matrix is used up to dimension 2000.
///
/// # Errors
/// When the leading eigenvalue of a larger map does not converge.
pub fn spectral_radius(map: &dyn LinearMap) -> Result<f64> {
    spectral_radius_within(map, 0.0, f64::INFINITY).map(|(radius, _)| radius)
}

/// Multiplications for the eigenvalues of a dense matrix, divided by the cube of its dimension.
pub(crate) const EIGENVALUES: f64 = 12.0;

/// [`spectral_radius`] within about `most` multiplications, and the number used. One application of the map takes `apply` of them.
///
/// # Errors
/// As [`spectral_radius`], and when it would take more.
pub(crate) fn spectral_radius_within(map: &dyn LinearMap, apply: f64, most: f64) -> Result<(f64, f64)> {
    let n = map.dim();
    let mut work = 0.0;
    if n > DENSE {
        let space = KRYLOV.min(KRYLOV_NUMBERS / n);
        let mut limit = Ok(());
        if let Some(radius) = arnoldi_radius(map, space, &mut |own| {
            work += own + apply;
            limit = work::charge(own + map.work());
            work <= most && limit.is_ok()
        }) {
            return Ok((radius, work));
        }
        limit?;
        if n > DENSE_FALLBACK && work <= most {
            return Err(Error::not_known(
                "",
                format!("the leading eigenvalue of a map of dimension {n} did not converge in {space} Arnoldi steps"),
                "fewer distinct agents, or a step size and number of local steps with a wider spectrum",
            ));
        }
    }
    work += n as f64 * apply + EIGENVALUES * (n as f64).powi(3);
    if work > most {
        let what = format!("not computed: the leading eigenvalue of a map of dimension {n} takes too long");
        return Err(Error::not_known("", what, "fewer distinct agents or features"));
    }
    // Measured from n = 36 to 210, with a linear system of the same size.
    let eigenvalues = |n: f64| n.powi(3) + 150.0 * n.powi(2);
    work::charge(map.matrix_work() + eigenvalues(n as f64))?;
    let matrix = map.to_matrix();
    let is_usual = matrix.is_all_finite() && matrix.norm_max() < OVERFLOW;
    let radius = if is_usual { work::dense(eigenvalues(n as f64), move || linalg::spectral_radius(&matrix))?? } else { f64::INFINITY };
    Ok((radius, work))
}

/// A fixed generic vector of unit norm: `frac(k phi) - 1/2`, scaled, where phi is the golden ratio.
fn generic_vector(n: usize) -> Vec<f64> {
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let v: Vec<f64> = (1..=n).map(|k| (k as f64 * golden).fract() - 0.5).collect();
    let norm = linalg::norm_sq(&v).sqrt();
    v.into_iter().map(|x| x / norm).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The modulus of the leading eigenvalue by Arnoldi iteration in at most `space` dimensions; `None` if it has not converged. Every step
/// passes its multiplications, without the map's own, to `goes_on`; the iteration ends where this returns false.
///
/// faer's Krylov-Schur (0.24.4) is not used, because it does not return when the Krylov space is exhausted (for SCAFFLSA with one local
/// step, after d + 1 vectors).
fn arnoldi_radius(map: &dyn LinearMap, space: usize, goes_on: &mut dyn FnMut(f64) -> bool) -> Option<f64> {
    let n = map.dim();
    let mut basis = vec![generic_vector(n)];
    let mut hessenberg = Mat::<f64>::zeros(space + 1, space);
    let mut w = vec![0.0; n];
    for j in 0..space {
        let looks = (j + 1) % 20 == 0 || j + 1 == space;
        // Two products and two sums with each vector of the basis, and sometimes the eigenvectors of the small matrix.
        let size = (j + 1) as f64;
        if !goes_on(4.0 * size * n as f64 + if looks { 2.0 * EIGENVALUES * size.powi(3) } else { 0.0 }) {
            return None;
        }
        map.apply(&basis[j], &mut w);
        let stretch = linalg::norm_sq(&w).sqrt();
        if stretch.is_nan() || stretch > OVERFLOW {
            return Some(f64::INFINITY);
        }
        // Gram-Schmidt, twice for orthogonality to rounding.
        for _ in 0..2 {
            for (i, v) in basis.iter().enumerate() {
                let h = dot(v, &w);
                hessenberg[(i, j)] += h;
                w.iter_mut().zip(v).for_each(|(w, v)| *w -= h * v);
            }
        }
        let rest = linalg::norm_sq(&w).sqrt();
        let exhausted = rest <= f64::EPSILON * stretch;
        if exhausted || looks {
            let (modulus, last) = leading_ritz(&hessenberg.get(..j + 1, ..j + 1).to_owned())?;
            if exhausted || rest * last <= EIGEN_TOLERANCE * modulus {
                return Some(modulus);
            }
        }
        hessenberg[(j + 1, j)] = rest;
        basis.push(w.iter().map(|x| x / rest).collect());
    }
    None
}

/// The largest modulus of a matrix's eigenvalues, and the modulus of the last component of the unit eigenvector.
fn leading_ritz(h: &Mat<f64>) -> Option<(f64, f64)> {
    let eigen = h.eigen().ok()?;
    let values = eigen.S().column_vector();
    let lead = (0..h.nrows()).max_by(|i, j| values[*i].norm().total_cmp(&values[*j].norm()))?;
    let vector = eigen.U().col(lead);
    Some((values[lead].norm(), vector[h.nrows() - 1].norm() / vector.norm_l2()))
}

/// Calls `see` with the state `map^t(start)` for each t of `rounds`, in order.
///
/// The map is applied round by round. A gap of more rounds than the dimension (up to 1000) is crossed with a power of the
/// map's matrix.
///
/// # Errors
/// When the rounds are not in ascending order, or take more work than [`crate::work::within`] allows.
pub fn at_rounds(map: &dyn LinearMap, start: Vec<f64>, rounds: &[u64], mut see: impl FnMut(&[f64])) -> Result<()> {
    if !rounds.is_sorted() {
        return Err(Error::new("rounds", "rounds that are not in ascending order", "ascending round numbers"));
    }
    let mut state = start;
    let mut next = vec![0.0; map.dim()];
    let mut matrix: Option<Mat<f64>> = None;
    let mut leap: Option<(u64, Mat<f64>)> = None;
    let mut now = 0;
    for &round in rounds {
        let gap = round - now;
        if gap > map.dim() as u64 && map.dim() <= 1000 {
            if leap.as_ref().is_none_or(|(length, _)| *length != gap) {
                let n = map.dim() as f64;
                let columns = if matrix.is_none() { n * map.work() } else { 0.0 };
                // Two products in each doubling, at about four multiplications a nanosecond.
                work::charge(columns + 0.5 * n.powi(3) * (gap as f64).log2().ceil())?;
                let matrix = matrix.get_or_insert_with(|| map.to_matrix());
                leap = Some((gap, power_and_sum(matrix, gap).0));
            }
            if let Some((_, power)) = &leap {
                power.apply(&state, &mut next);
                std::mem::swap(&mut state, &mut next);
            }
        } else {
            for _ in 0..gap {
                work::charge(map.work())?;
                map.apply(&state, &mut next);
                std::mem::swap(&mut state, &mut next);
            }
        }
        now = round;
        see(&state);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use faer::Scale;

    use super::*;
    use crate::testing::Draw;

    /// A map of which only the action is known.
    struct Hidden(Mat<f64>);

    impl LinearMap for Hidden {
        fn dim(&self) -> usize {
            self.0.nrows()
        }
        fn apply(&self, x: &[f64], out: &mut [f64]) {
            self.0.apply(x, out);
        }
    }

    #[test]
    fn arnoldi_agrees_with_the_dense_eigenvalues() {
        let mut draw = Draw::new(3);
        for n in [300, 400] {
            // Complex leading pairs, and a real leading value above the disc of the others.
            let disc = Scale(1.0 / (n as f64).sqrt()) * draw.matrix(n);
            let lifted = Mat::from_fn(n, n, |i, j| disc[(i, j)] + 2.0 / n as f64);
            for m in [disc, lifted] {
                let dense = linalg::spectral_radius(&m).unwrap();
                let krylov = spectral_radius(&Hidden(m)).unwrap();
                assert!((dense - krylov).abs() < 1e-9 * dense, "{dense} {krylov}");
            }
        }
    }

    #[test]
    fn radii_take_the_work_that_they_say() {
        let mut draw = Draw::new(6);
        for n in [20, 400] {
            let m = Hidden(Scale(1.0 / (n as f64).sqrt()) * draw.matrix(n));
            let (radius, work) = spectral_radius_within(&m, 5.0, f64::INFINITY).unwrap();
            assert_eq!(radius, spectral_radius(&m).unwrap());
            // The same budget gives the same result. A smaller one is rejected, or the caller falls back to something cheaper.
            assert_eq!(spectral_radius_within(&m, 5.0, work).unwrap(), (radius, work));
            assert!(spectral_radius_within(&m, 5.0, 0.9 * work).unwrap_err().what.contains("takes too long"));
        }
    }

    #[test]
    fn arnoldi_survives_an_exhausted_space() {
        let low_rank = Mat::from_fn(300, 300, |i, _| if i == 0 { 0.5 } else { 0.0 });
        assert!((spectral_radius(&Hidden(low_rank)).unwrap() - 0.5).abs() < 1e-12);
        assert!(spectral_radius(&Hidden(Mat::zeros(300, 300))).unwrap().abs() < 1e-12);
    }

    #[test]
    fn overflow_is_an_infinite_radius() {
        for n in [3, 300] {
            for entry in [1e200, f64::INFINITY, f64::NAN] {
                assert_eq!(spectral_radius(&Mat::full(n, n, entry)).unwrap(), f64::INFINITY, "{n} {entry}");
            }
        }
    }

    #[test]
    fn leaps_land_where_steps_do() {
        let mut draw = Draw::new(5);
        let m = Hidden(Scale(0.4) * draw.matrix(5));
        let start = draw.vector(5);
        let far = [0, 3, 13, 23, 23, 100];
        let mut leaps = Vec::new();
        at_rounds(&m, start.clone(), &far, |x| leaps.push(x.to_vec())).unwrap();
        let mut steps = Vec::new();
        at_rounds(&m, start, &(0..=100).collect::<Vec<_>>(), |x| steps.push(x.to_vec())).unwrap();
        for (t, x) in far.iter().zip(&leaps) {
            assert!(linalg::distance_sq(x, &steps[*t as usize]) < 1e-28);
        }
        assert!(at_rounds(&m, vec![0.0; 5], &[3, 1], |_| {}).is_err());
    }
}
