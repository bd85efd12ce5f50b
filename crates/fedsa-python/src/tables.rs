//! Tables of transitions from Python.

use fedsa::error::{Error, quoted};
use fedsa_data::logs::{MemoryColumn, MemoryTable};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};

/// A table of an agent from Python: its name, matrices with the names of their columns, and columns of text.
pub type GivenTable<'py> = (String, Vec<(Vec<String>, PyReadonlyArray2<'py, f64>)>, Vec<(String, Vec<String>)>);

/// A table of Python as one of the engine, on the same numbers.
///
/// # Errors
/// When an array is not in C order, or has not as many columns as names.
pub fn memory_table<'a>((name, matrices, texts): &'a GivenTable<'_>) -> Result<MemoryTable<'a>, Error> {
    let mut table = MemoryTable::new(name.clone());
    for (names, matrix) in matrices {
        let numbers = matrix.as_slice().map_err(|e| Error::data(quoted(name), e.to_string(), "arrays in C order"))?;
        add_matrix(&mut table, names, numbers, matrix.shape()[1])?;
    }
    table.texts.clone_from(texts);
    Ok(table)
}

/// A table of one agent, with its own numbers.
pub struct OwnTable {
    name: String,
    /// Names of columns, and rows of as many numbers.
    matrices: Vec<(Vec<String>, Vec<f64>)>,
    texts: Vec<(String, Vec<String>)>,
}

impl OwnTable {
    /// A copy of a table of Python.
    ///
    /// # Errors
    /// As [`memory_table`].
    pub fn copy_of(given: &GivenTable<'_>) -> Result<Self, Error> {
        memory_table(given)?;
        let (name, matrices, texts) = given;
        let copy = |(names, matrix): &(Vec<String>, PyReadonlyArray2<'_, f64>)| {
            (names.clone(), matrix.as_slice().map(<[f64]>::to_vec).unwrap_or_default())
        };
        Ok(Self { name: name.clone(), matrices: matrices.iter().map(copy).collect(), texts: texts.clone() })
    }

    /// The table as one of the engine.
    ///
    /// # Errors
    /// As [`memory_table`].
    pub fn table(&self) -> Result<MemoryTable<'_>, Error> {
        let mut table = MemoryTable::new(self.name.clone());
        for (names, numbers) in &self.matrices {
            add_matrix(&mut table, names, numbers, names.len())?;
        }
        table.texts.clone_from(&self.texts);
        Ok(table)
    }
}

/// Adds a matrix in C order as columns with these names.
fn add_matrix<'a>(table: &mut MemoryTable<'a>, names: &[String], numbers: &'a [f64], width: usize) -> Result<(), Error> {
    if names.len() != width {
        let what = format!("{} names for {width} columns", names.len());
        return Err(Error::data(quoted(&table.name), what, "a name for each column"));
    }
    // A column of no rows is at no place.
    let column = |j: usize| MemoryColumn::new(if numbers.is_empty() { &[] } else { &numbers[j..] }, width.max(1));
    table.columns.extend(names.iter().enumerate().map(|(j, name)| (name.clone(), column(j))));
    Ok(())
}
