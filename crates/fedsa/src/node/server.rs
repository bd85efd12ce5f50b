//! The server of a federation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Federation, LAYOUT, codec_stream, foreign, place, point, refused};
use crate::error::{BadInput, Result};
use crate::linalg::norm_sq;
use crate::local::Client;
use crate::message::{Body, Envelope, MAX_ROUNDS, Message, Part};
use crate::methods::Half;
use crate::protocol::{Protocol, are_finite};
use crate::random::{ALL, Purpose};
use crate::round::server_end::{ServerEnd, asked_weight, check_answer};
use crate::round::{Held, Status, has_diverged};
use crate::server::{Ask, Letter, Next, Server};
use crate::uplink::Uplink;

/// What the caller has to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Todo {
    /// Send each agent its bytes, pass the answers to [`ServerNode::take`], then [`ServerNode::close`] the
    /// exchange.
    Ask {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each of them.
        #[serde(with = "shared")]
        bytes: Vec<Arc<[u8]>>,
    },
    /// Send each agent its bytes; agents do not answer. Then open the next round.
    Tell {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// What to send to each of them.
        #[serde(with = "shared")]
        bytes: Vec<Arc<[u8]>>,
    },
    /// The round is over; open the next one.
    RoundOver,
}

/// The result of a set of answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// What the caller has to do next.
    pub todo: Todo,
    /// The refused answers, each with its index among the given answers and the reason. All other answers count.
    pub refused: Vec<(usize, BadInput)>,
}

/// The server of a federation.
pub struct ServerNode<'a> {
    uplink: Held<'a, Uplink>,
    protocol: Protocol,
    server: Box<dyn Server>,
    /// The client half, if the server keeps copies of its control variates.
    client: Option<Box<dyn Client>>,
    weights: Vec<f64>,
    seed: u64,
    digest: u64,
    /// The larger one of `||theta_0||` and `||theta*||`.
    scale: f64,
    state: State,
}

/// The state of the node, except the server half's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// The number of rounds opened so far.
    opened: u64,
    /// The question under way, or the last one, as agents decode it.
    down: Message,
    /// What the caller has to do now.
    todo: Todo,
    /// The answers so far, one entry for each agent that was asked.
    answers: Vec<Option<Vec<(Part, Body)>>>,
    /// Their checksums, for methods with control variates.
    checksums: Vec<u32>,
    /// Whether the run has diverged.
    status: Status,
    /// `theta_t` of the round under way.
    before: Vec<f64>,
    controls: Copies,
    end: ServerEnd,
}

/// Copies of the agents' control variates; empty for methods without them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Copies {
    /// `xi_c`, d numbers each.
    xi: Vec<f64>,
    /// The number of rounds whose end each agent's control must have seen, if agents are told means.
    seen: Vec<u32>,
    /// Whether each agent's own control equals its copy.
    standing: Vec<Standing>,
    /// The checksum of the last answer of each agent that a mean includes; 0 if there is none since the agent was sent its
    /// control.
    counted: Vec<u32>,
}

/// A valid answer to the present question.
struct Answer {
    /// The agent's place among the recipients.
    at: usize,
    /// The checksum of the earlier answer that the agent's control assumes to be included ([`Envelope::seen`]).
    seen: u32,
    parts: Vec<(Part, Body)>,
}

/// Whether an agent's control equals the server's copy, as far as the server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Standing {
    /// They are equal.
    InStep,
    /// They differ: the next question will contain the copy.
    Stale,
    /// The last question contained the copy, and was not yet answered.
    Sent,
}

/// The saved state of a server node.
#[derive(Serialize, Deserialize)]
struct Saved {
    layout: u32,
    digest: u64,
    server: Vec<Vec<f64>>,
    state: State,
}

/// [`Saved`] without copies: copies of controls may fill much of the memory.
#[derive(Serialize)]
struct Saving<'a> {
    layout: u32,
    digest: u64,
    server: Vec<Vec<f64>>,
    state: &'a State,
}

