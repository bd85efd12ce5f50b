//! One agent of a deployment, with its own data.

use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::columns::RunningMoments;
use fedsa::enrolment::{self, Admission, Applicant, ColumnSummary};
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::node::ClientNode;
use fedsa::problem::Field;
use fedsa::saved::Layout;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_problems::Files as _;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::survey::Surveyed;
use fedsa_problems::rows::dataset::Dataset;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::levels::RowLevels;
use fedsa_problems::rows::regression::{GeneralisedLinear, LeastSquares, Logistic};
use serde_json::json;
use toml::{Table, Value};

use super::levels::{self, LevelsForm};
use super::weights::form_of_rows;
use super::{Deployment, Source, put_data, settings_of, weights};
use crate::config::{Document, Experiment};
use crate::made;
use crate::plan::BuiltProblem;

/// Saved agents.
const LAYOUT: Layout = Layout { name: "agent", version: 9 };

/// An agent: it applies, is admitted, and answers the questions of the rounds.
pub struct LocalAgent {
    deployment: Deployment,
    files: DiskFiles,
    document: Document,
    applicant: Applicant,
    /// The problem, if it does not depend on other agents' data.
    field: Option<Arc<dyn Field>>,
    /// The problem for the last announced columns of all agents, if it depends on them. An agent that is admitted again, or restored from a
    /// saved state, thus reads its data once.
    with_columns: Option<(Vec<ColumnSummary>, Arc<dyn Field>)>,
    /// Rows whose features or targets depend on other agents' rows, until the problem is built.
    unprepared: Option<OwnRows>,
    /// Its place in a generated problem, if it has claimed a number.
    place: Option<u32>,
    joined: Option<Joined>,
    /// The mark of its application since its admission. An admission with this mark starts a new federation, even with the same settings
    /// and agents as the last one.
    applied: Option<u64>,
    /// Whether it answers every message with its leave.
    is_leaving: bool,
    /// The rows as prepared, read again for questions after the last round.
    prepared: Option<Prepared>,
}

/// The state of an agent since its admission.
pub(super) struct Joined {
    /// The admission, with the start and the columns of all agents.
    admission: Vec<u8>,
    /// The last announced epoch since.
    epoch: Option<Vec<u8>>,
    federation: Federation,
    agent: usize,
    node: ClientNode,
}

impl Joined {
    pub(super) fn federation(&self) -> &Federation {
        &self.federation
    }

    pub(super) fn number(&self) -> usize {
        self.agent
    }

    /// This agent's weight.
    pub(super) fn weight(&self) -> f64 {
        self.federation.weights()[self.agent]
    }
}

/// The saved state: the mark of its data; the mark of its application since the admission; and once admitted, the admission, the last
/// announcement of an epoch, and the state of the node.
type Saved = (u64, Option<u64>, Option<SavedJoined>);

type SavedJoined = (Vec<u8>, Option<Vec<u8>>, Vec<u8>);

impl LocalAgent {
    /// An agent with the data of these files, globs, folders or data sets. `number` is its number in the federation; by default the server
    /// assigns one.
    ///
    /// # Errors
    /// When the data cannot be read or used, or when it is cancelled.
    pub fn new(deployment: &Deployment, data: &[String], places: &Places, number: Option<u32>, cancel: &Cancel) -> Result<Self> {
        let mut document = deployment.experiment.document.clone();
        let has_data = deployment.source.key().is_some();
        if has_data == data.is_empty() {
            let what = if has_data { "no data" } else { "data, and the problem is generated" };
            return Err(Error::new("data", what, if has_data { "files of this agent" } else { "no data" }));
        }
        put_data(&mut document, deployment.source, data)?;
        let files = DiskFiles::new(places.clone()).with_cancel(cancel);
        let experiment = Experiment::read(document.clone())?;
        let OwnData { rows, weighted, columns, mut field, form, unprepared, width } = OwnData::read(deployment, &experiment, &files)?;
        if field.is_none() && unprepared.is_none() && deployment.is_known {
            field = Some(built(&experiment, &files)?);
        }
        cancel.check()?;
        let mut applicant = Applicant::new(&deployment.terms, rows).with_weighted(weighted).with_columns(columns);
        if let Some(field) = &field {
            applicant = applicant.with_dim(field.dim());
        }
        if let Some(form) = form {
            applicant = applicant.with_form(form);
        }
        if let Some(number) = number {
            applicant = applicant.with_agent(number);
        }
        applicant.check().map_err(|e| Error::data("data", format!("{width} columns: {}", e.what), e.help))?;
        Ok(Self {
            deployment: deployment.clone(),
            files,
            document,
            applicant,
            field,
            unprepared,
            with_columns: None,
            place: number,
            joined: None,
            applied: None,
            is_leaving: false,
            prepared: None,
        })
    }

