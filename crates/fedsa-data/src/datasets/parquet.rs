//! Parquet tables: columns of numbers, and of text for target and group.

use arrow_array::ArrayRef;
use fedsa::error::{Error, Result, quoted};
use fedsa::problem::dataset::{Labels, Rows, Wanted};

use super::labels::Fields;
use super::layout::Layout;
use super::part::{Columns, NUMBERS, Part, not_finite};
use super::texts;
use crate::cells::{self, CellKind};
use crate::input::Room;
use crate::parquet::{ParquetFile, contained};
use crate::store::Store;

/// The number of rows that are read of each column at a time.
const BATCH: usize = 4096;

/// Reads a table.
///
/// # Errors
/// When it is not a Parquet file, a column is missing or of the wrong type, or a number is missing or not finite.
pub(super) fn read(store: &Store, wanted: &Wanted, expected: Option<&[String]>, room: &mut Room) -> Result<Part> {
    contained(store.clone(), |file| {
        let names = file.names();
        let layout = Layout::new(&names, wanted, expected)?;
        let (n, d) = (file.rows(), layout.columns.len());
        room.take(n.saturating_mul(d).saturating_mul(size_of::<f64>()), || format!("its {n} rows of {d} features"))?;
        let role = |i: usize| match () {
            () if layout.target == Some(i) => Role::Target,
            () if layout.group == Some(i) || wanted.categorical.contains(&names[i]) => Role::Levels,
            () => Role::Feature,
        };
        let places: Vec<usize> = layout.features.iter().copied().chain(layout.target).chain(layout.group).collect();
        let mut columns = places.iter().map(|i| Column::new(file, *i, &names[*i], role(*i))).collect::<Result<Vec<_>>>()?;
        let mut values = vec![0.0; n * d];
        let mut batches = file.batches(&places, BATCH)?;
        let mut first = 0;
        while let Some(batch) = batches.next_columns()? {
            let rows = batch.first().map_or(0, |column| column.len());
            for (j, (column, array)) in columns.iter_mut().zip(&batch).enumerate() {
                column.add(array, first, room)?;
                if let (Cells::Numbers(numbers), true) = (&mut column.cells, j < d) {
                    let cells = values[first * d..(first + rows) * d].iter_mut().skip(j).step_by(d);
                    cells.zip(&*numbers).for_each(|(cell, x)| *cell = *x);
                    numbers.clear();
                }
            }
            first += rows;
        }
        let mut labels = columns.split_off(d).into_iter().map(Column::labels);
        let (targets, groups) = (layout.target.and_then(|_| labels.next()), layout.group.and_then(|_| labels.next()));
        let of_text = columns.into_iter().map(Column::texts).collect();
        let texts = texts::fill(&layout.columns, of_text, &mut values);
        Ok(Part {
            columns: Columns::Named(layout.columns),
            rows: Rows::Dense { d, values },
            targets,
            groups,
            texts,
            decimal_comma: None,
            lacking: layout.lacking,
        })
    })
}

/// A column that is read, with its rows so far.
struct Column<'a> {
    name: &'a str,
    cells: Cells,
}

/// What a column is.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Feature,
    Target,
    /// A group or a category.
    Levels,
}

enum Cells {
    /// Of a feature only those of the last batch.
    Numbers(Vec<f64>),
    Texts(Fields),
}

impl<'a> Column<'a> {
    fn new(file: &ParquetFile, i: usize, name: &'a str, role: Role) -> Result<Self> {
        let data_type = file.data_type(i);
        let cells = match (cells::kind(data_type), role) {
            (CellKind::Texts, Role::Target) => Cells::Texts(Fields::new()),
            // Ids have more digits than doubles.
            (CellKind::Texts, _) | (CellKind::Whole, Role::Levels) => Cells::Texts(Fields::levels()),
            (CellKind::Numbers | CellKind::Whole, _) => Cells::Numbers(Vec::new()),
            (CellKind::Other, _) => {
                let e = file.in_column(i, cells::wrong_type(data_type, "numbers or of texts"));
                return Err(if role == Role::Target { e } else { e.helped(NUMBERS) });
            }
        };
        Ok(Self { name, cells })
    }

    /// Adds rows, the first of which is row `first`, counted from 0; messages count from 1.
    fn add(&mut self, array: &ArrayRef, first: usize, room: &mut Room) -> Result<()> {
        let name = self.name;
        let inside = |e: Error| e.about("").prefixed(format!("column `{}`", quoted(name)));
        let place = |row: usize| format!("row {}, column `{}`", first + row + 1, quoted(name));
        match &mut self.cells {
            Cells::Numbers(numbers) => {
                let start = numbers.len();
                numbers.resize(start + array.len(), 0.0);
                cells::all_numbers(array, first + 1, &mut numbers[start..]).map_err(inside)?;
                match numbers[start..].iter().position(|x| !x.is_finite()) {
                    Some(row) => Err(not_finite(&place(row), &numbers[start + row].to_string(), NUMBERS)),
                    None => Ok(()),
                }
            }
            Cells::Texts(fields) => {
                let mut add = |row: usize, text: Option<&str>| {
                    let number = first + row + 1;
                    fields.push(text.ok_or_else(|| cells::null_row(number))?, room, || format!("row {number}"))
                };
                if cells::kind(array.data_type()) == CellKind::Texts {
                    return cells::each_text(array, first + 1, add).map_err(inside);
                }
                let mut row = 0;
                cells::each_whole(array, |whole| {
                    add(row, whole.map(|whole| whole.to_string()).as_deref())?;
                    row += 1;
                    Ok(())
                })
                .map_err(inside)
            }
        }
    }

    /// A target or a group.
    fn labels(self) -> Labels {
        match self.cells {
            Cells::Numbers(numbers) => Labels::Numbers(numbers),
            Cells::Texts(fields) => fields.finish(),
        }
    }

    /// A feature, if it is one of text.
    fn texts(self) -> Option<Labels> {
        match self.cells {
            Cells::Numbers(_) => None,
            Cells::Texts(fields) => Some(fields.finish()),
        }
    }
}
