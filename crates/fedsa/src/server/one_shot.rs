//! `theta = theta_0 + S v`, v the mean of what the agents that answered have moved by (one-shot averaging).

use super::{Ask, Next, Received, Server};
use crate::error::Result;
use crate::message::{Message, Part};
use crate::saved::{packed, unpacked};
use crate::schedule::StepSchedule;

/// Asks all agents for the sum of their moves, and averages over those whose answers arrived: what an agent sends contains
/// all its earlier moves, so that a lost answer says nothing about later ones. Without any answer theta does not change.
#[derive(Debug, Clone)]
pub struct OneShotServer {
    /// The last average.
    pub theta: Vec<f64>,
    /// `theta_0`.
    pub start: Vec<f64>,
    /// `p_c`.
    pub weights: Vec<f64>,
    /// Step sizes and local steps, for the scale of what agents send.
    pub steps: StepSchedule,
}

impl Server for OneShotServer {
    fn open(&mut self, t: u64) -> Ask {
        Ask { to: None, down: Message { round: t, exchange: 0, parts: Vec::new() }, own: None }
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
