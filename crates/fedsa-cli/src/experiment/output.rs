//! What a finished experiment leaves in its folder.

use std::path::Path;

use fedsa::error::Result;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::record::Ledger;
use fedsa::round::Status;
use serde_json::{Map, Value as Json, json};
use toml::Value;

use super::checks::Verdict;
use super::picture::Picture;
use super::plan::Plan;
use super::predict::{Predictor, QUANTITIES};
use super::results::{Estimate, Results, SeedResult};
use crate::files::trace::{Column, Table as Trace};
use crate::files::{atomic, npz, trace};

/// The version of `summary.json`'s and `theta.npz`'s layout.
pub const FORMAT: u64 = 1;

/// Writes all files of a finished experiment but `config.toml`, which its start wrote.
///
/// # Errors
/// When the folder cannot be written.
pub fn write(dir: &Path, plan: &Plan, results: &Results, summary: &Json, picture: &Picture) -> Result<()> {
    trace::write(&dir.join("trace.parquet"), &trace_table(plan, results)?)?;
    npz::write(&dir.join("theta.npz"), &theta(plan, results)?)?;
    atomic::write(&dir.join("figure.svg"), picture.svg().as_bytes())?;
    atomic::write(&dir.join("figure.png"), &picture.png())?;
    // Last: a folder with a summary is complete.
    atomic::write(&dir.join("summary.json"), format!("{summary:#}\n").as_bytes())
}

fn trace_table(plan: &Plan, results: &Results) -> Result<Trace> {
    let (mut method, mut point, mut seed) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts: [Vec<u64>; 7] = Default::default();
    let mut metrics: [Vec<Option<f64>>; 6] = Default::default();
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            for run in &results.cells[*cell] {
                for row in &run.rows {
                    method.push(label.clone());
                    point.push(planned.point.label.clone());
                    seed.push(run.seed);
                    let l = &row.ledger;
                    let values = [row.round, l.exchanges, l.samples, l.messages, l.bits_up, l.bits_down, l.vectors_up];
                    counts.iter_mut().zip(values).for_each(|(column, x)| column.push(x));
                    let s = &row.seen;
                    let values = [s.mse, s.error, Some(s.residual), s.value_error, s.control_error, s.lyapunov];
                    // After a divergence numbers may not be finite: then there is none.
                    metrics.iter_mut().zip(values).for_each(|(column, x)| column.push(x.filter(|x| x.is_finite())));
                }
            }
        }
    }
    let mut columns = vec![
        ("method".to_string(), Column::Str(method)),
        ("point".to_string(), Column::Str(point)),
        ("seed".to_string(), Column::U64(seed)),
    ];
    let names = ["round", "exchanges", "samples", "messages", "bits_up", "bits_down", "vectors_up"];
    columns.extend(names.iter().zip(counts).map(|(name, column)| (name.to_string(), Column::U64(column))));
    let names = ["mse", "error", "residual", "value_error", "control_error", "lyapunov"];
    columns.extend(names.iter().zip(metrics).map(|(name, column)| (name.to_string(), Column::OptF64(column))));
    Trace::new(columns)
}

/// The final outputs: for every method (and point, where several) an array (seeds, d), and theta*.
fn theta(plan: &Plan, results: &Results) -> Result<Arrays> {
    let mut arrays = Arrays::new();
    arrays.insert("format", Array::scalar(FORMAT as f64));
    for planned in &plan.points {
        let ran = plan.labels.iter().zip(&planned.cells).filter(|(_, cell)| plan.cells[**cell].refused.is_none());
        for (label, cell) in ran {
            let name = if planned.point.label.is_empty() { label.clone() } else { format!("{label} [{}]", planned.point.label) };
            let seeds = &results.cells[*cell];
            let d = plan.field(*cell).dim();
            arrays.insert(name, Array::new(vec![seeds.len(), d], seeds.iter().flat_map(|s| s.theta.iter().copied()).collect())?);
        }
    }
    for (i, field) in plan.fields.iter().enumerate() {
        if let Some(root) = field.field.root() {
            let name = if plan.fields.len() == 1 { "theta_star".to_string() } else { format!("theta_star [problem {i}]") };
            arrays.insert(name, Array::new(vec![root.len()], root.to_vec())?);
        }
    }
    Ok(arrays)
}

