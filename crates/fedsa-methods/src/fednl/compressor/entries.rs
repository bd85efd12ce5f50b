//! Compressors that send entries of a matrix: the largest, random ones, or all.

use std::cell::RefCell;
use std::f64::consts::SQRT_2;

use fedsa::kernel::Isa;
use fedsa::kernel::select::{self, size};
use fedsa::message::{Body, Part};
use fedsa::protocol::Len;
use fedsa::random::Stream;
use fedsa::triangle::{Support, entries};

use super::{Compressed, Compressor, MatrixChange, entries_of, whole};

/// The k entries of the triangle of largest magnitude, the first ones among ties; zeros are not sent. Off-diagonal entries, which occur
/// twice in the matrix, have the same weight as diagonal ones. The agent keeps their indices in the support instead of in the triangle.
#[derive(Debug)]
pub struct TopEntries(pub usize);

impl Compressor for TopEntries {
    fn part(&self, d: usize) -> (Part, Len) {
        (Part::Correction, Len::Exactly(entries(d)))
    }

    /// An index takes four bytes.
    fn memory(&self, d: usize) -> f64 {
        1.5 * (entries(d) as f64).min(self.0 as f64)
    }

    fn compressed(&self, support: &Support, m: &[f64], _: Stream) -> Compressed {
        chosen(support, m, top_k(m, self.0))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, _: Stream) -> Option<MatrixChange<'a>> {
        entries_of(d, body).filter(|change| matches!(change, MatrixChange::Entries(place, _) if place.len() <= self.0))
    }

    fn make(&self, _: &Support, kept: &Body, rate: f64, _: Stream, to: &mut [f64]) -> Option<()> {
        let Body::Sparse { index, value, .. } = kept else { return None };
        index.iter().zip(value).for_each(|(at, x)| to[*at as usize] += rate * x);
        Some(())
    }

    fn may_keep(&self, _: usize, entries: usize, kept: &Body) -> bool {
        let Body::Sparse { len, index, value } = kept else { return false };
        let are_positions = index.is_sorted_by(|a, b| a < b) && index.last().is_none_or(|last| (*last as usize) < entries);
        *len as usize == entries && index.len() <= self.0 && index.len() == value.len() && are_positions
    }
}

/// The message and the record of some entries, given by positions on the support.
fn chosen(support: &Support, m: &[f64], (position, value): (Vec<u32>, Vec<f64>)) -> Compressed {
    let sent = Body::Sparse { len: entries(support.rows()) as u32, index: support.places_at(&position), value: value.clone() };
    Compressed { sent, kept: Body::Sparse { len: m.len() as u32, index: position, value } }
}

/// TopLEK: as few of the largest entries as leave the share 1 - k / n of the squared norm on average, so that the bound of top-k holds with
/// equality; at most k. Off-diagonal entries count twice, as they occur twice in the matrix.
///
/// Source: Burlachenko and Richtarik (2024), \[arXiv 2410.08760\]. Ranked by weighted squares, k entries have at least the share k / n.
#[derive(Debug)]
pub struct TopLek(pub usize);

impl Compressor for TopLek {
    fn part(&self, d: usize) -> (Part, Len) {
        TopEntries(self.0).part(d)
    }

    fn memory(&self, d: usize) -> f64 {
        TopEntries(self.0).memory(d)
    }

    fn compressed(&self, support: &Support, m: &[f64], mut stream: Stream) -> Compressed {
        let mut size = m.to_vec();
        support.each(|at, _, i, j| size[at] *= if i == j { 1.0 } else { SQRT_2 });
        let total: f64 = size.iter().map(|x| x * x).sum();
        let (position, value) = top_k(&size, self.0);
        let mut order: Vec<usize> = (0..position.len()).collect();
        order.sort_by(|x, y| value[*y].abs().total_cmp(&value[*x].abs()));
        let most = 1.0 - self.0 as f64 / entries(support.rows()) as f64;
        // The share of the squared norm that is left before and after an entry.
        let (mut left, mut count) = (1.0, 0);
        while left > most && count < order.len() {
            let after = left - value[order[count]].powi(2) / total;
            let is_last = after <= most;
            // Without the last entry too much is left, with it too little.
            if is_last && stream.uniform() < (most - after) / (left - after) {
                break;
            }
            (left, count) = (after, count + 1);
        }
        let mut kept: Vec<u32> = order[..count].iter().map(|k| position[*k]).collect();
        kept.sort_unstable();
        let value = kept.iter().map(|at| m[*at as usize]).collect();
        chosen(support, m, (kept, value))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, stream: Stream) -> Option<MatrixChange<'a>> {
        TopEntries(self.0).read(d, body, stream)
    }

    fn make(&self, support: &Support, kept: &Body, rate: f64, stream: Stream, to: &mut [f64]) -> Option<()> {
        TopEntries(self.0).make(support, kept, rate, stream, to)
    }

    fn may_keep(&self, d: usize, entries: usize, kept: &Body) -> bool {
        TopEntries(self.0).may_keep(d, entries, kept)
    }
}

