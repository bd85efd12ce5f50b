//! `fedsa fit` with models beside logistic and least squares, and its inference.

use crate::common::Folder;
use crate::fit::{fit, uniform};

/// Rows of counts by a formula: x, an exposure's logarithm, a region as text, and counts.
fn counts(rows: usize) -> String {
    let mut uniform = uniform();
    let mut csv = "x,log_exposure,region,site,weight,count\n".to_string();
    for i in 0..rows {
        let (x, e, v) = (2.0 * uniform() - 1.0, uniform(), uniform());
        let mean = (0.3 + 0.7 * x + e + if i % 3 == 1 { 0.5 } else { 0.0 }).exp();
        let count = (-(1.0 - 0.99 * v).ln() * mean).round();
        csv += &format!("{x},{e},{},{},{},{count}\n", ["north", "south", "west"][i % 3], i % 11, 1 + i % 2);
    }
    csv
}

/// Coefficients with standard errors as a new user asks for them, and what is printed.
#[test]
fn inference_is_printed_and_written_for_categories_offsets_and_weights() {
    let folder = Folder::new();
    folder.write("counts.csv", counts(330));
    let options = "counts.csv --model poisson --target count --offset log_exposure --row-weights weight --drop site --inference";
    let run = fit(&folder, &format!("{options} --agents 5 --method newton --out o")).exits(0);
    for words in [
        "an intercept (--intercept=false leaves it out), no ridge",
        "categories of region (rows): south (110), west (110) against north (110)",
        "coefficient",
        "region=south",
        "as R and statsmodels",
        "exchanges after the fit",
    ] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
    let inference = &folder.json("o/summary.json")["inference"];
    let named = |name: &str| inference["coefficients"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap().clone();
    assert_eq!((inference["family"].as_str(), inference["n"].as_u64()), (Some("poisson"), Some(330)));
    let (x, weights) = (named("x"), folder.json("o/weights.json"));
    assert_eq!(x["estimate"], weights["coefficients"][0], "weights are those of the estimate");
    assert!((x["estimate"].as_f64().unwrap() - 0.7).abs() < 0.3 && x["p"].as_f64().unwrap() < 1e-6, "{x}");
    assert!(x["low"].as_f64().unwrap() < x["estimate"].as_f64().unwrap());
    // Another method and other agents: the same estimate.
    fit(
        &folder,
        "counts.csv --model poisson --target count --offset log_exposure --row-weights weight --inference=clustered \
        --group site --method giant --standardise --out p",
    )
    .exits(0);
    let other = &folder.json("p/summary.json")["inference"];
    for (a, b) in inference["coefficients"].as_array().unwrap().iter().zip(other["coefficients"].as_array().unwrap()) {
        let (x, y) = (a["estimate"].as_f64().unwrap(), b["estimate"].as_f64().unwrap());
        assert!((x - y).abs() < 1e-9 && a["name"] == b["name"], "{a} {b}");
    }
    // Few agents: a warning. What is predicted takes the columns as they are, and its mean is that of the counts.
    let few =
        fit(&folder, &format!("{options} --group region --method newton --out q").replace("--inference", "--inference=clustered")).exits(0);
    assert!(few.stdout.contains("warning: 3 agents"), "{}", few.stdout);
    let predicted = folder.run(&["predict", "o", "counts.csv"]).exits(0).stdout;
    let column = |line: &str, i: usize| line.split(',').nth(i).unwrap().parse::<f64>().unwrap();
    let sums = predicted.lines().skip(1).fold((0.0, 0.0), |(a, b), line| {
        // The name of the agent is the first column.
        let w = column(line, 5);
        (a + w * column(line, 6), b + w * column(line, 7))
    });
    assert!((sums.0 / sums.1 - 1.0).abs() < 1e-9, "the score of the intercept is 0: {sums:?}");
    folder.write("new.csv", "x,log_exposure,region\n0.1,0,east\n");
    let message = folder.run(&["predict", "o", "new.csv"]).exits(2).message();
    assert!(message.contains("`east`") && message.contains("row 1"), "{message}");
}

/// Levels that are compared with different references are other coefficients.
#[test]
fn coefficients_against_other_references_are_not_beside_each_other() {
    let folder = Folder::new();
    for (run, levels) in [("a", ["u", "u", "v", "w"]), ("b", ["v", "v", "u", "w"])] {
        let rows: String = (0..80).map(|i| format!("{},{},{}\n", i % 7, levels[i % 4], i * i % 11)).collect();
        folder.write(&format!("{run}.csv"), format!("x,g,target\n{rows}"));
        fit(&folder, &format!("{run}.csv --model least-squares --inference --agents 2 --out {run}")).exits(0);
    }
    let said = folder.run(&["diff", "a", "b"]).exits(0).stdout;
    for line in ["  the reference of g: u | v", "  g=w against u: ", "  g=w against v: - | ", "  x: "] {
        assert!(said.contains(line), "`{line}` is not in\n{said}");
    }
    assert!(!said.contains("  g=w: "), "{said}");
}

/// Fits that differ in the covariance only are told apart, and beside each other in lists, comparisons, pictures and reports.
#[test]
fn fits_are_compared_listed_and_drawn_by_their_coefficients() {
    let folder = Folder::new();
    folder.write("counts.csv", counts(200));
    let options = "counts.csv --model poisson --target count --drop site,weight --inference --method newton --agents 4";
    fit(&folder, &format!("{options} --out runs/a")).exits(0);
    fit(&folder, &format!("{options} --out runs/b").replace("--inference", "--inference=sandwich")).exits(0);
    let said = folder.run(&["diff", "runs/a", "runs/b"]).exits(0).stdout;
    assert!(said.contains("  inference.covariance: model | sandwich") && !said.contains("settings: the same"), "{said}");
    let line = said.lines().find(|line| line.starts_with("  x: ")).unwrap_or_else(|| panic!("{said}"));
    let (a, b) = line.split_once(" | ").unwrap();
    assert!(a.contains(" (") && b.contains(" (") && !a.ends_with(b), "an estimate with its error on both sides: {line}");
    let pairs = folder.run(&["diff", "runs/a", "runs/b", "--json"]).exits(0).stdout;
    let pairs: serde_json::Value = serde_json::from_str(&pairs).unwrap();
    let x = pairs["coefficients"].as_array().unwrap().iter().find(|pair| pair["name"] == "x").unwrap();
    assert!(x["a"]["estimate"] == x["b"]["estimate"] && x["a"]["se"] != x["b"]["se"], "{x}");
    let list = folder.run(&["list", "runs"]).exits(0).stdout;
    assert!(list.contains("poisson, n = 200, AIC ") && list.contains("region against north"), "{list}");
    folder.run(&["report", "runs/a", "--out", "page.html"]).exits(0);
    let page = String::from_utf8(folder.read("page.html")).unwrap();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("The picture coefficients.svg") < at("id=\"results\"") && at("The picture coefficients.svg") < at("id=\"curves\""));
    let picture = String::from_utf8(folder.read("runs/a/coefficients.svg")).unwrap();
    assert!(picture.contains("region=south") && picture.contains("covariance model"), "{picture}");
    // They are drawn again as they were, in another style or format too.
    let again = folder.run(&["plot", "runs/a"]).exits(0).says("coefficients.svg");
    assert_eq!(String::from_utf8(folder.read("runs/a/coefficients.svg")).unwrap(), picture, "{}", again.stdout);
    folder.run(&["plot", "runs/a", "--set", "figure.formats=[\"png\"]"]).exits(0);
    assert!(folder.read("runs/a/coefficients.png").starts_with(b"\x89PNG"));
    // A picture of very many coefficients shows the first ones; without inference it has no intervals.
    fit(&folder, "counts.csv --model poisson --target count --drop site --out runs/c").exits(0);
    assert!(String::from_utf8(folder.read("runs/c/coefficients.svg")).unwrap().contains("a fit with inference has intervals"));
}

