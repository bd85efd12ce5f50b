//! The cheapest settings of methods that reach a mean-square error, for the problem and the link of an experiment file.
//!
//! [`tune()`] does everything. [`Tuning::new`] reads the file and the options and builds the problem. [`Tuning::search`] finds the best
//! choice: by theory if it knows the errors along the rounds ([`fedsa_theory::tune`]), otherwise by pilot runs (`pilots`). The result
//! ([`Tuned`]) is a function of the file and the options. [`Memo`] stores pilots, so that an interrupted search can be repeated without
//! them.
//!
//! | module | content |
//! | --- | --- |
//! | `job` | a tuning with its folder |
//! | `families` | the candidate methods and codecs |
//! | `pilots` | pilot runs: a race, neighbours of the best, confirmation |
//! | `refusal` | why nothing reaches the target, and what would help |
//! | `output` | the experiment file of the answer, the summary, the picture |

mod families;
mod job;
mod output;
mod pilots;
mod private;
mod refusal;
mod settings;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, ErrorKind, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_theory::Accuracy;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::predict::Forecast;
use fedsa_theory::tune::{self, Effort, Family, Hit, SearchChoice, SearchCost, SearchResult, SearchStart, SearchTarget, Tried};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::config::schema::ControlsStart;
use crate::config::{Document, Experiment, SweepPoint};
use crate::execute::{Earlier, Executed, RunControl, execute};
use crate::observer::RunObserver;
use crate::plan::{self, BuiltProblem, Plan, PlanControl, ResolvedStart};
use crate::{estimate, resolve};
use families::Candidates;
pub use job::{Answer, TuneOutcome, TuneStage, tune};
use pilots::{Measure, Measured, PilotSearch, Pilots};
pub use settings::TuneSettings;

pub use output::{FILE, names};

/// Pilot runs, by their settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Memo {
    /// Identifies the file and the options.
    identity: String,
    pilots: BTreeMap<String, Remembered>,
}

/// A stored pilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Remembered {
    estimate: f64,
    measured: Option<Measured>,
}

impl Memo {
    /// Whether it belongs to this tuning.
    pub fn is_of(&self, tuning: &Tuning) -> bool {
        self.identity == tuning.identity
    }

    /// The number of measured pilots.
    pub fn len(&self) -> usize {
        self.pilots.values().filter(|pilot| pilot.measured.is_some()).count()
    }

    /// Whether it has no measured pilots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The environment of a search: interruption, progress, and storage of the memo.
pub struct TuneControl<'a> {
    /// Set by Ctrl-C or SIGTERM.
    pub cancel: &'a Cancel,
    /// The pilots of an earlier process.
    pub memo: Memo,
    /// Called after each pilot, with all pilots so far.
    ///
    /// # Errors
    /// When the memo cannot be stored; the search then ends.
    pub keep: &'a mut dyn FnMut(&Memo) -> Result<(), Error>,
    /// Called before the search by theory and before each pilot.
    pub began: &'a mut dyn FnMut(&Began),
}

/// The start of a part of a search.
#[non_exhaustive]
pub struct Began {
    /// The part in words.
    pub what: String,
    /// The spent part of the budget, in seconds.
    pub spent: f64,
}

/// How a search ended.
pub enum Searched {
    /// With an answer.
    Done(Box<Tuned>),
    /// Interrupted; the memo has the finished pilots.
    Interrupted,
}

/// How an answer's error is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Evidence {
    /// By theory.
    Theory(Accuracy),
    /// By pilots: the mean error over this many seeds, and its standard error.
    Pilots {
        /// The seeds.
        seeds: u64,
        /// The standard error.
        se: f64,
        /// The first round at which the mean alone, without its standard error, is at most the target.
        by_mean: u64,
    },
}

