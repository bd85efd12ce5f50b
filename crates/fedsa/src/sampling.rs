//! How an agent's operator is seen: its mean, independent samples, or one trajectory.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};

/// The law of an agent's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// No noise: `gbar_c(theta)` itself.
    Mean,
    /// Independent draws from the stationary law `pi_c`.
    #[default]
    Iid,
    /// One trajectory per agent.
    Markov,
}

/// Where a Markov trajectory starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChainStart {
    /// At a state drawn from the stationary law, per seed and agent.
    #[default]
    Stationary,
    /// At this state (a transition's index for logs).
    State(u32),
}

/// The `[sampling]` table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Sampling {
    /// mean, iid or markov.
    pub kind: Law,
    /// Each step averages this many samples.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = MAX_BATCH)))]
    pub batch: usize,
    /// Where Markov trajectories start: `"stationary"` or `{ state = 0 }`.
    pub start: ChainStart,
}

crate::settings::setters! { Sampling {
    with_kind(kind: Law) = kind;
    with_batch(batch: usize) = batch;
    with_start(start: ChainStart) = start;
} }

/// More samples a step than this are refused.
const MAX_BATCH: usize = 1_000_000;

impl Default for Sampling {
    fn default() -> Self {
        Self { kind: Law::Iid, batch: 1, start: ChainStart::Stationary }
    }
}

impl Sampling {
    /// # Errors
    /// When the batch is empty.
    pub fn check(&self) -> Result<()> {
        require((1..=MAX_BATCH).contains(&self.batch), "batch", self.batch, &format!("between 1 and {MAX_BATCH}"))
    }

    /// Samples a local step uses: none under the mean law.
    #[inline]
    pub fn samples_per_step(&self) -> usize {
        if self.kind == Law::Mean { 0 } else { self.batch }
    }
}
