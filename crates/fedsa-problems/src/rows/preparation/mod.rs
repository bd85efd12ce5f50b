//! From data sets to the agents' rows: targets, a division among agents, a held-out share, and features that are scaled, rotated and
//! completed.
//!
//! The order is: rows are divided among agents ([`partition`]); a share of each agent's rows is held out; targets are made of labels
//! ([`targets`]); features are divided by a number, standardised, projected on principal components, and completed by a column of ones
//! ([`transform`]). Whatever is fitted is fitted to the rows of all agents that are not held out, each of which counts alike.

pub mod columns;
pub mod levels;
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
use fedsa::random::{Purpose, stream};
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
    /// `n_c / n`, the agent's share of the rows that are not held out: every row counts alike, whichever agent has it.
    #[default]
    Rows,
    /// `1 / N`: an agent with one row counts as much as one with a million.
    Equal,
}

/// The weight of an agent beside its share of the rows from which on readers are told.
const FAR_FROM_ROWS: f64 = 10.0;

/// A note where an agent counts by more than ten times its share of the rows; `name` gives the names of agents.
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

/// How data sets become the agents' rows; the keys of the problem kinds that read data sets.
#[derive(Debug, Clone)]
pub struct Preparation {
    /// Files, globs, folders or names of data sets.
    pub data: Vec<String>,
    /// What is wanted of the files.
    pub wanted: Wanted,
    /// What targets are made of.
    pub targets: TargetRule,
    /// The number of agents, where the partition does not decide it.
    pub agents: Option<usize>,
    /// How rows are divided among agents.
    pub partition: Partition,
    /// Whether the rows of all agents are dealt out again at random.
    pub reshuffle: bool,
    /// Rows of each agent.
    pub samples: Option<usize>,
    /// The share of each agent's rows that is held out.
    pub holdout: f64,
    /// What features are divided by.
    pub divide_by: f64,
    /// Whether features are standardised.
    pub standardise: bool,
    /// Principal components.
    pub pca: Option<Pca>,
    /// Whether a column of ones is added.
    pub intercept: bool,
    /// Offsets, row weights and categories.
    pub special: SpecialColumns,
    /// The size of all agents' sparse rows, where these are some of them; by default they are all.
    pub sparse: Option<SparseSize>,
    /// What losses are of; the number of classes follows from the data.
    pub family: ModelFamily,
    /// How much agents count.
    pub weighting: AgentWeights,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// The agents' rows, ready for regression.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The rows to fit.
    pub train: LabelledRows,
    /// The rows that are held out; none of some or all agents where no share is.
    pub held_out: LabelledRows,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The names of agents that are files or the values of a column; none where rows are dealt out.
    pub names: Vec<String>,
    /// What was done to features.
    pub transform: Transform,
    /// What was done to labels.
    pub targets: Targets,
    /// Columns of categories that became several features.
    pub categories: Vec<Category>,
    /// The levels of these columns, with the rows of each.
    pub levels: Vec<ColumnLevels>,
    /// What a reader must know of the data.
    pub notes: Vec<Note>,
}

/// The most rows in all.
const MAX_ROWS: usize = u32::MAX as usize;

