//! Files and folders.

use super::*;

#[test]
fn what_is_not_a_file_of_toml_is_told() {
    let folder = Folder::with(SMALL);
    refused(&folder, &["run", "none.toml"], &["none.toml: cannot be read: No such file", "the path of an experiment file"]);
    refused(&folder, &["run", "."], &[".: cannot be read: it is a directory, not a regular file"]);
    folder.write("latin.toml", b"id = \"a\"\n# \xe9t\xe9\n");
    refused(&folder, &["check", "latin.toml"], &["latin.toml: line 2 is not UTF-8", "text in UTF-8"]);
    folder.write("broken.toml", "[problem\nkind = 1\n");
    refused(&folder, &["run", "broken.toml"], &["this is not TOML: unclosed table", "[broken.toml:1:", "[problem], [[method]] and [run]"]);
    folder.write("twice.toml", small("agents = 4", "agents = 4\nagents = 5"));
    refused(&folder, &["run", "twice.toml"], &["duplicate key", "[twice.toml:6:"]);
    folder.write("deep.toml", format!("x = {}{}", "[".repeat(5000), "]".repeat(5000)));
    refused(&folder, &["run", "deep.toml"], &["this is not TOML: ", "[deep.toml:1:"]);
    folder.write("image.png", [0x89, b'P', b'N', b'G', 0, 0xff]);
    refused(&folder, &["run", "image.png"], &["image.png: line 1 is not UTF-8"]);
    // A byte order mark, which some editors write, is accepted.
    folder.write("mark.toml", format!("\u{feff}{SMALL}"));
    folder.run(&["check", "mark.toml"]).exits(0);
}

/// A problem file that must be refused, named by its path at the line of `path`.
#[track_caller]
fn refused_arrays(arrays: &Arrays, expected: &[&str]) {
    refused_bytes("p.npz", &npz_bytes(arrays), expected);
}

#[track_caller]
fn refused_bytes(name: &str, bytes: &[u8], expected: &[&str]) {
    let folder = Folder::with(&with_problem(&format!("kind = \"file\"\npath = \"{name}\"")));
    folder.write(name, bytes);
    let place = format!("problem.path: {name}: ");
    let expected: Vec<&str> = expected.iter().copied().chain([place.as_str(), "[small.toml:5:", "help: "]).collect();
    refused(&folder, &["run", "small.toml"], &expected);
}

