//! SCAFFLSA with random exchanges: no inner loop, a coin toss after every step (Scaffnew, ProxSkip).
//!
//! ```text
//! step k:    theta_c = theta_c + eta (g_c(theta_c, z_c) + xi_c)
//!            with probability p, one coin for all agents:
//!                theta_mean = sum_c p_c theta_c
//!                xi_c      += (p / eta) (theta_mean - theta_c)
//!                theta_c    = theta_mean
//! ```
//! Source: \[S\] Algorithms 2 and 3 with their H = 1. The hat that \[S\] puts on the right-hand side in one place is read as the iterate
//! after communication. A round is the interval between two exchanges: H steps, H geometric with mean 1/p, so that `xi_c += p H (v - v_c)`.
//! The coin's key contains no agent, so all draw the same H.

use fedsa::error::{Result, require};
use fedsa::local::Client;
use fedsa::method::{ControlRule, Drift, MethodSettings, MethodShape, MissingUpdate, Setting};
use fedsa::protocol::Protocol;
use fedsa::schedule::{LocalSteps, StepSchedule, StepSize};
use fedsa::server::Server;
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use crate::control_rule::{ControlScheme, check_control_step};
use crate::local::ControlVariate;
use crate::{averaging, check_common, one};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ScafflsaRandom {
    /// Constant step size `eta`.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub step_size: f64,
    /// Probability p of an exchange after a local step.
    #[cfg_attr(feature = "schema", schemars(range(min = 1e-6, max = 1)))]
    pub talk_probability: f64,
    /// Server step `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
    /// Update rule over inexact links.
    #[serde(default)]
    pub rule: ControlRule,
    /// Damping factor of control updates.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1), extend("exclusiveMinimum" = 0)))]
    pub control_step: f64,
}

impl ScafflsaRandom {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: f64, talk_probability: f64) -> Self {
        Self { step_size, talk_probability, global_step_size: 1.0, participants: None, rule: ControlRule::default(), control_step: 1.0 }
    }
}

fedsa::settings::setters! { ScafflsaRandom {
    with_step_size(step_size: f64) = step_size;
    with_talk_probability(talk_probability: f64) = talk_probability;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_rule(rule: ControlRule) = rule;
    with_control_step(control_step: f64) = control_step;
} }

impl ScafflsaRandom {
    fn steps(&self, setting: &Setting<'_>) -> StepSchedule {
        let local = LocalSteps::Geometric { talk: self.talk_probability, seed: setting.seed };
        StepSchedule { size: StepSize::Constant(self.step_size), local }
    }

    /// The treatment of control variates over the link.
    fn kept(&self, setting: &Setting<'_>) -> ControlScheme {
        ControlScheme::resolve(self.rule, self.participants.is_some_and(|m| m < setting.agents()), setting.is_accelerated, &setting.link)
    }
}

impl MethodSettings for ScafflsaRandom {
    fn check(&self, agents: usize) -> Result<()> {
        let p = self.talk_probability;
        require(p > 0.0 && p <= 1.0 && 1.0 / p <= 1e6, "talk_probability", p, "in [1e-6, 1]")?;
        check_control_step(self.control_step)?;
        check_common(&StepSize::Constant(self.step_size), 1, self.global_step_size, self.participants, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        self.kept(setting).protocol(setting.start.len())
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        let ControlScheme { mean_from, share, .. } = self.kept(setting);
        Box::new(ControlVariate {
            steps: self.steps(setting),
            alpha_g: self.global_step_size,
            talk_probability: Some(self.talk_probability),
            control_step: self.control_step,
            mean_from,
            share,
        })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let average = averaging(setting, self.steps(setting), self.global_step_size, self.participants);
        Box::new(self.kept(setting).server(average))
    }

    fn lost(&self, agents: usize, link: &LinkFacts) -> MissingUpdate {
        let partial = self.participants.is_some_and(|m| m < agents);
        MissingUpdate::Controls(ControlScheme::resolve(self.rule, partial, false, link).rule())
    }

    fn shape(&self) -> MethodShape {
        MethodShape {
            drift: Drift::ControlVariate { talk: Some(self.talk_probability) },
            step_size: StepSize::Constant(self.step_size),
            local_steps: 1.0 / self.talk_probability,
            alpha_g: self.global_step_size,
            participants: self.participants,
            is_linear: self.control_step == 1.0,
        }
    }
}
