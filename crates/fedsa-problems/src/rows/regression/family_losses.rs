//! The losses of a family of generalised linear models, with a target and a weight per row. Margins are the predictors.

use std::ops::Range;

use super::loss::{Bends, RowLosses};
use crate::kernel::margins;
use crate::rows::glm::family::ModelFamily;
use crate::rows::preparation::quality::LabelledRows;
use fedsa::error::Result;
use fedsa::kernel::Isa;

/// The losses `n_c a_j / A_c l(eta_j, y_j)` of rows with weights a_j; A_c is the sum of the weights of an agent's n_c rows.
#[derive(Debug)]
pub(super) struct FamilyLosses {
    family: ModelFamily,
    targets: Vec<f64>,
    /// `n_c a_j / A_c` of each row.
    shares: Vec<f64>,
}

impl FamilyLosses {
    /// The losses of the rows of `part`.
    ///
    /// # Errors
    /// When an agent's rows all have the weight 0.
    pub fn of(part: &LabelledRows) -> Result<Self> {
        part.check_row_weights(&[])?;
        let mut shares = vec![1.0; part.rows.len()];
        if !part.row_weights.is_empty() {
            for at in part.first.windows(2) {
                let total: f64 = part.row_weights[at[0]..at[1]].iter().sum();
                let scale = (at[1] - at[0]) as f64 / total;
                (at[0]..at[1]).for_each(|j| shares[j] = scale * part.row_weights[j]);
            }
        }
        Ok(Self { family: part.family, targets: part.targets.clone(), shares })
    }

    /// Calls `see` with the position of each row, its predictors, its target and its share.
    fn each_row(&self, isa: Isa, rows: Range<usize>, etas: &[f64], mut see: impl FnMut(usize, &[f64], f64, f64)) {
        let n = rows.len();
        let (targets, shares) = (&self.targets[rows.clone()], &self.shares[rows]);
        let mut eta = vec![0.0; self.outputs()];
        margins::each(isa, n, |i| {
            eta.iter_mut().enumerate().for_each(|(k, t)| *t = etas[k * n + i]);
            see(i, &eta, targets[i], shares[i]);
        });
    }

    /// Whether the losses of most rows are linear near these predictors, so that second derivatives vanish: fewer than a quarter of the
    /// residuals are within delta of Huber's loss.
    fn are_mostly_linear(&self, isa: Isa, rows: Range<usize>, etas: &[f64]) -> bool {
        let ModelFamily::Huber { delta } = self.family else { return false };
        let (n, mut within) = (rows.len(), 0);
        self.each_row(isa, rows, etas, |_, eta, y, _| within += usize::from((eta[0] - y).abs() <= delta));
        4 * within < n
    }
}

impl RowLosses for FamilyLosses {
    const IS_LINEAR: bool = false;

    fn most_bend(&self) -> Option<f64> {
        None
    }
    fn outputs(&self) -> usize {
        self.family.outputs()
    }
    fn has_majorant(&self) -> bool {
        matches!(self.family, ModelFamily::Huber { .. })
    }
    /// Terms of a log-likelihood may cancel.
    fn rounding(&self, mean: f64) -> f64 {
        256.0 * f64::EPSILON * (1.0 + mean.abs())
    }
    fn pull_of(&self, j: usize, t: &mut [f64]) {
        let eta = t.to_vec();
        self.family.pull(&eta, self.targets[j], t);
        t.iter_mut().for_each(|pull| *pull *= self.shares[j]);
    }
    fn pulls(&self, isa: Isa, rows: Range<usize>, t: &mut [f64]) {
        let (n, etas, mut pull) = (rows.len(), t.to_vec(), vec![0.0; self.outputs()]);
        self.each_row(isa, rows, &etas, |i, eta, y, share| {
            self.family.pull(eta, y, &mut pull);
            pull.iter().enumerate().for_each(|(k, x)| t[k * n + i] = share * x);
        });
    }
    fn bends(&self, isa: Isa, rows: Range<usize>, t: &[f64], of: Bends) -> Vec<f64> {
        let (n, q) = (rows.len(), self.outputs());
        let (mut one, mut out) = (vec![0.0; q * q], vec![0.0; q * q * n]);
        let is_major = of == Bends::Majorant || of == Bends::Useful && self.are_mostly_linear(isa, rows.clone(), t);
        self.each_row(isa, rows, t, |i, eta, y, share| {
            if is_major {
                self.family.majorant(eta, y, &mut one);
            } else {
                self.family.bend(eta, y, &mut one);
            }
            one.iter().enumerate().for_each(|(at, x)| out[at * n + i] = share * x);
        });
        out
    }
    fn sum(&self, isa: Isa, rows: Range<usize>, t: &[f64]) -> f64 {
        let mut sum = 0.0;
        self.each_row(isa, rows, t, |_, eta, y, share| sum += share * self.family.value(eta, y));
        sum
    }
    fn sums_along(&self, isa: Isa, rows: Range<usize>, t: &[f64], u: &[f64], steps: &[f64], out: &mut [f64]) {
        steps.iter().zip(out).for_each(|(s, out)| *out = self.sum_along(isa, rows.clone(), t, u, *s));
    }
    fn sum_along(&self, isa: Isa, rows: Range<usize>, t: &[f64], u: &[f64], s: f64) -> f64 {
        let at: Vec<f64> = t.iter().zip(u).map(|(t, u)| s.mul_add(*u, *t)).collect();
        self.sum(isa, rows, &at)
    }
}
