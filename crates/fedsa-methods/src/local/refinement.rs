//! Bits that an answer of Q-SHED adds to the server's copy of an agent's eigenvectors, as bytes.
//!
//! A message has two parts: the *refinement* says how many bits each vector gets, and the *digits* are these bits. Both are bit strings,
//! with the first bit in the lowest bit of the first byte, padded with zeros to whole bytes. A refinement consists of
//!
//! | content | bits |
//! | --- | --- |
//! | checksum of the previous bits of all vectors ([`checksum`]) | 32 |
//! | the first vector that gets bits, and the number of vectors from it on | 16 + 16 |
//! | for each of these, the bits that it gets, 0 or more | 6 |
//! | if there are any, the components that are then across ([`BitWriter::push_across`]) | 3, 16 each |
//!
//! Digits follow for each vector in this order, component by component.

use crate::nested_grid::{MAX_ACROSS, MAX_BITS};

/// The bits that one vector gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct More {
    /// The bits per component, at most [`MAX_BITS`].
    pub bits: u32,
    /// The components that are across with these bits, increasing.
    pub across: Vec<u16>,
}

/// The bits that an answer adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refinement {
    /// The checksum of the previous bits of all vectors.
    pub base: u32,
    /// The first vector that gets bits.
    pub start: usize,
    /// The bits of this vector and of later ones.
    pub more: Vec<More>,
}

/// Bits of a refinement's head, a number of bits, a number of components, and an index.
const HEAD: usize = 64;
const BITS: u32 = 6;
const COUNT: u32 = 3;
const INDEX: u32 = 16;

/// The most bits of one vector's components that are across.
pub const MAX_ACROSS_BITS: usize = COUNT as usize + MAX_ACROSS * INDEX as usize;

/// The checksum of the bits per component of each vector: a CRC-32 with one byte each.
pub fn checksum(bits: &[u32]) -> u32 {
    crc32fast::hash(&bits.iter().map(|bits| *bits as u8).collect::<Vec<u8>>())
}

impl Refinement {
    /// The most bytes for q vectors.
    pub fn most_bytes(q: usize) -> usize {
        (HEAD + q * (BITS as usize + MAX_ACROSS_BITS)).div_ceil(8)
    }

    /// The bits per component of all vectors together.
    pub fn total(&self) -> u64 {
        self.more.iter().map(|more| u64::from(more.bits)).sum()
    }

    /// The vector after the last one that gets bits.
    pub fn end(&self) -> usize {
        self.start + self.more.len()
    }

    /// Its bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut out = BitWriter::default();
        out.push(self.base, 32);
        out.push(self.start as u32, INDEX);
        out.push(self.more.len() as u32, INDEX);
        for More { bits, across } in &self.more {
            out.push(*bits, BITS);
            if *bits > 0 {
                out.push_across(across);
            }
        }
        out.finish()
    }

    /// The refinement from the bytes of [`Refinement::pack`], for vectors of d components; `None` if the bytes are invalid.
    pub fn unpack(bytes: &[u8], d: usize) -> Option<Self> {
        let mut from = BitReader::new(bytes);
        let (base, start, count) = (from.take(32)?, from.take(INDEX)? as usize, from.take(INDEX)?);
        let mut more = Vec::new();
        for _ in 0..count {
            let bits = from.take(BITS)?;
            let across = if bits > 0 { from.take_across(d)? } else { Vec::new() };
            if bits > MAX_BITS {
                return None;
            }
            more.push(More { bits, across });
        }
        from.is_at_end().then_some(Self { base, start, more })
    }

    /// The bytes of the digits for vectors of d components.
    pub fn digits_len(&self, d: usize) -> usize {
        usize::try_from(self.total()).map_or(usize::MAX, |total| total.saturating_mul(d).div_ceil(8))
    }
}

/// Writes numbers of few bits one after the other.
#[derive(Debug, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    word: u64,
    filled: u32,
}

impl BitWriter {
    /// Appends a number below `2^bits`, of at most 32 bits.
    pub fn push(&mut self, x: u32, bits: u32) {
        debug_assert!(bits <= 32 && u64::from(x) >> bits == 0);
        self.word |= u64::from(x) << self.filled;
        self.filled += bits;
        while self.filled >= 8 {
            self.bytes.push(self.word as u8);
            self.word >>= 8;
            self.filled -= 8;
        }
    }

    /// Appends the components that are across (`crate::nested_grid`), at most [`MAX_ACROSS`] in increasing order: their number in 3 bits,
    /// then the index of each in 16.
    pub fn push_across(&mut self, across: &[u16]) {
        self.push(across.len() as u32, COUNT);
        across.iter().for_each(|i| self.push(u32::from(*i), INDEX));
    }

    /// The bytes; zeros fill up the last one.
    pub fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.bytes.push(self.word as u8);
        }
        self.bytes
    }
}

/// Reads the bytes of a [`BitWriter`].
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    word: u64,
    filled: u32,
}

