//! A tuning as a whole: with a folder, it saves its pilots there and can continue.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, ErrorKind};

use super::{Began, Memo, Searched, TuneControl, TuneSettings, Tuned, Tuning, names};
use crate::config::Experiment;
use crate::execute::{read_framed, write_framed};
use crate::folder::{self, FolderPurpose, FolderWork, Found, Holds, OUT, PILOTS, RunFolder};
use crate::run::{CONFIG, IfExists, RESUME, RunSettings};

/// The stages of a tuning.
#[non_exhaustive]
pub enum TuneStage<'a> {
    /// The problem is built.
    Building,
    /// The search begins, with this number of earlier pilot runs.
    Searching(usize),
    /// A part of the search begins.
    Began(&'a Began),
    /// The search ended or was interrupted.
    Ended,
}

/// How a tuning ended.
#[non_exhaustive]
pub enum TuneOutcome {
    /// With an answer.
    Done(Box<Answer>),
    /// It was cancelled, with this number of pilot runs in the folder, which a resumed tuning does not repeat. Without any, it ends in an
    /// error of the kind [`Cancelled`](fedsa::error::ErrorKind::Cancelled) instead.
    Interrupted(usize),
}

/// The answer of a tuning, and its folder.
#[non_exhaustive]
pub struct Answer {
    /// The tuning.
    pub tuning: Tuning,
    /// The answer.
    pub tuned: Tuned,
    place: Place,
}

impl Answer {
    /// Writes the experiment file, the summary and the pictures into the folder of the tuning; nothing without a folder. Others may then
    /// use the folder.
    ///
    /// # Errors
    /// When files cannot be made or written. The pilots remain in the folder.
    pub fn write(&mut self) -> Result<(), Error> {
        let files = self.tuning.files(&self.tuned)?;
        let Some(folder) = self.place.folder()? else { return Ok(()) };
        let written = folder.hold().and_then(|()| folder.write(&files));
        folder.release();
        written
    }
}

