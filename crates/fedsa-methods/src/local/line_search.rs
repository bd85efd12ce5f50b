//! Federated backtracking: agents report their losses along a step that the server proposes, and the server takes the first
//! trial step that lowers the mean loss enough (Armijo 1966). Both halves are here, because they share the trial steps.
//!
//! Near the optimum, decreases are smaller than the rounding errors of losses, which then allow every step. A direction of approximate
//! curvature may be more than twice as long as Newton's, so that the whole step expands. All methods therefore share one rule: if rounding
//! errors hide the decrease, a step is at most 3/2 of the minimum of a parabola along the last direction. The parabola has the slopes at
//! both ends of the last step. Agents have sent the first slope, and the next mean gradient gives the second one, so nothing more is sent.
//! On quadratic objectives gradient methods with such steps converge R-linearly (Dai 2003, "Alternate step gradient method", Optimization 52: an
//! inverse step of at least 2/3 of an earlier Rayleigh quotient).

use fedsa::local::LocalContext;
use fedsa::message::Part;
use fedsa::protocol::{Exchange, Gather, Len, ReplySpec};
use serde::{Deserialize, Serialize};

/// The trial steps s along a direction p; the first one is 0.
///
/// A missing answer counts as zero in the losses at all trial steps and in the slope alike, because the losses include s = 0. The compared
/// means are therefore over the same agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trials {
    /// 0, then decreasing.
    steps: Vec<f64>,
    /// The share of the decrease predicted by the slope that a step must achieve, in (0, 1/2).
    decrease: f64,
}

/// The answer for a loss that is infinite or NaN, so that its point is not accepted. Means over agents stay finite, even if weights sum to
/// slightly more than 1.
pub const UNKNOWN_LOSS: f64 = 1e300;

/// The relative rounding error of a mean loss.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

impl Trials {
    /// The steps 0, 1, `factor`, .., `factor^shrinks`, with a factor in (0, 1).
    pub fn new(factor: f64, shrinks: usize, decrease: f64) -> Self {
        Self { steps: std::iter::once(0.0).chain((0..=shrinks as i32).map(|k| factor.powi(k))).collect(), decrease }
    }

    /// The length of an answer: a loss for each step, and the slope.
    pub fn answer_len(&self) -> usize {
        self.steps.len() + 1
    }

    /// The exchange of a line search: a step with d components down, an answer of each agent up.
    pub fn exchange(&self, d: usize) -> Exchange {
        let losses = ReplySpec { part: Part::Losses, len: Len::Exactly(self.answer_len()), gather: Gather::Sum };
        Exchange { down: vec![(Part::Step, Len::Exactly(d))], own: Vec::new(), replies: vec![losses], may_open: false }
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

    /// The first step s with `L(s) <= L(0) + decrease s slope` by the means of the answers: beyond rounding errors if s is above `longest`,
    /// otherwise up to rounding errors. `None` if there is none, or if no answer arrived.
    fn accepted(&self, answers: &[f64], longest: f64) -> Option<f64> {
        let slope = answers[self.steps.len()];
        let rounding = ROUNDING * answers[0].abs();
        let is_good = |(s, loss): &(&f64, &f64)| {
            let enough = answers[0] + self.decrease * **s * slope;
            **loss <= if **s <= longest { enough + rounding } else { enough - rounding }
        };
        if slope < 0.0 { self.steps.iter().zip(answers).skip(1).find(is_good).map(|(s, _)| *s) } else { None }
    }

    /// The trial step of this index; index 0 is the step 0.
    pub fn step(&self, number: usize) -> Option<f64> {
        self.steps.get(number).copied()
    }

    /// The index of a trial step.
    pub fn number(&self, step: f64) -> Option<usize> {
        self.steps.iter().position(|s| *s == step)
    }

    /// The smallest trial step.
    pub fn last(&self) -> f64 {
        self.steps[self.steps.len() - 1]
    }
}

/// The longest step that rounding errors may allow, in units of the parabola's minimum; at 2 the objective is as high as at 0.
const OF_MINIMUM: f64 = 1.5;

/// A decrease below this share of the loss is within the rounding errors of gradients, whose square is as small relative to the loss.
/// Slopes then say nothing about the length.
const ROUNDING_OF_GRADIENTS: f64 = 64.0 * f64::EPSILON * f64::EPSILON;

/// A server's line search: the trial steps, and the longest one that rounding errors may allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LineSearch {
    /// The trial steps.
    pub trials: Trials,
    /// Whether the direction of this round includes the answers of all agents.
    is_whole: bool,
    /// The longest step that rounding errors may allow, in the unit of the directions; `None` if unknown.
    longest: Option<f64>,
    /// The last step, until the gradient at its end is known.
    last: Option<LastStep>,
}