#[test]
fn problem_files_are_checked() {
    Folder::with(&with_problem("kind = \"file\"\npath = \"p.npz\"")).write("p.npz", npz_bytes(&mrp()));
    let mut p = mrp().get("P").unwrap().data().to_vec();
    p[4] += 0.1;
    refused_arrays(&mrp_with("P", &[2, 3, 3], &p), &["P: row [0, 1] sums to 1.09", "sum to 1 within 1e-8"]);
    p[4] = 1.0;
    p[3] = -0.3;
    refused_arrays(&mrp_with("P", &[2, 3, 3], &p), &["P: the probability -0.3 at [0, 1, 0]", "at least 0"]);
    for (value, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let mut r = [0.0; 6];
        r[4] = value;
        refused_arrays(&mrp_with("R", &[2, 3], &r), &[&format!("R: {shown} at [1, 1]"), "finite numbers"]);
    }
    refused_arrays(&mrp_with("P", &[3, 2, 3], &[1.0 / 3.0; 18]), &["P: shape (3, 2, 3)", "(N, S, S), or (N, S, A, S) with a policy"]);
    refused_arrays(&mrp_with("R", &[3], &[0.0; 3]), &["R: shape (3,)", "(2, 3)"]);
    refused_arrays(&mrp_with("Phi", &[2, 2], &[0.0; 4]), &["Phi: shape (2, 2)", "(3, d) or (2, 3, d)"]);
    refused_arrays(&mrp_with("gamma", &[3], &[0.5; 3]), &["gamma: shape (3,)", "() or (2,)"]);
    refused_arrays(&mrp_with("gamma", &[2], &[0.5, 1.0]), &["gamma: 1 (agent 1) is not accepted", "in [0, 1)"]);
    refused_arrays(&mrp_with("policy", &[3, 2], &[0.5; 6]), &["P: shape (2, 3, 3)", "(N, S, A, S), since there is a policy"]);
    for name in ["R", "Phi", "gamma"] {
        let mut some = Arrays::new();
        mrp().iter().filter(|(n, _)| *n != name).for_each(|(n, array)| some.insert(n, array.clone()));
        refused_arrays(&some, &[&format!("{name}: there is no such array"), "the arrays are"]);
    }
    refused_arrays(&arrays(&[("x", &[], &[1.0])]), &["neither `P` nor `A` among its arrays (x)", "an MRP or MDP as P, R, Phi, gamma"]);
    let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0].repeat(2);
    refused_arrays(&mrp_with("P", &[2, 3, 3], &identity), &["agent 0: the chain has several closed classes", "one closed class"]);
    // Linear systems: an agent's own, then the mean.
    let systems = |a: &[f64]| arrays(&[("A", &[2, 2, 2], a), ("b", &[2, 2], &[1.0; 4])]);
    refused_arrays(&systems(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]), &["agent 1: singular or badly conditioned", "condition number"]);
    // A mean without a root is a legal problem, whose residual is recorded and whose error is not.
    let folder = Folder::with(&with_problem("kind = \"file\"\npath = \"p.npz\""));
    folder.write("p.npz", npz_bytes(&systems(&[1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0])));
    folder.run(&["run", "small.toml"]).exits(0);
    let summary = folder.json("out/small/summary.json");
    assert!(summary["problem"]["theta_star"].is_null() && summary["results"][0]["residual_mean"].is_number(), "{summary}");
    refused_arrays(&arrays(&[("A", &[1, 1, 1], &[1e-300]), ("b", &[1, 1], &[1e300])]), &["the solution's component 0 is inf"]);
    refused_arrays(&arrays(&[("A", &[1, 2, 3], &[1.0; 6]), ("b", &[1, 2], &[1.0; 2])]), &["A: shape (1, 2, 3)", "(N, d, d)"]);
    refused_arrays(&arrays(&[("A", &[1, 1, 1], &[1.0]), ("b", &[2], &[1.0; 2])]), &["b: shape (2,)", "(1, 1), as A has"]);
    // Files of another format.
    refused_bytes("p.npz", b"", &["not a readable .npz: the file is empty", "np.savez"]);
    let bytes = npz_bytes(&mrp());
    refused_bytes("p.npz", &bytes[..bytes.len() / 2], &["not a readable .npz"]);
    let mut flipped = bytes.clone();
    let at = flipped.windows(8).position(|w| w == 0.25f64.to_le_bytes()).unwrap();
    flipped[at] ^= 1;
    refused_bytes("p.npz", &flipped, &["P: the array is damaged"]);
    let folder = Folder::with(&with_problem("kind = \"file\"\npath = \"none.npz\""));
    refused(&folder, &["run", "small.toml"], &["problem.path: none.npz: there is no such file", "[small.toml:5:"]);
    let folder = Folder::with(&with_problem("kind = \"file\"\npath = \".\""));
    refused(&folder, &["run", "small.toml"], &["problem.path: .: cannot be read: it is a directory"]);
}

