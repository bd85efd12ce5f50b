//! What columns of all agents hold, of which an agent's own rows may lack something: levels of categories, and classes of labels.
//!
//! Files that are read together show it. Where agents keep their files, each says what its rows have ([`Preparation::levels_of`]), and
//! prepares them with what all have ([`Preparation::with_levels`]): the features and targets are then those of all files together.

use std::collections::HashSet;

use super::Preparation;
use super::columns::{Category, ColumnLevels, named_twice};
use super::partition::check_samples;
use super::sparse::{self, SparseSize};
use super::targets::{ClassLabel, Found, TargetRule, classes_of};
use crate::rows::dataset::{Dataset, row_in};
use fedsa::error::{Error, Result, quoted};

/// What the rows of some agents have, and what their other columns are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowLevels {
    /// The columns of categories.
    pub categories: Vec<ColumnLevels>,
    /// The labels of rows in increasing order; `None` where they are numbers to be predicted, or the settings name the classes.
    pub classes: Option<Vec<ClassLabel>>,
    /// The number of rows of each of these labels.
    pub class_rows: Vec<u64>,
    /// The number of other columns that are features.
    pub plain: usize,
    /// Their names; `None` of columns without names.
    pub names: Option<Vec<String>>,
    /// Sparse rows, whose columns without names end with the last one that a row has.
    pub sparse: Option<SparseSize>,
}

impl RowLevels {
    /// Whether features and targets are the same whatever other agents have.
    pub fn are_known(&self) -> bool {
        self.categories.is_empty() && self.classes.is_none() && self.sparse.is_none()
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

    /// Refuses levels whose features have the name of another column.
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
    /// The levels and classes that these rows of one agent have, whose sparse rows become as wide as the columns without names that settings name as
    /// offsets, weights and categories: others' rows may have numbers there, where these have zeros.
    ///
    /// # Errors
    /// When a column is not there, rows have no labels, or there are too many levels or labels.
    pub fn levels_of(&self, sets: &mut [Dataset]) -> Result<RowLevels> {
        let width = self.widen(sets);
        let mut levels = self.levels_of_wide(sets)?;
        if let Some(sparse) = &mut levels.sparse {
            // What is said to others is what the files have.
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
        // Columns that become features of levels are called by name.
        let are_counted = categories.is_empty() && widest.is_some_and(|set| set.columns.are_counted());
        Ok(RowLevels { classes, class_rows, plain: names.len(), names: (!are_counted).then_some(names), categories, sparse: None })
    }

    /// Makes sparse rows as wide as the special columns that settings name. Returns how wide they were.
    fn widen(&self, sets: &mut [Dataset]) -> usize {
        let of_rows = [&self.special.offset, &self.special.row_weights].into_iter().flatten();
        let least = of_rows.chain(&self.special.categorical).filter_map(|name| name.parse().ok()).max().unwrap_or(0);
        sparse::widen(sets, &self.wanted, least)
    }

    /// Refuses rows of one agent that cannot be prepared or fitted, whatever levels and classes others have: what [`Preparation::prepare_sets`]
    /// would find when these are known. `levels` are those of the rows.
    ///
    /// # Errors
    /// When there is such a row, there are fewer than `samples`, or a level has the name of another column.
    pub fn check_rows(&self, sets: &[Dataset], levels: &RowLevels) -> Result<()> {
        let offsets = self.special.offsets_of(sets, &self.wanted)?;
        // A level that is the first one here may have a feature with those of all, and a later one has.
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
            // Labels of which all agents' are classes were found.
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
            // That of classes is at most 1.
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

    /// With the levels and classes of all agents' rows in place of those that rows have.
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
