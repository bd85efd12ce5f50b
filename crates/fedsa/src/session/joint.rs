//! Sessions on the same data, whose rounds are carried jointly ([`crate::round::advance_jointly`]).

use std::time::Instant;

use super::{ExpectedRound, Observer, Session, Until};
use crate::cancel::Cancel;
use crate::error::Result;
use crate::parallel;
use crate::record::Outcome;
use crate::round::{self, Advanced, Run};

/// A session with its target and its observer.
pub struct JointSession<O> {
    /// The session.
    pub session: Session<Run>,
    /// Its target.
    pub until: Until,
    /// Its observer.
    pub observer: O,
}

/// How far a member is.
enum Stage {
    /// Before a round.
    Between,
    /// In a round.
    Open(ExpectedRound),
    Ended(Result<Outcome>),
}

/// A member that goes on, its number, and how far it is.
struct Going<O> {
    number: usize,
    member: JointSession<O>,
    stage: Stage,
}

impl<O: Observer> Going<O> {
    /// Begins, or goes back to the state that was kept last.
    fn begin(&mut self) -> Result<()> {
        let JointSession { session, until, observer } = &mut self.member;
        until.check(session.metrics.as_deref())?;
        if session.carrier.is_torn() { session.go_back(observer) } else { Ok(()) }
    }

    /// Opens the next round, if there is one.
    fn open(&mut self, cancel: &Cancel) {
        let JointSession { session, until, observer } = &mut self.member;
        self.stage = match session.before_round(until, cancel, observer) {
            Ok(Some(outcome)) => Stage::Ended(Ok(outcome)),
            Ok(None) => session.expect_round(cancel, observer).map_or_else(|reason| Stage::Ended(Err(reason)), Stage::Open),
            Err(reason) => Stage::Ended(Err(reason)),
        };
    }

    /// Ends a round that took all runs so many `seconds`.
    fn close(&mut self, advanced: Advanced, seconds: f64) {
        let Stage::Open(expected) = std::mem::replace(&mut self.stage, Stage::Between) else { return };
        let JointSession { session, until, observer } = &mut self.member;
        let closed = match session.carrier.failure() {
            Some(reason) => Err(reason),
            None => session.end_round(expected, advanced, seconds, observer).map(|()| session.after_round(advanced, until, observer)),
        };
        if let Some(end) = closed.transpose() {
            self.stage = Stage::Ended(end);
        }
    }
}

/// [`Session::advance`] of sessions whose runs have one field: with the same results, and faster where the data of all agents do not fit into
/// caches while those of one agent do. Their time is shared out evenly.
///
/// `ended` is called as soon as a session has ended or failed, with its number among the members; that does not stop the others.
pub fn advance_jointly<O: Observer + Send>(
    members: Vec<JointSession<O>>,
    cancel: &Cancel,
    mut ended: impl FnMut(usize, JointSession<O>, Result<Outcome>),
) {
    let mut all = Vec::with_capacity(members.len());
    for (number, member) in members.into_iter().enumerate() {
        let mut going = Going { number, member, stage: Stage::Between };
        if let Err(reason) = going.begin() {
            going.stage = Stage::Ended(Err(reason));
        }
        all.push(going);
    }
    let mut since = Instant::now();
    while !all.is_empty() {
        parallel::each_mut(&mut all, |_, going| {
            if let Stage::Between = going.stage {
                going.open(cancel);
            }
        });
        share_time(&mut all, &mut since);
        let mut open = Vec::with_capacity(all.len());
        for Going { number, member, stage } in all {
            match stage {
                Stage::Ended(end) => ended(number, member, end),
                stage => open.push(Going { number, member, stage }),
            }
        }
        all = open;
        let mut runs: Vec<(&mut Run, &Cancel)> = Vec::with_capacity(all.len());
        for Going { member, stage, .. } in &mut all {
            if let Stage::Open(expected) = stage {
                runs.push((&mut member.session.carrier, &expected.cancel));
            }
        }
        let began = Instant::now();
        let advanced = round::advance_jointly(&mut runs);
        let seconds = began.elapsed().as_secs_f64();
        // An abandoned round takes no time of a session, which goes on from before it.
        if advanced.contains(&Advanced::Cancelled) {
            since = Instant::now();
        }
        for (going, advanced) in all.iter_mut().zip(advanced) {
            going.close(advanced, seconds);
        }
    }
}

/// Shares the time since then out among members.
fn share_time<O>(all: &mut [Going<O>], since: &mut Instant) {
    let now = Instant::now();
    let share = (now - *since).as_secs_f64() / all.len() as f64;
    all.iter_mut().for_each(|going| going.member.session.seconds += share);
    *since = now;
}
