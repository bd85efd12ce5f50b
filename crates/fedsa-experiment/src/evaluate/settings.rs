//! The settings of an evaluation.

use std::collections::BTreeMap;

use fedsa::error::{Error, Result, require};
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::{BadRows, LogForm};
use fedsa_problems::logs::replay::Scaling;
use fedsa_problems::td::gradient_td::TdOperator;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::Kinds;
use crate::made::Changes;
use crate::options;

/// The default step size, of methods with local steps.
const STEP_SIZE: f64 = 1.0;

/// The default number of local steps in a round, of methods that have any.
const LOCAL_STEPS: u64 = 100;

/// The default limit of the choice among features.
const MAX_FEATURES: u64 = 256;

/// The name of the choice among methods ([`choose`](mod@crate::choose)), and among features ([`super::FeatureChoice`]).
pub const AUTO: &str = "auto";

/// The settings of an evaluation: options of `fedsa evaluate`, keyword arguments of Python, and keys of files. Each setting's meaning,
/// default, range and heading of help are written only here. Errors name the setting, or the key of the experiment that it becomes.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EvaluateSettings {
    /// Logs of transitions, one file per agent: Parquet, CSV or TSV (also gzip, zstd); files, globs, a folder, or a data set. Columns: s_*,
    /// next_*, reward, done or terminated; optionally truncated or timeouts, episode, env, ratio or target and behaviour
    #[arg(required = true, help_heading = options::DATA)]
    pub logs: Vec<String>,
    /// Names of columns: s_0=x,reward=r,done=terminal, or s_*=obs_*,next_*=next_obs_*
    #[arg(long, value_name = "NAME=FIELD,..", help_heading = options::DATA, value_parser = options::named_columns, default_value = "", hide_default_value = true)]
    pub columns: BTreeMap<String, String>,
    /// Column with the agent of each row; by default each file is an agent
    #[arg(long, value_name = "COLUMN", help_heading = options::DATA)]
    pub agent_column: Option<String>,
    /// Unreadable rows: refuse, or skip and count by file and reason
    #[arg(long, value_name = "HOW", help_heading = options::DATA, value_parser = options::one_of::<BadRows>(), hide_possible_values = true, default_value = "refuse", hide_short_help = true)]
    pub bad_rows: BadRows,
    /// Keep rows of automatic resets, which are otherwise left out and counted
    #[arg(long, help_heading = options::DATA, hide_short_help = true)]
    pub keep_autoreset_rows: bool,
    /// Share of each agent's episodes to hold out, drawn by `seed`, to compare federated with local weights. Needs the column episode
    #[arg(long, value_name = "SHARE", help_heading = options::DATA)]
    pub holdout: Option<f64>,
    /// Features of the state: identity, polynomial:ORDER, fourier:ORDER or fourier:ORDER:scaled, tiles:TILINGSxBINS or
    /// tiles:TILINGSxBINS@HASHED, radial:CENTRES or radial:CENTRES:quantiles, standardised, one-hot; products: 'one-hot(s_2) *
    /// tiles:8x4(s_0, s_1)'; auto: least held-out error. By default logged columns phi_*, else by the number of columns
    #[arg(long, value_name = "FEATURES", help_heading = options::MODEL)]
    pub features: Option<String>,
    /// Largest number for `features = auto`; 256 by default
    #[arg(long, value_name = "N", help_heading = options::MODEL, value_parser = |text: &str| options::between(text, 1, 65_536), hide_short_help = true)]
    #[schemars(range(min = 1, max = 65_536))]
    pub max_features: Option<u64>,
    /// Ranges of state columns, such as s_0=-1.2:0.6,s_1=-0.07:0.07; by default from the data
    #[arg(long, value_name = "COLUMN=LOW:HIGH,..", help_heading = options::MODEL, value_parser = options::ranges, default_value = "", hide_default_value = true)]
    pub ranges: BTreeMap<String, [f64; 2]>,
    /// Discount factor; 1 only if every episode terminates
    #[arg(long, value_name = "GAMMA", help_heading = options::MODEL, default_value_t = 0.99)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// Decay of the traces of TD(lambda), from 0 to 1. Traces end at done and at a change of episode
    #[arg(long, value_name = "LAMBDA", help_heading = options::MODEL, default_value_t = 0.0, hide_short_help = true)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Operator: td; gtd2 or tdc minimise the projected Bellman error, and converge off-policy where td diverges
    #[arg(long, value_name = "OPERATOR", help_heading = options::MODEL, value_parser = options::one_of::<TdOperator>(), hide_possible_values = true, default_value = "td", hide_short_help = true)]
    pub operator: TdOperator,
    /// Ratio of the steps of gtd2 and tdc; 1 by default
    #[arg(long, value_name = "K", help_heading = options::MODEL, hide_short_help = true)]
    pub kappa: Option<f64>,
    /// EPS I is added to every agent's A_c; by default a small share of the features' mean square, 0 for none
    #[arg(long, value_name = "EPS", help_heading = options::MODEL)]
    #[schemars(range(min = 0.0))]
    pub ridge: Option<f64>,
    /// The policy.json of fedsa improve, to evaluate by logs of another policy with action and behaviour. Refuses episodes it was found from
    #[arg(long, value_name = "FILE", help_heading = options::MODEL)]
    pub policy: Option<String>,
    /// Importance ratios are clipped at this value; the report gives their number and effect on the mean. None by default
    #[arg(long, value_name = "RATIO", help_heading = options::MODEL, hide_short_help = true)]
    pub max_importance_ratio: Option<f64>,
    /// Scaling of features; equal-squares: equal mean squares over all data
    #[arg(long, value_name = "SCALING", help_heading = options::MODEL, value_parser = options::one_of::<Scaling>(), hide_possible_values = true, default_value = "none", hide_short_help = true)]
    pub scaling: Scaling,
    /// Level of intervals
    #[arg(long, value_name = "LEVEL", help_heading = options::INFERENCE, default_value_t = 0.95, hide_short_help = true)]
    pub level: f64,
    /// Logs of another policy, for the difference of values
    #[arg(long, value_name = "LOGS", num_args = 1.., help_heading = options::INFERENCE)]
    pub against: Vec<String>,
    /// Method, or auto: the one that reaches `tol` with the fewest bits. anderson accelerates fedhsa
    #[arg(long, value_name = "METHOD", help_heading = options::METHOD, default_value = AUTO)]
    pub method: String,
    /// Keep the matrices A_c with agents: `method = auto` does not choose lstd
    #[arg(long, help_heading = options::METHOD, hide_short_help = true)]
    pub keep_matrices: bool,
    /// Transitions of steps: mean (all), iid or markov
    #[arg(long, value_name = "HOW", help_heading = options::METHOD, default_value = "mean", hide_short_help = true)]
    pub sampling: String,
    /// Local step size, of methods with local steps; 1 by default
    #[arg(long, value_name = "ETA", help_heading = options::METHOD, hide_short_help = true)]
    pub step_size: Option<f64>,
    /// Local steps in a round (mean number for scafflsa-random), of methods that have them; 100 by default
    #[arg(long, value_name = "H", help_heading = options::METHOD, value_parser = options::whole, hide_short_help = true)]
    pub local_steps: Option<u64>,
    /// Largest number of rounds
    #[arg(long, value_name = "N", help_heading = options::METHOD, value_parser = options::whole, default_value_t = 20_000, hide_short_help = true)]
    pub max_rounds: u64,
    /// Stop at this multiple of the mean operator's norm at zero weights; 0 for never. By default 1e-12, or what rounding allows
    #[arg(long, value_name = "RESIDUAL", help_heading = options::METHOD, hide_short_help = true)]
    #[schemars(range(min = 0.0))]
    pub tol: Option<f64>,
    /// Secure sums: the server learns sums of what agents send and no single answer. The bound of each number that an agent sends
    #[arg(long, value_name = "BOUND", help_heading = options::METHOD, hide_short_help = true)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub secure_sums: Option<f64>,
    /// Seed of the run and of held-out episodes
    #[arg(long, value_name = "SEED", help_heading = options::METHOD, default_value_t = 0, value_parser = options::whole, hide_short_help = true)]
    pub seed: u64,
    /// One or two state columns for the picture of values; by default those with most variation
    #[arg(long, value_name = "COLUMNS", help_heading = options::OUTPUT, value_parser = options::names, default_value = "", hide_default_value = true, hide_short_help = true)]
    pub value_columns: ::std::vec::Vec<String>,
    /// Changes of the resulting experiment.
    #[arg(skip)]
    #[serde(skip)]
    pub changes: Changes,
    /// The kinds of methods; fedsa's own by default.
    #[arg(skip)]
    #[serde(skip)]
    pub kinds: Kinds,
}

