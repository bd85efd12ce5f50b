//! Weighted Gram matrices `sum_j w_j x_j x_j^T` of dense rows.
//!
//! Entry (i, k), k <= i, of the lower triangle is one chain over the rows in their order: `g_ik = x_jk (w_j x_ji) + g_ik`. The product
//! `w_j x_ji` is rounded once, and each link once (`mul_add`). Results therefore have equal bits on every instruction set, for any split of
//! the rows into calls, and for any number of threads.
//!
//! Rows are packed in blocks: their columns in panels for vector elements, and their weighted columns in narrow panels for broadcasts. A
//! tile of sums stays in registers for a whole block.

use std::cell::Cell;
use std::ops::Range;

use fedsa::kernel::vector::{self, Vector, WIDTH};
use fedsa::kernel::{Chunk, Isa, flat, flat_mut};

/// Rows packed at a time: a panel of three chunks per row fills half of the L1 cache.
const BLOCK: usize = 128;

thread_local! {
    /// The packing memory, kept for the next call.
    static PACKED: Cell<[Vec<Chunk>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

/// Adds the entries of rows `first..first + out.len()` of the lower triangle. `out[i]` begins with row `first + i` and has at least
/// `first + i + 1` numbers; later ones may change. `values` has d numbers for each of `weights`.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn add(isa: Isa, values: &[f64], d: usize, weights: &[f64], first: usize, out: &mut [&mut [f64]]) {
    assert!(isa.is_available() && first + out.len() <= d && values.len() == d * weights.len());
    assert!(out.iter().enumerate().all(|(i, row)| row.len() > first + i));
    if out.is_empty() {
        return;
    }
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match (isa, (first + out.len()).div_ceil(WIDTH)) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, 1) => avx512::<1>(values, d, weights, first, out),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, 2) => avx512::<2>(values, d, weights, first, out),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => avx512::<3>(values, d, weights, first, out),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => avx2(values, d, weights, first, out),
            _ => blocks::<vector::Portable, 1, 4>(values, d, weights, first, out),
        }
    }
}

/// Twenty-four sums in thirty-two registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<const R: usize>(values: &[f64], d: usize, weights: &[f64], first: usize, out: &mut [&mut [f64]]) {
    // SAFETY: as in `add`.
    unsafe { blocks::<vector::Avx512, R, 8>(values, d, weights, first, out) }
}

/// Eight sums of two registers each, in sixteen registers of which half are left for them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(values: &[f64], d: usize, weights: &[f64], first: usize, out: &mut [&mut [f64]]) {
    // SAFETY: as in `add`.
    unsafe { blocks::<vector::Avx2, 1, 4>(values, d, weights, first, out) }
}

/// All tiles of at most R chunks by C rows, block after block of data rows.
///
/// # Safety
/// The instruction set of V is available; lengths are as [`add`] asserts.
#[inline(always)]
unsafe fn blocks<V: Vector, const R: usize, const C: usize>(
    values: &[f64],
    d: usize,
    weights: &[f64],
    first: usize,
    out: &mut [&mut [f64]],
) {
    let end = first + out.len();
    let (wide, tall) = (end.div_ceil(R * WIDTH), out.len().div_ceil(WIDTH));
    let [mut x, mut scaled] = PACKED.take();
    let most = BLOCK.min(weights.len());
    x.resize(x.len().max(wide * most * R), Chunk::default());
    scaled.resize(scaled.len().max(tall * most), Chunk::default());
    for (values, weights) in values.chunks(BLOCK * d).zip(weights.chunks(BLOCK)) {
        let n = weights.len();
        // SAFETY: as the caller.
        unsafe {
            pack::<V, R>(values, d, 0..end, &mut x, |_| V::splat(1.0));
            pack::<V, 1>(values, d, first..end, &mut scaled, |j| V::splat(weights[j]));
        }
        for (p, x) in x.chunks_exact(n * R).enumerate().take(wide) {
            let from = p * R * WIDTH;
            // From the first rows that reach these columns.
            for i in (from.saturating_sub(first) / C * C..out.len()).step_by(C) {
                let s = flat(&scaled[i / WIDTH * n..][..n])[i % WIDTH..].as_ptr();
                let rows = &mut out[i..];
                let last = first + i + C.min(rows.len());
                // SAFETY: panels have n rows: of R chunks, of which some are read, and of eight numbers, of which C are read.
                unsafe {
                    match (last - from).div_ceil(WIDTH) {
                        1 if R > 1 => tile::<V, 1, R, C>(x, s, from, rows),
                        2 if R > 2 => tile::<V, 2, R, C>(x, s, from, rows),
                        _ => tile::<V, R, R, C>(x, s, from, rows),
                    }
                }
            }
        }
    }
    PACKED.set([x, scaled]);
}

/// Writes some columns of rows of d numbers, each row times a factor, into panels of R chunks, the last padded with zeros. It writes one
/// panel after the other, because lines of panels side by side would conflict in the cache.
///
/// # Safety
/// The instruction set of V is available.
#[inline(always)]
unsafe fn pack<V: Vector, const R: usize>(
    values: &[f64],
    d: usize,
    columns: Range<usize>,
    panels: &mut [Chunk],
    times: impl Fn(usize) -> V,
) {
    let n = values.len() / d;
    for (first, panel) in columns.clone().step_by(R * WIDTH).zip(panels.chunks_exact_mut(n * R)) {
        let some = (R * WIDTH).min(columns.end - first);
        for (j, (to, row)) in panel.as_chunks_mut::<R>().0.iter_mut().zip(values.chunks_exact(d)).enumerate() {
            let row = &row[first..first + some];
            let mut own = [Chunk::default(); R];
            let from = if some == R * WIDTH {
                row.as_ptr()
            } else {
                flat_mut(&mut own)[..some].copy_from_slice(row);
                own.as_ptr().cast()
            };
            for (r, to) in to.iter_mut().enumerate() {
                // SAFETY: there are R chunks of numbers.
                unsafe { V::load_from(from.add(r * WIDTH)).mul(times(j)).store(to) };
            }
        }
    }
}

