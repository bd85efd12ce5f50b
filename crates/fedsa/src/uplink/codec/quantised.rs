//! Uniform quantisation to b bits per component.
//!
//! ```text
//! s   = max_j |x_j|                       sent exactly
//! D   = 2 s / (2^b - 1)                   the step; levels 0 .. 2^b - 1 stand for -s .. s
//! y_j = (x_j + s) / D
//! stochastic:  q_j = floor(y_j + u_j + 1/2),   x^_j = q_j D - s
//! dither:      q_j = floor(y_j + u_j + 1/2),   x^_j = (q_j - u_j) D - s
//! nearest:     q_j = floor(y_j + 1/2),         x^_j = q_j D - s
//! ```
//! with `u_j` uniform on `[-1/2, 1/2)`, i.i.d., from a stream that both ends can open. Source: \[T\] Def. 4.2.2; the same rounding as
//! QSGD's up to the scale.
//!
//! **Error** `e = x^ - x`, n components:
//! - *stochastic* (non-subtractive dither): `E e = 0`, `|e_j| < D`,
//!   `E e_j^2 = D^2 f (1 - f) <= D^2/4` with f the fraction of `y_j`. As `s <= ||x||`,
//!   `E ||e||^2 <= zeta ||x||^2` with `zeta <= n / (2^b - 1)^2`.
//! - *dither* (subtractive): e_j is uniform on `[-D/2, D/2]` and independent of x, so
//!   `E e = 0`, `E e_j^2 = D^2/12`. `x^` may exceed s by D/2.
//! - *nearest*: `|e_j| <= D/2`, biased and deterministic, for use with error feedback.
//!   Ties are rounded up.
//!
//! **In f64.** `y_j` is held in fixed point with `F = min(32, 52 - b)` bits behind the point, and `u_j + 1/2` is `r / 2^F` with r uniform
//! on `0 .. 2^F - 1`. With the integer `Y = 2^F y`, rounded, `q = (Y + r) >> F`. Then `P(q = floor(Y / 2^F) + 1)` is exactly the fraction
//! of `Y / 2^F`, so `E q = Y / 2^F`. The only bias is the rounding of Y, at most `2^-(F+1) D`, and the rounding of `x / s + 1`, of its
//! product with `2^(F-1) (2^b - 1)` and in the decoder, together below `2^-50 s`. For `b <= 20` the first is `2^-33` steps, visible only in
//! a mean over about 2^64 components, as the noise is up to D/2. For larger b it is below `2^-51 s`. The subtracted dither is `(r + 1/2) /
//! 2^F - 1/2`, so for every Y the error is uniform on `2^F` points, symmetric about 0, with variance `D^2/12 (1 - 2^-2F)`. Two components
//! share a draw of 64 bits. From 52 bits on, D has the size of the rounding error of s: all rounding is to nearest, without random draws,
//! and `|e_j| <= 2^-49 s`. If s is subnormal, add the smallest subnormal number to every bound.
//!
//! **Special cases.** x = 0 is decoded as 0 for every b. If x contains an infinity or NaN, all
//! components are decoded as NaN. Numbers up to the largest f64 are allowed; if subtracting the
//! dither would exceed it, the result is the largest f64.
//!
//! **Payload**, little endian: b u8, s f64, then the q_j, b bits each without gaps, lowest bit first, padded to a whole byte with zeros
//! (not read); `9 + ceil(n b / 8)` bytes. A budget does not count the nine bytes before the components. With budget B a component has
//! `min(b, B)` bits; no message is sent if B = 0.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bits::{self, BLOCK, largest, packed_len};
use super::{Codec, CodecSettings, malformed};
use crate::error::{Result, require};
use crate::kernel::Isa;
use crate::random::Stream;

/// A uniform quantiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Quantised {
    /// Bits per component b.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub bits: u32,
    /// Rounding to levels.
    #[serde(default)]
    pub rounding: Rounding,
}

impl Quantised {
    /// With `bits` bits per component and stochastic rounding.
    pub const fn new(bits: u32) -> Self {
        Self { bits, rounding: Rounding::Stochastic }
    }
}

crate::settings::setters! { Quantised {
    with_bits(bits: u32) = bits;
    with_rounding(rounding: Rounding) = rounding;
} }

