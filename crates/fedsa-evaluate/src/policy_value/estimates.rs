//! Estimates of values with their intervals.

use super::student::t_quantile;

/// The number of episodes below which an interval is rough.
pub const FEWEST_EPISODES: usize = 20;

/// An estimate with its interval. What is not known is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ValueEstimate {
    /// The value.
    pub estimate: f64,
    /// Its standard error.
    pub se: f64,
    /// The interval: `estimate -+ t se`, with the quantile of Student's t of one degree of freedom less than there are episodes.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The number of episodes with a start.
    pub episodes: usize,
    /// How many they are worth under importance ratios: `(sum w)^2 / sum w^2`.
    pub effective_episodes: f64,
}

impl ValueEstimate {
    /// An estimate from so many episodes, with its interval.
    pub fn new(estimate: f64, se: f64, episodes: usize, effective_episodes: f64, level: f64) -> Self {
        let wide = t_quantile(level, episodes as f64 - 1.0) * se;
        Self { estimate, se, low: estimate - wide, high: estimate + wide, episodes, effective_episodes }
    }

    /// `self - other` of independent estimates, with the degrees of freedom of Welch and Satterthwaite.
    #[must_use]
    pub fn minus(&self, other: &Self, level: f64) -> Self {
        let (a, b) = (self.se * self.se, other.se * other.se);
        let part = |square: f64, n: usize| square * square / (n as f64 - 1.0);
        let freedom = (a + b).powi(2) / (part(a, self.episodes) + part(b, other.episodes));
        let (estimate, se) = (self.estimate - other.estimate, (a + b).sqrt());
        let wide = if se == 0.0 { 0.0 } else { t_quantile(level, freedom) * se };
        Self {
            estimate,
            se,
            low: estimate - wide,
            high: estimate + wide,
            episodes: self.episodes.min(other.episodes),
            effective_episodes: self.effective_episodes.min(other.effective_episodes),
        }
    }
}

/// An estimate for all start states, and for those of each agent that has some, by the agent's name.
///
/// What `shared` has of an agent is the value of its start states where it behaves as all agents do on average. Where agents differ it is not
/// the agent's value, and its interval does not cover that.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EstimateTable {
    /// Of all agents.
    pub all: ValueEstimate,
    /// Of each agent by its own data: where it has at least [`FEWEST_EPISODES`], or where no fitted value stands for what was cut short.
    pub own: Vec<(String, ValueEstimate)>,
    /// Of each under the weights that are fitted to all agents.
    pub shared: Vec<(String, ValueEstimate)>,
}

/// How the standard error of a fitted value was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalKind {
    /// By what each episode contributes to the value in the first order.
    Influence,
    /// By leaving out each episode in turn.
    Jackknife,
}

/// The value from fitted values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FittedValue {
    /// The estimates.
    pub table: EstimateTable,
    /// The own weights of the agents with an own value, d numbers each.
    pub own_weights: Vec<(String, Vec<f64>)>,
    /// How the standard error of all was found.
    pub interval: IntervalKind,
    /// The mean features of the start states, d numbers.
    pub start: Vec<f64>,
}

/// The value by weighted returns.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WeightedValue {
    /// The estimates.
    pub table: EstimateTable,
    /// The estimate of all without control variate: `(1/n) sum_i sum_t gamma^t rho_{0:t} r_t`. Nothing is bootstrapped in it.
    pub plain: f64,
    /// The number of episodes that were cut short.
    pub cut: usize,
    /// What is bootstrapped there, as a part of the estimate: `(1/n) sum_i gamma^T rho_{0:T-1} v(s_T)`. An error of v there, as a share of
    /// v, is an error of the estimate by this share of it.
    pub bootstrapped: f64,
    /// With self-normalised weights, `rho_{0:t}` over its mean over episodes at step t: biased by O(1/n) and consistent, usually of less
    /// variance. An agent's weights are divided by the means of its own. `None` without ratios, and with episodes of more than 16,384 steps.
    pub self_normalised: Option<EstimateTable>,
}
