//! Failures as the program shows them, and its exit statuses.

use fedsa::error::BadInput;
use miette::{Diagnostic, LabeledSpan, SourceCode};

use crate::excerpt::{Excerpt, harmless_part};

/// Exit status: everything went as expected.
pub const DONE: u8 = 0;
/// Exit status: a check or a run's status was not as expected.
pub const NOT_AS_EXPECTED: u8 = 1;
/// Exit status: bad input; nothing was written.
pub const BAD_INPUT: u8 = 2;
/// Exit status: the machine failed (disk, memory, a permission) while the command ran; what was
/// written until then is kept.
pub const MACHINE_FAILED: u8 = 3;
/// Exit status: interrupted; a checkpoint was written.
pub const INTERRUPTED: u8 = 130;

/// A failure of the machine while a command ran: a full disk, a permission that is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct MachineFailure {
    /// What failed.
    pub what: String,
    /// What is left, and how to go on.
    pub help: String,
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
    /// The exit status: [`BAD_INPUT`] or [`MACHINE_FAILED`].
    pub status: u8,
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
        Self { what: harmless_part(&what, LONGEST), help: harmless_part(help, LONGEST), status: BAD_INPUT, place }
    }
}

impl Failure {
    /// The same failure, of one of several experiments.
    #[must_use]
    pub fn about(self, experiment: &str) -> Self {
        Self { what: format!("{experiment}: {}", self.what), ..self }
    }
}

impl From<BadInput> for Failure {
    fn from(e: BadInput) -> Self {
        Self { what: harmless_part(&e.to_string(), LONGEST), help: harmless_part(&e.help, LONGEST), status: BAD_INPUT, place: None }
    }
}

impl From<MachineFailure> for Failure {
    fn from(e: MachineFailure) -> Self {
        Self { what: harmless_part(&e.what, LONGEST), help: harmless_part(&e.help, LONGEST), status: MACHINE_FAILED, place: None }
    }
}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        (!self.help.is_empty()).then(|| Box::new(&self.help) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_deref().map(|place| place as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.place.as_ref()?.span();
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some("here".into()), span))))
    }
}
