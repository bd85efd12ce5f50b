//! Stopping criteria of sessions.

use super::Recorded;
use crate::error::{Error, Result};
use crate::metrics::{Metrics, Need};
use crate::record::{INCOMPLETE, Missed, Outcome};

/// A session stops after a number of rounds, or at the first recorded round that reaches any target.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct StoppingCriteria {
    /// The number of rounds from the start.
    pub rounds: u64,
    /// `||theta_t - theta*||^2` at most.
    pub mse: Option<f64>,
    /// `||gbar(theta_t)||` at most.
    pub residual: Option<f64>,
    /// `||gbar(theta_t)|| / ||gbar(theta_0)||` at most.
    pub relative_residual: Option<f64>,
    /// `f(theta_t) - f(theta*)` at most.
    pub gap: Option<f64>,
}

impl StoppingCriteria {
    /// This many rounds from the start.
    pub fn rounds(rounds: u64) -> Self {
        Self { rounds, ..Self::default() }
    }

    /// Adds the target: squared error at most `mse`.
    #[must_use]
    pub fn mse(self, mse: f64) -> Self {
        Self { mse: Some(mse), ..self }
    }

    /// Adds the target: residual at most `residual`.
    #[must_use]
    pub fn residual(self, residual: f64) -> Self {
        Self { residual: Some(residual), ..self }
    }

    /// Adds the target: residual at most this share of the residual at the start.
    #[must_use]
    pub fn relative_residual(self, share: f64) -> Self {
        Self { relative_residual: Some(share), ..self }
    }

    /// Adds the target: loss at most `gap` above its minimum.
    #[must_use]
    pub fn gap(self, gap: f64) -> Self {
        Self { gap: Some(gap), ..self }
    }

    /// Checks that every target can be measured with these metrics.
    ///
    /// # Errors
    /// When one cannot, because there are no metrics, or the problem lacks a fact that it needs.
    pub fn check(&self, metrics: Option<&Metrics>) -> Result<()> {
        let targets = [
            ("mse", "mse", self.mse),
            ("residual", "residual", self.residual),
            ("relative_residual", "residual", self.relative_residual),
            ("gap", "gap", self.gap),
        ];
        for (key, metric, _) in targets.into_iter().filter(|(.., target)| target.is_some()) {
            let what = match metrics.map(|metrics| metrics.missing(metric)) {
                Some(None) => continue,
                None => "a session without metrics measures nothing",
                Some(Some(Need::Root | Need::RootOrCentre)) => "theta* is not known for this problem",
                Some(Some(Need::Means)) => "the operators of this problem can only be sampled",
                Some(Some(Need::Objective)) => "the operators of this problem are not minus gradients of losses",
                Some(Some(Need::Gram | Need::Controls | Need::Answers)) => "this problem does not tell what it needs",
            };
            return Err(Error::new(format!("until.{key}"), what, "metrics that know the target, or a number of rounds only"));
        }
        Ok(())
    }

    /// The residuals at which a run stops that had `at_start` in round 0.
    fn residuals(&self, at_start: Option<f64>) -> impl Iterator<Item = f64> {
        let relative = self.relative_residual.zip(at_start).map(|(share, at_start)| share * at_start);
        self.residual.into_iter().chain(relative)
    }

    /// The target residual of a run with the residual `at_start` in round 0: the larger of the two targets; `None` without one.
    pub fn residual_asked(&self, at_start: Option<f64>) -> Option<f64> {
        self.residuals(at_start).max_by(f64::total_cmp)
    }

    /// Whether the last recorded round has reached a target; the residual in round 0 was `at_start`.
    pub fn is_reached(&self, rows: &[Recorded], at_start: Option<f64>) -> bool {
        let Some(last) = rows.last() else { return false };
        // An overflowing residual at the start is no reference.
        let below = |target: f64, name| target.is_finite() && last.metric(name).is_some_and(|y| y <= target);
        self.mse.is_some_and(|x| below(x, "mse"))
            || self.gap.is_some_and(|x| below(x, "gap"))
            || self.residuals(at_start).any(|x| below(x, "residual"))
    }

    /// The outcome of a run that recorded these rounds and had the residual `at_start` in round 0. `diverged` is the number of rounds after
    /// which it diverged, if it did.
    pub fn outcome(&self, rows: &[Recorded], at_start: Option<f64>, diverged: Option<u64>, has_reached: bool) -> Outcome {
        let targets = [("mse", self.mse), ("residual", self.residual_asked(at_start)), ("gap", self.gap)];
        let missed = targets.into_iter().filter_map(|(metric, target)| {
            let rounds: Vec<(u64, Option<f64>)> = rows.iter().map(|row| (row.round, row.metric(metric))).collect();
            Missed::of(metric, target?, &rounds)
        });
        match (Outcome::of(diverged, has_reached, missed), missing_weight(rows)) {
            (Outcome::Completed, missing) if missing > INCOMPLETE => Outcome::Incomplete { missing },
            (outcome, _) => outcome,
        }
    }
}

/// The mean missing weight over all rounds: each recorded round has the mean since the one before.
fn missing_weight(rows: &[Recorded]) -> f64 {
    let spans = rows.windows(2).map(|pair| (pair[1].round - pair[0].round) as f64 * pair[1].seen.missing_weight.unwrap_or(0.0));
    spans.sum::<f64>() / rows.last().map_or(1, |last| last.round.max(1)) as f64
}
