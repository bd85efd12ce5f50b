//! Texts of files, arguments and libraries in messages.

/// The largest number of characters of a quoted value.
pub const QUOTED: usize = 80;

/// A text from a file, an argument or the environment for a message: at most [`QUOTED`] characters (twice as many with escapes), then `..`.
/// Control characters are escaped, so that it cannot control a terminal.
pub fn quoted(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    let cut = text.char_indices().nth(QUOTED).map(|(end, _)| end);
    let mut out = escaped(&text[..cut.unwrap_or(text.len())]);
    // Escapes lengthen the text.
    let long = out.char_indices().nth(2 * QUOTED).map(|(end, _)| end);
    out.truncate(long.unwrap_or(out.len()));
    if cut.is_some() || long.is_some() {
        out.push_str("..");
    }
    out
}

/// A user's word, such as the name of a column, for notes and help texts: in double quotes, without backticks, which mark settings.
pub fn in_quotes(word: impl AsRef<str>) -> String {
    format!("\"{}\"", quoted(word).replace('`', "'"))
}

/// A key, a path or a library's text for a message: at most 500 characters, with control characters escaped.
pub fn shown(text: impl std::fmt::Display) -> String {
    const MOST: usize = 500;
    let mut text = escaped(&text.to_string());
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push_str("..");
    }
    text
}

/// A text of any length with control characters and line breaks escaped: `\n`, `\u{1b}`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Whether a character controls a terminal or reorders text.
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, require};

    #[test]
    fn quoted_values_are_short_and_harmless() {
        assert_eq!(quoted("plain é"), "plain é");
        assert_eq!(quoted("a\u{1b}[31m\n\u{202e}"), "a\\u{1b}[31m\\n\\u{202e}");
        let long = quoted("é".repeat(10_000_000));
        assert_eq!((long.chars().count(), long.ends_with("é..")), (QUOTED + 2, true));
        assert_eq!(quoted("x".repeat(QUOTED)).len(), QUOTED);
        assert_eq!(shown("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(shown("\u{202e}".repeat(499)).chars().count(), 502);
        assert_eq!(Error::new("a\tb", "is wrong", "").inside("c").to_string(), "c.a\\tb: is wrong");
        let e = require(false, "key", "\u{7}".repeat(1000), "less").unwrap_err();
        assert!(e.to_string().len() < 1000 && !e.to_string().contains('\u{7}'));
    }
}
