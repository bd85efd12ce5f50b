//! The optimum of the mean of all losses, by Newton's method with backtracking on the union of the agents' rows.

use std::borrow::Cow;
use std::ops::Range;

use faer::Mat;
use faer::linalg::solvers::Solve;

use super::loss::{Bends, RowLosses};
use super::{Regression, gram};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::problem::Problem;
use fedsa::{linalg, parallel, sums};

/// The largest gradient norm at the optimum, in units of the size of the gradient's terms at 0 if that is above 1.
const CERTIFIED: f64 = 1e-12;
/// Without a minimum, the gradient vanishes but steps do not become small. A step above this share of theta counts as long.
const LAST_STEP: f64 = 1e-6;
/// The most iterations.
const MAX_STEPS: usize = 200;
/// Armijo's share of the predicted decrease, and the most halvings of a step.
const ARMIJO: f64 = 1e-4;
const HALVINGS: i32 = 40;
/// Rows per task.
const BLOCK: usize = 2048;
/// The most vectors of d components that are summed side by side.
const MAX_SUMS: usize = 64;

/// Values at a theta.
struct Point {
    /// The margins of all rows, block after block.
    margins: Vec<f64>,
    /// The mean gradient.
    gradient: Vec<f64>,
}

/// A step.
struct Trial {
    /// The point along the step at which the mean loss decreases enough, if any.
    next: Option<Vec<f64>>,
    /// The norm of the whole step.
    size: f64,
    /// Whether this point is at the end of the step.
    is_whole: bool,
    /// The mean loss there; infinite if there is no such point.
    loss: f64,
}

impl<L: RowLosses> Regression<L> {
    /// The weight `p_c / n_c` of each row of agent c.
    fn row_weight(&self, c: usize) -> f64 {
        self.parts.weights[c] / self.range(c).len() as f64
    }

    /// Blocks of rows of one agent, with the agent.
    fn blocks(&self) -> Vec<(usize, Range<usize>)> {
        let of = |c: usize| {
            let range = self.range(c);
            range.clone().step_by(BLOCK).map(move |start| (c, start..(start + BLOCK).min(range.end)))
        };
        (0..self.agents()).flat_map(of).collect()
    }

    /// Computes numbers for the rows of each block in parallel, and concatenates them.
    fn over_blocks(&self, see: impl Fn(usize, Range<usize>) -> Vec<f64> + Sync) -> Vec<f64> {
        parallel::map_into(self.blocks(), |_, (c, range)| see(c, range)).concat()
    }

