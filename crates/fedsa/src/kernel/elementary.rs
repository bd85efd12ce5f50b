//! Exponentials and logarithms without branches, which compilers turn into vector instructions.
//!
//! Those of a platform's library are computed one at a time, and their last digits differ between platforms. These consist of additions,
//! multiplications and divisions, each rounded once: equal bits everywhere. Polynomials are truncated power series; what they leave out is
//! below a tenth of a rounding error.

/// log2(e).
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// The leading bits of log(2): multiples by up to 2^11 are exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEFA_3800);
/// log(2) without these.
const LN_2_LOW: f64 = f64::from_bits(0x3D2E_F357_93C7_6730);
/// Added to a number of less than 2^51, it leaves the nearest integer in the last bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// exp of this is 0 in double precision.
const LEAST: f64 = -760.0;

/// `sum_k coefficients[k] x^k`.
#[inline(always)]
pub(crate) fn polynomial<const K: usize>(x: f64, coefficients: [f64; K]) -> f64 {
    coefficients.iter().rev().skip(1).fold(coefficients[K - 1], |sum, c| sum.mul_add(x, *c))
}

/// `1 / k!` from k = 2.
const INVERSE_FACTORIALS: [f64; 12] = {
    let (mut out, mut factorial, mut k) = ([0.0; 12], 1.0, 0);
    while k < 12 {
        factorial *= (k + 2) as f64;
        out[k] = 1.0 / factorial;
        k += 1;
    }
    out
};

/// `2 / (2 k + 1)` from k = 1: the series of `log((1 + s) / (1 - s))` in `s^2`, without its first term.
const ODD: [f64; 16] = {
    let (mut out, mut k) = ([0.0; 16], 0);
    while k < 16 {
        out[k] = 2.0 / (2 * k + 3) as f64;
        k += 1;
    }
    out
};

/// `exp(x)` for x at most 0, to 2 units in the last place where it is no less than 1e-300. Not a number for what is none.
///
/// `x = n log(2) + r` with an integer n, r within log(2)/2 of 0, and a series of 14 terms for exp(r).
#[inline(always)]
pub fn exp_below(x: f64) -> f64 {
    let x = if x < LEAST { LEAST } else { x };
    let shifted = x.mul_add(LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let tail = polynomial(r, INVERSE_FACTORIALS);
    let y = (r * r).mul_add(tail, r) + 1.0;
    // 2^n as the product of two, since n may be below the least exponent. It is above -2048.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(2048);
    let half = n >> 1;
    let power = |n: u64| f64::from_bits(n.wrapping_sub(1).wrapping_shl(52));
    y * power(half) * power(n - half)
}

/// `log(1 + e)` for e from 0 to 1, to 2 units in the last place. Not a number for what is none.
///
/// `log(1 + e) = log((1 + s) / (1 - s))` with `s = e / (2 + e)`, at most 1/3, and a series of 17 terms.
#[inline(always)]
pub fn log_one_plus(e: f64) -> f64 {
    let s = e / (2.0 + e);
    let square = s * s;
    (s * square).mul_add(polynomial(square, ODD), 2.0 * s)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance in units in the last place.
    fn units(got: f64, expected: f64) -> f64 {
        let unit = f64::from_bits(expected.to_bits() + 1) - expected;
        ((got - expected) / unit).abs()
    }

    #[test]
    fn exponentials_are_those_of_the_platform_to_two_units() {
        let mut most: f64 = 0.0;
        for k in 0..200_000 {
            let x = -690.0 * (k as f64 / 200_000.0).powi(3);
            most = most.max(units(exp_below(x), x.exp()));
        }
        assert!(most <= 2.0, "{most}");
        assert_eq!((exp_below(0.0), exp_below(-0.0), exp_below(-800.0), exp_below(f64::NEG_INFINITY)), (1.0, 1.0, 0.0, 0.0));
        assert!(exp_below(f64::NAN).is_nan());
        // Below the normal numbers, to their spacing.
        for x in [-708.5, -720.0, -740.0, -745.0] {
            assert!((exp_below(x) - x.exp()).abs() <= 1e-323, "{x}: {:e} {:e}", exp_below(x), x.exp());
        }
    }

    #[test]
    fn logarithms_are_those_of_the_platform_to_two_units() {
        let mut most: f64 = 0.0;
        for k in 0..=200_000 {
            let e = (k as f64 / 200_000.0).powi(4);
            most = most.max(if e == 0.0 { log_one_plus(e) } else { units(log_one_plus(e), e.ln_1p()) });
        }
        assert!(most <= 2.0, "{most}");
        assert_eq!((log_one_plus(0.0), log_one_plus(1e-300)), (0.0, 1e-300));
        assert!(log_one_plus(f64::NAN).is_nan());
    }
}
