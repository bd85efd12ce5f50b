//! Runs an experiment: from its settings to results, which are compared with theory and drawn.
//!
//! [`run`] needs no files. A [`Job`] with a folder writes checkpoints there, and continues from those of an earlier run (`earlier`).
//! [`Ran`] holds the results, and [`Ran::write`] writes files.

mod earlier;
mod ended;
mod predictions;
mod ran;
mod traced;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode};
use fedsa::kernel::Isa;
use fedsa_data::find::Places;
use toml::Table;

use crate::config::Experiment;
use crate::execute::{Earlier, Executed, Interrupted, RunControl, execute};
use crate::folder::{self, FolderPurpose, FolderWork, Found, Holds, RunFolder};
use crate::parts::done::Gathered;
use crate::plan::{BuiltProblem, PlanControl};
use crate::predict::KeptPredictions;
use crate::{Computed, Plan, Results, RunObserver, Stage, Unobserved, checks, output, resolve, run_memory, stability};
pub(crate) use earlier::write_roots;
pub use earlier::{RESUME, roots};
pub use ended::{AlreadyDone, RunOutcome};
pub use ran::{EndedRun, Ran, write_finished};

/// The file with the settings of a run.
pub const CONFIG: &str = "config.toml";

/// The settings of a run, apart from the experiment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunSettings {
    /// The folder of relative paths; the working directory by default.
    pub base: PathBuf,
    /// Whether the quick settings apply; failed checks are then notes. False by default.
    pub quick: bool,
    /// Whether settings that are known to be unstable run. False by default.
    pub force: bool,
    /// The time between checkpoints of a run; 10 seconds by default.
    pub checkpoint_every: Duration,
    /// The instruction set; the best one of the machine by default.
    pub isa: Isa,
    /// The folder for checkpoints and files, and the treatment of an existing run. By default there is none: nothing is written, and a
    /// cancelled run is lost.
    pub folder: Option<(PathBuf, IfExists)>,
    /// Whether runs come one after another, each on all threads, so that their times are comparable. False by default: runs on one thread
    /// each take less time in sum.
    pub in_turn: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        let checkpoint_every = Duration::from_secs(10);
        Self { base: PathBuf::new(), quick: false, force: false, checkpoint_every, isa: Isa::best(), folder: None, in_turn: false }
    }
}

impl RunSettings {
    /// The same with another folder of relative paths.
    #[must_use]
    pub fn with_base(self, base: impl Into<PathBuf>) -> Self {
        Self { base: base.into(), ..self }
    }

    /// The same with or without the quick settings.
    #[must_use]
    pub fn with_quick(self, quick: bool) -> Self {
        Self { quick, ..self }
    }

    /// The same with runs one after another, or in parallel.
    #[must_use]
    pub fn with_in_turn(self, in_turn: bool) -> Self {
        Self { in_turn, ..self }
    }

    /// The same, running or refusing settings that are known to be unstable.
    #[must_use]
    pub fn with_force(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// The same with another time between checkpoints.
    #[must_use]
    pub fn with_checkpoint_every(self, checkpoint_every: Duration) -> Self {
        Self { checkpoint_every, ..self }
    }

    /// The same in a folder, which is created if missing.
    #[must_use]
    pub fn in_folder(self, path: impl Into<PathBuf>, if_exists: IfExists) -> Self {
        Self { folder: Some((path.into(), if_exists)), ..self }
    }
}

/// The treatment of an existing run in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// The folder is refused.
    #[default]
    Refuse,
    /// The run continues, with the same number of rounds and seeds or more.
    Resume,
    /// The run is replaced. Files that fedsa did not write are kept.
    Overwrite,
}

/// Runs an experiment. With a folder in the settings, it continues the run there, and saves a cancelled run.
///
/// # Errors
/// As [`Job::run`].
pub fn run(experiment: Experiment, settings: &RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome, Error> {
    Job::new(experiment, settings.clone()).run(observer, cancel)
}

/// An experiment with its settings.
pub struct Job {
    experiment: Experiment,
    settings: RunSettings,
    built: Option<BuiltProblem>,
    /// Names of files in addition to the usual ones.
    extra: Vec<String>,
    began: Instant,
    work: FolderWork,
    /// Requests outside of the experiment, in words.
    further: Option<String>,
    /// The folder of a finished run that is read only.
    ended_in: Option<PathBuf>,
    /// The results of parts to merge.
    parts: Option<Gathered>,
}

/// Where files are written.
struct Target<'a> {
    path: &'a Path,
    if_exists: IfExists,
    extra: &'a [String],
    purpose: &'a FolderPurpose,
    /// `theta*` from merged parts.
    parts: Option<&'a HashMap<String, Vec<f64>>>,
}

