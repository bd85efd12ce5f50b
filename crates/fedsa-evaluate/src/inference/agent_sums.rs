//! The messages of agents for estimates and their covariance: sums over their rows, never rows.

use std::borrow::Cow;

use faer::Mat;
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa_problems::kernel::margins;
use fedsa_problems::rows::glm::family::{ModelFamily, RowFit};
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::regression::gram;

/// The number of agents whose matrices are in memory at a time.
const TOGETHER: usize = 16;

/// The least weight of a row's first derivative in the sizes of terms, as a share of its second derivative.
const FLOOR: f64 = 1e-4;

/// The sums to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Want {
    /// Only the loss: one number.
    Loss,
    /// Also the score and the observed information, for a step of Newton's method.
    Step,
    /// Also the sums for covariances.
    Covariance,
}

/// Sums over rows x_j with predictors `eta_j`, targets `y_j` and weights `a_j`, at one theta of p = q d components: q blocks of d.
#[derive(Debug, Clone)]
pub(super) struct ModelSums {
    /// n: rows whose weight is not 0.
    pub rows: f64,
    /// `sum_j a_j`.
    pub weights: f64,
    /// `sum_j a_j l(eta_j, y_j)`.
    pub loss: f64,
    /// `s = sum_j s_j`, `s_j = a_j (-dl/d eta) x_j`; p numbers.
    pub score: Vec<f64>,
    /// The sums of the sizes of the terms of s, p numbers: `a_j max(|dl/d eta|, 1e-4 l'' (1 + |eta|)) |x_j|`. At an exact fit the
    /// derivatives are rounding errors, at most this share of the second number.
    pub sizes: Vec<f64>,
    /// The observed information `sum_j a_j l'' x_j x_j^T`, p x p.
    pub observed: Mat<f64>,
    /// The expected information, p x p.
    pub expected: Mat<f64>,
    /// `sum_j s_j s_j^T`, p x p.
    pub outer: Mat<f64>,
    /// The same with the sum over an agent's rows instead of a row: `sum_c s_c s_c^T`.
    pub clustered: Mat<f64>,
    /// The number of agents with rows.
    pub agents: f64,
    /// Deviance, Pearson's statistic and log-likelihood.
    pub fit: RowFit,
    /// `sum_j a_j ||eta_j||^2`.
    pub predictors: f64,
}

impl ModelSums {
    pub fn zeros(p: usize, want: Want) -> Self {
        let step = if want >= Want::Step { p } else { 0 };
        let all = if want >= Want::Covariance { p } else { 0 };
        Self {
            rows: 0.0,
            weights: 0.0,
            loss: 0.0,
            score: vec![0.0; step],
            sizes: vec![0.0; step],
            observed: Mat::zeros(step, step),
            expected: Mat::zeros(all, all),
            outer: Mat::zeros(all, all),
            clustered: Mat::zeros(all, all),
            agents: 0.0,
            fit: RowFit::default(),
            predictors: 0.0,
        }
    }

    /// The sums over the rows of all agents, in the agents' order.
    pub fn of(family: ModelFamily, part: &LabelledRows, theta: &[f64], want: Want) -> Self {
        let agents = part.first.len() - 1;
        let mut all = Self::zeros(theta.len(), want);
        for first in (0..agents).step_by(TOGETHER) {
            let each = parallel::map(TOGETHER.min(agents - first), |i| Self::of_agent(family, part, first + i, theta, want));
            each.into_iter().for_each(|one| all.add(&one, want));
        }
        all
    }

    /// The numbers that an agent sends for these sums: symmetric matrices are sent as triangles.
    pub fn numbers(p: usize, family: ModelFamily, want: Want) -> usize {
        let triangle = p * (p + 1) / 2;
        match want {
            Want::Loss => 1,
            Want::Step => 2 + 2 * p + triangle,
            Want::Covariance => 8 + 2 * p + triangle * if family.is_canonical() { 2 } else { 3 },
        }
    }

