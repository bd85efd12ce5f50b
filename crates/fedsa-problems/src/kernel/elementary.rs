//! Exponentials, logarithms and cosines without branches, which compilers turn into vector instructions.
//!
//! Platform libraries compute them one at a time, and their last digits differ between platforms. These functions consist of additions,
//! multiplications and divisions, each rounded once: equal bits everywhere. Polynomials are truncated power series; the truncation error is
//! below a tenth of a rounding error.

/// log2(e).
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// The leading bits of log(2): its multiples by up to 2^11 are exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3FE6_2E42_FEFA_3800);
/// The remainder of log(2).
const LN_2_LOW: f64 = f64::from_bits(0x3D2E_F357_93C7_6730);
/// Adding this to a number below 2^51 leaves the nearest integer in the last bits.
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

/// `(-1)^(k + 1) / (2 k + first)!` from k = 0: the series of a cosine (first = 2) or sine (first = 3) in the square of the angle, without its
/// first term.
const fn alternating(first: u32) -> [f64; 8] {
    let (mut out, mut factorial, mut n, mut k) = ([0.0; 8], 1.0, 1, 0);
    while k < 8 {
        while n <= first + 2 * k {
            factorial *= n as f64;
            n += 1;
        }
        out[k as usize] = if k % 2 == 0 { -1.0 / factorial } else { 1.0 / factorial };
        k += 1;
    }
    out
}
const COSINE: [f64; 8] = alternating(2);
const SINE: [f64; 8] = alternating(3);

/// `cos(pi x)` for x within 2^50 of 0, to 2 units in the last place; zeros and extremes are exact, and zeros have no sign. NaN for infinite
/// x and NaN.
///
/// `x = n / 2 + r`, exactly, with an integer n and r within 1/4 of 0: the cosine of `pi r` for even n, the sine for odd n, with the
/// quadrant's sign. Both have series of nine terms.
#[inline(always)]
pub fn cos_pi(x: f64) -> f64 {
    let shifted = x.mul_add(2.0, ROUND);
    let n = shifted - ROUND;
    let angle = n.mul_add(-0.5, x) * std::f64::consts::PI;
    let square = angle * angle;
    let cosine = square.mul_add(polynomial(square, COSINE), 1.0);
    let sine = (angle * square).mul_add(polynomial(square, SINE), angle);
    // The last bits of `shifted` are the last bits of n. For n mod 4 = 1 and 2 the sign flips.
    let n = shifted.to_bits();
    let value = if n & 1 == 0 { cosine } else { sine };
    let is_other = (n.wrapping_add(1) >> 1) & 1;
    // Adding 0 turns -0 into 0.
    f64::from_bits(value.to_bits() ^ (is_other << 63)) + 0.0
}

/// `exp(x)` for x at most 0, to 2 units in the last place if the result is at least 1e-300. NaN for NaN.
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
    // 2^n as a product of two factors, since n may be below the least exponent. It is above -2048.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(2048);
    let half = n >> 1;
    let power = |n: u64| f64::from_bits(n.wrapping_sub(1).wrapping_shl(52));
    y * power(half) * power(n - half)
}

/// `log(1 + e)` for e from 0 to 1, to 2 units in the last place. NaN for NaN.
///
/// `log(1 + e) = log((1 + s) / (1 - s))` with `s = e / (2 + e)`, at most 1/3, and a series of 17 terms.
#[inline(always)]
pub fn log_one_plus(e: f64) -> f64 {
    let s = e / (2.0 + e);
    let square = s * s;
    (s * square).mul_add(polynomial(square, ODD), 2.0 * s)
}

/// `log(x)` for positive x of at least 1e-300, to a rounding error of the larger of `|log(x)|` and 1.
///
/// `x = 2^n (1 + e)` with an integer n and e from 0 to 1.
#[inline(always)]
pub fn log(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let n = (x.to_bits() >> 52) as f64 - 1023.0;
    let e = f64::from_bits(x.to_bits() & MANTISSA | 1.0f64.to_bits()) - 1.0;
    n.mul_add(LN_2_HIGH, n.mul_add(LN_2_LOW, log_one_plus(e)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    /// The distance in units in the last place; infinite for NaN.
    fn units(got: f64, expected: f64) -> f64 {
        let unit = f64::from_bits(expected.to_bits() + 1) - expected;
        let distance = ((got - expected) / unit).abs();
        if distance.is_nan() { f64::INFINITY } else { distance }
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
        // Subnormal numbers, to their spacing.
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

    #[test]
    fn logarithms_of_all_sizes_are_those_of_the_platform() {
        for k in 0..=200_000 {
            let x = (f64::from(k) / 250.0 - 690.0).exp();
            assert!((log(x) - x.ln()).abs() <= f64::EPSILON * x.ln().abs().max(1.0), "{x:e}: {} {}", log(x), x.ln());
        }
        assert_eq!((log(1.0), log(2.0)), (0.0, std::f64::consts::LN_2));
    }

    /// `sin(pi x)` and `cos(pi x)` for x within 1/4 of 0: the platform's functions, corrected for the rounding of `pi x`.
    fn of_half_turns(x: f64) -> (f64, f64) {
        /// pi minus its leading bits.
        const PI_LOW: f64 = 1.224_646_799_147_353_2e-16;
        let angle = PI * x;
        let lost = x.mul_add(PI, -angle) + PI_LOW * x;
        (angle.sin() + angle.cos() * lost, angle.cos() - angle.sin() * lost)
    }

    #[test]
    fn cosines_are_exact_to_two_units() {
        for k in 1..=200_000 {
            // Steps of a power of two: sums with whole numbers are exact.
            let small = (k as f64 / 200_000.0).powi(5) * 0.25;
            let small = (small * 2f64.powi(40)).ceil() / 2f64.powi(40);
            let (sine, cosine) = of_half_turns(small);
            for (whole, sign) in [(0.0, 1.0), (1.0, -1.0), (-3.0, -1.0), (46.0, 1.0)] {
                let expected = [(small, cosine), (-small, cosine), (0.5 + small, -sine), (0.5 - small, sine)];
                for (x, expected) in expected.map(|(x, y)| (whole + x, sign * y)) {
                    assert!(units(cos_pi(x), expected) <= 2.0, "{x}: {:e} {expected:e}", cos_pi(x));
                }
            }
        }
    }

    #[test]
    fn zeros_and_extremes_of_cosines_are_exact() {
        for n in -9..9 {
            let n = f64::from(n);
            assert_eq!((cos_pi(2.0 * n), cos_pi(2.0 * n + 1.0)), (1.0, -1.0));
            assert_eq!(cos_pi(n + 0.5).to_bits(), 0, "{n}");
        }
        let far = 2f64.powi(50);
        for far in [far, -far] {
            assert_eq!([far, far - far.signum(), far - 0.5 * far.signum()].map(cos_pi), [1.0, -1.0, 0.0]);
        }
        assert_eq!(cos_pi(-0.0), 1.0);
        // Half way between a whole number and a half.
        let root = 0.5f64.sqrt();
        for (x, sign) in [(0.25, 1.0), (-0.25, 1.0), (0.75, -1.0), (-1.25, -1.0), (1.75, 1.0), (2.25, 1.0)] {
            assert!(units(cos_pi(x), sign * root) <= 1.0, "{x}: {:e}", cos_pi(x));
        }
        assert!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].iter().all(|x| cos_pi(*x).is_nan()));
    }
}
