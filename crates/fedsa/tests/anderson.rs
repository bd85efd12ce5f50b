//! Anderson acceleration: against GMRES, what it saves, and what noise and losses do to it.

use std::sync::Arc;

use crate::common::{EXACT, Mean, distance, engine, linear, link, method, run, run_for, small_garnet};
use fedsa::error::ErrorCode;
use fedsa::linalg::norm_sq;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::random::{Purpose, stream};
use fedsa::record::OutputRule;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::{NoFiles, ProblemSettings as _};

/// Garnet agents of d features, whose mean system is not symmetric.
fn garnet(agents: usize, features: usize, gamma: f64, law: Law) -> Arc<dyn Field> {
    let garnet = Garnet::default().with_agents(agents).with_states(3 * features).with_features(features).with_gamma(gamma).with_seed(2);
    garnet.field(&NoFiles, Sampling::default().with_kind(law), fedsa::kernel::Isa::best()).unwrap()
}

/// A base method, and its acceleration.
fn pair(base: &str, rest: &str) -> [Box<dyn MethodSettings>; 2] {
    let kind = base.split('"').nth(3).expect("a kind");
    let settings = base.split_once(',').map_or("", |(_, settings)| settings);
    [method(kind, &format!("{{{settings}}}")), method("anderson", &format!(r#"{{"base": {{{base}}}{rest}}}"#))]
}

/// A round of a method from theta, without noise.
fn round(field: &Arc<dyn Field>, method: &dyn MethodSettings, theta: &[f64]) -> Vec<f64> {
    run_for(field, method, 0, theta, 1).theta().to_vec()
}

/// Agents whose systems differ, are not symmetric, and are well conditioned.
fn systems<const D: usize>(agents: usize) -> LinearSystems {
    let mut draws = stream(4, Purpose::Fresh, 0, 0);
    let mut agent = || {
        let a: [[f64; D]; D] = std::array::from_fn(|i| std::array::from_fn(|j| draws.uniform() - 0.5 + 2.0 * f64::from(i == j)));
        (a, std::array::from_fn(|_| draws.normal()))
    };
    linear(&(0..agents).map(|_| agent()).collect::<Vec<_>>())
}

/// With m >= d, `theta_{t+1} = G(x_t)`, where x_t is the iterate of GMRES for the fixed point of G, found by the method `gmres`
/// on the map's own linear system.
#[test]
fn on_linear_maps_it_is_gmres_and_needs_one_round_more_than_there_are_features() {
    const D: usize = 7;
    let d = D;
    let field = crate::common::field(&systems::<D>(4), Law::Mean);
    let bases = [
        r#""kind": "fedtd", "step_size": 0.2"#,
        r#""kind": "fedlsa", "step_size": 0.05, "local_steps": 10"#,
        r#""kind": "fedhsa", "step_size": 0.05, "local_steps": 4, "global_step_size": 0.9"#,
    ];
    for base in bases {
        let [plain, anderson] = pair(base, &format!(r#", "memory": {d}, "safeguard": 1e6, "ridge": 1e-14"#));
        let offset = round(&field, &*plain, &vec![0.0; d]);
        let columns: Vec<Vec<f64>> = (0..d)
            .map(|j| {
                let unit: Vec<f64> = (0..d).map(|i| f64::from(i == j)).collect();
                round(&field, &*plain, &unit).iter().zip(&offset).map(|(x, c)| x - c).collect()
            })
            .collect();
        // (I - M) x = c of the map G(x) = M x + c.
        let a = (0..d).map(|i| (0..d).map(|j| f64::from(i == j) - columns[j][i]).collect()).collect();
        let map = crate::common::field(&LinearSystems::default().with_a(vec![a]).with_b(vec![offset]), Law::Mean);
        let root = map.root().unwrap();
        let scale = norm_sq(root).sqrt();
        let uplink = Uplink::default();
        let mut gmres = run(&map, &*method("gmres", "{}"), &uplink, 0);
        let mut engine = run(&field, &*anderson, &uplink, 0);
        for k in 0..=d {
            gmres.step();
            engine.step();
            let expected = round(&field, &*plain, gmres.theta());
            let off = distance(engine.theta(), &expected) / scale;
            println!("{base}, round {k}: {off:e} from GMRES, {:e} from the fixed point", distance(engine.theta(), root) / scale);
            assert!(off < 1e-8, "{base}, round {k}: {off:e}");
        }
        assert!(distance(engine.theta(), root) < 1e-8 * scale, "{base}: {:e}", distance(engine.theta(), root) / scale);
    }
}

/// The rounds that a run needs until `||G(theta) - theta||` of the root is reached.
fn rounds_to(field: &Arc<dyn Field>, method: &dyn MethodSettings, limit: &[f64], tolerance: f64, most: u64) -> u64 {
    let mut run = run_for(field, method, 0, &vec![0.0; limit.len()], 0);
    while distance(run.theta(), limit) > tolerance * norm_sq(limit).sqrt() && run.round() < most {
        run.step();
    }
    run.round()
}

#[test]
fn it_needs_tens_of_rounds_where_others_need_hundreds() {
    let d = 16;
    let field = garnet(5, d, 0.95, Law::Mean);
    let root = field.root().unwrap();
    for (base, biased) in [
        (r#""kind": "fedtd", "step_size": 1"#, false),
        (r#""kind": "fedlsa", "step_size": 1, "local_steps": 5"#, true),
        (r#""kind": "fedhsa", "step_size": 1, "local_steps": 5"#, false),
        (r#""kind": "scafflsa", "step_size": 1, "local_steps": 5"#, false),
    ] {
        let [plain, _] = pair(base, "");
        let limit = if biased { run_for(&field, &*plain, 0, root, 60_000).theta().to_vec() } else { root.to_vec() };
        let slow = rounds_to(&field, &*plain, &limit, 1e-8, 60_000);
        for m in [2, 5, 10, 20] {
            let [_, anderson] = pair(base, &format!(r#", "memory": {m}"#));
            let fast = rounds_to(&field, &*anderson, &limit, 1e-8, 60_000);
            println!("{base}: {slow} rounds, anderson with memory {m}: {fast}");
            if m == 20 && !base.contains("scafflsa") {
                assert!(slow >= 400 && fast <= 60 && 10 * fast < slow, "{base}: {slow}, {fast}");
            }
        }
    }
}

/// The mean squared error over the last half of the rounds.
fn floor(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, seed: u64, rounds: u64) -> f64 {
    let root = field.root().unwrap();
    let mut run = engine(field, method, uplink, OutputRule::Last, seed, vec![0.0; field.dim()]).unwrap();
    let mut floor = Mean::default();
    while run.round() < rounds {
        run.step();
        assert_eq!(run.diverged(), None, "{method:?}, seed {seed}, round {}", run.round());
        if run.round() > rounds / 2 {
            floor.see(distance(run.theta(), root).powi(2));
        }
    }
    floor.value()
}

/// The ratio of the means of two paired samples, and its standard error.
fn ratio(pairs: &[[f64; 2]]) -> (f64, f64) {
    let n = pairs.len() as f64;
    let mean = |i: usize| pairs.iter().map(|pair| pair[i]).sum::<f64>() / n;
    let (x, y) = (mean(1), mean(0));
    let r = x / y;
    let spread = pairs.iter().map(|pair| (pair[1] - r * pair[0]).powi(2)).sum::<f64>() / (n - 1.0);
    (r, (spread / n).sqrt() / y)
}

/// Where the base converges to a floor, so does its acceleration: 50 seeds of each, by noise and by losses.
#[test]
fn it_is_stable_under_noise_and_losses_and_the_floor_is_measured() {
    let erasure = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.8}"#]).unwrap();
    let small = small_garnet(4, Heterogeneity::Independent);
    let seeds = 50;
    let fields: Vec<(&str, Arc<dyn Field>)> = vec![
        ("d = 4, i.i.d.", crate::common::field(&small, Law::Iid)),
        ("d = 4, mean", crate::common::field(&small, Law::Mean)),
        ("d = 16, i.i.d.", garnet(4, 16, 0.8, Law::Iid)),
    ];
    for base in [
        r#""kind": "fedtd", "step_size": 0.2"#,
        r#""kind": "fedhsa", "step_size": 0.1, "local_steps": 5"#,
        r#""kind": "scafflsa", "step_size": 0.1, "local_steps": 5"#,
    ] {
        for (name, field) in &fields {
            for (over, uplink) in [("clear", &*EXACT), ("erasure 0.8", &erasure)] {
                if name.contains("mean") && over == "clear" {
                    continue;
                }
                {
                    let [plain, anderson] = pair(base, "");
                    let floors: Vec<[f64; 2]> = (0..seeds)
                        .map(|seed| [floor(field, &*plain, uplink, seed, 2000), floor(field, &*anderson, uplink, seed, 2000)])
                        .collect();
                    let (r, error) = ratio(&floors);
                    println!("{base}, {name}, {over}: floor {:.3e}, ratio {r:.3} +- {error:.3}", floors[0][0]);
                    assert!(r + 3.0 * error < 4.0, "{base}, {name}, {over}: {r} +- {error}");
                }
            }
        }
    }
}

/// With m of N agents each round is a map of its own, and the differences between rounds contain who took part: 50 seeds of
/// each. The bounds are the measured ratios with three of their standard errors on either side, widened by a third.
#[test]
fn with_some_of_the_agents_the_floor_is_measured() {
    let small = small_garnet(4, Heterogeneity::Independent);
    let [iid, mean] = [Law::Iid, Law::Mean].map(|law| crate::common::field(&small, law));
    let root = mean.root().unwrap();
    for (base, [in_noise, without]) in [
        (r#""kind": "fedtd", "step_size": 0.2"#, [1.0..=15.0, 40.0..=130.0]),
        (r#""kind": "fedlsa", "step_size": 0.1, "local_steps": 5"#, [1.0..=1.8, 30.0..=110.0]),
        (r#""kind": "fedhsa", "step_size": 0.1, "local_steps": 5"#, [1.0..=1.8, 30.0..=110.0]),
        (r#""kind": "scafflsa", "step_size": 0.1, "local_steps": 5"#, [1.0..=2.5, 0.0..=1.0]),
    ] {
        for m in [2, 3] {
            let [plain, anderson] = pair(&format!(r#"{base}, "participants": {m}"#), "");
            for (name, field, bounds) in [("i.i.d.", &iid, &in_noise), ("mean", &mean, &without)] {
                let floors: Vec<[f64; 2]> =
                    (0..50).map(|seed| [&plain, &anderson].map(|method| floor(field, &**method, &EXACT, seed, 2000))).collect();
                let (r, error) = ratio(&floors);
                println!("{base}, {name}, {m} of 4 agents: floor {:.3e}, ratio {r:.3} +- {error:.3}", floors[0][0]);
                assert!(m == 3 || bounds.contains(&r), "{base}, {name}: {r} +- {error}");
            }
            // The noise of participation vanishes at the root where controls do.
            if base.contains("scafflsa") {
                let off = distance(run_for(&mean, &*anderson, 1, &vec![0.0; root.len()], 4000).theta(), root) / norm_sq(root).sqrt();
                println!("{base}, {m} of 4 agents: {off:e} from the root after 4000 rounds");
                assert!(off < 1e-9, "{off:e}");
            }
        }
    }
}

/// An iterate that acceleration threw far away is discarded: the run goes on from the best round of the history.
#[test]
fn a_residual_that_grew_ends_the_history() {
    let field = garnet(4, 8, 0.9, Law::Iid);
    let [_, strict] = pair(r#""kind": "fedtd", "step_size": 0.5"#, "");
    let [_, loose] = pair(r#""kind": "fedtd", "step_size": 0.5"#, r#", "safeguard": 1e9"#);
    let floors: Vec<[f64; 2]> = (0..10).map(|seed| [&strict, &loose].map(|m| floor(&field, &**m, &EXACT, seed, 500))).collect();
    let (r, error) = ratio(&floors);
    println!("the floor without a safeguard: {r:.1} +- {error:.1} times that with it");
    assert!(floors.iter().filter(|[strict, loose]| loose > strict).count() >= 8, "{floors:?}");
}

/// SCAFFLSA's agents are told v, with their next questions; controls sum to zero, and the root is reached over
/// lost messages too.
#[test]
fn agents_with_control_variates_are_told_the_mean() {
    let field = crate::common::field(&small_garnet(4, Heterogeneity::Independent), Law::Mean);
    let root = field.root().unwrap();
    let erasure = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.8}"#]).unwrap();
    for rule in ["auto", "literal", "acknowledged", "afresh"] {
        for (over, uplink) in [("clear", &*EXACT), ("erasure", &erasure)] {
            if over == "erasure" && rule != "auto" {
                continue;
            }
            let base = format!(r#""kind": "scafflsa", "step_size": 0.1, "local_steps": 5, "rule": "{rule}""#);
            let [plain, anderson] = pair(&base, "");
            let (mut without, mut with) = (run(&field, &*plain, uplink, 1), run(&field, &*anderson, uplink, 1));
            for _ in 0..2000 {
                without.step();
                with.step();
            }
            let (a, b) = (with.ledger(), without.ledger());
            assert_eq!((a.exchanges, a.bits_up, a.samples), (2000, b.bits_up, b.samples), "{rule}, {over}");
            // Without acceleration agents learn v from the next model, except under this rule.
            let told = if rule == "afresh" { 0 } else { 1990 * 4 * 8 * (12 + 8 * field.dim() as u64) };
            assert!(a.bits_down >= b.bits_down + told, "{rule}, {over}");
            let off = distance(with.theta(), root) / norm_sq(root).sqrt();
            println!("{rule}, {over}: {off:e}, without acceleration {:e}", distance(without.theta(), root) / norm_sq(root).sqrt());
            assert!(off < 1e-9, "{rule}, {over}: {off:e}");
        }
    }
}

#[test]
fn the_accelerated_iterate_stays_in_the_ball() {
    let field = garnet(3, 8, 0.9, Law::Iid);
    let [_, anderson] = pair(r#""kind": "projected-td", "step_size": 0.5, "local_steps": 3, "radius": 0.7"#, r#", "safeguard": 10"#);
    let mut run = run(&field, &*anderson, &EXACT, 3);
    for _ in 0..300 {
        run.step();
        assert!(norm_sq(run.theta()).sqrt() <= 0.7 * (1.0 + 1e-15));
    }
}

/// Every kind can be named as the base, so that those which make no sense are refused with the reason.
#[test]
fn bases_and_links_that_make_no_sense_are_refused_with_the_reason() {
    let refused = |base: &str, reason: &str| {
        let e = method("anderson", &format!(r#"{{"base": {{{base}}}}}"#)).check(5).expect_err("refused").to_string();
        assert!(e.contains(reason), "{base}: {e}");
    };
    let inner = r#""base": {"kind": "fedtd", "step_size": 0.1}"#;
    let cases = [
        ("scafflsa-random", r#""step_size": 0.1, "talk_probability": 0.5"#, "random"),
        ("scaffold", r#""step_size": 0.1, "local_steps": 2"#, "those of scafflsa"),
        ("fedlin", r#""step_size": 0.1, "local_steps": 2"#, "those of fedhsa"),
        ("one-shot", r#""step_size": 0.1, "local_steps": 2"#, "do not use the server's model"),
        ("delayed-sa", r#""step_size": 0.1"#, "no map"),
        ("delay-adaptive-sa", r#""step_size": 0.1"#, "past rounds"),
        ("dasa", r#""step_size": 0.1"#, "past rounds"),
        ("lstd", "", "solves"),
        ("gmres", "", "solves"),
        ("newton", "", "second-order"),
        ("anderson", inner, "accelerated already"),
    ];
    for (kind, rest, reason) in cases {
        refused(&format!(r#""kind": "{kind}"{}{rest}"#, if rest.is_empty() { "" } else { ", " }), reason);
    }
    let accepted = ["fedlsa", "scafflsa", "fedhsa", "fedtd", "projected-td"];
    let is_known = |name: &str| accepted.contains(&name) || cases.iter().any(|(other, ..)| *other == name);
    // Methods for problems with losses are no bases: they cannot be read as one, and the message lists what can.
    let anderson = fedsa_methods::KINDS.iter().find(|kind| kind.name == "anderson").unwrap();
    for kind in fedsa_methods::KINDS.iter().filter(|kind| !is_known(kind.name)) {
        let settings = format!(r#"{{"base": {{"kind": "{}"}}}}"#, kind.name);
        let table: fedsa::settings::Value = serde_json::from_str(&settings).expect("JSON");
        let e = (anderson.read)(&table).expect_err("refused");
        assert_eq!((e.code(), e.key.as_str(), e.value()), (ErrorCode::UnknownName, "base.kind", Some(kind.name)), "{e}");
        assert!(e.help.contains("fedlsa"), "{}", e.help);
    }
    refused(r#""kind": "fedtd", "step_size": {"c": 1, "t0": 10}"#, "varies");
    refused(r#""kind": "fedtd", "step_size": -1"#, "step_size");
    refused(r#""kind": "fedlsa", "step_size": 0.1, "local_steps": 2, "participants": 6"#, "participants");
    for rest in [r#", "memory": 0"#, r#", "safeguard": 0.5"#, r#", "ridge": 0"#] {
        assert!(pair(r#""kind": "fedtd", "step_size": 0.1"#, rest)[1].check(5).is_err(), "{rest}");
    }
    let field = garnet(3, 4, 0.9, Law::Iid);
    let [_, anderson] = pair(r#""kind": "fedtd", "step_size": 0.1"#, "");
    for medium in [r#"{"kind": "delay", "law": "uniform", "max": 3}"#, r#"{"kind": "late", "law": "uniform", "max": 3}"#] {
        let uplink = link(r#"{"kind": "exact"}"#, false, &[medium]).unwrap();
        let e = engine(&field, &*anderson, &uplink, OutputRule::Last, 5, vec![0.0; 4]).err().expect("refused").to_string();
        assert!(e.contains("older models"), "{e}");
    }
}
