//! Fields of text files.

use fedsa::error::{Error, Result, quoted};

/// A finite number; 1 for true and 0 for false, in any case.
pub(crate) fn number(field: &str) -> Option<f64> {
    match field.parse::<f64>() {
        Ok(x) => Some(x).filter(|x| x.is_finite()),
        Err(_) if field.eq_ignore_ascii_case("true") => Some(1.0),
        Err(_) if field.eq_ignore_ascii_case("false") => Some(0.0),
        Err(_) => None,
    }
}

/// A whole number from a double.
pub(crate) fn whole_number(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= (1u64 << f64::MANTISSA_DIGITS) as f64).then_some(value as i64)
}

/// Rejects a whole number that a double neither represents nor prints identically. Such numbers are names, and rounding would make
/// different ones equal.
///
/// # Errors
/// When it is such a number.
pub(crate) fn check_exact(field: &str) -> Result<()> {
    // All whole numbers of 15 digits are doubles.
    const ALL: usize = 15;
    let digits = field.strip_prefix(['-', '+']).unwrap_or(field);
    if digits.len() <= ALL || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(());
    }
    let is_exact = digits.parse::<i128>().is_ok_and(|whole| whole as f64 as i128 == whole);
    // Large doubles are printed with zeros after their significant digits.
    let is_printed_so = || digits.parse::<f64>().is_ok_and(|x| x.to_string() == digits);
    if is_exact || is_printed_so() {
        return Ok(());
    }
    Err(too_many_digits(&in_words(field)))
}

/// The error for a whole number that no double represents.
pub(crate) fn too_many_digits(number: &str) -> Error {
    Error::data("", format!("{number} has more digits than a number keeps"), "whole numbers up to 2^53, or such as 1.5e20")
}

/// A field in words, for messages.
pub(crate) fn in_words(field: &str) -> String {
    if field.is_empty() { "an empty field".into() } else { format!("`{}`", quoted(field)) }
}

#[cfg(test)]
mod tests {
    use fedsa_problems::logs::source::Inputs;
    use fedsa_problems::rows::dataset::{Rows, Wanted};

    #[test]
    fn flags_are_numbers_wherever_numbers_are_read() {
        let rows = crate::datasets::from_csv("x,flag,target\n1,True,0\n2,FALSE,true\n".into(), &Wanted::default()).unwrap();
        assert_eq!(rows.rows, Rows::Dense { d: 2, values: vec![1.0, 1.0, 2.0, 0.0] });
        let log = crate::logs::from_csv("s_0,next_0,reward,done\ntrue,False,true,0\n".into(), Inputs::States).unwrap();
        assert_eq!((&log.states[..], &log.next[..], &log.rewards[..]), (&[1.0][..], &[0.0][..], &[1.0][..]));
        assert_eq!(
            super::check_exact("9007199254740993").unwrap_err().to_string(),
            "`9007199254740993` has more digits than a number keeps"
        );
        for good in [
            "9007199254740992",
            "-9007199254740994",
            "30000000000000000000",
            "-1706207314860975200000000000000000",
            "0.12345678901234567890",
            "9007199254740993.5",
            "x",
        ] {
            assert!(super::check_exact(good).is_ok(), "{good}");
        }
        for other in ["yes", "t", "truee", "nan", "inf", ""] {
            assert_eq!(super::number(other), None, "{other}");
        }
    }
}
