//! Columns that are no features as they are: offsets, row weights, and categories, which become a column of 0 and 1 for each level.

use std::collections::HashSet;

use super::super::dataset::{Columns, Dataset, Rows, Wanted, row_in};
use crate::error::{Error, Result, quoted};

/// The most levels of a categorical column.
pub const MOST_LEVELS: usize = 1000;

/// Which columns they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpecialColumns {
    /// The column that is added to the linear predictors.
    pub offset: Option<String>,
    /// The column that says how much each row counts.
    pub row_weights: Option<String>,
    /// Columns of categories; those of text are so without being named.
    pub categorical: Vec<String>,
    /// The columns of categories with the levels of all agents' rows, in their order; by default they are those of the rows.
    pub known: Option<Vec<ColumnLevels>>,
}

/// A categorical column with its levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Category {
    /// The column.
    pub column: String,
    /// The levels that have a feature of their own, `column=level`, in increasing order.
    pub levels: Vec<String>,
    /// The level without one, with which others are compared: the first one. `None` where all levels have a feature.
    pub reference: Option<String>,
    /// The position of the feature of the first level.
    pub first: usize,
}

/// The levels of a categorical column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnLevels {
    /// The column.
    pub column: String,
    /// The levels in increasing order: of numbers by size, of texts as they are written.
    pub levels: Vec<String>,
    /// Whether they are numbers.
    pub are_numbers: bool,
}

impl Category {
    /// Of these levels, of which the first one has no feature where there is to be a reference.
    pub(super) fn of(known: &ColumnLevels, first: usize, has_reference: bool) -> Self {
        let mut levels = known.levels.clone();
        let reference = (has_reference && !levels.is_empty()).then(|| levels.remove(0));
        Self { column: known.column.clone(), levels, reference, first }
    }

    /// The names of the features.
    pub fn features(&self) -> impl Iterator<Item = String> {
        self.levels.iter().map(|level| format!("{}={level}", self.column))
    }
}

/// What was taken out of data sets, for the rows of all files in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken {
    /// Offsets; none without such a column.
    pub offsets: Vec<f64>,
    /// Row weights; none without such a column.
    pub row_weights: Vec<f64>,
    /// The categories.
    pub categories: Vec<Category>,
}

impl SpecialColumns {
    /// Refuses columns that are something else besides.
    fn check(&self, wanted: &Wanted) -> Result<()> {
        let both = |key: &str, name: &String, what: &str| {
            let what = format!("the column `{}` is {what} besides", quoted(name));
            Err(Error::data(key, what, "the name of a column that is nothing else"))
        };
        for (key, name) in [("offset", &self.offset), ("row_weights", &self.row_weights)] {
            let Some(name) = name else { continue };
            check_free(key, name, wanted)?;
            if self.categorical.contains(name) {
                return both(key, name, "one of categories");
            }
        }
        if let (Some(weights), true) = (&self.row_weights, self.offset == self.row_weights) {
            return both("row_weights", weights, "the offset");
        }
        self.categorical.iter().try_for_each(|name| check_free("categorical", name, wanted))
    }

