//! `[[check]]`: the report and the files, refusals, and the output of `check`.

use crate::common::{Folder, Output, SMALL, edited, small};
use serde_json::Value;

/// [`SMALL`] with a check appended.
fn with(check: &str) -> Folder {
    Folder::with(&format!("{SMALL}\n[[check]]\n{check}\n"))
}

/// `check` and `run` both refuse a check at a line, with texts; nothing is written.
#[track_caller]
fn refused_text(text: &str, line: &str, expected: &[&str]) {
    let folder = Folder::with(text);
    let number = 1 + text.lines().position(|l| l == line).unwrap_or_else(|| panic!("no line `{line}`"));
    for command in ["check", "run"] {
        let output = folder.run(&[command, "small.toml"]).exits(2);
        let message = output.message();
        for part in expected {
            assert!(message.contains(part), "{command}: `{part}` is not in\n{message}");
        }
        assert!(message.contains(&format!("[small.toml:{number}:")), "{command}: not at line {number} (`{line}`):\n{}", output.stderr);
    }
    assert!(!folder.path("out").exists());
}

/// The same for a check at the end of [`SMALL`], at its last line.
#[track_caller]
fn refused(check: &str, expected: &[&str]) {
    refused_text(&format!("{SMALL}\n[[check]]\n{check}\n"), check.lines().last().unwrap(), expected);
}

/// The line of a run's report that has a text.
#[track_caller]
fn line<'o>(output: &'o Output, text: &str) -> &'o str {
    output.stdout.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("`{text}` is not in\n{}", output.stdout)).trim()
}

#[test]
fn a_line_has_the_value_the_expectation_and_the_tolerance() {
    let folder = with("kind = \"floor\"\nname = \"a floor\"\nmethod = \"FedLSA\"\nexpected = 1e-3\ntolerance = 0.1");
    let output = folder.run(&["run", "small.toml"]);
    let line = line(&output, "a floor: ");
    let (value, rest) = line.split_once("a floor: ").unwrap().1.split_once(", expected 0.001 +- ").unwrap();
    assert!(value.parse::<f64>().is_ok() && value.len() <= 7, "{line}");
    assert!(rest.contains("(tolerance 10% and 3 SE of "), "{line}");
    let check = &folder.json("out/small/summary.json")["checks"][0];
    let number = |key: &str| check[key].as_f64().unwrap_or_else(|| panic!("{key} of {check}"));
    assert!((number("tolerance") - (0.1 * 1e-3 + 3.0 * number("standard_error"))).abs() < 1e-15);
    let holds = (number("measured") - number("expected")).abs() <= number("tolerance");
    assert_eq!(check["pass"], holds);
    // Floors in the line are equally short; this one is none yet.
    let falls =
        |line: &&str| line.starts_with("FedLSA: 289 at the end, no floor yet: it falls by 12.6% over the last fifth of the rounds;");
    assert!(output.stdout.lines().map(str::trim).any(|line| falls(&line)), "{}", output.stdout);
}

