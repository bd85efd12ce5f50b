//! Fits: from rows with targets to the weights of a regression or classification model.
//!
//! [`fit`] does everything. [`Fit::new`] reads the data of the settings; [`Fit::of_sets`] takes data in memory; [`Fit::run`] computes the
//! weights. [`Fitted`] holds the results, and [`Fitted::write`] writes files.

pub(crate) mod described;
mod experiment;
mod fitted;
pub(crate) mod forest;
pub(crate) mod inferred;
mod notes;
mod settings;

use std::time::Instant;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, quoted};
use fedsa::kernel::Isa;
use fedsa::note::Note;
use fedsa::problem::root::MAX_DIM;
use fedsa_data::find::Places;
use fedsa_data::{DiskFiles, datasets};
use fedsa_evaluate::inference;
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::memory::MemoryEstimate;
use fedsa_problems::rows::dataset::{Columns, Dataset};
use fedsa_problems::rows::preparation::{AgentWeights, Prepared};
use fedsa_problems::rows::regression::{GeneralisedLinear, LeastSquares, Logistic};
use toml::Value;

use crate::choose::{LossChoice, LossFacts, choose_for_losses};
use crate::config::{self, Experiment};
use crate::folder::{COEFFICIENTS, FolderWork};
use crate::made;
use crate::numbers;
use crate::observer::RunObserver;
use crate::output;
use crate::plan::BuiltProblem;
use crate::run::{Job, RunOutcome, RunSettings};
pub use fitted::{Fitted, MethodSpending};
pub(crate) use fitted::{model, quality_json, settle};
pub use settings::{AGENTS, AUTO, FitSettings, LOCAL_STEPS, Model};

