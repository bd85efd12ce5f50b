//! An experiment that is run: from its settings to its results, which are compared with theory and drawn.
//!
//! [`run`] needs no files. A [`Job`] with a folder writes checkpoints there, and goes on from those of an earlier run (`earlier`).
//! Results are data ([`Ran`]); [`Ran::write`] makes files of them.

mod earlier;
mod predictions;
mod ran;
mod traced;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa_data::find::Places;
use toml::Table;

use crate::config::Experiment;
use crate::execute::{Earlier, Executed, Interrupted, RunControl, execute};
use crate::folder::{self, Found, Holds, RunFolder};
use crate::plan::{BuiltProblem, PlanControl};
use crate::predict::KeptPredictions;
use crate::{Computed, Plan, RunObserver, Stage, checks, output, resolve, run_memory, stability};
pub use earlier::{RESUME, roots};
pub use ran::{EndedRun, Ran};

/// The file with the settings of a run.
pub const CONFIG: &str = "config.toml";

/// How an experiment is run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunSettings {
    /// The folder of relative paths; the working directory by default.
    pub base: PathBuf,
    /// Whether the experiment has its quick settings, with which checks that fail are notes. False by default.
    pub quick: bool,
    /// Whether settings run that are known to be unstable. False by default.
    pub force: bool,
    /// The time between checkpoints of a run; 10 seconds by default.
    pub checkpoint_every: Duration,
    /// The instruction set; the best one of the machine by default.
    pub isa: Isa,
    /// The folder for checkpoints and files, and what happens where it holds a run. Without one, as by default, nothing is written, and
    /// a run that is cancelled is lost.
    pub folder: Option<(PathBuf, IfExists)>,
}

impl Default for RunSettings {
    fn default() -> Self {
        let checkpoint_every = Duration::from_secs(10);
        Self { base: PathBuf::new(), quick: false, force: false, checkpoint_every, isa: Isa::best(), folder: None }
    }
}

impl RunSettings {
    /// The same with another folder of relative paths.
    #[must_use]
    pub fn with_base(self, base: impl Into<PathBuf>) -> Self {
        Self { base: base.into(), ..self }
    }

    /// The same for an experiment with its quick settings, or without.
    #[must_use]
    pub fn with_quick(self, quick: bool) -> Self {
        Self { quick, ..self }
    }

    /// The same, which runs settings that are known to be unstable, or not.
    #[must_use]
    pub fn with_force(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// The same with another time between checkpoints.
    #[must_use]
    pub fn with_checkpoint_every(self, checkpoint_every: Duration) -> Self {
        Self { checkpoint_every, ..self }
    }

    /// The same in a folder, which is made where there is none.
    #[must_use]
    pub fn in_folder(self, path: impl Into<PathBuf>, if_exists: IfExists) -> Self {
        Self { folder: Some((path.into(), if_exists)), ..self }
    }
}

/// What happens where a folder holds a run already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// The folder is refused.
    #[default]
    Refuse,
    /// That run goes on, with as many rounds and seeds as before or with more.
    Resume,
    /// That run is replaced. Files that fedsa did not write are kept.
    Overwrite,
}

/// How an experiment ended, or what is made of one.
pub enum RunOutcome<T = Ran> {
    /// All runs ended.
    Done(Box<T>),
    /// The folder held a finished run of the same settings, which was to go on.
    AlreadyDone(EndedRun),
    /// The runs were cancelled, or their comparison with theory.
    Interrupted(Interrupted),
}

impl<T> RunOutcome<T> {
    /// The same with what `made` makes of the results, where there are any.
    ///
    /// # Errors
    /// Those of `made`.
    pub fn try_map<U>(self, made: impl FnOnce(T) -> Result<U, Error>) -> Result<RunOutcome<U>, Error> {
        Ok(match self {
            Self::Done(results) => RunOutcome::Done(Box::new(made(*results)?)),
            Self::AlreadyDone(ended) => RunOutcome::AlreadyDone(ended),
            Self::Interrupted(left) => RunOutcome::Interrupted(left),
        })
    }

    /// The results of a call without a folder; `what` was called.
    ///
    /// # Errors
    /// When it was cancelled.
    pub(crate) fn results(self, what: &str) -> Result<T, Error> {
        match self {
            Self::Done(results) => Ok(*results),
            Self::AlreadyDone(_) | Self::Interrupted(_) => {
                Err(Error::cancelled(format!("{what} was cancelled"), "the same call again, or a folder from which it can go on"))
            }
        }
    }
}

/// Runs an experiment, without a folder: nothing is written, and a run that is cancelled is lost.
///
/// # Errors
/// When a setting or file cannot be used, the runs do not fit into memory, or settings are known to be unstable.
pub fn run(experiment: Experiment, settings: &RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome, Error> {
    Job::new(experiment, settings.clone()).run(observer, cancel)
}

/// An experiment with what it is run with.
pub struct Job {
    experiment: Experiment,
    settings: RunSettings,
    built: Option<BuiltProblem>,
    /// Names of files in addition to the usual ones.
    extra: Vec<String>,
    began: Instant,
}

/// Where files are written.
struct Target<'a> {
    path: &'a Path,
    if_exists: IfExists,
    extra: &'a [String],
}

/// The folder of a run, looked at and not taken yet.
struct Opened {
    found: Found,
    /// `theta*` of its problems by fingerprint, as an earlier run computed them.
    roots: HashMap<String, Vec<f64>>,
    earlier: Earlier,
    /// Predictions that it computed before it was interrupted.
    kept: KeptPredictions,
    /// Whether files of an earlier run stay.
    keep: bool,
}

impl Job {
    /// An experiment and how it is run.
    pub fn new(experiment: Experiment, settings: RunSettings) -> Self {
        Self { experiment, settings, built: None, extra: Vec::new(), began: Instant::now() }
    }

