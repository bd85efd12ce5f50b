//! Commands other than `run`.

use super::*;

/// Long settings are shortened, and the tables and lists in them closed.
#[test]
fn check_closes_the_tables_that_it_shortens() {
    let rounds: Vec<String> = (0..40).map(|t| (t * t).to_string()).collect();
    let renewal = format!("{{ schedule = \"rounds\", rounds = [{}] }}", rounds.join(", "));
    let text = with_problem("kind = \"quadratic\"\nagents = 3\ndim = 4");
    let text = edited(&text, "[[method]]", &format!("[[method]]\nkind = \"q-shed\"\nlabel = \"Q\"\nrenewal = {renewal}\n\n[[method]]"));
    let output = Folder::with(&text).run(&["check", "small.toml"]).exits(0).stdout;
    let line = output.lines().find(|line| line.contains("Q: q-shed")).unwrap();
    assert!(line.contains("renewal = { schedule = \"rounds\", rounds = [0, 1, 4, 9, 16, 25, 36, ..] }, allocation = "), "{line}");
    for line in output.lines() {
        for (open, close) in [('{', '}'), ('[', ']')] {
            assert_eq!(line.matches(open).count(), line.matches(close).count(), "{line}");
        }
    }
}

#[test]
fn check_says_what_would_run_and_how_long() {
    let folder = Folder::with(&format!("{SMALL}\n[[check]]\nkind = \"reaches\"\nmethod = \"FedLSA\"\nmax = 1\n"));
    let before = folder.everything();
    let output = folder.run(&["check", "small.toml"]).exits(0);
    let lines: Vec<&str> = output.stdout.lines().map(str::trim).collect();
    assert_eq!(lines[0], "small: small");
    assert_eq!(lines[1], "problem: 4 agents, d = 3");
    // Presets and defaults, as they come to.
    let garnet =
        "garnet, agents = 4, states = 10, actions = 2, branching = 2, features = 3, gamma = 0.95, seed = 0, policy = \"one-action\"";
    assert!(lines[2].starts_with(garnet), "{}", lines[2]);
    assert_eq!(lines[3], "sampling: iid, batch = 1, start = \"stationary\"");
    assert_eq!(lines[4], "1 point x 2 methods = 4 different runs with their seeds, 1 check");
    assert!(lines[5].starts_with("run: rounds = 20, seeds = 2, start = \"zero\""), "{}", lines[5]);
    assert_eq!(lines[6], "FedLSA: fedlsa, step_size = 0.1, local_steps = 10, global_step_size = 1.0");
    assert!(lines[7].starts_with("stable: the radius of a noiseless round is 0.9"), "{}", lines[7]);
    assert!(lines[8].starts_with("SCAFFLSA: scafflsa, ") && lines[9].starts_with("stable: "), "{output}", output = output.stdout);
    assert!(lines[10].starts_with("time: less than a second on "), "{}", lines[10]);
    assert!(lines[11].starts_with("memory: about 2") && lines[11].contains(" MB"), "{}", lines[11]);
    assert_eq!(lines[12..], ["ok"]);
    assert!(folder.everything() == before, "check writes nothing");
    folder.run(&["check", "small.toml", "--set", "run.rounds=100000000"]).exits(0).says("time: about ");
    // Equal cells at several points run once.
    let swept = format!("{SMALL}\n[[sweep]]\nkey = \"method.FedLSA.local_steps\"\nvalues = [1, 2, 3]\n");
    let output = Folder::with(&swept).run(&["check", "small.toml"]).exits(0);
    assert!(output.stdout.contains("3 points x 2 methods = 8 different runs with their seeds\n"), "{}", output.stdout);
    assert!(output.stdout.contains("at local_steps=3 (problem 0):"), "{}", output.stdout);
}

