//! Problems on data held by Python: the kinds that read files, on tables of transitions and on rows in memory.

use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::problem::arrays::Arrays;
use fedsa::registry::Kind;
use fedsa::sampling::Sampling;
use fedsa_data::memory::{MemoryTable, TypedColumns};
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::source::LogSource;
use fedsa_problems::memory::MemoryEstimate;
use fedsa_problems::rows::dataset::{Dataset, Wanted};
use fedsa_problems::rows::regression::{GeneralisedLinear, LeastSquares, Logistic};
use fedsa_problems::{Files, ProblemSettings};
use serde::Serialize;

/// The data of a problem: tables of transitions, or rows with targets.
#[derive(Default)]
pub struct HeldData {
    pub tables: Vec<(String, TypedColumns)>,
    pub rows: Vec<Dataset>,
}

impl Files for HeldData {
    fn arrays(&self, _: &str) -> Result<Arrays> {
        Err(lost())
    }
    fn logs(&self, _: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        let mut logs: Vec<Box<dyn LogSource>> = Vec::new();
        for (name, columns) in &self.tables {
            logs.extend(MemoryTable::of(name, columns).logs(form)?.into_iter().map(|log| Box::new(log) as Box<dyn LogSource>));
        }
        Ok(logs)
    }
    fn datasets(&self, _: &[String], _: &Wanted) -> Result<Vec<Dataset>> {
        Ok(self.rows.clone())
    }
}

/// A problem that reads files, on data in memory.
#[derive(Clone, Serialize)]
#[serde(transparent)]
struct OnHeldData<S> {
    settings: S,
    #[serde(skip)]
    data: Option<Arc<HeldData>>,
}

impl<S: ProblemSettings + Serialize> ProblemSettings for OnHeldData<S> {
    fn check(&self) -> Result<()> {
        self.settings.check()
    }
    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.settings.field(self.data.as_deref().ok_or_else(lost)?, sampling, isa)
    }
    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.settings.memory(self.data.as_deref().ok_or_else(lost)?, sampling, threads)
    }
    fn own_to_each_end(&self) -> &'static [&'static str] {
        self.settings.own_to_each_end()
    }
    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.settings.without_effect(sampling)
    }
}

/// The kinds on data in memory, with names of their own; without data they can be read but not run.
pub fn kinds(data: Option<&Arc<HeldData>>) -> [Kind<dyn ProblemSettings>; 4] {
    // The kinds differ only in the types of their settings.
    macro_rules! on_held_data {
        ($name:literal, $settings:ty) => {{
            let data = data.cloned();
            Kind::<dyn ProblemSettings>::new($name, "data in the memory of Python", move |settings: $settings| {
                Ok(Box::new(OnHeldData { settings, data: data.clone() }))
            })
        }};
    }
    [
        on_held_data!("logs-in-memory", Logs),
        on_held_data!("logistic-in-memory", Logistic),
        on_held_data!("least-squares-in-memory", LeastSquares),
        on_held_data!("glm-in-memory", GeneralisedLinear),
    ]
}

/// The error about data that no process has any more.
pub fn lost() -> Error {
    let help = "the same experiment, made in Python; the pictures in the folder of its run";
    Error::new("kind", "the data of this problem were in the memory of a process of Python, and are not here", help)
}
