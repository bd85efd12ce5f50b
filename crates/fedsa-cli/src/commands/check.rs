//! `fedsa check`: validates a file, says what would run, whether it is stable, and how long it takes.

use std::collections::HashMap;

use fedsa::kernel::Isa;
use fedsa::methods::Drift;

use super::{duration, load};
use crate::args::CheckArgs;
use crate::error::{DONE, Failure};
use crate::experiment::predict::{largest_stable_step, radius};
use crate::experiment::{Cell, Plan};

/// Runs the command.
///
/// # Errors
/// On bad input, and on a setting that is known to be unstable.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let (experiment, base) = load(&args.file, &args.overrides, false)?;
    let plan = Plan::new(experiment, &base, Isa::best(), &HashMap::new())?;
    let experiment = &plan.experiment;
    println!("{}: {}", experiment.id, experiment.title);
    for (i, f) in plan.fields.iter().enumerate() {
        let field = &f.field;
        let kinds = field.systems().map_or(String::new(), |s| format!(", {} distinct", s.kinds.len()));
        let name = if plan.fields.len() == 1 { "problem".to_string() } else { format!("problem {i}") };
        let sampling = serde_json::to_value(field.sampling().kind).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default();
        println!("  {name}: {} agents{kinds}, d = {}, {sampling} samples", field.agents(), field.dim());
    }
    let runs: usize = plan.cells.iter().map(|c| c.run.seeds.list().len()).sum();
    println!(
        "  {} points x {} methods: {} distinct runs with their seeds, {} checks",
        plan.points.len(),
        plan.labels.len(),
        runs,
        experiment.checks.len()
    );
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            let at = if planned.point.label.is_empty() { String::new() } else { format!(" at {}", planned.point.label) };
            println!("  {label}{at}: {}", stability_text(&plan, *cell));
        }
    }
    println!("  about {} on this machine", duration(estimate(&plan)));
    refuse_unstable(&plan, args.force)?;
    println!("ok");
    Ok(DONE)
}

/// What is known of a cell's stability, in words.
fn stability_text(plan: &Plan, cell: usize) -> String {
    let (field, shape) = (plan.field(cell), plan.cells[cell].method.settings.shape());
    match radius(field, &shape) {
        Err(e) => format!("stability {}", e.what),
        Ok(rho) if rho < 1.0 => format!("stable, radius of a noiseless round {rho:.6}"),
        Ok(rho) => format!("UNSTABLE, radius of a noiseless round {rho:.6}; {}", stable_step_text(plan, cell)),
    }
}

fn stable_step_text(plan: &Plan, cell: usize) -> String {
    let (field, shape) = (plan.field(cell), plan.cells[cell].method.settings.shape());
    match largest_stable_step(field, &shape) {
        Ok(step) => format!("the largest step below the first instability is {step:.4e}"),
        Err(e) => format!("no stable step found: {e}"),
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
        let shape = method.settings.shape();
        let Ok(rho) = radius(plan.field(*cell), &shape) else { continue };
        if rho < 1.0 {
            continue;
        }
        let hint = match shape.drift {
            Drift::ControlVariate { talk: None } => "; or talk at random (scafflsa-random)",
            _ => "",
        };
        let e = fedsa::error::BadInput::new(
            format!("method[{i}].step_size"),
            format!("{}: these settings are unstable: the radius of a noiseless round is {rho:.4}", method.label),
            format!("{}{hint}; or expect = \"diverges\", or --force", stable_step_text(plan, *cell)),
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
            cell.work(field) * ns * 1e-9 * cell.run.seeds.list().len() as f64 + 1e-6 * cell.run.rounds as f64
        })
        .sum();
    seconds / rayon::current_num_threads() as f64
}
