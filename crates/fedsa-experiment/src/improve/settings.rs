//! The settings of an improvement of a policy.

use std::collections::BTreeMap;

use fedsa::error::{Error, Result, require};
use fedsa_problems::control::pessimism::Pessimism;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::{BadRows, LogForm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kinds::Kinds;
use crate::made::Changes;
use crate::options;

/// How a better policy is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImproveMethod {
    /// Least-squares policy iteration: d (d + 1) numbers an iteration, few iterations.
    #[default]
    Lspi,
    /// Fitted Q-iteration: d numbers a sweep, many sweeps.
    Fqi,
}

impl ImproveMethod {
    /// The kind of method of an experiment.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Lspi => "lspi",
            Self::Fqi => "fitted-q",
        }
    }
}

/// The settings of an improvement: options of `fedsa improve`, keyword arguments of Python, and keys of files.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImproveSettings {
    /// Logs of transitions, one file per agent, as for fedsa evaluate. Columns: s_*, next_*, reward, done or terminated, action (numbers
    /// from 0); optionally truncated or timeouts, episode, env, behaviour
    #[arg(required = true, help_heading = options::DATA)]
    pub logs: Vec<String>,
    /// Names of the actions, in the order of their numbers
    #[arg(long, required = true, value_name = "NAMES", help_heading = options::DATA, value_parser = options::names, default_value = "", hide_default_value = true)]
    pub actions: ::std::vec::Vec<String>,
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
    /// Share of each agent's episodes to hold out, drawn by `seed`: they choose the ridge and give the value of the new policy. 0 for none
    #[arg(long, value_name = "SHARE", help_heading = options::DATA, default_value_t = 0.25)]
    #[schemars(range(min = 0.0))]
    pub holdout: f64,
    /// Features of the state, as for fedsa evaluate; by default by the number of columns
    #[arg(long, value_name = "FEATURES", help_heading = options::MODEL)]
    pub features: Option<String>,
    /// Ranges of state columns, such as s_0=-1.2:0.6,s_1=-0.07:0.07; by default from the data
    #[arg(long, value_name = "COLUMN=LOW:HIGH,..", help_heading = options::MODEL, value_parser = options::ranges, default_value = "", hide_default_value = true)]
    pub ranges: BTreeMap<String, [f64; 2]>,
    /// Discount factor; 1 only if every episode terminates
    #[arg(long, value_name = "GAMMA", help_heading = options::MODEL, default_value_t = 0.99)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: f64,
    /// EPS I is added to the matrix of the fit. By default held-out episodes choose it, or it is 1e-4 times the mean square of a feature if no
    /// policy is surely better than the one that acted
    #[arg(long, value_name = "EPS", help_heading = options::MODEL)]
    #[schemars(range(min = 0.0))]
    pub ridge: Option<f64>,
    /// Avoid actions that few rows are behind: none, lcb:KAPPA (values less KAPPA standard errors) or support:ROWS (only actions with so
    /// many rows behind them)
    #[arg(long, value_name = "RULE", help_heading = options::MODEL, value_parser = |text: &str| Pessimism::try_from(text.to_string()), default_value_t = Pessimism::None, hide_short_help = true)]
    pub pessimism: Pessimism,
    /// Probability with which the new policy takes any action, in its value on held-out episodes
    #[arg(long, value_name = "EPS", help_heading = options::MODEL, default_value_t = 0.0, hide_short_help = true)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub soften: f64,
    /// Level of intervals
    #[arg(long, value_name = "LEVEL", help_heading = options::INFERENCE, default_value_t = 0.95, hide_short_help = true)]
    pub level: f64,
    /// lspi, or fqi, which sends fewer bits if few sweeps suffice
    #[arg(long, value_name = "METHOD", help_heading = options::METHOD, value_parser = options::one_of::<ImproveMethod>(), hide_possible_values = true, default_value = "lspi")]
    pub method: ImproveMethod,
    /// Largest number of rounds; 50 by default, 20000 for fqi
    #[arg(long, value_name = "N", help_heading = options::METHOD, value_parser = options::whole, hide_short_help = true)]
    pub max_rounds: Option<u64>,
    /// Stop at this multiple of the mean operator's norm at zero weights
    #[arg(long, value_name = "RESIDUAL", help_heading = options::METHOD, default_value_t = 1e-6, hide_short_help = true)]
    #[schemars(range(min = 0.0))]
    pub tol: f64,
    /// Secure sums: the server learns sums of what agents send and no single answer. The bound of each number that an agent sends
    #[arg(long, value_name = "BOUND", help_heading = options::METHOD, hide_short_help = true)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub secure_sums: Option<f64>,
    /// Seed of held-out episodes
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

impl Default for ImproveSettings {
    fn default() -> Self {
        options::defaults()
    }
}

impl ImproveSettings {
    /// The defaults on these logs with these actions.
    pub fn new(logs: impl IntoIterator<Item = impl Into<String>>, actions: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (logs, actions) = (logs.into_iter().map(Into::into).collect(), actions.into_iter().map(Into::into).collect());
        Self { logs, actions, ..Self::default() }
    }

    /// The features, unless they follow from the number of columns.
    ///
    /// # Errors
    /// When the text names no features.
    pub(super) fn named_features(&self) -> Result<Option<FeatureSpec>> {
        self.features.as_ref().map(|text| text.parse().map_err(|e: Error| e.about("features"))).transpose()
    }

    /// The largest number of rounds.
    pub(super) fn rounds(&self) -> u64 {
        self.max_rounds.unwrap_or(if self.method == ImproveMethod::Lspi { 50 } else { 20_000 })
    }

    /// The layout of the files.
    pub fn form(&self) -> LogForm {
        LogForm::default()
            .with_columns(self.columns.clone())
            .with_agent_column(self.agent_column.clone())
            .with_bad_rows(self.bad_rows)
            .with_keep_autoreset_rows(self.keep_autoreset_rows)
            .with_actions(Some(self.actions.len()))
    }

    /// Refuses settings that are out of range.
    ///
    /// # Errors
    /// When there is such a setting.
    pub(super) fn check(&self) -> Result<()> {
        if self.actions.len() < 2 {
            let given = format!("{} names", self.actions.len());
            return Err(Error::new("actions", given, "the names of at least two actions, such as left,right"));
        }
        require((0.0..1.0).contains(&self.holdout), "holdout", self.holdout, "at least 0 and below 1")?;
        require((0.0..=1.0).contains(&self.soften), "soften", self.soften, "from 0 to 1")?;
        require(self.level > 0.0 && self.level < 1.0, "level", self.level, "a number above 0 and below 1")
    }
}
