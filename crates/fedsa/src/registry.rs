//! Named kinds of parts: one entry each, in the folder of the part's stage.
//!
//! A file says `kind = "garnet"`; the entry of that name reads the other keys
//! into the part's settings. Nothing else in the crate knows the names.

use erased_serde::Deserializer;
use serde::de::DeserializeOwned;

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
}

impl<T: ?Sized> Kind<T> {
    /// An entry without aliases.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        read: fn(&mut dyn Deserializer<'_>) -> Result<Box<T>, erased_serde::Error>,
    ) -> Self {
        Self { name, aliases: &[], about, read }
    }

    /// The same entry under further names.
    #[must_use]
    pub const fn also(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

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
