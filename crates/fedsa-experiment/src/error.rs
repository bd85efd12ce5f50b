//! Failures of commands, with their place in a file.

use fedsa::error::BadInput;
use fedsa_data::MachineFailure;

use crate::excerpt::{Excerpt, harmless_part};

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Bad input; nothing was written.
    BadInput,
    /// The machine failed (disk, memory, a permission); files that were already written are kept.
    Machine,
}

/// Why a command failed: bad input, with its place in a file if it has one,
/// or a failure of the machine.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// What would be accepted, or how to continue.
    pub help: String,
    /// The cause.
    pub cause: Cause,
    place: Option<Box<Excerpt>>,
}

/// The largest number of characters of a message, and of its help. It limits messages of libraries too.
const LONGEST: usize = 4000;

impl Failure {
    /// A failure at a range of a text's bytes; without a range, a failure of the whole file.
    pub fn in_text(name: &str, text: &str, span: Option<std::ops::Range<usize>>, what: String, help: &str) -> Self {
        let place = span.map(|span| Box::new(Excerpt::new(name, text, span)));
        let what = if place.is_none() && !name.is_empty() { format!("{name}: {what}") } else { what };
        Self { what: harmless_part(&what, LONGEST), help: harmless_part(help, LONGEST), cause: Cause::BadInput, place }
    }
}

impl Failure {
    /// The lines around the failure's place in a file, if it has one.
    pub fn place(&self) -> Option<&Excerpt> {
        self.place.as_deref()
    }

    /// The same failure, with the id of one of several experiments.
    #[must_use]
    pub fn about(self, experiment: &str) -> Self {
        Self { what: format!("{experiment}: {}", self.what), ..self }
    }
}

impl From<BadInput> for Failure {
    fn from(e: BadInput) -> Self {
        Self { what: harmless_part(&e.to_string(), LONGEST), help: harmless_part(&e.help, LONGEST), cause: Cause::BadInput, place: None }
    }
}

impl From<MachineFailure> for Failure {
    fn from(e: MachineFailure) -> Self {
        Self { what: harmless_part(&e.what, LONGEST), help: harmless_part(&e.help, LONGEST), cause: Cause::Machine, place: None }
    }
}
