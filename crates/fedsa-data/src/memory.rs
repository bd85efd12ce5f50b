//! Tables in memory, such as data frames. A column belongs to a matrix, or is an Arrow array.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchReader};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::filter::filter;
use fedsa::error::{Error, Result, quoted};

use crate::batch::{Batch, Batches};
use crate::{cells, nested};

/// A column of a table in memory.
#[derive(Debug, Clone)]
pub enum MemoryColumn<'a> {
    /// A column of a matrix in row-major order: every `stride`-th number.
    Numbers {
        /// The numbers of the matrix, from the first one of the column on.
        numbers: &'a [f64],
        /// The number of columns of the matrix; at least 1.
        stride: usize,
    },
    /// An Arrow array, which has a type.
    Array(ArrayRef),
}

impl MemoryColumn<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Numbers { numbers, stride } => numbers.len().div_ceil(*stride),
            Self::Array(array) => array.len(),
        }
    }

    /// The type of its values.
    pub(crate) fn data_type(&self) -> &DataType {
        match self {
            Self::Numbers { .. } => &DataType::Float64,
            Self::Array(array) => array.data_type(),
        }
    }

    /// The values of these rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> ArrayRef {
        match self {
            Self::Numbers { numbers, stride } => {
                let of_rows = numbers.iter().step_by(*stride).skip(rows.start).take(rows.len());
                Arc::new(Float64Array::from(of_rows.copied().collect::<Vec<f64>>()))
            }
            Self::Array(array) => array.slice(rows.start, rows.len()),
        }
    }
}

/// A table in memory.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MemoryTable<'a> {
    /// The name of the table in messages.
    pub name: String,
    pub(crate) names: Vec<String>,
    pub(crate) columns: Vec<MemoryColumn<'a>>,
}

impl<'a> MemoryTable<'a> {
    /// A table without columns.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds a matrix in row-major order as columns with these names.
    ///
    /// # Errors
    /// When the number of names is not `width`.
    pub fn add_matrix(&mut self, names: &[String], numbers: &'a [f64], width: usize) -> Result<()> {
        if names.len() != width {
            let what = format!("{} names for {width} columns", names.len());
            return Err(Error::data(quoted(&self.name), what, "a name for each column"));
        }
        // Without rows there are no numbers, and a column has no first number.
        let column = |j: usize| MemoryColumn::Numbers { numbers: numbers.get(j..).unwrap_or_default(), stride: width.max(1) };
        self.names.extend_from_slice(names);
        self.columns.extend((0..width).map(column));
        Ok(())
    }

    /// A table of typed columns.
    pub fn of(name: impl Into<String>, columns: &TypedColumns) -> Self {
        let mut table = Self::new(name);
        table.add_columns(columns);
        table
    }

    /// Adds typed columns.
    pub fn add_columns(&mut self, columns: &TypedColumns) {
        self.names.extend(columns.0.iter().map(|(name, _)| name.clone()));
        self.columns.extend(columns.0.iter().map(|(_, array)| MemoryColumn::Array(array.clone())));
    }

    /// The number of rows.
    ///
    /// # Errors
    /// When columns have different lengths.
    pub(crate) fn rows(&self) -> Result<usize> {
        let lengths = || self.names.iter().zip(self.columns.iter().map(MemoryColumn::len));
        let Some((first, n)) = lengths().next() else { return Ok(0) };
        match lengths().find(|(_, length)| *length != n) {
            None => Ok(n),
            Some((name, other)) => {
                let what = format!("{n} rows of `{}`, and {other} of `{}`", quoted(first), quoted(name));
                Err(Error::data("", what, "columns of equal length"))
            }
        }
    }

    /// The columns, with copies of the numbers that they borrow.
    ///
    /// # Errors
    /// When columns have different lengths.
    pub fn copied(&self) -> Result<TypedColumns> {
        let rows = self.rows()?;
        Ok(TypedColumns(self.names.iter().cloned().zip(self.columns.iter().map(|column| column.part(0..rows))).collect()))
    }

    /// The rows of these columns, at most `most` at a time.
    pub(crate) fn batches(&self, columns: Vec<usize>, most: usize) -> MemoryRows<'_> {
        MemoryRows { table: self, columns, row: 0, most }
    }
}

/// Columns with types, of equal length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TypedColumns(Vec<(String, ArrayRef)>);

