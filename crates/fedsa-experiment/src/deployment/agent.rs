//! One agent of a deployment, with its own data.

use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::enrolment::{self, Admission, Applicant, ColumnSummary};
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::node::ClientNode;
use fedsa::problem::Field;
use fedsa::saved::Layout;
use fedsa::secure::{Secret, random_bytes};
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_problems::Files as _;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::survey::Surveyed;
use fedsa_problems::rows::dataset::Dataset;
use fedsa_problems::rows::preparation::levels::RowLevels;
use fedsa_problems::rows::preparation::{Preparation, Prepared};
use fedsa_problems::rows::regression::{GeneralisedLinear, LeastSquares, Logistic};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::audit::{Audit, Left};
use super::disclosure::{DisclosureRules, undeclared_ranges};
use super::forms::{form_of_logs, form_of_rows};
use super::levels::{self, LevelsForm};
use super::{Deployment, Source, logs_of, put_data, settings_of, surveyed};
use crate::config::{Document, Experiment};
use crate::made;
use crate::plan::BuiltProblem;

/// Saved agents.
const LAYOUT: Layout = Layout { name: "agent", version: 10 };

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
    /// The hash of its files.
    contents: [u8; 32],
    /// Their keyed hash, which its state holds.
    keyed: KeyedHash,
    /// Whether it answers every message with its leave.
    is_leaving: bool,
    rules: DisclosureRules,
    /// The fitted rows.
    rows: u64,
    /// Why its rules let nothing leave.
    refusal: Option<Error>,
    /// The file that records what leaves.
    audit: Option<Audit>,
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

/// The saved state: a keyed hash of its data; and once admitted, the admission, the last announcement of an epoch, and the state of the
/// node.
type Saved = (KeyedHash, Option<(Vec<u8>, Option<Vec<u8>>, Vec<u8>)>);

/// A random key, and the SHA-256 hash of the key with the hash of an agent's files. It tells nothing about the data without the data.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct KeyedHash {
    key: [u8; 32],
    hash: [u8; 32],
}

impl KeyedHash {
    fn new(key: [u8; 32], contents: &[u8; 32]) -> Self {
        Self { key, hash: Sha256::digest([key, *contents].as_flattened()).into() }
    }
}

impl LocalAgent {
    /// [`LocalAgent::with_rules`] with the default rules.
    ///
    /// # Errors
    /// As [`LocalAgent::with_rules`].
    pub fn new(deployment: &Deployment, data: &[String], places: &Places, number: Option<u32>, cancel: &Cancel) -> Result<Self> {
        Self::with_rules(deployment, data, places, number, DisclosureRules::default(), cancel)
    }

