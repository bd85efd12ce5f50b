//! Projected federated TD(0): FedLSA whose average is projected on a ball.
//!
//! ```text
//! round t:   as FedLSA, then  theta_{t+1} = R theta / ||theta||  wherever ||theta|| > R
//! ```
//! Source: Wang et al. 2023 (arXiv 2302.02212), the comparator of \[S\] and \[F\]. Their
//! analysis is around the root `theta~` of a virtual MDP with the agents' mean kernel
//! and rewards (\[S\] HTML eq. 265-266), which differs from `theta*`.

use fedsa::schedule::StepSize;
use serde::{Deserialize, Serialize};

use super::local_sa::{LocalSa, is_local_sa};
use super::one;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProjectedTd {
    /// Step size `eta`.
    pub step_size: StepSize,
    /// Local steps H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Radius R of the ball around 0.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub radius: f64,
    /// Server step `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

impl ProjectedTd {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize, radius: f64) -> Self {
        Self { step_size: step_size.into(), local_steps, radius, global_step_size: 1.0, participants: None }
    }
}

fedsa::settings::setters! { ProjectedTd {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_radius(radius: f64) = radius;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl ProjectedTd {
    fn rule(&self) -> LocalSa {
        let Self { step_size, local_steps, radius, global_step_size, participants } = *self;
        LocalSa { radius: Some(radius), ..LocalSa::new(step_size, local_steps, global_step_size, participants) }
    }
}

is_local_sa!(ProjectedTd);