/// The answer to a tuning.
#[non_exhaustive]
pub struct Tuned {
    /// The choice.
    pub choice: SearchChoice,
    /// How it reaches the target.
    pub hit: Hit,
    /// Its cost.
    pub cost: SearchCost,
    /// How its error is known.
    pub evidence: Evidence,
    /// The search by theory.
    found: SearchResult,
    /// The search by pilots.
    pilots: Pilots,
    /// The seconds of the budget spent by theory.
    theory_seconds: f64,
    /// Whether the time limit ended the search early.
    is_late: bool,
    /// Under a privacy budget.
    privacy: Option<PrivateAnswer>,
}

/// The cost of privacy for an answer.
#[derive(Debug, Clone, Copy)]
struct PrivateAnswer {
    /// The part of the error that the noise makes.
    by_privacy: f64,
    /// The number of agents with which the error would be useful, if it is not.
    agents: Option<u64>,
}

/// The first seed of pilots: answers use seeds from 0, which no pilot has used.
const PILOT_SEED: u64 = 1_000_000;
/// The multiplications of theory that count as one second.
const A_SECOND: f64 = 1e9;
/// The shares of the budget for theory: for the search itself, and for the same methods under simpler conditions. Pilots get the rest.
const THEORY_SHARE: f64 = 0.6;
const SIMPLER_SHARE: f64 = 0.1;

/// A tuning before its search.
pub struct Tuning {
    experiment: Experiment,
    base: std::path::PathBuf,
    options: TuneSettings,
    target: SearchTarget,
    candidates: Vec<Candidates>,
    start: SearchStart,
    identity: String,
    isa: Isa,
    problem: BuiltProblem,
}

impl Tuning {
    /// Reads the file and the options, and builds the problem.
    ///
    /// # Errors
    /// When the file or an option cannot be used, or it is cancelled.
    pub fn new(experiment: &Experiment, base: &Path, isa: Isa, options: &TuneSettings, cancel: &Cancel) -> Result<Self, Error> {
        let [point] = &experiment.points[..] else {
            let what = format!("the file has {} points of a sweep", experiment.points.len());
            return Err(Error::new("", what, "one problem and one link, without `sweep` and `variant`").coded(ErrorCode::Sweep));
        };
        // The file is checked as for a run, without its checks and its figure.
        let bare = experiment.without_checks();
        let files = DiskFiles::new(Places::from_env(base)).with_cancel(cancel);
        let problem = BuiltProblem::new(&bare, &files, isa)?;
        let plan = Plan::with_problem(bare, base, isa, &Default::default(), Some(problem), &PlanControl { cancel, solving: None })?;
        let reference = reference(&plan, options)?;
        let sections = point.sections();
        let mut tables: Vec<Table> =
            (0..plan.labels.len()).filter_map(|m| sections.method(m).and_then(|table| table.as_table().cloned())).collect();
        if let Some(epsilon) = options.epsilon {
            private::put(&mut tables[reference], epsilon, None)?;
        }
        let candidates = families::families(&experiment.document.kinds, options, &tables, reference, &files, &*plan.fields[0].field)?;
        let cell = &plan.cells[plan.points[0].cells[reference]];
        if let fedsa::record::OutputRule::TailAfter(_) = cell.output {
            let what = "the output averages the last share of the rounds, and so depends on their number, which is to be found";
            return Err(Error::new("output", what, "output = \"last\", or \"average\""));
        }
        require(cell.copies.is_none(), "output", "a combination of copies of theta, whose noise is not known", "last, or average")?;
        let theta = match &cell.start {
            ResolvedStart::Fixed(theta) => Some(theta.to_vec()),
            ResolvedStart::Normal => None,
        };
        let controls = if cell.method.controls == ControlsStart::Ideal { InitialControls::Root } else { InitialControls::Zero };
        let start = SearchStart { theta, controls, output: cell.output };
        let target = SearchTarget {
            mse: options.target_mse.unwrap_or(0.0),
            goal: options.objective,
            max_rounds: options.max_rounds,
            max_local_steps: options.max_local_steps,
            local_steps: (!options.local_steps.is_empty()).then(|| options.local_steps.clone()),
            network: options.network()?,
        };
        match (options.target_mse, options.epsilon) {
            (Some(_), None) => target.check(&*plan.fields[0].field, &start)?,
            (None, Some(_)) => {}
            _ => return Err(Error::new("target_mse", "neither or both of `target_mse` and `epsilon`", "one of them")),
        }
        let identity = identity(&plan, options, &Places::from_env(base))?;
        let problem = plan.problem();
        Ok(Self {
            experiment: experiment.clone(),
            base: base.to_path_buf(),
            options: options.clone(),
            target,
            candidates,
            start,
            identity,
            isa,
            problem,
        })
    }

