//! The settings of a fit.

use fedsa::error::{Error, Result, quoted, require};
use fedsa::method::Needs;
use fedsa_evaluate::inference::{CovarianceKind, InferenceSettings};
use fedsa_problems::rows::preparation::AgentWeights;
use fedsa_problems::rows::preparation::partition::Partition;
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::choose::{Goal, Network};
use crate::config::read_kind;
use crate::kinds::Kinds;
use crate::made::{Changes, kind_of};
use crate::options;

/// The default number of agents.
pub const AGENTS: u64 = 8;

/// The default mu.
const RIDGE: f64 = 1e-5;

/// The default number of local steps in a round, of methods that have any.
pub const LOCAL_STEPS: u64 = 10;

/// The name of the choice among methods ([`crate::choose::choose_for_losses`]).
pub const AUTO: &str = "auto";

/// The models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Logistic regression: two classes, or one against the rest.
    #[default]
    Logistic,
    /// Least squares.
    LeastSquares,
    /// Counts, log link.
    Poisson,
    /// Positive numbers, log link.
    Gamma,
    /// Counts with more variance than Poisson's, log link; `dispersion` is given.
    NegativeBinomial,
    /// Several classes against a reference class.
    Multinomial,
    /// Huber's loss, for numbers with outliers; `huber_delta` is given.
    Huber,
}

impl Model {
    /// All models.
    pub const ALL: [Self; 7] =
        [Self::Logistic, Self::LeastSquares, Self::Poisson, Self::Gamma, Self::NegativeBinomial, Self::Multinomial, Self::Huber];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Logistic => "logistic",
            Self::LeastSquares => "least-squares",
            _ => self.family(),
        }
    }

    /// The name of its family in experiment files.
    pub(super) fn family(self) -> &'static str {
        match self {
            Self::Logistic => "binomial",
            Self::LeastSquares => "gaussian",
            Self::Poisson => "poisson",
            Self::Gamma => "gamma",
            Self::NegativeBinomial => "negative-binomial",
            Self::Multinomial => "multinomial",
            Self::Huber => "huber",
        }
    }
}

