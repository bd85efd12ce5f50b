//! Passes over the agents' rows, by the kernel that suits them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use faer::Mat;

use super::gram;
use super::loss::Loss;
use super::pattern::Pattern;
use super::seen::Seen;
use super::{BEFORE_LISTS, Regression};
use crate::kernel::margins;
use crate::linalg;

impl<L: Loss> Regression<L> {
    /// `out_j = x_j . theta` of the rows of a range.
    pub(super) fn products_into(&self, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
        if !self.units.as_ref().is_some_and(|units| units.margins(self.isa, range.clone(), theta, out)) {
            margins::margins(self.isa, &self.parts.rows, range, theta, out);
        }
    }

    /// `out += sum_j weights_j x_j` over the rows of a range.
    pub(super) fn combine(&self, range: Range<usize>, out: &mut [f64], weights: &[f64]) {
        if !self.units.as_ref().is_some_and(|units| units.combine(self.isa, range.clone(), out, weights)) {
            margins::combine(self.isa, &self.parts.rows, range, out, weights);
        }
    }

    /// [`margins::pass`] over the rows of a range.
    pub(super) fn pass(&self, range: Range<usize>, theta: &[f64], out: &mut [f64], mut weigh: impl FnMut(Range<usize>, &mut [f64])) {
        if !self.units.as_ref().is_some_and(|units| units.pass(self.isa, range.clone(), theta, out, &mut weigh)) {
            margins::pass(self.isa, &self.parts.rows, range, theta, out, weigh);
        }
    }

    /// `f_c(theta + s p)` for each of `steps`. Margins change linearly along p and the ridge's part quadratically: two products with the rows in
    /// one pass, whatever the number of steps. At step 0 it has the bits of the loss.
    pub(super) fn losses_on_line(&self, c: usize, theta: &[f64], p: &[f64], steps: &[f64], out: &mut [f64]) {
        let range = self.range(c);
        let mut slopes = vec![0.0; range.len()];
        let seen = match self.points.take(c, theta) {
            Some(seen) => {
                self.products_into(range, p, &mut slopes);
                seen
            }
            None if self.units.is_some() => {
                self.products_into(range.clone(), p, &mut slopes);
                Seen { theta: theta.to_vec(), margins: self.margins(range, theta), gradient: None }
            }
            None => {
                let mut margins = vec![0.0; range.len()];
                margins::margins_of_both(self.isa, &self.parts.rows, range.clone(), [theta, p], [&mut margins, &mut slopes]);
                self.shift(range, &mut margins);
                Seen { theta: theta.to_vec(), margins, gradient: None }
            }
        };
        self.sums_of_losses(&seen.margins, &slopes, steps, out);
        let (x, p) = (&theta[..self.parts.penalised], &p[..self.parts.penalised]);
        let (xx, pp) = (linalg::norm_sq(x), linalg::norm_sq(p));
        let xp: f64 = x.iter().zip(p).map(|(x, p)| x * p).sum();
        for (s, out) in steps.iter().zip(out) {
            *out = *out / slopes.len() as f64 + self.parts.ridge / 2.0 * s.mul_add(s.mul_add(pp, 2.0 * xp), xx);
        }
        self.points.keep(c, seen);
    }

    /// `sum_j l(t_j + s u_j)` for each of `steps`. Steps that are so short that no margin moves further than the series of l reaches share the
    /// sums of its coefficients: a trial step takes a few operations then, and not a pass over the rows.
    fn sums_of_losses(&self, t: &[f64], u: &[f64], steps: &[f64], out: &mut [f64]) {
        // What is no number reaches nowhere.
        let most = margins::largest(self.isa, u);
        let is_short = |s: f64| L::REACH > 0.0 && s.abs() * most <= L::REACH;
        let series = steps.iter().any(|s| is_short(*s)).then(|| margins::series_along(self.isa, t, u, L::series));
        for (s, out) in steps.iter().zip(out) {
            *out = match series {
                Some(sums) if is_short(*s) => sums.iter().rev().fold(0.0, |sum, k| f64::mul_add(sum, *s, *k)),
                _ => margins::sum_along(self.isa, t, u, *s, L::value),
            };
        }
    }

    /// Whether an agent has binary rows, few enough to be listed by the entries that they contribute to.
    fn can_list(&self, c: usize) -> bool {
        self.units.is_some() && Pattern::can_list(&self.parts.rows, self.range(c), self.agents())
    }

    /// `out = sum_j w_j x_j x_j^T` over the rows of an agent, d x d.
    pub(super) fn gram(&self, c: usize, weights: &[f64], out: &mut Mat<f64>) {
        let are_many = || self.formed[c].fetch_add(1, Ordering::Relaxed) >= BEFORE_LISTS;
        let Some(pattern) = (self.can_list(c) && are_many()).then(|| self.pattern(c)).flatten() else {
            return gram::gram(&self.parts.rows, self.range(c), weights, out);
        };
        let mut sum = vec![0.0; pattern.support.len()];
        pattern.sum_of_units(self.isa, &self.parts.rows, self.range(c), weights, &mut sum);
        pattern.spread(&sum, out);
    }

    /// The same on the agent's support, with the same bits. Who asks for that forms many.
    pub(super) fn gram_on_support(&self, c: usize, pattern: &Pattern, weights: &[f64], out: &mut [f64]) {
        if self.can_list(c) {
            return pattern.sum_of_units(self.isa, &self.parts.rows, self.range(c), weights, out);
        }
        pattern.sum(&self.parts.rows, self.range(c), weights, out);
    }
}
