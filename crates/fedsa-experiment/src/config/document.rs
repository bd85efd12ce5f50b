//! The text of an experiment file, its overrides, and where its keys stand.

use std::ops::Range;
use std::sync::Arc;

use fedsa::error::{BadInput, quoted};
use toml::{Table, Value};
use toml_edit::{ArrayOfTables, Item, TableLike, Value as Spanned};

use crate::error::Failure;

/// An experiment file as read.
#[derive(Debug, Clone)]
pub struct Document {
    /// The path or name to show in messages.
    pub name: String,
    /// The text.
    pub text: String,
    /// The text as a tree, with overrides applied.
    pub table: Table,
    /// What overrides set, in the order in which they were applied.
    pub origins: Vec<Origin>,
}

/// Where the value of a key comes from, when not from where the key stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// The key, with indices for labels: `method[0].step_size`.
    pub key: String,
    /// What set it.
    pub from: From,
}

/// What can set a key.
#[derive(Debug, Clone, PartialEq)]
pub enum From {
    /// An option of the command line, as typed: `--rounds 10`.
    Flag(String),
    /// Another place of the file: `quick."run.rounds"`, `sweep[0].values[1]`.
    Place(String),
}

impl Origin {
    /// Whether what it set decides the value of `key`, a key inside it, or all of a table around it.
    pub fn decides(&self, key: &str) -> bool {
        key.strip_prefix(self.key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

impl Document {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it is not TOML; the message shows the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if let Some(at) = too_deep(text) {
            return Err(Failure::in_text(name, text, Some(at..at + 1), DEEP.into(), DEEP_HELP));
        }
        let table = text.parse::<Table>().map_err(|e| {
            let help = "an experiment file in TOML, with [problem], [[method]] and [run]";
            Failure::in_text(name, text, e.span(), format!("this is not TOML: {}", e.message()), help)
        })?;
        let whole = Value::Table(table);
        check_depth(&whole).map_err(|e| Failure::in_text(name, text, None, e.to_string(), &e.help))?;
        let Value::Table(mut table) = whole else { unreachable!("just made") };
        super::presets::expand(&mut table);
        Ok(Self { name: name.to_string(), text: text.to_string(), table, origins: Vec::new() })
    }

    /// An experiment that options of the command line come to, rather than a file.
    pub fn from_flags(mut table: Table, origins: Vec<Origin>) -> Self {
        super::presets::expand(&mut table);
        Self { name: String::new(), text: String::new(), table, origins }
    }

    /// Applies `key=value` as `--set` gives it; the value is TOML, or else a string.
    ///
    /// # Errors
    /// When there is no `=`, or the key names no table of the file.
    pub fn set_text(&mut self, assignment: &str) -> Result<(), Failure> {
        self.set_flag(assignment, format!("--set {}", quoted(assignment)))
    }

    /// As [`Document::set_text`], for an option `flag` that stands for the assignment.
    ///
    /// # Errors
    /// As [`Document::set_text`].
    pub fn set_flag(&mut self, assignment: &str, flag: String) -> Result<(), Failure> {
        const FORM: &str = "--set KEY=VALUE with a dotted key, such as method.FedLSA.step_size=0.01";
        let Some((key, value)) = split_assignment(assignment) else {
            return Err(BadInput::new("--set", format!("`{}` has no `=`", quoted(assignment)), FORM).into());
        };
        if key.split('.').next().is_some_and(|first| first.trim() == "quick") {
            let what = format!("`{}` is a quick setting", quoted(assignment));
            return Err(BadInput::new("--set", what, "the key itself, which applies with --quick too").into());
        }
        let value = value_of(value).map_err(|e| BadInput { key: "--set".into(), ..e })?;
        let help = |help: String| if help.is_empty() { FORM.to_string() } else { help };
        let set = set(&mut self.table, key, &value).map_err(|e| BadInput::new("--set", e.to_string(), help(e.help)))?;
        self.origins.extend(set.into_iter().map(|key| Origin { key, from: From::Flag(flag.clone()) }));
        Ok(())
    }

    /// Adds a `[[sweep]]` that `key=v1,v2` gives; each value is TOML, or else a string.
    ///
    /// # Errors
    /// When there is no `=` or no value, or `sweep` is no list of the file.
    pub fn add_sweep(&mut self, assignment: &str) -> Result<(), Failure> {
        const FORM: &str = "--sweep KEY=V1,V2 with a dotted key, such as method.FedLSA.step_size=0.01,0.1";
        let bad = |what: String| Failure::from(BadInput::new("--sweep", what, FORM));
        let Some((key, values)) = split_assignment(assignment) else { return Err(bad(format!("`{}` has no `=`", quoted(assignment)))) };
        let values: Vec<&str> = split_outside(values, ',').into_iter().map(str::trim).collect();
        if key.is_empty() || values.contains(&"") {
            return Err(bad(format!("`{}` lacks {}", quoted(assignment), if key.is_empty() { "a key" } else { "a value" })));
        }
        let values: Result<Vec<Value>, BadInput> = values.into_iter().map(value_of).collect();
        let values = values.map_err(|e| BadInput { key: "--sweep".into(), ..e })?;
        let sweep = [("key", Value::String(key.to_string())), ("values", Value::Array(values))];
        let sweep = Value::Table(sweep.into_iter().map(|(key, value)| (key.to_string(), value)).collect());
        let sweeps = self.table.entry("sweep").or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(sweeps) = sweeps else { return Err(bad(format!("the file's sweep is {}, not a list", super::short(sweeps)))) };
        sweeps.push(sweep);
        let key = format!("sweep[{}]", sweeps.len() - 1);
        self.origins.push(Origin { key, from: From::Flag(format!("--sweep {}", quoted(assignment))) });
        Ok(())
    }

    /// The `[quick]` table applied: each of its entries is a dotted key and a value.
    ///
    /// # Errors
    /// When a key names no table of the file.
    pub fn make_quick(&mut self) -> Result<(), Failure> {
        let quick = match self.table.remove("quick") {
            None => return Ok(()),
            Some(Value::Table(quick)) => quick,
            Some(other) => {
                let e = BadInput::new(
                    "quick",
                    format!("{} is not a table", super::short(&other)),
                    "[quick] with dotted keys: \"run.rounds\" = 10",
                );
                return Err(self.failure(e));
            }
        };
        if quick.is_empty() {
            return Err(self.failure(BadInput::new(
                "quick",
                "an empty table sets nothing",
                "[quick] with dotted keys: \"run.rounds\" = 10",
            )));
        }
        let all = assignments(&quick, "quick").map_err(|e| self.failure(e))?;
        let mut seen: Vec<(String, String)> = Vec::new();
        for Assignment { key, value, place } in all {
            if segments(&key).first() == Some(&Segment::Name("quick".into())) {
                let what = format!("`{}` is a quick setting of quick settings", quoted(&place));
                return Err(self.failure(BadInput::new(place, what, "keys of the other tables")));
            }
            let set = set(&mut self.table, &key, &value).map_err(|e| self.failure(BadInput { key: place.clone(), ..e }))?;
            if let Some((_, other)) = seen.iter().find(|(key, _)| set.contains(key)) {
                let what = format!("`{}` sets what `{}` sets too", quoted(&place), quoted(other));
                return Err(self.failure(BadInput::new(place, what, "each key once")));
            }
            seen.extend(set.iter().map(|key| (key.clone(), place.clone())));
            self.origins.extend(set.into_iter().map(|key| Origin { key, from: From::Place(place.clone()) }));
        }
        Ok(())
    }

    /// An error about a key of this file, shown at its line, or with the option that set it.
    pub fn failure(&self, e: BadInput) -> Failure {
        self.failure_at(e, &[])
    }

    /// As [`Document::failure`] for a sweep point, whose values come from `origins` too.
    pub fn failure_at(&self, e: BadInput, origins: &[Origin]) -> Failure {
        let mut place = e.key.clone();
        let mut origin = self.origins.iter().chain(origins).rfind(|origin| origin.decides(&place));
        // What stands at a place may have been set by an option or by a quick setting in turn.
        for _ in 0..4 {
            let Some(Origin { key, from }) = origin else { break };
            match from {
                From::Flag(flag) => return Failure::from(BadInput::new("", format!("{e} (set by {flag})"), e.help)),
                // The rest of the key lies inside the value that was set.
                From::Place(from) => place = format!("{from}{}", &place[key.len()..]),
            }
            origin = self.origins.iter().rfind(|origin| origin.decides(&place));
        }
        Failure::in_text(&self.name, &self.text, self.span(&place), e.to_string(), &e.help)
    }

    /// Where a dotted key such as `method[1].step_size` stands: the key itself, or
    /// the nearest table around it.
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

/// A place in the tree of a text.
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

    /// What a segment of a key leads to, and where that stands.
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

/// One part of a dotted key.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Segment {
    Name(String),
    Index(usize),
}

/// The parts of a key: names separated by dots, quoted where they hold dots
/// themselves, each with indices or without.
pub(super) fn segments(key: &str) -> Vec<Segment> {
    let mut out = Vec::new();
    for part in split_outside_quotes(key, '.') {
        let is_quoted = part.starts_with('"') || part.starts_with('\'');
        let (name, indices) = if is_quoted { (part, "") } else { part.split_at(part.find('[').unwrap_or(part.len())) };
        if !name.is_empty() {
            out.push(Segment::Name(unquoted(name).to_string()));
        }
        out.extend(indices.split('[').filter_map(|i| Some(Segment::Index(i.strip_suffix(']')?.parse().ok()?))));
    }
    out
}

/// A value as TOML, or else the text itself.
///
/// # Errors
/// When lists and tables are nested too deep.
fn value_of(text: &str) -> Result<Value, BadInput> {
    let text_of = format!("x = {text}");
    if too_deep(&text_of).is_some() {
        return Err(BadInput::new("", DEEP, DEEP_HELP));
    }
    let parsed = text_of.parse::<Table>().ok().filter(|t| t.len() == 1).and_then(|mut t| t.remove("x"));
    let value = parsed.unwrap_or_else(|| Value::String(text.to_string()));
    check_depth(&value).map(|()| value)
}

/// The deepest nesting of lists and tables. What parses, walks and drops a tree must not run out of stack.
const MAX_DEPTH: usize = 64;
const DEEP: &str = "lists and tables are more than 64 deep";
const DEEP_HELP: &str = "at most 64 lists and tables within each other";

/// # Errors
/// When lists and tables are nested too deep.
fn check_depth(value: &Value) -> Result<(), BadInput> {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(BadInput::new("", DEEP, DEEP_HELP));
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Table(table) => open.extend(table.iter().map(|(_, item)| (item, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// Where a text nests too deep to be parsed: each bracket is a level, and so is each dot of a key.
/// The parser counts brackets and the parts of keys, but not their product, and recurses.
fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // The levels that open brackets added, and the dots since the last bracket, comma or line.
    let (mut open, mut depth, mut dots) = (Vec::new(), 0, 0);
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            quote @ (b'"' | b'\'') => {
                let triple = bytes[i..].starts_with(&[quote; 3]);
                let end: &[u8] = if triple { &[quote; 3] } else { &[quote] };
                i += end.len();
                while i < bytes.len() && !bytes[i..].starts_with(end) && (triple || bytes[i] != b'\n') {
                    i += if bytes[i] == b'\\' && quote == b'"' { 2 } else { 1 };
                }
                i += end.len();
                continue;
            }
            b'#' => {
                i += bytes[i..].iter().position(|b| *b == b'\n').unwrap_or(bytes.len() - i);
                continue;
            }
            b'[' | b'{' => {
                open.push(dots + 1);
                depth += dots + 1;
                dots = 0;
            }
            b']' | b'}' => {
                depth -= open.pop().unwrap_or(0);
                dots = 0;
            }
            b',' | b'\n' => dots = 0,
            b'.' => dots += 1,
            _ => {}
        }
        if depth + dots > MAX_DEPTH {
            return Some(i);
        }
        i += 1;
    }
    None
}

/// `text` split at every `at` that is outside of quotes, brackets and braces.
fn split_outside(text: &str, at: char) -> Vec<&str> {
    let (mut quote, mut depth, mut escaped, mut start) = (None, 0_usize, false, 0);
    let mut out = Vec::new();
    for (i, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, c) if c == at && depth == 0 => {
                out.push(&text[start..i]);
                start = i + c.len_utf8();
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

/// `text` split at every `at` that is not inside quotes.
fn split_outside_quotes(text: &str, at: char) -> Vec<&str> {
    let mut quote = None;
    let mut out = Vec::new();
    let mut start = 0;
    for (i, c) in text.char_indices() {
        match quote {
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == at => {
                out.push(&text[start..i]);
                start = i + c.len_utf8();
            }
            Some(open) if c == open => quote = None,
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

fn unquoted(name: &str) -> &str {
    let inner = |quote| name.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(name)
}

/// The key and the value of `key=value`; quoted parts of the key may hold `=`.
fn split_assignment(text: &str) -> Option<(&str, &str)> {
    let key = *split_outside_quotes(text, '=').first()?;
    let value = text[key.len()..].strip_prefix('=')?;
    Some((key.trim(), value.trim()))
}

/// One entry of `[quick]` or of a variant's `set`.
pub struct Assignment {
    /// The dotted key that it sets.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Where it stands in the file.
    pub place: String,
}

/// The tables that an assignment may be nested in: `run.rounds = 10` without quotes
/// means the same as with quotes, not a new `[run]`.
const SECTIONS: &[&str] = &["problem", "sampling", "method", "run", "figure", "variant", "sweep", "check"];

/// The entries of a table of assignments that stands at `place`.
///
/// # Errors
/// When one of its tables is empty, and so sets nothing.
pub fn assignments(table: &Table, place: &str) -> Result<Vec<Assignment>, BadInput> {
    let quote = |name: &str| if name.contains(['.', '[', '=']) { format!("\"{name}\"") } else { name.to_string() };
    let filled = |table: &Table, place: &str| match table.is_empty() {
        true => Err(BadInput::new(place, "an empty table sets nothing", "dotted keys and values, such as rounds = 10")),
        false => Ok(()),
    };
    let mut out = Vec::new();
    for (key, value) in table {
        let place = format!("{place}.{}", quote(key));
        match value {
            // A table with a kind is a new one.
            Value::Table(inner) if SECTIONS.contains(&key.as_str()) && !inner.contains_key("kind") => {
                filled(inner, &place)?;
                for (name, value) in inner {
                    let (key, place) = (format!("{key}.{}", quote(name)), format!("{place}.{}", quote(name)));
                    match value {
                        Value::Table(inner) if key.starts_with("method.") => {
                            filled(inner, &place)?;
                            out.extend(inner.iter().map(|(name, value)| Assignment {
                                key: format!("{key}.{}", quote(name)),
                                value: value.clone(),
                                place: format!("{place}.{}", quote(name)),
                            }));
                        }
                        _ => out.push(Assignment { key, value: value.clone(), place }),
                    }
                }
            }
            _ => out.push(Assignment { key: key.clone(), value: value.clone(), place }),
        }
    }
    Ok(out)
}

/// The most parts of a dotted key: far more than any key of an experiment has.
const MAX_PARTS: usize = 32;

/// The parts of a dotted key that is to be set to `value`.
///
/// # Errors
/// When one is empty, there are too many, or the value is a preset.
pub(super) fn parts<'k>(key: &'k str, value: &Value) -> Result<Vec<&'k str>, BadInput> {
    let parts: Vec<&str> = split_outside_quotes(key, '.').into_iter().map(unquoted).collect();
    if parts.len() > MAX_PARTS {
        let what = format!("`{}` is a key of {} parts", quoted(key), parts.len());
        return Err(BadInput::new("", what, format!("a dotted key of at most {MAX_PARTS} parts, such as run.rounds")));
    }
    if parts.iter().any(|p| p.trim().is_empty()) {
        return Err(BadInput::new(quoted(key), "an empty part in a dotted key", "a key such as run.rounds"));
    }
    if let (["method", .., "kind"], Some(name)) = (&parts[..], value.as_str())
        && fedsa::presets::find(name).is_some()
    {
        let what = format!("`{name}` is a method with its link, and only a [[method]] can say it");
        return Err(BadInput::new(quoted(key), what, "a [[method]] of this kind beside the other"));
    }
    Ok(parts)
}

/// Sets a dotted key of a tree; gives the keys that were set, with indices. `method.<label>.key`
/// reaches into the method of that label (or kind), `method.*.key` into all; other arrays take an index.
///
/// # Errors
/// When a part of the key names nothing that can be entered.
pub fn set(table: &mut Table, key: &str, value: &Value) -> Result<Vec<String>, BadInput> {
    let parts = parts(key, value)?;
    let mut done = Vec::new();
    set_parts(table, &parts, String::new(), value, &mut done)?;
    Ok(done)
}

/// The path of an entry called `name` of the table that `path` leads to.
pub(super) fn joined_path(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    if name.contains('.') { format!("{path}{dot}\"{name}\"") } else { format!("{path}{dot}{name}") }
}

/// Sets `parts` below the table that `path` leads to.
fn set_parts(table: &mut Table, parts: &[&str], path: String, value: &Value, done: &mut Vec<String>) -> Result<(), BadInput> {
    let [name, rest @ ..] = parts else { return Ok(()) };
    let path = joined_path(&path, name);
    if rest.is_empty() {
        table.insert((*name).to_string(), value.clone());
        done.push(path);
        return Ok(());
    }
    let inner = table.entry(*name).or_insert_with(|| Value::Table(Table::new()));
    set_inside(inner, name, rest, path, value, done)
}

/// Sets `rest` below the value called `name` that `path` leads to.
pub(super) fn set_inside(
    inner: &mut Value,
    name: &str,
    rest: &[&str],
    path: String,
    value: &Value,
    done: &mut Vec<String>,
) -> Result<(), BadInput> {
    match inner {
        Value::Table(inner) => set_parts(inner, rest, path, value, done),
        Value::Array(items) => set_items(items, name, rest, path, value, done),
        other => {
            let what = format!("{} is not a table", super::short(other));
            Err(BadInput::new(path, what, format!("{name}=VALUE, or a key within a table")))
        }
    }
}

/// An item of a list, which may be shared with other lists.
pub(super) trait ListItem {
    fn value(&self) -> &Value;
    fn value_mut(&mut self) -> &mut Value;
}

impl ListItem for Value {
    fn value(&self) -> &Value {
        self
    }
    fn value_mut(&mut self) -> &mut Value {
        self
    }
}

impl ListItem for Arc<Value> {
    fn value(&self) -> &Value {
        self
    }
    fn value_mut(&mut self) -> &mut Value {
        Arc::make_mut(self)
    }
}

/// Sets `rest` in those items of the list called `name` that its first part names.
pub(super) fn set_items<I: ListItem>(
    items: &mut [I],
    name: &str,
    rest: &[&str],
    path: String,
    value: &Value,
    done: &mut Vec<String>,
) -> Result<(), BadInput> {
    let [which, rest @ ..] = rest else { return Ok(()) };
    let index = which.parse::<usize>().ok();
    let mut found = false;
    for (i, item) in items.iter_mut().enumerate() {
        let matches = *which == "*" || index == Some(i) || item_name(item.value()).is_some_and(|own| own == *which);
        if !matches || !item.value().is_table() {
            continue;
        }
        found = true;
        if rest.is_empty() {
            return Err(BadInput::new(path, format!("`{}` is a whole table", quoted(which)), "a key within it"));
        }
        let Value::Table(inner) = item.value_mut() else { continue };
        set_parts(inner, rest, format!("{path}[{i}]"), value, done)?;
    }
    if found {
        return Ok(());
    }
    let names = items.iter().enumerate().take(MAX_NAMES).map(|(i, item)| item_name(item.value()).map_or(i.to_string(), quoted));
    let mut names: Vec<String> = names.collect();
    if items.len() > MAX_NAMES {
        names.push("..".into());
    }
    Err(BadInput::new("", format!("there is no {name} `{}`", quoted(which)), format!("one of {}, or *", names.join(", "))))
}

/// The most items of a list that a message names.
const MAX_NAMES: usize = 20;

/// What a dotted key calls an item of an array of tables: its label, else its kind; without either, its index.
fn item_name(item: &Value) -> Option<&str> {
    let text = |key| item.get(key).and_then(Value::as_str);
    text("label").or_else(|| text("kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &[&str]) -> Vec<Segment> {
        keys.iter().map(|k| k.parse().map_or_else(|_| Segment::Name(k.to_string()), Segment::Index)).collect()
    }

    #[test]
    fn keys_are_taken_apart() {
        assert_eq!(segments("method[1].step_size"), names(&["method", "1", "step_size"]));
        assert_eq!(segments("quick.\"run.rounds\""), names(&["quick", "run.rounds"]));
        assert_eq!(segments("sweep[0].values[2][1]"), names(&["sweep", "0", "values", "2", "1"]));
        assert_eq!(segments(""), names(&[]));
        assert_eq!(split_assignment("a.'b=c'.d = 3=4"), Some(("a.'b=c'.d", "3=4")));
        assert_eq!(split_assignment("a.b"), None);
        assert_eq!(split_outside("1, [2, 3],{a=\"x,\\\",y\"},'p,q',z", ','), ["1", " [2, 3]", "{a=\"x,\\\",y\"}", "'p,q'", "z"]);
    }

    #[test]
    fn depth_is_seen_before_anything_is_parsed() {
        for text in [
            "a.b.c = { d.e = [1.5, 2.5], f = [[[]]] }\n".repeat(1000),
            format!("x = \"{}\"", "[".repeat(1000)),
            format!("x = \"\\\"{}\"", "{".repeat(1000)),
            format!("x = '{}'\ny = 1 # {}\n", ".".repeat(1000), "[".repeat(1000)),
            format!("x = \"\"\"\n{}\n\"\"\"\ny = '''{}'''", "[".repeat(1000), "{\n".repeat(1000)),
            format!("x = [{}]", "1.5,\n".repeat(1000)),
            "[a.b]\n[[a.c]]\n".repeat(1000),
        ] {
            assert_eq!(too_deep(&text), None, "{:.80}", text);
        }
        let key = vec!["a"; 20].join(".");
        for (text, at) in [
            (format!("x = {}", "[".repeat(100)), 68),
            (format!("{} = 1", vec!["a"; 100].join(".")), 129),
            (format!("x = {}", format!("{{ {key} = ").repeat(4)), 145),
        ] {
            assert_eq!(too_deep(&text), Some(at), "{text}");
        }
    }

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
    fn assignments_without_quotes_mean_the_same() {
        let text = "\"run.rounds\" = 1\nrun.seeds = 2\nmethod.A.step_size = 3\nproblem = { kind = \"mrp\", agents = 4 }";
        let all = assignments(&text.parse().unwrap(), "quick").unwrap();
        assert!(assignments(&"run = {}".parse().unwrap(), "quick").is_err());
        let keys: Vec<(&str, &str)> = all.iter().map(|a| (a.key.as_str(), a.place.as_str())).collect();
        assert_eq!(
            keys,
            [
                ("run.rounds", "quick.\"run.rounds\""),
                ("run.seeds", "quick.run.seeds"),
                ("method.A.step_size", "quick.method.A.step_size"),
                ("problem", "quick.problem"),
            ]
        );
    }

    #[test]
    fn what_is_set_is_known_by_its_index() {
        let mut table: Table = "[[method]]\nkind = \"a\"\n[[method]]\nlabel = \"b.c\"\n".parse().unwrap();
        assert_eq!(set(&mut table, "method.*.x", &Value::Integer(1)).unwrap(), ["method[0].x", "method[1].x"]);
        assert_eq!(set(&mut table, "method.\"b.c\".x", &Value::Integer(2)).unwrap(), ["method[1].x"]);
        assert_eq!(set(&mut table, "run.stop.mse", &Value::Integer(2)).unwrap(), ["run.stop.mse"]);
        assert!(set(&mut table, "method.d.x", &Value::Integer(2)).unwrap_err().help.contains("a, b.c"));
        let origin = |key: &str| Origin { key: key.into(), from: From::Flag(String::new()) };
        assert!(origin("run").decides("run.rounds") && origin("method[1].x").decides("method[1].x[3]"));
        assert!(!origin("run.round").decides("run.rounds") && !origin("method[1].x").decides("method[0].x"));
    }
}
