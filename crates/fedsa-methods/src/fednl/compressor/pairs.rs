//! Leading eigenpairs of a matrix, `lambda v v^T` with canonical sign of v: as numbers, or as bytes with few bits per component of v.
//!
//! The bytes are a bit string as in [`crate::local::refinement`], with v quantised by [`crate::nested_grid`]:
//!
//! | content | bits |
//! | --- | --- |
//! | the number lambda, as an f64 | 64 |
//! | the components that are across ([`BitWriter::push_across`]) | 3, 16 each |
//! | the code of each component | b |

use fedsa::eigenpairs::leading::leading_pair;
use fedsa::linalg::{dot, norm_sq, triangle_vec};
use fedsa::message::{Body, Part};
use fedsa::protocol::Len;
use fedsa::random::Stream;
use fedsa::triangle::Support;

use super::{Compressed, Compressor, MatrixChange, are_bounded};
use crate::local::refinement::{BitReader, BitWriter, MAX_ACROSS_BITS};
use crate::nested_grid;

/// The eigenpair of largest magnitude.
#[derive(Debug)]
pub struct RankOne;

/// The largest difference between 1 and the squared norm of a pair's vector.
const LENGTH_ERROR: f64 = 1e-8;

impl Compressor for RankOne {
    fn part(&self, d: usize) -> (Part, Len) {
        (Part::RankOne, Len::AtMost(d + 1))
    }

    fn keeps_zeros(&self) -> bool {
        false
    }

    fn compressed(&self, support: &Support, m: &[f64], _: Stream) -> Compressed {
        let pair = leading_pair(m, support.rows());
        Compressed::alike(Body::Numbers(pair.map_or(Vec::new(), |(lambda, v)| [&[lambda], &v[..]].concat())))
    }

    /// The vector must also have norm 1.
    fn is_sound(&self, _: usize, body: &Body) -> bool {
        let has_length = |(_, v): (&f64, &[f64])| (norm_sq(v) - 1.0).abs() <= LENGTH_ERROR;
        matches!(body, Body::Numbers(x) if are_bounded(x) && x.split_first().is_none_or(has_length))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, _: Stream) -> Option<MatrixChange<'a>> {
        let pair = body.numbers().filter(|pair| pair.len() == d + 1)?;
        Some(MatrixChange::Outer(pair[0], pair[1..].into()))
    }
}

/// The same with this many bits per component of v, and lambda fitted to the rounded v. Both ends draw the offsets of the grid. It uses all
/// of the link's budget; gradients are sent outside of it.
#[derive(Debug)]
pub struct PackedPair(pub u32);

impl Compressor for PackedPair {
    fn part(&self, d: usize) -> (Part, Len) {
        (Part::PackedPair, Len::AtMost(most_bytes(d, self.0)))
    }

    fn keeps_zeros(&self) -> bool {
        false
    }

    fn budget(&self, d: usize) -> u64 {
        u64::from(self.0) * d as u64
    }

    fn compressed(&self, support: &Support, m: &[f64], stream: Stream) -> Compressed {
        let pair = leading_pair(m, support.rows());
        Compressed::alike(Body::Packed(pair.map_or(Vec::new(), |(_, v)| pack(m, &v, self.0, stream))))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, stream: Stream) -> Option<MatrixChange<'a>> {
        let Body::Packed(bytes) = body else { return None };
        unpack(bytes, d, self.0, stream).map(|(lambda, v)| MatrixChange::Outer(lambda, v.into()))
    }
}

/// Bits of lambda.
const LAMBDA: usize = 64;

/// The most bytes of a pair with d components of this many bits.
const fn most_bytes(d: usize, bits: u32) -> usize {
    (LAMBDA + MAX_ACROSS_BITS + d * bits as usize).div_ceil(8)
}

/// The bytes of `lambda v^ v^^T` for a vector v of norm 1: v^ is the decoded v. lambda minimises the distance of the product from the
/// matrix (lower triangle row by row), so that it never adds to the distance: `v^^T M v^ / ||v^||^4`, up to rounding the eigenvalue if v is
/// an eigenvector. `stream` draws the offsets of the grid.
fn pack(m: &[f64], v: &[f64], bits: u32, stream: Stream) -> Vec<u8> {
    let all_bits = nested_grid::codes(v, stream);
    let across = nested_grid::across(v, &all_bits, bits, stream);
    let codes: Vec<u32> = all_bits.iter().map(|code| nested_grid::leading(*code, bits)).collect();
    let v = nested_grid::decode(&codes, bits, &across, stream);
    let lambda = dot(&v, &triangle_vec(m, &v)) / dot(&v, &v).powi(2);
    let mut out = BitWriter::default();
    let number = lambda.to_bits();
    out.push(number as u32, 32);
    out.push((number >> 32) as u32, 32);
    out.push_across(&across);
    codes.iter().for_each(|code| out.push(*code, bits));
    out.finish()
}

