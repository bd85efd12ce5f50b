//! Tables in and out: Parquet, CSV and TSV files. Some columns are the numeric inputs of a function, whose result is written as an
//! added column.
//!
//! All other columns pass unchanged: fields of a CSV as they are, columns of a Parquet file if they hold numbers, flags or text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::{Array as _, ArrayRef};
use fedsa::error::{Error, ErrorCode, Result, in_quotes, quoted};

use super::cells::{self, CellKind};
use super::field;
use super::find::{self, Places, extension_of};
use super::logs::{Header, paths_in_order, short_names};
use super::memory::MemoryTable;
use super::parquet::contained;
use super::store::Store;
use super::trace::{self, Trace, TraceColumn};
use super::{about, input, listed, separated, shown};

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
    /// Text, as in the file.
    Text(Text),
}

impl Cells {
    /// The field of a row as text. Numbers keep all digits, so that reading them gives the same bits.
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

/// A number with as many digits as identify its double.
fn all_digits(x: f64) -> String {
    let size = x.abs();
    if size == 0.0 || (1e-5..1e17).contains(&size) { x.to_string() } else { format!("{x:e}") }
}

/// The table of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The file's name, without folder, and without extension if such names are distinct.
    pub name: String,
    /// The columns that pass unchanged and the requested ones, in the order of the file.
    pub columns: Vec<(String, Cells)>,
    /// The numbers of the requested columns, row by row.
    pub inputs: Vec<f64>,
    /// The number of rows.
    pub rows: usize,
    /// Omitted columns, which hold neither numbers nor flags nor text.
    pub left_out: Vec<String>,
}

/// The files of all sources, found as for logs ([`super::DiskFiles`]), in the order of the sources; files of a folder or glob come in
/// natural order.
///
/// # Errors
/// When a source is not found, or a file is listed twice.
pub fn files(sources: &[String], places: &Places) -> Result<Vec<PathBuf>> {
    let paths = paths_in_order(sources, places)?;
    find::each_once(&paths, "file", "each file once")?;
    Ok(paths)
}

/// The columns to read from tables.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TableForm {
    /// The columns needed as numbers, by the caller's names.
    pub wanted: Vec<String>,
    /// The names of columns in the files, by the caller's names
    /// ([`LogForm::columns`](fedsa_problems::logs::log_form::LogForm::columns)).
    pub columns: BTreeMap<String, String>,
    /// Whether each of these names must exist; otherwise missing ones are ignored.
    pub all_columns: bool,
}

