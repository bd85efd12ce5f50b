//! The server of a federation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::copies::Copies;
use super::marks::Marks;
use super::pending_tells::PendingTells;
use super::{Federation, LAYOUT, codec_stream, place, point, refused};
use crate::coordinator::{self, Accepted, AgentStatus, Coordinator, Step};
use crate::error::{Error, Result};
use crate::local::Client;
use crate::message::{Body, Envelope, Message, PART_HEADER_BYTES, Part};
use crate::metrics::Observable;
use crate::protocol::{is_unmasking, masked_exchange};
use crate::random::{ALL, Purpose, Stream};

/// The next step of the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Todo {
    /// Send each agent its bytes, pass the answers to [`ServerNode::take`], then [`ServerNode::close`] the
    /// exchange.
    Ask {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// The message to each of them.
        #[serde(with = "super::shared")]
        bytes: Vec<Arc<[u8]>>,
    },
    /// Send each agent its bytes; agents do not answer. Only [`ServerNode::finish`] returns this.
    Tell {
        /// The agents, in increasing order.
        to: Vec<usize>,
        /// The message to each of them.
        #[serde(with = "super::shared")]
        bytes: Vec<Arc<[u8]>>,
    },
    /// The round is over; open the next one.
    RoundOver,
}

/// The result of [`ServerNode::receive`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The next step of the caller.
    pub todo: Todo,
    /// The refused answers, each with its index among the given answers and the reason. The others are accepted.
    pub refused: Vec<(usize, Error)>,
}

/// The server of a federation: a coordinator plus the bytes of messages, marks of agents' states and copies of their control variates.
pub struct ServerNode {
    coordinator: Coordinator,
    /// The client half, if the server keeps copies of its control variates.
    client: Option<Box<dyn Client>>,
    digest: u64,
    /// The next step of the caller.
    todo: Todo,
    copies: Copies,
    marks: Marks,
    untold: PendingTells,
    measured: Measured,
    /// Why the last exchange could not end.
    failure: Option<Error>,
}

/// Points of which all agents' answers showed the norm of the mean operator: the iterate, and the point of the last question.
type Measured = Vec<(Vec<f64>, f64)>;

/// A decoded answer.
struct Decoded {
    /// The mark of the agent's state.
    mark: u32,
    parts: Vec<(Part, Body)>,
}

/// The saved state of a server node.
#[derive(Serialize, Deserialize)]
struct Saved {
    digest: u64,
    coordinator: coordinator::Saved,
    todo: Todo,
    copies: Copies,
    marks: Marks,
    untold: PendingTells,
    measured: Measured,
}

/// [`Saved`] without copying, because control variates may fill much of the memory.
#[derive(Serialize)]
struct Saving<'a> {
    digest: u64,
    coordinator: coordinator::Saved,
    todo: &'a Todo,
    copies: &'a Copies,
    marks: &'a Marks,
    untold: &'a PendingTells,
    measured: &'a Measured,
}

impl ServerNode {
    /// The server of a federation at the start of a run. It does not need the problem.
    ///
    /// # Errors
    /// When the method cannot work over the link, or the link has old models (pull).
    pub fn new(federation: &Federation) -> Result<Self> {
        federation.check_real()?;
        let client = Some(federation.client()?.0).filter(|client| client.copied_controls().is_some());
        let mut coordinator = Coordinator::new(federation)?;
        coordinator.expect_masks();
        let mut copies = Copies::default();
        if client.is_some() {
            coordinator.keep_letters();
            copies = Copies::new(federation.agents(), federation.dim());
        }
        let marks = if coordinator.protocol().acknowledges() { Marks::new(federation.agents()) } else { Marks::default() };
        let untold = PendingTells::new(coordinator.protocol(), federation.agents());
        let (digest, measured) = (federation.digest(), Measured::new());
        Ok(Self { coordinator, client, digest, todo: Todo::RoundOver, copies, marks, untold, measured, failure: None })
    }

