//! The error of LSTD and of ridge regression from sums that are released once with noise.

use fedsa::error::{Error, Result, require};
use fedsa::linalg::{self, Mat};

/// The noise of a released matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixNoise {
    /// Independent in all entries (LSTD).
    Independent,
    /// Of a symmetric matrix released as `svec`, the same variance in each of its numbers: off-diagonal entries have half of it.
    Symmetric,
}

/// The solution of `(A + l I) theta = b` from sums (or means) A and b that are released once with noise.
#[derive(Debug, Clone)]
pub struct OneRelease {
    /// A, d x d, without noise.
    pub a: Mat<f64>,
    /// b, d numbers, without noise.
    pub b: Vec<f64>,
    /// Where the noise of A is.
    pub kind: MatrixNoise,
    /// `s_A`: its standard deviation in each released number.
    pub matrix_noise: f64,
    /// `s_b`: the standard deviation of the noise in each component of b. With sums (A, c b) it is `s_A / c`, and `s_A / sqrt 2` where A
    /// and b are parts of one `svec`.
    pub vector_noise: f64,
}

/// The predicted error of one release.
#[derive(Debug, Clone, PartialEq)]
pub struct OneReleaseError {
    /// The ridge l.
    pub ridge: f64,
    /// `E theta - theta*` (d): by the ridge, and to second order by the noise of A.
    pub bias: Vec<f64>,
    /// The variance, summed over components.
    pub variance: f64,
    /// The size of the noise of A in relation to A: `2 s_A sqrt(d) |M|`, with `svec` `sqrt 2 s_A sqrt(d) |M|`. The error is within 6 %
    /// below 0.35, and not predicted above 1.
    pub spread: f64,
}

impl OneReleaseError {
    /// The mean-square error.
    pub fn mse(&self) -> f64 {
        linalg::norm_sq(&self.bias) + self.variance
    }
}

impl OneRelease {
    /// The error at ridge l, to second order in the noise. With `M = (A + l I)^-1` and `theta_l = M b`:
    ///
    /// ```text
    /// independent:  V = (s_b^2 + s_A^2 |theta_l|^2) tr M M^T                                    b2 = s_A^2 M M^T theta_l
    /// svec:         V = tr M [s_A^2 (|theta_l|^2 I + theta_l theta_l^T) / 2 + s_b^2 I] M^T      b2 = s_A^2 / 2 M (tr(M) I + M^T) theta_l
    /// E |theta - theta*|^2 = |theta_l - theta* + b2|^2 + V
    /// ```
    ///
    /// # Errors
    /// When a matrix is singular, the ridge is negative, or the noise of A is so large that the error has no such expansion.
    pub fn error(&self, ridge: f64) -> Result<OneReleaseError> {
        require(ridge >= 0.0 && ridge.is_finite(), "ridge", ridge, "at least 0")?;
        self.with_root(&linalg::solve(&self.a, &self.b)?, ridge)
    }

    fn with_root(&self, root: &[f64], ridge: f64) -> Result<OneReleaseError> {
        let d = self.b.len();
        let identity = Mat::<f64>::identity(d, d);
        let with_ridge = Mat::from_fn(d, d, |i, j| self.a[(i, j)] + if i == j { ridge } else { 0.0 });
        let m = linalg::solve_columns(&with_ridge, &identity)?;
        let theta = linalg::mat_vec(&m, &self.b);
        let (of_a, of_b) = (self.matrix_noise.powi(2), self.vector_noise.powi(2));
        let (size, trace) = (linalg::norm_sq(&theta), m.squared_norm_l2());
        let turned = linalg::mat_vec(&m.transpose().to_owned(), &theta);
        let (variance, inner, factor) = match self.kind {
            MatrixNoise::Independent => ((of_b + of_a * size) * trace, turned.iter().map(|x| of_a * x).collect::<Vec<f64>>(), 2.0),
            MatrixNoise::Symmetric => {
                let along = linalg::norm_sq(&linalg::mat_vec(&m, &theta));
                let of_trace: f64 = (0..d).map(|i| m[(i, i)]).sum();
                let inner = turned.iter().zip(&theta).map(|(turned, theta)| 0.5 * of_a * (of_trace * theta + turned)).collect();
                (0.5 * of_a * (size * trace + along) + of_b * trace, inner, std::f64::consts::SQRT_2)
            }
        };
        let spread = factor * self.matrix_noise * (d as f64).sqrt() * linalg::norm2(&m);
        if !(spread <= 1.0) {
            let what = format!("the noise of the released matrix is {spread:.2} times what would make it singular");
            return Err(Error::not_known("", what, "more rows, a larger `epsilon`, or a larger ridge"));
        }
        let second = linalg::mat_vec(&m, &inner);
        let bias = theta.iter().zip(root).zip(second).map(|((theta, root), second)| theta - root + second).collect();
        Ok(OneReleaseError { ridge, bias, variance, spread })
    }

    /// The ridge of the least predicted error. Under privacy, A and b must then be the released ones: what the true ones say about the
    /// ridge would be disclosed. For `A = a I` it is about `d (s_b^2 + s_A^2 |theta|^2) / (a |theta|^2)`.
    ///
    /// # Errors
    /// When no ridge has a predicted error.
    pub fn best_ridge(&self) -> Result<OneReleaseError> {
        let root = linalg::solve(&self.a, &self.b)?;
        let scale = linalg::norm2(&self.a);
        let at = |log: f64| self.with_root(&root, scale * log.exp());
        let score = |log: f64| at(log).map_or(f64::INFINITY, |of| of.mse());
        // From 1e-9 to 1e3 times the size of A, then between the neighbours of the best.
        let (low, high, step) = (-21.0, 7.0, 0.25);
        let count = ((high - low) / step) as usize;
        let grid = (0..=count).map(|k| low + step * k as f64);
        let best = grid.min_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap_or(low);
        let (mut from, mut to) = (best - step, best + step);
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        for _ in 0..40 {
            let (left, right) = (to - GOLDEN * (to - from), from + GOLDEN * (to - from));
            if score(left) <= score(right) {
                to = right;
            } else {
                from = left;
            }
        }
        let found = at(0.5 * (from + to))?;
        // No ridge at all may be as good.
        Ok(match self.with_root(&root, 0.0) {
            Ok(without) if without.mse() <= found.mse() => without,
            _ => found,
        })
    }
}