    /// An empty memo of this tuning.
    pub fn memo(&self) -> Memo {
        Memo { identity: self.identity.clone(), pilots: BTreeMap::new() }
    }

    /// The families, by name.
    pub fn families(&self) -> Vec<String> {
        self.candidates.iter().map(Candidates::name).collect()
    }

    /// The name of a family.
    pub fn family(&self, choice: &SearchChoice) -> String {
        self.candidates[choice.family].name()
    }

    /// The `[[method]]` of a choice for this number of rounds.
    fn method(&self, choice: &SearchChoice, rounds: u64) -> Table {
        let mut method = self.candidates[choice.family].method(choice);
        if let Some(epsilon) = self.options.epsilon {
            private::put(&mut method, epsilon, Some(rounds)).expect("a link with privacy");
        }
        method
    }

    fn point(&self) -> &SweepPoint {
        &self.experiment.points[0]
    }

    /// The cheaper one of the best choice of theory and the best choice of pilots, if any.
    fn best(&self, found: &SearchResult, pilots: &Pilots) -> Option<(SearchChoice, Hit, SearchCost, Evidence)> {
        let by_theory =
            found.best().and_then(|best| Some((best.choice, *best.reached()?, best.cost?, Evidence::Theory(best.course.accuracy))));
        let by_pilots = pilots.best.map(|(i, hit, cost)| {
            let piloted = &pilots.tried[i];
            let se = piloted.measured.at(hit.rounds).map_or(f64::NAN, |(_, se)| se);
            let by_mean = piloted.reached.map_or(hit.rounds, |(hit, _)| hit.rounds);
            (piloted.choice, hit, cost, Evidence::Pilots { seeds: piloted.seeds, se, by_mean })
        });
        match (by_theory, by_pilots) {
            (Some(a), Some(b)) => Some(if tune::cheaper(&self.target, (&b.2, &b.1), (&a.2, &a.1)) { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// The cheapest choice. A time limit counts from the call.
    ///
    /// # Errors
    /// When no choice reaches the target (names the limiting floor or rounds, and what would help), when the budget is too short for a
    /// single choice, and when the machine fails.
    pub fn search(&self, control: &mut TuneControl<'_>) -> Result<Searched, Error> {
        (control.began)(&Began { what: format!("theory of {}", self.families().join("; ")), spent: 0.0 });
        match self.options.epsilon {
            Some(_) => match self.search_private(control.cancel) {
                Err(e) if e.kind() == ErrorKind::Cancelled => Ok(Searched::Interrupted),
                tuned => Ok(Searched::Done(Box::new(tuned?))),
            },
            None => self.search_target(control),
        }
    }

    /// [`Tuning::search`] for a target.
    fn search_target(&self, control: &mut TuneControl<'_>) -> Result<Searched, Error> {
        let families: Vec<Family> = self.candidates.iter().map(Candidates::family).collect();
        let cancel = control.cancel;
        let began = Instant::now();
        let deadline = |share: f64| began.checked_add(Duration::try_from_secs_f64(share * self.options.time_limit?).ok()?);
        let effort = |share: f64, of_time: f64| Effort {
            most_work: share * self.options.budget * A_SECOND,
            cancel: cancel.clone(),
            deadline: deadline(of_time),
        };
        let shared = self.problem.shared_field();
        let field = &**shared;
        // If theory knows all families, pilots need no budget.
        let is_known = |family: &Family| {
            let choice = SearchChoice { step_size: tune::largest_step(field), ..self.any_choice(0) };
            let forecast = family.forecast(shared, &choice, &self.start).ok().zip(self.start.theta.as_ref());
            forecast.is_some_and(|(forecast, theta)| forecast.evolution(theta, &self.start.controls).is_ok())
        };
        let share = if families.iter().all(is_known) { 1.0 } else { THEORY_SHARE };
        let found = match tune::search(shared, &families, &self.start, &self.target, &effort(share, share)) {
            Err(e) if e.kind() == ErrorKind::Cancelled => return Ok(Searched::Interrupted),
            found => found?,
        };
        let unknown: Vec<usize> =
            (0..families.len()).filter(|family| found.prices[*family].is_ok() && found.unknown[*family].is_some()).collect();
        let known = found.best().and_then(|best| best.cost).map_or(f64::INFINITY, |cost| cost.of(self.target.goal));
        let mut work = found.work;
        let pilots = if unknown.is_empty() || cancel.is_cancelled() {
            Pilots::default()
        } else {
            let simpler = self.simpler(&unknown, &effort(SIMPLER_SHARE / unknown.len() as f64, THEORY_SHARE + SIMPLER_SHARE), &mut work);
            let server_steps = |family| tune::server_steps(field, family).last().copied().unwrap_or(1.0);
            let search = PilotSearch {
                sizes: tune::coarse_steps(field).skip(1).step_by(2).take(6).collect(),
                server_steps: families.iter().map(server_steps).collect(),
                families: &families,
                target: &self.target,
                prices: &found.prices,
                budget: self.options.budget - work / A_SECOND,
                known,
                ended: cancel.until(deadline(1.0)),
            };
            let ended = search.ended.clone();
            search.search(&unknown, &simpler, &mut PilotRunner { tuning: self, control, ended, spent: work / A_SECOND })?
        };
        if cancel.is_cancelled() {
            return Ok(Searched::Interrupted);
        }
        match self.best(&found, &pilots) {
            Some((choice, hit, cost, evidence)) => {
                let theory_seconds = work / A_SECOND;
                let is_late = found.is_late || pilots.is_late;
                Ok(Searched::Done(Box::new(Tuned { choice, hit, cost, evidence, found, pilots, theory_seconds, is_late, privacy: None })))
            }
            None => Err(self.refusal(&found, &pilots)),
        }
    }
}

impl Tuning {
    /// Theory for the same methods over a clear link, and with independent samples in place of trajectories, as a start for pilots; empty
    /// if theory does not know these either. Adds its multiplications to `work`.
    fn simpler(&self, unknown: &[usize], effort: &Effort, work: &mut f64) -> Vec<Tried> {
        let own = &self.problem;
        let independent = || -> Option<BuiltProblem> {
            let mut table = run_table(self, &self.any_choice(unknown[0]), 1, Value::Integer(1), None);
            let mut sampling = table.get("sampling").and_then(Value::as_table).cloned().unwrap_or_default();
            sampling.insert("kind".into(), Value::String("iid".into()));
            sampling.remove("start");
            table.insert("sampling".into(), Value::Table(sampling));
            let experiment = self.read(table).ok()?;
            BuiltProblem::new(&experiment, &DiskFiles::new(Places::from_env(&self.base)), self.isa).ok()
        };
        let other = if own.field().sampling().kind == Law::Markov { independent() } else { None };
        let clear = Arc::new(Uplink::default());
        let mut all = Vec::new();
        // Families of one method differ only in their links.
        let mut known: Vec<(&str, Vec<Tried>)> = Vec::new();
        for family in unknown {
            let of = &self.candidates[*family];
            if !known.iter().any(|(kind, _)| *kind == of.kind.name) {
                let simple = [Family { link: Arc::clone(&clear), ..of.family() }];
                let found = tune::search(other.as_ref().unwrap_or(own).shared_field(), &simple, &self.start, &self.target, effort);
                known.push((
                    of.kind.name,
                    found.map_or_else(
                        |_| Vec::new(),
                        |found| {
                            *work += found.work;
                            found.tried
                        },
                    ),
                ));
            }
            let (_, tried) = known.iter().find(|(kind, _)| *kind == of.kind.name).expect("just added");
            all.extend(tried.iter().map(|tried| Tried { choice: SearchChoice { family: *family, ..tried.choice }, ..tried.clone() }));
        }
        all
    }

    /// The experiment of a table.
    fn read(&self, table: Table) -> Result<Experiment, Error> {
        Experiment::read(Document::of_table(table, Vec::new()).with_kinds(&self.experiment.document.kinds))
    }

    /// The plan of a table with this problem.
    fn plan(&self, table: Table) -> Result<Plan, Error> {
        let problem = Some(self.problem.clone());
        Plan::with_problem(self.read(table)?, &self.base, self.isa, &Default::default(), problem, &PlanControl::default())
    }

    /// The forecast of a choice.
    fn forecast(&self, choice: &SearchChoice) -> Option<Forecast> {
        self.candidates[choice.family].family().forecast(self.problem.shared_field(), choice, &self.start).ok()
    }

    /// Some settings of a family.
    fn any_choice(&self, family: usize) -> SearchChoice {
        SearchChoice { family, step_size: 1.0, local_steps: 1, server_step: 1.0 }
    }
}

/// Runs pilots as plans of one method, and stores them.
struct PilotRunner<'r, 'c> {
    tuning: &'r Tuning,
    control: &'r mut TuneControl<'c>,
    /// Cancelled by the caller, and when time is up.
    ended: Cancel,
    /// The spent seconds of the budget.
    spent: f64,
}

/// The estimated time of a plan's runs in seconds on one core, without building the problem, which exists already.
fn estimated_seconds(plan: &Plan) -> f64 {
    estimate::duration(plan).cells.iter().sum()
}

/// Pilots report nothing.
struct Silent;

impl RunObserver for Silent {}

impl PilotRunner<'_, '_> {
    /// The identity and the table of a pilot.
    fn table(&self, choice: &SearchChoice, rounds: u64, seeds: u64) -> (String, Table) {
        let seeds = (PILOT_SEED..PILOT_SEED + seeds).map(|seed| Value::Integer(seed as i64)).collect();
        let table = run_table(self.tuning, choice, rounds, Value::Array(seeds), Some(recorded(rounds)));
        let mut own = table.clone();
        own.remove("problem");
        (plan::identity(&[&toml::to_string(&own).expect("a tree of plain values")]), table)
    }
}

impl Measure for PilotRunner<'_, '_> {
    fn estimate(&mut self, choice: &SearchChoice, rounds: u64, seeds: u64) -> Result<f64, Error> {
        let (key, table) = self.table(choice, rounds, seeds);
        if let Some(known) = self.control.memo.pilots.get(&key) {
            return Ok(known.estimate);
        }
        let estimate = estimated_seconds(&self.tuning.plan(table)?);
        self.control.memo.pilots.insert(key, Remembered { estimate, measured: None });
        Ok(estimate)
    }

    fn run(&mut self, choice: &SearchChoice, rounds: u64, seeds: u64) -> Result<Option<Measured>, Error> {
        let (key, table) = self.table(choice, rounds, seeds);
        if let Some(Remembered { estimate, measured: Some(known) }) = self.control.memo.pilots.get(&key) {
            self.spent += estimate;
            return Ok(Some(known.clone()));
        }
        let what = format!("pilot of {}: {rounds} rounds, {seeds} seeds", self.tuning.choice_text(choice));
        (self.control.began)(&Began { what, spent: self.spent });
        let plan = self.tuning.plan(table)?;
        let estimate = estimated_seconds(&plan);
        self.spent += estimate;
        let run = RunControl {
            cancel: &self.ended,
            folder: None,
            every: Duration::MAX,
            earlier: &Earlier::default(),
            observer: &Silent,
            in_turn: false,
        };
        let Executed::Done(results) = execute(&plan, &run)? else { return Ok(None) };
        let measured = pilots::measured(&results.cells[0]);
        self.control.memo.pilots.insert(key, Remembered { estimate, measured: Some(measured.clone()) });
        (self.control.keep)(&self.control.memo)?;
        Ok(Some(measured))
    }
}

/// The index of the method whose link, start and output all candidates have.
fn reference(plan: &Plan, options: &TuneSettings) -> Result<usize> {
    if let Some(label) = &options.like {
        return plan
            .labels
            .iter()
            .position(|other| other == label)
            .ok_or_else(|| Error::new("like", format!("the file has no method `{}`", quoted(label)), plan.labels.join(", ")));
    }
    let cells: Vec<_> = plan.points[0].cells.iter().map(|cell| &plan.cells[*cell]).collect();
    let is_like = |cell: &&crate::PlannedCell| {
        let (a, b) = (&cell.method, &cells[0].method);
        (&a.uplink, &a.downlink, &cell.start, cell.output) == (&b.uplink, &b.downlink, &cells[0].start, cells[0].output)
    };
    if cells.iter().all(is_like) {
        return Ok(0);
    }
    let what = "the methods of the file have different links, starts or outputs";
    Err(Error::new("like", what, format!("`like = LABEL`, of the method whose link is meant: {}", plan.labels.join(", "))))
}

/// A digest of the problem, the methods of the file and the options.
fn identity(plan: &Plan, options: &TuneSettings, places: &Places) -> Result<String> {
    // A time limit ends a search, but does not change its pilots.
    let options = TuneSettings { time_limit: None, ..options.clone() };
    let (file, options) = (resolve::file(&plan.experiment, places)?, serde_json::to_string(&options).expect("plain options"));
    Ok(plan::identity(&[env!("CARGO_PKG_VERSION"), &plan.fields[0].fingerprint, &file, &options]))
}

/// The table of one run of a choice.
fn run_table(of: &Tuning, choice: &SearchChoice, rounds: u64, seeds: Value, record: Option<Table>) -> Table {
    let sections = of.point().sections();
    let mut run = sections.run.as_ref().and_then(|run| run.as_table().cloned()).unwrap_or_default();
    run.insert("rounds".into(), Value::Integer(rounds as i64));
    run.insert("seeds".into(), seeds);
    for key in ["record", "stop", "refused"] {
        run.remove(key);
    }
    if let Some(record) = record {
        run.insert("record".into(), Value::Table(record));
    }
    // The table of the method has the reference's start.
    if of.candidates[choice.family].method(choice).contains_key("start") {
        run.remove("start");
    }
    let mut table = Table::new();
    for (key, section) in [("problem", &sections.problem), ("sampling", &sections.sampling)] {
        if let Some(section) = section {
            table.insert(key.into(), (**section).clone());
        }
    }
    table.insert("method".into(), Value::Array(vec![Value::Table(of.method(choice, rounds))]));
    table.insert("run".into(), Value::Table(run));
    table
}

/// The recorded rounds of a pilot: all of few, or of many those with distances of a percent.
fn recorded(rounds: u64) -> Table {
    const ALL: u64 = 500;
    if rounds <= ALL {
        return Table::from_iter([("every".to_string(), Value::Integer(1))]);
    }
    let points = (100.0 * (rounds as f64).ln()).round() as i64;
    Table::from_iter([("points".to_string(), Value::Integer(points)), ("spacing".to_string(), Value::String("log".into()))])
}
