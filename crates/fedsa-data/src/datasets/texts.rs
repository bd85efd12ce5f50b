//! Columns of tables that hold text: categories.

use fedsa::error::{Error, Result};
use fedsa::problem::dataset::{Labels, TextColumn, Wanted};
use fedsa::problem::preparation::texts::{disguise, is_missing};

use super::labels::Fields;
use super::layout::Layout;
use super::part::{NUMBERS, not_number};
use crate::field;
use crate::input::Room;

/// The columns of text among the features of a table.
pub(super) struct TextFields {
    /// For each feature what is collected of it, if it is one of text.
    fields: Vec<Option<Fields>>,
    /// Of columns that are some because their first field is no number, that field with its line, for messages.
    detected: Vec<Option<String>>,
}

impl TextFields {
    /// Those that are named as categories.
    pub(super) fn new(layout: &Layout, wanted: &Wanted) -> Self {
        let of = |name: &String| wanted.categorical.contains(name).then(Fields::levels);
        let fields = layout.columns.iter().map(of).collect();
        Self { fields, detected: vec![None; layout.columns.len()] }
    }

    /// Looks at the first row, which is on this line: features whose field is a text there are columns of text.
    pub(super) fn detect<'a>(&mut self, line: u64, first: impl Fn(usize) -> &'a str, is_text: impl Fn(&str) -> bool) {
        for (j, fields) in self.fields.iter_mut().enumerate() {
            let text = first(j);
            if fields.is_none() && is_text(text) {
                *fields = Some(Fields::levels());
                self.detected[j] = Some(format!("{} in line {line}", field::in_words(text)));
            }
        }
    }

    /// Whether feature j is one of text, and then takes its field.
    ///
    /// # Errors
    /// When the field is empty, or a number in a column that was not named as one of categories.
    pub(super) fn push(&mut self, j: usize, field: &str, room: &mut Room, place: impl Fn() -> String) -> Result<bool> {
        let Some(fields) = &mut self.fields[j] else { return Ok(false) };
        if let Some(first) = self.detected[j].as_ref().filter(|_| !is_text(field)) {
            if is_missing(field) || disguise(field).is_some() {
                return Err(not_number(&place(), field));
            }
            let what = format!("{}: {} in a column that begins with a text, {first}", place(), field::in_words(field));
            return Err(Error::data("", what, format!("{NUMBERS}; or name the column as one of categories: `categorical`")));
        }
        fields.push(field, room, place)?;
        Ok(true)
    }

    /// The columns of text, as [`fill`].
    pub(super) fn finish(self, columns: &[String], values: &mut [f64]) -> Vec<TextColumn> {
        fill(columns, self.fields.into_iter().map(|fields| fields.map(Fields::finish)).collect(), values)
    }
}

/// The columns of text; values, row by row, get the positions of their names. Columns of numbers get these.
pub(super) fn fill(columns: &[String], of: Vec<Option<Labels>>, values: &mut [f64]) -> Vec<TextColumn> {
    let (d, mut texts) = (columns.len(), Vec::new());
    for (j, labels) in of.into_iter().enumerate() {
        let cells = values.iter_mut().skip(j).step_by(d);
        match labels {
            None => {}
            Some(Labels::Numbers(numbers)) => cells.zip(numbers).for_each(|(cell, x)| *cell = x),
            Some(Labels::Names { names, of }) => {
                cells.zip(of).for_each(|(cell, i)| *cell = f64::from(i));
                texts.push(TextColumn { column: columns[j].clone(), names });
            }
        }
    }
    texts
}

/// Whether a field is a text, and neither a number with a decimal point nor missing.
pub(super) fn is_text(text: &str) -> bool {
    field::number(text).is_none() && text.parse::<f64>().is_err() && !is_missing(text) && disguise(text).is_none()
}
