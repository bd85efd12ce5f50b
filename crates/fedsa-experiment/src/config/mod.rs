//! Reads experiment files into typed settings; every error has its line.

pub mod document;
mod dotted;
mod experiment;
pub mod json_schema;
pub mod link;
mod nesting;
mod presets;
pub mod reader;
pub mod schema;
pub mod sections;
mod shaped_keys;
mod strict;
pub mod sweep;

use std::borrow::Borrow;

use fedsa::error::{BadInput, Carried, Result, escaped, quoted};
use fedsa::registry::Kind;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

pub use document::{Document, Origin};
pub use experiment::Experiment;
pub use reader::{MethodSpec, Reader};
pub use schema::{Check, FigureSpec, RunSpec, Start};
use strict::Strict;
pub use sweep::SweepPoint;

/// Reads a typed value from a tree; errors carry the dotted key and, for an
/// unknown key, the nearest valid one.
///
/// # Errors
/// When a key is unknown, missing or of the wrong type.
pub fn read<T: DeserializeOwned>(value: impl Borrow<Value>) -> Result<T> {
    let value = value.borrow();
    serde_path_to_error::deserialize(Strict(value)).map_err(|e| explained(value, &e.path().to_string(), e.inner().message()))
}

/// As [`read`], for a table that may differ between points: if a list was given instead of a
/// value, the help names `[[sweep]]`.
///
/// # Errors
/// As [`read`].
pub fn read_swept<T: DeserializeOwned>(value: &Value) -> Result<T> {
    read(value).map_err(|e| with_sweep(value, e))
}

/// Extends the help for an unexpected list: it says how to vary a value.
fn with_sweep(given: &Value, mut e: BadInput) -> BadInput {
    if e.what.ends_with("is not accepted") && matches!(place(given, &e.key), Some(Value::Array(_))) && !e.help.contains("list") {
        e.help += "; to run several values, a [[sweep]] with key = .. and values = [..]";
    }
    e
}

/// Reads the settings of a kind from a table that holds its keys (without `kind`).
///
/// # Errors
/// As [`read`].
pub fn read_kind<T: ?Sized>(kind: &Kind<T>, table: Table) -> Result<Box<T>> {
    let given = Value::Table(table);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(Strict(&given), &mut track);
    let mut erased = <dyn erased_serde::Deserializer<'_>>::erase(tracked);
    let outcome = (kind.read)(&mut erased);
    drop(erased);
    outcome.map_err(|e| with_sweep(&given, explained(&given, &track.path().to_string(), &e.to_string())))
}

/// Whether the settings of a kind have this key.
pub fn takes<T: ?Sized>(kind: &Kind<T>, key: &str) -> bool {
    let given = Table::from_iter([(key.to_string(), Value::Integer(1))]);
    !read_kind(kind, given).is_err_and(|e| e.key.contains(key))
}

/// Finds a kind by name.
///
/// # Errors
/// When there is no such kind; the message names the nearest one.
pub fn find_kind<'k, T: ?Sized>(kinds: &'k [Kind<T>], table: &mut Table, what: &str) -> Result<&'k Kind<T>> {
    let names = || kinds.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
    let Some(kind) = table.remove("kind") else {
        return Err(BadInput::new("kind", format!("the {what} has no kind"), format!("kind = one of {}", names())));
    };
    let Value::String(name) = &kind else {
        return Err(BadInput::new("kind", format!("{} is not a name", short(&kind)), format!("one of {}", names())));
    };
    kinds.iter().find(|k| k.is_called(name)).ok_or_else(|| {
        let near = nearest(name, kinds.iter().flat_map(|k| std::iter::once(k.name).chain(k.aliases.iter().copied())));
        BadInput::new("kind", format!("there is no {what} `{}`{}", quoted(name), did_you_mean(near)), format!("one of {}", names()))
    })
}

/// The candidate most similar to a name, if one is similar enough.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// The longest name that is compared: time and memory grow with the product of the lengths.
    const LONGEST: usize = 200;
    candidates
        .filter(|c| name.len() <= LONGEST && c.len() <= LONGEST)
        .map(|c| (strsim::damerau_levenshtein(name, c), c))
        .filter(|(distance, c)| *distance <= 1 + c.len().max(name.len()) / 3)
        .min()
        .map(|(_, c)| c)
}

pub(crate) fn did_you_mean(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean `{}`?", quoted(near)))
}

