//! Estimates of values with their intervals.

use super::student::t_quantile;

/// The number of episodes below which an interval is rough.
pub const FEWEST_EPISODES: usize = 20;

/// An estimate with its interval. Unknown numbers are NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ValueEstimate {
    /// The value.
    pub estimate: f64,
    /// Its standard error.
    pub se: f64,
    /// The lower end of the interval `estimate -+ t se`. t is the quantile of Student's t, with one degree of freedom less than there
    /// are episodes.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The number of episodes with a start.
    pub episodes: usize,
    /// The effective number of episodes under importance ratios: `(sum w)^2 / sum w^2`.
    pub effective_episodes: f64,
}

impl ValueEstimate {
    /// An estimate from this number of episodes, with its interval.
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

/// An estimate for all start states, and for each agent's own start states, by the agent's name.
///
/// An agent's entry in `shared` is the value of its start states if it behaved as all agents do on average. If agents differ, this is
/// not the agent's value, and the interval does not cover it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EstimateTable {
    /// For all agents.
    pub all: ValueEstimate,
    /// For each agent from its own data, if it has at least [`FEWEST_EPISODES`] or no fitted value replaces the rest of truncated
    /// episodes.
    pub own: Vec<(String, ValueEstimate)>,
    /// For each agent under the weights fitted to all agents.
    pub shared: Vec<(String, ValueEstimate)>,
}

/// The method behind the standard error of a fitted value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntervalKind {
    /// First-order contributions of each episode to the value.
    Influence,
    /// Omission of each episode in turn.
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
    /// The method behind the standard error for all agents.
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
    /// The estimate for all agents without control variate and bootstrapping: `(1/n) sum_i sum_t gamma^t rho_{0:t} r_t`.
    pub plain: f64,
    /// The number of truncated episodes.
    pub cut: usize,
    /// The bootstrapped part of the estimate: `(1/n) sum_i gamma^T rho_{0:T-1} v(s_T)`. A relative error of v there is an error of the
    /// estimate by the same share of this part.
    pub bootstrapped: f64,
    /// With self-normalised weights, `rho_{0:t}` over its mean over episodes at step t: biased by O(1/n) and consistent, usually with
    /// less variance. An agent's weights are divided by the means over its own episodes. `None` without ratios, and with episodes of
    /// more than 16,384 steps.
    pub self_normalised: Option<EstimateTable>,
}
