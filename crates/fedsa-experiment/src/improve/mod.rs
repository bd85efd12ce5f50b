//! Policy improvement: from logged transitions with actions to a policy that chooses better ones.
//!
//! [`improve`] does everything. [`PolicySearch::new`] reads the logs and determines features and ridge; [`PolicySearch::of_logs`] takes
//! logs in memory; [`PolicySearch::run`] finds the policy. [`Improved`] holds the policy with its value on held-out episodes.

mod experiment;
mod improved;
mod notes;
mod pictures;
mod ridge;
mod settings;
mod tables;

use std::time::Instant;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::Problem as _;
use fedsa::problem::policy_systems::PolicySystems as _;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_data::logs::MemoryLog;
use fedsa_evaluate::policy_value::PolicyValueSettings;
use fedsa_evaluate::policy_value::improved::ImprovedValue;
use fedsa_problems::Files as _;
use fedsa_problems::control::action_values::ActionValues;
use fedsa_problems::control::improvement::{Improvement, Improving};
use fedsa_problems::control::pessimism::Caution;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::survey::Surveyed;
use toml::Value;

use crate::config::{self, Experiment};
use crate::evaluate::{LogsRead, default_features};
use crate::folder::{FolderWork, POLICY_PICTURES};
use crate::made;
use crate::memory;
use crate::observer::{Computed, RunObserver};
use crate::output;
use crate::plan::BuiltProblem;
use crate::run::{Job, RunOutcome, RunSettings};
pub use improved::{Improved, POLICY};
pub use notes::value_in_words;
pub use ridge::{RidgeChoice, RidgeReason, TriedRidge};
pub use settings::{ImproveMethod, ImproveSettings};
pub(crate) use tables::ending_name;

