//! Parquet files as batches of Arrow arrays, by the reader of the Arrow project with all its codecs, encodings and types.
//!
//! Columns of lists and of structures become several columns (`nested`). A file is in memory, or is read from disk page by page
//! ([`Store`]).

use std::sync::Arc;
use std::thread;

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, RecordBatch, RecordBatchReader as _};
use arrow_schema::{DataType, Field};
use fedsa::error::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::reader::{ChunkReader, Length};

use super::batch::{self, Batch};
use super::shown;
use super::store::{Store, StoreReader};
use super::{cells, nested};

/// The name of the reading thread. Its panics become errors; a program can use the name to hide them from the terminal.
pub const THREAD: &str = "fedsa-parquet";

/// Opens a Parquet file and reads it on a separate thread: the reader panics on some damaged files, and the panic becomes an error.
pub(super) fn contained<T: Send>(file: impl Into<Store>, read: impl FnOnce(&ParquetFile) -> Result<T> + Send) -> Result<T> {
    contained_while(file.into(), read, || ()).0
}

/// As [`contained`]; `meanwhile` runs on the calling thread. It must return once `read` was dropped, which also happens if the file
/// cannot be read.
pub(super) fn contained_while<T: Send, M>(
    file: Store,
    read: impl FnOnce(&ParquetFile) -> Result<T> + Send,
    meanwhile: impl FnOnce() -> M,
) -> (Result<T>, M) {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD.into());
        let spawned = thread.spawn_scoped(scope, move || read(&ParquetFile::open(file)?));
        let saw = meanwhile();
        let read = match spawned {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(unreadable("its parts contradict each other"))),
            Err(e) => Err(Error::machine(format!("no thread to read it on: {e}"), "memory for one more thread")),
        };
        (read, saw)
    })
}

/// The error for a file that is not a supported Parquet file.
fn unreadable(why: impl std::fmt::Display) -> Error {
    Error::data("", format!("not a readable Parquet file: {}", shown(why)), "a Parquet file that is complete and not damaged")
}

impl Length for Store {
    fn len(&self) -> u64 {
        self.len()
    }
}

impl ChunkReader for Store {
    type T = StoreReader;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(self.reader_at(start))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<bytes::Bytes> {
        Ok(self.bytes(start, length)?)
    }
}

/// A column, and its position in the batches of the file.
struct Column {
    name: String,
    /// The column of the file.
    root: usize,
    /// The fields of structures that lead to it.
    path: Vec<usize>,
    /// Its position in a list, and the length of the list.
    item: Option<(usize, usize)>,
    data_type: DataType,
    is_nullable: bool,
}

pub(super) struct ParquetFile {
    store: Store,
    metadata: ArrowReaderMetadata,
    columns: Vec<Column>,
    rows: usize,
}

impl ParquetFile {
    fn open(store: Store) -> Result<Self> {
        let end = store.len().checked_sub(4).and_then(|at| store.bytes(at, 4).ok());
        if end.as_deref() != Some(b"PAR1") {
            return Err(unreadable("its end is not that of a Parquet file: it is truncated, or of another format"));
        }
        // Parquet types decide, whatever the writer's Arrow types were.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&store, options).map_err(unreadable)?;
        let rows = usize::try_from(metadata.metadata().file_metadata().num_rows()).map_err(unreadable)?;
        let mut file = Self { store, metadata, columns: Vec::new(), rows };
        let schema = Arc::clone(file.metadata.schema());
        for (root, field) in schema.fields().iter().enumerate() {
            file.add_columns(root, field, field.name().clone(), Vec::new())?;
        }
        Ok(file)
    }

    /// Adds the columns of a field.
    fn add_columns(&mut self, root: usize, field: &Field, name: String, path: Vec<usize>) -> Result<()> {
        let mut column = Column { name, root, path, item: None, data_type: field.data_type().clone(), is_nullable: field.is_nullable() };
        match field.data_type() {
            DataType::Struct(fields) => {
                for (i, field) in fields.iter().enumerate() {
                    let path = [&column.path[..], &[i]].concat();
                    self.add_columns(root, field, nested::field_name(&column.name, field.name()), path)?;
                }
                return Ok(());
            }
            of if nested::has_lists(of) => {
                if let Some(of) = self.width_of(&column)? {
                    let items = (0..of).map(|i| Column {
                        name: nested::item_name(&column.name, i),
                        path: column.path.clone(),
                        item: Some((i, of)),
                        data_type: DataType::Float64,
                        ..column
                    });
                    self.columns.extend(items);
                    return Ok(());
                }
            }
            _ => (),
        }
        column.is_nullable |= !column.path.is_empty();
        self.columns.push(column);
        Ok(())
    }

    /// The number of columns for the lists of a column.
    fn width_of(&self, column: &Column) -> Result<Option<usize>> {
        let Some(batch) = self.reader(&[column.root], 1)?.next() else { return Ok(None) };
        Ok(nested::width(&*descended(batch.map_err(unreadable)?.column(0), &column.path)))
    }

