//! The optimum of the mean of all losses, by Newton's method with backtracking on the union of the agents' rows.

use std::ops::Range;

use faer::Mat;
use faer::linalg::solvers::Solve;

use super::loss::Loss;
use super::{Regression, gram};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::margins;
use crate::{linalg, parallel, sums};

/// The optimum has a gradient of at most this, or of this times the size of the gradient's terms at 0 where these are above 1.
const CERTIFIED: f64 = 1e-12;
/// Without a minimum, steps do not become small as the gradient vanishes: a step counts as long above this share of theta.
const LAST_STEP: f64 = 1e-6;
/// Iterations before giving up.
const MOST_STEPS: usize = 200;
/// Armijo's share of the predicted decrease, and how often a step is halved.
const ARMIJO: f64 = 1e-4;
const HALVINGS: i32 = 40;
/// Rows that one task passes over.
const BLOCK: usize = 2048;
/// The most vectors of d components that are summed side by side.
const MOST_SUMS: usize = 64;

impl<L: Loss> Regression<L> {
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

    /// A function of some margins.
    fn at_margins(&self, t: &[f64], of: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut out = t.to_vec();
        margins::map(self.isa, &mut out, of);
        out
    }

    /// Numbers for the rows of each block, computed in parallel, one after the other.
    fn over_blocks(&self, see: impl Fn(usize, Range<usize>) -> Vec<f64> + Sync) -> Vec<f64> {
        parallel::map_into(self.blocks(), |_, (c, range)| see(c, range)).concat()
    }

    /// The mean Hessian `sum_c p_c H_c` from the margins of all rows. Without margins the bound of `l''` stands for it, which is `l''` itself
    /// for least squares.
    pub(super) fn mean_hessian(&self, margins: Option<&[f64]>, out: &mut Mat<f64>) {
        let bends = self.over_blocks(|c, range| {
            let weight = self.row_weight(c);
            let mut bends = match margins {
                Some(t) => self.at_margins(&t[range], L::bend),
                None => vec![L::MOST_BEND; range.len()],
            };
            bends.iter_mut().for_each(|bend| *bend *= weight);
            bends
        });
        gram::gram(&self.parts.rows, 0..bends.len(), &bends, out);
        self.add_ridge(out);
    }

    /// The mean gradient from the margins of all rows. Blocks that follow each other share a sum, so that many small agents take no more
    /// memory than few large ones; which do depends on nothing but their number.
    fn mean_gradient(&self, theta: &[f64], margins: &[f64]) -> Vec<f64> {
        let d = theta.len();
        let blocks = self.blocks();
        let together: Vec<_> = blocks.chunks(blocks.len().div_ceil(MOST_SUMS).max(1)).collect();
        let sum = |i: usize| {
            let mut out = vec![0.0; d];
            for (c, range) in together[i] {
                let weight = self.row_weight(*c);
                let mut weights = self.at_margins(&margins[range.clone()], L::pull);
                weights.iter_mut().for_each(|pull| *pull *= -weight);
                self.combine(range.clone(), &mut out, &weights);
            }
            out
        };
        let mut sums = parallel::map(together.len(), sum).concat();
        sums::pairwise(&mut sums, d);
        sums.truncate(d);
        sums.iter_mut().zip(&theta[..self.parts.penalised]).for_each(|(g, theta)| *g += self.parts.ridge * theta);
        sums
    }

    /// The mean loss at theta, whose margins are `t + s u`.
    fn mean_loss(&self, theta: &[f64], t: &[f64], u: &[f64], s: f64) -> f64 {
        let losses =
            self.over_blocks(|c, range| vec![self.row_weight(c) * margins::sum_along(self.isa, &t[range.clone()], &u[range], s, L::value)]);
        losses.iter().sum::<f64>() + self.penalty(theta)
    }

    /// The size of the terms of the mean gradient at 0: `sum_c (p_c / n_c) sum_j |l'(t_j)| ||x_j||`.
    fn gradient_scale(&self, margins: &[f64]) -> f64 {
        let norm = |j: usize| self.parts.rows.row(j).map(|(_, x)| x * x).sum::<f64>().sqrt();
        let sizes = self.over_blocks(|c, range| {
            let pulls = self.at_margins(&margins[range.clone()], L::pull);
            vec![self.row_weight(c) * range.zip(pulls).map(|(j, pull)| pull.abs() * norm(j)).sum::<f64>()]
        });
        sizes.iter().sum()
    }

