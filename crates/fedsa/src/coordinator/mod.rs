//! The coordinator: the one place that leads the rounds of a federation.
//!
//! It owns the server half, the protocol, the server's end of the link, the ledger, the output rule and the round. It alone checks
//! answers, refuses them with a reason, counts what travels, and decides whether the iterates have diverged. It does not know who
//! carries the messages: [`crate::round::Run`] is a coordinator with agents in this process, [`crate::node::ServerNode`] a coordinator
//! with bytes and copies of the agents' control variates.
//!
//! ```text
//! open(available) -> Ask          a question is open: carry it to its recipients
//! accept(agent, parts) ..         or accept_sums(..) for agents in lanes
//! close() -> Ask                  another exchange of this round
//!         -> Tell                 the round is over; its participants get a message that they do not answer
//!         -> RoundOver            the round is over
//! ```

mod mail;
mod saved;
pub(crate) mod server_end;

use faer::Mat;

use crate::error::{Error, Failure, Result};
use crate::federation::Federation;
use crate::linalg;
use crate::message::{Body, MAX_ROUNDS, Message, PART_HEADER_BYTES, Part};
use crate::protocol::{Protocol, are_finite, refused};
use crate::random::ALL;
use crate::record::{Ledger, Output, Sent};
use crate::server::{Ask, Letter, Next, Own, Received, Server};
use crate::uplink::{MessageKey, Uplink};
use server_end::{Arrivals, ServerEnd, asked_weight, check_answer};

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
    /// Carry the message to its recipients, who do not answer. The round is over.
    Tell,
    /// The round is over: open the next one.
    RoundOver,
}

/// The result of an answer that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Accepted {
    /// It counts.
    Counted,
    /// It is a copy of the answer that counts already.
    Repeated,
}

/// An answer that was refused.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// The agent.
    pub agent: usize,
    /// The round and exchange of the open question.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// Why.
    pub reason: crate::error::Error,
}

/// An answer that was checked, and that is one to the open question.
pub(crate) struct Checked {
    /// The agent's place among those that were asked.
    at: usize,
    parts: Vec<(Part, Body)>,
    /// Whether it says that the agent's numbers are no longer finite.
    is_diverged: bool,
    /// Bytes on the wire.
    len: usize,
}

/// What became of one message from a lane.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Arrival {
    /// The factor with which it arrived; 0 if it did not.
    pub gain: f64,
    /// The round whose model it answers.
    pub answers: u64,
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
    /// What lanes handed in for the open question.
    lanes: FromLanes,
    /// The answers of the last exchange that arrived, if they are kept.
    letters: Vec<Letter>,
    keeps_letters: bool,
    /// The refused answers since the round was opened.
    refusals: Vec<Refusal>,
}

/// What lanes handed in: a sum, or a vector of each agent.
#[derive(Default)]
enum FromLanes {
    #[default]
    Nothing,
    Sum {
        arrived: Vec<bool>,
    },
    Each(Vec<Option<Letter>>),
}

/// The state that lasts, except the server half's.
#[derive(Debug, Clone)]
struct State {
    /// The number of rounds opened so far.
    opened: u64,
    step: Step,
    /// The question under way, or the last one, as agents decode it.
    ask: Ask,
    /// The question as the server wrote it, if the downlink alters messages.
    written: Option<Message>,
    /// Recipients that cannot be reached.
    absent: Vec<usize>,
    /// The answers so far, one entry for each agent that was asked; empty while nobody handed one in.
    answers: Vec<Option<Vec<(Part, Body)>>>,
    /// The sum that lanes handed in: d numbers, kept for reuse.
    sum: Vec<f64>,
    ledger: Ledger,
    output: Output,
    /// The number of rounds done when the iterates were found to have diverged.
    diverged: Option<u64>,
    end: ServerEnd,
}

