//! The server's end of a link: losses, gains, lateness, receiver noise, the ordered sum, and who arrived.

use serde::{Deserialize, Serialize};

use super::mail::Mail;
use crate::message::{Body, Part};
use crate::protocol::{Give, Want};
use crate::random::{ALL, Key, Purpose};
use crate::server::{Letter, Received};
use crate::sums::sum;
use crate::uplink::{Place, Uplink};

/// What the server's end of a link remembers from round to round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerEnd {
    /// What media remember of each agent.
    pub channel: Vec<u64>,
    /// Letters on their way.
    pub mail: Mail,
}

/// What arrived in one exchange.
pub(crate) struct Arrivals {
    /// The ordered sums that are wanted.
    pub sums: Vec<(Part, Vec<f64>)>,
    /// Whether each of those who were asked arrived; empty where all did or answers come late.
    pub arrived: Vec<bool>,
    /// The answers, in the agents' order.
    pub letters: Vec<Letter>,
    /// Whether the server half wants some part of each.
    wants_each: bool,
}

impl ServerEnd {
    /// At the start of a run.
    pub fn new(uplink: &Uplink, seed: u64, agents: usize) -> Self {
        let words = uplink.media_len();
        let mut channel = vec![0; agents * words];
        channel.chunks_mut(words.max(1)).enumerate().for_each(|(c, memory)| uplink.start(seed, c, memory));
        Self { channel, mail: Mail::default() }
    }

    /// Takes the answers of those who were asked, as they were sent; `None` for none. `at` is the exchange.
    pub fn take(
        &mut self,
        uplink: &Uplink,
        at: Place,
        wanted: &[Want],
        weights: &[f64],
        asked: &[usize],
        answers: Vec<Option<Vec<(Part, Body)>>>,
    ) -> Arrivals {
        let words = uplink.media_len();
        let letter = |(parts, c): (Option<Vec<(Part, Body)>>, &usize)| {
            // The channel changes whether or not it is used.
            let gain = uplink.gain(Place { agent: *c, ..at }, &mut self.channel[c * words..(c + 1) * words]);
            let parts = parts.filter(|_| gain != 0.0)?;
            Some(Letter { agent: *c, answers: at.round, weight: weights[*c] * gain, parts })
        };
        let letters = answers.into_iter().zip(asked).map(letter).collect();
        self.arrive(uplink, at, wanted, weights, asked, letters)
    }

    /// What becomes of letters that media let through, one entry for each of those who were asked: late ones wait, sums are
    /// made in their order, receivers add noise.
    pub fn arrive(
        &mut self,
        uplink: &Uplink,
        at: Place,
        wanted: &[Want],
        weights: &[f64],
        asked: &[usize],
        mut letters: Vec<Option<Letter>>,
    ) -> Arrivals {
        let mut arrived = Vec::new();
        if let Some(late) = &uplink.late {
            let Place { round, exchange, .. } = at;
            let key = Key::new(at.seed, Purpose::Delay, round);
            for letter in letters.drain(..).flatten() {
                self.mail.post(exchange, round + late.of(round, letter.agent, &mut key.stream(letter.agent)), letter);
            }
            letters.extend(self.mail.deliver(exchange, round).into_iter().map(Some));
        } else if !letters.iter().all(Option::is_some) {
            arrived = letters.iter().map(Option::is_some).collect();
        }
        let sums = wanted.iter().filter(|want| want.give == Give::Sum).map(|want| {
            let found = letters.iter().map(|letter| letter.as_ref().map(|letter| (letter.weight, letter.part(want.part))));
            (want.part, sum(want.len.largest(), found))
        });
        let mut sums: Vec<(Part, Vec<f64>)> = sums.collect();
        let noisy = &mut sums.iter_mut().map(|(_, x)| &mut x[..]).collect::<Vec<_>>();
        uplink.receive(Place { agent: ALL, ..at }, noisy, asked.len(), asked_weight(weights, asked));
        let wants_each = wanted.iter().any(|want| want.give == Give::Each);
        Arrivals { sums, arrived, letters: letters.into_iter().flatten().collect(), wants_each }
    }
}

impl Arrivals {
    /// As a server half sees it.
    pub fn with<R>(&self, at: Place, asked: f64, see: impl FnOnce(&Received<'_>) -> R) -> R {
        let sums: Vec<(Part, &[f64])> = self.sums.iter().map(|(part, x)| (*part, &x[..])).collect();
        let (round, exchange) = (at.round, at.exchange);
        let letters = if self.wants_each { &self.letters[..] } else { &[] };
        see(&Received { round, exchange, sums: &sums, asked, arrived: &self.arrived, letters })
    }
}

/// The weight of those who were asked, in a list of their own or all of them.
pub(crate) fn asked_weight(weights: &[f64], asked: &[usize]) -> f64 {
    if asked.len() == weights.len() { 1.0 } else { asked.iter().map(|c| weights[*c]).sum() }
}
