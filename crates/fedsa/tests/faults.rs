//! Agents that are authentic and faulty: they say that they have diverged, send numbers that nobody should believe, or questions of rounds
//! that are never reached. The rest of the federation goes on.

use std::sync::Arc;

use crate::common::{EXACT, Halves, bits, computing_alone, field, linear, method, methods, objectives, small_garnet};
use fedsa::coordinator::AgentStatus;
use fedsa::federation::{AnswerRules, Faults, Federation};
use fedsa::linalg::distance_sq;
use fedsa::message::{Body, Envelope, Message, Part};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa::uplink::codec::Exact;
use fedsa_problems::td::garnet::Heterogeneity;

const SEED: u64 = 5;
const AGENTS: usize = 5;
/// The agent at fault.
const BAD: usize = 3;

fn federation(field: &Arc<dyn Field>, method: &dyn MethodSettings, faults: Faults) -> Federation {
    let federation = Federation::new(method, &EXACT, field.weights(), SEED, vec![0.0; field.dim()]).unwrap();
    federation.with_rules(AnswerRules::default().with_faults(faults)).unwrap()
}

const EXCLUDE: Faults = Faults::Exclude { norm_limit: 1000.0 };

fn read(bytes: &[u8]) -> (Envelope, Message) {
    Message::decode(bytes, &Exact, 1 << 16, |_, _| Stream::default()).unwrap()
}

fn write(envelope: &Envelope, message: &Message) -> Vec<u8> {
    message.encode(envelope, &Exact, &mut Stream::default())
}

/// What the agent at fault does to its answer.
type Fault = fn(&[u8]) -> Vec<u8>;

fn says_diverged(bytes: &[u8]) -> Vec<u8> {
    let (envelope, message) = read(bytes);
    write(&envelope, &Message { parts: vec![(Part::Diverged, Body::Numbers(Vec::new()))], ..message })
}

fn sends_1e200(bytes: &[u8]) -> Vec<u8> {
    let (envelope, mut message) = read(bytes);
    for (_, body) in &mut message.parts {
        if let Body::Numbers(x) = body {
            x.iter_mut().for_each(|x| *x = 1e200);
        }
    }
    write(&envelope, &message)
}

/// Nodes of which one is at fault from round `since` on.
struct Nodes {
    nodes: Vec<ClientNode>,
    server: ServerNode,
    fault: Fault,
    since: u64,
}

impl Nodes {
    fn new(federation: &Federation, field: &Arc<dyn Field>, fault: Fault, since: u64) -> Self {
        let nodes = (0..field.agents()).map(|c| ClientNode::new(federation, field, c, c).unwrap()).collect();
        Self { nodes, server: ServerNode::new(federation).unwrap(), fault, since }
    }

    /// One round; whether the agent at fault was asked.
    fn round(&mut self) -> bool {
        let (t, mut asked) = (self.server.opened(), false);
        let mut todo = self.server.open();
        loop {
            match todo {
                Todo::Ask { to, bytes } => {
                    asked |= to.contains(&BAD);
                    for (c, bytes) in to.iter().zip(&bytes) {
                        let Some(mut answer) = self.nodes[*c].handle(bytes).unwrap() else { continue };
                        if *c == BAD && t >= self.since {
                            answer = (self.fault)(&answer);
                        }
                        // One with another mark, or that is not believed by the method, is refused.
                        let _ = self.server.take(*c, &answer);
                    }
                    todo = self.server.close();
                }
                Todo::Tell { to, bytes } => {
                    to.iter().zip(&bytes).for_each(|(c, bytes)| drop(self.nodes[*c].handle(bytes)));
                    return asked;
                }
                Todo::RoundOver => return asked,
            }
        }
    }
}

