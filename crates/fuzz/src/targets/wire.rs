//! Messages, and the two ends of a federation that take them from a network.

use std::sync::{Arc, LazyLock};

use common::forms::{Wire, instead, reformed};
use fedsa::message::{Envelope, Message, Part};
use fedsa::method::{MethodSettings, Setting};
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;

use super::codecs::ALL;
use crate::{Corpus, Target, Verdict, refused};

/// Small problems and every method, as the library's own suites have them: what joins those is
/// fuzzed too.
#[path = "../../../fedsa/tests/common/mod.rs"]
pub(super) mod common;

/// Messages are decoded before anybody looks at them.
pub(super) const fn decoded(len: usize) -> usize {
    (1 << 20) + 64 * len
}

// ---------------------------------------------------------------------------------------------

/// Messages.
pub const MESSAGE: Target =
    Target { name: "message", about: "messages with every codec", corpora: messages, run: read_message, memory: decoded };

/// The longest part that is accepted.
const LONGEST: usize = 300;

fn messages() -> Vec<Corpus> {
    use fedsa::message::{Body, Part, TELL};
    let vector = |n: usize| (0..n).map(|i| i as f64 - 1.5).collect::<Vec<f64>>();
    let numbers = |part, n| (part, Body::Numbers(vector(n)));
    let sparse = Body::Sparse { len: 250, index: vec![0, 3, 249], value: vector(3) };
    let mut seeds = Vec::new();
    for (c, codec) in ALL.iter().enumerate() {
        let message = match c % 4 {
            0 => Message::one(3, 0, Part::Model, vector(8)),
            1 => Message { round: 1 << 20, exchange: TELL, parts: vec![numbers(Part::Direction, 5), numbers(Part::Counted, 1)] },
            2 => Message {
                round: 7,
                exchange: 0,
                parts: vec![(Part::Correction, sparse.clone()), (Part::Packed, Body::Packed(vec![9; 40]))],
            },
            _ => Message { round: 0, exchange: 1, parts: vec![numbers(Part::Gradient, 130), numbers(Part::Hessian, 45)] },
        };
        let mut data = vec![c as u8];
        data.extend(without_checksum(&message.encode(&Envelope::default(), &**codec, &mut Stream::default())));
        seeds.push(data);
    }
    vec![Corpus::bytes(seeds)]
}

/// A message's bytes without the checksum at their end: inputs have none, so that what is changed in them is read.
pub(super) fn without_checksum(message: &[u8]) -> &[u8] {
    &message[..message.len() - 4]
}

/// The bytes with the checksum that belongs to them.
pub(super) fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32fast::hash(bytes).to_le_bytes()].concat()
}

fn read_message(data: &[u8]) -> Verdict {
    let [c, bytes @ ..] = data else { return Verdict::PassedOver };
    let codec = &*ALL[usize::from(*c) % ALL.len()];
    let bytes = with_checksum(bytes);
    let (envelope, message) = match Message::decode(&bytes, codec, LONGEST, |_, _| Stream::default()) {
        Ok(message) => message,
        Err(e) => return refused(&e),
    };
    assert!(message.parts.iter().all(|(_, body)| body.len() <= LONGEST));
    let again = message.encode(&envelope, codec, &mut Stream::default());
    assert_eq!(again.len(), message.encoded_len(codec));
    let back = Message::decode(&again, codec, LONGEST, |_, _| Stream::default()).expect("what was just encoded").1;
    assert_eq!((back.round, back.exchange, back.parts.len()), (message.round, message.exchange, message.parts.len()));
    if codec.is_exact() {
        assert_eq!(again, bytes);
    }
    Verdict::Accepted
}

// ---------------------------------------------------------------------------------------------

/// A method on a problem over a link.
pub(super) struct Setup {
    pub field: &'static Arc<dyn Field>,
    pub method: Box<dyn MethodSettings>,
    pub uplink: Uplink,
}

pub(super) const AGENTS: usize = 3;
const SEED: u64 = 5;
pub(super) const ROUNDS: u64 = 4;

/// Small problems, one of each sort of chain.
static FIELDS: LazyLock<Vec<Arc<dyn Field>>> = LazyLock::new(|| {
    let fields = common::problems(AGENTS).into_iter().enumerate().filter(|(i, _)| *i != 1);
    let mut fields: Vec<Arc<dyn Field>> = fields.map(|(_, (_, problem))| common::field(&*problem, Law::Markov)).collect();
    fields.push(common::unequal(Law::Markov));
    fields.extend(common::objectives(AGENTS).iter().map(|(_, problem)| common::field(&**problem, Law::Markov)));
    fields
});

