//! A federation on a network that loses, repeats, delays, reorders, damages and misdelivers messages, with agents that die, join, leave and
//! lie, beside two other federations whose messages get mixed up with its own. Whoever takes a message must have been sent it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::common::adversary::{MessageOutcome, another, any_order, damaged, fate};
use crate::common::forms::Wire;
use fedsa::coordinator::AgentStatus;
use fedsa::enrolment::{announce, announced};
use fedsa::federation::{AnswerRules, Faults, Federation};
use fedsa::linalg::distance_sq;
use fedsa::message::{Body, Message, Part};
use fedsa::method::MethodSettings;
use fedsa::metrics::Observable;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::uplink::Uplink;

const SEED: u64 = 5;

/// The agent that lies.
pub const LIAR: usize = 1;

/// Agents come back from a state of so many rounds ago.
const OLD: usize = 10;

/// How often the network and the nodes misbehave.
#[derive(Clone, Copy)]
pub struct Habits {
    /// A message is lost.
    pub lost: f64,
    /// A message meets each of the other fates.
    pub other: f64,
    /// An agent dies in a round.
    pub dies: f64,
    /// The server dies before it sends.
    pub server_dies: f64,
    /// An agent cannot be reached in a round.
    pub unreachable: f64,
    /// An answer of the agent that lies is a lie.
    pub lies: f64,
    /// An exchange ends as soon as it has enough answers.
    pub hurried: f64,
    /// The answers that an exchange needs, of so many agents or of all that were asked if these are fewer; otherwise the round is given up.
    pub least: usize,
    /// How often those are asked again who may still answer and have not.
    pub repeats: usize,
}

/// Much is lost, and rounds end without the answers of some.
pub const HOSTILE: Habits =
    Habits { lost: 0.3, other: 0.05, dies: 0.02, server_dies: 0.03, unreachable: 0.05, lies: 0.0, hurried: 0.2, least: 3, repeats: 2 };

/// As much is lost, and every question is asked again until it is answered.
pub const PATIENT: Habits = Habits { dies: 0.0, unreachable: 0.0, hurried: 0.0, least: usize::MAX, repeats: 500, ..HOSTILE };

/// Nothing happens.
pub const QUIET: Habits = Habits { lost: 0.0, other: 0.0, server_dies: 0.0, ..PATIENT };

/// Another federation, of which one agent and the server are there.
struct Stranger {
    server: ServerNode,
    agent: ClientNode,
}

/// A message on its way: the round in which it comes, the agent, the bytes.
type OnItsWay = (u64, usize, Vec<u8>);

/// A federation on such a network.
pub struct World {
    pub habits: Habits,
    pub server: ServerNode,
    /// Whether one answer of so few may be taken for a lie by its norm.
    pub has_medians: bool,
    field: Arc<dyn Field>,
    federation: Federation,
    /// Where the data of each agent are, by its number.
    places: Vec<usize>,
    nodes: Vec<ClientNode>,
    strangers: Vec<Stranger>,
    draws: Stream,
    /// What agents saved after their last message, and before each of the last rounds.
    last: Vec<Vec<u8>>,
    older: VecDeque<Vec<Vec<u8>>>,
    late_down: Vec<OnItsWay>,
    late_up: Vec<OnItsWay>,
    /// What the server has sent in this epoch, with the agent that the message names.
    sent: HashSet<(usize, Vec<u8>)>,
    /// What agents have answered in this epoch, and the one of them that lies instead.
    made: HashSet<(usize, Vec<u8>)>,
    /// The answers that counted in this epoch, by round, exchange and agent.
    counted: HashMap<(u64, u8, usize), Vec<u8>>,
    /// The most bytes that the server and an agent have saved since this was last taken.
    pub largest: (usize, usize),
}

fn node(federation: &Federation, field: &Arc<dyn Field>, place: usize, agent: usize) -> ClientNode {
    ClientNode::new(federation, field, place, agent).unwrap()
}

