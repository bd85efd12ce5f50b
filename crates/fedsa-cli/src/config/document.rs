//! The text of an experiment file, its overrides, and where its keys stand.

use std::ops::Range;

use fedsa::error::BadInput;
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
        let mut table = text.parse::<Table>().map_err(|e| {
            let help = "an experiment file in TOML, with [problem], [[method]] and [run]";
            Failure::in_text(name, text, e.span(), format!("this is not TOML: {}", e.message()), help)
        })?;
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
        self.set_flag(assignment, format!("--set {assignment}"))
    }

    /// As [`Document::set_text`], for an option `flag` that stands for the assignment.
    ///
    /// # Errors
    /// As [`Document::set_text`].
    pub fn set_flag(&mut self, assignment: &str, flag: String) -> Result<(), Failure> {
        const FORM: &str = "--set KEY=VALUE with a dotted key, such as method.FedLSA.step_size=0.01";
        let Some((key, value)) = split_assignment(assignment) else {
            return Err(BadInput::new("--set", format!("`{assignment}` has no `=`"), FORM).into());
        };
        let parsed = format!("x = {value}").parse::<Table>().ok().filter(|t| t.len() == 1).and_then(|mut t| t.remove("x"));
        let value = parsed.unwrap_or_else(|| Value::String(value.to_string()));
        let help = |help: String| if help.is_empty() { FORM.to_string() } else { help };
        let set = set(&mut self.table, key, value).map_err(|e| BadInput::new("--set", e.to_string(), help(e.help)))?;
        self.origins.extend(set.into_iter().map(|key| Origin { key, from: From::Flag(flag.clone()) }));
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
                let e = BadInput::new("quick", format!("{other} is not a table"), "[quick] with dotted keys: \"run.rounds\" = 10");
                return Err(self.failure(e));
            }
        };
        for Assignment { key, value, place } in assignments(&quick, "quick") {
            let set = set(&mut self.table, &key, value).map_err(|e| self.failure(BadInput { key: place.clone(), ..e }))?;
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
        let origin = self.origins.iter().chain(origins).rfind(|origin| origin.decides(&e.key));
        let place = match origin.map(|origin| &origin.from) {
            Some(From::Flag(flag)) => {
                let what = format!("{e} (set by {flag})");
                return Failure::from(BadInput::new("", what, e.help));
            }
            // The rest of the key lies inside the value that was set.
            Some(From::Place(place)) => format!("{place}{}", &e.key[origin.map_or(0, |origin| origin.key.len())..]),
            None => e.key.clone(),
        };
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
        let quoted = part.starts_with('"') || part.starts_with('\'');
        let (name, indices) = if quoted { (part, "") } else { part.split_at(part.find('[').unwrap_or(part.len())) };
        if !name.is_empty() {
            out.push(Segment::Name(unquoted(name).to_string()));
        }
        out.extend(indices.split('[').filter_map(|i| Some(Segment::Index(i.strip_suffix(']')?.parse().ok()?))));
    }
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
pub fn assignments(table: &Table, place: &str) -> Vec<Assignment> {
    let quote = |name: &str| if name.contains(['.', '[', '=']) { format!("\"{name}\"") } else { name.to_string() };
    let mut out = Vec::new();
    for (key, value) in table {
        let place = format!("{place}.{}", quote(key));
        match value {
            // A table with a kind is a new one.
            Value::Table(inner) if SECTIONS.contains(&key.as_str()) && !inner.contains_key("kind") => {
                for (name, value) in inner {
                    let (key, place) = (format!("{key}.{}", quote(name)), format!("{place}.{}", quote(name)));
                    match value {
                        Value::Table(inner) if key.starts_with("method.") => out.extend(inner.iter().map(|(name, value)| Assignment {
                            key: format!("{key}.{}", quote(name)),
                            value: value.clone(),
                            place: format!("{place}.{}", quote(name)),
                        })),
                        _ => out.push(Assignment { key, value: value.clone(), place }),
                    }
                }
            }
            _ => out.push(Assignment { key: key.clone(), value: value.clone(), place }),
        }
    }
    out
}

