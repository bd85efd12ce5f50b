//! `trace.parquet`: a table of columns, one row per recorded round.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use arrow_schema::DataType;
use fedsa::error::{Error, Result, quoted};
use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use super::cells::{self, CellKind};
use super::parquet::{ParquetFile, contained};
use super::{about, shown};

/// The metadata key of the format's version, and the version.
const VERSION: (&str, &str) = ("fedsa.trace.version", "2");
/// The number of rows of a row group, which readers hold in memory.
const GROUP: usize = 1 << 20;

/// The values of a column, one per row.
#[derive(Debug, Clone, PartialEq)]
pub enum TraceColumn {
    /// Text, stored with a dictionary.
    Str(Vec<String>),
    /// Optional text.
    OptStr(Vec<Option<String>>),
    /// Integers.
    I64(Vec<i64>),
    /// Numbers.
    F64(Vec<f64>),
    /// Numbers, `None` if unknown.
    OptF64(Vec<Option<f64>>),
}

impl TraceColumn {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Str(v) => v.len(),
            Self::OptStr(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::OptF64(v) => v.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Named columns of equal length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    columns: Vec<(String, TraceColumn)>,
}

impl Trace {
    /// A table of these columns, in this order.
    ///
    /// # Errors
    /// When two columns have the same name or different numbers of rows.
    pub fn new(columns: Vec<(String, TraceColumn)>) -> Result<Self> {
        for (i, (name, column)) in columns.iter().enumerate() {
            let (first, rows) = (&columns[0].0, columns[0].1.len());
            if column.len() != rows {
                let what = format!("{} rows, but `{}` has {rows}", column.len(), quoted(first));
                return Err(Error::data(quoted(name), what, "columns of equal length"));
            }
            if columns[..i].iter().any(|(other, _)| other == name) {
                return Err(Error::data(quoted(name), "two columns have this name", "columns with different names"));
            }
        }
        Ok(Self { columns })
    }

    /// The columns in order.
    pub fn columns(&self) -> &[(String, TraceColumn)] {
        &self.columns
    }

