//! Links beside the network: every method over every link, and floors where the engine loses the same answers.

use super::*;
use crate::common::{EXACT, bits, engine, method};
use fedsa::linalg::distance_sq;
use fedsa::random::{Purpose, Stream};
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::uplink::stage::{Act, Channel, GainLaw, LinkStage};
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::td::garnet::Garnet;
use std::collections::HashMap;
use std::sync::Arc;

/// Every method over every link bears the network: no panic, no wrong acceptance, no number that is none.
#[test]
fn every_method_over_every_link_bears_a_hostile_network() {
    let coarse = r#"{"kind": "quantised", "bits": 4}"#;
    let exact = r#"{"kind": "exact"}"#;
    let links = [
        crate::common::link(coarse, true, &[]),
        crate::common::link(exact, false, &[r#"{"kind": "erasure", "success": 0.7}"#]),
        crate::common::link(exact, false, &[r#"{"kind": "late", "law": "uniform", "max": 3}"#]),
        crate::common::link(coarse, false, &[r#"{"kind": "bit-budget", "bits": 4, "fading_snr": 1.0}"#]),
        crate::common::link(exact, false, &[r#"{"kind": "over-the-air", "receiver_noise": 0.01}"#]),
        crate::common::link(exact, false, &[r#"{"kind": "secure-sum", "bound": 20.0}"#]),
        crate::common::link(
            exact,
            true,
            &[r#"{"kind": "erasure", "success": 0.8}"#, r#"{"kind": "secure-sum", "bound": 2.0, "bits": 16}"#],
        ),
        crate::common::link(exact, false, &[r#"{"kind": "bit-budget", "bits": 40, "fading_snr": 3.0}"#]),
        crate::common::link(coarse, true, &[r#"{"kind": "clip", "norm": 0.5}"#, r#"{"kind": "noise", "std": 0.01}"#]),
    ];
    let garnet = crate::common::field(&*crate::common::problems(6)[0].1, Law::Markov);
    let quadratic = crate::common::field(&*crate::common::objectives(6)[0].1, Law::Mean);
    for link in links.map(fedsa::error::Result::unwrap) {
        let first_order = crate::common::methods(None).into_iter().chain(crate::common::methods(Some(4))).map(|method| (&garnet, method));
        for (field, (kind, method)) in first_order.chain(crate::common::computing_alone().into_iter().map(|method| (&quadratic, method))) {
            if engine(field, &*method, &link, OutputRule::Last, SEED, vec![0.0; field.dim()]).is_err() {
                continue;
            }
            let mut world = World::new(field, &*method, &link, Habits { agent_dies: 0.05, server_dies: 0.1, ..HOSTILE });
            (0..200).for_each(|_| world.round());
            assert!(world.server.theta().iter().all(|x| x.is_finite()), "{kind}");
        }
    }
}

/// Arrivals as they were recorded: the engine's link loses what the network lost.
#[derive(Debug, serde::Serialize)]
struct Recorded(HashMap<u64, bool>);

impl LinkStage for Recorded {
    fn act(&self) -> Act<'_> {
        Act::Weakens(self)
    }
}

impl Channel for Recorded {
    fn gain(&self, _: &mut [u64], stream: &mut Stream) -> f64 {
        f64::from(self.0[&stream.bits()])
    }
    fn gain_law(&self) -> GainLaw {
        GainLaw { moments: None, share_arriving: 1.0 }
    }
}

fn recorded(world: &World<'_>, exchanges: u8) -> Uplink {
    let mut arrivals = HashMap::new();
    for round in 0..world.server.opened() {
        for exchange in 0..exchanges {
            for agent in 0..world.nodes.len() {
                let key = MessageKey { seed: SEED, round, exchange, agent }.stream(Purpose::Medium).bits();
                arrivals.insert(key, world.counted.contains(&(round, exchange, agent)));
            }
        }
    }
    Uplink::default().with_media(vec![Arc::new(Recorded(arrivals))])
}

/// The engine answers for 64 agents at a time where steps are few, a node for one.
#[test]
fn many_agents_of_few_steps_have_the_bits_of_nodes() {
    const QUIET: Habits = Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 };
    let settings = Garnet::default().with_agents(150).with_features(5);
    let links = [
        Uplink::default(),
        crate::common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.7}"#]).unwrap(),
        crate::common::link(r#"{"kind": "quantised", "bits": 4}"#, true, &[]).unwrap(),
    ];
    for law in [Law::Iid, Law::Markov] {
        let field = crate::common::field(&settings, law);
        for (link, (kind, few)) in links.iter().flat_map(|link| [("fedlsa", 100), ("scafflsa", 100), ("scafflsa", 150)].map(|m| (link, m)))
        {
            let method = method(kind, &format!(r#"{{"step_size": 0.1, "local_steps": 1, "participants": {few}}}"#));
            let mut run = engine(&field, &*method, link, OutputRule::Last, SEED, vec![0.0; 5]).unwrap();
            let mut world = World::new(&field, &*method, link, QUIET);
            for t in 0..4 {
                run.step();
                world.round();
                assert_eq!(bits(run.theta()), bits(world.server.theta()), "{kind} with {few} agents over {link:?}, {law:?}, round {t}");
            }
        }
    }
}

/// Agents that answer older models, in one task and in several.
#[test]
fn many_agents_at_older_models_have_the_same_bits_on_any_threads() {
    let field = crate::common::field(&Garnet::default().with_agents(3000).with_features(5), Law::Markov);
    let link = crate::common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "delay", "law": "uniform", "max": 2}"#]).unwrap();
    let method = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 1}"#);
    let after = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut run = engine(&field, &*method, &link, OutputRule::Last, SEED, vec![0.0; 5]).unwrap();
            (0..6).for_each(|_| run.step());
            bits(run.theta())
        })
    };
    assert_eq!(after(1), after(2));
}

/// With noise the floor is that of an engine whose link loses the same answers. Under independent samples, which are keyed
/// by round and agent, even the iterates are; along chains, which stand still where a question is lost, the floors agree
/// within their standard errors.
#[test]
fn floors_are_those_of_an_engine_that_loses_the_same_answers() {
    const ROUNDS: u64 = 15_000;
    let noisy = |radius| LinearSystems::default().with_agents(6).with_dim(3).with_noise(Noise::new(0.3, radius, 1));
    let habits = Habits { agent_dies: 0.002, ..HOSTILE };
    for (kind, settings, exchanges) in [
        ("scafflsa", r#"{"step_size": 0.05, "local_steps": 5}"#, 1),
        ("scafflsa", r#"{"step_size": 0.05, "local_steps": 5, "participants": 4}"#, 1),
        ("fedhsa", r#"{"step_size": 0.05, "local_steps": 5, "missing": "last"}"#, 2),
        ("fedlsa", r#"{"step_size": 0.05, "local_steps": 5}"#, 1),
    ] {
        let method = method(kind, settings);
        for (law, radius) in [(Law::Iid, 0.0), (Law::Markov, 0.6)] {
            let field = crate::common::field(&noisy(radius), law);
            let root = field.root().unwrap();
            let mut world = World::new(&field, &*method, &EXACT, habits);
            let mut thetas = Vec::new();
            for _ in 0..ROUNDS {
                world.round();
                thetas.push(world.server.theta().to_vec());
            }
            let link = recorded(&world, exchanges);
            let mut engine = engine(&field, &*method, &link, OutputRule::Last, SEED, vec![0.0; 3]).unwrap();
            // Means over batches of 500 rounds, each far longer than a run remembers.
            let mut batches = [crate::common::Mean::default(), crate::common::Mean::default()];
            let (mut batch, mut apart) = ([0.0, 0.0], 0.0f64);
            for (t, theta) in thetas.iter().enumerate() {
                engine.step();
                apart = apart.max(crate::common::distance(theta, engine.theta()));
                batch[0] += distance_sq(theta, root) / 500.0;
                batch[1] += distance_sq(engine.theta(), root) / 500.0;
                if t % 500 == 499 {
                    let done = std::mem::take(&mut batch);
                    if t > 2000 {
                        batches.iter_mut().zip(done).for_each(|(mean, x)| mean.see(x));
                    }
                }
            }
            let [nodes, engine] = batches;
            let off = (nodes.value() - engine.value()) / (nodes.error().powi(2) + engine.error().powi(2)).sqrt();
            assert!(off.abs() < 3.0, "{kind} {settings}, {law:?}: {} and {}, {off} standard errors", nodes.value(), engine.value());
            if law == Law::Iid {
                assert!(apart < 1e-10, "{kind} {settings}: {apart:e}");
            }
        }
    }
}
