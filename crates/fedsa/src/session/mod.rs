//! A session: runs a federation up to a target, and records rounds.
//!
//! It works over any [`Carrier`]: agents in this process ([`crate::round::Run`]), or nodes over bytes ([`Nodes`] with a [`Transport`]). It
//! ends in one [`Outcome`]. It can be cancelled at any time and goes on afterwards, also in another process ([`Session::state`]).

mod carrier;
mod recorded;
mod until;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use carrier::{Carrier, Nodes, Quorum, Transport};
pub use recorded::Recorded;
pub use until::StoppingCriteria;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::metrics::{Metrics, Observation};
use crate::record::Outcome;
use crate::round::{Advanced, round};

/// Callbacks of a session: its progress, and the storage of its states.
pub trait Observer {
    /// A round was recorded.
    fn recorded(&mut self, _row: &Recorded) {}
    /// The output at a round that is recorded next, d numbers.
    ///
    /// # Errors
    /// When the session cannot go on. The round is then not recorded.
    fn output(&mut self, _round: u64, _theta: &[f64]) -> Result<()> {
        Ok(())
    }
    /// A round was run.
    fn advanced(&mut self) {}
    /// Whether to keep a state now; called before each round.
    fn wants_state(&mut self) -> bool {
        false
    }
    /// Whether a state of so many bytes fits into memory beside the session. States are held in memory only before long rounds, which are
    /// abandoned when the session is cancelled.
    fn fits(&mut self, _bytes: usize) -> bool {
        true
    }
    /// Keeps a state; returns whether that worked.
    fn keep(&mut self, _state: &State) -> bool {
        false
    }
    /// The state that was kept last, if it is still available.
    fn kept(&mut self) -> Option<State> {
        None
    }
}

impl Observer for () {}

/// A session between two rounds, as values that can be serialised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Rounds done.
    pub round: u64,
    /// The recorded rounds.
    pub rows: Vec<Recorded>,
    /// The state of the carrier.
    #[serde(with = "serde_bytes")]
    pub carrier: Vec<u8>,
    /// The time of these rounds, in seconds.
    pub seconds: f64,
}

/// The rounds that a session records, besides its last one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Record {
    /// Every n-th round, from round 0.
    Every(u64),
    /// These rounds, in increasing order.
    At(Arc<[u64]>),
}

impl Record {
    fn has(&self, round: u64) -> bool {
        match self {
            Record::Every(k) => round.is_multiple_of(*k),
            Record::At(rounds) => rounds.binary_search(&round).is_ok(),
        }
    }

    /// The first of these rounds that is not before `round`; `u64::MAX` if there is none.
    fn next(&self, round: u64) -> u64 {
        match self {
            Record::Every(_) if round == 0 => 0,
            Record::Every(k) => round.checked_next_multiple_of(*k).unwrap_or(u64::MAX),
            Record::At(rounds) => rounds.get(rounds.partition_point(|at| *at < round)).copied().unwrap_or(u64::MAX),
        }
    }
}

/// The number of short rounds between two that are timed: reading the clock twice takes as long as some agents.
const UNTIMED: u64 = 63;
/// The longest such short round, as a share of the patience.
const SHORT: f64 = 1e-3;

/// The longest round for which a cancelled session waits by default.
const PATIENCE: Duration = Duration::from_millis(250);

/// A round before it runs.
struct ExpectedRound {
    /// The local steps of a participant.
    steps: f64,
    /// Abandons the round.
    cancel: Cancel,
    /// The state before the round, if it may be abandoned and no state was kept elsewhere.
    state: Option<State>,
}

/// Brings a carrier to its start.
type Prepare<C> = Arc<dyn Fn(&mut C) + Send + Sync>;

/// Runs a federation up to a target.
pub struct Session<C> {
    carrier: C,
    /// Absent without the agents' data.
    metrics: Option<Arc<Metrics>>,
    record: Record,
    /// The cached next round to record.
    due: Option<u64>,
    centre: Option<Arc<[f64]>>,
    control_weight: f64,
    patience: Duration,
    prepare: Option<Prepare<C>>,
    rows: Vec<Recorded>,
    /// The rounds done when the last round was opened or ended.
    round: u64,
    /// The time of all rounds until it was last counted, in seconds.
    seconds: f64,
    /// When the time was last counted, while the session goes on.
    since: Option<Instant>,
    /// Seconds per local step in the last round; unknown before the first whole round.
    pace: Option<f64>,
    /// How many more rounds need not be timed.
    untimed: u64,
    /// `||gbar(theta_0)||`, once a target is relative to it.
    at_start: Option<f64>,
    /// The last round whose state was kept.
    kept: Option<u64>,
}

