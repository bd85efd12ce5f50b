//! The settings of a tuning.

use fedsa::error::Result;
use fedsa_theory::cost::{Goal, Network};
use fedsa_theory::tune;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options;

/// The settings of a tuning: options of `fedsa tune` and keyword arguments of Python, documented only here. Errors name the setting.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TuneSettings {
    /// Mean-square error to reach
    #[arg(long, value_name = "EPS2", help_heading = options::MODEL, required_unless_present = "epsilon")]
    pub target_mse: Option<f64>,
    /// Epsilon of the agents' privacy, in place of the link's: finds the smallest error instead of a target's cost
    #[arg(long, value_name = "EPSILON", help_heading = options::MODEL, conflicts_with = "target_mse", value_parser = options::positive)]
    pub epsilon: Option<f64>,
    /// Cost to minimise; bits: of all messages; samples: of all agents; seconds: of messages without computation (`latency`, `bandwidth`)
    #[arg(long, value_name = "COST", help_heading = options::MODEL, value_parser = options::one_of::<Goal>(), hide_possible_values = true, default_value = "bits")]
    pub objective: Goal,
    /// Seconds of an exchange of any size, for `objective = seconds`
    #[arg(long, value_name = "SECONDS", help_heading = options::MODEL)]
    pub latency: Option<f64>,
    /// Bits per second of all messages, for `objective = seconds`
    #[arg(long, value_name = "BITS", help_heading = options::MODEL)]
    pub bandwidth: Option<f64>,
    /// Candidate methods; by default fedlsa, scafflsa, fedhsa, and the experiment's methods with a step size
    #[arg(long, value_name = "METHODS", help_heading = options::METHOD, value_delimiter = ',')]
    pub methods: Vec<String>,
    /// Candidate uplink codecs, such as exact,float32,quantised:8,rand-k:0.5; by default the experiment's. auto: exact, float32, and
    /// quantised with 4, 6, 8 and 12 bits
    #[arg(long, value_name = "CODECS", help_heading = options::METHOD, value_delimiter = ',')]
    pub codecs: Vec<String>,
    /// Candidate local steps; by default all up to `max_local_steps`
    #[arg(long, value_name = "H1,H2,..", help_heading = options::METHOD, value_delimiter = ',', value_parser = options::whole)]
    pub local_steps: Vec<u64>,
    /// Largest number of local steps
    #[arg(long, value_name = "H", help_heading = options::METHOD, conflicts_with = "local_steps", default_value_t = tune::DEFAULT_MAX_LOCAL_STEPS, value_parser = options::at_least_1)]
    #[schemars(range(min = 1))]
    pub max_local_steps: u64,
    /// Largest number of rounds
    #[arg(long, value_name = "N", help_heading = options::METHOD, default_value_t = tune::DEFAULT_MAX_ROUNDS, value_parser = |text: &str| options::between(text, 1, fedsa::message::MAX_ROUNDS))]
    #[schemars(range(min = 1))]
    pub max_rounds: u64,
    /// Method whose link, start and output candidates get, if the experiment's methods differ
    #[arg(long, value_name = "LABEL", help_heading = options::METHOD)]
    pub like: Option<String>,
    /// Search time in seconds or with a unit (90s, 10m, 2h), estimated for one core, independent of the machine
    #[arg(long, value_name = "TIME", help_heading = options::METHOD, default_value = "60", value_parser = options::time)]
    pub budget: f64,
    /// Time limit by the clock; the answer then depends on the machine
    #[arg(long, value_name = "TIME", help_heading = options::METHOD, value_parser = options::time)]
    pub time_limit: Option<f64>,
}

impl Default for TuneSettings {
    fn default() -> Self {
        let mut settings: Self = options::parsed(&[("target_mse", "1")]);
        settings.target_mse = None;
        settings
    }
}

impl TuneSettings {
    /// The defaults for a target.
    pub fn new(target_mse: f64) -> Self {
        Self { target_mse: Some(target_mse), ..Self::default() }
    }

    /// The network, if latency or bandwidth is given.
    ///
    /// # Errors
    /// When a number is out of range.
    pub(super) fn network(&self) -> Result<Option<Network>> {
        Network::of(self.latency, self.bandwidth)
    }
}