impl<'a> BitReader<'a> {
    /// At the first bit.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: bytes.iter(), word: 0, filled: 0 }
    }

    /// The next number, of at most 32 bits; `None` if there are fewer.
    pub fn take(&mut self, bits: u32) -> Option<u32> {
        debug_assert!(bits <= 32);
        while self.filled < bits {
            self.word |= u64::from(*self.bytes.next()?) << self.filled;
            self.filled += 8;
        }
        let x = self.word & ((1 << bits) - 1);
        self.word >>= bits;
        self.filled -= bits;
        Some(x as u32)
    }

    /// The components from [`BitWriter::push_across`], for a vector of d components; `None` if there are too few bits, or invalid ones:
    /// more than [`MAX_ACROSS`], not increasing, or not below d.
    pub fn take_across(&mut self, d: usize) -> Option<Vec<u16>> {
        let few = self.take(COUNT)? as usize;
        let across = (0..few).map(|_| self.take(INDEX).map(|i| i as u16)).collect::<Option<Vec<u16>>>()?;
        let fits = few <= MAX_ACROSS && across.is_sorted_by(|a, b| a < b) && across.last().is_none_or(|i| usize::from(*i) < d);
        fits.then_some(across)
    }

    /// Whether only the zeros that fill the last byte are left.
    pub fn is_at_end(&self) -> bool {
        self.bytes.as_slice().is_empty() && self.word == 0
    }
}

#[cfg(test)]
mod tests {
    use fedsa::random::{Purpose, stream};

    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut draws = stream(1, Purpose::Fresh, 0, 0);
        let d = 300;
        for case in 0..200 {
            let count = (draws.uniform() * 20.0) as usize;
            let mut one = || {
                let bits = (draws.uniform() * 33.0) as u32;
                let few = if bits > 0 { (draws.uniform() * 5.0) as u16 } else { 0 };
                More { bits, across: (0..few).map(|i| 70 * i + 9).collect() }
            };
            let more: Vec<More> = (0..count).map(|_| one()).collect();
            let refinement = Refinement { base: 0xfedc_ba98, start: case, more };
            let bytes = refinement.pack();
            assert!(bytes.len() <= Refinement::most_bytes(count));
            assert_eq!(Refinement::unpack(&bytes, d), Some(refinement.clone()));
            assert_eq!(refinement.digits_len(d), (refinement.total() as usize * d).div_ceil(8));
            // Truncated, or with trailing bytes.
            assert_eq!(Refinement::unpack(&bytes[..bytes.len() - 1], d), None);
            assert_eq!(Refinement::unpack(&[&bytes[..], &[0]].concat(), d), None);
        }
    }

    #[test]
    fn any_bytes_are_unpacked_or_refused() {
        let mut draws = stream(2, Purpose::Fresh, 0, 0);
        let (mut read, mut bytes) = (0, vec![0u8; 40]);
        for _ in 0..20_000 {
            bytes.iter_mut().for_each(|byte| *byte = draws.bits() as u8);
            // Few vectors, so that some are whole.
            (bytes[6], bytes[7]) = (bytes[6] % 8, 0);
            let length = (draws.uniform() * 40.0) as usize;
            if let Some(refinement) = Refinement::unpack(&bytes[..length], 1 << 15) {
                assert_eq!(refinement.pack(), bytes[..length]);
                read += 1;
            }
        }
        assert!(read > 20, "{read}");
        assert!(Refinement::unpack(&[0; 8], 3).is_some_and(|nothing| nothing == Refinement::default()));
    }

    #[test]
    fn components_across_come_back_in_order_below_d_or_are_refused() {
        let packed = |across: &[u16]| {
            let mut out = BitWriter::default();
            out.push_across(across);
            out.finish()
        };
        let most: Vec<u16> = (0..MAX_ACROSS as u16).map(|i| 9 * i).collect();
        assert_eq!(packed(&most).len(), MAX_ACROSS_BITS.div_ceil(8));
        for across in [&[][..], &[0], &[29], &most] {
            let bytes = packed(across);
            let mut from = BitReader::new(&bytes);
            assert_eq!(from.take_across(30).as_deref(), Some(across));
            assert!(from.is_at_end());
        }
        let more: Vec<u16> = (0..=MAX_ACROSS as u16).collect();
        for foreign in [&[30][..], &[3, 3], &[4, 3], &more] {
            assert_eq!(BitReader::new(&packed(foreign)).take_across(30), None, "{foreign:?}");
        }
        let bytes = packed(&[5, 7]);
        assert_eq!(BitReader::new(&bytes[..bytes.len() - 1]).take_across(30), None, "cut off");
    }

    #[test]
    fn numbers_of_any_width_come_back() {
        let mut draws = stream(3, Purpose::Fresh, 0, 0);
        let numbers: Vec<(u32, u32)> = (0..1000)
            .map(|_| {
                let bits = (draws.uniform() * 33.0) as u32;
                ((draws.bits() & ((1u64 << bits) - 1)) as u32, bits)
            })
            .collect();
        let mut out = BitWriter::default();
        numbers.iter().for_each(|(x, bits)| out.push(*x, *bits));
        let bytes = out.finish();
        assert_eq!(bytes.len(), numbers.iter().map(|(_, bits)| *bits as usize).sum::<usize>().div_ceil(8));
        let mut from = BitReader::new(&bytes);
        assert!(numbers.iter().all(|(x, bits)| from.take(*bits) == Some(*x)));
        assert!(from.is_at_end() && from.take(8).is_none());
    }
}
