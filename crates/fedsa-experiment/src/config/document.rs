//! The text of an experiment file, its overrides, and the positions of its keys.

use std::ops::Range;

use fedsa::error::{Error, ErrorCode, Result, quoted};
use toml::{Table, Value};
use toml_edit::{ArrayOfTables, Item, TableLike, Value as Spanned};

use super::dotted::{Assignment, Segment, assignments, segments, set, split_assignment, split_outside, unset};
use crate::error::{harmless, in_text};
use crate::kinds::Kinds;

/// An experiment file.
#[derive(Debug, Clone)]
pub struct Document {
    /// The path or name to show in messages.
    pub name: String,
    /// The text.
    pub text: String,
    /// The text as a tree, with overrides applied.
    pub table: Table,
    /// The keys that overrides set, in the order of application.
    pub origins: Vec<Origin>,
    /// The kinds that it may name.
    pub kinds: Kinds,
}

/// The source of a value set by an option or by another place of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// The key, with indices for labels: `method[0].step_size`.
    pub key: String,
    /// The source of the value.
    pub from: SetBy,
}

/// The source of a key's value.
#[derive(Debug, Clone, PartialEq)]
pub enum SetBy {
    /// The caller.
    Caller(Caller),
    /// Another place of the file: `quick."run.rounds"`, `sweep[0].values[1]`.
    Place(String),
    /// A setting of the library from which the experiment was made. Errors then name this setting.
    Setting(&'static str),
}

/// The caller's change of a key, in the caller's words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Caller {
    /// The change, such as a command-line option as typed.
    pub source: String,
    /// The words for further changes.
    pub words: Words,
    /// Whether the caller wrote no file: errors then describe its change, and name no key.
    knows_no_keys: bool,
    /// Whether it removed the key.
    removed: bool,
    /// The key as the caller wrote it.
    typed: Option<String>,
}

/// A caller's words before a key, for messages that propose to set or remove one. Empty if the caller cannot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Words {
    /// Before `KEY=VALUE`.
    pub set: &'static str,
    /// Before a key to remove.
    pub remove: &'static str,
}

impl Caller {
    /// A caller whose change is `source`.
    pub fn new(source: impl Into<String>, words: Words) -> Self {
        Self { source: source.into(), words, ..Self::default() }
    }

    /// The same for a caller that wrote no file and does not know its keys.
    #[must_use]
    pub fn without_keys(self) -> Self {
        Self { knows_no_keys: true, ..self }
    }
}

