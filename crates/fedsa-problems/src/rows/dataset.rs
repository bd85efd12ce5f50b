//! Rows of numbers with targets, as in files: the data of regression and classification before they are divided among agents.

use std::borrow::Cow;

use fedsa::error::{Error, Result, quoted};
use fedsa::note::Note;

pub use crate::kernel::rows::Rows;

/// A column of a data set that labels rows, such as classes or writers.
#[derive(Debug, Clone, PartialEq)]
pub enum Labels {
    /// A number for each row.
    Numbers(Vec<f64>),
    /// A name for each row.
    Names {
        /// The distinct names, in the order of their first rows.
        names: Vec<String>,
        /// The position of each row's name.
        of: Vec<u32>,
    },
}

impl Labels {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Labels::Numbers(x) => x.len(),
            Labels::Names { of, .. } => of.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The names of columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Columns {
    /// From a header.
    Named(Vec<String>),
    /// Their numbers `1`, `2`, .. as text, made on demand: sparse rows may have millions of columns.
    Counted {
        /// The number of columns, including left-out ones.
        width: usize,
        /// The positions of left-out columns, from 0, below `width`, in increasing order.
        left_out: Vec<usize>,
    },
}

impl Columns {
    /// The number of columns d.
    pub fn len(&self) -> usize {
        match self {
            Columns::Named(names) => names.len(),
            Columns::Counted { width, left_out } => width - left_out.len(),
        }
    }

    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they are `1`, `2`, .. without a gap, as in a model without names.
    pub fn are_counted(&self) -> bool {
        self.are_counted_up_to(self.len())
    }

    /// Whether the first d of them, or all if there are fewer, are `1`, `2`, .. without a gap.
    pub fn are_counted_up_to(&self, d: usize) -> bool {
        match self {
            Columns::Named(names) => names.iter().take(d).enumerate().all(|(i, name)| *name == (i + 1).to_string()),
            Columns::Counted { left_out, .. } => left_out.first().is_none_or(|first| *first >= d.min(self.len())),
        }
    }

    /// The position of a column, from 0.
    pub fn position(&self, name: &str) -> Option<usize> {
        match self {
            Columns::Named(names) => names.iter().position(|own| own == name),
            Columns::Counted { width, left_out } => {
                let number = name.parse::<usize>().ok().filter(|number| number.to_string() == name && (1..=*width).contains(number))?;
                left_out.binary_search(&(number - 1)).err().map(|before| number - 1 - before)
            }
        }
    }

    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, str>> + '_ {
        let (names, width, left_out): (&[String], usize, &[usize]) = match self {
            Columns::Named(names) => (names, 0, &[]),
            Columns::Counted { width, left_out } => (&[], *width, left_out),
        };
        let counted = (0..width).filter(move |j| left_out.binary_search(j).is_err()).map(|j| Cow::<str>::Owned((j + 1).to_string()));
        names.iter().map(|name| Cow::Borrowed(name.as_str())).chain(counted)
    }

    /// The name of column `j`, from 0.
    pub fn name(&self, j: usize) -> Option<Cow<'_, str>> {
        match self {
            Columns::Named(names) => names.get(j).map(|name| Cow::Borrowed(name.as_str())),
            Columns::Counted { width, left_out } => {
                // Left-out columns shift the later ones.
                let position = left_out.iter().fold(j, |position, out| position + usize::from(*out <= position));
                (position < *width).then(|| Cow::Owned((position + 1).to_string()))
            }
        }
    }
}

impl Default for Columns {
    fn default() -> Self {
        Columns::Named(Vec::new())
    }
}

impl FromIterator<String> for Columns {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Columns::Named(names.into_iter().collect())
    }
}

/// The wanted parts of a data set's files, by column name; a file without names has the columns `1`, `2`, ..
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Wanted {
    /// The column of targets. Defaults: the label of LIBSVM files, the `labels` file beside IDX images, and the column `target` or `label`
    /// of a table.
    pub target: Option<String>,
    /// The column of agents, such as `writers` beside IDX images. It is not a feature.
    pub group: Option<String>,
    /// Columns of a table that are not features.
    pub drop: Vec<String>,
    /// Columns of categories, which may hold any text, such as `NA` and `71%`. Other columns hold text if their first field is text.
    pub categorical: Vec<String>,
    /// Whether a file without targets is accepted, such as a file to predict.
    pub may_lack_target: bool,
    /// Whether to accept a file whose sparse rows end before a column named here. Files of other agents, read separately, may have numbers
    /// there; these rows have zeros.
    pub may_end_before: bool,
}

impl Wanted {
    /// The positions, from 0, of columns that are no features in a file without names, if given as numbers.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = usize> + '_ {
        let names = self.drop.iter().chain(&self.target).chain(&self.group);
        names.filter_map(|name| name.parse::<usize>().ok()?.checked_sub(1))
    }
}

fedsa::settings::setters! { Wanted {
    with_target(target: impl Into<String>) = Some(target.into());
    with_group(group: impl Into<String>) = Some(group.into());
    with_drop(drop: Vec<String>) = drop;
    with_categorical(categorical: Vec<String>) = categorical;
    with_may_lack_target(may_lack_target: bool) = may_lack_target;
    with_may_end_before(may_end_before: bool) = may_end_before;
} }

/// A data set: the rows of one file.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// The name of the file in messages.
    pub name: String,
    /// The names of the columns, d.
    pub columns: Columns,
    /// The rows, n x d.
    pub rows: Rows,
    /// The target of each row; `None` if the file has none.
    pub targets: Option<Labels>,
    /// The group of each row, if wanted.
    pub groups: Option<Labels>,
    /// The columns of text: their numbers in `rows` are positions of names.
    pub texts: Vec<TextColumn>,
    /// Notes about how the file was read.
    pub notes: Vec<Note>,
}

/// A column of text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextColumn {
    /// Its name.
    pub column: String,
    /// The distinct texts; rows hold their positions.
    pub names: Vec<String>,
}

impl Dataset {
    /// Checks lengths, and that all numbers are finite.
    ///
    /// # Errors
    /// When lengths differ or a number is not finite; the error names the row (from 0) and the column.
    pub fn check(&self) -> Result<()> {
        let n = self.rows.len();
        for i in 0..n {
            if let Some((j, x)) = self.rows.row(i).find(|(_, x)| !x.is_finite()) {
                let column = self.columns.name(j).map_or_else(|| j.to_string(), quoted);
                return Err(Error::data(self.name.clone(), format!("row {i}, column {column}: {x}"), "finite numbers"));
            }
        }
        if let Some(Labels::Numbers(x)) = &self.targets
            && let Some(i) = x.iter().position(|x| !x.is_finite())
        {
            return Err(Error::data(self.name.clone(), format!("row {i}: the target {}", x[i]), "finite numbers"));
        }
        for labels in [&self.targets, &self.groups].into_iter().flatten() {
            if labels.len() != n {
                return Err(Error::data(self.name.clone(), format!("{} labels for {n} rows", labels.len()), "a label for each row"));
            }
        }
        Ok(())
    }
}

/// A row of several data sets, for messages: `a.csv: row 7`, from 1. `row` counts over all sets, from 0.
pub(crate) fn row_in(sets: &[Dataset], row: usize) -> String {
    let mut first = 0;
    for set in sets {
        if row < first + set.rows.len() {
            return format!("{}: row {}", quoted(&set.name), row - first + 1);
        }
        first += set.rows.len();
    }
    format!("row {}", row + 1)
}