/// Translates a message of serde: the wrong value, the nearest valid key, and the accepted values as help.
fn explained(given: &Value, path: &str, message: &str) -> BadInput {
    let path = if path == "." { "" } else { path };
    if let Some(carried) = Carried::find(message) {
        return if path.is_empty() { carried } else { carried.inside(path) };
    }
    // toml adds where in the value it was, which the path says already.
    let message = message.split("\nin `").next().unwrap_or(message).trim();
    // A name may hold backticks; those that would be accepted do not.
    let name = |what: &str| {
        let rest = message.strip_prefix(what)?.trim().strip_prefix('`')?;
        let (name, accepted) =
            ["`, expected ", "`, there are no "].iter().find_map(|end| rest.rsplit_once(end)).unwrap_or((rest.trim_end_matches('`'), ""));
        Some((name, accepted.split('`').skip(1).step_by(2).collect::<Vec<&str>>()))
    };
    if let Some((first, accepted)) = name("unknown field") {
        // The path may end in the key itself or in the table around it.
        let key = if path == first || path.ends_with(&format!(".{first}")) { path.to_string() } else { joined(path, first) };
        let near = did_you_mean(nearest(first, accepted.iter().copied()));
        let help = if accepted.is_empty() { "no further keys".to_string() } else { format!("one of {}", accepted.join(", ")) };
        return BadInput::new(key, format!("unknown key `{}`{near}", quoted(first)), help);
    }
    // Tables whose kind is a key of their own (`law`) are read as a whole: the path then ends at
    // the table, and the value that the message quotes says which of its entries is meant.
    let inside = message.split('`').nth(1).and_then(|quoted| entry(given, path, quoted));
    let path = inside.as_deref().unwrap_or(path);
    if let Some((first, accepted)) = name("unknown variant") {
        let near = did_you_mean(nearest(first, accepted.iter().copied()));
        return BadInput::new(path, format!("unknown value `{}`{near}", quoted(first)), format!("one of {}", accepted.join(", ")));
    }
    if let Some((first, _)) = name("missing field") {
        return BadInput::new(path, format!("the key `{first}` is missing"), format!("{first} = .. in this table"));
    }
    // What is left is a value of the wrong type. "expected" is followed by the
    // type; a choice of types says itself what it accepts.
    let accepted = message.rsplit_once("expected ").map_or(message, |(_, expected)| plain(expected));
    let what = match place(given, path) {
        Some(Value::Table(_)) => "this table is not accepted".to_string(),
        Some(value) => format!("{} is not accepted", short(value)),
        None => "this value is not accepted".to_string(),
    };
    BadInput::new(path, what, accepted)
}

/// The path of the entry of the table at `path` whose value serde quotes, if there is exactly one.
fn entry(given: &Value, path: &str, quoted: &str) -> Option<String> {
    let table = place(given, path)?.as_table()?;
    let is = |value: &Value| value.as_str().map_or_else(|| value.to_string() == quoted, |text| text == quoted.trim_matches('"'));
    let mut found = table.iter().filter(|(_, value)| is(value));
    let (key, _) = found.next()?;
    found.next().is_none().then(|| joined(path, key))
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

/// The type that serde expects, in a user's words.
fn plain(expected: &str) -> &str {
    match expected {
        "usize" | "u64" | "u32" | "u16" | "u8" => "a whole number, at least 0",
        "isize" | "i64" | "i32" => "a whole number",
        "f64" | "f32" => "a number",
        "a string" | "string" => "a text in quotes",
        "a boolean" => "true or false",
        "a sequence" => "a list in square brackets",
        "an array of length 2" | "a tuple of size 2" | "fewer elements in array" | "2 elements in sequence" => {
            "a list of two, such as [0.0, 1.0]"
        }
        "string only" | "string or map" | "variant identifier" => "a name in quotes",
        "a map" => "a table",
        other if other.starts_with("enum ") => "a name in quotes",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum") => "a table",
        other => other,
    }
}

/// A value as text, shortened for a message.
pub fn short(value: &Value) -> String {
    cut(value, 60)
}

/// A value as TOML text of at most `most` characters, with control characters escaped. Where that is too short for it, `..` is in place of the
/// rest, and what is open there is closed. Very small and very large numbers have an exponent.
pub fn cut(value: &Value, most: usize) -> String {
    let mut text = Cut { text: String::new(), left: most };
    match value {
        // What is cut off need not be made.
        Value::String(value) => text.part(&format!("{:?}", value.chars().take(most + 1).collect::<String>())),
        value => text.value(value),
    };
    escaped(&text.text)
}

/// A text with room for so many characters. What appends to it says whether all fitted; only what closes follows what did not.
struct Cut {
    text: String,
    left: usize,
}

impl Cut {
    /// Appends a text as far as there is room, and `..` for the rest.
    fn part(&mut self, text: &str) -> bool {
        let end = text.char_indices().nth(self.left).map(|(end, _)| end);
        let shown = &text[..end.unwrap_or(text.len())];
        self.text.push_str(shown);
        self.left -= shown.chars().count();
        if end.is_some() { self.rest() } else { true }
    }

    /// Appends a text, or `..` where there is no room for all of it.
    fn whole(&mut self, text: &str) -> bool {
        if text.chars().count() <= self.left { self.part(text) } else { self.rest() }
    }

    fn rest(&mut self) -> bool {
        self.left = 0;
        self.text.push_str("..");
        false
    }

    fn value(&mut self, value: &Value) -> bool {
        match value {
            Value::String(_) => self.part(&value.to_string()),
            Value::Float(x) if !crate::numbers::is_plain(*x) => self.whole(&format!("{x:e}")),
            Value::Array(items) => self.within(["[", "]"], items.iter().map(|item| (String::new(), item))),
            Value::Table(table) if table.is_empty() => self.whole("{}"),
            Value::Table(table) => {
                let is_bare = |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
                let name = |key: &String| if is_bare(key) { format!("{key} = ") } else { format!("{key:?} = ") };
                self.within(["{ ", " }"], table.iter().map(|(key, value)| (name(key), value)))
            }
            other => self.whole(&other.to_string()),
        }
    }

    /// Appends values with their names between two texts. Room is kept for the second one.
    fn within<'v>(&mut self, [open, close]: [&str; 2], items: impl Iterator<Item = (String, &'v Value)>) -> bool {
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
            self.whole(&name) && self.value(value)
        });
        self.text.push_str(close);
        fits
    }
}

