//! The halves of a method across machines: bytes in, bytes out.
//!
//! [`ClientNode`] is one agent, [`ServerNode`] the server. Whoever carries the
//! bytes between them (threads, Flower) gets the numbers of the in-process
//! engine, bit for bit; the conformance suite says so. A link's two ends are here too:
//! the agent's (budget, codec, feedback) and the server's (losses, noise, late letters),
//! where the real network does not do the losing. Stale models (pull) are the
//! in-process engine's alone: no real federation has them.
//!
//! The network may lose, repeat, delay, reorder and damage messages. A message that is not one of
//! this federation at this point is refused alone, with the reason, and changes nothing. A repeated
//! question gets the same bytes again. An answer that is missing counts as zero in its round.

use std::sync::Arc;

use crate::error::{BadInput, Result, require};
use crate::kernel::{Chunk, LANES, Lanes, chunks, flat_mut};
use crate::local::{Batch, Last, Outbox, stride};
use crate::message::{Message, Part, TELL};
use crate::methods::{Method, Setting, Settings};
use crate::problem::Field;
use crate::random::{ALL, Key, Purpose};
use crate::round::mail::Mail;
use crate::round::sum;
use crate::server::{Ask, Delivery, Letter, Next, Received};
use crate::uplink::{Place, Uplink};

/// One agent of a federation.
pub struct ClientNode<'a> {
    field: &'a dyn Field,
    uplink: &'a Uplink,
    client: Box<dyn crate::local::Client>,
    agent: usize,
    seed: u64,
    memory: Vec<Chunk>,
    feedback: Vec<f64>,
    lanes: Lanes,
    outbox: Outbox,
    /// The message that it took last, and what it answered.
    taken: Option<Taken>,
    /// The last round that it answered.
    answered: Option<u64>,
}

/// A message that an agent has taken.
struct Taken {
    round: u64,
    exchange: u8,
    bytes: Vec<u8>,
    answer: Option<Vec<u8>>,
}

/// What both ends check before a run, as [`crate::round::Run`] does.
fn checked(settings: &dyn Settings, uplink: &Uplink, setting: &Setting<'_>) -> Result<Method> {
    if uplink.delay.is_some() {
        let what = "only the in-process engine computes at stale models: no real federation has them";
        return Err(BadInput::new("uplink.media", what, "a link without delay (pull); late (push) is its counterpart"));
    }
    settings.check(setting.agents())?;
    uplink.check(setting.agents(), setting.start.len())?;
    let method = settings.build(setting);
    method.check_link(&setting.link)?;
    Ok(method)
}

impl<'a> ClientNode<'a> {
    /// Agent `agent` at the start of a run; `start` is `theta_0`, d components.
    ///
    /// # Errors
    /// As [`crate::round::Run::new`]; when there is no such agent, `start` is of another length, or the link has stale
    /// models (pull).
    pub fn new(
        field: &'a dyn Field,
        settings: &dyn Settings,
        uplink: &'a Uplink,
        agent: usize,
        seed: u64,
        start: Vec<f64>,
    ) -> Result<Self> {
        let (agents, d) = (field.agents(), field.dim());
        require(agent < agents, "agent", agent, &format!("below the number of agents, {agents}"))?;
        require(start.len() == d, "start", format!("{} components", start.len()), &format!("{d} components"))?;
        let setting = Setting { seed, weights: field.weights(), start: start.clone(), link: uplink.facts() };
        let Method { client, .. } = checked(settings, uplink, &setting)?;
        let mut lanes = Lanes::new(d, field.chain_len());
        let mut drawn = Key::new(seed, Purpose::Chain, 0).stream(agent);
        field.start_chain(agent, &mut drawn, &mut lanes.chains[..field.chain_len()]);
        let mut memory = vec![Chunk::default(); stride(&*client, d)];
        if let Some(kept) = client.model_kept() {
            let width = chunks(d);
            flat_mut(&mut memory[kept * width..(kept + 1) * width])[..d].copy_from_slice(&start);
        }
        let feedback = vec![0.0; uplink.feedback_len(d)];
        let outbox = Outbox::new(d);
        Ok(Self { field, uplink, client, agent, seed, memory, feedback, lanes, outbox, taken: None, answered: None })
    }

