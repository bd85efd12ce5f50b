//! The format of the numbers that the program prints.

/// A number with three significant digits: plain from 0.001 to 99999, otherwise with an exponent, `2.74e-4`. Whole numbers, and numbers of
/// up to three digits, are unchanged.
pub fn number(x: f64) -> String {
    digits(x, 3)
}

/// A probability, never 0: below the rounding error of its tail it is a bound.
pub fn probability(p: f64) -> String {
    if p < 1e-16 { "<1e-16".into() } else { number(p) }
}

/// An error or a tolerance: two significant digits.
pub fn rough(x: f64) -> String {
    digits(x, 2)
}

/// A number with enough digits to show a deviation of `tolerance`, at least three.
pub fn precise(x: f64, tolerance: f64) -> String {
    let needed = (x.abs() / tolerance).log10().ceil() + 1.0;
    digits(x, if needed.is_nan() { 3 } else { needed.clamp(3.0, 12.0) as usize })
}

/// A radius; if it is close to 1, its distance from 1.
pub fn radius(x: f64) -> String {
    let from_one = x - 1.0;
    match from_one.abs() {
        d if d == 0.0 || d >= 1e-3 || d.is_nan() => digits(x, 4),
        d => format!("1 {} {}", if from_one < 0.0 { '-' } else { '+' }, rough(d)),
    }
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{}%", number(100.0 * share))
}

/// A number in TOML form, with all its digits.
pub fn typed(x: f64) -> String {
    if is_plain(x) { x.to_string() } else { format!("{x:e}") }
}

/// Whether a number is written without an exponent.
pub fn is_plain(x: f64) -> bool {
    x == 0.0 || !x.is_finite() || (1e-4..1e16).contains(&x.abs())
}

/// The largest number of four digits not above the positive `x`, in TOML form: a bound that `x` satisfies.
pub fn rounded_down(x: f64) -> String {
    four_digits(x, -1.0)
}

/// The smallest number of four digits not below the positive `x`, in TOML form.
pub fn rounded_up(x: f64) -> String {
    four_digits(x, 1.0)
}

/// The nearest number of four digits on the side of `x` given by `direction`.
fn four_digits(x: f64, direction: f64) -> String {
    let unit = 10f64.powi(x.log10().floor() as i32 - 3);
    if !unit.is_normal() {
        // Four digits are not possible.
        return format!("{x:e}");
    }
    let mut digits = direction * (direction * x / unit).ceil();
    loop {
        let text = if (1e-4..1e6).contains(&x) {
            let decimals = (3 - x.log10().floor() as i32).max(0) as usize;
            format!("{:.decimals$}", digits * unit)
        } else {
            format!("{:.3e}", digits * unit)
        };
        if text.parse::<f64>().is_ok_and(|y| direction * y >= direction * x) {
            return text;
        }
        digits += direction;
    }
}

/// A predicted number of rounds, rounded to a whole number of two digits.
pub fn two_digits(rounds: f64) -> f64 {
    let unit = 10f64.powf((rounds.max(1.0).log10().floor() - 1.0).max(0.0));
    (rounds / unit).round() * unit
}

/// A predicted number of rounds of two digits, in words.
pub fn about(rounds: f64) -> String {
    thousands(two_digits(rounds))
}

/// A number of rounds: `1 round`, `1,200 rounds`.
pub fn rounds(number: u64) -> String {
    format!("{} round{}", thousands(number as f64), if number == 1 { "" } else { "s" })
}

