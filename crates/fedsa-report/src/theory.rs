//! The theory section: predictions for methods, and measurements.

use fedsa_experiment::Kinds;
use fedsa_experiment::finished::RunState;
use fedsa_experiment::foretold::foretold;
use fedsa_experiment::numbers::{self, number};
use fedsa_experiment::theory::{MethodTheory, ReasonCode, TheoryReport};
use serde_json::Value as Json;

use crate::html::{Cell, TagTone, escaped, table};
use crate::run::ReportedRun;

/// The largest number of methods, at all points, with computed theory.
const MAX_METHODS: usize = 60;
/// The largest number of rows in the table.
const MAX_ROWS: usize = 20 * MAX_METHODS;

/// The theory of a finished run; `None` if nothing is known, it would take long, or its problem cannot be built again, as with Python's.
pub fn of(run: &ReportedRun) -> Option<TheoryReport> {
    let count = run.summary["results"].as_array()?.len();
    if run.state != RunState::Finished || count > MAX_METHODS {
        return None;
    }
    let report = foretold(&run.folder, &Kinds::default()).ok()?;
    let is_known = |method: &MethodTheory| method.refused.is_none() && method.rounds.is_ok();
    report.methods.iter().any(is_known).then_some(report)
}

/// The result of a method in a summary.
fn measured<'a>(run: &'a ReportedRun, method: &MethodTheory) -> Option<&'a Json> {
    run.summary["results"].as_array()?.iter().find(|result| result["method"] == *method.label && result["point"] == *method.point)
}

