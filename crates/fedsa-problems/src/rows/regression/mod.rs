//! Regression and classification: losses of linear predictions on the agents' rows, with a ridge.
//!
//! Agent c holds `n_c` rows `x_j` in R^d. A row has a loss `l_j` of its q margins `t_j`, convex in each of the bundled families ([`loss`]).
//! With the ridge mu:
//!
//! ```text
//! f_c(theta)     = (1/n_c) sum_j l_j(t_j(theta)) + (mu/2) ||theta||^2,    t_jk = x_j^T theta_k + o_j
//! g_c(theta, j)  = -dl_j/dt_k x_j - mu theta_k                             in block k
//! gbar_c(theta)  = -grad f_c(theta)
//! H_c(theta)     = (1/n_c) sum_j d^2 l_j/dt_k dt_l x_j x_j^T + mu I        in block (k, l)
//! ```
//!
//! (\[T\] eq. 2.2 with the losses below it.) theta has a block of d numbers for each margin of a row. Logistic regression multiplies rows
//! by their labels in {-1, 1}; least squares has `o_j = -y_j`. The losses of these two are the same for all rows. Families of generalised
//! linear models have targets and weights of rows.
//!
//! One type is both a sampled operator, with row indices as samples, and an objective. Rows are dense or sparse; sampled operators,
//! gradients and losses have the same bits for both. The ridge may exempt a column of ones.

mod facts;
mod family_losses;
pub mod gram;
pub mod loss;
mod objective;
mod optimum;
mod passes;
mod pattern;
mod seen;
mod settings;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

use faer::Mat;

use crate::kernel::margins;
use crate::kernel::unit_rows::UnitRows;
use crate::lazy_index::LazyIndex;
use crate::rows::dataset::Rows;
use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::privacy::unit::UnitClip;
use fedsa::problem::Problem;
use fedsa::problem::facts::Facts;
use fedsa::problem::objective::Objective;
use fedsa::problem::systems::{System, Systems};
use fedsa::random::Stream;
use fedsa::sampling::Sampling;
use loss::{Bends, RowLosses};
use pattern::Pattern;
use seen::{Seen, SeenPoints};

pub use settings::{GeneralisedLinear, LeastSquares, Logistic};

/// The rows of all agents, with other data that determine their losses.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The rows of all agents, one agent after the other; for logistic regression, multiplied by their labels.
    pub rows: Rows,
    /// The first row of each agent, then the number of rows; N + 1 numbers.
    pub first: Vec<usize>,
    /// `o_j` of each row, added to its products with theta; empty if all are 0.
    pub offsets: Vec<f64>,
    /// The ridge mu.
    pub ridge: f64,
    /// The number of first columns with the ridge: d, or d - 1 if the last column of ones is exempt.
    pub penalised: usize,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The mixing time of the index along a trajectory.
    pub mixing_time: f64,
    /// How rows are shortened already, for privacy.
    pub clip: Option<UnitClip>,
}

/// Regression with losses L.
#[derive(Debug)]
pub(crate) struct Regression<L> {
    parts: Parts,
    loss: L,
    index: Vec<LazyIndex>,
    sampling: Sampling,
    isa: Isa,
    /// The mean operators of least squares, if their matrices are small enough to keep.
    systems: Option<Systems>,
    /// The possibly non-zero entries of the agents' Hessians; computed on demand.
    patterns: Vec<OnceLock<Pattern>>,
    /// The number of matrices formed so far for each agent whose rows can be listed.
    formed: Vec<AtomicU32>,
    points: SeenPoints,
    /// A copy of the rows, if every number of a row is 1, or every number -1.
    units: Option<UnitRows>,
}

/// The most numbers of the agents' matrices that least squares keeps.
const MAX_IN_SYSTEMS: f64 = 3e7;

/// After this many Hessians of an agent with binary rows, possibly all of a run, its rows are listed by the entries to which they
/// contribute.
const BEFORE_LISTS: u32 = 16;

/// Whether least squares with these numbers of agents and dimensions keeps linear systems.
fn keeps_systems(agents: usize, d: usize) -> bool {
    agents as f64 * (d as f64).powi(2) <= MAX_IN_SYSTEMS
}

impl<L: RowLosses> Regression<L> {
    /// Joins rows with a sampling.
    ///
    /// # Errors
    /// When the sampling's trajectories cannot start or move, or gradients are not finite because numbers are too large.
    pub fn new(parts: Parts, loss: L, sampling: Sampling, isa: Isa) -> Result<Self> {
        let sizes = parts.first.windows(2).map(|at| at[1] - at[0]);
        let index = sizes.map(|n| LazyIndex::new(n, parts.mixing_time, sampling)).collect::<Result<_>>()?;
        let d = parts.rows.columns();
        let patterns = parts.weights.iter().map(|_| OnceLock::new()).collect();
        let points = SeenPoints::new(&parts.rows, loss.outputs(), parts.weights.len());
        let units = UnitRows::of(&parts.rows, &parts.first);
        let formed = parts.weights.iter().map(|_| AtomicU32::new(0)).collect();
        let mut problem = Self { parts, loss, index, sampling, isa, systems: None, patterns, formed, points, units };
        problem.check_scale()?;
        if L::IS_LINEAR && keeps_systems(problem.agents(), d) {
            problem.systems = Some(problem.linear_systems());
        }
        Ok(problem)
    }