/// Links that alter, lose, delay and sum; with stale models only where the engine runs.
fn links(stale: bool) -> Vec<Uplink> {
    const EXACT: &str = r#"{"kind": "exact"}"#;
    const COARSE: &str = r#"{"kind": "quantised", "bits": 3}"#;
    const ERASURE: &str = r#"{"kind": "erasure", "success": 0.6}"#;
    const BURSTS: &str = r#"{"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.3}"#;
    const LATE: &str = r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#;
    const BUDGET: &str = r#"{"kind": "bit-budget", "bits": 3, "fading_snr": 1.0}"#;
    const AIR: &str = r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#;
    const SECURE: &str = r#"{"kind": "secure-sum", "bound": 20.0, "bits": 16, "least_agents": 2}"#;
    const STALE: &str = r#"{"kind": "delay", "law": "uniform", "max": 2}"#;
    let link = |codec, feedback, media: &[&str]| common::link(codec, feedback, media).expect("a valid link");
    let coarse_both_ways = link(COARSE, false, &[ERASURE]).with_downlink(link(COARSE, false, &[]).codec);
    let mut all = vec![
        link(EXACT, false, &[]),
        link(COARSE, true, &[BUDGET, BURSTS]),
        link(r#"{"kind": "top-k", "k": 2}"#, true, &[]),
        link(r#"{"kind": "rand-k", "k": 2}"#, false, &[ERASURE, LATE]),
        link(EXACT, false, &[LATE]),
        link(EXACT, false, &[ERASURE, AIR]),
        link(EXACT, false, &[SECURE]),
        link(EXACT, true, &[ERASURE, SECURE]),
        coarse_both_ways,
    ];
    if stale {
        all.push(link(EXACT, false, &[STALE]));
    }
    all
}

/// Every method over every link that it lives with, on one problem after the other.
pub(super) fn setups(stale: bool) -> Vec<Setup> {
    let methods = || [None, Some(2)].into_iter().flat_map(common::methods).chain(common::computing_alone()).map(|(_, method)| method);
    let mut all = Vec::new();
    for l in 0..links(stale).len() {
        for (m, method) in methods().enumerate() {
            let setup = Setup { field: &FIELDS[(l + m) % FIELDS.len()], method, uplink: links(stale).swap_remove(l) };
            if setup.run(OutputRule::Last).is_some() {
                all.push(setup);
            }
        }
    }
    all
}

/// What arrives at the server in one exchange: agents and the bytes of each.
pub(super) type Answers = Vec<(usize, Vec<u8>)>;

impl Setup {
    fn start(&self) -> Vec<f64> {
        vec![0.0; self.field.dim()]
    }

    /// A run at its start, if the method lives with the link.
    pub fn run(&self, output: OutputRule) -> Option<Run> {
        common::engine(self.field, &*self.method, &self.uplink, output, SEED, self.start()).ok()
    }

    pub(super) fn federation(&self) -> Federation {
        let weights = self.field.weights().to_vec();
        let federation = Federation::new(&*self.method, &self.uplink, weights, SEED, self.start());
        common::with_keys(federation.expect("a method that lives with its link"))
    }

    pub(super) fn client(&self, agent: usize) -> ClientNode {
        let federation = self.federation();
        common::keyed(
            ClientNode::new(&federation, self.field, agent, agent).expect("a method that lives with its link"),
            &federation,
            agent,
        )
    }

    pub(super) fn server(&self) -> ServerNode {
        ServerNode::new(&self.federation()).expect("a method that lives with its link")
    }

    /// The parts that an agent may get in an exchange besides those that all get, and the control that a server node sends, with their
    /// lengths.
    fn own(&self, exchange: u8) -> Vec<(Part, usize)> {
        let (start, link) = (self.start(), self.uplink.facts());
        let setting = Setting { seed: SEED, weights: self.field.weights(), start, link, is_accelerated: false };
        let protocol = self.method.protocol(&setting);
        let own = protocol.exchange(exchange).map_or(&protocol.tell_own, |exchange| &exchange.own);
        own.iter().map(|(part, len)| (*part, len.largest())).chain([(Part::Control, self.field.dim())]).collect()
    }

    /// What arrives at agent 0 in some rounds, and what arrives at the server, exchange by exchange.
    pub(super) fn traffic(&self) -> (Vec<Vec<u8>>, Vec<Answers>) {
        let mut nodes: Vec<ClientNode> = (0..self.field.agents()).map(|c| self.client(c)).collect();
        let mut server = self.server();
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut todo = server.open();
            loop {
                todo = match todo {
                    Todo::Ask { to, bytes } => {
                        let mut answers = Vec::new();
                        for (c, bytes) in to.into_iter().zip(bytes) {
                            if c == 0 {
                                down.push(bytes.to_vec());
                            }
                            answers.extend(nodes[c].handle(&bytes).expect("the server's message").map(|answer| (c, answer)));
                        }
                        let next = server.receive(&answers).todo;
                        up.push(answers);
                        next
                    }
                    Todo::Tell { to, bytes } => {
                        for (c, bytes) in to.into_iter().zip(bytes) {
                            nodes[c].handle(&bytes).expect("the server's message");
                            if c == 0 {
                                down.push(bytes.to_vec());
                            }
                        }
                        Todo::RoundOver
                    }
                    Todo::RoundOver => break,
                };
            }
        }
        (down, up)
    }
}

/// Setups of halves that exchange bytes.
pub(super) static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(|| setups(false));

/// The setup that the first bytes of an input say, and the rest.
pub(super) fn setup<'a>(all: &'static [Setup], data: &'a [u8]) -> Option<(&'static Setup, &'a [u8])> {
    let (head, rest) = data.split_first_chunk::<2>()?;
    Some((&all[usize::from(u16::from_le_bytes(*head)) % all.len()], rest))
}

