//! Products of a block of dense rows `x_j` of d numbers with one or several vectors: margins `x_j . theta_k`, and sums `sum_j w_kj x_j`.
//!
//! Column i of a margin goes to partial sum `i mod 8`, by `mul_add`, and sums add the rows in their order: a vector has the same bits alone and
//! among others, on every instruction set. Tiles of sums stay in registers: rows by vectors of margins, columns by vectors of sums.

use super::Isa;
use super::vector::{self, Vector, WIDTH};

/// How many vectors are multiplied at one time, if there are several.
pub const VECTORS: usize = 4;

/// `out_jk = x_j . theta_k`. `values` has d numbers for each row, `thetas` those of each vector.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn margins<const K: usize>(isa: Isa, values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    assert!(isa.is_available() && values.len() == out.len() * d && thetas.len() == K * d);
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => margins_avx512(values, d, thetas, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => margins_avx2(values, d, thetas, out),
            _ => margins_on::<vector::Portable, 1, K>(values, d, thetas, out),
        }
    }
}

/// `out_k += sum_j w_kj x_j` over the rows, in their order; `outs` has the numbers of each vector.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn combine<const K: usize>(isa: Isa, values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    assert!(isa.is_available() && outs.len() == K * d && weights.iter().all(|weights| values.len() == weights.len() * d));
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => combine_avx512(values, d, outs, weights),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => combine_avx2(values, d, outs, weights),
            _ => combine_on::<vector::Portable, 1, K>(values, d, outs, weights),
        }
    }
}

/// Eight sums for one vector, sixteen for four, in thirty-two registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn margins_avx512<const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    // SAFETY: as in `margins`.
    unsafe {
        match K {
            1 => margins_on::<vector::Avx512, 8, K>(values, d, thetas, out),
            _ => margins_on::<vector::Avx512, 4, K>(values, d, thetas, out),
        }
    }
}

/// Four sums, of two registers each, in sixteen.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn margins_avx2<const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    // SAFETY: as in `margins`.
    unsafe {
        match K {
            1 => margins_on::<vector::Avx2, 4, K>(values, d, thetas, out),
            _ => margins_on::<vector::Avx2, 1, K>(values, d, thetas, out),
        }
    }
}

/// Eight sums for one vector, sixteen for four, in thirty-two registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn combine_avx512<const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    // SAFETY: as in `combine`.
    unsafe {
        match K {
            1 => combine_on::<vector::Avx512, 8, K>(values, d, outs, weights),
            _ => combine_on::<vector::Avx512, 4, K>(values, d, outs, weights),
        }
    }
}

/// Four sums, of two registers each, in sixteen.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn combine_avx2<const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    // SAFETY: as in `combine`.
    unsafe {
        match K {
            1 => combine_on::<vector::Avx2, 4, K>(values, d, outs, weights),
            _ => combine_on::<vector::Avx2, 1, K>(values, d, outs, weights),
        }
    }
}

/// # Safety
/// The instruction set of V is available; lengths are as [`margins`] asserts.
#[inline(always)]
unsafe fn margins_on<V: Vector, const R: usize, const K: usize>(values: &[f64], d: usize, thetas: &[f64], out: &mut [[f64; K]]) {
    let together = out.len() / R * R;
    // SAFETY: handed on; there are as many rows as `out` has places.
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
    // SAFETY: chunks up to `whole` are within the rows and the vectors, and so are the d - whole numbers after them.
    unsafe {
        let mut parts = [[V::splat(0.0); K]; R];
        for i in (0..whole).step_by(WIDTH) {
            add_chunk(&mut parts, d, values.as_ptr().add(i), thetas.as_ptr().add(i), |from| V::load_from(from));
        }
        if whole < d {
            add_chunk(&mut parts, d, values.as_ptr().add(whole), thetas.as_ptr().add(whole), |from| V::load_first(from, d - whole));
        }
        // As many sums at once as there are, in one direction.
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

/// Adds the products of a chunk of R rows and of K vectors, each d numbers after the one before.
///
/// # Safety
/// The instruction set of V is available; `load` may read from all of these places.
#[inline(always)]
unsafe fn add_chunk<V: Vector, const R: usize, const K: usize>(
    parts: &mut [[V; K]; R],
    d: usize,
    rows: *const f64,
    thetas: *const f64,
    load: impl Fn(*const f64) -> V,
) {
    // SAFETY: as above.
    unsafe {
        let theta: [V; K] = std::array::from_fn(|k| load(thetas.add(k * d)));
        for (r, parts) in parts.iter_mut().enumerate() {
            let x = load(rows.add(r * d));
            for (part, theta) in parts.iter_mut().zip(theta) {
                *part = x.mul_add(theta, *part);
            }
        }
    }
}

/// # Safety
/// The instruction set of V is available; lengths are as [`combine`] asserts.
#[inline(always)]
unsafe fn combine_on<V: Vector, const T: usize, const K: usize>(values: &[f64], d: usize, outs: &mut [f64], weights: [&[f64]; K]) {
    let whole = d / WIDTH;
    let together = whole / T * T;
    // SAFETY: chunks up to `whole` are within the rows and the vectors, and so are the numbers after them.
    unsafe {
        let outs = outs.as_mut_ptr();
        let at = |t: usize| (values[t * WIDTH..].as_ptr(), outs.add(t * WIDTH));
        for t in (0..together).step_by(T) {
            tile_of_sums::<V, T, K>(d, at(t), weights, |from| V::load_from(from), |x, to| x.store_to(to));
        }
        for t in together..whole {
            tile_of_sums::<V, 1, K>(d, at(t), weights, |from| V::load_from(from), |x, to| x.store_to(to));
        }
        let rest = d - whole * WIDTH;
        if rest > 0 && !values.is_empty() {
            tile_of_sums::<V, 1, K>(d, at(whole), weights, |from| V::load_first(from, rest), |x, to| x.store_first(to, rest));
        }
    }
}

/// The sums of T chunks of columns of rows and vectors, each d numbers after the one before.
///
/// # Safety
/// The instruction set of V is available; `load` and `store` may access the chunks of as many rows as there are weights, and of K vectors.
#[inline(always)]
unsafe fn tile_of_sums<V: Vector, const T: usize, const K: usize>(
    d: usize,
    (rows, outs): (*const f64, *mut f64),
    weights: [&[f64]; K],
    load: impl Fn(*const f64) -> V,
    store: impl Fn(V, *mut f64),
) {
    // SAFETY: as above; all weights are as many.
    unsafe {
        let mut sums: [[V; T]; K] = std::array::from_fn(|k| std::array::from_fn(|t| load(outs.add(k * d + t * WIDTH))));
        for j in 0..weights[0].len() {
            let x: [V; T] = std::array::from_fn(|t| load(rows.add(j * d + t * WIDTH)));
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let w = V::splat(*weights.get_unchecked(j));
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = w.mul_add(x, *sum);
                }
            }
        }
        for (k, sums) in sums.into_iter().enumerate() {
            for (t, sum) in sums.into_iter().enumerate() {
                store(sum, outs.add(k * d + t * WIDTH));
            }
        }
    }
}
