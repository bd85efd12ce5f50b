//! Batches of rows of a table as typed columns, from files of every format and from memory.

use std::collections::HashMap;

use arrow_array::{Array as _, ArrayRef};
use fedsa::error::Result;
use fedsa_problems::rows::preparation::texts::is_missing;

use crate::cells::{self, CellKind};

/// The type to read a column as, if the table does not have types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    Numbers,
    Whole,
    Texts,
    /// Texts; numbers with a decimal comma get a point.
    Labels,
}

/// The next rows of a table.
pub(crate) struct Batch {
    /// The requested columns, in order.
    pub columns: Vec<ArrayRef>,
    pub places: RowPlaces,
    /// Fields of text files that do not fit their columns, by row and column. The column has NaN or null there.
    pub odd: HashMap<(usize, usize), String>,
    /// Lines that are not rows: the next row, the reason, and the line.
    pub unread: Vec<(usize, &'static str, u64)>,
}

/// The positions of rows in the table.
pub(crate) enum RowPlaces {
    /// The number of the first row, from 0.
    Rows(usize),
    /// The line of each row, from 1.
    Lines(Vec<u64>),
}

impl Batch {
    /// Rows of a table with types.
    pub fn new(first: usize, columns: Vec<ArrayRef>) -> Self {
        Self { columns, places: RowPlaces::Rows(first), odd: HashMap::new(), unread: Vec::new() }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        match &self.places {
            RowPlaces::Lines(lines) => lines.len(),
            RowPlaces::Rows(_) => self.columns.first().map_or(0, |column| column.len()),
        }
    }

    /// The number of the first row in the table, from 0; 0 if rows are identified by lines.
    pub fn first_row(&self) -> usize {
        if let RowPlaces::Rows(first) = self.places { first } else { 0 }
    }

    /// Whether a row of a column has no value: a null, or a field for a missing value.
    pub fn is_missing(&self, row: usize, column: usize) -> bool {
        self.odd.get(&(row, column)).map_or_else(|| self.columns[column].is_null(row), |text| is_missing(text))
    }

    /// Whether a row without a number has something else than NaN: a null, another text, or a whole number that no double represents.
    pub fn is_no_number(&self, row: usize, column: usize) -> bool {
        let array = &self.columns[column];
        array.is_null(row) || self.odd.contains_key(&(row, column)) || cells::kind(array.data_type()) == CellKind::Whole
    }
}

/// A table read from its start.
pub(crate) trait Batches {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// When they cannot be read. Earlier rows were returned before.
    fn next(&mut self) -> Result<Option<Batch>>;
}
