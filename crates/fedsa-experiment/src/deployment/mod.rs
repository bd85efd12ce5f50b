//! A deployment: a federation of machines, each with its own data and the same file of settings.
//!
//! The file is an experiment file with one method, one seed and no sweeps. Data that its problem names are not read: each agent gets its
//! data at its start ([`LocalAgent`]), and the server has none ([`Deployment::enrolment`]). Messages are bytes, which the caller carries.
//! The numbers equal those of a run of the same settings on the data of all agents, one file per agent, weighted by rows.

mod afterwards;
mod agent;
pub mod audit;
mod claims;
mod disclosure;
mod ended;
mod forms;
mod levels;
pub mod limits;
mod needs;
mod of_task;
mod rowless;
mod sums;
mod weights;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;

use fedsa::enrolment::{ColumnSummary, Enrolled, Enrolment, Membership, Terms};
use fedsa::error::{Error, Result, quoted};
use fedsa::method::{MethodSettings, Needs, Setting};
use fedsa::note::{Note, NoteCode};
use fedsa::sampling::Law;
use fedsa::session::StoppingCriteria;
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_data::machine;
use fedsa_problems::ProblemSettings;
use fedsa_problems::control::improvement::Improvement;
use fedsa_problems::control::pessimism::Pessimism;
use fedsa_problems::logs::replay::{Logs, Scaling};
use fedsa_problems::logs::survey::Surveyed;
use fedsa_problems::rows::preparation::AgentWeights;
use serde::de::DeserializeOwned;
use toml::Value;

use crate::config::document::{Caller, Words};
use crate::config::link;
use crate::config::schema::ControlsStart;
use crate::config::{self, Document, Experiment, FederationSpec, PointReader, RunSpec, StartSpec};
use crate::made;
use crate::numbers::number;

pub use afterwards::Afterwards;
pub use agent::LocalAgent;
pub use disclosure::{DisclosureRules, ParameterScope, Undeclared};
pub use ended::DeployedRun;
pub use of_task::{TaskSettings, of_evaluation, of_fit, of_improvement, with_federation};

/// The common settings of server and agents.
#[derive(Clone)]
pub struct Deployment {
    experiment: Experiment,
    terms: Terms,
    method: Arc<dyn MethodSettings>,
    uplink: Uplink,
    run: Arc<RunSpec>,
    source: Source,
    is_known: bool,
    notes: Vec<Note>,
}

/// The place that names an agent's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// `problem.path`: logs.
    Logs,
    /// `problem.data`: rows.
    Rows,
    /// None: every agent generates the whole problem and takes its place in it. For trials.
    Generated,
}

impl Source {
    /// The key of the problem that names data, if there is one.
    fn key(self) -> Option<&'static str> {
        match self {
            Source::Logs => Some("path"),
            Source::Rows => Some("data"),
            Source::Generated => None,
        }
    }
}

impl Deployment {
    /// The settings of a document.
    ///
    /// # Errors
    /// When it is no experiment, or cannot be deployed: it has several methods, seeds or points, a start or features that depend on all
    /// agents' data, data that are divided among agents, or a figure or checks that a federation's results cannot answer.
    pub fn new(document: Document) -> Result<Self> {
        let failure = document.clone();
        Self::read(document).map_err(|e| failure.failure(e))
    }

