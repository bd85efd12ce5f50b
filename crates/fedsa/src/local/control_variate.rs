//! Drift `xi_c`: control variates (\[S\] Alg. 2).

use super::plain::direction;
use super::{Batch, Client, Last, Memory, Outbox};
use crate::error::{BadInput, Result};
use crate::message::{Message, Part, TELL};
use crate::random::Purpose;
use crate::schedule::{Leg, Steps};

/// H local steps with drift `xi_c`; sends `v_c`; then `xi_c += gain (v - v_c)`.
///
/// What an agent must learn is v, the mean over what arrived. How, and what it then
/// subtracts, is [`Learns`]; over an exact link all ways agree and `sum_c p_c xi_c`
/// stays 0.
#[derive(Debug, Clone)]
pub struct ControlVariate {
    /// Step sizes and local steps.
    pub steps: Steps,
    /// The server's global step size.
    pub alpha_g: f64,
    /// `None` with a fixed period: the gain is 1. With random talk of probability
    /// p the gain is `p H`, so that `xi_c += (p / eta) (theta_{t+1} - theta_{c,H})`.
    pub talk_probability: Option<f64>,
    /// The share of the difference by which a control moves.
    pub control_step: f64,
    /// How an agent learns v.
    pub learns: Learns,
}

/// How an agent learns the round's mean direction v, and what it takes for its own.
///
/// With full participation the next round's model says v at no cost,
/// `v = (theta_{t+1} - theta_t) / (alpha_g E)`; until then the agent keeps `theta_t` and
/// what it sent. The rounding of the model, at most `2^-53 |theta| / (alpha_g E)` a round,
/// then goes into `sum_c p_c xi_c`, and is not corrected. With partial participation the
/// server tells its participants v at the round's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learns {
    /// From the next model; subtracts the direction that it computed (\[S\] to the letter).
    FromModel,
    /// It is told v; subtracts the direction that it computed.
    Told,
    /// It is told v and whether its message arrived: subtracts what the server decoded,
    /// or nothing. `sum_c p_c xi_c` stays 0 whatever the link alters or loses.
    Acknowledged,
    /// It sends `c_c = v_c - xi_c`, the mean of its own operator over the leg, and sets
    /// `xi_c += gain (v - c_c - xi_c)`. What a link adds to v enters `sum_c p_c xi_c` for one
    /// round and is then forgotten, where [`Learns::FromModel`] adds it up for ever. The
    /// same as the others over an exact link; over a noisy one the noise is that of
    /// `c_c`, which does not vanish at `theta*` when agents differ.
    Afresh,
}

// What an agent keeps: xi_c; what it sent in the last round it took part in, and theta_t of that round.
const XI: usize = 0;
const SENT: usize = 1;
const BASE: usize = 2;

impl ControlVariate {
    fn gain(&self, leg: &Leg) -> f64 {
        self.control_step * self.talk_probability.map_or(1.0, |p| p * leg.len as f64)
    }

    /// `xi_c + gain (v - v_c)` of the last round, which led from `base` to `theta`.
    fn settled(&self, last: &Leg, i: usize, xi: &[f64], sent: &[f64], base: &[f64], theta: &[f64]) -> f64 {
        let v = (theta[i] - base[i]) / (self.alpha_g * last.sum);
        xi[i] + self.gain(last) * (v - sent[i])
    }

    fn is_told(&self) -> bool {
        self.learns != Learns::FromModel
    }
}