/// Rounding to levels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Up or down at random, unbiased.
    #[default]
    Stochastic,
    /// A dither that the decoder subtracts: unbiased, error independent of x.
    Dither,
    /// To nearest, biased.
    Nearest,
}

impl CodecSettings for Quantised {
    fn check(&self) -> Result<()> {
        require((1..=64).contains(&self.bits), "bits", self.bits, "between 1 and 64")
    }
    fn build(&self) -> Arc<dyn Codec> {
        Arc::new(Quantiser::new(*self, Isa::best()))
    }
}

/// Bytes before the packed levels.
const HEAD: usize = 9;
/// From this number of bits on, all rounding is to nearest, because `b + F` must not exceed 52.
const FINE: u32 = 52;
/// 2^52: an f64 in [2^52, 2^53) has an integer as its mantissa.
const TWO52: f64 = (1u64 << 52) as f64;

/// The uniform quantiser.
struct Quantiser {
    settings: Quantised,
    isa: Isa,
}

impl Quantiser {
    fn new(settings: Quantised, isa: Isa) -> Self {
        assert!(isa.is_available() && (1..=64).contains(&settings.bits));
        Self { settings, isa }
    }

    /// The bits of a component under a budget.
    fn bits(&self, budget: Option<u32>) -> u32 {
        budget.map_or(self.settings.bits, |budget| budget.min(self.settings.bits))
    }
}

/// Only the settings: this text enters a federation's hash, which must not depend on processors.
impl std::fmt::Debug for Quantiser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}

impl Serialize for Quantiser {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.settings.serialize(to)
    }
}

impl Codec for Quantiser {
    fn tag(&self) -> u8 {
        2
    }
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize> {
        let b = self.bits(budget);
        (b > 0).then(|| packed_len(n, b).saturating_add(HEAD))
    }
    fn encode(&self, x: &[f64], budget: Option<u32>, stream: &mut Stream, out: &mut Vec<u8>) {
        let b = self.bits(budget);
        assert!(b > 0, "the budget carries no message");
        let start = out.len();
        out.resize(start + HEAD + packed_len(x.len(), b), 0);
        let (head, levels) = out[start..].split_at_mut(HEAD);
        head[0] = b as u8;
        let scale = run(self.isa, Encode { b, rounding: self.settings.rounding, x, stream, out: levels });
        head[1..].copy_from_slice(&scale.to_le_bytes());
    }
    fn decode(&self, bytes: &[u8], stream: &mut Stream, out: &mut [f64]) -> Result<usize> {
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else {
            return Err(malformed(format!("{} bytes, fewer than the {HEAD} before the levels", bytes.len())));
        };
        let b = u32::from(head[0]);
        if !(1..=self.settings.bits).contains(&b) {
            return Err(malformed(format!("{b} bits per component; the settings allow 1 to {}", self.settings.bits)));
        }
        let scale = f64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
        if scale.is_sign_negative() && !scale.is_nan() || scale.is_infinite() {
            return Err(malformed(format!("a scale of {scale}")));
        }
        let len = packed_len(out.len(), b);
        let levels = rest.get(..len).ok_or_else(|| malformed(format!("{} bytes for {} levels of {b} bits", rest.len(), out.len())))?;
        if scale > 0.0 {
            run(self.isa, Decode { b, rounding: self.settings.rounding, scale, levels, stream, out });
        } else {
            out.fill(scale); // 0, or NaN
        }
        Ok(HEAD + len)
    }
    fn min_len(&self, n: usize) -> usize {
        packed_len(n, 1).saturating_add(HEAD)
    }
    fn is_unbiased(&self) -> bool {
        self.settings.rounding != Rounding::Nearest
    }
}

/// F: the number of fractional bits of `y` in fixed point, for `b < FINE`.
#[inline(always)]
const fn fraction_bits(b: u32) -> u32 {
    if b < 20 { 32 } else { FINE - b }
}

