//! Compressors of symmetric matrices: an agent sends the compressed difference between its Hessian and the learned one.
//!
//! A matrix is its lower triangle row by row (the upper one column by column), n = d (d + 1) / 2 numbers. Numbers outside of a [`Support`]
//! are 0 and are not stored.

mod entries;
mod natural;
mod pairs;

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;

pub use entries::{Full, RandEntries, RandSequence, TopEntries, TopLek};
use fedsa::kernel::{Isa, products};
use fedsa::linalg::add_scaled;
use fedsa::message::{Body, Form, Part};
use fedsa::protocol::Len;
use fedsa::random::Stream;
use fedsa::triangle::{Support, add_entries, are_places, entries};
pub use natural::Natural;
pub use pairs::{PackedPair, RankOne};

/// The largest magnitude of a sent number of a matrix: its square is finite, and sums of many are too.
pub const LARGEST: f64 = 1e150;

/// Whether all numbers of a matrix are at most [`LARGEST`] in magnitude, and none is NaN.
pub fn are_bounded(numbers: &[f64]) -> bool {
    numbers.iter().fold(true, |all, x| all & (x.abs() <= LARGEST))
}

/// A compressor C of symmetric d x d matrices.
pub trait Compressor: Debug + Send + Sync {
    /// The part of a message with a compressed matrix, and its length. A message without a correction has fewer.
    fn part(&self, d: usize) -> (Part, Len);
    /// The learning rate of the theory: 1 if `||C(M) - M||^2 <= (1 - delta) ||M||^2`, and `1 / (1 + omega)` if `E C(M) = M` and
    /// `E ||C(M) - M||^2 <= omega ||M||^2` (\[125\] of \[T\], section 3.4).
    fn learning_rate(&self, _d: usize) -> f64 {
        1.0
    }
    /// Whether C(M) is 0 wherever M is 0.
    fn keeps_zeros(&self) -> bool {
        true
    }
    /// The bits of a compressed matrix in the link's budget; 0 if the budget does not count it.
    fn budget(&self, _d: usize) -> u64 {
        0
    }
    /// The most memory of a compressed matrix, in 64-bit numbers.
    fn memory(&self, d: usize) -> f64 {
        let (part, len) = self.part(d);
        len.largest() as f64 / if part.is_packed() { 8.0 } else { 1.0 }
    }
    /// C(M). The support of M has all entries unless the compressor keeps zeros. `stream` belongs to the exchange, at both ends.
    fn compressed(&self, support: &Support, m: &[f64], stream: Stream) -> Compressed;
    /// Whether the numbers of an accepted body may be learned: none is too large.
    fn is_sound(&self, d: usize, body: &Body) -> bool {
        match body {
            Body::Numbers(x) | Body::Sparse { value: x, .. } => are_bounded(x),
            Body::Packed(_) => match self.change(d, body, Stream::default()) {
                // The grid bounds the components.
                MatrixChange::Outer(lambda, _) => are_bounded(&[lambda]),
                MatrixChange::Powers(bytes) => (0..entries(d)).all(|place| are_bounded(&[unpacked(bytes, place)])),
                _ => true,
            },
        }
    }
    /// The matrix of a non-empty body; `stream` is the stream of [`Compressor::compressed`]. For every stream, `None` if the body does not
    /// have the form of a compressed matrix.
    fn read<'a>(&self, d: usize, body: &'a Body, stream: Stream) -> Option<MatrixChange<'a>>;
    /// Adds `rate C(M)` to the agent's matrix, from `kept` of [`Compressor::compressed`] with this support and stream. `None`, without any
    /// change, if the support lacks an entry, as for other data.
    fn make(&self, support: &Support, kept: &Body, rate: f64, stream: Stream, to: &mut [f64]) -> Option<()> {
        self.change(support.rows(), kept, stream).add(rate, support, to).map(|_| ())
    }
    /// Whether an agent of d components with this many entries in its support may have kept this body.
    fn may_keep(&self, d: usize, _entries: usize, kept: &Body) -> bool {
        self.accepts(d, kept)
    }

    /// The part in which agents send gradients: outside of the link's budget if the budget pays for the correction.
    fn gradient_part(&self) -> Part {
        if self.budget(1) > 0 { Part::ExactGradient } else { Part::Gradient }
    }
    /// The approximate multiply-adds of compressing a matrix.
    fn work(&self, d: usize) -> f64 {
        let n = (d as f64).powi(2);
        // A pass over all entries, or some twenty products with the matrix.
        if self.keeps_zeros() { n } else { 20.0 * n }
    }
    /// Compresses a matrix M, and leaves `M - rate C(M)` in it.
    fn compress(&self, support: &Support, m: &mut [f64], rate: f64, stream: Stream) -> Compressed {
        let compressed = self.compressed(support, m, stream);
        self.make(support, &compressed.kept, -rate, stream, m).expect("only entries of the support are compressed");
        compressed
    }
    /// The empty body sent instead of a correction.
    fn nothing(&self, d: usize) -> Body {
        match self.part(d).0.form() {
            Form::Packed => Body::Packed(Vec::new()),
            Form::Sparse => Body::Sparse { len: entries(d) as u32, index: Vec::new(), value: Vec::new() },
            _ => Body::Numbers(Vec::new()),
        }
    }
    /// Whether a body is a compressed matrix, or empty.
    fn accepts(&self, d: usize, body: &Body) -> bool {
        *body == self.nothing(d) || self.read(d, body, Stream::default()).is_some()
    }
    /// The matrix of a body that [`Compressor::read`] reads, or nothing if the body is empty.
    fn change<'a>(&self, d: usize, body: &'a Body, stream: Stream) -> MatrixChange<'a> {
        let read = || self.read(d, body, stream).expect("a compressed matrix");
        if *body == self.nothing(d) { MatrixChange::Entries(Cow::Borrowed(&[]), Cow::Borrowed(&[])) } else { read() }
    }
}

