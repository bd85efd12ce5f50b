//! Registries of problems, methods, codecs and media: one entry per kind.
//!
//! If a file says `kind = "garnet"`, the entry with this name reads the other keys
//! into the settings of the kind. Only the entry contains the name.

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};

use crate::error::Result;
use crate::settings::{self, Value};

/// One kind of problem, method, codec or medium.
pub struct Kind<T: ?Sized + 'static> {
    /// The value of `kind`.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Its description, in a line.
    pub about: &'static str,
    /// Reads its settings from a table without `kind`.
    ///
    /// # Errors
    /// As [`settings::read`].
    pub read: fn(&Value) -> Result<Box<T>>,
    /// The JSON schema of its settings.
    #[cfg(feature = "schema")]
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

impl<T: ?Sized> Clone for Kind<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Kind<T> {}

/// An entry of a registry, a [`Kind`](crate::registry::Kind): its name, a description in a line (lower case, no full stop), the
/// type of the settings, and other names. The settings derive serde's `Serialize` and `Deserialize`, and with the feature
/// `schema` a JSON schema.
///
/// ```
/// use fedsa::methods::{MethodSettings, fedlsa::FedLsa};
/// use fedsa::registry::Kind;
///
/// const MINE: &[Kind<dyn MethodSettings>] = &[fedsa::kind!("mine", "FedLSA under another name", FedLsa, "my-own")];
/// assert!(MINE[0].is_called("my-own"));
/// ```
#[cfg(feature = "schema")]
#[macro_export]
macro_rules! kind {
    ($name:literal, $about:literal, $settings:ty $(, $alias:literal)*) => {
        $crate::registry::Kind {
            name: $name,
            aliases: &[$($alias),*],
            about: $about,
            read: |table| Ok(Box::new($crate::registry::read::<$settings>(table)?)),
            schema: <$settings as $crate::registry::schemars::JsonSchema>::json_schema,
        }
    };
}

/// An entry of a registry, a [`Kind`](crate::registry::Kind): its name, a description in a line (lower case, no full stop), the
/// type of the settings, and other names. The settings derive serde's `Serialize` and `Deserialize`.
#[cfg(not(feature = "schema"))]
#[macro_export]
macro_rules! kind {
    ($name:literal, $about:literal, $settings:ty $(, $alias:literal)*) => {
        $crate::registry::Kind {
            name: $name,
            aliases: &[$($alias),*],
            about: $about,
            read: |table| Ok(Box::new($crate::registry::read::<$settings>(table)?)),
        }
    };
}
pub use crate::kind;

/// The library of JSON schemas, whose `JsonSchema` the settings of kinds derive.
#[cfg(feature = "schema")]
pub use schemars;

impl<T: ?Sized> Kind<T> {
    /// Whether `name` is one of its names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Settings as a table has them, and how they become those that the code uses: what must be checked as long as it is known
/// which keys the table has, is checked here. [`kind!`](crate::kind!) reads every type of settings through this trait; types
/// that derive `Deserialize` are their own form.
pub trait FromTable: Sized {
    /// Reads the settings.
    ///
    /// # Errors
    /// As [`settings::read`], and when settings contradict each other.
    fn from_table(table: &Value) -> Result<Self>;
}

impl<S: DeserializeOwned> FromTable for S {
    fn from_table(table: &Value) -> Result<Self> {
        settings::read(table)
    }
}

/// Reads settings of type `S`; the function that [`Kind::read`] calls.
///
/// # Errors
/// As [`FromTable::from_table`].
pub fn read<S: FromTable>(table: &Value) -> Result<S> {
    S::from_table(table)
}

/// Reads a value from a table, and refuses a list of its entries, which a derived enum with
/// a tag (`law = ..`) would accept too: for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As the deserialiser, and when the value is not a table.
pub fn table<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    struct Table<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
        type Value = T;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a table")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Table(PhantomData))
}
