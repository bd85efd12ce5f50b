//! How an agent samples its operator: the mean, independent samples, or one trajectory.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};

/// The law of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// No noise: `gbar_c(theta)` itself.
    Mean,
    /// Independent, from the stationary law `pi_c`.
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
    /// Drawn from the stationary law, per seed and agent.
    #[default]
    Stationary,
    /// This state (for logs, the index of a transition).
    State(u32),
}

/// The `[sampling]` table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Sampling {
    /// The law of samples.
    pub kind: Law,
    /// Samples averaged per step.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = MAX_BATCH)))]
    pub batch: usize,
    /// Start of Markov trajectories: `"stationary"` or `{ state = 0 }`.
    pub start: ChainStart,
}

crate::settings::setters! { Sampling {
    with_kind(kind: Law) = kind;
    with_batch(batch: usize) = batch;
    with_start(start: ChainStart) = start;
} }

/// Largest number of samples per step.
const MAX_BATCH: usize = 1_000_000;

impl Default for Sampling {
    fn default() -> Self {
        Self { kind: Law::Iid, batch: 1, start: ChainStart::Stationary }
    }
}

impl Sampling {
    /// # Errors
    /// When `batch` is not in 1..=1,000,000.
    pub fn check(&self) -> Result<()> {
        require((1..=MAX_BATCH).contains(&self.batch), "batch", self.batch, &format!("between 1 and {MAX_BATCH}"))
    }

    /// Samples per local step: 0 under the mean law.
    #[inline]
    pub fn samples_per_step(&self) -> usize {
        if self.kind == Law::Mean { 0 } else { self.batch }
    }
}
