//! The vector of an agent's sums: what travels in a federation. Vectors of agents are added, in the agents' order.
//!
//! ```text
//! agents                 1 if the agent has a row with a weight above 0
//! rows, weights          n, sum_j a_j
//! targets, squares       sum_j a_j y_j; sum_j a_j y_j^2 for Gaussian, Huber and gamma models
//! nonzero                the number of targets that are not 0
//! exposure               sum_j a_j exp(o_j) for models with a log link
//! loss, predictors       sum_j a_j l_j, sum_j a_j ||eta_j||^2
//! deviance, pearson, likelihood, log
//! score                  s, p numbers
//! sizes                  sizes of the terms of s, p numbers
//! gram                   sum_j a_j x_j x_j^T, a triangle of d (d + 1) / 2 numbers, row by row
//! observed               observed information, a triangle of p (p + 1) / 2 numbers
//! expected               expected information, the same; only if it is not the observed one
//! meat                   sum_j s_j s_j^T for the covariances sandwich and hc1, s s^T for clustered, none for model
//! ```

use faer::Mat;
use fedsa::error::{Error, Result};
use fedsa_problems::rows::glm::family::{ModelFamily, RowFit};
use fedsa_problems::rows::preparation::quality::LabelledRows;

use super::agent_sums::{ModelSums, Want};
use super::data_sums::DataSums;
use super::kind::CovarianceKind;

/// The numbers before the score.
const HEAD: usize = 13;

/// The shape of a vector.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub family: ModelFamily,
    /// Features of a row.
    pub d: usize,
    pub covariance: CovarianceKind,
}

impl Layout {
    /// p.
    fn components(&self) -> usize {
        self.d * self.family.outputs()
    }

    /// The length of a vector.
    pub fn numbers(&self) -> usize {
        let p = self.components();
        let matrices = 1 + usize::from(!self.family.is_canonical()) + usize::from(self.covariance != CovarianceKind::Model);
        HEAD + 2 * p + triangle(self.d) + matrices * triangle(p)
    }

    /// The vector of one agent, whose rows are all of `part`.
    pub fn of_agent(&self, part: &LabelledRows, theta: &[f64]) -> Vec<f64> {
        self.written(&DataSums::of(self.family, part), &ModelSums::of(self.family, part, theta, Want::Covariance))
    }

    fn written(&self, data: &DataSums, sums: &ModelSums) -> Vec<f64> {
        let fit = &sums.fit;
        let mut out = vec![sums.agents, data.rows, data.weights, data.targets, data.squares, data.nonzero, data.exposure];
        out.extend([sums.loss, sums.predictors, fit.deviance, fit.pearson, fit.likelihood, fit.log]);
        out.extend_from_slice(&sums.score);
        out.extend_from_slice(&sums.sizes);
        push(&data.gram, &mut out);
        push(&sums.observed, &mut out);
        if !self.family.is_canonical() {
            push(&sums.expected, &mut out);
        }
        match self.covariance {
            CovarianceKind::Model => {}
            CovarianceKind::Sandwich | CovarianceKind::Hc1 => push(&sums.outer, &mut out),
            CovarianceKind::Clustered => push(&sums.clustered, &mut out),
        }
        out
    }

    /// The sums in a vector.
    ///
    /// # Errors
    /// When it has another length.
    pub fn read(&self, numbers: &[f64]) -> Result<(DataSums, ModelSums)> {
        let expected = self.numbers();
        if numbers.len() != expected {
            let what = format!("sums of {} numbers", numbers.len());
            return Err(Error::refused_message(what, format!("{expected} numbers of this model and covariance")));
        }
        let (p, (head, mut rest)) = (self.components(), numbers.split_at(HEAD));
        let mut take = |n: usize| {
            let (own, after) = rest.split_at(n);
            rest = after;
            own
        };
        let (score, sizes) = (take(p).to_vec(), take(p).to_vec());
        let gram = symmetric(self.d, take(triangle(self.d)));
        let observed = symmetric(p, take(triangle(p)));
        let expected = if self.family.is_canonical() { observed.clone() } else { symmetric(p, take(triangle(p))) };
        let mut sums = ModelSums { score, sizes, observed, expected, ..ModelSums::zeros(p, Want::Loss) };
        match self.covariance {
            CovarianceKind::Model => {}
            CovarianceKind::Sandwich | CovarianceKind::Hc1 => sums.outer = symmetric(p, take(triangle(p))),
            CovarianceKind::Clustered => sums.clustered = symmetric(p, take(triangle(p))),
        }
        let [agents, rows, weights, targets, squares, nonzero, exposure, loss, predictors, deviance, pearson, likelihood, log] = *head
        else {
            unreachable!("the head has {HEAD} numbers")
        };
        sums.fit = RowFit { deviance, pearson, likelihood, log };
        let sums = ModelSums { agents, rows, weights, loss, predictors, ..sums };
        Ok((DataSums { rows, weights, targets, squares, nonzero, exposure, gram }, sums))
    }
}

fn triangle(n: usize) -> usize {
    n * (n + 1) / 2
}

/// Appends the lower triangle of a symmetric matrix, row by row.
fn push(matrix: &Mat<f64>, out: &mut Vec<f64>) {
    (0..matrix.nrows()).for_each(|i| out.extend((0..=i).map(|j| matrix[(i, j)])));
}

/// The symmetric matrix of a triangle.
fn symmetric(n: usize, lower: &[f64]) -> Mat<f64> {
    let at = |i: usize, j: usize| lower[i * (i + 1) / 2 + j];
    Mat::from_fn(n, n, |i, j| if j <= i { at(i, j) } else { at(j, i) })
}
