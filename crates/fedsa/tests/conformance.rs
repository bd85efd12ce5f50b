//! Every method, driven a second way: halves that exchange only bytes, one agent
//! at a time, each in a thread of its own. The numbers are the engine's, bit for bit.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use common::{bits, field, method, methods, problems, run};
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;

const ROUNDS: u64 = 6;

/// `theta_t` after every round, from halves in threads that share only bytes.
fn by_bytes(field: &dyn Field, method: &dyn fedsa::methods::Settings, seed: u64) -> Vec<Vec<u64>> {
    let uplink = Uplink::default();
    let start = vec![0.0; field.dim()];
    std::thread::scope(|scope| {
        let (answers, inbox) = mpsc::channel::<(usize, Option<Vec<u8>>)>();
        let outboxes: Vec<mpsc::Sender<Arc<[u8]>>> = (0..field.agents())
            .map(|agent| {
                let (to_agent, from_server) = mpsc::channel::<Arc<[u8]>>();
                let (answers, start, uplink) = (answers.clone(), start.clone(), &uplink);
                scope.spawn(move || {
                    let mut node = ClientNode::new(field, method, uplink, agent, seed, start).unwrap();
                    for bytes in from_server {
                        answers.send((agent, node.handle(&bytes).unwrap())).unwrap();
                    }
                });
                to_agent
            })
            .collect();
        let mut server = ServerNode::new(method, &uplink, field.weights().to_vec(), seed, start.clone()).unwrap();
        let send = |to: &[usize], bytes: Vec<Arc<[u8]>>| -> Vec<(usize, Vec<u8>)> {
            to.iter().zip(bytes).for_each(|(c, bytes)| outboxes[*c].send(bytes).unwrap());
            let got: Vec<_> = to.iter().map(|_| inbox.recv().unwrap()).collect();
            got.into_iter().filter_map(|(c, bytes)| Some((c, bytes?))).collect()
        };
        (0..ROUNDS)
            .map(|t| {
                let mut todo = server.open(t);
                loop {
                    match todo {
                        Todo::Ask { to, bytes } => todo = server.receive(&send(&to, bytes)).todo,
                        Todo::Tell { to, bytes } => {
                            assert!(send(&to, bytes).is_empty());
                            break;
                        }
                        Todo::RoundOver => break,
                    }
                }
                bits(server.theta())
            })
            .collect()
    })
}

#[test]
fn halves_that_exchange_bytes_give_the_engines_numbers() {
    // 19 agents: two whole blocks and a broken one. 10 of 19: blocks with gaps.
    for participants in [None, Some(10), Some(1)] {
        for law in [Law::Mean, Law::Iid, Law::Markov] {
            for (name, problem) in problems(19) {
                let field = field(&*problem, law);
                for (kind, method) in methods(participants) {
                    let uplink = Uplink::default();
                    let mut engine = run(&*field, &*method, &uplink, 5);
                    let expected: Vec<Vec<u64>> = (0..ROUNDS)
                        .map(|_| {
                            engine.step();
                            bits(engine.theta())
                        })
                        .collect();
                    let got = by_bytes(&*field, &*method, 5);
                    assert_eq!(got, expected, "{kind} on {name}, {law:?}, participants {participants:?}");
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads_or_instruction_sets() {
    let all = |threads: usize, isa| -> Vec<Vec<u64>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut out = Vec::new();
            for law in [Law::Iid, Law::Markov] {
                for (_, problem) in problems(203) {
                    let sampling = fedsa::sampling::Sampling { kind: law, ..Default::default() };
                    let field = problem.field(&fedsa::problem::NoFiles, sampling, isa).unwrap();
                    for (_, method) in methods(None).into_iter().chain(methods(Some(77))) {
                        let uplink = Uplink::default();
                        let mut engine = run(&*field, &*method, &uplink, 5);
                        (0..4).for_each(|_| engine.step());
                        out.push(bits(engine.theta()));
                    }
                }
            }
            out
        })
    };
    let isas = fedsa::kernel::Isa::available();
    let expected = all(1, isas[0]);
    for isa in isas {
        for threads in [1, 2, 7] {
            assert_eq!(all(threads, isa), expected, "{threads} threads, {isa:?}");
        }
    }
}

#[test]
fn an_abandoned_round_leaves_no_trace_once_the_run_is_restored() {
    for (name, problem) in problems(19) {
        let field = field(&*problem, Law::Markov);
        for (kind, method) in methods(Some(10)).into_iter().chain(methods(None)) {
            let uplink = Uplink::default();
            let mut whole = run(&*field, &*method, &uplink, 5);
            (0..6).for_each(|_| whole.step());
            let mut stopped = run(&*field, &*method, &uplink, 5);
            let go = AtomicBool::new(false);
            (0..4).for_each(|_| assert!(stopped.step_unless(&go)));
            let before = stopped.save();
            // A flag that is set from the start: whatever was computed until then is not the round.
            assert!(!stopped.step_unless(&AtomicBool::new(true)));
            stopped.restore(&before).unwrap();
            (4..6).for_each(|_| stopped.step());
            assert_eq!(stopped.save(), whole.save(), "{kind} on {name}");
        }
    }
}

#[test]
fn a_long_round_is_abandoned_long_before_its_end() {
    // Ten million steps of 19 agents take seconds; a flag that is set after some milliseconds ends them.
    let problem = &problems(19)[0].1;
    let field = field(&**problem, Law::Iid);
    let method = method("fedlsa", r#"{"step_size": 1e-6, "local_steps": 10000000}"#);
    let uplink = Uplink::default();
    let mut engine = run(&*field, &*method, &uplink, 5);
    let stop = AtomicBool::new(false);
    let completed = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            stop.store(true, Ordering::Relaxed);
        });
        engine.step_unless(&stop)
    });
    assert!(!completed && engine.round() == 0);
}

#[test]
fn a_restored_run_goes_on_to_the_same_bits() {
    for (name, problem) in problems(19) {
        for law in [Law::Iid, Law::Markov] {
            let field = field(&*problem, law);
            for (kind, method) in methods(Some(10)).into_iter().chain(methods(None)) {
                let uplink = Uplink::default();
                let mut whole = run(&*field, &*method, &uplink, 5);
                (0..9).for_each(|_| whole.step());
                let mut first = run(&*field, &*method, &uplink, 5);
                (0..4).for_each(|_| first.step());
                let mut second = run(&*field, &*method, &uplink, 5);
                second.restore(&first.save()).unwrap();
                (4..9).for_each(|_| second.step());
                assert_eq!(second.save(), whole.save(), "{kind} on {name}, {law:?}");
                assert!(second.restore(&first.save()[1..]).is_err());
            }
        }
    }
}