    /// The same with its problem, if that has been built before.
    #[must_use]
    pub fn with_problem(self, built: Option<BuiltProblem>) -> Self {
        Self { built, ..self }
    }

    /// The same, in whose folder files with these names may be written in addition to the usual ones.
    #[must_use]
    pub fn with_files(self, extra: Vec<String>) -> Self {
        Self { extra, ..self }
    }

    /// The same, on which the work began earlier. Reports say how long it took.
    #[must_use]
    pub fn since(self, began: Instant) -> Self {
        Self { began, ..self }
    }

    /// Runs the experiment. Of a folder, only checkpoints and the settings are written ([`Ran::write`]).
    ///
    /// # Errors
    /// On bad input (nothing is written), and when the machine fails.
    pub fn run(self, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome, Error> {
        let Self { experiment, settings, built, extra, began } = self;
        experiment.settings()?;
        let resolved = resolve::table(&experiment, &Places::from_env(&settings.base))?;
        let config = resolve::text(&resolved);
        let target = settings.folder.as_ref().map(|(path, if_exists)| Target { path, if_exists: *if_exists, extra: &extra });
        let opened = match &target {
            None => None,
            Some(target) => match open(target, &experiment, &resolved, &config)? {
                Ok(opened) => Some(opened),
                Err(ended) => return Ok(RunOutcome::AlreadyDone(ended)),
            },
        };
        observer.stage(Stage::Building);
        let none = HashMap::new();
        let roots = opened.as_ref().map_or(&none, |opened| &opened.roots);
        let solving = |k: usize, n: usize| observer.computing(Computed::Roots, k, n);
        let control = PlanControl { cancel, solving: Some(&solving) };
        let plan = Arc::new(Plan::with_problem(experiment, &settings.base, settings.isa, roots, built, &control)?);
        let unmeasured = checks::unmeasured(&plan, &settings.base)?;
        run_memory::refuse(&plan).map_err(|e| plan.experiment.document.failure(e))?;
        stability::refuse_unstable(&plan, settings.force, cancel)?;
        let earlier = opened.as_ref().map(|opened| &opened.earlier);
        earlier.map_or(Ok(()), |earlier| earlier.check(&plan))?;
        observer.stage(Stage::Planned(&plan));
        // From here on things are written.
        let (folder, earlier, kept) = match opened {
            None => Default::default(),
            Some(Opened { found, keep, earlier, kept, .. }) => {
                let folder = found.claim(keep)?;
                begin(&folder, &config, &plan).inspect_err(|_| folder.abandon())?;
                (Some(folder), earlier, kept)
            }
        };
        observer.stage(Stage::Running);
        let worked = {
            let traced = traced::TracingObserver::new(observer, folder.as_ref(), &plan);
            let every = settings.checkpoint_every;
            execute(&plan, &RunControl { cancel, folder: folder.as_ref(), every, earlier: &earlier, observer: &traced })
        };
        observer.stage(Stage::Ended);
        let results = match worked? {
            Executed::Done(results) => results,
            Executed::Interrupted(left) => return Ok(RunOutcome::Interrupted(left)),
        };
        observer.stage(Stage::Comparing);
        let written = ran::Written { folder, extra, config };
        let ended = results.cells.iter().map(Vec::len).sum();
        let comparing = ran::Comparing { unmeasured: &unmeasured, kept, observer, cancel };
        Ok(match Ran::new(plan, results, comparing, settings.quick, began, written) {
            Some(ran) => RunOutcome::Done(Box::new(ran)),
            None => RunOutcome::Interrupted(Interrupted { ended, ..Interrupted::default() }),
        })
    }
}

/// Looks at a folder for a run; how its run ended, if that is the same and finished.
fn open(target: &Target<'_>, experiment: &Experiment, resolved: &Table, config: &str) -> Result<Result<Opened, EndedRun>, Error> {
    let Target { path, if_exists, extra } = target;
    let found = folder::look(path)?;
    found.refuse_own()?;
    let resume = *if_exists == IfExists::Resume;
    match (if_exists, found.holds) {
        (IfExists::Resume, _) => earlier::may_resume(&found, path, resolved, config)?,
        (_, Holds::Nothing) | (IfExists::Overwrite, _) => {}
        (IfExists::Refuse, holds) => return Err(is_taken(path, holds, found.foreign.as_deref())),
    }
    let is_same = found.own(CONFIG).is_some_and(|ran| ran == config.as_bytes());
    if resume && found.holds == Holds::Finished && is_same {
        // The earlier run may have been killed after all files were written.
        found.tidy();
        return Ok(Err(EndedRun::of_summary(path)));
    }
    let usual = output::names(experiment);
    let outputs: Vec<&str> = usual.iter().chain(*extra).map(String::as_str).chain([CONFIG, folder::GROWING]).collect();
    found.refuse_foreign(&outputs)?;
    let (roots, earlier, kept) = if resume { (roots(path)?, Earlier::of(path)?, predictions::kept(path)) } else { Default::default() };
    Ok(Ok(Opened { found, roots, earlier, kept, keep: resume }))
}

/// Writes the first files of a run: its settings, and `theta*` of its problems.
fn begin(folder: &RunFolder, config: &str, plan: &Plan) -> Result<(), Error> {
    // An old summary does not belong to the new settings.
    folder.remove("summary.json");
    earlier::write_roots(folder, plan)?;
    folder.write(&[(CONFIG.to_string(), config.as_bytes().to_vec())])
}

/// The error for a folder that is not empty.
fn is_taken(out: &Path, holds: Holds, foreign: Option<&str>) -> Error {
    let (what, help) = match foreign {
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