/// A whole number with groups of thousands.
pub fn thousands(number: f64) -> String {
    if number >= 1e12 {
        return format!("{number:.0e}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with at most `most` significant digits; `most` is at least 1.
pub fn digits(x: f64, most: usize) -> String {
    if !x.is_finite() {
        return if x.is_nan() {
            "not a number"
        } else if x > 0.0 {
            "infinite"
        } else {
            "minus infinite"
        }
        .to_string();
    }
    if x == 0.0 {
        return "0".to_string();
    }
    if x.fract() == 0.0 && x.abs() < 99_999.5 {
        return format!("{x:.0}");
    }
    // A number that needs fewer digits is written in its shortest form.
    let shortest = format!("{x:e}");
    let (mantissa, _) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let is_short = mantissa.bytes().filter(u8::is_ascii_digit).count() <= most;
    let scientific = if is_short { shortest } else { format!("{x:.*e}", most - 1) };
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if !(-3..=4).contains(&exponent) {
        return scientific;
    }
    if is_short {
        return format!("{x}");
    }
    // Rounding may have carried: 9.996 with three digits is 10.0.
    let decimals = (most as i32 - 1 - exponent).max(0) as usize;
    format!("{x:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_is_never_zero() {
        assert_eq!([0.0, 1e-17, 1e-16, 0.0312, 1.0].map(probability), ["<1e-16", "<1e-16", "1e-16", "0.0312", "1"]);
    }

    #[test]
    fn numbers_are_written_as_people_write_them() {
        for (x, text) in [
            (2.7993, "2.80"),
            (2.7367e-4, "2.74e-4"),
            (8.764284e-5, "8.76e-5"),
            (0.1, "0.1"),
            (0.5, "0.5"),
            (0.0123456, "0.0123"),
            (0.001, "0.001"),
            (0.00099, "9.9e-4"),
            (0.30000000000000004, "0.300"),
            (99.96, "100"),
            (9.996, "10.0"),
            (1234.5, "1234"),
            (12345.6, "12346"),
            (99999.0, "99999"),
            (99999.7, "1.00e5"),
            (123456789.0, "1.23e8"),
            (1e6, "1e6"),
            (1e-20, "1e-20"),
            (5.0, "5"),
            (-5.0, "-5"),
            (-0.0, "0"),
            (-1.0432, "-1.04"),
            (f64::NAN, "not a number"),
            (f64::INFINITY, "infinite"),
        ] {
            assert_eq!(number(x), text, "{x:e}");
        }
        assert_eq!((rough(6.234e-5), rough(0.03456), rough(12.34)), ("6.2e-5".into(), "0.035".into(), "12".into()));
    }

    #[test]
    fn a_small_tolerance_shows_more_digits() {
        assert_eq!(precise(0.999_671_2, 5e-6), "0.9996712");
        assert_eq!(precise(0.99967, 5e-6), "0.99967");
        assert_eq!(precise(1.465_04, 5e-4), "1.4650");
        assert_eq!(precise(2.7993, 0.3), "2.80");
        assert_eq!(precise(2.7993, 0.0), "2.7993");
        assert_eq!(precise(2.0, f64::NAN), "2");
    }

    #[test]
    fn a_radius_near_one_shows_how_near() {
        assert_eq!(radius(1.0 - 3.2e-8), "1 - 3.2e-8");
        assert_eq!(radius(1.0 + 4.56e-5), "1 + 4.6e-5");
        assert_eq!(radius(1.0), "1");
        assert_eq!(radius(0.98654), "0.9865");
        assert_eq!(radius(4.465e18), "4.465e18");
    }

    #[test]
    fn steps_are_rounded_to_what_can_be_written() {
        for (x, down, up) in [
            (25.2257, "25.22", "25.23"),
            (0.1, "0.1000", "0.1000"),
            (0.099999, "0.09999", "0.10000"),
            (123456.7, "123400", "123500"),
            (9.9999e-7, "9.999e-7", "1.000e-6"),
            (2.0e9, "2.000e9", "2.000e9"),
        ] {
            assert_eq!((&rounded_down(x)[..], &rounded_up(x)[..]), (down, up));
            assert!(down.parse::<f64>().unwrap() <= x && up.parse::<f64>().unwrap() >= x);
        }
        for x in [5e-324, 1e-310, 2.2e-306] {
            assert_eq!((rounded_down(x).parse(), rounded_up(x).parse()), (Ok(x), Ok(x)));
        }
    }

    #[test]
    fn rounds_are_read_at_a_glance() {
        for (rounds, text) in
            [(1.0, "1"), (83.0, "83"), (834.0, "830"), (82_871.0, "83,000"), (20_000.0, "20,000"), (1.26e6, "1,300,000"), (1e15, "1e15")]
        {
            assert_eq!(about(rounds), text);
        }
        assert_eq!(thousands(12_345.0), "12,345");
    }
}
