//! `fedsa check`: validates a file, says what would run, whether it is stable, and how long it takes.

use std::collections::HashMap;

use fedsa::error::BadInput;
use fedsa::kernel::Isa;
use fedsa::methods::Drift;
use fedsa::sampling::Law;
use rayon::prelude::*;
use toml::Value;

use super::{count, duration, load, say};
use crate::args::CheckArgs;
use crate::error::{DONE, Failure};
use crate::experiment::predict::{MeanSquareRadius, largest_stable_step, radius};
use crate::experiment::{Cell, Plan};

/// Runs the command.
///
/// # Errors
/// On bad input, and on a setting that is known to be unstable.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let (experiment, base) = load(&args.file, &args.overrides, false)?;
    let plan = Plan::new(experiment, &base, Isa::best(), &HashMap::new())?;
    describe(&plan);
    refuse_unstable(&plan, args.force)?;
    say("ok");
    Ok(DONE)
}

/// The most problems, and the most points whose methods, are listed one by one.
const LISTED: usize = 100;

/// Says what a plan comes to.
fn describe(plan: &Plan) {
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
    let stability: HashMap<usize, String> = listed.into_par_iter().map(|cell| (cell, stability_text(plan, cell))).collect();
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
        }
    }
    if plan.points.len() > LISTED {
        say(format!("  .. and {}", count(plan.points.len() - LISTED, "further point")));
    }
    say(format!("  time: {} on {}", duration(estimate(plan)), count(rayon::current_num_threads(), "thread")));
}

/// Resolved settings in one line, the kind first, without the label; long ones shortened.
fn settings(table: Option<&Value>) -> String {
    let Some(Value::Table(table)) = table else { return String::new() };
    let kind = table.get("kind").and_then(Value::as_str).map(str::to_string);
    let own = table.iter().filter(|(key, _)| !["kind", "label"].contains(&key.as_str()));
    let text = |key: &str, value: &Value| match key {
        // A link is what a method's kind does not say.
        "uplink" | "downlink" => crate::config::cut(value, LONGEST_LINK),
        _ => crate::config::short(value),
    };
    let own = own.map(|(key, value)| format!("{key} = {}", text(key, value)));
    kind.into_iter().chain(own).collect::<Vec<_>>().join(", ")
}

/// A link's text is cut here: a trace of delays may be of any length.
const LONGEST_LINK: usize = 300;

/// What is known of a cell's stability, in words.
fn stability_text(plan: &Plan, cell: usize) -> String {
    if let Some(reason) = &plan.cells[cell].refused {
        return format!("refused, not run: {reason}");
    }
    let (field, shape) = (plan.field(cell), plan.cells[cell].shape());
    let rho = match radius(field, &shape) {
        Err(e) => return format!("stability {}", e.what),
        Ok(rho) if rho < 1.0 => format!("the radius of a noiseless round is {rho:.6}"),
        Ok(rho) => return format!("UNSTABLE: the radius of a noiseless round is {}; {}", number(rho), stable_step_text(plan, cell)),
    };
    if field.sampling().kind == Law::Mean {
        return format!("stable: {rho}");
    }
    match MeanSquareRadius::new(field, &shape).and_then(|of| of.at(&shape)) {
        Err(e) => format!("stable in the mean: {rho}; in the mean square {}", e.what),
        Ok(square) if square < 1.0 => format!("stable: {rho}, that of the mean square {square:.6}"),
        Ok(square) => {
            let step = stable_step_text(plan, cell);
            format!("stable in the mean only: {rho}, but noise makes the mean square DIVERGE, its radius is {}; {step}", number(square))
        }
    }
}

/// A number for people: plain where that is short.
fn number(x: f64) -> String {
    if (1e-3..1e4).contains(&x) { format!("{x:.4}") } else { format!("{x:.3e}") }
}

