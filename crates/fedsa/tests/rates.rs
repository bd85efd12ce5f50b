//! Noiseless runs shrink, or grow, by the spectral radius of the round map.

use std::sync::Arc;

use crate::common::{field, linear, method, run_from, small_garnet};
use fedsa::method::MethodSettings;
use fedsa::metrics::Metrics;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa_problems::td::garnet::Heterogeneity;
use fedsa_theory::RoundSetting;
use fedsa_theory::fedlsa::FedLsaMean;
use fedsa_theory::stability::{control_variates_radius, global_memory_radius, plain_radius};

/// The factor by which a noiseless run's distance from its limit changes a round, from
/// a line through its logarithm between `from` and `to`, which are distances.
///
/// The distance takes in the controls: `sqrt(||theta - limit||^2 + sum p_c ||xi_c - xi*_c||^2)`.
fn measured_rate(field: &Arc<dyn Field>, method: &dyn MethodSettings, limit: &[f64], from: f64, to: f64) -> f64 {
    let metrics = Metrics::new(field);
    let shrinks = to < from;
    let scale = if shrinks { 1e2 } else { 1.0 };
    let start: Vec<f64> = limit.iter().enumerate().map(|(i, x)| x + scale * (1.0 + 0.3 * i as f64)).collect();
    let mut run = run_from(field, method, 0, &start);
    let inside = |x: f64| if shrinks { x <= from } else { x >= from };
    let beyond = |x: f64| if shrinks { x < to } else { x > to };
    // Sums of a least-squares line through (t, ln distance).
    let (mut n, mut t1, mut t2, mut y1, mut ty) = (0.0f64, 0.0, 0.0, 0.0, 0.0);
    for _ in 0..200_000 {
        run.step();
        let seen = metrics.observe(&run, Some(limit), 0.0);
        let distance = (seen.error.unwrap() + seen.control_error.unwrap_or(0.0)).sqrt();
        if beyond(distance) {
            assert!(n > 20.0, "{n} points are too few for a line");
            return ((n * ty - t1 * y1) / (n * t2 - t1 * t1)).exp();
        }
        if inside(distance) {
            let (t, y) = (run.round() as f64, distance.ln());
            (n, t1, t2, y1, ty) = (n + 1.0, t1 + t, t2 + t * t, y1 + y, ty + t * y);
        }
    }
    panic!("after {} rounds still between {from:e} and {to:e}", run.round());
}

/// The measured rate against the radius: their logarithms within 0.5% (modes that shrink almost
/// as slowly bend the line, and a pair of complex eigenvalues makes the distance oscillate around it).
fn assert_rate(field: &Arc<dyn Field>, kind: &str, setting: &RoundSetting, want: f64) {
    let RoundSetting { step_size, local_steps, server_step } = *setting;
    let json = format!(r#"{{"step_size": {step_size}, "local_steps": {local_steps}, "global_step_size": {server_step}}}"#);
    let limit = match kind {
        "fedlsa" => FedLsaMean::new(field.systems().unwrap(), setting).unwrap().limit().unwrap(),
        _ => field.root().unwrap().to_vec(),
    };
    let (from, to) = if want < 1.0 { (1e-1, 1e-9) } else { (1e2, 1e7) };
    let got = measured_rate(field, &*method(kind, &json), &limit, from, to);
    assert!((got.ln() / want.ln() - 1.0).abs() < 0.005, "{kind}, {setting:?}: {got} a round, radius {want}");
}

fn radius(field: &Arc<dyn Field>, kind: &str, setting: &RoundSetting) -> f64 {
    let systems = field.systems().unwrap();
    match kind {
        "fedlsa" => plain_radius(systems, setting),
        "fedhsa" | "fedlin" => global_memory_radius(systems, setting),
        _ => control_variates_radius(systems, setting),
    }
    .unwrap()
}

#[test]
fn stable_rounds_shrink_by_their_radius() {
    for heterogeneity in [Heterogeneity::TwoKernels, Heterogeneity::Independent] {
        let field = field(&small_garnet(5, heterogeneity), Law::Mean);
        for (eta, h, alpha) in [(1.0, 2, 1.0), (1.0, 20, 0.7), (0.2, 100, 1.0)] {
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            for kind in ["fedlsa", "scafflsa", "fedhsa", "scaffold", "fedlin"] {
                let want = radius(&field, kind, &setting);
                assert!(want < 1.0, "{kind}, {setting:?}: {want}");
                assert_rate(&field, kind, &setting, want);
            }
        }
    }
}

#[test]
fn unstable_rounds_grow_by_their_radius() {
    // Two agents whose operators rotate, eigenvalues .05 +- i: SCAFFLSA is unstable in a window of eta H.
    let turning = ([[0.05, 1.0], [-1.0, 0.05]], [1.0, 0.0]);
    let rotation = field(&linear(&[turning, (turning.0, [-1.0, 2.0])]), Law::Mean);
    // A stiff and a lazy agent: FedHSA's Sbar Abar grows to 25 with eta H, passing 2.
    let uneven = field(&linear(&[([[1.0]], [1.0]), ([[0.01]], [-1.0])]), Law::Mean);
    let cases = [
        (&rotation, "scafflsa", RoundSetting::new(0.001, 4500).unwrap()),
        (&uneven, "fedhsa", RoundSetting::new(0.1, 80).unwrap()),
        (&uneven, "fedhsa", RoundSetting::new(0.1, 100).unwrap().with_server_step(0.8).unwrap()),
        (&uneven, "fedlsa", RoundSetting::new(0.1, 3).unwrap().with_server_step(16.0).unwrap()),
    ];
    for (field, kind, setting) in cases {
        let want = radius(field, kind, &setting);
        assert!(want > 1.0, "{kind}, {setting:?}: {want}");
        assert_rate(field, kind, &setting, want);
    }
    // The same agents below and above the window.
    for h in [2000, 7000] {
        let setting = RoundSetting::new(0.001, h).unwrap();
        let want = radius(&rotation, "scafflsa", &setting);
        assert!(want < 1.0, "H = {h}: {want}");
        assert_rate(&rotation, "scafflsa", &setting, want);
    }
}
