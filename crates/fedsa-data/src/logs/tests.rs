use fedsa::linalg;
use fedsa_problems::Files;
use fedsa_problems::features::{FeatureMap, FeatureSpec, Ranges};
use fedsa_problems::logs::log_form::{BadRows, RowPlace};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, DoubleType, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

use super::layout::row_bytes;
use super::*;
use crate::DiskFiles;

const CSV: &str = "episode,s_b,s_a,action,next_a,next_b,reward,done\n\
                       0, 1.5,2,0,3,4.25,-1,False\n\
                       1,-1e-3,0,1,5,6,0.5,1\n";

fn expected() -> Log {
    Log {
        name: String::new(),
        columns: vec!["s_a".into(), "s_b".into()],
        states: vec![2.0, 1.5, 0.0, -1e-3],
        rewards: vec![-1.0, 0.5],
        next: vec![3.0, 4.25, 5.0, 6.0],
        done: vec![false, true],
        truncated: None,
        breaks: None,
        actions: None,
        episode: Some(vec![0, 1]),
        ratio: None,
    }
}

fn csv_error(text: &str) -> String {
    let e = from_csv(text.into(), Inputs::States).unwrap_err();
    assert!(!e.help.is_empty());
    e.to_string()
}

#[test]
fn columns_go_by_name() {
    let read = |text: &str| from_csv(text.into(), Inputs::States).unwrap();
    assert_eq!(read(CSV), expected());
    assert_eq!(read(&format!("\u{feff}{CSV}")), expected(), "a byte order mark");
    assert_eq!(read(&CSV.replace('\n', "\r\n")), expected());
}

#[test]
fn lines_are_counted_as_an_editor_does() {
    let text = "s_0,note,next_0,reward,done\n1,a,2,0,0\n\n1,\"b\nc\",x,0,0\n3,d,4,0,1\n3,d,4\n";
    for end in ["\n", "\r\n", "\r"] {
        let text = text.replace('\n', end);
        assert_eq!(csv_error(&text), "line 4, column `next_0`: `x` is not a finite number", "{end:?}");
        let form = LogForm::default().with_bad_rows(BadRows::Skip);
        let store = Store::from(text.into_bytes());
        let left_out = groups::of_one(&Whole::file(Path::new(""), Format::Csv, &|_| Ok(store.clone())), &form, "").unwrap().log.left_out;
        let places: Vec<(&str, RowPlace)> = left_out.iter().map(|rows| (&rows.reason[..], rows.first)).collect();
        let wanted = [("column `next_0`: not a finite number", RowPlace::Line(4)), ("too few fields", RowPlace::Line(7))];
        assert_eq!(places, wanted, "{end:?}");
    }
}

