//! Passes over the rows `x_j` of data: margins `x_j . theta`, and sums `sum_j w_j x_j`.
//!
//! The order of operations is that of [`super::dot`] for margins, column i going to partial sum `i mod 8`, and that of the rows for sums, by
//! `mul_add`. Numbers that are not stored change nothing: sparse and dense rows give the same bits, on every instruction set.

use std::ops::Range;

use super::{Isa, dot, tree};
use crate::problem::dataset::Rows;

/// Rows whose margins are computed side by side: a single one waits for each of its additions.
const SIDE: usize = 4;

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

/// `out += sum_j weight(j, x_j . theta) x_j` over the rows of `range`, in their order. Weights are asked for once a row.
pub fn pass(isa: Isa, rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64], weight: impl FnMut(usize, f64) -> f64) {
    assert!(isa.is_available());
    // SAFETY: the instruction set is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => pass_avx512(rows, range, theta, out, weight),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => pass_avx2(rows, range, theta, out, weight),
            _ => run(rows, range, theta, out, weight),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn pass_avx512(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64], weight: impl FnMut(usize, f64) -> f64) {
    run(rows, range, theta, out, weight);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn pass_avx2(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64], weight: impl FnMut(usize, f64) -> f64) {
    run(rows, range, theta, out, weight);
}

#[inline(always)]
fn run(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64], mut weight: impl FnMut(usize, f64) -> f64) {
    let mut next = range.start;
    if let Rows::Dense { d, values } = rows {
        while next + SIDE <= range.end {
            let x: [&[f64]; SIDE] = std::array::from_fn(|k| &values[(next + k) * d..][..*d]);
            let t = margins_of(x, theta);
            let w: [f64; SIDE] = std::array::from_fn(|k| weight(next + k, t[k]));
            for (i, out) in out[..*d].iter_mut().enumerate() {
                *out = (0..SIDE).fold(*out, |sum, k| w[k].mul_add(x[k][i], sum));
            }
            next += SIDE;
        }
    }
    for j in next..range.end {
        let w = weight(j, margin(rows, j, theta));
        add(rows, j, w, out);
    }
}

/// `out += sum_j weight(j) x_j` over the rows of `range`, in their order.
pub fn combine(isa: Isa, rows: &Rows, range: Range<usize>, out: &mut [f64], weight: impl FnMut(usize) -> f64) {
    assert!(isa.is_available());
    // SAFETY: the instruction set is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => combine_avx512(rows, range, out, weight),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => combine_avx2(rows, range, out, weight),
            _ => add_all(rows, range, out, weight),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn combine_avx512(rows: &Rows, range: Range<usize>, out: &mut [f64], weight: impl FnMut(usize) -> f64) {
    add_all(rows, range, out, weight);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn combine_avx2(rows: &Rows, range: Range<usize>, out: &mut [f64], weight: impl FnMut(usize) -> f64) {
    add_all(rows, range, out, weight);
}

#[inline(always)]
fn add_all(rows: &Rows, range: Range<usize>, out: &mut [f64], mut weight: impl FnMut(usize) -> f64) {
    for j in range {
        add(rows, j, weight(j), out);
    }
}

/// `out_j = x_j . theta` for the rows of `range`.
pub fn margins(isa: Isa, rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
    assert!(isa.is_available() && out.len() == range.len());
    // SAFETY: the instruction set is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => margins_avx512(rows, range, theta, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => margins_avx2(rows, range, theta, out),
            _ => margins_of_all(rows, range, theta, out),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn margins_avx512(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
    margins_of_all(rows, range, theta, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn margins_avx2(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
    margins_of_all(rows, range, theta, out);
}

#[inline(always)]
fn margins_of_all(rows: &Rows, range: Range<usize>, theta: &[f64], out: &mut [f64]) {
    let mut done = 0;
    if let Rows::Dense { d, values } = rows {
        while done + SIDE <= range.len() {
            let first = range.start + done;
            let x: [&[f64]; SIDE] = std::array::from_fn(|k| &values[(first + k) * d..][..*d]);
            out[done..done + SIDE].copy_from_slice(&margins_of(x, theta));
            done += SIDE;
        }
    }
    for (k, out) in out.iter_mut().enumerate().skip(done) {
        *out = margin(rows, range.start + k, theta);
    }
}

/// [`dot`] of each x with y, side by side.
#[inline(always)]
fn margins_of(x: [&[f64]; SIDE], y: &[f64]) -> [f64; SIDE] {
    let mut acc = [[0.0f64; 8]; SIDE];
    let whole = y.len() / 8 * 8;
    for i in (0..whole).step_by(8) {
        let y: &[f64; 8] = y[i..i + 8].try_into().expect("eight numbers");
        for k in 0..SIDE {
            let x: &[f64; 8] = x[k][i..i + 8].try_into().expect("eight numbers");
            for l in 0..8 {
                acc[k][l] = x[l].mul_add(y[l], acc[k][l]);
            }
        }
    }
    for k in 0..SIDE {
        for (acc, (x, y)) in acc[k].iter_mut().zip(x[k][whole..].iter().zip(&y[whole..])) {
            *acc = x.mul_add(*y, *acc);
        }
    }
    acc.map(tree)
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
    use crate::random::{Purpose, stream};

    /// n x d rows of which about a share is not 0, both ways.
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

    fn bits(x: &[f64]) -> Vec<u64> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn every_instruction_set_and_both_kinds_of_rows_give_the_same_bits() {
        for d in [1, 3, 8, 9, 31, 40] {
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
                    let mut out = vec![0.5; d];
                    pass(isa, rows, 2..11, &theta, &mut out, |j, t| t + j as f64);
                    assert_eq!(bits(&out), bits(&sum), "d = {d}, {isa:?}");
                    let mut out = vec![0.5; d];
                    combine(isa, rows, 2..11, &mut out, |j| expected[j] + j as f64);
                    assert_eq!(bits(&out), bits(&sum), "d = {d}, {isa:?}");
                }
            }
        }
    }
}
