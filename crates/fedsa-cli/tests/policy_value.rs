//! How good a policy is: `policy_value` of `fedsa evaluate`, its report, and differences of policies.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use fedsa::random::Purpose;
use fedsa_experiment::evaluate::{EvaluateSettings, Evaluation};
use serde_json::Value;

use crate::common::Folder;

/// A log of a walk on a line in numbered episodes, some of which are cut short; with ratios from 0.6 to 1.4 if it is off-policy.
fn log(seed: u64, episodes: usize, shift: f64, is_off_policy: bool) -> String {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut log = format!("episode,s_0,next_0,reward,done{}\n", if is_off_policy { ",ratio" } else { "" });
    for episode in 0..episodes {
        let (mut x, length) = (uniform(), 2 + (9.0 * uniform()) as usize);
        let is_cut = episode % 5 == 4;
        for step in 0..length {
            let y = 0.7 * x + 0.3 * uniform();
            let done = u8::from(step + 1 == length && !is_cut);
            write!(log, "{episode},{x},{y},{},{done}", x + shift + 0.2 * uniform()).unwrap();
            log += &if is_off_policy { format!(",{}\n", 0.6 + 0.8 * uniform()) } else { "\n".into() };
            x = y;
        }
    }
    log
}

fn with_logs(is_off_policy: bool) -> Folder {
    let folder = Folder::new();
    folder.write("logs/a.csv", log(1, 26, 0.0, is_off_policy));
    folder.write("logs/b.csv", log(2, 31, 0.1, is_off_policy));
    folder
}

const OPTIONS: [&str; 7] = ["--features", "identity:bias", "--gamma", "0.9", "--method=lstd", "--ridge", "0"];

fn evaluate(folder: &Folder, logs: &str, more: &[&str]) -> crate::common::Output {
    folder.run(&[&["evaluate", logs], &OPTIONS[..], more].concat())
}

