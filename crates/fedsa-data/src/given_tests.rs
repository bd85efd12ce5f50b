//! Tests of what identifies data in memory.

use fedsa::problem::dataset::{Columns, Dataset, Labels, Rows};
use fedsa::problem::log::{Break, Log};

use super::DiskFiles;
use super::find::Places;

fn files() -> DiskFiles {
    DiskFiles::new(Places::from_env("."))
}

fn of_sets(sets: Vec<Dataset>) -> String {
    files().with_datasets(sets).given_identity().unwrap().to_string()
}

fn of_logs(log: Log) -> String {
    files().with_logs(vec![log]).given_identity().unwrap().to_string()
}

fn set(d: usize, names: &[&str], targets: Labels) -> Dataset {
    Dataset {
        name: "mine".into(),
        rows: Rows::Dense { d, values: vec![1.0, 2.0, 3.0, 4.0] },
        columns: Columns::Named(names.iter().map(ToString::to_string).collect()),
        targets: Some(targets),
        groups: None,
        texts: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn data_sets_that_differ_in_anything_have_other_digests() {
    let classes = |names: &[&str], of: &[u32]| Labels::Names { names: names.iter().map(ToString::to_string).collect(), of: of.into() };
    let two = || Labels::Numbers(vec![0.0, 1.0]);
    let one = set(2, &["a", "b"], two());
    let with_groups = Dataset { targets: None, groups: one.targets.clone(), ..one.clone() };
    let all = [
        vec![one.clone()],
        vec![one.clone(), one.clone()],
        vec![set(4, &["a", "b"], two())],
        vec![set(1, &["a", "b"], two())],
        vec![set(2, &["a,b"], two())],
        vec![set(2, &["b", "a"], two())],
        vec![set(2, &["a", "b"], Labels::Numbers(vec![1.0, 0.0]))],
        vec![set(2, &["a", "b"], classes(&["x", "y"], &[0, 1]))],
        vec![set(2, &["a", "b"], classes(&["x\ny"], &[0, 0]))],
        vec![with_groups],
        vec![Dataset { rows: one.rows.to_sparse(), ..one.clone() }],
        vec![Dataset { columns: Columns::Counted { width: 2, left_out: Vec::new() }, ..one.clone() }],
        vec![Dataset { columns: Columns::Counted { width: 3, left_out: vec![2] }, ..one.clone() }],
    ];
    let digests: Vec<String> = all.into_iter().map(|sets| of_sets(sets)).collect();
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest), "{i}");
    }
    let renamed = Dataset { name: "yours".into(), ..one };
    assert_eq!(of_sets(vec![renamed]), digests[0]);
}

#[test]
fn logs_that_differ_in_anything_have_other_digests() {
    let log = |rewards: [f64; 2], episode: Option<Vec<i64>>, ratio: Option<Vec<f64>>| Log {
        name: "mine".into(),
        columns: vec!["s_0".into()],
        states: vec![0.0, 1.0],
        rewards: rewards.into(),
        next: vec![1.0, 2.0],
        done: vec![false, true],
        truncated: None,
        breaks: None,
        actions: None,
        episode,
        ratio,
    };
    let plain = log([0.0, 1.0], None, None);
    let all = [
        log([0.0, -0.0], None, None),
        log([0.0, 1.0], Some(vec![0, 0]), None),
        log([0.0, 1.0], None, Some(vec![0.0, 0.0])),
        Log { columns: vec!["s_1".into()], ..plain.clone() },
        Log { states: vec![0.0, 2.0], ..plain.clone() },
        Log { next: vec![0.0, 2.0], ..plain.clone() },
        Log { done: vec![true, true], ..plain.clone() },
        Log { truncated: Some(vec![false, false]), ..plain.clone() },
        Log { truncated: Some(vec![false, true]), ..plain.clone() },
        Log { breaks: Some(vec![Break::None; 2]), ..plain.clone() },
        Log { breaks: Some(vec![Break::None, Break::Stream]), ..plain.clone() },
        Log { breaks: Some(vec![Break::None, Break::LeftOut]), ..plain.clone() },
        plain,
    ];
    let digests: Vec<String> = all.into_iter().map(|log| of_logs(log)).collect();
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest), "{i}");
    }
}
