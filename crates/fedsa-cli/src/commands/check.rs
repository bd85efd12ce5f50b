//! `fedsa check`: validates a file, and reports its runs, their stability and their time.

use std::collections::HashMap;

use fedsa::error::Error;
use fedsa::parallel;
use fedsa_experiment::check::{self, Checked, LISTED};
use fedsa_experiment::config::Document;
use fedsa_experiment::deployment::{self, Deployment};
use fedsa_experiment::parts::SweepPart;
use fedsa_experiment::{Kinds, RunSettings, checks, estimate, memory, stability};
use serde_json::json;
use toml::Value;

use super::{count, duration, load, say, say_json, signals};
use crate::args::CheckArgs;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// On bad input, on a check that can never be measured, and on a setting that is known to be unstable.
pub fn check(args: &CheckArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (experiment, base) = load(&args.file, &args.overrides, args.quick, kinds)?;
    if deployment::is_without_data(&experiment.document) {
        return check_federation(experiment.document, args.json);
    }
    let settings = RunSettings::default().with_base(base).with_quick(args.quick).with_force(args.force);
    let checked = match &args.points {
        None => check::check(experiment, &settings, signals::cancel())?,
        Some(points) => {
            let part = SweepPart::of(points.parse()?);
            part.check(experiment.points.len())?;
            check::check_points(&experiment, part.points.iter().collect(), &settings, signals::cancel())?
        }
    };
    if args.json {
        say_json(&checked.written());
    } else {
        describe(&checked);
        say(format!("  memory: {}", memory::text(checked.bytes)?));
    }
    checked.refusal.map_or(Ok(()), Err)?;
    if !args.json {
        say("ok");
    }
    Ok(DONE)
}

/// Checks the settings of a federation, whose agents have the data.
fn check_federation(document: Document, as_json: bool) -> Result<u8, Error> {
    const NOT_CHECKED: &str = "rows, columns and labels, stability, memory and time, which depend on the agents' data";
    let checked = Deployment::new(document)?;
    let (rounds, notes) = (checked.until().rounds, checked.notes());
    if as_json {
        let notes: Vec<_> = notes.iter().map(|note| json!({ "code": note.code.name(), "text": note.text })).collect();
        say_json(
            &json!({ "format": 1, "federation": true, "accepted": true, "rounds": rounds, "not_checked": NOT_CHECKED, "notes": notes }),
        );
        return Ok(DONE);
    }
    say("settings of a federation: the file names no data, which are with the agents");
    say(format!("  checked: the problem's settings, sampling, method and link, {}, figure and checks", count(rounds as usize, "round")));
    say(format!("  not checked: {NOT_CHECKED}"));
    notes.iter().for_each(|note| say(format!("  note: {note}")));
    say("ok");
    Ok(DONE)
}

/// Reports what a plan contains.
fn describe(checked: &Checked) {
    let Checked { plan, unmeasured, .. } = checked;
    let experiment = &plan.experiment;
    say(format!("{}: {}", experiment.id, experiment.title));
    for (i, f) in plan.fields.iter().enumerate().take(LISTED) {
        let field = &f.field;
        let distinct = field.systems().map(|s| s.kinds.len()).filter(|kinds| *kinds < field.agents());
        let distinct = distinct.map_or(String::new(), |kinds| format!(" ({kinds} distinct)"));
        let name = if plan.fields.len() == 1 { "problem".to_string() } else { format!("problem {i}") };
        let tables = plan.points.iter().position(|p| p.field == i).map(|point| plan.resolved(point));
        let tables = tables.as_ref();
        say(format!("  {name}: {}{distinct}, d = {}", count(field.agents(), "agent"), field.dim()));
        say(format!("    {}", settings(tables.and_then(|t| t.get("problem")))));
        say(format!("    sampling: {}", settings(tables.and_then(|t| t.get("sampling")))));
        if let Err(why) = field.solution() {
            say(format!("    theta* is not available: {why}"));
        }
    }
    if plan.fields.len() > LISTED {
        say(format!("  .. and {}", count(plan.fields.len() - LISTED, "further problem")));
    }
    let runs: usize = plan.cells.iter().map(|c| c.run.seeds.count()).sum();
    say(format!(
        "  {} x {} = {} with their seeds{}",
        count(plan.points.len(), "point"),
        count(plan.labels.len(), "method"),
        count(runs, "different run"),
        if experiment.checks.is_empty() { String::new() } else { format!(", {}", count(experiment.checks.len(), "check")) }
    ));
    let mut listed: Vec<usize> = plan.points.iter().take(LISTED).flat_map(|point| point.cells.iter().copied()).collect();
    listed.sort_unstable();
    listed.dedup();
    let stability: HashMap<usize, String> =
        parallel::map(listed.len(), |i| (listed[i], stability::text(plan, listed[i]))).into_iter().collect();
    for (i, planned) in plan.points.iter().enumerate().take(LISTED) {
        let resolved = plan.resolved(i);
        if !planned.point.label.is_empty() {
            say(format!("  at {} (problem {}): {}", planned.point.label, planned.field, settings(resolved.get("run"))));
        } else {
            say(format!("  run: {}", settings(resolved.get("run"))));
        }
        for (m, (label, cell)) in plan.labels.iter().zip(&planned.cells).enumerate() {
            let table = resolved.get("method").and_then(|methods| methods.get(m));
            say(format!("    {label}: {}", settings(table)));
            say(format!("      {}", stability[cell]));
            if let Some((sent, arriving)) = checked.few_arrive(*cell) {
                say(format!("      warning: no message may arrive: of the {sent} messages of a run, {arriving:.1e} on average"));
            }
        }
    }
    if plan.points.len() > LISTED {
        say(format!("  .. and {}", count(plan.points.len() - LISTED, "further point")));
    }
    for (check, why) in experiment.checks.iter().zip(unmeasured) {
        if let Some(why) = why {
            say(format!("  not measured: {}: {why}", checks::name(check)));
        }
    }
    say(format!("  time: {} on {}", duration(estimate::duration(plan).total), count(rayon::current_num_threads(), "thread")));
}

/// Resolved settings in one line, the kind first, without `label` and `expect`; long settings are shortened.
fn settings(table: Option<&Value>) -> String {
    let Some(Value::Table(table)) = table else { return String::new() };
    let kind = table.get("kind").and_then(Value::as_str).map(str::to_string);
    let own = table.iter().filter(|(key, _)| !["kind", "label", "expect"].contains(&key.as_str()));
    let text = |key: &str, value: &Value| match key {
        // The link is printed too, because the kind does not imply it.
        "uplink" | "downlink" => fedsa_experiment::config::cut(value, LONGEST_LINK),
        _ => fedsa_experiment::config::short(value),
    };
    let own = own.map(|(key, value)| format!("{key} = {}", text(key, value)));
    kind.into_iter().chain(own).collect::<Vec<_>>().join(", ")
}

/// The largest number of characters of a link's text; a trace of delays may have any length.
const LONGEST_LINK: usize = 300;
