//! Sums over agents' rows that do not depend on theta.

use std::borrow::Cow;

use faer::Mat;
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::regression::gram;

/// Sums over rows x_j with targets `y_j`, offsets `o_j` and weights `a_j`; rows of weight 0 do not count.
#[derive(Debug, Clone)]
pub(super) struct DataSums {
    /// The number of rows.
    pub rows: f64,
    /// `sum_j a_j`.
    pub weights: f64,
    /// `sum_j a_j y_j`.
    pub targets: f64,
    /// `sum_j a_j y_j^2`.
    pub squares: f64,
    /// The number of rows whose target is not 0.
    pub nonzero: f64,
    /// `sum_j a_j exp(o_j)`.
    pub exposure: f64,
    /// `sum_j a_j x_j x_j^T`, d x d.
    pub gram: Mat<f64>,
}

impl DataSums {
    pub fn zeros(d: usize) -> Self {
        Self { rows: 0.0, weights: 0.0, targets: 0.0, squares: 0.0, nonzero: 0.0, exposure: 0.0, gram: Mat::zeros(d, d) }
    }

    /// The sums over the rows of all agents, in the agents' order.
    pub fn of(family: ModelFamily, part: &LabelledRows) -> Self {
        let mut all = Self::zeros(part.rows.columns());
        (0..part.first.len() - 1).for_each(|c| all.add(&Self::of_agent(family, part, c)));
        all
    }

    fn add(&mut self, one: &Self) {
        self.rows += one.rows;
        self.weights += one.weights;
        self.targets += one.targets;
        self.squares += one.squares;
        self.nonzero += one.nonzero;
        self.exposure += one.exposure;
        self.gram += &one.gram;
    }

    /// The sums over the rows of agent c.
    fn of_agent(family: ModelFamily, part: &LabelledRows, c: usize) -> Self {
        let range = part.first[c]..part.first[c + 1];
        let mut out = Self::zeros(part.rows.columns());
        // Squares of classes' indices mean nothing.
        let has_squares = family.has_dispersion();
        for j in range.clone() {
            let (a, y) = (part.weight(j), part.targets[j]);
            if a == 0.0 {
                continue;
            }
            out.rows += 1.0;
            out.weights += a;
            out.targets += a * y;
            out.squares += if has_squares { a * y * y } else { 0.0 };
            out.nonzero += f64::from(y != 0.0);
            if family.has_log_link() {
                out.exposure += a * part.offsets.get(j).map_or(1.0, |offset| libm::exp(*offset));
            }
        }
        let weights: Vec<f64> = range.clone().map(|j| part.weight(j)).collect();
        gram::of_parts(&part.rows, [(range, Cow::Owned(weights))], &mut out.gram);
        out
    }

    /// The root of the sum of squares of the predictors' changes in a step of q blocks, with weights of the mean 1: at least the largest
    /// change if all rows have one weight.
    pub fn moved(&self, step: &[f64]) -> f64 {
        let d = self.gram.nrows();
        let squares = step.chunks(d.max(1)).map(|block| {
            let along = |i: usize| (0..d).map(|j| self.gram[(i, j)] * block[j]).sum::<f64>();
            (0..d).map(|i| block[i] * along(i)).sum::<f64>()
        });
        (squares.sum::<f64>().max(0.0) * self.rows / self.weights).sqrt()
    }
}