    fn read(mut document: Document) -> Result<Self> {
        let source = source_of(&document);
        let notes = of_task::without_data(&mut document);
        if let Some(key) = source.key() {
            put_data(&mut document, source, &[format!("the agent's own {key}")])?;
        }
        let experiment = Experiment::read(document.clone())?;
        if experiment.points.len() != 1 {
            return Err(limits::refusal("sweep"));
        }
        let mut reader = PointReader::new(&document.kinds);
        reader.read(&experiment.points[0])?;
        let [method] = &reader.methods[..] else {
            return Err(limits::refusal("method"));
        };
        let run = Arc::clone(reader.run());
        let seeds = run.seeds.list();
        let [seed] = seeds[..] else { return Err(limits::refusal("run.seeds")) };
        if method.controls == ControlsStart::Ideal {
            return Err(limits::refusal("method[0].controls"));
        }
        let files = DiskFiles::new(Places::from_env(""));
        let uplink = link::build(&document.kinds, &method.uplink, &method.downlink, Some(&files)).map_err(|e| e.inside("method[0]"))?;
        let (problem, sampling) = (Arc::clone(reader.problem()), reader.sampling());
        let (is_known, is_by_rows) = check_problem(&experiment, source, &*problem)?;
        let description = problem.described(&made::problem_of(&experiment).0, sampling, 0);
        let mut terms =
            Terms::new(&*method.settings, description).with_uplink(&uplink).with_seed(seed).with_forms(forms::difference_of_forms);
        if method.output.copies().map_err(|e| e.inside("method[0]"))?.is_some() {
            return Err(limits::refusal("method[0].output"));
        }
        terms = terms.with_output(method.output.rule(run.rounds).map_err(|e| e.inside("method[0]"))?);
        match method.start.as_ref().unwrap_or(&run.start) {
            StartSpec::List(theta) => terms = terms.with_start(theta.clone()),
            StartSpec::Name(name) if name == "zero" => {}
            StartSpec::Name(_) => return Err(limits::refusal("run.start")),
        }
        if !is_by_rows {
            terms = terms.with_equal_weights();
        }
        // The rows are elsewhere, so that only the settings can be checked here.
        let clip = made::problem_of(&experiment).1.remove("clip").and_then(|clip| clip.try_into().ok());
        uplink.check_clip(clip).map_err(|e| e.inside("method[0]"))?;
        let mut notes = notes;
        if let Some(privacy) = uplink.privacy() {
            let text = format!(
                "{} rounds spend epsilon = {} at delta = {} for {}",
                privacy.rounds,
                number(privacy.epsilon),
                number(privacy.delta),
                privacy.protected()
            );
            notes.push(Note::new(NoteCode::PrivacySpent, text));
        }
        let deployment = Self { experiment, terms, method: Arc::clone(&method.settings), uplink, run, source, is_known, notes };
        deployment.check_target(sampling.kind)?;
        deployment.check_inference()?;
        deployment.check_results(method)?;
        Ok(deployment)
    }

    /// The terms that must agree between server and agents.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The rounds and targets after which the federation ends.
    pub fn until(&self) -> StoppingCriteria {
        self.run.stop.until(self.run.rounds)
    }

    /// Notes on unusual settings.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether the federation ends early at a target.
    pub fn has_target(&self) -> bool {
        !self.run.stop.is_never()
    }

    /// The recorded rounds, at which a run checks its target.
    pub fn recorded(&self) -> Vec<u64> {
        self.run.record.rounds(self.run.rounds)
    }

    /// Whether a target is reached at the end of the last of these rounds, from round 0. `residuals` are the server's measurements.
    pub fn has_reached(&self, residuals: &[Option<f64>]) -> bool {
        if self.recorded().binary_search(&(residuals.len() as u64).saturating_sub(1)).is_err() {
            return false;
        }
        let (at_start, last) = (residuals.first().copied().flatten(), residuals.last().copied().flatten());
        let StoppingCriteria { residual, relative_residual, .. } = self.until();
        let targets = residual.into_iter().chain(relative_residual.zip(at_start).map(|(share, at_start)| share * at_start));
        targets.filter(|target| target.is_finite()).any(|target| last.is_some_and(|last| last <= target))
    }

    /// Whether the server learns the norm of the mean operator at its iterates: all agents send operators, gradients or systems of all their
    /// rows, and the link neither alters nor loses them.
    pub fn measures_residual(&self) -> bool {
        const AGENTS: usize = 2;
        let setting = Setting { seed: 0, weights: &[0.5; AGENTS], start: vec![0.0; 2], link: self.uplink.facts(), is_accelerated: false };
        let sends = self.method.protocol(&setting).measures_iterates();
        sends && self.method.shape().participants.is_none() && self.uplink.facts().shows_means()
    }

    /// Refuses targets that the server cannot measure.
    fn check_target(&self, law: Law) -> Result<()> {
        let stop = &self.run.stop;
        let is_exact = || law == Law::Mean || self.method.needs() == Needs::Objective;
        let is_measured = || stop.mse.is_none() && stop.gap.is_none() && is_exact() && self.measures_residual();
        if stop.is_never() || is_measured() { Ok(()) } else { Err(limits::refusal("run.stop")) }
    }

    /// The server's side, which begins with enrolment; `agents` has the least and the largest number of agents. The run gets a random
    /// number, so that messages of another run of the same file are refused.
    ///
    /// # Errors
    /// As [`Enrolment::new`], and when `FEDSA_MEMORY` is no size.
    pub fn enrolment(&self, agents: RangeInclusive<usize>) -> Result<Enrolment> {
        let enrolment = Enrolment::new(&self.terms, agents)?.with_run(number_of_a_run());
        Ok(match machine::available()? {
            Some(available) => enrolment.with_memory(available.bytes),
            None => enrolment,
        })
    }

    /// The only seed.
    fn seed(&self) -> u64 {
        let [seed] = self.run.seeds.list()[..] else { unreachable!("a deployment has one seed") };
        seed
    }

    /// The settings of the server.
    pub fn waiting(&self) -> &FederationSpec {
        &self.experiment.federation
    }

