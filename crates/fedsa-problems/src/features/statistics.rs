//! Statistics of the data that maps use: quantiles, means and standard deviations of columns.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::parts::ColumnNeeds;
use fedsa::error::{Error, Result, quoted};

/// Statistics of state columns, by column name, in units of the columns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ColumnStatistics {
    /// Centres of radial bumps at quantiles, increasing; empty for other maps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub centres: BTreeMap<String, Vec<f64>>,
    /// Mean and standard deviation of standardised columns; empty for other maps.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub moments: BTreeMap<String, (f64, f64)>,
}

impl ColumnStatistics {
    /// Whether there are no statistics.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn missing(column: &str, what: &str) -> Error {
        let help = "the statistics of the data that the map was made for";
        Error::data("", format!("no {what} of `{}`", quoted(column)), help)
    }

    /// Checks that the statistics are complete for the columns that need them.
    ///
    /// # Errors
    /// When some are missing or not finite, or a standard deviation is not above 0.
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

/// The quantiles `(c + 1/2) / count` of sorted numbers, by linear interpolation between the nearest two.
pub(crate) fn quantiles(sorted: &[f64], count: usize) -> Vec<f64> {
    let at = |c: usize| {
        let place = (c as f64 + 0.5) / count as f64 * (sorted.len() - 1) as f64;
        let (below, share) = (place.floor() as usize, place.fract());
        let above = sorted[(below + 1).min(sorted.len() - 1)];
        sorted[below] + share * (above - sorted[below])
    };
    (0..count).map(at).collect()
}
