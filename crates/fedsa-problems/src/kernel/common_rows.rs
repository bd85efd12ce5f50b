//! Weighted Gram matrices `sum_j w_j x_j x_j^T` of binary rows: an entry is the weight sum of the rows that have both columns.
//!
//! The rows of each entry are listed once. A sum then reads weights and adds them in registers. Adding each row to all of its entries takes
//! three times as long, because it reads and writes memory. Entries with lists of similar length are summed side by side ([`Lists`]). Each
//! sum is in the order of the rows, on every instruction set.

use crate::kernel::lists::{ListNumbers, Lists};
use fedsa::kernel::{Chunk, Isa};

/// The most rows: 16 bits number them and one more row, of weight 0.
pub const MAX_ROWS: usize = (1 << 16) - 1;

/// The rows that two columns have in common, for the entries of a triangle.
#[derive(Debug)]
pub struct CommonRows {
    lists: Lists,
    /// The position of the sum of each wanted entry.
    positions: Vec<u32>,
}

impl CommonRows {
    /// The lists of rows. `columns` holds each row's columns, increasing numbers below n; `ends` says where each row ends. `wanted` has the
    /// indices of entries of the lower triangle, row by row; for entries without rows it has `none`, the number after its last index.
    ///
    /// # Panics
    /// When there are more than [`MAX_ROWS`] rows, or columns without an entry.
    pub fn of(columns: &[u32], ends: &[usize], none: usize, wanted: &[u32]) -> Self {
        let rows = ends.len();
        assert!(rows <= MAX_ROWS);
        let row = |j: usize| &columns[if j == 0 { 0 } else { ends[j - 1] }..ends[j]];
        let mut counts = vec![0u32; none + 1];
        for j in 0..rows {
            each_entry(row(j), |entry| counts[entry] += 1);
        }
        let (lists, position_of_entry) = Lists::of(&counts, rows as u16, |put| {
            (0..rows).for_each(|j| each_entry(row(j), |entry| put(entry, j as u16)));
        });
        Self { lists, positions: wanted.iter().map(|entry| position_of_entry[*entry as usize]).collect() }
    }

    /// `sum_j w_j x_j x_j^T` at the wanted entries; the weight of the row after the last one is 0.
    pub fn sum(&self, isa: Isa, weights: &ListNumbers, sums: &mut Vec<Chunk>, out: &mut [f64]) {
        let sums = self.lists.sum(isa, weights, sums);
        out.iter_mut().zip(&self.positions).for_each(|(out, at)| *out = sums[*at as usize]);
    }
}

/// Calls `see` with the entry of each pair of columns of a row.
#[inline(always)]
fn each_entry(columns: &[u32], mut see: impl FnMut(usize)) {
    for (k, i) in columns.iter().enumerate() {
        let first = *i as usize * (*i as usize + 1) / 2;
        columns[..=k].iter().for_each(|other| see(first + *other as usize));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};
    use fedsa::triangle::entries;

    #[test]
    fn entries_are_sums_over_the_rows_with_both_columns() {
        for (n, d) in [(1, 1), (5, 4), (60, 9), (300, 23)] {
            let mut s = stream(9, Purpose::Fresh, n as u64, d);
            let (mut columns, mut ends) = (Vec::new(), Vec::new());
            for _ in 0..n {
                columns.extend((0..d as u32).filter(|i| s.uniform() < 1.0 / (2.0 + f64::from(*i) / 4.0)));
                ends.push(columns.len());
            }
            // Backwards, and one that no row has.
            let size = entries(d);
            let wanted: Vec<u32> = (0..=size as u32).rev().collect();
            let common = CommonRows::of(&columns, &ends, size, &wanted);
            let mut weights = vec![f64::NAN; 1 << 16];
            (0..n).for_each(|j| weights[j] = s.uniform());
            weights[n] = 0.0;
            let mut expected = vec![0.0; size];
            for j in 0..n {
                let row = &columns[if j == 0 { 0 } else { ends[j - 1] }..ends[j]];
                let pairs = row.iter().flat_map(|i| row.iter().filter(move |k| *k <= i).map(move |k| (*i as usize, *k as usize)));
                pairs.for_each(|(i, k)| expected[entries(i) + k] += weights[j]);
            }
            expected.push(0.0);
            expected.reverse();
            let mut sums = Vec::new();
            for isa in Isa::available() {
                let mut out = vec![f64::NAN; size + 1];
                common.sum(isa, weights[..].try_into().unwrap(), &mut sums, &mut out);
                assert_eq!(out, expected, "{n} x {d}, {isa:?}");
            }
        }
    }
}
