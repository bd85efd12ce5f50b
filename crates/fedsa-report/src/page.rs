//! The page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use fedsa_experiment::numbers;
use fedsa_experiment::output::FIGURE;
use fedsa_experiment::theory::TheoryReport;

use crate::curves::{Curves, curves};
use crate::html::{escaped, json_in_script};
use crate::run::ReportedRun;
use crate::sweep::SweepMaps;
use crate::{ReportOptions, found, sections, theory};

const UPLOT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
const SCRIPT: &str = include_str!("../assets/report.js");
const STYLE: &str = include_str!("../assets/report.css");

/// The mark of pages written by fedsa; its version follows.
pub const GENERATOR: &str = "<meta name=\"generator\" content=\"fedsa report";

/// The page about these runs.
pub fn page(runs: &[ReportedRun], options: &ReportOptions) -> String {
    let title = options.title.clone().unwrap_or_else(|| title(runs));
    let theories: Vec<Option<TheoryReport>> = runs.iter().map(theory::of).collect();
    let maps: Vec<Option<SweepMaps>> = runs.iter().map(SweepMaps::of).collect();
    let curves = curves(runs, &theories);
    let data = data(runs, options, &curves, &maps);
    let style = format!("{UPLOT_STYLE}\n{STYLE}");
    let reload = options.reload.map_or(String::new(), |after| {
        // With scripts, the page reloads itself and keeps the user's choices.
        format!("<noscript><meta http-equiv=\"refresh\" content=\"{}\"></noscript>\n", after.as_secs().max(1))
    });
    let mut body = head(runs, &title);
    body.push_str(&picked(runs, options, &curves, &maps));
    body.push_str(&rest(runs, options, &theories));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         {GENERATOR} {}\">\n{reload}<title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>{UPLOT}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        policy(&style),
        env!("CARGO_PKG_VERSION"),
        escaped(&title),
        json_in_script(&data),
    )
}

/// The content security policy: the page's own scripts and style, by their digests, and pictures inside it.
fn policy(style: &str) -> String {
    let digest = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())));
    format!(
        "default-src 'none'; script-src {} {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        digest(UPLOT),
        digest(SCRIPT),
        digest(style)
    )
}

