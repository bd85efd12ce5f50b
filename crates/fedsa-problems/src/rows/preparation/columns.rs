//! Columns with special roles: offsets, row weights, and categories, which become a column of 0 and 1 for each level.

use fedsa::columns::{Coding, MAX_LEVELS, coding, level_number};
use std::collections::{BTreeMap, HashMap, HashSet};

use super::texts::{MISSING_VALUE, alike, level_name, no_category};
use crate::rows::dataset::{Columns, Dataset, Rows, Wanted, row_in};
use fedsa::error::{Error, Result, in_quotes, quoted};
use fedsa::note::{Note, NoteCode};

/// A level with fewer rows than this is rare.
const FEW_ROWS: u64 = 5;

/// The most levels that a note lists.
const LISTED: usize = 5;

/// The special columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpecialColumns {
    /// The column added to the linear predictors.
    pub offset: Option<String>,
    /// The column of row weights.
    pub row_weights: Option<String>,
    /// Columns of categories; columns of text need not be listed.
    pub categorical: Vec<String>,
    /// The levels of columns of categories that the settings declare; the first is the reference. All of these columns are in
    /// `categorical`.
    pub declared: BTreeMap<String, Vec<String>>,
    /// The columns of categories with the levels of all agents' rows, in their order; by default, the levels of the rows at hand.
    pub known: Option<Vec<ColumnLevels>>,
}

/// A categorical column with its levels.
#[derive(Debug, Clone, PartialEq)]
pub struct Category {
    /// The column.
    pub column: String,
    /// The levels with a feature `column=level`, in increasing order.
    pub levels: Vec<String>,
    /// The level without a feature: the first declared one, otherwise the most frequent one, the first among ties. `None` if all levels
    /// have a feature.
    pub reference: Option<String>,
    /// The position of the feature of the first level.
    pub first: usize,
}

/// The levels of a categorical column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnLevels {
    /// The column.
    pub column: String,
    /// The levels in increasing order: numbers by size, texts as strings.
    pub levels: Vec<String>,
    /// The number of rows of each level.
    pub counts: Vec<u64>,
    /// Whether all of them are numbers.
    pub are_numbers: bool,
    /// Whether the settings declare them. They then have the order of the settings, and the first is the reference.
    pub are_declared: bool,
}

impl ColumnLevels {
    /// Declared levels, with the number of rows of each. Other levels of `rows` are ignored.
    pub fn declared(column: impl Into<String>, levels: &[String], rows: &HashMap<String, u64>) -> Self {
        let counts = levels.iter().map(|level| rows.get(level).copied().unwrap_or(0)).collect();
        let are_numbers = levels.iter().all(|level| level_number(level).is_some());
        Self { column: column.into(), levels: levels.to_vec(), counts, are_numbers, are_declared: true }
    }

    /// From levels with their numbers of rows.
    pub fn new(column: impl Into<String>, rows: HashMap<String, u64>) -> Self {
        let are_numbers = rows.keys().all(|level| level_number(level).is_some());
        let mut levels: Vec<(String, u64)> = rows.into_iter().collect();
        match are_numbers {
            true => levels.sort_by(|(a, _), (b, _)| level_number(a).partial_cmp(&level_number(b)).unwrap_or(std::cmp::Ordering::Equal)),
            false => levels.sort(),
        }
        let (levels, counts) = levels.into_iter().unzip();
        Self { column: column.into(), levels, counts, are_numbers, are_declared: false }
    }

    /// The position of the reference: of the most frequent level, the first among ties, or of the first declared one.
    fn reference(&self) -> usize {
        if self.are_declared {
            return 0;
        }
        let most = self.counts.iter().max();
        self.counts.iter().position(|count| Some(count) == most).unwrap_or(0)
    }

    /// Notes about unusual levels.
    fn notes(&self) -> Vec<Note> {
        let column = in_quotes(&self.column);
        let rows = |i: usize| format!("{} ({})", in_quotes(&self.levels[i]), rows(self.counts[i]));
        let mut notes = Vec::new();
        if let Some((a, b)) = alike(self.levels.iter().map(String::as_str)) {
            let text = format!(
                "the column {column} has the levels {} and {}, which differ by case or spaces alone: write them alike if they are one",
                rows(a),
                rows(b)
            );
            notes.push(Note::new(NoteCode::LevelsAlike, text));
        }
        let rare: Vec<usize> = (0..self.levels.len()).filter(|i| self.counts[*i] < FEW_ROWS).collect();
        if !rare.is_empty() {
            let more = if rare.len() > LISTED { format!(" and {} more", rare.len() - LISTED) } else { String::new() };
            let listed: Vec<String> = rare.iter().take(LISTED).map(|i| rows(*i)).collect();
            let text = format!(
                "the column {column} has levels with fewer than {FEW_ROWS} rows, whose coefficients are uncertain: {}{more}",
                listed.join(", ")
            );
            notes.push(Note::new(NoteCode::LevelRare, text));
        }
        notes
    }
}

