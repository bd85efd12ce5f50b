//! Passes over the rows `x_j` of data: margins `x_j . theta`, and sums `sum_j w_j x_j`.
//!
//! Margins have the order of operations of [`fedsa::kernel::dot`]: column i goes to partial sum `i mod 8`. Sums add rows in their order, by
//! `mul_add`. Zeros that are not stored change the sign of a zero at most. Sparse and dense rows therefore give the same bits, on every
//! instruction set, unless all products of a row vanish.

use std::ops::Range;

use super::rows::Rows;
use crate::kernel::tiles::{self, VECTORS};
use fedsa::kernel::{Isa, dot, tree};

/// `x_j . theta`.
#[inline(always)]
pub fn margin(rows: &Rows, j: usize, theta: &[f64]) -> f64 {
    match rows {
        Rows::Dense { d, values } => dot(&values[j * d..][..*d], theta),
        Rows::Sparse { starts, index, value, .. } => {
            let at = starts[j]..starts[j + 1];
            let mut acc = [0.0f64; 8];
            for (i, x) in index[at.clone()].iter().zip(&value[at]) {
                let acc = &mut acc[(*i % 8) as usize];
                *acc = x.mul_add(theta[*i as usize], *acc);
            }
            tree(acc)
        }
    }
}

/// The most rows whose margins and weights are computed before any row is added.
const BLOCK: usize = 32;
/// The most numbers of a block of dense rows, unless eight rows have more: such a block stays in the L1 cache until it is read again.
const NUMBERS: usize = 4096;

/// Splits a range of rows into blocks of a multiple of eight rows (the tile size), except the last. Results do not depend on the blocks.
fn blocks(rows: &Rows, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let most = match rows {
        Rows::Dense { d, .. } if 8 * d <= NUMBERS => (NUMBERS / d.max(&1) / 8 * 8).min(BLOCK),
        _ => BLOCK,
    };
    range.clone().step_by(most).map(move |first| first..range.end.min(first + most))
}

/// `out += sum_j weight_j x_j` over the rows of `range`, in their order. `weigh` gets the indices of consecutive rows and turns their
/// products `x_j . theta` into weights.
pub fn pass(isa: Isa, rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64], mut weigh: impl FnMut(Range<usize>, &mut [f64])) {
    let mut weights = [0.0; BLOCK];
    for block in blocks(rows, range) {
        let weights = &mut weights[..block.len()];
        margins(isa, rows, block.clone(), theta, weights);
        weigh(block.clone(), weights);
        combine(isa, rows, block, out, weights);
    }
}

/// [`pass`] for several vectors with the same bits; each block of rows is read once for all. `thetas` and `outs` have the vectors one after
/// the other. `weigh` turns products with one vector at a time into weights.
pub fn pass_each(
    isa: Isa,
    rows: &Rows,
    range: Range<usize>,
    thetas: &[f64],
    outs: &mut [f64],
    mut weigh: impl FnMut(Range<usize>, &mut [f64]),
) {
    let d = rows.columns();
    let (mut found, mut weights) = ([[0.0; VECTORS]; BLOCK], [[0.0; BLOCK]; VECTORS]);
    for block in blocks(rows, range) {
        let n = block.len();
        for (thetas, outs) in thetas.chunks(VECTORS * d).zip(outs.chunks_mut(VECTORS * d)) {
            if let (Rows::Dense { values, .. }, true) = (rows, thetas.len() == VECTORS * d) {
                let values = &values[block.start * d..block.end * d];
                tiles::margins(isa, values, d, thetas, &mut found[..n]);
                for (k, weights) in weights.iter_mut().enumerate() {
                    weights.iter_mut().zip(&found).for_each(|(weight, found)| *weight = found[k]);
                    weigh(block.clone(), &mut weights[..n]);
                }
                tiles::combine(isa, values, d, outs, std::array::from_fn::<&[f64], VECTORS, _>(|k| &weights[k][..n]));
                continue;
            }
            for (theta, out) in thetas.chunks(d).zip(outs.chunks_mut(d)) {
                let weights = &mut weights[0][..n];
                margins(isa, rows, block.clone(), theta, weights);
                weigh(block.clone(), weights);
                combine(isa, rows, block.clone(), out, weights);
            }
        }
    }
}

