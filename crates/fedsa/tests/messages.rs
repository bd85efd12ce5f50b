//! Bytes from anywhere: messages decode or are refused, and halves take what their method sends.

use std::sync::Arc;

use crate::common::{EXACT, field, methods, problems};
use fedsa::message::{Body, Envelope, Message, Part, TELL};
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::sampling::Law;
use fedsa::uplink::codec::Exact;
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::rows::dataset::Rows;
use fedsa_problems::rows::regression::Logistic;
use fedsa_testing::memory::{self, Used};
use proptest::prelude::*;

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part::Model), Just(Part::Direction), Just(Part::Hessian), Just(Part::Correction), Just(Part::Packed)]
}

fn message() -> impl Strategy<Value = Message> {
    let sparse = prop::collection::btree_map(0u32..500, any::<f64>(), 0..20).prop_map(|at| {
        let (index, value) = at.into_iter().unzip();
        Body::Sparse { len: 500, index, value }
    });
    let body = prop_oneof![
        prop::collection::vec(any::<f64>(), 0..40).prop_map(Body::Numbers),
        sparse,
        prop::collection::vec(any::<u8>(), 0..100).prop_map(Body::Packed),
    ];
    let parts = prop::collection::vec((part(), body), 0..5);
    (any::<u32>(), any::<u8>(), parts).prop_map(|(round, exchange, parts)| Message { round: round.into(), exchange, parts })
}

/// A message's bytes with a few of them overwritten or cut off.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    (message(), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), any::<prop::sample::Index>()).prop_map(
        |(message, changes, end)| {
            let mut bytes = encoded(&message);
            changes.iter().for_each(|(at, byte)| {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            });
            let keep = end.index(2 * bytes.len()).min(bytes.len());
            bytes.truncate(keep.max(1));
            // Half of them with a checksum that fits, so that what is behind it is reached.
            if bytes.len().is_multiple_of(2) && bytes.len() > 4 {
                let text = bytes.len() - 4;
                let checksum = crc32fast::hash(&bytes[..text]);
                bytes[text..].copy_from_slice(&checksum.to_le_bytes());
            }
            bytes
        },
    )
}

fn encoded(message: &Message) -> Vec<u8> {
    from(&Envelope { agent: 7, mark: 3, settings: 0x1122_3344_5566_7788 }, message)
}

fn from(envelope: &Envelope, message: &Message) -> Vec<u8> {
    message.encode(envelope, &Exact, &mut Stream::default())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn messages_come_back_bit_for_bit(message in message()) {
        let bytes = encoded(&message);
        prop_assert_eq!(bytes.len(), message.encoded_len(&Exact));
        let (envelope, back) = Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default()).unwrap();
        // The bytes say all; NaNs of any payload included.
        prop_assert_eq!((back.round, back.exchange), (message.round, message.exchange));
        prop_assert_eq!(envelope, Envelope { agent: 7, mark: 3, settings: 0x1122_3344_5566_7788 });
        prop_assert_eq!(encoded(&back), bytes);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), mangled()]) {
        let (decoded, Used { largest, .. }) = memory::of(|| Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default()));
        // A part takes six bytes of a message and 64 of memory, its vector as much as its payload;
        // growing doubles; the texts of an error are short.
        prop_assert!(largest <= 512 + 24 * bytes.len(), "{} bytes for {}", largest, bytes.len());
        if let Ok((envelope, message)) = decoded {
            prop_assert_eq!(from(&envelope, &message), bytes);
        }
    }

    #[test]
    fn one_flipped_bit_is_seen(message in message(), at in any::<prop::sample::Index>()) {
        let mut bytes = encoded(&message);
        let at = at.index(8 * bytes.len());
        bytes[at / 8] ^= 1 << (at % 8);
        prop_assert!(Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default()).is_err());
    }

    #[test]
    fn a_length_that_lies_is_refused_without_its_memory(length in 100u32..) {
        let mut bytes = encoded(&Message::one(3, 0, Part::Model, vec![1.0; 8]));
        bytes[25..29].copy_from_slice(&length.to_le_bytes());
        let text = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..text]);
        bytes[text..].copy_from_slice(&checksum.to_le_bytes());
        let (decoded, Used { largest, .. }) = memory::of(|| Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default()));
        prop_assert!(decoded.is_err() && largest < 512);
    }
}

