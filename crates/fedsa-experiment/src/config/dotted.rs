//! Dotted keys such as `method.FedLSA.step_size`: parsing them, and setting values in a tree.

use std::sync::Arc;

use fedsa::error::{Error, quoted};
use toml::{Table, Value};

/// One part of a dotted key.
#[derive(Debug, Clone, PartialEq)]
pub enum Segment {
    /// A name.
    Name(String),
    /// An index of a list.
    Index(usize),
}

/// The parts of a key: names separated by dots, quoted if they contain dots, with or without indices.
pub fn segments(key: &str) -> Vec<Segment> {
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

/// `text` split at every `at` that is outside of quotes, brackets and braces.
pub fn split_outside(text: &str, at: char) -> Vec<&str> {
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
pub fn split_assignment(text: &str) -> Option<(&str, &str)> {
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
    /// Its place in the file.
    pub place: String,
}

/// The tables in which an assignment may be nested: `run.rounds = 10` without quotes means the same as with quotes, and not a new `[run]`.
const SECTIONS: &[&str] = &["problem", "sampling", "method", "run", "figure", "variant", "sweep", "check"];

/// The entries of the table of assignments at `place`.
///
/// # Errors
/// When one of its tables is empty.
pub fn assignments(table: &Table, place: &str) -> Result<Vec<Assignment>, Error> {
    let quote = |name: &str| if name.contains(['.', '[', '=']) { format!("\"{name}\"") } else { name.to_string() };
    let filled = |table: &Table, place: &str| match table.is_empty() {
        true => Err(Error::new(place, "an empty table sets nothing", "dotted keys and values, such as rounds = 10")),
        false => Ok(()),
    };
    let mut out = Vec::new();
    for (key, value) in table {
        let place = format!("{place}.{}", quote(key));
        match value {
            // A table with a kind replaces the whole table.
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

/// The largest number of parts of a dotted key.
const MAX_PARTS: usize = 32;

/// The parts of a dotted key.
///
/// # Errors
/// When a part is empty, or there are too many parts.
pub fn parts(key: &str) -> Result<Vec<&str>, Error> {
    let parts: Vec<&str> = split_outside_quotes(key, '.').into_iter().map(unquoted).collect();
    if parts.len() > MAX_PARTS {
        let what = format!("`{}` is a key of {} parts", quoted(key), parts.len());
        return Err(Error::new("", what, format!("a dotted key of at most {MAX_PARTS} parts, such as run.rounds")));
    }
    if parts.iter().any(|p| p.trim().is_empty()) {
        return Err(Error::new(quoted(key), "an empty part in a dotted key", "a key such as run.rounds"));
    }
    Ok(parts)
}

/// Sets a dotted key in a tree, and returns the keys that were set, with indices. `method.<label>.key` selects the method with this label
/// (or kind), `method.*.key` all methods; other lists take an index.
///
/// # Errors
/// When a part of the key names neither a table nor a list item.
pub fn set(table: &mut Table, key: &str, value: &Value) -> Result<Vec<String>, Error> {
    let parts = parts(key)?;
    let mut done = Vec::new();
    set_parts(table, &parts, String::new(), value, &mut done)?;
    Ok(done)
}

/// Removes a dotted key of a tree, and returns the removed keys, with indices. Keys are as for [`set`]; of several items of a list, those
/// that have the key change.
///
/// # Errors
/// When there is no such key.
pub fn unset(table: &mut Table, key: &str) -> Result<Vec<String>, Error> {
    let parts = parts(key)?;
    let (mut done, mut missing) = (Vec::new(), None);
    unset_parts(table, &parts, String::new(), &mut done, &mut missing)?;
    match missing {
        Some(e) if done.is_empty() => Err(e),
        _ => Ok(done),
    }
}

/// Removes `parts` below the table that `path` leads to, or notes the first that is `missing`.
fn unset_parts(table: &mut Table, parts: &[&str], path: String, done: &mut Vec<String>, missing: &mut Option<Error>) -> Result<(), Error> {
    let [name, rest @ ..] = parts else { return Ok(()) };
    let path = joined_path(&path, name);
    if !table.contains_key(*name) {
        missing.get_or_insert_with(|| {
            let names: Vec<&str> = table.keys().map(String::as_str).take(MAX_NAMES).collect();
            let near = super::did_you_mean(super::nearest(name, names.iter().copied()));
            let there = if names.is_empty() { "a key that is set".into() } else { format!("one of {}", names.join(", ")) };
            Error::new("", format!("{} is not set{near}", quoted(&path)), quoted(there))
        });
        return Ok(());
    }
    if rest.is_empty() {
        table.remove(*name);
        done.push(path);
        return Ok(());
    }
    match &mut table[*name] {
        Value::Table(inner) => unset_parts(inner, rest, path, done, missing),
        Value::Array(items) => {
            let [which, rest @ ..] = rest else { return Ok(()) };
            let found = items_called(items, name, which)?;
            if rest.is_empty() {
                return Err(whole_table(path, which));
            }
            for i in found {
                let Value::Table(inner) = &mut items[i] else { continue };
                unset_parts(inner, rest, format!("{path}[{i}]"), done, missing)?;
            }
            Ok(())
        }
        other => Err(Error::new(path, format!("{} is not a table", super::short(other)), "a key within a table")),
    }
}

/// The path of an entry called `name` of the table that `path` leads to.
pub fn joined_path(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    if name.contains('.') { format!("{path}{dot}\"{name}\"") } else { format!("{path}{dot}{name}") }
}

/// Sets `parts` below the table that `path` leads to.
fn set_parts(table: &mut Table, parts: &[&str], path: String, value: &Value, done: &mut Vec<String>) -> Result<(), Error> {
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
pub fn set_inside(inner: &mut Value, name: &str, rest: &[&str], path: String, value: &Value, done: &mut Vec<String>) -> Result<(), Error> {
    match inner {
        Value::Table(inner) => set_parts(inner, rest, path, value, done),
        Value::Array(items) => set_items(items, name, rest, path, value, done),
        other => {
            let what = format!("{} is not a table", super::short(other));
            Err(Error::new(path, what, format!("{name}=VALUE, or a key within a table")))
        }
    }
}

/// An item of a list; lists may share items.
pub trait ListItem {
    /// The item.
    fn value(&self) -> &Value;
    /// The item for changing; a shared item is copied first.
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

/// Sets `rest` in the items of the list `name` that the first part selects.
pub fn set_items<I: ListItem>(
    items: &mut [I],
    name: &str,
    rest: &[&str],
    path: String,
    value: &Value,
    done: &mut Vec<String>,
) -> Result<(), Error> {
    let [which, rest @ ..] = rest else { return Ok(()) };
    let found = items_called(items, name, which)?;
    if rest.is_empty() {
        return Err(whole_table(path, which));
    }
    for i in found {
        let Value::Table(inner) = items[i].value_mut() else { continue };
        set_parts(inner, rest, format!("{path}[{i}]"), value, done)?;
        if name == "method" {
            super::presets::expand_one(inner);
        }
    }
    Ok(())
}

/// The refusal of a key that ends at an item of a list.
fn whole_table(path: String, which: &str) -> Error {
    Error::new(path, format!("`{}` is a whole table", quoted(which)), "a key within it")
}

/// The tables of the list called `name` that a part of a key names, at least one.
fn items_called<I: ListItem>(items: &[I], name: &str, which: &str) -> Result<Vec<usize>, Error> {
    let index = which.parse::<usize>().ok();
    let is_called = |i: usize, item: &Value| which == "*" || index == Some(i) || item_name(item).is_some_and(|own| own == which);
    let tables = items.iter().map(ListItem::value).enumerate().filter(|(i, item)| item.is_table() && is_called(*i, item));
    let found: Vec<usize> = tables.map(|(i, _)| i).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = items.iter().enumerate().take(MAX_NAMES).map(|(i, item)| item_name(item.value()).map_or(i.to_string(), quoted));
    let mut names: Vec<String> = names.collect();
    if items.len() > MAX_NAMES {
        names.push("..".into());
    }
    Err(Error::new("", format!("there is no {name} `{}`", quoted(which)), format!("one of {}, or *", names.join(", "))))
}

/// The largest number of items that a message lists.
const MAX_NAMES: usize = 20;

/// The name of an item of an array of tables in dotted keys: its label, otherwise its kind, otherwise its index.
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
    }

    #[test]
    fn what_is_removed_is_known_by_its_index() {
        let text = "[[method]]\nkind = \"a\"\nx = 1\n[[method]]\nlabel = \"b.c\"\nx = 2\ny = 3\n[run]\nstop = { mse = 1 }\n";
        let mut table: Table = text.parse().unwrap();
        assert_eq!(unset(&mut table, "method.*.y").unwrap(), ["method[1].y"]);
        assert!(unset(&mut table, "method.*.y").is_err());
        assert_eq!(unset(&mut table, "method.*.x").unwrap(), ["method[0].x", "method[1].x"]);
        assert_eq!(unset(&mut table, "method.\"b.c\".label").unwrap(), ["method[1].label"]);
        assert!(unset(&mut table, "run.stop.mse.x").is_err() && unset(&mut table, "run.stop.msee").unwrap_err().help.contains("mse"));
        assert_eq!(unset(&mut table, "run.stop").unwrap(), ["run.stop"]);
        let left: Table = "method = [{ kind = \"a\" }, {}]\nrun = {}\n".parse().unwrap();
        assert_eq!(table, left);
    }
}