impl Coordinator {
    /// The coordinator of a federation at the start of a run.
    ///
    /// # Errors
    /// When the method cannot work over the link, or its server half has failed already.
    pub fn new(federation: &Federation) -> Result<Self> {
        let (_, protocol) = federation.client()?;
        let server = federation.method().server(&federation.setting());
        server.failure().and_then(Failure::get).map_or(Ok(()), Err)?;
        let (n, seed) = (federation.agents(), federation.seed());
        let state = State {
            opened: 0,
            step: Step::RoundOver,
            ask: Ask { to: None, down: Message { round: 0, exchange: 0, parts: Vec::new() }, own: None },
            written: None,
            absent: Vec::new(),
            answers: Vec::new(),
            sum: Vec::new(),
            ledger: Ledger::default(),
            output: Output::new(federation.output(), federation.start(), seed),
            diverged: None,
            end: ServerEnd::new(federation.uplink(), seed, n),
        };
        Ok(Self {
            protocol,
            server,
            everyone: (0..n).collect(),
            scale: federation.scale(),
            state,
            lanes: FromLanes::Nothing,
            letters: Vec::new(),
            keeps_letters: false,
            refusals: Vec::new(),
            federation: federation.clone(),
        })
    }

    /// Keeps the answers that arrive, so that [`Coordinator::letters`] returns them.
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
        self.server.failed_searches()
    }

    /// The mean Hessian of the agents as the server approximates it, for methods that keep an approximation: its lower triangle is read.
    pub fn hessian(&self) -> Option<Mat<f64>> {
        self.server.hessian()
    }

    /// Whether the server half can fail.
    pub(crate) fn can_fail(&self) -> bool {
        self.server.failure().is_some()
    }

    /// Why the server half failed, if it can fail ([`Server::failure`]): what it has done since is void.
    pub fn failure(&self) -> Option<Error> {
        self.server.failure().and_then(Failure::get)
    }

    /// The refused answers since the round was opened, in the order in which they came.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The question under way, or the last message, as agents decode it.
    pub fn question(&self) -> &Ask {
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

    /// The agents that may still answer the open question.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        let has_answered = |i: usize| self.state.answers.get(i).is_some_and(Option::is_some);
        let is_open = self.is_open();
        self.recipients().filter(move |(i, _)| is_open && !has_answered(*i)).map(|(_, c)| c)
    }

    /// The number of answers to the open question that were accepted so far.
    pub fn answered(&self) -> usize {
        self.state.answers.iter().flatten().count()
    }

    /// Whether an agent's answer to the open question was accepted.
    pub(crate) fn has_answered(&self, agent: usize) -> bool {
        self.place_of(agent).is_ok_and(|at| self.state.answers.get(at).is_some_and(Option::is_some))
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
        self.state.opened += 1;
        self.state.absent.clear();
        if let Some(available) = available {
            let mut is_absent = vec![true; self.everyone.len()];
            available.iter().filter(|c| **c < self.everyone.len()).for_each(|c| is_absent[*c] = false);
            self.state.absent = self.everyone.iter().copied().filter(|c| is_absent[*c]).collect();
        }
        self.send(ask, Step::Ask)
    }

    /// Sends a message down: the downlink's codec may alter it, and the ledger counts it.
    fn send(&mut self, mut ask: Ask, step: Step) -> Step {
        let (uplink, seed) = (&**self.federation.uplink(), self.federation.seed());
        self.state.written = (!uplink.downlink.is_exact()).then(|| ask.down.clone());
        uplink.tell(seed, &mut ask.down);
        let asked = ask.to.as_ref().map_or(self.everyone.len(), Vec::len);
        let absent = &self.state.absent;
        let is_reached = |i: usize| absent.is_empty() || absent.binary_search(&ask.to.as_ref().map_or(i, |to| to[i])).is_err();
        let n = if absent.is_empty() { asked } else { (0..asked).filter(|i| is_reached(*i)).count() };
        let own = ask.own.as_ref().map_or(0, |own| own_bytes(own, is_reached));
        self.state.ledger.down(n, n * ask.down.encoded_len(&*uplink.downlink) + own);
        self.state.ledger.exchanges += 1;
        self.state.ask = ask;
        self.state.answers.clear();
        self.state.step = step;
        step
    }

    /// Counts bytes that were sent down beside the message under way.
    pub(crate) fn count_down(&mut self, bytes: usize) {
        self.state.ledger.down(0, bytes);
    }

    /// The question under way, the agents that were asked, the link, and the media's memory of every agent, for lanes.
    pub(crate) fn with_channel(&mut self) -> (&Ask, &[usize], &Uplink, &mut [u64]) {
        let State { ask, end, .. } = &mut self.state;
        (ask, ask.to.as_deref().unwrap_or(&self.everyone), self.federation.uplink(), &mut end.channel)
    }

    /// Checks that the question under way is one to this agent: its place among those that were asked.
    ///
    /// # Errors
    /// When no question is open, or the agent was not asked.
    pub(crate) fn place_of(&self, agent: usize) -> Result<usize> {
        if !self.is_open() {
            return Err(refused("an answer while no question is open", "answers to an open question"));
        }
        let at = self.asked().binary_search(&agent);
        at.map_err(|_| refused(format!("an answer of agent {agent}, which was not asked"), "answers of agents that were asked"))
    }

    /// Checks the parts of an answer to the open question; `len` is its number of bytes on the wire.
    ///
    /// # Errors
    /// When the question was not one to this agent, or the answer is not one of this method.
    pub(crate) fn check(&self, agent: usize, mut parts: Vec<(Part, Body)>, len: usize) -> Result<Checked> {
        let (at, exchange) = (self.place_of(agent)?, self.state.ask.down.exchange);
        let is_diverged = matches!(parts[..], [(Part::Diverged, _)]);
        if is_diverged {
            parts = self.protocol.diverged_answer(exchange);
        } else {
            self.protocol.check_answer(exchange, &parts)?;
            self.server.accepts(exchange, &parts)?;
        }
        Ok(Checked { at, parts, is_diverged, len })
    }

    /// Takes an answer that was checked.
    ///
    /// # Errors
    /// When the agent has answered the question otherwise.
    pub(crate) fn take(&mut self, agent: usize, checked: Checked) -> Result<Accepted> {
        let Checked { at, parts, is_diverged, len } = checked;
        let (asked, d) = (self.asked().len(), self.federation.dim());
        self.state.answers.resize(asked, None);
        match &self.state.answers[at] {
            None => {
                let mut sent = Sent::default();
                // Numbers that are no longer finite did not travel.
                let counted = if is_diverged { &[] } else { &parts[..] };
                sent.message(len, counted, d);
                self.state.ledger.up(&sent);
                self.state.answers[at] = Some(parts);
                Ok(Accepted::Counted)
            }
            Some(taken) if *taken == parts || !(are_finite(taken) || are_finite(&parts)) => Ok(Accepted::Repeated),
            Some(_) => Err(refused(format!("a second answer of agent {agent}"), "one answer from each agent")),
        }
    }

    /// Accepts the answer of an agent to the open question; `len` is its number of bytes on the wire. A second copy changes nothing.
    ///
    /// # Errors
    /// When it is not an answer of this agent to the open question. A refused answer does not count, and changes nothing; it is listed
    /// in [`Coordinator::refusals`].
    pub fn accept(&mut self, agent: usize, parts: Vec<(Part, Body)>, len: usize) -> Result<Accepted> {
        let taken = self.check(agent, parts, len).and_then(|checked| self.take(agent, checked));
        taken.inspect_err(|reason| self.refuse(agent, reason.clone()))
    }

    /// Lists an answer as refused, or an agent that could not answer.
    pub(crate) fn refuse(&mut self, agent: usize, reason: crate::error::Error) {
        let Message { round, exchange, .. } = self.state.ask.down;
        self.refusals.push(Refusal { agent, round, exchange, reason });
    }

    /// Accepts the sum of all answers of lanes, weighted and in the order of [`crate::sums`], in place of single answers: d numbers.
    /// `arrivals` says what became of each message; empty if all arrived. `sent` counts the messages.
    pub(crate) fn accept_sums(&mut self, sum: &[f64], arrivals: &[Arrival], sent: &Sent) {
        self.state.ledger.up(sent);
        self.state.sum.clear();
        self.state.sum.extend(sum);
        self.lanes = FromLanes::Sum { arrived: arrivals.iter().map(|arrival| arrival.gain != 0.0).collect() };
    }

    /// Accepts a vector of each agent that was asked, `rows` of d numbers, in place of single answers; `arrivals` says what became of
    /// each message. `sent` counts the messages.
    pub(crate) fn accept_each(&mut self, rows: &[f64], arrivals: &[Arrival], sent: &Sent) {
        self.state.ledger.up(sent);
        let (part, weights) = (self.wanted_of_lanes(), self.federation.weights());
        let letter = |((c, arrival), x): ((&usize, &Arrival), &[f64])| {
            let Arrival { gain, answers } = *arrival;
            let parts = || vec![(part, Body::Numbers(x.to_vec()))];
            (gain != 0.0).then(|| Letter { agent: *c, answers, weight: weights[*c] * gain, parts: parts() })
        };
        let letters = self.asked().iter().zip(arrivals).zip(rows.chunks(self.federation.dim())).map(letter).collect();
        self.lanes = FromLanes::Each(letters);
    }

    /// The part that lanes answer the open question with.
    pub(crate) fn wanted_of_lanes(&self) -> Part {
        self.protocol.wanted(self.state.ask.down.exchange)[0].part
    }

    /// Ends the exchange under way with the answers accepted so far. A missing answer counts as zero in the mean; the caller decides
    /// how many answers suffice. Without any answer theta does not change, except by the receiver's noise over the air.
    pub fn close(&mut self) -> Step {
        if !self.is_open() {
            return self.state.step;
        }
        let (next, are_finite) = match std::mem::take(&mut self.lanes) {
            FromLanes::Sum { arrived } => self.receive_sum(&arrived),
            FromLanes::Each(letters) => self.receive(|end, at, federation, wanted, asked| {
                end.arrive(federation.uplink(), at, wanted, federation.weights(), asked, letters)
            }),
            FromLanes::Nothing => {
                let mut answers = std::mem::take(&mut self.state.answers);
                answers.resize(self.asked().len(), None);
                self.receive(|end, at, federation, wanted, asked| {
                    end.take(federation.uplink(), at, wanted, federation.weights(), asked, answers)
                })
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

    /// Gives the server half the sum of lanes; also whether its numbers are finite.
    fn receive_sum(&mut self, arrived: &[bool]) -> (Next, bool) {
        let part = self.wanted_of_lanes();
        let Self { federation, server, everyone, state, .. } = self;
        let State { ask, sum, .. } = state;
        let asked = ask.to.as_deref().unwrap_or(everyone);
        let weight = asked_weight(federation.weights(), asked);
        let (round, exchange) = (ask.down.round, ask.down.exchange);
        let at = MessageKey { seed: federation.seed(), round, exchange, agent: ALL };
        federation.uplink().receive(at, &mut [&mut sum[..]], asked.len(), weight);
        let sums = [(part, &sum[..])];
        let got = Received { round, exchange, down: &ask.down, sums: &sums, asked: weight, arrived, letters: &[] };
        let next = server.receive(&got);
        (next, sum.iter().all(|x| x.is_finite()))
    }

    /// Gives the server half what arrived of single answers; also whether their numbers are finite.
    fn receive(
        &mut self,
        arrive: impl FnOnce(&mut ServerEnd, MessageKey, &Federation, &[crate::protocol::Want], &[usize]) -> Arrivals,
    ) -> (Next, bool) {
        let Self { federation, protocol, server, everyone, state, .. } = self;
        let State { ask, end, .. } = state;
        let asked = ask.to.as_deref().unwrap_or(everyone);
        let at = MessageKey { seed: federation.seed(), round: ask.down.round, exchange: ask.down.exchange, agent: ALL };
        let arrivals = arrive(end, at, federation, protocol.wanted(at.exchange), asked);
        let (are_finite, is_packed) = (arrivals.are_finite(), protocol.wanted(at.exchange).iter().any(|want| want.part.is_packed()));
        // In place of packed bytes an agent whose numbers are no longer finite sends none, which server halves do not read.
        let next = match are_finite || !is_packed {
            true => arrivals.with(&ask.down, asked_weight(federation.weights(), asked), |got| server.receive(got)),
            false => Next::Done { tell: None },
        };
        if self.keeps_letters {
            self.letters = arrivals.letters;
        }
        (next, are_finite)
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
    pub(crate) fn letters(&self) -> &[Letter] {
        &self.letters
    }
}

/// The number of bytes that parts of their own add to the messages of the recipients that are reached.
fn own_bytes(own: &Own, is_reached: impl Fn(usize) -> bool) -> usize {
    (0..own.each.len()).filter(|i| is_reached(*i)).filter_map(|i| own.each[i].as_ref()).map(|x| PART_HEADER_BYTES + 8 * x.len()).sum()
}