#[test]
fn logs_are_checked() {
    let head = "s_0,next_0,reward,done\n";
    let bad = |name: &str, contents: &[u8], expected: &[&str]| {
        let folder = Folder::with(&with_problem(&LOGS.replace("log.csv", name)));
        folder.write(name, contents);
        refused(&folder, &["run", "small.toml"], &[&["problem.path: ", name, "[small.toml:5:"], expected].concat());
        // The same with `evaluate`, which has no file to show.
        refused(&folder, &["evaluate", name, "--features", "fourier:1"], &[&["LOGS: ", name], expected].concat());
    };
    bad(
        "log.csv",
        b"s_0,next_0,done\n0,1,0\n",
        &["there is no column `reward`: the columns are `s_0`, `next_0`, `done`", "`s_*` and `next_*` in pairs"],
    );
    bad("log.csv", b"", &["there is no column `s_*`: an empty file"]);
    bad("log.csv", head.as_bytes(), &["a log without transitions"]);
    bad("log.csv", format!("{head}0,1,2,0\n1,x,2,0\n").as_bytes(), &["line 3, column `next_0`: `x` is not a finite number"]);
    bad("log.csv", format!("{head}0,1,nan,0\n").as_bytes(), &["line 2, column `reward`: `nan` is not a finite number"]);
    bad("log.csv", format!("{head}0,1,2\n").as_bytes(), &["line 2: 3 fields, but the header has 4"]);
    bad("log.csv", b"s_0,next_0,reward,done\n0,1,\xff,0\n", &["line 2: not UTF-8"]);
    bad("log.parquet", b"PAR1", &["not a readable Parquet file"]);
    bad("log.parquet", b"", &["not a readable Parquet file"]);
    bad("log.txt", b"x", &["there is no column `s_*`: the columns are `x`"]);
    let with = |problem: &str, line: &str, expected: &[&str]| {
        let folder = Folder::with(&with_problem(problem));
        folder.write("log.csv", format!("{head}0,1,2,0\n1,0,1,0\n0.5,1,0,1\n"));
        refused(&folder, &["check", "small.toml"], expected);
        refused_line(&folder, line, expected);
    };
    with(
        &format!("{LOGS}\nranges = {{ s_1 = [0, 1] }}"),
        "ranges = { s_1 = [0, 1] }",
        &["there is no state column `s_1`", "the state columns are s_0"],
    );
    with(&format!("{LOGS}\nranges = {{ s_0 = [1, 0] }}"), "ranges = { s_0 = [1, 0] }", &["`s_0`: [1, 0] is not a range"]);
    with(&LOGS.replace("0.9", "1.5"), "gamma = 1.5", &["problem.gamma: 1.5 is not accepted"]);
    with(
        &LOGS.replace("fourier", "forier"),
        "features = { kind = \"forier\", order = 1 }",
        &["unknown value `forier`; did you mean `fourier`?"],
    );
    with(&LOGS.replace("order = 1", "order = 4000000000"), "features = { kind = \"fourier\", order = 4000000000 }", &["problem.features"]);
    with(&LOGS.replace("\"log.csv\"", "[]"), "path = []", &["problem.path: no logs"]);
}

#[cfg(unix)]
fn pipe(folder: &Folder, name: &str) {
    let path = folder.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

/// Refuses a command soon, with these texts.
#[cfg(unix)]
fn says(folder: &Folder, args: &[&str], expected: &[&str]) {
    let output = crate::common::finish_soon(folder.command(args)).exits(2);
    let message = output.message();
    for text in expected {
        assert!(message.contains(text), "{args:?}: `{text}` is not in\n{}", output.stderr);
    }
}

/// Pipes and devices are not opened, because reading them may block or never end.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let folder = Folder::new();
    pipe(&folder, "pipe");
    says(&folder, &["run", "pipe"], &["pipe: cannot be read: it is a pipe, not a regular file"]);
    says(&folder, &["check", "."], &["cannot be read: it is a directory, not a regular file"]);
    for name in ["p.npz", "log.csv", "log.parquet"] {
        let kind = if name == "p.npz" { "kind = \"file\"\npath = \"p.npz\"".to_string() } else { LOGS.replace("log.csv", name) };
        let folder = Folder::with(&with_problem(&kind));
        pipe(&folder, name);
        says(
            &folder,
            &["run", "small.toml"],
            &["problem.path: ", name, "it is a pipe, not a regular file", "save the output of a pipe to a file"],
        );
    }
    // Among the agents' files: such a file is not skipped.
    let head = "s_0,next_0,reward,done\n0,1,2,0\n1,0,1,0\n0.5,1,0,1\n";
    for logs in ["logs", "logs/*.csv", "logs/b.csv"] {
        let folder = Folder::new();
        folder.write("logs/a.csv", head);
        pipe(&folder, "logs/b.csv");
        says(&folder, &["evaluate", logs], &["logs/b.csv: cannot be read: it is a pipe"]);
    }
    let folder = Folder::new();
    folder.write("logs/a.csv", head);
    std::os::unix::fs::symlink("b.csv", folder.path("logs/b.csv")).unwrap();
    says(&folder, &["evaluate", "logs"], &["logs/b.csv: cannot be read: ", "symbolic links"]);
    std::fs::remove_file(folder.path("logs/b.csv")).unwrap();
    std::os::unix::fs::symlink("gone.csv", folder.path("logs/b.csv")).unwrap();
    says(&folder, &["evaluate", "logs"], &["logs/b.csv: cannot be read: "]);
    // Starts and traces of delays.
    for (edit, file) in [
        ("start = \"start.json\"", "start.json"),
        ("start = \"start.npz\"", "start.npz"),
        ("uplink = { media = [{ kind = \"late\", law = \"trace\", path = \"delays.txt\" }] }", "delays.txt"),
    ] {
        let folder = Folder::with(&small("label = \"FedLSA\"", edit));
        pipe(&folder, file);
        says(&folder, &["run", "small.toml"], &[file, "it is a pipe"]);
    }
    // The files of an earlier run.
    let folder = Folder::with(SMALL);
    folder.run(&["run", "small.toml"]).exits(0);
    std::fs::remove_file(folder.path("out/small/config.toml")).unwrap();
    pipe(&folder, "out/small/config.toml");
    for args in [&["run", "small.toml", "--resume"][..], &["plot", "out/small"], &["diff", "out/small", "out/small"]] {
        says(&folder, args, &["out/small"]);
    }
}

