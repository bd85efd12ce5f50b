//! `[federation]`: the server's settings in a federation of machines. Runs in one process ignore it.

use std::ops::RangeInclusive;

use fedsa::error::{Result, require};
use fedsa::federation::{AnswerRules, Faults, MissingAnswers};
use fedsa_evaluate::inference::CovarianceKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[federation]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Federation")]
#[non_exhaustive]
pub struct FederationSpec {
    /// The least number of agents with which the federation begins.
    #[schemars(range(min = 1))]
    pub agents: u64,
    /// The greatest number of agents, also of those that join later; `agents` by default.
    #[schemars(range(min = 1))]
    pub most: Option<u64>,
    /// Seconds of an exchange, after which answers are missing; and of the wait for `most` agents before round 0.
    #[schemars(range(min = 0))]
    pub deadline: f64,
    /// Answers that an exchange needs; all, if fewer agents are asked.
    pub least_answers: u64,
    /// Missing answers count as zero or as the others' mean.
    pub missing: MissingAnswers,
    /// Consecutive rounds without an answer after which an agent has left; never by default.
    #[schemars(range(min = 1))]
    pub leave_after: Option<u64>,
    /// Excludes agents whose answer is not finite, or has a norm above this multiple of the others' median. By default a non-finite answer
    /// ends the federation.
    #[schemars(range(min = 1))]
    pub norm_limit: Option<f64>,
    /// The largest share of the weight that one of several agents may have by its rows; 1 for any.
    #[schemars(range(min = 0, max = 1))]
    pub weight_cap: f64,
    /// The folder of the results on the server.
    pub out: String,
    /// Standard errors of a fit by this covariance, from sums that agents send after the last round; none by default.
    pub inference: Option<CovarianceKind>,
    /// Level of intervals.
    pub level: f64,
}

impl Default for FederationSpec {
    fn default() -> Self {
        Self {
            agents: 1,
            most: None,
            deadline: 300.0,
            least_answers: 1,
            missing: MissingAnswers::default(),
            leave_after: None,
            norm_limit: None,
            weight_cap: 0.9,
            out: "out".into(),
            inference: None,
            level: 0.95,
        }
    }
}

impl FederationSpec {
    pub(in crate::config) fn check(&self) -> Result<()> {
        require(self.agents >= 1, "agents", self.agents, "one agent or more")?;
        let most = self.most.unwrap_or(self.agents);
        require(most >= self.agents, "most", most, &format!("at least agents, {}", self.agents))?;
        require(self.deadline > 0.0 && self.deadline.is_finite(), "deadline", self.deadline, "seconds, above 0")?;
        let is_limit = self.norm_limit.is_none_or(|limit| limit > 1.0);
        require(is_limit, "norm_limit", self.norm_limit.unwrap_or_default(), "a number above 1")?;
        require(self.level > 0.0 && self.level < 1.0, "level", self.level, "a number between 0 and 1, such as 0.95")?;
        require(self.weight_cap > 0.0 && self.weight_cap <= 1.0, "weight_cap", self.weight_cap, "a share above 0, at most 1")?;
        require(self.leave_after != Some(0), "leave_after", 0, "one round or more")
    }

    /// The least and the greatest number of agents.
    pub fn range(&self) -> RangeInclusive<usize> {
        self.agents as usize..=self.most.unwrap_or(self.agents) as usize
    }

    /// How the server counts answers.
    pub fn rules(&self) -> AnswerRules {
        let faults = self.norm_limit.map_or(Faults::End, |norm_limit| Faults::Exclude { norm_limit });
        AnswerRules::default().with_missing(self.missing).with_faults(faults)
    }
}
