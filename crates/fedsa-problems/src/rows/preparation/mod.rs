//! From data sets to the agents' rows: targets, a division among agents, a held-out share, and transformed features.
//!
//! 1. Rows are divided among agents ([`partition`]).
//! 2. A share of each agent's rows is held out ([`holdout`]).
//! 3. Labels become targets ([`targets`]).
//! 4. Features are divided by a number, standardised, projected on principal components, and completed by a column of ones ([`transform`]).
//!
//! Every fit uses the rows of all agents without held-out ones, with equal weight for each row.

pub mod columns;
pub mod holdout;
pub mod levels;
pub mod moments;
pub mod partition;
pub mod quality;
pub mod sparse;
pub mod targets;
pub mod texts;
pub mod transform;

use crate::Files;
use crate::rows::dataset::{Dataset, Rows, Wanted};
use crate::rows::glm::family::ModelFamily;
use columns::{Category, ColumnLevels, SpecialColumns, Taken};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::note::{Note, NoteCode};
use fedsa::problem::equal_weights;
use moments::FeatureScales;
use partition::{Partition, Pool};
use quality::{FitQuality, LabelledRows, quality};
use serde::{Deserialize, Serialize};
use sparse::{SparseSize, is_nearly_dense};
use targets::{TargetRule, Targets};
use transform::{Pca, Transform, TransformRule};

/// The agents' weights `p_c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Weights"))]
#[serde(rename_all = "kebab-case")]
pub enum AgentWeights {
    /// `n_c / n`, without held-out rows: rows count alike.
    #[default]
    Rows,
    /// `1 / N`: agents count alike.
    Equal,
}

/// The factor between an agent's weight and its share of the rows from which a note is due.
const FAR_FROM_ROWS: f64 = 10.0;

/// A note if an agent counts by more than ten times its share of the rows; `name` gives agents' names.
pub fn far_from_rows(weights: &[f64], rows: &[f64], name: impl Fn(usize) -> String) -> Option<Note> {
    let all: f64 = rows.iter().sum();
    let times = |c: usize| weights[c] * all / rows[c];
    let far: Vec<usize> = (0..rows.len().min(weights.len())).filter(|c| times(*c) > FAR_FROM_ROWS).collect();
    let most = *far.iter().max_by(|a, b| times(**a).total_cmp(&times(**b)))?;
    let others = match far.len() - 1 {
        0 => String::new(),
        1 => "; so does 1 more agent".into(),
        more => format!("; so do {more} more agents"),
    };
    let text = format!(
        "{} has {} of {all} rows and counts with the weight {:.3}, {:.0} times its share of the rows{others}: without equal weights every row counts alike",
        name(most),
        rows[most],
        weights[most],
        times(most)
    );
    Some(Note::new(NoteCode::WeightFarFromRows, text))
}

/// How data sets become the agents' rows: the keys of problems that read data sets.
#[derive(Debug, Clone)]
pub struct Preparation {
    /// Files, globs, folders or names of data sets.
    pub data: Vec<String>,
    /// The wanted parts of the files.
    pub wanted: Wanted,
    /// The rule for targets.
    pub targets: TargetRule,
    /// The number of agents, unless the partition determines it.
    pub agents: Option<usize>,
    /// The division of rows among agents.
    pub partition: Partition,
    /// Whether to deal the rows of all agents out again at random.
    pub reshuffle: bool,
    /// Rows per agent.
    pub samples: Option<usize>,
    /// The held-out share of each agent's rows.
    pub holdout: f64,
    /// The divisor of features.
    pub divide_by: f64,
    /// Whether to standardise features.
    pub standardise: bool,
    /// Principal components.
    pub pca: Option<Pca>,
    /// Whether to add a column of ones.
    pub intercept: bool,
    /// Offsets, row weights and categories.
    pub special: SpecialColumns,
    /// The size of all agents' sparse rows, if there are other agents' rows.
    pub sparse: Option<SparseSize>,
    /// The family of losses; the data determine the number of classes.
    pub family: ModelFamily,
    /// The agents' weights.
    pub weighting: AgentWeights,
    /// The seed of all draws.
    pub seed: u64,
    /// Whether these are the rows of one agent of several ([`Preparation::of_one`]).
    pub is_one: bool,
    /// The means and standard deviations of all agents' features, if there are other agents' rows.
    pub scales: Option<FeatureScales>,
}

/// The agents' rows, ready for regression.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The rows for the fit.
    pub train: LabelledRows,
    /// The held-out rows; agents may have none.
    pub held_out: LabelledRows,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The names of agents that are files or column values; empty if rows are dealt out.
    pub names: Vec<String>,
    /// The transformation of features.
    pub transform: Transform,
    /// The transformation of labels.
    pub targets: Targets,
    /// Columns of categories, which became several features.
    pub categories: Vec<Category>,
    /// The levels of these columns, with their numbers of rows.
    pub levels: Vec<ColumnLevels>,
    /// Notes about the data.
    pub notes: Vec<Note>,
}

