//! Rows of a table that are read at a time, from files of every format and from memory, as typed columns.

use std::collections::HashMap;

use arrow_array::{Array as _, ArrayRef};
use fedsa::error::Result;
use fedsa_problems::rows::preparation::texts::is_missing;

use crate::cells::{self, CellKind};

/// What a column is read as, where the table does not have types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    Numbers,
    Whole,
    Texts,
    /// Texts; those that are numbers with a decimal comma have a point.
    Labels,
}

/// The next rows of a table.
pub(crate) struct Batch {
    /// The columns that were asked for, in this order.
    pub columns: Vec<ArrayRef>,
    pub places: RowPlaces,
    /// Fields of text files that are not what their columns need, by row and column. In the column is then NaN or null.
    pub odd: HashMap<(usize, usize), String>,
    /// Lines that are no rows: the row that follows, the reason, and the line.
    pub unread: Vec<(usize, &'static str, u64)>,
}

/// Where rows are in the table.
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

    /// The number of the first row in the table, counted from 0; 0 where rows go by their lines.
    pub fn first_row(&self) -> usize {
        if let RowPlaces::Rows(first) = self.places { first } else { 0 }
    }

    /// Whether a row of a column has nothing: a null, or a field that says so.
    pub fn is_missing(&self, row: usize, column: usize) -> bool {
        self.odd.get(&(row, column)).map_or_else(|| self.columns[column].is_null(row), |text| is_missing(text))
    }

    /// Whether a row of a column that has no number is not just NaN: a null, another text, a whole number that no double represents.
    pub fn is_no_number(&self, row: usize, column: usize) -> bool {
        let array = &self.columns[column];
        array.is_null(row) || self.odd.contains_key(&(row, column)) || cells::kind(array.data_type()) == CellKind::Whole
    }
}

/// A table that is read from its start.
pub(crate) trait Batches {
    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// When they cannot be read. The rows before them have been given.
    fn next(&mut self) -> Result<Option<Batch>>;
}