/// The settings of a fit: options of `fedsa fit`, keyword arguments of Python, and keys of files. Each setting's meaning, default, range
/// and heading of help are written only here. Errors name the setting, or the key of the experiment that it becomes.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// Rows with targets: LIBSVM, CSV, TSV, Parquet or IDX (also gzip, zstd); files, globs, folders, or data sets such as libsvm/w8a
    #[arg(required = true, help_heading = options::DATA)]
    pub data: Vec<String>,
    /// Number of agents; 8 by default, unless files or a column determine them
    #[arg(long, value_name = "N", help_heading = options::DATA, value_parser = options::at_least_1)]
    #[schemars(range(min = 1))]
    pub agents: Option<u64>,
    /// Column of targets; by default the label of LIBSVM files or IDX images, or the column target or label
    #[arg(long, value_name = "COLUMN", help_heading = options::DATA)]
    pub target: Option<String>,
    /// Column with the agent of each row
    #[arg(long, value_name = "COLUMN", help_heading = options::DATA)]
    pub group: Option<String>,
    /// Division of rows: shuffled (default), even, sorted, by-label, similarity:SHARE, dirichlet:ALPHA, files (one per agent), by-column
    /// (default with `group`)
    #[arg(long, value_name = "HOW", help_heading = options::DATA, value_parser = partition, hide_short_help = true)]
    pub partition: Option<Partition>,
    /// Share of each agent's rows to hold out, drawn by `seed`, at least one row, for loss and accuracy
    #[arg(long, value_name = "SHARE", help_heading = options::DATA)]
    pub holdout: Option<f64>,
    /// Categorical columns: a 0/1 column per level but the reference. Text columns always are
    #[arg(long, value_name = "COLUMNS", help_heading = options::DATA, value_parser = options::names, default_value = "", hide_default_value = true)]
    pub categorical: ::std::vec::Vec<String>,
    /// Columns to leave out: a,b; quote names with commas: '"a, b",c'
    #[arg(long, value_name = "COLUMNS", help_heading = options::DATA, value_parser = options::names, default_value = "", hide_default_value = true)]
    pub drop: ::std::vec::Vec<String>,
    /// Column of row weights
    #[arg(long, value_name = "COLUMN", help_heading = options::DATA, hide_short_help = true)]
    pub row_weights: Option<String>,
    /// Divisor of every feature, such as 255 for pixels
    #[arg(long, value_name = "X", help_heading = options::DATA, hide_short_help = true)]
    pub divide_by: Option<f64>,
    /// Scale columns to mean 0 and standard deviation 1, by row weights; sparse columns are not centred. The ridge applies to scaled
    /// columns, coefficients to the original ones
    #[arg(long, alias = "standardize", help_heading = options::DATA)]
    pub standardise: bool,
    /// Number of principal components to project on
    #[arg(long, value_name = "DIM", help_heading = options::DATA, value_parser = options::at_least_1, hide_short_help = true)]
    #[schemars(range(min = 1))]
    pub pca: Option<u64>,
    /// Model; logistic: two classes, or one against the rest; multinomial: against a reference class
    #[arg(long, value_name = "MODEL", help_heading = options::MODEL, value_parser = options::one_of::<Model>(), hide_possible_values = true, default_value = "logistic")]
    pub model: Model,
    /// Positive class of logistic, against all others
    #[arg(long, value_name = "CLASS", allow_hyphen_values = true, help_heading = options::MODEL)]
    pub positive: Option<String>,
    /// Reference class of multinomial; the first by default
    #[arg(long, value_name = "CLASS", allow_hyphen_values = true, help_heading = options::MODEL, hide_short_help = true)]
    pub reference: Option<String>,
    /// Dispersion alpha of negative-binomial: variance mean + alpha mean^2
    #[arg(long, value_name = "X", help_heading = options::MODEL, hide_short_help = true)]
    #[schemars(range(min = 0.0))]
    pub dispersion: Option<f64>,
    /// Residual above which Huber's loss is linear, in target units
    #[arg(long, value_name = "X", help_heading = options::MODEL, hide_short_help = true)]
    #[schemars(range(min = 0.0))]
    pub huber_delta: Option<f64>,
    /// Column added to linear predictors, such as a log exposure
    #[arg(long, value_name = "COLUMN", help_heading = options::MODEL, hide_short_help = true)]
    pub offset: Option<String>,
    /// Ridge mu: mu/2 ||coefficients||^2 is added to the mean loss, without intercept (see `penalise_intercept`). 1e-5 by default, 0 with
    /// `inference`
    #[arg(long, value_name = "MU", help_heading = options::MODEL)]
    #[schemars(range(min = 0.0))]
    pub ridge: Option<f64>,
    /// Whether to fit an intercept; by default for tables (CSV, Parquet, arrays, frames) and with `inference`
    #[arg(long, value_name = "true|false", help_heading = options::MODEL, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub intercept: Option<bool>,
    /// Apply the ridge to the intercept
    #[arg(long, help_heading = options::MODEL, hide_short_help = true)]
    pub penalise_intercept: bool,
    /// Weights of agents: by number of rows, or 1/N each
    #[arg(long, value_name = "HOW", help_heading = options::MODEL, value_parser = options::one_of::<AgentWeights>(), hide_possible_values = true, default_value = "rows", hide_short_help = true)]
    pub weighting: AgentWeights,
    /// Standard errors, intervals, p-values, deviance and AIC, from agents' sums; sandwich: HC0; clustered: by agents. The ridge is then 0
    #[arg(long, value_name = "KIND", help_heading = options::INFERENCE, value_parser = options::one_of::<CovarianceKind>(), hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "model")]
    pub inference: Option<CovarianceKind>,
    /// Level of intervals
    #[arg(long, value_name = "LEVEL", help_heading = options::INFERENCE, requires = "inference", default_value_t = 0.95, hide_short_help = true)]
    pub level: f64,
    /// Method, or auto: chosen for `objective` among methods that use all rows in a round. By default the first of `compare`, else auto
    #[arg(long, value_name = "METHOD", help_heading = options::METHOD)]
    pub method: Option<String>,
    /// Cost that auto minimises; seconds: of computation and messages (`latency`, `bandwidth`)
    #[arg(long, value_name = "COST", help_heading = options::METHOD, value_parser = options::one_of::<Goal>(), hide_possible_values = true, default_value = "bits", hide_short_help = true)]
    pub objective: Goal,
    /// Seconds of an exchange of any size, for `objective = seconds`
    #[arg(long, value_name = "SECONDS", help_heading = options::METHOD, hide_short_help = true)]
    pub latency: Option<f64>,
    /// Bits per second of all messages, for `objective = seconds`
    #[arg(long, value_name = "BITS", help_heading = options::METHOD, hide_short_help = true)]
    pub bandwidth: Option<f64>,
    /// Methods to compare on the same data. Without `method` the first gives the weights
    #[arg(long, value_name = "METHODS", value_delimiter = ',', help_heading = options::METHOD, hide_short_help = true)]
    pub compare: Vec<String>,
    /// Stop at this gradient norm of the mean loss; 0 for never
    #[arg(long, value_name = "NORM", help_heading = options::METHOD, default_value_t = 1e-9, hide_short_help = true)]
    #[schemars(range(min = 0.0))]
    pub tol: f64,
    /// Largest number of rounds
    #[arg(long, value_name = "N", help_heading = options::METHOD, value_parser = options::at_least_1, default_value_t = 5_000, hide_short_help = true)]
    #[schemars(range(min = 1))]
    pub max_rounds: u64,
    /// Rows of local steps: mean (all rows), or iid with `batch`
    #[arg(long, value_name = "HOW", help_heading = options::METHOD, default_value = "mean", hide_short_help = true)]
    pub sampling: String,
    /// Rows of a local step, for `sampling = iid`
    #[arg(long, value_name = "N", help_heading = options::METHOD, value_parser = options::at_least_1, hide_short_help = true)]
    #[schemars(range(min = 1))]
    pub batch: Option<u64>,
    /// Local step size, of methods with local steps
    #[arg(long, value_name = "ETA", help_heading = options::METHOD, hide_short_help = true)]
    pub step_size: Option<f64>,
    /// Local steps in a round, of methods that have them; 10 by default
    #[arg(long, value_name = "H", help_heading = options::METHOD, value_parser = options::whole, hide_short_help = true)]
    pub local_steps: Option<u64>,
    /// Secure sums: the server learns sums of what agents send and no single answer. The bound of each number that an agent sends
    #[arg(long, value_name = "BOUND", help_heading = options::METHOD, hide_short_help = true)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub secure_sums: Option<f64>,
    /// Seed of the run, of the partition, and of held-out rows
    #[arg(long, value_name = "SEED", help_heading = options::METHOD, default_value_t = 0, value_parser = options::whole, hide_short_help = true)]
    pub seed: u64,
    /// Changes of the resulting experiment.
    #[arg(skip)]
    #[serde(skip)]
    pub changes: Changes,
    /// The kinds of methods; fedsa's own by default.
    #[arg(skip)]
    #[serde(skip)]
    pub kinds: Kinds,
}

