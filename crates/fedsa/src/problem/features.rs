//! Feature maps: from named state columns to `phi(s)` in R^d.
//!
//! A state `s` has k columns. Every column `j` has a range `[lo_j, hi_j]`;
//! states are clipped to the ranges, and `x_j = (s_j - lo_j) / (hi_j - lo_j)`
//! in `[0, 1]` is the scaled state. All maps but [`FeatureSpec::Identity`] see
//! `x` only and have `||phi(s)|| <= 1`, as the theory of TD(0) assumes
//! (\[S\] Lemma 3.1).
//!
//! Features over a grid of tuples `c = (c_1 .. c_k)` are in lexicographic order: `(0, 0), (0, 1), .., (1, 0), ..`.

mod names;
mod radial;
mod spec;
mod statistics;
mod tiles;

use std::collections::BTreeMap;
use std::f64::consts::PI;

use crate::error::{Error, Result, quoted};
use radial::{Bumps, sum_over_grid};
pub use spec::FeatureSpec;
pub use statistics::ColumnStatistics;
pub use statistics::RunningMoments;
pub(super) use statistics::quantiles;
use tiles::Tiling;

/// The largest number of features d of a map whose features are not sparse: systems are then dense d x d matrices, which are
/// too large beyond this.
pub const MAX_FEATURES: usize = 1 << 16;
/// The largest number of sparse features.
pub const MAX_SPARSE_FEATURES: usize = 1 << 27;
/// The number of features above which those of a tile coding are kept as the numbers of the active tiles.
pub const SPARSE_ABOVE: usize = 1024;

/// The range of each state column, by its name.
pub type Ranges = BTreeMap<String, (f64, f64)>;

/// The ranges of all columns: the given ranges, and for every other column the smallest and the largest value that was
/// seen in it.
///
/// # Errors
/// When a given range is empty or its column does not exist, or a column without a given range has the same value in all
/// states.
pub fn ranges_of(columns: &[String], seen: &[(f64, f64)], given: &Ranges) -> Result<Ranges> {
    check_ranges(columns, given)?;
    let mut ranges = given.clone();
    for (column, &(lo, hi)) in columns.iter().zip(seen).filter(|(column, _)| !given.contains_key(*column)) {
        if lo == hi {
            let what = format!("`{}` is {lo} in every transition, which gives no range to scale it by", quoted(column));
            return Err(Error::new("ranges", what, format!("give the range of `{}`, or leave the column out", quoted(column))));
        }
        ranges.insert(column.clone(), (lo, hi));
    }
    Ok(ranges)
}

fn check_ranges(columns: &[String], ranges: &Ranges) -> Result<()> {
    for (name, &(lo, hi)) in ranges {
        if !columns.contains(name) {
            let help = format!("the state columns are {}", quoted(columns.join(", ")));
            return Err(Error::new("ranges", format!("there is no state column `{}`", quoted(name)), help));
        }
        // The width must be finite too, or scaling by it would give 0 or NaN.
        if !(lo < hi && (hi - lo).is_finite()) {
            let help = "a range is two finite numbers, the smaller first";
            return Err(Error::new("ranges", format!("`{}`: [{lo}, {hi}] is not a range", quoted(name)), help));
        }
    }
    Ok(())
}

/// A feature map, ready to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureMap {
    spec: FeatureSpec,
    columns: Vec<String>,
    /// The range of each column; infinite for columns without a range, which only an identity allows.
    bounds: Vec<(f64, f64)>,
    len: usize,
    /// The monomials of a polynomial, except the constant; see [`monomials`].
    monomials: Vec<(usize, usize)>,
    /// What each feature is multiplied by, d numbers; empty if all are 1.
    scale: Vec<f64>,
    /// What the map takes from data.
    statistics: ColumnStatistics,
    /// Where the bumps of a radial map are; empty of other maps.
    bumps: Bumps,
    /// Mean and standard deviation of each column, of a standardised map; empty of other maps.
    moments: Vec<(f64, f64)>,
}

