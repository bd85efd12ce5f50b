//! Drift `G - g_c(theta_t, z_{c,0})`: the mean operator at the round's start (\[F\] eq. 10-11).

use fedsa::error::Result;
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Message, Part};
use fedsa::random::Purpose;
use fedsa::schedule::StepSchedule;

use super::plain::direction;

/// Two exchanges per round. In the first, an agent sends `g_c(theta_t, z_{c,0})`. In the second, it receives the mean G of these operators,
/// makes H local steps with drift `G - g_c(theta_t, z_{c,0})`, and sends `v_c`.
///
/// The first local step uses the same sample `z_{c,0}` (FedHSA), so that a round uses H samples. With `fresh` samples of their own, the
/// operator is their mean, and the first step uses another sample (FedLin): H + `fresh` samples.
#[derive(Debug, Clone)]
pub struct GlobalMemory {
    /// Step sizes and local steps.
    pub steps: StepSchedule,
    /// The number of samples of an operator that the first local step does not use; 0 if both use the same one.
    pub fresh: usize,
}

// The vectors that an agent keeps between the exchanges: g_c(theta_t, z_{c,0}) and theta_t.
const OPERATOR: usize = 0;
const BASE: usize = 1;

impl Client for GlobalMemory {
    fn facts(&self) -> ClientFacts<'_> {
        // They last between the exchanges of a round.
        ClientFacts { memory: 2, operator_samples: self.fresh, ..ClientFacts::default() }
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        if down.exchange == 0 {
            let theta = down.part(Part::Model);
            batch.open_streams(if self.fresh > 0 { Purpose::Fresh } else { Purpose::Sample }, down.round);
            batch.start_at(theta);
            for k in 0..self.fresh.max(1) {
                batch.observe(self.fresh > 0);
                for l in batch.lanes() {
                    let agent = batch.lane::<2>(l);
                    // The mean of the first k + 1 samples.
                    let share = 1.0 / (k + 1) as f64;
                    for (mean, g) in agent.memory[OPERATOR].iter_mut().zip(agent.observed) {
                        *mean = if k == 0 { *g } else { *mean + share * (g - *mean) };
                    }
                }
            }
            for l in batch.lanes() {
                let agent = batch.lane::<2>(l);
                agent.memory[BASE].copy_from_slice(theta);
                out.send(l, Part::Operator).copy_from_slice(agent.memory[OPERATOR]);
            }
        } else {
            let mean = down.part(Part::Operator);
            let phase = self.steps.of(down.round);
            batch.open_streams(Purpose::Sample, down.round);
            // theta_{c,0} = theta_t, drift G - g_c(theta_t, z_{c,0})
            batch.place_kept(BASE);
            for l in batch.lanes() {
                let agent = batch.lane::<2>(l);
                for (i, drift) in agent.drift.iter_mut().enumerate() {
                    *drift = mean[i] - agent.memory[OPERATOR][i];
                }
            }
            batch.steps(&phase);
            for l in batch.lanes() {
                let agent = batch.lane::<2>(l);
                direction(agent.theta, agent.memory[BASE], phase.sum, out.send(l, Part::Direction));
            }
        }
        Ok(())
    }
}