#[test]
fn what_is_wrong_with_a_csv_is_named_with_its_place() {
    assert_eq!(csv_error(""), "there is no column `s_*`: an empty file");
    assert_eq!(csv_error("s_0,next_0,reward,done\n"), "a log without transitions");
    assert_eq!(csv_error("s_0,next_0,done\n1,2,0\n"), "there is no column `reward`: the columns are `s_0`, `next_0`, `done`");
    assert_eq!(
        csv_error("s_0,s_1,next_0,reward,done\n"),
        "there is no column `next_1`: the columns are `s_0`, `s_1`, `next_0`, `reward`, `done`"
    );
    assert!(csv_error("s_0,next_0,next_1,reward,done\n").starts_with("there is no column `s_1`"));
    assert_eq!(csv_error("s_0,s_0,next_0,reward,done\n"), "two columns are called `s_0`");
    let head = "s_0,next_0,reward,done,episode\n0,0,0,0,0\n";
    for (line, message) in [
        ("0,x,0,0,0", "line 3, column `next_0`: `x` is not a finite number"),
        ("NaN,0,0,0,0", "line 3, column `s_0`: `NaN` is not a finite number"),
        ("0,0,,0,0", "line 3, column `reward`: an empty field is not a finite number"),
        ("0,0,0,2,0", "line 3, column `done`: `2` is not true or false, or 1 or 0"),
        ("0,0,0,0,0.5", "line 3, column `episode`: `0.5` is not a whole number"),
        ("0,0,0,0", "line 3: 4 fields, but the header has 5"),
    ] {
        assert_eq!(csv_error(&format!("{head}{line}\n")), message);
    }
    let head_with_ratio = "s_0,next_0,reward,done,ratio\n0,0,0,0,1.5\n";
    assert_eq!(from_csv(format!("{head_with_ratio}0,0,0,0,0\n").into(), Inputs::States).unwrap().ratio, Some(vec![1.5, 0.0]));
    for bad in ["-0.5", "inf", "NaN", "x"] {
        let message = format!("line 3, column `ratio`: `{bad}` is not a finite number that is at least 0");
        assert_eq!(csv_error(&format!("{head_with_ratio}0,0,0,0,{bad}\n")), message);
    }
    assert_eq!(
        csv_error(&format!("{head}0,0,0,0,1\n0,0,0,0,0\n")),
        "row 2, `episode`: episode 0 goes on after episode 1",
        "rows are transitions, from 0"
    );
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend(b"0,0,\xff,0,0\n");
    assert_eq!(from_csv(bytes, Inputs::States).unwrap_err().to_string(), "line 3: not UTF-8");
}

#[test]
fn agents_are_read_in_natural_order_and_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let places = || Places { base: dir.path().into(), data: vec![] };
    let open = |given: &[String]| DiskFiles::new(places()).logs(given, &LogForm::default());
    for i in [10, 9, 2] {
        std::fs::write(dir.path().join(format!("agent_{i}.csv")), CSV.replace("-1,", &format!("{i},"))).unwrap();
    }
    let names = |given: &[String]| open(given).unwrap().iter().map(|log| log.name().to_string()).collect::<Vec<_>>();
    let refused = |given: &[String]| open(given).err().unwrap();
    let given: Vec<String> = ["agent_10.csv", "agent_2.csv"].map(String::from).into();
    assert_eq!(names(&given), ["agent_2", "agent_10"]);
    assert_eq!(names(&["*.csv".into()]), ["agent_2", "agent_9", "agent_10"]);
    assert!(refused(&["*.csv".into(), "agent_9.csv".into()]).what.contains("twice"));
    assert_eq!(refused(&[]).what, "no logs");

    std::fs::write(dir.path().join("agent_11.csv"), CSV.replace("s_b", "s_c").replace("next_b", "next_c")).unwrap();
    let e = refused(&["*.csv".into()]);
    assert!(e.key == "path" && e.what.contains("agent_11.csv: its state columns"), "{e}");
    assert!(e.what.contains("s_a, s_c") && e.what.contains("agent_2.csv are s_a, s_b"), "{e}");

    std::fs::write(dir.path().join("x.txt"), CSV).unwrap();
    assert_eq!(names(&["x.txt".into()]), ["x"], "formats are told by content");
    std::fs::write(dir.path().join("x.json"), "{}").unwrap();
    assert!(refused(&["x.json".into()]).what.contains("JSON"));
}

#[test]
fn logs_of_the_same_name_are_told_apart_by_their_paths() {
    let paths = ["a/log.csv", "b/log.csv"].map(PathBuf::from);
    assert_eq!(short_names(&paths), ["a/log.csv", "b/log.csv"]);
    assert_eq!(short_names(&paths[..1]), ["log"]);
}