impl FeatureMap {
    /// The map `spec` on states with these columns.
    ///
    /// # Errors
    /// When a setting or range is out of bounds, a column has no range, or
    /// there would be more than [`MAX_FEATURES`] features, of tiles [`MAX_SPARSE_FEATURES`]; when the map takes statistics of data.
    pub fn new(spec: &FeatureSpec, columns: &[String], ranges: &Ranges) -> Result<Self> {
        Self::with_statistics(spec, columns, ranges, ColumnStatistics::default())
    }

    /// The map `spec` on states with these columns, with what it takes from data.
    ///
    /// # Errors
    /// As [`FeatureMap::new`], and when statistics are missing or of no use.
    pub fn with_statistics(spec: &FeatureSpec, columns: &[String], ranges: &Ranges, statistics: ColumnStatistics) -> Result<Self> {
        spec.check()?;
        statistics.check(spec, columns)?;
        let k = columns.len();
        if k == 0 {
            return Err(Error::new("", "features of no state columns", "a state needs at least one column"));
        }
        check_ranges(columns, ranges)?;
        if let (FeatureSpec::Columns {}, Some(column)) = (spec, ranges.keys().next()) {
            let what = format!("a range of `{}`, which is a feature", quoted(column));
            return Err(Error::new("ranges", what, "no ranges: features that were logged are taken as they are"));
        }
        let bounds = columns.iter().map(|column| match (ranges.get(column), spec) {
            (Some(&range), _) => Ok(range),
            (None, spec) if !spec.needs_ranges() => Ok((f64::NEG_INFINITY, f64::INFINITY)),
            (None, _) => Err(Error::new(
                "ranges",
                format!("`{}` has no range", quoted(column)),
                format!("{spec} needs the range of every state column"),
            )),
        });
        let bounds = bounds.collect::<Result<Vec<_>>>()?;
        check_whole(spec, columns, &bounds)?;
        let most = if matches!(spec, FeatureSpec::Tiles { .. } | FeatureSpec::OneHot {}) { MAX_SPARSE_FEATURES } else { MAX_FEATURES };
        let len = spec.count_in(&bounds).filter(|&d| d <= most).ok_or_else(|| {
            let count = spec.count_in(&bounds).map_or("too many to count".to_string(), |d| d.to_string());
            let what = format!("{spec} on {k} state columns: {count} features");
            Error::new("", what, format!("at most {most} features: take a lower order or fewer state columns"))
        })?;
        let monomials = match *spec {
            FeatureSpec::Polynomial { order } => monomials(k, order),
            _ => Vec::new(),
        };
        let moments = columns.iter().filter_map(|column| statistics.moments.get(column).copied()).collect();
        let bumps = match *spec {
            FeatureSpec::Radial { centres, width, .. } => Bumps::new(centres as usize, width, &statistics, columns, &bounds),
            _ => Bumps::default(),
        };
        Ok(Self { spec: *spec, columns: columns.to_vec(), bounds, len, monomials, scale: Vec::new(), bumps, moments, statistics })
    }

    /// The same features, each multiplied by a number.
    ///
    /// # Errors
    /// When there is not one finite number above 0 for each feature.
    pub fn with_scale(self, scale: Vec<f64>) -> Result<Self> {
        let bad = scale.iter().find(|x| !(x.is_finite() && **x > 0.0));
        if let Some(x) = bad {
            return Err(Error::new("scale", format!("{x}"), "finite numbers above 0"));
        }
        if !scale.is_empty() && scale.len() != self.len {
            let what = format!("{} numbers for {} features", scale.len(), self.len);
            return Err(Error::new("scale", what, "a number for each feature"));
        }
        Ok(Self { scale, ..self })
    }

    /// What each feature is multiplied by, d numbers; empty if all are 1.
    pub fn scale(&self) -> &[f64] {
        &self.scale
    }

