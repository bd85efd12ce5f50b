//! The program does not change foreign folders and files; only one process writes to a folder;
//! failures of the machine are reported, and finished work is kept.

use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, SMALL, edited, finish, small};

/// Files of a user's, with the names of outputs, checkpoints and temporaries.
const THEIRS: &[&str] =
    &["checkpoint/0-0.ckpt", "checkpoint/notes.txt", "mine.ckpt", "weights.json", "theta.npz", "figure.png", ".fedsa-x"];

fn with_theirs(folder: &Folder, names: &[&str]) {
    names.iter().for_each(|name| folder.write(&format!("d/{name}"), format!("mine: {name}")));
}

fn are_theirs(folder: &Folder, names: &[&str]) {
    names.iter().for_each(|name| assert_eq!(folder.text(&format!("d/{name}")), format!("mine: {name}")));
}

/// Runs the program in a shell, under its limits.
fn in_shell(folder: &Folder, script: &str) -> crate::common::Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("FEDSA", env!("CARGO_BIN_EXE_fedsa")).env("NO_COLOR", "1").current_dir(folder.path(""));
    finish(shell)
}

#[test]
fn a_folder_that_is_not_ours_is_refused_and_stays() {
    let folder = Folder::with(SMALL);
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n");
    with_theirs(&folder, THEIRS);
    let before = folder.everything();
    for args in [
        &["run", "small.toml", "--out", "d"][..],
        &["run", "small.toml", "--out", "d", "--resume"],
        &["reproduce", "scafflsa/fig1-high", "--quick", "--out", "d"],
        &["evaluate", "a.csv", "--features", "polynomial:1", "--out", "d"],
    ] {
        let message = folder.run(args).exits(2).message();
        assert!(message.contains("d is not empty") || message.contains("d holds no interrupted run"), "{message}");
        assert!(folder.everything() == before, "{args:?}");
    }
    // With --overwrite, a foreign file with the name of an output is named and kept.
    let refused = folder.run(&["run", "small.toml", "--out", "d", "--overwrite"]).exits(2).message();
    assert!(refused.contains("d/theta.npz was not written by fedsa") && refused.contains("move that file away"), "{refused}");
    let refused = folder.run(&["evaluate", "a.csv", "--features", "polynomial:1", "--out", "d", "--overwrite"]).exits(2).message();
    assert!(refused.contains("was not written by fedsa"), "{refused}");
    assert!(folder.everything() == before);
    // Other foreign files stay beside the outputs, also when the run is replaced.
    for name in ["theta.npz", "figure.png"] {
        std::fs::remove_file(folder.path(&format!("d/{name}"))).unwrap();
    }
    let stays: Vec<&str> = THEIRS.iter().copied().filter(|name| !["theta.npz", "figure.png"].contains(name)).collect();
    for _ in 0..2 {
        folder.run(&["run", "small.toml", "--out", "d", "--overwrite", "-q"]).exits(0);
        are_theirs(&folder, &stays);
    }
}

/// A folder of outputs without `.fedsa`, as `cp` and archives leave it.
#[test]
fn a_copied_run_can_be_drawn_gone_on_with_and_replaced() {
    let folder = Folder::with(&small("rounds = 20", "rounds = 20\nrecord = { every = 1 }"));
    folder.run(&["run", "small.toml", "--out", "d", "-q"]).exits(0);
    for copy in ["plotted", "extended", "replaced"] {
        for name in ["config.toml", "summary.json", "trace.parquet", "theta.npz", "figure.svg", "figure.png"] {
            folder.write(&format!("{copy}/{name}"), folder.read(&format!("d/{name}")));
        }
    }
    let finished = |out: &str| folder.run(&["list", out]).exits(0).says("finished");
    folder.run(&["plot", "plotted", "--set", "figure.x=bits_up"]).exits(0);
    finished("plotted");
    assert!(folder.read("plotted/figure.svg") != folder.read("d/figure.svg"));
    folder.run(&["run", "small.toml", "--out", "plotted", "--overwrite", "-q"]).exits(0);
    assert!(folder.read("plotted/figure.svg") == folder.read("d/figure.svg"));
    folder.run(&["run", "small.toml", "--out", "extended", "--resume"]).exits(0).says("already done");
    folder.run(&["run", "small.toml", "--out", "extended", "--resume", "--rounds", "30", "-q"]).exits(0);
    folder.run(&["run", "small.toml", "--out", "fresh", "--rounds", "30", "-q"]).exits(0);
    assert!(folder.read("extended/trace.parquet") == folder.read("fresh/trace.parquet"));
    folder.run(&["run", "small.toml", "--out", "replaced", "--overwrite", "-q"]).exits(0);
    finished("replaced");
}

