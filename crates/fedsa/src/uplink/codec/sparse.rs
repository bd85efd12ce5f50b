//! Sparsification: k of the n components, the largest or random ones.
//!
//! k is a number, or a fraction of n rounded to the nearest whole number and at least 1. A k above n means n, but a link refuses k > d. A
//! budget of B bits per component leaves `n B` bits for values and indices; it does not cover the count before them. At most k components
//! are sent, as many as fit into these bits. If none fits, no message is sent. Other components are decoded as 0.
//!
//! - *top-k*: among equal components the first are sent; NaN counts as the largest. The error bound suffices for convergence with error
//!   feedback (Stich, Cordonnier and Jaggi 2018). Payload: k u32, the indices in increasing order, `ceil(log2 n)` bits each (packed like the
//!   quantiser's levels), then the values, f64.
//! - *rand-k*: the set is uniform over all sets of k. It is drawn from a stream that both ends can open, so indices are not sent. Scaled
//!   values near the largest f64 overflow to infinity. Payload: k u32, then the values by increasing index, f64.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bits::{self, packed_len};
use super::{Codec, CodecSettings, malformed};
use crate::error::{Error, Result, require};
use crate::random::Stream;

/// The k components of largest magnitude.
///
/// Deterministic and biased: `||x^ - x||^2 <= (1 - k/n) ||x||^2`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TopK {
    /// Number of components; or `fraction`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub k: Option<usize>,
    /// Share of components; or `k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1), extend("exclusiveMinimum" = 0)))]
    pub fraction: Option<f64>,
}

crate::settings::setters! { TopK {
    with_k(k: impl Into<Option<usize>>) = k.into();
    with_fraction(fraction: impl Into<Option<f64>>) = fraction.into();
} }

/// A random set of k components.
///
/// Scaled by n/k: `E x^ = x`, `E ||x^ - x||^2 = (n/k - 1) ||x||^2`. Unscaled, for error feedback: `E ||x^ - x||^2 = (1 - k/n) ||x||^2`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RandK {
    /// Number of components; or `fraction`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub k: Option<usize>,
    /// Share of components; or `k`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1), extend("exclusiveMinimum" = 0)))]
    pub fraction: Option<f64>,
    /// Whether values are scaled by n/k.
    #[serde(default = "yes")]
    pub unbiased: bool,
}

impl Default for RandK {
    /// Unbiased, with neither `k` nor `fraction` set.
    fn default() -> Self {
        Self { k: None, fraction: None, unbiased: yes() }
    }
}

crate::settings::setters! { RandK {
    with_k(k: impl Into<Option<usize>>) = k.into();
    with_fraction(fraction: impl Into<Option<f64>>) = fraction.into();
    with_unbiased(unbiased: bool) = unbiased;
} }

fn yes() -> bool {
    true
}

impl CodecSettings for TopK {
    fn check(&self) -> Result<()> {
        check(self.k, self.fraction)
    }
    fn build(&self) -> Arc<dyn Codec> {
        Arc::new(Largest(Count::new(self.k, self.fraction)))
    }
}

impl CodecSettings for RandK {
    fn check(&self) -> Result<()> {
        check(self.k, self.fraction)
    }
    fn build(&self) -> Arc<dyn Codec> {
        Arc::new(Random { count: Count::new(self.k, self.fraction), unbiased: self.unbiased })
    }
}

fn check(k: Option<usize>, fraction: Option<f64>) -> Result<()> {
    let accepted = "either `k`, a number of components, or `fraction`, a share of them in (0, 1]";
    match (k, fraction) {
        (Some(k), None) => require(k >= 1, "k", k, "at least 1"),
        (None, Some(f)) => require(f > 0.0 && f <= 1.0, "fraction", f, "in (0, 1]"),
        (Some(k), Some(f)) => Err(Error::new("k", format!("both k = {k} and fraction = {f} are given"), accepted)),
        (None, None) => Err(Error::new("k", "neither k nor fraction is given", accepted)),
    }
}

/// The number of components to send.
#[derive(Debug, Clone, Copy, Serialize)]
enum Count {
    Number(usize),
    Fraction(f64),
}

/// The number of bytes before the components, which hold their count.
const HEAD: usize = 4;

impl Count {
    fn new(k: Option<usize>, fraction: Option<f64>) -> Self {
        match (k, fraction) {
            (Some(k), _) => Count::Number(k),
            (None, fraction) => Count::Fraction(fraction.expect("settings are checked")),
        }
    }

