//! Checks whether importance ratios can be right: right ratios have the mean 1.
//!
//! Given the past, a ratio has the mean 1 in every state. Ratios minus 1 are therefore uncorrelated, even if states depend on each other.
//! The variance of their mean is the variance of a ratio divided by the number of rows.
//!
//! Ratios are rejected in three cases:
//!
//! - Their mean is at least [`MAX_MEAN`]. By Markov's inequality, non-negative numbers with expectation 1 have such a mean with a
//!   probability of at most `1 / MAX_MEAN`.
//! - Their mean differs from 1 by more than [`FAR`] and by more than [`STANDARD_ERRORS`] standard errors, and their effective number of
//!   rows is at least [`ENOUGH`], so that the standard error is known.
//! - All ratios together have at least [`ENOUGH`] rows, but an effective number of rows below [`FEWEST`].
//!
//! The effective number of rows is `(sum rho)^2 / sum rho^2`. The evidence page of policy values has the error rates.

use crate::logs::survey::{LogFacts, Surveyed};

/// A mean ratio of at least this is wrong, for any distribution.
pub const MAX_MEAN: f64 = 100.0;
/// A mean ratio further from 1 than this number of standard errors is wrong.
pub const STANDARD_ERRORS: f64 = 6.0;
/// A mean ratio is wrong only if it differs from 1 by more than this.
pub const FAR: f64 = 0.1;
/// The least effective number of rows with which the standard error of a mean ratio is known.
pub const ENOUGH: f64 = 100.0;
/// The least effective number of rows, of at least [`ENOUGH`] rows, that determines a value.
pub const FEWEST: f64 = 10.0;

/// The mean of importance ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioMean {
    /// The number of rows.
    pub rows: f64,
    /// The mean ratio.
    pub mean: f64,
    /// The effective number of rows: `(sum rho)^2 / sum rho^2`.
    pub effective: f64,
}

impl RatioMean {
    /// The mean of the ratios in use; `None` for a log without ratios.
    pub fn of(facts: &LogFacts) -> Option<Self> {
        Some(Self { rows: facts.transitions as f64, mean: facts.mean_ratio?, effective: facts.effective_size? })
    }

    /// The mean of the ratios as they were logged, before clipping.
    fn before_clipping(facts: &LogFacts) -> Option<Self> {
        let rows = facts.transitions as f64;
        facts.clipping.map_or(Self::of(facts), |clip| Some(Self { rows, mean: clip.mean_before, effective: clip.effective_before }))
    }

    /// The mean of the ratios of several logs together.
    fn join(all: &[Self]) -> Option<Self> {
        let rows: f64 = all.iter().map(|one| one.rows).sum();
        let mean = all.iter().map(|one| one.mean * (one.rows / rows)).sum::<f64>();
        // Computed from shares of the sum of all ratios, because squares of ratios may overflow.
        let squares = |one: &Self| if one.mean > 0.0 { (one.mean * (one.rows / rows) / mean).powi(2) / one.effective } else { 0.0 };
        let squares: f64 = all.iter().map(squares).sum();
        (rows > 0.0).then(|| Self { rows, mean, effective: if squares > 0.0 { 1.0 / squares } else { 0.0 } })
    }

    /// The standard error of the mean.
    pub fn se(&self) -> f64 {
        self.mean * ((self.rows / self.effective - 1.0).max(0.0) / self.rows).sqrt()
    }

    /// The distance from 1 above which the mean is wrong.
    fn far(&self) -> f64 {
        (STANDARD_ERRORS * self.se()).max(FAR)
    }

    fn is_too_large(&self) -> bool {
        self.mean >= MAX_MEAN || self.effective >= ENOUGH && self.mean - 1.0 > self.far()
    }

    fn is_too_small(&self) -> bool {
        self.effective >= ENOUGH && 1.0 - self.mean > self.far()
    }

    /// Whether a few of many rows carry all the weight.
    fn is_of_few(&self) -> bool {
        self.rows >= ENOUGH && self.effective < FEWEST
    }
}

/// The reason for rejecting ratios.
#[derive(Debug, Clone, PartialEq)]
pub enum WrongRatios {
    /// The mean ratio is wrong: of the log with this name, or of all logs.
    Mean(Option<String>, RatioMean),
    /// A few rows carry all the weight.
    FewRows(RatioMean),
}

impl Surveyed {
    /// The reasons to reject the ratios of these logs; empty if the ratios can be right, or if there are none.
    ///
    /// Clipping lowers the mean of right ratios. A mean is therefore too small only if it was too small before clipping, and too large only
    /// if it is too large after clipping.
    pub fn wrong_ratios(&self) -> Vec<WrongRatios> {
        let (used, logged) = (self.facts.iter().filter_map(RatioMean::of), self.facts.iter().filter_map(RatioMean::before_clipping));
        let (used, logged): (Vec<_>, Vec<_>) = (used.collect(), logged.collect());
        let wrong = |used: &RatioMean, logged: &RatioMean| match (used.is_too_large(), logged.is_too_small()) {
            (true, _) => Some(*used),
            (_, true) => Some(*logged),
            _ => None,
        };
        let names = self.facts.iter().filter(|facts| facts.mean_ratio.is_some()).map(|facts| facts.name.clone());
        let each = names.zip(used.iter().zip(&logged));
        let mut all: Vec<WrongRatios> =
            each.filter_map(|(name, (used, logged))| Some(WrongRatios::Mean(Some(name), wrong(used, logged)?))).collect();
        if let (true, Some(used), Some(logged)) = (all.is_empty(), RatioMean::join(&used), RatioMean::join(&logged)) {
            all.extend(wrong(&used, &logged).map(|mean| WrongRatios::Mean(None, mean)));
            if all.is_empty() && used.is_of_few() {
                all.push(WrongRatios::FewRows(used));
            }
        }
        all
    }
}

#[cfg(test)]
#[path = "ratio_means_tests.rs"]
mod tests;
