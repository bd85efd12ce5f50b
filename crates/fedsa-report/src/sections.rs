//! The sections of the page, as HTML without scripts.

use std::collections::{BTreeMap, BTreeSet};

use fedsa::record::COUNTS;
use fedsa_experiment::finished::{RunState, differences};
use fedsa_experiment::folder;
use fedsa_experiment::numbers;
use serde_json::{Value as Json, json};

use crate::ReportOptions;
use crate::any_json::{self, words};
use crate::cited;
use crate::ends;
use crate::found;
use crate::html::{Cell, TagTone, clipped, escaped, table, tag, without_empty_columns};
use crate::run::ReportedRun;

/// The largest number of rows in a table of results.
const MAX_ROWS: usize = 20_000;

/// A list of a summary by name; empty if missing.
fn list<'a>(run: &'a ReportedRun, name: &str) -> &'a [Json] {
    run.summary[name].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Json) -> &str {
    value.as_str().unwrap_or_default()
}

/// A table over all runs; with several, its first column is the run.
fn over_runs(caption: &str, runs: &[ReportedRun], heads: &[&str], rows: impl Fn(&ReportedRun) -> Vec<Vec<Cell>>) -> String {
    let several = runs.len() > 1;
    let mut all = Vec::new();
    for run in runs {
        for mut row in rows(run) {
            if several {
                row.insert(0, Cell::Text(run.name.clone()));
            }
            all.push(row);
        }
    }
    if all.is_empty() {
        return String::new();
    }
    let heads: Vec<String> = several.then_some("run").into_iter().chain(heads.iter().copied()).map(str::to_string).collect();
    let (heads, all) = without_empty_columns(heads, all);
    table(caption, &heads, &all, MAX_ROWS)
}

fn number(value: &Json) -> Cell {
    value.as_f64().map_or(Cell::Empty, |x| Cell::Number(x, numbers::number(x)))
}

/// A number with its standard error.
fn estimate(mean: &Json, se: &Json) -> Cell {
    match (mean.as_f64(), se.as_f64()) {
        (Some(x), Some(se)) if se > 0.0 => Cell::Number(x, format!("{} \u{b1} {}", numbers::number(x), numbers::rough(se))),
        _ => number(mean),
    }
}

fn whole(value: &Json) -> Cell {
    value.as_f64().map_or(Cell::Empty, |x| Cell::Number(x, numbers::thousands(x)))
}

/// The progress of each run, and its verdict, one line each.
pub fn verdicts(runs: &[ReportedRun]) -> String {
    let mut out = String::from("<ul class=\"verdicts\">\n");
    for run in runs {
        let (tone, what) = verdict(run);
        let name = if runs.len() > 1 { format!("<strong>{}</strong> ", escaped(&run.name)) } else { String::new() };
        let found: String = found::found(run).iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
        let found = if found.is_empty() { found } else { format!("<ul>\n{found}</ul>\n") };
        out.push_str(&format!("<li>{name}{} {}{found}{}</li>\n", tag(tone, what.0), escaped(&what.1), ends::told(run)));
    }
    out.push_str("</ul>\n");
    out
}