    /// k for vectors of n components, without a budget.
    fn of(self, n: usize) -> usize {
        let k = match self {
            Count::Number(k) => k,
            Count::Fraction(f) => ((f * n as f64).round() as usize).max(1),
        };
        k.min(n)
    }

    fn check_dim(self, d: usize) -> Result<()> {
        match self {
            Count::Number(k) => require(k <= d, "k", k, &format!("at most the number of components, d = {d}")),
            Count::Fraction(_) => Ok(()),
        }
    }

    /// The number of components of `bits` bits each that fit into the budget, at most k; `None` if none fits.
    fn within(self, n: usize, bits: u32, budget: Option<u32>) -> Option<usize> {
        let Some(budget) = budget else { return Some(self.of(n)) };
        let fit = (n as u128 * u128::from(budget) / u128::from(bits)).min(n as u128) as usize;
        let k = fit.min(self.of(n));
        (k > 0 || n == 0).then_some(k)
    }

    /// The smallest number of components of a message under any budget.
    fn fewest(self, n: usize, bits: u32) -> usize {
        // The smallest whole budget that fits one component.
        let smallest = (bits as usize).div_ceil(n.max(1)) as u32;
        self.within(n, bits, Some(smallest)).expect("one fits")
    }

    /// Reads the count at the start of a message with `bits` bits per component; also returns the bytes after it.
    fn read(self, bytes: &[u8], n: usize, bits: u32) -> Result<(usize, &[u8])> {
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else { return Err(malformed("too short for a count")) };
        let k = u32::from_le_bytes(head.try_into().expect("four bytes")) as usize;
        let (fewest, most) = (self.fewest(n, bits), self.of(n));
        if !(fewest..=most).contains(&k) {
            return Err(malformed(format!("{k} of {n} components; the settings allow {fewest} to {most}")));
        }
        Ok((k, rest))
    }
}

/// Appends the count of a message.
fn write_count(k: usize, out: &mut Vec<u8>) {
    out.extend((k as u32).to_le_bytes());
}

/// The `k` values at the start of `bytes`.
fn values(bytes: &[u8], k: usize) -> Result<impl Iterator<Item = f64> + '_> {
    let taken = bytes.get(..8 * k).ok_or_else(|| malformed(format!("{} bytes for {k} values", bytes.len())))?;
    Ok(taken.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))))
}

/// Top-k.
#[derive(Debug, Serialize)]
struct Largest(Count);

/// The number of bits of an index below n; 0 if n is at most 1.
fn index_bits(n: usize) -> u32 {
    usize::BITS - n.saturating_sub(1).leading_zeros()
}

impl Largest {
    fn len(k: usize, n: usize) -> usize {
        packed_len(k, index_bits(n)).saturating_add(k.saturating_mul(8)).saturating_add(HEAD)
    }
}

impl Codec for Largest {
    fn tag(&self) -> u8 {
        3
    }
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize> {
        self.0.within(n, 64 + index_bits(n), budget).map(|k| Self::len(k, n))
    }
    fn encode(&self, x: &[f64], budget: Option<u32>, _: &mut Stream, out: &mut Vec<u8>) {
        let n = x.len();
        let k = self.0.within(n, 64 + index_bits(n), budget).expect("the budget carries no message");
        write_count(k, out);
        let chosen = largest(x, k);
        let start = out.len();
        out.resize(start + packed_len(k, index_bits(n)), 0);
        if index_bits(n) > 0 {
            bits::pack(&chosen, index_bits(n), &mut out[start..]);
        }
        chosen.iter().for_each(|i| out.extend(x[*i as usize].to_le_bytes()));
    }
    fn decode(&self, bytes: &[u8], _: &mut Stream, out: &mut [f64]) -> Result<usize> {
        let n = out.len();
        let width = index_bits(n);
        let (k, rest) = self.0.read(bytes, n, 64 + width)?;
        let Some((packed, rest)) = rest.split_at_checked(packed_len(k, width)) else {
            return Err(malformed(format!("{} bytes for {k} indices of {width} bits", rest.len())));
        };
        let values = values(rest, k)?;
        let mut chosen = vec![0; k];
        if width > 0 {
            bits::unpack(packed, width, &mut chosen);
        }
        if !chosen.is_sorted_by(|a, b| a < b) || chosen.last().is_some_and(|i| *i >= n as u64) {
            return Err(malformed(format!("indices that do not increase, or not below {n}")));
        }
        out.fill(0.0);
        chosen.iter().zip(values).for_each(|(i, value)| out[*i as usize] = value);
        Ok(Self::len(k, n))
    }
    fn min_len(&self, n: usize) -> usize {
        Self::len(self.0.fewest(n, 64 + index_bits(n)), n)
    }
    fn is_unbiased(&self) -> bool {
        false
    }
    fn check_dim(&self, d: usize) -> Result<()> {
        self.0.check_dim(d)
    }
}