/// The most rows in all.
const MAX_ROWS: usize = u32::MAX as usize;

/// The row indices of each agent.
type RowsOfAgents = Vec<Vec<usize>>;

impl Preparation {
    /// Checks the ranges of settings, reads the data sets, and checks their numbers.
    ///
    /// # Errors
    /// When a setting is out of range, or a file cannot be read or used.
    pub fn read(&self, files: &dyn Files) -> Result<Vec<Dataset>> {
        self.check()?;
        require(!self.data.is_empty(), "data", "no data", "a file, a glob, a folder or the name of a data set, or a list of them")?;
        let sets = files.datasets(&self.data, &self.wanted)?;
        sets.iter().try_for_each(|set| set.check().map_err(|e| e.inside("data")))?;
        let rows: usize = sets.iter().map(|set| set.rows.len()).sum();
        require((1..=MAX_ROWS).contains(&rows), "data", format!("{rows} rows"), &format!("between 1 and {MAX_ROWS} rows"))?;
        let columns = |set: &Dataset| set.rows.columns();
        // Sparse rows end with their last non-zero number.
        let dense: Vec<&Dataset> = sets.iter().filter(|set| matches!(set.rows, Rows::Dense { .. })).collect();
        if let Some(other) = dense.iter().find(|set| columns(set) != columns(dense[0])) {
            let what = format!("{} has {} features, {} has {}", dense[0].name, columns(dense[0]), other.name, columns(other));
            return Err(Error::data("data", what, "files with the same columns"));
        }
        Ok(sets)
    }

    /// The rule for features.
    fn transform(&self) -> TransformRule<'_> {
        TransformRule {
            divide_by: self.divide_by,
            standardise: self.standardise,
            pca: self.pca,
            intercept: self.intercept,
            known: self.scales.as_ref(),
        }
    }

    /// Checks the ranges of settings.
    ///
    /// # Errors
    /// When a setting is out of range; the error names it.
    pub fn check(&self) -> Result<()> {
        require((0.0..1.0).contains(&self.holdout), "holdout", self.holdout, "a share from 0 to below 1")?;
        let is_usable = self.divide_by.is_finite() && self.divide_by != 0.0;
        require(is_usable, "divide_by", self.divide_by, "a finite number other than 0, such as 255 for pixels")?;
        if let Some(agents) = self.agents {
            require((1..=crate::MAX_AGENTS).contains(&agents), "agents", agents, &format!("between 1 and {}", crate::MAX_AGENTS))?;
        }
        require(self.samples != Some(0), "samples", 0, "at least 1")?;
        require(self.pca.is_none_or(|pca| pca.dim > 0), "pca.dim", 0, "at least 1")?;
        self.targets.check()?;
        self.special.check_declared()?;
        self.partition.check()
    }

    /// The agents' rows.
    ///
    /// # Errors
    /// When a file cannot be used, or a setting does not fit the data; the error names the setting.
    pub fn prepare(&self, files: &dyn Files) -> Result<Prepared> {
        self.prepare_sets(self.read(files)?, files.cancel())
    }

    /// The agents' rows, from data sets of [`Preparation::read`].
    ///
    /// # Errors
    /// When a setting does not fit the data; the error names it. When cancelled; `cancel` is checked between passes over the rows.
    pub fn prepare_sets(&self, mut sets: Vec<Dataset>, cancel: &Cancel) -> Result<Prepared> {
        let keys = self.holdout_keys(&sets);
        // Categories become columns after those of all files.
        sparse::widen(&mut sets, &self.wanted, self.sparse.as_ref().map_or(0, |sparse| sparse.width));
        let mut notes: Vec<Note> = sets.iter_mut().flat_map(|set| std::mem::take(&mut set.notes)).collect();
        let Taken { offsets, row_weights, categories, levels, notes: of_levels } =
            self.special.take(&mut sets, &self.wanted, self.intercept)?;
        let labels = targets::Found::of(&sets, &self.targets)?;
        labels.check(&sets, self.family)?;
        let pool = Pool::new(&sets, &labels)?;
        cancel.check()?;
        let agents = self.partition.divide(&pool, self.agents, self.samples, self.reshuffle, self.seed)?;
        let names = if self.reshuffle { Vec::new() } else { pool.names(self.partition) };
        let (fit, held) = self.hold_out(agents, &names, &keys)?;
        let targets = labels.targets(&fit)?;
        notes.extend(of_levels);
        notes.extend(labels.note(&fit));
        cancel.check()?;
        let family = match (&targets, self.family) {
            (Targets::Many { classes, .. }, _) => ModelFamily::Multinomial { classes: classes.len() },
            // Numbers are not classes.
            (Targets::Numbers { .. }, ModelFamily::Binomial) => ModelFamily::Gaussian,
            (_, family) => family,
        };
        let weights = of_rows(&row_weights, &fit);
        let transform = Transform::fit(&self.transform(), &sets, &pool, (&fit, &weights), cancel)?;
        let part = |agents: &[Vec<usize>]| LabelledRows {
            rows: self.compact(transform.apply(pool.gather(&sets, agents)), &categories),
            first: partition::starts(agents),
            targets: agents.iter().flatten().map(|i| targets.of(labels.get(*i))).collect(),
            offsets: of_rows(&offsets, agents),
            row_weights: of_rows(&row_weights, agents),
            family,
        };
        cancel.check()?;
        let train = part(&fit);
        cancel.check()?;
        let held_out = part(&held);
        cancel.check()?;
        train.check_row_weights(&names)?;
        notes.extend(train.constant_target().map(constant_note));
        let weights = match self.weighting {
            AgentWeights::Equal => equal_weights(fit.len()),
            AgentWeights::Rows => train.shares(),
        };
        Ok(Prepared { train, held_out, weights, names, transform, targets, categories, levels, notes })
    }

    /// The same rows, dense if all agents' rows are nearly dense.
    fn compact(&self, rows: Rows, categories: &[Category]) -> Rows {
        if matches!(rows, Rows::Dense { .. }) {
            return rows;
        }
        let is_full = match &self.sparse {
            Some(sparse) => sparse.is_nearly_dense(rows.columns(), self.intercept),
            None => is_nearly_dense(sparse::counted(&rows, categories) as f64, rows.len() as f64, rows.columns() as f64),
        };
        if is_full { rows.into_dense() } else { rows }
    }
}

