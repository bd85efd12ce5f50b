//! Settings as trees, and the reader that turns them into typed settings.
//!
//! Any file is parsed into a [`Value`]. [`read`] turns it into typed settings, with one concrete deserialiser, so that serde's generic code
//! is compiled once per type. The reader is strict: it never reads a table from a list of its entries. Its errors are data: the key with
//! all tables around it, the value, and an [`ErrorCode`].
//!
//! ```
//! use fedsa::error::ErrorCode;
//! use fedsa::schedule::StepSize;
//! use fedsa::settings::{self, Value};
//!
//! let decaying = Value::table([("c", Value::Float(0.5)), ("t", Value::Integer(3))]);
//! let e = settings::read::<StepSize>(&decaying).unwrap_err();
//! assert_eq!((e.code(), e.key.as_str()), (ErrorCode::UnknownKey, "t"));
//! assert_eq!(e.help, "one of c, t0, power, per");
//! ```

mod choice;
mod fault;
mod near;
mod reader;
mod setters;
mod text;
mod words;

use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorCode, Result};

pub use crate::{choice, setters};
pub use fault::ReadError;
pub use near::{did_you_mean, nearest};
pub use reader::Reader;

/// A tree of settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// A date or time in TOML's form; no setting of fedsa accepts one.
    Date(String),
    /// A list.
    List(Vec<Value>),
    /// Values by name, in the order of the file.
    Table(Vec<(String, Value)>),
}

impl Value {
    /// A table of these entries.
    pub fn table<K: Into<String>>(entries: impl IntoIterator<Item = (K, Value)>) -> Self {
        Value::Table(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// The entry of a table; `None` if there is none or this is not a table.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Value::Table(entries) = self else { return None };
        entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// As TOML of at most `most` characters, with control characters escaped. If that is too short, `..` replaces the rest, and open
    /// brackets are closed. Very small and very large numbers have an exponent.
    pub fn cut(&self, most: usize) -> String {
        text::cut(self, most)
    }
}

/// Reads typed settings.
///
/// # Errors
/// When a key is unknown ([`ErrorCode::UnknownKey`]) or missing ([`ErrorCode::MissingKey`]), a value is of another type
/// ([`ErrorCode::WrongType`], [`ErrorCode::WrongLength`]), or a name is unknown ([`ErrorCode::UnknownName`]). The error has the key, the
/// value and the accepted values.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    T::deserialize(Reader::new(value)).map_err(|e| e.seen(value).into())
}

/// Whether settings refused `key` because they have no such key.
pub fn is_unknown(refused: &Error, key: &str) -> bool {
    refused.code() == ErrorCode::UnknownKey && refused.key == key
}

/// For values in other formats, such as JSON.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, true or false, a list or a table")
            }
            fn visit_bool<E>(self, yes: bool) -> Result<Value, E> {
                Ok(Value::Bool(yes))
            }
            fn visit_i64<E>(self, i: i64) -> Result<Value, E> {
                Ok(Value::Integer(i))
            }
            fn visit_u64<E: serde::de::Error>(self, i: u64) -> Result<Value, E> {
                i64::try_from(i).map(Value::Integer).map_err(|_| E::custom("a whole number below 2^63"))
            }
            fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
                Ok(Value::Float(x))
            }
            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.to_string()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Value::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let mut table = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    table.push(entry);
                }
                Ok(Value::Table(table))
            }
        }
        from.deserialize_any(Any)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Bool(yes) => to.serialize_bool(*yes),
            Value::Integer(i) => to.serialize_i64(*i),
            Value::Float(x) => to.serialize_f64(*x),
            Value::Text(text) | Value::Date(text) => to.serialize_str(text),
            Value::List(items) => to.collect_seq(items),
            Value::Table(entries) => to.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// For [`choice!`] in other crates.
#[doc(hidden)]
pub mod __private {
    pub use serde;

    /// The values that a visitor accepts, as text.
    pub fn expected(visitor: &dyn serde::de::Expected) -> String {
        visitor.to_string()
    }
}

#[cfg(test)]
mod tests;