/// Reads the logs and finds a policy, without writing files.
///
/// # Errors
/// When a setting or a file cannot be used, the memory does not suffice, or it is cancelled.
pub fn improve(settings: &ImproveSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<Improved, Error> {
    PolicySearch::new(settings, cancel)?.run(RunSettings::default(), observer, cancel)?.results(observer, cancel)
}

/// Logs with their features.
#[non_exhaustive]
pub struct ImproveData {
    /// The summary of a pass over the logs, and the held-out episodes.
    pub logs: Surveyed,
    /// What the logs hold, without held-out episodes.
    pub read: LogsRead,
    /// The settings of the problem.
    pub settings: Improvement,
    /// The features of states.
    pub map: FeatureMap,
    /// The choice of the ridge, if it was chosen.
    pub ridge: Option<RidgeChoice>,
    /// Whether the settings give the ridge.
    pub is_ridge_given: bool,
    /// The probability with which the policy takes any action, in its value.
    pub soften: f64,
    value: PolicyValueSettings,
}

impl ImproveData {
    /// The value of the greedy policy of these weights on held-out episodes, beside that of the policy that acted; `None` without held-out
    /// episodes.
    fn value(&self, theta: &[f64], caution: Option<&Caution>) -> Result<Option<ImprovedValue>> {
        if theta.iter().any(|x| !x.is_finite()) {
            return Ok(None);
        }
        let values = ActionValues::new(theta, self.map.len()).with_caution(caution);
        let policy = |state: &[f64], law: &mut [f64]| {
            let mut phi = vec![0.0; self.map.len()];
            self.map.eval(state, &mut phi);
            values.write_policy(&phi, self.soften, law);
        };
        ImprovedValue::of(&self.logs.held, &self.map, &policy, self.settings.gamma, &self.value)
    }
}

/// An improvement with its logs read.
#[non_exhaustive]
pub struct PolicySearch {
    /// The logs.
    pub data: ImproveData,
    experiment: Experiment,
    built: BuiltProblem,
    improving: Improving,
    began: Instant,
}

impl PolicySearch {
    /// Reads the logs, and chooses the ridge unless it is given.
    ///
    /// # Errors
    /// When a setting or file cannot be used, or the problem does not fit into memory; when it is cancelled.
    pub fn new(settings: &ImproveSettings, cancel: &Cancel) -> Result<Self, Error> {
        let files = DiskFiles::new(Places::from_env("")).with_cancel(cancel);
        Self::with(settings, &files, settings.logs.len())
    }

    /// Takes logs in memory, one per agent.
    ///
    /// # Errors
    /// As [`PolicySearch::new`]; when the settings also name files (key `logs`).
    pub fn of_logs<L: Into<MemoryLog>>(settings: &ImproveSettings, logs: Vec<L>, cancel: &Cancel) -> Result<Self, Error> {
        if !settings.logs.is_empty() {
            return Err(Error::new("logs", "files, and logs in memory", "one of them"));
        }
        if logs.is_empty() {
            return Err(Error::new("logs", "no logs", "the transitions of at least one agent"));
        }
        let count = logs.len();
        let files = DiskFiles::new(Places::from_env("")).with_logs(logs.into_iter().map(Into::into).collect()).with_cancel(cancel);
        Self::with(settings, &files, count)
    }

    fn with(settings: &ImproveSettings, files: &DiskFiles, count: usize) -> Result<Self, Error> {
        let began = Instant::now();
        let named = settings.named_features()?;
        let unread = settings.experiment()?;
        unread.settings()?;
        let [point] = &unread.points[..] else {
            return Err(Error::new("changes", "a sweep", "one improvement; sweeps belong in an experiment file"));
        };
        let of = |experiment: &Experiment| -> Result<Improvement> { config::read(Value::Table(made::problem_of(experiment).1)) };
        let failed = |experiment: &Experiment, e: Error| experiment.failure_at(e.inside("problem"), &experiment.points[0]);
        let logs = of(&unread).and_then(|of| of.survey(files));
        let logs = logs.map_err(|e| unread.failure_at(e.inside("problem"), point))?;
        let features = named.unwrap_or_else(|| default_features(&logs));
        let agents = count.max(logs.facts.len());
        let first = settings.experiment_with(&features, settings.ridge.unwrap_or(0.0), agents)?;
        let read = of(&first).and_then(|of| {
            let map = of.map(&logs)?;
            let memory = of.memory_of(&logs, &map, rayon::current_num_threads())?;
            memory::problems(vec![Ok(memory.clone())], 0.0).map_err(|(_, e)| e)?;
            let improving = of.agents(&logs, &map)?;
            improving.check_actions(&of.actions)?;
            let read = LogsRead::of(&logs, &logs.episodes(of.gamma)?);
            Ok((of, map, memory, improving, read))
        });
        let (of_logs, map, memory, mut improving, read) = read.map_err(|e| failed(&first, e))?;
        let value = PolicyValueSettings::default().with_level(settings.level).with_seed(settings.seed);
        // Changes of the experiment may give a ridge too.
        let is_ridge_given = settings.ridge.is_some() || of_logs.ridge != 0.0;
        let mut data = ImproveData { logs, read, settings: of_logs, map, ridge: None, is_ridge_given, soften: settings.soften, value };
        if !is_ridge_given && data.logs.held.iter().any(|log| !log.is_empty()) {
            data.ridge = Some(RidgeChoice::new(&mut improving, &data, settings.method, files.cancel())?);
        }
        let usual = || if is_ridge_given { data.settings.ridge } else { ridge::fallback(&improving) };
        let ridge = data.ridge.as_ref().map_or_else(usual, |choice| choice.chosen);
        let experiment = settings.experiment_with(&features, ridge, data.logs.facts.len())?;
        data.settings = of(&experiment)?;
        improving.set_ridge(data.settings.ridge, data.settings.pessimism)?;
        let field = |sampling| data.settings.field_of(improving.clone(), sampling, Isa::best());
        let built = BuiltProblem::of_data(&experiment, files, Ok(memory), field)?;
        Ok(Self { data, experiment, built, improving, began })
    }

    /// The time at which reading of the logs began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The norm of the mean operator at weights 0, of which `tol` is a multiple.
    pub fn residual_at_zero(&self) -> f64 {
        let d = self.improving.dim();
        let (mut mean, mut own) = (vec![0.0; d], vec![0.0; d]);
        for (c, p) in self.improving.weights().iter().enumerate() {
            self.improving.operator(c, &vec![0.0; d], &mut own);
            linalg::add_scaled(&mut mean, *p, &own);
        }
        linalg::norm(&mean)
    }

    /// The experiment of the improvement.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Finds the policy; with a folder, for the files of [`Improved::write`].
    ///
    /// # Errors
    /// As [`Job::run`].
    pub fn run(self, run: RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome<Improved>, Error> {
        let Self { data, experiment, built, improving, began } = self;
        let mut names = vec![POLICY.to_string()];
        names.extend(POLICY_PICTURES.iter().flat_map(|stem| output::picture_names(&experiment, stem)));
        // What the experiment does not contain.
        let further = format!("soften {}, level {}", data.soften, data.value.level);
        let job = Job::new(experiment, run).with_problem(built).with_files(names).since(began).for_work(FolderWork::Improvement);
        let job = job.asking_for(further);
        let ran = job.run(observer, cancel)?;
        if matches!(ran, RunOutcome::Done(_)) {
            observer.computing(Computed::PolicyValue, 1, 1);
        }
        let cancel = cancel.clone();
        ran.try_map(move |ran| Improved::new(ran, data, &improving, &cancel))
    }
}