/// A number of rows, as text.
pub(super) fn rows(count: u64) -> String {
    if count == 1 { "1 row".into() } else { format!("{count} rows") }
}

impl Category {
    /// The category of these levels. The most frequent level has no feature if `has_reference`.
    pub(super) fn of(known: &ColumnLevels, first: usize, has_reference: bool) -> Self {
        let mut levels = known.levels.clone();
        let reference = (has_reference && !levels.is_empty()).then(|| levels.remove(known.reference()));
        Self { column: known.column.clone(), levels, reference, first }
    }

    /// The names of the features.
    pub fn features(&self) -> impl Iterator<Item = String> {
        self.levels.iter().map(|level| format!("{}={level}", self.column))
    }
}

/// The special columns taken out of data sets, for the rows of all files in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken {
    /// Offsets; empty without such a column.
    pub offsets: Vec<f64>,
    /// Row weights; empty without such a column.
    pub row_weights: Vec<f64>,
    /// The categories.
    pub categories: Vec<Category>,
    /// Their levels with the number of rows of each.
    pub levels: Vec<ColumnLevels>,
    /// Notes about unusual levels.
    pub notes: Vec<Note>,
}

impl SpecialColumns {
    /// Refuses columns with a second role.
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

    /// Takes these columns out of the data sets. Levels are from all files; without an intercept, the first category keeps its first level.
    ///
    /// # Errors
    /// When a column is missing, weights are negative or all 0, or there are too many levels.
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
        self.check_texts(sets)?;
        let columns = self.columns(sets);
        if columns.is_empty() {
            return Ok(taken);
        }
        let cells = cells_of(&columns, sets)?;
        for (i, (column, cells)) in columns.iter().zip(&cells).enumerate() {
            let levels = match &self.known {
                Some(known) => known_levels(known, column, sets, cells)?,
                None => self.own_levels(column, sets, cells)?,
            };
            taken.categories.push(Category::of(&levels, 0, has_intercept || i > 0));
            taken.notes.extend(levels.notes());
            taken.levels.push(levels);
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

    /// The offsets of rows, empty without such a column. Also checks all special columns, as far as other agents' levels are not needed.
    ///
    /// # Errors
    /// When a column is missing, or has a second role.
    pub(super) fn offsets_of(&self, sets: &[Dataset], wanted: &Wanted) -> Result<Vec<f64>> {
        self.check(wanted)?;
        let Some(name) = &self.offset else { return Ok(Vec::new()) };
        Ok(sets.iter().map(|set| numbers("offset", set, name)).collect::<Result<Vec<_>>>()?.concat())
    }

    /// The columns of categories: the listed ones, and columns that are text in any file.
    fn columns(&self, sets: &[Dataset]) -> Vec<String> {
        let mut columns = self.categorical.clone();
        for text in sets.iter().flat_map(|set| set.texts.iter().map(|text| &text.column)) {
            if !columns.contains(text) {
                columns.push(text.clone());
            }
        }
        columns
    }

    /// The number of columns of categories, and of their levels in all: the known levels of all agents, otherwise an upper bound from the
    /// rows.
    pub(crate) fn count_levels(&self, sets: &[Dataset]) -> (usize, usize) {
        if let Some(known) = &self.known {
            return (known.len(), known.iter().map(|one| one.levels.len()).sum());
        }
        let columns = self.columns(sets);
        let levels = |column: &String| {
            // [`Self::take`] refuses missing columns and too many levels.
            let cells = sets.iter().filter_map(|set| cells(set, column).ok());
            cells.flat_map(|cells| cells.levels).collect::<HashSet<String>>().len()
        };
        (columns.len(), columns.iter().map(levels).sum())
    }

    /// The levels of these rows.
    pub(super) fn levels_of(&self, sets: &[Dataset]) -> Result<Vec<ColumnLevels>> {
        self.check_texts(sets)?;
        let columns = self.columns(sets);
        let cells = cells_of(&columns, sets)?;
        columns.iter().zip(&cells).map(|(column, cells)| self.own_levels(column, sets, cells)).collect()
    }

    /// The declared levels of a column, otherwise those of these rows.
    fn own_levels(&self, column: &str, sets: &[Dataset], cells: &[Cells]) -> Result<ColumnLevels> {
        let own = levels(column, sets, cells)?;
        let Some(declared) = self.declared.get(column) else { return Ok(own) };
        match own.levels.iter().find(|level| !declared.contains(level)) {
            Some(other) => {
                let what = format!("the column `{}` has the level `{}`, which is not declared", quoted(column), quoted(other));
                Err(Error::data("levels", what, "rows with the declared levels, or all levels in `levels`"))
            }
            None => Ok(ColumnLevels::declared(column, declared, &own.levels.into_iter().zip(own.counts).collect())),
        }
    }

    /// Refuses declared levels that are none, repeated, or too many.
    pub(super) fn check_declared(&self) -> Result<()> {
        for (column, levels) in &self.declared {
            let distinct: HashSet<&String> = levels.iter().collect();
            if levels.is_empty() || distinct.len() < levels.len() || levels.len() > MAX_LEVELS {
                let what = format!("{} levels of `{}`, {} of them distinct", levels.len(), quoted(column), distinct.len());
                return Err(Error::new("levels", what, format!("one level or more, at most {MAX_LEVELS}, each once")));
            }
        }
        Ok(())
    }

    /// Refuses markers of missing values, and numbers and dates written as text, in text columns that are not listed as categories.
    fn check_texts(&self, sets: &[Dataset]) -> Result<()> {
        for set in sets {
            for text in set.texts.iter().filter(|text| !self.categorical.contains(&text.column)) {
                let Some((at, what)) = text.names.iter().enumerate().find_map(|(at, name)| Some((at, no_category(name)?))) else {
                    continue;
                };
                let Some(column) = set.columns.position(&text.column) else { continue };
                let is_it = |row: usize| set.rows.row(row).find(|(i, _)| *i == column).map_or(0.0, |(_, x)| x) as usize == at;
                let row = (0..set.rows.len()).find(|row| is_it(*row)).unwrap_or(0);
                let place = format!("{}: row {}, column `{}`", quoted(&set.name), row + 1, quoted(&text.column));
                return Err(Error::data("data", format!("{place}: `{}` is {what}", quoted(&text.names[at])), help_with(what)));
            }
        }
        Ok(())
    }
}

/// The help for a text that is not a category.
pub fn help_with(what: &str) -> &'static str {
    match what {
        MISSING_VALUE => {
            "a value in every row: leave such rows out; `drop` leaves the column out; in a column of categories that `categorical` names, this \
             text is one of them"
        }
        "a date" => {
            "dates as numbers, such as days since the first one; `drop` leaves the column out, `categorical` makes a category of each text"
        }
        _ => {
            "numbers without signs and separators, such as 1234.5; `drop` leaves the column out, `categorical` makes a category of each text"
        }
    }
}

