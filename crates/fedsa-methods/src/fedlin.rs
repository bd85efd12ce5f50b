//! FedLin: FedHSA whose first local step draws a separate sample.
//!
//! ```text
//! round t:   G           = sum_c p_c g_c(theta_t, z_{c,0})                       (first exchange)
//!            theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1}
//!                        + eta (g_c(theta_{c,h-1}, z_{c,h}) + G - g_c(theta_t, z_{c,0})),   h = 1..H
//!            theta_{t+1} = theta_t + alpha_g sum_c p_c (theta_{c,H} - theta_t)   (second exchange)
//! ```
//! Source: Mitra, Jaafar, Pappas, Hassani, "Linear convergence in federated learning", NeurIPS 2021, Algorithm 1, with the samples of
//! \[F\]. Only the correction uses the sample `z_{c,0}`: H + 1 samples per round, against H of [`super::fedhsa`]. Along a Markov chain
//! `z_{c,0}` comes before `z_{c,1}, .., z_{c,H}`.
//!
//! Without noise it equals FedHSA bit for bit, and with noise the mean of a round is FedHSA's. The mean square differs: in FedHSA's first
//! step the sample and the correction cancel, and all agents step along G. In FedLin they do not cancel, and agents that differ turn the
//! difference of the two samples into noise of second order in eta. With H = 1, or if all `A_c` are one multiple of I, the corrections
//! cancel in the mean over agents, and both agree in law. With N = 1 it is Local SA on `z_{c,1}, .., z_{c,H}`, since G is then the agent's
//! own correction.

use fedsa::error::Result;
use fedsa::local::Client;
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::protocol::Protocol;
use fedsa::schedule::StepSize;
use fedsa::server::Server;
use serde::{Deserialize, Serialize};

use super::fedhsa::{FedHsa, Missing};
use crate::local::GlobalMemory;
use crate::{fixed, one};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FedLin {
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

fedsa::settings::setters! { FedLin {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl FedLin {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self { step_size: step_size.into(), local_steps, global_step_size: 1.0, participants: None }
    }

    /// FedHSA with the same settings.
    fn fedhsa(&self) -> FedHsa {
        let Self { step_size, local_steps, global_step_size, participants } = *self;
        FedHsa { step_size, local_steps, global_step_size, participants, missing: Missing::Zero, correction_batch: 1 }
    }
}

impl MethodSettings for FedLin {
    fn check(&self, agents: usize) -> Result<()> {
        self.fedhsa().check(agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        self.fedhsa().protocol(setting)
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(GlobalMemory { steps: fixed(self.step_size, self.local_steps), fresh: 1 })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        self.fedhsa().server(setting)
    }

    fn shape(&self) -> MethodShape {
        MethodShape { drift: Drift::GlobalMemory { fresh: 1 }, ..self.fedhsa().shape() }
    }
}
