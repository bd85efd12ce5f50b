//! Values from weights: `fedsa predict`, the lines of NumPy in the guide, held-out episodes.

use std::path::Path;

use crate::common::{Folder, finish};
use fedsa::cancel::Cancel;
use fedsa::error::ErrorKind;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_experiment::evaluate::{Evaluation, PictureWords};
use fedsa_experiment::run::RunOutcome;
use fedsa_experiment::{EvaluateSettings, IfExists, RunSettings, Unobserved};
use fedsa_problems::Files as _;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::whole;
use serde_json::{Value, json};

/// Two logs of four episodes of two state columns; the last episode of each is cut.
fn logs() -> [String; 2] {
    let mut state = 1u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    [0, 1].map(|agent| {
        let mut log = "episode,s_0,s_speed,note,next_0,next_speed,reward,done\n".to_string();
        for episode in 0..12 {
            let (mut x, mut v) = (uniform(), 2.0 * uniform() - 1.0);
            let length = 4 + (8.0 * uniform()) as usize;
            for step in 0..length {
                let (y, w) = (0.7 * x + 0.3 * uniform(), 0.6 * v + 0.4 * (2.0 * uniform() - 1.0));
                let done = u8::from(step + 1 == length && episode < 11);
                log += &format!("{episode},{x},{v},\"a, {agent}\",{y},{w},{},{done}\n", x - v * v);
                (x, v) = (y, w);
            }
        }
        log
    })
}

fn with_logs() -> Folder {
    let folder = Folder::new();
    let [a, b] = logs();
    folder.write("logs/a.csv", a);
    folder.write("logs/b.csv", b);
    folder
}

/// Runs `evaluate` for a few rounds, whatever it reaches.
fn evaluate(folder: &Folder, features: &str, out: &str) {
    folder
        .run(&[
            "evaluate",
            "logs",
            "--features",
            features,
            "--gamma",
            "0.9",
            "--step-size",
            "0.5",
            "--max-rounds",
            "30",
            "--tol",
            "0",
            "--out",
            out,
            "-q",
        ])
        .exits(0);
}

/// The column of a CSV as numbers.
fn column(csv: &str, name: &str) -> Vec<f64> {
    // Fields before the column may have commas in quotes; columns at the end are counted from there.
    let heads: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let from_end = heads.len() - heads.iter().position(|head| *head == name).unwrap();
    csv.lines().skip(1).map(|line| line.rsplit(',').nth(from_end - 1).unwrap().parse().unwrap()).collect()
}

