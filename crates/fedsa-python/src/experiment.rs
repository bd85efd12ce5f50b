//! Experiments: from settings to results.

use std::path::PathBuf;
use std::time::Duration;

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa_data::find::Places;
use fedsa_experiment::config::alone::{self, KindTable};
use fedsa_experiment::config::document::{Caller, Origin, SetBy, Words};
use fedsa_experiment::config::{self, Document};
use fedsa_experiment::run::{Ran, RunOutcome, run};
use fedsa_experiment::{IfExists, Kinds, RunObserver, RunSettings, bundled, file_schema, output, resolve};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert;
use crate::custom::HeldRules;
use crate::engine;
use crate::errors::OrRaise;
use crate::held::{self, HeldProblem};
use crate::own_metrics;
use crate::results::RanResults;

/// A token by which another thread stops a call.
///
/// Examples
/// --------
/// >>> import fedsa
/// >>> token = fedsa.CancelToken()
/// >>> token.cancel()
/// >>> token.is_cancelled
/// True
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct CancelToken(pub Cancel);

#[pymethods]
impl CancelToken {
    #[new]
    fn new() -> Self {
        Self(Cancel::new())
    }

    /// Asks all work with this token to stop soon.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it is cancelled.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A validated experiment.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Experiment {
    pub inner: config::Experiment,
    /// The folder of relative paths.
    pub base: PathBuf,
    pub quick: bool,
    /// Whether the problem or a method calls Python.
    pub calls_back: bool,
}

/// Keys of experiment files, and their arguments, which errors name.
const ARGUMENTS: [(&str, &str); 10] = [
    ("problem", "problem"),
    ("method", "methods"),
    ("sampling", "sampling"),
    ("run.rounds", "rounds"),
    ("run.seeds", "seeds"),
    ("run.start", "start"),
    ("run.stop", "stop"),
    ("run.record", "record"),
    ("run.refused", "refused"),
    ("check", "checks"),
];

/// Whether a table has a key, or a key inside it.
fn placed(table: &toml::Table, key: &str) -> bool {
    match key.split_once('.') {
        Some((table_of, key)) => table.get(table_of).is_some_and(|inner| inner.get(key).is_some()),
        None => table.contains_key(key),
    }
}

impl Experiment {
    /// Reads a document with changes: its quick settings, dotted keys with values, and sweeps over lists of values.
    fn read(mut document: Document, set: &toml::Table, sweeps: &toml::Table, quick: bool) -> Result<config::Experiment, Error> {
        if quick {
            document.make_quick()?;
        }
        for (key, value) in set {
            document.set_value(key, value, Caller::new(format!("set={{\"{key}\": ..}}"), Words::default()))?;
        }
        for (key, values) in sweeps {
            document.sweep_values(key, values.clone(), Caller::new(format!("sweep({{\"{key}\": ..}})"), Words::default()))?;
        }
        let experiment = config::Experiment::read(document)?;
        experiment.settings()?;
        Ok(experiment)
    }
}

/// Parts of an experiment that Python holds: the data of its problem, and rules of its methods.
#[derive(FromPyObject)]
pub struct Held<'py>(Option<Bound<'py, HeldProblem>>, Vec<Bound<'py, HeldRules>>);

impl Held<'_> {
    fn kinds(&self, py: Python<'_>) -> PyResult<Kinds> {
        let rules = self.1.iter().map(|rules| rules.get().clone()).collect();
        held::known(self.0.as_ref().map(Bound::get), rules).or_raise(py)
    }

    fn calls_back(&self) -> bool {
        self.0.as_ref().is_some_and(|held| held.get().calls_back) || !self.1.is_empty()
    }
}

#[pymethods]
impl Experiment {
    /// The experiment of a file's text, named `name` in messages, and the parts that Python holds.
    #[staticmethod]
    #[pyo3(signature = (name, text, base, set, sweeps, quick, held))]
    #[expect(clippy::too_many_arguments, reason = "a private signature with plain values")]
    fn of_text(
        py: Python<'_>,
        name: &str,
        text: &str,
        base: PathBuf,
        set: &Bound<'_, PyDict>,
        sweeps: &Bound<'_, PyDict>,
        quick: bool,
        held: Held<'_>,
    ) -> PyResult<Self> {
        let (set, sweeps) = (convert::table(set)?, convert::table(sweeps)?);
        let (kinds, calls_back) = (held.kinds(py)?, held.calls_back());
        let read = || Self::read(Document::parse(name, text)?.with_kinds(&kinds), &set, &sweeps, quick);
        let inner = engine::brief(py, read)?;
        Ok(Self { inner, base, quick, calls_back })
    }

    /// The experiment of a dictionary with the keys of files, and the parts that Python holds.
    #[staticmethod]
    #[pyo3(signature = (table, base, set, sweeps, quick, held))]
    fn of_table(
        py: Python<'_>,
        table: &Bound<'_, PyDict>,
        base: PathBuf,
        set: &Bound<'_, PyDict>,
        sweeps: &Bound<'_, PyDict>,
        quick: bool,
        held: Held<'_>,
    ) -> PyResult<Self> {
        let (table, set, sweeps) = (convert::table(table)?, convert::table(set)?, convert::table(sweeps)?);
        let (kinds, calls_back) = (held.kinds(py)?, held.calls_back());
        let read = || {
            let given = ARGUMENTS.iter().filter(|(key, _)| placed(&table, key));
            let origins = given.map(|(key, name)| Origin { key: (*key).to_string(), from: SetBy::Setting(name) }).collect();
            Self::read(Document::of_table(table.clone(), origins).with_kinds(&kinds), &set, &sweeps, quick)
        };
        let inner = engine::brief(py, read)?;
        Ok(Self { inner, base, quick, calls_back })
    }

