//! The server half of [`crate::adaptive_newton`]: quasi-Newton directions from difference pairs. Their initial matrix comes from gradients,
//! from the agents, or from a whole Hessian, as [`super::curvature`] decides.

use faer::Mat;
use fedsa::error::Result;
use fedsa::linalg::{self, along, dot, go_along, minus, norm_sq};
use fedsa::message::{Message, Part};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server, ServerFacts};
use serde::{Deserialize, Serialize};

use super::curvature::{InitialMatrix, MatrixChoice, PriorKnowledge, WayVerdict};
use crate::local::line_search::UNKNOWN_LOSS;
use crate::server::history::{History, is_curved};

/// A trial point is accepted if the loss falls by this share of the decrease predicted by the slope.
const DECREASE: f64 = 1e-4;
/// If rounding hides the decrease of the loss (relative to the loss), it is accepted if the slope falls to this share.
const FLATTER: f64 = 0.9;
const ROUNDING: f64 = 1e-12;
/// A mean loss above this is unknown: an agent answered with [`UNKNOWN_LOSS`] and no gradient. Agents may have small weights.
const OVERFLOW: f64 = 1e-15 * UNKNOWN_LOSS;
/// The whole Hessian of a quadratic objective is doubted if it misses differences y of gradients by this share.
const MISSES: f64 = 0.5;
/// The exchanges.
const AT_MODEL: u8 = 0;
const DIRECTIONS: u8 = 1;
const HESSIANS: u8 = 2;
const WHOLE: u8 = 3;

/// The confidence in the answers at theta, or in the Hessian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Confidence {
    /// All agents have answered once.
    Answered,
    /// Later answers contradict them, and they are requested again.
    Doubted,
    /// Two answers were equal.
    Confirmed,
}

/// The trial along a direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Trial {
    /// p, d components; empty before the first direction.
    direction: Vec<f64>,
    /// `g^T p`, below 0.
    slope: f64,
    /// The tried share of p.
    step: f64,
    /// The number of rejected shares.
    refused: u32,
}

/// Directions by the two-loop recursion of L-BFGS around an initial matrix, and trial points with gradients instead of a line search.
pub struct AdaptiveNewtonServer {
    /// The rule's prior knowledge.
    prior: PriorKnowledge,
    /// m.
    memory: usize,
    /// The most rejected shares of a direction.
    shrinks: u32,
    /// The rule's record.
    choice: MatrixChoice,
    /// `theta_t`: the last accepted point, with its mean loss and gradient; no gradient before the first answer.
    theta: Vec<f64>,
    loss: f64,
    gradient: Vec<f64>,
    confidence: Confidence,
    trial: Trial,
    /// The difference pairs (s, y).
    history: History,
    /// The factor of the initial matrix, for each source.
    scale: [f64; 3],
    /// The mean Hessian as a lower triangle, row by row; empty without one.
    hessian: Vec<f64>,
    hessian_confidence: Confidence,
    failed: u64,
}

impl AdaptiveNewtonServer {
    /// The server before its first round; it keeps `memory` pairs.
    pub fn new(theta: Vec<f64>, prior: PriorKnowledge, memory: usize, shrinks: u32) -> Self {
        let (choice, trial) = (MatrixChoice::new(prior.first), Trial::default());
        let (gradient, hessian, history) = (Vec::new(), Vec::new(), History::default());
        let (loss, confidence, hessian_confidence, scale) = (0.0, Confidence::Answered, Confidence::Answered, [1.0; 3]);
        Self {
            prior,
            memory,
            shrinks,
            choice,
            theta,
            loss,
            gradient,
            confidence,
            trial,
            history,
            scale,
            hessian,
            hessian_confidence,
            failed: 0,
        }
    }