impl<'a> ServerNode<'a> {
    /// The server of a federation at the start of a run. The server does not need the problem.
    ///
    /// # Errors
    /// When the method cannot work over the link.
    pub fn new(federation: &Federation<'a>) -> Result<Self> {
        let (client, protocol) = federation.client()?;
        let server = federation.settings.server(&federation.setting());
        let Federation { uplink, weights, seed, start, digest, .. } = federation.clone();
        let client = match client {
            Half::Lanes(client) => Some(client).filter(|client| client.controls().is_some()),
            Half::Each(_) => None,
        };
        let (n, d) = (weights.len(), start.len());
        let controls = match client {
            None => Copies::default(),
            Some(_) => Copies { xi: vec![0.0; n * d], seen: vec![0; n], standing: vec![Standing::InStep; n], counted: vec![0; n] },
        };
        let end = ServerEnd::new(&uplink, seed, n);
        let scale = norm_sq(&start).sqrt().max(federation.root);
        let state = State {
            opened: 0,
            down: Message { round: 0, exchange: 0, parts: Vec::new() },
            todo: Todo::RoundOver,
            answers: Vec::new(),
            checksums: Vec::new(),
            status: Status::Ok,
            before: start,
            controls,
            end,
        };
        Ok(Self { uplink, protocol, server, client, weights, seed, digest, scale, state })
    }

