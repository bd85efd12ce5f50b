//! Files that Python writes.

use std::path::PathBuf;

use fedsa_data::atomic::{self, Existing};
use pyo3::prelude::*;

use crate::engine;

/// Writes a file as a whole or not at all; a file of this name is replaced.
#[pyfunction]
pub fn write_file(py: Python<'_>, path: PathBuf, contents: &[u8]) -> PyResult<()> {
    engine::brief(py, || {
        atomic::write(&path, contents, atomic::folder_of(&path), Existing::Replace).map_err(|e| atomic::unwritable(&path, &e))
    })
}
