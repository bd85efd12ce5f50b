//! Accounting: what releases with Gaussian noise disclose together.
//!
//! Zero-concentrated differential privacy (zCDP, Bun and Steinke 2016) sums over releases, even where each depends on the earlier ones:
//! the rho of a run is the sum of the rho of its releases. It holds for discrete Gaussian noise as for continuous noise (Canonne, Kamath
//! and Steinke 2020, Theorem 4), so that the epsilon of [`epsilon`] may be claimed. The smaller one of [`gaussian_epsilon`] holds for
//! continuous noise only.

use crate::error::{Result, require};

/// `Delta^2 / (2 s^2)`: the rho of one release of something with this sensitivity (2-norm) and noise of standard deviation `noise` in each
/// component, in the same unit.
///
/// # Errors
/// When the sensitivity is negative, the noise is not positive, or one is not finite.
pub fn rho_of(sensitivity: f64, noise: f64) -> Result<f64> {
    require(sensitivity >= 0.0 && sensitivity.is_finite(), "sensitivity", sensitivity, "a finite number, at least 0")?;
    require(noise > 0.0 && noise.is_finite(), "noise", noise, "a positive, finite standard deviation")?;
    Ok(0.5 * (sensitivity / noise).powi(2))
}

/// The epsilon of rho-zCDP at this delta: the root of
///
/// ```text
/// delta = min over a > 1 of exp((a - 1) (a rho - epsilon)) / (a - 1) (1 - 1/a)^a
/// ```
///
/// (Canonne, Kamath and Steinke 2020, Corollary 13). 0 where delta alone covers rho.
///
/// # Errors
/// When rho is negative or not finite, or delta is not between 0 and 1.
pub fn epsilon(rho: f64, delta: f64) -> Result<f64> {
    check(rho, delta)?;
    if rho == 0.0 {
        return Ok(0.0);
    }
    // Without the sharper factor the condition holds here (Bun and Steinke 2016, Proposition 1.3).
    let most = rho + 2.0 * (rho * -delta.ln()).sqrt();
    Ok(root(0.0, most, |epsilon| log_delta(rho, epsilon) <= delta.ln()))
}

/// The largest rho with which rho-zCDP implies (epsilon, delta)-differential privacy: the inverse of [`epsilon`].
///
/// # Errors
/// When epsilon is negative or not finite, or delta is not between 0 and 1.
pub fn rho(epsilon: f64, delta: f64) -> Result<f64> {
    require(epsilon >= 0.0 && epsilon.is_finite(), "epsilon", epsilon, "a finite number, at least 0")?;
    check(0.0, delta)?;
    let exceeds = |rho: f64| log_delta(rho, epsilon) > delta.ln();
    let mut most = 1.0;
    while !exceeds(most) {
        most *= 4.0;
    }
    Ok(root(0.0, most, exceeds))
}

/// The epsilon of one release with continuous Gaussian noise and this rho, at this delta: the root of
///
/// ```text
/// delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),    mu = sqrt(2 rho)
/// ```
///
/// (Balle and Wang 2018, Theorem 8). Many releases whose rho sum to `rho` have the same. It is shown beside [`epsilon`] and not claimed,
/// because the noise is discrete.
///
/// # Errors
/// As [`epsilon`].
pub fn gaussian_epsilon(rho: f64, delta: f64) -> Result<f64> {
    check(rho, delta)?;
    if rho == 0.0 {
        return Ok(0.0);
    }
    let most = rho + 2.0 * (rho * -delta.ln()).sqrt();
    Ok(root(0.0, most, |epsilon| gaussian_delta(rho, epsilon) <= delta))
}

fn check(rho: f64, delta: f64) -> Result<()> {
    require(rho >= 0.0 && rho.is_finite(), "rho", rho, "a finite number, at least 0")?;
    require(delta > 0.0 && delta < 1.0, "delta", delta, "a probability above 0 and below 1")
}

/// The least x in (low, high], to rounding, from which a condition holds.
fn root(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    if holds(low) {
        return low;
    }
    // The exponent first: the root may be many orders of magnitude below `high`.
    loop {
        let middle = if high > 4.0 * low { (low.max(f64::MIN_POSITIVE)).sqrt() * high.sqrt() } else { 0.5 * low + 0.5 * high };
        if middle <= low || middle >= high {
            return high;
        }
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
}

/// The logarithm of the delta of rho-zCDP at this epsilon, with the best order a: the root of `(2a - 1) rho - epsilon + ln(1 - 1/a)`.
fn log_delta(rho: f64, epsilon: f64) -> f64 {
    // b = a - 1, whose logarithm is bisected. ln(1 - 1/a) = -ln(1 + 1/b).
    let slope = |b: f64| (2.0 * b + 1.0) * rho - epsilon - (1.0 / b).ln_1p();
    let (mut low, mut high) = (-700.0f64, 700.0f64);
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if slope(middle.exp()) > 0.0 {
            high = middle;
        } else {
            low = middle;
        }
    }
    // The value at the minimum is insensitive to the order, and every order gives an upper bound.
    let b = high.exp();
    let value = b * ((1.0 + b) * rho - epsilon) - b.ln() - (1.0 + b) * (1.0 / b).ln_1p();
    value.min(0.0)
}

