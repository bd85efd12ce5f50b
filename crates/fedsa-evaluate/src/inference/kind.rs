//! The covariances of estimates.

use serde::{Deserialize, Serialize};

/// The covariance behind standard errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CovarianceKind {
    /// From the model: correct if the family's variance is.
    #[default]
    Model,
    /// HC0: for independent rows with any variances.
    Sandwich,
    /// HC1: the sandwich times n / (n - p).
    Hc1,
    /// By agents: for dependent rows of independent agents.
    Clustered,
}

impl CovarianceKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Model, Self::Sandwich, Self::Hc1, Self::Clustered];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Sandwich => "sandwich",
            Self::Hc1 => "hc1",
            Self::Clustered => "clustered",
        }
    }
}
