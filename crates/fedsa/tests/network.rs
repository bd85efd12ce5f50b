//! Halves that exchange bytes over a network that loses, repeats and cuts off messages.

mod common;

use common::{EXACT, bits, method};
use fedsa::kernel::Isa;
use fedsa::methods::Settings as Method;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::garnet::{Garnet, Heterogeneity};
use fedsa::problem::{Field, NoFiles, Settings as _};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;

/// Six agents that differ, without noise.
fn six() -> Box<dyn Field> {
    let garnet = Garnet { agents: 6, states: 10, features: 3, gamma: 0.8, heterogeneity: Heterogeneity::Independent, ..Garnet::default() };
    garnet.field(&NoFiles, Sampling { kind: Law::Mean, ..Sampling::default() }, Isa::best()).unwrap()
}

/// What the network does to one message on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    CutOff,
}

/// A network: what becomes of the message of an agent in a round and exchange, down or up.
type Network<'a> = &'a mut dyn FnMut(u64, usize, bool) -> Fate;

/// `||theta_T - theta*||^2` after some rounds over a network, and `theta_T`.
fn over(network: Network<'_>, field: &dyn Field, method: &dyn Method, uplink: &Uplink, rounds: u64) -> (f64, Vec<f64>) {
    let start = vec![0.0; field.dim()];
    let node = |c: usize| ClientNode::new(field, method, uplink, c, 5, start.clone()).unwrap();
    let mut nodes: Vec<ClientNode<'_>> = (0..field.agents()).map(node).collect();
    let mut server = ServerNode::new(method, uplink, field.weights().to_vec(), 5, start.clone()).unwrap();
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 1].to_vec();
    for t in 0..rounds {
        let mut todo = server.open(t);
        loop {
            todo = match todo {
                Todo::Ask { to, bytes } => {
                    let (mut answers, mut bad) = (Vec::new(), 0);
                    for (c, bytes) in to.iter().zip(&bytes) {
                        let answer = match network(t, *c, false) {
                            Fate::Lost => continue,
                            Fate::CutOff => {
                                assert!(nodes[*c].handle(&cut(bytes)).is_err());
                                continue;
                            }
                            Fate::Twice => {
                                let first = nodes[*c].handle(bytes).unwrap();
                                assert_eq!(nodes[*c].handle(bytes).unwrap(), first, "a repeated question gets the same bytes");
                                first
                            }
                            Fate::Arrives => nodes[*c].handle(bytes).unwrap(),
                        };
                        let Some(answer) = answer else { continue };
                        match network(t, *c, true) {
                            Fate::Lost => {}
                            Fate::CutOff => {
                                answers.push((*c, cut(&answer)));
                                bad += 1;
                            }
                            Fate::Twice => answers.extend([(*c, answer.clone()), (*c, answer)]),
                            Fate::Arrives => answers.push((*c, answer)),
                        }
                    }
                    let progress = server.receive(&answers);
                    // Those that are cut off, each alone.
                    assert_eq!(progress.refused.len(), bad, "{:?}", progress.refused);
                    progress.todo
                }
                Todo::Tell { to, bytes } => {
                    for (c, bytes) in to.iter().zip(&bytes) {
                        assert!(nodes[*c].handle(bytes).unwrap().is_none());
                    }
                    Todo::RoundOver
                }
                Todo::RoundOver => break,
            };
        }
    }
    (fedsa::linalg::distance_sq(server.theta(), field.root().unwrap()), server.theta().to_vec())
}

