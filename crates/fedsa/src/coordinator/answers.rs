//! Single answers: their checks, acceptance and refusal.

use super::handed_in::{Accepted, AgentStatus, Checked, Refusal};
use super::{Coordinator, Replies, Reply, Step};
use crate::error::{Error, Result};
use crate::linalg::norm_sq;
use crate::message::{Body, Message, Part};
use crate::protocol::{are_finite, refused};
use crate::record::Sent;

impl Coordinator {
    /// Whether an agent may still answer, without regard to marks.
    pub(crate) fn standing(&self, agent: usize) -> AgentStatus {
        if self.is_excluded(agent) {
            return AgentStatus::Excluded;
        }
        match self.place_of(agent) {
            Err(_) => AgentStatus::NotAsked,
            Ok(_) if self.state.absent.binary_search(&agent).is_ok() => AgentStatus::Unreachable,
            Ok(at) if self.state.replies.of(at).is_some() => AgentStatus::Answered,
            Ok(_) => AgentStatus::Awaited,
        }
    }

    /// The weight of the open question's participants, and of those whose answers count.
    pub(crate) fn weight_answered(&self) -> (f64, f64) {
        if let Some(weight) = self.weight_of_masked() {
            return weight;
        }
        let (asked, weights) = (self.asked(), self.federation.weights());
        let has_answered = |i: usize| self.state.replies.of(i).is_some();
        let answered = asked.iter().enumerate().filter(|(i, _)| has_answered(*i)).map(|(_, c)| weights[*c]).sum();
        (super::asked_weight(weights, asked), answered)
    }

    /// The point that the open question is about: its model, or the iterate if agents answer with systems.
    pub(crate) fn point(&self) -> Option<&[f64]> {
        let down = &self.asked_about().down;
        let has_systems = self.protocol.wanted(down.exchange).iter().any(|want| want.part == Part::System);
        if has_systems { Some(self.theta()) } else { down.find(Part::Model)?.numbers() }
    }

    /// The norm of `sum p_c x_c / sum p_c` over the accepted answers to the open question, with the part x.
    pub(crate) fn mean_answer(&self) -> Option<(Part, f64)> {
        if self.is_masked {
            return self.mean_of_masked();
        }
        let vectors = [Part::Operator, Part::Gradient, Part::ExactGradient, Part::Direction, Part::System];
        let replies = self.state.replies.each();
        let answers = || self.asked().iter().zip(replies).filter_map(|(c, reply)| Some((*c, &reply.as_ref()?.parts)));
        let (_, first) = answers().next()?;
        let part = vectors.into_iter().find(|part| first.iter().any(|(own, _)| own == part))?;
        let (mut mean, mut weight) = (vec![0.0; self.federation.dim()], 0.0);
        for (c, parts) in answers() {
            let (_, body) = parts.iter().find(|(own, _)| *own == part)?;
            let of_system;
            let x = if part == Part::System {
                of_system = operator_of(body, self.theta())?;
                &of_system[..]
            } else {
                body.numbers().filter(|x| x.len() == mean.len())?
            };
            let p = self.federation.weights()[c];
            weight += p;
            mean.iter_mut().zip(x).for_each(|(mean, x)| *mean += p * x);
        }
        let norm = norm_sq(&mean).sqrt() / weight;
        norm.is_finite().then_some((part, norm))
    }

    /// Ends the round without the answers to the open question, and without further questions.
    pub(crate) fn give_up(&mut self) -> Step {
        loop {
            self.state.replies = Replies::none();
            let ledger = self.state.ledger;
            let step = self.close();
            if step != Step::Ask {
                return step;
            }
            // Further questions are not sent, and so not counted.
            self.state.ledger = ledger;
        }
    }

    /// Checks that the open question is to this agent; returns its place among the participants.
    ///
    /// # Errors
    /// When no question is open, or the agent was not asked.
    pub(crate) fn place_of(&self, agent: usize) -> Result<usize> {
        if !self.is_open() {
            return Err(refused("an answer while no question is open", "answers to an open question"));
        }
        if self.is_excluded(agent) {
            return Err(refused(format!("an answer of agent {agent}, which is excluded"), "answers of agents that are believed"));
        }
        let at = self.asked().binary_search(&agent);
        at.map_err(|_| refused(format!("an answer of agent {agent}, which was not asked"), "answers of agents that were asked"))
    }

