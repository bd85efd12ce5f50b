//! The coordinator: the one place that leads the rounds of a federation.
//!
//! It owns the server half, the protocol, the server's end of the link, the ledger, the output rule and the round. It alone checks
//! answers, refuses them with a reason, counts what travels, and decides whether the iterates have diverged. It does not know who
//! carries the messages: [`crate::round::Run`] is a coordinator with agents in this process, [`crate::node::ServerNode`] a coordinator
//! with bytes, and marks of the agents' states and copies of their control variates.
//!
//! ```text
//! open(available) -> Ask          a question is open: carry it to its recipients
//! accept(agent, parts) ..         or hand_in(..), hand_in_sum(..) for agents in this process
//! close() -> Ask                  another exchange of this round
//!         -> Tell                 the round is over; its participants are told something before their next question
//!         -> RoundOver            the round is over
//! ```

mod acknowledged;
mod answers;
mod delayed;
mod faults;
mod handed_in;
mod outstanding;
mod recorded;
mod regrouped;
mod replies;
mod saved;
pub(crate) mod server_end;

use std::sync::Arc;

use faer::Mat;

use crate::error::{Error, Failure, Result};
use crate::federation::Federation;
use crate::linalg;
use crate::message::{MAX_ROUNDS, Message, PART_HEADER_BYTES};
use crate::protocol::Protocol;
use crate::random::ALL;
use crate::record::{Ledger, Output};
use crate::server::{Broadcast, ClientUpdate, Next, PerRecipient, Server};
use crate::uplink::stage::Delay;
use crate::uplink::{MessageKey, Uplink};
use acknowledged::Acknowledged;
use outstanding::Outstanding;
use server_end::{OfExchange, ServerEnd, asked_weight};

pub use faults::Exclusion;
pub use handed_in::{Accepted, AgentStatus, Refusal};
pub(crate) use handed_in::{Replies, Reply};
pub(crate) use recorded::Replay;
pub use recorded::{ArrivalRecord, ExchangeArrivals};
pub(crate) use saved::Saved;

/// The iterates have diverged once `||theta||` exceeds this times `1 + max(||theta_0||, ||theta*||)`.
pub const DIVERGED: f64 = 1e8;

/// Whether `||theta||` exceeds [`DIVERGED`] times `1 + scale`, or is not finite.
fn has_diverged(theta: &[f64], scale: f64) -> bool {
    let norm = linalg::norm_sq(theta).sqrt();
    !norm.is_finite() || norm > DIVERGED * (1.0 + scale)
}

/// What whoever carries the messages has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// Carry the question to its recipients, hand in their answers, and close the exchange.
    Ask,
    /// Let the message reach each of its recipients before its next question, with which it travels. They do not answer it. The round is
    /// over.
    Tell,
    /// The round is over: open the next one.
    RoundOver,
}

/// The coordinator of a federation.
pub struct Coordinator {
    federation: Federation,
    protocol: Protocol,
    server: Box<dyn Server>,
    /// 0, 1, .., N - 1.
    everyone: Vec<usize>,
    /// The larger one of `||theta_0||` and `||theta*||`.
    scale: f64,
    state: State,
    /// Whether the link is clear.
    is_clear: bool,
    /// Whether the server's end of the link needs no more than a sum: no answer is late, and their mean is taken.
    adds_up: bool,
    /// The answers of the last exchange that arrived, if they are kept.
    updates: Vec<ClientUpdate>,
    keeps_letters: bool,
    /// The refused answers since the round was opened.
    refusals: Vec<Refusal>,
    /// What nodes recorded, if it is replayed.
    replay: Option<Arc<Replay>>,
}

/// The state that lasts, except the server half's.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct State {
    /// The number of rounds opened so far.
    opened: u64,
    step: Step,
    /// The question under way, or the last one, as agents decode it.
    ask: Broadcast,
    /// The question as the server wrote it, if the downlink alters messages.
    written: Option<Message>,
    /// Recipients that cannot be reached.
    absent: Vec<usize>,
    /// The answers so far.
    replies: Replies,
    ledger: Ledger,
    output: Output,
    /// The number of rounds done when the iterates were found to have diverged.
    diverged: Option<u64>,
    end: ServerEnd,
    /// Which answers counted, if agents must know.
    acknowledged: Acknowledged,
    /// Answers that may still come, to be counted late.
    outstanding: Outstanding,
    /// Agents that are asked nothing more.
    exclusions: Vec<Exclusion>,
    /// What arrived since it was last taken, if that is recorded.
    record: Option<ArrivalRecord>,
}

