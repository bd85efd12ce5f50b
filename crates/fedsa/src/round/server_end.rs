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
    /// The answers, where some part of each is wanted.
    pub letters: Vec<Letter>,
}

impl ServerEnd {
    /// At the start of a run.
    pub fn new(uplink: &Uplink, seed: u64, agents: usize) -> Self {
        let words = uplink.media_len();
        let mut channel = vec![0; agents * words];
        channel.chunks_mut(words.max(1)).enumerate().for_each(|(c, memory)| uplink.start(seed, c, memory));
        Self { channel, mail: Mail::default() }
    }

    /// Over a link with late answers: posts those of this round, and gives those that arrive in it.
    pub fn late(&mut self, uplink: &Uplink, at: Place, letters: Vec<Letter>) -> Vec<Letter> {
        let Some(late) = &uplink.late else { return letters };
        let Place { round, exchange, .. } = at;
        let key = Key::new(at.seed, Purpose::Delay, round);
        for letter in letters {
            self.mail.post(exchange, round + late.of(round, letter.agent, &mut key.stream(letter.agent)), letter);
        }
        self.mail.deliver(exchange, round)
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
        let mut letters: Vec<Option<Letter>> = Vec::new();
        for (parts, c) in answers.into_iter().zip(asked) {
            // The channel changes whether or not it is used.
            let gain = uplink.gain(Place { agent: *c, ..at }, &mut self.channel[c * words..(c + 1) * words]);
            let arrives = parts.filter(|_| gain != 0.0);
            letters.push(arrives.map(|parts| Letter { agent: *c, answers: at.round, weight: weights[*c] * gain, parts }));
        }
        let mut arrived: Vec<bool> = letters.iter().map(Option::is_some).collect();
        if arrived.iter().all(|arrived| *arrived) {
            arrived.clear();
        }
        if uplink.late.is_some() {
            letters = self.late(uplink, at, letters.into_iter().flatten().collect()).into_iter().map(Some).collect();
            arrived.clear();
        }
        let mut sums = Vec::new();
        for want in wanted.iter().filter(|want| want.give == Give::Sum) {
            let found = letters.iter().map(|letter| letter.as_ref().map(|letter| (letter.weight, letter.part(want.part))));
            sums.push((want.part, sum(len(want), found)));
        }
        let total = asked_weight(weights, asked);
        uplink.receive(Place { agent: ALL, ..at }, &mut sums.iter_mut().map(|(_, x)| &mut x[..]).collect::<Vec<_>>(), asked.len(), total);
        let each = wanted.iter().any(|want| want.give == Give::Each);
        Arrivals { sums, arrived, letters: if each { letters.into_iter().flatten().collect() } else { Vec::new() } }
    }
}

impl Arrivals {
    /// As a server half sees it.
    pub fn with<R>(&self, at: Place, asked: f64, see: impl FnOnce(&Received<'_>) -> R) -> R {
        let sums: Vec<(Part, &[f64])> = self.sums.iter().map(|(part, x)| (*part, &x[..])).collect();
        let (round, exchange) = (at.round, at.exchange);
        see(&Received { round, exchange, sums: &sums, asked, arrived: &self.arrived, letters: &self.letters })
    }
}

/// The weight of those who were asked, in a list of their own or all of them.
pub(crate) fn asked_weight(weights: &[f64], asked: &[usize]) -> f64 {
    if asked.len() == weights.len() { 1.0 } else { asked.iter().map(|c| weights[*c]).sum() }
}

/// The length of a part of which a sum is wanted.
fn len(want: &Want) -> usize {
    match want.len {
        crate::protocol::Len::Exactly(n) | crate::protocol::Len::AtMost(n) => n,
    }
}