#[test]
fn predict_adds_a_column_of_values() {
    let folder = with_logs();
    evaluate(&folder, "identity:bias", "o");
    let weights = folder.json("o/weights.json");
    let theta: Vec<f64> = weights["theta"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    let csv = folder.run(&["predict", "o/weights.json", "logs", "--se"]).exits(0).stdout;
    assert!(csv.starts_with("agent,episode,s_0,s_speed,note,next_0,next_speed,reward,done,value,value_se\na,0,"), "{csv}");
    let values = column(&csv, "value");
    let [a, b] = logs();
    let rows: Vec<&str> = a.lines().skip(1).chain(b.lines().skip(1)).collect();
    assert_eq!(values.len(), rows.len());
    for ((row, value), line) in rows.iter().zip(&values).zip(csv.lines().skip(1)) {
        let state: Vec<f64> = row.split(',').skip(1).take(2).map(|x| x.parse().unwrap()).collect();
        assert_eq!(*value, theta[0] + theta[1] * state[0] + theta[2] * state[1], "{row}");
        assert!(line.contains(row), "fields are kept: {line}");
    }
    assert!(column(&csv, "value_se").iter().all(|x| *x > 0.0));
    assert_eq!(weights["theta_se"].as_array().unwrap().len(), 3);
    // Into files; what is there is not replaced unasked.
    folder.run(&["predict", "o/weights.json", "logs", "--se", "--out", "v.csv"]).exits(0).says("v.csv: ");
    assert_eq!(folder.text("v.csv"), csv);
    let refused = folder.run(&["predict", "o/weights.json", "logs", "--out", "v.csv"]).exits(2).message();
    assert!(refused.contains("--out: v.csv exists already") && refused.contains("--overwrite"), "{refused}");
    folder.run(&["predict", "o/weights.json", "logs/a.csv", "--column", "v", "--out", "v.csv", "--overwrite"]).exits(0);
    assert_eq!(column(&folder.text("v.csv"), "v"), values[..a.lines().count() - 1]);
    // Parquet, and what was written read again.
    folder.run(&["predict", "o/weights.json", "logs", "--out", "v.parquet"]).exits(0);
    let again = folder.run(&["predict", "o/weights.json", "v.parquet", "--column", "again"]).exits(0);
    assert!(!again.stderr.contains("left out"), "{}", again.stderr);
    assert_eq!(again.stdout.lines().next(), Some("agent,episode,s_0,s_speed,note,next_0,next_speed,reward,done,value,again"));
    assert!(again.stdout.lines().nth(1).unwrap().starts_with("a,0,") && again.stdout.contains("\"a, 1\""));
    assert_eq!(column(&again.stdout, "again"), values);
    assert_eq!(column(&again.stdout, "value"), values);
    // States alone will do.
    folder.write("states.csv", "s_speed,s_0\n0.5,2\n");
    assert_eq!(folder.run(&["predict", "o/weights.json", "states.csv"]).exits(0).stdout.lines().next(), Some("agent,s_speed,s_0,value"));
}

#[test]
fn what_predict_cannot_use_is_refused() {
    let folder = with_logs();
    evaluate(&folder, "identity", "o");
    let good = folder.json("o/weights.json");
    let refused = |args: &[&str], says: &[&str]| {
        let before = folder.everything();
        let message = folder.run(&[&["predict"], args].concat()).exits(2).message();
        says.iter().for_each(|text| assert!(message.contains(text), "`{text}` is not in: {message}"));
        assert_eq!(folder.everything(), before);
    };
    let with = |name: &str, value: Value| {
        let mut weights = good.clone();
        weights[name] = value;
        folder.write("w.json", weights.to_string());
    };
    with("format", json!(2));
    refused(&["w.json", "logs"], &["w.json: weights of format 2", "fit them again"]);
    with("theta", json!([1.0]));
    refused(&["w.json", "logs"], &["`theta` has 1 weights, but identity on 2 state columns has 2 features"]);
    with("theta", json!([1.0, null]));
    refused(&["w.json", "logs"], &["weight 1 of `theta` is not finite"]);
    with("columns", json!(["s_0", "s_x"]));
    refused(&["w.json", "logs"], &["logs/a.csv: there is no column `s_x`: the columns are `episode`, `s_0`"]);
    refused(&["logs/a.csv", "logs"], &["logs/a.csv: not JSON"]);
    refused(&["none.json", "logs"], &["none.json: cannot be read"]);
    refused(&["o/weights.json", "nowhere"], &["nowhere: there is no such file"]);
    refused(&["o/weights.json", "logs", "--out", "x.txt"], &["--out: x.txt names no format of tables", ".parquet"]);
    refused(&["o/weights.json", "logs", "--out", "logs/a.csv", "--overwrite"], &["logs/a.csv is a file that is read"]);
    refused(&["o/weights.json", "logs", "--column", "note"], &["there is a column `note` already", "--column"]);
    folder.write("bad/x.csv", "s_0,s_speed\n1,2\n1,x\n");
    refused(&["o/weights.json", "bad"], &["bad/x.csv: line 3, column `s_speed`: `x` is not a finite number"]);
    folder.write("other/weights.json", good.to_string());
    refused(&["other/weights.json", "logs", "--se"], &["other/weights.npz: cannot be read"]);
}

#[test]
fn numpy_computes_the_values_by_the_lines_of_the_guide() {
    let Some(python) = fedsa_testing::python() else { return };
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/guides/values.md")).unwrap();
    let lines = guide.split("```python\n").find(|block| block.contains("def value(w, states)")).unwrap().split("```").next().unwrap();
    let folder = with_logs();
    let script = format!(
        "{lines}\nimport csv, sys\nw = json.load(open(sys.argv[1]))\nrows = list(csv.DictReader(open(sys.argv[2])))\n\
         mine = value(w, np.array([[float(r[c]) for c in w['columns']] for r in rows]))\n\
         theirs = np.array([float(r['value']) for r in rows])\n\
         assert np.abs(theirs).max() > 1e-3\nprint(np.abs(mine - theirs).max() / np.abs(theirs).max())\n"
    );
    folder.write("check.py", script);
    let file_name = |features: &str| features.replace(|c: char| !c.is_alphanumeric(), "-");
    let compare = |weights: &str, features: &str| {
        let out = format!("{}.csv", file_name(features));
        // Some of the states are outside the ranges.
        folder.run(&["predict", weights, "logs", "--out", &out]).exits(0);
        let mut command = std::process::Command::new(&python);
        command.args(["check.py", weights, &out]).current_dir(folder.path(""));
        let said = finish(command).exits(0).stdout;
        println!("{features}: {}", said.trim());
        assert!(said.trim().parse::<f64>().unwrap() < 1e-12, "{features}: {said}");
    };
    for features in [
        "identity",
        "identity:bias",
        "polynomial:3",
        "fourier:2",
        "tiles:1x3",
        "radial:3",
        "radial:2:0.4",
        "fourier:2:scaled",
        "radial:3:quantiles",
        "radial:2:0.3:quantiles",
        "standardised",
        "tiles:1x3@8",
        "tiles:1x2(s_0) * fourier:2",
        "radial:3:quantiles(s_0) * radial:2(s_0) * standardised(s_speed)",
        "polynomial:2(s_speed, s_0) * identity:bias(s_speed)",
    ] {
        let out = file_name(features);
        let ranges = ["--ranges", "s_0=0.1:0.8,s_speed=-0.5:0.6"];
        let options = ["--gamma", "0.9", "--step-size", "0.5", "--max-rounds", "30", "--tol", "0", "--out", &out, "-q"];
        folder.run(&[&["evaluate", "logs", "--features", features], &ranges[..], &options].concat()).exits(0);
        compare(&format!("{out}/weights.json"), features);
    }
    // Features that are dependent on these logs, with weights that nobody fitted.
    for features in
        ["tiles:8x4", "tiles:3x2", "tiles:8x40@1000", "radial:1", "polynomial:0", "fourier:5", "tiles:3x4(s_speed) * tiles:4x3@12"]
    {
        let spec: FeatureSpec = features.parse().unwrap();
        let mut weights = folder.json("fourier-2/weights.json");
        weights["feature_map"] = serde_json::to_value(&spec).unwrap();
        weights["theta"] = (0..spec.count(2).unwrap()).map(|i| (i as f64 * 1.7).sin() + 0.2).collect();
        folder.write("made.json", weights.to_string());
        compare("made.json", features);
    }
}

#[test]
fn held_out_episodes_say_whether_federation_helps() {
    let folder = with_logs();
    let options = ["evaluate", "logs", "--features", "polynomial:1", "--gamma", "0.9", "--seed", "3", "--out"];
    let run = |more: &[&str]| folder.run(&[&options[..], more].concat());
    let output = run(&["o", "--holdout", "0.5"]).exits(0);
    for text in
        ["held out: 12 episodes, ", "error against Monte-Carlo returns", "projected Bellman error", "does federation help?", "  all agents"]
    {
        assert!(output.stdout.contains(text), "`{text}` is not in\n{}", output.stdout);
    }
    let weights = folder.json("o/weights.json");
    let holdout = &weights["holdout"];
    assert_eq!((&holdout["share"], &holdout["seed"], &holdout["all"]["episodes"]), (&json!(0.5), &json!(3), &json!(12)));
    let fit: u64 = weights["agents"].as_array().unwrap().iter().map(|agent| agent["transitions"].as_u64().unwrap()).sum();
    let all = logs().iter().map(|log| log.lines().count() as u64 - 1).sum::<u64>();
    assert_eq!(fit + holdout["all"]["transitions"].as_u64().unwrap(), all);
    for (error, title) in [("return_error", "error against Monte-Carlo returns"), ("projected_bellman_error", "projected Bellman error")] {
        let rms = |of: &Value, which: &str| of[error][which]["rms"].as_f64().unwrap();
        // The run converged, so that the federated weights are the pooled ones.
        assert!((rms(&holdout["all"], "federated") / rms(&holdout["all"], "pooled") - 1.0).abs() < 1e-8);
        let difference = holdout["all"][error]["own_minus_federated"]["difference"].as_f64().unwrap();
        assert!((difference - (rms(&holdout["all"], "own") - rms(&holdout["all"], "federated"))).abs() < 1e-12);
        // The word of the table is in the file.
        let helps = holdout["all"][error]["own_minus_federated"]["helps"].as_str().unwrap();
        let table = &output.stdout[output.stdout.find(title).unwrap()..];
        let all_agents = table.lines().find(|line| line.trim_start().starts_with("all agents")).unwrap();
        assert!(all_agents.trim_end().ends_with(helps), "`{helps}` is not at the end of `{all_agents}`");
        // Of all agents: the mean of squares over transitions.
        let counted = |agent: &Value| {
            let cut = if error == "return_error" { agent["transitions_without_returns"].as_f64().unwrap() } else { 0.0 };
            agent["transitions"].as_f64().unwrap() - cut
        };
        let agents = holdout["agents"].as_array().unwrap();
        let sum: f64 = agents.iter().map(|agent| counted(agent) * rms(agent, "own").powi(2)).sum();
        let expected = (sum / agents.iter().map(counted).sum::<f64>()).sqrt();
        assert!((rms(&holdout["all"], "own") / expected - 1.0).abs() < 1e-12);
    }
    // The settings are in the file, which gives the same run.
    folder.run(&["run", "o/config.toml", "--out", "again", "-q"]).exits(0);
    assert!(folder.read("o/trace.parquet") == folder.read("again/trace.parquet"));
    // What cannot be held out.
    let message = run(&["n", "--holdout", "1"]).exits(2).message();
    assert!(message.contains("--holdout: 1") && message.contains("above 0 and below 1"), "{message}");
    folder.write("logs/c.csv", logs()[0].replace("episode", "trip"));
    let message = run(&["n", "--holdout", "0.5"]).exits(2).message();
    assert!(message.contains("c has no column `episode`") && message.contains("--holdout: "), "{message}");
    assert!(!folder.path("n").exists());
}

/// `evaluate --method anderson` accelerates FedHSA; the step size and the local steps are those of the base.
#[test]
fn anderson_accelerates_fedhsa_by_default() {
    let folder = with_logs();
    let options = ["evaluate", "logs", "--features", "fourier:1", "--gamma", "0.9", "--step-size", "0.5", "--local-steps", "10"];
    let run = |method: &str, out: &str, more: &[&str]| folder.run(&[&options, &["--method", method, "--out", out][..], more].concat());
    let rounds = |out: &str| folder.json(&format!("{out}/weights.json"))["rounds"].as_u64().unwrap();
    run("fedhsa", "plain", &["--set", "run.record={ every = 1 }"]).exits(0);
    run("anderson", "o", &[]).exits(0).says("anderson: converged: reached its target after");
    let config: toml::Table = folder.text("o/config.toml").parse().unwrap();
    let base = config["method"][0]["base"].as_table().unwrap();
    assert_eq!(
        (base["kind"].as_str(), base["step_size"].as_float(), base["local_steps"].as_integer()),
        (Some("fedhsa"), Some(0.5), Some(10))
    );
    // Of four weights, with five differences, it is GMRES: five rounds, and a few for the rounding of the differences.
    assert!(rounds("o") <= 10 && rounds("plain") > 10 * rounds("o"), "{} rounds, without acceleration {}", rounds("o"), rounds("plain"));
    run("anderson", "one", &["--set", "method.anderson.memory=1"]).exits(0);
    assert!(rounds("one") > rounds("o"), "{} rounds with one difference", rounds("one"));
    run("anderson", "scafflsa", &["--set", "method.anderson.base.kind=scafflsa"]).exits(0);
    // What is wrong with the base's settings is said of the options.
    let message = folder.run(&["evaluate", "logs", "--gamma", "0.9", "--method", "anderson", "--step-size", "-1"]).exits(2).message();
    assert!(message.contains("--step-size: -1"), "{message}");
    let message = folder.run(&["evaluate", "logs", "--gamma", "0.9", "--method", "anderson", "--local-steps", "0"]).exits(2).message();
    assert!(message.contains("--local-steps: 0"), "{message}");
}

/// Methods that need few rounds are looked at after each of them, and the report counts them in the singular.
#[test]
fn solvers_end_with_the_round_that_reaches_the_target() {
    let folder = with_logs();
    let run = |method: &str| {
        folder.run(&["evaluate", "logs", "--features", "fourier:1", "--gamma", "0.9", "--method", method, "--out", method]).exits(0)
    };
    let lstd = run("lstd").stdout;
    assert!(lstd.contains("lstd: converged: reached its target after 1 round, 1 exchange and "), "{lstd}");
    assert!(lstd.contains("bits, in ") && lstd.contains("1 weight") | lstd.contains("4 weights after 1 round;"), "{lstd}");
    let gmres = run("gmres").stdout;
    assert!(gmres.contains("gmres: converged: reached its target after 5 rounds, 5 exchanges and "), "{gmres}");
    let summary = folder.json("gmres/summary.json");
    let seconds = summary["results"][0]["seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds < summary["seconds"].as_f64().unwrap(), "{seconds}");
}

/// The standard errors of weights are those of the operator that was solved: with traces, and with ratios where they are used.
#[test]
fn standard_errors_depend_on_traces_and_ratios() {
    let folder = with_logs();
    let [a, _] = logs();
    let mut rows = a.lines();
    let mut with_ratio = format!("{},ratio\n", rows.next().unwrap());
    rows.enumerate().for_each(|(i, row)| with_ratio += &format!("{row},{}\n", if i % 3 == 0 { 1.7 } else { 0.4 }));
    folder.write("ratio.csv", with_ratio);
    let errors = |out: &str, more: &[&str]| {
        let start = ["evaluate", "ratio.csv", "--features", "identity:bias", "--gamma", "0.9", "--out", out, "-q"];
        folder.run(&[&start, more].concat()).exits(0);
        folder.json(&format!("{out}/weights.json"))["theta_se"].clone()
    };
    let plain = errors("plain", &["--set", "problem.ratios=false"]);
    assert_eq!(plain.as_array().unwrap().len(), 3);
    assert_ne!(errors("ratios", &[]), plain);
    assert_ne!(errors("traces", &["--set", "problem.ratios=false", "--lambda", "0.7"]), plain);
}

/// Logs in memory give the bits of files with the same transitions, and other logs are other data.
#[test]
fn logs_in_memory_give_the_weights_of_files() {
    let folder = with_logs();
    let paths = ["logs/a.csv", "logs/b.csv"].map(|name| folder.path(name).display().to_string());
    let settings = |logs: &[String]| EvaluateSettings { gamma: 0.9, ..EvaluateSettings::new(logs) };
    let now = |evaluation: Evaluation| match evaluation.run(RunSettings::default(), &Unobserved, &Cancel::never()).unwrap() {
        RunOutcome::Done(evaluated) => *evaluated,
        _ => panic!("nobody interrupts it"),
    };
    let of_files = now(Evaluation::new(&settings(&paths), &Cancel::never()).unwrap());
    let files = DiskFiles::new(Places::from_env(""));
    let logs = || -> Vec<Log> { files.logs(&paths, &LogForm::default()).unwrap().iter().map(|log| whole(&**log).unwrap()).collect() };
    let evaluation = Evaluation::of_logs(&settings(&[]), logs(), &Cancel::never()).unwrap();
    assert_eq!(evaluation.choice.as_ref().map(|choice| choice.kind), Some("lstd"));
    let in_memory = now(evaluation);
    assert_eq!(in_memory.json(), of_files.json());
    assert!(in_memory.theta().iter().any(|x| *x != 0.0));
    let out = folder.path("out");
    in_memory.write_into(&out, IfExists::Refuse, &PictureWords::default()).unwrap();
    assert_eq!(folder.json("out/weights.json"), of_files.json());
    let refused =
        |settings: EvaluateSettings, logs: Vec<Log>| Evaluation::of_logs(&settings, logs, &Cancel::never()).map(|_| ()).unwrap_err();
    assert_eq!(refused(settings(&paths), logs()).key, "logs");
    assert_eq!(refused(settings(&[]), Vec::new()).key, "logs");
    let cancel = Cancel::new();
    cancel.cancel();
    for cancelled in [Evaluation::new(&settings(&paths), &cancel), Evaluation::of_logs(&settings(&[]), logs(), &cancel)] {
        assert_eq!(cancelled.map(|_| ()).unwrap_err().kind(), ErrorKind::Cancelled);
    }
    let mut bad = logs();
    bad[1].rewards[2] = f64::NAN;
    let e = refused(settings(&[]), bad);
    assert!(e.what.contains("row 2"), "{e}");
}

/// A walk on states 0 to 5 that are numbered: 5 ends it with reward 1. The last episode of each log is cut.
fn walks(seed: u64) -> String {
    let mut random = seed;
    let mut log = "episode,s_0,next_0,reward,done\n".to_string();
    for episode in 0..40 {
        let mut state = 2i32;
        while state < 5 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let next = (state + if random >> 63 == 0 { 1 } else { -1 }).max(0);
            log += &format!("{episode},{state},{next},{},{}\n", i32::from(next == 5), next == 5);
            state = next;
        }
    }
    log
}

#[test]
fn numbered_states_have_a_weight_each() {
    let folder = Folder::new();
    let logs = [walks(1), walks(2)];
    logs.iter().enumerate().for_each(|(i, log)| folder.write(&format!("logs/{i}.csv"), log));
    let text = folder.run(&["evaluate", "logs", "--gamma", "0.9", "--out", "plain"]).exits(0).stdout;
    assert!(text.contains("5 features of one-hot, the default for 1 state column"), "{text}");
    folder.write("many.csv", "episode,s_0,next_0,reward,done\n0,0,80,0,0\n0,80,40,1,1\n1,40,80,0,0\n1,80,0,1,1\n");
    let text = folder.run(&["evaluate", "many.csv", "--gamma", "0.9", "--out", "many"]).stdout;
    assert!(text.contains("the state column is whole numbers, of 81 values in all: if they are labels, --features one-hot"), "{text}");
    let one_hot = ["evaluate", "logs", "--gamma", "0.9", "--ridge", "0", "--features", "one-hot", "--out"];
    let text = folder.run(&[&one_hot[..], &["o"]].concat()).exits(0).stdout;
    assert!(text.contains("5 features of one-hot") && !text.contains("if they are labels"), "{text}");
    // The values of the empirical chain, by iteration of its Bellman equation.
    let rows: Vec<[f64; 4]> = logs
        .iter()
        .flat_map(|log| log.lines().skip(1))
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            [1, 2, 3].map(|i| fields[i].parse().unwrap()).into_iter().chain([f64::from(u8::from(fields[4] == "true"))]).collect::<Vec<_>>()
        })
        .map(|row| [row[0], row[1], row[2], row[3]])
        .collect();
    let mut values = [0.0f64; 6];
    for _ in 0..2000 {
        let (mut sums, mut counts) = ([0.0; 6], [0.0; 6]);
        for [state, next, reward, done] in &rows {
            sums[*state as usize] += reward + if *done == 1.0 { 0.0 } else { 0.9 * values[*next as usize] };
            counts[*state as usize] += 1.0;
        }
        (0..5).for_each(|s| values[s] = sums[s] / counts[s]);
    }
    let theta = folder.json("o/weights.json")["theta"].clone();
    for s in 0..5 {
        assert!((theta[s].as_f64().unwrap() - values[s]).abs() < 1e-9, "state {s}: {} and {}", theta[s], values[s]);
    }
    // A range that leaves states out, and predictions outside of it.
    let text = folder.run(&[&one_hot[..], &["r", "--ranges", "s_0=1:3"]].concat()).exits(0).stdout;
    assert!(
        text.contains("warning: the column \"s_0\" is outside of its range 1,3 in ")
            && text.contains("of the states, which count as its ends"),
        "{text}"
    );
    folder.write("new.csv", "s_0\n0\n3\n77\n");
    let notes = folder.run(&["predict", "o", "new.csv", "--out", "v.csv"]).exits(0).stderr;
    assert!(notes.contains("\"s_0\" is outside of the range of the fit in 1 rows (33.3%)"), "{notes}");
    // Quantities have no one-hot features.
    folder.write("other/a.csv", "s_0,next_0,reward,done\n0.5,1,0,0\n1,2,1,1\n");
    let message = folder.run(&["evaluate", "other", "--features", "one-hot", "--out", "x"]).exits(2).message();
    assert!(message.contains("`s_0` of a is no column of whole numbers"), "{message}");
}

