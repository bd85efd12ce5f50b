//! `fedsa fit` and `fedsa predict` on rows with targets.

use crate::common::{Folder, Output, finish};
use clap::{Args, Command};
use fedsa::cancel::Cancel;
use fedsa::error::ErrorCode;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_experiment::evaluate::Evaluation;
use fedsa_experiment::fit::Fit;
use fedsa_experiment::run::RunOutcome;
use fedsa_experiment::tune::TuneSettings;
use fedsa_experiment::{EvaluateSettings, FitSettings, Fitted, IfExists, RunSettings, Unobserved};
use fedsa_problems::Files as _;
use fedsa_problems::rows::dataset::{Columns, Dataset, Labels, Rows, Wanted};
use serde::Serialize;
use serde_json::Value;

/// The first line says whether there is an intercept, which tables have by default.
#[test]
fn tables_have_an_intercept_by_default_and_other_rows_none() {
    let folder = folder();
    let first = |options: &str| {
        let text = fit(&folder, &format!("{options} --agents 4 --ridge 1e-3 --method newton --out o --overwrite")).exits(0).stdout;
        let weights = folder.json("o/weights.json");
        (text.lines().next().unwrap().to_string(), number(&weights, "intercept"))
    };
    let rows = "rows.csv --target label --drop site,year";
    let (line, intercept) = first(rows);
    assert!(line.contains("an intercept (--intercept=false leaves it out)") && intercept != 0.0, "{line}");
    assert_eq!(first(&format!("{rows} --intercept")).1, intercept);
    let (line, intercept) = first(&format!("{rows} --intercept=false"));
    assert!(line.contains("no intercept (--intercept adds one)") && intercept == 0.0, "{line}");
    let (line, intercept) = first("rows.libsvm");
    assert!(line.contains("no intercept (--intercept adds one)") && intercept == 0.0, "{line}");
}

/// Uniform numbers in [0, 1).
pub(crate) fn uniform() -> impl FnMut() -> f64 {
    let mut state = 7u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Rows of three columns with a class, `yes` where a noisy linear function is positive, and a number that is 3 + 2 a - b but for noise.
fn table(rows: usize) -> String {
    let mut u = uniform();
    let mut csv = "a,b,c,site,label,year\n".to_string();
    for i in 0..rows {
        let [a, b, c] = std::array::from_fn(|_| 2.0 * u() - 1.0);
        let class = if a - 2.0 * b + 0.5 + 0.8 * (u() - 0.5) > 0.0 { "yes" } else { "no" };
        let year = 3.0 + 2.0 * a - b + 0.01 * (u() - 0.5);
        csv += &format!("{a},{b},{c},s{},{class},{year}\n", i % 3);
    }
    csv
}

/// The same classes in the LIBSVM format, with columns that are 0 left out.
fn libsvm(rows: usize) -> String {
    let csv = table(rows);
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let label = if fields[4] == "yes" { "+1" } else { "-1" };
        format!("{label} 1:{} 2:{} 3:{}\n", fields[0], fields[1], fields[2])
    };
    csv.lines().skip(1).map(line).collect()
}

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("rows.csv", table(240));
    folder.write("rows.libsvm", libsvm(240));
    folder
}

/// Runs `fit` with options given in one text.
pub(crate) fn fit(folder: &Folder, options: &str) -> Output {
    folder.run(&["fit"].into_iter().chain(options.split_whitespace()).collect::<Vec<_>>())
}

fn number(weights: &Value, key: &str) -> f64 {
    weights[key].as_f64().unwrap_or_else(|| panic!("{key}: {}", weights[key]))
}