fn scafflsa(rule: &str) -> Box<dyn Method> {
    method("scafflsa", &format!(r#"{{"step_size": 0.1, "local_steps": 5, "rule": "{rule}"}}"#))
}

const ROUNDS: u64 = 8000;

/// One answer that is lost, and one question that comes twice, over a link that calls itself clear.
#[test]
fn one_lost_answer_and_one_repeated_question_do_no_lasting_harm() {
    let field = six();
    for rule in ["auto", "acknowledged"] {
        let method = scafflsa(rule);
        let mut clear = |_: u64, _: usize, _: bool| Fate::Arrives;
        let (best, _) = over(&mut clear, &*field, &*method, &EXACT, ROUNDS);
        assert!(best < 1e-18, "{best:e}");
        let mut lost = |t: u64, c: usize, is_up: bool| if (t, c, is_up) == (30, 0, true) { Fate::Lost } else { Fate::Arrives };
        let (error, _) = over(&mut lost, &*field, &*method, &EXACT, ROUNDS);
        assert!(error < 1e-18, "{rule}: a lost answer: {error:e}");
        let mut twice = |t: u64, c: usize, _: bool| if (t, c) == (30, 0) { Fate::Twice } else { Fate::Arrives };
        let (error, theta) = over(&mut twice, &*field, &*method, &EXACT, ROUNDS);
        assert!(error < 1e-18, "{rule}: messages that come twice: {error:e}");
        let (_, whole) = over(&mut clear, &*field, &*method, &EXACT, ROUNDS);
        assert_eq!(bits(&theta), bits(&whole), "{rule}: messages that come twice count once");
    }
}

/// Under the default rule controls sum to 0 whatever is lost, up or down: an agent learns from the next model that
/// reaches it what all rounds since have added.
#[test]
fn control_variates_survive_a_network_that_loses_questions_and_answers() {
    let field = six();
    for (kind, settings) in
        [("scafflsa", r#"{"step_size": 0.1, "local_steps": 5}"#), ("scafflsa-random", r#"{"step_size": 0.1, "talk_probability": 0.2}"#)]
    {
        let method = method(kind, settings);
        let mut draws: Stream = stream(9, Purpose::Delay, 0, 0);
        let mut network = |_: u64, _: usize, _: bool| match draws.uniform() {
            x if x < 0.3 => Fate::Lost,
            x if x < 0.4 => Fate::Twice,
            x if x < 0.5 => Fate::CutOff,
            _ => Fate::Arrives,
        };
        let (error, _) = over(&mut network, &*field, &*method, &EXACT, 3 * ROUNDS);
        assert!(error < 1e-18, "{kind}: {error:e}");
    }
}

/// With step sizes that change, what rounds have added is not known from the next model alone: then it is refused
/// to go on, rather than computed with.
#[test]
fn an_agent_that_cannot_follow_says_so() {
    let field = six();
    let method = method("scafflsa", r#"{"step_size": {"c": 0.5, "t0": 10.0, "per": "round"}, "local_steps": 5}"#);
    let start = vec![0.0; field.dim()];
    let mut server = ServerNode::new(&*method, &EXACT, field.weights().to_vec(), 5, start.clone()).unwrap();
    let mut node = ClientNode::new(&*field, &*method, &EXACT, 0, 5, start).unwrap();
    let Todo::Ask { bytes, .. } = server.open(0) else { panic!("a question") };
    node.handle(&bytes[0]).unwrap().unwrap();
    server.receive(&[]);
    server.open(1);
    server.receive(&[]);
    let Todo::Ask { bytes, .. } = server.open(2) else { panic!("a question") };
    let e = node.handle(&bytes[0]).unwrap_err();
    assert!(e.to_string().contains("round 2 after round 0"), "{e}");
}

#[test]
fn nodes_are_built_with_the_checks_of_a_run() {
    let field = six();
    let start = || vec![0.0; field.dim()];
    let weights = || field.weights().to_vec();
    let stale = common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "delay", "law": "uniform", "max": 5}"#]).unwrap();
    let air = common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#]).unwrap();
    let many = common::link(r#"{"kind": "top-k", "k": 99}"#, false, &[]).unwrap();
    let fedlsa = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 5}"#);
    let dasa = method("dasa", r#"{"step_size": 0.1}"#);
    let some = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 5, "participants": 7}"#);
    for (method, link, expected) in [
        (&fedlsa, &stale, "only the in-process engine computes at stale models"),
        (&dasa, &air, "over the air only their sum arrives"),
        (&fedlsa, &many, "k"),
        (&some, &EXACT, "participants"),
    ] {
        for e in [
            ClientNode::new(&*field, &**method, link, 0, 5, start()).err().unwrap(),
            ServerNode::new(&**method, link, weights(), 5, start()).err().unwrap(),
        ] {
            assert!(e.to_string().contains(expected), "{e}");
        }
    }
    assert!(ClientNode::new(&*field, &*fedlsa, &EXACT, 6, 5, start()).is_err(), "there is no seventh agent");
    assert!(ClientNode::new(&*field, &*fedlsa, &EXACT, 0, 5, vec![0.0]).is_err(), "a start of another length");
    assert!(ServerNode::new(&*fedlsa, &EXACT, Vec::new(), 5, start()).is_err(), "no agents");
}
