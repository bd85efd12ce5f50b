//! `fedsa list`: the runs in a folder, with their outcomes.

use std::path::{Path, PathBuf};

use fedsa::error::{Error, quoted};
use fedsa::note::Severity;
use fedsa::record::Outcome;
use fedsa_data::find::natural_order;
use fedsa_experiment::finished::{FinishedRun, RunState, state_of};
use fedsa_experiment::numbers;
use serde_json::{Value as Json, json};

use super::{count, say, say_json};
use crate::args::ListArgs;
use crate::error::DONE;

/// The depth to which folders are searched for runs: ids contain few slashes.
const DEPTH: usize = 8;

/// Runs the command.
///
/// # Errors
/// When the folder does not exist.
pub fn list(args: &ListArgs) -> Result<u8, Error> {
    if !args.dir.is_dir() {
        let help = "a folder with runs; out by default";
        let what = if args.dir.exists() { "this is not a folder" } else { "there is no such folder" };
        return Err(Error::new(args.dir.display().to_string(), what, help));
    }
    let mut found = Vec::new();
    collect(&args.dir, DEPTH, &mut found);
    found.sort_by(|(a, _), (b, _)| natural_order(&a.display().to_string(), &b.display().to_string()));
    let entries: Vec<Json> = found.iter().map(|(path, state)| entry(path, *state)).collect();
    if args.json {
        say_json(&entries);
        return Ok(DONE);
    }
    if entries.is_empty() {
        say(format!("no runs in {}", args.dir.display()));
        return Ok(DONE);
    }
    let mut rows = vec![["folder", "state", "outcomes", "found", "checks", "time", "ended"].map(str::to_string)];
    rows.extend(entries.iter().map(row));
    let widths: Vec<usize> = (0..7).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect::<Vec<_>>();
        say(cells.join("  ").trim_end());
    }
    Ok(DONE)
}

/// The folders of runs at and below a folder, including those below a run. Links are not followed.
fn collect(dir: &Path, depth: usize, found: &mut Vec<(PathBuf, RunState)>) {
    if let Some(state) = state_of(dir) {
        found.push((dir.to_path_buf(), state));
    }
    if depth == 0 {
        return;
    }
    let folders = std::fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .for_each(|entry| collect(&entry.path(), depth - 1, found));
}

fn entry(path: &Path, state: RunState) -> Json {
    let word = match state {
        RunState::UnderWay => "under way",
        RunState::Interrupted => Outcome::Interrupted.name(),
        RunState::Finished => "finished",
    };
    let mut out = json!({ "folder": path.display().to_string(), "state": word });
    let finished = (state == RunState::Finished).then(|| FinishedRun::read(path).ok()).flatten();
    let Some(FinishedRun { summary, .. }) = finished else { return out };
    for key in ["id", "title", "fedsa", "seconds", "passed", "exit_status"] {
        out[key] = summary[key].clone();
    }
    for key in ["model", "n", "aic", "reference", "levels"] {
        if let Some(value) = summary["fit"].get(key) {
            out["fit"][key] = value.clone();
        }
    }
    if let Some(value) = summary["policy_value"]["fitted"].get("all") {
        out["value"] = value.clone();
    }
    let notes = summary["notes"].as_array().map_or(&[][..], Vec::as_slice);
    out["warnings"] = json!(notes.iter().filter(|note| note["severity"] == Severity::Warning.name()).count());
    out["ended"] = summary["provenance"]["ended"].clone();
    let mut outcomes: Vec<(String, usize)> = Vec::new();
    for result in summary["results"].as_array().into_iter().flatten() {
        let outcome = result["outcome"].as_str().unwrap_or("unknown").to_string();
        match outcomes.iter_mut().find(|(name, _)| *name == outcome) {
            Some((_, n)) => *n += 1,
            None => outcomes.push((outcome, 1)),
        }
    }
    out["outcomes"] = outcomes.into_iter().map(|(name, n)| (name, json!(n))).collect::<serde_json::Map<_, _>>().into();
    let checks = summary["checks"].as_array().map_or(&[][..], Vec::as_slice);
    let as_expected = checks.iter().filter(|check| check["as_expected"] == true).count();
    out["checks"] = json!({ "as_expected": as_expected, "all": checks.len() });
    out
}

fn row(entry: &Json) -> [String; 7] {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_string();
    let outcomes = entry["outcomes"].as_object().map_or(String::new(), |outcomes| {
        outcomes.iter().map(|(name, n)| if n == 1 { name.clone() } else { format!("{n} {name}") }).collect::<Vec<_>>().join(", ")
    });
    let checks = match (&entry["checks"]["as_expected"], entry["checks"]["all"].as_u64()) {
        (_, None) => String::new(),
        (_, Some(0)) => "none".into(),
        (good, Some(all)) => format!("{good} of {all} as expected"),
    };
    let time =
        entry["seconds"].as_f64().map_or(String::new(), |s| if s < 100.0 { format!("{s:.1} s") } else { format!("{:.0} min", s / 60.0) });
    [text(&entry["folder"]), text(&entry["state"]), outcomes, found(entry), checks, time, text(&entry["ended"])]
}

/// The result of a run in words, with the number of its warnings.
fn found(entry: &Json) -> String {
    let found = entry["value"].as_object().map_or_else(|| model(&entry["fit"]), |_| fitted_value(&entry["value"]));
    let warnings = entry["warnings"].as_u64().filter(|n| *n > 0).map(|n| count(n as usize, "warning"));
    [found].into_iter().filter(|found| !found.is_empty()).chain(warnings).collect::<Vec<_>>().join("; ")
}

/// The fitted value of a policy with its standard error.
fn fitted_value(value: &Json) -> String {
    let error = value["se"].as_f64().map_or("without an error".into(), |se| format!("+- {}", numbers::number(se)));
    value["estimate"].as_f64().map_or(String::new(), |x| format!("fitted value {} {error}", numbers::number(x)))
}

/// The model of a fit: its rows, its AIC, and its reference levels.
fn model(fit: &Json) -> String {
    let Some(model) = fit["model"].as_str() else { return String::new() };
    let mut parts = vec![model.to_string()];
    parts.extend(fit["n"].as_f64().map(|n| format!("n = {}", numbers::thousands(n))));
    parts.extend(fit["aic"].as_f64().map(|aic| format!("AIC {}", numbers::digits(aic, 7))));
    parts.extend(fit["reference"].as_str().map(|class| format!("against {}", quoted(class))));
    let references = fit["levels"].as_array().into_iter().flatten().filter(|level| level["reference"] == true);
    let reference = |one: &Json| Some(format!("{} against {}", quoted(one["column"].as_str()?), quoted(one["name"].as_str()?)));
    parts.extend(references.filter_map(reference));
    parts.join(", ")
}
