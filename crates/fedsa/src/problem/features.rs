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

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::source::Inputs;
use crate::error::{Error, Result, quoted, require};

/// The largest number of features d of a map whose features are not sparse: systems are then dense d x d matrices, which are
/// too large beyond this.
pub const MAX_FEATURES: usize = 1 << 16;
/// The largest number of sparse features.
pub const MAX_SPARSE_FEATURES: usize = 1 << 27;
/// The number of features above which those of a tile coding are kept as the numbers of the active tiles.
pub const SPARSE_ABOVE: usize = 1024;

/// The range of each state column, by its name.
pub type Ranges = BTreeMap<String, (f64, f64)>;

/// The settings of a [`FeatureMap`].
///
/// On the command line: `columns`, `identity`, `identity:bias`, `polynomial:2`,
/// `fourier:3`, `tiles:8x4` (tilings x bins), `radial:5` or `radial:5:0.3`
/// (centres, width), `one-hot`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FeatureSpec {
    /// Features that were logged, in the columns `phi_*` and `phi_next_*`: `d` is their number. They are taken as they are.
    Columns {},
    /// The clipped state itself, unscaled, `d = k`; with `bias` a constant 1
    /// before it, `d = k + 1`. The only map for which columns may lack a range
    /// (and are then not clipped).
    Identity {
        /// Whether the first feature is the constant 1.
        #[serde(default)]
        bias: bool,
    },
    /// All monomials in `x` of total degree at most `order`, times
    /// `1/sqrt(d)`, `d = C(k + order, k)`: by degree, and within a degree from
    /// the first column to the last (`1, x_1, x_2, x_1^2, x_1 x_2, x_2^2, ..`).
    Polynomial {
        /// The largest total degree.
        order: u32,
    },
    /// `cos(pi <c, x>) / sqrt(d)` for all `c` in `{0..order}^k`,
    /// `d = (order + 1)^k`.
    Fourier {
        /// The largest frequency of a column.
        order: u32,
    },
    /// Tile coding: `tilings` shifted grids of `bins` tiles a column; in each
    /// grid the tile that holds `x` has the feature `1/sqrt(tilings)`, all
    /// others 0, so that `||phi|| = 1`, `d = tilings bins^k`.
    ///
    /// Tiles have the width `w = 1 / (bins - (tilings - 1)/tilings)`, so that
    /// all grids cover `[0, 1]`; grid `t` is shifted along column `j` (both from
    /// 0) by `w ((2 j + 1) t mod tilings) / tilings`, the usual displacement
    /// that avoids diagonal artefacts. With more than one tiling, and with tiles
    /// that no state visits, features are linearly dependent on the data and
    /// the solution is not unique.
    Tiles {
        /// The number of grids.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        tilings: u32,
        /// The number of tiles along each column.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        bins: u32,
    },
    /// Gaussian bumps `exp(-||x - m||^2 / (2 width^2))` around the `d =
    /// centres^k` points `m` of a grid over `[0, 1]^k`, ends included (its
    /// middle for one centre), normalised to the sum 1.
    Radial {
        /// The number of centres along each column.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        centres: u32,
        /// The standard deviation of a bump in units of `x`, from 0.001 to 1000;
        /// by default the distance between neighbouring centres (1 for one centre).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(min = 0.001, max = 1000)))]
        width: Option<f64>,
    },
    /// A feature for each tuple of whole numbers within the ranges, 1 in the
    /// states that are this tuple and 0 in all others: `d` is the product of
    /// the numbers of values of the columns. For states that are numbered.
    OneHot {},
}

impl FeatureSpec {
    /// The forms that [`FeatureSpec::from_str`] accepts.
    pub const FORMS: &str = "columns, identity, identity:bias, polynomial:ORDER, fourier:ORDER, tiles:TILINGSxBINS, radial:CENTRES or radial:CENTRES:WIDTH, one-hot";

    /// The number of features d for `k` state columns; `None` if it does not fit into a `usize`, or depends on their ranges (one-hot).
    pub fn count(&self, k: usize) -> Option<usize> {
        let power = |base: u32| (base as usize).checked_pow(u32::try_from(k).ok()?);
        match *self {
            Self::Columns {} => Some(k),
            Self::Identity { bias } => k.checked_add(usize::from(bias)),
            Self::Polynomial { order } => binomial(k.checked_add(order as usize)?, k.min(order as usize)),
            Self::Fourier { order } => power(order.checked_add(1)?),
            Self::Tiles { tilings, bins } => power(bins)?.checked_mul(tilings as usize),
            Self::Radial { centres, .. } => power(centres),
            Self::OneHot {} => None,
        }
    }

