//! Checks and figures.

use super::*;

#[test]
fn checks_and_figures_are_checked() {
    let bad = |check: &str, expected: &[&str]| refused_end(&format!("[[check]]\n{check}"), check.lines().last().unwrap(), expected);
    bad("kind = \"ration\"", &["there is no check of the kind `ration`; did you mean `ratio`?", "one of floor, ratio"]);
    bad("kind = \"curve\"\nmethod = \"FedLS\"", &["check[0].method: there is no method `FedLS`; did you mean `FedLSA`?"]);
    bad("kind = \"ratio\"\nmethod = \"FedLSA\"\nmin = 1\nover = \"x\"", &["check[0].over: there is no method `x`"]);
    bad("kind = \"reaches\"\nmethod = \"FedLSA\"\nmax = 1\nmetric = \"mss\"", &["there is no metric `mss`; did you mean `mse`?"]);
    bad("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = \"flor\"", &["no predicted quantity `flor`; did you mean `floor`?"]);
    bad("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = nan", &["check[0].expected: nan is not accepted", "a number"]);
    bad("kind = \"final\"\nmethod = \"FedLSA\"\nexpected = \"floor\"", &["check[0].expected: \"floor\" is not accepted"]);
    bad("kind = \"curve\"\nmethod = \"FedLSA\"\nby = 3", &["check[0].by: this is not a key of a check of kind curve", "tolerance"]);
    bad("kind = \"curve\"\nmethod = \"FedLSA\"\nat = { agents = 4 }", &["no coordinate `agents`", "a sweep first"]);
    bad(
        "kind = \"slope\"\nmethod = \"FedLSA\"\nexpected = 1\ntolerance = 1\nalong = \"H\"",
        &["check[0].along: there is no coordinate `H`"],
    );
    let missing = |check: &str, expected: &[&str]| refused_end(&format!("[[check]]\n{check}"), "[[check]]", expected);
    missing("kind = \"curve\"", &["the key `method` is missing", "a check of kind curve needs"]);
    missing("kind = \"ratio\"\nmethod = \"FedLSA\"", &["the key `over` is missing"]);
    missing("kind = \"ratio\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"", &["a check of kind ratio needs one of min, max, tolerance"]);
    missing("method = \"FedLSA\"", &["the key `kind` is missing"]);
    let swept =
        "[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n[[check]]\nkind = \"curve\"\nmethod = \"FedLSA\"\nat = { agents = 3 }";
    refused_end(swept, "at = { agents = 3 }", &["no point is at agents = 3", "values that are swept"]);
    let figure = |line: &str, expected: &[&str]| refused_end(&format!("[figure]\n{line}"), line, expected);
    figure("x = \"rounds\"", &["figure.x: \"rounds\" is not accepted", "round, exchanges"]);
    figure("x = []", &["figure.x: [] is not accepted", "at least one axis"]);
    figure("x = [\"round\", \"round\"]", &["each axis once"]);
    figure("x = [\"round\", \"rounds\"]", &["figure.x: \"rounds\" is not accepted", "round, exchanges"]);
    figure("y = \"mss\"", &["figure.y: \"mss\" is not accepted", "mse"]);
    figure("panels = [\"H\"]", &["figure.panels: \"H\" is not accepted"]);
    figure("levels = { Nobody = [\"floor\"] }", &["\"Nobody\" is not accepted", "a method's label: FedLSA, SCAFFLSA"]);
    figure("levels = { FedLSA = [\"flor\"] }", &["\"flor\" is not accepted", "bias2"]);
    figure("exact = [\"Nobody\"]", &["\"Nobody\" is not accepted"]);
    figure("columns = -1", &["figure.columns: -1 is not accepted"]);
}

#[test]
fn figures_that_cannot_be_drawn_are_refused() {
    let figure = |lines: &str, expected: &[&str]| refused_end(&format!("[figure]\n{lines}"), lines.lines().last().unwrap(), expected);
    for range in ["[1.0, 0.0]", "[0.0, 1.0]", "[-1.0, 1.0]", "[1.0, 1.0]", "[nan, 1.0]", "[1.0, nan]", "[1.0, inf]", "[-inf, 1.0]"] {
        figure(
            &format!("y_range = {range}"),
            &["figure.y_range: [", "is not accepted", "0 < low < high: the vertical axis is logarithmic"],
        );
    }
    figure("columns = 0", &["figure.columns: 0 is not accepted", "at least 1 panel in a row"]);
    figure("y = []", &["figure.y: [] is not accepted", "at least one of mse"]);
    for width in ["0", "-900", "299.9", "1e9", "nan", "inf"] {
        figure(&format!("width = {width}"), &["figure.width: ", "is not accepted", "300 to 4000 pixels"]);
        figure(&format!("dpi = {}", width.replace("299.9", "1e-3")), &["figure.dpi: ", "is not accepted", "24 to 1200 dots to an inch"]);
    }
    figure("theme = \"blue\"", &["figure.theme: ", "blue", "light", "dark"]);
    figure("style = \"icml\"", &["figure.style: ", "icml", "neurips", "ieee", "slides"]);
    figure("methods = []", &["figure.methods: [] is not accepted", "labels of methods: "]);
    figure("methods = [\"nobody\"]", &["figure.methods: \"nobody\" is not accepted", "labels of methods: "]);
    figure("points = [\"nowhere\"]", &["figure.points: \"nowhere\" is not accepted", "no points here: nothing is swept"]);
    figure("y_log = false\ny_range = [1.0, 0.0]", &["figure.y_range: [", "is not accepted", "low < high"]);
    figure("formats = []", &["figure.formats: [] is not accepted", "\"svg\", \"png\", \"pdf\""]);
    figure("formats = [\"jpeg\"]", &["figure.formats", "jpeg", "svg"]);
    figure("x_log = true\nslope = nan", &["figure.slope: NaN is not accepted", "a finite number"]);
    figure("slope = -1", &["figure.slope: a slope on a linear axis is not accepted", "x_log = true"]);
    figure("ratios = true", &["figure.ratios: true without `exact` is not accepted", "labels of methods"]);
    figure("centre = \"median\"\nband = \"error\"", &["figure.band: one around a mean is not accepted", "quantiles"]);
}

#[test]
fn keys_that_mean_nothing_to_a_kind_of_figure_are_refused() {
    let swept = "[[sweep]]\nkey = \"method.*.local_steps\"\nvalues = [1, 2]\n";
    let figure = |kind: &str, line: &str, expected: &[&str]| {
        refused_end(&format!("{swept}[figure]\nkind = \"{kind}\"\nx = \"local_steps\"\n{line}"), line, expected);
    };
    let table = ["centre = \"mean\"", "band = \"none\"", "levels = { FedLSA = [\"floor\"] }", "exact = [\"FedLSA\"]", "ratios = true"];
    let more = ["slope = -1", "x_log = true", "y_range = [1.0, 2.0]", "share_y = true", "columns = 2", "level = 1.0"];
    for line in table.iter().chain(&more) {
        let key = line.split(' ').next().unwrap();
        figure("table", line, &[&format!("figure.{key}: this is not a key of a figure of kind table"), "it is for the kinds"]);
    }
    figure(
        "scaling",
        "centre = \"median\"",
        &["figure.centre: this is not a key of a figure of kind scaling", "it is for the kinds curves"],
    );
    figure("scaling", "exact = [\"FedLSA\"]", &["figure.exact: this is not a key of a figure of kind scaling"]);
    figure(
        "table",
        "y = [\"mse\", \"residual\"]",
        &["figure.y: [\"mse\", \"residual\"] is not accepted", "one metric for kind = \"table\""],
    );
    let named =
        "[[sweep]]\nkey = \"sampling.kind\"\nname = \"how\"\nvalues = [\"iid\", \"mean\"]\n[figure]\nkind = \"scaling\"\nx = \"how\"";
    refused_end(named, "x = \"how\"", &["figure.x: \"how\" with the value \"iid\" is not accepted", "values are numbers"]);
}