/// Foreign entries with the name `.fedsa`.
#[test]
fn nothing_in_a_folder_called_as_ours_is_touched() {
    let folder = Folder::with(SMALL);
    folder.write("theirs/model.ckpt", "mine");
    folder.write("theirs/run-1-1.ckpt", "fedsack2 of another folder");
    folder.write("a/.fedsa/mine.ckpt", "mine");
    folder.write("b/.fedsa", "mine");
    std::fs::create_dir(folder.path("c")).unwrap();
    symlink(folder.path("theirs"), folder.path("c/.fedsa")).unwrap();
    let before = folder.everything();
    for out in ["a", "b", "c"] {
        for option in ["--overwrite", "--resume"] {
            let message = folder.run(&["run", "small.toml", "--out", out, option]).exits(2).message();
            assert!(message.contains("/.fedsa was not written by fedsa"), "{message}");
        }
        assert!(folder.everything() == before, "{out}");
    }
    // In the program's own folder, files that are not checkpoints stay.
    folder.run(&["run", "small.toml", "--out", "d", "-q"]).exits(0);
    folder.write("d/.fedsa/mine.ckpt", "mine");
    folder.write("d/.fedsa/run-notes.txt", "mine");
    folder.run(&["run", "small.toml", "--out", "d", "--overwrite", "-q"]).exits(0);
    assert_eq!((folder.text("d/.fedsa/mine.ckpt"), folder.text("d/.fedsa/run-notes.txt")), ("mine".into(), "mine".into()));
}

/// Entries that are not files have the name of the marker: nothing waits for them, or changes.
fn assert_only_files_are_markers(folder: &Folder, marker: &str) {
    for kind in ["folder", "pipe"] {
        let path = folder.path(marker);
        match kind {
            "folder" => std::fs::create_dir(&path).unwrap(),
            _ => rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap(),
        }
        // Reading a pipe would wait for ever.
        let names = || std::fs::read_dir(folder.path("d")).unwrap().count();
        let before = names();
        for args in
            [&["run", "small.toml", "--out", "d", "--overwrite"][..], &["run", "small.toml", "--out", "d", "--resume"], &["plot", "d"]]
        {
            crate::common::finish_soon(folder.command(args)).exits(2);
        }
        crate::common::finish_soon(folder.command(&["list", "."])).exits(0);
        assert_eq!(names(), before, "{kind}");
        if kind == "folder" { std::fs::remove_dir(&path).unwrap() } else { std::fs::remove_file(&path).unwrap() }
    }
}

/// Without a valid marker the program cannot recognise its files, and changes nothing.
#[test]
fn a_damaged_marker_is_told_and_nothing_is_changed() {
    let folder = Folder::with(SMALL);
    let marker = "d/.fedsa/marker.json";
    folder.write("keep.txt", "mine");
    folder.run(&["run", "small.toml", "--out", "d", "-q"]).exits(0);
    let intact = folder.text(marker);
    // A name outside of the folder.
    let absolute = folder.path("keep.txt").display().to_string();
    let named = |name: &str| intact.replacen("\"outputs\": [", &format!("\"outputs\": [\n    \"{name}\","), 1);
    assert!(named("../keep.txt") != intact);
    let damages = [
        ("is damaged, or of another version", Some(named("../keep.txt"))),
        ("is damaged, or of another version", Some(named(&absolute))),
        ("is damaged, or of another version", Some(intact.replace("\"format\": 2", "\"format\": 3"))),
        ("is damaged, or of another version", Some(String::new())),
        ("is damaged, or of another version", Some("[1]".into())),
        ("is damaged, or of another version", Some("[".repeat(100_000))),
        ("is missing: it names the files that fedsa wrote", None),
    ];
    for (expected, damage) in damages {
        match &damage {
            Some(text) => folder.write(marker, text),
            None => std::fs::remove_file(folder.path(marker)).unwrap(),
        }
        let before = folder.everything();
        for args in [&["--overwrite"][..], &["--resume"], &["--resume", "--rounds", "40"], &[]] {
            let message = folder.run(&[&["run", "small.toml", "--out", "d"], args].concat()).exits(2).message();
            assert!(message.contains(expected), "{args:?} {damage:?}: {message}");
        }
        folder.run(&["plot", "d"]).exits(2);
        assert!(folder.everything() == before, "{damage:?}");
    }
    assert_only_files_are_markers(&folder, marker);
    folder.write(marker, &intact);
    folder.run(&["run", "small.toml", "--out", "d", "--overwrite", "-q"]).exits(0);
    assert_eq!(folder.text("keep.txt"), "mine");
}

