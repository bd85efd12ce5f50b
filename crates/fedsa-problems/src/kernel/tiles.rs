//! Products of a block of dense rows `x_j`, d numbers each, with one or several vectors: margins `x_j . theta_k`, and sums
//! `sum_j w_kj x_j`.
//!
//! Column i of a margin goes to partial sum `i mod 8`, by `mul_add`; sums add the rows in their order. A vector therefore has the same bits
//! alone and among others, on every instruction set. Partial sums without a last column get +0, which turns -0 into 0. Tiles of sums stay
//! in registers: rows by vectors for margins, columns by vectors for sums.

use fedsa::kernel::Isa;
use fedsa::kernel::vector::{self, Vector, WIDTH};

/// Vectors multiplied at a time, if there are several.
pub const VECTORS: usize = 4;

/// Whether there are tiles for K vectors: for one and for [`VECTORS`].
const fn is_made_for(k: usize) -> bool {
    k == 1 || k == VECTORS
}

/// Whether these slice lengths belong to n rows and k vectors of d numbers.
fn fit(d: usize, n: usize, values: usize, k: usize, vectors: usize) -> bool {
    n.checked_mul(d) == Some(values) && k.checked_mul(d) == Some(vectors)
}

/// `out_jk = x_j . theta_k`. `values` has d numbers for each row, `thetas` d numbers for each vector.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn margins<const K: usize>(isa: Isa, values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    const { assert!(is_made_for(K)) };
    assert!(isa.is_available() && fit(d, out.len(), values.len(), K, thetas.len()));
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => margins_avx512(values, d, thetas, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => margins_avx2(values, d, thetas, out),
            _ => margins_on::<vector::Portable, K>(values, d, thetas, out),
        }
    }
}

/// `out_k += sum_j w_kj x_j` over the rows, in their order; `outs` has d numbers for each vector.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn combine<const K: usize>(isa: Isa, values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    const { assert!(is_made_for(K)) };
    assert!(isa.is_available() && weights.iter().all(|weights| fit(d, weights.len(), values.len(), K, outs.len())));
    if values.is_empty() {
        return;
    }
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => combine_avx512(values, d, outs, weights),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => combine_avx2(values, d, outs, weights),
            _ => combine_on::<vector::Portable, K>(values, d, outs, weights),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn margins_avx512<const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    // SAFETY: as in `margins`.
    unsafe { margins_on::<vector::Avx512, K>(values, d, thetas, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn margins_avx2<const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    // SAFETY: as in `margins`.
    unsafe { margins_on::<vector::Avx2, K>(values, d, thetas, out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn combine_avx512<const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    // SAFETY: as in `combine`.
    unsafe { combine_on::<vector::Avx512, K>(values, d, outs, weights) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn combine_avx2<const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    // SAFETY: as in `combine`.
    unsafe { combine_on::<vector::Avx2, K>(values, d, outs, weights) }
}

/// As many rows at a time as registers allow: eight for one vector and sixteen for four in thirty-two registers, otherwise four.
///
/// # Safety
/// The instruction set of V is available; lengths are as [`margins`] asserts.
#[inline(always)]
unsafe fn margins_on<V: Vector, const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    // SAFETY: as the caller.
    unsafe {
        match (V::HAS_ROOM, K) {
            (true, 1) => margins_by::<V, 8, K>(values, d, thetas, out),
            (true, _) | (false, 1) => margins_by::<V, 4, K>(values, d, thetas, out),
            (false, _) => margins_by::<V, 1, K>(values, d, thetas, out),
        }
    }
}

/// R rows at a time.
///
/// # Safety
/// As [`margins_on`] says.
#[inline(always)]
unsafe fn margins_by<V: Vector, const R: usize, const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    let together = out.len() / R * R;
    // SAFETY: as the caller; there are as many rows as `out` has places.
    unsafe {
        for j in (0..together).step_by(R) {
            tile_of_margins::<V, R, K>(&values[j * d..], d, thetas, &mut out[j..]);
        }
        for j in together..out.len() {
            tile_of_margins::<V, 1, K>(&values[j * d..], d, thetas, &mut out[j..]);
        }
    }
}

/// The margins of the first R rows.
///
/// # Safety
/// The instruction set of V is available; there are R rows, and K vectors.
#[inline(always)]
unsafe fn tile_of_margins<V: Vector, const R: usize, const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    let whole = d / WIDTH * WIDTH;
    let (rows, thetas) = (values.as_ptr(), thetas.as_ptr());
    // SAFETY: chunks up to `whole` and the d - whole numbers after them are within the rows and the vectors.
    unsafe {
        let mut parts = [[V::splat(0.0); K]; R];
        for i in (0..whole).step_by(WIDTH) {
            add_chunk::<V, R, K, WHOLE>(&mut parts, d, rows.add(i), thetas.add(i), WIDTH);
        }
        if whole < d {
            add_chunk::<V, R, K, PART>(&mut parts, d, rows.add(whole), thetas.add(whole), d - whole);
        }
        // Sums of eight parts are computed several at a time, along the longer side of the tile.
        if R >= K {
            for k in 0..K {
                let sums = V::sums::<R>(&std::array::from_fn(|r| parts[r][k]));
                out.iter_mut().zip(sums).for_each(|(out, sum)| out[k] = sum);
            }
        } else {
            out.iter_mut().zip(&parts).for_each(|(out, parts)| *out = V::sums(parts));
        }
    }
}

/// Kinds of chunks: whole ones of eight numbers, and a last one of fewer.
const WHOLE: bool = true;
const PART: bool = false;

/// A whole chunk, or a last one of n numbers.
///
/// # Safety
/// The instruction set of V is available; `from` has eight numbers, or n.
#[inline(always)]
unsafe fn load<V: Vector, const IS_WHOLE: bool>(from: *const f64, n: usize) -> V {
    // SAFETY: as above.
    unsafe { if IS_WHOLE { V::load_from(from) } else { V::load_first(from, n) } }
}

/// Adds the products of a chunk of R rows and K vectors, which lie d numbers apart; n is the length of a last chunk.
///
/// # Safety
/// The instruction set of V is available; rows and vectors have this chunk.
#[inline(always)]
unsafe fn add_chunk<V: Vector, const R: usize, const K: usize, const IS_WHOLE: bool>(
    parts: &mut [[V; K]; R],
    d: usize,
    rows: *const f64,
    thetas: *const f64,
    n: usize,
) {
    // SAFETY: as above.
    unsafe {
        let mut theta = [V::splat(0.0); K];
        for (k, theta) in theta.iter_mut().enumerate() {
            *theta = load::<V, IS_WHOLE>(thetas.add(k * d), n);
        }
        for (r, parts) in parts.iter_mut().enumerate() {
            let x = load::<V, IS_WHOLE>(rows.add(r * d), n);
            for (part, theta) in parts.iter_mut().zip(theta) {
                *part = x.mul_add(theta, *part);
            }
        }
    }
}

/// As many chunks of columns at a time as [`margins_on`] has rows.
///
/// # Safety
/// The instruction set of V is available; lengths are as [`combine`] asserts, and there are rows.
#[inline(always)]
unsafe fn combine_on<V: Vector, const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    // SAFETY: as the caller.
    unsafe {
        match (V::HAS_ROOM, K) {
            (true, 1) => combine_by::<V, 8, K>(values, d, outs, weights),
            (true, _) | (false, 1) => combine_by::<V, 4, K>(values, d, outs, weights),
            (false, _) => combine_by::<V, 1, K>(values, d, outs, weights),
        }
    }
}

