//! Points of a sweep that run apart, in processes beside each other, some of which are killed: merged, they are what a single run writes.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::common::{Folder, edited, finish, mrp, npz_bytes};

/// Eight points of two methods: two variants, two swept keys, one of which leaves a method as it is; a check, a predicted level, quick settings.
const SWEPT: &str = r#"id = "swept"
title = "A sweep"

[problem]
kind = "garnet"
agents = 10
states = 10
features = 4
heterogeneity = "independent"

[[method]]
kind = "fedlsa"
label = "FedLSA"
step_size = 0.1
local_steps = 10

[[method]]
kind = "scafflsa"
label = "SCAFFLSA"
step_size = 0.1
local_steps = 10
participants = 3

[run]
rounds = 300
seeds = [0, 7, 3]
record = { points = 20 }

[[sweep]]
key = "method.FedLSA.step_size"
values = [0.05, 0.1]

[[variant]]
label = "iid"

[[variant]]
label = "markov"
set = { "sampling.kind" = "markov" }

[[variant.sweep]]
key = "problem.seed"
values = [2, 3, 4]

[figure]
levels = { FedLSA = ["floor"] }

[[check]]
name = "it falls"
kind = "ratio"
method = "SCAFFLSA"
over = "FedLSA"
at = { variant = "iid", step_size = 0.1 }
max = 10.0

[quick.run]
rounds = 50
"#;

/// The outputs but for the summary.
const RESULTS: [&str; 5] = ["trace.parquet", "theta.npz", "figure.svg", "figure.png", "config.toml"];

/// A summary without what may differ between equal runs.
fn lasting(summary: Json) -> Json {
    match summary {
        Json::Object(fields) => {
            let differ = ["seconds", "provenance"];
            fields.into_iter().filter(|(key, _)| !differ.contains(&key.as_str())).map(|(key, value)| (key, lasting(value))).collect()
        }
        Json::Array(items) => items.into_iter().map(lasting).collect(),
        other => other,
    }
}

#[track_caller]
fn assert_same(folder: &Folder, out: &str, whole: &str) {
    for name in RESULTS {
        assert!(folder.read(&format!("{out}/{name}")) == folder.read(&format!("{whole}/{name}")), "{out}/{name} differs");
    }
    assert_eq!(lasting(folder.json(&format!("{out}/summary.json"))), lasting(folder.json(&format!("{whole}/summary.json"))));
    assert!(!folder.path(out).join(".fedsa/parts").exists(), "parts are left");
}

/// A folder with `swept.toml`, and what a single run of it has written in `whole`.
fn swept() -> Folder {
    let folder = Folder::new();
    folder.write("swept.toml", SWEPT);
    folder.run(&["run", "swept.toml", "--out", "whole", "-q"]).exits(0);
    folder
}

/// The message about a refusal, which changes nothing.
#[track_caller]
fn refused(folder: &Folder, args: &[&str]) -> String {
    let before = folder.everything();
    let message = folder.run(args).exits(2).message();
    assert!(folder.everything() == before, "{args:?} has changed files");
    message
}

#[track_caller]
fn part(folder: &Folder, points: &str, out: &str, more: &[&str]) {
    folder.run(&[&["run", "swept.toml", "--points", points, "--out", out, "-q"], more].concat()).exits(0);
}

#[test]
fn merged_parts_are_what_a_single_run_writes() {
    let folder = swept();
    let points = folder.run(&["check", "swept.toml", "--json"]).exits(0);
    let points: Json = serde_json::from_str(&points.stdout).unwrap();
    let points = points["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for (i, point) in points.iter().enumerate() {
        assert_eq!(point["index"], i);
        let methods: f64 = point["methods"].as_array().unwrap().iter().map(|method| method["seconds"].as_f64().unwrap()).sum();
        assert!(methods > 0.0 && (point["seconds"].as_f64().unwrap() - methods).abs() < 1e-12, "{point}");
    }
    let some = folder.run(&["check", "swept.toml", "--json", "--points", "6,2"]).exits(0);
    let some: Json = serde_json::from_str(&some.stdout).unwrap();
    for (point, i) in some["points"].as_array().unwrap().iter().zip([2, 6]) {
        for key in ["index", "point", "coordinates", "run", "seconds"] {
            assert_eq!(point[key], points[i][key]);
        }
    }
    assert_eq!(some["points"].as_array().unwrap().len(), 2);
    let beyond = folder.run(&["check", "swept.toml", "--points", "8"]).exits(2).message();
    assert!(beyond.contains("--points: there is no point 8"), "{beyond}");
    // In any order, by seeds too, with any number of threads.
    part(&folder, "7,2-3", "d", &["--threads", "1"]);
    part(&folder, "0", "d", &["--seed-range", "5-9"]);
    part(&folder, "1,4-6", "d", &["--threads", "3"]);
    part(&folder, "0", "d", &["--seed-range", "0-4"]);
    let before = folder.everything();
    folder.run(&["run", "swept.toml", "--points", "2,3,7", "--out", "d"]).exits(0).says("points 2-3,7: already done, in d");
    assert!(folder.everything() == before);
    folder.run(&["merge", "d"]).exits(0).says("swept in");
    assert_same(&folder, "d", "whole");
    // It is a run like any other: it goes on, and is not run again.
    folder.run(&["merge", "d"]).exits(0).says("already done");
    folder.run(&["run", "swept.toml", "--out", "d", "--resume"]).exits(0).says("already done");
    folder.run(&["run", "swept.toml", "--points", "3", "--out", "d"]).exits(0).says("already done");
    for out in ["d", "whole"] {
        folder.run(&["run", "swept.toml", "--out", out, "--resume", "-q", "--seeds", "8"]).exits(0);
    }
    assert_same(&folder, "d", "whole");
}