    /// Handles the mean loss and gradient at a point that all agents have answered.
    fn heard(&mut self, point: Vec<f64>, loss: f64, g: Vec<f64>, of: &Received<'_>) -> Next {
        let round = of.round;
        // Of a difference of two mean losses.
        let rounding = ROUNDING * loss.abs().max(self.loss.abs()) + 2.0 * of.rounding;
        if self.gradient.is_empty() {
            return self.begin(point, loss, g, round);
        }
        if self.confidence == Confidence::Doubted {
            return self.heard_again(point, loss, g, round);
        }
        if self.trial.direction.is_empty() {
            return self.turn(round);
        }
        let slope = dot(&g, &self.trial.direction);
        if self.trial.refused == 0 && self.choice.now != InitialMatrix::Gradients && loss < OVERFLOW {
            self.rescale(slope);
        }
        let Trial { slope: before, step, .. } = self.trial;
        let falls = loss <= self.loss + DECREASE * step * before;
        let flattens = loss <= self.loss + rounding && slope.abs() <= FLATTER * before.abs();
        let (s, y) = (minus(&point, &self.theta), minus(&g, &self.gradient));
        let is_convex = loss >= OVERFLOW || self.is_convex(&s, loss, &g, rounding);
        if !(falls || flattens) {
            self.shorten(loss, slope, is_convex);
            return Next::Done { tell: None };
        }
        if self.prior.is_quadratic && self.hessian_confidence == Confidence::Answered && self.misses(&s, &y) {
            self.hessian_confidence = Confidence::Doubted;
        }
        if is_convex && is_curved(&s, &y) {
            self.history.push((s, y), self.memory);
        }
        (self.theta, self.loss, self.gradient, self.confidence) = (point, loss, g, Confidence::Answered);
        match self.choice.moved(self.norm(), &self.prior) {
            WayVerdict::Stay => {}
            WayVerdict::Change(source) => {
                self.hessian.clear();
                self.choice.take(source);
            }
            WayVerdict::Renew => {
                self.hessian.clear();
                self.choice.take(InitialMatrix::Hessians);
            }
        }
        self.turn(round)
    }

    /// Handles the first answers at a point.
    fn begin(&mut self, point: Vec<f64>, loss: f64, g: Vec<f64>, round: u64) -> Next {
        (self.theta, self.loss, self.gradient, self.confidence) = (point, loss, g, Confidence::Answered);
        self.choice.begin(self.norm(), &self.prior);
        self.turn(round)
    }

    /// Handles the repeated answers at theta. If they differ, one was wrong: the method restarts there, without its conclusions from wrong
    /// answers.
    fn heard_again(&mut self, point: Vec<f64>, loss: f64, g: Vec<f64>, round: u64) -> Next {
        if loss == self.loss && g == self.gradient {
            self.confidence = Confidence::Confirmed;
            if self.trial.refused > self.shrinks {
                self.give_up();
            }
            return Next::Done { tell: None };
        }
        self.history.pairs.clear();
        self.hessian.clear();
        self.scale = [1.0; 3];
        self.begin(point, loss, g, round)
    }

    /// Whether a convex function can have these values and gradients at theta and at `theta + s`: it is above both tangents.
    fn is_convex(&self, s: &[f64], loss: f64, g: &[f64], rounding: f64) -> bool {
        let rises = loss - self.loss;
        (dot(&self.gradient, s) - rounding..=dot(g, s) + rounding).contains(&rises)
    }

    /// Whether there is a whole Hessian H with `||y - H s||` above a share of `||y||`.
    fn misses(&self, s: &[f64], y: &[f64]) -> bool {
        let mut rest = y.to_vec();
        for i in 0..if self.hessian.is_empty() { 0 } else { s.len() } {
            let row = &self.hessian[i * (i + 1) / 2..(i + 1) * (i + 2) / 2];
            rest[i] -= dot(row, &s[..=i]);
            go_along(&mut rest[..i], -s[i], &row[..i]);
        }
        !self.hessian.is_empty() && norm_sq(&rest) > MISSES.powi(2) * norm_sq(y)
    }

    fn norm(&self) -> f64 {
        norm_sq(&self.gradient).sqrt()
    }

    /// After the first trial of a direction, with the slope there: scales the initial matrix down, or back up to 1, towards the minimum of
    /// a parabola along the direction.
    fn rescale(&mut self, slope: f64) {
        let before = self.trial.slope;
        let minimum = if slope > before { before / (before - slope) } else { 2.0 };
        let scale = &mut self.scale[self.choice.now.place()];
        *scale = (*scale * minimum.clamp(0.4, 1.6).sqrt()).clamp(0.02, 1.0);
    }

