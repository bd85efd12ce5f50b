//! Reads columns of untrusted Parquet files.
//!
//! The `parquet` crate is used through its column readers, without arrow. On
//! malformed files it mostly returns errors, sometimes panics, allocates what a
//! header claims, and parses the schema by recursion. All reading therefore happens in
//! [`contained`], and pages pass two checks: [`Source`] checks the
//! size that a page claims before the page is unpacked, [`Pages`] its number of
//! values before the values are unpacked.
//!
//! A file is in memory, or on the disk and read page by page ([`Store`]). Logs are read with all columns side by side, a batch
//! of rows at a time ([`Numbers`]): in memory are then a page of each column and its dictionary.

mod pages;

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use fedsa::error::{Error, Result};
use parquet::basic::{CompressionCodec as Codec, ConvertedType, Type};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::store::Store;
use super::{exact, expansion_limit, justified, room, shown};
use pages::{Budget, Pages, Source};

/// The number of values that the column reader returns at a time.
const BATCH: usize = 4096;
/// The name of the reading thread. Its panics become errors; a program can use the name to hide them from the terminal.
pub const THREAD: &str = "fedsa-parquet";
/// The longest footer in bytes; it contains the schema and the positions of columns.
const MAX_FOOTER: usize = 32 << 20;
/// The stack of that thread: this size plus, for each byte of the footer, more than the
/// measured need of a nested schema (1 kB per level, and a level takes at least 7 bytes).
/// Unused stack takes only address space.
const STACK: usize = 2 << 20;
const STACK_PER_FOOTER: usize = 256;

/// The memory of a column that is being read, beside its page: its decompressor and its decoders, in bytes.
const OPEN_COLUMN: usize = 256 << 10;

/// Opens a Parquet file and reads it in isolation: on a separate thread, with a stack that the most deeply nested schema
/// does not exhaust, and with panics turned into errors.
pub(super) fn contained<T: Send>(file: impl Into<Store>, read: impl FnOnce(&Columns) -> Result<T> + Send) -> Result<T> {
    contained_while(file.into(), read, || ()).0
}

/// As [`contained`]; `meanwhile` runs on the calling thread. It must return once `read` was dropped, which it is also when the
/// file cannot be read.
pub(super) fn contained_while<T: Send, M>(
    file: Store,
    read: impl FnOnce(&Columns) -> Result<T> + Send,
    meanwhile: impl FnOnce() -> M,
) -> (Result<T>, M) {
    let footer = match footer(&file) {
        Ok(footer) => footer,
        Err(e) => {
            drop(read);
            return (Err(e), meanwhile());
        }
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD.into()).stack_size(STACK + footer.len() * STACK_PER_FOOTER);
        let spawned = thread.spawn_scoped(scope, move || read(&Columns::open(file, &footer)?));
        let saw = meanwhile();
        let read = match spawned {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(unreadable("its parts contradict each other"))),
            Err(e) => Err(Error::machine(format!("no thread to read it on: {e}"), "memory for one more thread")),
        };
        (read, saw)
    })
}

/// The footer of a Parquet file, without the eight bytes after it.
fn footer(file: &Store) -> Result<Bytes> {
    let no_footer = || unreadable("its end is not that of a Parquet file: it is truncated, or of another format");
    let end = file.len().checked_sub(8).ok_or_else(no_footer)?;
    let length = match file.bytes(end, 8).map_err(unreadable)?[..] {
        [a, b, c, d, b'P', b'A', b'R', b'1'] => u64::from(u32::from_le_bytes([a, b, c, d])),
        _ => return Err(no_footer()),
    };
    let start = end.checked_sub(length).ok_or_else(|| unreadable(format!("its footer of {length} bytes is longer than the file")))?;
    if length > MAX_FOOTER as u64 {
        return Err(unreadable(format!("its footer of {length} bytes is longer than {MAX_FOOTER}")));
    }
    file.bytes(start, length as usize).map_err(unreadable)
}

