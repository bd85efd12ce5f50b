//! Ratios from two columns of probabilities, in CSV and in Parquet.

use std::sync::Arc;

use fedsa_problems::logs::source::Inputs;
use parquet::data_type::{BoolType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::{from_csv, from_parquet};

fn csv(rows: &[(&str, &str)]) -> String {
    let rows: String = rows.iter().map(|(target, behaviour)| format!("0,1,{target},0,2,{behaviour}\n")).collect();
    format!("s_0,next_0,target,done,reward,behaviour\n{rows}")
}

fn parquet(rows: &[(f64, f64)]) -> Vec<u8> {
    let schema = "message log { required double target; required double s_0; required double next_0; required double reward;
        required boolean done; required double behaviour; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::new())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let (target, behaviour): (Vec<f64>, Vec<f64>) = rows.iter().copied().unzip();
    let zeros = vec![0.0; rows.len()];
    for (i, doubles) in [&target, &zeros, &zeros, &zeros, &zeros, &behaviour].into_iter().enumerate() {
        let mut column = group.next_column().unwrap().unwrap();
        match i {
            4 => column.typed::<BoolType>().write_batch(&vec![false; rows.len()], None, None),
            _ => column.typed::<DoubleType>().write_batch(doubles, None, None),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn the_ratio_is_that_of_target_over_behaviour() {
    let read = from_csv(csv(&[("0.5", "0.25"), ("0", "1"), ("1e-3", "0.1"), ("2.5", "0.5")]).into(), Inputs::States).unwrap();
    let expected = Some(vec![2.0, 0.0, 1e-3 / 0.1, 5.0]);
    assert_eq!(read.ratio, expected, "densities may be above 1");
    let read = from_parquet(parquet(&[(0.5, 0.25), (0.0, 1.0), (1e-3, 0.1), (2.5, 0.5)]), Inputs::States).unwrap();
    assert_eq!(read.ratio, expected);
    let american = csv(&[("0.5", "0.25")]).replace("behaviour", "behavior");
    assert_eq!(from_csv(american.into(), Inputs::States).unwrap().ratio, Some(vec![2.0]));
    // With only one of them, the estimate would be for the behaviour policy.
    for (from, there, lacking) in [("behaviour", "target", "behaviour"), ("target", "behaviour", "target")] {
        let alone = csv(&[("0.5", "0.25")]).replace(from, "other");
        let e = from_csv(alone.into(), Inputs::States).unwrap_err();
        assert_eq!(e.to_string(), format!("a column `{there}`, and no column `{lacking}`"));
    }
}

#[test]
fn what_is_no_probability_is_refused_with_its_place() {
    for (rows, message) in [
        ([("0.5", "0.25"), ("0.5", "0")], "line 3, column `behaviour`: `0` is not a probability or density above 0: what was done has one"),
        ([("0.5", "0.25"), ("0.5", "-1")], "line 3, column `behaviour`: `-1` is not a probability"),
        ([("-0.5", "0.25"), ("0.5", "1")], "line 2, column `target`: `-0.5` is not a probability or density, finite and at least 0"),
        ([("0.5", "x"), ("0.5", "1")], "line 2, column `behaviour`: `x` is not a probability"),
        ([("inf", "1"), ("0.5", "1")], "line 2, column `target`: `inf` is not a probability"),
        ([("1", "1"), ("1e300", "1e-300")], "line 3, column `behaviour`: `1e-300` is not a probability or density, so large that"),
    ] {
        let e = from_csv(csv(&rows).into(), Inputs::States).unwrap_err().to_string();
        assert!(e.starts_with(message), "{e}");
    }
    let e = from_parquet(parquet(&[(0.5, 0.25), (0.5, 0.0)]), Inputs::States).unwrap_err();
    assert_eq!(e.to_string(), "column `behaviour`: row 1 is 0");
    let e = from_parquet(parquet(&[(f64::NAN, 0.25)]), Inputs::States).unwrap_err();
    assert!(e.to_string().starts_with("column `target`: row 0 is "), "{e}");
    let both = csv(&[("0.5", "0.25")]).replace("s_0,next_0", "s_0,ratio,next_0").replace("\n0,", "\n0,1,");
    let e = from_csv(both.into(), Inputs::States).unwrap_err();
    assert_eq!(e.to_string(), "a column `ratio`, and `target` and `behaviour`, which make another one");
}