    /// The number of features d for columns with these ranges; `None` if it does not fit into a `usize`.
    fn count_in(&self, bounds: &[(f64, f64)]) -> Option<usize> {
        match self {
            Self::OneHot {} => bounds.iter().try_fold(1, |d: usize, range| d.checked_mul(values_in(*range))),
            _ => self.count(bounds.len()),
        }
    }

    /// Which columns of a log the map takes.
    pub fn inputs(&self) -> Inputs {
        if matches!(self, Self::Columns {}) { Inputs::Features } else { Inputs::States }
    }

    /// Whether columns need a range.
    pub(super) fn needs_ranges(&self) -> bool {
        !matches!(self, Self::Columns {} | Self::Identity { .. })
    }

    fn check(&self) -> Result<()> {
        let positive = |key: &str, value: u32| require(value >= 1, key, value, "a whole number of at least 1");
        match *self {
            Self::Columns {} | Self::Identity { .. } | Self::Polynomial { .. } | Self::Fourier { .. } | Self::OneHot {} => Ok(()),
            Self::Tiles { tilings, bins } => positive("tilings", tilings).and_then(|()| positive("bins", bins)),
            Self::Radial { centres, width } => {
                positive("centres", centres)?;
                width.map_or(Ok(()), |w| require((1e-3..=1e3).contains(&w), "width", w, "a number from 0.001 to 1000"))
            }
        }
    }
}

/// `n` over `k` for `k <= n / 2`; `None` on overflow.
fn binomial(n: usize, k: usize) -> Option<usize> {
    let mut value: usize = 1;
    for i in 0..k {
        // A binomial coefficient after each step, so the division is exact.
        value = usize::try_from(value as u128 * (n - i) as u128 / (i + 1) as u128).ok()?;
    }
    Some(value)
}

impl fmt::Display for FeatureSpec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Columns {} => write!(f, "columns"),
            Self::Identity { bias: false } => write!(f, "identity"),
            Self::Identity { bias: true } => write!(f, "identity:bias"),
            Self::Polynomial { order } => write!(f, "polynomial:{order}"),
            Self::Fourier { order } => write!(f, "fourier:{order}"),
            Self::Tiles { tilings, bins } => write!(f, "tiles:{tilings}x{bins}"),
            Self::Radial { centres, width: None } => write!(f, "radial:{centres}"),
            Self::Radial { centres, width: Some(width) } => write!(f, "radial:{centres}:{width}"),
            Self::OneHot {} => write!(f, "one-hot"),
        }
    }
}

impl FromStr for FeatureSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || -> Option<Self> {
            let (kind, settings) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
            Some(match (kind, settings) {
                ("columns", None) => Self::Columns {},
                ("one-hot", None) => Self::OneHot {},
                ("identity", None) => Self::Identity { bias: false },
                ("identity", Some("bias")) => Self::Identity { bias: true },
                ("polynomial", Some(order)) => Self::Polynomial { order: order.parse().ok()? },
                ("fourier", Some(order)) => Self::Fourier { order: order.parse().ok()? },
                ("tiles", Some(sizes)) => {
                    let (tilings, bins) = sizes.split_once('x')?;
                    Self::Tiles { tilings: tilings.parse().ok()?, bins: bins.parse().ok()? }
                }
                ("radial", Some(sizes)) => match sizes.split_once(':') {
                    None => Self::Radial { centres: sizes.parse().ok()?, width: None },
                    Some((centres, width)) => Self::Radial { centres: centres.parse().ok()?, width: Some(width.parse().ok()?) },
                },
                _ => return None,
            })
        };
        let help = || format!("accepted: {}", Self::FORMS);
        let spec = parse().ok_or_else(|| Error::new("features", format!("`{}` names no features", quoted(text)), help()))?;
        spec.check().map_err(|e| e.inside("features"))?;
        Ok(spec)
    }
}

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
}

