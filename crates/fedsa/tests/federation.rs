//! One federation, three ways: in this process, over bytes between threads, and over bytes with every node saved and restored between
//! messages. Iterates, outputs, metrics, ledgers and divergence are the same.

use std::sync::{Arc, mpsc};

use fedsa::federation::Federation;
use fedsa::linalg;
use fedsa::message::{Body, Envelope, Message, Part};
use fedsa::method::MethodSettings;
use fedsa::metrics::{Metrics, Observable, Observation};
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::record::{Ledger, OutputRule, Work};
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::lstd::Lstd;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::{NoFiles, ProblemSettings};

use crate::common::{EXACT, bits, computing_alone, field, link, method, methods, objectives, problems, small_garnet};

const SEED: u64 = 5;
const ROUNDS: u64 = 7;

/// What a federation leaves.
#[derive(Debug, PartialEq)]
struct Left {
    theta: Vec<u64>,
    output: Vec<u64>,
    ledger: Ledger,
    diverged: Option<u64>,
    seen: Observation,
}

fn left(of: &dyn Observable, work: Work, metrics: &Metrics) -> Left {
    let coordinator = of.coordinator();
    Left {
        theta: bits(coordinator.theta()),
        output: bits(coordinator.output()),
        ledger: coordinator.ledger().with(work),
        diverged: coordinator.diverged(),
        seen: metrics.observe(of, Some(&vec![0.5; coordinator.theta().len()]), 0.3),
    }
}

fn in_process(field: &Arc<dyn Field>, federation: &Federation, metrics: &Metrics) -> Left {
    let mut run = Run::new(field, federation).unwrap();
    (0..ROUNDS).for_each(|_| run.step());
    assert_eq!(run.refusals(), []);
    let all = left(&run, Work::default(), metrics);
    Left { ledger: run.ledger(), ..all }
}

/// Leads all rounds; `ask` carries the bytes to agents and returns the answers of those that were asked, in any order.
fn lead(server: &mut ServerNode, mut carry: impl FnMut(&mut ServerNode, &[usize], &[Arc<[u8]>], bool) -> Vec<(usize, Vec<u8>)>) {
    for _ in 0..ROUNDS {
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = todo {
            let answers = carry(server, &to, &bytes, true);
            let progress = server.receive(&answers);
            assert_eq!(progress.refused, []);
            todo = progress.todo;
        }
    }
    if let Todo::Tell { to, bytes } = server.finish() {
        carry(server, &to, &bytes, false);
    }
}

/// Each agent in a thread of its own; answers come as they are ready.
fn between_threads(field: &Arc<dyn Field>, federation: &Federation, metrics: &Metrics) -> Left {
    let mut server = ServerNode::new(federation).unwrap();
    let work = std::thread::scope(|scope| {
        let (answers, inbox) = mpsc::channel();
        let mut agents = Vec::new();
        let mut threads = Vec::new();
        for agent in 0..field.agents() {
            let (to_agent, from_server) = mpsc::channel::<Arc<[u8]>>();
            agents.push(to_agent);
            let answers = answers.clone();
            threads.push(scope.spawn(move || {
                let mut node = ClientNode::new(federation, field, agent, agent).unwrap();
                for bytes in from_server {
                    // An agent whose budget carries no answer says so, for the sake of the test alone.
                    answers.send((agent, node.handle(&bytes).unwrap())).unwrap();
                }
                node.work()
            }));
        }
        lead(&mut server, |_, to, bytes, _| {
            to.iter().zip(bytes).for_each(|(c, bytes)| agents[*c].send(Arc::clone(bytes)).unwrap());
            inbox.iter().take(to.len()).filter_map(|(c, answer)| Some((c, answer?))).collect()
        });
        drop(agents);
        threads.into_iter().map(|thread| thread.join().unwrap()).fold(Work::default(), Work::and)
    });
    left(&server, work, metrics)
}

/// Nothing lives between two messages: every node is made anew and restored.
fn from_saved_states(field: &Arc<dyn Field>, federation: &Federation, metrics: &Metrics) -> Left {
    let new = |c: usize| ClientNode::new(federation, field, c, c).unwrap();
    let mut saved: Vec<Vec<u8>> = (0..field.agents()).map(|c| new(c).save()).collect();
    let mut server = ServerNode::new(federation).unwrap();
    lead(&mut server, |server, to, bytes, _| {
        let state = server.save();
        *server = ServerNode::new(federation).unwrap();
        server.restore(&state).unwrap();
        assert_eq!(server.save(), state);
        let mut answers = Vec::new();
        for (c, bytes) in to.iter().zip(bytes) {
            let mut node = new(*c);
            node.restore(&saved[*c]).unwrap();
            answers.extend(node.handle(bytes).unwrap().map(|answer| (*c, answer)));
            saved[*c] = node.save();
        }
        answers
    });
    let work = |(c, saved): (usize, &Vec<u8>)| {
        let mut node = new(c);
        node.restore(saved).unwrap();
        node.work()
    };
    let work = saved.iter().enumerate().map(work).fold(Work::default(), Work::and);
    left(&server, work, metrics)
}

