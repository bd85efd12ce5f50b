//! Robust means of answers: twins from their definitions, agents that send arbitrary vectors, and what is refused.

use std::sync::Arc;

use crate::common::{EXACT, Halves, bits, computing_alone, distance, field, linear, link, method, methods, objectives, run, small_garnet};
use crate::twins::nineteen;
use fedsa::error::Result;
use fedsa::federation::{AnswerRules, Federation, MissingAnswers};
use fedsa::message::{Body, Envelope, Message};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa::uplink::codec::Exact;
use fedsa::uplink::{Aggregation, Uplink};
use fedsa_problems::td::garnet::Heterogeneity;

const SEED: u64 = 5;
/// The rows of the agents of [`nineteen`], whose weights are shares of them.
const ROWS: f64 = 602.0;

fn over(aggregation: Aggregation) -> Uplink {
    Uplink::default().with_aggregation(aggregation)
}

/// The robust mean of each component, from sorted pairs of a value and a weight; weights are renormalised over what counts.
fn twin(aggregation: Aggregation, weights: &[f64], vectors: &[Vec<f64>]) -> Vec<f64> {
    let component = |j: usize| {
        let mut pairs: Vec<(f64, f64)> = vectors.iter().zip(weights).map(|(x, w)| (x[j], *w)).collect();
        pairs.sort_by(|a, b| a.partial_cmp(b).unwrap());
        if let Aggregation::TrimmedMean(share) = aggregation {
            let out = (share * pairs.len() as f64).floor() as usize;
            let kept: Vec<(f64, f64)> = pairs[out..pairs.len() - out].to_vec();
            return kept.iter().map(|(x, w)| x * w).sum::<f64>() / kept.iter().map(|(_, w)| w).sum::<f64>();
        }
        let rows = |pairs: &[(f64, f64)]| pairs.iter().map(|(_, w)| (w * ROWS).round() as u64).sum::<u64>();
        let (all, up_to) = (rows(&pairs), (1..=pairs.len()).map(|n| rows(&pairs[..n])).collect::<Vec<_>>());
        let lower = up_to.iter().position(|own| 2 * own >= all).unwrap();
        let upper = up_to.iter().position(|own| 2 * own > all).unwrap();
        (pairs[lower].0 + pairs[upper].0) / 2.0
    };
    (0..vectors[0].len()).map(component).collect()
}

fn operators(field: &Arc<dyn Field>, theta: &[f64]) -> Vec<Vec<f64>> {
    let operator = |c: usize| {
        let mut g = vec![0.0; theta.len()];
        assert!(field.mean(c, theta, &mut g));
        g
    };
    (0..field.agents()).map(operator).collect()
}

fn near(what: &str, x: &[f64], y: &[f64]) {
    let size = y.iter().fold(1.0, |size: f64, y| size.max(y.abs()));
    assert!(distance(x, y) <= 1e-12 * size && distance(x, y).is_finite(), "{what}: {x:?} for {y:?}");
}