    fn agents(&self) -> usize {
        self.parts.weights.len()
    }

    fn d(&self) -> usize {
        self.parts.rows.columns()
    }

    /// The number of margins of a row.
    #[inline(always)]
    fn outputs(&self) -> usize {
        self.loss.outputs()
    }

    /// The rows of agent `c`.
    fn range(&self, c: usize) -> Range<usize> {
        self.parts.first[c]..self.parts.first[c + 1]
    }

    /// The margin of row `j` with one block of theta.
    #[inline(always)]
    fn margin(&self, j: usize, theta: &[f64]) -> f64 {
        let t = margins::margin(&self.parts.rows, j, theta);
        if self.parts.offsets.is_empty() { t } else { t + self.parts.offsets[j] }
    }

    /// `x_j . theta_k` of the rows of a range, output after output.
    fn row_products(&self, range: Range<usize>, theta: &[f64]) -> Vec<f64> {
        let n = range.len();
        let mut out = vec![0.0; self.outputs() * n];
        for (k, theta) in theta.chunks(self.d()).enumerate() {
            self.products_into(range.clone(), theta, &mut out[k * n..][..n]);
        }
        out
    }

    /// The margins of the rows of a range, output after output.
    fn margins(&self, range: Range<usize>, theta: &[f64]) -> Vec<f64> {
        let mut out = self.row_products(range.clone(), theta);
        self.shift(range, &mut out);
        out
    }

    /// Turns `x_j . theta_k` of the rows of a range into their margins.
    fn shift(&self, range: Range<usize>, products: &mut [f64]) {
        if !self.parts.offsets.is_empty() {
            let offsets = &self.parts.offsets[range];
            products.chunks_mut(offsets.len().max(1)).for_each(|t| t.iter_mut().zip(offsets).for_each(|(t, o)| *t += o));
        }
    }

    /// `out_k += sum_j weights_jk x_j` over the rows of a range, for weights output after output.
    fn combine_all(&self, range: Range<usize>, out: &mut [f64], weights: &[f64]) {
        let n = range.len();
        for (k, out) in out.chunks_mut(self.d()).enumerate() {
            self.combine(range.clone(), out, &weights[k * n..][..n]);
        }
    }

    /// The mean of the losses of an agent's rows with some margins.
    fn mean_of_losses(&self, c: usize, margins: &[f64]) -> f64 {
        let range = self.range(c);
        self.loss.sum(self.isa, range.clone(), margins) / range.len() as f64
    }

    /// `mu/2 ||theta||^2`.
    fn penalty(&self, theta: &[f64]) -> f64 {
        self.parts.ridge / 2.0 * self.penalised_dot(theta, theta)
    }

    /// `a . b` over the components with the ridge.
    fn penalised_dot(&self, a: &[f64], b: &[f64]) -> f64 {
        let parts = a.chunks(self.d()).zip(b.chunks(self.d()));
        parts.flat_map(|(a, b)| a.iter().zip(b).take(self.parts.penalised)).map(|(a, b)| a * b).sum()
    }

    /// Calls `see` with the margins of an agent's rows at theta.
    fn with_margins<R>(&self, c: usize, theta: &[f64], see: impl FnOnce(&[f64]) -> R) -> R {
        let compute = || Seen { theta: theta.to_vec(), margins: self.margins(self.range(c), theta), gradient: None };
        let seen = self.points.take(c, theta).unwrap_or_else(compute);
        let shown = see(&seen.margins);
        self.points.keep(c, seen);
        shown
    }

    /// Writes an agent's gradient at theta, and calls `see` with the margins there.
    fn gradient_with_margins<R>(&self, c: usize, theta: &[f64], out: &mut [f64], see: impl FnOnce(&[f64]) -> R) -> R {
        let mut seen = match self.points.take(c, theta) {
            Some(seen) => {
                match &seen.gradient {
                    Some(known) => out.copy_from_slice(known),
                    None => self.gradient_at(c, theta, &seen.margins, out),
                }
                seen
            }
            None if self.outputs() > 1 => {
                let margins = self.margins(self.range(c), theta);
                self.gradient_at(c, theta, &margins, out);
                Seen { theta: theta.to_vec(), margins, gradient: None }
            }
            None => {
                let mut margins = vec![0.0; self.range(c).len()];
                self.mean_of_rows(c, theta, out, |rows, t| margins[rows].copy_from_slice(t));
                out.iter_mut().for_each(|out| *out = -*out);
                Seen { theta: theta.to_vec(), margins, gradient: None }
            }
        };
        let shown = see(&seen.margins);
        seen.gradient.get_or_insert_with(|| out.to_vec());
        self.points.keep(c, seen);
        shown
    }

