//! Agents that join, leave for good, and come back with or without their state, over a network that loses messages.

use std::sync::Arc;

use crate::common::adversary::any_order;
use crate::common::{EXACT, computing_alone, field, linear, method, methods};
use fedsa::enrolment::{announce, announced};
use fedsa::error::ErrorKind;
use fedsa::federation::{AnswerRules, Faults, Federation};
use fedsa::linalg::distance_sq;
use fedsa::message::{HEADER_BYTES, PART_HEADER_BYTES};
use fedsa::method::MethodSettings;
use fedsa::metrics::Observable;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::Law;

const SEED: u64 = 5;
const D: usize = 3;
/// All who ever take part.
const ALL: usize = 7;

/// The diagonal of `A_c`, and `b_c`.
fn system(c: usize) -> ([f64; D], [f64; D]) {
    let c = c as f64;
    ([0.6 + 0.2 * c, 1.7 - 0.15 * c, 1.0 + 0.1 * (c - 3.0).abs()], [1.0 - c, 0.5 * c, 2.0])
}

fn everybody() -> Arc<dyn Field> {
    let one = |c: usize| {
        let (a, b) = system(c);
        (std::array::from_fn(|i| std::array::from_fn(|j| if i == j { a[i] } else { 0.0 })), b)
    };
    field(&linear::<D>(&(0..ALL).map(one).collect::<Vec<_>>()), Law::Mean)
}

/// The mean of the diagonals over these agents, and their root.
fn mean(places: &[usize], weights: &[f64]) -> ([f64; D], [f64; D]) {
    let sum = |of: &dyn Fn(usize) -> f64| places.iter().zip(weights).map(|(c, p)| p * of(*c)).sum::<f64>();
    let a = std::array::from_fn(|i| sum(&|c| system(c).0[i]));
    (a, std::array::from_fn(|i| sum(&|c| system(c).1[i]) / a[i]))
}

/// A state of an agent, with the epoch in which it was saved and the number that the agent had.
#[derive(Clone)]
struct Kept {
    federation: Federation,
    agent: usize,
    bytes: Vec<u8>,
}

/// A federation whose members change.
struct World {
    field: Arc<dyn Field>,
    federation: Federation,
    server: ServerNode,
    /// Where the data of each agent are, by its number.
    places: Vec<usize>,
    nodes: Vec<ClientNode>,
    /// The last state of everybody who ever took part.
    kept: Vec<Option<Kept>>,
    draws: Stream,
    lost: f64,
    dies: f64,
    /// The last question.
    asked: Option<Arc<[u8]>>,
}

impl World {
    fn new(method: &dyn MethodSettings, rules: AnswerRules) -> Self {
        let (field, places): (_, Vec<usize>) = (everybody(), (0..5).collect());
        let federation = Federation::new(method, &EXACT, vec![0.2; 5], SEED, vec![0.1; D]).unwrap().with_rules(rules).unwrap();
        let nodes = places.iter().map(|c| ClientNode::new(&federation, &field, *c, *c).unwrap()).collect();
        let server = ServerNode::new(&federation).unwrap();
        let draws = stream(33, Purpose::Delay, 0, 0);
        Self { field, federation, server, places, nodes, kept: vec![None; ALL], draws, lost: 0.2, dies: 0.02, asked: None }
    }

    fn happens(&mut self, p: f64) -> bool {
        self.draws.uniform() < p
    }

    fn keep(&mut self, agent: usize) {
        let federation = self.federation.clone();
        self.kept[self.places[agent]] = Some(Kept { federation, agent, bytes: self.nodes[agent].save() });
    }

    /// An agent that comes back with its last state, which may be of an earlier epoch, or with none.
    fn come_back(&mut self, place: usize, agent: usize) -> ClientNode {
        let new = |federation: &Federation, agent| ClientNode::new(federation, &self.field, place, agent).unwrap();
        match self.kept[place].clone() {
            Some(Kept { federation, agent: before, bytes }) if self.draws.uniform() < 0.5 => {
                let mut node = new(&federation, before);
                node.restore(&bytes).unwrap();
                if federation.epoch() == self.federation.epoch() {
                    return node;
                }
                let mut strange = new(&self.federation, agent);
                assert!(strange.restore(&bytes).is_err(), "a state of an earlier epoch");
                let (later, number) = announced(&federation, &announce(&self.federation, agent)).unwrap();
                assert_eq!((later.digest(), number), (self.federation.digest(), agent));
                node.regrouped(&later, number).unwrap()
            }
            _ => new(&self.federation, agent),
        }
    }

