//! Products of symmetric matrices (lower triangles row by row) with vectors.
//!
//! Each row a_i, i = 0, 1, ..., is used in both directions, `out_k = a_ik v_i + out_k` for k < i, and then `out_i = out_i + a_i . v`. There
//! the columns before the last multiple of 8 up to i - i mod 4 go to eight partial sums, reduced by [`super::tree`], and the others follow
//! one by one. Each line rounds once (`mul_add`), on every instruction set. Four rows are processed side by side, so that v and out are
//! read once for them.

use super::Isa;
use super::vector::{self, Vector};

/// Rows processed side by side.
const ROWS: usize = 4;
/// Elements of a chunk.
const WIDTH: usize = 8;

/// `out = A v`, d numbers; `lower` has `d (d + 1) / 2`.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn product(isa: Isa, lower: &[f64], v: &[f64], out: &mut [f64]) {
    assert!(isa.is_available() && out.len() == v.len() && lower.len() == v.len() * (v.len() + 1) / 2);
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512(lower, v, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2(lower, v, out),
            _ => all_rows::<vector::Portable>(lower, v, out),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512(lower: &[f64], v: &[f64], out: &mut [f64]) {
    // SAFETY: as in `product`.
    unsafe { all_rows::<vector::Avx512>(lower, v, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(lower: &[f64], v: &[f64], out: &mut [f64]) {
    // SAFETY: as in `product`.
    unsafe { all_rows::<vector::Avx2>(lower, v, out) }
}

/// # Safety
/// The instruction set of V is available; lengths are as [`product`] asserts.
#[inline(always)]
unsafe fn all_rows<V: Vector>(lower: &[f64], v: &[f64], out: &mut [f64]) {
    out.fill(0.0);
    let groups = v.len() / ROWS * ROWS;
    // SAFETY: handed on.
    unsafe {
        for first in (0..groups).step_by(ROWS) {
            rows::<V, ROWS>(lower, v, out, first, first / WIDTH);
        }
        for i in groups..v.len() {
            rows::<V, 1>(lower, v, out, i, groups / WIDTH);
        }
    }
}

/// Rows `first..first + N`, with `whole` whole chunks.
///
/// # Safety
/// As [`all_rows`]; the rows exist, and the chunks end before the diagonal of the first of them.
#[inline(always)]
unsafe fn rows<V: Vector, const N: usize>(lower: &[f64], v: &[f64], out: &mut [f64], first: usize, whole: usize) {
    let at = |i: usize| i * (i + 1) / 2;
    let sums: [f64; N];
    // SAFETY: chunks are within the rows, v and out.
    unsafe {
        let (mut partial, mut x, mut row) = ([V::splat(0.0); N], [V::splat(0.0); N], [lower.as_ptr(); N]);
        for (r, (x, row)) in x.iter_mut().zip(&mut row).enumerate() {
            (*x, *row) = (V::splat(v[first + r]), lower.as_ptr().add(at(first + r)));
        }
        for k in (0..whole * WIDTH).step_by(WIDTH) {
            let (v, out) = (V::load_from(v.as_ptr().add(k)), out.as_mut_ptr().add(k));
            let mut g = V::load_from(out);
            for ((row, x), partial) in row.iter().zip(x).zip(&mut partial) {
                let a = V::load_from(row.add(k));
                g = a.mul_add(x, g);
                *partial = a.mul_add(v, *partial);
            }
            g.store_to(out);
        }
        sums = V::sums(&partial);
    }
    for (r, mut sum) in sums.into_iter().enumerate() {
        let i = first + r;
        let row = &lower[at(i)..at(i + 1)];
        for k in whole * WIDTH..i {
            out[k] = row[k].mul_add(v[i], out[k]);
            sum = row[k].mul_add(v[k], sum);
        }
        out[i] += row[i].mul_add(v[i], sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, with its order of operations.
    fn slow(lower: &[f64], v: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0f64; v.len()];
        for i in 0..v.len() {
            let row = &lower[i * (i + 1) / 2..][..=i];
            let mut sums = [0.0f64; 8];
            let whole = (i - i % 4) / 8 * 8;
            for k in 0..i {
                out[k] = row[k].mul_add(v[i], out[k]);
            }
            for k in 0..whole {
                sums[k % 8] = row[k].mul_add(v[k], sums[k % 8]);
            }
            out[i] += (whole..=i).fold(super::super::tree(sums), |sum, k| row[k].mul_add(v[k], sum));
        }
        out
    }

    #[test]
    fn products_are_the_definition_on_every_instruction_set() {
        for d in [0, 1, 3, 4, 7, 8, 9, 31, 32, 64, 77] {
            let numbers = |n: usize, f: f64| -> Vec<f64> { (0..n).map(|i| (i as f64 * f).sin()).collect() };
            let (v, lower) = (numbers(d, 0.7), numbers(d * (d + 1) / 2, 0.37));
            let expected = slow(&lower, &v);
            for isa in Isa::available() {
                let mut out = vec![f64::NAN; d];
                product(isa, &lower, &v, &mut out);
                assert_eq!(out, expected, "{isa:?}, d = {d}");
            }
            for i in 0..d {
                let row: f64 = (0..d).map(|j| lower[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)] * v[j]).sum();
                assert!((row - expected[i]).abs() < 1e-13);
            }
        }
    }
}
