//! A vector of eight f64 for each instruction set, with identical results on all of them.

use super::{Chunk, tree};

/// The numbers of a vector.
pub const WIDTH: usize = 8;

/// Eight f64. Every operation rounds once, element by element.
///
/// # Safety
/// Methods of an implementation may only run where its instruction set is
/// available, inlined into a function compiled for that set.
#[allow(clippy::missing_safety_doc, reason = "the trait's own section holds for all of them")]
pub trait Vector: Copy {
    /// The number of chunks of a matrix-vector product computed side by side, each with four registers for sums.
    const ROWS: usize;
    /// Loads a chunk.
    unsafe fn load(p: *const Chunk) -> Self;
    /// Stores a chunk.
    unsafe fn store(self, p: *mut Chunk);
    /// Loads eight unaligned numbers.
    unsafe fn load_from(p: *const f64) -> Self;
    /// Stores eight unaligned numbers.
    unsafe fn store_to(self, p: *mut f64);
    /// Loads the first n < 8 unaligned numbers, then zeros; reads nothing after them.
    unsafe fn load_first(p: *const f64, n: usize) -> Self;
    /// Stores the first n < 8 numbers, unaligned; writes nothing after them.
    unsafe fn store_first(self, p: *mut f64, n: usize);
    /// Eight times x.
    unsafe fn splat(x: f64) -> Self;
    /// The numbers at eight readable places after p.
    #[inline(always)]
    unsafe fn gather(p: *const f64, places: &[u16; WIDTH]) -> Self {
        // SAFETY: the caller says that there are numbers at these places.
        unsafe { Self::load(&Chunk(places.map(|place| *p.add(place as usize)))) }
    }
    /// Prefetches a chunk that will be read soon.
    #[inline(always)]
    unsafe fn prefetch(_: *const Chunk) {}
    /// Whether there are registers for about thirty vectors.
    const HAS_ROOM: bool;
    /// `self + o`.
    unsafe fn add(self, o: Self) -> Self;
    /// `self - o`.
    unsafe fn sub(self, o: Self) -> Self;
    /// `self * o`.
    unsafe fn mul(self, o: Self) -> Self;
    /// `self * b + c`.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// `c - self * b`.
    unsafe fn neg_mul_add(self, b: Self, c: Self) -> Self;
    /// [`tree`] of each of `L` values.
    unsafe fn sums<const L: usize>(v: &[Self; L]) -> [f64; L];
    /// `x_l - tree(v_l)` of each of `L` values; further places are undefined.
    #[inline(always)]
    unsafe fn differences<const L: usize>(x: &Chunk, v: &[Self; L]) -> Chunk {
        // SAFETY: as the caller says.
        let sums = unsafe { Self::sums(v) };
        Chunk(std::array::from_fn(|l| if l < L { x.0[l] - sums[l] } else { 0.0 }))
    }
}

/// Any processor.
#[derive(Clone, Copy)]
pub struct Portable([f64; 8]);

impl Vector for Portable {
    const ROWS: usize = 1;
    const HAS_ROOM: bool = false;
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
    unsafe fn load_first(p: *const f64, n: usize) -> Self {
        debug_assert!(n < WIDTH);
        // SAFETY: the caller gives n valid numbers.
        Self(std::array::from_fn(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f64, n: usize) {
        debug_assert!(n < WIDTH);
        // SAFETY: as above.
        self.0.iter().take(n).enumerate().for_each(|(i, x)| unsafe { *p.add(i) = *x });
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
    unsafe fn sub(self, o: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] - o.0[i]))
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
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Chunk, Vector, tree};
    use std::arch::x86_64::*;

