//! Weighted Gram matrices `sum_j w_j x_j x_j^T` of binary rows: an entry is the sum of the weights of the rows that have both columns.
//!
//! The numbers of these rows are listed for each entry once, so that a sum reads weights and adds them in registers; to add a row to all of its
//! entries reads and writes each of them, which takes three times as long. Entries with lists of about the same length are summed side by
//! side ([`Lists`]). Each is a sum in the order of the rows, on every instruction set.

use super::Isa;
use super::lists::{ListNumbers, Lists};

/// The most rows: 16 bits number them and one more, which has no weight.
pub const MOST_ROWS: usize = (1 << 16) - 1;

/// The rows that two columns have in common, for the entries of a triangle.
#[derive(Debug)]
pub struct CommonRows(Lists);

impl CommonRows {
    /// The lists of rows, of which `ends` says where the `columns` of each end, increasing numbers below n. `place` says where each entry of the
    /// lower triangle is written to, row by row, if anywhere.
    ///
    /// # Panics
    /// When there are more than [`MOST_ROWS`] rows, or columns without a place.
    pub fn of(columns: &[u32], ends: &[usize], place: &[u32]) -> Self {
        let rows = ends.len();
        assert!(rows <= MOST_ROWS);
        let row = |j: usize| &columns[if j == 0 { 0 } else { ends[j - 1] }..ends[j]];
        let mut counts = vec![0u32; place.len()];
        for j in 0..rows {
            each_entry(row(j), |entry| counts[entry] += 1);
        }
        Self(Lists::of(
            &counts,
            rows as u16,
            |entry| place[entry],
            |put| {
                (0..rows).for_each(|j| each_entry(row(j), |entry| put(entry, j as u16)));
            },
        ))
    }

    /// Adds `sum_j w_j x_j x_j^T` at the places of its entries; the weight of the row after the last one is 0.
    pub fn add(&self, isa: Isa, weights: &ListNumbers, out: &mut [f64]) {
        self.0.add(isa, weights, out);
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
    use crate::random::{Purpose, stream};
    use crate::triangle::entries;

    #[test]
    fn entries_are_sums_over_the_rows_with_both_columns() {
        for (n, d) in [(1, 1), (5, 4), (60, 9), (300, 23)] {
            let mut s = stream(9, Purpose::Fresh, n as u64, d);
            let (mut columns, mut ends) = (Vec::new(), Vec::new());
            for _ in 0..n {
                columns.extend((0..d as u32).filter(|i| s.uniform() < 1.0 / (2.0 + f64::from(*i) / 4.0)));
                ends.push(columns.len());
            }
            // Backwards, and one entry nowhere.
            let size = entries(d);
            let place: Vec<u32> = (0..size as u32).map(|at| if at == 0 { u32::MAX } else { size as u32 - at - 1 }).collect();
            let common = CommonRows::of(&columns, &ends, &place);
            let mut weights = vec![f64::NAN; 1 << 16];
            (0..n).for_each(|j| weights[j] = s.uniform());
            weights[n] = 0.0;
            let mut expected = vec![0.0; size];
            for j in 0..n {
                let row = &columns[if j == 0 { 0 } else { ends[j - 1] }..ends[j]];
                let pairs = row.iter().flat_map(|i| row.iter().filter(move |k| *k <= i).map(move |k| (*i as usize, *k as usize)));
                pairs.for_each(|(i, k)| expected[entries(i) + k] += weights[j]);
            }
            for isa in Isa::available() {
                let mut out = vec![0.0; size];
                common.add(isa, weights[..].try_into().unwrap(), &mut out);
                assert!((1..size).all(|at| out[size - at - 1] == expected[at]) && out[size - 1] == 0.0, "{n} x {d}, {isa:?}");
            }
        }
    }
}
