//! Passes over sparse rows of which every number is 1, or every number -1: binary features, times labels.
//!
//! Only the places of the numbers are read. The order of operations is that of [`super::margins`], and so are the bits: a row of -1 has the
//! partial sums of the same row of 1 with the other sign.

use std::ops::Range;

use super::{Isa, tree};
use crate::problem::dataset::Rows;

/// Rows of a block: their partial sums stay in the nearest memory.
pub const BLOCK: usize = 512;
/// The bits of an entry that number its row in the block; the others are its column.
const ROW_BITS: u32 = BLOCK.trailing_zeros();
/// Partial sums of a row.
const CLASSES: usize = 8;

/// The places of the numbers, in blocks of rows.
#[derive(Debug)]
pub struct UnitRows {
    /// Where each block starts, and where the last one ends.
    first: Vec<usize>,
    blocks: Vec<Block>,
}

/// Consecutive rows.
#[derive(Debug)]
struct Block {
    /// 1 or -1 for each row.
    sign: Vec<f64>,
    /// Row and column of each number: those of the columns of each remainder modulo 8 in turn, and of these the rows in their order. A
    /// loop over them has no ends of rows, which processors could not foresee.
    entries: Vec<u32>,
    /// Where the entries of each remainder end.
    ends: [usize; CLASSES],
}

impl Block {
    fn of(starts: &[usize], index: &[u32], value: &[f64]) -> Option<Self> {
        let row = |j: usize| starts[j]..starts[j + 1];
        let rows = starts.len() - 1;
        let sign: Vec<f64> = (0..rows).map(|j| value[row(j)].first().copied().unwrap_or(1.0)).collect();
        let is_unit = |j: usize| sign[j].abs() == 1.0 && value[row(j)].iter().all(|x| *x == sign[j]);
        let fits = index[starts[0]..starts[rows]].iter().all(|i| *i < 1 << (u32::BITS - ROW_BITS));
        if !fits || !(0..rows).all(is_unit) {
            return None;
        }
        let (mut entries, mut ends) = (Vec::with_capacity(starts[rows] - starts[0]), [0; CLASSES]);
        for (class, end) in ends.iter_mut().enumerate() {
            for j in 0..rows {
                let own = index[row(j)].iter().filter(|i| **i as usize % CLASSES == class);
                entries.extend(own.map(|i| i << ROW_BITS | j as u32));
            }
            *end = entries.len();
        }
        Some(Self { sign, entries, ends })
    }

    fn products(&self, isa: Isa, theta: &[f64], out: &mut [f64]) {
        products(isa, &self.entries, &self.ends, &self.sign, theta, out);
    }

    fn add(&self, isa: Isa, weights: &[f64], out: &mut [f64]) {
        add(isa, &self.entries, &self.sign, weights, out);
    }
}

impl UnitRows {
    /// Sparse rows in blocks that start anew at each of `first`, which ends with the number of rows; `None` where other numbers occur.
    pub fn of(rows: &Rows, first: &[usize]) -> Option<Self> {
        let Rows::Sparse { starts, index, value, .. } = rows else { return None };
        let bounds = first.windows(2).flat_map(|at| (at[0]..at[1]).step_by(BLOCK).map(|from| from..at[1].min(from + BLOCK)));
        let blocks = bounds.clone().map(|at| Block::of(&starts[at.start..=at.end], index, value)).collect::<Option<_>>()?;
        Some(Self { first: bounds.map(|at| at.start).chain(first.last().copied()).collect(), blocks })
    }

    /// The blocks that together are a range of rows, with their rows; `None` where a block is cut.
    fn blocks(&self, range: &Range<usize>) -> Option<impl Iterator<Item = (Range<usize>, &Block)>> {
        let (from, to) = (self.first.binary_search(&range.start).ok()?, self.first.binary_search(&range.end).ok()?);
        Some((from..to).map(move |k| (self.first[k]..self.first[k + 1], &self.blocks[k])))
    }

    /// `out += sum_j weight_j x_j` as [`super::margins::pass`]; false, and then nothing is done, where the range cuts a block.
    pub fn pass(
        &self,
        isa: Isa,
        range: Range<usize>,
        theta: &[f64],
        out: &mut [f64],
        mut weigh: impl FnMut(Range<usize>, &mut [f64]),
    ) -> bool {
        let Some(blocks) = self.blocks(&range) else { return false };
        let mut weights = [0.0; BLOCK];
        for (rows, block) in blocks {
            let weights = &mut weights[..rows.len()];
            block.products(isa, theta, weights);
            weigh(rows, weights);
            block.add(isa, weights, out);
        }
        true
    }

    /// `out_j = x_j . theta` for the rows of a range; false, and then nothing is done, where it cuts a block.
    pub fn margins(&self, isa: Isa, range: Range<usize>, theta: &[f64], out: &mut [f64]) -> bool {
        let Some(blocks) = self.blocks(&range) else { return false };
        blocks.for_each(|(rows, block)| block.products(isa, theta, &mut out[rows.start - range.start..rows.end - range.start]));
        true
    }