/// The notes of a run for readers of the results.
pub fn notes(run: &ReportedRun) -> String {
    let item = |note: &Json| {
        let tone = if note["severity"] == "warning" { TagTone::Note } else { TagTone::Plain };
        format!("<li>{} {}</li>\n", tag(tone, text(&note["severity"])), with_code(text(&note["text"])))
    };
    let items: String = list(run, "notes").iter().map(item).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// A text as HTML, with settings in backticks as code.
fn with_code(text: &str) -> String {
    let of = |(i, part): (usize, &str)| if i % 2 == 1 { format!("<code>{}</code>", escaped(part)) } else { escaped(part) };
    text.split('`').enumerate().map(of).collect()
}

/// The progress of a sweep that runs in parts.
fn parts(run: &ReportedRun) -> String {
    let names = folder::names_of_parts(&run.folder).unwrap_or_default();
    let (done, begun) = (numbers::thousands(names.done.len() as f64), numbers::thousands(names.begun.len() as f64));
    let folder = run.folder.display();
    format!(
        "{done} parts are done and {begun} are not; their results are seen once they are joined: fedsa merge {folder} says which points \
         are missing, or joins them"
    )
}

fn verdict(run: &ReportedRun) -> (TagTone, (&'static str, String)) {
    let rounds = run.table.as_ref().map_or(0, |table| table.rows());
    let so_far = || match rounds {
        0 => "it has recorded nothing yet".to_string(),
        rounds => format!("{} records so far; the page shows these{}", numbers::thousands(rounds as f64), farthest(run)),
    };
    match run.state {
        RunState::UnderWay if folder::has_parts(&run.folder) => return (TagTone::Note, ("under way", parts(run))),
        RunState::UnderWay => return (TagTone::Note, ("under way", so_far())),
        RunState::Interrupted if folder::has_parts(&run.folder) => return (TagTone::Note, ("parts of a sweep", parts(run))),
        RunState::Interrupted => return (TagTone::Note, ("interrupted", format!("{}; fedsa run --resume goes on with it", so_far()))),
        RunState::Finished => {}
    }
    let results = list(run, "results");
    let unexpected = results.iter().filter(|result| result["as_expected"] == false).count();
    let checks = list(run, "checks");
    let failed = checks.iter().filter(|check| check["as_expected"] == false).count();
    let quick = if run.summary["quick"] == true { " Quick settings: sizes are smaller than the experiment's own." } else { "" };
    let time = run.summary["seconds"].as_f64().map_or(String::new(), |s| format!(" It took {}.", duration(s)));
    let of = |n: usize, what: &str| format!("{} {what}{}", numbers::thousands(n as f64), if n == 1 { "" } else { "s" });
    if run.summary["answer"].is_object() || run.summary["tried"].is_array() {
        let answer = &run.summary["answer"];
        return match answer["method"].is_string() {
            true => (TagTone::Good, ("tuned", String::new())),
            false => (TagTone::Bad, ("no answer", "nothing that was tried reaches the target".into())),
        };
    }
    match (unexpected, failed) {
        (0, 0) if checks.is_empty() => {
            (TagTone::Plain, ("ended", format!("{}, no checks to judge them by.{quick}{time}", of(results.len(), "result"))))
        }
        (0, 0) => {
            (TagTone::Good, ("as expected", format!("{}, {} passed.{quick}{time}", of(results.len(), "result"), of(checks.len(), "check"))))
        }
        (u, f) if quick.is_empty() => {
            let judged = if checks.is_empty() { String::new() } else { format!(" and {f} of {}", of(checks.len(), "check")) };
            let what = format!("{u} of {}{judged} are not as expected.{time}", of(results.len(), "result"));
            (TagTone::Bad, ("not as expected", what))
        }
        (u, f) => {
            let what = format!("{} and {} are not as with the full settings.{quick}{time}", of(u, "result"), of(f, "check"));
            (TagTone::Note, ("to be looked at", what))
        }
    }
}

/// The progress of the seeds of an active run.
fn farthest(run: &ReportedRun) -> String {
    let settings: Option<toml::Table> = run.config.parse().ok();
    let asked = settings.as_ref().and_then(|table| table.get("run")?.get("rounds")?.as_integer());
    let ends = || run.table.iter().flat_map(|table| &table.series).filter_map(|series| series.columns[0].last());
    let (low, high) = ends().fold((f64::INFINITY, 0.0_f64), |(low, high), round| (low.min(*round), high.max(*round)));
    let of = asked.map_or(String::new(), |rounds| format!(" of {}", numbers::thousands(rounds as f64)));
    let seeds = ends().count();
    format!("; {seeds} begun seeds of methods are between rounds {} and {}{of}", numbers::thousands(low), numbers::thousands(high))
}

/// Seconds in words.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{} s", numbers::rough(s)),
        s if s < 100.0 => format!("{} s", numbers::digits(s, 3)),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// How a result ended, with a tone.
fn outcome(result: &Json) -> Cell {
    let word = result["outcome"].as_str().or(result["status"].as_str()).unwrap_or("unknown").replace(['_', '-'], " ");
    let tone = match (result["as_expected"].as_bool(), word.as_str()) {
        (Some(false), _) => TagTone::Bad,
        (_, "diverged" | "stalled" | "max rounds" | "incomplete" | "refused") => TagTone::Note,
        (_, "converged") => TagTone::Good,
        _ => TagTone::Plain,
    };
    let at = result["diverged_at_round"].as_u64().map_or(String::new(), |round| format!(" in round {round}"));
    Cell::Tag(tone, word + &at)
}

/// Why a result is not as hoped, in words.
fn remark(result: &Json) -> Cell {
    let mut parts = Vec::new();
    if let Some(reason) = result["reason"].as_str() {
        parts.push(reason.to_string());
    }
    if let (Some(metric), Some(asked)) = (result["target"]["metric"].as_str(), result["target"]["asked"].as_f64()) {
        let reached = result["target"]["reached"].as_f64().map_or("not known".into(), numbers::number);
        parts.push(format!("target: {metric} {}, reached {reached}", numbers::number(asked)));
    }
    if let Some(share) = result["floor_falls_by"].as_f64().filter(|_| result["outcome"] != "converged") {
        parts.push(format!("not at its floor: still falls by {} over the last fifth of the rounds", numbers::percent(share)));
    }
    if let Some(step) = result["largest_stable_step"].as_f64() {
        let of = if result["largest_stable_step_limit"] == "mean" { " (of the mean)" } else { "" };
        parts.push(format!("largest stable step size{of} {}", numbers::number(step)));
    }
    if let Some(why) = result["why_stalled"].as_str().or_else(|| result["why_stalled"]["text"].as_str()) {
        parts.push(why.to_string());
    }
    if parts.is_empty() { Cell::Empty } else { Cell::Text(parts.join("; ")) }
}

/// The tables of results.
pub fn results(runs: &[ReportedRun]) -> String {
    let heads = [
        "method",
        "point",
        "outcome",
        "seeds",
        "rounds",
        "error at the end",
        "mean of the last fifth",
        "predicted floor",
        "residual",
        "remark",
    ];
    let table = over_runs("Results: a row for each method at each point", runs, &heads, |run| {
        let row = |result: &Json| {
            vec![
                Cell::Text(text(&result["method"]).into()),
                Cell::Text(text(&result["point"]).into()),
                outcome(result),
                whole(&result["seeds"]),
                whole(&result["rounds"]),
                number(&result["final_mean"]),
                // A run that stops at its target still falls in its last fifth.
                if result["outcome"] == "converged" { Cell::Empty } else { estimate(&result["floor_mean"], &result["floor_se"]) },
                number(&result["predicted"]["floor"]),
                number(&result["residual_mean"]),
                remark(result),
            ]
        };
        list(run, "results").iter().map(row).collect()
    });
    if table.is_empty() { table } else { format!("{table}{EXPLAINED}") }
}

/// The meaning of the columns of results.
const EXPLAINED: &str = "<p class=\"small\">The error is the squared distance \u{2016}\u{3b8} \u{2212} \u{3b8}*\u{2016}\u{b2} of the weights from the root of the \
    mean of the agents' operators, as its mean over seeds; \u{b1} is one standard error. Its mean over the last fifth of the rounds is the floor, where it has settled by \
    then; runs that stop at a target have none. The residual is the norm of the mean operator, or of the gradient, at the weights in the end.</p>\n";

/// The checks, failing ones first.
pub fn checks(runs: &[ReportedRun]) -> String {
    over_runs(
        "Checks: what the experiment states, and what was measured",
        runs,
        &["verdict", "check", "statement", "measured", "expected", "where"],
        |run| {
            let mut checks: Vec<&Json> = list(run, "checks").iter().collect();
            checks.sort_by_key(|check| check["as_expected"] != false);
            let quick = run.summary["quick"] == true;
            let row = |check: &&Json| {
                let tone = match (check["as_expected"].as_bool(), check["pass"].as_bool()) {
                    (Some(false), _) if quick => TagTone::Note,
                    (Some(false), _) => TagTone::Bad,
                    (_, Some(false)) => TagTone::Note,
                    _ if check["weak"] == true => TagTone::Note,
                    _ => TagTone::Good,
                };
                let word = match (tone, check["pass"].as_bool()) {
                    (TagTone::Bad, _) => "fails",
                    (TagTone::Note, Some(true)) => "holds, but would for almost anything",
                    (TagTone::Note, _) if quick => "not met with quick settings",
                    (TagTone::Note, _) => "fails, as expected",
                    _ => "holds",
                };
                let expected = ["expected", "min", "max"].iter().find_map(|key| {
                    let x = check[*key].as_f64()?;
                    let sign = match *key {
                        "min" => "at least ",
                        "max" => "at most ",
                        _ => "",
                    };
                    Some(Cell::Number(x, format!("{sign}{}", numbers::number(x))))
                });
                vec![
                    Cell::Tag(tone, word.into()),
                    Cell::Text(text(&check["name"]).into()),
                    Cell::Text(text(&check["statement"]).into()),
                    estimate(&check["measured"], &check["standard_error"]),
                    expected.unwrap_or(Cell::Empty),
                    Cell::Text(text(&check["point"]).into()),
                ]
            };
            checks.iter().map(row).collect()
        },
    )
}

/// The costs of each method, and of reaching levels.
pub fn costs(runs: &[ReportedRun]) -> String {
    let counts: Vec<_> = COUNTS.iter().filter(|count| count.set.is_some()).collect();
    let heads: Vec<&str> =
        ["method", "point"].into_iter().chain(counts.iter().map(|count| count.column)).chain(["seconds a seed"]).collect();
    let spent = over_runs("What was spent: the mean over seeds, of all agents", runs, &heads, |run| {
        let row = |result: &Json| {
            let mut row = vec![Cell::Text(text(&result["method"]).into()), Cell::Text(text(&result["point"]).into())];
            row.extend(counts.iter().map(|count| match result["ledger"][count.name].as_f64() {
                Some(0.0) | None => Cell::Empty,
                Some(x) => Cell::Number(x, if x < 1e7 { numbers::thousands(x) } else { numbers::digits(x, 4) }),
            }));
            row.push(number(&result["seconds"]));
            row
        };
        list(run, "results").iter().map(row).collect()
    });
    let heads = ["method", "point", "metric", "level", "rounds", "exchanges", "samples", "bits up", "bits down"];
    let levels = over_runs("What reaching a level took", runs, &heads, |run| {
        let of = |result: &Json| -> Vec<Vec<Cell>> {
            let row = |cost: &Json| {
                let counts = ["round", "exchanges", "samples", "bits_up", "bits_down"].map(|key| whole(&cost[key]));
                let mut row = vec![Cell::Text(text(&result["method"]).into()), Cell::Text(text(&result["point"]).into())];
                row.extend([Cell::Text(text(&cost["metric"]).into()), number(&cost["level"])]);
                let reached = counts.iter().any(|count| !matches!(count, Cell::Empty));
                row.extend(counts);
                if !reached {
                    row[4] = Cell::Tag(TagTone::Plain, "not reached".into());
                }
                row
            };
            result["costs"].as_array().into_iter().flatten().map(row).collect()
        };
        list(run, "results").iter().flat_map(of).collect()
    });
    spent + &levels
}

/// The predictions, each with its accuracy.
pub fn theory(runs: &[ReportedRun]) -> String {
    over_runs("What theory predicts", runs, &["method", "point", "quantity", "predicted", "how it is known"], |run| {
        let of = |result: &Json| -> Vec<Vec<Cell>> {
            let known = result["predicted"].as_object().into_iter().flatten();
            let row = |(name, value): (&String, &Json)| {
                let accuracy = &result["predicted_accuracy"][name];
                let unknown = &result["predicted_unknown"][name];
                let how = match (accuracy["status"].as_str(), accuracy["warning"].as_str()) {
                    (Some(status), Some(warning)) => format!("{}; {warning}", status.replace('_', " ")),
                    (Some(status), None) => status.replace('_', " "),
                    _ => unknown["text"].as_str().or(unknown.as_str()).unwrap_or_default().to_string(),
                };
                let name = if name == "bias2" { "squared bias".into() } else { name.replace('_', " ") };
                let start = [text(&result["method"]).to_string(), text(&result["point"]).to_string(), name];
                start.map(Cell::Text).into_iter().chain([number(value), Cell::Text(how)]).collect()
            };
            known.map(row).collect()
        };
        list(run, "results").iter().flat_map(of).collect()
    })
}

/// The data for redrawing the figure of a run: its folder (null for a copy), and the levels of its figure as TOML. Null without a figure.
pub fn figure(run: &ReportedRun, options: &ReportOptions) -> Json {
    let settings: Option<toml::Table> = run.config.parse().ok();
    let Some(settings) = settings.filter(|_| run.state == RunState::Finished && run.table.is_some()) else { return Json::Null };
    let levels = settings.get("figure").and_then(|figure| figure.get("levels")).map(toml::Value::to_string);
    let folder = (!options.hides_folders).then(|| run.folder.display().to_string());
    json!({ "folder": folder, "levels": levels })
}

/// The commands that redraw the figures. With scripts, they draw what the page shows.
pub fn drawn_again(runs: &[ReportedRun], options: &ReportOptions) -> String {
    let command = |run: &ReportedRun| {
        let figure = figure(run, options);
        let command = match (&figure, figure["folder"].as_str()) {
            (Json::Null, _) => return None,
            (_, Some(folder)) => typed(&["fedsa", "plot", folder, "--style", "neurips"]),
            (_, None) => "results.plot(style=\"neurips\")".into(),
        };
        Some(format!("<li><code>{}</code></li>\n", escaped(&command)))
    };
    let commands: String = runs.iter().filter_map(command).collect();
    if commands.is_empty() {
        return commands;
    }
    format!(
        "<details id=\"again\"><summary>As a figure for a paper or slides</summary>\n<div></div><p class=\"small\">This writes SVG, PDF and PNG:</p>\n<ul>\n{commands}</ul>\n</details>\n"
    )
}

/// The settings that differ between runs.
pub fn compared(runs: &[ReportedRun]) -> String {
    let parsed: Vec<Option<toml::Table>> = runs.iter().map(|run| run.config.parse().ok()).collect();
    let Some(Some(first)) = parsed.first() else { return String::new() };
    if runs.len() < 2 {
        return String::new();
    }
    // For each key with a difference from the first run, its values by run.
    let mut values: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    for (i, other) in parsed.iter().enumerate().skip(1) {
        let Some(other) = other else { continue };
        for difference in differences(first, other) {
            let of = values.entry(difference.key).or_insert_with(|| vec![difference.a.clone(); runs.len()]);
            of[i] = difference.b;
        }
    }
    if values.is_empty() {
        return "<p>The settings of the runs are the same.</p>".into();
    }
    let heads: Vec<String> = std::iter::once("setting".to_string()).chain(runs.iter().map(|run| run.name.clone())).collect();
    let cell =
        |value: &Option<String>| value.as_ref().map_or(Cell::Tag(TagTone::Plain, "not set".into()), |value| Cell::Text(value.clone()));
    let rows: Vec<Vec<Cell>> =
        values.iter().map(|(key, of)| std::iter::once(Cell::Text(key.clone())).chain(of.iter().map(cell)).collect()).collect();
    table("Settings in which the runs differ", &heads, &rows, MAX_ROWS)
}

/// The other parts of a summary, such as the logs of an evaluation, the value of a policy, the families of a tuning.
pub fn others(run: &ReportedRun) -> String {
    const KNOWN: [&str; 18] = [
        "format",
        "id",
        "title",
        "fedsa",
        "seconds",
        "provenance",
        "passed",
        "checks",
        "results",
        "problem",
        "quick",
        "exit_status",
        "notes",
        "excused",
        "status",
        "point",
        "coordinates",
        "description",
    ];
    let rest: Vec<_> = run.summary.as_object().into_iter().flatten().filter(|(name, _)| !KNOWN.contains(&name.as_str())).collect();
    // First the requested results, then logs and tried choices.
    let is_asked = |(name, _): &(&String, &Json)| ["policy_value", "answer"].contains(&name.as_str());
    let (asked, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_asked);
    let held_out = ("held_out".to_string(), &run.held_out);
    let all = asked.into_iter().chain([(&held_out.0, held_out.1)]).chain(rest);
    all.map(|(name, value)| any_json::section(name, value, 3)).collect()
}

/// Provenance: the problem, the command, the program and the machine, the settings.
pub fn provenance(run: &ReportedRun, names_folder: bool) -> String {
    let p = &run.summary["provenance"];
    let mut entries: Vec<(String, String)> =
        names_folder.then(|| ("Folder".into(), run.folder.display().to_string())).into_iter().collect();
    let command: Vec<&str> = p["command_line"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
    if !command.is_empty() {
        entries.push(("Command".into(), typed(&command)));
    }
    for key in ["ended", "fedsa", "commit", "processor", "instruction_set", "threads", "system"] {
        if let Some(text) = p[key].as_str().map(str::to_string).or_else(|| p[key].as_u64().map(|n| n.to_string())) {
            entries.push((words(key), text));
        }
    }
    let problem = &run.summary["problem"];
    for key in ["agents", "dim"] {
        if let Some(n) = problem[key].as_u64() {
            entries.push((if key == "dim" { "Dimension".into() } else { words(key) }, numbers::thousands(n as f64)));
        }
    }
    let mut out = String::from("<dl>\n");
    for (name, value) in entries {
        out.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(&name), escaped(&clipped(&value, 1000))));
    }
    out.push_str("</dl>\n");
    if !run.config.is_empty() {
        let text = clipped(&run.config, 200_000);
        out.push_str(&format!("<details><summary>All settings</summary><pre tabindex=\"0\">{}</pre></details>\n", escaped(&text)));
    }
    out
}

/// A command as typed, with the program's name.
pub fn typed(words: &[&str]) -> String {
    let is_plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./:=,+@%~".contains(c));
    let quoted = |word: &&str| if is_plain(word) { (*word).to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    let program = words[0].rsplit(['/', '\\']).next().unwrap_or("fedsa");
    std::iter::once(program.to_string()).chain(words[1..].iter().map(quoted)).collect::<Vec<_>>().join(" ")
}

/// The sources of the methods.
pub fn sources(runs: &[ReportedRun]) -> String {
    let of_run = |run: &ReportedRun| -> Vec<String> {
        list(run, "results").iter().filter_map(|result| result["kind"].as_str().map(str::to_string)).collect()
    };
    let kinds: BTreeSet<String> = runs.iter().flat_map(of_run).collect();
    let cited: BTreeSet<&str> = kinds.iter().filter_map(|kind| cited::source(kind)).collect();
    if cited.is_empty() {
        return String::new();
    }
    let items: String = cited.iter().map(|source| format!("<li>{}</li>\n", escaped(source))).collect();
    format!("<ul>\n{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::note::{Note, NoteCode};
    use fedsa_experiment::summary::notes_json;

    #[test]
    fn a_note_of_every_kind_is_on_the_page() {
        let all: Vec<Note> = NoteCode::ALL.iter().map(|code| Note::new(*code, format!("{} See `ridge`.", code.about()))).collect();
        let summary = json!({ "notes": notes_json(&all) });
        let page = notes(&ReportedRun::of("x".as_ref(), "x".into(), RunState::Finished, summary));
        for note in &all {
            let expected = format!("{}</span> {} See <code>ridge</code>.</li>", note.severity().name(), escaped(note.code.about()));
            assert!(page.contains(&expected), "{expected}: {page}");
        }
    }

    #[test]
    fn a_command_is_typed_with_quotes_where_a_shell_needs_them() {
        assert_eq!(typed(&["/x/bin/fedsa", "run", "a b.toml", "--set=x=1", "it's"]), "fedsa run 'a b.toml' --set=x=1 'it'\\''s'");
    }
}
