//! One message to a node in the middle of a federation, and the states that nodes are restored from: a node is brought back to the moment
//! before each input, so that inputs are short and many.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;

use fedsa::coordinator::Standing;
use fedsa::node::{ClientNode, ServerNode, Todo};

use super::proportional;
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
            // Whoever is out of step is sent its control next.
            let is_noted = server.standing(agent) == Standing::OutOfStep;
            assert!(is_noted || server.save() == moment.saved, "an answer that was refused has changed the server");
            return refused(&e);
        }
        server.close();
        Verdict::Accepted
    })
}

// ---------------------------------------------------------------------------------------------

/// Saved agents.
pub const CLIENT_STATE: Target = Target {
    name: "client-state",
    about: "the state that an agent is restored from",
    corpora: client_states,
    run: restore_client,
    memory: proportional,
};

fn client_states() -> Vec<Corpus> {
    seeds(0, |moment| without_checksum(&moment.saved).to_vec())
}

fn restore_client(data: &[u8]) -> Verdict {
    let Some((setup, moment, rest)) = moment(0, data) else { return Verdict::PassedOver };
    with_client(setup, |node| {
        node.restore(&moment.saved).expect("what the agent has saved");
        if let Err(e) = node.restore(&with_checksum(rest)) {
            // What an agent holds of Hessians is its own to read.
            assert!(node.restore(&moment.saved).is_ok());
            return refused(&e);
        }
        let saved = node.save();
        node.restore(&saved).expect("what was just saved");
        assert_eq!(node.save(), saved);
        // It goes on, or refuses.
        if let Err(e) = node.handle(&moment.next[0].1) {
            refused(&e);
        }
        node.save();
        Verdict::Accepted
    })
}

// ---------------------------------------------------------------------------------------------

/// Saved servers.
pub const SERVER_STATE: Target = Target {
    name: "server-state",
    about: "the state that a server is restored from",
    corpora: server_states,
    run: restore_server,
    memory: proportional,
};

fn server_states() -> Vec<Corpus> {
    seeds(1, |moment| without_checksum(&moment.saved).to_vec())
}

fn restore_server(data: &[u8]) -> Verdict {
    let Some((setup, moment, rest)) = moment(1, data) else { return Verdict::PassedOver };
    with_server(setup, |server| {
        server.restore(&moment.saved).expect("what the server has saved");
        if let Err(e) = server.restore(&with_checksum(rest)) {
            assert_eq!(server.save(), moment.saved, "a state that was refused has changed the server");
            return refused(&e);
        }
        let saved = server.save();
        server.restore(&saved).expect("what was just saved");
        assert_eq!(server.save(), saved);
        // It goes on with the answers of that moment, refused or not.
        for (c, bytes) in &moment.next {
            if let Err(e) = server.take(usize::from(*c), bytes) {
                refused(&e);
            }
        }
        server.close();
        for _ in 0..2 {
            server.open();
            server.may_still_answer();
            server.give_up();
        }
        assert_eq!(server.theta().len(), setup.field.dim());
        Verdict::Accepted
    })
}
