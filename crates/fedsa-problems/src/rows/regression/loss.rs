//! Losses of the rows' margins. A [`Loss`] has one margin and is the same for all rows, as in logistic and least-squares regression.

use std::ops::Range;

use crate::kernel::elementary::{exp_below, log_one_plus, polynomial};
use crate::kernel::margins;
use crate::kernel::margins::TERMS;
use fedsa::kernel::Isa;

/// The kind of second derivatives of the rows' losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bends {
    /// The exact ones.
    Exact,
    /// The second derivatives of a quadratic function that majorises the losses.
    Majorant,
    /// The exact ones, or the majorant's if most exact ones vanish. Newton's method needs a non-zero Hessian, and near the minimum the
    /// exact one.
    Useful,
}

/// The losses of all agents' rows; a row has q margins.
///
/// Methods take the indices of consecutive rows, and their n margins by output: row i and output k are at `k n + i`.
pub trait RowLosses: std::fmt::Debug + Send + Sync + 'static {
    /// Whether second derivatives are constant, so that operators are linear in theta.
    const IS_LINEAR: bool;

    /// A bound of the second derivatives, if known.
    fn most_bend(&self) -> Option<f64>;
    /// The number of margins q of a row.
    #[inline(always)]
    fn outputs(&self) -> usize {
        1
    }
    /// Whether the second derivatives of [`Bends::Majorant`] differ from the exact ones.
    fn has_majorant(&self) -> bool {
        false
    }
    /// A bound of the rounding error of a mean of losses.
    fn rounding(&self, mean: f64) -> f64;
    /// Replaces the q margins t of row j by `-dl/dt`.
    fn pull_of(&self, j: usize, t: &mut [f64]);
    /// Replaces the margins t of rows by `-dl/dt`.
    fn pulls(&self, isa: Isa, rows: Range<usize>, t: &mut [f64]);
    /// The second derivatives at the margins t of rows: row i and outputs k and l are at `(k q + l) n + i`.
    fn bends(&self, isa: Isa, rows: Range<usize>, t: &[f64], of: Bends) -> Vec<f64>;
    /// `sum_j l(t_j)` over rows.
    fn sum(&self, isa: Isa, rows: Range<usize>, t: &[f64]) -> f64;
    /// `sum_j l(t_j + s u_j)` over rows for each of `steps`. At step 0 it has the bits of [`RowLosses::sum`], if u is finite.
    fn sums_along(&self, isa: Isa, rows: Range<usize>, t: &[f64], u: &[f64], steps: &[f64], out: &mut [f64]);
    /// The same for one step of any length.
    fn sum_along(&self, isa: Isa, rows: Range<usize>, t: &[f64], u: &[f64], s: f64) -> f64;
}

/// The loss `l(t)` of a row, as a function of its margin t, and its derivatives. l is convex.
pub trait Loss: std::fmt::Debug + Default + Send + Sync + 'static {
    /// Whether `l''` is constant.
    const IS_LINEAR: bool;
    /// A bound of `l''`.
    const MAX_BEND: f64;
    /// The radius around t within which [`Loss::series`] is exact to rounding: the truncation error is below a tenth of a rounding error of
    /// `l(t + u)`, and no terms cancel. 0 without a series.
    const REACH: f64;
    /// `l(t)`.
    fn value(t: f64) -> f64;
    /// `-l'(t)`.
    fn pull(t: f64) -> f64;
    /// `l''(t)`, from 0 to [`Loss::MAX_BEND`].
    fn bend(t: f64) -> f64;
    /// The coefficients `l^(k)(t) / k!` of the powers `u^k` in `l(t + u)`; the first one has the bits of [`Loss::value`].
    fn series(t: f64) -> [f64; TERMS];
}

impl<L: Loss> RowLosses for L {
    const IS_LINEAR: bool = L::IS_LINEAR;