/// The error for a file that is not a Parquet file of the supported kind.
fn unreadable(why: impl std::fmt::Display) -> Error {
    Error::data(
        "",
        format!("not a readable Parquet file: {}", shown(why)),
        "a Parquet file, uncompressed or compressed with snappy or zstd",
    )
}

fn bad(e: ParquetError) -> Error {
    unreadable(e)
}

/// The columns of a Parquet file.
pub(super) struct Columns {
    store: Store,
    metadata: ParquetMetaData,
    /// The number of rows.
    rows: usize,
    /// The bytes that may still be read into memory.
    left: Cell<usize>,
    pages: Arc<Budget>,
    /// The number of the first row in messages: logs count from 0, tables from 1.
    first_number: Cell<usize>,
}

impl Columns {
    fn open(store: Store, footer: &[u8]) -> Result<Self> {
        let limit = expansion_limit(store.len());
        let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(bad)?;
        let mut rows = 0usize;
        for group in metadata.row_groups() {
            let more = usize::try_from(group.num_rows()).ok();
            rows = more.and_then(|more| rows.checked_add(more)).ok_or_else(|| unreadable("an impossible number of rows"))?;
        }
        let pages = Arc::new(Budget { used: AtomicUsize::new(0), limit });
        Ok(Self { store, metadata, rows, left: Cell::new(limit), pages, first_number: Cell::new(0) })
    }

    /// The first row has this number in messages about numbers; 0 without it.
    pub(super) fn number_rows_from(&self, first: usize) {
        self.first_number.set(first);
    }

    /// The columns' names; of a nested column its path.
    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.file_metadata().schema_descr().columns().iter().map(|c| c.path().string()).collect()
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The value of the file's metadata under `key`.
    pub(super) fn note(&self, key: &str) -> Option<&str> {
        let notes = self.metadata.file_metadata().key_value_metadata()?;
        notes.iter().find(|note| note.key == key)?.value.as_deref()
    }

    pub(super) fn describe(&self, column: usize) -> ColumnDescPtr {
        self.metadata.file_metadata().schema_descr().column(column)
    }

    /// Whether column `column` holds integers, and of which sign; `None` for
    /// everything else, such as dates, that is stored as integers too.
    pub(super) fn integer(&self, column: usize) -> Option<Integer> {
        let descr = self.describe(column);
        let physical = matches!(descr.physical_type(), Type::INT32 | Type::INT64);
        match descr.converted_type() {
            // Dates and times that old writers do not know have only a logical type.
            ConvertedType::NONE if physical && descr.logical_type_ref().is_none() => Some(Integer::Signed),
            ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64 if physical => {
                Some(Integer::Signed)
            }
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 if physical => {
                Some(Integer::Unsigned)
            }
            _ => None,
        }
    }

    /// Whether a column holds text, or bytes that may be text.
    pub(super) fn is_text(&self, column: usize) -> bool {
        let descr = self.describe(column);
        descr.physical_type() == Type::BYTE_ARRAY && matches!(descr.converted_type(), ConvertedType::UTF8 | ConvertedType::NONE)
    }

    /// A column of numbers, one per row; booleans are 0 and 1.
    ///
    /// # Errors
    /// When the column has another type, a null, or an integer that a double cannot
    /// represent exactly.
    pub(super) fn numbers(&self, column: usize) -> Result<Vec<f64>> {
        let mut numbers = Numbers::new(self, column)?;
        self.spend(self.rows.saturating_mul(size_of::<f64>()))?;
        let mut out = vec![0.0; self.rows];
        out.chunks_mut(BATCH).try_for_each(|out| numbers.fill(out))?;
        Ok(out)
    }

