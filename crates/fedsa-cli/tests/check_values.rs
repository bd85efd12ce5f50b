//! The measured values of `[[check]]` against the numbers of `trace.parquet` and of the results in `summary.json`.

use crate::common::{Folder, small};
use fedsa_data::trace::{self, Trace, TraceColumn};
use serde_json::Value;

/// Two methods of which one makes fewer local steps, at two numbers of agents, with checks.
fn measured(checks: &str) -> (Folder, Value) {
    let text = small("rounds = 20\nseeds = 2", "rounds = 60\nseeds = 3").replacen("local_steps = 10", "local_steps = 4", 1);
    let folder = Folder::with(&format!("{text}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n{checks}"));
    folder.run(&["run", "small.toml"]).exits(0);
    let summary = folder.json("out/small/summary.json");
    (folder, summary)
}

/// The rows of a method at a number of agents: seed, round, and the numbers of a column.
fn rows(table: &Trace, method: &str, agents: i64, column: &str) -> Vec<(i64, i64, f64)> {
    let whole = |name: &str| match table.column(name) {
        Some(TraceColumn::I64(x)) => x.clone(),
        other => panic!("{name}: {other:?}"),
    };
    let numbers: Vec<f64> = match table.column(column) {
        Some(TraceColumn::OptF64(x)) => x.iter().map(|x| x.unwrap()).collect(),
        Some(TraceColumn::I64(x)) => x.iter().map(|x| *x as f64).collect(),
        other => panic!("{column}: {other:?}"),
    };
    let Some(TraceColumn::Str(methods)) = table.column("method") else { panic!("no methods") };
    let (of, seeds, rounds) = (whole("agents"), whole("seed"), whole("round"));
    let of_method = (0..table.rows()).filter(|i| methods[*i] == method && of[*i] == agents);
    of_method.map(|i| (seeds[i], rounds[i], numbers[i])).collect()
}

fn trace_of(folder: &Folder) -> Trace {
    trace::from_bytes(folder.read("out/small/trace.parquet")).unwrap()
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

#[track_caller]
fn is_near(measured: &Value, expected: f64) {
    let measured = measured.as_f64().unwrap();
    assert!((measured - expected).abs() <= 1e-12 * expected.abs(), "{measured} and {expected}");
}

#[test]
fn a_cost_is_that_of_the_other_method_over_that_of_the_method() {
    let check = "[[check]]\nkind = \"cost\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"\nlevel = 300\nmin = 1e-9\nat = { agents = 4 }\n";
    let (folder, summary) = measured(check);
    let table = trace_of(&folder);
    let spent = |method: &str| {
        let (mse, bits) = (rows(&table, method, 4, "mse"), rows(&table, method, 4, "bits_up"));
        let at = |round: i64| mean(&mse.iter().filter(|(_, t, _)| *t == round).map(|(.., x)| *x).collect::<Vec<_>>());
        let reached = (0..=60).find(|round| at(*round) <= 300.0).unwrap();
        mean(&bits.iter().filter(|(_, t, _)| *t == reached).map(|(.., x)| *x).collect::<Vec<_>>())
    };
    let (fedlsa, scafflsa) = (spent("FedLSA"), spent("SCAFFLSA"));
    assert!(fedlsa > 1.5 * scafflsa, "{fedlsa}, {scafflsa}");
    is_near(&summary["checks"][0]["measured"], scafflsa / fedlsa);
}

#[test]
fn a_distance_is_the_root_of_the_squared_error() {
    let check = "[[check]]\nkind = \"final\"\nmetric = \"distance\"\nmethod = \"FedLSA\"\nmax = 1e6\nat = { agents = 2 }\n";
    let (folder, summary) = measured(check);
    let last = rows(&trace_of(&folder), "FedLSA", 2, "mse").into_iter().filter(|(_, t, _)| *t == 60);
    let distances: Vec<f64> = last.map(|(.., x)| x.sqrt()).collect();
    assert_eq!(distances.len(), 3);
    is_near(&summary["checks"][0]["measured"], mean(&distances));
}

#[test]
fn a_gap_falls_from_the_first_to_the_last_value() {
    let check = "[[check]]\nkind = \"gap\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"\nalong = \"agents\"\nmin = 1e-9\n";
    let (_, summary) = measured(check);
    let results = summary["results"].as_array().unwrap();
    let floor = |method: &str, agents: u64| {
        let of = |row: &&Value| row["method"] == method && row["coordinates"]["agents"] == agents;
        results.iter().find(of).unwrap()["floor_mean"].as_f64().unwrap()
    };
    let gap = |agents: u64| (floor("FedLSA", agents) - floor("SCAFFLSA", agents)).abs();
    assert!((gap(2) / gap(4) - 1.0).abs() > 0.01);
    let measured = summary["checks"][0]["measured"].as_f64().unwrap();
    assert!((measured / (gap(2) / gap(4)) - 1.0).abs() < 1e-9, "{measured}, {}", gap(2) / gap(4));
}

#[test]
fn a_curve_may_leave_the_exact_one_by_its_tolerance() {
    // Two seeds are often alike, so that their standard error is far too small at some rounds.
    let check = |tolerance: &str| {
        let folder = Folder::with(&format!(
            "{}\n[[check]]\nkind = \"curve\"\nmethod = \"FedLSA\"\n{tolerance}",
            small("rounds = 20", "rounds = 60")
        ));
        folder.run(&["run", "small.toml"]);
        folder.json("out/small/summary.json")["checks"][0].clone()
    };
    let (without, with) = (check(""), check("tolerance = 0.5\n"));
    assert!(without["pass"] == false && without["measured"].as_f64().unwrap() < 0.95, "{without}");
    assert!(with["pass"] == true && with["measured"] == 1.0, "{with}");
}
