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

/// Gives the Hessian of an agent at theta.
type AgentHessian<'a> = &'a (dyn Fn(usize, &[f64], &mut Mat<f64>) + Sync);

/// The curvatures of the agents' losses.
#[derive(Clone, Copy)]
pub(super) struct Curvatures<'a> {
    /// Their Hessians.
    pub exact: AgentHessian<'a>,
    /// The Hessian of a quadratic function that touches the loss at theta and is nowhere below it, where Hessians may vanish: its step always
    /// lowers the loss.
    pub majorant: Option<AgentHessian<'a>>,
}

/// The minimum, d numbers, or why it is not known.
pub(super) fn optimum(
    problem: &impl Problem,
    losses: &dyn Objective,
    curvatures: Curvatures<'_>,
    cancel: &Cancel,
) -> Result<Vec<f64>, String> {
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
        let gradient = mean_gradient(weights, losses, &theta);
        let norm = linalg::norm_sq(&gradient).sqrt();
        let certified = CERTIFIED * scale.get_or_insert(norm).max(1.0);
        if norm == 0.0 {
            return Ok(theta);
        }
        let step_of = |curvature: AgentHessian<'_>| {
            let factor = Scaled::of(&mean_hessian(weights, curvature, &theta))?;
            Some(factor.solve(&gradient).iter().map(|x| -x).collect::<Vec<f64>>())
        };
        let at = loss(&theta);
        let along = |step: Vec<f64>| Trial::along(step, &theta, at, &gradient, &loss);
        let newton = step_of(curvatures.exact).map(along);
        let is_short = newton.as_ref().is_none_or(|trial| trial.shortened > 0 || trial.next.is_none());
        let other = curvatures.majorant.filter(|_| is_short).and_then(step_of).map(along);
        let Some(trial) = [newton, other].into_iter().flatten().min_by(|a, b| a.loss.total_cmp(&b.loss)) else {
            return Err("the Hessian of the mean loss is singular: features depend on each other, or targets are separated".into());
        };
        let is_long = linalg::norm_sq(&trial.step).sqrt() > 1e-6 * (1.0 + linalg::norm_sq(&theta).sqrt());
        // The optimum is polished as long as that pays.
        if norm <= certified && !is_long && (norm > 0.5 * before || trial.next.is_none()) {
            return Ok(theta);
        }
        match trial.next {
            Some(next) => (theta, before) = (next, norm),
            None => break,
        }
    }
    let norm = linalg::norm_sq(&mean_gradient(weights, losses, &theta)).sqrt();
    Err(format!("the minimum of the losses was not found: the gradient is {norm:.1e}"))
}

/// A point along a step.
struct Trial {
    step: Vec<f64>,
    /// The point at which the loss falls enough, if any.
    next: Option<Vec<f64>>,
    /// How often the step was halved.
    shortened: i32,
    /// The loss there; infinite where there is none.
    loss: f64,
}

impl Trial {
    fn along(step: Vec<f64>, theta: &[f64], at: f64, gradient: &[f64], loss: &impl Fn(&[f64]) -> f64) -> Self {
        let slope = linalg::dot(&step, gradient);
        let rounding = 256.0 * f64::EPSILON * (1.0 + at.abs());
        for k in 0..=HALVINGS {
            let s = 0.5f64.powi(k);
            let next: Vec<f64> = theta.iter().zip(&step).map(|(x, p)| s.mul_add(*p, *x)).collect();
            let after = loss(&next);
            if after <= at + ARMIJO * s * slope + rounding {
                return Self { step, next: Some(next), shortened: k, loss: after };
            }
        }
        Self { step, next: None, shortened: HALVINGS, loss: f64::INFINITY }
    }
}

/// The mean gradient, summed in the agents' order.
fn mean_gradient(weights: &[f64], losses: &dyn Objective, theta: &[f64]) -> Vec<f64> {
    let d = theta.len();
    let each = parallel::map(weights.len(), |c| {
        let mut g = vec![0.0; d];
        losses.gradient(c, theta, &mut g);
        g
    });
    let mut gradient = vec![0.0; d];
    each.iter().zip(weights).for_each(|(g, weight)| linalg::add_scaled(&mut gradient, *weight, g));
    gradient
}

/// The mean Hessian, summed in the agents' order.
fn mean_hessian(weights: &[f64], of: AgentHessian<'_>, theta: &[f64]) -> Mat<f64> {
    let (d, agents) = (theta.len(), weights.len());
    let mut hessian = Mat::zeros(d, d);
    for first in (0..agents).step_by(TOGETHER) {
        let each = parallel::map(TOGETHER.min(agents - first), |i| {
            let mut h = Mat::zeros(d, d);
            of(first + i, theta, &mut h);
            h
        });
        each.into_iter().enumerate().for_each(|(i, h)| hessian += h * faer::Scale(weights[first + i]));
    }
    hessian
}
