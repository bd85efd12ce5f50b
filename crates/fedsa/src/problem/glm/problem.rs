//! The problem of a family on the agents' rows: a sampled operator and an objective.
//!
//! ```text
//! f_c(theta)    = (1/A_c) sum_j a_j l(eta_j, y_j) + (mu/2) ||theta||^2,    eta_jk = x_j^T theta_k + o_j,    A_c = sum_j a_j
//! g_c(theta, j) = (n_c / A_c) a_j (-dl/d eta_jk) x_j - mu theta_k    in block k
//! ```
//!
//! theta has a block of d numbers for each of the q predictors of a row. A sample is the index of a row.

use std::ops::Range;

use faer::Mat;

use super::family::ModelFamily;
use super::optimum::{Curvatures, optimum};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::{Isa, margins};
use crate::linalg;
use crate::problem::Problem;
use crate::problem::facts::Facts;
use crate::problem::law::FiniteLaw;
use crate::problem::lazy_index::{self, LazyIndex};
use crate::problem::objective::{HessianProducts, Objective};
use crate::problem::preparation::quality::LabelledRows;
use crate::problem::regression::gram;
use crate::problem::root::{MOST_DIM, Root, RootSource};
use crate::random::Stream;
use crate::sampling::{Law, Sampling};

/// The losses of a family on rows.
#[derive(Debug)]
pub(in crate::problem) struct RowLosses {
    family: ModelFamily,
    part: LabelledRows,
    /// `n_c a_j / A_c` of each row.
    shares: Vec<f64>,
    weights: Vec<f64>,
    ridge: f64,
    /// How many of the first columns the ridge applies to.
    penalised: usize,
    index: Vec<LazyIndex>,
    is_markov: bool,
    isa: Isa,
}

/// Which second derivatives of the rows' losses.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bends {
    /// Those of the losses.
    Exact,
    /// Those of a quadratic function that is nowhere below the losses.
    Majorant,
    /// Those of the losses, and where most of them are linear those of the majorant: Newton's method needs a Hessian that is not 0, and
    /// near the minimum the exact one.
    Useful,
}

/// What the losses are besides rows.
pub(in crate::problem) struct LossSettings {
    pub ridge: f64,
    /// The number of last columns without the ridge.
    pub free: usize,
    pub mixing_time: f64,
}

impl RowLosses {
    /// Joins rows with a sampling.
    ///
    /// # Errors
    /// When the index of a trajectory cannot start or move as it is told, an agent's rows all have the weight 0, or gradients at 0 are not
    /// finite.
    pub fn new(
        family: ModelFamily,
        part: LabelledRows,
        weights: Vec<f64>,
        like: &LossSettings,
        sampling: Sampling,
        isa: Isa,
    ) -> Result<Self> {
        let sizes = part.first.windows(2).map(|at| at[1] - at[0]);
        let index = sizes.map(|n| LazyIndex::new(n, like.mixing_time, sampling)).collect::<Result<_>>()?;
        let mut shares = vec![1.0; part.rows.len()];
        part.check_row_weights(&[])?;
        if !part.row_weights.is_empty() {
            for at in part.first.windows(2) {
                let total: f64 = part.row_weights[at[0]..at[1]].iter().sum();
                let scale = (at[1] - at[0]) as f64 / total;
                (at[0]..at[1]).for_each(|j| shares[j] = scale * part.row_weights[j]);
            }
        }
        let penalised = part.rows.columns() - like.free;
        let is_markov = sampling.kind == Law::Markov;
        let problem = Self { family, part, shares, weights, ridge: like.ridge, penalised, index, is_markov, isa };
        problem.check_scale()?;
        Ok(problem)
    }

    /// Refuses numbers so large that gradients are not finite.
    fn check_scale(&self) -> Result<()> {
        let (p, mut sum) = (self.dim(), 0.0);
        let mut g = vec![0.0; p];
        for c in 0..self.weights.len() {
            self.mean(c, &vec![0.0; p], &mut g);
            sum += linalg::norm_sq(&g);
        }
        if sum.is_finite() {
            return Ok(());
        }
        let help = "a smaller scale: `standardise`, and offsets and targets of a moderate size";
        Err(Error::data("data", "features, offsets and targets so large that gradients are not finite", help))
    }

    fn d(&self) -> usize {
        self.part.rows.columns()
    }

    fn outputs(&self) -> usize {
        self.family.outputs()
    }

    fn range(&self, c: usize) -> Range<usize> {
        self.part.first[c]..self.part.first[c + 1]
    }

    /// Calls `see` with the position of each row of agent c, its predictors, its target and its share.
    fn each_row(&self, c: usize, etas: &[f64], mut see: impl FnMut(usize, &[f64], f64, f64)) {
        let (range, q) = (self.range(c), self.outputs());
        let n = range.len();
        let (targets, shares) = (&self.part.targets[range.clone()], &self.shares[range]);
        let mut eta = vec![0.0; q];
        margins::each(self.isa, n, |i| {
            eta.iter_mut().enumerate().for_each(|(k, t)| *t = etas[k * n + i]);
            see(i, &eta, targets[i], shares[i]);
        });
    }

