//! Agents that compute alone: typed state of their own, an objective instead of samples.

use std::cell::Cell;

use faer::Mat;

use crate::error::Result;
use crate::message::{Body, Message, Part};
use crate::problem::calls::Calls;
use crate::problem::objective::Objective;
use crate::random::{Key, Purpose, Stream};

/// One agent of a method whose agents do not work side by side in lanes.
pub trait Agent: Send {
    /// Answers a question with the parts that the method's protocol wants, in their order.
    ///
    /// # Errors
    /// When the question cannot be answered, with the reason; the agent is then as it was.
    fn answer(&mut self, at: &At<'_>, down: &Message) -> Result<Vec<(Part, Body)>>;
    /// Learns what the server will read of its answer, or that the link's budget carried none; not called where
    /// nothing is altered.
    fn sent(&mut self, _parts: Option<&[(Part, Body)]>) {}
    /// Hears what is told at a round's end.
    fn told(&mut self, _at: &At<'_>, _down: &Message) {}
    /// All that it remembers.
    fn save(&self) -> Vec<u8>;
    /// Puts back what [`Agent::save`] gave.
    ///
    /// # Errors
    /// When the bytes are not the state of such an agent, which then stays as it is.
    fn restore(&mut self, bytes: &[u8]) -> Result<()>;
}

/// Where an agent computes: its place in the federation, its objective, and what its link carries.
pub struct At<'a> {
    /// Who it is in the federation: the key of its draws.
    pub agent: usize,
    /// The round.
    pub round: u64,
    /// How many bits its link carries in this exchange, known before it chooses what to send; no limit when absent.
    pub bits: Option<u64>,
    seed: u64,
    objective: &'a dyn Objective,
    /// Its place in the data.
    place: usize,
    calls: Cell<Calls>,
}

impl<'a> At<'a> {
    /// Agent `agent`, whose data are those of place `place` in `objective`.
    pub fn new(objective: &'a dyn Objective, place: usize, agent: usize, seed: u64, round: u64, bits: Option<u64>) -> Self {
        Self { agent, round, bits, seed, objective, place, calls: Cell::default() }
    }

    /// `f_c(theta)`.
    pub fn loss(&self, theta: &[f64]) -> f64 {
        self.count(|calls| calls.losses += 1);
        self.objective.loss(self.place, theta)
    }

    /// `out = grad f_c(theta)`, d components.
    pub fn gradient(&self, theta: &[f64], out: &mut [f64]) {
        self.count(|calls| calls.gradients += 1);
        self.objective.gradient(self.place, theta, out);
    }

    /// `out = Hess f_c(theta)`, d x d.
    pub fn hessian(&self, theta: &[f64], out: &mut Mat<f64>) {
        self.count(|calls| calls.hessians += 1);
        self.objective.hessian(self.place, theta, out);
    }

    /// `out = Hess f_c(theta) v`, d components.
    pub fn hessian_vector(&self, theta: &[f64], v: &[f64], out: &mut [f64]) {
        self.count(|calls| calls.hessian_vectors += 1);
        self.objective.hessian_vector(self.place, theta, v, out);
    }

    /// The agent's stream of this round for a purpose.
    pub fn stream(&self, purpose: Purpose) -> Stream {
        Key::new(self.seed, purpose, self.round).stream(self.agent)
    }

    /// What was asked of the objective so far.
    pub fn calls(&self) -> Calls {
        self.calls.get()
    }

    fn count(&self, add: impl Fn(&mut Calls)) {
        let mut calls = self.calls.get();
        add(&mut calls);
        self.calls.set(calls);
    }
}
