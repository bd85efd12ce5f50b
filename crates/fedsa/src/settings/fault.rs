//! The reader's error.

use std::fmt::Display;

use serde::de::{Expected, Unexpected};

use super::{Value, did_you_mean, nearest};
use crate::error::{Error, ErrorCode, quoted, shown};

/// The error of [`super::Reader`], which becomes an [`Error`].
#[derive(Debug)]
pub struct ReadError(Box<Fault>);

#[derive(Debug)]
struct Fault {
    /// The key, from the table in which reading began.
    path: String,
    /// The refused value, set closest to it.
    value: Option<String>,
    what: What,
}

/// What is wrong.
#[derive(Debug)]
enum What {
    UnknownKey {
        name: String,
        accepted: &'static [&'static str],
    },
    MissingKey(&'static str),
    UnknownName {
        name: String,
        accepted: &'static [&'static str],
    },
    /// A value of another type or length; `found` is the value if serde reported one.
    Refused {
        code: ErrorCode,
        found: Option<Value>,
        accepted: String,
    },
}

impl ReadError {
    fn new(what: What) -> Self {
        Self(Box::new(Fault { path: String::new(), value: None, what }))
    }

    /// A value of another type.
    pub(super) fn wrong_type(accepted: &str) -> Self {
        Self::new(What::Refused { code: ErrorCode::WrongType, found: None, accepted: accepted.into() })
    }

    /// A list of another length.
    pub(super) fn wrong_length(accepted: String) -> Self {
        Self::new(What::Refused { code: ErrorCode::WrongLength, found: None, accepted })
    }

    /// An unknown key of a table.
    pub(super) fn unknown_key(name: &str, accepted: &'static [&'static str]) -> Self {
        Self::new(What::UnknownKey { name: name.into(), accepted })
    }

    /// The same error one table further out.
    pub(super) fn under(mut self, key: &str) -> Self {
        let name = if key.contains(['.', '[', '=']) { format!("\"{key}\"") } else { key.to_string() };
        self.prefix(name);
        self
    }

    /// The same error one list further out.
    pub(super) fn within(mut self, index: usize) -> Self {
        self.prefix(format!("[{index}]"));
        self
    }

    fn prefix(&mut self, outer: String) {
        let inner = std::mem::replace(&mut self.0.path, outer);
        append(&mut self.0.path, &inner);
    }

    /// Notes the value that was read when the error arose. Enums with a tag (`law = ..`) collect their table before they read it, so errors
    /// within it arise at the table. The entry at fault is then looked up, if only one can be meant.
    pub(super) fn seen(mut self, value: &Value) -> Self {
        let fault = &mut *self.0;
        if fault.value.is_some() || !fault.path.is_empty() {
            return self;
        }
        let is_fault: Box<dyn Fn(&Value) -> bool> = match &fault.what {
            What::UnknownKey { name, .. } if value.get(name).is_none() => Box::new(move |value: &Value| value.get(name).is_some()),
            What::UnknownName { name, .. } => Box::new(move |value: &Value| matches!(value, Value::Text(text) if text == name)),
            What::Refused { found: Some(found), .. } => Box::new(move |value: &Value| value == found),
            _ => Box::new(|_| false),
        };
        let (path, inner) = match value {
            Value::Table(_) => only(value, &is_fault).unwrap_or((String::new(), value)),
            other => (String::new(), other),
        };
        drop(is_fault);
        (fault.path, fault.value) = (path, Some(inner.cut(SHORT)));
        self
    }
}

/// The largest number of characters of a value in a message.
pub(super) const SHORT: usize = 60;

fn append(path: &mut String, inner: &str) {
    if !path.is_empty() && !inner.is_empty() && !inner.starts_with('[') {
        path.push('.');
    }
    path.push_str(inner);
}

