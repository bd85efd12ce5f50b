//! The settings of a federation that performs a task of one process: its experiment without the data.

use fedsa::error::{Error, Result, in_quotes};
use fedsa::note::{Note, NoteCode};
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::partition::Partition;
use fedsa_problems::rows::preparation::targets::{ClassLabel, Targets};
use toml::{Table, Value};

use super::{Deployment, Source, limits, source_of};
use crate::config::Document;
use crate::evaluate::Evaluation;
use crate::fit::Fit;
use crate::improve::PolicySearch;
use crate::resolve;

/// The settings of a federation, and the differences from one process.
#[non_exhaustive]
pub struct TaskSettings {
    /// The text of `settings.toml`.
    pub text: String,
    /// The number of agents in the data that were read.
    pub agents: usize,
    /// Notes for readers.
    pub notes: Vec<Note>,
}

/// The settings of a federation that fits the model of `fit` to its agents' own rows.
///
/// # Errors
/// When a federation cannot do it yet; names the setting.
pub fn of_fit(fit: &Fit) -> Result<TaskSettings> {
    let settings = fit.settings();
    if !settings.compare.is_empty() {
        return Err(limits::refusal("compare"));
    }
    let mut more = Table::new();
    if let Some(covariance) = settings.inference {
        more.insert("inference".into(), Value::String(covariance.name().into()));
        more.insert("level".into(), Value::Float(settings.level));
    }
    let mut document = fit.experiment().document.clone();
    let declared = declare(&mut document, fit.prepared());
    let mut task = of_document(document, fit.rows_read().len().max(1), more)?;
    task.notes.extend(declared);
    let given = [("group", settings.group.is_some()), ("partition", settings.partition.is_some()), ("agents", settings.agents.is_some())];
    let given = given.into_iter().find(|(_, is_given)| *is_given).map(|(setting, _)| setting);
    if settings.dealing() != Partition::Files {
        task.notes.push(agents_are_machines(&given.map_or("fedsa".into(), |setting| format!("`{setting}`"))));
    }
    Ok(task)
}

/// The settings of a federation that evaluates a policy by its agents' own logs.
///
/// # Errors
/// When a federation cannot do it yet; names the setting.
pub fn of_evaluation(evaluation: &Evaluation) -> Result<TaskSettings> {
    if evaluation.data.against.is_some() {
        return Err(limits::refusal("against"));
    }
    let level = Table::from_iter([("level".to_string(), Value::Float(evaluation.data.policy_value.level))]);
    of_document(evaluation.experiment().document.clone(), evaluation.data.logs.facts.len(), level)
}

/// The settings of a federation that improves a policy by its agents' own logs. Agents hold no episodes out: the value of the policy is that of
/// `fedsa evaluate --policy` on other episodes.
///
/// # Errors
/// When a federation cannot do it yet; names the setting.
pub fn of_improvement(search: &PolicySearch) -> Result<TaskSettings> {
    let mut document = search.experiment().document.clone();
    let run = document.table.get_mut("run").and_then(Value::as_table_mut);
    if let Some(stop) = run.and_then(|run| run.get_mut("stop")).and_then(Value::as_table_mut)
        && let Some(tol) = stop.remove("relative_residual").and_then(|tol| tol.as_float())
    {
        // A server does not see the operator at the start: it first asks for the behaviour's values.
        stop.insert("residual".into(), Value::Float(tol * search.residual_at_zero()));
    }
    let problem = document.table.get_mut("problem").and_then(Value::as_table_mut);
    let held = problem.is_some_and(|problem| ["holdout", "holdout_seed"].map(|key| problem.remove(key)).iter().any(Option::is_some));
    let mut task = of_document(document, search.data.logs.facts.len(), Table::new())?;
    if held {
        let text = "agents hold no episodes out, and nothing says whether the policy is better: evaluate policy.json by other episodes";
        task.notes.push(Note::new(NoteCode::PolicyValueUnknown, text));
    }
    Ok(task)
}