impl<C: Carrier> Session<C> {
    /// A session at round 0 that records every round, without metrics.
    pub fn new(carrier: C) -> Self {
        Self {
            round: carrier.coordinator().rounds(),
            carrier,
            metrics: None,
            record: Record::Every(1),
            due: None,
            centre: None,
            control_weight: 0.0,
            patience: PATIENCE,
            prepare: None,
            rows: Vec::new(),
            seconds: 0.0,
            since: None,
            pace: None,
            untimed: 0,
            at_start: None,
            kept: None,
        }
    }

    /// Records these metrics.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Records these rounds.
    #[must_use]
    pub fn recording(self, record: Record) -> Self {
        Self { record, due: None, ..self }
    }

    /// Measures errors from `centre` as well, d numbers.
    #[must_use]
    pub fn around(self, centre: Arc<[f64]>) -> Self {
        Self { centre: Some(centre), ..self }
    }

    /// The weight of the control variates in the Lyapunov function, `(eta H)^2`.
    #[must_use]
    pub fn with_control_weight(self, control_weight: f64) -> Self {
        Self { control_weight, ..self }
    }

    /// The longest round that a cancelled session waits for, 0.25 s by default; a longer one is abandoned.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sets a function that brings the carrier to its start; called now, and at each restart of the session.
    #[must_use]
    pub fn prepared(mut self, prepare: Prepare<C>) -> Self {
        prepare(&mut self.carrier);
        Self { prepare: Some(prepare), ..self }
    }

    /// The carrier.
    pub fn carrier(&self) -> &C {
        &self.carrier
    }

    /// The carrier. The caller is responsible for changes between two calls of [`Session::advance`].
    pub fn carrier_mut(&mut self) -> &mut C {
        &mut self.carrier
    }

    /// The number of rounds done.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The recorded rounds.
    pub fn rows(&self) -> &[Recorded] {
        &self.rows
    }

    /// The time of all rounds so far with their metrics, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The method's output, d numbers.
    pub fn output(&self) -> &[f64] {
        self.carrier.coordinator().output()
    }

    /// The number of rounds done when the iterates were found to have diverged, if they have.
    pub fn diverged(&self) -> Option<u64> {
        self.carrier.coordinator().diverged()
    }

    /// The state between two rounds.
    ///
    /// # Errors
    /// When the last round was cancelled before its end; [`Session::advance`] then goes on from an earlier state.
    pub fn state(&self) -> Result<State> {
        let carrier = self.carrier.save()?;
        Ok(State { round: self.round, rows: self.rows.clone(), carrier, seconds: self.seconds })
    }

    /// Goes on from a state of a session of the same federation. Rounds that this session does not record are left out.
    ///
    /// # Errors
    /// When this is not such a state. The session is then unchanged, or goes on from the start.
    pub fn restore(&mut self, state: State) -> Result<()> {
        self.carrier.restore(&state.carrier)?;
        let round = self.carrier.coordinator().rounds();
        if round != state.round {
            let what = format!("a state after {round} rounds in a checkpoint after {}", state.round);
            self.restart()?;
            return Err(Error::format("", what, "the state of a session"));
        }
        let State { round, mut rows, seconds, .. } = state;
        rows.retain(|row| self.record.has(row.round));
        (self.round, self.rows, self.seconds, self.kept, self.due) = (round, rows, seconds, Some(round), None);
        Ok(())
    }

    /// Goes back to round 0.
    ///
    /// # Errors
    /// When the carrier cannot go back.
    pub fn restart(&mut self) -> Result<()> {
        self.carrier.restart()?;
        if let Some(prepare) = &self.prepare {
            prepare(&mut self.carrier);
        }
        self.rows.clear();
        (self.round, self.seconds, self.kept, self.due) = (0, 0.0, None, None);
        Ok(())
    }

