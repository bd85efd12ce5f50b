//! `fedsa evaluate`: logged transitions to the weights of a value function.
//!
//! The flags become an experiment file, which is run as any other; beside its
//! usual files the folder gets `weights.json` and `weights.npz`.

use std::path::Path;

use fedsa::error::{BadInput, Result};
use fedsa::linalg;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::features::FeatureSpec;
use fedsa::problem::logs::Logs;
use serde_json::json;
use toml::{Table, Value};

use super::run::experiment_in;
use crate::args::{EvaluateArgs, Overrides};
use crate::error::{DONE, Failure};
use crate::files::find::Places;
use crate::files::{DiskFiles, atomic, npz};

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn evaluate(args: &EvaluateArgs) -> Result<u8, Failure> {
    let text = toml::to_string(&experiment(args)?).expect("a tree of plain values");
    let overrides = Overrides { set: args.set.clone(), ..Overrides::default() };
    let experiment = super::parse("evaluate", &text, &overrides, false).map_err(without_text)?;
    let finished = experiment_in(experiment, Path::new(""), &args.out, &args.common, false).map_err(without_text)?;
    let Some((plan, results)) = finished.results else { return Ok(finished.status) };
    let field = plan.field(0);
    let result = &results.cells[0][0];
    let root = field.root().expect("logs have one");
    let problem = plan.points[0].point.table.get("problem").cloned().unwrap_or(Value::Table(Table::new()));
    let mut table = problem.as_table().cloned().unwrap_or_default();
    table.remove("kind");
    let settings: Logs = crate::config::read(Value::Table(table))?;
    let (logs, map) = settings.read(&DiskFiles { places: Places::from_env("") })?;
    let residual = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta)).sqrt();
    let weights = json!({
        "format": 1,
        "features": map.names(),
        "feature_map": map.spec(),
        "columns": map.columns(),
        "ranges": map.ranges(),
        "gamma": settings.gamma,
        "agents": logs.iter().map(|log| json!({ "name": log.name, "transitions": log.len() })).collect::<Vec<_>>(),
        "method": args.method,
        "rounds": result.rows.last().map(|r| r.round),
        "theta": result.theta,
        "residual": residual(&result.theta),
        "lstd": root,
        "distance_to_lstd": linalg::distance_sq(&result.theta, root).sqrt(),
        "lstd_norm": linalg::norm_sq(root).sqrt(),
    });
    atomic::write(&args.out.join("weights.json"), format!("{weights:#}\n").as_bytes())?;
    let mut arrays = Arrays::new();
    let d = root.len();
    arrays.insert("theta", Array::new(vec![d], result.theta.clone())?);
    arrays.insert("lstd", Array::new(vec![d], root.to_vec())?);
    arrays.insert("gamma", Array::scalar(settings.gamma));
    arrays.insert("format", Array::scalar(1.0));
    npz::write(&args.out.join("weights.npz"), &arrays)?;
    if !args.common.quiet {
        let (distance, norm) = (linalg::distance_sq(&result.theta, root).sqrt(), linalg::norm_sq(root).sqrt());
        let rounds = result.rows.last().map_or(0, |r| r.round);
        println!("  {d} weights after {rounds} rounds; distance to the pooled LSTD solution {distance:.3e} (its norm {norm:.2})");
        println!("  {}", args.out.join("weights.json").display());
    }
    Ok(if finished.status == DONE { DONE } else { finished.status })
}

/// The text is made from flags: no line of it means anything to the user.
fn without_text(failure: Failure) -> Failure {
    failure.without_place()
}

/// The experiment that the flags come to.
fn experiment(args: &EvaluateArgs) -> Result<Table, BadInput> {
    let features: FeatureSpec = args.features.parse().map_err(|e: BadInput| BadInput { key: "--features".into(), ..e })?;
    let mut ranges = Table::new();
    for range in &args.range {
        let bad = || BadInput::new("--range", format!("`{range}`"), "COLUMN=LOW,HIGH, such as s_0=-1.2,0.6");
        let (column, bounds) = range.split_once('=').ok_or_else(bad)?;
        let (low, high) = bounds.split_once(',').ok_or_else(bad)?;
        let number = |s: &str| s.trim().parse::<f64>().map(Value::Float).map_err(|_| bad());
        ranges.insert(column.trim().into(), Value::Array(vec![number(low)?, number(high)?]));
    }
    let table = |entries: Vec<(&str, Value)>| Value::Table(entries.into_iter().map(|(k, v)| (k.to_string(), v)).collect());
    let text = |s: &str| Value::String(s.to_string());
    let problem = table(vec![
        ("kind", text("logs")),
        ("path", Value::Array(args.logs.iter().map(|s| text(s)).collect())),
        ("features", Value::try_from(features).expect("plain settings")),
        ("ranges", Value::Table(ranges)),
        ("gamma", Value::Float(args.gamma)),
    ]);
    let mut method = vec![("kind", text(&args.method)), ("step_size", Value::Float(args.step_size))];
    match args.method.as_str() {
        "scafflsa-random" => method.push(("talk_probability", Value::Float(1.0 / args.local_steps.max(1) as f64))),
        _ => method.push(("local_steps", Value::Integer(args.local_steps as i64))),
    }
    let mut run = vec![("rounds", Value::Integer(args.rounds as i64)), ("seeds", Value::Array(vec![Value::Integer(args.seed as i64)]))];
    if args.tol > 0.0 {
        run.push(("stop", table(vec![("relative_residual", Value::Float(args.tol))])));
    }
    let sampling = table(vec![("kind", text(&args.sampling))]);
    let title =
        format!("Policy evaluation by {} from {} source{}", args.method, args.logs.len(), if args.logs.len() == 1 { "" } else { "s" });
    let experiment = table(vec![
        ("id", text("evaluate")),
        ("title", Value::String(title)),
        ("problem", problem),
        ("sampling", sampling),
        ("method", Value::Array(vec![table(method)])),
        ("run", table(run)),
    ]);
    Ok(experiment.as_table().cloned().expect("a table"))
}
