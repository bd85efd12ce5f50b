//! Sessions on the same data, whose rounds are carried jointly ([`crate::round::advance_jointly`]).

use std::time::Instant;

use super::{ExpectedRound, Observer, Session, Until};
use crate::cancel::Cancel;
use crate::error::Result;
use crate::parallel;
use crate::record::Outcome;
use crate::round::{self, Advanced, Run};

/// A session with its target and its observer.
pub struct Member<'a, O> {
    /// The session.
    pub session: &'a mut Session<Run>,
    /// Its target.
    pub until: Until,
    /// Its observer.
    pub observer: &'a mut O,
}

impl<O: Observer> Member<'_, O> {
    /// Before the next round: how it is to be carried, or how the session has ended.
    fn open(&mut self, cancel: &Cancel) -> Result<Result<ExpectedRound, Outcome>> {
        match self.session.before_round(&self.until, cancel, self.observer)? {
            Some(outcome) => Ok(Err(outcome)),
            None => self.session.expect_round(cancel, self.observer).map(Ok),
        }
    }

    /// After a round: how the session has ended, if it has.
    fn close(&mut self, expected: ExpectedRound, advanced: Advanced) -> Result<Option<Outcome>> {
        if let Some(reason) = self.session.carrier.failure() {
            return Err(reason);
        }
        self.session.end_round(expected, advanced, self.observer)?;
        Ok(self.session.after_round(advanced, &self.until, self.observer))
    }
}

/// How far a member is.
enum Stage {
    /// Before a round.
    Between,
    /// In a round.
    Open(ExpectedRound),
    Ended(Result<Outcome>),
}

/// [`Session::advance`] of sessions whose runs have one field: with the same results, and faster where the data of all agents do not fit into
/// caches while those of one agent do. Their time is shared out evenly.
///
/// Returns how each has ended, in their order. One that fails does not stop the others.
pub fn advance_jointly<O: Observer + Send>(members: Vec<Member<'_, O>>, cancel: &Cancel) -> Vec<Result<Outcome>> {
    let begin = |member: &mut Member<'_, O>| {
        member.until.check(member.session.metrics.as_deref())?;
        if member.session.carrier.is_torn() { member.session.go_back(member.observer) } else { Ok(()) }
    };
    let mut all = Vec::with_capacity(members.len());
    for mut member in members {
        let stage = begin(&mut member).map_or_else(|reason| Stage::Ended(Err(reason)), |()| Stage::Between);
        all.push((member, stage));
    }
    loop {
        let began = Instant::now();
        parallel::each_mut(&mut all, |_, (member, stage)| {
            if let Stage::Between = stage {
                *stage = match member.open(cancel) {
                    Ok(Ok(expected)) => Stage::Open(expected),
                    Ok(Err(outcome)) => Stage::Ended(Ok(outcome)),
                    Err(reason) => Stage::Ended(Err(reason)),
                };
            }
        });
        let mut runs: Vec<(&mut Run, &Cancel)> = Vec::with_capacity(all.len());
        for (member, stage) in &mut all {
            if let Stage::Open(expected) = stage {
                runs.push((&mut member.session.carrier, &expected.cancel));
            }
        }
        if runs.is_empty() {
            break;
        }
        let advanced = round::advance_jointly(&mut runs);
        let seconds = began.elapsed().as_secs_f64() / advanced.len() as f64;
        let open = all.iter_mut().filter(|(_, stage)| matches!(stage, Stage::Open(_)));
        for ((member, stage), advanced) in open.zip(advanced) {
            // An abandoned round takes no time of a session, which goes on from before it.
            member.session.seconds += if advanced == Advanced::Round { seconds } else { 0.0 };
            if let Stage::Open(expected) = std::mem::replace(stage, Stage::Between) {
                match member.close(expected, advanced) {
                    Ok(None) => {}
                    Ok(Some(outcome)) => *stage = Stage::Ended(Ok(outcome)),
                    Err(reason) => *stage = Stage::Ended(Err(reason)),
                }
            }
        }
    }
    let ended = |(_, stage)| if let Stage::Ended(end) = stage { Some(end) } else { None };
    all.into_iter().filter_map(ended).collect()
}