    fn round(&mut self) {
        for agent in 0..self.nodes.len() {
            if self.happens(self.dies) {
                self.nodes[agent] = self.come_back(self.places[agent], agent);
            }
        }
        let mut todo = self.server.open();
        loop {
            if self.happens(self.dies) {
                let saved = self.server.save();
                self.server = ServerNode::new(&self.federation).unwrap();
                self.server.restore(&saved).unwrap();
            }
            let Todo::Ask { to, bytes } = &todo else { return };
            self.asked = bytes.first().cloned();
            for (c, bytes) in to.iter().zip(bytes) {
                if self.draws.uniform() < self.lost {
                    continue;
                }
                let answer = self.nodes[*c].handle(bytes);
                if self.draws.uniform() < 0.5 {
                    self.keep(*c);
                }
                if let Ok(Some(answer)) = answer
                    && self.draws.uniform() >= self.lost
                {
                    let _ = self.server.take(*c, &answer);
                }
            }
            todo = self.server.close();
        }
    }

    /// These agents take part from now on, with these weights.
    fn regroup(&mut self, places: &[usize], weights: Vec<f64>) {
        let old_message = self.asked.take();
        (0..self.nodes.len()).for_each(|agent| self.keep(agent));
        let from: Vec<Option<usize>> = places.iter().map(|place| self.places.iter().position(|old| old == place)).collect();
        let next = self.federation.next_epoch(weights).unwrap();
        self.server = self.server.regrouped(&next, &from).unwrap();
        let stay = |(agent, old): (usize, &Option<usize>)| {
            let bytes = announce(&next, agent);
            let (federation, number) = announced(&self.federation, &bytes).unwrap();
            old.map(|old| self.nodes[old].regrouped(&federation, number).unwrap())
        };
        let stayed: Vec<Option<ClientNode>> = from.iter().enumerate().map(stay).collect();
        (self.federation, self.places) = (next, places.to_vec());
        let nodes = stayed.into_iter().enumerate().map(|(agent, node)| node.unwrap_or_else(|| self.come_back(places[agent], agent)));
        self.nodes = nodes.collect::<Vec<_>>();
        if let Some(bytes) = old_message {
            assert!(self.nodes[0].handle(&bytes).is_err(), "a message of the epoch before");
        }
        assert!(self.nodes.iter_mut().all(|node| node.handle(&[]).is_err()), "no bytes are no copy of the last message");
        if let Some(sum) = self.control_sum() {
            assert!(sum < 1e-12, "{sum:e}");
        }
    }

    /// Some agents join, leave and come back, and numbers and weights change.
    fn change(&mut self) {
        let all = any_order(&mut self.draws, ALL);
        // Four or more, so that three participants are some of them.
        let n = 4 + self.draws.bits() as usize % 3;
        let shares: Vec<f64> = (0..n).map(|_| 0.5 + self.draws.uniform()).collect();
        let sum: f64 = shares.iter().sum();
        self.regroup(&all[..n], shares.iter().map(|share| share / sum).collect());
    }

    /// `|sum_c p_c xi_c|` over the server's copies, if it keeps any.
    fn control_sum(&self) -> Option<f64> {
        let (mut sum, weights) = ([0.0; D], self.federation.weights());
        let are_kept = self.server.each_control(&mut |c, xi| sum.iter_mut().zip(xi).for_each(|(s, x)| *s += weights[c] * x));
        are_kept.then(|| fedsa::linalg::norm_sq(&sum).sqrt())
    }

    /// The distance from the root of those who take part.
    fn error(&self) -> f64 {
        distance_sq(self.server.theta(), &mean(&self.places, self.federation.weights()).1).sqrt()
    }
}

