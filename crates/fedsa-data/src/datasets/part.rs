//! The rows of one file.

use std::path::Path;
use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa_problems::rows::dataset::{self, Labels, Rows, TextColumn};
use fedsa_problems::rows::preparation::columns::help_with;
use fedsa_problems::rows::preparation::texts::no_category;

use crate::store::Store;
use crate::unreadable;
use crate::{field, regular};

/// The contents of one file.
pub(super) struct Part {
    pub columns: Columns,
    pub rows: Rows,
    pub targets: Option<Labels>,
    pub groups: Option<Labels>,
    /// Text columns of tables.
    pub texts: Vec<TextColumn>,
    /// A message that commas were read as decimal marks, with the first such number; `None` without such numbers.
    pub decimal_comma: Option<String>,
    /// Columns to drop that do not exist, as errors. Files without names have none here: they are checked when all are read.
    pub lacking: Vec<(String, Error)>,
}

/// The columns of a file.
pub(super) enum Columns {
    /// By names in the file.
    Named(Vec<String>),
    /// By position. The number of columns of sparse rows is known only after all files are read.
    Numbered {
        /// The file's number of columns, dropped ones included.
        width: usize,
        /// The positions of columns that are not features, in increasing order.
        left_out: Vec<usize>,
        /// Whether the indices of the file count from 0.
        zero_based: bool,
    },
}

impl Columns {
    pub fn width(&self) -> usize {
        match self {
            Self::Named(names) => names.len(),
            Self::Numbered { width, .. } => *width,
        }
    }

    /// The difference of `other` in words: `it has other columns`.
    pub fn differ(&self, other: &Self) -> Option<String> {
        match (self, other) {
            (Self::Named(a), Self::Named(b)) => (a != b).then(|| "it has other columns".into()),
            (Self::Numbered { width: a, .. }, Self::Numbered { width: b, .. }) => {
                (a != b).then(|| format!("it has {b} columns, which are {} {}", a.abs_diff(*b), if b > a { "more" } else { "less" }))
            }
            _ => Some("its columns have names, or have none, other".into()),
        }
    }

    /// The names of the columns; `may_end_before` allows files that end before the columns to drop.
    pub fn names(self, may_end_before: bool) -> Result<dataset::Columns> {
        let (width, mut left_out) = match self {
            Self::Named(names) => return Ok(dataset::Columns::Named(names)),
            Self::Numbered { width, left_out, .. } => (width, left_out),
        };
        if may_end_before {
            left_out.retain(|j| *j < width);
        }
        if let Some(j) = left_out.iter().find(|j| **j >= width) {
            let what = format!("there is no column `{}`: there are {width} columns", j + 1);
            return Err(Error::data("", what, format!("one of the columns 1 to {width}")));
        }
        Ok(dataset::Columns::Counted { width, left_out })
    }
}

/// A regular file on the disk.
pub(super) fn disk(path: &Path) -> Result<Store> {
    let (file, metadata) = regular::opened(path, u64::MAX).map_err(|e| unreadable(path, &e))?;
    Ok(Store::Disk(Arc::new(file), metadata.len()))
}

/// A file with its name.
pub(super) type NamedStore = (String, Store);

/// The companion files of an IDX file, with its labels or groups.
#[derive(Clone, Copy)]
pub(super) struct Beside<'a> {
    /// Opens the file for a word; returns it with its name.
    pub open: &'a dyn Fn(&str) -> Result<Option<NamedStore>>,
    /// The words for which there are files.
    pub words: &'a dyn Fn() -> Vec<String>,
}

/// The error for a file without rows.
pub(super) fn no_rows() -> Error {
    Error::data("", "there are no rows in it", "a file with at least one row")
}

/// The error for rows without features.
pub(super) fn no_features() -> Error {
    Error::data("", "there are rows, but no row has a feature", "at least one feature beside target and group")
}

/// The error for a field that is not a finite number.
pub(super) fn not_finite(place: &str, field: &str, help: &str) -> Error {
    Error::data("", format!("{place}: {} is not a finite number", field::in_words(field)), help)
}

/// The error for a feature's field that is not a number: a missing value, a number or date in another notation, or a text.
pub(super) fn not_number(place: &str, field: &str) -> Error {
    match no_category(field) {
        Some(what) if !field.is_empty() => Error::data("", format!("{place}: {} is {what}", field::in_words(field)), help_with(what)),
        _ => not_finite(place, field, NUMBERS),
    }
}

/// The accepted fields of a feature.
pub(super) const NUMBERS: &str =
    "a finite number in every row: leave such rows out; a column that is not a feature is named by `drop`, or is the target or the group";