/// Names a step size that is stable: rounded down, so that it still is as it is written.
pub fn stable_step_text(plan: &Plan, cell: usize) -> String {
    let (field, shape) = (plan.field(cell), plan.cells[cell].shape());
    match largest_stable_step(field, &shape) {
        Ok(stable) if stable.step.is_infinite() => "stable with any step_size".into(),
        Ok(stable) if stable.in_mean_square => format!("stable up to step_size = {}", rounded_down(stable.step)),
        Ok(stable) => format!("stable up to step_size = {} in the mean (noise may ask for less)", rounded_down(stable.step)),
        Err(e) => format!("no stable step found: {}", e.what),
    }
}

/// The largest number of four digits that is not above `x`, as a TOML file may hold it.
fn rounded_down(x: f64) -> String {
    let unit = 10f64.powi(x.log10().floor() as i32 - 3);
    let mut digits = (x / unit).floor();
    loop {
        let text = if (1e-4..1e6).contains(&x) {
            let decimals = (3 - x.log10().floor() as i32).max(0) as usize;
            format!("{:.decimals$}", digits * unit)
        } else {
            format!("{:.3e}", digits * unit)
        };
        if text.parse::<f64>().is_ok_and(|y| y <= x) {
            return text;
        }
        digits -= 1.0;
    }
}

/// Refuses a setting known to be unstable, unless it is expected to diverge, a sweep point, or forced.
///
/// # Errors
/// When there is one; names a step that is stable.
pub fn refuse_unstable(plan: &Plan, force: bool) -> Result<(), Failure> {
    if force || plan.is_swept() {
        return Ok(());
    }
    for (i, cell) in plan.points[0].cells.iter().enumerate() {
        let Cell { method, .. } = &plan.cells[*cell];
        if method.expect.is_some() {
            continue;
        }
        let shape = plan.cells[*cell].shape();
        let field = plan.field(*cell);
        let Ok(rho) = radius(field, &shape) else { continue };
        let why = if rho >= 1.0 {
            format!("the radius of a noiseless round is {}", number(rho))
        } else if field.sampling().kind == Law::Mean {
            continue;
        } else {
            match MeanSquareRadius::new(field, &shape).and_then(|of| of.at(&shape)) {
                Ok(square) if square >= 1.0 => {
                    format!("noise makes the mean square diverge, the radius of a round's second moments is {}", number(square))
                }
                _ => continue,
            }
        };
        let hint = match shape.drift {
            Drift::ControlVariate { talk: None } => ", or random talk (kind = \"scafflsa-random\")",
            _ => "",
        };
        let e = BadInput::new(
            format!("method[{i}].step_size"),
            format!("{} is unstable with these settings: {why}", method.label),
            format!("{}{hint}; expect = \"diverges\" in the method, or --force, to run it nevertheless", stable_step_text(plan, *cell)),
        );
        return Err(plan.experiment.document.failure(e));
    }
    Ok(())
}

/// Seconds that a plan takes on this machine, from a rough cost per local step.
fn estimate(plan: &Plan) -> f64 {
    let seconds: f64 = plan
        .cells
        .iter()
        .enumerate()
        .map(|(i, cell)| {
            let field = plan.field(i);
            let chunks = fedsa::kernel::chunks(field.dim()) as f64;
            let ns = if field.sampling().samples_per_step() == 0 {
                field.dim() as f64 * chunks
            } else {
                4.0 * chunks * field.sampling().batch as f64
            };
            cell.work(field) * ns * 1e-9 * cell.run.seeds.count() as f64 + 1e-6 * cell.run.rounds as f64
        })
        .sum();
    seconds / rayon::current_num_threads() as f64
}

#[cfg(test)]
mod tests {
    use super::rounded_down;

    #[test]
    fn steps_are_rounded_down_to_what_can_be_written() {
        for (x, text) in
            [(25.2257, "25.22"), (0.1, "0.1000"), (0.099999, "0.09999"), (123456.7, "123400"), (9.9999e-7, "9.999e-7"), (2.0e9, "2.000e9")]
        {
            assert_eq!(rounded_down(x), text);
            assert!(text.parse::<f64>().unwrap() <= x);
        }
    }
}
