//! The output files of a finished experiment.

use fedsa::error::Result;
use fedsa::metrics::{METRICS, Metric};
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::record::{self, COUNTS, Count};
use fedsa_data::trace::{Trace, TraceColumn};
use fedsa_data::{npz, trace};
use fedsa_theory::Accuracy;
use fedsa_theory::predict::StableStep;
use serde_json::{Map, Value as Json, json};
use toml::Value;

use super::axis::Axis;
use super::checks::Verdict;
use super::outcome::Outcome;
use super::picture::{self, Picture};
use super::plan::{Plan, PlannedPoint};
use super::predict::Predictor;
use super::results::{Estimate, Results, SeedResult};
use super::theory::Reason;
use crate::config::Experiment;
use crate::config::schema::{Check, CostLevel};
use crate::names::QUANTITIES;
use fedsa_figure::{Format, Provenance};

/// The version of the layout of `summary.json` and `theta.npz`.
pub const FORMAT: u64 = 2;

/// The name of the experiment's own picture, without its extension.
pub const FIGURE: &str = "figure";

/// The file with the iterates, if they are kept.
pub const ITERATES: &str = "iterates.npz";

/// The names of the files of a finished experiment, except `config.toml`, which is written at the start. The summary is the last one, so
/// that a folder with a summary is complete.
pub fn names(experiment: &Experiment) -> Vec<String> {
    let with = |name: &str| std::iter::once(name.to_string());
    with("trace.parquet")
        .chain(with("theta.npz"))
        .chain(with(ITERATES))
        .chain(picture_names(experiment, FIGURE))
        .chain(with("summary.json"))
        .collect()
}

/// The files with their contents. `config` is the text of `config.toml`, which pictures contain as metadata.
///
/// # Errors
/// When the trace or `theta.npz` is too large for its format.
pub fn files(plan: &Plan, results: &Results, summary: &Json, picture: &Picture, config: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![
        ("trace.parquet".to_string(), trace::to_bytes(&trace_table(plan, results)?)?),
        ("theta.npz".to_string(), npz::to_bytes(&theta(plan, results)?)?),
    ];
    let iterates = iterates(plan, results)?;
    if !iterates.is_empty() {
        files.push((ITERATES.to_string(), npz::to_bytes(&iterates)?));
    }
    files.extend(pictures(plan, FIGURE, picture, config));
    files.push(("summary.json".to_string(), format!("{summary:#}\n").into_bytes()));
    Ok(files)
}

/// The names of the files of a picture in the formats of the experiment's `[figure]`.
pub fn picture_names(experiment: &Experiment, stem: &str) -> Vec<String> {
    picture::formats(&experiment.figure).into_iter().map(|format| format.file_name(stem)).collect()
}

/// The files of a picture, named `stem`, in the formats of the experiment's `[figure]`. Each contains the text `config` as metadata.
pub fn pictures(plan: &Plan, stem: &str, picture: &Picture, config: &str) -> Vec<(String, Vec<u8>)> {
    let figure = &plan.experiment.figure;
    let about = Provenance { id: &plan.experiment.id, config };
    let file = |format: Format| (format.file_name(stem), picture.render(format, &picture::look(figure), &about));
    picture::formats(figure).into_iter().map(file).collect()
}

/// The columns of `trace.parquet` other than counts, metrics and coordinates.
const COLUMNS: &[&str] = &["method", "kind", "point", "outcome", "seed"];

