//! A vector of eight f64 for each instruction set, with identical results on all of them.

use super::{Chunk, tree};

/// Eight f64. Every operation rounds once, element by element.
///
/// # Safety
/// Methods of an implementation may only run where its instruction set is
/// available, inlined into a function compiled for that set.
pub(crate) trait Vector: Copy {
    /// The number of chunks of a matrix-vector product that are computed side by side. Each takes four registers for sums.
    const ROWS: usize;
    unsafe fn load(p: *const Chunk) -> Self;
    unsafe fn store(self, p: *mut Chunk);
    /// Eight numbers from anywhere.
    unsafe fn load_from(p: *const f64) -> Self;
    /// Eight numbers to anywhere.
    unsafe fn store_to(self, p: *mut f64);
    unsafe fn splat(x: f64) -> Self;
    /// Asks for a chunk that will be read soon. Changes nothing.
    #[inline(always)]
    unsafe fn prefetch(_: *const Chunk) {}
    unsafe fn add(self, o: Self) -> Self;
    unsafe fn mul(self, o: Self) -> Self;
    /// `self * b + c`.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// `c - self * b`.
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// [`tree`] of each of `L` values.
    unsafe fn sums<const L: usize>(v: &[Self; L]) -> [f64; L];
}

/// Any processor.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f64; 8]);

