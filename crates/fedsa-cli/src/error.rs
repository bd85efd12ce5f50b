//! Errors in the terminal's form, and exit statuses.

use fedsa::error::{Error, ErrorCode, ErrorKind, FileLocation};
use fedsa_experiment::error::harmless;
use miette::{Diagnostic, LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

/// Exit status: everything went as expected.
pub const DONE: u8 = 0;
/// Exit status: a check or a run's status was not as expected.
pub const NOT_AS_EXPECTED: u8 = 1;
/// Exit status: bad input; nothing was written.
pub const BAD_INPUT: u8 = 2;
/// Exit status: the machine failed (disk, memory, a permission) while the command ran; files written before remain.
pub const MACHINE_FAILED: u8 = 3;
/// Exit status: interrupted; a checkpoint was written.
pub const INTERRUPTED: u8 = 130;

/// The exit status of an error, which follows from its kind.
pub fn status_of(e: &Error) -> u8 {
    if e.code() == ErrorCode::NoEstimate {
        return NOT_AS_EXPECTED;
    }
    match e.kind() {
        ErrorKind::Machine => MACHINE_FAILED,
        ErrorKind::Cancelled => INTERRUPTED,
        // A lack of memory is refused before anything is written.
        _ => BAD_INPUT,
    }
}

/// An error with the lines of its file, as a diagnostic of [`miette`].
#[derive(Debug)]
pub struct ShownError {
    error: Error,
    lines: Option<Lines>,
}

/// The lines around a place of a file.
#[derive(Debug)]
struct Lines(FileLocation);

impl From<Error> for ShownError {
    fn from(e: Error) -> Self {
        let error = harmless(e);
        Self { lines: error.place().filter(|place| place.excerpt.is_some()).cloned().map(Lines), error }
    }
}

impl std::fmt::Display for ShownError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ShownError {}

impl Diagnostic for ShownError {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        (!self.error.help.is_empty()).then(|| Box::new(&self.error.help) as Box<dyn std::fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.lines.as_ref().map(|lines| lines as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.lines.as_ref()?.0.excerpt.as_ref()?.span.clone();
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some("here".into()), span))))
    }
}

impl SourceCode for Lines {
    fn read_span<'a>(&'a self, span: &SourceSpan, before: usize, after: usize) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let FileLocation { file, line, column, excerpt: Some(excerpt) } = &self.0 else { return Err(MietteError::OutOfBounds) };
        let bytes = excerpt.text.as_bytes();
        let inside = bytes.get(span.offset()..span.offset() + span.len()).ok_or(MietteError::OutOfBounds)?;
        let from_0 = |n: &Option<usize>| n.map_or(0, |n| n - 1);
        let (data, span, (line, column)) = match (before, after) {
            (0, 0) => (inside, *span, (from_0(line), from_0(column))),
            _ => (bytes, (0, bytes.len()).into(), (excerpt.first, 0)),
        };
        let count = excerpt.text.matches('\n').count();
        Ok(Box::new(MietteSpanContents::new_named(file.clone(), data, span, line, column, count)))
    }
}
