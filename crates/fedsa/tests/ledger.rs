//! The ledger counts what is sent: bytes that the halves exchange, and samples that steps use.

use std::sync::Arc;

use crate::common::{EXACT, Halves, field, link, method, methods, on_the_wire, problems, run, run_for, small_garnet};
use fedsa::error::Result;
use fedsa::message::{Envelope, HEADER_BYTES, Message, Part, TELL};
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::problem::calls::Calls;
use fedsa::random::{Purpose, Stream};
use fedsa::record::Ledger;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::{LocalSteps, StepSchedule, StepSize};
use fedsa::uplink::codec::{Codec, Exact};
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_problems::NoFiles;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::nonlinear::q_learning::QLearning;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::td::garnet::Heterogeneity;

const ROUNDS: u64 = 6;
const SEED: u64 = 5;

/// What passes between halves that exchange bytes, counted where it passes, and where they end.
fn by_bytes(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> (Ledger, Vec<f64>) {
    let mut halves = Halves::new(field, method, uplink, SEED).unwrap();
    (0..ROUNDS).for_each(|_| halves.round());
    halves.finish();
    (halves.ledger, halves.server.theta().to_vec())
}

#[test]
fn the_ledger_is_what_the_halves_exchange() {
    for participants in [None, Some(10), Some(1), Some(19)] {
        for (name, problem) in problems(19) {
            let field = field(&*problem, Law::Iid);
            for (kind, method) in methods(participants) {
                let engine = run_for(&field, &*method, SEED, &vec![0.0; field.dim()], ROUNDS);
                let (counted, theta) = by_bytes(&field, &*method, &EXACT);
                assert_eq!(counted, on_the_wire(engine.ledger()), "{kind} on {name}, participants {participants:?}");
                assert_eq!(theta, engine.theta());
            }
        }
    }
    for (name, problem) in crate::common::objectives(19) {
        let field = field(&*problem, Law::Mean);
        for (kind, method) in crate::common::computing_alone() {
            let engine = run_for(&field, &*method, SEED, &vec![0.0; field.dim()], ROUNDS);
            let (counted, theta) = by_bytes(&field, &*method, &EXACT);
            assert_eq!((counted, &theta[..]), (on_the_wire(engine.ledger()), engine.theta()), "{kind} on {name}");
        }
    }
}

/// The bytes of a message of one part of `d` numbers.
fn message_bytes(exchange: u8, part: Part, d: usize) -> u64 {
    Message::one(0, exchange, part, vec![0.0; d]).encode(&Envelope::default(), &Exact, &mut Stream::default()).len() as u64
}

#[test]
fn every_method_costs_what_its_rounds_say() {
    let (agents, h) = (19, 7);
    let problem = small_garnet(agents, Heterogeneity::Independent);
    for (law, batch, per_step) in [(Law::Mean, 1, 0), (Law::Iid, 1, 1), (Law::Iid, 3, 3), (Law::Markov, 2, 2)] {
        let sampling = Sampling::default().with_kind(law).with_batch(batch);
        let field = fedsa_problems::ProblemSettings::field(&problem, &NoFiles, sampling, fedsa::kernel::Isa::best()).unwrap();
        let d = field.dim();
        // 27 bytes besides parts, six of a part's, eight a number.
        let vector = 8 * (27 + 6 + 8 * d as u64);
        assert_eq!(8 * message_bytes(0, Part::Model, d), vector);
        for m in [1, 10, 19] {
            let n = m as u64;
            let told = m < agents;
            let with = |rest: &str| format!(r#"{{"step_size": 0.05, "participants": {m}, {rest}}}"#);
            let steps = StepSchedule { size: StepSize::Constant(0.05), local: LocalSteps::Geometric { talk: 0.2, seed: SEED } };
            let random_steps = (0..ROUNDS).map(|t| steps.of(t).len as u64).sum::<u64>();
            // Exchanges of a round, what is told at its end and travels with the next question, and local steps in all rounds.
            let cases = [
                ("fedlsa", r#""local_steps": 7"#, 1, 0, h * ROUNDS),
                ("projected-td", r#""local_steps": 7, "radius": 1.0"#, 1, 0, h * ROUNDS),
                ("fedprox", r#""local_steps": 7, "proximal_mu": 2.0"#, 1, 0, h * ROUNDS),
                ("scafflsa", r#""local_steps": 7"#, 1, u64::from(told), h * ROUNDS),
                ("scafflsa-random", r#""talk_probability": 0.2"#, 1, u64::from(told), random_steps),
                // Its first local step uses the sample of the first exchange again: H samples, not H + 1.
                ("fedhsa", r#""local_steps": 7"#, 2, 0, h * ROUNDS),
                // Its first exchange uses a sample of its own.
                ("fedlin", r#""local_steps": 7"#, 2, 0, (h + 1) * ROUNDS),
                // With some of the agents, the question also contains the server's control.
                ("scaffold", r#""local_steps": 7"#, 1, 0, h * ROUNDS),
            ];
            for (kind, rest, exchanges, tells, steps) in cases {
                let run = run_for(&field, &*method(kind, &with(rest)), SEED, &vec![0.0; d], ROUNDS);
                let answered = ROUNDS * exchanges * n;
                // A question that tells something has a header of its own less: 27 bytes, of which 6 say the round.
                let tell = vector - 8 * (27 - 6);
                let controls = if kind == "scaffold" && told { ROUNDS * n * 8 * (6 + 8 * d as u64) } else { 0 };
                let expected = Ledger {
                    exchanges: ROUNDS * exchanges,
                    samples: steps * n * per_step,
                    messages: ROUNDS * exchanges * n + answered,
                    bits_up: answered * vector,
                    bits_down: ROUNDS * n * (exchanges * vector + tells * tell) + controls,
                    vectors_up: answered,
                    // The first exchange of FedHSA evaluates its sample, which the first step evaluates again.
                    calls: Calls {
                        operators: (steps + if kind == "fedhsa" { ROUNDS } else { 0 }) * n * per_step.max(1),
                        ..Calls::default()
                    },
                    ..Ledger::default()
                };
                assert_eq!(run.ledger(), expected, "{kind}, m = {m}, {law:?}, batch {batch}");
            }
        }
    }
    // What is told has the same length as a model.
    assert_eq!(message_bytes(TELL, Part::Direction, 5), message_bytes(0, Part::Model, 5));
}

/// Four bytes a number, and one in front that says how many are negative: lengths of its own.
#[derive(Debug, serde::Serialize)]
struct Single;

impl Codec for Single {
    fn tag(&self) -> u8 {
        77
    }
    fn encoded_len(&self, n: usize, _: Option<u32>) -> Option<usize> {
        Some(4 * n + 1)
    }
    fn encode(&self, x: &[f64], _: Option<u32>, _: &mut Stream, out: &mut Vec<u8>) {
        out.push(x.iter().filter(|x| **x < 0.0).count() as u8);
        x.iter().for_each(|x| out.extend((*x as f32).to_le_bytes()));
    }
    fn decode(&self, bytes: &[u8], _: &mut Stream, out: &mut [f64]) -> Result<usize> {
        let len = 1 + 4 * out.len();
        let values = bytes.get(1..len).ok_or_else(|| fedsa::error::Error::new("message", "too short", "four bytes a number"))?;
        for (out, b) in out.iter_mut().zip(values.chunks_exact(4)) {
            *out = f64::from(f32::from_le_bytes(b.try_into().expect("four bytes")));
        }
        Ok(len)
    }
    fn min_len(&self, n: usize) -> usize {
        4 * n + 1
    }
    fn is_unbiased(&self) -> bool {
        false
    }
}

#[test]
fn a_codec_of_the_agents_is_priced_and_felt_alike_by_engine_and_halves() {
    let uplink = Uplink::default().with_codec(std::sync::Arc::new(Single));
    for (name, problem) in problems(19) {
        let field = field(&*problem, Law::Iid);
        let d = field.dim() as u64;
        for (kind, method) in methods(None) {
            let mut engine = run(&field, &*method, &uplink, SEED);
            (0..ROUNDS).for_each(|_| engine.step());
            let (counted, theta) = by_bytes(&field, &*method, &uplink);
            assert_eq!(counted, on_the_wire(engine.ledger()), "{kind} on {name}");
            assert_eq!(theta, engine.theta(), "{kind} on {name}");
            assert_eq!(engine.ledger().bits_up, engine.ledger().vectors_up * 8 * (27 + 6 + 1 + 4 * d));
            // Numbers of 24 bits: near what exact messages give, and not that. Acceleration amplifies the difference.
            let exact = run_for(&field, &*method, SEED, &vec![0.0; field.dim()], ROUNDS);
            let off = crate::common::distance(exact.theta(), engine.theta());
            assert!(off > 0.0 && off < if kind == "anderson" { 0.1 } else { 1e-5 }, "{kind} on {name}: {off:e}");
        }
    }
}

const CODECS: [&str; 9] = [
    r#"{"kind": "exact"}"#,
    r#"{"kind": "float32"}"#,
    r#"{"kind": "quantised", "bits": 1}"#,
    r#"{"kind": "quantised", "bits": 5, "rounding": "dither"}"#,
    r#"{"kind": "quantised", "bits": 64, "rounding": "nearest"}"#,
    r#"{"kind": "top-k", "k": 3}"#,
    r#"{"kind": "top-k", "fraction": 0.5}"#,
    r#"{"kind": "rand-k", "k": 3}"#,
    r#"{"kind": "rand-k", "fraction": 0.5, "unbiased": false}"#,
];

const MEDIA: [&[&str]; 10] = [
    &[],
    &[r#"{"kind": "erasure", "success": 0.5}"#],
    &[r#"{"kind": "erasure", "success": 0}"#],
    &[r#"{"kind": "gilbert-elliott", "to_bad": 0.3, "to_good": 0.3}"#],
    &[r#"{"kind": "over-the-air", "receiver_noise": 1}"#],
    &[r#"{"kind": "delay", "law": "uniform", "max": 3}"#],
    &[r#"{"kind": "late", "law": "uniform", "max": 3}"#],
    &[r#"{"kind": "bit-budget", "bits": 70}"#],
    &[r#"{"kind": "bit-budget", "bits": 15, "fading_snr": 1}"#],
    &[r#"{"kind": "bit-budget", "bits": 12, "fading_snr": 3}"#, r#"{"kind": "erasure", "success": 0.5}"#, r#"{"kind": "over-the-air"}"#],
];

/// How many of a round's messages of `d` numbers the agents send, and their bits: what the codec really makes of the numbers.
fn sent(uplink: &Uplink, round: u64, agents: usize, d: usize) -> (u64, u64) {
    let (mut messages, mut bits) = (0, 0);
    for agent in 0..agents {
        let at = MessageKey { seed: SEED, round, exchange: 0, agent };
        let budget = uplink.budget().map(|b| b.draw(&mut at.stream(Purpose::Budget)));
        let mut bytes = Vec::new();
        if uplink.codec.encoded_len(d, budget).is_some() {
            uplink.codec.encode(&vec![1.0; d], budget, &mut at.stream(Purpose::Codec), &mut bytes);
            (messages, bits) = (messages + 1, bits + 8 * ((HEADER_BYTES + 6 + bytes.len()) as u64));
        }
    }
    (messages, bits)
}

/// A message costs what was sent, whatever becomes of it on its way; one that the agent could
/// not send costs nothing.
#[test]
fn the_ledger_counts_every_encoded_bit_once_whatever_becomes_of_it() {
    const N: usize = 11;
    const D: usize = 13;
    let n = N as u64;
    let settings = LinearSystems::default().with_agents(N).with_dim(D).with_noise(Noise::new(0.3, 0.0, 1));
    let field = field(&settings, Law::Iid);
    let method = method("fedtd", r#"{"step_size": 0.1}"#);
    let mut unsent = 0;
    for codec in CODECS {
        for media in MEDIA {
            let uplink = link(codec, false, media).unwrap();
            let mut engine = run(&field, &*method, &uplink, SEED);
            let (mut messages, mut bits) = (0, 0);
            for round in 0..ROUNDS {
                engine.step();
                let of_round = sent(&uplink, round, N, D);
                (messages, bits) = (messages + of_round.0, bits + of_round.1);
            }
            unsent += ROUNDS * n - messages;
            let expected = Ledger {
                exchanges: ROUNDS,
                samples: ROUNDS * n,
                messages: ROUNDS * n + messages,
                bits_up: bits,
                bits_down: ROUNDS * n * 8 * message_bytes(0, Part::Model, D),
                vectors_up: messages,
                calls: Calls { operators: ROUNDS * n, ..Calls::default() },
                ..Ledger::default()
            };
            assert_eq!(engine.ledger(), expected, "{codec} through {media:?}");
        }
    }
    assert!(unsent > 100, "budgets that carry no message: {unsent}");
}

/// The rows of the table of exchanges: kinds of methods, and how many exchanges a round of theirs may have.
fn table_of_exchanges() -> Vec<(String, Vec<u64>)> {
    let page = include_str!("../../../docs/src/reference/methods.md");
    let table = page.split("## Exchanges of a round").nth(1).expect("the section");
    let rows = table.lines().skip_while(|line| !line.starts_with("| ---")).skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let numbers: Vec<u64> = cells[2].split(", ").map(|n| n.parse().expect("numbers of exchanges")).collect();
        let kinds: Vec<String> = cells[1].split('`').skip(1).step_by(2).map(String::from).collect();
        kinds.into_iter().map(move |kind| (kind, numbers.clone())).collect::<Vec<_>>()
    };
    rows.flat_map(row).collect()
}

#[test]
fn a_round_has_the_exchanges_of_the_table() {
    let linear = field(&small_garnet(8, Heterogeneity::Independent), Law::Iid);
    let losses = field(&RandomLogistic::default().with_agents(4).with_dim(5).with_points(30).with_ridge(0.01), Law::Mean);
    let symmetric = field(&*crate::common::objectives(4)[0].1, Law::Mean);
    let first_order = methods(None).into_iter().chain(methods(Some(3))).map(|method| (&linear, method));
    let is_linear = |kind: &str| matches!(kind, "lstd" | "gmres" | "lspi" | "fitted-q");
    let alone = crate::common::computing_alone().into_iter();
    let alone = alone.map(|(kind, method)| (if is_linear(kind) { &symmetric } else { &losses }, (kind, method)));
    let table = field(&QLearning::default(), Law::Iid);
    let importance = crate::common::method("importance-averaging", r#"{"step_size": 0.1, "local_steps": 3}"#);
    let of_tables = std::iter::once((&table, ("importance-averaging", importance)));
    let mut seen: Vec<(&str, Vec<u64>)> = Vec::new();
    for (field, (kind, method)) in first_order.chain(alone).chain(of_tables) {
        let mut run = run(field, &*method, &EXACT, SEED);
        for _ in 0..ROUNDS {
            let before = run.ledger().exchanges;
            run.step();
            let exchanges = run.ledger().exchanges - before;
            match seen.iter_mut().find(|(name, _)| *name == kind) {
                Some((_, all)) if !all.contains(&exchanges) => all.push(exchanges),
                Some(_) => {}
                None => seen.push((kind, vec![exchanges])),
            }
        }
    }
    let table = table_of_exchanges();
    for (kind, all) in &mut seen {
        all.sort_unstable();
        let said = table.iter().find(|(name, _)| name == kind).map(|(_, numbers)| numbers);
        assert_eq!(said, Some(&*all), "{kind}: the table, and what the engine counts");
    }
    assert_eq!(table.len(), seen.len(), "{table:?}");
    assert_eq!(seen.len(), fedsa_methods::KINDS.len());
}
