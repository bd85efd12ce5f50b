//! The fixed point of a linear map, which may be too large for a matrix.

use faer::Par;
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::matrix_free::bicgstab::{BicgParams, bicgstab, bicgstab_scratch};
use faer::matrix_free::{IdentityPrecond, InitialGuessStatus, LinOp};
use faer::prelude::*;

use crate::map::{DENSE, LinearMap};
use crate::work;
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};

/// The fixed point `x = map(x) + source`.
///
/// Solved with a dense matrix up to dimension 250. Larger systems are solved with BiCGStab, whose result is accepted only
/// if the residual is at most 1e-11 of the norm of the source.
///
/// # Errors
/// When the map has an eigenvalue (close to) 1, the iteration does not converge, or it takes more work than [`crate::work::within`] allows.
pub fn fixed_point(map: &dyn LinearMap, source: &[f64]) -> Result<Vec<f64>> {
    let n = map.dim();
    if n <= DENSE {
        work::charge(n as f64 * map.work() + (n as f64).powi(3))?;
        return linalg::solve(&(Mat::<f64>::identity(n, n) - map.to_matrix()), source);
    }
    let equation = OneMinus(map);
    let par = Par::Seq;
    let mut memory = MemBuffer::new(bicgstab_scratch(IdentityPrecond { dim: n }, IdentityPrecond { dim: n }, &equation, 1, par));
    let mut x = Mat::<f64>::zeros(n, 1);
    let scale = linalg::norm_sq(source).sqrt();
    let mut residual = f64::INFINITY;
    // A second and a third pass from the last result reduce rounding errors.
    for _ in 0..3 {
        // Two products in each iteration, and about twenty passes over vectors.
        let each = 2.0 * map.work() + 20.0 * n as f64;
        let max_iters = (work::left() / each).clamp(1.0, 1000.0) as usize;
        let params = BicgParams { initial_guess: InitialGuessStatus::MaybeNonZero, rel_tolerance: 1e-13, max_iters, ..Default::default() };
        let ended = bicgstab(
            x.as_mut(),
            IdentityPrecond { dim: n },
            IdentityPrecond { dim: n },
            &equation,
            linalg::column(source).as_ref(),
            params,
            |_| {},
            par,
            MemStack::new(&mut memory),
        );
        let iterations = ended.map_or(max_iters, |info| info.iter_count);
        work::check()?;
        let limit = work::record(iterations as f64 * each + map.work());
        let mut left = Mat::<f64>::zeros(n, 1);
        equation.apply(left.as_mut(), x.as_ref(), par, MemStack::new(&mut memory));
        residual = linalg::distance_sq(left.col_as_slice(0), source).sqrt() / scale;
        if residual <= 1e-11 || scale == 0.0 {
            return Ok(x.col_as_slice(0).to_vec());
        }
        limit?;
    }
    Err(Error::not_known(
        "",
        format!("the fixed point of a map of dimension {n} did not converge (relative residual {residual:.1e})"),
        "a step size further from the edge of stability",
    ))
}

/// `x -> x - map(x)` as an operator of faer.
struct OneMinus<'a>(&'a dyn LinearMap);

impl std::fmt::Debug for OneMinus<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "I - map of dimension {}", self.0.dim())
    }
}

impl LinOp<f64> for OneMinus<'_> {
    fn apply_scratch(&self, _: usize, _: Par) -> StackReq {
        StackReq::EMPTY
    }

    fn nrows(&self) -> usize {
        self.0.dim()
    }

    fn ncols(&self) -> usize {
        self.0.dim()
    }

    fn apply(&self, mut out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, _: Par, _: &mut MemStack) {
        let x: Vec<f64> = rhs.col(0).iter().copied().collect();
        let mut image = vec![0.0; x.len()];
        // After cancellation the remaining iterations cost nothing, and their result is not used.
        if !work::is_cancelled() {
            self.0.apply(&x, &mut image);
        }
        for (i, (x, y)) in x.iter().zip(&image).enumerate() {
            out[(i, 0)] = x - y;
        }
    }

    fn conj_apply(&self, out: MatMut<'_, f64>, rhs: MatRef<'_, f64>, par: Par, stack: &mut MemStack) {
        self.apply(out, rhs, par, stack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Draw;

    #[test]
    fn fixed_points_solve_their_equation() {
        let mut draw = Draw::new(4);
        for n in [20, 400] {
            let m: Mat<f64> = Scale(1.2 / (n as f64).sqrt()) * draw.matrix(n);
            let source = draw.vector(n);
            let x = fixed_point(&m, &source).unwrap();
            let mut image = vec![0.0; n];
            LinearMap::apply(&m, &x, &mut image);
            let error = (0..n).map(|i| (x[i] - image[i] - source[i]).abs()).fold(0.0, f64::max);
            assert!(error < 1e-9, "{error}");
        }
    }
}