impl TypedColumns {
    /// Columns from named arrays. Lists of numbers and structures become several columns, as in files.
    ///
    /// # Errors
    /// When lists have different lengths.
    pub fn new(arrays: impl IntoIterator<Item = (String, ArrayRef)>) -> Result<Self> {
        let columns = arrays.into_iter().map(|(name, array)| nested::columns_of(&name, &array));
        Ok(Self(columns.collect::<Result<Vec<_>>>()?.concat()))
    }

    /// The columns of all batches of a stream.
    ///
    /// # Errors
    /// When the stream cannot be read, and as [`TypedColumns::new`].
    pub fn of_stream(stream: impl RecordBatchReader) -> Result<Self> {
        let schema = stream.schema();
        let batches = stream.collect::<Result<Vec<RecordBatch>, _>>().map_err(|e| unreadable(&e))?;
        let column = |(i, field): (usize, &Arc<Field>)| {
            let parts: Vec<ArrayRef> = batches.iter().map(|batch| batch.column(i).clone()).collect();
            Ok((field.name().clone(), cells::joined(&parts, field.data_type())?))
        };
        Self::new(schema.fields().iter().enumerate().map(column).collect::<Result<Vec<_>>>()?)
    }

    /// The columns whose bytes [`TypedColumns::to_bytes`] gave.
    ///
    /// # Errors
    /// When the bytes cannot be read as columns.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::of_stream(StreamReader::try_new(bytes, None).map_err(|e| unreadable(&e))?)
    }

    /// All columns as bytes. Equal columns have equal bytes.
    ///
    /// # Errors
    /// When Arrow's format does not have the type of a column.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let fields: Vec<Field> = self.0.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
        let schema = Arc::new(Schema::new(fields));
        let write = || {
            let arrays = self.0.iter().map(|(_, array)| array.clone()).collect();
            let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
            if !self.0.is_empty() {
                writer.write(&RecordBatch::try_new(schema.clone(), arrays)?)?;
            }
            writer.into_inner()
        };
        write().map_err(|e| unreadable(&e))
    }

    /// The rows for which `keep` is true.
    ///
    /// # Errors
    /// When `keep` does not have an entry for each row.
    pub fn filtered(&self, keep: &[bool]) -> Result<Self> {
        let keep = BooleanArray::from(keep.to_vec());
        let column = |(name, array): &(String, ArrayRef)| Ok((name.clone(), filter(array, &keep).map_err(|e| unreadable(&e))?));
        self.0.iter().map(column).collect::<Result<_>>().map(Self)
    }

    /// The numbers of a column. A missing number is NaN.
    ///
    /// # Errors
    /// When there is no such column, or the column does not hold numbers.
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>> {
        let column = self.0.iter().find(|(other, _)| other == name);
        let (_, array) = column.ok_or_else(|| Error::data("", format!("there is no column `{}`", quoted(name)), "one of its columns"))?;
        let mut numbers = vec![0.0; array.len()];
        cells::numbers(array, &mut numbers).map_err(|e| cells::in_column(name, e))?;
        Ok(numbers)
    }

    /// The names of the columns.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.0.first().map_or(0, |(_, array)| array.len())
    }
}

fn unreadable(e: &ArrowError) -> Error {
    Error::data("", format!("its Arrow columns cannot be read: {}", crate::shown(e)), "a table that can be read")
}

/// Reads the rows of a table in batches, from the first row on.
pub(crate) struct MemoryRows<'a> {
    table: &'a MemoryTable<'a>,
    columns: Vec<usize>,
    row: usize,
    most: usize,
}

impl Batches for MemoryRows<'_> {
    fn next(&mut self) -> Result<Option<Batch>> {
        let rows = self.row..self.table.rows()?.min(self.row + self.most);
        self.row = rows.end;
        let columns = self.columns.iter().map(|i| self.table.columns[*i].part(rows.clone())).collect();
        Ok((!rows.is_empty()).then(|| Batch::new(rows.start, columns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_may_be_those_of_a_matrix() {
        let numbers = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
        let mut table = MemoryTable::new("");
        table.add_matrix(&["a".into(), "b".into()], &numbers, 2).unwrap();
        assert_eq!(table.rows().unwrap(), 3);
        let mut batches = table.batches(vec![1, 0], 2);
        let columns = |batch: Batch| batch.columns.iter().map(|c| c.to_data().buffer::<f64>(0).to_vec()).collect::<Vec<_>>();
        assert_eq!(columns(batches.next().unwrap().unwrap()), [[10.0, 20.0], [1.0, 2.0]]);
        assert_eq!(columns(batches.next().unwrap().unwrap()), [[30.0], [3.0]]);
        assert!(batches.next().unwrap().is_none());
    }
}
