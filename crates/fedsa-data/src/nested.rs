//! Columns of lists and of structures, which become several columns.
//!
//! Lists of numbers, such as robot observations, become a column for each position of the list: `observation.state` gives
//! `observation.state_0`, `observation.state_1`, .. The list in the first row decides the number of columns. A field of structures
//! becomes a column `structure.field`.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::DataType;
use fedsa::error::{Error, Result};

use crate::cells::{self, CellKind};

/// The length of the longest lists that become columns.
const MAX_ITEMS: usize = 1 << 16;

/// Whether a column of this type holds lists of numbers.
pub(crate) fn has_lists(of: &DataType) -> bool {
    match of {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            matches!(cells::kind(item.data_type()), CellKind::Numbers | CellKind::Whole)
        }
        _ => false,
    }
}

/// The number of columns that lists become: the length of the first list. `None` if it is empty or longer than [`MAX_ITEMS`].
pub(crate) fn width(lists: &dyn Array) -> Option<usize> {
    let of = if lists.is_empty() { 0 } else { list(lists, 0).1 };
    (1..=MAX_ITEMS).contains(&of).then_some(of)
}

/// The start of a row's list among the numbers of all lists, and its length.
fn list(lists: &dyn Array, row: usize) -> (usize, usize) {
    match lists.data_type() {
        DataType::List(_) => {
            let offsets = lists.as_list::<i32>().value_offsets();
            (offsets[row] as usize, (offsets[row + 1] - offsets[row]) as usize)
        }
        DataType::LargeList(_) => {
            let offsets = lists.as_list::<i64>().value_offsets();
            (offsets[row] as usize, (offsets[row + 1] - offsets[row]) as usize)
        }
        _ => {
            let all = lists.as_fixed_size_list();
            (all.value_offset_at(row), all.value_length() as usize)
        }
    }
}

/// The numbers of lists of length `of`, list by list; NaN for a list that is null. `first` is the number of the first row, for messages.
///
/// # Errors
/// When a list has another length than `of`.
pub(crate) fn numbers(lists: &dyn Array, of: usize, first: usize) -> Result<Vec<f64>> {
    let values = match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().values(),
        DataType::LargeList(_) => lists.as_list::<i64>().values(),
        _ => lists.as_fixed_size_list().values(),
    };
    let mut numbers = vec![f64::NAN; lists.len() * of];
    // Lists that are consecutive in memory are read at once.
    let mut row = 0;
    while row < lists.len() {
        let (start, _) = list(lists, row);
        let mut end = row;
        while end < lists.len() && lists.is_valid(end) && list(lists, end) == (start + (end - row) * of, of) {
            end += 1;
        }
        if end > row {
            cells::numbers(&*values.slice(start, (end - row) * of), &mut numbers[row * of..end * of])?;
            row = end;
        } else if lists.is_null(row) {
            row += 1;
        } else {
            let what = format!("row {} is a list of {} numbers, and row 0 one of {of}", first + row, list(lists, row).1);
            return Err(Error::data("", what, "lists of equal length, which become columns"));
        }
    }
    Ok(numbers)
}

/// The column of position `at` of lists of length `of`, from the numbers of all lists.
pub(crate) fn item(lists: &dyn Array, numbers: &[f64], at: usize, of: usize) -> ArrayRef {
    let column: Vec<f64> = numbers.iter().skip(at).step_by(of).copied().collect();
    Arc::new(Float64Array::new(column.into(), lists.nulls().cloned()))
}

/// The name of the column of a position of lists.
pub(crate) fn item_name(name: &str, at: usize) -> String {
    format!("{name}_{at}")
}

/// The name of the column of a field of structures.
pub(crate) fn field_name(name: &str, field: &str) -> String {
    format!("{name}.{field}")
}

/// The columns of an array.
///
/// # Errors
/// When lists have different lengths.
pub(crate) fn columns_of(name: &str, array: &ArrayRef) -> Result<Vec<(String, ArrayRef)>> {
    if let DataType::Struct(fields) = array.data_type() {
        // `flatten` makes the fields of a structure null where the structure is null.
        let parts = array.as_struct().clone().flatten().1;
        let inner = fields.iter().zip(&parts).map(|(field, part)| columns_of(&field_name(name, field.name()), part));
        return Ok(inner.collect::<Result<Vec<_>>>()?.concat());
    }
    let Some(of) = has_lists(array.data_type()).then(|| width(array)).flatten() else { return Ok(vec![(name.into(), array.clone())]) };
    let numbers = numbers(array, of, 0).map_err(|e| cells::in_column(name, e))?;
    Ok((0..of).map(|at| (item_name(name, at), item(array, &numbers, at, of))).collect())
}