/// Two agents' logs of two features: a state of the value w, and one of 2 w, after which the evaluated policy stays, with a second feature
/// of noise; the last column is the ratio. TD diverges on them.
fn off_policy(seed: u64) -> String {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut log = "episode,phi_1,phi_2,phi_next_1,phi_next_2,reward,done,ratio\n".to_string();
    for t in 0..400 {
        let (x, stays) = (1 + usize::from(uniform() < 0.5), uniform() < 0.5);
        let (y, next_y, r) = (uniform() - 0.5, uniform() - 0.5, uniform());
        let (next, rho) = if stays { (2, 2.0) } else { (1, 0.0) };
        log += &format!("{},{x},{y},{next},{next_y},{r},0,{rho}\n", t / 40);
    }
    log
}

/// A, b and C of a log of two features, by sums over its rows.
fn parts(csv: &str, gamma: f64) -> ([[f64; 2]; 2], [f64; 2], [[f64; 2]; 2]) {
    let [x, y, next_x, next_y, r, rho] = ["phi_1", "phi_2", "phi_next_1", "phi_next_2", "reward", "ratio"].map(|name| column(csv, name));
    let (mut a, mut b, mut c) = ([[0.0; 2]; 2], [0.0; 2], [[0.0; 2]; 2]);
    for t in 0..x.len() {
        let (f, psi) = ([x[t], y[t]], [x[t] - gamma * next_x[t], y[t] - gamma * next_y[t]]);
        for i in 0..2 {
            b[i] += rho[t] * r[t] * f[i] / x.len() as f64;
            for j in 0..2 {
                a[i][j] += rho[t] * f[i] * psi[j] / x.len() as f64;
                c[i][j] += f[i] * f[j] / x.len() as f64;
            }
        }
    }
    (a, b, c)
}

