//! SCAFFLSA with a fixed period: control variates that remove the heterogeneity bias.
//!
//! ```text
//! round t:   theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1} + eta (g_c(theta_{c,h-1}, z_{c,h}) + xi_c),   h = 1..H
//!            v_c         = (theta_{c,H} - theta_t) / (eta H)                           (sent)
//!            v           = sum_c p_c v_c  over the participants, weights renormalised
//!            theta_{t+1} = theta_t + alpha_g eta H v
//!            xi_c       += v - v_c
//! ```
//! Source: \[S\] Algorithms 2 and 4; their `xi_c += (theta_{t+1} - theta_{c,H}) / (eta H)` is the same at `alpha_g = 1`. `xi_c = 0` at the
//! start; `sum_c p_c xi_c` stays 0; the fixed point is `xi*_c = -gbar_c(theta*)`. With m of N agents per round, the server sends v to the
//! participants at its end, which the ledger counts; with all agents the next model contains it. At m = 1 the mean of a round is its
//! agent's own v_c, and no control moves, so memory needs m >= 2. Not every `eta H` is stable (`fedsa_theory`).

use fedsa::error::Result;
use fedsa::local::Client;
use fedsa::method::{ControlRule, Drift, MethodSettings, MethodShape, MissingUpdate, Setting};
use fedsa::protocol::Protocol;
use fedsa::schedule::StepSize;
use fedsa::server::Server;
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use crate::control_rule::{ControlScheme, check_control_step};
use crate::local::ControlVariate;
use crate::{averaging, check_common, fixed, one};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scafflsa {
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
    /// Update rule over inexact links.
    #[serde(default)]
    pub rule: ControlRule,
    /// Damping factor of control updates.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(range(max = 1), extend("exclusiveMinimum" = 0)))]
    pub control_step: f64,
}

fedsa::settings::setters! { Scafflsa {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_rule(rule: ControlRule) = rule;
    with_control_step(control_step: f64) = control_step;
} }

impl Scafflsa {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self {
            step_size: step_size.into(),
            local_steps,
            global_step_size: 1.0,
            participants: None,
            rule: ControlRule::Auto,
            control_step: 1.0,
        }
    }

    /// The treatment of control variates over the link.
    fn kept(&self, setting: &Setting<'_>) -> ControlScheme {
        ControlScheme::resolve(self.rule, self.participants.is_some_and(|m| m < setting.agents()), setting.is_accelerated, &setting.link)
    }
}

impl MethodSettings for Scafflsa {
    fn check(&self, agents: usize) -> Result<()> {
        check_control_step(self.control_step)?;
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        self.kept(setting).protocol(setting.start.len())
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        let ControlScheme { mean_from, share, .. } = self.kept(setting);
        Box::new(ControlVariate {
            steps: fixed(self.step_size, self.local_steps),
            alpha_g: self.global_step_size,
            talk_probability: None,
            control_step: self.control_step,
            mean_from,
            share,
        })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let average = averaging(setting, fixed(self.step_size, self.local_steps), self.global_step_size, self.participants);
        Box::new(self.kept(setting).server(average))
    }

    fn lost(&self, agents: usize, link: &LinkFacts) -> MissingUpdate {
        let partial = self.participants.is_some_and(|m| m < agents);
        MissingUpdate::Controls(ControlScheme::resolve(self.rule, partial, false, link).rule())
    }

    fn shape(&self) -> MethodShape {
        MethodShape {
            drift: Drift::ControlVariate { talk: None },
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: self.global_step_size,
            participants: self.participants,
            is_linear: self.control_step == 1.0,
        }
    }
}
