//! CSV and TSV as batches of Arrow arrays.
//!
//! The reader of the Arrow project tells neither the line of a field, nor decimal commas, nor quotes that are not closed, and stops at the
//! first field of another type. Fields are therefore those of the `csv` crate; what is behind is the same as for other formats.

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

/// A table that is read line by line.
pub(crate) struct Lines {
    opened: Opened,
    wanted: Vec<(usize, As)>,
    /// The most rows of a batch.
    most: usize,
    /// Whether lines with other numbers of fields are passed over.
    skips: bool,
    record: csv::StringRecord,
    /// Whether the next line is in the record already.
    is_ahead: bool,
    /// What comes after the last batch.
    end: Option<Result<()>>,
}

/// The first row of a table.
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
    /// Reads at most `most` rows at a time, of no columns yet.
    pub(crate) fn new(opened: Opened, most: usize) -> Self {
        Self { opened, wanted: Vec::new(), most, skips: false, record: csv::StringRecord::new(), is_ahead: false, end: None }
    }

    /// Reads these columns.
    pub(crate) fn of_columns(self, wanted: Vec<(usize, As)>) -> Self {
        Self { wanted, ..self }
    }

    /// Passes over lines with other numbers of fields, if so.
    pub(crate) fn skipping(self, skips: bool) -> Self {
        Self { skips, ..self }
    }

    /// The first row, which stays the first one of the first batch.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn first(&mut self) -> Result<Option<FirstRow<'_>>> {
        self.is_ahead = self.opened.read(&mut self.record)?;
        let Opened { reader, decimals, .. } = &self.opened;
        let line = separated::line_of(reader, &self.record);
        Ok(self.is_ahead.then_some(FirstRow { record: &self.record, decimals, line }))
    }

    /// That commas were read as decimal marks, in words; `None` where there were none.
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
                    // Those of a column that may be one of numbers have the marks of the file's numbers.
                    texts.append_value(if *of == As::Labels { decimals.number(text) } else { Cow::Borrowed(text) });
                    true
                }
            };
            if !is_good {
                batch.odd.insert((row, column), text.to_string());
            }
        }
        if let Err(e) = decimals.check(|| line) {
            // What is wrong with the marks comes before what is wrong with its fields: the line is no row.
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

/// Why a line that is no record may be passed over; `None` of those that show that the whole file is not what it should be.
fn why_passed_over(e: &csv::Error, record: &csv::StringRecord) -> Option<&'static str> {
    match e.kind() {
        csv::ErrorKind::UnequalLengths { .. } if separated::spans_lines(record) => None,
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } if len < expected_len => Some("too few fields"),
        csv::ErrorKind::UnequalLengths { .. } => Some("too many fields"),
        csv::ErrorKind::Utf8 { .. } => Some("not UTF-8"),
        _ => None,
    }
}