/// The random integers of F bits of one block. Two components share a draw; the first uses its low half.
#[inline(always)]
fn draw(stream: &mut Stream, f: u32, out: &mut [u64]) {
    let mut draws = [0; BLOCK / 2];
    let draws = &mut draws[..out.len().div_ceil(2)];
    draws.iter_mut().for_each(|d| *d = stream.bits());
    let mut pairs = out.chunks_exact_mut(2);
    for (pair, d) in (&mut pairs).zip(&*draws) {
        pair[0] = (d & u64::from(u32::MAX)) >> (32 - f);
        pair[1] = d >> (64 - f);
    }
    if let ([last], Some(d)) = (pairs.into_remainder(), draws.last()) {
        *last = (d & u64::from(u32::MAX)) >> (32 - f);
    }
}

/// A loop that is compiled for each instruction set, with the same result.
trait Work {
    type Output;
    fn run(self) -> Self::Output;
}

/// Runs the loop with an instruction set, which must be available.
fn run<W: Work>(isa: Isa, work: W) -> W::Output {
    // SAFETY: `Quantiser::new` checked the instruction set.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => run_avx512(work),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => run_avx2(work),
            _ => work.run(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn run_avx512<W: Work>(work: W) -> W::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn run_avx2<W: Work>(work: W) -> W::Output {
    work.run()
}

/// Quantises `x` and packs the levels; returns the scale, which is NaN if x is not finite.
struct Encode<'a> {
    b: u32,
    rounding: Rounding,
    x: &'a [f64],
    stream: &'a mut Stream,
    out: &'a mut [u8],
}

impl Work for Encode<'_> {
    type Output = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        let Encode { b, rounding, x, stream, out } = self;
        // Without signs, f64 have the same order as their bits; NaN is the largest.
        let scale = x.iter().map(|x| (x.to_bits() & (u64::MAX >> 1)) as i64).fold(0, i64::max);
        let scale = f64::from_bits(scale as u64);
        if !scale.is_finite() {
            return f64::NAN;
        }
        if scale == 0.0 {
            return 0.0;
        }
        let mut q = [0; BLOCK];
        let blocks = x.chunks(BLOCK).zip(out.chunks_mut(packed_len(BLOCK, b)));
        if b >= FINE {
            let half = largest(b) as f64 / 2.0;
            for (x, out) in blocks {
                for (q, x) in q.iter_mut().zip(x) {
                    *q = (((x / scale + 1.0) * half + 0.5) as u64).min(largest(b));
                }
                bits::pack_block(&q[..x.len()], b, out);
            }
            return scale;
        }
        let f = fraction_bits(b);
        let unit = (largest(b) << (f - 1)) as f64; // 2^F / D for s = 1; exact
        let mut r = [1 << (f - 1); BLOCK];
        for (x, out) in blocks {
            if rounding != Rounding::Nearest {
                draw(stream, f, &mut r[..x.len()]);
            }
            for ((q, x), r) in q.iter_mut().zip(x).zip(&r) {
                let y = (x / scale + 1.0) * unit; // in [0, 2^52 - 2^F]
                *q = (((y + TWO52).to_bits() & largest(52)) + r) >> f;
            }
            bits::pack_block(&q[..x.len()], b, out);
        }
        scale
    }
}

/// Unpacks levels, for a positive finite scale.
struct Decode<'a> {
    b: u32,
    rounding: Rounding,
    scale: f64,
    levels: &'a [u8],
    stream: &'a mut Stream,
    out: &'a mut [f64],
}

impl Work for Decode<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Decode { b, rounding, scale, levels, stream, out } = self;
        let mut q = [0; BLOCK];
        let top = largest(b) as f64;
        let blocks = out.chunks_mut(BLOCK).zip(levels.chunks(packed_len(BLOCK, b)));
        if b >= FINE {
            for (out, levels) in blocks {
                bits::unpack_block(levels, b, &mut q[..out.len()]);
                for (out, q) in out.iter_mut().zip(&q) {
                    // x^ = s (2q - L) / L with L the top level.
                    let below = largest(b) - q;
                    let twice = if *q > below { (q - below) as f64 } else { -((below - q) as f64) };
                    *out = twice / top * scale;
                }
            }
            return;
        }
        let f = fraction_bits(b);
        let ulp = 1.0 / (1u64 << f) as f64;
        let mut r = [0; BLOCK];
        for (out, levels) in blocks {
            bits::unpack_block(levels, b, &mut q[..out.len()]);
            if rounding == Rounding::Dither {
                draw(stream, f, &mut r[..out.len()]);
                for ((out, q), r) in out.iter_mut().zip(&q).zip(&r) {
                    let u = (real(*r) + 0.5) * ulp - 0.5;
                    let twice = 2.0 * real(*q) - top - 2.0 * u;
                    *out = (twice / top * scale).clamp(-f64::MAX, f64::MAX);
                }
            } else {
                for (out, q) in out.iter_mut().zip(&q) {
                    *out = (2.0 * real(*q) - top) / top * scale;
                }
            }
        }
    }
}

