//! Drift `xi_c`: control variates (\[S\] Alg. 2).

use fedsa::error::Result;
use fedsa::kernel::rows::ControlMove;
use fedsa::local::{AgentBatch, AgentMemory, Client, ClientFacts, Controls, Outbox};
use fedsa::message::{Message, Part};
use fedsa::random::Purpose;
use fedsa::schedule::{LocalPhase, StepSchedule};

/// H local steps with drift `xi_c`; sends `v_c`; then `xi_c += gain (v - v_c)`.
///
/// [`MeanSource`] says how an agent learns v, the mean of the answers that arrived; [`SubtractedShare`] says what it subtracts. Over an
/// exact link all choices give the same controls, and `sum_c p_c xi_c` stays 0.
#[derive(Debug, Clone)]
pub struct ControlVariate {
    /// Step sizes and local steps.
    pub steps: StepSchedule,
    /// The server's global step size.
    pub alpha_g: f64,
    /// The probability p of a random exchange. The gain is then `p H`, so that `xi_c += (p / eta) (theta_{t+1} - theta_{c,H})`; `None` for
    /// a fixed H and the gain 1.
    pub talk_probability: Option<f64>,
    /// A factor of the gain.
    pub control_step: f64,
    /// The source of v.
    pub mean_from: MeanSource,
    /// The agent's share subtracted from v.
    pub share: SubtractedShare,
}

/// The source from which an agent learns the round's mean direction v.
///
/// If all agents participate and models arrive unaltered, an agent computes v from the next model,
/// `v = (theta_{t+1} - theta_t) / (alpha_g E)`, without a message. Until then it keeps `theta_t` and its answer. The rounding of the model,
/// at most `2^-53 |theta| / (alpha_g E)` per round, then enters `sum_c p_c xi_c` and is not corrected. Otherwise the server sends v to its
/// participants at the end of the round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeanSource {
    /// From the next model.
    FromModel,
    /// From a message at the end of the round.
    Told,
}

/// An agent's share that it subtracts from v.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubtractedShare {
    /// The direction that it computed, even if it was lost (\[S\] to the letter).
    Computed,
    /// The direction that the server decoded, or 0 if v does not include the agent's answer; the server tells the agent. `sum_c p_c xi_c`
    /// stays 0 over links that alter or lose messages.
    Acknowledged,
    /// The agent sends `c_c = v_c - xi_c`, the mean of its own operator over the local steps, and sets `xi_c += gain (v - c_c - xi_c)`. A
    /// link's error in v is in `sum_c p_c xi_c` for one round only, whereas [`SubtractedShare::Computed`] accumulates such errors. Over
    /// noisy links the noise has the size of `c_c`, which does not vanish at `theta*` if agents differ.
    Afresh,
}

// The vectors that an agent keeps: xi_c; its answer in its last round; theta_t of that round.
const XI: usize = 0;
const SENT: usize = 1;
const BASE: usize = 2;

impl ControlVariate {
    fn gain(&self, phase: &LocalPhase) -> f64 {
        self.control_step * self.talk_probability.map_or(1.0, |p| p * phase.len as f64)
    }

    /// `xi_c += gain (v - own)` for one round; `own` is zero if v does not include the agent's answer.
    fn settle(&self, phase: &LocalPhase, xi: &mut [f64], v: impl Fn(usize) -> f64, own: &[f64]) {
        let gain = self.gain(phase);
        for (i, (xi, own)) in xi.iter_mut().zip(own).enumerate() {
            let difference = if self.share == SubtractedShare::Afresh { v(i) - own - *xi } else { v(i) - own };
            *xi += gain * difference;
        }
    }

    /// v of a round that changed the model from `base` to `theta`.
    fn mean_between<'a>(&self, phase: &LocalPhase, base: &'a [f64], theta: &'a [f64]) -> impl Fn(usize) -> f64 + 'a {
        let scale = self.alpha_g * phase.sum;
        move |i| (theta[i] - base[i]) / scale
    }

    /// The move of controls for round t.
    fn moved(&self, t: u64) -> ControlMove {
        let phase = self.steps.of(t);
        ControlMove { scale: self.alpha_g * phase.sum, gain: self.gain(&phase) }
    }

    fn is_told(&self) -> bool {
        self.mean_from != MeanSource::FromModel
    }
}

impl Client for ControlVariate {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::keeping(if self.is_told() { 2 } else { 3 })
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn controls(&self) -> Option<&dyn Controls> {
        Some(self)
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let theta = down.part(Part::Model);
        let afresh = self.share == SubtractedShare::Afresh;
        batch.place(theta);
        // xi_c += gain (v - v_c), with v of the previous round, computed from this model. If the agent missed rounds, the model gives the
        // sum of v over all rounds since its last answer.
        if !self.is_told() && down.round > 0 {
            let moved = self.moved(down.round - 1);
            // Agents whose answers are in the previous round's mean need no correction.
            let gaps = if batch.is_in_step() { 0..0 } else { batch.lanes() };
            let mut moves = Vec::new();
            for l in gaps {
                let last = batch.last(l, down.round);
                let is_next = last.round == Some(down.round - 1);
                moves.push(if is_next { moved } else { self.moved(last.round.unwrap_or(0)) });
                if self.share == SubtractedShare::Acknowledged && !last.is_included {
                    batch.lane::<2>(l).memory[SENT].fill(0.0);
                }
            }
            batch.settle(|l| moves.get(l).copied().unwrap_or(moved), afresh);
        } else {
            batch.drift_by(XI);
        }
        // theta_{c,h} = theta_{c,h-1} + eta_h (g_c(theta_{c,h-1}, z_h) + xi_c)
        let phase = self.steps.of(down.round);
        batch.open_streams(Purpose::Sample, down.round);
        batch.steps(&phase);
        // v_c = (theta_{c,H} - theta_t) / E, or c_c = v_c - xi_c
        batch.send_directions(phase.sum, Part::Direction, out);
        batch.keep(!self.is_told(), afresh, out);
        Ok(())
    }

