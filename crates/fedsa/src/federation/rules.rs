//! How a server counts answers that are missing or that nobody should believe.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};

/// How the server of a federation counts answers. By default missing answers count as zero, and no agent is excluded.
///
/// Only the server follows these rules: agents need not know them, and the hash of a federation does not cover them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AnswerRules {
    /// What a missing answer counts as.
    #[serde(default)]
    pub missing: MissingAnswers,
    /// What becomes of agents whose answers nobody should believe.
    #[serde(default)]
    pub faults: Faults,
}

impl AnswerRules {
    /// With this rule for missing answers.
    #[must_use]
    pub fn with_missing(self, missing: MissingAnswers) -> Self {
        Self { missing, ..self }
    }

    /// With this rule for agents whose answers nobody should believe.
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

/// How missing answers count in the mean over the agents that were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MissingAnswers {
    /// As zero: the sum over the answers is divided by the weight of all agents that were asked. If answers are lost with probability 1 -
    /// q, the expected step is q times as long. Agents that answer more often weigh more.
    #[default]
    Zero,
    /// As the mean of the others: the sum is divided by the weight of the answers that arrived. The step keeps its length, is noisier, and
    /// leans towards agents that answer more often. Without any answer it is zero. Methods whose control variates sum to zero and links
    /// that deliver only sums cannot have this rule.
    Reweighted,
}

/// What becomes of an agent whose answer nobody should believe, although it is authentic: its numbers are no longer finite, or far larger
/// than those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Faults {
    /// Answers are believed. Where an agent's numbers are no longer finite, the iterates have diverged, and the federation ends.
    #[default]
    End,
    /// The agent is excluded, with the reason ([`crate::coordinator::Coordinator::exclusions`]): this answer does not count, and it is asked
    /// nothing more. If half of the agents would be excluded, it is not the agents who are at fault, and the federation ends as under
    /// `end`.
    ///
    /// An agent that is excluded counts as missing. Methods with control variates then go on as if its operator stayed at its last value,
    /// and methods that wait for the answers of all stand still, until it leaves the federation
    /// ([`crate::node::ServerNode::regrouped`]).
    ///
    /// Agents that differ need a large limit: their directions differ by factors. 100 to 1,000 is a limit that only broken agents exceed.
    Exclude {
        /// The largest norm of a vector or matrix of an answer, relative to the usual one; above 1. That is the larger of two medians: of
        /// the norms of the other answers, of which there must be two, and the largest median of all answers to this exchange so far, in
        /// which there were three. Directions of methods with control variates shrink without a bound, and an agent that joins later, or
        /// is readmitted, begins where the others began. Bytes that a method packs itself have no norm.
        norm_limit: f64,
    },
}

impl AnswerRules {
    /// Whether the rules look at single answers, of which a sum is then not enough.
    pub(crate) fn need_single_answers(&self) -> bool {
        *self != Self::default()
    }
}
