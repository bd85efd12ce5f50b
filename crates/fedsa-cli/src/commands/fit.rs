//! `fedsa fit`: fits the weights of a regression or classification model to rows with targets.
//!
//! [`mod@fedsa_experiment::fit`] does the work. In addition to the usual outputs of a run the command writes `weights.json` and
//! `weights.npz`, and prints the costs of every method.

use fedsa::error::{Error, Result, quoted};
use fedsa_experiment::Kinds;
use fedsa_experiment::choose::{ConsideredForLosses, LossChoice};
use fedsa_experiment::config::Experiment;
use fedsa_experiment::deployment;
use fedsa_experiment::fit::{Fit, FitSettings, Fitted};
use fedsa_experiment::numbers::{self, number};
use fedsa_problems::rows::preparation::partition::Partition;
use fedsa_problems::rows::preparation::quality::FitQuality;
use fedsa_problems::rows::preparation::targets::Targets;

use super::progress::Watcher;
use super::results::table;
use super::run::{check_out, ended, finished, if_exists, settings as run_settings};
use super::{changes, count, federation, lacking, megabits, say, signals};
use crate::args::FitArgs;

/// The largest number of files or agents that are listed.
const MAX_LISTED: usize = 4;

/// The largest number of levels of a category that are listed.
const MAX_LEVELS: usize = 6;

/// The error with help in options of the program.
fn in_options(e: Error, settings: &FitSettings) -> Error {
    // Settings without an option keep their key.
    if e.key == "problem.positive" {
        return e.about("positive");
    }
    if e.key == "changes" {
        let help = format!("{}, for fedsa run", e.help);
        return e.about("set").helped(help);
    }
    let step_size = "a step size such as 0.1: below 2 / L, with the largest eigenvalue L of the agents' Hessians";
    lacking(e, settings.method.iter().chain(&settings.compare), &[("step_size", step_size)])
}

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn fit(args: &FitArgs, kinds: &Kinds) -> Result<u8, Error> {
    fit_files(args, kinds).map_err(|e| in_options(e, &args.settings))
}

fn fit_files(args: &FitArgs, kinds: &Kinds) -> Result<u8, Error> {
    check_out(&args.task, &args.out, &args.common)?;
    let fit = Fit::new(&settings(args, kinds), signals::cancel())?;
    if let Some(dir) = &args.task.federation {
        return federation::write_task(dir, &deployment::of_fit(&fit)?);
    }
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
        Ok(finished(&fitted.ran, out, common, false))
    })?;
    Ok(status)
}

/// The experiment of the options, without reading the data.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &FitArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    settings(args, kinds).experiment()
}

/// The settings of the options, with these kinds.
fn settings(args: &FitArgs, kinds: &Kinds) -> FitSettings {
    FitSettings { changes: changes(&args.task), kinds: kinds.clone(), ..args.settings.clone() }
}

/// The lines about the data before the runs.
fn about(fit: &Fit) -> Vec<String> {
    let intercept = match fit.prepared().transform.intercept {
        true => "an intercept (--intercept=false leaves it out)",
        false => "no intercept (--intercept adds one)",
    };
    let mut lines = vec![format!("{}, {intercept}, {}", fit.prepared().sizes(), fit.ridge())];
    lines.extend(modelled(&fit.prepared().targets));
    for (category, known) in fit.prepared().categories.iter().zip(&fit.prepared().levels) {
        let with_rows = |(level, rows): (&String, &u64)| format!("{} ({rows})", quoted(level));
        let is_reference = |level: &String| category.reference.as_ref() == Some(level);
        let all = known.levels.iter().zip(&known.counts);
        let levels: Vec<String> = all.clone().filter(|(level, _)| !is_reference(level)).take(MAX_LEVELS).map(with_rows).collect();
        let n = category.levels.len();
        let more = if n > MAX_LEVELS { format!(", .. ({n} in all)") } else { String::new() };
        let reference = all.clone().find(|(level, _)| is_reference(level)).map(with_rows);
        let reference = reference.map_or(String::new(), |level| format!(" against {level}"));
        let (column, levels) = (quoted(&category.column), levels.join(", "));
        lines.push(format!("  categories of {column} (rows): {levels}{more}{reference} (--drop {column} leaves the column out)"));
    }
    // A folder or a glob may contain more than was meant, such as training and test files.
    let read = fit.rows_read();
    if read.len() > 1 {
        lines.push(format!("  read: {}", listed_rows(read.iter().map(|(name, rows)| (&name[..], *rows)), "file")));
    }
    if fit.settings().dealing() == Partition::ByColumn {
        lines.push(format!("  agents: {}", listed_rows(fit.prepared().named_agents(), "agent")));
    }
    let tol = numbers::typed(fit.settings().tol);
    if fit.settings().tol > 0.0 {
        lines.push(format!("  until the norm of the gradient is at most {tol} (absolute)"));
    }
    lines.extend(fit.choice().map_or(Vec::new(), chosen));
    lines
}

/// The number of rows of each of the first few.
fn listed_rows<'a>(all: impl Iterator<Item = (&'a str, usize)>, noun: &str) -> String {
    let all: Vec<String> = all.map(|(name, rows)| format!("{} of {}", count(rows, "row"), quoted(name))).collect();
    let more =
        if all.len() > MAX_LISTED { format!(", and of {}", count(all.len() - MAX_LISTED, &format!("more {noun}"))) } else { String::new() };
    format!("{}{more}", all[..all.len().min(MAX_LISTED)].join(", "))
}

/// The class that is modelled.
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

/// The reason for the choice, and the estimated costs of all methods.
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

/// The costs of every method, and the quality of the model.
fn report(fitted: &Fitted) -> Vec<String> {
    // The sentences below have the quality.
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