#[test]
fn names_that_are_not_utf8_are_names() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with(SMALL);
    let mut command = folder.command(&["run", "small.toml", "-q", "--out"]);
    command.arg(std::ffi::OsStr::from_bytes(b"o\xff"));
    finish(command).exits(0);
}

#[test]
fn a_checkpoint_of_any_length_is_refused() {
    let folder = Folder::with(SMALL);
    folder.run(&["run", "small.toml", "--out", "d", "-q"]).exits(0);
    let file = std::fs::OpenOptions::new().write(true).open(folder.path("d/.fedsa/ended.ckpt")).unwrap();
    file.set_len(1 << 42).unwrap();
    let mut command = folder.command(&["run", "small.toml", "--out", "d", "--resume", "--rounds", "40"]);
    let message = crate::common::finish_soon({
        command.env("FEDSA_MEMORY", "8G");
        command
    });
    let message = message.exits(2).message();
    assert!(message.contains("there is no memory for its 4.4 TB"), "{message}");
}

#[test]
fn a_log_is_added_to_logs_only() {
    let folder = Folder::with(SMALL);
    for _ in 0..2 {
        folder.run(&["check", "small.toml", "--log", "log.txt"]).exits(0);
    }
    assert_eq!(folder.text("log.txt").matches(" INFO  fedsa ").count(), 2);
    folder.write("empty", "");
    folder.run(&["check", "small.toml", "--log", "empty"]).exits(0);
    folder.write("mine", "2026 INFO of mine\n");
    symlink(folder.path("log.txt"), folder.path("link")).unwrap();
    let before = folder.everything();
    for (log, expected) in [
        ("mine", "that is not a log of fedsa"),
        ("small.toml", "that is not a log"),
        ("link", "this is a symbolic link"),
        (".", "this is a folder"),
    ] {
        let message = folder.run(&["check", "small.toml", "--log", log]).exits(2).message();
        assert!(message.contains(expected), "{message}");
    }
    assert!(folder.everything() == before);
}

#[test]
fn a_signal_before_anything_runs_ends_with_its_status() {
    let folder = Folder::with(SMALL);
    for signal in ["-INT", "-TERM"] {
        // It waits for an experiment on standard input.
        let mut child = folder.command(&["-v", "run", "-", "--out", "d"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ready = || std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).is_ok_and(|at| at.contains("pipe"));
        let began = Instant::now();
        while cfg!(target_os = "linux") && !ready() && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(200));
        // Waiting closes the pipe, unless somebody else holds it.
        let held = child.stdin.take();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        drop(held);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{message}");
        assert!(message.ends_with("interrupted\n"), "{message}");
        assert!(!folder.path("d").exists());
    }
}

#[test]
fn links_and_folders_in_the_place_of_outputs_are_refused() {
    for kind in ["link", "folder"] {
        let folder = Folder::with(SMALL);
        folder.write("precious", "mine");
        std::fs::create_dir(folder.path("d")).unwrap();
        match kind {
            "link" => symlink(folder.path("precious"), folder.path("d/summary.json")).unwrap(),
            _ => std::fs::create_dir(folder.path("d/summary.json")).unwrap(),
        }
        let message = folder.run(&["run", "small.toml", "--out", "d", "--overwrite"]).exits(2).message();
        assert!(message.contains("d/summary.json was not written by fedsa"), "{message}");
        assert_eq!(folder.text("precious"), "mine");
        // Also in the folder of a run: an output that became a link.
        folder.run(&["run", "small.toml", "--out", "ours", "-q"]).exits(0);
        std::fs::remove_file(folder.path("ours/figure.png")).unwrap();
        symlink(folder.path("precious"), folder.path("ours/figure.png")).unwrap();
        let message = folder.run(&["run", "small.toml", "--out", "ours", "--overwrite"]).exits(2).message();
        assert!(message.contains("ours/figure.png was not written by fedsa"), "{message}");
        assert_eq!(folder.text("precious"), "mine");
    }
}

