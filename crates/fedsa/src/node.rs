//! The halves of a method across machines: bytes in, bytes out.
//!
//! [`ClientNode`] is one agent, [`ServerNode`] the server. Whoever carries the
//! bytes between them (threads, Flower) gets the numbers of the in-process
//! engine, bit for bit; the conformance suite says so. A link's two ends are here too:
//! the agent's (budget, codec, feedback) and the server's (losses, noise, late letters),
//! where the real network does not do the losing. Stale models (pull) are the
//! in-process engine's alone: no real federation has them.

use crate::error::{BadInput, Result};
use crate::kernel::{Chunk, LANES, Lanes};
use crate::local::{Batch, Outbox, stride};
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
}

impl<'a> ClientNode<'a> {
    /// Agent `agent` at the start of a run; `start` is `theta_0`, d components.
    ///
    /// # Panics
    /// When the link has stale models (pull).
    pub fn new(field: &'a dyn Field, settings: &dyn Settings, uplink: &'a Uplink, agent: usize, seed: u64, start: Vec<f64>) -> Self {
        assert!(uplink.delay.is_none(), "only the in-process engine computes at stale models");
        let Method { client, .. } = settings.build(&Setting { seed, weights: field.weights(), start, link: uplink.facts() });
        let mut lanes = Lanes::new(field.dim(), field.chain_len());
        let mut drawn = Key::new(seed, Purpose::Chain, 0).stream(agent);
        field.start_chain(agent, &mut drawn, &mut lanes.chains[..field.chain_len()]);
        let memory = vec![Chunk::default(); stride(&*client, field.dim())];
        let feedback = vec![0.0; uplink.feedback_len(field.dim())];
        Self { field, uplink, client, agent, seed, memory, feedback, lanes, outbox: Outbox::new(field.dim()) }
    }

    /// Takes a message of the server; returns the answer, if it wants one.
    ///
    /// # Errors
    /// When the bytes are not a message that this method's server sends; the agent
    /// is then as it was.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut down =
            Message::decode(bytes, &*self.uplink.downlink, self.field.dim(), |t, e| place(self.seed, t, e, ALL).stream(Purpose::Codec))?;
        let wanted =
            self.client.wants(down.exchange).ok_or_else(|| refused(format!("exchange {}", down.exchange), "one of this method"))?;
        let arrived = arrival(&mut down)?;
        one_part(&down, wanted, self.field.dim())?;
        let (agents, stride) = ([self.agent], self.memory.len());
        let mut batch = Batch::new(self.field, self.seed, &mut self.lanes, &agents, self.agent, &mut self.memory, stride);
        if down.exchange == TELL {
            self.client.told(&mut batch, &down, arrived.as_slice());
            return Ok(None);
        }
        self.outbox.clear();
        self.client.answer(&mut batch, &down, &mut self.outbox);
        let Some((part, x)) = self.outbox.sent(0) else { return Ok(None) };
        let at = place(self.seed, down.round, down.exchange, self.agent);
        let mut payload = Vec::new();
        let is_sent = self.uplink.encode(at, x, &mut self.feedback, &mut payload);
        if self.uplink.alters() {
            let mut sent = vec![0.0; x.len()];
            if is_sent {
                self.uplink.codec.decode(&payload, &mut at.stream(Purpose::Codec), &mut sent).expect("what was just encoded");
            }
            self.client.sent(&mut batch, 0, &sent);
        }
        Ok(is_sent.then(|| Message::around(down.round, down.exchange, part, &*self.uplink.codec, x.len(), &payload)))
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
        [(found, x)] if *found == part && x.len() == d => Ok(x),
        parts => {
            let found: Vec<String> = parts.iter().map(|(part, x)| format!("{part:?} of {}", x.len())).collect();
            Err(refused(format!("parts: {}", found.join(", ")), &format!("one part, {part:?} of {d} numbers")))
        }
    }
}

/// What the server wants done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Todo {
    /// Send `bytes` to the agents and bring all their answers to [`ServerNode::receive`].
    Ask {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each.
        bytes: Vec<u8>,
    },
    /// Send each agent its bytes; nothing comes back. Then open the next round.
    Tell {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each of them.
        bytes: Vec<Vec<u8>>,
    },
    /// The round is over; open the next one.
    RoundOver,
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
}

