//! Tables in and out: Parquet and CSV files of which some columns are numbers that a function is computed from, written
//! again with a column added.
//!
//! All other columns pass unread: fields of a CSV as they are, columns of a Parquet file if they hold numbers or flags.

use std::path::{Path, PathBuf};

use fedsa::error::{Error, ErrorCode, Result, quoted};

use super::field;
use super::find::{self, Places, extension_of};
use super::logs::{EXTENSIONS, bad_line, paths_in_order, short_names};
use super::parquet::contained;
use super::trace::{self, Trace, TraceColumn};
use super::{about, datasets, listed, name_of, shown};

/// A column of text; one string holds all fields.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Text {
    all: String,
    ends: Vec<usize>,
}

impl Text {
    /// Adds a field.
    pub fn push(&mut self, field: &str) {
        self.all.push_str(field);
        self.ends.push(self.all.len());
    }

    fn get(&self, row: usize) -> &str {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.all[start..self.ends[row]]
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|row| self.get(row))
    }
}

/// The fields of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Numbers.
    Numbers(Vec<f64>),
    /// Text, as it was in the file.
    Text(Text),
}

impl Cells {
    /// The field of a row as text; numbers with all digits, so that they are read back to the bit.
    pub fn text(&self, row: usize) -> String {
        match self {
            Self::Text(text) => text.get(row).into(),
            Self::Numbers(numbers) => all_digits(numbers[row]),
        }
    }

    /// Adds the fields of the same column of another table.
    fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Numbers(all), Self::Numbers(more)) => all.extend(more),
            (Self::Text(all), Self::Text(more)) => more.fields().for_each(|field| all.push(field)),
            (Self::Text(all), Self::Numbers(more)) => more.into_iter().for_each(|x| all.push(&all_digits(x))),
            (Self::Numbers(all), more @ Self::Text(_)) => {
                let mut text = Text::default();
                all.iter().for_each(|x| text.push(&all_digits(*x)));
                *self = Self::Text(text);
                self.extend(more);
            }
        }
    }
}

/// A number with as many digits as are needed to read back the same double.
fn all_digits(x: f64) -> String {
    let size = x.abs();
    if size == 0.0 || (1e-5..1e17).contains(&size) { x.to_string() } else { format!("{x:e}") }
}

/// The table of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The file's name, without folder and extension if these names are distinct.
    pub name: String,
    /// The columns that pass unread, and those that were asked for, in the order of the file.
    pub columns: Vec<(String, Cells)>,
    /// The numbers of the columns that were asked for, row by row.
    pub inputs: Vec<f64>,
    /// The number of rows.
    pub rows: usize,
    /// Columns that were left out, because they hold neither numbers nor flags.
    pub left_out: Vec<String>,
}

/// The files of all sources, which are those of logs ([`super::DiskFiles`]), in the order of the sources; those of a folder or
/// of a glob in natural order.
///
/// # Errors
/// When a source is not found, or a file is listed twice.
pub fn files(sources: &[String], places: &Places) -> Result<Vec<PathBuf>> {
    let paths = paths_in_order(sources, places)?;
    find::each_once(&paths, "file", "each file once")?;
    Ok(paths)
}

/// Reads tables of which the columns `wanted` are needed as numbers, in the order of their paths. CSV may be packed with gzip.
///
/// # Errors
/// When a file cannot be read, a wanted column is missing, or one of its fields is no finite number.
pub fn read(paths: &[PathBuf], wanted: &[String]) -> Result<Vec<Table>> {
    let mut tables = paths.iter().map(|path| read_file(path, wanted)).collect::<Result<Vec<_>>>()?;
    for (table, name) in tables.iter_mut().zip(names_of(paths)) {
        table.name = name;
    }
    Ok(tables)
}