fn numbers(weights: &Value, key: &str) -> Vec<f64> {
    weights[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

const CLASSES: &str = "rows.csv --target label --drop site,year --agents 4 --ridge 1e-3 --intercept";

#[test]
fn a_classification_is_fitted_and_applied() {
    let folder = folder();
    let output = fit(&folder, &format!("{CLASSES} --holdout 0.25 --out o")).exits(0);
    let output = output.says("4 agents, 180 rows, 60 held out").says("converged").says("accuracy");
    assert!(output.stdout.contains("auto on the held-out share of 60 rows"), "{}", output.stdout);
    let weights = folder.json("o/weights.json");
    assert_eq!((weights["model"].as_str(), weights["method"].as_str()), (Some("logistic"), Some("auto")));
    assert_eq!(weights["classes"], serde_json::json!(["no", "yes"]));
    assert!(number(&weights, "gradient_norm") <= 1e-9 && number(&weights["holdout"], "accuracy") > 0.85, "{weights}");
    let coefficients = numbers(&weights, "coefficients");
    // The classes are those of a - 2 b + 0.5.
    assert!(coefficients[0] > 0.0 && coefficients[1] < -coefficients[0] && number(&weights, "intercept") > 0.0, "{coefficients:?}");
    let csv = folder.run(&["predict", "o/weights.json", "rows.csv"]).exits(0).stdout;
    assert!(csv.starts_with("agent,a,b,c,site,label,year,probability,probability_no,probability_yes,prediction\n"), "{csv}");
    let mut right = 0;
    for line in csv.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let x: Vec<f64> = fields[1..4].iter().map(|x| x.parse().unwrap()).collect();
        let score: f64 = x.iter().zip(&coefficients).map(|(x, w)| x * w).sum::<f64>() + number(&weights, "intercept");
        let probability: f64 = fields[7].parse().unwrap();
        assert!((probability - 1.0 / (1.0 + (-score).exp())).abs() < 1e-12);
        assert_eq!((fields[9], fields[10]), (fields[7], if score > 0.0 { "yes" } else { "no" }));
        right += usize::from(fields[10] == fields[5]);
    }
    assert!(right > 200, "{right} of 240");
}

/// Names and folders of files are nothing that weights depend on.
#[test]
fn data_sets_in_memory_give_the_weights_of_files() {
    let folder = folder();
    let path = folder.path("rows.libsvm").display().to_string();
    let settings = |data: &[String]| FitSettings {
        agents: Some(4),
        ridge: Some(1e-3),
        holdout: Some(0.25),
        method: Some("newton".into()),
        ..FitSettings::new(data)
    };
    let fitted = fit_now(Fit::new(&settings(std::slice::from_ref(&path)), &Cancel::never()));
    let files = DiskFiles::new(Places::from_env(""));
    let sets = || files.datasets(std::slice::from_ref(&path), &Wanted::default()).unwrap();
    let in_memory = fit_now(Fit::of_sets(&settings(&[]), sets(), &Cancel::never()));
    assert_eq!(in_memory.theta(), fitted.theta());
    assert_eq!(in_memory.json(), fitted.json());
    assert!(in_memory.gradient_norm <= 1e-9 && in_memory.held_out.is_some());
    let out = folder.path("out");
    in_memory.write_into(&out, IfExists::Refuse).unwrap();
    assert_eq!(folder.json("out/weights.json"), in_memory.json());
    let taken = in_memory.write_into(&out, IfExists::Refuse).unwrap_err();
    assert_eq!(taken.key, "out", "{taken}");
    let both = Fit::of_sets(&settings(std::slice::from_ref(&path)), sets(), &Cancel::never()).map(|_| ()).unwrap_err();
    assert_eq!(both.key, "data", "{both}");
}

/// What a fit comes to, without a folder.
fn fit_now(fit: fedsa::error::Result<Fit>) -> Fitted {
    match fit.unwrap().run(RunSettings::default(), &Unobserved, &Cancel::new()).unwrap() {
        RunOutcome::Done(fitted) => *fitted,
        _ => panic!("nobody cancels"),
    }
}

#[test]
fn the_optimum_does_not_depend_on_the_format_or_the_method() {
    let folder = folder();
    fit(&folder, &format!("{CLASSES} --method newton --out csv -q")).exits(0);
    let optimum = folder.json("csv/weights.json");
    let methods = ["fib-shed+", "gn-shed", "bfgs", "lbfgs", "giant", "fednl", "agd"];
    let output = fit(&folder, &format!("rows.libsvm --agents 4 --ridge 1e-3 --intercept --compare {} --out c", methods.join(",")));
    let output = output.exits(0);
    for method in methods {
        assert!(output.stdout.lines().any(|line| line.starts_with(method) && line.ends_with("converged")), "{}", output.stdout);
    }
    let weights = folder.json("c/weights.json");
    assert_eq!(weights["method"], "fib-shed+", "the first of the comparison gives the weights");
    // The strong convexity is at least the ridge: errors are at most 1e-9 / 1e-3.
    for (x, y) in numbers(&weights, "coefficients").iter().zip(numbers(&optimum, "coefficients")) {
        assert!((x - y).abs() < 2e-6, "{x} {y}");
    }
    assert!(folder.text("c/figure.svg").contains("Hessians, all agents"));
}

#[test]
fn a_regression_gives_targets_in_their_own_units() {
    let folder = folder();
    let options = "rows.csv --model least-squares --target year --drop site,label --agents 3 --standardise --intercept --ridge 0";
    fit(&folder, &format!("{options} --method shed-ls --set problem.target_range=[0.0,1.0] --out o"))
        .exits(0)
        .says("root mean square error");
    let weights = folder.json("o/weights.json");
    let csv = folder.run(&["predict", "o/weights.json", "rows.csv"]).exits(0).stdout;
    for line in csv.lines().skip(1) {
        let fields: Vec<f64> = line.split(',').filter_map(|field| field.parse().ok()).collect();
        let [a, b, _, year, prediction] = fields[..] else { panic!("{line}") };
        assert!((prediction - (3.0 + 2.0 * a - b)).abs() < 0.005 && (prediction - year).abs() < 0.02, "{line}");
    }
    assert!(number(&weights["train"], "rmse") < 0.01, "{weights}");
}

#[test]
fn rows_without_targets_are_predicted() {
    let folder = folder();
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-3 --out o -q").exits(0);
    let with = folder.run(&["predict", "o/weights.json", "rows.libsvm"]).exits(0).stdout;
    assert!(with.starts_with("agent,target,probability,probability_-1,probability_1,prediction\nrows"), "{with}");
    assert_eq!(with.lines().count(), 241);
    folder.run(&["predict", "o/weights.json", "rows.libsvm", "--out", "p.parquet"]).exits(0).says("240 rows of 1 file");
    folder.write("wide.libsvm", "+1 1:0.5 9:1\n");
    let message = folder.run(&["predict", "o/weights.json", "wide.libsvm"]).exits(2).message();
    assert!(message.contains("row 1 has a number in the column `9`") && message.contains("at most 3 columns"), "{message}");
    let message = folder.run(&["predict", "o/weights.json", "rows.libsvm", "--se"]).exits(2).message();
    assert!(message.contains("--se"), "{message}");
}

#[test]
fn predictions_stand_in_the_order_in_which_files_are_named() {
    let folder = folder();
    fit(&folder, &format!("{CLASSES} --out o -q")).exits(0);
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-3 --out s -q").exits(0);
    for (name, label, sign) in [("b", "no", -1), ("a", "yes", 1), ("c", "no", -1)] {
        folder.write(&format!("{name}.csv"), format!("a,b,c,label,from\n0.5,0.25,0,{label},{name}\n"));
        folder.write(&format!("{name}.libsvm"), format!("{sign} 1:0.5 2:0.25\n"));
        folder.write(&format!("d/{name}.csv"), format!("a,b,c\n0.5,0.25,{sign}\n"));
    }
    let agents = |args: &[&str]| -> Vec<String> {
        let csv = folder.run(&[&["predict"], args].concat()).exits(0).stdout;
        csv.lines().skip(1).map(|line| line.split(',').next().unwrap().to_string()).collect()
    };
    assert_eq!(agents(&["o", "b.csv", "a.csv", "c.csv"]), ["b", "a", "c"]);
    assert_eq!(agents(&["o", "c.csv", "a.csv"]), ["c", "a"]);
    assert_eq!(agents(&["s", "b.libsvm", "a.libsvm", "c.libsvm"]), ["b.libsvm", "a.libsvm", "c.libsvm"]);
    // The files of a folder and of a glob have no order of the user's.
    assert_eq!(agents(&["o", "d"]), ["a", "b", "c"]);
    assert_eq!(agents(&["o", "d/[bc].csv", "d/a.csv"]), ["b", "c", "a"]);
    let message = folder.run(&["predict", "o", "b.csv", "a.csv", "b.csv"]).exits(2).message();
    assert!(message.contains("b.csv: this file is given twice"), "{message}");
}

#[test]
fn packed_tables_keep_their_columns_as_others_do() {
    let folder = folder();
    fit(&folder, &format!("{CLASSES} --out o -q")).exits(0);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, table(240).as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    folder.write("packed/rows.csv.gz", &packed);
    folder.write("packed/LICENSE", "words\n");
    let plain = folder.run(&["predict", "o", "rows.csv"]).exits(0);
    for source in ["packed/rows.csv.gz", "packed", "packed/rows"] {
        let output = folder.run(&["predict", "o", source]).exits(0);
        assert_eq!((&output.stdout, &output.stderr), (&plain.stdout, &plain.stderr), "{source}");
    }
    folder.write("tail.csv.gz", [&packed[..], b"tail"].concat());
    let message = folder.run(&["predict", "o", "tail.csv.gz"]).exits(2).message();
    assert!(message.contains("tail.csv.gz: there are bytes after the end of the gzip stream"), "{message}");
    folder.write("cut.csv.gz", &packed[..packed.len() / 2]);
    let message = folder.run(&["predict", "o", "cut.csv.gz"]).exits(2).message();
    assert!(message.contains("it is truncated"), "{message}");
}

#[test]
fn a_fit_of_several_files_says_what_was_read() {
    let folder = folder();
    let idx = |sizes: &[u32], data: &[u8]| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        [&[0, 0, 8, sizes.len() as u8 / 4], &sizes[..], data].concat()
    };
    for (name, rows) in [("train", 6), ("t10k", 2)] {
        let pixels: Vec<u8> = (0..rows * 2).map(|i| (i * 7 % 5) as u8).collect();
        let labels: Vec<u8> = (0..rows).map(|i| (i % 2) as u8).collect();
        folder.write(&format!("m/{name}-images-idx3-ubyte"), idx(&[rows, 1, 2], &pixels));
        folder.write(&format!("m/{name}-labels-idx1-ubyte"), idx(&[rows], &labels));
    }
    let text = fit(&folder, "m --agents 2 --ridge 1e-2 --out o").exits(0).stdout;
    assert!(text.contains("read: 2 rows of t10k-images-idx3-ubyte, 6 rows of train-images-idx3-ubyte"), "{text}");
    let text = fit(&folder, "m/train --agents 2 --ridge 1e-2 --out p").exits(0).stdout;
    assert!(text.contains("2 agents, 6 rows") && !text.contains("read: "), "{text}");
}