    /// Refuses numbers so large that gradients are not finite.
    pub(super) fn check_scale(&self) -> Result<()> {
        let scale = self.gradient_scale(&self.over_blocks(|_, range| self.margins(range, &vec![0.0; self.d()])));
        if (scale * scale).is_finite() {
            return Ok(());
        }
        let what = format!("features and targets whose products are as large as {scale:.1e}");
        let help = "a smaller scale: `standardise` for features, and targets in larger units";
        Err(Error::data("data", what, help))
    }

    /// The minimum of `sum_c p_c f_c`, d numbers: its gradient is at most 1e-12, or 1e-12 times the size of the gradient's terms where that
    /// is above 1, and as small as rounding allows.
    ///
    /// # Errors
    /// When there is no unique minimum: without a ridge, features that depend on each other, or classes that a hyperplane separates.
    /// When it is cancelled, which is looked at between passes over the rows.
    pub(super) fn optimum(&self, cancel: &Cancel) -> Result<Vec<f64>> {
        let d = self.d();
        let mut theta = vec![0.0; d];
        let all = |theta: &[f64]| self.over_blocks(|_, range| self.margins(range, theta));
        let mut margins = all(&theta);
        let certified = CERTIFIED * self.gradient_scale(&margins).max(1.0);
        let mut gradient = self.mean_gradient(&theta, &margins);
        let (mut hessian, mut last_size) = (Mat::zeros(d, d), f64::INFINITY);
        for _ in 0..MOST_STEPS {
            cancel.check()?;
            let norm = linalg::norm_sq(&gradient).sqrt();
            self.mean_hessian(Some(&margins), &mut hessian);
            cancel.check()?;
            let step = self.newton_step(&hessian, &gradient)?;
            let size = linalg::norm_sq(&step).sqrt();
            let is_long = size > LAST_STEP * (1.0 + linalg::norm_sq(&theta).sqrt());
            if norm <= certified && is_long && size > 0.5 * last_size {
                return Err(self.no_minimum("the losses have no minimum: a hyperplane separates the classes of all agents"));
            }
            last_size = size;
            let slopes = self.over_blocks(|_, range| self.row_products(range, &step));
            let slope: f64 = step.iter().zip(&gradient).map(|(p, g)| p * g).sum();
            let before = self.mean_loss(&theta, &margins, &slopes, 0.0);
            // Near the optimum the loss falls by less than its rounding errors, and the gradient decides.
            let rounding = 64.0 * f64::EPSILON * before.abs();
            let found = (0..=HALVINGS).find_map(|k| {
                let s = 0.5f64.powi(k);
                let next: Vec<f64> = theta.iter().zip(&step).map(|(x, p)| s.mul_add(*p, *x)).collect();
                let after = self.mean_loss(&next, &margins, &slopes, s);
                let falls = after <= before + ARMIJO * s * slope + rounding;
                (falls && next.iter().all(|x| x.is_finite())).then_some(next)
            });
            let Some(next) = found else { break };
            cancel.check()?;
            let ahead = all(&next);
            let below = self.mean_gradient(&next, &ahead);
            // The optimum is polished as long as that pays.
            if norm <= certified && linalg::norm_sq(&below).sqrt() > 0.5 * norm {
                return Ok(theta);
            }
            (theta, margins, gradient) = (next, ahead, below);
        }
        let norm = linalg::norm_sq(&gradient).sqrt();
        if norm <= certified {
            return Ok(theta);
        }
        Err(self
            .no_minimum(&format!("the minimum of the losses was not found: the gradient is {norm:.1e} where it should be {certified:.1e}")))
    }

    /// `-H^-1 g`.
    fn newton_step(&self, hessian: &Mat<f64>, gradient: &[f64]) -> Result<Vec<f64>> {
        let singular = || {
            self.no_minimum(if L::HAS_OFFSETS {
                "the Hessian of the mean loss is singular: features depend on each other"
            } else {
                "the Hessian of the mean loss is singular: features depend on each other, or a hyperplane separates the classes"
            })
        };
        if !hessian.is_all_finite() {
            return Err(Error::data("data", "products of the features are not finite", "features of a smaller scale: `standardise`"));
        }
        let factor = hessian.llt(faer::Side::Lower).map_err(|_| singular())?;
        // The square of a pivot's share of its diagonal entry is what is left of a feature beside those before it, whatever their scales. One
        // over it is a lower bound of the condition number for features of one scale.
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