impl FeatureMap {
    /// The map `spec` on states with these columns.
    ///
    /// # Errors
    /// When a setting or range is out of bounds, a column has no range, or
    /// there would be more than [`MAX_FEATURES`] features, of tiles [`MAX_SPARSE_FEATURES`].
    pub fn new(spec: &FeatureSpec, columns: &[String], ranges: &Ranges) -> Result<Self> {
        spec.check()?;
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
        Ok(Self { spec: *spec, columns: columns.to_vec(), bounds, len, monomials, scale: Vec::new() })
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
        let (tilings, bins) = match self.spec {
            FeatureSpec::Tiles { tilings, bins } => (tilings, bins),
            FeatureSpec::OneHot {} => return out[0] = self.tuple_of(state) as u32,
            _ => panic!("{} are not sparse", self.spec),
        };
        let (tilings, bins) = (tilings as usize, bins as usize);
        let per_tiling = self.len / tilings;
        for (t, out) in out.iter_mut().enumerate().take(tilings) {
            let tile = (0..state.len()).fold(0, |tile, j| tile * bins + tile_of(self.scaled(state, j), j, t, tilings, bins));
            *out = (t * per_tiling + tile) as u32;
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
            FeatureSpec::Fourier { order } => {
                sum_over_grid(k, order as usize + 1, out, |j, c| c as f64 * x(j));
                let scale = 1.0 / (self.len as f64).sqrt();
                for value in &mut *out {
                    *value = (PI * *value).cos() * scale;
                }
            }
            FeatureSpec::Tiles { tilings, bins } => {
                out.fill(0.0);
                let (tilings, bins) = (tilings as usize, bins as usize);
                let per_tiling = self.len / tilings;
                for t in 0..tilings {
                    let tile = (0..k).fold(0, |tile, j| tile * bins + tile_of(x(j), j, t, tilings, bins));
                    out[t * per_tiling + tile] = 1.0 / (tilings as f64).sqrt();
                }
            }
            FeatureSpec::Radial { centres, width } => bumps(k, centres as usize, width, x, out),
            FeatureSpec::OneHot {} => {
                out.fill(0.0);
                out[self.tuple_of(state)] = 1.0;
            }
        }
        out.iter_mut().zip(&self.scale).for_each(|(value, scale)| *value *= scale);
    }
}

/// Writes the normalised bumps of a grid of centres at the scaled state `x`.
fn bumps(k: usize, centres: usize, width: Option<f64>, x: impl Fn(usize) -> f64, out: &mut [f64]) {
    let width = width.unwrap_or_else(|| spacing(centres));
    sum_over_grid(k, centres, out, |j, c| {
        let z = (x(j) - centre(c, centres)) / width;
        -0.5 * z * z
    });
    // Relative to the nearest bump, so that not all narrow bumps underflow.
    let nearest = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for value in &mut *out {
        *value = (*value - nearest).exp();
        sum += *value;
    }
    for value in &mut *out {
        *value /= sum;
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

/// Writes `sum_j term(j, c_j)` for all tuples `c` in `{0..size - 1}^k`, in lexicographic order, with `k * size` calls of
/// `term`.
fn sum_over_grid(k: usize, size: usize, out: &mut [f64], term: impl Fn(usize, usize) -> f64) {
    out[0] = 0.0;
    // `out[..done]` holds the sums over the columns seen so far.
    let mut done = 1;
    for j in (0..k).rev() {
        // From the largest c down, because c = 0 overwrites the sums that the others use.
        for c in (0..size).rev() {
            let term = term(j, c);
            for i in 0..done {
                out[c * done + i] = out[i] + term;
            }
        }
        done *= size;
    }
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

/// The tile along column `j` that holds `x` in grid `t`.
fn tile_of(x: f64, j: usize, t: usize, tilings: usize, bins: usize) -> usize {
    let shift = ((2 * j + 1) * t % tilings) as f64 / tilings as f64;
    let tiles = bins as f64 - (tilings - 1) as f64 / tilings as f64; // tiles per unit of x
    ((x * tiles + shift) as usize).min(bins - 1)
}

/// The distance between neighbouring centres of a radial grid.
fn spacing(centres: usize) -> f64 {
    if centres > 1 { 1.0 / (centres - 1) as f64 } else { 1.0 }
}

/// The `c`-th centre of a radial grid along a column.
fn centre(c: usize, centres: usize) -> f64 {
    if centres > 1 { c as f64 / (centres - 1) as f64 } else { 0.5 }
}

#[cfg(test)]
mod tests;
