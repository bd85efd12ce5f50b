//! The server half of methods that move along a direction, by a fixed step or by federated backtracking.

use fedsa::error::Result;
use fedsa::linalg::along;
use fedsa::message::{Body, Message, Part};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server, ServerFacts};
use serde::{Deserialize, Serialize};

use crate::local::line_search::{LineSearch, Trials};

/// A rule for directions from mean gradients.
pub trait Direction: Send + Sync {
    /// The point at which gradients are requested; `theta` is the current iterate, d components.
    fn point(&self, theta: &[f64]) -> Vec<f64> {
        theta.to_vec()
    }
    /// The direction at a point with mean gradient g, which is not 0. `is_whole` says whether g includes every agent's gradient.
    fn direction(&mut self, point: &[f64], g: &[f64], is_whole: bool) -> Vec<f64>;
    /// The unit of shares of this direction for [`LineSearch::step`], by default 1. Gradients must then be at the iterate.
    fn unit(&self) -> Option<f64> {
        Some(1.0)
    }
    /// Called at the end of a round: the iterate moved from `from` to `to`, by the share `step` of the direction. `is_whole` says whether
    /// all agents answered with gradients and losses, which otherwise may not match.
    fn moved(&mut self, _from: &[f64], _to: &[f64], _step: f64, _is_whole: bool) {}
    /// Called instead if no trial step down to `last` was accepted, and the iterate stays at `theta`.
    fn failed(&mut self, _theta: &[f64], _last: f64, _is_whole: bool) {}
    /// The state that influences later directions ([`packed`]).
    fn state(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Restores a state that [`Direction::state`] returned.
    ///
    /// # Errors
    /// When it is not a state of such a rule, which then stays unchanged.
    fn restore(&mut self, _state: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// The rule for the step along a direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Length {
    /// A fixed share of the direction.
    Fixed(f64),
    /// The first trial step that lowers the mean loss enough; without one the iterate stays.
    Search(LineSearch),
    /// The same; without one the iterate moves by the last trial step, and the server counts a failed search.
    SearchOrLast(LineSearch),
}

impl Length {
    /// The trial steps of a line search.
    pub fn trials(&self) -> Option<&Trials> {
        self.search().map(|search| &search.trials)
    }

    fn search(&self) -> Option<&LineSearch> {
        match self {
            Length::Fixed(_) => None,
            Length::Search(search) | Length::SearchOrLast(search) => Some(search),
        }
    }

    /// Handles the mean gradient at theta.
    fn begin(&mut self, gradient: &[f64], is_whole: bool) {
        if let Length::Search(search) | Length::SearchOrLast(search) = self {
            search.begin(gradient, is_whole);
        }
    }
}

/// A round: gradients at a point; if `asks_agents`, the agents' own directions for the mean gradient; and for a line search, losses along
/// the direction.
///
/// A missing gradient or direction counts as zero. If no answer arrives in an exchange, the iterate stays.
///
/// With gradients ahead, agents also answer a step with the gradient at the last accepted trial step. If it is accepted again and all
/// agents answered, the mean gradient of the next round is known, and that round opens with the agents' directions.
pub struct Descent {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// The rule of the direction; unused if `asks_agents`.
    pub rule: Box<dyn Direction>,
    /// Whether the direction is the mean of the agents' directions.
    pub asks_agents: bool,
    /// The length of a step.
    pub length: Length,
    /// The point of this round, as agents decoded it; empty before the first.
    point: Vec<f64>,
    /// Whether every agent's gradient of this round arrived.
    is_whole: bool,
    /// The number of line searches without a step that lowers the loss enough.
    failed: u64,
    /// The state of gradients ahead, if agents send them.
    ahead: Option<Ahead>,
}

/// The state of gradients ahead.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Ahead {
    /// The index of the last accepted trial step.
    trial: usize,
    /// The mean gradient at theta; empty if unknown.
    gradient: Vec<f64>,
}

impl Descent {
    /// The server before its first round.
    pub fn new(theta: Vec<f64>, rule: Box<dyn Direction>, asks_agents: bool, length: Length) -> Self {
        Self { theta, rule, asks_agents, length, point: Vec::new(), is_whole: false, failed: 0, ahead: None }
    }

    /// The same with agents that send gradients ahead, first at the whole step.
    #[must_use]
    pub fn with_gradients_ahead(self) -> Self {
        Self { ahead: Some(Ahead { trial: 1, gradient: Vec::new() }), ..self }
    }

    /// Asks the agents for their directions for the mean gradient g.
    fn ask_directions(&self, round: u64, g: Vec<f64>) -> Broadcast {
        let (model, numbers) = ((Part::Model, Body::Numbers(self.point.clone())), Body::Numbers(g));
        let parts = if self.ahead.is_some() { vec![model, (Part::ExactGradient, numbers)] } else { vec![(Part::Gradient, numbers)] };
        Broadcast { to: None, down: Message { round, exchange: 1, parts }, own: None }
    }

    /// Moves along p, or asks for the losses along it.
    fn along(&mut self, got: &Received<'_>, p: Vec<f64>) -> Next {
        if p.iter().all(|p| *p == 0.0) {
            return Next::Done { tell: None };
        }
        match self.length {
            Length::Fixed(step) => self.step(&p, step, 1.0, self.is_whole),
            _ => {
                let mut down = Message::one(got.round, got.exchange + 1, Part::Step, p);
                down.parts.extend(self.ahead.as_ref().map(|ahead| (Part::Trial, Body::Numbers(vec![ahead.trial as f64]))));
                return Next::Ask(Broadcast { to: None, down, own: None });
            }
        }
        Next::Done { tell: None }
    }