/// The contents of a run's folder.
#[derive(Default)]
struct Kept {
    /// `theta*` of its problems by fingerprint, from an earlier run.
    roots: HashMap<String, Vec<f64>>,
    earlier: Earlier,
    /// Predictions computed before an interruption.
    predictions: KeptPredictions,
}

impl Kept {
    fn of(path: &Path) -> Result<Self, Error> {
        Ok(Self { roots: roots(path)?, earlier: Earlier::of(path)?, predictions: predictions::kept(path) })
    }
}

/// The folder of a run, inspected and not used yet.
struct Opened {
    found: Found,
    /// The data of an earlier run, if it continues.
    kept: Option<Kept>,
    /// Whether its settings were the same.
    is_same: bool,
}

impl Job {
    /// An experiment and how it is run.
    pub fn new(experiment: Experiment, settings: RunSettings) -> Self {
        let (began, work) = (Instant::now(), FolderWork::Run);
        Self { experiment, settings, built: None, extra: Vec::new(), began, work, further: None, ended_in: None, parts: None }
    }

    /// The same with its problem, if that has been built before.
    #[must_use]
    pub fn with_problem(self, built: BuiltProblem) -> Self {
        Self { built: Some(built), ..self }
    }

    /// The same with names of files that may be written in addition to the usual ones.
    #[must_use]
    pub fn with_files(self, extra: Vec<String>) -> Self {
        Self { extra, ..self }
    }

    /// The same with an earlier beginning of the work, for its time in reports.
    #[must_use]
    pub fn since(self, began: Instant) -> Self {
        Self { began, ..self }
    }

    /// The same for this kind of work: it does not continue work of another kind.
    #[must_use]
    pub(crate) fn for_work(self, work: FolderWork) -> Self {
        Self { work, ..self }
    }

    /// The same with this request outside of the experiment, in words: it does not continue work with another one.
    #[must_use]
    pub(crate) fn asking_for(self, further: impl Into<String>) -> Self {
        Self { further: Some(further.into()), ..self }
    }

    /// The same with the results of its parts, so that nothing is run.
    #[must_use]
    pub(crate) fn of_parts(self, parts: Gathered) -> Self {
        Self { parts: Some(parts), ..self }
    }