impl Vector for Portable {
    const ROWS: usize = 1;
    #[inline(always)]
    unsafe fn load(p: *const Chunk) -> Self {
        // SAFETY: the caller gives a valid chunk.
        Self(unsafe { (*p).0 })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut Chunk) {
        // SAFETY: the caller gives a valid chunk.
        unsafe { (*p).0 = self.0 }
    }
    #[inline(always)]
    unsafe fn load_from(p: *const f64) -> Self {
        // SAFETY: the caller gives eight valid numbers.
        Self(unsafe { p.cast::<[f64; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store_to(self, p: *mut f64) {
        // SAFETY: as above.
        unsafe { p.cast::<[f64; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn splat(x: f64) -> Self {
        Self([x; 8])
    }
    #[inline(always)]
    unsafe fn add(self, o: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + o.0[i]))
    }
    #[inline(always)]
    unsafe fn mul(self, o: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * o.0[i]))
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| (-self.0[i]).mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    unsafe fn sums<const L: usize>(v: &[Self; L]) -> [f64; L] {
        std::array::from_fn(|l| tree(v[l].0))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Chunk, Vector, tree};
    use std::arch::x86_64::*;

    /// Two 256-bit halves.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256d, __m256d);

    // SAFETY (all blocks below): the trait's contract says that AVX2 and FMA
    // are available and that pointers are valid chunks (64-byte aligned).
    impl Vector for Avx2 {
        const ROWS: usize = 1;
        #[inline(always)]
        unsafe fn prefetch(p: *const Chunk) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn load(p: *const Chunk) -> Self {
            unsafe { Self(_mm256_load_pd(p.cast()), _mm256_load_pd(p.cast::<f64>().add(4))) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut Chunk) {
            unsafe {
                _mm256_store_pd(p.cast(), self.0);
                _mm256_store_pd(p.cast::<f64>().add(4), self.1);
            }
        }
        #[inline(always)]
        unsafe fn load_from(p: *const f64) -> Self {
            unsafe { Self(_mm256_loadu_pd(p), _mm256_loadu_pd(p.add(4))) }
        }
        #[inline(always)]
        unsafe fn store_to(self, p: *mut f64) {
            unsafe {
                _mm256_storeu_pd(p, self.0);
                _mm256_storeu_pd(p.add(4), self.1);
            }
        }
        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            unsafe { Self(_mm256_set1_pd(x), _mm256_set1_pd(x)) }
        }
        #[inline(always)]
        unsafe fn add(self, o: Self) -> Self {
            unsafe { Self(_mm256_add_pd(self.0, o.0), _mm256_add_pd(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn mul(self, o: Self) -> Self {
            unsafe { Self(_mm256_mul_pd(self.0, o.0), _mm256_mul_pd(self.1, o.1)) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { Self(_mm256_fmadd_pd(self.0, b.0, c.0), _mm256_fmadd_pd(self.1, b.1, c.1)) }
        }
        #[inline(always)]
        unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
            unsafe { Self(_mm256_fnmadd_pd(self.0, b.0, c.0), _mm256_fnmadd_pd(self.1, b.1, c.1)) }
        }
        #[inline(always)]
        unsafe fn sums<const L: usize>(v: &[Self; L]) -> [f64; L] {
            let mut out = [0.0; L];
            // Values in pairs: hadd gives [x01, y01, x23, y23] for each of the two halves.
            let mut l = 0;
            while l + 2 <= L {
                unsafe {
                    let low = _mm256_hadd_pd(v[l].0, v[l + 1].0);
                    let high = _mm256_hadd_pd(v[l].1, v[l + 1].1);
                    let low = _mm_add_pd(_mm256_castpd256_pd128(low), _mm256_extractf128_pd::<1>(low));
                    let high = _mm_add_pd(_mm256_castpd256_pd128(high), _mm256_extractf128_pd::<1>(high));
                    _mm_storeu_pd(out.as_mut_ptr().add(l), _mm_add_pd(low, high));
                }
                l += 2;
            }
            if l < L {
                let mut last = Chunk::default();
                unsafe { v[l].store(&mut last) };
                out[l] = tree(last.0);
            }
            out
        }
    }

    /// One 512-bit register.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(__m512d);

    // SAFETY (all blocks below): the trait's contract says that AVX-512 F, DQ
    // and VL are available and that pointers are valid chunks (64-byte aligned).
    impl Vector for Avx512 {
        const ROWS: usize = 4;
        #[inline(always)]
        unsafe fn prefetch(p: *const Chunk) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn load(p: *const Chunk) -> Self {
            unsafe { Self(_mm512_load_pd(p.cast())) }
        }
        #[inline(always)]
        unsafe fn store(self, p: *mut Chunk) {
            unsafe { _mm512_store_pd(p.cast(), self.0) }
        }
        #[inline(always)]
        unsafe fn load_from(p: *const f64) -> Self {
            unsafe { Self(_mm512_loadu_pd(p)) }
        }
        #[inline(always)]
        unsafe fn store_to(self, p: *mut f64) {
            unsafe { _mm512_storeu_pd(p, self.0) }
        }
        #[inline(always)]
        unsafe fn splat(x: f64) -> Self {
            unsafe { Self(_mm512_set1_pd(x)) }
        }
        #[inline(always)]
        unsafe fn add(self, o: Self) -> Self {
            unsafe { Self(_mm512_add_pd(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn mul(self, o: Self) -> Self {
            unsafe { Self(_mm512_mul_pd(self.0, o.0)) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            unsafe { Self(_mm512_fmadd_pd(self.0, b.0, c.0)) }
        }
        #[inline(always)]
        unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self {
            unsafe { Self(_mm512_fnmadd_pd(self.0, b.0, c.0)) }
        }
        #[inline(always)]
        unsafe fn sums<const L: usize>(v: &[Self; L]) -> [f64; L] {
            // A transposing tree: 14 shuffles and 7 additions for eight sums. If L < 8, the last value fills the other places.
            let v = |l: usize| v[l.min(L - 1)].0;
            unsafe {
                // [a01, b01, a23, b23, a45, b45, a67, b67]
                let pair = |a: __m512d, b: __m512d| _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                let (ab, cd, ef, gh) = (pair(v(0), v(1)), pair(v(2), v(3)), pair(v(4), v(5)), pair(v(6), v(7)));
                // [a0123, b0123, a4567, b4567, c0123, d0123, c4567, d4567], then [a, b, c, d, ...]
                let quad = |x: __m512d, y: __m512d| {
                    _mm512_add_pd(_mm512_shuffle_f64x2::<0b10_00_10_00>(x, y), _mm512_shuffle_f64x2::<0b11_01_11_01>(x, y))
                };
                let mut all = Chunk::default();
                Self(quad(quad(ab, cd), quad(ef, gh))).store(&mut all);
                std::array::from_fn(|l| all.0[l])
            }
        }
    }
}