#[test]
fn first_order_methods_run_on_the_same_data() {
    let folder = folder();
    let steps = "--method scafflsa --step-size 0.5 --local-steps 5 --max-rounds 30 --tol 0 --sampling iid --batch 8";
    fit(&folder, &format!("{CLASSES} {steps} --out o")).exits(0).says("scafflsa");
    let message = fit(&folder, &format!("{CLASSES} --method scafflsa --out p")).exits(2).message();
    assert!(message.contains("step_size") || message.contains("--step-size"), "{message}");
    assert!(!folder.path("p").exists());
}

#[test]
fn predictions_that_overflow_are_refused() {
    let folder = folder();
    fit(&folder, &format!("{CLASSES} --out w -q")).exits(0);
    folder.write("large.csv", "a,b,c\n1,2,3\n1.7e308,-1.7e308,0\n");
    let run = folder.run(&["predict", "w", "large.csv", "--out", "p.csv"]).exits(2);
    assert!(run.message().contains("row 2: the prediction is"), "{}", run.message());
    folder.run(&["predict", "w", "rows.csv", "--column", ""]).exits(2);
    std::fs::create_dir(folder.path("empty")).unwrap();
    assert!(folder.run(&["predict", "empty", "rows.csv"]).exits(2).message().contains("holds neither weights.json nor policy.json"));
}

