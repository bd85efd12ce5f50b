//! `fedsa fit`: rows with targets to the weights of a regression or of a classification.
//!
//! [`mod@fedsa_experiment::fit`] does the work. In addition to the usual outputs of a run the command writes `weights.json` and
//! `weights.npz`, and prints what every method spent.

use fedsa::error::{Error, ErrorCode, Result, quoted};
use fedsa::problem::glm::inference::{CovarianceKind, InferenceSettings};
use fedsa::problem::preparation::partition::Partition;
use fedsa::problem::preparation::quality::FitQuality;
use fedsa::problem::preparation::targets::Targets;
use fedsa_experiment::Kinds;
use fedsa_experiment::choose::{ConsideredForLosses, Goal, LossChoice};
use fedsa_experiment::config::Experiment;
use fedsa_experiment::config::document::Origin;
use fedsa_experiment::fit::{AGENTS, Fit, FitSettings, Fitted, Model};
use fedsa_experiment::made::Changes;
use fedsa_experiment::numbers::{self, number};

use super::progress::Watcher;
use super::results::table;
use super::run::{ended, finished, if_exists, settings as run_settings};
use super::{apply, count, listed_names, megabits, option, say, signals};
use crate::args::{FitArgs, FitGoalArg, Overrides};
use crate::hints;

/// The most files or agents that are listed.
const MOST_LISTED: usize = 4;

/// The most levels of a category that are listed.
const MOST_LEVELS: usize = 6;

/// The settings that messages of the library name, and the options of this command that stand for them.
const OPTIONS: [(&str, &str); 13] = [
    ("minimise = seconds", "--minimise seconds"),
    ("partition = files", "--partition files, or --partition by:COLUMN"),
    ("target", "--target COLUMN"),
    ("positive", "--positive CLASS"),
    ("ridge", "--ridge MU"),
    ("categorical", "--categorical"),
    ("inference", "--inference"),
    ("kind = \"logistic\"", "--model logistic"),
    ("kind = \"least-squares\"", "--model least-squares"),
    ("standardise", "--standardise"),
    ("drop", "--drop"),
    ("holdout", "--holdout"),
    ("agents", "--agents"),
];

/// The settings of a fit that errors are about, and their options.
const SETTINGS: [(&str, &str); 27] = [
    ("method", "--method"),
    ("sampling", "--sampling"),
    ("minimise", "--minimise"),
    ("exchange_seconds", "--exchange-seconds"),
    ("bandwidth", "--bandwidth"),
    ("model", "--model"),
    ("inference", "--inference"),
    ("reference", "--reference"),
    ("alpha", "--alpha"),
    ("threshold", "--threshold"),
    ("offset", "--offset"),
    ("row_weights", "--row-weights"),
    ("categorical", "--categorical"),
    ("covariance", "--covariance"),
    ("level", "--level"),
    ("ridge", "--ridge"),
    ("weights", "--weights"),
    ("positive", "--positive"),
    ("compare", "--compare"),
    ("step_size", "--step-size"),
    ("local_steps", "--local-steps"),
    ("batch", "--batch"),
    ("agents", "--agents"),
    ("pca", "--pca"),
    ("rounds", "--rounds"),
    ("seed", "--seed"),
    ("changes", "--set"),
];

