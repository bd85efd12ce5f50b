//! Compressors of symmetric matrices: what an agent sends of the difference between its Hessian and what it has learned.
//!
//! A matrix is its lower triangle row by row (the upper one column by column), n = d (d + 1) / 2 numbers, of which those outside of a
//! [`Support`] are 0 and are not stored.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::leading_pair::leading_pair;
use super::packed_pair;
use crate::kernel::Isa;
use crate::kernel::products;
use crate::kernel::select::{self, size};
use crate::linalg::{add_scaled, norm_sq};
use crate::message::{Body, Part};
use crate::protocol::Len;
use crate::random::Stream;
use crate::triangle::{Support, add_entries, are_places, entries};

/// Bits of a number that is rounded to a power of two: its sign, and the exponent of an f64.
const BITS: usize = 12;

/// The largest magnitude of a number that an agent may send of a matrix: its square is finite, and so are sums of many.
pub const LARGEST: f64 = 1e150;
/// How far from 1 the squared length of the vector of a pair may be.
const LENGTH_ERROR: f64 = 1e-8;

/// Whether no number of a matrix is above [`LARGEST`] in magnitude, or NaN.
pub fn are_bounded(numbers: &[f64]) -> bool {
    numbers.iter().fold(true, |all, x| all & (x.abs() <= LARGEST))
}

/// A compressor C of symmetric d x d matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compressor {
    /// `lambda v v^T` with the eigenpair of largest magnitude; the sign of v is canonical.
    RankOne,
    /// The same with this many bits a component of v, and lambda for what these say of it ([`packed_pair`]). Both ends draw the offsets of
    /// the grid.
    PackedPair(u32),
    /// The k entries of the triangle of largest magnitude, among equal ones the first; zeros are not sent. Entries beside the diagonal,
    /// which stand for two of the matrix, weigh as much as those on it.
    TopK(usize),
    /// k entries of the triangle drawn uniformly, times n / k. Both ends draw the places, which are not sent.
    RandK(usize),
    /// Every entry rounded to one of the two powers of two around it, at random and without bias: 12 bits an entry (Horvath
    /// et al. 2022). Numbers below the least normal f64 become 0.
    Natural,
    /// The matrix itself.
    Full,
}