/// The section, a table over all runs.
pub fn page(runs: &[ReportedRun], theories: &[Option<TheoryReport>]) -> String {
    let several = runs.len() > 1;
    let heads = [
        "method",
        "point",
        "floor",
        "how it is known",
        "measured over floor",
        "bias",
        "samples",
        "mixing",
        "link",
        "participation",
        "what helps most",
        "largest stable step",
    ];
    let mut rows = Vec::new();
    let mut notes = String::new();
    for (run, theory) in runs.iter().zip(theories) {
        let Some(theory) = theory else { continue };
        for method in &theory.methods {
            let mut row = row(run, method);
            if several {
                row.insert(0, Cell::Text(run.name.clone()));
            }
            rows.push(row);
        }
        let left: Vec<String> = theory.left_out.iter().map(|left| format!("{} {}: {}", left.method, left.point, left.what)).collect();
        if let Some(first) = left.first() {
            let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
            notes.push_str(&format!(
                "<p class=\"small\">Left out, because it takes long: {}{more}; fedsa theory has it.</p>\n",
                escaped(first)
            ));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads: Vec<String> = several.then_some("run").into_iter().chain(heads).map(str::to_string).collect();
    let (heads, rows) = crate::html::without_empty_columns(heads, rows);
    let explained = "<p class=\"small\">Computed from the settings alone, before looking at what was measured. The floor is the error \
         \u{2016}\u{3b8} \u{2212} \u{3b8}*\u{2016}\u{b2} in the end, mean over runs; bias, samples, mixing, link and participation are its parts. \
         \u{201c}Measured over floor\u{201d} near 1 means that the run ended where theory says; far above 1 that it had not ended yet, \
         or that theory does not describe it.</p>\n";
    format!("{explained}{}{notes}", table("What limits each method", &heads, &rows, MAX_ROWS))
}

fn row(run: &ReportedRun, method: &MethodTheory) -> Vec<Cell> {
    let mut row = vec![Cell::Text(method.label.clone()), Cell::Text(method.point.clone())];
    row.extend(floor(run, method));
    row.extend(parts(method));
    row.push(method.helps_most().map_or(Cell::Empty, Cell::Text));
    row.push(stable(method));
    row
}

/// The floor, its accuracy, and the ratio of the run's end to it.
fn floor(run: &ReportedRun, method: &MethodTheory) -> [Cell; 3] {
    let known = match (&method.refused, &method.rounds, &method.limits, &method.floor) {
        (Some(reason), ..) => return [Cell::Tag(TagTone::Note, "refused".into()), Cell::Text(reason.clone()), Cell::Empty],
        (_, Err(reason), ..) => return [Cell::Empty, Cell::Text(unknown(&reason.text)), Cell::Empty],
        (_, _, Ok(limits), _) if limits.floor <= method.bias_rounding => {
            return [Cell::Tag(TagTone::Good, "none".into()), Cell::Text("it reaches \u{3b8}* to rounding".into()), Cell::Empty];
        }
        (_, _, Ok(limits), _) => Ok((limits.floor, limits.accuracy.to_string())),
        (_, _, _, Ok(floor)) => Ok((floor.value.mse(), floor.accuracy.to_string())),
        (_, _, _, Err(reason)) => Err(reason),
    };
    let result = measured(run, method);
    let ratio = |floor: f64| {
        let measured = result.and_then(|result| result["floor_mean"].as_f64());
        measured.map_or(Cell::Empty, |mean| Cell::Number(mean / floor, number(mean / floor)))
    };
    match known {
        Ok((floor, how)) => [Cell::Number(floor, number(floor)), Cell::Text(how), ratio(floor)],
        Err(reason) if reason.code == ReasonCode::Diverges => {
            [Cell::Tag(TagTone::Note, "diverges".into()), Cell::Text(radius(method)), Cell::Empty]
        }
        // The summary has requested floors that took long.
        Err(reason) => match result.and_then(|result| result["predicted"]["floor"].as_f64()) {
            Some(floor) => [Cell::Number(floor, number(floor)), Cell::Text(status(result)), ratio(floor)],
            None => [Cell::Empty, Cell::Text(unknown(&reason.text)), Cell::Empty],
        },
    }
}

fn unknown(reason: &str) -> String {
    if reason.starts_with("not known") { reason.to_string() } else { format!("not known: {reason}") }
}

/// The factor by which a round multiplies a diverging mean error, or mean square.
fn radius(method: &MethodTheory) -> String {
    match (&method.outlook.mean_square, &method.outlook.radius) {
        (Some(Ok(square)), _) => format!("noise multiplies the mean-square error by {} in a round", numbers::radius(*square)),
        (_, Ok(mean)) => format!("a round multiplies the error by {}", numbers::radius(*mean)),
        (_, Err(_)) => String::new(),
    }
}

/// The accuracy of a summary's floor.
fn status(result: Option<&Json>) -> String {
    result.and_then(|result| result["predicted_accuracy"]["floor"]["status"].as_str()).unwrap_or_default().replace('_', " ")
}

/// The parts of the floor, as shares of it.
fn parts(method: &MethodTheory) -> [Cell; 5] {
    let Some(limits) = method.above_rounding() else { return [const { Cell::Empty }; 5] };
    let share = |part: Option<f64>| match part.map(|part| part / limits.floor) {
        // If agents do not differ, the bias is 0 up to rounding.
        Some(share) if share.abs() < 5e-4 => Cell::Empty,
        Some(share) => Cell::Number(share, format!("{:.0}%", 100.0 * share)),
        None => Cell::Empty,
    };
    [share(Some(limits.bias)), share(limits.samples), share(limits.mixing), share(limits.link), share(limits.participation)]
}

fn stable(method: &MethodTheory) -> Cell {
    match &method.stability.largest {
        _ if method.refused.is_some() => Cell::Empty,
        Some(Ok(found)) if found.step.is_infinite() => Cell::Text("every step".into()),
        Some(Ok(found)) => {
            let in_mean = if !found.in_mean_square { ", in the mean" } else { "" };
            Cell::Number(found.step, format!("{}{in_mean}", numbers::rounded_down(found.step)))
        }
        Some(Err(reason)) => Cell::Text(reason.text.clone()),
        None => Cell::Empty,
    }
}

/// The known floors as levels of curves: method, point, value and accuracy.
pub fn levels(theory: &TheoryReport) -> Vec<(&str, &str, f64, String)> {
    let level = |method: &'_ MethodTheory| {
        let limits = method.above_rounding().filter(|limits| limits.floor > 0.0)?;
        Some((limits.floor, limits.accuracy.to_string()))
    };
    let of = theory.methods.iter().filter(|method| method.refused.is_none());
    of.filter_map(|method| level(method).map(|(floor, how)| (method.label.as_str(), method.point.as_str(), floor, how))).collect()
}
