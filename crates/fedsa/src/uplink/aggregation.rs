//! Means of the answers of an exchange.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::parallel;
use crate::sums::sum;

/// The server's mean of the answers that arrived, for methods that need only their sum.
///
/// The weight `w_i` of an answer is `p_c` times the factor by which it arrived. The server gets `sum_i w_i` times the mean, so missing
/// answers act alike under every mean. A robust mean bounds the effect of a minority of arbitrary finite answers. It moves the root if
/// answers are not symmetric around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// The weighted mean.
    #[default]
    Mean,
    /// The weighted median of each component: the mean of the smallest values up to which the weights sum to at least half, and to more
    /// than half.
    Median,
    /// The weighted mean of each component without the `floor(share n)` largest and smallest of n numbers; `0 <= share < 0.5`.
    TrimmedMean(#[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 0.5)))] f64),
}

impl Aggregation {
    /// Whether this is the weighted mean.
    pub fn is_mean(&self) -> bool {
        *self == Self::Mean
    }

    /// Checks that the share is in range.
    ///
    /// # Errors
    /// When it is not in [0, 0.5).
    pub fn check(self) -> Result<()> {
        let Self::TrimmedMean(share) = self else { return Ok(()) };
        require((0.0..0.5).contains(&share), "aggregation.trimmed_mean", share, "a share of the answers in [0, 0.5)")
    }

    /// `sum_i w_i` times the mean of messages of d numbers with their weights; `None` for a missing message. A robust mean does not depend
    /// on the order of messages.
    pub(crate) fn of<'a>(self, d: usize, messages: impl Iterator<Item = Option<(f64, &'a [f64])>>) -> Vec<f64> {
        if self.is_mean() {
            return sum(d, messages);
        }
        let came: Vec<(f64, &[f64])> = messages.flatten().collect();
        parallel::map(d, |j| {
            let mut values: Vec<(f64, f64)> = came.iter().map(|(w, x)| (x[j], *w)).collect();
            values.sort_unstable_by(|(x, w), (y, v)| x.total_cmp(y).then(w.total_cmp(v)));
            self.of_sorted(&values)
        })
    }

    /// [`Aggregation::of`] of one component: values in increasing order with their weights.
    fn of_sorted(self, values: &[(f64, f64)]) -> f64 {
        let weight_of = |values: &[(f64, f64)]| -> f64 { values.iter().map(|(_, w)| w).sum() };
        let weight = weight_of(values);
        let robust = match self {
            _ if values.is_empty() => 0.0,
            Self::Median => {
                0.5 * first_with(values, 0.5 * weight * (1.0 - ROUNDING)) + 0.5 * first_with(values, 0.5 * weight * (1.0 + ROUNDING))
            }
            Self::Mean | Self::TrimmedMean(_) => {
                let out = self.left_out(values.len());
                let kept = &values[out..values.len() - out];
                kept.iter().map(|(x, w)| w * x).sum::<f64>() / weight_of(kept)
            }
        };
        weight * robust
    }

    /// How many of n >= 1 answers are left out at either end; at least one remains.
    fn left_out(self, n: usize) -> usize {
        let Self::TrimmedMean(share) = self else { return 0 };
        ((share * n as f64 + ROUNDING) as usize).min((n - 1) / 2)
    }
}

/// Tolerance: relative, for sums of weights compared with half of the weight; absolute, for numbers of answers.
const ROUNDING: f64 = 1e-9;