/// The value that a dotted key leads to.
fn place<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    dotted::segments(path).iter().try_fold(value, |value, segment| match segment {
        dotted::Segment::Name(name) => value.get(name.as_str()),
        dotted::Segment::Index(i) => value.get(*i),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Everything {
        count: usize,
        number: Option<f64>,
        name: Option<String>,
        yes: Option<bool>,
        pair: Option<[f64; 2]>,
        list: Option<Vec<u64>>,
        map: Option<BTreeMap<String, (f64, f64)>>,
        choice: Option<Choice>,
        inner: Option<Box<Everything>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Choice {
        OneThing,
        Other,
    }

    /// What is cut off is `..`, between elements and within texts; what is open is closed, and what fits is whole.
    #[test]
    fn values_are_cut_with_their_braces_closed() {
        let table: Table = r#"schedule = {kind = "list", rounds = [1, 2, 4, 7, 12], tiny = 1e-9, "a b" = {}}"#.parse().unwrap();
        let value = &table["schedule"];
        let whole = r#"{ kind = "list", rounds = [1, 2, 4, 7, 12], tiny = 1e-9, "a b" = {} }"#;
        let length = whole.chars().count();
        assert_eq!(cut(value, length), whole);
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
            assert_eq!(cut(value, most), expected, "{most}");
        }
        for most in 0..length {
            let text = cut(value, most);
            assert!(text.chars().count() <= most + 4, "{most}: {text}");
            assert_eq!(
                [text.matches('{').count(), text.matches('[').count()],
                [text.matches('}').count(), text.matches(']').count()],
                "{text}"
            );
        }
        assert_eq!(cut(&Value::String("a long text".into()), 5), "\"a lo..");
        assert_eq!(cut(&Value::String("a\u{1b}[2J".into()), 60), r#""a\u{1b}[2J""#);
        let deep = (0..100).fold(Value::Integer(1), |value, _| Value::Array(vec![value]));
        assert_eq!(cut(&deep, 7), "[[[..]]]");
    }

    fn message(text: &str) -> String {
        let e = read::<Everything>(Value::Table(text.parse().unwrap())).unwrap_err();
        format!("{e} | {}", e.help)
    }

    #[test]
    fn types_are_told_in_plain_words() {
        for (text, expected) in [
            ("count = -1", "count: -1 is not accepted | a whole number, at least 0"),
            ("count = 1.5", "count: 1.5 is not accepted | a whole number, at least 0"),
            ("count = 1\nnumber = \"x\"", "number: \"x\" is not accepted | a number"),
            ("count = 1\nname = [1]", "name: [1] is not accepted | a text in quotes"),
            ("count = 1\nyes = 1", "yes: 1 is not accepted | true or false"),
            ("count = 1\npair = [1.0, 2.0, 3.0]", "pair: [1.0, 2.0, 3.0] is not accepted | a list of two, such as [0.0, 1.0]"),
            ("count = 1\npair = 3", "pair: 3 is not accepted | a list of two, such as [0.0, 1.0]"),
            ("count = 1\nlist = [1, -2]", "list[1]: -2 is not accepted | a whole number, at least 0"),
            ("count = 1\nlist = 1", "list: 1 is not accepted | a list in square brackets"),
            ("count = 1\nmap = { a = [1.0] }", "map.a: [1.0] is not accepted | a list of two, such as [0.0, 1.0]"),
            ("count = 1\nmap = 1", "map: 1 is not accepted | a table"),
            ("count = 1\nchoice = 1", "choice: 1 is not accepted | a name in quotes"),
            ("count = 1\nchoice = \"oter\"", "choice: unknown value `oter`; did you mean `other`? | one of one-thing, other"),
            ("count = 1\ninner = 1", "inner: 1 is not accepted | a table"),
            ("count = 1\ninner = { count = \"x\" }", "inner.count: \"x\" is not accepted | a whole number, at least 0"),
            ("count = 1\ninner = {}", "inner: the key `count` is missing | count = .. in this table"),
            ("count = 1\ninner = { count = 1, nmber = 2 }", "inner.nmber: unknown key `nmber`; did you mean `number`? | one of"),
            ("", "the key `count` is missing | count = .. in this table"),
        ] {
            assert!(message(text).starts_with(expected), "{text}: {}", message(text));
        }
    }
}
