//! The client half of Newton's method: gradient, Hessian, and losses along a step.

use faer::Mat;

use super::line_search::Trials;
use super::{Agent, At};
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
    /// `theta_t` of the last question; empty before the first.
    theta: Vec<f64>,
    /// `grad f_c(theta_t)`.
    gradient: Vec<f64>,
}

impl NewtonAgent {
    /// The agent before its first round, with these trial steps.
    pub fn new(trials: Trials) -> Self {
        Self { trials, theta: Vec::new(), gradient: Vec::new() }
    }
}

impl Agent for NewtonAgent {
    fn answer(&mut self, at: &At<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            self.theta = down.part(Part::Model).to_vec();
            let d = self.theta.len();
            let (mut gradient, mut hessian) = (vec![0.0; d], Mat::zeros(d, d));
            at.gradient(&self.theta, &mut gradient);
            at.hessian(&self.theta, &mut hessian);
            let lower = (0..d).flat_map(|i| (0..=i).map(move |j| (i, j))).map(|at| hessian[at]).collect();
            self.gradient.clone_from(&gradient);
            return Ok(vec![(Part::Gradient, Body::Numbers(gradient)), (Part::Hessian, Body::Numbers(lower))]);
        }
        let p = down.part(Part::Step);
        if self.theta.len() != p.len() {
            return Err(refused("a step before the first model", "the exchanges of a round in their order"));
        }
        Ok(vec![(Part::Losses, Body::Numbers(self.trials.answer(at, &self.theta, &self.gradient, p)))])
    }

    fn save(&self) -> Vec<u8> {
        self.theta.iter().chain(&self.gradient).flat_map(|x| x.to_le_bytes()).collect()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || numbers.len() % 2 != 0 {
            return Err(crate::error::BadInput::new("checkpoint", "not the state of a Newton agent", "a checkpoint of the same settings"));
        }
        let mut numbers: Vec<f64> = numbers.iter().map(|b| f64::from_le_bytes(*b)).collect();
        self.gradient = numbers.split_off(numbers.len() / 2);
        self.theta = numbers;
        Ok(())
    }
}