impl TableForm {
    /// These columns, by their names in the files.
    pub fn new(wanted: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { wanted: wanted.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same, with these names of columns in the files.
    #[must_use]
    pub fn with_columns(self, columns: BTreeMap<String, String>, all_columns: bool) -> Self {
        Self { columns, all_columns, ..self }
    }

    /// The positions of the wanted columns.
    fn places(&self, names: &[String]) -> Result<Vec<usize>> {
        let columns = match self.all_columns {
            true => self.columns.clone(),
            false => {
                let one = |(role, field): (&String, &String)| BTreeMap::from([(role.clone(), field.clone())]);
                let is_there = |pair: &(&String, &String)| Header::new(names.to_vec(), &one(*pair)).is_ok();
                self.columns.iter().filter(is_there).map(|(role, field)| (role.clone(), field.clone())).collect()
            }
        };
        places_of(&Header::new(names.to_vec(), &columns)?, &self.wanted)
    }
}

/// Reads tables, in the order of their paths. The content identifies the format; text may be compressed with gzip or zstd.
///
/// # Errors
/// When a file cannot be read, a wanted column is missing, or one of its fields is not a finite number.
pub fn read(paths: &[PathBuf], form: &TableForm) -> Result<Vec<Table>> {
    let mut tables = paths.iter().map(|path| read_file(path, form)).collect::<Result<Vec<_>>>()?;
    for (table, name) in tables.iter_mut().zip(short_names(paths)) {
        table.name = name;
    }
    Ok(tables)
}

fn read_file(path: &Path, form: &TableForm) -> Result<Table> {
    let file = super::read(path)?;
    let is_parquet = file.starts_with(b"PAR1") || extension_of(path).is_some_and(|extension| extension == "parquet");
    let table = if is_parquet { from_parquet(file, form) } else { from_csv(file, form) };
    table.map_err(|e| about(path, e))
}

/// The positions of the wanted columns.
fn places_of(header: &Header, wanted: &[String]) -> Result<Vec<usize>> {
    let help = || format!("the columns {}", wanted.iter().map(in_quotes).collect::<Vec<_>>().join(", "));
    let names = &header.names;
    let mut seen = std::collections::HashSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(Error::data("", format!("two columns are called `{}`", quoted(twice)), "columns with different names"));
    }
    let places: Vec<Option<usize>> = wanted.iter().map(|column| header.find(column)).collect::<Result<_>>()?;
    let missing: Vec<&str> = wanted.iter().zip(&places).filter(|(_, place)| place.is_none()).map(|(column, _)| column.as_str()).collect();
    if !missing.is_empty() {
        let (verb, noun) = if missing.len() == 1 { ("is", "column") } else { ("are", "columns") };
        return Err(Error::data("", format!("there {verb} no {noun} {}: {}", listed(missing), header.found()), help()));
    }
    Ok(places.into_iter().flatten().collect())
}

/// A table (without a name) from the bytes of a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, a wanted column is missing, or one of its entries is not a finite number.
pub fn from_parquet(file: Vec<u8>, form: &TableForm) -> Result<Table> {
    contained(file, |file| typed(&file.names(), file.rows(), form, &|column| file.whole(column)))
}

/// A table from one in memory.
///
/// # Errors
/// As [`from_parquet`].
pub fn from_memory(table: &MemoryTable<'_>, form: &TableForm) -> Result<Table> {
    let rows = table.rows()?;
    let read = typed(&table.names, rows, form, &|column| Ok(table.columns[column].part(0..rows)))?;
    Ok(Table { name: table.name.clone(), ..read })
}

/// A table of columns with types. `column` reads one column at a time.
fn typed(names: &[String], rows: usize, form: &TableForm, column: &dyn Fn(usize) -> Result<ArrayRef>) -> Result<Table> {
    let places = form.places(names)?;
    let (mut columns, mut left_out) = (Vec::new(), Vec::new());
    for (i, name) in names.iter().enumerate() {
        let array = column(i)?;
        let wrong = |e: Error| cells::in_column(name, e);
        match cells_of(&array) {
            Ok(cells) if places.contains(&i) && !matches!(cells, Cells::Numbers(_)) => {
                return Err(wrong(cells::wrong_type(array.data_type(), "numbers")));
            }
            Ok(cells) => columns.push((name.clone(), cells)),
            Err(e) if places.contains(&i) => return Err(wrong(e)),
            Err(_) => left_out.push(name.clone()),
        }
    }
    let numbers_of = |place: &usize| {
        columns.iter().find(|(name, _)| *name == names[*place]).and_then(|(_, cells)| match cells {
            Cells::Numbers(numbers) => Some(&numbers[..]),
            Cells::Text(_) => None,
        })
    };
    let numbers: Vec<&[f64]> = places.iter().filter_map(numbers_of).collect();
    for (column, values) in places.iter().map(|place| &names[*place]).zip(&numbers) {
        if let Some(row) = values.iter().position(|x| !x.is_finite()) {
            let what = format!("column `{}`: row {} is {}", quoted(column), row + 1, values[row]);
            return Err(Error::data("", what, "finite numbers; leave such rows out"));
        }
    }
    let inputs = (0..rows).flat_map(|row| numbers.iter().map(move |column| column[row])).collect();
    Ok(Table { name: String::new(), columns, inputs, rows, left_out })
}

/// The fields of a column; missing texts are empty.
///
/// # Errors
/// When the column holds neither texts nor numbers, but for example bytes or dates, or when a number is missing.
fn cells_of(column: &ArrayRef) -> Result<Cells> {
    if cells::kind(column.data_type()) == CellKind::Texts {
        let mut text = Text::default();
        cells::each_text(column, 1, |_, field| {
            text.push(field.unwrap_or_default());
            Ok(())
        })?;
        return Ok(Cells::Text(text));
    }
    let mut numbers = vec![0.0; column.len()];
    cells::all_numbers(column, 1, &mut numbers)?;
    Ok(Cells::Numbers(numbers))
}

/// A table (without a name) from the bytes of a CSV or TSV file with a header, which may be compressed with gzip or zstd.
///
/// # Errors
/// When a line has too many or too few fields, a wanted column is missing, or one of its fields is not a finite number.
pub fn from_csv(file: Vec<u8>, form: &TableForm) -> Result<Table> {
    let file = Store::from(input::unpacked(file)?);
    let mut opened = separated::open(input::open(&file)?)?;
    let names = opened.names.clone();
    let places = form.places(&names)?;
    let mut texts = vec![Text::default(); names.len()];
    let (mut inputs, mut rows) = (Vec::new(), 0);
    let mut record = csv::StringRecord::new();
    loop {
        if !opened.read(&mut record)? {
            break;
        }
        let separated::Opened { reader, decimals, .. } = &opened;
        for &i in &places {
            let in_line = |e: Error| {
                let (line, name) = (separated::line_of(reader, &record), quoted(&names[i]));
                e.prefixed(format!("line {line}, column `{name}`"))
            };
            let plain = decimals.number(record[i].trim());
            field::check_exact(&plain).map_err(in_line)?;
            let number = field::number(&plain);
            if number.is_none() {
                decimals.check(|| separated::line_of(reader, &record))?;
            }
            let number = number.ok_or_else(|| {
                let line = separated::line_of(reader, &record);
                let (name, field) = (quoted(&names[i]), field::in_words(record[i].trim()));
                let what = format!("line {line}, column `{name}`: {field} is not a finite number");
                Error::data("", what, "a finite number on every line")
            })?;
            inputs.push(number);
        }
        decimals.check(|| separated::line_of(reader, &record))?;
        texts.iter_mut().zip(&record).for_each(|(text, field)| text.push(&decimals.any(field.trim())));
        rows += 1;
    }
    opened.decimals.finish()?;
    let columns = names.into_iter().zip(texts).map(|(name, text)| (name, Cells::Text(text))).collect();
    Ok(Table { name: String::new(), columns, inputs, rows, left_out: Vec::new() })
}

/// Several tables stacked into one: a column `agent` with the names of the tables, unless they have one; their columns; and the columns
/// `added`, with a field for each row of all tables.
///
/// # Errors
/// When the tables have different columns, or a column with the name of an added one.
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

