//! Failures in the terminal's form, and exit statuses.

use fedsa_experiment::error::{Cause, Failure};
use fedsa_experiment::excerpt::Excerpt;
use miette::{Diagnostic, LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

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

/// The exit status of a failure.
pub fn status_of(failure: &Failure) -> u8 {
    match failure.cause {
        Cause::BadInput => BAD_INPUT,
        Cause::Machine => MACHINE_FAILED,
    }
}

/// A failure with the lines of its file, as a diagnostic of [`miette`].
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct ShownFailure {
    failure: Failure,
    place: Option<Place>,
}

/// The lines around a place of a file.
#[derive(Debug)]
struct Place(Excerpt);

impl From<Failure> for ShownFailure {
    fn from(failure: Failure) -> Self {
        Self { place: failure.place().cloned().map(Place), failure }
    }
}

impl Diagnostic for ShownFailure {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        (!self.failure.help.is_empty()).then(|| Box::new(&self.failure.help) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|place| place as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.place.as_ref()?.0.span.clone();
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some("here".into()), span))))
    }
}

impl SourceCode for Place {
    fn read_span<'a>(&'a self, span: &SourceSpan, before: usize, after: usize) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let Excerpt { name, shown, first, at, .. } = &self.0;
        let bytes = shown.as_bytes();
        let inside = bytes.get(span.offset()..span.offset() + span.len()).ok_or(MietteError::OutOfBounds)?;
        let (data, span, (line, column)) = match (before, after) {
            (0, 0) => (inside, *span, *at),
            _ => (bytes, (0, bytes.len()).into(), (*first, 0)),
        };
        let count = shown.matches('\n').count();
        Ok(Box::new(MietteSpanContents::new_named(name.clone(), data, span, line, column, count)))
    }
}
