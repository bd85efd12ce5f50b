//! Rows of numbers from Python: dense arrays and compressed sparse rows.

use fedsa::error::Error;
use fedsa_data::memory::MemoryTable;
use fedsa_problems::rows::dataset::{self, Dataset, Labels, Rows, Wanted};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{OrRaise, exception};
use crate::tables::Columns;

/// The rows of an array (n, d) of float64 in C order, or of `(starts, columns, numbers, d)`, the arrays of SciPy's `csr_matrix` as int64,
/// int64 and float64. They are copied once, into the engine's memory.
///
/// # Errors
/// When they have another type, or starts and columns are inconsistent.
pub fn rows(object: &Bound<'_, PyAny>) -> PyResult<Rows> {
    let py = object.py();
    if let Ok(sparse) = object.cast::<PyTuple>() {
        let (starts, columns, numbers, d) =
            sparse.extract::<(PyReadonlyArray1<'_, i64>, PyReadonlyArray1<'_, i64>, PyReadonlyArray1<'_, f64>, usize)>()?;
        return compressed(starts.as_slice()?, columns.as_slice()?, numbers.as_slice()?, d).map_err(|e| exception(py, &e));
    }
    let dense = object.extract::<PyReadonlyArray2<'_, f64>>()?;
    let d = dense.shape()[1];
    Ok(Rows::Dense { d, values: dense.as_slice()?.to_vec() })
}

/// Compressed rows, with columns sorted.
fn compressed(starts: &[i64], columns: &[i64], numbers: &[f64], d: usize) -> Result<Rows, Error> {
    let bad = |what: String| Error::data("X", what, "a sparse array whose `check_format()` finds no fault");
    let n = numbers.len();
    if columns.len() != n || starts.first() != Some(&0) || starts.last().copied() != i64::try_from(n).ok() {
        return Err(bad(format!("{} starts and {} columns of {n} numbers", starts.len(), columns.len())));
    }
    if u32::try_from(d).is_err() {
        return Err(bad(format!("{d} columns, which are too many")));
    }
    if let Some(i) = (1..starts.len()).find(|i| starts[*i] < starts[i - 1]) {
        return Err(bad(format!("row {i} starts before row {}", i - 1)));
    }
    if let Some(j) = columns.iter().find(|j| !usize::try_from(**j).is_ok_and(|j| j < d)) {
        return Err(bad(format!("a number in the column {j} of {d}")));
    }
    let (mut index, mut value) = (Vec::with_capacity(n), Vec::with_capacity(n));
    let mut row: Vec<(u32, f64)> = Vec::new();
    for at in starts.windows(2) {
        let at = at[0] as usize..at[1] as usize;
        row.clear();
        row.extend(columns[at.clone()].iter().zip(&numbers[at]).map(|(j, x)| (*j as u32, *x)));
        row.sort_by_key(|(j, _)| *j);
        if let Some(twice) = row.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(bad(format!("two numbers in the column {} of a row", twice[0].0)));
        }
        index.extend(row.iter().map(|(j, _)| *j));
        value.extend(row.iter().map(|(_, x)| *x));
    }
    Ok(Rows::Sparse { d, starts: starts.iter().map(|start| *start as usize).collect(), index, value })
}

/// The rows with a further, last column.
fn with_column(rows: Rows, column: &[f64]) -> Rows {
    match rows {
        Rows::Dense { d, values } => {
            let mut wider = Vec::with_capacity(values.len() + column.len());
            for (row, x) in column.iter().enumerate() {
                wider.extend_from_slice(&values[row * d..][..d]);
                wider.push(*x);
            }
            Rows::Dense { d: d + 1, values: wider }
        }
        Rows::Sparse { d, starts, index, value } => {
            let (mut all_starts, mut all_index, mut all_value) = (vec![0], Vec::new(), Vec::new());
            for (row, x) in column.iter().enumerate() {
                let at = starts[row]..starts[row + 1];
                all_index.extend_from_slice(&index[at.clone()]);
                all_value.extend_from_slice(&value[at]);
                all_index.push(d as u32);
                all_value.push(*x);
                all_starts.push(all_index.len());
            }
            Rows::Sparse { d: d + 1, starts: all_starts, index: all_index, value: all_value }
        }
    }
}

/// Targets: numbers, or `(names, the position of each row's name)`.
///
/// # Errors
/// When they have another type.
pub fn targets(y: &Bound<'_, PyAny>) -> PyResult<Labels> {
    if let Ok((names, of)) = y.extract::<(Vec<String>, PyReadonlyArray1<'_, i64>)>() {
        return Ok(Labels::Names { names, of: of.as_slice()?.iter().map(|i| *i as u32).collect() });
    }
    Ok(Labels::Numbers(y.extract::<PyReadonlyArray1<'_, f64>>()?.as_slice()?.to_vec()))
}

/// Rows of X from Python: an array, compressed rows, or columns with types.
pub struct GivenX<'a, 'py> {
    /// Their name in messages.
    pub name: String,
    pub x: Bound<'py, PyAny>,
    /// The names of the columns of an array; by default numbers from 1.
    pub names: Option<Vec<String>>,
    /// Further columns.
    pub added: Vec<(String, &'a [f64])>,
    /// The categorical columns.
    pub categorical: Vec<String>,
}

/// A data set of the rows of X, without targets. They are copied once, into the engine's memory.
///
/// # Errors
/// When they have another type, or columns have types that the engine does not read.
pub fn dataset_of(py: Python<'_>, given: GivenX<'_, '_>) -> PyResult<Dataset> {
    let GivenX { name, x, names, added, categorical } = given;
    if let Ok(columns) = x.cast::<Columns>() {
        let mut table = MemoryTable::of(name, &columns.get().0);
        for (name, numbers) in added {
            table.add_matrix(&[name], numbers, 1).or_raise(py)?;
        }
        // No column is the target, whatever its name.
        let wanted = Wanted::default().with_target("\0").with_may_lack_target(true).with_categorical(categorical);
        return table.dataset(&wanted).or_raise(py);
    }
    let mut rows = rows(&x)?;
    let mut names = names.unwrap_or_else(|| (1..=rows.columns()).map(|j| j.to_string()).collect());
    for (name, numbers) in added {
        rows = with_column(rows, numbers);
        names.push(name);
    }
    Ok(Dataset { name, rows, columns: dataset::Columns::Named(names), targets: None, groups: None, texts: Vec::new(), notes: Vec::new() })
}

/// Rows with targets from Python: their name in messages, X, y, and names of columns.
pub type GivenSet<'py> = (String, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Vec<String>>);

/// The data set of rows with targets.
///
/// # Errors
/// When they have other types or lengths, or are not finite.
pub fn dataset(py: Python<'_>, (name, x, y, names): GivenSet<'_>, categorical: Vec<String>) -> PyResult<Dataset> {
    let rows = dataset_of(py, GivenX { name, x, names, added: Vec::new(), categorical })?;
    let set = Dataset { targets: Some(targets(&y)?), ..rows };
    set.check().or_raise(py)?;
    Ok(set)
}
