//! Passes over sparse rows whose stored numbers are all 1, or all -1: binary features, times labels.
//!
//! Passes read only the positions of numbers. The order of operations and the bits are the same as in [`super::margins`]. A row of -1 has
//! the partial sums of the same row of 1 with the other sign.

use std::ops::Range;

use super::rows::Rows;
use crate::kernel::lists::{ListNumbers, Lists, with_room};
use fedsa::kernel::vector::{self, Vector};
use fedsa::kernel::{Chunk, Isa};

/// Rows of a block: their partial sums stay in the L1 cache.
pub const BLOCK: usize = 512;
/// Partial sums of a row.
const CLASSES: usize = 8;
/// The most columns: 16 bits number them, the rows of a block, and one index after each.
pub const MAX_COLUMNS: usize = (1 << 16) - BLOCK - 2;

/// The positions of the numbers, in blocks of rows.
#[derive(Debug)]
pub struct UnitRows {
    /// The first row of each block, then the number of rows.
    first: Vec<usize>,
    blocks: Vec<Block>,
}

/// Consecutive rows.
#[derive(Debug)]
struct Block {
    /// 1 or -1 for each row; 1 for padding rows.
    sign: Vec<Chunk>,
    /// The columns of each partial sum.
    columns: Lists,
    /// The positions of the partial sums of eight rows: eight positions for each remainder modulo 8.
    partial_positions: Vec<[[u16; 8]; CLASSES]>,
    /// The rows of each column.
    rows: Lists,
    /// The position of each column's sum.
    column_positions: Vec<u32>,
}

impl Block {
    fn of(d: usize, starts: &[usize], index: &[u32], value: &[f64]) -> Option<Self> {
        let row = |j: usize| starts[j]..starts[j + 1];
        let rows = starts.len() - 1;
        let sign = |j: usize| value[row(j)].first().copied().unwrap_or(1.0);
        let is_unit = |j: usize| sign(j).abs() == 1.0 && value[row(j)].iter().all(|x| *x == sign(j));
        if !(0..rows).all(is_unit) {
            return None;
        }
        let entries = || (0..rows).flat_map(|j| index[row(j)].iter().map(move |i| (j, *i as usize)));
        let eights = rows.div_ceil(8);
        // The partial sums of a row are eight indices apart.
        let of_class = |(j, i): (usize, usize)| (8 * (CLASSES * (j / 8) + i % CLASSES) + j % 8, i);
        let (columns, partial) = lists(8 * CLASSES * eights, d, entries().map(of_class));
        // A block has at most as many positions as partial sums, and one more.
        const { assert!(CLASSES * BLOCK < 1 << 16) };
        let partial: Vec<u16> = partial.into_iter().map(|at| at as u16).collect();
        let (rows_of_columns, column_positions) = lists(d, d + 1 + BLOCK, entries().map(|(j, i)| (i, d + 1 + j)));
        Some(Self {
            sign: (0..eights).map(|k| Chunk(std::array::from_fn(|l| if 8 * k + l < rows { sign(8 * k + l) } else { 1.0 }))).collect(),
            columns,
            partial_positions: partial.as_chunks().0.as_chunks().0.to_vec(),
            rows: rows_of_columns,
            column_positions,
        })
    }

    /// `x_j . theta` of the rows; `numbers` contains theta.
    fn products(&self, isa: Isa, numbers: &ListNumbers, sums: &mut Vec<Chunk>, out: &mut [f64]) {
        let mut found = [Chunk::default(); BLOCK / 8];
        let sums = self.columns.sum(isa, numbers, sums);
        // SAFETY: the positions came with these lists.
        unsafe { join(isa, sums, &self.partial_positions, &self.sign, &mut found) };
        out.copy_from_slice(&fedsa::kernel::flat(&found)[..out.len()]);
    }

    /// `out += sum_j weights_j x_j` over the rows.
    fn add(&self, isa: Isa, weights: &[f64], numbers: &mut ListNumbers, sums: &mut Vec<Chunk>, out: &mut [f64]) {
        let signed = &mut numbers[out.len() + 1..];
        signed.iter_mut().zip(weights.iter().zip(fedsa::kernel::flat(&self.sign))).for_each(|(signed, (w, sign))| *signed = w * sign);
        self.rows.add(isa, numbers, &self.column_positions, sums, out);
    }
}

