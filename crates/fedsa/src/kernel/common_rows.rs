//! Weighted Gram matrices `sum_j w_j x_j x_j^T` of binary rows: an entry is the sum of the weights of the rows that have both columns.
//!
//! The numbers of these rows are listed for each entry once, so that a sum reads weights and adds them in registers; to add a row to all of its
//! entries reads and writes each of them, which takes three times as long. Entries with lists of about the same length are summed side by
//! side. Each is a sum in the order of the rows, on every instruction set.

use super::Isa;

/// Entries that are summed side by side.
const SIDE: usize = 8;
/// The most rows: 16 bits number them and one more, which has no weight.
pub const MOST_ROWS: usize = (1 << 16) - 1;
/// In place of an entry.
const NONE: u32 = u32::MAX;

/// A weight for each row, and 0 for the one after the last. Whatever 16 bits number is a place.
pub type ListWeights = [f64; 1 << 16];

/// The rows that two columns have in common, for the entries of a triangle.
#[derive(Debug)]
pub struct CommonRows {
    groups: Vec<ListGroup>,
    /// The lists of each group: first rows, second rows, .. of its entries.
    rows: Vec<[u16; SIDE]>,
}

/// Entries whose lists are about as long.
#[derive(Debug)]
pub struct ListGroup {
    /// Where the sums are written.
    entries: [u32; SIDE],
    /// The length of the longest list.
    len: usize,
}

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
        // Entries by the lengths of their lists, the longest first.
        let mut before = vec![0; rows + 2];
        counts.iter().for_each(|count| before[rows - *count as usize + 1] += 1);
        (0..rows).for_each(|count| before[count + 1] += before[count]);
        let mut order = vec![0u32; before[rows]];
        for (entry, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let at = &mut before[rows - *count as usize];
            order[*at] = entry as u32;
            *at += 1;
        }
        let (mut groups, mut len) = (Vec::with_capacity(order.len().div_ceil(SIDE)), 0);
        // Where the next row of each entry goes.
        let mut next = vec![0usize; place.len()];
        for group in order.chunks(SIDE) {
            let mut entries = [NONE; SIDE];
            for (k, entry) in group.iter().enumerate() {
                (entries[k], next[*entry as usize]) = (place[*entry as usize], SIDE * len + k);
            }
            groups.push(ListGroup { entries, len: counts[group[0] as usize] as usize });
            len += counts[group[0] as usize] as usize;
        }
        let mut lists = vec![[rows as u16; SIDE]; len];
        let flat = lists.as_flattened_mut();
        for j in 0..rows {
            each_entry(row(j), |entry| {
                flat[next[entry]] = j as u16;
                next[entry] += SIDE;
            });
        }
        Self { groups, rows: lists }
    }

    /// Writes `sum_j w_j x_j x_j^T` to the places of its entries.
    pub fn sum(&self, isa: Isa, weights: &ListWeights, out: &mut [f64]) {
        sum(isa, &self.groups, &self.rows, weights, out);
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

per_isa! {
    /// [`CommonRows::sum`].
    fn sum(groups: &[ListGroup], rows: &[[u16; 8]], weights: &ListWeights, out: &mut [f64]) {
        let mut rest = rows;
        for group in groups {
            let (own, after) = rest.split_at(group.len);
            rest = after;
            let mut sums = [0.0; SIDE];
            for rows in own {
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum += weights[*row as usize];
                }
            }
            for (entry, sum) in group.entries.iter().zip(sums) {
                if let Some(out) = out.get_mut(*entry as usize) {
                    *out = sum;
                }
            }
        }
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
            let place: Vec<u32> = (0..size as u32).map(|at| if at == 0 { NONE } else { size as u32 - at - 1 }).collect();
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
                common.sum(isa, weights[..].try_into().unwrap(), &mut out);
                assert!((1..size).all(|at| out[size - at - 1] == expected[at]) && out[size - 1] == 0.0, "{n} x {d}, {isa:?}");
            }
        }
    }
}