/// The names of tables: those of the files without folder, `.gz` and extension, if these are distinct.
fn names_of(paths: &[PathBuf]) -> Vec<String> {
    let plain: Vec<PathBuf> = paths.iter().map(|path| if is_packed(path) { path.with_extension("") } else { path.clone() }).collect();
    let names = short_names(&plain);
    let all_differ = names.iter().collect::<std::collections::HashSet<_>>().len() == names.len();
    if all_differ { names } else { short_names(paths) }
}

fn is_packed(path: &Path) -> bool {
    extension_of(path).is_some_and(|extension| extension == "gz")
}

fn read_file(path: &Path, wanted: &[String]) -> Result<Table> {
    let extension = if is_packed(path) { extension_of(&path.with_extension("")) } else { extension_of(path) };
    let table = match extension.as_deref() {
        Some("parquet") => from_parquet(super::read(path)?, wanted),
        Some("csv") => datasets::unpacked(super::read(path)?).and_then(|file| from_csv(file, wanted)),
        _ => {
            let help = format!("a file with the extension {} or .csv.gz", EXTENSIONS.map(|e| format!(".{e}")).join(", "));
            return Err(Error::data(shown(name_of(path)), "not a known format of tables", help));
        }
    };
    table.map_err(|e| about(path, e))
}

/// The places of the wanted columns.
fn places_of(names: &[String], wanted: &[String]) -> Result<Vec<usize>> {
    let help = || format!("the columns {}", listed(wanted.iter().map(String::as_str)));
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(Error::data("", format!("two columns are called `{}`", quoted(twice)), "columns with different names"));
    }
    let missing: Vec<&str> = wanted.iter().filter(|column| !names.contains(column)).map(String::as_str).collect();
    if !missing.is_empty() {
        let found =
            if names.is_empty() { "an empty file".into() } else { format!("the columns are {}", listed(names.iter().map(String::as_str))) };
        let (verb, noun) = if missing.len() == 1 { ("is", "column") } else { ("are", "columns") };
        return Err(Error::data("", format!("there {verb} no {noun} {}: {found}", listed(missing)), help()));
    }
    Ok(wanted.iter().filter_map(|column| names.iter().position(|name| name == column)).collect())
}

/// A table (without a name) from the bytes of a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, a wanted column is missing, or one of its entries is no finite number.
pub fn from_parquet(file: Vec<u8>, wanted: &[String]) -> Result<Table> {
    contained(file, |file| {
        let names = file.names();
        let places = places_of(&names, wanted)?;
        let (mut columns, mut left_out) = (Vec::new(), Vec::new());
        for (i, name) in names.iter().enumerate() {
            match file.numbers(i) {
                Ok(numbers) => columns.push((name.clone(), Cells::Numbers(numbers))),
                Err(e) if places.contains(&i) => {
                    return Err(e.about("").prefixed(format!("column `{}`", quoted(name))));
                }
                Err(_) => left_out.push(name.clone()),
            }
        }
        let numbers: Vec<&[f64]> = wanted
            .iter()
            .filter_map(|column| {
                columns.iter().find(|(name, _)| name == column).and_then(|(_, cells)| match cells {
                    Cells::Numbers(numbers) => Some(&numbers[..]),
                    Cells::Text(_) => None,
                })
            })
            .collect();
        for (column, values) in wanted.iter().zip(&numbers) {
            if let Some(row) = values.iter().position(|x| !x.is_finite()) {
                let what = format!("column `{}`: row {row} is {}", quoted(column), values[row]);
                return Err(Error::data("", what, "finite numbers; leave such rows out"));
            }
        }
        let rows = file.rows();
        let inputs = (0..rows).flat_map(|row| numbers.iter().map(move |column| column[row])).collect();
        Ok(Table { name: String::new(), columns, inputs, rows, left_out })
    })
}

