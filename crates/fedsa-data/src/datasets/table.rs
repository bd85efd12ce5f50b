//! Reads tables of every format as rows: selects features, targets, groups and categories among the columns, and checks their fields.

use arrow_schema::DataType;
use fedsa::error::{Error, Result, quoted};
use fedsa_problems::rows::dataset::{Labels, Rows, TextColumn, Wanted};
use fedsa_problems::rows::preparation::texts::no_category;

use super::labels::Fields;
use super::layout::Layout;
use super::part::{Columns, NUMBERS, Part, not_finite, not_number};
use crate::batch::{As, Batch, Batches, RowPlaces};
use crate::cells::{self, CellKind, in_column};
use crate::field;
use crate::input::{Input, Room};
use crate::lines::Lines;
use crate::memory::MemoryTable;
use crate::parquet::contained;
use crate::separated;
use crate::store::Store;

/// The number of rows read at a time.
const BATCH: usize = 4096;

/// The use of a column.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Feature,
    Target,
    /// A group, or a column that the caller names as categorical.
    Levels,
}

/// A column to read: its position in the table, its name, and its use.
struct Wish<'a> {
    place: usize,
    name: &'a str,
    role: Role,
}

/// The type of a column's cells.
enum Kind {
    Numbers,
    /// Texts. If the first field of a column in a text file decided this, it is stored with its line.
    Texts(Option<String>),
}

/// A table ready to read.
struct Opened<T> {
    batches: T,
    /// The type of each column.
    kinds: Vec<Kind>,
    /// The number of rows, if it is known.
    rows: Option<usize>,
}

/// Reads a CSV or TSV file.
///
/// # Errors
/// When a column is missing, a line has too many or too few fields, or a field of a feature is not a finite number.
pub(super) fn of_lines(input: Input, wanted: &Wanted, expected: Option<&[String]>, room: &mut Room) -> Result<Part> {
    let opened = separated::open(input)?;
    let names = opened.names.clone();
    check_header(&names)?;
    room.take(names.iter().map(|name| 2 * name.len() + 64).sum(), || "line 1".into())?;
    let (part, lines) = read(&names, wanted, expected, room, |wishes| {
        let mut lines = Lines::new(opened, BATCH);
        let kinds = kinds_of_lines(&mut lines, wishes)?;
        let of = |(wish, kind): (&Wish<'_>, &Kind)| match (kind, wish.role) {
            (Kind::Numbers, _) => As::Numbers,
            // Targets and groups may be numbers with a decimal comma.
            (Kind::Texts(_), _) if wish.role == Role::Feature => As::Texts,
            (Kind::Texts(_), _) => As::Labels,
        };
        let columns = wishes.iter().zip(&kinds).map(|both| (both.0.place, of(both))).collect();
        Ok(Opened { batches: lines.of_columns(columns), kinds, rows: None })
    })?;
    Ok(Part { decimal_comma: lines.decimal_comma(), ..part })
}

/// The type of each column of a text file. The first row decides for features.
fn kinds_of_lines(lines: &mut Lines, wishes: &[Wish<'_>]) -> Result<Vec<Kind>> {
    let first = lines.first()?;
    let kind = |wish: &Wish<'_>| {
        let Some(first) = first.as_ref().filter(|_| wish.role == Role::Feature) else {
            return if wish.role == Role::Feature { Kind::Numbers } else { Kind::Texts(None) };
        };
        let text = first.record[wish.place].trim();
        let is_text = is_text(&first.decimals.any(text)) && !first.decimals.has_thousands(text);
        if is_text { Kind::Texts(Some(format!("{} in line {}", field::in_words(text), first.line))) } else { Kind::Numbers }
    };
    Ok(wishes.iter().map(kind).collect())
}

/// Reads a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, a column is missing or of the wrong type, or a number is missing or not finite.
pub(super) fn of_parquet(store: &Store, wanted: &Wanted, expected: Option<&[String]>, room: &mut Room) -> Result<Part> {
    contained(store.clone(), |file| {
        let read = read(&file.names(), wanted, expected, room, |wishes| {
            let places: Vec<usize> = wishes.iter().map(|wish| wish.place).collect();
            let kinds = kinds_of_types(wishes, |place| file.data_type(place))?;
            Ok(Opened { batches: file.batches(&places, BATCH)?, kinds, rows: Some(file.rows()) })
        });
        read.map(|(part, _)| part)
    })
}

/// Reads a table in memory.
///
/// # Errors
/// As [`of_parquet`].
pub(super) fn of_memory(table: &MemoryTable<'_>, wanted: &Wanted, room: &mut Room) -> Result<Part> {
    let rows = table.rows()?;
    let read = read(&table.names, wanted, None, room, |wishes| {
        let places = wishes.iter().map(|wish| wish.place).collect();
        let kinds = kinds_of_types(wishes, |place| table.columns[place].data_type())?;
        Ok(Opened { batches: table.batches(places, BATCH), kinds, rows: Some(rows) })
    });
    read.map(|(part, _)| part)
}

