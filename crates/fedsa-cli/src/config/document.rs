//! The text of an experiment file, its overrides, and where its keys stand.

use fedsa::error::BadInput;
use toml::{Table, Value};

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
    /// Dotted keys that overrides set.
    overridden: Vec<String>,
}

impl Document {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// When it is not TOML; the message shows the line.
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let table = text.parse::<Table>().map_err(|e| {
            let help = "a TOML file with [problem], [[method]] and [run]";
            Failure::in_text(name, text, e.span(), e.message().to_string(), help)
        })?;
        Ok(Self { name: name.to_string(), text: text.to_string(), table, overridden: Vec::new() })
    }

    /// Applies `key=value` as `--set` gives it; the value is TOML, or else a string.
    ///
    /// # Errors
    /// When there is no `=`, or the key names no table of the file.
    pub fn set_text(&mut self, assignment: &str) -> Result<(), Failure> {
        let bad =
            |what: String| Failure::from(BadInput::new("--set", what, "--set dotted.key=value, such as method.FedLSA.step_size=0.01"));
        let (key, value) = assignment.split_once('=').ok_or_else(|| bad(format!("`{assignment}` has no `=`")))?;
        let (key, value) = (key.trim(), value.trim());
        let parsed = format!("x = {value}").parse::<Table>().ok().and_then(|mut t| t.remove("x"));
        let value = parsed.unwrap_or_else(|| Value::String(value.to_string()));
        set(&mut self.table, key, value).map_err(|e| bad(e.to_string()))?;
        self.overridden.push(key.to_string());
        Ok(())
    }

    /// The `[quick]` table applied: each of its entries is a dotted key and a value.
    ///
    /// # Errors
    /// When a key names no table of the file.
    pub fn make_quick(&mut self) -> Result<(), Failure> {
        let Some(Value::Table(quick)) = self.table.get("quick").cloned() else { return Ok(()) };
        for (key, value) in quick {
            set(&mut self.table, &key, value).map_err(|e| self.failure(e.inside("quick")))?;
        }
        Ok(())
    }

    /// An error about a key of this file, shown at its line.
    pub fn failure(&self, e: BadInput) -> Failure {
        if let Some(key) = self.overridden.iter().find(|key| related(key, &e.key)) {
            let what = format!("{e} (set by --set {key})");
            return Failure::from(BadInput::new("", what, e.help));
        }
        let span = self.span(&e.key);
        let what = if span.is_some() { format!("{}: {}", e.key, e.what) } else { e.to_string() };
        Failure::in_text(&self.name, &self.text, span, what, &e.help)
    }

    /// Where a dotted key such as `method[1].step_size` stands: the key itself, or
    /// the nearest table around it.
    fn span(&self, key: &str) -> Option<std::ops::Range<usize>> {
        use toml_edit::{Document as Spanned, Item};
        let document = Spanned::parse(self.text.as_str()).ok()?;
        let mut item: &Item = document.as_item();
        let mut best = None;
        for segment in segments(key) {
            let (span, next) = match &segment {
                Segment::Name(name) => {
                    let table = item.as_table_like()?;
                    let Some((key, next)) = table.get_key_value(name) else { return best };
                    (key.span().or_else(|| next.span()), next)
                }
                Segment::Index(i) => match item {
                    Item::ArrayOfTables(tables) => {
                        let Some(table) = tables.get(*i) else { return best };
                        best = table.span().or(best);
                        let rest = key.split_once(&format!("[{i}]")).map_or("", |(_, rest)| rest.trim_start_matches('.'));
                        return span_in(table, rest).or(best);
                    }
                    _ => return best,
                },
            };
            best = span.or(best);
            item = next;
        }
        best
    }
}

/// Where a dotted key stands below a table.
fn span_in(table: &dyn toml_edit::TableLike, key: &str) -> Option<std::ops::Range<usize>> {
    let mut best = None;
    let mut table = Some(table);
    for segment in segments(key) {
        let Segment::Name(name) = segment else { return best };
        let Some((key, next)) = table.and_then(|t| t.get_key_value(&name)) else { return best };
        best = key.span().or_else(|| next.span()).or(best);
        table = next.as_table_like();
    }
    best
}

/// Whether an override of `set` can be at fault for an error at `at`.
fn related(set: &str, at: &str) -> bool {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
    !at.is_empty() && last(set) == last(at)
}

enum Segment {
    Name(String),
    Index(usize),
}

fn segments(key: &str) -> Vec<Segment> {
    let mut out = Vec::new();
    for part in key.split('.').filter(|p| !p.is_empty()) {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
            None => (part, None),
        };
        if !name.is_empty() {
            out.push(Segment::Name(name.to_string()));
        }
        out.extend(index.map(Segment::Index));
    }
    out
}

/// Sets a dotted key of a tree. `method.<label>.key` reaches into the method of
/// that label (or kind), `method.*.key` into all; other arrays take an index.
///
/// # Errors
/// When a part of the key names nothing that can be entered.
pub fn set(table: &mut Table, key: &str, value: Value) -> Result<(), BadInput> {
    let parts: Vec<&str> = key.split('.').collect();
    if parts.iter().any(|p| p.is_empty()) {
        return Err(BadInput::new(key, "an empty part in a dotted key", "a key such as run.rounds"));
    }
    set_parts(table, &parts, key, value)
}

fn set_parts(table: &mut Table, parts: &[&str], key: &str, value: Value) -> Result<(), BadInput> {
    let [name, rest @ ..] = parts else { return Ok(()) };
    if rest.is_empty() {
        table.insert((*name).to_string(), value);
        return Ok(());
    }
    match table.entry(*name).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) => set_parts(inner, rest, key, value),
        Value::Array(items) => {
            let [which, rest @ ..] = rest else { return Ok(()) };
            let names: Vec<String> = items.iter().enumerate().map(|(i, item)| item_name(i, item)).collect();
            let mut found = false;
            for (i, item) in items.iter_mut().enumerate() {
                let matches = *which == "*" || *which == names[i] || which.parse() == Ok(i);
                if let (true, Value::Table(inner)) = (matches, item) {
                    found = true;
                    if rest.is_empty() {
                        return Err(BadInput::new(key, "names a whole table", "a key within it"));
                    }
                    set_parts(inner, rest, key, value.clone())?;
                }
            }
            match found {
                true => Ok(()),
                false => Err(BadInput::new(key, format!("there is no {name} `{which}`"), format!("one of {}, or *", names.join(", ")))),
            }
        }
        _ => Err(BadInput::new(key, format!("`{name}` is not a table"), "a key within a table")),
    }
}

/// What a dotted key calls an item of an array of tables: its label, its kind or its index.
fn item_name(i: usize, item: &Value) -> String {
    let text = |key| item.get(key).and_then(Value::as_str).map(str::to_string);
    text("label").or_else(|| text("kind")).unwrap_or_else(|| i.to_string())
}
