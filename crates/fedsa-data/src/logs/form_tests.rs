//! Logs in practice: compressed, with other names, several agents or environments in a file, unreadable rows.

use std::collections::BTreeMap;
use std::io::Write;

use fedsa_problems::Files;
use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::log_form::{BadRows, LeftOutRows, LogForm, RowPlace};
use fedsa_problems::logs::source::whole;

use crate::DiskFiles;
use crate::find::Places;
use crate::trace::{Trace, TraceColumn, to_bytes};

/// The logs of files with these contents, with the omitted rows.
fn read(files: &[(&str, Vec<u8>)], form: &LogForm) -> Result<Vec<(Log, Vec<LeftOutRows>)>, String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let disk = DiskFiles::new(Places { base: dir.path().into(), data: vec![] });
    let sources: Vec<String> = files.iter().map(|(name, _)| (*name).to_string()).collect();
    let shown = |text: String| text.replace(&format!("{}/", dir.path().display()), "");
    let logs = disk.logs(&sources, form).map_err(|e| shown(e.to_string()))?;
    // The second reading gives the same.
    assert_eq!(disk.logs(&sources, form).unwrap().len(), logs.len());
    let one = |log: &dyn fedsa_problems::logs::source::LogSource| {
        let all = whole(log).map_err(|e| shown(e.to_string()))?;
        assert_eq!(whole(log).unwrap(), all);
        let left_out = log.left_out().into_iter().map(|rows| LeftOutRows { file: shown(rows.file), ..rows });
        Ok((all, left_out.collect()))
    };
    logs.iter().map(|log| one(&**log)).collect()
}

fn one(name: &str, text: &str, form: &LogForm) -> Log {
    read(&[(name, text.into())], form).unwrap().remove(0).0
}

fn columns(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, field)| ((*name).to_string(), (*field).to_string())).collect()
}

const CSV: &str = "s_0,next_0,reward,done\n0,1,0.5,False\n1,2,-1,True\n";

