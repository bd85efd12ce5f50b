//! Actions with the probabilities of the evaluated policy, in CSV and in Parquet.

use std::sync::Arc;

use fedsa_problems::logs::log::LoggedActions;
use fedsa_problems::logs::source::Inputs;
use parquet::data_type::{DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::{LogForm, from_csv, from_form, from_parquet};

/// Columns in another order; the second transition is terminal.
const CSV: &str = "action,s_0,target_1,target_next_0,next_0,target_0,done,reward,target_next_1\n1,5,0.25,0.5,6,0.75,0,2,0.5\n\
                   0,6,1,7,9,0,1,3,-8\n";

fn expected() -> Option<LoggedActions> {
    Some(LoggedActions {
        count: 2,
        taken: vec![1, 0],
        here: vec![0.75, 0.25, 0.0, 1.0],
        next: vec![0.5, 0.5, 7.0, -8.0],
        ..LoggedActions::default()
    })
}

fn parquet(actions: &[i64]) -> Vec<u8> {
    let names = ["s_0", "next_0", "reward", "done", "target_1", "target_0", "target_next_0", "target_next_1"];
    let columns: Vec<String> = names.iter().map(|name| format!("required double {name};")).collect();
    let schema = format!("message log {{ required int64 action; {} }}", columns.concat());
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::new())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(actions, None, None).unwrap();
    column.close().unwrap();
    for values in [[5.0, 6.0], [6.0, 9.0], [2.0, 3.0], [0.0, 1.0], [0.25, 1.0], [0.75, 0.0], [0.5, 7.0], [0.5, -8.0]] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn actions_are_read_with_their_probabilities() {
    let log = from_csv(CSV.into(), Inputs::States).unwrap();
    assert_eq!(log.actions, expected());
    assert_eq!((&log.states[..], &log.next[..]), (&[5.0, 6.0][..], &[6.0, 9.0][..]));
    assert_eq!(from_parquet(parquet(&[1, 0]), Inputs::States).unwrap().actions, expected());
    // Alone, `action` and the probabilities mean something else.
    for (name, other) in [("action", "a"), ("target_0", "t_0"), ("target_next_0", "n_0")] {
        let text = CSV.replacen(&format!("{name},"), &format!("{other},"), 1);
        assert_eq!(from_csv(text.into(), Inputs::States).unwrap().actions, None, "{name}");
    }
}

#[test]
fn bad_actions_are_refused_with_their_place() {
    for (from, to, message) in [
        ("1,5,0.25", "2,5,0.25", "row 0, `action`: 2 is none of the 2 actions, 0 to 1"),
        ("1,5,0.25", "-1,5,0.25", "line 2, column `action`: `-1` is not the number of an action"),
        ("1,5,0.25", "0.5,5,0.25", "line 2, column `action`: `0.5` is not the number of an action"),
        ("1,5,0.25", "1,5,0.35", "row 0, the probabilities `target_*` sum to 1.1, and not to 1"),
        ("1,5,0.25", "1,5,-0.25", "row 0, `target_1`: -0.25 is not a probability"),
        ("1,5,0.25", "1,5,x", "line 2, column `target_1`: `x` is not a finite number"),
        ("0.5,6", "0.7,6", "row 0, the probabilities `target_next_*` sum to 1.2, and not to 1"),
        ("target_next_1", "target_next_2", "there is no column `target_next_1`"),
        ("target_1", "target_3", "there is no column `target_1`"),
    ] {
        let e = from_csv(CSV.replacen(from, to, 1).into(), Inputs::States).unwrap_err().to_string();
        assert!(e.contains(message), "{e}");
    }
    let e = from_parquet(parquet(&[1, -1]), Inputs::States).unwrap_err();
    assert_eq!(e.to_string(), "column `action`: row 1 is -1");
    // `target` together with the probabilities of all actions: 0.75 and 0.25 in the first row, whose action is 1.
    let with: String = CSV.lines().zip(["target,behaviour", "0.9,0.5", "1,0.5"]).map(|(line, more)| format!("{line},{more}\n")).collect();
    let e = from_csv(with.into(), Inputs::States).unwrap_err().to_string();
    assert!(e.contains("line 2, column `target`: `0.9` is not the probability that its `target_` column has"), "{e}");
}

/// Asked for alone, actions are read without an evaluated policy, and with the probability under the policy that acted.
#[test]
fn actions_are_read_without_an_evaluated_policy() {
    let form = LogForm::default().with_actions(Some(3));
    let text = "s_0,next_0,action,done,reward,behaviour\n5,6,2,0,1,0.5\n6,7,0,1,2,1\n";
    let read = |text: &str| from_form(text.as_bytes().to_vec(), &form).map(|mut logs| logs.remove(0));
    let log = read(text).unwrap();
    let expected = LoggedActions { taken: vec![2, 0], behaviour: vec![0.5, 1.0], ..LoggedActions::none(3) };
    assert_eq!((log.actions, log.ratio), (Some(expected.clone()), None));
    // Columns of an evaluated policy are not read.
    let log = read(&CSV.replace("action", "actions")).unwrap();
    assert_eq!(log.actions, Some(LoggedActions { taken: vec![1, 0], ..LoggedActions::none(3) }));
    let with_target = text.replace("behaviour", "target").replace("\n", ",1\n").replacen(",1\n", ",behavior\n", 1);
    assert_eq!(read(&with_target).unwrap().actions.unwrap().behaviour, [1.0; 2]);
    for (from, to, message) in [
        ("6,2,0", "6,3,0", "row 0, `action`: 3 is none of the 3 actions, 0 to 2"),
        ("1,0.5", "1,0", "line 2, column `behaviour`: `0` is not a probability or density above 0"),
        ("action", "act", "there is no column `action`"),
    ] {
        let e = read(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(e.contains(message), "{e}");
    }
    // Without the question, the log is of the policy that acted.
    let log = from_csv(text.into(), Inputs::States).unwrap();
    assert_eq!((log.actions, log.ratio, log.rewards), (None, None, vec![1.0, 2.0]));
    // Rows keep their actions when they are put in order, and by batches.
    let log = read(&text.replace("s_0,", "env,s_0,").replace("\n5", "\na,5").replace("\n6", "\nb,6")).unwrap();
    assert_eq!(log.part(1..2).actions, Some(LoggedActions { taken: vec![0], behaviour: vec![1.0], ..LoggedActions::none(3) }));
    assert_eq!(log.actions, Some(expected));
}