    /// Founds the federation of the applicants.
    ///
    /// # Errors
    /// As [`Enrolment::close`] and [`Enrolment::check_reach`]; when their categories, labels or columns make no model together: names the
    /// agent with the most values that nobody else has; when one would have more than `weight_cap` of the weight; when the method cannot
    /// count answers as `[federation]` says.
    pub fn found(&self, enrolment: &Enrolment) -> Result<Enrolled> {
        enrolment.check_reach(&self.bounded(&enrolment.columns()))?;
        let mut enrolled = self.close(enrolment).map_err(|why| match enrolment.most_alone() {
            Some((who, column, n)) => {
                let what = format!("{}; `{}` alone has {n} of the values of column `{}`", why.what, quoted(who), quoted(column));
                why.saying(what)
            }
            None => why,
        })?;
        enrolled.membership = self.ruled(enrolled.membership)?;
        enrolled.membership.check_weights()?;
        Ok(enrolled)
    }

    /// The federation of all applicants, if its server fits into memory.
    fn close(&self, enrolment: &Enrolment) -> Result<Enrolled> {
        let columns = enrolment.columns();
        let dim = self.dim_of(enrolment.form(), &columns)?;
        if let (agents, Some(d)) = enrolment.sizes(dim)? {
            self.check_server(agents, d, &columns)?;
        }
        enrolment.close(dim)
    }

    /// The columns whose ranges scale features and come from agents instead of the settings.
    fn bounded(&self, columns: &[ColumnSummary]) -> Vec<String> {
        let Some(logs) = logs_of(&self.experiment).ok().filter(|_| !self.is_known && self.source == Source::Logs) else {
            return Vec::new();
        };
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        // Features that do not fit the columns are refused with the dimension.
        let needs = logs.features.needs(&names).unwrap_or_default();
        let is_needed = |name: &String| !logs.ranges.contains_key(name);
        names.into_iter().zip(needs).filter(|(name, needs)| needs.range && is_needed(name)).map(|(name, _)| name).collect()
    }

    /// The membership of a saved state, for a federation of this least and largest number of agents.
    ///
    /// # Errors
    /// As [`Membership::restored`].
    pub fn membership(&self, agents: RangeInclusive<usize>, state: &[u8]) -> Result<Membership> {
        self.ruled(Membership::restored(&self.terms, agents, state)?)
    }

    fn ruled(&self, membership: Membership) -> Result<Membership> {
        let membership = membership.with_weight_cap(self.waiting().weight_cap);
        membership.with_rules(self.waiting().rules()).map_err(|e| e.inside("federation"))
    }

    /// The number of components of the model, if it follows from the settings and all agents' columns.
    ///
    /// # Errors
    /// When the features do not fit the columns.
    pub fn dim(&self, enrolment: &Enrolment) -> Result<Option<usize>> {
        self.dim_of(enrolment.form(), &enrolment.columns())
    }

    /// The same for agents of this form with these columns together.
    fn dim_of(&self, form: Option<&str>, columns: &[ColumnSummary]) -> Result<Option<usize>> {
        if self.source == Source::Rows {
            return self.dim_of_rows(form, columns);
        }
        // Agents state no columns if the settings declare all ranges.
        if self.is_known || self.source != Source::Logs || columns.is_empty() {
            return Ok(None);
        }
        let logs = logs_of(&self.experiment)?;
        let known = columns.iter().filter_map(|column| Some((column.name.clone(), column.range()?)));
        let (names, seen): (Vec<String>, Vec<(f64, f64)>) = known.unzip();
        let actions = improvement_of(&self.experiment)?.map_or(1, |of| of.actions.len());
        Ok(Some(logs.dim_of(&names, &seen)?.saturating_mul(actions)))
    }
}

impl Deployment {
    /// The number of components of a model of rows, if it depends on the categories and labels of all agents.
    fn dim_of_rows(&self, form: Option<&str>, columns: &[ColumnSummary]) -> Result<Option<usize>> {
        let Some(form) = form.filter(|_| !columns.is_empty()) else { return Ok(None) };
        // The server refuses columns that agents would refuse.
        columns.iter().try_for_each(ColumnSummary::check)?;
        if levels::are_moments(columns) {
            // Agents tell the dimension themselves.
            return Ok(None);
        }
        let how = levels::preparation(&self.experiment)?;
        let mut levels = levels::sizes_of(levels::form(form)?, columns, &how);
        levels::check_left_out(&levels)?;
        let dim = levels::dim(&how, &levels)?;
        // Only categories may have the names of other columns.
        if let (Some(sparse), false) = (&levels.sparse, levels.categories.is_empty()) {
            levels.names = sparse.names();
        }
        levels.check_names(how.intercept).map_err(|e| e.inside("problem"))?;
        Ok(Some(dim))
    }
}