/// A table (without a name) from the bytes of a CSV file with a header.
///
/// # Errors
/// When a line has too many or too few fields, a wanted column is missing, or one of its fields is no finite number.
pub fn from_csv(file: Vec<u8>, wanted: &[String]) -> Result<Table> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(&file[..]);
    let names: Vec<String> = reader.headers().map_err(|e| bad_line(&e, 1))?.iter().map(str::to_string).collect();
    let places = places_of(&names, wanted)?;
    let mut texts = vec![Text::default(); names.len()];
    let (mut inputs, mut rows) = (Vec::new(), 0);
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| bad_line(&e, reader.position().line()))? {
        for &i in &places {
            let number = field::number(&record[i]).ok_or_else(|| {
                let line = record.position().map_or(0, csv::Position::line);
                let (name, field) = (quoted(&names[i]), field::in_words(&record[i]));
                let what = format!("line {line}, column `{name}`: {field} is not a finite number");
                Error::data("", what, "a finite number on every line")
            })?;
            inputs.push(number);
        }
        texts.iter_mut().zip(&record).for_each(|(text, field)| text.push(field));
        rows += 1;
    }
    let columns = names.into_iter().zip(texts).map(|(name, text)| (name, Cells::Text(text))).collect();
    Ok(Table { name: String::new(), columns, inputs, rows, left_out: Vec::new() })
}

/// One table of several, one below the other: a column `agent` with the names of the tables, unless they have such a column;
/// their columns; and the columns `added`, with a field for each row of all tables.
///
/// # Errors
/// When the tables have different columns, or one that has the name of an added column.
pub fn stacked(tables: Vec<Table>, added: Vec<(String, Cells)>) -> Result<Vec<(String, Cells)>> {
    const AGENT: &str = "agent";
    let names = |table: &Table| table.columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let Some(first) = tables.first() else { return Ok(Vec::new()) };
    let wanted = names(first);
    if let Some((name, _)) = added.iter().find(|(name, _)| name == AGENT || wanted.contains(name)) {
        let what = format!("there is a column `{}` already", quoted(name));
        return Err(Error::data(shown(&first.name), what, "another name for the new column").coded(ErrorCode::ColumnExists));
    }
    for table in &tables[1..] {
        let others = names(table);
        if let Some(name) = wanted.iter().find(|name| !others.contains(name)).or_else(|| others.iter().find(|name| !wanted.contains(name)))
        {
            let (with, without) = if wanted.contains(name) { (first, table) } else { (table, first) };
            let what = format!("there is no column `{}`, which {} has", quoted(name), shown(&with.name));
            return Err(Error::data(shown(&without.name), what, "files with the same columns, or one after the other"));
        }
    }
    let mut agents = Text::default();
    tables.iter().for_each(|table| (0..table.rows).for_each(|_| agents.push(&table.name)));
    let mut all: Vec<(String, Cells)> = Vec::new();
    for table in tables {
        for (name, cells) in table.columns {
            match all.iter_mut().find(|(other, _)| *other == name) {
                Some((_, before)) => before.extend(cells),
                None => all.push((name, cells)),
            }
        }
    }
    if !wanted.iter().any(|name| name == AGENT) {
        all.insert(0, (AGENT.into(), Cells::Text(agents)));
    }
    all.extend(added);
    Ok(all)
}

/// The bytes of a table as CSV with a header. Numbers have all their digits.
///
/// # Errors
/// When the table cannot be written as CSV.
pub fn to_csv(columns: &[(String, Cells)]) -> Result<Vec<u8>> {
    let unwritable =
        |e: &dyn std::fmt::Display| Error::data("", format!("no CSV file can hold this table: {}", shown(e)), "a Parquet file");
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|(name, _)| name)).map_err(|e| unwritable(&e))?;
    for row in 0..rows_of(columns) {
        writer.write_record(columns.iter().map(|(_, cells)| cells.text(row))).map_err(|e| unwritable(&e))?;
    }
    writer.into_inner().map_err(|e| unwritable(&e))
}

