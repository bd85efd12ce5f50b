//! Maximum-likelihood estimates by Newton's method on sums that agents send, and reasons why an estimate may not exist.

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use fedsa::cancel::Cancel;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa_problems::rows::glm::family::ModelFamily;

use super::agent_sums::{ModelSums, Want};
use super::data_sums::DataSums;
use super::source::Source;

/// Every component of the score is at most this share of the sum of the sizes of its terms.
const SCORE: f64 = 1e-10;
/// A pivot below this share of its diagonal entry makes a matrix singular.
const PIVOT: f64 = 1e-12;
/// While the information vanishes, the iteration continues if a step changes predictors by more than this share of the largest one.
const LONG: f64 = 1e-3;
/// After more such steps there is no finite estimate.
const MAX_LONG: usize = 3;
/// The largest number of iterations, and of halvings of a step.
const MAX_STEPS: usize = 200;
const HALVINGS: i32 = 60;
/// Armijo's share of the predicted decrease.
const ARMIJO: f64 = 1e-4;
/// A column is not part of a combination if its coefficient, in units of the columns' size, is below this share of the largest.
const SHARE: f64 = 1e-4;

/// The reason why there is no estimate. Columns are the features, from 0.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum NoEstimate {
    /// Columns, each with the other columns that combine to it; none for a column of zeros.
    Collinear(Vec<(usize, Vec<usize>)>),
    /// Columns whose coefficients grow without bound, by the sizes of their parts in the last step.
    Separated(Vec<usize>),
    /// The iteration did not find the estimate: the largest remaining share of the score.
    NotFound(f64),
}

pub(super) struct Estimate {
    /// theta, p components.
    pub theta: Vec<f64>,
    /// The steps from the start.
    pub steps: usize,
    /// Whether the start was the intercept of the mean target, which takes an exchange.
    pub is_from_mean: bool,
}

/// A factorisation of `D^-1 H D^-1` with D the roots of the diagonal of H.
pub(super) struct Scaled {
    factor: faer::linalg::solvers::Llt<f64>,
    d: Vec<f64>,
}

impl Scaled {
    /// The factorisation of a positive definite H; `None` if it is singular to 1e-12.
    pub fn of(h: &Mat<f64>) -> Option<Self> {
        let d: Vec<f64> = (0..h.nrows()).map(|i| h[(i, i)].sqrt()).collect();
        if !d.iter().all(|x| x.is_finite() && *x > 0.0) {
            return None;
        }
        let scaled = Mat::from_fn(h.nrows(), h.ncols(), |i, j| h[(i, j)] / (d[i] * d[j]));
        let factor = scaled.is_all_finite().then(|| scaled.llt(Side::Lower).ok()).flatten()?;
        let least = factor.L().diagonal().column_vector().iter().fold(f64::INFINITY, |least, x| least.min(*x));
        (least * least > PIVOT).then_some(Self { factor, d })
    }

    /// `H^-1 b`.
    pub fn solve(&self, b: &[f64]) -> Vec<f64> {
        let scaled: Vec<f64> = b.iter().zip(&self.d).map(|(b, d)| b / d).collect();
        let x = self.factor.solve(linalg::column(&scaled));
        x.col_as_slice(0).iter().zip(&self.d).map(|(x, d)| x / d).collect()
    }

    /// `H^-1`.
    pub fn inverse(&self) -> Mat<f64> {
        let p = self.d.len();
        let inverse = self.factor.solve(Mat::<f64>::identity(p, p));
        Mat::from_fn(p, p, |i, j| 0.5 * (inverse[(i, j)] + inverse[(j, i)]) / (self.d[i] * self.d[j]))
    }
}

/// The columns that are combinations of others, from `g = sum_j a_j x_j x_j^T`. A last column of ones is checked first, then the others
/// in order.
pub(super) fn collinear(g: &Mat<f64>, has_intercept: bool) -> Vec<(usize, Vec<usize>)> {
    let d = g.nrows();
    let order: Vec<usize> = if has_intercept { (d - 1..d).chain(0..d - 1).collect() } else { (0..d).collect() };
    let size = |i: usize| g[(i, i)].sqrt();
    let (mut kept, mut lower): (Vec<usize>, Vec<Vec<f64>>) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    for j in order {
        if g[(j, j)] == 0.0 {
            found.push((j, Vec::new()));
            continue;
        }
        let mut row: Vec<f64> = Vec::with_capacity(kept.len() + 1);
        for (k, i) in kept.iter().enumerate() {
            let sum: f64 = row.iter().zip(&lower[k]).map(|(a, b)| a * b).sum();
            row.push((g[(j, *i)] / (size(j) * size(*i)) - sum) / lower[k][k]);
        }
        let pivot = 1.0 - linalg::norm_sq(&row);
        if pivot > PIVOT {
            row.push(pivot.sqrt());
            kept.push(j);
            lower.push(row);
            continue;
        }
        // The combination: L^T c = row.
        for k in (0..kept.len()).rev() {
            let sum: f64 = (k + 1..kept.len()).map(|l| lower[l][k] * row[l]).sum();
            row[k] = (row[k] - sum) / lower[k][k];
        }
        let most = row.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        let others = kept.iter().zip(&row).filter(|(_, c)| c.abs() > SHARE * most).map(|(i, _)| *i).collect();
        found.push((j, others));
    }
    found
}