/// A compressed matrix.
#[derive(Debug, Clone, PartialEq)]
pub enum MatrixChange<'a> {
    /// Numbers at places of the triangle, in increasing order.
    Entries(Cow<'a, [u32]>, Cow<'a, [f64]>),
    /// All entries of the triangle.
    All(&'a [f64]),
    /// `lambda v v^T`.
    Outer(f64, Cow<'a, [f64]>),
    /// All entries of the triangle, packed by natural compression.
    Powers(&'a [u8]),
}

/// What an agent sends of a matrix, and what it keeps of that for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Compressed {
    /// The body of the message.
    pub sent: Body,
    /// The same for [`Compressor::make`].
    pub kept: Body,
}

impl Compressor {
    /// The part of a message that holds a compressed matrix, and its length. A message without a correction holds fewer.
    pub fn part(self, d: usize) -> (Part, Len) {
        let n = entries(d);
        match self {
            Compressor::RankOne => (Part::RankOne, Len::AtMost(d + 1)),
            Compressor::PackedPair(bits) => (Part::PackedPair, Len::AtMost(packed_pair::most_bytes(d, bits))),
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
        let n = entries(d);
        match self {
            Compressor::RankOne | Compressor::PackedPair(_) | Compressor::TopK(_) | Compressor::Full => 1.0,
            Compressor::RandK(k) => k.min(n) as f64 / n as f64,
            Compressor::Natural => 8.0 / 9.0,
        }
    }

    /// The multiply-adds of compressing a matrix, about.
    pub fn work(self, d: usize) -> f64 {
        let n = (d as f64).powi(2);
        // Some twenty products with the matrix, or a look at every entry.
        if self.keeps_zeros() { n } else { 20.0 * n }
    }

    /// Whether C(M) is 0 wherever M is.
    pub fn keeps_zeros(self) -> bool {
        !matches!(self, Compressor::RankOne | Compressor::PackedPair(_))
    }

    /// Compresses a matrix M, which is left as `M - rate C(M)`. Its support has all entries unless the compressor keeps zeros. `stream` is
    /// the exchange's, at both ends.
    pub fn compress(self, support: &Support, m: &mut [f64], rate: f64, stream: Stream) -> Compressed {
        let d = support.rows();
        let sent = match self {
            Compressor::RankOne => Body::Numbers(leading_pair(m, d).map_or(Vec::new(), |(lambda, mut v)| {
                v.insert(0, lambda);
                v
            })),
            Compressor::PackedPair(bits) => {
                Body::Packed(leading_pair(m, d).map_or(Vec::new(), |(_, v)| packed_pair::pack(m, &v, bits, stream)))
            }
            Compressor::TopK(k) => {
                let (position, value) = top_k(m, k);
                position.iter().zip(&value).for_each(|(at, x)| m[*at as usize] -= rate * x);
                let sent = Body::Sparse { len: entries(d) as u32, index: support.places_at(&position), value: value.clone() };
                return Compressed { sent, kept: Body::Sparse { len: m.len() as u32, index: position, value } };
            }
            Compressor::RandK(k) => Body::Numbers(support.numbers_at(m, &places(entries(d), k, stream))),
            Compressor::Natural => Body::Packed(natural(support, m, stream)),
            Compressor::Full => whole(support, m),
        };
        let change = self.change(d, &sent, stream);
        change.add(-rate, support, m).expect("only entries of the support are compressed");
        Compressed { kept: sent.clone(), sent }
    }

    /// What is sent instead of a correction.
    pub fn nothing(self, d: usize) -> Body {
        match self {
            Compressor::RankOne | Compressor::RandK(_) | Compressor::Full => Body::Numbers(Vec::new()),
            Compressor::TopK(_) => Body::Sparse { len: entries(d) as u32, index: Vec::new(), value: Vec::new() },
            Compressor::Natural | Compressor::PackedPair(_) => Body::Packed(Vec::new()),
        }
    }

    /// The bits that a link must carry for a compressed matrix; 0 where the link's budget does not count it.
    pub fn budget(self, d: usize) -> u64 {
        if let Compressor::PackedPair(bits) = self { u64::from(bits) * d as u64 } else { 0 }
    }

    /// The part in which agents send their gradients: for a correction that takes all that the link carries, besides the budget.
    pub fn gradient_part(self) -> Part {
        if matches!(self, Compressor::PackedPair(_)) { Part::ExactGradient } else { Part::Gradient }
    }

    /// Whether a body of a fitting form and length is a compressed matrix, or nothing.
    pub fn accepts(self, d: usize, body: &Body) -> bool {
        let n = entries(d);
        match (self, body) {
            (_, body) if *body == self.nothing(d) => true,
            (Compressor::TopK(k), Body::Sparse { index, .. }) => index.len() <= k && are_entries(d, body),
            (Compressor::RankOne, Body::Numbers(x)) => x.len() == d + 1,
            // Whether bytes are a pair does not depend on the offsets.
            (Compressor::PackedPair(bits), Body::Packed(bytes)) => packed_pair::unpack(bytes, d, bits, Stream::default()).is_some(),
            (Compressor::RandK(k), Body::Numbers(x)) => x.len() == k.min(n),
            (Compressor::Full, body) => are_entries(d, body),
            (Compressor::Natural, Body::Packed(bytes)) => {
                bytes.len() == (BITS * n).div_ceil(8) && (0..n).all(|place| unpacked(bytes, place).is_finite())
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
            Body::Packed(bytes) if bytes.is_empty() => true,
            Body::Packed(bytes) => match self {
                // Components are bounded by the grid.
                Compressor::PackedPair(bits) => {
                    packed_pair::unpack(bytes, d, bits, Stream::default()).is_some_and(|(lambda, _)| lambda.abs() <= LARGEST)
                }
                _ => (0..entries(d)).all(|place| unpacked(bytes, place).abs() <= LARGEST),
            },
        }
    }

    /// The matrix that a body holds which is accepted; `stream` is that of [`Compressor::compress`].
    pub fn change<'a>(self, d: usize, body: &'a Body, stream: Stream) -> MatrixChange<'a> {
        match (self, body) {
            (_, Body::Sparse { index, value, .. }) => MatrixChange::Entries(index.into(), value.into()),
            (Compressor::RankOne, Body::Numbers(pair)) if !pair.is_empty() => MatrixChange::Outer(pair[0], Cow::Borrowed(&pair[1..])),
            (Compressor::PackedPair(bits), Body::Packed(bytes)) if !bytes.is_empty() => {
                let (lambda, v) = packed_pair::unpack(bytes, d, bits, stream).expect("a body that is accepted");
                MatrixChange::Outer(lambda, v.into())
            }
            (Compressor::RandK(k), Body::Numbers(x)) if !x.is_empty() => {
                let n = entries(d);
                let scale = n as f64 / x.len() as f64;
                MatrixChange::Entries(places(n, k, stream).into(), x.iter().map(|x| scale * x).collect())
            }
            (Compressor::Full, Body::Numbers(x)) if !x.is_empty() => MatrixChange::All(x),
            (Compressor::Natural, Body::Packed(bytes)) if !bytes.is_empty() => MatrixChange::Powers(bytes),
            _ => MatrixChange::Entries(Cow::Borrowed(&[]), Cow::Borrowed(&[])),
        }
    }

    /// Adds `rate C(M)` to the agent's matrix, from what it has kept of [`Compressor::compress`] with this support and stream. `None` if the
    /// support lacks an entry, as that of other data may; then nothing is added.
    pub fn make(self, support: &Support, kept: &Body, rate: f64, stream: Stream, to: &mut [f64]) -> Option<()> {
        match (self, kept) {
            // The entries have their positions in the support instead of their places.
            (Compressor::TopK(_), Body::Sparse { index, value, .. }) => {
                index.iter().zip(value).for_each(|(at, x)| to[*at as usize] += rate * x);
                Some(())
            }
            (_, kept) => self.change(support.rows(), kept, stream).add(rate, support, to).map(|_| ()),
        }
    }
}

impl MatrixChange<'_> {
    /// Adds `scale C` to a matrix of finite numbers. Returns whether the sums are finite; `None` if the support lacks an entry of C that is not 0, and then
    /// nothing is added.
    pub fn add(&self, scale: f64, support: &Support, to: &mut [f64]) -> Option<bool> {
        let has_all = support.places().is_none();
        match self {
            MatrixChange::Entries(place, value) => return support.add_at(place, value, scale, to),
            MatrixChange::All(x) if has_all => add_scaled(to, scale, x),
            MatrixChange::Outer(lambda, v) if has_all => return Some(products::add_outer(Isa::best(), to, scale * lambda, v)),
            MatrixChange::All(x) => {
                if support.misses(|place| x[place] != 0.0) {
                    return None;
                }
                support.each(|at, place, _, _| to[at] += scale * x[place]);
            }
            MatrixChange::Powers(bytes) => {
                if support.misses(|place| unpacked(bytes, place) != 0.0) {
                    return None;
                }
                support.each(|at, place, _, _| to[at] += scale * unpacked(bytes, place));
            }
            MatrixChange::Outer(..) => return None,
        }
        Some(to.iter().fold(true, |all, x| all & x.is_finite()))
    }

    /// The support that also has the entries of C.
    #[must_use]
    pub fn widen(&self, support: &Support) -> Support {
        let not_zero = |is: &dyn Fn(usize) -> bool| (0..entries(support.rows()) as u32).filter(|place| is(*place as usize)).collect();
        let place: Vec<u32> = match self {
            MatrixChange::Outer(..) => return Support::all(support.rows()),
            MatrixChange::Entries(place, _) => return support.with(place),
            MatrixChange::All(x) => not_zero(&|place| x[place] != 0.0),
            MatrixChange::Powers(bytes) => not_zero(&|place| unpacked(bytes, place) != 0.0),
        };
        support.with(&place)
    }

    /// Adds `scale C` to rows of a triangle in which all entries are stored; `out` starts with the first of these rows.
    pub fn add_rows(&self, scale: f64, rows: &Range<usize>, out: &mut [f64]) {
        let here = entries(rows.start)..entries(rows.end);
        match self {
            MatrixChange::Entries(place, value) => add_entries(place, value, scale, &here, out),
            MatrixChange::All(x) => add_scaled(out, scale, &x[here]),
            MatrixChange::Powers(bytes) => out.iter_mut().zip(here).for_each(|(out, place)| *out += scale * unpacked(bytes, place)),
            MatrixChange::Outer(lambda, v) => {
                let mut rest = out;
                for i in rows.clone() {
                    let (row, after) = rest.split_at_mut(i + 1);
                    rest = after;
                    if v[i] != 0.0 {
                        add_scaled(row, scale * lambda * v[i], &v[..=i]);
                    }
                }
            }
        }
    }
}