/// The delta of continuous Gaussian noise with this rho at this epsilon.
fn gaussian_delta(rho: f64, epsilon: f64) -> f64 {
    // With x = mu/2 + epsilon/mu and y = epsilon/mu - mu/2, e^epsilon phi(x) = phi(y), so that delta = phi(y) (M(y) - M(x)) with Mills'
    // ratio M(z) = Phi(-z) / phi(z): no factor overflows.
    let mu = (2.0 * rho).sqrt();
    let (x, y) = (epsilon / mu + 0.5 * mu, epsilon / mu - 0.5 * mu);
    let density = (-0.5 * y * y).exp() / std::f64::consts::TAU.sqrt();
    if y >= 0.0 { density * (mills(y) - mills(x)) } else { 1.0 - density * (mills(-y) + mills(x)) }
}

/// Mills' ratio `Phi(-z) / phi(z)` at z >= 0.
fn mills(z: f64) -> f64 {
    if z < 2.0 {
        // Phi(z) - 1/2 = phi(z) sum z^(2k+1) / (2k+1)!!
        let (mut term, mut sum) = (z, z);
        for k in 1..60 {
            term *= z * z / f64::from(2 * k + 1);
            sum += term;
        }
        return (std::f64::consts::FRAC_PI_2).sqrt() * (0.5 * z * z).exp() - sum;
    }
    // The continued fraction 1/(z + 1/(z + 2/(z + 3/(z + ..)))).
    1.0 / (1..=150).rev().fold(z, |tail, k| z + f64::from(k) / tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether `got` has the digits of `want`, rounded at its last.
    fn prints(got: f64, want: &str) {
        let digits = want.split('.').nth(1).expect("a decimal point").len();
        assert_eq!(format!("{got:.digits$}"), want);
    }

    #[test]
    fn the_conversions_have_the_reference_numbers() {
        for (rho, delta, sharp, gaussian) in [
            (0.005, 1e-6, "0.429941469", "0.396857378"),
            (0.125, 1e-5, "2.165715545", "1.993091404"),
            (1.0, 1e-6, "7.766216625", "7.286080966"),
        ] {
            prints(epsilon(rho, delta).unwrap(), sharp);
            prints(gaussian_epsilon(rho, delta).unwrap(), gaussian);
        }
        prints(rho(1.0, 1e-5).unwrap(), "0.0305565952");
    }

    /// rho, delta, and epsilon by `dp-accounting` 0.6.0: the RDP accountant with 60,001 orders from 1.01 to 2e5, equally spaced in ln(a -
    /// 1), and the privacy loss distribution of the Gaussian mechanism, rounded up on a grid of 1e-4 (1e-3 for rho = 20).
    const DP_ACCOUNTING: [(f64, f64, f64, f64); 20] = [
        (1e-4, 1e-3, 0.020975356, 0.015396249),
        (1e-4, 1e-5, 0.045047462, 0.039990691),
        (1e-4, 1e-6, 0.053727121, 0.048906495),
        (1e-4, 1e-9, 0.074362793, 0.070063291),
        (5e-3, 1e-3, 0.236049257, 0.197534000),
        (5e-3, 1e-5, 0.375261236, 0.340669404),
        (5e-3, 1e-6, 0.429941470, 0.396857430),
        (5e-3, 1e-9, 0.564893285, 0.535148301),
        (0.125, 1e-3, 1.546096133, 1.352276251),
        (0.125, 1e-5, 2.165715546, 1.993091408),
        (0.125, 1e-6, 2.419093193, 2.254084657),
        (0.125, 1e-9, 3.058122167, 2.909732394),
        (1.0, 1e-3, 5.419919186, 4.845251885),
        (1.0, 1e-5, 7.077196697, 6.572970071),
        (1.0, 1e-6, 7.766216632, 7.286080970),
        (1.0, 1e-9, 9.521463747, 9.092558375),
        (20.0, 1e-3, 41.714201245, 38.732876616),
        (20.0, 1e-5, 48.754522573, 46.211210330),
        (20.0, 1e-6, 51.719404589, 49.319276836),
        (20.0, 1e-9, 59.336960438, 57.231459862),
    ];

    #[test]
    fn the_conversions_are_those_of_dp_accounting() {
        for (rho, delta, renyi, loss) in DP_ACCOUNTING {
            // Orders on a grid are a little worse than the best one.
            let sharp = epsilon(rho, delta).unwrap();
            assert!(renyi - sharp > -1e-9 && renyi - sharp < 3e-7, "{rho} {delta}: {sharp}, {renyi}");
            let gaussian = gaussian_epsilon(rho, delta).unwrap();
            assert!(loss - gaussian > -1e-9 && loss - gaussian < 5e-7, "{rho} {delta}: {gaussian}, {loss}");
        }
    }

    #[test]
    fn extreme_arguments_have_results_or_errors() {
        for delta in [5e-324, 1e-300, 1e-5, 0.5, 0.999_999] {
            assert_eq!((epsilon(0.0, delta).unwrap(), gaussian_epsilon(0.0, delta).unwrap()), (0.0, 0.0));
            for rho_0 in [1e-300, 1e-12, 1.0, 1e12, 1e300] {
                let (sharp, gaussian) = (epsilon(rho_0, delta).unwrap(), gaussian_epsilon(rho_0, delta).unwrap());
                assert!(sharp.is_finite() && sharp >= gaussian * (1.0 - 1e-12) && gaussian >= 0.0, "{rho_0} {delta}: {sharp} {gaussian}");
                assert!(rho(rho_0, delta).unwrap().is_finite());
            }
            // With epsilon 0, delta alone covers some rho.
            let covered = rho(0.0, delta).unwrap();
            assert!((covered > 0.0 || delta < 1e-150) && epsilon(covered, delta).unwrap() < 1e-7, "{delta}: {covered}");
        }
        for (bad_rho, bad_delta, key) in [
            (-1.0, 0.1, "rho"),
            (f64::NAN, 0.1, "rho"),
            (f64::INFINITY, 0.1, "rho"),
            (1.0, 0.0, "delta"),
            (1.0, 1.0, "delta"),
            (1.0, f64::NAN, "delta"),
        ] {
            for refused in [epsilon(bad_rho, bad_delta), gaussian_epsilon(bad_rho, bad_delta)] {
                assert_eq!(refused.unwrap_err().key, key);
            }
        }
        assert_eq!(rho(-1.0, 0.1).unwrap_err().key, "epsilon");
        assert_eq!(rho(1.0, 1.0).unwrap_err().key, "delta");
        assert_eq!(rho_of(2.0, 0.5).unwrap(), 8.0);
        assert_eq!((rho_of(-1.0, 1.0).unwrap_err().key, rho_of(1.0, 0.0).unwrap_err().key), ("sensitivity".into(), "noise".into()));
    }

    #[test]
    fn mills_ratio_has_one_value_where_its_forms_meet() {
        let mut z = 1.9;
        while z < 2.1 {
            // M' = z M - 1.
            let (h, middle) = (1e-4, mills(z));
            let slope = (mills(z + h) - mills(z - h)) / (2.0 * h);
            assert!((slope - (z * middle - 1.0)).abs() < 1e-8, "{z}");
            z += 0.01;
        }
        // Phi(-1) and Phi(-5).
        let tail = |z: f64| mills(z) * (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
        assert!((tail(1.0) / 0.158_655_253_931_457_05 - 1.0).abs() < 1e-14);
        assert!((tail(5.0) / 2.866_515_718_791_939_e-7 - 1.0).abs() < 1e-14);
    }

    proptest! {
        #[test]
        fn rho_and_epsilon_are_inverse(log_rho in -12.0..6.0f64, log_delta in -60.0..-0.7f64) {
            let (rho_0, delta) = (log_rho.exp(), log_delta.exp());
            let there = epsilon(rho_0, delta).unwrap();
            // Where delta alone covers rho, epsilon 0 allows more.
            let back = rho(there, delta).unwrap();
            let is_inverse = if there > 1e-9 { (back / rho_0 - 1.0).abs() < 1e-6 } else { back >= rho_0 };
            prop_assert!(is_inverse, "{}", back);
            prop_assert!(there >= gaussian_epsilon(rho_0, delta).unwrap());
            prop_assert!(there <= rho_0 + 2.0 * (rho_0 * -delta.ln()).sqrt());
        }

        #[test]
        fn epsilon_grows_with_rho_and_falls_with_delta(log_rho in -12.0..6.0f64, log_delta in -60.0..-1.0f64) {
            let (rho_0, delta) = (log_rho.exp(), log_delta.exp());
            for of in [epsilon, gaussian_epsilon] {
                let here = of(rho_0, delta).unwrap();
                let (more, looser) = (of(1.01 * rho_0, delta).unwrap(), of(rho_0, 1.01 * delta).unwrap());
                prop_assert!(more > here || here == 0.0);
                prop_assert!(looser < here || here == 0.0);
            }
        }
    }
}
