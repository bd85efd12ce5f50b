//! `fedsa run`: its options, its status, its files.

use super::*;

fn counts(table: &Trace, name: &str) -> Vec<i64> {
    match table.column(name) {
        Some(TraceColumn::I64(v)) => v.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn names(table: &Trace, name: &str) -> Vec<String> {
    match table.column(name) {
        Some(TraceColumn::Str(v)) => v.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn files(folder: &Folder, out: &str) -> Vec<String> {
    let mut all: Vec<String> =
        std::fs::read_dir(folder.path(out)).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// Collects the paths of nulls in a JSON tree; serde_json writes numbers that are not finite as null.
fn finite_or_null(value: &Value, nulls: &mut Vec<String>, path: &str) {
    match value {
        Value::Null => nulls.push(path.to_string()),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| finite_or_null(v, nulls, &format!("{path}[{i}]"))),
        Value::Object(fields) => fields.iter().for_each(|(k, v)| finite_or_null(v, nulls, &format!("{path}.{k}"))),
        _ => {}
    }
}

#[test]
fn a_run_leaves_its_files() {
    let folder = Folder::with(SMALL);
    let output = folder.run(&["run", "small.toml"]).exits(0);
    assert!(output.stdout.starts_with("small in ") && output.stdout.contains(": out/small"), "{}", output.stdout);
    let falling =
        "FedLSA: 289 at the end, no floor yet: it falls by 12.6% over the last fifth of the rounds; theory predicts a floor of 0.0183";
    assert!(output.stdout.contains(falling), "{}", output.stdout);
    // Rounds enough to come to it.
    let long = Folder::with(SMALL).run(&["run", "small.toml", "--rounds", "4000"]).exits(0);
    assert!(long.stdout.contains("FedLSA: floor 0.018") && long.stdout.contains(" +- "), "{}", long.stdout);
    assert_eq!(output.stderr, "", "no progress bar without a terminal");
    let expected = [".fedsa", "config.toml", "figure.png", "figure.svg", "summary.json", "theta.npz", "trace.parquet"];
    assert_eq!(files(&folder, "out/small"), expected);
    assert!(folder.text("out/small/figure.svg").contains("FedLSA") && folder.read("out/small/figure.png").starts_with(b"\x89PNG"));

    let trace = table(&folder, "out/small");
    let columns: Vec<&str> = trace.columns().iter().map(|(name, _)| name.as_str()).collect();
    let counted = [
        ["round", "exchanges", "samples", "messages", "bits_up", "bits_down", "bits", "vectors_up", "matrices_up", "scalars_up"].as_slice(),
        &["operators", "gradients", "hessians", "hessian_vectors", "losses"],
    ]
    .concat();
    let metrics = [
        "mse",
        "error",
        "residual",
        "value_error",
        "control_error",
        "lyapunov",
        "loss",
        "gap",
        "failed_searches",
        "hessian_error",
        "missing_weight",
    ];
    assert_eq!(columns, [&["method", "kind", "point", "outcome", "seed"], &counted[..], &metrics].concat());
    // Two methods, two seeds, rounds 0 to 20.
    assert_eq!(trace.rows(), 2 * 2 * 21);
    assert_eq!(names(&trace, "method")[..42], vec!["FedLSA"; 42]);
    assert_eq!(names(&trace, "method")[42..], vec!["SCAFFLSA"; 42]);
    assert!(names(&trace, "point").iter().all(String::is_empty));
    assert_eq!(names(&trace, "kind")[41..43], ["fedlsa", "scafflsa"]);
    assert!(names(&trace, "outcome").iter().all(|outcome| outcome == "completed"));
    assert_eq!(counts(&trace, "seed")[..42], [[0; 21], [1; 21]].concat());
    assert_eq!(counts(&trace, "round")[..21], (0..=20).collect::<Vec<_>>());
    // Totals over four agents with ten steps a round.
    assert_eq!((counts(&trace, "samples")[20], counts(&trace, "operators")[20]), (20 * 4 * 10, 20 * 4 * 10));
    assert_eq!((counts(&trace, "vectors_up")[20], counts(&trace, "messages")[20]), (80, 160));
    assert!(counts(&trace, "bits_up")[20] > 80 * 3 * 64 && counts(&trace, "bits_up")[20] % 8 == 0);
    assert_eq!(counts(&trace, "bits")[20], counts(&trace, "bits_up")[20] + counts(&trace, "bits_down")[20]);
    for name in counted {
        assert!(counts(&trace, name)[..21].is_sorted() && counts(&trace, name)[0] == 0, "{name}");
    }
    // Known values are finite, unknown values are empty.
    for (name, known) in [("mse", true), ("residual", true), ("value_error", true), ("error", false)] {
        assert!(numbers(&trace, name).iter().all(|x| x.is_some_and(f64::is_finite) == known), "{name}");
    }
    assert!(numbers(&trace, "control_error")[..42].iter().all(Option::is_none));
    assert!(numbers(&trace, "lyapunov")[42..].iter().all(Option::is_some));

    let theta = npz::read(&folder.path("out/small/theta.npz")).unwrap();
    assert_eq!(theta.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["FedLSA", "SCAFFLSA", "format", "theta_star"]);
    assert_eq!((theta.get("FedLSA").unwrap().shape(), theta.get("theta_star").unwrap().shape()), (&[2, 3][..], &[3][..]));
}

#[test]
fn a_summary_says_what_came_out() {
    let check = "[[check]]\nkind = \"floor\"\nname = \"it has a floor\"\nmethod = \"FedLSA\"\nexpected = \"floor\"\ntolerance = 1e9\n";
    let folder = Folder::with(&format!("title = \"A title\"\n{SMALL}\n{check}"));
    folder.run(&["run", "small.toml", "--out", "here"]).exits(0).says("ok: it has a floor: ");
    let summary = folder.json("here/summary.json");
    assert_eq!((&summary["format"], &summary["id"], &summary["title"]), (&2.into(), &"small".into(), &"A title".into()));
    assert_eq!((&summary["passed"], &summary["exit_status"]), (&true.into(), &0.into()));
    let seconds = summary["seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && summary["fedsa"].is_string());
    // Of each run, in the time of all.
    for result in summary["results"].as_array().unwrap() {
        assert!((f64::MIN_POSITIVE..seconds).contains(&result["seconds"].as_f64().unwrap()), "{}", result["seconds"]);
    }
    let provenance = &summary["provenance"];
    assert_eq!(provenance["command_line"].as_array().unwrap()[1..], ["run", "small.toml", "--out", "here"]);
    assert!(provenance["instruction_set"].is_string() && provenance["threads"].as_u64().unwrap() >= 1 && provenance["ended"].is_string());
    let check = &summary["checks"][0];
    assert_eq!((&check["name"], &check["pass"], &check["as_expected"]), (&"it has a floor".into(), &true.into(), &true.into()));
    for key in ["measured", "expected", "tolerance", "standard_error"] {
        assert!(check[key].is_f64(), "{key}: {}", check[key]);
    }
    assert!((check["tolerance"].as_f64().unwrap() / (1e9 * check["expected"].as_f64().unwrap()) - 1.0).abs() < 1e-6);
    assert_eq!((&check["weak"], &check["min"], &check["kind"]), (&true.into(), &Value::Null, &"floor".into()));
    assert_eq!(check["statement"], "the floor of mse of FedLSA is its predicted `floor`");
    let result = &summary["results"][1];
    assert_eq!((&result["method"], &result["kind"], &result["point"]), (&"SCAFFLSA".into(), &"scafflsa".into(), &"".into()));
    assert_eq!((&result["status"], &result["as_expected"], &result["seeds"]), (&"ok".into(), &true.into(), &2.into()));
    assert_eq!(result["outcome"], "completed");
    assert_eq!(result["rounds"], 20);
    for key in ["floor_mean", "floor_se", "final_mean", "residual_mean"] {
        assert!(result[key].is_f64(), "{key}");
    }
    assert!(summary["results"][0]["predicted"]["floor"].is_f64());
    assert_eq!(summary["results"][0]["predicted_accuracy"]["floor"]["status"], "exact");
    for key in ["exchanges", "samples", "messages", "bits_up", "bits_down", "vectors_up"] {
        assert!(result["ledger"][key].as_f64().unwrap() > 0.0, "{key}");
    }
    let problem = &summary["problem"];
    assert_eq!((&problem["agents"], &problem["dim"], &problem["sampling"]["kind"]), (&4.into(), &3.into(), &"iid".into()));
    assert_eq!(problem["theta_star"].as_array().unwrap().len(), 3);
    let mut nulls = Vec::new();
    finite_or_null(&summary, &mut nulls, "");
    // What a system may not tell.
    nulls.retain(|path| !path.starts_with(".provenance"));
    assert_eq!(nulls, [".checks[0].min", ".checks[0].max"]);
}

#[test]
fn what_diverges_leaves_no_number_that_is_none() {
    let text = small("step_size = 0.1", "step_size = 1e30");
    let check = "[[check]]\nkind = \"ratio\"\nname = \"the maximum of FedLSA is lost\"\nmethod = \"SCAFFLSA\"\nover = \"FedLSA\"\nmin = 1\n\
                 expected_to_fail = \"it diverges\"\n";
    let figure = "[figure]\nlevels = { FedLSA = [\"floor\", \"bias2\"] }\nexact = [\"FedLSA\"]\n";
    let folder = Folder::with(&format!("{text}\n{check}{figure}"));
    // A check that cannot be measured does not count as failing as expected.
    let output = folder.run(&["run", "small.toml", "--force", "--out", "o"]).exits(1);
    assert!(output.stdout.contains("FedLSA: diverged in round 1, NOT as expected"), "{}", output.stdout);
    let line = "FAILED: the maximum of FedLSA is lost: could not be measured: FedLSA diverged";
    assert!(output.stdout.contains(line), "{}", output.stdout);
    let check = &folder.json("o/summary.json")["checks"][0];
    assert_eq!((&check["measured"], &check["pass"], &check["as_expected"]), (&Value::Null, &false.into(), &false.into()));
    assert_eq!(check["why"], "FedLSA diverged");
    let trace = table(&folder, "o");
    // Rounds 0 and 1 of each seed, the metrics of the second not finite and so empty.
    assert_eq!(counts(&trace, "round")[..4], [0, 1, 0, 1]);
    for name in ["mse", "residual", "value_error"] {
        assert!(numbers(&trace, name).iter().flatten().all(|x| x.is_finite()), "{name}");
    }
    let result = &folder.json("o/summary.json")["results"][0];
    assert_eq!((&result["status"], &result["diverged_at_round"], &result["diverged_seeds"]), (&"diverged".into(), &1.into(), &2.into()));
    assert!(result["largest_stable_step"].as_f64().unwrap() > 0.1);
    for word in ["NaN", "inf\"", "Infinity"] {
        assert!(!folder.text("o/summary.json").contains(word) && !folder.text("o/figure.svg").contains(word), "{word}");
    }
}

/// The status of a run of [`SMALL`] with more at its end.
#[track_caller]
fn status(more: &str, args: &[&str], expected: i32, said: &str) {
    let folder = Folder::with(&format!("{SMALL}\n{more}\n"));
    folder.run(&[&["run", "small.toml"], args].concat()).exits(expected).says(said);
    let summary = folder.json("out/small/summary.json");
    assert_eq!(summary["exit_status"], expected);
    // Running into a finished folder again gives the same status.
    folder.run(&[&["run", "small.toml", "--resume"], args].concat()).exits(expected).says("already done");
}

#[test]
fn checks_decide_the_status_both_ways() {
    let holds = "[[check]]\nkind = \"reaches\"\nmethod = \"FedLSA\"\nmax = 1e9";
    let fails = "[[check]]\nkind = \"reaches\"\nmethod = \"FedLSA\"\nmax = 1e-9";
    let but = "\nexpected_to_fail = \"because\"";
    status(holds, &[], 0, "ok: mse of FedLSA is at most 1e9 for every seed at the last round: ");
    status(fails, &[], 1, "FAILED: mse of FedLSA is at most 1e-9 for every seed at the last round: ");
    status(&format!("{holds}{but}"), &[], 1, "HOLDS, though expected to fail: mse of FedLSA");
    status(&format!("{fails}{but}"), &[], 0, "fails as expected: mse of FedLSA");
    // With quick settings, failed checks are notes.
    status(fails, &["--quick"], 0, "note: not met with the quick settings: mse of FedLSA");
    status(&format!("{holds}{but}"), &["--quick"], 0, "note: holds with the quick settings");
    let folder = Folder::with(&format!("{SMALL}\n{fails}{but}"));
    folder.run(&["run", "small.toml"]).exits(0);
    let check = &folder.json("out/small/summary.json")["checks"][0];
    assert_eq!((&check["pass"], &check["as_expected"], &check["expected_to_fail"]), (&false.into(), &true.into(), &"because".into()));
    assert!(folder.text("out/small/figure.svg").contains("Expected to fail"));
}

#[test]
fn expected_statuses_decide_both_ways() {
    let with = |expect: &str, step: &str, more: &str| {
        format!("{}\n{more}", small("step_size = 0.1", &format!("step_size = {step}\nexpect = {expect}")))
    };
    let run = |text: &str, args: &[&str], expected: i32, said: &str| {
        Folder::with(text).run(&[&["run", "small.toml"], args].concat()).exits(expected).says(said);
    };
    run(&with("\"diverges\"", "1000.0", ""), &[], 0, "FedLSA: diverged in round");
    run(&with("\"diverges\"", "0.1", ""), &[], 1, "FedLSA: did not end as `expect` says, NOT as expected");
    run(&with("\"ok\"", "0.1", ""), &[], 0, "FedLSA: 289 at the end");
    run(&with("\"ok\"", "1000.0", ""), &[], 1, "diverged in round");
    // A quick run may be too short to diverge, but must not diverge unexpectedly.
    run(&with("\"diverges\"", "0.1", ""), &["--quick"], 0, "did not end as expected with the quick settings");
    run(&with("\"ok\"", "1000.0", ""), &["--quick"], 1, "diverged in round");
    // At sweep points: 1 and 1.0 are the same, a list means any of them.
    let sweep = "[[sweep]]\nkey = \"method.FedLSA.step_size\"\nvalues = [0.1, 1000.0, 2000.0]\n";
    let at = |values: &str| format!("[{{ at = {{ step_size = {values} }}, status = \"diverges\" }}]");
    run(&with(&at("[1000, 2000.0]"), "0.1", sweep), &[], 0, "FedLSA at step_size=2000.0: diverged in round");
    run(&with(&at("1000"), "0.1", sweep), &[], 1, "FedLSA at step_size=2000.0: diverged in round");
    run(&with(&at("[0.1, 1000, 2000]"), "0.1", sweep), &[], 1, "FedLSA at step_size=0.1: did not end as `expect` says, NOT as expected");
}

#[test]
fn options_reach_what_they_say() {
    let folder = Folder::with(&format!("{SMALL}\n[quick]\n\"run.rounds\" = 7\nrun.seeds = 1\n"));
    let run = |args: &[&str], out: &str| {
        folder.run(&[&["run", "small.toml", "--out", out], args].concat()).exits(0);
        let trace = table(&folder, out);
        let (seeds, rounds) = (counts(&trace, "seed"), counts(&trace, "round"));
        (*seeds.iter().max().unwrap() + 1, *rounds.iter().max().unwrap())
    };
    assert_eq!(run(&[], "plain"), (2, 20));
    assert_eq!(run(&["--quick"], "quick"), (1, 7));
    assert_eq!(run(&["--seeds", "3", "--rounds", "5"], "both"), (3, 5));
    assert_eq!(run(&["--quick", "--rounds", "6"], "quick-rounds"), (1, 6));
    // The last one wins.
    assert_eq!(run(&["--set", "run.rounds=9", "--rounds", "4", "--set", "run.seeds=[1, 3]"], "set"), (4, 4));
    let config = folder.text("set/config.toml");
    assert!(
        config.contains("rounds = 4") && config.contains("seeds = [\n    1,\n    3,\n]") || config.contains("seeds = [1, 3]"),
        "{config}"
    );
    assert!(!folder.text("quick/config.toml").contains("[quick]"));
    folder.run(&["run", "small.toml", "--out", "agents", "--set", "problem.agents=9", "--set", "method.*.participants=2"]).exits(0);
    assert_eq!(folder.json("agents/summary.json")["problem"]["agents"], 9);
    assert_eq!(*counts(&table(&folder, "agents"), "vectors_up").iter().max().unwrap(), 40);
    // Quiet is quiet, wherever the options stand.
    let quiet = folder.run(&["--threads", "1", "run", "--quiet", "small.toml", "--out", "quiet"]).exits(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    // The folder is the one named, and made with those around it; by default out/ID, the id from the file's name if it has none.
    folder.write("named.toml", edited(SMALL, "id = \"small\"\n", ""));
    folder.run(&["run", "named.toml"]).exits(0);
    folder.run(&["run", "named.toml", "--out", "a/b/c"]).exits(0);
    assert!(folder.path("out/named/summary.json").exists() && folder.path("a/b/c/summary.json").exists());
    folder.write("sub.toml", edited(SMALL, "id = \"small\"", "id = \"deep/er\""));
    folder.run(&["run", "sub.toml"]).exits(0);
    assert!(folder.path("out/deep/er/summary.json").exists());
}

#[test]
fn sweeps_name_their_points() {
    let sweep = "[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [0.1, 0.2]\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\nlabels = [\"few\", \"more\"]\n";
    let folder = Folder::with(&format!("{SMALL}\n{sweep}"));
    folder.run(&["run", "small.toml", "--rounds", "3"]).exits(0);
    let points = ["step_size=0.1, agents=few", "step_size=0.1, agents=more", "step_size=0.2, agents=few", "step_size=0.2, agents=more"];
    let mut seen = names(&table(&folder, "out/small"), "point");
    seen.dedup();
    assert_eq!(seen, points.map(|p| [p, p]).concat().chunks(2).map(|p| p[0]).collect::<Vec<_>>());
    let summary = folder.json("out/small/summary.json");
    assert_eq!(summary["results"].as_array().unwrap().len(), 8);
    assert_eq!(summary["results"][3]["coordinates"], serde_json::json!({ "step_size": 0.1, "agents": "more" }));
    assert_eq!(summary["problem"].as_array().unwrap().len(), 2);
    let theta = npz::read(&folder.path("out/small/theta.npz")).unwrap();
    assert!(theta.find("SCAFFLSA [step_size=0.2, agents=few]").is_some() && theta.find("theta_star [problem 1]").is_some());
}

#[test]
fn starts_come_from_files() {
    let folder = Folder::new();
    folder.write("p.npz", npz_bytes(&mrp()));
    let text = crate::common::with_problem("kind = \"file\"\npath = \"p.npz\"");
    folder.write("first.toml", &text);
    folder.run(&["run", "first.toml", "--out", "first", "--seeds", "1"]).exits(0);
    // A run continues from the end of another one.
    let theta = npz::read(&folder.path("first/theta.npz")).unwrap().get("FedLSA").unwrap().data().to_vec();
    folder.write("theta.json", format!("{{\"theta\": {theta:?}}}"));
    for (name, start) in [("json", "\"theta.json\"".to_string()), ("list", format!("{theta:?}"))] {
        folder.write(&format!("{name}.toml"), edited(&text, "seeds = 2", &format!("start = {start}")));
        folder.run(&["run", &format!("{name}.toml"), "--out", name]).exits(0);
    }
    assert!(folder.read("json/trace.parquet") == folder.read("list/trace.parquet"));
}

#[test]
fn delays_come_from_files() {
    // Rounds of delays of each agent, in the file and written out: the same bits, here and from
    // where the resolved file is run again.
    let rows: Vec<[usize; 4]> = (0..20).map(|t| [t % 3, 0, (t / 2) % 5, 1]).collect();
    let lines: Vec<String> = rows.iter().map(|[a, b, c, d]| format!("{a}, {b},{c} {d}")).collect();
    for kind in ["delay", "late"] {
        let with = |trace: &str| {
            let link = format!("label = \"FedLSA\"\nuplink = {{ media = [{{ kind = \"{kind}\", law = \"trace\", {trace} }}] }}");
            edited(&small("label = \"FedLSA\"", &link), "[run]", "[run]\nrecord = { every = 1 }")
        };
        let folder = Folder::with(&with("path = \"traces/ours.txt\""));
        folder.write("traces/ours.txt", format!("# of a Monday\n{}\n", lines.join("\n")));
        folder.write("inline.toml", with(&format!("delays = {rows:?}")));
        folder.run(&["run", "small.toml", "--out", "a", "-q"]).exits(0);
        folder.run(&["run", "inline.toml", "--out", "b", "-q"]).exits(0);
        folder.run(&["run", "a/config.toml", "--out", "c", "-q"]).exits(0);
        let absolute = folder.path("traces/ours.txt");
        assert!(folder.text("a/config.toml").contains(absolute.to_str().unwrap()), "{}", folder.text("a/config.toml"));
        folder.run(&["run", "small.toml", "--out", "exact", "-q", "--set", "method.FedLSA.uplink={}"]).exits(0);
        let thetas = |out: &str| folder.read(&format!("{out}/theta.npz"));
        assert!(thetas("a") == thetas("b") && thetas("a") == thetas("c"), "{kind}");
        assert!(thetas("a") != thetas("exact"), "{kind}");
    }
}

/// Control characters are escaped as in JSON, so that any reader accepts them.
#[test]
fn names_with_control_characters_are_valid_json() {
    let folder = Folder::with(SMALL);
    let name = "out\u{202e}gpj";
    folder.run(&["run", "small.toml", "-q", "--out", name]).exits(0);
    let list = folder.run(&["list", "--json", "."]).exits(0).stdout;
    assert!(!list.contains('\u{202e}'), "{list}");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list[0]["folder"].as_str().unwrap().ends_with(name), "{list}");
}

/// Coordinates may have names of columns, and names like those that these get then.
#[test]
fn coordinates_may_be_called_as_columns_are() {
    let sweep = |name: &str, key: &str| format!("[[sweep]]\nname = \"{name}\"\nkey = \"{key}\"\nvalues = [0.1, 0.2]\n");
    let sweeps = sweep("seed", "method.FedLSA.step_size") + &sweep("coordinate_seed", "method.SCAFFLSA.step_size");
    let folder = Folder::with(&format!("{SMALL}\n{sweeps}"));
    folder.run(&["run", "small.toml", "-q"]).exits(0);
    folder.run(&["plot", "out/small"]).exits(0);
}

/// A residual that overflows at the start is not used as a reference.
#[test]
fn overflow_is_not_convergence() {
    let folder = Folder::new();
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,1e160,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n");
    let output = folder.run(&["evaluate", "a.csv", "--features", "polynomial:1", "--gamma", "0.9", "--max-rounds", "30"]);
    assert!(output.status == 1 || output.status == 2, "{}", output.stdout);
    assert!(!output.stdout.contains("converged: reached"), "{}", output.stdout);
    let message = folder.run(&["evaluate", "a.csv", "--tol", "inf", "--overwrite"]).exits(2).message();
    assert!(message.contains("--tol: inf") && message.contains("finite"), "{message}");
}

#[test]
fn quick_settings_are_each_set_once() {
    for quick in ["\"run.rounds\" = 3\nrun.rounds = 4", "\"method.FedLSA.step_size\" = 0.1\n\"method.*.step_size\" = 0.2"] {
        let message = Folder::with(&format!("{SMALL}\n[quick]\n{quick}\n")).run(&["check", "small.toml"]).exits(2).message();
        assert!(message.contains("set the same key"), "{message}");
    }
    let message = Folder::with(SMALL).run(&["check", "small.toml", "--set", "quick.run.rounds=3"]).exits(2).message();
    assert!(message.contains("is a quick setting"), "{message}");
}

const ACCELERATED: &str = r#"id = "accelerated"
[problem]
kind = "garnet"
agents = 4
states = 18
features = 6
gamma = 0.9
[sampling]
kind = "mean"
[[method]]
kind = "fedhsa"
label = "plain"
step_size = 1.0
local_steps = 5
[[method]]
kind = "anderson"
label = "accelerated"
base = { kind = "fedhsa", step_size = 1.0, local_steps = 5 }
memory = 6
[run]
rounds = 20000
record = { every = 1 }
stop = { relative_residual = 1e-8 }
[[check]]
kind = "cost"
name = "tens of times fewer rounds"
method = "accelerated"
over = "plain"
metric = "residual"
cost = "round"
level = 1e-6
min = 10
[[check]]
kind = "cost"
name = "it needs few rounds"
method = "accelerated"
metric = "residual"
cost = "round"
level = 1e-6
min = 2
max = 12
[figure]
kind = "cost"
y = "residual"
level = 1e-8
relative = true
"#;

/// A method in a method: its keys are read, checked at their lines, and swept like others.
#[test]
fn a_file_may_accelerate_a_method() {
    let folder = Folder::with(ACCELERATED);
    let checked = folder.run(&["check", "small.toml"]).exits(0).stdout;
    assert!(checked.contains("accelerated: anderson, base = { kind = \"fedhsa\""), "{checked}");
    let output = folder.run(&["run", "small.toml", "--out", "a"]).exits(0).stdout;
    for said in ["accelerated: converged: reached its target after ", "ok: tens of times fewer rounds: ", "ok: it needs few rounds: "] {
        assert!(output.contains(said), "`{said}` is not in {output}");
    }
    // The costs of the figure are those of the target; its text is in the picture.
    let summary = folder.json("a/summary.json");
    for result in summary["results"].as_array().unwrap() {
        let cost = &result["costs"][0];
        assert_eq!((&cost["relative"], &cost["level"]), (&true.into(), &1e-8.into()));
        assert_eq!(cost["round"].as_f64(), result["rounds"].as_f64());
    }
    assert!(folder.text("a/figure.svg").contains("1e-8 of its value at round 0"));
    // The resolved file, other threads, and a resumed run give the same bits.
    folder.run(&["run", "a/config.toml", "--out", "b", "-q"]).exits(0);
    folder.run(&["run", "small.toml", "--out", "c", "-q", "--threads", "3"]).exits(0);
    folder.run(&["run", "small.toml", "--out", "d", "-q", "--rounds", "5", "--force"]).exits(1);
    let before = folder.json("d/summary.json")["results"][1]["seconds"].as_f64().unwrap();
    folder.run(&["run", "small.toml", "--out", "d", "-q", "--resume"]).exits(0);
    for out in ["b", "c", "d"] {
        assert!(folder.read(&format!("{out}/trace.parquet")) == folder.read("a/trace.parquet"), "{out}");
        assert!(folder.read(&format!("{out}/figure.svg")).len() > 1000, "{out}");
    }
    // The time of the rounds before is kept.
    assert!(folder.json("d/summary.json")["results"][1]["seconds"].as_f64().unwrap() > before);
}

#[test]
fn mistakes_in_a_method_in_a_method_are_shown_there() {
    let folder = Folder::new();
    for (from, to, said) in [
        ("kind = \"fedhsa\", step_size = 1.0, local_steps = 5 }\nmemory", "kind = \"lstd\" }\nmemory", "solves the mean system itself"),
        ("step_size = 1.0, local_steps = 5 }\nmemory", "step_size = 1.0 }\nmemory", "local_steps"),
        ("step_size = 1.0, local_steps = 5 }\nmemory", "step_sise = 1.0, local_steps = 5 }\nmemory", "step_sise"),
        ("base = { kind = \"fedhsa\", step_size = 1.0, local_steps = 5 }\n", "", "base"),
        ("step_size = 1.0, local_steps = 5 }\nmemory", "step_size = -1.0, local_steps = 5 }\nmemory", "step_size"),
    ] {
        folder.write("bad.toml", edited(ACCELERATED, from, to));
        let message = folder.run(&["check", "bad.toml"]).exits(2).message();
        assert!(message.contains(said) && message.contains("bad.toml"), "{message}");
    }
}

#[test]
fn a_predicted_line_that_is_not_known_is_noted() {
    let text = format!("{SMALL}\n[figure]\nexact = [\"SCAFFLSA\"]\nlevels = {{ SCAFFLSA = [\"floor\"], FedLSA = [\"floor\"] }}\n");
    let folder = Folder::with(&text);
    let lossy = "method.SCAFFLSA.uplink={ media = [{ kind = \"erasure\", success = 0.5 }] }";
    let output = folder.run(&["run", "small.toml", "--set", lossy]).exits(0);
    for line in ["note: the figure has no predicted curve of SCAFFLSA: ", "note: the figure has no predicted floor of SCAFFLSA: "] {
        assert!(output.stdout.contains(line), "{}", output.stdout);
    }
    assert!(!output.stdout.contains("of FedLSA: not"), "{}", output.stdout);
    let notes = folder.json("out/small/summary.json")["notes"].to_string();
    assert!(notes.contains("prediction.missing"), "{notes}");
}

#[test]
fn a_curve_that_has_hardly_begun_to_fall_has_no_floor() {
    let folder = Folder::with(SMALL);
    let slow = ["--set", "method.FedLSA.step_size=0.001", "--set", "method.FedLSA.local_steps=1"];
    let output = folder.run(&[&["run", "small.toml", "--rounds", "200"][..], &slow].concat()).exits(0);
    assert!(output.stdout.contains(" at the end, no floor yet: it falls by 0."), "{}", output.stdout);
    assert!(!output.stdout.contains("FedLSA: floor"), "{}", output.stdout);
}