#[test]
fn folders_that_cannot_be_written_are_named() {
    let folder = Folder::with(SMALL);
    folder.write("file", "kept");
    refused(&folder, &["run", "small.toml", "--out", "file/out"], &["file/out cannot be written", "a folder that you may write to"]);
    let message = folder.run(&["run", "small.toml", "--out", "/proc/nowhere"]).exits(3).message();
    assert!(message.contains("/proc/nowhere cannot be written"), "{message}");
    refused(&folder, &["export", "small.toml", "--npz", "file/x.npz"], &["there is no folder file"]);
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0,1,0\n0.5,1,0,1\n");
    refused(&folder, &["evaluate", "a.csv", "--features", "fourier:1", "--out", "file/x"], &["file/x cannot be written"]);
    assert_eq!(folder.text("file"), "kept");
}

#[test]
fn a_folder_that_holds_another_run_is_not_touched() {
    let folder = Folder::with(SMALL);
    refused(&folder, &["run", "small.toml", "--resume"], &["out/small holds no interrupted run"]);
    // Before any log is read.
    for command in ["evaluate", "fit", "improve"] {
        let actions = if command == "improve" { &["--actions", "a,b"][..] } else { &[] };
        let args = [&[command, "nothing.csv", "--out", "missing", "--resume"][..], actions].concat();
        refused(&folder, &args, &["missing holds no interrupted run"]);
    }
    folder.run(&["run", "small.toml"]).exits(0);
    refused(&folder, &["run", "small.toml"], &["out/small holds a finished run", "--resume", "--overwrite"]);
    let other = ["run", "small.toml", "--resume", "--rounds", "10"];
    refused(&folder, &other, &["holds a finished run of other settings", "run.rounds was 20 then, and is 10 now", "config.toml"]);
    // The same run is already done, and nothing runs again.
    let before = folder.everything();
    folder.run(&["run", "small.toml", "--resume"]).exits(0).says("already done");
    assert!(folder.everything() == before);
    folder.run(&["run", "small.toml", "--overwrite", "--rounds", "30"]).exits(0);
    assert!(folder.text("out/small/config.toml").contains("rounds = 30"));
    // Bad input with --overwrite keeps the existing files.
    refused(&folder, &["run", "small.toml", "--overwrite", "--rounds", "0"], &["run.rounds"]);
}

