//! Levels of categories and classes of labels in all agents' rows; an agent's own rows may lack some.
//!
//! Files read together contain all of them. If agents keep their files, each one reports its levels ([`Preparation::levels_of`]), and
//! prepares its rows with all agents' levels ([`Preparation::with_levels`]). Features and targets are then the same as for all files
//! together.

use std::collections::HashSet;

use super::Preparation;
use super::columns::{Category, ColumnLevels, named_twice};
use super::partition::check_samples;
use super::sparse::{self, SparseSize};
use super::targets::{ClassLabel, Found, TargetRule, classes_of};
use crate::rows::dataset::{Dataset, row_in};
use fedsa::error::{Error, Result, quoted};

/// The levels and classes in some agents' rows, and their other columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowLevels {
    /// The columns of categories.
    pub categories: Vec<ColumnLevels>,
    /// The labels of rows in increasing order; `None` for numeric targets, or if the settings list the classes.
    pub classes: Option<Vec<ClassLabel>>,
    /// The number of rows of each of these labels.
    pub class_rows: Vec<u64>,
    /// The number of other feature columns.
    pub plain: usize,
    /// Their names; `None` for columns without names.
    pub names: Option<Vec<String>>,
    /// Sparse rows, whose unnamed columns end with the last one in use.
    pub sparse: Option<SparseSize>,
}

impl RowLevels {
    /// Whether features and targets do not depend on other agents.
    pub fn are_known(&self) -> bool {
        self.categories.iter().all(|one| one.are_declared) && self.classes.is_none() && self.sparse.is_none()
    }

    /// The categories of rows with these levels, placed after the other features.
    pub fn features(&self, has_intercept: bool) -> Vec<Category> {
        let mut first = self.plain;
        let of = |(i, one): (usize, &ColumnLevels)| {
            let category = Category::of(one, first, has_intercept || i > 0);
            first += category.levels.len();
            category
        };
        self.categories.iter().enumerate().map(of).collect()
    }

    /// Refuses levels whose features have another column's name.
    ///
    /// # Errors
    /// When there is one.
    pub fn check_names(&self, has_intercept: bool) -> Result<()> {
        let categories = self.features(has_intercept);
        let mut names: HashSet<String> = self.names.iter().flatten().cloned().collect();
        for category in &categories {
            if let Some(twice) = category.features().find(|name| names.contains(name)) {
                return Err(named_twice(&twice, &category.column));
            }
            names.extend(category.features());
        }
        Ok(())
    }
}

impl Preparation {
    /// The levels and classes in one agent's rows. Widens sparse rows to the unnamed columns that settings use as offsets, weights and
    /// categories: other agents' rows may have numbers there, these have zeros.
    ///
    /// # Errors
    /// When a column is missing, rows have no labels, or there are too many levels or labels.
    pub fn levels_of(&self, sets: &mut [Dataset]) -> Result<RowLevels> {
        let width = self.widen(sets);
        let mut levels = self.levels_of_wide(sets)?;
        if let Some(sparse) = &mut levels.sparse {
            // Agents report the width in the files.
            sparse.width = width;
            (levels.plain, levels.names) = (sparse.plain(), sparse.names());
        }
        Ok(levels)
    }

    fn levels_of_wide(&self, sets: &[Dataset]) -> Result<RowLevels> {
        let categories = self.special.levels_of(sets)?;
        let classes = match &self.targets {
            TargetRule::Classes { classes: None, .. } | TargetRule::Many { classes: None, .. } => Some(classes_of(sets)?),
            _ => None,
        };
        let (classes, class_rows) = classes.map_or((None, Vec::new()), |(classes, rows)| (Some(classes), rows));
        let is_plain = |name: &str| {
            let is_special = [&self.special.offset, &self.special.row_weights].iter().any(|special| special.as_deref() == Some(name));
            !is_special && categories.iter().all(|category| category.column != name)
        };
        let rows: usize = sets.iter().map(|set| set.rows.len()).sum();
        let of_rows = [&self.special.offset, &self.special.row_weights].into_iter().flatten();
        let special: Vec<&str> = of_rows.chain(categories.iter().map(|category| &category.column)).map(String::as_str).collect();
        let fitted = self.samples.map_or(rows, |n| n.min(rows));
        let sparse = SparseSize::of(sets, &self.wanted, fitted, &special, categories.len());
        if sparse.is_some() {
            return Ok(RowLevels { categories, classes, class_rows, sparse, ..RowLevels::default() });
        }
        let widest = sets.iter().max_by_key(|set| set.rows.columns());
        let names: Vec<String> =
            widest.iter().flat_map(|set| set.columns.iter()).filter(|name| is_plain(name)).map(|name| name.into_owned()).collect();
        // Columns that become features of levels have names.
        let are_counted = categories.is_empty() && widest.is_some_and(|set| set.columns.are_counted());
        Ok(RowLevels { classes, class_rows, plain: names.len(), names: (!are_counted).then_some(names), categories, sparse: None })
    }

