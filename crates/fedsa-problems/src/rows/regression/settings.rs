//! The settings of the kinds `logistic`, `least-squares` and `glm`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::family_losses::FamilyLosses;
use super::loss::{LogLoss, RowLosses, SquaredLoss};
use super::{Parts, Regression, keeps_systems};
use crate::kernel::unit_rows::MAX_COLUMNS;
use crate::logs::replay::Sources;
use crate::memory::{self, MemoryEstimate};
use crate::rows::dataset::{Dataset, Rows, Wanted};
use crate::rows::glm::family::{FamilyName, ModelFamily};
use crate::rows::preparation::columns::SpecialColumns;
use crate::rows::preparation::partition::{Partition, number_of_groups};
use crate::rows::preparation::quality::LabelledRows;
use crate::rows::preparation::sparse::is_nearly_dense;
use crate::rows::preparation::targets::{ClassLabel, TargetRule};
use crate::rows::preparation::texts::level_name;
use crate::rows::preparation::transform::Pca;
use crate::rows::preparation::{AgentWeights, Preparation, Prepared};
use crate::{Files, ProblemSettings};
use crate::{index_chain, lazy_index};
use fedsa::error::{Error, ErrorCode, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::privacy::unit::{PrivacyUnit, UnitClip};
use fedsa::problem::root::MAX_DIM;
use fedsa::problem::{Field, field};
use fedsa::sampling::Sampling;

/// Settings on data sets: the keys of all kinds, and the keys of one kind.
macro_rules! on_data_sets {
    ($(#[$about:meta])* $name:ident { $($(#[$own_doc:meta])* $own:ident: $type:ty),* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Files, globs, folders or data sets.
            pub data: Sources,
            /// Column of labels.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub target: Option<String>,
            $($(#[$own_doc])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $own: Option<$type>,)*
            /// Columns to ignore.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub drop: Vec<String>,
            /// Columns of categories.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub categorical: Vec<String>,
            /// Levels of columns of categories, the reference first; from the data by default.
            #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
            pub levels: BTreeMap<String, Vec<ClassLabel>>,
            /// Adds `ridge/2 ||theta||^2` to losses.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
            pub ridge: f64,
            /// Adds a column of ones.
            #[serde(default)]
            pub intercept: bool,
            /// Penalises the intercept.
            #[serde(default)]
            pub penalise_intercept: bool,
            /// Divisor of features.
            #[serde(default = "one")]
            pub divide_by: f64,
            /// Standardises features.
            #[serde(default)]
            pub standardise: bool,
            /// Principal components.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub pca: Option<Pca>,
            /// Agents N.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
            pub agents: Option<usize>,
            /// Division of rows.
            #[serde(default)]
            pub partition: Partition,
            /// Column of agents, for `by-column`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub group: Option<String>,
            /// Redeals rows at random.
            #[serde(default)]
            pub reshuffle: bool,
            /// Rows per agent; all by default.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
            pub samples: Option<usize>,
            /// Held-out share of rows.
            #[serde(default)]
            #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
            pub holdout: f64,
            /// Weights of agents.
            #[serde(default)]
            pub weighting: AgentWeights,
            /// Mixing time, up to 1e9.
            #[serde(default = "one")]
            #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
            pub mixing_time: f64,
            /// Seed.
            #[serde(default)]
            pub seed: u64,
        }

        impl $name {
            /// On these data, with default settings.
            pub fn new(data: Sources) -> Self {
                Self {
                    data,
                    target: None,
                    $($own: None,)*
                    drop: Vec::new(),
                    categorical: Vec::new(),
                    levels: BTreeMap::new(),
                    ridge: 0.0,
                    intercept: false,
                    penalise_intercept: false,
                    divide_by: 1.0,
                    standardise: false,
                    pca: None,
                    agents: None,
                    partition: Partition::default(),
                    group: None,
                    reshuffle: false,
                    samples: None,
                    holdout: 0.0,
                    weighting: AgentWeights::default(),
                    mixing_time: 1.0,
                    seed: 0,
                }
            }

            /// The rules by which data sets become the agents' rows.
            pub fn preparation(&self) -> Preparation {
                Preparation {
                    data: self.data.list(),
                    wanted: Wanted {
                        target: self.target.clone(),
                        group: self.group.clone(),
                        drop: self.drop.clone(),
                        categorical: categorical(&self.categorical, &self.levels),
                        ..Wanted::default()
                    },
                    targets: self.targets(),
                    special: SpecialColumns {
                        categorical: categorical(&self.categorical, &self.levels),
                        declared: declared(&self.levels),
                        ..OnData::special(self)
                    },
                    sparse: None,
                    family: OnData::family(self),
                    agents: self.agents,
                    partition: self.partition,
                    reshuffle: self.reshuffle,
                    samples: self.samples,
                    holdout: self.holdout,
                    divide_by: self.divide_by,
                    standardise: self.standardise,
                    pca: self.pca,
                    intercept: self.intercept,
                    weighting: self.weighting,
                    seed: self.seed,
                    is_one: false,
                    scales: None,
                }
            }

            /// The data sets, after a check of the settings.
            ///
            /// # Errors
            /// When a setting is out of range, or a file cannot be read or used.
            pub fn read(&self, files: &dyn Files) -> Result<Vec<Dataset>> {
                ProblemSettings::check(self)?;
                self.preparation().read(files)
            }

            /// The agents' rows, the held-out rows, and the transformations of features and labels.
            ///
            /// # Errors
            /// When a file cannot be read, or a setting does not fit the data.
            pub fn prepare(&self, files: &dyn Files) -> Result<Prepared> {
                self.preparation().prepare_sets(self.read(files)?, files.cancel())
            }

            /// The problem on rows prepared by these settings, with the agents' weights.
            ///
            /// # Errors
            /// When the sampling cannot be used, or numbers are too large.
            pub fn field_of(&self, train: LabelledRows, weights: Vec<f64>, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
                let free = usize::from(self.intercept && !self.penalise_intercept);
                let like = Like { ridge: self.ridge, free, mixing_time: self.mixing_time, clip: None };
                OnData::build(self, train, weights, like, sampling, isa)
            }

            /// The memory of preparing these data sets and of the problem, in addition to the data sets.
            ///
            /// # Errors
            /// When the column of agents cannot be used.
            pub fn memory_of(&self, sets: &[Dataset], threads: usize) -> Result<MemoryEstimate> {
                Self::memory_by(&self.preparation(), sets, threads)
            }

            /// The same for rows prepared by the rules `how`, such as with levels of other agents.
            ///
            /// # Errors
            /// As [`Self::memory_of`].
            pub fn memory_by(how: &Preparation, sets: &[Dataset], threads: usize) -> Result<MemoryEstimate> {
                memory_of(how, <Self as OnData>::IS_LINEAR, sets, threads, 0.0)
            }
        }

        impl ProblemSettings for $name {
            fn check(&self) -> Result<()> {
                check_ridge(self.ridge)?;
                index_chain::check_mixing_time(self.mixing_time)?;
                OnData::check(self)?;
                self.preparation().check()
            }

            fn own_to_each_end(&self) -> &'static [&'static str] {
                &["data", "agents", "partition", "group", "reshuffle", "samples", "seed"]
            }

            fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
                if self.group.is_some() && self.partition != Partition::ByColumn {
                    let help = "no `group`, or `partition = by-column`; `drop` leaves out a column that is no feature";
                    return Some(Error::new("group", "it names a column for agents, and `partition` is another than by-column", help));
                }
                if self.penalise_intercept && !self.intercept {
                    return Some(Error::new("penalise_intercept", "true, and there is no intercept", "intercept = true, or no penalise_intercept"));
                }
                lazy_index::without_effect(self.mixing_time, sampling)
            }

            fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
                let Prepared { train, weights, .. } = self.prepare(files)?;
                self.field_of(train, weights, sampling, isa)
            }

            fn memory(&self, files: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
                let sets = self.read(files)?;
                let source: usize = sets.iter().map(|set| stored_bytes(&set.rows) + 16 * set.rows.len()).sum();
                memory_of(&self.preparation(), <Self as OnData>::IS_LINEAR, &sets, threads, source as f64)
            }
        }
    };
}

