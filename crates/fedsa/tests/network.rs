//! Halves that exchange bytes over a network that loses, repeats, delays, reorders, damages and misdelivers messages,
//! while agents and server die and come back.

mod checks;
mod links;
mod server_control;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::common::adversary::{MessageOutcome, another, any_order, damaged, fate};
use crate::common::{EXACT, bits, method};
use fedsa::kernel::Isa;
use fedsa::linalg::distance_sq;
use fedsa::message::{Message, Part};
use fedsa::method::MethodSettings;
use fedsa::metrics::Observable;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::{NoFiles, ProblemSettings as _};

const SEED: u64 = 5;

/// Six agents that differ, without noise.
fn six() -> Arc<dyn Field> {
    let garnet =
        Garnet::default().with_agents(6).with_states(10).with_features(3).with_gamma(0.8).with_heterogeneity(Heterogeneity::Independent);
    garnet.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap()
}

/// How often the network and the nodes misbehave.
#[derive(Clone, Copy)]
struct Habits {
    /// A message is lost.
    lost: f64,
    /// A message meets each of the other fates.
    other: f64,
    /// An agent dies in a round.
    agent_dies: f64,
    /// The server dies before it sends.
    server_dies: f64,
}

const HOSTILE: Habits = Habits { lost: 0.3, other: 0.05, agent_dies: 0.01, server_dies: 0.02 };

/// A federation on such a network.
struct World<'a> {
    federation: Federation,
    field: &'a Arc<dyn Field>,
    nodes: Vec<ClientNode>,
    server: ServerNode,
    habits: Habits,
    draws: Stream,
    /// What agents saved: after their last message, and now and then.
    last: Vec<Vec<u8>>,
    older: Vec<Vec<u8>>,
    /// Messages that come after their round: down to agents, up from agents.
    late_down: Vec<(usize, Arc<[u8]>)>,
    late_up: Vec<(usize, Vec<u8>)>,
    /// The control that each answer was computed with, for methods that learn means from models.
    controls: HashMap<Vec<u8>, Vec<f64>>,
    /// The rounds, exchanges and agents whose answers counted.
    counted: HashSet<(u64, u8, usize)>,
}

impl<'a> World<'a> {
    fn new(field: &'a Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, habits: Habits) -> Self {
        let federation = Federation::new(method, uplink, field.weights().to_vec(), SEED, vec![0.0; field.dim()]).unwrap();
        let federation = crate::common::with_keys(federation);
        let nodes: Vec<_> =
            (0..field.agents()).map(|c| crate::common::keyed(ClientNode::new(&federation, field, c, c).unwrap(), &federation, c)).collect();
        let server = ServerNode::new(&federation).unwrap();
        let saved: Vec<Vec<u8>> = nodes.iter().map(ClientNode::save).collect();
        Self {
            federation,
            field,
            nodes,
            server,
            habits,
            draws: stream(9, Purpose::Delay, 0, 0),
            last: saved.clone(),
            older: saved,
            late_down: Vec::new(),
            late_up: Vec::new(),
            controls: HashMap::new(),
            counted: HashSet::new(),
        }
    }

    fn happens(&mut self, p: f64) -> bool {
        self.draws.uniform() < p
    }

    fn fate(&mut self) -> MessageOutcome {
        fate(&mut self.draws, self.habits.lost, self.habits.other)
    }

    fn damaged(&mut self, bytes: &[u8], fate: MessageOutcome) -> Vec<u8> {
        damaged(&mut self.draws, bytes, fate)
    }

    fn another(&mut self, c: usize) -> usize {
        another(&mut self.draws, self.nodes.len(), c)
    }

    /// An agent from its last state, an older one, or none.
    fn comes_back(&mut self, c: usize) {
        let node = ClientNode::new(&self.federation, self.field, c, c).unwrap();
        self.nodes[c] = crate::common::keyed(node, &self.federation, c);
        match self.draws.bits() % 3 {
            0 => self.nodes[c].restore(&self.last[c]).unwrap(),
            1 => self.nodes[c].restore(&self.older[c]).unwrap(),
            _ => {}
        }
    }