impl World {
    pub fn new(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, habits: Habits, seed: u64) -> Self {
        let founded = |seed, x: f64| Federation::new(method, uplink, field.weights(), seed, vec![x; field.dim()]).unwrap();
        let rules = AnswerRules::default().with_faults(Faults::Exclude { norm_limit: 1e3 });
        let federation = founded(SEED, 0.0);
        // Over the air nobody can be excluded: single answers do not arrive.
        let federation = federation.clone().with_rules(rules).unwrap_or(federation);
        let stranger = |other: Federation| Stranger { server: ServerNode::new(&other).unwrap(), agent: node(&other, field, 0, 0) };
        let places: Vec<usize> = (0..field.agents()).collect();
        let nodes: Vec<ClientNode> = places.iter().map(|c| node(&federation, field, *c, *c)).collect();
        let last: Vec<Vec<u8>> = nodes.iter().map(ClientNode::save).collect();
        Self {
            habits,
            server: ServerNode::new(&federation).unwrap(),
            has_medians: true,
            field: Arc::clone(field),
            federation,
            places,
            nodes,
            strangers: vec![stranger(founded(SEED + 1, 0.0)), stranger(founded(SEED, 0.25))],
            draws: stream(seed, Purpose::Delay, 0, 0),
            last,
            older: VecDeque::new(),
            late_down: Vec::new(),
            late_up: Vec::new(),
            sent: HashSet::new(),
            made: HashSet::new(),
            counted: HashMap::new(),
            largest: (0, 0),
        }
    }

    fn happens(&mut self, p: f64) -> bool {
        self.draws.uniform() < p
    }

    fn one_of(&mut self, n: usize) -> usize {
        self.draws.bits() as usize % n
    }

    fn fate(&mut self) -> MessageOutcome {
        fate(&mut self.draws, self.habits.lost, self.habits.other)
    }

    /// 1 to 5 rounds from now.
    fn later(&mut self) -> u64 {
        self.server.opened() + 1 + self.draws.bits() % 5
    }

    fn another(&mut self, c: usize) -> usize {
        another(&mut self.draws, self.nodes.len(), c)
    }

    /// An agent from its last state, one of ten rounds ago, or none.
    fn comes_back(&mut self, c: usize) {
        self.nodes[c] = node(&self.federation, &self.field, self.places[c], c);
        match self.one_of(3) {
            0 => self.nodes[c].restore(&self.last[c]).unwrap(),
            1 => self.older.front().into_iter().for_each(|old| self.nodes[c].restore(&old[c]).unwrap()),
            _ => {}
        }
    }

    fn agents_die(&mut self) {
        for c in 0..self.nodes.len() {
            if self.happens(self.habits.dies) {
                self.comes_back(c);
            }
        }
        let saved: Vec<Vec<u8>> = self.nodes.iter().map(ClientNode::save).collect();
        self.largest.1 = saved.iter().map(Vec::len).fold(self.largest.1, usize::max);
        self.older.push_back(saved);
        if self.older.len() > OLD {
            self.older.pop_front();
        }
    }

    /// The server saves before it sends; sometimes it then dies.
    fn server_dies(&mut self, todo: Todo) -> Todo {
        let saved = self.server.save();
        self.largest.0 = self.largest.0.max(saved.len());
        if self.happens(self.habits.server_dies) {
            self.server = ServerNode::new(&self.federation).unwrap();
            self.server.restore(&saved).unwrap();
            assert_eq!((self.server.todo(), self.server.save()), (&todo, saved));
        }
        todo
    }

    /// A message to an agent, which takes only what the server sent it. What is refused changes nothing.
    fn hand(&mut self, c: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let before = self.nodes[c].save();
        match self.nodes[c].handle(bytes) {
            Ok(answer) => {
                let is_sent = [c, ALL].into_iter().any(|named| self.sent.contains(&(named, bytes.to_vec())));
                assert!(is_sent, "agent {c} takes what nobody sent it: {bytes:?}");
                self.last[c] = self.nodes[c].save();
                self.made.extend(answer.iter().map(|answer| (c, answer.clone())));
                answer
            }
            Err(e) => {
                assert!(!e.to_string().is_empty());
                assert_eq!(self.nodes[c].save(), before, "{e}");
                None
            }
        }
    }

