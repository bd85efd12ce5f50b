//! Trees of settings as short texts.

use super::Value;
use crate::error::escaped;

/// As [`Value::cut`].
pub(super) fn cut(value: &Value, most: usize) -> String {
    let mut text = Cut { text: String::new(), left: most };
    text.value(value, most);
    escaped(&text.text)
}

/// Whether a number is written without an exponent.
fn is_plain(x: f64) -> bool {
    x == 0.0 || !x.is_finite() || (1e-4..1e16).contains(&x.abs())
}

/// A number in TOML.
fn number(x: f64) -> String {
    match x {
        x if x.is_nan() => "nan".into(),
        x if !is_plain(x) => format!("{x:e}"),
        x => format!("{x:?}"),
    }
}

/// A text with room for a number of characters. Methods that append return whether all fitted; after a cut only closing braces follow.
struct Cut {
    text: String,
    left: usize,
}

impl Cut {
    /// Appends as much of a text as there is room for, and `..` for the rest.
    fn part(&mut self, text: &str) -> bool {
        let end = text.char_indices().nth(self.left).map(|(end, _)| end);
        let shown = &text[..end.unwrap_or(text.len())];
        self.text.push_str(shown);
        self.left -= shown.chars().count();
        if end.is_some() { self.rest() } else { true }
    }

    /// Appends a text, or `..` if not all of it fits.
    fn whole(&mut self, text: &str) -> bool {
        if text.chars().count() <= self.left { self.part(text) } else { self.rest() }
    }

    fn rest(&mut self) -> bool {
        self.left = 0;
        self.text.push_str("..");
        false
    }

    fn value(&mut self, value: &Value, most: usize) -> bool {
        match value {
            // Characters beyond the cut are not formatted.
            Value::Text(text) => self.part(&format!("{:?}", text.chars().take(most + 1).collect::<String>())),
            Value::Float(x) => self.whole(&number(*x)),
            Value::Integer(i) => self.whole(&i.to_string()),
            Value::Bool(yes) => self.whole(&yes.to_string()),
            Value::Date(text) => self.whole(text),
            Value::List(items) => self.within(["[", "]"], items.iter().map(|item| (String::new(), item)), most),
            Value::Table(entries) if entries.is_empty() => self.whole("{}"),
            Value::Table(entries) => {
                let is_bare = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                let name = |key: &String| if is_bare(key) { format!("{key} = ") } else { format!("{key:?} = ") };
                self.within(["{ ", " }"], entries.iter().map(|(key, value)| (name(key), value)), most)
            }
        }
    }

    /// Appends values with their names between two texts. Room is kept for the second one.
    fn within<'v>(&mut self, [open, close]: [&str; 2], items: impl Iterator<Item = (String, &'v Value)>, most: usize) -> bool {
        if self.left < open.len() + close.len() {
            return self.rest();
        }
        self.text.push_str(open);
        self.left -= open.len() + close.len();
        let fits = items.enumerate().all(|(i, (name, value))| {
            let separator = if i > 0 { ", " } else { "" };
            self.text.push_str(separator);
            match self.left.checked_sub(separator.len()) {
                Some(left) => self.left = left,
                None => return self.rest(),
            }
            self.whole(&name) && self.value(value, most)
        });
        self.text.push_str(close);
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts are shown as `..`, between elements and within texts; open braces are closed.
    #[test]
    fn values_are_cut_with_their_braces_closed() {
        let rounds = Value::List([1, 2, 4, 7, 12].map(Value::Integer).to_vec());
        let name = Value::Text("list".into());
        let value = Value::table([("kind", name), ("rounds", rounds), ("tiny", Value::Float(1e-9)), ("a b", Value::Table(Vec::new()))]);
        let whole = r#"{ kind = "list", rounds = [1, 2, 4, 7, 12], tiny = 1e-9, "a b" = {} }"#;
        let length = whole.chars().count();
        assert_eq!(cut(&value, length), whole);
        for (most, expected) in [
            (length - 1, r#"{ kind = "list", rounds = [1, 2, 4, 7, 12], tiny = 1e-9, "a b" = .. }"#),
            (45, r#"{ kind = "list", rounds = [1, 2, 4, 7, 12], .. }"#),
            (42, r#"{ kind = "list", rounds = [1, 2, 4, 7, ..] }"#),
            (40, r#"{ kind = "list", rounds = [1, 2, 4, 7, ..] }"#),
            (28, r#"{ kind = "list", rounds = .. }"#),
            (15, r#"{ kind = "lis.. }"#),
            (4, "{ .. }"),
            (3, ".."),
        ] {
            assert_eq!(cut(&value, most), expected, "{most}");
        }
        for most in 0..length {
            let text = cut(&value, most);
            assert!(text.chars().count() <= most + 4, "{most}: {text}");
            assert_eq!(
                [text.matches('{').count(), text.matches('[').count()],
                [text.matches('}').count(), text.matches(']').count()],
                "{text}"
            );
        }
        assert_eq!(cut(&Value::Text("a long text".into()), 5), "\"a lo..");
        assert_eq!(cut(&Value::Text("a\u{1b}[2J".into()), 60), r#""a\u{1b}[2J""#);
        let deep = (0..100).fold(Value::Integer(1), |value, _| Value::List(vec![value]));
        assert_eq!(cut(&deep, 7), "[[[..]]]");
    }

    #[test]
    fn numbers_are_those_of_toml() {
        for (x, text) in [(1.0, "1.0"), (-0.5, "-0.5"), (f64::INFINITY, "inf"), (f64::NAN, "nan"), (1e-5, "1e-5"), (2e20, "2e20")] {
            assert_eq!(cut(&Value::Float(x), 60), text);
        }
    }
}