fn ledger_json(results: &[SeedResult]) -> Json {
    if results.is_empty() {
        return Json::Null;
    }
    let mean = |f: fn(&Ledger) -> u64| {
        let total: f64 = results.iter().filter_map(|s| s.rows.last()).map(|row| f(&row.ledger) as f64).sum();
        total / results.len() as f64
    };
    json!({
        "exchanges": mean(|l| l.exchanges),
        "samples": mean(|l| l.samples),
        "messages": mean(|l| l.messages),
        "bits_up": mean(|l| l.bits_up),
        "bits_down": mean(|l| l.bits_down),
        "vectors_up": mean(|l| l.vectors_up),
    })
}

/// A number as JSON; null when it is not finite.
fn number(x: Option<f64>) -> Json {
    x.filter(|x| x.is_finite()).map_or(Json::Null, |x| json!(x))
}

fn to_json(value: &Value) -> Json {
    serde_json::to_value(value).unwrap_or(Json::Null)
}

/// `summary.json`. Predictions are those that checks and figure have asked for, and the cheap ones.
pub fn summary(plan: &Plan, results: &Results, predictor: &Predictor<'_>, verdicts: &[Verdict], seconds: f64) -> Json {
    let mut list = Vec::new();
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            let seeds = &results.cells[*cell];
            let floors = |metric| results.floors(*cell, metric).map(|f| Estimate::of(&f));
            let floor = floors("mse");
            let last: Option<Vec<f64>> = seeds.iter().map(|s| s.last("mse")).collect();
            let diverged: Vec<u64> = seeds
                .iter()
                .filter_map(|s| match s.status {
                    Status::Diverged { round } => Some(round),
                    Status::Ok => None,
                })
                .collect();
            let mut predictions = Map::new();
            for quantity in QUANTITIES {
                if let Some(x) = predictor.known(*cell, quantity) {
                    predictions.insert((*quantity).to_string(), number(Some(x)));
                }
            }
            let coordinates: Map<String, Json> = planned.point.coordinates.iter().map(|(n, v)| (n.clone(), to_json(v))).collect();
            let mut entry = json!({
                "method": label,
                "kind": plan.cells[*cell].method.kind,
                "point": planned.point.label,
                "coordinates": coordinates,
                "seeds": seeds.len(),
                "status": if diverged.is_empty() { "ok" } else { "diverged" },
                "as_expected": results.as_expected(plan, *cell),
                "rounds": seeds.iter().filter_map(|s| s.rows.last()).map(|r| r.round).max(),
                "floor_mean": number(floor.map(|f| f.mean)),
                "floor_se": number(floor.map(|f| f.se)),
                "final_mean": number(last.map(|l| Estimate::of(&l).mean)),
                "residual_mean": number(seeds.iter().map(|s| s.last("residual")).collect::<Option<Vec<f64>>>().map(|l| Estimate::of(&l).mean)),
                "predicted": predictions,
                "ledger": ledger_json(seeds),
            });
            if let Some(reason) = &plan.cells[*cell].refused {
                entry["status"] = json!("refused");
                entry["reason"] = json!(reason);
            }
            if plan.cells[*cell].centre.is_some() {
                let error = floors("error");
                entry["error_floor_mean"] = number(error.map(|f| f.mean));
                entry["error_floor_se"] = number(error.map(|f| f.se));
            }
            if !diverged.is_empty() {
                let shape = plan.cells[*cell].shape();
                entry["diverged_at_round"] = json!(diverged.iter().min());
                entry["diverged_seeds"] = json!(diverged.len());
                entry["largest_stable_step"] =
                    number(super::predict::largest_stable_step(plan.field(*cell), &shape).ok().map(|stable| stable.step));
            }
            if seeds.iter().any(|s| s.stopped) {
                entry["stopped_at_target"] = json!(seeds.iter().filter(|s| s.stopped).count());
            }
            list.push(entry);
        }
    }
    let problems: Vec<Json> = plan
        .fields
        .iter()
        .map(|f| {
            let field = &f.field;
            json!({
                "agents": field.agents(),
                "dim": field.dim(),
                "sampling": serde_json::to_value(field.sampling()).unwrap_or(Json::Null),
                "kinds_of_agents": field.systems().map(|s| s.kinds.len()),
                "theta_star": field.root(),
            })
        })
        .collect();
    json!({
        "format": FORMAT,
        "id": plan.experiment.id,
        "title": plan.experiment.title,
        "fedsa": env!("CARGO_PKG_VERSION"),
        "seconds": seconds,
        "passed": verdicts.iter().all(|v| v.as_expected) && results.all_as_expected(plan),
        "checks": verdicts,
        "results": list,
        "problem": if problems.len() == 1 { problems[0].clone() } else { json!(problems) },
    })
}