impl Client for ControlVariate {
    fn memory(&self) -> usize {
        if self.is_told() { 2 } else { 3 }
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn wants(&self, exchange: u8) -> Option<Part> {
        match exchange {
            0 => Some(Part::Model),
            TELL if self.is_told() => Some(Part::Direction),
            _ => None,
        }
    }

    fn model_kept(&self) -> Option<usize> {
        (!self.is_told()).then_some(BASE)
    }

    fn can_follow(&self, round: u64, last: Last) -> Result<()> {
        // What a round adds, `gain v = (gain / (alpha_g E)) (theta_{t+1} - theta_t)`, telescopes over rounds only where that
        // factor is the same in all of them.
        let is_next = last.round.map_or(0, |t| t + 1) == round;
        if is_next || self.is_told() || self.steps.size.constant().is_some() {
            return Ok(());
        }
        let what = format!("round {round} after {}", last.round.map_or("none".into(), |t| format!("round {t}")));
        Err(BadInput::new("message", what, "the next round: with step sizes that change, the rounds between are not known from this model"))
    }

    fn needs_arrivals(&self) -> bool {
        self.learns == Learns::Acknowledged
    }

    fn answer(&self, batch: &mut Batch<'_>, down: &Message, out: &mut Outbox) {
        let theta = down.part(Part::Model);
        // xi_c += gain (v - v_c), with v of the last round as this model tells it: of all rounds since the agent's last,
        // where it missed some. What was lost is not in v.
        if !self.is_told() && down.round > 0 {
            let last = batch.last(down.round);
            let leg = self.steps.of(last.round.unwrap_or(0));
            for l in batch.lanes() {
                let [xi, sent, base] = batch.lane(l).memory;
                if !last.is_included {
                    sent.fill(0.0);
                }
                for i in 0..theta.len() {
                    xi[i] = self.settled(&leg, i, xi, sent, base, theta);
                }
            }
        }
        // theta_{c,h} = theta_{c,h-1} + eta_h (g_c(theta_{c,h-1}, z_h) + xi_c)
        let leg = self.steps.of(down.round);
        batch.open_streams(Purpose::Sample, down.round);
        batch.start_at(theta);
        for l in batch.lanes() {
            let agent = batch.lane::<1>(l);
            agent.drift.copy_from_slice(agent.memory[XI]);
        }
        batch.steps(&leg);
        // v_c = (theta_{c,H} - theta_t) / E, or c_c = v_c - xi_c
        for l in batch.lanes() {
            let v = out.send(l, Part::Direction);
            let agent = batch.lane::<2>(l);
            direction(agent.theta, theta, leg.sum, v);
            if self.learns == Learns::Afresh {
                v.iter_mut().zip(agent.memory[XI].iter()).for_each(|(v, xi)| *v -= xi);
            }
            agent.memory[SENT].copy_from_slice(v);
            if !self.is_told() {
                batch.lane::<3>(l).memory[BASE].copy_from_slice(theta);
            }
        }
    }

    fn sent(&self, batch: &mut Batch<'_>, l: usize, sent: &[f64]) {
        if self.learns == Learns::Acknowledged {
            batch.lane::<2>(l).memory[SENT].copy_from_slice(sent);
        }
    }

    fn told(&self, batch: &mut Batch<'_>, down: &Message, arrived: &[bool]) {
        let v = down.part(Part::Direction);
        let gain = self.gain(&self.steps.of(down.round));
        for l in batch.lanes() {
            let [xi, sent] = batch.lane(l).memory;
            let is_in_v = arrived.get(l).copied().unwrap_or(true);
            for i in 0..v.len() {
                xi[i] += match self.learns {
                    Learns::Afresh => gain * (v[i] - sent[i] - xi[i]),
                    Learns::Acknowledged if !is_in_v => gain * v[i],
                    _ => gain * (v[i] - sent[i]),
                };
            }
        }
    }

    fn control(&self, memory: &Memory<'_>, theta: &[f64], next_round: u64) -> Option<Vec<f64>> {
        let xi = memory.vector(XI);
        if self.is_told() || next_round == 0 {
            return Some(xi.to_vec());
        }
        let (sent, base, last) = (memory.vector(SENT), memory.vector(BASE), self.steps.of(next_round - 1));
        Some((0..theta.len()).map(|i| self.settled(&last, i, xi, sent, base, theta)).collect())
    }
}
