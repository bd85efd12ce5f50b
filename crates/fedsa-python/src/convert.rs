//! Python values as values of experiment files.

use fedsa::error::{Error, ErrorCode, quoted};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::{Table, Value};

use crate::errors::exception;

/// The largest depth of nesting; settings have a few levels.
const DEEPEST: usize = 64;

/// A dictionary as a table. Values are numbers, texts, paths, lists, dictionaries, or NumPy's forms of these. For objects with a method
/// `_table`, its result counts.
///
/// # Errors
/// When a key is not a text, or files have no such type of value.
pub fn table(dict: &Bound<'_, PyDict>) -> PyResult<Table> {
    inner_table(dict, "", 0)
}

fn inner_table(dict: &Bound<'_, PyDict>, key: &str, depth: usize) -> PyResult<Table> {
    let mut table = Table::new();
    for (name, value) in dict {
        let Ok(name) = name.cast::<PyString>() else {
            let what = format!("{} is not a text", quoted(name.repr()?.to_string()));
            return Err(refused(dict.py(), key, what, "keys that are texts"));
        };
        let name = text(name, key)?;
        let place = if key.is_empty() { name.to_string() } else { format!("{key}.{name}") };
        // `None` means absent.
        if !value.is_none() {
            table.insert(name.to_string(), inner(&value, &place, depth + 1)?);
        }
    }
    Ok(table)
}

fn inner(object: &Bound<'_, PyAny>, key: &str, depth: usize) -> PyResult<Value> {
    let py = object.py();
    if depth > DEEPEST {
        return Err(refused(py, key, format!("more than {DEEPEST} levels of lists and dictionaries"), "fewer levels"));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::String(self::text(text, key)?.to_string()));
    }
    if let Ok(is_set) = object.cast::<PyBool>() {
        return Ok(Value::Boolean(is_set.is_true()));
    }
    if let Ok(whole) = object.cast::<PyInt>() {
        let too_large = |_| {
            let what = format!("{} is not accepted", quoted(whole.repr().map(|text| text.to_string()).unwrap_or_default()));
            exception(py, &Error::new(key, what, "a whole number of at most 64 bits").coded(ErrorCode::OutOfRange))
        };
        return whole.extract().map(Value::Integer).map_err(too_large);
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Value::Float(number.value()));
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return inner_table(dict, key, depth).map(Value::Table);
    }
    if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let items = object.try_iter()?.enumerate().map(|(i, item)| inner(&item?, &format!("{key}[{i}]"), depth + 1));
        return items.collect::<PyResult<_>>().map(Value::Array);
    }
    for method in ["_table", "tolist", "__fspath__"] {
        if let Ok(method) = object.getattr(method) {
            return inner(&method.call0()?, key, depth + 1);
        }
    }
    let what = format!("a value of the type `{}` is not accepted", object.get_type().name()?);
    let e = Error::new(key, what, "a number, a text, a path, a list, or a dictionary of these").coded(ErrorCode::WrongType);
    Err(exception(py, &e))
}

/// A text of valid Unicode.
fn text<'a>(text: &'a Bound<'_, PyString>, key: &str) -> PyResult<&'a str> {
    text.to_str().map_err(|_| {
        let shown = text.repr().map(|repr| repr.to_string()).unwrap_or_default();
        refused(text.py(), key, format!("{} has half a surrogate pair", quoted(shown)), "texts of Unicode")
    })
}

fn refused(py: Python<'_>, key: &str, what: String, help: &str) -> PyErr {
    exception(py, &Error::new(key, what, help).coded(ErrorCode::WrongType))
}