/// The error with options in place of settings, and of keys of experiment files in its help.
fn in_options(e: Error) -> Error {
    // Keys of the experiment have their table before them.
    // What no option has set has its key.
    if e.key == "problem.positive" {
        return hints::with(e, &OPTIONS).about("--positive");
    }
    if let Some((_, option)) = SETTINGS.iter().find(|(setting, _)| *setting == e.key && e.place().is_none()) {
        let more = if e.key == "changes" { ", for fedsa run" } else { "" };
        let help = format!("{}{more}", hints::text_with(&hints::text_with(&e.help, &SETTINGS), &OPTIONS));
        return e.about(*option).helped(help);
    }
    if e.code() == ErrorCode::MissingKey {
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
    let fit = Fit::new(&settings(args, kinds)?, signals::cancel())?;
    let (out, common) = (&args.out, &args.common);
    let about = if common.quiet { Vec::new() } else { about(&fit) };
    let (began, id) = (fit.began(), fit.experiment().id.clone());
    let planned = |_: &fedsa_experiment::Plan| about.iter().for_each(say);
    let watcher = Watcher::new(common, began, &planned);
    let run = run_settings(common).in_folder(out, if_exists(common.resume, common.overwrite));
    let outcome = fit.run(run, &watcher, signals::cancel())?;
    let (status, _) = ended(outcome, &id, out, common, |fitted| {
        watcher.hide();
        if !common.quiet {
            report(&fitted).into_iter().for_each(say);
            say(out.join("weights.json").display());
        }
        log::info!("writing {}", out.display());
        fitted.write()?;
        Ok(finished(&fitted.ran, out, common, false, "fit"))
    })?;
    Ok(status)
}

/// The experiment of the options, without reading the data.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &FitArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    settings(args, kinds)?.experiment()
}

/// The settings of the options.
fn settings(args: &FitArgs, kinds: &Kinds) -> Result<FitSettings> {
    let Some(model) = Model::ALL.into_iter().find(|model| model.name() == args.model) else {
        return Err(Error::new("--model", format!("`{}`", quoted(&args.model)), Model::ALL.map(Model::name).join(" or ")));
    };
    let (partition, group) = partition(args)?;
    let mut settings = FitSettings::new(&args.data)
        .with_model(model)
        .with_drop(listed_names("--drop", &args.drop)?)
        .with_standardise(args.standardise)
        .with_partition(partition)
        .with_compare(args.compare.clone())
        .with_tol(args.tol)
        .with_rounds(args.rounds)
        .with_sampling(&args.sampling)
        .with_seed(args.seed)
        .with_kinds(kinds.clone());
    settings.ridge = args.ridge;
    settings.intercept = (args.intercept || args.no_intercept).then_some(args.intercept);
    settings.inference = inference(args)?;
    settings.agents = args.agents;
    settings.target = args.target.clone();
    settings.positive = args.positive.clone();
    settings.reference = args.reference.clone();
    settings.alpha = args.alpha;
    settings.threshold = args.threshold;
    settings.offset = args.offset.clone();
    settings.row_weights = args.row_weights.clone();
    settings.categorical = listed_names("--categorical", &args.categorical)?;
    settings.divide_by = args.divide_by;
    settings.pca = args.pca;
    settings.group = group.map(String::from);
    settings.weights.clone_from(&args.weights);
    settings.holdout = args.holdout;
    settings.method = args.method.clone();
    settings.minimise = match args.minimise {
        FitGoalArg::Bits => Goal::Bits,
        FitGoalArg::Rounds => Goal::Rounds,
        FitGoalArg::Seconds => Goal::Seconds,
    };
    settings.network = args.network.network()?;
    settings.batch = args.batch;
    settings.step_size = args.step_size;
    settings.local_steps = args.local_steps;
    let (origins, set) = (origins(args), Overrides { set: args.set.clone(), ..Overrides::default() });
    Ok(settings.with_changes(Changes::new(move |document| {
        document.origins.extend(origins.iter().cloned());
        apply(&set, document)
    })))
}

/// The standard errors that are asked for.
fn inference(args: &FitArgs) -> Result<Option<InferenceSettings>> {
    let Some(covariance) = CovarianceKind::ALL.into_iter().find(|kind| kind.name() == args.covariance) else {
        let names = CovarianceKind::ALL.map(CovarianceKind::name).join(", ");
        return Err(Error::new("--covariance", format!("`{}`", quoted(&args.covariance)), format!("one of {names}")));
    };
    Ok(args.inference.then(|| InferenceSettings::default().with_covariance(covariance).with_level(args.level)))
}