/// The norm of the pooled LSTD solution, on which a federation must agree.
fn lstd_norm(logs: &[Log], order: u32, ranges: &[(f64, f64)]) -> f64 {
    let gamma = 0.99;
    let ranges: Ranges = logs[0].columns.iter().cloned().zip(ranges.iter().copied()).collect();
    let map = FeatureMap::new(&FeatureSpec::Fourier { order, scaled: false }, &logs[0].columns, &ranges).unwrap();
    let d = map.len();
    let (mut a, mut b) = (vec![0.0; d * d], vec![0.0; d]);
    let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
    let total = logs.iter().map(Log::len).sum::<usize>() as f64;
    for log in logs {
        for t in 0..log.len() {
            map.eval(log.state(t), &mut phi);
            map.eval(log.next_state(t), &mut next);
            let gamma = if log.done[t] { 0.0 } else { gamma };
            for i in 0..d {
                for j in 0..d {
                    a[i * d + j] += phi[i] * (phi[j] - gamma * next[j]) / total;
                }
                b[i] += phi[i] * log.rewards[t] / total;
            }
        }
    }
    let theta = linalg::solve(&linalg::from_rows(d, d, &a), &b).unwrap();
    linalg::norm_sq(&theta).sqrt()
}

#[test]
fn real_logs_have_the_known_solutions() {
    if fedsa_testing::data().is_none() {
        return;
    }
    let files = DiskFiles::new(Places::from_env(""));
    let logs = |name: &str| -> Vec<Log> {
        let logs = files.logs(&[name.to_string()], &LogForm::default()).unwrap();
        logs.iter().map(|log| whole(&**log).unwrap()).collect()
    };
    let mountaincar = logs("transitions/mountaincar");
    assert_eq!(mountaincar.iter().map(Log::len).collect::<Vec<_>>(), [20_000; 8]);
    let norm = lstd_norm(&mountaincar, 3, &[(-1.2, 0.6), (-0.07, 0.07)]);
    assert!((norm - 289.02).abs() < 0.005, "{norm}");
    let cartpole = logs("transitions/cartpole/agent_*.parquet");
    let norm = lstd_norm(&cartpole, 1, &[(-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.5, 3.5)]);
    assert!((norm - 191.46).abs() < 0.005, "{norm}");
}

/// A log of `n` transitions with two state columns, episodes and ratios, filled from a sine.
fn made(n: usize) -> Log {
    let numbers = |count: usize, seed: usize| (0..count).map(|i| ((i + seed) as f64).sin()).collect::<Vec<_>>();
    Log {
        name: String::new(),
        columns: vec!["s_1".into(), "s_10".into()],
        states: numbers(2 * n, 0),
        rewards: numbers(n, 7),
        next: numbers(2 * n, 2),
        done: (0..n).map(|i| i % 5 == 4).collect(),
        truncated: None,
        breaks: None,
        actions: None,
        episode: Some((0..n).map(|i| i as i64 / 7).collect()),
        ratio: Some(numbers(n, 3).into_iter().map(f64::abs).collect()),
    }
}

fn as_csv(log: &Log) -> Vec<u8> {
    let mut text = "s_10,next_1,reward,done,s_1,next_10,episode,ratio".to_string();
    for i in 0..log.len() {
        let ((s, next), (episode, ratio)) = ((log.state(i), log.next_state(i)), (log.episode.as_ref(), log.ratio.as_ref()));
        let (reward, done) = (log.rewards[i], log.done[i]);
        text += &format!("\n{},{},{reward},{done},{},{},{},{}", s[1], next[0], s[0], next[1], episode.unwrap()[i], ratio.unwrap()[i]);
    }
    text.into()
}