impl Default for EvaluateSettings {
    fn default() -> Self {
        options::defaults()
    }
}

impl EvaluateSettings {
    /// The defaults on these logs.
    pub fn new(logs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { logs: logs.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The method, unless `method` is [`AUTO`].
    pub(super) fn named_method(&self) -> Option<&str> {
        Some(&self.method[..]).filter(|method| *method != AUTO)
    }

    /// The features, unless they are chosen.
    ///
    /// # Errors
    /// When the text names no features.
    pub fn named_features(&self) -> Result<Option<FeatureSpec>> {
        let named = self.features.as_ref().filter(|text| *text != AUTO);
        named.map(|text| text.parse().map_err(|e: Error| e.about("features"))).transpose()
    }

    /// The largest number of features, if they are chosen.
    pub fn features_to_choose(&self) -> Option<usize> {
        self.features.as_ref().filter(|text| *text == AUTO).map(|_| self.max_features.unwrap_or(MAX_FEATURES) as usize)
    }

    /// The number H of local steps, of methods that have them.
    pub fn local_steps(&self) -> u64 {
        self.local_steps.unwrap_or(LOCAL_STEPS)
    }

    /// The step size of methods with local steps.
    pub fn step_size(&self) -> f64 {
        self.step_size.unwrap_or(STEP_SIZE)
    }

    /// The layout of the files.
    pub fn form(&self) -> LogForm {
        LogForm::default()
            .with_columns(self.columns.clone())
            .with_agent_column(self.agent_column.clone())
            .with_bad_rows(self.bad_rows)
            .with_keep_autoreset_rows(self.keep_autoreset_rows)
    }

    /// Refuses settings that exclude each other or are out of range.
    ///
    /// # Errors
    /// When there is such a setting.
    pub(super) fn check(&self) -> Result<()> {
        if let (Some(most), None) = (self.max_features, self.features_to_choose()) {
            return Err(Error::new("max_features", format!("{most}, and features are not chosen"), "`features = auto` beside it"));
        }
        require(self.level > 0.0 && self.level < 1.0, "level", self.level, "a number above 0 and below 1")
    }
}