    fn reader(&self, roots: &[usize], most: usize) -> Result<ParquetRecordBatchReader> {
        let mask = ProjectionMask::roots(self.metadata.parquet_schema(), roots.iter().copied());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.store.clone(), self.metadata.clone());
        builder.with_projection(mask).with_batch_size(most).build().map_err(unreadable)
    }

    /// The columns' names.
    pub(super) fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The value of the file's metadata under `key`.
    pub(super) fn note(&self, key: &str) -> Option<&str> {
        let notes = self.metadata.metadata().file_metadata().key_value_metadata()?;
        notes.iter().find(|note| note.key == key)?.value.as_deref()
    }

    pub(super) fn data_type(&self, column: usize) -> &DataType {
        &self.columns[column].data_type
    }

    /// Whether a column may have nulls.
    pub(super) fn is_nullable(&self, column: usize) -> bool {
        self.columns[column].is_nullable
    }

    /// An error about a column, with its name.
    pub(super) fn in_column(&self, column: usize, e: Error) -> Error {
        cells::in_column(&self.columns[column].name, e)
    }

    /// Reads these columns together, at most `most` rows at a time.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(super) fn batches<'a>(&'a self, columns: &[usize], most: usize) -> Result<Batches<'a>> {
        let mut roots: Vec<usize> = columns.iter().map(|i| self.columns[*i].root).collect();
        roots.sort_unstable();
        roots.dedup();
        let reader = self.reader(&roots, most)?;
        debug_assert!(columns.is_empty() || reader.schema().fields().len() == roots.len());
        Ok(Batches { file: self, reader, roots, columns: columns.to_vec(), row: 0 })
    }

    /// A column, in one piece.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn whole(&self, column: usize) -> Result<ArrayRef> {
        let mut parts = Vec::new();
        self.each(column, |_, part| {
            parts.push(Arc::clone(part));
            Ok(())
        })?;
        cells::joined(&parts, self.data_type(column))
    }

    /// Calls `see` with a column, piece by piece, and the number of the first row of each.
    ///
    /// # Errors
    /// When the column cannot be read, and the first error of `see`.
    pub(super) fn each(&self, column: usize, mut see: impl FnMut(usize, &ArrayRef) -> Result<()>) -> Result<()> {
        const BATCH: usize = 8192;
        let mut batches = self.batches(&[column], BATCH)?;
        let mut row = 0;
        while let Some(columns) = batches.next_columns()? {
            see(row, &columns[0])?;
            row += columns[0].len();
        }
        Ok(())
    }
}

/// Batches of columns, in the requested order.
pub(super) struct Batches<'a> {
    file: &'a ParquetFile,
    reader: ParquetRecordBatchReader,
    /// The columns of the file that are read.
    roots: Vec<usize>,
    columns: Vec<usize>,
    /// The next row.
    row: usize,
}

impl Batches<'_> {
    /// The next rows of each column; `None` at the end.
    ///
    /// # Errors
    /// When they cannot be read, the file ends early, or lists have different lengths.
    pub(super) fn next_columns(&mut self) -> Result<Option<Vec<ArrayRef>>> {
        let Some(batch) = self.reader.next().transpose().map_err(unreadable)? else {
            let (row, rows) = (self.row, self.file.rows);
            return if row == rows { Ok(None) } else { Err(unreadable(format!("it ends at row {row} of {rows}"))) };
        };
        // The numbers of the file's list columns, each of which becomes several columns.
        let mut lists: Vec<(usize, Vec<f64>)> = Vec::new();
        let columns = self.columns.iter().map(|i| self.column(&batch, *i, &mut lists)).collect::<Result<_>>()?;
        self.row += batch.num_rows();
        Ok(Some(columns))
    }

    fn column(&self, batch: &RecordBatch, i: usize, lists: &mut Vec<(usize, Vec<f64>)>) -> Result<ArrayRef> {
        let column = &self.file.columns[i];
        let root = self.roots.binary_search(&column.root).expect("the root of each column is read");
        let array = descended(batch.column(root), &column.path);
        let Some((at, of)) = column.item else { return Ok(array) };
        let key = i - at;
        if !lists.iter().any(|(known, _)| *known == key) {
            let numbers = nested::numbers(&*array, of, self.row).map_err(|e| self.file.in_column(i, e))?;
            lists.push((key, numbers));
        }
        let numbers = lists.iter().find(|(known, _)| *known == key).map_or(&[][..], |(_, numbers)| numbers);
        Ok(nested::item(&*array, numbers, at, of))
    }
}

impl batch::Batches for Batches<'_> {
    fn next(&mut self) -> Result<Option<Batch>> {
        let first = self.row;
        Ok(self.next_columns()?.map(|columns| Batch::new(first, columns)))
    }
}

/// The field of structures at the end of a path; null if a structure is null.
fn descended(array: &ArrayRef, path: &[usize]) -> ArrayRef {
    path.iter().fold(Arc::clone(array), |array, i| array.as_struct().flatten().1.swap_remove(*i))
}

#[cfg(test)]
mod tests;