/// The solution of two equations, by Cramer's rule.
fn cramer(m: [[f64; 2]; 2], b: [f64; 2]) -> [f64; 2] {
    let det = m[0][0] * m[1][1] - m[0][1] * m[1][0];
    [(b[0] * m[1][1] - m[0][1] * b[1]) / det, (m[0][0] * b[1] - b[0] * m[1][0]) / det]
}

#[test]
fn gtd2_and_tdc_reach_the_weights_of_lstd_where_td_diverges() {
    let folder = Folder::new();
    let logs = [off_policy(1), off_policy(2)];
    folder.write("logs/a.csv", &logs[0]);
    folder.write("logs/b.csv", &logs[1]);
    let all = logs.each_ref().map(|log| parts(log, 0.95));
    // The agents have as many rows.
    let mean = |of: &dyn Fn(usize) -> f64| 0.5 * (of(0) + of(1));
    let a: [[f64; 2]; 2] = std::array::from_fn(|i| std::array::from_fn(|j| mean(&|agent| all[agent].0[i][j])));
    let b: [f64; 2] = std::array::from_fn(|i| mean(&|agent| all[agent].1[i]));
    let c: [[f64; 2]; 2] = std::array::from_fn(|i| std::array::from_fn(|j| mean(&|agent| all[agent].2[i][j])));
    let (root, at_zero) = (cramer(a, b), cramer(c, b));
    let error_at_zero = b[0] * at_zero[0] + b[1] * at_zero[1];
    let run = |operator: &[&str], out: &str| {
        let options = ["evaluate", "logs", "--gamma", "0.95", "--method", "fedhsa", "--step-size", "0.1", "--holdout", "0.2", "--out", out];
        folder.run(&[&options[..], operator].concat())
    };
    for operator in [&["--operator", "gtd2"][..], &["--operator", "tdc", "--kappa", "3"]] {
        let out = operator[1];
        let options = ["evaluate", "logs", "--gamma", "0.95", "--ridge", "0", "--method", "fedhsa", "--step-size", "0.1", "--out", out];
        let ran = folder.run(&[&options[..], operator].concat()).exits(0);
        assert!(ran.stdout.contains("projected Bellman error"), "{}", ran.stdout);
        let weights: Value = folder.json(&format!("{out}/weights.json"));
        assert_eq!((&weights["operator"], weights["theta"].as_array().unwrap().len()), (&json!(out), 2));
        assert_eq!(weights["kappa"], json!(if out == "tdc" { 3.0 } else { 1.0 }));
        for i in 0..2 {
            assert!((weights["theta"][i].as_f64().unwrap() - root[i]).abs() < 1e-9, "{out}: {weights} {root:?}");
            assert!((weights["lstd"][i].as_f64().unwrap() - root[i]).abs() < 1e-11);
            assert!(weights["auxiliary"][i].as_f64().unwrap().abs() < 1e-9);
        }
        assert_eq!(weights["rank"], json!(2));
        let error = &weights["projected_bellman_error"];
        assert!((error["start"].as_f64().unwrap() - error_at_zero).abs() < 1e-12 * error_at_zero, "{error} {error_at_zero}");
        assert!(error["end"].as_f64().unwrap() < 1e-15);
        // The weights are those of a value function of two features.
        folder.run(&["predict", out, "logs/a.csv", "--se", "--overwrite", "--out", "values.csv"]).exits(0);
        let values = column(&folder.text("values.csv"), "value");
        let (x, y) = (column(&logs[0], "phi_1"), column(&logs[0], "phi_2"));
        assert!((values[7] - root[0] * x[7] - root[1] * y[7]).abs() < 1e-9);
    }
    // TD with the same steps would diverge.
    let td = run(&["--operator", "td"], "td");
    assert!(td.status == 2 && td.stderr.contains("fedhsa is unstable"), "{} {}", td.stdout, td.stderr);
    // Held-out episodes are compared with the agents' own TD solutions.
    let held = run(&["--operator", "gtd2"], "held").exits(0);
    assert!(held.stdout.contains("does federation help?"), "{}", held.stdout);
    for (options, message) in [
        (&["--kappa", "2"][..], "--kappa: 2 beside the operator td"),
        (&["--operator", "gtd3"], "invalid value 'gtd3' for '--operator"),
        (&["--operator", "tdc", "--kappa", "0"], "--kappa: 0 is not accepted"),
        (&["--operator", "tdc", "--lambda", "0.5"], "--operator: gtd2 or tdc with lambda = 0.5"),
    ] {
        let refused = run(options, "refused");
        assert!(refused.status == 2 && refused.stderr.contains(message), "{options:?}: {}", refused.stderr);
        assert!(!folder.path("refused").exists());
    }
}