impl Default for FitSettings {
    fn default() -> Self {
        options::defaults()
    }
}

/// The partition of a text such as `dirichlet:0.5`.
fn partition(text: &str) -> Result<Partition, String> {
    let bad =
        || "not shuffled, even, by-label, sorted, files, by-column, dirichlet:ALPHA such as dirichlet:0.5, or similarity:SHARE".to_string();
    let (kind, number) = text.split_once(':').map_or((text, None), |(kind, number)| (kind, number.parse::<f64>().ok()));
    match (kind, number) {
        ("dirichlet", Some(number)) => Ok(Partition::Dirichlet(number)),
        ("similarity", Some(number)) => Ok(Partition::Similarity(number)),
        _ => Partition::deserialize(text.into_deserializer()).map_err(|_: serde::de::value::Error| bad()),
    }
}

impl FitSettings {
    /// The defaults on these files, globs, folders or data sets.
    pub fn new(data: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { data: data.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Whether `method` is [`AUTO`].
    pub(super) fn chooses(&self) -> bool {
        self.named().is_ok_and(|named| named.iter().any(|name| name == AUTO))
    }

    /// Whether the model's problem kind has no families, offsets and row weights.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.model, Model::Logistic | Model::LeastSquares) && self.offset.is_none() && self.row_weights.is_none()
    }

    /// Refuses settings of other models.
    ///
    /// # Errors
    /// When there is such a setting.
    pub(super) fn check_model(&self) -> Result<()> {
        let given = [
            ("positive", self.positive.is_some(), Model::Logistic),
            ("reference", self.reference.is_some(), Model::Multinomial),
            ("dispersion", self.dispersion.is_some(), Model::NegativeBinomial),
            ("huber_delta", self.huber_delta.is_some(), Model::Huber),
        ];
        if let Some((key, _, model)) = given.into_iter().find(|(_, is_given, model)| *is_given && *model != self.model) {
            let class = self.positive.as_ref().filter(|_| key == "positive").map(|class| format!("`{}`, and ", quoted(class)));
            let what = format!("{}the model is {}", class.unwrap_or_default(), self.model.name());
            return Err(Error::new(key, what, format!("`model = {}`", model.name())));
        }
        require(self.tol >= 0.0 && self.tol.is_finite(), "tol", self.tol, "a number of at least 0, which makes all rounds")?;
        let missing = [("dispersion", self.dispersion, Model::NegativeBinomial), ("huber_delta", self.huber_delta, Model::Huber)];
        if let Some((key, ..)) = missing.into_iter().find(|(_, given, model)| *model == self.model && given.is_none()) {
            return Err(Error::new(key, format!("the model {} needs it", self.model.name()), "a positive number"));
        }
        Ok(())
    }

    /// Refuses settings that no part of the fit uses: settings of a choice that is not made, or is made for another objective, and the
    /// sampling of rows if all methods use all rows.
    ///
    /// # Errors
    /// When there is such a setting.
    pub(super) fn check_choice(&self) -> Result<()> {
        let goal = self.objective.name();
        if self.objective != Goal::Bits && !self.chooses() {
            return Err(Error::new(
                "objective",
                format!("{goal}, and the method is given"),
                "no `objective`, or no `method`, which is then chosen",
            ));
        }
        if let Some(network) = self.network()?.filter(|_| self.objective != Goal::Seconds) {
            let key = if network.bandwidth.is_some() { "bandwidth" } else { "latency" };
            let what = format!("given, and the method is not chosen for few seconds but for few {goal}");
            return Err(Error::new(key, what, format!("`objective = seconds`, or no `{key}`")));
        }
        // Batches have their own refusal.
        let named = self.named()?;
        if self.batch.is_none() && self.sampling != "mean" && named.iter().all(|kind| self.needs_all_rows(kind)) {
            let what = format!("`{}`, and {} uses all rows of an agent in every round", quoted(&self.sampling), quoted(&named[0]));
            return Err(Error::new("sampling", what, "no `sampling`, or methods that draw rows, such as fedlsa"));
        }
        Ok(())
    }

    /// Refuses losses for which the inference would be wrong.
    ///
    /// # Errors
    /// When there is a ridge, or agents are not weighted by their rows: the estimate is then not a maximum-likelihood estimate.
    pub(super) fn check_inference(&self, ridge: f64, by_rows: bool) -> Result<()> {
        if ridge != 0.0 {
            let what = format!("{ridge:?}, beside inference: standard errors of coefficients with a ridge are not defined");
            return Err(Error::new("ridge", what, "no `ridge`, which is then 0, or no `inference`"));
        }
        if !by_rows {
            let what = "agents that count equally, beside inference";
            return Err(Error::new("weighting", what, "`weighting = rows`, so that every row counts alike"));
        }
        Ok(())
    }

    /// Refuses errors clustered by agents if agents are not clusters.
    ///
    /// # Errors
    /// When the partition forms the agents: agents are then no clusters of dependent rows.
    pub(super) fn check_clusters(&self) -> Result<()> {
        if self.inference != Some(CovarianceKind::Clustered) || matches!(self.dealing(), Partition::Files | Partition::ByColumn) {
            return Ok(());
        }
        let what = "clustered, and the rows are dealt to agents, which are then no clusters";
        let help = "agents that are what rows depend on, files or the values of a column: `partition = files` or `group = COLUMN`";
        Err(Error::new("inference", what, help))
    }

    /// The division of rows among agents.
    pub fn dealing(&self) -> Partition {
        self.partition.unwrap_or(if self.group.is_some() { Partition::ByColumn } else { Partition::Shuffled })
    }

    /// The network, if latency or bandwidth is given.
    ///
    /// # Errors
    /// When a number is out of range.
    pub fn network(&self) -> Result<Option<Network>> {
        Network::of(self.latency, self.bandwidth)
    }

    /// The settings of `inference`, if asked for.
    pub fn standard_errors(&self) -> Option<InferenceSettings> {
        self.inference.map(|covariance| InferenceSettings::default().with_covariance(covariance).with_level(self.level))
    }

    /// mu.
    pub(super) fn mu(&self) -> f64 {
        self.ridge.unwrap_or(if self.inference.is_some() { 0.0 } else { RIDGE })
    }

    /// Whether a column of ones is added to data that `is_table` or not.
    pub fn has_intercept(&self, is_table: bool) -> bool {
        self.intercept.unwrap_or(is_table || self.inference.is_some())
    }

    /// The methods to run; the first gives the weights.
    pub(super) fn named(&self) -> Result<Vec<String>> {
        let compared: Vec<String> = self.compare.iter().map(|name| name.trim().to_string()).collect();
        let help = "different methods separated by commas: fib-shed,fednl,giant";
        if let Some(i) = compared.iter().position(String::is_empty) {
            return Err(Error::new("compare", format!("method {i} has no name"), help));
        }
        if let Some(twice) = compared.iter().enumerate().find(|(i, name)| compared[..*i].contains(name)) {
            return Err(Error::new("compare", format!("`{}` twice", quoted(twice.1)), help));
        }
        let mut all: Vec<String> = self.method.iter().map(|name| name.trim().to_string()).collect();
        let others: Vec<String> = compared.into_iter().filter(|name| !all.contains(name)).collect();
        all.extend(others);
        Ok(if all.is_empty() { vec![AUTO.into()] } else { all })
    }

    /// Whether a method needs gradients, losses or Hessians of all the agents' rows. Such methods have defaults for all settings.
    pub(super) fn needs_all_rows(&self, kind: &str) -> bool {
        if kind == AUTO {
            return true;
        }
        let settings = kind_of(&self.kinds, kind).and_then(|kind| read_kind(kind, &Table::new()));
        settings.is_ok_and(|settings| settings.needs() == Needs::Objective)
    }
}