    /// Runs the experiment. In a folder it writes only checkpoints and the settings; [`Ran::write`] writes the results.
    ///
    /// # Errors
    /// On bad input (nothing is written), and when the machine fails. When it is cancelled and no folder has what was computed: with the
    /// kind [`Cancelled`](fedsa::error::ErrorKind::Cancelled).
    pub fn run(self, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome, Error> {
        self.experiment.settings()?;
        let resolved = resolve::table(&self.experiment, &Places::from_env(&self.settings.base))?;
        let config = resolve::text(&resolved);
        let data = self.built.as_ref().map(|built| built.data().to_string());
        let purpose = FolderPurpose { data, further: self.further.clone(), ..FolderPurpose::new(self.work, earlier::identity(&resolved)) };
        let target = self.settings.folder.as_ref();
        let parts = self.parts.as_ref().map(|parts| &parts.roots);
        let target = target.map(|(path, if_exists)| Target { path, if_exists: *if_exists, extra: &self.extra, purpose: &purpose, parts });
        let opened = match &target {
            None => None,
            Some(target) => match open(target, &self.experiment, &resolved, &config)? {
                Ok(opened) => Some(opened),
                Err(ended) => return Ok(RunOutcome::AlreadyDone(self.already_done(ended))),
            },
        };
        self.run_opened(opened, config, purpose, observer, cancel)
    }

    /// The results of an ended run in its folder, which are read on request.
    fn already_done(mut self, ended: EndedRun) -> AlreadyDone {
        self.ended_in = self.settings.folder.take().map(|(path, _)| path);
        AlreadyDone::new(ended, |observer, cancel| self.run(observer, cancel)?.results(observer, cancel))
    }

    fn run_opened(
        self,
        opened: Option<Opened>,
        config: String,
        purpose: FolderPurpose,
        observer: &dyn RunObserver,
        cancel: &Cancel,
    ) -> Result<RunOutcome, Error> {
        let Self { experiment, settings, built, extra, began, ended_in, parts, .. } = self;
        observer.stage(Stage::Building);
        let (opened, kept) = match opened {
            None => (None, ended_in.as_deref().map(Kept::of).transpose()?),
            Some(Opened { found, kept, is_same }) => (Some((found, kept.is_some(), is_same)), kept),
        };
        let Kept { roots, earlier, predictions } = kept.unwrap_or_default();
        let solving = |k: usize, n: usize| observer.computing(Computed::Roots, k, n);
        let control = PlanControl { cancel, solving: Some(&solving) };
        let plan = Arc::new(Plan::with_problem(experiment, &settings.base, settings.isa, &roots, built, &control)?);
        let unmeasured = checks::unmeasured(&plan, &settings.base)?;
        refuse_plan(&plan, settings.force, cancel)?;
        let earlier = match (parts, &settings.folder) {
            (Some(parts), Some((path, _))) => parts.of_plan(path, &plan)?,
            _ => earlier,
        };
        earlier.check(&plan)?;
        observer.stage(Stage::Planned(&plan));
        // From here on files are written.
        let is_same = opened.as_ref().is_some_and(|(.., is_same)| *is_same);
        let begin = |(found, keep, _): (Found, bool, bool)| {
            let folder = found.purposed(purpose.clone()).claim(keep)?;
            begin(&folder, &config, &plan).inspect_err(|_| folder.abandon()).map(|()| folder)
        };
        let folder = opened.map(begin).transpose()?;
        observer.stage(Stage::Running);
        let worked = {
            let traced = traced::TracingObserver::new(observer, folder.as_ref(), &plan);
            let every = settings.checkpoint_every;
            execute(
                &plan,
                &RunControl { cancel, folder: folder.as_ref(), every, earlier: &earlier, observer: &traced, in_turn: settings.in_turn },
            )
        };
        observer.stage(Stage::Ended);
        let results = match worked? {
            Executed::Done(results) => results,
            Executed::Interrupted(left) => return ended::interrupted(left, folder.is_some()),
        };
        // For a large sweep they fill much of the memory.
        drop(earlier);
        observer.stage(Stage::Comparing);
        let has_folder = folder.is_some();
        let written = ran::Written { folder, extra, is_same, config, purpose };
        let count = results.cells.iter().map(Vec::len).sum();
        let comparing = ran::Comparing { unmeasured: &unmeasured, kept: predictions, observer, cancel };
        match Ran::new(plan, results, comparing, settings.quick, began, written) {
            Some(ran) => Ok(RunOutcome::Done(Box::new(ran))),
            None => ended::interrupted(Interrupted { ended: count, ..Interrupted::default() }, has_folder),
        }
    }
}

/// Refuses a plan that cannot run: a federation of machines runs its rounds, it needs too much memory, or it is known to be unstable.
///
/// # Errors
/// When it is refused, with the reason.
pub(crate) fn refuse_plan(plan: &Plan, force: bool, cancel: &Cancel) -> Result<(), Error> {
    if let Some(e) = plan.fields.iter().find(|of| of.field.facts().is_elsewhere()).and_then(|of| of.field.failure()) {
        return Err(plan.experiment.document.failure(e));
    }
    run_memory::refuse(plan).map_err(|e| plan.experiment.document.failure(e))?;
    stability::refuse_unstable(plan, force, cancel)
}

/// The results of an experiment that ran elsewhere, in `seconds`.
///
/// # Errors
/// When they are not results of this experiment.
pub(crate) fn of_results(experiment: Experiment, results: Results, seconds: f64) -> Result<Ran, Error> {
    let base = Path::new("");
    let resolved = resolve::table(&experiment, &Places::from_env(base))?;
    let config = resolve::text(&resolved);
    let purpose = FolderPurpose::new(FolderWork::Run, earlier::identity(&resolved));
    let plan = Arc::new(Plan::new(experiment, base, Isa::best(), &HashMap::new())?);
    let unmeasured = checks::unmeasured(&plan, base)?;
    let written = ran::Written { folder: None, extra: Vec::new(), is_same: false, config, purpose };
    let cancel = Cancel::never();
    let comparing = ran::Comparing { unmeasured: &unmeasured, kept: KeptPredictions::default(), observer: &Unobserved, cancel: &cancel };
    let mut ran = Ran::new(plan, results, comparing, false, Instant::now(), written).expect("nobody cancels it");
    ran.seconds = seconds;
    Ok(ran)
}

/// Checks that a folder may take a run, before anything is computed. Whether a run there is the same is not checked.
///
/// # Errors
/// When it may not: it is not empty, or there is nothing to resume.
pub fn check_folder(path: &Path, if_exists: IfExists) -> Result<(), Error> {
    let found = folder::look(path)?;
    found.refuse_own()?;
    match (if_exists, found.holds) {
        (IfExists::Resume, _) => earlier::is_run(&found, path),
        (_, Holds::Nothing) | (IfExists::Overwrite, _) => Ok(()),
        (IfExists::Refuse, _) => Err(is_taken(path, &found)),
    }
}

/// Inspects a folder for a run, and returns how it ended, if it is the same and finished.
fn open(target: &Target<'_>, experiment: &Experiment, resolved: &Table, config: &str) -> Result<Result<Opened, EndedRun>, Error> {
    let Target { path, if_exists, extra, purpose, parts } = target;
    let found = folder::look(path)?;
    found.refuse_own()?;
    let resume = *if_exists == IfExists::Resume;
    if parts.is_none() && found.has_parts() {
        refuse_parts(path, *if_exists)?;
    }
    match (if_exists, found.holds) {
        (_, Holds::Unfinished) if parts.is_some() => {}
        (IfExists::Resume, _) => earlier::may_resume(&found, path, purpose, resolved, config)?,
        (_, Holds::Nothing) | (IfExists::Overwrite, _) => {}
        (IfExists::Refuse, _) => return Err(is_taken(path, &found)),
    }
    let is_same = found.own(CONFIG).is_some_and(|ran| ran == config.as_bytes());
    // A missing output is written again.
    if resume && found.holds == Holds::Finished && is_same && !found.has_lost() {
        // The earlier run may have been killed after all files were written.
        found.tidy();
        return Ok(Err(EndedRun::of_summary(path)));
    }
    let usual = output::names(experiment);
    let outputs: Vec<&str> = usual.iter().chain(*extra).map(String::as_str).chain([CONFIG, folder::GROWING]).collect();
    found.refuse_foreign(&outputs)?;
    let kept = match parts {
        Some(roots) => Some(Kept { roots: (*roots).clone(), predictions: predictions::kept(path), ..Kept::default() }),
        None => resume.then(|| Kept::of(path)).transpose()?,
    };
    Ok(Ok(Opened { found, kept, is_same }))
}

/// Writes the first files of a run: its settings, and `theta*` of its problems.
fn begin(folder: &RunFolder, config: &str, plan: &Plan) -> Result<(), Error> {
    // An old summary does not belong to the new settings.
    folder.remove(|name| name == "summary.json");
    earlier::write_roots(folder, plan)?;
    folder.write(&[(CONFIG.to_string(), config.as_bytes().to_vec())])
}

/// Refuses a folder with parts of a sweep, unless they may be replaced.
fn refuse_parts(out: &Path, if_exists: IfExists) -> Result<(), Error> {
    let holds = format!("{} holds parts of a sweep", out.display());
    if folder::is_under_way(out) {
        let what = format!("{holds}, and a process runs one");
        return Err(Error::new(folder::OUT, what, "another folder").coded(ErrorCode::OutputBusy));
    }
    if if_exists == IfExists::Overwrite {
        return Ok(());
    }
    let help = "further parts, or their merge; another folder; or `overwrite` to replace them";
    Err(Error::new(folder::OUT, holds, help))
}

/// The error for a folder that is not empty.
pub(crate) fn is_taken(out: &Path, found: &Found) -> Error {
    let holds = found.text();
    let (what, help) = match &found.foreign {
        Some(name) => (
            format!("{} is not empty: it holds {holds}, such as `{name}`", out.display()),
            "another folder; or `overwrite`, which writes beside these files and does not change them",
        ),
        None => {
            (format!("{} holds {holds}", out.display()), "another folder, `resume` to go on with this run, or `overwrite` to replace it")
        }
    };
    Error::new(folder::OUT, what, help)
}
