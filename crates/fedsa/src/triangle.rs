//! Symmetric matrices of which only some entries may differ from 0: the places of these entries.
//!
//! The lower triangle of a d x d matrix is numbered row by row: place `i (i + 1) / 2 + j` is entry (i, j), j <= i. A matrix on a
//! support is the numbers at the places of the support, in their order. The position of a place is its index among them.

use std::cell::RefCell;
use std::ops::Range;

use crate::linalg::{add_scaled, add_scaled_and_square, dot, triangle_vec};
use serde::{Deserialize, Serialize};

/// The number of entries of the lower triangle of a d x d matrix; also the place of the first entry of row d.
pub const fn entries(d: usize) -> usize {
    d * (d + 1) / 2
}

/// The entries of symmetric d x d matrices that may differ from 0, as places of the lower triangle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(usize, Option<Vec<u32>>)", into = "(usize, Option<Vec<u32>>)")]
pub struct Support {
    d: usize,
    /// The places in increasing order; `None` if they are all places of the triangle.
    place: Option<Vec<u32>>,
    /// The positions of the places on the diagonal.
    diagonal: Vec<u32>,
    /// An index of the places, to find positions; empty if it would take more memory than `place`.
    words: Vec<Word>,
}

impl From<Support> for (usize, Option<Vec<u32>>) {
    fn from(support: Support) -> Self {
        (support.d, support.place)
    }
}

impl TryFrom<(usize, Option<Vec<u32>>)> for Support {
    type Error = &'static str;

    fn try_from((d, places): (usize, Option<Vec<u32>>)) -> Result<Self, &'static str> {
        places.map_or_else(|| Some(Support::all(d)), |places| Support::of(d, places)).ok_or("places that are none of a triangle")
    }
}

/// The positions of 64 consecutive places in a support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word {
    /// Bit i says whether the support has the i-th of the 64 places.
    bits: u64,
    /// The number of places of the support before these.
    before: u32,
}

/// The position of a place that a support lacks.
const NOWHERE: u32 = u32::MAX;