    /// `theta_{t+1} = point + s p`, `share` of the rule's direction.
    fn step(&mut self, p: &[f64], s: f64, share: f64, is_whole: bool) {
        let to = along(&self.point, s, p);
        self.rule.moved(&self.theta, &to, share, is_whole);
        self.theta = to;
    }
}

impl Descent {
    /// After a move by the trial step `taken`: keeps the mean gradient there if agents sent the gradient at this step.
    fn look_ahead(&mut self, got: &Received<'_>, taken: f64) {
        let trials = self.length.trials();
        let Some((ahead, number)) = self.ahead.as_mut().zip(trials.and_then(|trials| trials.number(taken))) else { return };
        if number == ahead.trial && got.arrived.is_empty() {
            ahead.gradient = got.mean(Part::Gradient);
        }
        ahead.trial = number;
    }
}

impl Server for Descent {
    fn open(&mut self, t: u64) -> Broadcast {
        let ahead = self.ahead.as_mut().map(|ahead| std::mem::take(&mut ahead.gradient));
        // A gradient of 0 marks a root, where no agent has a direction.
        if let Some(g) = ahead.filter(|g| g.iter().any(|g| *g != 0.0)) {
            (self.point, self.is_whole) = (self.theta.clone(), true);
            self.length.begin(&g, true);
            return self.ask_directions(t, g);
        }
        Broadcast { to: None, down: Message::one(t, 0, Part::Model, self.rule.point(&self.theta)), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == 0 {
            // If the downlink alters models, gradients are at the point that agents decoded.
            self.point = got.down.part(Part::Model).to_vec();
            let g = got.mean(Part::Gradient);
            self.is_whole = got.arrived.is_empty();
            self.length.begin(&g, self.is_whole);
            if g.iter().all(|g| *g == 0.0) {
                // The point is a root, unless nothing arrived. An extrapolated point is not the iterate.
                if self.is_whole {
                    self.theta.clone_from(&self.point);
                }
                return Next::Done { tell: None };
            }
            if self.asks_agents {
                return Next::Ask(self.ask_directions(got.round, g));
            }
            let p = self.rule.direction(&self.point, &g, self.is_whole);
            return self.along(got, p);
        }
        if self.asks_agents && got.exchange == 1 {
            return self.along(got, got.mean(Part::Direction));
        }
        let (p, losses) = (got.down.part(Part::Step).to_vec(), got.mean(Part::Losses));
        let (Length::Search(search) | Length::SearchOrLast(search)) = &mut self.length else { return Next::Done { tell: None } };
        let (accepted, last) = (search.step(got, self.rule.unit()), search.trials.last());
        // Agents that answer have some loss or slope that is not 0.
        let has_answers = losses.iter().any(|loss| *loss != 0.0);
        self.failed += u64::from(accepted.is_none() && has_answers);
        let is_whole = self.is_whole && got.arrived.is_empty();
        let taken = match (accepted, &self.length) {
            (None, Length::SearchOrLast(_)) if has_answers => Some(last),
            _ => accepted,
        };
        match taken {
            Some(taken) => {
                self.step(&p, taken, taken, is_whole);
                self.look_ahead(got, taken);
            }
            None if has_answers => self.rule.failed(&self.theta, last, is_whole),
            None => {}
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts { failed_searches: self.length.trials().map(|_| self.failed), ..ServerFacts::default() }
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.point, self.failed, self.is_whole, &self.length, &self.ahead, self.rule.state()))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let (theta, point, failed, is_whole, length, ahead, rule): (_, _, _, _, _, _, Vec<u8>) = unpacked(state)?;
        self.rule.restore(&rule)?;
        (self.theta, self.point, self.failed, self.is_whole, self.length, self.ahead) = (theta, point, failed, is_whole, length, ahead);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::directions::{AcceleratedDirection, Momentum};

    /// If the gradient at the extrapolated point is 0, that point is the answer.
    #[test]
    fn a_root_that_momentum_reaches_is_taken() {
        let rule = AcceleratedDirection::new(Momentum::Constant(0.5), 1.0);
        let mut server = Descent::new(vec![0.0], Box::new(rule), false, Length::Fixed(1.0));
        let mut round = |t: u64, g: f64, arrived: &[bool]| {
            let ask = server.open(t);
            let (g, numbers) = ([g], ask.down.part(Part::Model).to_vec());
            let sums: [(Part, &[f64]); 1] = [(Part::Gradient, &g)];
            let got = Received { round: t, exchange: 0, down: &ask.down, sums: &sums, asked: 1.0, arrived, rounding: 0.0, updates: &[] };
            assert!(matches!(server.receive(&got), Next::Done { .. }));
            (numbers[0], server.theta[0])
        };
        assert_eq!(round(0, -1.0, &[]), (0.0, 1.0));
        // Nothing arrived; then a gradient of 0.
        assert_eq!(round(1, 0.0, &[false]), (1.5, 1.0));
        assert_eq!(round(2, 0.0, &[]), (1.5, 1.5));
    }
}
