//! Reads columns of untrusted Parquet files.
//!
//! The `parquet` crate is used through its column readers, without arrow. On
//! malformed files it mostly returns errors, sometimes panics, allocates what a
//! header claims, and parses the schema by recursion. All reading therefore happens in
//! [`contained`], and pages pass two checks: [`Source`] checks the
//! size that a page claims before the page is unpacked, [`Pages`] its number of
//! values before the values are unpacked.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use bytes::{Buf, Bytes};
use fedsa::error::{BadInput, Result};
use parquet::basic::{CompressionCodec as Codec, ConvertedType, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescPtr;

use super::{exact, expansion_limit, shown};

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

/// Opens a Parquet file from its bytes and reads it in isolation: on a separate
/// thread, with a stack that the most deeply nested schema does not exhaust, and
/// with panics turned into errors.
pub(super) fn contained<T: Send>(file: Vec<u8>, read: impl FnOnce(&Columns) -> Result<T> + Send) -> Result<T> {
    let footer = match file.last_chunk() {
        Some(&[a, b, c, d, b'P', b'A', b'R', b'1']) => file.len().min(u32::from_le_bytes([a, b, c, d]) as usize),
        _ => return Err(unreadable("its end is not that of a Parquet file: it is truncated, or of another format")),
    };
    if footer > MAX_FOOTER {
        return Err(unreadable(format!("its footer of {footer} bytes is longer than {MAX_FOOTER}")));
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD.into()).stack_size(STACK + footer * STACK_PER_FOOTER);
        let spawned = thread.spawn_scoped(scope, || read(&Columns::open(file)?));
        let thread = spawned.map_err(|e| BadInput::new("", format!("no thread to read it on: {e}"), "memory for one more thread"))?;
        thread.join().unwrap_or_else(|_| Err(unreadable("its parts contradict each other")))
    })
}

/// The error for a file that is not a Parquet file of the supported kind.
fn unreadable(why: impl std::fmt::Display) -> BadInput {
    BadInput::new(
        "",
        format!("not a readable Parquet file: {}", shown(why)),
        "a Parquet file, uncompressed or compressed with snappy or zstd",
    )
}

fn bad(e: ParquetError) -> BadInput {
    unreadable(e)
}

/// The columns of a Parquet file.
pub(super) struct Columns {
    source: Arc<Source>,
    metadata: ParquetMetaData,
    /// The number of rows.
    rows: usize,
    /// The bytes that may still be read into memory.
    left: Cell<usize>,
}

impl Columns {
    fn open(file: Vec<u8>) -> Result<Self> {
        let limit = expansion_limit(file.len());
        let file = Bytes::from(file);
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(bad)?;
        let mut rows = 0usize;
        for group in metadata.row_groups() {
            let more = usize::try_from(group.num_rows()).ok();
            rows = more.and_then(|more| rows.checked_add(more)).ok_or_else(|| unreadable("an impossible number of rows"))?;
        }
        Ok(Self { source: Arc::new(Source { file, limit }), metadata, rows, left: Cell::new(limit) })
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

    /// A column of numbers, one per row; booleans are 0 and 1.
    ///
    /// # Errors
    /// When the column has another type, a null, or an integer that a double cannot
    /// represent exactly.
    pub(super) fn numbers(&self, column: usize) -> Result<Vec<f64>> {
        let mut out = self.room()?;
        let mut push = |number: f64| {
            out.push(number);
            Ok(())
        };
        match self.describe(column).physical_type() {
            Type::BOOLEAN => self.each::<BoolType>(column, |row, v| push(f64::from(u8::from(*present(row, v)?))))?,
            Type::FLOAT => self.each::<FloatType>(column, |row, v| push(f64::from(*present(row, v)?)))?,
            Type::DOUBLE => self.each::<DoubleType>(column, |row, v| push(*present(row, v)?))?,
            Type::INT32 | Type::INT64 if self.integer(column).is_some() => self.each_integer(column, |row, v| {
                let inexact = || BadInput::new("", format!("row {row}: {v} does not fit a double"), "integers up to 2^53");
                push(exact(v).ok_or_else(inexact)?)
            })?,
            _ => return Err(self.wrong_type(column, "numbers (int, float, double) or booleans")),
        }
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
        let descr = self.describe(column);
        if descr.max_rep_level() > 0 {
            return Err(self.wrong_type(column, "one value a row"));
        }
        let mut row = 0;
        let mut values: Vec<T::T> = Vec::with_capacity(BATCH);
        let mut levels: Vec<i16> = Vec::with_capacity(BATCH);
        for group in self.metadata.row_groups() {
            let end = row + usize::try_from(group.num_rows()).map_err(unreadable)?;
            let chunk = group.column(column);
            if !matches!(chunk.compression_codec(), Codec::UNCOMPRESSED | Codec::SNAPPY | Codec::ZSTD) {
                return Err(unreadable(format!("it is compressed with {}", chunk.compression_codec())));
            }
            let inner = SerializedPageReader::new(self.source.clone(), chunk, end - row, None).map_err(bad)?;
            let pages = Pages { inner, physical: descr.physical_type() };
            let mut reader = ColumnReaderImpl::<T>::new(descr.clone(), Box::new(pages));
            while row < end {
                values.clear();
                levels.clear();
                let batch = BATCH.min(end - row);
                let (read, _, _) = reader.read_records(batch, Some(&mut levels), None, &mut values).map_err(bad)?;
                if read == 0 {
                    return Err(unreadable(format!("column `{}` ends at row {row} of {}", descr.path(), self.rows)));
                }
                let mut next = values.iter();
                for i in 0..read {
                    let null = levels.get(i).is_some_and(|&level| level < descr.max_def_level());
                    visit(row + i, if null { None } else { next.next() })?;
                }
                row += read;
            }
        }
        Ok(())
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
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| too_large(self.rows, self.source.file.len()))?;
        self.left.set(left);
        Ok(())
    }