#[test]
fn estimates_of_agents_that_compute_alone_are_those_of_their_method() {
    let newton = |halvings: usize| format!("kind = \"newton\"\nlabel = \"FedLSA\"\nhalvings = {halvings}\n");
    let problem = crate::common::with_problem("kind = \"linear\"\nagents = 4\ndim = 40").replace("\"iid\"", "\"mean\"");
    let seconds = |halvings: usize| {
        let text = edited(&problem, "kind = \"fedlsa\"\nlabel = \"FedLSA\"\nstep_size = 0.1\nlocal_steps = 10\n", &newton(halvings));
        let json: Value = serde_json::from_str(&Folder::with(&text).run(&["check", "small.toml", "--json"]).exits(0).stdout).unwrap();
        json["points"][0]["methods"][0]["seconds"].as_f64().unwrap()
    };
    // A loss for each trial step.
    assert!(seconds(60) > 2.0 * seconds(10), "{} {}", seconds(60), seconds(10));
}

#[test]
fn theory_is_printed_for_people_and_as_json() {
    let folder = Folder::with(SMALL);
    folder.run(&["theory", "small.toml"]).exits(0).says("small: ").says("\nFedLSA: ").says("floor");
    folder.run(&["theory", "small.toml", "--full"]).exits(0).says("small: ").says("\nFedLSA\n------\n").says("\nStability\n");
    let json: Value = serde_json::from_str(&folder.run(&["theory", "small.toml", "--json"]).exits(0).stdout).unwrap();
    let problem = &json["problems"][0];
    assert_eq!((&problem["agents"], problem["theta_star"].as_array().unwrap().len()), (&4.into(), 3));
    assert!(problem["constants"]["a"].as_f64().unwrap() > 0.0);
    for (i, method) in json["methods"].as_array().unwrap().iter().enumerate() {
        for key in ["bias2", "noise", "floor", "radius", "largest_stable_step"] {
            assert!(method[key].as_f64().unwrap() >= 0.0, "{key} of {i}");
        }
        assert_eq!(method["stable"], true);
    }
    assert_eq!(json["methods"][0]["limit"].as_array().unwrap().len(), 3);
    // Unknown values have a reason.
    let varies = folder.run(&["theory", "small.toml", "--json", "--set", "method.FedLSA.step_size={ c = 0.1, t0 = 10 }"]).exits(0).stdout;
    let json: Value = serde_json::from_str(&varies).unwrap();
    for key in ["radius", "stable"] {
        let method = &json["methods"][0];
        assert!(method[key].is_null() && method["unknown"][key]["code"] == "not-known", "{key}: {method}");
        assert!(method["unknown"][key]["text"].as_str().unwrap().contains("the step size varies"), "{key}");
    }
    for set in ["sampling.kind=\"markov\"", "problem.features=25"] {
        let args = ["theory", "small.toml", "--json", "--set", set, "--set", "problem.states=40"];
        let json: Value = serde_json::from_str(&folder.run(&args).exits(0).stdout).unwrap();
        let problem = &json["problems"][0];
        assert!(problem["constants"]["sigma_a"].is_null() && problem["unknown"]["constants.sigma_a"]["text"].is_string(), "{problem}");
    }
}

