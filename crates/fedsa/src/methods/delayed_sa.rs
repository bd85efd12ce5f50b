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

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::fedtd::single_steps;
use super::{Half, Setting, Settings, Shape, averaging, check_common, fixed};
use crate::error::{Result, require};
use crate::local::Plain;
use crate::protocol::{Give, Protocol};
use crate::schedule::StepSize;
use crate::server::adaptive::{Adaptive, Choice};
use crate::server::{Participation, Server};

/// The settings of delayed SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DelayedSa {
    /// `alpha`.
    pub step_size: StepSize,
}

impl Settings for DelayedSa {
    fn check(&self, agents: usize) -> Result<()> {
        check_common(&self.step_size, 1, 1.0, None, agents)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, 1) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(averaging(setting, fixed(self.step_size, 1), 1.0, None))
    }

    fn shape(&self) -> Shape {
        single_steps(self.step_size, None, true)
    }
}

/// The settings of delay-adaptive SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DelayAdaptiveSa {
    /// `alpha`.
    pub step_size: StepSize,
    /// `eps`; the (first) step size when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub threshold: Option<f64>,
}

impl Settings for DelayAdaptiveSa {
    fn check(&self, agents: usize) -> Result<()> {
        check_threshold(self.threshold)?;
        check_common(&self.step_size, 1, 1.0, None, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::directions(setting.start.len(), Give::Each)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, 1) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        adaptive(setting, self.step_size, self.threshold, Choice::EachNear)
    }

    fn shape(&self) -> Shape {
        single_steps(self.step_size, None, false)
    }
}

/// The settings of DASA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dasa {
    /// `alpha`.
    pub step_size: StepSize,
    /// `eps`; the (first) step size when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub threshold: Option<f64>,
}

impl Settings for Dasa {
    fn check(&self, agents: usize) -> Result<()> {
        check_threshold(self.threshold)?;
        check_common(&self.step_size, 1, 1.0, None, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::directions(setting.start.len(), Give::Each)
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Lanes(Box::new(Plain { steps: fixed(self.step_size, 1) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        adaptive(setting, self.step_size, self.threshold, Choice::NearestHalf)
    }

    fn shape(&self) -> Shape {
        single_steps(self.step_size, None, false)
    }
}

fn check_threshold(threshold: Option<f64>) -> Result<()> {
    require(threshold.is_none_or(|eps| eps > 0.0), "threshold", threshold.unwrap_or(0.0), "a positive distance")
}

fn adaptive(setting: &Setting<'_>, step_size: StepSize, threshold: Option<f64>, choice: Choice) -> Box<dyn Server> {
    let steps = fixed(step_size, 1);
    Box::new(Adaptive {
        theta: setting.start.clone(),
        steps,
        participation: Participation { m: None, agents: setting.agents(), seed: setting.seed },
        threshold: threshold.unwrap_or(step_size.largest()),
        choice,
        reach: setting.link.stale.or(setting.link.late).unwrap_or(0),
        models: VecDeque::new(),
        first: 0,
    })
}
