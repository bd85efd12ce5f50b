//! Places of errors in files.

use std::ops::Range;

/// A place in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileLocation {
    /// The file's name.
    pub file: String,
    /// The line from 1, if known.
    pub line: Option<usize>,
    /// The column in bytes from 1, if known.
    pub column: Option<usize>,
    /// The lines around the place, for people.
    pub excerpt: Option<Excerpt>,
}

/// The lines around a place in a text, without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The lines.
    pub text: String,
    /// The place in `text`, in bytes.
    pub span: Range<usize>,
    /// The number of the first line, from 0.
    pub first: usize,
}