    fn most_bend(&self) -> Option<f64> {
        Some(L::MAX_BEND)
    }
    /// Losses are at least 0 and do not cancel.
    fn rounding(&self, mean: f64) -> f64 {
        64.0 * f64::EPSILON * mean.abs()
    }
    #[inline(always)]
    fn pull_of(&self, _: usize, t: &mut [f64]) {
        t[0] = L::pull(t[0]);
    }
    #[inline(always)]
    fn pulls(&self, isa: Isa, _: Range<usize>, t: &mut [f64]) {
        margins::map(isa, t, L::pull);
    }
    fn bends(&self, isa: Isa, _: Range<usize>, t: &[f64], _: Bends) -> Vec<f64> {
        let mut out = t.to_vec();
        margins::map(isa, &mut out, L::bend);
        out
    }
    fn sum(&self, isa: Isa, _: Range<usize>, t: &[f64]) -> f64 {
        margins::sum(isa, t, L::value)
    }
    /// Steps within the radius of the series for every margin share the sums of its coefficients. A trial step then takes a few operations
    /// instead of a pass over the rows.
    fn sums_along(&self, isa: Isa, _: Range<usize>, t: &[f64], u: &[f64], steps: &[f64], out: &mut [f64]) {
        // NaN is outside any radius.
        let most = margins::largest(isa, u);
        let is_short = |s: f64| L::REACH > 0.0 && s.abs() * most <= L::REACH;
        let series = steps.iter().any(|s| is_short(*s)).then(|| margins::series_along(isa, t, u, L::series));
        for (s, out) in steps.iter().zip(out) {
            *out = match series {
                Some(sums) if is_short(*s) => sums.iter().rev().fold(0.0, |sum, k| f64::mul_add(sum, *s, *k)),
                _ => margins::sum_along(isa, t, u, *s, L::value),
            };
        }
    }
    fn sum_along(&self, isa: Isa, _: Range<usize>, t: &[f64], u: &[f64], s: f64) -> f64 {
        margins::sum_along(isa, t, u, s, L::value)
    }
}

/// `l(t) = log(1 + exp(-t))` of the margin `t = y x . theta`, y in {-1, 1}.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogLoss;