/// The first T of R chunks of columns from `from` on, of the first C rows, or of as many as there are.
///
/// # Safety
/// As [`sums`]; the rows have numbers up to the diagonal.
#[inline(always)]
unsafe fn tile<V: Vector, const T: usize, const R: usize, const C: usize>(
    x: &[Chunk],
    scaled: *const f64,
    from: usize,
    rows: &mut [&mut [f64]],
) {
    let n = x.len() / R;
    let whole = rows.len() >= C && rows[..C].iter().all(|row| row.len() >= from + T * WIDTH);
    if whole {
        let mut at = [std::ptr::null_mut(); C];
        for (at, row) in at.iter_mut().zip(rows) {
            *at = row[from..].as_mut_ptr();
        }
        // SAFETY: rows have T chunks of numbers from there on.
        return unsafe { sums::<V, T, R, C>(x.as_ptr(), scaled, n, at) };
    }
    let (mut own, mut at) = ([[Chunk::default(); T]; C], [std::ptr::null_mut(); C]);
    for (i, own) in own.iter_mut().enumerate() {
        if let Some(some) = rows.get(i).and_then(|row| row.get(from..)) {
            let len = some.len().min(T * WIDTH);
            flat_mut(own)[..len].copy_from_slice(&some[..len]);
        }
        at[i] = own.as_mut_ptr().cast();
    }
    // SAFETY: the tile is in memory of its own.
    unsafe { sums::<V, T, R, C>(x.as_ptr(), scaled, n, at) };
    for (own, row) in own.iter_mut().zip(rows) {
        if let Some(some) = row.get_mut(from..) {
            let len = some.len().min(T * WIDTH);
            some[..len].copy_from_slice(&flat_mut(own)[..len]);
        }
    }
}

/// `g_ik = x_jk s_ji + g_ik` for C rows i and T chunks of columns k, over n data rows j.
///
/// # Safety
/// The instruction set of V is available; `x` has R chunks per data row, `scaled` has eight numbers of which C are used, and each of `at`
/// has T chunks of numbers.
#[inline(always)]
unsafe fn sums<V: Vector, const T: usize, const R: usize, const C: usize>(
    mut x: *const Chunk,
    mut scaled: *const f64,
    n: usize,
    at: [*mut f64; C],
) {
    // Loops, because the compiler does not apply the instruction set to closures of array functions.
    let (mut g, mut columns);
    // SAFETY: as above.
    unsafe {
        (g, columns) = ([[V::splat(0.0); T]; C], [V::splat(0.0); T]);
        for (g, at) in g.iter_mut().zip(at) {
            for (t, g) in g.iter_mut().enumerate() {
                *g = V::load_from(at.add(t * WIDTH));
            }
        }
        for _ in 0..n {
            for (t, column) in columns.iter_mut().enumerate() {
                *column = V::load(x.add(t));
            }
            for (i, g) in g.iter_mut().enumerate() {
                let s = V::splat(*scaled.add(i));
                for (g, column) in g.iter_mut().zip(columns) {
                    *g = column.mul_add(s, *g);
                }
            }
            (x, scaled) = (x.add(R), scaled.add(WIDTH));
        }
        for (g, at) in g.into_iter().zip(at) {
            for (t, g) in g.into_iter().enumerate() {
                g.store_to(at.add(t * WIDTH));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    /// The definition, with its order of operations.
    fn slow(values: &[f64], d: usize, weights: &[f64], i: usize, k: usize, start: f64) -> f64 {
        (0..weights.len()).fold(start, |g, j| values[j * d + k].mul_add(weights[j] * values[j * d + i], g))
    }

    #[test]
    fn entries_are_chains_over_the_rows_on_every_instruction_set() {
        for (n, d, first, rows) in
            [(1, 1, 0, 1), (5, 3, 0, 3), (40, 9, 4, 5), (129, 24, 0, 24), (300, 31, 8, 20), (256, 77, 50, 27), (70, 50, 3, 0)]
        {
            let mut draw = stream(4, Purpose::Fresh, n as u64, d);
            let values: Vec<f64> = (0..n * d).map(|_| draw.normal()).collect();
            let weights: Vec<f64> = (0..n).map(|_| draw.normal()).collect();
            for isa in Isa::available() {
                // Rows that end where the triangle does, and longer ones.
                for extra in [0, 5, d] {
                    let mut out: Vec<Vec<f64>> = (0..rows).map(|i| vec![0.5; (first + i + 1 + extra).min(d)]).collect();
                    let mut slices: Vec<&mut [f64]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                    // In two calls.
                    let half = n / 2;
                    add(isa, &values[..half * d], d, &weights[..half], first, &mut slices);
                    add(isa, &values[half * d..], d, &weights[half..], first, &mut slices);
                    for (i, row) in out.iter().enumerate() {
                        for (k, g) in row.iter().enumerate().take(first + i + 1) {
                            assert_eq!(*g, slow(&values, d, &weights, first + i, k, 0.5), "{isa:?} {n} x {d}, entry {} {k}", first + i);
                        }
                    }
                }
            }
        }
    }
}
