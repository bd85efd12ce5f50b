//! The coordinator runs the rounds of a federation.
//!
//! It owns the server half, the protocol, the server's end of the link, the ledger, the output rule and the round. It checks answers,
//! refuses them with a reason, counts messages, and decides whether the iterates have diverged. It is independent of the carrier of
//! messages: [`crate::round::Run`] is a coordinator with agents in this process, [`crate::node::ServerNode`] a coordinator with bytes.
//!
//! ```text
//! open(available) -> Ask          a question is open: carry it to its recipients
//! accept(agent, parts) ..         or hand_in(..), hand_in_sum(..) for agents in this process
//! close() -> Ask                  another exchange of this round
//!         -> Tell                 the round is over; its last message must arrive before, or with, the next question
//!         -> RoundOver            the round is over
//! ```

mod acknowledged;
mod answers;
mod delayed;
mod faults;
mod handed_in;
mod masked;
mod regrouped;
mod replies;
mod saved;
pub(crate) mod server_end;
mod unmasking;

use faer::Mat;

use crate::error::{Error, Failure, Result};
use crate::federation::Federation;
use crate::linalg;
use crate::message::{MAX_ROUNDS, Message, PART_HEADER_BYTES};
use crate::protocol::Protocol;
use crate::random::ALL;
use crate::record::{Ledger, Output};
use crate::secure::SumGrid;
use crate::server::{Broadcast, ClientUpdate, Next, PerRecipient, Received, Server};
use crate::uplink::MessageKey;
use acknowledged::Acknowledged;
use masked::{MaskedSum, Unmasking};
use server_end::{OfExchange, ServerEnd, asked_weight};

pub use faults::Exclusion;
pub use handed_in::{Accepted, AgentStatus, Refusal};
pub(crate) use handed_in::{Replies, Reply};
pub(crate) use saved::Saved;

/// The iterates have diverged once `||theta||` exceeds this times `1 + max(||theta_0||, ||theta*||)`.
pub const DIVERGED: f64 = 1e8;

/// Whether `||theta||` exceeds [`DIVERGED`] times `1 + scale`, or is not finite.
fn has_diverged(theta: &[f64], scale: f64) -> bool {
    let norm = linalg::norm_sq(theta).sqrt();
    !norm.is_finite() || norm > DIVERGED * (1.0 + scale)
}

/// The carrier's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// Carry the question to its recipients, hand in their answers, and close the exchange.
    Ask,
    /// Deliver the message to its recipients before, or with, their next question. They do not answer it. The round is over.
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
    /// The larger of `||theta_0||` and `||theta*||`.
    scale: f64,
    state: State,
    /// Whether the link is clear.
    is_clear: bool,
    /// Whether the server's end of the link needs only a sum: no answer is late, and the mean is the weighted one.
    adds_up: bool,
    /// The answers of the last exchange that arrived, if they are kept.
    updates: Vec<ClientUpdate>,
    keeps_letters: bool,
    /// The refused answers since the round was opened.
    refusals: Vec<Refusal>,
    /// The grid of secure sums, if the link has them.
    grid: Option<SumGrid>,
    /// Whether answers arrive masked: at a server of nodes. In one process they are only counted as if.
    is_masked: bool,
}

/// The saved state, except the server half's.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct State {
    /// The number of rounds opened so far.
    opened: u64,
    step: Step,
    /// The open or last question, as agents decode it.
    ask: Broadcast,
    /// The question before the downlink's codec, if that alters messages.
    written: Option<Message>,
    /// Unreachable recipients.
    absent: Vec<usize>,
    /// The answers so far.
    replies: Replies,
    ledger: Ledger,
    output: Output,
    /// The number of rounds done when the iterates were found to have diverged.
    diverged: Option<u64>,
    end: ServerEnd,
    /// The counted answers, if agents must know them.
    acknowledged: Acknowledged,
    /// Excluded agents.
    exclusions: Vec<Exclusion>,
    /// The masked sum that the open question unmasks.
    masked: Option<MaskedSum>,
    /// Numbers that agents clipped to the bound of secure sums.
    clipped: u64,
}