#[test]
fn formats_are_told_by_content() {
    let plain = one("a.csv", CSV, &LogForm::default());
    assert_eq!((&plain.states[..], &plain.done[..]), (&[0.0, 1.0][..], &[false, true][..]));
    let gzip = {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(CSV.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let zstd = zstd::encode_all(CSV.as_bytes(), 3).unwrap();
    let table = Trace::new(vec![
        ("s_0".into(), TraceColumn::F64(vec![0.0, 1.0])),
        ("next_0".into(), TraceColumn::F64(vec![1.0, 2.0])),
        ("reward".into(), TraceColumn::F64(vec![0.5, -1.0])),
        ("done".into(), TraceColumn::F64(vec![0.0, 1.0])),
    ]);
    let parquet = to_bytes(&table.unwrap()).unwrap();
    let tabs = CSV.replace(',', "\t").into_bytes();
    for (name, bytes) in [
        ("a.tsv", tabs.clone()),
        ("a.csv", tabs),
        ("a.csv.gz", gzip.clone()),
        ("a.csv", gzip),
        ("a.csv.zst", zstd.clone()),
        ("a.log", zstd),
        ("a.csv", parquet),
        ("a.csv", format!("\u{feff}{}", CSV.replace('\n', "\r\n")).into_bytes()),
    ] {
        let (log, left_out) = read(&[(name, bytes)], &LogForm::default()).unwrap().remove(0);
        assert_eq!((&log.name[..], left_out), ("a", vec![]), "{name}");
        assert_eq!(Log { name: plain.name.clone(), ..log }, plain, "{name}");
    }
}

#[test]
fn names_of_gymnasium_and_of_d4rl_are_known() {
    let log = one("a.csv", "s_0,next_0,rewards,terminals,timeouts,done\n0,1,2,0,1,1\n1,2,3,1.0,false,1\n", &LogForm::default());
    assert_eq!((&log.done[..], log.truncated), (&[false, true][..], Some(vec![true, false])));
    let log = one("a.csv", "s_0,next_0,reward,terminated,truncated,done\n0,1,2,False,True,True\n", &LogForm::default());
    assert_eq!((&log.done[..], log.truncated), (&[false][..], Some(vec![true])));
    let form = LogForm::default().with_columns(columns(&[("s_*", "obs_*"), ("next_*", "next_obs_*"), ("done", "end"), ("reward", "r")]));
    let log = one("a.csv", "obs_0,obs_1,next_obs_1,next_obs_0,r,end,terminated\n1,2,3,4,5,1,0\n", &form);
    assert_eq!((&log.columns[..], &log.next[..], &log.done[..]), (&["s_0".into(), "s_1".into()][..], &[4.0, 3.0][..], &[true][..]));
}

#[test]
fn a_column_names_the_agents() {
    let text = "who,s_0,next_0,reward,done\nb10,0,1,0,0\nb9,5,6,1,1\nb10,1,2,0,1\n";
    let form = LogForm::default().with_agent_column(Some("who".into()));
    let logs = read(&[("all.csv", text.into()), ("more.csv", "who,s_0,next_0,reward,done\nb9,7,8,1,0\n".into())], &form).unwrap();
    let found: Vec<(&str, &[f64])> = logs.iter().map(|(log, _)| (&log.name[..], &log.states[..])).collect();
    assert_eq!(found, [("b9", &[5.0, 7.0][..]), ("b10", &[0.0, 1.0][..])]);
    assert_eq!(logs[0].0.breaks, Some(vec![Break::None, Break::Stream]), "another file is another stream");
    let e = read(&[("a.csv", CSV.into())], &form).unwrap_err();
    assert_eq!(e, "path: a.csv: there is no column `who`, which names the agents: the columns are `s_0`, `next_0`, `reward`, `done`");
    let e = read(&[("all.csv", text.into()), ("b.csv", text.replace("done", "done,episode").replace('\n', ",1\n").into())], &form);
    assert!(e.unwrap_err().starts_with("path: b.csv: "));
}

#[test]
fn environments_and_episodes_side_by_side_are_put_in_order() {
    let text = "env,s_0,next_0,reward,done\n0,0,1,1,0\n1,5,6,1,0\n0,1,2,1,1\n1,6,7,1,1\n0,2,0,0,0\n1,7,5,0,0\n0,0,1,1,0\n1,5,6,1,0\n";
    let (log, left_out) = read(&[("a.csv", text.into())], &LogForm::default()).unwrap().remove(0);
    // Reading keeps rows that only reset: `without_resets` recognises them when a log is used.
    assert_eq!((&log.states[..], left_out), (&[0.0, 1.0, 2.0, 0.0, 5.0, 6.0, 7.0, 5.0][..], vec![]));
    assert_eq!(log.breaks.unwrap()[4], Break::Stream);
    let text = "episode,s_0,next_0,reward,done\n3,0,1,1,0\n1,5,6,1,0\n3,1,2,1,1\n1,6,7,1,1\n";
    let log = one("a.csv", text, &LogForm::default());
    assert_eq!((&log.states[..], log.episode.unwrap()), (&[0.0, 1.0, 5.0, 6.0][..], vec![0, 0, 1, 1]));
    let e = read(&[("a.csv", text.replace("3,1,2", "3,9,2").into())], &LogForm::default()).unwrap_err();
    assert_eq!(e, "path: a.csv: row 2, `episode`: episode 3 goes on after another one, in another state than row 0 led to");
}

#[test]
fn rows_that_cannot_be_read_are_left_out_on_request() {
    let text = "s_0,next_0,reward,done\n0,1,0,0\n1,x,0,0\n1,2\n2,3,inf,0\n3,4,0,maybe\n4,5,0,0\n5,6,nan,0\n6,7,0,1\n7,8,0,1,9\n";
    let skip = LogForm::default().with_bad_rows(BadRows::Skip);
    let (log, left_out) = read(&[("a.csv", text.into())], &skip).unwrap().remove(0);
    assert_eq!((&log.states[..], log.breaks.unwrap()), (&[0.0, 4.0, 6.0][..], vec![Break::None, Break::LeftOut, Break::LeftOut]));
    let found: Vec<String> = left_out.iter().map(|rows| format!("{}: {} {} {}", rows.file, rows.reason, rows.rows, rows.first)).collect();
    assert_eq!(
        found,
        [
            "a.csv: column `next_0`: not a finite number 1 line 3",
            "a.csv: too few fields 1 line 4",
            "a.csv: column `reward`: not a finite number 2 line 5",
            "a.csv: column `done`: not true or false, or 1 or 0 1 line 6",
            "a.csv: too many fields 1 line 10",
        ]
    );
    assert_eq!(
        read(&[("a.csv", text.into())], &LogForm::default()).unwrap_err(),
        "path: a.csv: line 3, column `next_0`: `x` is not a finite number"
    );
    let e = read(&[("a.csv", "s_0,next_0,reward,done\nx,1,0,0\n".into())], &skip).unwrap_err();
    assert_eq!(e, "path: a.csv: a log without transitions");
    // An open quote swallows lines, which do not count as one row.
    let e = read(&[("a.csv", format!("{CSV}\"2,3,0,0\n3,4,0,0\n4,5,0,0\n").into())], &skip).unwrap_err();
    assert!(e.starts_with("path: a.csv: line 4: a quote that is opened there is not closed"), "{e}");
}

#[test]
fn rows_of_parquet_that_cannot_be_read_are_left_out_on_request() {
    let n = 10_000;
    let mut rewards = vec![0.5; n];
    (rewards[3], rewards[9_000]) = (f64::NAN, f64::INFINITY);
    let mut done = vec![0.0; n];
    done[3] = 7.0;
    done[5] = 7.0;
    let table = |rewards: Vec<f64>, done: Vec<f64>| {
        let states = || TraceColumn::F64((0..n).map(|i| i as f64).collect());
        let columns = [("s_0", states()), ("next_0", states()), ("reward", TraceColumn::F64(rewards)), ("done", TraceColumn::F64(done))];
        to_bytes(&Trace::new(columns.into_iter().map(|(name, column)| (name.to_string(), column)).collect()).unwrap()).unwrap()
    };
    let skip = LogForm::default().with_bad_rows(BadRows::Skip);
    let (log, left_out) = read(&[("a.parquet", table(rewards, done))], &skip).unwrap().remove(0);
    assert_eq!(log.len(), n - 3);
    let found: Vec<String> = left_out.iter().map(|rows| format!("{} {} {}", rows.reason, rows.rows, rows.first)).collect();
    assert_eq!(found, ["column `reward`: not a finite number 2 row 3", "column `done`: not true or false, or 1 or 0 1 row 5"]);
    let breaks: Vec<usize> = (0..log.len()).filter(|i| log.break_before(*i) == Break::LeftOut).collect();
    assert_eq!(breaks, [3, 4, 8998]);
    // With strict reading all rows are present.
    let (log, _) = read(&[("a.parquet", table(vec![0.5; n], vec![0.0; n]))], &LogForm::default()).unwrap().remove(0);
    let (skipped, _) = read(&[("a.parquet", table(vec![0.5; n], vec![0.0; n]))], &skip).unwrap().remove(0);
    assert_eq!((skipped.breaks, skipped.rewards), (Some(vec![Break::None; n]), log.rewards));
}

#[test]
fn packed_files_that_are_damaged_are_refused() {
    let text = format!("{CSV}{}", "0,1,0.5,False\n".repeat(1000));
    let mut packer = zstd::Encoder::new(Vec::new(), 3).unwrap();
    packer.include_checksum(true).unwrap();
    packer.write_all(text.as_bytes()).unwrap();
    let zstd = packer.finish().unwrap();
    let error = |bytes: Vec<u8>| read(&[("a.csv.zst", bytes)], &LogForm::default()).unwrap_err();
    let short = error(zstd[..zstd.len() - 5].to_vec());
    assert!(short.contains("the file ends too early"), "{short}");
    let mut damaged = zstd;
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = error(damaged);
    assert!(damaged.contains("the packed data are damaged"), "{damaged}");
}

#[test]
fn logs_without_next_states_take_them_from_the_following_row() {
    let with = "s_0,next_0,reward,done,truncated\n0,1,1,0,0\n1,2,1,0,0\n2,9,1,1,0\n5,6,1,0,1\n7,8,1,0,1\n";
    let without = "s_0,reward,done,truncated\n0,1,0,0\n1,1,0,0\n2,1,1,0\n5,1,0,0\n6,1,0,1\n7,1,0,0\n8,1,0,1\n3,1,0,1\n";
    let parquet = |columns: &[(&str, &[f64])]| {
        let columns = columns.iter().map(|(name, all)| ((*name).to_string(), TraceColumn::F64(all.to_vec()))).collect();
        to_bytes(&Trace::new(columns).unwrap()).unwrap()
    };
    let same: Vec<u8> = parquet(&[
        ("s_0", &[0.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0, 3.0]),
        ("reward", &[1.0; 8]),
        ("done", &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        ("truncated", &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0]),
    ]);
    let mut wanted = one("a.csv", with, &LogForm::default());
    // A terminal row has no following row.
    wanted.next[2] = 2.0;
    for (name, bytes) in [("a.csv", without.into()), ("a.csv", without.replace('\n', "\r\n").into()), ("a.parquet", same)] {
        let (log, left_out) = read(&[(name, bytes)], &LogForm::default()).unwrap().remove(0);
        assert_eq!(log, wanted, "{name}");
        assert_eq!((left_out.len(), left_out[0].rows, left_out[0].first), (1, 3, RowPlace::Row(4)));
        assert!(left_out[0].reason.starts_with("its next state is not logged"));
    }
    // Interleaved episodes, each agent separately.
    let text = "who,episode,s_0,reward,done\na,1,0,1,0\na,2,10,1,0\nb,1,20,1,0\na,1,1,1,1\na,2,11,1,0\nb,1,21,1,1\n";
    let form = LogForm::default().with_agent_column(Some("who".into()));
    let logs = read(&[("all.csv", text.into())], &form).unwrap();
    let next: Vec<&[f64]> = logs.iter().map(|(log, _)| &log.next[..]).collect();
    assert_eq!(next, [&[1.0, 1.0, 11.0][..], &[21.0, 21.0][..]]);
    assert_eq!((logs[0].1[0].rows, logs[0].1[0].first, logs[1].1.len()), (1, RowPlace::Row(4), 0));
    // Without marks of truncation, or with resets of environments.
    for (head, says) in [("s_0,reward,done", "needs `episode` or `truncated`"), ("env,s_0,reward,done,episode", "need their next states")] {
        let e =
            read(&[("a.csv", format!("{head}\n{}", "1,0,0,0,0".split_at(2 * head.split(',').count() - 1).0).into())], &LogForm::default());
        assert_eq!(e.unwrap_err().split(':').take(3).collect::<Vec<_>>().join(":"), "path: a.csv: there is no column `next_0`", "{says}");
    }
}

/// A terminal row needs no next state, whatever its columns contain.
#[test]
fn terminal_rows_need_no_next_state() {
    let expected = one("a.csv", "s_0,next_0,reward,done\n0,1,0.5,0\n1,1,-1,1\n", &LogForm::default());
    for field in ["", "NaN", "null", "NA", "None"] {
        let text = format!("s_0,next_0,reward,done\n0,1,0.5,0\n1,{field},-1,1\n");
        assert_eq!(one("a.csv", &text, &LogForm::default()), expected, "{field}");
    }
    let refused = |text: &str| read(&[("a.csv", text.into())], &LogForm::default()).unwrap_err();
    assert!(refused("s_0,next_0,reward,done\n0,,0.5,0\n1,1,-1,1\n").contains("line 2, column `next_0`"));
    assert!(refused("s_0,next_0,reward,done\n0,1,0.5,0\n1,x,-1,1\n").contains("line 3, column `next_0`"));
    let table = |next: Vec<f64>| {
        let columns = [("s_0", vec![0.0, 1.0]), ("next_0", next), ("reward", vec![0.5, -1.0]), ("done", vec![0.0, 1.0])];
        to_bytes(&Trace::new(columns.map(|(name, values)| (name.into(), TraceColumn::F64(values))).into()).unwrap()).unwrap()
    };
    let log = read(&[("a.parquet", table(vec![1.0, f64::NAN]))], &LogForm::default()).unwrap().remove(0).0;
    assert_eq!((log.next, log.states), (expected.next, expected.states));
    let e = read(&[("a.parquet", table(vec![f64::NAN, 1.0]))], &LogForm::default()).unwrap_err();
    assert!(e.contains("column `next_0`: row 0 is NaN"), "{e}");
}

#[test]
fn logs_with_semicolons_may_have_decimal_commas() {
    let form = LogForm::default();
    let text = "s_0,next_0,reward,done\n0.5,1.25,-2,0\n1.25,0,0.125,1\n";
    let expected = one("a.csv", text, &form);
    assert_eq!(one("a.csv", &text.replace(',', ";"), &form), expected);
    let commas = text.replace(',', ";").replace('.', ",");
    assert_eq!(one("a.csv", &commas, &form), expected);
    let refused = |text: &str| read(&[("a.csv", text.into())], &form).unwrap_err();
    assert_eq!(refused(&commas.replace("-2", "-2.5")), "path: a.csv: line 2: `-2.5` has a decimal point, and `0,5` in line 2 a comma");
    let thousands = "s_0;next_0;reward;done\n1;2;1,234;0\n2;1;3;1\n";
    assert_eq!(refused(thousands), "path: a.csv: line 2: `1,234` is 1.234 or 1234, and no number of the file says which");
}