    /// The agent's number; `None` before it is admitted.
    pub fn number(&self) -> Option<usize> {
        self.joined.as_ref().map(|joined| joined.agent)
    }

    /// From now on the agent answers every message with its leave. An agent that is started again takes part again when the server asks it.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Processes a message of the server, and returns the answer, if any. A copy of the last message gets the same answer.
    ///
    /// # Errors
    /// When the message does not fit the agent's state. The agent is then unchanged.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.is_leaving {
            return Ok(Some(enrolment::farewell()));
        }
        if enrolment::is_admission(bytes) {
            return self.join(bytes).map(|()| None);
        }
        if enrolment::is_announcement(bytes) {
            return self.regroup(bytes).map(|()| None);
        }
        if enrolment::is_question(bytes) {
            return self.sums(bytes).map(Some);
        }
        if enrolment::is_enrolment(bytes) {
            let mark = self.saved_joined().map_or(0, |joined| enrolment::mark_of(&LAYOUT.write(&joined)));
            let application = self.applicant.apply_with(bytes, mark)?;
            self.applied = Some(mark);
            return Ok(Some(application));
        }
        match &mut self.joined {
            Some(joined) => joined.node.handle(bytes),
            None => Err(Error::refused_message("a message of a round before this agent was admitted", "an invitation, or an admission")),
        }
    }

    /// Joins the federation of an admission. A copy of the last admission has no effect, unless the agent has applied since.
    fn join(&mut self, bytes: &[u8]) -> Result<()> {
        if self.applied.is_none() && self.joined.as_ref().is_some_and(|joined| joined.admission == bytes) {
            return Ok(());
        }
        self.begin(bytes, self.applicant.admitted(bytes)?)
    }

    /// Joins the announced epoch: with its state, or from the beginning if it does not know the federation, or has applied since and the
    /// announcement has everything. A known epoch otherwise has no effect.
    fn regroup(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(joined) = &mut self.joined else { return self.begin(bytes, self.applicant.joined(bytes)?) };
        // The mark of its application makes the agent give up its state, even if the state is of this run: the server may have resumed from
        // an older state than the agent's.
        if let Some(admission) = self.applied.and_then(|mark| self.applicant.joined(bytes).ok().filter(|told| told.mark == mark)) {
            return self.begin(bytes, admission);
        }
        if enrolment::repeats(&joined.federation, joined.agent, bytes)? {
            return Ok(());
        }
        let (federation, agent) = enrolment::announced(&joined.federation, bytes)?;
        joined.node = joined.node.regrouped(&federation, agent)?;
        (joined.federation, joined.agent, joined.epoch) = (federation, agent, Some(bytes.to_vec()));
        self.applied = None;
        Ok(())
    }

    /// Starts with the content of an admission, or of an announcement to a new agent. An agent with a state must have applied with this
    /// mark; otherwise repeated old messages could erase its state.
    fn begin(&mut self, bytes: &[u8], admission: Admission) -> Result<()> {
        let Admission { federation, agent, columns, mark, .. } = admission;
        if self.joined.is_some() && self.applied != Some(mark) {
            return Err(Error::refused_message("an admission for which this agent has not applied", "one after an invitation"));
        }
        self.deployment.check_agent(federation.agents(), federation.dim())?;
        let field = match (&self.field, &self.with_columns) {
            (Some(field), _) => Arc::clone(field),
            (None, Some((of, field))) if *of == columns => Arc::clone(field),
            _ => {
                let field = self.built_with(&columns)?;
                self.with_columns = Some((columns, Arc::clone(&field)));
                field
            }
        };
        let place = if self.deployment.source == Source::Generated { self.place.map_or(agent, |place| place as usize) } else { 0 };
        let mut node = ClientNode::new(&federation, &field, place, agent)?;
        if let Some(rounds) = self.deployment.experiment.federation.longest_gap {
            node = node.with_longest_gap(rounds);
        }
        self.applied = None;
        self.joined = Some(Joined { admission: bytes.to_vec(), epoch: None, federation, agent, node });
        Ok(())
    }

    /// The problem with the columns of all agents.
    fn built_with(&mut self, columns: &[ColumnSummary]) -> Result<Arc<dyn Field>> {
        if self.deployment.source != Source::Rows {
            return built(&Experiment::read(with_ranges(&self.document, columns)?)?, &self.files);
        }
        let experiment = Experiment::read(self.document.clone())?;
        let own = match self.unprepared.take() {
            Some(own) => own,
            None => OwnRows::read(&experiment, &self.files)?,
        };
        own.build(&experiment, &self.files, Some(columns)).map(|(field, _)| field)
    }

    pub(super) fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    pub(super) fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    /// The problem on its own data.
    pub(super) fn own_field(&self) -> Result<Arc<dyn Field>> {
        let field = self.field.as_ref().or(self.with_columns.as_ref().map(|(_, field)| field));
        field.cloned().ok_or_else(|| Error::refused_message("a question about sums before the data are prepared", "an admission"))
    }

    /// Its logs, which are read again, with the ranges of all agents' columns.
    pub(super) fn surveyed(&self) -> Result<(Logs, Surveyed)> {
        let document = match &self.with_columns {
            Some((columns, _)) => with_ranges(&self.document, columns)?,
            None => self.document.clone(),
        };
        let logs: Logs = settings_of(&Experiment::read(document)?)?;
        let surveyed = logs.survey(&self.files).map_err(|e| e.inside("problem"))?;
        if surveyed.transitions() as u64 != self.applicant.rows() {
            return Err(other_data());
        }
        Ok((logs, surveyed))
    }

    /// Its prepared rows, which are read again: the problem keeps them in another form.
    pub(super) fn prepared(&mut self) -> Result<&Prepared> {
        if self.prepared.is_none() {
            let experiment = Experiment::read(self.document.clone())?;
            let own = OwnRows::read(&experiment, &self.files)?;
            if own.rows != self.applicant.rows() {
                return Err(other_data());
            }
            let columns = self.with_columns.as_ref().map(|(columns, _)| &columns[..]);
            self.prepared = Some(own.prepared(&experiment, &self.files, columns)?);
        }
        Ok(self.prepared.as_ref().expect("the rows were prepared"))
    }

    /// The state as bytes. An agent that saves it before each answer leaves can be restarted at any time.
    pub fn save(&self) -> Vec<u8> {
        let saved: Saved = (self.applicant.mark_of_data(), self.applied, self.saved_joined());
        LAYOUT.write(&saved)
    }

    fn saved_joined(&self) -> Option<SavedJoined> {
        self.joined.as_ref().map(|joined| (joined.admission.clone(), joined.epoch.clone(), joined.node.save()))
    }

    /// Restores a state of [`LocalAgent::save`], with the same settings and data.
    ///
    /// # Errors
    /// When it is no such state, is damaged, has another version's layout, or belongs to a federation with other data. The agent is then
    /// unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (data, applied, saved): Saved = LAYOUT.read(bytes)?;
        if data != self.applicant.mark_of_data() {
            // An admitted agent has stated its rows, by which it is weighted. Other agents can apply again.
            return if saved.is_some() { Err(other_data()) } else { Ok(()) };
        }
        let before = (self.joined.take(), self.applied);
        let mut restored = || -> Result<()> {
            let Some((admission, epoch, node)) = &saved else { return Ok(()) };
            let join = if enrolment::is_admission(admission) { Self::join } else { Self::regroup };
            join(self, admission).map_err(|_| LAYOUT.foreign())?;
            if let Some(epoch) = epoch {
                self.regroup(epoch).map_err(|_| LAYOUT.foreign())?;
            }
            self.joined.as_mut().map_or(Ok(()), |joined| joined.node.restore(node))
        };
        match restored() {
            Ok(()) => self.applied = applied,
            Err(e) => {
                (self.joined, self.applied) = before;
                // Errors about contents of the state name the message or the node; here the state is at fault.
                return Err(if e.kind() == ErrorKind::Format { e } else { LAYOUT.foreign() });
            }
        }
        Ok(())
    }
}