/// In a comparison a step size is for methods that need one; gd and done search for theirs.
#[test]
fn a_step_size_changes_no_method_that_finds_its_own() {
    let folder = folder();
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-2 --compare gd,done --tol 1e-6 --out alone -q").exits(0);
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-2 --compare gd,done,fedlsa --step-size 0.1 --tol 1e-6 --out beside -q");
    let config = folder.text("beside/config.toml");
    assert_eq!(config.matches("step_size = 0.1").count(), 1, "{config}");
    let message = fit(&folder, "rows.libsvm --agents 4 --step-size 0.1 --out none").exits(2).message();
    assert!(message.contains("--step-size: 0.1, and the methods that auto chooses have no such setting"), "{message}");
    let message = fit(&folder, "rows.libsvm --agents 4 --model least-squares --positive 1 --out none").exits(2).message();
    assert!(message.contains("--model logistic"), "{message}");
}

#[test]
fn done_needs_no_step_and_bytes_are_noted() {
    let folder = folder();
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-2 --method done --tol 1e-6 --out done").exits(0);
    assert_eq!(folder.json("done/weights.json")["outcome"], "converged");
    folder.write("bytes.csv", "x,y,label\n255,0,a\n17,3,b\n200,9,a\n4,80,b\n");
    let said = fit(&folder, "bytes.csv --agents 2 --ridge 1 --out bytes").exits(0).stdout;
    assert!(said.contains("--divide-by 255"), "{said}");
    let said = fit(&folder, "bytes.csv --agents 2 --ridge 1 --divide-by 255 --out divided").exits(0).stdout;
    assert!(!said.contains("--divide-by"), "{said}");
}

