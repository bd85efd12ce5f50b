//! Carriers of a federation's messages: this process, or bytes between nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::coordinator::{Coordinator, Step};
use crate::error::{Error, Result, require};
use crate::metrics::Observable;
use crate::node::{ServerNode, Todo};
use crate::record::Ledger;
use crate::round::{Exchanges, Run};

/// A federation with a carrier of its messages, which a [`super::Session`] advances [round](crate::round::round) by round.
///
/// A session is `Sync` if its carrier is: a [`Run`] is, and [`Nodes`] are if their transport is.
pub trait Carrier: Exchanges + Observable + Send {
    /// Repeats messages that failed when the session last ended; called before a session goes on.
    ///
    /// # Errors
    /// As [`Exchanges::exchange`].
    fn resend(&mut self) -> Result<()> {
        Ok(())
    }
    /// Sends agents the messages that would travel with their next questions; called when a session ends.
    ///
    /// # Errors
    /// As [`Exchanges::exchange`].
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    /// The counts since the start, with the agents' work as far as known here.
    fn counts(&self) -> Ledger;
    /// A participant's local steps in the next round, to estimate the round's time; 0 if unknown here.
    fn next_local_steps(&self) -> usize {
        0
    }
    /// Whether a cancelled round stays open and goes on later. Otherwise its work is lost: sessions end short rounds first, and keep the
    /// state before long ones.
    fn keeps_cancelled_rounds(&self) -> bool {
        false
    }
    /// The approximate number of bytes that [`Carrier::save`] returns.
    fn state_len(&self) -> usize;
    /// The state between two rounds, as bytes.
    ///
    /// # Errors
    /// When the last round was cancelled before its end.
    fn save(&self) -> Result<Vec<u8>>;
    /// Goes on from a state that [`Carrier::save`] returned.
    ///
    /// # Errors
    /// When this is not a state of this federation.
    fn restore(&mut self, state: &[u8]) -> Result<()>;
    /// Goes back to the start.
    ///
    /// # Errors
    /// When this carrier cannot.
    fn restart(&mut self) -> Result<()>;
}

impl Carrier for Run {
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
}

impl<C: Exchanges + ?Sized> Exchanges for Box<C> {
    fn open(&mut self) -> Result<Step> {
        (**self).open()
    }
    fn exchange(&mut self, cancel: &Cancel) -> Result<bool> {
        (**self).exchange(cancel)
    }
    fn close(&mut self) -> Result<Step> {
        (**self).close()
    }
    fn tell(&mut self) -> Result<()> {
        (**self).tell()
    }
    fn is_torn(&self) -> bool {
        (**self).is_torn()
    }
}

impl<C: Carrier + ?Sized> Carrier for Box<C> {
    fn resend(&mut self) -> Result<()> {
        (**self).resend()
    }
    fn finish(&mut self) -> Result<()> {
        (**self).finish()
    }
    fn counts(&self) -> Ledger {
        (**self).counts()
    }
    fn next_local_steps(&self) -> usize {
        (**self).next_local_steps()
    }
    fn keeps_cancelled_rounds(&self) -> bool {
        (**self).keeps_cancelled_rounds()
    }
    fn state_len(&self) -> usize {
        (**self).state_len()
    }
    fn save(&self) -> Result<Vec<u8>> {
        (**self).save()
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (**self).restore(state)
    }
    fn restart(&mut self) -> Result<()> {
        (**self).restart()
    }
}

/// A carrier of bytes between a server and its agents: threads, a file system, another program's network.
///
/// If a call fails, the session's call fails, and a later call repeats the messages, also to agents that have received them. Agents repeat
/// their answer to a copy, and do not change.
pub trait Transport: Send {
    /// The agents that are reachable now, in any order; `None` if all are. If none is, no round is opened: the session's call fails with
    /// the kind [`crate::error::ErrorKind::Machine`], and can be repeated.
    fn reachable(&mut self) -> Option<Vec<usize>> {
        None
    }
    /// Sends each of the agents `to` its bytes, and returns the answers that arrive until `deadline`, in any order, each with its agent.
    /// They may include answers to earlier questions: the server counts or refuses them. Gives up soon after `cancel` is set. A transport
    /// may save the state of `server` before it sends.
    ///
    /// # Errors
    /// When nothing can be carried any more. A missing answer is no error.
    fn exchange(
        &mut self,
        server: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        deadline: Option<Instant>,
        cancel: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>>;
    /// Sends each of the agents `to` its bytes at the end of a session, instead of with the next question. Agents do not answer.
    ///
    /// # Errors
    /// As [`Transport::exchange`].
    fn tell(&mut self, server: &ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()>;
    /// Callback: the server has refused an answer, which does not count.
    fn refused(&mut self, _agent: usize, _reason: &Error) {}
}

/// The number of answers that an exchange needs.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Quorum {
    /// Answers with this share of the participants' weight, in \[0, 1\].
    Share(f64),
    /// This many answers, or all if there are fewer participants.
    Agents(usize),
}

/// A server that reaches its agents through a transport.
pub struct Nodes<T> {
    server: ServerNode,
    transport: T,
    patience: Option<Duration>,
    quorum: Quorum,
    repeats: u32,
    /// Whether some recipients may lack the server's message at the end of a session.
    is_untold: bool,
}

impl<T: Transport> Nodes<T> {
    /// A server and its transport. It waits for every answer without a time limit.
    pub fn new(server: ServerNode, transport: T) -> Self {
        let is_untold = tells(&server);
        Self { server, transport, patience: None, quorum: Quorum::Agents(0), repeats: 0, is_untold }
    }