/// The type of each column of a table with types.
fn kinds_of_types<'a>(wishes: &[Wish<'_>], of: impl Fn(usize) -> &'a DataType) -> Result<Vec<Kind>> {
    let kind = |wish: &Wish<'_>| match (cells::kind(of(wish.place)), wish.role) {
        // Ids may have more digits than a double can hold.
        (CellKind::Texts, _) | (CellKind::Whole, Role::Levels) => Ok(Kind::Texts(None)),
        (CellKind::Numbers | CellKind::Whole, _) => Ok(Kind::Numbers),
        (CellKind::Other, _) => {
            let e = in_column(wish.name, cells::wrong_type(of(wish.place), "numbers or of texts"));
            Err(if wish.role == Role::Target { e } else { e.helped(NUMBERS) })
        }
    };
    wishes.iter().map(kind).collect()
}

/// Reads a table with these column names. `open` opens the table for the columns to read.
fn read<T: Batches>(
    names: &[String],
    wanted: &Wanted,
    expected: Option<&[String]>,
    room: &mut Room,
    open: impl FnOnce(&[Wish<'_>]) -> Result<Opened<T>>,
) -> Result<(Part, T)> {
    let layout = Layout::new(names, wanted, expected)?;
    let d = layout.columns.len();
    let role = |place: usize| match () {
        () if layout.target == Some(place) => Role::Target,
        () if layout.group == Some(place) || wanted.categorical.contains(&names[place]) => Role::Levels,
        () => Role::Feature,
    };
    let places = layout.features.iter().copied().chain(layout.target).chain(layout.group);
    let wishes: Vec<Wish<'_>> = places.map(|place| Wish { place, name: &names[place], role: role(place) }).collect();
    let Opened { mut batches, kinds, rows } = open(&wishes)?;
    if let Some(n) = rows {
        room.take(n.saturating_mul(d).saturating_mul(size_of::<f64>()), || format!("its {n} rows of {d} features"))?;
    }
    let mut columns: Vec<Column<'_>> = wishes.iter().zip(kinds).map(|(wish, kind)| Column::new(wish, kind)).collect();
    let mut values = Vec::with_capacity(rows.unwrap_or(0) * d);
    while let Some(batch) = batches.next()? {
        let first = values.len();
        if rows.is_none() {
            // A growing vector takes up to twice the memory of its numbers.
            room.take(2 * size_of::<f64>() * d * batch.len(), || place(&batch, batch.len().saturating_sub(1), names.first()))?;
        }
        values.resize(first + d * batch.len(), 0.0);
        let mut wrong: Option<(usize, Error)> = None;
        for (j, column) in columns.iter_mut().enumerate() {
            if let Err((row, e)) = column.add(&batch, j, room)
                && wrong.as_ref().is_none_or(|(before, _)| row < *before)
            {
                wrong = Some((row, e));
            }
            if j < d {
                column.move_numbers(values[first..].iter_mut().skip(j).step_by(d));
            }
        }
        if let Some((_, e)) = wrong {
            return Err(e);
        }
    }
    let mut labels = columns.split_off(d).into_iter().map(Column::labels);
    let (targets, groups) = (layout.target.and_then(|_| labels.next()), layout.group.and_then(|_| labels.next()));
    let texts = texts(&layout.columns, columns, &mut values);
    let rows = Rows::Dense { d, values };
    let columns = Columns::Named(layout.columns);
    Ok((Part { columns, rows, targets, groups, texts, decimal_comma: None, lacking: layout.lacking }, batches))
}

/// The text columns. In `values`, row by row, the position of its name replaces a text. A category whose fields are all numbers keeps
/// them.
fn texts(names: &[String], columns: Vec<Column<'_>>, values: &mut [f64]) -> Vec<TextColumn> {
    let (d, mut texts) = (names.len(), Vec::new());
    for (j, column) in columns.into_iter().enumerate() {
        let cells = values.iter_mut().skip(j).step_by(d);
        match column.cells {
            Cells::Numbers(_) => (),
            Cells::Texts(fields) => match fields.finish() {
                Labels::Numbers(numbers) => cells.zip(numbers).for_each(|(cell, x)| *cell = x),
                Labels::Names { names: levels, of } => {
                    cells.zip(of).for_each(|(cell, i)| *cell = f64::from(i));
                    texts.push(TextColumn { column: names[j].clone(), names: levels });
                }
            },
        }
    }
    texts
}

/// A column with the rows read so far.
struct Column<'a> {
    name: &'a str,
    cells: Cells,
    /// The first field with its line, if it decided that the column holds texts.
    begins: Option<String>,
}

enum Cells {
    /// The numbers so far; for a feature, only those of the last batch.
    Numbers(Vec<f64>),
    Texts(Fields),
}

impl<'a> Column<'a> {
    fn new(wish: &Wish<'a>, kind: Kind) -> Self {
        let (cells, begins) = match kind {
            Kind::Numbers => (Cells::Numbers(Vec::new()), None),
            Kind::Texts(begins) if wish.role == Role::Target => (Cells::Texts(Fields::new()), begins),
            Kind::Texts(begins) => (Cells::Texts(Fields::levels()), begins),
        };
        Self { name: wish.name, cells, begins }
    }

    /// Adds the fields of column `j` of a batch. An error comes with its row in the batch.
    fn add(&mut self, batch: &Batch, j: usize, room: &mut Room) -> Result<(), (usize, Error)> {
        let (name, array) = (self.name, &batch.columns[j]);
        let whole = |e: Error| (0, in_column(name, e));
        let fields = match &mut self.cells {
            Cells::Numbers(numbers) => {
                let start = numbers.len();
                numbers.resize(start + array.len(), 0.0);
                cells::numbers(array, &mut numbers[start..]).map_err(whole)?;
                let bad = numbers[start..].iter().position(|x| !x.is_finite());
                return bad.map_or(Ok(()), |row| Err((row, no_number(batch, row, j, name, numbers[start + row]))));
            }
            Cells::Texts(fields) => fields,
        };
        let (begins, mut at) = (&self.begins, 0);
        let mut add = |row: usize, text: Option<&str>| {
            at = row;
            let place = || place(batch, row, Some(name));
            let text = text.ok_or_else(|| null(batch, row, name))?;
            if let Some(first) = begins.as_ref().filter(|_| !is_text(text)) {
                return Err(not_as_first(&place(), text, first));
            }
            fields.push(text, room, place)
        };
        let added = if cells::kind(array.data_type()) == CellKind::Texts {
            cells::each_text(array, batch.first_row() + 1, add)
        } else {
            let mut row = 0;
            cells::each_whole(array, |whole| {
                add(row, whole.map(|whole| whole.to_string()).as_deref())?;
                row += 1;
                Ok(())
            })
        };
        added.map_err(|e| (at, e))
    }

    /// Moves the numbers so far to `places`, if this is a column of numbers.
    fn move_numbers<'b>(&mut self, places: impl Iterator<Item = &'b mut f64>) {
        if let Cells::Numbers(numbers) = &mut self.cells {
            places.zip(&*numbers).for_each(|(place, x)| *place = *x);
            numbers.clear();
        }
    }

    /// The labels of a target or of a group.
    fn labels(self) -> Labels {
        match self.cells {
            Cells::Numbers(numbers) => Labels::Numbers(numbers),
            Cells::Texts(fields) => fields.finish(),
        }
    }
}

