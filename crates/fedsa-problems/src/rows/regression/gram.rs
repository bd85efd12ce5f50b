//! Weighted Gram matrices `sum_j w_j x_j x_j^T` of rows: the Hessians of regression.

use std::borrow::Cow;
use std::ops::Range;

use faer::reborrow::ReborrowMut;
use faer::{Mat, MatMut};

use crate::rows::dataset::Rows;
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::triangle::entries;

/// Tasks begin at multiples of this row of the triangle, so that the kernel's tiles are whole.
const TILE: usize = 24;
/// Below this number of multiplications, a second thread does not pay off.
const MAX_ALONE: usize = 500_000;

/// `out = sum_j w_j x_j x_j^T` over the rows of `range`, d x d and exactly symmetric; `weights` has a number for each.
///
/// Parts of the triangle are computed in parallel. Every entry is one sum over all rows, in an order that does not depend on the number of
/// threads, nor, for dense rows, on the instruction set. Sparse rows form products of stored numbers only. Dense rows are left out if
/// together they change no entry by more than its rounding error (`heavy`).
pub fn gram(rows: &Rows, range: Range<usize>, weights: &[f64], out: &mut Mat<f64>) {
    of_parts(rows, [(range, Cow::Borrowed(weights))], out);
}

/// The q x q blocks `sum_j w_{k l j} x_j x_j^T`, d x d each, of symmetric weights. `of(k q + l)` returns the weights of blocks (k, l) and
/// (l, k), a number for each row of `range`, and is called for l <= k.
pub fn blocks<'a>(rows: &Rows, range: Range<usize>, q: usize, of: impl Fn(usize) -> Cow<'a, [f64]>, out: &mut Mat<f64>) {
    if q == 1 {
        return gram(rows, range, &of(0), out);
    }
    let d = rows.columns();
    let mut one = Mat::zeros(d, d);
    for k in 0..q {
        for l in 0..=k {
            gram(rows, range.clone(), &of(k * q + l), &mut one);
            out.submatrix_mut(k * d, l * d, d, d).copy_from(&one);
            out.submatrix_mut(l * d, k * d, d, d).copy_from(&one);
        }
    }
}

/// [`gram`] of several ranges of rows, each with its weights, one after the other.
pub fn of_parts<'a>(rows: &Rows, parts: impl IntoIterator<Item = (Range<usize>, Cow<'a, [f64]>)>, out: &mut Mat<f64>) {
    let d = rows.columns();
    out.fill(0.0);
    match rows {
        Rows::Dense { values, .. } => {
            for (range, weights) in parts {
                // Columns of the upper triangle are rows of the lower one.
                let columns = out.col_iter_mut().map(|column| column.try_as_col_major_mut().expect("columns in one piece").as_slice_mut());
                dense(&values[range.start * d..range.end * d], &weights, columns.collect());
            }
            mirror(out);
        }
        Rows::Sparse { starts, index, value, .. } => {
            let sparse = Sparse { starts, index, value };
            for (range, weights) in parts {
                let ends = sparse.balanced(d, range.clone());
                panels(out, &ends, |first, panel| sparse.panel(range.clone(), &weights, first, panel));
            }
            for j in 0..d {
                (j + 1..d).for_each(|i| out[(j, i)] = out[(i, j)]);
            }
        }
    }
}

/// The lower triangle of [`gram`] by rows, for dense rows of d numbers: `d (d + 1) / 2` numbers with the same bits.
pub fn triangle(values: &[f64], d: usize, weights: &[f64], out: &mut [f64]) {
    out.fill(0.0);
    let (mut rows, mut rest) = (Vec::with_capacity(d), out);
    for i in 0..d {
        let (row, after) = rest.split_at_mut(entries(i + 1) - entries(i));
        rows.push(row);
        rest = after;
    }
    dense(values, weights, rows);
}