impl Coordinator {
    /// The coordinator of a federation at the start of a run.
    ///
    /// # Errors
    /// When the method cannot work over the link, or its server half has failed.
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
            output: Output::new(federation.output(), federation.start(), seed)
                .combining(federation.combination().cloned(), federation.start()),
            diverged: None,
            end: ServerEnd::new(federation.uplink(), seed, n),
            acknowledged: Acknowledged::default(),
            exclusions: Vec::new(),
            masked: None,
            clipped: 0,
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
            grid: federation.grid(),
            is_masked: false,
            federation: federation.clone(),
        })
    }

    /// Keeps arriving answers for [`Coordinator::updates`].
    pub(crate) fn keep_letters(&mut self) {
        self.keeps_letters = true;
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

    /// The carrier's next step.
    pub fn step(&self) -> Step {
        self.state.step
    }

    /// The counts since the start: exchanges, messages, bits, vectors. Agents count samples and calls.
    pub fn ledger(&self) -> Ledger {
        self.state.ledger
    }

    /// The number of rounds done when the iterates were found to have diverged, if they have: `||theta||` exceeded the bound
    /// ([`DIVERGED`]), or an agent's numbers or the iterate were not finite. No more rounds are opened then.
    pub fn diverged(&self) -> Option<u64> {
        self.state.diverged
    }

    /// The number of line searches that found no step with enough decrease, for methods that count them.
    pub fn failed_searches(&self) -> Option<u64> {
        self.server.facts().failed_searches
    }

    /// The server's approximation of the agents' mean Hessian, for methods that keep one; only its lower triangle is read.
    pub fn hessian(&self) -> Option<Mat<f64>> {
        self.server.hessian()
    }

    /// Whether the server half can fail.
    pub(crate) fn can_fail(&self) -> bool {
        self.server.facts().failure.is_some()
    }

    /// Why the server half failed, if it did ([`ServerFacts::failure`](crate::server::ServerFacts::failure)); its results since are void.
    pub fn failure(&self) -> Option<Error> {
        self.server.facts().failure.and_then(Failure::get)
    }

    /// The refused answers since the round was opened, in order of arrival.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The agents that were excluded because of faulty answers, in order ([`crate::federation::Faults::Exclude`]).
    pub fn exclusions(&self) -> &[Exclusion] {
        &self.state.exclusions
    }

    /// Readmits an excluded agent from the next round on; returns whether it was excluded.
    pub(crate) fn readmit(&mut self, agent: usize) -> bool {
        let before = self.state.exclusions.len();
        self.state.exclusions.retain(|one| one.agent != agent);
        self.state.exclusions.len() < before
    }

    /// The open question, or the last message, as agents decode it.
    pub fn question(&self) -> &Broadcast {
        &self.state.ask
    }

    /// The present message before the downlink's codec.
    pub(crate) fn written(&self) -> &Message {
        self.state.written.as_ref().unwrap_or(&self.state.ask.down)
    }

    /// The participants of the present message, in increasing order, including unreachable ones.
    pub fn asked(&self) -> &[usize] {
        self.state.ask.to.as_deref().unwrap_or(&self.everyone)
    }

    /// The agents that get the present message: their places among [`Coordinator::asked`], and their numbers.
    pub fn recipients(&self) -> impl Iterator<Item = (usize, usize)> {
        let absent = &self.state.absent;
        self.asked().iter().copied().enumerate().filter(|(_, c)| absent.binary_search(c).is_err())
    }

    /// Whether all participants are reachable.
    pub(crate) fn reaches_all(&self) -> bool {
        self.state.absent.is_empty()
    }

    /// The agents that may still answer the open question.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        let is_open = self.is_open();
        self.recipients().filter(move |(i, _)| is_open && self.state.replies.of(*i).is_none()).map(|(_, c)| c)
    }

    /// The number of accepted answers to the open question.
    pub fn answered(&self) -> usize {
        self.state.replies.each().iter().flatten().count()
    }

    /// Whether an agent's answer to the open question was accepted.
    pub(crate) fn has_answered(&self, agent: usize) -> bool {
        self.place_of(agent).is_ok_and(|at| self.state.replies.of(at).is_some())
    }

    /// Opens the next round with a question. An open round ends with the answers accepted so far. `available` are the reachable agents in
    /// any order, all if absent. Unreachable participants get no question, and their answers count as missing. After divergence or
    /// [`MAX_ROUNDS`] rounds, the result is [`Step::RoundOver`].
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

    /// Counts additional bytes that were sent down with the present message.
    pub(crate) fn count_down(&mut self, bytes: usize) {
        self.state.ledger.down(0, bytes);
    }

    /// Subtracts bytes that were counted with a question but will not be sent.
    pub(crate) fn discount(&mut self, bytes: usize) {
        let count = &mut self.state.ledger.bits_down;
        *count = count.saturating_sub(8 * bytes as u64);
    }

    /// Notes that the carrier stores the message at the end of the last round, so it is not stored twice.
    pub(crate) fn hand_over_tell(&mut self) {
        if self.state.step == Step::Tell {
            (self.state.step, self.state.written, self.state.ask.own) = (Step::RoundOver, None, None);
            self.state.ask.down.parts.clear();
        }
    }

    /// Ends the open exchange with the answers accepted so far. A missing answer counts as zero in the mean; the caller decides how many
    /// answers suffice. Without any answer theta changes only by the receiver's noise over the air.
    pub fn close(&mut self) -> Step {
        if !self.is_open() {
            return self.state.step;
        }
        let (next, are_finite) = match std::mem::replace(&mut self.state.replies, Replies::none()) {
            Replies::Sum { sum, arrived } => {
                let (sum, arrived) = self.if_enough(sum, arrived);
                self.acknowledge(&arrived);
                self.receive_sums(sum, &arrived)
            }
            Replies::Each(mut each) => {
                each.resize(self.asked().len(), None);
                match self.is_masked {
                    true => match self.receive_masked(each) {
                        Unmasking::Ask(ask) => return self.send(ask, Step::Ask),
                        Unmasking::Sums(sum, arrived) => self.receive_sums(sum, &arrived),
                    },
                    false => self.receive(each),
                }
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

    /// Gives the server half the single answers that arrived; also returns whether their numbers are finite.
    fn receive(&mut self, replies: Vec<Option<Reply>>) -> (Next, bool) {
        let rounding = self.sum_rounding();
        let Self { federation, protocol, server, everyone, state, refusals, .. } = self;
        let State { ask, end, absent, exclusions, .. } = state;
        let asked = ask.to.as_deref().unwrap_or(everyone);
        let at = MessageKey { seed: federation.seed(), round: ask.down.round, exchange: ask.down.exchange, agent: ALL };
        let wanted = protocol.wanted(at.exchange);
        let of = OfExchange {
            uplink: federation.uplink(),
            at,
            wanted,
            weights: federation.weights(),
            asked,
            grid: self.grid,
            rules: federation.rules(),
            // More than half of the agents must stay.
            most_faults: (everyone.len().saturating_sub(1) / 2).saturating_sub(exclusions.len()),
        };
        let arrivals = end.take(&of, replies);
        for (agent, reason) in &arrivals.faults {
            let (round, exchange, what) = (at.round, at.exchange, reason.to_string());
            exclusions.push(Exclusion { agent: *agent, round, exchange, reason: what });
            refusals.push(Refusal { agent: *agent, round, exchange, reason: reason.clone() });
            // An excluded agent gets no further question in this round.
            if let Err(place) = absent.binary_search(agent) {
                absent.insert(place, *agent);
            }
        }
        let (are_finite, is_packed) = (arrivals.are_finite(), wanted.iter().any(|want| want.part.is_packed()));
        // Server halves cannot read the missing packed bytes of an agent whose numbers are no longer finite.
        let next = match are_finite || !is_packed {
            true => server.receive(&Received {
                round: at.round,
                exchange: at.exchange,
                down: &ask.down,
                sums: &arrivals.sums(),
                asked: arrivals.weight_of(&of, federation.rules().missing),
                arrived: &arrivals.arrived,
                rounding,
                updates: arrivals.single(),
            }),
            false => Next::Done { tell: None },
        };
        self.acknowledge(&arrivals.arrived);
        self.count_unmasking(&arrivals.arrived);
        if self.keeps_letters {
            self.updates = arrivals.updates;
        }
        (next, are_finite)
    }

    /// Notes which participants' answers to the open question count; an empty list means all.
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

    /// Treats an agent whose state does not match its counted answers as if none had counted.
    pub(crate) fn forget(&mut self, agent: usize) {
        self.state.acknowledged.forget(self.rounds(), agent, self.everyone.len());
        self.server.forget(agent);
    }

    /// Ends the round: updates the output, and checks for divergence.
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

/// The number of bytes that own parts add to the messages of reached recipients.
fn own_bytes(own: &PerRecipient, is_reached: impl Fn(usize) -> bool) -> usize {
    (0..own.each.len()).filter(|i| is_reached(*i)).filter_map(|i| own.each[i].as_ref()).map(|x| PART_HEADER_BYTES + 8 * x.len()).sum()
}
