//! Rounds in a row: those of a rule that needs the mean of all answers to its model and nothing else.
//!
//! With few short steps a round is over sooner than a question is asked and an answer checked. Where rounds differ in nothing but the model, the
//! question is asked once, and each round is the sum of the answers, the rule, the counts, and the look at the iterate.

use super::{Coordinator, State, Step};
use crate::message::{Body, MAX_ROUNDS, Part};
use crate::record::Sent;
use crate::server::Next;

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
    /// Only where [`Coordinator::can_go_in_a_row`]. Changes of `open` and `send` belong here too.
    ///
    /// # Panics
    /// When a rule that says it only averages ([`Server::only_averages`](crate::server::Server::only_averages)) asks or tells more.
    pub(crate) fn go_in_a_row(&mut self, most: u64, sent: &Sent, mut answer: impl FnMut(u64, &[f64], &mut [f64]) -> bool) -> u64 {
        debug_assert!(self.can_go_in_a_row());
        let (n, first) = (self.everyone.len(), self.state.opened);
        let most = most.min(MAX_ROUNDS.saturating_sub(first));
        self.state.sum.resize(self.server.theta().len(), 0.0);
        let mut bytes = None;
        while self.state.opened - first < most && self.state.diverged.is_none() {
            let t = self.state.opened;
            if !answer(t, self.server.theta(), &mut self.state.sum) {
                break;
            }
            let bytes = *bytes.get_or_insert_with(|| self.ask_for_all(t));
            let State { opened, ask, ledger, .. } = &mut self.state;
            *opened += 1;
            ask.down.round = t;
            let [(Part::Model, Body::Numbers(model))] = &mut ask.down.parts[..] else { panic!("a rule that only averages asks more") };
            model.copy_from_slice(self.server.theta());
            ledger.down(n, n * bytes);
            ledger.exchanges += 1;
            ledger.up(sent);
            let (next, are_finite) = self.receive_sum(&[]);
            assert!(next == Next::Done { tell: None }, "a rule that only averages tells more");
            if !are_finite {
                self.state.diverged = Some(self.state.opened);
            }
            self.end_round(Step::RoundOver);
        }
        self.state.opened - first
    }

    /// Puts the question of round t, which those after it take over, in place of what the one before has left; the bytes of its message.
    fn ask_for_all(&mut self, t: u64) -> usize {
        let State { ask, absent, answers, written, .. } = &mut self.state;
        (*ask, *written) = (self.server.open(t), None);
        self.refusals.clear();
        absent.clear();
        answers.clear();
        self.state.ask.down.encoded_len(&*self.federation.uplink().downlink)
    }
}