#[test]
fn the_layout_is_as_documented() {
    let sparse = Body::Sparse { len: 9, index: vec![2, 8], value: vec![0.5, -1.0] };
    let parts = vec![(Part::Direction, Body::Numbers(vec![1.5])), (Part::Correction, sparse), (Part::Packed, Body::Packed(vec![7, 9]))];
    let message = Message { round: 0x0403_0201, exchange: 9, parts };
    let mut expected = vec![3, 9, 3, 1, 2, 3, 4, 7, 0, 0, 0, 3, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11];
    expected.extend([2, 0, 1, 0, 0, 0]);
    expected.extend(1.5f64.to_le_bytes());
    expected.extend([11, 254, 9, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0]);
    expected.extend(0.5f64.to_le_bytes());
    expected.extend((-1.0f64).to_le_bytes());
    expected.extend([12, 255, 2, 0, 0, 0, 7, 9]);
    // CRC-32 of "123456789" is 0xcbf43926, which is how the polynomial is told.
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    expected.extend(crc32fast::hash(&expected).to_le_bytes());
    assert_eq!(encoded(&message), expected);
    // What is told of an earlier round stands before the parts.
    let told = Message::one(0x0403_0200, TELL, Part::Direction, vec![2.5]);
    let mut both = expected[..23].to_vec();
    both.extend([127, 1, 0, 2, 3, 4, 2, 0, 1, 0, 0, 0]);
    both.extend(2.5f64.to_le_bytes());
    both.extend(&expected[23..expected.len() - 4]);
    both.extend(crc32fast::hash(&both).to_le_bytes());
    let streams = |_, _| Stream::default();
    let envelope = Message::front(&expected).unwrap().envelope;
    assert_eq!(message.encode_after(Some(&told), &envelope, &Exact, streams), both);
    let read = |bytes: &[u8]| Message::front(bytes).unwrap().messages(&Exact, 1 << 10, &[], streams);
    assert_eq!(read(&both).unwrap(), (Some(told.clone()), message.clone()));
    assert_eq!(read(&expected).unwrap(), (None, message.clone()));
    // An answer has nothing before its parts, and nothing is told of this round or a later one.
    assert!(Message::decode(&both, &Exact, 1 << 10, streams).is_err());
    let later = Message { round: message.round, ..told };
    assert!(read(&message.encode_after(Some(&later), &envelope, &Exact, streams)).is_err());
}

/// What arrives at an agent or at the server that they did not ask for.
fn strange(d: usize, envelope: &Envelope) -> Vec<Vec<u8>> {
    let vector = |n: usize| vec![0.25; n];
    let mut strange = vec![Vec::new(), vec![1, 0, 0, 0, 0, 0, 0]];
    let encoded = |message: &Message| from(envelope, message);
    for exchange in [0, 1, 2, TELL] {
        for round in [0, 3, u64::from(u32::MAX)] {
            for part in [Part::Model, Part::Direction, Part::Operator] {
                for n in [0, 1, d, d + 1, 8 * d] {
                    strange.push(encoded(&Message::one(round, exchange, part, vector(n))));
                }
            }
            let number = |part, n| (part, Body::Numbers(vector(n)));
            for parts in [
                vec![number(Part::Model, d), number(Part::Operator, d)],
                vec![number(Part::Model, d), number(Part::Counted, 1)],
                vec![number(Part::Model, d), number(Part::ServerControl, d)],
                vec![number(Part::Model, d), number(Part::ServerControl, d), (Part::Counted, Body::Numbers(vec![-1.0]))],
                vec![number(Part::Direction, d), (Part::Counted, Body::Numbers(vec![-1.0]))],
                vec![number(Part::Model, d), number(Part::Control, d + 1)],
                vec![number(Part::Gradient, d), number(Part::Hessian, d)],
                vec![number(Part::Model, d), (Part::Renewal, Body::Numbers(vec![0.0]))],
                vec![number(Part::Gradient, d), number(Part::Eigenvalues, 3), number(Part::Eigenvectors, 0)],
                vec![(Part::Model, Body::Packed(vec![0; d]))],
                vec![(Part::Direction, Body::Sparse { len: d as u32, index: vec![0], value: vec![1.0] })],
                Vec::new(),
            ] {
                strange.push(encoded(&Message { round, exchange, parts }));
            }
        }
    }
    strange
}