#[test]
fn theory_says_how_numbers_are_known() {
    let folder = Folder::with(SMALL);
    // Along finite chains, beside leading order and mixing times.
    let markov = ["theory", "small.toml", "--set", "sampling.kind=\"markov\"", "--json"];
    let json: Value = serde_json::from_str(&folder.run(&markov).exits(0).stdout).unwrap();
    let (problem, method) = (&json["problems"][0], &json["methods"][0]);
    assert_eq!(method["accuracy"]["floor"]["status"], "closure");
    assert_eq!(method["accuracy"]["floor_leading_order"]["status"], "leading-order");
    assert!(method["accuracy"]["floor"]["eps_squared"].as_f64().unwrap() > 0.0);
    assert!(method["floor"].as_f64().unwrap() > 0.0 && method["leading_order"]["noise_over_iid"].as_f64().unwrap() > 0.0);
    assert!(problem["mixing"]["second_eigenvalue"].as_f64().is_some_and(|x| x < 1.0));
    assert!(problem["mixing"]["mixing_times"][1]["operator"].as_f64().unwrap() >= 1.0);
    folder.run(&markov[..4]).exits(0).says("closure, eps² = ");
    let noisy = [
        "theory",
        "small.toml",
        "--set",
        "sampling.kind=\"markov\"",
        "--set",
        "problem={ kind = \"linear\", noise = { std = 1, radius = 0.5 } }",
    ];
    let json: Value = serde_json::from_str(&folder.run(&[&noisy[..], &["--json"]].concat()).exits(0).stdout).unwrap();
    assert_eq!(json["methods"][0]["accuracy"]["floor"]["status"], "exact");
    assert!((json["problems"][0]["mixing"]["relaxation_time"].as_f64().unwrap() - 2.0).abs() < 1e-12);
    // Over links that lose messages, and with partial participation, many values are known.
    let lossy = "method.FedLSA.uplink={ media = [{ kind = \"erasure\", success = 0.5 }] }";
    let known = folder.run(&["theory", "small.toml", "--json", "--set", lossy, "--set", "method.FedLSA.participants=2"]).exits(0).stdout;
    let known: Value = serde_json::from_str(&known).unwrap();
    for key in ["bias2", "noise", "floor", "radius", "mean_square_radius", "largest_stable_step"] {
        assert!(known["methods"][0][key].as_f64().unwrap() >= 0.0, "{key}");
    }
    assert_eq!(known["methods"][0]["limit"].as_array().unwrap().len(), 3);
    assert!(!folder.path("out").exists());
}

#[test]
fn export_writes_what_a_file_problem_reads() {
    let folder = Folder::with(SMALL);
    let message = folder.run(&["export", "small.toml", "--npz", "made/p.npz"]).exits(2).message();
    assert!(message.contains("there is no folder made"), "{message}");
    std::fs::create_dir(folder.path("made")).unwrap();
    folder.run(&["export", "small.toml", "--npz", "made/p.npz"]).exits(0).says("made/p.npz: A, P, Phi, R, b, format, gamma");
    let arrays = npz::read(&folder.path("made/p.npz")).unwrap();
    let shapes: Vec<(&str, &[usize])> = arrays.iter().map(|(name, array)| (name, array.shape())).collect();
    let expected: [(&str, &[usize]); 11] = [
        ("A", &[4, 3, 3]),
        ("P", &[4, 10, 10]),
        ("Phi", &[10, 3]),
        ("R", &[4, 10, 10]),
        ("b", &[4, 3]),
        ("format", &[]),
        ("gamma", &[4]),
        ("stationary", &[4, 10]),
        ("theta_local", &[4, 3]),
        ("theta_star", &[3]),
        ("weights", &[4]),
    ];
    assert_eq!(shapes, expected);
    // The same problem again: the same root, and the same again when exported.
    folder.write("file.toml", crate::common::with_problem("kind = \"file\"\npath = \"made/p.npz\""));
    folder.run(&["export", "file.toml", "--npz", "again.npz"]).exits(0);
    let again = npz::read(&folder.path("again.npz")).unwrap();
    for (name, array) in arrays.iter() {
        let error =
            array.data().iter().zip(again.get(name).unwrap().data()).map(|(x, y)| (x - y).abs() / (1.0 + x.abs())).fold(0.0, f64::max);
        assert!(error < 1e-12, "{name}: {error}");
    }
    // Several problems have no arrays of one.
    let swept = format!("{SMALL}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 3]\n");
    let folder = Folder::with(&swept);
    let message = folder.run(&["export", "small.toml", "--npz", "p.npz"]).exits(2).message();
    assert!(message.contains("the file has 2 problems") && message.contains("--set sweep.0.values=[1]"), "{message}");
    folder.run(&["export", "small.toml", "--npz", "p.npz", "--set", "sweep.0.values=[3]"]).exits(0);
    // A kernel per agent would not fit into memory, but there are only two distinct kernels.
    folder.write(
        "large.toml",
        crate::common::with_problem("kind = \"garnet\"\nagents = 2000000\nheterogeneity = \"two-kernels\"\nperturbation = 0.0"),
    );
    let message = folder.run(&["export", "large.toml", "--npz", "p.npz"]).exits(2).message();
    assert!(message.contains("2000000 agents") && message.contains("fewer agents"), "{message}");
    // Linear systems of which one is singular, and noise.
    let linear = "kind = \"linear\"\na = [[[1.0]], [[0.0]]]\nb = [[1.0], [2.0]]\nallow_singular_agents = true\nnoise = { std = 0.5 }";
    let folder = Folder::with(&crate::common::with_problem(linear));
    folder.run(&["export", "small.toml", "--npz", "p.npz"]).exits(0);
    let arrays = npz::read(&folder.path("p.npz")).unwrap();
    assert!(arrays.get("theta_local").unwrap().data()[1].is_nan());
    assert_eq!(arrays.get("noise_std").unwrap().data(), [0.5]);
    folder.write("file.toml", crate::common::with_problem("kind = \"file\"\npath = \"p.npz\"\nallow_singular_agents = true"));
    folder.run(&["check", "file.toml"]).exits(0);
}

