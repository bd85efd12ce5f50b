//! FedLSA, also called Local SA or, for TD operators, federated TD learning.
//!
//! ```text
//! round t:   theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1} + eta g_c(theta_{c,h-1}, z_{c,h}),   h = 1..H
//!            v_c         = (theta_{c,H} - theta_t) / (eta H)                  (sent)
//!            theta_{t+1} = theta_t + alpha_g eta H  sum_c p_c v_c
//! ```
//! Source: \[S\] Algorithm 1 and 5, \[F\] eq. 8-9. One exchange per round, d numbers each way. With H > 1 and agents that differ it
//! converges to a point other than `theta*` (`fedsa_theory`, `(I - Gbar)^-1 rho_H` away).

use fedsa::schedule::StepSize;
use serde::{Deserialize, Serialize};

use super::local_sa::{LocalSa, is_local_sa};
use super::one;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FedLsa {
    /// Step size `eta`.
    pub step_size: StepSize,
    /// Local steps H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Server step `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

fedsa::settings::setters! { FedLsa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl FedLsa {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self { step_size: step_size.into(), local_steps, global_step_size: 1.0, participants: None }
    }
}

impl FedLsa {
    fn rule(&self) -> LocalSa {
        LocalSa::new(self.step_size, self.local_steps, self.global_step_size, self.participants)
    }
}

is_local_sa!(FedLsa);