impl Origin {
    /// Whether `key` is the key that was set, or a key inside it.
    pub fn decides(&self, key: &str) -> bool {
        key.strip_prefix(self.key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

impl Document {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it is not TOML; the message shows the line.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut table = text.parse::<Table>().map_err(|e| match too_large(text, &e) {
            Some((what, help)) => in_text(Error::new("", what, help).coded(ErrorCode::OutOfRange), name, text, e.span()),
            None => {
                let help = "an experiment file in TOML, with [problem], [[method]] and [run]";
                let not_toml = Error::new("", format!("this is not TOML: {}", e.message()), help).coded(ErrorCode::NotToml);
                in_text(not_toml, name, text, e.span())
            }
        })?;
        super::presets::expand(&mut table);
        Ok(Self { name: name.to_string(), text: text.to_string(), table, origins: Vec::new(), kinds: Kinds::default() })
    }

    /// An experiment from a table, without a file; `origins` has the sources of its values.
    pub fn of_table(mut table: Table, origins: Vec<Origin>) -> Self {
        super::presets::expand(&mut table);
        Self { name: String::new(), text: String::new(), table, origins, kinds: Kinds::default() }
    }

    /// The document with these kinds in place of fedsa's own.
    #[must_use]
    pub fn with_kinds(self, kinds: &Kinds) -> Self {
        Self { kinds: kinds.clone(), ..self }
    }

    /// Applies `KEY=VALUE`. A value that is not TOML is taken as a string.
    ///
    /// # Errors
    /// When there is no `=` ([`ErrorCode::NotAnAssignment`]), or the key names no table of the file.
    pub fn set(&mut self, assignment: &str, by: Caller) -> Result<()> {
        const FORM: &str = "KEY=VALUE with a dotted key, such as method.FedLSA.step_size=0.01";
        let Some((key, value)) = split_assignment(assignment) else {
            return Err(not_an_assignment(format!("`{}` has no `=`", quoted(assignment)), FORM));
        };
        not_quick(assignment, key)?;
        self.set_value(key, &value_of(value)?, by)
    }

    /// Sets a dotted key to a value.
    ///
    /// # Errors
    /// When the key names no table of the file.
    pub fn set_value(&mut self, key: &str, value: &Value, by: Caller) -> Result<()> {
        not_quick(key, key)?;
        let set = set(&mut self.table, key, value)?;
        let from = SetBy::Caller(Caller { typed: Some(key.to_string()), ..by });
        self.origins.extend(set.into_iter().map(|key| Origin { key, from: from.clone() }));
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// When there is a value after it ([`ErrorCode::NotAnAssignment`]), or the key is not there.
    pub fn unset(&mut self, key: &str, by: Caller) -> Result<()> {
        const FORM: &str = "KEY, a dotted key of the file, such as method.FedLSA.step_size";
        if split_assignment(key).is_some() {
            return Err(not_an_assignment(format!("`{}` has a value", quoted(key)), FORM));
        }
        not_quick(key, key)?;
        let removed = unset(&mut self.table, key.trim())?;
        let from = SetBy::Caller(Caller { removed: true, ..by });
        self.origins.extend(removed.into_iter().map(|key| Origin { key, from: from.clone() }));
        Ok(())
    }

    /// Adds the `[[sweep]]` of `KEY=V1,V2`. A value that is not TOML is taken as a string.
    ///
    /// # Errors
    /// When there is no `=` or no value ([`ErrorCode::NotAnAssignment`]), or the file's `sweep` is not a list.
    pub fn add_sweep(&mut self, assignment: &str, by: Caller) -> Result<()> {
        const FORM: &str = "KEY=V1,V2 with a dotted key, such as method.FedLSA.step_size=0.01,0.1";
        let bad = |what: String| not_an_assignment(what, FORM);
        let Some((key, values)) = split_assignment(assignment) else { return Err(bad(format!("`{}` has no `=`", quoted(assignment)))) };
        let values: Vec<&str> = split_outside(values, ',').into_iter().map(str::trim).collect();
        if key.is_empty() || values.contains(&"") {
            return Err(bad(format!("`{}` lacks {}", quoted(assignment), if key.is_empty() { "a key" } else { "a value" })));
        }
        let values = values.into_iter().map(value_of).collect::<Result<Vec<Value>>>()?;
        self.sweep_values(key, Value::Array(values), by)
    }

    /// Adds the `[[sweep]]` of a dotted key over a list of values.
    ///
    /// # Errors
    /// When the file's `sweep` is not a list.
    pub fn sweep_values(&mut self, key: &str, values: Value, by: Caller) -> Result<()> {
        let sweep = [("key", Value::String(key.to_string())), ("values", values)];
        let sweep = Value::Table(sweep.into_iter().map(|(key, value)| (key.to_string(), value)).collect());
        let sweeps = self.table.entry("sweep").or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(sweeps) = sweeps else {
            let what = format!("the file's sweep is {}, not a list", super::short(sweeps));
            return Err(not_an_assignment(what, "[[sweep]] tables, or none"));
        };
        sweeps.push(sweep);
        let key = format!("sweep[{}]", sweeps.len() - 1);
        self.origins.push(Origin { key, from: SetBy::Caller(by) });
        Ok(())
    }

    /// Applies the `[quick]` table; each of its entries is a dotted key and a value.
    ///
    /// # Errors
    /// When a key names no table of the file.
    pub fn make_quick(&mut self) -> Result<()> {
        let quick = match self.table.remove("quick") {
            None => return Ok(()),
            Some(Value::Table(quick)) => quick,
            Some(other) => {
                let e = Error::new(
                    "quick",
                    format!("{} is not a table", super::short(&other)),
                    "[quick] with dotted keys: \"run.rounds\" = 10",
                );
                return Err(self.failure(e));
            }
        };
        if quick.is_empty() {
            return Err(self.failure(Error::new("quick", "an empty table sets nothing", "[quick] with dotted keys: \"run.rounds\" = 10")));
        }
        let all = assignments(&quick, "quick").map_err(|e| self.failure(e))?;
        let mut seen: Vec<(String, String)> = Vec::new();
        for Assignment { key, value, place } in all {
            if segments(&key).first() == Some(&Segment::Name("quick".into())) {
                let what = format!("`{}` sets a key of [quick] itself", quoted(&place));
                return Err(self.failure(Error::new(place, what, "keys of the other tables")));
            }
            let set = set(&mut self.table, &key, &value).map_err(|e| self.failure(e.about(place.clone())))?;
            if let Some((_, other)) = seen.iter().find(|(key, _)| set.contains(key)) {
                let what = format!("`{}` and `{}` set the same key", quoted(&place), quoted(other));
                return Err(self.failure(Error::new(place, what, "each key once")));
            }
            seen.extend(set.iter().map(|key| (key.clone(), place.clone())));
            self.origins.extend(set.into_iter().map(|key| Origin { key, from: SetBy::Place(place.clone()) }));
        }
        Ok(())
    }

    /// An error about a key of this file, with its place, or with what the caller did to the key.
    pub fn failure(&self, e: Error) -> Error {
        self.failure_at(e, &[])
    }

    /// As [`Document::failure`] for a sweep point, whose values come from `origins` too.
    pub fn failure_at(&self, mut e: Error, origins: &[Origin]) -> Error {
        if let Some(setting) = self.setting(&e.key, origins) {
            return harmless(e.about(setting));
        }
        self.name_kind(&mut e, origins);
        let (place, by) = self.source(&e.key, origins);
        match by {
            Some(by) if by.knows_no_keys => harmless(e.about(by.source.clone())),
            Some(by) => {
                let how = if by.removed { "removed" } else { "set" };
                let what = format!("{} ({how} by {})", e.what, by.source);
                harmless(e.saying(what))
            }
            None => in_text(e, &self.name, &self.text, self.span(&place)),
        }
    }

    /// The setting of the library that gives a key its value, with the rest of the key inside it.
    fn setting(&self, key: &str, origins: &[Origin]) -> Option<String> {
        let origin = self.origins.iter().chain(origins).rfind(|origin| origin.decides(key))?;
        let SetBy::Setting(name) = origin.from else { return None };
        Some(format!("{name}{}", &key[origin.key.len()..]))
    }

    /// The place of a key's value in the file, or the caller's change of it.
    fn source<'d>(&'d self, key: &str, origins: &'d [Origin]) -> (String, Option<&'d Caller>) {
        let mut place = key.to_string();
        let mut origin = self.origins.iter().chain(origins).rfind(|origin| origin.decides(&place));
        // The value at a place may in turn come from an option or a quick setting.
        for _ in 0..4 {
            let Some(Origin { key, from }) = origin else { break };
            match from {
                SetBy::Caller(by) => return (place, Some(by)),
                // The rest of the key lies inside the value that was set.
                SetBy::Setting(_) => break,
                SetBy::Place(from) => place = format!("{from}{}", &place[key.len()..]),
            }
            origin = self.origins.iter().rfind(|origin| origin.decides(&place));
        }
        (place, None)
    }

    /// Adds the caller's change of the kind to an error about a key that the kind lacks or needs.
    fn name_kind(&self, e: &mut Error, origins: &[Origin]) {
        if !matches!(e.code(), ErrorCode::UnknownKey | ErrorCode::MissingKey) {
            return;
        }
        let Some((table, name)) = e.key.rsplit_once('.') else { return };
        // A change of the key itself, or of its whole table, is named anyway.
        if self.source(&e.key, origins).1.is_some() {
            return;
        }
        let Some(by) = self.source(&format!("{table}.kind"), origins).1 else { return };
        let around = by.typed.as_deref().and_then(|typed| typed.strip_suffix("kind"));
        if let Some(around) = around.filter(|_| e.code() == ErrorCode::UnknownKey && !by.words.remove.is_empty()) {
            e.help += &format!("; {}{around}{name} removes it", by.words.remove);
        }
        e.what += &format!(" (kind set by {})", by.source);
    }

    /// The position of a dotted key such as `method[1].step_size`: of the key itself, or of
    /// the nearest table that contains it.
    fn span(&self, key: &str) -> Option<Range<usize>> {
        let document = toml_edit::Document::parse(self.text.as_str()).ok()?;
        let mut node = Node::Table(document.as_table());
        let mut best = None;
        for segment in segments(key) {
            let Some((span, next)) = node.enter(&segment) else { break };
            best = span.or(best);
            node = next;
        }
        best
    }
}

/// A node of the parsed text.
enum Node<'a> {
    Table(&'a dyn TableLike),
    Tables(&'a ArrayOfTables),
    Array(&'a toml_edit::Array),
    Leaf,
}

impl<'a> Node<'a> {
    fn of_value(value: &'a Spanned) -> Self {
        match value {
            Spanned::InlineTable(table) => Node::Table(table),
            Spanned::Array(array) => Node::Array(array),
            _ => Node::Leaf,
        }
    }

    fn of_item(item: &'a Item) -> Self {
        match item {
            Item::Table(table) => Node::Table(table),
            Item::ArrayOfTables(tables) => Node::Tables(tables),
            Item::Value(value) => Node::of_value(value),
            Item::None => Node::Leaf,
        }
    }

    /// The child that a segment of a key leads to, and its position in the text.
    fn enter(&self, segment: &Segment) -> Option<(Option<Range<usize>>, Node<'a>)> {
        match (self, segment) {
            (Node::Table(table), Segment::Name(name)) => {
                let (key, item) = table.get_key_value(name)?;
                Some((key.span().or_else(|| item.span()), Node::of_item(item)))
            }
            (Node::Tables(tables), Segment::Index(i)) => tables.get(*i).map(|table| (table.span(), Node::Table(table))),
            (Node::Array(array), Segment::Index(i)) => array.get(*i).map(|value| (value.span(), Node::of_value(value))),
            _ => None,
        }
    }
}

/// The error about a malformed assignment: `what` it is, and the accepted form.
fn not_an_assignment(what: String, form: &str) -> Error {
    Error::new("", what, form).coded(ErrorCode::NotAnAssignment)
}

/// Refuses quick settings as keys: they are applied before the caller's changes.
fn not_quick(text: &str, key: &str) -> Result<()> {
    if key.split('.').next().is_some_and(|first| first.trim() == "quick") {
        let what = format!("`{}` is a quick setting", quoted(text));
        return Err(Error::new("", what, "the key itself, which applies to quick runs too"));
    }
    Ok(())
}

/// The message and help for a text with a number that is too large.
fn too_large(text: &str, e: &toml::de::Error) -> Option<(String, String)> {
    let number = text.get(e.span()?)?;
    let digits = number.replace('_', "");
    let (is_negative, bare) = (digits.starts_with('-'), digits.trim_start_matches(['+', '-']));
    let is_whole = |digits: &str, radix: u32| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let prefixed = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(|(prefix, radix)| Some((bare.strip_prefix(prefix)?, radix)));
    let is_large = match prefixed {
        Some((bare, radix)) => is_whole(bare, radix) && i64::from_str_radix(bare, radix).is_err(),
        None if is_whole(bare, 10) => digits.parse::<i64>().is_err(),
        None => bare.starts_with(|c: char| c.is_ascii_digit()) && bare.parse::<f64>().is_ok_and(f64::is_infinite),
    };
    let what = format!("the number {} is too {}", quoted(number), if is_negative { "small" } else { "large" });
    is_large.then(|| (what, format!("integers from {} to {}, other numbers up to {:e}", i64::MIN, i64::MAX, f64::MAX)))
}

/// Whether the text could be read with another number at the place of the failure, up to a further such number.
fn is_all_that_is_wrong(text: &str, e: &toml::de::Error) -> bool {
    let Some((before, after)) = e.span().and_then(|span| Some((text.get(..span.start)?, text.get(span.end..)?))) else { return false };
    let other = format!("{before}0{after}");
    other.parse::<Table>().map_or_else(|e| too_large(&other, &e).is_some(), |table| table.len() == 1)
}

/// A text parsed as a TOML value; a text that is not TOML becomes a string.
///
/// # Errors
/// When a number is too large.
fn value_of(text: &str) -> Result<Value> {
    let text_of = format!("x = {text}");
    let parsed = text_of.parse::<Table>();
    if let Err(e) = &parsed
        && let Some((what, help)) = too_large(&text_of, e)
        && is_all_that_is_wrong(&text_of, e)
    {
        return Err(Error::new("", what, help));
    }
    let parsed = parsed.ok().filter(|t| t.len() == 1).and_then(|mut t| t.remove("x"));
    Ok(parsed.unwrap_or_else(|| Value::String(text.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_where_they_stand() {
        let text = "a = 1\nb = [{ c = 2 }, { c = [3, 4] }]\n[[m]]\nx = 1\n[[m]]\n\"y.z\" = 2\n[t.u]\nv = { w = 5 }\n";
        let document = Document::parse("f", text).unwrap();
        for (key, shown) in [
            ("a", "a"),
            ("b[1].c[0]", "3"),
            ("m[1].\"y.z\"", "\"y.z\""),
            ("m[1].missing", "[[m]]"),
            ("m[0].x.deeper", "x"),
            ("t.u.v.w", "w"),
            ("t.u.v.missing", "v"),
        ] {
            let span = document.span(key).unwrap();
            assert_eq!(&text[span.clone()], shown, "{key}");
            if key == "m[1].missing" {
                assert_eq!(text[..span.start].matches('\n').count(), 4, "the second table");
            }
        }
        assert_eq!(document.span("nothing"), None);
    }

    #[test]
    fn an_origin_decides_what_lies_inside_it() {
        let origin = |key: &str| Origin { key: key.into(), from: SetBy::Caller(Caller::default()) };
        assert!(origin("run").decides("run.rounds") && origin("method[1].x").decides("method[1].x[3]"));
        assert!(!origin("run.round").decides("run.rounds") && !origin("method[1].x").decides("method[0].x"));
    }
}