/// A federation of three agents, from whose first round new halves start.
struct Start<'a> {
    field: &'a Arc<dyn Field>,
    kind: &'static str,
    federation: Federation,
}

impl Start<'_> {
    fn own(&self, agent: usize) -> Envelope {
        Envelope { agent, mark: 0, settings: self.federation.digest() }
    }

    fn client(&self, agent: usize) -> ClientNode {
        ClientNode::new(&self.federation, self.field, agent, agent).unwrap()
    }

    /// The server after it has opened its first round.
    fn server(&self) -> ServerNode {
        let mut server = ServerNode::new(&self.federation).unwrap();
        server.open();
        server
    }

    /// The agents that the first round asks, and the questions.
    fn questions(&self) -> (Vec<usize>, Vec<Arc<[u8]>>) {
        let Todo::Ask { to, bytes } = ServerNode::new(&self.federation).unwrap().open() else { panic!("a round opens with a question") };
        (to, bytes)
    }

    /// The places of the answers that the server refuses in the first round, and its state after them.
    fn receive(&self, answers: &[(usize, Vec<u8>)]) -> (Vec<usize>, Vec<u8>) {
        let mut server = self.server();
        let refused = server.receive(answers).refused;
        (refused.into_iter().map(|(i, _)| i).collect(), server.save())
    }

    fn an_agent_takes_only_what_its_server_sends(&self) {
        let (kind, d) = (self.kind, self.field.dim());
        let mut node = self.client(1);
        let all = strange(d, &self.own(1));
        let taken = all.iter().filter(|bytes| node.handle(bytes).is_ok()).count();
        // Of the well-formed ones, those with this method's exchanges and parts, in their order.
        assert!((1..=9).contains(&taken), "{kind}: {taken}");
        // Nothing of another federation, and nothing to another agent.
        let mut node = self.client(1);
        let foreign = Envelope { settings: 1, ..self.own(1) };
        for envelope in [self.own(0), foreign, Envelope::default()] {
            assert!(strange(d, &envelope).iter().all(|bytes| node.handle(bytes).is_err()), "{kind}");
        }
    }

    /// Only what is wanted in the right round and exchange, of the agent that sends it, may pass.
    fn the_server_takes_only_what_it_asked_for(&self) {
        let before = self.server().theta().to_vec();
        for from in 0..3 {
            for bytes in strange(self.field.dim(), &self.own(from)) {
                for agent in 0..4 {
                    let mut server = self.server();
                    let passed = server.receive(&[(agent, bytes.clone())]).refused.is_empty();
                    let right = Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default())
                        .is_ok_and(|(envelope, m)| (m.round, m.exchange) == (0, 0) && envelope.agent == agent);
                    assert!(right || !passed && server.theta() == before, "{}", self.kind);
                }
            }
        }
    }

    /// Only the answer of an agent that was not asked is refused; a repeated answer counts once; without answers theta does not change.
    fn a_bad_answer_is_refused_alone(&self) {
        let kind = self.kind;
        let (to, bytes) = self.questions();
        let agent = to[0];
        let answer = self.client(agent).handle(&bytes[0]).unwrap().unwrap();
        let (refused, alone) = self.receive(&[(agent, answer.clone())]);
        assert!(refused.is_empty());
        let other_agent = (agent + 1) % 3;
        for bad in [(7, answer.clone()), (other_agent, answer.clone()), (agent, answer[..answer.len() - 1].to_vec())] {
            assert_eq!(self.receive(&[bad, (agent, answer.clone())]), (vec![0], alone.clone()), "{kind}");
        }
        assert_eq!(self.receive(&[(agent, answer.clone()), (agent, answer.clone())]), (vec![], alone.clone()), "{kind}");
        let mut nobody = self.server();
        let before = nobody.theta().to_vec();
        nobody.receive(&[]);
        assert_eq!(nobody.theta(), before, "{kind}");
        // Another one of the same agent, and numbers that are none, are refused alone.
        let (_, message) = Message::decode(&answer, &Exact, 1 << 20, |_, _| Stream::default()).unwrap();
        let with = |x: f64| {
            let mut message = message.clone();
            let Body::Numbers(values) = &mut message.parts[0].1 else { panic!("numbers") };
            values[0] = x;
            from(&self.own(agent), &message)
        };
        assert_eq!(self.receive(&[(agent, answer.clone()), (agent, with(1.25))]), (vec![1], alone.clone()), "{kind}");
        for x in [f64::NAN, f64::INFINITY] {
            assert_eq!(self.receive(&[(agent, with(x)), (agent, answer.clone())]), (vec![0], alone.clone()), "{kind}");
        }
    }

    /// A question that comes twice gets the same bytes, and changes nothing; another one of the same round is refused.
    fn a_repeated_question_gets_the_same_answer(&self) {
        let kind = self.kind;
        let (to, bytes) = self.questions();
        let answer = self.client(to[0]).handle(&bytes[0]).unwrap().unwrap();
        let mut node = self.client(to[0]);
        assert_eq!(node.handle(&bytes[0]).unwrap().unwrap(), answer);
        let state = node.save();
        assert_eq!(node.handle(&bytes[0]).unwrap().unwrap(), answer, "{kind}");
        let changed = from(&self.own(to[0]), &Message::one(0, 0, Part::Model, vec![0.5; self.field.dim()]));
        assert!(node.handle(&changed).is_err(), "{kind}");
        assert_eq!(node.save(), state, "{kind}");
    }
}

