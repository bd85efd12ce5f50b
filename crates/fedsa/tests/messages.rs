//! Bytes from anywhere: messages decode or are refused, and halves take what their method sends.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{EXACT, field, methods, problems};
use fedsa::message::{Message, Part, TELL};
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::random::Stream;
use fedsa::sampling::Law;
use fedsa::uplink::codec::Exact;
use proptest::prelude::*;

/// The system's allocator, which remembers a thread's largest request.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: handed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: handed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![Just(Part::Model), Just(Part::Direction), Just(Part::Operator)]
}

fn message() -> impl Strategy<Value = Message> {
    let parts = prop::collection::vec((part(), prop::collection::vec(any::<f64>(), 0..40)), 0..5);
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
            bytes
        },
    )
}

fn encoded(message: &Message) -> Vec<u8> {
    message.encode(&Exact, &mut Stream::default())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn messages_come_back_bit_for_bit(message in message()) {
        let bytes = encoded(&message);
        prop_assert_eq!(bytes.len(), message.encoded_len(&Exact));
        let back = Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default()).unwrap();
        // The bytes say all; NaNs of any payload included.
        prop_assert_eq!((back.round, back.exchange), (message.round, message.exchange));
        prop_assert_eq!(encoded(&back), bytes);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), mangled()]) {
        LARGEST.set(0);
        let decoded = Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default());
        // A part takes six bytes of a message and 32 of memory, its vector as much as its payload;
        // growing doubles; the texts of an error are short.
        prop_assert!(LARGEST.get() <= 512 + 12 * bytes.len(), "{} bytes for {}", LARGEST.get(), bytes.len());
        if let Ok(message) = decoded {
            prop_assert_eq!(encoded(&message), bytes);
        }
    }

    #[test]
    fn a_length_that_lies_is_refused_without_its_memory(length in 100u32..) {
        let mut bytes = encoded(&Message::one(3, 0, Part::Model, vec![1.0; 8]));
        bytes[9..13].copy_from_slice(&length.to_le_bytes());
        LARGEST.set(0);
        prop_assert!(Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default()).is_err());
        prop_assert!(LARGEST.get() < 512);
    }
}

#[test]
fn the_layout_is_as_documented() {
    let message = Message { round: 0x0403_0201, exchange: 9, parts: vec![(Part::Direction, vec![1.5])] };
    let mut expected = vec![1, 9, 1, 1, 2, 3, 4, 2, 0, 1, 0, 0, 0];
    expected.extend(1.5f64.to_le_bytes());
    assert_eq!(encoded(&message), expected);
}

/// What arrives at an agent or at the server that they did not ask for.
fn strange(d: usize) -> Vec<Vec<u8>> {
    let vector = |n: usize| vec![0.25; n];
    let mut strange = vec![Vec::new(), vec![1, 0, 0, 0, 0, 0, 0]];
    for exchange in [0, 1, 2, TELL] {
        for round in [0, 3, u64::from(u32::MAX)] {
            for part in [Part::Model, Part::Direction, Part::Operator] {
                for n in [0, 1, d, d + 1, 8 * d] {
                    strange.push(encoded(&Message::one(round, exchange, part, vector(n))));
                }
            }
            let two = vec![(Part::Model, vector(d)), (Part::Operator, vector(d))];
            strange.push(encoded(&Message { round, exchange, parts: two }));
        }
    }
    strange
}

#[test]
fn halves_take_or_refuse_any_message_without_panic() {
    let (_, problem) = &problems(3)[0];
    let field = field(&**problem, Law::Markov);
    let d = field.dim();
    for (kind, method) in methods(None).into_iter().chain(methods(Some(2))) {
        let client = || ClientNode::new(&*field, &*method, &EXACT, 1, 5, vec![0.0; d]).unwrap();
        let mut node = client();
        let taken = strange(d).iter().filter(|bytes| node.handle(bytes).is_ok()).count();
        // Of the well-formed ones, those with this method's exchanges and parts, in their order.
        assert!((1..=9).contains(&taken), "{kind}: {taken}");

        let server = || ServerNode::new(&*method, &EXACT, vec![1.0 / 3.0; 3], 5, vec![0.0; d]).unwrap();
        let mut at_start = server();
        let Todo::Ask { to, bytes } = at_start.open(0) else { panic!("a round opens with a question") };
        let before = at_start.theta().to_vec();
        for bytes in strange(d) {
            for agent in 0..4 {
                // Only one vector for the right round and exchange may pass; it then may move theta.
                let mut server = server();
                server.open(0);
                let passed = server.receive(&[(agent, bytes.clone())]).refused.is_empty();
                let right = Message::decode(&bytes, &Exact, 1 << 20, |_, _| Stream::default())
                    .is_ok_and(|m| (m.round, m.exchange) == (0, 0) && m.parts.len() == 1);
                assert!(right || !passed && server.theta() == before, "{kind}");
            }
        }
        let answers = |answers: &[(usize, Vec<u8>)]| {
            let mut server = server();
            server.open(0);
            let refused = server.receive(answers).refused;
            (refused.into_iter().map(|(i, _)| i).collect::<Vec<_>>(), server.theta().to_vec())
        };
        // One who was not asked is refused alone; the same answer twice is one; without any theta stays as it is.
        let agent = to[0];
        let node = || ClientNode::new(&*field, &*method, &EXACT, agent, 5, vec![0.0; d]).unwrap();
        let answer = node().handle(&bytes[0]).unwrap().unwrap();
        let (refused, alone) = answers(&[(agent, answer.clone())]);
        assert!(refused.is_empty());
        assert_eq!(answers(&[(7, answer.clone()), (agent, answer.clone())]), (vec![0], alone.clone()), "{kind}");
        assert_eq!(answers(&[(agent, answer.clone()), (agent, answer.clone())]), (vec![], alone.clone()), "{kind}");
        assert_eq!(answers(&[]), (vec![], before.clone()), "{kind}");
        // Another one of the same agent, one cut off, and numbers that are none, are refused alone.
        let mut other = answer.clone();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(answers(&[(agent, answer.clone()), (agent, other)]), (vec![1], alone.clone()), "{kind}");
        assert_eq!(answers(&[(agent, answer[..answer.len() - 1].to_vec()), (agent, answer.clone())]), (vec![0], alone.clone()), "{kind}");
        for x in [f64::NAN, f64::INFINITY] {
            let mut bad = answer.clone();
            let end = bad.len();
            bad[end - 8..].copy_from_slice(&x.to_le_bytes());
            assert_eq!(answers(&[(agent, bad), (agent, answer.clone())]), (vec![0], alone.clone()), "{kind}");
        }
        // A question that comes twice gets the same bytes, and changes nothing; one that was changed is refused.
        let mut node = node();
        assert_eq!(node.handle(&bytes[0]).unwrap().unwrap(), answer);
        assert_eq!(node.handle(&bytes[0]).unwrap().unwrap(), answer, "{kind}");
        let mut changed = bytes[0].to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert!(node.handle(&changed).is_err(), "{kind}");
    }
}
