//! Local phases of one agent: the map from second moments at a round's start to the end, split by the state of the agent's chain.

use faer::prelude::*;

use super::steps::{PhaseSteps, SplitMoments};
use crate::symmetric::{pack, packed_index, packed_len};
use crate::work;
use fedsa::linalg::Mat;

/// Moments at the end of a local phase, for each state j of the chain at that time.
pub struct Ends {
    /// `E[end end^T 1{s_H = j}]`, d x d.
    pub ends: Vec<Mat<f64>>,
    /// `E[end y^T 1{s_H = j}]`, d x m.
    pub with: Vec<Mat<f64>>,
}

/// The random affine map Pi of one agent's round, from x (n numbers) to the end of its local phase (d numbers).
pub trait ClosurePhase: Send + Sync {
    /// The number n of components of x.
    fn start(&self) -> usize;

    /// The moments at the end of the local phase. `second[i]` is `E[x x^T 1{s_0 = i}]` (n x n), `with[i]` is
    /// `E[x y^T 1{s_0 = i}]` (n x m) for any y that is constant within the local phase.
    fn run(&self, second: &[MatRef<'_, f64>], with: &[MatRef<'_, f64>]) -> Ends;
}

/// H steps from `x = (u, e)`.
pub struct PlainPhase {
    pub steps: PhaseSteps,
    pub count: u64,
}

impl ClosurePhase for PlainPhase {
    fn start(&self) -> usize {
        self.steps.dim + self.steps.drift
    }

    fn run(&self, second: &[MatRef<'_, f64>], with: &[MatRef<'_, f64>]) -> Ends {
        let (d, e) = (self.steps.dim, self.steps.drift);
        let mut start = SplitMoments::zeros(&self.steps, e + with[0].ncols());
        for (i, (second, with)) in second.iter().zip(with).enumerate() {
            let mut u = start.u_mut(i);
            u.rb_mut().get_mut(.., ..d + e).copy_from(second.get(..d, ..));
            u.get_mut(.., d + e..).copy_from(with.get(..d, ..));
            let mut fixed = start.e_mut(i);
            fixed.rb_mut().get_mut(.., ..e).copy_from(second.get(d.., d..));
            fixed.get_mut(.., e..).copy_from(with.get(d.., ..));
        }
        let end = self.steps.run(self.count, start);
        let of = |first: usize, last: usize| (0..self.steps.states).map(|j| end.u(j).get(.., first..last).to_owned()).collect();
        Ends { ends: of(0, d), with: of(d + e, d + e + with[0].ncols()) }
    }
}

/// The effect of a local phase on second moments when its chain starts from the stationary law.
pub struct Stationary {
    /// `E[Pi 1{s_H = j}]`, d x n.
    pub by_state: Vec<Mat<f64>>,
    /// `E Pi`, d x n.
    pub mean: Mat<f64>,
    /// `E[Pi (x) Pi] - E Pi (x) E Pi`, packed d x packed n.
    pub covariance: Mat<f64>,
}

impl Stationary {
    /// Runs the local phase from each of the `n (n + 1) / 2` second moments of a basis.
    pub fn new(phase: &dyn ClosurePhase, law: &[f64]) -> Self {
        let n = phase.start();
        let identity = Mat::<f64>::identity(n, n);
        let shares: Vec<Mat<f64>> = law.iter().map(|p| Scale(*p) * &identity).collect();
        let by_state = phase.run(&refs(&shares), &refs(&shares)).with;
        let mean = by_state.iter().fold(Mat::zeros(by_state[0].nrows(), n), |sum: Mat<f64>, f| sum + f);
        let covariance = packed_map(n, mean.nrows(), |basis| {
            let split: Vec<Mat<f64>> = law.iter().map(|p| Scale(*p) * basis).collect();
            let none: Vec<MatRef<'_, f64>> = split.iter().map(|s| s.subcols(0, 0)).collect();
            let ends = phase.run(&refs(&split), &none).ends;
            ends.iter().fold(Scale(-1.0) * (&mean * basis * mean.transpose()), |sum, end| sum + end)
        });
        Self { by_state, mean, covariance }
    }
}

/// The matrix (packed m x packed n) of a linear map from symmetric n x n to symmetric m x m matrices.
pub fn packed_map(n: usize, m: usize, map: impl Fn(&Mat<f64>) -> Mat<f64>) -> Mat<f64> {
    let mut out = Mat::<f64>::zeros(packed_len(m), packed_len(n));
    for j in 0..n {
        for i in 0..=j {
            // A cancelled result is not used.
            if work::is_cancelled() {
                return out;
            }
            let mut basis = Mat::<f64>::zeros(n, n);
            (basis[(i, j)], basis[(j, i)]) = (1.0, 1.0);
            let image = map(&basis);
            let column = pack(m, |a, b| 0.5 * (image[(a, b)] + image[(b, a)]));
            out.col_as_slice_mut(packed_index(i, j)).copy_from_slice(&column);
        }
    }
    out
}

/// The symmetric n x n matrix of packed numbers.
pub fn unpack(n: usize, packed: &[f64]) -> Mat<f64> {
    Mat::from_fn(n, n, |i, j| packed[packed_index(i, j)])
}

/// Views of matrices.
pub fn refs(matrices: &[Mat<f64>]) -> Vec<MatRef<'_, f64>> {
    matrices.iter().map(Mat::as_ref).collect()
}