/// The ratio may come as two columns of probabilities, and is clipped on request.
#[test]
fn ratios_come_from_probabilities_and_are_clipped_on_request() {
    let folder = Folder::new();
    let csv = off_policy(1);
    // Behaviour 1/2 throughout: the target has the probability rho / 2.
    let rho = column(&csv, "ratio");
    let probabilities: String = csv
        .lines()
        .enumerate()
        .map(|(i, line)| {
            let (rest, _) = line.rsplit_once(',').unwrap();
            if i == 0 { format!("{rest},target,behaviour\n") } else { format!("{rest},{},0.5\n", 0.5 * rho[i - 1]) }
        })
        .collect();
    folder.write("ratio/a.csv", &csv);
    folder.write("two/a.csv", &probabilities);
    let weights = |logs: &str, out: &str, more: &[&str]| {
        let ran = folder.run(&[&["evaluate", logs, "--gamma", "0.95", "--out", out], more].concat()).exits(0);
        (folder.json(&format!("{out}/weights.json")), ran.stdout)
    };
    let ((one, _), (two, _)) = (weights("ratio", "o", &[]), weights("two", "t", &[]));
    assert_eq!(one["theta"], two["theta"]);
    let mean = rho.iter().sum::<f64>() / rho.len() as f64;
    assert!(
        (one["agents"][0]["ratios"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12 && one["agents"][0]["ratios"]["clipping"].is_null()
    );
    let (clipped, said) = weights("two", "c", &["--max-importance-ratio", "1.5"]);
    let count = rho.iter().filter(|rho| **rho > 1.5).count();
    let ratios = &clipped["agents"][0]["ratios"];
    assert_eq!((&ratios["clipping"]["clipped"], &ratios["clipping"]["level"]), (&json!(count), &json!(1.5)));
    assert!((ratios["mean"].as_f64().unwrap() - 0.75 * mean).abs() < 1e-12, "2 became 1.5: {ratios}");
    assert!(said.contains("clipped at 1.5, and their mean falls from "), "{said}");
    // With a mean far from 1 there is no value.
    let doubled: String =
        csv.lines().map(|line| line.strip_suffix(",2").map_or(format!("{line}\n"), |rest| format!("{rest},4\n"))).collect();
    folder.write("double/a.csv", doubled);
    let (_, said) = weights("double", "d", &[]);
    assert!(said.contains("no value of the policy is estimated: the mean importance ratio of a is 1.96 (0.10) and should be 1"), "{said}");
    let zero = probabilities.replacen(",0.5\n", ",0\n", 1);
    folder.write("zero/a.csv", zero);
    let refused = folder.run(&["evaluate", "zero", "--out", "z"]);
    assert!(refused.status == 2 && refused.stderr.contains("a.csv: line 2, column `behaviour`: `0` is not"), "{}", refused.stderr);
    let refused = folder.run(&["evaluate", "two", "--max-importance-ratio", "0", "--out", "z"]);
    assert!(refused.status == 2 && refused.stderr.contains("--max-importance-ratio: 0 is not accepted"), "{}", refused.stderr);
}
