//! Every command as a user runs it: its output, its files, its exit status.

use fedsa_data::trace::{self, TraceColumn};
use fedsa_data::{npz, trace::Trace};
use fedsa_experiment::bundled::ALL;
use serde_json::Value;

use crate::common::{Folder, SMALL, edited, mrp, npz_bytes, small, with_problem};

fn table(folder: &Folder, out: &str) -> Trace {
    trace::from_bytes(folder.read(&format!("{out}/trace.parquet"))).unwrap()
}

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

fn numbers(table: &Trace, name: &str) -> Vec<Option<f64>> {
    match table.column(name) {
        Some(TraceColumn::OptF64(v)) => v.clone(),
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
fn a_run_leaves_its_files() {
    let folder = Folder::with(SMALL);
    let output = folder.run(&["run", "small.toml"]).exits(0);
    assert!(output.stdout.starts_with("small in ") && output.stdout.contains(": out/small"), "{}", output.stdout);
    assert!(output.stdout.contains("FedLSA: floor ") && output.stdout.contains(" +- "), "{}", output.stdout);
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
    let metrics =
        ["mse", "error", "residual", "value_error", "control_error", "lyapunov", "loss", "gap", "failed_searches", "hessian_error"];
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
    run(&with("\"ok\"", "0.1", ""), &[], 0, "FedLSA: floor");
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
    // Along finite chains numbers say how they are known, beside leading order and mixing times.
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
    // Of these, cross/logs, cross/evaluation and cross/second-order lack their data.
    let args = ["reproduce", "cross", "--quick", "--out", "all", "--seeds", "2"];
    let output = folder.run(&args).exits(0);
    assert!(output.stdout.contains("cross/logs: skipped, its data is missing: "), "{}", output.stdout);
    assert!(folder.path("all/cross/exact-mse/summary.json").exists(), "--out is the parent of several");
    assert!(!folder.path("all/cross/logs").exists());
    assert!(output.stdout.contains("3 skipped because data is missing"), "{}", output.stdout);
    // With --resume, finished experiments do not run again.
    let again = folder.run(&[&args[..], &["--resume"]].concat()).exits(0);
    assert!(again.stdout.contains("cross/exact-mse: already done"), "{}", again.stdout);
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
    for command in ["run", "reproduce", "check", "theory", "export", "evaluate", "predict", "data", "completions"] {
        assert!(help.contains(&format!("  {command} ")), "{command}");
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

#[test]
fn logs_are_exported_as_linear_systems() {
    let folder = Folder::with(&crate::common::with_problem(
        "kind = \"logs\"\npath = \"a.csv\"\ngamma = 0.9\nfeatures = { kind = \"identity\", bias = true }",
    ));
    folder.write("a.csv", LOG);
    folder.run(&["export", "small.toml", "--npz", "p.npz"]).exits(0).says("p.npz: A, b, format, theta_local, theta_star, weights");
}

const LOG: &str = "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n";

#[test]
fn evaluate_gives_weights_from_logs() {
    let folder = Folder::new();
    for i in 0..3 {
        folder.write(&format!("logs/agent_{i}.csv"), LOG.replace("0.7", &format!("0.{}", 4 + i)));
    }
    // Methods of one step a round, and presets, have no number of local steps.
    let single = ["evaluate", "logs", "--features", "polynomial:1", "--gamma", "0.9", "--rounds", "3", "--method"];
    for method in ["fedtd", "qfedtd", "delayed-sa", "dasa"] {
        // Three rounds are too few, so the run misses its target.
        folder.run(&[&single[..], &[method, "--out", method]].concat()).exits(1).says("NOT as expected: the residual is ");
    }
    let refused = folder.run(&[&single[..], &["fedtd", "--out", "n", "--local-steps", "5"]].concat()).exits(2).message();
    assert!(refused.contains("unknown key `local_steps` (set by --local-steps 5)"), "{refused}");
    let args =
        ["evaluate", "logs", "--features", "polynomial:1", "--range", "s_0=-1,1", "--gamma", "0.9", "--local-steps", "5", "--out", "o"];
    let auto = folder.run(&[&args[..10], &["--out", "auto"]].concat()).exits(0);
    auto.says("lstd: 1 round, ")
        .says("the fewest bits to 1e-12")
        .says("  gmres: at most 3 rounds")
        .says("  fedhsa (step size 1, 5 local steps): about ");
    let args = [&args[..], &["--method", "fedhsa"]].concat();
    let output = folder.run(&args).exits(0);
    assert!(output.stdout.contains("2 weights after ") && output.stdout.contains("o/weights.json"), "{}", output.stdout);
    let weights = folder.json("o/weights.json");
    assert_eq!((&weights["format"], &weights["gamma"], &weights["method"]), (&1.into(), &0.9.into(), &"fedhsa".into()));
    assert_eq!(weights["agents"][2], serde_json::json!({ "name": "agent_2", "transitions": 4 }));
    assert_eq!((&weights["columns"], &weights["ranges"]), (&serde_json::json!(["s_0"]), &serde_json::json!({ "s_0": [-1.0, 1.0] })));
    assert_eq!((weights["features"].as_array().unwrap().len(), weights["theta"].as_array().unwrap().len()), (2, 2));
    assert!(weights["distance_to_lstd"].as_f64().unwrap() < 1e-9, "{weights}");
    let arrays = npz::read(&folder.path("o/weights.npz")).unwrap();
    assert_eq!(
        arrays.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["format", "gamma", "lstd", "theta"],
        "no errors of weights from 12 transitions"
    );
    // It stopped at its target, and its config.toml is the experiment.
    assert_eq!(folder.json("o/summary.json")["results"][0]["stopped_at_target"], 1);
    folder.run(&["run", "o/config.toml", "--out", "again", "-q"]).exits(0);
    assert!(folder.read("o/trace.parquet") == folder.read("again/trace.parquet"));
    // Files one by one, in any order; a glob; other methods and settings.
    let same = |logs: &[&str], out: &str| {
        folder
            .run(&[&["evaluate"], logs, &args[2..8], &["--method", "fedhsa", "--local-steps", "5", "--out", out, "-q"]].concat())
            .exits(0);
        assert!(folder.read(&format!("{out}/trace.parquet")) == folder.read("o/trace.parquet"), "{out}");
    };
    same(&["logs/agent_2.csv", "logs/agent_0.csv", "logs/agent_1.csv"], "files");
    same(&["logs/agent_*.csv"], "glob");
    for method in ["fedlsa", "scafflsa", "scafflsa-random"] {
        let options =
            ["evaluate", "logs", "--features", "polynomial:1", "--method", method, "--rounds", "50", "--sampling", "iid", "--out", method];
        folder.run(&options).exits(1).says("2 weights after 50 rounds");
    }
    let output = folder.run(&["evaluate", "logs", "--features", "polynomial:1", "--out", "o", "--rounds", "3"]).exits(2).message();
    assert!(output.contains("o holds a finished run"), "{output}");
}

#[test]
fn evaluate_says_what_it_read_and_how_long_it_takes() {
    let folder = Folder::new();
    for i in 0..2 {
        folder.write(&format!("logs/agent_{i}.csv"), LOG.replace("0.7", &format!("0.{}", 4 + i)));
    }
    let run = |args: &[&str]| folder.run(&[&["evaluate", "logs"], args].concat());
    let common = ["--features", "polynomial:1", "--gamma", "0.9", "--local-steps", "5", "--method", "fedhsa"];
    run(&[&common[..], &["--out", "a"]].concat())
        .exits(0)
        .says("2 agents, 8 transitions, 1 state column\n  s_0 from 0 to 1, from the data\n2 features of polynomial:1\n")
        .says("will need about ")
        .says(" rounds until the residual is 1e-12 of that at zero weights");
    run(&[&common[..], &["--range", "s_0=-1,2", "--rounds", "3", "--out", "b"]].concat())
        .says("  s_0 from -1 to 2, as given\n")
        .says("  --rounds allows 3, less than a second: it will stop before the target");
    assert_eq!(folder.json("a/summary.json")["title"], "Policy evaluation by fedhsa from 2 agents");
    assert_eq!(run(&[&common[..], &["--out", "c", "-q"]].concat()).exits(0).stdout, "");
    // The number of rounds that is predicted is the one that it takes.
    let slow =
        ["--features", "polynomial:1", "--gamma", "0.9", "--local-steps", "1", "--method", "fedhsa", "--rounds", "5000", "--out", "d"];
    let said = run(&[&slow[..], &["--set", "run.record={ every = 1 }"]].concat()).stdout;
    let predicted: f64 = said.split("will need about ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "").parse().unwrap();
    let took = folder.json("d/weights.json")["rounds"].as_f64().unwrap();
    assert!((predicted / took - 1.0).abs() < 0.2, "{predicted} {took}");
    assert_eq!(folder.json("d/weights.json")["outcome"], "converged");
    // So is the number of remaining rounds after a stop, and the files contain the outcome.
    let short = [&slow[..8], &["--rounds", "30", "--out", "short"]].concat();
    let said = run(&short[..]).exits(1).stdout;
    let left: f64 = said.split("it takes at least about ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(((left + 30.0) / took - 1.0).abs() < 0.2, "{left} {took}");
    let weights = folder.json("short/weights.json");
    assert_eq!((weights["outcome"].as_str(), weights["rounds"].as_u64()), (Some("out-of-rounds"), Some(30)));
    assert!(weights["residual"].as_f64() > weights["residual_asked"].as_f64() && weights["bits"].as_u64() > Some(0), "{weights:#}");
    // FedLSA has a limit of its own, and noise has no end.
    run(&[&common[..6], &["--method", "fedlsa", "--rounds", "3", "--out", "e"]].concat())
        .says("fedlsa will not reach the target (the residual is 1e-12");
    run(&[&common[..], &["--sampling", "iid", "--rounds", "3", "--out", "f"]].concat()).says("it ends when the residual is 1e-12");
    // Defaults by the number of columns; rewards that are all 0.
    run(&["--gamma", "0.9", "--rounds", "3", "--local-steps", "1", "--out", "g"])
        .says("4 features of fourier:3, the default for 1 state column");
    for i in 0..2 {
        folder.write(&format!("zero/agent_{i}.csv"), "s_0,next_0,reward,done\n0,1,0,0\n1,0.2,0,0\n0.2,1,0,1\n0.7,0.1,0,0\n");
    }
    let zero = folder.run(&["evaluate", "zero", "--features", "polynomial:1", "--out", "z"]).exits(0);
    zero.says("all rewards are 0, and so are the values").says("2 weights after 0 rounds");
    let help = folder.run(&["evaluate", "--help"]).exits(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("fedhsa, ") && help.contains("delay-adaptive-sa") && help.contains("asyncfedtd"), "{help}");
}

#[test]
fn evaluate_takes_lambda_and_importance_ratios() {
    let folder = Folder::new();
    let rows: String = (0..40)
        .map(|t| {
            let (x, next) = (f64::from(t * 7 % 11) / 10.0, f64::from((t + 1) * 7 % 11) / 10.0);
            format!("{x},{next},{},{},{},{}\n", x * x, u8::from(t % 10 == 9), t / 5, if t == 3 { 50.0 } else { 0.5 })
        })
        .collect();
    folder.write("log.csv", format!("s_0,next_0,reward,done,episode,ratio\n{rows}"));
    let run = |args: &[&str]| {
        folder.run(
            &[
                &[
                    "evaluate",
                    "log.csv",
                    "--features",
                    "polynomial:1",
                    "--step-size",
                    "0.01",
                    "--rounds",
                    "3",
                    "--tol",
                    "0",
                    "--gamma",
                    "0.9",
                ],
                args,
            ]
            .concat(),
        )
    };
    let root = |out: &str| folder.json(&format!("{out}/weights.json"))["lstd"].to_string();
    run(&["--out", "a"])
        .exits(0)
        .says("importance ratios from the column `ratio` of 1 agent; --set problem.ratios=false leaves them out\n")
        .says("  warning: log: the ratios leave an effective sample size of 1.92 of 40 transitions");
    run(&["--out", "b", "--set", "problem.ratios=false"]).exits(0).says("the column `ratio` of 1 agent is not used");
    run(&["--out", "c", "--lambda", "0.8"]).exits(0);
    assert_eq!(folder.json("c/weights.json")["lambda"], 0.8);
    assert!(root("a") != root("b") && root("a") != root("c"));
    let wrong = run(&["--lambda", "1.5", "--out", "d"]).exits(2).message();
    assert!(wrong.contains("lambda") && wrong.contains("1.5") && wrong.contains("in [0, 1]"), "{wrong}");
    let iid = run(&["--lambda", "0.5", "--sampling", "iid", "--out", "d"]).exits(2).message();
    assert!(iid.contains("drawn independently have no traces"), "{iid}");
}

#[test]
fn dependent_features_have_weights_of_least_norm_or_a_ridge() {
    let folder = Folder::new();
    // The second column is twice the first.
    folder.write("log.csv", "s_0,s_1,next_0,next_1,reward,done\n0,0,1,2,2,0\n1,2,0.2,0.4,1,0\n0.2,0.4,1,2,0,1\n0.7,1.4,0.1,0.2,1,0\n");
    let run = |args: &[&str]| folder.run(&[&["evaluate", "log.csv", "--features"], args].concat()).exits(0);
    run(&["polynomial:1", "--out", "a"]).says("  2 of 3 directions of these features are independent on these transitions: ");
    let weights = |out: &str| folder.json(&format!("{out}/weights.json"));
    let least = weights("a");
    let theta: Vec<f64> = least["theta"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    // Scaled to their ranges both columns are the same feature.
    assert!((theta[1] - theta[2]).abs() < 1e-9 && theta[1] != 0.0, "{theta:?}");
    assert_eq!((&least["rank"], &least["outcome"], &least["ridge"]), (&2.into(), &"converged".into(), &0.0.into()));
    run(&["tiles:1x9", "--out", "b"]).says("directions of these features are independent").says("; --ridge EPS makes it unique");
    let output = run(&["polynomial:1", "--ridge", "0.1", "--out", "c"]);
    assert!(!output.stdout.contains("independent"), "{}", output.stdout);
    assert_eq!((&weights("c")["rank"], &weights("c")["ridge"]), (&3.into(), &0.1.into()));
    run(&["identity:bias", "--scaling", "equal-squares", "--out", "d"]);
    let scale: Vec<f64> = weights("d")["scale"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!((scale[1] - 2.0 * scale[2]).abs() < 1e-12 && scale.len() == 3, "{scale:?}");
    let refused = folder.run(&["evaluate", "log.csv", "--set", "uplink={ media = [{ kind = \"erasure\", probability = 0.5 }] }"]).exits(2);
    assert!(refused.message().contains("--method auto with --set uplink"), "{}", refused.stderr);
    // Features that were logged are the default.
    folder.write("phi.csv", "phi_a,phi_b,s_0,phi_next_a,phi_next_b,next_0,reward,done\n1,0,3,0.5,1,4,1,0\n0.5,1,4,0,2,5,1,1\n");
    let output = folder.run(&["evaluate", "phi.csv", "--out", "e"]).exits(0);
    output.says("1 agent, 2 transitions, 2 feature columns\n").says("2 features of columns, the default for logs that have them");
    assert_eq!(weights("e")["columns"], serde_json::json!(["phi_a", "phi_b"]));
    folder.run(&["predict", "e/weights.json", "phi.csv", "--out", "v.csv"]).exits(0);
}

/// The example of the design, on the real logs.
#[test]
fn evaluate_reaches_the_pooled_solution_of_real_logs() {
    let Some(data) = fedsa_testing::data() else { return };
    let folder = Folder::new();
    let args = [
        "--features",
        "fourier:3",
        "--range",
        "s_0=-1.2,0.6",
        "--range",
        "s_1=-0.07,0.07",
        "--gamma",
        "0.99",
        "--method",
        "fedhsa",
        "--sampling",
        "mean",
        "--step-size",
        "1",
        "--local-steps",
        "100",
        "--rounds",
        "20000",
        "--out",
        "o",
    ];
    // The shell expands the pattern; here it is done by hand.
    let logs = std::path::Path::new(&data).join("transitions/mountaincar");
    let logs: Vec<String> = (0..8).map(|i| logs.join(format!("agent_{i}.parquet")).display().to_string()).collect();
    let logs: Vec<&str> = std::iter::once("evaluate").chain(logs.iter().map(String::as_str)).collect();
    folder.run(&[&logs[..], &args].concat()).exits(0).says("16 weights after");
    let weights = folder.json("o/weights.json");
    let number = |key: &str| weights[key].as_f64().unwrap();
    assert!((number("lstd_norm") - 289.02).abs() < 0.005, "{}", number("lstd_norm"));
    assert!(number("distance_to_lstd") < 1e-6 && number("residual") < 1e-10, "{weights:#}");
    assert_eq!(weights["agents"].as_array().unwrap().len(), 8);
    // By the name of the data set, the same.
    let mut command = folder.command(&[&["evaluate", "transitions/mountaincar"], &args[..args.len() - 1], &["named"]].concat());
    command.env("FEDSA_DATA", &data);
    crate::common::finish(command).exits(0);
    assert!(folder.read("named/trace.parquet") == folder.read("o/trace.parquet"));
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
    let output = folder.run(&["evaluate", "a.csv", "--features", "polynomial:1", "--gamma", "0.9", "--rounds", "30"]);
    assert!(output.status == 1 || output.status == 2, "{}", output.stdout);
    assert!(!output.stdout.contains("converged: reached"), "{}", output.stdout);
    let message = folder.run(&["evaluate", "a.csv", "--tol", "inf"]).exits(2).message();
    assert!(message.contains("--tol inf") && message.contains("finite"), "{message}");
}

#[test]
fn a_log_is_one_agent_by_whatever_path() {
    let folder = Folder::new();
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n");
    folder.write("b.csv", "s_0;next_0;reward;done\n0;1;2;0\n");
    let message = folder.run(&["evaluate", "a.csv", "./a.csv"]).exits(2).message();
    assert!(message.contains("this log is given twice"), "{message}");
    let message = folder.run(&["evaluate", "b.csv"]).exits(2).message();
    assert!(message.contains("separated by commas, not by ';'"), "{message}");
    let message = folder.run(&["evaluate", "a.csv", "--range", "s_0=0,1", "--range", "s_0=0,2"]).exits(2).message();
    assert!(message.contains("`s_0` has two ranges"), "{message}");
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

/// A method in a method: its keys are read, checked at their lines, and swept like others.
#[test]
fn a_file_may_accelerate_a_method() {
    let text = r#"id = "accelerated"
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
    let folder = Folder::with(text);
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
    // Mistakes are shown at the base.
    for (from, to, said) in [
        ("kind = \"fedhsa\", step_size = 1.0, local_steps = 5 }\nmemory", "kind = \"lstd\" }\nmemory", "solves the mean system itself"),
        ("step_size = 1.0, local_steps = 5 }\nmemory", "step_size = 1.0 }\nmemory", "local_steps"),
        ("step_size = 1.0, local_steps = 5 }\nmemory", "step_sise = 1.0, local_steps = 5 }\nmemory", "step_sise"),
        ("base = { kind = \"fedhsa\", step_size = 1.0, local_steps = 5 }\n", "", "base"),
        ("step_size = 1.0, local_steps = 5 }\nmemory", "step_size = -1.0, local_steps = 5 }\nmemory", "step_size"),
    ] {
        folder.write("bad.toml", edited(text, from, to));
        let message = folder.run(&["check", "bad.toml"]).exits(2).message();
        assert!(message.contains(said) && message.contains("bad.toml"), "{message}");
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
