//! Columns of logs with nulls: the row is named, and no later value takes its place.

use std::sync::Arc;

use fedsa_data::logs;
use fedsa_problems::logs::source::Inputs;
use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

const ROWS: usize = 50;

/// The columns, all of which may have nulls, and what a null in them is called in the message.
const COLUMNS: [(&str, &str); 8] = [
    ("double", "s_0"),
    ("float", "s_1"),
    ("int32", "next_0"),
    ("int64", "next_1"),
    ("double", "reward"),
    ("boolean", "done"),
    ("double", "ratio"),
    ("int64", "episode"),
];

/// A log of [`ROWS`] transitions in two groups of rows, with nulls in these rows of one column.
fn log_with_nulls(column: usize, nulls: &[usize]) -> Vec<u8> {
    let columns: String = COLUMNS.iter().map(|(kind, name)| format!("optional {kind} {name}; ")).collect();
    let schema = Arc::new(parse_message_type(&format!("message log {{ {columns} }}")).unwrap());
    let properties = WriterProperties::builder().set_data_page_row_count_limit(7).set_write_batch_size(7).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for rows in [0..30, 30..ROWS] {
        let mut group = writer.next_row_group().unwrap();
        for (i, (kind, name)) in COLUMNS.iter().enumerate() {
            let is_null = |row: &usize| i == column && nulls.contains(row);
            let levels: Vec<i16> = rows.clone().map(|row| i16::from(!is_null(&row))).collect();
            let present = || rows.clone().filter(|row| !is_null(row));
            let mut out = group.next_column().unwrap().unwrap();
            match *kind {
                "double" => {
                    out.typed::<DoubleType>().write_batch(&present().map(|row| row as f64).collect::<Vec<_>>(), Some(&levels), None)
                }
                "float" => out.typed::<FloatType>().write_batch(&present().map(|row| row as f32).collect::<Vec<_>>(), Some(&levels), None),
                "int32" => out.typed::<Int32Type>().write_batch(&present().map(|row| row as i32).collect::<Vec<_>>(), Some(&levels), None),
                "boolean" => {
                    out.typed::<BoolType>().write_batch(&present().map(|row| row % 5 == 4).collect::<Vec<_>>(), Some(&levels), None)
                }
                _ => {
                    let numbers = present().map(|row| if *name == "episode" { row as i64 / 5 } else { row as i64 });
                    out.typed::<Int64Type>().write_batch(&numbers.collect::<Vec<_>>(), Some(&levels), None)
                }
            }
            .unwrap();
            out.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn a_null_in_any_column_of_a_log_is_refused_with_its_row() {
    let whole = logs::from_parquet(log_with_nulls(0, &[]), Inputs::States).unwrap();
    assert_eq!((whole.len(), whole.rewards[49], whole.states[99], whole.next[99]), (ROWS, 49.0, 49.0, 49.0));
    for (i, (_, name)) in COLUMNS.iter().enumerate() {
        // In a page's middle, at its end, in the second group of rows, and several of them.
        for nulls in [&[3][..], &[6], &[29], &[30], &[ROWS - 1], &[17, 18, 40]] {
            let read = logs::from_parquet(log_with_nulls(i, nulls), Inputs::States);
            // Every fifth row is terminal, and needs no next state.
            let Some(row) = nulls.iter().find(|row| !(name.starts_with("next_") && *row % 5 == 4)) else {
                assert_eq!(read.unwrap().len(), ROWS, "{name}, rows {nulls:?}");
                continue;
            };
            let text = read.expect_err(&format!("{name}, rows {nulls:?}")).to_string();
            assert!(text.contains(&format!("row {row} is null")) && text.contains(name), "{name}, rows {nulls:?}: {text}");
        }
    }
}
