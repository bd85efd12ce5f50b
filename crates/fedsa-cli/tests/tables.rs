//! `fedsa fit` and `fedsa predict` on tables as people have them: large counts, columns without a common scale, constant targets, data that
//! change between two runs, and the messages about them.

use crate::common::{Folder, Output};
use crate::fit::{fit, uniform};

/// A table of rows by a function of three uniform numbers.
fn rows(header: &str, n: usize, row: impl Fn(usize, [f64; 3]) -> String) -> String {
    let mut u = uniform();
    let mut csv = format!("{header}\n");
    (0..n).for_each(|i| csv += &format!("{}\n", row(i, std::array::from_fn(|_| u()))));
    csv
}

fn coefficients(folder: &Folder, out: &str) -> Vec<f64> {
    let weights = folder.json(&format!("{out}/weights.json"));
    let all = weights["coefficients"].as_array().unwrap().iter().chain([&weights["intercept"]]);
    all.map(|x| x.as_f64().unwrap()).collect()
}

fn said(run: &Output, words: &[&str]) {
    let text = format!("{}{}", run.stdout, run.message());
    words.iter().for_each(|words| assert!(text.contains(words), "{words}: {text}"));
}

/// Newton's first step from 0 is as long as the mean, and the loss overflows there.
#[test]
fn counts_of_any_size_are_fitted_by_default() {
    let folder = Folder::new();
    for mean in [300.0, 1e3, 1e4, 1e6, 1e9] {
        let csv = rows("x,y", 200, |_, [a, b, _]| {
            let x = 2.0 * a - 1.0;
            format!("{x},{}", (mean * (0.3 * x).exp() * (0.9 + 0.2 * b)).round())
        });
        folder.write("counts.csv", csv);
        let options = "counts.csv --model poisson --target y --agents 4 --overwrite";
        let run = fit(&folder, &format!("{options} --out auto")).exits(0);
        let auto = coefficients(&folder, "auto");
        assert!((auto[0] - 0.3).abs() < 0.05 && (auto[1] - mean.ln()).abs() < 0.05, "{mean}: {auto:?} {}", run.stdout);
        // The line search of `newton` has no step that is short enough for a mean of 1e9.
        if mean > 1e6 {
            continue;
        }
        fit(&folder, &format!("{options} --method newton --out newton")).exits(0);
        let newton = coefficients(&folder, "newton");
        auto.iter().zip(&newton).for_each(|(a, b)| assert!((a - b).abs() <= 1e-9 * b.abs(), "{mean}: {a} {b} {}", run.stdout));
    }
}

/// Weights of a run that went wrong are used with a warning, and the exit status has its reason without a report too.
#[test]
fn a_run_that_diverged_says_so_wherever_its_weights_go() {
    let folder = Folder::new();
    folder.write("a.csv", rows("x,y", 40, |_, [a, b, _]| format!("{a},{b}")));
    let options = "a.csv --model least-squares --target y --agents 2 --method fedlsa --local-steps 1 --max-rounds 400 --step-size 9";
    let run = fit(&folder, &format!("{options} --force --out o -q")).exits(1);
    assert!(run.stdout.is_empty(), "{}", run.stdout);
    said(&run, &["fit: fedlsa: diverged in round"]);
    let run = fit(&folder, &format!("{options} --force --out o -q --resume")).exits(1);
    said(&run, &["already done", "NOT as expected"]);
    let predicted = folder.run(&["predict", "o", "a.csv"]);
    said(&predicted, &["warning: the fit of these weights ended as diverged"]);
}

/// A year, an income, a large number and a tiny one.
fn unscaled() -> String {
    rows("year,income,large,tiny,y", 300, |_, [a, b, c]| {
        let (year, income) = (1990.0 + (30.0 * a).floor(), 2e4 + 6e4 * b);
        let (large, tiny) = (1e9 * (1.0 + c), 1e-9 * (2.0 * ((17.0 * a + 3.0 * b) % 1.0) - 1.0));
        let noise = (13.0 * b + 7.0 * c) % 1.0 - 0.5;
        format!("{year},{income},{large},{tiny},{}", 0.1 * (year - 2000.0) + 1e-5 * income + 5e8 * tiny + noise)
    })
}

/// Where rounding errors of gradients exceed the target, the method ends at these, and says so.
#[test]
fn columns_without_a_common_scale_end_at_the_rounding_error() {
    let folder = Folder::new();
    folder.write("a.csv", unscaled());
    let options = "a.csv --model least-squares --target y --agents 4 --overwrite";
    let run = fit(&folder, &format!("{options} --out o")).exits(0);
    said(
        &run,
        &[
            "note: --tol 1e-9 is below the rounding error of gradients of these data: the run stops at ",
            "; columns are of very different scales",
            "the ridge 1e-5 all but removes the column \"tiny\"",
        ],
    );
    assert!(folder.json("o/weights.json")["rounds"].as_u64().unwrap() < 20, "{}", run.stdout);
    // Columns of one scale have the target that was asked for.
    let run = fit(&folder, &format!("{options} --standardise --out p")).exits(0);
    said(&run, &["until the norm of the gradient is at most 1e-9 (absolute)"]);
    assert!(!run.stdout.contains("rounding error") && !run.stdout.contains("removes"), "{}", run.stdout);
    // Scales are no dependence: without a ridge there is a single minimum.
    let run = fit(&folder, &format!("{options} --drop large,tiny --ridge 0 --out q")).exits(0);
    let standardised = fit(&folder, &format!("{options} --drop large,tiny --ridge 0 --standardise --out r")).exits(0);
    let (a, b) = (coefficients(&folder, "q"), coefficients(&folder, "r"));
    a.iter().zip(&b).for_each(|(a, b)| assert!((a - b).abs() <= 1e-8 * b.abs(), "{a} {b} {} {}", run.stdout, standardised.stdout));
}

