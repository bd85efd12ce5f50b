//! From the text of an experiment file to typed settings, every error at its line.

pub mod document;
pub mod schema;

use fedsa::error::{BadInput, Result};
use fedsa::registry::Kind;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

pub use document::Document;
pub use schema::{Check, Experiment, Figure, Link, MethodSpec, Point, RunSpec, Start};

/// Reads a typed value from a tree; errors carry the dotted key and, for an
/// unknown key, the nearest valid one.
///
/// # Errors
/// When a key is unknown, missing or of the wrong type.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let path = e.path().to_string();
        explained(if path == "." { "" } else { &path }, e.inner().message())
    })
}

/// Reads the settings of a kind from a table that holds its keys (without `kind`).
///
/// # Errors
/// As [`read`].
pub fn read_kind<T: ?Sized>(kind: &Kind<T>, table: Table) -> Result<Box<T>> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(Value::Table(table), &mut track);
    let mut erased = <dyn erased_serde::Deserializer<'_>>::erase(tracked);
    let outcome = (kind.read)(&mut erased);
    drop(erased);
    outcome.map_err(|e| {
        let path = track.path().to_string();
        explained(if path == "." { "" } else { &path }, &e.to_string())
    })
}

/// Finds a kind by name.
///
/// # Errors
/// When there is none; names the nearest.
pub fn find_kind<'k, T: ?Sized>(kinds: &'k [Kind<T>], table: &mut Table, what: &str) -> Result<&'k Kind<T>> {
    let names = || kinds.iter().map(|k| k.name).collect::<Vec<_>>().join(", ");
    let Some(kind) = table.remove("kind") else {
        return Err(BadInput::new("kind", format!("the {what} has no kind"), format!("kind = one of {}", names())));
    };
    let Value::String(name) = &kind else {
        return Err(BadInput::new("kind", format!("{kind} is not a name"), format!("one of {}", names())));
    };
    kinds.iter().find(|k| k.is_called(name)).ok_or_else(|| {
        let near = nearest(name, kinds.iter().flat_map(|k| std::iter::once(k.name).chain(k.aliases.iter().copied())));
        BadInput::new("kind", format!("there is no {what} `{name}`{}", did_you_mean(near)), format!("one of {}", names()))
    })
}

/// The candidate nearest to a name, if one is near.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|c| (strsim::damerau_levenshtein(name, c), c))
        .filter(|(distance, c)| *distance <= 1 + c.len().max(name.len()) / 3)
        .min()
        .map(|(_, c)| c)
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

/// serde's message with the nearest valid key, and what would be accepted as help.
fn explained(path: &str, message: &str) -> BadInput {
    let message = message.trim();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if message.starts_with("unknown field") || message.starts_with("unknown variant") {
        let thing = if message.starts_with("unknown field") { "key" } else { "value" };
        let (name, accepted) = (quoted.first().copied().unwrap_or(""), quoted.get(1..).unwrap_or(&[]));
        // The path may end in the key itself or in the table around it.
        let key = match thing {
            "key" if path != name && !path.ends_with(&format!(".{name}")) => {
                [path, name].iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(".")
            }
            _ => path.to_string(),
        };
        let near = did_you_mean(nearest(name, accepted.iter().copied()));
        let help = if accepted.is_empty() { "no further keys".to_string() } else { format!("one of {}", accepted.join(", ")) };
        return BadInput::new(key, format!("unknown {thing} `{name}`{near}"), help);
    }
    if let Some(("", rest)) = message.split_once("missing field") {
        let name = rest.trim().trim_matches('`');
        return BadInput::new(path, format!("the key `{name}` is missing"), format!("{name} = ..."));
    }
    if let Some((what, help)) = message.split_once(", expected ") {
        return BadInput::new(path, what, help);
    }
    BadInput::new(path, message, "")
}
