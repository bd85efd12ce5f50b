//! No drift, and no models from the server: every agent goes on from its own iterate (one-shot averaging).

use super::{AgentBatch, Client, Outbox};
use crate::error::Result;
use crate::message::{Message, Part};
use crate::random::Purpose;
use crate::schedule::StepSchedule;

/// H plain local steps from where the agent's last steps ended; sends `(theta_c - theta_0) / S`, which has the size of an
/// operator: S is [`StepSchedule::scale_of_all`].
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
    fn memory(&self) -> usize {
        1
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
