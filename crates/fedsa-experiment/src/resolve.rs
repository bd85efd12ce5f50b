//! The resolved experiment file: with defaults and absolute paths.

use fedsa::error::Result;
use fedsa::parallel;
use fedsa_data::datasets;
use fedsa_data::find::Places;
use std::sync::atomic::{AtomicBool, Ordering};
use toml::{Table, Value};

use crate::config::document::SetBy;
use crate::config::reader::complete;
use crate::config::sections::Sections;
use crate::config::{Document, Experiment, PointReader, SweepPoint};
use crate::kinds::Kinds;

/// The tables of the point that was read last. Equal tables give bit-identical results if the files have equal contents.
///
/// # Errors
/// When a setting cannot be written in a TOML file.
pub fn point(reader: &PointReader, places: &Places) -> Result<Table> {
    let mut table = reader.resolved()?;
    absolute_paths(&mut table, places);
    Ok(table)
}

/// One of these tables, or the table of one method, with absolute paths.
///
/// # Errors
/// Never; the type matches the other functions of this module.
pub fn section(key: &str, mut table: Value, places: &Places) -> Result<Value> {
    let key: &[&str] = if key == "method" { &["method", "*"] } else { &[key] };
    visit(&mut table, key, places);
    Ok(table)
}

/// The resolved experiment, which can be run again: the text of `config.toml`.
///
/// # Errors
/// When a table cannot be read.
pub fn file(experiment: &Experiment, places: &Places) -> Result<String> {
    table(experiment, places).map(|table| text(&table))
}

/// The text of `config.toml` of a resolved experiment.
pub fn text(table: &Table) -> String {
    let note = "# What ran: overrides applied, defaults written out, paths absolute.\n";
    format!("{note}{}", toml::to_string(table).expect("a tree of plain values"))
}

/// The tables of the experiment with overrides and absolute paths, without defaults. It reads no point.
pub fn given(experiment: &Experiment, places: &Places) -> Table {
    let mut table = experiment.document.table.clone();
    table.remove("quick");
    table.insert("id".into(), Value::String(experiment.id.clone()));
    // Settings of the library make up the experiment itself.
    if experiment.document.origins.iter().any(|origin| !matches!(origin.from, SetBy::Setting(_))) {
        excuse_checks(&mut table);
    }
    absolute_paths(&mut table, places);
    table
}

/// The tables of the resolved experiment.
///
/// # Errors
/// When a table cannot be read.
pub fn table(experiment: &Experiment, places: &Places) -> Result<Table> {
    let table = given(experiment, places);
    let filled = fill(&experiment.document.kinds, table.clone());
    // After a sweep changes a table, for example its kind, the defaults may no longer fit.
    Ok(if same_points(&filled, experiment, places) { filled } else { table })
}

/// Permits unmeasured checks: options may have left a check without seeds, rounds or points, and the resolved file must run without these
/// options.
fn excuse_checks(table: &mut Table) {
    let checks = table.get_mut("check").and_then(Value::as_array_mut);
    for check in checks.into_iter().flatten().filter_map(Value::as_table_mut) {
        check.insert("unmeasured".into(), Value::String("note".into()));
    }
}

/// Writes out the defaults of the tables that are complete without sweeps.
fn fill(kinds: &Kinds, mut table: Table) -> Table {
    for (key, typed) in complete(kinds, &Sections::of(&table)) {
        match table.get_mut(key) {
            None => {
                table.insert(key.to_string(), typed);
            }
            Some(given) => merge(given, typed),
        }
    }
    table
}

/// Adds missing keys; existing keys keep their values.
fn merge(given: &mut Value, typed: Value) {
    match (given, typed) {
        (Value::Table(given), Value::Table(typed)) => {
            for (key, value) in typed {
                given.entry(key).or_insert(value);
            }
        }
        (Value::Array(given), Value::Array(typed)) => given.iter_mut().zip(typed).for_each(|(given, typed)| merge(given, typed)),
        _ => {}
    }
}