impl Coordinator {
    /// The coordinator of a federation at the start of a run.
    ///
    /// # Errors
    /// When the method cannot work over the link, or its server half has failed already.
    pub fn new(federation: &Federation) -> Result<Self> {
        let (_, protocol) = federation.client()?;
        let server = federation.method().server(&federation.setting());
        server.facts().failure.and_then(Failure::get).map_or(Ok(()), Err)?;
        let (n, seed, link) = (federation.agents(), federation.seed(), federation.uplink().facts());
        let state = State {
            opened: 0,
            step: Step::RoundOver,
            ask: Broadcast { to: None, down: Message { round: 0, exchange: 0, parts: Vec::new() }, own: None },
            written: None,
            absent: Vec::new(),
            replies: Replies::none(),
            ledger: Ledger::default(),
            output: Output::new(federation.output(), federation.start(), seed),
            diverged: None,
            end: ServerEnd::new(federation.uplink(), seed, n),
            acknowledged: Acknowledged::default(),
            outstanding: Outstanding::default(),
            exclusions: Vec::new(),
            record: None,
        };
        Ok(Self {
            protocol,
            server,
            everyone: (0..n).collect(),
            scale: federation.scale(),
            state,
            is_clear: federation.uplink().is_clear(),
            adds_up: link.late.is_none() && !link.is_robust,
            updates: Vec::new(),
            keeps_letters: false,
            refusals: Vec::new(),
            replay: None,
            federation: federation.clone(),
        })
    }

    /// Keeps the answers that arrive, so that [`Coordinator::updates`] returns them.
    pub(crate) fn keep_letters(&mut self) {
        self.keeps_letters = true;
    }

    /// Records which answers arrive from now on ([`Coordinator::take_arrivals`]). A state that is saved contains the record.
    pub(crate) fn record_arrivals(&mut self) {
        self.state.record.get_or_insert_default();
    }

    /// Removes and returns what was recorded of answers since the last call; nothing if that is not recorded.
    pub(crate) fn take_arrivals(&mut self) -> ArrivalRecord {
        self.state.record.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets answers arrive as nodes recorded it.
    pub(crate) fn replay(&mut self, replay: Arc<Replay>) {
        self.replay = Some(replay);
    }

    /// What is replayed, if anything is.
    pub(crate) fn replayed(&self) -> Option<&Arc<Replay>> {
        self.replay.as_ref()
    }

    /// By how many rounds answers may be late over this link, if they are as late as the network makes them.
    fn latest(&self) -> Option<u64> {
        self.uplink().late().filter(|late| late.is_of_network()).map(Delay::max)
    }

    /// The federation.
    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// The protocol of the method.
    pub(crate) fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// The server half.
    pub(crate) fn server(&self) -> &dyn Server {
        &*self.server
    }

    /// The server's iterate `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.server.theta()
    }

    /// The method's output: the last iterate, or an average of iterates.
    pub fn output(&self) -> &[f64] {
        self.state.output.value(self.server.theta())
    }

    /// The number of rounds opened so far.
    pub fn opened(&self) -> u64 {
        self.state.opened
    }

    /// The number of rounds done.
    pub fn rounds(&self) -> u64 {
        self.state.opened - u64::from(self.is_open())
    }

    /// Whether answers are awaited.
    pub fn is_open(&self) -> bool {
        self.state.step == Step::Ask
    }

    /// What the carrier has to do.
    pub fn step(&self) -> Step {
        self.state.step
    }

    /// What was counted since the start: exchanges, messages, bits, vectors. Samples and calls are counted by the agents.
    pub fn ledger(&self) -> Ledger {
        self.state.ledger
    }

