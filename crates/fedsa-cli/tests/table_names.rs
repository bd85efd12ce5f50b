//! `fedsa fit` and `fedsa predict` on tables with names and marks as people have them: sites, names with commas, a column called as the
//! intercept is, semicolons and decimal commas.

use crate::common::{Folder, Output};
use crate::fit::{fit, uniform};

fn said(run: &Output, words: &[&str]) {
    let text = format!("{}{}", run.stdout, run.message());
    words.iter().for_each(|words| assert!(text.contains(words), "{words}: {text}"));
}

/// Rows of three sites: two numbers, a class of three and a number that follow from them.
fn rows() -> Vec<(&'static str, [f64; 3], &'static str)> {
    let mut u = uniform();
    let row = |i: usize| {
        let [a, b, noise] = std::array::from_fn(|_| ((u() - 0.5) * 1e4).round() / 1e3);
        let class = ["low", "mid", "high"][usize::from(a - b + noise > -1.5) + usize::from(a - b + noise > 1.5)];
        (["berlin", "paris", "rome"][i % 3], [a, b, a - b + noise], class)
    };
    (0..120).map(row).collect()
}

fn table(header: &str, line: impl Fn(&str, [f64; 3], &str) -> String) -> String {
    let lines: String = rows().iter().map(|(site, numbers, class)| format!("{}\n", line(site, *numbers, class))).collect();
    format!("{header}\n{lines}")
}

/// The fields of a column of CSV without quotes.
fn column(csv: &str, name: &str) -> Vec<String> {
    let place = csv.lines().next().unwrap().split(',').position(|other| other == name);
    let place = place.unwrap_or_else(|| panic!("{name}: {csv}"));
    csv.lines().skip(1).map(|line| line.split(',').nth(place).unwrap().to_string()).collect()
}

#[test]
fn every_class_has_a_column_of_its_probability() {
    let folder = Folder::new();
    folder.write("a.csv", table("a,b,label", |_, [a, b, _], class| format!("{a},{b},{class}")));
    fit(&folder, "a.csv --model multinomial --agents 3 --out m").exits(0);
    let csv = folder.run(&["predict", "m", "a.csv"]).exits(0).stdout;
    let of = |name: &str| column(&csv, name).iter().map(|x| x.parse().unwrap()).collect::<Vec<f64>>();
    let each = ["low", "mid", "high"].map(|class| of(&format!("probability_{class}")));
    let (predicted, best) = (column(&csv, "prediction"), of("probability"));
    for (i, class) in predicted.iter().enumerate() {
        let row = each.each_ref().map(|all| all[i]);
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{row:?}");
        let k = ["low", "mid", "high"].iter().position(|other| other == class).unwrap();
        assert!(row[k] == best[i] && row.iter().all(|p| *p <= row[k]), "{class}: {row:?}");
    }
    fit(&folder, "a.csv --positive high --agents 3 --out l").exits(0);
    let run = folder.run(&["predict", "l", "a.csv", "--column", "risk", "--out", "l.csv"]).exits(0);
    said(&run, &["with the columns risk_probability, risk_probability_high and risk"]);
    assert_eq!(column(&folder.text("l.csv"), "risk_probability"), column(&folder.text("l.csv"), "risk_probability_high"));
}

/// Agents that people have named keep their names.
#[test]
fn agents_are_called_as_files_and_columns_call_them() {
    let folder = Folder::new();
    folder.write("all.csv", table("site,a,b,y,label", |site, [a, b, y], class| format!("{site},{a},{b},{y},{class}")));
    let run = fit(&folder, "all.csv --group site --model least-squares --target y --drop label --out o").exits(0);
    said(&run, &["agents: 40 rows of berlin, 40 rows of paris, 40 rows of rome"]);
    let named = serde_json::json!([{ "name": "berlin", "rows": 40 }, { "name": "paris", "rows": 40 }, { "name": "rome", "rows": 40 }]);
    assert_eq!(folder.json("o/weights.json")["named_agents"], named);
    fit(&folder, "all.csv --agents 3 --model least-squares --target y --drop label,site --out p").exits(0);
    assert_eq!(folder.json("p/weights.json")["named_agents"], serde_json::json!(null));
    folder.write("sites/one.csv", "a,w,y\n1,0,1\n");
    folder.write("sites/two.csv", "a,w,y\n1,1,1\n2,1,0\n3,0,1\n4,1,0\n");
    let options = "sites --partition files --model least-squares --target y";
    said(&fit(&folder, &format!("{options} --drop w --holdout 0.3 --out q")).exits(2), &["agent `sites/one` has one row, of which none"]);
    said(&fit(&folder, &format!("{options} --row-weights w --out q")).exits(2), &["all rows of agent `sites/one` have the weight 0"]);
    folder.write("sites/all.csv", "a,site,y\n1,x,1\n2,x,2\n3,y,1\n");
    let run = fit(&folder, "sites/all.csv --group site --model least-squares --target y --holdout 0.3 --out q").exits(2);
    said(&run, &["--holdout: agent `y` has one row"]);
}

