//! Parquet files as people have them: every codec, encoding and type of numbers and texts, and lists of numbers.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeListArray, Float16Array, Float32Array, Float64Array, Int64Array,
    LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray, StructArray, TimestampMillisecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use fedsa_data::{datasets, logs};
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::Inputs;
use fedsa_problems::rows::dataset::{Columns, Labels, Rows, Wanted};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

fn file_with(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    file_with(columns, WriterProperties::default())
}

fn numbers(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

/// The values of a data set of dense rows.
fn values(file: Vec<u8>) -> Vec<f64> {
    match datasets::from_parquet(file, &Wanted::default()).unwrap().rows {
        Rows::Dense { values, .. } => values,
        Rows::Sparse { .. } => panic!("rows of Parquet are dense"),
    }
}

#[test]
fn every_codec_is_read() {
    let x: Vec<f64> = (0..5000).map(|i| f64::from(i % 17)).collect();
    let log = || {
        vec![
            ("s_0", numbers(&x)),
            ("next_0", numbers(&x)),
            ("reward", numbers(&x)),
            ("done", Arc::new(BooleanArray::from(vec![false; x.len()])) as ArrayRef),
        ]
    };
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ] {
        let properties = || WriterProperties::builder().set_compression(compression).build();
        let read = values(file_with(vec![("x", numbers(&x)), ("target", numbers(&x))], properties()));
        assert!(read == x, "{compression}");
        let read = logs::from_parquet(file_with(log(), properties()), Inputs::States).unwrap();
        assert!(read.states == x && read.rewards == x, "{compression}");
    }
}

#[test]
fn numbers_of_every_type_are_read() {
    let half: Float16Array = ["0.5", "-2"].into_iter().map(|x| Some(x.parse().unwrap())).collect();
    let decimals = |precision| Arc::new(Decimal128Array::from(vec![50, -200]).with_precision_and_scale(precision, 2).unwrap()) as ArrayRef;
    let columns: [ArrayRef; 6] = [
        Arc::new(half),
        Arc::new(Float32Array::from(vec![0.5, -2.0])),
        // Parquet stores them in 32 bits, in 64 bits and in bytes.
        decimals(5),
        decimals(15),
        decimals(38),
        Arc::new(DictionaryArray::<Int32Type>::new(vec![1, 0].into(), numbers(&[-2.0, 0.5]))),
    ];
    for column in columns {
        let kind = column.data_type().to_string();
        let read = values(file(vec![("x", column.clone()), ("target", numbers(&[1.0, 2.0]))]));
        assert_eq!(read, [0.5, -2.0], "{kind}");
        let target = datasets::from_parquet(file(vec![("x", numbers(&[1.0, 2.0])), ("target", column)]), &Wanted::default()).unwrap();
        assert_eq!(target.targets, Some(Labels::Numbers(vec![0.5, -2.0])), "{kind}");
    }
}

#[test]
fn texts_of_every_type_and_encoding_are_read() {
    let words = ["apple", "apricot", "apple"];
    let columns: [ArrayRef; 4] = [
        Arc::new(StringArray::from_iter_values(words)),
        Arc::new(LargeStringArray::from_iter_values(words)),
        Arc::new(StringViewArray::from_iter_values(words)),
        Arc::new(words.into_iter().collect::<DictionaryArray<Int32Type>>()),
    ];
    let encodings = [None, Some(Encoding::PLAIN), Some(Encoding::DELTA_BYTE_ARRAY), Some(Encoding::DELTA_LENGTH_BYTE_ARRAY)];
    for (column, encoding) in columns.iter().flat_map(|column| encodings.map(|encoding| (column, encoding))) {
        let mut properties = WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_2_0);
        if let Some(encoding) = encoding {
            let path = ColumnPath::from("target");
            properties = properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
        }
        let file = file_with(vec![("x", numbers(&[1.0, 2.0, 3.0])), ("target", column.clone())], properties.build());
        let Some(Labels::Names { names, of }) = datasets::from_parquet(file, &Wanted::default()).unwrap().targets else {
            panic!("targets of text have names")
        };
        assert_eq!((names, of), (vec!["apple".to_string(), "apricot".into()], vec![0, 1, 0]), "{} {encoding:?}", column.data_type());
    }
}

#[test]
fn numbers_that_are_delta_encoded_are_read() {
    let whole: Vec<i64> = (0..1000).map(|i| i * i).collect();
    for encoding in [Encoding::DELTA_BINARY_PACKED, Encoding::BYTE_STREAM_SPLIT] {
        let properties = WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding).build();
        let column = Arc::new(Int64Array::from(whole.clone())) as ArrayRef;
        assert!(
            values(file_with(vec![("x", column.clone()), ("target", column)], properties)).into_iter().eq(whole.iter().map(|x| *x as f64))
        );
    }
}