    /// An agent with the data of these files, globs, folders or data sets, and these rules for what may leave it. `number` is its number in
    /// the federation; by default the server assigns one. Data that break a rule are no error: the agent refuses every message with the
    /// rule ([`LocalAgent::refusal`]).
    ///
    /// # Errors
    /// When the data cannot be read or used, or when it is cancelled.
    pub fn with_rules(
        deployment: &Deployment,
        data: &[String],
        places: &Places,
        number: Option<u32>,
        rules: DisclosureRules,
        cancel: &Cancel,
    ) -> Result<Self> {
        let mut document = deployment.experiment.document.clone();
        let has_data = deployment.source.key().is_some();
        if has_data == data.is_empty() {
            let what = if has_data { "no data" } else { "data, and the problem is generated" };
            return Err(Error::new("data", what, if has_data { "files of this agent" } else { "no data" }));
        }
        put_data(&mut document, deployment.source, data)?;
        let files = DiskFiles::new(places.clone()).with_cancel(cancel);
        let experiment = Experiment::read(document.clone())?;
        let own = OwnData::read(deployment, &experiment, &files, &rules)?;
        let OwnData { rows, weighted, columns, mut field, dim, form, unprepared, width, is_open, mut refusal } = own;
        if field.is_none() && unprepared.is_none() && !is_open {
            field = Some(built(&experiment, &files)?);
        }
        if let (Some(field), true) = (&field, has_data) {
            refusal = refusal.or(rules.check_parameters(field.dim(), rows, None).err());
        }
        cancel.check()?;
        let mut applicant = Applicant::new(&deployment.terms, rows).with_weighted(weighted).with_columns(columns);
        applicant = field.as_ref().map(|field| field.dim()).or(dim).into_iter().fold(applicant, Applicant::with_dim);
        applicant = form.into_iter().fold(applicant, Applicant::with_form);
        applicant = number.into_iter().fold(applicant, Applicant::with_agent);
        let key = random_bytes()?;
        applicant = with_key(applicant, deployment, &key);
        applicant.check().map_err(|e| Error::data("data", format!("{width} columns: {}", e.what), e.help))?;
        let contents = files.contents()?;
        let keyed = KeyedHash::new(key, &contents);
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
            contents,
            keyed,
            is_leaving: false,
            rules,
            rows,
            refusal,
            audit: None,
            prepared: None,
        })
    }

    /// From now on the agent records every message that leaves it in a file, before the message is returned.
    pub fn set_audit(&mut self, audit: Audit) {
        self.audit = Some(audit);
    }

    /// Why the agent's rules let nothing leave; `None` if they allow its data.
    pub fn refusal(&self) -> Option<&Error> {
        self.refusal.as_ref()
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
    /// When the message does not fit the agent's state, or the agent's rules refuse it. The agent is then unchanged. When the record of
    /// what leaves cannot be written.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let answer = self.answer(bytes);
        if let Some(mut audit) = self.audit.take() {
            let written = match &answer {
                Ok(None) => Ok(()),
                Ok(Some(answer)) => audit.append(&self.left(answer)),
                Err(e) => audit.append(&Left::refusal(e)),
            };
            self.audit = Some(audit);
            written?;
        }
        answer
    }

    /// What the record says of an answer.
    fn left(&self, answer: &[u8]) -> Left {
        let left = Left::message(answer);
        let Some(joined) = &self.joined else { return left };
        let left = left.of(joined.federation.digest(), joined.federation.epoch());
        match joined.node.parts_of(answer) {
            Ok((round, exchange, parts)) => left.in_round(round, exchange, &parts),
            Err(_) => left,
        }
    }

    fn answer(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.is_leaving {
            return Ok(Some(enrolment::farewell()));
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
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
            let application = self.applicant.apply(bytes)?;
            if self.joined.as_ref().is_some_and(|joined| enrolment::run_of(bytes).is_ok_and(|run| run != joined.federation.run())) {
                return Err(Error::other_state("an invitation to another federation"));
            }
            return Ok(Some(application));
        }
        match &mut self.joined {
            Some(joined) => joined.node.handle(bytes),
            None => Err(Error::refused_message("a message of a round before this agent was admitted", "an invitation, or an admission")),
        }
    }

    /// Joins the federation of an admission. An agent with a state of this federation at its start goes on.
    fn join(&mut self, bytes: &[u8]) -> Result<()> {
        let admission = self.applicant.admitted(bytes)?;
        match &self.joined {
            None => self.begin(bytes, admission),
            Some(joined) if (joined.federation.digest(), joined.agent) == (admission.federation.digest(), admission.agent) => Ok(()),
            Some(_) => Err(Error::other_state("an admission to a federation")),
        }
    }

    /// Joins the announced epoch: with its state, or from the beginning if it has none. A known epoch has no effect.
    fn regroup(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(joined) = &mut self.joined else { return self.begin(bytes, self.applicant.joined(bytes)?) };
        if enrolment::repeats(&joined.federation, joined.agent, bytes)? {
            return Ok(());
        }
        let (federation, agent) = enrolment::announced(&joined.federation, bytes)?;
        joined.node = joined.node.regrouped(&federation, agent)?.with_secret(&federation, &Secret::of_agent(&self.keyed.key))?;
        (joined.federation, joined.agent, joined.epoch) = (federation, agent, Some(bytes.to_vec()));
        Ok(())
    }

    /// Starts with the content of an admission, or of an announcement to a new agent.
    fn begin(&mut self, bytes: &[u8], admission: Admission) -> Result<()> {
        let Admission { federation, agent, columns, .. } = admission;
        self.deployment.check_agent(federation.agents(), federation.dim())?;
        if self.deployment.source != Source::Generated {
            self.rules.check_parameters(federation.dim(), self.rows, federation.weights().get(agent).copied())?;
        }
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
        let node = ClientNode::new(&federation, &field, place, agent)?;
        let node = node.with_least_agents(self.rules.least_agents).with_rounds(self.deployment.run.rounds);
        let node = node.with_secret(&federation, &Secret::of_agent(&self.keyed.key))?;
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

    /// Its node in the rounds.
    ///
    /// # Errors
    /// Before it is admitted.
    pub(super) fn node(&mut self) -> Result<&mut ClientNode> {
        let none = || Error::refused_message("a question about sums before this agent was admitted", "an admission");
        self.joined.as_mut().map(|joined| &mut joined.node).ok_or_else(none)
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
        let experiment = Experiment::read(document)?;
        let (logs, surveyed) = (logs_of(&experiment)?, surveyed(&experiment, &self.files)?);
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
        let joined = self.joined.as_ref().map(|joined| (joined.admission.clone(), joined.epoch.clone(), joined.node.save()));
        let saved: Saved = (self.keyed.clone(), joined);
        LAYOUT.write(&saved)
    }

    /// Restores a state of [`LocalAgent::save`], with the same settings and data.
    ///
    /// # Errors
    /// When it is no such state, is damaged, has another version's layout, or belongs to a federation with other data. The agent is then
    /// unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (keyed, saved): Saved = LAYOUT.read(bytes)?;
        if keyed != KeyedHash::new(keyed.key, &self.contents) {
            // An admitted agent has stated its rows, by which it is weighted. Other agents can apply again.
            return if saved.is_some() { Err(other_data()) } else { Ok(()) };
        }
        let before = (self.joined.take(), std::mem::replace(&mut self.keyed, keyed));
        let mut restored = || -> Result<()> {
            let Some((admission, epoch, node)) = &saved else { return Ok(()) };
            let join = if enrolment::is_admission(admission) { Self::join } else { Self::regroup };
            join(self, admission).map_err(|e| if e.code().is_disclosure() { e } else { LAYOUT.foreign() })?;
            if let Some(epoch) = epoch {
                self.regroup(epoch).map_err(|_| LAYOUT.foreign())?;
            }
            self.joined.as_mut().map_or(Ok(()), |joined| joined.node.restore(node))
        };
        if let Err(e) = restored() {
            (self.joined, self.keyed) = before;
            // Errors about contents of the state name the message or the node; here the state is at fault.
            return Err(if e.kind() == ErrorKind::Format || e.code().is_disclosure() { e } else { LAYOUT.foreign() });
        }
        self.applicant = with_key(self.applicant.clone(), &self.deployment, &self.keyed.key);
        Ok(())
    }
}