/// The smallest value up to which the weights sum to at least `weight`.
fn first_with(values: &[(f64, f64)], weight: f64) -> f64 {
    let mut below = 0.0;
    let found = values.iter().find(|(_, w)| {
        below += w;
        below >= weight
    });
    found.or(values.last()).map_or(0.0, |(x, _)| *x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream, stream};

    fn of(aggregation: Aggregation, messages: &[(f64, f64)]) -> f64 {
        aggregation.of(1, messages.iter().map(|(w, x)| Some((*w, std::slice::from_ref(x))))).remove(0)
    }

    /// The weight of the values that are no larger than x.
    fn up_to(messages: &[(f64, f64)], x: f64) -> f64 {
        messages.iter().filter(|(_, y)| *y <= x).map(|(w, _)| w).sum()
    }

    /// The median as its documentation defines it, of weights whose sums are exact.
    fn median_by_definition(messages: &[(f64, f64)]) -> f64 {
        let half = up_to(messages, f64::INFINITY) / 2.0;
        let least = |is_enough: &dyn Fn(f64) -> bool| {
            let enough = messages.iter().map(|(_, x)| *x).filter(|x| is_enough(up_to(messages, *x)));
            enough.fold(f64::INFINITY, f64::min)
        };
        (least(&|weight| weight >= half) + least(&|weight| weight > half)) / 2.0
    }

    /// The trimmed mean: the least and the largest are removed one after the other, the lightest of the least and the heaviest of the largest.
    fn trimmed_by_definition(messages: &[(f64, f64)], out: usize) -> f64 {
        let mut kept = messages.to_vec();
        for _ in 0..out {
            for sign in [1.0, -1.0] {
                let mut first = 0;
                for (i, (w, x)) in kept.iter().enumerate() {
                    let (v, y) = kept[first];
                    if sign * x < sign * y || (*x == y && sign * w < sign * v) {
                        first = i;
                    }
                }
                kept.remove(first);
            }
        }
        kept.iter().map(|(w, x)| w * x).sum::<f64>() / kept.iter().map(|(w, _)| w).sum::<f64>()
    }

    /// Answers with ties, and weights that are whole numbers.
    fn drawn(n: usize, draws: &mut Stream) -> Vec<(f64, f64)> {
        (0..n).map(|_| ((1 + draws.bits() % 4) as f64, (draws.bits() % 7) as f64 - 2.5)).collect()
    }

    #[test]
    fn robust_means_are_those_of_their_definitions() {
        let mut draws = stream(3, Purpose::Fresh, 0, 0);
        for n in (1..14).cycle().take(2000) {
            let messages = drawn(n, &mut draws);
            let weight = up_to(&messages, f64::INFINITY);
            assert_eq!(of(Aggregation::Median, &messages), weight * median_by_definition(&messages), "{messages:?}");
            for (tenths, share) in [(0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)] {
                let out = n * tenths / 10;
                let (got, expected) = (of(Aggregation::TrimmedMean(share), &messages), weight * trimmed_by_definition(&messages, out));
                assert!((got - expected).abs() <= 1e-14 * weight * 5.0, "{share}, {messages:?}: {got} for {expected}");
            }
        }
    }

    #[test]
    fn the_order_of_answers_does_not_matter() {
        let mut draws = stream(4, Purpose::Fresh, 0, 0);
        for aggregation in [Aggregation::Median, Aggregation::TrimmedMean(0.0), Aggregation::TrimmedMean(0.25)] {
            for _ in 0..200 {
                let mut messages: Vec<(f64, f64)> =
                    (0..9).map(|i| (0.1 + draws.uniform(), if i % 3 == 0 { 0.3 } else { draws.normal() })).collect();
                let before = of(aggregation, &messages);
                for i in (1..messages.len()).rev() {
                    messages.swap(i, draws.bits() as usize % (i + 1));
                }
                assert_eq!(of(aggregation, &messages).to_bits(), before.to_bits(), "{messages:?}");
            }
        }
    }

    #[test]
    fn few_answers_and_equal_weights_have_the_known_values() {
        let equal = |values: &[f64]| -> Vec<(f64, f64)> { values.iter().map(|x| (1.0 / values.len() as f64, *x)).collect() };
        let median = |values: &[f64]| of(Aggregation::Median, &equal(values));
        let trimmed = |share: f64, values: &[f64]| of(Aggregation::TrimmedMean(share), &equal(values));
        // Up to 200 weights are added twice, each time with a rounding.
        let near = |x: f64, y: f64| assert!((x - y).abs() <= 200.0 * f64::EPSILON * y.abs(), "{x} for {y}");
        near(median(&[3.0]), 3.0);
        near(median(&[7.0, 1.0]), 4.0);
        near(median(&[9.0, 1.0, 2.0]), 2.0);
        // Sums of 1/n differ from 1/2 by rounding for some n.
        for n in 1..200 {
            near(median(&(0..n).map(|i| 1.0 + f64::from(i)).collect::<Vec<_>>()), f64::from(n + 1) / 2.0);
        }
        near(trimmed(0.49, &[3.0]), 3.0);
        near(trimmed(0.49, &[7.0, 1.0]), 4.0);
        near(trimmed(0.34, &[9.0, 1.0, 2.0]), 2.0);
        near(trimmed(0.33, &[9.0, 1.0, 2.0]), 4.0);
        // 0.29 * 100 is less than 29 as computed.
        let powers: Vec<f64> = (0..100).map(|i| f64::from(i * i)).collect();
        near(trimmed(0.29, &powers), (29..71).map(|i| f64::from(i * i)).sum::<f64>() / 42.0);
        assert_eq!(Aggregation::Median.of(2, std::iter::repeat_n(None, 3)), [0.0, 0.0]);
        for share in [-0.1, 0.5, 0.7, f64::NAN] {
            assert_eq!(Aggregation::TrimmedMean(share).check().unwrap_err().key, "aggregation.trimmed_mean");
        }
        assert!(
            [Aggregation::Mean, Aggregation::Median, Aggregation::TrimmedMean(0.0), Aggregation::TrimmedMean(0.49)]
                .map(|a| a.check().is_ok())
                == [true; 4]
        );
    }
}
