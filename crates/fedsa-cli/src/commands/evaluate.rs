//! `fedsa evaluate`: logged transitions to the weights of a value function.
//!
//! The flags become an experiment file, which is run as any other; beside its
//! usual files the folder gets `weights.json` and `weights.npz`.

use std::path::Path;

use fedsa::error::{BadInput, Result, quoted};
use fedsa::linalg;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::features::FeatureSpec;
use fedsa::problem::logs::Logs;
use serde_json::json;
use toml::{Table, Value};

use super::run::{Extra, Job};
use super::{apply, say};
use crate::args::{EvaluateArgs, Overrides};
use crate::config::document::{From, Origin};
use crate::config::{Document, Experiment, find_kind, read_kind};
use crate::error::Failure;
use crate::experiment::{Plan, Results};
use crate::files::find::Places;
use crate::files::{DiskFiles, npz};
use crate::numbers::number;

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn evaluate(args: &EvaluateArgs) -> Result<u8, Failure> {
    let experiment = read(args)?;
    if experiment.points.len() != 1 {
        return Err(BadInput::new("--set", "a sweep", "one evaluation; sweeps belong in an experiment file, for fedsa run").into());
    }
    let job = Job { experiment, base: Path::new(""), out: &args.out, common: &args.common, quick: false, json: false };
    let extra = Extra { names: &["weights.json", "weights.npz"], make: &|plan, results| weights(args, plan, results) };
    Ok(job.run(&extra)?.status)
}

/// The experiment that the options come to.
///
/// # Errors
/// When one cannot be used.
pub fn read(args: &EvaluateArgs) -> Result<Experiment, Failure> {
    let mut document = Document::from_flags(experiment(args)?, origins(args));
    apply(&Overrides { set: args.set.clone(), ..Overrides::default() }, &mut document)?;
    Experiment::read(document)
}

/// `weights.json` and `weights.npz`; prints what they come to.
fn weights(args: &EvaluateArgs, plan: &Plan, results: &Results) -> Result<Vec<Vec<u8>>> {
    let field = plan.field(0);
    let result = &results.cells[0][0];
    let root = field.root().expect("logs have one");
    let mut table = plan.points[0].point.sections().problem.and_then(|problem| problem.as_table().cloned()).unwrap_or_default();
    table.remove("kind");
    let settings: Logs = crate::config::read(Value::Table(table))?;
    let (logs, map) = settings.read(&DiskFiles::new(Places::from_env("")))?;
    let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
    let distance = linalg::distance_sq(&result.theta, root).sqrt();
    let norm = linalg::norm_sq(root).sqrt();
    let rounds = result.rows.last().map_or(0, |r| r.round);
    let weights = json!({
        "format": 1,
        "features": map.names(),
        "feature_map": map.spec(),
        "columns": map.columns(),
        "ranges": map.ranges(),
        "gamma": settings.gamma,
        "agents": logs.iter().map(|log| json!({ "name": log.name, "transitions": log.len() })).collect::<Vec<_>>(),
        "method": plan.cells[0].method.kind,
        "rounds": rounds,
        "theta": result.theta.iter().map(|x| finite(*x)).collect::<Vec<_>>(),
        "residual": finite(linalg::norm_sq(&field.mean_operator(&result.theta)).sqrt()),
        "lstd": root,
        "distance_to_lstd": finite(distance),
        "lstd_norm": norm,
    });
    let d = root.len();
    let mut arrays = Arrays::new();
    arrays.insert("theta", Array::new(vec![d], result.theta.clone())?);
    arrays.insert("lstd", Array::new(vec![d], root.to_vec())?);
    arrays.insert("gamma", Array::scalar(settings.gamma));
    arrays.insert("format", Array::scalar(1.0));
    if !args.common.quiet {
        say(format!(
            "{d} weights after {rounds} rounds; distance to the pooled LSTD solution {} (its norm {})",
            number(distance),
            number(norm)
        ));
        say(args.out.join("weights.json").display());
    }
    Ok(vec![format!("{weights:#}\n").into_bytes(), npz::to_bytes(&arrays)?])
}

/// Which option each key of the experiment comes from, for messages.
fn origins(args: &EvaluateArgs) -> Vec<Origin> {
    let flags = [
        ("problem.path", format!("LOGS {}", quoted(args.logs.join(" ")))),
        ("problem.features", format!("--features {}", quoted(&args.features))),
        ("problem.ranges", quoted(args.range.iter().map(|r| format!("--range {r}")).collect::<Vec<_>>().join(" "))),
        ("problem.gamma", format!("--gamma {}", args.gamma)),
        ("sampling.kind", format!("--sampling {}", quoted(&args.sampling))),
        ("method[0].kind", format!("--method {}", quoted(&args.method))),
        ("method[0].step_size", format!("--step-size {}", args.step_size)),
        ("method[0].local_steps", format!("--local-steps {}", local_steps(args))),
        ("method[0].talk_probability", format!("--local-steps {}", local_steps(args))),
        ("run.rounds", format!("--rounds {}", args.rounds)),
        ("run.seeds", format!("--seed {}", args.seed)),
        ("run.stop", format!("--tol {}", args.tol)),
    ];
    flags.into_iter().map(|(key, flag)| Origin { key: key.into(), from: From::Flag(flag) }).collect()
}

/// H, 100 where it was not said.
fn local_steps(args: &EvaluateArgs) -> u64 {
    args.local_steps.unwrap_or(100)
}

/// Whether `local_steps` is a key of this kind of method.
fn takes_local_steps(kind: &str) -> bool {
    let given = [("kind", Value::String(kind.into())), ("local_steps", Value::Integer(1))];
    let mut table: Table = given.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    let Ok(kind) = find_kind(fedsa::methods::KINDS, &mut table, "method") else { return false };
    !read_kind(kind, table).is_err_and(|e| e.key.contains("local_steps"))
}

/// The experiment that the flags come to.
fn experiment(args: &EvaluateArgs) -> Result<Table, BadInput> {
    let features: FeatureSpec = args.features.parse().map_err(|e: BadInput| BadInput { key: "--features".into(), ..e })?;
    let mut ranges = Table::new();
    for range in &args.range {
        let bad = || BadInput::new("--range", format!("`{}`", quoted(range)), "COLUMN=LOW,HIGH, such as s_0=-1.2,0.6");
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
        "scafflsa-random" => method.push(("talk_probability", Value::Float(1.0 / local_steps(args) as f64))),
        // A method of one step a round has no such key; what was asked for it is told.
        kind if args.local_steps.is_none() && !takes_local_steps(kind) => {}
        _ => method.push(("local_steps", Value::Integer(local_steps(args) as i64))),
    }
    let mut run = vec![("rounds", Value::Integer(args.rounds as i64)), ("seeds", Value::Array(vec![Value::Integer(args.seed as i64)]))];
    if args.tol != 0.0 {
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
