//! Texts in columns: missing values, numbers written as text, codes of levels, and near-duplicates.

use fedsa::columns::level_number;

/// Texts that denote a missing value, in any case.
const MISSING: [&str; 9] = ["", "na", "n/a", "nan", "null", "none", "?", "-", "."];

/// Signs of currencies.
const CURRENCIES: [char; 4] = ['$', '€', '£', '¥'];

/// Whether a text denotes a missing value.
pub fn is_missing(text: &str) -> bool {
    MISSING.iter().any(|missing| text.trim().eq_ignore_ascii_case(missing))
}

/// The name of a level: `1` for `1.0`, so that files of different programs have the same levels.
pub fn level_name(text: &str) -> String {
    level_number(text).map_or_else(|| text.to_string(), |x| x.to_string())
}

/// The common form of texts that differ only by case and spaces.
pub fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The positions of the first two texts that differ only by case and spaces.
pub fn alike<'a>(texts: impl Iterator<Item = &'a str>) -> Option<(usize, usize)> {
    let mut seen = std::collections::HashMap::new();
    for (i, text) in texts.enumerate() {
        if let Some(before) = seen.insert(folded(text), i) {
            return Some((before, i));
        }
    }
    None
}

/// The description of a missing value in messages.
pub const MISSING_VALUE: &str = "a missing value";

/// The kind of a text that is no category unless listed: a missing value, a number or a date; `None` for other texts.
pub fn no_category(text: &str) -> Option<&'static str> {
    if is_missing(text) { Some(MISSING_VALUE) } else { disguise(text) }
}

/// The kind of a number or a date written as text, such as `a number with a percent sign`; `None` for other texts.
pub fn disguise(text: &str) -> Option<&'static str> {
    let text = text.trim();
    if is_date(text) {
        return Some("a date");
    }
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let plain = inner.unwrap_or(text).trim_start_matches(['-', '+']);
    if let Some(number) = plain.strip_suffix('%') {
        return is_marked(number.trim_end()).then_some("a number with a percent sign");
    }
    let bare = plain.trim_matches(CURRENCIES).trim().trim_start_matches('-');
    if !is_marked(bare) {
        return None;
    }
    if bare.len() < plain.trim_start_matches('-').len() {
        return Some("a number with a currency sign");
    }
    if inner.is_some() {
        return Some("a number in parentheses");
    }
    bare.parse::<f64>()
        .is_err()
        .then(|| if in_threes(bare) { "a number with separators of thousands" } else { "a number with a decimal comma" })
}

/// Whether a text is an unsigned number, possibly with thousands separators and a decimal comma.
fn is_marked(text: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_simple =
        text.split_once(['.', ',']).map_or(is_digits(text), |(whole, rest)| (whole.is_empty() || is_digits(whole)) && is_digits(rest));
    is_simple || in_threes(text)
}

/// Whether a text is a number with thousands separators: one of `,`, `.`, `'` and spaces, and another mark before decimals.
fn in_threes(text: &str) -> bool {
    let Some(mark) = text.chars().find(|c| !c.is_ascii_digit()) else { return false };
    if !(mark.is_whitespace() || [',', '.', '\''].contains(&mark)) {
        return false;
    }
    let pieces: Vec<&str> = text.split(mark).collect();
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (last, before) = pieces.split_last().expect("split gives a piece");
    let (whole, decimals) = last.split_once(['.', ',']).unwrap_or((last, "0"));
    let first = before.first().copied().unwrap_or_default();
    let is_number = mark != '.' || before.len() > 1 || last.contains(',');
    is_number
        && (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && before[1..].iter().all(|piece| piece.len() == 3)
        && before.iter().all(|piece| is_digits(piece))
        && whole.len() == 3
        && is_digits(whole)
        && !decimals.is_empty()
        && is_digits(decimals)
}

/// Whether a text is a date, with or without a time: `2024-01-31`, `31.1.2024`, `1/31/24 10:00`.
fn is_date(text: &str) -> bool {
    let day = text.split(['T', ' ']).next().unwrap_or_default();
    let Some(mark) = day.chars().find(|c| !c.is_ascii_digit()).filter(|c| ['-', '/', '.'].contains(c)) else { return false };
    let pieces: Vec<&str> = day.split(mark).collect();
    let are_digits = pieces.iter().all(|piece| piece.bytes().all(|byte| byte.is_ascii_digit()));
    let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
    are_digits && (matches!(lengths[..], [4, 1..=2, 1..=2] | [1..=2, 1..=2, 4]) || mark == '/' && matches!(lengths[..], [1..=2, 1..=2, 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_dates_in_disguise_are_recognised() {
        let all = [
            ("a number with a percent sign", &["71.2%", "5 %", "-3%", "12,5%"][..]),
            ("a number with a currency sign", &["$1,234", "€5", "-$3.50", "12 €", "$1,234.50", "$-3"]),
            ("a number with separators of thousands", &["1,234", "12 345", "1,234,567.5", "1.234,5", "1'000", "-1,234"]),
            ("a number with a decimal comma", &["1,5", "-0,25", "1234,5"]),
            ("a number in parentheses", &["(12)", "(1,234)"]),
            ("a date", &["2024-01-31", "31.1.2024", "1/31/24", "2024-01-31T10:00:00", "2024/1/3 10:00"]),
        ];
        for (what, texts) in all {
            texts.iter().for_each(|text| assert_eq!(disguise(text), Some(what), "{text}"));
        }
        for other in [
            "",
            "7",
            "1.5",
            "-3e5",
            "yes",
            "10-20",
            "%",
            "$",
            "$a",
            "1,2,3",
            "1.2.3",
            "192.168.10.1",
            "A1,5",
            "1-2",
            "12:30",
            "+",
            "007",
            "(a)",
        ] {
            assert_eq!(disguise(other), None, "{other}");
        }
    }

    #[test]
    fn levels_that_are_numbers_have_one_name_and_codes_keep_theirs() {
        let names =
            ["1", "1.0", "-2.50", "007", "0.5", "00.5", "1582218195625938945", "9007199254740992", "1E5", "NA", "-0"].map(level_name);
        assert_eq!(names, ["1", "1", "-2.5", "007", "0.5", "00.5", "1582218195625938945", "9007199254740992", "1E5", "NA", "0"]);
        assert_eq!(level_number("1582218195625938945"), None);
        assert_eq!(alike(["No", "Yes", "yes ", "NO"].into_iter()), Some((1, 2)));
        assert_eq!(alike(["a b", "a  B"].into_iter()), Some((0, 1)));
        assert_eq!(alike(["a", "b"].into_iter()), None);
    }
}
