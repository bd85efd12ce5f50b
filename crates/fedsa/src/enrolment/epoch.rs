//! Announcements to agents when others join or leave.

use serde::{Deserialize, Serialize};

use super::applicant::keyed;
use super::frame::{self, Kind};
use super::{Admission, Applicant, ColumnSummary};
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::protocol::refused;
use crate::secure::PublicKey;

/// The server's announcement of an epoch to an agent.
#[derive(Serialize, Deserialize)]
pub(super) struct EpochTold {
    pub agent: u32,
    pub epoch: u64,
    pub weights: Vec<f64>,
    #[serde(with = "postcard::fixint::le")]
    pub digest: u64,
    /// The public keys of all agents, for secure sums.
    pub keys: Vec<PublicKey>,
    /// For a new agent.
    pub new: Option<ToldToNew>,
}

/// The additional content for an agent that knows no earlier epoch.
#[derive(Serialize, Deserialize)]
pub(super) struct ToldToNew {
    start: Vec<f64>,
    /// The columns of all agents.
    columns: Vec<ColumnSummary>,
    /// The number of the run.
    #[serde(with = "postcard::fixint::le")]
    run: u64,
    /// The mark of its application.
    #[serde(with = "postcard::fixint::le")]
    mark: u64,
}

/// The announcement of a later epoch to an agent that knows the federation; 8 bytes for each agent of the epoch, and about 30 more.
///
/// # Panics
/// When there is no such agent.
pub fn announce(federation: &Federation, agent: usize) -> Vec<u8> {
    written(federation, agent, None)
}

/// The announcement to an agent that joins in this epoch, in place of an admission: 8 more bytes for each component of the start, and the
/// columns. `columns` are the founding columns, `mark` is a hash of its application.
///
/// # Panics
/// When there is no such agent.
pub fn announce_to_new(federation: &Federation, agent: usize, columns: &[ColumnSummary], mark: u64) -> Vec<u8> {
    let (start, columns) = (federation.start().to_vec(), columns.to_vec());
    written(federation, agent, Some(ToldToNew { start, columns, run: federation.run(), mark }))
}

fn written(federation: &Federation, agent: usize, new: Option<ToldToNew>) -> Vec<u8> {
    assert!(agent < federation.agents(), "agent {agent} of {} agents", federation.agents());
    let (weights, digest, epoch) = (federation.weights().to_vec(), federation.digest(), federation.epoch());
    let keys = federation.keys().to_vec();
    frame::written(Kind::Epoch, &EpochTold { agent: agent as u32, epoch, weights, digest, keys, new })
}

/// Reads an announcement to an agent that knows an earlier epoch, `before`: the federation, and the agent's number in it.
///
/// # Errors
/// When the bytes are damaged or not an announcement of this version; when the epoch is not later; when the resulting federation differs
/// from the server's.
pub fn announced(before: &Federation, bytes: &[u8]) -> Result<(Federation, usize)> {
    let told: EpochTold = frame::read(Kind::Epoch, bytes)?;
    if told.epoch <= before.epoch() {
        return Err(Error::other_state(format!("epoch {} after epoch {}", told.epoch, before.epoch())));
    }
    let other = |e: Error| Error::other_state(e.what);
    Ok((later(before, &told).map_err(other)?, told.agent as usize))
}

/// Whether bytes announce this federation and this number, which the agent already knows.
///
/// # Errors
/// When the bytes are damaged or not an announcement of this version.
pub fn repeats(federation: &Federation, agent: usize, bytes: &[u8]) -> Result<bool> {
    let told: EpochTold = frame::read(Kind::Epoch, bytes)?;
    Ok((told.epoch, told.digest, told.agent as usize) == (federation.epoch(), federation.digest(), agent))
}

/// Whether bytes announce an epoch.
pub fn is_announcement(bytes: &[u8]) -> bool {
    frame::is_of(Kind::Epoch, bytes)
}

/// The federation of an announcement.
fn later(before: &Federation, told: &EpochTold) -> Result<Federation> {
    let (agent, n) = (told.agent, told.weights.len());
    if agent as usize >= n {
        return Err(refused(format!("agent number {agent} of {n} agents"), "this agent's number"));
    }
    let federation = before.at_epoch(told.weights.clone(), told.epoch).map_err(|e| refused(e.what.clone(), &e.help))?;
    let federation = keyed(federation, told.keys.clone())?;
    if federation.digest() != told.digest {
        return Err(refused("a federation with other settings", "one with this agent's settings"));
    }
    Ok(federation)
}

impl Applicant {
    /// Reads the announcement to an agent that joins later.
    ///
    /// # Errors
    /// As [`Applicant::admitted`].
    pub fn joined(&self, bytes: &[u8]) -> Result<Admission> {
        let mut told: EpochTold = frame::read(Kind::Epoch, bytes)?;
        let ToldToNew { start, columns, run, mark } =
            told.new.take().ok_or_else(|| refused("an announcement without start and columns", "one to a new agent"))?;
        self.check_mark(mark)?;
        let founded = self.federation(&told.weights, start, &columns)?.of_run(run);
        Ok(Admission { federation: later(&founded, &told)?, agent: told.agent as usize, columns })
    }
}
