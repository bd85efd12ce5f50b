//! The state of a coordinator as data, complete between any two calls.

use serde::{Deserialize, Serialize};

use super::faults::Exclusion;
use super::outstanding::Outstanding;
use super::recorded::ArrivalRecord;
use super::server_end::ServerEnd;
use super::{Coordinator, State, Step, check_answer};
use crate::error::{Error, Result};
use crate::message::{Body, MAX_ROUNDS, Message, Part, TELL};
use crate::record::{Ledger, Output};
use crate::server::Ask;

/// The state of a coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub opened: u64,
    pub step: Step,
    pub ask: Ask,
    pub written: Option<Message>,
    pub absent: Vec<usize>,
    pub answers: Vec<Option<Vec<(Part, Body)>>>,
    pub ledger: Ledger,
    pub output: Output,
    pub diverged: Option<u64>,
    pub end: ServerEnd,
    pub outstanding: Outstanding,
    pub exclusions: Vec<Exclusion>,
    pub record: Option<ArrivalRecord>,
    /// The state of the server half.
    pub server: Vec<Vec<f64>>,
}

/// The error about bytes that are not the state of such a coordinator.
fn foreign() -> Error {
    Error::format("checkpoint", "not a saved state of this federation", "a state that the same federation saved")
}

impl Coordinator {
    /// The state.
    pub(crate) fn save(&self) -> Saved {
        let State { opened, step, ask, written, absent, answers, ledger, output, diverged, end, outstanding, exclusions, record, sum: _ } =
            self.state.clone();
        Saved {
            opened,
            step,
            ask,
            written,
            absent,
            answers,
            ledger,
            output,
            diverged,
            end,
            outstanding,
            exclusions,
            record,
            server: self.server.state(),
        }
    }

    /// The approximate number of numbers in [`Coordinator::save`].
    pub(crate) fn state_len(&self) -> usize {
        let State { output, end, ask, answers, .. } = &self.state;
        let server: usize = self.server.state().iter().map(Vec::len).sum();
        let parts = |parts: &[(Part, Body)]| parts.iter().map(|(_, body)| body.len()).sum::<usize>();
        let answers: usize = answers.iter().flatten().map(|answer| parts(answer)).sum();
        output.len() + end.channel.len() + end.mail.len() + server + parts(&ask.down.parts) + answers
    }

    /// Restores a state that [`Coordinator::save`] returned for the same federation.
    ///
    /// # Errors
    /// When it is not such a state. The coordinator is then unchanged.
    pub(crate) fn restore(&mut self, saved: Saved) -> Result<()> {
        if !self.can_be_at(&saved) {
            return Err(foreign());
        }
        let before = self.server.state();
        let Saved { opened, step, ask, written, absent, answers, ledger, output, diverged, end, outstanding, exclusions, record, server } =
            saved;
        self.server.restore(server, opened).map_err(|_| foreign())?;
        let exchange = ask.down.exchange;
        let is_accepted = |parts: &Vec<(Part, Body)>| {
            // As bytes, because NaN is no number's equal.
            let bytes = |parts: &Vec<(Part, Body)>| postcard::to_stdvec(parts).expect("plain data serialises");
            let is_diverged = || bytes(parts) == bytes(&self.protocol.diverged_answer(exchange));
            check_answer(&self.protocol, &*self.server, exchange, parts).is_ok() || is_diverged()
        };
        if !answers.iter().flatten().all(is_accepted) {
            self.server.restore(before, self.state.opened).expect("its own state");
            return Err(foreign());
        }
        let sum = std::mem::take(&mut self.state.sum);
        self.state =
            State { opened, step, ask, written, absent, answers, sum, ledger, output, diverged, end, outstanding, exclusions, record };
        self.lanes = super::FromLanes::Nothing;
        self.letters.clear();
        self.refusals.clear();
        Ok(())
    }

    /// Whether `saved` is a possible state of this coordinator, apart from the server half's. Checks every value on which later
    /// rounds rely, because a checksum does not protect against deliberate changes.
    fn can_be_at(&self, saved: &Saved) -> bool {
        let Saved {
            opened,
            step,
            ask,
            written,
            absent,
            answers,
            ledger,
            output,
            diverged,
            end,
            outstanding,
            exclusions,
            record: _,
            server: _,
        } = saved;
        let (n, uplink) = (self.federation.agents(), self.uplink());
        let is_open = *step == Step::Ask;
        let are_agents = |agents: &[usize]| agents.is_sorted_by(|a, b| a < b) && agents.iter().all(|c| *c < n);
        let asked = ask.to.as_ref().map_or(n, Vec::len);
        let is_at = |down: &Message| Some(down.round) == opened.checked_sub(1) && self.protocol.check_down(down).is_ok();
        let is_asked = match step {
            Step::Ask => ask.down.exchange != TELL && is_at(&ask.down),
            Step::Tell => ask.down.exchange == TELL && is_at(&ask.down),
            // The last question is of no use any more.
            Step::RoundOver => true,
        };
        let is_written = written.as_ref().is_none_or(|written| {
            let is_same = (written.round, written.exchange) == (ask.down.round, ask.down.exchange);
            !uplink.downlink.is_exact() && (*step == Step::RoundOver || is_same && self.protocol.check_down(written).is_ok())
        });
        let is_own = ask.own.as_ref().is_none_or(|own| {
            let mut each = own.each.iter().flatten();
            own.each.len() == asked && (*step == Step::RoundOver || each.all(|x| self.protocol.has_own(ask.down.exchange, own.part, x)))
        });
        let are_answers = if is_open { answers.is_empty() || answers.len() == asked } else { answers.is_empty() };
        let latest = uplink.late.as_ref().map(|late| late.max());
        let next = opened.saturating_sub(u64::from(is_open));
        *opened <= MAX_ROUNDS
            && (*opened > 0 || *step == Step::RoundOver)
            && ask.to.as_deref().is_none_or(are_agents)
            && are_agents(absent)
            && is_asked
            && is_written
            && is_own
            && are_answers
            && ledger.is_possible()
            && output.continues(&self.state.output)
            && diverged.is_none_or(|round| round <= *opened && !is_open)
            && end.channel.len() == self.state.end.channel.len()
            && end.medians.are_possible()
            && end.mail.is_of(next, *opened, latest, n, &self.protocol)
            && exclusions.iter().enumerate().all(|(i, one)| one.agent < n && !exclusions[..i].iter().any(|other| other.agent == one.agent))
            && outstanding.is_of(*opened, self.latest(), n)
    }
}