    /// The margins of the rows of a block among those of all blocks.
    fn of_block<'a>(&self, margins: &'a [f64], range: &Range<usize>) -> &'a [f64] {
        &margins[self.outputs() * range.start..self.outputs() * range.end]
    }

    /// The mean Hessian `sum_c p_c H_c` from the margins of all rows. A linear problem has a constant Hessian and accepts missing margins
    /// as 0.
    pub(super) fn mean_hessian(&self, margins: Option<&[f64]>, which: Bends, out: &mut Mat<f64>) {
        let q = self.outputs();
        let bends = self.over_blocks(|c, range| {
            let weight = self.row_weight(c);
            let zeros = || Cow::Owned(vec![0.0; q * range.len()]);
            let t = margins.map_or_else(zeros, |t| Cow::Borrowed(self.of_block(t, &range)));
            let mut bends = self.loss.bends(self.isa, range, &t, which);
            bends.iter_mut().for_each(|bend| *bend *= weight);
            bends
        });
        let blocks = self.blocks();
        let of = |at: usize| {
            let one = |range: &Range<usize>| &bends[q * q * range.start + at * range.len()..][..range.len()];
            if q == 1 { Cow::Borrowed(&bends[..]) } else { Cow::Owned(blocks.iter().flat_map(|(_, range)| one(range)).copied().collect()) }
        };
        gram::blocks(&self.parts.rows, 0..self.parts.rows.len(), q, of, out);
        self.add_ridge(out);
    }

    /// The mean gradient from the margins of all rows. Consecutive blocks share a sum, so that many small agents take no more memory than
    /// few large ones. The grouping depends on the number of blocks only.
    fn mean_gradient(&self, theta: &[f64], margins: &[f64]) -> Vec<f64> {
        let p = theta.len();
        let blocks = self.blocks();
        let together: Vec<_> = blocks.chunks(blocks.len().div_ceil(MAX_SUMS).max(1)).collect();
        let sum = |i: usize| {
            let mut out = vec![0.0; p];
            for (c, range) in together[i] {
                let weight = self.row_weight(*c);
                let mut weights = self.of_block(margins, range).to_vec();
                self.loss.pulls(self.isa, range.clone(), &mut weights);
                weights.iter_mut().for_each(|pull| *pull *= -weight);
                self.combine_all(range.clone(), &mut out, &weights);
            }
            out
        };
        let mut sums = parallel::map(together.len(), sum).concat();
        sums::pairwise(&mut sums, p);
        sums.truncate(p);
        for (g, theta) in sums.chunks_mut(self.d()).zip(theta.chunks(self.d())) {
            g.iter_mut().zip(&theta[..self.parts.penalised]).for_each(|(g, theta)| *g += self.parts.ridge * theta);
        }
        sums
    }

    /// The mean loss at theta, with the margins `t + s u`.
    fn mean_loss(&self, theta: &[f64], t: &[f64], u: &[f64], s: f64) -> f64 {
        let losses = self.over_blocks(|c, range| {
            let (t, u) = (self.of_block(t, &range), self.of_block(u, &range));
            vec![self.row_weight(c) * self.loss.sum_along(self.isa, range, t, u, s)]
        });
        losses.iter().sum::<f64>() + self.penalty(theta)
    }

    /// The size of the mean gradient's terms at 0: `sum_c (p_c / n_c) sum_j |dl_j/dt_j| ||x_j||`, with summed magnitudes for several
    /// margins.
    fn gradient_scale(&self, margins: &[f64]) -> f64 {
        let norm = |j: usize| self.parts.rows.row(j).map(|(_, x)| x * x).sum::<f64>().sqrt();
        let sizes = self.over_blocks(|c, range| {
            let mut pulls = self.of_block(margins, &range).to_vec();
            self.loss.pulls(self.isa, range.clone(), &mut pulls);
            let size = |i: usize| pulls[i..].iter().step_by(range.len()).fold(0.0, |sum, pull| sum + pull.abs());
            vec![self.row_weight(c) * (0..range.len()).map(|i| size(i) * norm(range.start + i)).sum::<f64>()]
        });
        sizes.iter().sum()
    }

    /// Refuses numbers that are too large for finite gradients.
    pub(super) fn check_scale(&self) -> Result<()> {
        let scale = self.gradient_scale(&self.over_blocks(|_, range| self.margins(range, &vec![0.0; self.dim()])));
        if (scale * scale).is_finite() {
            return Ok(());
        }
        let what = format!("features and targets whose products are as large as {scale:.1e}");
        let help = "a smaller scale: `standardise` for features, and targets in larger units";
        Err(Error::data("data", what, help))
    }

    /// The minimum of `sum_c p_c f_c`, d numbers. Its gradient is as small as rounding allows, and at most 1e-12, or 1e-12 times the size
    /// of the gradient's terms if that is above 1.
    ///
    /// # Errors
    /// When there is no unique minimum, because without a ridge features are linearly dependent, or a hyperplane separates the classes.
    /// When cancelled; `cancel` is checked between passes over the rows.
    pub(super) fn optimum(&self, cancel: &Cancel) -> Result<Vec<f64>> {
        let all = |theta: &[f64]| self.over_blocks(|_, range| self.margins(range, theta));
        let mut theta = vec![0.0; self.dim()];
        let margins = all(&theta);
        let certified = CERTIFIED * self.gradient_scale(&margins).max(1.0);
        let mut at = Point { gradient: self.mean_gradient(&theta, &margins), margins };
        let mut last_size = f64::INFINITY;
        for _ in 0..MAX_STEPS {
            let norm = linalg::norm_sq(&at.gradient).sqrt();
            let Trial { next, size, .. } = self.trial(&theta, &at, cancel)?;
            if norm == 0.0 {
                return Ok(theta);
            }
            let is_long = size > LAST_STEP * (1.0 + linalg::norm_sq(&theta).sqrt());
            if norm <= certified && is_long && size > 0.5 * last_size {
                return Err(self.no_minimum("the losses have no minimum: a hyperplane separates the classes of all agents"));
            }
            last_size = size;
            let Some(next) = next else { break };
            cancel.check()?;
            let margins = all(&next);
            let ahead = Point { gradient: self.mean_gradient(&next, &margins), margins };
            // Further steps polish the optimum while they pay off.
            if norm <= certified && linalg::norm_sq(&ahead.gradient).sqrt() > 0.5 * norm {
                return Ok(theta);
            }
            (theta, at) = (next, ahead);
        }
        let norm = linalg::norm_sq(&at.gradient).sqrt();
        if norm <= certified {
            return Ok(theta);
        }
        Err(self
            .no_minimum(&format!("the minimum of the losses was not found: the gradient is {norm:.1e} where it should be {certified:.1e}")))
    }

    /// The step of Newton's method from theta. If it must be shortened, or Hessians vanish, the step of a majorising quadratic function,
    /// which always lowers the losses, is tried too, and the better one is taken.
    fn trial(&self, theta: &[f64], at: &Point, cancel: &Cancel) -> Result<Trial> {
        let newton = self.along(Bends::Exact, theta, at, cancel);
        if !self.loss.has_majorant() || newton.as_ref().is_ok_and(|trial| trial.is_whole) {
            return newton;
        }
        let other = self.along(Bends::Majorant, theta, at, cancel)?;
        Ok(newton.into_iter().fold(other, |other, newton| if newton.loss <= other.loss { newton } else { other }))
    }

    /// The step for a kind of Hessian.
    fn along(&self, which: Bends, theta: &[f64], at: &Point, cancel: &Cancel) -> Result<Trial> {
        cancel.check()?;
        let mut hessian = Mat::zeros(theta.len(), theta.len());
        self.mean_hessian(Some(&at.margins), which, &mut hessian);
        cancel.check()?;
        let step = self.newton_step(&hessian, &at.gradient)?;
        let size = linalg::norm_sq(&step).sqrt();
        let slopes = self.over_blocks(|_, range| self.row_products(range, &step));
        let slope: f64 = step.iter().zip(&at.gradient).map(|(p, g)| p * g).sum();
        let before = self.mean_loss(theta, &at.margins, &slopes, 0.0);
        // Near the optimum the loss decreases by less than its rounding error, so the gradient decides.
        let rounding = self.loss.rounding(before);
        let found = (0..=HALVINGS).find_map(|halvings| {
            let s = 0.5f64.powi(halvings);
            let next: Vec<f64> = theta.iter().zip(&step).map(|(x, p)| s.mul_add(*p, *x)).collect();
            let loss = self.mean_loss(&next, &at.margins, &slopes, s);
            let falls = loss <= before + ARMIJO * s * slope + rounding;
            (falls && next.iter().all(|x| x.is_finite())).then_some((next, halvings == 0, loss))
        });
        let (next, is_whole, loss) = found.map_or((None, false, f64::INFINITY), |(next, is_whole, loss)| (Some(next), is_whole, loss));
        Ok(Trial { next, size, is_whole, loss })
    }

    /// `-H^-1 g`.
    fn newton_step(&self, hessian: &Mat<f64>, gradient: &[f64]) -> Result<Vec<f64>> {
        let singular = || {
            self.no_minimum(if L::IS_LINEAR {
                "the Hessian of the mean loss is singular: features depend on each other"
            } else {
                "the Hessian of the mean loss is singular: features depend on each other, or a hyperplane separates the classes"
            })
        };
        if !hessian.is_all_finite() {
            return Err(Error::data("data", "products of the features are not finite", "features of a smaller scale: `standardise`"));
        }
        let factor = hessian.llt(faer::Side::Lower).map_err(|_| singular())?;
        // The square of a pivot divided by its diagonal entry is the remainder of a feature after projection on the earlier ones, for any
        // scales. Its inverse is a lower bound of the condition number of equally scaled features.
        let pivots = factor.L().diagonal().column_vector();
        let left = pivots.iter().enumerate().map(|(i, x)| x * x / hessian[(i, i)]).fold(f64::INFINITY, f64::min);
        let is_regularised = self.parts.ridge > 0.0 && self.parts.penalised == self.d();
        if !is_regularised && !(left * linalg::MAX_CONDITION >= 1.0) {
            return Err(singular());
        }
        let minus: Vec<f64> = gradient.iter().map(|g| -g).collect();
        let step = factor.solve(linalg::column(&minus)).col_as_slice(0).to_vec();
        if step.iter().all(|x| x.is_finite()) { Ok(step) } else { Err(singular()) }
    }

    fn no_minimum(&self, what: &str) -> Error {
        Error::not_known("ridge", what, "a positive ridge, such as 1e-5, or a larger one; or fewer features")
    }
}
