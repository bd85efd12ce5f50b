//! Outcomes of runs: their names, and the test whether a run that missed its target has stalled.

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// All rounds are done, and there was no target.
    Completed,
    /// The target was reached.
    Converged,
    /// All rounds of a federation of machines are done, there was no target, and more than [`INCOMPLETE`] of the weight was missing.
    Incomplete {
        /// The mean share of the weight without an answer.
        missing: f64,
    },
    /// The target was not reached.
    MaxRounds(Missed),
    /// The target was not reached, and the metric made almost no progress in the last half of the rounds.
    Stalled(Missed),
    /// The iterates diverged.
    Diverged {
        /// In this round.
        round: u64,
    },
    /// The run was interrupted.
    Interrupted,
}

/// How far from its target a run ended.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Missed {
    /// The metric that the target is about.
    pub metric: &'static str,
    /// Its value at the end.
    pub value: f64,
    /// The target.
    pub target: f64,
    /// The missing rounds at the rate of the last half of the rounds.
    pub more_rounds: Option<f64>,
    /// Whether the metric hardly improved in the last half of the rounds.
    pub has_stalled: bool,
}

/// The names of outcomes with their meanings, from the best to the worst.
pub const OUTCOMES: &[(&str, &str)] = &[
    ("completed", "all rounds were done, and there was no target"),
    ("converged", "the target was reached"),
    ("incomplete", "all rounds of a federation were done, and agents with more than 5% of the weight were missing on average"),
    ("max-rounds", "all rounds were done, and the target was missed"),
    ("stalled", "the same, and the last half of the rounds brought the metric hardly nearer"),
    ("diverged", "the iterates left every bound"),
    ("interrupted", "the run was interrupted before its end"),
];

/// A federation whose mean missing weight over the rounds is above this share is incomplete: its result leans away from the agents that
/// were missing.
pub const INCOMPLETE: f64 = 0.05;

/// A run has stalled if the metric's minimum in the last half of its rounds is at least this share of the minimum before.
const STALLED: f64 = 0.9;
/// Shorter runs cannot have stalled.
const EARLY: u64 = 20;

impl Outcome {
    /// The outcome of a run. `diverged` is the number of rounds after which it diverged, if it did; `missed` are the targets that it did
    /// not reach. One reached target suffices; of missed targets, the one with the smallest value / target is reported.
    pub fn of(diverged: Option<u64>, has_reached: bool, missed: impl Iterator<Item = Missed>) -> Self {
        match diverged {
            Some(round) => return Outcome::Diverged { round },
            None if has_reached => return Outcome::Converged,
            None => {}
        }
        let Some(missed) = missed.min_by(|a, b| (a.value / a.target).total_cmp(&(b.value / b.target))) else {
            return Outcome::Completed;
        };
        if missed.has_stalled { Outcome::Stalled(missed) } else { Outcome::MaxRounds(missed) }
    }

    /// Its place in [`OUTCOMES`]: the larger, the worse.
    pub fn rank(self) -> usize {
        match self {
            Outcome::Completed => 0,
            Outcome::Converged => 1,
            Outcome::Incomplete { .. } => 2,
            Outcome::MaxRounds(_) => 3,
            Outcome::Stalled(_) => 4,
            Outcome::Diverged { .. } => 5,
            Outcome::Interrupted => 6,
        }
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        OUTCOMES[self.rank()].0
    }

    /// How far from its target the run ended, if it missed one.
    pub fn missed(self) -> Option<Missed> {
        match self {
            Outcome::Stalled(missed) | Outcome::MaxRounds(missed) => Some(missed),
            _ => None,
        }
    }
}

impl Missed {
    /// The distance of a metric from a missed target. `rounds` are the recorded rounds with the metric's values, where known; `None` if the
    /// last value is unknown.
    pub fn of(metric: &'static str, target: f64, rounds: &[(u64, Option<f64>)]) -> Option<Self> {
        let (last, value) = *rounds.last()?;
        let value = value?;
        let least = |is_half: &dyn Fn(u64) -> bool| {
            let half = rounds.iter().filter(|(round, _)| is_half(*round));
            half.filter_map(|(round, x)| Some((*round, (*x)?))).min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let before = least(&|round| round <= last / 2);
        let after = least(&|round| round > last / 2);
        let (has_stalled, more_rounds) = match (before, after) {
            _ if last < EARLY => (false, None),
            (Some((t0, x0)), Some((t1, x1))) if x1 < STALLED * x0 => {
                let rate = (x0 / x1).ln() / (t1 - t0) as f64;
                (false, Some((x1 / target).ln().max(0.0) / rate).filter(|rounds| rounds.is_finite()))
            }
            (Some(_), Some(_)) => (true, None),
            _ => (false, None),
        };
        Some(Self { metric, value, target, more_rounds, has_stalled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_still_falls_has_not_stalled() {
        let halving: Vec<(u64, Option<f64>)> = (0..=40).map(|t| (t, Some(0.5f64.powi(t as i32)))).collect();
        let missed = Missed::of("mse", 0.5f64.powi(50), &halving).unwrap();
        assert!(!missed.has_stalled && (missed.more_rounds.unwrap() - 10.0).abs() < 1e-9, "{missed:?}");
        let flat: Vec<(u64, Option<f64>)> = (0..=40).map(|t| (t, Some(1.0))).collect();
        let stalled = Missed::of("mse", 0.1, &flat).unwrap();
        assert!(stalled.has_stalled && stalled.more_rounds.is_none());
        let few = Missed::of("mse", 0.1, &flat[..10]).unwrap();
        assert!(!few.has_stalled);
        assert!(Missed::of("mse", 0.1, &[(0, None)]).is_none());

        assert_eq!(Outcome::of(None, false, [missed, stalled].into_iter()).name(), "stalled");
        assert_eq!(Outcome::of(None, false, [few].into_iter()).name(), "max-rounds");
        assert_eq!(Outcome::of(None, true, [few].into_iter()).name(), "converged");
        assert_eq!(Outcome::of(None, false, [].into_iter()).name(), "completed");
        assert_eq!(Outcome::of(Some(3), false, [few].into_iter()).name(), "diverged");
        assert_eq!(Outcome::Interrupted.name(), "interrupted");
        assert_eq!(Outcome::Incomplete { missing: 0.2 }.name(), "incomplete");
    }
}
