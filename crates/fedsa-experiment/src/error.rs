//! Failures of commands, with their place in a file.

use fedsa::error::BadInput;
use fedsa_data::MachineFailure;

use crate::excerpt::{Excerpt, harmless_part};

/// What a failure is due to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Bad input; nothing was written.
    BadInput,
    /// The machine failed (disk, memory, a permission); what was written until then is kept.
    Machine,
}

/// Why a command ended: bad input, with the place in a file where it stands if it stands in one,
/// or a failure of the machine.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// What would be accepted, or how to go on.
    pub help: String,
    /// What it is due to.
    pub cause: Cause,
    place: Option<Box<Excerpt>>,
}

/// The most characters of what is wrong, and of what would be accepted: values are quoted in part,
/// and this holds for messages of libraries too.
const LONGEST: usize = 4000;

impl Failure {
    /// A failure at a place of a text; in a file as a whole where there is no place.
    pub fn in_text(name: &str, text: &str, span: Option<std::ops::Range<usize>>, what: String, help: &str) -> Self {
        let place = span.map(|span| Box::new(Excerpt::new(name, text, span)));
        let what = if place.is_none() && !name.is_empty() { format!("{name}: {what}") } else { what };
        Self { what: harmless_part(&what, LONGEST), help: harmless_part(help, LONGEST), cause: Cause::BadInput, place }
    }
}

impl Failure {
    /// The lines around the place in a text where it stands, if it stands in one.
    pub fn place(&self) -> Option<&Excerpt> {
        self.place.as_deref()
    }

    /// The same failure, of one of several experiments.
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
