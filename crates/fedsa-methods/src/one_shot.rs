//! One-shot averaging: every agent makes all its local steps, followed by one exchange.
//!
//! ```text
//! theta_{c,0} = theta_0
//! theta_{c,k} = theta_{c,k-1} + eta_k g_c(theta_{c,k-1}, z_{c,k}),   k = 1..K
//! theta       = sum_c p_c theta_{c,K}
//! ```
//! Source: Tian, Paschalidis, Olshevsky, "One-shot averaging for distributed TD(lambda) under Markov sampling", IEEE Control
//! Systems Letters 2024 (\[F\] reference 33); `lambda = 0` and any operators here.
//!
//! A round of this kind is H local steps of every agent *from its own last iterate*, and a report of the sum of its moves. theta after
//! round t equals the result of one-shot averaging with K = (t + 1) H steps, so one run gives the whole curve of the error against the
//! number of samples. The server sends no model: questions are empty.
//!
//! **Costs.** The ledger counts every report. One-shot averaging that ends after round t costs the *last* report only: one exchange and one
//! vector per agent. With `local_steps` = K and `run.rounds` = 1 the ledger equals the published method's.
//!
//! If agents differ, the limit is the mean of their own roots, `sum_c p_c theta*_c`, instead of `theta*`.
//!
//! A lost report is left out of the average over the agents that arrived; the agent's next report contains all its moves. Links that
//! deliver late are refused, because a report does not contain its round. Links that deliver only a sum (over the air) are refused too.
//! They would draw new gains in every round for all moves of an agent, not only for the last ones, and the server could not divide by the
//! unknown weight of the agents that arrived.

use fedsa::error::{Error, Result};
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Message, Part};
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::protocol::{Gather, Protocol};
use fedsa::random::Purpose;
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::{StepSchedule, StepSize};
use fedsa::server::{Broadcast, Next, Received, Server};
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use crate::{check_common, fixed};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OneShot {
    /// Step size `eta`.
    pub step_size: StepSize,
    /// Local steps H per report.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
}

fedsa::settings::setters! { OneShot {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
} }

impl OneShot {
    /// With steps of this size.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self { step_size: step_size.into(), local_steps }
    }
}

impl MethodSettings for OneShot {
    fn check(&self, agents: usize) -> Result<()> {
        check_common(&self.step_size, self.local_steps, 1.0, None, agents)
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        if link.is_analogue {
            let what = "gains are drawn anew for all that an agent has moved, and over the air it is unknown who has arrived";
            return Err(Error::new("uplink", what, "a link that delivers one message per agent"));
        }
        if link.late.is_some() {
            let what = "reports that arrive late are averaged with those of later rounds";
            return Err(Error::new("uplink", what, "a link without late"));
        }
        Ok(())
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let mut protocol = Protocol::directions(setting.start.len(), Gather::Sum);
        protocol.exchanges[0].down.clear();
        protocol
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        Box::new(Alone { steps: fixed(self.step_size, self.local_steps), start: setting.start.clone() })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(OneShotServer {
            theta: setting.start.clone(),
            start: setting.start.clone(),
            weights: setting.weights.to_vec(),
            steps: fixed(self.step_size, self.local_steps),
        })
    }

    /// Agents do not use the server's iterate, so a round is no map of it.
    fn shape(&self) -> MethodShape {
        MethodShape {
            drift: Drift::Zero,
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: 1.0,
            participants: None,
            is_linear: false,
        }
    }
}

/// H plain local steps from the end of the agent's last steps; sends `(theta_c - theta_0) / S`, which has the size of an operator. S is
/// [`StepSchedule::scale_of_all`].
#[derive(Debug, Clone)]
pub struct Alone {
    /// Step sizes and local steps.
    pub steps: StepSchedule,
    /// `theta_0`, d components.
    pub start: Vec<f64>,
}

// The vector that an agent keeps: theta_c - theta_0.
const MOVED: usize = 0;

impl Client for Alone {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::keeping(1)
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        batch.open_streams(Purpose::Sample, down.round);
        batch.start_at(&self.start);
        for l in batch.lanes() {
            let agent = batch.lane::<1>(l);
            agent.theta.iter_mut().zip(&*agent.memory[MOVED]).for_each(|(theta, moved)| *theta += moved);
            agent.drift.fill(0.0);
        }
        batch.steps(&self.steps.of(down.round));
        let scale = self.steps.scale_of_all(down.round);
        for l in batch.lanes() {
            let agent = batch.lane::<1>(l);
            let v = out.send(l, Part::Direction);
            for (i, moved) in agent.memory[MOVED].iter_mut().enumerate() {
                *moved = agent.theta[i] - self.start[i];
                v[i] = *moved / scale;
            }
        }
        Ok(())
    }
}

/// Asks all agents for the sum of their moves, and averages over those that answer. An answer contains all earlier moves, so a lost one
/// does not affect later ones. Without any answer theta does not change.
#[derive(Debug, Clone)]
pub struct OneShotServer {
    /// The last average.
    pub theta: Vec<f64>,
    /// `theta_0`.
    pub start: Vec<f64>,
    /// `p_c`.
    pub weights: Vec<f64>,
    /// Step sizes and local steps, for the scale of reports.
    pub steps: StepSchedule,
}

impl Server for OneShotServer {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: None, down: Message { round: t, exchange: 0, parts: Vec::new() }, own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let arrived: f64 = match got.arrived.contains(&false) {
            false => got.asked,
            true => self.weights.iter().zip(got.arrived).filter(|(_, arrived)| **arrived).map(|(p, _)| p).sum(),
        };
        if arrived > 0.0 {
            let step = self.steps.scale_of_all(got.round) / arrived;
            let sum = got.sum(Part::Direction);
            for ((theta, start), v) in self.theta.iter_mut().zip(&self.start).zip(sum) {
                *theta = start + step * v;
            }
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<u8> {
        packed(&self.theta)
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.theta = unpacked(state)?;
        Ok(())
    }
}