    /// An answer as from an agent, of which the server takes only what that agent answered, and that once.
    fn take(&mut self, c: usize, bytes: &[u8]) {
        let before = self.server.save();
        match self.server.take(c, bytes) {
            Ok(()) => {
                assert!(self.made.contains(&(c, bytes.to_vec())), "the server takes what agent {c} did not answer: {bytes:?}");
                let front = Message::front(bytes).unwrap();
                if self.counted.insert((front.round, front.exchange, c), bytes.to_vec()).is_some() {
                    assert_eq!(self.server.save(), before, "an answer counts twice");
                }
            }
            Err(e) => {
                // Whoever is out of step is sent its control next.
                let is_noted = self.server.standing(c) == AgentStatus::OutOfStep;
                assert!(is_noted || self.server.save() == before, "{e}");
            }
        }
    }

    /// Sends messages down, in any order; the answers that agents make, each as often as its agent made it.
    fn down(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) -> Vec<(usize, Vec<u8>)> {
        let mut answers = self.late_messages();
        for i in any_order(&mut self.draws, to.len()) {
            let (c, bytes) = (to[i], &bytes[i]);
            match self.fate() {
                MessageOutcome::Lost => {}
                fate @ (MessageOutcome::CutOff | MessageOutcome::Flipped) => {
                    let bad = damaged(&mut self.draws, bytes, fate);
                    assert_eq!(self.hand(c, &bad), None);
                }
                MessageOutcome::Late => {
                    let due = self.later();
                    self.late_down.push((due, c, bytes.to_vec()));
                }
                fate => {
                    let first = self.hand(c, bytes);
                    if fate == MessageOutcome::Twice {
                        assert_eq!(self.hand(c, bytes), first, "a repeated question gets the same bytes");
                    }
                    if self.happens(self.habits.dies) {
                        // It dies after its answer has left, comes back, and is asked the same again.
                        self.comes_back(c);
                        answers.extend(self.hand(c, bytes).map(|answer| (c, answer)));
                    }
                    if fate == MessageOutcome::Misdelivered {
                        let other = self.another(c);
                        answers.extend(self.hand(other, bytes).map(|answer| (other, answer)));
                    }
                    answers.extend(first.map(|answer| (c, answer)));
                }
            }
        }
        answers
    }

    /// The messages down that come now.
    fn late_messages(&mut self) -> Vec<(usize, Vec<u8>)> {
        let (now, n) = (self.server.opened(), self.nodes.len());
        let (due, later) = std::mem::take(&mut self.late_down).into_iter().partition(|(due, ..)| *due <= now);
        self.late_down = later;
        let due: Vec<OnItsWay> = due;
        due.into_iter().filter(|(_, c, _)| *c < n).filter_map(|(_, c, bytes)| Some((c, self.hand(c, &bytes)?))).collect()
    }

    /// Sends answers up; the one that lies sends others.
    fn up(&mut self, answers: Vec<(usize, Vec<u8>)>) {
        let now = self.server.opened();
        let (due, later) = std::mem::take(&mut self.late_up).into_iter().partition(|(due, ..)| *due <= now);
        self.late_up = later;
        let due: Vec<OnItsWay> = due;
        due.into_iter().for_each(|(_, c, bytes)| self.take(c, &bytes));
        let is_hurried = self.happens(self.habits.hurried);
        for i in any_order(&mut self.draws, answers.len()) {
            let (c, honest) = (answers[i].0, &answers[i].1);
            let answer = self.said(c, honest, &answers);
            if is_hurried && self.server.answered() >= self.habits.least {
                self.late_up.push((now, c, answer));
                continue;
            }
            match self.fate() {
                MessageOutcome::Lost => {}
                fate @ (MessageOutcome::CutOff | MessageOutcome::Flipped) => {
                    let bad = damaged(&mut self.draws, &answer, fate);
                    self.take(c, &bad);
                }
                MessageOutcome::Late => {
                    let due = self.later();
                    self.late_up.push((due, c, answer));
                }
                MessageOutcome::Misdelivered => {
                    let other = self.another(c);
                    self.take(other, &answer);
                }
                fate => {
                    self.take(c, &answer);
                    if fate == MessageOutcome::Twice {
                        self.take(c, &answer);
                    }
                }
            }
        }
    }