    /// An agent's gradient at theta, from the margins there.
    fn gradient_at(&self, c: usize, theta: &[f64], margins: &[f64], out: &mut [f64]) {
        self.mean_at(c, theta, margins.to_vec(), out);
        out.iter_mut().for_each(|out| *out = -*out);
    }

    /// An agent's mean operator at theta, from the margins there.
    fn mean_at(&self, c: usize, theta: &[f64], mut margins: Vec<f64>, out: &mut [f64]) {
        let range = self.range(c);
        self.loss.pulls(self.isa, range.clone(), &mut margins);
        out.fill(0.0);
        self.combine_all(range.clone(), out, &margins);
        self.mean_of_sum(range.len() as f64, theta, out);
    }

    /// The second derivatives of an agent's rows at theta; constant for a linear problem.
    fn bends(&self, c: usize, theta: &[f64]) -> Vec<f64> {
        let range = self.range(c);
        let of = |t: &[f64]| self.loss.bends(self.isa, range.clone(), t, Bends::Useful);
        if L::IS_LINEAR { of(&vec![0.0; range.len()]) } else { self.with_margins(c, theta, of) }
    }

    /// `out = H_c v` from the second derivatives of the agent's rows, for one or several consecutive vectors.
    fn bent_product(&self, c: usize, bends: &[f64], v: &[f64], out: &mut [f64]) {
        let (range, d, q) = (self.range(c), self.d(), self.outputs());
        if self.units.is_none() && q == 1 {
            return self.bent(&self.parts.rows, range, self.parts.penalised, bends, v, out);
        }
        let n = range.len();
        out.fill(0.0);
        for (v, out) in v.chunks(q * d).zip(out.chunks_mut(q * d)) {
            if q == 1 {
                self.pass(range.clone(), v, out, |rows, u| {
                    u.iter_mut().zip(&bends[rows.start - range.start..]).for_each(|(u, bend)| *u *= bend)
                });
                continue;
            }
            let (u, mut weighed) = (self.row_products(range.clone(), v), vec![0.0; q * n]);
            for at in 0..q * q {
                let (bends, u) = (&bends[at * n..][..n], &u[at % q * n..][..n]);
                weighed[at / q * n..][..n].iter_mut().zip(bends).zip(u).for_each(|((to, bend), u)| *to += bend * u);
            }
            self.combine_all(range.clone(), out, &weighed);
        }
        self.finish_bent(n as f64, d, self.parts.penalised, v, out);
    }

    /// The same for some rows of one margin each, with the ridge on the first columns.
    fn bent(&self, rows: &Rows, range: Range<usize>, penalised: usize, bends: &[f64], v: &[f64], out: &mut [f64]) {
        let (first, n) = (range.start, range.len() as f64);
        out.fill(0.0);
        margins::pass_each(self.isa, rows, range, v, out, |rows, u| {
            u.iter_mut().zip(&bends[rows.start - first..]).for_each(|(u, bend)| *u *= bend);
        });
        self.finish_bent(n, rows.columns(), penalised, v, out);
    }

    /// Turns `sum_j l''(t_j) x_j x_j^T v` over n rows of d columns into products with the Hessian, for one vector or several.
    fn finish_bent(&self, n: f64, d: usize, penalised: usize, v: &[f64], out: &mut [f64]) {
        for (v, out) in v.chunks(d).zip(out.chunks_mut(d)) {
            let (penalised, free) = out.split_at_mut(penalised);
            penalised.iter_mut().zip(v).for_each(|(out, v)| *out = *out / n + self.parts.ridge * v);
            free.iter_mut().for_each(|out| *out /= n);
        }
    }

    /// The possibly non-zero entries of the Hessian of an agent with sparse rows; `None` for dense rows, rows of several margins, or a
    /// triangle with more entries than 32 bits number.
    fn pattern(&self, c: usize) -> Option<&Pattern> {
        let is_numbered = self.d() < 1 << 16 && self.outputs() == 1;
        let is_sparse = is_numbered && matches!(self.parts.rows, Rows::Sparse { .. });
        is_sparse.then(|| self.patterns[c].get_or_init(|| Pattern::of(&self.parts.rows, self.range(c))))
    }