/// With row groups and pages of these numbers of rows.
fn as_parquet(log: &Log, compression: Compression, version: WriterVersion, dictionary: bool, group: usize, page: usize) -> Vec<u8> {
    let schema = "message log { required double s_1; optional double s_10; required double next_1; required double next_10;
            required double reward; required boolean done; optional int64 episode; required double ratio; }";
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(version)
        .set_dictionary_enabled(dictionary)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(page)
        .set_write_batch_size(page)
        .build();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for start in (0..log.len()).step_by(group) {
        let rows = start..log.len().min(start + group);
        let column = |all: &[f64], j: usize| rows.clone().map(|i| all[2 * i + j]).collect::<Vec<f64>>();
        let levels = vec![1; rows.len()];
        let doubles = [
            column(&log.states, 0),
            column(&log.states, 1),
            column(&log.next, 0),
            column(&log.next, 1),
            log.rewards[rows.clone()].to_vec(),
            Vec::new(),
            Vec::new(),
            log.ratio.as_ref().unwrap()[rows.clone()].to_vec(),
        ];
        let mut group = writer.next_row_group().unwrap();
        for (i, doubles) in doubles.iter().enumerate() {
            let mut column = group.next_column().unwrap().unwrap();
            match i {
                1 => column.typed::<DoubleType>().write_batch(doubles, Some(&levels), None),
                5 => column.typed::<BoolType>().write_batch(&log.done[rows.clone()], None, None),
                6 => column.typed::<Int64Type>().write_batch(&log.episode.as_ref().unwrap()[rows.clone()], Some(&levels), None),
                _ => column.typed::<DoubleType>().write_batch(doubles, None, None),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// The sum of the batches, and the checksum.
fn in_batches(file: &[u8], format: Format, most: usize) -> (Log, u32) {
    let (mut all, mut checksum): (Option<Log>, _) = (None, Checksum::default());
    format
        .read(file.to_vec().into(), &LogForm::default(), "", most, &mut |rows| {
            let batch = &rows.log;
            assert!((1..=most).contains(&batch.len()));
            checksum.see(batch);
            match &mut all {
                None => all = Some(batch.clone()),
                Some(all) => {
                    all.states.extend(&batch.states);
                    all.rewards.extend(&batch.rewards);
                    all.next.extend(&batch.next);
                    all.done.extend(&batch.done);
                    all.episode.as_mut().unwrap().extend(batch.episode.as_ref().unwrap());
                    all.ratio.as_mut().unwrap().extend(batch.ratio.as_ref().unwrap());
                }
            }
            Ok(())
        })
        .unwrap();
    let all = all.unwrap();
    let checksum = checksum.finish(&all.columns);
    (all, checksum)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn batches_add_up_to_the_log_wherever_they_end(
        n in 1usize..300,
        most in prop_oneof![Just(1), Just(7), 1usize..400],
        (group, page) in (1usize..200, 1usize..50),
        compression in prop::sample::select(vec![Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())]),
        version in prop::sample::select(vec![WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]),
        dictionary in any::<bool>(),
    ) {
        let log = made(n);
        let parquet = as_parquet(&log, compression, version, dictionary, group, page);
        let (csv, checksum) = in_batches(&as_csv(&log), Format::Csv, most);
        prop_assert_eq!(&csv, &log);
        prop_assert_eq!(&in_batches(&parquet, Format::Parquet, most), &(log, checksum));
        prop_assert_eq!(from_parquet(parquet, Inputs::States).unwrap(), csv);
    }
}

#[test]
fn rows_in_errors_are_those_of_the_file() {
    let with = |change: fn(&mut Log)| {
        let mut log = made(100);
        change(&mut log);
        as_parquet(&log, Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0, false, 40, 7)
    };
    let error = |file: Vec<u8>| from_parquet(file, Inputs::States).unwrap_err().to_string();
    assert_eq!(error(with(|log| log.states[2 * 90 + 1] = f64::NAN)), "row 90, `s_10`: NaN is not a finite number");
    assert_eq!(error(with(|log| log.ratio.as_mut().unwrap()[55] = -1.0)), "row 55, `ratio`: -1 is not an importance ratio");
    assert_eq!(error(with(|log| log.episode.as_mut().unwrap()[80] = 0)), "row 80, `episode`: episode 0 goes on after episode 11");
    // Numbers of episodes are exact, even those that no double represents.
    assert_eq!(error(with(|log| log.episode.as_mut().unwrap()[80] = (1 << 60) + 1)), {
        format!("row 81, `episode`: episode 11 goes on after episode {}", (1u64 << 60) + 1)
    });
    // Batches of 9: line 80 is in the ninth.
    let csv = String::from_utf8(as_csv(&made(100))).unwrap().replacen("\n", "\n\n", 50);
    let line = csv.lines().nth(119).unwrap();
    let csv = csv.replace(line, &line.replace(",true,", ",maybe,").replace(",false,", ",maybe,"));
    let e = Format::Csv.read(Vec::from(csv).into(), &LogForm::default(), "", 9, &mut |_| Ok(())).err().unwrap();
    assert_eq!(e.what, "line 120, column `done`: `maybe` is not true or false, or 1 or 0");
}

#[test]
fn logged_features_are_read_in_place_of_states() {
    let csv = "phi_10,phi_next_2,s_0,reward,phi_2,phi_next_10,done,next_1\n1,2,x,3,4,5,0,6\n";
    let log = from_csv(csv.into(), Inputs::Features).unwrap();
    assert_eq!(
        (&log.columns[..], &log.states[..], &log.next[..]),
        (&["phi_2".into(), "phi_10".into()][..], &[4.0, 1.0][..], &[2.0, 5.0][..])
    );
    let error = |text: &str| from_csv(text.into(), Inputs::Features).unwrap_err();
    assert_eq!(error("s_0,next_0,reward,done\n").to_string(), {
        "there is no column `phi_*`: the columns are `s_0`, `next_0`, `reward`, `done`"
    });
    assert!(error("s_0,next_0,reward,done\n").help.starts_with("the columns `phi_*` and `phi_next_*` in pairs"));
    let missing = |text: &str| error(text).what.split(':').next().unwrap().to_string();
    assert_eq!(missing("phi_1,phi_2,phi_next_2,reward,done\n"), "there is no column `phi_next_1`");
    assert_eq!(missing("phi_1,phi_next_1,phi_next_2,reward,done\n"), "there is no column `phi_2`");
    assert_eq!(missing("phi_next_1,reward,done\n"), "there is no column `phi_*`");
    assert_eq!(missing("phi_1,phi_1,phi_next_1,reward,done\n"), "two columns are called `phi_1`");
}

#[test]
fn logs_with_features_are_told_from_others_by_their_header() {
    let dir = tempfile::tempdir().unwrap();
    let places = Places { base: dir.path().into(), data: vec![] };
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("a.csv", "phi_1,phi_next_1,reward,done\nnot read\n");
    write("b.csv", "s_1,phi_next_1,next_1,reward,done\n");
    std::fs::write(dir.path().join("c.parquet"), as_parquet(&made(3), Compression::SNAPPY, WriterVersion::PARQUET_1_0, false, 9, 9))
        .unwrap();
    let has = |given: &[&str]| {
        has_features(&given.iter().map(|name| name.to_string()).collect::<Vec<_>>(), &places, &LogForm::default()).unwrap()
    };
    assert!(has(&["a.csv"]));
    assert!(!has(&["b.csv"]) && !has(&["c.parquet"]) && !has(&["a.csv", "b.csv"]));
}

/// A log opened from a file with this text, and `room` bytes for kept logs.
fn opened(path: &Path, room: usize) -> FileLog {
    FileLog::open(path, "agent".into(), &LogForm::default(), &Arc::new(AtomicUsize::new(room))).unwrap()
}

#[test]
fn a_file_that_changes_is_refused_unless_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.csv");
    for room in [0, 1 << 20] {
        std::fs::write(&path, as_csv(&made(10))).unwrap();
        let log = opened(&path, room);
        let before = whole(&log).unwrap();
        assert_eq!(before, Log { name: "agent".into(), ..made(10) });
        std::fs::write(&path, as_csv(&made(11))).unwrap();
        match whole(&log) {
            Ok(again) => assert!(room > 0 && again == before),
            Err(e) => {
                assert_eq!(room, 0);
                assert!(e.key == "path" && e.what.ends_with("agent.csv: it has changed since it was opened"), "{e}");
            }
        }
    }
    // Before the first reading, during one, and with the same length.
    let log = opened(&path, 0);
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(whole(&log).unwrap_err().what.contains("changed"));
    let log = opened(&path, 0);
    let e = log.read(&mut |_| {
        file.set_modified(SystemTime::now()).unwrap();
        Ok(())
    });
    assert!(e.unwrap_err().what.contains("changed"));
    let log = opened(&path, 0);
    std::fs::remove_file(&path).unwrap();
    assert!(whole(&log).unwrap_err().what.contains("cannot be read"));
}

#[test]
fn small_logs_are_kept_while_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let room = Arc::new(AtomicUsize::new(2500));
    let logs = [0, 1, 2].map(|i| {
        let path = dir.path().join(format!("{i}.csv"));
        std::fs::write(&path, as_csv(&made(20))).unwrap();
        FileLog::open(&path, i.to_string(), &LogForm::default(), &room).unwrap()
    });
    logs.iter().for_each(|log| drop(whole(log).unwrap()));
    let bytes = 20 * row_bytes(2);
    assert_eq!(logs.each_ref().map(|log| log.0.kept.get().is_some()), [true, true, false]);
    assert_eq!(room.load(Ordering::Relaxed), 2500 - 2 * bytes);
    let stop = |_: &Log| Err(Error::new("here", "enough", "no more"));
    assert_eq!(logs[2].read(&mut { stop }).unwrap_err().to_string(), "here: enough", "an error of the reader stays as it is");
}

