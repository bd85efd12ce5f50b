//! Delayed stochastic approximation, plain and delay-adaptive.
//!
//! ```text
//! plain:      theta_{t+1} = theta_t + alpha g(theta_{t - tau_t}, o_{t - tau_t})        \[T\] eq. 5.4
//! adaptive:   the same, only if ||theta_t - theta_{t - tau_t}|| <= eps, eps = alpha    Adibi et al. 2024
//! DASA:       of N directions those of the half of the agents whose models are nearest to
//!             theta_k, none if the median distance exceeds eps                         Dal Fabbro et al. 2024
//! ```
//! The delay is a medium of the method's uplink (`delay` or `late`). With a constant delay and
//! `before = "nothing"` theta stays at theta_0 for t < tau (\[T\] eq. 5.8). Theorem 5.3's output
//! is `output = { weighted = q }` with `q = 1 - alpha mu / 2`. With N agents the plain rule
//! averages directions, the adaptive one counts those that are too old as zero.
//!
//! Beyond the sources: H local steps, so that a direction is `(theta_{c,H} - theta_t) / (H alpha)` at the model that it
//! answers, a global step `theta += alpha_g H alpha v`, and m of the N agents a round.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Drift, Half, MethodSettings, MethodShape, Setting, averaging, check_common, fixed, one};
use crate::error::{Result, require};
use crate::local::Plain;
use crate::protocol::{Give, Protocol};
use crate::schedule::StepSize;
use crate::server::adaptive::{Adaptive, NearRule};
use crate::server::{Participation, Server};

/// The settings of delayed SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DelayedSa {
    /// `alpha`.
    pub step_size: StepSize,
    /// H.
    #[serde(default = "one_step", skip_serializing_if = "is_one_step")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::methods::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// `alpha_g`.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// m of the N agents take part in a round; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

crate::settings::setters! { DelayedSa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl MethodSettings for DelayedSa {
    fn check(&self, agents: usize) -> Result<()> {
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, self.local_steps) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(averaging(setting, fixed(self.step_size, self.local_steps), self.global_step_size, self.participants))
    }

    fn shape(&self) -> MethodShape {
        self.rule().shape(true)
    }
}

/// The settings of delay-adaptive SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DelayAdaptiveSa {
    /// `alpha`.
    pub step_size: StepSize,
    /// H.
    #[serde(default = "one_step", skip_serializing_if = "is_one_step")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::methods::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// `alpha_g`.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// m of the N agents take part in a round; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
    /// `eps`; the (first) step size when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub threshold: Option<f64>,
}

crate::settings::setters! { DelayAdaptiveSa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_threshold(threshold: impl Into<Option<f64>>) = threshold.into();
} }

impl MethodSettings for DelayAdaptiveSa {
    fn check(&self, agents: usize) -> Result<()> {
        check_threshold(self.threshold)?;
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::directions(setting.start.len(), Give::Each)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, self.local_steps) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        self.rule().adaptive(setting, self.threshold, NearRule::EachNear)
    }

    fn shape(&self) -> MethodShape {
        self.rule().shape(false)
    }
}

/// The settings of DASA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Dasa {
    /// `alpha`.
    pub step_size: StepSize,
    /// H.
    #[serde(default = "one_step", skip_serializing_if = "is_one_step")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::methods::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// `alpha_g`.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// m of the N agents take part in a round; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
    /// `eps`; the (first) step size when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub threshold: Option<f64>,
}

crate::settings::setters! { Dasa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_threshold(threshold: impl Into<Option<f64>>) = threshold.into();
} }

impl MethodSettings for Dasa {
    fn check(&self, agents: usize) -> Result<()> {
        check_threshold(self.threshold)?;
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::directions(setting.start.len(), Give::Each)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, self.local_steps) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        self.rule().adaptive(setting, self.threshold, NearRule::NearestHalf)
    }

    fn shape(&self) -> MethodShape {
        self.rule().shape(false)
    }
}

fn check_threshold(threshold: Option<f64>) -> Result<()> {
    require(threshold.is_none_or(|eps| eps > 0.0), "threshold", threshold.unwrap_or(0.0), "a positive distance")
}

/// What the three rules share.
#[derive(Clone, Copy)]
struct Rule {
    step_size: StepSize,
    local_steps: usize,
    global_step_size: f64,
    participants: Option<usize>,
}

impl Rule {
    fn shape(self, is_linear: bool) -> MethodShape {
        MethodShape {
            drift: Drift::Zero,
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: self.global_step_size,
            participants: self.participants,
            is_linear,
        }
    }

    fn adaptive(self, setting: &Setting<'_>, threshold: Option<f64>, choice: NearRule) -> Box<dyn Server> {
        Box::new(Adaptive {
            theta: setting.start.clone(),
            steps: fixed(self.step_size, self.local_steps),
            alpha_g: self.global_step_size,
            participation: Participation { m: self.participants, agents: setting.agents(), seed: setting.seed },
            threshold: threshold.unwrap_or(self.step_size.largest()),
            choice,
            reach: setting.link.stale.or(setting.link.late).unwrap_or(0),
            models: VecDeque::new(),
            first: 0,
        })
    }
}

/// The rule of each kind's settings, and a constructor with the defaults of the sources.
macro_rules! rule {
    ($kind:ident $(, $threshold:ident)?) => {
        impl $kind {
            /// As in the source: H = 1, `alpha_g = 1`, all agents.
            pub fn new(step_size: impl Into<StepSize>) -> Self {
                Self { step_size: step_size.into(), local_steps: 1, global_step_size: 1.0, participants: None $(, $threshold: None)? }
            }

            fn rule(&self) -> Rule {
                let Self { step_size, local_steps, global_step_size, participants, .. } = *self;
                Rule { step_size, local_steps, global_step_size, participants }
            }
        }
    };
}

rule!(DelayedSa);
rule!(DelayAdaptiveSa, threshold);
rule!(Dasa, threshold);

fn one_step() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_one_step(h: &usize) -> bool {
    *h == 1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_one(x: &f64) -> bool {
    *x == 1.0
}