/// The table of `trace.parquet`: a row for each recorded round of each run.
///
/// # Errors
/// Never for the results of a plan.
pub fn trace_table(plan: &Plan, results: &Results) -> Result<Trace> {
    // One per row of the table: point, method, run, outcome, recorded round.
    let mut all = Vec::new();
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            for run in &results.cells[*cell] {
                let outcome = run.outcome(&plan.cells[*cell].run.stop).name();
                all.extend(run.rows.iter().map(|row| (planned, label, *cell, outcome, run, row)));
            }
        }
    }
    let text = |of: &(dyn Fn(usize) -> String + Sync)| TraceColumn::Str(parallel::map(all.len(), of));
    let count = |x: u64| i64::try_from(x).unwrap_or(i64::MAX);
    let mut columns = vec![
        ("method".to_string(), text(&|i| all[i].1.clone())),
        ("kind".to_string(), text(&|i| plan.cells[all[i].2].method.kind.to_string())),
        ("point".to_string(), text(&|i| all[i].0.point.label.clone())),
    ];
    let all_coordinates = coordinates(plan);
    for name in all_coordinates.clone() {
        let values: Vec<Option<&Value>> =
            all.iter().map(|(planned, ..)| planned.point.coordinates.iter().find(|(n, _)| *n == name).map(|(_, v)| v)).collect();
        columns.push((column_name(&name, &all_coordinates), coordinate_column(&values)));
    }
    columns.push(("outcome".to_string(), text(&|i| all[i].3.to_string())));
    columns.push(("seed".to_string(), TraceColumn::I64(all.iter().map(|(.., run, _)| count(run.seed)).collect())));
    let counted = |of: &Count| (of.name.to_string(), TraceColumn::I64(all.iter().map(|(.., row)| count(row.count(of))).collect()));
    columns.extend(parallel::map(COUNTS.len(), |i| counted(&COUNTS[i])));
    if all.iter().any(|(.., row)| row.seconds.is_some()) {
        let seconds = all.iter().map(|(.., row)| row.seconds.unwrap_or(f64::NAN)).collect();
        columns.push((Axis::SECONDS.to_string(), TraceColumn::F64(seconds)));
    }
    // After a divergence, numbers may not be finite, and are omitted.
    let finite = |of: &Metric| all.iter().map(|(.., row)| (of.recorded)(&row.seen).filter(|x| x.is_finite())).collect();
    let measured = |of: &Metric| (of.name.to_string(), TraceColumn::OptF64(finite(of)));
    columns.extend(parallel::map(METRICS.len(), |i| measured(&METRICS[i])));
    columns.extend(own_columns(plan, results));
    Trace::new(columns)
}

/// The columns of the caller's metrics. Numbers that are not finite are omitted.
fn own_columns(plan: &Plan, results: &Results) -> Vec<(String, TraceColumn)> {
    let cells = plan.points.iter().flat_map(|planned| &planned.cells);
    let rows: Vec<&Vec<f64>> = cells.flat_map(|cell| &results.cells[*cell]).flat_map(|run| &run.own.values).collect();
    let values = |at: usize| rows.iter().map(|row| row.get(at).copied().filter(|x| x.is_finite())).collect();
    results.own_names().iter().enumerate().map(|(at, name)| (name.clone(), TraceColumn::OptF64(values(at)))).collect()
}

/// Whether every trace has a column of this name.
fn is_column(name: &str) -> bool {
    COLUMNS.contains(&name) || fedsa::metrics::metric(name).is_some() || record::count(name).is_some()
}

/// Whether traces of these coordinates may have a column of this name, so that a metric of the caller cannot have it.
pub fn is_taken<'a>(name: &str, mut coordinates: impl Iterator<Item = &'a String>) -> bool {
    let bare = name.trim_start_matches("coordinate_");
    is_column(name) || name == Axis::SECONDS || coordinates.any(|taken| taken.trim_start_matches("coordinate_") == bare)
}

/// The name of a coordinate's column; changed if every table has a column of that name.
fn column_name(name: &str, coordinates: &[String]) -> String {
    let mut column = name.to_string();
    while is_column(&column) || (column != name && coordinates.contains(&column)) {
        column.insert_str(0, "coordinate_");
    }
    column
}