/// Whether a file has the same points as an experiment.
fn same_points(table: &Table, experiment: &Experiment, places: &Places) -> bool {
    let kinds = &experiment.document.kinds;
    let document = Document::of_table(table.clone(), Vec::new()).with_kinds(kinds);
    let Ok(other) = Experiment::read(document) else { return false };
    let read = |at: &SweepPoint, reader: &mut PointReader| reader.read(at).and_then(|()| point(reader, places)).ok();
    let are_same = AtomicBool::new(other.points.len() == experiment.points.len());
    let points = if are_same.load(Ordering::Relaxed) { other.points.len() } else { 0 };
    parallel::ranges(points, usize::MAX, &|range| {
        let mut readers = (PointReader::new(kinds), PointReader::new(kinds));
        for (a, b) in other.points[range.clone()].iter().zip(&experiment.points[range]) {
            if !are_same.load(Ordering::Relaxed) {
                return;
            }
            if a.label != b.label || read(a, &mut readers.0) != read(b, &mut readers.1) {
                are_same.store(false, Ordering::Relaxed);
            }
        }
    });
    are_same.into_inner()
}

/// Makes all paths of a file absolute, including those in variants and sweeps.
fn absolute_paths(table: &mut Table, places: &Places) {
    for (key, value) in table.iter_mut() {
        match (key.as_str(), value) {
            ("variant" | "sweep", Value::Array(items)) => {
                items.iter_mut().filter_map(Value::as_table_mut).for_each(|item| within(item, places))
            }
            (key, value) => visit(value, &[key], places),
        }
    }
}

/// The paths that a variant or a sweep sets.
fn within(item: &mut Table, places: &Places) {
    if let Some(Value::Table(set)) = item.get_mut("set") {
        for (key, value) in set.iter_mut() {
            visit(value, &key.split('.').collect::<Vec<_>>(), places);
        }
    }
    if let Some(Value::Array(sweeps)) = item.get_mut("sweep") {
        sweeps.iter_mut().filter_map(Value::as_table_mut).for_each(|sweep| within(sweep, places));
    }
    let text = |value: &Value| value.as_str().map(str::to_string);
    let key = item.get("key").and_then(text);
    let keys: Option<Vec<String>> = item.get("keys").and_then(Value::as_array).map(|keys| keys.iter().filter_map(text).collect());
    let Some(Value::Array(values)) = item.get_mut("values") else { return };
    let shown = |values: &[Value]| -> Vec<Value> {
        let first = |value: &Value| if keys.is_some() { value.get(0).cloned() } else { Some(value.clone()) };
        values.iter().filter_map(first).collect()
    };
    let before = shown(values);
    for value in values.iter_mut() {
        match (&key, &keys, value) {
            (Some(key), _, value) => visit(value, &key.split('.').collect::<Vec<_>>(), places),
            (None, Some(keys), Value::Array(row)) => {
                keys.iter().zip(row).for_each(|(key, value)| visit(value, &key.split('.').collect::<Vec<_>>(), places));
            }
            _ => {}
        }
    }
    // Points keep their names.
    if before != shown(values) && !item.contains_key("labels") {
        let name = |value: &Value| Value::String(value.as_str().map_or_else(|| value.to_string(), str::to_string));
        item.insert("labels".into(), Value::Array(before.iter().map(name).collect()));
    }
}

/// The paths in the value of a dotted key.
fn visit(value: &mut Value, key: &[&str], places: &Places) {
    match (key, value) {
        (["problem", "path" | "policy"], Value::String(path)) => *path = places.absolute(path),
        (["problem", "data"], Value::String(path)) => *path = datasets::absolute(path, places),
        (["problem", "path" | "data"], Value::Array(paths)) => paths.iter_mut().for_each(|path| visit(path, key, places)),
        // The path of a trace of delays, in a list of media.
        (["method", .., "path"], Value::String(path)) => *path = places.absolute(path),
        (["method", .., "media"], Value::Array(items)) => items.iter_mut().for_each(|item| visit(item, key, places)),
        // A start without a dot is a name.
        (["run", "start"] | ["method", _, "start"], Value::String(path)) if path.contains('.') => *path = places.absolute(path),
        (["method"], Value::Array(items)) => items.iter_mut().for_each(|item| visit(item, &["method", "*"], places)),
        (_, Value::Table(table)) => {
            for (name, value) in table.iter_mut() {
                let names: Vec<&str> = key.iter().copied().chain(name.split('.')).collect();
                visit(value, &names, places);
            }
        }
        _ => {}
    }
}
