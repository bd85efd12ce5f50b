//! One message to a node in the middle of a federation: a node is brought back to the moment
//! before each input, so that inputs are short and many.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;

use fedsa::coordinator::AgentStatus;
use fedsa::node::{ClientNode, ServerNode, Todo};

use super::wire::{SETUPS, Setup, decoded, setup, with_checksum, without_checksum};
use crate::{Corpus, Target, Verdict, refused};

/// A node at a moment, and what comes next: the sender, for a server, and the bytes.
struct Moment {
    saved: Vec<u8>,
    next: Vec<(u8, Vec<u8>)>,
}

/// The moments of agent 0 and those of the server, of each setup.
static MOMENTS: LazyLock<Vec<[Vec<Moment>; 2]>> = LazyLock::new(|| SETUPS.iter().map(moments).collect());

fn moments(setup: &Setup) -> [Vec<Moment>; 2] {
    let (down, up) = setup.traffic();
    let (mut agent, mut server) = (setup.client(0), setup.server());
    let of_agent = |bytes: Vec<u8>| {
        let saved = agent.save();
        agent.handle(&bytes).expect("the server's message");
        Moment { saved, next: vec![(0, bytes)] }
    };
    let of_agent = down.into_iter().map(of_agent).collect();
    server.open();
    let of_server = |answers: Vec<(usize, Vec<u8>)>| {
        let saved = server.save();
        if !matches!(server.receive(&answers).todo, Todo::Ask { .. }) {
            server.open();
        }
        Moment { saved, next: answers.into_iter().map(|(c, bytes)| (c as u8, bytes)).collect() }
    };
    let of_server = up.into_iter().map(of_server).filter(|moment| !moment.next.is_empty()).collect();
    [of_agent, of_server]
}

thread_local! {
    /// Nodes that were built: building one takes longer than an input.
    static CLIENTS: RefCell<HashMap<usize, ClientNode>> = RefCell::default();
    static SERVERS: RefCell<HashMap<usize, ServerNode>> = RefCell::default();
}

/// The number of a setup.
fn number(setup: &Setup) -> usize {
    SETUPS.iter().position(|one| std::ptr::eq(one, setup)).expect("one of them")
}

fn with_client(setup: &Setup, run: impl FnOnce(&mut ClientNode) -> Verdict) -> Verdict {
    CLIENTS.with_borrow_mut(|all| run(all.entry(number(setup)).or_insert_with(|| setup.client(0))))
}

fn with_server(setup: &Setup, run: impl FnOnce(&mut ServerNode) -> Verdict) -> Verdict {
    SERVERS.with_borrow_mut(|all| run(all.entry(number(setup)).or_insert_with(|| setup.server())))
}

/// A seed for each setup, at one moment after the other: the setup, the moment, and what `bytes` makes of it.
fn seeds(half: usize, bytes: impl Fn(&Moment) -> Vec<u8>) -> Vec<Corpus> {
    let mut seeds = Vec::new();
    for (i, halves) in MOMENTS.iter().enumerate().filter(|(_, halves)| !halves[half].is_empty()) {
        let j = i % halves[half].len();
        seeds.push([&(i as u16).to_le_bytes()[..], &[j as u8], &bytes(&halves[half][j])].concat());
    }
    vec![Corpus::bytes(seeds)]
}

/// The setup and the moment that an input says, and the rest.
fn moment(half: usize, data: &[u8]) -> Option<(&'static Setup, &'static Moment, &[u8])> {
    let (setup, rest) = setup(&SETUPS, data)?;
    let (j, rest) = rest.split_first()?;
    let all = &MOMENTS[number(setup)][half];
    Some((setup, all.get(usize::from(*j) % all.len().max(1))?, rest))
}

// ---------------------------------------------------------------------------------------------

/// One message to an agent.
pub const QUESTION: Target =
    Target { name: "question", about: "one message to an agent, at any moment", corpora: questions, run: ask, memory: decoded };

fn questions() -> Vec<Corpus> {
    seeds(0, |moment| without_checksum(&moment.next[0].1).to_vec())
}

fn ask(data: &[u8]) -> Verdict {
    let Some((setup, moment, rest)) = moment(0, data) else { return Verdict::PassedOver };
    with_client(setup, |node| {
        node.restore(&moment.saved).expect("what the agent has saved");
        let message = with_checksum(rest);
        match node.handle(&message) {
            Ok(answer) => {
                assert_eq!(node.handle(&message), Ok(answer), "a repeated question gets the same bytes");
                Verdict::Accepted
            }
            Err(e) => {
                assert_eq!(node.save(), moment.saved, "a message that was refused has changed the node");
                refused(&e)
            }
        }
    })
}

// ---------------------------------------------------------------------------------------------

/// One answer to a server.
pub const ANSWER: Target =
    Target { name: "answer", about: "one answer to the server, in any exchange", corpora: answers, run: answer, memory: decoded };

fn answers() -> Vec<Corpus> {
    seeds(1, |moment| [&[moment.next[0].0][..], without_checksum(&moment.next[0].1)].concat())
}

fn answer(data: &[u8]) -> Verdict {
    let Some((setup, moment, rest)) = moment(1, data) else { return Verdict::PassedOver };
    let Some((agent, message)) = rest.split_first() else { return Verdict::PassedOver };
    with_server(setup, |server| {
        server.restore(&moment.saved).expect("what the server has saved");
        let agent = usize::from(*agent);
        if let Err(e) = server.take(agent, &with_checksum(message)) {
            // Whoever is out of step is brought up to date next.
            let is_noted = server.standing(agent) == AgentStatus::OutOfStep;
            assert!(is_noted || server.save() == moment.saved, "an answer that was refused has changed the server");
            return refused(&e);
        }
        server.close();
        Verdict::Accepted
    })
}
