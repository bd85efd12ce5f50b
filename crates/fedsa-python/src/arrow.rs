//! Tables for other libraries, through the Arrow PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, RecordBatchReader as _, StringArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use fedsa::error::{Error, quoted};
use fedsa_data::cells::{self, CellKind};
use fedsa_data::trace::{Trace, TraceColumn};
use numpy::PyArray1;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::errors::OrRaise;

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

fn failed(e: &ArrowError) -> PyErr {
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

    /// Results are pickled, and tables of other libraries.
    fn __reduce__(&self) -> PyResult<()> {
        let help = "pickle the Results that it is of, or a table of another library: polars.DataFrame(table), pyarrow.table(table)";
        Err(PyTypeError::new_err(format!("a Table is not pickled: {help}")))
    }

    /// A column as an array: texts as objects, numbers that are not known as NaN.
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
        // A consumer may ask for other types, and must take these.
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!("<fedsa.Table of {} rows: {}>", self.0.num_rows(), self.columns().join(", "))
    }
}

/// The columns of the stream of another library: numbers and flags as float64 with NaN for nulls, texts as lists.
#[pyfunction]
pub fn arrow_columns<'py>(py: Python<'py>, capsule: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyDict>> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: by the Arrow PyCapsule interface a capsule of this name holds a valid stream, which is moved out: an empty one stays.
    let reader = unsafe { RecordBatchStreamReader::from_raw(pointer.cast::<FFI_ArrowArrayStream>().as_ptr()) }.map_err(|e| failed(&e))?;
    let fields = reader.schema().fields().clone();
    let mut numbers: Vec<Vec<f64>> = vec![Vec::new(); fields.len()];
    let mut texts: Vec<Vec<String>> = vec![Vec::new(); fields.len()];
    for batch in reader {
        let batch = batch.map_err(|e| failed(&e))?;
        for (i, column) in batch.columns().iter().enumerate() {
            append(column, &mut numbers[i], &mut texts[i]).map_err(|e| e.about(quoted(fields[i].name()))).or_raise(py)?;
        }
    }
    let columns = PyDict::new(py);
    for ((field, numbers), texts) in fields.iter().zip(numbers).zip(texts) {
        if is_text(field.data_type()) {
            columns.set_item(field.name(), PyList::new(py, texts)?)?;
        } else {
            columns.set_item(field.name(), PyArray1::from_vec(py, numbers))?;
        }
    }
    Ok(columns)
}

fn is_text(data_type: &DataType) -> bool {
    cells::kind(data_type) == CellKind::Texts
}

fn append(column: &ArrayRef, numbers: &mut Vec<f64>, texts: &mut Vec<String>) -> Result<(), Error> {
    if is_text(column.data_type()) {
        return cells::each_text(column, texts.len(), |_, text| {
            texts.push(text.unwrap_or_default().to_string());
            Ok(())
        });
    }
    let start = numbers.len();
    numbers.resize(start + column.len(), 0.0);
    cells::numbers(column, &mut numbers[start..]).map(drop)
}
