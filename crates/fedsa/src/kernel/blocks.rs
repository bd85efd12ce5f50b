//! Products of one symmetric matrix with many vectors. Its lower triangle is first packed into blocks, which takes the time of a few
//! products and makes products twice as fast as in [`super::triangle`].
//!
//! Blocks of 8 x 8 numbers are stored row by row of blocks, each block by its rows, a chunk each; diagonal blocks are whole. For each row
//! of blocks K = 0, 1, ..., with rows a_r, r = 0, ..., 7, of the blocks J = 0, ..., K - 1 before the diagonal,
//!
//! ```text
//! out_J = a_r v_r + out_J      in the order of r, with the components v_r of v_K,
//! s_r = a_r * v_J + s_r        (component by component, from s_r = 0),
//! out_K = (tree(s_0), .., tree(s_7)), and then out_K = a_j v_j + out_K for the columns of the block on the diagonal,
//! ```
//!
//! where each line rounds once (`mul_add`), on every instruction set, and [`super::tree`] is the sum of eight partial sums.

use super::vector::{self, Vector};
use super::{Chunk, Isa, chunks};

/// Rows and columns of a block.
const SIDE: usize = 8;

/// A symmetric matrix in blocks.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Blocks in a row or a column of the whole matrix.
    width: usize,
    data: Vec<Chunk>,
    /// Reused memory for [`Blocks::pack_within`].
    within: Vec<f64>,
}

/// The number of chunks before a row of blocks.
const fn before(row: usize) -> usize {
    SIDE * (row * (row + 1) / 2)
}

impl Blocks {
    /// No matrix yet.
    pub const fn empty() -> Self {
        Self { width: 0, data: Vec::new(), within: Vec::new() }
    }

    /// Packs a matrix with d rows, replacing the last one. `lower` has `d (d + 1) / 2` numbers, row by row.
    ///
    /// # Panics
    /// When lengths do not fit.
    pub fn pack(&mut self, lower: &[f64], d: usize) {
        assert!(lower.len() == d * (d + 1) / 2);
        self.width = chunks(d);
        self.data.resize(before(self.width), Chunk::default());
        for row in 0..self.width {
            let (blocks, last) = self.data[before(row)..before(row + 1)].split_at_mut(SIDE * row);
            let mut diagonal = [[0.0; SIDE]; SIDE];
            for (r, i) in (SIDE * row..SIDE * (row + 1)).enumerate() {
                let own = if i < d { &lower[i * (i + 1) / 2..][..=i] } else { &[] };
                let (whole, rest) = own.as_chunks::<SIDE>();
                let zeros = std::iter::repeat(&[0.0; SIDE]);
                blocks.iter_mut().skip(r).step_by(SIDE).zip(whole.iter().chain(zeros)).for_each(|(to, x)| to.0 = *x);
                // The last row of a block ends with a whole chunk.
                let rest = if r + 1 == SIDE && i < d { &whole[row][..] } else { rest };
                for (c, x) in rest.iter().enumerate() {
                    (diagonal[r][c], diagonal[c][r]) = (*x, *x);
                }
            }
            last.iter_mut().zip(diagonal).for_each(|(to, x)| *to = Chunk(x));
        }
    }

    /// Like [`Blocks::pack`], but only the rows and columns of some components, which increase.
    pub fn pack_within(&mut self, lower: &[f64], components: &[u32]) {
        let mut within = std::mem::take(&mut self.within);
        within.clear();
        for (k, i) in components.iter().enumerate() {
            let row = &lower[*i as usize * (*i as usize + 1) / 2..];
            within.extend(components[..=k].iter().map(|j| row[*j as usize]));
        }
        self.pack(&within, components.len());
        self.within = within;
    }

    /// `out = A v`, in whole chunks; v is padded with zeros.
    ///
    /// # Panics
    /// When lengths do not fit, or the instruction set is not available.
    pub fn product(&self, isa: Isa, v: &[Chunk], out: &mut [Chunk]) {
        assert!(isa.is_available() && v.len() == self.width && out.len() == self.width);
        // SAFETY: the instruction set is available, and the lengths are as asserted.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(&self.data, v, out),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(&self.data, v, out),
                _ => all_rows::<vector::Portable, 4>(&self.data, v, out),
            }
        }
    }
}

/// Eight sums and eight components of v in thirty-two registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512(data: &[Chunk], v: &[Chunk], out: &mut [Chunk]) {
    // SAFETY: as in `Blocks::product`.
    unsafe { all_rows::<vector::Avx512, 8>(data, v, out) }
}

