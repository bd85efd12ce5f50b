//! Named kinds of parts: one entry each, in the folder of the part's stage.
//!
//! A file says `kind = "garnet"`; the entry of that name reads the other keys
//! into the part's settings. Nothing else in the crate knows the names.

use std::marker::PhantomData;

use erased_serde::Deserializer;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};

/// One kind of problem, method, codec or medium.
pub struct Kind<T: ?Sized + 'static> {
    /// The value of `kind`.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// What it is, in a line.
    pub about: &'static str,
    /// Reads its settings.
    pub read: fn(&mut dyn Deserializer<'_>) -> Result<Box<T>, erased_serde::Error>,
    /// The JSON schema of its settings.
    #[cfg(feature = "schema")]
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

/// An entry: a name, what it is, the type of its settings, and other names for it.
macro_rules! kind {
    ($name:literal, $about:literal, $settings:ty $(, $alias:literal)*) => {
        $crate::registry::Kind {
            name: $name,
            aliases: &[$($alias),*],
            about: $about,
            read: |de| Ok(Box::new($crate::registry::read::<$settings>(de)?)),
            #[cfg(feature = "schema")]
            schema: <$settings as schemars::JsonSchema>::json_schema,
        }
    };
}
pub(crate) use kind;

impl<T: ?Sized> Kind<T> {
    /// Whether `name` is one of its names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Reads settings of type `S`; the function that [`Kind::read`] calls.
///
/// # Errors
/// As the deserialiser.
pub fn read<S: DeserializeOwned>(de: &mut dyn Deserializer<'_>) -> Result<S, erased_serde::Error> {
    erased_serde::deserialize(de)
}

/// Reads a value that a table stands for, and refuses a list of its entries, which a derived
/// choice with a tag (`law = ..`) would take too: for `#[serde(deserialize_with)]`.
///
/// # Errors
/// As the deserialiser, and when there is no table.
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
