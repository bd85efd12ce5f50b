//! `fedsa theory`: predictions for an experiment before it runs, as data.
//!
//! [`Theory`] computes them method by method; [`TheoryReport`] holds all, and [`TheoryReport::json`] is the form for programs. The program
//! makes pages and pictures of these.
//!
//! Counted work ([`fedsa_theory::work`]) limits computations instead of the clock, so that reports are equal on all machines. Omitted parts
//! are listed with their reason ([`LeftOut`]).

mod change;
mod curvature;
mod json;
mod method;
mod pictures;
mod privacy;
mod problem;
mod reason;
mod statements;
mod target;

pub use change::{ChangedFloor, SettingChange, against, best};
pub use curvature::HessianEigenvalues;
pub use method::{MethodStability, MethodTheory};
pub use pictures::{PictureFolder, picture, pictures};
pub use privacy::PrivacyTheory;
pub use problem::ProblemTheory;
pub use reason::{KnownOrReason, Reason, ReasonCode};
pub use statements::Theorems;
pub use target::MethodTarget;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa_theory::predict;
use fedsa_theory::work::{self, WorkSpent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::config::Experiment;
use crate::plan::PlanControl;
use crate::{Plan, Predictor, options, run_memory};

/// The largest numbers of multiplications of a brief report for all methods together, and of a full one for each method. A multiplication
/// takes half a nanosecond to a nanosecond on one core.
pub const BRIEF_WORK: f64 = 1e10;
pub const FULL_WORK: f64 = 6e10;

/// The settings of a report: options of `fedsa theory` and keyword arguments of Python.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TheorySettings {
    /// Mean-square error to reach: the report gives each method's rounds, samples and bits, or the obstacle
    #[arg(long, value_name = "EPS2", value_parser = options::positive)]
    pub target_mse: Option<f64>,
    /// Also report constants, parts of floors and changes to them, other local steps, and theorems. Takes up to a minute per method,
    /// instead of about 10 seconds in all
    #[arg(long)]
    pub full: bool,
    /// The largest number of multiplications of a brief report, for all methods together; [`BRIEF_WORK`] by default.
    #[arg(skip)]
    #[serde(skip)]
    pub max_work: Option<f64>,
}

impl Default for TheorySettings {
    fn default() -> Self {
        options::defaults()
    }
}

/// The predictions for an experiment; relative paths are in the folder `base`. `about` is called with the next computation.
///
/// # Errors
/// When a setting or file cannot be used, as [`Theory::new`], and when it is cancelled.
pub fn theory(
    experiment: Experiment,
    base: &Path,
    settings: TheorySettings,
    about: &dyn Fn(&str),
    cancel: &Cancel,
) -> Result<TheoryReport, Error> {
    about("problems");
    let control = PlanControl { cancel, solving: None };
    let plan = Arc::new(Plan::with_problem(experiment, base, Isa::best(), &HashMap::new(), None, &control)?);
    let theory = Theory::new(&Arc::new(Predictor::new(&plan).with_cancel(cancel)), settings);
    theory.map_err(|e| plan.experiment.document.failure(e))?.report(about)
}

/// An omitted computation.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LeftOut {
    /// The method's label and its point; empty if it concerns no single method.
    pub method: String,
    pub point: String,
    /// The omitted part.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// The predictions for an experiment before it runs.
#[derive(Debug, Clone)]
pub struct TheoryReport {
    /// The experiment's identifier and title.
    pub id: String,
    pub title: String,
    /// Its problems; none in a brief report.
    pub problems: Vec<ProblemTheory>,
    /// Its methods at all points, in the order of the file: all methods of a point, then the next point.
    pub methods: Vec<MethodTheory>,
    /// The omitted computations.
    pub left_out: Vec<LeftOut>,
}

impl TheoryReport {
    /// All numbers as JSON. Unknown ones are null, and the table `unknown` beside them has the reasons.
    pub fn json(&self) -> Json {
        json::report(self)
    }
}

/// Computes the predictions of a plan, method by method.
pub struct Theory {
    plan: Arc<Plan>,
    predictor: Arc<Predictor>,
    settings: TheorySettings,
    /// Point, position of the label, and cell of every method.
    cells: Vec<(usize, usize, usize)>,
    next: usize,
    /// The remaining work of a brief report.
    left: f64,
    left_out: Vec<LeftOut>,
}