#[test]
fn the_checksum_is_one_of_the_contents_alone() {
    let dir = tempfile::tempdir().unwrap();
    let agents = || DiskFiles::new(Places { base: dir.path().into(), data: vec![] });
    let write = |name: &str, log: &Log| std::fs::write(dir.path().join(name), as_csv(log)).unwrap();
    write("a.csv", &made(20));
    write("b.csv", &made(30));
    let sources = ["*.csv".to_string()];
    let digest = |order: &[usize]| {
        let files = agents();
        let logs = files.logs(&sources, &LogForm::default()).unwrap();
        assert_eq!(files.digest(), 0, "nothing was read");
        order.iter().for_each(|i| drop(whole(&*logs[*i]).unwrap()));
        files.digest()
    };
    let expected = digest(&[0, 1]);
    for order in [&[1, 0][..], &[0, 1, 0, 1], &[1, 1, 0]] {
        assert_eq!(digest(order), expected, "{order:?}");
    }
    assert_ne!(digest(&[0]), expected);
    // Asked for twice, and read in parallel.
    let files = agents();
    let logs =
        [files.logs(&sources, &LogForm::default()).unwrap(), files.logs(&sources, &LogForm::default()).unwrap()].into_iter().flatten();
    std::thread::scope(|scope| logs.for_each(|log| drop(scope.spawn(move || whole(&*log).unwrap()))));
    assert_eq!(files.digest(), expected);
    // An incomplete reading does not count.
    let files = agents();
    let logs = files.logs(&sources, &LogForm::default()).unwrap();
    logs[0].read(&mut |_| Err(Error::new("", "enough", "no more"))).unwrap_err();
    assert_eq!(files.digest(), 0);
    for change in [
        |log: &mut Log| log.states[39] = 0.25,
        |log: &mut Log| log.next[0] = 0.25,
        |log: &mut Log| log.rewards[3] = 0.25,
        |log: &mut Log| log.done[3] = true,
        |log: &mut Log| log.episode.as_mut().unwrap()[19] = 9,
        |log: &mut Log| log.ratio.as_mut().unwrap()[0] = 0.25,
    ] {
        let mut log = made(20);
        change(&mut log);
        write("a.csv", &log);
        assert_ne!(digest(&[0, 1]), expected);
    }
}