    /// Takes these columns out of the data sets. Levels are those of all files; without an intercept the first category keeps its first level.
    ///
    /// # Errors
    /// When a column is not there, weights are negative or all 0, or there are too many levels.
    pub(super) fn take(&self, sets: &mut [Dataset], wanted: &Wanted, has_intercept: bool) -> Result<Taken> {
        let mut taken = Taken::default();
        self.check(wanted)?;
        for (key, name, out) in [("offset", &self.offset, &mut taken.offsets), ("row_weights", &self.row_weights, &mut taken.row_weights)] {
            if let Some(name) = name {
                for set in sets.iter_mut() {
                    out.extend(numbers(key, set, name)?);
                    remove(set, name);
                }
            }
        }
        if let Some(row) = taken.row_weights.iter().position(|x| *x < 0.0) {
            let what = format!("{} has the weight {}", row_in(sets, row), taken.row_weights[row]);
            return Err(Error::data("row_weights", what, "numbers of at least 0"));
        }
        if self.row_weights.is_some() && taken.row_weights.iter().all(|x| *x == 0.0) {
            return Err(Error::data("row_weights", "all rows have the weight 0", "rows that count"));
        }
        let columns = self.columns(sets);
        if columns.is_empty() {
            return Ok(taken);
        }
        let cells = cells_of(&columns, sets)?;
        for (i, (column, cells)) in columns.iter().zip(&cells).enumerate() {
            let levels = match &self.known {
                Some(known) => known_levels(known, column, cells)?,
                None => levels(column, cells)?,
            };
            taken.categories.push(Category::of(&levels, 0, has_intercept || i > 0));
        }
        for (file, set) in sets.iter_mut().enumerate() {
            columns.iter().for_each(|column| remove(set, column));
            set.texts.clear();
            for (category, cells) in taken.categories.iter_mut().zip(&cells) {
                category.first = set.rows.columns();
                check_names(set, category)?;
                append(set, category, &cells[file]);
            }
        }
        Ok(taken)
    }

    /// The offsets of rows, none without such a column, after a check of all columns that does not need the levels of others.
    ///
    /// # Errors
    /// When a column is not there, or is something else besides.
    pub(super) fn offsets_of(&self, sets: &[Dataset], wanted: &Wanted) -> Result<Vec<f64>> {
        self.check(wanted)?;
        let Some(name) = &self.offset else { return Ok(Vec::new()) };
        Ok(sets.iter().map(|set| numbers("offset", set, name)).collect::<Result<Vec<_>>>()?.concat())
    }

    /// The columns of categories: those that are named, and those of text in any file.
    fn columns(&self, sets: &[Dataset]) -> Vec<String> {
        let mut columns = self.categorical.clone();
        for text in sets.iter().flat_map(|set| set.texts.iter().map(|text| &text.column)) {
            if !columns.contains(text) {
                columns.push(text.clone());
            }
        }
        columns
    }

    /// The number of columns of categories, and of their levels in all: those of all agents where they are known, otherwise at most those that
    /// rows have.
    pub(in crate::problem) fn count_levels(&self, sets: &[Dataset]) -> (usize, usize) {
        if let Some(known) = &self.known {
            return (known.len(), known.iter().map(|one| one.levels.len()).sum());
        }
        let columns = self.columns(sets);
        let levels = |column: &String| {
            let texts = sets.iter().flat_map(|set| &set.texts).filter(|text| text.column == *column);
            let distinct: HashSet<&str> = texts.flat_map(|text| &text.names).map(String::as_str).collect();
            let are_numbers = |set: &&Dataset| set.texts.iter().all(|text| text.column != *column);
            // A column that is not there is refused where it is taken.
            let numbers = sets.iter().filter(are_numbers).flat_map(|set| numbers("categorical", set, column).unwrap_or_default());
            let mut numbers: Vec<u64> = numbers.map(|x| (x + 0.0).to_bits()).collect();
            numbers.sort_unstable();
            numbers.dedup();
            distinct.len() + numbers.len()
        };
        (columns.len(), columns.iter().map(levels).sum())
    }

    /// The levels that these rows have.
    pub(super) fn levels_of(&self, sets: &[Dataset]) -> Result<Vec<ColumnLevels>> {
        let columns = self.columns(sets);
        let cells = cells_of(&columns, sets)?;
        columns.iter().zip(&cells).map(|(column, cells)| levels(column, cells)).collect()
    }
}

/// The values of categorical columns in each file.
fn cells_of(columns: &[String], sets: &[Dataset]) -> Result<Vec<Vec<Vec<Cell>>>> {
    let cells = columns.iter().map(|column| sets.iter().map(|set| cells(set, column)).collect::<Result<Vec<_>>>());
    let mut cells = cells.collect::<Result<Vec<Vec<Vec<Cell>>>>>()?;
    cells.iter_mut().for_each(|column| same_type(column));
    Ok(cells)
}

