//! Methods that solve the mean linear system at the server: `lstd` and `gmres`.

use std::sync::Arc;

use crate::common::{bits, distance, engine, link, method, run};
use fedsa::linalg::{self, Mat};
use fedsa::problem::Field;
use fedsa::random::{Key, Purpose};
use fedsa::record::OutputRule;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::{NoFiles, ProblemSettings as _};

/// `||mean operator at theta|| / ||mean operator at 0||`.
fn residual(field: &Arc<dyn Field>, theta: &[f64]) -> f64 {
    let norm = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
    norm(theta) / norm(&vec![0.0; theta.len()])
}

/// Garnet agents of d features, whose mean system is not symmetric.
fn garnet(agents: usize, features: usize) -> Arc<dyn Field> {
    let garnet =
        fedsa_problems::td::garnet::Garnet::default().with_agents(agents).with_states(3 * features).with_features(features).with_gamma(0.9);
    garnet.field(&NoFiles, Sampling::default().with_kind(Law::Mean), fedsa::kernel::Isa::best()).unwrap()
}

#[test]
fn lstd_is_at_the_root_after_one_round() {
    let field = garnet(5, 12);
    let uplink = Uplink::default();
    let mut engine = run(&field, &*method("lstd", "{}"), &uplink, 5);
    engine.step();
    assert!(distance(engine.theta(), field.root().unwrap()) < 1e-12 * linalg::norm_sq(field.root().unwrap()).sqrt());
    // d (d + 1) numbers of each agent, and their headers.
    let ledger = engine.ledger();
    assert_eq!((ledger.exchanges, ledger.matrices_up, ledger.samples), (1, 5, 0));
    assert_eq!(ledger.bits_up, 5 * 8 * (27 + 6 + 8 * 12 * 13));
    assert_eq!(ledger.bits_down, 5 * 8 * 27);
}

/// Of matrices that are mostly zeros the others are sent, with their indices.
#[test]
fn sparse_systems_are_sent_sparse() {
    let d = 20;
    let agent = |c: f64| {
        let a: Vec<Vec<f64>> = (0..d).map(|i| (0..d).map(|j| if i == j { 2.0 + c } else { 0.0 }).collect()).collect();
        (a, vec![1.0 + c; d])
    };
    let (a, b): (Vec<_>, Vec<_>) = (0..3).map(|c| agent(f64::from(c))).unzip();
    let field = crate::common::field(&LinearSystems::default().with_a(a).with_b(b), Law::Mean);
    let uplink = Uplink::default();
    let lstd = method("lstd", "{}");
    let mut engine = run(&field, &*lstd, &uplink, 5);
    engine.step();
    assert!(distance(engine.theta(), &vec![2.0 / 3.0; d]) < 1e-14);
    assert_eq!(engine.ledger().bits_up, 3 * 8 * (27 + 6 + 4 + 12 * 2 * d as u64));
    let mut halves = crate::common::Halves::new(&field, &*lstd, &uplink, 5).unwrap();
    halves.round();
    assert_eq!(bits(halves.server.theta()), bits(engine.theta()));
    assert_eq!(halves.ledger, crate::common::on_the_wire(engine.ledger()));
}