#[test]
fn a_fit_is_continued_to_the_same_bits() {
    let folder = folder();
    for method in ["fib-shed", "auto"] {
        let options = format!("rows.libsvm --agents 4 --ridge 1e-6 --method {method} --tol 0");
        for (rounds, parts) in [(40, 15), (9, 3), (5, 4)] {
            let (whole, part) = (format!("whole-{method}-{parts}"), format!("parts-{method}-{parts}"));
            fit(&folder, &format!("{options} --max-rounds {rounds} --out {whole} -q")).exits(0);
            fit(&folder, &format!("{options} --max-rounds {parts} --out {part} -q")).exits(0);
            fit(&folder, &format!("{options} --max-rounds {rounds} --out {part} --resume -q")).exits(0);
            assert_eq!(folder.read(&format!("{whole}/theta.npz")), folder.read(&format!("{part}/theta.npz")), "{method}");
        }
    }
}

/// The default says what it chose and why, what others take by rule of thumb, and what --tol means. Each goal has its method.
#[test]
fn a_method_is_chosen_and_the_reason_is_said() {
    let folder = folder();
    let said = fit(&folder, "rows.libsvm --agents 4 --ridge 1e-3 --out bits").exits(0).stdout;
    for part in [
        "auto, for few bits: adaptive-newton",
        "3 weights: whole Hessians of 2.0 vectors are cheap",
        "rule of thumb",
        "newton: about",
        "lbfgs: about",
        "(absolute)",
    ] {
        assert!(said.contains(part), "`{part}` is not in {said}");
    }
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-3 --objective rounds --out rounds").exits(0).says("auto, for few rounds: newton");
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-3 --objective seconds --out seconds").exits(0).says("auto, for few seconds");
    let bits = |name: &str| number(&folder.json(&format!("{name}/weights.json")), "bits");
    assert!(bits("bits") < bits("rounds"), "{} {}", bits("bits"), bits("rounds"));
    // With fewer rows than weights agents have no Newton directions of their own; Hessians of 3 weights are cheap.
    fit(&folder, "rows.libsvm --agents 120 --ridge 1e-1 --out few").exits(0).says("whole Hessians");
    assert!(folder.text("few/config.toml").contains("first = \"gradients\""));
    // Beside others it gives the weights where it is named first.
    fit(&folder, "rows.libsvm --agents 4 --ridge 1e-3 --method auto --compare newton,giant --out beside -q").exits(0);
    assert_eq!(folder.json("beside/weights.json")["method"], "auto");
}

