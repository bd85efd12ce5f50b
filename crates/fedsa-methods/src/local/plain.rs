//! No drift: Local SA.

use fedsa::error::Result;
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Message, Part};
use fedsa::random::Purpose;
use fedsa::schedule::StepSchedule;

/// H plain local steps; sends `v_c = (theta_{c,H} - theta_t) / E`.
#[derive(Debug, Clone)]
pub struct Plain {
    /// Step sizes and local steps.
    pub steps: StepSchedule,
}

impl Client for Plain {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::default()
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let theta = down.part(Part::Model);
        let phase = self.steps.of(down.round);
        batch.open_streams(Purpose::Sample, down.round);
        batch.start_at(theta);
        batch.steps(&phase);
        batch.send_directions(phase.sum, Part::Direction, out);
        Ok(())
    }
}

/// `v = (theta_H - theta_t) / E`.
pub(super) fn direction(theta_h: &[f64], theta_t: &[f64], sum: f64, v: &mut [f64]) {
    for ((v, to), from) in v.iter_mut().zip(theta_h).zip(theta_t) {
        *v = (to - from) / sum;
    }
}
