//! Methods that are compositions of the parts of others, against what their sources say: Scaffold, FedLin, one-shot averaging.

use std::sync::Arc;

use crate::common::{EXACT, Mean, bits, distance, engine, field, linear, link, method, problems, run, run_for, run_from, small_garnet};
use fedsa::method::MethodSettings;
use fedsa::metrics::Metrics;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::server::Participation;
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::td::garnet::Heterogeneity;
use fedsa_theory::predict::Forecast;

const SEED: u64 = 5;

fn by_period(kind: &str, eta: f64, h: usize, rest: &str) -> Box<dyn MethodSettings> {
    method(kind, &format!(r#"{{"step_size": {eta}, "local_steps": {h}{rest}}}"#))
}

/// Scaffold to the letter of its source: Karimireddy et al. 2020, Algorithm 1, option II, with gradients `-gbar_c`, two
/// vectors down and two up. Theta after each round.
fn scaffold_by_hand(field: &Arc<dyn Field>, eta: f64, h: usize, alpha: f64, m: usize, rounds: u64) -> Vec<Vec<f64>> {
    let (n, d) = (field.agents(), field.dim());
    let systems = field.systems().unwrap();
    let gradient = |c: usize, y: &[f64]| -> Vec<f64> {
        let of = systems.of(c);
        fedsa::linalg::mat_vec(&of.a, y).iter().zip(&of.b).map(|(ay, b)| ay - b).collect()
    };
    let participation = Participation { m: Some(m), agents: n, seed: SEED };
    let (mut x, mut c, mut ci) = (vec![1.0; d], vec![0.0; d], vec![vec![0.0; d]; n]);
    let mut iterates = Vec::new();
    for t in 0..rounds {
        let asked = participation.of(t).unwrap_or_else(|| (0..n).collect());
        let (mut dx, mut dc) = (vec![0.0; d], vec![0.0; d]);
        for i in &asked {
            let mut y = x.clone();
            for _ in 0..h {
                let g = gradient(*i, &y);
                (0..d).for_each(|j| y[j] -= eta * (g[j] - ci[*i][j] + c[j]));
            }
            for j in 0..d {
                let plus = ci[*i][j] - c[j] + (x[j] - y[j]) / (h as f64 * eta);
                dx[j] += (y[j] - x[j]) / asked.len() as f64;
                dc[j] += (plus - ci[*i][j]) / asked.len() as f64;
                ci[*i][j] = plus;
            }
        }
        for j in 0..d {
            x[j] += alpha * dx[j];
            c[j] += asked.len() as f64 / n as f64 * dc[j];
        }
        iterates.push(x.clone());
    }
    iterates
}

#[test]
fn scaffold_is_the_algorithm_of_its_source() {
    let field = field(&small_garnet(9, Heterogeneity::Independent), Law::Mean);
    for (m, alpha) in [(9, 1.0), (9, 0.7), (4, 1.0), (4, 0.7), (1, 1.0)] {
        let by_hand = scaffold_by_hand(&field, 0.2, 10, alpha, m, 200);
        let rest = format!(r#", "participants": {m}, "global_step_size": {alpha}"#);
        let mut run = run_from(&field, &*by_period("scaffold", 0.2, 10, &rest), SEED, &[1.0; 4]);
        for (t, want) in by_hand.iter().enumerate() {
            run.step();
            let off = distance(run.theta(), want);
            assert!(off < 1e-12, "m = {m}, alpha_g = {alpha}, round {t}: {off:e}");
        }
    }
}

#[test]
fn with_all_agents_scaffold_is_scafflsa_and_with_some_it_is_not() {
    for law in [Law::Iid, Law::Markov] {
        for (name, problem) in problems(19) {
            let field = field(&*problem, law);
            let start = vec![0.3; field.dim()];
            let theta = |kind, rest| run_for(&field, &*by_period(kind, 0.05, 7, rest), SEED, &start, 60).theta().to_vec();
            assert_eq!(bits(&theta("scaffold", "")), bits(&theta("scafflsa", "")), "{name}, {law:?}");
            let some = r#", "participants": 5"#;
            let off = distance(&theta("scaffold", some), &theta("scafflsa", some));
            assert!(off > 1e-6 || name.starts_with("switching"), "{name}, {law:?}: {off:e}");
        }
    }
}

#[test]
fn scaffold_reaches_the_root_with_any_number_of_participants() {
    let field = field(&small_garnet(9, Heterogeneity::Independent), Law::Mean);
    let metrics = Metrics::new(&field);
    // SCAFFLSA's controls do not move at m = 1; Scaffold's do.
    for m in [1, 2, 4, 8, 9] {
        let settings = by_period("scaffold", 0.2, 10, &format!(r#", "participants": {m}"#));
        let seen = metrics.observe(&run_for(&field, &*settings, 0, &[1.0; 4], 40_000), None, 0.0);
        assert!(seen.mse.unwrap() < 1e-20 && seen.control_error.unwrap() < 1e-20, "m = {m}: {seen:?}");
    }
}

#[test]
fn scaffolds_controls_sum_to_zero_whatever_is_altered_or_lost() {
    let settings = LinearSystems::default().with_agents(19).with_dim(3).with_noise(Noise::new(0.3, 0.0, 1));
    let field = field(&settings, Law::Iid);
    let (exact, coarse, erasure) =
        (r#"{"kind": "exact"}"#, r#"{"kind": "quantised", "bits": 4}"#, r#"{"kind": "erasure", "success": 0.6}"#);
    let links = [link(exact, false, &[]), link(coarse, false, &[]), link(exact, false, &[erasure]), link(coarse, true, &[erasure])];
    for uplink in links.map(Result::unwrap) {
        for m in ["", r#", "participants": 7"#] {
            let mut engine = run(&field, &*by_period("scaffold", 0.05, 7, m), &uplink, SEED);
            for t in 0..300 {
                engine.step();
                let mut sum = [0.0; 3];
                for (xi, p) in engine.controls().unwrap().iter().zip(field.weights()) {
                    sum.iter_mut().zip(xi).for_each(|(s, x)| *s += p * x);
                }
                assert!(fedsa::linalg::norm_sq(&sum).sqrt() < 1e-12, "round {t}: {sum:?} {m}");
            }
        }
    }
}

#[test]
fn scaffold_with_some_of_the_agents_reaches_the_root_over_losses() {
    let field = field(&small_garnet(9, Heterogeneity::Independent), Law::Mean);
    let uplink = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
    let mut on_engine = run(&field, &*by_period("scaffold", 0.2, 10, r#", "participants": 4"#), &uplink, SEED);
    (0..40_000).for_each(|_| on_engine.step());
    let error = fedsa::linalg::distance_sq(on_engine.theta(), field.root().unwrap());
    assert!(error < 1e-20, "{error:e}");
    // Where the ends cannot agree on whose controls changed, the link is refused.
    for medium in [r#"{"kind": "over-the-air"}"#, r#"{"kind": "late", "law": "uniform", "max": 3}"#] {
        let uplink = link(r#"{"kind": "exact"}"#, false, &[medium]).unwrap();
        let refused = |rest| {
            let settings = by_period("scaffold", 0.2, 10, rest);
            engine(&field, &*settings, &uplink, fedsa::record::OutputRule::Last, 0, vec![0.0; 4]).err()
        };
        assert!(refused(r#", "participants": 4"#).unwrap().to_string().contains("whose controls"), "{medium}");
        assert!(refused("").is_none(), "{medium}");
    }
}

#[test]
fn without_noise_fedlin_is_fedhsa_and_one_agent_is_local_sa() {
    for (name, problem) in problems(19) {
        let noiseless = field(&*problem, Law::Mean);
        let theta = |kind| bits(run_for(&noiseless, &*by_period(kind, 0.05, 7, ""), SEED, &vec![0.3; noiseless.dim()], 40).theta());
        assert_eq!(theta("fedlin"), theta("fedhsa"), "{name}");
        if name.starts_with("linear") {
            // All A_c are the same multiple of I: corrections cancel in the mean over agents.
            continue;
        }
        let noisy = field(&*problem, Law::Iid);
        let theta = |kind| run_for(&noisy, &*by_period(kind, 0.05, 7, ""), SEED, &vec![0.3; noisy.dim()], 40).theta().to_vec();
        assert!(distance(&theta("fedlin"), &theta("fedhsa")) > 1e-6, "{name}: the samples differ");
    }
    // Its own operator is what is added and subtracted: the local steps are plain ones, on the samples of FedLSA.
    for (name, problem) in problems(1) {
        let one = field(&*problem, Law::Iid);
        let theta = |kind| bits(run_for(&one, &*by_period(kind, 0.05, 7, ""), SEED, &vec![0.3; one.dim()], 40).theta());
        assert_eq!(theta("fedlin"), theta("fedlsa"), "{name}");
    }
}

#[test]
fn fedlin_and_fedhsa_have_floors_of_their_own() {
    // d = 1, H = 2, additive noise of variance s^2; a bar for means over agents. Both rounds contract by (1 - eta abar)^2. With
    // X_h the mean of the h-th samples, FedHSA's round adds eta ((1 - eta abar) X_0 + X_1), of variance
    // eta^2 s^2 / N ((1 - eta abar)^2 + 1). FedLin's first steps are eta (x_{c,1} + X_0 - x_{c,0}), which the second ones multiply
    // by 1 - eta a_c: its round adds eta (mean((1 - eta a_c) x_{c,1}) + eta mean((a_c - abar) x_{c,0}) + X_2), of variance
    // eta^2 s^2 / N ((1 - eta abar)^2 + 2 eta^2 var(a) + 1).
    let (slopes, eta) = ([0.2f64, 3.8], 0.4f64);
    let systems = linear(&slopes.map(|a| ([[a]], [a])));
    let field = field(&systems.with_noise(Noise::new(0.5, 0.0, 1)), Law::Iid);
    let mean = (slopes[0] + slopes[1]) / 2.0;
    let variance = (slopes[0] - mean).powi(2);
    let fedhsa_noise = (1.0 - eta * mean).powi(2) + 1.0;
    let want = (fedhsa_noise + 2.0 * eta * eta * variance) / fedhsa_noise;
    assert!(want > 1.9, "floors that can be told apart: {want}");
    let floor = |kind| {
        let mut mean = Mean::default();
        let mut run = run_from(&field, &*by_period(kind, eta, 2, ""), SEED, field.root().unwrap());
        for batch in 0..200 {
            let mut error = 0.0;
            for _ in 0..500 {
                run.step();
                error += fedsa::linalg::distance_sq(run.theta(), field.root().unwrap()) / 500.0;
            }
            if batch > 0 {
                mean.see(error);
            }
        }
        mean
    };
    let (fedhsa, fedlin) = (floor("fedhsa"), floor("fedlin"));
    let off = (fedlin.value() - want * fedhsa.value()) / (fedlin.error().powi(2) + (want * fedhsa.error()).powi(2)).sqrt();
    assert!(off.abs() < 3.0, "{} and {}: {off} standard errors", fedlin.value(), fedhsa.value());
    // Theory knows both: one mean, and the floors whose ratio this is.
    let link = Uplink::default();
    let (fedlin, fedhsa) = (by_period("fedlin", eta, 2, ""), by_period("fedhsa", eta, 2, ""));
    let forecast = |settings| Forecast::over(&field, settings, &link);
    assert_eq!(forecast(&*fedlin).radius().unwrap(), forecast(&*fedhsa).radius().unwrap());
    let ratio = forecast(&*fedlin).floor().unwrap().mse() / forecast(&*fedhsa).floor().unwrap().mse();
    assert!((ratio - want).abs() < 1e-12 * want, "{ratio}, and {want} by hand");
}

#[test]
fn fedlin_over_delays_draws_what_it_draws_without() {
    let settings = LinearSystems::default().with_agents(9).with_dim(3).with_noise(Noise::new(0.3, 0.7, 1));
    let field = field(&settings, Law::Markov);
    let delayed = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "delay", "law": "uniform", "max": 4}"#]).unwrap();
    let settings = by_period("fedlin", 0.05, 7, "");
    let ledger = |uplink: &Uplink| {
        let mut engine = run(&field, &*settings, uplink, SEED);
        (0..50).for_each(|_| engine.step());
        (engine.ledger().samples, engine.ledger().calls.operators)
    };
    assert_eq!(ledger(&EXACT), (50 * 9 * 8, 50 * 9 * 8));
    assert_eq!(ledger(&delayed), ledger(&EXACT));
}

#[test]
fn one_shot_averaging_is_the_mean_of_what_agents_reach_alone() {
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Mean);
    let systems = field.systems().unwrap();
    let (eta, h, start) = (0.5, 6, [1.0; 4]);
    let alone = |c: usize, steps: usize| {
        let (of, mut theta) = (systems.of(c), start.to_vec());
        for _ in 0..steps {
            let pulled = fedsa::linalg::mat_vec(&of.a, &theta);
            (0..4).for_each(|i| theta[i] += eta * (of.b[i] - pulled[i]));
        }
        theta
    };
    let mean = |of: &dyn Fn(usize) -> Vec<f64>| {
        let mut mean = vec![0.0; 4];
        (0..5).for_each(|c| mean.iter_mut().zip(of(c)).for_each(|(m, x)| *m += x / 5.0));
        mean
    };
    let mut run = run_from(&field, &*by_period("one-shot", eta, h, ""), SEED, &start);
    for t in 1..=30 {
        run.step();
        assert!(distance(run.theta(), &mean(&|c| alone(c, t * h))) < 1e-12, "round {t}");
    }
    // As published: one round of all steps, one message of each agent.
    let whole = run_for(&field, &*by_period("one-shot", eta, 30 * h, ""), SEED, &start, 1);
    assert!(distance(whole.theta(), run.theta()) < 1e-12);
    assert_eq!((whole.ledger().exchanges, whole.ledger().vectors_up), (1, 5));
    // In the end the mean of the agents' own roots, which is not the root of the mean.
    let rest = run_for(&field, &*by_period("one-shot", eta, 1000, ""), SEED, &start, 200);
    let roots = mean(&|c| systems.local_root(systems.kind_of[c] as usize).unwrap());
    assert!(distance(rest.theta(), &roots) < 1e-10, "{:?} {roots:?}", rest.theta());
    assert!(distance(&roots, field.root().unwrap()) > 1e-3);
}

#[test]
fn one_shot_averaging_leaves_lost_reports_out() {
    // Agents of one system reach one point; whoever arrives, their mean is that point.
    let field = field(&linear(&[([[1.0, 0.6], [-0.4, 0.5]], [1.0, -2.0]); 7]), Law::Mean);
    let uplink = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.5}"#]).unwrap();
    let settings = by_period("one-shot", 0.1, 5, "");
    let (mut lossy, mut whole) = (run(&field, &*settings, &uplink, SEED), run(&field, &*settings, &EXACT, SEED));
    for t in 0..40 {
        let before = lossy.theta().to_vec();
        lossy.step();
        whole.step();
        let off = distance(lossy.theta(), whole.theta());
        // In one round of 128 nobody arrives: theta stays.
        assert!(off < 1e-13 || lossy.theta() == before, "round {t}: {off:e}");
    }
    assert!(lossy.ledger().vectors_up == 40 * 7);
    // Over the air nobody knows who arrived.
    let air = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air"}"#]).unwrap();
    let refused = engine(&field, &*settings, &air, fedsa::record::OutputRule::Last, 0, vec![0.0; 2]).err();
    assert!(refused.unwrap().to_string().contains("who has arrived"));
}