fn title(runs: &[ReportedRun]) -> String {
    match runs {
        [run] => run.title(),
        _ => runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn data(runs: &[ReportedRun], options: &ReportOptions, curves: &Curves, maps: &[Option<SweepMaps>]) -> Json {
    let sweeps: Vec<Json> =
        maps.iter().enumerate().filter_map(|(r, maps)| Some(json!({ "run": r, "sweep": maps.as_ref()?.json() }))).collect();
    let mut data = curves.json.clone();
    data["sweeps"] = json!(sweeps);
    data["figures"] = runs.iter().map(|run| sections::figure(run, options)).collect();
    data["reload"] = json!(options.reload.map(|after| after.as_secs_f64()));
    data
}

/// The problem, rounds, methods and sweeps that ran, and the verdict.
fn head(runs: &[ReportedRun], title: &str) -> String {
    let ids = |run: &ReportedRun| run.summary["id"].as_str().filter(|id| *id != title).map(str::to_string);
    let id = match runs {
        [run] => ids(run).map_or(String::new(), |id| format!("<p class=\"id\">{}</p>", escaped(&id))),
        _ => String::new(),
    };
    let description = match runs {
        [run] => described(run) + &ran(run),
        _ => runs
            .iter()
            .map(|run| format!("<p><strong>{}</strong>: {}</p>\n{}", escaped(&run.name), escaped(&run.title()), ran(run)))
            .collect(),
    };
    format!("<header>\n{id}<h1>{}</h1>\n{description}{}</header>\n<main>\n", escaped(title), sections::verdicts(runs))
}

/// The description in the settings of a run.
fn described(run: &ReportedRun) -> String {
    let table: Option<toml::Table> = run.config.parse().ok();
    let text = table.as_ref().and_then(|table| table.get("description")?.as_str());
    text.map_or(String::new(), |text| format!("<p>{}</p>\n", escaped(text)))
}

/// The experiment that ran, in one line.
fn ran(run: &ReportedRun) -> String {
    let text = found::ran(run);
    if text.is_empty() { text } else { format!("<p class=\"ran\">{}</p>\n", escaped(&text)) }
}

fn part(id: &str, title: &str, inside: &str) -> String {
    if inside.is_empty() { String::new() } else { format!("<section id=\"{id}\"><h2>{title}</h2>\n{inside}</section>\n") }
}

/// A part of a run; with several runs, under its name.
fn named(runs: &[ReportedRun], run: &ReportedRun, inside: String) -> String {
    if inside.is_empty() || runs.len() == 1 { inside } else { format!("<h3>{}</h3>\n{inside}", escaped(&run.name)) }
}

/// The most important parts: pictures, notes, checks, results.
fn picked(runs: &[ReportedRun], options: &ReportOptions, curves: &Curves, maps: &[Option<SweepMaps>]) -> String {
    let notes: String = runs.iter().map(|run| named(runs, run, sections::notes(run))).collect();
    let mut out = curves_and_pictures(runs, options, curves);
    out.push_str(&part("notes", "Notes", &notes));
    out.push_str(&part("checks", "Checks", &sections::checks(runs)));
    let drawn = |(run, maps): (&ReportedRun, &Option<SweepMaps>)| {
        maps.as_ref().map_or(String::new(), |maps| named(runs, run, format!("<div class=\"sweep\">{}</div>", maps.html())))
    };
    out.push_str(&part("maps", "The sweep", &runs.iter().zip(maps).map(drawn).collect::<String>()));
    out.push_str(&part("results", "Results", &sections::results(runs)));
    out.push_str(&part("differences", "Settings that differ", &sections::compared(runs)));
    let others: String = runs.iter().map(|run| named(runs, run, sections::others(run))).collect();
    out.push_str(&part("found", "What was found", &others));
    out
}

/// The first part: pictures of results, and curves.
fn curves_and_pictures(runs: &[ReportedRun], options: &ReportOptions, curves: &Curves) -> String {
    let mut inside = pictures(runs, |name| !is_figure(name));
    if curves.shown > 0 {
        if curves.shown < curves.all {
            let (shown, all) = (curves.shown, curves.all);
            inside.push_str(&format!(
                "<p>Curves of {shown} of {all} seeds of methods at points, along the sweep: more would be too many to look at. Tables and maps have all.</p>\n"
            ));
        }
        inside.push_str(&thinned(curves));
        inside.push_str("<div id=\"curves\"></div>\n");
    }
    let figures = pictures(runs, is_figure);
    if !figures.is_empty() {
        inside.push_str(&format!("<details class=\"pictures\" open><summary>As pictures</summary>\n{figures}</details>\n"));
    }
    inside.push_str(&sections::drawn_again(runs, options));
    if runs.iter().all(|run| run.table.as_ref().is_some_and(|table| table.series.is_empty())) {
        inside = "<p>There are no recorded rounds yet.</p>\n".into();
    }
    let title = if curves.shown > 0 { "Curves" } else { "Pictures" };
    part("pictures", title, &inside)
}

/// Whether a picture is the figure of the experiment, whose curves the page draws itself.
fn is_figure(name: &str) -> bool {
    name.split('.').next() == Some(FIGURE)
}

/// The note that the page has only some of the records, and which.
fn thinned(curves: &Curves) -> String {
    let (kept, all) = curves.records;
    if kept == all {
        return String::new();
    }
    let count = |n: usize| numbers::thousands(n as f64);
    format!(
        "<p>The curves have {} of the {} records of these seeds: the first and the last one, and of each stretch of rounds those at which a \
         metric, as its mean over seeds, is smallest and largest. <code>trace.parquet</code> in the folder has all.</p>\n",
        count(kept),
        count(all)
    )
}

/// The pictures of runs whose names `has_name` accepts. They work without scripts and in print.
fn pictures(runs: &[ReportedRun], has_name: impl Fn(&str) -> bool) -> String {
    let mut out = String::new();
    for run in runs {
        for (name, svg) in run.pictures.iter().filter(|(name, _)| has_name(name)) {
            let source = format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg));
            let of = escaped(&format!("{name} of {}", run.name));
            out.push_str(&format!("<figure class=\"picture\"><img src=\"{source}\" alt=\"The picture {of}\"><figcaption><a download=\"{}\" href=\"{source}\">{of}</a></figcaption></figure>\n", escaped(name)));
        }
    }
    out
}

/// Predictions, costs, and provenance.
fn rest(runs: &[ReportedRun], options: &ReportOptions, theories: &[Option<TheoryReport>]) -> String {
    let mut out = part("theory", "Theory", &(theory::page(runs, theories) + &sections::theory(runs)));
    out.push_str(&part("costs", "Costs", &sections::costs(runs)));
    let ran: String = runs.iter().map(|run| named(runs, run, sections::provenance(run, !options.hides_folders))).collect();
    out.push_str(&part("run", "How it was run", &ran));
    out.push_str(&part("sources", "Sources of the methods", &sections::sources(runs)));
    out.push_str("</main>\n<footer>\n");
    if let Some(command) = &options.command {
        out.push_str(&format!("<p>This page: <code>{}</code></p>\n", escaped(command)));
    }
    out.push_str(&format!(
        "<p>fedsa {}. Curves are drawn with uPlot (MIT licence, \u{a9} Leon Sorokin).</p>\n</footer>",
        env!("CARGO_PKG_VERSION")
    ));
    out
}