/// The bytes of a table as Parquet. Columns of text that are numbers in every row are stored as numbers.
///
/// # Errors
/// When Parquet cannot represent the table.
pub fn to_parquet(columns: Vec<(String, Cells)>) -> Result<Vec<u8>> {
    let column = |cells: Cells| match cells {
        Cells::Numbers(numbers) => TraceColumn::F64(numbers),
        Cells::Text(text) => match text.fields().map(str::parse).collect::<Result<Vec<f64>, _>>() {
            Ok(numbers) => TraceColumn::F64(numbers),
            Err(_) => TraceColumn::Str(text.fields().map(str::to_string).collect()),
        },
    };
    trace::to_bytes(&Trace::new(columns.into_iter().map(|(name, cells)| (name, column(cells))).collect())?)
}

fn rows_of(columns: &[(String, Cells)]) -> usize {
    columns.first().map_or(0, |(_, cells)| match cells {
        Cells::Numbers(numbers) => numbers.len(),
        Cells::Text(text) => text.ends.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "note,s_1,s_0\n\"a, b\", 1.50,2\nc,-1e-300,0\n";

    fn wanted() -> Vec<String> {
        vec!["s_0".into(), "s_1".into()]
    }

    #[test]
    fn fields_pass_as_they_are_and_numbers_keep_all_digits() {
        let table = from_csv(CSV.into(), &wanted()).unwrap();
        assert_eq!((&table.inputs[..], table.rows), (&[2.0, 1.5, 0.0, -1e-300][..], 2));
        let named = |name: &str| Table { name: name.into(), ..table.clone() };
        let columns =
            stacked(vec![named("x"), named("y")], vec![("value".into(), Cells::Numbers(vec![0.1 + 0.2, 1.0, 1e-7, -3e20]))]).unwrap();
        let csv = String::from_utf8(to_csv(&columns).unwrap()).unwrap();
        assert_eq!(
            csv,
            "agent,note,s_1,s_0,value\nx,\"a, b\",1.50,2,0.30000000000000004\nx,c,-1e-300,0,1\n\
             y,\"a, b\",1.50,2,1e-7\ny,c,-1e-300,0,-3e20\n"
        );
        let parquet = to_parquet(columns).unwrap();
        let back = from_parquet(parquet, &["value".into(), "s_1".into()]).unwrap();
        assert_eq!(back.inputs, [0.1 + 0.2, 1.5, 1.0, -1e-300, 1e-7, 1.5, -3e20, -1e-300]);
        assert_eq!(back.left_out, ["agent", "note"]);
    }

    #[test]
    fn what_is_wrong_with_a_table_is_named() {
        let error = |text: &str| from_csv(text.into(), &wanted()).unwrap_err().to_string();
        assert_eq!(error("x\n1\n"), "there are no columns `s_0`, `s_1`: the columns are `x`");
        assert_eq!(error("s_0\n1\n"), "there is no column `s_1`: the columns are `s_0`");
        assert_eq!(error(""), "there are no columns `s_0`, `s_1`: an empty file");
        assert_eq!(error("s_0,s_0,s_1\n"), "two columns are called `s_0`");
        assert_eq!(error("s_0,s_1\n1,2\n1,inf\n"), "line 3, column `s_1`: `inf` is not a finite number");
        assert_eq!(error("s_0,s_1\n,2\n"), "line 2, column `s_0`: an empty field is not a finite number");
        let table = |text: &str| from_csv(text.into(), &[]).unwrap();
        let e = stacked(vec![table("a\n1\n"), table("b\n1\n")], vec![("value".into(), Cells::Numbers(vec![0.0; 2]))]).unwrap_err();
        assert!(e.what.starts_with("there is no column `a`"), "{e}");
        let e = stacked(vec![table("value\n1\n")], vec![("value".into(), Cells::Numbers(vec![0.0]))]).unwrap_err();
        assert!(e.code() == ErrorCode::ColumnExists && e.what.contains("`value` already"), "{e}");
    }
}
