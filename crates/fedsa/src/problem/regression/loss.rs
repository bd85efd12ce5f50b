//! Losses of a margin: what logistic and least-squares regression differ in.

use crate::kernel::elementary::{exp_below, log_one_plus};

/// The loss `l(t)` of a row, as a function of its margin t, and its derivatives. l is convex.
pub trait Loss: std::fmt::Debug + Send + Sync + 'static {
    /// Whether the margin is `x . theta - y`, with a number y for each row. Otherwise it is `x . theta`.
    const HAS_OFFSETS: bool;
    /// A bound of `l''`.
    const MOST_BEND: f64;
    /// `l(t)`.
    fn value(t: f64) -> f64;
    /// `-l'(t)`.
    fn pull(t: f64) -> f64;
    /// `l''(t)`, from 0 to [`Loss::MOST_BEND`].
    fn bend(t: f64) -> f64;
}

/// `l(t) = log(1 + exp(-t))` of the margin `t = y x . theta`, y in {-1, 1}.
#[derive(Debug, Clone, Copy)]
pub struct LogLoss;

/// `1 / (1 + exp(-t))`.
#[inline(always)]
pub(crate) fn sigmoid(t: f64) -> f64 {
    let e = exp_below(-t.abs());
    (if t < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

impl Loss for LogLoss {
    const HAS_OFFSETS: bool = false;
    const MOST_BEND: f64 = 0.25;

    /// Without overflow.
    #[inline(always)]
    fn value(t: f64) -> f64 {
        (if t < 0.0 { -t } else { 0.0 }) + log_one_plus(exp_below(-t.abs()))
    }
    #[inline(always)]
    fn pull(t: f64) -> f64 {
        sigmoid(-t)
    }
    /// `sigmoid(t) sigmoid(-t)` with one exponential, and without the cancellation of `pull (1 - pull)` where t is far below 0.
    #[inline(always)]
    fn bend(t: f64) -> f64 {
        let e = exp_below(-t.abs());
        e / ((1.0 + e) * (1.0 + e))
    }
}

/// `l(t) = t^2 / 2` of the residual `t = x . theta - y`.
#[derive(Debug, Clone, Copy)]
pub struct SquaredLoss;

impl Loss for SquaredLoss {
    const HAS_OFFSETS: bool = true;
    const MOST_BEND: f64 = 1.0;

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
                assert!((bend - L::bend(t)).abs() < 1e-7 && L::bend(t) <= L::MOST_BEND);
            }
        }
        check::<LogLoss>();
        check::<SquaredLoss>();
        assert_eq!((LogLoss::value(-800.0), LogLoss::value(800.0)), (800.0, 0.0));
        assert_eq!((LogLoss::pull(-800.0), LogLoss::pull(800.0), LogLoss::bend(800.0)), (1.0, 0.0, 0.0));
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