/// Declares the categories and classes of these rows, which agents would refuse to take from their own.
fn declare(document: &mut Document, prepared: &Prepared) -> Option<Note> {
    let problem = document.table.get_mut("problem").and_then(Value::as_table_mut)?;
    let mut names = Vec::new();
    let mut levels = Table::new();
    for category in &prepared.categories {
        // The reference comes first.
        let all = category.reference.iter().chain(&category.levels);
        levels.insert(category.column.clone(), Value::Array(all.cloned().map(Value::String).collect()));
        names.push(in_quotes(&category.column));
    }
    if !levels.is_empty() {
        problem.insert("levels".into(), Value::Table(levels));
    }
    let classes: Vec<&ClassLabel> = match &prepared.targets {
        Targets::Classes { positive, negative: Some(negative), .. } => vec![negative, positive],
        Targets::Many { classes, .. } => classes.iter().collect(),
        // Of several labels against one the other ones are not known.
        Targets::Classes { negative: None, .. } | Targets::Numbers { .. } => Vec::new(),
    };
    if !classes.is_empty() && !problem.contains_key("classes") {
        let value = |class: &&ClassLabel| match class {
            ClassLabel::Number(x) => Value::Float(*x),
            ClassLabel::Name(name) => Value::String(name.clone()),
        };
        problem.insert("classes".into(), Value::Array(classes.iter().map(value).collect()));
        names.push("the target".into());
    }
    let text = format!(
        "settings.toml declares the categories and classes in these files of {}: agents refuse others, so add what other agents have",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Note::new(NoteCode::FederationDeclared, text))
}

/// The settings of a federation of `agents` agents that performs this experiment, with these keys of `[federation]`.
fn of_document(mut document: Document, agents: usize, more: Table) -> Result<TaskSettings> {
    if !more.is_empty() {
        let table = document.table.entry("federation").or_insert_with(|| Value::Table(Table::new()));
        table.as_table_mut().into_iter().for_each(|table| table.extend(more.clone()));
    }
    // The notes of this function are about files; a task has options.
    without_data(&mut document);
    let notes = without_immeasurable_target(&mut document)?.into_iter().collect();
    Deployment::new(document.clone())?;
    let head = "# The settings that all ends have. Each agent names its own data when it starts.\n";
    let written = resolve::text(&document.table);
    let text = written.split_once('\n').map_or(written.as_str(), |(_, rest)| rest);
    Ok(TaskSettings { text: format!("{head}{text}"), agents, notes })
}

/// The text of settings with this number of agents and this folder of the results in `[federation]`, unless it has them.
///
/// # Errors
/// When the text is not TOML, or `federation` is no table.
pub fn with_federation(text: &str, agents: u64, out: &str) -> Result<String> {
    let bad = |what: String| Error::new("federation", what, "a table [federation]");
    let mut document: toml_edit::DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| bad(e.to_string()))?;
    let table = document.entry("federation").or_insert_with(toml_edit::table);
    let table = table.as_table_like_mut().ok_or_else(|| bad("no table".into()))?;
    if !table.contains_key("agents") {
        table.insert("agents", toml_edit::value(agents as i64));
    }
    if !table.contains_key("out") {
        table.insert("out", toml_edit::value(out));
    }
    Ok(document.to_string())
}

/// Removes keys that name data or divide them among agents: each agent has its own.
pub(super) fn without_data(document: &mut Document) -> Vec<Note> {
    let source = source_of(document);
    let (Some(key), Some(problem)) = (source.key(), document.table.get_mut("problem").and_then(Value::as_table_mut)) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    if problem.remove(key).is_some_and(|data| data.as_array().is_none_or(|files| !files.is_empty())) {
        let text = format!("`problem.{key}` names data, which a federation does not read: each agent names its own when it starts");
        notes.push(Note::new(NoteCode::FederationDataElsewhere, text));
    }
    if source == Source::Rows {
        notes.extend(without_partition(problem));
    }
    notes
}

/// Removes keys that divide rows among agents.
fn without_partition(problem: &mut Table) -> Option<Note> {
    let partition = problem.remove("partition");
    for key in ["agents", "group", "reshuffle"] {
        problem.remove(key);
    }
    let name = match &partition {
        None => return None,
        Some(Value::String(name)) if name == "files" => return None,
        Some(Value::Table(table)) => table.keys().next().cloned().unwrap_or_default(),
        Some(other) => other.as_str().unwrap_or_default().to_string(),
    };
    Some(agents_are_machines(&format!("`partition = {name}`")))
}

/// The note about removed keys that divide rows among agents.
fn agents_are_machines(what: &str) -> Note {
    let text = format!("{what} divides rows among agents in one process; in a federation the rows of a machine are those of one agent");
    Note::new(NoteCode::FederationAgentsAreMachines, text)
}

/// Removes a target that the server cannot measure.
fn without_immeasurable_target(document: &mut Document) -> Result<Option<Note>> {
    let mut without = document.clone();
    let run = without.table.get_mut("run").and_then(Value::as_table_mut);
    if run.and_then(|run| run.remove("stop")).is_none() {
        return Ok(None);
    }
    if Deployment::new(without.clone())?.measures_residual() {
        return Ok(None);
    }
    *document = without;
    let text = "the server of this method cannot measure the residual: the federation goes on for all rounds, without the target `tol`";
    Ok(Some(Note::new(NoteCode::FederationTargetElsewhere, text)))
}