    /// Masks of the first n < 8 places, for both halves.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn first(n: usize) -> (__m256i, __m256i) {
        debug_assert!(n < super::WIDTH);
        let n = _mm256_set1_epi64x(n as i64);
        (_mm256_cmpgt_epi64(n, _mm256_setr_epi64x(0, 1, 2, 3)), _mm256_cmpgt_epi64(n, _mm256_setr_epi64x(4, 5, 6, 7)))
    }

    /// Two 256-bit halves.
    #[derive(Clone, Copy)]
    pub struct Avx2(__m256d, __m256d);

    // SAFETY (all blocks below): the trait's contract says that AVX2 and FMA are available, that pointers to chunks are valid and aligned, and
    // that others have the numbers that a method reads or writes.
    impl Vector for Avx2 {
        const ROWS: usize = 1;
        const HAS_ROOM: bool = false;
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
        unsafe fn load_first(p: *const f64, n: usize) -> Self {
            unsafe {
                let (low, high) = first(n);
                Self(_mm256_maskload_pd(p, low), _mm256_maskload_pd(p.wrapping_add(4), high))
            }
        }
        #[inline(always)]
        unsafe fn store_first(self, p: *mut f64, n: usize) {
            unsafe {
                let (low, high) = first(n);
                _mm256_maskstore_pd(p, low, self.0);
                _mm256_maskstore_pd(p.wrapping_add(4), high, self.1);
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
        unsafe fn sub(self, o: Self) -> Self {
            unsafe { Self(_mm256_sub_pd(self.0, o.0), _mm256_sub_pd(self.1, o.1)) }
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
    pub struct Avx512(__m512d);

    // SAFETY (all blocks below): the trait's contract says that AVX-512 F, DQ and VL are available, that pointers to chunks are valid and
    // aligned, and that others have the numbers that a method reads or writes.
    impl Vector for Avx512 {
        const ROWS: usize = 4;
        const HAS_ROOM: bool = true;
        #[inline(always)]
        unsafe fn prefetch(p: *const Chunk) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        }
        #[inline(always)]
        unsafe fn gather(p: *const f64, places: &[u16; super::WIDTH]) -> Self {
            // SAFETY: the caller says that all places can be read; eight places are 16 bytes.
            unsafe {
                let places = _mm256_cvtepu16_epi32(_mm_loadu_si128(places.as_ptr().cast()));
                Self(_mm512_i32gather_pd::<8>(places, p))
            }
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
        unsafe fn load_first(p: *const f64, n: usize) -> Self {
            debug_assert!(n < super::WIDTH);
            unsafe { Self(_mm512_maskz_loadu_pd((1 << n) - 1, p)) }
        }
        #[inline(always)]
        unsafe fn store_first(self, p: *mut f64, n: usize) {
            debug_assert!(n < super::WIDTH);
            unsafe { _mm512_mask_storeu_pd(p, (1 << n) - 1, self.0) }
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
        unsafe fn sub(self, o: Self) -> Self {
            unsafe { Self(_mm512_sub_pd(self.0, o.0)) }
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
            let mut all = Chunk::default();
            unsafe { Self::trees(v).store(&mut all) };
            std::array::from_fn(|l| all.0[l])
        }
        #[inline(always)]
        unsafe fn differences<const L: usize>(x: &Chunk, v: &[Self; L]) -> Chunk {
            let mut all = Chunk::default();
            unsafe { Self::load(x).sub(Self::trees(v)).store(&mut all) };
            all
        }
    }

    impl Avx512 {
        /// [`tree`] of each of `L` values; the last one fills the other places.
        #[inline(always)]
        unsafe fn trees<const L: usize>(v: &[Self; L]) -> Self {
            // 14 shuffles and 7 additions for eight sums.
            let v = |l: usize| v[l.min(L - 1)].0;
            unsafe {
                // [a01, b01, a23, b23, a45, b45, a67, b67]
                let pair = |a: __m512d, b: __m512d| _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
                let (ab, cd, ef, gh) = (pair(v(0), v(1)), pair(v(2), v(3)), pair(v(4), v(5)), pair(v(6), v(7)));
                // [a0123, b0123, a4567, b4567, c0123, d0123, c4567, d4567], then [a, b, c, d, ...]
                let quad = |x: __m512d, y: __m512d| {
                    _mm512_add_pd(_mm512_shuffle_f64x2::<0b10_00_10_00>(x, y), _mm512_shuffle_f64x2::<0b11_01_11_01>(x, y))
                };
                Self(quad(quad(ab, cd), quad(ef, gh)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::kernel::Isa;

    fn takes_first<V: Vector>() {
        for n in 0..WIDTH {
            // Numbers after the first n must not be read.
            let from: [f64; WIDTH] = std::array::from_fn(|i| if i < n { 1.0 + i as f64 } else { f64::NAN });
            let (mut loaded, mut stored) = ([-1.0; WIDTH], [-1.0; WIDTH]);
            // SAFETY: the caller has looked for the instruction set; there are n numbers, and room for eight.
            unsafe {
                V::load_first(from.as_ptr(), n).store_to(loaded.as_mut_ptr());
                V::splat(9.0).store_first(stored.as_mut_ptr(), n);
            }
            assert!((0..WIDTH).all(|i| loaded[i] == if i < n { from[i] } else { 0.0 }), "{n}: {loaded:?}");
            assert!((0..WIDTH).all(|i| stored[i] == if i < n { 9.0 } else { -1.0 }), "{n}: {stored:?}");
        }
    }

    #[test]
    fn only_the_first_numbers_are_taken_and_written() {
        takes_first::<Portable>();
        #[cfg(target_arch = "x86_64")]
        if Isa::Avx2.is_available() {
            takes_first::<Avx2>();
        }
        #[cfg(target_arch = "x86_64")]
        if Isa::Avx512.is_available() {
            takes_first::<Avx512>();
        }
    }
}