#[test]
fn what_holds_for_almost_anything_says_so() {
    let folder = with("kind = \"floor\"\nname = \"weak\"\nmethod = \"FedLSA\"\nexpected = \"floor\"\ntolerance = 1e6");
    let output = folder.run(&["run", "small.toml"]).exits(0);
    assert!(line(&output, "weak").contains("this would hold for almost anything)"), "{}", output.stdout);
    assert_eq!(folder.json("out/small/summary.json")["checks"][0]["weak"], true);
    let folder = with("kind = \"ratio\"\nname = \"range\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"\nmin = 1e-9\nmax = 1e9");
    let output = folder.run(&["run", "small.toml"]).exits(0);
    assert!(line(&output, "range").ends_with(", expected 1e-9 to 1e9"), "{}", output.stdout);
    let check = &folder.json("out/small/summary.json")["checks"][0];
    assert_eq!((&check["min"], &check["max"], &check["expected"]), (&1e-9.into(), &1e9.into(), &Value::Null));
    assert_eq!((&check["tolerance"], &check["weak"]), (&0.0.into(), &false.into()));
}

#[test]
fn several_points_show_the_one_nearest_to_failing() {
    let sweep = "[[sweep]]\nkey = \"run.rounds\"\nname = \"T\"\nvalues = [5, 10, 20]\n";
    let check = "[[check]]\nkind = \"reaches\"\nname = \"all\"\nmethod = \"FedLSA\"\nmax = 1e6\n";
    let folder = Folder::with(&format!("{SMALL}\n{sweep}{check}"));
    let output = folder.run(&["run", "small.toml"]).exits(0);
    assert!(line(&output, "all: ").contains("; holds at all 3 points, nearest to failing at T="), "{}", output.stdout);
    let check = &folder.json("out/small/summary.json")["checks"][0];
    assert_eq!((&check["points"], &check["failing"]), (&3.into(), &0.into()));
    assert!(check["point"].as_str().unwrap().starts_with("T="));
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    let floor = "kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1";
    refused(&format!("{floor}\ntolerance = -0.1"), &["check[0].tolerance: -0.1 is not accepted", "a finite number of at least 0"]);
    refused(&format!("{floor}\nse = -1"), &["check[0].se: -1 is not accepted"]);
    refused(&format!("{floor}\ntolerance = inf"), &["check[0].tolerance: inf is not accepted"]);
    refused(&format!("{floor}\nse = nan"), &["check[0].se: NaN is not accepted"]);
    refused(&format!("{floor}\nbias_over_noise = -5"), &["check[0].bias_over_noise: -5 is not accepted"]);
    refused(&format!("{floor}\nmin_eta_h = nan"), &["check[0].min_eta_h: NaN is not accepted"]);
    refused(&format!("{floor}\nmin_eta_h = 3\nmax_eta_h = 2"), &["check[0].max_eta_h: 2 is not accepted", "at least min_eta_h = 3"]);
    refused("kind = \"reaches\"\nmethod = \"FedLSA\"\nmax = -1", &["check[0].max: -1 is not accepted", "at least 0"]);
    refused("kind = \"peak\"\nmethod = \"FedLSA\"\nmin = -inf", &["check[0].min: -inf is not accepted"]);
    refused("kind = \"final\"\nmethod = \"FedLSA\"\nexpected = -1", &["check[0].expected: -1 is not accepted"]);
    refused("kind = \"curve\"\nmethod = \"FedLSA\"\nname = \" \"", &["check[0].name: an empty text is not accepted"]);
}

#[test]
fn keys_that_would_be_ignored_are_refused() {
    let ratio = "kind = \"ratio\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"";
    refused(&format!("{ratio}\nmin = 1\ntolerance = 0.1"), &["check[0].tolerance: a check of kind ratio ignores this beside min"]);
    let last = "kind = \"final\"\nmethod = \"FedLSA\"\nmax = 1";
    for key in ["expected = 1", "tolerance = 0.1", "se = 2", "larger = true"] {
        refused(&format!("{last}\n{key}"), &["a check of kind final ignores this beside max"]);
    }
    refused(
        "kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1\nlarger = true",
        &["check[0].larger: only one of a tolerance and standard errors is given"],
    );
    refused("kind = \"ratio\"\nmethod = \"FedLSA\"\nmin = 1\nover = \"FedLSA\"", &["check[0].over: `FedLSA`, which is the method itself,"]);
    // A value of a list that no point has.
    let swept = format!(
        "{SMALL}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n[[check]]\nkind = \"curve\"\nmethod = \"FedLSA\"\nat = {{ agents = [2, 5] }}\n"
    );
    refused_text(&swept, "at = { agents = [2, 5] }", &["check[0].at.agents[1]: no point is at agents = 5"]);
}

#[test]
fn checks_that_can_never_be_measured_are_refused() {
    refused("kind = \"reaches\"\nmethod = \"FedLSA\"\nmax = 1\nby = 21", &["check[0].by: round 21 is beyond the last, 20"]);
    refused("kind = \"peak\"\nmethod = \"FedLSA\"\nmax = 1\nafter = 21", &["check[0].after: round 21 is beyond the last, 20"]);
    refused("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1\nmetric = \"control_error\"", &["FedLSA has no control variates"]);
    refused("kind = \"predicted\"\nmethod = \"FedLSA\"\nexpected = 1\ntolerance = 1\nmetric = \"flor\"", &["there is no metric `flor`"]);
    // One seed has no standard error.
    let one_seed = |check: &str, line: &str, expected: &[&str]| {
        refused_text(&format!("{}\n[[check]]\n{check}\n", small("seeds = 2", "seeds = 1")), line, expected);
    };
    let seeds = "standard errors need at least two seeds, and there is one";
    one_seed("kind = \"curve\"\nmethod = \"FedLSA\"", "[[check]]", &[seeds]);
    one_seed("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1", "[[check]]", &[seeds]);
    one_seed("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1\ntolerance = 0.1\nse = 3", "se = 3", &["check[0].se: ", seeds]);
    // Cases without a closed form: the wrong sampling, a random start.
    let text = |from: &str, to: &str, check: &str| format!("{}\n[[check]]\n{check}\n", small(from, to));
    let mean = text("kind = \"iid\"", "kind = \"mean\"", "kind = \"curve\"\nmethod = \"FedLSA\"");
    refused_text(&mean, "[[check]]", &["not known in closed form: samples are not i.i.d."]);
    let start = text("rounds = 20", "rounds = 20\nstart = \"normal\"", "kind = \"curve\"\nmethod = \"FedLSA\"");
    refused_text(&start, "[[check]]", &["not known in closed form: the start is random"]);
    let few =
        text("kind = \"scafflsa\"", "kind = \"fedhsa\"\nparticipants = 2", "kind = \"floor\"\nmethod = \"SCAFFLSA\"\nexpected = \"noise\"");
    let why = "check[0].expected: not known in closed form: the mean-square error of methods with memory";
    refused_text(&few, "expected = \"noise\"", &[why]);
    let predicted = "kind = \"predicted\"\nmethod = \"FedLSA\"\nexpected = 1\ntolerance = 1\nmetric = \"floor\"";
    let batches = text("kind = \"iid\"", "kind = \"markov\"\nbatch = 2", predicted);
    refused_text(&batches, "metric = \"floor\"", &["check[0].metric: not known in closed form: ", "in batches"]);
    // Leading order is too far off to be a level.
    let level = "kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = \"floor_leading_order\"";
    let leading = text("kind = \"iid\"", "kind = \"markov\"", level);
    refused_text(&leading, "expected = \"floor_leading_order\"", &["check[0].expected: ", "leading order in the step size only"]);
    let lossy = text(
        "label = \"SCAFFLSA\"",
        "label = \"SCAFFLSA\"\nuplink = { media = [{ kind = \"gilbert-elliott\", to_bad = 0.1, to_good = 0.3 }] }",
        "kind = \"floor\"\nmethod = \"SCAFFLSA\"\nexpected = \"bias2\"",
    );
    refused_text(&lossy, "expected = \"bias2\"", &["not known in closed form: losses come in bursts"]);
    let expected =
        text("label = \"FedLSA\"", "label = \"FedLSA\"\nexpect = \"diverges\"", "kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1");
    refused_text(&expected, "[[check]]", &["FedLSA is expected to diverge, so that it has no floor"]);
    let linear = crate::common::with_problem("kind = \"linear\"\nagents = 4");
    refused_text(
        &format!("{linear}\n[[check]]\nkind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1\nmetric = \"value_error\"\n"),
        "metric = \"value_error\"",
        &["value_error is not known: the problem is not a reward process"],
    );
    let samples = text(
        "kind = \"iid\"",
        "kind = \"mean\"",
        "kind = \"cost\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"\nmin = 1\nlevel = 1\ncost = \"samples\"",
    );
    refused_text(&samples, "cost = \"samples\"", &["check[0].cost: no samples are drawn under the mean operator"]);
}

#[test]
fn coordinates_that_give_no_fit_are_refused() {
    let swept = |values: &str, check: &str| format!("{SMALL}\n[[sweep]]\nkey = \"problem.agents\"\n{values}\n[[check]]\n{check}\n");
    let slope = "kind = \"slope\"\nmethod = \"FedLSA\"\nexpected = -1\ntolerance = 0.1\nalong = \"agents\"";
    refused_text(&swept("values = [2]", slope), "along = \"agents\"", &["check[0].along: agents has one value only"]);
    let labels = "values = [2, 4]\nlabels = [\"few\", \"more\"]";
    refused_text(&swept(labels, slope), "along = \"agents\"", &["check[0].along: agents = text is not accepted", "positive numbers"]);
    let spread = "kind = \"spread\"\nmethod = \"FedLSA\"\ntolerance = 0.1\nalong = \"agents\"";
    refused_text(&swept("values = [2]", spread), "along = \"agents\"", &["agents has one value only"]);
    Folder::with(&swept(labels, spread)).run(&["check", "small.toml"]).exits(0);
    let far = "kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = 1\nmin_eta_h = 100";
    refused_text(&swept("values = [2, 4]", far), "[[check]]", &["no point has an eta H in the range of the check"]);
    // A method that is refused everywhere, and one that is refused where it is compared with.
    let refuses =
        small("label = \"SCAFFLSA\"", "label = \"SCAFFLSA\"\nuplink = { media = [{ kind = \"delay\", law = \"constant\", rounds = 2 }] }");
    let refuses = edited(&refuses, "rounds = 20", "rounds = 20\nrefused = \"skip\"");
    let at = format!("{refuses}\n[[check]]\nkind = \"reaches\"\nmethod = \"SCAFFLSA\"\nmax = 1\n");
    refused_text(&at, "[[check]]", &["SCAFFLSA is refused at every point: "]);
    let over = format!("{refuses}\n[[check]]\nkind = \"ratio\"\nmethod = \"FedLSA\"\nmin = 1\nover = \"SCAFFLSA\"\n");
    refused_text(&over, "over = \"SCAFFLSA\"", &["check[0].over: SCAFFLSA is refused: "]);
}

#[test]
fn what_options_leave_unmeasured_is_a_note() {
    let check = "kind = \"curve\"\nname = \"on its curve\"\nmethod = \"FedLSA\"\nexpected_to_fail = \"because\"";
    let by = "[[check]]\nkind = \"reaches\"\nname = \"in time\"\nmethod = \"FedLSA\"\nmax = 1e9\nby = 20";
    let quick = "[quick]\nrun.seeds = 1\nrun.rounds = 5";
    let text = format!("{SMALL}\n[[check]]\n{check}\n{by}\n{quick}\n");
    let folder = Folder::with(&text);
    let run = |args: &[&str], out: &str, notes: u64| {
        let output = folder.run(&[&["run", "small.toml", "--out", out], args].concat()).exits(0);
        let summary = folder.json(&format!("{out}/summary.json"));
        assert_eq!((&summary["excused"], &summary["exit_status"]), (&notes.into(), &0.into()), "{args:?}: {}", output.stdout);
        // The resolved file gives the same results.
        folder.run(&["run", &format!("{out}/config.toml"), "--out", &format!("{out}-again")]).exits(0);
        assert!(folder.read(&format!("{out}/trace.parquet")) == folder.read(&format!("{out}-again/trace.parquet")));
        assert_eq!(folder.json(&format!("{out}-again/summary.json"))["excused"], notes);
        (output, summary)
    };
    let (output, summary) = run(&["--quick"], "quick", 2);
    assert_eq!(line(&output, "on its curve"), "not measured: on its curve: standard errors need at least two seeds, and there is one");
    assert_eq!(line(&output, "in time"), "not measured: in time: round 20 is beyond the last, 5");
    let check = &summary["checks"][0];
    assert_eq!((&check["pass"], &check["as_expected"], &check["measured"]), (&false.into(), &true.into(), &Value::Null));
    assert!(check["why"].as_str().unwrap().starts_with("standard errors need"));
    run(&["--rounds", "19", "--seeds", "1"], "both", 2);
    run(&["--set", "run.seeds=1"], "set", 1);
    let (output, _) = run(&["--set", "method.FedLSA.step_size={ c = 0.1, t0 = 10 }"], "some", 1);
    assert!(line(&output, "on its curve").ends_with("not known in closed form: the step size varies"), "{}", output.stdout);
    folder.run(&["check", "small.toml", "--quick"]).exits(0).says("not measured: on its curve: standard errors need");
    assert!(!folder.run(&["check", "small.toml"]).exits(0).stdout.contains("not measured"));
    // Options excuse neither a check that the file leaves unmeasured, nor one that an option changes.
    let never = Folder::with(&edited(&text, "by = 20", "by = 21"));
    assert!(never.run(&["run", "small.toml", "--seeds", "1"]).exits(2).message().contains("check[1].by: round 21 is beyond the last"));
    let output = folder.run(&["run", "small.toml", "--set", "check.reaches.by=30"]).exits(2);
    assert!(output.message().contains("round 30 is beyond the last, 20 (set by --set check.reaches.by=30)"), "{}", output.stderr);
    // Points that a sweep no longer has.
    let swept = format!(
        "{SMALL}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n[[check]]\nkind = \"reaches\"\nname = \"many\"\nmethod = \"FedLSA\"\nmax = 1e9\nat = {{ agents = [4] }}\n"
    );
    let output = Folder::with(&swept).run(&["run", "small.toml", "--set", "sweep.0.values=[2]"]).exits(0);
    assert_eq!(line(&output, "many"), "not measured: many: no point is at agents = [4]");
}

#[test]
fn steps_that_move_too_slowly_are_neither_stable_nor_unstable() {
    for (kind, steps) in [
        ("fedlsa", "local_steps = 10"),
        ("scafflsa", "local_steps = 10"),
        ("scafflsa-random", "talk_probability = 0.1"),
        ("fedhsa", "local_steps = 10"),
    ] {
        for sampling in ["mean", "iid"] {
            let text = small("kind = \"fedlsa\"", &format!("kind = \"{kind}\"")).replacen("local_steps = 10", steps, 1);
            let text = edited(&text, "kind = \"iid\"", &format!("kind = \"{sampling}\""));
            let folder = Folder::with(&edited(&text, "step_size = 0.1", "step_size = 1e-17"));
            let output = folder.run(&["check", "small.toml"]).exits(0);
            assert!(!output.stdout.contains("UNSTABLE") && output.stdout.contains("it moves too slowly to tell"), "{}", output.stdout);
            folder.run(&["run", "small.toml"]).exits(0);
            let theory: Value = serde_json::from_str(&folder.run(&["theory", "small.toml", "--json"]).exits(0).stdout).unwrap();
            let method = &theory["methods"][0];
            let why = method["unknown"]["stable"]["text"].as_str().unwrap();
            assert!(method["stable"].is_null() && why.starts_with("it moves too slowly to tell"), "{method}");
            assert!(method["largest_stable_step"].as_f64().unwrap() > 0.1, "{method}");
        }
    }
}

/// What `check --json` says of the first method.
fn as_json(folder: &Folder, args: &[&str]) -> Value {
    serde_json::from_str(&folder.run(&[&["check", "small.toml", "--json"], args].concat()).stdout).unwrap()
}

#[test]
fn check_run_and_theory_agree_on_steps_over_many_orders() {
    let folder = Folder::with(&edited(SMALL, "rounds = 20", "rounds = 1"));
    // The named stability edge does not depend on the step in the file.
    let mut edges: Vec<f64> = Vec::new();
    for order in (-20..=8).step_by(2) {
        let step = 10f64.powi(order);
        let set = format!("method.FedLSA.step_size={step:e}");
        let json = as_json(&folder, &["--set", &set]);
        let method = &json["points"][0]["methods"][0];
        let edge = method["largest_stable_step"].as_f64().unwrap();
        edges.push(edge);
        let run = folder.run(&["run", "small.toml", "--quiet", "--overwrite", "--set", &set]);
        match method["stable"].as_bool() {
            Some(false) => {
                assert!(step > edge && json["accepted"] == false && json["refusal"].as_str().unwrap().contains("unstable"), "{json}");
                let message = run.exits(2).message();
                let named: f64 = message.split("step_size = ").nth(1).unwrap().split(';').next().unwrap().trim().parse().unwrap();
                assert!(named < step && named <= edge && named > 0.99 * edge, "{named} {edge}: {message}");
                let named = as_json(&folder, &["--set", &format!("method.FedLSA.step_size={named}")]);
                assert_eq!((&named["accepted"], &named["points"][0]["methods"][0]["stable"]), (&true.into(), &true.into()));
            }
            stable => {
                run.exits(0);
                assert!(step <= edge && json["accepted"] == true, "{json}");
                assert!(stable == Some(true) || method["reason"].as_str().unwrap().contains("too slowly"), "{method}");
            }
        }
    }
    assert!(edges.iter().all(|edge| (edge / edges[0] - 1.0).abs() < 0.03), "{edges:?}");
}

#[test]
fn check_as_json_says_what_would_run() {
    let sweep = "[[sweep]]\nkey = \"method.FedLSA.step_size\"\nvalues = [0.1, 1000.0]\n";
    let check = "[[check]]\nkind = \"curve\"\nname = \"follows\"\nmethod = \"FedLSA\"\nat = { step_size = 0.1 }\n[quick]\nrun.seeds = 1\n";
    let folder = Folder::with(&format!("{SMALL}\n{sweep}{check}"));
    let json = as_json(&folder, &[]);
    assert_eq!((&json["format"], &json["id"], &json["quick"], &json["runs"]), (&1.into(), &"small".into(), &false.into(), &6.into()));
    assert_eq!((&json["accepted"], &json["refusal"]), (&true.into(), &Value::Null));
    let problem = &json["problems"][0];
    assert_eq!((&problem["agents"], &problem["dim"], &problem["settings"]["kind"]), (&4.into(), &3.into(), &"garnet".into()));
    assert_eq!((&problem["sampling"]["kind"], &problem["kinds_of_agents"]), (&"iid".into(), &4.into()));
    assert!(json["seconds"].as_f64().unwrap() > 0.0 && json["threads"].as_u64().unwrap() > 0);
    let point = &json["points"][1];
    assert_eq!((&point["coordinates"]["step_size"], &point["problem"], &point["run"]["rounds"]), (&1000.0.into(), &0.into(), &20.into()));
    let [fedlsa, scafflsa] = &point["methods"].as_array().unwrap()[..] else { panic!("{point}") };
    assert_eq!((&fedlsa["method"], &fedlsa["kind"], &fedlsa["settings"]["local_steps"]), (&"FedLSA".into(), &"fedlsa".into(), &10.into()));
    assert_eq!((&fedlsa["stable"], &fedlsa["reason"], &scafflsa["stable"]), (&false.into(), &"the mean diverges".into(), &true.into()));
    assert!(fedlsa["radius"].as_f64().unwrap() > 1.0 && fedlsa["largest_stable_step"].as_f64().unwrap() < 1000.0);
    assert!(scafflsa["mean_square_radius"].as_f64().unwrap() < 1.0 && scafflsa["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!((&scafflsa["runs"], &scafflsa["refused"]), (&2.into(), &Value::Null));
    assert_eq!((&json["checks"][0]["name"], &json["checks"][0]["measurable"]), (&"follows".into(), &true.into()));
    let quick = as_json(&folder, &["--quick"]);
    assert_eq!((&quick["quick"], &quick["runs"]), (&true.into(), &3.into()));
    assert_eq!(quick["checks"][0]["measurable"], false);
    assert!(quick["checks"][0]["why"].as_str().unwrap().starts_with("standard errors need"));
    // Unknown values have a reason.
    let json = as_json(&folder, &["--set", "method.SCAFFLSA.control_step=0.5"]);
    let scafflsa = &json["points"][0]["methods"][1];
    assert_eq!((&scafflsa["stable"], &scafflsa["radius"]), (&Value::Null, &Value::Null));
    assert!(scafflsa["reason"].as_str().unwrap().contains("a round is not a linear map"));
    // With partial participation the mean is known.
    let json = as_json(&folder, &["--set", "method.SCAFFLSA.participants=2"]);
    let scafflsa = &json["points"][0]["methods"][1];
    assert_eq!((&scafflsa["stable"], &scafflsa["mean_square_radius"]), (&true.into(), &Value::Null));
    assert_eq!(scafflsa["reason"], "in the mean; the mean square is not known");
}

/// Runs of which all curves coincide, and of which none do.
#[test]
fn curves_that_coincide_are_told_from_those_that_do_not() {
    let coincide = "[[check]]\nkind = \"coincide\"\nmethod = \"FedLSA\"\n";
    // A label is no setting: both methods draw the same samples.
    let twin = "[[method]]\nkind = \"fedlsa\"\nlabel = \"twin\"\nstep_size = 0.1\nlocal_steps = 10\n";
    let over = |label: &str| format!("{SMALL}\n{twin}\n{coincide}name = \"same\"\nover = \"{label}\"\ntolerance = 1e-12\n");
    let folder = Folder::with(&over("twin"));
    let output = folder.run(&["run", "small.toml"]).exits(0);
    assert!(line(&output, "same: ").starts_with("ok: same: 0, expected at most 1e-12"), "{}", output.stdout);
    let folder = Folder::with(&over("SCAFFLSA"));
    assert!(line(&folder.run(&["run", "small.toml"]).exits(1), "same: ").starts_with("FAILED: same: "));

    let along = |tolerance: &str| {
        let sweep = "[[sweep]]\nkey = \"method.*.step_size\"\nname = \"eta\"\nvalues = [0.1, 0.10000001, 0.2]\n";
        format!("{SMALL}\n{sweep}{coincide}name = \"same\"\nalong = \"eta\"\ntolerance = {tolerance}\nat = {{ eta = [0.1, 0.10000001] }}\n")
    };
    Folder::with(&along("1e-4")).run(&["run", "small.toml"]).exits(0);
    Folder::with(&along("1e-12")).run(&["run", "small.toml"]).exits(1);

    let alone = format!("{SMALL}\n{coincide}tolerance = 0.1\n");
    refused_text(&alone, "[[check]]", &["a check of kind coincide needs one of along, over"]);
    let both = format!("{}over = \"SCAFFLSA\"\n", along("0.1"));
    refused_text(&both, "over = \"SCAFFLSA\"", &["along a coordinate or with another method, not both"]);
}

/// The mean of this method converges up to 18.8, and its mean square diverges at 8 already.
#[test]
fn a_step_that_is_advised_is_accepted() {
    let edits = [("agents = 4", "agents = 7"), ("features = 3", "features = 4\nseed = 3"), ("kind = \"fedlsa\"", "kind = \"scafflsa\"")];
    let text = edits.iter().fold(SMALL.to_string(), |text, (old, new)| edited(&text, old, new));
    let text = text.replacen("step_size = 0.1", "step_size = 8.0", 1).replacen("local_steps = 10", "local_steps = 3", 1);
    let folder = Folder::with(&text);
    let refused = folder.run(&["check", "small.toml"]).exits(2).message();
    let step = refused.split("stable up to step_size = ").nth(1).unwrap().split([';', ',', ' ']).next().unwrap();
    let set = format!("method.FedLSA.step_size={step}");
    folder.run(&["check", "small.toml", "--set", &set]).exits(0).says("ok\n");
    let method = &as_json(&folder, &["--set", &set])["points"][0]["methods"][0];
    assert!(method["mean_square_radius"].as_f64().unwrap() < 1.0, "{method}");
    assert_eq!(method["largest_stable_step_limit"], "mean-square");
}
