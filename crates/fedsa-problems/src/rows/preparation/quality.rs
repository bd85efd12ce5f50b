//! The quality of a model on rows: loss, accuracy and error.

use std::ops::Range;

use super::partition::called;
use super::targets::Targets;
use crate::kernel::margins;
use crate::rows::dataset::Rows;
use crate::rows::glm::family::ModelFamily;
use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::linalg;

/// Rows with targets, one agent after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledRows {
    /// The rows, n x d.
    pub rows: Rows,
    /// The first row of each agent, then the number of rows; N + 1 numbers.
    pub first: Vec<usize>,
    /// The target of each row: -1 or 1, the index of a class, or a number.
    pub targets: Vec<f64>,
    /// The offset of each row's linear predictor; empty without offsets.
    pub offsets: Vec<f64>,
    /// The weight of each row, at least 0; empty if all count alike.
    pub row_weights: Vec<f64>,
    /// The family of losses.
    pub family: ModelFamily,
}

/// The quality of a model on n rows, with equal weight for each row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitQuality {
    /// n.
    pub rows: usize,
    /// The mean loss, without the ridge.
    pub loss: f64,
    /// The share of rows whose class is predicted, for classes. A prediction of 0 counts as -1.
    pub accuracy: Option<f64>,
    /// The root mean square of `x . theta - y` in the units of the labels, for numeric targets.
    pub rmse: Option<f64>,
}

impl LabelledRows {
    /// Each agent's number of rows, or the sum of their weights.
    pub fn totals(&self) -> Vec<f64> {
        let total = |at: &[usize]| match self.row_weights.get(at[0]..at[1]) {
            Some(weights) => weights.iter().sum(),
            None => (at[1] - at[0]) as f64,
        };
        self.first.windows(2).map(total).collect()
    }

    /// Each agent's share of the rows, or of their weights.
    pub fn shares(&self) -> Vec<f64> {
        let each = self.totals();
        let all: f64 = each.iter().sum();
        each.iter().map(|own| own / all).collect()
    }

    /// The weight of row j.
    pub fn weight(&self, j: usize) -> f64 {
        self.row_weights.get(j).copied().unwrap_or(1.0)
    }

    /// The target of all rows with weight, if it is the same number for all. Offsets are subtracted first, if the family models the mean
    /// itself.
    pub fn constant_target(&self) -> Option<f64> {
        let are_classes = matches!(self.family, ModelFamily::Binomial | ModelFamily::Multinomial { .. });
        let is_mean = matches!(self.family, ModelFamily::Gaussian | ModelFamily::Huber { .. });
        if are_classes || self.rows.len() < 2 || !self.offsets.is_empty() && !is_mean {
            return None;
        }
        let target = |j: usize| self.targets[j] - self.offsets.get(j).copied().unwrap_or(0.0);
        let mut all = (0..self.rows.len()).filter(|j| self.weight(*j) > 0.0).map(target);
        let first = all.next()?;
        all.all(|y| y == first).then_some(first)
    }

    /// Refuses agents without a row of positive weight. `names` has the agents' names, or none.
    ///
    /// # Errors
    /// When there is one.
    pub(crate) fn check_row_weights(&self, names: &[String]) -> Result<()> {
        let counts = |at: &[usize]| self.row_weights.is_empty() || self.row_weights[at[0]..at[1]].iter().sum::<f64>() > 0.0;
        let Some(c) = self.first.windows(2).position(|at| !counts(at)) else { return Ok(()) };
        let what = format!("all rows of {} have the weight 0", called(names, c));
        Err(Error::data("row_weights", what, "agents with a row that counts"))
    }

    /// The largest absolute value of each column, d numbers.
    pub fn column_sizes(&self) -> Vec<f64> {
        let mut sizes = vec![0.0f64; self.rows.columns()];
        (0..self.rows.len()).for_each(|j| self.rows.row(j).for_each(|(i, x)| sizes[i] = sizes[i].max(x.abs())));
        sizes
    }

    /// A first-order bound of the rounding error of the mean gradient at theta, for agents of these weights. Every term `a_j l'(eta_j) x_j`
    /// has the error `epsilon (|l'| + l'' sum_i |x_ji theta_i|) |x_j|`. A gradient below the bound's norm is indistinguishable from 0.
    pub fn gradient_rounding(&self, weights: &[f64], theta: &[f64]) -> f64 {
        let (d, q) = (self.rows.columns(), self.family.outputs());
        let mut errors = vec![0.0; theta.len()];
        let (mut eta, mut size, mut pull, mut bend) = (vec![0.0; q], vec![0.0; q], vec![0.0; q], vec![0.0; q * q]);
        for (c, at) in self.first.windows(2).enumerate() {
            let all: f64 = (at[0]..at[1]).map(|j| self.weight(j)).sum();
            for j in (at[0]..at[1]).filter(|j| self.weight(*j) > 0.0) {
                let offset = self.offsets.get(j).copied().unwrap_or(0.0);
                for k in 0..q {
                    let terms = || self.rows.row(j).map(|(i, x)| x * theta[k * d + i]);
                    (eta[k], size[k]) = (terms().sum::<f64>() + offset, terms().map(f64::abs).sum::<f64>() + offset.abs());
                }
                self.family.pull(&eta, self.targets[j], &mut pull);
                self.family.bend(&eta, self.targets[j], &mut bend);
                let share = weights[c] * self.weight(j) / all;
                for k in 0..q {
                    let moved: f64 = bend[k * q..][..q].iter().zip(&size).map(|(bend, size)| bend.abs() * size).sum();
                    let error = f64::EPSILON * share * (pull[k].abs() + moved);
                    self.rows.row(j).for_each(|(i, x)| errors[k * d + i] += error * x.abs());
                }
            }
        }
        linalg::norm_sq(&errors).sqrt()
    }

