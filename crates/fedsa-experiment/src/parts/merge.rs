//! Merges the parts of a sweep into the output of a single run.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, Result};

use super::done::Gathered;
use super::record::SweepRecord;
use crate::config::{Document, Experiment};
use crate::finished::FinishedRun;
use crate::folder::{self, Holds, OUT};
use crate::run::{CONFIG, IfExists, Job, RunOutcome, RunSettings};
use crate::{Kinds, RunObserver};

/// The experiment of the parts in a folder, or of their merged results, and whether it has its quick settings.
///
/// # Errors
/// When the folder has neither, or was changed.
pub fn experiment_of_parts(out: &Path, kinds: &Kinds) -> Result<(Experiment, bool), Error> {
    let read = |name: String, text: &str| Experiment::read(Document::parse(&name, text)?.with_kinds(kinds));
    if let Some(SweepRecord { settings, quick, .. }) = SweepRecord::read(out)? {
        return Ok((read(folder::sweep_path(out).display().to_string(), &settings)?, quick));
    }
    if folder::holds(out) != Holds::Finished {
        return Err(no_parts(out));
    }
    let finished = FinishedRun::read(out)?;
    let experiment = read(out.join(CONFIG).display().to_string(), &finished.config)?;
    Ok((experiment, finished.summary["quick"] == true))
}

fn no_parts(out: &Path) -> Error {
    let what = format!("{} holds no parts of a sweep", out.display());
    Error::new(OUT, what, "the folder in which parts ran: `points`").coded(ErrorCode::NoFile)
}

/// Merges the parts in the folder of the settings: checks that all points of this experiment and of this program version are there, and
/// compares the results with theory. [`Ran::write`](crate::run::Ran::write) writes the files of a single run, and removes the parts. The
/// settings' treatment of an existing run has no effect.
///
/// # Errors
/// When a part is missing, damaged, foreign, or of another version, and when parts overlap. Nothing is then written.
pub fn merge(experiment: Experiment, settings: RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome, Error> {
    let no_folder = || Error::new(OUT, "parts of a sweep are in a folder", "the folder in which parts ran");
    let (out, _) = settings.folder.clone().ok_or_else(no_folder)?;
    // The parts that ran may be unstable.
    let settings = settings.with_force(true).in_folder(&out, IfExists::Resume);
    if !folder::has_parts(&out) {
        // Merged results are read like any run's.
        return if folder::holds(&out) == Holds::Finished {
            Job::new(experiment, settings).run(observer, cancel)
        } else {
            Err(no_parts(&out))
        };
    }
    if folder::is_under_way(&out) {
        let what = format!("parts in {} are under way", out.display());
        return Err(Error::new(OUT, what, "the same call when they have ended").coded(ErrorCode::OutputBusy));
    }
    let now = SweepRecord::of(&experiment, &settings.base, settings.quick);
    let there = SweepRecord::read(&out)?.ok_or_else(|| no_parts(&out))?;
    there.refuse_other(&now, &out)?;
    let gathered = Gathered::of(&out, &there)?;
    Job::new(experiment, settings).of_parts(gathered).run(observer, cancel)
}