    /// Takes a message of the server; returns the answer, if it wants one. A message that it took last time gets the
    /// same answer again, and changes nothing.
    ///
    /// # Errors
    /// When the bytes are not a message that this method's server sends now: not one at all, of an earlier round or
    /// exchange, or one that the agent cannot follow. The agent is then as it was.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(taken) = self.taken.as_ref().filter(|taken| taken.bytes == bytes) {
            return Ok(taken.answer.clone());
        }
        let mut down =
            Message::decode(bytes, &*self.uplink.downlink, self.field.dim(), |t, e| place(self.seed, t, e, ALL).stream(Purpose::Codec))?;
        let wanted =
            self.client.wants(down.exchange).ok_or_else(|| refused(format!("exchange {}", down.exchange), "one of this method"))?;
        let arrived = arrival(&mut down)?;
        let included = self.inclusion(&mut down)?;
        one_part(&down, wanted, self.field.dim())?;
        self.in_order(&down, arrived)?;
        let last = Last { round: self.answered, is_included: included };
        if down.exchange == 0 {
            self.client.can_follow(down.round, last)?;
        }
        let answer = self.compute(&down, arrived, last);
        if down.exchange != TELL {
            self.answered = Some(down.round);
        }
        self.taken = Some(Taken { round: down.round, exchange: down.exchange, bytes: bytes.to_vec(), answer: answer.clone() });
        Ok(answer)
    }

    /// Whether the agent's last answer is in its round's mean: as the message says, or else if it was to the round before.
    fn inclusion(&self, down: &mut Message) -> Result<bool> {
        let before = down.round.checked_sub(1);
        let Some(at) = down.parts.iter().position(|(part, _)| *part == Part::Included) else {
            return Ok(self.answered.is_some() && self.answered == before);
        };
        match down.parts.remove(at).1[..] {
            [-1.0] => Ok(false),
            [t] if t >= 0.0 && t.fract() == 0.0 && before.is_some_and(|before| t <= before as f64) => Ok(self.answered == Some(t as u64)),
            _ => Err(refused("a last round that is none", "an earlier round, or -1")),
        }
    }

    /// Refuses what does not come after what was taken last.
    fn in_order(&self, down: &Message, arrived: Option<bool>) -> Result<()> {
        let at = (down.round, down.exchange);
        let before = self.taken.as_ref().map(|taken| (taken.round, taken.exchange));
        let text = |(t, e): (u64, u8)| if e == TELL { format!("what is told of round {t}") } else { format!("round {t} exchange {e}") };
        if let Some(before) = before.filter(|before| *before >= at) {
            return Err(refused(format!("{} after {}", text(at), text(before)), "a later message, or the very same bytes again"));
        }
        let needs = match down.exchange {
            // Who is told that its answer is not in v needs none.
            0 => return Ok(()),
            TELL if arrived == Some(false) => return Ok(()),
            TELL => self.answered == Some(down.round),
            e => before == Some((down.round, e - 1)),
        };
        if needs {
            Ok(())
        } else {
            Err(refused(format!("{} without what comes before it", text(at)), "the exchanges of a round in their order"))
        }
    }

    fn compute(&mut self, down: &Message, arrived: Option<bool>, last: Last) -> Option<Vec<u8>> {
        let (agents, stride) = ([self.agent], self.memory.len());
        let mut batch = Batch::new(self.field, self.seed, &mut self.lanes, &agents, self.agent, &mut self.memory, stride).after(last);
        if down.exchange == TELL {
            self.client.told(&mut batch, down, arrived.as_slice());
            return None;
        }
        self.outbox.clear();
        self.client.answer(&mut batch, down, &mut self.outbox);
        let (part, x) = self.outbox.sent(0)?;
        let at = place(self.seed, down.round, down.exchange, self.agent);
        let (mut payload, mut sent) = (Vec::new(), vec![0.0; x.len()]);
        let is_sent = self.uplink.encode(at, x, &mut self.feedback, &mut payload, &mut sent);
        if self.uplink.alters() {
            self.client.sent(&mut batch, 0, &sent);
        }
        is_sent.then(|| Message::around(down.round, down.exchange, part, &*self.uplink.codec, x.len(), &payload))
    }
}

/// Takes the word of arrival out of a message, where there is one.
fn arrival(down: &mut Message) -> Result<Option<bool>> {
    let Some(at) = down.parts.iter().position(|(part, _)| *part == Part::Arrived) else { return Ok(None) };
    match down.parts.remove(at).1[..] {
        [x] if x == 0.0 || x == 1.0 => Ok(Some(x == 1.0)),
        _ => Err(refused("a word of arrival that is neither 0 nor 1", "one number, 0 or 1")),
    }
}

/// Whose message of which exchange.
fn place(seed: u64, round: u64, exchange: u8, agent: usize) -> Place {
    Place { seed, round, exchange, agent }
}

/// An answer to bytes that are a message, but not one of this federation at this point.
fn refused(what: impl Into<String>, accepted: &str) -> BadInput {
    BadInput::new("message", what, accepted)
}

