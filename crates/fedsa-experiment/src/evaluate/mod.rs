//! Policy evaluation: from logged transitions to the weights of a value function.
//!
//! [`evaluate`] does everything. [`Evaluation::new`] reads the logs and determines features and method; [`Evaluation::of_logs`] takes logs
//! in memory; [`Evaluation::run`] computes the weights. [`Evaluated`] holds the results, and [`Evaluated::write`] writes files.

pub mod comparison;
mod evaluated;
mod expectation;
mod experiment;
mod feature_choice;
mod fewer_features;
mod logs_read;
mod notes;
pub(crate) mod pictures;
pub(crate) mod policy_value;
mod possible;
mod settings;

use std::time::Instant;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::kernel::Isa;
use fedsa_data::find::Places;
use fedsa_data::logs::MemoryLog;
use fedsa_data::{DiskFiles, logs};
use fedsa_evaluate::default_ridge::default_ridge;
use fedsa_evaluate::policy_value::{MAX_FEATURES, PolicyValue, PolicyValueSettings};
use fedsa_problems::Files;
use fedsa_problems::features::{FeatureMap, FeatureSpec, SPARSE_ABOVE};
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::source::Inputs;
use fedsa_problems::logs::survey::Surveyed;
use toml::Value;

use crate::choose::{self, Choice, Demand};
use crate::config::{self, Experiment};
use crate::folder::{FolderWork, VALUE_PICTURES};
use crate::observer::{Computed, RunObserver};
use crate::plan::BuiltProblem;
use crate::run::{Job, RunOutcome, RunSettings};
use crate::{made, output};
pub(crate) use evaluated::NAMED;
pub use evaluated::{Evaluated, PictureWords};
pub use expectation::{Expectation, ExpectedCourse};
pub use experiment::ANDERSON_BASE;
use experiment::Method;
pub use feature_choice::{CANDIDATES, FeatureChoice, TriedFeatures};
pub use logs_read::LogsRead;
pub(crate) use notes::left_out;
pub use policy_value::PolicyDifference;
pub(crate) use policy_value::difference_json;
pub use settings::{AUTO, EvaluateSettings};

