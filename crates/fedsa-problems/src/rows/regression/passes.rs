//! Passes over the agents' rows, with the best kernel for them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::Ordering;

use faer::Mat;

use super::gram;
use super::loss::RowLosses;
use super::pattern::Pattern;
use super::seen::Seen;
use super::{BEFORE_LISTS, Regression};
use crate::kernel::margins;

impl<L: RowLosses> Regression<L> {
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

    /// `f_c(theta + s p)` for each of `steps`. Margins are linear along p, and the ridge's part is quadratic. So one pass with two products
    /// per row suffices for any number of steps. At step 0 it has the bits of the loss.
    pub(super) fn losses_on_line(&self, c: usize, theta: &[f64], p: &[f64], steps: &[f64], out: &mut [f64]) {
        let range = self.range(c);
        let (seen, slopes) = match self.points.take(c, theta) {
            Some(seen) => (seen, self.row_products(range.clone(), p)),
            None => {
                let (margins, slopes) = self.margins_and_slopes(range.clone(), theta, p);
                (Seen { theta: theta.to_vec(), margins, gradient: None }, slopes)
            }
        };
        self.loss.sums_along(self.isa, range.clone(), &seen.margins, &slopes, steps, out);
        let [xx, pp, xp] = [(theta, theta), (p, p), (theta, p)].map(|(a, b)| self.penalised_dot(a, b));
        for (s, out) in steps.iter().zip(out) {
            *out = *out / range.len() as f64 + self.parts.ridge / 2.0 * s.mul_add(s.mul_add(pp, 2.0 * xp), xx);
        }
        self.points.keep(c, seen);
    }

    /// The margins of the rows of a range at theta, and their products with p.
    fn margins_and_slopes(&self, range: Range<usize>, theta: &[f64], p: &[f64]) -> (Vec<f64>, Vec<f64>) {
        if self.units.is_some() {
            return (self.margins(range.clone(), theta), self.row_products(range, p));
        }
        let (n, d) = (range.len(), self.d());
        let (mut margins, mut slopes) = (vec![0.0; self.outputs() * n], vec![0.0; self.outputs() * n]);
        for (k, blocks) in theta.chunks(d).zip(p.chunks(d)).enumerate() {
            let of_both = [&mut margins[k * n..][..n], &mut slopes[k * n..][..n]];
            margins::margins_of_both(self.isa, &self.parts.rows, range.clone(), blocks.into(), of_both);
        }
        self.shift(range, &mut margins);
        (margins, slopes)
    }

    /// Whether an agent has binary rows, few enough to list them by the entries to which they contribute.
    fn can_list(&self, c: usize) -> bool {
        self.units.is_some() && self.outputs() == 1 && Pattern::can_list(&self.parts.rows, self.range(c), self.agents())
    }

    /// The q x q blocks `sum_j w_j x_j x_j^T` over an agent's rows, d x d each, with weights in the layout of [`RowLosses::bends`].
    pub(super) fn gram(&self, c: usize, weights: &[f64], out: &mut Mat<f64>) {
        let are_many = || self.formed[c].fetch_add(1, Ordering::Relaxed) >= BEFORE_LISTS;
        let Some(pattern) = (self.can_list(c) && are_many()).then(|| self.pattern(c)).flatten() else {
            let (range, n) = (self.range(c), self.range(c).len());
            return gram::blocks(&self.parts.rows, range, self.outputs(), |at| Cow::Borrowed(&weights[at * n..][..n]), out);
        };
        let mut sum = vec![0.0; pattern.support.len()];
        pattern.sum_of_units(self.isa, &self.parts.rows, self.range(c), weights, &mut sum);
        pattern.spread(&sum, out);
    }

    /// The same on the agent's support, with the same bits. Callers form many such matrices.
    pub(super) fn gram_on_support(&self, c: usize, pattern: &Pattern, weights: &[f64], out: &mut [f64]) {
        if self.can_list(c) {
            return pattern.sum_of_units(self.isa, &self.parts.rows, self.range(c), weights, out);
        }
        pattern.sum(&self.parts.rows, self.range(c), weights, out);
    }
}