/// The only wanted value within `value`, and its key; `None` if there are several or none.
fn only<'v>(value: &'v Value, wanted: &dyn Fn(&Value) -> bool) -> Option<(String, &'v Value)> {
    fn find<'v>(value: &'v Value, path: &str, wanted: &dyn Fn(&Value) -> bool, found: &mut Vec<(String, &'v Value)>) {
        let mut each = |name: String, inner: &'v Value| {
            let mut path = path.to_string();
            append(&mut path, &name);
            if wanted(inner) {
                found.push((path.clone(), inner));
            }
            find(inner, &path, wanted, found);
        };
        match value {
            Value::Table(entries) => entries.iter().for_each(|(name, inner)| each(name.clone(), inner)),
            Value::List(items) => items.iter().enumerate().for_each(|(i, inner)| each(format!("[{i}]"), inner)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    find(value, "", wanted, &mut found);
    if found.len() == 1 { found.pop() } else { None }
}

impl From<ReadError> for Error {
    fn from(e: ReadError) -> Self {
        let Fault { mut path, value, what } = *e.0;
        match what {
            What::UnknownKey { name, accepted } => {
                let near = did_you_mean(nearest(&name, accepted.iter().copied()));
                let help = if accepted.is_empty() { "no further keys".to_string() } else { format!("one of {}", accepted.join(", ")) };
                append(&mut path, &name);
                Error::new(path, format!("unknown key `{}`{near}", quoted(name)), help).coded(ErrorCode::UnknownKey)
            }
            What::MissingKey(name) => {
                let e = Error::missing_key(name, format!("{name} = .. in this table"));
                if path.is_empty() { e } else { e.inside(&path) }
            }
            What::UnknownName { name, accepted } => {
                let near = did_you_mean(nearest(&name, accepted.iter().copied()));
                let help = format!("one of {}", accepted.join(", "));
                let e = Error::new(path, format!("unknown value `{}`{near}", quoted(&name)), help);
                e.coded(ErrorCode::UnknownName).valued(quoted(name))
            }
            What::Refused { code, accepted, .. } => {
                let e = match &value {
                    Some(value) => Error::new(path, format!("{value} is not accepted"), shown(accepted)).valued(value),
                    None => Error::new(path, "this value is not accepted", shown(accepted)),
                };
                e.coded(code)
            }
        }
    }
}

impl Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.0.path, self.0.what)
    }
}

impl std::error::Error for ReadError {}

impl serde::de::Error for ReadError {
    /// The text names the accepted values, as choices between types pass it.
    fn custom<T: Display>(accepted: T) -> Self {
        Self::wrong_type(&accepted.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, accepted: &dyn Expected) -> Self {
        let accepted = plain(&accepted.to_string());
        Self::new(What::Refused { code: ErrorCode::WrongType, found: tree(found), accepted })
    }

    fn invalid_value(found: Unexpected<'_>, accepted: &dyn Expected) -> Self {
        Self::invalid_type(found, accepted)
    }

    fn invalid_length(_: usize, accepted: &dyn Expected) -> Self {
        Self::wrong_length(accepted.to_string())
    }

    fn unknown_variant(name: &str, accepted: &'static [&'static str]) -> Self {
        Self::new(What::UnknownName { name: name.into(), accepted })
    }

    fn unknown_field(name: &str, accepted: &'static [&'static str]) -> Self {
        Self::unknown_key(name, accepted)
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(What::MissingKey(name))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::wrong_type(&format!("{name} under one of its names"))
    }
}

/// The value that serde found, if a tree can contain it.
fn tree(found: Unexpected<'_>) -> Option<Value> {
    Some(match found {
        Unexpected::Bool(yes) => Value::Bool(yes),
        Unexpected::Unsigned(i) => Value::Integer(i64::try_from(i).ok()?),
        Unexpected::Signed(i) => Value::Integer(i),
        Unexpected::Float(x) => Value::Float(x),
        Unexpected::Str(text) => Value::Text(text.into()),
        _ => return None,
    })
}

/// The type names of serde's own code in users' words. Serde uses them where it collects a table before it reads it.
fn plain(expected: &str) -> String {
    use super::words::{BOOL, LIST, NAME, NUMBER, TABLE, TEXT, WHOLE, WHOLE_POSITIVE};
    match expected {
        "usize" | "u64" | "u32" | "u16" | "u8" => WHOLE_POSITIVE.into(),
        "isize" | "i64" | "i32" => WHOLE.into(),
        "f64" | "f32" => NUMBER.into(),
        "a string" | "string" => TEXT.into(),
        "a boolean" => BOOL.into(),
        "a sequence" => LIST.into(),
        "string only" | "string or map" | "variant identifier" => NAME.into(),
        "a map" => TABLE.into(),
        other if other.starts_with("enum ") => NAME.into(),
        other if ["struct ", "internally tagged enum ", "tuple "].iter().any(|kind| other.starts_with(kind)) => TABLE.into(),
        other => other.into(),
    }
}