#[test]
fn data_at_fault_are_named_and_nothing_is_written() {
    let folder = folder();
    let refused = |options: &str, parts: &[&str]| {
        let message = fit(&folder, &format!("{options} --out bad")).exits(2).message();
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in {message}");
        }
        assert!(!folder.path("bad").exists(), "{options}");
    };
    folder.write("three.csv", "x,label\n1,a\n2,b\n3,c\n4,a\n");
    refused("three.csv --agents 2", &["a", "b", "c", "positive"]);
    folder.write("one.csv", "x,label\n1,a\n2,a\n3,a\n4,a\n");
    refused("one.csv --agents 2", &["a"]);
    refused("three.csv --agents 2 --positive d", &["d"]);
    folder.write("nan.csv", "x,label\n1,a\nNaN,b\n");
    refused("nan.csv --agents 1", &["nan.csv", "x", "line 3"]);
    refused("three.csv --agents 9 --positive a", &["9 agents", "4 rows"]);
    folder.write("singular.csv", "x,y,target\n1,2,1\n2,4,3\n3,6,2\n4,8,5\n");
    refused("singular.csv --model least-squares --agents 2 --ridge 0", &["ridge"]);
    folder.write("mixed.csv", "x,site,label\n1,s0,a\n2,s1,b\n3,7,a\n4,s0,b\n");
    refused("mixed.csv --agents 2", &["line 4", "column `site`", "`7`", "--categorical"]);
    refused("rows.csv --target nothing --agents 2", &["nothing"]);
    refused(&format!("{CLASSES} --pca 9"), &["9", "at most the number of columns"]);
    refused(&format!("{CLASSES} --partition around"), &["around", "shuffled"]);
    refused(&format!("{CLASSES} --method sched"), &["sched"]);
    refused("rows.libsvm --agents 2 --ridge -1", &["ridge", "-1"]);
    refused(&format!("{CLASSES} --holdout 1"), &["holdout"]);
    refused("missing.csv --agents 2", &["missing.csv"]);
    // Help names options of this command, not keys of files that it makes.
    refused(&format!("{CLASSES} --method fedlsa"), &["--step-size: fedlsa needs it", "a step size such as 0.1"]);
    refused(&format!("{CLASSES} --sampling iid --batch 4"), &["--batch", "auto uses all rows", "fedlsa"]);
    refused(&format!("{CLASSES} --sampling iid --batch 4 --compare fedlsa,lbfgs --step-size 0.1"), &["lbfgs uses all rows"]);
    refused("three.csv --agents 2", &["--positive"]);
    refused("rows.csv --target label --drop site,year --model least-squares", &["--model logistic"]);
    refused("rows.csv --target label --drop year --group site --agents 5", &["or no --agents"]);
    refused("three.csv --agents 4 --positive a --holdout 0.2", &["or no --holdout"]);
    folder.write("huge.csv", "x,y,label\n1e300,2,a\n3,1e300,b\n1e300,1,b\n2,5,a\n");
    refused("huge.csv --agents 1", &["--standardise"]);
    let many: String = (0..2000).map(|i| format!("{i},{}.5\n", i % 1500)).collect();
    folder.write("many.csv", format!("x,label\n{many}"));
    refused("many.csv --agents 2", &["--model least-squares"]);
    // Columns that are only counted cost nothing before memory is checked.
    folder.write("wide.libsvm", "1 4294967295:1\n-1 1:1\n");
    refused("wide.libsvm --agents 1 --method lbfgs", &["wide.libsvm", "needs about"]);
    let run = fit(&folder, &format!("{CLASSES} --sampling iid --batch 4 --method fedtd --step-size 0.1 --max-rounds 2 --out drawn"));
    run.exits(1);
    folder.write("bare.csv", "x,y\n1,2\n2,1\n");
    refused("bare.csv --agents 2", &["--target"]);
    refused("three.csv --agents 2 --positive a --divide-by 0", &["--divide-by: 0 is not accepted", "other than 0"]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, table(100).as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    folder.write("cut.csv.gz", &bytes[..bytes.len() / 2]);
    refused("cut.csv.gz --target label --drop site,year --agents 2", &["cut.csv.gz"]);
    folder.write("whole.csv.gz", &bytes);
    fit(&folder, "whole.csv.gz --target label --drop site,year --agents 2 --ridge 1e-3 --out good -q").exits(0);
}

#[test]
fn w8a_takes_the_rounds_that_an_independent_computation_takes() {
    let Some(data) = fedsa_testing::data() else { return };
    let folder = Folder::new();
    let args = "fit libsvm/w8a --agents 8 --model logistic --ridge 1e-5 --method fib-shed --tol 1e-9 --out o";
    let mut command = folder.command(&args.split(' ').collect::<Vec<_>>());
    command.env("FEDSA_DATA", data);
    finish(command).exits(0);
    let weights = folder.json("o/weights.json");
    // Seen elsewhere, on another split: 345 rounds, 11 Hessians an agent, 13.6 MB up; and the optimum by SciPy.
    let rounds = number(&weights, "rounds");
    assert!((310.0..=380.0).contains(&rounds), "{rounds} rounds");
    assert_eq!(number(&weights, "hessians"), 8.0 * 11.0);
    assert!(number(&weights, "bits_up") < 8.0 * 15e6, "{}", weights["bits_up"]);
}

/// The rounds of `fednl` with a compressor to gradients of 1e-6, 1e-9 and 1e-12 on w8a, 142 agents of 350 rows.
fn fednl_rounds(compressor: &str) -> Option<[u64; 3]> {
    let data = fedsa_testing::data()?;
    let folder = Folder::new();
    let levels = ["1e-6", "1e-9", "1e-12"];
    let check = |level: &str| {
        let keys = "kind = \"cost\"\nmethod = \"fednl\"\nmetric = \"residual\"\ncost = \"round\"\nmin = 1.0";
        format!("[[check]]\nname = \"rounds to {level}\"\n{keys}\nlevel = {level}\n")
    };
    let checks: String = levels.map(check).concat();
    folder.write(
        "fednl.toml",
        format!(
            "id = \"fednl\"\n[problem]\nkind = \"logistic\"\ndata = \"libsvm/w8a\"\nagents = 142\nsamples = 350\npartition = \"shuffled\"\n\
             intercept = true\nridge = 1e-3\n[sampling]\nkind = \"mean\"\n[[method]]\nkind = \"fednl\"\ncompressor = \"{compressor}\"\n\
             [run]\nrounds = 40\nrecord = {{ every = 1 }}\nstop = {{ residual = 1e-12 }}\n{checks}"
        ),
    );
    let mut command = folder.command(&["run", "fednl.toml", "--out", "o", "-q"]);
    command.env("FEDSA_DATA", data);
    finish(command).exits(0);
    let summary = folder.json("o/summary.json");
    let measured = |i: usize| summary["checks"][i]["measured"].as_f64().unwrap_or_else(|| panic!("{}", summary["checks"][i]));
    Some([0, 1, 2].map(|i| measured(i) as u64))
}

