//! The columns of each factor of a map, and the map's requirements by column.

use super::ranges::{Ranges, check_ranges};
use super::spec::FeatureSpec;
use fedsa::error::{Error, Result, quoted};

/// A factor on states with given columns; a map that is no product has one factor.
pub(super) struct Part<'a> {
    pub features: &'a FeatureSpec,
    /// The positions of its columns in the state.
    pub columns: Vec<usize>,
}

/// Requirements of a state column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ColumnNeeds {
    /// Whether the map takes the column.
    pub is_taken: bool,
    /// Whether it needs a range.
    pub range: bool,
    /// Whether its values must be whole numbers.
    pub whole: bool,
    /// The number of quantiles taken from the data, if any.
    pub quantiles: Option<u32>,
    /// Whether the map uses its mean and standard deviation.
    pub moments: bool,
}

impl FeatureSpec {
    /// The factors with their columns, in order.
    ///
    /// # Errors
    /// When a factor names a missing column, or no column is left for a factor without names.
    pub(super) fn parts(&self, columns: &[String]) -> Result<Vec<Part<'_>>> {
        let Self::Product { factors } = self else {
            return Ok(vec![Part { features: self, columns: (0..columns.len()).collect() }]);
        };
        let mut parts = Vec::with_capacity(factors.len());
        let mut is_named = vec![false; columns.len()];
        for (i, factor) in factors.iter().enumerate() {
            let mut own = Vec::new();
            for name in factor.columns.iter().flatten() {
                let Some(j) = columns.iter().position(|column| column == name) else {
                    let what = format!("there is no state column `{}`, which {} takes", quoted(name), factor.features);
                    let help = format!("the state columns are {}", quoted(columns.join(", ")));
                    return Err(Error::new(format!("features.factors[{i}].columns"), what, help));
                };
                own.push(j);
                is_named[j] = true;
            }
            parts.push(Part { features: &factor.features, columns: own });
        }
        if let Some(i) = factors.iter().position(|factor| factor.columns.is_none()) {
            parts[i].columns = (0..columns.len()).filter(|j| !is_named[*j]).collect();
            if parts[i].columns.is_empty() {
                let what = format!("no column is left for {}, which names none", factors[i].features);
                return Err(Error::new(format!("features.factors[{i}].columns"), what, "the columns that it takes"));
            }
        }
        Ok(parts)
    }

    /// The map's requirements of each of these columns.
    ///
    /// # Errors
    /// When a setting is out of bounds, a factor names a missing column, no column is left for a factor without names, or factors take
    /// different numbers of quantiles of a column.
    pub fn needs(&self, columns: &[String]) -> Result<Vec<ColumnNeeds>> {
        self.check().map_err(|e| e.inside("features"))?;
        let mut needs = vec![ColumnNeeds::default(); columns.len()];
        for part in self.parts(columns)? {
            let own = part.features.needs_of_each();
            for j in part.columns {
                let all = &mut needs[j];
                if let (Some(a), Some(b)) = (all.quantiles, own.quantiles)
                    && a != b
                {
                    let what = format!("{a} and {b} quantiles of `{}`", quoted(&columns[j]));
                    return Err(Error::new("features", what, "the same number in all factors that take the column"));
                }
                *all = all.join(own);
            }
        }
        Ok(needs)
    }

    /// The requirements of a map that is no product, the same for each of its columns.
    fn needs_of_each(&self) -> ColumnNeeds {
        let quantiles = match self {
            Self::Radial { centres, quantiles: true, .. } => Some(*centres),
            _ => None,
        };
        ColumnNeeds {
            is_taken: true,
            range: !matches!(self, Self::Columns {} | Self::Identity { .. } | Self::Standardised {}),
            whole: matches!(self, Self::OneHot {}),
            quantiles,
            moments: matches!(self, Self::Standardised {}),
        }
    }

    /// The requirements of all columns together.
    fn needs_of_some(&self) -> ColumnNeeds {
        match self {
            Self::Product { factors } => {
                factors.iter().map(|factor| factor.features.needs_of_some()).fold(ColumnNeeds::default(), ColumnNeeds::join)
            }
            plain => plain.needs_of_each(),
        }
    }

    /// Whether the map takes statistics from the data.
    pub fn needs_statistics(&self) -> bool {
        let needs = self.needs_of_some();
        needs.quantiles.is_some() || needs.moments
    }

    /// Whether a column needs a range.
    pub fn needs_ranges(&self) -> bool {
        self.needs_of_some().range
    }

    /// The ranges of the map's columns: given ranges, otherwise the smallest and the largest value seen. A column with the same value x in
    /// all states has the range from x to x + 1.
    ///
    /// # Errors
    /// As [`FeatureSpec::needs`]; when a given range is empty or its column does not exist.
    pub fn ranges(&self, columns: &[String], seen: &[(f64, f64)], given: &Ranges) -> Result<Ranges> {
        check_ranges(columns, given)?;
        let mut ranges = given.clone();
        for ((column, needs), &(lo, hi)) in columns.iter().zip(self.needs(columns)?).zip(seen) {
            if !needs.range || given.contains_key(column) {
                continue;
            }
            ranges.insert(column.clone(), (lo, if lo == hi { lo + 1.0 } else { hi }));
        }
        Ok(ranges)
    }
}

impl ColumnNeeds {
    fn join(self, other: Self) -> Self {
        Self {
            is_taken: self.is_taken || other.is_taken,
            range: self.range || other.range,
            whole: self.whole || other.whole,
            quantiles: self.quantiles.or(other.quantiles),
            moments: self.moments || other.moments,
        }
    }
}