/// A matrix as it is sent whole: entries with their places, or all of them if that is shorter.
pub fn whole(support: &Support, m: &[f64]) -> Body {
    match support.places() {
        None => Body::of_numbers(m.to_vec()),
        Some(place) => Body::shorter(entries(support.rows()), place.to_vec(), m.to_vec()),
    }
}

/// Whether a body is a whole matrix, or entries of one with their places.
pub fn are_entries(d: usize, body: &Body) -> bool {
    match body {
        Body::Numbers(x) => x.len() == entries(d),
        Body::Sparse { len, index, value } => *len as usize == entries(d) && index.len() == value.len() && are_places(d, index),
        Body::Packed(_) => false,
    }
}

/// Memory of a thread to choose entries.
struct Choice {
    /// Positions of numbers that may be chosen.
    position: Vec<u32>,
    /// Magnitudes: those of a sample, and later those near the least that is chosen.
    sizes: Vec<u64>,
}

thread_local! {
    static CHOICE: RefCell<Choice> = const { RefCell::new(Choice { position: Vec::new(), sizes: Vec::new() }) };
}

/// Of so many numbers one is in the sample that tells where the k-th largest magnitude is, about.
const SAMPLED: usize = 16;
/// How far from there it is looked for, in standard deviations of the place of the sample's own.
const DEVIATIONS: f64 = 3.0;