    /// What an agent says in place of its answer.
    fn said(&mut self, c: usize, honest: &[u8], answers: &[(usize, Vec<u8>)]) -> Vec<u8> {
        if self.places[c] != LIAR || !self.happens(self.habits.lies) {
            return honest.to_vec();
        }
        let uplink = Arc::clone(self.federation.uplink());
        let wire = Wire { codec: &*uplink.codec, seed: SEED, sender: Some(c) };
        let (envelope, mut message) = wire.read(honest).expect("an agent's answer");
        let with = |x: f64, message: &mut Message| {
            for (_, body) in &mut message.parts {
                if let Body::Numbers(all) | Body::Sparse { value: all, .. } = body {
                    all.fill(x);
                }
            }
        };
        match self.one_of(5) {
            0 => message.parts = vec![(Part::Diverged, Body::Numbers(Vec::new()))],
            1 if self.has_medians => with(1e200, &mut message),
            2 => with(f64::NAN, &mut message),
            3 => message.round = (1 << 32) - 3,
            // The answer of another, as its own.
            _ => return answers[self.one_of(answers.len())].1.clone(),
        }
        let lie = wire.write(&envelope, &message);
        if message.round != (1 << 32) - 3 {
            self.made.insert((c, lie.clone()));
        }
        lie
    }

    /// Somebody asks a question of a round that is never reached, and messages of other federations come to this one and the other way
    /// round. None of them is taken.
    fn confuse(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) {
        let Some(i) = (!to.is_empty()).then(|| self.one_of(to.len())) else { return };
        let (c, uplink) = (to[i], Arc::clone(self.federation.uplink()));
        let wire = Wire { codec: &*uplink.downlink, seed: SEED, sender: None };
        let (envelope, _, message) = wire.read_both(&bytes[i]).expect("a message of the server");
        let forged = wire.write(&envelope, &Message { round: (1 << 32) - 3, ..message });
        assert_eq!(self.hand(c, &forged), None);
        for which in 0..self.strangers.len() {
            let Stranger { server, agent } = &mut self.strangers[which];
            let (Todo::Ask { to, bytes: theirs } | Todo::Tell { to, bytes: theirs }) = server.open() else { continue };
            let theirs = to.first().filter(|c| **c == 0).map(|_| theirs[0].clone());
            let answer = theirs.as_ref().and_then(|bytes| agent.handle(bytes).ok()?);
            assert!(agent.handle(&bytes[i]).is_err() && server.take(0, &bytes[i]).is_err());
            let (of_agent, of_server) = (agent.save(), server.save());
            server.close();
            assert!(self.nodes[0].restore(&of_agent).is_err() && self.server.restore(&of_server).is_err());
            theirs.into_iter().for_each(|bytes| assert_eq!(self.hand(0, &bytes), None));
            answer.into_iter().for_each(|bytes| self.take(0, &bytes));
        }
    }

    /// Those who are reached in this round: at least one.
    fn reached(&mut self) -> Vec<usize> {
        let reached: Vec<usize> = (0..self.nodes.len()).filter(|_| !self.happens(self.habits.unreachable)).collect();
        if reached.is_empty() { vec![0] } else { reached }
    }

    /// Carries a message down, and the answers up.
    fn carry(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) {
        for bytes in bytes {
            self.sent.insert((Message::front(bytes).unwrap().envelope.agent, bytes.to_vec()));
        }
        let answers = self.down(to, bytes);
        self.up(answers);
    }

    /// Carries an exchange, to its end or until the round is given up.
    fn exchange(&mut self, mut to: Vec<usize>, mut bytes: Vec<Arc<[u8]>>) -> Todo {
        let asked = self.server.coordinator().asked().len();
        let needed = self.habits.least.min(asked);
        self.carry(&to, &bytes);
        for _ in 0..self.habits.repeats {
            let awaited = self.server.may_still_answer();
            if self.server.answered() >= needed || awaited.is_empty() {
                break;
            }
            (to, bytes) = to.into_iter().zip(bytes).filter(|(c, _)| awaited.contains(c)).unzip();
            self.carry(&to, &bytes);
        }
        // Who waits for all goes on without those who cannot answer any more.
        let is_enough = self.server.answered() >= needed || self.habits.least == usize::MAX;
        if is_enough {
            return self.server.close();
        }
        // The answers of a round that is given up have not counted: copies that come late may.
        let given_up = self.server.opened() - 1;
        self.counted.retain(|(round, ..), _| *round != given_up);
        self.server.give_up()
    }