    /// The column called `name`, if there is one.
    pub fn column(&self, name: &str) -> Option<&TraceColumn> {
        self.columns.iter().find(|(other, _)| other == name).map(|(_, column)| column)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }
}

/// The bytes of a table as a Parquet file. Equal tables give equal bytes.
///
/// # Errors
/// When the table has no columns, or Parquet cannot represent it.
pub fn to_bytes(table: &Trace) -> Result<Vec<u8>> {
    if table.columns.is_empty() {
        return Err(Error::data("", "a table without columns", "at least one column"));
    }
    encode(table).map_err(|e| Error::data("", format!("no Parquet file can hold this table: {}", shown(e)), "fewer or shorter values"))
}

fn encode(table: &Trace) -> Result<Vec<u8>, ParquetError> {
    let fields = table.columns.iter().map(|(name, column)| Ok(Arc::new(field(name, column)?))).collect::<Result<_, ParquetError>>()?;
    let schema = Type::group_type_builder("trace").with_fields(fields).build()?;
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_dictionary_enabled(false)
        .set_created_by(concat!("fedsa version ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(Some(vec![KeyValue::new(VERSION.0.into(), VERSION.1.to_string())]));
    for (name, column) in &table.columns {
        if matches!(column, TraceColumn::Str(_) | TraceColumn::OptStr(_)) {
            properties = properties.set_column_dictionary_enabled(ColumnPath::new(vec![name.clone()]), true);
        }
    }
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?;
    for start in (0..table.rows()).step_by(GROUP) {
        let rows = start..table.rows().min(start + GROUP);
        let mut group = writer.next_row_group()?;
        for (_, column) in &table.columns {
            write_column(&mut group, column, rows.clone())?;
        }
        group.close()?;
    }
    writer.into_inner()
}

fn field(name: &str, column: &TraceColumn) -> Result<Type, ParquetError> {
    let (physical, converted, repetition) = match column {
        TraceColumn::Str(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8, Repetition::REQUIRED),
        TraceColumn::OptStr(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8, Repetition::OPTIONAL),
        TraceColumn::I64(_) => (Physical::INT64, ConvertedType::NONE, Repetition::REQUIRED),
        TraceColumn::F64(_) => (Physical::DOUBLE, ConvertedType::NONE, Repetition::REQUIRED),
        TraceColumn::OptF64(_) => (Physical::DOUBLE, ConvertedType::NONE, Repetition::OPTIONAL),
    };
    Type::primitive_type_builder(name, physical).with_converted_type(converted).with_repetition(repetition).build()
}

fn write_column(
    group: &mut SerializedRowGroupWriter<Vec<u8>>,
    column: &TraceColumn,
    rows: std::ops::Range<usize>,
) -> Result<(), ParquetError> {
    let mut writer = group.next_column()?.ok_or_else(|| ParquetError::General("the schema lacks a column".into()))?;
    match column {
        TraceColumn::Str(v) => {
            let values: Vec<ByteArray> = v[rows].iter().map(|text| text.as_str().into()).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, None, None)?;
        }
        TraceColumn::OptStr(v) => {
            let levels: Vec<i16> = v[rows.clone()].iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<ByteArray> = v[rows].iter().flatten().map(|text| text.as_str().into()).collect();
            writer.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        }
        TraceColumn::I64(v) => {
            writer.typed::<Int64Type>().write_batch(&v[rows], None, None)?;
        }
        TraceColumn::F64(v) => {
            writer.typed::<DoubleType>().write_batch(&v[rows], None, None)?;
        }
        TraceColumn::OptF64(v) => {
            let levels: Vec<i16> = v[rows.clone()].iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<f64> = v[rows].iter().flatten().copied().collect();
            writer.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        }
    }
    writer.close()
}

/// Reads a table that [`to_bytes`] wrote. Other Parquet files are accepted if their
/// columns are strings, integers, or doubles.
///
/// # Errors
/// When the file cannot be read, has a newer version of the format, or columns of other types.
pub fn read(path: &Path) -> Result<Trace> {
    from_bytes(super::read(path)?).map_err(|e| about(path, e))
}

/// As [`read`], for a file in memory.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(file: Vec<u8>) -> Result<Trace> {
    contained(file, |columns| {
        if let Some(version) = columns.note(VERSION.0).filter(|version| *version != VERSION.1) {
            let what = format!("version {} of the format of traces", quoted(version));
            return Err(Error::format("", what, format!("version {}, or a newer fedsa", VERSION.1)));
        }
        let read = |(i, name): (usize, String)| match read_column(columns, i) {
            Ok(column) => Ok((name, column)),
            Err(e) => Err(cells::in_column(&name, e)),
        };
        Trace::new(columns.names().into_iter().enumerate().map(read).collect::<Result<_>>()?)
    })
}

fn read_column(file: &ParquetFile, i: usize) -> Result<TraceColumn> {
    let is_optional = file.is_nullable(i);
    match cells::kind(file.data_type(i)) {
        CellKind::Texts => {
            let mut texts: Vec<Option<String>> = Vec::with_capacity(file.rows());
            file.each(i, |first, column| {
                cells::each_text(column, first, |row, text| {
                    if text.is_none() && !is_optional {
                        return Err(cells::null_row(first + row));
                    }
                    texts.push(text.map(String::from));
                    Ok(())
                })
            })?;
            Ok(if is_optional { TraceColumn::OptStr(texts) } else { TraceColumn::Str(texts.into_iter().flatten().collect()) })
        }
        CellKind::Whole => {
            let mut out = Vec::with_capacity(file.rows());
            file.each(i, |_, column| {
                cells::each_whole(column, |value| {
                    let value = value.ok_or_else(|| cells::null_row(out.len()))?;
                    let large = |_| Error::data("", format!("row {} is {value}", out.len()), "integers below 2^63");
                    out.push(i64::try_from(value).map_err(large)?);
                    Ok(())
                })
            })?;
            Ok(TraceColumn::I64(out))
        }
        CellKind::Numbers if *file.data_type(i) == DataType::Float64 => {
            let mut out: Vec<Option<f64>> = Vec::with_capacity(file.rows());
            file.each(i, |_, column| {
                out.extend(column.as_primitive::<Float64Type>());
                Ok(())
            })?;
            Ok(if is_optional { TraceColumn::OptF64(out) } else { TraceColumn::F64(out.into_iter().flatten().collect()) })
        }
        _ => Err(cells::wrong_type(file.data_type(i), "texts, whole numbers or doubles")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: usize, value: impl Fn(usize) -> u64) -> Trace {
        let f = |i| f64::from_bits(value(i));
        Trace::new(vec![
            ("method".into(), TraceColumn::Str((0..rows).map(|i| format!("m{}", value(i) % 3)).collect())),
            ("round".into(), TraceColumn::I64((0..rows).map(|i| value(i).cast_signed()).collect())),
            ("variant".into(), TraceColumn::OptStr((0..rows).map(|i| (value(i) & 1 != 0).then(|| format!("v{}", value(i) % 2))).collect())),
            ("residual".into(), TraceColumn::F64((0..rows).map(f).collect())),
            ("mse".into(), TraceColumn::OptF64((0..rows).map(|i| (value(i) & 3 != 0).then(|| f(i))).collect())),
        ])
        .unwrap()
    }

    /// Equal to the bit, NaNs too.
    fn same(a: &Trace, b: &Trace) -> bool {
        let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        a.columns.len() == b.columns.len()
            && a.columns.iter().zip(&b.columns).all(|((n, x), (m, y))| {
                n == m
                    && match (x, y) {
                        (TraceColumn::F64(x), TraceColumn::F64(y)) => bits(x) == bits(y),
                        (TraceColumn::OptF64(x), TraceColumn::OptF64(y)) => {
                            let bits = |v: &[Option<f64>]| v.iter().map(|v| v.map(f64::to_bits)).collect::<Vec<_>>();
                            bits(x) == bits(y)
                        }
                        _ => x == y,
                    }
            })
    }

    #[test]
    fn tables_larger_than_a_row_group_are_read_back() {
        let table = table(GROUP + 1000, |i| i as u64 * 0x9e37_79b9_7f4a_7c15);
        let bytes = to_bytes(&table).unwrap();
        assert_eq!(bytes, to_bytes(&table).unwrap());
        assert!(same(&from_bytes(bytes).unwrap(), &table));
    }

    #[test]
    fn constant_columns_are_small_and_are_read_back() {
        let table = table(200_000, |_| 7);
        let bytes = to_bytes(&table).unwrap();
        assert!(bytes.len() < 20_000, "{}", bytes.len());
        assert!(same(&from_bytes(bytes).unwrap(), &table));
    }

    #[test]
    fn columns_must_fit_together() {
        let column = |name: &str, n: i64| (name.to_string(), TraceColumn::I64((0..n).collect()));
        assert_eq!(Trace::new(vec![column("a", 2), column("b", 3)]).unwrap_err().to_string(), "b: 3 rows, but `a` has 2");
        assert_eq!(Trace::new(vec![column("a", 2), column("a", 2)]).unwrap_err().to_string(), "a: two columns have this name");
        assert!(to_bytes(&Trace::default()).is_err());
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x/trace.parquet");
        assert!(read(&path).unwrap_err().what.starts_with("cannot be read"));
        std::fs::create_dir(dir.path().join("x")).unwrap();
        std::fs::write(&path, to_bytes(&table(5, |i| i as u64)).unwrap()).unwrap();
        assert_eq!(read(&path).unwrap().rows(), 5);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let e = read(&path).unwrap_err();
        assert!(e.key.ends_with("trace.parquet") && e.what.starts_with("not a readable Parquet file"), "{e}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn tables_are_read_back_to_the_bit(values in prop::collection::vec(any::<u64>(), 0..300)) {
            let table = table(values.len(), |i| values[i]);
            let back = from_bytes(to_bytes(&table).unwrap()).unwrap();
            prop_assert!(same(&back, &table));
        }

        #[test]
        fn text_is_read_back(text in prop::collection::vec(any::<String>(), 1..20)) {
            let table = Trace::new(vec![("a.b c".into(), TraceColumn::Str(text))]).unwrap();
            prop_assert_eq!(from_bytes(to_bytes(&table).unwrap()).unwrap(), table);
        }
    }
}