/// An integer below 2^52 as f64, exactly. This is a vector operation on any processor.
#[inline(always)]
fn real(q: u64) -> f64 {
    f64::from_bits(q | TWO52.to_bits()) - TWO52
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{ALL, Purpose, stream};

    const ROUNDINGS: [Rounding; 3] = [Rounding::Stochastic, Rounding::Dither, Rounding::Nearest];

    fn open(round: u64) -> Stream {
        stream(5, Purpose::Codec, round, ALL)
    }

    fn there_and_back(codec: &Quantiser, x: &[f64], round: u64) -> (Vec<u8>, Vec<f64>) {
        let (mut bytes, mut back) = (Vec::new(), vec![f64::NAN; x.len()]);
        codec.encode(x, None, &mut open(round), &mut bytes);
        assert_eq!(codec.decode(&bytes, &mut open(round), &mut back).unwrap(), bytes.len());
        (bytes, back)
    }

    #[test]
    fn the_text_of_a_quantiser_is_its_settings() {
        let text = |isa| format!("{:?}", Quantiser::new(Quantised { bits: 4, rounding: Rounding::Nearest }, isa));
        assert!(Isa::available().into_iter().all(|isa| text(isa) == text(Isa::Portable)));
        assert!(text(Isa::Portable).contains("bits: 4"));
    }

    #[test]
    fn all_instruction_sets_agree_to_the_bit() {
        let mut normals = open(0);
        for (i, n) in [1, 7, 64, 129, 500].into_iter().enumerate() {
            let x: Vec<f64> = (0..n).map(|_| normals.normal()).collect();
            for bits in 1..=64 {
                for rounding in ROUNDINGS {
                    let of = |isa| there_and_back(&Quantiser::new(Quantised { bits, rounding }, isa), &x, i as u64);
                    let portable = of(Isa::Portable);
                    Isa::available().into_iter().for_each(|isa| assert_eq!(of(isa), portable, "{isa:?}, {bits} bits, {rounding:?}"));
                }
            }
        }
    }

    #[test]
    fn the_fixed_point_has_room() {
        for b in 1..FINE {
            let f = fraction_bits(b);
            assert!((1..=32).contains(&f) && b + f <= 52);
            // The largest sum, (L << F) + 2^F - 1, still has level L.
            assert_eq!(((largest(b) << f) + largest(f)) >> f, largest(b));
            assert_eq!((largest(b) << (f - 1)) as f64 as u64, largest(b) << (f - 1));
        }
    }

    #[test]
    fn components_share_a_draw_but_no_bits_of_it() {
        for (n, f) in [(1, 32), (2, 32), (7, 5), (BLOCK, 1)] {
            let (mut r, mut shared, mut reference) = (vec![0; n], open(3), open(3));
            draw(&mut shared, f, &mut r);
            for pair in r.chunks(2) {
                let bits = reference.bits();
                let halves = [bits & 0xffff_ffff, bits >> 32].map(|half| half >> (32 - f));
                assert_eq!(pair, &halves[..pair.len()]);
            }
            assert_eq!(shared, reference);
        }
    }

    /// The levels as the formulas say, without fixed point.
    #[test]
    fn levels_are_those_of_the_formulas() {
        let mut normals = open(1);
        let x: Vec<f64> = (0..301).map(|_| normals.normal()).collect();
        let s = x.iter().fold(0.0f64, |s, x| s.max(x.abs()));
        for bits in 1..=30 {
            let step = 2.0 * s / largest(bits) as f64;
            for rounding in ROUNDINGS {
                let codec = Quantiser::new(Quantised { bits, rounding }, Isa::best());
                let (bytes, back) = there_and_back(&codec, &x, 9);
                let mut levels = vec![0; x.len()];
                bits::unpack(&bytes[HEAD..], bits, &mut levels);
                let (mut shared, f) = (open(9), fraction_bits(bits));
                let mut r = vec![0; x.len()];
                r.chunks_mut(BLOCK).for_each(|r| draw(&mut shared, f, r));
                for j in 0..x.len() {
                    let u = if rounding == Rounding::Nearest { 0.0 } else { (r[j] as f64 + 0.5) / (1u64 << f) as f64 - 0.5 };
                    let y = (x[j] + s) / step + u + 0.5;
                    let tolerance = 1e-14 * largest(bits) as f64 + 1e-9;
                    let q = levels[j] as f64;
                    assert!(y > q - tolerance && y < q + 1.0 + tolerance, "{bits} bits, {rounding:?}: {y} became {q}");
                    let decoded = if rounding == Rounding::Dither { (q - u) * step - s } else { q * step - s };
                    assert!((back[j] - decoded).abs() <= 1e-15 * s * 4.0);
                }
            }
        }
    }

    #[test]
    fn both_ends_of_the_range_are_exact() {
        for bits in 1..=64 {
            for rounding in [Rounding::Stochastic, Rounding::Nearest] {
                for s in [1.0, 0.1, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310] {
                    let codec = Quantiser::new(Quantised { bits, rounding }, Isa::best());
                    assert_eq!(there_and_back(&codec, &[s, -s, s], 0).1, [s, -s, s], "{bits} bits");
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_becomes_nan_everywhere() {
        for bits in [1, 8, 51, 52, 64] {
            for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let codec = Quantiser::new(Quantised { bits, rounding: Rounding::Dither }, Isa::best());
                let (bytes, back) = there_and_back(&codec, &[1.0, bad, -f64::MAX], 0);
                assert!(back.iter().all(|x| x.is_nan()));
                assert_eq!(bytes.len(), codec.encoded_len(3, None).unwrap());
            }
        }
    }

    /// The error of subtractive dither is uniform whatever x is: chi squared over
    /// 16 cells, 15 degrees of freedom, beyond 50 with probability 1e-5.
    #[test]
    fn subtracted_dither_leaves_a_uniform_error() {
        for bits in [1, 3, 8, 24, 40] {
            let codec = Quantiser::new(Quantised { bits, rounding: Rounding::Dither }, Isa::best());
            let x = [1.0, 0.0, -1.0, 0.3, -0.77];
            let half = 1.0 / largest(bits) as f64;
            let mut cells = [[0usize; 16]; 5];
            let draws = 4000;
            for round in 0..draws {
                let (_, back) = there_and_back(&codec, &x, round);
                for j in 0..x.len() {
                    let e = (back[j] - x[j]) / half;
                    assert!(e.abs() < 1.0 + 1e-6, "{bits} bits: {e}");
                    cells[j][(((e + 1.0) * 8.0) as usize).min(15)] += 1;
                }
            }
            let expected = draws as f64 / 16.0;
            for cells in cells {
                let chi: f64 = cells.iter().map(|c| (*c as f64 - expected).powi(2) / expected).sum();
                assert!(chi < 50.0, "{bits} bits: chi squared {chi}, {cells:?}");
            }
        }
    }

    #[test]
    fn what_no_encoder_makes_is_refused() {
        let codec = Quantiser::new(Quantised { bits: 4, rounding: Rounding::Stochastic }, Isa::best());
        let message = |b: u8, s: f64| [vec![b], s.to_le_bytes().to_vec(), vec![0x21, 3]].concat();
        let mut out = [0.0; 3];
        let mut decode = |bytes: &[u8]| codec.decode(bytes, &mut open(0), &mut out);
        assert_eq!(decode(&message(4, 1.0)).unwrap(), 11);
        assert_eq!(decode(&message(2, 1.0)).unwrap(), 10);
        for bad in [message(0, 1.0), message(5, 1.0), message(4, -1.0), message(4, f64::INFINITY), message(4, 1.0)[..10].to_vec()] {
            assert!(decode(&bad).is_err(), "{bad:?}");
        }
    }
}
