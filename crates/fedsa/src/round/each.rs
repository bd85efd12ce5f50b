//! Exchanges with agents that compute alone; agents compute in parallel.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::{Run, Working};
use crate::coordinator::Checked;
use crate::error::Result;
use crate::local::{At, Known};
use crate::message::{Body, Part};
use crate::problem::calls::Calls;
use crate::record::Work;
use crate::uplink::{AgentEnd, Answer, Place};

/// The answer of one agent, checked or refused, if there is one; and its calls.
type Answered = (usize, Option<Result<Checked>>, Calls);

/// The tasks of a thread in an exchange, about: agents' work differs, and no thread is to wait long for the others.
const TASKS: usize = 16;

impl Run {
    /// Carries the open question to the participants, and hands in their answers.
    ///
    /// An agent that finds `cancel` set does not answer: the round is then abandoned.
    pub(super) fn exchange_with_each(&mut self, cancel: Option<&AtomicBool>) {
        let Run { field, client: Working::Each(agents), coordinator, state, .. } = self else {
            unreachable!("called with agents that compute alone")
        };
        let (d, federation, ask) = (field.dim(), coordinator.federation(), coordinator.question());
        let (uplink, seed, down) = (&**federation.uplink(), federation.seed(), &ask.down);
        let (asked, known) = (coordinator.asked(), Known::of(field.facts()));
        let width = uplink.feedback_len(d, coordinator.protocol().exchanges.len());
        let mut feedback: Vec<&mut [f64]> = state.feedback.chunks_mut(width.max(1)).collect();
        feedback.resize_with(agents.len(), || &mut []);
        let taking: Vec<_> =
            agents.iter_mut().zip(feedback).enumerate().filter(|(c, _)| asked.binary_search(c).is_ok()).enumerate().collect();
        let most = taking.len().div_ceil(TASKS * rayon::current_num_threads());
        let answered: Vec<Answered> = taking
            .into_par_iter()
            .with_max_len(most)
            .map(|(i, (c, (agent, feedback)))| {
                if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
                    return (c, None, Calls::default());
                }
                let at = Place { seed, round: down.round, exchange: down.exchange, agent: c };
                let mut end = AgentEnd { uplink, at, feedback };
                let here = At::new(known, c, c, seed, at.round, at.exchange, end.allowance(d));
                let parts = match agent.answer(&here, &ask.to_recipient(i)) {
                    Ok(parts) => parts,
                    Err(reason) => return (c, Some(Err(reason)), here.calls()),
                };
                let answer = match end.send(parts, None) {
                    Answer::Sent { parts, len, .. } => {
                        if uplink.alters() {
                            agent.sent(Some(&parts));
                        }
                        Some((parts, len))
                    }
                    Answer::NotCarried => {
                        agent.sent(None);
                        None
                    }
                    Answer::Diverged { len, .. } => Some((vec![(Part::Diverged, Body::Numbers(Vec::new()))], len)),
                };
                (c, answer.map(|(parts, len)| coordinator.check(c, parts, len)), here.calls())
            })
            .collect();
        for (c, answer, calls) in answered {
            state.work = state.work.and(Work { samples: 0, calls });
            let taken = answer.map(|checked| checked.and_then(|checked| coordinator.take(c, checked)));
            if let Some(Err(reason)) = taken {
                coordinator.refuse(c, reason);
            }
        }
    }

    /// Carries the message at the end of a round to participants that compute alone.
    pub(super) fn tell_each(&mut self) {
        let Run { field, client: Working::Each(agents), coordinator, state, .. } = self else {
            unreachable!("called with agents that compute alone")
        };
        let (tell, known, seed) = (coordinator.question(), Known::of(field.facts()), coordinator.federation().seed());
        for (i, c) in coordinator.asked().iter().enumerate() {
            let here = At::new(known, *c, *c, seed, tell.down.round, tell.down.exchange, None);
            agents[*c].told(&here, &tell.to_recipient(i));
            state.work = state.work.and(Work { samples: 0, calls: here.calls() });
        }
    }
}
