//! Facts about regression: laws of samples, roots, moduli, and linear operators of least squares.

use faer::Mat;

use super::loss::{Bends, RowLosses};
use super::{Regression, gram};
use crate::index_chain;
use fedsa::cancel::Cancel;
use fedsa::linalg;
use fedsa::parallel;
use fedsa::privacy::unit::ClippedUnits;
use fedsa::problem::Problem;
use fedsa::problem::facts::{Facts, Monotone, least_eigenvalue};
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::linear_operators::LinearOperators;
use fedsa::problem::objective::Objective;
use fedsa::problem::root::{MAX_DIM, Root, RootSource};
use fedsa::problem::systems::Systems;
use fedsa::sampling::Law;

/// The most rows of a nonlinear agent for which independent draws are also represented as a chain.
const MAX_INDEPENDENT_MOVES: usize = 128;

impl<L: RowLosses> Facts for Regression<L> {
    fn systems(&self) -> Option<&Systems> {
        self.systems.as_ref()
    }
    fn linear_operators(&self) -> Option<&dyn LinearOperators> {
        L::IS_LINEAR.then_some(self as &dyn LinearOperators)
    }
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
    fn own_root(&self, cancel: &Cancel) -> Option<Result<Root, String>> {
        let p = self.dim();
        if p > MAX_DIM {
            return Some(Err(format!("theta has {p} components, and Newton's method is used up to {MAX_DIM}")));
        }
        let source = if L::IS_LINEAR { RootSource::Linear } else { RootSource::Newton };
        Some(self.optimum(cancel).map(|theta| Root { theta, source }).map_err(|why| why.what))
    }
    fn clipped_units(&self, c: usize) -> Option<ClippedUnits> {
        Some(ClippedUnits { clip: self.parts.clip?, rows: self.range(c).len() as u64 })
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        let (first, n, d) = (self.parts.first[c], self.range(c).len(), self.dim());
        let is_markov = self.sampling.kind == Law::Markov;
        if is_markov && n > index_chain::MAX_STATES && self.parts.mixing_time > 1.0 {
            return None;
        }
        // The number of moves is the square of the number of rows, so independent draws form a chain only if it is small.
        let is_chain = if is_markov { n <= index_chain::MAX_STATES } else { !L::IS_LINEAR && n <= MAX_INDEPENDENT_MOVES };
        let (mass, chain) = match is_chain.then(|| self.index[c].moves()) {
            Some((mass, chain)) => (mass, Some(chain)),
            None => (vec![1.0 / n as f64; n], None),
        };
        let row = move |z: usize| first + if is_chain { z / n } else { z };
        let law = if L::IS_LINEAR {
            FiniteLaw::linear(d, mass, move |z, a, b| {
                let j = row(z);
                a.fill(0.0);
                b.fill(0.0);
                for (i, x) in self.parts.rows.row(j) {
                    self.parts.rows.row(j).for_each(|(k, y)| a[i * d + k] = x * y);
                    b[i] = -self.parts.offsets[j] * x;
                }
                (0..self.parts.penalised).for_each(|i| a[i * d + i] += self.parts.ridge);
            })
        } else {
            FiniteLaw::new(d, mass, move |z, theta, out| self.apply(c, theta, &row(z), out))
        };
        Some(match chain {
            Some(chain) => law.with_chain(chain),
            None => law,
        })
    }
    /// For logistic losses the modulus is the ridge; 0 certifies nothing. For least squares it is the least eigenvalue of the mean Hessian.
    /// A bound of `l''` times an agent's Gram matrix gives its Lipschitz constant; families have none.
    fn monotone(&self) -> Option<Monotone> {
        let (d, most) = (self.d(), self.loss.most_bend()?);
        if d > MAX_DIM {
            return None;
        }
        let top = |c: usize| {
            let range = self.range(c);
            let mut gram = Mat::zeros(d, d);
            gram::gram(&self.parts.rows, range.clone(), &vec![most / range.len() as f64; range.len()], &mut gram);
            self.add_ridge(&mut gram);
            linalg::norm2_bound(&gram)
        };
        let lipschitz = parallel::map(self.agents(), top).into_iter().fold(0.0, f64::max);
        let modulus = if L::IS_LINEAR {
            let mut mean = Mat::zeros(d, d);
            self.mean_hessian(None, Bends::Exact, &mut mean);
            least_eigenvalue(&mean)?
        } else if self.parts.penalised == d {
            self.parts.ridge
        } else {
            0.0
        };
        Monotone::of(modulus, lipschitz)
    }
    /// Two products with each row, an update of all components, and an exponential, which takes as long as some 20 multiplications.
    fn step_work(&self) -> Option<usize> {
        let rows = if self.sampling.kind == Law::Mean { self.parts.rows.len().div_ceil(self.agents()) } else { 1 };
        let stored = self.parts.rows.stored().div_ceil(self.parts.rows.len());
        Some(self.outputs() * rows * (2 * stored + 20) + self.dim())
    }
}

/// The operators of least squares, `A_c = H_c` and `b_c = (1/n_c) sum_j y_j x_j`.
impl<L: RowLosses> LinearOperators for Regression<L> {
    fn product(&self, c: usize, q: &[f64], out: &mut [f64]) {
        self.hessian_vector(c, q, q, out);
    }
    fn offset(&self, c: usize, out: &mut [f64]) {
        self.mean_product(c, out);
    }
    fn entries(&self, c: usize, see: &mut dyn FnMut(usize, usize, f64)) {
        let d = self.d();
        let mut a = Mat::zeros(d, d);
        self.hessian(c, &vec![0.0; d], &mut a);
        for i in 0..d {
            (0..d).filter(|j| a[(i, *j)] != 0.0).for_each(|j| see(i, j, a[(i, j)]));
        }
    }
}