thread_local! {
    /// Reused memory for positions.
    static FOUND: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl Word {
    /// Words for a triangle of `all` places; `place` increases.
    fn of(place: &[u32], all: usize) -> Vec<Self> {
        let mut words = vec![Self { bits: 0, before: 0 }; all.div_ceil(64)];
        place.iter().for_each(|place| words[*place as usize / 64].bits |= 1 << (place % 64));
        let mut before = 0;
        for word in &mut words {
            word.before = before;
            before += word.bits.count_ones();
        }
        words
    }
}

impl Support {
    /// All places.
    pub fn all(d: usize) -> Self {
        Self { d, place: None, diagonal: (0..d).map(|i| (entries(i + 1) - 1) as u32).collect(), words: Vec::new() }
    }

    /// Only the diagonal.
    pub fn diagonal(d: usize) -> Self {
        Self::of(d, (0..d).map(|i| (entries(i + 1) - 1) as u32).collect()).expect("places of the diagonal increase")
    }

    /// These places; `None` unless they increase and are places of the triangle.
    pub fn of(d: usize, place: Vec<u32>) -> Option<Self> {
        if !are_places(d, &place) {
            return None;
        }
        if place.len() == entries(d) {
            return Some(Self::all(d));
        }
        let diagonal = (0..d).filter_map(|i| place.binary_search(&((entries(i + 1) - 1) as u32)).ok()).map(|at| at as u32).collect();
        let are_few = place.len() * size_of::<u32>() < entries(d).div_ceil(64) * size_of::<Word>();
        let words = if are_few { Vec::new() } else { Word::of(&place, entries(d)) };
        Some(Self { d, place: Some(place), diagonal, words })
    }

    /// The number of rows d.
    pub fn rows(&self) -> usize {
        self.d
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        self.place.as_ref().map_or(entries(self.d), Vec::len)
    }

    /// Whether there are no places.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The places in increasing order; `None` if they are all places of the triangle.
    pub fn places(&self) -> Option<&[u32]> {
        self.place.as_deref()
    }

    /// The places at some positions.
    pub fn places_at(&self, positions: &[u32]) -> Vec<u32> {
        match &self.place {
            None => positions.to_vec(),
            Some(place) => positions.iter().map(|at| place[*at as usize]).collect(),
        }
    }

    /// The numbers of a matrix at some places; 0 at places that the support lacks.
    pub fn numbers_at(&self, x: &[f64], places: &[u32]) -> Vec<f64> {
        match &self.place {
            None => places.iter().map(|place| x[*place as usize]).collect(),
            Some(own) => places.iter().map(|place| own.binary_search(place).map_or(0.0, |at| x[at])).collect(),
        }
    }

    /// Whether the support lacks a place for which `is` holds.
    pub fn misses(&self, is: impl Fn(usize) -> bool) -> bool {
        let Some(own) = &self.place else { return false };
        let first = |place: &u32| *place as usize + 1;
        let gaps = std::iter::once(0).chain(own.iter().map(first)).zip(own.iter().map(|place| *place as usize).chain([entries(self.d)]));
        gaps.flat_map(|(from, to)| from..to).any(is)
    }

    /// The positions of the entries on the diagonal, from the first row to the last.
    pub fn on_diagonal(&self) -> &[u32] {
        &self.diagonal
    }

    /// `c I` on a support with the diagonal.
    pub fn multiple_of_identity(&self, c: f64) -> Vec<f64> {
        let mut x = vec![0.0; self.len()];
        self.diagonal.iter().for_each(|at| x[*at as usize] = c);
        x
    }

    /// The Frobenius norm of a matrix: entries beside the diagonal count twice.
    pub fn norm(&self, x: &[f64]) -> f64 {
        self.norm_of(x, dot(x, x))
    }

    /// Subtracts a matrix from another one. Returns the Frobenius norm of the difference, with the bits of [`Support::norm`].
    pub fn subtract(&self, from: &mut [f64], x: &[f64]) -> f64 {
        let square = add_scaled_and_square(from, -1.0, x);
        self.norm_of(from, square)
    }

    /// The norm of a matrix whose stored entries have this sum of squares.
    fn norm_of(&self, x: &[f64], square: f64) -> f64 {
        let diagonal: f64 = self.diagonal.iter().map(|at| x[*at as usize].powi(2)).sum();
        (2.0 * square - diagonal).max(0.0).sqrt()
    }

    /// The product of a matrix with v; d numbers.
    pub fn product(&self, x: &[f64], v: &[f64]) -> Vec<f64> {
        if self.place.is_none() {
            return triangle_vec(x, v);
        }
        let mut out = vec![0.0; self.d];
        self.each(|at, _, i, j| {
            out[i] += x[at] * v[j];
            if i != j {
                out[j] += x[at] * v[i];
            }
        });
        out
    }

    /// Calls `see(position, place, row, column)` for each entry, row by row.
    pub fn each(&self, mut see: impl FnMut(usize, usize, usize, usize)) {
        let (mut i, mut first) = (0, 0);
        for at in 0..self.len() {
            let place = self.place.as_ref().map_or(at, |place| place[at] as usize);
            while place > first + i {
                i += 1;
                first = entries(i);
            }
            see(at, place, i, place - first);
        }
    }

    /// Adds `scale` times a matrix to some rows of a full triangle; `out` starts with the first of these rows.
    pub fn add_rows(&self, x: &[f64], scale: f64, rows: &Range<usize>, out: &mut [f64]) {
        let here = entries(rows.start)..entries(rows.end);
        match &self.place {
            None => add_scaled(out, scale, &x[here]),
            Some(place) => add_entries(place, x, scale, &here, out),
        }
    }

    /// Adds `scale` times the numbers `value` at these places, in increasing order, to a matrix. Returns whether the sums are finite;
    /// `None`, without adding, if the support lacks the place of a nonzero number.
    pub fn add_at(&self, places: &[u32], value: &[f64], scale: f64, x: &mut [f64]) -> Option<bool> {
        let Some(own) = &self.place else {
            let sums = places.iter().zip(value).map(|(at, value)| {
                let x = &mut x[*at as usize];
                *x += scale * value;
                x.is_finite()
            });
            return Some(sums.fold(true, |all, one| all & one));
        };
        FOUND.with_borrow_mut(|found| {
            found.clear();
            if self.words.is_empty() {
                found.extend(places.iter().map(finder(own)));
            } else {
                found.extend(places.iter().map(|place| {
                    let (word, bit) = (self.words[*place as usize / 64], 1 << (place % 64));
                    let at = word.before + (word.bits & (bit - 1)).count_ones();
                    if word.bits & bit == 0 { NOWHERE } else { at }
                }));
            }
            let lacks = found.iter().zip(value).fold(false, |some, (at, value)| some | ((*at == NOWHERE) & (*value != 0.0)));
            if lacks {
                return None;
            }
            let sums = found.iter().zip(value).map(|(at, value)| {
                let Some(x) = x.get_mut(*at as usize) else { return true };
                *x += scale * value;
                x.is_finite()
            });
            Some(sums.fold(true, |all, one| all & one))
        })
    }

    /// The support with these places added; they increase.
    #[must_use]
    pub fn with(&self, places: &[u32]) -> Self {
        let Some(own) = &self.place else { return self.clone() };
        let mut all = Vec::with_capacity(own.len() + places.len());
        let mut rest = own.as_slice();
        for place in places {
            let before = rest.partition_point(|own| own < place);
            all.extend_from_slice(&rest[..before]);
            rest = &rest[before..];
            if rest.first() != Some(place) {
                all.push(*place);
            }
        }
        all.extend_from_slice(rest);
        Self::of(self.d, all).expect("the union of places that increase")
    }

    /// A matrix of this support on a wider one.
    pub fn widened(&self, x: &[f64], wider: &Self) -> Vec<f64> {
        let mut out = Vec::new();
        self.widen(x, wider, &mut out);
        out
    }

    /// [`Support::widened`] into a vector whose memory is reused.
    pub fn widen(&self, x: &[f64], wider: &Self, out: &mut Vec<f64>) {
        out.clear();
        out.resize(wider.len(), 0.0);
        match (&self.place, &wider.place) {
            (None, _) => out.copy_from_slice(x),
            (Some(own), None) => own.iter().zip(x).for_each(|(place, x)| out[*place as usize] = *x),
            (Some(own), Some(all)) => {
                let mut at = 0;
                for (place, x) in own.iter().zip(x) {
                    at += all[at..].iter().position(|other| other == place).expect("a support with all places of this one");
                    out[at] = *x;
                }
            }
        }
    }
}

/// Finds the positions of places that are requested in increasing order.
fn finder(own: &[u32]) -> impl FnMut(&u32) -> u32 {
    let mut at = 0;
    move |place| {
        // In steps that double: the next place is near.
        let mut step = 1;
        while own.get(at + step).is_some_and(|own| own < place) {
            at += step;
            step *= 2;
        }
        let end = own.len().min(at + step + 1);
        at += own[at..end].partition_point(|own| own < place);
        if own.get(at) == Some(place) { at as u32 } else { NOWHERE }
    }
}

/// Whether these are places of the lower triangle of a d x d matrix, in increasing order.
pub fn are_places(d: usize, places: &[u32]) -> bool {
    places.is_sorted_by(|a, b| a < b) && places.last().is_none_or(|last| (*last as usize) < entries(d))
}

/// Adds `scale` times numbers at increasing places to the part `here` of a full triangle.
pub fn add_entries(places: &[u32], value: &[f64], scale: f64, here: &Range<usize>, out: &mut [f64]) {
    let from = places.partition_point(|place| (*place as usize) < here.start);
    for (place, value) in places[from..].iter().zip(&value[from..]) {
        let Some(out) = (*place as usize).checked_sub(here.start).and_then(|at| out.get_mut(at)) else { break };
        *out += scale * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::triangle_norm;
    use crate::random::{Purpose, stream};

    const D: usize = 11;

    /// Supports from empty to all, numbers on them, and the same matrices with all entries.
    fn cases() -> Vec<(Support, Vec<f64>, Vec<f64>)> {
        let mut draw = stream(3, Purpose::System, 0, 0);
        let case = |share: f64| {
            let place: Vec<u32> = (0..entries(D) as u32).filter(|_| draw.uniform() < share).collect();
            let x: Vec<f64> = place.iter().map(|_| draw.normal()).collect();
            let mut full = vec![0.0; entries(D)];
            place.iter().zip(&x).for_each(|(place, x)| full[*place as usize] = *x);
            (Support::of(D, place).unwrap(), x, full)
        };
        [0.0, 0.1, 0.5, 0.9, 1.0].map(case).into()
    }

    #[test]
    fn matrices_on_supports_are_those_with_all_entries() {
        let v: Vec<f64> = (0..D).map(|i| (i as f64 * 0.7).sin()).collect();
        for (support, x, full) in cases() {
            let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-14);
            assert!((support.norm(&x) - triangle_norm(&full, D)).abs() < 1e-14);
            let other: Vec<f64> = x.iter().enumerate().map(|(at, x)| x + (at as f64).sin()).collect();
            let mut difference = other.clone();
            let norm = support.subtract(&mut difference, &x);
            assert!(difference.iter().zip(other.iter().zip(&x)).all(|(difference, (a, b))| *difference == a - b));
            assert_eq!(norm.to_bits(), support.norm(&difference).to_bits());
            assert!(close(&support.product(&x, &v), &triangle_vec(&full, &v)));
            assert_eq!(support.widened(&x, &Support::all(D)), full);
            assert_eq!(Support::all(D).multiple_of_identity(2.0), Support::diagonal(D).widened(&[2.0; D], &Support::all(D)));
            for rows in [0..D, 0..1, 3..7, 7..D, 4..4] {
                let mut out = vec![1.0; entries(rows.end) - entries(rows.start)];
                support.add_rows(&x, 0.5, &rows, &mut out);
                let expected: Vec<f64> = full[entries(rows.start)..entries(rows.end)].iter().map(|x| 1.0 + 0.5 * x).collect();
                assert_eq!(out, expected);
            }
        }
    }

    /// With words, and by a search where they are too few for words.
    #[test]
    fn numbers_are_added_at_their_places_or_not_at_all() {
        let cases = cases();
        for (support, x, full) in &cases {
            for (other, value, _) in &cases {
                let places: Vec<u32> = other.places().map_or_else(|| (0..entries(D) as u32).collect(), <[u32]>::to_vec);
                let mut sum = x.clone();
                let has_all = support.places().is_none_or(|own| places.iter().all(|place| own.contains(place)));
                assert_eq!(support.add_at(&places, value, -2.0, &mut sum), has_all.then_some(true));
                if !has_all {
                    assert_eq!(&sum, x);
                    // Zeros need no place.
                    assert_eq!(support.add_at(&places, &vec![0.0; value.len()], -2.0, &mut sum), Some(true));
                }
                let wider = support.with(&places);
                let mut sum = support.widened(x, &wider);
                assert_eq!(wider.add_at(&places, value, -2.0, &mut sum), Some(true));
                let mut expected = full.clone();
                places.iter().zip(value).for_each(|(place, value)| expected[*place as usize] += -2.0 * value);
                assert_eq!(wider.widened(&sum, &Support::all(D)), expected);
                if !wider.is_empty() {
                    sum[0] = f64::MAX;
                    assert_eq!(wider.add_at(&wider.places_at(&[0]), &[f64::MAX], 1.0, &mut sum), Some(false));
                }
            }
        }
    }

    #[test]
    fn what_are_no_places_is_refused() {
        for bad in [vec![1, 1], vec![2, 1], vec![0, entries(D) as u32], vec![u32::MAX]] {
            assert_eq!(Support::of(D, bad), None);
        }
        assert_eq!(Support::of(D, (0..entries(D) as u32).collect()), Some(Support::all(D)));
        assert_eq!(Support::of(0, Vec::new()), Some(Support::all(0)));
    }
}