/// The error about a state that was saved with other data.
fn other_data() -> Error {
    let help = "the data with which this agent takes part; with others it leaves first (`leave`), and comes back without its state";
    Error::data("data", "rows, columns or settings that are not those with which this agent's state was saved", help)
}

/// The problem of an experiment on one agent's data.
fn built(experiment: &Experiment, files: &DiskFiles) -> Result<Arc<dyn Field>> {
    Ok(Arc::clone(BuiltProblem::new(experiment, files, Isa::best())?.shared_field()))
}

/// An agent's data, without knowledge of other agents.
#[derive(Default)]
struct OwnData {
    rows: u64,
    /// The sum of their weights, if rows have weights.
    weighted: Option<f64>,
    columns: Vec<ColumnSummary>,
    field: Option<Arc<dyn Field>>,
    form: Option<String>,
    unprepared: Option<OwnRows>,
    /// The number of columns in its files.
    width: usize,
}

impl OwnData {
    fn read(deployment: &Deployment, experiment: &Experiment, files: &DiskFiles) -> Result<Self> {
        match deployment.source {
            Source::Logs => {
                let logs: Logs = settings_of(experiment)?;
                let surveyed = logs.survey(files).map_err(|e| e.inside("problem"))?;
                if surveyed.sources.len() != 1 {
                    return Err(Error::data("data", format!("{} files", surveyed.sources.len()), "one file, which is one agent's"));
                }
                let columns = if deployment.is_known { Vec::new() } else { summaries(&surveyed)? };
                let (rows, form) = (surveyed.transitions() as u64, Some(weights::form_of_logs(surveyed.columns())));
                Ok(Self { rows, columns, form, width: surveyed.columns().len(), ..Self::default() })
            }
            Source::Rows => {
                let own = OwnRows::read(experiment, files)?;
                let (rows, width) = (own.rows, own.levels.plain + own.levels.categories.len());
                let (columns, weighted) = (levels::summaries(&own.levels, rows, &own.moments)?, own.weighted);
                if own.levels.are_known() && own.moments.is_empty() {
                    let (field, form) = own.build(experiment, files, None)?;
                    return Ok(Self { rows, weighted, columns, field: Some(field), form: Some(form), width, ..Self::default() });
                }
                levels::check_targets(experiment)?;
                levels::preparation(experiment)?.check_rows(&own.sets, &own.levels).map_err(|e| e.inside("problem"))?;
                let form = Some(json!(LevelsForm::of(&own.levels)).to_string());
                Ok(Self { rows, weighted, columns, form, unprepared: Some(own), width, ..Self::default() })
            }
            Source::Generated => Ok(Self { rows: 1, ..Self::default() }),
        }
    }
}

