//! What agents that work side by side in lanes hand in: a sum, or a vector of each.

use super::handed_in::{Arrival, FromLanes};
use super::server_end::asked_weight;
use super::{Coordinator, State};
use crate::message::{Body, Part};
use crate::random::ALL;
use crate::record::Sent;
use crate::server::{Ask, Letter, Next, Received};
use crate::uplink::{MessageKey, Uplink};

impl Coordinator {
    /// The question under way, the agents that were asked, the link, and the media's memory of every agent, for lanes.
    pub(crate) fn with_channel(&mut self) -> (&Ask, &[usize], &Uplink, &mut [u64]) {
        let State { ask, end, .. } = &mut self.state;
        (ask, ask.to.as_deref().unwrap_or(&self.everyone), self.federation.uplink(), &mut end.channel)
    }

    /// Accepts the sum of all answers of lanes, weighted and in the order of [`crate::sums`], in place of single answers: d numbers.
    /// `arrivals` says what became of each message; empty if all arrived. `sent` counts the messages.
    pub(crate) fn accept_sums(&mut self, sum: &[f64], arrivals: &[Arrival], sent: &Sent) {
        self.state.ledger.up(sent);
        self.state.sum.clear();
        self.state.sum.extend(sum);
        self.lanes = FromLanes::Sum { arrived: arrivals.iter().map(|arrival| arrival.gain != 0.0).collect() };
    }

    /// Accepts a vector of each agent that was reached, `rows` of d numbers, in place of single answers; `arrivals` says what became of
    /// each message. `sent` counts the messages.
    pub(crate) fn accept_each(&mut self, rows: &[f64], arrivals: &[Arrival], sent: &Sent) {
        self.state.ledger.up(sent);
        let (part, weights) = (self.wanted_of_lanes(), self.federation.weights());
        let mut letters: Vec<Option<Letter>> = Vec::new();
        letters.resize_with(self.asked().len(), || None);
        for (((i, c), arrival), x) in self.recipients().zip(arrivals).zip(rows.chunks(self.federation.dim())) {
            let Arrival { gain, answers } = *arrival;
            let parts = || vec![(part, Body::Numbers(x.to_vec()))];
            letters[i] = (gain != 0.0).then(|| Letter { agent: c, answers, weight: weights[c] * gain, parts: parts() });
        }
        self.lanes = FromLanes::Each(letters);
    }

    /// Whether answers must be handed in one by one, although the method needs only their sum.
    pub(crate) fn needs_single_answers(&self) -> bool {
        self.replay.is_some() || self.federation.rules().need_single_answers() || self.federation.uplink().late.is_some()
    }

    /// Lets the channels of the agents that were asked and could not be reached go on: they change in every exchange.
    pub(crate) fn pass_over_channels(&mut self) {
        if self.reaches_all() {
            return;
        }
        let missed: Vec<usize> = self.missed().map(|(_, c)| c).collect();
        let (federation, State { ask, end, .. }) = (&self.federation, &mut self.state);
        let words = federation.uplink().media_len();
        for c in missed {
            let at = MessageKey { seed: federation.seed(), round: ask.down.round, exchange: ask.down.exchange, agent: c };
            federation.uplink().gain(at, &mut end.channel[c * words..(c + 1) * words]);
        }
    }

    /// The agents to which the message at the end of a round applies, if these are not all that were asked: their places among those, and
    /// their numbers. If the server `keeps_copies` of control variates, they are all: it updates the copies of agents that it could not
    /// reach too, and sends them later.
    pub(crate) fn told(&self, keeps_copies: bool) -> Option<Vec<(usize, usize)>> {
        (!keeps_copies && !self.state.absent.is_empty()).then(|| self.recipients().collect())
    }

    /// The part that lanes answer the open question with.
    pub(crate) fn wanted_of_lanes(&self) -> Part {
        self.protocol.wanted(self.state.ask.down.exchange)[0].part
    }

    /// Gives the server half the sum of lanes; also whether its numbers are finite.
    pub(super) fn receive_sum(&mut self, arrived: &[bool]) -> (Next, bool) {
        let part = self.wanted_of_lanes();
        let Self { federation, server, everyone, state, .. } = self;
        let State { ask, sum, .. } = state;
        let asked = ask.to.as_deref().unwrap_or(everyone);
        let weight = asked_weight(federation.weights(), asked);
        let (round, exchange) = (ask.down.round, ask.down.exchange);
        let at = MessageKey { seed: federation.seed(), round, exchange, agent: ALL };
        federation.uplink().receive(at, &mut [&mut sum[..]], asked.len(), weight);
        let sums = [(part, &sum[..])];
        let got = Received { round, exchange, down: &ask.down, sums: &sums, asked: weight, arrived, letters: &[] };
        let next = server.receive(&got);
        (next, sum.iter().all(|x| x.is_finite()))
    }
}