/// Reads the logs and computes the weights of their value function, without writing files.
///
/// # Errors
/// When a setting or a file cannot be used, the memory does not suffice, or it is cancelled.
pub fn evaluate(settings: &EvaluateSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<Evaluated, Error> {
    Evaluation::new(settings, cancel)?.run(RunSettings::default(), observer, cancel)?.results(observer, cancel)
}

/// Logs with their features.
#[non_exhaustive]
pub struct Data {
    /// The summary of a pass over the logs, and the held-out episodes.
    pub logs: Surveyed,
    /// The settings of the problem.
    pub settings: Logs,
    /// The episodes of each agent, without held-out ones.
    pub episodes: Vec<EpisodeSummary>,
    /// The features.
    pub map: FeatureMap,
    /// The number of transitions with each state column outside of its range, and clipped to its end.
    pub clipped: Vec<usize>,
    /// The choice of the features, if they were chosen.
    pub features: Option<FeatureChoice>,
    /// The positions of the columns of the picture of values, if they were named.
    pub value_columns: Vec<usize>,
    /// The settings of the policy's value.
    pub policy_value: PolicyValueSettings,
    /// The comparison with another policy, if there are logs of one.
    pub against: Option<PolicyDifference>,
    /// The discount factor with which the evaluated policy was found, if it is in a file.
    pub found_with: Option<f64>,
    /// The logs with unclipped ratios, if some are clipped.
    unclipped: Option<Surveyed>,
}

impl Data {
    /// Why importance ratios prevent a value, if they are used.
    fn wrong_ratios(&self) -> Option<String> {
        let wrong = if self.settings.ratios { self.logs.wrong_ratios() } else { Vec::new() };
        (!wrong.is_empty()).then(|| notes::no_value(&wrong))
    }

    /// The value of the policy; `None` also if rows are not in the order of time, because the starts of episodes are then unknown.
    fn policy_value(&self) -> Result<Option<PolicyValue>> {
        if LogsRead::of(&self.logs, &self.episodes).is_shuffled() {
            return Ok(None);
        }
        let of = |logs| PolicyValue::of(logs, &self.map, self.settings.rule(), &self.policy_value);
        let Some(mut value) = of(&self.logs)? else { return Ok(None) };
        if let Some(logs) = &self.unclipped {
            value.unclipped = of(logs)?.map(|unclipped| unclipped.importance.table.all);
        }
        Ok(Some(value))
    }
}

/// An evaluation with its logs read and its method determined.
#[non_exhaustive]
pub struct Evaluation {
    /// The logs.
    pub data: Data,
    /// The choice of the method, unless the settings name one or samples are drawn.
    pub choice: Option<Choice>,
    experiment: Experiment,
    built: BuiltProblem,
    began: Instant,
}

impl Evaluation {
    /// Reads the logs, and chooses features and method if the settings name none.
    ///
    /// # Errors
    /// When a setting or file cannot be used, or the problem does not fit into memory; when it is cancelled.
    pub fn new(settings: &EvaluateSettings, cancel: &Cancel) -> Result<Self, Error> {
        let files = DiskFiles::new(Places::from_env("")).with_cancel(cancel);
        // Logged features are the default if every log has some. Files that cannot be opened are refused below.
        let has_features = || logs::has_features(&settings.logs, &files.places, &settings.form()).unwrap_or(false);
        Self::with(settings, &files, settings.logs.len(), has_features)
    }

    /// Takes logs in memory, one per agent, and chooses features and method if the settings name none. Columns whose names begin with
    /// `phi_` are the logs' own features. The experiment names no files: its settings can be read again, but not run without the logs.
    ///
    /// # Errors
    /// As [`Evaluation::new`]; when the settings also name files (key `logs`).
    pub fn of_logs<L: Into<MemoryLog>>(settings: &EvaluateSettings, logs: Vec<L>, cancel: &Cancel) -> Result<Self, Error> {
        if !settings.logs.is_empty() {
            return Err(Error::new("logs", "files, and logs in memory", "one of them"));
        }
        if logs.is_empty() {
            return Err(Error::new("logs", "no logs", "the transitions of at least one agent"));
        }
        let logs: Vec<MemoryLog> = logs.into_iter().map(Into::into).collect();
        let (prefix, _) = Inputs::Features.prefixes();
        let has_features = logs.iter().all(|one| one.log.columns.iter().all(|name| name.starts_with(prefix)));
        let count = logs.len();
        let files = DiskFiles::new(Places::from_env("")).with_logs(logs).with_cancel(cancel);
        Self::with(settings, &files, count, || has_features)
    }

    /// As [`Evaluation::new`], with logs from `files`; `count` is the number of logs as far as known.
    fn with(settings: &EvaluateSettings, files: &DiskFiles, count: usize, has_features: impl FnOnce() -> bool) -> Result<Self, Error> {
        let began = Instant::now();
        let (settings, found_with) = &of_policy(settings, files)?;
        let is_auto = settings.named_method().is_none();
        // Settings are checked before the logs are read. This includes settings of local steps, even if the chosen method may have none.
        let unread = settings.experiment()?;
        unread.settings()?;
        let before = Method::before(settings);
        let (named, to_choose) = (settings.named_features()?, settings.features_to_choose());
        let logged = settings.features.is_none() && has_features();
        let unread = if logged { settings.experiment_with(&before, &FeatureSpec::Columns {}, count)? } else { unread };
        if is_auto {
            settings.experiment_with(&Method::with_steps(settings), &FeatureSpec::Identity { bias: false }, count)?.settings()?;
        }
        let [point] = &unread.points[..] else {
            return Err(Error::new("changes", "a sweep", "one evaluation; sweeps belong in an experiment file"));
        };
        if is_auto && point.sections().method(0).is_some_and(|method| method.get("uplink").is_some()) {
            let what = "it is to be chosen, and costs over links that alter or lose messages are not compared";
            return Err(Error::new("method", what, "lstd, fedhsa or another one that works over the link"));
        }
        let of = |experiment: &Experiment| -> Result<Logs> { config::read(Value::Table(made::problem_of(experiment).1)) };
        let logs = of(&unread).and_then(|of| of.survey(files));
        let logs = logs.map_err(|e| unread.failure_at(e.inside("problem"), point))?;
        let chosen = to_choose.map(|most| {
            let of = of(&unread)?;
            FeatureChoice::new(&of, of.survey(files)?, most, files.cancel())
        });
        let chosen = chosen.transpose().map_err(|e| unread.failure_at(e.inside("problem"), point))?;
        let agents = logs.facts.len();
        let default = if logged { FeatureSpec::Columns {} } else { default_features(&logs) };
        let features = chosen.as_ref().map(|choice| &choice.chosen).or(named.as_ref()).unwrap_or(&default).clone();
        let first = settings.experiment_with(&before, &features, agents)?;
        let settled = of(&first).and_then(|of| Ok((of.map(&logs)?, of)));
        let (map, of_logs) = settled.map_err(|e| first.failure_at(e.inside("problem"), &first.points[0]))?;
        let episodes = logs.episodes(of_logs.gamma).map_err(|e| first.failure_at(e.inside("problem"), &first.points[0]))?;
        let ridge = settings.ridge.unwrap_or_else(|| default_ridge(&of_logs, &logs, &map, &episodes));
        let (is_relative, settings) = (settings.ridge.is_none(), &EvaluateSettings { ridge: Some(ridge), ..settings.clone() });
        let first = settings.experiment_with(&before, &features, agents)?;
        let of_logs = of(&first)?;
        let value_columns = pictures::named_columns(&settings.value_columns, map.columns())?;
        check_held_out(&logs, &map)?;
        let against = against(settings, &features, &files.places, files.cancel())?;
        let unclipped = of_logs.max_importance_ratio.map(|_| of_logs.clone().with_max_importance_ratio(None).survey(files)).transpose();
        let unclipped = unclipped.map_err(|e| first.failure_at(e.inside("problem"), &first.points[0]))?;
        let policy_value = PolicyValueSettings::default().with_level(settings.level).with_seed(settings.seed);
        let policy_value = policy_value.with_ridge(of_logs.ridge).with_is_relative(is_relative);
        let clipped = logs.clipped(&map).map_err(|e| first.failure_at(e.inside("problem"), &first.points[0]))?;
        let (features, found_with) = (chosen, *found_with);
        let data =
            Data { logs, settings: of_logs, episodes, map, clipped, features, value_columns, policy_value, against, found_with, unclipped };
        let built = BuiltProblem::new(&first, files, Isa::best());
        let built = built.map_err(|e| fewer_features::with_proposal(e, &data))?;
        let prepared = Self { data, choice: None, experiment: first, built, began };
        if is_auto && settings.sampling == "mean" { prepared.with_choice(settings, files.cancel()) } else { Ok(prepared) }
    }

    /// The same with a chosen method. The choice builds the problem, which the run then uses.
    fn with_choice(self, settings: &EvaluateSettings, cancel: &Cancel) -> Result<Self, Error> {
        let first = &self.experiment;
        let demand = Demand::new(settings.step_size(), settings.local_steps() as usize)
            .with_tol(settings.tol)
            .with_matrices(!settings.keep_matrices);
        let choice = choose::choose(self.built.shared_field(), &demand, cancel).map_err(|e| first.failure_at(e, &first.points[0]))?;
        let (features, agents) = (self.data.map.spec(), self.data.logs.facts.len());
        let experiment = settings.experiment_with(&Method::chosen(&choice), features, agents)?;
        Ok(Self { choice: Some(choice), experiment, ..self })
    }

    /// The time at which reading of the logs began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The value of the policy, without a run.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn policy_value(&self) -> Result<Option<PolicyValue>> {
        self.data.policy_value()
    }

    /// The experiment of the evaluation.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Computes the weights; with a folder, for the files of [`Evaluated::write`].
    ///
    /// # Errors
    /// As [`Job::run`].
    pub fn run(self, run: RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome<Evaluated>, Error> {
        let Self { data, choice, experiment, built, began } = self;
        let mut names = evaluated::NAMES.map(String::from).to_vec();
        names.extend(VALUE_PICTURES.iter().flat_map(|stem| output::picture_names(&experiment, stem)));
        let job = Job::new(experiment, run).with_problem(built).with_files(names).since(began).for_work(FolderWork::Evaluation);
        let ran = job.run(observer, cancel).map_err(|e| fewer_features::with_proposal(e, &data))?;
        if matches!(ran, RunOutcome::Done(_)) {
            observer.computing(Computed::PolicyValue, 1, 1);
        }
        ran.try_map(move |ran| Evaluated::new(ran, data, choice))
    }
}

/// The settings for the evaluation of a policy from a file, and the discount factor with which it was found. Its logs most often have the columns
/// of those that it was found from.
fn of_policy(settings: &EvaluateSettings, files: &DiskFiles) -> Result<(EvaluateSettings, Option<f64>)> {
    let mut settings = settings.clone();
    let Some(path) = &settings.policy else { return Ok((settings, None)) };
    let policy = files.policy(path)?;
    if settings.columns.is_empty() {
        settings.columns.clone_from(policy.file_columns());
    }
    Ok((settings, policy.gamma()))
}

/// Refuses held-out episodes if there are too many features to compute their errors.
fn check_held_out(logs: &Surveyed, map: &FeatureMap) -> Result<()> {
    if map.sparse().is_some() && !logs.held.is_empty() {
        let what = format!("held-out episodes with {} features", map.len());
        return Err(Error::new("holdout", what, format!("at most {SPARSE_ABOVE} tiles, whose projections are computed")));
    }
    Ok(())
}

/// The value of the policy of the other logs, by the same features and settings. Ranges and statistics of features come from the other
/// logs, unless they are given.
fn against(settings: &EvaluateSettings, features: &FeatureSpec, places: &Places, cancel: &Cancel) -> Result<Option<PolicyDifference>> {
    if settings.against.is_empty() {
        return Ok(None);
    }
    // These settings fit the evaluated logs, so that the other logs are at fault.
    let named = |e: Error| match e.kind() {
        ErrorKind::Cancelled => e,
        _ => Error::new("against", e.what.clone(), e.help.clone()).coded(e.code()),
    };
    // A file may have several names.
    let files = |sources: &[String]| places.distinct(sources, &logs::EXTENSIONS);
    let is_same = !files(&settings.logs).is_disjoint(&files(&settings.against));
    if is_same || settings.against.iter().any(|logs| settings.logs.contains(logs)) {
        return Err(Error::new("against", "logs that are evaluated themselves", "logs of another policy, which are independent of these"));
    }
    let other = EvaluateSettings {
        logs: settings.against.clone(),
        against: Vec::new(),
        policy: None,
        features: Some(features.to_string()),
        max_features: None,
        holdout: None,
        method: settings.named_method().unwrap_or("lstd").into(),
        value_columns: Vec::new(),
        ..settings.clone()
    };
    let evaluation = Evaluation::new(&other, cancel).map_err(named)?;
    let value = evaluation.policy_value().map_err(named)?.ok_or_else(|| match evaluation.data.wrong_ratios() {
        Some(why) => Error::data("against", why, "logs with the ratios of their policies"),
        None => {
            let help = format!("logs with the start of an episode, and at most {MAX_FEATURES} features");
            Error::data("against", "the value of their policy is not known", help)
        }
    })?;
    Ok(Some(PolicyDifference { against: other.logs, other: value }))
}

/// The default features: a weight for each value of a single column of few whole numbers, which are states of a finite environment;
/// otherwise [`smooth_features`].
pub(crate) fn default_features(logs: &Surveyed) -> FeatureSpec {
    /// The largest number of such values.
    const MOST: f64 = 64.0;
    match logs.whole_ranges().as_deref() {
        Some([(lo, hi)]) if hi - lo < MOST && lo < hi => FeatureSpec::OneHot {},
        _ => smooth_features(logs.columns().len()),
    }
}

/// As many features of continuous columns as can be evaluated quickly.
fn smooth_features(columns: usize) -> FeatureSpec {
    let fourier = [3, 2, 1].map(|order| (FeatureSpec::Fourier { order, scaled: false }, 64));
    let all = fourier.into_iter().chain([(FeatureSpec::Polynomial { order: 2 }, 100)]);
    let small = all.into_iter().find(|(spec, most)| spec.count(columns).is_some_and(|d| d <= *most));
    small.map_or(FeatureSpec::Polynomial { order: 1 }, |(spec, _)| spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_features_are_few() {
        let by_columns: Vec<String> = (1..=14).map(|k| smooth_features(k).to_string()).collect();
        assert_eq!(by_columns[..6], ["fourier:3", "fourier:3", "fourier:3", "fourier:1", "fourier:1", "fourier:1"]);
        assert!(by_columns[6..12].iter().all(|spec| spec == "polynomial:2"), "{by_columns:?}");
        assert!(by_columns[12..].iter().all(|spec| spec == "polynomial:1"), "{by_columns:?}");
        assert!((1..=60).all(|k| smooth_features(k).count(k).is_some_and(|d| d <= 100)));
    }
}