    fn add(&mut self, one: &Self, want: Want) {
        let sum = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, x)| *to += x);
        self.rows += one.rows;
        self.weights += one.weights;
        self.loss += one.loss;
        self.predictors += one.predictors;
        if want >= Want::Step {
            sum(&mut self.score, &one.score);
            sum(&mut self.sizes, &one.sizes);
            self.observed += &one.observed;
        }
        if want >= Want::Covariance {
            self.expected += &one.expected;
            self.outer += &one.outer;
            self.clustered += Mat::from_fn(one.score.len(), one.score.len(), |i, j| one.score[i] * one.score[j]);
            self.agents += f64::from(one.rows > 0.0);
            let (to, from) = (&mut self.fit, &one.fit);
            to.deviance += from.deviance;
            to.pearson += from.pearson;
            to.likelihood += from.likelihood;
            to.log += from.log;
        }
    }

    /// The sums over the rows of agent c.
    fn of_agent(family: ModelFamily, part: &LabelledRows, c: usize, theta: &[f64], want: Want) -> Self {
        let (range, q) = (part.first[c]..part.first[c + 1], family.outputs());
        let n = range.len();
        let mut out = Self::zeros(theta.len(), want);
        let etas = part.predictors(range.clone(), theta, q);
        let mut work = RowWork::new(q, n);
        margins::each(Isa::best(), n, |i| {
            let (a, y) = (part.weight(range.start + i), part.targets[range.start + i]);
            if a == 0.0 {
                return;
            }
            work.see(&etas, i);
            out.rows += 1.0;
            out.weights += a;
            out.loss += a * family.value(&work.eta, y);
            out.predictors += a * work.eta.iter().map(|t| t * t).sum::<f64>();
            if want >= Want::Step {
                family.pull(&work.eta, y, &mut work.pull);
                family.bend(&work.eta, y, &mut work.bend);
                work.keep(i, a);
            }
            if want >= Want::Covariance {
                family.expected(&work.eta, y, &mut work.bend);
                work.keep_expected(i, a);
                let fit = family.row_fit(&work.eta, y, a);
                out.fit.deviance += fit.deviance;
                out.fit.pearson += fit.pearson;
                out.fit.likelihood += fit.likelihood;
                out.fit.log += fit.log;
            }
        });
        if want >= Want::Step {
            let d = part.rows.columns();
            for k in 0..q {
                margins::combine(Isa::best(), &part.rows, range.clone(), &mut out.score[k * d..][..d], &work.pulls[k * n..][..n]);
                for (i, j) in range.clone().enumerate() {
                    let bend = work.bends[k * (q + 1) * n + i] * (1.0 + etas[k * n + i].abs());
                    let size = work.pulls[k * n + i].abs().max(FLOOR * bend);
                    part.rows.row(j).for_each(|(column, x)| out.sizes[k * d + column] += size * x.abs());
                }
            }
            gram::blocks(&part.rows, range.clone(), q, |at| Cow::Borrowed(&work.bends[at * n..][..n]), &mut out.observed);
        }
        if want >= Want::Covariance {
            gram::blocks(&part.rows, range.clone(), q, |at| Cow::Borrowed(&work.expected[at * n..][..n]), &mut out.expected);
            let pulls = |k: usize| work.pulls[k * n..][..n].iter();
            let squares = |at: usize| pulls(at / q).zip(pulls(at % q)).map(|(a, b)| a * b).collect();
            gram::blocks(&part.rows, range, q, |at| Cow::Owned(squares(at)), &mut out.outer);
        }
        out
    }
}

/// Intermediate values of an agent's n rows with q predictors, output after output.
struct RowWork {
    n: usize,
    eta: Vec<f64>,
    pull: Vec<f64>,
    bend: Vec<f64>,
    pulls: Vec<f64>,
    bends: Vec<f64>,
    expected: Vec<f64>,
}

impl RowWork {
    fn new(q: usize, n: usize) -> Self {
        let zeros = |count: usize| vec![0.0; count];
        Self {
            n,
            eta: zeros(q),
            pull: zeros(q),
            bend: zeros(q * q),
            pulls: zeros(q * n),
            bends: zeros(q * q * n),
            expected: zeros(q * q * n),
        }
    }

    /// Adds the predictors of row i.
    fn see(&mut self, etas: &[f64], i: usize) {
        let n = self.n;
        self.eta.iter_mut().enumerate().for_each(|(k, t)| *t = etas[k * n + i]);
    }

    /// Keeps the derivatives of row i, times its weight.
    fn keep(&mut self, i: usize, a: f64) {
        let n = self.n;
        self.pull.iter().enumerate().for_each(|(k, x)| self.pulls[k * n + i] = a * x);
        self.bend.iter().enumerate().for_each(|(k, x)| self.bends[k * n + i] = a * x);
    }

    fn keep_expected(&mut self, i: usize, a: f64) {
        let n = self.n;
        self.bend.iter().enumerate().for_each(|(k, x)| self.expected[k * n + i] = a * x);
    }
}
