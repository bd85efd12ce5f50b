//! Server halves of methods: they process the answers that arrived and ask the next question.

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::error::{Failure, Result};
use crate::message::{Body, Message, Part};
use crate::random::{ALL, Key, Purpose};

/// The weighted sum of the messages that arrived, in the order that all server rules share.
pub fn ordered_sum<'a>(d: usize, messages: impl Iterator<Item = (f64, &'a [f64])>) -> Vec<f64> {
    crate::sums::sum(d, messages.map(Some))
}

/// A message to all or some agents: a question, or the message at the end of a round, which agents do not answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Broadcast {
    /// The agents in increasing order; all if absent.
    pub to: Option<Vec<usize>>,
    /// The message to all of them.
    pub down: Message,
    /// A part that some of them get in addition, each with its own content.
    pub own: Option<PerRecipient>,
}

/// A part with a content of its own for each recipient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerRecipient {
    /// The part.
    pub part: Part,
    /// The numbers for each recipient, in order; `None` for recipients that do not get this part.
    pub each: Vec<Option<Vec<f64>>>,
}

impl Broadcast {
    /// The `i`-th recipient's own part, if it gets one.
    pub fn own_of(&self, i: usize) -> Option<(Part, Body)> {
        self.own.as_ref()?.of(i)
    }
}

impl PerRecipient {
    /// The `i`-th recipient's part, if it gets one.
    pub fn of(&self, i: usize) -> Option<(Part, Body)> {
        Some((self.part, Body::Numbers(self.each[i].clone()?)))
    }
}

/// The answers that arrived in one exchange.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The round t.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// The message that was answered, as agents decoded it: the downlink's codec may have altered it.
    pub down: &'a Message,
    /// `sum p_c x_c` over the answers that arrived, for each part of which a sum is enough, in the order of [`crate::sums`]. For a robust
    /// mean ([`crate::uplink::Aggregation`]): the answers' weight times that mean.
    pub sums: &'a [(Part, &'a [f64])],
    /// `sum p_c` over the participants.
    pub asked: f64,
    /// Whether each participant's answer arrived in this round, in order; empty if all arrived, or if the link delivers answers late.
    pub arrived: &'a [bool],
    /// The largest rounding error of a number in `sums`, beyond that of additions: 0 without secure sums.
    pub rounding: f64,
    /// The answers, in the agents' order, if the protocol wants a part of each agent; otherwise empty.
    pub updates: &'a [ClientUpdate],
}

/// One answer at the server, with the parts that the protocol asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClientUpdate {
    /// The agent.
    pub agent: usize,
    /// The round whose model it answers.
    pub answers: u64,
    /// The agent's weight `p_c`, times the factor by which the message arrived.
    pub weight: f64,
    /// The parts.
    pub parts: Vec<(Part, Body)>,
}

impl ClientUpdate {
    /// The numbers of a part.
    ///
    /// # Panics
    /// When the answer has no such part. Answers are checked against the method's [`crate::protocol::Protocol`] before.
    pub fn part(&self, part: Part) -> &[f64] {
        let found = self.parts.iter().find(|(p, _)| *p == part).and_then(|(_, body)| body.numbers());
        found.unwrap_or_else(|| panic!("the answer of agent {} has no numbers {part:?}", self.agent))
    }
}

/// The answers of N agents by agent; `None` for agents without one.
pub fn by_agent(updates: &[ClientUpdate], agents: usize) -> Vec<Option<&ClientUpdate>> {
    let mut all = vec![None; agents];
    updates.iter().for_each(|update| all[update.agent] = Some(update));
    all
}

impl Received<'_> {
    /// The weighted sum of a part over the answers that arrived.
    ///
    /// # Panics
    /// When the method's protocol does not want a sum of this part in this exchange.
    pub fn sum(&self, part: Part) -> &[f64] {
        let found = self.sums.iter().find(|(p, _)| *p == part);
        found.unwrap_or_else(|| panic!("no sum of {part:?} is wanted in exchange {}", self.exchange)).1
    }

    /// The mean of a part over the participants; a missing answer counts as zero (\[T\] eq. 4.3).
    ///
    /// # Panics
    /// As [`Received::sum`].
    pub fn mean(&self, part: Part) -> Vec<f64> {
        self.mean_of(part).collect()
    }

    /// The components of [`Received::mean`].
    pub fn mean_of(&self, part: Part) -> impl Iterator<Item = f64> {
        self.sum(part).iter().map(|x| x / self.asked)
    }
}