/// The names of all coordinates, in the order of the points.
fn coordinates(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in plan.points.iter().flat_map(|planned| &planned.point.coordinates) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// A coordinate's column: integers or floats if all values are, otherwise text.
fn coordinate_column(values: &[Option<&Value>]) -> TraceColumn {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
    if let Some(whole) = values.iter().map(|value| value.and_then(Value::as_integer)).collect() {
        return TraceColumn::I64(whole);
    }
    if values.iter().flatten().all(|value| number(value).is_some()) {
        return TraceColumn::OptF64(values.iter().map(|value| value.and_then(number)).collect());
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    TraceColumn::OptStr(values.iter().map(|value| value.map(text)).collect())
}

/// The label of a method at a point.
pub fn label(method: &str, point: &str) -> String {
    if point.is_empty() { method.to_string() } else { format!("{method} [{point}]") }
}

/// The arrays of `iterates.npz`: for every method (and point, if there are several) the outputs at recorded rounds (seeds, records, d).
/// Records are the rounds that any of its seeds recorded, NaN where a seed did not. None if iterates are not kept.
///
/// # Errors
/// When they are too large.
pub fn iterates(plan: &Plan, results: &Results) -> Result<Arrays> {
    let mut arrays = Arrays::new();
    for planned in &plan.points {
        for (method, cell) in plan.labels.iter().zip(&planned.cells) {
            let (seeds, d) = (&results.cells[*cell], plan.field(*cell).dim());
            if seeds.iter().all(|seed| seed.iterates.is_empty()) {
                continue;
            }
            let mut rounds: Vec<u64> = seeds.iter().flat_map(|seed| &seed.rows).map(|row| row.round).collect();
            rounds.sort_unstable();
            rounds.dedup();
            let mut all = vec![f64::NAN; seeds.len() * rounds.len() * d];
            for (seed, out) in seeds.iter().zip(all.chunks_mut(rounds.len() * d)) {
                for (row, theta) in seed.rows.iter().zip(seed.iterates.chunks(d)) {
                    let at = rounds.partition_point(|round| *round < row.round) * d;
                    out[at..at + d].copy_from_slice(theta);
                }
            }
            arrays.insert(label(method, &planned.point.label), Array::new(vec![seeds.len(), rounds.len(), d], all)?);
        }
    }
    Ok(arrays)
}

/// The arrays of `theta.npz`: for every method (and point, if there are several) the final outputs (seeds, d), and theta*.
///
/// # Errors
/// When they are too large.
pub fn theta(plan: &Plan, results: &Results) -> Result<Arrays> {
    let mut arrays = Arrays::new();
    arrays.insert("format", Array::scalar(FORMAT as f64));
    for planned in &plan.points {
        let ran = plan.labels.iter().zip(&planned.cells).filter(|(_, cell)| plan.cells[**cell].refused.is_none());
        for (label, cell) in ran {
            let name = self::label(label, &planned.point.label);
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
    let mean = |of: &Count| {
        let total: f64 = results.iter().filter_map(|s| s.rows.last()).map(|row| row.count(of) as f64).sum();
        total / results.len() as f64
    };
    COUNTS
        .iter()
        .filter(|count| count.set.is_some())
        .map(|count| (count.name.to_string(), json!(mean(count))))
        .collect::<Map<_, _>>()
        .into()
}

/// The counts of a cell when the figure's metric first fell to a level; no counts if it did not.
fn cost_json(plan: &Plan, results: &Results, cell: usize, level: CostLevel) -> Json {
    let metric = picture::metrics(plan)[0];
    let mut cost = Map::new();
    cost.insert("metric".into(), json!(metric));
    cost.insert("level".into(), json!(level.value));
    if level.is_relative {
        cost.insert("relative".into(), json!(true));
    }
    let reached = COUNTS.iter().filter_map(|count| Some((count.name, results.cost(cell, metric, level, count)?)));
    cost.extend(reached.map(|(name, count)| (name.to_string(), json!(count))));
    cost.into()
}

/// Metadata that may differ between equal runs: program, machine and time.
pub fn provenance() -> Json {
    json!({
        "fedsa": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("FEDSA_COMMIT"),
        "processor": processor(),
        "instruction_set": format!("{:?}", fedsa::kernel::Isa::best()).to_lowercase(),
        "threads": rayon::current_num_threads(),
        "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        "command_line": without_secrets(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned())),
        "ended": humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
    })
}

/// Arguments without the values of options that are secrets, such as the token of Flower's server process: summaries and reports are shared.
fn without_secrets(args: impl Iterator<Item = String>) -> Vec<String> {
    let is_secret =
        |option: &str| option.starts_with('-') && ["token", "password", "secret", "private-key"].iter().any(|word| option.contains(word));
    let mut hides = false;
    let shown = args.map(|arg| {
        let (option, value) = arg.split_once('=').map_or((&arg[..], None), |(option, value)| (option, Some(value)));
        let out = match (hides, is_secret(option), value) {
            (true, ..) => "..".to_string(),
            (_, true, Some(_)) => format!("{option}=.."),
            _ => arg.clone(),
        };
        hides = !hides && is_secret(option) && value.is_none();
        out
    });
    shown.collect()
}

/// The processor's name, if the system provides it.
fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// A number as JSON; null when it is not finite.
fn number(x: Option<f64>) -> Json {
    x.filter(|x| x.is_finite()).map_or(Json::Null, |x| json!(x))
}

fn to_json(value: &Value) -> Json {
    serde_json::to_value(value).unwrap_or(Json::Null)
}

/// How a prediction is known, with a warning if it may be far off.
fn accuracy_json(accuracy: Accuracy) -> Json {
    let mut out = serde_json::to_value(accuracy).unwrap_or_else(|_| json!({}));
    if let Some(warning) = accuracy.warning() {
        out["warning"] = json!(warning);
    }
    out
}

/// The predictions for a cell.
struct Predicted {
    /// By name; null if unknown.
    values: Map<String, Json>,
    accuracies: Map<String, Json>,
    /// The reasons for requested quantities that are unknown.
    unknown: Map<String, Json>,
}

impl Predicted {
    fn of(plan: &Plan, predictor: &Predictor, label: &str, cell: usize) -> Self {
        let mut found = Self { values: Map::new(), accuracies: Map::new(), unknown: Map::new() };
        for quantity in QUANTITIES.iter() {
            if let Some(x) = predictor.known(cell, quantity) {
                found.values.insert((*quantity).to_string(), number(Some(x)));
                if let Some(accuracy) = predictor.accuracy(cell, quantity) {
                    found.accuracies.insert((*quantity).to_string(), accuracy_json(accuracy));
                }
            } else if asks_for(&plan.experiment, label, quantity)
                && let Some(why) = predictor.why_unknown(cell, quantity)
            {
                found.values.insert((*quantity).to_string(), Json::Null);
                found.unknown.insert((*quantity).to_string(), json!(Reason::from(&why)));
            }
        }
        if asks_for(&plan.experiment, label, CURVE)
            && let Some(why) = predictor.why_no_curve(cell)
        {
            found.unknown.insert(CURVE.to_string(), json!(Reason::from(&why)));
        }
        found
    }
}

/// The name of a predicted curve among unknown quantities.
const CURVE: &str = "curve";

/// Whether a file's figure or a check needs a predicted quantity, or the curve, of a method.
fn asks_for(experiment: &Experiment, label: &str, quantity: &str) -> bool {
    let figure = &experiment.figure;
    let by_figure = match quantity {
        CURVE => figure.exact.iter().any(|exact| exact == label),
        _ => figure.levels.get(label).is_some_and(|levels| levels.iter().any(|level| level == quantity)),
    };
    let of_method = |check: &&Check| check.method.as_deref().is_none_or(|method| method == label);
    by_figure
        || experiment.checks.iter().filter(of_method).any(|check| {
            let is_expected = check.expected.as_ref().and_then(Value::as_str) == Some(quantity);
            let is_measured = check.kind == "predicted" && check.metric.as_deref() == Some(quantity);
            let of_parts = check.bias_over_noise.is_some() && ["bias2", "noise"].contains(&quantity);
            is_expected || is_measured || of_parts || (check.kind == "curve" && quantity == CURVE)
        })
}

/// A cell in `summary.json`.
fn entry(plan: &Plan, results: &Results, predictor: &Predictor, planned: &PlannedPoint, (label, cell): (&str, usize)) -> Json {
    let seeds = &results.cells[cell];
    let floor = results.floors(cell, "mse").map(|f| Estimate::of(&f));
    let last: Option<Vec<f64>> = seeds.iter().map(|s| s.last("mse")).collect();
    let has_diverged = seeds.iter().any(|s| s.diverged.is_some());
    let Predicted { values: predictions, accuracies, unknown } = Predicted::of(plan, predictor, label, cell);
    let coordinates: Map<String, Json> = planned.point.coordinates.iter().map(|(n, v)| (n.clone(), to_json(v))).collect();
    let outcome = results.outcome(plan, cell);
    let mut entry = json!({
        "method": label,
        "kind": plan.cells[cell].method.kind,
        "point": planned.point.label,
        "coordinates": coordinates,
        "seeds": seeds.len(),
        "seed_numbers": seeds.iter().map(|seed| seed.seed).collect::<Vec<_>>(),
        "status": if has_diverged { "diverged" } else { "ok" },
        "outcome": outcome.map_or("refused", Outcome::name),
        "as_expected": results.as_expected(plan, cell),
        "rounds": seeds.iter().filter_map(|s| s.rows.last()).map(|r| r.round).max(),
        "floor_mean": number(floor.map(|f| f.mean)),
        "floor_se": number(floor.map(|f| f.se)),
        "final_mean": number(last.map(|l| Estimate::of(&l).mean)),
        "residual_mean": number(seeds.iter().map(|s| s.last("residual")).collect::<Option<Vec<f64>>>().map(|l| Estimate::of(&l).mean)),
        "predicted": predictions,
        "predicted_accuracy": accuracies,
        "ledger": ledger_json(seeds),
        "seconds": number(results.seconds(cell)),
    });
    if !unknown.is_empty() {
        entry["predicted_unknown"] = unknown.into();
    }
    add_end(&mut entry, plan, results, predictor, cell);
    entry
}

/// Adds keys of some cells only: the reason of a refusal, the round of divergence, the missed or reached target and its cost.
fn add_end(entry: &mut Json, plan: &Plan, results: &Results, predictor: &Predictor, cell: usize) {
    let seeds = &results.cells[cell];
    let outcome = results.outcome(plan, cell);
    let diverged: Vec<u64> = seeds.iter().filter_map(|s| s.diverged).collect();
    if let Some(reason) = &plan.cells[cell].refused {
        entry["status"] = json!("refused");
        entry["reason"] = json!(reason);
    }
    if plan.cells[cell].centre.is_some() {
        let error = results.floors(cell, "error").map(|f| Estimate::of(&f));
        entry["error_floor_mean"] = number(error.map(|f| f.mean));
        entry["error_floor_se"] = number(error.map(|f| f.se));
    }
    if diverged.is_empty()
        && let Some(share) = results.falls_by(cell, "mse")
    {
        entry["floor_falls_by"] = json!(share);
    }
    if !diverged.is_empty() {
        entry["diverged_at_round"] = json!(diverged.iter().min());
        entry["diverged_seeds"] = json!(diverged.len());
        let stable = plan.forecast(cell).largest_stable_step().ok();
        entry["largest_stable_step"] = number(stable.map(|stable| stable.step));
        entry["largest_stable_step_limit"] = json!(stable.map(StableStep::limit));
    }
    if let Some(Outcome::Incomplete { missing }) = outcome {
        entry["missing_weight"] = json!(missing);
    }
    if let Some(missed) = outcome.and_then(Outcome::missed) {
        entry["target"] = json!({ "metric": missed.metric, "asked": number(Some(missed.target)), "reached": number(Some(missed.value)) });
        if matches!(outcome, Some(Outcome::Stalled(_))) {
            entry["why_stalled"] = json!(results.why_stalled(plan, predictor, cell, &missed));
        }
    }
    let levels = plan.experiment.figure.cost_levels();
    if !levels.is_empty() {
        entry["costs"] = levels.into_iter().map(|level| cost_json(plan, results, cell, level)).collect();
    }
    if seeds.iter().any(|s| s.stopped) {
        entry["stopped_at_target"] = json!(seeds.iter().filter(|s| s.stopped).count());
    }
}

/// A problem in `summary.json`.
fn problem_json(field: &dyn Field) -> Json {
    json!({
        "agents": field.agents(),
        "dim": field.dim(),
        "sampling": serde_json::to_value(field.sampling()).unwrap_or(Json::Null),
        "kinds_of_agents": field.systems().map(|s| s.kinds.len()),
        "theta_star": field.root(),
    })
}

/// `summary.json`, without `provenance`. It has the cheap predictions, and those that checks and figure used.
pub fn summary(plan: &Plan, results: &Results, predictor: &Predictor, verdicts: &[Verdict], seconds: f64) -> Json {
    let of_point = |planned: &PlannedPoint| -> Vec<Json> {
        let cells = plan.labels.iter().map(String::as_str).zip(planned.cells.iter().copied());
        cells.map(|cell| entry(plan, results, predictor, planned, cell)).collect()
    };
    let list: Vec<Json> = plan.points.iter().flat_map(of_point).collect();
    let problems: Vec<Json> = plan.fields.iter().map(|planned| problem_json(&*planned.field)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_options_are_not_recorded() {
        let shown = |args: &str| without_secrets(args.split(' ').map(String::from)).join(" ");
        assert_eq!(shown("flwr-serverapp --address a:1 --token xyz --run-id 3"), "flwr-serverapp --address a:1 --token .. --run-id 3");
        assert_eq!(shown("app --auth-private-key=/k --token xyz"), "app --auth-private-key=.. --token ..");
        assert_eq!(shown("fedsa run token.toml --set a.b=1 -q"), "fedsa run token.toml --set a.b=1 -q");
    }
}
