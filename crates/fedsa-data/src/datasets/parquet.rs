//! Parquet tables: columns of numbers, and of text for target and group.

use ::parquet::data_type::{ByteArray, ByteArrayType};
use fedsa::error::{Error, Result, quoted};
use fedsa::problem::dataset::{Labels, Rows, Wanted};

use super::labels::Fields;
use super::layout::Layout;
use super::part::{Columns, NUMBERS, Part, not_finite};
use super::texts;
use crate::input::Room;
use crate::parquet::{Columns as File, Numbers, contained, present};
use crate::store::Store;

/// The number of rows that are read of each column at a time.
const BATCH: usize = 4096;

/// Reads a table.
///
/// # Errors
/// When it is not a Parquet file, a column is missing or of the wrong type, or a number is missing or not finite.
pub(super) fn read(store: &Store, wanted: &Wanted, expected: Option<&[String]>, room: &mut Room) -> Result<Part> {
    contained(store.clone(), |file| {
        file.number_rows_from(1);
        let names = file.names();
        let layout = Layout::new(&names, wanted, expected)?;
        let (n, d) = (file.rows(), layout.columns.len());
        file.plausible(size_of::<f64>().saturating_mul(d + 2))?;
        file.side_by_side(d)?;
        let mut labels = |column: Option<usize>, fields| column.map(|i| labels_of(file, i, &names[i], fields, room)).transpose();
        let (targets, groups) = (labels(layout.target, Fields::new())?, labels(layout.group, Fields::levels())?);
        let text = |(j, i): (usize, &usize)| {
            let is_one = file.is_text(*i) || wanted.categorical.contains(&layout.columns[j]);
            is_one.then(|| labels_of(file, *i, &names[*i], Fields::levels(), room)).transpose()
        };
        let of_text = layout.features.iter().enumerate().map(text).collect::<Result<Vec<_>>>()?;
        room.take(n.saturating_mul(d).saturating_mul(size_of::<f64>()), || format!("its {n} rows of {d} features"))?;
        let mut values = features(file, &layout, &of_text, n)?;
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

/// The features of all rows, row by row.
fn features(file: &File, layout: &Layout, of_text: &[Option<Labels>], n: usize) -> Result<Vec<f64>> {
    let d = layout.columns.len();
    let inside = |j: usize, e: Error, help: Option<&str>| {
        let e = e.about("").prefixed(format!("column `{}`", quoted(&layout.columns[j])));
        if let Some(help) = help { e.helped(help) } else { e }
    };
    let open = |(j, i): (usize, &usize)| {
        let numbers = of_text[j].is_none().then(|| Numbers::new(file, *i));
        numbers.transpose().map_err(|e| inside(j, e, Some(NUMBERS)))
    };
    let mut columns = layout.features.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
    let mut values = vec![0.0; n * d];
    let mut scratch = vec![0.0; BATCH.min(n)];
    for (batch, rows) in values.chunks_mut(BATCH * d.max(1)).enumerate() {
        for (j, column) in columns.iter_mut().enumerate() {
            let Some(column) = column else { continue };
            let scratch = &mut scratch[..rows.len() / d];
            column.fill(scratch).map_err(|e| inside(j, e, None))?;
            if let Some(i) = scratch.iter().position(|x| !x.is_finite()) {
                let place = format!("row {}, column `{}`", batch * BATCH + i + 1, quoted(&layout.columns[j]));
                return Err(not_finite(&place, &scratch[i].to_string(), NUMBERS));
            }
            rows[j..].iter_mut().step_by(d).zip(&*scratch).for_each(|(out, x)| *out = *x);
        }
    }
    Ok(values)
}

/// A column of targets, groups or categories, whose texts `fields` collects.
fn labels_of(file: &File, i: usize, name: &str, mut fields: Fields, room: &mut Room) -> Result<Labels> {
    let inside = |e: Error| e.about("").prefixed(format!("column `{}`", quoted(name)));
    if !file.is_text(i) {
        Numbers::new(file, i).map_err(|e| inside(e).helped("a column of numbers or of text"))?;
        let numbers = file.numbers(i).map_err(inside)?;
        if let Some(row) = numbers.iter().position(|x| !x.is_finite()) {
            return Err(not_finite(&format!("row {}, column `{}`", row + 1, quoted(name)), &numbers[row].to_string(), NUMBERS));
        }
        return Ok(Labels::Numbers(numbers));
    }
    file.each::<ByteArrayType>(i, |row, value: Option<&ByteArray>| {
        let bytes = present(row + 1, value).map_err(inside)?.data();
        let place = || format!("row {}, column `{}`", row + 1, quoted(name));
        let text = std::str::from_utf8(bytes).map_err(|_| Error::data("", format!("{}: not UTF-8", place()), "text in UTF-8"))?;
        fields.push(text, room, place)
    })?;
    Ok(fields.finish())
}
