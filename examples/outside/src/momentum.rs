//! A server rule with its method: momentum on the server, with the agents of FedLSA (Hsu et al. 2019, FedAvgM).
//!
//! ```text
//! m_{t+1}     = beta m_t + v_t,   v_t the mean of the participants' directions
//! theta_{t+1} = theta_t + E m_{t+1}
//! ```

use fedsa::error::{Error, Result, require};
use fedsa::local::Client;
use fedsa::message::{Message, Part};
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::{StepSchedule, StepSize};
use fedsa::server::{Broadcast, Next, Received, Server};
use fedsa::uplink::LinkFacts;
use fedsa_methods::local::Plain;
use fedsa_methods::{check_common, fixed};
use serde::{Deserialize, Serialize};

/// The keys of `[[method]]`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Momentum {
    /// eta.
    pub step_size: StepSize,
    /// H.
    pub local_steps: usize,
    /// beta: 0 is FedLSA.
    pub beta: f64,
}

impl Momentum {
    fn steps(&self) -> StepSchedule {
        fixed(self.step_size, self.local_steps)
    }
}

/// The server half.
struct HeavyBall {
    theta: Vec<f64>,
    /// m.
    momentum: Vec<f64>,
    beta: f64,
    steps: StepSchedule,
}

impl Server for HeavyBall {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: None, down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if !got.arrived.is_empty() && got.arrived.iter().all(|arrived| !arrived) {
            return Next::Done { tell: None }; // without any answer theta stays
        }
        let sum = self.steps.of(got.round).sum; // E
        for ((theta, m), v) in self.theta.iter_mut().zip(&mut self.momentum).zip(got.mean_of(Part::Direction)) {
            *m = self.beta * *m + v;
            *theta += sum * *m;
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.momentum))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.momentum) = unpacked(state)?;
        Ok(())
    }
}

impl MethodSettings for Momentum {
    fn check(&self, agents: usize) -> Result<()> {
        require((0.0..1.0).contains(&self.beta), "beta", self.beta, "a number in [0, 1)")?;
        check_common(&self.step_size, self.local_steps, 1.0, None, agents)
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        if link.late.is_none() {
            return Ok(());
        }
        let what = "momentum must not move theta in a round without any answer, and over `late` this is not known";
        Err(Error::new("uplink", what, "a link without late"))
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(Plain { steps: self.steps() })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let (theta, momentum) = (setting.start.clone(), vec![0.0; setting.start.len()]);
        Box::new(HeavyBall { theta, momentum, beta: self.beta, steps: self.steps() })
    }

    /// The server has memory, so that theory knows nothing.
    fn shape(&self) -> MethodShape {
        let (step_size, local_steps) = (self.step_size, self.local_steps as f64);
        MethodShape { drift: Drift::Zero, step_size, local_steps, alpha_g: 1.0, participants: None, is_linear: false }
    }
}