/// An agent's message of a matrix, and its own record of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compressed {
    /// The body of the message.
    pub sent: Body,
    /// The record for [`Compressor::make`].
    pub kept: Body,
}

impl Compressed {
    /// An agent keeps what it sends.
    fn alike(sent: Body) -> Self {
        Self { kept: sent.clone(), sent }
    }
}

/// A compressed matrix.
#[derive(Debug, Clone, PartialEq)]
pub enum MatrixChange<'a> {
    /// Numbers with their indices in the triangle, in increasing order.
    Entries(Cow<'a, [u32]>, Cow<'a, [f64]>),
    /// All entries of the triangle.
    All(&'a [f64]),
    /// `lambda v v^T`.
    Outer(f64, Cow<'a, [f64]>),
    /// All entries of the triangle, packed by natural compression.
    Powers(&'a [u8]),
}

impl MatrixChange<'_> {
    /// Adds `scale C` to a matrix of finite numbers. Returns whether the sums are finite; `None`, without any change, if the support lacks
    /// a non-zero entry of C.
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

    /// The support extended by the entries of C.
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

    /// Adds `scale C` to rows of a triangle with all entries stored; `out` starts with the first of these rows.
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

/// A whole matrix as sent: non-zero entries with their indices, or all entries if that is shorter.
pub fn whole(support: &Support, m: &[f64]) -> Body {
    match support.places() {
        None => Body::of_numbers(m.to_vec()),
        Some(place) => Body::shorter(entries(support.rows()), place.to_vec(), m.to_vec()),
    }
}

/// The entries in a body: all of a matrix, or some with their indices. `None` if the body is neither.
pub fn entries_of(d: usize, body: &Body) -> Option<MatrixChange<'_>> {
    match body {
        Body::Numbers(x) if x.len() == entries(d) => Some(MatrixChange::All(x)),
        Body::Sparse { len, index, value } if *len as usize == entries(d) && index.len() == value.len() && are_places(d, index) => {
            Some(MatrixChange::Entries(index.into(), value.into()))
        }
        _ => None,
    }
}

/// The bits of a number rounded to a power of two: its sign, and the exponent of an f64.
const BITS: usize = 12;

/// The entry that [`natural::Natural`] packed at an index.
fn unpacked(bytes: &[u8], place: usize) -> f64 {
    let first = BITS * place / 8;
    let two = u16::from_le_bytes([bytes[first], bytes[first + 1]]);
    let code = if place.is_multiple_of(2) { two & 0xfff } else { two >> 4 };
    f64::from_bits(u64::from(code) << 52)
}

#[cfg(test)]
mod tests;
