//! Removes the components of a vector along orthonormal vectors.
//!
//! Four vectors at a time: first their inner products with the same w, in eight partial sums, element i going to sum i mod 8 (`mul_add`),
//! reduced by [`super::tree`]. Then, component by component, `w = -(q_k . w) q_k + w` for each in turn (`mul_add`). Remaining vectors
//! follow one by one, with separately rounded multiplications and additions.

use super::Isa;
use super::products::{add_scaled, dot};
use super::vector::{self, Vector, WIDTH};

/// Vectors that are removed together.
const SIDE: usize = 4;

/// `w -= (q . w) q` for orthonormal vectors q, stored one after the other.
///
/// # Panics
/// When the instruction set is not available.
pub fn remove(isa: Isa, w: &mut [f64], vectors: &[f64]) {
    assert!(isa.is_available());
    let d = w.len().max(1);
    let mut fours = vectors.chunks_exact(SIDE * d);
    for four in &mut fours {
        // SAFETY: the instruction set is available, and there are four vectors of d numbers.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512(w, four),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2(w, four),
                _ => remove_four::<vector::Portable>(w, four),
            }
        }
    }
    for q in fours.remainder().chunks_exact(d) {
        let share = dot(isa, q, w);
        add_scaled(isa, w, -share, q);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512(w: &mut [f64], four: &[f64]) {
    // SAFETY: as in `remove`.
    unsafe { remove_four::<vector::Avx512>(w, four) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(w: &mut [f64], four: &[f64]) {
    // SAFETY: as in `remove`.
    unsafe { remove_four::<vector::Avx2>(w, four) }
}

/// # Safety
/// The instruction set of V is available, and there are four vectors of as many numbers as w has.
#[inline(always)]
unsafe fn remove_four<V: Vector>(w: &mut [f64], four: &[f64]) {
    let (d, w, four) = (w.len(), w.as_mut_ptr(), four.as_ptr());
    let whole = d / WIDTH * WIDTH;
    let rest = d - whole;
    // SAFETY: chunks up to `whole` are within w and the vectors, and so are the `rest` numbers after them.
    unsafe {
        let mut sums = [V::splat(0.0); SIDE];
        for i in (0..whole).step_by(WIDTH) {
            let w = V::load_from(w.add(i));
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum = V::load_from(four.add(k * d + i)).mul_add(w, *sum);
            }
        }
        if rest > 0 {
            let w = V::load_first(w.add(whole), rest);
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum = V::load_first(four.add(k * d + whole), rest).mul_add(w, *sum);
            }
        }
        let minus = V::sums(&sums).map(|share| V::splat(-share));
        for i in (0..whole).step_by(WIDTH) {
            let mut left = V::load_from(w.add(i));
            for (k, minus) in minus.iter().enumerate() {
                left = minus.mul_add(V::load_from(four.add(k * d + i)), left);
            }
            left.store_to(w.add(i));
        }
        if rest > 0 {
            let mut left = V::load_first(w.add(whole), rest);
            for (k, minus) in minus.iter().enumerate() {
                left = minus.mul_add(V::load_first(four.add(k * d + whole), rest), left);
            }
            left.store_first(w.add(whole), rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_orthogonal_on_every_instruction_set() {
        let numbers = |n: usize, f: f64| -> Vec<f64> { (0..n).map(|i| (i as f64 * f).sin()).collect() };
        for (d, count) in [(1, 1), (5, 3), (6, 5), (9, 4), (31, 11), (64, 8)] {
            // Orthonormal vectors, and the result by definition.
            let mut vectors: Vec<f64> = Vec::new();
            let without = |w: &mut Vec<f64>, vectors: &[f64]| {
                for q in vectors.chunks(d) {
                    let share: f64 = q.iter().zip(w.iter()).map(|(q, w)| q * w).sum();
                    w.iter_mut().zip(q).for_each(|(w, q)| *w -= share * q);
                }
            };
            for k in 0..count {
                let mut q = numbers(d, 0.3 + k as f64);
                q[k] += 2.0;
                (0..2).for_each(|_| without(&mut q, &vectors));
                let norm = q.iter().map(|q| q * q).sum::<f64>().sqrt();
                vectors.extend(q.iter().map(|q| q / norm));
            }
            let (w, mut expected) = (numbers(d, 1.3), numbers(d, 1.3));
            without(&mut expected, &vectors);
            let on = |isa: Isa| {
                let mut left = w.clone();
                remove(isa, &mut left, &vectors);
                left
            };
            let left = on(Isa::Portable);
            assert!(left.iter().zip(&expected).all(|(left, x)| (left - x).abs() < 1e-14), "{left:?} {expected:?}");
            assert!(Isa::available().into_iter().all(|isa| on(isa) == left), "d = {d}");
        }
    }
}