    /// Calls `visit(row, value)` for every row of a column of integers.
    ///
    /// # Errors
    /// When the column has another type or a null, and errors of `visit`.
    pub(super) fn each_integer(&self, column: usize, mut visit: impl FnMut(usize, i128) -> Result<()>) -> Result<()> {
        let physical = self.describe(column).physical_type();
        match (physical, self.integer(column)) {
            (Type::INT32, Some(Integer::Signed)) => self.each::<Int32Type>(column, |row, v| visit(row, i128::from(*present(row, v)?))),
            (Type::INT32, Some(Integer::Unsigned)) => {
                self.each::<Int32Type>(column, |row, v| visit(row, i128::from(present(row, v)?.cast_unsigned())))
            }
            (Type::INT64, Some(Integer::Signed)) => self.each::<Int64Type>(column, |row, v| visit(row, i128::from(*present(row, v)?))),
            (Type::INT64, Some(Integer::Unsigned)) => {
                self.each::<Int64Type>(column, |row, v| visit(row, i128::from(present(row, v)?.cast_unsigned())))
            }
            _ => Err(self.wrong_type(column, "integers")),
        }
    }

    /// Calls `visit(row, value)` for every row of a column of physical type `T`;
    /// the value of a null is `None`.
    pub(super) fn each<T: DataType>(&self, column: usize, mut visit: impl FnMut(usize, Option<&T::T>) -> Result<()>) -> Result<()> {
        let mut steps = Steps::<T>::new(self, column)?;
        loop {
            let first = steps.row;
            let read = steps.next(BATCH)?;
            if read == 0 {
                return Ok(());
            }
            let mut next = steps.values.iter();
            for i in 0..read {
                let null = steps.levels.get(i).is_some_and(|&level| level < steps.descr.max_def_level());
                visit(first + i, if null { None } else { next.next() })?;
            }
        }
    }

    /// Refuses a file of which the size does not justify `rows` times `bytes` in memory, however much memory there is.
    ///
    /// # Errors
    /// When it claims to hold more rows.
    pub(super) fn plausible(&self, bytes: usize) -> Result<()> {
        let is_plausible = self.rows.saturating_mul(bytes) as u64 <= justified(self.store.len());
        if is_plausible { Ok(()) } else { Err(too_large(self.rows, self.store.len())) }
    }

    /// Refuses to read `columns` columns at the same time if there is no memory for it.
    ///
    /// # Errors
    /// When it takes more than half of the available memory.
    pub(super) fn side_by_side(&self, columns: usize) -> Result<()> {
        if columns.saturating_mul(OPEN_COLUMN) <= room() / 2 {
            return Ok(());
        }
        Err(Error::no_memory(
            "",
            format!("there is no memory to read {columns} columns at the same time"),
            "a file with fewer columns, or a CSV",
        ))
    }

    /// An empty vector with capacity for all rows, if the size of the file justifies it.
    pub(super) fn room<T>(&self) -> Result<Vec<T>> {
        self.spend(self.rows.saturating_mul(size_of::<T>()))?;
        Ok(Vec::with_capacity(self.rows))
    }

    /// Accounts for `bytes` more in memory.
    ///
    /// # Errors
    /// When the total exceeds what the size of the file justifies.
    pub(super) fn spend(&self, bytes: usize) -> Result<()> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| too_large(self.rows, self.store.len()))?;
        self.left.set(left);
        Ok(())
    }

    pub(super) fn wrong_type(&self, column: usize, wanted: &str) -> Error {
        let descr = self.describe(column);
        let logical = match (descr.logical_type_ref(), descr.converted_type()) {
            (Some(logical), _) => format!(" ({logical:?})"),
            (None, ConvertedType::NONE) => String::new(),
            (None, converted) => format!(" ({converted})"),
        };
        let list = if descr.max_rep_level() > 0 { "lists of " } else { "" };
        Error::data("", format!("it holds {list}{}{}", descr.physical_type(), shown(logical)), format!("a column of {wanted}"))
    }
}

