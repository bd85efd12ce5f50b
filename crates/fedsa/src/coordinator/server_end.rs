//! The server's end of a link: losses, gains, late answers, receiver noise, the ordered sum, and whose answers arrived.

use serde::{Deserialize, Serialize};

use super::mail::Mail;
use crate::error::Result;
use crate::message::{Body, Message, Part};
use crate::parallel;
use crate::protocol::{Give, Protocol, Want, are_finite};
use crate::random::{ALL, Key, Purpose};
use crate::server::{Letter, Received, Server};
use crate::sums::sum;
use crate::uplink::{MessageKey, Uplink};

/// What the server's end of a link remembers from round to round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerEnd {
    /// The media's memory of each agent, [`Uplink::media_len`] words each.
    pub channel: Vec<u64>,
    /// Answers on their way.
    pub mail: Mail,
}

/// What arrived in one exchange.
pub(crate) struct Arrivals {
    /// The ordered sums that are wanted.
    pub sums: Vec<(Part, Vec<f64>)>,
    /// Whether the answer arrived, for each agent that was asked; empty if all answers arrived, or if the link delivers
    /// answers late.
    pub arrived: Vec<bool>,
    /// The answers, in the agents' order.
    pub letters: Vec<Letter>,
    /// Whether the server half wants some part of each agent.
    wants_each: bool,
}

impl ServerEnd {
    /// The server's end of a link with `agents` agents at the start of a run.
    pub fn new(uplink: &Uplink, seed: u64, agents: usize) -> Self {
        let words = uplink.media_len();
        let mut channel = vec![0; agents * words];
        channel.chunks_mut(words.max(1)).enumerate().for_each(|(c, memory)| uplink.start(seed, c, memory));
        Self { channel, mail: Mail::default() }
    }

    /// Passes answers over the media: `answers` has one entry for each agent in `asked`, `None` if it sent none. `at` is the
    /// exchange.
    pub fn take(
        &mut self,
        uplink: &Uplink,
        at: MessageKey,
        wanted: &[Want],
        weights: &[f64],
        asked: &[usize],
        answers: Vec<Option<Vec<(Part, Body)>>>,
    ) -> Arrivals {
        let words = uplink.media_len();
        let letter = |(parts, c): (Option<Vec<(Part, Body)>>, &usize)| {
            // The channel's state changes in every exchange, also without a message.
            let gain = uplink.gain(MessageKey { agent: *c, ..at }, &mut self.channel[c * words..(c + 1) * words]);
            let parts = parts.filter(|_| gain != 0.0)?;
            Some(Letter { agent: *c, answers: at.round, weight: weights[*c] * gain, parts })
        };
        let letters = answers.into_iter().zip(asked).map(letter).collect();
        self.arrive(uplink, at, wanted, weights, asked, letters)
    }

    /// Delivers the answers that the media did not lose, one entry for each agent in `asked`: late ones wait for their round,
    /// sums are computed in a fixed order, and the receivers' noise is added.
    pub fn arrive(
        &mut self,
        uplink: &Uplink,
        at: MessageKey,
        wanted: &[Want],
        weights: &[f64],
        asked: &[usize],
        mut letters: Vec<Option<Letter>>,
    ) -> Arrivals {
        let mut arrived = Vec::new();
        if let Some(late) = &uplink.late {
            let MessageKey { round, exchange, .. } = at;
            let key = Key::new(at.seed, Purpose::Delay, round);
            for letter in letters.drain(..).flatten() {
                self.mail.post(exchange, round + late.of(round, letter.agent, &mut key.stream(letter.agent)), letter);
            }
            letters.extend(self.mail.deliver(exchange, round).into_iter().map(Some));
        } else if !letters.iter().all(Option::is_some) {
            arrived = letters.iter().map(Option::is_some).collect();
        }
        let is_summed = |part: Part| wanted.iter().any(|want| want.part == part && want.give == Give::Sum);
        for (part, body) in letters.iter_mut().flatten().flat_map(|letter| &mut letter.parts) {
            if is_summed(*part) { body.write_out() } else { part.settle(body) }
        }
        let sums = wanted.iter().filter(|want| want.give == Give::Sum).map(|want| {
            let found = letters.iter().map(|letter| letter.as_ref().map(|letter| (letter.weight, letter.part(want.part))));
            (want.part, sum(want.len.largest(), found))
        });
        let mut sums: Vec<(Part, Vec<f64>)> = sums.collect();
        let noisy = &mut sums.iter_mut().map(|(_, x)| &mut x[..]).collect::<Vec<_>>();
        uplink.receive(MessageKey { agent: ALL, ..at }, noisy, asked.len(), asked_weight(weights, asked));
        let wants_each = wanted.iter().any(|want| want.give == Give::Each);
        Arrivals { sums, arrived, letters: letters.into_iter().flatten().collect(), wants_each }
    }
}

impl Arrivals {
    /// Whether all numbers are finite.
    pub fn are_finite(&self) -> bool {
        parallel::map(self.letters.len(), |i| are_finite(&self.letters[i].parts)).into_iter().all(|are_finite| are_finite)
    }

    /// Calls `see` with the arrivals as a server half gets them; `down` is the message that was answered, as agents decoded
    /// it, and `asked` is the weight of the agents that were asked.
    pub fn with<R>(&self, down: &Message, asked: f64, see: impl FnOnce(&Received<'_>) -> R) -> R {
        let sums: Vec<(Part, &[f64])> = self.sums.iter().map(|(part, x)| (*part, &x[..])).collect();
        let (round, exchange) = (down.round, down.exchange);
        let letters = if self.wants_each { &self.letters[..] } else { &[] };
        see(&Received { round, exchange, down, sums: &sums, asked, arrived: &self.arrived, letters })
    }
}

/// Checks that an agent may have sent these parts as its answer to an exchange, whatever the numbers are.
///
/// # Errors
/// When it has other parts, or the server rule cannot read them.
pub(crate) fn check_answer(protocol: &Protocol, server: &dyn Server, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
    protocol.check_answer_shape(exchange, parts)?;
    server.accepts(exchange, parts)
}

/// The sum of the weights of the agents that were asked.
pub(crate) fn asked_weight(weights: &[f64], asked: &[usize]) -> f64 {
    if asked.len() == weights.len() { 1.0 } else { asked.iter().map(|c| weights[*c]).sum() }
}
