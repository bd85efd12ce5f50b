//! `fedsa fit`: rows with targets to the weights of a regression or of a classification.
//!
//! The command makes an experiment file from its options and runs this file. In addition to the usual outputs it writes
//! `weights.json` and `weights.npz`, and prints what every method spent.

use std::path::Path;
use std::time::Instant;

use fedsa::error::{BadInput, Code, Error, Result, quoted};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::methods::Needs;
use fedsa::presets::PRESETS;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::memory::MemoryEstimate;
use fedsa::problem::preparation::Prepared;
use fedsa::problem::preparation::quality::Quality;
use fedsa::problem::preparation::targets::{self, Targets};
use fedsa::problem::regression::{LeastSquares, Logistic};
use fedsa_data::find::Places;
use fedsa_data::linear_model::{Class, LinearModel, Predicts};
use fedsa_data::{DiskFiles, npz};
use fedsa_experiment::config::document::Origin;
use fedsa_experiment::config::{self, Document, Experiment, read_kind};
use fedsa_experiment::numbers::{self, number};
use fedsa_experiment::plan::BuiltProblem;
use fedsa_experiment::results::paid;
use fedsa_experiment::{Kinds, Plan, Results};
use serde_json::json;
use toml::{Table, Value};

use super::evaluate::{kind_of, takes};
use super::run::{Extra, Task};
use super::{apply, count, say, table, text};
use crate::args::{FitArgs, Overrides};
use crate::hints;

/// The method that is run by default.
const METHOD: &str = "fib-shed";

/// The most files that are listed.
const MOST_FILES: usize = 4;

/// The models, by the kinds of their problems.
const MODELS: [&str; 2] = ["logistic", "least-squares"];

/// The local steps of a round by default, for methods that have any.
const LOCAL_STEPS: u64 = 10;

/// The counts by which methods are compared.
const COSTS: [&str; 4] = ["exchanges", "vectors_up", "bits_up", "hessians"];

/// The help of `--method`.
pub fn methods(kinds: &Kinds) -> String {
    let kinds = kinds.methods().iter().map(|kind| kind.name);
    let all: Vec<&str> = kinds.chain(PRESETS.iter().map(|preset| preset.name)).collect();
    format!("The method, {METHOD} by default: {}", all.join(", "))
}

/// The settings that messages of the library name, and the options of this command that stand for them.
const OPTIONS: [(&str, &str); 8] = [
    ("target", "--target COLUMN"),
    ("positive", "--positive CLASS"),
    ("kind = \"logistic\"", "--model logistic"),
    ("kind = \"least-squares\"", "--model least-squares"),
    ("standardise = true", "--standardise"),
    ("drop", "--drop"),
    ("holdout", "--holdout"),
    ("agents", "--agents"),
];

/// The error with options in place of keys of experiment files in its help.
fn in_options(e: Error) -> Error {
    if e.code() == Code::MissingKey {
        return match e.key.rsplit('.').next().unwrap_or_default() {
            "step_size" => e.helped("--step-size ETA, such as 0.1: below 2 / L, with the largest eigenvalue L of the agents' Hessians"),
            key => {
                let help = format!("--set method.NAME.{key}=VALUE, with the name of the method");
                e.helped(help)
            }
        };
    }
    hints::with(e, &OPTIONS)
}

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn fit(args: &FitArgs, kinds: &Kinds) -> Result<u8, Error> {
    fit_files(args, kinds).map_err(in_options)
}

fn fit_files(args: &FitArgs, kinds: &Kinds) -> Result<u8, Error> {
    let began = Instant::now();
    if !MODELS.contains(&args.model.as_str()) {
        return Err(BadInput::new("--model", format!("`{}`", quoted(&args.model)), MODELS.join(" or ")));
    }
    if let Some(class) = args.positive.as_ref().filter(|_| args.model != "logistic") {
        return Err(BadInput::new("--positive", format!("`{}`, and the model has no classes", quoted(class)), "--model logistic"));
    }
    let experiment = read(args, kinds)?;
    experiment.settings()?;
    if experiment.points.len() != 1 {
        return Err(BadInput::new("--set", "a sweep", "one fit; sweeps belong in an experiment file, for fedsa run"));
    }
    let files = DiskFiles::new(Places::from_env(""));
    let (prepared, built) = build(&experiment, &files)?;
    let started = |_: &Plan| {
        if !args.common.quiet {
            say(prepared.sizes());
            if prepared.has_bytes() {
                say(
                    "  note: features are whole numbers from 0 to 255, as of pixels; --divide-by 255 and --pca DIM make fits of such data faster",
                );
            }
            // A folder or a glob may stand for more than was meant, such as training and test files.
            let read = files.rows_read();
            if read.len() > 1 {
                let each = |(name, rows): &(String, usize)| format!("{} of {name}", count(*rows, "row"));
                let more = if read.len() > MOST_FILES { format!(", and of {} more files", read.len() - MOST_FILES) } else { String::new() };
                say(format!("  read: {}{more}", read.iter().take(MOST_FILES).map(each).collect::<Vec<_>>().join(", ")));
            }
        }
    };
    let job = Task {
        experiment,
        base: Path::new(""),
        out: &args.out,
        common: &args.common,
        quick: false,
        json: false,
        started: &started,
        built: Some(built),
        began,
    };
    let names = vec!["weights.json".to_string(), "weights.npz".to_string()];
    Ok(job.run(&Extra { names, make: &|plan, results, _| weights(args, &prepared, plan, results) })?.status)
}

