//! Losses, gradients and Hessians of regression.

use std::sync::Arc;

use faer::Mat;

use super::loss::{Bends, RowLosses};
use super::{Regression, gram};
use crate::rows::dataset::Rows;
use fedsa::problem::Problem;
use fedsa::problem::objective::{ActiveComponents, HessianProducts, Objective, dense_hessian};
use fedsa::triangle::{Support, entries};

impl<L: RowLosses> Objective for Regression<L> {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.with_margins(c, theta, |t| self.mean_of_losses(c, t)) + self.penalty(theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        if self.points.keeps() {
            return self.gradient_with_margins(c, theta, out, |_| ());
        }
        self.mean(c, theta, out);
        out.iter_mut().for_each(|out| *out = -*out);
    }
    /// One pass over the rows computes the margins for both.
    fn loss_and_gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) -> f64 {
        self.gradient_with_margins(c, theta, out, |t| self.mean_of_losses(c, t)) + self.penalty(theta)
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        // The kept systems have the bits of the code below, which made them.
        if let Some(systems) = &self.systems {
            out.copy_from(&systems.of(c).a);
            return;
        }
        let mut bends = self.bends(c, theta);
        let scale = 1.0 / self.range(c).len() as f64;
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
        let dense = match (&self.parts.rows, &self.systems, self.outputs()) {
            (Rows::Dense { values, .. }, None, 1) => Some(values),
            _ => None,
        };
        if pattern.is_none() && dense.is_none() {
            self.gradient(c, theta, gradient);
            return dense_hessian(self, c, theta, hessian);
        }
        let range = self.range(c);
        let of = |t: &[f64]| self.loss.bends(self.isa, range.clone(), t, Bends::Useful);
        let mut bends = self.gradient_with_margins(c, theta, gradient, of);
        let scale = 1.0 / bends.len() as f64;
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
    /// Margins at theta, and an exponential per row, are computed once for all products.
    fn hessian_products<'a>(&'a self, c: usize, theta: &[f64]) -> HessianProducts<'a> {
        let bends = self.bends(c, theta);
        Box::new(move |v: &[f64], out: &mut [f64]| self.bent_product(c, &bends, v, out))
    }
    /// In nanoseconds, roughly, as measured with AVX-512 in whole runs. Products with dense rows are somewhat faster today. Other numbers
    /// here would alter the last digits of DONE.
    fn is_better_formed(&self, c: usize, products: usize) -> bool {
        const ANY_MATRIX: f64 = 2_000.0;
        if self.outputs() > 1 {
            return false;
        }
        let (range, d) = (self.range(c), self.d() as f64);
        let square = d * d / 2.0;
        let (one_by_one, forming) = match &self.parts.rows {
            // Rows come from a far cache, the matrix from a near one.
            Rows::Dense { .. } => (0.58 * range.len() as f64 * d, 0.037 * range.len() as f64 * square),
            Rows::Sparse { starts, .. } => {
                let pairs: usize = range.clone().map(|j| (starts[j + 1] - starts[j]).pow(2) / 2).sum();
                (1.3 * (starts[range.end] - starts[range.start]) as f64, 0.8 * pairs as f64)
            }
        };
        ANY_MATRIX + forming + 2.0 * square + products as f64 * 0.4 * square < products as f64 * one_by_one
    }
    /// The columns in the agent's sparse rows of one margin, and those without a ridge.
    fn active(&self, c: usize) -> Option<ActiveComponents> {
        let (Rows::Sparse { starts, index, .. }, 1) = (&self.parts.rows, self.outputs()) else { return None };
        let range = self.range(c);
        let mut occurs = vec![false; self.d()];
        index[starts[range.start]..starts[range.end]].iter().for_each(|i| occurs[*i as usize] = true);
        occurs[self.parts.penalised..].fill(true);
        let components: Vec<u32> = (0..self.d() as u32).filter(|i| occurs[*i as usize]).collect();
        // If every column occurs, there is nothing outside, and the ridge alone is no eigenvalue.
        (components.len() < self.d()).then_some(ActiveComponents { components, outside: self.parts.ridge })
    }
    /// Copies the agent's sparse rows with renumbered columns, so that products do not pass over all d components.
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
