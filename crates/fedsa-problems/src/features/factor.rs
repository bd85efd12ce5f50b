//! A factor of a feature map: a map of some columns, no product, ready to evaluate.

use super::parts::Part;
use super::radial::{Bumps, sum_over_grid};
use super::spec::{FeatureSpec, values_in};
use super::statistics::ColumnStatistics;
use super::tiles::Tiling;
use crate::kernel::elementary::cos_pi;
use crate::kernel::margins;
use fedsa::kernel::Isa;

/// A map of some columns of the state. Columns are numbered from 0 within the factor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Factor {
    pub features: FeatureSpec,
    /// The names of its columns, then their positions in the state.
    pub columns: Vec<String>,
    places: Vec<usize>,
    /// The range of each column; infinite for columns without a range.
    pub bounds: Vec<(f64, f64)>,
    /// The number of features.
    pub len: usize,
    /// The monomials of a polynomial, except the constant; see [`monomials`].
    pub monomials: Vec<(usize, usize)>,
    /// The bumps of a radial map; empty for other maps.
    pub bumps: Bumps,
    /// The mean and standard deviation of each column of a standardised map; empty for other maps.
    moments: Vec<(f64, f64)>,
}

impl Factor {
    /// The factor with `len` features, on states with these columns and bounds.
    pub fn new(part: Part<'_>, len: usize, columns: &[String], bounds: &[(f64, f64)], statistics: &ColumnStatistics) -> Self {
        let places = part.columns;
        let columns: Vec<String> = places.iter().map(|j| columns[*j].clone()).collect();
        let bounds: Vec<(f64, f64)> = places.iter().map(|j| bounds[*j]).collect();
        let monomials = match *part.features {
            FeatureSpec::Polynomial { order } => monomials(places.len(), order),
            _ => Vec::new(),
        };
        let moments = match part.features {
            FeatureSpec::Standardised {} => columns.iter().filter_map(|column| statistics.moments.get(column).copied()).collect(),
            _ => Vec::new(),
        };
        let bumps = match *part.features {
            // Another factor may have quantiles of the same columns.
            FeatureSpec::Radial { centres, width, quantiles } => {
                let none = ColumnStatistics::default();
                Bumps::new(centres as usize, width, if quantiles { statistics } else { &none }, &columns, &bounds)
            }
            _ => Bumps::default(),
        };
        Self { features: part.features.clone(), columns, places, bounds, len, monomials, bumps, moments }
    }

    /// Of tiles and one-hot features: how many of a state are non-zero, and their value.
    pub fn sparse(&self) -> Option<(usize, f64)> {
        let value = if let FeatureSpec::Tiles { tilings, .. } = self.features { 1.0 / f64::from(tilings).sqrt() } else { 1.0 };
        self.features.active_count().map(|m| (m, value))
    }

    /// The number of a state's features that may be non-zero.
    pub fn active_count(&self) -> usize {
        self.features.active_count().unwrap_or(self.len)
    }

    /// Writes the increasing indices of features that may be non-zero; [`Factor::active_count`] says how many.
    pub fn active(&self, state: &[f64], out: &mut [u32]) {
        let tiling = match self.features {
            FeatureSpec::Tiles { tilings, bins, hashed } => Tiling::new(tilings, bins, hashed, self.len),
            FeatureSpec::OneHot {} => return out[0] = self.tuple_of(state) as u32,
            _ => return (0..).zip(out).for_each(|(i, out)| *out = i),
        };
        for (t, out) in out.iter_mut().enumerate().take(tiling.tilings) {
            *out = tiling.feature(t, self.places.len(), |j| self.scaled(state, j)) as u32;
        }
    }

    /// Column `j`, clipped to its range.
    fn clipped(&self, state: &[f64], j: usize) -> f64 {
        let (lo, hi) = self.bounds[j];
        state[self.places[j]].clamp(lo, hi)
    }

    /// `x_j`: column `j`, clipped and scaled to `[0, 1]`.
    fn scaled(&self, state: &[f64], j: usize) -> f64 {
        let (lo, hi) = self.bounds[j];
        (self.clipped(state, j) - lo) / (hi - lo)
    }

    /// The index of a state's tuple of whole numbers, in lexicographic order.
    fn tuple_of(&self, state: &[f64]) -> usize {
        (0..self.places.len())
            .fold(0, |tuple, j| tuple * values_in(self.bounds[j]) + (self.clipped(state, j) - self.bounds[j].0).round() as usize)
    }

    /// Writes the features of a state to `out`.
    pub fn eval(&self, state: &[f64], out: &mut [f64]) {
        let k = self.places.len();
        let x = |j| self.scaled(state, j);
        match self.features {
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
                sum_over_grid(k, order as usize + 1, out, x, |_, x, c| c as f64 * x);
                let scale = 1.0 / (self.len as f64).sqrt();
                margins::map(Isa::best(), out, |turns| cos_pi(turns) * scale);
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
            FeatureSpec::Product { .. } => unreachable!("a factor is no product"),
        }
    }
}

/// Divides the feature of every frequency c other than 0 by the square root of `||c||`; components of c have `size` values.
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

/// The monomials of `k` columns up to a total degree, except the constant: `(i, j)` is the earlier monomial `i` times column `j`. The order
/// is by degree, and within a degree from `x_1^degree` to `x_k^degree`.
fn monomials(k: usize, order: u32) -> Vec<(usize, usize)> {
    // The index and the first column of each monomial of the previous degree.
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