/// Sets a dotted key of a tree; gives the keys that were set, with indices. `method.<label>.key`
/// reaches into the method of that label (or kind), `method.*.key` into all; other arrays take an index.
///
/// # Errors
/// When a part of the key names nothing that can be entered.
pub fn set(table: &mut Table, key: &str, value: Value) -> Result<Vec<String>, BadInput> {
    let parts: Vec<&str> = split_outside_quotes(key, '.').into_iter().map(unquoted).collect();
    if parts.iter().any(|p| p.trim().is_empty()) {
        return Err(BadInput::new(key, "an empty part in a dotted key", "a key such as run.rounds"));
    }
    if let (["method", .., "kind"], Some(name)) = (&parts[..], value.as_str())
        && super::presets::PRESETS.iter().any(|preset| preset.name == name)
    {
        let what = format!("`{name}` is a method with its link, and only a [[method]] can say it");
        return Err(BadInput::new(key, what, "a [[method]] of this kind beside the other"));
    }
    let mut done = Vec::new();
    set_parts(table, &parts, String::new(), &value, &mut done)?;
    Ok(done)
}

/// Sets `parts` below the table that `path` leads to.
fn set_parts(table: &mut Table, parts: &[&str], path: String, value: &Value, done: &mut Vec<String>) -> Result<(), BadInput> {
    let [name, rest @ ..] = parts else { return Ok(()) };
    let dot = if path.is_empty() { "" } else { "." };
    let path = if name.contains('.') { format!("{path}{dot}\"{name}\"") } else { format!("{path}{dot}{name}") };
    if rest.is_empty() {
        table.insert((*name).to_string(), value.clone());
        done.push(path);
        return Ok(());
    }
    match table.entry(*name).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) => set_parts(inner, rest, path, value, done),
        Value::Array(items) => {
            let [which, rest @ ..] = rest else { return Ok(()) };
            let names: Vec<String> = items.iter().enumerate().map(|(i, item)| item_name(i, item)).collect();
            let mut found = false;
            for (i, item) in items.iter_mut().enumerate() {
                let matches = *which == "*" || *which == names[i] || which.parse() == Ok(i);
                if let (true, Value::Table(inner)) = (matches, item) {
                    found = true;
                    if rest.is_empty() {
                        return Err(BadInput::new(path, format!("`{which}` is a whole table"), "a key within it"));
                    }
                    set_parts(inner, rest, format!("{path}[{i}]"), value, done)?;
                }
            }
            match found {
                true => Ok(()),
                false => Err(BadInput::new("", format!("there is no {name} `{which}`"), format!("one of {}, or *", names.join(", ")))),
            }
        }
        other => Err(BadInput::new(path, format!("{other} is not a table"), format!("{name}=VALUE, or a key within a table"))),
    }
}

/// What a dotted key calls an item of an array of tables: its label, its kind or its index.
fn item_name(i: usize, item: &Value) -> String {
    let text = |key| item.get(key).and_then(Value::as_str).map(str::to_string);
    text("label").or_else(|| text("kind")).unwrap_or_else(|| i.to_string())
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
        let all = assignments(&text.parse().unwrap(), "quick");
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
        assert_eq!(set(&mut table, "method.*.x", Value::Integer(1)).unwrap(), ["method[0].x", "method[1].x"]);
        assert_eq!(set(&mut table, "method.\"b.c\".x", Value::Integer(2)).unwrap(), ["method[1].x"]);
        assert_eq!(set(&mut table, "run.stop.mse", Value::Integer(2)).unwrap(), ["run.stop.mse"]);
        assert!(set(&mut table, "method.d.x", Value::Integer(2)).unwrap_err().help.contains("a, b.c"));
        let origin = |key: &str| Origin { key: key.into(), from: From::Flag(String::new()) };
        assert!(origin("run").decides("run.rounds") && origin("method[1].x").decides("method[1].x[3]"));
        assert!(!origin("run.round").decides("run.rounds") && !origin("method[1].x").decides("method[0].x"));
    }
}
