//! Integers of b bits, packed without gaps.
//!
//! Value i takes the bits `i b .. (i + 1) b` of the bit string whose bit p is bit `p mod 8` of byte `p / 8`; the last byte is padded with
//! zeros. Values are packed in blocks of [`BLOCK`], each of which starts at a byte. Within a block neighbours are merged in pairs (widths
//! b, 2b, 4b, ..) while twice the width fits into a word. At most half as many values then pass the serial loop, and the compiler
//! vectorises the merging loops.

/// Values per block; a multiple of 8.
pub(super) const BLOCK: usize = 128;
/// Up to this number of values, merging costs more than it saves.
const SHORT: usize = 16;

/// The bytes that `n` integers of `b` bits take.
pub(crate) fn packed_len(n: usize, b: u32) -> usize {
    // In two parts, so that the product does not overflow if the result does not.
    (n / 8).saturating_mul(b as usize).saturating_add((n % 8 * b as usize).div_ceil(8))
}

/// The largest integer of `b` bits, `1 <= b <= 64`.
#[inline(always)]
pub(crate) const fn largest(b: u32) -> u64 {
    u64::MAX >> (64 - b)
}

/// Packs `values`, each below `2^b`, into the `packed_len(values.len(), b)` bytes of `out`.
pub(crate) fn pack(values: &[u64], b: u32, out: &mut [u8]) {
    debug_assert_eq!(out.len(), packed_len(values.len(), b));
    for (values, out) in values.chunks(BLOCK).zip(out.chunks_mut(packed_len(BLOCK, b))) {
        pack_block(values, b, out);
    }
}

/// Reads `out.len()` integers from the `packed_len(out.len(), b)` bytes of `bytes`.
pub(crate) fn unpack(bytes: &[u8], b: u32, out: &mut [u64]) {
    debug_assert_eq!(bytes.len(), packed_len(out.len(), b));
    for (out, bytes) in out.chunks_mut(BLOCK).zip(bytes.chunks(packed_len(BLOCK, b))) {
        unpack_block(bytes, b, out);
    }
}

/// [`pack`] of at most [`BLOCK`] values.
#[inline(always)]
pub(super) fn pack_block(values: &[u64], mut b: u32, out: &mut [u8]) {
    debug_assert!((1..=64).contains(&b) && values.iter().all(|v| *v <= largest(b)));
    if b > 32 || values.len() <= SHORT {
        return join(values, b, out);
    }
    let (mut a, mut c) = ([0; BLOCK / 2], [0; BLOCK / 2]);
    let mut n = merge(values, b, &mut a);
    b *= 2;
    while b <= 32 {
        n = merge(&a[..n], b, &mut c);
        std::mem::swap(&mut a, &mut c);
        b *= 2;
    }
    join(&a[..n], b, out);
}

/// [`unpack`] of at most [`BLOCK`] values.
#[inline(always)]
pub(super) fn unpack_block(bytes: &[u8], b: u32, out: &mut [u64]) {
    if b > 32 || out.len() <= SHORT {
        return part(bytes, b, out);
    }
    let (mut a, mut c) = ([0; BLOCK / 2], [0; BLOCK / 2]);
    let doublings = (64 / b).ilog2();
    part(bytes, b << doublings, &mut a[..out.len().div_ceil(1 << doublings)]);
    for i in (1..doublings).rev() {
        let n = out.len().div_ceil(1 << i);
        split(&a, b << i, &mut c[..n]);
        std::mem::swap(&mut a, &mut c);
    }
    split(&a, b, out);
}

/// Merges neighbours of `b` bits into integers of `2b` bits; returns their number.
#[inline(always)]
fn merge(values: &[u64], b: u32, out: &mut [u64]) -> usize {
    let pairs = values.chunks_exact(2);
    if let [last] = pairs.remainder() {
        out[values.len() / 2] = *last;
    }
    for (out, pair) in out.iter_mut().zip(pairs) {
        *out = pair[0] | pair[1] << b;
    }
    values.len().div_ceil(2)
}

