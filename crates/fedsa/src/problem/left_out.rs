//! Rows of files that readers of logs left out.

use std::fmt;

use crate::note::{Note, NoteCode};

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
    /// Why.
    pub reason: String,
    /// How many.
    pub rows: usize,
    /// Where the first of them is.
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