/// The experiment of the options, without reading the data.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &FitArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    let mut document = Document::of_table(experiment(args, kinds)?, origins(args)).with_kinds(kinds);
    apply(&Overrides { set: args.set.clone(), ..Overrides::default() }, &mut document)?;
    Experiment::read(document)
}

/// The methods to run, the first of which gives the weights.
fn named(args: &FitArgs) -> Result<Vec<String>> {
    let compared: Vec<String> = args.compare.iter().map(|name| name.trim().to_string()).collect();
    let help = "different methods separated by commas: fib-shed,fednl,giant";
    if let Some(i) = compared.iter().position(String::is_empty) {
        return Err(BadInput::new("--compare", format!("method {i} has no name"), help));
    }
    if let Some(twice) = compared.iter().enumerate().find(|(i, name)| compared[..*i].contains(name)) {
        return Err(BadInput::new("--compare", format!("`{}` twice", quoted(twice.1)), help));
    }
    let mut all: Vec<String> = args.method.iter().map(|name| name.trim().to_string()).collect();
    all.extend(compared.into_iter().filter(|name| Some(name.as_str()) != args.method.as_deref()));
    Ok(if all.is_empty() { vec![METHOD.into()] } else { all })
}

/// The partition that `--partition` names, and the column that tells the agents apart.
fn partition(args: &FitArgs) -> Result<(Value, Option<&str>)> {
    let (kind, given) = args.partition.split_once(':').map_or((&args.partition[..], None), |(kind, given)| (kind, Some(given)));
    let accepted = "shuffled, even, by-label, sorted, dirichlet:ALPHA such as dirichlet:0.5, similarity:SHARE such as similarity:0.3, \
                    by:COLUMN such as by:writers, or files";
    let bad = || BadInput::new("--partition", format!("`{}`", quoted(&args.partition)), accepted);
    Ok(match (kind, given) {
        ("dirichlet" | "similarity", Some(number)) => (table(vec![(kind, Value::Float(number.parse().map_err(|_| bad())?))]), None),
        ("by", Some(column)) if !column.is_empty() => (text("by-column"), Some(column)),
        ("shuffled" | "even" | "by-label" | "sorted" | "files", None) => (text(kind), None),
        _ => return Err(bad()),
    })
}

/// `[problem]`.
fn problem(args: &FitArgs) -> Result<Value> {
    let (partition, group) = partition(args)?;
    let mut entries = vec![
        ("kind", text(&args.model)),
        ("data", Value::Array(args.data.iter().map(|s| text(s)).collect())),
        ("ridge", Value::Float(args.ridge)),
        ("partition", partition),
        ("seed", Value::Integer(args.seed as i64)),
    ];
    // The number of writers or of files decides otherwise.
    let decides = args.partition == "files" || args.partition.starts_with("by:");
    if args.agents.is_some() || !decides {
        entries.push(("agents", Value::Integer(args.agents.unwrap_or(8) as i64)));
    }
    entries.extend(group.map(|column| ("group", text(column))));
    entries.extend(args.target.as_ref().map(|column| ("target", text(column))));
    if let Some(class) = &args.positive {
        let number = class.parse::<f64>().ok().filter(|x| x.is_finite());
        entries.push(("positive", number.map_or_else(|| text(class), Value::Float)));
    }
    if !args.drop.is_empty() {
        entries.push(("drop", Value::Array(args.drop.iter().map(|s| text(s)).collect())));
    }
    entries.extend(args.divide_by.map(|x| ("divide_by", Value::Float(x))));
    for (key, is_on) in [("intercept", args.intercept), ("standardise", args.standardise)] {
        if is_on {
            entries.push((key, Value::Boolean(true)));
        }
    }
    if let Some(dim) = args.pca {
        entries.push(("pca", table(vec![("dim", Value::Integer(dim as i64))])));
    }
    entries.extend(args.weights.as_ref().map(|how| ("weights", text(how))));
    entries.extend(args.holdout.map(|share| ("holdout", Value::Float(share))));
    Ok(table(entries))
}