/// A column of physical type `T` that is read in steps.
struct Steps<'a, T: DataType> {
    columns: &'a Columns,
    column: usize,
    descr: ColumnDescPtr,
    /// The row group that comes next.
    group: usize,
    /// The row that comes next.
    row: usize,
    /// The end of the row group that is being read.
    end: usize,
    reader: Option<ColumnReaderImpl<T>>,
    /// The values of the last step, without nulls.
    values: Vec<T::T>,
    /// Which rows of the last step are null; empty for a column that has none.
    levels: Vec<i16>,
    /// Whether nulls, and integers that a double cannot represent, become NaN.
    with_nulls: bool,
}

impl<'a, T: DataType> Steps<'a, T> {
    fn new(columns: &'a Columns, column: usize) -> Result<Self> {
        let descr = columns.describe(column);
        if descr.max_rep_level() > 0 {
            return Err(columns.wrong_type(column, "one value a row"));
        }
        Ok(Self {
            columns,
            column,
            descr,
            group: 0,
            row: 0,
            end: 0,
            reader: None,
            values: Vec::new(),
            levels: Vec::new(),
            with_nulls: false,
        })
    }

    /// Reads at most `most` rows, and returns how many: 0 at the end of the file.
    fn next(&mut self, most: usize) -> Result<usize> {
        self.values.clear();
        self.levels.clear();
        while self.row == self.end {
            let Some(group) = self.columns.metadata.row_groups().get(self.group) else { return Ok(0) };
            let rows = usize::try_from(group.num_rows()).map_err(unreadable)?;
            // The pages of the group before are not in memory while those of this group are read.
            self.reader = None;
            self.reader = Some(self.open(group, rows)?);
            self.group += 1;
            self.end += rows;
        }
        let most = most.min(self.end - self.row);
        let reader = self.reader.as_mut().expect("a group is open");
        let (read, _, _) = reader.read_records(most, Some(&mut self.levels), None, &mut self.values).map_err(bad)?;
        if read == 0 {
            return Err(unreadable(format!("column `{}` ends at row {} of {}", self.descr.path(), self.row, self.columns.rows)));
        }
        self.row += read;
        Ok(read)
    }

    fn open(&self, group: &RowGroupMetaData, rows: usize) -> Result<ColumnReaderImpl<T>> {
        let chunk = group.column(self.column);
        if !matches!(chunk.compression_codec(), Codec::UNCOMPRESSED | Codec::SNAPPY | Codec::ZSTD) {
            return Err(unreadable(format!("it is compressed with {}", chunk.compression_codec())));
        }
        let source = Source { store: self.columns.store.clone(), pages: self.columns.pages.clone(), held: Mutex::default() };
        let inner = SerializedPageReader::new(Arc::new(source), chunk, rows, None).map_err(bad)?;
        Ok(ColumnReaderImpl::new(self.descr.clone(), Box::new(Pages { inner, physical: self.descr.physical_type() })))
    }

    /// Fills `out` with the next rows, as numbers. `inexact` returns integers that a double cannot represent.
    fn fill(&mut self, mut out: &mut [f64], number: impl Fn(&T::T) -> f64, inexact: impl Fn(&T::T) -> Option<i128>) -> Result<()> {
        while !out.is_empty() {
            let first = self.row;
            let read = self.next(out.len())?;
            if read == 0 {
                return Err(unreadable(format!("column `{}` ends at row {first}", self.descr.path())));
            }
            if self.with_nulls {
                let now;
                (now, out) = out.split_at_mut(read);
                let mut values = self.values.iter();
                for (i, out) in now.iter_mut().enumerate() {
                    let is_null = self.levels.get(i).is_some_and(|level| *level < self.descr.max_def_level());
                    let value = if is_null { None } else { values.next().filter(|value| inexact(value).is_none()) };
                    *out = value.map_or(f64::NAN, &number);
                }
                continue;
            }
            if self.values.len() != read {
                let null = self.levels.iter().position(|level| *level < self.descr.max_def_level());
                return present(self.columns.first_number.get() + first + null.unwrap_or(self.values.len()), None);
            }
            let now;
            (now, out) = out.split_at_mut(read);
            now.iter_mut().zip(&self.values).for_each(|(out, value)| *out = number(value));
            if let Some((i, value)) = self.values.iter().enumerate().find_map(|(i, value)| Some((i, inexact(value)?))) {
                let what = format!("row {}: {value} does not fit a double", self.columns.first_number.get() + first + i);
                return Err(Error::data("", what, "integers up to 2^53"));
            }
        }
        Ok(())
    }
}