/// Searches the cheapest settings. It uses the folder, the folder of relative paths and the instruction set of `run`. The folder gets only
/// pilots; [`Answer::write`] writes the rest.
///
/// # Errors
/// On bad input, and when nothing reaches the target (nothing is then written); when the machine fails (finished pilots remain in the
/// folder); when it is cancelled and nothing is saved.
pub fn tune(
    experiment: &Experiment,
    options: &TuneSettings,
    run: &RunSettings,
    observe: &mut dyn FnMut(TuneStage<'_>),
    cancel: &Cancel,
) -> Result<TuneOutcome, Error> {
    let (mut place, memo) = match &run.folder {
        None => (Place::default(), None),
        Some((path, if_exists)) => Place::open(path, *if_exists)?,
    };
    observe(TuneStage::Building);
    let tuning = Tuning::new(experiment, &run.base, run.isa, options, cancel)?;
    let is_other = memo.as_ref().is_some_and(|memo| !memo.is_of(&tuning)) || place.is_of_other(&tuning.identity);
    place.purpose = Some(FolderPurpose::new(FolderWork::Tuning, &tuning.identity));
    if let Some((path, _)) = run.folder.as_ref().filter(|_| is_other) {
        let what = format!("{} holds a tuning of another file or with other options", path.display());
        return Err(Error::new(RESUME, what, "the same file and options as for that tuning"));
    }
    let memo = memo.unwrap_or_else(|| tuning.memo());
    observe(TuneStage::Searching(memo.len()));
    let (searched, kept) = {
        let mut keep = |memo: &Memo| place.folder()?.map_or(Ok(()), |folder| write_framed(folder, PILOTS, memo));
        let mut began = |began: &Began| observe(TuneStage::Began(began));
        let mut control = TuneControl { cancel, memo, keep: &mut keep, began: &mut began };
        let searched = tuning.search(&mut control);
        (searched, control.memo.len())
    };
    observe(TuneStage::Ended);
    match searched.inspect_err(|e| place.end(e, kept))? {
        Searched::Done(tuned) => Ok(TuneOutcome::Done(Box::new(Answer { tuning, tuned: *tuned, place }))),
        Searched::Interrupted if kept > 0 && run.folder.is_some() => Ok(TuneOutcome::Interrupted(kept)),
        Searched::Interrupted => Err(not_kept(kept)),
    }
}

/// The error of a tuning that was cancelled after this number of pilots, none of them in a folder.
fn not_kept(pilots: usize) -> Error {
    let what = match pilots {
        0 => "interrupted before the first pilot run: nothing is kept",
        _ => "interrupted: without a folder no pilot runs are kept",
    };
    Error::cancelled(what, "the same call again, or a folder from which it can go on")
}

/// The folder, which is used from the first write on.
#[derive(Default)]
struct Place {
    found: Option<Found>,
    folder: Option<RunFolder>,
    keep: bool,
    /// The purpose of the folder.
    purpose: Option<FolderPurpose>,
}

impl Place {
    /// Inspects a folder, and returns the pilots with which the tuning continues.
    fn open(path: &Path, if_exists: IfExists) -> Result<(Self, Option<Memo>), Error> {
        let found = folder::look(path)?;
        found.refuse_own()?;
        let is_resumed = if_exists == IfExists::Resume;
        // A copied folder may have no marker; with settings, it is the folder of a run.
        let is_run = || found.work().map_or_else(|| found.own(CONFIG).is_some(), |work| work != FolderWork::Tuning);
        match (found.holds, if_exists) {
            (Holds::Nothing | Holds::Foreign, IfExists::Resume) => {
                let what = format!("{} holds no interrupted tuning", path.display());
                return Err(Error::new(RESUME, what, "the folder of an interrupted tuning, or no `resume` to begin one"));
            }
            (Holds::Finished | Holds::Unfinished, IfExists::Resume) if is_run() => {
                let work = found.work().unwrap_or(FolderWork::Run);
                let what = format!("{} holds {}, not a tuning", path.display(), found.text());
                let help = format!("the folder of an interrupted tuning; or `overwrite`, which replaces the {work}");
                return Err(Error::new(RESUME, what, help).coded(ErrorCode::OtherRun));
            }
            (holds, IfExists::Refuse) if holds != Holds::Nothing => {
                let what = format!("{} holds {}", path.display(), found.text());
                let help = "another folder, `resume` to go on with an interrupted tuning, or `overwrite` to replace it";
                return Err(Error::new(OUT, what, help));
            }
            _ => {}
        }
        let names = names();
        found.refuse_foreign(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let state = folder::own_path(path, PILOTS);
        let memo: Option<Memo> = if is_resumed && state.exists() { Some(read_framed(&state)?) } else { None };
        if is_resumed && memo.is_none() && found.holds == Holds::Finished {
            let what = format!("{} holds a finished tuning: nothing is left to do", path.display());
            return Err(Error::new(RESUME, what, "the folder of an interrupted tuning, or `overwrite` to tune again"));
        }
        Ok((Self { found: Some(found), keep: is_resumed, ..Self::default() }, memo))
    }

    /// The folder, if there is one.
    fn folder(&mut self) -> Result<Option<&RunFolder>, Error> {
        if let (Some(found), Some(purpose)) = (self.found.take(), &self.purpose) {
            self.folder = Some(found.purposed(purpose.clone()).claim(self.keep)?);
        }
        Ok(self.folder.as_ref())
    }

    /// Whether the resumed tuning has another identity.
    fn is_of_other(&self, identity: &str) -> bool {
        let before = self.found.as_ref().filter(|_| self.keep).and_then(Found::purpose);
        before.is_some_and(|before| before.identity != identity)
    }

    /// Ends a tuning that failed after this number of pilots. A folder that was created for it is removed, unless it has pilots that a
    /// repetition could use.
    fn end(&self, e: &Error, pilots: usize) {
        let is_answer = matches!(e.code(), ErrorCode::TargetNotReached | ErrorCode::NoCandidate);
        let is_bad_input = matches!(e.kind(), ErrorKind::Setting | ErrorKind::Data | ErrorKind::NotAvailable);
        if let Some(folder) = self.folder.as_ref().filter(|_| is_answer || (is_bad_input && pilots == 0)) {
            folder.abandon();
        }
    }
}
