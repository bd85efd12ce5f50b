//! `fedsa run`: from an experiment file to tables and pictures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fedsa::error::Error;
use fedsa_experiment::config::Experiment;
use fedsa_experiment::execute::Interrupted;
use fedsa_experiment::run::{EndedRun, Job, Ran, RunOutcome, check_folder};
use fedsa_experiment::{IfExists, Kinds, RunSettings};

use super::progress::Watcher;
use super::results::{failures, report};
use super::signals::{self, Phase};
use super::{count, load, say, say_json, warn};
use crate::args::{Common, RunArgs, TaskArgs};
use crate::error::{DONE, INTERRUPTED, NOT_AS_EXPECTED};

/// Runs the command.
///
/// # Errors
/// On bad input (nothing is written), and when the machine fails.
pub fn run(args: &RunArgs, kinds: &Kinds) -> Result<u8, Error> {
    let began = Instant::now();
    let (experiment, base) = load(&args.file, &args.overrides, args.quick, kinds)?;
    let out = folder(args, &experiment);
    let settings = settings(&args.common).with_base(base).with_quick(args.quick);
    Ok(in_folder(experiment, settings, &out, &args.common, args.json, began)?.0)
}

/// The folder of the results.
pub fn folder(args: &RunArgs, experiment: &Experiment) -> PathBuf {
    args.out.clone().unwrap_or_else(|| Path::new("out").join(&experiment.id))
}

/// Runs an experiment in a folder; its exit status, and the number of notes.
///
/// # Errors
/// On bad input (nothing is written), and when the machine fails.
pub fn in_folder(
    experiment: Experiment,
    settings: RunSettings,
    out: &Path,
    common: &Common,
    json: bool,
    began: Instant,
) -> Result<(u8, usize), Error> {
    let watcher = Watcher::new(common, began, &|_| {});
    let id = experiment.id.clone();
    let job = Job::new(experiment, settings.in_folder(out, if_exists(common.resume, common.overwrite))).since(began);
    let outcome = job.run(&watcher, signals::cancel())?;
    ended(outcome, &id, out, common, |ran| {
        watcher.hide();
        log::info!("writing {}", out.display());
        ran.write(Vec::new())?;
        Ok(finished(&ran, out, common, json))
    })
}

/// Reports how runs ended; `done` reports those that have ended now. Returns the exit status and the number of notes.
///
/// # Errors
/// Those of `done`.
pub fn ended<T>(
    outcome: RunOutcome<T>,
    id: &str,
    out: &Path,
    common: &Common,
    done: impl FnOnce(T) -> Result<(u8, usize), Error>,
) -> Result<(u8, usize), Error> {
    match outcome {
        RunOutcome::Done(results) => done(*results),
        RunOutcome::AlreadyDone(before) => Ok(already_done(id, &before.ended, out, common)),
        RunOutcome::Interrupted(left) => {
            interrupted(&left);
            warn(format!("the same command with --resume continues from {}", out.display()));
            Ok((INTERRUPTED, 0))
        }
        _ => unreachable!("the program is of the library's version"),
    }
}

/// The settings of runs by the options.
pub fn settings(common: &Common) -> RunSettings {
    let every = Duration::from_secs_f64(common.checkpoint_every);
    RunSettings::default().with_force(common.force).with_checkpoint_every(every)
}

/// The treatment of an existing run, by `--resume` and `--overwrite`.
pub fn if_exists(resume: bool, overwrite: bool) -> IfExists {
    match (resume, overwrite) {
        (true, _) => IfExists::Resume,
        (false, true) => IfExists::Overwrite,
        (false, false) => IfExists::Refuse,
    }
}

/// Checks the folder of a task before its data are read. A task of a federation has none.
pub fn check_out(task: &TaskArgs, out: &Path, common: &Common) -> Result<(), Error> {
    if task.federation.is_some() { Ok(()) } else { check_folder(out, if_exists(common.resume, common.overwrite)) }
}

/// Reports a run whose files are written. Returns the exit status, and the number of excused checks and outcomes.
pub fn finished(ran: &Ran, out: &Path, common: &Common, json: bool) -> (u8, usize) {
    signals::enter(Phase::Before);
    if json {
        say_json(&ran.summary_json());
    } else if !common.quiet {
        report(&ran.summary(), ran.plan.points.len() * ran.plan.labels.len(), out);
    } else if !ran.ended.as_expected {
        // The reason for the exit status is printed even without the report.
        failures(&ran.summary()).into_iter().for_each(warn);
    }
    status(&ran.ended)
}

/// Reports that the run in a folder is finished. Returns its exit status and notes.
fn already_done(id: &str, ended: &EndedRun, out: &Path, common: &Common) -> (u8, usize) {
    let as_expected = if ended.as_expected { "" } else { ", and NOT as expected: summary.json there says why" };
    let line = format!("{id}: already done, in {}{as_expected}", out.display());
    if !common.quiet {
        say(line);
    } else if !ended.as_expected {
        warn(line);
    }
    status(ended)
}

fn status(ended: &EndedRun) -> (u8, usize) {
    (if ended.as_expected { DONE } else { NOT_AS_EXPECTED }, ended.excused)
}

/// Reports an interrupted run.
pub fn interrupted(left: &Interrupted) {
    let Interrupted { ended, lost, kept, behind, waiting, .. } = left;
    let mut parts = Vec::new();
    let mut say = |n: usize, what: &str| {
        if n > 0 {
            parts.push(format!("{} {what}", count(n, "run")));
        }
    };
    say(*ended, "had ended");
    say(*lost, "had ended and could not be saved");
    say(*kept, "saved at the last completed round");
    say(behind.len(), "saved at an earlier round");
    say(*waiting, "not begun");
    warn(format!("interrupted: {}", parts.join(", ")));
    for (what, round) in behind {
        let from = if *round == 0 { "the start".into() } else { format!("the checkpoint of round {round}") };
        warn(format!("  {what}: the round under way was dropped, and the one before could not be saved; continues from {from}"));
    }
}