/// Every method goes on while agents come and go. Where it converges to the root, it converges to that of those who are there.
#[test]
fn every_method_goes_on_while_agents_come_and_go() {
    let some = |kind: &str| ["scafflsa", "scafflsa-random", "fedhsa", "fedlin", "scaffold"].contains(&kind);
    let alone = ["newton", "shed", "q-shed", "gd", "agd", "bfgs", "lbfgs", "giant", "fednl", "gmres", "adaptive-newton"];
    let first_order = methods(None).into_iter().chain(methods(Some(3))).filter(|(kind, _)| *kind != "one-shot");
    for (kind, method) in first_order.chain(computing_alone()) {
        let mut world = World::new(&*method, AnswerRules::default());
        for t in 0..240 {
            if t % 30 == 29 {
                world.change();
            }
            world.round();
            if let Some(sum) = world.control_sum() {
                assert!(sum < 1e-11, "{kind}, round {t}: {sum:e}");
            }
        }
        assert!(world.server.theta().iter().all(|x| x.is_finite()), "{kind}");
        assert_eq!(world.server.diverged(), None, "{kind}");
        assert_eq!((world.federation.epoch(), world.server.opened()), (8, 240));
        let of_schedule = !format!("{method:?}").contains("Constant") && some(kind);
        // Means over some of the agents have other roots, unless control variates make up for it.
        let has_own_noise = ["fedhsa", "fedlin"].contains(&kind) && format!("{method:?}").contains("participants: Some");
        if (some(kind) || alone.contains(&kind)) && !of_schedule && !has_own_noise {
            (world.lost, world.dies) = (0.0, 0.0);
            (0..600).for_each(|_| world.round());
            let error = world.error();
            assert!(error < 1e-8, "{kind} {method:?}: {error:e}");
        }
    }
}

