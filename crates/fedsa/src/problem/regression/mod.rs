//! Regression and classification: losses of linear predictions on the agents' rows, with a ridge.
//!
//! Agent c holds `n_c` rows `x_j` in R^d. With a convex loss l of the margin `t_j` ([`loss`]) and the ridge mu
//!
//! ```text
//! f_c(theta)     = (1/n_c) sum_j l(t_j(theta)) + (mu/2) ||theta||^2,    t_j = x_j^T theta - y_j
//! g_c(theta, j)  = -l'(t_j) x_j - mu theta
//! gbar_c(theta)  = -grad f_c(theta)
//! H_c(theta)     = (1/n_c) sum_j l''(t_j) x_j x_j^T + mu I
//! ```
//!
//! (\[T\] eq. 2.2 with the losses below it.) For logistic regression rows are multiplied by their labels in {-1, 1}, and there is no `y_j`.
//! One type is both a sampled operator, a sample being the index of a row, and an objective. Rows are dense or sparse; sampled operators,
//! gradients and losses have the same bits for both.
//!
//! A column of ones may be left out of the ridge.

pub(super) mod gram;
pub mod loss;
mod optimum;
mod passes;
mod pattern;
mod seen;
mod settings;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use faer::Mat;

use super::Problem;
use super::dataset::Rows;
use super::facts::{Facts, Monotone, least_eigenvalue};
use super::law::FiniteLaw;
use super::lazy_index::{self, LazyIndex};
use super::linear_operators::LinearOperators;
use super::objective::{ActiveComponents, HessianProducts, Objective, dense_hessian};
use super::root::{MOST_DIM, Root, RootSource};
use super::systems::{System, Systems};
use crate::cancel::Cancel;
use crate::error::Result;
use crate::kernel::unit_rows::UnitRows;
use crate::kernel::{Isa, margins};
use crate::linalg;
use crate::parallel;
use crate::random::Stream;
use crate::sampling::{Law, Sampling};
use crate::triangle::{Support, entries};
use loss::Loss;
use pattern::Pattern;
use seen::{Seen, SeenPoints};

pub use settings::{GeneralisedLinear, LeastSquares, Logistic};

/// The rows of all agents, with what else decides their losses.
#[derive(Debug)]
pub(super) struct Parts {
    /// The rows of all agents, one agent after the other; for logistic regression multiplied by their labels.
    pub rows: Rows,
    /// Where each agent's rows start; N + 1 numbers.
    pub first: Vec<usize>,
    /// `y_j` of each row where the loss has offsets, otherwise none.
    pub offsets: Vec<f64>,
    /// mu.
    pub ridge: f64,
    /// How many of the first columns the ridge applies to: d, or d - 1, and then the last column is one of ones.
    pub penalised: usize,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The mixing time of the index along a trajectory.
    pub mixing_time: f64,
}

/// Regression with a loss L.
#[derive(Debug)]
pub(super) struct Regression<L> {
    parts: Parts,
    index: Vec<LazyIndex>,
    sampling: Sampling,
    isa: Isa,
    /// The mean operators of least squares where their matrices are small enough to be kept.
    systems: Option<Systems>,
    /// Where the agents' Hessians may differ from 0; computed when it is first asked for.
    patterns: Vec<OnceLock<Pattern>>,
    /// How many matrices of each agent have been formed, of agents whose rows can be listed.
    formed: Vec<AtomicU32>,
    points: SeenPoints,
    /// The rows once more, if every number of a row is 1, or -1.
    units: Option<UnitRows>,
    loss: PhantomData<L>,
}

/// The most numbers of the agents' matrices that least squares keeps.
const MOST_IN_SYSTEMS: f64 = 3e7;

/// After so many Hessians of an agent with binary rows, which may be all, its rows are listed by the entries that they contribute to.
const BEFORE_LISTS: u32 = 16;

/// The most rows of an agent of nonlinear operators for which the law of independent draws is that of a chain too.
const MOST_INDEPENDENT_MOVES: usize = 128;

/// Whether least squares of so many agents and dimensions keeps linear systems.
fn keeps_systems(agents: usize, d: usize) -> bool {
    agents as f64 * (d as f64).powi(2) <= MOST_IN_SYSTEMS
}