/// `[[method]]` of one kind. In a comparison a step size is for methods that have no step of their own, and local steps for those that
/// make any.
///
/// # Errors
/// When a method that is alone has neither.
fn method(args: &FitArgs, kinds: &Kinds, kind: &str, is_alone: bool) -> Result<Value> {
    let mut entries = vec![("kind", text(kind)), ("label", text(kind))];
    let refused = |option: &str, given: String| {
        let what = format!("{given}, and {} has no such setting", quoted(kind));
        Err(BadInput::new(option, what, format!("no {option}, or a method with local steps, such as fedlsa")))
    };
    if let Some(step_size) = args.step_size {
        let may_have = takes(kinds, kind, "step_size");
        if is_alone && !may_have {
            return refused("--step-size", numbers::typed(step_size));
        }
        if may_have && (is_alone || !needs_all_rows(kinds, kind)) {
            entries.push(("step_size", Value::Float(step_size)));
        }
    }
    let makes_steps = takes(kinds, kind, "local_steps");
    match args.local_steps {
        Some(steps) if is_alone && !makes_steps => return refused("--local-steps", steps.to_string()),
        steps if makes_steps => entries.push(("local_steps", Value::Integer(steps.unwrap_or(LOCAL_STEPS) as i64))),
        _ => {}
    }
    Ok(table(entries))
}

/// Whether a method asks agents for gradients, losses or Hessians of all their rows. Those that do have a default for every setting.
fn needs_all_rows(kinds: &Kinds, kind: &str) -> bool {
    let settings = kind_of(kinds, kind).and_then(|kind| read_kind(kind, &Table::new()));
    settings.is_ok_and(|settings| settings.needs() == Needs::Objective)
}

/// The experiment of the options as a table.
fn experiment(args: &FitArgs, kinds: &Kinds) -> Result<Table> {
    let named = named(args)?;
    if let Some(rows) = args.batch
        && let Some(kind) = named.iter().find(|kind| needs_all_rows(kinds, kind))
    {
        let what = format!("{rows}, and {} uses all rows of an agent in every round", quoted(kind));
        return Err(BadInput::new("--batch", what, "no --batch, or methods that draw rows, such as fedlsa"));
    }
    let methods = named.iter().map(|kind| method(args, kinds, kind, named.len() == 1)).collect::<Result<_>>()?;
    let mut run = vec![
        ("rounds", Value::Integer(args.rounds as i64)),
        ("seeds", Value::Array(vec![Value::Integer(args.seed as i64)])),
        ("record", table(vec![("every", Value::Integer(1))])),
    ];
    if args.tol != 0.0 {
        run.push(("stop", table(vec![("residual", Value::Float(args.tol))])));
    }
    let mut sampling = vec![("kind", text(&args.sampling))];
    sampling.extend(args.batch.map(|rows| ("batch", Value::Integer(rows as i64))));
    let figure =
        vec![("x", Value::Array(COSTS.iter().map(|cost| text(cost)).collect())), ("y", text("residual")), ("columns", Value::Integer(2))];
    let entries = table(vec![
        ("id", text("fit")),
        ("title", Value::String(format!("{} by {}", args.model, named.join(", ")))),
        ("problem", problem(args)?),
        ("sampling", table(sampling)),
        ("method", Value::Array(methods)),
        ("run", table(run)),
        ("figure", table(figure)),
    ]);
    Ok(entries.as_table().cloned().expect("a table"))
}

