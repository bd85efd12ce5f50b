//! How runs ended: whether they reached what they were to reach, and if not, how far from it they are.

use fedsa::methods::Drift;
use fedsa::round::Status;
use fedsa::sampling::Law;

use super::plan::Plan;
use super::predict::Predictor;
use super::results::{Results, Row, SeedResult, metric};
use crate::config::schema::Stop;
use crate::numbers::number;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// All rounds are done, and there was no target.
    Completed,
    /// The target was reached.
    Converged,
    /// All rounds are done, the target was not reached, and the last half of the rounds brought the
    /// metric hardly nearer to it.
    Stalled(Missed),
    /// All rounds are done, and the target was not reached.
    OutOfRounds(Missed),
    /// The iterates left every bound.
    Diverged {
        /// In this round.
        round: u64,
    },
}

/// How far from its target a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Missed {
    /// The metric that the target is about.
    pub metric: &'static str,
    /// Its value at the end.
    pub value: f64,
    /// What was to be reached.
    pub target: f64,
    /// How many rounds more it would take at the rate of the last half of the rounds.
    pub more_rounds: Option<f64>,
}

impl Outcome {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Converged => "converged",
            Outcome::Stalled(_) => "stalled",
            Outcome::OutOfRounds(_) => "out-of-rounds",
            Outcome::Diverged { .. } => "diverged",
        }
    }

    /// How far from its target the run ended, if it missed one.
    pub fn missed(self) -> Option<Missed> {
        match self {
            Outcome::Stalled(missed) | Outcome::OutOfRounds(missed) => Some(missed),
            _ => None,
        }
    }
}

/// A run has stalled if in the last half of its rounds the metric fell to no less than this share of
/// its least value before.
const STALLED: f64 = 0.9;
/// The least number of rounds after which a run can have stalled.
const EARLY: u64 = 20;

impl SeedResult {
    /// How the run ended; `stop` says what it was to reach.
    pub fn outcome(&self, stop: &Stop) -> Outcome {
        match self.status {
            Status::Diverged { round } => return Outcome::Diverged { round },
            Status::Ok if self.stopped => return Outcome::Converged,
            Status::Ok => {}
        }
        let targets = [("mse", stop.mse), ("residual", self.residual_asked(stop))];
        // Any of several targets would have done: the one that was missed by least speaks.
        let missed = targets.into_iter().filter_map(|(metric, target)| self.missed(metric, target?));
        let Some((missed, stalled)) = missed.min_by(|(a, _), (b, _)| (a.value / a.target).total_cmp(&(b.value / b.target))) else {
            return Outcome::Completed;
        };
        if stalled { Outcome::Stalled(missed) } else { Outcome::OutOfRounds(missed) }
    }

    /// The residual at which the run was to end: the larger one of two that were asked for.
    pub fn residual_asked(&self, stop: &Stop) -> Option<f64> {
        stop.residuals(self.rows.first()?.seen.residual?).max_by(f64::total_cmp)
    }

    /// How far a metric is from a target that was not reached, and whether it has stopped falling.
    fn missed(&self, name: &'static str, target: f64) -> Option<(Missed, bool)> {
        let last = self.rows.last()?;
        let value = metric(&last.seen, name)?;
        let half = last.round / 2;
        let least = |rows: &mut dyn Iterator<Item = &Row>| {
            rows.filter_map(|row| Some((row.round, metric(&row.seen, name)?))).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let before = least(&mut self.rows.iter().filter(|row| row.round <= half));
        let after = least(&mut self.rows.iter().filter(|row| row.round > half));
        let (stalled, more_rounds) = match (before, after) {
            _ if last.round < EARLY => (false, None),
            (Some((t0, x0)), Some((t1, x1))) if x1 < STALLED * x0 => {
                let rate = (x0 / x1).ln() / (t1 - t0) as f64;
                (false, Some((x1 / target).ln().max(0.0) / rate).filter(|rounds| rounds.is_finite()))
            }
            (Some(_), Some(_)) => (true, None),
            _ => (false, None),
        };
        Some((Missed { metric: name, value, target, more_rounds }, stalled))
    }
}

impl Results {
    /// How a cell ended: as the seed that ended worst.
    pub fn outcome(&self, plan: &Plan, cell: usize) -> Option<Outcome> {
        let rank = |outcome: &Outcome| match outcome {
            Outcome::Completed => 0,
            Outcome::Converged => 1,
            Outcome::OutOfRounds(_) => 2,
            Outcome::Stalled(_) => 3,
            Outcome::Diverged { .. } => 4,
        };
        let stop = &plan.cells[cell].run.stop;
        self.cells[cell].iter().map(|seed| seed.outcome(stop)).max_by_key(rank)
    }

    /// How many rounds more a cell's target takes: at the rate of the last half of the rounds, or at the rate that
    /// theory gives for the end, whichever is slower.
    pub fn more_rounds(&self, plan: &Plan, predictor: &Predictor<'_>, cell: usize, missed: &Missed) -> Option<f64> {
        let is_mean = plan.field(cell).sampling().kind == Law::Mean;
        let radius = predictor.number(cell, "radius").ok().filter(|radius| is_mean && (0.0..1.0).contains(radius));
        // A squared distance falls by the radius's square.
        let power = if missed.metric == "mse" { 2.0 } else { 1.0 };
        let in_the_end = radius.map(|radius| (missed.value / missed.target).ln().max(0.0) / (-power * radius.ln()));
        missed.more_rounds.into_iter().chain(in_the_end).filter(|rounds| rounds.is_finite()).max_by(f64::total_cmp)
    }

    /// Why a cell does not come nearer to its target, as far as that is known.
    pub fn why_stalled(&self, plan: &Plan, predictor: &Predictor<'_>, cell: usize, missed: &Missed) -> String {
        let (field, planned) = (plan.field(cell), &plan.cells[cell]);
        let shape = planned.method.settings.shape();
        if !planned.uplink.is_clear() {
            return "what the link alters or loses may keep it there".into();
        }
        let predicted = |quantity| predictor.number(cell, quantity).ok().filter(|x| missed.metric == "mse" && *x > missed.target);
        if let Some(bias) = predicted("bias2") {
            return format!("with local steps on different agents this method stops at its bias, whose square is {}", number(bias));
        }
        if let Some(floor) = predicted("floor") {
            return format!("with this step size the noise of the samples keeps it at {}, as theory predicts", number(floor));
        }
        match field.sampling().kind {
            Law::Mean if shape.drift == Drift::Zero && shape.local_steps > 1.0 => match predictor.number(cell, "limit_distance") {
                Ok(distance) => {
                    format!("with local steps on different agents this method stops at its bias, {} from the root", number(distance))
                }
                Err(_) => "with local steps on different agents this method stops at its bias".into(),
            },
            Law::Mean => "it converges too slowly, or has reached the rounding error".into(),
            Law::Iid | Law::Markov => "with a constant step size the noise of the samples may keep it there".into(),
        }
    }
}
