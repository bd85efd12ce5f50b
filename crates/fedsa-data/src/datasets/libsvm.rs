//! LIBSVM text: a line per row, `LABEL INDEX:VALUE INDEX:VALUE ..`.
//!
//! Indices count from 1, or from 0 if the index 0 occurs, and increase within a line; unlisted numbers are 0. The reader skips empty
//! lines, and the text after a `#`. Columns are called `1`, `2`, .. in their order; these are the indices if they count from 1.

use std::cell::Cell;

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::rows::dataset::{Labels, Rows, Wanted};

use super::part::{Columns, Part};
use crate::input::{self, Input, Room, broken};
use crate::store::Store;

const ACCEPTED: &str = "lines `LABEL INDEX:VALUE INDEX:VALUE ..`, with indices that increase; tables end in .csv, .csv.gz or .parquet";

/// Reads the rows of a file. Indices count from 0 if `zero_based`, or if the index 0 occurs.
///
/// # Errors
/// When a line has another form, or a number is not finite; names the line.
pub(super) fn read(store: &Store, wanted: &Wanted, zero_based: bool) -> Result<Part> {
    let mut reader = Reader::new(wanted, zero_based)?;
    let read = lines(&mut input::open(store)?, &mut reader, &mut Room::of(store.len()));
    if reader.has_zero.get() && !zero_based {
        return self::read(store, wanted, true);
    }
    read.map(|()| reader.finish())
}

fn lines(input: &mut Input, reader: &mut Reader, room: &mut Room) -> Result<()> {
    let mut line = Vec::new();
    loop {
        reader.line += 1;
        if !input.line(&mut line).map_err(|e| broken(&format!("line {}", reader.line), &e))? {
            break;
        }
        let bytes = if reader.line == 1 { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line) } else { &line };
        reader.row(bytes, room)?;
    }
    Ok(())
}

/// A column that is not a feature.
type Column = Option<u32>;

struct Reader {
    /// The index of the first column: 0 or 1.
    first: u32,
    /// Whether an index is 0 although the reader assumed that indices count from 1.
    has_zero: Cell<bool>,
    /// The number of the line, from 1.
    line: u64,
    may_lack_label: bool,
    /// Whether lines have labels, as soon as one was read.
    labelled: Option<bool>,
    /// The first empty line. In a file without labels it would be a row without features.
    empty: Option<u64>,
    /// The positions of columns that are not features, in increasing order.
    left_out: Vec<u32>,
    target: Column,
    group: Column,
    labels: Vec<f64>,
    /// The numbers in the target column, if there is one, and in the group column.
    targets: Vec<f64>,
    groups: Vec<f64>,
    /// The largest index.
    width: u32,
    starts: Vec<usize>,
    index: Vec<u32>,
    value: Vec<f64>,
}

impl Reader {
    fn new(wanted: &Wanted, zero_based: bool) -> Result<Self> {
        let column = |name: &String| match name.parse::<u32>() {
            Ok(i) if i > 0 => Ok(i - 1),
            _ => Err(Error::data(
                "",
                format!("there is no column `{}`", quoted(name)),
                "a number: this is read as LIBSVM, whose columns are 1, 2, ..; tables have the extension .csv, .tsv or .parquet",
            )),
        };
        let target = wanted.target.as_ref().filter(|name| !["label", "target"].contains(&name.as_str())).map(column).transpose()?;
        let group = wanted.group.as_ref().map(column).transpose()?;
        let mut left_out = wanted.drop.iter().map(column).collect::<Result<Vec<_>>>()?;
        left_out.extend(target.into_iter().chain(group));
        left_out.sort_unstable();
        left_out.dedup();
        Ok(Self {
            first: u32::from(!zero_based),
            has_zero: Cell::new(false),
            line: 0,
            may_lack_label: wanted.may_lack_target || target.is_some(),
            labelled: None,
            empty: None,
            left_out,
            target,
            group,
            labels: Vec::new(),
            targets: Vec::new(),
            groups: Vec::new(),
            width: 0,
            starts: vec![0],
            index: Vec::new(),
            value: Vec::new(),
        })
    }

    fn bad(&self, what: impl std::fmt::Display) -> Error {
        Error::data("", format!("line {}: {what}", self.line), ACCEPTED)
    }