#[test]
fn halves_take_or_refuse_any_message_without_panic() {
    let garnet = field(&*problems(3)[0].1, Law::Markov);
    let quadratic = field(&*crate::common::objectives(3)[0].1, Law::Mean);
    let first_order = methods(None).into_iter().chain(methods(Some(2))).map(|method| (&garnet, method));
    for (field, (kind, method)) in first_order.chain(crate::common::computing_alone().into_iter().map(|method| (&quadratic, method))) {
        let federation = Federation::new(&*method, &EXACT, vec![1.0 / 3.0; 3], 5, vec![0.0; field.dim()]).unwrap();
        let start = Start { field, kind, federation };
        start.an_agent_takes_only_what_its_server_sends();
        start.the_server_takes_only_what_it_asked_for();
        start.a_bad_answer_is_refused_alone();
        start.a_repeated_question_gets_the_same_answer();
    }
}

/// A question that a method's agent itself refuses, because it says of the server what cannot be, leaves the agent as it was: its saved state
/// is the same. Hessians of rows as sparse as these have fewer eigenpairs of their own than the server could hold of others.
#[test]
fn a_refused_question_leaves_its_agent_as_it_was() {
    let mut set = crate::common::data_set(6, 12, false, true);
    if let Rows::Dense { values, .. } = &mut set.rows {
        values.iter_mut().enumerate().filter(|(i, _)| i % 5 != 0).for_each(|(_, x)| *x = 0.0);
    }
    set.rows = set.rows.to_sparse();
    let settings = Logistic { agents: Some(3), ridge: 0.05, ..Logistic::new(Sources::One("data".into())) };
    let field = field(&crate::common::OnSets { settings, sets: vec![set] }, Law::Mean);
    let d = field.dim();
    let active = |c: usize| field.facts().objective().unwrap().active(c).unwrap().components.len();
    assert!((0..3).all(|c| (2..d - 1).contains(&active(c))));
    let of_one_hessian = r#"{"curvature": "products", "renewal": {"schedule": "once"}}"#;
    let of_products = ("shed of one Hessian", crate::common::method("shed", of_one_hessian));
    let mut seen = Vec::new();
    for (kind, method) in crate::common::computing_alone().into_iter().chain([of_products]) {
        let Ok(mut halves) = crate::common::Halves::new(&field, &*method, &EXACT, 5) else { continue };
        (0..4).for_each(|_| halves.round());
        let Todo::Ask { to, bytes } = halves.server.open() else { panic!("a round opens with a question") };
        let (envelope, question) = Message::decode(&bytes[0], &Exact, 1 << 20, |_, _| Stream::default()).unwrap();
        let envelope = Envelope { agent: to[0], ..envelope };
        let rounds = [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.5, 1e300];
        let mut hostile: Vec<(Part, Vec<f64>)> = Vec::new();
        for round in rounds {
            hostile.extend([Part::Counted, Part::Renewal].map(|part| (part, vec![round])));
            hostile.push((Part::Counted, vec![round, 0.0]));
        }
        let node = &mut halves.nodes[to[0]];
        let before = node.save();
        let (mut taken, mut refused) = (0, Vec::new());
        for (part, numbers) in hostile {
            let mut parts = question.parts.clone();
            parts.retain(|(own, _)| *own != part);
            parts.push((part, Body::Numbers(numbers.clone())));
            if node.handle(&from(&envelope, &Message { parts, ..question.clone() })).is_ok() {
                taken += 1;
                node.restore(&before).unwrap();
            } else {
                assert_eq!(node.save(), before, "{kind}: {part:?} {numbers:?}");
                refused.push((part, numbers));
            }
        }
        // An exchange that is not the first, without the one before it.
        let p = Message::one(question.round, 1, Part::Step, vec![0.25; d]);
        assert!(node.handle(&from(&envelope, &p)).is_err() && node.save() == before, "{kind}");
        let tells = ["shed", "q-shed", "fednl"].iter().any(|name| kind.starts_with(name));
        assert!(!refused.is_empty() && (taken > 0) == tells, "{kind}: {taken}");
        assert!([4.0, -2.0, 0.5].iter().all(|round| refused.contains(&(Part::Counted, vec![*round]))), "{kind}");
        seen.push(kind);
    }
    assert!(["newton", "shed", "q-shed", "gd", "giant", "fednl"].iter().all(|kind| seen.contains(kind)), "{seen:?}");
}

