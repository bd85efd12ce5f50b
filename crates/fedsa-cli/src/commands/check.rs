//! `fedsa check`: validates a file, and reports what would run, whether it is stable, and how long it takes.

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa::methods::{Drift, Shape};
use fedsa::parallel;
use fedsa::schedule::StepSize;
use fedsa_experiment::{Kinds, Plan, PlannedCell, checks, estimate, memory, stability};
use fedsa_theory::predict::{Outlook, Regime, StableStep};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::{count, duration, load, say, say_json};
use crate::args::CheckArgs;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// On bad input, on a check that can never be measured, and on a setting that is known to be unstable.
pub fn check(args: &CheckArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (experiment, base) = load(&args.file, &args.overrides, args.quick, kinds)?;
    let plan = Arc::new(Plan::new(experiment, &base, Isa::best(), &HashMap::new())?);
    let unmeasured = checks::unmeasured(&plan, &base)?;
    let accepted =
        memory::refuse(&plan).map_err(|e| plan.experiment.document.failure(e)).and_then(|()| stability::refuse_unstable(&plan, args.force));
    let memory = memory::of_plan(&plan);
    if args.json {
        say_json(&as_json(&plan, &unmeasured, args.quick, memory, accepted.as_ref().err()));
    } else {
        describe(&plan, &unmeasured);
        say(format!("  memory: {}", memory::text(memory)?));
    }
    accepted?;
    if !args.json {
        say("ok");
    }
    Ok(DONE)
}

/// The largest number of problems, and of points, that are listed one by one.
const LISTED: usize = 100;

