//! `[federation]`: timeouts and rules for answers in a federation of machines. Runs in one process ignore it.

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
    /// Seconds of waiting for agents before round 0.
    #[schemars(range(min = 0))]
    pub connect: f64,
    /// Seconds of an exchange. Later answers are missing, or late over a link with `law = "network"`.
    #[schemars(range(min = 0))]
    pub deadline: f64,
    /// Answers that an exchange needs; all, if fewer agents are asked.
    pub least_answers: u64,
    /// Share of the asked agents' weight that an exchange needs.
    #[schemars(range(min = 0, max = 1))]
    pub least_share: f64,
    /// Repetitions of an exchange with too few answers; then the round changes nothing.
    pub repeats: u64,
    /// Missing answers count as zero or as the others' mean.
    pub missing: MissingAnswers,
    /// Excludes agents whose answer is not finite, or has a norm above this multiple of the others' median. By default a non-finite answer
    /// ends the federation.
    #[schemars(range(min = 1))]
    pub norm_limit: Option<f64>,
    /// Excludes agents whose last LIBSVM column is more than this many times as large as most agents', if three or more have come.
    #[schemars(range(min = 1))]
    pub width_limit: f64,
    /// Consecutive rounds without an answer after which an agent has left; never by default.
    #[schemars(range(min = 1))]
    pub leave_after: Option<u64>,
    /// Seconds of waiting for new agents between rounds.
    #[schemars(range(min = 0))]
    pub invite: f64,
    /// The most rounds by which a question may be ahead of the last one that an agent accepted; no limit by default.
    #[schemars(range(min = 1))]
    pub longest_gap: Option<u64>,
    /// Standard errors of a fit by this covariance, from sums that agents send after the last round; none by default.
    pub inference: Option<CovarianceKind>,
    /// Level of intervals.
    pub level: f64,
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
            inference: None,
            level: 0.95,
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
        require(self.level > 0.0 && self.level < 1.0, "level", self.level, "a number between 0 and 1, such as 0.95")?;
        require(self.leave_after != Some(0), "leave_after", 0, "one round or more")?;
        require(self.longest_gap != Some(0), "longest_gap", 0, "one round or more")
    }

    /// How the server counts answers.
    pub fn rules(&self) -> AnswerRules {
        let faults = self.norm_limit.map_or(Faults::End, |norm_limit| Faults::Exclude { norm_limit });
        AnswerRules::default().with_missing(self.missing).with_faults(faults)
    }
}