/// Rates are no counts, and statsmodels' AIC of gamma differs by no round number.
#[test]
fn targets_that_are_no_counts_are_told_and_the_aic_is_said_to_be_that_of_others_only_where_it_is() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|i| format!("{},{}\n", f64::from(i) / 60.0, 0.25 + f64::from((7 * i) % 11))).collect();
    folder.write("rates.csv", format!("x,rate\n{rows}"));
    let run = fit(&folder, "rates.csv --model poisson --target rate --agents 3 --out o").exits(0);
    assert!(run.stdout.contains("warning: 60 of 60 targets of the poisson model are no whole numbers, such as "), "{}", run.stdout);
    let codes = |out: &str| -> Vec<String> {
        let notes = folder.json(&format!("{out}/summary.json"))["notes"].clone();
        notes.as_array().unwrap().iter().map(|note| note["code"].as_str().unwrap().to_string()).collect()
    };
    assert!(codes("o").contains(&"targets.fractional".to_string()), "{:?}", codes("o"));
    let gamma = fit(&folder, "rates.csv --model gamma --target rate --agents 3 --inference --out p").exits(0);
    assert!(gamma.stdout.contains("which statsmodels does not count)") && !gamma.stdout.contains("2 less"), "{}", gamma.stdout);
    assert!(!codes("p").contains(&"targets.fractional".to_string()));
    let gaussian = fit(&folder, "rates.csv --model least-squares --target rate --agents 3 --inference --out q").exits(0);
    assert!(gaussian.stdout.contains("its AIC is 2 less"), "{}", gaussian.stdout);
}