/// The partition that `--partition` names, and the column that tells the agents apart.
fn partition(args: &FitArgs) -> Result<(Partition, Option<&str>)> {
    let (kind, given) = args.partition.split_once(':').map_or((&args.partition[..], None), |(kind, given)| (kind, Some(given)));
    let accepted = "shuffled, even, by-label, sorted, dirichlet:ALPHA such as dirichlet:0.5, similarity:SHARE such as similarity:0.3, \
                    by:COLUMN such as by:writers, or files";
    let bad = || Error::new("--partition", format!("`{}`", quoted(&args.partition)), accepted);
    Ok(match (kind, given) {
        ("dirichlet", Some(number)) => (Partition::Dirichlet(number.parse().map_err(|_| bad())?), None),
        ("similarity", Some(number)) => (Partition::Similarity(number.parse().map_err(|_| bad())?), None),
        ("by", Some(column)) if !column.is_empty() => (Partition::ByColumn, Some(column)),
        ("shuffled", None) => (Partition::Shuffled, None),
        ("even", None) => (Partition::Even, None),
        ("by-label", None) => (Partition::ByLabel, None),
        ("sorted", None) => (Partition::Sorted, None),
        ("files", None) => (Partition::Files, None),
        _ => return Err(bad()),
    })
}

/// The option from which each key of the experiment comes, for messages.
fn origins(args: &FitArgs) -> Vec<Origin> {
    let given = |option: &str, value: Option<String>| value.map_or(String::new(), |value| format!("--{option} {}", quoted(value)));
    let typed = |x: f64| Some(numbers::typed(x));
    let mut flags = vec![
        ("problem.data".to_string(), "DATA".into()),
        ("problem.kind".into(), given("model", Some(args.model.clone()))),
        ("problem.agents".into(), given("agents", Some(args.agents.unwrap_or(AGENTS).to_string()))),
        ("problem.target".into(), given("target", args.target.clone())),
        ("problem.positive".into(), given("positive", args.positive.clone())),
        ("problem.family".into(), given("model", Some(args.model.clone()))),
        ("problem.reference".into(), given("reference", args.reference.clone())),
        ("problem.alpha".into(), given("alpha", args.alpha.map(numbers::typed))),
        ("problem.threshold".into(), given("threshold", args.threshold.map(numbers::typed))),
        ("problem.offset".into(), given("offset", args.offset.clone())),
        ("problem.row_weights".into(), given("row-weights", args.row_weights.clone())),
        ("problem.categorical".into(), given("categorical", Some(args.categorical.join(",")).filter(|columns| !columns.is_empty()))),
        ("problem.drop".into(), given("drop", Some(args.drop.join(",")).filter(|columns| !columns.is_empty()))),
        ("problem.ridge".into(), given("ridge", args.ridge.map(numbers::typed))),
        ("problem.divide_by".into(), given("divide-by", args.divide_by.map(numbers::typed))),
        ("problem.intercept".into(), if args.intercept { "--intercept".into() } else { String::new() }),
        ("problem.standardise".into(), if args.standardise { "--standardise".into() } else { String::new() }),
        ("problem.pca".into(), given("pca", args.pca.map(|dim| dim.to_string()))),
        ("problem.partition".into(), given("partition", Some(args.partition.clone()))),
        ("problem.group".into(), given("partition", args.partition.contains(':').then(|| args.partition.clone()))),
        ("problem.seed".into(), given("seed", Some(args.seed.to_string()))),
        ("problem.weights".into(), given("weights", Some(args.weights.clone()))),
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
    said.map(|(key, flag)| option(key, flag)).collect()
}

/// What is said of the data before the runs.
fn about(fit: &Fit) -> Vec<String> {
    let intercept = match (fit.prepared().transform.intercept, fit.settings().inference.is_some()) {
        (true, true) => "an intercept without a ridge",
        (true, false) => "an intercept (--no-intercept leaves it out)",
        (false, _) => "no intercept (--intercept adds one)",
    };
    let mut lines = vec![format!("{}, {intercept}", fit.prepared().sizes())];
    lines.extend(modelled(&fit.prepared().targets));
    for category in &fit.prepared().categories {
        let levels: Vec<&str> = category.levels.iter().take(MOST_LEVELS).map(String::as_str).collect();
        let all = category.levels.len();
        let more = if all > MOST_LEVELS { format!(", .. ({all} in all)") } else { String::new() };
        let reference = category.reference.as_ref().map_or(String::new(), |level| format!(" against {}", quoted(level)));
        let (column, levels) = (quoted(&category.column), quoted(levels.join(", ")));
        lines.push(format!("  categories of {column}: {levels}{more}{reference} (--drop {column} leaves the column out)"));
    }
    // A folder or a glob may stand for more than was meant, such as training and test files.
    let read = fit.rows_read();
    if read.len() > 1 {
        lines.push(format!("  read: {}", listed_rows(read.iter().map(|(name, rows)| (&name[..], *rows)), "files")));
    }
    if fit.settings().partition == Partition::ByColumn {
        lines.push(format!("  agents: {}", listed_rows(fit.prepared().named_agents(), "agents")));
    }
    let tol = numbers::typed(fit.settings().tol);
    if fit.settings().tol > 0.0 {
        lines.push(format!("  until the norm of the gradient is at most {tol} (absolute)"));
    }
    lines.extend(fit.choice().map_or(Vec::new(), chosen));
    lines
}

/// How many rows are whose, of the first few.
fn listed_rows<'a>(all: impl Iterator<Item = (&'a str, usize)>, noun: &str) -> String {
    let all: Vec<String> = all.map(|(name, rows)| format!("{} of {}", count(rows, "row"), quoted(name))).collect();
    let more = if all.len() > MOST_LISTED { format!(", and of {} more {noun}", all.len() - MOST_LISTED) } else { String::new() };
    format!("{}{more}", all[..all.len().min(MOST_LISTED)].join(", "))
}