impl Theory {
    /// The theory of a predictor's plan. Nothing is computed yet.
    ///
    /// # Errors
    /// When the target is not positive, or within rounding of the roots of all problems (key `target_mse`); when predictions do not fit
    /// into memory.
    pub fn new(predictor: &Arc<Predictor>, settings: TheorySettings) -> Result<Self> {
        let (plan, predictor) = (Arc::clone(predictor.plan()), Arc::clone(predictor));
        if let Some(mse) = settings.target_mse {
            check_target(&plan, mse)?;
        }
        run_memory::refuse_predictions(&plan)?;
        let of_point = |point: usize| plan.points[point].cells.iter().enumerate().map(move |(label, cell)| (point, label, *cell));
        let cells = (0..plan.points.len()).flat_map(of_point).collect();
        let left = settings.max_work.unwrap_or(BRIEF_WORK);
        Ok(Self { plan, predictor, settings, cells, next: 0, left, left_out: Vec::new() })
    }

    /// The number of methods, at all points.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The label and the point of the next method; `None` at the end.
    pub fn upcoming(&self) -> Option<(&str, &str)> {
        let (point, label, _) = self.cells.get(self.next)?;
        Some((&self.plan.labels[*label], &self.plan.points[*point].point.label))
    }

    /// The constants of all problems. Problems after a cancellation have none.
    pub fn problems(&self) -> Vec<ProblemTheory> {
        let cancel = self.predictor.cancel();
        let of = |f: usize| work::until(cancel, || Ok(ProblemTheory::of(&*self.plan.fields[f].field))).unwrap_or_default();
        parallel::map(self.plan.fields.len(), of)
    }

    /// The next method; `None` at the end. `problems` are those of [`Theory::problems`], which theorems need; without them the report has
    /// none.
    pub fn next_method(&mut self, problems: &[ProblemTheory]) -> Option<MethodTheory> {
        let (point, label, cell) = *self.cells.get(self.next)?;
        let share = if self.settings.full { FULL_WORK } else { self.left / (self.cells.len() - self.next) as f64 };
        self.next += 1;
        let mut allowance = Allowance { left: share, cut: Vec::new() };
        let planned = &self.plan.points[point];
        let mut method = MethodTheory::new(&self.predictor, &self.plan.labels[label], planned, cell);
        // After a cancellation the method is incomplete; callers check for it.
        let _ = work::until(self.predictor.cancel(), || {
            method.compute(&self.predictor, &self.settings, problems.get(planned.field), &mut allowance);
            Ok(())
        });
        self.left -= share - allowance.left;
        let of_method = |(what, why): (String, String)| LeftOut { method: method.label.clone(), point: method.point.clone(), what, why };
        self.left_out.extend(allowance.cut.into_iter().map(of_method));
        Some(method)
    }

    /// The computations omitted so far.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// All predictions. `about` is called with the next computation.
    ///
    /// # Errors
    /// When the token of the predictor is cancelled before the end.
    pub fn report(mut self, about: &dyn Fn(&str)) -> Result<TheoryReport> {
        let problems = if self.settings.full {
            about("problems");
            self.problems()
        } else {
            Vec::new()
        };
        let mut methods = Vec::new();
        while let Some(upcoming) = self.upcoming().map(|(label, point)| format!("{label} {point}")) {
            about(&upcoming);
            methods.extend(self.next_method(&problems));
            // Missing numbers may be due to a cancellation.
            self.predictor.cancel().check()?;
        }
        let experiment = &self.plan.experiment;
        Ok(TheoryReport { id: experiment.id.clone(), title: experiment.title.clone(), problems, methods, left_out: self.left_out })
    }
}

/// Refuses a target within rounding of the roots of all problems. If another problem of the plan permits it, methods report the reason
/// instead.
fn check_target(plan: &Plan, mse: f64) -> Result<()> {
    let checked = plan.fields.iter().filter_map(|planned| Some(predict::check_target(mse, &planned.field.solution().ok()?.theta)));
    if checked.clone().any(|one| one.is_ok()) {
        return Ok(());
    }
    let refused: Result<Vec<()>> = checked.collect();
    refused.map(|_| ()).map_err(|e| e.about("target_mse"))
}

/// The remaining work of a method, and what exceeded it.
struct Allowance {
    left: f64,
    cut: Vec<(String, String)>,
}

impl Allowance {
    /// Computes something within `share` of what is left, and lists it if that is too little.
    fn compute<T>(&mut self, what: &str, share: f64, compute: impl FnOnce() -> Result<T>) -> KnownOrReason<T> {
        let (result, spent) = work::within(share * self.left.max(0.0), compute);
        self.take(what, result, spent)
    }

    /// The result of a computation that has been made, with what it took.
    fn take<T>(&mut self, what: &str, result: Result<T>, spent: WorkSpent) -> KnownOrReason<T> {
        self.left -= spent.work;
        result.map_err(|e| {
            let reason = if spent.was_cut { Reason::new(ReasonCode::TakesTooLong, &e) } else { Reason::from(&e) };
            if reason.code == ReasonCode::TakesTooLong {
                self.cut.push((what.to_string(), reason.text.clone()));
            }
            reason
        })
    }
}
