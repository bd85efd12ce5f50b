//! Feature maps: from named state columns to `phi(s)` in R^d.
//!
//! A state `s` has k columns. Column `j` has a range `[lo_j, hi_j]`, and states are clipped to the ranges.
//! `x_j = (s_j - lo_j) / (hi_j - lo_j)` in `[0, 1]` is the scaled state. All maps but [`FeatureSpec::Identity`] see `x` only and have
//! `||phi(s)|| <= 1`, as the theory of TD(0) assumes (\[S\] Lemma 3.1).
//!
//! Features over a grid of tuples `c = (c_1 .. c_k)` are in lexicographic order: `(0, 0), (0, 1), .., (1, 0), ..`.

//!
//! A map is a product of factors, each of some of the columns; most maps have one factor, of all columns.

mod factor;
mod names;
mod parts;
mod radial;
mod ranges;
mod spec;
mod statistics;
mod text;
mod tiles;

use factor::Factor;
use fedsa::error::{Error, Result, quoted};
pub use parts::ColumnNeeds;
use parts::Part;
pub use ranges::Ranges;
use ranges::check_ranges;
pub use spec::{FeatureFactor, FeatureSpec};
pub use statistics::ColumnStatistics;
pub(super) use statistics::quantiles;

/// The largest d of a map without sparse features, whose systems are dense d x d matrices.
pub const MAX_FEATURES: usize = 1 << 16;
/// The largest d of a map with sparse features.
pub const MAX_SPARSE_FEATURES: usize = 1 << 27;
/// Above this d, a tile coding stores the indices of active tiles only.
pub const SPARSE_ABOVE: usize = 1024;
/// Above this d, a product with a factor of tiles or one-hot features stores active features and their values only. The threshold is above
/// Above this d, maps of tiles or one-hot features store the indices of active features only.
pub const MIXED_ABOVE: usize = 4096;
/// Such a product is sparse if at most one in this many features is active.
const FEW: usize = 16;

/// A feature map, ready to evaluate.
#[derive(Debug, Clone, PartialEq)]
pub struct FeatureMap {
    spec: FeatureSpec,
    columns: Vec<String>,
    /// The range of each column; infinite for columns without a range.
    bounds: Vec<(f64, f64)>,
    /// Requirements of the map, by column.
    needs: Vec<ColumnNeeds>,
    /// At least one.
    factors: Vec<Factor>,
    len: usize,
    /// A factor for each feature, d numbers; empty if all are 1.
    scale: Vec<f64>,
    /// Statistics of the data that the map uses.
    statistics: ColumnStatistics,
}

impl FeatureMap {
    /// The map `spec` on states with these columns.
    ///
    /// # Errors
    /// When
    /// - a setting or range is out of bounds, a column has no range, or a factor does not fit the columns,
    /// - d is above [`MAX_FEATURES`], or above [`MAX_SPARSE_FEATURES`] with sparse features,
    /// - the map needs statistics of the data.
    pub fn new(spec: &FeatureSpec, columns: &[String], ranges: &Ranges) -> Result<Self> {
        Self::with_statistics(spec, columns, ranges, ColumnStatistics::default())
    }

    /// The map `spec` on states with these columns, with statistics of the data.
    ///
    /// # Errors
    /// As [`FeatureMap::new`], and when statistics are missing or invalid.
    pub fn with_statistics(spec: &FeatureSpec, columns: &[String], ranges: &Ranges, statistics: ColumnStatistics) -> Result<Self> {
        if columns.is_empty() {
            return Err(Error::new("", "features of no state columns", "a state needs at least one column"));
        }
        let needs = spec.needs(columns)?;
        statistics.check(&needs, columns)?;
        check_ranges(columns, ranges)?;
        let bounds = bounds_of(spec, columns, &needs, ranges)?;
        let parts = spec.parts(columns)?;
        let counts = counts_of(spec, &parts, &bounds)?;
        let factors = parts.into_iter().zip(&counts).map(|(part, d)| Factor::new(part, *d, columns, &bounds, &statistics)).collect();
        let (spec, columns, len) = (spec.clone(), columns.to_vec(), counts.iter().product());
        Ok(Self { spec, columns, bounds, needs, factors, len, scale: Vec::new(), statistics })
    }

    /// The same map, with each feature multiplied by a factor.
    ///
    /// # Errors
    /// When `scale` does not have d finite numbers above 0.
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

    /// The factor of each feature, d numbers; empty if all are 1.
    pub fn scale(&self) -> &[f64] {
        &self.scale
    }

    /// Statistics of the data that the map uses; empty for most maps.
    pub fn statistics(&self) -> &ColumnStatistics {
        &self.statistics
    }

