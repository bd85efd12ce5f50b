//! One agent of a federation.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::rngs::SysRng;
use serde::{Deserialize, Serialize};

use super::{Federation, LAYOUT, chain_stream, codec_stream, marks, place, point, refused};
use crate::error::{Error, Result, require};
use crate::kernel::{Chunk, Lanes, flat, flat_mut};
use crate::local::{Agent, AgentBatch, AgentMemory, Client, Last, Outbox, put, stride};
use crate::message::{Body, Envelope, LastAnswer, Message, Part, TELL};
use crate::problem::Field;
use crate::protocol::{Protocol, is_unmasking, masked_exchange};
use crate::random::{ALL, Stream};
use crate::record::Work;
use crate::sampling::Law;
use crate::secure::{DifferenceRule, ExactSum, MaskedAnswer, PairKeys, PublicKey, Secret, SumGrid, WORD_COUNT, no_random_numbers, pack};
use crate::uplink::codec::Exact;
use crate::uplink::{AgentEnd, Uplink};

/// The most rounds by which a question may be ahead of the last accepted one. Agents never answer earlier rounds, so one forged question of a
/// very late round would silence the agent for good.
const LONGEST_GAP: u64 = 1 << 20;

/// One agent of a federation.
pub struct ClientNode {
    field: Arc<dyn Field>,
    uplink: Arc<Uplink>,
    client: Box<dyn Client>,
    /// The client rule's stored vectors.
    memory: Vec<Chunk>,
    /// The agent, if it computes alone (otherwise empty).
    alone: Vec<Box<dyn Agent>>,
    lanes: Box<Lanes>,
    outbox: Outbox,
    protocol: Protocol,
    digest: u64,
    /// The agent's number in the federation.
    agent: usize,
    /// The place of the agent's data in the field.
    place: usize,
    seed: u64,
    feedback: Vec<f64>,
    work: Work,
    log: Log,
    /// The grid of secure sums and the agent's weight, if the link has them.
    grid: Option<(SumGrid, f64)>,
    /// The rounds that the agent answers.
    rounds: u64,
    /// The keys that the agent shares with the others, for secure sums.
    pairs: Option<PairKeys>,
}

/// The last messages of the agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Log {
    /// The last accepted message.
    taken: Option<Taken>,
    /// The last round that the agent answered.
    answered: Option<u64>,
    /// The last round whose end message it received, plus one; 0 for none.
    told: u32,
    own: OwnMark,
    /// The masks of the last masked answer, until the agent reveals their seeds.
    masked: Option<MaskedAnswer>,
    /// The masks and bytes of the last masked answer outside the rounds.
    outside: Option<(MaskedAnswer, Vec<u8>)>,
    /// The sums to which the agent has revealed seeds.
    unmasked: DifferenceRule,
}

/// The agent's own mark ([`marks`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
struct OwnMark {
    /// The mark.
    mark: u32,
    /// The last round with an answer that may change the state.
    changed: Option<u64>,
    /// The checksum of that answer while the agent does not know whether it counted; 0 for none.
    pending: u32,
}

/// A message that an agent accepted, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Taken {
    round: u64,
    exchange: u8,
    bytes: Vec<u8>,
    answer: Option<Vec<u8>>,
}

/// The saved state of a node.
#[derive(Serialize, Deserialize)]
struct Saved {
    digest: u64,
    agent: u64,
    memory: Vec<f64>,
    chain: Vec<u64>,
    feedback: Vec<f64>,
    alone: Vec<Vec<u8>>,
    work: Work,
    log: Log,
}