    /// `x_j . theta_k` of the n rows of a range, n numbers for each output; theta has a block of d numbers per output.
    pub fn products(&self, range: Range<usize>, theta: &[f64], outputs: usize) -> Vec<f64> {
        let (n, d) = (range.len(), self.rows.columns());
        let mut out = vec![0.0; outputs * n];
        for k in 0..outputs {
            margins::margins(Isa::best(), &self.rows, range.clone(), &theta[k * d..][..d], &mut out[k * n..][..n]);
        }
        out
    }

    /// The linear predictors of the n rows of a range, n numbers for each output: products with the offsets.
    pub fn predictors(&self, range: Range<usize>, theta: &[f64], outputs: usize) -> Vec<f64> {
        let mut out = self.products(range.clone(), theta, outputs);
        if !self.offsets.is_empty() {
            let n = range.len().max(1);
            out.chunks_mut(n).for_each(|out| out.iter_mut().zip(&self.offsets[range.clone()]).for_each(|(t, o)| *t += o));
        }
        out
    }

    /// The predictions `x_j . theta`; theta has d components.
    pub fn scores(&self, theta: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.rows.len()];
        margins::margins(Isa::best(), &self.rows, 0..out.len(), theta, &mut out);
        out
    }
}

/// Sums over rows from which the quality of a model follows. Those of several agents are added.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QualitySums {
    /// The number of rows.
    pub rows: f64,
    /// The sum of their weights.
    pub weights: f64,
    /// The weighted sum of losses, without the ridge.
    pub loss: f64,
    /// For classes the weight of rows whose class is predicted, for numbers the weighted sum of squared errors of targets.
    pub hits: f64,
}

impl QualitySums {
    /// The sums of theta over the rows of agent c, with targets made by `targets`.
    fn of_agent(part: &LabelledRows, targets: &Targets, theta: &[f64], c: usize) -> Self {
        let (family, range) = (part.family, part.first[c]..part.first[c + 1]);
        let (n, q) = (range.len(), family.outputs());
        let etas = part.predictors(range.clone(), theta, q);
        let (mut sums, mut eta) = (Self { rows: n as f64, ..Self::default() }, vec![0.0; q]);
        for (i, j) in range.enumerate() {
            eta.iter_mut().enumerate().for_each(|(k, t)| *t = etas[k * n + i]);
            let (a, y) = (part.weight(j), part.targets[j]);
            sums.weights += a;
            sums.loss += a * family.value(&eta, y);
            sums.hits += match targets {
                Targets::Classes { .. } => a * f64::from((eta[0] > 0.0) == (y > 0.0)),
                Targets::Many { .. } => a * f64::from(family.likeliest(&eta) == y as usize),
                Targets::Numbers { .. } => a * (family.mean(eta[0]) - y).powi(2),
            };
        }
        sums
    }

    /// The sums of theta over the rows of all agents, in the agents' order.
    pub fn of(part: &LabelledRows, targets: &Targets, theta: &[f64]) -> Self {
        let each = (0..part.first.len().saturating_sub(1)).map(|c| Self::of_agent(part, targets, theta, c));
        each.fold(Self::default(), |all, one| Self {
            rows: all.rows + one.rows,
            weights: all.weights + one.weights,
            loss: all.loss + one.loss,
            hits: all.hits + one.hits,
        })
    }

    /// The quality, for these targets.
    pub fn quality(&self, targets: &Targets) -> FitQuality {
        let Self { rows, weights, loss, hits } = *self;
        let scale = if let Targets::Numbers { scale, .. } = targets { Some(scale.abs()) } else { None };
        FitQuality {
            rows: rows as usize,
            loss: loss / weights,
            accuracy: scale.is_none().then(|| hits / weights),
            rmse: scale.map(|scale| (hits / weights).sqrt() / scale),
        }
    }

    /// The sums as numbers.
    pub fn numbers(&self) -> [f64; 4] {
        [self.rows, self.weights, self.loss, self.hits]
    }

    /// The sums of [`QualitySums::numbers`].
    pub fn of_numbers([rows, weights, loss, hits]: [f64; 4]) -> Self {
        Self { rows, weights, loss, hits }
    }
}

/// The quality of theta on rows with targets made by `targets`.
pub fn quality(part: &LabelledRows, targets: &Targets, theta: &[f64]) -> FitQuality {
    QualitySums::of(part, targets, theta).quality(targets)
}