    fn wanted() -> TableForm {
        TableForm::new(["s_0", "s_1"])
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
        let back = from_parquet(parquet, &TableForm::new(["value", "s_1"])).unwrap();
        assert_eq!(back.inputs, [0.1 + 0.2, 1.5, 1.0, -1e-300, 1e-7, 1.5, -3e20, -1e-300]);
        assert!(back.left_out.is_empty());
        let fields = |name: &str| {
            let (_, cells) = back.columns.iter().find(|(other, _)| other == name).unwrap();
            (0..4).map(|row| cells.text(row)).collect::<Vec<String>>()
        };
        assert_eq!((fields("agent").concat(), fields("note").concat()), ("xxyy".into(), "a, bca, bc".into()));
        assert_eq!(fields("value")[2], "1e-7");
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
        // Lines count as in an editor: with any line ends, after quoted line breaks, and after empty lines.
        for end in ["\n", "\r\n", "\r"] {
            let said = |text: &str| error(&text.replace('\n', end));
            assert_eq!(said("s_0,s_1\n1,2\n\n\n1,x\n"), "line 5, column `s_1`: `x` is not a finite number", "{end:?}");
            assert_eq!(said("s_0,s_1\n1,2\n3,x"), "line 3, column `s_1`: `x` is not a finite number", "{end:?}");
            let quoted = "s_0,note,s_1\n1,\"a\nb\n\",2\n1,\"c\n\",x\n3,d,4\n";
            assert_eq!(said(quoted), "line 5, column `s_1`: `x` is not a finite number", "{end:?}");
            assert_eq!(said("s_0,s_1\n1,2\n\n1\n1,2\n"), "line 4: 1 fields, but the header has 2", "{end:?}");
            assert_eq!(said("\ns_0,s_1\n\"1,2\n3,4\n"), "line 3: a quote that is opened there is not closed", "{end:?}");
            let closed = "\ns_0,s_1\n\"1,2\n3,\"\n3,4\n";
            assert_eq!(said(closed), "line 3: a quote that is opened there is closed in line 4", "{end:?}");
            let good = from_csv("s_0,s_1\n1,2\n3,\"4\n\"".replace('\n', end).into(), &wanted()).unwrap();
            assert_eq!(good.inputs, [1.0, 2.0, 3.0, 4.0], "{end:?}");
        }
        let table = |text: &str| from_csv(text.into(), &TableForm::default()).unwrap();
        let e = stacked(vec![table("a\n1\n"), table("b\n1\n")], vec![("value".into(), Cells::Numbers(vec![0.0; 2]))]).unwrap_err();
        assert!(e.what.starts_with("there is no column `a`"), "{e}");
        let e = stacked(vec![table("value\n1\n")], vec![("value".into(), Cells::Numbers(vec![0.0]))]).unwrap_err();
        assert!(e.code() == ErrorCode::ColumnExists && e.what.contains("`value` already"), "{e}");
    }

    /// Output has commas between fields, so numbers have points.
    #[test]
    fn decimal_commas_become_points() {
        let csv = "note;s_1;s_0;other\n\"a, b\";1,50;2;3,25\nc,d;-1e-3;0;1.5\n";
        let table = from_csv(csv.into(), &wanted()).unwrap();
        assert_eq!(table.inputs, [2.0, 1.5, 0.0, -1e-3]);
        assert_eq!(
            String::from_utf8(to_csv(&table.columns).unwrap()).unwrap(),
            "note,s_1,s_0,other\n\"a, b\",1.50,2,3.25\n\"c,d\",-1e-3,0,1.5\n"
        );
        let mixed = from_csv(csv.replace("-1e-3", "0.5").into(), &wanted()).unwrap_err();
        assert_eq!(mixed.what, "line 3: `0.5` has a decimal point, and `1,50` in line 2 a comma");
    }
}