/// The columns of categories: the listed ones, and those with declared levels.
fn categorical(listed: &[String], levels: &BTreeMap<String, Vec<ClassLabel>>) -> Vec<String> {
    listed.iter().chain(levels.keys().filter(|column| !listed.contains(column))).cloned().collect()
}

/// The declared levels as they are in rows.
fn declared(levels: &BTreeMap<String, Vec<ClassLabel>>) -> BTreeMap<String, Vec<String>> {
    let text = |level: &ClassLabel| match level {
        ClassLabel::Number(x) => (x + 0.0).to_string(),
        ClassLabel::Name(name) => level_name(name),
    };
    levels.iter().map(|(column, levels)| (column.clone(), levels.iter().map(text).collect())).collect()
}

fn one() -> f64 {
    1.0
}

/// The differences between the kinds.
trait OnData {
    /// Whether the problem is linear.
    const IS_LINEAR: bool;
    /// The family of losses; the data determine the number of classes.
    fn family(&self) -> ModelFamily;
    /// Columns with special roles, except categories.
    fn special(&self) -> SpecialColumns {
        SpecialColumns::default()
    }
    /// Checks the kind's own keys.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// The problem.
    fn build(&self, train: LabelledRows, weights: Vec<f64>, like: Like, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>>;
}

on_data_sets! {
    /// The `logistic` problem: `f_c(theta) = (1/n_c) sum_j log(1 + exp(-y_j x_j^T theta)) + ridge/2 ||theta||^2`, y in {-1, 1} (\[T\] eq. 2.2).
    Logistic {
        /// Class with target 1.
        positive: ClassLabel,
        /// All labels, if agents may lack some.
        classes: Vec<ClassLabel>
    }
}

on_data_sets! {
    /// The `least-squares` problem: `f_c(theta) = (1/n_c) sum_j (x_j^T theta - y_j)^2 / 2 + ridge/2 ||theta||^2` (\[T\] eq. 2.2).
    LeastSquares {
        /// Maps labels to `[low, high]`.
        target_range: [f64; 2],
        /// Shortens the part of each row in the sums `(x x^T, x y)`, for privacy of rows.
        clip: UnitClip
    }
}

on_data_sets! {
    /// The `glm` problem: `f_c(theta) = (1/A_c) sum_j a_j l(x_j^T theta + o_j, y_j) + ridge/2 ||theta||^2` with the loss l of a family,
    /// offsets o_j, row weights a_j and `A_c = sum_j a_j`. Without a dispersion, l is the negative log-likelihood. For K classes theta has
    /// K - 1 blocks.
    GeneralisedLinear {
        /// Family; `binomial` by default.
        family: FamilyName,
        /// alpha of `negative-binomial`, with the variance `mu + alpha mu^2`.
        dispersion: f64,
        /// Residual above which Huber's loss is linear.
        huber_delta: f64,
        /// As in `logistic`, for `binomial`.
        positive: ClassLabel,
        /// Reference class of `multinomial`; the first by default.
        reference: ClassLabel,
        /// As in `logistic`, for `binomial` and `multinomial`.
        classes: Vec<ClassLabel>,
        /// Column added to linear predictors.
        offset: String,
        /// Column of row weights.
        row_weights: String
    }
}

impl OnData for Logistic {
    const IS_LINEAR: bool = false;
    fn family(&self) -> ModelFamily {
        ModelFamily::Binomial
    }
    fn build(&self, train: LabelledRows, weights: Vec<f64>, like: Like, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let LabelledRows { mut rows, first, targets, .. } = train;
        times_labels(&mut rows, &targets);
        build(LogLoss, (rows, first, Vec::new()), weights, like, sampling, isa)
    }
}

impl OnData for LeastSquares {
    const IS_LINEAR: bool = true;
    fn check(&self) -> Result<()> {
        let Some(clip) = self.clip else { return Ok(()) };
        let what = clip.unit.name();
        require(clip.unit == PrivacyUnit::Row, "clip.unit", what, "row")?;
        require(clip.norm > 0.0 && clip.norm.is_finite(), "clip.norm", clip.norm, "a positive norm")?;
        // A row would change the others, or agents would send more than parts of rows.
        let undeclared = self.categorical.iter().any(|column| !self.levels.contains_key(column));
        for (key, is_given, instead) in [
            ("standardise", self.standardise, "`divide_by`"),
            ("pca", self.pca.is_some(), "no `pca`"),
            ("target_range", self.target_range.is_some(), "no `target_range`"),
            ("categorical", undeclared, "`levels` of the column"),
            ("ridge", self.ridge > 0.0, "ridge = 0"),
        ] {
            if is_given {
                return Err(Error::new(key, "a setting that depends on all rows or adds to their parts, beside `clip`", instead));
            }
        }
        Ok(())
    }
    fn family(&self) -> ModelFamily {
        ModelFamily::Gaussian
    }
    fn build(&self, train: LabelledRows, weights: Vec<f64>, like: Like, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let LabelledRows { mut rows, first, mut targets, .. } = train;
        if let Some(clip) = self.clip {
            shorten(&mut rows, &mut targets, clip);
        }
        let residuals = targets.into_iter().map(|y| -y).collect();
        build(SquaredLoss, (rows, first, residuals), weights, Like { clip: self.clip, ..like }, sampling, isa)
    }
}

impl OnData for GeneralisedLinear {
    const IS_LINEAR: bool = false;
    fn family(&self) -> ModelFamily {
        match self.family.unwrap_or_default() {
            FamilyName::Gaussian => ModelFamily::Gaussian,
            FamilyName::Binomial => ModelFamily::Binomial,
            FamilyName::Poisson => ModelFamily::Poisson,
            FamilyName::Gamma => ModelFamily::Gamma,
            FamilyName::NegativeBinomial => ModelFamily::NegativeBinomial { dispersion: self.dispersion.unwrap_or(f64::NAN) },
            FamilyName::Multinomial => ModelFamily::Multinomial { classes: 2 },
            FamilyName::Huber => ModelFamily::Huber { delta: self.huber_delta.unwrap_or(f64::NAN) },
        }
    }
    fn special(&self) -> SpecialColumns {
        SpecialColumns { offset: self.offset.clone(), row_weights: self.row_weights.clone(), ..SpecialColumns::default() }
    }
    fn check(&self) -> Result<()> {
        let family = self.family.unwrap_or_default();
        for (key, given, of, what) in [
            ("dispersion", self.dispersion, FamilyName::NegativeBinomial, "the negative-binomial family"),
            ("huber_delta", self.huber_delta, FamilyName::Huber, "Huber's loss"),
        ] {
            match given {
                None if family == of => {
                    let missing = format!("{what} needs it");
                    return Err(Error::new(key, missing, "a positive number").coded(ErrorCode::Setting));
                }
                Some(x) if family != of => {
                    return Err(Error::new(key, format!("{x}, which belongs to {what}"), format!("no `{key}`")));
                }
                Some(x) => require(x > 0.0 && x.is_finite(), key, x, "a positive number")?,
                None => {}
            }
        }
        if self.reference.is_some() && family != FamilyName::Multinomial {
            return Err(Error::new("reference", "a class, and the family is not multinomial", "no `reference`"));
        }
        if self.positive.is_some() && family != FamilyName::Binomial {
            return Err(Error::new("positive", "a class, and the family is not binomial", "no `positive`"));
        }
        if self.classes.is_some() && !matches!(family, FamilyName::Binomial | FamilyName::Multinomial) {
            return Err(Error::new("classes", "classes, and the family has none", "no `classes`"));
        }
        Ok(())
    }
    fn build(&self, train: LabelledRows, weights: Vec<f64>, like: Like, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let family = train.family;
        if let Some((is_one, wanted)) = family.domain()
            && let Some(y) = train.targets.iter().find(|y| !is_one(**y))
        {
            return Err(Error::data("target", format!("a row has the target {y}, and the family is {}", family.name()), wanted));
        }
        let losses = FamilyLosses::of(&train)?;
        let LabelledRows { rows, first, offsets, .. } = train;
        build(losses, (rows, first, offsets), weights, like, sampling, isa)
    }
}

impl GeneralisedLinear {
    fn targets(&self) -> TargetRule {
        let classes = self.classes.clone();
        match self.family.unwrap_or_default() {
            FamilyName::Binomial => TargetRule::Classes { positive: self.positive.clone(), classes },
            FamilyName::Multinomial => TargetRule::Many { reference: self.reference.clone(), classes },
            _ => TargetRule::Numbers { range: None },
        }
    }
}

impl Logistic {
    fn targets(&self) -> TargetRule {
        TargetRule::Classes { positive: self.positive.clone(), classes: self.classes.clone() }
    }
}

impl LeastSquares {
    fn targets(&self) -> TargetRule {
        TargetRule::Numbers { range: self.target_range }
    }
}

fn check_ridge(ridge: f64) -> Result<()> {
    require(ridge >= 0.0 && ridge.is_finite(), "ridge", ridge, "a finite number of at least 0")
}

/// The settings of a problem other than its rows.
struct Like {
    ridge: f64,
    /// The number of last columns without the ridge.
    free: usize,
    mixing_time: f64,
    /// How rows are shortened already.
    clip: Option<UnitClip>,
}

/// Regression with these losses on prepared rows, with `offsets` added to their products.
fn build(
    losses: impl RowLosses,
    (rows, first, offsets): (Rows, Vec<usize>, Vec<f64>),
    weights: Vec<f64>,
    like: Like,
    sampling: Sampling,
    isa: Isa,
) -> Result<Arc<dyn Field>> {
    let Like { ridge, free, mixing_time, clip } = like;
    let penalised = rows.columns() - free;
    let parts = Parts { rows, first, offsets, ridge, penalised, weights, mixing_time, clip };
    // Single agents may be singular.
    field(Regression::new(parts, losses, sampling, isa)?, sampling, isa, true)
}

/// Multiplies rows by their labels, -1 or 1.
fn times_labels(rows: &mut Rows, labels: &[f64]) {
    each_row(rows, labels, |row, y| {
        if *y < 0.0 {
            row.iter_mut().for_each(|x| *x = -*x)
        }
    });
}

/// Shortens the part `(x x^T, x y)` of each row, of norm `|x| |(x, y)|`: by w, with rows and targets times the root of w.
fn shorten(rows: &mut Rows, targets: &mut [f64], clip: UnitClip) {
    each_row(rows, targets, |row, y| {
        let size = linalg::norm(row);
        let factor = clip.factor(size * size.hypot(*y)).sqrt();
        if factor != 1.0 {
            row.iter_mut().for_each(|x| *x *= factor);
            *y *= factor;
        }
    });
}

/// Calls `f` with the stored numbers of each row and its element of `of`.
fn each_row<T>(rows: &mut Rows, of: impl IntoIterator<Item = T>, f: impl Fn(&mut [f64], T)) {
    match rows {
        Rows::Dense { d, values } => values.chunks_mut(*d).zip(of).for_each(|(row, y)| f(row, y)),
        Rows::Sparse { starts, value, .. } => starts.windows(2).zip(of).for_each(|(at, y)| f(&mut value[at[0]..at[1]], y)),
    }
}

/// Above this many columns, messages name the file with the last one.
const MANY_COLUMNS: usize = 100_000;

/// Above this many levels of categories, messages state their number.
const MANY_LEVELS: usize = 100;

/// The bytes of the stored numbers.
fn stored_bytes(rows: &Rows) -> usize {
    rows.stored() * if matches!(rows, Rows::Sparse { .. }) { 12 } else { 8 }
}

/// The memory of preparation and problem; `source` is the memory of the data sets if they are still to be read.
fn memory_of(how: &Preparation, is_linear: bool, sets: &[Dataset], threads: usize, source: f64) -> Result<MemoryEstimate> {
    let all: usize = sets.iter().map(|set| set.rows.len()).sum();
    let stored: usize = sets.iter().map(|set| set.rows.stored()).sum();
    let known = how.sparse.as_ref().map_or(0, |sparse| sparse.plain() + sparse.categories);
    let columns = sets.iter().map(|set| set.rows.columns()).max().unwrap_or(0).max(known);
    let is_sparse = sets.iter().all(|set| matches!(set.rows, Rows::Sparse { .. }));
    // The number of agents, if the data determine it.
    let groups = if how.partition == Partition::ByColumn { number_of_groups(sets)? } else { None };
    let agents = how.agents.or(groups);
    let n = agents.unwrap_or(sets.len()) as f64;
    let rows = how.samples.map_or(all as f64, |samples| (n * samples as f64).min(all as f64));
    let number = if is_sparse { 12.0 } else { 8.0 };
    let share = rows / all as f64;
    // Categories become a column per level, except a reference level; rows have at most one number for each category.
    let (categories, levels) = how.special.count_levels(sets);
    let (columns, stored) = if categories == 0 {
        (columns, stored)
    } else {
        let columns = columns.saturating_sub(categories) + levels;
        (columns, if is_sparse { stored + all * categories } else { all * columns })
    };
    let grown = if categories == 0 { 0.0 } else { number * stored as f64 };
    let d = how.pca.map_or(columns, |pca| pca.dim.min(columns)) + usize::from(how.intercept);
    let d = d as f64;
    // Mixed rows are gathered as dense ones.
    let gathered = if how.pca.is_some() || !is_sparse { 8.0 * rows * columns as f64 } else { number * stored as f64 * share };
    let featured = stored as f64 * share + if how.intercept { rows } else { 0.0 };
    let is_dense = how.pca.is_some() || !is_sparse || is_nearly_dense(featured, rows, d);
    // Rows of 1 and -1 have a copy as lists of positions.
    let has_lists = d <= MAX_COLUMNS as f64 && sets.iter().all(|set| set.rows.are_units());
    let places = if has_lists { 10.0 * featured + 8.0 * rows } else { 0.0 };
    let own = if is_dense { 8.0 * rows * d } else { number * featured + places };
    // The fit of components takes rows, second moments and their eigenvectors with scratch memory.
    let fit = if how.pca.is_some() { 2.0 * gathered + 8.0 * memory::matrix(columns as f64, columns as f64) } else { gathered };
    let systems = if is_linear && keeps_systems(n as usize, d as usize) { n * (memory::matrix(d, d) + 8.0 * d + 100.0) } else { 0.0 };
    // Scales, means and counts of columns.
    let kept = own + 16.0 * rows + 24.0 * n + systems + 64.0 * columns as f64;
    // The optimum is computed up to some dimension. Above it, methods that form matrices count their memory themselves.
    let p = d * how.targets.outputs(sets) as f64;
    let matrices = if p <= MAX_DIM as f64 { memory::optimum(p) + threads as f64 * memory::matrix(p, p) } else { 0.0 };
    let root = matrices + 40.0 * rows;
    let preparing = source + grown + 16.0 * all as f64 + (fit + gathered).max(gathered + own);
    // An index in one line of a file determines d.
    let widest = sets.iter().max_by_key(|set| set.rows.columns()).filter(|_| columns > MANY_COLUMNS);
    let widest = widest.map_or_else(String::new, |set| format!(", the last column in {}", quoted(&set.name)));
    let of_levels = if levels > MANY_LEVELS { format!(" with {levels} levels of categories") } else { String::new() };
    let text = format!(
        "{}, {} rows, d = {}{}{of_levels}{widest}",
        agents.map_or_else(|| format!("{} files", sets.len()), memory::agents),
        rows,
        d,
        how.pca.map_or_else(String::new, |pca| format!(", {}", pca.text(columns)))
    );
    Ok(MemoryEstimate::new((preparing.max(kept + root), kept), text))
}
