//! Hessians of sparse rows: the entries to which an agent's rows contribute, and their sums.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use faer::Mat;

use crate::kernel::common_rows::{CommonRows, MAX_ROWS};
use crate::kernel::lists::with_room;
use crate::rows::dataset::Rows;
use fedsa::kernel::Isa;
use fedsa::triangle::{Support, entries};

/// The possibly non-zero entries of `sum_j w_j x_j x_j^T` over an agent's sparse rows.
///
/// Sums are computed in a triangle over the rows' columns, which fits into a nearer cache than the whole one.
#[derive(Debug)]
pub(super) struct Pattern {
    /// The positions in the whole triangle, including the diagonal.
    pub support: Arc<Support>,
    /// The index of each column among the rows' columns.
    number: Vec<u32>,
    /// The position of each support entry in the small triangle; the position after its last one for entries without rows.
    cell: Vec<u32>,
    /// The number of entries of the small triangle.
    size: usize,
    /// The rows of each entry, if rows are binary and lists are wanted.
    common: OnceLock<CommonRows>,
}

/// The most list entries of all agents, two bytes each: few enough for estimates of memory to ignore them.
const MAX_LISTED: usize = 1 << 25;

/// Scratch memory of a thread for sums.
struct Scratch {
    /// The small triangle and one more number; 0 between sums.
    sums: Vec<f64>,
    /// The column indices of all rows.
    columns: Vec<u32>,
    /// The values of a row times its weight.
    scaled: Vec<f64>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { sums: Vec::new(), columns: Vec::new(), scaled: Vec::new() }) };
}

impl Pattern {
    /// The pattern of the rows of a range.
    ///
    /// # Panics
    /// When rows are dense, or have more than 2^16 columns.
    pub fn of(rows: &Rows, range: Range<usize>) -> Self {
        let Rows::Sparse { d, starts, index, .. } = rows else { panic!("dense rows have Hessians without a pattern") };
        let rows = || range.clone().map(|j| &index[starts[j]..starts[j + 1]]);
        let mut has = vec![false; *d];
        rows().flatten().for_each(|i| has[*i as usize] = true);
        let mut columns = 0;
        let number: Vec<u32> = has
            .iter()
            .map(|has| {
                columns += u32::from(*has);
                columns.saturating_sub(1)
            })
            .collect();
        let size = entries(columns as usize);
        let mut touched = vec![false; size];
        for row in rows() {
            for (k, i) in row.iter().enumerate() {
                let first = entries(number[*i as usize] as usize);
                row[..=k].iter().for_each(|j| touched[first + number[*j as usize] as usize] = true);
            }
        }
        let own: Vec<u32> = (0..*d as u32).filter(|i| has[*i as usize]).collect();
        let (mut place, mut cell) = (Vec::new(), Vec::new());
        for i in 0..*d {
            let first = entries(i) as u32;
            if !has[i] {
                place.push(first + i as u32);
                cell.push(size as u32);
                continue;
            }
            let start = entries(number[i] as usize);
            // Every row with this column touches the row's own entry on the diagonal.
            let here = own.iter().zip(&touched[start..=start + number[i] as usize]).enumerate().filter(|(_, (_, touched))| **touched);
            for (k, (j, _)) in here {
                place.push(first + j);
                cell.push((start + k) as u32);
            }
        }
        let support = Arc::new(Support::of(*d, place).expect("places of rows in their order"));
        Self { support, number, cell, size, common: OnceLock::new() }
    }