/// The maximum-likelihood theta, from a start.
///
/// # Errors
/// The reason why there is no estimate; when agents do not answer, or the computation is cancelled.
pub(super) fn estimate(
    family: ModelFamily,
    source: &mut dyn Source,
    data: &DataSums,
    has_intercept: bool,
    start: &[f64],
    cancel: &Cancel,
) -> Result<Result<Estimate, NoEstimate>> {
    let dependent = collinear(&data.gram, has_intercept);
    if !dependent.is_empty() {
        return Ok(Err(NoEstimate::Collinear(dependent)));
    }
    cancel.check()?;
    let is_known = start.iter().any(|x| *x != 0.0) && source.at(start, Want::Loss)?.loss.is_finite();
    let mean = if is_known { None } else { mean_start(family, data, has_intercept, start.len()) };
    let is_from_mean = mean.is_some();
    let mut theta = mean.unwrap_or_else(|| if is_known { start.to_vec() } else { vec![0.0; start.len()] });
    let natural = natural_information(family, data);
    let (mut last, mut long) = (None::<Vec<f64>>, 0);
    let mut left = f64::INFINITY;
    for steps in 0..MAX_STEPS {
        cancel.check()?;
        let sums = source.at(&theta, Want::Step)?;
        left = sums.score.iter().zip(&sums.sizes).map(|(s, size)| if *s == 0.0 { 0.0 } else { s.abs() / size }).fold(0.0, f64::max);
        let Some(factor) = Scaled::of(&sums.observed) else {
            return Ok(Err(match &last {
                Some(step) => NoEstimate::Separated(parts_of(data, step)),
                None => NoEstimate::NotFound(left),
            }));
        };
        cancel.check()?;
        let step = factor.solve(&sums.score);
        let moved = data.moved(&step) / (sums.predictors / sums.weights).sqrt().max(1.0);
        if left <= SCORE && moved <= SCORE.sqrt() {
            return Ok(Ok(Estimate { theta, steps, is_from_mean }));
        }
        // Separated classes: the information vanishes while predictors grow by about 1 per step.
        let is_vanishing = natural.as_ref().is_some_and(|natural| {
            let own = |i: usize| sums.observed[(i, i)] < PIVOT * natural[i % natural.len()];
            (0..theta.len()).any(own)
        });
        long = if is_vanishing && moved > LONG { long + 1 } else { 0 };
        if long > MAX_LONG {
            return Ok(Err(NoEstimate::Separated(parts_of(data, &step))));
        }
        let Some(next) = descend(source, &theta, &step, &sums)? else { break };
        (theta, last) = (next, Some(step));
    }
    Ok(Err(NoEstimate::NotFound(left)))
}

/// The intercept of the mean target under a log link, `log(sum_j a_j y_j / sum_j a_j exp(o_j))`, with other coefficients 0. From 0,
/// Newton's method would walk to large means in steps of 1. `None` if there is no such start.
fn mean_start(family: ModelFamily, data: &DataSums, has_intercept: bool, p: usize) -> Option<Vec<f64>> {
    if !family.has_log_link() || !has_intercept {
        return None;
    }
    let mean = data.targets / data.exposure;
    let mut start = vec![0.0; p];
    *start.last_mut()? = libm::log(mean);
    (mean.is_finite() && mean > 0.0).then_some(start)
}

/// The diagonal of the information without predictors: `sum_j a_j x_ji^2` times the expected second derivative of a row's loss at the
/// mean target. `None` for families whose estimates are always finite.
fn natural_information(family: ModelFamily, data: &DataSums) -> Option<Vec<f64>> {
    let mean = data.targets / data.weights;
    let share = match family {
        ModelFamily::Gaussian | ModelFamily::Gamma | ModelFamily::Huber { .. } => return None,
        ModelFamily::Binomial | ModelFamily::Multinomial { .. } => 0.25,
        ModelFamily::Poisson => mean,
        ModelFamily::NegativeBinomial { dispersion: alpha } => mean / f64::mul_add(alpha, mean, 1.0),
    };
    // If all targets are 0, the value at a mean of 1.
    let share = if share > 0.0 { share } else { 1.0 };
    Some((0..data.gram.nrows()).map(|i| share * data.gram[(i, i)]).collect())
}

/// The point along a step at which the loss decreases enough.
fn descend(source: &mut dyn Source, theta: &[f64], step: &[f64], sums: &ModelSums) -> Result<Option<Vec<f64>>> {
    let slope = linalg::dot(step, &sums.score);
    let rounding = 256.0 * f64::EPSILON * (sums.loss.abs() + sums.weights);
    for k in 0..=HALVINGS {
        let s = 0.5f64.powi(k);
        let next: Vec<f64> = theta.iter().zip(step).map(|(x, p)| s.mul_add(*p, *x)).collect();
        if source.at(&next, Want::Loss)?.loss <= sums.loss - ARMIJO * s * slope + rounding {
            return Ok(Some(next));
        }
    }
    Ok(None)
}

/// The columns involved in a step, by the sizes of their numbers; blocks of several outputs count together.
fn parts_of(data: &DataSums, step: &[f64]) -> Vec<usize> {
    let d = data.gram.nrows();
    let share = |i: usize| data.gram[(i, i)].sqrt() * step.iter().skip(i).step_by(d).fold(0.0, |a: f64, b| a.max(b.abs()));
    let shares: Vec<f64> = (0..d).map(share).collect();
    let most = shares.iter().fold(0.0, |a: f64, b| a.max(*b));
    (0..d).filter(|i| shares[*i] > 0.05 * most).collect()
}