#[test]
fn quoted_values_are_cut_and_harmless() {
    let huge = "\u{1b}[31m".repeat(300_000);
    let toml = huge.replace('\u{1b}', "\\u001b");
    let tame = |folder: &Folder, args: &[&str]| {
        let output = folder.run(args).exits(2);
        assert!(output.stderr.len() < 20_000, "{args:?}: {} bytes", output.stderr.len());
        assert!(!output.stderr.contains('\u{1b}') && !output.stdout.contains('\u{1b}'), "{args:?}: {:.2000}", output.stderr);
    };
    for (from, to) in [
        ("id = \"small\"", format!("id = \"{toml}\"")),
        ("id = \"small\"", format!("title = \"{toml}\"")),
        ("id = \"small\"", format!("\"{toml}\" = 1")),
        ("agents = 4", format!("agents = \"{toml}\"")),
        ("agents = 4", format!("\"{toml}\" = 1")),
        ("agents = 4", format!("agents = [{}]", vec![format!("\"{toml}\""); 3].join(", "))),
        ("kind = \"garnet\"", format!("kind = \"{toml}\"")),
        ("kind = \"iid\"", format!("kind = \"{toml}\"")),
        ("kind = \"fedlsa\"", format!("kind = \"{toml}\"")),
        ("label = \"FedLSA\"", format!("label = \"{toml}\"")),
        ("label = \"FedLSA\"", format!("expect = \"{toml}\"")),
        ("label = \"FedLSA\"", format!("expect = [{{ at = {{ \"{toml}\" = 1 }}, status = \"ok\" }}]")),
        ("label = \"FedLSA\"", format!("uplink = {{ codec = {{ kind = \"{toml}\" }} }}")),
        ("seeds = 2", format!("start = \"{toml}\"")),
        ("seeds = 2", format!("start = \"{toml}.json\"")),
        ("seeds = 2", format!("[[sweep]]\nkey = \"{toml}\"\nvalues = [1]")),
        ("seeds = 2", format!("[[sweep]]\nkey = \"run.start\"\nvalues = [\"{toml}\"]")),
        ("seeds = 2", format!("[[sweep]]\nkey = \"run.rounds\"\nvalues = [1]\nlabels = [\"{toml}\"]")),
        ("seeds = 2", format!("[[variant]]\nlabel = \"{toml}\"")),
        ("seeds = 2", format!("[[check]]\nkind = \"{toml}\"\nmethod = \"FedLSA\"")),
        ("seeds = 2", format!("[[check]]\nkind = \"curve\"\nmethod = \"{toml}\"")),
        ("seeds = 2", format!("[figure]\nx = \"{toml}\"")),
        ("seeds = 2", format!("[quick]\n\"{toml}\" = 1")),
        // A line that no parser likes.
        ("seeds = 2", format!("seeds = {huge}")),
        ("seeds = 2", format!("seeds = {}", "9".repeat(3_000_000))),
    ] {
        let folder = Folder::with(&small(from, &to));
        tame(&folder, &["check", "small.toml"]);
    }
    let folder = Folder::with(SMALL);
    let short = "\u{1b}[31m".repeat(2000);
    for set in [format!("{short}=1"), format!("run.rounds={short}"), format!("method.{short}.x=1"), short.clone()] {
        tame(&folder, &["check", "small.toml", "--set", &set]);
        tame(&folder, &["check", "small.toml", "--sweep", &set]);
    }
    tame(&folder, &["check", &"\u{1b}x".repeat(50)]);
    tame(&folder, &["reproduce", &short]);
    // Cells of readers.
    folder.write("log.csv", format!("s_0,next_0,reward,done\n0,1,\u{1b}{huge},0\n"));
    tame(&folder, &["evaluate", "log.csv"]);
    folder.write("log.csv", format!("s_0,next_0,{huge},done\n0,1,1,0\n"));
    tame(&folder, &["evaluate", "log.csv"]);
    folder.write("s.json", format!("[1, \"{}\", 3]", "x".repeat(3_000_000)));
    tame(&folder, &["check", "small.toml", "--set", "run.start=s.json"]);
}

#[test]
fn excerpts_of_long_lines_show_a_window() {
    let values = (0..200_000).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("{SMALL}\n[[sweep]]\nvalues = [{values}, \"x\"]\nkey = \"problem.agents\"\n");
    let output = Folder::with(&text.replace("199999, ", "")).run(&["check", "small.toml"]).exits(2);
    assert!(output.stderr.len() < 3000, "{}", output.stderr);
    let few = format!("{SMALL}\n[[sweep]]\nvalues = [{}, \"x\"]\nkey = \"problem.agents\"\n", "4".to_string() + &" ".repeat(500_000));
    let output = Folder::with(&few).run(&["check", "small.toml"]).exits(2);
    assert!(output.stderr.len() < 3000 && output.stderr.contains("[small.toml:30:500"), "{}", output.stderr);
    assert!(output.stderr.contains("\"x\"]"), "{}", output.stderr);
}