/// Splits integers of `2b` bits into the neighbours of `b` bits that [`merge`] joined.
#[inline(always)]
fn split(values: &[u64], b: u32, out: &mut [u64]) {
    let mask = largest(b);
    let n = out.len();
    let mut pairs = out.chunks_exact_mut(2);
    for (pair, value) in (&mut pairs).zip(values) {
        pair[0] = value & mask;
        pair[1] = value >> b;
    }
    if let [last] = pairs.into_remainder() {
        *last = values[n / 2] & mask;
    }
}

/// Writes integers of `b` bits one after the other through a 64-bit word.
/// Bits beyond the end of `out` are zeros that [`merge`] added; they are not written.
#[inline(always)]
fn join(values: &[u64], b: u32, out: &mut [u8]) {
    let mut words = out.chunks_exact_mut(8);
    let (mut word, mut filled) = (0u64, 0);
    for &value in values {
        word |= value << filled;
        filled += b;
        if filled >= 64 {
            filled -= 64;
            match words.next() {
                Some(out) => out.copy_from_slice(&word.to_le_bytes()),
                None => break,
            }
            // The `filled` high bits of the value are still to be written.
            word = if filled == 0 { 0 } else { value >> (b - filled) };
        }
    }
    let rest = match words.next() {
        Some(last) => last,
        None => words.into_remainder(),
    };
    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
}

/// Reads integers of `b` bits; bits beyond the end of `bytes` are zeros.
#[inline(always)]
fn part(bytes: &[u8], b: u32, out: &mut [u64]) {
    let mask = largest(b);
    let mut words = [0u64; BLOCK + 2];
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words[bytes.len() / 8] = u64::from_le_bytes(last);
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
    }
    for (i, out) in out.iter_mut().enumerate() {
        let bit = i * b as usize;
        let (at, shift) = (bit / 64, bit % 64);
        *out = (words[at] >> shift | words[at + 1] << 1 << (63 - shift)) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{ALL, Purpose, stream};

    /// Bit by bit, as the format says.
    fn slowly(values: &[u64], b: u32) -> Vec<u8> {
        let mut out = vec![0; packed_len(values.len(), b)];
        for (i, value) in values.iter().enumerate() {
            for j in 0..b as usize {
                let p = i * b as usize + j;
                out[p / 8] |= ((value >> j & 1) as u8) << (p % 8);
            }
        }
        out
    }

    #[test]
    fn every_width_and_length_packs_as_the_format_says() {
        let mut draw = stream(1, Purpose::Codec, 0, ALL);
        for b in 1..=64 {
            for n in (0..=70).chain([127, 128, 129, 255, 256, 257, 300]) {
                let values: Vec<u64> = (0..n).map(|_| draw.bits() >> (64 - b)).collect();
                let mut bytes = vec![0xff; packed_len(n, b)];
                pack(&values, b, &mut bytes);
                assert_eq!(bytes, slowly(&values, b), "{n} of {b} bits");
                let mut back = vec![u64::MAX; n];
                unpack(&bytes, b, &mut back);
                assert_eq!(back, values, "{n} of {b} bits");
            }
        }
    }

    #[test]
    fn padding_is_not_read() {
        for b in 1..=64 {
            for n in 1..=9 {
                let mut back = vec![0; n];
                unpack(&vec![0xff; packed_len(n, b)], b, &mut back);
                assert_eq!(back, vec![largest(b); n]);
            }
        }
    }

    #[test]
    fn lengths_do_not_overflow_before_the_result_does() {
        assert_eq!(packed_len(usize::MAX, 1), usize::MAX / 8 + 1);
        assert_eq!(packed_len(usize::MAX, 64), usize::MAX);
        assert_eq!(packed_len(3, 3), 2);
    }
}
