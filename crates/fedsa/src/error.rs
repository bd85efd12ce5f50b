//! The one error of the library: input that cannot be used.
//!
//! Divergence is not an error but a status of a run ([`crate::round::Status`]).

/// Input that cannot be used, and what could be used in its place.
///
/// `key` names the setting or array relative to whoever raised the error
/// (`step_size`, `P`); outer layers prefix it (`method[0].step_size`) and find
/// the line of the file it came from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{what}", prefix(.key))]
pub struct BadInput {
    /// The setting, array, column or file at fault; empty when it is the whole.
    pub key: String,
    /// What is wrong, with the value.
    pub what: String,
    /// What would be accepted.
    pub help: String,
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{}: ", shown(key)) }
}

impl BadInput {
    /// An error about `key`: what is wrong, and what would be accepted.
    pub fn new(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into(), help: help.into() }
    }

    /// The same error seen from one level further out: `inside("method[0]")`
    /// turns `step_size` into `method[0].step_size`.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        self.key = match self.key.as_str() {
            "" => outer.to_string(),
            inner if inner.starts_with('[') => format!("{outer}{inner}"),
            inner => format!("{outer}.{inner}"),
        };
        self
    }
}

/// A [`BadInput`] that a type raises while serde reads it: its text carries key and help through
/// serde's error, from where [`Carried::find`] takes them.
#[derive(Debug, Clone)]
pub struct Carried(pub BadInput);

/// A character that no message has.
const SEPARATOR: char = '\u{1f}';

impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BadInput { key, what, help } = &self.0;
        write!(f, "{SEPARATOR}{key}{SEPARATOR}{what}{SEPARATOR}{help}{SEPARATOR}")
    }
}

impl Carried {
    /// The error that serde's message carries, if it does.
    pub fn find(message: &str) -> Option<BadInput> {
        let mut parts = message.split(SEPARATOR).skip(1);
        Some(BadInput::new(parts.next()?, parts.next()?, parts.next()?))
    }
}

/// The most characters of a value that a message quotes.
pub const QUOTED: usize = 80;

/// A text from a file, an argument or the environment as a message quotes it: at most
/// [`QUOTED`] characters (twice as many with escapes), followed by `..` where there are more, and with control characters
/// escaped, so that nothing in it reaches a terminal as a command.
pub fn quoted(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    let cut = text.char_indices().nth(QUOTED).map(|(end, _)| end);
    let mut out = escaped(&text[..cut.unwrap_or(text.len())]);
    // An escape is longer than what it stands for.
    let long = out.char_indices().nth(2 * QUOTED).map(|(end, _)| end);
    out.truncate(long.unwrap_or(out.len()));
    if cut.is_some() || long.is_some() {
        out.push_str("..");
    }
    out
}

/// A key, a path or what a library says, for a message: at most 500 characters, and control
/// characters escaped.
pub fn shown(text: impl std::fmt::Display) -> String {
    const MOST: usize = 500;
    let mut text = escaped(&text.to_string());
    if let Some((end, _)) = text.char_indices().nth(MOST) {
        text.truncate(end);
        text.push_str("..");
    }
    text
}

/// A text of any length with its control characters escaped, line breaks too: `\n`, `\u{1b}`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Whether a character steers a terminal or reorders text instead of being shown.
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The library's result.
pub type Result<T, E = BadInput> = std::result::Result<T, E>;

/// Refuses a setting outside its range.
///
/// `accepted` is the range in words: "a positive number".
pub fn require(ok: bool, key: &str, value: impl std::fmt::Display, accepted: &str) -> Result<()> {
    if ok {
        return Ok(());
    }
    let value = value.to_string();
    let is_finite = !["inf", "-inf", "NaN"].contains(&value.as_str()) || accepted.contains("finite");
    let accepted = if is_finite { accepted.to_string() } else { format!("{accepted}, and finite") };
    Err(BadInput::new(key, format!("{} is not accepted", quoted(value)), accepted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_are_short_and_harmless() {
        assert_eq!(quoted("plain é"), "plain é");
        assert_eq!(quoted("a\u{1b}[31m\n\u{202e}"), "a\\u{1b}[31m\\n\\u{202e}");
        let long = quoted("é".repeat(10_000_000));
        assert_eq!((long.chars().count(), long.ends_with("é..")), (QUOTED + 2, true));
        assert_eq!(quoted("x".repeat(QUOTED)).len(), QUOTED);
        assert_eq!(shown("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(shown("\u{202e}".repeat(499)).chars().count(), 502);
        assert_eq!(BadInput::new("a\tb", "is wrong", "").inside("c").to_string(), "c.a\\tb: is wrong");
        let e = require(false, "key", "\u{7}".repeat(1000), "less").unwrap_err();
        assert!(e.to_string().len() < 1000 && !e.to_string().contains('\u{7}'));
    }
}
