//! Compressors of symmetric matrices: what an agent sends of the difference between its Hessian and what it has learned.
//!
//! A matrix is its lower triangle row by row (the upper one column by column): n = d (d + 1) / 2 numbers.

use serde::{Deserialize, Serialize};

use super::leading_pair::leading_pair;
use crate::linalg::{add_scaled, norm_sq};
use crate::message::{Body, Part};
use crate::protocol::Len;
use crate::random::Stream;

/// Bits of a number that is rounded to a power of two: its sign, and the exponent of an f64.
const BITS: usize = 12;

/// The largest magnitude of a number that an agent may send of a matrix: its square is finite, and so are sums of many.
pub const LARGEST: f64 = 1e150;
/// How far from 1 the squared length of the vector of a pair may be.
const LENGTH_ERROR: f64 = 1e-8;

/// Whether no number of a matrix is above [`LARGEST`] in magnitude, or NaN.
pub fn are_bounded(numbers: &[f64]) -> bool {
    numbers.iter().all(|x| x.abs() <= LARGEST)
}

/// A compressor C of symmetric d x d matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compressor {
    /// `lambda v v^T` with the eigenpair of largest magnitude; the sign of v is canonical.
    RankOne,
    /// The k entries of the triangle of largest magnitude, among equal ones the first. Entries beside the diagonal, which stand
    /// for two of the matrix, weigh as much as those on it.
    TopK(usize),
    /// k entries of the triangle drawn uniformly, times n / k. Both ends draw the places, which are not sent.
    RandK(usize),
    /// Every entry rounded to one of the two powers of two around it, at random and without bias: 12 bits an entry (Horvath
    /// et al. 2022). Numbers below the least normal f64 become 0.
    Natural,
    /// The matrix itself.
    Full,
}

impl Compressor {
    /// The part of a message that holds a compressed matrix, and its length. A message without a correction holds fewer.
    pub fn part(self, d: usize) -> (Part, Len) {
        let n = d * (d + 1) / 2;
        match self {
            Compressor::RankOne => (Part::RankOne, Len::AtMost(d + 1)),
            Compressor::TopK(_) => (Part::Correction, Len::Exactly(n)),
            Compressor::RandK(k) => (Part::Entries, Len::AtMost(k.min(n))),
            Compressor::Natural => (Part::PackedMatrix, Len::AtMost((BITS * n).div_ceil(8))),
            Compressor::Full => (Part::Entries, Len::AtMost(n)),
        }
    }

    /// The learning rate of its theory: 1 if `||C(M) - M||^2 <= (1 - delta) ||M||^2`, and `1 / (1 + omega)` if `E C(M) = M`,
    /// `E ||C(M) - M||^2 <= omega ||M||^2` (\[125\] of \[T\], section 3.4): omega is 1/8 for natural compression and
    /// n / k - 1 for random entries.
    pub fn learning_rate(self, d: usize) -> f64 {
        let n = d * (d + 1) / 2;
        match self {
            Compressor::RankOne | Compressor::TopK(_) | Compressor::Full => 1.0,
            Compressor::RandK(k) => k.min(n) as f64 / n as f64,
            Compressor::Natural => 8.0 / 9.0,
        }
    }

    /// The multiply-adds of compressing a matrix, about.
    pub fn work(self, d: usize) -> f64 {
        let n = (d as f64).powi(2);
        // Some twenty products with the matrix, or a look at every entry.
        if self == Compressor::RankOne { 20.0 * n } else { n }
    }

    /// What is sent of a matrix; `stream` is the exchange's, at both ends.
    pub fn compress(self, d: usize, m: Vec<f64>, stream: &mut Stream) -> Body {
        match self {
            Compressor::RankOne => Body::Numbers(leading_pair(&m, d).map_or(Vec::new(), |(lambda, mut v)| {
                v.insert(0, lambda);
                v
            })),
            Compressor::TopK(k) => top_k(&m, k),
            Compressor::RandK(k) => Body::Numbers(places(m.len(), k, stream).into_iter().map(|i| m[i as usize]).collect()),
            Compressor::Natural => Body::Packed(natural(&m, stream)),
            Compressor::Full => Body::Numbers(m),
        }
    }