/// An agent's rows as read from files.
pub(super) struct OwnRows {
    pub(super) sets: Vec<Dataset>,
    /// Their levels and classes.
    pub(super) levels: RowLevels,
    /// The number of fitted rows.
    pub(super) rows: u64,
    /// The sum of their weights, if rows have weights.
    weighted: Option<f64>,
    /// The moments of their plain columns, if features are standardised.
    moments: Vec<RunningMoments>,
}

impl OwnRows {
    fn read(experiment: &Experiment, files: &DiskFiles) -> Result<Self> {
        let mut how = levels::preparation(experiment)?;
        // Other agents' files may have them.
        how.wanted.may_end_before = true;
        let inside = |e: Error| e.inside("problem");
        let mut sets = how.read(files).map_err(inside)?;
        let levels = how.levels_of(&mut sets).map_err(inside)?;
        levels::check_standardise(&how, &levels)?;
        let fitted = how.fitted_rows(&sets).map_err(inside)?;
        let weights = how.weights_of(&sets, &fitted).map_err(inside)?;
        let moments = if how.standardise { how.moments_of(&sets, &levels, &fitted, &weights) } else { Vec::new() };
        let weighted = how.special.row_weights.is_some().then(|| weights.iter().sum());
        Ok(Self { sets, levels, rows: how.samples.unwrap_or(fitted.len()) as u64, weighted, moments })
    }

