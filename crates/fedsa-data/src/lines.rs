//! CSV and TSV as batches of Arrow arrays.
//!
//! The CSV reader of the Arrow project reports neither lines of fields, decimal commas nor open quotes, and stops at the first field of
//! another type. So the `csv` crate splits the fields; later steps are the same as for other formats.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Float64Array, Int64Array};
use fedsa::error::Result;

use crate::batch::{As, Batch, Batches, RowPlaces};
use crate::decimals::Decimals;
use crate::field;
use crate::separated::{self, Opened};

/// A table read line by line.
pub(crate) struct Lines {
    opened: Opened,
    wanted: Vec<(usize, As)>,
    /// The most rows of a batch.
    most: usize,
    /// Whether lines with another number of fields are skipped.
    skips: bool,
    record: csv::StringRecord,
    /// Whether the record already has the next line.
    is_ahead: bool,
    /// The result after the last batch.
    end: Option<Result<()>>,
}

pub(crate) struct FirstRow<'a> {
    pub record: &'a csv::StringRecord,
    pub decimals: &'a Decimals,
    pub line: u64,
}

/// The rows of a column so far.
enum Cells {
    Numbers(Vec<f64>),
    Whole(Vec<Option<i64>>),
    Texts(StringBuilder),
}

impl Cells {
    fn new(of: As) -> Self {
        match of {
            As::Numbers => Self::Numbers(Vec::new()),
            As::Whole => Self::Whole(Vec::new()),
            As::Texts | As::Labels => Self::Texts(StringBuilder::new()),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Numbers(numbers) => Arc::new(Float64Array::from(numbers)),
            Self::Whole(numbers) => Arc::new(Int64Array::from(numbers)),
            Self::Texts(mut texts) => Arc::new(texts.finish()),
        }
    }
}

impl Lines {
    /// Reads at most `most` rows at a time; no columns are selected yet.
    pub(crate) fn new(opened: Opened, most: usize) -> Self {
        Self { opened, wanted: Vec::new(), most, skips: false, record: csv::StringRecord::new(), is_ahead: false, end: None }
    }

    /// Reads these columns.
    pub(crate) fn of_columns(self, wanted: Vec<(usize, As)>) -> Self {
        Self { wanted, ..self }
    }

    /// Skips lines with another number of fields, if `skips`.
    pub(crate) fn skipping(self, skips: bool) -> Self {
        Self { skips, ..self }
    }

    /// The first row, which remains part of the first batch.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn first(&mut self) -> Result<Option<FirstRow<'_>>> {
        self.is_ahead = self.opened.read(&mut self.record)?;
        let Opened { reader, decimals, .. } = &self.opened;
        let line = separated::line_of(reader, &self.record);
        Ok(self.is_ahead.then_some(FirstRow { record: &self.record, decimals, line }))
    }

    /// A message that commas were read as decimal marks; `None` if there were none.
    pub(crate) fn decimal_comma(&self) -> Option<String> {
        self.opened.decimals.comma()
    }

    /// Reads the next line into `cells`; false at the end.
    fn read_line(&mut self, cells: &mut [Cells], batch: &mut Batch) -> Result<bool> {
        let RowPlaces::Lines(lines) = &mut batch.places else { return Ok(false) };
        if !mem::take(&mut self.is_ahead) {
            let Opened { reader, decimals, .. } = &mut self.opened;
            reader.get_mut().begin();
            match reader.read_record(&mut self.record) {
                Ok(false) => return decimals.finish().map(|()| false),
                Ok(true) => (),
                Err(e) => {
                    let Some(reason) = why_passed_over(&e, &self.record).filter(|_| self.skips) else {
                        return Err(separated::bad_line(&e, reader, &self.record));
                    };
                    batch.unread.push((lines.len(), reason, separated::line_of(reader, &self.record)));
                    return Ok(true);
                }
            }
        }
        self.opened.check_tail(&self.record)?;
        let Opened { reader, decimals, .. } = &self.opened;
        let line = separated::line_of(reader, &self.record);
        let row = lines.len();
        lines.push(line);
        // Fields are trimmed here, because the reader would copy every line to trim it.
        for (column, (cells, (i, of))) in cells.iter_mut().zip(&self.wanted).enumerate() {
            let text = self.record[*i].trim();
            let is_good = match cells {
                Cells::Numbers(numbers) => {
                    let plain = decimals.number(text);
                    let number = field::number(&plain).filter(|_| field::check_exact(&plain).is_ok());
                    numbers.push(number.unwrap_or(f64::NAN));
                    number.is_some()
                }
                Cells::Whole(numbers) => {
                    let number = text.parse().ok().or_else(|| field::number(&decimals.number(text)).and_then(field::whole_number));
                    numbers.push(number);
                    number.is_some()
                }
                Cells::Texts(texts) => {
                    // In a column that may hold numbers, texts get decimal points too.
                    texts.append_value(if *of == As::Labels { decimals.number(text) } else { Cow::Borrowed(text) });
                    true
                }
            };
            if !is_good {
                batch.odd.insert((row, column), text.to_string());
            }
        }
        if let Err(e) = decimals.check(|| line) {
            // An error about decimal marks comes before errors about fields: the line is not a row.
            lines.pop();
            batch.odd.retain(|(other, _), _| *other != row);
            return Err(e);
        }
        Ok(true)
    }
}

impl Batches for Lines {
    fn next(&mut self) -> Result<Option<Batch>> {
        if let Some(end) = self.end.take() {
            self.end = Some(Ok(()));
            return end.map(|()| None);
        }
        let mut cells: Vec<Cells> = self.wanted.iter().map(|(_, of)| Cells::new(*of)).collect();
        let mut batch = Batch { columns: Vec::new(), places: RowPlaces::Lines(Vec::new()), odd: HashMap::new(), unread: Vec::new() };
        while self.end.is_none() && batch.len() < self.most {
            match self.read_line(&mut cells, &mut batch) {
                Ok(true) => (),
                Ok(false) => self.end = Some(Ok(())),
                Err(e) => self.end = Some(Err(e)),
            }
        }
        batch.columns = mem::take(&mut cells).into_iter().map(|cells| cells.finish().slice(0, batch.len())).collect();
        Ok(Some(batch))
    }
}

/// The reason for skipping a line that is not a record; `None` if the error shows that the whole file is invalid.
fn why_passed_over(e: &csv::Error, record: &csv::StringRecord) -> Option<&'static str> {
    match e.kind() {
        csv::ErrorKind::UnequalLengths { .. } if separated::spans_lines(record) => None,
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } if len < expected_len => Some("too few fields"),
        csv::ErrorKind::UnequalLengths { .. } => Some("too many fields"),
        csv::ErrorKind::Utf8 { .. } => Some("not UTF-8"),
        _ => None,
    }
}
