//! Federated backtracking: agents report their losses along a step that the server proposes, and the server takes the first
//! trial step that lowers the mean loss enough (Armijo 1966). Both halves are here, because they share the trial steps.
//!
//! Near the optimum decreases are smaller than the rounding errors of losses, which then allow every step. A direction of approximated
//! curvature may be more than twice as long as Newton's, so that the whole step expands. One rule for all methods: where rounding errors hide
//! the decrease, no step is longer than the one that was taken last. A step that expands makes the loss rise by more than
//! rounding errors after some rounds; a shorter one is then taken, and remains the longest until the losses show that a longer one is good.

use serde::{Deserialize, Serialize};

use super::LocalContext;

/// The trial steps s along a direction p, the first of which is 0.
///
/// A missing answer counts as zero. It then counts as zero in the losses at all trial steps and in the slope alike, because the
/// losses include the one at s = 0: the means that are compared are over the same agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// 0, then decreasing.
    steps: Vec<f64>,
    /// The share of the decrease that the slope promises which a step must achieve, in (0, 1/2).
    decrease: f64,
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

    /// The first step s with `L(s) <= L(0) + decrease s slope` by the means of the answers: by more than rounding errors where s is above
    /// `longest`, else but for rounding errors. `None` if there is none, or if no answer arrived.
    fn accepted(&self, answers: &[f64], longest: f64) -> Option<f64> {
        let slope = answers[self.steps.len()];
        let rounding = ROUNDING * answers[0].abs();
        let is_good = |(s, loss): &(&f64, &f64)| {
            let enough = answers[0] + self.decrease * **s * slope;
            **loss <= if **s <= longest { enough + rounding } else { enough - rounding }
        };
        if slope < 0.0 { self.steps.iter().zip(answers).skip(1).find(is_good).map(|(s, _)| *s) } else { None }
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

/// A server's line search: the trial steps, and the longest one that rounding errors may allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The trial steps.
    pub trials: Trials,
    /// Whether the answers of all agents are in the direction of this round.
    is_whole: bool,
    /// The step that was taken last, in the unit of the directions; `None` before the first.
    longest: Option<f64>,
}

impl Search {
    /// The search before the first round.
    pub fn new(trials: Trials) -> Self {
        Self { trials, is_whole: false, longest: None }
    }

    /// A direction is formed: whether from the answers of all agents.
    pub fn begin(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
    }

    /// The share of the direction that is taken, by the means of the answers; `None` if no trial step lowers the loss enough, or if no
    /// answer arrived. `are_all` says whether all agents have answered with losses: those of some agents, or along a direction of some, say nothing
    /// of later steps. `unit` is the length of the direction, in a unit in which directions of different rounds can be compared; `None`
    /// for directions that the next gradient corrects, of which rounding errors allow every step.
    pub fn step(&mut self, answers: &[f64], are_all: bool, unit: Option<f64>) -> Option<f64> {
        let longest = self.longest.zip(unit).map_or(f64::INFINITY, |(longest, unit)| longest / unit);
        let step = self.trials.accepted(answers, longest)?;
        if let Some(unit) = unit.filter(|_| are_all && self.is_whole) {
            self.longest = Some(unit * step);
        }
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The losses at 0, 1, 1/2, 1/4, and the slope: all within rounding errors.
    const FLAT: [f64; 5] = [1.0, 1.0 + 1e-16, 1.0, 1.0, -1e-18];
    /// The step 1/2 is good.
    const FALLS: [f64; 5] = [1.0, 1.5, 0.9, 0.95, -0.5];
    /// The whole step is too long, and the decrease of the others is hidden.
    const RISES: [f64; 5] = [1.0, 1.0 + 1e-14, 1.0, 1.0, -1e-18];

    fn search() -> Search {
        let mut search = Search::new(Trials::new(0.5, 2, 0.1));
        search.begin(true);
        search
    }

    #[test]
    fn the_first_step_that_lowers_the_loss_is_taken() {
        let trials = Trials::new(0.5, 2, 0.1);
        assert_eq!(trials.accepted(&FLAT, f64::INFINITY), Some(1.0));
        assert_eq!((trials.accepted(&FLAT, 0.25), trials.accepted(&FLAT, 0.1)), (Some(0.25), None));
        assert_eq!(trials.accepted(&FALLS, 0.0), Some(0.5));
        // Upwards, and without any answer.
        let nothing = [trials.accepted(&[1.0, 0.5, 0.5, 0.5, 0.1], 1.0), trials.accepted(&[0.0; 5], 1.0)];
        assert_eq!(nothing, [None; 2]);
    }

    #[test]
    fn rounding_errors_allow_no_step_above_the_last() {
        for shortens in [FALLS, RISES] {
            let mut search = search();
            assert_eq!(search.step(&FLAT, true, Some(1.0)), Some(1.0));
            assert_eq!(search.step(&shortens, true, Some(1.0)), Some(0.5));
            assert_eq!(search.step(&FLAT, true, Some(1.0)), Some(0.5));
            // Of a direction that is half as long it is the whole one, and of others every step is allowed.
            assert_eq!((search.step(&FLAT, true, Some(0.5)), search.step(&FLAT, true, None)), (Some(1.0), Some(1.0)));
            assert_eq!(search.step(&FLAT, true, Some(1.0)), Some(0.5));
            // Losses show that the whole step is good.
            assert_eq!(search.step(&[1.0, 0.5, 0.6, 0.7, -0.6], true, Some(1.0)), Some(1.0));
            assert_eq!(search.step(&FLAT, true, Some(1.0)), Some(1.0));
        }
    }

    #[test]
    fn what_some_agents_allow_shortens_no_later_step() {
        let mut search = search();
        assert_eq!(search.step(&FALLS, false, Some(1.0)), Some(0.5));
        assert_eq!(search.step(&FLAT, true, Some(1.0)), Some(1.0));
        search.begin(false);
        assert_eq!(search.step(&FALLS, true, Some(1.0)), Some(0.5));
        search.begin(true);
        assert_eq!(search.step(&FLAT, true, Some(1.0)), Some(1.0));
    }
}
