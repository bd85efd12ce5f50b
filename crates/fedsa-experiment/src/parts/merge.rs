//! The parts of a sweep, put together to what a single run would have written.

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

/// The experiment of which a folder has parts, or their merged results, and whether it has its quick settings.
///
/// # Errors
/// When the folder holds neither, or was changed.
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

/// Puts the parts in the folder of the settings together: checks that all points are there, of this experiment and of this version of the
/// program, and compares with theory. [`Ran::write`](crate::run::Ran::write) makes the files that a single run would have written, and
/// removes the parts. What the settings say of a folder that holds a run is not used.
///
/// # Errors
/// When a part is missing, damaged, foreign, or of another version; when parts overlap. Nothing is written then.
pub fn merge(experiment: Experiment, settings: RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome, Error> {
    let no_folder = || Error::new(OUT, "parts of a sweep are in a folder", "the folder in which parts ran");
    let (out, _) = settings.folder.clone().ok_or_else(no_folder)?;
    // What ran may be unstable.
    let settings = settings.with_force(true).in_folder(&out, IfExists::Resume);
    if !folder::has_parts(&out) {
        // Merged results are read as those of any run.
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