    /// Agents die and come back from their last state, an older one, or none.
    fn agents_die(&mut self, t: u64) {
        for c in 0..self.nodes.len() {
            if self.happens(self.habits.agent_dies) {
                self.comes_back(c);
            }
            if t % 50 == 7 * c as u64 {
                self.older[c] = self.nodes[c].save();
            }
        }
    }

    /// The server saves before it sends; sometimes it then dies.
    fn server_dies(&mut self, todo: Todo) -> Todo {
        if !self.happens(self.habits.server_dies) {
            return todo;
        }
        let saved = self.server.save();
        self.server = ServerNode::new(&self.federation).unwrap();
        self.server.restore(&saved).unwrap();
        assert_eq!(*self.server.todo(), todo);
        todo
    }

    /// A message to an agent; whatever it is, what is refused changes nothing.
    fn hand(&mut self, c: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let before = self.nodes[c].save();
        match self.nodes[c].handle(bytes) {
            Ok(answer) => {
                self.last[c] = self.nodes[c].save();
                let control = self.nodes[c].control(self.server.theta(), self.server.opened() - 1, false);
                if let (Some(answer), Some(control)) = (&answer, control) {
                    self.controls.insert(answer.clone(), control);
                }
                answer
            }
            Err(e) => {
                assert!(!e.to_string().is_empty());
                assert_eq!(self.nodes[c].save(), before);
                None
            }
        }
    }