    /// Checks the parts of an answer to the open question; `len` is its number of bytes on the wire.
    ///
    /// # Errors
    /// When the question was not to this agent, or the answer is not one of this method.
    pub(crate) fn check(&self, agent: usize, parts: Vec<(Part, Body)>, len: usize) -> Result<Checked> {
        let at = self.place_of(agent)?;
        let (parts, is_diverged) = self.checked_parts(self.state.ask.down.exchange, parts)?;
        self.check_seeds(agent, &parts)?;
        Ok(Checked { at, parts, is_diverged, len })
    }

    /// The parts of an answer for the server half, and whether the agent's numbers are no longer finite.
    pub(super) fn checked_parts(&self, exchange: u8, mut parts: Vec<(Part, Body)>) -> Result<(Vec<(Part, Body)>, bool)> {
        let is_diverged = matches!(parts[..], [(Part::Diverged, _)]) && !self.is_masked;
        if is_diverged {
            parts = self.protocol.diverged_answer(exchange);
        } else if self.is_masked {
            self.protocol.check_masked(exchange, &parts)?;
        } else {
            self.protocol.check_answer(exchange, &parts)?;
            self.server.accepts(exchange, &parts)?;
        }
        Ok((parts, is_diverged))
    }

    /// Counts an answer of `len` bytes. Numbers that are no longer finite were not sent.
    pub(super) fn count(&mut self, parts: &[(Part, Body)], is_diverged: bool, len: usize) {
        let mut sent = Sent::default();
        let masked = self.is_masked.then(|| self.protocol.diverged_answer(self.state.ask.down.exchange));
        sent.message(len, if is_diverged { &[] } else { masked.as_deref().unwrap_or(parts) }, self.federation.dim());
        self.state.ledger.up(&sent);
    }

    fn is_excluded(&self, agent: usize) -> bool {
        self.state.exclusions.iter().any(|one| one.agent == agent)
    }

    /// Takes a checked answer.
    ///
    /// # Errors
    /// When the agent has given another answer to the question.
    pub(crate) fn take(&mut self, agent: usize, checked: Checked) -> Result<Accepted> {
        let Checked { at, parts, is_diverged, len } = checked;
        let (asked, round) = (self.asked().len(), self.state.ask.down.round);
        match self.state.replies.of(at) {
            None => {
                self.count(&parts, is_diverged, len);
                self.state.replies.add(at, asked, Reply { round, parts });
                Ok(Accepted::Counted)
            }
            Some(Reply { parts: taken, .. }) if *taken == parts || !(are_finite(taken) || are_finite(&parts)) => Ok(Accepted::Repeated),
            Some(_) => Err(refused(format!("a second answer of agent {agent}"), "one answer from each agent")),
        }
    }

    /// Accepts the answer of an agent to the open question; `len` is its number of bytes on the wire. A second copy changes nothing.
    ///
    /// # Errors
    /// When it is not an answer of this agent to the open question. A refused answer does not count; [`Coordinator::refusals`] lists it.
    pub fn accept(&mut self, agent: usize, parts: Vec<(Part, Body)>, len: usize) -> Result<Accepted> {
        let taken = self.check(agent, parts, len).and_then(|checked| self.take(agent, checked));
        taken.inspect_err(|reason| self.refuse(agent, reason.clone()))
    }

    /// Lists a refused answer, or an agent that could not answer.
    pub(crate) fn refuse(&mut self, agent: usize, reason: Error) {
        let Message { round, exchange, .. } = self.state.ask.down;
        self.refusals.push(Refusal { agent, round, exchange, reason });
    }
}

/// `b - A theta` of a system: A row by row, then b.
fn operator_of(system: &Body, theta: &[f64]) -> Option<Vec<f64>> {
    let numbers = system.to_numbers();
    let (a, b) = numbers.split_at_checked(theta.len() * theta.len())?;
    let is_one = b.len() == theta.len() && !theta.is_empty();
    is_one.then(|| a.chunks(theta.len()).zip(b).map(|(row, b)| b - row.iter().zip(theta).map(|(a, x)| a * x).sum::<f64>()).collect())
}
