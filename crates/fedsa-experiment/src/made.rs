//! Experiments made of settings instead of a file.

use std::fmt;
use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result, quoted};
use fedsa::method::MethodSettings;
use fedsa::registry::Kind;
use fedsa::secure::MAX_BITS;
use fedsa_methods::presets;
use serde::Serialize;
use toml::{Table, Value};

use crate::config::document::{Origin, SetBy};
use crate::config::{self, Document, Experiment, find_kind};
use crate::kinds::Kinds;

/// A caller's changes of an experiment made of settings, before it is read: keys without a setting, and their origins for messages. No
/// changes by default.
#[derive(Clone, Default)]
pub struct Changes(Option<Arc<Change>>);

/// Changes a document.
type Change = dyn Fn(&mut Document) -> Result<(), Error> + Send + Sync;

impl Changes {
    /// These changes. They apply each time that an experiment is made, which may be several times per call.
    pub fn new(change: impl Fn(&mut Document) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(change)))
    }
}

impl Changes {
    /// Applies the changes.
    pub(crate) fn apply(&self, document: &mut Document) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |change| change(document))
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Changes(..)" } else { "Changes" })
    }
}

/// Keys of an experiment, with their settings.
pub(crate) type Keys = Vec<(String, &'static str)>;

/// An experiment as a table, with the settings of its keys.
pub(crate) struct Made {
    table: Table,
    keys: Keys,
}

impl Made {
    /// An experiment with this id and title.
    pub fn new(id: &str, title: String) -> Self {
        Self { table: Table::from_iter([("id".into(), text(id)), ("title".into(), Value::String(title))]), keys: Keys::new() }
    }

    /// Adds a section.
    pub fn add(&mut self, section: Section) {
        self.table.insert(section.path, Value::Table(section.table));
        self.keys.extend(section.keys);
    }

    /// Adds a method.
    pub fn add_method(&mut self, section: Section) {
        let methods = self.table.entry("method").or_insert_with(|| Value::Array(Vec::new()));
        methods.as_array_mut().expect("methods are a list").push(Value::Table(section.table));
        self.keys.extend(section.keys);
    }

    /// The experiment with these changes and kinds. Errors about its keys name their settings, unless a change says where they come from.
    ///
    /// # Errors
    /// When it is no experiment.
    pub fn experiment(self, changes: &Changes, kinds: &Kinds) -> Result<Experiment, Error> {
        experiment(self.table, self.keys, changes, kinds)
    }
}

/// A table of an experiment, with the settings of its keys.
pub(crate) struct Section {
    path: String,
    table: Table,
    keys: Keys,
}

impl Section {
    /// An empty section at this place.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), table: Table::new(), keys: Keys::new() }
    }

    /// Sets the key with the name of a setting, if it has a value.
    ///
    /// # Errors
    /// When files cannot hold the value.
    pub fn put(&mut self, setting: &'static str, value: impl Serialize) -> Result<()> {
        self.put_as(setting, setting, value)
    }

    /// Sets a key with another name than its setting, such as `stop.residual` or `seeds[0]`.
    ///
    /// # Errors
    /// When files cannot hold the value.
    pub fn put_as(&mut self, setting: &'static str, key: &str, value: impl Serialize) -> Result<()> {
        if self.insert(setting, key, value)? {
            self.keys.push((format!("{}.{key}", self.path), setting));
        }
        Ok(())
    }

    /// Sets a key without a setting.
    ///
    /// # Errors
    /// When files cannot hold the value.
    pub fn fix(&mut self, key: &str, value: impl Serialize) -> Result<()> {
        self.insert(key, key, value).map(|_| ())
    }

    /// Sets a key, and returns whether there was a value.
    fn insert(&mut self, setting: &str, key: &str, value: impl Serialize) -> Result<bool> {
        let Some(value) = plain(setting, &value)? else { return Ok(false) };
        let mut table = &mut self.table;
        let mut names: Vec<&str> = key.split('.').collect();
        let last = names.pop().unwrap_or(key);
        for name in names {
            let inner = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
            table = inner.as_table_mut().expect("a table");
        }
        match last.strip_suffix("[0]") {
            Some(list) => table.insert(list.into(), Value::Array(vec![value])),
            None => table.insert(last.into(), value),
        };
        Ok(true)
    }
}

