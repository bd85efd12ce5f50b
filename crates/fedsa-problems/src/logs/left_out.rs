//! Rows left out of logs: by readers of files, or because automatic resets wrote them.

use std::fmt;

use fedsa::note::{Note, NoteCode};

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowPlace {
    /// A line of text, from 1.
    Line(u64),
    /// A row, from 0.
    Row(u64),
}

impl fmt::Display for RowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// Rows of a file that were left out of a log for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutRows {
    /// The file.
    pub file: String,
    /// The reason.
    pub reason: String,
    /// Their number.
    pub rows: usize,
    /// The place of the first one.
    pub first: RowPlace,
    /// The kind of the note about them.
    pub code: NoteCode,
}

impl LeftOutRows {
    /// The note about them.
    pub fn note(&self) -> Note {
        let Self { file, reason, rows, first, code } = self;
        let rows = if *rows == 1 { "1 row".to_string() } else { format!("{rows} rows") };
        Note::new(*code, format!("left out {rows} of {file}: {reason} (first {first})"))
    }
}

/// The rows of a log that automatic resets wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResetRows {
    /// The left-out rows, ascending.
    pub(crate) out: Vec<usize>,
    /// The rows that become the last of a truncated episode, ascending.
    pub(crate) cut: Vec<usize>,
    /// Whether the left-out rows only reset; otherwise they lack their next states.
    pub(crate) only_reset: bool,
}
