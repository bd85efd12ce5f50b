//! Sparse rows, whose columns in a file end with the last non-zero one: widened, and densified, as if all files were read together.

use std::borrow::Cow;

use super::columns::Category;
use crate::rows::dataset::{Columns, Dataset, Rows, Wanted};

/// Above this share of non-zero numbers, sparse rows are stored as dense ones.
const DENSE_ABOVE: f64 = 0.25;
/// The most columns that get names.
const MAX_NAMES: usize = 1 << 23;

/// The size of sparse rows with unnamed columns, without those that are no features.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseSize {
    /// The number of rows for the fit.
    pub rows: usize,
    /// The number of columns, including left-out ones.
    pub width: usize,
    /// The stored numbers of the other columns.
    pub stored: usize,
    /// The positions, from 0, of left-out columns, such as the target, offsets and categories.
    pub left_out: Vec<usize>,
    /// The number of categories that become columns of 0 and 1.
    pub categories: usize,
}

impl SparseSize {
    /// The size of these rows, `rows` of which are for the fit; `None` if they are not sparse without names. Their columns are `1`, `2`, ..
    /// except left-out ones and `special` ones, of which the last `categories` become columns of 0 and 1.
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

    /// Their names, unless they are too many for any model, or `1`, `2`, .. without a gap.
    pub fn names(&self) -> Option<Vec<String>> {
        if self.left_out.is_empty() || self.width > MAX_NAMES {
            return None;
        }
        let left_out = self.left_out.iter().copied().filter(|out| *out < self.width).collect();
        let all = Columns::Counted { width: self.width, left_out };
        Some(all.iter().map(Cow::into_owned).collect())
    }

    /// Whether rows with these features are stored as dense ones, as all agents' rows together would be. A category counts as one number
    /// per row ([`counted`]).
    pub(super) fn is_nearly_dense(&self, features: usize, has_intercept: bool) -> bool {
        let further = self.categories + usize::from(has_intercept);
        is_nearly_dense((self.stored + self.rows * further) as f64, self.rows as f64, features as f64)
    }
}

/// The numbers that rows store, with one per row for each of these categories. The number of rows with a category's first level, which
/// stores none, is unknown for all agents.
pub(super) fn counted(rows: &Rows, categories: &[Category]) -> usize {
    let in_category = |i: usize| categories.iter().any(|one| (one.first..one.first + one.levels.len()).contains(&i));
    let others = |j: usize| rows.row(j).filter(|(i, _)| !in_category(*i)).count();
    if categories.is_empty() { rows.stored() } else { (0..rows.len()).map(others).sum::<usize>() + rows.len() * categories.len() }
}

/// Widens sparse rows to the widest of them, and to at least `least`, without the columns that are no features. Returns their previous
/// width.
pub(super) fn widen(sets: &mut [Dataset], wanted: &Wanted, least: usize) -> usize {
    let width = |set: &Dataset| if let Columns::Counted { width, .. } = &set.columns { *width } else { 0 };
    let before = sets.iter().map(width).max().unwrap_or(0);
    let widest = before.max(least);
    for set in sets {
        if let (Rows::Sparse { d, .. }, Columns::Counted { width, left_out }) = (&mut set.rows, &mut set.columns) {
            // The reader left out those within the file's width.
            left_out.extend(wanted.left_out().filter(|out| (*width..widest).contains(out)));
            left_out.sort_unstable();
            left_out.dedup();
            *width = widest;
            *d = widest - left_out.len();
        }
    }
    before
}

/// Whether rows with this many stored numbers are kept as dense ones.
pub(crate) fn is_nearly_dense(stored: f64, rows: f64, columns: f64) -> bool {
    stored > DENSE_ABOVE * rows * columns
}