    /// Of sparse features: how many of a state may be non-zero, and the factor of their values. `None` if features are dense. Tiles and
    /// one-hot features all have the factor as their value. Products with other maps ([`FeatureMap::is_mixed`]) have
    /// [`FeatureMap::active_values`], with the factor 1.
    pub fn sparse(&self) -> Option<(usize, f64)> {
        let is_mixed = self.is_mixed();
        let all: usize = self.factors.iter().map(Factor::active_count).product();
        let is_few = if is_mixed { self.len > MIXED_ABOVE && all * FEW <= self.len } else { self.len > SPARSE_ABOVE };
        if !is_few || !self.scale.is_empty() {
            return None;
        }
        let values = self.factors.iter().filter_map(Factor::sparse).map(|(_, value)| value);
        Some((all, if is_mixed { 1.0 } else { values.reduce(|all, one| all * one)? }))
    }

    /// Whether a factor is neither tiles nor one-hot, so that active features differ in their values.
    pub fn is_mixed(&self) -> bool {
        self.factors.iter().any(|factor| factor.sparse().is_none())
    }

    /// Writes the values of the features that [`FeatureMap::active`] lists, in the same order. Does not allocate.
    pub fn active_values(&self, state: &[f64], out: &mut [f64]) {
        out[0] = 1.0;
        let values = |factor: &Factor, out: &mut [f64]| match factor.sparse() {
            Some((_, value)) => out.fill(value),
            None => factor.eval(state, out),
        };
        over_tuples(&self.factors, out, Factor::active_count, values, |phi, psi| phi * psi);
    }

