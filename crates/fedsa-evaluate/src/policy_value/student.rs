//! Quantiles of Student's t.

/// The number x above 0 with `P(|T| <= x) = level` for T of Student's t with `freedom` degrees of freedom; NaN without a degree of
/// freedom, or if `level` is not in (0, 1).
///
/// The distribution function is the incomplete beta function, `P(|T| > x) = I_{f / (f + x^2)}(f / 2, 1 / 2)`, by its continued fraction
/// (Press et al., Numerical Recipes, 6.4), and its inverse is found by bisection. More than 10^6 degrees of freedom count as 10^6.
pub fn t_quantile(level: f64, freedom: f64) -> f64 {
    const MOST: f64 = 1e6;
    if freedom.is_nan() || freedom <= 0.0 || level.is_nan() || level <= 0.0 || level >= 1.0 {
        return f64::NAN;
    }
    let (freedom, rest) = (freedom.min(MOST), 1.0 - level);
    let mut high = 1.0;
    while outside(high, freedom) > rest && high < f64::MAX / 4.0 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if outside(middle, freedom) > rest {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// `P(|T| > x)`.
fn outside(x: f64, freedom: f64) -> f64 {
    // Neither share suffers cancellation.
    let (y, square) = (freedom / (freedom + x * x), x * x / (freedom + x * x));
    incomplete_beta(0.5 * freedom, y, square)
}

/// `I_y(a, 1/2)`, with `rest = 1 - y`.
fn incomplete_beta(a: f64, y: f64, rest: f64) -> f64 {
    const B: f64 = 0.5;
    if y <= 0.0 {
        return 0.0;
    }
    if rest <= 0.0 {
        return 1.0;
    }
    // y^a (1 - y)^(1/2) / B(a, 1/2), where B(a, 1/2) = sqrt(pi) / (Gamma(a + 1/2) / Gamma(a)).
    let log_y = if rest < 0.5 { (-rest).ln_1p() } else { y.ln() };
    let front = gamma_ratio(a) / std::f64::consts::PI.sqrt() * (a * log_y).exp() * rest.sqrt();
    if y < (a + 1.0) / (a + B + 2.0) { front * fraction(a, B, y) / a } else { 1.0 - front * fraction(B, a, rest) / B }
}

/// `Gamma(a + 1/2) / Gamma(a)`: by its asymptotic series from 20 on, and by `R(a) = R(a + 1) a / (a + 1/2)` below.
fn gamma_ratio(a: f64) -> f64 {
    let (mut a, mut factor) = (a, 1.0);
    while a < 20.0 {
        factor *= a / (a + 0.5);
        a += 1.0;
    }
    let x = 1.0 / a;
    factor * a.sqrt() * (1.0 + x * (-1.0 / 8.0 + x * (1.0 / 128.0 + x * (5.0 / 1024.0 + x * (-21.0 / 32768.0 - x * 399.0 / 262_144.0)))))
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |x: f64| if x.abs() < TINY { TINY } else { x };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut h = d;
    for m in 1..100_000 {
        let m = f64::from(m);
        for part in
            [m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)), -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))]
        {
            d = 1.0 / away(1.0 + part * d);
            c = away(1.0 + part / c);
            h *= d * c;
        }
        if (d * c - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constants from SciPy 1.17, `scipy.stats.t.ppf((1 + level) / 2, freedom)`.
    #[test]
    fn quantiles_are_those_of_scipy() {
        let constants = [
            (0.5, 1.0, 1.0000000000000002),
            (0.5, 2.0, 0.8164965809277261),
            (0.5, 3.5, 0.7509370293940778),
            (0.5, 19.0, 0.6876214602039602),
            (0.5, 99.0, 0.6769759855461531),
            (0.5, 1999.0, 0.6746124989153225),
            (0.5, 250000.0, 0.6744907315370581),
            (0.95, 1.0, 12.706204736174694),
            (0.95, 2.0, 4.302652729749462),
            (0.95, 3.5, 2.9400886379827282),
            (0.95, 19.0, 2.0930240544083087),
            (0.95, 99.0, 1.9842169515864174),
            (0.95, 1999.0, 1.9611514201705613),
            (0.95, 250000.0, 1.9599734736701353),
            (0.99, 1.0, 63.656741162871526),
            (0.99, 2.0, 9.924843200918287),
            (0.99, 3.5, 5.085702223091256),
            (0.99, 19.0, 2.8609346064649794),
            (0.99, 99.0, 2.626405457280827),
            (0.99, 1999.0, 2.5782910195219233),
            (0.99, 250000.0, 2.575848969880652),
        ];
        for (level, freedom, expected) in constants {
            let found = t_quantile(level, freedom);
            assert!((found / expected - 1.0).abs() < 1e-9, "{level} {freedom}: {found} {expected}");
        }
        // One degree of freedom is Cauchy's distribution.
        assert!((t_quantile(0.95, 1.0) - (0.475 * std::f64::consts::PI).tan()).abs() < 1e-9);
    }

    #[test]
    fn nonsense_is_not_a_number() {
        for (level, freedom) in [(0.95, 0.0), (0.95, f64::NAN), (0.0, 5.0), (1.0, 5.0), (f64::NAN, 5.0), (0.95, -1.0)] {
            assert!(t_quantile(level, freedom).is_nan(), "{level} {freedom}");
        }
        assert!(t_quantile(1.0 - 1e-15, 1.0).is_finite());
    }
}
