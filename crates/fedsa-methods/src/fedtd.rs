//! Federated TD over channels: one direction per agent and round.
//!
//! ```text
//! round k:   g_i = g_i(theta_k, o_{i,k})                        (sent, H = 1)
//!            theta_{k+1} = theta_k + alpha v_k
//! ```
//! The link turns the mean into `v_k`: `(1/N) sum b_i Q(g_i)` (QFedTD, \[T\] eq. 4.3), `(1/N) sum h_i g_i + w` (OAC-FedTD, \[T\] eq. 4.4),
//! directions at stale models (AsyncFedTD, \[T\] eq. 4.7), or the plain mean (vanilla). This is FedLSA with H = 1 over that link.

use fedsa::schedule::StepSize;
use serde::{Deserialize, Serialize};

use super::local_sa::{LocalSa, is_local_sa};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FedTd {
    /// Step size `alpha`.
    pub step_size: StepSize,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

impl FedTd {
    /// With all agents.
    pub fn new(step_size: impl Into<StepSize>) -> Self {
        Self { step_size: step_size.into(), participants: None }
    }
}

fedsa::settings::setters! { FedTd {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl FedTd {
    /// FedLSA with H = 1.
    fn rule(&self) -> LocalSa {
        LocalSa::new(self.step_size, 1, 1.0, self.participants)
    }
}

is_local_sa!(FedTd);