/// The position of a field in messages. Rows count from 1.
fn place(batch: &Batch, row: usize, column: Option<impl AsRef<str>>) -> String {
    let row = match &batch.places {
        RowPlaces::Lines(lines) => format!("line {}", lines.get(row).copied().unwrap_or(0)),
        RowPlaces::Rows(first) => format!("row {}", first + row + 1),
    };
    column.map_or(row.clone(), |name| format!("{row}, column `{}`", quoted(name.as_ref())))
}

/// The error for a null.
fn null(batch: &Batch, row: usize, name: &str) -> Error {
    in_column(name, cells::null_row(batch.first_row() + row + 1))
}

/// The advice for whole numbers with too many digits, which may be ids.
const IDS: &str =
    "whole numbers up to 2^53, or such as 1.5e20; of ids, `drop` leaves the column out, `group` and `categorical` take them as names";

/// The error for a field that is not a finite number in a column of numbers.
fn no_number(batch: &Batch, row: usize, j: usize, name: &str, number: f64) -> Error {
    let array = &batch.columns[j];
    let place = || place(batch, row, Some(name));
    if let Some(text) = batch.odd.get(&(row, j)) {
        return field::check_exact(text).map_or_else(|e| e.helped(IDS).prefixed(place()), |()| not_number(&place(), text));
    }
    if array.is_null(row) {
        return null(batch, row, name);
    }
    match cells::name(array, row) {
        Some(whole) => in_column(name, cells::inexact_row(batch.first_row() + row + 1, &whole).helped(IDS)),
        None => not_finite(&place(), &number.to_string(), NUMBERS),
    }
}

/// The error for a number in a column of a text file that begins with a text.
fn not_as_first(place: &str, field: &str, first: &str) -> Error {
    if no_category(field).is_some() {
        if !field.is_empty() {
            return not_number(place, field);
        }
        let what = format!("{place}: an empty field in a column of categories");
        return Error::data("", what, "a category in every row: leave such rows out, or write a name such as `unknown`");
    }
    let what = format!("{place}: {} in a column that begins with a text, {first}", field::in_words(field));
    Error::data("", what, format!("{NUMBERS}; or name the column as one of categories: `categorical`"))
}

/// Whether a field is a text: not a number or date in any notation, nor a missing value.
fn is_text(text: &str) -> bool {
    field::number(text).is_none() && text.parse::<f64>().is_err() && no_category(text).is_none()
}

/// Rejects a file whose first line is not a header.
fn check_header(names: &[String]) -> Result<()> {
    if names.iter().all(String::is_empty) {
        return Err(Error::data("", "line 1: there are no names of columns", "a header and rows, separated by commas or tabs"));
    }
    if names.iter().all(|name| name.parse::<f64>().is_ok()) {
        let what = format!("line 1: `{}` is a number where the name of a column is expected", quoted(&names[0]));
        return Err(Error::data("", what, "a first line with the names of the columns"));
    }
    Ok(())
}
