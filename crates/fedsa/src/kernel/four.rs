//! Products of a block of dense rows `x_j` of d numbers with four vectors: margins `x_j . theta_k`, and sums `sum_j w_kj x_j`.
//!
//! The bits are those of [`super::margins`] for one vector after the other. Tiles of sums stay in registers: rows by vectors of margins, columns
//! by vectors of sums.

use super::vector::{self, Vector};
use super::{Isa, last_chunk};

/// How many vectors there are.
pub const VECTORS: usize = 4;
/// Rows of a block, at most.
pub const BLOCK: usize = 32;
/// Elements of a chunk.
const WIDTH: usize = 8;

/// `out_jk = x_j . theta_k` of at most [`BLOCK`] rows. `values` has d numbers for each row, `thetas` those of each vector.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn margins(isa: Isa, values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; VECTORS]; BLOCK]) {
    assert!(isa.is_available() && d > 0 && values.len().is_multiple_of(d) && values.len() <= BLOCK * d && thetas.len() == VECTORS * d);
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => margins_avx512(values, d, thetas, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => margins_avx2(values, d, thetas, out),
            _ => margins_on::<vector::Portable, 1>(values, d, thetas, out),
        }
    }
}

/// `out_k += sum_j w_kj x_j` over at most [`BLOCK`] rows, in their order; `outs` has the numbers of each vector.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn combine(isa: Isa, values: &[f64], d: usize, outs: &mut [f64], weights: &[[f64; BLOCK]; VECTORS]) {
    assert!(isa.is_available() && d > 0 && values.len().is_multiple_of(d) && values.len() <= BLOCK * d && outs.len() == VECTORS * d);
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => combine_avx512(values, d, outs, weights),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => combine_avx2(values, d, outs, weights),
            _ => combine_on::<vector::Portable, 1>(values, d, outs, weights),
        }
    }
}

/// Sixteen sums in thirty-two registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn margins_avx512(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; VECTORS]; BLOCK]) {
    // SAFETY: as in `margins`.
    unsafe { margins_on::<vector::Avx512, 4>(values, d, thetas, out) }
}

/// Four sums, of two registers each, in sixteen.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn margins_avx2(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; VECTORS]; BLOCK]) {
    // SAFETY: as in `margins`.
    unsafe { margins_on::<vector::Avx2, 1>(values, d, thetas, out) }
}

/// Twelve sums in thirty-two registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn combine_avx512(values: &[f64], d: usize, outs: &mut [f64], weights: &[[f64; BLOCK]; VECTORS]) {
    // SAFETY: as in `combine`.
    unsafe { combine_on::<vector::Avx512, 3>(values, d, outs, weights) }
}

/// Four sums, of two registers each, in sixteen.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn combine_avx2(values: &[f64], d: usize, outs: &mut [f64], weights: &[[f64; BLOCK]; VECTORS]) {
    // SAFETY: as in `combine`.
    unsafe { combine_on::<vector::Avx2, 1>(values, d, outs, weights) }
}

/// # Safety
/// The instruction set of V is available; lengths are as [`margins`] asserts.
#[inline(always)]
unsafe fn margins_on<V: Vector, const R: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; VECTORS]; BLOCK]) {
    let n = values.len() / d;
    let together = n / R * R;
    // SAFETY: handed on; there are n rows.
    unsafe {
        for j in (0..together).step_by(R) {
            tile_of_margins::<V, R>(&values[j * d..], d, thetas, &mut out[j..]);
        }
        for j in together..n {
            tile_of_margins::<V, 1>(&values[j * d..], d, thetas, &mut out[j..]);
        }
    }
}

/// The margins of the first R rows.
///
/// # Safety
/// The instruction set of V is available; there are R rows, and four vectors.
#[inline(always)]
unsafe fn tile_of_margins<V: Vector, const R: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; VECTORS]]) {
    let whole = d / WIDTH * WIDTH;
    // SAFETY: chunks up to `whole` are within the rows and the vectors.
    unsafe {
        let (mut sums, mut theta) = ([[V::splat(0.0); VECTORS]; R], [V::splat(0.0); VECTORS]);
        for i in (0..whole).step_by(WIDTH) {
            for (k, theta) in theta.iter_mut().enumerate() {
                *theta = V::load_from(thetas.as_ptr().add(k * d + i));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = V::load_from(values.as_ptr().add(r * d + i));
                for (sum, theta) in sums.iter_mut().zip(theta) {
                    *sum = x.mul_add(theta, *sum);
                }
            }
        }
        if whole < d {
            for (k, theta) in theta.iter_mut().enumerate() {
                *theta = V::load(&last_chunk(&thetas[k * d + whole..(k + 1) * d]));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = V::load(&last_chunk(&values[r * d + whole..(r + 1) * d]));
                for (sum, theta) in sums.iter_mut().zip(theta) {
                    *sum = x.mul_add(theta, *sum);
                }
            }
        }
        for (sums, out) in sums.iter().zip(out) {
            *out = V::sums(sums);
        }
    }
}

/// # Safety
/// The instruction set of V is available; lengths are as [`combine`] asserts.
#[inline(always)]
unsafe fn combine_on<V: Vector, const T: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: &[[f64; BLOCK]; VECTORS]) {
    let whole = d / WIDTH;
    let together = whole / T * T;
    // SAFETY: handed on; the chunks are within the rows and the vectors.
    unsafe {
        for t in (0..together).step_by(T) {
            tile_of_sums::<V, T>(values, d, t * WIDTH, outs, weights);
        }
        for t in together..whole {
            tile_of_sums::<V, 1>(values, d, t * WIDTH, outs, weights);
        }
    }
    for (out, weights) in outs.chunks_exact_mut(d).zip(weights) {
        for (x, w) in values.chunks_exact(d).zip(weights) {
            out[whole * WIDTH..].iter_mut().zip(&x[whole * WIDTH..]).for_each(|(out, x)| *out = w.mul_add(*x, *out));
        }
    }
}

/// The sums of T chunks of columns, from column `from` on.
///
/// # Safety
/// The instruction set of V is available; the chunks are within the rows and the four vectors.
#[inline(always)]
unsafe fn tile_of_sums<V: Vector, const T: usize>(
    values: &[f64],
    d: usize,
    from: usize,
    outs: &mut [f64],
    weights: &[[f64; BLOCK]; VECTORS],
) {
    // SAFETY: as above; there are at most as many rows as weights.
    unsafe {
        let (mut sums, mut x) = ([[V::splat(0.0); T]; VECTORS], [V::splat(0.0); T]);
        for (k, sums) in sums.iter_mut().enumerate() {
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum = V::load_from(outs.as_ptr().add(k * d + from + t * WIDTH));
            }
        }
        for j in 0..values.len() / d {
            for (t, x) in x.iter_mut().enumerate() {
                *x = V::load_from(values.as_ptr().add(j * d + from + t * WIDTH));
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
                sum.store_to(outs.as_mut_ptr().add(k * d + from + t * WIDTH));
            }
        }
    }
}