/// `x_j . a` and `x_j . b` of the rows of `range`, with the bits of two calls of [`margins`]. A block of rows read for the first is still
/// in the cache for the second.
pub fn margins_of_both(isa: Isa, rows: &Rows, range: Range<usize>, [a, b]: [&[f64]; 2], [of_a, of_b]: [&mut [f64]; 2]) {
    for block in blocks(rows, range.clone()) {
        let at = block.start - range.start..block.end - range.start;
        margins(isa, rows, block.clone(), a, &mut of_a[at.clone()]);
        margins(isa, rows, block, b, &mut of_b[at]);
    }
}

/// `out += sum_j weights_j x_j` over the rows of `range`, in their order. `out` has d numbers.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn combine(isa: Isa, rows: &Rows, range: Range<usize>, out: &mut [f64], weights: &[f64]) {
    assert_eq!(weights.len(), range.len());
    let Rows::Dense { d, values } = rows else { return combine_sparse(isa, rows, range, out, weights) };
    // Each block that sums some columns passes over all of these rows.
    for block in blocks(rows, range.clone()) {
        let weights = &weights[block.start - range.start..block.end - range.start];
        tiles::combine(isa, &values[block.start * d..block.end * d], *d, out, [weights]);
    }
}

fedsa::per_isa! {
    /// [`combine`], row by row.
    fn combine_sparse(rows: &Rows, range: Range<usize>, out: &mut [f64], weights: &[f64]) {
        weights.iter().zip(range).for_each(|(w, j)| add(rows, j, *w, out));
    }
}

/// `out_j = x_j . theta` for the rows of `range`. `theta` has d numbers.
///
/// # Panics
/// When lengths do not fit, or the instruction set is not available.
pub fn margins(isa: Isa, rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
    assert_eq!(out.len(), range.len());
    match rows {
        Rows::Dense { d, values } => tiles::margins(isa, &values[range.start * d..range.end * d], *d, theta, out.as_chunks_mut::<1>().0),
        Rows::Sparse { .. } => margins_sparse(isa, rows, range, theta, out),
    }
}

fedsa::per_isa! {
    /// [`margins`], row by row.
    fn margins_sparse(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
        out.iter_mut().zip(range).for_each(|(out, j)| *out = margin(rows, j, theta));
    }
}

fedsa::per_isa! {
    /// `t = of(t)` for each of `t`. A small enough `of` is inlined and vectorised.
    fn map<F: Fn(f64) -> f64>(t: &mut [f64], of: F) {
        t.iter_mut().for_each(|t| *t = of(*t));
    }
}

fedsa::per_isa! {
    /// Calls `see` with each number below n. Inlined parts of `see` use the instruction set, such as fused multiply-add, which is a slow
    /// library call otherwise.
    fn each<F: FnMut(usize)>(n: usize, see: F) {
        (0..n).for_each(see);
    }
}

/// Adds the terms of a block: term j to partial sum `j mod 8`. Blocks begin at multiples of 8.
#[inline(always)]
fn add_terms(acc: &mut [f64; 8], terms: &[f64]) {
    let (whole, rest) = terms.as_chunks::<8>();
    for terms in whole {
        (0..8).for_each(|l| acc[l] += terms[l]);
    }
    acc.iter_mut().zip(rest).for_each(|(acc, term)| *acc += term);
}

fedsa::per_isa! {
    /// `sum_j of(t_j)`, number j going to partial sum `j mod 8`.
    fn sum<F: Fn(f64) -> f64>(t: &[f64], of: F) -> f64 {
        let (mut acc, mut terms) = ([0.0; 8], [0.0; BLOCK]);
        for t in t.chunks(BLOCK) {
            terms.iter_mut().zip(t).for_each(|(term, t)| *term = of(*t));
            add_terms(&mut acc, &terms[..t.len()]);
        }
        tree(acc)
    }
}

fedsa::per_isa! {
    /// `sum_j of(t_j + s u_j)` in the same order. With s = 0 it has the bits of the sum at t, if u is finite.
    fn sum_along<F: Fn(f64) -> f64>(t: &[f64], u: &[f64], s: f64, of: F) -> f64 {
        assert_eq!(t.len(), u.len());
        let (mut acc, mut terms) = ([0.0; 8], [0.0; BLOCK]);
        for (t, u) in t.chunks(BLOCK).zip(u.chunks(BLOCK)) {
            terms.iter_mut().zip(t.iter().zip(u)).for_each(|(term, (t, u))| *term = of(s.mul_add(*u, *t)));
            add_terms(&mut acc, &terms[..t.len()]);
        }
        tree(acc)
    }
}

fedsa::per_isa! {
    /// The largest magnitude; NaN if a number is NaN.
    fn largest(x: &[f64]) -> f64 {
        // The bits of magnitudes sort like the magnitudes.
        f64::from_bits(x.iter().fold(0, |most, x| most.max(x.abs().to_bits())))
    }
}

