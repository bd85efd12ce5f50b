//! What maps take from data besides ranges: quantiles, means and standard deviations of columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parts::ColumnNeeds;
use crate::error::{Error, Result, quoted};

/// Statistics of state columns, by their names, in units of the columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ColumnStatistics {
    /// The centres of radial bumps that are at quantiles, increasing; empty of other maps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub centres: BTreeMap<String, Vec<f64>>,
    /// The mean and the standard deviation, of standardised columns; empty of other maps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub moments: BTreeMap<String, (f64, f64)>,
}

impl ColumnStatistics {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn missing(column: &str, what: &str) -> Error {
        let help = "the statistics of the data that the map was made for";
        Error::data("", format!("no {what} of `{}`", quoted(column)), help)
    }

    /// Checks that they are those of the columns that the map asks for.
    ///
    /// # Errors
    /// When some are missing, are not finite, or standard deviations are not above 0.
    pub(super) fn check(&self, needs: &[ColumnNeeds], columns: &[String]) -> Result<()> {
        for (column, needs) in columns.iter().zip(needs) {
            if let Some(count) = needs.quantiles {
                let own = self.centres.get(column).ok_or_else(|| Self::missing(column, "quantiles"))?;
                if own.len() != count as usize || own.iter().any(|x| !x.is_finite()) || own.windows(2).any(|w| w[0] > w[1]) {
                    let what = format!("the quantiles of `{}` are not {count} increasing numbers", quoted(column));
                    return Err(Error::data("", what, "a finite number for each centre"));
                }
            }
            if needs.moments {
                let (mean, std) = self.moments.get(column).ok_or_else(|| Self::missing(column, "mean and standard deviation"))?;
                if !(mean.is_finite() && std.is_finite() && *std > 0.0) {
                    let what = format!("`{}` has the mean {mean} and the standard deviation {std}, which do not scale it", quoted(column));
                    return Err(Error::data("", what, "columns that differ between states; leave others out"));
                }
            }
        }
        Ok(())
    }
}

/// The quantiles `(c + 1/2) / count` of some numbers, which are sorted: by linear interpolation between the nearest two.
pub(crate) fn quantiles(sorted: &[f64], count: usize) -> Vec<f64> {
    let at = |c: usize| {
        let place = (c as f64 + 0.5) / count as f64 * (sorted.len() - 1) as f64;
        let (below, share) = (place.floor() as usize, place.fract());
        let above = sorted[(below + 1).min(sorted.len() - 1)];
        sorted[below] + share * (above - sorted[below])
    };
    (0..count).map(at).collect()
}

/// The mean and the spread of numbers that are seen one by one (Welford 1962; joined by Chan et al. 1979).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningMoments {
    n: f64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl RunningMoments {
    /// Takes a number.
    pub fn see(&mut self, x: f64) {
        self.n += 1.0;
        let away = x - self.mean;
        self.mean += away / self.n;
        self.squares += away * (x - self.mean);
    }

    /// Those of all of these numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        numbers.into_iter().for_each(|x| moments.see(x));
        moments
    }

    /// Whether numbers of this range, both ends included, can have them.
    pub(crate) fn are_of(self, low: f64, high: f64) -> bool {
        /// The most numbers that are counted exactly.
        const MOST: f64 = (1u64 << 53) as f64;
        let is_count = self.n.fract() == 0.0 && (1.0..=MOST).contains(&self.n);
        // Numbers of a range that are as far apart as can be are at its ends. What many numbers round to is no matter here.
        let most = self.n * ((high - self.mean) * (self.mean - low) + 1e-12 * low.abs().max(high.abs()).powi(2)) * 1.001;
        let is_spread = (0.0..=most).contains(&self.squares) && self.squares.is_finite();
        is_count && (high - low).is_finite() && (low..=high).contains(&self.mean) && is_spread
    }

    /// Those of both.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let n = self.n + other.n;
        if self.n == 0.0 || other.n == 0.0 {
            return if self.n == 0.0 { other } else { self };
        }
        let away = other.mean - self.mean;
        Self { n, mean: self.mean + away * (other.n / n), squares: self.squares + other.squares + away * away * (self.n * other.n / n) }
    }

    /// How many numbers were seen.
    pub fn count(self) -> usize {
        self.n as usize
    }

    /// The mean, and the standard deviation over all n numbers.
    pub fn mean_and_deviation(self) -> (f64, f64) {
        (self.mean, (self.squares / self.n).sqrt())
    }
}