    /// Sends messages down; the answers that agents make, each as often as its agent made it.
    fn down(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) -> Vec<(usize, Vec<u8>)> {
        let mut answers = Vec::new();
        let order = any_order(&mut self.draws, to.len());
        if !self.late_down.is_empty() && self.happens(0.5) {
            let (c, bytes) = self.late_down.remove(0);
            answers.extend(self.hand(c, &bytes).map(|answer| (c, answer)));
        }
        for i in order {
            let (c, bytes) = (to[i], &bytes[i]);
            match self.fate() {
                MessageOutcome::Lost => {}
                fate @ (MessageOutcome::CutOff | MessageOutcome::Flipped) => {
                    let bad = self.damaged(bytes, fate);
                    assert!(self.nodes[c].handle(&bad).is_err(), "{fate:?}");
                }
                MessageOutcome::Late => self.late_down.push((c, Arc::clone(bytes))),
                fate => {
                    let first = self.hand(c, bytes);
                    if fate == MessageOutcome::Twice {
                        assert_eq!(self.hand(c, bytes), first, "a repeated question gets the same bytes");
                    }
                    if self.happens(self.habits.agent_dies) {
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

    /// Sends answers up.
    fn up(&mut self, answers: Vec<(usize, Vec<u8>)>) {
        if !self.late_up.is_empty() && self.happens(0.5) {
            let (c, bytes) = self.late_up.remove(0);
            assert!(self.server.take(c, &bytes).is_err(), "an answer to an earlier question");
        }
        for (c, answer) in answers {
            match self.fate() {
                MessageOutcome::Lost => {}
                fate @ (MessageOutcome::CutOff | MessageOutcome::Flipped) => {
                    let bad = self.damaged(&answer, fate);
                    assert!(self.server.take(c, &bad).is_err(), "{fate:?}");
                }
                MessageOutcome::Late => self.late_up.push((c, answer)),
                MessageOutcome::Misdelivered => {
                    let other = self.another(c);
                    assert!(self.server.take(other, &answer).is_err(), "as from somebody else");
                }
                fate => {
                    let is_taken = self.server.take(c, &answer).is_ok();
                    if fate == MessageOutcome::Twice {
                        assert_eq!(self.server.take(c, &answer).is_ok(), is_taken);
                    }
                    if is_taken {
                        if let (Some(own), Some(copy)) = (self.controls.get(&answer), self.server.control(c)) {
                            let apart = crate::common::distance(own, copy);
                            assert!(
                                apart < 1e-9,
                                "an answer with another control counts: {apart:e} apart, agent {c}, round {}",
                                self.server.opened() - 1
                            );
                        }
                        self.counted.insert((self.server.opened() - 1, exchange_of(&answer), c));
                    }
                }
            }
        }
    }

    fn round(&mut self) {
        self.controls.clear();
        self.agents_die(self.server.opened());
        let mut todo = self.server.open();
        loop {
            match self.server_dies(todo) {
                Todo::Ask { to, bytes } => {
                    let answers = self.down(&to, &bytes);
                    self.up(answers);
                    todo = self.server.close();
                }
                Todo::Tell { .. } => panic!("what is told travels with the next question"),
                Todo::RoundOver => break,
            }
        }
        // Now and then the server tells agents the rest, as at the end of a federation that goes on all the same.
        if self.server.opened().is_multiple_of(23)
            && let Todo::Tell { to, bytes } = self.server.finish()
        {
            assert!(self.down(&to, &bytes).iter().all(|(_, answer)| exchange_of(answer) != u8::MAX));
        }
    }

    /// `|sum_c p_c xi_c|` over the controls that the server will have each agent hold.
    fn control_sum(&self) -> f64 {
        let mut sum = vec![0.0; self.field.dim()];
        let weights = self.field.weights();
        let are_kept = self.server.each_control(&mut |c, xi| sum.iter_mut().zip(xi).for_each(|(s, x)| *s += weights[c] * x));
        assert!(are_kept, "a method with control variates");
        fedsa::linalg::norm_sq(&sum).sqrt()
    }

    /// After rounds in which nothing happens, the largest difference of an agent's control from the server's copy.
    fn controls_apart(&mut self) -> f64 {
        self.habits = Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 };
        self.late_down.clear();
        self.late_up.clear();
        (0..30).for_each(|_| self.round());
        if let Todo::Tell { to, bytes } = self.server.finish() {
            assert!(self.down(&to, &bytes).is_empty());
        }
        let apart = |(c, node): (usize, &ClientNode)| {
            let own = node.control(self.server.theta(), self.server.opened(), true).expect("a method with control variates");
            crate::common::distance(&own, self.server.control(c).unwrap())
        };
        self.nodes.iter().enumerate().map(apart).fold(0.0, f64::max)
    }

    fn error(&self) -> f64 {
        distance_sq(self.server.theta(), self.field.root().unwrap())
    }
}

/// The exchange that a message's bytes name.
fn exchange_of(bytes: &[u8]) -> u8 {
    bytes[1]
}

fn scafflsa(rest: &str) -> Box<dyn MethodSettings> {
    method("scafflsa", &format!(r#"{{"step_size": 0.1, "local_steps": 5{rest}}}"#))
}

fn scaffold() -> Box<dyn MethodSettings> {
    method("scaffold", r#"{"step_size": 0.1, "local_steps": 5, "participants": 4}"#)
}

/// One answer that is lost, and messages that come twice, over a link that calls itself clear.
#[test]
fn one_lost_answer_and_repeated_messages_do_no_lasting_harm() {
    let field = six();
    for rule in ["auto", "acknowledged"] {
        let method = scafflsa(&format!(r#", "rule": "{rule}""#));
        let after = |habits: Habits, lost: Option<u64>| {
            let mut world = World::new(&field, &*method, &EXACT, habits);
            for t in 0..8000 {
                if Some(t) == lost {
                    let Todo::Ask { to, bytes } = world.server.open() else { panic!("a question") };
                    let answers: Vec<_> = to.iter().zip(&bytes).filter_map(|(c, bytes)| Some((*c, world.hand(*c, bytes)?))).collect();
                    world.server.receive(&answers[1..]);
                } else {
                    world.round();
                }
            }
            (world.error(), bits(world.server.theta()))
        };
        let quiet = Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 };
        let (best, whole) = after(quiet, None);
        assert!(best < 1e-18, "{best:e}");
        let (error, _) = after(quiet, Some(30));
        assert!(error < 1e-18, "{rule}: a lost answer: {error:e}");
        // Everything twice, and a server that dies often: the same bits.
        let (_, twice) = after(Habits { other: 1.0, server_dies: 0.3, ..quiet }, None);
        assert_eq!(twice, whole, "{rule}: messages that come twice count once");
    }
}

/// Without noise the root is reached, whatever the network and the nodes do.
#[test]
fn a_hostile_network_keeps_nobody_from_the_root() {
    let field = six();
    let alike = crate::common::field(
        &crate::common::linear(&[([[1.0, 0.3, 0.0], [-0.2, 1.5, 0.1], [0.0, 0.4, 0.8]], [1.0, -2.0, 0.5]); 6]),
        Law::Mean,
    );
    let random = |rest: &str| method("scafflsa-random", &format!(r#"{{"step_size": 0.1, "talk_probability": 0.2{rest}}}"#));
    type Case<'a> = (&'a str, &'a Arc<dyn Field>, Box<dyn MethodSettings>, u64);
    let cases: [Case<'_>; 9] = [
        ("scafflsa", &field, scafflsa(""), 40_000),
        ("scafflsa, acknowledged", &field, scafflsa(r#", "rule": "acknowledged""#), 40_000),
        ("scafflsa, some of the agents", &field, scafflsa(r#", "participants": 4"#), 80_000),
        ("scafflsa, a global step", &field, scafflsa(r#", "global_step_size": 0.7"#), 60_000),
        ("scaffold, some of the agents", &field, scaffold(), 60_000),
        ("scafflsa-random", &field, random(""), 40_000),
        ("scafflsa-random, acknowledged", &field, random(r#", "rule": "acknowledged""#), 40_000),
        ("fedhsa", &field, method("fedhsa", r#"{"step_size": 0.1, "local_steps": 5, "missing": "last"}"#), 40_000),
        ("fedlsa, agents alike", &alike, method("fedlsa", r#"{"step_size": 0.1, "local_steps": 5}"#), 40_000),
    ];
    for (name, field, method, rounds) in cases {
        let mut world = World::new(field, &*method, &EXACT, HOSTILE);
        let has_controls = world.server.control(0).is_some();
        for t in 0..rounds {
            world.round();
            if has_controls && t % 97 == 0 {
                let sum = world.control_sum();
                assert!(sum < 1e-11, "{name}, round {t}: {sum:e}");
            }
        }
        let error = world.error();
        assert!(error < 1e-18, "{name}: {error:e}");
        if has_controls {
            let apart = world.controls_apart();
            assert!(apart < 1e-11, "{name}: an agent's control and its copy are {apart:e} apart");
        }
    }
}

/// Along chains and with error feedback an agent that dies answers the same question differently: controls stay in step
/// with the answers that counted.
#[test]
fn controls_are_those_of_the_answers_that_counted() {
    let coarse = crate::common::link(r#"{"kind": "quantised", "bits": 6}"#, true, &[]).unwrap();
    let noise = Some(Noise::new(0.3, 0.6, 1));
    let problem = LinearSystems::default().with_agents(6).with_dim(3).with_noise(noise);
    let field = crate::common::field(&problem, Law::Markov);
    let rules = ["", r#", "participants": 4"#, r#", "rule": "acknowledged""#];
    for link in [&EXACT, &coarse] {
        for method in rules.map(scafflsa).into_iter().chain([scaffold()]) {
            for agent_dies in [0.01, 0.1] {
                let mut world = World::new(&field, &*method, link, Habits { agent_dies, ..HOSTILE });
                (0..3000).for_each(|_| world.round());
                let (sum, apart) = (world.control_sum(), world.controls_apart());
                assert!(sum < 1e-11 && apart < 1e-11, "{method:?}: {sum:e}, {apart:e}");
            }
        }
    }
}

/// A question is lost with what is told in it: the next one contains the agent's control, and its answer counts.
#[test]
fn one_lost_question_costs_its_answer_alone() {
    let field = crate::common::field(&LinearSystems::default().with_agents(20).with_dim(3), Law::Mean);
    let method = scafflsa(r#", "participants": 2"#);
    let mut world = World::new(&field, &*method, &EXACT, Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 });
    let (mut told, mut lost, mut asked_again) = (0, None, false);
    for t in 0..600 {
        let mut todo = world.server.open();
        while let Todo::Ask { to, bytes } = todo {
            for (c, bytes) in to.iter().zip(&bytes) {
                let streams = |_, _| Stream::default();
                let (is_told, question) = Message::front(bytes).unwrap().messages(&*EXACT.codec, 3, &[], streams).unwrap();
                told += u64::from(is_told.is_some());
                if t >= 20 && lost.is_none() && is_told.is_some() {
                    lost = Some(*c);
                    continue;
                }
                let has_control = question.find(Part::Control).is_some();
                assert_eq!(has_control, lost == Some(*c) && !asked_again, "agent {c} in round {t}");
                asked_again |= has_control;
                let answer = world.hand(*c, bytes).unwrap();
                world.server.take(*c, &answer).unwrap();
            }
            todo = world.server.close();
        }
    }
    // All that is told travels with a question, except to agents that have not been asked yet.
    assert!(lost.is_some() && asked_again && told > 2 * 600 - 30, "{told}");
}

/// A run that leaves every bound is over, and said to be.
#[test]
fn a_federation_that_diverges_says_so() {
    let field = crate::common::field(&LinearSystems::default().with_agents(3).with_dim(2), Law::Mean);
    let method = method("fedlsa", r#"{"step_size": 3.0, "local_steps": 5}"#);
    let mut halves = crate::common::Halves::new(&field, &*method, &EXACT, SEED).unwrap();
    (0..200).for_each(|_| halves.round());
    assert!(halves.server.diverged().is_some_and(|round| round < 20));
    assert_eq!(*halves.server.todo(), Todo::RoundOver);
    assert!(halves.server.opened() < 20);
}

/// Agents whose numbers overflow within a local phase say so, all of them or one: the federation stops in the round in which the
/// engine stops.
#[test]
fn a_federation_whose_agents_overflow_stops_where_the_engine_stops() {
    let stiff = |slopes: [f64; 3]| crate::common::linear(&slopes.map(|a| ([[a]], [1.0])));
    for (slopes, what) in [([5.0; 3], "all agents"), ([0.5, 5.0, 0.5], "one agent")] {
        let field = crate::common::field(&stiff(slopes), Law::Mean);
        for kind in ["fedlsa", "scafflsa", "fedhsa"] {
            let method = method(kind, r#"{"step_size": 1.0, "local_steps": 2000}"#);
            let mut run = crate::common::run(&field, &*method, &EXACT, SEED);
            run.step();
            assert_eq!(run.diverged(), Some(1), "{kind}, {what}");
            let mut halves = crate::common::Halves::new(&field, &*method, &EXACT, SEED).unwrap();
            halves.round();
            assert_eq!(halves.server.diverged(), run.diverged(), "{kind}, {what}");
            assert_eq!(halves.server.open(), Todo::RoundOver);
        }
    }
    // An agent that computes alone: its gradient overflows at a finite theta, and not those of the others.
    let field = crate::common::field(&stiff([0.5, 1e308, 0.5]), Law::Mean);
    let method = method("gd", r#"{"step_size": 30.0}"#);
    let mut run = crate::common::run(&field, &*method, &EXACT, SEED);
    let mut halves = crate::common::Halves::new(&field, &*method, &EXACT, SEED).unwrap();
    for _ in 0..2 {
        run.step();
        halves.round();
    }
    assert_eq!((run.diverged(), halves.server.diverged()), (Some(2), Some(2)));
}

/// Step sizes that change: what an agent missed it cannot work out from the next model, and is told.
#[test]
fn controls_sum_to_zero_where_step_sizes_change() {
    let field = six();
    let method = method("scafflsa", r#"{"step_size": {"c": 2.0, "t0": 20.0, "power": 0.5, "per": "step"}, "local_steps": 5}"#);
    let mut world = World::new(&field, &*method, &EXACT, HOSTILE);
    for t in 0..20_000 {
        world.round();
        let sum = world.control_sum();
        assert!(sum < 1e-9, "round {t}: {sum:e}");
    }
    // Step sizes sum to about 4 (5 t)^(1/2) up to round t: a fortieth of the rounds where nothing is lost has a sixth of the
    // sum, and about a third of the answers count here.
    let mut quiet = World::new(&field, &*method, &EXACT, Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 });
    (0..500).for_each(|_| quiet.round());
    assert!(world.error() < quiet.error(), "{:e}, {:e}", world.error(), quiet.error());
}

/// FedNL's agents and server hold the same learned Hessians again once the network behaves, whatever was lost, repeated or
/// forgotten before, and the method reaches the root.
#[test]
fn learned_hessians_survive_a_hostile_network() {
    let dim = 4;
    let field = crate::common::field(&RandomLogistic::default().with_agents(6).with_dim(dim).with_points(30), Law::Mean);
    for settings in [
        r#"{"compressor": "rank-1"}"#,
        r#"{"compressor": "rank-1", "pair_bits": 9}"#,
        r#"{"compressor": "top-k", "k": 3, "line_search": true}"#,
        r#"{"compressor": "rand-k", "k": 4, "first_hessian": "mu-identity", "mu": 0.01}"#,
        r#"{"compressor": "natural", "option": "projection", "mu": 0.01}"#,
        r#"{"compressor": "full"}"#,
        r#"{"compressor": "rank-1", "participants": 4}"#,
    ] {
        let method = method("fednl", settings);
        let mut world = World::new(&field, &*method, &EXACT, HOSTILE);
        (0..300).for_each(|_| world.round());
        assert!(world.server.theta().iter().all(|x| x.is_finite()), "{settings}");
        world.habits = Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 };
        (world.late_down, world.late_up) = (Vec::new(), Vec::new());
        (0..3).for_each(|_| world.round());
        let before = world.server.save();
        world.round();
        if !settings.contains("participants") {
            // After its answer an agent has made all changes but the one it has just sent: its matrix, as bytes, is the
            // server's copy before the round.
            let len = 8 * dim * (dim + 1) / 2;
            for (c, node) in world.nodes.iter().enumerate() {
                let own = node.save();
                let is_number = |bytes: &&[u8]| bytes.iter().any(|b| *b != 0);
                let is_copied = |bytes: &[u8]| before.windows(len).any(|copy| copy == bytes);
                assert!(own.windows(len).filter(is_number).any(is_copied), "{settings}: agent {c} has learned another matrix");
            }
        }
        (0..300).for_each(|_| world.round());
        assert!(world.error() < 1e-18, "{settings}: {:e}", world.error());
    }
}

/// The bits that Q-SHED's server holds are those of the agents' eigenvectors, whatever was lost, repeated or forgotten: once the network
/// behaves and all bits have arrived, steps on quadratic losses are Newton's.
#[test]
fn refined_eigenvectors_survive_a_hostile_network() {
    let field = crate::common::field(&*crate::common::objectives(6)[0].1, Law::Mean);
    for (settings, quiet) in [
        (r#"{"renewal": {"schedule": "once"}, "max_bits": 32, "budget": 1000}"#, 6),
        (r#"{"renewal": {"schedule": "once"}, "max_bits": 32, "budget": 5}"#, 30),
        (r#"{"renewal": {"schedule": "every", "period": 40}, "max_bits": 32, "budget": 40}"#, 40),
        (r#"{"renewal": {"schedule": "once"}, "allocation": "ideal", "budget": 40}"#, 6),
        (r#"{"renewal": {"schedule": "once"}, "allocation": "first-vectors", "max_bits": 32, "budget": 40}"#, 10),
    ] {
        let method = method("q-shed", settings);
        let mut world = World::new(&field, &*method, &EXACT, HOSTILE);
        (0..300).for_each(|_| world.round());
        let before = world.error();
        assert!(before.is_finite() && before > 1e-12, "{settings}: agents that differ do not settle over losses: {before:e}");
        world.habits = Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 };
        (world.late_down, world.late_up) = (Vec::new(), Vec::new());
        (0..quiet).for_each(|_| world.round());
        assert!(world.error() < 1e-24, "{settings}: {before:e}, then {:e}", world.error());
    }
}