/// Unbiased noise of codecs, lost messages and absent agents average out: the mean square falls as 1 / t.
#[test]
fn lstd_averages_what_links_do() {
    let field = garnet(6, 5);
    let root = field.root().unwrap();
    let codec = r#"{"kind": "quantised", "bits": 6}"#;
    let exact = r#"{"kind": "exact"}"#;
    let erasure = r#"{"kind": "erasure", "success": 0.5}"#;
    let noise = r#"{"kind": "over-the-air", "receiver_noise": 0.01}"#;
    for (name, uplink, settings) in [
        ("quantised", link(codec, false, &[]).unwrap(), "{}"),
        ("erasure", link(exact, false, &[erasure]).unwrap(), "{}"),
        ("over the air", link(exact, false, &[noise]).unwrap(), "{}"),
        ("participants", Uplink::default(), r#"{"participants": 3}"#),
    ] {
        let lstd = method("lstd", settings);
        // The squared error after 32 and 512 rounds: 4 times as many halvings of the variance.
        let mut logs: Vec<f64> = Vec::new();
        for seed in 0..40 {
            let mut engine = run(&field, &*lstd, &uplink, seed);
            (0..32).for_each(|_| engine.step());
            let early = distance(engine.theta(), root);
            (32..512).for_each(|_| engine.step());
            logs.push((distance(engine.theta(), root) / early).ln() / 16f64.ln());
        }
        let mut slope = crate::common::Mean::default();
        logs.iter().for_each(|x| slope.see(*x));
        assert!(slope.off(-0.5).abs() < 4.0, "{name}: slope {} +- {}", slope.value(), slope.error());
    }
}

/// A late system counts once, in the round in which it arrives; until one arrives theta is `theta_0`.
#[test]
fn lstd_takes_late_systems_as_those_in_time() {
    const D: usize = 5;
    let (field, lstd, start) = (garnet(6, D), method("lstd", "{}"), vec![0.5; D]);
    let (root, systems) = (field.root().unwrap(), field.facts().systems().unwrap());
    let scale = linalg::norm_sq(root).sqrt();
    let at = |law: &str| link(r#"{"kind": "exact"}"#, false, &[&format!(r#"{{"kind": "late", {law}}}"#)]).unwrap();
    let constant = at(r#""law": "constant", "rounds": 3"#);
    let mut engine = engine(&field, &*lstd, &constant, OutputRule::Last, 5, start.clone()).unwrap();
    for _ in 0..3 {
        engine.step();
        assert_eq!(engine.theta(), start);
    }
    engine.step();
    assert!(distance(engine.theta(), root) < 1e-12 * scale);

    // Delays that vary: the systems of agent c that have arrived, counted by hand.
    let varying = at(r#""law": "uniform", "min": 0, "max": 6"#);
    let delay = varying.late().unwrap();
    let mut engine = run(&field, &*lstd, &varying, 7);
    let mut due = [[0; 80]; 6];
    let (mut a, mut b) = (Mat::<f64>::zeros(D, D), [0.0; D]);
    for t in 0..60u64 {
        for (c, due) in due.iter_mut().enumerate() {
            let tau = delay.of(t, c, &mut Key::new(7, Purpose::Delay, t).stream(c));
            due[(t + tau) as usize] += 1;
            for _ in 0..due[t as usize] {
                let system = systems.of(c);
                a += &system.a;
                b.iter_mut().zip(&system.b).for_each(|(sum, x)| *sum += x);
            }
        }
        engine.step();
        let expected = linalg::solve_or_least(&a, &b);
        assert!(distance(engine.theta(), &expected) < 1e-10 * scale, "round {t}: {:?}, {expected:?}", engine.theta());
    }
    // The numbers of systems that have arrived differ by at most 6 of 60.
    let off = distance(engine.theta(), root) / scale;
    assert!(off > 1e-6 && off < 0.2, "{off:e}");

    // The memory of an answer on its way is that of a system: a run that is saved among late answers goes on as it would.
    let mut resumed = run(&field, &*lstd, &varying, 7);
    resumed.restore(&engine.save().unwrap()).unwrap();
    (0..5).for_each(|_| engine.step());
    (0..5).for_each(|_| resumed.step());
    assert_eq!(bits(resumed.theta()), bits(engine.theta()));
}

#[test]
fn solvers_refuse_delays_that_they_cannot_use() {
    let field = garnet(3, 4);
    for (kind, medium, why) in
        [("lstd", "delay", "depends on no model"), ("gmres", "delay", "at one iterate"), ("gmres", "late", "at one iterate")]
    {
        let uplink = link(r#"{"kind": "exact"}"#, false, &[&format!(r#"{{"kind": "{medium}", "law": "constant", "rounds": 2}}"#)]).unwrap();
        let e = engine(&field, &*method(kind, "{}"), &uplink, OutputRule::Last, 5, vec![0.0; 4]).err().expect("refused");
        assert!(e.to_string().contains(why), "{kind}, {medium}: {e}");
    }
}

#[test]
fn gmres_needs_at_most_one_exchange_more_than_there_are_features() {
    for (agents, d) in [(3, 1), (4, 7), (5, 24)] {
        let field = garnet(agents, d);
        let uplink = Uplink::default();
        let mut engine = run(&field, &*method("gmres", "{}"), &uplink, 5);
        let mut last = 1.0;
        for k in 0..=d {
            engine.step();
            let now = residual(&field, engine.theta());
            assert!(now <= last * (1.0 + 1e-12) + 1e-14, "d = {d}, {k} products: {now:e} after {last:e}");
            last = now;
        }
        assert!(last < 1e-13, "d = {d}: {last:e}");
        let ledger = engine.ledger();
        assert_eq!((ledger.exchanges, ledger.vectors_up), (d as u64 + 1, (agents * (d + 1)) as u64));
        // It stays there.
        (0..2 * d + 5).for_each(|_| engine.step());
        assert!(residual(&field, engine.theta()) < 1e-13);
    }
}

/// The residuals of the first k products are the least over the Krylov space, from an independent computation: the normal
/// equations of the powers.
#[test]
fn gmres_has_the_least_residual_over_the_krylov_space() {
    let field = garnet(4, 6);
    let systems = field.facts().systems().unwrap().mean();
    let uplink = Uplink::default();
    let mut engine = run(&field, &*method("gmres", "{}"), &uplink, 5);
    engine.step();
    let mut power = systems.b.clone();
    let mut powers: Vec<Vec<f64>> = Vec::new();
    for k in 1..=4 {
        engine.step();
        power = linalg::mat_vec(&systems.a, &power);
        powers.push(power.clone());
        // min || b - [A b, A^2 b, ..] y || by the singular value decomposition.
        let m = Mat::from_fn(6, k, |i, j| powers[j][i] / linalg::norm_sq(&powers[j]).sqrt());
        let y = linalg::solve_or_least(&(m.transpose() * &m), &linalg::mat_vec(&m.transpose().to_owned(), &systems.b));
        let fit = linalg::mat_vec(&m, &y);
        let least = distance(&fit, &systems.b) / linalg::norm_sq(&systems.b).sqrt();
        let found = residual(&field, engine.theta());
        assert!((found / least - 1.0).abs() < 1e-6, "{k} products: {found:e}, {least:e}");
    }
}

#[test]
fn gmres_starts_anew_and_repeats_what_is_lost() {
    let field = garnet(3, 10);
    let clear = Uplink::default();
    let mut engine = run(&field, &*method("gmres", r#"{"restart": 4}"#), &clear, 5);
    (0..400).for_each(|_| engine.step());
    assert!(residual(&field, engine.theta()) < 1e-12, "{:e}", residual(&field, engine.theta()));
    // Every product that counts came from all agents: the same iterates, later.
    let lossy = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.7}"#]).unwrap();
    let gmres = method("gmres", "{}");
    let (mut whole, mut broken) = (run(&field, &*gmres, &clear, 5), run(&field, &*gmres, &lossy, 5));
    let mut seen = vec![bits(broken.theta())];
    for _ in 0..200 {
        broken.step();
        if *seen.last().unwrap() != bits(broken.theta()) {
            seen.push(bits(broken.theta()));
        }
    }
    let mut expected = vec![bits(whole.theta())];
    for _ in 0..12 {
        whole.step();
        if *expected.last().unwrap() != bits(whole.theta()) {
            expected.push(bits(whole.theta()));
        }
    }
    assert_eq!(seen[..11], expected[..11]);
}

#[test]
fn links_that_alter_products_are_refused() {
    let field = garnet(3, 4);
    let gmres = method("gmres", "{}");
    let refused = |uplink: &Uplink| {
        let e = engine(&field, &*gmres, uplink, OutputRule::Last, 5, vec![0.0; 4]).err().expect("refused").to_string();
        assert!(e.contains("Krylov space"), "{e}");
    };
    refused(&link(r#"{"kind": "quantised", "bits": 8}"#, false, &[]).unwrap());
    refused(&link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air"}"#]).unwrap());
    refused(&Uplink::default().with_downlink(link(r#"{"kind": "quantised", "bits": 8}"#, false, &[]).unwrap().codec));
}

#[test]
fn problems_that_are_not_linear_are_refused() {
    let regression = crate::example::Regression::new(3, 20, 2);
    let field: Arc<dyn Field> =
        Arc::new(fedsa::problem::Sampled::new(regression, Sampling::default(), fedsa::kernel::Isa::best()).unwrap());
    for kind in ["lstd", "gmres"] {
        let e = engine(&field, &*method(kind, "{}"), &Uplink::default(), OutputRule::Last, 5, vec![0.0; 2]).err().expect("refused");
        assert!(e.to_string().contains("not known to be linear"), "{e}");
    }
}

#[test]
fn singular_systems_have_the_solution_of_least_norm() {
    // x + y = 2 twice over, and z = 3.
    let m = linalg::from_rows(3, 3, &[1.0, 1.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0, 1.0]);
    let x = linalg::solve_or_least(&m, &[2.0, 4.0, 3.0]);
    assert!(distance(&x, &[1.0, 1.0, 3.0]) < 1e-14, "{x:?}");
    assert_eq!(linalg::solve_or_least(&Mat::zeros(2, 2), &[1.0, 1.0]), [0.0, 0.0]);
}