/// The indices of the `k` components of largest magnitude in increasing order; among equal components the first are chosen.
fn largest(x: &[f64], k: usize) -> Vec<u64> {
    let n = x.len();
    if k == 0 || k == n {
        return (0..k as u64).collect();
    }
    // Without signs, f64 have the same order as their bits; NaN is the largest.
    let magnitude = |x: &f64| x.to_bits() & (u64::MAX >> 1);
    let mut all: Vec<u64> = x.iter().map(magnitude).collect();
    let (_, &mut least, above) = all.select_nth_unstable(n - k);
    let mut ties = k - above.iter().filter(|m| **m > least).count();
    let mut chosen = Vec::with_capacity(k);
    for (i, x) in x.iter().enumerate() {
        let m = magnitude(x);
        if m > least {
            chosen.push(i as u64);
        } else if m == least && ties > 0 {
            ties -= 1;
            chosen.push(i as u64);
        }
    }
    chosen
}

/// Rand-k.
#[derive(Debug, Serialize)]
struct Random {
    count: Count,
    unbiased: bool,
}

impl Random {
    fn len(k: usize) -> usize {
        k.saturating_mul(8).saturating_add(HEAD)
    }
}

impl Codec for Random {
    fn tag(&self) -> u8 {
        4
    }
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize> {
        self.count.within(n, 64, budget).map(Self::len)
    }
    fn encode(&self, x: &[f64], budget: Option<u32>, stream: &mut Stream, out: &mut Vec<u8>) {
        let k = self.count.within(x.len(), 64, budget).expect("the budget carries no message");
        out.reserve(Self::len(k));
        write_count(k, out);
        each(&subset(x.len(), k, stream), |i| out.extend(x[i].to_le_bytes()));
    }
    fn decode(&self, bytes: &[u8], stream: &mut Stream, out: &mut [f64]) -> Result<usize> {
        let n = out.len();
        let (k, rest) = self.count.read(bytes, n, 64)?;
        let mut values = values(rest, k)?;
        let scale = if self.unbiased { n as f64 / k as f64 } else { 1.0 };
        out.fill(0.0);
        each(&subset(n, k, stream), |i| out[i] = scale * values.next().expect("k of them"));
        Ok(Self::len(k))
    }
    fn min_len(&self, n: usize) -> usize {
        Self::len(self.count.fewest(n, 64))
    }
    fn is_unbiased(&self) -> bool {
        self.unbiased
    }
    fn check_dim(&self, d: usize) -> Result<()> {
        self.count.check_dim(d)
    }
    fn check_feedback(&self, d: usize) -> Result<()> {
        // The stored error of y has E ||y - Q(y)||^2 = (d/k - 1) ||y||^2.
        let grows = self.unbiased && 2 * self.count.of(d) <= d;
        require(
            !grows,
            "unbiased",
            true,
            "false with error feedback, whose stored error would grow from round to round with at most half of the components",
        )
    }
}

/// A random set of `k` of the numbers below `n`, as a map of n bits.
///
/// Floyd's algorithm (Bentley and Floyd 1987), on the smaller of the set and its
/// complement: `min(k, n - k)` draws. The relative error of a number's probability is
/// at most `n / 2^64`.
fn subset(n: usize, k: usize, stream: &mut Stream) -> Vec<u64> {
    let mut map = vec![0u64; n.div_ceil(64)];
    let drawn = k.min(n - k);
    for last in n - drawn..n {
        let i = stream.below(last + 1);
        let taken = map[i / 64] >> (i % 64) & 1 == 1;
        let i = if taken { last } else { i };
        map[i / 64] |= 1 << (i % 64);
    }
    if drawn < k {
        map.iter_mut().for_each(|word| *word = !*word);
        // The last word holds 1 to 64 of the n.
        *map.last_mut().expect("n >= k > 0") &= bits::largest(((n - 1) % 64 + 1) as u32);
    }
    map
}