/// Lists of two numbers, of a fixed length or not.
fn lists(is_fixed: bool, rows: &[[f32; 2]]) -> ArrayRef {
    let field = Arc::new(Field::new("item", DataType::Float32, true));
    let items = Arc::new(Float32Array::from(rows.concat()));
    if is_fixed {
        return Arc::new(FixedSizeListArray::new(field, 2, items, None));
    }
    let offsets = OffsetBuffer::from_lengths(rows.iter().map(|_| 2));
    Arc::new(ListArray::new(field, offsets, items, None))
}

#[test]
fn lists_of_numbers_become_columns() {
    for is_fixed in [true, false] {
        let of = |rows: &[[f32; 2]]| file(vec![("obs", lists(is_fixed, rows)), ("target", numbers(&[1.0, 2.0]))]);
        let set = datasets::from_parquet(of(&[[1.0, 2.0], [3.0, 4.0]]), &Wanted::default()).unwrap();
        assert_eq!(set.columns, Columns::Named(vec!["obs_0".into(), "obs_1".into()]), "{is_fixed}");
        assert_eq!(set.rows, Rows::Dense { d: 2, values: vec![1.0, 2.0, 3.0, 4.0] }, "{is_fixed}");
    }
    let field = Arc::new(Field::new("item", DataType::Float64, true));
    let items = numbers(&[1.0, 2.0, 3.0]);
    let uneven = Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([2, 1]), items, None));
    let e = datasets::from_parquet(file(vec![("obs", uneven), ("target", numbers(&[1.0, 2.0]))]), &Wanted::default()).unwrap_err();
    assert_eq!(e.to_string(), "column `obs_0`: row 1 is a list of 1 numbers, and row 0 one of 2");
}

#[test]
fn fields_of_structures_are_columns() {
    let inner = StructArray::from(vec![(Arc::new(Field::new("a", DataType::Float64, false)), numbers(&[1.0, 2.0]))]);
    let set = datasets::from_parquet(file(vec![("x", Arc::new(inner)), ("target", numbers(&[1.0, 2.0]))]), &Wanted::default()).unwrap();
    assert_eq!(set.columns, Columns::Named(vec!["x.a".into()]));
}

/// A log as data sets of robots have it: lists of numbers, and no next states.
fn robots() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("observation.state", lists(true, &[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])),
        ("action", lists(true, &[[0.0, 0.0]; 4])),
        ("timestamp", Arc::new(Float32Array::from(vec![0.0, 0.1, 0.0, 0.1]))),
        ("frame_index", Arc::new(Int64Array::from(vec![0, 1, 0, 1]))),
        ("episode_index", Arc::new(Int64Array::from(vec![0, 0, 1, 1]))),
        ("next.reward", Arc::new(Float32Array::from(vec![0.0, 1.0, 0.0, 1.0]))),
        ("next.done", Arc::new(BooleanArray::from(vec![false, true, false, true]))),
    ]
}

#[test]
fn logs_of_robots_are_recognised() {
    let logs = logs::from_form(file(robots()), &LogForm::default()).unwrap();
    let log = &logs[0];
    assert_eq!(log.columns, ["s_0", "s_1"]);
    assert_eq!(log.states, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(log.next[..2], [2.0, 3.0]);
    assert_eq!((&log.done[..], &log.rewards[..]), (&[false, true, false, true][..], &[0.0, 1.0, 0.0, 1.0][..]));
    // Names that a caller gives come first.
    let mut named = robots();
    named[0].0 = "proprioception";
    let mut form = LogForm::default();
    form.columns = [("s_*".to_string(), "proprioception_*".to_string())].into();
    assert_eq!(logs::from_form(file(named), &form).unwrap()[0].states, log.states);
}

#[test]
fn ids_of_groups_are_exact() {
    let ids = Arc::new(Int64Array::from(vec![1_582_218_195_625_938_945, 1_582_218_195_625_938_946])) as ArrayRef;
    let file = file(vec![("x", numbers(&[1.0, 2.0])), ("site", ids), ("target", numbers(&[1.0, 2.0]))]);
    let Some(Labels::Names { names, of }) = datasets::from_parquet(file, &Wanted::default().with_group("site")).unwrap().groups else {
        panic!("ids that no double represents are names")
    };
    assert_eq!((&names[0][..], &names[1][..], of), ("1582218195625938945", "1582218195625938946", vec![0, 1]));
}

#[test]
fn other_types_are_named_in_words() {
    let times = Arc::new(TimestampMillisecondArray::from(vec![1, 2])) as ArrayRef;
    let e = datasets::from_parquet(file(vec![("at", times), ("target", numbers(&[1.0, 2.0]))]), &Wanted::default()).unwrap_err();
    assert_eq!(e.to_string(), "column `at`: it holds dates with times");
}
