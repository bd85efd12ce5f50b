//! Logs in CSV: a transition on each line.

use std::io::{self, Read};

use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::source::Inputs;

use super::layout::{FLAGS, Layout, WHOLE, flag, whole_number};
use super::ratios::{BEHAVIOUR, RATIO, RatioColumns, TARGET, quotient, ratio};
use crate::store::{Store, StoreReader};
use crate::{field, shown};

/// The longest line of a CSV, in bytes: a line is in memory as a whole.
const LONGEST_LINE: usize = 64 << 20;

/// What is read of a CSV until [`Line::begin`]: at most [`LONGEST_LINE`] bytes.
pub(super) struct Line {
    file: StoreReader,
    left: usize,
}

impl Line {
    fn begin(&mut self) {
        self.left = LONGEST_LINE;
    }
}

impl Read for Line {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {LONGEST_LINE} bytes")));
        }
        let most = out.len().min(self.left);
        let read = self.file.read(&mut out[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// Opens a CSV, and reads the names of its columns.
pub(super) fn open_csv(file: &Store) -> Result<(csv::Reader<Line>, Vec<String>)> {
    const BUFFER: usize = 64 << 10;
    let line = Line { file: file.reader_at(0), left: LONGEST_LINE };
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(BUFFER).from_reader(line);
    let names: Vec<String> = reader.headers().map_err(|e| bad_line(&e, 1))?.iter().map(|name| name.trim().to_string()).collect();
    if let [only] = &names[..]
        && let Some(separator) = [';', '\t', '|'].into_iter().find(|c| only.contains(*c))
    {
        let what = format!("line 1 has a single field, `{}`", quoted(only));
        return Err(Error::data("", what, format!("fields that are separated by commas, not by {separator:?}")));
    }
    Ok((reader, names))
}

pub(super) fn read_csv(file: &Store, inputs: Inputs, name: &str, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
    let (mut reader, names) = open_csv(file)?;
    let layout = Layout::new(&names, inputs)?;
    let most = layout.batch(most);
    let mut log = layout.empty(name);
    let mut record = csv::StringRecord::new();
    loop {
        reader.get_mut().begin();
        if !reader.read_record(&mut record).map_err(|e| bad_line(&e, reader.position().line()))? {
            break;
        }
        add_record(&mut log, &layout, &names, &record)?;
        if log.len() == most {
            see(&log)?;
            clear(&mut log);
        }
    }
    if log.is_empty() { Ok(()) } else { see(&log) }
}

/// Adds the transition of a line.
fn add_record(log: &mut Log, layout: &Layout, names: &[String], record: &csv::StringRecord) -> Result<()> {
    // The reader has checked that every line has a field for every name. Fields are trimmed here, because the reader would
    // copy every line to trim it.
    let text = |i: usize| record[i].trim();
    let not = |i: usize, wanted: &str| {
        let (line, what) = (record.position().map_or(0, csv::Position::line), field::in_words(text(i)));
        Error::data("", format!("line {line}, column `{}`: {what} is not {wanted}", quoted(&names[i])), format!("{wanted} on every line"))
    };
    let finite = |i: usize| field::number(text(i));
    let number = |i: usize| finite(i).ok_or_else(|| not(i, "a finite number"));
    for &i in &layout.states {
        log.states.push(number(i)?);
    }
    for &i in &layout.next {
        log.next.push(number(i)?);
    }
    log.rewards.push(number(layout.reward)?);
    log.done.push(match text(layout.done) {
        text if text.eq_ignore_ascii_case("true") => true,
        text if text.eq_ignore_ascii_case("false") => false,
        text => text.parse().ok().and_then(flag).ok_or_else(|| not(layout.done, FLAGS))?,
    });
    if let (Some(i), Some(episodes)) = (layout.episode, &mut log.episode) {
        episodes.push(finite(i).and_then(whole_number).ok_or_else(|| not(i, WHOLE))?);
    }
    if let (Some(i), Some(ratios)) = (layout.ratio, &mut log.ratio) {
        ratios.push(match i {
            RatioColumns::Ratio(i) => finite(i).and_then(ratio).ok_or_else(|| not(i, RATIO))?,
            RatioColumns::Probabilities { target, behaviour } => {
                let of = |i: usize, wanted: &str| finite(i).ok_or_else(|| not(i, wanted));
                let found = quotient(of(target, TARGET)?, of(behaviour, BEHAVIOUR)?);
                found.map_err(|(place, wanted)| not([target, behaviour][place], wanted))?
            }
        });
    }
    Ok(())
}

/// Removes the transitions; their memory is used again.
fn clear(log: &mut Log) {
    [&mut log.states, &mut log.next, &mut log.rewards].into_iter().chain(&mut log.ratio).for_each(Vec::clear);
    log.done.clear();
    log.episode.iter_mut().for_each(Vec::clear);
}

/// An error of the CSV reader; `line` is where the reader is.
pub(crate) fn bad_line(e: &csv::Error, line: u64) -> Error {
    let line = e.position().map_or(line, csv::Position::line);
    match e.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Error::data("", format!("line {line}: {len} fields, but the header has {expected_len}"), "as many fields on every line")
        }
        csv::ErrorKind::Utf8 { .. } => Error::data("", format!("line {line}: not UTF-8"), "text in UTF-8"),
        _ => Error::data("", format!("line {line}: {}", shown(e)), "comma-separated values with a header"),
    }
}