/// The rows of each agent, by their numbers.
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
        // Rows of sparse files end with their last number that is not 0.
        let dense: Vec<&Dataset> = sets.iter().filter(|set| matches!(set.rows, Rows::Dense { .. })).collect();
        if let Some(other) = dense.iter().find(|set| columns(set) != columns(dense[0])) {
            let what = format!("{} has {} features, {} has {}", dense[0].name, columns(dense[0]), other.name, columns(other));
            return Err(Error::data("data", what, "files with the same columns"));
        }
        Ok(sets)
    }

    /// What is done to features.
    fn transform(&self) -> TransformRule {
        TransformRule { divide_by: self.divide_by, standardise: self.standardise, pca: self.pca, intercept: self.intercept }
    }

    /// Checks the ranges of settings.
    ///
    /// # Errors
    /// Names the setting that is out of its range.
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
        self.partition.check()
    }

    /// The agents' rows.
    ///
    /// # Errors
    /// When a file cannot be used, or a setting does not go with the data; names the setting.
    pub fn prepare(&self, files: &dyn Files) -> Result<Prepared> {
        self.prepare_sets(self.read(files)?, files.cancel())
    }

    /// The agents' rows, from data sets that [`Preparation::read`] gave.
    ///
    /// # Errors
    /// When a setting does not go with the data; names the setting. When it is cancelled, which is looked at between passes over the rows.
    pub fn prepare_sets(&self, mut sets: Vec<Dataset>, cancel: &Cancel) -> Result<Prepared> {
        // Categories become columns behind those of all files.
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
        let (fit, held) = self.hold_out(agents, &names)?;
        let targets = labels.targets(&fit)?;
        notes.extend(of_levels);
        notes.extend(labels.note(&fit));
        cancel.check()?;
        let family = match (&targets, self.family) {
            (Targets::Many { classes, .. }, _) => ModelFamily::Multinomial { classes: classes.len() },
            // Numbers are no classes.
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

    /// The same rows, dense if those of all agents are so nearly.
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

    /// Each agent's rows, and those that are held out: `holdout n_c` of them drawn at random, rounded to a whole number from 1 to `n_c - 1`.
    fn hold_out(&self, agents: Vec<Vec<usize>>, names: &[String]) -> Result<(RowsOfAgents, RowsOfAgents)> {
        if self.holdout == 0.0 {
            let none = vec![Vec::new(); agents.len()];
            return Ok((agents, none));
        }
        let split = |(c, rows): (usize, Vec<usize>)| {
            let n = rows.len();
            if n < 2 {
                let what = format!("{} has one row, of which none can be held out", partition::called(names, c));
                return Err(Error::new("holdout", what, "agents with at least two rows, or no `holdout`"));
            }
            let out = ((self.holdout * n as f64).round() as usize).clamp(1, n - 1);
            let mut order: Vec<usize> = (0..n).collect();
            partition::shuffle(&mut order, &mut stream(self.seed, Purpose::Holdout, 0, c));
            let mut is_out = vec![false; n];
            order[..out].iter().for_each(|i| is_out[*i] = true);
            let pick = |wanted: bool| rows.iter().zip(&is_out).filter(|(_, out)| **out == wanted).map(|(row, _)| *row).collect();
            Ok((pick(false), pick(true)))
        };
        Ok(agents.into_iter().enumerate().map(split).collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }
}

impl Prepared {
    /// The quality of theta on the rows to fit.
    pub fn train_quality(&self, theta: &[f64]) -> FitQuality {
        quality(&self.train, &self.targets, theta)
    }

    /// The quality of theta on the rows that are held out; `None` if there are none.
    pub fn held_out_quality(&self, theta: &[f64]) -> Option<FitQuality> {
        (!self.held_out.rows.is_empty()).then(|| quality(&self.held_out, &self.targets, theta))
    }

    /// The agents that have names, with their rows, of which those that are held out are not.
    pub fn named_agents(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().zip(self.train.first.windows(2)).map(|(name, at)| (name.as_str(), at[1] - at[0]))
    }

    /// What the preparation came to, in a line: `28 agents, 14000 rows, d = 300, PCA of 784 features fitted on the union`.
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

    /// How agents count: by their rows, unless their weights are others.
    pub fn weighting(&self) -> AgentWeights {
        let by_rows = self.train.shares().into_iter().zip(&self.weights).all(|(share, weight)| (share - *weight).abs() <= 1e-12);
        if by_rows { AgentWeights::Rows } else { AgentWeights::Equal }
    }

    /// A note where an agent counts by more than ten times its share of the rows.
    pub fn far_from_rows(&self) -> Option<Note> {
        far_from_rows(&self.weights, &self.train.totals(), |c| partition::called(&self.names, c).to_string())
    }

    /// Whether features are whole numbers from 0 to 255 and some are above 100, as of pixels that are not scaled.
    pub fn has_bytes(&self) -> bool {
        let values = match &self.train.rows {
            Rows::Dense { values, .. } => values,
            Rows::Sparse { value, .. } => value,
        };
        values.iter().all(|x| (0.0..=255.0).contains(x) && x.fract() == 0.0) && values.iter().any(|x| *x > 100.0)
    }
}

/// The note about targets that are all the same.
fn constant_note(target: f64) -> Note {
    let text = format!("all rows to fit have the target {target}: no column can explain it");
    Note::new(NoteCode::ConstantTarget, text)
}

/// What is known of all rows, for those of the agents; nothing of nothing.
fn of_rows(all: &[f64], agents: &[Vec<usize>]) -> Vec<f64> {
    if all.is_empty() { Vec::new() } else { agents.iter().flatten().map(|i| all[*i]).collect() }
}

#[cfg(test)]
mod tests;