    /// `out += sum_j weights_j x_j` over the rows of a range; false, and then nothing is done, where it cuts a block.
    pub fn combine(&self, isa: Isa, range: Range<usize>, out: &mut [f64], weights: &[f64]) -> bool {
        let Some(blocks) = self.blocks(&range) else { return false };
        blocks.for_each(|(rows, block)| block.add(isa, &weights[rows.start - range.start..rows.end - range.start], out));
        true
    }
}

per_isa! {
    /// `x_j . theta` of the rows of a block.
    fn products(entries: &[u32], ends: &[usize; 8], sign: &[f64], theta: &[f64], out: &mut [f64]) {
        let mut sums = [[0.0; BLOCK]; CLASSES];
        let mut from = 0;
        for (sums, end) in sums.iter_mut().zip(ends) {
            for entry in &entries[from..*end] {
                sums[*entry as usize % BLOCK] += theta[(*entry >> ROW_BITS) as usize];
            }
            from = *end;
        }
        for (j, (out, sign)) in out.iter_mut().zip(sign).enumerate() {
            // Never -0, which the sums of -1 are where those of 1 are 0.
            *out = sign * tree(std::array::from_fn(|class| sums[class][j])) + 0.0;
        }
    }
}

per_isa! {
    /// `out += sum_j weights_j x_j` over the rows of a block.
    fn add(entries: &[u32], sign: &[f64], weights: &[f64], out: &mut [f64]) {
        let mut signed = [0.0; BLOCK];
        signed.iter_mut().zip(weights.iter().zip(sign)).for_each(|(signed, (w, sign))| *signed = w * sign);
        for entry in entries {
            out[(*entry >> ROW_BITS) as usize] += signed[*entry as usize % BLOCK];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::margins;
    use crate::random::{Purpose, stream};

    /// n x d binary rows times labels, some of them empty.
    fn binary(n: usize, d: usize) -> Rows {
        let mut s = stream(3, Purpose::Fresh, n as u64, d);
        let (mut starts, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
        for j in 0..n {
            let label = if s.uniform() < 0.3 { 1.0 } else { -1.0 };
            let share = if j % 7 == 3 { 0.0 } else { 0.3 };
            index.extend((0..d as u32).filter(|_| s.uniform() < share));
            value.resize(index.len(), label);
            starts.push(index.len());
        }
        Rows::Sparse { d, starts, index, value }
    }

    fn bits(x: &[f64]) -> Vec<u64> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn binary_rows_have_the_bits_of_others() {
        for (n, d) in [(1, 1), (40, 9), (700, 31), (1300, 40)] {
            let rows = binary(n, d);
            // Two agents.
            let first = [0, n / 4, n];
            let units = UnitRows::of(&rows, &first).unwrap();
            let mut s = stream(4, Purpose::Fresh, 0, d);
            for theta in [vec![0.0; d], (0..d).map(|_| s.normal()).collect::<Vec<f64>>()] {
                for range in [0..n, 0..n / 4, n / 4..n, n / 4..n.min(n / 4 + BLOCK)] {
                    for isa in Isa::available() {
                        let (mut one, mut other) = (vec![f64::NAN; range.len()], vec![f64::NAN; range.len()]);
                        margins::margins(isa, &rows, range.clone(), &theta, &mut one);
                        assert!(units.margins(isa, range.clone(), &theta, &mut other));
                        assert_eq!(bits(&one), bits(&other), "{n} x {d}, {range:?}, {isa:?}");
                        let weights: Vec<f64> = one.iter().enumerate().map(|(j, t)| t + (j as f64).sin()).collect();
                        let (mut one, mut other, mut passed) = (vec![0.5; d], vec![0.5; d], vec![0.5; d]);
                        margins::combine(isa, &rows, range.clone(), &mut one, &weights);
                        assert!(units.combine(isa, range.clone(), &mut other, &weights));
                        let weigh = |rows: Range<usize>, t: &mut [f64]| {
                            t.iter_mut().zip(rows).for_each(|(t, j)| *t += ((j - range.start) as f64).sin());
                        };
                        assert!(units.pass(isa, range.clone(), &theta, &mut passed, weigh));
                        assert_eq!([bits(&other), bits(&passed)], [bits(&one), bits(&one)], "{n} x {d}, {range:?}, {isa:?}");
                    }
                }
            }
            assert!(!units.margins(Isa::best(), 0..n / 4 + 1, &vec![0.0; d], &mut vec![0.0; n / 4 + 1]) || n <= n / 4 + 1);
        }
    }

    #[test]
    fn rows_with_other_numbers_are_none() {
        let of = |value: [f64; 3]| {
            let rows = Rows::Sparse { d: 2, starts: vec![0, 2, 3], index: vec![0, 1, 1], value: value.to_vec() };
            UnitRows::of(&rows, &[0, 2]).is_some()
        };
        assert!(of([1.0, 1.0, -1.0]) && !of([1.0, -1.0, 1.0]) && !of([2.0, 2.0, 1.0]));
        assert!(UnitRows::of(&Rows::Dense { d: 1, values: vec![1.0] }, &[0, 1]).is_none());
    }
}