#[test]
fn what_has_no_estimate_is_named_with_the_exit_status_1() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i, (i * 7) % 11, u8::from(i > 20))).collect();
    folder.write("separated.csv", format!("time,other,label\n{rows}"));
    let run = fit(&folder, "separated.csv --inference --agents 2 --out o").exits(1);
    assert!(run.message().contains("separated by `time`") && run.message().contains("--ridge"), "{}", run.message());
    assert!(!folder.path("o").exists(), "nothing is written");
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i, 3 * i + 2, (i * 7) % 11)).collect();
    folder.write("collinear.csv", format!("a,b,y\n{rows}"));
    let run = fit(&folder, "collinear.csv --target y --model least-squares --inference --agents 2 --out o").exits(1);
    assert!(run.message().contains("`b` is a combination of") && run.message().contains("--drop"), "{}", run.message());
    for (options, words) in [
        ("--model least-squares --inference --ridge 1e-3", "--ridge"),
        ("--model least-squares --inference --weighting equal", "--weighting"),
        ("--model least-squares --inference --level 1", "--level"),
        ("--model least-squares --inference=other", "--inference"),
        ("--model least-squares --inference --set problem.ridge=0.1", "--ridge"),
        ("--model huber", "--huber-delta"),
        ("--model poisson --dispersion 2", "--dispersion"),
        ("--model poisson --positive 1", "--positive"),
        ("--model huber --huber-delta 1 --inference", "--inference"),
    ] {
        let run = fit(&folder, &format!("collinear.csv --target y --drop b --agents 2 {options} --out o")).exits(2);
        assert!(run.message().contains(words), "{options}: {}", run.message());
    }
}

/// Codes are texts in all files if they are in one: the coefficients of two files are those of one with the same rows, and `predict` knows them.
#[test]
fn codes_are_the_same_levels_in_one_file_and_in_two() {
    let folder = Folder::new();
    let mut uniform = uniform();
    let mut rows = |codes: [&str; 3]| -> String {
        (0..60).map(|i| format!("{},{},{}\n", codes[i % 3], uniform(), uniform() + (i % 3) as f64)).collect()
    };
    let (a, b) = (rows(["001", "002", "003"]), rows(["001", "002", "X"]));
    for (name, rows) in [("a.csv", a.clone()), ("b.csv", b.clone()), ("all.csv", a + &b)] {
        folder.write(name, format!("c,x,y\n{rows}"));
    }
    let options = "--target y --categorical c --model least-squares --inference";
    fit(&folder, &format!("a.csv b.csv --partition files {options} --out two")).exits(0);
    fit(&folder, &format!("all.csv --agents 2 {options} --out one")).exits(0);
    let coefficients = |out: &str| -> Vec<(String, f64)> {
        let all = folder.json(&format!("{out}/summary.json"))["inference"]["coefficients"].clone();
        all.as_array().unwrap().iter().map(|c| (c["name"].as_str().unwrap().to_string(), c["estimate"].as_f64().unwrap())).collect()
    };
    let (two, one) = (coefficients("two"), coefficients("one"));
    assert_eq!(two.iter().map(|c| c.0.as_str()).collect::<Vec<_>>(), ["intercept", "x", "c=002", "c=003", "c=X"]);
    two.iter().zip(&one).for_each(|(a, b)| assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-9, "{a:?} {b:?}"));
    let predicted = |out: &str| folder.run(&["predict", out, "a.csv"]).exits(0).stdout.lines().count();
    assert_eq!((predicted("two"), predicted("one")), (61, 61));
    folder.write("other.csv", "c,x\n1,0.5\n");
    assert!(folder.run(&["predict", "two", "other.csv"]).exits(2).message().contains("the level `1`"));
}

/// Columns whose squares are no numbers have errors in their units, and bits of inference are counted.
#[test]
fn errors_of_tiny_and_huge_columns_are_in_their_units() {
    let folder = Folder::new();
    let table = |by: [f64; 2]| {
        let mut uniform = uniform();
        let rows = (0..60).map(|_| {
            let (a, b) = (uniform() - 0.5, uniform() - 0.5);
            format!("{:e},{:e},{}\n", a * by[0], b * by[1], 1.0 + a - b + 0.2 * uniform())
        });
        format!("a,b,y\n{}", rows.collect::<String>())
    };
    folder.write("plain.csv", table([1.0, 1.0]));
    folder.write("far.csv", table([1e-170, 1e170]));
    let options = "--target y --model least-squares --inference --standardise --agents 2";
    let errors = |name: &str| -> Vec<f64> {
        let run = fit(&folder, &format!("{name}.csv {options} --out {name}")).exits(0);
        assert!(run.stdout.contains("Mbit up"), "{}", run.stdout);
        let inference = folder.json(&format!("{name}/summary.json"))["inference"].clone();
        // Two agents, a header and a part in each exchange, and 8 bytes a number.
        let (exchanges, numbers) = (inference["exchanges"].as_u64().unwrap(), inference["numbers_up"].as_u64().unwrap());
        assert_eq!(inference["bits_up"], 2 * 8 * (33 * exchanges + 8 * numbers));
        let all = inference["coefficients"].as_array().unwrap().iter().map(|c| c["se"].as_f64().unwrap());
        all.collect()
    };
    let (plain, far) = (errors("plain"), errors("far"));
    plain.iter().zip([1.0, 1e170, 1e-170]).zip(&far).for_each(|((a, by), b)| assert!((a * by / b - 1.0).abs() < 1e-9, "{plain:?} {far:?}"));
}