    /// Limits the wait for answers of an exchange; later answers are missing.
    #[must_use]
    pub fn waiting(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Sets the number of answers that an exchange needs; by default none. If fewer have arrived by the deadline, agents that may still
    /// answer are asked again, up to `repeats` times, each time with the same time limit. If that is not enough, or no agent is left that
    /// may answer, the round is given up ([`ServerNode::give_up`]): its answers do not count, and the next round repeats it.
    ///
    /// # Errors
    /// When no exchange can have that many answers.
    pub fn needing(self, quorum: Quorum, repeats: u32) -> Result<Self> {
        let n = self.server.coordinator().federation().agents();
        match quorum {
            Quorum::Share(share) => require((0.0..=1.0).contains(&share), "quorum", share, "a share of the weights, in [0, 1]")?,
            Quorum::Agents(k) => require(k <= n, "quorum", k, &format!("at most the number of agents, {n}"))?,
        }
        Ok(Self { quorum, repeats, ..self })
    }

    /// Whether the open question has enough answers.
    fn has_quorum(&self) -> bool {
        let coordinator = self.server.coordinator();
        if coordinator.answered() < self.server.needed_answers() {
            return false;
        }
        match self.quorum {
            // Tolerance: sums of weights in another order differ in their last bits.
            Quorum::Share(share) => self.server.share_answered() >= share - 1e-12,
            Quorum::Agents(k) => coordinator.answered() >= k.min(coordinator.asked().len()),
        }
    }

    /// The server.
    pub fn server(&self) -> &ServerNode {
        &self.server
    }

    /// The server. The caller is responsible for changes between two rounds.
    pub fn server_mut(&mut self) -> &mut ServerNode {
        &mut self.server
    }

    /// The transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }
}

/// The step of a round. Messages at the end of a round travel with the next questions.
fn step_of(todo: &Todo) -> Step {
    if matches!(todo, Todo::Ask { .. }) { Step::Ask } else { Step::RoundOver }
}

/// Whether a server has a message at the end of a session. A saved state does not say whether it was sent.
fn tells(server: &ServerNode) -> bool {
    matches!(server.todo(), Todo::Tell { .. })
}

impl<O: Observable + ?Sized> Observable for Box<O> {
    fn coordinator(&self) -> &Coordinator {
        (**self).coordinator()
    }
    fn each_control(&self, see: &mut dyn FnMut(usize, &[f64])) -> bool {
        (**self).each_control(see)
    }
}

impl<T> Observable for Nodes<T> {
    fn coordinator(&self) -> &Coordinator {
        self.server.coordinator()
    }
    fn each_control(&self, see: &mut dyn FnMut(usize, &[f64])) -> bool {
        self.server.each_control(see)
    }
}

impl<T: Transport> Exchanges for Nodes<T> {
    /// Asks the reachable agents; a question that is still open goes on.
    fn open(&mut self) -> Result<Step> {
        self.resend()?;
        if self.server.coordinator().is_open() {
            return Ok(Step::Ask);
        }
        let reachable = self.transport.reachable();
        if let Some(agents) = &reachable {
            let n = self.server.coordinator().federation().agents();
            if let Some(c) = agents.iter().find(|c| **c >= n) {
                return Err(Error::new("reachable", format!("agent {c} of {n} agents"), format!("agents below {n}")));
            }
            // A round without agents would be wasted.
            if agents.is_empty() {
                return Err(Error::machine("no agent can be reached", "the same call again, when an agent can be reached"));
            }
        }
        Ok(step_of(&self.server.open_for(reachable.as_deref())))
    }

    /// Goes on until there are enough answers, or no agent is left that may answer.
    fn exchange(&mut self, cancel: &Cancel) -> Result<bool> {
        let Todo::Ask { mut to, mut bytes } = self.server.todo().clone() else { return Ok(true) };
        for _ in 0..=self.repeats {
            let deadline = self.patience.map(|patience| Instant::now() + patience);
            let answers = self.transport.exchange(&self.server, &to, &bytes, deadline, cancel)?;
            for (agent, answer) in &answers {
                if let Err(reason) = self.server.take(*agent, answer) {
                    self.transport.refused(*agent, &reason);
                }
            }
            // The question stays open; the next call asks it again, and agents repeat their answers.
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let awaited = self.server.may_still_answer();
            if self.has_quorum() || awaited.is_empty() {
                break;
            }
            (to, bytes) = to.into_iter().zip(bytes).filter(|(c, _)| awaited.binary_search(c).is_ok()).unzip();
        }
        Ok(true)
    }

    /// With too few answers the round is given up.
    fn close(&mut self) -> Result<Step> {
        let todo = if self.has_quorum() { self.server.close() } else { self.server.give_up() };
        self.server.failure().map_or(Ok(step_of(&todo)), |reason| Err(reason.clone()))
    }
}

impl<T: Transport> Carrier for Nodes<T> {
    fn finish(&mut self) -> Result<()> {
        if !tells(&self.server) {
            self.server.finish();
            self.is_untold = tells(&self.server);
        }
        self.resend()
    }
    fn resend(&mut self) -> Result<()> {
        let Self { server, transport, is_untold, .. } = self;
        if let (true, Todo::Tell { to, bytes }) = (*is_untold, server.todo()) {
            transport.tell(server, to, bytes)?;
        }
        *is_untold = false;
        Ok(())
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
        self.server.restore(state)?;
        self.is_untold = tells(&self.server);
        Ok(())
    }
    fn restart(&mut self) -> Result<()> {
        Err(Error::machine("agents on other machines do not go back to the start", "a saved state of the server, or a new federation"))
    }
}
