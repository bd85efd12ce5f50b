//! Federated backtracking: agents report their losses along a step that the server proposes, and the server takes the first
//! trial step that lowers the mean loss enough (Armijo 1966). Both halves are here, because they share the trial steps.

use super::LocalContext;

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

/// A trial step that a server accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AcceptedStep {
    /// s, the share of the direction.
    pub step: f64,
    /// Whether it lowered the mean loss enough by more than rounding errors.
    pub is_proven: bool,
}

/// What an agent says of a loss that is infinite or NaN, so that its point is not accepted. Means over agents stay finite, whose weights may
/// sum to a little more than 1.
pub const UNKNOWN_LOSS: f64 = 1e300;

/// The rounding error of a mean loss, relative to it.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

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
    pub fn answer(&self, at: &LocalContext<'_>, theta: &[f64], gradient: &[f64], p: &[f64]) -> Vec<f64> {
        let mut answer = at.losses_along(theta, p, &self.steps);
        answer.iter_mut().filter(|loss| !loss.is_finite()).for_each(|loss| *loss = UNKNOWN_LOSS);
        answer.push(gradient.iter().zip(p).map(|(g, p)| g * p).sum());
        answer
    }

    /// The first step s with `L(s) <= L(0) + decrease s slope` but for rounding errors, by the means of the answers; `None` if there
    /// is none, or if no answer arrived.
    pub fn accepted(&self, answers: &[f64]) -> Option<f64> {
        self.accepted_up_to(answers, f64::INFINITY).map(|accepted| accepted.step)
    }

    /// The same, where steps above `longest` must lower the loss enough by more than rounding errors. Near the optimum rounding errors
    /// allow every step: that is right for Newton's directions, whose step is 1, and wrong for a gradient that is too long.
    pub fn accepted_up_to(&self, answers: &[f64], longest: f64) -> Option<AcceptedStep> {
        let slope = answers[self.steps.len()];
        // Near the optimum decreases are smaller than the rounding errors of losses.
        let rounding = ROUNDING * answers[0].abs();
        let judge = |(s, loss): (&f64, &f64)| {
            let enough = answers[0] + self.decrease * *s * slope;
            let is_proven = *loss <= enough - rounding;
            (is_proven || *s <= longest && *loss <= enough + rounding).then_some(AcceptedStep { step: *s, is_proven })
        };
        if slope < 0.0 { self.steps.iter().zip(answers).skip(1).find_map(judge) } else { None }
    }

    /// A trial step by its number, of which 0 is the step 0.
    pub fn step(&self, number: usize) -> Option<f64> {
        self.steps.get(number).copied()
    }

    /// The number of a trial step.
    pub fn number(&self, step: f64) -> Option<usize> {
        self.steps.iter().position(|s| *s == step)
    }

    /// The smallest trial step.
    pub fn last(&self) -> f64 {
        self.steps[self.steps.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_errors_allow_no_step_above_the_longest() {
        let trials = Trials::new(0.5, 2, 0.1);
        // The losses at 0, 1, 1/2, 1/4, and the slope: all within rounding errors.
        let flat = [1.0, 1.0 + 1e-16, 1.0, 1.0, -1e-18];
        assert_eq!(trials.accepted(&flat), Some(1.0));
        assert_eq!(trials.accepted_up_to(&flat, 0.25), Some(AcceptedStep { step: 0.25, is_proven: false }));
        assert_eq!(trials.accepted_up_to(&flat, 0.1), None);
        let falls = [1.0, 1.5, 0.9, 0.95, -0.5];
        assert_eq!(trials.accepted_up_to(&falls, 0.0), Some(AcceptedStep { step: 0.5, is_proven: true }));
        // Upwards, and without any answer.
        assert_eq!((trials.accepted(&[1.0, 0.5, 0.5, 0.5, 0.1]), trials.accepted(&[0.0; 5])), (None, None));
    }
}