/// The number of coefficients of a series: powers 0 to 11.
pub const TERMS: usize = 12;

fedsa::per_isa! {
    /// `sum_j c_k(t_j) u_j^k` for each coefficient c_k that `of` gives, in the order of [`sum`]. The sum for k = 0 has its bits, if u is
    /// finite.
    fn series_along<F: Fn(f64) -> [f64; TERMS]>(t: &[f64], u: &[f64], of: F) -> [f64; TERMS] {
        assert_eq!(t.len(), u.len());
        let (mut acc, mut terms) = ([[0.0; 8]; TERMS], [[0.0; BLOCK]; TERMS]);
        let (mut at, mut by) = ([0.0; BLOCK], [0.0; BLOCK]);
        for (t, u) in t.chunks(BLOCK).zip(u.chunks(BLOCK)) {
            // Whole blocks, so that the loop is vectorised.
            at[..t.len()].copy_from_slice(t);
            by[..u.len()].copy_from_slice(u);
            for j in 0..BLOCK {
                let (coefficients, mut power) = (of(at[j]), 1.0);
                for k in 0..TERMS {
                    terms[k][j] = coefficients[k] * power;
                    power *= by[j];
                }
            }
            acc.iter_mut().zip(&terms).for_each(|(acc, terms)| add_terms(acc, &terms[..t.len()]));
        }
        acc.map(tree)
    }
}