/// An accepted step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LastStep {
    /// p.
    direction: Vec<f64>,
    /// `p^T grad f(theta)`, below 0.
    slope: f64,
    /// In the unit of the directions.
    length: f64,
}

impl LineSearch {
    /// The search before the first round.
    pub fn new(trials: Trials) -> Self {
        Self { trials, is_whole: false, longest: None, last: None }
    }

    /// Handles the mean gradient at theta, from which a round's direction is formed; `is_whole` says whether it includes all agents.
    pub fn begin(&mut self, gradient: &[f64], is_whole: bool) {
        self.is_whole = is_whole;
        let Some(last) = self.last.take().filter(|_| is_whole) else { return };
        let slope: f64 = gradient.iter().zip(&last.direction).map(|(g, p)| g * p).sum();
        // At most one trial step longer, because another direction may have more curvature.
        let growth = self.trials.steps.get(2).map_or(1.0, |second| 1.0 / second);
        let fall = 1.0 - slope / last.slope;
        let factor = if fall > OF_MINIMUM / growth { OF_MINIMUM / fall } else { growth };
        self.longest = Some(last.length * factor).filter(|longest| *longest > 0.0);
    }

    /// The share of the direction p to take, by the means of the answers; `None` if no trial step lowers the loss enough, or if no answer
    /// arrived. `are_all` says whether all agents answered with losses; losses of some agents, or along a direction of some, say nothing
    /// about later steps. `unit` is the length of the direction in a unit that is comparable across rounds; `None` for directions whose own
    /// rule finds their length. Rounding errors then allow every step.
    pub fn step(&mut self, p: &[f64], answers: &[f64], are_all: bool, unit: Option<f64>) -> Option<f64> {
        let longest = self.longest.zip(unit).map_or(f64::INFINITY, |(longest, unit)| (longest / unit).max(self.trials.last()));
        let step = self.trials.accepted(answers, longest)?;
        let slope = answers[self.trials.losses()];
        let is_known = are_all && self.is_whole && -step * slope > ROUNDING_OF_GRADIENTS * answers[0].abs();
        self.last = unit.filter(|_| is_known).map(|unit| LastStep { direction: p.to_vec(), slope, length: unit * step });
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

    /// A search whose last step had this length, with the slope -1 before it and `after` at its end.
    fn after(length: f64, after: f64) -> LineSearch {
        let mut search = LineSearch::new(Trials::new(0.5, 2, 0.1));
        search.begin(&[-7.0], true);
        let losses = search.trials.steps.iter().map(|s| if *s == length { 1.0 - *s } else { 1.0 });
        let answers: Vec<f64> = losses.chain([-1.0]).collect();
        assert_eq!(search.step(&[0.5], &answers, true, Some(1.0)), Some(length));
        search.begin(&[2.0 * after], true);
        search
    }

    /// The minimum of the parabola is at `s / (1 - q)`, with q the remaining share of the slope.
    #[test]
    fn rounding_errors_allow_no_step_far_behind_the_minimum_of_a_parabola() {
        for (length, slope, longest) in
            [(1.0, 0.0, 1.5), (1.0, 2.0, 0.5), (0.25, -0.5, 0.5), (0.5, -0.25, 1.0), (0.5, -3.0, 1.0), (1.0, 1e9, 1.5e-9)]
        {
            let mut search = after(length, slope);
            let known = search.longest.unwrap();
            assert!((known - longest).abs() < 1e-15 * longest.max(0.1), "{length}, {slope}: {known}");
            // For a direction of half the length the bound is twice as much; for directions without a unit every step is allowed.
            let step = |unit| search.clone().step(&[1.0], &FLAT, true, unit);
            let most = |longest: f64| [1.0, 0.5, 0.25].into_iter().find(|s| *s <= longest).or(Some(0.25));
            assert_eq!((step(Some(1.0)), step(Some(0.5)), step(None)), (most(longest), most(2.0 * longest), Some(1.0)));
            // Losses show that a longer step is good.
            assert_eq!(search.step(&[1.0], &[1.0, 0.5, 0.6, 0.7, -0.6], true, Some(1.0)), Some(1.0));
        }
    }

    #[test]
    fn what_some_agents_allow_shortens_no_later_step() {
        for (direction, losses, gradient) in [(false, true, true), (true, false, true), (true, true, false)] {
            let mut search = LineSearch::new(Trials::new(0.5, 2, 0.1));
            search.begin(&[-1.0], direction);
            assert_eq!(search.step(&[1.0], &FALLS, losses, Some(1.0)), Some(0.5));
            search.begin(&[9.0], gradient);
            assert_eq!(search.step(&[1.0], &FLAT, true, Some(1.0)), Some(1.0));
        }
    }
}