#[test]
fn deep_keys_and_values_are_refused() {
    let folder = Folder::with(SMALL);
    let deep = vec!["a"; 20_000].join(".");
    refused(&folder, &["check", "small.toml", "--set", &format!("{deep}=1")], &["is a key of 20000 parts", "at most 32 parts"]);
    refused(&folder, &["check", "small.toml", "--sweep", &format!("{deep}=1")], &["is a key of 20000 parts"]);
    refused(
        &folder,
        &["check", "small.toml", "--set", &format!("problem.agents={}", "[".repeat(20_000))],
        &["problem.agents", "is not accepted", "a whole number"],
    );
    for text in [
        format!("{SMALL}\n[quick]\n\"{deep}\" = 1\n"),
        format!("{SMALL}\n[[variant]]\nlabel = \"a\"\nset = {{ \"{deep}\" = 1 }}\n"),
        format!("{SMALL}\n[[sweep]]\nkey = \"{deep}\"\nvalues = [1]\n"),
    ] {
        refused(&Folder::with(&text), &["check", "small.toml"], &["is a key of 20000 parts"]);
    }
    refused(
        &Folder::with(&format!("deep = {}1{}\n{SMALL}", "[".repeat(20_000), "]".repeat(20_000))),
        &["check", "small.toml"],
        &["this is not TOML"],
    );
    refused(&Folder::with(&format!("{deep} = 1\n{SMALL}")), &["check", "small.toml"], &["this is not TOML"]);
}

