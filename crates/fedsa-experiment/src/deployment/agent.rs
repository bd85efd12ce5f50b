//! One agent of a deployment, with its own data.

use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::enrolment::{Admission, Applicant, ColumnSummary, is_admission, is_enrolment};
use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::node::ClientNode;
use fedsa::problem::Field;
use fedsa::problem::Files as _;
use fedsa::problem::logs::Logs;
use fedsa::problem::preparation::Prepared;
use fedsa::problem::regression::{GeneralisedLinear, LeastSquares, Logistic};
use fedsa::problem::survey::Surveyed;
use fedsa::saved::Layout;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use toml::{Table, Value};

use super::{Deployment, Source, put_data, settings_of};
use crate::config::{Document, Experiment};
use crate::made;
use crate::plan::BuiltProblem;

/// Saved agents.
const LAYOUT: Layout = Layout { name: "agent", version: 2 };

/// An agent: it applies, is admitted, and answers the questions of rounds.
pub struct LocalAgent {
    deployment: Deployment,
    files: DiskFiles,
    document: Document,
    applicant: Applicant,
    /// The problem, where it does not depend on other agents' data.
    field: Option<Arc<dyn Field>>,
    joined: Option<Joined>,
}

/// What an agent has since it was admitted.
struct Joined {
    admission: Vec<u8>,
    agent: usize,
    node: ClientNode,
}

/// The saved state of an agent: once it is admitted, the admission and the state of the node.
type Saved = Option<(Vec<u8>, Vec<u8>)>;

impl LocalAgent {
    /// An agent with the data that these files, globs, folders or names of data sets have; `number` is its number in the federation, or the
    /// server gives it one.
    ///
    /// # Errors
    /// When the data cannot be read or used, or it was cancelled.
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
        let (mut columns, mut field) = (Vec::new(), None);
        let rows = match deployment.source {
            Source::Logs => {
                let logs: Logs = settings_of(&experiment)?;
                let surveyed = logs.survey(&files).map_err(|e| e.inside("problem"))?;
                if surveyed.sources.len() != 1 {
                    return Err(Error::data("data", format!("{} files", surveyed.sources.len()), "one file, which is one agent's"));
                }
                if !deployment.is_known {
                    columns = summaries(&surveyed)?;
                }
                surveyed.transitions() as u64
            }
            Source::Rows => {
                let (rows, built) = built_rows(&experiment, &files)?;
                field = Some(built);
                rows
            }
            Source::Generated => 1,
        };
        if field.is_none() && deployment.is_known {
            field = Some(built(&experiment, &files)?);
        }
        cancel.check()?;
        let mut applicant = Applicant::new(&deployment.terms, rows).with_columns(columns);
        if let Some(field) = &field {
            applicant = applicant.with_dim(field.dim());
        }
        if let Some(number) = number {
            applicant = applicant.with_agent(number);
        }
        Ok(Self { deployment: deployment.clone(), files, document, applicant, field, joined: None })
    }

    /// The agent's number, once it is admitted.
    pub fn number(&self) -> Option<usize> {
        self.joined.as_ref().map(|joined| joined.agent)
    }

    /// Processes a message of the server, and returns the answer, if it wants one. A copy of the last message gets the same answer.
    ///
    /// # Errors
    /// When the server does not send such a message to this agent now. The agent is then unchanged.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        if is_admission(bytes) {
            return self.join(bytes).map(|()| None);
        }
        if is_enrolment(bytes) {
            return self.applicant.apply(bytes).map(Some);
        }
        match &mut self.joined {
            Some(joined) => joined.node.handle(bytes),
            None => Err(Error::refused_message("a message of a round before this agent was admitted", "an invitation, or an admission")),
        }
    }

    /// Takes part in the federation that an admission tells of. A copy of the last admission changes nothing.
    fn join(&mut self, bytes: &[u8]) -> Result<()> {
        if self.joined.as_ref().is_some_and(|joined| joined.admission == bytes) {
            return Ok(());
        }
        let Admission { federation, agent, columns, .. } = self.applicant.admitted(bytes)?;
        let field = match &self.field {
            Some(field) => Arc::clone(field),
            None => built(&Experiment::read(with_ranges(&self.document, &columns)?)?, &self.files)?,
        };
        let place = if self.deployment.source == Source::Generated { agent } else { 0 };
        let node = ClientNode::new(&federation, &field, place, agent)?;
        self.joined = Some(Joined { admission: bytes.to_vec(), agent, node });
        Ok(())
    }

    /// The state as bytes. An agent whose state is kept before its answer is sent can be started again at any time.
    pub fn save(&self) -> Vec<u8> {
        let saved: Saved = self.joined.as_ref().map(|joined| (joined.admission.clone(), joined.node.save()));
        LAYOUT.write(&saved)
    }

    /// Goes on from a state that [`LocalAgent::save`] returned, with the same settings and data.
    ///
    /// # Errors
    /// When it is not such a state, is damaged, or was saved by a version with another layout. The agent is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let saved: Saved = LAYOUT.read(bytes)?;
        let before = self.joined.take();
        let mut restored = || -> Result<()> {
            let Some((admission, node)) = &saved else { return Ok(()) };
            self.join(admission).map_err(|_| LAYOUT.foreign())?;
            self.joined.as_mut().map_or(Ok(()), |joined| joined.node.restore(node))
        };
        restored().inspect_err(|_| self.joined = before)
    }
}

/// The problem of an experiment on one agent's data.
fn built(experiment: &Experiment, files: &DiskFiles) -> Result<Arc<dyn Field>> {
    Ok(Arc::clone(BuiltProblem::new(experiment, files, Isa::best())?.shared_field()))
}

/// The number of an agent's rows that are fitted, and the problem on them. Files are read once.
fn built_rows(experiment: &Experiment, files: &DiskFiles) -> Result<(u64, Arc<dyn Field>)> {
    let inside = |e: Error| e.inside("problem");
    // The kinds differ in the types of their settings alone.
    macro_rules! built_as {
        ($kind:ty) => {{
            let settings: $kind = settings_of(experiment)?;
            let sets = settings.read(files).map_err(inside)?;
            let memory = settings.memory_of(&sets, rayon::current_num_threads());
            let mut rows = 0;
            let problem = BuiltProblem::of_data(experiment, files, memory, |sampling| {
                let Prepared { train, weights, .. } = settings.preparation().prepare_sets(sets, files.cancel())?;
                rows = train.rows.len() as u64;
                settings.field_of(train, weights, sampling, Isa::best())
            })?;
            (rows, problem)
        }};
    }
    let (kind, _) = made::problem_of(experiment);
    let (rows, problem) = match kind.as_str() {
        "logistic" => built_as!(Logistic),
        "least-squares" => built_as!(LeastSquares),
        _ => built_as!(GeneralisedLinear),
    };
    Ok((rows, Arc::clone(problem.shared_field())))
}

/// What is known of the columns of an agent's states and next states.
fn summaries(logs: &Surveyed) -> Result<Vec<ColumnSummary>> {
    let moments = logs.moments()?.remove(0);
    let columns = logs.columns().iter().zip(&logs.facts[0].seen).zip(moments);
    columns.map(|((name, range), moments)| ColumnSummary::new(name.clone(), *range, moments)).collect()
}

/// The document with the ranges of all agents' columns that its features need, except those that it names.
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
