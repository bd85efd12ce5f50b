//! What columns of all agents hold, of which an agent's own rows may lack something: levels of categories, and classes of labels.
//!
//! Files that are read together show it. Where agents keep their files, each says what its rows have ([`Preparation::levels_of`]), and
//! prepares them with what all have ([`Preparation::with_levels`]): the features and targets are then those of all files together.

use super::super::dataset::Dataset;
use super::Preparation;
use super::columns::{Category, ColumnLevels};
use super::targets::{ClassLabel, TargetRule, classes_of};
use crate::error::Result;

/// What the rows of some agents have, and what their other columns are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowLevels {
    /// The columns of categories.
    pub categories: Vec<ColumnLevels>,
    /// The labels of rows in increasing order; `None` where they are numbers to be predicted, or the settings name the classes.
    pub classes: Option<Vec<ClassLabel>>,
    /// The number of other columns that are features.
    pub plain: usize,
    /// Their names; `None` of columns without names.
    pub names: Option<Vec<String>>,
}

impl RowLevels {
    /// Whether features and targets are the same whatever other agents have.
    pub fn are_known(&self) -> bool {
        self.categories.is_empty() && self.classes.is_none()
    }

    /// The categories of rows with these levels, after the other features.
    pub fn features(&self, has_intercept: bool) -> Vec<Category> {
        let mut first = self.plain;
        let of = |(i, one): (usize, &ColumnLevels)| {
            let category = Category::of(one, first, has_intercept || i > 0);
            first += category.levels.len();
            category
        };
        self.categories.iter().enumerate().map(of).collect()
    }
}

impl Preparation {
    /// The levels and classes that these rows have.
    ///
    /// # Errors
    /// When a column is not there, rows have no labels, or there are too many levels or labels.
    pub fn levels_of(&self, sets: &[Dataset]) -> Result<RowLevels> {
        let categories = self.special.levels_of(sets)?;
        let classes = match &self.targets {
            TargetRule::Classes { classes: None, .. } | TargetRule::Many { classes: None, .. } => Some(classes_of(sets)?),
            _ => None,
        };
        let is_plain = |name: &str| {
            let is_special = [&self.special.offset, &self.special.row_weights].iter().any(|special| special.as_deref() == Some(name));
            !is_special && categories.iter().all(|category| category.column != name)
        };
        let widest = sets.iter().max_by_key(|set| set.rows.columns());
        let names: Vec<String> =
            widest.iter().flat_map(|set| set.columns.iter()).filter(|name| is_plain(name)).map(|name| name.into_owned()).collect();
        // Columns that become features of levels are called by name.
        let are_counted = categories.is_empty() && widest.is_some_and(|set| set.columns.are_counted());
        Ok(RowLevels { classes, plain: names.len(), names: (!are_counted).then_some(names), categories })
    }

    /// With the levels and classes of all agents' rows in place of those that rows have.
    #[must_use]
    pub fn with_levels(mut self, all: RowLevels) -> Self {
        if let (Some(found), TargetRule::Classes { classes, .. } | TargetRule::Many { classes, .. }) = (all.classes, &mut self.targets) {
            *classes = Some(found);
        }
        self.special.known = Some(all.categories);
        self
    }
}