    /// Goes on until a target is reached, all rounds are done, the iterates diverge, or it is cancelled. Afterwards the session can go on
    /// with the same or another target. A cancelled session ends a short round and abandons a long one. After an abandoned round it goes on
    /// from before the round, if that state fitted into memory; otherwise from the state that the observer kept last, or from the start.
    ///
    /// # Errors
    /// When a target cannot be measured ([`Session::with_metrics`]), the carrier, an operator of metrics or [`Observer::output`] fails, or
    /// the carrier has lost its state and cannot go back to the start. After a failure the same call goes on.
    pub fn advance(&mut self, until: &StoppingCriteria, cancel: &Cancel, observer: &mut dyn Observer) -> Result<Outcome> {
        until.check(self.metrics.as_deref())?;
        if self.carrier.is_torn() {
            self.go_back(observer)?;
        }
        self.since = Some(Instant::now());
        let mut outcome = self.go_on(until, cancel, observer);
        // An interrupted session goes on later, and the messages travel with the next questions.
        if outcome.as_ref().is_ok_and(|outcome| *outcome != Outcome::Interrupted)
            && let Err(reason) = self.carrier.finish()
        {
            outcome = Err(reason);
        }
        // The time of an abandoned round does not count, since the session goes on from before it.
        if !matches!(outcome, Ok(Outcome::Interrupted)) {
            self.count_time();
        }
        self.since = None;
        outcome
    }

    fn go_on(&mut self, until: &StoppingCriteria, cancel: &Cancel, observer: &mut dyn Observer) -> Result<Outcome> {
        self.carrier.resend()?;
        loop {
            if let Some(outcome) = self.before_round(until, cancel, observer)? {
                return Ok(outcome);
            }
            let advanced = self.carry(cancel, observer)?;
            if let Some(outcome) = self.after_round(advanced, until, observer) {
                return Ok(outcome);
            }
        }
    }

    /// Records the round if it is due, and checks whether the session ends.
    fn before_round(&mut self, until: &StoppingCriteria, cancel: &Cancel, observer: &mut dyn Observer) -> Result<Option<Outcome>> {
        let (t, diverged) = (self.carrier.coordinator().rounds(), self.diverged());
        self.round = t;
        let is_over = t >= until.rounds || diverged.is_some();
        if self.rows.last().is_none_or(|row| row.round < t) && (is_over || self.is_due(t)) {
            self.see(observer)?;
        }
        if until.relative_residual.is_some() && self.at_start.is_none() {
            self.at_start = self.residual_at_start();
        }
        let has_reached = self.rows.last().is_some_and(|row| row.round == t) && until.is_reached(&self.rows, self.at_start);
        if is_over || has_reached {
            return Ok(Some(until.outcome(&self.rows, self.at_start, diverged, has_reached)));
        }
        if cancel.is_cancelled() {
            self.keep(observer)?;
            return Ok(Some(Outcome::Interrupted));
        }
        if observer.wants_state() {
            self.keep(observer)?;
        }
        Ok(None)
    }

    /// Whether round t is recorded.
    fn is_due(&mut self, t: u64) -> bool {
        self.next_due(t) == t
    }

    /// The first recorded round that is not before t.
    fn next_due(&mut self, t: u64) -> u64 {
        match self.due.filter(|due| *due >= t) {
            Some(due) => due,
            None => *self.due.insert(self.record.next(t)),
        }
    }

    /// The outcome, if the session ends with this round.
    fn after_round(&self, advanced: Advanced, until: &StoppingCriteria, observer: &mut dyn Observer) -> Option<Outcome> {
        match advanced {
            Advanced::Round => observer.advanced(),
            Advanced::Over => return Some(until.outcome(&self.rows, self.at_start, self.diverged(), false)),
            Advanced::Cancelled => return Some(Outcome::Interrupted),
        }
        None
    }

    /// `||gbar(theta_0)||` if known, also for sessions that did not record round 0.
    fn residual_at_start(&self) -> Option<f64> {
        match self.rows.first() {
            Some(row) if row.round == 0 => row.seen.residual,
            _ => self.metrics.as_ref()?.residual(self.carrier.coordinator().federation().start()),
        }
    }

    /// Counts the time until now, while the session goes on.
    fn count_time(&mut self) {
        let Some(since) = self.since else { return };
        let now = Instant::now();
        self.seconds += (now - since).as_secs_f64();
        self.since = Some(now);
    }