/// `1 / (1 + exp(-t))`.
#[inline(always)]
pub(crate) fn sigmoid(t: f64) -> f64 {
    let e = exp_below(-t.abs());
    (if t < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

impl Loss for LogLoss {
    const IS_LINEAR: bool = false;
    const MAX_BEND: f64 = 0.25;
    /// The terms of `l(t + u)` decrease as `(u / pi)^k`, since the nearest singularities of l are at `+- pi i`.
    const REACH: f64 = 0.125;

    /// Without overflow.
    #[inline(always)]
    fn value(t: f64) -> f64 {
        (if t < 0.0 { -t } else { 0.0 }) + log_one_plus(exp_below(-t.abs()))
    }
    #[inline(always)]
    fn pull(t: f64) -> f64 {
        sigmoid(-t)
    }
    /// `sigmoid(t) sigmoid(-t)` with one exponential, and without the cancellation of `pull (1 - pull)` for t far below 0.
    #[inline(always)]
    fn bend(t: f64) -> f64 {
        let e = exp_below(-t.abs());
        e / ((1.0 + e) * (1.0 + e))
    }

    #[inline(always)]
    fn series(t: f64) -> [f64; TERMS] {
        let e = exp_below(-t.abs());
        let q = 1.0 / (1.0 + e);
        let (w, z) = (e * q * q, (if t < 0.0 { e - 1.0 } else { 1.0 - e }) * q);
        let odd = -z * w;
        [
            Self::value(t),
            -(if t < 0.0 { q } else { e * q }),
            w * polynomial(w, const { of_derivative::<1>(2) }),
            odd * polynomial(w, const { of_derivative::<1>(3) }),
            w * polynomial(w, const { of_derivative::<2>(4) }),
            odd * polynomial(w, const { of_derivative::<2>(5) }),
            w * polynomial(w, const { of_derivative::<3>(6) }),
            odd * polynomial(w, const { of_derivative::<3>(7) }),
            w * polynomial(w, const { of_derivative::<4>(8) }),
            odd * polynomial(w, const { of_derivative::<4>(9) }),
            w * polynomial(w, const { of_derivative::<5>(10) }),
            odd * polynomial(w, const { of_derivative::<5>(11) }),
        ]
    }
}

/// The polynomial P of degree K - 1 with `l^(k) / k! = w P(w)` for even k, and `-z w P(w)` for odd k, where `w = l''` and
/// `z = tanh(t / 2)`.
///
/// It follows from `z' = 2 w`, `w' = -z w` and `z^2 = 1 - 4 w`: `w P` has the derivative `-z w (P + w P')`, and `-z w P` has
/// `w ((1 - 6 w) P + w (1 - 4 w) P')`.
const fn of_derivative<const K: usize>(k: usize) -> [f64; K] {
    assert!(k / 2 == K);
    let (mut now, mut factorial, mut order) = ([0.0; K], 2.0, 2);
    now[0] = 1.0;
    while order < k {
        let (mut next, mut i) = ([0.0; K], 0);
        while i < K {
            let n = i as f64;
            next[i] += (n + 1.0) * now[i];
            if order % 2 == 1 && i + 1 < K {
                next[i + 1] -= (4.0 * n + 6.0) * now[i];
            }
            i += 1;
        }
        order += 1;
        factorial *= order as f64;
        now = next;
    }
    let mut i = 0;
    while i < K {
        now[i] /= factorial;
        i += 1;
    }
    now
}

/// `l(t) = t^2 / 2` of the residual `t = x . theta - y`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SquaredLoss;

impl Loss for SquaredLoss {
    const IS_LINEAR: bool = true;
    const MAX_BEND: f64 = 1.0;
    /// Its terms cancel for small residuals.
    const REACH: f64 = 0.0;

    #[inline(always)]
    fn value(t: f64) -> f64 {
        0.5 * t * t
    }
    #[inline(always)]
    fn pull(t: f64) -> f64 {
        -t
    }
    #[inline(always)]
    fn bend(_: f64) -> f64 {
        1.0
    }

    #[inline(always)]
    fn series(t: f64) -> [f64; TERMS] {
        std::array::from_fn(|k| match k {
            0 => Self::value(t),
            1 => t,
            2 => 0.5,
            _ => 0.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_are_differences_and_large_margins_do_not_overflow() {
        fn check<L: Loss>() {
            for t in [-30.0, -3.0, -0.2, 0.0, 0.7, 5.0, 30.0] {
                let h = 1e-4;
                let slope = (L::value(t + h) - L::value(t - h)) / (2.0 * h);
                assert!((slope + L::pull(t)).abs() < 1e-7, "{slope} {}", L::pull(t));
                let bend = (L::pull(t - h) - L::pull(t + h)) / (2.0 * h);
                assert!((bend - L::bend(t)).abs() < 1e-7 && L::bend(t) <= L::MAX_BEND);
            }
        }
        check::<LogLoss>();
        check::<SquaredLoss>();
        assert_eq!((LogLoss::value(-800.0), LogLoss::value(800.0)), (800.0, 0.0));
        assert_eq!((LogLoss::pull(-800.0), LogLoss::pull(800.0), LogLoss::bend(800.0)), (1.0, 0.0, 0.0));
    }

    /// The series is exact to rounding, relative to the loss, within its radius.
    #[test]
    fn series_are_the_loss_as_far_as_they_reach() {
        for t in [-60.0, -8.0, -1.3, -0.4, 0.0, 0.2, 1.0, 2.5, 7.0, 30.0, 200.0] {
            let series = LogLoss::series(t);
            assert_eq!(series[0].to_bits(), LogLoss::value(t).to_bits());
            assert!((series[1] + LogLoss::pull(t)).abs() <= 1e-15 * LogLoss::pull(t));
            assert!((2.0 * series[2] / LogLoss::bend(t) - 1.0).abs() <= 1e-15);
            for u in [-1.0, -0.7, 0.3, 1.0].map(|share| share * LogLoss::REACH) {
                let (sum, expected) = (polynomial(u, series), LogLoss::value(t + u));
                // Rounding of `t + u` changes the loss by up to half a unit in the last place of t.
                let error = f64::EPSILON * (3.0 * expected + t.abs() * LogLoss::pull(t + u));
                assert!((sum - expected).abs() <= error, "{t} + {u}: {sum:e} {expected:e}");
                let last = series[TERMS - 1] * u.powi(TERMS as i32 - 1);
                assert!(last.abs() <= 2.0 * f64::EPSILON * expected, "{t} + {u}: the last term is {last:e}");
            }
        }
        assert_eq!(polynomial(0.5, SquaredLoss::series(3.0)), SquaredLoss::value(3.5));
    }

    #[test]
    fn bends_are_right_relatively_on_both_sides() {
        for t in [0.0, 0.3, 5.0, 30.0, 300.0] {
            let expected = sigmoid(t) * sigmoid(-t);
            for t in [-t, t] {
                assert!((LogLoss::bend(t) / expected - 1.0).abs() < 1e-15 * 4.0, "{t}: {:e} {expected:e}", LogLoss::bend(t));
            }
        }
    }
}
