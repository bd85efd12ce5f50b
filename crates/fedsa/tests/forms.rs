//! Every part of every method in every form, at every reader: an agent or a server takes it, and then as the numbers that it holds, or
//! refuses it, and is then unchanged. None of it makes an end panic, neither when it is taken nor after a restart.

use std::sync::Arc;

use crate::common::forms::{Reformed, Wire, instead, reformed};
use crate::common::{self, EXACT, Halves, field, link, method, methods, problems};
use fedsa::message::{Message, Part};
use fedsa::method::{MethodSettings, Setting};
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;

const SEED: u64 = 5;
const ROUNDS: usize = 3;

/// A federation whose nodes come back from what they saved before each message.
struct Ends<'a> {
    field: &'a Arc<dyn Field>,
    federation: Federation,
    uplink: &'a Uplink,
    method: &'a dyn MethodSettings,
}

impl<'a> Ends<'a> {
    fn new(field: &'a Arc<dyn Field>, method: &'a dyn MethodSettings, uplink: &'a Uplink) -> Self {
        let federation = Federation::new(method, uplink, field.weights().to_vec(), SEED, vec![0.0; field.dim()]).unwrap();
        // As [`Halves`] have it.
        let federation = federation.with_root(field.root().unwrap_or(&[]));
        Self { field, federation, uplink, method }
    }

    fn agent(&self, c: usize, saved: &[u8]) -> ClientNode {
        let mut node = ClientNode::new(&self.federation, self.field, c, c).unwrap();
        node.restore(saved).unwrap();
        node
    }

    fn server(&self, saved: &[u8]) -> ServerNode {
        let mut server = ServerNode::new(&self.federation).unwrap();
        server.restore(saved).unwrap();
        server
    }

    /// The parts that an agent may get besides those that all get, and the control that a server node sends.
    fn own(&self, exchange: u8) -> Vec<(Part, usize)> {
        let (start, link) = (vec![0.0; self.field.dim()], self.uplink.facts());
        let setting = Setting { seed: SEED, weights: self.field.weights(), start, link, is_accelerated: false };
        let protocol = self.method.protocol(&setting);
        let own = protocol.exchange(exchange).map_or(&protocol.tell_own, |exchange| &exchange.own);
        own.iter().map(|(part, len)| (*part, len.largest())).chain([(Part::Control, self.field.dim())]).collect()
    }
}

/// Sends all that a message down may become to an agent that has saved `saved`. Returns how many the agent has taken.
fn to_agent(ends: &Ends<'_>, c: usize, saved: &[u8], bytes: &[u8]) -> usize {
    let wire = Wire { codec: &*ends.uplink.downlink, seed: SEED, sender: None };
    let (envelope, told, question) = wire.read_both(bytes).expect("a message of the server");
    let expected = ends.agent(c, saved).handle(bytes).unwrap();
    let mut taken = 0;
    let mut attempt = |told: Option<&Message>, message: &Message, is_same: bool| {
        let mut node = ends.agent(c, saved);
        match node.handle(&wire.write_both(&envelope, told, message)) {
            Err(_) => assert_eq!(node.save(), saved, "{told:?} {message:?}"),
            Ok(answer) => {
                assert!(!is_same || answer == expected, "{told:?} {message:?}");
                ends.agent(c, &node.save());
                taken += 1;
            }
        }
    };
    for Reformed { message, is_same } in reformed(&question, &ends.own(question.exchange)) {
        attempt(told.as_ref(), &message, is_same);
    }
    for Reformed { message, is_same } in told.iter().flat_map(|told| reformed(told, &ends.own(told.exchange))) {
        attempt(Some(&message), &question, is_same);
    }
    taken
}

/// Sends all that an answer may become to a server that has saved `saved`, after the other answers. Returns how many it has taken.
fn to_server(ends: &Ends<'_>, saved: &[u8], answers: &[(usize, Vec<u8>)], which: usize) -> usize {
    let (agent, bytes) = &answers[which];
    let wire = Wire { codec: &*ends.uplink.codec, seed: SEED, sender: Some(*agent) };
    let (envelope, message) = wire.read(bytes).expect("an answer");
    let others = || answers.iter().enumerate().filter(|(i, _)| *i != which).map(|(_, answer)| answer.clone());
    let close = |mut server: ServerNode| {
        server.close();
        server.theta().to_vec()
    };
    let all = reformed(&message, &[]).into_iter().map(|one| (one.message, one.is_same));
    let mut taken = 0;
    for (message, is_same) in all.chain(instead(&message).into_iter().map(|message| (message, false))) {
        let mut server = ends.server(saved);
        others().for_each(|(c, answer)| server.take(c, &answer).unwrap());
        let before = server.save();
        if server.take(*agent, &wire.write(&envelope, &message)).is_err() {
            assert_eq!(server.save(), before, "{message:?}");
            close(server);
            continue;
        }
        taken += 1;
        let restored = ends.server(&server.save());
        let theta = close(server);
        assert_eq!(common::bits(&close(restored)), common::bits(&theta), "{message:?}");
        if is_same {
            let mut honest = ends.server(&before);
            honest.take(*agent, bytes).unwrap();
            let expected = close(honest);
            // Sums over sparse numbers are made in another order.
            let near = common::distance(&theta, &expected) <= 1e-9 * (1.0 + fedsa::linalg::norm_sq(&expected).sqrt());
            assert!(near, "{message:?}: {theta:?}, not {expected:?}");
        }
    }
    taken
}

