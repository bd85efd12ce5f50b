//! Secure sums: the server learns only the sum of what agents send ([`crate::secure`]).

use serde::{Deserialize, Serialize};

use super::{Act, LinkStage};
use crate::error::{Result, require};
use crate::secure::Grid;

/// Agents round what they send to a common grid and mask it; a second exchange of each question removes the masks from the sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SecureSum {
    /// Largest absolute number that an agent sends; larger ones are clipped and counted.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub bound: f64,
    /// Bits of each number of a sum, 8 to 50.
    #[serde(default = "default_bits")]
    #[cfg_attr(feature = "schema", schemars(range(min = 8, max = 50)))]
    pub bits: u32,
    /// Answers below which a sum stays unknown.
    #[serde(default = "default_least_agents")]
    #[cfg_attr(feature = "schema", schemars(range(min = 2)))]
    pub least_agents: usize,
}

fn default_bits() -> u32 {
    32
}

fn default_least_agents() -> usize {
    3
}

impl SecureSum {
    /// Sums of numbers in `[-bound, bound]` with 32 bits, of at least three agents.
    pub fn new(bound: f64) -> Self {
        Self { bound, bits: default_bits(), least_agents: default_least_agents() }
    }

    /// The grid for this number of agents.
    ///
    /// # Errors
    /// As [`Grid::new`].
    pub fn grid(&self, agents: usize) -> Result<Grid> {
        Grid::new(self.bits, self.bound, agents, 0.0)
    }
}

crate::settings::setters! { SecureSum {
    with_bits(bits: u32) = bits;
    with_least_agents(least_agents: usize) = least_agents;
} }

impl LinkStage for SecureSum {
    fn act(&self) -> Act<'_> {
        Act::Masks(self)
    }
    fn check(&self) -> Result<()> {
        require(self.least_agents >= 2, "least_agents", self.least_agents, "2 agents or more")?;
        self.grid(self.least_agents).map(|_| ())
    }
}
