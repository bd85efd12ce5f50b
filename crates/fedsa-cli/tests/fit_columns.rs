//! `fedsa fit` on columns as people have them: two codings, labels that look alike, numbers in disguise, ids, rare levels, constant targets.

use crate::common::{Folder, Output};
use crate::fit::{fit, uniform};

/// Rows of `a`, of what a function of the row gives, and of a target.
fn table(header: &str, rows: usize, seed: usize, row: impl Fn(usize) -> String) -> String {
    let mut u = uniform();
    let _ = (0..seed).map(|_| u()).last();
    let lines: String = (0..rows).map(|i| format!("{},{}\n", u(), row(i))).collect();
    format!("{header}\n{lines}")
}

fn says(output: &Output, words: &[&str]) {
    let message = format!("{}{}", output.stdout, output.message());
    words.iter().for_each(|word| assert!(message.contains(word), "{message} lacks {word}"));
}

fn notes(folder: &Folder, run: &str) -> Vec<(String, String)> {
    let summary = folder.json(&format!("{run}/summary.json"));
    let text = |note: &serde_json::Value, key: &str| note[key].as_str().unwrap().to_string();
    summary["notes"].as_array().unwrap().iter().map(|note| (text(note, "code"), text(note, "text"))).collect()
}

fn says_in_notes(folder: &Folder, run: &str, code: &str, words: &[&str]) {
    let notes = notes(folder, run);
    let (_, text) = notes.iter().find(|(own, _)| own == code).unwrap_or_else(|| panic!("{code}: {notes:?}"));
    words.iter().for_each(|word| assert!(text.contains(word), "{text} lacks {word}"));
}

#[test]
fn a_category_that_is_coded_in_two_ways_is_refused_with_both_files() {
    let folder = Folder::new();
    folder.write("a.csv", table("a,colour,target", 30, 0, |i| format!("{},{}", i % 3, i % 7)));
    folder.write("b.csv", table("a,colour,target", 30, 1, |i| format!("{},{}", ["u", "v", "w"][i % 3], i % 7)));
    for options in ["", "--categorical colour"] {
        for files in ["a.csv b.csv", "b.csv a.csv"] {
            let run = fit(&folder, &format!("{files} --partition files --model least-squares {options} --out o")).exits(2);
            says(&run, &["the column `colour` holds numbers in a.csv, such as `0`, and text in b.csv, such as `u`"]);
        }
    }
    // Codes of which some are numbers are one coding.
    folder.write("c.csv", table("a,colour,target", 30, 1, |i| format!("{},{}", ["0", "1", "w"][i % 3], i % 7)));
    let run = fit(&folder, "a.csv c.csv --partition files --model least-squares --categorical colour --out p").exits(0);
    says(&run, &["categories of colour (rows): 1 (20), 2 (10), w (10) against 0 (20)"]);
}

#[test]
fn labels_that_differ_by_case_are_refused_with_their_files_and_rows() {
    let folder = Folder::new();
    folder.write("a.csv", table("a,label", 30, 0, |i| ["No", "Yes"][i * 7 % 5 % 2].into()));
    folder.write("b.csv", table("a,label", 20, 1, |i| ["No", "yes"][i * 7 % 5 % 2].into()));
    for options in ["", "--positive yes", "--model multinomial"] {
        let run = fit(&folder, &format!("a.csv b.csv --partition files {options} --out o")).exits(2);
        says(&run, &["differ by case or spaces alone: `Yes` (12 rows in a.csv), `yes` (8 rows in b.csv)"]);
    }
}

#[test]
fn a_class_against_all_others_names_them_and_two_numbers_need_no_choice() {
    let folder = Folder::new();
    folder.write("three.csv", table("a,label", 30, 0, |i| ["b", "c", "b", "a"][i % 4].into()));
    fit(&folder, "three.csv --agents 2 --positive b --out o").exits(0);
    says_in_notes(&folder, "o", "labels.positive", &["b (15 rows) is the positive class", "a (7 rows), c (8 rows)"]);
    folder.write("two.csv", table("a,label", 30, 0, |i| format!("{}", [2, 4, 2, 2, 4][i % 5])));
    fit(&folder, "two.csv --agents 2 --out p").exits(0);
    says_in_notes(&folder, "p", "labels.positive", &["4 (12 rows) is the positive class and 2 (18 rows) the negative one"]);
    folder.write("signs.csv", table("a,label", 30, 0, |i| format!("{}", [0, 1, 0, 0, 1][i % 5])));
    fit(&folder, "signs.csv --agents 2 --out q").exits(0);
    assert_eq!(notes(&folder, "q").iter().filter(|(code, _)| code == "labels.positive").count(), 0);
}