/// Every method goes on without the agent at fault, which is excluded with the reason. By default the federation ends.
#[test]
fn one_agent_at_fault_is_excluded_and_the_rest_goes_on() {
    let garnet = field(&small_garnet(AGENTS, Heterogeneity::Independent), Law::Iid);
    let objective = field(&*objectives(AGENTS)[0].1, Law::Mean);
    let first_order = methods(None).into_iter().chain(methods(Some(4))).map(|method| (&garnet, method));
    let all = first_order.chain(computing_alone().into_iter().map(|method| (&objective, method)));
    for (field, (kind, method)) in all {
        let excluding = federation(field, &*method, EXCLUDE);
        // Two answers have no median that says which of them is at fault.
        let are_few = [1, 2].iter().any(|m| format!("{method:?}").contains(&format!("participants: Some({m})")));
        for (what, fault) in [("diverged", says_diverged as Fault), ("1e200", sends_1e200)] {
            if are_few && what == "1e200" {
                continue;
            }
            let mut nodes = Nodes::new(&excluding, field, fault, 4);
            (0..30).for_each(|_| {
                nodes.round();
            });
            assert_eq!(nodes.server.diverged(), None, "{kind}, {what}");
            assert_eq!(nodes.server.opened(), 30, "{kind}, {what}");
            assert!(nodes.server.theta().iter().all(|x| x.is_finite() && x.abs() < 1e6), "{kind}, {what}");
            let exclusions = nodes.server.coordinator().exclusions();
            // Some methods refuse such numbers by themselves.
            let is_refused = nodes.server.coordinator().refusals().iter().any(|refusal| refusal.agent == BAD);
            if exclusions.is_empty() && is_refused && what == "1e200" {
                continue;
            }
            let [one] = exclusions else { panic!("{kind}, {what}: {exclusions:?}") };
            assert!(one.agent == BAD && one.round >= 4 && !one.reason.is_empty(), "{kind}, {what}: {one:?}");
            assert_eq!(nodes.server.standing(BAD), AgentStatus::Excluded);
            assert!(!nodes.round(), "{kind}, {what}: it is asked nothing more");
        }
        let trusting = federation(field, &*method, Faults::End);
        let mut nodes = Nodes::new(&trusting, field, says_diverged, 4);
        (0..40).for_each(|_| {
            nodes.round();
        });
        assert!(nodes.server.diverged().is_some(), "{kind}");
    }
}

/// The engine excludes the agent that the nodes exclude, and has their bits.
#[test]
fn the_engine_excludes_the_same_agents() {
    // The last agent overflows within a local phase.
    let stiff = linear(&[0.5, 0.6, 0.7, 5.0, 0.4].map(|a| ([[a]], [1.0])));
    let field = field(&stiff, Law::Mean);
    for kind in ["fedlsa", "scafflsa", "fedhsa", "projected-td", "delay-adaptive-sa", "scaffold"] {
        let settings = match kind {
            "projected-td" => r#"{"step_size": 1.0, "local_steps": 2000, "radius": 50.0}"#,
            _ => r#"{"step_size": 1.0, "local_steps": 2000}"#,
        };
        let method = method(kind, settings);
        let federation = federation(&field, &*method, EXCLUDE);
        let mut run = Run::new(&field, &federation).unwrap();
        let mut halves = Halves {
            nodes: (0..AGENTS).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect(),
            server: ServerNode::new(&federation).unwrap(),
            ledger: fedsa::record::Ledger::default(),
        };
        for t in 0..20 {
            run.step();
            halves.round();
            assert_eq!(bits(run.theta()), bits(halves.server.theta()), "{kind}, round {t}");
            if t == 10 {
                // Exclusions are part of the state.
                let (saved, of_server) = (run.save().unwrap(), halves.server.save());
                run = Run::new(&field, &federation).unwrap();
                run.restore(&saved).unwrap();
                halves.server = ServerNode::new(&federation).unwrap();
                halves.server.restore(&of_server).unwrap();
            }
        }
        assert_eq!(run.coordinator().exclusions(), halves.server.coordinator().exclusions());
        assert_eq!(run.coordinator().exclusions()[0].agent, BAD, "{kind}");
        assert_eq!(run.diverged(), None, "{kind}");
    }
}