/// A value of a categorical column.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Cell {
    Number(f64),
    Text(String),
}

impl Cell {
    fn name(&self) -> String {
        match self {
            Cell::Number(x) => x.to_string(),
            Cell::Text(text) => text.clone(),
        }
    }
}

/// Refuses a column that is the target or the group, which are no columns of features.
fn check_free(key: &str, name: &str, wanted: &Wanted) -> Result<()> {
    let Wanted { target, group, drop, .. } = wanted;
    let what = if target.as_deref() == Some(name) {
        "is the target"
    } else if group.as_deref() == Some(name) {
        "is the group"
    } else if drop.iter().any(|column| column == name) {
        "is dropped"
    } else {
        return Ok(());
    };
    Err(Error::data(key, format!("the column `{}` {what}", quoted(name)), "the name of a column that is nothing else"))
}

fn position(key: &str, set: &Dataset, name: &str) -> Result<usize> {
    set.columns.position(name).ok_or_else(|| {
        let what = format!("{}: there is no column `{}`", quoted(&set.name), quoted(name));
        Error::data(key, what, "the name of a column that is neither the target nor the group")
    })
}

/// The numbers of a column, zeros that are not stored too.
fn numbers(key: &str, set: &Dataset, name: &str) -> Result<Vec<f64>> {
    let at = position(key, set, name)?;
    if set.texts.iter().any(|text| text.column == name) {
        let what = format!("{}: the column `{}` is text", quoted(&set.name), quoted(name));
        return Err(Error::data(key, what, "a column of numbers"));
    }
    Ok((0..set.rows.len()).map(|j| set.rows.row(j).find(|(i, _)| *i == at).map_or(0.0, |(_, x)| x)).collect())
}

/// The values of a categorical column.
fn cells(set: &Dataset, name: &str) -> Result<Vec<Cell>> {
    let at = position("categorical", set, name)?;
    let text = set.texts.iter().find(|text| text.column == name);
    let value = |j: usize| set.rows.row(j).find(|(i, _)| *i == at).map_or(0.0, |(_, x)| x);
    Ok((0..set.rows.len())
        .map(|j| match text {
            Some(text) => Cell::Text(text.names[value(j) as usize].clone()),
            None => Cell::Number(value(j) + 0.0),
        })
        .collect())
}

/// Makes texts of all values of a column if some of them are: a number is then its text, and no other level of that name.
fn same_type(cells: &mut [Vec<Cell>]) {
    if cells.iter().flatten().any(|cell| matches!(cell, Cell::Text(_))) {
        cells.iter_mut().flatten().for_each(|cell| *cell = Cell::Text(cell.name()));
    }
}

/// The levels of all agents' rows of a column.
fn known_levels(known: &[ColumnLevels], column: &str, cells: &[Vec<Cell>]) -> Result<ColumnLevels> {
    let accepted = "the levels of all agents' rows";
    let Some(known) = known.iter().find(|one| one.column == column) else {
        let what = format!("the column `{}` is one of categories here, and no other agent's", quoted(column));
        return Err(Error::data("categorical", what, accepted));
    };
    match levels(column, cells)?.levels.iter().find(|level| !known.levels.contains(level)) {
        Some(other) => {
            let what = format!("the column `{}` has the level `{}`, which is none of them", quoted(column), quoted(other));
            Err(Error::data("categorical", what, accepted))
        }
        None => Ok(known.clone()),
    }
}