/// Which class is modelled.
fn modelled(targets: &Targets) -> Option<String> {
    match targets {
        Targets::Classes { positive, negative, .. } => {
            let negative = negative.as_ref().map_or("all others".to_string(), ToString::to_string);
            Some(format!("  models the probability of {positive} against {negative} (--positive names the class)"))
        }
        Targets::Many { classes, .. } => {
            let reference = classes.first()?;
            Some(format!("  models {} classes against {reference} (--reference names the class)", classes.len()))
        }
        Targets::Numbers { .. } => None,
    }
}

/// Why the method was chosen, and what it and the others take by rule of thumb.
fn chosen(choice: &LossChoice) -> Vec<String> {
    let line = |candidate: &ConsideredForLosses| {
        let cost = candidate.cost;
        let seconds = if cost.seconds < 1.0 { "below 1 s".to_string() } else { format!("{} s", numbers::about(cost.seconds)) };
        let alike = if candidate.if_alike { ", where agents are alike" } else { "" };
        let (name, rounds) = (candidate.kind, numbers::about(cost.rounds));
        let of = match choice.network {
            Some(_) => format!("with {} exchanges", numbers::about(cost.exchanges)),
            None => "of computation".into(),
        };
        format!("{name}: about {rounds} rounds, {}, {seconds} {of}{alike}", megabits(cost.bits))
    };
    let (kind, goal) = (choice.kind, choice.goal.name());
    let mut lines = vec![format!("auto, for few {goal}: {kind}. {}", choice.why)];
    lines.push("  estimates by rule of thumb, which data may miss by far:".into());
    lines.extend(choice.considered.iter().map(|candidate| format!("    {}", line(candidate))));
    lines
}

/// What every method spent, and how good the model is.
fn report(fitted: &Fitted) -> Vec<String> {
    // The quality is told in sentences below.
    let mut lines: Vec<String> = fitted.summary().tables.iter().take(1).flat_map(table).collect();
    let quality = |name: &str, quality: &FitQuality| {
        let accuracy = quality.accuracy.map_or(String::new(), |share| format!(", accuracy {}", numbers::percent(share)));
        let rmse = quality.rmse.map_or(String::new(), |rmse| format!(", root mean square error {}", number(rmse)));
        let (label, rows, loss) = (fitted.method(), count(quality.rows, "row"), number(quality.loss));
        let by = if fitted.counts_by_weights() { " by their weights" } else { "" };
        format!("{label} on {name} of {rows}{by}: loss without the ridge {loss}{accuracy}{rmse}")
    };
    lines.extend(fitted.summary().tables.iter().skip(2).flat_map(table));
    lines.push(quality("the fit", &fitted.train));
    lines.extend(fitted.held_out.iter().map(|held_out| quality("the held-out share", held_out)));
    lines
}
