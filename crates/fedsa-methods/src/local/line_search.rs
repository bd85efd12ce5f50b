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
use fedsa::server::Received;
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
    /// otherwise up to rounding errors. `None` if there is none, or if no answer arrived. Each mean has an error of at most `of_sums`, in
    /// addition to that of losses.
    fn accepted(&self, answers: &[f64], longest: f64, of_sums: f64) -> Option<f64> {
        let slope = answers[self.steps.len()];
        let rounding = ROUNDING * answers[0].abs() + 2.0 * of_sums;
        let is_good = |(s, loss): &(&f64, &f64)| {
            let enough = answers[0] + self.decrease * **s * slope;
            **loss <= if **s <= longest { enough + rounding } else { enough - rounding }
        };
        let goes_down = slope < of_sums && answers.iter().any(|answer| *answer != 0.0);
        if goes_down { self.steps.iter().zip(answers).skip(1).find(is_good).map(|(s, _)| *s) } else { None }
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

/// A slope is known if it is this many times its error.
const SURE: f64 = 16.0;

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

    /// The share of the asked direction to take, by the means of the answers in [`Trials::exchange`]; `None` if no trial step lowers the
    /// loss enough, or if no answer arrived. Losses of some agents, or along a direction of some, say nothing about later steps. `unit` is
    /// the length of the direction in a unit that is comparable across rounds; `None` for directions whose own rule finds their length.
    /// Rounding errors then allow every step.
    pub fn step(&mut self, got: &Received<'_>, unit: Option<f64>) -> Option<f64> {
        let (p, answers) = (got.down.part(Part::Step), &got.mean(Part::Losses)[..]);
        let longest = self.longest.zip(unit).map_or(f64::INFINITY, |(longest, unit)| (longest / unit).max(self.trials.last()));
        let step = self.trials.accepted(answers, longest, got.rounding)?;
        let slope = answers[self.trials.losses()];
        // The slopes at both ends of the step have errors: the sum's, and p times those of the gradient.
        let of_slopes = SURE * got.rounding * (1.0 + p.iter().map(|p| p.abs()).sum::<f64>());
        let is_sure = -slope > of_slopes && -step * slope > ROUNDING_OF_GRADIENTS * answers[0].abs();
        let is_known = got.arrived.is_empty() && self.is_whole && is_sure;
        self.last = unit.filter(|_| is_known).map(|unit| LastStep { direction: p.to_vec(), slope, length: unit * step });
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use fedsa::message::Message;

    use super::*;

    /// The losses at 0, 1, 1/2, 1/4, and the slope: all within rounding errors.
    const FLAT: [f64; 5] = [1.0, 1.0 + 1e-16, 1.0, 1.0, -1e-18];
    /// The step 1/2 is good.
    const FALLS: [f64; 5] = [1.0, 1.5, 0.9, 0.95, -0.5];
    #[test]
    fn the_first_step_that_lowers_the_loss_is_taken() {
        let trials = Trials::new(0.5, 2, 0.1);
        assert_eq!(trials.accepted(&FLAT, f64::INFINITY, 0.0), Some(1.0));
        assert_eq!((trials.accepted(&FLAT, 0.25, 0.0), trials.accepted(&FLAT, 0.1, 0.0)), (Some(0.25), None));
        assert_eq!(trials.accepted(&FALLS, 0.0, 0.0), Some(0.5));
        // Upwards, and without any answer.
        let nothing = [trials.accepted(&[1.0, 0.5, 0.5, 0.5, 0.1], 1.0, 0.0), trials.accepted(&[0.0; 5], 1.0, 0.0)];
        assert_eq!(nothing, [None; 2]);
    }

    /// The rounding of a secure sum hides slopes and differences of losses below it.
    #[test]
    fn rounding_of_sums_allows_steps_that_it_hides() {
        let trials = Trials::new(0.5, 2, 0.1);
        let answers = [1.0, 1.0 + 1.9e-9, 1.0, 1.0, 0.9e-9];
        assert_eq!((trials.accepted(&answers, 2.0, 1e-9), trials.accepted(&answers, 2.0, 0.9e-9)), (Some(1.0), None));
        assert_eq!(trials.accepted(&[1.0, 1.0 + 2.1e-9, 1.0, 1.0, 0.0], 2.0, 1e-9), Some(0.5));
        assert_eq!(trials.accepted(&[0.0; 5], 2.0, 1e-9), None);
        // Such a slope says nothing about the length of later steps.
        let mut search = LineSearch::new(trials);
        for (of_sums, is_known) in [(1e-3, true), (0.02, false)] {
            search.begin(&[-1.0], true);
            assert_eq!(step_with(&mut search, &[1.0], &FALLS, &[], Some(1.0), of_sums), Some(0.5));
            assert_eq!(search.last.is_some(), is_known);
        }
    }

    /// The step of a search by these answers to the direction p.
    fn step_with(search: &mut LineSearch, p: &[f64], answers: &[f64], arrived: &[bool], unit: Option<f64>, rounding: f64) -> Option<f64> {
        let (down, sums) = (Message::one(0, 1, Part::Step, p.to_vec()), [(Part::Losses, answers)]);
        search.step(&Received { round: 0, exchange: 1, down: &down, sums: &sums, asked: 1.0, arrived, rounding, updates: &[] }, unit)
    }

    /// The step without rounding of sums.
    fn step(search: &mut LineSearch, p: &[f64], answers: &[f64], are_all: bool, unit: Option<f64>) -> Option<f64> {
        step_with(search, p, answers, if are_all { &[] } else { &[true, false] }, unit, 0.0)
    }

    /// A search whose last step had this length, with the slope -1 before it and `after` at its end.
    fn after(length: f64, after: f64) -> LineSearch {
        let mut search = LineSearch::new(Trials::new(0.5, 2, 0.1));
        search.begin(&[-7.0], true);
        let losses = search.trials.steps.iter().map(|s| if *s == length { 1.0 - *s } else { 1.0 });
        let answers: Vec<f64> = losses.chain([-1.0]).collect();
        assert_eq!(step(&mut search, &[0.5], &answers, true, Some(1.0)), Some(length));
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
            let step_of = |unit| step(&mut search.clone(), &[1.0], &FLAT, true, unit);
            let most = |longest: f64| [1.0, 0.5, 0.25].into_iter().find(|s| *s <= longest).or(Some(0.25));
            assert_eq!((step_of(Some(1.0)), step_of(Some(0.5)), step_of(None)), (most(longest), most(2.0 * longest), Some(1.0)));
            // Losses show that a longer step is good.
            assert_eq!(step(&mut search, &[1.0], &[1.0, 0.5, 0.6, 0.7, -0.6], true, Some(1.0)), Some(1.0));
        }
    }

    #[test]
    fn what_some_agents_allow_shortens_no_later_step() {
        for (direction, losses, gradient) in [(false, true, true), (true, false, true), (true, true, false)] {
            let mut search = LineSearch::new(Trials::new(0.5, 2, 0.1));
            search.begin(&[-1.0], direction);
            assert_eq!(step(&mut search, &[1.0], &FALLS, losses, Some(1.0)), Some(0.5));
            search.begin(&[9.0], gradient);
            assert_eq!(step(&mut search, &[1.0], &FLAT, true, Some(1.0)), Some(1.0));
        }
    }
}