#[test]
fn names_with_a_comma_are_given_in_quotes() {
    let folder = Folder::new();
    folder.write("a.csv", table("\"dose, mg\",\"the \"\"b\"\"\",y,label", |_, [a, b, y], class| format!("{a},{b},{y},{class}")));
    let with = |drop: &str| {
        let args = ["fit", "a.csv", "--target", "y", "--model", "least-squares", "--agents", "3", "--out", "o", "--overwrite", "--drop"];
        folder.run(&[&args[..], &[drop]].concat())
    };
    for drop in ["\"dose, mg\",label", "label, \"dose, mg\" ", "\"label\",\"dose, mg\""] {
        with(drop).exits(0);
        assert_eq!(folder.json("o/weights.json")["columns"], serde_json::json!(["the \"b\""]), "{drop}");
    }
    with("\"the \"\"b\"\"\",label").exits(0);
    assert_eq!(folder.json("o/weights.json")["columns"], serde_json::json!(["dose, mg"]));
    said(&with("\"dose, mg,label").exits(2), &["a quote that is not closed", "'\"a, b\",c'"]);
    said(&with("\"dose\" mg,label").exits(2), &["a quote that is closed in the middle of a name"]);
    said(&with("dose, mg,label").exits(2), &["there is no column `dose`"]);
}

#[test]
fn a_column_called_intercept_is_no_second_intercept() {
    let folder = Folder::new();
    folder.write("a.csv", table("a,intercept,y", |_, [a, b, y], _| format!("{a},{b},{y}")));
    folder.write("b.csv", table("a,other,y", |_, [a, b, y], _| format!("{a},{b},{y}")));
    let options = "--model least-squares --target y --agents 3";
    let run = fit(&folder, &format!("a.csv {options} --inference --out o")).exits(2);
    said(&run, &["--inference", "a column called `intercept` beside the intercept of the model", "--drop"]);
    assert!(!folder.path("o").exists());
    fit(&folder, &format!("a.csv {options} --inference --intercept=false --out o")).exits(0);
    let names = folder.json("o/summary.json")["inference"]["coefficients"].clone();
    assert_eq!(names.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "intercept"]);
    // Without inference coefficients are in columns, and the intercept is apart.
    for name in ["a", "b"] {
        fit(&folder, &format!("{name}.csv {options} --out {name}")).exits(0);
    }
    let [a, b] = ["a", "b"].map(|name| folder.json(&format!("{name}/weights.json")));
    assert_eq!((&a["coefficients"], &a["intercept"]), (&b["coefficients"], &b["intercept"]));
    let predictions = ["a", "b"].map(|name| folder.run(&["predict", name, &format!("{name}.csv")]).exits(0).stdout);
    assert_eq!(column(&predictions[0], "prediction"), column(&predictions[1], "prediction"));
}

/// The same numbers, however fields are separated and decimals are marked.
#[test]
fn tables_with_semicolons_and_decimal_commas_are_fitted() {
    let folder = Folder::new();
    let points = table("site,a,b,y", |site, [a, b, y], _| format!("{site},{a},{b},{y}"));
    let commas = points.replace(',', ";").replace('.', ",");
    folder.write("points.csv", &points);
    folder.write("commas.csv", &commas);
    let options = "--group site --model least-squares --target y";
    for name in ["points", "commas"] {
        fit(&folder, &format!("{name}.csv {options} --out {name}")).exits(0);
    }
    let [a, b] = ["points", "commas"].map(|name| folder.json(&format!("{name}/weights.json")));
    assert_eq!((&a["theta"], &a["named_agents"]), (&b["theta"], &b["named_agents"]));
    let [points, predicted] = ["points.csv", "commas.csv"].map(|data| folder.run(&["predict", "points", data]).exits(0));
    assert_eq!(column(&points.stdout, "prediction"), column(&predicted.stdout, "prediction"));
    said(&predicted, &["root mean square error"]);
    folder.write("mixed.csv", commas.replacen("berlin;", "berlin;1.5;2;3\nberlin;", 1));
    let run = fit(&folder, &format!("mixed.csv {options} --out m")).exits(2);
    said(&run, &["DATA: mixed.csv: line 2: `1.5` has a decimal point, and `", "in line 3 a comma", "one decimal mark"]);
}

/// A path is named once.
#[test]
fn messages_about_data_name_the_path_once() {
    let folder = Folder::new();
    folder.write("a.csv", "x,y\n1,z\n");
    for args in [&["fit", "none.csv"][..], &["fit", "a.csv", "--target", "x", "--model", "poisson", "--drop", "q"]] {
        let message = folder.run(args).exits(2).message();
        let path = args[1];
        assert_eq!(message.matches(path).count(), 1, "{message}");
    }
}

/// As everywhere, a place that the machine refuses to write to is not bad input.
#[test]
fn a_folder_that_cannot_be_made_is_a_failure_of_the_machine() {
    let folder = Folder::new();
    folder.write("a.csv", table("a,b,y", |_, [a, b, y], _| format!("{a},{b},{y}")));
    let options = "a.csv --model least-squares --target y --agents 3 --overwrite --out";
    said(&fit(&folder, &format!("{options} /proc/nowhere")).exits(3), &["cannot be written", "that you may write to"]);
    said(&fit(&folder, &format!("{options} a.csv/o")).exits(2), &["a.csv/o cannot be written"]);
    fit(&folder, &format!("{options} o")).exits(0);
    let run = folder.run(&["predict", "o", "a.csv", "--out", "/proc/p.csv"]).exits(3);
    said(&run, &["cannot be written"]);
}
