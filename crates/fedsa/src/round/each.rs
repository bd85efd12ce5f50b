//! Exchanges with agents that compute alone; agents compute in parallel.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::server_end::{asked_weight, check_answer};
use super::{Run, Status, Working};
use crate::local::{At, Known};
use crate::message::{Body, Envelope, Message, Part, Writer};
use crate::protocol::are_finite;
use crate::random::ALL;
use crate::record::Sent;
use crate::server::{Ask, Next};
use crate::uplink::Place;

/// The answer of one agent as the server decodes it, if there is one, and what the ledger counts for it.
type Answer = (Option<Vec<(Part, Body)>>, Sent);

/// The tasks of a thread in an exchange, about: agents' work differs, and no thread is to wait long for the others.
const TASKS: usize = 16;

impl Run<'_> {
    /// Asks the participants, passes their answers over the link, and gives the answers that arrive to the server half.
    ///
    /// An agent that finds `stop` set does not answer: the round is then abandoned.
    pub(super) fn exchange_with_each(&mut self, ask: &Ask, stop: Option<&AtomicBool>) -> Next {
        let (d, seed) = (self.field.dim(), self.seed);
        let Run { field, uplink, client: Working::Each(agents), protocol, server, everyone, state, .. } = self else {
            unreachable!("called with agents that compute alone")
        };
        let at = Place { seed, round: ask.down.round, exchange: ask.down.exchange, agent: ALL };
        let asked = ask.to.as_deref().unwrap_or(everyone);
        let known = Known::of(field.facts());
        let width = uplink.feedback_len(d, protocol.exchanges.len());
        let mut feedback: Vec<&mut [f64]> = state.link.feedback.chunks_mut(width.max(1)).collect();
        feedback.resize_with(agents.len(), || &mut []);
        let taking: Vec<_> =
            agents.iter_mut().zip(feedback).enumerate().filter(|(c, _)| asked.binary_search(c).is_ok()).enumerate().collect();
        let is_accepted = |parts: &Vec<(Part, Body)>| check_answer(protocol, &**server, at.exchange, parts).is_ok();
        let most = taking.len().div_ceil(TASKS * rayon::current_num_threads());
        let answers: Vec<Answer> = taking
            .into_par_iter()
            .with_max_len(most)
            .map(|(i, (c, (agent, feedback)))| {
                if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                    return (None, Sent::default());
                }
                let at = Place { agent: c, ..at };
                let here = At::new(known, c, c, seed, at.round, at.exchange, uplink.allowance(at, d));
                let answer = agent.answer(&here, &ask.to_recipient(i));
                let mut sent = Sent { calls: here.calls(), ..Sent::default() };
                // If an agent cannot answer, its answer is missing.
                let Ok(parts) = answer else { return (None, sent) };
                // An answer that the method's own protocol does not know would look like one that is lost.
                if let Err(e) = protocol.check_answer_shape(at.exchange, &parts) {
                    panic!("the client half of the method contradicts its protocol: {e}");
                }
                if !are_finite(&parts) {
                    return (Some(protocol.diverged_answer(at.exchange)), sent);
                }
                if !uplink.alters() {
                    let message = Message { round: at.round, exchange: at.exchange, parts };
                    sent.message(message.encoded_len(&*uplink.codec), &message.parts, d);
                    return (Some(message.parts), sent);
                }
                let mut writer = Writer::new(at.round, at.exchange, &Envelope::default());
                let read = uplink.seal(at, &parts, feedback, &mut writer);
                agent.sent(read.as_deref());
                if let Some(read) = &read {
                    sent.message(writer.finish().len(), read, d);
                }
                (read, sent)
            })
            .map(|(parts, sent)| (parts.filter(is_accepted), sent))
            .collect();
        let mut counted = Sent::default();
        let given = answers.into_iter().map(|(parts, sent)| {
            counted = counted.and(sent);
            parts
        });
        let given = given.collect();
        state.ledger.up(&counted);
        let weights = field.weights();
        let arrivals = state.link.server_end.take(uplink, at, protocol.wanted(at.exchange), weights, asked, given);
        let next = arrivals.with(&ask.down, asked_weight(weights, asked), |got| server.receive(got));
        if arrivals.are_finite() {
            return next;
        }
        state.status = Status::Diverged { round: at.round + 1 };
        Next::Done { tell: None }
    }

    /// Sends participants that compute alone a message that they do not answer.
    pub(super) fn tell_each(&mut self, tell: &Ask) {
        let Run { field, client: Working::Each(agents), everyone, seed, state, .. } = self else {
            unreachable!("called with agents that compute alone")
        };
        let known = Known::of(field.facts());
        for (i, c) in tell.to.as_deref().unwrap_or(everyone).iter().enumerate() {
            let here = At::new(known, *c, *c, *seed, tell.down.round, tell.down.exchange, None);
            agents[*c].told(&here, &tell.to_recipient(i));
            state.ledger.calls.add(here.calls());
        }
    }
}
