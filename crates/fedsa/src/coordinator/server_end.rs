//! The server's end of a link: losses, gains, late answers, receiver noise, the ordered sum, and arrivals.

use serde::{Deserialize, Serialize};

use super::delayed::DelayedUpdates;
use super::faults::{self, Medians};
use super::handed_in::Reply;
use crate::error::Error;
use crate::federation::rules::{AnswerRules, MissingAnswers};
use crate::message::{Body, Part};
use crate::parallel;
use crate::protocol::{Gather, ReplySpec, are_finite};
use crate::random::{Key, Purpose};
use crate::secure::SumGrid;
use crate::server::ClientUpdate;
use crate::uplink::{MessageKey, Uplink};

/// The state of a link's server end, from round to round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerEnd {
    /// The media's memory of each agent, [`Uplink::media_len`] words each.
    pub channel: Vec<u64>,
    /// Answers on their way.
    pub mail: DelayedUpdates,
    /// The usual norms of answers, for rules that check them.
    pub medians: Medians,
}

/// The answers that arrived in one exchange.
pub(crate) struct Arrivals {
    /// The wanted ordered sums, or weighted robust means in their place.
    pub sums: Vec<(Part, Vec<f64>)>,
    /// Whether each participant's answer arrived; empty if all did, or if the link delivers answers late.
    pub arrived: Vec<bool>,
    /// The answers, in the agents' order.
    pub updates: Vec<ClientUpdate>,
    /// The agents with faulty answers, and the reasons.
    pub faults: Vec<(usize, Error)>,
    /// Whether the server half wants a part of each agent.
    wants_each: bool,
}

/// The exchange in which answers arrive.
#[derive(Clone, Copy)]
pub(crate) struct OfExchange<'a> {
    pub uplink: &'a Uplink,
    /// The key of the exchange, for all agents.
    pub at: MessageKey,
    pub wanted: &'a [ReplySpec],
    pub weights: &'a [f64],
    /// The participants.
    pub asked: &'a [usize],
    /// The grid of secure sums, if the link has them.
    pub grid: Option<SumGrid>,
    pub rules: &'a AnswerRules,
    /// The largest number of agents that may be excluded now.
    pub most_faults: usize,
}

impl ServerEnd {
    /// The server's end of a link with `agents` agents at the start of a run.
    pub fn new(uplink: &Uplink, seed: u64, agents: usize) -> Self {
        let words = uplink.media_len();
        let mut channel = vec![0; agents * words];
        channel.chunks_mut(words.max(1)).enumerate().for_each(|(c, memory)| uplink.start(seed, c, memory));
        Self { channel, mail: DelayedUpdates::default(), medians: Medians::default() }
    }

    /// The factors by which the participants' messages arrive in the exchange `at`. The channels' states change in every exchange, also
    /// without a message.
    pub fn gains(&mut self, uplink: &Uplink, at: MessageKey, asked: &[usize]) -> Vec<f64> {
        let words = uplink.media_len();
        let gain = |c: &usize| uplink.gain(MessageKey { agent: *c, ..at }, &mut self.channel[c * words..(c + 1) * words]);
        asked.iter().map(gain).collect()
    }

    /// Passes answers over the media: `replies` has one entry for each participant, `None` if it sent none.
    pub fn take(&mut self, of: &OfExchange<'_>, replies: Vec<Option<Reply>>) -> Arrivals {
        let gains = self.gains(of.uplink, of.at, of.asked);
        let update = |((reply, c), gain): ((Option<Reply>, &usize), f64)| {
            let Reply { round, parts } = reply.filter(|_| gain != 0.0)?;
            Some(ClientUpdate { agent: *c, answers: round, weight: of.weights[*c] * gain, parts })
        };
        let updates = replies.into_iter().zip(of.asked).zip(gains).map(update).collect();
        self.arrive(of, updates)
    }