#[test]
fn experiments_are_read_from_standard_input() {
    use std::io::Write;
    let folder = Folder::new();
    folder.write("s.json", "[0.1, 0.2, 0.3]");
    let run = |args: &[&str], text: &str| {
        let mut child = folder.command(args);
        child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let text = small("id = \"small\"\n", "").replace("seeds = 2", "seeds = 2\nstart = \"s.json\"");
    for command in [&["check", "-"][..], &["theory", "-"], &["export", "-", "--npz", "p.npz"], &["run", "-"]] {
        let (status, _, stderr) = run(command, &text);
        assert_eq!(status, 0, "{command:?}: {stderr}");
    }
    assert_eq!(folder.json("out/stdin/summary.json")["id"], "stdin");
    assert!(folder.path("p.npz").exists());
    let (status, _, stderr) = run(&["run", "-"], &small("rounds = 20", "rounds = 0"));
    assert!(status == 2 && stderr.contains("[stdin:26:"), "{stderr}");
    let (status, _, stderr) = run(&["check", "-"], "");
    assert!(status == 2 && stderr.contains("stdin: there is no [problem] table"), "{stderr}");
}

#[test]
fn files_of_unusual_size_are_read_or_refused_soon() {
    // Many points take little memory: a table a point would be four hundred million values here.
    if cfg!(target_os = "linux") {
        let values = (0..20_000).map(|i| format!("{}", 1e-3 + 1e-6 * f64::from(i))).collect::<Vec<_>>().join(", ");
        let folder = Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [{values}]\n"));
        let mut command = std::process::Command::new("sh");
        let program = env!("CARGO_BIN_EXE_fedsa");
        command.args(["-c", "ulimit -v 3000000; exec \"$0\" check small.toml --threads 2", program]).current_dir(folder.path(""));
        crate::common::finish(command).exits(0).says("20000 points x 2 methods = 80000 different runs");
    }
    // Many keys, and long ones.
    let keys: String = (0..100_000).map(|i| format!("k{i} = {i}\n")).collect();
    refused(&Folder::with(&small("agents = 4", &keys)), &["check", "small.toml"], &["unknown key `k0`"]);
    let folder = Folder::with(&small("agents = 4", &format!("{} = 4", "k".repeat(1_000_000))));
    refused(&folder, &["check", "small.toml"], &["unknown key `kkk", "kkk..`"]);
    let methods: String = (0..1000).map(|i| format!("[[method]]\nkind = \"fedtd\"\nstep_size = 0.1\nlabel = \"{i}\"\n")).collect();
    Folder::with(&format!("{SMALL}\n{methods}\n[quick]\nmethod.7.step_size = 0.2\n")).run(&["check", "small.toml"]).exits(0);
    let folder = Folder::with(SMALL);
    std::fs::File::create(folder.path("large.toml")).unwrap().set_len(70 << 20).unwrap();
    refused(&folder, &["check", "large.toml"], &["large.toml: cannot be read: it has 73 MB, and at most"]);
}

/// Matrices and chains that break a promise are named, with the entry or the eigenvalue at fault.
#[test]
fn matrices_and_chains_at_fault_are_named() {
    let refused_problem = |problem: &str, line: &str, texts: &[&str]| refused_file(&with_problem(problem), line, texts);
    let quadratic = |a: &str| format!("kind = \"quadratic\"\na = {a}\nb = [[1.0, 2.0]]");
    for (a, texts) in [
        ("[[[1.0, 2.0]]]", &["problem.a: the matrix of agent 0 is not square: it has 1 rows, and row 0 has 2 entries"][..]),
        (
            "[[[2.0, 0.5], [0.25, 1.0]]]",
            &["problem.a: the matrix of agent 0 is not symmetric: entry [0][1] is 0.5 and entry [1][0] is 0.25, 0.25 apart"],
        ),
        ("[[[1.0, 2.0], [2.0, 1.0]]]", &["problem.a: the average of the agents' matrices is not positive definite", "-1.000000e0"]),
        ("[[[1.0, 0.0], [0.0, 0.0]]]", &["the average of the agents' matrices is not positive definite: its least eigenvalue is 0"]),
        ("[[[1.0]]]", &["problem.b: agent 0 has a matrix of 1 rows and an offset of 2 components"]),
    ] {
        let line = if a == "[[[1.0]]]" { "b = [[1.0, 2.0]]".to_string() } else { format!("a = {a}") };
        refused_problem(&quadratic(a), &line, texts);
    }
    let written = quadratic("[[[1.0, 0.0], [0.0, 1.0]]]");
    refused_problem(&format!("{written}\nspread = 1.0"), "spread = 1.0", &["problem.spread: a setting of matrices that are drawn"]);
    let drawn = "kind = \"quadratic\"\nmatrices = \"indefinite\"\ngreatest_eigenvalue = 3.0";
    refused_problem(drawn, "greatest_eigenvalue = 3.0", &["a greatest eigenvalue of 3 of indefinite matrices"]);

    let chain = |rows: &str| {
        let sum = format!("kind = \"finite-sum\"\nagents = 2\nterms = 2\ntransitions = {rows}");
        with_problem(&sum).replace("kind = \"iid\"", "kind = \"markov\"")
    };
    for (rows, texts) in [
        ("[[1.0, 0.0], [0.0, 1.0]]", "the chain is reducible: the eigenvalue 1 is a double one, 1.000000000"),
        ("[[0.0, 1.0], [1.0, 0.0]]", "the chain is periodic: another eigenvalue than 1 has modulus 1, -1.000000000"),
        ("[[0.5, 0.5], [0.25, 0.75]]", "column 0 sums to 0.75"),
        ("[[0.5, 0.5]]", "a matrix of 1 rows, one of which has 2 entries"),
    ] {
        refused_file(&chain(rows), &format!("transitions = {rows}"), &[&format!("problem.transitions: {texts}")]);
    }
    let idle = "kind = \"finite-sum\"\nmixing_time = 5.0";
    refused_problem(idle, "mixing_time = 5.0", &["problem.mixing_time: a setting of the chain of indices"]);

    for (keys, text) in [
        ("matrix = [[0.5, 0.0], [1.0, -1.5]]", "problem.noise.matrix: a matrix of spectral radius 1.5 is not accepted"),
        ("radius = 0.5, start = \"zero\"", "problem.noise.start: a start of trajectories"),
    ] {
        let line = format!("noise = {{ std = 1.0, {keys} }}");
        refused_problem(&format!("kind = \"quadratic\"\nagents = 2\ndim = 2\n{line}"), &line, &[text]);
    }
    let loud = "noise = { std = 1e200 }";
    let texts = ["problem.noise.std: 1e200 is not accepted", "from 0 to 1e100"];
    refused_problem(&format!("kind = \"quadratic\"\nagents = 2\ndim = 2\n{loud}"), loud, &texts);

    // Chains that count as reducible.
    for problem in ["random-logistic", "fixed-point", "switching", "finite-sum"] {
        let line = "mixing_time = 1e300";
        let text = with_problem(&format!("kind = \"{problem}\"\nagents = 2\n{line}")).replace("kind = \"iid\"", "kind = \"markov\"");
        refused_file(&text, line, &["problem.mixing_time: 1e300 is not accepted", "its second eigenvalue is 1 - 1.0e-300", "at most 1e9"]);
    }
    let stay = "stay = 0.9999999999999999";
    let texts = ["problem.stay: 0.9999999999999999 is not accepted", "reducible to rounding", "at most 1 - 1e-9"];
    refused_problem(&format!("kind = \"mrp\"\nagents = 2\nstates = 5\nfeatures = 2\n{stay}"), stay, &texts);
}