    /// Rejects empty lines in files without labels, where they could be rows without features.
    fn no_empty_rows(&self) -> Result<()> {
        match (self.labelled, self.empty) {
            (Some(false), Some(line)) => {
                let what = format!("line {line} is empty, and lines have no labels: it could be a row without features");
                Err(Error::data("", what, "a label on every line, such as 0, or no empty lines"))
            }
            _ => Ok(()),
        }
    }

    /// Adds the row of a line, if the line is a row.
    fn row(&mut self, line: &[u8], room: &mut Room) -> Result<()> {
        let end = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
        let is_empty = end == line.len();
        let mut rest = &line[..end];
        let Some((part, after)) = next_part(rest) else {
            if is_empty {
                self.empty.get_or_insert(self.line);
            }
            return self.no_empty_rows();
        };
        let has_label = !part.contains(&b':');
        if has_label {
            let label = self.label(part)?;
            self.labels.push(label);
            rest = after;
        } else if !self.may_lack_label {
            return Err(self.bad(format_args!("`{}` stands where a label is expected", text(part))));
        }
        if *self.labelled.get_or_insert(has_label) != has_label {
            let (this, others) = if has_label { ("a label", "none") } else { ("no label", "one") };
            return Err(self.bad(format_args!("it has {this}, but the lines above have {others}")));
        }
        self.no_empty_rows()?;
        let (mut next, mut target, mut group) = (0, 0.0, 0.0);
        while let Some((column, value)) = self.next_number(&mut rest)? {
            if column < next {
                let what = format!(
                    "index {} after index {}: indices increase, and each is there once",
                    column + self.first,
                    next - 1 + self.first
                );
                return Err(self.bad(what));
            }
            next = column + 1;
            self.width = self.width.max(next);
            if self.left_out.is_empty() {
                self.push(column, value);
                continue;
            }
            if self.target == Some(column) {
                target = value;
            }
            if self.group == Some(column) {
                group = value;
            }
            if let Err(before) = self.left_out.binary_search(&column) {
                self.push(column - before as u32, value);
            }
        }
        if self.target.is_some() {
            self.targets.push(target);
        }
        if self.group.is_some() {
            self.groups.push(group);
        }
        let numbers = self.index.len() - self.starts[self.starts.len() - 1];
        self.starts.push(self.index.len());
        let line = self.line;
        room.take(2 * (12 * numbers + 32), || format!("line {line}"))
    }

    fn push(&mut self, column: u32, value: f64) {
        if value != 0.0 {
            self.index.push(column);
            self.value.push(value);
        }
    }

    fn label(&self, part: &[u8]) -> Result<f64> {
        let number: Option<f64> = std::str::from_utf8(part).ok().and_then(|text| text.parse().ok());
        match number {
            Some(x) if x.is_finite() => Ok(x),
            _ if part.contains(&b',') => {
                Err(self
                    .bad(format_args!("`{}`: several labels of a row are not read, nor are tables without the extension .csv", text(part))))
            }
            _ => Err(self.bad(format_args!("the label `{}` is not a finite number", text(part)))),
        }
    }

    /// The position of the next column, and its number; `rest` becomes the remaining text.
    fn next_number(&self, rest: &mut &[u8]) -> Result<Option<(u32, f64)>> {
        if let Some((column, value, after)) = whole_number(rest, self.first) {
            *rest = after;
            return Ok(Some((column, value)));
        }
        let Some((part, after)) = next_part(rest) else { return Ok(None) };
        *rest = after;
        self.number(part).map(Some)
    }