/// A value in the form of files, if there is one.
///
/// # Errors
/// When it is larger than files can hold.
fn plain(setting: &str, value: &impl Serialize) -> Result<Option<Value>> {
    #[derive(Serialize)]
    struct Entry<'v, T> {
        value: &'v T,
    }
    let too_large = |_| {
        let given = serde_json::to_string(value).unwrap_or_default();
        let e = Error::new(setting, format!("{given} is not accepted"), format!("at most {}", i64::MAX));
        e.valued(given).coded(ErrorCode::OutOfRange)
    };
    Ok(Table::try_from(Entry { value }).map_err(too_large)?.remove("value"))
}

/// The experiment of a table, with these changes and kinds. Errors about these keys name their settings, unless a change says where they
/// come from.
pub(crate) fn experiment(table: Table, keys: Keys, changes: &Changes, kinds: &Kinds) -> Result<Experiment, Error> {
    let is_set = |key: &str| config::place_in(&table, key).is_some();
    let keys = keys.into_iter().filter(|(key, _)| is_set(key));
    let origins = keys.map(|(key, setting)| Origin { key, from: SetBy::Setting(setting) }).collect();
    let mut document = Document::of_table(table, origins).with_kinds(kinds);
    changes.apply(&mut document)?;
    Experiment::read(document)
}

/// A text.
pub(crate) fn text(s: &str) -> Value {
    Value::String(s.to_string())
}

/// A list of texts.
pub(crate) fn texts(list: &[String]) -> Value {
    Value::Array(list.iter().map(|s| text(s)).collect())
}

/// The table `[problem]` of the first point, and its kind.
pub(crate) fn problem_of(experiment: &Experiment) -> (String, Table) {
    let mut problem = experiment.points[0].sections().problem.and_then(|problem| problem.as_table().cloned()).unwrap_or_default();
    let kind = problem.remove("kind").and_then(|kind| kind.as_str().map(str::to_string)).unwrap_or_default();
    (kind, problem)
}

/// Whether a kind of method has this key.
pub fn takes(kinds: &Kinds, kind: &str, key: &str) -> bool {
    kind_of(kinds, kind).is_ok_and(|kind| config::takes(kind, key))
}

/// The kind of method with this name, or of the preset with this name.
///
/// # Errors
/// When there is no such method; the message names the nearest one.
pub(crate) fn kind_of<'k>(kinds: &'k Kinds, name: &str) -> Result<&'k Kind<dyn MethodSettings>> {
    let kind = presets::find(name).map_or(name, |preset| preset.method);
    find_kind(kinds.methods(), &mut Table::from_iter([("kind".to_string(), text(kind))]), "method")
}

/// The error about a setting of local steps for a method without local steps.
pub(crate) fn has_no_such_setting(kind: &str, setting: &str, given: impl fmt::Display) -> Error {
    let what = format!("{given}, and {} has no such setting", quoted(kind));
    Error::new(setting, what, format!("no `{setting}`, or a method with local steps, such as fedlsa"))
}

/// A count with its noun: `1 method`, `2 methods`.
pub(crate) fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// The media of a link with secure sums of numbers up to `bound`, with the most bits: then results differ from those of a clear link by
/// rounding.
pub fn secure_sums(bound: f64) -> Vec<Table> {
    let stage = [("kind", Value::from("secure-sum")), ("bound", bound.into()), ("bits", i64::from(MAX_BITS).into())];
    vec![stage.into_iter().map(|(key, value)| (key.to_string(), value)).collect()]
}
