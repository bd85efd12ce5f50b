//! Sparse rows, of which files have the columns up to the last number that is not 0: as wide, and as dense, as those of all files together.

use std::borrow::Cow;

use super::columns::Category;
use crate::rows::dataset::{Columns, Dataset, Rows, Wanted};

/// Above this share of numbers that are not 0, sparse rows are stored as dense ones.
const DENSE_ABOVE: f64 = 0.25;
/// The most columns whose names are made.
const MAX_NAMES: usize = 1 << 23;

/// The size of sparse rows whose columns have no names, without those that are no features as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseSize {
    /// The rows that are fitted.
    pub rows: usize,
    /// The number of columns, with those that are left out.
    pub width: usize,
    /// The numbers that these rows store in the other columns.
    pub stored: usize,
    /// The positions (from 0) of columns that are left out, such as the target, offsets and categories.
    pub left_out: Vec<usize>,
    /// How many categories become columns of 0 and 1.
    pub categories: usize,
}

impl SparseSize {
    /// Of these rows, of which this number is fitted; `None` of others. Their columns are `1`, `2`, .. but for those that are left out, and for
    /// `special` ones, of which the last `categories` become columns of 0 and 1.
    pub(super) fn of(sets: &[Dataset], wanted: &Wanted, rows: usize, special: &[&str], categories: usize) -> Option<Self> {
        let widest = sets.iter().max_by_key(|set| set.rows.columns())?;
        let Columns::Counted { width, left_out } = &widest.columns else { return None };
        if sets.iter().any(|set| !matches!(set.rows, Rows::Sparse { .. })) {
            return None;
        }
        let mut left_out: Vec<usize> = left_out.iter().copied().chain(wanted.left_out()).collect();
        left_out.extend(special.iter().filter_map(|name| name.parse::<usize>().ok()?.checked_sub(1)));
        left_out.sort_unstable();
        left_out.dedup();
        let stored_in = |set: &Dataset| -> Vec<usize> {
            let at: Vec<usize> = special.iter().filter_map(|name| set.columns.position(name)).collect();
            (0..set.rows.len()).map(|j| set.rows.row(j).filter(|(i, _)| !at.contains(i)).count()).collect()
        };
        let stored = sets.iter().flat_map(stored_in).take(rows).sum();
        Some(Self { rows, width: *width, stored, left_out, categories })
    }

    /// The number of columns that are features as they are.
    pub fn plain(&self) -> usize {
        self.width.saturating_sub(self.left_out.partition_point(|out| *out < self.width))
    }

    /// Their names, where they are not so many that no model has them, and not `1`, `2`, .. without a gap.
    pub fn names(&self) -> Option<Vec<String>> {
        if self.left_out.is_empty() || self.width > MAX_NAMES {
            return None;
        }
        let left_out = self.left_out.iter().copied().filter(|out| *out < self.width).collect();
        let all = Columns::Counted { width: self.width, left_out };
        Some(all.iter().map(Cow::into_owned).collect())
    }

    /// Whether rows with these features are stored as dense ones, as those of all agents together would be. A category counts as one number a
    /// row ([`counted`]).
    pub(super) fn is_nearly_dense(&self, features: usize, has_intercept: bool) -> bool {
        let further = self.categories + usize::from(has_intercept);
        is_nearly_dense((self.stored + self.rows * further) as f64, self.rows as f64, features as f64)
    }
}

/// The numbers that rows store, where each of these categories counts as one a row: how many have its first level, which stores none, is not
/// known of all agents.
pub(super) fn counted(rows: &Rows, categories: &[Category]) -> usize {
    let in_category = |i: usize| categories.iter().any(|one| (one.first..one.first + one.levels.len()).contains(&i));
    let others = |j: usize| rows.row(j).filter(|(i, _)| !in_category(*i)).count();
    if categories.is_empty() { rows.stored() } else { (0..rows.len()).map(others).sum::<usize>() + rows.len() * categories.len() }
}

/// Makes sparse rows as wide as the widest of them, and at least as wide as that, without the columns that are no features. Returns how wide
/// they were.
pub(super) fn widen(sets: &mut [Dataset], wanted: &Wanted, least: usize) -> usize {
    let width = |set: &Dataset| if let Columns::Counted { width, .. } = &set.columns { *width } else { 0 };
    let before = sets.iter().map(width).max().unwrap_or(0);
    let widest = before.max(least);
    for set in sets {
        if let (Rows::Sparse { d, .. }, Columns::Counted { width, left_out }) = (&mut set.rows, &mut set.columns) {
            // Those that the file has were left out as it was read.
            left_out.extend(wanted.left_out().filter(|out| (*width..widest).contains(out)));
            left_out.sort_unstable();
            left_out.dedup();
            *width = widest;
            *d = widest - left_out.len();
        }
    }
    before
}

/// Whether rows of so many stored numbers are kept as dense ones.
pub(crate) fn is_nearly_dense(stored: f64, rows: f64, columns: f64) -> bool {
    stored > DENSE_ABOVE * rows * columns
}
