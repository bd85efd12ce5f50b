//! FedProx: FedLSA with local steps that are pulled towards the round's model.
//!
//! ```text
//! round t:   theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1} + eta (g_c(theta_{c,h-1}, z_{c,h}) - mu (theta_{c,h-1} - theta_t)),   h = 1..H
//!            v_c         = (theta_{c,H} - theta_t) / (eta H)                  (sent)
//!            theta_{t+1} = theta_t + alpha_g eta H  sum_c p_c v_c
//! ```
//! Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks", MLSys 2020, Algorithm 2, with H
//! steps as the inexact solution of the proximal problem `f_c(theta) + mu/2 ||theta - theta_t||^2`. The pull is a drift that changes with
//! each step, so a local phase has one step, which is slower than a local phase of H. With `mu = 0` or H = 1 it is FedLSA.

use fedsa::error::{Result, require};
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Setting};
use fedsa::random::Purpose;
use fedsa::schedule::StepSize;
use fedsa::server::Server;
use serde::{Deserialize, Serialize};

use super::fedlsa::FedLsa;
use crate::{fixed, one};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FedProx {
    /// Step size `eta`.
    pub step_size: StepSize,
    /// Local steps H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Strength mu of the pull to the round's model.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub proximal_mu: f64,
    /// Server step `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

fedsa::settings::setters! { FedProx {
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl FedProx {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize, proximal_mu: f64) -> Self {
        Self { step_size: step_size.into(), local_steps, proximal_mu, global_step_size: 1.0, participants: None }
    }

    fn without_pull(&self) -> FedLsa {
        let Self { step_size, local_steps, global_step_size, participants, .. } = *self;
        FedLsa { step_size, local_steps, global_step_size, participants }
    }
}

impl MethodSettings for FedProx {
    fn check(&self, agents: usize) -> Result<()> {
        require(self.proximal_mu >= 0.0 && self.proximal_mu.is_finite(), "proximal_mu", self.proximal_mu, "a number of at least 0")?;
        self.without_pull().check(agents)
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        if self.proximal_mu == 0.0 {
            return self.without_pull().client(setting);
        }
        Box::new(self.clone())
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        self.without_pull().server(setting)
    }

    /// The theory does not cover a drift that changes within a round.
    fn shape(&self) -> MethodShape {
        MethodShape { is_linear: self.proximal_mu == 0.0, ..self.without_pull().shape() }
    }
}

/// H local steps with the drift `-mu (theta_{c,h-1} - theta_t)`; sends `v_c`.
impl Client for FedProx {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::default()
    }

    fn local_steps(&self, _: u64) -> usize {
        self.local_steps
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let (theta, phase) = (down.part(Part::Model), fixed(self.step_size, self.local_steps).of(down.round));
        batch.open_streams(Purpose::Sample, down.round);
        batch.start_at(theta);
        for h in 0..phase.len {
            if batch.is_stopped() {
                break;
            }
            for l in batch.lanes() {
                let agent = batch.lane::<0>(l);
                let moved = agent.theta.iter().zip(theta).map(|(own, theta)| own - theta);
                agent.drift.iter_mut().zip(moved).for_each(|(drift, moved)| *drift = -self.proximal_mu * moved);
            }
            batch.steps(&phase.step(h));
        }
        batch.send_directions(phase.sum, Part::Direction, out);
        Ok(())
    }
}