/// A column of numbers that is read in steps; booleans are 0 and 1.
pub(super) struct Numbers<'a>(Typed<'a>);

enum Typed<'a> {
    Bool(Steps<'a, BoolType>),
    Float(Steps<'a, FloatType>),
    Double(Steps<'a, DoubleType>),
    Int32(Steps<'a, Int32Type>, Integer),
    Int64(Steps<'a, Int64Type>, Integer),
}

impl<'a> Numbers<'a> {
    /// The column, at its first row.
    ///
    /// # Errors
    /// When it has another type.
    pub(super) fn new(columns: &'a Columns, column: usize) -> Result<Self> {
        let wrong = || columns.wrong_type(column, "numbers (int, float, double) or booleans");
        Ok(Self(match columns.describe(column).physical_type() {
            Type::BOOLEAN => Typed::Bool(Steps::new(columns, column)?),
            Type::FLOAT => Typed::Float(Steps::new(columns, column)?),
            Type::DOUBLE => Typed::Double(Steps::new(columns, column)?),
            Type::INT32 => Typed::Int32(Steps::new(columns, column)?, columns.integer(column).ok_or_else(wrong)?),
            Type::INT64 => Typed::Int64(Steps::new(columns, column)?, columns.integer(column).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }))
    }

    /// The same, in which nulls, and integers that a double cannot represent exactly, are NaN.
    pub(super) fn with_nulls(mut self) -> Self {
        match &mut self.0 {
            Typed::Bool(steps) => steps.with_nulls = true,
            Typed::Float(steps) => steps.with_nulls = true,
            Typed::Double(steps) => steps.with_nulls = true,
            Typed::Int32(steps, _) => steps.with_nulls = true,
            Typed::Int64(steps, _) => steps.with_nulls = true,
        }
        self
    }

    /// Fills `out` with the numbers of the next rows.
    ///
    /// # Errors
    /// When there are fewer rows, one is null, or an integer cannot be represented by a double exactly.
    pub(super) fn fill(&mut self, out: &mut [f64]) -> Result<()> {
        let inexact = |value: i128| if exact(value).is_none() { Some(value) } else { None };
        match &mut self.0 {
            Typed::Bool(steps) => steps.fill(out, |value| f64::from(u8::from(*value)), |_| None),
            Typed::Float(steps) => steps.fill(out, |value| f64::from(*value), |_| None),
            Typed::Double(steps) => steps.fill(out, |value| *value, |_| None),
            Typed::Int32(steps, Integer::Signed) => steps.fill(out, |value| f64::from(*value), |_| None),
            Typed::Int32(steps, Integer::Unsigned) => steps.fill(out, |value| f64::from(value.cast_unsigned()), |_| None),
            Typed::Int64(steps, Integer::Signed) => steps.fill(out, |value| *value as f64, |value| inexact(i128::from(*value))),
            Typed::Int64(steps, Integer::Unsigned) => {
                steps.fill(out, |value| value.cast_unsigned() as f64, |value| inexact(i128::from(value.cast_unsigned())))
            }
        }
    }
}

/// The sign of a column of integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Integer {
    /// With a sign.
    Signed,
    /// Without one.
    Unsigned,
}

/// The value, which must not be null.
pub(super) fn present<T>(row: usize, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Error::data("", format!("row {row} is null"), "a value in every row: leave such rows out"))
}

fn too_large(rows: usize, file_len: u64) -> Error {
    let what = format!("{file_len} bytes claim to hold {rows} rows, which is not plausible");
    Error::data("", what, "a file that is not damaged; write very repetitive data without compression")
}

#[cfg(test)]
mod tests;