/// Agents of unequal weight; H steps of the twin are plain loops.
#[test]
fn rounds_are_those_of_a_twin_with_robust_means() {
    let (eta, h) = (0.05, 3);
    let field = nineteen(Law::Mean, 1);
    for aggregation in [Aggregation::Median, Aggregation::TrimmedMean(0.0), Aggregation::TrimmedMean(0.3)] {
        for kind in ["fedlsa", "fedhsa"] {
            let mut engine = run(&field, &*method(kind, r#"{"step_size": 0.05, "local_steps": 3}"#), &over(aggregation), SEED);
            let mut theta = vec![0.0; field.dim()];
            for t in 0..30 {
                let first = operators(&field, &theta);
                let mean = twin(aggregation, field.weights(), &first);
                let moved = |c: usize| {
                    let mut own = theta.clone();
                    for _ in 0..h {
                        let g = operators(&field, &own).swap_remove(c);
                        for i in 0..own.len() {
                            own[i] += eta * (g[i] + if kind == "fedhsa" { mean[i] - first[c][i] } else { 0.0 });
                        }
                    }
                    own.iter().zip(&theta).map(|(to, from)| to - from).collect()
                };
                let moves: Vec<Vec<f64>> = (0..field.agents()).map(moved).collect();
                let step = twin(aggregation, field.weights(), &moves);
                theta.iter_mut().zip(&step).for_each(|(theta, step)| *theta += step);
                engine.step();
                near(&format!("{kind}, {aggregation:?}, round {t}"), engine.theta(), &theta);
            }
            assert!(distance(&theta, &vec![0.0; theta.len()]) > 0.05);
        }
    }
}

/// Missing answers count as zero: the robust mean of those that arrived, times their share of the weight. Reweighted, the share is 1.
#[test]
fn of_missing_answers_the_step_has_their_share_of_the_weight() {
    let field = nineteen(Law::Mean, 1);
    let fedtd = method("fedtd", r#"{"step_size": 0.1}"#);
    let came = [0, 1, 3, 8, 12];
    let weights: Vec<f64> = came.iter().map(|c| field.weights()[*c]).collect();
    let vectors: Vec<Vec<f64>> = came.iter().map(|c| operators(&field, &vec![0.0; field.dim()]).swap_remove(*c)).collect();
    for aggregation in [Aggregation::Median, Aggregation::TrimmedMean(0.4)] {
        for (missing, share) in [(MissingAnswers::Zero, weights.iter().sum::<f64>()), (MissingAnswers::Reweighted, 1.0)] {
            let federation = Federation::new(&*fedtd, &over(aggregation), field.weights(), SEED, vec![0.0; field.dim()]).unwrap();
            let federation = federation.with_rules(AnswerRules::default().with_missing(missing)).unwrap();
            let mut server = ServerNode::new(&federation).unwrap();
            let Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
            for c in came {
                let answer = ClientNode::new(&federation, &field, c, c).unwrap().handle(&bytes[c]).unwrap().unwrap();
                server.take(c, &answer).unwrap();
            }
            server.close();
            let expected: Vec<f64> = twin(aggregation, &weights, &vectors).iter().map(|x| 0.1 * share * x).collect();
            near(&format!("{aggregation:?}, {missing:?}"), server.theta(), &expected);
            assert!(distance(server.theta(), &vec![0.0; field.dim()]) > 1e-3);
        }
    }
}

/// The answer of an agent at fault: its numbers times -100.
fn turned(bytes: &[u8]) -> Vec<u8> {
    let (envelope, mut message): (Envelope, Message) = Message::decode(bytes, &Exact, 1 << 16, |_, _| Stream::default()).unwrap();
    for (_, body) in &mut message.parts {
        let Body::Numbers(x) = body else { panic!("numbers") };
        x.iter_mut().for_each(|x| *x *= -100.0);
    }
    message.encode(&envelope, &Exact, &mut Stream::default())
}

/// theta after rounds of ten agents with the same system, of which agents 2 and 7 are at fault.
fn attacked(field: &Arc<dyn Field>, method: &dyn MethodSettings, aggregation: Aggregation, rounds: u64) -> Vec<f64> {
    let mut halves = Halves::new(field, method, &over(aggregation), SEED).unwrap();
    for _ in 0..rounds {
        let mut todo = halves.server.open();
        while let Todo::Ask { to, bytes } = todo {
            let mut answers = Vec::new();
            for (c, bytes) in to.iter().zip(&bytes) {
                let answer = halves.nodes[*c].handle(bytes).unwrap().unwrap();
                answers.push((*c, if [2, 7].contains(c) { turned(&answer) } else { answer }));
            }
            todo = halves.server.receive(&answers).todo;
        }
        if halves.server.coordinator().diverged().is_some() {
            break;
        }
    }
    halves.server.theta().to_vec()
}

#[test]
fn a_fifth_of_the_agents_cannot_keep_a_robust_mean_from_the_root() {
    let field = field(&linear(&[([[1.0, 0.3], [-0.2, 0.8]], [1.0, -2.0]); 10]), Law::Mean);
    let root = field.root().unwrap();
    let at_start = distance(&[0.0; 2], root);
    for (kind, settings) in [
        ("fedlsa", r#"{"step_size": 0.1, "local_steps": 5}"#),
        ("fedhsa", r#"{"step_size": 0.1, "local_steps": 5}"#),
        ("fedtd", r#"{"step_size": 0.5}"#),
    ] {
        let method = method(kind, settings);
        for aggregation in [Aggregation::TrimmedMean(0.25), Aggregation::TrimmedMean(0.2), Aggregation::Median] {
            let error = distance(&attacked(&field, &*method, aggregation, 150), root);
            assert!(error <= 1e-12 * at_start, "{kind}, {aggregation:?}: {error:e}");
        }
        // A tenth at either end leaves one of the two agents in.
        for aggregation in [Aggregation::Mean, Aggregation::TrimmedMean(0.1)] {
            let error = distance(&attacked(&field, &*method, aggregation, 150), root);
            assert!(error.is_nan() || error > 1e3 * at_start, "{kind}, {aggregation:?}: {error:e}");
        }
    }
}

#[test]
fn the_order_of_agents_does_not_matter() {
    let agents: Vec<_> = (0..11).map(|c| ([[1.0 + 0.1 * f64::from(c), 0.2], [0.1, 2.0]], [f64::from(c * c % 7), -1.0])).collect();
    let mut other = agents.clone();
    other.rotate_left(4);
    other.swap(0, 9);
    for aggregation in [Aggregation::Median, Aggregation::TrimmedMean(0.2)] {
        for kind in ["fedlsa", "fedhsa", "one-shot"] {
            let method = method(kind, r#"{"step_size": 0.05, "local_steps": 7}"#);
            let [a, b] = [&agents, &other].map(|agents| {
                let mut engine = run(&field(&linear(agents), Law::Mean), &*method, &over(aggregation), SEED);
                (0..9).for_each(|_| engine.step());
                bits(engine.theta())
            });
            assert_eq!(a, b, "{kind}, {aggregation:?}");
        }
    }
}

/// Every method that can have a robust mean gives the same bits by every door; what the others say.
#[test]
fn engine_and_nodes_give_the_same_bits_and_other_methods_are_refused() {
    let garnet = |law| field(&small_garnet(11, Heterogeneity::Independent), law);
    let all = |law| methods(None).into_iter().chain(methods(Some(6))).map(|(kind, m)| (kind, m, garnet(law))).collect::<Vec<_>>();
    let alone = || computing_alone().into_iter().map(|(kind, m)| (kind, m, field(&*objectives(11)[0].1, Law::Mean)));
    let mut taken = std::collections::BTreeSet::new();
    for (kind, method, field) in all(Law::Iid).into_iter().chain(all(Law::Markov)).chain(alone()) {
        for aggregation in [Aggregation::Median, Aggregation::TrimmedMean(0.2)] {
            let mut halves = match Halves::new(&field, &*method, &over(aggregation), SEED) {
                Ok(halves) => halves,
                Err(e) => {
                    assert_eq!(e.key, "uplink.aggregation", "{kind}: {e}");
                    continue;
                }
            };
            taken.insert(kind);
            let (mut engine, mut plain) = (run(&field, &*method, &over(aggregation), SEED), run(&field, &*method, &EXACT, SEED));
            for t in 0..6 {
                engine.step();
                plain.step();
                halves.round();
                assert_eq!(bits(halves.server.theta()), bits(engine.theta()), "{kind}, {aggregation:?}, round {t}");
            }
            assert_ne!(bits(engine.theta()), bits(plain.theta()), "{kind}, {aggregation:?}: as without it");
        }
    }
    let expected =
        ["agd", "anderson", "delayed-sa", "done", "fedhsa", "fedlin", "fedlsa", "fedprox", "fedtd", "gd", "one-shot", "projected-td"];
    assert_eq!(taken.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn engine_and_nodes_give_the_same_bits_over_links() {
    let quantised = r#"{"kind": "quantised", "bits": 4}"#;
    let erasure = r#"{"kind": "erasure", "success": 0.6}"#;
    let late = r#"{"kind": "late", "law": "geometric", "mean": 1.0}"#;
    let field = field(&small_garnet(11, Heterogeneity::Independent), Law::Markov);
    for (codec, media) in [(quantised, vec![]), (r#"{"kind": "exact"}"#, vec![erasure]), (quantised, vec![erasure, late])] {
        let uplink = link(codec, false, &media).unwrap().with_aggregation(Aggregation::TrimmedMean(0.2));
        for kind in ["fedlsa", "fedhsa", "fedtd"] {
            let settings = if kind == "fedtd" { r#"{"step_size": 0.05}"# } else { r#"{"step_size": 0.05, "local_steps": 7}"# };
            let method = method(kind, settings);
            let (mut engine, mut halves) = (run(&field, &*method, &uplink, SEED), Halves::new(&field, &*method, &uplink, SEED).unwrap());
            for t in 0..12 {
                engine.step();
                halves.round();
                assert_eq!(bits(halves.server.theta()), bits(engine.theta()), "{kind}, {codec}, {media:?}, round {t}");
            }
        }
    }
}

fn refusal(kind: &str, settings: &str, uplink: &Uplink) -> String {
    let federation: Result<Federation> = Federation::new(&*method(kind, settings), uplink, vec![0.25; 4], SEED, vec![0.0; 3]);
    federation.unwrap_err().to_string()
}

#[test]
fn a_method_that_cannot_have_a_robust_mean_is_refused_with_the_reason() {
    let steps = r#"{"step_size": 0.05, "local_steps": 7}"#;
    let last = r#"{"step_size": 0.05, "local_steps": 7, "missing": "last"}"#;
    for (kind, settings, reason) in [
        ("scafflsa", steps, "control variates sum to zero only if v is the mean"),
        ("scaffold", steps, "control variates sum to zero only if v is the mean"),
        ("scafflsa-random", r#"{"step_size": 0.05, "talk_probability": 0.2}"#, "control variates sum to zero"),
        ("fedhsa", last, "uses operator of each agent"),
        ("dasa", r#"{"step_size": 0.05}"#, "uses direction of each agent"),
        ("newton", "{}", "hessian"),
        ("lstd", "{}", "needs the mean of system"),
        ("gmres", "{}", "needs the mean of product"),
        ("bfgs", "{}", "needs the mean of losses"),
    ] {
        for aggregation in [Aggregation::Median, Aggregation::TrimmedMean(0.1)] {
            let said = refusal(kind, settings, &over(aggregation));
            assert!(said.contains(reason), "{kind}: {said}");
        }
    }
    let air = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air"}"#]).unwrap().with_aggregation(Aggregation::Median);
    assert!(refusal("fedlsa", steps, &air).contains("over this link only the sum"));
    assert!(refusal("fedlsa", steps, &over(Aggregation::TrimmedMean(0.5))).contains("aggregation.trimmed_mean: 0.5 is not accepted"));
}

/// Agents know how the server counts their answers: the hash of a federation covers it, and that with the mean is the one of old.
#[test]
fn the_hash_covers_the_mean_that_the_server_takes() {
    let of = |uplink: &Uplink| {
        let method = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
        Federation::new(&*method, uplink, vec![0.25; 4], SEED, vec![0.0; 3]).unwrap().digest()
    };
    let digests =
        [over(Aggregation::Mean), over(Aggregation::Median), over(Aggregation::TrimmedMean(0.1)), over(Aggregation::TrimmedMean(0.2))]
            .map(|link| of(&link));
    assert_eq!(digests[0], of(&EXACT));
    assert!((1..4).all(|i| !digests[..i].contains(&digests[i])));
}

/// A run that is saved and restored goes on with the same numbers.
#[test]
fn a_restored_run_goes_on_with_the_same_mean() {
    let field = field(&small_garnet(7, Heterogeneity::Independent), Law::Markov);
    let method = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let new = || -> Run { run(&field, &*method, &over(Aggregation::Median), SEED) };
    let (mut whole, mut first, mut second) = (new(), new(), new());
    (0..8).for_each(|_| whole.step());
    (0..3).for_each(|_| first.step());
    second.restore(&first.save().unwrap()).unwrap();
    (0..5).for_each(|_| second.step());
    assert_eq!(bits(second.theta()), bits(whole.theta()));
}