    pub(super) fn wrong_type(&self, column: usize, wanted: &str) -> BadInput {
        let descr = self.describe(column);
        let logical = match (descr.logical_type_ref(), descr.converted_type()) {
            (Some(logical), _) => format!(" ({logical:?})"),
            (None, ConvertedType::NONE) => String::new(),
            (None, converted) => format!(" ({converted})"),
        };
        let list = if descr.max_rep_level() > 0 { "lists of " } else { "" };
        BadInput::new("", format!("it holds {list}{}{}", descr.physical_type(), shown(logical)), format!("a column of {wanted}"))
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
    value.ok_or_else(|| BadInput::new("", format!("row {row} is null"), "a value in every row: leave such rows out"))
}

fn too_large(rows: usize, file_len: usize) -> BadInput {
    let what = format!("{file_len} bytes claim to hold {rows} rows, which is not plausible");
    BadInput::new("", what, "a file that is not damaged; write very repetitive data without compression")
}

/// The file's bytes. Reading the header of a page fails if the page claims to unpack
/// to more than the size of the file justifies.
struct Source {
    file: Bytes,
    limit: usize,
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.file.len() as u64
    }
}

impl ChunkReader for Source {
    type T = bytes::buf::Reader<Bytes>;

    /// Called for the headers of pages only.
    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        let start = usize::try_from(start).ok().filter(|start| *start <= self.file.len());
        let header = self.file.slice(start.ok_or_else(|| ParquetError::EOF("a page beyond the end".into()))?..);
        match unpacked_size(&header) {
            Some(size) if size <= self.limit as u64 => Ok(header.reader()),
            Some(size) => Err(ParquetError::General(format!("a page claims to unpack to {size} bytes"))),
            None => Err(ParquetError::General("a page has no valid header".into())),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.file.get_bytes(start, length)
    }
}

/// The size that a page claims to unpack to: the second of the first two fields
/// of its header, `type` and `uncompressed_page_size`, both of type i32 (0x15
/// is "the next field, an i32" in Thrift's compact protocol). A negative size
/// becomes a huge one.
fn unpacked_size(header: &[u8]) -> Option<u64> {
    let (page_type, size) = varint_field(header).and_then(|(page_type, rest)| Some((page_type, varint_field(rest)?.0)))?;
    let zigzag = |v: u64| (v >> 1).cast_signed() ^ -((v & 1).cast_signed());
    (0..=3).contains(&zigzag(page_type)).then_some(zigzag(size).cast_unsigned())
}

/// A field of type i32 and what follows it.
fn varint_field(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = bytes.strip_prefix(&[0x15])?;
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Pages; those whose claimed sizes the decoders would trust too much are refused.
struct Pages {
    inner: SerializedPageReader<Source>,
    physical: Type,
}

impl Pages {
    fn check(&self, page: &Page) -> parquet::errors::Result<()> {
        let refuse = |why: String| Err(ParquetError::General(why));
        match page {
            // The decoder allocates all entries before it decodes the first.
            Page::DictionaryPage { buf, num_values, .. } => {
                let width = match self.physical {
                    Type::INT32 | Type::FLOAT => 4,
                    Type::INT64 | Type::DOUBLE => 8,
                    Type::BYTE_ARRAY => 4, // its length
                    other => return refuse(format!("a dictionary of {other}")),
                };
                if *num_values as usize > buf.len() / width {
                    return refuse(format!("a dictionary of {} bytes claims to hold {num_values} entries", buf.len()));
                }
            }
            // The decoders of delta-encoded strings allocate as many values as the page claims.
            Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => {
                if matches!(encoding, Encoding::DELTA_LENGTH_BYTE_ARRAY | Encoding::DELTA_BYTE_ARRAY) {
                    return refuse(format!("strings encoded as {encoding} are not supported"));
                }
            }
        }
        Ok(())
    }
}

impl Iterator for Pages {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        self.inner.skip_next_page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_page_is_read_from_its_header() {
        assert_eq!(unpacked_size(&[0x15, 0x00, 0x15, 0x80, 0x01, 0x15]), Some(64));
        assert_eq!(unpacked_size(&[0x15, 0x06, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f]), Some(i32::MAX as u64));
        assert!(unpacked_size(&[0x15, 0x00, 0x15, 0x01]).unwrap() > i64::MAX as u64, "negative");
        for bad in [
            &[][..],
            &[0x15],
            &[0x15, 0x00, 0x15],
            &[0x15, 0x08, 0x15, 0x02],
            &[0x25, 0x00, 0x15, 0x02],
            &[0x15, 0x00, 0x15, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
        ] {
            assert_eq!(unpacked_size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn panics_become_errors() {
        let table = crate::trace::Trace::new(vec![("n".into(), crate::trace::TraceColumn::I64(vec![1]))]).unwrap();
        let file = crate::trace::to_bytes(&table).unwrap();
        assert_eq!(contained(file.clone(), |columns| Ok(columns.rows())), Ok(1));
        let e = contained(file, |_| -> Result<()> { panic!("not to be seen") }).unwrap_err();
        assert_eq!(e.what, "not a readable Parquet file: its parts contradict each other");
    }
}