impl ClientNode {
    /// Agent `agent` of a federation at the start of a run. It uses the data of agent `place` in `field`, which need not contain other
    /// agents' data.
    ///
    /// # Errors
    /// When there is no such agent or place, the field has another dimension, or the method cannot work over the link or on this problem.
    pub fn new(federation: &Federation, field: &Arc<dyn Field>, place: usize, agent: usize) -> Result<Self> {
        let field = Arc::clone(field);
        federation.check_real()?;
        let (agents, d, seed) = (federation.agents(), federation.dim(), federation.seed());
        require(agent < agents, "agent", agent, &format!("below the number of agents, {agents}"))?;
        require(place < field.agents(), "place", place, &format!("below the number of agents in the data, {}", field.agents()))?;
        federation.check_field(&*field)?;
        federation.uplink().check_units(federation.weights()[agent], field.facts().clipped_units(place))?;
        let (client, protocol) = federation.client()?;
        let mut memory = vec![Chunk::default(); stride(&*client, d)];
        if let Some(controls) = client.copied_controls() {
            put(controls, &mut memory, d, &vec![0.0; d], federation.start());
        }
        let alone: Vec<Box<dyn Agent>> = client.facts().agents.map_or_else(Vec::new, |make| vec![make(agent)]);
        let (words, width) = (field.chain_len(), if alone.is_empty() { d } else { 0 });
        let (mut lanes, outbox) = (Box::new(Lanes::new(width, words)), Outbox::new(width));
        field.start_chain(place, &mut chain_stream(seed, agent), &mut lanes.chains[..words]);
        field.started()?;
        let (uplink, digest) = (Arc::clone(federation.uplink()), federation.digest());
        let feedback = vec![0.0; uplink.feedback_len(d, protocol.exchanges.len())];
        let unmasked = DifferenceRule::new(uplink.least_agents() as u32);
        let (work, log) = (Work::default(), Log { unmasked, ..Log::default() });
        let pairs = None;
        let grid = federation.grid().map(|grid| (grid, federation.weights()[agent]));
        Ok(Self {
            field,
            uplink,
            client,
            memory,
            alone,
            lanes,
            outbox,
            protocol,
            digest,
            agent,
            place,
            seed,
            feedback,
            work,
            log,
            grid,
            pairs,
            rounds: u64::MAX,
        })
    }

    /// Sets the agent's secret key, from which it computes the keys that it shares with the others in this epoch. Secure sums need it.
    ///
    /// # Errors
    /// When the keys of the federation do not contain the agent's own at its place, or are impossible.
    pub fn with_secret(self, federation: &Federation, secret: &Secret) -> Result<Self> {
        if federation.grid().is_none() {
            return Ok(self);
        }
        let pairs = PairKeys::new(secret, self.agent, federation.keys(), &federation.full_digest(), federation.epoch())?;
        Ok(Self { pairs: Some(pairs), ..self })
    }

    /// Reveals seeds of masks only to sums of at least so many agents, and to no sums whose difference is of fewer. The link's own number
    /// counts if it is larger.
    #[must_use]
    pub fn with_least_agents(mut self, least: u32) -> Self {
        let least = least.max(self.uplink.least_agents() as u32);
        self.log.unmasked = self.log.unmasked.with_least_agents(least);
        self
    }

    /// The rounds that the agent answers, by its own settings; by default any number.
    #[must_use]
    pub fn with_rounds(self, rounds: u64) -> Self {
        Self { rounds, ..self }
    }

    /// This agent in the next epoch of its federation, with its new number. After losing its state, an agent is built with
    /// [`ClientNode::new`]. The sampling process, error feedback and knowledge of Hessians go on. A server that keeps copies of control
    /// variates sends the agent its own; otherwise it starts again at zero. Messages of earlier epochs are refused.
    ///
    /// # Errors
    /// As [`ClientNode::new`].
    pub fn regrouped(&self, federation: &Federation, agent: usize) -> Result<Self> {
        let mut next = Self::new(federation, &self.field, self.place, agent)?;
        let words = self.field.chain_len();
        next.lanes.chains[..words].copy_from_slice(&self.lanes.chains[..words]);
        for (next, own) in next.alone.iter_mut().zip(&self.alone) {
            next.restore(&own.save())?;
        }
        // Round numbers go on; earlier messages do not belong to this epoch.
        let last = self.log.taken.as_ref();
        let taken = last.map(|last| Taken { round: last.round, exchange: last.exchange, bytes: Vec::new(), answer: None });
        let (feedback, log) =
            (self.feedback.clone(), Log { taken, own: self.log.own, unmasked: self.log.unmasked.clone(), ..Log::default() });
        Ok(Self { feedback, work: self.work, log, rounds: self.rounds, ..next })
    }

