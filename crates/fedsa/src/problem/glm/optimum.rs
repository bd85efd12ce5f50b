//! The minimum of the mean of all agents' losses, by Newton's method with backtracking.

use faer::Mat;

use super::estimate::Scaled;
use crate::cancel::Cancel;
use crate::problem::Problem;
use crate::problem::objective::Objective;
use crate::{linalg, parallel};

/// The gradient is at most this share of its size at 0.
const CERTIFIED: f64 = 1e-12;
/// Agents whose Hessians are in memory at a time.
const TOGETHER: usize = 16;
/// Iterations before giving up, and halvings of a step.
const MOST_STEPS: usize = 200;
const HALVINGS: i32 = 60;
/// Armijo's share of the predicted decrease.
const ARMIJO: f64 = 1e-4;

/// The minimum, d numbers, or why it is not known.
pub(super) fn optimum(problem: &impl Problem, losses: &dyn Objective, cancel: &Cancel) -> Result<Vec<f64>, String> {
    let (d, weights) = (problem.dim(), problem.weights());
    let loss = |theta: &[f64]| -> f64 {
        let each: Vec<f64> = parallel::map(weights.len(), |c| weights[c] * losses.loss(c, theta));
        each.iter().sum()
    };
    let mut theta = vec![0.0; d];
    let (mut scale, mut before): (Option<f64>, f64) = (None, f64::INFINITY);
    for _ in 0..MOST_STEPS {
        if cancel.is_cancelled() {
            return Err("it was cancelled".into());
        }
        let (gradient, hessian) = derivatives(weights, losses, &theta);
        let norm = linalg::norm_sq(&gradient).sqrt();
        let certified = CERTIFIED * scale.get_or_insert(norm).max(1.0);
        if norm == 0.0 {
            return Ok(theta);
        }
        let singular = "the Hessian of the mean loss is singular: features depend on each other, or targets are separated";
        let Some(factor) = Scaled::of(&hessian) else {
            return Err(singular.into());
        };
        let step: Vec<f64> = factor.solve(&gradient).iter().map(|x| -x).collect();
        let is_long = linalg::norm_sq(&step).sqrt() > 1e-6 * (1.0 + linalg::norm_sq(&theta).sqrt());
        // The optimum is polished as long as that pays.
        if norm <= certified && !is_long && norm > 0.5 * before {
            return Ok(theta);
        }
        let (slope, at) = (linalg::dot(&step, &gradient), loss(&theta));
        let rounding = 256.0 * f64::EPSILON * (1.0 + at.abs());
        let next = (0..=HALVINGS).find_map(|k| {
            let s = 0.5f64.powi(k);
            let next: Vec<f64> = theta.iter().zip(&step).map(|(x, p)| s.mul_add(*p, *x)).collect();
            (loss(&next) <= at + ARMIJO * s * slope + rounding).then_some(next)
        });
        match next {
            Some(next) => (theta, before) = (next, norm),
            None if norm <= certified && !is_long => return Ok(theta),
            None => break,
        }
    }
    let norm = linalg::norm_sq(&derivatives(weights, losses, &theta).0).sqrt();
    Err(format!("the minimum of the losses was not found: the gradient is {norm:.1e}"))
}

/// The mean gradient and Hessian, summed in the agents' order.
fn derivatives(weights: &[f64], losses: &dyn Objective, theta: &[f64]) -> (Vec<f64>, Mat<f64>) {
    let (d, agents) = (theta.len(), weights.len());
    let (mut gradient, mut hessian) = (vec![0.0; d], Mat::zeros(d, d));
    for first in (0..agents).step_by(TOGETHER) {
        let each = parallel::map(TOGETHER.min(agents - first), |i| {
            let (mut g, mut h) = (vec![0.0; d], Mat::zeros(d, d));
            losses.gradient(first + i, theta, &mut g);
            losses.hessian(first + i, theta, &mut h);
            (g, h)
        });
        for (i, (g, h)) in each.into_iter().enumerate() {
            linalg::add_scaled(&mut gradient, weights[first + i], &g);
            hessian += h * faer::Scale(weights[first + i]);
        }
    }
    (gradient, hessian)
}
