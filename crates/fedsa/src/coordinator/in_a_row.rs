//! Rounds in a row: those of a rule that needs the mean of all answers to its model and nothing else.
//!
//! With few short steps a round is over sooner than a question is asked and an answer checked. Where rounds differ in nothing but the model, the
//! question is asked once, and each round is the sum of the answers, the rule, the counts, and the look at the iterate.

use super::server_end::asked_weight;
use super::{Coordinator, State, Step, has_diverged};
use crate::message::{Body, MAX_ROUNDS, Part};
use crate::record::Sent;
use crate::server::{Next, Received};

impl Coordinator {
    /// Whether rounds may follow each other in a row from here on: all agents answer the model over a clear link, and their sum is all that
    /// the rule sees.
    pub(crate) fn can_go_in_a_row(&self) -> bool {
        let is_between = !self.is_open() && self.state.diverged.is_none();
        let is_sum = self.protocol.exchanges.len() == 1 && !self.protocol.wants_each(0) && !self.needs_single_answers();
        is_between && is_sum && self.server.only_averages() && self.uplink().is_clear() && self.state.exclusions.is_empty()
    }

    /// Carries up to `most` rounds, each as [`Coordinator::open`], [`Coordinator::accept_sums`] and [`Coordinator::close`] would: `answer` gets the
    /// round and its model, and writes the sum of all answers, d numbers, for which `sent` is sent; false where it has no answer of this kind.
    /// Ends earlier then, and where the iterates diverge. Returns the number of rounds.
    ///
    /// Only where [`Coordinator::can_go_in_a_row`]. Changes of `open`, `send`, `receive_sum`, `close` and `end_round` belong here too.
    ///
    /// # Panics
    /// When a rule that says it only averages ([`Server::only_averages`](crate::server::Server::only_averages)) asks or tells more.
    pub(crate) fn go_in_a_row(&mut self, most: u64, sent: &Sent, mut answer: impl FnMut(u64, &[f64], &mut [f64]) -> bool) -> u64 {
        debug_assert!(self.can_go_in_a_row());
        let Self { federation, protocol, server, everyone, state, refusals, scale, .. } = self;
        let part = protocol.wanted(0)[0].part;
        let weight = asked_weight(federation.weights(), everyone);
        let State { opened, step, ask, absent, answers, written, sum, ledger, output, diverged, .. } = state;
        let first = *opened;
        let most = most.min(MAX_ROUNDS.saturating_sub(first));
        sum.resize(server.theta().len(), 0.0);
        let mut bytes = None;
        while *opened - first < most && diverged.is_none() {
            let t = *opened;
            if !answer(t, server.theta(), sum) {
                break;
            }
            let bytes = *bytes.get_or_insert_with(|| {
                // What the question before has left.
                (*ask, *written, *step) = (server.open(t), None, Step::RoundOver);
                refusals.clear();
                absent.clear();
                answers.clear();
                everyone.len() * ask.down.encoded_len(&*federation.uplink().downlink)
            });
            *opened += 1;
            ask.down.round = t;
            let [(Part::Model, Body::Numbers(model))] = &mut ask.down.parts[..] else { panic!("a rule that only averages asks more") };
            model.copy_from_slice(server.theta());
            ledger.down(everyone.len(), bytes);
            ledger.exchanges += 1;
            ledger.up(sent);
            let sums = [(part, &sum[..])];
            let next = server.receive(&Received {
                round: t,
                exchange: 0,
                down: &ask.down,
                sums: &sums,
                asked: weight,
                arrived: &[],
                letters: &[],
            });
            assert!(next == Next::Done { tell: None }, "a rule that only averages tells more");
            output.see(server.theta(), *opened);
            if has_diverged(server.theta(), *scale) || !sum.iter().all(|x| x.is_finite()) {
                *diverged = Some(*opened);
            }
        }
        *opened - first
    }
}