    /// `(1/n_c)` of sums over rows with the ridge's part: `sum / n + sign mu theta`.
    fn finish(&self, c: usize, theta: &[f64], sign: f64, out: &mut [f64]) {
        let (n, d) = (self.range(c).len() as f64, self.d());
        for (out, theta) in out.chunks_mut(d).zip(theta.chunks(d)) {
            for (i, (out, theta)) in out.iter_mut().zip(theta).enumerate() {
                *out = if i < self.penalised { (sign * self.ridge).mul_add(*theta, *out / n) } else { *out / n };
            }
        }
    }

    /// `out_k = sum_j u_jk x_j` over the rows of agent c.
    fn combine(&self, c: usize, u: &[f64], out: &mut [f64]) {
        let (range, d) = (self.range(c), self.d());
        let n = range.len();
        out.fill(0.0);
        for k in 0..self.outputs() {
            margins::combine(self.isa, &self.part.rows, range.clone(), &mut out[k * d..][..d], &u[k * n..][..n]);
        }
    }

    /// The second derivatives of the rows of agent c times their shares: those of outputs k and l at `(k q + l) n`.
    fn bends(&self, c: usize, theta: &[f64], of: Bends) -> Vec<f64> {
        let (n, q) = (self.range(c).len(), self.outputs());
        let etas = self.part.predictors(self.range(c), theta, q);
        let (mut one, mut out) = (vec![0.0; q * q], vec![0.0; q * q * n]);
        let is_major = match of {
            Bends::Exact => false,
            Bends::Majorant => true,
            Bends::Useful => self.is_mostly_linear(c, &etas),
        };
        self.each_row(c, &etas, |i, eta, y, share| {
            if is_major {
                self.family.majorant(eta, y, &mut one)
            } else {
                self.family.bend(eta, y, &mut one)
            }
            one.iter().enumerate().for_each(|(at, x)| out[at * n + i] = share * x);
        });
        out
    }

    /// Whether the loss of most rows of agent c is linear near these predictors, so that their second derivatives say nothing of it: fewer than a
    /// quarter of the residuals are within delta of Huber's loss.
    fn is_mostly_linear(&self, c: usize, etas: &[f64]) -> bool {
        let ModelFamily::Huber { delta } = self.family else { return false };
        let mut within = 0;
        self.each_row(c, etas, |_, eta, y, _| within += usize::from((eta[0] - y).abs() <= delta));
        4 * within < self.range(c).len()
    }

    /// `out`, the Hessian of agent c from second derivatives of its rows.
    fn bent_hessian(&self, c: usize, mut bends: Vec<f64>, out: &mut Mat<f64>) {
        let (range, d, q) = (self.range(c), self.d(), self.outputs());
        let n = range.len();
        bends.iter_mut().for_each(|bend| *bend /= n as f64);
        let mut one = Mat::zeros(d, d);
        for k in 0..q {
            for l in 0..=k {
                gram::gram(&self.part.rows, range.clone(), &bends[(k * q + l) * n..][..n], &mut one);
                out.submatrix_mut(k * d, l * d, d, d).copy_from(&one);
                out.submatrix_mut(l * d, k * d, d, d).copy_from(&one);
            }
            (0..self.penalised).for_each(|i| out[(k * d + i, k * d + i)] += self.ridge);
        }
    }

    /// `mu/2 ||theta||^2` of the components that it applies to.
    fn penalty(&self, theta: &[f64]) -> f64 {
        let parts = theta.chunks(self.d()).map(|block| linalg::norm_sq(&block[..self.penalised]));
        self.ridge / 2.0 * parts.sum::<f64>()
    }

    /// The sum of the losses of rows with these predictors.
    fn losses(&self, c: usize, etas: &[f64]) -> f64 {
        let mut sum = 0.0;
        self.each_row(c, etas, |_, eta, y, share| sum += share * self.family.value(eta, y));
        sum / self.range(c).len() as f64
    }

    /// `out = H_c v` from the second derivatives of the agent's rows.
    fn bent_product(&self, c: usize, bends: &[f64], v: &[f64], out: &mut [f64]) {
        let (n, q) = (self.range(c).len(), self.outputs());
        let u = self.part.products(self.range(c), v, q);
        let mut weighed = vec![0.0; q * n];
        for k in 0..q {
            for l in 0..q {
                let (bends, u) = (&bends[(k * q + l) * n..][..n], &u[l * n..][..n]);
                weighed[k * n..][..n].iter_mut().zip(bends).zip(u).for_each(|((to, bend), u)| *to += bend * u);
            }
        }
        self.combine(c, &weighed, out);
        self.finish(c, v, 1.0, out);
    }
}

