//! The answers to the open question, on their way to the server half.

use super::handed_in::{Replies, Reply};
use super::{Coordinator, State, asked_weight};
use crate::error::Result;
use crate::message::Part;
use crate::protocol::ReplySpec;
use crate::random::ALL;
use crate::record::Sent;
use crate::server::{Next, Received};
use crate::uplink::MessageKey;

impl Coordinator {
    /// Whether the sum of the answers to the open question is enough: no rule needs single ones, and none is late.
    pub(crate) fn wants_sum(&self) -> bool {
        let exchange = self.state.ask.down.exchange;
        self.adds_up && !self.federation.rules().need_single_answers() && !self.protocol.wants_each(exchange)
    }

    /// The factors by which participants' answers arrive, for the caller that sums them; `None` over a clear link. Call this once per
    /// exchange, because it changes the channels' states.
    pub(crate) fn gains(&mut self) -> Option<Vec<f64>> {
        let Self { federation, everyone, state: State { ask, end, .. }, is_clear, .. } = self;
        let at = MessageKey { seed: federation.seed(), round: ask.down.round, exchange: ask.down.exchange, agent: ALL };
        (!*is_clear).then(|| end.gains(federation.uplink(), at, ask.to.as_deref().unwrap_or(everyone)))
    }

    /// Takes the sum of the answers that arrived ([`Coordinator::wants_sum`]), d numbers, and whether each arrived (empty if all did).
    /// `sent` counts the messages.
    pub(crate) fn hand_in_sum(&mut self, sum: &[f64], arrived: &[bool], sent: &Sent) {
        self.state.ledger.up(sent);
        let arrived = if arrived.iter().all(|arrived| *arrived) { Vec::new() } else { arrived.to_vec() };
        self.state.replies = Replies::Sum { sum: sum.to_vec(), arrived };
    }

    /// Takes the answers of agents in this process: for each recipient the answer and its number of bytes on the wire, or the reason why it
    /// could not answer. Answers of agents that compute `alone` are checked like answers from a network, because they may have any content;
    /// rules in lanes write vectors of the right length.
    pub(crate) fn hand_in(&mut self, answers: &mut [Option<Result<(Reply, usize)>>], alone: bool) {
        let (asked, exchange) = (self.asked().len(), self.state.ask.down.exchange);
        let recipients: Vec<(usize, usize)> = self.recipients().collect();
        for ((place, agent), answer) in recipients.into_iter().zip(answers) {
            let Some(answer) = answer.take() else { continue };
            let begins_anew = matches!(&answer, Ok((reply, _)) if reply.parts.is_empty());
            let checked = answer.and_then(|(Reply { round, parts }, len)| {
                let (parts, is_diverged) = if alone { self.checked_parts(exchange, parts)? } else { (parts, false) };
                self.count(&parts, is_diverged, len);
                Ok(Reply { round, parts })
            });
            match checked {
                Ok(reply) => self.state.replies.add(place, asked, reply),
                Err(reason) => {
                    if begins_anew {
                        self.forget(agent);
                    }
                    self.refuse(agent, reason);
                }
            }
        }
    }

    /// The first part of answers to the open question.
    pub(crate) fn wanted(&self) -> Part {
        self.protocol.wanted(self.state.ask.down.exchange)[0].part
    }

    /// The recipients of the message at the end of a round, if not all participants: their places and numbers. With `keeps_copies` of
    /// control variates all are meant: the server also updates the copies of unreachable agents, and sends them later.
    pub(crate) fn told(&self, keeps_copies: bool) -> Option<Vec<(usize, usize)>> {
        (!keeps_copies && !self.state.absent.is_empty()).then(|| self.recipients().collect())
    }

    /// Gives the server half the sums of the answers, one part after the other, with the receiver's noise; also returns whether their
    /// numbers are finite.
    pub(super) fn receive_sums(&mut self, mut all: Vec<f64>, arrived: &[bool]) -> (Next, bool) {
        let (n, weight) = (self.asked().len(), asked_weight(self.federation.weights(), self.asked()));
        let (federation, down) = (&self.federation, &self.state.ask.down);
        let (round, exchange) = (down.round, down.exchange);
        let at = MessageKey { seed: federation.seed(), round, exchange, agent: ALL };
        federation.uplink().receive(at, &mut [&mut all[..]], n, weight);
        let mut rest = &all[..];
        let sum_of = |want: &ReplySpec| rest.split_off(..want.len.largest()).map(|sum| (want.part, sum));
        let sums: Vec<(Part, &[f64])> = self.protocol.wanted(exchange).iter().filter_map(sum_of).collect();
        let got = Received { round, exchange, down, sums: &sums, asked: weight, arrived, rounding: self.sum_rounding(), updates: &[] };
        (self.server.receive(&got), all.iter().all(|x| x.is_finite()))
    }
}
