//! A run that is killed or interrupted and resumed gives the bits of one that was not;
//! so does any number of threads. The tests kill the real program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Folder, Output, edited, mrp, npz_bytes, small};

/// All kinds of state between rounds: chains, control variates with partial
/// participation, coins, averages; a second or two of work.
const LONG: &str = r#"id = "long"

[problem]
kind = "garnet"
agents = 10
states = 10
features = 4
min_class = 2

[sampling]
kind = "markov"

[[method]]
kind = "fedlsa"
label = "averaged"
output = "average"
step_size = { c = 2.0, t0 = 20.0, per = "step" }
local_steps = 10

[[method]]
kind = "scafflsa"
label = "some"
participants = 3
step_size = 0.1
local_steps = 10

[[method]]
kind = "scafflsa-random"
label = "random"
participants = 9
step_size = 0.1
talk_probability = 0.1

[[method]]
kind = "fedhsa"
label = "tail"
output = { tail = 0.5 }
step_size = 0.1
local_steps = 10

[run]
rounds = 15000
seeds = [0, 7, 3]
start = "normal"
record = { points = 100 }
"#;

const RESULTS: [&str; 3] = ["trace.parquet", "theta.npz", "figure.svg"];

/// The results of an uninterrupted run.
fn reference(folder: &Folder) -> Vec<Vec<u8>> {
    folder.run(&["run", "long.toml", "--out", "whole", "-q"]).exits(0);
    RESULTS.iter().map(|name| folder.read(&format!("whole/{name}"))).collect()
}

