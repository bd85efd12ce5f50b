//! What a tuning is asked for.

use fedsa_theory::cost::{Goal, Network};
use fedsa_theory::tune::{self};
use serde::Serialize;

use crate::made;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TuneOptions {
    /// The mean-square error to reach.
    pub target_mse: f64,
    /// What is minimised. Seconds are those of messages, and need `network`.
    pub objective: Goal,
    /// What messages take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The kinds of methods that may be chosen; by default `fedlsa`, `scafflsa`, `fedhsa`, and those of the file with a step size.
    pub methods: Vec<String>,
    /// The codecs of the uplink that may be chosen, such as `quantised:4`; the file's by default, and `auto` for a list of usual ones.
    pub codecs: Vec<String>,
    /// H, if it is given.
    pub local_steps: Option<Vec<u64>>,
    /// The most local steps.
    pub max_local_steps: u64,
    /// The most rounds.
    pub max_rounds: u64,
    /// The label of the file's method whose link, start and output are those of all candidates; by default all methods must agree.
    pub like: Option<String>,
    /// The time that the search may take, in seconds on one core: of theory by counted multiplications, of pilots as
    /// [`crate::estimate`] counts it.
    pub budget: f64,
    /// The most seconds by the clock, if there is a limit: the search then ends with the best so far, which depends on the machine. Its
    /// pilots are those of the same tuning without a limit.
    #[serde(skip)]
    pub time_limit: Option<f64>,
}

impl TuneOptions {
    /// The defaults, for a target.
    pub fn new(target_mse: f64) -> Self {
        Self {
            target_mse,
            objective: Goal::Bits,
            network: None,
            methods: Vec::new(),
            codecs: Vec::new(),
            local_steps: None,
            max_local_steps: tune::MOST_LOCAL_STEPS,
            max_rounds: tune::MOST_ROUNDS,
            like: None,
            budget: 60.0,
            time_limit: None,
        }
    }
}

made::with! { TuneOptions:
    /// The same with another cost that is minimised.
    with_objective(objective: Goal) = objective;
    /// The same on a network on which messages take this.
    with_network(network: Network) = Some(network);
    /// The same with these kinds of methods.
    with_methods(methods: Vec<String>) = methods;
    /// The same with these codecs.
    with_codecs(codecs: Vec<String>) = codecs;
    /// The same with these numbers of local steps, one of which is chosen.
    with_local_steps(local_steps: Vec<u64>) = Some(local_steps);
    /// The same with at most this many local steps.
    with_max_local_steps(max_local_steps: u64) = max_local_steps;
    /// The same with at most this many rounds.
    with_max_rounds(max_rounds: u64) = max_rounds;
    /// The same with the link, the start and the output of the method with this label.
    with_like(like: impl Into<String>) = Some(like.into());
    /// The same with another budget, in seconds.
    with_budget(budget: f64) = budget;
    /// The same with at most this many seconds by the clock.
    with_time_limit(time_limit: f64) = Some(time_limit);
}