/// Appends a piece of bytes with its length before it.
pub(super) fn write(piece: &[u8], out: &mut Vec<u8>) {
    out.extend((piece.len() as u16).to_le_bytes());
    out.extend(piece);
}

/// The next piece; the last one may be cut off.
pub(super) fn next<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (head, rest) = data.split_first_chunk::<2>()?;
    let (piece, rest) = rest.split_at(usize::from(u16::from_le_bytes(*head)).min(rest.len()));
    *data = rest;
    Some(piece)
}

// ---------------------------------------------------------------------------------------------

/// Agents' nodes.
pub const CLIENT: Target =
    Target { name: "client-node", about: "what an agent takes from the network", corpora: to_clients, run: feed_client, memory: decoded };

fn to_clients() -> Vec<Corpus> {
    let seed = |(i, setup): (usize, &Setup)| {
        let mut data = (i as u16).to_le_bytes().to_vec();
        setup.traffic().0.iter().for_each(|message| write(without_checksum(message), &mut data));
        data
    };
    vec![Corpus::bytes(SETUPS.iter().enumerate().map(seed).collect())]
}

/// Sends an agent that has saved `saved` all that a message may become in other forms: it is taken, or refused and changes nothing. The
/// agent comes back before each.
fn other_forms_down(setup: &Setup, saved: &[u8], bytes: &[u8]) {
    let wire = Wire { codec: &*setup.uplink.downlink, seed: SEED, sender: None };
    let Some((envelope, message)) = wire.read(bytes) else { return };
    let mut node = setup.client(0);
    for other in reformed(&message, &setup.own(message.exchange)) {
        node.restore(saved).expect("what the agent has saved");
        if let Err(e) = node.handle(&wire.write(&envelope, &other.message)) {
            refused(&e);
            assert_eq!(node.save(), saved, "a message in another form that was refused has changed the node");
        }
    }
}

fn feed_client(data: &[u8]) -> Verdict {
    let Some((setup, mut rest)) = setup(&SETUPS, data) else { return Verdict::PassedOver };
    let (mut node, mut taken, mut answers) = (setup.client(0), Vec::new(), Vec::new());
    let mut is_refused = false;
    while let Some(message) = next(&mut rest) {
        let message = with_checksum(message);
        let before = node.save();
        other_forms_down(setup, &before, &message);
        match node.handle(&message) {
            Ok(answer) => {
                taken.push(message);
                answers.push(answer);
            }
            Err(e) => {
                refused(&e);
                is_refused = true;
                assert_eq!(node.save(), before, "a message that was refused has changed the node");
            }
        }
    }
    if is_refused {
        // What was refused has changed nothing. Each masked answer has random bytes of the system.
        let (mut twin, is_masked) = (setup.client(0), setup.uplink.secure_sum().is_some());
        let len = |answer: &Option<Vec<u8>>| answer.as_ref().map(Vec::len);
        let is_same = |other: &Option<Vec<u8>>, answer: &Option<Vec<u8>>| other == answer || is_masked && len(other) == len(answer);
        let same = taken.iter().zip(&answers).all(|(message, answer)| twin.handle(message).is_ok_and(|other| is_same(&other, answer)));
        assert!(same, "a message that was refused has changed the node");
        return Verdict::Refused;
    }
    Verdict::Accepted
}