    /// Runs a round: a short one to its end, a long one until it is cancelled.
    fn carry(&mut self, cancel: &Cancel, observer: &mut dyn Observer) -> Result<Advanced> {
        if self.carrier.keeps_cancelled_rounds() {
            let advanced = round(&mut self.carrier, cancel)?;
            if advanced == Advanced::Cancelled {
                self.keep(observer)?;
            }
            return Ok(advanced);
        }
        if self.untimed > 0 && self.expected() < SHORT {
            self.untimed -= 1;
            return round(&mut self.carrier, &Cancel::never());
        }
        let expected = self.expect_round(cancel, observer)?;
        let began = Instant::now();
        let advanced = round(&mut self.carrier, &expected.cancel)?;
        self.end_round(expected, advanced, began.elapsed().as_secs_f64(), observer)?;
        self.untimed = UNTIMED;
        Ok(advanced)
    }

    /// The expected time of the next round, as a share of the patience; infinite before the first whole round.
    fn expected(&self) -> f64 {
        self.pace.map_or(f64::INFINITY, |pace| pace * self.local_steps() / self.patience.as_secs_f64())
    }

    /// A participant's local steps in the next round, 1 if there are none.
    fn local_steps(&self) -> f64 {
        self.carrier.next_local_steps().max(1) as f64
    }

    /// Prepares the next round: a short one runs to its end, a long one until it is cancelled, with a state before it.
    fn expect_round(&mut self, cancel: &Cancel, observer: &mut dyn Observer) -> Result<ExpectedRound> {
        let steps = self.local_steps();
        if self.expected() <= 1.0 {
            return Ok(ExpectedRound { steps, cancel: Cancel::never(), state: None });
        }
        // The state before a round that may be abandoned must be in memory or kept elsewhere.
        let is_missing = self.kept != Some(self.round);
        self.count_time();
        let state = (is_missing && observer.fits(self.carrier.state_len())).then(|| self.state()).transpose()?;
        Ok(ExpectedRound { steps, cancel: cancel.clone(), state })
    }

    /// Keeps the state before a cancelled round, and updates the pace from the round's `seconds`.
    fn end_round(&mut self, round: ExpectedRound, advanced: Advanced, seconds: f64, observer: &mut dyn Observer) -> Result<()> {
        let ExpectedRound { steps, state, .. } = round;
        if let (Advanced::Cancelled, Some(state)) = (advanced, state) {
            if observer.keep(&state) {
                self.kept = Some(state.round);
            }
            if self.carrier.is_torn() {
                self.carrier.restore(&state.carrier)?;
            }
        }
        let pace = seconds / steps;
        self.pace = match advanced {
            Advanced::Round => Some(pace),
            // The whole round would have taken longer.
            Advanced::Cancelled => self.pace.map(|before| before.max(pace)),
            Advanced::Over => self.pace,
        };
        Ok(())
    }

    /// Goes on from the state that was kept last, or from the start.
    fn go_back(&mut self, observer: &mut dyn Observer) -> Result<()> {
        match observer.kept() {
            Some(state) => self.restore(state),
            None => self.restart(),
        }
    }

    /// Records the round.
    fn see(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let seen = match &self.metrics {
            None => Observation::default(),
            Some(metrics) => metrics.try_observe(&self.carrier, self.centre.as_deref(), self.control_weight)?,
        };
        let row = Recorded { round: self.round, ledger: self.carrier.counts(), seen, seconds: None };
        observer.output(row.round, self.carrier.coordinator().output())?;
        observer.recorded(&row);
        self.rows.push(row);
        Ok(())
    }

    fn keep(&mut self, observer: &mut dyn Observer) -> Result<()> {
        self.count_time();
        if observer.keep(&self.state()?) {
            self.kept = Some(self.round);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_recorded_round_is_the_first_that_is_one() {
        for record in [
            Record::Every(0),
            Record::Every(1),
            Record::Every(7),
            Record::At([0, 1, 5, 30].into()),
            Record::At([3].into()),
            Record::At([].into()),
        ] {
            for round in 0..40 {
                let next = record.next(round);
                assert!((round..next.min(60)).all(|t| !record.has(t)), "{record:?}, {round}");
                assert!(next == u64::MAX || record.has(next), "{record:?}, {round}");
            }
        }
        assert_eq!((Record::Every(7).next(u64::MAX), Record::At([5, 9].into()).next(9)), (u64::MAX, 9));
    }
}