    /// Processes a message of the server, and returns the answer if the message is a question. A copy of the last message gets the same
    /// answer, and changes nothing.
    ///
    /// # Errors
    /// When the message is damaged, of another federation, for another agent, of an earlier round or exchange, or out of step with the
    /// agent. The agent is then unchanged.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        // A message of an earlier epoch has no stored bytes, which equal no message.
        if let Some(taken) = self.log.taken.as_ref().filter(|taken| taken.bytes == bytes && !bytes.is_empty()) {
            return Ok(taken.answer.clone());
        }
        let front = Message::front(bytes)?;
        let envelope = front.envelope;
        if envelope.settings != self.digest {
            return Err(refused("a message of a federation with other settings, or of another run", "messages of this federation"));
        }
        if envelope.agent != ALL && envelope.agent != self.agent {
            return Err(refused(format!("a message to agent {}", envelope.agent), &format!("messages to agent {}", self.agent)));
        }
        if front.parts > self.protocol.most_parts() {
            return Err(refused(format!("a message of {} parts", front.parts), "the parts of this method"));
        }
        let longest = self.protocol.longest().max(self.field.dim());
        let streams = codec_stream(self.seed, ALL);
        let (mut told, mut down) = front.messages(&*self.uplink.downlink, longest, &self.protocol.outside(), streams)?;
        let control = self.control_sent(&mut down)?;
        for message in told.iter_mut().chain([&mut down]) {
            self.protocol.check_down(message)?;
            message.parts.iter_mut().for_each(|(part, body)| part.settle(body));
        }
        self.in_order(&down)?;
        // A control variate from the server includes the effect of earlier messages.
        let told = told.filter(|told| control.is_none() && self.is_news(told));
        let answer = self.followed(told, &down, control)?;
        if down.exchange != TELL {
            self.log.answered = Some(down.round);
        }
        if self.protocol.is_acknowledged(down.exchange) {
            self.log.own.changed = Some(down.round);
            self.log.own.pending = answer.as_deref().map_or(0, Message::checksum);
        }
        self.log.taken = Some(Taken { round: down.round, exchange: down.exchange, bytes: bytes.to_vec(), answer: answer.clone() });
        Ok(answer)
    }

    /// The parts of an answer of this agent, each with its length ([`Body::len`]), for a record of what left.
    ///
    /// # Errors
    /// When the bytes are no answer of this federation.
    #[expect(clippy::type_complexity, reason = "the round, the exchange and the parts")]
    pub fn parts_of(&self, answer: &[u8]) -> Result<(u64, u8, Vec<(Part, usize)>)> {
        let longest = self.protocol.longest().max(self.field.dim());
        let streams = codec_stream(self.seed, self.agent);
        let Message { round, exchange, parts } =
            Message::front(answer)?.message(&*self.uplink.codec, longest, &self.protocol.outside(), streams)?;
        Ok((round, exchange, parts.into_iter().map(|(part, body)| (part, body.len())).collect()))
    }

    /// Removes the agent's control variate from a question, if the server node sent it.
    fn control_sent(&self, down: &mut Message) -> Result<Option<Vec<f64>>> {
        let Some(at) = down.parts.iter().position(|(part, _)| *part == Part::Control) else { return Ok(None) };
        let (_, body) = down.parts.remove(at);
        let is_kept = self.client.copied_controls().is_some();
        match body {
            Body::Numbers(xi) if is_kept && down.exchange == 0 && xi.len() == self.field.dim() && xi.iter().all(|x| x.is_finite()) => {
                Ok(Some(xi))
            }
            _ => Err(refused("an invalid control variate", "d finite numbers, with the first question of a round")),
        }
    }

    /// Refuses a message that does not follow the last accepted message.
    fn in_order(&self, down: &Message) -> Result<()> {
        let at = (down.round, down.exchange);
        let before = self.log.taken.as_ref().map(|taken| (taken.round, taken.exchange));
        // An exchange that unmasks a sum follows its masked exchange.
        let order = |(round, e): (u64, u8)| (round, masked_exchange(e), is_unmasking(e));
        if let Some(before) = before.filter(|before| order(*before) >= order(at)) {
            let what = format!("{} after {}", point(at.0, at.1), point(before.0, before.1));
            return Err(Error::other_state(what));
        }
        self.in_budget(down)?;
        let last = before.map_or(0, |(round, _)| round);
        if at.0 > last.saturating_add(LONGEST_GAP) {
            return Err(refused(
                format!("{} after round {last}", point(at.0, at.1)),
                &format!("a round at most {LONGEST_GAP} rounds later"),
            ));
        }
        let follows = match down.exchange {
            0 => true,
            TELL => self.may_be_told(down),
            e if is_unmasking(e) => before == Some((down.round, masked_exchange(e))),
            e => {
                before.is_some_and(|(round, before)| (round, masked_exchange(before)) == (down.round, e - 1))
                    || self.protocol.exchange(e).is_some_and(|exchange| exchange.may_open)
            }
        };
        if follows {
            Ok(())
        } else {
            Err(refused(format!("{} without the message before it", point(at.0, at.1)), "the exchanges of a round in their order"))
        }
    }

    /// Refuses questions after the rounds of the agent's own settings, which must not depend on what the server says. The first question
    /// after them is allowed: its answers tell the residual at the end. The rounds of a private federation have no further question.
    fn in_budget(&self, down: &Message) -> Result<()> {
        let (round, privacy) = (down.round, self.uplink.privacy());
        let before = self.log.taken.as_ref().map(|taken| (taken.round, taken.exchange));
        let is_first = before.is_none_or(|(last, _)| last < round) || before == Some((round, masked_exchange(down.exchange)));
        let is_last = privacy.is_none() && round == self.rounds && is_first;
        let rounds = privacy.map_or(u64::MAX, |privacy| privacy.rounds).min(self.rounds);
        if down.exchange == TELL || round < rounds || is_last {
            return Ok(());
        }
        Err(refused(format!("round {}", round + 1), &format!("at most the {rounds} rounds of the settings or of their privacy")))
    }

    /// Whether a message at the end of a round concerns an answer of this agent. If it says which answers count, the agent need not have
    /// answered.
    fn may_be_told(&self, told: &Message) -> bool {
        self.log.answered == Some(told.round) || told.counted().is_some()
    }

    /// Whether the message is for this agent, and new.
    fn is_news(&self, told: &Message) -> bool {
        u64::from(self.log.told) <= told.round && self.may_be_told(told)
    }

    /// [`ClientNode::follow`], undone if operators that are evaluated elsewhere, or a rule, fail.
    fn followed(&mut self, told: Option<Message>, down: &Message, control: Option<Vec<f64>>) -> Result<Option<Vec<u8>>> {
        let can_fail = self.field.prefers_one_call() || self.client.facts().prefers_one_call;
        let before = can_fail.then(|| self.save());
        if let Some(told) = told {
            self.follow(&told, None)?;
        }
        let answer = self.follow(down, control);
        let answer = self.field.failure().map_or(answer, Err);
        if let (Some(before), Err(_)) = (before, &answer) {
            self.restore(&before)?;
            self.field.recover();
        }
        answer
    }

    /// Processes an accepted message, and returns the bytes of the answer, if there is one. A message that the rule refuses changes
    /// nothing.
    fn follow(&mut self, down: &Message, control: Option<Vec<f64>>) -> Result<Option<Vec<u8>>> {
        let own = self.log.own;
        let last = self.acknowledge(down, control.is_some());
        self.compute(down, control, last).inspect_err(|_| self.log.own = own)
    }

    fn compute(&mut self, down: &Message, control: Option<Vec<f64>>, last: Option<Last>) -> Result<Option<Vec<u8>>> {
        if is_unmasking(down.exchange) {
            return self.reveal(down).map(Some);
        }
        let (d, envelope, grid) = (self.field.dim(), self.envelope(), self.grid);
        let at = place(self.seed, down.round, down.exchange, self.agent);
        let Self { field, uplink, client, memory, alone, lanes, outbox, seed, feedback, work, log, .. } = self;
        let mut end = AgentEnd { uplink, at, feedback, grid };
        if let (Some(xi), Some(controls)) = (&control, client.copied_controls()) {
            put(controls, memory, d, xi, down.part(Part::Model));
        }
        let (stride, agents) = (memory.len(), [self.place]);
        let batch = AgentBatch::new(field, *seed, std::slice::from_mut(&mut **lanes), &agents, self.place, memory, stride);
        let mut batch = batch.identified(self.agent).with_agents(alone);
        batch.set_bits(0, end.allowance(d));
        if let Some(last) = last {
            batch.set_last(0, last);
        }
        if down.exchange == TELL {
            client.told(&mut batch, down);
            work.calls.add(batch.calls());
            log.told = down.round as u32 + 1;
            return Ok(None);
        }
        outbox.clear(1);
        client.answer(&mut batch, down, outbox)?;
        *work = work.and(Work { samples: batch.samples(), calls: batch.calls() });
        let Some(parts) = outbox.take(0).transpose()? else { return Ok(None) };
        if parts.is_empty() {
            log.own.mark = marks::OUT_OF_STEP;
            let envelope = Envelope { mark: marks::OUT_OF_STEP, ..envelope };
            return Ok(Some(Message { parts, ..down.clone() }.encode(&envelope, &Exact, &mut Stream::default())));
        }
        if grid.is_some() {
            let sent = end.on_grid(parts);
            outbox.arrived(0, sent.as_ref().map(|sent| &sent.parts[..]));
            client.sent(&mut batch, down, outbox)?;
            return sent.map(|sent| self.masked(down, sent.words)).transpose();
        }
        let answer = end.send(parts, Some(&envelope));
        if let Some(sent) = answer.altered(uplink) {
            outbox.arrived(0, sent);
            client.sent(&mut batch, down, outbox)?;
        }
        Ok(answer.into_bytes())
    }

    /// The keys and the grid of secure sums.
    fn keys(&self) -> Result<(&PairKeys, SumGrid)> {
        let keys = self.pairs.as_ref().zip(self.grid).map(|(pairs, (grid, _))| (pairs, grid));
        keys.ok_or_else(|| refused("a question with secure sums to an agent without keys", "a node with the keys of its epoch"))
    }

    /// The masked answer of these words to a question.
    fn masked(&mut self, down: &Message, mut words: Vec<u64>) -> Result<Vec<u8>> {
        let (pairs, grid) = self.keys()?;
        let common = self.protocol.exchange(down.exchange).map_or(0, |exchange| exchange.down.len());
        if let Some(noise) = grid.noise()? {
            for word in words.iter_mut().rev().skip(WORD_COUNT) {
                let drawn = noise.try_sample(&mut SysRng).map_err(no_random_numbers)?;
                *word = word.wrapping_add(drawn as u64) & grid.largest_word();
            }
        }
        let masked = MaskedAnswer::fresh(down.round, down.exchange, Message::hash(&down.parts[..common.min(down.parts.len())]))?;
        masked.mask(pairs, grid, &mut words);
        let bytes = self.packed(down, Part::Masked, pack(&words, grid));
        self.log.masked = Some(masked);
        Ok(bytes)
    }

    /// Reveals the seeds of the masks that do not cancel in the sum over the agents that the server names.
    fn reveal(&mut self, down: &Message) -> Result<Vec<u8>> {
        let (pairs, _) = self.keys()?;
        let Some(Body::Packed(bitmap)) = down.find(Part::Answered) else { return Err(refused("no agents that answered", "their numbers")) };
        let bits = |c: usize| bitmap[c / 8] >> (c % 8) & 1 == 1;
        let answered: Vec<bool> = (0..pairs.agents()).map(bits).collect();
        let here: BTreeSet<PublicKey> = pairs.publics().iter().zip(&answered).filter(|(_, here)| **here).map(|(key, _)| *key).collect();
        if !answered[self.agent] || bitmap.iter().map(|byte| byte.count_ones()).sum::<u32>() as usize != here.len() {
            return Err(refused("a sum without this agent, or with agents that do not exist", "a sum with this agent"));
        }
        let is_this = |masked: &&MaskedAnswer| (masked.round, masked.exchange) == (down.round, masked_exchange(down.exchange));
        let Some(masked) = self.log.masked.as_ref().filter(is_this) else {
            return Err(refused("the unmasking of an answer that this agent has not given", "one after its masked answer"));
        };
        let seeds = masked.revealed(pairs, &answered);
        // Where samples are drawn, or noise is added, no two rounds have the same content.
        let is_new = self.field.sampling().kind != Law::Mean || self.grid.is_some_and(|(grid, _)| grid.is_private());
        let content = masked.content(is_new);
        self.log.unmasked.may_unmask(content, &here)?;
        self.log.masked = None;
        Ok(self.packed(down, Part::Seeds, seeds))
    }

    /// The masked numbers of an agent that answers a question outside the rounds ([`ExactSum`]). The last question gets the same bytes again,
    /// whatever the numbers: two answers with the same masks would show the difference of the numbers. The caller saves the node before it
    /// sends the bytes.
    ///
    /// # Errors
    /// When the agent has no keys, a number cannot be masked, or the sum of an earlier question was unmasked. Nothing changes then.
    pub fn mask_sums(&mut self, question: &[u8], numbers: &[f64]) -> Result<Vec<u8>> {
        if let Some((_, sent)) = self.log.outside.as_ref().filter(|(masks, _)| masks.is_outside_rounds(question)) {
            return Ok(sent.clone());
        }
        let masks = MaskedAnswer::outside_rounds(question)?;
        if self.log.unmasked.has_unmasked(&masks.content(true)) {
            return Err(refused("an earlier question about sums", "the last question, or a new one"));
        }
        let sent = ExactSum::masked(numbers, &masks, self.keys()?.0)?;
        self.log.outside = Some((masks, sent.clone()));
        Ok(sent)
    }

    /// The agent's own seed of its last masked sums, which were those for this question. It is the only seed that is needed: sums outside
    /// the rounds are over all agents.
    ///
    /// # Errors
    /// When the last masked answer was to another question, or the agent's rules ask for more agents.
    pub fn unmask_sums(&mut self, question: &[u8]) -> Result<Vec<u8>> {
        let (pairs, _) = self.keys()?;
        let Some((masked, _)) = self.log.outside.as_ref().filter(|(masks, _)| masks.is_outside_rounds(question)) else {
            return Err(refused("the unmasking of sums that this agent has not given", "one after its masked sums"));
        };
        let (seed, content) = (masked.revealed(pairs, &vec![true; pairs.agents()]), masked.content(true));
        let all = pairs.publics().iter().copied().collect();
        self.log.unmasked.may_unmask_outside(content, &all)?;
        Ok(seed)
    }

    /// The bytes of an answer of one packed part.
    fn packed(&self, down: &Message, part: Part, bytes: Vec<u8>) -> Vec<u8> {
        let message = Message { parts: vec![(part, Body::Packed(bytes))], ..down.clone() };
        message.encode(&self.envelope(), &Exact, &mut Stream::default())
    }

    /// Reads from a message whether the last answer counted, and updates the mark of the state. Returns the last answer, if the message
    /// says whether it counted.
    fn acknowledge(&mut self, down: &Message, has_control: bool) -> Option<Last> {
        let (OwnMark { mark, changed, pending }, t) = (&mut self.log.own, down.round);
        if has_control {
            // The memory is then as after a counted answer of zero to the round before: see `put`.
            (*mark, *pending) = (marks::anew(t), 0);
            return None;
        }
        if !self.protocol.tells_what_counted(down.exchange) {
            return None;
        }
        let last = down.last_answer(*changed);
        let is_included = last == LastAnswer::Counted;
        if is_included && *pending != 0 {
            *mark = marks::after(*mark, *pending);
        }
        *pending = 0;
        let controls = self.client.copied_controls();
        if down.exchange == TELL {
            *mark = marks::after(*mark, t as u32 + 1);
        } else if last == LastAnswer::NoneCounts && controls.is_none() {
            *mark = marks::anew(t);
        }
        if controls.is_some_and(|controls| !controls.is_told() && !controls.can_follow(*changed, t)) {
            *mark = marks::OUT_OF_STEP;
        }
        Some(Last { round: *changed, is_included })
    }

    fn envelope(&self) -> Envelope {
        Envelope { agent: self.agent, mark: self.log.own.mark, settings: self.digest }
    }

    /// The agent's control variate, as in [`super::ServerNode::control`], d numbers, after `rounds` rounds with the server's iterate
    /// `theta`. `is_included` says whether the agent's last answer is in the mean of its round. `None` for methods without control
    /// variates.
    pub fn control(&self, theta: &[f64], rounds: u64, is_included: bool) -> Option<Vec<f64>> {
        let controls = self.client.copied_controls()?;
        let mut xi = vec![0.0; self.field.dim()];
        controls.of_agent(&AgentMemory::new(&self.memory, xi.len()), theta, rounds, is_included, &mut xi);
        Some(xi)
    }

    /// The agent's work since the start: its share of a run's ledger. The server counts messages and bits.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The state of the node, as bytes.
    pub fn save(&self) -> Vec<u8> {
        let (memory, chain) = (flat(&self.memory).to_vec(), self.lanes.chains[..self.field.chain_len()].to_vec());
        let alone = self.alone.iter().map(|agent| agent.save()).collect();
        let (digest, agent) = (self.digest, self.agent as u64);
        let (feedback, work, log) = (self.feedback.clone(), self.work, self.log.clone());
        LAYOUT.write(&Saved { digest, agent, memory, chain, feedback, alone, work, log })
    }

    /// Restores a state that [`ClientNode::save`] returned for the same agent of the same federation.
    ///
    /// # Errors
    /// Of the kind [`crate::error::ErrorKind::Format`], when the bytes are damaged, are not such a state, or have another version's layout.
    /// The node is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let Saved { digest, agent, memory, chain, feedback, alone, work, log } = LAYOUT.read(bytes)?;
        if (digest, agent) != (self.digest, self.agent as u64) || feedback.len() != self.feedback.len() {
            return Err(LAYOUT.foreign());
        }
        let words = self.field.chain_len();
        let has_its_shape = memory.len() == 8 * self.memory.len() && chain.len() == words && alone.len() == self.alone.len();
        if !has_its_shape || words > 0 && !self.field.is_state(self.place, &chain) {
            return Err(LAYOUT.foreign());
        }
        self.alone.iter_mut().zip(&alone).try_for_each(|(agent, bytes)| agent.restore(bytes))?;
        flat_mut(&mut self.memory).copy_from_slice(&memory);
        self.lanes.chains[..words].copy_from_slice(&chain);
        // The agent's rules may have changed since.
        let unmasked = log.unmasked.clone().with_least_agents(self.log.unmasked.least_agents());
        (self.feedback, self.work, self.log) = (feedback, work, Log { unmasked, ..log });
        Ok(())
    }
}
