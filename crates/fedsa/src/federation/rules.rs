//! Rules for missing and faulty answers.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};

/// A server's rules for missing and faulty answers; the defaults are `Zero` and `End`.
///
/// Only the server uses them; a federation's hash does not cover them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AnswerRules {
    /// The value of missing answers.
    #[serde(default)]
    pub missing: MissingAnswers,
    /// The treatment of agents with faulty answers.
    #[serde(default)]
    pub faults: Faults,
}

impl AnswerRules {
    /// With this rule for missing answers.
    #[must_use]
    pub fn with_missing(self, missing: MissingAnswers) -> Self {
        Self { missing, ..self }
    }

    /// With this rule for faulty answers.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// Checks that the settings are in range.
    pub(super) fn check(&self) -> Result<()> {
        match self.faults {
            Faults::End => Ok(()),
            Faults::Exclude { norm_limit } => require(
                norm_limit > 1.0,
                "norm_limit",
                norm_limit,
                "a number above 1, or infinity to look at numbers that are not finite only",
            ),
        }
    }
}

/// The value of missing answers in the mean over the participants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MissingAnswers {
    /// Zero: the server divides the sum by all participants' weight. If answers arrive with probability q, the expected step is q times as
    /// long, and agents that answer more often weigh more.
    #[default]
    Zero,
    /// The mean of the others: the server divides the sum by the weight of the answers that arrived. The step keeps its length (0 without
    /// answers), is noisier, and favours agents that answer more often. Not for control variates that sum to zero, nor for links that
    /// deliver only sums.
    Reweighted,
}

/// The treatment of an agent whose answer is not finite, or far larger than the others'.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Faults {
    /// Answers count. If one is not finite, the iterates have diverged, and the federation ends.
    #[default]
    End,
    /// The agent is excluded ([`crate::coordinator::Coordinator::exclusions`]): this answer does not count, and it gets no more questions.
    /// If half of the agents would be excluded, none is, and `End` applies.
    ///
    /// An excluded agent counts as missing until it leaves the federation ([`crate::node::ServerNode::regrouped`]). Methods with control
    /// variates go on with the last value of its operator. Under methods that need the answers of all agents, theta no longer changes.
    ///
    /// Heterogeneous agents' directions differ by factors; only broken agents exceed a limit of 100 to 1,000.
    Exclude {
        /// The largest norm of a vector or matrix of an answer, relative to the usual norm; above 1. The usual norm is the larger of two
        /// medians: of the other answers (at least two), and the largest median so far in this exchange (of at least three answers). The
        /// second one is for agents that join late or are readmitted. Packed bytes have no norm.
        norm_limit: f64,
    },
}

impl AnswerRules {
    /// Whether the rules need single answers, not only their sum.
    pub(crate) fn need_single_answers(&self) -> bool {
        *self != Self::default()
    }
}
