//! Text of separated values with a header: CSV and TSV. The first line identifies the separator.

use std::io::ErrorKind;

use fedsa::error::{Error, Result, quoted};

use super::shown;
use crate::decimals::Decimals;
use crate::input::{Input, Line, QUOTES, broken};

/// The first bytes of files that are not text, and their formats.
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

/// A table with its header read.
pub(super) struct Opened {
    /// At its first row.
    pub reader: csv::Reader<Line>,
    /// The names of its columns.
    pub names: Vec<String>,
    /// The notation of its numbers.
    pub decimals: Decimals,
}

/// The separators of fields.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

/// Opens a table, and reads the names of its columns.
///
/// # Errors
/// When the file is not text, cannot be uncompressed, or its first line is not separated by commas, semicolons or tabs.
pub(super) fn open(mut input: Input) -> Result<Opened> {
    const BUFFER: usize = 64 << 10;
    let start = input.peek()?;
    check_text(start)?;
    let named = named_separator(start);
    let separator = named.unwrap_or_else(|| separator(start));
    if named.is_some() {
        input.line(&mut Vec::new()).map_err(|e| broken("line 1", &e))?;
    }
    let lines = Line::new(input, separator, named.is_some());
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(BUFFER).delimiter(separator).from_reader(lines);
    let mut names: Vec<String> = header(&mut reader)?.iter().map(|name| name.trim().to_string()).collect();
    // Lines that end with separators have unnamed columns and empty fields at their end.
    while names.len() > 1 && names.last().is_some_and(String::is_empty) {
        names.pop();
    }
    if let [only] = &names[..]
        && only.contains('|')
    {
        let what = format!("line 1 has a single field, `{}`", quoted(only));
        return Err(Error::data("", what, "fields that are separated by commas, semicolons or tabs, not by '|'"));
    }
    Ok(Opened { reader, names, decimals: Decimals::of(separator) })
}

impl Opened {
    /// Reads the next line; false at the end.
    ///
    /// # Errors
    /// When it has too many or too few fields, or cannot be read.
    pub(super) fn read(&mut self, record: &mut csv::StringRecord) -> Result<bool> {
        self.reader.get_mut().begin();
        let read = self.reader.read_record(record);
        let is_row = read.map_err(|e| bad_line(&e, &self.reader, record))?;
        if is_row { self.check_tail(record).map(|()| true) } else { Ok(false) }
    }

    /// Rejects a field after the last named column.
    ///
    /// # Errors
    /// When it is not empty.
    pub(super) fn check_tail(&self, record: &csv::StringRecord) -> Result<()> {
        let Some(field) = record.iter().skip(self.names.len()).find(|field| !field.trim().is_empty()) else { return Ok(()) };
        let what = format!("line {}: `{}` is in a column without a name", line_of(&self.reader, record), quoted(field));
        Err(Error::data("", what, "a first line with a name for every column"))
    }
}

/// The separator named in the first line, as Excel writes it: `sep=;`.
fn named_separator(start: &[u8]) -> Option<u8> {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let (separator, rest) = start.strip_prefix(b"sep=")?.split_first()?;
    (SEPARATORS.contains(separator) && (rest.starts_with(b"\n") || rest.starts_with(b"\r\n"))).then_some(*separator)
}

/// The names of the columns.
fn header(reader: &mut csv::Reader<Line>) -> Result<csv::StringRecord> {
    let read = reader.headers().cloned();
    read.map_err(|e| bad_line(&e, reader, &csv::StringRecord::new()))
}

/// Rejects files that are not text, by their first bytes.
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

/// The separator of the first line: the most frequent of tabs, semicolons and commas outside quotes. On a tie, a comma comes before a
/// semicolon, and a tab last.
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

/// The line on which the last record begins; lines count from 1. Empty lines before a record are not part of it, but the reader's
/// position of a record is before them.
pub(super) fn line_of(reader: &csv::Reader<Line>, record: &csv::StringRecord) -> u64 {
    let breaks = memchr::memchr_iter(b'\n', record.as_slice().as_bytes()).count();
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

/// Whether a field spans several lines, for example because its quote is closed on a later line.
pub(super) fn spans_lines(record: &csv::StringRecord) -> bool {
    record.iter().any(|field| field.contains('\n'))
}

#[cfg(test)]
mod tests {
    use fedsa_problems::logs::source::Inputs;
    use fedsa_problems::rows::dataset::{Dataset, Rows, Wanted};

    use crate::{datasets, logs, table};

    fn set(file: &str) -> Dataset {
        datasets::from_csv(file.into(), &Wanted::default()).unwrap()
    }

    #[test]
    fn the_line_of_excel_names_the_separator() {
        let expected = set("x,y,target\n1,2,3\n");
        for file in ["sep=;\nx;y;target\n1;2;3\n", "\u{feff}sep=;\r\nx;y;target\r\n1;2;3\r\n", "sep=,\nx,y,target\n1,2,3\n"] {
            assert_eq!(set(file), expected, "{file}");
        }
        let e = datasets::from_csv("sep=;\nx;target\n1;2\nz;2\n".into(), &Wanted::default()).unwrap_err();
        assert!(e.what.starts_with("line 4, column `x`"), "{e}");
        let log = logs::from_csv("sep=;\ns_0;next_0;reward;done\n1,5;2;3;0\n".into(), Inputs::States).unwrap();
        assert_eq!(log.states, [1.5]);
    }

    #[test]
    fn separators_at_the_ends_of_all_lines_are_no_column() {
        assert_eq!(set("x,target,\n1,2,\n3,4,\n").rows, Rows::Dense { d: 1, values: vec![1.0, 3.0] });
        assert_eq!(logs::from_csv("s_0;next_0;reward;done;\n1;2;3;0;\n".into(), Inputs::States).unwrap().len(), 1);
        assert_eq!(table::from_csv("x,y,,\n1,2,,\n".into(), &table::TableForm::new(["y"])).unwrap().columns.len(), 2);
        let e = datasets::from_csv("x,target,\n1,2,\n3,4,5\n".into(), &Wanted::default()).unwrap_err();
        assert_eq!(e.what, "line 3: `5` is in a column without a name");
    }
}