/// Lambda and v^ of d components from the bytes of [`pack`]; `None` if the bytes are invalid, or lambda is not finite.
fn unpack(bytes: &[u8], d: usize, bits: u32, stream: Stream) -> Option<(f64, Vec<f64>)> {
    let mut from = BitReader::new(bytes);
    let lambda = f64::from_bits(u64::from(from.take(32)?) | u64::from(from.take(32)?) << 32);
    let across = from.take_across(d)?;
    let codes = (0..d).map(|_| from.take(bits)).collect::<Option<Vec<u32>>>()?;
    (lambda.is_finite() && from.is_at_end()).then(|| (lambda, nested_grid::decode(&codes, bits, &across, stream)))
}

#[cfg(test)]
mod tests {
    use fedsa::linalg::triangle_norm;
    use fedsa::random::{Purpose, stream};
    use fedsa::triangle::entries;

    use super::*;
    use crate::nested_grid::MAX_BITS;

    const D: usize = 20;

    fn matrix(seed: u64) -> Vec<f64> {
        let mut draw = stream(seed, Purpose::System, 0, 0);
        (0..entries(D)).map(|_| draw.normal()).collect()
    }

    fn grid(seed: u64) -> Stream {
        stream(seed, Purpose::Compressor, 0, 0)
    }

    /// The distance of a matrix from `lambda v v^T`.
    fn left(m: &[f64], lambda: f64, v: &[f64]) -> f64 {
        let mut rest = m.to_vec();
        (0..D).for_each(|i| (0..=i).for_each(|j| rest[entries(i) + j] -= lambda * v[i] * v[j]));
        triangle_norm(&rest, D)
    }

    /// For every number of bits: components are within half a cell, and lambda is the best number for them, so that nothing adds to the
    /// distance. With many bits the matrix equals the pair's.
    #[test]
    fn packed_pairs_are_close_and_never_add_to_the_distance() {
        for bits in 1..=MAX_BITS {
            for seed in 0..30 {
                let m = matrix(seed);
                let (exact, v) = leading_pair(&m, D).unwrap();
                let bytes = pack(&m, &v, bits, grid(seed));
                assert!(bytes.len() <= most_bytes(D, bits));
                let (lambda, rounded) = unpack(&bytes, D, bits, grid(seed)).unwrap();
                let half = 2f64.powi(-(bits as i32)) + 1e-15;
                assert!(v.iter().zip(&rounded).all(|(x, y)| (x - y).abs() <= half), "{bits} bits");
                let distance = left(&m, lambda, &rounded);
                assert!(distance <= triangle_norm(&m, D) * (1.0 + 1e-14), "{bits} bits: {distance}");
                for other in [0.99 * lambda, 1.01 * lambda] {
                    assert!(distance <= left(&m, other, &rounded) * (1.0 + 1e-14), "{bits} bits");
                }
                if bits >= 24 {
                    assert!((lambda / exact - 1.0).abs() < 1e-5 && distance <= left(&m, exact, &v) * (1.0 + 1e-5), "{bits} bits");
                }
            }
        }
    }

    #[test]
    fn bytes_are_counted_to_the_bit() {
        let m = matrix(1);
        let (_, v) = leading_pair(&m, D).unwrap();
        for bits in [9, 16, 31] {
            assert_eq!(pack(&m, &v, bits, grid(1)).len(), (64 + 3 + D * bits as usize).div_ceil(8), "nothing is across");
        }
    }

    /// Truncated, altered or random bytes give bounded numbers, or none.
    #[test]
    fn any_bytes_are_unpacked_or_refused() {
        let mut draws = stream(3, Purpose::Fresh, 0, 0);
        let m = matrix(2);
        let (_, v) = leading_pair(&m, D).unwrap();
        let mut read = 0;
        for case in 0..20_000 {
            let bits = 1 + (draws.bits() % u64::from(MAX_BITS)) as u32;
            let mut bytes = pack(&m, &v, bits, grid(1));
            if case % 2 == 0 {
                let at = draws.bits() as usize % bytes.len();
                bytes[at] ^= 1 << (draws.bits() % 8);
            } else {
                bytes.iter_mut().for_each(|byte| *byte = draws.bits() as u8);
            }
            assert_eq!(unpack(&bytes[..bytes.len() - 1], D, bits, grid(1)), None);
            let Some((lambda, v)) = unpack(&bytes, D, bits, grid(1)) else { continue };
            assert!(lambda.is_finite() && v.len() == D && v.iter().all(|x| x.abs() <= 4.0));
            read += 1;
        }
        assert!((5_000..20_000).contains(&read), "{read}");
    }
}