impl<L: Loss> Regression<L> {
    /// Joins rows with a sampling.
    ///
    /// # Errors
    /// When the index of a trajectory cannot start or move as it is told, or gradients are not finite because of the size of the numbers.
    pub fn new(parts: Parts, sampling: Sampling, isa: Isa) -> Result<Self> {
        let sizes = parts.first.windows(2).map(|at| at[1] - at[0]);
        let index = sizes.map(|n| LazyIndex::new(n, parts.mixing_time, sampling)).collect::<Result<_>>()?;
        let d = parts.rows.columns();
        let patterns = parts.weights.iter().map(|_| OnceLock::new()).collect();
        let points = SeenPoints::new(&parts.rows, parts.weights.len());
        let units = UnitRows::of(&parts.rows, &parts.first);
        let formed = parts.weights.iter().map(|_| AtomicU32::new(0)).collect();
        let mut problem = Self { parts, index, sampling, isa, systems: None, patterns, formed, points, units, loss: PhantomData };
        problem.check_scale()?;
        if L::HAS_OFFSETS && keeps_systems(problem.agents(), d) {
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

    /// The rows of agent `c`.
    fn range(&self, c: usize) -> Range<usize> {
        self.parts.first[c]..self.parts.first[c + 1]
    }

    /// The margin of row `j` from `x_j . theta`.
    #[inline(always)]
    fn shifted(&self, j: usize, t: f64) -> f64 {
        if L::HAS_OFFSETS { t - self.parts.offsets[j] } else { t }
    }

    /// `x_j . theta` of the rows of a range.
    fn row_products(&self, range: Range<usize>, theta: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; range.len()];
        self.products_into(range, theta, &mut out);
        out
    }

    /// The margins of the rows of a range.
    fn margins(&self, range: Range<usize>, theta: &[f64]) -> Vec<f64> {
        let mut out = self.row_products(range.clone(), theta);
        self.shift(range, &mut out);
        out
    }

    /// Turns `x_j . theta` of the rows of a range into their margins.
    fn shift(&self, range: Range<usize>, products: &mut [f64]) {
        if L::HAS_OFFSETS {
            products.iter_mut().zip(&self.parts.offsets[range]).for_each(|(t, y)| *t -= y);
        }
    }

    /// The mean of l over some margins.
    fn mean_of_losses(&self, margins: &[f64]) -> f64 {
        margins::sum(self.isa, margins, L::value) / margins.len() as f64
    }

    /// `mu/2 ||theta||^2`.
    fn penalty(&self, theta: &[f64]) -> f64 {
        self.parts.ridge / 2.0 * linalg::norm_sq(&theta[..self.parts.penalised])
    }

    /// Shows the margins of an agent's rows at theta.
    fn with_margins<R>(&self, c: usize, theta: &[f64], see: impl FnOnce(&[f64]) -> R) -> R {
        let compute = || Seen { theta: theta.to_vec(), margins: self.margins(self.range(c), theta), gradient: None };
        let seen = self.points.take(c, theta).unwrap_or_else(compute);
        let shown = see(&seen.margins);
        self.points.keep(c, seen);
        shown
    }

    /// Writes the gradient of an agent at theta, and shows the margins there.
    fn gradient_with_margins<R>(&self, c: usize, theta: &[f64], out: &mut [f64], see: impl FnOnce(&[f64]) -> R) -> R {
        let mut seen = match self.points.take(c, theta) {
            Some(seen) => {
                match &seen.gradient {
                    Some(known) => out.copy_from_slice(known),
                    None => self.gradient_at(c, theta, &seen.margins, out),
                }
                seen
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

    /// The gradient of an agent at theta from the margins there.
    fn gradient_at(&self, c: usize, theta: &[f64], margins: &[f64], out: &mut [f64]) {
        let mut pulls = margins.to_vec();
        margins::map(self.isa, &mut pulls, L::pull);
        out.fill(0.0);
        self.combine(self.range(c), out, &pulls);
        self.mean_of_sum(pulls.len() as f64, theta, out);
        out.iter_mut().for_each(|out| *out = -*out);
    }

    /// `l''` of the rows of an agent at theta; for least squares it is the same everywhere.
    fn bends(&self, c: usize, theta: &[f64]) -> Vec<f64> {
        if L::HAS_OFFSETS {
            return vec![L::MOST_BEND; self.range(c).len()];
        }
        let mut out = self.with_margins(c, theta, <[f64]>::to_vec);
        margins::map(self.isa, &mut out, L::bend);
        out
    }

    /// `out = H_c v` from the `l''` of the agent's rows, for one vector or several that follow each other.
    fn bent_product(&self, c: usize, bends: &[f64], v: &[f64], out: &mut [f64]) {
        if self.units.is_none() {
            return self.bent(&self.parts.rows, self.range(c), self.parts.penalised, bends, v, out);
        }
        let (range, d) = (self.range(c), self.d());
        out.fill(0.0);
        for (v, out) in v.chunks(d).zip(out.chunks_mut(d)) {
            self.pass(range.clone(), v, out, |rows, u| {
                u.iter_mut().zip(&bends[rows.start - range.start..]).for_each(|(u, bend)| *u *= bend)
            });
        }
        self.finish_bent(range.len() as f64, d, self.parts.penalised, v, out);
    }

    /// The same for some rows, with the ridge on the first columns.
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

    /// Where the Hessian of an agent with sparse rows may differ from 0; `None` for dense rows, and where the triangle has more entries
    /// than 32 bits number.
    fn pattern(&self, c: usize) -> Option<&Pattern> {
        let is_numbered = self.d() < 1 << 16;
        let is_sparse = is_numbered && matches!(self.parts.rows, Rows::Sparse { .. });
        is_sparse.then(|| self.patterns[c].get_or_init(|| Pattern::of(&self.parts.rows, self.range(c))))
    }

    /// Turns `sum_j -l'(t_j) x_j` over the n rows of an agent into its mean operator.
    fn mean_of_sum(&self, n: f64, theta: &[f64], out: &mut [f64]) {
        let (penalised, free) = out.split_at_mut(self.parts.penalised);
        penalised.iter_mut().zip(theta).for_each(|(out, theta)| *out = *out / n - self.parts.ridge * theta);
        free.iter_mut().for_each(|out| *out /= n);
    }

    /// Adds `mu` to the diagonal of a Hessian.
    fn add_ridge(&self, out: &mut Mat<f64>) {
        (0..self.parts.penalised).for_each(|i| out[(i, i)] += self.parts.ridge);
    }

    /// The mean operator of an agent; `see` is shown the margins of consecutive rows, which it numbers from 0.
    fn mean_of_rows(&self, c: usize, theta: &[f64], out: &mut [f64], mut see: impl FnMut(Range<usize>, &[f64])) {
        let range = self.range(c);
        let (first, n) = (range.start, range.len() as f64);
        out.fill(0.0);
        self.pass(range, theta, out, |rows, t| {
            self.shift(rows.clone(), t);
            see(rows.start - first..rows.end - first, t);
            margins::map(self.isa, t, L::pull);
        });
        self.mean_of_sum(n, theta, out);
    }

    /// `b_c = (1/n_c) sum_j y_j x_j` of least squares.
    fn mean_product(&self, c: usize, out: &mut [f64]) {
        let range = self.range(c);
        let n = range.len() as f64;
        out.fill(0.0);
        self.combine(range.clone(), out, &self.parts.offsets[range]);
        out.iter_mut().for_each(|out| *out /= n);
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

impl<L: Loss> Problem for Regression<L> {
    /// The index of a row among those of all agents.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.d()
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
    fn sample(&self, c: usize, chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.parts.first[c] + self.index[c].sample(chain, stream);
    }
    #[inline(always)]
    fn apply(&self, _: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let Parts { rows, ridge, penalised, .. } = &self.parts;
        let pull = L::pull(self.shifted(*z, margins::margin(rows, *z, theta)));
        match rows {
            Rows::Dense { d, values } => {
                for ((out, x), theta) in out.iter_mut().zip(&values[z * d..][..*d]).zip(theta) {
                    *out = pull * x - ridge * theta;
                }
                for i in *penalised..*d {
                    out[i] = pull * values[z * d + i];
                }
            }
            Rows::Sparse { starts, index, value, .. } => {
                out.iter_mut().zip(theta).for_each(|(out, theta)| *out = 0.0 - ridge * theta);
                out[*penalised..].fill(0.0);
                let at = starts[*z]..starts[z + 1];
                for (i, x) in index[at.clone()].iter().zip(&value[at]) {
                    let i = *i as usize;
                    out[i] = if i < *penalised { pull * x - ridge * theta[i] } else { pull * x };
                }
            }
        }
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.mean_of_rows(c, theta, out, |_, _| {});
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl<L: Loss> Facts for Regression<L> {
    fn systems(&self) -> Option<&Systems> {
        self.systems.as_ref()
    }
    fn linear_operators(&self) -> Option<&dyn LinearOperators> {
        L::HAS_OFFSETS.then_some(self as &dyn LinearOperators)
    }
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
    fn own_root(&self, cancel: &Cancel) -> Option<Result<Root, String>> {
        let d = self.d();
        if d > MOST_DIM {
            return Some(Err(format!("theta has {d} components, and Newton's method is used up to {MOST_DIM}")));
        }
        let source = if L::HAS_OFFSETS { RootSource::Linear } else { RootSource::Newton };
        Some(self.optimum(cancel).map(|theta| Root { theta, source }).map_err(|why| why.what))
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        let (first, n, d) = (self.parts.first[c], self.range(c).len(), self.d());
        let is_markov = self.sampling.kind == Law::Markov;
        if is_markov && n > lazy_index::MOST && self.parts.mixing_time > 1.0 {
            return None;
        }
        // Moves are as many as the square of the rows: a chain of independent draws is given where it is small.
        let is_chain = if is_markov { n <= lazy_index::MOST } else { !L::HAS_OFFSETS && n <= MOST_INDEPENDENT_MOVES };
        let (mass, chain) = match is_chain.then(|| self.index[c].moves()) {
            Some((mass, chain)) => (mass, Some(chain)),
            None => (vec![1.0 / n as f64; n], None),
        };
        let row = move |z: usize| first + if is_chain { z / n } else { z };
        let law = if L::HAS_OFFSETS {
            FiniteLaw::linear(d, mass, move |z, a, b| {
                let j = row(z);
                a.fill(0.0);
                b.fill(0.0);
                for (i, x) in self.parts.rows.row(j) {
                    self.parts.rows.row(j).for_each(|(k, y)| a[i * d + k] = x * y);
                    b[i] = self.parts.offsets[j] * x;
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
    /// The ridge is the modulus of logistic losses, and 0 certifies nothing. For least squares the least eigenvalue of the mean Hessian is. A
    /// bound of `l''` times the Gram matrix of an agent gives its Lipschitz constant.
    fn monotone(&self) -> Option<Monotone> {
        let d = self.d();
        if d > MOST_DIM {
            return None;
        }
        let top = |c: usize| {
            let range = self.range(c);
            let mut gram = Mat::zeros(d, d);
            gram::gram(&self.parts.rows, range.clone(), &vec![L::MOST_BEND / range.len() as f64; range.len()], &mut gram);
            self.add_ridge(&mut gram);
            linalg::norm2_bound(&gram)
        };
        let lipschitz = parallel::map(self.agents(), top).into_iter().fold(0.0, f64::max);
        let modulus = if L::HAS_OFFSETS {
            let mut mean = Mat::zeros(d, d);
            self.mean_hessian(None, &mut mean);
            least_eigenvalue(&mean)?
        } else if self.parts.penalised == d {
            self.parts.ridge
        } else {
            0.0
        };
        Monotone::of(modulus, lipschitz)
    }
    /// Two products with each row, a change of all components, and an exponential, which takes as long as some 20 multiplications.
    fn step_work(&self) -> Option<usize> {
        let rows = if self.sampling.kind == Law::Mean { self.parts.rows.len().div_ceil(self.agents()) } else { 1 };
        let stored = self.parts.rows.stored().div_ceil(self.parts.rows.len());
        Some(rows * (2 * stored + 20) + self.d())
    }
}

impl<L: Loss> Objective for Regression<L> {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.with_margins(c, theta, |t| self.mean_of_losses(t)) + self.penalty(theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        if self.points.keeps() {
            return self.gradient_with_margins(c, theta, out, |_| ());
        }
        self.mean(c, theta, out);
        out.iter_mut().for_each(|out| *out = -*out);
    }
    /// The margins of one pass over the rows are those of both.
    fn loss_and_gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) -> f64 {
        self.gradient_with_margins(c, theta, out, |t| self.mean_of_losses(t)) + self.penalty(theta)
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        // These were made below before there were systems: the same bits.
        if let Some(systems) = &self.systems {
            out.copy_from(&systems.of(c).a);
            return;
        }
        let mut bends = self.bends(c, theta);
        let scale = 1.0 / bends.len() as f64;
        bends.iter_mut().for_each(|bend| *bend *= scale);
        self.gram(c, &bends, out);
        self.add_ridge(out);
    }
    fn hessian_support(&self, c: usize) -> Option<Arc<Support>> {
        self.pattern(c).map(|pattern| Arc::clone(&pattern.support))
    }
    /// Margins are computed once for both.
    fn gradient_and_hessian(&self, c: usize, theta: &[f64], gradient: &mut [f64], hessian: &mut [f64]) {
        let pattern = self.pattern(c);
        let dense = if let (Rows::Dense { values, .. }, None) = (&self.parts.rows, &self.systems) { Some(values) } else { None };
        if pattern.is_none() && dense.is_none() {
            self.gradient(c, theta, gradient);
            return dense_hessian(self, c, theta, hessian);
        }
        let mut bends = self.gradient_with_margins(c, theta, gradient, <[f64]>::to_vec);
        let (range, scale) = (self.range(c), 1.0 / bends.len() as f64);
        margins::map(self.isa, &mut bends, L::bend);
        bends.iter_mut().for_each(|bend| *bend *= scale);
        if let Some(pattern) = pattern {
            self.gram_on_support(c, pattern, &bends, hessian);
            pattern.support.on_diagonal()[..self.parts.penalised].iter().for_each(|at| hessian[*at as usize] += self.parts.ridge);
        } else if let Some(values) = dense {
            let d = self.d();
            gram::triangle(&values[range.start * d..range.end * d], d, &bends, hessian);
            (0..self.parts.penalised).for_each(|i| hessian[entries(i + 1) - 1] += self.parts.ridge);
        }
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        self.bent_product(c, &self.bends(c, theta), v, out);
    }
    /// Margins at theta, and an exponential for each row, are computed once for all products.
    fn hessian_products<'a>(&'a self, c: usize, theta: &[f64]) -> HessianProducts<'a> {
        let bends = self.bends(c, theta);
        Box::new(move |v: &[f64], out: &mut [f64]| self.bent_product(c, &bends, v, out))
    }
    /// In nanoseconds, about, as measured with AVX-512 in whole runs; products with dense rows have become somewhat faster since. Other numbers
    /// here alter last digits of DONE.
    fn is_better_formed(&self, c: usize, products: usize) -> bool {
        const ANY_MATRIX: f64 = 2_000.0;
        let (range, d) = (self.range(c), self.d() as f64);
        let square = d * d / 2.0;
        let (one_by_one, forming) = match &self.parts.rows {
            // Rows come from a far cache, while the matrix is near.
            Rows::Dense { .. } => (0.58 * range.len() as f64 * d, 0.037 * range.len() as f64 * square),
            Rows::Sparse { starts, .. } => {
                let pairs: usize = range.clone().map(|j| (starts[j + 1] - starts[j]).pow(2) / 2).sum();
                (1.3 * (starts[range.end] - starts[range.start]) as f64, 0.8 * pairs as f64)
            }
        };
        ANY_MATRIX + forming + 2.0 * square + products as f64 * 0.4 * square < products as f64 * one_by_one
    }
    /// The columns that occur in the agent's sparse rows, and those without a ridge.
    fn active(&self, c: usize) -> Option<ActiveComponents> {
        let Rows::Sparse { starts, index, .. } = &self.parts.rows else { return None };
        let range = self.range(c);
        let mut occurs = vec![false; self.d()];
        index[starts[range.start]..starts[range.end]].iter().for_each(|i| occurs[*i as usize] = true);
        occurs[self.parts.penalised..].fill(true);
        let components: Vec<u32> = (0..self.d() as u32).filter(|i| occurs[*i as usize]).collect();
        // Where every column occurs, nothing is outside, and no eigenvalue is the ridge alone.
        (components.len() < self.d()).then_some(ActiveComponents { components, outside: self.parts.ridge })
    }
    /// The agent's sparse rows are copied, with their columns numbered anew, so that a product takes no passes over all d components.
    fn products_within<'a>(&'a self, c: usize, theta: &[f64], components: &'a [u32]) -> HessianProducts<'a> {
        let range = self.range(c);
        let bends = self.bends(c, theta);
        let (mut starts, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
        for j in range {
            for (i, x) in self.parts.rows.row(j) {
                if let Ok(position) = components.binary_search(&(i as u32)) {
                    index.push(position as u32);
                    value.push(x);
                }
            }
            starts.push(index.len());
        }
        let rows = Rows::Sparse { d: components.len(), starts, index, value };
        let penalised = components.partition_point(|i| (*i as usize) < self.parts.penalised);
        Box::new(move |v: &[f64], out: &mut [f64]| self.bent(&rows, 0..rows.len(), penalised, &bends, v, out))
    }
    fn losses_along(&self, c: usize, theta: &[f64], p: &[f64], steps: &[f64], out: &mut [f64]) {
        self.losses_on_line(c, theta, p, steps, out);
    }
}

/// The operators of least squares, `A_c = H_c` and `b_c = (1/n_c) sum_j y_j x_j`.
impl<L: Loss> LinearOperators for Regression<L> {
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

#[cfg(test)]
mod tests;
