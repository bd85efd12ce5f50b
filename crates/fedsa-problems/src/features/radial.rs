//! Radial bumps on a grid of centres: evenly spaced, or at quantiles of the data.

use super::statistics::ColumnStatistics;
use crate::kernel::elementary::exp_below;
use crate::kernel::margins;
use fedsa::kernel::Isa;

/// The centres of bumps along each column, and their widths, in units of the scaled state.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Bumps {
    /// The number of centres along each column.
    count: usize,
    /// `count` numbers for each column, one column after the other.
    centres: Vec<f64>,
    /// One for each column.
    widths: Vec<f64>,
}

impl Bumps {
    /// Bumps on states with these columns, whose ranges are `bounds`. Centres are the column's quantiles where `statistics` has them.
    pub fn new(count: usize, width: Option<f64>, statistics: &ColumnStatistics, columns: &[String], bounds: &[(f64, f64)]) -> Self {
        let (mut centres, mut widths) = (Vec::new(), Vec::new());
        for (column, (lo, hi)) in columns.iter().zip(bounds) {
            match statistics.centres.get(column) {
                Some(own) => {
                    let own: Vec<f64> = own.iter().map(|s| (s.clamp(*lo, *hi) - lo) / (hi - lo)).collect();
                    let apart = (own[count - 1] - own[0]) / (count - 1).max(1) as f64;
                    widths.push(width.unwrap_or(if apart > 0.0 { apart } else { 1.0 }));
                    centres.extend(own);
                }
                None => {
                    widths.push(width.unwrap_or_else(|| spacing(count)));
                    centres.extend((0..count).map(|c| centre(c, count)));
                }
            }
        }
        Self { count, centres, widths }
    }

    /// The `c`-th centre along column `j`.
    pub fn centre(&self, j: usize, c: usize) -> f64 {
        self.centres[j * self.count + c]
    }

    /// Writes the normalised bumps at the scaled state `x` of `k` columns.
    pub fn eval(&self, k: usize, x: impl Fn(usize) -> f64, out: &mut [f64]) {
        sum_over_grid(k, self.count, out, x, |j, x, c| {
            let z = (x - self.centre(j, c)) / self.widths[j];
            -0.5 * z * z
        });
        // Relative to the nearest bump, so that narrow bumps do not all underflow.
        let nearest = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        margins::map(Isa::best(), out, |bump| exp_below(bump - nearest));
        let sum: f64 = out.iter().sum();
        out.iter_mut().for_each(|value| *value /= sum);
    }
}

/// The distance between neighbouring centres of an even grid.
fn spacing(centres: usize) -> f64 {
    if centres > 1 { 1.0 / (centres - 1) as f64 } else { 1.0 }
}

/// The `c`-th centre of an even grid along a column.
fn centre(c: usize, centres: usize) -> f64 {
    if centres > 1 { c as f64 / (centres - 1) as f64 } else { 0.5 }
}

/// Writes `sum_j term(j, x_j, c_j)` for all tuples `c` in `{0..size - 1}^k`, in lexicographic order. Calls `x` once per column, and `term`
/// once per column and value.
pub(super) fn sum_over_grid(k: usize, size: usize, out: &mut [f64], x: impl Fn(usize) -> f64, term: impl Fn(usize, f64, usize) -> f64) {
    debug_assert!(size > 0);
    out[0] = 0.0;
    // `out[..done]` holds the sums over the columns seen so far.
    let mut done = 1;
    for j in (0..k).rev() {
        let x = x(j);
        let (sums, mut rest) = out.split_at_mut(done);
        for c in 1..size {
            let (others, after) = rest.split_at_mut(done);
            let term = term(j, x, c);
            others.iter_mut().zip(&*sums).for_each(|(out, sum)| *out = sum + term);
            rest = after;
        }
        // Last, because it overwrites the sums that the other values read.
        let term = term(j, x, 0);
        sums.iter_mut().for_each(|sum| *sum += term);
        done *= size;
    }
}
