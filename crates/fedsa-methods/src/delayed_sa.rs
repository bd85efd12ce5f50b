//! Delayed stochastic approximation, plain and delay-adaptive.
//!
//! ```text
//! plain:      theta_{t+1} = theta_t + alpha g(theta_{t - tau_t}, o_{t - tau_t})        \[T\] eq. 5.4
//! adaptive:   the same, only if ||theta_t - theta_{t - tau_t}|| <= eps, eps = alpha    Adibi et al. 2024
//! DASA:       of N directions, the half with the models nearest to theta_k;
//!             none if the median distance exceeds eps                                  Dal Fabbro et al. 2024
//! ```
//! The delay is a medium of the method's uplink (`delay` or `late`). With a constant delay and `before = "nothing"`, theta stays at theta_0
//! for t < tau (\[T\] eq. 5.8). The output of Theorem 5.3 is `output = { weighted = q }` with `q = 1 - alpha mu / 2`. With N agents the
//! plain rule averages directions; the adaptive rule counts directions that are too old as zero.
//!
//! Beyond the sources: H local steps, with the direction `(theta_{c,H} - theta_t) / (H alpha)` at the model that it answers, a global step
//! `theta += alpha_g H alpha v`, and m of the N agents per round.

use fedsa::schedule::StepSize;
use serde::{Deserialize, Serialize};

use super::local_sa::{LocalSa, is_local_sa};
use super::one;
use crate::server::adaptive::NearRule;

/// The settings of delayed SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DelayedSa {
    /// Step size `alpha`.
    pub step_size: StepSize,
    /// Local steps H; 1 by default.
    #[serde(default = "one_step", skip_serializing_if = "is_one_step")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Server step `alpha_g`; 1 by default.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

fedsa::settings::setters! { DelayedSa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

/// The settings of delay-adaptive SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DelayAdaptiveSa {
    /// Step size `alpha`.
    pub step_size: StepSize,
    /// Local steps H; 1 by default.
    #[serde(default = "one_step", skip_serializing_if = "is_one_step")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Server step `alpha_g`; 1 by default.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
    /// Largest model distance `eps`; the first step size by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub threshold: Option<f64>,
}

fedsa::settings::setters! { DelayAdaptiveSa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_threshold(threshold: impl Into<Option<f64>>) = threshold.into();
} }

/// The settings of DASA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Dasa {
    /// Step size `alpha`.
    pub step_size: StepSize,
    /// Local steps H; 1 by default.
    #[serde(default = "one_step", skip_serializing_if = "is_one_step")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Server step `alpha_g`; 1 by default.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
    /// Largest model distance `eps`; the first step size by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub threshold: Option<f64>,
}

fedsa::settings::setters! { Dasa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_threshold(threshold: impl Into<Option<f64>>) = threshold.into();
} }

/// A constructor of each kind's settings with the sources' defaults, and the rule of the kind.
macro_rules! rule {
    ($kind:ident $(, $threshold:ident: $near:expr)?) => {
        impl $kind {
            /// As in the source: H = 1, `alpha_g = 1`, all agents.
            pub fn new(step_size: impl Into<StepSize>) -> Self {
                Self { step_size: step_size.into(), local_steps: 1, global_step_size: 1.0, participants: None $(, $threshold: None)? }
            }

            fn rule(&self) -> LocalSa {
                let Self { step_size, local_steps, global_step_size, participants, .. } = *self;
                LocalSa {
                    $(near: Some(($near, self.$threshold)),)?
                    ..LocalSa::new(step_size, local_steps, global_step_size, participants)
                }
            }
        }

        is_local_sa!($kind);
    };
}

rule!(DelayedSa);
rule!(DelayAdaptiveSa, threshold: NearRule::EachNear);
rule!(Dasa, threshold: NearRule::NearestHalf);

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
