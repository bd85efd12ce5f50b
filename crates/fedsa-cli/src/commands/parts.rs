//! `fedsa run --points` and `fedsa merge`: runs of parts of a sweep, and their union.

use std::time::Instant;

use fedsa::error::Error;
use fedsa_experiment::parts::{self, PartOutcome, SweepPart};
use fedsa_experiment::run::RunOutcome;
use fedsa_experiment::{IfExists, Kinds, RunSettings};
use serde_json::json;

use super::progress::Watcher;
use super::run::{ended, finished, folder, interrupted, settings};
use super::{count, duration, load, say, say_json, signals, warn};
use crate::args::{Common, MergeArgs, RunArgs};
use crate::error::{DONE, INTERRUPTED};

/// Runs some points of an experiment.
///
/// # Errors
/// On bad input, and when the machine fails.
pub fn run(args: &RunArgs, points: &str, kinds: &Kinds) -> Result<u8, Error> {
    let began = Instant::now();
    let seeds = args.part.seed_range.as_deref().map(str::parse).transpose()?;
    let part = SweepPart { points: points.parse()?, seeds };
    let (experiment, base) = load(&args.file, &args.overrides, args.quick, kinds)?;
    let out = folder(args, &experiment);
    let settings = settings(&args.common).with_base(base).with_quick(args.quick).in_folder(&out, IfExists::Refuse);
    let (common, watcher) = (&args.common, Watcher::new(&args.common, began, &|_| {}));
    let outcome = parts::run_part(&experiment, &part, &settings, &watcher, signals::cancel())?;
    watcher.hide();
    let out = out.display().to_string();
    let (runs, seconds) = match outcome {
        PartOutcome::Done(ran) => (Some(ran.runs), ran.seconds),
        PartOutcome::Interrupted(left) => {
            interrupted(&left);
            warn(format!("the same command continues from {out}"));
            return Ok(INTERRUPTED);
        }
        _ => (None, 0.0),
    };
    let id = &experiment.id;
    if args.json {
        say_json(&json!({
            "id": id,
            "points": part.points.to_string(),
            "seed_range": part.seeds.map(|seeds| seeds.to_string()),
            "already_done": runs.is_none(),
            "runs": runs,
            "seconds": seconds,
            "out": out,
        }));
    } else if !common.quiet {
        match runs {
            Some(runs) => {
                say(format!("{id}: {part}: {} in {}, in {out}; fedsa merge puts all parts together", count(runs, "run"), duration(seconds)))
            }
            None => say(format!("{id}: {part}: already done, in {out}")),
        }
    }
    Ok(DONE)
}

/// Merges the parts in a folder.
///
/// # Errors
/// When a part is missing, damaged or foreign (nothing is then written), and when the machine fails.
pub fn merge(args: &MergeArgs, kinds: &Kinds) -> Result<u8, Error> {
    let began = Instant::now();
    let common = Common { quiet: args.quiet, progress: args.progress, ..Common::default() };
    let watcher = Watcher::new(&common, began, &|_| {});
    let (experiment, quick) = parts::experiment_of_parts(&args.dir, kinds)?;
    let id = experiment.id.clone();
    let settings = RunSettings::default().with_quick(quick).in_folder(&args.dir, IfExists::Resume);
    let outcome = parts::merge(experiment, settings, &watcher, signals::cancel())?;
    if let RunOutcome::Interrupted(_) = outcome {
        watcher.hide();
        warn("interrupted: the parts are as they were; the same command merges them");
        return Ok(INTERRUPTED);
    }
    let (status, _) = ended(outcome, &id, &args.dir, &common, |ran| {
        watcher.hide();
        log::info!("writing {}", args.dir.display());
        ran.write(Vec::new())?;
        Ok(finished(&ran, &args.dir, &common, args.json))
    })?;
    Ok(status)
}