/// T chunks of columns at a time.
///
/// # Safety
/// As [`combine_on`] says.
#[inline(always)]
unsafe fn combine_by<V: Vector, const T: usize, const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    let whole = d / WIDTH * WIDTH;
    let together = whole / (T * WIDTH) * (T * WIDTH);
    let (rows, outs) = (values.as_ptr(), outs.as_mut_ptr());
    // SAFETY: chunks up to `whole` and the d - whole numbers after them are within the rows and the vectors.
    unsafe {
        for i in (0..together).step_by(T * WIDTH) {
            tile_of_sums::<V, T, K, WHOLE>(d, rows.add(i), outs.add(i), weights, WIDTH);
        }
        for i in (together..whole).step_by(WIDTH) {
            tile_of_sums::<V, 1, K, WHOLE>(d, rows.add(i), outs.add(i), weights, WIDTH);
        }
        if whole < d {
            tile_of_sums::<V, 1, K, PART>(d, rows.add(whole), outs.add(whole), weights, d - whole);
        }
    }
}

/// The sums of T chunks of columns of rows and vectors, which lie d numbers apart; n is the length of a last chunk.
///
/// # Safety
/// The instruction set of V is available; there is a row per weight, there are K vectors, and all have these chunks.
#[inline(always)]
unsafe fn tile_of_sums<V: Vector, const T: usize, const K: usize, const IS_WHOLE: bool>(
    d: usize,
    rows: *const f64,
    outs: *mut f64,
    weights: [&[f64]; K],
    n: usize,
) {
    // SAFETY: as above; all weights have the same length.
    unsafe {
        let (mut sums, mut x) = ([[V::splat(0.0); T]; K], [V::splat(0.0); T]);
        for (k, sums) in sums.iter_mut().enumerate() {
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = load::<V, IS_WHOLE>(outs.add(k * d + t * WIDTH), n);
            }
        }
        for j in 0..weights[0].len() {
            for (t, x) in x.iter_mut().enumerate() {
                *x = load::<V, IS_WHOLE>(rows.add(j * d + t * WIDTH), n);
            }
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let w = V::splat(*weights.get_unchecked(j));
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = w.mul_add(x, *sum);
                }
            }
        }
        for (k, sums) in sums.into_iter().enumerate() {
            for (t, sum) in sums.into_iter().enumerate() {
                let to = outs.add(k * d + t * WIDTH);
                if IS_WHOLE { sum.store_to(to) } else { sum.store_first(to, n) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rows_and_no_columns_are_nothing() {
        for isa in Isa::available() {
            for d in [0, 1, 8, 16, 40, 64, 72] {
                let (mut out, mut outs) = (vec![3.0; d], vec![3.0; VECTORS * d]);
                combine(isa, &[], d, &mut out, [&[]]);
                combine(isa, &[], d, &mut outs, [&[]; VECTORS]);
                assert!(out.into_iter().chain(outs).all(|x| x == 3.0));
                margins::<1>(isa, &[], d, &vec![1.0; d], &mut []);
                margins::<VECTORS>(isa, &[], d, &vec![1.0; VECTORS * d], &mut []);
            }
            let mut margin = [[f64::NAN]; 3];
            margins(isa, &[], 0, &[], &mut margin);
            combine(isa, &[], 0, &mut [], [&[1.0; 3]]);
            assert_eq!(margin, [[0.0]; 3]);
        }
    }

    /// A sum of vanishing products is 0, not -0, also if the last column adds nothing to it.
    #[test]
    fn sums_without_a_last_column_are_not_minus_zero() {
        let (tiny, minus) = ([1e-200; 9], [-1e-200; 9]);
        for isa in Isa::available() {
            let mut margin = [[1.0]];
            margins(isa, &tiny, 9, &minus, &mut margin);
            assert_eq!(margin[0][0].to_bits(), 0.0f64.to_bits(), "{isa:?}");
        }
    }
}