    /// The number of rounds done when the iterates were found to have diverged, if they have: `||theta||` exceeded the bound
    /// ([`DIVERGED`]), or an agent's numbers or the iterate were not finite. No round is opened after that.
    pub fn diverged(&self) -> Option<u64> {
        self.state.diverged
    }

    /// How many line searches have found no step that lowers the loss enough, for methods that count them.
    pub fn failed_searches(&self) -> Option<u64> {
        self.server.facts().failed_searches
    }

    /// The mean Hessian of the agents as the server approximates it, for methods that keep an approximation: its lower triangle is read.
    pub fn hessian(&self) -> Option<Mat<f64>> {
        self.server.hessian()
    }

    /// Whether the server half can fail.
    pub(crate) fn can_fail(&self) -> bool {
        self.server.facts().failure.is_some()
    }

    /// Why the server half failed, if it can fail ([`ServerFacts::failure`](crate::server::ServerFacts::failure)): what it has done since is void.
    pub fn failure(&self) -> Option<Error> {
        self.server.facts().failure.and_then(Failure::get)
    }

    /// The refused answers since the round was opened, in the order in which they came.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The agents that are asked nothing more because their answers were not believed, in the order in which they were excluded
    /// ([`crate::federation::Faults::Exclude`]).
    pub fn exclusions(&self) -> &[Exclusion] {
        &self.state.exclusions
    }

    /// Asks an agent again that was excluded, from the next round on; whether it was.
    pub(crate) fn readmit(&mut self, agent: usize) -> bool {
        let before = self.state.exclusions.len();
        self.state.exclusions.retain(|one| one.agent != agent);
        self.state.exclusions.len() < before
    }

    /// The question under way, or the last message, as agents decode it.
    pub fn question(&self) -> &Broadcast {
        &self.state.ask
    }

    /// The message under way as the server wrote it, before the downlink altered it.
    pub(crate) fn written(&self) -> &Message {
        self.state.written.as_ref().unwrap_or(&self.state.ask.down)
    }

    /// The agents that were asked or told, in increasing order; those that cannot be reached among them.
    pub fn asked(&self) -> &[usize] {
        self.state.ask.to.as_deref().unwrap_or(&self.everyone)
    }

    /// The agents to which the message under way is to be carried: their places among [`Coordinator::asked`] and their numbers.
    pub fn recipients(&self) -> impl Iterator<Item = (usize, usize)> {
        let absent = &self.state.absent;
        self.asked().iter().copied().enumerate().filter(|(_, c)| absent.binary_search(c).is_err())
    }

    /// Whether the question under way reaches all agents that were asked.
    pub(crate) fn reaches_all(&self) -> bool {
        self.state.absent.is_empty()
    }

    /// The agents that were asked and could not be reached: their places among those that were asked, and their numbers.
    pub(crate) fn missed(&self) -> impl Iterator<Item = (usize, usize)> {
        let absent = &self.state.absent;
        self.asked().iter().copied().enumerate().filter(|(_, c)| absent.binary_search(c).is_ok())
    }