/// k uniformly drawn entries of the triangle, times n / k, so that omega is n / k - 1. Both ends draw the indices, which are not sent.
#[derive(Debug)]
pub struct RandEntries(pub usize);

impl Compressor for RandEntries {
    fn part(&self, d: usize) -> (Part, Len) {
        (Part::Entries, Len::AtMost(self.0.min(entries(d))))
    }

    fn learning_rate(&self, d: usize) -> f64 {
        let n = entries(d);
        self.0.min(n) as f64 / n as f64
    }

    fn compressed(&self, support: &Support, m: &[f64], stream: Stream) -> Compressed {
        Compressed::alike(Body::Numbers(support.numbers_at(m, &places(entries(support.rows()), self.0, stream))))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, stream: Stream) -> Option<MatrixChange<'a>> {
        scaled(d, body, places(entries(d), self.0, stream))
    }
}

/// RandSeqK: k entries of the triangle one after the other, from a drawn one on, the first ones following the last; otherwise as
/// [`RandEntries`]. They are one piece of memory, or two.
///
/// Source: as [`TopLek`].
#[derive(Debug)]
pub struct RandSequence(pub usize);

impl Compressor for RandSequence {
    fn part(&self, d: usize) -> (Part, Len) {
        RandEntries(self.0).part(d)
    }

    fn learning_rate(&self, d: usize) -> f64 {
        RandEntries(self.0).learning_rate(d)
    }

    fn compressed(&self, support: &Support, m: &[f64], stream: Stream) -> Compressed {
        Compressed::alike(Body::Numbers(support.numbers_at(m, &sequence(entries(support.rows()), self.0, stream))))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, stream: Stream) -> Option<MatrixChange<'a>> {
        scaled(d, body, sequence(entries(d), self.0, stream))
    }
}

/// The numbers of a body at k of n places, times n / k.
fn scaled<'a>(d: usize, body: &'a Body, places: Vec<u32>) -> Option<MatrixChange<'a>> {
    let x = body.numbers().filter(|x| x.len() == places.len())?;
    let scale = entries(d) as f64 / x.len() as f64;
    Some(MatrixChange::Entries(places.into(), x.iter().map(|x| scale * x).collect()))
}

/// The matrix itself.
#[derive(Debug)]
pub struct Full;

impl Compressor for Full {
    fn part(&self, d: usize) -> (Part, Len) {
        (Part::Entries, Len::AtMost(entries(d)))
    }

    fn compressed(&self, support: &Support, m: &[f64], _: Stream) -> Compressed {
        Compressed::alike(whole(support, m))
    }

    fn read<'a>(&self, d: usize, body: &'a Body, _: Stream) -> Option<MatrixChange<'a>> {
        entries_of(d, body)
    }
}

/// Scratch memory of a thread for selecting entries.
struct Choice {
    /// Indices of candidates.
    position: Vec<u32>,
    /// Magnitudes: of a sample, and later those near the smallest selected one.
    sizes: Vec<u64>,
}

thread_local! {
    static CHOICE: RefCell<Choice> = const { RefCell::new(Choice { position: Vec::new(), sizes: Vec::new() }) };
}

/// One in this many numbers is in the sample that locates the k-th largest magnitude.
const SAMPLED: usize = 16;
/// The search range around it, in standard deviations of the sample's rank.
const DEVIATIONS: f64 = 3.0;

/// Magnitudes that most likely enclose the k-th largest one.
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

/// Writes the magnitudes at these indices that are at most `most` to the beginning of `sizes`, and returns their number. It writes every
/// magnitude and overwrites rejected ones, which avoids branches.
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

/// The indices of the k numbers of largest magnitude, the first ones among ties, and the numbers. Zeros are left out.
///
/// The k-th largest magnitude is selected without sorting, among the numbers between two magnitudes of a sample. If it is not between them,
/// it is selected among all numbers.
pub(super) fn top_k(m: &[f64], k: usize) -> (Vec<u32>, Vec<f64>) {
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
            // Numbers equal to the k-th largest may be too many; the last ones are dropped.
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

/// k of n indices that follow each other cyclically, from a drawn one on, in increasing order.
fn sequence(n: usize, k: usize, mut stream: Stream) -> Vec<u32> {
    let (k, first) = (k.min(n), rand::seq::index::sample(&mut stream, n, 1).index(0));
    let mut all: Vec<u32> = (first..first + k).map(|i| (i % n) as u32).collect();
    all.sort_unstable();
    all
}

/// k of n indices, drawn uniformly, in increasing order.
fn places(n: usize, k: usize, mut stream: Stream) -> Vec<u32> {
    let mut drawn: Vec<u32> = rand::seq::index::sample(&mut stream, n, k.min(n)).into_iter().map(|i| i as u32).collect();
    drawn.sort_unstable();
    drawn
}
