//! `[federation]`: how the ends of a federation of machines wait for each other. A run in one process does not look at it.

use fedsa::error::{Result, require};
use fedsa::federation::{AnswerRules, Faults, MissingAnswers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[federation]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Federation")]
#[non_exhaustive]
pub struct FederationSpec {
    /// The seconds for which the server waits for agents before the first round.
    #[schemars(range(min = 0))]
    pub connect: f64,
    /// The seconds of an exchange; answers that have not come by then are missing, or late over a link with `law = "network"`.
    #[schemars(range(min = 0))]
    pub deadline: f64,
    /// How many answers an exchange needs, or all where fewer are asked.
    pub least_answers: u64,
    /// The share of the weight of the agents that were asked, whose answers an exchange needs.
    #[schemars(range(min = 0, max = 1))]
    pub least_share: f64,
    /// How often agents are asked again where an exchange has too few answers; then the round is given up, which changes nothing.
    pub repeats: u64,
    /// What a missing answer counts as: zero, which shortens the step, or the mean of the others, which methods whose control variates must
    /// sum to zero cannot have.
    pub missing: MissingAnswers,
    /// Agents are excluded whose answers are no longer finite, or have a norm above this many times the median of the others'; by default
    /// answers are believed, and the federation ends where an agent's numbers are no longer finite.
    #[schemars(range(min = 1))]
    pub norm_limit: Option<f64>,
    /// Agents are excluded whose LIBSVM rows end with a column more than this many times as far as those of most agents, where three or more have
    /// come: the model would be made of columns that nobody else has.
    #[schemars(range(min = 1))]
    pub width_limit: f64,
    /// After so many rounds in a row without an answer, although it was asked or could not be reached, an agent has left for good; by
    /// default only those leave that say so.
    #[schemars(range(min = 1))]
    pub leave_after: Option<u64>,
    /// The seconds for which the server waits between two rounds for applications of agents that come later.
    #[schemars(range(min = 0))]
    pub invite: f64,
    /// The most rounds by which a question may be ahead of the last one that an agent accepted; by default any number.
    #[schemars(range(min = 1))]
    pub longest_gap: Option<u64>,
}

impl Default for FederationSpec {
    fn default() -> Self {
        Self {
            connect: 60.0,
            deadline: 300.0,
            least_answers: 1,
            least_share: 0.0,
            repeats: 1,
            missing: MissingAnswers::default(),
            norm_limit: None,
            width_limit: 100.0,
            leave_after: None,
            invite: 20.0,
            longest_gap: None,
        }
    }
}

impl FederationSpec {
    pub(in crate::config) fn check(&self) -> Result<()> {
        require(self.connect >= 0.0 && self.connect.is_finite(), "connect", self.connect, "seconds, at least 0")?;
        require(self.deadline > 0.0 && self.deadline.is_finite(), "deadline", self.deadline, "seconds, above 0")?;
        require(self.invite >= 0.0 && self.invite.is_finite(), "invite", self.invite, "seconds, at least 0")?;
        require((0.0..=1.0).contains(&self.least_share), "least_share", self.least_share, "a share of the weights, in [0, 1]")?;
        let is_limit = self.norm_limit.is_none_or(|limit| limit > 1.0);
        require(is_limit, "norm_limit", self.norm_limit.unwrap_or_default(), "a number above 1")?;
        require(self.width_limit >= 1.0 && self.width_limit.is_finite(), "width_limit", self.width_limit, "a number of at least 1")?;
        require(self.leave_after != Some(0), "leave_after", 0, "one round or more")?;
        require(self.longest_gap != Some(0), "longest_gap", 0, "one round or more")
    }

    /// How the server counts answers.
    pub fn rules(&self) -> AnswerRules {
        let faults = self.norm_limit.map_or(Faults::End, |norm_limit| Faults::Exclude { norm_limit });
        AnswerRules::default().with_missing(self.missing).with_faults(faults)
    }
}