/// The `d` numbers of a message that must hold nothing but this part.
fn one_part(message: &Message, part: Part, d: usize) -> Result<&[f64]> {
    match &message.parts[..] {
        [(found, x)] if *found == part && x.len() == d => match x.iter().find(|x| !x.is_finite()) {
            None => Ok(x),
            Some(x) => Err(refused(format!("a {part:?} with {x}"), "finite numbers")),
        },
        parts => {
            let found: Vec<String> = parts.iter().map(|(part, x)| format!("{part:?} of {}", x.len())).collect();
            Err(refused(format!("parts: {}", found.join(", ")), &format!("one part, {part:?} of {d} numbers")))
        }
    }
}

/// What the server wants done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Todo {
    /// Send each agent its bytes, and bring the answers that come to [`ServerNode::receive`].
    Ask {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each of them.
        bytes: Vec<Arc<[u8]>>,
    },
    /// Send each agent its bytes; nothing comes back. Then open the next round.
    Tell {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each of them.
        bytes: Vec<Arc<[u8]>>,
    },
    /// The round is over; open the next one.
    RoundOver,
}

/// What came of answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What is to be done next.
    pub todo: Todo,
    /// Answers that were refused, each with its place among those given and the reason. The others count.
    pub refused: Vec<(usize, BadInput)>,
}

/// The server of a federation.
pub struct ServerNode<'a> {
    uplink: &'a Uplink,
    server: Box<dyn crate::server::Server>,
    weights: Vec<f64>,
    seed: u64,
    asked: Vec<usize>,
    /// The round and exchange that the agents were asked in.
    under_way: (u64, u8),
    /// What media remember of each agent.
    channel: Vec<u64>,
    /// Letters on their way.
    mail: Mail,
    /// Where agents learn v from models over a network that may lose answers: the last round of each whose mean has its
    /// answer.
    included: Option<Vec<Option<u64>>>,
}

impl<'a> ServerNode<'a> {
    /// The server at the start of a run. It needs no problem, only the agents' weights and `theta_0`.
    ///
    /// # Errors
    /// As [`crate::round::Run::new`]; when the link has stale models (pull).
    pub fn new(settings: &dyn Settings, uplink: &'a Uplink, weights: Vec<f64>, seed: u64, start: Vec<f64>) -> Result<Self> {
        require(!weights.is_empty(), "weights", "[]", "one weight for each agent")?;
        let Method { server, client } = checked(settings, uplink, &Setting { seed, weights: &weights, start, link: uplink.facts() })?;
        let words = uplink.media_len();
        let mut channel = vec![0; weights.len() * words];
        channel.chunks_mut(words.max(1)).enumerate().for_each(|(c, memory)| uplink.start(seed, c, memory));
        let included = (client.model_kept().is_some() && uplink.is_clear()).then(|| vec![None; weights.len()]);
        Ok(Self { uplink, server, weights, seed, asked: Vec::new(), under_way: (0, 0), channel, mail: Mail::default(), included })
    }

