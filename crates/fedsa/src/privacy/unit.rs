//! What differential privacy protects, and problems whose operators are means over clipped units.

use serde::{Deserialize, Serialize};

/// The data that cannot be told from other data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PrivacyUnit {
    /// All data of an agent.
    #[default]
    Agent,
    /// A row, or a transition of a log.
    Row,
    /// An episode of a log.
    Episode,
}

impl PrivacyUnit {
    /// The unit in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "all data of an agent",
            Self::Row => "a row or transition",
            Self::Episode => "an episode",
        }
    }
}

/// Shortens the part of each unit in the sums of a linear system, `(sum A_i, sum b_i)` over its rows, to a norm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnitClip {
    /// What is shortened: rows or episodes.
    pub unit: PrivacyUnit,
    /// C, the largest norm.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub norm: f64,
}

impl UnitClip {
    /// The factor that shortens a vector of this norm to the largest norm; not a number if the norm is none.
    pub fn factor(&self, norm: f64) -> f64 {
        if norm <= self.norm { 1.0 } else { self.norm / norm }
    }
}

/// An agent's linear system `(A_c, b_c)`: 1 / n times the sum over its units, each shortened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClippedUnits {
    /// How units are shortened.
    pub clip: UnitClip,
    /// n, the number of rows.
    pub rows: u64,
}