/// The levels of a column.
fn levels(column: &str, cells: &[Vec<Cell>]) -> Result<ColumnLevels> {
    let mut levels: Vec<&Cell> = Vec::new();
    for cell in cells.iter().flatten() {
        if let Err(at) = levels.binary_search_by(|other| other.partial_cmp(&cell).unwrap_or(std::cmp::Ordering::Equal)) {
            levels.insert(at, cell);
        }
        if levels.len() > MOST_LEVELS {
            let what = format!("the column `{}` has more than {MOST_LEVELS} levels", quoted(column));
            return Err(Error::data("categorical", what, "columns of few levels; `drop` names those to leave out"));
        }
    }
    let are_numbers = levels.iter().all(|level| matches!(level, Cell::Number(_)));
    Ok(ColumnLevels { column: column.into(), levels: levels.into_iter().map(Cell::name).collect(), are_numbers })
}

/// Removes a column.
fn remove(set: &mut Dataset, name: &str) {
    let Some(at) = set.columns.position(name) else { return };
    let shifted = |i: usize| i - usize::from(i > at);
    set.rows = match std::mem::replace(&mut set.rows, Rows::dense(0)) {
        Rows::Dense { d, values } => {
            let kept = values.iter().enumerate().filter(|(i, _)| i % d != at).map(|(_, x)| *x).collect();
            Rows::Dense { d: d - 1, values: kept }
        }
        Rows::Sparse { d, starts, index, value } => {
            let (mut ends, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
            for row in starts.windows(2) {
                for k in (row[0]..row[1]).filter(|k| index[*k] as usize != at) {
                    indices.push(shifted(index[k] as usize) as u32);
                    values.push(value[k]);
                }
                ends.push(indices.len());
            }
            Rows::Sparse { d: d - 1, starts: ends, index: indices, value: values }
        }
    };
    match &mut set.columns {
        Columns::Named(names) => drop(names.remove(at)),
        Columns::Counted { left_out, .. } => {
            // The position among all columns, with those that are left out already.
            let whole = left_out.iter().fold(at, |position, out| position + usize::from(*out <= position));
            let place = left_out.partition_point(|out| *out < whole);
            left_out.insert(place, whole);
        }
    }
}

/// Refuses a level whose feature has the name of another column.
fn check_names(set: &Dataset, category: &Category) -> Result<()> {
    let Some(twice) = category.features().find(|name| set.columns.position(name).is_some()) else { return Ok(()) };
    let e = named_twice(&twice, &category.column);
    let what = format!("{}: {}", quoted(&set.name), e.what);
    Err(e.saying(what))
}

/// The error about a level whose feature has the name of another column.
pub(super) fn named_twice(name: &str, column: &str) -> Error {
    let what = format!("the column `{}`, and a level of the category `{}` of this name", quoted(name), quoted(column));
    Error::data("categorical", what, "columns of other names; `drop` names those to leave out")
}

/// Adds a column for each level.
fn append(set: &mut Dataset, category: &Category, cells: &[Cell]) {
    let position = |j: usize| category.levels.iter().position(|level| *level == cells[j].name());
    let m = category.levels.len();
    match &mut set.rows {
        Rows::Dense { d, values } => {
            let width = *d;
            let mut all = Vec::with_capacity(cells.len() * (width + m));
            for j in 0..cells.len() {
                all.extend_from_slice(&values[j * width..][..width]);
                let level = position(j);
                all.extend((0..m).map(|k| f64::from(Some(k) == level)));
            }
            (*d, *values) = (width + m, all);
        }
        Rows::Sparse { d, starts, index, value } => {
            let (mut ends, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
            for (j, row) in starts.windows(2).enumerate() {
                indices.extend_from_slice(&index[row[0]..row[1]]);
                values.extend_from_slice(&value[row[0]..row[1]]);
                if let Some(k) = position(j) {
                    indices.push((*d + k) as u32);
                    values.push(1.0);
                }
                ends.push(indices.len());
            }
            (*starts, *index, *value) = (ends, indices, values);
            *d += m;
        }
    }
    let names: Vec<String> = set.columns.iter().map(|name| name.into_owned()).collect();
    set.columns = Columns::Named(names.into_iter().chain(category.features()).collect());
}
