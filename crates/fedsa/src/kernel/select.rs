//! The numbers of large magnitude among many.

use super::Isa;

/// The magnitude of a number as bits in the same order; NaN is the largest.
#[inline(always)]
pub fn size(x: f64) -> u64 {
    x.to_bits() << 1
}

/// Room for positions written beyond the last one.
const SLACK: usize = 8;

/// Writes the positions of all numbers with [`size`] at least `least` to `out`, in increasing order.
///
/// # Panics
/// When there are more than 2^32 numbers, or the instruction set is not available.
pub fn at_least(isa: Isa, x: &[f64], least: u64, out: &mut Vec<u32>) {
    assert!(isa.is_available() && u32::try_from(x.len()).is_ok());
    out.clear();
    out.resize(x.len() + SLACK, 0);
    let found = match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction set is available, and there is room for all positions and the slack.
        Isa::Avx512 => unsafe { avx512(x, least, out) },
        _ => one_by_one(0, x, least, out),
    };
    out.truncate(found);
}

/// Positions from `first` on; returns their number. Every position is written, and overwritten unless it is wanted, so there are no
/// branches.
fn one_by_one(first: u32, x: &[f64], least: u64, out: &mut [u32]) -> usize {
    let mut found = 0;
    for (at, x) in (first..).zip(x) {
        out[found] = at;
        found += usize::from(size(*x) >= least);
    }
    found
}

/// # Safety
/// AVX-512 F and VL are available, and `out` is longer than x by [`SLACK`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512(x: &[f64], least: u64, out: &mut [u32]) -> usize {
    use std::arch::x86_64::*;
    let (eight, rest) = x.as_chunks::<8>();
    let (bound, step) = (_mm512_set1_epi64(least as i64), _mm256_set1_epi32(8));
    let mut at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut found = 0;
    for x in eight {
        // SAFETY: eight numbers are read; at most as many positions as numbers were found before, and eight are written after them.
        unsafe {
            let sizes = _mm512_slli_epi64::<1>(_mm512_loadu_si512(x.as_ptr().cast()));
            let large = _mm512_cmpge_epu64_mask(sizes, bound);
            _mm256_storeu_si256(out.as_mut_ptr().add(found).cast(), _mm256_maskz_compress_epi32(large, at));
            found += large.count_ones() as usize;
        }
        at = _mm256_add_epi32(at, step);
    }
    found + one_by_one(8 * eight.len() as u32, rest, least, &mut out[found..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_found_on_every_instruction_set() {
        let specials = [0.0, -0.0, f64::NAN, -1e300, f64::MIN_POSITIVE, f64::INFINITY];
        for n in [0, 1, 7, 8, 9, 64, 203] {
            let x: Vec<f64> = (0..n).map(|i| if i % 5 == 4 { specials[i % 6] } else { (i as f64 * 1.3).sin() }).collect();
            for least in [0, 1, size(0.3), size(0.9), size(f64::INFINITY), u64::MAX] {
                let expected: Vec<u32> = (0..n as u32).filter(|at| size(x[*at as usize]) >= least).collect();
                for isa in Isa::available() {
                    let mut out = vec![7; 3];
                    at_least(isa, &x, least, &mut out);
                    assert_eq!(out, expected, "{n} numbers, {least:x}, {isa:?}");
                }
            }
        }
    }
}