/// Four sums, of two registers each, in sixteen registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(data: &[Chunk], v: &[Chunk], out: &mut [Chunk]) {
    // SAFETY: as in `Blocks::product`.
    unsafe { all_rows::<vector::Avx2, 4>(data, v, out) }
}

/// All rows of blocks, C rows side by side; C divides 8.
///
/// # Safety
/// The instruction set of V is available; there are as many blocks as v has chunks, and out has as many.
#[inline(always)]
unsafe fn all_rows<V: Vector, const C: usize>(data: &[Chunk], v: &[Chunk], out: &mut [Chunk]) {
    // SAFETY: blocks are read in the order in which they were packed, and rows of blocks have as many as v has chunks up to theirs.
    unsafe {
        for (row, own) in v.iter().enumerate() {
            let first = data.as_ptr().add(before(row));
            let mut sum = Chunk::default();
            for r in (0..SIDE).step_by(C) {
                let x: [V; C] = std::array::from_fn(|c| V::splat(own.0[r + c]));
                let mut sums = [V::splat(0.0); C];
                for (column, v) in v[..row].iter().enumerate() {
                    let (block, out) = (first.add(SIDE * column + r), out.as_mut_ptr().add(column));
                    let (right, mut left) = (V::load(v), V::load(out));
                    for (c, (sum, x)) in sums.iter_mut().zip(x).enumerate() {
                        let a = V::load(block.add(c));
                        left = a.mul_add(x, left);
                        *sum = a.mul_add(right, *sum);
                    }
                    left.store(out);
                }
                sum.0[r..r + C].copy_from_slice(&V::sums(&sums));
            }
            let mut sum = V::load(&sum);
            for (j, x) in own.0.iter().enumerate() {
                sum = V::load(first.add(SIDE * row + j)).mul_add(V::splat(*x), sum);
            }
            sum.store(out.as_mut_ptr().add(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{flat, to_chunks, tree};

    /// The definition, with its order of operations.
    fn slow(a: &dyn Fn(usize, usize) -> f64, v: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0f64; v.len()];
        for row in (0..v.len()).step_by(8) {
            let mut sums = [[0.0f64; 8]; 8];
            for i in row..row + 8 {
                for k in 0..row {
                    out[k] = a(i, k).mul_add(v[i], out[k]);
                    sums[i - row][k % 8] = a(i, k).mul_add(v[k], sums[i - row][k % 8]);
                }
            }
            for i in row..row + 8 {
                out[i] = (row..row + 8).fold(tree(sums[i - row]), |sum, j| a(i, j).mul_add(v[j], sum));
            }
        }
        out
    }

    #[test]
    fn products_are_the_definition_on_every_instruction_set() {
        // Larger and smaller ones in turn, so that leftovers would show.
        let mut blocks = Blocks::empty();
        for d in [0, 77, 1, 3, 8, 9, 31, 32, 7, 64, 4] {
            let numbers = |n: usize, f: f64| -> Vec<f64> { (0..n).map(|i| (i as f64 * f).sin()).collect() };
            let (v, lower) = (numbers(d, 0.7), numbers(d * (d + 1) / 2, 0.37));
            let a = |i: usize, j: usize| if i.max(j) < d { lower[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)] } else { 0.0 };
            blocks.pack(&lower, d);
            let v = to_chunks(&v);
            let expected = slow(&a, flat(&v));
            for isa in Isa::available() {
                let mut out = vec![Chunk([f64::NAN; 8]); chunks(d)];
                blocks.product(isa, &v, &mut out);
                assert_eq!(flat(&out), expected, "{isa:?}, d = {d}");
            }
            // Without the components whose number is a multiple of 3.
            let kept: Vec<u32> = (0..d as u32).filter(|i| i % 3 != 0).collect();
            let (mut within, some): (Blocks, Vec<f64>) = (Blocks::empty(), kept.iter().map(|i| flat(&v)[*i as usize]).collect());
            within.pack_within(&lower, &kept);
            let mut out = vec![Chunk::default(); chunks(kept.len())];
            within.product(Isa::best(), &to_chunks(&some), &mut out);
            assert_eq!(
                flat(&out),
                slow(&|i, j| if i.max(j) < kept.len() { a(kept[i] as usize, kept[j] as usize) } else { 0.0 }, flat(&to_chunks(&some)))
            );
            for (i, x) in expected.iter().enumerate() {
                let row: f64 = (0..d).map(|j| a(i, j) * flat(&v)[j]).sum();
                assert!((row - x).abs() < 1e-13 && (i < d || *x == 0.0), "d = {d}");
            }
        }
    }
}