#[track_caller]
fn assert_same(folder: &Folder, out: &str, reference: &[Vec<u8>]) {
    for (name, expected) in RESULTS.iter().zip(reference) {
        assert!(folder.read(&format!("{out}/{name}")) == *expected, "{out}/{name} differs");
    }
    assert!(saved(&folder.path(out)).is_empty(), "checkpoints are left");
    let left = |path: PathBuf| -> Vec<String> {
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let (outputs, own) = (left(folder.path(out)), left(folder.path(out).join(".fedsa")));
    assert!(outputs.iter().chain(&own).all(|name| name == ".fedsa" || !name.starts_with('.')), "{outputs:?} {own:?}");
    assert!(!outputs.contains(&"trace.jsonl".to_string()));
}

/// When each run of the checkpoints in `out` was last saved.
fn saved(out: &Path) -> Vec<(PathBuf, SystemTime)> {
    let entries = std::fs::read_dir(out.join(".fedsa")).into_iter().flatten().flatten();
    let checkpoints = entries.filter(|e| e.file_name().to_string_lossy().starts_with("run-"));
    let mut all: Vec<_> = checkpoints.filter_map(|e| Some((e.path(), e.metadata().ok()?.modified().ok()?))).collect();
    all.sort();
    all
}

/// Starts a run that saves often, and waits until it has saved `times` more times; `None` if it ended before.
fn started(folder: &Folder, out: &str, options: &[&str], times: usize) -> Option<Child> {
    let args = ["run", "long.toml", "--out", out, "--checkpoint-every", "0.02"];
    let mut child = folder.command(&[&args[..], options].concat()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (began, mut seen) = (Instant::now(), saved(&folder.path(out)));
    let mut changes = 0;
    while changes < times {
        assert!(began.elapsed() < Duration::from_secs(60), "no checkpoints");
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
        let now = saved(&folder.path(out));
        changes += usize::from(now != seen);
        seen = now;
    }
    Some(child)
}

/// Whether it was killed, and did not end by itself first.
fn kill(mut child: Child) -> bool {
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}

/// A folder with a run that was killed at work: on a busy machine one may end before it is.
fn killed(folder: &Folder, name: &str, options: &[&str], times: usize) -> String {
    let outs = (0..20).map(|attempt| format!("{name}-{attempt}"));
    let at_work = |out: &String| started(folder, out, options, times).is_some_and(kill);
    outs.into_iter().find(at_work).expect("a run that is killed at work")
}

#[test]
fn a_killed_run_goes_on_to_the_same_bits() {
    let folder = Folder::new();
    folder.write("long.toml", LONG);
    let reference = reference(&folder);
    // Killed once, with different numbers of threads before and after.
    for (before, after) in [("1", "2"), ("7", "1")] {
        let out = killed(&folder, &format!("once-{before}"), &["--threads", before], 3);
        assert!(!saved(&folder.path(&out)).is_empty() && !folder.path(&out).join("summary.json").exists());
        assert!(!folder.path(&out).join("trace.parquet").exists());
        let resumed = folder.run(&["run", "long.toml", "--out", &out, "--resume", "--threads", after]).exits(0);
        assert!(resumed.stdout.contains("long in"), "{}", resumed.stdout);
        assert_same(&folder, &out, &reference);
    }
    // Killed repeatedly, at arbitrary moments.
    let often = killed(&folder, "often", &[], 1);
    let often = often.as_str();
    for times in [5, 9, 2, 14, 4, 7, 3] {
        if !started(&folder, often, &["--resume"], times).is_some_and(kill) {
            break;
        }
    }
    folder.run(&["run", "long.toml", "--out", often, "--resume", "-q"]).exits(0);
    assert_same(&folder, often, &reference);
    // A run killed at the very end is finished, but its checkpoints are left.
    folder.write(&format!("{often}/.fedsa/run-0-0.ckpt"), "fedsack2 left");
    folder.run(&["run", "long.toml", "--out", often, "--resume", "-q"]).exits(0);
    assert_same(&folder, often, &reference);
    // Half-written files of a killed run are cleared away.
    folder.write(&format!("{often}/.fedsa/.fedsa-abc"), "half");
    folder.run(&["run", "long.toml", "--out", often, "--overwrite", "-q", "--threads", "7"]).exits(0);
    assert_same(&folder, often, &reference);
}

#[test]
fn ctrl_c_leaves_checkpoints() {
    let folder = Folder::new();
    folder.write("long.toml", LONG);
    let reference = reference(&folder);
    for (signal, out) in [("-INT", "interrupted"), ("-TERM", "terminated")] {
        // No checkpoint is due for ten seconds: those that are left are the signal's.
        let mut command = folder.command(&["run", "long.toml", "--out", out]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !folder.path(out).join(".fedsa/roots.ckpt").exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(100));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let ended = child.wait_with_output().unwrap();
        let output = Output {
            status: ended.status.code().unwrap(),
            stdout: String::from_utf8(ended.stdout).unwrap(),
            stderr: String::from_utf8(ended.stderr).unwrap(),
        }
        .exits(130);
        let message = output.message();
        assert!(message.starts_with("interrupting: the last completed rounds are being saved"), "{message}");
        assert!(message.contains(" saved at the last completed round"), "{message}");
        assert!(message.ends_with(&format!("the same command with --resume continues from {out}")), "{message}");
        assert!(!output.stderr.contains('\r'), "no progress bar without a terminal");
        assert!(!saved(&folder.path(out)).is_empty());
        assert!(!folder.path(out).join("summary.json").exists());
        // Without --resume, or with other settings, it is left alone.
        let before = folder.everything();
        let refused = folder.run(&["run", "long.toml", "--out", out]).exits(2).message();
        assert!(refused.contains(&format!("{out} holds an interrupted run")) && refused.contains("--resume"), "{refused}");
        let other = folder.run(&["run", "long.toml", "--out", out, "--resume", "--seeds", "2"]).exits(2).message();
        assert!(other.contains("an interrupted run of other settings: run.seeds was [0, 7, 3] then, and is "), "{other}");
        assert!(folder.everything() == before);
        folder.run(&["run", "long.toml", "--out", out, "--resume", "-q"]).exits(0);
        assert_same(&folder, out, &reference);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let folder = Folder::new();
    folder.write("long.toml", edited(LONG, "rounds = 15000", "rounds = 3000"));
    let reference = reference(&folder);
    for threads in ["1", "2", "7"] {
        folder.run(&["run", "long.toml", "--out", threads, "--threads", threads, "-q"]).exits(0);
        assert_same(&folder, threads, &reference);
    }
    // A method's draws do not depend on the other methods of the file.
    let second = LONG.find("[[method]]\nkind = \"scafflsa\"").unwrap();
    let first = LONG.find("[[method]]").unwrap();
    folder.write("alone.toml", edited(&format!("{}{}", &LONG[..first], &LONG[second..]), "rounds = 15000", "rounds = 3000"));
    folder.run(&["run", "alone.toml", "--out", "alone", "-q"]).exits(0);
    let some = |out: &str| {
        let arrays = fedsa_data::npz::read(&folder.path(&format!("{out}/theta.npz"))).unwrap();
        arrays.get("some").unwrap().clone()
    };
    assert_eq!(some("alone"), some("whole"));
}

/// An interrupted run of a problem in a file.
fn interrupted() -> Folder {
    let folder = Folder::new();
    folder.write("p.npz", npz_bytes(&mrp()));
    interrupted_with(folder, "kind = \"file\"\npath = \"p.npz\"")
}

/// An interrupted run of this problem of three agents.
fn interrupted_with(folder: Folder, problem: &str) -> Folder {
    let (start, end) = (LONG.find("[problem]").unwrap(), LONG.find("[sampling]").unwrap());
    let text = format!("{}[problem]\n{problem}\n\n{}", &LONG[..start], &LONG[end..]);
    let text = text.replace("participants = 3", "participants = 1").replace("participants = 9", "participants = 2");
    folder.write("long.toml", text.replace("rounds = 15000", "rounds = 60000"));
    let out = killed(&folder, "out", &[], 2);
    std::fs::rename(folder.path(&out), folder.path("out")).unwrap();
    folder
}

#[test]
fn damaged_checkpoints_are_refused() {
    let folder = interrupted();
    let resume = ["run", "long.toml", "--out", "out", "--resume"];
    let (path, _) = saved(&folder.path("out")).remove(0);
    let name = path.strip_prefix(folder.path("")).unwrap().to_str().unwrap().to_string();
    let bytes = folder.read(&name);
    let refused = |contents: &[u8], name: &str, expected: &[&str]| {
        let intact = folder.read(name);
        folder.write(name, contents);
        let before = folder.everything();
        let message = folder.run(&resume).exits(2).message();
        for text in expected.iter().chain(&[name, "--resume:"]) {
            assert!(message.contains(text), "{message}");
        }
        assert!(folder.everything() == before, "something was written");
        folder.write(name, intact);
    };
    for end in [0, 1, 7, 8, 11, 12, bytes.len() / 2, bytes.len() - 1] {
        refused(&bytes[..end], &name, &["truncated", "delete this one"]);
    }
    for at in [0, 9, 12, bytes.len() / 3, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        refused(&flipped, &name, &["delete this one"]);
    }
    let roots = "out/.fedsa/roots.ckpt";
    refused(&folder.read(roots)[..20], roots, &["truncated"]);
    // A checkpoint of another seed.
    if let Some((other, _)) = saved(&folder.path("out")).into_iter().find(|(other, _)| *other != path) {
        refused(&std::fs::read(other).unwrap(), &name, &["the checkpoint belongs to another run"]);
    }
    // As the help says, a run whose checkpoint is deleted runs again, with the same bits.
    std::fs::remove_file(&path).unwrap();
    folder.run(&resume).exits(0);
    folder.run(&["run", "long.toml", "--out", "whole", "-q"]).exits(0);
    assert!(folder.read("out/trace.parquet") == folder.read("whole/trace.parquet"));
}

#[test]
fn input_files_that_changed_are_noticed() {
    let folder = interrupted();
    let mut arrays = mrp();
    arrays.insert("gamma", fedsa::problem::arrays::Array::scalar(0.8));
    folder.write("p.npz", npz_bytes(&arrays));
    let before = folder.everything();
    let message = folder.run(&["run", "long.toml", "--out", "out", "--resume"]).exits(2).message();
    assert!(message.contains("the checkpoint belongs to another run") && message.contains("unchanged input files"), "{message}");
    assert!(folder.everything() == before);
    folder.write("p.npz", npz_bytes(&mrp()));
    folder.run(&["run", "long.toml", "--out", "out", "--resume", "-q"]).exits(0);
}

/// Every column that is read counts, of every agent, and no other.
#[test]
fn logs_that_changed_are_noticed() {
    let folder = Folder::new();
    let log = |agent: usize, ratio: &str, action: &str| {
        let rows = (0..20).map(|i| {
            let (s, next) = ((i * 7 + agent) % 11, (i * 5 + 2 * agent) % 11);
            format!("{}.5,{}.25,{}.5,{}.75,{},0,{},{}\n", s, next, next, s, i % 3, if i == 19 { ratio } else { "1" }, action)
        });
        format!("s_0,s_1,next_0,next_1,reward,done,ratio,action\n{}", rows.collect::<String>())
    };
    (0..3).for_each(|agent| folder.write(&format!("a{agent}.csv"), log(agent, "0.5", "0")));
    let problem = "kind = \"logs\"\npath = \"a*.csv\"\ngamma = 0.5\nfeatures = { kind = \"fourier\", order = 1 }";
    let folder = interrupted_with(folder, problem);
    folder.write("a1.csv", log(1, "0.25", "0"));
    let message = folder.run(&["run", "long.toml", "--out", "out", "--resume"]).exits(2).message();
    assert!(message.contains("the checkpoint belongs to another run") && message.contains("unchanged input files"), "{message}");
    folder.write("a1.csv", log(1, "0.5", "1"));
    folder.run(&["run", "long.toml", "--out", "out", "--resume", "-q"]).exits(0);
}

/// A file with methods whose results do not depend on the number of rounds.
fn endless() -> String {
    edited(&LONG.replace("output = { tail = 0.5 }\n", ""), "rounds = 15000", "rounds = 600").replace("{ points = 100 }", "{ every = 50 }")
}

#[test]
fn more_rounds_and_seeds_give_the_bits_of_a_run_from_the_start() {
    let folder = Folder::new();
    folder.write("long.toml", endless());
    folder.run(&["run", "long.toml", "--out", "d", "-q"]).exits(0);
    for more in [&["--rounds", "1000"][..], &["--rounds", "1010", "--set", "run.seeds=[0, 7, 3, 5]"], &["--rounds", "1200", "--seeds", "9"]]
    {
        folder.run(&[&["run", "long.toml", "--out", "d", "--resume", "-q"], more].concat()).exits(0);
        folder.run(&[&["run", "long.toml", "--out", "fresh", "--overwrite", "-q"], more].concat()).exits(0);
        for name in RESULTS.iter().chain(&["config.toml"]) {
            assert!(folder.read(&format!("d/{name}")) == folder.read(&format!("fresh/{name}")), "{name} {more:?}");
        }
    }
    // The same command again is already done.
    folder.run(&["run", "long.toml", "--out", "d", "--resume", "--rounds", "1200", "--seeds", "9"]).exits(0).says("already done");
    // Fewer of either, or another setting, is another run.
    let before = folder.everything();
    for other in
        [&["--rounds", "1000", "--seeds", "9"][..], &["--rounds", "1200", "--seeds", "2"], &["--rounds", "2000", "--set", "run.start=zero"]]
    {
        let message = folder.run(&[&["run", "long.toml", "--out", "d", "--resume"], other].concat()).exits(2).message();
        assert!(message.contains("d holds a finished run of other settings") && message.contains("only more rounds"), "{message}");
        assert!(folder.everything() == before, "{other:?}");
    }
}

/// A shorter run looks at its target after its last round, which a longer one need not record.
#[test]
fn more_rounds_go_on_where_a_shorter_run_stopped_by_chance() {
    let text = small("rounds = 20", "rounds = 15\nrecord = { every = 10 }\nstop = { relative_residual = 0.8 }");
    let folder = Folder::with(&text.replace("kind = \"iid\"", "kind = \"mean\""));
    let outcomes = |out: &str| -> Vec<(String, u64)> {
        let summary = folder.json(&format!("{out}/summary.json"));
        let results = summary["results"].as_array().unwrap().iter();
        results.map(|r| (r["outcome"].as_str().unwrap().to_string(), r["rounds"].as_u64().unwrap())).collect()
    };
    folder.run(&["run", "small.toml", "--out", "d", "-q"]);
    assert_eq!(outcomes("d")[0], ("converged".to_string(), 15), "the target is reached between two recorded rounds");
    folder.run(&["run", "small.toml", "--out", "d", "--resume", "--rounds", "40", "-q"]);
    folder.run(&["run", "small.toml", "--out", "e", "--rounds", "40", "-q"]);
    assert_eq!(outcomes("d"), outcomes("e"));
    for name in RESULTS.iter().chain(&["config.toml"]) {
        assert!(folder.read(&format!("d/{name}")) == folder.read(&format!("e/{name}")), "{name}");
    }
}

#[test]
fn runs_that_had_ended_are_not_run_again() {
    // Two methods are done at once, the third takes long.
    let long = "[[method]]\nkind = \"fedlsa\"\nlabel = \"long\"\nstep_size = 0.1\nlocal_steps = 100000\n\n[run]";
    let text = small("rounds = 20", "rounds = 3000\nrecord = { points = 3 }").replace("seeds = 2", "seeds = 1").replace("[run]", long);
    let folder = Folder::with(&text);
    let mut command = folder.command(&["run", "small.toml", "--out", "d", "--threads", "2"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let done = || std::fs::read_to_string(folder.path("d/trace.jsonl")).unwrap_or_default().matches("\"round\":3000").count();
    let began = Instant::now();
    while done() < 1 {
        assert!(began.elapsed() < Duration::from_secs(120), "no run ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains(" had ended") && !message.contains("could not be saved"), "{message}");
    assert!(folder.path("d/.fedsa/ended.ckpt").exists(), "{message}");
}

#[test]
fn what_depends_on_the_number_of_rounds_is_not_gone_on_with() {
    let refused = |text: String, said: &str| {
        let folder = Folder::with(&text);
        folder.run(&["run", "small.toml", "--out", "d", "-q"]).exits(0);
        let before = folder.everything();
        let message = folder.run(&["run", "small.toml", "--out", "d", "--resume", "--rounds", "1000"]).exits(2).message();
        assert!(message.contains(said), "{message}");
        assert!(folder.everything() == before);
        // More seeds with the same number of rounds are accepted.
        folder.run(&["run", "small.toml", "--out", "d", "--resume", "--seeds", "3", "-q"]).exits(0);
        folder.run(&["run", "small.toml", "--out", "e", "--seeds", "3", "-q"]).exits(0);
        assert!(folder.read("d/trace.parquet") == folder.read("e/trace.parquet"));
    };
    let rounds = small("rounds = 20", "rounds = 650\nrecord = { every = 10 }");
    refused(edited(&rounds, "local_steps = 10", "local_steps = 10\noutput = { tail = 0.5 }"), "averages the last share of the rounds");
    refused(edited(&rounds, "{ every = 10 }", "{ points = 100 }"), "recorded rounds that do not depend on their number");
}

#[test]
fn a_round_that_takes_long_is_dropped_at_once() {
    // Rounds of a second or so; the second one is interrupted.
    let folder = Folder::with(&small("rounds = 20", "rounds = 3").replace("local_steps = 10", "local_steps = 30000000"));
    let one = ["run", "small.toml", "--seeds", "1", "--set", "method.SCAFFLSA.local_steps=100"];
    let args = [&one[..], &["--out", "d"]].concat();
    let child = folder.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    // A recorded round is one that was completed.
    let first_is_done = || std::fs::read_to_string(folder.path("d/trace.jsonl")).unwrap_or_default().contains("\"FedLSA\"");
    while !first_is_done() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("interrupting: ") && message.contains("continues from d"), "{message}");
    folder.run(&[&args[..], &["--resume", "-q"]].concat()).exits(0);
    folder.run(&[&one[..], &["--out", "e", "-q"]].concat()).exits(0);
    assert!(folder.read("d/trace.parquet") == folder.read("e/trace.parquet"));
}