    /// `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.server.theta()
    }

    /// Opens round t.
    pub fn open(&mut self, t: u64) -> Todo {
        let ask = self.server.open(t);
        self.ask(ask)
    }

    fn ask(&mut self, ask: Ask) -> Todo {
        let round = ask.down.round;
        self.under_way = (round, ask.down.exchange);
        let to = self.recipients(&ask);
        self.asked.clone_from(&to);
        let all: Arc<[u8]> = self.written(&ask.down).into();
        let own = |c: &usize| match &self.included {
            // Agents take the round before for included unless they are told otherwise.
            Some(included) if round > 0 && included[*c] != Some(round - 1) => {
                let mut down = ask.down.clone();
                down.parts.push((Part::Included, vec![included[*c].map_or(-1.0, |t| t as f64)]));
                self.written(&down).into()
            }
            _ => Arc::clone(&all),
        };
        let bytes = to.iter().map(own).collect();
        Todo::Ask { to, bytes }
    }

    fn recipients(&self, ask: &Ask) -> Vec<usize> {
        ask.to.clone().unwrap_or_else(|| (0..self.weights.len()).collect())
    }

    fn written(&self, down: &Message) -> Vec<u8> {
        let at = place(self.seed, down.round, down.exchange, ALL);
        down.encode(&*self.uplink.downlink, &mut at.stream(Purpose::Codec))
    }

    /// What each agent is told: the same, but for the word of arrival.
    fn told(&self, mut tell: Ask) -> Todo {
        let to = self.recipients(&tell);
        let bytes = match tell.arrived.take() {
            None => vec![self.written(&tell.down).into(); to.len()],
            Some(arrived) => {
                let own = arrived.into_iter().map(|arrived| {
                    let mut down = tell.down.clone();
                    down.parts.push((Part::Arrived, vec![f64::from(arrived)]));
                    self.written(&down).into()
                });
                own.collect()
            }
        };
        Todo::Tell { to, bytes }
    }

    /// The answer that bytes hold, and the place of its agent among those asked.
    fn answer(&self, agent: usize, bytes: &[u8]) -> Result<(usize, Message)> {
        let (d, (round, exchange)) = (self.server.theta().len(), self.under_way);
        let at = self.asked.binary_search(&agent);
        let at = at.map_err(|_| refused(format!("an answer of agent {agent}, who was not asked"), "answers of agents that were asked"))?;
        let open = |t, e| place(self.seed, t, e, agent).stream(Purpose::Codec);
        let message = Message::decode(bytes, &*self.uplink.codec, d, open)?;
        if (message.round, message.exchange) != (round, exchange) {
            let what = format!("an answer to round {} exchange {} from agent {agent}", message.round, message.exchange);
            return Err(refused(what, &format!("answers to round {round} exchange {exchange}")));
        }
        one_part(&message, self.server.wants(exchange), d)?;
        Ok((at, message))
    }

    /// Takes the answers of the agents asked, in any order; those that are missing
    /// count as zero in the mean. How many suffice is the caller's decision: without any, theta stays as it is.
    ///
    /// An answer that is none to what was asked is refused alone, and so is a second one of an agent.
    pub fn receive(&mut self, answers: &[(usize, Vec<u8>)]) -> Progress {
        let d = self.server.theta().len();
        let (round, exchange) = self.under_way;
        let part = self.server.wants(exchange);
        let mut decoded: Vec<Option<Message>> = vec![None; self.asked.len()];
        let mut not_taken = Vec::new();
        for (i, (agent, bytes)) in answers.iter().enumerate() {
            match self.answer(*agent, bytes) {
                Ok((at, message)) if decoded[at].is_none() => decoded[at] = Some(message),
                Ok((at, message)) if decoded[at].as_ref() == Some(&message) => {}
                Ok(_) => not_taken.push((i, refused(format!("a second answer of agent {agent}"), "one answer from each agent"))),
                Err(e) => not_taken.push((i, e)),
            }
        }
        // The server's end of the link.
        let words = self.uplink.media_len();
        let mut letters: Vec<Option<Letter>> = Vec::new();
        for (message, c) in decoded.into_iter().zip(&self.asked) {
            let gain = self.uplink.gain(place(self.seed, round, exchange, *c), &mut self.channel[c * words..(c + 1) * words]);
            let arrives = message.filter(|_| gain != 0.0);
            letters.push(arrives.map(|m| Letter { agent: *c, answers: round, weight: self.weights[*c] * gain, x: m.part(part).to_vec() }));
        }
        // Over a clear link a real network may still lose some.
        let all = self.uplink.is_clear() && letters.iter().all(Option::is_some);
        let mut arrived: Vec<bool> = if all { Vec::new() } else { letters.iter().map(Option::is_some).collect() };
        if let (Some(included), Part::Direction) = (&mut self.included, part) {
            letters.iter().flatten().for_each(|letter| included[letter.agent] = Some(round));
        }
        if let Some(late) = &self.uplink.late {
            let key = Key::new(self.seed, Purpose::Delay, round);
            for letter in letters.drain(..).flatten() {
                self.mail.post(round + late.of(round, letter.agent, &mut key.stream(letter.agent)), letter);
            }
            letters = self.mail.deliver(round).into_iter().map(Some).collect();
            arrived.clear();
        }
        let mut total = sum(d, letters.iter().map(|l| l.as_ref().map(|l| (l.weight, &l.x[..]))));
        let asked = if self.asked.len() == self.weights.len() { 1.0 } else { self.asked.iter().map(|c| self.weights[*c]).sum() };
        self.uplink.receive(place(self.seed, round, exchange, ALL), &mut total, self.asked.len(), asked);
        let one_by_one = self.server.needs() == Delivery::PerAgent;
        let messages: Vec<Letter> = if one_by_one { letters.into_iter().flatten().collect() } else { Vec::new() };
        let next = self.server.receive(&Received { round, exchange, part, sum: &total, asked, arrived: &arrived, messages: &messages });
        let todo = match next {
            Next::Ask(ask) => self.ask(ask),
            Next::Done { tell: None } => Todo::RoundOver,
            Next::Done { tell: Some(tell) } => self.told(tell),
        };
        Progress { todo, refused: not_taken }
    }
}

const _: () = assert!(LANES == 8, "the order of sums is part of the wire contract");