    /// Turns `sum_j -l'(t_j) x_j` over the n rows of an agent into its mean operator.
    fn mean_of_sum(&self, n: f64, theta: &[f64], out: &mut [f64]) {
        for (theta, out) in theta.chunks(self.d()).zip(out.chunks_mut(self.d())) {
            let (penalised, free) = out.split_at_mut(self.parts.penalised);
            penalised.iter_mut().zip(theta).for_each(|(out, theta)| *out = *out / n - self.parts.ridge * theta);
            free.iter_mut().for_each(|out| *out /= n);
        }
    }

    /// Adds `mu` to the diagonal of a Hessian.
    fn add_ridge(&self, out: &mut Mat<f64>) {
        for first in (0..out.ncols()).step_by(self.d()) {
            (first..first + self.parts.penalised).for_each(|i| out[(i, i)] += self.parts.ridge);
        }
    }

    /// The mean operator of an agent whose rows have one margin; calls `see` with the margins of consecutive rows, with indices from 0.
    fn mean_of_rows(&self, c: usize, theta: &[f64], out: &mut [f64], mut see: impl FnMut(Range<usize>, &[f64])) {
        let range = self.range(c);
        let (first, n) = (range.start, range.len() as f64);
        out.fill(0.0);
        self.pass(range, theta, out, |rows, t| {
            self.shift(rows.clone(), t);
            see(rows.start - first..rows.end - first, t);
            self.loss.pulls(self.isa, rows, t);
        });
        self.mean_of_sum(n, theta, out);
    }

    /// `b_c = (1/n_c) sum_j y_j x_j` of least squares.
    fn mean_product(&self, c: usize, out: &mut [f64]) {
        let range = self.range(c);
        let n = range.len() as f64;
        out.fill(0.0);
        let targets: Vec<f64> = self.parts.offsets[range.clone()].iter().map(|offset| -offset).collect();
        self.combine(range, out, &targets);
        out.iter_mut().for_each(|out| *out /= n);
    }

    /// `out = pull x_j - mu theta` of one block of theta.
    #[inline(always)]
    fn pulled(&self, j: usize, pull: f64, theta: &[f64], out: &mut [f64]) {
        let Parts { rows, ridge, penalised, .. } = &self.parts;
        match rows {
            Rows::Dense { d, values } => {
                for ((out, x), theta) in out.iter_mut().zip(&values[j * d..][..*d]).zip(theta) {
                    *out = pull * x - ridge * theta;
                }
                for i in *penalised..*d {
                    out[i] = pull * values[j * d + i];
                }
            }
            Rows::Sparse { starts, index, value, .. } => {
                out.iter_mut().zip(theta).for_each(|(out, theta)| *out = 0.0 - ridge * theta);
                out[*penalised..].fill(0.0);
                let at = starts[j]..starts[j + 1];
                for (i, x) in index[at.clone()].iter().zip(&value[at]) {
                    let i = *i as usize;
                    out[i] = if i < *penalised { pull * x - ridge * theta[i] } else { pull * x };
                }
            }
        }
    }

    /// The linear systems of least squares.
    fn linear_systems(&self) -> Systems {
        let d = self.d();
        let system = |c: usize| {
            let (mut a, mut b) = (Mat::zeros(d, d), vec![0.0; d]);
            self.hessian(c, &vec![0.0; d], &mut a);
            self.mean_product(c, &mut b);
            System { a, b }
        };
        let kinds = parallel::map(self.agents(), system);
        Systems::new(kinds, (0..self.agents() as u32).collect(), self.parts.weights.clone())
    }
}

impl<L: RowLosses> Problem for Regression<L> {
    /// The index of a row among all agents' rows.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.outputs() * self.d()
    }
    fn weights(&self) -> &[f64] {
        &self.parts.weights
    }
    fn chain_len(&self) -> usize {
        self.index[0].words()
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.index[c].start(stream, chain);
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.index[c].is_state(chain)
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.parts.first[c] + self.index[c].sample(chain, stream);
    }
    #[inline(always)]
    fn apply(&self, _: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        if self.outputs() == 1 {
            let mut pull = [self.margin(*z, theta)];
            self.loss.pull_of(*z, &mut pull);
            return self.pulled(*z, pull[0], theta, out);
        }
        let d = self.d();
        let mut pulls: Vec<f64> = theta.chunks(d).map(|theta| self.margin(*z, theta)).collect();
        self.loss.pull_of(*z, &mut pulls);
        for ((pull, theta), out) in pulls.iter().zip(theta.chunks(d)).zip(out.chunks_mut(d)) {
            self.pulled(*z, *pull, theta, out);
        }
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        if self.outputs() == 1 {
            self.mean_of_rows(c, theta, out, |_, _| {});
        } else {
            self.mean_at(c, theta, self.margins(self.range(c), theta), out);
        }
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

#[cfg(test)]
mod tests;
