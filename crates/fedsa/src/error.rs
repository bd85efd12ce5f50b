//! The one error of the library: input that cannot be used.
//!
//! Divergence is not an error but a status of a run ([`crate::round::Status`]).

/// Input that cannot be used, and what could be used in its place.
///
/// `key` names the setting or array relative to whoever raised the error
/// (`step_size`, `P`); outer layers prefix it (`method[0].step_size`) and find
/// the line of the file it came from.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{what}", prefix(.key))]
pub struct BadInput {
    /// The setting, array, column or file at fault; empty when it is the whole.
    pub key: String,
    /// What is wrong, with the value.
    pub what: String,
    /// What would be accepted.
    pub help: String,
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

impl BadInput {
    /// An error about `key`: what is wrong, and what would be accepted.
    pub fn new(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into(), help: help.into() }
    }

    /// The same error seen from one level further out: `inside("method[0]")`
    /// turns `step_size` into `method[0].step_size`.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        self.key = match self.key.as_str() {
            "" => outer.to_string(),
            inner if inner.starts_with('[') => format!("{outer}{inner}"),
            inner => format!("{outer}.{inner}"),
        };
        self
    }
}

/// The library's result.
pub type Result<T, E = BadInput> = std::result::Result<T, E>;

/// Refuses a setting outside its range.
///
/// `accepted` is the range in words: "a positive number".
pub fn require(ok: bool, key: &str, value: impl std::fmt::Display, accepted: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(BadInput::new(key, format!("{value} is not accepted"), accepted)) }
}
