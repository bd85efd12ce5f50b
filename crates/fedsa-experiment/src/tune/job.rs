//! A tuning as a whole: with a folder, in which it keeps its pilots and can go on.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::{BadInput, Error};

use super::{Began, FILE, Memo, Searched, TuneControl, TuneOptions, Tuned, Tuning, names};
use crate::config::Experiment;
use crate::execute::{read_framed, write_framed};
use crate::folder::{self, Found, Holds, OUT, RunFolder};
use crate::run::{IfExists, RESUME, RunSettings};

/// The file with the pilots that were run.
const STATE: &str = "tune.ckpt";

/// What a tuning does next.
pub enum TuneStage<'a> {
    /// The problem is built.
    Building,
    /// The search begins; so many pilot runs are known from before.
    Searching(usize),
    /// A part of the search begins.
    Began(&'a Began),
    /// The search has ended, or was interrupted.
    Ended,
}

/// How a tuning ended.
pub enum TuneOutcome {
    /// With an answer.
    Done(Box<Answer>),
    /// It was cancelled. With a folder, so many pilot runs are kept there, and a tuning that resumes does not repeat them.
    Interrupted(usize),
}

/// The answer of a tuning, and its folder.
pub struct Answer {
    /// What was asked.
    pub tuning: Tuning,
    /// The answer.
    pub tuned: Tuned,
    place: Place,
}

impl Answer {
    /// Writes the experiment file, the summary and the pictures into the folder of the tuning; nothing without a folder.
    ///
    /// # Errors
    /// When files cannot be made or written.
    pub fn write(&mut self) -> Result<(), Error> {
        let files = self.tuning.files(&self.tuned).inspect_err(|_| self.place.abandon())?;
        self.place.folder()?.map_or(Ok(()), |folder| folder.write(&files))
    }
}

/// Looks for the settings of the least cost. Of `run`, the folder, the folder of relative paths and the instruction set are used. In a
/// folder only pilots are written ([`Answer::write`]).
///
/// # Errors
/// On bad input, and where nothing reaches the target (nothing is then written); and when the machine fails.
pub fn tune(
    experiment: &Experiment,
    options: &TuneOptions,
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
    if let Some((path, _)) = run.folder.as_ref().filter(|_| memo.as_ref().is_some_and(|memo| !memo.is_of(&tuning))) {
        let what = format!("{} holds a tuning of another file or with other options", path.display());
        return Err(BadInput::new(RESUME, what, "the same file and options as for that tuning"));
    }
    let memo = memo.unwrap_or_else(|| tuning.memo());
    observe(TuneStage::Searching(memo.len()));
    let (searched, kept) = {
        let mut keep = |memo: &Memo| place.folder()?.map_or(Ok(()), |folder| write_framed(folder, STATE, memo));
        let mut began = |began: &Began| observe(TuneStage::Began(began));
        let mut control = TuneControl { cancel, memo, keep: &mut keep, began: &mut began };
        let searched = tuning.search(&mut control);
        (searched, control.memo.len())
    };
    observe(TuneStage::Ended);
    match searched.inspect_err(|_| place.abandon())? {
        Searched::Done(tuned) => Ok(TuneOutcome::Done(Box::new(Answer { tuning, tuned: *tuned, place }))),
        Searched::Interrupted => Ok(TuneOutcome::Interrupted(kept)),
    }
}

/// The folder, which is taken when something is written for the first time.
#[derive(Default)]
struct Place {
    found: Option<Found>,
    folder: Option<RunFolder>,
    keep: bool,
}

impl Place {
    /// Looks at a folder; gives the pilots in it with which the tuning goes on.
    fn open(path: &Path, if_exists: IfExists) -> Result<(Self, Option<Memo>), Error> {
        let found = folder::look(path)?;
        found.refuse_own()?;
        let is_resumed = if_exists == IfExists::Resume;
        let is_tuning = found.own(FILE).is_some();
        match (found.holds, if_exists) {
            (Holds::Nothing | Holds::Foreign, IfExists::Resume) => {
                let what = format!("{} holds no interrupted tuning", path.display());
                return Err(BadInput::new(RESUME, what, "the folder of an interrupted tuning, or no `resume` to begin one"));
            }
            (holds, IfExists::Refuse) if holds != Holds::Nothing => {
                let holds = if is_tuning { "a finished tuning".into() } else { holds.to_string() };
                let what = format!("{} holds {holds}", path.display());
                let help = "another folder, `resume` to go on with an interrupted tuning, or `overwrite` to replace it";
                return Err(BadInput::new(OUT, what, help));
            }
            _ => {}
        }
        let names = names();
        found.refuse_foreign(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let state = folder::own_path(path, STATE);
        let memo: Option<Memo> = if is_resumed && state.exists() { Some(read_framed(&state)?) } else { None };
        if is_resumed && memo.is_none() && found.holds == Holds::Finished {
            let what = if is_tuning { "a finished tuning: nothing is left to do" } else { "a run, not a tuning" };
            let what = format!("{} holds {what}", path.display());
            return Err(BadInput::new(RESUME, what, "the folder of an interrupted tuning, or `overwrite` to tune again"));
        }
        Ok((Self { found: Some(found), folder: None, keep: is_resumed }, memo))
    }

    /// The folder, if there is one.
    fn folder(&mut self) -> Result<Option<&RunFolder>, Error> {
        if let Some(found) = self.found.take() {
            self.folder = Some(found.claim(self.keep)?);
        }
        Ok(self.folder.as_ref())
    }

    /// Removes a folder that was made for this tuning.
    fn abandon(&self) {
        if let Some(folder) = &self.folder {
            folder.abandon();
        }
    }
}