/// An independent implementation takes 22, 24 and 25 rounds with one split of the rows, and 22, 25 and 26 with another; with a
/// wrong heap in its compressor 240.
#[test]
fn fednl_learns_w8a_in_the_rounds_of_an_independent_implementation() {
    let Some(rounds) = fednl_rounds("top-k") else { return };
    for (rounds, seen) in rounds.into_iter().zip([22, 24, 25]) {
        assert!(rounds.abs_diff(seen) <= 3, "{rounds}, and {seen} elsewhere");
    }
}

/// As above: 16, 18 and 19 rounds with full Hessians, 21, 23 and 25 with natural compression.
#[test]
#[ignore = "takes half a minute"]
fn fednl_learns_w8a_with_other_compressors_too() {
    for (compressor, seen) in [("full", [16, 18, 19]), ("natural", [21, 23, 25])] {
        let Some(rounds) = fednl_rounds(compressor) else { return };
        for (rounds, seen) in rounds.into_iter().zip(seen) {
            assert!(rounds.abs_diff(seen) <= 3, "{compressor}: {rounds}, and {seen} elsewhere");
        }
    }
}

/// Errors name settings of the library, not keys of the experiment that it makes of them, and values that the caller gave.
#[test]
fn errors_of_the_library_name_its_settings() {
    let folder = folder();
    let path = folder.path("rows.libsvm").display().to_string();
    let log = folder.path("log.csv").display().to_string();
    let fit = || FitSettings::new([&path]);
    let by = |method: &str| FitSettings { method: Some(method.into()), ..fit() };
    let value = || EvaluateSettings::new([&log]);
    let fedlsa = || EvaluateSettings { method: "fedlsa".into(), ..value() };
    let too_large = 1 << 63;
    let of_fit = |settings: FitSettings| Fit::new(&settings, &Cancel::never()).map(|_| ()).expect_err(&format!("{settings:?}"));
    folder.write("log.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n");
    let of_value =
        |settings: EvaluateSettings| Evaluation::new(&settings, &Cancel::never()).map(|_| ()).expect_err(&format!("{settings:?}"));
    for (e, key) in [
        (of_fit(FitSettings { tol: f64::NAN, ..fit() }), "tol"),
        (of_fit(FitSettings { ridge: Some(-1.0), ..fit() }), "ridge"),
        (of_fit(by("newtn")), "method"),
        (of_fit(FitSettings { compare: vec!["newton".into(), "giantt".into()], ..fit() }), "compare"),
        (of_fit(FitSettings { step_size: Some(-1.0), ..by("fedlsa") }), "step_size"),
        (of_fit(FitSettings { max_rounds: 0, ..fit() }), "max_rounds"),
        (of_fit(FitSettings { pca: Some(0), ..fit() }), "pca"),
        (of_fit(FitSettings { agents: Some(0), ..fit() }), "agents"),
        (of_value(EvaluateSettings { tol: Some(f64::NAN), ..value() }), "tol"),
        (of_value(EvaluateSettings { gamma: 2.0, ..value() }), "gamma"),
        (of_value(EvaluateSettings { local_steps: Some(0), ..fedlsa() }), "local_steps"),
        (of_value(EvaluateSettings { max_rounds: 0, ..value() }), "max_rounds"),
    ] {
        assert_eq!(e.key, key, "{e}");
    }
    for (e, key) in [
        (of_fit(FitSettings { seed: too_large, ..fit() }), "seed"),
        (of_fit(FitSettings { max_rounds: too_large, ..fit() }), "max_rounds"),
        (of_fit(FitSettings { agents: Some(too_large), ..fit() }), "agents"),
        (of_fit(FitSettings { pca: Some(too_large), ..fit() }), "pca"),
        (of_fit(FitSettings { batch: Some(too_large), ..by("fedlsa") }), "batch"),
        (of_fit(FitSettings { local_steps: Some(too_large), ..by("fedlsa") }), "local_steps"),
        (of_value(EvaluateSettings { seed: too_large, ..value() }), "seed"),
        (of_value(EvaluateSettings { max_rounds: too_large, ..value() }), "max_rounds"),
        (of_value(EvaluateSettings { local_steps: Some(too_large), ..fedlsa() }), "local_steps"),
    ] {
        assert_eq!((e.key.as_str(), e.value()), (key, Some("9223372036854775808")), "{e}");
    }
}

