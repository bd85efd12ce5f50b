//! Federated backtracking: agents report their losses along a step that the server proposes, and the server takes the first
//! trial step that lowers the mean loss enough (Armijo 1966). Both halves are here, because they share the trial steps.

use super::At;

/// The trial steps s along a direction p, the first of which is 0.
///
/// A missing answer counts as zero. It then counts as zero in the losses at all trial steps and in the slope alike, because the
/// losses include the one at s = 0: the means that are compared are over the same agents.
#[derive(Debug, Clone, PartialEq)]
pub struct Trials {
    /// 0, then decreasing.
    steps: Vec<f64>,
    /// The share of the decrease that the slope promises which a step must achieve, in (0, 1/2).
    decrease: f64,
}

impl Trials {
    /// The steps 0, 1, `factor`, .., `factor^shrinks`, with a factor in (0, 1).
    pub fn new(factor: f64, shrinks: usize, decrease: f64) -> Self {
        Self { steps: std::iter::once(0.0).chain((0..=shrinks as i32).map(|k| factor.powi(k))).collect(), decrease }
    }

    /// The number of numbers of an answer: a loss for each step, and the slope.
    pub fn answer_len(&self) -> usize {
        self.steps.len() + 1
    }

    /// The number of losses of an answer.
    pub fn losses(&self) -> usize {
        self.steps.len()
    }

    /// An agent's answer: `f_c(theta + s p)` for every trial step s, then `p^T grad f_c(theta)`.
    pub fn answer(&self, at: &At<'_>, theta: &[f64], gradient: &[f64], p: &[f64]) -> Vec<f64> {
        let mut answer = at.losses_along(theta, p, &self.steps);
        // A step whose loss is infinite or NaN must not be accepted.
        answer.iter_mut().filter(|loss| !loss.is_finite()).for_each(|loss| *loss = f64::MAX);
        answer.push(gradient.iter().zip(p).map(|(g, p)| g * p).sum());
        answer
    }

    /// The first step s with `L(s) <= L(0) + decrease s slope`, by the means of the answers; `None` if there is none, or if no
    /// answer arrived. Losses that differ by a few units of rounding count as equal: near the optimum a step lowers the loss by
    /// less than rounding, and would otherwise be refused.
    pub fn accepted(&self, answers: &[f64]) -> Option<f64> {
        let slope = answers[self.steps.len()];
        let rounding = 4.0 * f64::EPSILON * answers[0].abs();
        let is_enough = |(s, loss): &(&f64, &f64)| slope < 0.0 && **loss <= answers[0] + self.decrease * **s * slope + rounding;
        self.steps.iter().zip(answers).skip(1).find(is_enough).map(|(s, _)| *s)
    }

    /// The smallest trial step.
    pub fn last(&self) -> f64 {
        self.steps[self.steps.len() - 1]
    }
}