/// What the server holds of those who left is gone at once, and what it holds of those who stay is kept, with the new weights.
#[test]
fn hessians_of_those_who_left_are_gone_at_once() {
    // The numbers of agents key what Q-SHED holds of them.
    let bits = r#"{"renewal": {"schedule": "once"}, "max_bits": 32, "budget": 1000}"#;
    for (kind, settings, places) in [("shed", r#"{"renewal": {"schedule": "once"}}"#, [4, 0, 2]), ("q-shed", bits, [0, 1, 2])] {
        let method = method(kind, settings);
        let mut world = World::new(&*method, AnswerRules::default());
        (world.lost, world.dies) = (0.0, 0.0);
        (0..12).for_each(|_| world.round());
        let hessian = |world: &World| world.server.coordinator().hessian();
        let Some(before) = hessian(&world) else { panic!("{kind} {settings} has no Hessian") };
        let weights = vec![0.5, 0.2, 0.3];
        world.regroup(&places, weights.clone());
        let after = hessian(&world).unwrap();
        let (expected, whole) = (mean(&places, &weights).0, mean(&[0, 1, 2, 3, 4], &[0.2; 5]).0);
        for i in 0..D {
            assert!((before[(i, i)] - whole[i]).abs() < 1e-9, "{kind} {settings}: {} {}", before[(i, i)], whole[i]);
            assert!((after[(i, i)] - expected[i]).abs() < 1e-9, "{kind} {settings}: {} {}", after[(i, i)], expected[i]);
        }
        (0..12).for_each(|_| world.round());
        assert!(world.error() < 1e-9, "{kind} {settings}: {:e}", world.error());
    }
}

/// Agents that come to an epoch with an older state, with none or under another number go on like those that lost nothing.
#[test]
fn agents_that_are_out_of_step_at_an_epoch_begin_anew() {
    for (kind, settings) in [
        ("shed", r#"{"renewal": {"schedule": "every", "period": 5}}"#),
        ("q-shed", r#"{"renewal": {"schedule": "once"}, "max_bits": 32, "budget": 64}"#),
        ("fednl", r#"{"compressor": "rank-1", "option": "projection", "first_hessian": "mu-identity", "mu": 0.1}"#),
    ] {
        let mut world = World::new(&*method(kind, settings), AnswerRules::default());
        (world.lost, world.dies) = (0.0, 0.0);
        (0..2).for_each(|_| world.round());
        let older = world.nodes[1].save();
        (0..4).for_each(|_| world.round());
        world.nodes[1].restore(&older).unwrap();
        world.regroup(&[0, 1, 2, 4], vec![0.25; 4]);
        world.nodes[2] = ClientNode::new(&world.federation, &world.field, 2, 2).unwrap();
        (0..8).for_each(|_| world.round());
        assert!(world.error() < 1e-12, "{kind}: {:e}", world.error());
    }
}

/// What an epoch costs: an announcement to each agent, and a control in its next question.
#[test]
fn an_epoch_costs_an_announcement_and_a_control_for_each_agent() {
    let method = method("scafflsa", r#"{"step_size": 0.1, "local_steps": 5}"#);
    let mut world = World::new(&*method, AnswerRules::default());
    (world.lost, world.dies) = (0.0, 0.0);
    (0..5).for_each(|_| world.round());
    world.regroup(&[0, 1, 5, 3], vec![0.25; 4]);
    let bytes = announce(&world.federation, 2);
    assert!((8 * 4..8 * 4 + 40).contains(&bytes.len()), "{}", bytes.len());
    let plain = HEADER_BYTES + PART_HEADER_BYTES + 8 * D;
    for extra in [PART_HEADER_BYTES + 8 * D, 0] {
        let before = world.server.coordinator().ledger().bits_down;
        world.round();
        assert_eq!(world.server.coordinator().ledger().bits_down - before, 8 * 4 * (plain + extra) as u64);
    }
}

/// An agent that is excluded and leaves: the others reach their own root, with controls that sum to zero.
#[test]
fn after_an_excluded_agent_has_left_the_rest_reaches_its_root() {
    let method = method("scafflsa", r#"{"step_size": 0.1, "local_steps": 5}"#);
    let rules = AnswerRules::default().with_faults(Faults::Exclude { norm_limit: 1e3 });
    let mut world = World::new(&*method, rules);
    (world.lost, world.dies) = (0.0, 0.0);
    (0..5).for_each(|_| world.round());
    let Todo::Ask { to, bytes } = world.server.open() else { panic!("a question") };
    for (c, bytes) in to.iter().zip(&bytes) {
        let mut answer = world.nodes[*c].handle(bytes).unwrap().unwrap();
        if *c == 1 {
            use fedsa::message::{Body, Message, Part};
            let (envelope, mut message) = Message::decode(&answer, &fedsa::uplink::codec::Exact, 99, |_, _| Stream::default()).unwrap();
            message.parts = vec![(Part::Direction, Body::Numbers(vec![1e200; D]))];
            answer = message.encode(&envelope, &fedsa::uplink::codec::Exact, &mut Stream::default());
        }
        world.server.take(*c, &answer).unwrap();
    }
    world.server.close();
    assert_eq!(world.server.coordinator().exclusions()[0].agent, 1);
    // Numbers change: its exclusion goes with it, and that of another one stays.
    world.regroup(&[4, 3, 2, 0], vec![0.25; 4]);
    assert!(world.server.coordinator().exclusions().is_empty());
    (0..600).for_each(|_| world.round());
    assert!(world.error() < 1e-10, "{:e}", world.error());
}

#[test]
fn what_is_no_next_epoch_is_refused() {
    let scafflsa = |rest: &str| method("scafflsa", &format!(r#"{{"step_size": 0.1, "local_steps": 5{rest}}}"#));
    let mut world = World::new(&*scafflsa(""), AnswerRules::default());
    world.round();
    let next = world.federation.next_epoch(vec![0.5; 2]).unwrap();
    assert_ne!(next.digest(), world.federation.next_epoch(vec![0.25; 4]).unwrap().digest());
    let same = world.federation.next_epoch(vec![0.2; 5]).unwrap();
    assert_ne!(same.digest(), world.federation.digest(), "the same weights in another epoch");
    let refused = |federation: &Federation, from: &[Option<usize>]| {
        let e = world.server.regrouped(federation, from).err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Setting);
        e.key.to_string()
    };
    assert_eq!(refused(&world.federation, &[Some(0); 5]), "epoch");
    assert_eq!(refused(&next.next_epoch(vec![0.5; 2]).unwrap(), &[Some(0), None]), "epoch");
    let other = World::new(&*scafflsa(r#", "control_step": 0.5"#), AnswerRules::default());
    assert_eq!(refused(&other.federation.next_epoch(vec![0.5; 2]).unwrap(), &[Some(0), None]), "epoch");
    for from in [&[Some(0)][..], &[Some(0), Some(0)], &[Some(0), Some(5)]] {
        assert_eq!(refused(&next, from), "from");
    }
    assert!(world.federation.next_epoch(vec![0.5, 0.6]).is_err(), "weights that do not sum to 1");
    world.server.open();
    assert_eq!(world.server.regrouped(&next, &[Some(0), None]).err().unwrap().key, "epoch", "a round is under way");
    let literal = World::new(&*scafflsa(r#", "rule": "literal""#), AnswerRules::default());
    assert_eq!(
        literal.server.regrouped(&literal.federation.next_epoch(vec![0.5; 2]).unwrap(), &[Some(0), None]).err().unwrap().key,
        "rule"
    );
    let some = World::new(&*scafflsa(r#", "participants": 4"#), AnswerRules::default());
    let all = some.federation.next_epoch(vec![0.25; 4]).unwrap();
    assert_eq!(some.server.regrouped(&all, &[Some(0), Some(1), None, None]).err().unwrap().key, "participants");
    assert_eq!(some.federation.next_epoch(vec![0.5; 2]).err().unwrap().key, "participants", "more participants than agents");
}