/// Settings that nothing would use.
#[test]
fn settings_without_effect_are_refused() {
    let folder = Folder::new();
    folder.write("rows.csv", counts(60));
    for (options, words) in [
        ("--bandwidth 1e6", ["--bandwidth", "--objective seconds"]),
        ("--latency 1 --objective rounds", ["--latency", "few rounds"]),
        ("--objective rounds --method lbfgs", ["--objective", "the method is given"]),
        ("--sampling iid", ["--sampling", "auto uses all rows"]),
        ("--offset x --row-weights x", ["--row-weights", "the offset besides"]),
        ("--categorical count", ["--categorical", "is the target"]),
    ] {
        let run = fit(&folder, &format!("rows.csv --target count --model poisson --drop site {options} --out o")).exits(2);
        words.into_iter().for_each(|word| assert!(run.message().contains(word), "{options}: {}", run.message()));
    }
}

/// Every model by its name, and what it predicts.
#[test]
fn models_are_fitted_and_applied_by_name() {
    let folder = Folder::new();
    folder.write("counts.csv", counts(330));
    let rows = "counts.csv --drop site,weight --agents 4 --method newton";
    for (model, options) in [
        ("poisson", "--target count"),
        ("negative-binomial", "--target count --dispersion 0.5"),
        ("huber", "--target count --huber-delta 1.5"),
        ("gamma", "--target log_exposure"),
        ("multinomial", "--target region --reference west"),
    ] {
        fit(&folder, &format!("{rows} --model {model} {options} --out {model} -q")).exits(0);
        let weights = folder.json(&format!("{model}/weights.json"));
        assert_eq!((weights["model"].as_str(), weights["outcome"].as_str()), (Some(model), Some("converged")));
        let said = folder.run(&["predict", model, "counts.csv", "--out", &format!("{model}.csv")]).exits(0);
        assert!(said.stdout.contains("330"), "{}", said.stdout);
        // From Parquet, with columns of text, they are the same to the last digit.
        folder.run(&["predict", model, "counts.csv", "--out", "rows.parquet", "--column", "first", "--overwrite"]).exits(0);
        let from = |file: &str| folder.run(&["predict", model, file, "--column", "second"]).exits(0).stdout;
        let last = |text: &str| text.lines().map(|line| line.rsplit(',').next().unwrap().to_string()).collect::<Vec<String>>();
        assert_eq!(last(&from("rows.parquet")), last(&from("counts.csv")), "{model}");
        // The default method ends in the same minimum, with agents that differ too.
        let theta = |out: &str| -> Vec<f64> {
            let all = folder.json(&format!("{out}/weights.json"))["coefficients"].clone();
            let blocks = all.as_array().unwrap().iter().flat_map(|x| x.as_array().cloned().unwrap_or_else(|| vec![x.clone()]));
            blocks.map(|x| x.as_f64().unwrap()).collect()
        };
        for partition in ["shuffled", "sorted"] {
            let out = format!("{model}-auto");
            let auto = format!("counts.csv --drop site,weight --agents 4 --model {model} {options} --partition {partition}");
            let run = fit(&folder, &format!("{auto} --method auto --tol 1e-9 --out {out} --overwrite")).exits(0);
            let weights = folder.json(&format!("{out}/weights.json"));
            assert_eq!((weights["method"].as_str(), weights["outcome"].as_str()), (Some("auto"), Some("converged")), "{}", run.stdout);
            fit(&folder, &format!("{auto} --method newton --tol 1e-11 --out {out}-newton --overwrite -q")).exits(0);
            let (a, b) = (theta(&out), theta(&format!("{out}-newton")));
            assert!(a.len() == b.len() && !a.is_empty());
            a.iter().zip(&b).for_each(|(a, b)| assert!((a - b).abs() < 1e-6 * (1.0 + b.abs()), "{model}, {partition}: {a} {b}"));
        }
    }
    let weights = folder.json("multinomial/weights.json");
    assert_eq!(weights["classes"], serde_json::json!(["west", "north", "south"]));
}
