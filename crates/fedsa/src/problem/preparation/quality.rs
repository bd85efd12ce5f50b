//! How good a model is on rows: its loss, accuracy and error.

use super::targets::Targets;
use crate::kernel::{Isa, margins};
use crate::problem::dataset::Rows;
use crate::problem::regression::loss::{LogLoss, Loss, SquaredLoss};

/// Rows with targets, one agent after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledRows {
    /// The rows, n x d.
    pub rows: Rows,
    /// Where each agent's rows start; N + 1 numbers.
    pub first: Vec<usize>,
    /// The target of each row: -1 or 1, or a number.
    pub targets: Vec<f64>,
}

/// How good a model is on n rows, each of which counts alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitQuality {
    /// n.
    pub rows: usize,
    /// The mean loss, without the ridge.
    pub loss: f64,
    /// The share of rows whose class is predicted, where targets are classes. A prediction of 0 counts as -1.
    pub accuracy: Option<f64>,
    /// The root mean square of `x . theta - y` in the units of the labels, where targets are numbers.
    pub rmse: Option<f64>,
}

impl LabelledRows {
    /// The predictions `x_j . theta`; theta has d components.
    pub fn scores(&self, theta: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.rows.len()];
        margins::margins(Isa::best(), &self.rows, 0..out.len(), theta, &mut out);
        out
    }
}

/// The quality of theta on rows whose targets were made so.
pub fn quality(part: &LabelledRows, targets: &Targets, theta: &[f64]) -> FitQuality {
    let (scores, n) = (part.scores(theta), part.rows.len());
    let pairs = || scores.iter().zip(&part.targets);
    let mean = |sum: f64| sum / n as f64;
    match targets {
        Targets::Classes { .. } => FitQuality {
            rows: n,
            loss: mean(pairs().map(|(t, y)| LogLoss::value(y * t)).sum()),
            accuracy: Some(pairs().filter(|(t, y)| (**t > 0.0) == (**y > 0.0)).count() as f64 / n as f64),
            rmse: None,
        },
        Targets::Numbers { scale, .. } => {
            let loss = mean(pairs().map(|(t, y)| SquaredLoss::value(t - y)).sum());
            FitQuality { rows: n, loss, accuracy: None, rmse: Some((2.0 * loss).sqrt() / scale.abs()) }
        }
    }
}