    /// The problem on these rows with the levels and classes of all agents, or their own, and their form.
    fn build(self, experiment: &Experiment, files: &DiskFiles, columns: Option<&[ColumnSummary]>) -> Result<(Arc<dyn Field>, String)> {
        let (kind, table) = made::problem_of(experiment);
        let (own, sets) = (LevelsForm::of(&self.levels), self.sets);
        // The kinds differ only in the types of their settings.
        macro_rules! built_as {
            ($kind:ty) => {{
                let settings: $kind = settings_of(experiment)?;
                let how = levels::of_all(settings.preparation(), own, columns);
                let memory = <$kind>::memory_by(&how, &sets, rayon::current_num_threads());
                let mut form = String::new();
                let problem = BuiltProblem::of_data(experiment, files, memory, |sampling| {
                    let prepared = how.prepare_sets(sets, files.cancel())?;
                    form = form_of_rows(&prepared, &table);
                    let Prepared { train, weights, .. } = prepared;
                    settings.field_of(train, weights, sampling, Isa::best())
                })?;
                (problem, form)
            }};
        }
        let (problem, form) = match kind.as_str() {
            "logistic" => built_as!(Logistic),
            "least-squares" => built_as!(LeastSquares),
            _ => built_as!(GeneralisedLinear),
        };
        Ok((Arc::clone(problem.shared_field()), form))
    }
}

/// The summaries of the columns of an agent's states and next states.
fn summaries(logs: &Surveyed) -> Result<Vec<ColumnSummary>> {
    let moments = logs.moments()?.remove(0);
    let columns = logs.columns().iter().zip(&logs.facts[0].seen).zip(moments);
    columns.map(|((name, range), moments)| ColumnSummary::new(name.clone(), *range, moments)).collect()
}

/// The document with the needed ranges of all agents' columns, except those that it names.
fn with_ranges(document: &Document, columns: &[ColumnSummary]) -> Result<Document> {
    let mut document = document.clone();
    let logs: Logs = settings_of(&Experiment::read(document.clone())?)?;
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let needs = logs.features.needs(&names).map_err(|e| e.inside("problem"))?;
    let mut ranges = Table::new();
    let needed = columns.iter().zip(needs).filter(|(_, needs)| needs.range);
    for (column, (low, high)) in needed.filter_map(|(column, _)| Some((column, column.range()?))) {
        ranges.insert(column.name.clone(), Value::Array(vec![Value::Float(low), Value::Float(high)]));
    }
    if let Some(given) = document.table.get("problem").and_then(|problem| problem.get("ranges")).and_then(Value::as_table) {
        ranges.extend(given.clone());
    }
    if let Some(problem) = document.table.get_mut("problem").and_then(Value::as_table_mut) {
        problem.insert("ranges".into(), Value::Table(ranges));
    }
    Ok(document)
}