/// `out += w x_j`.
#[inline(always)]
fn add(rows: &Rows, j: usize, w: f64, out: &mut [f64]) {
    match rows {
        Rows::Dense { d, values } => {
            out.iter_mut().zip(&values[j * d..][..*d]).for_each(|(out, x)| *out = w.mul_add(*x, *out));
        }
        Rows::Sparse { starts, index, value, .. } => {
            let at = starts[j]..starts[j + 1];
            for (i, x) in index[at.clone()].iter().zip(&value[at]) {
                let out = &mut out[*i as usize];
                *out = w.mul_add(*x, *out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::elementary;
    use fedsa::random::{Purpose, stream};

    /// n x d rows with this share of non-zeros, dense and sparse.
    pub(crate) fn both(n: usize, d: usize, share: f64, seed: u64) -> (Rows, Rows) {
        let mut s = stream(seed, Purpose::Fresh, 0, 0);
        let values: Vec<f64> = (0..n * d).map(|_| if s.uniform() < share { s.normal() } else { 0.0 }).collect();
        let (mut starts, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
        for row in values.chunks(d) {
            for (i, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                index.push(i as u32);
                value.push(*x);
            }
            starts.push(index.len());
        }
        (Rows::Dense { d, values }, Rows::Sparse { d, starts, index, value })
    }

    #[test]
    fn passes_for_several_vectors_have_the_bits_of_single_ones() {
        for (n, d) in [(1, 1), (5, 3), (33, 8), (70, 21), (101, 64), (40, 107), (50, 260), (20, 520)] {
            let (dense, sparse) = both(n, d, 0.6, 11);
            let mut s = stream(12, Purpose::Fresh, 0, 0);
            for vectors in [1, 3, 4, 6, 9] {
                let thetas: Vec<f64> = (0..vectors * d).map(|_| s.normal()).collect();
                let range = n / 4..n;
                let weigh = |rows: Range<usize>, t: &mut [f64]| t.iter_mut().zip(rows).for_each(|(t, j)| *t *= 0.1 + j as f64);
                for rows in [&dense, &sparse] {
                    for isa in Isa::available() {
                        let (mut one, mut all) = (vec![0.5; vectors * d], vec![0.5; vectors * d]);
                        for (theta, out) in thetas.chunks(d).zip(one.chunks_mut(d)) {
                            pass(isa, rows, range.clone(), theta, out, weigh);
                        }
                        pass_each(isa, rows, range.clone(), &thetas, &mut all, weigh);
                        assert_eq!(bits(&one), bits(&all), "{n} x {d}, {vectors}, {isa:?}");
                    }
                }
            }
        }
    }

    fn bits(x: &[f64]) -> Vec<u64> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn every_instruction_set_and_both_kinds_of_rows_give_the_same_bits() {
        for d in [1, 3, 8, 9, 31, 40, 107, 600] {
            let (dense, sparse) = both(11, d, 0.4, d as u64);
            let theta: Vec<f64> = (0..d).map(|i| (i as f64 * 0.7).sin()).collect();
            let Rows::Dense { values, .. } = &dense else { unreachable!() };
            let expected: Vec<f64> = values.chunks(d).map(|row| dot(row, &theta)).collect();
            let mut sum = vec![0.5; d];
            for (j, t) in expected.iter().enumerate().skip(2) {
                let w = t + j as f64;
                sum.iter_mut().zip(&values[j * d..]).for_each(|(sum, x)| *sum = w.mul_add(*x, *sum));
            }
            for isa in Isa::available() {
                for rows in [&dense, &sparse] {
                    let mut got = vec![0.0; 9];
                    margins(isa, rows, 2..11, &theta, &mut got);
                    assert_eq!(bits(&got), bits(&expected[2..]), "d = {d}, {isa:?}");
                    let (mut a, mut b, twice) = (vec![0.0; 9], vec![0.0; 9], theta.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
                    margins_of_both(isa, rows, 2..11, [&theta, &twice], [&mut a, &mut b]);
                    b.iter_mut().for_each(|b| *b /= 2.0);
                    assert_eq!([bits(&a), bits(&b)], [bits(&expected[2..]), bits(&expected[2..])]);
                    let mut out = vec![0.5; d];
                    pass(isa, rows, 2..11, &theta, &mut out, |rows, t| t.iter_mut().zip(rows).for_each(|(t, j)| *t += j as f64));
                    assert_eq!(bits(&out), bits(&sum), "d = {d}, {isa:?}");
                    let mut out = vec![0.5; d];
                    let weights: Vec<f64> = (2..11).map(|j| expected[j] + j as f64).collect();
                    combine(isa, rows, 2..11, &mut out, &weights);
                    assert_eq!(bits(&out), bits(&sum), "d = {d}, {isa:?}");
                }
            }
        }
    }

    #[test]
    fn series_along_a_line_are_those_of_each_number_on_every_instruction_set() {
        let (t, u): (Vec<f64>, Vec<f64>) = (0..77).map(|j| ((j as f64).sin() * 9.0, (j as f64 * 1.7).cos())).unzip();
        let of = |t: f64| std::array::from_fn(|k| t + k as f64);
        for isa in Isa::available() {
            let sums = series_along(isa, &t, &u, of);
            assert_eq!(sums[0].to_bits(), sum(isa, &t, |t| t).to_bits());
            for (k, got) in sums.into_iter().enumerate() {
                let expected: f64 = t.iter().zip(&u).map(|(t, u)| (t + k as f64) * u.powi(k as i32)).sum();
                assert!((got - expected).abs() < 1e-11, "{k}: {got} {expected}");
                assert_eq!(got.to_bits(), series_along(Isa::Portable, &t, &u, of)[k].to_bits());
            }
            assert_eq!((largest(isa, &t), largest(isa, &[1.0, -3.0, 2.0]), largest(isa, &[])), (largest(Isa::Portable, &t), 3.0, 0.0));
            assert!(largest(isa, &[1.0, f64::NAN, f64::INFINITY]).is_nan());
        }
    }

    #[test]
    fn sums_along_a_line_have_the_same_bits_on_every_instruction_set() {
        let (t, u): (Vec<f64>, Vec<f64>) = (0..77).map(|j| ((j as f64).sin() * 9.0, (j as f64 * 1.7).cos())).unzip();
        let of = |t: f64| elementary::log_one_plus(elementary::exp_below(-t.abs())) + (-t).max(0.0);
        for s in [0.0, 0.25, 1.0] {
            let expected: f64 = t.iter().zip(&u).map(|(t, u)| (1.0 + (-(t + s * u)).exp()).ln()).sum();
            let got: Vec<u64> = Isa::available().into_iter().map(|isa| sum_along(isa, &t, &u, s, of).to_bits()).collect();
            assert!(got.iter().all(|bits| *bits == got[0]));
            assert!((f64::from_bits(got[0]) / expected - 1.0).abs() < 1e-14);
            let there: Vec<f64> = t.iter().zip(&u).map(|(t, u)| s.mul_add(*u, *t)).collect();
            assert!(Isa::available().into_iter().all(|isa| sum(isa, &there, of).to_bits() == got[0]));
            for isa in Isa::available() {
                for of in [of, elementary::cos_pi] {
                    let mut mapped = t.clone();
                    map(isa, &mut mapped, of);
                    assert_eq!(bits(&mapped), bits(&t.iter().map(|t| of(*t)).collect::<Vec<_>>()));
                }
            }
        }
    }
}