/// Reports what a plan contains.
fn describe(plan: &Plan, unmeasured: &[Option<String>]) {
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
            if let Some(warning) = few_arrive(plan, *cell) {
                say(format!("      warning: {warning}"));
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

/// A warning where less than one message of a run is expected to arrive.
fn few_arrive(plan: &Plan, number: usize) -> Option<String> {
    let (cell, field) = (&plan.cells[number], plan.field(number));
    let agents = cell.shape().participants.unwrap_or(field.agents());
    let (sent, share) = (agents as f64 * cell.run.rounds as f64, cell.share_arriving(field));
    (sent * share < 1.0).then(|| format!("no message may arrive: of the {sent} messages of a run, {:.1e} on average", sent * share))
}

/// The largest number of characters of a link's text; a trace of delays may have any length.
const LONGEST_LINK: usize = 300;

/// The version of the layout of `check --json`.
const JSON_FORMAT: u64 = 1;

/// The largest problems for which `check --json` searches for stable steps, with hundreds of radii each: distinct agents
/// times the cube of d, and the size of the state of control variates. `theory` searches among larger ones too.
const STEP_WORK: usize = 100_000;
const STEP_STATE: usize = 64;

/// The report of a plan as JSON.
fn as_json(plan: &Plan, unmeasured: &[Option<String>], quick: bool, memory: f64, refusal: Option<&Error>) -> Json {
    let experiment = &plan.experiment;
    let duration = estimate::duration(plan);
    let problems = plan.fields.iter().enumerate().map(|(i, f)| {
        let tables = plan.points.iter().position(|p| p.field == i).map(|point| plan.resolved(point));
        let table = |name: &str| json!(tables.as_ref().and_then(|t| t.get(name)));
        json!({
            "agents": f.field.agents(),
            "dim": f.field.dim(),
            "kinds_of_agents": f.field.systems().map(|s| s.kinds.len()),
            "settings": table("problem"),
            "sampling": table("sampling"),
        })
    });
    let problems: Vec<Json> = problems.collect();
    let listed: Vec<usize> = plan.points.iter().take(LISTED).flat_map(|point| point.cells.iter().copied()).collect();
    let steps = stable_steps(plan, &listed);
    let outlooks: HashMap<usize, Outlook> =
        parallel::map(listed.len(), |i| (listed[i], plan.forecast(listed[i]).outlook())).into_iter().collect();
    let method = |resolved: &Table, m: usize, cell: usize| {
        let outlook = outlooks.get(&cell);
        let (stable, reason) = match (&plan.cells[cell].refused, outlook.map(|o| (o.regime(), o.stable()))) {
            (Some(reason), _) => (None, Some(format!("refused, not run: {reason}"))),
            (None, None) => (None, Some(format!("not computed: more than {LISTED} points"))),
            (None, Some((Regime::InMean, _))) => (Some(true), Some("in the mean; the mean square is not known".to_string())),
            (None, Some((Regime::MeanDiverges, _))) => (Some(false), Some("the mean diverges".to_string())),
            (None, Some((Regime::MeanSquareDiverges, _))) => (Some(false), Some("noise makes the mean square diverge".to_string())),
            (None, Some((_, Ok(stable)))) => (Some(stable), None),
            (None, Some((_, Err(why)))) => (None, Some(why)),
        };
        let finite = |x: Option<f64>| x.filter(|x| x.is_finite());
        json!({
            "method": plan.labels[m],
            "kind": plan.cells[cell].method.kind,
            "settings": resolved.get("method").and_then(|methods| methods.get(m)),
            "refused": plan.cells[cell].refused,
            "radius": finite(outlook.and_then(|o| o.radius.clone().ok())),
            "mean_square_radius": finite(outlook.and_then(|o| o.mean_square.clone()?.ok())),
            "stable": stable,
            "reason": reason,
            "largest_stable_step": finite(steps.get(&cell).and_then(|step| step.map(|s| s.step))),
            "runs": plan.cells[cell].seeds().len(),
            "seconds": duration.cells[cell],
        })
    };
    let points: Vec<Json> = parallel::map(plan.points.len(), |i| {
        let (planned, resolved) = (&plan.points[i], plan.resolved(i));
        let coordinates: Map<String, Json> = planned.point.coordinates.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let methods: Vec<Json> = planned.cells.iter().enumerate().map(|(m, cell)| method(&resolved, m, *cell)).collect();
        json!({
            "point": planned.point.label,
            "coordinates": coordinates,
            "problem": planned.field,
            "run": resolved.get("run"),
            "methods": methods,
        })
    });
    let checks = experiment.checks.iter().zip(unmeasured).map(|(check, why)| {
        let (name, statement) = (checks::name(check), checks::statement(check));
        json!({ "name": name, "kind": check.kind, "method": check.method, "statement": statement, "measurable": why.is_none(), "why": why })
    });
    json!({
        "format": JSON_FORMAT,
        "id": experiment.id,
        "title": experiment.title,
        "quick": quick,
        "accepted": refusal.is_none(),
        "refusal": refusal.map(ToString::to_string),
        "problems": problems,
        "points": points,
        "runs": plan.cells.iter().map(|cell| cell.seeds().len()).sum::<usize>(),
        "seconds": duration.total,
        "bytes": memory,
        "threads": rayon::current_num_threads(),
        "checks": checks.collect::<Vec<_>>(),
    })
}

/// The largest stable steps of cells. Cells that differ only in their step share one search.
fn stable_steps(plan: &Plan, cells: &[usize]) -> HashMap<usize, Option<StableStep>> {
    let key = |cell: usize| {
        let shape = plan.cells[cell].shape();
        let alike = Shape { step_size: StepSize::Constant(1.0), ..shape };
        let PlannedCell { field, method, uplink, .. } = &plan.cells[cell];
        let memory = method.settings.lost(plan.field(cell).agents(), &uplink.facts());
        format!("{field} {alike:?} {} {memory:?} {uplink:?}", shape.step_size.constant().is_some())
    };
    let mut distinct: Vec<(String, usize)> = cells.iter().map(|cell| (key(*cell), *cell)).collect();
    distinct.sort();
    distinct.dedup_by(|a, b| a.0 == b.0);
    let found = parallel::map(distinct.len(), |i| {
        let cell = distinct[i].1;
        let field = plan.field(cell);
        let (kinds, d) = (field.systems().map_or(0, |s| s.kinds.len()), field.dim());
        let shape = plan.cells[cell].shape();
        let is_small = match shape.drift {
            Drift::ControlVariate { .. } => d * (kinds + 1) <= STEP_STATE,
            Drift::Zero | Drift::GlobalMemory { .. } => kinds.saturating_mul(d.pow(3)) <= STEP_WORK,
            Drift::NoSteps => false,
        };
        if is_small { plan.forecast(cell).largest_stable_step().ok() } else { None }
    });
    let found: HashMap<String, Option<StableStep>> = distinct.into_iter().map(|(key, _)| key).zip(found).collect();
    cells.iter().map(|cell| (*cell, found[&key(*cell)])).collect()
}