/// An applicant with the public key that belongs to an agent's random bytes, if sums are secure.
fn with_key(applicant: Applicant, deployment: &Deployment, random: &[u8; 32]) -> Applicant {
    if deployment.terms.has_secure_sums() { applicant.with_key(Secret::of_agent(random).public()) } else { applicant }
}

/// The error about a state that was saved with other data.
fn other_data() -> Error {
    let help = "the data with which this agent takes part; with others it leaves first (`leave`), and comes back without its state";
    Error::data("data", "data that are not those with which this agent's state was saved", help)
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
    /// The number of components of the model, if it is known without the field.
    dim: Option<usize>,
    form: Option<String>,
    unprepared: Option<OwnRows>,
    /// The number of columns in its files.
    width: usize,
    /// Whether features of logs depend on other agents' ranges.
    is_open: bool,
    /// The rule that the data break.
    refusal: Option<Error>,
}

impl OwnData {
    fn read(deployment: &Deployment, experiment: &Experiment, files: &DiskFiles, rules: &DisclosureRules) -> Result<Self> {
        match deployment.source {
            Source::Logs => {
                let (logs, surveyed) = (logs_of(experiment)?, surveyed(experiment, files)?);
                if surveyed.sources.len() != 1 {
                    return Err(Error::data("data", format!("{} files", surveyed.sources.len()), "one file, which is one agent's"));
                }
                let refusal = broken(rules.check_logs(&surveyed, &logs))?;
                let is_open = !deployment.is_known && !undeclared_ranges(surveyed.columns(), &logs)?.is_empty();
                let columns = if is_open { summaries(&surveyed)? } else { Vec::new() };
                let (rows, form) = (surveyed.transitions() as u64, Some(form_of_logs(surveyed.columns())));
                Ok(Self { rows, columns, form, width: surveyed.columns().len(), is_open, refusal, ..Self::default() })
            }
            Source::Rows => {
                let own = OwnRows::read(experiment, files)?;
                let how = levels::preparation(experiment)?;
                let (rows, width) = (own.rows, own.levels.plain + own.levels.categories.len());
                let (refusal, weighted) = (broken(rules.check_rows(&own.sets, &own.levels, &how, &own.fitted))?, own.weighted);
                if own.levels.are_known() && how.standardise {
                    return own.with_moments(experiment, files, refusal);
                }
                if own.levels.are_known() {
                    let (field, form) = own.build(experiment, files, None)?;
                    return Ok(Self { rows, weighted, field: Some(field), form: Some(form), width, refusal, ..Self::default() });
                }
                let columns = levels::summaries(&own.levels, rows)?;
                levels::check_targets(experiment)?;
                how.check_rows(&own.sets, &own.levels).map_err(|e| e.inside("problem"))?;
                let form = Some(json!(LevelsForm::of(&own.levels)).to_string());
                Ok(Self { rows, weighted, columns, form, unprepared: Some(own), width, refusal, ..Self::default() })
            }
            Source::Generated => Ok(Self { rows: 1, ..Self::default() }),
        }
    }
}