    /// `out = sum_j w_j x_j x_j^T` over the rows of the range, on the support; `weights` has a number for each. The order of operations is
    /// the same as in [`super::gram`].
    pub fn sum(&self, rows: &Rows, range: Range<usize>, weights: &[f64], out: &mut [f64]) {
        let Rows::Sparse { starts, index, value, .. } = rows else { panic!("dense rows have Hessians without a pattern") };
        SCRATCH.with_borrow_mut(|Scratch { sums, columns, scaled, .. }| {
            sums.resize(sums.len().max(self.size + 1), 0.0);
            let (sums, number) = (&mut sums[..=self.size], &self.number[..]);
            columns.clear();
            columns.extend(index[starts[range.start]..starts[range.end]].iter().map(|i| number[*i as usize]));
            let mut columns_left = &columns[..];
            for (j, w) in range.zip(weights) {
                let value = &value[starts[j]..starts[j + 1]];
                let (columns, left) = columns_left.split_at(value.len());
                columns_left = left;
                scaled.clear();
                scaled.extend(value.iter().map(|x| w * x));
                // Four rows of the triangle at a time, so that columns are read once for all four.
                let (mut rest, mut gone, mut k) = (&mut sums[..], 0, 0);
                while let (Some(four), Some(x)) = (columns[k..].first_chunk::<4>(), value[k..].first_chunk::<4>()) {
                    let [a, b, c, d] = four.map(|i| i as usize);
                    let after = &mut rest[entries(a) - gone..];
                    let (row_a, after) = after.split_at_mut(entries(b) - entries(a));
                    let (row_b, after) = after.split_at_mut(entries(c) - entries(b));
                    let (row_c, after) = after.split_at_mut(entries(d) - entries(c));
                    let (row_d, after) = after.split_at_mut(d + 1);
                    let (to_a, to_b, to_c, to_d) = (&mut row_a[..=a], &mut row_b[..=a], &mut row_c[..=a], &mut row_d[..=a]);
                    for (j, scaled) in columns[..=k].iter().zip(&scaled[..=k]) {
                        let j = *j as usize;
                        to_a[j] += scaled * x[0];
                        to_b[j] += scaled * x[1];
                        to_c[j] += scaled * x[2];
                        to_d[j] += scaled * x[3];
                    }
                    row_b[b] += scaled[k + 1] * x[1];
                    row_c[b] += scaled[k + 1] * x[2];
                    row_d[b] += scaled[k + 1] * x[3];
                    row_c[c] += scaled[k + 2] * x[2];
                    row_d[c] += scaled[k + 2] * x[3];
                    row_d[d] += scaled[k + 3] * x[3];
                    (rest, gone, k) = (after, entries(d + 1), k + 4);
                }
                for (k, (i, x)) in columns.iter().zip(value).enumerate().skip(k) {
                    let row = &mut rest[entries(*i as usize) - gone..][..=*i as usize];
                    columns[..=k].iter().zip(&scaled[..=k]).for_each(|(j, scaled)| row[*j as usize] += scaled * x);
                }
            }
            for (out, cell) in out.iter_mut().zip(&self.cell) {
                *out = std::mem::take(&mut sums[*cell as usize]);
            }
        });
    }

    /// Whether lists of common rows of two columns are short enough, for this number of agents with rows like these.
    pub fn can_list(rows: &Rows, range: Range<usize>, agents: usize) -> bool {
        let Rows::Sparse { starts, .. } = rows else { return false };
        let pairs = range.clone().map(|j| entries(starts[j + 1] - starts[j])).sum::<usize>();
        range.len() <= MAX_ROWS && pairs <= MAX_LISTED / agents
    }

    /// [`Pattern::sum`] of binary rows, with the same bits, from lists made in the first call.
    pub fn sum_of_units(&self, isa: Isa, rows: &Rows, range: Range<usize>, weights: &[f64], out: &mut [f64]) {
        let common = self.common.get_or_init(|| self.lists(rows, range));
        with_room(|all, sums| {
            all[..weights.len()].copy_from_slice(weights);
            all[weights.len()] = 0.0;
            common.sum(isa, all, sums, out);
        });
    }

    fn lists(&self, rows: &Rows, range: Range<usize>) -> CommonRows {
        let Rows::Sparse { starts, index, .. } = rows else { panic!("dense rows have Hessians without a pattern") };
        let first = starts[range.start];
        let columns: Vec<u32> = index[first..starts[range.end]].iter().map(|i| self.number[*i as usize]).collect();
        let ends: Vec<usize> = range.map(|j| starts[j + 1] - first).collect();
        CommonRows::of(&columns, &ends, self.size, &self.cell)
    }

    /// Writes a sum on the support into a symmetric matrix.
    pub fn spread(&self, sum: &[f64], out: &mut Mat<f64>) {
        out.fill(0.0);
        self.support.each(|at, _, i, j| (out[(i, j)], out[(j, i)]) = (sum[at], sum[at]));
    }
}
