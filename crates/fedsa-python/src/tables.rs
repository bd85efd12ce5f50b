//! Tables from Python: typed columns, and matrices of numbers with names.

use std::sync::Arc;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{ArrayRef, Float64Array, Int64Array, StringArray};
use fedsa::error::{Error, quoted};
use fedsa_data::memory::{MemoryTable, TypedColumns};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::arrow::failed;
use crate::errors::OrRaise;

/// Typed columns of a data frame or of arrays, as the engine reads them.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Columns(pub TypedColumns);

#[pymethods]
impl Columns {
    /// The columns of another library's Arrow stream, without a copy if it has one batch.
    #[staticmethod]
    fn of_stream(py: Python<'_>, capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
        // SAFETY: by the Arrow PyCapsule interface a capsule of this name holds a valid stream. It is moved out, and an empty one remains.
        let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.cast::<FFI_ArrowArrayStream>().as_ptr()) };
        TypedColumns::of_stream(reader.map_err(|e| failed(&e))?).map(Self).or_raise(py)
    }

    /// Columns of float64 or int64, or of texts, with `None` for missing ones.
    #[staticmethod]
    fn of_arrays(py: Python<'_>, arrays: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let column = |(name, values): (String, Bound<'_, PyAny>)| -> PyResult<(String, ArrayRef)> {
            let array: ArrayRef = if let Ok(numbers) = values.extract::<PyReadonlyArray1<'_, f64>>() {
                Arc::new(Float64Array::from(numbers.as_slice()?.to_vec()))
            } else if let Ok(numbers) = values.extract::<PyReadonlyArray1<'_, i64>>() {
                Arc::new(Int64Array::from(numbers.as_slice()?.to_vec()))
            } else if let Ok(texts) = values.extract::<Vec<Option<String>>>() {
                Arc::new(StringArray::from(texts))
            } else {
                return Err(PyTypeError::new_err("arrays of float64 or int64, or lists of texts"));
            };
            Ok((name, array))
        };
        TypedColumns::new(arrays.into_iter().map(column).collect::<PyResult<Vec<_>>>()?).map(Self).or_raise(py)
    }

    /// The columns of `to_bytes`.
    #[staticmethod]
    fn of_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        TypedColumns::from_bytes(bytes).map(Self).or_raise(py)
    }

    /// All columns as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.0.to_bytes().or_raise(py)?))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((py.get_type::<Self>().getattr("of_bytes")?, (self.to_bytes(py)?,)))
    }

    /// The names of the columns.
    fn names(&self) -> Vec<String> {
        self.0.names()
    }

    /// The number of rows.
    fn __len__(&self) -> usize {
        self.0.rows()
    }

    /// The numbers of a column, NaN for missing ones.
    fn numbers<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_vec(py, self.0.numbers(name).or_raise(py)?))
    }

    /// The rows for which `keep` is true.
    fn filtered(&self, py: Python<'_>, keep: PyReadonlyArray1<'_, bool>) -> PyResult<Self> {
        self.0.filtered(keep.as_slice()?).map(Self).or_raise(py)
    }
}

/// An agent's table from Python: its name, matrices with the names of their columns, and typed columns.
pub type GivenTable<'py> = (String, Vec<(Vec<String>, PyReadonlyArray2<'py, f64>)>, Option<Py<Columns>>);

/// A Python table as an engine table, on the same numbers.
///
/// # Errors
/// When an array is not in C order, or has another number of columns than names.
pub fn memory_table<'a>((name, matrices, columns): &'a GivenTable<'_>) -> Result<MemoryTable<'a>, Error> {
    let mut table = MemoryTable::new(name.clone());
    for (names, matrix) in matrices {
        let numbers = matrix.as_slice().map_err(|e| Error::data(quoted(name), e.to_string(), "arrays in C order"))?;
        table.add_matrix(names, numbers, matrix.shape()[1])?;
    }
    columns.iter().for_each(|columns| table.add_columns(&columns.get().0));
    Ok(table)
}

/// A copy of a Python table, with its name.
///
/// # Errors
/// As [`memory_table`].
pub fn copied(given: &GivenTable<'_>) -> Result<(String, TypedColumns), Error> {
    Ok((given.0.clone(), memory_table(given)?.copied()?))
}