    /// Widens sparse rows to the special columns in the settings. Returns their previous width.
    fn widen(&self, sets: &mut [Dataset]) -> usize {
        let of_rows = [&self.special.offset, &self.special.row_weights].into_iter().flatten();
        let least = of_rows.chain(&self.special.categorical).filter_map(|name| name.parse().ok()).max().unwrap_or(0);
        sparse::widen(sets, &self.wanted, least)
    }

    /// Refuses rows of one agent that cannot be prepared or fitted for any levels and classes of other agents, as
    /// [`Preparation::prepare_sets`] does once these are known. `levels` are the levels of the rows.
    ///
    /// # Errors
    /// When there is such a row, there are fewer than `samples`, or a level has the name of another column.
    pub fn check_rows(&self, sets: &[Dataset], levels: &RowLevels) -> Result<()> {
        let offsets = self.special.offsets_of(sets, &self.wanted)?;
        // The first level here may have a feature once all levels are known; later ones have one.
        let named = |e: Error| match sets {
            [only] => e.clone().saying(format!("{}: {}", quoted(&only.name), e.what)),
            _ => e,
        };
        levels.check_names(self.intercept).map_err(named)?;
        let all: usize = sets.iter().map(|set| set.rows.len()).sum();
        if let Some(agents) = self.agents {
            check_samples(agents, self.samples, all)?;
        }
        let labels = match &self.targets {
            // The labels were found to be classes.
            TargetRule::Classes { classes: None, .. } | TargetRule::Many { classes: None, .. } => None,
            rule => Some(Found::of(sets, rule)?),
        };
        labels.iter().try_for_each(|labels| labels.check(sets, self.family))?;
        let targets = labels.filter(|_| matches!(self.targets, TargetRule::Numbers { .. }));
        self.check_scale(sets, targets.as_ref(), &offsets)
    }

    /// Refuses a row whose gradient at 0 has no finite square.
    fn check_scale(&self, sets: &[Dataset], targets: Option<&Found>, offsets: &[f64]) -> Result<()> {
        let rows = sets.iter().flat_map(|set| (0..set.rows.len()).map(move |j| (set, j)));
        for (row, (set, j)) in rows.enumerate() {
            // The derivative of a classification loss is at most 1.
            let pull = targets.map_or(1.0, |targets| {
                let mut pull = [0.0];
                self.family.pull(&[offsets.get(row).copied().unwrap_or(0.0)], targets.get(row), &mut pull);
                pull[0].abs()
            });
            let size = set.rows.row(j).map(|(_, x)| (pull * x / self.divide_by).powi(2)).sum::<f64>();
            if !size.is_finite() {
                let what = format!("{} has numbers so large that its gradient is not finite", row_in(sets, row));
                return Err(Error::data("data", what, "features, offsets and targets of a moderate size"));
            }
        }
        Ok(())
    }

    /// With the levels and classes of all agents' rows instead of those in the rows.
    #[must_use]
    pub fn with_levels(mut self, all: RowLevels) -> Self {
        if let (Some(found), TargetRule::Classes { classes, .. } | TargetRule::Many { classes, .. }) = (all.classes, &mut self.targets) {
            *classes = Some(found);
        }
        self.special.known = Some(all.categories);
        self.sparse = all.sparse;
        self
    }
}
