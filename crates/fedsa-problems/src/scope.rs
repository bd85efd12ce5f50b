//! The scope of random parts: shared by all agents, or drawn per agent.

use serde::{Deserialize, Serialize};

use fedsa::random::ALL;

/// Whether agents share a random part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// One for all agents.
    #[default]
    Shared,
    /// One per agent.
    PerAgent,
}

impl Scope {
    /// The agent whose random stream draws the part for agent `c`.
    pub fn of(self, c: usize) -> usize {
        if self == Scope::Shared { ALL } else { c }
    }
}
