//! Tables for other libraries, through the Arrow PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Field, Schema};
use fedsa_data::trace::{Trace, TraceColumn};
use numpy::PyArray1;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};

/// A table of named columns of equal length.
///
/// ``polars.DataFrame(table)`` and ``pyarrow.table(table)`` take it without a copy, through the Arrow PyCapsule interface. ``table["mse"]`` is
/// a NumPy array: NaN where a number is not known.
///
/// Examples
/// --------
/// >>> import fedsa
/// >>> from fedsa import methods, problems
/// >>> experiment = fedsa.Experiment(problems.Garnet(agents=5, states=10, features=3), methods.FedLSA(0.1, 10), rounds=100)
/// >>> trace = experiment.run().trace()
/// >>> trace["round"][:3].tolist()
/// [0, 1, 2]
#[pyclass(frozen, module = "fedsa._fedsa", name = "Table")]
pub struct Table(RecordBatch);

/// The error about a table that cannot be exported.
pub fn failed(e: &ArrowError) -> PyErr {
    PyRuntimeError::new_err(format!("the table cannot be handed over: {e}"))
}

impl Table {
    /// A table of these columns.
    ///
    /// # Errors
    /// Never for columns of equal length.
    pub fn of(trace: &Trace) -> PyResult<Self> {
        let column = |(name, column): &(String, TraceColumn)| {
            let (array, is_optional): (ArrayRef, bool) = match column {
                TraceColumn::Str(values) => (Arc::new(StringArray::from_iter_values(values)), false),
                TraceColumn::OptStr(values) => (Arc::new(StringArray::from_iter(values)), true),
                TraceColumn::I64(values) => (Arc::new(Int64Array::from(values.clone())), false),
                TraceColumn::F64(values) => (Arc::new(Float64Array::from(values.clone())), false),
                TraceColumn::OptF64(values) => (Arc::new(Float64Array::from(values.clone())), true),
            };
            (Field::new(name, array.data_type().clone(), is_optional), array)
        };
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = trace.columns().iter().map(column).unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map(Self).map_err(|e| failed(&e))
    }
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    /// Refuses pickling: results can be pickled, and tables of other libraries.
    fn __reduce__(&self) -> PyResult<()> {
        let help = "pickle the Results that it is of, or a table of another library: polars.DataFrame(table), pyarrow.table(table)";
        Err(PyTypeError::new_err(format!("a Table is not pickled: {help}")))
    }

    /// A column as an array: texts as objects, unknown numbers as NaN.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let column = self.0.column_by_name(name).ok_or_else(|| PyKeyError::new_err(name.to_string()))?;
        if let Some(values) = column.as_any().downcast_ref::<Int64Array>() {
            return Ok(PyArray1::from_slice(py, values.values()).into_any());
        }
        if let Some(values) = column.as_any().downcast_ref::<Float64Array>() {
            return Ok(PyArray1::from_iter(py, values.iter().map(|x| x.unwrap_or(f64::NAN))).into_any());
        }
        let texts = column.as_any().downcast_ref::<StringArray>().map(|texts| texts.iter().collect::<Vec<_>>()).unwrap_or_default();
        let dtype = [("dtype", "O")];
        py.import("numpy")?.call_method("array", (PyList::new(py, texts)?,), Some(&pyo3::types::IntoPyDict::into_py_dict(dtype, py)?))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.0.schema()).map_err(|e| failed(&e))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(&self, py: Python<'py>, requested_schema: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyCapsule>> {
        // Consumers may request other types, but must accept these.
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!("<fedsa.Table of {} rows: {}>", self.0.num_rows(), self.columns().join(", "))
    }
}
