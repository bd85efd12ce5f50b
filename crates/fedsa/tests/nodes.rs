//! What a server node refuses: answers of other settings, and saved states whose answers are none.

use std::sync::Arc;

use crate::common::{self, EXACT, Halves, field, method};
use fedsa::error::{ErrorKind, Result};
use fedsa::message::{Body, Envelope, Message, Part};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::sampling::Law;
use fedsa::uplink::codec::Exact;

const SEED: u64 = 5;

/// A server node of three agents at its start.
fn server(field: &Arc<dyn Field>, method: &dyn MethodSettings) -> ServerNode {
    let federation = Federation::new(method, &EXACT, field.weights().to_vec(), SEED, vec![0.0; field.dim()]).unwrap();
    ServerNode::new(&federation.with_root(field.root().unwrap_or(&[]))).unwrap()
}

/// A server node that has asked its first question, and the answers of all agents.
fn asked(field: &Arc<dyn Field>, method: &dyn MethodSettings, seed: u64) -> (ServerNode, Vec<(usize, Vec<u8>)>) {
    let Halves { mut nodes, mut server, .. } = Halves::new(field, method, &EXACT, seed).unwrap();
    let Todo::Ask { to, bytes } = server.open() else { panic!("a round opens with a question") };
    let answers = to.iter().zip(&bytes).map(|(c, bytes)| (*c, nodes[*c].handle(bytes).unwrap().unwrap())).collect();
    (server, answers)
}

fn take(server: &mut ServerNode, answer: &(usize, Vec<u8>)) -> Result<()> {
    server.take(answer.0, &answer.1)
}

fn read(bytes: &[u8]) -> (Envelope, Message) {
    Message::decode(bytes, &Exact, 1 << 16, |_, _| Stream::default()).unwrap()
}

fn write(envelope: &Envelope, message: &Message) -> Vec<u8> {
    message.encode(envelope, &Exact, &mut Stream::default())
}

/// Agents whose operators the server could not tell apart from the right ones.
fn three() -> Arc<dyn Field> {
    field(&*common::objectives(3)[0].1, Law::Mean)
}

#[test]
fn an_answer_of_other_settings_is_refused_and_changes_nothing() {
    let field = three();
    for kind in ["fedlsa", "scafflsa", "fedhsa"] {
        let with = |eta: f64| method(kind, &format!(r#"{{"step_size": {eta}, "local_steps": 2}}"#));
        let (right, other) = (with(0.05), with(0.06));
        let (mut server, answers) = asked(&field, &*right, SEED);
        let before = server.save();
        let (_, other_step) = asked(&field, &*other, SEED);
        let (_, other_seed) = asked(&field, &*right, SEED + 1);
        for foreign in other_step.iter().chain(&other_seed) {
            assert!(take(&mut server, foreign).unwrap_err().to_string().contains("settings"), "{kind}");
        }
        // The same numbers with one bit of the hash changed.
        for bit in [0, 17, 63] {
            let (envelope, message) = read(&answers[1].1);
            let changed = Envelope { settings: envelope.settings ^ 1 << bit, ..envelope };
            assert!(take(&mut server, &(1, write(&changed, &message))).is_err(), "{kind}, bit {bit}");
        }
        assert_eq!(server.save(), before, "{kind}");
        answers.iter().for_each(|answer| take(&mut server, answer).unwrap());
    }
}

#[test]
fn a_refused_answer_is_listed_with_its_reason() {
    let field = three();
    let method = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 2}"#);
    let (mut server, answers) = asked(&field, &*method, SEED);
    let (_, foreign) = asked(&field, &*method, SEED + 1);
    let reason = take(&mut server, &foreign[2]).unwrap_err();
    take(&mut server, &answers[0]).unwrap();
    let listed = server.coordinator().refusals();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].agent, listed[0].round, listed[0].exchange), (foreign[2].0, 0, 0));
    assert_eq!(listed[0].reason, reason);
}

#[test]
fn a_control_variate_comes_with_the_first_question_of_a_round_only() {
    let field = three();
    let method = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 2, "participants": 2}"#);
    let Halves { mut nodes, mut server, .. } = Halves::new(&field, &*method, &EXACT, SEED).unwrap();
    let Todo::Ask { to, bytes } = server.open() else { panic!("a round opens with a question") };
    for (c, bytes) in to.iter().zip(&bytes) {
        let answer = nodes[*c].handle(bytes).unwrap().unwrap();
        server.take(*c, &answer).unwrap();
    }
    assert_eq!(server.close(), Todo::RoundOver);
    let Todo::Tell { to, bytes } = server.finish() else { panic!("participants are told the mean") };
    let (envelope, told) = read(&bytes[0]);
    let mut with_control = told.clone();
    with_control.parts.push((Part::Control, Body::Numbers(vec![0.5; field.dim()])));
    let node = &mut nodes[to[0]];
    let before = node.save();
    let refused = node.handle(&write(&envelope, &with_control)).unwrap_err();
    assert!(refused.to_string().contains("control variate"), "{refused}");
    assert_eq!(node.save(), before);
    node.handle(&bytes[0]).unwrap();
}

/// Of one flipped bit the model, a control variate or the round would be another one.
#[test]
fn a_saved_node_with_a_flipped_bit_is_refused_and_the_node_is_unchanged() {
    let field = three();
    for (kind, settings) in [("scafflsa", r#"{"step_size": 0.05, "local_steps": 2}"#), ("newton", "{}")] {
        let method = method(kind, settings);
        let (mut asking, answers) = asked(&field, &*method, SEED);
        take(&mut asking, &answers[1]).unwrap();
        let state = asking.save();
        let mut server = server(&field, &*method);
        let before = server.save();
        for bit in 0..8 * state.len() {
            let mut damaged = state.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(server.restore(&damaged).unwrap_err().kind(), ErrorKind::Format, "{kind}, bit {bit}");
        }
        assert_eq!(server.save(), before, "{kind}");
    }
}

/// Far from where losses and gradients are numbers an agent says that it diverged; what it saves then is a state all the same.
#[test]
fn an_agent_that_was_asked_too_far_away_is_restored_from_what_it_saved() {
    let mut tried = Vec::new();
    for (name, problem) in common::objectives(3) {
        let field = field(&*problem, Law::Mean);
        for (kind, method) in common::computing_alone() {
            let start = vec![1e300; field.dim()];
            let Ok(federation) = Federation::new(&*method, &EXACT, field.weights().to_vec(), SEED, start) else { continue };
            let federation = federation.with_root(field.root().unwrap_or(&[]));
            let agent = |c: usize| ClientNode::new(&federation, &field, c, c);
            let (Ok(mut server), Ok(mut node)) = (ServerNode::new(&federation), agent(0)) else { continue };
            let Todo::Ask { bytes, .. } = server.open() else { panic!("a round opens with a question") };
            let _ = node.handle(&bytes[0]);
            agent(0).unwrap().restore(&node.save()).unwrap_or_else(|e| panic!("{kind} on {name}: {e}"));
            tried.push(kind);
        }
    }
    assert!(["newton", "shed", "q-shed", "giant", "fednl", "lbfgs"].iter().all(|kind| tried.contains(kind)), "{tried:?}");
}