    #[getter]
    fn id(&self) -> &str {
        &self.inner.id
    }

    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }

    /// The labels of the methods, in order.
    fn labels(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        engine::brief(py, || self.inner.labels())
    }

    /// The labels of the points of a sweep; one empty text without a sweep.
    fn points(&self) -> Vec<String> {
        self.inner.points.iter().map(|point| point.label.clone()).collect()
    }

    /// The settings as the text of a file, as given or with defaults.
    fn to_toml(&self, py: Python<'_>, defaults: bool) -> PyResult<String> {
        engine::brief(py, || match defaults {
            true => resolve::file(&self.inner, &Places::from_env(&self.base)),
            false => toml::to_string(&self.inner.document.table).map_err(|e| Error::new("", e.to_string(), "plain values")),
        })
    }

    /// The settings as JSON, as given with changes applied, or with defaults.
    fn table_json(&self, py: Python<'_>, defaults: bool) -> PyResult<String> {
        engine::brief(py, || {
            let table = match defaults {
                true => resolve::table(&self.inner, &Places::from_env(&self.base))?,
                false => self.inner.document.table.clone(),
            };
            Ok(serde_json::to_string(&table).unwrap_or_default())
        })
    }

    /// Whether traces may have a column of this name, so that a metric of Python cannot have it.
    fn has_column(&self, name: &str) -> bool {
        output::is_taken(name, self.inner.points.iter().flat_map(|point| &point.coordinates).map(|(name, _)| name))
    }

    /// Runs it, and writes the results into the folder, if any. The folder comes with a word for the treatment of an existing run. `own` has
    /// the names of the caller's metrics, a function of method, point, seed, round and theta that returns their values, and whether the
    /// results keep the iterates.
    #[pyo3(signature = (notify, cancel, folder, force, checkpoint_every, own))]
    #[expect(clippy::too_many_arguments, reason = "a private signature with plain values")]
    fn run(
        &self,
        py: Python<'_>,
        notify: Option<&Bound<'_, PyAny>>,
        cancel: Option<&CancelToken>,
        folder: Option<(PathBuf, String)>,
        force: bool,
        checkpoint_every: f64,
        own: Option<(Vec<String>, Bound<'_, PyAny>, bool)>,
    ) -> PyResult<RanResults> {
        let every = Duration::try_from_secs_f64(checkpoint_every).unwrap_or(Duration::from_secs(10));
        let mut settings =
            RunSettings::default().with_base(&self.base).with_quick(self.quick).with_force(force).with_checkpoint_every(every);
        if let Some((folder, word)) = folder {
            settings = settings.in_folder(folder, if_exists(&word));
        }
        let work =
            |progress: &engine::Progress, cancel: &Cancel| written(run(self.inner.clone(), &settings, progress, cancel)?, progress, cancel);
        let around = (notify, cancel.map(|token| &token.0));
        let ran = match own {
            None => engine::call_back(py, self.calls_back, around.0, around.1, work),
            Some((names, measure, keeps_iterates)) => {
                own_metrics::measured(py, self.calls_back, around, (names, measure, keeps_iterates), work)
            }
        };
        ran.map(RanResults)
    }
}

/// The results of a run, written into its folder, if it has one.
pub fn written(outcome: RunOutcome, observer: &dyn RunObserver, cancel: &Cancel) -> Result<Ran, Error> {
    match outcome {
        RunOutcome::Done(ran) => {
            ran.write(Vec::new())?;
            Ok(*ran)
        }
        other => other.results(observer, cancel),
    }
}

/// The treatment of an existing run in a folder.
pub fn if_exists(word: &str) -> IfExists {
    match word {
        "resume" => IfExists::Resume,
        "overwrite" => IfExists::Overwrite,
        _ => IfExists::Refuse,
    }
}

/// Refuses the table of a problem, method, codec or medium that no experiment can have.
#[pyfunction]
pub fn check_part(py: Python<'_>, part: &str, table: &Bound<'_, PyDict>) -> PyResult<()> {
    let table = convert::table(table)?;
    let part = match part {
        "problem" => KindTable::Problem,
        "method" => KindTable::Method,
        "codec" => KindTable::Codec,
        _ => KindTable::Medium,
    };
    alone::check(&Kinds::default(), part, &table).or_raise(py)
}

/// The JSON schema of experiment files.
#[pyfunction]
pub fn schema_json() -> String {
    file_schema::of_files(&Kinds::default()).to_string()
}

/// The bundled experiments: id and text.
#[pyfunction]
pub fn bundled_experiments() -> Vec<(&'static str, &'static str)> {
    bundled::ALL.iter().map(|one| (one.id, one.text)).collect()
}