    /// What the map takes from data besides ranges; nothing for most maps.
    pub fn statistics(&self) -> &ColumnStatistics {
        &self.statistics
    }

    /// The number of features of a state that are not 0, and their value, if features are sparse: many tiles or values without a scale.
    pub fn sparse(&self) -> Option<(usize, f64)> {
        match self.spec {
            FeatureSpec::Tiles { tilings, .. } if self.len > SPARSE_ABOVE && self.scale.is_empty() => {
                Some((tilings as usize, 1.0 / f64::from(tilings).sqrt()))
            }
            FeatureSpec::OneHot {} if self.len > SPARSE_ABOVE && self.scale.is_empty() => Some((1, 1.0)),
            _ => None,
        }
    }

    /// The numbers of the features of a state that are not 0, increasing, as many as [`FeatureMap::sparse`] says. Does not
    /// allocate.
    ///
    /// # Panics
    /// When features are neither tiles nor one-hot.
    pub fn active(&self, state: &[f64], out: &mut [u32]) {
        let tiling = match self.spec {
            FeatureSpec::Tiles { tilings, bins, hashed } => Tiling::new(tilings, bins, hashed, self.len),
            FeatureSpec::OneHot {} => return out[0] = self.tuple_of(state) as u32,
            _ => panic!("{} are not sparse", self.spec),
        };
        for (t, out) in out.iter_mut().enumerate().take(tiling.tilings) {
            *out = tiling.feature(t, state.len(), |j| self.scaled(state, j)) as u32;
        }
    }

    /// The number of features d.
    #[expect(clippy::len_without_is_empty, reason = "a map always has a feature")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The settings.
    pub fn spec(&self) -> &FeatureSpec {
        &self.spec
    }

    /// The state columns, k, in the order in which [`FeatureMap::eval`] takes them.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The ranges that states are clipped to.
    pub fn ranges(&self) -> Ranges {
        let known = self.columns.iter().zip(&self.bounds).filter(|(_, (lo, hi))| lo.is_finite() && hi.is_finite());
        known.map(|(column, &range)| (column.clone(), range)).collect()
    }

    /// Adds to `counts`, k numbers, in how many of the states each column is outside of its range, and is clipped.
    pub fn count_clipped(&self, states: &[f64], counts: &mut [usize]) {
        for state in states.chunks_exact(self.columns.len()) {
            let each = counts.iter_mut().zip(state).zip(&self.bounds);
            each.for_each(|((count, x), (lo, hi))| *count += usize::from(x < lo || x > hi));
        }
    }

    /// Column `j` of the state, clipped to its range.
    fn clipped(&self, state: &[f64], j: usize) -> f64 {
        let (lo, hi) = self.bounds[j];
        state[j].clamp(lo, hi)
    }

    /// `x_j`: column `j` of the state, clipped and scaled to `[0, 1]`.
    fn scaled(&self, state: &[f64], j: usize) -> f64 {
        let (lo, hi) = self.bounds[j];
        (self.clipped(state, j) - lo) / (hi - lo)
    }

    /// The number of a state's tuple of whole numbers, in lexicographic order.
    fn tuple_of(&self, state: &[f64]) -> usize {
        (0..state.len())
            .fold(0, |tuple, j| tuple * values_in(self.bounds[j]) + (self.clipped(state, j) - self.bounds[j].0).round() as usize)
    }