/// The option from which each key of the experiment comes, for messages.
fn origins(args: &FitArgs) -> Vec<Origin> {
    let given = |option: &str, value: Option<String>| value.map_or(String::new(), |value| format!("--{option} {}", quoted(value)));
    let typed = |x: f64| Some(numbers::typed(x));
    let mut flags = vec![
        ("problem.data".to_string(), format!("DATA {}", quoted(args.data.join(" ")))),
        ("problem.kind".into(), given("model", Some(args.model.clone()))),
        ("problem.agents".into(), given("agents", Some(args.agents.unwrap_or(8).to_string()))),
        ("problem.target".into(), given("target", args.target.clone())),
        ("problem.positive".into(), given("positive", args.positive.clone())),
        ("problem.drop".into(), given("drop", Some(args.drop.join(",")).filter(|columns| !columns.is_empty()))),
        ("problem.ridge".into(), given("ridge", typed(args.ridge))),
        ("problem.divide_by".into(), given("divide-by", args.divide_by.map(numbers::typed))),
        ("problem.intercept".into(), if args.intercept { "--intercept".into() } else { String::new() }),
        ("problem.standardise".into(), if args.standardise { "--standardise".into() } else { String::new() }),
        ("problem.pca".into(), given("pca", args.pca.map(|dim| dim.to_string()))),
        ("problem.partition".into(), given("partition", Some(args.partition.clone()))),
        ("problem.weights".into(), given("weights", args.weights.clone())),
        ("problem.holdout".into(), given("holdout", args.holdout.map(numbers::typed))),
        ("sampling.kind".into(), given("sampling", Some(args.sampling.clone()))),
        ("sampling.batch".into(), given("batch", args.batch.map(|rows| rows.to_string()))),
        ("run.rounds".into(), given("rounds", Some(args.rounds.to_string()))),
        ("run.seeds".into(), given("seed", Some(args.seed.to_string()))),
        ("run.stop".into(), given("tol", typed(args.tol))),
    ];
    let methods = args.method.iter().map(|name| ("method", name)).chain(args.compare.iter().map(|name| ("compare", name)));
    for (i, (option, name)) in methods.enumerate() {
        flags.push((format!("method[{i}].kind"), given(option, Some(name.clone()))));
        flags.push((format!("method[{i}].step_size"), given("step-size", args.step_size.map(numbers::typed))));
        flags.push((format!("method[{i}].local_steps"), given("local-steps", args.local_steps.map(|h| h.to_string()))));
    }
    let said = flags.into_iter().filter(|(_, flag)| !flag.is_empty());
    said.map(|(key, flag)| super::option(key, flag)).collect()
}

/// The prepared rows of an experiment, and its problem on those that are fitted. Files are read once.
///
/// # Errors
/// When a setting or file cannot be used, or the problem does not fit into memory.
fn build(experiment: &Experiment, files: &DiskFiles) -> Result<(Prepared, BuiltProblem), Error> {
    let mut problem = experiment.points[0].sections().problem.and_then(|problem| problem.as_table().cloned()).unwrap_or_default();
    let kind = problem.remove("kind").and_then(|kind| kind.as_str().map(str::to_string)).unwrap_or_default();
    let failure = |e: BadInput| experiment.failure_at(e.inside("problem"), &experiment.points[0]);
    // The kinds differ in the types of their settings alone.
    macro_rules! build_as {
        ($kind:ty) => {{
            let settings: $kind = config::read(Value::Table(problem)).map_err(failure)?;
            let sets = settings.read(files).map_err(failure)?;
            // The rows are kept a second time, for the quality of the model.
            let memory = settings.memory_of(&sets, rayon::current_num_threads()).map(MemoryEstimate::with_a_copy);
            let mut prepared = None;
            let built = BuiltProblem::of_data(experiment, files, memory, |sampling| {
                let all = prepared.insert(settings.preparation().prepare_sets(sets)?);
                settings.field_of(all.train.clone(), all.weights.clone(), sampling, Isa::best())
            })?;
            Ok((prepared.expect("the problem was built"), built))
        }};
    }
    match kind.as_str() {
        "logistic" => build_as!(Logistic),
        "least-squares" => build_as!(LeastSquares),
        other => Err(BadInput::new("--model", format!("`{}`", quoted(other)), MODELS.join(" or "))),
    }
}