#[test]
fn a_constant_target_has_no_standard_errors_at_any_scale() {
    let folder = Folder::new();
    let columns = |scale: f64, y: &str| {
        let mut u = uniform();
        let row = |u: &mut dyn FnMut() -> f64| format!("{},{},{},{},{y}\n", scale * u(), scale * u(), u(), u());
        format!("a,b,c,d,target\n{}", (0..100).map(|_| row(&mut u)).collect::<String>())
    };
    for (scale, y, models) in [(1.0, "7", "least-squares gamma"), (1e6, "7e-9", "least-squares gamma"), (1e-3, "3e12", "least-squares")] {
        folder.write("flat.csv", columns(scale, y));
        for model in models.split(' ') {
            let run = fit(&folder, &format!("flat.csv --agents 4 --model {model} --inference --out o --overwrite")).exits(1);
            says(&run, &["all rows have the target", "nothing is left to estimate standard errors from"]);
        }
    }
    folder.write("flat.csv", columns(1.0, "7"));
    for options in ["least-squares", "huber --huber-delta 1", "poisson", "gamma", "poisson --inference"] {
        fit(&folder, &format!("flat.csv --agents 4 --model {options} --out o --overwrite")).exits(0);
        says_in_notes(&folder, "o", "target.constant", &["all rows to fit have the target 7"]);
    }
}

#[test]
fn numbers_and_dates_in_disguise_are_named_with_their_place() {
    let folder = Folder::new();
    for (text, what) in [
        ("71.2%", "a number with a percent sign"),
        ("\"$1,234\"", "a number with a currency sign"),
        ("\"1,234\"", "a number with separators of thousands"),
        ("\"1,5\"", "a number with a decimal comma"),
        ("2024-01-31", "a date"),
        ("NA", "a missing value"),
    ] {
        let shown = text.trim_matches('"');
        for (at, other) in [(0, "3"), (4, "3"), (4, "x")] {
            folder.write("a.csv", table("a,b,target", 9, 0, |i| format!("{},{i}", if i == at { text } else { other })));
            let run = fit(&folder, "a.csv --agents 2 --model least-squares --out o").exits(2);
            says(&run, &[&format!("line {}, column `b`: `{shown}` is {what}", at + 2), "--categorical"]);
        }
    }
    // A column that is named has any text: Namibia comes first or later.
    for at in [0, 4] {
        folder.write("a.csv", table("a,country,target", 9, 0, |i| format!("{},{i}", if i == at { "NA" } else { ["ZA", "BW"][i % 2] })));
        fit(&folder, "a.csv --agents 2 --model least-squares --out o --overwrite").exits(2);
        let run = fit(&folder, "a.csv --agents 2 --model least-squares --categorical country --out o --overwrite").exits(0);
        says(&run, &["NA (1)"]);
    }
    folder.write("y.csv", table("a,target", 9, 0, |i| format!("{i}.5%")));
    let run = fit(&folder, "y.csv --agents 2 --model least-squares --out p").exits(2);
    says(&run, &["row 1: the target `0.5%` is a number with a percent sign"]);
}

#[test]
fn a_decimal_comma_that_was_assumed_is_a_note() {
    let folder = Folder::new();
    folder.write("a.csv", "a;target\n1,234;0\n2,5;1\n3,5;2\n4,25;2\n");
    fit(&folder, "a.csv --agents 2 --model least-squares --out o").exits(0);
    says_in_notes(&folder, "o", "data.decimal-comma", &["a.csv: a comma is the decimal mark: `1,234` in line 2 is 1.234"]);
}

#[test]
fn ids_of_many_digits_are_groups_and_categories() {
    let folder = Folder::new();
    let id = |i: usize| 1_582_218_195_625_938_940 + (i % 3) as u64;
    folder.write("a.csv", table("a,id,target", 30, 0, |i| format!("{},{}", id(i), i % 7)));
    let run = fit(&folder, "a.csv --group id --model least-squares --out o").exits(0);
    says(&run, &["10 rows of 1582218195625938940, 10 rows of 1582218195625938941, 10 rows of 1582218195625938942"]);
    let run = fit(&folder, "a.csv --agents 2 --model least-squares --categorical id --out p").exits(0);
    says(&run, &["1582218195625938941 (10), 1582218195625938942 (10) against 1582218195625938940 (10)"]);
}

#[test]
fn the_reference_is_the_most_frequent_level_and_a_rare_one_is_a_note() {
    let folder = Folder::new();
    let job = |i: usize| if i == 0 { "Farming" } else { ["Nurse", "Smith", "Smith", "nurse"][i % 4] };
    folder.write("a.csv", table("a,job,target", 61, 0, |i| format!("{},{}", job(i), i % 7)));
    let run = fit(&folder, "a.csv --agents 2 --model least-squares --inference --out o").exits(0);
    says(&run, &["categories of job (rows): Farming (1), Nurse (15), nurse (15) against Smith (30)", "job=Farming"]);
    says_in_notes(&folder, "o", "levels.rare", &["the column \"job\" has levels with fewer than 5 rows", "\"Farming\" (1 row)"]);
    says_in_notes(&folder, "o", "levels.alike", &["\"Nurse\" (15 rows) and \"nurse\" (15 rows)"]);
    let levels = &folder.json("o/summary.json")["fit"]["levels"];
    assert_eq!(levels[2], serde_json::json!({ "column": "job", "name": "Smith", "rows": 30, "reference": true }));
    assert_eq!(levels[3], serde_json::json!({ "column": "job", "name": "nurse", "rows": 15, "reference": false }));
    assert_eq!(folder.json("o/weights.json")["categories"][0]["reference"], "Smith");
    fit(&folder, "a.csv --agents 2 --model least-squares --out q").exits(0);
    folder.run(&["predict", "q/weights.json", "a.csv", "--out", "predictions.csv"]).exits(0);
}
