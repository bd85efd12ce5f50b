//! Projected federated TD(0): FedLSA whose average is projected on a ball.
//!
//! ```text
//! round t:   as FedLSA, then  theta_{t+1} = R theta / ||theta||  wherever ||theta|| > R
//! ```
//! Source: Wang et al. 2023 (arXiv 2302.02212), the comparator of \[S\] and \[F\]. Their
//! analysis is around the root `theta~` of a virtual MDP with the agents' mean kernel
//! and rewards (\[S\] HTML eq. 265-266), which differs from `theta*`.

use serde::{Deserialize, Serialize};

use super::{Drift, Half, MethodSettings, MethodShape, Setting, averaging, check_common, fixed, one};
use crate::error::{Result, require};
use crate::local::Plain;
use crate::schedule::StepSize;
use crate::server::{Average, Server};

/// The settings of projected federated TD.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProjectedTd {
    /// `eta`.
    pub step_size: StepSize,
    /// H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::methods::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// The radius R of the ball around 0.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub radius: f64,
    /// `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// m of the N agents take part in a round; all when absent.
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

crate::settings::setters! { ProjectedTd {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_radius(radius: f64) = radius;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl MethodSettings for ProjectedTd {
    fn check(&self, agents: usize) -> Result<()> {
        require(self.radius > 0.0 && self.radius.is_finite(), "radius", self.radius, "a positive number")?;
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, self.local_steps) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let average = averaging(setting, fixed(self.step_size, self.local_steps), self.global_step_size, self.participants);
        Box::new(Average { radius: Some(self.radius), ..average })
    }

    fn shape(&self) -> MethodShape {
        MethodShape {
            drift: Drift::Zero,
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: self.global_step_size,
            participants: self.participants,
            is_linear: false,
        }
    }
}