    /// The server of the next epoch, after agents have joined or left. `federation` is [`Federation::next_epoch`] of this server's
    /// federation. `from` has the previous number of each of its agents, `None` for a new agent.
    ///
    /// - Rounds, counts and the iterate go on.
    /// - State per agent (control variates, eigenpairs, learned and last Hessians, last operators) is kept for agents that stay.
    /// - State about the mean of all agents (curvature pairs, Krylov vectors, Anderson's history, LSTD's sums) is forgotten.
    /// - Control variates are shifted to sum to zero with the new weights. Each agent gets its own with its next question, 6 + 8 d more
    ///   bytes.
    /// - Answers that have not counted, and the message at the end of the last round, are lost.
    ///
    /// # Errors
    /// - A round is open.
    /// - `federation` is another one, or `from` does not fit it.
    /// - Full participation becomes partial, or the reverse: the method's messages depend on that.
    /// - Only agents know their control variates (`rule = "literal"`).
    pub fn regrouped(&self, federation: &Federation, from: &[Option<usize>]) -> Result<Self> {
        let coordinator = self.coordinator.regrouped(federation, from)?;
        let mut next = Self::new(federation)?;
        if next.client.is_some() {
            next.copies = self.copies.regrouped(from, federation.weights());
        }
        next.coordinator = coordinator;
        if next.coordinator.protocol().acknowledges() {
            // Each agent gets its own control variate. Without these, agents that are new or have another number start again.
            let has_controls = next.client.is_some();
            next.marks = self.marks.regrouped(from, has_controls);
            let moved = from.iter().enumerate().filter(|(c, old)| !has_controls && **old != Some(*c));
            moved.for_each(|(c, _)| next.coordinator.forget(c));
        }
        Ok(next)
    }

