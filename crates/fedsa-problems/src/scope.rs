//! Whether a part is drawn once for all agents, or once for each.

use serde::{Deserialize, Serialize};

use fedsa::random::ALL;

/// Whether a part is drawn once for all agents, or once for each.
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
    /// The agent whose stream is drawn from.
    pub fn of(self, c: usize) -> usize {
        if self == Scope::Shared { ALL } else { c }
    }
}