#[test]
fn export_replaces_nothing_unasked() {
    let folder = Folder::with(SMALL);
    folder.write("p.npz", "mine");
    symlink(folder.path("p.npz"), folder.path("link.npz")).unwrap();
    std::fs::create_dir(folder.path("dir.npz")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path("pipe.npz")).status().unwrap().success());
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(folder.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (text, before) = (folder.text("small.toml"), names());
    for (path, args, said) in [
        ("p.npz", &[][..], "p.npz exists already"),
        ("small.toml", &[], "small.toml exists already"),
        ("link.npz", &["--overwrite"], "link.npz is a symbolic link, which is not replaced"),
        ("dir.npz", &["--overwrite"], "dir.npz is a folder, which is not replaced"),
        ("pipe.npz", &["--overwrite"], "pipe.npz is a device, pipe or socket, which is not replaced"),
        ("none/p.npz", &[], "there is no folder none"),
    ] {
        let message = folder.run(&[&["export", "small.toml", "--npz", path], args].concat()).exits(2).message();
        assert!(message.contains(said), "{message}");
        assert_eq!((folder.text("p.npz").as_str(), folder.text("small.toml"), names()), ("mine", text.clone(), before.clone()), "{path}");
    }
    folder.run(&["export", "small.toml", "--npz", "p.npz", "--overwrite"]).exits(0);
    let mut out = folder.command(&["export", "small.toml", "--npz", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut bytes = Vec::new();
    out.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(out.wait().unwrap().success());
    assert!(bytes == folder.read("p.npz"), "- is standard output");
}

/// A disk that fills up while results are written, and is enlarged: the message says what goes on, and every command goes on.
#[test]
fn a_run_on_a_full_disk_goes_on_when_there_is_space() {
    let sizes = [4, 8, 12, 16, 20, 24, 32, 48].map(|kilobytes| kilobytes * 1024);
    let folder = Folder::with(&small("rounds = 20", "rounds = 2000"));
    folder.run(&["run", "small.toml", "--out", "plain", "-q"]).exits(0);
    for (i, size) in sizes.into_iter().enumerate() {
        let disk = folder.path(&format!("disk{i}"));
        std::fs::create_dir(&disk).unwrap();
        let mount = |options: &str| {
            let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        if !mount(&format!("size={size}")) {
            return fedsa_testing::skipped("a disk of a few kilobytes needs the right to mount one");
        }
        let out = format!("disk{i}/d");
        let failed = folder.run(&["run", "small.toml", "--out", &out]).exits(3).message();
        assert!(failed.contains("free some space on the disk"), "{failed}");
        assert!(mount("remount,size=8m"));
        let options: &[&str] = if failed.contains("--resume") { &["--resume"] } else { &[] };
        let again = folder.run(&[&["run", "small.toml", "-q", "--out", &out], options].concat());
        let replaced = folder.run(&["run", "small.toml", "-q", "--out", &out, "--overwrite"]);
        let same = folder.read(&format!("{out}/trace.parquet")) == folder.read("plain/trace.parquet");
        assert!(Command::new("umount").arg(&disk).status().unwrap().success());
        again.exits(0);
        replaced.exits(0);
        assert!(same, "{size} bytes");
    }
}

/// [`SMALL`], long enough to be at work for a while.
fn long() -> String {
    small("rounds = 20", "rounds = 4000000\nrecord = { points = 10 }")
}

#[test]
fn one_process_writes_to_a_folder() {
    let folder = Folder::with(&long());
    let mut first = folder.command(&["run", "small.toml", "--out", "d", "-q"]).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while !folder.path("d/.fedsa/roots.ckpt").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    for args in [&[][..], &["--resume"], &["--overwrite"], &["--rounds", "3", "--overwrite"]] {
        let message = folder.run(&[&["run", "small.toml", "--out", "d"], args].concat()).exits(2).message();
        assert!(message.contains(&format!("another fedsa (process {}) is writing to d", first.id())), "{message}");
    }
    // The lock dies with its process, however that ends.
    first.kill().unwrap();
    first.wait().unwrap();
    folder.run(&["run", "small.toml", "--out", "d", "--rounds", "30", "--overwrite", "-q"]).exits(0);
}

#[test]
fn a_checkpoint_that_cannot_be_written_does_not_end_the_run() {
    // The states of 20000 agents are larger than a file may be; the results are not.
    let text = small("agents = 4", "agents = 20000\nheterogeneity = \"two-kernels\"\nperturbation = 0.0");
    let folder = Folder::with(&text);
    let options = "--checkpoint-every 0 --seeds 1 --set run.record={every=10}";
    let limited = in_shell(&folder, &format!("ulimit -f 600; exec \"$FEDSA\" run small.toml --out d {options}")).exits(0);
    let message = limited.message();
    assert!(message.contains("warning: a checkpoint could not be written; the run goes on"), "{message}");
    assert_eq!(message.matches("a checkpoint could not be written").count(), 1, "told once: {message}");
    let plain = in_shell(&folder, &format!("exec \"$FEDSA\" run small.toml --out e -q {options}")).exits(0);
    assert_eq!(plain.message(), "");
    assert!(folder.read("d/trace.parquet") == folder.read("e/trace.parquet"));
    assert!(folder.everything().iter().all(|(path, ..)| !path.file_name().unwrap().to_string_lossy().starts_with(".fedsa-")));
}

#[test]
fn results_that_cannot_be_written_are_a_failure_of_the_machine() {
    let folder = Folder::with(&small("rounds = 20", "rounds = 2000"));
    let limited = in_shell(&folder, "ulimit -f 16; exec \"$FEDSA\" run small.toml --out d").exits(3);
    let message = limited.message();
    assert!(
        message.contains("cannot be written") && message.contains("limit on the size of files") && message.contains("--resume"),
        "{message}"
    );
    assert!(!folder.path("d/summary.json").exists());
    assert!(folder.everything().iter().all(|(path, ..)| !path.file_name().unwrap().to_string_lossy().starts_with(".fedsa-")));
    folder.run(&["run", "small.toml", "--out", "d", "--resume", "-q"]).exits(0);
    folder.run(&["run", "small.toml", "--out", "e", "-q"]).exits(0);
    assert!(folder.read("d/theta.npz") == folder.read("e/theta.npz"));
    // Lost standard output is reported too.
    let lost = in_shell(&folder, "ulimit -f 0; exec \"$FEDSA\" check small.toml > out.txt").exits(3).message();
    assert!(lost.contains("standard output could not be written"), "{lost}");
}

#[test]
fn a_refused_run_leaves_no_folders() {
    let folder = Folder::with(SMALL);
    folder.write("file", "mine");
    let refused = |args: &[&str]| {
        let before = folder.everything();
        let output = folder.run(&[&["run", "small.toml"], args].concat()).exits(2);
        assert!(folder.everything() == before, "{args:?}");
        let folders = std::fs::read_dir(folder.path("")).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count();
        assert_eq!(folders, 0, "{args:?}: {}", output.stderr);
    };
    refused(&["--out", "a/b/c", "--rounds", "0"]);
    refused(&["--out", "a/b/c", "--set", "method.FedLSA.step_size=1e9"]);
    refused(&["--out", "file/b"]);
    refused(&["--out", "a/b/c", "--resume"]);
    // A disk that is full from the start: the first file is not written, and the folders go.
    let before = folder.everything();
    let message = in_shell(&folder, "ulimit -f 0; exec \"$FEDSA\" run small.toml --out a/b/c -q").exits(3).message();
    assert!(message.contains("cannot be written") && message.contains("ulimit -f"), "{message}");
    assert!(folder.everything() == before && !folder.path("a").exists(), "{message}");
    // A disk that becomes full after some of the first files.
    let large = ["--set", "problem={kind=\"switching\",dim=1200}", "--rounds", "1", "--seeds", "1"].map(|arg| format!("'{arg}'")).join(" ");
    let message = in_shell(&folder, &format!("ulimit -f 8; exec \"$FEDSA\" run small.toml --out a/b/c -q {large}")).exits(3).message();
    assert!(message.contains("roots.ckpt cannot be written"), "{message}");
    assert!(folder.everything() == before && !folder.path("a").exists(), "{message}");
}

#[test]
fn a_trace_grows_while_a_run_is_under_way() {
    let folder = Folder::with(&edited(&long(), "record = { points = 10 }", "record = { points = 4000 }"));
    let mut run = folder.command(&["run", "small.toml", "--out", "d", "-q"]).stderr(Stdio::null()).spawn().unwrap();
    let (path, began) = (folder.path("d/trace.jsonl"), Instant::now());
    let lines = || std::fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_string).collect::<Vec<_>>();
    while lines().len() < 3 {
        assert!(began.elapsed() < Duration::from_secs(120), "no lines");
        assert!(run.try_wait().unwrap().is_none(), "it ended before it was seen");
        std::thread::sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let row: serde_json::Value = serde_json::from_str(&lines()[1]).unwrap();
    assert!(row["method"].is_string() && row["round"].is_u64() && row["mse"].is_f64(), "{row}");
    // A new run replaces the file of the old one; a foreign file of this name stays.
    folder.run(&["run", "small.toml", "--out", "d", "--rounds", "5", "--overwrite", "-q"]).exits(0);
    assert!(!path.exists());
    folder.write("e/trace.jsonl", "mine\n");
    let message = folder.run(&["run", "small.toml", "--out", "e", "--rounds", "5", "--overwrite"]).exits(2).message();
    assert!(message.contains("e/trace.jsonl was not written by fedsa"), "{message}");
}