/// Saved nodes are put back whole; damaged ones are refused, which changes nothing.
#[test]
fn saved_nodes_are_put_back_whole_or_refused() {
    let field = field(&*problems(3)[0].1, Law::Markov);
    for (kind, method) in methods(None).into_iter().chain(methods(Some(2))) {
        let mut halves = crate::common::Halves::new(&field, &*method, &EXACT, 5).unwrap();
        (0..3).for_each(|_| halves.round());
        halves.server.open();
        let federation = Federation::new(&*method, &EXACT, field.weights().to_vec(), 5, vec![0.0; field.dim()]).unwrap();
        let mut node = ClientNode::new(&federation, &field, 1, 1).unwrap();
        let mut server = ServerNode::new(&federation).unwrap();
        let (empty_node, empty_server) = (node.save(), server.save());
        let (saved_node, saved_server) = (halves.nodes[1].save(), halves.server.save());
        let mut draws = fedsa::random::stream(1, fedsa::random::Purpose::Fresh, 0, 0);
        for _ in 0..300 {
            let mangle = |bytes: &[u8], draws: &mut Stream| {
                let mut bytes = bytes.to_vec();
                let at = (draws.uniform() * bytes.len() as f64) as usize;
                match draws.bits() % 3 {
                    0 => bytes.truncate(at),
                    1 => bytes[at] ^= 1 << (draws.bits() % 8),
                    _ => bytes.insert(at, draws.bits() as u8),
                }
                bytes
            };
            assert!(node.restore(&mangle(&saved_node, &mut draws)).is_err() && server.restore(&mangle(&saved_server, &mut draws)).is_err());
            assert_eq!((node.save(), server.save()), (empty_node.clone(), empty_server.clone()), "{kind}");
        }
        // Of another agent, or another federation.
        assert!(node.restore(&halves.nodes[0].save()).is_err());
        let other = Federation::new(&*method, &EXACT, field.weights().to_vec(), 6, vec![0.0; field.dim()]).unwrap();
        assert!(ServerNode::new(&other).unwrap().restore(&saved_server).is_err());
        node.restore(&saved_node).unwrap();
        server.restore(&saved_server).unwrap();
        assert_eq!((node.save(), server.save(), server.todo()), (saved_node, saved_server, halves.server.todo()));
    }
}