/// The refusal of a rule, which is no failure of the agent.
fn broken(checked: Result<()>) -> Result<Option<Error>> {
    match checked {
        Err(e) if e.code().is_disclosure() => Ok(Some(e)),
        other => other.map(|()| None),
    }
}

/// An agent's rows as read from files.
pub(super) struct OwnRows {
    pub(super) sets: Vec<Dataset>,
    /// Their levels and classes.
    pub(super) levels: RowLevels,
    /// The number of fitted rows.
    pub(super) rows: u64,
    /// These rows among those of all sets.
    fitted: Vec<usize>,
    /// The sum of their weights, if rows have weights.
    weighted: Option<f64>,
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
        let mut fitted = how.fitted_rows(&sets).map_err(inside)?;
        let weights = how.weights_of(&sets, &fitted).map_err(inside)?;
        let weighted = how.special.row_weights.is_some().then(|| weights.iter().sum());
        let rows = how.samples.unwrap_or(fitted.len());
        // The rows of one agent keep their order.
        fitted.truncate(rows);
        Ok(Self { sets, levels, rows: rows as u64, fitted, weighted })
    }

    /// The data of an agent whose features are standardised: it states the moments of its features, whose scales depend on all agents.
    fn with_moments(self, experiment: &Experiment, files: &DiskFiles, refusal: Option<Error>) -> Result<OwnData> {
        let (_, table) = made::problem_of(experiment);
        let how = levels::preparation(experiment)?;
        let intercept = usize::from(how.intercept);
        let plain = Preparation { standardise: false, ..how.of_one() };
        let prepared = plain.prepare_sets(self.sets.clone(), files.cancel()).map_err(|e| e.inside("problem"))?;
        let columns = levels::moments(&prepared)?;
        let (rows, weighted, width, form) = (self.rows, self.weighted, columns.len(), Some(form_of_rows(&prepared, &table)));
        let dim = Some((width + intercept) * prepared.targets.outputs());
        Ok(OwnData { rows, weighted, columns, dim, form, unprepared: Some(self), width, refusal, ..OwnData::default() })
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
    let logs = logs_of(&Experiment::read(document.clone())?)?;
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