/// The values of categorical columns in each file.
fn cells_of(columns: &[String], sets: &[Dataset]) -> Result<Vec<Vec<Cells>>> {
    columns.iter().map(|column| sets.iter().map(|set| cells(set, column)).collect()).collect()
}

/// The values of a categorical column in one file.
struct Cells {
    /// The levels in the order of their rows, without duplicates.
    levels: Vec<String>,
    /// The position of each row's level.
    of: Vec<u32>,
}

/// Refuses a column that is the target or the group, which are no features.
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

/// The numbers of a column, including zeros that are not stored.
pub(super) fn numbers(key: &str, set: &Dataset, name: &str) -> Result<Vec<f64>> {
    let at = position(key, set, name)?;
    if set.texts.iter().any(|text| text.column == name) {
        let what = format!("{}: the column `{}` is text", quoted(&set.name), quoted(name));
        return Err(Error::data(key, what, "a column of numbers"));
    }
    Ok((0..set.rows.len()).map(|j| set.rows.row(j).find(|(i, _)| *i == at).map_or(0.0, |(_, x)| x)).collect())
}

/// The values of a categorical column.
///
/// # Errors
/// When the column is missing, or has too many levels.
fn cells(set: &Dataset, name: &str) -> Result<Cells> {
    let at = position("categorical", set, name)?;
    let text = set.texts.iter().find(|text| text.column == name);
    let value = |j: usize| set.rows.row(j).find(|(i, _)| *i == at).map_or(0.0, |(_, x)| x) + 0.0;
    let (mut levels, mut of) = (Vec::new(), Vec::with_capacity(set.rows.len()));
    let (mut seen, mut position_of): (HashMap<u64, u32>, HashMap<String, u32>) = Default::default();
    for x in (0..set.rows.len()).map(value) {
        let position = *seen.entry(x.to_bits()).or_insert_with(|| {
            let level = text.map_or_else(|| x.to_string(), |text| level_name(&text.names[x as usize]));
            *position_of.entry(level).or_insert_with_key(|level| {
                levels.push(level.clone());
                levels.len() as u32 - 1
            })
        });
        of.push(position);
        check_levels(name, levels.len())?;
    }
    Ok(Cells { levels, of })
}