impl Prepared {
    /// The quality of theta on the rows for the fit.
    pub fn train_quality(&self, theta: &[f64]) -> FitQuality {
        quality(&self.train, &self.targets, theta)
    }

    /// The quality of theta on the held-out rows; `None` if there are none.
    pub fn held_out_quality(&self, theta: &[f64]) -> Option<FitQuality> {
        (!self.held_out.rows.is_empty()).then(|| quality(&self.held_out, &self.targets, theta))
    }

    /// The named agents, with their numbers of rows without held-out ones.
    pub fn named_agents(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().zip(self.train.first.windows(2)).map(|(name, at)| (name.as_str(), at[1] - at[0]))
    }

    /// A summary in a line: `28 agents, 14000 rows, d = 300, PCA of 784 features fitted on the union`.
    pub fn sizes(&self) -> String {
        let held = self.held_out.rows.len();
        let held = if held > 0 { format!(", {held} held out") } else { String::new() };
        format!(
            "{}, {} rows{held}, d = {}{}{}",
            crate::memory::agents(self.weights.len()),
            self.train.rows.len(),
            self.train.rows.columns(),
            if matches!(self.train.rows, Rows::Sparse { .. }) { ", sparse" } else { "" },
            self.transform.note()
        )
    }

    /// The kind of agents' weights: by rows, unless the weights differ from the shares.
    pub fn weighting(&self) -> AgentWeights {
        let by_rows = self.train.shares().into_iter().zip(&self.weights).all(|(share, weight)| (share - *weight).abs() <= 1e-12);
        if by_rows { AgentWeights::Rows } else { AgentWeights::Equal }
    }

    /// A note if an agent counts by more than ten times its share of the rows.
    pub fn far_from_rows(&self) -> Option<Note> {
        far_from_rows(&self.weights, &self.train.totals(), |c| partition::called(&self.names, c).to_string())
    }

    /// Whether features are whole numbers from 0 to 255 and some are above 100, as in unscaled pixels.
    pub fn has_bytes(&self) -> bool {
        let values = match &self.train.rows {
            Rows::Dense { values, .. } => values,
            Rows::Sparse { value, .. } => value,
        };
        values.iter().all(|x| (0.0..=255.0).contains(x) && x.fract() == 0.0) && values.iter().any(|x| *x > 100.0)
    }
}

/// The note about targets that are all equal.
fn constant_note(target: f64) -> Note {
    let text = format!("all rows to fit have the target {target}: no column can explain it");
    Note::new(NoteCode::ConstantTarget, text)
}

/// The values of the agents' rows from the values of all rows; empty if `all` is.
fn of_rows(all: &[f64], agents: &[Vec<usize>]) -> Vec<f64> {
    if all.is_empty() { Vec::new() } else { agents.iter().flatten().map(|i| all[*i]).collect() }
}

#[cfg(test)]
mod tests;
