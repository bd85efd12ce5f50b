//! Server rules: what the server does with what arrived.

pub mod adaptive;
pub mod average;

use serde::{Deserialize, Serialize};

use crate::error::{BadInput, Result};
use crate::message::{Message, Part};
use crate::random::{ALL, Key, Purpose};

pub use average::Average;

/// The sum in the order that all server rules share, of messages that are there.
pub(crate) fn ordered_sum<'a>(d: usize, messages: impl Iterator<Item = (f64, &'a [f64])>) -> Vec<f64> {
    crate::sums::sum(d, messages.map(Some))
}

/// What a server rule must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// One message per agent.
    PerAgent,
    /// The weighted sum is enough.
    SumOnly,
}

/// A message to some agents, and a wait for their answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The agents in increasing order; all of them when absent.
    pub to: Option<Vec<usize>>,
    /// What they are told.
    pub down: Message,
    /// Beside it, to each of them: whether its message of this round arrived.
    pub arrived: Option<Vec<bool>>,
}

/// What arrived in one exchange.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The round t.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// What the messages hold.
    pub part: Part,
    /// `sum p_c x_c` over what arrived, d components; in the order that [`crate::sums`] fixes.
    pub sum: &'a [f64],
    /// `sum p_c` over the agents that were asked.
    pub asked: f64,
    /// Of each agent that was asked, in order, whether its message arrived; empty over a clear link.
    pub arrived: &'a [bool],
    /// The messages, in the agents' order, for rules that need them one by one; else empty.
    pub messages: &'a [Letter],
}

/// One message at the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// The agent.
    pub agent: usize,
    /// The round whose model it answers.
    pub answers: u64,
    /// The agent's weight `p_c`, times the factor by which the message arrived.
    pub weight: f64,
    /// What it holds, d numbers.
    pub x: Vec<f64>,
}

impl Received<'_> {
    /// The mean over the agents that were asked; a missing message counts as zero (\[T\] eq. 4.3).
    pub fn mean(&self) -> Vec<f64> {
        self.sum.iter().map(|x| x / self.asked).collect()
    }
}

/// What the server does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Another exchange of this round.
    Ask(Ask),
    /// The round is over; perhaps its participants are still to be told something.
    Done {
        /// Told, not answered.
        tell: Option<Ask>,
    },
}

/// The server half of a method.
pub trait Server: Send {
    /// What it must be given.
    fn needs(&self) -> Delivery;
    /// The part that it wants in the answers of an exchange.
    fn wants(&self, exchange: u8) -> Part;
    /// Opens round t.
    fn open(&mut self, t: u64) -> Ask;
    /// Takes what arrived.
    fn receive(&mut self, got: &Received<'_>) -> Next;
    /// `theta_t`.
    fn theta(&self) -> &[f64];
    /// Its state between rounds.
    fn state(&self) -> Vec<Vec<f64>>;
    /// Puts back what [`Server::state`] gave at the start of round `t`.
    ///
    /// # Errors
    /// When it is not the state of such a rule, which then stays as it is.
    fn restore(&mut self, state: Vec<Vec<f64>>, t: u64) -> Result<()>;
}

/// Who takes part in a round: all N agents, or m of them drawn without replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participation {
    /// m; all when absent.
    pub m: Option<usize>,
    /// The number of agents N.
    pub agents: usize,
    /// The run's seed.
    pub seed: u64,
}

impl Participation {
    /// The participants of round t in increasing order; `None` when all take part.
    pub fn of(&self, t: u64) -> Option<Vec<usize>> {
        let m = self.m.filter(|m| *m < self.agents)?;
        let mut stream = Key::new(self.seed, Purpose::Participants, t).stream(ALL);
        let mut drawn = rand::seq::index::sample(&mut stream, self.agents, m).into_vec();
        drawn.sort_unstable();
        Some(drawn)
    }
}

/// The first of saved vectors as a rule's `theta_t`.
///
/// # Errors
/// When it has not d components.
pub(crate) fn restored_theta(state: &mut Vec<Vec<f64>>, d: usize) -> Result<Vec<f64>> {
    let fits = state.first().is_some_and(|theta| theta.len() == d);
    if fits { Ok(state.remove(0)) } else { Err(foreign_state()) }
}

/// The error about saved vectors that are not a rule's.
pub(crate) fn foreign_state() -> BadInput {
    BadInput::new("checkpoint", "not the state of this server rule", "a checkpoint of the same settings")
}
