//! Registries of problems, methods, codecs and media: one entry per kind.
//!
//! For `kind = "garnet"` in a file, the entry with this name reads the other keys into the kind's settings.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};

use crate::error::Result;
use crate::settings::{self, Value};

/// A function of a registry: static, or a closure that owns data.
pub enum Registered<F: ?Sized + 'static> {
    /// A static function.
    Static(&'static F),
    /// A closure; clones share its data.
    Shared(Arc<F>),
}

impl<F: ?Sized> Clone for Registered<F> {
    fn clone(&self) -> Self {
        match self {
            Registered::Static(f) => Registered::Static(f),
            Registered::Shared(f) => Registered::Shared(Arc::clone(f)),
        }
    }
}

impl<F: ?Sized> Deref for Registered<F> {
    type Target = F;

    fn deref(&self) -> &F {
        match self {
            Registered::Static(f) => f,
            Registered::Shared(f) => f,
        }
    }
}

/// Reads settings from a table.
type Read<T> = dyn Fn(&Value) -> Result<Box<T>> + Send + Sync;

/// Makes a JSON schema.
#[cfg(feature = "schema")]
type MakeSchema = dyn Fn(&mut schemars::SchemaGenerator) -> schemars::Schema + Send + Sync;

/// One kind of problem, method, codec or medium: a constant made with [`kind!`](crate::kind!), or a value that owns data ([`Kind::new`]).
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
    pub read: Registered<Read<T>>,
    /// The JSON schema of its settings.
    #[cfg(feature = "schema")]
    pub schema: Registered<MakeSchema>,
}

impl<T: ?Sized> Clone for Kind<T> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            aliases: self.aliases,
            about: self.about,
            read: self.read.clone(),
            #[cfg(feature = "schema")]
            schema: self.schema.clone(),
        }
    }
}

/// An entry of a registry, a [`Kind`](crate::registry::Kind): its name, a description in a line (lower case, no full stop), the
/// type of the settings, and other names. The settings derive serde's `Serialize` and `Deserialize`, and with the feature
/// `schema` a JSON schema.
///
/// ```
/// use fedsa::method::MethodSettings;
/// use fedsa_methods::fedlsa::FedLsa;
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
            read: $crate::registry::Registered::Static(&|table| Ok(Box::new($crate::registry::read::<$settings>(table)?))),
            schema: $crate::registry::Registered::Static(&<$settings as $crate::registry::schemars::JsonSchema>::json_schema),
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
            read: $crate::registry::Registered::Static(&|table| Ok(Box::new($crate::registry::read::<$settings>(table)?))),
        }
    };
}
pub use crate::kind;

/// The library of JSON schemas, whose `JsonSchema` the settings of kinds derive.
#[cfg(feature = "schema")]
pub use schemars;

/// Settings of a kind: read from a table, with a JSON schema.
#[cfg(feature = "schema")]
pub trait KindKeys: FromTable + schemars::JsonSchema {}
#[cfg(feature = "schema")]
impl<S: FromTable + schemars::JsonSchema> KindKeys for S {}

/// Settings of a kind: read from a table.
#[cfg(not(feature = "schema"))]
pub trait KindKeys: FromTable {}
#[cfg(not(feature = "schema"))]
impl<S: FromTable> KindKeys for S {}

impl<T: ?Sized> Kind<T> {
    /// A kind whose `make` combines settings with data that it owns, such as transitions in memory. `S` are the settings that a table
    /// gives. Files and hashes contain only what the settings serialise, not the data: a continued run, and nodes on other machines, need
    /// the same data.
    ///
    /// ```
    /// use fedsa::method::MethodSettings;
    /// use fedsa_methods::fedlsa::FedLsa;
    /// use fedsa::registry::Kind;
    ///
    /// let known_steps = vec![0.1, 0.05];
    /// let mine = Kind::<dyn MethodSettings>::new("mine", "FedLSA with the last of known step sizes", move |settings: FedLsa| {
    ///     Ok(Box::new(settings.with_step_size(known_steps[known_steps.len() - 1])))
    /// });
    /// assert!(mine.is_called("mine"));
    /// ```
    pub fn new<S: KindKeys + 'static>(
        name: &'static str,
        about: &'static str,
        make: impl Fn(S) -> Result<Box<T>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            aliases: &[],
            about,
            read: Registered::Shared(Arc::new(move |table: &Value| make(S::from_table(table)?))),
            #[cfg(feature = "schema")]
            schema: Registered::Shared(Arc::new(S::json_schema)),
        }
    }

    /// Adds other names.
    #[must_use]
    pub fn with_aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    /// Whether `name` is one of its names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Reads settings from a table. Checks that depend on which keys the table has belong here. [`kind!`](crate::kind!) reads all settings
/// through this trait; types that derive `Deserialize` have it.
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

/// For `#[serde(deserialize_with)]`: reads a value from a table. It refuses a list of the table's entries, which a derived enum with a tag
/// (`law = ..`) would accept.
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