    /// `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.server.theta()
    }

    /// The number of rounds opened so far.
    pub fn rounds(&self) -> u64 {
        self.state.opened
    }

    /// What the caller has to do now; after a restart, what it had to do when the state was saved.
    pub fn todo(&self) -> &Todo {
        &self.state.todo
    }

    /// Whether the run has diverged. If it has, no more rounds are opened.
    pub fn status(&self) -> Status {
        self.state.status
    }

    /// The number of answers to the present question that were accepted so far.
    pub fn answered(&self) -> usize {
        self.state.answers.iter().flatten().count()
    }

    /// The server's copy of the control `xi_c` of agent `c`, d numbers, for methods with control variates.
    pub fn control(&self, c: usize) -> Option<&[f64]> {
        let d = self.server.theta().len();
        self.state.controls.xi.get(c * d..(c + 1) * d)
    }

    /// Whether answers are awaited.
    fn is_open(&self) -> bool {
        matches!(self.state.todo, Todo::Ask { .. })
    }

    /// Opens the next round. A round that is under way ends with the answers accepted so far. After divergence or
    /// [`MAX_ROUNDS`] rounds no round is opened, and the result is [`Todo::RoundOver`].
    pub fn open(&mut self) -> Todo {
        while self.is_open() {
            self.close();
        }
        if self.state.status != Status::Ok || self.state.opened >= MAX_ROUNDS {
            self.state.todo = Todo::RoundOver;
            return Todo::RoundOver;
        }
        let ask = self.server.open(self.state.opened);
        self.state.opened += 1;
        self.state.before = self.server.theta().to_vec();
        self.ask(&ask)
    }

    fn recipients(&self, ask: &Ask) -> Vec<usize> {
        ask.to.clone().unwrap_or_else(|| (0..self.weights.len()).collect())
    }

    fn ask(&mut self, ask: &Ask) -> Todo {
        let to = self.recipients(ask);
        let bytes = self.written(ask, &to);
        if ask.down.exchange == 0 && self.client.is_some() {
            for c in &to {
                let standing = &mut self.state.controls.standing[*c];
                if *standing == Standing::Stale {
                    *standing = Standing::Sent;
                }
            }
        }
        self.state.down = ask.down.clone();
        self.uplink.tell(self.seed, &mut self.state.down);
        self.state.answers = vec![None; to.len()];
        self.state.checksums = vec![0; if self.client.is_some() { to.len() } else { 0 }];
        self.state.todo = Todo::Ask { to, bytes };
        self.state.todo.clone()
    }

    /// The bytes for each recipient: the same for all, except for parts of its own.
    fn written(&self, ask: &Ask, to: &[usize]) -> Vec<Arc<[u8]>> {
        let down = &ask.down;
        let encode = |down: &Message, envelope: &Envelope| -> Arc<[u8]> {
            let mut stream = place(self.seed, down.round, down.exchange, ALL).stream(Purpose::Codec);
            down.encode(envelope, &*self.uplink.downlink, &mut stream).into()
        };
        let settings = self.digest;
        let d = self.server.theta().len();
        let copies = &self.state.controls;
        let is_told = self.client.as_ref().and_then(|client| client.controls()).is_some_and(|controls| controls.is_told());
        let is_stale = |c: &usize| down.exchange == 0 && copies.standing.get(*c).is_some_and(|standing| *standing != Standing::InStep);
        // If some recipients get a part of their own, or only some agents are asked, a copy of the message that reaches another
        // agent must be refused. Every message then names its recipient.
        let is_for_all = ask.to.is_none() && ask.own.is_none() && !is_told && !to.iter().any(is_stale);
        if is_for_all {
            return vec![encode(down, &Envelope { settings, ..Envelope::default() }); to.len()];
        }
        let one = |(i, c): (usize, &usize)| {
            let down = if is_stale(c) {
                let mut down = down.clone();
                down.parts.push((Part::Control, Body::Numbers(copies.xi[c * d..(c + 1) * d].to_vec())));
                down
            } else {
                ask.to_recipient(i)
            };
            let seen = if is_told { copies.seen[*c] } else { 0 };
            encode(&down, &Envelope { agent: *c, seen, settings })
        };
        to.iter().enumerate().map(one).collect()
    }

    /// Decodes and checks an answer to the present question.
    fn answer(&self, agent: usize, bytes: &[u8]) -> Result<Answer> {
        let (round, exchange) = (self.state.opened.wrapping_sub(1), self.state.down.exchange);
        let Todo::Ask { to, .. } = &self.state.todo else {
            return Err(refused("an answer while no question is open", "answers to an open question"));
        };
        let at = to.binary_search(&agent);
        let at =
            at.map_err(|_| refused(format!("an answer of agent {agent}, which was not asked"), "answers of agents that were asked"))?;
        let front = Message::front(bytes)?;
        let envelope = front.envelope;
        if envelope.settings != self.digest {
            return Err(refused(format!("an answer of agent {agent} with other settings"), "answers of this federation"));
        }
        if envelope.agent != agent {
            return Err(refused(format!("an answer of agent {} from agent {agent}", envelope.agent), "each agent's own answer"));
        }
        if (front.round, front.exchange) != (round, exchange) {
            let what = format!("an answer to {} from agent {agent}", point(front.round, front.exchange));
            return Err(refused(what, &format!("answers to {}", point(round, exchange))));
        }
        if front.parts > self.protocol.most_parts() {
            return Err(refused(format!("an answer of {} parts", front.parts), "the parts of this method"));
        }
        let Message { mut parts, .. } = front.message(&*self.uplink.codec, self.protocol.longest(), codec_stream(self.seed, agent))?;
        match parts[..] {
            [(Part::Behind, _)] if self.client.is_some() => {}
            [(Part::Diverged, _)] => parts = self.protocol.diverged_answer(exchange),
            _ => {
                self.protocol.check_answer(exchange, &parts)?;
                self.server.accepts(exchange, &parts)?;
            }
        }
        Ok(Answer { at, seen: envelope.seen, parts })
    }

    /// Accepts an answer to the present question. A second copy changes nothing.
    ///
    /// # Errors
    /// When the bytes are not an answer of this agent to the present question, or the agent's control variate is older than
    /// the question assumes; the agent's next question then contains the control. A refused answer does not count, and
    /// changes nothing else.
    pub fn take(&mut self, agent: usize, bytes: &[u8]) -> Result<()> {
        let Answer { at, seen, parts } = self.answer(agent, bytes)?;
        if self.client.is_some() {
            let copies = &mut self.state.controls;
            let expected = match copies.standing[agent] {
                Standing::InStep => Some(copies.counted[agent]),
                Standing::Sent => Some(0),
                Standing::Stale => None,
            };
            let is_behind = matches!(parts[..], [(Part::Behind, _)]);
            if self.state.answers[at].is_none() && (is_behind || Some(seen) != expected) {
                copies.standing[agent] = Standing::Stale;
                let what = format!("the control variate of agent {agent} is older than the question assumes");
                return Err(refused(what, "an answer to the agent's next question, which will contain its control variate"));
            }
        }
        match &self.state.answers[at] {
            None => {
                self.state.answers[at] = Some(parts);
                if let Some(checksum) = self.state.checksums.get_mut(at) {
                    *checksum = Message::checksum(bytes);
                    let copies = &mut self.state.controls;
                    if std::mem::replace(&mut copies.standing[agent], Standing::InStep) == Standing::Sent {
                        copies.counted[agent] = 0;
                    }
                }
                Ok(())
            }
            Some(taken) if *taken == parts || !(are_finite(taken) || are_finite(&parts)) => Ok(()),
            Some(_) => Err(refused(format!("a second answer of agent {agent}"), "one answer from each agent")),
        }
    }

    /// Ends the exchange under way with the answers accepted so far. A missing answer counts as zero in the mean. The caller
    /// decides how many answers suffice. Without any answer theta does not change, except by the receiver's noise over the
    /// air.
    pub fn close(&mut self) -> Todo {
        if !self.is_open() {
            return self.state.todo.clone();
        }
        let Todo::Ask { to, .. } = std::mem::replace(&mut self.state.todo, Todo::RoundOver) else { unreachable!("an open exchange") };
        let at = place(self.seed, self.state.opened - 1, self.state.down.exchange, ALL);
        let answers = std::mem::take(&mut self.state.answers);
        let wanted = self.protocol.wanted(at.exchange);
        let arrivals = self.state.end.take(&self.uplink, at, wanted, &self.weights, &to, answers);
        let next = arrivals.with(&self.state.down, asked_weight(&self.weights, &to), |got| self.server.receive(got));
        if !arrivals.are_finite() {
            self.state.status = Status::Diverged { round: self.state.opened };
            return Todo::RoundOver;
        }
        let todo = match next {
            Next::Ask(ask) => return self.ask(&ask),
            Next::Done { tell: None } => {
                self.settle(&to, &arrivals.letters, None);
                Todo::RoundOver
            }
            Next::Done { tell: Some(mut tell) } => {
                let told = self.recipients(&tell);
                let bytes = self.written(&tell, &told);
                // The message as agents decode it: the downlink's codec may alter it.
                self.uplink.tell(self.seed, &mut tell.down);
                self.settle(&to, &arrivals.letters, Some(&tell.down));
                Todo::Tell { to: told, bytes }
            }
        };
        if has_diverged(self.server.theta(), self.scale) {
            self.state.status = Status::Diverged { round: self.state.opened };
        }
        self.state.todo = todo.clone();
        todo
    }

    /// Accepts all answers of an exchange, in any order, and ends the exchange.
    pub fn receive(&mut self, answers: &[(usize, Vec<u8>)]) -> Progress {
        let taken = answers.iter().map(|(agent, bytes)| self.take(*agent, bytes));
        let refused = taken.enumerate().filter_map(|(i, taken)| taken.err().map(|e| (i, e))).collect();
        Progress { refused, todo: self.close() }
    }

    /// Updates the copies of the agents' controls as the agents will update theirs.
    fn settle(&mut self, asked: &[usize], letters: &[Letter], told: Option<&Message>) {
        let Some(controls) = self.client.as_ref().and_then(|client| client.controls()) else { return };
        let (round, d) = (self.state.opened - 1, self.server.theta().len());
        let v = match told {
            Some(tell) => tell.part(Part::Direction).to_vec(),
            None => controls.mean(round, &self.state.before, self.server.theta()),
        };
        let copies = &mut self.state.controls;
        let zero = vec![0.0; d];
        let mut letters = letters.iter().peekable();
        for (c, checksum) in asked.iter().zip(&self.state.checksums) {
            let letter = letters.next_if(|letter| letter.agent == *c);
            let own = letter.map_or(&zero[..], |letter| letter.part(Part::Direction));
            controls.settle(round, &mut copies.xi[c * d..(c + 1) * d], &v, own);
            if letter.is_some() {
                copies.counted[*c] = *checksum;
            }
            if told.is_some() {
                copies.seen[*c] = round as u32 + 1;
            }
        }
    }

    /// The state of the node, as bytes, between any two calls. A server that saves its state before it sends messages can be
    /// restarted without any effect on the results.
    pub fn save(&self) -> Vec<u8> {
        let saved = Saving { layout: LAYOUT, digest: self.digest, server: self.server.state(), state: &self.state };
        postcard::to_stdvec(&saved).expect("plain data serialises")
    }

    /// Restores a state that [`ServerNode::save`] returned for the same federation.
    ///
    /// # Errors
    /// When the bytes are not such a state. The node is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (saved, rest): (Saved, _) = postcard::take_from_bytes(bytes).map_err(|_| foreign())?;
        let Saved { layout, digest, server, state } = saved;
        let n = self.weights.len();
        let lens = |state: &State| {
            let State { before, controls: Copies { xi, seen, standing, counted }, end, .. } = state;
            [before.len(), xi.len(), seen.len(), standing.len(), counted.len(), end.channel.len()]
        };
        let are_agents =
            |to: &[usize], bytes: &[Arc<[u8]>]| to.is_sorted_by(|a, b| a < b) && to.iter().all(|c| *c < n) && bytes.len() == to.len();
        let is_open = matches!(state.todo, Todo::Ask { .. });
        let fits = match &state.todo {
            Todo::Ask { to, bytes } => {
                let checksums = if self.client.is_some() { to.len() } else { 0 };
                are_agents(to, bytes)
                    && state.answers.len() == to.len()
                    && state.checksums.len() == checksums
                    && Some(state.down.round) == state.opened.checked_sub(1)
                    && self.protocol.check_down(&state.down).is_ok()
            }
            Todo::Tell { to, bytes } => are_agents(to, bytes) && state.answers.is_empty(),
            Todo::RoundOver => state.answers.is_empty(),
        };
        let latest = self.uplink.late.as_ref().map(|late| late.max());
        let next = state.opened.saturating_sub(u64::from(is_open));
        let is_mail = state.end.mail.is_of(next, state.opened, latest, n, &self.protocol);
        let is_at = self.protocol.exchange(state.down.exchange).is_some() && (state.opened > 0 || !is_open) && state.opened <= MAX_ROUNDS;
        let is_ours = rest.is_empty() && (layout, digest) == (LAYOUT, self.digest) && lens(&state) == lens(&self.state);
        if !(is_ours && fits && is_mail && is_at) {
            return Err(foreign());
        }
        let before = self.server.state();
        self.server.restore(server, state.opened).map_err(|_| foreign())?;
        let mut answers = state.answers.iter().flatten();
        if !answers.all(|parts| check_answer(&self.protocol, &*self.server, state.down.exchange, parts).is_ok()) {
            self.server.restore(before, self.state.opened).expect("its own state");
            return Err(foreign());
        }
        self.state = state;
        Ok(())
    }
}

/// Serialises messages, many of which are equal: each distinct message once.
mod shared {
    use std::collections::HashMap;
    use std::sync::Arc;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(all: &[Arc<[u8]>], to: S) -> Result<S::Ok, S::Error> {
        let mut distinct: Vec<&[u8]> = Vec::new();
        let mut known: HashMap<*const u8, u32> = HashMap::new();
        let index = |bytes: &Arc<[u8]>| {
            let next = known.len() as u32;
            known.entry(bytes.as_ptr()).or_insert(next).to_owned()
        };
        let which: Vec<u32> = all.iter().map(index).collect();
        for (bytes, i) in all.iter().zip(&which) {
            if *i as usize == distinct.len() {
                distinct.push(bytes);
            }
        }
        (distinct, which).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Arc<[u8]>>, D::Error> {
        let (distinct, which) = <(Vec<Vec<u8>>, Vec<u32>)>::deserialize(from)?;
        let distinct: Vec<Arc<[u8]>> = distinct.into_iter().map(Into::into).collect();
        which.iter().map(|i| distinct.get(*i as usize).cloned().ok_or_else(|| D::Error::custom("no such message"))).collect()
    }
}
