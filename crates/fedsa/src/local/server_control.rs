//! Drift `c_c - c`: the agent's control variate minus the server's (Scaffold with m of N participants).

use super::{AgentBatch, AgentMemory, Client, ControlCopies, Outbox};
use crate::error::Result;
use crate::message::{Message, Part};
use crate::random::Purpose;
use crate::schedule::StepSchedule;

/// The question contains `theta_t` and the server's control c. An agent makes H local steps with drift `c_c - c`, sends
/// `v_c`, and sets `c_c += -c - v_c` once it knows that the server counted `v_c`: the server changes c by the same amount
/// times `p_c`, so that `c = sum_c p_c c_c` after every round. An agent whose last answer was lost is told so with its next
/// question ([`Part::Included`]), and then keeps `c_c`.
#[derive(Debug, Clone)]
pub struct ServerControl {
    /// Step sizes and local steps.
    pub steps: StepSchedule,
}

// The vectors that an agent keeps: c_c, and the change of c_c that its last answer brings if the server counted it.
const CONTROL: usize = 0;
const CHANGE: usize = 1;

impl Client for ServerControl {
    fn memory(&self) -> usize {
        2
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn controls(&self) -> Option<&dyn ControlCopies> {
        Some(self)
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let of_server = down.part(Part::ServerControl);
        let leg = self.steps.of(down.round);
        batch.start_at(down.part(Part::Model));
        for l in batch.lanes() {
            let is_counted = batch.last(l, down.round).is_included;
            let agent = batch.lane::<2>(l);
            let [control, change] = agent.memory;
            for (i, control) in control.iter_mut().enumerate() {
                if is_counted {
                    *control += change[i];
                }
                agent.drift[i] = *control - of_server[i];
            }
        }
        batch.open_streams(Purpose::Sample, down.round);
        batch.steps(&leg);
        batch.send_directions(leg.sum, Part::Direction, out);
        for l in batch.lanes() {
            let (_, v) = out.sent(l).expect("every lane has sent");
            let agent = batch.lane::<2>(l);
            let [_, change] = agent.memory;
            for i in 0..v.len() {
                // The steps are made: what is kept for `sent` is -c.
                agent.drift[i] = -of_server[i];
                change[i] = agent.drift[i] - v[i];
            }
        }
        Ok(())
    }

    /// The server counts what it decodes.
    fn sent(&self, batch: &mut AgentBatch<'_>, _: &Message, sent: &Outbox) -> Result<()> {
        for l in batch.lanes() {
            let Some((_, sent)) = sent.sent(l) else { continue };
            let agent = batch.lane::<2>(l);
            let [_, change] = agent.memory;
            for (i, change) in change.iter_mut().enumerate() {
                *change = agent.drift[i] - sent[i];
            }
        }
        Ok(())
    }

    /// `c_c`; the server's c is subtracted by who has it.
    fn control(&self, memory: &AgentMemory<'_>, _: &[f64], _: u64, is_included: bool, control: &mut [f64]) -> bool {
        control.copy_from_slice(memory.vector(CONTROL));
        if is_included {
            control.iter_mut().zip(memory.vector(CHANGE)).for_each(|(control, change)| *control += change);
        }
        true
    }
}

impl ControlCopies for ServerControl {
    /// The question contains c.
    fn is_told(&self) -> bool {
        false
    }

    /// Only the agent's own answers change its control.
    fn assumed(&self, answered: Option<u64>, _: u64) -> Option<u64> {
        answered
    }

    fn can_follow(&self, _: Option<u64>, _: u64) -> bool {
        true
    }

    fn put(&self, memory: &mut [&mut [f64]], control: &[f64], _: &[f64]) {
        memory[CONTROL].copy_from_slice(control);
        memory[CHANGE].fill(0.0);
    }

    /// c.
    fn shared(&self, down: &Message, _: &[f64]) -> Vec<f64> {
        down.part(Part::ServerControl).to_vec()
    }

    /// `c_c += -c - v_c`.
    fn settle(&self, _: u64, control: &mut [f64], of_server: &[f64], own: Option<&[f64]>) {
        let Some(v) = own else { return };
        control.iter_mut().zip(of_server.iter().zip(v)).for_each(|(control, (c, v))| *control += -c - v);
    }
}