#[test]
fn bundled_experiments_are_listed_printed_and_run() {
    let folder = Folder::new();
    let list = folder.run(&["reproduce", "--list"]).exits(0).stdout;
    assert_eq!(list.lines().count(), ALL.len());
    for (line, bundled) in list.lines().zip(ALL) {
        let (id, rest) = line.split_once(' ').unwrap();
        assert!(id == bundled.id && (rest.contains("about ") || rest.contains("less than a second")), "{line}");
        assert_eq!(
            rest.contains("; needs transitions/"),
            ["cross/evaluation", "cross/logs", "scafflsa/random-talk"].contains(&id),
            "{line}"
        );
    }
    assert!(list.contains("; needs transitions/mountaincar (missing), transitions/cartpole (missing)\n"), "{list}");
    // A folder of images is found as well as one of logs.
    folder.write("data/fashion-mnist/train-images-idx3-ubyte.gz", b"");
    let mut command = folder.command(&["reproduce", "--list"]);
    command.env("FEDSA_DATA", folder.path("data"));
    let list = crate::common::finish(command).exits(0).stdout;
    assert!(list.contains("fashion-mnist (there)") && list.contains("transitions/mountaincar (missing)"), "{list}");
    // Each check says by itself what it is about.
    for bundled in ALL {
        let file: toml::Table = bundled.text.parse().unwrap();
        for check in file["check"].as_array().unwrap() {
            let name = check["name"].as_str().unwrap();
            assert!(name.starts_with(char::is_uppercase) && name.split(' ').count() >= 6, "{}: {name}", bundled.id);
        }
    }
    let printed = folder.run(&["reproduce", "scafflsa/fig1-high", "--print"]).exits(0).stdout;
    assert_eq!(printed.trim(), ALL.iter().find(|b| b.id == "scafflsa/fig1-high").unwrap().text.trim());
    // What is printed is a file that can be changed and run.
    folder.write("mine.toml", printed);
    let tiny = ["--set", "problem.agents=3", "--set", "method.*.local_steps=10", "--rounds", "5", "--seeds", "2"];
    folder.run(&[&["run", "mine.toml", "--quick", "--out", "mine"], &tiny[..]].concat()).exits(0);
    // Failed checks are notes under --quick, and only there; --out is the folder itself.
    let reproduce = |args: &[&str]| folder.run(&[&["reproduce", "scafflsa/fig1-high"], args, &tiny[..]].concat());
    reproduce(&["--quick", "--out", "one"]).exits(0).says("note: not met with the quick settings");
    reproduce(&["--out", "two"]).exits(1).says("FAILED: ");
    assert!(folder.path("one/summary.json").exists());
    assert!(folder.read("one/trace.parquet") == folder.read("mine/trace.parquet"));
    reproduce(&["--quick"]).exits(0);
    assert!(folder.path("out/scafflsa/fig1-high/summary.json").exists());
}