/// `weights.json` and `weights.npz`; also prints what every method spent, and how good the model is.
fn weights(args: &FitArgs, prepared: &Prepared, plan: &Plan, results: &Results) -> Result<Vec<(String, Vec<u8>)>> {
    let result = &results.cells[0][0];
    let (field, theta) = (plan.field(0), &result.theta);
    let outcome = result.outcome(&plan.cells[0].run.stop);
    let last = result.rows.last();
    let counted = |name: &str| last.map_or(0, |row| row.count(paid(Some(name))));
    let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
    let gradient = field.mean_operator(theta).map_or(f64::NAN, |g| linalg::norm_sq(&g).sqrt());
    let (train, held_out) = (prepared.train_quality(theta), prepared.held_out_quality(theta));
    let (coefficients, intercept) = prepared.transform.on_columns(theta);
    let columns = &prepared.transform.columns;
    let class = |class: &targets::Class| match class {
        targets::Class::Number(x) => Class::Number(*x),
        targets::Class::Name(name) => Class::Name(name.clone()),
    };
    let predicts = match &prepared.targets {
        Targets::Classes { positive, negative, .. } => Predicts::Class([negative.as_ref().map_or(Class::Rest, class), class(positive)]),
        Targets::Numbers { offset, scale } => Predicts::Target { offset: *offset, scale: 1.0 / scale },
    };
    let columns = (!columns.are_counted()).then(|| columns.iter().map(|name| name.into_owned()).collect());
    let model = LinearModel { columns, coefficients, intercept, predicts, target: args.target.clone() };
    let quality = |quality: &Quality| json!({ "rows": quality.rows, "loss": finite(quality.loss), "accuracy": quality.accuracy, "rmse": quality.rmse.map(finite) });
    let mut weights = model.to_json();
    let more = json!({
        "agents": field.agents(),
        "prepared": prepared.sizes(),
        "ridge": args.ridge,
        "method": plan.cells[0].method.label,
        "outcome": outcome.name(),
        "rounds": counted("round"),
        "exchanges": counted("exchanges"),
        "vectors_up": counted("vectors_up"),
        "bits_up": counted("bits_up"),
        "bits": counted("bits"),
        "hessians": counted("hessians"),
        "objective": field.mean_loss(theta).map(finite),
        "gradient_norm": finite(gradient),
        "train": quality(&train),
        "holdout": held_out.as_ref().map(quality),
        "theta": theta.iter().map(|x| finite(*x)).collect::<Vec<_>>(),
    });
    weights.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    let mut arrays = Arrays::new();
    arrays.insert("theta", Array::new(vec![theta.len()], theta.clone())?);
    arrays.insert("coefficients", Array::new(vec![model.coefficients.len()], model.coefficients.clone())?);
    arrays.insert("intercept", Array::scalar(model.intercept));
    arrays.insert("format", Array::scalar(1.0));
    if !args.common.quiet {
        spending(plan, results).into_iter().for_each(say);
        if counted("round") == 0 {
            say("note: theta = 0 meets --tol already. Features or targets may be very small: --standardise");
        }
        let label = &plan.cells[0].method.label;
        let quality = |name: &str, quality: &Quality| {
            let accuracy = quality.accuracy.map_or(String::new(), |share| format!(", accuracy {}", numbers::percent(share)));
            let rmse = quality.rmse.map_or(String::new(), |rmse| format!(", root mean square error {}", number(rmse)));
            format!(
                "{label} on {} of {}: loss without the ridge {}{accuracy}{rmse}",
                name,
                count(quality.rows, "row"),
                number(quality.loss)
            )
        };
        say(quality("the fit", &train));
        held_out.iter().for_each(|held_out| say(quality("the held-out share", held_out)));
        say(args.out.join("weights.json").display());
    }
    let json = format!("{weights:#}\n").into_bytes();
    Ok(vec![("weights.json".to_string(), json), ("weights.npz".to_string(), npz::to_bytes(&arrays)?)])
}

/// What every method spent, a line each below a heading.
fn spending(plan: &Plan, results: &Results) -> Vec<String> {
    const COLUMNS: [&str; 6] = ["round", "exchanges", "vectors_up", "bits_up", "hessians", "seconds"];
    let agents = plan.field(0).agents() as f64;
    let mut rows = vec![
        ["method", "rounds", "exchanges", "vectors up", "MB up", "Hessians", "seconds", "gradient", "objective", ""]
            .map(String::from)
            .to_vec(),
    ];
    for (label, cell) in plan.labels.iter().zip(&plan.points[0].cells) {
        let Some(result) = results.cells[*cell].first() else { continue };
        let Some(last) = result.rows.last() else { continue };
        let counted = |name: &str| last.count(paid(Some(name))) as f64;
        let outcome = result.outcome(&plan.cells[*cell].run.stop);
        let mut row = vec![label.clone()];
        row.extend(COLUMNS.map(|name| match name {
            "seconds" => result.seconds.map_or("-".into(), |seconds| format!("{seconds:.2}")),
            "bits_up" => format!("{:.2}", counted(name) / 8e6),
            // Of one agent.
            "vectors_up" | "hessians" => numbers::digits(counted(name) / agents, 6),
            _ => numbers::thousands(counted(name)),
        }));
        row.push(last.metric("residual").map_or("-".into(), number));
        row.push(last.metric("loss").map_or("-".into(), |loss| numbers::digits(loss, 8)));
        row.push(outcome.name().into());
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len()).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.push("  vectors and Hessians of one agent, bytes of all; the objective is the mean of the agents' losses with the ridge".into());
    if plan.labels.len() > 1 {
        lines.push("  methods ran side by side: their seconds are longer than alone".into());
    }
    lines
}