    /// Drops the memory after too many rejections.
    fn give_up(&mut self) {
        self.failed += 1;
        self.history.pairs.clear();
        self.hessian.clear();
        let scale = &mut self.scale[InitialMatrix::Gradients.place()];
        *scale = (*scale * self.trial.step).max(1e-90);
        self.choice.take(InitialMatrix::Gradients);
        self.along(self.steepest());
    }

    /// Rejects a trial. The next share is the minimum of the cubic through losses and slopes, from a tenth to half of the last one. After
    /// too many rejections, or if no convex function has the answers at theta and at the trial point, an agent may have answered wrongly at
    /// theta. All agents are then asked again there, once.
    fn shorten(&mut self, loss: f64, slope: f64, is_convex: bool) {
        let Trial { slope: before, step, .. } = self.trial;
        self.trial.refused += 1;
        let are_too_many = self.trial.refused > self.shrinks;
        if self.confidence == Confidence::Answered && (are_too_many || !is_convex) {
            self.confidence = Confidence::Doubted;
        } else if are_too_many {
            return self.give_up();
        }
        if are_too_many {
            return;
        }
        let theta = 3.0 * (self.loss - loss) / step + before + slope;
        let root = (theta * theta - before * slope).sqrt();
        let cubic = step * (1.0 - (slope + root - theta) / (slope - before + 2.0 * root));
        // An overflowing loss says nothing of the shape.
        let next = if cubic.is_finite() && loss < OVERFLOW { cubic } else { 0.1 * step };
        self.trial.step = next.clamp(0.1 * step, 0.5 * step);
    }

    /// Starts the direction at the current iterate: asks the agents, or computes it.
    fn turn(&mut self, round: u64) -> Next {
        self.trial = Trial::default();
        if self.gradient.iter().all(|g| *g == 0.0) {
            return Next::Done { tell: None };
        }
        let ask = |exchange: u8, parts| Next::Ask(Broadcast { to: None, down: Message { round, exchange, parts }, own: None });
        // At the target nothing more is requested, because a session that stops there would not use it.
        let goes_on = self.norm() > self.prior.tolerance;
        match self.choice.now {
            InitialMatrix::Hessians if goes_on && (self.hessian.is_empty() || self.hessian_confidence == Confidence::Doubted) => {
                ask(HESSIANS, Vec::new())
            }
            InitialMatrix::Agents if goes_on => {
                let (q, _) = self.first_loop();
                Next::Ask(Broadcast { to: None, down: Message::one(round, DIRECTIONS, Part::Gradient, q), own: None })
            }
            _ => {
                self.by_server();
                Next::Done { tell: None }
            }
        }
    }

    /// Steps to the minimum of a quadratic objective, with all agents' Hessian. The gradient there is 0 up to rounding. The next round
    /// measures the rest.
    fn at_minimum(&mut self) {
        if self.hessian.is_empty() || self.trial.direction.is_empty() {
            return;
        }
        let trial = std::mem::take(&mut self.trial);
        go_along(&mut self.theta, 1.0, &trial.direction);
        self.gradient.clear();
    }

    /// Handles a mean Hessian. A Hessian of some agents differs from the Hessian of all, and asking again would not help.
    fn take_hessian(&mut self, hessian: Vec<f64>, is_whole: bool) {
        self.choice.paid(0.5 * (self.theta.len() as f64 + 1.0));
        let is_sure = !is_whole || hessian == self.hessian;
        self.hessian_confidence = if is_sure { Confidence::Confirmed } else { Confidence::Answered };
        self.hessian = hessian;
        self.history.pairs.clear();
        self.scale[InitialMatrix::Hessians.place()] = 1.0;
        self.by_server();
    }

