//! FedHSA: each agent steps along the mean operator, corrected by its own drift since the round's start.
//!
//! ```text
//! round t:   G           = sum_c p_c g_c(theta_t, z_{c,0})                       (first exchange)
//!            theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1}
//!                        + eta (g_c(theta_{c,h-1}, z_{c,h-1}) + G - g_c(theta_t, z_{c,0})),   h = 1..H
//!            theta_{t+1} = theta_t + alpha_g sum_c p_c (theta_{c,H} - theta_t)   (second exchange)
//! ```
//! Source: \[F\] eq. 10-11. The first local step and the correction use the same sample `z_{c,0}`: H samples per round. Two exchanges per
//! round with the same participants. With `correction_batch = B` an agent's operator is the mean of B samples, and the first step draws
//! another: at long rounds the noise of the correction, repeated in H steps, moves the limit of nonlinear operators. No heterogeneity bias
//! (\[F\] Theorems 1, 2); with N = 1 it is Local SA.

use fedsa::error::{Result, require};
use fedsa::local::Client;
use fedsa::method::{Drift, MethodSettings, MethodShape, MissingUpdate, Setting};
use fedsa::protocol::{Gather, Protocol};
use fedsa::schedule::StepSize;
use fedsa::server::Server;
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use crate::local::GlobalMemory;
use crate::server::Average;
use crate::{averaging, check_common, fixed, one};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FedHsa {
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
    /// Value of a missing operator.
    #[serde(default)]
    pub missing: Missing,
    /// Samples of an agent's operator. With more than one the first local step draws its own sample.
    #[serde(default = "one_sample")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub correction_batch: usize,
}

fn one_sample() -> usize {
    1
}

fedsa::settings::setters! { FedHsa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_missing(missing: Missing) = missing;
    with_correction_batch(correction_batch: usize) = correction_batch;
} }

/// The value of a lost operator in G.
///
/// Zero gives `E G = p mean g` over a link that delivers with probability p. Rounds are slower, and at `theta*`, where operators only
/// cancel together, G is noise. `last` stores each agent's last operator, N d numbers at the server. Without sampling noise, FedHSA then
/// reaches `theta*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Missing {
    /// Zero (\[T\] eq. 4.3).
    #[default]
    Zero,
    /// The agent's last arrived operator; zero before.
    Last,
}

impl FedHsa {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self {
            step_size: step_size.into(),
            local_steps,
            global_step_size: 1.0,
            participants: None,
            missing: Missing::Zero,
            correction_batch: 1,
        }
    }

    /// Samples of an operator that the first local step does not use.
    fn fresh(&self) -> usize {
        if self.correction_batch > 1 { self.correction_batch } else { 0 }
    }
}

impl MethodSettings for FedHsa {
    fn check(&self, agents: usize) -> Result<()> {
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)?;
        let most = crate::MAX_LOCAL_STEPS;
        require((1..=most).contains(&self.correction_batch), "correction_batch", self.correction_batch, &format!("between 1 and {most}"))
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let gather = if self.missing == Missing::Last { Gather::Each } else { Gather::Sum };
        Protocol::operators_then_directions(setting.start.len(), gather)
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(GlobalMemory { steps: fixed(self.step_size, self.local_steps), fresh: self.fresh() })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let kept = if self.missing == Missing::Last { setting.agents() } else { 0 };
        Box::new(Average {
            operators_first: true,
            table_rounds: vec![-1.0; kept],
            table: (self.missing == Missing::Last).then(|| vec![0.0; setting.agents() * setting.start.len()]),
            weights: setting.weights.to_vec(),
            ..averaging(setting, fixed(self.step_size, self.local_steps), self.global_step_size, self.participants)
        })
    }

    fn lost(&self, _: usize, _: &LinkFacts) -> MissingUpdate {
        if self.missing == Missing::Last { MissingUpdate::Last } else { MissingUpdate::Zero }
    }

    fn shape(&self) -> MethodShape {
        MethodShape {
            drift: Drift::GlobalMemory { fresh: self.fresh() },
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: self.global_step_size,
            participants: self.participants,
            is_linear: true,
        }
    }
}