    pub fn round(&mut self) {
        self.agents_die();
        let reached = self.reached();
        let mut todo = self.server.open_for(Some(&reached));
        if let (true, Todo::Ask { to, bytes }) = (self.habits.lost > 0.0 && self.happens(0.2), &todo) {
            self.confuse(to, bytes);
        }
        loop {
            match self.server_dies(todo) {
                Todo::Ask { to, bytes } => todo = self.exchange(to, bytes),
                Todo::Tell { .. } => panic!("what is told travels with the next question"),
                Todo::RoundOver => break,
            }
        }
        // Now and then the server tells agents the rest, as at the end of a federation that goes on all the same.
        if self.server.opened().is_multiple_of(23)
            && let Todo::Tell { to, bytes } = self.server.finish()
        {
            self.carry(&to, &bytes);
        }
    }

    /// The agents with these data take part from now on, with equal weights.
    pub fn regroup(&mut self, places: &[usize]) {
        let next = self.federation.next_epoch(vec![1.0 / places.len() as f64; places.len()]).unwrap();
        let from: Vec<Option<usize>> = places.iter().map(|place| self.places.iter().position(|old| old == place)).collect();
        let stay = |(agent, old): (usize, &Option<usize>)| match old {
            Some(old) => {
                let (federation, number) = announced(&self.federation, &announce(&next, agent)).unwrap();
                assert_eq!(federation.digest(), next.digest());
                self.nodes[*old].regrouped(&federation, number).unwrap()
            }
            None => node(&next, &self.field, places[agent], agent),
        };
        let nodes: Vec<ClientNode> = from.iter().enumerate().map(stay).collect();
        self.server = self.server.regrouped(&next, &from).unwrap();
        (self.nodes, self.federation, self.places) = (nodes, next, places.to_vec());
        self.last = self.nodes.iter().map(ClientNode::save).collect();
        self.older.clear();
        self.sent.clear();
        self.made.clear();
        self.counted.clear();
    }

    /// Whoever was excluded is believed again.
    pub fn readmit_all(&mut self) {
        (0..self.nodes.len()).for_each(|c| {
            self.server.readmit(c);
        });
    }

    /// `|sum_c p_c xi_c|` over the controls that the server will have each agent hold, if it keeps any.
    pub fn control_sum(&self) -> Option<f64> {
        let (mut sum, weights) = (vec![0.0; self.field.dim()], self.federation.weights());
        let are_kept = self.server.each_control(&mut |c, xi| sum.iter_mut().zip(xi).for_each(|(s, x)| *s += weights[c] * x));
        are_kept.then(|| fedsa::linalg::norm_sq(&sum).sqrt())
    }

    /// After rounds in which nothing happens, the largest difference of an agent's control from the server's copy.
    pub fn controls_apart(&mut self) -> f64 {
        self.habits = QUIET;
        (0..30).for_each(|_| self.round());
        if let Todo::Tell { to, bytes } = self.server.finish() {
            self.carry(&to, &bytes);
        }
        let apart = |(c, node): (usize, &ClientNode)| {
            let own = node.control(self.server.theta(), self.server.opened(), true).expect("a method with control variates");
            crate::common::distance(&own, self.server.control(c).unwrap())
        };
        self.nodes.iter().enumerate().map(apart).fold(0.0, f64::max)
    }

    /// `||theta_t - theta*||^2`.
    pub fn error(&self) -> f64 {
        distance_sq(self.server.theta(), self.field.root().unwrap())
    }

    /// The most bytes that the server and an agent have saved since the last call.
    pub fn take_largest(&mut self) -> (usize, usize) {
        std::mem::take(&mut self.largest)
    }
}
