//! Server rules: what the server does with what arrived.

pub mod adaptive;
pub mod average;
mod included;
pub mod newton;

use serde::{Deserialize, Serialize};

use crate::error::{BadInput, Result};
use crate::message::{Body, Message, PART_HEADER_BYTES, Part};
use crate::random::{ALL, Key, Purpose};

pub use average::Average;
pub(crate) use included::Included;

/// The sum in the order that all server rules share, of messages that are there.
pub(crate) fn ordered_sum<'a>(d: usize, messages: impl Iterator<Item = (f64, &'a [f64])>) -> Vec<f64> {
    crate::sums::sum(d, messages.map(Some))
}

/// A message to some agents, and a wait for their answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The agents in increasing order; all of them when absent.
    pub to: Option<Vec<usize>>,
    /// What they are told.
    pub down: Message,
    /// Besides, what some of them are told of their own.
    pub own: Option<Own>,
}

/// A part of each recipient's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// What it is.
    pub part: Part,
    /// The numbers for each recipient, in order; none for those who are sent nothing of their own.
    pub each: Vec<Option<Vec<f64>>>,
}

impl Own {
    /// The bytes that it adds to the messages of all recipients.
    pub(crate) fn bytes(&self) -> usize {
        self.each.iter().flatten().map(|x| PART_HEADER_BYTES + 8 * x.len()).sum()
    }
}

/// What arrived in one exchange.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The round t.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// Of each part of which a sum is enough, `sum p_c x_c` over what arrived; in the order that
    /// [`crate::sums`] fixes.
    pub sums: &'a [(Part, &'a [f64])],
    /// `sum p_c` over the agents that were asked.
    pub asked: f64,
    /// Of each agent that was asked, in order, whether its answer arrived in this round; empty where all did, or
    /// where answers come late.
    pub arrived: &'a [bool],
    /// The answers, in the agents' order, where some part of each is wanted; else empty.
    pub letters: &'a [Letter],
}

/// One answer at the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Letter {
    /// The agent.
    pub agent: usize,
    /// The round whose model it answers.
    pub answers: u64,
    /// The agent's weight `p_c`, times the factor by which the message arrived.
    pub weight: f64,
    /// What it holds.
    pub parts: Vec<(Part, Body)>,
}

impl Letter {
    /// The numbers of a part.
    ///
    /// # Panics
    /// When it has none: answers are held to the method's [`crate::protocol::Protocol`] before they get here.
    pub fn part(&self, part: Part) -> &[f64] {
        let found = self.parts.iter().find(|(p, _)| *p == part).and_then(|(_, body)| body.numbers());
        found.unwrap_or_else(|| panic!("the answer of agent {} has no numbers {part:?}", self.agent))
    }
}

impl Received<'_> {
    /// The weighted sum of a part over what arrived.
    ///
    /// # Panics
    /// When the method's protocol wants no sum of it in this exchange.
    pub fn sum(&self, part: Part) -> &[f64] {
        let found = self.sums.iter().find(|(p, _)| *p == part);
        found.unwrap_or_else(|| panic!("no sum of {part:?} is wanted in exchange {}", self.exchange)).1
    }

    /// The mean of a part over the agents that were asked; a missing answer counts as zero (\[T\] eq. 4.3).
    ///
    /// # Panics
    /// As [`Received::sum`].
    pub fn mean(&self, part: Part) -> Vec<f64> {
        self.sum(part).iter().map(|x| x / self.asked).collect()
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
    /// Opens round t.
    fn open(&mut self, t: u64) -> Ask;
    /// What it will tell some agents besides, with the question that opens round t.
    fn own(&self, _t: u64) -> Option<Own> {
        None
    }
    /// Takes what arrived; answers whose packed parts are none of this method are to be refused by
    /// [`Server::accepts`] before.
    fn receive(&mut self, got: &Received<'_>) -> Next;
    /// Whether an answer from a network, whose parts and lengths are as wanted, is one of this method: where it packs
    /// its own bytes.
    ///
    /// # Errors
    /// When it is not, with the reason.
    fn accepts(&self, _exchange: u8, _parts: &[(Part, Body)]) -> Result<()> {
        Ok(())
    }
    /// `theta_t`.
    fn theta(&self) -> &[f64];
    /// Its state, which is complete between any two calls.
    fn state(&self) -> Vec<Vec<f64>>;
    /// Puts back what [`Server::state`] gave when `opened` rounds had been opened.
    ///
    /// # Errors
    /// When it is not the state of such a rule, which then stays as it is.
    fn restore(&mut self, state: Vec<Vec<f64>>, opened: u64) -> Result<()>;
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