impl Problem for RowLosses {
    /// The index of a row among those of all agents.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.outputs() * self.d()
    }
    fn weights(&self) -> &[f64] {
        &self.weights
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
    fn sample(&self, c: usize, chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.part.first[c] + self.index[c].sample(chain, stream);
    }
    fn apply(&self, _: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let (d, q) = (self.d(), self.outputs());
        let offset = self.part.offsets.get(*z).copied().unwrap_or(0.0);
        let eta: Vec<f64> = theta.chunks(d).map(|block| margins::margin(&self.part.rows, *z, block) + offset).collect();
        let mut pull = vec![0.0; q];
        self.family.pull(&eta, self.part.targets[*z], &mut pull);
        for (k, pull) in pull.iter().enumerate() {
            let (out, theta, pull) = (&mut out[k * d..][..d], &theta[k * d..][..d], self.shares[*z] * pull);
            out.iter_mut().zip(theta).for_each(|(out, theta)| *out = 0.0 - self.ridge * theta);
            out[self.penalised..].fill(0.0);
            self.part.rows.row(*z).for_each(|(i, x)| out[i] += pull * x);
        }
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        let (n, q) = (self.range(c).len(), self.outputs());
        let etas = self.part.predictors(self.range(c), theta, q);
        let (mut pull, mut pulls) = (vec![0.0; q], vec![0.0; q * n]);
        self.each_row(c, &etas, |i, eta, y, share| {
            self.family.pull(eta, y, &mut pull);
            pull.iter().enumerate().for_each(|(k, x)| pulls[k * n + i] = share * x);
        });
        self.combine(c, &pulls, out);
        self.finish(c, theta, -1.0, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for RowLosses {
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
    fn own_root(&self, cancel: &Cancel) -> Option<Result<Root, String>> {
        let p = self.dim();
        if p > MOST_DIM {
            return Some(Err(format!("theta has {p} components, and Newton's method is used up to {MOST_DIM}")));
        }
        let exact = |c: usize, theta: &[f64], out: &mut Mat<f64>| self.bent_hessian(c, self.bends(c, theta, Bends::Exact), out);
        let major = |c: usize, theta: &[f64], out: &mut Mat<f64>| self.bent_hessian(c, self.bends(c, theta, Bends::Majorant), out);
        let is_robust = matches!(self.family, ModelFamily::Huber { .. });
        let curvatures = Curvatures { exact: &exact, majorant: is_robust.then_some(&major) };
        Some(optimum(self, self, curvatures, cancel).map(|theta| Root { theta, source: RootSource::Newton }))
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        let (first, n, d) = (self.part.first[c], self.range(c).len(), self.dim());
        if !self.is_markov {
            return Some(FiniteLaw::new(d, vec![1.0 / n as f64; n], move |z, theta, out| self.apply(c, theta, &(first + z), out)));
        }
        if n > lazy_index::MOST {
            return None;
        }
        let (mass, chain) = self.index[c].moves();
        Some(FiniteLaw::new(d, mass, move |z, theta, out| self.apply(c, theta, &(first + z / n), out)).with_chain(chain))
    }
    /// Two products with each row, and exponentials.
    fn step_work(&self) -> Option<usize> {
        let stored = self.part.rows.stored().div_ceil(self.part.rows.len());
        Some(self.outputs() * (2 * stored + 20) + self.dim())
    }
}

impl Objective for RowLosses {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.losses(c, &self.part.predictors(self.range(c), theta, self.outputs())) + self.penalty(theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.mean(c, theta, out);
        out.iter_mut().for_each(|out| *out = -*out);
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        self.bent_hessian(c, self.bends(c, theta, Bends::Useful), out);
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        self.bent_product(c, &self.bends(c, theta, Bends::Useful), v, out);
    }
    fn hessian_products<'a>(&'a self, c: usize, theta: &[f64]) -> HessianProducts<'a> {
        let (bends, d) = (self.bends(c, theta, Bends::Useful), theta.len());
        Box::new(move |v: &[f64], out: &mut [f64]| {
            v.chunks(d).zip(out.chunks_mut(d)).for_each(|(v, out)| self.bent_product(c, &bends, v, out));
        })
    }
    /// Predictors change linearly along p: two products with the rows, whatever the number of steps.
    fn losses_along(&self, c: usize, theta: &[f64], p: &[f64], steps: &[f64], out: &mut [f64]) {
        let etas = self.part.predictors(self.range(c), theta, self.outputs());
        let slopes = self.part.products(self.range(c), p, self.outputs());
        for (s, out) in steps.iter().zip(out) {
            let at: Vec<f64> = etas.iter().zip(&slopes).map(|(t, u)| s.mul_add(*u, *t)).collect();
            let theta: Vec<f64> = theta.iter().zip(p).map(|(x, p)| s.mul_add(*p, *x)).collect();
            *out = self.losses(c, &at) + self.penalty(&theta);
        }
    }
}
