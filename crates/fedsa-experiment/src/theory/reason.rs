//! Why something is not known.

use fedsa::error::Error;

/// The kind of a reason. The names in JSON do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// Theory has no closed form of it for these settings, or a condition of one fails.
    NotKnown,
    /// It has a closed form that takes too long to compute.
    TakesTooLong,
    /// It does not exist, because the method diverges.
    Diverges,
    /// It is infinite.
    Infinite,
}

/// Why something is not known.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Reason {
    /// The kind of the reason.
    pub code: ReasonCode,
    /// The reason in words.
    pub text: String,
}

/// Something that is known, or the reason why it is not.
pub type KnownOrReason<T> = Result<T, Reason>;

impl Reason {
    /// The reason of this kind with the words of an error.
    pub fn new(code: ReasonCode, error: &Error) -> Self {
        Self { code, text: error.what.clone() }
    }

    /// A reason in words of its own.
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