/// What metrics of a node cannot say: controls of which the server keeps no copies.
fn without_controls(left: Left) -> Left {
    Left { seen: Observation { control_error: None, lyapunov: None, ..left.seen }, ..left }
}

fn are_one(name: &str, field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, output: OutputRule) {
    let start: Vec<f64> = (0..field.dim()).map(|i| 0.1 * i as f64).collect();
    let federation = Federation::builder(method).uplink(uplink).seed(SEED).start(start).output(output).on(&**field);
    let Ok(federation) = federation else { return };
    let federation = federation.with_root(field.root().unwrap_or(&[]));
    let metrics = Metrics::new(field);
    let (engine, threads) = (in_process(field, &federation, &metrics), between_threads(field, &federation, &metrics));
    let saved = from_saved_states(field, &federation, &metrics);
    assert_eq!(threads, saved, "{name}");
    if threads.seen.control_error.is_some() {
        assert_eq!(engine, threads, "{name}");
    } else {
        assert_eq!(without_controls(engine), threads, "{name}");
    }
}

#[test]
fn one_federation_three_ways() {
    const QUANTISED: &str = r#"{"kind": "quantised", "bits": 5}"#;
    let links = [
        ("clear", Uplink::default()),
        ("quantised", link(QUANTISED, true, &[r#"{"kind": "erasure", "success": 0.7}"#]).unwrap()),
        ("budget", link(QUANTISED, true, &[r#"{"kind": "bit-budget", "bits": 6, "fading_snr": 1.0}"#]).unwrap()),
        ("late", link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#]).unwrap()),
        ("downlink", Uplink::default().with_downlink(link(QUANTISED, false, &[]).unwrap().codec)),
    ];
    let outputs = [OutputRule::Last, OutputRule::Average, OutputRule::TailAfter(3), OutputRule::Weighted(0.9)];
    let fields: Vec<_> = problems(9).into_iter().map(|(name, problem)| (name, field(&*problem, Law::Markov))).collect();
    for (l, (over, uplink)) in links.iter().enumerate() {
        for (m, (kind, method)) in methods(None).into_iter().chain(methods(Some(4))).enumerate() {
            let (name, field) = &fields[(l + m) % fields.len()];
            are_one(&format!("{kind} on {name}, {over}"), field, &*method, uplink, outputs[(l + m) % 4]);
        }
        for (name, problem) in objectives(5) {
            let field = field(&*problem, Law::Mean);
            for (m, (kind, method)) in computing_alone().into_iter().enumerate() {
                are_one(&format!("{kind} on {name}, {over}"), &field, &*method, uplink, outputs[(l + m) % 4]);
            }
        }
    }
}

#[test]
fn three_ways_diverge_in_the_same_round() {
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Iid);
    for kind in ["fedlsa", "scafflsa", "fedhsa"] {
        let method = method(kind, r#"{"step_size": 1e6, "local_steps": 3}"#);
        let federation = Federation::builder(&*method).seed(SEED).on(&*field).unwrap().with_root(field.root().unwrap());
        let metrics = Metrics::new(&field);
        let ways = [in_process, between_threads, from_saved_states].map(|way| way(&field, &federation, &metrics));
        assert!(ways[0].diverged.is_some(), "{kind}");
        assert_eq!(ways[0].diverged, ways[1].diverged, "{kind}");
        assert_eq!(ways[1].diverged, ways[2].diverged, "{kind}");
        assert_eq!((&ways[1].theta, ways[1].ledger), (&ways[2].theta, ways[2].ledger), "{kind}");
    }
}

/// The answer of 49 bytes that once panicked a server when it closed the round, again after every restore.
#[test]
fn sparse_operators_are_read_as_the_numbers_that_they_are() {
    let field = field(&small_garnet(3, Heterogeneity::Independent), Law::Iid);
    let hsa = method("fedhsa", r#"{"step_size": 0.05, "local_steps": 3, "missing": "last"}"#);
    let federation = Federation::builder(&*hsa).on(&*field).unwrap();
    let mut server = ServerNode::new(&federation).unwrap();
    let mut twin = ServerNode::new(&federation).unwrap();
    let (Todo::Ask { .. }, Todo::Ask { .. }) = (server.open(), twin.open()) else { panic!("a question") };
    let envelope = Envelope { agent: 1, mark: 0, settings: federation.digest() };
    let bytes = |body: Body| {
        let message = Message { round: 0, exchange: 0, parts: vec![(Part::Operator, body)] };
        message.encode(&envelope, &*EXACT.codec, &mut Stream::default())
    };
    let sparse = bytes(Body::Sparse { len: 4, index: vec![1], value: vec![0.5] });
    assert_eq!(sparse.len(), 49);
    server.take(1, &sparse).unwrap();
    twin.take(1, &bytes(Body::Numbers(vec![0.0, 0.5, 0.0, 0.0]))).unwrap();
    // A server that saved it goes on from it.
    let saved = server.save();
    let mut again = ServerNode::new(&federation).unwrap();
    again.restore(&saved).unwrap();
    let told = |todo: Todo| match todo {
        Todo::Ask { bytes, .. } => bytes[0].to_vec(),
        _ => panic!("the second exchange"),
    };
    let expected = told(twin.close());
    assert_eq!(told(server.close()), expected);
    assert_eq!(told(again.close()), expected);
}

/// Agents get the mean operator in any form that the network brings.
#[test]
fn agents_read_sparse_mean_operators() {
    let field = field(&small_garnet(3, Heterogeneity::Independent), Law::Mean);
    for (kind, base) in [("fedhsa", false), ("fedlin", false), ("fedhsa", true)] {
        let settings = r#""step_size": 0.05, "local_steps": 3"#;
        let method = match base {
            true => method("anderson", &format!(r#"{{"base": {{"kind": "{kind}", {settings}}}}}"#)),
            false => method(kind, &format!("{{{settings}}}")),
        };
        let federation = Federation::builder(&*method).on(&*field).unwrap();
        let answer = |body: Body| {
            let mut server = ServerNode::new(&federation).unwrap();
            let mut node = ClientNode::new(&federation, &field, 0, 0).unwrap();
            let Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
            node.handle(&bytes[0]).unwrap();
            let message = Message { round: 0, exchange: 1, parts: vec![(Part::Operator, body)] };
            let envelope = Envelope { settings: federation.digest(), ..Envelope::default() };
            node.handle(&message.encode(&envelope, &*EXACT.codec, &mut Stream::default())).unwrap()
        };
        let sparse = answer(Body::Sparse { len: 4, index: vec![2], value: vec![0.25] });
        assert_eq!(sparse, answer(Body::Numbers(vec![0.0, 0.0, 0.25, 0.0])), "{kind}");
        assert!(sparse.is_some());
    }
}

/// A model far beyond all others overflows what an agent keeps; the node's state is its own nevertheless.
#[test]
fn every_node_restores_what_it_saved_whatever_the_numbers_are() {
    let field = field(&small_garnet(4, Heterogeneity::Independent), Law::Iid);
    for participants in [None, Some(2)] {
        for (kind, method) in methods(participants) {
            let federation = Federation::builder(&*method).seed(SEED).on(&*field).unwrap();
            let mut nodes: Vec<ClientNode> = (0..4).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect();
            let mut server = ServerNode::new(&federation).unwrap();
            for round in 0..4u32 {
                let mut todo = server.open();
                while let Todo::Ask { to, bytes } = &todo {
                    let (to, bytes) = (to.clone(), bytes.clone());
                    for (c, bytes) in to.iter().zip(&bytes) {
                        let front = Message::front(bytes).unwrap();
                        let streams = |_, _| Stream::default();
                        let (told, mut message) = front.messages(&*EXACT.codec, 100, &[], streams).unwrap();
                        // In the second round the numbers to agent 0 are as large as numbers are.
                        if round == 1 && *c == 0 {
                            for (_, body) in &mut message.parts {
                                if let Body::Numbers(x) = body {
                                    x.iter_mut().for_each(|x| *x = 1e308);
                                }
                            }
                        }
                        let bytes = message.encode_after(told.as_ref(), &front.envelope, &*EXACT.codec, streams);
                        let answer = nodes[*c].handle(&bytes);
                        let saved = nodes[*c].save();
                        let mut again = ClientNode::new(&federation, &field, *c, *c).unwrap();
                        again.restore(&saved).unwrap_or_else(|e| panic!("{kind}, {participants:?}, round {round}: {e}"));
                        assert_eq!(again.save(), saved, "{kind}");
                        if let Ok(Some(answer)) = answer {
                            let _ = server.take(*c, &answer);
                        }
                        let saved = server.save();
                        let mut again = ServerNode::new(&federation).unwrap();
                        again.restore(&saved).unwrap_or_else(|e| panic!("{kind}, {participants:?}, round {round}: {e}"));
                        assert_eq!(again.save(), saved, "{kind}");
                    }
                    todo = server.close();
                }
            }
        }
    }
}

/// Ends that were built with another problem, sampling, method, link, weight, seed or start are refused; paths are their own.
#[test]
fn the_digest_covers_what_the_ends_must_agree_on() {
    let garnet = Garnet::default().with_agents(3);
    let lsa = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 2}"#);
    let hsa = method("fedhsa", r#"{"step_size": 0.1, "local_steps": 2}"#);
    let of_kind = |kind: &str, problem: &dyn ProblemSettings, sampling: Sampling| problem.described(kind, sampling, 8);
    let describe = |problem: &dyn ProblemSettings, sampling: Sampling| of_kind("garnet", problem, sampling);
    let iid = Sampling::default();
    let base = || Federation::builder(&*lsa).problem(describe(&garnet, iid));
    let of = |builder: fedsa::federation::Builder| builder.of(&[0.25, 0.25, 0.5], 8).unwrap().digest();
    let markov = iid.with_kind(Law::Markov);
    let digests = [
        of(base()),
        of(Federation::builder(&*lsa)),
        of(base().problem(describe(&garnet.clone().with_gamma(0.5), iid))),
        of(base().problem(describe(&garnet.clone().with_seed(9), iid))),
        of(base().problem(describe(&garnet, markov))),
        of(base().problem(of_kind("mrp", &garnet, iid))),
        of(Federation::builder(&*hsa).problem(describe(&garnet, iid))),
        of(base().seed(1)),
        of(base().start(vec![0.5; 8])),
        of(base().uplink(&link(r#"{"kind": "quantised", "bits": 5}"#, false, &[]).unwrap())),
        of(base().uplink(&link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap())),
        of(base().uplink(&link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.7}"#]).unwrap())),
        base().of(&[0.5, 0.25, 0.25], 8).unwrap().digest(),
    ];
    for (i, digest) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(digest), "{i}");
    }
    assert_eq!(of(base()), digests[0]);
    // An agent built with another discount takes no question.
    let other = base().problem(describe(&garnet.clone().with_gamma(0.5), iid)).of(&[0.25, 0.25, 0.5], 8).unwrap();
    let field: Arc<dyn Field> = garnet.field(&NoFiles, iid, fedsa::kernel::Isa::best()).unwrap();
    let mut server = ServerNode::new(&base().of(&[0.25, 0.25, 0.5], 8).unwrap()).unwrap();
    let mut stranger = ClientNode::new(&other, &field, 0, 0).unwrap();
    let Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
    assert!(stranger.handle(&bytes[0]).unwrap_err().to_string().contains("other settings"));
}

#[test]
fn participants_that_cannot_be_reached_are_sent_nothing_and_count_as_missing() {
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Mean);
    let lsa = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 1}"#);
    let federation = Federation::builder(&*lsa).on(&*field).unwrap();
    let mut server = ServerNode::new(&federation).unwrap();
    let Todo::Ask { to, bytes } = server.open_for(Some(&[0, 3])) else { panic!("a question") };
    assert_eq!(to, [0, 3]);
    let ledger = server.coordinator().ledger();
    assert_eq!((ledger.messages, ledger.bits_down), (2, 16 * bytes[0].len() as u64));
    assert_eq!(server.coordinator().awaited().collect::<Vec<_>>(), [0, 3]);
    let mut sum = vec![0.0; field.dim()];
    for (c, bytes) in to.iter().zip(&bytes) {
        let mut node = ClientNode::new(&federation, &field, *c, *c).unwrap();
        server.take(*c, &node.handle(bytes).unwrap().unwrap()).unwrap();
        let mut g = vec![0.0; field.dim()];
        field.mean(*c, &vec![0.0; field.dim()], &mut g);
        sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += 0.1 * 0.2 * g);
    }
    assert_eq!(server.close(), Todo::RoundOver);
    assert!(linalg::distance_sq(server.theta(), &sum).sqrt() < 1e-15);
}

/// A server would abort where its matrices do not fit: whoever builds it asks before.
#[test]
fn an_end_says_what_it_needs_before_it_is_built() {
    let federation = |method: &dyn MethodSettings, d: usize| Federation::new(method, &EXACT, vec![0.25; 4], 0, vec![0.0; d]);
    let (d, matrix) = (1000.0, 8.0 * 1000.0 * 1001.0);
    let lstd = federation(&Lstd::default(), 1000).unwrap();
    assert!(lstd.memory(4) > 4.0 * matrix && lstd.memory(4) < 10.0 * matrix && lstd.memory(1) < lstd.memory(4));
    let fedlsa = federation(&FedLsa::new(0.1, 10), 1000).unwrap();
    assert!(fedlsa.memory(4) > 8.0 * 8.0 * d && fedlsa.memory(4) < matrix);
    // The numbers of a system are numbered with 32 bits.
    let e = federation(&Lstd::default(), 1 << 16).unwrap_err();
    assert!(e.key == "kind" && e.what.contains("at most d = 65535"), "{e}");
}