    /// The coordinator, which knows the iterate, the output, the counts, refused answers, and whether the iterates have diverged.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.coordinator.theta()
    }

    /// The number of rounds opened so far; [`Coordinator::rounds`] is the number done.
    pub fn opened(&self) -> u64 {
        self.coordinator.opened()
    }

    /// The caller's next step; after a restart, the step when the state was saved.
    pub fn todo(&self) -> &Todo {
        &self.todo
    }

    /// The number of rounds done when the iterates were found to have diverged, if they have. No more rounds are opened then.
    pub fn diverged(&self) -> Option<u64> {
        self.coordinator.diverged()
    }

    /// The number of accepted answers to the present question.
    pub fn answered(&self) -> usize {
        self.coordinator.answered()
    }

    /// The norm of the mean operator at the server's iterate, as answers show it; `None` if it is unknown.
    ///
    /// - What all agents' answers showed: also of a trial point that has become the iterate.
    /// - Otherwise the norm of the mean of the accepted answers to the open question, if that is about the iterate. If agents send directions
    ///   first, they are means of operators along local steps.
    pub fn residual(&self) -> Option<f64> {
        let (theta, coordinator) = (self.theta(), &self.coordinator);
        let known = self.measured.iter().find(|(point, _)| point == theta).map(|(_, norm)| *norm);
        let is_about_theta = || coordinator.is_open() && coordinator.point() == Some(theta);
        let mean = || coordinator.mean_answer().filter(|(part, _)| self.is_of_operator(*part));
        known.or_else(|| is_about_theta().then(mean).flatten().map(|(_, norm)| norm))
    }

    /// Whether the answers to the open question can show [`ServerNode::residual`]: masked answers do not.
    pub fn shows_residual(&self) -> bool {
        let (coordinator, exchange) = (&self.coordinator, self.coordinator.question().down.exchange);
        coordinator.is_open() && (coordinator.grid().is_none() || is_unmasking(exchange))
    }

    /// Whether the mean of these parts of answers to the open question is one of operators. In a later exchange, directions are none, and
    /// systems are those of another policy.
    fn is_of_operator(&self, part: Part) -> bool {
        !matches!(part, Part::Direction | Part::System) || masked_exchange(self.coordinator.question().down.exchange) == 0
    }

    /// Keeps the norm of the mean operator at the point of the open question, if all agents have answered.
    fn measure(&mut self) {
        let coordinator = &self.coordinator;
        if coordinator.answered() < coordinator.federation().agents() {
            return;
        }
        let Some((part, norm)) = coordinator.mean_answer() else { return };
        let is_exact = part != Part::Direction && self.is_of_operator(part);
        let Some(point) = coordinator.point().filter(|_| is_exact).map(<[f64]>::to_vec) else { return };
        let theta = coordinator.theta();
        self.measured.retain(|(old, _)| old == theta && *old != point);
        self.measured.push((point, norm));
    }

    /// The server's copy of agent `c`'s control variate, d numbers, if the method has any: `xi_c`; for Scaffold with some of the agents
    /// `c_c`, with `xi_c = c_c - c` ([`Observable::each_control`]).
    pub fn control(&self, c: usize) -> Option<&[f64]> {
        self.copies.of(c)
    }

    /// Why the server half failed to end the open exchange in the last call ([`crate::server::ServerFacts::failure`]), if it did. The
    /// question is then still open, with its accepted answers, and the next call tries again.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Opens the next round. An open round ends with the answers accepted so far. After divergence or [`crate::message::MAX_ROUNDS`]
    /// rounds, the result is [`Todo::RoundOver`].
    pub fn open(&mut self) -> Todo {
        self.open_for(None)
    }

    /// [`ServerNode::open`] for the reachable agents, in any order. The others get no question, and their answers count as missing.
    pub fn open_for(&mut self, available: Option<&[usize]>) -> Todo {
        while self.coordinator.is_open() {
            self.close();
            if self.failure.is_some() {
                return self.todo.clone();
            }
        }
        let step = self.coordinator.open(available);
        self.follow(step)
    }

    /// Turns a step of the coordinator into bytes.
    fn follow(&mut self, step: Step) -> Todo {
        self.todo = match step {
            Step::RoundOver | Step::Tell => Todo::RoundOver,
            Step::Ask => {
                let (to, bytes) = self.written();
                self.marks.ask(self.is_acknowledged().then(|| self.coordinator.asked().len()));
                to.iter().for_each(|c| self.untold.remove(*c));
                Todo::Ask { to, bytes }
            }
        };
        self.todo.clone()
    }

    /// Whether answers to the open question change the states of agents.
    fn is_acknowledged(&self) -> bool {
        self.coordinator.protocol().is_acknowledged(self.coordinator.question().down.exchange)
    }

    /// The stream of the downlink's codec for a round and exchange.
    fn stream(&self, round: u64, exchange: u8) -> Stream {
        place(self.coordinator.federation().seed(), round, exchange, ALL).stream(Purpose::Codec)
    }

    /// The recipients of the open question, and the bytes for each: the same for all, except for own parts and messages about earlier
    /// rounds.
    fn written(&mut self) -> (Vec<usize>, Vec<Arc<[u8]>>) {
        let (coordinator, settings) = (&self.coordinator, self.digest);
        let (ask, down, downlink) = (coordinator.question(), coordinator.written(), &*coordinator.federation().uplink().downlink);
        // An agent that is behind gets its control variate with the first question of a round, and no other part of its own.
        let is_first = down.exchange == 0;
        let to_send = |c: usize| self.copies.of(c).filter(|_| is_first && self.marks.is_behind(c));
        let (places, to): (Vec<usize>, Vec<usize>) = coordinator.recipients().unzip();
        // If recipients get different messages, or only some agents are asked, every message names its recipient, so that other agents
        // refuse it.
        let is_for_all = ask.to.is_none() && ask.own.is_none() && !to.iter().any(|c| to_send(*c).is_some());
        if is_for_all && self.untold.common(&to).is_some() {
            let told = to.first().and_then(|c| self.untold.get(*c));
            let envelope = Envelope { settings, ..Envelope::default() };
            let bytes: Arc<[u8]> = down.encode_after(told.as_ref(), &envelope, downlink, |round, e| self.stream(round, e)).into();
            return (to.clone(), vec![bytes; to.len()]);
        }
        let (mut controls, mut anew) = (0, Vec::new());
        let one = |(i, c): (&usize, &usize)| -> Arc<[u8]> {
            let (mut down, mut told) = (down.clone(), None);
            match to_send(*c) {
                Some(xi) => {
                    down.parts.push((Part::Control, Body::Numbers(xi.to_vec())));
                    controls += PART_HEADER_BYTES + 8 * xi.len();
                    anew.push(*c);
                }
                None => {
                    down.parts.extend(ask.own_of(*i));
                    told = self.untold.get(*c);
                    if down.counted() == Some(None) && self.client.is_none() {
                        anew.push(*c);
                    }
                }
            }
            let envelope = Envelope { agent: *c, settings, ..Envelope::default() };
            down.encode_after(told.as_ref(), &envelope, downlink, |round, e| self.stream(round, e)).into()
        };
        let bytes = places.iter().zip(&to).map(one).collect();
        let round = down.round;
        anew.into_iter().for_each(|c| self.marks.begin_anew(c, round));
        self.coordinator.count_down(controls);
        (to, bytes)
    }

    /// For the end of a federation: sends agents pending messages of earlier rounds. The result is [`Todo::Tell`], or [`Todo::RoundOver`]
    /// if there are none; nothing changes while a question is open. These messages were counted with their rounds, as parts of next
    /// questions; on their own they have 21 more bytes.
    pub fn finish(&mut self) -> Todo {
        let to = self.untold.agents();
        if self.coordinator.is_open() || to.is_empty() {
            return self.todo.clone();
        }
        let downlink = &*self.coordinator.federation().uplink().downlink;
        let one = |c: &usize| -> Arc<[u8]> {
            let told = self.untold.get(*c).expect("one that is to be told something");
            let envelope = Envelope { agent: *c, settings: self.digest, ..Envelope::default() };
            told.encode(&envelope, downlink, &mut self.stream(told.round, told.exchange)).into()
        };
        let bytes = to.iter().map(one).collect();
        to.iter().for_each(|c| self.untold.remove(*c));
        self.todo = Todo::Tell { to, bytes };
        self.todo.clone()
    }

    /// Decodes an answer to the present question.
    fn decoded(&self, agent: usize, bytes: &[u8]) -> Result<Decoded> {
        let Message { round, exchange, .. } = self.coordinator.question().down;
        self.coordinator.place_of(agent)?;
        let front = Message::front(bytes)?;
        let envelope = front.envelope;
        if envelope.settings != self.digest {
            return Err(refused(
                format!("an answer of agent {agent} with other settings, or of another run"),
                "answers of this federation",
            ));
        }
        if envelope.agent != agent {
            return Err(refused(format!("an answer of agent {} from agent {agent}", envelope.agent), "each agent's own answer"));
        }
        if (front.round, front.exchange) != (round, exchange) {
            let what = format!("an answer to {} from agent {agent}", point(front.round, front.exchange));
            return Err(refused(what, &format!("answers to {}", point(round, exchange))));
        }
        let (protocol, federation) = (self.coordinator.protocol(), self.coordinator.federation());
        if front.parts > protocol.most_parts() {
            return Err(refused(format!("an answer of {} parts", front.parts), "the parts of this method"));
        }
        let streams = codec_stream(federation.seed(), agent);
        let Message { parts, .. } = front.message(&*federation.uplink().codec, protocol.longest(), &protocol.outside(), streams)?;
        Ok(Decoded { mark: envelope.mark, parts })
    }

    /// Accepts an answer to the present question. A second copy changes nothing.
    ///
    /// # Errors
    /// When the bytes are not an answer of this agent to such a question, or come from an older state than the server assumes. A refused
    /// answer does not count. After an older state, the agent's next question brings it up to date.
    pub fn take(&mut self, agent: usize, bytes: &[u8]) -> Result<()> {
        let taken = self.taken(agent, bytes);
        taken.inspect_err(|reason| self.coordinator.refuse(agent, reason.clone()))
    }

    fn taken(&mut self, agent: usize, bytes: &[u8]) -> Result<()> {
        let Decoded { mark, parts } = self.decoded(agent, bytes)?;
        let is_acknowledged = self.is_acknowledged();
        if is_acknowledged && !self.coordinator.has_answered(agent) {
            self.marks.check(agent, mark).inspect_err(|_| self.coordinator.forget(agent))?;
        }
        let checked = self.coordinator.check(agent, parts, bytes.len())?;
        let at = self.coordinator.place_of(agent)?;
        let accepted = self.coordinator.take(agent, checked)?;
        if accepted == Accepted::Counted && is_acknowledged {
            self.marks.take(at, agent, Message::checksum(bytes));
        }
        Ok(())
    }

    /// Ends the open exchange with the answers accepted so far. A missing answer counts as zero in the mean. The caller decides how many
    /// answers suffice. Without any answer theta changes only by the receiver's noise over the air.
    pub fn close(&mut self) -> Todo {
        if !self.coordinator.is_open() {
            return self.todo.clone();
        }
        let asked = self.coordinator.asked().to_vec();
        let before = self.coordinator.can_fail().then(|| self.save());
        let is_acknowledged = self.is_acknowledged();
        self.measure();
        let step = self.coordinator.close();
        self.failure = self.coordinator.failure();
        if let (Some(before), Some(_)) = (before, &self.failure) {
            if let Err(e) = self.restore(&before) {
                self.failure = Some(e);
            }
            return self.todo.clone();
        }
        if is_acknowledged {
            self.marks.settle(&asked, |c| self.coordinator.is_counted(c));
        }
        self.ended(&asked, step)
    }

    /// Follows the coordinator after the end of an exchange; `asked` are its participants.
    fn ended(&mut self, asked: &[usize], step: Step) -> Todo {
        let todo = self.follow(step);
        if step == Step::Tell {
            self.keep_told();
        }
        // After divergence no round is opened, so copies are useless.
        if step != Step::Ask && self.coordinator.diverged().is_none() {
            self.settle(asked, step);
        }
        self.coordinator.hand_over_tell();
        todo
    }

    /// Keeps the message at the end of a round for each agent's next question.
    fn keep_told(&mut self) {
        let ask = self.coordinator.question();
        self.untold.add(self.coordinator.written(), self.coordinator.recipients().map(|(i, c)| (c, ask.own_of(i))));
    }

    /// Whether an agent may still answer, or why not.
    pub fn standing(&self, agent: usize) -> AgentStatus {
        match self.coordinator.standing(agent) {
            AgentStatus::Awaited if self.marks.is_refused(agent) => AgentStatus::OutOfStep,
            standing => standing,
        }
    }

    /// The agents that may still answer the present question, in increasing order.
    pub fn may_still_answer(&self) -> Vec<usize> {
        self.coordinator.awaited().filter(|c| self.standing(*c) == AgentStatus::Awaited).collect()
    }

    /// The number of answers without which the open exchange of a secure sum gives nothing; 0 for other exchanges.
    pub fn needed_answers(&self) -> usize {
        self.coordinator.needed_answers()
    }

    /// The share of accepted answers to the present question, by participants' weights; 0 if no question is open.
    pub fn share_answered(&self) -> f64 {
        let (asked, answered) = self.coordinator.weight_answered();
        if self.coordinator.is_open() { answered / asked } else { 0.0 }
    }

    /// Gives the round up: it ends without the answers to the present question, and without further questions. Theta changes only by the
    /// receiver's noise over the air, so the next round repeats this one with other samples.
    pub fn give_up(&mut self) -> Todo {
        if !self.coordinator.is_open() {
            return self.todo.clone();
        }
        let asked = self.coordinator.asked().to_vec();
        let step = self.coordinator.give_up();
        self.ended(&asked, step)
    }

    /// Readmits an excluded agent ([`Coordinator::exclusions`]) from the next round on; returns whether it was excluded.
    pub fn readmit(&mut self, agent: usize) -> bool {
        self.coordinator.readmit(agent)
    }

    /// Accepts all answers of an exchange, in any order, and ends the exchange.
    pub fn receive(&mut self, answers: &[(usize, Vec<u8>)]) -> Progress {
        let taken = answers.iter().map(|(agent, bytes)| self.take(*agent, bytes));
        let refused = taken.enumerate().filter_map(|(i, taken)| taken.err().map(|e| (i, e))).collect();
        Progress { refused, todo: self.close() }
    }

    /// Updates the copies of control variates as the agents will update theirs.
    fn settle(&mut self, asked: &[usize], step: Step) {
        let Self { coordinator, client, copies, marks, .. } = self;
        let Some(controls) = client.as_ref().and_then(|client| client.copied_controls()) else { return };
        copies.settle(controls, &coordinator.question().down, asked, coordinator.updates(), coordinator.theta());
        if step != Step::Tell {
            return;
        }
        marks.tell(asked, coordinator.question().down.round);
        let uplink = coordinator.federation().uplink();
        // With a budget, agents that are in step may also be silent.
        if uplink.budget().is_some() {
            return;
        }
        // It is unknown whether a silent agent received the messages with the question. It gets its control variate instead.
        let downlink = &*uplink.downlink;
        let mut unsent = 0;
        for c in marks.leave_behind(asked) {
            unsent += self.untold.get(c).map_or(0, |told| told.joined_len(downlink));
            self.untold.remove(c);
        }
        self.coordinator.discount(unsent);
    }

    /// The approximate number of bytes that [`ServerNode::save`] returns.
    pub fn state_len(&self) -> usize {
        let todo: usize = match &self.todo {
            Todo::Ask { bytes, .. } | Todo::Tell { bytes, .. } => bytes.iter().map(|bytes| bytes.len()).sum(),
            Todo::RoundOver => 0,
        };
        let measured: usize = self.measured.iter().map(|(point, _)| point.len() + 1).sum();
        8 * (self.coordinator.state_len() + 2 * self.copies.xi.len() + self.untold.len() + measured) + todo
    }

    /// The state of the node, as bytes, between any two calls. A server that saves its state before it sends messages can be restarted
    /// without effect on the results.
    pub fn save(&self) -> Vec<u8> {
        let Self { coordinator, digest, todo, copies, marks, untold, measured, .. } = self;
        LAYOUT.write(&Saving { digest: *digest, coordinator: coordinator.save(), todo, copies, marks, untold, measured })
    }

    /// Restores a state that [`ServerNode::save`] returned for the same federation.
    ///
    /// # Errors
    /// Of the kind [`crate::error::ErrorKind::Format`], when the bytes are damaged, are not such a state, or have another version's layout.
    /// The node is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let Saved { digest, coordinator, todo, copies, marks, untold, measured } = LAYOUT.read(bytes)?;
        if digest != self.digest {
            return Err(LAYOUT.foreign());
        }
        self.coordinator.restore(coordinator).map_err(|_| LAYOUT.foreign())?;
        (self.todo, self.copies, self.marks, self.untold, self.measured) = (todo, copies, marks, untold, measured);
        Ok(())
    }
}

impl Observable for ServerNode {
    fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The server's copies.
    fn each_control(&self, see: &mut dyn FnMut(usize, &[f64])) -> bool {
        let control = self.coordinator.server().facts().control;
        for (c, copy) in self.copies.xi.chunks(self.theta().len()).enumerate() {
            let mut xi = copy.to_vec();
            control.into_iter().for_each(|control| xi.iter_mut().zip(control).for_each(|(xi, c)| *xi -= c));
            see(c, &xi);
        }
        self.client.is_some()
    }
}
