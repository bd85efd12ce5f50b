//! Reasons for unknown numbers.

use fedsa::error::Error;

/// The kind of a reason. The names in JSON do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// Theory has no closed form for these settings, or a condition fails.
    NotKnown,
    /// The closed form takes too long to compute.
    TakesTooLong,
    /// It does not exist, because the method diverges.
    Diverges,
    /// It is infinite.
    Infinite,
}

/// Why a number is unknown.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Reason {
    /// The kind of the reason.
    pub code: ReasonCode,
    /// The reason in words.
    pub text: String,
}

/// A known value, or the reason why it is unknown.
pub type KnownOrReason<T> = Result<T, Reason>;

impl Reason {
    /// The reason of this kind with the words of an error.
    pub fn new(code: ReasonCode, error: &Error) -> Self {
        Self { code, text: error.what.clone() }
    }

    /// A reason with its own words.
    pub fn text(code: ReasonCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Self {
        // Errors about a floor that does not exist name the step size.
        let code = if error.key == "step_size" { ReasonCode::Diverges } else { ReasonCode::NotKnown };
        Self::new(code, error)
    }
}