/// Visits the members of a set in increasing order.
fn each(map: &[u64], mut visit: impl FnMut(usize)) {
    for (w, &word) in map.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            visit(64 * w + word.trailing_zeros() as usize);
            word &= word - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{ALL, Purpose, stream};

    #[test]
    fn the_largest_are_chosen_and_of_equal_ones_the_first() {
        assert_eq!(largest(&[1.0, -3.0, 2.0, 3.0], 1), [1]);
        assert_eq!(largest(&[1.0, -3.0, 2.0, 3.0], 3), [1, 2, 3]);
        assert_eq!(largest(&[0.0, -0.0, 0.0], 2), [0, 1]);
        assert_eq!(largest(&[1.0, f64::INFINITY, f64::NAN], 1), [2]);
        assert_eq!(largest(&[5e-324, 0.0], 1), [0]);
        let mut normals = stream(3, Purpose::Codec, 0, ALL);
        for k in 0..=50 {
            // Rounded, so that there are ties.
            let x: Vec<f64> = (0..50).map(|_| (3.0 * normals.normal()).round()).collect();
            let mut sorted: Vec<u64> = (0..50).collect();
            sorted.sort_by(|i, j| x[*j as usize].abs().total_cmp(&x[*i as usize].abs()));
            sorted.truncate(k);
            sorted.sort_unstable();
            assert_eq!(largest(&x, k), sorted, "{x:?}");
        }
    }

    #[test]
    fn subsets_have_k_members_and_all_are_as_likely() {
        let mut drawn = stream(4, Purpose::Codec, 0, ALL);
        for n in [0, 1, 63, 64, 65, 200] {
            for k in 0..=n {
                let mut members = Vec::new();
                each(&subset(n, k, &mut drawn), |i| members.push(i));
                assert!(members.len() == k && members.is_sorted_by(|a, b| a < b) && members.iter().all(|i| *i < n));
            }
        }
        // All 15 pairs, and quadruples, of 6: chi squared beyond 45 with probability 4e-5.
        for k in [2, 4] {
            let mut counts = std::collections::BTreeMap::new();
            for _ in 0..15_000 {
                *counts.entry(subset(6, k, &mut drawn)[0]).or_insert(0.0) += 1.0;
            }
            let chi: f64 = counts.values().map(|c: &f64| (c - 1000.0).powi(2) / 1000.0).sum();
            assert!(counts.len() == 15 && chi < 45.0, "chi squared {chi}");
        }
    }

    #[test]
    fn counts_follow_settings_and_budgets() {
        assert_eq!(Count::Number(5).of(3), 3);
        assert_eq!(Count::Fraction(0.1).of(3), 1);
        assert_eq!(Count::Fraction(0.55).of(100), 55);
        assert_eq!(Count::Fraction(1.0).of(7), 7);
        let k = Count::Number(10);
        assert_eq!(k.within(100, 71, Some(1)), Some(1)); // 100 bits, 71 each
        assert_eq!(k.within(100, 71, Some(3)), Some(4));
        assert_eq!(k.within(100, 71, Some(u32::MAX)), Some(10));
        assert_eq!(k.within(50, 70, Some(1)), None);
        assert_eq!(k.within(50, 70, Some(0)), None);
        assert_eq!([index_bits(1), index_bits(2), index_bits(3), index_bits(64), index_bits(65)], [0, 1, 2, 6, 7]);
    }

    #[test]
    fn indices_that_no_encoder_makes_are_refused() {
        let codec = TopK { k: Some(2), fraction: None }.build();
        let mut out = [0.0; 3];
        let mut decode = |k: u32, indices: u8| {
            let message = [&k.to_le_bytes()[..], &[indices], &[0; 16]].concat();
            codec.decode(&message, &mut Stream::default(), &mut out)
        };
        assert_eq!(decode(2, 0b10_00).unwrap(), 21);
        assert!(decode(2, 0b00_10).is_err(), "decreasing");
        assert!(decode(2, 0b01_01).is_err(), "twice the same");
        assert!(decode(2, 0b11_00).is_err(), "index 3 of 3");
        assert!(decode(3, 0).is_err(), "more than k");
        assert!(decode(0, 0).is_err(), "none");
    }
}
