//! The halves of a method across machines: bytes in, bytes out.
//!
//! [`ClientNode`] is one agent, [`ServerNode`] the server. Whoever carries the
//! bytes between them (threads, Flower) gets the numbers of the in-process
//! engine, bit for bit; the conformance suite says so.

use crate::error::{BadInput, Result};
use crate::kernel::{Chunk, LANES, Lanes};
use crate::local::{Batch, Outbox, stride};
use crate::message::{Message, Part, TELL};
use crate::methods::{Method, Setting, Settings};
use crate::problem::Field;
use crate::random::{ALL, Key, Purpose, Stream, stream};
use crate::round::sum;
use crate::server::{Ask, Next, Received};
use crate::uplink::Uplink;

/// One agent of a federation.
pub struct ClientNode<'a> {
    field: &'a dyn Field,
    uplink: &'a Uplink,
    client: Box<dyn crate::local::Client>,
    agent: usize,
    seed: u64,
    memory: Vec<Chunk>,
    lanes: Lanes,
    outbox: Outbox,
}

impl<'a> ClientNode<'a> {
    /// Agent `agent` at the start of a run; `start` is `theta_0`, d components.
    pub fn new(field: &'a dyn Field, settings: &dyn Settings, uplink: &'a Uplink, agent: usize, seed: u64, start: Vec<f64>) -> Self {
        let Method { client, .. } = settings.build(&Setting { seed, agents: field.agents(), start });
        let mut lanes = Lanes::new(field.dim(), field.chain_len());
        let mut drawn = Key::new(seed, Purpose::Chain, 0).stream(agent);
        field.start_chain(agent, &mut drawn, &mut lanes.chains[..field.chain_len()]);
        let memory = vec![Chunk::default(); stride(&*client, field.dim())];
        Self { field, uplink, client, agent, seed, memory, lanes, outbox: Outbox::new(field.dim()) }
    }

    /// Takes a message of the server; returns the answer, if it wants one.
    ///
    /// # Errors
    /// When the bytes are not a message that this method's server sends; the agent
    /// is then as it was.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let down = Message::decode(bytes, &*self.uplink.downlink, |t, e| shared(self.seed, t, e, ALL))?;
        let wanted =
            self.client.wants(down.exchange).ok_or_else(|| refused(format!("exchange {}", down.exchange), "one of this method"))?;
        one_part(&down, wanted, self.field.dim())?;
        let (agents, stride) = ([self.agent], self.memory.len());
        let mut batch = Batch::new(self.field, self.seed, &mut self.lanes, &agents, self.agent, &mut self.memory, stride);
        if down.exchange == TELL {
            self.client.told(&mut batch, &down);
            return Ok(None);
        }
        self.outbox.clear();
        self.client.answer(&mut batch, &down, &mut self.outbox);
        let Some((part, x)) = self.outbox.sent(0) else { return Ok(None) };
        let mut dither = dither(self.seed, &down, self.agent);
        Ok(Some(Message::one(down.round, down.exchange, part, x.to_vec()).encode(&*self.uplink.codec, &mut dither)))
    }
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

/// The stream of a codec's random choices, for the answer to `down`.
pub(crate) fn dither(seed: u64, down: &Message, agent: usize) -> Stream {
    shared(seed, down.round, down.exchange, agent)
}

/// The stream of a codec's random choices in an exchange, which both ends can open.
pub(crate) fn shared(seed: u64, round: u64, exchange: u8, agent: usize) -> Stream {
    stream(seed, Purpose::Codec, 256 * round + u64::from(exchange), agent)
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
    /// Send `bytes` to the agents; nothing comes back. Then open the next round.
    Tell {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each.
        bytes: Vec<u8>,
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
}

impl<'a> ServerNode<'a> {
    /// The server at the start of a run. It needs no problem, only the agents' weights.
    pub fn new(settings: &dyn Settings, uplink: &'a Uplink, weights: Vec<f64>, seed: u64, start: Vec<f64>) -> Self {
        let Method { server, .. } = settings.build(&Setting { seed, agents: weights.len(), start });
        Self { uplink, server, weights, seed, asked: Vec::new(), under_way: (0, 0) }
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
        let (to, bytes) = self.written(ask);
        self.asked.clone_from(&to);
        Todo::Ask { to, bytes }
    }

    fn written(&self, ask: Ask) -> (Vec<usize>, Vec<u8>) {
        let to = ask.to.unwrap_or_else(|| (0..self.weights.len()).collect());
        let mut dither = shared(self.seed, ask.down.round, ask.down.exchange, ALL);
        (to, ask.down.encode(&*self.uplink.downlink, &mut dither))
    }

    /// Takes the answers of the agents asked, in any order; those that are missing
    /// count as zero in the mean.
    ///
    /// # Errors
    /// When an answer is not one to what was asked, comes twice or from somebody
    /// else, or when there is none; the server is then as it was.
    pub fn receive(&mut self, answers: &[(usize, Vec<u8>)]) -> Result<Todo> {
        let d = self.server.theta().len();
        let mut decoded: Vec<Option<Message>> = vec![None; self.asked.len()];
        let mut part = None;
        for (agent, bytes) in answers {
            let one_each = "one answer from each agent that was asked";
            let at =
                self.asked.binary_search(agent).map_err(|_| refused(format!("an answer of agent {agent}, who was not asked"), one_each))?;
            let message = Message::decode(bytes, &*self.uplink.codec, |t, e| shared(self.seed, t, e, *agent))?;
            let (round, exchange) = self.under_way;
            if (message.round, message.exchange) != (round, exchange) {
                let what = format!("an answer to round {} exchange {} from agent {agent}", message.round, message.exchange);
                return Err(refused(what, &format!("answers to round {round} exchange {exchange}")));
            }
            let first = *part.get_or_insert(message.parts.first().map_or(Part::Direction, |(part, _)| *part));
            one_part(&message, first, d)?;
            if decoded[at].replace(message).is_some() {
                return Err(refused(format!("a second answer of agent {agent}"), one_each));
            }
        }
        let Some(part) = part else { return Err(refused("no answers", "at least one answer")) };
        let (round, exchange) = self.under_way;
        let weighted = decoded.iter().zip(&self.asked).map(|(m, c)| m.as_ref().map(|m| (self.weights[*c], m.part(part))));
        let total = sum(d, weighted);
        let asked = if self.asked.len() == self.weights.len() { 1.0 } else { self.asked.iter().map(|c| self.weights[*c]).sum() };
        match self.server.receive(&Received { round, exchange, part, sum: &total, asked }) {
            Next::Ask(ask) => Ok(self.ask(ask)),
            Next::Done { tell: None } => Ok(Todo::RoundOver),
            Next::Done { tell: Some(tell) } => {
                let (to, bytes) = self.written(tell);
                Ok(Todo::Tell { to, bytes })
            }
        }
    }
}

const _: () = assert!(LANES == 8, "the order of sums is part of the wire contract");
