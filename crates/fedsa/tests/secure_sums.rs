//! Secure sums between nodes: what the server learns, what it does not, and what becomes of agents that vanish.

use std::sync::Arc;

use crate::common::{bits, field, field as field_of, keyed, link, method, secret, with_keys};
use fedsa::federation::Federation;
use fedsa::message::{Body, Message, Part};
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::secure::Secret;
use fedsa::uplink::Uplink;
use fedsa::uplink::codec::Exact;
use fedsa::uplink::stage::secure_sum::Summed;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::linear::quadratic::Quadratic;

const AGENTS: usize = 5;
const SEED: u64 = 3;

fn secure(more: &str) -> Uplink {
    link(r#"{"kind": "exact"}"#, false, &[&format!(r#"{{"kind": "secure-sum", "bound": 20.0{more}}}"#)]).unwrap()
}

/// A federation of nodes in this process, and every message that the server got.
struct World {
    nodes: Vec<ClientNode>,
    server: ServerNode,
    seen: Vec<(usize, Vec<u8>)>,
}

impl World {
    fn new(field: &Arc<dyn Field>, kind: &str, settings: &str, uplink: &Uplink) -> Self {
        let federation = Federation::new(&*method(kind, settings), uplink, field.weights().to_vec(), SEED, vec![0.0; field.dim()]).unwrap();
        let federation = with_keys(federation);
        let node = |c| keyed(ClientNode::new(&federation, field, c, c).unwrap(), &federation, c);
        Self { nodes: (0..field.agents()).map(node).collect(), server: ServerNode::new(&federation).unwrap(), seen: Vec::new() }
    }

    /// The first agents answer a question, and the server takes their answers.
    fn answer(&mut self, agents: usize, bytes: &[Arc<[u8]>]) {
        for (c, bytes) in bytes.iter().enumerate().take(agents) {
            let answer = self.nodes[c].handle(bytes).unwrap().unwrap();
            self.server.take(c, &answer).unwrap();
        }
    }

    /// One round, in which the answers that `arrives` refuses do not come; returns the messages down of each exchange.
    fn round(&mut self, arrives: impl Fn(u8, usize) -> bool) -> Vec<Vec<Arc<[u8]>>> {
        let (mut todo, mut down) = (self.server.open(), Vec::new());
        while let Todo::Ask { to, bytes } = todo {
            let exchange = self.server.coordinator().question().down.exchange;
            for (c, bytes) in to.iter().zip(&bytes).filter(|(c, _)| arrives(exchange, **c)) {
                let answer = self.nodes[*c].handle(bytes).unwrap().unwrap();
                self.server.take(*c, &answer).unwrap();
                self.seen.push((*c, answer));
            }
            down.push(bytes);
            todo = self.server.close();
        }
        down
    }
}

fn systems() -> Arc<dyn Field> {
    field(&LinearSystems::default().with_agents(AGENTS).with_dim(3), Law::Mean)
}

const FEDLSA: (&str, &str) = ("fedlsa", r#"{"step_size": 0.1, "local_steps": 3}"#);

#[test]
fn a_sum_without_some_agents_is_that_of_the_others() {
    let field = systems();
    let clear = link(r#"{"kind": "exact"}"#, false, &[]).unwrap();
    let (mut secure, mut plain) =
        (World::new(&field, FEDLSA.0, FEDLSA.1, &secure(r#", "bits": 50"#)), World::new(&field, FEDLSA.0, FEDLSA.1, &clear));
    for t in 0..6 {
        // Nobody, one or two agents are away.
        let here = |exchange: u8, c: usize| exchange >= 64 || c >= t % 3;
        secure.round(here);
        plain.round(here);
        let apart = crate::common::distance(secure.server.theta(), plain.server.theta());
        assert!(apart < 1e-11, "round {t}: {apart:e}");
    }
    assert_eq!(secure.server.coordinator().clipped(), 0);
}

#[test]
fn too_few_answers_or_seeds_give_the_round_up_and_the_next_one_goes_on() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(r#", "least_agents": 4"#));
    world.round(|_, _| true);
    let theta = bits(world.server.theta());
    assert_eq!(world.round(|_, c| c > 1).len(), 1, "nobody is asked for seeds");
    assert_eq!(bits(world.server.theta()), theta);
    assert_eq!(world.round(|exchange, c| exchange < 64 || c > 0).len(), 2, "one vanishes between the exchanges");
    assert_eq!(bits(world.server.theta()), theta);
    // The same agents may give the same sum again.
    world.round(|_, _| true);
    assert_ne!(bits(world.server.theta()), theta);
}

fn packed(bytes: &[u8]) -> (u64, u8, Part, Vec<u8>) {
    let (_, message) = Message::decode(bytes, &Exact, 100_000, |_, _| Default::default()).unwrap();
    let [(part, Body::Packed(packed))] = &message.parts[..] else { panic!("one packed part") };
    (message.round, message.exchange, *part, packed.clone())
}

/// Adds or subtracts the mask of a seed, of words of 32 bits.
fn mask(seed: &[u8], words: &mut [u32], is_added: bool) {
    use chacha20::cipher::{KeyIvInit, StreamCipher};
    let seed: [u8; 32] = seed.try_into().unwrap();
    let mut stream = vec![0; 4 * words.len()];
    chacha20::ChaCha20::new(&seed.into(), &[0; 12].into()).apply_keystream(&mut stream);
    for (word, bytes) in words.iter_mut().zip(stream.chunks(4)) {
        let mask = u32::from_le_bytes(bytes.try_into().unwrap());
        *word = if is_added { word.wrapping_add(mask) } else { word.wrapping_sub(mask) };
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// A curious server decodes everything that it has seen, and removes every mask whose seed it knows.
#[test]
fn no_single_answer_can_be_computed_from_what_the_server_saw() {
    let field = systems();
    let uplink = secure("");
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &uplink);
    // Agent 4 answers too late for the first sum; the server keeps its answer.
    let Todo::Ask { to, bytes } = world.server.open() else { panic!("a question") };
    let answers: Vec<Vec<u8>> = to.iter().map(|c| world.nodes[*c].handle(&bytes[*c]).unwrap().unwrap()).collect();
    (0..4).for_each(|c| world.server.take(c, &answers[c]).unwrap());
    let Todo::Ask { to, bytes } = world.server.close() else { panic!("the seeds") };
    assert_eq!(to, [0, 1, 2, 3]);
    let seeds: Vec<Vec<u8>> = to.iter().map(|c| world.nodes[*c].handle(&bytes[*c]).unwrap().unwrap()).collect();
    // Plain answers: those of the same agents over a clear link, on the same grid.
    let clear = link(r#"{"kind": "exact"}"#, false, &[]).unwrap();
    let mut plain = World::new(&field, FEDLSA.0, FEDLSA.1, &clear);
    plain.round(|_, _| true);
    let grid = uplink.grid(Summed { weights: field.weights(), numbers: 3, exchanges: 1 }).unwrap().unwrap();
    let plain: Vec<Vec<u32>> = (0..AGENTS)
        .map(|c| {
            let (_, message) = Message::decode(&plain.seen[c].1, &Exact, 100, |_, _| Default::default()).unwrap();
            let x = message.part(Part::Direction).to_vec();
            x.iter().map(|x| grid.word(grid.integer(field.weights()[c], *x)) as u32).collect()
        })
        .collect();
    let mut sum = [0u32; 4];
    for c in 0..AGENTS {
        let (_, exchange, part, bytes) = packed(&answers[c]);
        assert_eq!((exchange, part), (0, Part::Masked));
        let mut y = words(&bytes);
        let masked = y.clone();
        // Its own seed, if it has revealed it, and the seeds that others revealed of pairs with it.
        if let Some(revealed) = seeds.get(c) {
            let (_, exchange, part, revealed) = packed(revealed);
            assert_eq!((exchange, part, revealed.len()), (64, Part::Seeds, 32 + 36));
            mask(&revealed[..32], &mut y, false);
            mask(&revealed[36..], &mut y, false);
            sum.iter_mut().zip(&y).for_each(|(sum, y)| *sum = sum.wrapping_add(*y));
        } else {
            for revealed in &seeds {
                mask(&packed(revealed).3[36..], &mut y, true);
            }
        }
        for known in [&masked, &y] {
            assert!(known.iter().zip(&plain[c]).all(|(y, q)| y != q), "agent {c}");
        }
    }
    let expected: Vec<u32> = (0..3).map(|k| plain[..4].iter().fold(0u32, |sum, q| sum.wrapping_add(q[k]))).collect();
    assert_eq!(sum[..3], expected[..], "the sum comes out");
    assert_eq!(sum[3], 0, "nothing was clipped");
}

#[test]
fn an_agent_reveals_seeds_once_and_for_a_sum_of_enough_with_itself() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(""));
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    let answers: Vec<Vec<u8>> = (0..AGENTS).map(|c| world.nodes[c].handle(&bytes[c]).unwrap().unwrap()).collect();
    (0..4).for_each(|c| world.server.take(c, &answers[c]).unwrap());
    let Todo::Ask { bytes, .. } = world.server.close() else { panic!("the seeds") };
    let (_, question) = Message::decode(&bytes[0], &Exact, 100, |_, _| Default::default()).unwrap();
    let (front, _) = Message::decode(&bytes[0], &Exact, 100, |_, _| Default::default()).unwrap();
    let about = |bitmap: u8, round: u64| {
        let parts = vec![(Part::Answered, Body::Packed(vec![bitmap]))];
        let envelope = fedsa::message::Envelope { agent: 0, ..front };
        Message { round, parts, ..question.clone() }.encode(&envelope, &Exact, &mut Default::default())
    };
    let before = world.nodes[0].save();
    for (bitmap, round, what) in [
        (0b0_1110, 0, "without this agent"),
        (0b0_0011, 0, "two agents"),
        (0b10_1111, 0, "an agent that does not exist"),
        (0b0_1111, 1, "another round"),
    ] {
        assert!(world.nodes[0].handle(&about(bitmap, round)).is_err(), "{what}");
        assert_eq!(world.nodes[0].save(), before, "{what}");
    }
    let seeds = world.nodes[0].handle(&bytes[0]).unwrap();
    assert_eq!(world.nodes[0].handle(&bytes[0]).unwrap(), seeds, "a copy gets the same bytes");
    assert!(world.nodes[0].handle(&about(0b1_0111, 0)).is_err(), "another sum of the same answers");
}

/// A round that is given up is asked again with the same model. A sum over other agents would then show what few of them sent.
#[test]
fn the_same_question_is_unmasked_over_the_same_agents_or_over_many_others() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(""));
    // All answer, and all but the last one reveal their seeds: the sum is unknown, and the next round has the same model.
    world.round(|exchange, c| exchange < 64 || c < 4);
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    world.answer(4, &bytes);
    let Todo::Ask { bytes, .. } = world.server.close() else { panic!("the seeds") };
    let e = world.nodes[0].handle(&bytes[0]).unwrap_err();
    assert_eq!(e.code(), fedsa::error::ErrorCode::DisclosureDifference, "{e}");
    assert!(e.what.contains("1 agent sent"), "{e}");
}

/// A newcomer with the number of an agent that left is another agent: the sums with one and the other differ by two.
#[test]
fn agents_are_known_by_their_keys() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(""));
    world.round(|exchange, c| exchange < 64 || c < 4);
    let next = world.server.coordinator().federation().next_epoch(vec![0.2; AGENTS]).unwrap();
    let newcomer = Secret::of_bytes([99; 32]);
    let keys: Vec<_> = (0..AGENTS).map(|c| if c < 4 { secret(c).public() } else { newcomer.public() }).collect();
    let next = next.with_keys(keys).unwrap();
    world.server = world.server.regrouped(&next, &[Some(0), Some(1), Some(2), Some(3), None]).unwrap();
    let stays = |(c, node): (usize, &ClientNode)| keyed(node.regrouped(&next, c).unwrap(), &next, c);
    let mut nodes: Vec<ClientNode> = world.nodes.iter().enumerate().take(4).map(stays).collect();
    nodes.push(ClientNode::new(&next, &field, 4, 4).unwrap().with_secret(&next, &newcomer).unwrap());
    world.nodes = nodes;
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    world.answer(AGENTS, &bytes);
    let Todo::Ask { bytes, .. } = world.server.close() else { panic!("the seeds") };
    let e = world.nodes[0].handle(&bytes[0]).unwrap_err();
    assert!(e.code() == fedsa::error::ErrorCode::DisclosureDifference && e.what.contains("2 agents sent"), "{e}");
    // The newcomer has unmasked nothing.
    assert!(world.nodes[4].handle(&bytes[4]).is_ok());
}

/// The rounds of an agent's own settings end its answers, whatever the server asks; the first question after them shows the residual.
#[test]
fn agents_answer_the_rounds_of_their_settings() {
    let field = systems();
    for uplink in [secure(""), link(r#"{"kind": "exact"}"#, false, &[]).unwrap()] {
        let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &uplink);
        world.nodes = world.nodes.into_iter().map(|node| node.with_rounds(2)).collect();
        (0..3).for_each(|_| _ = world.round(|_, _| true));
        let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
        let e = world.nodes[0].handle(&bytes[0]).unwrap_err();
        assert!(e.what.contains("round 4") && e.help.contains("2 rounds"), "{e}");
    }
    // FedNL's later rounds begin with another exchange than the first one.
    let quadratic = field_of(&Quadratic::default().with_agents(AGENTS).with_dim(3), Law::Mean);
    let mut world = World::new(&quadratic, "fednl", "{}", &link(r#"{"kind": "exact"}"#, false, &[]).unwrap());
    world.nodes = world.nodes.into_iter().map(|node| node.with_rounds(2)).collect();
    (0..2).for_each(|_| _ = world.round(|_, _| true));
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    assert!(world.server.coordinator().question().down.exchange > 0 && world.nodes[0].handle(&bytes[0]).is_ok());
}

#[test]
fn masks_of_agents_that_got_different_models_do_not_cancel() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(""));
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    let (envelope, question) = Message::decode(&bytes[0], &Exact, 100, |_, _| Default::default()).unwrap();
    let other = Message { parts: vec![(Part::Model, Body::Numbers(vec![0.0, 0.0, 1e-9]))], ..question };
    let other = other.encode(&envelope, &Exact, &mut Default::default());
    for (c, bytes) in bytes.iter().enumerate() {
        let answer = world.nodes[c].handle(if c == 2 { &other } else { bytes }).unwrap().unwrap();
        world.server.take(c, &answer).unwrap();
    }
    let Todo::Ask { to, bytes } = world.server.close() else { panic!("the seeds") };
    for c in to {
        let seeds = world.nodes[c].handle(&bytes[c]).unwrap().unwrap();
        world.server.take(c, &seeds).unwrap();
    }
    world.server.close();
    // The sum is noise of the size of the whole range, not the sum of five nearly equal directions.
    let clear = link(r#"{"kind": "exact"}"#, false, &[]).unwrap();
    let mut plain = World::new(&field, FEDLSA.0, FEDLSA.1, &clear);
    plain.round(|_, _| true);
    assert!(crate::common::distance(world.server.theta(), plain.server.theta()) > 0.01);
}

#[test]
fn seeds_of_other_masks_are_refused_and_change_nothing() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(""));
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    world.answer(4, &bytes);
    let Todo::Ask { bytes, .. } = world.server.close() else { panic!("the seeds") };
    let seeds = world.nodes[1].handle(&bytes[1]).unwrap().unwrap();
    let (envelope, answer) = Message::decode(&seeds, &Exact, 1000, |_, _| Default::default()).unwrap();
    let Body::Packed(good) = answer.parts[0].1.clone() else { panic!("seeds") };
    let before = world.server.save();
    let mut number = good.clone();
    number[32] = 3;
    for bad in [good[..32].to_vec(), number, [&good[..], &good[32..]].concat(), good[..good.len() - 1].to_vec()] {
        let message = Message { parts: vec![(Part::Seeds, Body::Packed(bad))], ..answer.clone() };
        assert!(world.server.take(1, &message.encode(&envelope, &Exact, &mut Default::default())).is_err());
        assert_eq!(world.server.save(), before);
    }
    world.server.take(1, &seeds).unwrap();
}

#[test]
fn what_cannot_be_summed_is_refused_by_name() {
    let field = systems();
    let refusal = |kind: &str, settings: &str, uplink: &Uplink| {
        let federation = Federation::new(&*method(kind, settings), uplink, field.weights().to_vec(), SEED, vec![0.0; 3]);
        federation.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(refusal("fednl", "{}", &secure("")).contains("only their sum arrives"));
    assert!(refusal("shed", "{}", &secure("")).contains("only their sum arrives"));
    assert!(refusal("fedlsa", r#"{"step_size": 0.1, "local_steps": 3, "participants": 3}"#, &secure("")).contains("participants"));
    assert!(refusal(FEDLSA.0, FEDLSA.1, &secure(r#", "least_agents": 6"#)).contains("least_agents"));
    let with =
        |more: &str| link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "secure-sum", "bound": 1.0}"#, more]).unwrap_err().to_string();
    assert!(with(r#"{"kind": "erasure", "success": 0.6}"#).contains("leaves only a sum"));
    assert!(link(r#"{"kind": "quantised", "bits": 4}"#, false, &[r#"{"kind": "secure-sum", "bound": 1.0}"#]).is_err());
    for other in [r#"{"kind": "late", "law": "uniform", "max": 2}"#, r#"{"kind": "bit-budget", "bits": 3}"#, r#"{"kind": "over-the-air"}"#]
    {
        assert!(link(r#"{"kind": "exact"}"#, false, &[other, r#"{"kind": "secure-sum", "bound": 1.0}"#]).is_err(), "{other}");
    }
}

/// Sums of gradients, Hessians, losses and systems: the root of the clear link, as far as the grid allows.
#[test]
fn methods_of_sums_find_the_root() {
    let field = field(&*crate::common::objectives(AGENTS)[0].1, Law::Mean);
    let root = field.root().unwrap().to_vec();
    let uplink = secure(r#", "bits": 50"#);
    for (kind, settings, rounds, far) in [
        ("newton", "{}", 2, 1e-9),
        ("lbfgs", "{}", 60, 1e-6),
        ("adaptive-newton", "{}", 30, 1e-6),
        ("lstd", "{}", 1, 1e-9),
        ("lspi", "{}", 1, 1e-9),
        ("fitted-q", "{}", 3, 1e-9),
        ("scafflsa", r#"{"step_size": 0.1, "local_steps": 4}"#, 400, 1e-6),
    ] {
        let mut world = World::new(&field, kind, settings, &uplink);
        (0..rounds).for_each(|_| drop(world.round(|_, _| true)));
        let apart = crate::common::distance(world.server.theta(), &root);
        assert!(apart < far, "{kind}: {apart:e}");
    }
}

fn private(more: &str) -> Uplink {
    secure(&format!(r#", "bits": 40, "least_agents": 4, "privacy": {{"epsilon": 2.0, "delta": 1e-5, "rounds": 3{more}}}"#))
}

/// The variance of the noise in each component of the mean, from the definition: releases of all rounds add up to the rho of epsilon.
#[test]
fn the_noise_of_private_sums_is_what_epsilon_asks_for() {
    let field = systems();
    let rho = fedsa::privacy::accounting::rho(2.0, 1e-5).unwrap() / 3.0;
    let delta = 20.0 * field.weights().iter().copied().fold(0.0, f64::max);
    for (more, factor) in [("", 1.0), (r#", "relation": "replaced""#, 4.0), (r#", "honest": 2"#, 2.0)] {
        let grid = private(more).grid(Summed { weights: field.weights(), numbers: 3, exchanges: 1 }).unwrap().unwrap();
        let expected = factor * delta * delta / (2.0 * rho) * AGENTS as f64 / 4.0;
        let got = grid.noise_variance(AGENTS);
        assert!((got / expected - 1.0).abs() < 1e-6, "{more}: {got:e} and {expected:e}");
    }
    let two = private("").grid(Summed { weights: field.weights(), numbers: 3, exchanges: 2 }).unwrap().unwrap();
    let one = private("").grid(Summed { weights: field.weights(), numbers: 3, exchanges: 1 }).unwrap().unwrap();
    assert!((two.noise_variance(1) / one.noise_variance(1) - 2.0).abs() < 1e-6, "two releases a round");
}

/// Nodes draw noise from the system, the engine from the seed: the variance around the plain mean is the same, and the stated one.
#[test]
fn nodes_and_engine_add_the_stated_noise() {
    const RUNS: usize = 1500;
    let field = systems();
    let clear = link(r#"{"kind": "exact"}"#, false, &[]).unwrap();
    let mut plain = World::new(&field, FEDLSA.0, FEDLSA.1, &clear);
    plain.round(|_, _| true);
    let uplink = private("");
    // One round moves theta by the sum of step sizes times the mean.
    let (grid, moved) = (uplink.grid(Summed { weights: field.weights(), numbers: 3, exchanges: 1 }).unwrap().unwrap(), 0.3);
    let stated = grid.noise_variance(AGENTS) * moved * moved;
    let variance = |thetas: &dyn Fn(u64) -> Vec<f64>| {
        let all: Vec<f64> =
            (0..RUNS as u64).flat_map(|seed| thetas(seed).into_iter().zip(plain.server.theta().to_vec()).map(|(x, y)| x - y)).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        // Noise has mean 0 within four standard errors.
        assert!(mean.abs() < 4.0 * (stated / all.len() as f64).sqrt(), "mean {mean:e}");
        all.iter().map(|x| x * x).sum::<f64>() / all.len() as f64
    };
    let method = method(FEDLSA.0, FEDLSA.1);
    let engine = variance(&|seed| {
        let mut run = crate::common::engine(&field, &*method, &uplink, fedsa::record::OutputRule::Last, seed, vec![0.0; 3]).unwrap();
        run.step();
        run.theta().to_vec()
    });
    let nodes = variance(&|_| {
        let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &uplink);
        world.round(|_, _| true);
        world.server.theta().to_vec()
    });
    // The relative standard error of a variance of n normal numbers is sqrt(2 / n).
    let tolerance = 4.0 * (2.0 / (3.0 * RUNS as f64)).sqrt();
    assert!((engine / stated - 1.0).abs() < tolerance, "engine {engine:e}, stated {stated:e}");
    assert!((nodes / stated - 1.0).abs() < tolerance, "nodes {nodes:e}, stated {stated:e}");
}

#[test]
fn agents_answer_no_more_rounds_than_their_privacy_covers_and_a_question_once() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &private(""));
    for _ in 0..3 {
        world.round(|_, _| true);
    }
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    let e = world.nodes[0].handle(&bytes[0]).unwrap_err();
    assert!(e.what.contains("round 4") && e.help.contains("3 rounds"), "{e}");
    // A repeated question gets the same noise, also after a restart.
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &private(""));
    let Todo::Ask { bytes, .. } = world.server.open() else { panic!("a question") };
    let first = world.nodes[0].handle(&bytes[0]).unwrap();
    let saved = world.nodes[0].save();
    let mut again = World::new(&field, FEDLSA.0, FEDLSA.1, &private(""));
    again.nodes[0].restore(&saved).unwrap();
    assert_eq!(again.nodes[0].handle(&bytes[0]).unwrap(), first);
    assert_ne!(World::new(&field, FEDLSA.0, FEDLSA.1, &private("")).nodes[0].handle(&bytes[0]).unwrap(), first, "fresh noise");
}

#[test]
fn methods_whose_messages_are_not_private_are_refused() {
    let field = field(&*crate::common::objectives(AGENTS)[0].1, Law::Mean);
    let refusal = |kind: &str, settings: &str| {
        let federation = Federation::new(&*method(kind, settings), &private(""), field.weights().to_vec(), SEED, vec![0.0; field.dim()]);
        federation.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(refusal("newton", "{}").contains("more than directions"), "{}", refusal("newton", "{}"));
    let literal = r#"{"step_size": 0.1, "local_steps": 4, "rule": "literal"}"#;
    assert!(refusal("scafflsa", literal).contains("noise of others"), "{}", refusal("scafflsa", literal));
    for (kind, settings) in [FEDLSA, ("scafflsa", FEDLSA.1), ("fedhsa", FEDLSA.1)] {
        assert_eq!(refusal(kind, settings), "");
    }
}

/// Products are rounded to a fine grid, and each restart computes the residual anew: GMRES ends at the root.
#[test]
fn gmres_solves_over_a_fine_grid() {
    let field = systems();
    let root = field.root().unwrap().to_vec();
    // A product without an agent is of no use, and no sum over fewer agents may be unmasked before that of all.
    let mut world = World::new(&field, "gmres", "{}", &secure(r#", "bits": 50, "least_agents": 5"#));
    // Three products, a residual, and products once more; in one round an answer is missing.
    for round in 0..10 {
        world.round(|_, c| round != 2 || c > 0);
    }
    let theta = world.server.coordinator().output();
    let error = theta.iter().zip(&root).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
    assert!(error < 1e-11, "{error}");
    let refused =
        |more: &str| Federation::new(&*method("gmres", "{}"), &secure(more), field.weights().to_vec(), SEED, vec![0.0; 3]).is_err();
    let with_noise = r#", "bits": 50, "privacy": {"epsilon": 1.0, "delta": 1e-6, "rounds": 9}"#;
    assert!(refused(r#", "bits": 32"#) && refused(with_noise));
}

/// An agent with a row less sends another vector, which is rounded as well: a component of each rounding moves by half a step.
#[test]
fn the_privacy_of_rows_counts_both_roundings() {
    let weights = [0.25; 4];
    for (relation, factor) in [("removed", 1.0), ("replaced", 2.0)] {
        let more = format!(
            r#", "bits": 20, "privacy": {{"epsilon": 1.0, "delta": 1e-6, "rounds": 1, "unit": "row", "rows": 20000, "relation": "{relation}"}}"#
        );
        let grid = secure(&more).grid(Summed { weights: &weights, numbers: 30, exchanges: 1 }).unwrap().unwrap();
        let steps = factor * 20.0 / 20000.0 * 2f64.powi(grid.scale()) + 30f64.sqrt();
        let rho = fedsa::privacy::accounting::rho(1.0, 1e-6).unwrap();
        // Three honest agents of four.
        let want = steps * steps / (2.0 * rho) * 4.0 / 3.0 * 2f64.powi(-2 * grid.scale());
        assert!((grid.noise_variance(4) / want - 1.0).abs() < 1e-6, "{relation}: {} {want}", grid.noise_variance(4));
    }
}

#[test]
fn masks_outside_the_rounds_hide_one_answer_only() {
    let field = systems();
    let mut world = World::new(&field, FEDLSA.0, FEDLSA.1, &secure(""));
    world.round(|_, _| true);
    let node = &mut world.nodes[0];
    let first = node.mask_sums(b"first", &[1.0, 2.0]).unwrap();
    let state = node.save();
    node.restore(&state).unwrap();
    assert_eq!(node.mask_sums(b"first", &[1.5, 2.0]).unwrap(), first, "other numbers with the same masks would show the difference");
    assert!(node.unmask_sums(b"second").is_err(), "the seed of another question");
    node.unmask_sums(b"first").unwrap();
    assert_ne!(node.mask_sums(b"second", &[1.0, 2.0]).unwrap(), first);
    assert!(node.mask_sums(b"first", &[1.5, 2.0]).is_err() && node.unmask_sums(b"first").is_err(), "a sum that was unmasked");
    // The last round was without agent 4: the sum of all might tell its numbers.
    world.round(|_, c| c < 4);
    let node = &mut world.nodes[0];
    node.mask_sums(b"third", &[1.0]).unwrap();
    assert!(node.unmask_sums(b"third").unwrap_err().to_string().contains("1 agent sent"));
}
