//! Every method, driven a second way: halves that exchange only bytes, one agent
//! at a time, each in a thread of its own. The numbers are the engine's, bit for bit.

use std::sync::Arc;
use std::sync::mpsc;

use crate::common::{bits, engine, field, method, methods, problems, problems_under, run};
use fedsa::cancel::Cancel;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::round::Advanced;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;

const ROUNDS: u64 = 6;

/// `theta_t` after every round, from halves in threads that share only bytes.
fn by_bytes(field: &Arc<dyn Field>, method: &dyn fedsa::method::MethodSettings, seed: u64) -> Vec<Vec<u64>> {
    let uplink = Uplink::default();
    let federation = &Federation::new(method, &uplink, field.weights().to_vec(), seed, vec![0.0; field.dim()]).unwrap();
    std::thread::scope(|scope| {
        let (answers, inbox) = mpsc::channel::<(usize, Option<Vec<u8>>)>();
        let outboxes: Vec<mpsc::Sender<Arc<[u8]>>> = (0..field.agents())
            .map(|agent| {
                let (to_agent, from_server) = mpsc::channel::<Arc<[u8]>>();
                let answers = answers.clone();
                scope.spawn(move || {
                    let mut node = ClientNode::new(federation, field, agent, agent).unwrap();
                    for bytes in from_server {
                        answers.send((agent, node.handle(&bytes).unwrap())).unwrap();
                    }
                });
                to_agent
            })
            .collect();
        let mut server = ServerNode::new(federation).unwrap();
        let send = |to: &[usize], bytes: Vec<Arc<[u8]>>| -> Vec<(usize, Vec<u8>)> {
            to.iter().zip(bytes).for_each(|(c, bytes)| outboxes[*c].send(bytes).unwrap());
            let got: Vec<_> = to.iter().map(|_| inbox.recv().unwrap()).collect();
            got.into_iter().filter_map(|(c, bytes)| Some((c, bytes?))).collect()
        };
        (0..ROUNDS)
            .map(|_| {
                let mut todo = server.open();
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

/// A name, a problem, and a method that works on it.
type Pair = (String, Arc<dyn Field>, Box<dyn fedsa::method::MethodSettings>);

/// Every method with small problems that it works on.
fn pairs(agents: usize, participants: Option<usize>, law: Law) -> Vec<Pair> {
    let mut all = Vec::new();
    for (name, problem) in problems_under(law, agents) {
        let field = field(&*problem, law);
        for (kind, method) in methods(participants) {
            all.push((format!("{kind} on {name}, {law:?}, participants {participants:?}"), field.clone(), method));
        }
    }
    if participants.is_none() {
        for (name, problem) in crate::common::objectives(agents) {
            let field = field(&*problem, law);
            for (kind, method) in crate::common::computing_alone() {
                all.push((format!("{kind} on {name}"), field.clone(), method));
            }
        }
    }
    all
}

#[test]
fn halves_that_exchange_bytes_give_the_engines_numbers() {
    // 19 agents: two whole blocks and a broken one. 10 of 19: blocks with gaps.
    for participants in [None, Some(10), Some(1)] {
        for law in [Law::Mean, Law::Iid, Law::Markov] {
            for (name, field, method) in pairs(19, participants, law) {
                let uplink = Uplink::default();
                let mut engine = run(&field, &*method, &uplink, 5);
                let expected: Vec<Vec<u64>> = (0..ROUNDS)
                    .map(|_| {
                        engine.step();
                        bits(engine.theta())
                    })
                    .collect();
                let got = by_bytes(&field, &*method, 5);
                assert_eq!(got, expected, "{name}");
            }
        }
    }
}

/// Each agent has its own data alone, and is who it is in the federation: the draws are those of the engine, which has
/// all data in one place.
#[test]
fn agents_with_nothing_but_their_own_data_give_the_engines_numbers() {
    let noise = Some(fedsa_problems::noise::Noise::new(0.3, 0.6, 1));
    let systems: Vec<_> = (0..11).map(|c| ([[1.0 + 0.1 * c as f64, 0.2], [0.2, 2.0]], [c as f64, -1.0])).collect();
    let of = |agents: &[_]| crate::common::linear(agents).with_noise(noise.clone());
    let first_order = [Law::Iid, Law::Markov].into_iter().flat_map(|law| methods(None).into_iter().map(move |(_, m)| (law, m)));
    for (law, method) in first_order.chain(crate::common::computing_alone().into_iter().map(|(_, m)| (Law::Mean, m))) {
        let all = field(&of(&systems), law);
        let own: Vec<Arc<dyn Field>> = systems.iter().map(|system| field(&of(std::slice::from_ref(system)), law)).collect();
        let uplink = Uplink::default();
        let federation = Federation::new(&*method, &uplink, all.weights().to_vec(), 5, vec![0.0; 2]).unwrap();
        let mut nodes: Vec<_> = own.iter().enumerate().map(|(c, own)| ClientNode::new(&federation, own, 0, c).unwrap()).collect();
        let mut server = ServerNode::new(&federation).unwrap();
        let mut engine = run(&all, &*method, &uplink, 5);
        for _ in 0..ROUNDS {
            engine.step();
            let mut todo = server.open();
            while let Todo::Ask { to, bytes } = todo {
                let answers: Vec<_> = to.iter().zip(&bytes).map(|(c, bytes)| (*c, nodes[*c].handle(bytes).unwrap().unwrap())).collect();
                todo = server.receive(&answers).todo;
            }
            if let Todo::Tell { to, bytes } = todo {
                to.iter().zip(&bytes).for_each(|(c, bytes)| assert!(nodes[*c].handle(bytes).unwrap().is_none()));
            }
            assert_eq!(bits(server.theta()), bits(engine.theta()), "{method:?}, {law:?}");
        }
    }
}

/// Newton's step on quadratics is the root, whatever their agents are like one by one.
#[test]
fn newton_is_at_the_root_of_quadratics_after_one_round() {
    for (name, problem) in crate::common::objectives(9) {
        let field = field(&*problem, Law::Mean);
        for ((_, method), trials) in crate::common::computing_alone().into_iter().zip([22, 5]) {
            let uplink = Uplink::default();
            let mut engine = run(&field, &*method, &uplink, 5);
            engine.step();
            let error = crate::common::distance(engine.theta(), field.root().unwrap());
            assert!(error < 1e-12, "{name}: {error:e}");
            let (d, ledger) = (field.dim() as u64, engine.ledger());
            assert_eq!((ledger.exchanges, ledger.vectors_up, ledger.matrices_up, ledger.scalars_up), (2, 9, 9, 9 * (trials + 1)));
            let calls = fedsa::problem::calls::Calls { gradients: 9, hessians: 9, losses: 9 * trials, ..Default::default() };
            assert_eq!((ledger.calls, ledger.samples), (calls, 0));
            // Bytes besides parts, a part's header, numbers.
            let message = |numbers: &[u64]| 8 * (27 + numbers.iter().map(|n| 6 + 8 * n).sum::<u64>());
            assert_eq!(ledger.bits_up, 9 * (message(&[d, d * (d + 1) / 2]) + message(&[trials + 1])));
            assert_eq!(ledger.bits_down, 9 * 2 * message(&[d]));
        }
    }
}

/// Over a downlink that rounds, Newton's method steps from the model and along the step that agents decoded.
#[test]
fn newton_steps_along_what_agents_decoded() {
    let uplink = Uplink::default().with_downlink(crate::common::link(r#"{"kind": "quantised", "bits": 3}"#, false, &[]).unwrap().codec);
    for (name, problem) in crate::common::objectives(3) {
        let field = field(&*problem, Law::Mean);
        let objective = field.facts().objective().unwrap();
        let loss = |theta: &[f64]| (0..3).map(|c| field.weights()[c] * objective.loss(c, theta)).sum::<f64>();
        let method = method("newton", "{}");
        let mut engine = run(&field, &*method, &uplink, 5);
        let before = loss(engine.theta());
        engine.step();
        // The first model, 0, is sent exactly. The mean of squares decreases along any direction that is nearly the step.
        let after = loss(engine.theta());
        assert!(after < before, "{name}: {after} after {before}");
        let mut halves = crate::common::Halves::new(&field, &*method, &uplink, 5).unwrap();
        halves.round();
        for _ in 0..20 {
            engine.step();
            halves.round();
            assert_eq!(bits(halves.server.theta()), bits(engine.theta()), "{name}");
        }
        // Quantisation errors are a share of the largest component: the model settles within that share.
        let root = field.root().unwrap();
        let share = crate::common::distance(engine.theta(), root) / crate::common::distance(&vec![0.0; root.len()], root);
        assert!(share < 0.5, "{name}: {share}");
    }
}

/// What error feedback cannot add up is refused when a run is built.
#[test]
fn links_are_checked_against_what_methods_send() {
    use fedsa::method::{Setting, check_link};
    use fedsa::protocol::{Gather, Len, Protocol, ReplySpec};
    let uplink = crate::common::link(r#"{"kind": "quantised", "bits": 3}"#, true, &[]).unwrap();
    let setting = Setting { seed: 0, weights: &[1.0], start: vec![0.0; 4], link: uplink.facts(), is_accelerated: false };
    let (fedlsa, newton) = (method("fedlsa", r#"{"step_size": 0.1, "local_steps": 1}"#), method("newton", "{}"));
    let client = fedlsa.client(&setting);
    let ok = Protocol::directions(4, Gather::Sum);
    assert!(check_link(&*fedlsa, &*client, &ok, &uplink, 4).is_ok());
    let mut two = ok.clone();
    two.exchanges[0].replies.push(ReplySpec { part: fedsa::message::Part::Losses, len: Len::Exactly(1), gather: Gather::Sum });
    let alone = newton.client(&setting);
    assert!(alone.facts().agents.is_some() && check_link(&*newton, &*alone, &two, &uplink, 4).is_ok());
    two.exchanges[0].replies[0].len = Len::Exactly(5);
    let e = check_link(&*newton, &*alone, &two, &uplink, 4).unwrap_err().to_string();
    assert!(e.contains("error feedback adds up vectors of d = 4"), "{e}");
}

#[test]
fn a_method_that_needs_an_objective_says_so() {
    let (uplink, newton) = (Uplink::default(), method("newton", "{}"));
    let field = field(&*problems(3)[0].1, Law::Mean);
    let e = engine(&field, &*newton, &uplink, fedsa::record::OutputRule::Last, 5, vec![0.0; field.dim()]).err().unwrap();
    assert!(e.to_string().contains("not known to be gradients"), "{e}");
}

#[test]
fn results_do_not_depend_on_threads_or_instruction_sets() {
    let all = |threads: usize, isa| -> Vec<Vec<u64>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut out = Vec::new();
            let mut add =
                |problem: &dyn fedsa_problems::ProblemSettings, law, methods: Vec<(&str, Box<dyn fedsa::method::MethodSettings>)>| {
                    let sampling = fedsa::sampling::Sampling::default().with_kind(law);
                    let field = problem.field(&fedsa_problems::NoFiles, sampling, isa).unwrap();
                    for (_, method) in methods {
                        let uplink = Uplink::default();
                        let mut engine = run(&field, &*method, &uplink, 5);
                        (0..4).for_each(|_| engine.step());
                        out.push(bits(engine.theta()));
                    }
                };
            for law in [Law::Iid, Law::Markov] {
                for (_, problem) in problems(203) {
                    add(&*problem, law, methods(None).into_iter().chain(methods(Some(77))).collect());
                }
            }
            // The library's factorisations are of this instruction set, whatever the kernels are compiled for.
            for (_, problem) in crate::common::objectives(203) {
                add(&*problem, Law::Mean, crate::common::computing_alone());
            }
            out
        })
    };
    let isas = fedsa::kernel::Isa::available();
    let (plain, others) = isas.split_first().unwrap();
    let expected = all(1, *plain);
    for (i, isa) in others.iter().enumerate() {
        let threads = [2, 7][i % 2];
        assert_eq!(all(threads, *isa), expected, "{threads} threads, {isa:?}");
    }
    for threads in [2, 7] {
        assert_eq!(all(threads, *plain), expected, "{threads} threads, {plain:?}");
    }
}

/// Eight agents are one block, which threads share where its work is long; the order of sums stays.
#[test]
fn a_block_that_threads_share_gives_the_same_bits() {
    let mut lossy = Uplink::default();
    lossy.push(Arc::new(fedsa::uplink::stage::erasure::Erasure::new(0.6))).unwrap();
    let links = [Uplink::default(), lossy];
    let wide = fedsa_problems::td::random_mrp::RandomMrp::default().with_agents(8).with_states(30).with_features(20);
    let all = |threads: usize| -> Vec<Vec<u64>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut out = Vec::new();
            for (problem, law) in [(&wide, Law::Mean), (&wide, Law::Iid), (&wide, Law::Markov)] {
                let field = field(problem, law);
                for name in ["fedlsa", "scafflsa", "fedhsa"] {
                    let method = method(name, r#"{"step_size": 0.0001, "local_steps": 15000}"#);
                    for link in &links {
                        let mut engine = run(&field, &*method, link, 5);
                        (0..3).for_each(|_| engine.step());
                        out.push(bits(engine.theta()));
                        out.push(vec![engine.ledger().bits_up, engine.ledger().samples, engine.ledger().messages]);
                        out.push(engine.save().unwrap().into_iter().map(u64::from).collect());
                    }
                }
            }
            out
        })
    };
    let expected = all(1);
    for threads in [2, 3, 8] {
        assert_eq!(all(threads), expected, "{threads} threads");
    }
}

#[test]
fn an_abandoned_round_leaves_no_trace_once_the_run_is_restored() {
    for participants in [Some(10), None] {
        for (name, field, method) in pairs(19, participants, Law::Markov) {
            let uplink = Uplink::default();
            let mut whole = run(&field, &*method, &uplink, 5);
            (0..6).for_each(|_| whole.step());
            let mut stopped = run(&field, &*method, &uplink, 5);
            (0..4).for_each(|_| assert_eq!(stopped.advance(&Cancel::new()), Advanced::Round));
            let before = stopped.save().unwrap();
            // Cancelled from the start: whatever was computed until then is not the round.
            let cancelled = Cancel::new();
            cancelled.cancel();
            assert_eq!(stopped.advance(&cancelled), Advanced::Cancelled);
            // Until it is restored it does nothing, and has no state to be kept.
            stopped.step();
            assert!(stopped.is_torn() && stopped.save().is_err() && stopped.round() == 4, "{name}");
            stopped.restore(&before).unwrap();
            (4..6).for_each(|_| stopped.step());
            assert_eq!(stopped.save(), whole.save(), "{name}");
        }
    }
}

#[test]
fn a_long_round_is_abandoned_long_before_its_end() {
    // Ten million steps of 19 agents take seconds; a token that is cancelled after some milliseconds ends them.
    let problem = &problems(19)[0].1;
    let field = field(&**problem, Law::Iid);
    let method = method("fedlsa", r#"{"step_size": 1e-6, "local_steps": 10000000}"#);
    let uplink = Uplink::default();
    let mut engine = run(&field, &*method, &uplink, 5);
    let cancel = Cancel::new();
    let completed = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            cancel.cancel();
        });
        engine.advance(&cancel)
    });
    assert!(completed == Advanced::Cancelled && engine.round() == 0);
}

/// A state has the settings that it was saved with, a version, and a checksum.
#[test]
fn a_run_of_other_settings_and_a_damaged_state_are_refused() {
    let (name, field, method) = pairs(5, None, Law::Iid).swap_remove(0);
    let with_seed = |seed: u64| run(&field, &*method, &Uplink::default(), seed);
    let (mut first, mut other) = (with_seed(5), with_seed(6));
    (0..3).for_each(|_| first.step());
    let (saved, before) = (first.save().unwrap(), other.save().unwrap());
    assert!(other.restore(&saved).unwrap_err().what.contains("not a state of this run"), "{name}");
    for bit in 0..8 * saved.len() {
        let mut damaged = saved.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(with_seed(5).restore(&damaged).is_err(), "bit {bit}");
    }
    assert_eq!(other.save().unwrap(), before);
    other = with_seed(5);
    other.restore(&saved).unwrap();
    assert_eq!(other.save().unwrap(), saved);
}

#[test]
fn a_restored_run_goes_on_to_the_same_bits() {
    for participants in [Some(10), None] {
        for law in [Law::Iid, Law::Markov] {
            for (name, field, method) in pairs(19, participants, law) {
                let uplink = Uplink::default();
                let mut whole = run(&field, &*method, &uplink, 5);
                (0..9).for_each(|_| whole.step());
                let mut first = run(&field, &*method, &uplink, 5);
                (0..4).for_each(|_| first.step());
                let mut second = run(&field, &*method, &uplink, 5);
                second.restore(&first.save().unwrap()).unwrap();
                (4..9).for_each(|_| second.step());
                assert_eq!(second.save(), whole.save(), "{name}");
                assert!(second.restore(&first.save().unwrap()[1..]).is_err());
            }
        }
    }
}