/// Compares `policy_value` of the run in `o` with NumPy, and returns false where there is no Python.
fn is_that_of_numpy(folder: &Folder, lambda: &str, episodes: usize) -> bool {
    let Some(python) = fedsa_testing::python() else { return false };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/numpy/policy_value.py");
    let purpose = (Purpose::Fold as u64).to_string();
    let args = ["o/summary.json", "0.9", lambda, &purpose, "logs/a.csv", "logs/b.csv"];
    let output = Command::new(python).arg(script).args(args).current_dir(folder.path("")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{lambda}\n{out}\n{err}");
    assert!(out.contains(&format!("{episodes} episodes agree")), "{out}");
    true
}

/// The numbers are those of NumPy, with traces and ratios too.
#[test]
fn values_are_those_of_numpy() {
    for (is_off_policy, lambda) in [(false, "0"), (true, "0"), (true, "0.5")] {
        let folder = with_logs(is_off_policy);
        evaluate(&folder, "logs", &["--lambda", lambda, "--out", "o", "-q"]).exits(0);
        if !is_that_of_numpy(&folder, lambda, 57) {
            return;
        }
    }
}

#[test]
fn the_report_has_values_with_intervals() {
    let folder = with_logs(true);
    let ran = evaluate(&folder, "logs", &["--out", "o", "--level", "0.9"]).exits(0);
    for said in [
        "value of the start states by fitted values, with 90% intervals:",
        "value of the start states by importance sampling, with 90% intervals:",
        "  all agents",
        "by leaving out each episode in turn",
        "11 of 57 episodes are cut short",
        "without control variate the value is",
        "with self-normalised weights it is",
    ] {
        assert!(ran.stdout.contains(said), "`{said}` is not in\n{}", ran.stdout);
    }
    let value = &folder.json("o/summary.json")["policy_value"];
    assert_eq!(value["level"], 0.9);
    for name in ["fitted", "importance"] {
        let normalised = if name == "importance" { &value[name]["self_normalised"] } else { &value[name] };
        for one in [&value[name]["all"], &value[name]["agents"]["a"], &normalised["all"], &normalised["agents"]["b"]] {
            let number = |key: &str| one[key].as_f64().unwrap_or_else(|| panic!("{name}: {key} of {one}"));
            assert!(number("low") < number("estimate") && number("estimate") < number("high") && number("se") > 0.0);
            assert!(number("effective_episodes") <= number("episodes"), "{one}");
        }
    }
    // On-policy data have returns, and every episode counts.
    let folder = with_logs(false);
    evaluate(&folder, "logs", &["--out", "o"]).exits(0).says("by returns, with 95% intervals:");
    let all = &folder.json("o/summary.json")["policy_value"]["importance"]["all"];
    assert_eq!((all["episodes"].as_u64(), all["effective_episodes"].as_f64()), (Some(57), Some(57.0)));
    assert!(folder.json("o/summary.json")["policy_value"]["importance"].get("self_normalised").is_none());
    let estimate = folder.json("o/summary.json")["policy_value"]["fitted"]["all"]["estimate"].as_f64().unwrap();
    folder.run(&["list", "."]).exits(0).says(&format!("fitted value {} +- ", fedsa_experiment::numbers::number(estimate)));
}

/// A state in which episodes are cut short and which no row leaves has any value: a ridge does not make it 0.
#[test]
fn values_that_logs_do_not_determine_have_no_error() {
    let folder = Folder::new();
    let rows = (0..20).flat_map(|episode| (0..10).map(move |s| (episode, s)));
    let line = |(e, s): (usize, usize)| format!("{e},{s},{},{},0,{}\n", s + 1, (e * 5 + s) % 3 % 2, u8::from(s == 9));
    folder.write("a.csv", "episode,s_0,next_0,reward,done,truncated\n".to_string() + &rows.map(line).collect::<String>());
    for ridge in ["", "--ridge=0", "--ridge=0.01"] {
        let options = ["evaluate", "a.csv", "--gamma", "0.95", "--out", "o", "--overwrite", ridge];
        let ran = folder.run(&options[..options.len() - usize::from(ridge.is_empty())]).exits(0);
        assert!(ran.stdout.contains("the logs do not determine the values"), "{ridge}: {}", ran.stdout);
        for by in ["fitted", "importance"] {
            let all = &folder.json("o/summary.json")["policy_value"][by]["all"];
            assert!(all["se"].is_null() && all["low"].is_null() && all["estimate"].is_number(), "{by} {ridge}: {all}");
        }
    }
    folder.run(&["list", "."]).exits(0).says(" without an error; 1 warning");
}

/// The default ridge shrinks values, and their intervals contain what it takes: with rewards of 1 nothing else is uncertain.
#[test]
fn intervals_contain_what_the_default_ridge_takes() {
    let folder = Folder::new();
    let mut log = "episode,s_0,next_0,reward,done,truncated\n".to_string();
    for episode in 0..40 {
        for step in 0..30 {
            let state = |step: usize| (episode * 7 + step * step) % 5;
            writeln!(log, "{episode},{},{},1,0,{}", state(step), state(step + 1), u8::from(step == 29)).unwrap();
        }
    }
    folder.write("a.csv", log);
    let ran = folder.run(&["evaluate", "a.csv", "--gamma", "0.95", "--out", "o"]).exits(0);
    assert!(!ran.stdout.contains("too poor"), "{}", ran.stdout);
    for by in ["fitted", "importance"] {
        let all = &folder.json("o/summary.json")["policy_value"][by]["all"];
        let number = |key: &str| all[key].as_f64().unwrap();
        assert!(number("estimate") < 20.0 && number("low") < 20.0 && 20.0 < number("high") && number("se") < 0.2, "{all}");
    }
}

#[test]
fn few_episodes_and_bad_levels_are_told() {
    let folder = Folder::new();
    folder.write("logs/a.csv", log(1, 7, 0.0, false));
    evaluate(&folder, "logs", &["--out", "o"])
        .exits(0)
        .says("warning: there are too few episodes, 7 and not 20, and the interval is rough");
    folder.write("one/a.csv", log(1, 1, 0.0, false));
    evaluate(&folder, "one", &["--out", "p"]).exits(0).says("1 and not 20, and there is no interval");
    assert_eq!(folder.json("p/summary.json")["policy_value"]["fitted"]["all"]["se"], Value::Null);
    for level in ["0", "1", "-0.5", "nan", "95"] {
        let refused = evaluate(&folder, "logs", &["--out", "q", "--level", level]).exits(2).message();
        assert!(refused.contains("--level") && refused.contains("above 0 and below 1"), "{refused}");
    }
    let refused = evaluate(&folder, "logs", &["--out", "q", "--against", "logs"]).exits(2).message();
    assert!(refused.contains("--against: logs that are evaluated themselves"), "{refused}");
    let refused = evaluate(&folder, "logs", &["--out", "q", "--against", "nowhere.csv"]).exits(2).message();
    assert!(refused.contains("--against") && refused.contains("nowhere.csv"), "{refused}");
    assert!(!folder.path("q").exists());
}

/// The second policy has 0.5 more reward a step: the same difference from `--against` and from `fedsa diff`.
#[test]
fn policies_are_compared() {
    let folder = with_logs(false);
    folder.write("others/c.csv", log(3, 60, 0.5, false));
    let ran = evaluate(&folder, "logs", &["--out", "o", "--against", "others"]).exits(0);
    for said in ["the difference to others, with 95% intervals:", "here - there", "independent of each other"] {
        assert!(ran.stdout.contains(said), "`{said}` is not in\n{}", ran.stdout);
    }
    evaluate(&folder, "others", &["--out", "p"]).exits(0);
    let (here, there) = (folder.json("o/summary.json"), folder.json("p/summary.json"));
    let difference = &here["policy_value"]["against"]["fitted"]["difference"];
    let (a, b) = (&here["policy_value"]["fitted"]["all"], &there["policy_value"]["fitted"]["all"]);
    let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
    assert_eq!(number(difference, "estimate"), number(a, "estimate") - number(b, "estimate"));
    let se = number(a, "se").hypot(number(b, "se"));
    assert!((number(difference, "se") / se - 1.0).abs() < 1e-12);
    assert!(number(difference, "high") < 0.0, "{difference}");
    // Welch's degrees of freedom are between those of the smaller logs and of both.
    let wide = (number(difference, "high") - number(difference, "estimate")) / se;
    assert!((1.98..2.01).contains(&wide), "{wide}");
    folder.run(&["diff", "o", "p"]).exits(0).says("values of the policies, a | b, and a - b").says("95% interval");
    let diff: Value = serde_json::from_str(&folder.run(&["diff", "o", "p", "--json"]).exits(0).stdout).unwrap();
    let of = &diff["policy_value"]["fitted"]["difference"];
    assert!((number(of, "low") - number(difference, "low")).abs() < 1e-12, "{of} {difference}");
    // Runs of experiments have no such values.
    folder.write("small.toml", crate::common::SMALL);
    folder.run(&["run", "small.toml", "--out", "r", "-q"]).exits(0);
    let diff: Value = serde_json::from_str(&folder.run(&["diff", "o", "r", "--json"]).exits(0).stdout).unwrap();
    assert_eq!(diff["policy_value"], Value::Null);
}

/// Logs with actions have a doubly robust value; columns that are not in pairs are refused.
#[test]
fn described_actions_give_a_doubly_robust_value() {
    let with_actions = |seed: u64| {
        let log = log(seed, 25, 0.0, true);
        let mut rows = log.lines().enumerate().map(|(i, line)| match i {
            0 => format!("{line},action,target_0,target_1,target_next_0,target_next_1\n"),
            _ => format!("{line},{},0.4,0.6,0.7,0.3\n", i % 2),
        });
        rows.by_ref().collect::<String>()
    };
    let folder = Folder::new();
    folder.write("logs/a.csv", with_actions(1));
    folder.write("logs/b.csv", with_actions(2));
    evaluate(&folder, "logs", &["--out", "o"])
        .exits(0)
        .says("by a doubly robust estimate, with 95% intervals:")
        .says("right where the ratios are");
    let robust = &folder.json("o/summary.json")["policy_value"]["doubly_robust"];
    assert!(robust["all"]["se"].as_f64().unwrap() > 0.0 && robust["agents"]["b"]["episodes"] == 25, "{robust}");
    is_that_of_numpy(&folder, "0", 50);
    folder.write("logs/b.csv", with_actions(2).replace("target_next_1", "target_next_2"));
    let refused = evaluate(&folder, "logs", &["--out", "p"]).exits(2).message();
    assert!(refused.contains("b.csv") && refused.contains("there is no column `target_next_1`"), "{refused}");
    // Where one agent does not describe its actions there is none.
    folder.write("logs/b.csv", log(2, 25, 0.0, true));
    evaluate(&folder, "logs", &["--out", "q", "-q"]).exits(0);
    assert_eq!(folder.json("q/summary.json")["policy_value"]["doubly_robust"], Value::Null);
}

/// The library has it without a run.
#[test]
fn a_value_needs_no_run() {
    let folder = with_logs(true);
    let settings = EvaluateSettings {
        gamma: 0.9,
        method: "lstd".into(),
        features: Some("identity:bias".into()),
        ridge: Some(0.0),
        ..EvaluateSettings::new([folder.path("logs").display().to_string()])
    };
    let evaluation = Evaluation::new(&settings, &fedsa::cancel::Cancel::never()).unwrap();
    let value = evaluation.policy_value().unwrap().unwrap();
    evaluate(&folder, "logs", &["--out", "o", "-q"]).exits(0);
    let estimate = folder.json("o/summary.json")["policy_value"]["fitted"]["all"]["estimate"].as_f64();
    assert_eq!(Some(value.fitted.table.all.estimate), estimate);
}

/// What clipping costs in bias is the difference to the value with the ratios as they are.
#[test]
fn clipped_ratios_have_the_value_without_clipping_beside_them() {
    let folder = with_logs(true);
    evaluate(&folder, "logs", &["--out", "o"]).exits(0);
    evaluate(&folder, "logs", &["--out", "p", "--max-importance-ratio", "1.1"]).exits(0).says("without clipping it is");
    let [plain, clipped] = ["o", "p"].map(|out| folder.json(&format!("{out}/summary.json"))["policy_value"]["importance"].clone());
    assert_eq!(clipped["unclipped"], plain["all"]);
    assert!(clipped["all"]["estimate"] != plain["all"]["estimate"] && plain.get("unclipped").is_none());
}

/// The log with its last column replaced.
fn with_ratio(log: &str, ratio: impl Fn(usize) -> f64) -> String {
    let mut rows = log.lines();
    let mut text = format!("{}\n", rows.next().unwrap());
    for (i, row) in rows.enumerate() {
        writeln!(text, "{},{}", row.rsplit_once(',').unwrap().0, ratio(i)).unwrap();
    }
    text
}

/// Ratios of 1e7 gave 2.2e137 with an interval.
#[test]
fn importance_ratios_that_cannot_be_right_have_no_value() {
    let folder = with_logs(true);
    folder.write("wrong/a.csv", with_ratio(&log(1, 26, 0.0, true), |_| 1e7));
    folder.write("wrong/b.csv", log(2, 31, 0.1, true));
    let told = "no value of the policy is estimated: the mean importance ratio of a is 1";
    let run = evaluate(&folder, "wrong", &["--out", "o"]).exits(0).says(told).says(") and should be 1, over ");
    assert!(!run.stdout.contains("value of the start states") && !run.stdout.contains("e137"), "{}", run.stdout);
    let summary = folder.json("o/summary.json");
    assert_eq!(summary["policy_value"], Value::Null);
    let notes = summary["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["code"] == "ratios.no-value" && note["severity"] == "warning"), "{notes:?}");
    folder.run(&["report", "o"]).exits(0);
    // One row carries all weight; clipped, it does not.
    folder.write("few/a.csv", with_ratio(&log(1, 26, 0.0, true), |i| if i == 40 { 9e3 } else { 1.0 }));
    evaluate(&folder, "few", &["--out", "p"]).exits(0).says("a few rows carry the weight of all importance ratios");
    assert_eq!(folder.json("p/summary.json")["policy_value"], Value::Null);
    evaluate(&folder, "few", &["--out", "q", "--max-importance-ratio", "5"])
        .exits(0)
        .says("value of the start states by importance sampling");
    let refused = evaluate(&folder, "logs", &["--out", "r", "--against", "wrong"]).message();
    assert!(refused.contains("--against: no value of the policy is estimated: the mean importance ratio of a"), "{refused}");
}

/// Values of the same logs are not independent, however the logs are named.
#[test]
fn logs_are_not_compared_with_themselves() {
    let folder = with_logs(false);
    evaluate(&folder, "logs", &["--out", "o"]).exits(0);
    evaluate(&folder, "logs/a.csv", &["--out", "p"]).exits(0);
    let diff: Value = serde_json::from_str(&folder.run(&["diff", "o", "p", "--json"]).exits(0).stdout).unwrap();
    assert_eq!(diff["policy_value"], Value::Null);
    folder.run(&["diff", "o", "p"]).exits(0).says("values of the policies: of the same logs");
    let refused = evaluate(&folder, "logs", &["--out", "q", "--against", "./logs/../logs/a.csv"]).exits(2).message();
    assert!(refused.contains("--against: logs that are evaluated themselves"), "{refused}");
}

/// The starts of episodes are known where rows are in the order of time.
#[test]
fn rows_out_of_order_have_no_start_states() {
    let text = log(1, 40, 0.0, false);
    let (head, rows) = text.split_once('\n').unwrap();
    let mut rows: Vec<&str> = rows.lines().collect();
    let folder = Folder::new();
    rows.swap(10, 11);
    folder.write("few/a.csv", format!("{head}\n{}\n", rows.join("\n")));
    evaluate(&folder, "few", &["--out", "o"]).exits(0).says("in the midst of an episode begin in another state than the row before led to");
    assert!(folder.json("o/summary.json")["policy_value"]["fitted"]["all"]["estimate"].is_number());
    // Within each episode in the order of states.
    rows.sort_by(|a, b| {
        let key = |row: &str| row.split(',').take(2).map(|x| x.parse::<f64>().unwrap()).collect::<Vec<_>>();
        key(a).partial_cmp(&key(b)).unwrap()
    });
    folder.write("all/a.csv", format!("{head}\n{}\n", rows.join("\n")));
    evaluate(&folder, "all", &["--out", "p"]).exits(0).says("warning: rows are not in the order of time, and episodes are not known");
    assert_eq!(folder.json("p/summary.json")["policy_value"], Value::Null);
}

/// The value is .9 at the start and 1 at -1 and 1, which no line has: TD gives 1 / (2 - .9).
#[test]
fn features_that_are_too_poor_are_told() {
    let folder = Folder::new();
    let mut text = String::from("episode,s_0,next_0,reward,done\n");
    for episode in 0..60 {
        let x = if episode % 2 == 0 { 1.0 } else { -1.0 };
        let noise = 1e-3 * f64::from(episode * 7).sin();
        writeln!(text, "{episode},0,{x},{noise},0\n{episode},{x},0,{},1", 1.0 + noise).unwrap();
    }
    folder.write("logs/a.csv", text);
    evaluate(&folder, "logs", &["--out", "o"]).exits(0).says("standard errors from the value by returns: the features are too poor");
    let fitted = folder.json("o/summary.json")["policy_value"]["fitted"]["all"]["estimate"].as_f64().unwrap();
    assert!((fitted - 1.0 / 1.1).abs() < 1e-3, "{fitted}");
    let one_hot = ["evaluate", "logs", "--gamma", "0.9", "--method=lstd", "--features", "one-hot", "--ridge", "0", "--out", "p"];
    assert!(!folder.run(&one_hot).exits(0).stdout.contains("too poor"));
}
