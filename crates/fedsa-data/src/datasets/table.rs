//! CSV and TSV files with a header.

use fedsa::error::{Error, Result, quoted};
use fedsa::problem::dataset::{Rows, Wanted};

use super::labels::Fields;
use super::layout::Layout;
use super::part::{Columns, Part, not_number};
use super::texts::{TextFields, is_text};
use crate::field;
use crate::input::{Input, Room};
use crate::separated;

/// Reads a table.
///
/// # Errors
/// When a column is missing, a line has too many or too few fields, or a field of a feature is no finite number.
pub(super) fn read(input: Input, wanted: &Wanted, expected: Option<&[String]>, room: &mut Room) -> Result<Part> {
    let mut opened = separated::open(input)?;
    let names = opened.names.clone();
    check_header(&names)?;
    room.take(names.iter().map(|name| 2 * name.len() + 64).sum(), || "line 1".into())?;
    let layout = Layout::new(&names, wanted, expected)?;
    let mut targets = layout.target.map(|_| Fields::new());
    let mut groups = layout.group.map(|_| Fields::levels());
    let mut texts = TextFields::new(&layout, wanted);
    let mut values = Vec::new();
    let mut record = csv::StringRecord::new();
    loop {
        if !opened.read(&mut record)? {
            break;
        }
        let separated::Opened { reader, decimals, .. } = &opened;
        let place = |i: usize| {
            let line = separated::line_of(reader, &record);
            format!("line {line}, column `{}`", quoted(&names[i]))
        };
        room.take(2 * size_of::<f64>() * layout.features.len(), || place(0))?;
        // The reader has checked that every line has a field for every name.
        if values.is_empty() {
            texts.detect(
                separated::line_of(reader, &record),
                |j| record[layout.features[j]].trim(),
                |field| is_text(&decimals.any(field)) && !decimals.has_thousands(field),
            );
        }
        for (j, &i) in layout.features.iter().enumerate() {
            let field = record[i].trim();
            if texts.push(j, field, room, || place(i))? {
                values.push(0.0);
                continue;
            }
            let plain = decimals.number(field);
            field::check_exact(&plain).map_err(|e| e.prefixed(place(i)))?;
            let number = field::number(&plain);
            if number.is_none() {
                decimals.check(|| separated::line_of(reader, &record))?;
            }
            values.push(number.ok_or_else(|| not_number(&place(i), field))?);
        }
        for (column, fields) in [(layout.target, &mut targets), (layout.group, &mut groups)] {
            if let (Some(i), Some(fields)) = (column, fields) {
                fields.push(&decimals.number(record[i].trim()), room, || place(i))?;
            }
        }
        decimals.check(|| separated::line_of(reader, &record))?;
    }
    opened.decimals.finish()?;
    let texts = texts.finish(&layout.columns, &mut values);
    let rows = Rows::Dense { d: layout.columns.len(), values };
    let [targets, groups] = [targets, groups].map(|fields| fields.map(Fields::finish));
    let decimal_comma = opened.decimals.comma();
    Ok(Part { columns: Columns::Named(layout.columns), rows, targets, groups, texts, decimal_comma, lacking: layout.lacking })
}

/// Refuses the first line of a file that has no header.
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