/// Magnitudes between which the k-th largest of some numbers is, most likely.
fn bounds(m: &[f64], k: usize, sizes: &mut Vec<u64>) -> (u64, u64) {
    sizes.clear();
    sizes.extend(m.iter().step_by(SAMPLED).map(|x| size(*x)));
    let n = sizes.len();
    let share = k as f64 / m.len() as f64;
    let (rank, spread) = (share * n as f64, DEVIATIONS * (n as f64 * share * (1.0 - share)).sqrt() + 1.0);
    let (above, below) = ((rank - spread).max(0.0) as usize, (rank + spread) as usize);
    if below >= n {
        return (1, u64::MAX);
    }
    let (larger, least, _) = sizes.select_nth_unstable_by(below, |a, b| b.cmp(a));
    let least = *least;
    let most = if above == 0 { u64::MAX } else { *larger.select_nth_unstable_by(above - 1, |a, b| b.cmp(a)).1 };
    (least.max(1), most)
}

/// Writes the magnitudes of the numbers at some positions that are at most `most` to the beginning of `sizes`, and returns how many they are.
/// Every magnitude is written, and the next one takes its place unless it is one of those: there are no branches to be guessed.
fn up_to(m: &[f64], position: &[u32], most: u64, sizes: &mut Vec<u64>) -> usize {
    sizes.resize(position.len(), 0);
    let mut count = 0;
    for at in position {
        let size = size(m[*at as usize]);
        sizes[count] = size;
        count += usize::from(size <= most);
    }
    count
}

