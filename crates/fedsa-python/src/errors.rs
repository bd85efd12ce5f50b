//! Errors of the libraries as exceptions of the package.

use fedsa::error::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The exception of an error; its class follows from the error's kind.
pub fn exception(py: Python<'_>, e: &Error) -> PyErr {
    let class = match e.kind() {
        ErrorKind::NotAvailable => "NotAvailable",
        ErrorKind::NoMemory => "OutOfMemory",
        ErrorKind::Machine => "MachineError",
        ErrorKind::Cancelled => "Cancelled",
        // Settings, data, formats, refused messages, and kinds added later.
        _ => "InputError",
    };
    let fields = || {
        let fields = PyDict::new(py);
        fields.set_item("code", e.code().name())?;
        fields.set_item("key", &e.key)?;
        fields.set_item("help", &e.help)?;
        fields.set_item("value", e.value())?;
        if let Some(place) = e.place() {
            fields.set_item("file", (!place.file.is_empty()).then_some(&place.file))?;
            fields.set_item("line", place.line)?;
            fields.set_item("column", place.column)?;
        }
        Ok(fields)
    };
    fields().and_then(|fields| raised(py, class, &e.what, Some(&fields))).unwrap_or_else(|failure| failure)
}

/// The exception for a defect of fedsa: a panic, with its message.
pub fn internal(py: Python<'_>, what: &str) -> PyErr {
    raised(py, "InternalError", what, None).unwrap_or_else(|failure| failure)
}

fn raised(py: Python<'_>, class: &str, what: &str, fields: Option<&Bound<'_, PyDict>>) -> PyResult<PyErr> {
    let class = py.import("fedsa.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((what,), fields)?))
}

/// Results of the libraries as Python results.
pub trait OrRaise<T> {
    /// The value, or the exception of the error.
    ///
    /// # Errors
    /// Those of `self`.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|e| exception(py, &e))
    }
}
