//! A client rule with its method: local steps that are pulled back to the server's model, which fedsa has as `fedprox` (Li et al., MLSys 2020).
//!
//! ```text
//! theta_{c,h} = theta_{c,h-1} + eta (g_c(theta_{c,h-1}, z_h) - mu (theta_{c,h-1} - theta_t)),   h = 1..H
//! ```

use fedsa::error::{Result, require};
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Message, Part};
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::random::Purpose;
use fedsa::schedule::StepSize;
use fedsa::server::Server;
use fedsa_methods::{averaging, check_common, fixed};
use serde::{Deserialize, Serialize};

/// The keys of `[[method]]`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pulled {
    /// eta.
    pub step_size: f64,
    /// H.
    pub local_steps: usize,
    /// mu: 0 is FedLSA.
    pub proximal: f64,
}

/// What an agent does with a model. It keeps nothing.
struct Proximal(Pulled);

impl Client for Proximal {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::default()
    }

    fn local_steps(&self, _: u64) -> usize {
        self.0.local_steps
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let theta = down.part(Part::Model);
        let Pulled { step_size: eta, local_steps, proximal } = self.0;
        // The kernel's drift is constant while it runs: one step at a time.
        let step = fixed(StepSize::Constant(eta), 1).of(down.round);
        batch.open_streams(Purpose::Sample, down.round);
        batch.start_at(theta);
        for _ in 0..local_steps {
            for l in batch.lanes() {
                let agent = batch.lane::<0>(l);
                for (i, drift) in agent.drift.iter_mut().enumerate() {
                    *drift = -proximal * (agent.theta[i] - theta[i]);
                }
            }
            batch.steps(&step);
        }
        batch.send_directions(eta * local_steps as f64, Part::Direction, out);
        Ok(())
    }
}

impl MethodSettings for Pulled {
    fn check(&self, agents: usize) -> Result<()> {
        require(self.proximal >= 0.0 && self.proximal.is_finite(), "proximal", self.proximal, "a number, at least 0")?;
        check_common(&StepSize::Constant(self.step_size), self.local_steps, 1.0, None, agents)
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(Proximal(self.clone()))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(averaging(setting, fixed(StepSize::Constant(self.step_size), self.local_steps), 1.0, None))
    }

    /// A round is not one of those that theory knows: no prediction is made.
    fn shape(&self) -> MethodShape {
        let (step_size, local_steps) = (StepSize::Constant(self.step_size), self.local_steps as f64);
        MethodShape { drift: Drift::Zero, step_size, local_steps, alpha_g: 1.0, participants: None, is_linear: false }
    }
}