    /// Writes the increasing indices of a state's features that may be non-zero; [`FeatureMap::sparse`] says how many. Does not allocate.
    pub fn active(&self, state: &[f64], out: &mut [u32]) {
        if let [only] = &self.factors[..] {
            return only.active(state, out);
        }
        // The index step of a factor's feature: the number of features of all later factors.
        let mut stride = 1;
        out[0] = 0;
        over_tuples(
            &self.factors,
            out,
            Factor::active_count,
            |factor, out| {
                factor.active(state, out);
                out.iter_mut().for_each(|i| *i *= stride);
                stride *= factor.len as u32;
            },
            |i, j| i + j,
        );
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

    /// The ranges to which states are clipped.
    pub fn ranges(&self) -> Ranges {
        let known = self.columns.iter().zip(&self.bounds).filter(|(_, (lo, hi))| lo.is_finite() && hi.is_finite());
        known.map(|(column, &range)| (column.clone(), range)).collect()
    }

    /// Adds to `counts`, k numbers, how many of the states each column's range clips.
    pub fn count_clipped(&self, states: &[f64], counts: &mut [usize]) {
        for state in states.chunks_exact(self.columns.len()) {
            let each = counts.iter_mut().zip(state).zip(&self.bounds);
            each.for_each(|((count, x), (lo, hi))| *count += usize::from(x < lo || x > hi));
        }
    }

    /// Whether the map takes column `j`.
    pub fn takes(&self, j: usize) -> bool {
        self.needs[j].is_taken
    }

    /// The number of features of another map on the same states; `None` if the map does not fit these columns.
    pub fn count_of(&self, spec: &FeatureSpec) -> Option<usize> {
        let parts = spec.parts(&self.columns).ok()?;
        product(parts.iter().map(|part| count_of(part, &self.bounds)))
    }

    /// Writes `phi(state)`, d numbers, to `out`. Does not allocate.
    ///
    /// # Panics
    /// When `state` does not have k entries or `out` not d.
    pub fn eval(&self, state: &[f64], out: &mut [f64]) {
        let k = self.columns.len();
        assert_eq!(state.len(), k, "the state must have one entry for each of the {k} columns");
        assert_eq!(out.len(), self.len, "there are {} features", self.len);
        if let [only] = &self.factors[..] {
            only.eval(state, out);
        } else {
            out[0] = 1.0;
            over_tuples(&self.factors, out, |factor| factor.len, |factor, out| factor.eval(state, out), |phi, psi| phi * psi);
        }
        out.iter_mut().zip(&self.scale).for_each(|(value, scale)| *value *= scale);
    }
}

/// Joins the entries of all factors into one for each tuple of them, in lexicographic order, in place. `entries` writes `size` entries of a
/// factor, from the last factor to the first. Joining starts from `out[0]`; `out` has room for the product of all sizes.
fn over_tuples<T: Copy + Default>(
    factors: &[Factor],
    out: &mut [T],
    size: impl Fn(&Factor) -> usize,
    mut entries: impl FnMut(&Factor, &mut [T]),
    join: impl Fn(T, T) -> T,
) {
    // `out[..done]` holds the tuples of the factors seen so far.
    let mut done = 1;
    for factor in factors.iter().rev() {
        let n = size(factor);
        if done == 1 {
            let before = out[0];
            entries(factor, &mut out[..n]);
            out[..n].iter_mut().for_each(|x| *x = join(*x, before));
        } else if n == 1 {
            let mut only = [T::default()];
            entries(factor, &mut only);
            out[..done].iter_mut().for_each(|x| *x = join(only[0], *x));
        } else {
            // The factor's own entries follow the tuples. The loop runs downwards so that it reads each entry before it writes to its
            // place.
            entries(factor, &mut out[done..done + n]);
            let first = out[done];
            for i in (1..n).rev() {
                let own = out[done + i];
                let (before, tuples) = out.split_at_mut(i * done);
                tuples[..done].iter_mut().zip(&before[..done]).for_each(|(tuple, x)| *tuple = join(own, *x));
            }
            out[..done].iter_mut().for_each(|x| *x = join(first, *x));
        }
        done *= n;
    }
}

/// The number of features of a factor.
fn count_of(part: &Part<'_>, bounds: &[(f64, f64)]) -> Option<usize> {
    let own: Vec<(f64, f64)> = part.columns.iter().map(|j| bounds[*j]).collect();
    part.features.count_in(&own)
}

/// The product of known numbers; `None` if one is unknown, or on overflow.
fn product(mut counts: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    counts.try_fold(1, |all: usize, one| all.checked_mul(one?))
}

/// The number of features of each factor; refuses too many.
fn counts_of(spec: &FeatureSpec, parts: &[Part<'_>], bounds: &[(f64, f64)]) -> Result<Vec<usize>> {
    let each: Vec<Option<usize>> = parts.iter().map(|part| count_of(part, bounds)).collect();
    let all = product(each.iter().copied());
    let active = product(parts.iter().zip(&each).map(|(part, d)| part.features.active_count().or(*d)));
    let is_few = active.and_then(|m| m.checked_mul(FEW)).is_some_and(|m| all.is_none_or(|d| m <= d));
    let most = if spec.is_sparse() || is_few { MAX_SPARSE_FEATURES } else { MAX_FEATURES };
    if all.is_some_and(|d| d <= most) {
        return Ok(each.into_iter().flatten().collect());
    }
    let said = |count: Option<usize>| count.map_or("too many to count".to_string(), |d| d.to_string());
    let what = format!("{} on {} state columns: {} features", quoted(spec.to_string()), bounds.len(), said(all));
    let each: Vec<String> = each.into_iter().map(said).collect();
    let factors = if parts.len() == 1 { String::new() } else { format!(", of which the factors have {}", each.join(", ")) };
    Err(Error::new("", what, format!("at most {most} features{factors}: take a lower order or fewer state columns")))
}

/// The range of each column, infinite for columns that need none and have none.
fn bounds_of(spec: &FeatureSpec, columns: &[String], needs: &[ColumnNeeds], ranges: &Ranges) -> Result<Vec<(f64, f64)>> {
    let bounds = columns.iter().zip(needs).map(|(column, needs)| match ranges.get(column) {
        Some(_) if *spec == FeatureSpec::Columns {} => {
            let what = format!("a range of `{}`, which is a feature", quoted(column));
            Err(Error::new("ranges", what, "no ranges: features that were logged are taken as they are"))
        }
        Some(_) if !needs.is_taken => {
            let what = format!("a range of `{}`, which {} does not take", quoted(column), quoted(spec.to_string()));
            Err(Error::new("ranges", what, "ranges of the columns that features take"))
        }
        Some((lo, hi)) if needs.whole && (lo.fract() != 0.0 || hi.fract() != 0.0) => {
            let what = format!("one-hot of `{}`, whose values are from {lo} to {hi}", quoted(column));
            Err(Error::new("features", what, "columns of whole numbers; tiles for others"))
        }
        Some(&range) => Ok(range),
        None if !needs.range => Ok((f64::NEG_INFINITY, f64::INFINITY)),
        None => {
            let which = if matches!(spec, FeatureSpec::Product { .. }) { "this column" } else { "every state column" };
            let help = format!("{} needs the range of {which}", quoted(spec.to_string()));
            Err(Error::new("ranges", format!("`{}` has no range", quoted(column)), help))
        }
    });
    bounds.collect()
}

#[cfg(test)]
mod product_tests;
#[cfg(test)]
mod tests;
