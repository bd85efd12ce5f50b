//! Text of separated values with a header: CSV, and TSV, which is told by its first line.

use std::io::ErrorKind;

use fedsa::error::{Error, Result, quoted};

use super::shown;
use crate::decimals::Decimals;
use crate::input::{Input, Line, QUOTES, broken};

/// The first bytes of files that are no text, and what they are.
const BINARY: [(&[u8], &str); 13] = [
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive, as .xlsx and .npz are"),
    (b"\x89HDF", "an HDF5 file"),
    (b"ARROW1", "an Arrow file"),
    (b"FEA1", "a Feather file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"SQLite format 3", "an SQLite database"),
    (b"BZh", "packed with bzip2"),
    (b"\xfd7zXZ", "packed with xz"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
];

/// A table whose header was read.
pub(super) struct Opened {
    /// At its first row.
    pub reader: csv::Reader<Line>,
    /// The names of its columns.
    pub names: Vec<String>,
    /// How its numbers are written.
    pub decimals: Decimals,
}

/// What separates fields.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Opens a table, and reads the names of its columns.
///
/// # Errors
/// When the file is no text, cannot be unpacked, or its first line is not separated by commas, semicolons or tabs.
pub(super) fn open(mut input: Input) -> Result<Opened> {
    const BUFFER: usize = 64 << 10;
    let start = input.peek()?;
    check_text(start)?;
    let separator = separator(start);
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(BUFFER).delimiter(separator).from_reader(Line::new(input, separator));
    let names: Vec<String> = header(&mut reader)?.iter().map(|name| name.trim().to_string()).collect();
    if let [only] = &names[..]
        && only.contains('|')
    {
        let what = format!("line 1 has a single field, `{}`", quoted(only));
        return Err(Error::data("", what, "fields that are separated by commas, semicolons or tabs, not by '|'"));
    }
    Ok(Opened { reader, names, decimals: Decimals::of(separator) })
}

/// The names of the columns.
fn header(reader: &mut csv::Reader<Line>) -> Result<csv::StringRecord> {
    let read = reader.headers().cloned();
    read.map_err(|e| bad_line(&e, reader, &csv::StringRecord::new()))
}

/// Refuses what is no text, by its first bytes.
fn check_text(start: &[u8]) -> Result<()> {
    let refuse = |what: String| Err(Error::data("", what, "a table: CSV or TSV in UTF-8, packed with gzip or zstd or not, or Parquet"));
    if let Some((_, what)) = BINARY.iter().find(|(magic, _)| start.starts_with(magic)) {
        return refuse(format!("not a text file: it is {what}"));
    }
    if let Some(at) = start.iter().position(|byte| *byte == 0) {
        return refuse(format!("not a text file: byte {at} is 0"));
    }
    match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => refuse("it begins as JSON does".into()),
        _ => Ok(()),
    }
}

/// The separator of the first line: of tabs, semicolons and commas outside of quotes the most frequent one; a comma rather than a semicolon
/// where there are as many, and a tab after both.
fn separator(start: &[u8]) -> u8 {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let (mut is_quoted, mut counts) = (false, [0usize; 3]);
    for byte in line {
        is_quoted ^= *byte == b'"';
        if let Some(i) = SEPARATORS.iter().position(|separator| separator == byte && !is_quoted) {
            counts[i] += 1;
        }
    }
    let [commas, semicolons, tabs] = counts;
    match () {
        () if tabs > commas.max(semicolons) => b'\t',
        () if semicolons > commas => b';',
        () => b',',
    }
}

/// The line on which the record begins that was read last; lines count from 1. Lines without fields before it are not part of it, but the
/// position of a record, as the reader has it, is before them.
pub(super) fn line_of(reader: &csv::Reader<Line>, record: &csv::StringRecord) -> u64 {
    let breaks: usize = record.iter().map(|field| field.bytes().filter(|byte| *byte == b'\n').count()).sum();
    reader.position().line().saturating_sub(1 + breaks as u64).max(1)
}

/// An error of the reader while it read `record`.
pub(super) fn bad_line(e: &csv::Error, reader: &csv::Reader<Line>, record: &csv::StringRecord) -> Error {
    let line = reader.position().line();
    let first = line_of(reader, record);
    match e.kind() {
        csv::ErrorKind::UnequalLengths { .. } if spans_lines(record) => {
            let what = format!("line {first}: a quote that is opened there is closed in line {}", line.saturating_sub(1));
            Error::data("", what, QUOTES)
        }
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Error::data("", format!("line {first}: {len} fields, but the header has {expected_len}"), "as many fields on every line")
        }
        csv::ErrorKind::Utf8 { .. } => Error::data("", format!("line {first}: not UTF-8"), "text in UTF-8"),
        csv::ErrorKind::Io(io) if io.kind() == ErrorKind::Interrupted => {
            Error::data("", format!("line {line}: {}", shown(e)), "a file that can be read")
        }
        csv::ErrorKind::Io(io) => broken(&format!("line {line}"), io),
        _ => Error::data("", format!("line {first}: {}", shown(e)), "comma-separated values with a header"),
    }
}

/// Whether a field goes over several lines, as one does whose quote is closed by one of a later line.
pub(super) fn spans_lines(record: &csv::StringRecord) -> bool {
    record.iter().any(|field| field.contains('\n'))
}