    /// What is sent instead of a correction.
    pub fn nothing(self, d: usize) -> Body {
        match self {
            Compressor::RankOne | Compressor::RandK(_) | Compressor::Full => Body::Numbers(Vec::new()),
            Compressor::TopK(_) => Body::Sparse { len: (d * (d + 1) / 2) as u32, index: Vec::new(), value: Vec::new() },
            Compressor::Natural => Body::Packed(Vec::new()),
        }
    }

    /// Whether a body of a fitting form and length is a compressed matrix, or nothing.
    pub fn accepts(self, d: usize, body: &Body) -> bool {
        let n = d * (d + 1) / 2;
        match (self, body) {
            (_, body) if *body == self.nothing(d) => true,
            (Compressor::TopK(k), Body::Sparse { index, .. }) => index.len() <= k,
            (Compressor::RankOne, Body::Numbers(x)) => x.len() == d + 1,
            (Compressor::RandK(k), Body::Numbers(x)) => x.len() == k.min(n),
            (Compressor::Full, Body::Numbers(x)) => x.len() == n,
            (Compressor::Natural, Body::Packed(bytes)) => {
                bytes.len() == (BITS * n).div_ceil(8) && unpacked(bytes, n).all(|x| x.is_finite())
            }
            _ => false,
        }
    }

    /// Whether the numbers of a body that is accepted may be learned: none is too large, and the vector of a pair has length 1.
    pub fn is_sound(self, d: usize, body: &Body) -> bool {
        match body {
            Body::Numbers(x) => match x.split_first() {
                Some((_, v)) if self == Compressor::RankOne => are_bounded(x) && (norm_sq(v) - 1.0).abs() <= LENGTH_ERROR,
                _ => are_bounded(x),
            },
            Body::Sparse { value, .. } => are_bounded(value),
            Body::Packed(bytes) => unpacked(bytes, d * (d + 1) / 2).all(|x| x.abs() <= LARGEST),
        }
    }

    /// Adds `scale C(M)` to a matrix; `stream` is that of [`Compressor::compress`].
    pub fn add(self, d: usize, body: &Body, scale: f64, stream: &mut Stream, to: &mut [f64]) {
        match (self, body) {
            (Compressor::RankOne, Body::Numbers(pair)) => {
                let Some((lambda, v)) = pair.split_first() else { return };
                let mut rest = to;
                for i in 0..d {
                    let (row, after) = rest.split_at_mut(i + 1);
                    rest = after;
                    add_scaled(row, scale * lambda * v[i], &v[..=i]);
                }
            }
            (Compressor::TopK(_), Body::Sparse { index, value, .. }) => {
                index.iter().zip(value).for_each(|(i, x)| to[*i as usize] += scale * x);
            }
            (Compressor::RandK(k), Body::Numbers(x)) if !x.is_empty() => {
                let scale = scale * (to.len() as f64 / x.len() as f64);
                places(to.len(), k, stream).into_iter().zip(x).for_each(|(i, x)| to[i as usize] += scale * x);
            }
            (Compressor::Natural, Body::Packed(bytes)) if !bytes.is_empty() => {
                let n = to.len();
                to.iter_mut().zip(unpacked(bytes, n)).for_each(|(to, x)| *to += scale * x);
            }
            (Compressor::Full, Body::Numbers(x)) => add_scaled(to, scale, x),
            _ => {}
        }
    }
}

/// The k entries of largest magnitude with their places.
fn top_k(m: &[f64], k: usize) -> Body {
    let mut order: Vec<u32> = (0..m.len() as u32).collect();
    if k < order.len() {
        let size = |i: &u32| m[*i as usize].abs();
        order.select_nth_unstable_by(k, |i, j| size(j).total_cmp(&size(i)).then(i.cmp(j)));
        order.truncate(k);
        order.sort_unstable();
    }
    let value = order.iter().map(|i| m[*i as usize]).collect();
    Body::Sparse { len: m.len() as u32, index: order, value }
}

/// k of n places, drawn uniformly, in increasing order.
fn places(n: usize, k: usize, stream: &mut Stream) -> Vec<u32> {
    let mut drawn: Vec<u32> = rand::seq::index::sample(stream, n, k.min(n)).into_iter().map(|i| i as u32).collect();
    drawn.sort_unstable();
    drawn
}