/// Runs a federation, and tries all forms at each exchange with one agent and at the server. Returns how many agents and servers have taken.
fn every_form(ends: &Ends<'_>) -> [usize; 2] {
    let mut halves = Halves::new(ends.field, ends.method, ends.uplink, SEED).unwrap();
    let mut taken = [0; 2];
    for t in 0..ROUNDS {
        let mut todo = halves.server.open();
        while let Todo::Ask { to, bytes } = &todo {
            let tried = t % to.len();
            taken[0] += to_agent(ends, to[tried], &halves.nodes[to[tried]].save(), &bytes[tried]);
            let answer = |(c, bytes): (&usize, &std::sync::Arc<[u8]>)| Some((*c, halves.nodes[*c].handle(bytes).unwrap()?));
            let answers: Vec<(usize, Vec<u8>)> = to.iter().zip(bytes).filter_map(answer).collect();
            let saved = halves.server.save();
            if !answers.is_empty() {
                taken[1] += to_server(ends, &saved, &answers, t % answers.len());
            }
            todo = halves.server.receive(&answers).todo;
        }
    }
    if let Todo::Tell { to, bytes } = halves.server.finish() {
        taken[0] += to_agent(ends, to[0], &halves.nodes[to[0]].save(), &bytes[0]);
    }
    taken
}

/// The links: clear; one that alters models and answers and loses some.
fn links() -> Vec<Uplink> {
    let coarse = r#"{"kind": "quantised", "bits": 7}"#;
    let lossy = || link(coarse, true, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
    vec![Uplink::default(), lossy().with_downlink(lossy().codec)]
}

#[test]
fn agents_and_servers_take_or_refuse_every_part_in_every_form() {
    let garnet = field(&*problems(3)[0].1, Law::Markov);
    let quadratic = field(&*common::objectives(3)[0].1, Law::Mean);
    let first_order = methods(None).into_iter().chain(methods(Some(2))).map(|method| (&garnet, method));
    let alone = common::computing_alone().into_iter().map(|method| (&quadratic, method));
    let (mut combinations, mut taken) = (0, [0; 2]);
    for (field, (_, method)) in first_order.chain(alone) {
        for uplink in links() {
            if Halves::new(field, &*method, &uplink, SEED).is_err() {
                continue;
            }
            let by = every_form(&Ends::new(field, &*method, &uplink));
            combinations += 1;
            taken = [taken[0] + by[0], taken[1] + by[1]];
        }
    }
    // Most is refused, but not all: a control with other numbers is one too, and a product may be sparse.
    assert!(combinations > 100 && taken.iter().all(|taken| *taken > 100), "{combinations}, {taken:?}");
}

/// The 49 bytes that were found: FedHSA that keeps the last operators took them, and could not be closed any more, nor after any restart.
#[test]
fn a_sparse_operator_does_not_stop_a_server_that_keeps_the_last_ones() {
    let field = field(&*common::objectives(2)[0].1, Law::Mean);
    let method = method("fedhsa", r#"{"step_size": 0.05, "local_steps": 2, "missing": "last"}"#);
    let ends = Ends::new(&field, &*method, &EXACT);
    let mut halves = Halves::new(&field, &*method, &EXACT, SEED).unwrap();
    let Todo::Ask { bytes, .. } = halves.server.open() else { panic!("a question") };
    let answer = halves.nodes[0].handle(&bytes[0]).unwrap().unwrap();
    let wire = Wire { codec: &*EXACT.codec, seed: SEED, sender: Some(0) };
    let (envelope, answer) = wire.read(&answer).unwrap();
    let body = fedsa::message::Body::Sparse { len: field.dim() as u32, index: vec![1], value: vec![0.5] };
    let sparse = wire.write(&envelope, &Message { parts: vec![(Part::Operator, body)], ..answer });
    assert_eq!(sparse.len(), 49);
    let _ = halves.server.take(0, &sparse);
    let mut restored = ends.server(&halves.server.save());
    assert_eq!(restored.close(), halves.server.close());
}