    /// Delivers the answers that the media did not lose, one entry for each participant. Late ones wait for their round, sums have a fixed
    /// order, and the receiver's noise is added.
    fn arrive(&mut self, of: &OfExchange<'_>, mut updates: Vec<Option<ClientUpdate>>) -> Arrivals {
        let OfExchange { uplink, at, wanted, weights, asked, grid, rules, most_faults } = *of;
        let MessageKey { round, exchange, .. } = at;
        let mut arrived = Vec::new();
        if let Some(late) = uplink.late() {
            let key = Key::new(at.seed, Purpose::Delay, round);
            for update in updates.drain(..).flatten() {
                let delay = late.of(round, update.agent, &mut key.stream(update.agent));
                self.mail.post(exchange, round + delay, update);
            }
            updates.extend(self.mail.deliver(exchange, round).into_iter().map(Some));
        }
        if updates.iter().flatten().count() < uplink.least_agents() {
            // The masks of so few answers are not removed.
            updates.fill(None);
        }
        let faults = faults::remove(&mut updates, exchange, rules.faults, most_faults, &mut self.medians);
        if uplink.late().is_none() && !updates.iter().all(Option::is_some) {
            arrived = updates.iter().map(Option::is_some).collect();
        }
        let is_summed = |part: Part| wanted.iter().any(|want| want.part == part && want.gather == Gather::Sum);
        for (part, body) in updates.iter_mut().flatten().flat_map(|update| &mut update.parts) {
            if is_summed(*part) { body.write_out() } else { part.settle(body) }
        }
        if let Some(grid) = grid {
            for update in updates.iter_mut().flatten() {
                let p = weights[update.agent];
                update.weight = 1.0;
                let noise = &mut MessageKey { agent: update.agent, ..at }.stream(Purpose::PrivacyNoise);
                for (_, body) in &mut update.parts {
                    let Body::Numbers(x) = body else { continue };
                    let mut share = vec![0.0; x.len()];
                    grid.add_share(p, x, noise, &mut share);
                    *x = share;
                }
            }
        }
        let sums = wanted.iter().filter(|want| want.gather == Gather::Sum).map(|want| {
            let found = updates.iter().map(|update| update.as_ref().map(|update| (update.weight, update.part(want.part))));
            (want.part, uplink.aggregation.of(want.len.largest(), found))
        });
        let mut sums: Vec<(Part, Vec<f64>)> = sums.collect();
        let noisy = &mut sums.iter_mut().map(|(_, x)| &mut x[..]).collect::<Vec<_>>();
        uplink.receive(at, noisy, asked.len(), asked_weight(weights, asked));
        let wants_each = wanted.iter().any(|want| want.gather == Gather::Each);
        Arrivals { sums, arrived, updates: updates.into_iter().flatten().collect(), faults, wants_each }
    }
}

impl Arrivals {
    /// The divisor of sums: the weight of the participants, or of the answers that arrived, if there are any.
    pub fn weight_of(&self, of: &OfExchange<'_>, missing: MissingAnswers) -> f64 {
        match missing {
            MissingAnswers::Reweighted if !self.updates.is_empty() => self.updates.iter().map(|update| of.weights[update.agent]).sum(),
            _ => asked_weight(of.weights, of.asked),
        }
    }

    /// Whether all numbers are finite.
    pub fn are_finite(&self) -> bool {
        let numbers = |update: &ClientUpdate| update.parts.iter().map(|(_, body)| body.len()).sum::<usize>();
        // Several threads pay for answers with matrices, but not for vectors.
        if self.updates.first().is_none_or(|update| numbers(update) < 10_000) {
            return self.updates.iter().all(|update| are_finite(&update.parts));
        }
        parallel::map(self.updates.len(), |i| are_finite(&self.updates[i].parts)).into_iter().all(|are_finite| are_finite)
    }

    /// The sums of the parts of which a sum is enough.
    pub fn sums(&self) -> Vec<(Part, &[f64])> {
        self.sums.iter().map(|(part, x)| (*part, &x[..])).collect()
    }

    /// The answers, if the server half wants a part of each agent.
    pub fn single(&self) -> &[ClientUpdate] {
        if self.wants_each { &self.updates } else { &[] }
    }
}

/// The sum of the participants' weights.
pub(crate) fn asked_weight(weights: &[f64], asked: &[usize]) -> f64 {
    if asked.len() == weights.len() { 1.0 } else { asked.iter().map(|c| weights[*c]).sum() }
}