/// The sign and exponent of each number after rounding to a power of two, two in three bytes.
fn natural(m: &[f64], stream: &mut Stream) -> Vec<u8> {
    const FRACTION: u64 = (1 << 52) - 1;
    let mut code = |x: &f64| {
        let bits = x.to_bits();
        let top = (bits >> 52) as u16;
        // `2^a (1 + f)` becomes `2^(a + 1)` with probability f; the largest exponent stays.
        let exponent = top & 0x7ff;
        let up = (1..0x7fe).contains(&exponent) && (stream.bits() >> 12) < (bits & FRACTION);
        if exponent == 0 { 0 } else { top + u16::from(up) }
    };
    let mut bytes = Vec::with_capacity((BITS * m.len()).div_ceil(8));
    for pair in m.chunks(2) {
        let a = code(&pair[0]);
        bytes.push(a as u8);
        match pair.get(1).map(&mut code) {
            Some(b) => bytes.extend([(a >> 8) as u8 | (b << 4) as u8, (b >> 4) as u8]),
            None => bytes.push((a >> 8) as u8),
        }
    }
    bytes
}

/// The n numbers that [`natural`] packed.
fn unpacked(bytes: &[u8], n: usize) -> impl Iterator<Item = f64> + '_ {
    let number = |code: u16| f64::from_bits(u64::from(code & 0xfff) << 52);
    let pair = move |three: &[u8]| {
        let second = three.get(2).map_or(0, |c| u16::from(*c) << 4 | u16::from(three[1]) >> 4);
        [number(u16::from(three[0]) | u16::from(three[1]) << 8), number(second)]
    };
    bytes.chunks(3).flat_map(pair).take(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::triangle_norm;
    use crate::random::{Purpose, stream};

    const D: usize = 9;
    const N: usize = D * (D + 1) / 2;

    fn draws(round: u64) -> Stream {
        stream(3, Purpose::Compressor, round, 0)
    }

    fn matrix(seed: u64) -> Vec<f64> {
        let mut draw = stream(seed, Purpose::System, 0, 0);
        (0..N).map(|_| draw.normal()).collect()
    }

    /// The matrix that the other end decodes.
    fn decoded(compressor: Compressor, m: &[f64], round: u64) -> Vec<f64> {
        let body = compressor.compress(D, m.to_vec(), &mut draws(round));
        let (part, len) = compressor.part(D);
        assert!(compressor.accepts(D, &body) && body.len() <= len.largest(), "{part:?}");
        let mut out = vec![0.0; N];
        compressor.add(D, &body, 1.0, &mut draws(round), &mut out);
        out
    }

    /// Against a sort: the k largest, ties by index; for every k.
    #[test]
    fn top_k_is_what_a_sort_gives() {
        let mut m = matrix(1);
        // Ties, of both signs.
        (m[3], m[17], m[30], m[44]) = (0.7, -0.7, 0.7, -0.7);
        for k in 0..=N + 1 {
            let mut order: Vec<usize> = (0..N).collect();
            order.sort_by(|i, j| m[*j].abs().total_cmp(&m[*i].abs()).then(i.cmp(j)));
            let mut expected = vec![0.0; N];
            order.iter().take(k).for_each(|i| expected[*i] = m[*i]);
            assert_eq!(decoded(Compressor::TopK(k), &m, 0), expected, "k = {k}");
        }
    }

    /// `||C(M) - M||_F^2 <= (1 - delta) ||M||_F^2`: delta is 1 / d for one pair. Of the k largest entries of the triangle, the
    /// least that remain in the matrix is with diagonals first: delta is at least k / (2 n).
    #[test]
    fn contractive_compressors_contract() {
        for seed in 0..20 {
            let m = matrix(seed);
            let norm = triangle_norm(&m, D).powi(2);
            let cases = [(Compressor::RankOne, 1.0 / D as f64), (Compressor::TopK(8), 8.0 / (2 * N) as f64), (Compressor::Full, 1.0)];
            for (compressor, delta) in cases {
                let left: Vec<f64> = decoded(compressor, &m, seed).iter().zip(&m).map(|(c, m)| m - c).collect();
                let share = triangle_norm(&left, D).powi(2) / norm;
                assert!(share <= 1.0 - delta + 1e-12, "{compressor:?}: {share}");
            }
        }
    }

    /// Means over many draws are the matrix, within their standard errors, and variances are those that are stated.
    #[test]
    fn random_compressors_are_unbiased_with_their_variance() {
        let m = matrix(2);
        let times = 4000;
        for (compressor, omega) in [(Compressor::Natural, 0.125), (Compressor::RandK(9), N as f64 / 9.0 - 1.0)] {
            let (mut sum, mut squares, mut error) = (vec![0.0; N], vec![0.0; N], 0.0);
            for t in 0..times {
                let c = decoded(compressor, &m, t);
                c.iter().enumerate().for_each(|(i, c)| {
                    sum[i] += c;
                    squares[i] += c * c;
                    error += (c - m[i]).powi(2);
                });
            }
            let n = times as f64;
            for i in 0..N {
                let mean = sum[i] / n;
                let deviation = ((squares[i] / n - mean * mean).max(0.0) / n).sqrt();
                assert!((mean - m[i]).abs() <= 4.5 * deviation + 1e-12, "{compressor:?}, entry {i}: {mean}, {}", m[i]);
            }
            let share = error / n / m.iter().map(|x| x * x).sum::<f64>();
            assert!(share <= 1.05 * omega, "{compressor:?}: {share} of {omega}");
            assert!((compressor.learning_rate(D) - 1.0 / (1.0 + omega)).abs() < 1e-15);
        }
    }

    /// Each entry becomes a neighbouring power of two with its sign, zero stays zero, and twelve bits an entry are sent.
    #[test]
    fn natural_compression_gives_powers_of_two() {
        let mut m = matrix(4);
        (m[0], m[1], m[2], m[3], m[4]) = (0.0, -0.0, f64::MAX, 1e-310, -4.0);
        let body = Compressor::Natural.compress(D, m.clone(), &mut draws(0));
        assert_eq!(body.len(), (12 * N).div_ceil(8));
        for (i, (c, m)) in decoded(Compressor::Natural, &m, 0).iter().zip(&m).enumerate() {
            match i {
                0 | 1 | 3 => assert_eq!(*c, 0.0),
                2 => assert_eq!(*c, 2f64.powi(1023)),
                4 => assert_eq!(*c, -4.0),
                _ => {
                    let low = 2f64.powi(m.abs().log2().floor() as i32);
                    assert!((c.abs() == low || c.abs() == 2.0 * low) && c.signum() == m.signum(), "{m}: {c}");
                }
            }
        }
    }

    /// What compressors make of a matrix is sound, and of one with a huge entry it is not; nor is a vector of another length than 1.
    #[test]
    fn unsound_numbers_are_recognised() {
        for c in [Compressor::RankOne, Compressor::TopK(3), Compressor::RandK(N), Compressor::Natural, Compressor::Full] {
            let mut m = matrix(6);
            assert!(c.is_sound(D, &c.compress(D, m.clone(), &mut draws(0))) && c.is_sound(D, &c.nothing(D)), "{c:?}");
            m[2] = -1e151;
            assert!(!c.is_sound(D, &c.compress(D, m, &mut draws(0))), "{c:?}");
        }
        let mut pair = vec![0.0; D + 1];
        (pair[0], pair[4]) = (5.0, 1.0 + 1e-7);
        assert!(!Compressor::RankOne.is_sound(D, &Body::Numbers(pair.clone())));
        pair[4] = 1.0;
        assert!(Compressor::RankOne.is_sound(D, &Body::Numbers(pair.clone())));
        pair[1] = f64::NAN;
        assert!(!Compressor::RankOne.is_sound(D, &Body::Numbers(pair)));
    }

    #[test]
    fn what_is_no_compressed_matrix_is_refused() {
        let numbers = |n: usize| Body::Numbers(vec![1.0; n]);
        let sparse = |count: u32| Body::Sparse { len: N as u32, index: (0..count).collect(), value: vec![1.0; count as usize] };
        for (compressor, bad) in [
            (Compressor::RankOne, numbers(D)),
            (Compressor::TopK(3), sparse(4)),
            (Compressor::RandK(3), numbers(2)),
            (Compressor::Full, numbers(N - 1)),
            (Compressor::Natural, Body::Packed(vec![0; 5])),
            (Compressor::Natural, Body::Packed(vec![0xff; (12 * N).div_ceil(8)])),
        ] {
            assert!(!compressor.accepts(D, &bad), "{compressor:?}");
            // Nothing is accepted, and adds nothing.
            let mut to = vec![1.0; N];
            compressor.add(D, &compressor.nothing(D), 1.0, &mut draws(0), &mut to);
            assert!(compressor.accepts(D, &compressor.nothing(D)) && to == [1.0; N]);
        }
    }
}