/// The lists of some sums, from pairs of a sum and an index, and the positions of the sums.
fn lists(sums: usize, nothing: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> (Lists, Vec<u32>) {
    let mut lengths = vec![0; sums];
    pairs.clone().for_each(|(sum, _)| lengths[sum] += 1);
    Lists::of(&lengths, nothing as u16, |put| pairs.for_each(|(sum, place)| put(sum, place as u16)))
}

/// Calls `see` with memory for vectors of d components. The numbers to sum are the columns and 0, then the rows of a block and -0, which
/// leaves any sum unchanged.
fn with_places<R>(d: usize, see: impl FnOnce(&mut ListNumbers, &mut Vec<Chunk>) -> R) -> R {
    with_room(|numbers, sums| {
        (numbers[d], numbers[d + 1 + BLOCK]) = (0.0, -0.0);
        see(numbers, sums)
    })
}

impl UnitRows {
    /// Sparse rows in blocks, with a new block at each of `first`, which ends with the number of rows. `None` if other numbers occur, or
    /// there are more than [`MAX_COLUMNS`] columns.
    pub fn of(rows: &Rows, first: &[usize]) -> Option<Self> {
        let Rows::Sparse { d: d @ ..=MAX_COLUMNS, starts, index, value } = rows else { return None };
        let bounds = first.windows(2).flat_map(|at| (at[0]..at[1]).step_by(BLOCK).map(|from| from..at[1].min(from + BLOCK)));
        let blocks = bounds.clone().map(|at| Block::of(*d, &starts[at.start..=at.end], index, value)).collect::<Option<_>>()?;
        Some(Self { first: bounds.map(|at| at.start).chain(first.last().copied()).collect(), blocks })
    }

    /// The blocks that form a range of rows, with their rows; `None` if the range cuts a block.
    fn blocks(&self, range: &Range<usize>) -> Option<impl Iterator<Item = (Range<usize>, &Block)>> {
        let (from, to) = (self.first.binary_search(&range.start).ok()?, self.first.binary_search(&range.end).ok()?);
        Some((from..to).map(move |k| (self.first[k]..self.first[k + 1], &self.blocks[k])))
    }

    /// `out += sum_j weight_j x_j` as [`super::margins::pass`]. Returns false, without any change, if the range cuts a block.
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
        with_places(theta.len(), |numbers, sums| {
            numbers[..theta.len()].copy_from_slice(theta);
            for (rows, block) in blocks {
                let weights = &mut weights[..rows.len()];
                block.products(isa, numbers, sums, weights);
                weigh(rows, weights);
                block.add(isa, weights, numbers, sums, out);
            }
        });
        true
    }

    /// `out_j = x_j . theta` for the rows of a range. Returns false, without any change, if the range cuts a block.
    pub fn margins(&self, isa: Isa, range: Range<usize>, theta: &[f64], out: &mut [f64]) -> bool {
        let Some(blocks) = self.blocks(&range) else { return false };
        with_places(theta.len(), |numbers, sums| {
            numbers[..theta.len()].copy_from_slice(theta);
            blocks.for_each(|(rows, block)| block.products(isa, numbers, sums, &mut out[rows.start - range.start..rows.end - range.start]));
        });
        true
    }

    /// `out += sum_j weights_j x_j` over the rows of a range. Returns false, without any change, if the range cuts a block.
    pub fn combine(&self, isa: Isa, range: Range<usize>, out: &mut [f64], weights: &[f64]) -> bool {
        let Some(blocks) = self.blocks(&range) else { return false };
        with_places(out.len(), |numbers, sums| {
            blocks.for_each(|(rows, block)| block.add(isa, &weights[rows.start - range.start..rows.end - range.start], numbers, sums, out));
        });
        true
    }
}

/// Adds the partial sums of each row.
///
/// # Safety
/// There are sums at all positions.
///
/// # Panics
/// When the instruction set is not available.
unsafe fn join(isa: Isa, sums: &[f64], partial: &[[[u16; 8]; CLASSES]], sign: &[Chunk], out: &mut [Chunk]) {
    assert!(isa.is_available());
    // SAFETY: the instruction set is available; the caller guarantees the rest.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => join_avx512(sums, partial, sign, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => join_avx2(sums, partial, sign, out),
            _ => join_eights::<vector::Portable>(sums, partial, sign, out),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn join_avx512(sums: &[f64], partial: &[[[u16; 8]; CLASSES]], sign: &[Chunk], out: &mut [Chunk]) {
    // SAFETY: as in `join`.
    unsafe { join_eights::<vector::Avx512>(sums, partial, sign, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn join_avx2(sums: &[f64], partial: &[[[u16; 8]; CLASSES]], sign: &[Chunk], out: &mut [Chunk]) {
    // SAFETY: as in `join`.
    unsafe { join_eights::<vector::Avx2>(sums, partial, sign, out) }
}

/// # Safety
/// The instruction set of V is available, and there are sums at all positions.
#[inline(always)]
unsafe fn join_eights<V: Vector>(sums: &[f64], partial: &[[[u16; 8]; CLASSES]], sign: &[Chunk], out: &mut [Chunk]) {
    for (out, (of, sign)) in out.iter_mut().zip(partial.iter().zip(sign)) {
        // SAFETY: as the caller says.
        unsafe {
            let [a, b, c, d, e, f, g, h] = std::array::from_fn(|class| V::gather(sums.as_ptr(), &of[class]));
            let all = a.add(b).add(c.add(d)).add(e.add(f).add(g.add(h)));
            // Turns -0 into 0, as sums of 1 have it.
            V::load(sign).mul(all).add(V::splat(0.0)).store(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::margins;
    use fedsa::random::{Purpose, stream};

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