/// Adds the Gram matrix of dense rows to the lower triangle with the rows `out`.
fn dense(values: &[f64], weights: &[f64], mut out: Vec<&mut [f64]>) {
    let d = out.len();
    let tasks = (weights.len() * d * d / 2 / MAX_ALONE).clamp(1, parallel::threads());
    let (values, weights) = heavy(values, d, weights);
    if tasks == 1 {
        return crate::kernel::gram::add(Isa::best(), &values, d, &weights, 0, &mut out);
    }
    // Row i takes i + 1 numbers, so tasks of equal work end at square roots.
    let end = |task: usize| (d as f64 * (task as f64 / tasks as f64).sqrt() / TILE as f64).round() as usize * TILE;
    let (mut parts, mut rest, mut first) = (Vec::with_capacity(tasks), &mut out[..], 0);
    for task in 1..=tasks {
        let end = if task == tasks { d } else { end(task).clamp(first, d) };
        let (part, after) = rest.split_at_mut(end - first);
        parts.push((first, part));
        (rest, first) = (after, end);
    }
    parallel::each_mut(&mut parts, |_, (first, part)| crate::kernel::gram::add(Isa::best(), &values, d, &weights, *first, part));
}

/// Copies the upper triangle to the lower one, in blocks of columns for the cache.
fn mirror(out: &mut Mat<f64>) {
    const COLUMNS: usize = 32;
    let d = out.ncols();
    for first in (0..d).step_by(COLUMNS) {
        for i in first + 1..d {
            let (mut some, len) = ([0.0; COLUMNS], COLUMNS.min(i - first));
            some[..len].copy_from_slice(&out.col_as_slice(i)[first..first + len]);
            some[..len].iter().enumerate().for_each(|(k, x)| out[(i, first + k)] = *x);
        }
    }
}

/// Splits a d x d matrix into panels that end before the columns `ends`, and calls `see` with the first column of each.
fn panels(matrix: &mut Mat<f64>, ends: &[usize], see: impl Fn(usize, MatMut<'_, f64>) + Sync) {
    let (mut first, mut rest, mut all) = (0, matrix.as_mut(), Vec::with_capacity(ends.len()));
    for end in ends {
        let (panel, after) = rest.split_at_col_mut(end - first);
        all.push((first, panel));
        (first, rest) = (*end, after);
    }
    parallel::each_mut(&mut all, |_, (first, panel)| see(*first, panel.rb_mut()));
}

/// Rows may be light up to this share of the largest weight, divided by the number of rows.
const LIGHT: f64 = f64::EPSILON / 2.0;
/// Rows count among the heaviest from this share of the largest weight on.
const HEAVIEST: f64 = 1e-3;
/// Leaving out light rows pays off if at least one row in this many is light.
const WORTH: usize = 8;

/// The heavy dense rows of d numbers, with their weights: all but rows that together change no entry by more than its rounding error.
///
/// A row j is left out if for every column k `|w_j| x_jk^2 <= u / n s_k`, where u is half a unit of the last place, n the number of rows, and
/// s_k is at most `sum_i |w_i| x_ik^2`. All of them together then add at most `u sqrt(s_k s_l)` to entry (k, l) (Cauchy and Schwarz), below
/// the rounding error of the sum. Near the optimum of a logistic loss that separates most rows, a third of the rows or more are light.
fn heavy<'a>(values: &'a [f64], d: usize, weights: &'a [f64]) -> (Cow<'a, [f64]>, Cow<'a, [f64]>) {
    let all = (Cow::Borrowed(values), Cow::Borrowed(weights));
    let largest = weights.iter().fold(0.0f64, |most, w| most.max(w.abs()));
    let share = LIGHT / weights.len() as f64;
    let may_be_light = |w: f64| w.abs() <= share * largest;
    // Weights that are not finite are never light, and then no row is left out.
    if d == 0 || !largest.is_finite() || WORTH * weights.iter().filter(|w| may_be_light(**w)).count() < weights.len() {
        return all;
    }
    // The heaviest rows bound s_k from below.
    let mut bound = vec![0.0f64; d];
    let rows = || values.chunks_exact(d).zip(weights);
    for (row, w) in rows().filter(|(_, w)| w.abs() >= HEAVIEST * largest) {
        bound.iter_mut().zip(row).for_each(|(sum, x)| *sum += w.abs() * x * x);
    }
    bound.iter_mut().for_each(|sum| *sum *= share);
    let is_light = |row: &[f64], w: f64| may_be_light(w) && row.iter().zip(&bound).all(|(x, bound)| w.abs() * x * x <= *bound);
    let kept: Vec<(&[f64], f64)> = rows().filter(|(row, w)| !is_light(row, **w)).map(|(row, w)| (row, *w)).collect();
    if WORTH * (weights.len() - kept.len()) < weights.len() {
        return all;
    }
    let mut values = Vec::with_capacity(kept.len() * d);
    kept.iter().for_each(|(row, _)| values.extend_from_slice(row));
    (Cow::Owned(values), Cow::Owned(kept.into_iter().map(|(_, w)| w).collect()))
}