#[test]
fn reproducing_several_skips_those_without_their_data() {
    let folder = Folder::new();
    // Of these, the figures lack their data.
    let args = ["reproduce", "qshed", "--quick", "--out", "all", "--seeds", "2"];
    let output = folder.run(&args).exits(0);
    assert!(output.stdout.contains("qshed/fig3-1: skipped, its data is missing: "), "{}", output.stdout);
    assert!(folder.path("all/qshed/allocation/summary.json").exists(), "--out is the parent of several");
    assert!(!folder.path("all/qshed/fig3-1").exists());
    assert!(output.stdout.contains("2 skipped because data is missing"), "{}", output.stdout);
    // With --resume, finished experiments do not run again.
    let again = folder.run(&[&args[..], &["--resume"]].concat()).exits(0);
    assert!(again.stdout.contains("qshed/allocation: already done"), "{}", again.stdout);
    // One alone that lacks its data is bad input.
    let alone = folder.run(&["reproduce", "cross/logs", "--quick"]).exits(2);
    assert!(alone.message().contains("transitions/mountaincar: there is no such file"), "{}", alone.stderr);
}

#[test]
fn completions_are_scripts() {
    let folder = Folder::new();
    for (shell, text) in
        [("bash", "complete -F"), ("zsh", "#compdef fedsa"), ("fish", "complete -c fedsa"), ("powershell", "Register-ArgumentCompleter")]
    {
        let script = folder.run(&["completions", shell]).exits(0).stdout;
        assert!(script.contains(text) && script.contains("reproduce") && script.contains("checkpoint-every"), "{shell}");
    }
}

#[test]
fn help_is_there_for_every_command() {
    let folder = Folder::new();
    let help = folder.run(&["--help"]).exits(0).stdout;
    let all = folder.run(&["--help-all"]).exits(0).stdout;
    let first = ["fit", "evaluate", "predict", "run", "check", "theory", "reproduce", "report"];
    for command in first.iter().copied().chain(["export", "data", "tune", "completions"]) {
        // The short help has eight commands.
        let (line, is_first) = (format!("\n  {command} "), first.contains(&command));
        assert!(all.contains(&line) && help.contains(&line) == is_first, "{command}: {help}");
        let own = folder.run(&[command, "--help"]).exits(0).stdout;
        assert!(own.contains(&format!("Usage: fedsa {command}")) && own.contains("--threads"), "{own}");
    }
    assert!(help.contains("Exit status: 0 done"), "{help}");
    assert!(folder.run(&["--version"]).exits(0).stdout.starts_with("fedsa "));
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_is_no_panic() {
    let folder = Folder::with(SMALL);
    for args in [
        &["reproduce", "--list"][..],
        &["completions", "bash"],
        &["theory", "small.toml"],
        &["check", "small.toml"],
        &["run", "small.toml"],
    ] {
        let mut command = folder.command(args);
        let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()), "{args:?}");
    }
}

/// A data set may be named by the beginning of its file's name: the resolved file then names it so as well, and runs elsewhere.
#[test]
fn data_that_are_named_by_a_beginning_are_found_from_other_folders() {
    let rows: String = (0..40).map(|i| format!("{},{}\n", f64::from(i % 7) - 3.0, i % 2)).collect();
    let folder = Folder::with(&crate::common::with_problem("kind = \"logistic\"\ndata = \"rows\"\nagents = 2\nridge = 0.1"));
    folder.write("rows.csv", format!("x,target\n{rows}"));
    folder.run(&["run", "small.toml"]).exits(0);
    let absolute = folder.path("rows");
    assert!(folder.text("out/small/config.toml").contains(absolute.to_str().unwrap()), "{}", folder.text("out/small/config.toml"));
    folder.run(&["run", "out/small/config.toml", "--out", "again"]).exits(0);
    assert!(folder.read("again/trace.parquet") == folder.read("out/small/trace.parquet"));
}
