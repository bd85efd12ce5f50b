//! Files written for Python.

use std::path::PathBuf;

use fedsa_data::appended;
use fedsa_data::atomic::{self, Existing};
use pyo3::prelude::*;

use crate::engine;

/// Writes a file atomically; an existing file of this name is replaced.
#[pyfunction]
#[pyo3(signature = (path, contents, is_private = false))]
pub fn write_file(py: Python<'_>, path: PathBuf, contents: &[u8], is_private: bool) -> PyResult<()> {
    let existing = if is_private { Existing::ReplaceByPrivate } else { Existing::Replace };
    engine::brief(py, || atomic::write(&path, contents, atomic::folder_of(&path), existing).map_err(|e| atomic::unwritable(&path, &e)))
}

/// Appends to a file after its first `kept` bytes, and removes the rest.
#[pyfunction]
pub fn append_file(py: Python<'_>, path: PathBuf, kept: u64, contents: &[u8]) -> PyResult<()> {
    engine::brief(py, || appended::append(&path, kept, contents).map_err(|e| atomic::unwritable(&path, &e)))
}