/// Names with spaces around them are the same methods.
#[test]
fn a_method_that_is_compared_with_itself_is_one() {
    let folder = folder();
    let path = folder.path("rows.libsvm").display().to_string();
    let settings =
        FitSettings { method: Some(" newton".into()), compare: vec!["newton ".into(), "giant".into()], ..FitSettings::new([&path]) };
    assert_eq!(settings.experiment().unwrap().labels().unwrap(), ["newton", "giant"]);
}

/// Data in memory are known by all that a fit depends on.
#[test]
fn a_fit_does_not_go_on_with_other_data_in_memory() {
    let folder = folder();
    let set = |names: [&str; 2]| Dataset {
        name: "mine".into(),
        rows: Rows::Dense { d: 2, values: vec![1.0, 2.0, 2.0, 1.0, 3.0, 5.0, 4.0, 2.0] },
        columns: Columns::Named(names.map(String::from).into()),
        targets: Some(Labels::Numbers(vec![0.0, 1.0, 0.0, 1.0])),
        groups: None,
        texts: Vec::new(),
        notes: Vec::new(),
    };
    let run = |names, if_exists| {
        let settings = FitSettings { agents: Some(2), ridge: Some(0.1), method: Some("newton".into()), ..FitSettings::default() };
        let fit = Fit::of_sets(&settings, vec![set(names)], &Cancel::never()).unwrap();
        let outcome = fit.run(RunSettings::default().in_folder(folder.path("o"), if_exists), &Unobserved, &Cancel::never())?;
        outcome.results(&Unobserved, &Cancel::never())
    };
    let fitted = run(["a", "b"], IfExists::Refuse).unwrap();
    fitted.write().unwrap();
    assert_eq!(run(["a", "b"], IfExists::Resume).unwrap().json(), fitted.json());
    let refused = run(["b", "a"], IfExists::Resume).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::OtherRun, "{refused}");
}

/// An option of `fedsa fit` is a field of the settings: its name, its text and its default are those of the field, in the JSON schema too, from which
/// Python has them.
#[test]
fn every_option_of_fit_is_a_setting_with_the_same_default() {
    options_are_settings::<FitSettings>();
}

/// So is one of `fedsa evaluate`.
#[test]
fn every_option_of_evaluate_is_a_setting_with_the_same_default() {
    options_are_settings::<EvaluateSettings>();
}

/// And of `fedsa tune`.
#[test]
fn every_option_of_tune_is_a_setting_with_the_same_default() {
    options_are_settings::<TuneSettings>();
}

fn options_are_settings<T: Args + Default + Serialize>() {
    let command = T::augment_args(Command::new("task"));
    let defaults = serde_json::to_value(T::default()).unwrap();
    let settings = defaults.as_object().unwrap();
    assert_eq!(command.get_arguments().count(), settings.len());
    for arg in command.get_arguments() {
        let name = arg.get_id().as_str();
        let default = settings.get(name).unwrap_or_else(|| panic!("{name} is a setting"));
        assert!(arg.get_long().is_none_or(|long| long == name.replace('_', "-")), "{name}");
        assert!(arg.get_help_heading().is_some() && arg.get_help().is_some(), "{name}");
        let given = arg.get_default_values().first().map(|text| text.to_string_lossy().to_string()).filter(|text| !text.is_empty());
        let said = match default {
            Value::Null => None,
            Value::Array(list) if list.is_empty() => None,
            Value::Object(table) if table.is_empty() => None,
            Value::Bool(is_on) => Some(is_on.to_string()),
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            other => panic!("{name}: {other}"),
        };
        // Flags have no value, and numbers several texts.
        if arg.is_required_set() {
            continue;
        }
        let is_same = match (number_of(&given), number_of(&said)) {
            (Some(given), Some(said)) => given == said,
            _ => given == said || said.as_deref() == Some("false") && given.is_none(),
        };
        assert!(is_same, "{name}: {given:?} {said:?}");
    }
}

fn number_of(text: &Option<String>) -> Option<f64> {
    text.as_ref()?.parse().ok()
}