/// With inference the estimate decides how a fit ended, and not the method that began.
#[test]
fn an_estimate_that_was_found_is_a_success() {
    let folder = Folder::new();
    folder.write("a.csv", unscaled());
    let run = fit(&folder, "a.csv --model least-squares --target y --agents 4 --inference --method lbfgs --max-rounds 3 --out o").exits(0);
    said(&run, &["lbfgs itself ended as `", "Newton steps on sums of the agents"]);
    assert!(!run.stdout.contains("NOT as expected"), "{}", run.stdout);
    assert_eq!(folder.json("o/weights.json")["outcome"], "converged");
    assert_eq!(folder.json("o/summary.json")["exit_status"], 0);
}

#[test]
fn a_finished_fit_of_other_data_or_inference_is_not_taken_for_this_one() {
    let folder = Folder::new();
    let data = |slope: f64| rows("x,y", 60, |_, [a, b, _]| format!("{a},{}", slope * a + b));
    folder.write("a.csv", data(1.0));
    let options = "a.csv --model least-squares --target y --agents 3 --inference";
    fit(&folder, &format!("{options} --out o")).exits(0);
    let before = folder.text("o/weights.json");
    said(&fit(&folder, &format!("{options} --out o --resume")).exits(0), &["already done"]);
    let run = fit(&folder, &format!("{options}=hc1 --level 0.5 --out o --resume")).exits(2);
    said(
        &run,
        &["inference at the level 0.95 by the covariance model, and now it is to be with inference at the level 0.5 by the covariance hc1"],
    );
    folder.write("a.csv", data(2.0));
    let run = fit(&folder, &format!("{options} --out o --resume")).exits(2);
    said(&run, &["of other data, whose contents have changed since", "--overwrite"]);
    assert_eq!(folder.text("o/weights.json"), before);
}

#[test]
fn clustered_errors_need_agents_that_are_clusters() {
    let folder = Folder::new();
    folder.write("a.csv", rows("x,site,y", 60, |i, [a, b, _]| format!("{a},s{},{}", i % 12, a + b)));
    let options = "a.csv --model least-squares --target y --inference=clustered";
    for partition in ["shuffled", "even", "sorted"] {
        let run = fit(&folder, &format!("{options} --drop site --agents 6 --partition {partition} --out o")).exits(2);
        said(&run, &["--inference", "no clusters", "--partition files or --group COLUMN"]);
    }
    fit(&folder, &format!("{options} --group site --out o")).exits(0);
}

#[test]
fn the_class_that_is_modelled_is_said() {
    let folder = Folder::new();
    let class = |i: usize, a: f64| if a + ((i * 7 % 10) as f64) / 10.0 > 1.0 { "yes" } else { "no" };
    folder.write("a.csv", rows("x,label", 60, |i, [a, ..]| format!("{a},{}", class(i, a))));
    said(&fit(&folder, "a.csv --agents 2 --out o").exits(0), &["models the probability of yes against no (--positive"]);
    said(&fit(&folder, "a.csv --agents 2 --positive no --out p").exits(0), &["models the probability of no against yes"]);
    folder.write("one.csv", rows("x,label", 20, |_, [a, ..]| format!("{a},yes")));
    said(&fit(&folder, "one.csv --agents 2 --out q").exits(2), &["all rows have the target yes"]);
    folder.write("two.csv", rows("x,label", 20, |i, [a, ..]| format!("{a},{}", 1 + i % 2)));
    said(&fit(&folder, "two.csv --agents 2 --out q").exits(0), &["models the probability of 2 against 1 (--positive"]);
}

/// The cell at fault is named, with its file.
#[test]
fn what_is_wrong_with_a_cell_is_named_with_its_row() {
    let folder = Folder::new();
    let csv = |bad: &'static str| {
        rows("x,w,y", 40, |i, [a, b, _]| {
            format!("{a},{},{}", if i == 7 { -1.0 } else { 1.0 }, if i == 4 { bad.into() } else { b.to_string() })
        })
    };
    for (bad, options, words) in [
        ("oops", "--model least-squares", "a.csv: row 5: `oops` is not a number"),
        ("-2", "--model poisson", "a.csv: row 5 has the target -2, and the family is poisson"),
        ("1", "--model poisson --row-weights w", "a.csv: row 8 has the weight -1"),
        ("1", "--model poisson --offset y", "--offset: the column `y` is the target"),
    ] {
        folder.write("a.csv", csv(bad));
        let run = fit(&folder, &format!("a.csv --target y --agents 2 {options} --out o")).exits(2);
        let message = run.message().replace("\n  │ ", " ");
        assert!(message.contains(words), "{words}: {message}");
    }
}

/// Categories with a level for nearly every row, such as dates.
#[test]
fn a_column_of_names_is_said_to_be_no_category() {
    let folder = Folder::new();
    folder.write("a.csv", rows("x,day,y", 40, |i, [a, b, _]| format!("{a},day {i},{b}")));
    let run = fit(&folder, "a.csv --model least-squares --target y --agents 2 --out o").exits(0);
    said(&run, &["(39 in all)", "the column \"day\" has 40 levels in 40 rows, a coefficient each: --drop leaves the column out"]);
    let run = fit(&folder, "a.csv --model least-squares --target y --group day --out p").exits(0);
    said(&run, &["every row has another value of \"day\""]);
}