/// The others go on to their own root, and an agent that is readmitted takes part again.
#[test]
fn the_rest_reaches_its_own_root_and_an_agent_can_be_readmitted() {
    let systems = [0.5, 1.0, 1.5, 2.0, 1.2].map(|a| ([[a]], [a * a]));
    let field = field(&linear(&systems), Law::Mean);
    let method = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 1}"#);
    let federation = federation(&field, &*method, EXCLUDE);
    let mut nodes = Nodes::new(&federation, &field, sends_1e200, 10);
    (0..3000).for_each(|_| {
        nodes.round();
    });
    // sum (b_c - a_c theta) = 0 over the rest.
    let rest = || (0..AGENTS).filter(|c| *c != BAD).map(|c| systems[c].0[0][0]);
    let root = rest().map(|a| a * a).sum::<f64>() / rest().sum::<f64>();
    assert!(distance_sq(nodes.server.theta(), &[root]) < 1e-20, "{:?}, not {root}", nodes.server.theta());
    nodes.since = u64::MAX;
    assert!(nodes.server.readmit(BAD) && !nodes.server.readmit(BAD));
    assert!(nodes.round(), "it is asked again");
    (0..3000).for_each(|_| {
        nodes.round();
    });
    assert!(distance_sq(nodes.server.theta(), field.root().unwrap()) < 1e-20);
}

/// A forged question of a round that is never reached: the agent refuses it and goes on.
#[test]
fn a_question_of_an_absurd_round_does_not_silence_an_agent() {
    let field = field(&small_garnet(AGENTS, Heterogeneity::Independent), Law::Iid);
    let federation = federation(&field, &*method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#), EXCLUDE);
    let mut server = ServerNode::new(&federation).unwrap();
    let new = || ClientNode::new(&federation, &field, 0, 0).unwrap();
    let mut careful = new();
    let ask = |server: &mut ServerNode| {
        let Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
        bytes[0].clone()
    };
    let first = ask(&mut server);
    let (envelope, message) = read(&first);
    let forged = |round: u64| write(&envelope, &Message { round, ..message.clone() });
    let absurd = forged((1 << 32) - 3);
    assert!(careful.handle(&absurd).is_err(), "before its first question too");
    assert!(careful.handle(&first).unwrap().is_some());
    let before = careful.save();
    let e = careful.handle(&absurd).unwrap_err();
    assert!(e.help.contains("1048576 rounds"), "{e}");
    assert_eq!(careful.save(), before);
    assert!(careful.handle(&forged(1 << 20)).is_ok(), "an agent may have been away");
    assert!(careful.handle(&forged((1 << 21) + 1)).is_err());
    let second = ask(&mut server);
    careful = new();
    careful.handle(&first).unwrap();
    assert!(careful.handle(&second).unwrap().is_some());
    // An answer of such a round is refused by the server.
    let (envelope, mut answer) = read(&careful.handle(&second).unwrap().unwrap());
    answer.round = (1 << 32) - 3;
    assert!(server.take(0, &write(&envelope, &answer)).is_err());
}

#[test]
fn settings_of_rules_are_checked() {
    let field = field(&small_garnet(AGENTS, Heterogeneity::Independent), Law::Iid);
    let of = |uplink: &fedsa::uplink::Uplink, norm_limit| {
        let method = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
        let federation = Federation::new(&*method, uplink, field.weights(), SEED, vec![0.0; field.dim()]).unwrap();
        let digest = federation.digest();
        let with = federation.with_rules(AnswerRules::default().with_faults(Faults::Exclude { norm_limit }));
        with.inspect(|federation| assert_eq!(federation.digest(), digest, "agents need not know the rules"))
    };
    assert!(of(&EXACT, f64::INFINITY).is_ok());
    for bad in [1.0, -3.0, f64::NAN] {
        assert_eq!(of(&EXACT, bad).unwrap_err().key, "norm_limit");
    }
    let air = crate::common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#]).unwrap();
    assert_eq!(of(&air, 100.0).unwrap_err().key, "rules");
}
