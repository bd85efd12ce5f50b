//! Reads experiment files into typed settings; every error has its line.

pub mod alone;
pub mod document;
mod dotted;
mod experiment;
pub mod json_schema;
pub mod link;
mod presets;
pub mod reader;
pub mod schema;
mod schema_parts;
pub mod sections;
mod shaped_keys;
pub mod sweep;
pub mod validate;

use std::borrow::Borrow;

use fedsa::error::{Error, ErrorCode, Result, quoted};
use fedsa::registry::Kind;
pub use fedsa::settings::nearest;
use fedsa::settings::{self, did_you_mean};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

pub use document::{Document, Origin};
pub use experiment::Experiment;
pub use reader::{MethodSpec, PointReader};
pub use schema::{Check, FederationSpec, FigureSpec, RunSpec, StartSpec};
pub use sweep::SweepPoint;

/// A TOML value as a tree of settings.
pub fn tree(value: &Value) -> settings::Value {
    use settings::Value as Tree;
    match value {
        Value::Boolean(yes) => Tree::Bool(*yes),
        Value::Integer(i) => Tree::Integer(*i),
        Value::Float(x) => Tree::Float(*x),
        Value::String(text) => Tree::Text(text.clone()),
        Value::Datetime(date) => Tree::Date(date.to_string()),
        Value::Array(items) => Tree::List(items.iter().map(tree).collect()),
        Value::Table(table) => tree_of(table),
    }
}

fn tree_of(table: &Table) -> settings::Value {
    settings::Value::table(table.iter().map(|(key, value)| (key.as_str(), tree(value))))
}

/// Reads a typed value from a TOML value; errors carry the dotted key and, for an
/// unknown key, the nearest valid one.
///
/// # Errors
/// When a key is unknown, missing or of the wrong type.
pub fn read<T: DeserializeOwned>(value: impl Borrow<Value>) -> Result<T> {
    settings::read(&tree(value.borrow()))
}

/// As [`read`].
fn read_table<T: DeserializeOwned>(table: &Table) -> Result<T> {
    settings::read(&tree_of(table))
}

/// As [`read`], for a table that may differ between points: for a list in place of a value, the help proposes `[[sweep]]`.
///
/// # Errors
/// As [`read`].
pub fn read_swept<T: DeserializeOwned>(value: &Value) -> Result<T> {
    read(value).map_err(|e| with_sweep(|key| place(value, key), e))
}

/// Adds to the help for a list in place of a value how to vary a value.
fn with_sweep<'v>(given: impl Fn(&str) -> Option<&'v Value>, mut e: Error) -> Error {
    if e.code() == ErrorCode::WrongType && matches!(given(&e.key), Some(Value::Array(_))) {
        e.help += "; to run several values, a [[sweep]] with key = .. and values = [..]";
    }
    e
}

/// Reads the settings of a kind from a table that holds its keys (without `kind`).
///
/// # Errors
/// As [`read`].
pub fn read_kind<T: ?Sized>(kind: &Kind<T>, table: &Table) -> Result<Box<T>> {
    (kind.read)(&tree_of(table)).map_err(|e| with_sweep(|key| place_in(table, key), e))
}

/// Whether the settings of a kind have this key.
pub fn takes<T: ?Sized>(kind: &Kind<T>, key: &str) -> bool {
    let given = settings::Value::table([(key, settings::Value::Integer(1))]);
    !(kind.read)(&given).is_err_and(|e| settings::is_unknown(&e, key))
}

/// Finds a kind by name.
///
/// # Errors
/// When there is no such kind; the message names the nearest one.
pub fn find_kind<'k, T: ?Sized>(kinds: &'k [Kind<T>], table: &mut Table, what: &str) -> Result<&'k Kind<T>> {
    let names = || kinds.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
    let Some(kind) = table.remove("kind") else {
        return Err(Error::new("kind", format!("the {what} has no kind"), format!("kind = one of {}", names())).coded(ErrorCode::NoKind));
    };
    let Value::String(name) = &kind else {
        let e = Error::new("kind", format!("{} is not a name", short(&kind)), format!("one of {}", names()));
        return Err(e.coded(ErrorCode::WrongType).valued(short(&kind)));
    };
    kinds.iter().find(|k| k.is_called(name)).ok_or_else(|| {
        let near = nearest(name, kinds.iter().flat_map(|k| std::iter::once(k.name).chain(k.aliases.iter().copied())));
        let what = format!("there is no {what} `{}`{}", quoted(name), did_you_mean(near));
        Error::new("kind", what, format!("one of {}", names())).coded(ErrorCode::UnknownName).valued(quoted(name))
    })
}

/// A value as text, shortened for a message.
pub fn short(value: &Value) -> String {
    cut(value, 60)
}

/// A value as TOML text of at most `most` characters, with control characters escaped. `..` replaces what does not fit, and open brackets
/// are closed. Very small and very large numbers have an exponent.
pub fn cut(value: &Value, most: usize) -> String {
    tree(value).cut(most)
}

/// The value that a dotted key leads to.
fn place<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    follow(value, &dotted::segments(path))
}

/// As [`place`], in a table.
pub(crate) fn place_in<'v>(table: &'v Table, path: &str) -> Option<&'v Value> {
    match &dotted::segments(path)[..] {
        [dotted::Segment::Name(name), rest @ ..] => follow(table.get(name)?, rest),
        _ => None,
    }
}

fn follow<'v>(value: &'v Value, path: &[dotted::Segment]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        dotted::Segment::Name(name) => value.get(name.as_str()),
        dotted::Segment::Index(i) => value.get(*i),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Swept {
        count: Option<usize>,
        pair: Option<[f64; 2]>,
        inner: Option<Box<Swept>>,
    }

    /// The help proposes sweeps only for a list in place of a value.
    #[test]
    fn a_list_in_place_of_a_value_may_be_meant_as_a_sweep() {
        for (text, key, is_list) in [
            ("count = [1, 2]", "count", true),
            ("inner = { inner = { count = [1] } }", "inner.inner.count", true),
            ("inner = [{ count = 1 }]", "inner", true),
            ("count = \"x\"", "count", false),
            ("pair = [1.0]", "pair", false),
            ("pair = [1.0, \"x\"]", "pair[1]", false),
        ] {
            let e = read_swept::<Swept>(&Value::Table(text.parse().unwrap())).unwrap_err();
            assert_eq!((e.key.as_str(), e.help.contains("[[sweep]]")), (key, is_list), "{text}: {}", e.help);
        }
    }

    #[test]
    fn a_date_is_shown_as_it_is() {
        let value = Value::Table("count = 1979-05-27".parse().unwrap());
        let e = read::<Swept>(&value).unwrap_err();
        assert_eq!((e.to_string().as_str(), e.value()), ("count: 1979-05-27 is not accepted", Some("1979-05-27")));
        assert_eq!(read::<Value>(&value).unwrap(), value, "it is kept where any value may be");
    }
}
