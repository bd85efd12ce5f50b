//! Importance averaging of tables: an agent counts the more in an entry, the more of its local steps changed the entry in the round.
//!
//! ```text
//! round t:   theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1} + eta_h g_c(theta_{c,h-1}, z_{c,h}),   h = 1..H
//!            l_c(i)      = -sum ln(1 - eta_h) over the steps h that changed entry i
//!            v_c         = (theta_{c,H} - theta_t) / E,   l_c                  (sent)
//!            theta_{t+1}(i) = theta_t(i) + E sum_c w_c(i) v_c(i),   w_c(i) = p_c exp l_c(i) / sum_k p_k exp l_k(i)
//! ```
//! A step of Q-learning on a table changes the entry of the pair that was visited: with a constant step size and n_c visits, w_c(i) is
//! proportional to `(1 - eta)^-n_c`. Equal weights leave half of an old value that one of two agents has replaced; these weights leave
//! `2 / (1 + (1 - eta)^-n)` of it. A visit whose temporal difference is exactly 0 changes nothing, and does not count. Where agents have
//! different kernels the weights move the fixed point. Entries that no agent visited stay. An agent whose answer is lost has no weight.
//!
//! Source: Woo, Joshi, Chi, "The blessing of heterogeneity in federated Q-learning: linear speedup and beyond", JMLR 2025 (FedAsynQ-ImAvg).

use fedsa::error::{Result, require};
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Gather, Len, Protocol, ReplySpec};
use fedsa::random::Purpose;
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::{StepSchedule, StepSize};
use fedsa::server::{Broadcast, Next, Received, Server};
use serde::{Deserialize, Serialize};

use super::fedlsa::FedLsa;
use crate::fixed;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImportanceAveraging {
    /// Step size `eta`, below 1.
    pub step_size: StepSize,
    /// Local steps H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
}

impl ImportanceAveraging {
    /// With these local steps.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self { step_size: step_size.into(), local_steps }
    }

    fn steps(&self) -> StepSchedule {
        fixed(self.step_size, self.local_steps)
    }
}

impl MethodSettings for ImportanceAveraging {
    fn check(&self, agents: usize) -> Result<()> {
        FedLsa::new(self.step_size, self.local_steps).check(agents)?;
        require(self.step_size.largest() < 1.0, "step_size", self.step_size.largest(), "below 1: weights are powers of 1 / (1 - eta)")
    }

    fn needs(&self) -> Needs {
        Needs::Table
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let mut protocol = Protocol::directions(d, Gather::Each);
        protocol.exchanges[0].replies.push(ReplySpec { part: Part::LogWeights, len: Len::Exactly(d), gather: Gather::Each });
        protocol
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(self.clone())
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(ImportanceServer { theta: setting.start.clone(), steps: self.steps() })
    }

    fn shape(&self) -> MethodShape {
        MethodShape { is_linear: false, ..FedLsa::new(self.step_size, self.local_steps).shape() }
    }
}

/// H local steps; sends `v_c` and `l_c`.
impl Client for ImportanceAveraging {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::default()
    }

    fn local_steps(&self, _: u64) -> usize {
        self.local_steps
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let (theta, phase) = (down.part(Part::Model), self.steps().of(down.round));
        let mut log_weights = vec![vec![0.0; theta.len()]; batch.lanes().len()];
        let mut before = vec![theta.to_vec(); batch.lanes().len()];
        batch.open_streams(Purpose::Sample, down.round);
        batch.start_at(theta);
        for h in 0..phase.len {
            if batch.is_stopped() {
                break;
            }
            let step = phase.step(h);
            batch.steps(&step);
            for (l, (own, before)) in log_weights.iter_mut().zip(&mut before).enumerate() {
                let after = &*batch.lane::<0>(l).theta;
                let changed = own.iter_mut().zip(&*before).zip(after).filter(|((_, before), after)| before != after);
                changed.for_each(|((own, _), _)| *own -= (-step.sum).ln_1p());
                before.copy_from_slice(after);
            }
        }
        for (l, own) in log_weights.into_iter().enumerate() {
            let moved = batch.lane::<0>(l).theta.iter().zip(theta).map(|(own, theta)| (own - theta) / phase.sum).collect();
            out.send_parts(l, vec![(Part::Direction, Body::Numbers(moved)), (Part::LogWeights, Body::Numbers(own))]);
        }
        Ok(())
    }
}

/// Averages each entry by its own weights.
#[derive(Debug, Clone)]
pub struct ImportanceServer {
    /// `theta_t`, d components.
    pub theta: Vec<f64>,
    /// Step sizes, for E.
    pub steps: StepSchedule,
}

impl Server for ImportanceServer {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: None, down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let sum = self.steps.of(got.round).sum;
        for (i, theta) in self.theta.iter_mut().enumerate() {
            let each =
                || got.updates.iter().map(|update| (update.weight, update.part(Part::LogWeights)[i], update.part(Part::Direction)[i]));
            // Visits in the thousands overflow without the largest one taken out.
            let most = each().fold(f64::NEG_INFINITY, |most, (_, l, _)| most.max(l));
            let (all, moved) = each().fold((0.0, 0.0), |(all, moved), (p, l, v)| {
                let w = p * (l - most).exp();
                (all + w, moved + w * v)
            });
            if all > 0.0 {
                *theta += sum * moved / all;
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
