//! Exchanges with agents that compute alone; agents compute in parallel.

use super::{Run, Working};
use crate::cancel::Cancel;
use crate::coordinator::{Checked, Coordinator};
use crate::error::Result;
use crate::local::{Agent, AgentFacts, LocalContext};
use crate::message::{Body, Part};
use crate::parallel;
use crate::problem::calls::Calls;
use crate::record::Work;
use crate::uplink::{AgentEnd, Answer, MessageKey};

/// One agent that is asked.
struct Asked<'a> {
    /// Its place among those that are asked, and its number.
    place: usize,
    agent: usize,
    half: &'a mut Box<dyn Agent>,
    feedback: &'a mut [f64],
    /// Its answer, checked or refused, if it has one.
    answer: Option<Result<Checked>>,
    calls: Calls,
}

/// The tasks of a thread in an exchange, about: agents' work differs, and no thread is to wait long for the others.
const TASKS: usize = 16;

impl Run {
    /// Carries the open question to the participants, and hands in their answers.
    ///
    /// An agent that finds the round cancelled does not answer: the round is then abandoned.
    pub(super) fn exchange_with_each(&mut self, cancel: &Cancel) {
        let Run { field, client: Working::Each(agents), coordinator, state, .. } = self else {
            unreachable!("called with agents that compute alone")
        };
        let known = AgentFacts::of(field.facts());
        let federation = coordinator.federation();
        let width = federation.uplink().feedback_len(field.dim(), coordinator.protocol().exchanges.len());
        let mut feedback: Vec<&mut [f64]> = state.feedback.chunks_mut(width.max(1)).collect();
        feedback.resize_with(agents.len(), || &mut []);
        let mut places = vec![None; agents.len()];
        coordinator.recipients().for_each(|(i, c)| places[c] = Some(i));
        let asked = agents.iter_mut().zip(feedback).enumerate().filter_map(|(agent, (half, feedback))| {
            Some(Asked { place: places[agent]?, agent, half, feedback, answer: None, calls: Calls::default() })
        });
        let mut asked: Vec<Asked<'_>> = asked.collect();
        let most = asked.len().div_ceil(TASKS * parallel::threads());
        parallel::each_mut_by(&mut asked, most, &|_, asked| {
            if !cancel.is_cancelled() {
                asked.compute(coordinator, known);
            }
        });
        let answered: Vec<_> = asked.into_iter().map(|asked| (asked.agent, asked.answer, asked.calls)).collect();
        for (agent, answer, calls) in answered {
            state.work = state.work.and(Work { samples: 0, calls });
            let taken = answer.map(|checked| checked.and_then(|checked| coordinator.take(agent, checked)));
            if let Some(Err(reason)) = taken {
                coordinator.refuse(agent, reason);
            }
        }
    }

    /// Carries the message at the end of a round to participants that compute alone.
    pub(super) fn tell_each(&mut self) {
        let Run { field, client: Working::Each(agents), coordinator, state, .. } = self else {
            unreachable!("called with agents that compute alone")
        };
        let (tell, known, seed) = (coordinator.question(), AgentFacts::of(field.facts()), coordinator.federation().seed());
        for (i, c) in coordinator.recipients() {
            let here = LocalContext::new(known, c, c, seed, tell.down.round, tell.down.exchange, None);
            agents[c].told(&here, &tell.to_recipient(i));
            state.work = state.work.and(Work { samples: 0, calls: here.calls() });
        }
    }
}

impl Asked<'_> {
    /// Computes the answer of the agent.
    fn compute(&mut self, coordinator: &Coordinator, known: AgentFacts<'_>) {
        let (federation, ask) = (coordinator.federation(), coordinator.question());
        let (uplink, seed, agent) = (&**federation.uplink(), federation.seed(), self.agent);
        let at = MessageKey { seed, round: ask.down.round, exchange: ask.down.exchange, agent };
        let mut end = AgentEnd { uplink, at, feedback: &mut *self.feedback };
        let here = LocalContext::new(known, agent, agent, seed, at.round, at.exchange, end.allowance(federation.dim()));
        let parts = self.half.answer(&here, &ask.to_recipient(self.place));
        self.calls = here.calls();
        let parts = match parts {
            Ok(parts) => parts,
            Err(reason) => {
                self.answer = Some(Err(reason));
                return;
            }
        };
        let (parts, len) = match end.send(parts, None) {
            Answer::Sent { parts, len, .. } => {
                if uplink.alters() {
                    self.half.sent(Some(&parts));
                }
                (parts, len)
            }
            Answer::NotCarried => return self.half.sent(None),
            Answer::Diverged { len, .. } => (vec![(Part::Diverged, Body::Numbers(Vec::new()))], len),
        };
        self.answer = Some(coordinator.check(agent, parts, len));
    }
}