#[test]
fn quick_settings_and_overrides_are_those_of_all_parts() {
    let folder = Folder::new();
    folder.write("a/swept.toml", SWEPT);
    folder.write("a/mrp.npz", npz_bytes(&mrp()));
    let arrays = ["--unset", "problem", "--set", "problem.kind=\"file\"", "--set", "problem.path=\"mrp.npz\"", "--unset", "variant"];
    for options in [&["--quick"][..], &[&arrays[..], &["--set", "method.SCAFFLSA.participants=2"]].concat()] {
        let run = |more: &[&str]| folder.run(&[&["run", "a/swept.toml", "-q"], options, more].concat());
        run(&["--out", "whole", "--overwrite"]).exits(0);
        run(&["--out", "d", "--points", "0"]).exits(0);
        let other = folder.run(&["run", "a/swept.toml", "--points", "1", "--out", "d", "-q"]).exits(2).message();
        assert!(other.contains("d holds parts of another sweep"), "{other}");
        run(&["--out", "d", "--points", if options.len() == 1 { "1-7" } else { "1" }]).exits(0);
        folder.run(&["merge", "d", "-q"]).exits(0);
        assert_same(&folder, "d", "whole");
        std::fs::remove_dir_all(folder.path("d")).unwrap();
    }
}

#[test]
fn parts_run_beside_each_other_and_go_on_where_they_were_killed() {
    let folder = Folder::new();
    folder.write("swept.toml", edited(SWEPT, "rounds = 300", "rounds = 20000"));
    folder.run(&["run", "swept.toml", "--out", "whole", "-q"]).exits(0);
    let command = |points: &str| {
        let args = ["run", "swept.toml", "--points", points, "--out", "d", "-q", "--threads", "1", "--checkpoint-every", "0.02"];
        let mut command = folder.command(&args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let all = ["0-1", "2,4", "3,5", "6-7"];
    let mut killed = 0;
    for attempt in 0..8 {
        let mut children: Vec<_> = all.iter().map(|points| command(points).spawn().unwrap()).collect();
        // A part that another process runs is left to it.
        let began = Instant::now();
        let saved = |points: &str| {
            let own = folder.path(&format!("d/.fedsa/parts/{}/.fedsa", points.replace(',', "_")));
            std::fs::read_dir(own).is_ok_and(|names| names.flatten().any(|name| name.file_name().to_string_lossy().starts_with("run-")))
        };
        while !all.iter().any(|points| saved(points)) && began.elapsed() < Duration::from_secs(20) && attempt < 4 {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(20 * attempt));
        for child in &mut children {
            child.kill().unwrap();
            killed += usize::from(child.wait().unwrap().code().is_none());
        }
    }
    assert!(killed > 0, "some are killed at work");
    let mut children: Vec<_> = all.iter().map(|points| command(points).spawn().unwrap()).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    folder.run(&["merge", "d", "-q"]).exits(0);
    assert_same(&folder, "d", "whole");
}

#[test]
fn a_part_under_way_is_left_to_its_process() {
    let folder = Folder::new();
    folder.write("swept.toml", edited(SWEPT, "rounds = 300", "rounds = 100000000"));
    let mut long = folder.command(&["run", "swept.toml", "--points", "1-2", "--out", "d", "-q"]);
    let mut child = long.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while !folder.path("d/.fedsa/parts/sweep.json").exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
    }
    let message = |args: &[&str]| folder.run(args).exits(2).message();
    let same = message(&["run", "swept.toml", "--points", "1,2", "--out", "d"]);
    assert!(same.contains("another fedsa (process"), "{same}");
    let overlap = message(&["run", "swept.toml", "--points", "2-3", "--out", "d"]);
    assert!(overlap.contains("point 2 is in two parts: points 2-3, and points 1-2"), "{overlap}");
    for args in [&["merge", "d"][..], &["run", "swept.toml", "--out", "d", "--overwrite"]] {
        let busy = message(args);
        assert!(busy.contains("under way") || busy.contains("a process runs one"), "{busy}");
    }
    folder.run(&["list", "."]).exits(0).says("under way");
    child.kill().unwrap();
    child.wait().unwrap();
    let missing = message(&["merge", "d"]);
    assert!(missing.contains("begun and not done: points 1-2"), "{missing}");
    folder.run(&["list", "."]).exits(0).says("interrupted");
}

#[test]
fn bad_lists_and_folders_are_refused() {
    let folder = swept();
    for (points, more, expected) in [
        ("3,8", &[][..], "--points: there is no point 8: the experiment has 8 points"),
        ("3,2-5", &[], "--points: point 3 is named twice in `3,2-5`"),
        ("5-3", &[], "--points: `5-3` is no range"),
        ("-1", &[], "--points: `-1` is no range"),
        ("", &[], "--points: `` is no range"),
        ("1", &["--seed-range", "x"], "--seed-range: `x` is no range"),
        ("1", &["--seed-range", "8-9"], "--seed-range: there is no seed in 8-9"),
        ("1", &["--overwrite"], "cannot be used with"),
    ] {
        let message = refused(&folder, &[&["run", "swept.toml", "--points", points, "--out", "d"], more].concat());
        assert!(message.contains(expected), "{message}");
    }
    let message = refused(&folder, &["run", "swept.toml", "--seed-range", "0-1", "--out", "d"]);
    assert!(message.contains("--points"), "{message}");
    part(&folder, "1-2", "d", &[]);
    folder.write("other.toml", edited(SWEPT, "agents = 10", "agents = 9"));
    for (args, expected) in [
        (&["run", "swept.toml", "--points", "2-3", "--out", "d"][..], "point 2 is in two parts: points 2-3, and points 1-2"),
        (&["run", "other.toml", "--points", "3", "--out", "d"], "another sweep: problem.agents was 10 for them, and is 9 now"),
        (&["run", "swept.toml", "--points", "3", "--out", "d", "--rounds", "9"], "run.rounds was 300 for them, and is 9 now"),
        (&["run", "swept.toml", "--points", "3", "--out", "d", "--quick"], "d holds parts of another sweep"),
        (&["run", "swept.toml", "--out", "d"], "d holds parts of a sweep"),
        (&["run", "swept.toml", "--out", "d", "--resume"], "d holds parts of a sweep"),
        (&["run", "other.toml", "--points", "3", "--out", "whole"], "whole holds a finished run"),
        (&["merge", "d"], "points 0,3-7 of d are not done"),
        (&["merge", "nowhere"], "nowhere holds no parts of a sweep"),
        (&["merge", "."], "holds no parts of a sweep"),
    ] {
        let message = refused(&folder, args);
        assert!(message.contains(expected), "{args:?}: {message}");
    }
    assert!(refused(&folder, &["merge", "d"]).contains("--points 0,3-7"));
    folder.run(&["merge", "whole"]).exits(0).says("already done");
    // What is asked for expressly replaces the parts.
    folder.run(&["run", "swept.toml", "--out", "d", "--overwrite", "-q"]).exits(0);
    assert_same(&folder, "d", "whole");
}

/// The checksum of checkpoints: CRC-32.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The bytes of a part with a text in them replaced by one of the same length.
fn forged(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect("the text is there");
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
    let sum = crc32(&bytes[12..]).to_le_bytes();
    bytes[8..12].copy_from_slice(&sum);
    bytes
}

#[test]
fn a_merge_refuses_damaged_and_foreign_parts() {
    let folder = swept();
    part(&folder, "0-3", "d", &[]);
    part(&folder, "4-7", "d", &[]);
    part(&folder, "0-3", "other", &["--rounds", "20"]);
    let path = "d/.fedsa/parts/0-3.part";
    let (intact, version) = (folder.read(path), env!("CARGO_PKG_VERSION"));
    assert!(forged(&intact, version, version) == intact);
    let another = version.replace(|c: char| c.is_ascii_digit(), "9");
    for (bytes, expected) in [
        (intact[..intact.len() / 2].to_vec(), "this part is damaged: the checkpoint is truncated or damaged"),
        (Vec::new(), "this part is damaged: truncated, or not a checkpoint"),
        (folder.read("other/.fedsa/parts/0-3.part"), "0-3.part is a part of another sweep"),
        (folder.read("d/.fedsa/parts/4-7.part"), "it holds points 4-7, not what its name says"),
        (forged(&intact, version, &another), &format!("0-3.part is a part of fedsa {another}")),
    ] {
        folder.write(path, bytes);
        for args in [&["merge", "d"][..], &["run", "swept.toml", "--points", "0-3", "--out", "d"]] {
            let message = refused(&folder, args);
            assert!(message.replace(' ', "").contains(&expected.replace(' ', "")), "{args:?}: {message}");
        }
    }
    folder.write(path, &intact);
    // Of another version of the program; of one that nobody knows; with files among the parts.
    let record = folder.text("d/.fedsa/parts/sweep.json");
    for (text, expected) in [
        (record.replacen(version, &another, 1), format!("d holds parts of a sweep of fedsa {another}")),
        (record.replacen("\"format\": 1", "\"format\": 2", 1), "of layout 2; this version has 1".into()),
        (record[..40].into(), "damaged, or of another version of fedsa".into()),
    ] {
        folder.write("d/.fedsa/parts/sweep.json", text);
        for args in [&["merge", "d"][..], &["run", "swept.toml", "--points", "0-3", "--out", "d"]] {
            assert!(refused(&folder, args).contains(&expected), "{expected}");
        }
    }
    folder.write("d/.fedsa/parts/sweep.json", record);
    for strange in ["notes.txt", "x.part"] {
        let path = format!("d/.fedsa/parts/{strange}");
        folder.write(&path, "mine");
        assert!(refused(&folder, &["merge", "d"]).contains("was not written by fedsa"), "{strange}");
        std::fs::remove_file(folder.path(&path)).unwrap();
    }
    // A copy under the name of another part.
    std::fs::copy(folder.path(path), folder.path("d/.fedsa/parts/0-2.part")).unwrap();
    assert!(refused(&folder, &["merge", "d"]).contains("not what its name says"));
    std::fs::remove_file(folder.path("d/.fedsa/parts/0-2.part")).unwrap();
    folder.run(&["merge", "d", "-q"]).exits(0);
    assert_same(&folder, "d", "whole");
}

#[test]
fn data_that_have_changed_between_parts_are_found() {
    let folder = Folder::new();
    folder.write("swept.toml", SWEPT);
    folder.write("mrp.npz", npz_bytes(&mrp()));
    let arrays = ["--unset", "problem", "--set", "problem.kind=\"file\"", "--set", "problem.path=\"mrp.npz\"", "--unset", "variant"];
    let options = [&arrays[..], &["--set", "method.SCAFFLSA.participants=2"]].concat();
    part(&folder, "0", "d", &options);
    let mut other = mrp();
    other.insert("gamma", fedsa::problem::arrays::Array::scalar(0.8));
    folder.write("mrp.npz", npz_bytes(&other));
    part(&folder, "1", "d", &options);
    let message = refused(&folder, &["merge", "d"]);
    assert!(message.contains("point 0 of d ran on other data or settings than those here now"), "{message}");
}

#[test]
fn a_disk_that_cannot_be_written_loses_nothing() {
    let folder = swept();
    let limited = |limit: u32, args: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {limit}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_fedsa")]);
        shell.args(args).current_dir(folder.path("")).env("NO_COLOR", "1");
        finish(shell)
    };
    let args = ["run", "swept.toml", "--points", "0-3", "--out", "d", "-q"];
    let message = limited(0, &args).exits(3).message();
    assert!(message.contains("cannot be written"), "{message}");
    assert!(!folder.path("d/.fedsa/parts/0-3.part").exists());
    // The states of runs are larger than that.
    let message = limited(16, &args).exits(3).message();
    assert!(message.contains("cannot be written"), "{message}");
    folder.run(&args).exits(0);
    part(&folder, "4-7", "d", &[]);
    let parts = |folder: &Folder| -> Vec<Vec<u8>> { ["0-3", "4-7"].map(|name| folder.read(&format!("d/.fedsa/parts/{name}.part"))).into() };
    let before = parts(&folder);
    let message = limited(8, &["merge", "d", "-q"]).exits(3).message();
    assert!(message.contains("cannot be written"), "{message}");
    assert!(parts(&folder) == before && !folder.path("d/summary.json").exists());
    folder.run(&["merge", "d", "-q"]).exits(0);
    assert_same(&folder, "d", "whole");
    folder.write("file", "mine");
    let message = folder.run(&["run", "swept.toml", "--points", "0", "--out", "file"]).exits(2).message();
    assert!(message.contains("not a folder"), "{message}");
    assert!(Path::new(&folder.path("file")).is_file());
}
