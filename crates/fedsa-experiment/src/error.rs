//! Errors with their place in a file.

use std::ops::Range;

use fedsa::error::{Error, FileLocation};

use crate::excerpt::{harmless_part, place};

/// The largest number of characters of a message, and of its help, including messages of libraries.
const LONGEST: usize = 4000;

/// The error with its place: a range of a text's bytes; without a range, the whole file, if it has a name.
pub fn in_text(e: Error, name: &str, text: &str, span: Option<Range<usize>>) -> Error {
    let e = harmless(e);
    match span {
        Some(span) => e.at(place(name, text, span)),
        None if name.is_empty() => e,
        None => e.at(FileLocation { file: name.into(), ..FileLocation::default() }),
    }
}

/// The error with words of bounded length, without control characters.
pub fn harmless(e: Error) -> Error {
    let (what, help) = (harmless_part(&e.what, LONGEST), harmless_part(&e.help, LONGEST));
    e.saying(what).helped(help)
}