// ---------------------------------------------------------------------------------------------

/// The server's node.
pub const SERVER: Target =
    Target { name: "server-node", about: "what the server takes from the network", corpora: to_servers, run: feed_server, memory: decoded };

/// In place of an agent: all answers of this exchange are there.
pub(super) const COMPLETE: u8 = u8::MAX;

pub(super) fn to_servers() -> Vec<Corpus> {
    let seed = |(i, setup): (usize, &Setup)| {
        let mut data = (i as u16).to_le_bytes().to_vec();
        for answers in setup.traffic().1 {
            for (agent, answer) in answers {
                data.push(agent as u8);
                write(without_checksum(&answer), &mut data);
            }
            data.push(COMPLETE);
        }
        data
    };
    vec![Corpus::bytes(SETUPS.iter().enumerate().map(seed).collect())]
}

/// Sends a server that has saved `saved` all that one of the answers may become in other forms, after the other answers. What it takes it
/// can close the exchange with, also when it comes back before that.
fn other_forms_up(setup: &Setup, saved: &[u8], answers: &Answers, which: usize) {
    let (agent, bytes) = &answers[which];
    let wire = Wire { codec: &*setup.uplink.codec, seed: SEED, sender: Some(*agent) };
    let Some((envelope, message)) = wire.read(bytes) else { return };
    let (mut server, mut restored) = (setup.server(), setup.server());
    server.restore(saved).expect("what the server has saved");
    for (_, (agent, answer)) in answers.iter().enumerate().filter(|(i, _)| *i != which) {
        // Refused or not.
        let _ = server.take(*agent, answer);
    }
    let with_others = server.save();
    let all = reformed(&message, &[]).into_iter().map(|other| other.message);
    for other in all.chain(instead(&message)) {
        server.restore(&with_others).expect("what the server has saved");
        if let Err(e) = server.take(*agent, &wire.write(&envelope, &other)) {
            refused(&e);
            continue;
        }
        restored.restore(&server.save()).expect("what the server has saved");
        server.close();
        restored.close();
        assert_eq!(common::bits(server.theta()), common::bits(restored.theta()), "a server that came back has closed otherwise");
    }
}

fn feed_server(data: &[u8]) -> Verdict {
    let Some((setup, mut rest)) = setup(&SETUPS, data) else { return Verdict::PassedOver };
    let open = |server: &mut ServerNode, todo: Todo| {
        if !matches!(todo, Todo::Ask { .. }) {
            server.open();
        }
    };
    let mut server = setup.server();
    server.open();
    let (mut answers, mut taken, mut is_refused, mut says_behind): (Answers, _, _, _) = (Vec::new(), Vec::new(), false, false);
    while let Some((agent, more)) = rest.split_first() {
        rest = more;
        if *agent != COMPLETE {
            let Some(answer) = next(&mut rest) else { break };
            answers.push((usize::from(*agent), with_checksum(answer)));
            continue;
        }
        if !answers.is_empty() {
            other_forms_up(setup, &server.save(), &answers, taken.len() % answers.len());
        }
        let progress = server.receive(&answers);
        for (_, e) in &progress.refused {
            refused(e);
            // Such an agent is brought up to date with its next question, so that the refusal is known to the server.
            says_behind |= e.to_string().contains("does not know which of its answers counted");
        }
        is_refused |= !progress.refused.is_empty();
        let good = answers.drain(..).enumerate().filter(|(i, _)| progress.refused.iter().all(|(bad, _)| bad != i));
        taken.push(good.map(|(_, answer)| answer).collect::<Answers>());
        open(&mut server, progress.todo);
    }
    if is_refused && says_behind {
        return Verdict::Refused;
    }
    if is_refused {
        let mut twin = setup.server();
        twin.open();
        for answers in &taken {
            let progress = twin.receive(answers);
            assert!(progress.refused.is_empty(), "answers that were taken");
            open(&mut twin, progress.todo);
        }
        assert_eq!(common::bits(server.theta()), common::bits(twin.theta()), "answers that were refused have changed the server");
        return Verdict::Refused;
    }
    Verdict::Accepted
}