    /// The agents that may still answer the open question.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        let is_open = self.is_open();
        self.recipients().filter(move |(i, _)| is_open && self.state.replies.of(*i).is_none()).map(|(_, c)| c)
    }

    /// The number of answers to the open question that were accepted so far.
    pub fn answered(&self) -> usize {
        self.state.replies.each().iter().flatten().count()
    }

    /// Whether an agent's answer to the open question was accepted.
    pub(crate) fn has_answered(&self, agent: usize) -> bool {
        self.place_of(agent).is_ok_and(|at| self.state.replies.of(at).is_some())
    }

    fn uplink(&self) -> &Uplink {
        self.federation.uplink()
    }

    /// Opens the next round with a question. A round that is under way ends with the answers accepted so far. `available` are the
    /// agents that can be reached, in any order; all of them if absent. A participant that cannot be reached is asked nothing,
    /// and its answer counts as missing. After divergence or [`MAX_ROUNDS`] rounds no round is opened, and the result is
    /// [`Step::RoundOver`].
    pub fn open(&mut self, available: Option<&[usize]>) -> Step {
        while self.is_open() {
            self.close();
        }
        self.refusals.clear();
        if self.state.diverged.is_some() || self.state.opened >= MAX_ROUNDS {
            self.state.step = Step::RoundOver;
            return Step::RoundOver;
        }
        let ask = self.server.open(self.state.opened);
        if let Some(latest) = self.latest() {
            self.state.outstanding.forget_before(self.state.opened.saturating_sub(latest));
        }
        self.state.opened += 1;
        self.state.absent.clear();
        if available.is_some() || !self.state.exclusions.is_empty() {
            let mut is_absent = vec![available.is_some(); self.everyone.len()];
            available.into_iter().flatten().filter(|c| **c < self.everyone.len()).for_each(|c| is_absent[*c] = false);
            self.state.exclusions.iter().for_each(|one| is_absent[one.agent] = true);
            self.state.absent = self.everyone.iter().copied().filter(|c| is_absent[*c]).collect();
        }
        self.send(ask, Step::Ask)
    }

    /// Sends a message down: the downlink's codec may alter it, and the ledger counts it.
    fn send(&mut self, mut ask: Broadcast, step: Step) -> Step {
        let (uplink, seed) = (&**self.federation.uplink(), self.federation.seed());
        self.state.written = (!uplink.downlink.is_exact()).then(|| ask.down.clone());
        uplink.tell(seed, &mut ask.down);
        if self.protocol.tells_what_counted(ask.down.exchange) {
            ask.own = self.state.acknowledged.told(ask.to.as_deref().unwrap_or(&self.everyone));
        }
        let asked = ask.to.as_ref().map_or(self.everyone.len(), Vec::len);
        let absent = &self.state.absent;
        let is_reached = |i: usize| absent.is_empty() || absent.binary_search(&ask.to.as_ref().map_or(i, |to| to[i])).is_err();
        let n = if absent.is_empty() { asked } else { (0..asked).filter(|i| is_reached(*i)).count() };
        let own = ask.own.as_ref().map_or(0, |own| own_bytes(own, is_reached));
        if step == Step::Tell {
            // It travels with the next question.
            self.state.ledger.down(0, n * ask.down.joined_len(&*uplink.downlink) + own);
        } else {
            self.state.ledger.down(n, n * ask.down.encoded_len(&*uplink.downlink) + own);
            self.state.ledger.exchanges += 1;
        }
        self.state.ask = ask;
        self.state.replies = Replies::none();
        self.state.step = step;
        step
    }

    /// Counts bytes that were sent down beside the message under way.
    pub(crate) fn count_down(&mut self, bytes: usize) {
        self.state.ledger.down(0, bytes);
    }

    /// Takes bytes off the count that were to travel with a question, and do not.
    pub(crate) fn discount(&mut self, bytes: usize) {
        let count = &mut self.state.ledger.bits_down;
        *count = count.saturating_sub(8 * bytes as u64);
    }

    /// Notes that whoever carries the messages keeps what is told of the last round: it is not kept twice.
    pub(crate) fn hand_over_tell(&mut self) {
        if self.state.step == Step::Tell {
            (self.state.step, self.state.written, self.state.ask.own) = (Step::RoundOver, None, None);
            self.state.ask.down.parts.clear();
        }
    }

    /// Ends the exchange under way with the answers accepted so far. A missing answer counts as zero in the mean; the caller decides
    /// how many answers suffice. Without any answer theta does not change, except by the receiver's noise over the air.
    pub fn close(&mut self) -> Step {
        if !self.is_open() {
            return self.state.step;
        }
        let (next, are_finite) = match std::mem::replace(&mut self.state.replies, Replies::none()) {
            Replies::Sum { sum, arrived } => {
                self.acknowledge(&arrived);
                self.receive_sum(sum, &arrived)
            }
            Replies::Each(mut each) => {
                each.resize(self.asked().len(), None);
                self.receive(each)
            }
        };
        match next {
            _ if !are_finite => {
                self.state.diverged = Some(self.state.opened);
                self.end_round(Step::RoundOver)
            }
            Next::Ask(ask) => self.send(ask, Step::Ask),
            Next::Done { tell: None } => self.end_round(Step::RoundOver),
            Next::Done { tell: Some(tell) } => {
                self.send(tell, Step::Tell);
                self.end_round(Step::Tell)
            }
        }
    }

    /// Gives the server half what arrived of single answers; also whether their numbers are finite.
    fn receive(&mut self, replies: Vec<Option<Reply>>) -> (Next, bool) {
        let Self { federation, protocol, server, everyone, state, replay, refusals, .. } = self;
        let State { ask, end, absent, outstanding, exclusions, record, .. } = state;
        let asked = ask.to.as_deref().unwrap_or(everyone);
        let at = MessageKey { seed: federation.seed(), round: ask.down.round, exchange: ask.down.exchange, agent: ALL };
        let wanted = protocol.wanted(at.exchange);
        let of = OfExchange {
            uplink: federation.uplink(),
            at,
            wanted,
            weights: federation.weights(),
            asked,
            replay: replay.as_deref(),
            rules: federation.rules(),
            // More than half of the agents stay.
            most_faults: (everyone.len().saturating_sub(1) / 2).saturating_sub(exclusions.len()),
        };
        let arrivals = end.take(&of, replies, |agent, gain| {
            if absent.binary_search(&agent).is_err() {
                outstanding.miss(at.round, at.exchange, agent, gain);
            }
        });
        if let Some(record) = record {
            record.exchanges.push(arrivals.recorded(at, absent.clone()));
        }
        for (agent, reason) in &arrivals.faults {
            let (round, exchange, what) = (at.round, at.exchange, reason.to_string());
            exclusions.push(Exclusion { agent: *agent, round, exchange, reason: what });
            refusals.push(Refusal { agent: *agent, round, exchange, reason: reason.clone() });
            outstanding.forget(*agent);
            // Nothing more is asked of it in this round either.
            if let Err(place) = absent.binary_search(agent) {
                absent.insert(place, *agent);
            }
        }
        let (are_finite, is_packed) = (arrivals.are_finite(), wanted.iter().any(|want| want.part.is_packed()));
        // In place of packed bytes an agent whose numbers are no longer finite sends none, which server halves do not read.
        let next = match are_finite || !is_packed {
            true => arrivals.with(&ask.down, arrivals.weight_of(&of, federation.rules().missing), |got| server.receive(got)),
            false => Next::Done { tell: None },
        };
        self.acknowledge(&arrivals.arrived);
        if self.keeps_letters {
            self.updates = arrivals.updates;
        }
        (next, are_finite)
    }

    /// Notes which answers to the open question count, of the agents that were asked; an empty list means that all do.
    fn acknowledge(&mut self, arrived: &[bool]) {
        let Self { protocol, everyone, state: State { ask, acknowledged, .. }, .. } = self;
        if protocol.is_acknowledged(ask.down.exchange) {
            acknowledged.see(ask.down.round, ask.to.as_deref().unwrap_or(everyone), arrived, everyone.len());
        }
    }

    /// Whether the last answer of an agent counted, if its state depends on that.
    pub(crate) fn is_counted(&self, agent: usize) -> bool {
        self.state.acknowledged.is_counted(agent)
    }

    /// Goes on with an agent whose state does not go with what was counted of it as with one none of whose answers counted.
    pub(crate) fn forget(&mut self, agent: usize) {
        self.state.acknowledged.forget(self.rounds(), agent, self.everyone.len());
        self.server.forget(agent);
    }

    /// Ends the round: the output rule sees the iterate, and divergence is decided.
    fn end_round(&mut self, step: Step) -> Step {
        let State { output, diverged, opened, .. } = &mut self.state;
        output.see(self.server.theta(), *opened);
        if has_diverged(self.server.theta(), self.scale) {
            *diverged = Some(*opened);
        }
        self.state.step = step;
        step
    }

    /// The answers of the last exchange that arrived, in the agents' order, if they are kept ([`Coordinator::keep_letters`]).
    pub(crate) fn updates(&self) -> &[ClientUpdate] {
        &self.updates
    }
}

/// The number of bytes that parts of their own add to the messages of the recipients that are reached.
fn own_bytes(own: &PerRecipient, is_reached: impl Fn(usize) -> bool) -> usize {
    (0..own.each.len()).filter(|i| is_reached(*i)).filter_map(|i| own.each[i].as_ref()).map(|x| PART_HEADER_BYTES + 8 * x.len()).sum()
}