/// The numbers of sparse rows.
struct Sparse<'a> {
    starts: &'a [usize],
    index: &'a [u32],
    value: &'a [f64],
}

impl Sparse<'_> {
    /// Ends of panels with about equal work, as many as threads can use.
    fn balanced(&self, d: usize, range: Range<usize>) -> Vec<usize> {
        // The products of each column's entries below the diagonal.
        let mut work = vec![0usize; d];
        for j in range {
            let row = &self.index[self.starts[j]..self.starts[j + 1]];
            row.iter().enumerate().for_each(|(k, i)| work[*i as usize] += row.len() - k);
        }
        let total: usize = work.iter().sum();
        let tasks = (total / MAX_ALONE).clamp(1, parallel::threads());
        let (mut ends, mut sum) = (Vec::with_capacity(tasks), 0);
        for (i, work) in work.iter().enumerate() {
            sum += work;
            if ends.len() + 1 < tasks && sum * tasks >= total * (ends.len() + 1) {
                ends.push(i + 1);
            }
        }
        if ends.last() != Some(&d) {
            ends.push(d);
        }
        ends
    }

    fn panel(&self, range: Range<usize>, weights: &[f64], first: usize, panel: MatMut<'_, f64>) {
        let columns = first as u32..(first + panel.ncols()) as u32;
        let mut entries: Vec<&mut [f64]> =
            panel.col_iter_mut().map(|column| column.try_as_col_major_mut().expect("columns in one piece").as_slice_mut()).collect();
        for (j, w) in range.zip(weights) {
            let at = self.starts[j]..self.starts[j + 1];
            let (index, value) = (&self.index[at.clone()], &self.value[at]);
            let from = if first == 0 { 0 } else { index.partition_point(|i| *i < columns.start) };
            for k in from..index.len() {
                if index[k] >= columns.end {
                    break;
                }
                let column = &mut *entries[index[k] as usize - first];
                let scaled = w * value[k];
                for (i, x) in index[k..].iter().zip(&value[k..]) {
                    column[*i as usize] += scaled * x;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    #[test]
    fn grams_are_their_definition_for_every_number_of_threads() {
        for (n, d, share) in [(1, 1, 1.0), (7, 3, 0.5), (300, 70, 0.3), (900, 131, 0.2), (3000, 150, 0.1)] {
            let mut s = stream(2, Purpose::Fresh, n as u64, d);
            let values: Vec<f64> = (0..n * d).map(|_| if s.uniform() < share { s.normal() } else { 0.0 }).collect();
            let weights: Vec<f64> = (1..n).map(|_| s.uniform()).collect();
            let dense = Rows::Dense { d, values: values.clone() };
            let sparse = dense.to_sparse();
            // Without the first row.
            let range = 1..n;
            let direct =
                |i: usize, k: usize| -> f64 { range.clone().zip(&weights).map(|(j, w)| w * values[j * d + i] * values[j * d + k]).sum() };
            let of = |rows: &Rows, threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut out = Mat::full(d, d, f64::NAN);
                pool.install(|| gram(rows, range.clone(), &weights, &mut out));
                out
            };
            let expected = Mat::from_fn(d, d, direct);
            for rows in [&dense, &sparse] {
                let got = of(rows, 1);
                assert!((&got - &expected).norm_max() <= 1e-13 * (n as f64), "{n} x {d}");
                assert_eq!(got, of(rows, 3), "{n} x {d}");
                assert_eq!(got, got.transpose().to_owned());
                // In two parts.
                let (mut sum, middle) = (Mat::full(d, d, f64::NAN), range.len() / 2);
                let parts = [(1..1 + middle, Cow::Borrowed(&weights[..middle])), (1 + middle..n, Cow::Borrowed(&weights[middle..]))];
                of_parts(rows, parts, &mut sum);
                assert!((&sum - &expected).norm_max() <= 1e-13 * (n as f64), "{n} x {d}");
            }
            let (got, mut lower) = (of(&dense, 1), vec![f64::NAN; entries(d)]);
            triangle(&values[d..], d, &weights, &mut lower);
            assert!((0..d).all(|i| (0..=i).all(|k| lower[entries(i) + k] == got[(i, k)])), "{n} x {d}");
        }
    }

    /// Weights over many magnitudes, as in a logistic loss that separates most rows. Entries are as exact as sums over all rows, also for a
    /// column of tiny numbers, and for one that occurs in light rows only.
    #[test]
    fn rows_that_change_no_entry_are_left_out() {
        let (n, d) = (600, 40);
        let mut s = stream(3, Purpose::Fresh, 0, 0);
        let scales = |k: usize| if k == 3 { 1e-90 } else { 1.0 };
        let mut values: Vec<f64> = (0..n * d).map(|at| s.normal() * scales(at % d)).collect();
        let weights: Vec<f64> = (0..n).map(|j| 10f64.powf(-40.0 * j as f64 / n as f64)).collect();
        let lightest_of = |values: &[f64]| heavy(values, d, &weights).1.iter().fold(1.0f64, |least, w| least.min(*w));
        assert!((1e-22..1e-18).contains(&lightest_of(&values)), "{:e}", lightest_of(&values));
        assert!(matches!(heavy(&values, d, &vec![1.0; n]).0, Cow::Borrowed(_)), "nothing is left out where all rows count");
        for column in [None, Some(7)] {
            if let Some(column) = column {
                (0..300).for_each(|j| values[j * d + column] = 0.0);
                assert!((1e-42..1e-35).contains(&lightest_of(&values)), "no row can be left out for the column of light rows");
            }
            let rows = Rows::Dense { d, values: values.clone() };
            let mut got = Mat::zeros(d, d);
            gram(&rows, 0..n, &weights, &mut got);
            // From the lightest row on, to lose no digits.
            let direct = |i: usize, k: usize| -> f64 { (0..n).rev().map(|j| weights[j] * values[j * d + i] * values[j * d + k]).sum() };
            for (i, k) in (0..d).flat_map(|i| (0..d).map(move |k| (i, k))) {
                let scale = direct(i, i).sqrt() * direct(k, k).sqrt();
                // The sums themselves have some 240 rounding errors, until weights are below the last place.
                assert!((got[(i, k)] - direct(i, k)).abs() <= 4.0 * 240f64.sqrt() * f64::EPSILON * scale, "{i}, {k}");
            }
        }
        // Numbers that are not finite show in the result.
        values[(n - 1) * d] = f64::NAN;
        let mut got = Mat::zeros(d, d);
        gram(&Rows::Dense { d, values }, 0..n, &weights, &mut got);
        assert!(got[(0, 0)].is_nan());
    }
}