/// Reads the data of the settings and fits a model, without writing files.
///
/// # Errors
/// When a setting or a file cannot be used, the memory does not suffice, or it is cancelled.
pub fn fit(settings: &FitSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<Fitted, Error> {
    Fit::new(settings, cancel)?.run(RunSettings::default(), observer, cancel)?.results(observer, cancel)
}

/// A fit with its data read.
pub struct Fit {
    settings: FitSettings,
    experiment: Experiment,
    built: Built,
    choice: Option<LossChoice>,
    rows_read: Vec<(String, usize)>,
    /// The requested gradient norm, if rounding errors are larger.
    unreachable: Option<f64>,
    began: Instant,
}

impl Fit {
    /// Reads the data of the settings, and builds the problem.
    ///
    /// # Errors
    /// When a setting or file cannot be used, the losses have no minimum, or the problem does not fit into memory; when it is cancelled.
    pub fn new(settings: &FitSettings, cancel: &Cancel) -> Result<Self, Error> {
        let files = DiskFiles::new(Places::from_env("")).with_cancel(cancel);
        // Missing files are refused when they are read.
        let found = datasets::files(&settings.data, &Places::from_env(""));
        let settings = &resolved(settings, found.is_ok_and(|files| files.iter().all(|file| datasets::is_table(file))));
        Self::with(settings, |experiment| build(settings, experiment, &files, cancel))
            .map(|fit| Self { rows_read: files.rows_read(), ..fit })
    }

    /// Takes data sets in memory, one per agent for the partition `files`, and builds the problem. The experiment names no data: its
    /// settings can be read again, but not run without them.
    ///
    /// ```
    /// use fedsa::cancel::Cancel;
    /// use fedsa_problems::rows::dataset::{Columns, Dataset, Labels, Rows};
    /// use fedsa_experiment::fit::Fit;
    /// use fedsa_experiment::run::RunOutcome;
    /// use fedsa_experiment::{FitSettings, RunSettings, Unobserved};
    ///
    /// // y = 1 where x_0 > x_1, but for every tenth row.
    /// let x: Vec<f64> = (0..400).map(|i| f64::from(i * 37 % 101) / 50.0 - 1.0).collect();
    /// let y = x.chunks(2).enumerate().map(|(i, x)| f64::from(u8::from((x[0] > x[1]) != (i % 10 == 0)))).collect();
    /// let rows = Dataset {
    ///     name: "mine".into(),
    ///     rows: Rows::Dense { d: 2, values: x },
    ///     columns: Columns::Named(vec!["x_0".into(), "x_1".into()]),
    ///     targets: Some(Labels::Numbers(y)),
    ///     groups: None,
    ///     texts: Vec::new(),
    ///     notes: Vec::new(),
    /// };
    /// let settings = FitSettings { agents: Some(4), ridge: Some(1e-3), method: Some("newton".into()), ..FitSettings::default() };
    /// let RunOutcome::Done(fitted) = Fit::of_sets(&settings, vec![rows], &Cancel::never())?.run(RunSettings::default(), &Unobserved, &Cancel::never())? else {
    ///     unreachable!()
    /// };
    /// assert!(fitted.gradient_norm < 1e-9 && fitted.theta()[0] > 0.0 && fitted.theta()[1] < 0.0);
    /// # Ok::<(), fedsa::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Fit::new`]; when the settings also name data (key `data`).
    pub fn of_sets(settings: &FitSettings, sets: Vec<Dataset>, cancel: &Cancel) -> Result<Self, Error> {
        if !settings.data.is_empty() {
            return Err(Error::new("data", "files, and data sets in memory", "one of them"));
        }
        let settings = &resolved(settings, sets.iter().all(|set| matches!(set.columns, Columns::Named(_))));
        let files = DiskFiles::new(Places::from_env("")).with_datasets(sets).with_cancel(cancel);
        Self::with(settings, |experiment| build(settings, experiment, &files, cancel))
    }

    fn with(settings: &FitSettings, build: impl FnOnce(&Experiment) -> Result<Built, Error>) -> Result<Self, Error> {
        let began = Instant::now();
        let experiment = settings.experiment()?;
        experiment.settings()?;
        if experiment.points.len() != 1 {
            return Err(Error::new("changes", "a sweep", "one fit; sweeps belong in an experiment file"));
        }
        let built = build(&experiment)?;
        let mut settings = settings.clone();
        let unreachable = reachable(&mut settings, &built);
        let settings = &settings;
        let network = settings.network()?;
        let facts = || LossFacts::of(&built.prepared, built.problem.field().dim(), settings.model == Model::LeastSquares);
        let choice = settings.chooses().then(|| choose_for_losses(facts(), settings.objective, network, settings.tol)).transpose();
        let choice = choice.map_err(|e| if e.key == "goal" { e.about("objective") } else { e })?;
        let is_other = choice.is_some() || unreachable.is_some();
        let experiment = if is_other { settings.experiment_by(choice.as_ref())? } else { experiment };
        Ok(Self { settings: settings.clone(), experiment, built, choice, rows_read: Vec::new(), unreachable, began })
    }

    /// The choice of the method, if one is chosen.
    pub fn choice(&self) -> Option<&LossChoice> {
        self.choice.as_ref()
    }

    /// Notes for readers of the fit that are known before the runs.
    pub fn notes(&self) -> Vec<Note> {
        notes::of(&self.built.prepared, &self.settings, self.unreachable)
    }

    /// The settings, with the data's default for the intercept.
    pub fn settings(&self) -> &FitSettings {
        &self.settings
    }

    /// The prepared rows, the held-out rows, and the transformations of features and targets.
    pub fn prepared(&self) -> &Prepared {
        &self.built.prepared
    }

    /// The files with their numbers of rows, in the order of their names.
    pub fn rows_read(&self) -> &[(String, usize)] {
        &self.rows_read
    }

    /// The ridge of the experiment, in words.
    pub fn ridge(&self) -> String {
        let (_, problem) = made::problem_of(&self.experiment);
        let is_set = |key: &str| problem.get(key).and_then(Value::as_bool).unwrap_or(false);
        let ridge = problem.get("ridge").and_then(|ridge| ridge.as_float().or(ridge.as_integer().map(|whole| whole as f64)));
        match ridge.filter(|ridge| *ridge != 0.0).map(numbers::typed) {
            None => "no ridge".into(),
            Some(ridge) if is_set("penalise_intercept") => format!("ridge {ridge}, on the intercept too"),
            Some(ridge) => format!("ridge {ridge}"),
        }
    }

    /// The time at which reading of the data began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// The experiment of the fit.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Fits the model; with a folder, for the files of [`Fitted::write`].
    ///
    /// # Errors
    /// As [`Job::run`].
    pub fn run(self, run: RunSettings, observer: &dyn RunObserver, cancel: &Cancel) -> Result<RunOutcome<Fitted>, Error> {
        let notes = self.notes();
        let Self { settings, experiment, built: Built { prepared, problem }, began, .. } = self;
        let mut names = fitted::NAMES.map(String::from).to_vec();
        names.extend(output::picture_names(&experiment, COEFFICIENTS));
        // Compared methods run one after another, so that their times are comparable.
        let run = run.with_in_turn(true);
        let job = Job::new(experiment, run).with_problem(problem).with_files(names).since(began).for_work(FolderWork::Fit);
        let job = job.asking_for(inferred::asked(settings.standard_errors()));
        let cancel_later = cancel.clone();
        job.run(observer, cancel)?.try_map(move |ran| Fitted::new(ran, &settings, prepared, notes, &cancel_later))
    }
}

/// The parts of a fit.
struct Built {
    prepared: Prepared,
    problem: BuiltProblem,
}

/// Raises the target of the gradient norm to the rounding error of gradients at the minimum, if known; returns the requested target if it
/// did. Below that error gradients are noise, and a method would use up its rounds.
fn reachable(settings: &mut FitSettings, built: &Built) -> Option<f64> {
    let prepared = &built.prepared;
    let rounding = prepared.train.gradient_rounding(&prepared.weights, built.problem.field().root()?);
    let asked = settings.tol;
    if !(asked > 0.0 && asked < rounding && rounding.is_finite()) {
        return None;
    }
    // Two digits, rounded up, because the last bits of the minimum differ between instruction sets.
    settings.tol = format!("{:.1e}", 1.05 * rounding).parse().unwrap_or(rounding);
    Some(asked)
}

/// The settings with the data's default for the intercept.
fn resolved(settings: &FitSettings, is_table: bool) -> FitSettings {
    FitSettings { intercept: Some(settings.has_intercept(is_table)), ..settings.clone() }
}

/// The prepared rows of an experiment, and its problem on the fitted ones. Files are read once.
///
/// # Errors
/// When a setting or file cannot be used, or the problem does not fit into memory.
fn build(wanted: &FitSettings, experiment: &Experiment, files: &DiskFiles, cancel: &Cancel) -> Result<Built, Error> {
    let (kind, problem) = made::problem_of(experiment);
    let failure = |e: Error| experiment.failure_at(e.inside("problem"), &experiment.points[0]);
    // The kinds differ only in the types of their settings.
    macro_rules! build_as {
        ($kind:ty) => {{
            let settings: $kind = config::read(Value::Table(problem)).map_err(failure)?;
            let mut read = settings.clone();
            if files.given_identity().is_some() {
                // The settings name no data, which reading files would refuse.
                read.data = Sources::One(String::new());
            }
            let sets = read.read(files).map_err(failure)?;
            // A second copy of the rows serves the quality of the model.
            let memory = settings.memory_of(&sets, rayon::current_num_threads()).map(MemoryEstimate::with_a_copy);
            let mut prepared = None;
            let built = BuiltProblem::of_data(experiment, files, memory, |sampling| {
                let all = prepared.insert(settings.preparation().prepare_sets(sets, cancel)?);
                let rows = all.train.clone();
                cancel.check()?;
                settings.field_of(rows, all.weights.clone(), sampling, Isa::best())
            })?;
            cancel.check()?;
            let prepared = prepared.expect("the problem was built");
            if let Some(how) = wanted.standard_errors() {
                // The caller may have changed settings of the experiment.
                wanted.check_inference(settings.ridge, settings.weighting == AgentWeights::Rows)?;
                let estimate = inference::infer(&prepared, &vec![0.0; built.field().dim()], how, cancel)?;
                built.field().set_root(estimate.theta);
            }
            // A method would never end on losses without a minimum.
            built.field().solve(cancel)?;
            if let Err(why) = built.field().solution()
                && built.field().dim() <= MAX_DIM
            {
                let help = "a positive ridge, such as 1e-5, or a larger one; or fewer features";
                return Err(failure(Error::new("ridge", format!("{}, and {why}", crate::numbers::typed(settings.ridge)), help)));
            }
            Ok(Built { prepared, problem: built })
        }};
    }
    match kind.as_str() {
        "logistic" => build_as!(Logistic),
        "least-squares" => build_as!(LeastSquares),
        "glm" => build_as!(GeneralisedLinear),
        other => {
            let what = format!("`{}`", quoted(other));
            Err(Error::new("model", what, Model::ALL.map(Model::name).join(" or ")))
        }
    }
}