impl<'a> ServerNode<'a> {
    /// The server at the start of a run. It needs no problem, only the agents' weights.
    ///
    /// # Panics
    /// When the link has stale models (pull).
    pub fn new(settings: &dyn Settings, uplink: &'a Uplink, weights: Vec<f64>, seed: u64, start: Vec<f64>) -> Self {
        assert!(uplink.delay.is_none(), "only the in-process engine computes at stale models");
        let Method { server, .. } = settings.build(&Setting { seed, weights: &weights, start, link: uplink.facts() });
        let words = uplink.media_len();
        let mut channel = vec![0; weights.len() * words];
        channel.chunks_mut(words.max(1)).enumerate().for_each(|(c, memory)| uplink.start(seed, c, memory));
        Self { uplink, server, weights, seed, asked: Vec::new(), under_way: (0, 0), channel, mail: Mail::default() }
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
        self.under_way = (ask.down.round, ask.down.exchange);
        let to = self.recipients(&ask);
        self.asked.clone_from(&to);
        Todo::Ask { to, bytes: self.written(&ask.down) }
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
            None => vec![self.written(&tell.down); to.len()],
            Some(arrived) => {
                let own = arrived.into_iter().map(|arrived| {
                    let mut down = tell.down.clone();
                    down.parts.push((Part::Arrived, vec![f64::from(arrived)]));
                    self.written(&down)
                });
                own.collect()
            }
        };
        Todo::Tell { to, bytes }
    }

    /// Takes the answers of the agents asked, in any order; those that are missing
    /// count as zero in the mean.
    ///
    /// # Errors
    /// When an answer is not one to what was asked, comes twice or from somebody
    /// else, or when there is none; the server is then as it was.
    pub fn receive(&mut self, answers: &[(usize, Vec<u8>)]) -> Result<Todo> {
        let d = self.server.theta().len();
        let (round, exchange) = self.under_way;
        let part = self.server.wants(exchange);
        let mut decoded: Vec<Option<Message>> = vec![None; self.asked.len()];
        for (agent, bytes) in answers {
            let one_each = "one answer from each agent that was asked";
            let at =
                self.asked.binary_search(agent).map_err(|_| refused(format!("an answer of agent {agent}, who was not asked"), one_each))?;
            let open = |t, e| place(self.seed, t, e, *agent).stream(Purpose::Codec);
            let message = Message::decode(bytes, &*self.uplink.codec, d, open)?;
            if (message.round, message.exchange) != (round, exchange) {
                let what = format!("an answer to round {} exchange {} from agent {agent}", message.round, message.exchange);
                return Err(refused(what, &format!("answers to round {round} exchange {exchange}")));
            }
            one_part(&message, part, d)?;
            if decoded[at].replace(message).is_some() {
                return Err(refused(format!("a second answer of agent {agent}"), one_each));
            }
        }
        if answers.is_empty() && self.uplink.is_clear() {
            return Err(refused("no answers", "at least one answer"));
        }
        // The server's end of the link.
        let words = self.uplink.media_len();
        let mut letters: Vec<Option<Letter>> = Vec::new();
        for (message, c) in decoded.into_iter().zip(&self.asked) {
            let gain = self.uplink.gain(place(self.seed, round, exchange, *c), &mut self.channel[c * words..(c + 1) * words]);
            let arrives = message.filter(|_| gain != 0.0);
            letters.push(arrives.map(|m| Letter { agent: *c, answers: round, weight: self.weights[*c] * gain, x: m.part(part).to_vec() }));
        }
        let clear = self.uplink.is_clear();
        let mut arrived: Vec<bool> = if clear { Vec::new() } else { letters.iter().map(Option::is_some).collect() };
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
        match self.server.receive(&Received { round, exchange, part, sum: &total, asked, arrived: &arrived, messages: &messages }) {
            Next::Ask(ask) => Ok(self.ask(ask)),
            Next::Done { tell: None } => Ok(Todo::RoundOver),
            Next::Done { tell: Some(tell) } => Ok(self.told(tell)),
        }
    }
}

const _: () = assert!(LANES == 8, "the order of sums is part of the wire contract");