/// The positions of the k numbers of largest magnitude, among equal ones of the first, and the numbers. Zeros are left out.
///
/// The k-th largest magnitude is selected, not sorted for: among the numbers between two magnitudes of a sample. Where it is not between them,
/// among all numbers.
fn top_k(m: &[f64], k: usize) -> (Vec<u32>, Vec<f64>) {
    CHOICE.with_borrow_mut(|Choice { position, sizes }| {
        let (least, most) = bounds(m, k, sizes);
        select::at_least(Isa::best(), m, least, position);
        if position.len() < k {
            select::at_least(Isa::best(), m, 1, position);
        }
        if k > 0 && position.len() > k {
            let mut near = up_to(m, position, most, sizes);
            if position.len() - near >= k {
                near = up_to(m, position, u64::MAX, sizes);
            }
            let rest = k - (position.len() - near);
            let least = *sizes[..near].select_nth_unstable_by(rest - 1, |a, b| b.cmp(a)).1;
            select::at_least(Isa::best(), m, least, position);
            // The last of those that are equal to the k-th largest are too many.
            let mut surplus = position.len() - k;
            let mut from = position.len();
            while surplus > 0 {
                from -= 1;
                surplus -= usize::from(size(m[position[from] as usize]) == least);
            }
            let mut last = from;
            for i in from..position.len() {
                position[last] = position[i];
                last += usize::from(size(m[position[i] as usize]) > least);
            }
            position.truncate(last);
        }
        position.truncate(k);
        (position.clone(), position.iter().map(|at| m[*at as usize]).collect())
    })
}

/// k of n places, drawn uniformly, in increasing order.
fn places(n: usize, k: usize, mut stream: Stream) -> Vec<u32> {
    let mut drawn: Vec<u32> = rand::seq::index::sample(&mut stream, n, k.min(n)).into_iter().map(|i| i as u32).collect();
    drawn.sort_unstable();
    drawn
}

/// The sign and exponent of each entry after rounding to a power of two, two in three bytes.
fn natural(support: &Support, m: &[f64], mut stream: Stream) -> Vec<u8> {
    const FRACTION: u64 = (1 << 52) - 1;
    let mut code = |x: f64| {
        let bits = x.to_bits();
        let top = (bits >> 52) as u16;
        // `2^a (1 + f)` becomes `2^(a + 1)` with probability f; the largest exponent stays.
        let exponent = top & 0x7ff;
        let up = (1..0x7fe).contains(&exponent) && (stream.bits() >> 12) < (bits & FRACTION);
        if exponent == 0 { 0 } else { top + u16::from(up) }
    };
    let mut bytes = vec![0; (BITS * entries(support.rows())).div_ceil(8)];
    support.each(|at, place, _, _| {
        let (code, first) = (code(m[at]), BITS * place / 8);
        let [low, high] = if place.is_multiple_of(2) { code } else { code << 4 }.to_le_bytes();
        bytes[first] |= low;
        bytes[first + 1] |= high;
    });
    bytes
}

/// The entry that [`natural`] packed for a place.
fn unpacked(bytes: &[u8], place: usize) -> f64 {
    let first = BITS * place / 8;
    let two = u16::from_le_bytes([bytes[first], bytes[first + 1]]);
    let code = if place.is_multiple_of(2) { two & 0xfff } else { two >> 4 };
    f64::from_bits(u64::from(code) << 52)
}

#[cfg(test)]
mod tests;
