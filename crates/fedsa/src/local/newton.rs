//! The client half of Newton's method: gradient, Hessian, and losses along a step.

use super::line_search::Trials;
use super::point::Point;
use super::{Agent, LocalContext};
use crate::error::Result;
use crate::message::{Body, Message, Part};
use crate::protocol::refused;

/// In the first exchange the agent sends `grad f_c(theta_t)`, d numbers, and the lower triangle of `Hess f_c(theta_t)`,
/// d (d + 1) / 2 numbers. In the second it sends the losses `f_c(theta_t + s p)` for the trial steps s, of which the first
/// is 0, followed by the slope `p^T grad f_c(theta_t)`.
#[derive(Debug, Clone)]
pub struct NewtonAgent {
    /// The trial steps s.
    pub trials: Trials,
    /// Where the agent was last asked.
    point: Point,
}

impl NewtonAgent {
    /// The agent before its first round, with these trial steps.
    pub fn new(trials: Trials) -> Self {
        Self { trials, point: Point::default() }
    }
}

impl Agent for NewtonAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            self.point = Point::asked(at, down);
            let lower = at.hessian_triangle(&self.point.theta);
            return Ok(vec![(Part::Gradient, Body::Numbers(self.point.gradient.clone())), (Part::Hessian, Body::Numbers(lower))]);
        }
        let p = down.part(Part::Step);
        if self.point.theta.len() != p.len() {
            return Err(refused("a step before the first model", "the exchanges of a round in their order"));
        }
        Ok(vec![(Part::Losses, Body::Numbers(self.trials.answer(at, &self.point.theta, &self.point.gradient, p)))])
    }

    fn save(&self) -> Vec<u8> {
        self.point.save()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.point = Point::restored(bytes, "a Newton agent")?;
        Ok(())
    }
}