    /// Writes `phi(state)`, d numbers, to `out`. Does not allocate.
    ///
    /// # Panics
    /// When `state` does not have k entries or `out` not d.
    pub fn eval(&self, state: &[f64], out: &mut [f64]) {
        let k = self.columns.len();
        assert_eq!(state.len(), k, "the state must have one entry for each of the {k} columns");
        assert_eq!(out.len(), self.len, "there are {} features", self.len);
        let x = |j| self.scaled(state, j);
        match self.spec {
            FeatureSpec::Columns {} => out.copy_from_slice(state),
            FeatureSpec::Identity { bias } => {
                let (constant, values) = out.split_at_mut(usize::from(bias));
                constant.fill(1.0);
                for (j, value) in values.iter_mut().enumerate() {
                    *value = self.clipped(state, j);
                }
            }
            FeatureSpec::Polynomial { .. } => {
                out[0] = 1.0 / (self.len as f64).sqrt();
                for (new, &(old, j)) in self.monomials.iter().enumerate() {
                    out[new + 1] = out[old] * x(j);
                }
            }
            FeatureSpec::Standardised {} => {
                out[0] = 1.0;
                for (j, (value, (mean, std))) in out[1..].iter_mut().zip(&self.moments).enumerate() {
                    *value = (self.clipped(state, j) - mean) / std;
                }
            }
            FeatureSpec::Fourier { order, scaled } => {
                sum_over_grid(k, order as usize + 1, out, |j, c| c as f64 * x(j));
                let scale = 1.0 / (self.len as f64).sqrt();
                for value in &mut *out {
                    *value = (PI * *value).cos() * scale;
                }
                if scaled {
                    divide_by_frequencies(order as usize + 1, out);
                }
            }
            FeatureSpec::Tiles { tilings, bins, hashed } => {
                out.fill(0.0);
                let tiling = Tiling::new(tilings, bins, hashed, self.len);
                (0..tiling.tilings).for_each(|t| out[tiling.feature(t, k, x)] = 1.0 / f64::from(tilings).sqrt());
            }
            FeatureSpec::Radial { .. } => self.bumps.eval(k, x, out),
            FeatureSpec::OneHot {} => {
                out.fill(0.0);
                out[self.tuple_of(state)] = 1.0;
            }
        }
        out.iter_mut().zip(&self.scale).for_each(|(value, scale)| *value *= scale);
    }
}

/// Divides the feature of every frequency c other than 0 by the square root of `||c||`; `size` is the number of values of a component.
fn divide_by_frequencies(size: usize, out: &mut [f64]) {
    for (i, value) in out.iter_mut().enumerate().skip(1) {
        let (mut left, mut square) = (i, 0);
        while left > 0 {
            let c = left % size;
            square += c * c;
            left /= size;
        }
        *value /= (square as f64).sqrt().sqrt();
    }
}

/// How many whole numbers there are from the one end of a range to the other.
fn values_in((lo, hi): (f64, f64)) -> usize {
    (hi - lo) as usize + 1
}

/// Refuses one-hot features of ranges that are no whole numbers.
fn check_whole(spec: &FeatureSpec, columns: &[String], bounds: &[(f64, f64)]) -> Result<()> {
    let is_bad = |(lo, hi): &(f64, f64)| lo.fract() != 0.0 || hi.fract() != 0.0;
    let bad = columns.iter().zip(bounds).find(|(_, range)| is_bad(range)).filter(|_| matches!(spec, FeatureSpec::OneHot {}));
    bad.map_or(Ok(()), |(column, (lo, hi))| {
        let what = format!("one-hot of `{}`, whose values are from {lo} to {hi}", quoted(column));
        Err(Error::new("features", what, "columns of whole numbers; tiles for others"))
    })
}

/// The monomials of `k` columns up to a total degree, except the constant: each as `(i, j)`, the earlier monomial `i` times
/// column `j`. They are sorted by degree, and within a degree from `x_1^degree` to `x_k^degree`.
fn monomials(k: usize, order: u32) -> Vec<(usize, usize)> {
    // The number and the first column of each monomial of the degree before.
    let mut before = vec![(0, k)];
    let mut all = Vec::new();
    for _ in 0..order {
        let mut degree = Vec::new();
        for j in 0..k {
            for &(i, _) in before.iter().filter(|&&(_, first)| j <= first) {
                all.push((i, j));
                degree.push((all.len(), j));
            }
        }
        before = degree;
    }
    all
}

#[cfg(test)]
mod tests;