/// The server's next action.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Another exchange of this round.
    Ask(Broadcast),
    /// The round is over.
    Done {
        /// A last message, which agents do not answer.
        tell: Option<Broadcast>,
    },
}

/// Observable values of a server rule, besides theta.
#[derive(Default, Clone, Copy)]
pub struct ServerFacts<'a> {
    /// The number of failed line searches since the start of the run; `None` for rules without a line search, and for rules that do not
    /// count (`newton` and `shed`).
    ///
    /// A line search compares the mean losses of trial steps along a direction (`Trials` of `fedsa_methods`). It fails if no trial lowers
    /// the loss by the demanded share of the promised decrease, or the direction does not lead downhill. Theta then stays, or moves by the
    /// last trial step, depending on the method. A round has at most one search. Searches without any answer do not count, nor do rounds
    /// that end before a search, because the gradient is 0 or nothing arrived.
    ///
    /// Part of [`Server::state`], so that resumed runs go on counting; the metric `failed_searches` reports it.
    pub failed_searches: Option<u64>,
    /// The reason of a failure, for rules that can fail; the round then does not count. [`Server::restore`] clears it.
    pub failure: Option<&'a Failure>,
    /// The server's own control variate c (d components), which agents subtract from theirs.
    pub control: Option<&'a [f64]>,
}

/// The server half of a method. Threads check the answers of several agents at a time.
pub trait Server: Send + Sync {
    /// Opens round t with its first question.
    fn open(&mut self, t: u64) -> Broadcast;
    /// Processes the answers that arrived. [`Server::accepts`] must have accepted answers with packed parts.
    fn receive(&mut self, got: &Received<'_>) -> Next;
    /// Checks an answer from a network, after its parts and lengths have been checked. Only methods that pack bytes themselves need this
    /// check.
    ///
    /// # Errors
    /// With the reason, when the answer is not valid for this method.
    fn accepts(&self, _exchange: u8, _parts: &[(Part, Body)]) -> Result<()> {
        Ok(())
    }
    /// `theta_t`.
    fn theta(&self) -> &[f64];
    /// Observable values besides theta.
    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts::default()
    }
    /// The server's approximation of the agents' mean Hessian, d x d, for rules that store a matrix; only its lower triangle is read.
    fn hessian(&self) -> Option<Mat<f64>> {
        None
    }
    /// Replaces `theta_{t+1}` after a round, for a rule around this one (Anderson acceleration). Only rules without memory of past
    /// iterates can be moved.
    ///
    /// # Panics
    /// When the rule cannot be moved.
    fn move_to(&mut self, _theta: Vec<f64>) {
        panic!("this server rule remembers its iterates, and cannot be moved");
    }
    /// Forgets an agent whose own state does not match: it goes on as if none of its answers had counted. Rules whose next answers contain
    /// the full state again need not do anything.
    fn forget(&mut self, _agent: usize) {}
    /// The state ([`Server::state`]) with which the rule goes on, between two rounds, with other agents. `from` has an entry for each of
    /// these: its present number, or `None` for a new agent; `weights` are their weights. `None` if the rule stores nothing of single
    /// agents, or values that are valid only for the mean of the present ones: it then starts again at `theta_t`.
    fn regrouped(&self, _from: &[Option<usize>], _weights: &[f64]) -> Option<Vec<u8>> {
        None
    }
    /// The state that influences later rounds, complete between any two calls, also within a round ([`crate::saved::packed`]).
    fn state(&self) -> Vec<u8>;
    /// Restores a state that [`Server::state`] returned with the same settings.
    ///
    /// # Errors
    /// When this is not a state of such a rule. The rule is then unchanged.
    fn restore(&mut self, state: &[u8]) -> Result<()>;
}

/// The participants of a round: all N agents, or m of them drawn without replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Participation {
    /// m; all if absent.
    pub m: Option<usize>,
    /// The number of agents N.
    pub agents: usize,
    /// The run's seed.
    pub seed: u64,
}

impl Participation {
    /// The participants of round t in increasing order; `None` if all agents participate.
    pub fn of(&self, t: u64) -> Option<Vec<usize>> {
        let m = self.m.filter(|m| *m < self.agents)?;
        let mut stream = Key::new(self.seed, Purpose::Participants, t).stream(ALL);
        let mut drawn = rand::seq::index::sample(&mut stream, self.agents, m).into_vec();
        drawn.sort_unstable();
        Some(drawn)
    }
}