fn check_levels(column: &str, levels: usize) -> Result<()> {
    if levels <= MAX_LEVELS {
        return Ok(());
    }
    let what = format!("the column `{}` has more than {MAX_LEVELS} levels", quoted(column));
    Err(Error::data("categorical", what, "columns of few levels; `drop` names those to leave out"))
}

/// The known levels of a column, from all agents' rows.
fn known_levels(known: &[ColumnLevels], column: &str, sets: &[Dataset], cells: &[Cells]) -> Result<ColumnLevels> {
    let accepted = "the levels of all agents' rows";
    let Some(known) = known.iter().find(|one| one.column == column) else {
        let what = format!("the column `{}` is one of categories here, and no other agent's", quoted(column));
        return Err(Error::data("categorical", what, accepted));
    };
    match levels(column, sets, cells)?.levels.iter().find(|level| !known.levels.contains(level)) {
        Some(other) => {
            let what = format!("the column `{}` has the level `{}`, which is none of them", quoted(column), quoted(other));
            Err(Error::data("categorical", what, accepted))
        }
        None => Ok(known.clone()),
    }
}

/// The levels of a column with their numbers of rows.
///
/// # Errors
/// When they are numbers in one file and texts in another, or too many.
fn levels(column: &str, sets: &[Dataset], cells: &[Cells]) -> Result<ColumnLevels> {
    check_coding(column, sets, cells)?;
    let mut rows: HashMap<String, u64> = HashMap::new();
    for Cells { levels, of } in cells {
        let mut counts = vec![0; levels.len()];
        of.iter().for_each(|i| counts[*i as usize] += 1);
        levels.iter().zip(counts).for_each(|(level, count)| *rows.entry(level.clone()).or_default() += count);
        check_levels(column, rows.len())?;
    }
    Ok(ColumnLevels::new(column, rows))
}

/// Refuses a column whose levels are all numbers in one file and all texts in another: the files use different codes.
fn check_coding(column: &str, sets: &[Dataset], cells: &[Cells]) -> Result<()> {
    let file = |are: Coding| cells.iter().position(|cells| coding(cells.levels.iter().map(String::as_str)) == Some(are));
    let (Some(numbers), Some(texts)) = (file(Coding::Numbers), file(Coding::Texts)) else { return Ok(()) };
    let such_as = |file: usize| format!("{}, such as `{}`", quoted(&sets[file].name), quoted(&cells[file].levels[0]));
    let what = format!("the column `{}` holds numbers in {}, and text in {}", quoted(column), such_as(numbers), such_as(texts));
    Err(Error::data("data", what, "the same codes in all files; `drop` leaves the column out"))
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
            // The position among all columns, including left-out ones.
            let whole = left_out.iter().fold(at, |position, out| position + usize::from(*out <= position));
            let place = left_out.partition_point(|out| *out < whole);
            left_out.insert(place, whole);
        }
    }
}

/// Refuses a level whose feature has another column's name.
fn check_names(set: &Dataset, category: &Category) -> Result<()> {
    let Some(twice) = category.features().find(|name| set.columns.position(name).is_some()) else { return Ok(()) };
    let e = named_twice(&twice, &category.column);
    let what = format!("{}: {}", quoted(&set.name), e.what);
    Err(e.saying(what))
}

/// The error about a level whose feature has another column's name.
pub(super) fn named_twice(name: &str, column: &str) -> Error {
    let what = format!("the column `{}`, and a level of the category `{}` of this name", quoted(name), quoted(column));
    Error::data("categorical", what, "columns of other names; `drop` names those to leave out")
}

/// Adds a column for each level.
fn append(set: &mut Dataset, category: &Category, cells: &Cells) {
    let of_level = |level: &String| category.levels.iter().position(|other| other == level);
    let positions: Vec<Option<usize>> = cells.levels.iter().map(of_level).collect();
    let position = |j: usize| positions[cells.of[j] as usize];
    let m = category.levels.len();
    match &mut set.rows {
        Rows::Dense { d, values } => {
            let width = *d;
            let mut all = Vec::with_capacity(cells.of.len() * (width + m));
            for j in 0..cells.of.len() {
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