/// A number unique to a run, except with probability 2^-64: the keys of the standard library's maps are random numbers of the operating
/// system.
fn number_of_a_run() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The settings of the problem of an experiment.
fn settings_of<T: DeserializeOwned>(experiment: &Experiment) -> Result<T> {
    let (_, table) = made::problem_of(experiment);
    config::read(Value::Table(table)).map_err(|e| e.inside("problem"))
}

/// The kind of problem whose logs have actions.
const IMPROVEMENT: &str = "improvement";

/// The settings of an improvement, if the problem is one.
fn improvement_of(experiment: &Experiment) -> Result<Option<Improvement>> {
    (made::problem_of(experiment).0 == IMPROVEMENT).then(|| settings_of(experiment)).transpose()
}

/// The settings of logs, with or without actions.
fn logs_of(experiment: &Experiment) -> Result<Logs> {
    Ok(match improvement_of(experiment)? {
        Some(of) => of.logs(),
        None => settings_of(experiment)?,
    })
}

/// The logs of an experiment, read once.
fn surveyed(experiment: &Experiment, files: &DiskFiles) -> Result<Surveyed> {
    let logs = match improvement_of(experiment)? {
        Some(of) => of.survey(files),
        None => logs_of(experiment)?.survey(files),
    };
    logs.map_err(|e| e.inside("problem"))
}

/// The place of the data in a document's problem.
fn source_of(document: &Document) -> Source {
    let problem = document.table.get("problem").and_then(Value::as_table);
    let kind = problem.and_then(|problem| problem.get("kind")).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "logs" | IMPROVEMENT => Source::Logs,
        "logistic" | "least-squares" | "glm" => Source::Rows,
        _ => Source::Generated,
    }
}

/// Names the data of one agent, or a placeholder if there are none.
fn put_data(document: &mut Document, source: Source, data: &[String]) -> Result<()> {
    let by = || Caller::new("the data of this agent", Words::default()).without_keys();
    if let Some(key) = source.key() {
        document.set_value(&format!("problem.{key}"), &made::texts(data), by())?;
    }
    if source == Source::Rows {
        // All files belong to one agent.
        document.set_value("problem.partition", &Value::String("even".into()), by())?;
        document.set_value("problem.agents", &Value::Integer(1), by())?;
    }
    Ok(())
}

/// Refuses problems that an agent cannot make of its own data. Returns whether the features are known without other agents' data, and
/// whether agents are weighted by their rows.
fn check_problem(experiment: &Experiment, source: Source, problem: &dyn ProblemSettings) -> Result<(bool, bool)> {
    match source {
        Source::Generated if problem.own_to_each_end().is_empty() => Ok((true, false)),
        Source::Generated => {
            let help = "logs, logistic, least-squares or glm; or a problem that is generated";
            Err(Error::new("problem.kind", "the data of this kind cannot be named agent by agent", help))
        }
        Source::Logs => {
            let logs = logs_of(experiment)?;
            let is_pessimistic = improvement_of(experiment)?.is_some_and(|of| of.pessimism != Pessimism::None);
            let given = [
                ("problem.policy", logs.policy.is_some()),
                ("problem.pessimism", is_pessimistic),
                ("problem.holdout", logs.holdout > 0.0),
                ("problem.scaling", logs.scaling != Scaling::None),
                ("problem.agent_column", logs.agent_column.is_some()),
                ("problem.features", logs.features.needs_statistics()),
            ];
            refuse_first(&given)?;
            Ok((!logs.features.needs_ranges(), true))
        }
        Source::Rows => {
            let how = levels::preparation(experiment)?;
            refuse_first(&[("problem.pca", how.pca.is_some())])?;
            let is_part = how.holdout > 0.0 || how.special.row_weights.is_some();
            if let Some(samples) = how.samples.filter(|_| is_part || how.standardise) {
                let what = format!("{samples}, beside `holdout`, `row_weights` or `standardise`");
                return Err(Error::new("problem.samples", what, "all rows of each agent: no `samples`"));
            }
            Ok((true, how.weighting == AgentWeights::Rows))
        }
    }
}

/// Refuses the first given key.
fn refuse_first(given: &[(&str, bool)]) -> Result<()> {
    given.iter().find(|(_, is_given)| *is_given).map_or(Ok(()), |(key, _)| Err(limits::refusal(key)))
}

/// Whether a document is for a federation: its problem needs data and names none.
pub fn is_without_data(document: &Document) -> bool {
    let key = source_of(document).key();
    key.is_some_and(|key| document.table.get("problem").and_then(|problem| problem.get(key)).is_none())
}