    /// The direction that needs no answer of the agents.
    fn by_server(&mut self) {
        let (q, shares) = self.first_loop();
        let r = if self.hessian.is_empty() {
            match self.history.scale() {
                Some(scale) => scaled(&q, scale),
                None => return self.along(self.steepest()),
            }
        } else {
            let d = q.len();
            let lower = &self.hessian;
            let h = Mat::from_fn(d, d, |i, j| lower[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)]);
            match linalg::solve_definite(&h, &q) {
                Some(r) => scaled(&r, self.scale[InitialMatrix::Hessians.place()]),
                None => return self.without_hessians(),
            }
        };
        self.second_loop(r, &shares);
    }

    /// Stops requesting Hessians, because the Hessian is not positive definite.
    fn without_hessians(&mut self) {
        self.hessian.clear();
        self.prior.may[InitialMatrix::Hessians.place()] = false;
        self.choice.take(InitialMatrix::Gradients);
        self.along(self.steepest());
    }

    /// `-c g` with `c ||g||` at most 1.
    fn steepest(&self) -> Vec<f64> {
        scaled(&self.gradient, -self.scale[InitialMatrix::Gradients.place()] * (1.0 / self.norm()).min(1.0))
    }

    /// [`History::first_loop`] of the gradient: q and the coefficients.
    fn first_loop(&self) -> (Vec<f64>, Vec<f64>) {
        let mut q = self.gradient.clone();
        let shares = self.history.first_loop(&mut q);
        (q, shares)
    }

    /// The direction by [`History::second_loop`] from r, the initial matrix times q.
    fn second_loop(&mut self, mut r: Vec<f64>, shares: &[f64]) {
        self.history.second_loop(&mut r, shares);
        self.along(scaled(&r, -1.0));
    }

    /// Takes a direction. If it does not lead downhill, drops the pairs and takes the steepest one.
    fn along(&mut self, p: Vec<f64>) {
        let slope = dot(&self.gradient, &p);
        let is_downhill = slope < 0.0 && p.iter().all(|p| p.is_finite());
        let direction = if is_downhill { p } else { self.steepest() };
        if !is_downhill {
            self.history.pairs.clear();
        }
        let slope = dot(&self.gradient, &direction);
        self.trial = Trial { direction, slope, step: 1.0, refused: 0 };
    }
}

fn scaled(v: &[f64], a: f64) -> Vec<f64> {
    v.iter().map(|v| a * v).collect()
}

impl Server for AdaptiveNewtonServer {
    fn open(&mut self, t: u64) -> Broadcast {
        let tries = self.confidence != Confidence::Doubted && !self.trial.direction.is_empty();
        let point = if tries { along(&self.theta, self.trial.step, &self.trial.direction) } else { self.theta.clone() };
        let is_whole = self.gradient.is_empty() && self.hessian.is_empty() && self.prior.begins_whole();
        Broadcast { to: None, down: Message::one(t, if is_whole { WHOLE } else { AT_MODEL }, Part::Model, point), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        match got.exchange {
            AT_MODEL | WHOLE => {
                self.choice.paid(2.0);
                // Losses and gradients of some agents are not comparable with those of all, so the question is repeated.
                if !got.arrived.is_empty() {
                    return Next::Done { tell: None };
                }
                let (loss, g) = (got.mean(Part::Losses)[0], got.mean(Part::Gradient));
                let point = got.down.part(Part::Model).to_vec();
                if got.exchange == AT_MODEL {
                    return self.heard(point, loss, g, got);
                }
                (self.theta, self.loss, self.gradient, self.confidence) = (point, loss, g, Confidence::Answered);
                self.choice.begin(self.norm(), &self.prior);
                if self.norm() > 0.0 {
                    self.take_hessian(got.mean(Part::Hessian), true);
                    self.at_minimum();
                }
                Next::Done { tell: None }
            }
            DIRECTIONS => {
                self.choice.paid(2.0);
                let r = scaled(&got.mean(Part::Direction), -self.scale[InitialMatrix::Agents.place()]);
                let (_, shares) = self.first_loop();
                self.second_loop(r, &shares);
                Next::Done { tell: None }
            }
            _ => {
                // A mean over some agents is too small; the scale compensates for this.
                self.take_hessian(got.mean(Part::Hessian), got.arrived.is_empty());
                if self.prior.is_quadratic && got.arrived.is_empty() {
                    self.at_minimum();
                }
                Next::Done { tell: None }
            }
        }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts { failed_searches: Some(self.failed), ..ServerFacts::default() }
    }

    fn state(&self) -> Vec<u8> {
        let numbers = (self.loss, self.failed, self.scale, self.prior.may, self.confidence, self.hessian_confidence);
        packed(&(&self.theta, &self.gradient, &self.trial, &self.hessian, numbers, &self.choice, &self.history))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let numbers;
        (self.theta, self.gradient, self.trial, self.hessian, numbers, self.choice, self.history) = unpacked(state)?;
        (self.loss, self.failed, self.scale, self.prior.may, self.confidence, self.hessian_confidence) = numbers;
        Ok(())
    }
}