    /// The position of the column, and the number, of `INDEX:VALUE`.
    fn number(&self, part: &[u8]) -> Result<(u32, f64)> {
        let Some(colon) = part.iter().position(|byte| *byte == b':') else {
            return Err(self.bad(format_args!("`{}` is not INDEX:VALUE", text(part))));
        };
        let (index, value) = (&part[..colon], &part[colon + 1..]);
        if index == b"qid" {
            let what = format!("line {}: `{}` makes it a file of rankings, which are not read", self.line, text(part));
            return Err(Error::data("", what, "a file for classification or regression, without qid"));
        }
        let column = match decimal(index) {
            Some(index) => match index.checked_sub(self.first) {
                Some(column) => column,
                None => {
                    self.has_zero.set(true);
                    return Err(self.bad("the index 0"));
                }
            },
            None => return Err(self.bad(format_args!("`{}`: the index is not a whole number below 2^32", text(part)))),
        };
        // In most files of this format most numbers are 1.
        let number = match value {
            b"1" => Some(1.0),
            _ => std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).filter(|x: &f64| x.is_finite()),
        };
        let not = || {
            let value = if value.is_empty() { "an empty field".into() } else { format!("`{}`", text(value)) };
            let what = format!("line {}, column {}: {value} is not a finite number", self.line, column + 1);
            Error::data("", what, "finite numbers: leave such rows out")
        };
        number.ok_or_else(not).map(|number| (column, number))
    }

    fn finish(self) -> Part {
        let targets = match (self.target, self.labelled) {
            (Some(_), _) => Some(self.targets),
            (None, Some(true)) => Some(self.labels),
            (None, _) => None,
        };
        Part {
            columns: Columns::Numbered {
                width: self.width as usize,
                zero_based: self.first == 0,
                left_out: self.left_out.iter().map(|column| *column as usize).collect(),
            },
            rows: Rows::Sparse { d: 0, starts: self.starts, index: self.index, value: self.value },
            lacking: Vec::new(),
            targets: targets.map(Labels::Numbers),
            groups: self.group.map(|_| Labels::Numbers(self.groups)),
            texts: Vec::new(),
            decimal_comma: None,
        }
    }
}

/// The next part of a line and the rest, if there is one.
fn next_part(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = line.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let line = &line[start..];
    Some(line.split_at(line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len())))
}

/// A whole number of at most nine digits, which fit into 32 bits, and the rest.
fn digits(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let count = bytes.iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
    let number = bytes[..count].iter().fold(0, |number, byte| 10 * number + u32::from(byte - b'0'));
    (count > 0).then_some((number, &bytes[count..]))
}

/// The column and the number of an `INDEX:VALUE` of short whole numbers, after at most one space, and the rest. This is the usual case,
/// in one pass over its bytes; [`Reader::number`] handles all others.
fn whole_number(rest: &[u8], first: u32) -> Option<(u32, f64, &[u8])> {
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let (index, rest) = digits(rest)?;
    let (value, rest) = digits(rest.strip_prefix(b":")?)?;
    let ends = rest.first().is_none_or(u8::is_ascii_whitespace);
    if ends { Some((index.checked_sub(first)?, f64::from(value), rest)) } else { None }
}

/// A part of a line in a message.
fn text(part: &[u8]) -> String {
    quoted(String::from_utf8_lossy(&part[..part.len().min(400)]))
}

/// A whole number of decimal digits.
fn decimal(digits: &[u8]) -> Option<u32> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u32::from(byte - b'0'));
    let step = |number: u32, byte: &u8| number.checked_mul(10)?.checked_add(digit(byte)?);
    if digits.is_empty() { None } else { digits.iter().try_fold(0, step) }
}

/// Whether the start of a file looks like this format: the first row is a number and, if it has more parts, `INDEX:VALUE`.
pub(super) fn looks_so(start: &[u8]) -> bool {
    let mut lines = start.split_inclusive(|byte| *byte == b'\n');
    let Some(line) = lines.find(|line| !line.iter().all(u8::is_ascii_whitespace) && line[0] != b'#') else { return false };
    let parts: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()).collect();
    let is_number = |part: &[u8]| std::str::from_utf8(part).is_ok_and(|text| text.parse::<f64>().is_ok());
    let is_pair = |part: &[u8]| part.iter().position(|byte| *byte == b':').is_some_and(|colon| decimal(&part[..colon]).is_some());
    parts.first().is_some_and(|first| is_number(first)) && parts.get(1).is_none_or(|second| is_pair(second))
}

#[cfg(test)]
mod tests {
    use fedsa::cancel::Cancel;

    use super::*;
    use crate::datasets;
    use crate::find::Places;

    #[test]
    fn indices_may_count_from_zero() {
        let rows = |file: &str| datasets::from_libsvm(file.into(), &Wanted::default()).unwrap().rows;
        assert_eq!(rows("1 1:2 3:4\n-1 0:5\n"), rows("1 2:2 4:4\n-1 1:5\n"));
    }

    #[test]
    fn files_count_from_zero_if_one_of_them_does() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [("a.libsvm", "1 1:2\n"), ("b.libsvm", "1 0:1 2:3\n")].map(|(name, text)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        });
        let sets = datasets::read(&paths, &Places::from_env(""), &Wanted::default(), &Cancel::never()).unwrap();
        assert_eq!(sets[0].1.rows, Rows::Sparse { d: 3, starts: vec![0, 1], index: vec![1], value: vec![2.0] });
    }
}
