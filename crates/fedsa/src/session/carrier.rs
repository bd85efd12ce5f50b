//! What carries the messages of a federation: this process, or bytes between nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::coordinator::Coordinator;
use crate::error::{BadInput, Result};
use crate::metrics::Observable;
use crate::node::{ServerNode, Todo};
use crate::record::Ledger;
use crate::round::{Advanced, Run};

/// A federation with something that carries its messages: what a [`super::Session`] advances.
pub trait Carrier: Observable + Send {
    /// Carries the messages of one round, and gives up soon after `cancel` is set. A round that was left open before is ended first,
    /// and counts.
    ///
    /// # Errors
    /// When messages cannot be carried at all. Answers that are missing or refused are no error.
    fn carry_round(&mut self, cancel: &Cancel) -> Result<Advanced>;
    /// The counts since the start, with the agents' work as far as it is known here.
    fn counts(&self) -> Ledger;
    /// The local steps of a participant in the next round, by which the time of a round is estimated; 0 if they are not known here.
    fn next_local_steps(&self) -> usize {
        0
    }
    /// Whether a round that is cancelled stays open and goes on later. Otherwise what was done of it is lost: a short round is then ended
    /// first, and before a long one the state is kept.
    fn keeps_cancelled_rounds(&self) -> bool {
        false
    }
    /// The approximate number of bytes that [`Carrier::save`] returns.
    fn state_len(&self) -> usize;
    /// The state between two rounds, as bytes.
    ///
    /// # Errors
    /// When the last round was cancelled in its middle.
    fn save(&self) -> Result<Vec<u8>>;
    /// Goes on from a state that [`Carrier::save`] returned.
    ///
    /// # Errors
    /// When it is not a state of this federation.
    fn restore(&mut self, state: &[u8]) -> Result<()>;
    /// Goes back to the start.
    ///
    /// # Errors
    /// When that is not possible here.
    fn restart(&mut self) -> Result<()>;
    /// Whether a cancelled round left no state between two rounds, so that the carrier must be restored or restarted.
    fn is_torn(&self) -> bool {
        false
    }
}

impl Carrier for Run {
    fn carry_round(&mut self, cancel: &Cancel) -> Result<Advanced> {
        Ok(self.advance(cancel))
    }
    fn counts(&self) -> Ledger {
        self.ledger()
    }
    fn next_local_steps(&self) -> usize {
        Run::next_local_steps(self)
    }
    fn state_len(&self) -> usize {
        Run::state_len(self)
    }
    fn save(&self) -> Result<Vec<u8>> {
        Run::save(self)
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        Run::restore(self, state)
    }
    fn restart(&mut self) -> Result<()> {
        Run::restart(self)
    }
    fn is_torn(&self) -> bool {
        Run::is_torn(self)
    }
}

/// What carries bytes between a server and its agents: threads, a file system, somebody else's network.
pub trait Transport: Send {
    /// The agents that can be reached now, in increasing order; `None` if all can.
    fn reachable(&mut self) -> Option<Vec<usize>> {
        None
    }
    /// Sends each of the agents `to` its bytes, and returns the answers that came until `deadline`, in any order, each with the agent
    /// that sent it. Gives up soon after `cancel` is set.
    ///
    /// # Errors
    /// When nothing can be carried any more. An agent that does not answer is no error: its answer is missing.
    fn exchange(&mut self, to: &[usize], bytes: &[Arc<[u8]>], deadline: Option<Instant>, cancel: &Cancel) -> Result<Vec<(usize, Vec<u8>)>>;
    /// Sends each of the agents `to` its bytes, which nobody answers.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn tell(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()>;
}

/// A server whose agents are reached through a transport.
pub struct Nodes<T> {
    server: ServerNode,
    transport: T,
    patience: Option<Duration>,
}

impl<T: Transport> Nodes<T> {
    /// A server and what carries its bytes. It waits for every answer, however long that takes.
    pub fn new(server: ServerNode, transport: T) -> Self {
        Self { server, transport, patience: None }
    }

    /// Waits at most so long for the answers of an exchange; those that have not come by then are missing.
    #[must_use]
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// The server.
    pub fn server(&self) -> &ServerNode {
        &self.server
    }

    /// What carries the bytes.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Opens the next round for the agents that can be reached; goes on with a question that is still open.
    fn opened(&mut self) -> Todo {
        if matches!(self.server.todo(), Todo::Ask { .. }) {
            return self.server.todo().clone();
        }
        let reachable = self.transport.reachable();
        self.server.open_for(reachable.as_deref())
    }
}

impl<T> Observable for Nodes<T> {
    fn coordinator(&self) -> &Coordinator {
        self.server.coordinator()
    }
    fn controls(&self) -> Option<Vec<Vec<f64>>> {
        Observable::controls(&self.server)
    }
}

impl<T: Transport> Carrier for Nodes<T> {
    fn carry_round(&mut self, cancel: &Cancel) -> Result<Advanced> {
        let mut todo = self.opened();
        if todo == Todo::RoundOver {
            return Ok(Advanced::Over);
        }
        loop {
            match todo {
                Todo::Ask { to, bytes } => {
                    let deadline = self.patience.map(|patience| Instant::now() + patience);
                    let answers = self.transport.exchange(&to, &bytes, deadline, cancel)?;
                    for (agent, answer) in &answers {
                        // Refused answers are listed by the coordinator, and count as missing.
                        let _ = self.server.take(*agent, answer);
                    }
                    // The question stays open; the next call asks it again, and agents repeat what they answered.
                    if cancel.is_cancelled() {
                        return Ok(Advanced::Cancelled);
                    }
                    todo = self.server.close();
                }
                Todo::Tell { to, bytes } => {
                    self.transport.tell(&to, &bytes)?;
                    return Ok(Advanced::Round);
                }
                Todo::RoundOver => return Ok(Advanced::Round),
            }
        }
    }
    fn counts(&self) -> Ledger {
        self.server.coordinator().ledger()
    }
    fn keeps_cancelled_rounds(&self) -> bool {
        true
    }
    fn state_len(&self) -> usize {
        self.server.state_len()
    }
    fn save(&self) -> Result<Vec<u8>> {
        Ok(self.server.save())
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.server.restore(state)
    }
    fn restart(&mut self) -> Result<()> {
        Err(BadInput::machine("agents on other machines do not go back to the start", "a saved state of the server, or a new federation"))
    }
}