    fn sent(&self, batch: &mut AgentBatch<'_>, _: &Message, sent: &Outbox) -> Result<()> {
        for l in batch.lanes().filter(|_| self.share == SubtractedShare::Acknowledged) {
            if let Some((_, sent)) = sent.sent(l) {
                batch.lane::<2>(l).memory[SENT].copy_from_slice(sent);
            }
        }
        Ok(())
    }

    fn told(&self, batch: &mut AgentBatch<'_>, down: &Message) {
        let v = down.part(Part::Direction);
        let phase = self.steps.of(down.round);
        for l in batch.lanes() {
            let is_in_v = batch.last(l, down.round + 1).is_included;
            let [xi, sent] = batch.lane(l).memory;
            if self.share == SubtractedShare::Acknowledged && !is_in_v {
                sent.fill(0.0);
            }
            self.settle(&phase, xi, |i| v[i], sent);
        }
    }
}

impl Controls for ControlVariate {
    fn can_be_copied(&self) -> bool {
        self.share == SubtractedShare::Acknowledged
    }

    fn of_agent(&self, memory: &AgentMemory<'_>, theta: &[f64], next_round: u64, is_included: bool, xi: &mut [f64]) {
        xi.copy_from_slice(memory.vector(XI));
        if !self.is_told() && next_round > 0 {
            let phase = self.steps.of(next_round - 1);
            let mean = self.mean_between(&phase, memory.vector(BASE), theta);
            let counts = is_included || self.share != SubtractedShare::Acknowledged;
            if counts { self.settle(&phase, xi, mean, memory.vector(SENT)) } else { self.settle(&phase, xi, mean, &vec![0.0; xi.len()]) }
        }
    }

    fn is_told(&self) -> bool {
        ControlVariate::is_told(self)
    }

    fn can_follow(&self, answered: Option<u64>, round: u64) -> bool {
        // A round adds `gain v = (gain / (alpha_g E)) (theta_{t+1} - theta_t)`. The sum over several rounds telescopes only if
        // the factor is the same in all of them.
        answered.map_or(0, |t| t + 1) == round || self.steps.size.constant().is_some()
    }

    fn put(&self, memory: &mut [&mut [f64]], xi: &[f64], theta: &[f64]) {
        memory[XI].copy_from_slice(xi);
        memory[SENT].fill(0.0);
        if let Some(base) = memory.get_mut(BASE) {
            base.copy_from_slice(theta);
        }
    }

    /// v.
    fn shared(&self, down: &Message, theta: &[f64]) -> Vec<f64> {
        if self.is_told() {
            return down.part(Part::Direction).to_vec();
        }
        let phase = self.steps.of(down.round);
        (0..theta.len()).map(self.mean_between(&phase, down.part(Part::Model), theta)).collect()
    }

    fn settle(&self, round: u64, xi: &mut [f64], v: &[f64], own: Option<&[f64]>) {
        let zero = vec![0.0; xi.len()];
        ControlVariate::settle(self, &self.steps.of(round), xi, |i| v[i], own.unwrap_or(&zero));
    }
}

#[cfg(test)]
mod tests {
    use fedsa::kernel::{Chunk, Isa, LANES, Lanes};
    use fedsa::local::{Last, stride};
    use fedsa::sampling::Sampling;
    use fedsa::schedule::{Decay, LocalSteps, Per, StepSchedule, StepSize};
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    use super::*;

    /// Agents of two blocks, some with missed rounds or lost answers, have the bits of batches of one agent.
    #[test]
    fn what_a_rule_answers_for_an_agent_does_not_depend_on_who_shares_the_batch() {
        const N: usize = 11;
        let field = Garnet::default().with_agents(N).field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let size = StepSize::Decaying(Decay::new(0.3).with_power(0.6).with_per(Per::Step));
        let steps = StepSchedule { size, local: LocalSteps::Fixed(3) };
        let (mean_from, share) = (MeanSource::FromModel, SubtractedShare::Acknowledged);
        let rule = ControlVariate { steps, alpha_g: 1.0, talk_probability: None, control_step: 1.0, mean_from, share };
        let (d, stride) = (field.dim(), stride(&rule, field.dim()));
        let kept: Vec<Chunk> = (0..N * stride).map(|i| Chunk([0.1 * i as f64; 8])).collect();
        let down = Message::one(7, 0, Part::Model, vec![0.5; d]);
        let answers = |agents: &[usize], memory: &mut [Chunk]| {
            let (mut blocks, mut out) = (vec![Lanes::new(d, field.chain_len()); agents.len().div_ceil(LANES)], Outbox::new(d));
            let mut batch = AgentBatch::new(&field, 3, &mut blocks, agents, agents[0], memory, stride);
            agents.iter().enumerate().for_each(|(l, c)| {
                batch.set_last(l, Last { round: Some(6 - *c as u64 % 3), is_included: c % 2 == 0 });
            });
            out.clear(agents.len());
            rule.answer(&mut batch, &down, &mut out).unwrap();
            out.rows(0..agents.len())
        };
        let mut together = kept.clone();
        let all = answers(&(0..N).collect::<Vec<_>>(), &mut together);
        for c in 0..N {
            let mut own = kept[c * stride..(c + 1) * stride].to_vec();
            assert_eq!(answers(&[c], &mut own), all[c * d..(c + 1) * d], "agent {c}");
            assert_eq!(own, together[c * stride..(c + 1) * stride], "agent {c}");
        }
    }
}
