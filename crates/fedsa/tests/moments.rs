//! Noisy runs against exact first and second moments, seed by seed.
//!
//! Every check has a twin that must fail: the same runs against a prediction that
//! leaves out what the check is about.

use std::sync::Arc;

use crate::common::{Mean, distance, field, follows, means, method, run_from, small_garnet};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::metrics::Metrics;
use fedsa::problem::Field;
use fedsa::problem::systems::Moments;
use fedsa::sampling::{Law, Sampling};
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_testing::scaffnew::{Scaffnew, ScaffnewState};
use fedsa_theory::RoundSetting;
use fedsa_theory::exact_mse::{ExactMse, FedHsaMse, FedLsaMse, InitialControls, ScafflsaMse};
use fedsa_theory::fedlsa::FedLsaMean;
use fedsa_theory::map::LinearMap;
use fedsa_theory::stability::ControlVariates;

/// Six states, three features, three agents that differ.
fn tiny(batch: usize) -> Arc<dyn Field> {
    let garnet = Garnet::default().with_agents(3).with_states(6).with_features(3).with_min_class(5).with_gamma(0.8).with_seed(4);
    garnet.field(&NoFiles, Sampling::default().with_batch(batch), Isa::best()).unwrap()
}

fn moments(field: &Arc<dyn Field>) -> Vec<Moments> {
    (0..field.systems().unwrap().kinds.len()).map(|k| field.moments(k).unwrap()).collect()
}

/// Moments of samples whose `A` has no noise, and whose `b` has its own.
fn without_noise_in_a(field: &Arc<dyn Field>) -> Vec<Moments> {
    (field.systems().unwrap().kinds.iter().zip(moments(field)))
        .map(|(s, m)| Moments { aa: linalg::kron(&s.a, &s.a), ab: linalg::kron(&s.a, &linalg::column(&s.b)), bb: m.bb })
        .collect()
}

/// Deviations of means from predictions, in standard errors, all rounds and components.
fn off(means: &[Vec<Mean>], expected: impl IntoIterator<Item = Vec<f64>>) -> Vec<f64> {
    means.iter().zip(expected).flat_map(|(means, expected)| means.iter().zip(expected).map(|(m, x)| m.off(x)).collect::<Vec<_>>()).collect()
}

fn json(setting: &RoundSetting) -> String {
    let RoundSetting { step_size, local_steps, server_step } = setting;
    format!(r#"{{"step_size": {step_size}, "local_steps": {local_steps}, "global_step_size": {server_step}}}"#)
}

const ROUNDS: u64 = 60;
fn recorded() -> Vec<u64> {
    (1..=ROUNDS).collect()
}

#[test]
fn the_mean_iterate_of_fedlsa_is_exact() {
    let field = tiny(1);
    let start = [2.0, -1.0, 0.5];
    for (eta, h, alpha) in [(1.0, 3, 1.0), (0.5, 8, 0.7), (1.0, 1, 1.2)] {
        let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
        let seen = means(&field, &*method("fedlsa", &json(&setting)), &start, 2000, &recorded(), |run| run.theta().to_vec());
        let theory = FedLsaMean::new(field.systems().unwrap(), &setting).unwrap();
        follows(&off(&seen, theory.mean(&start, &recorded()))).unwrap();
        if h > 1 {
            let mut unbiased = theory;
            unbiased.rho.fill(0.0);
            assert!(follows(&off(&seen, unbiased.mean(&start, &recorded()))).is_err(), "the bias shows");
        }
    }
}

#[test]
fn few_participants_have_the_same_mean_iterate() {
    // Uniform participants of equal weight: the mean of m directions has the mean of all.
    let field = field(&small_garnet(7, Heterogeneity::Independent), Law::Iid);
    let setting = RoundSetting::new(1.0, 5).unwrap();
    let start = [2.0, -1.0, 0.5, 1.0];
    let settings = method("fedlsa", r#"{"step_size": 1.0, "local_steps": 5, "participants": 2}"#);
    let seen = means(&field, &*settings, &start, 2000, &recorded(), |run| run.theta().to_vec());
    let theory = FedLsaMean::new(field.systems().unwrap(), &setting).unwrap();
    follows(&off(&seen, theory.mean(&start, &recorded()))).unwrap();
}

#[test]
fn the_mean_square_error_is_exact() {
    let start = [2.0, -1.0, 0.5];
    for batch in [1, 2] {
        let field = tiny(batch);
        let (systems, moments) = (field.systems().unwrap(), moments(&field));
        let root = field.root().unwrap();
        for (eta, h, alpha) in [(3.0, 3, 1.0), (1.5, 6, 0.7)] {
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            let curve = |moments: &[Moments], batch, kind| {
                let points = match kind {
                    "fedlsa" => FedLsaMse::new(systems, moments, &setting, batch).unwrap().curve(&start, &recorded()),
                    "fedhsa" => FedHsaMse::new(systems, moments, &setting, batch).unwrap().curve(&start, &recorded()),
                    _ => ScafflsaMse::new(systems, moments, &setting, batch, &InitialControls::Zero).unwrap().curve(&start, &recorded()),
                };
                points.unwrap().into_iter().map(|point| vec![point.mse()]).collect::<Vec<_>>()
            };
            for kind in ["fedlsa", "fedhsa", "scafflsa"] {
                let what = format!("{kind}, batch {batch}, eta {eta}, H {h}, alpha_g {alpha}");
                let seen = means(&field, &*method(kind, &json(&setting)), &start, 2000, &recorded(), |run| {
                    vec![linalg::distance_sq(run.theta(), root)]
                });
                follows(&off(&seen, curve(&moments, batch as u64, kind))).unwrap_or_else(|e| panic!("{what}: {e}"));
                // The runs tell these predictions from the right one.
                let wrong = [curve(&without_noise_in_a(&field), batch as u64, kind), curve(&moments, 3 - batch as u64, kind)];
                for wrong in wrong {
                    assert!(follows(&off(&seen, wrong)).is_err(), "{what}");
                }
            }
        }
    }
}

#[test]
fn the_mean_of_random_talk_is_the_mean_round() {
    // Mean sampling: only the coins are random, and the mean over them is a linear recursion.
    let garnet = small_garnet(4, Heterogeneity::TwoKernels).with_agents(4);
    let field = field(&garnet, Law::Mean);
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    let (eta, p, alpha) = (1.0, 0.2, 0.9);
    let settings = method("scafflsa-random", r#"{"step_size": 1.0, "talk_probability": 0.2, "global_step_size": 0.9}"#);
    let start = [2.0, -1.0, 0.5, 1.0];
    let seen =
        means(&field, &*settings, &start, 2000, &recorded(), |run| [run.theta().to_vec(), run.controls().unwrap().concat()].concat());
    // The state (u, x_1, .., x_4): every agent has a system of its own; xi_c = 0, so x_c = -xi*_c = gbar_c(theta*).
    let map = ControlVariates::random_talk(systems, eta, p, alpha).unwrap().unwrap();
    assert_eq!(map.dim(), 4 * 5);
    let mut state: Vec<f64> = start.iter().zip(root).map(|(x, r)| x - r).collect();
    state.extend((0..4).flat_map(|c| systems.of(c).mean(root)));
    let expected = recorded().into_iter().map(|_| {
        let before = state.clone();
        map.apply(&before, &mut state);
        let centre = root.iter().copied().chain((0..4).flat_map(|c| systems.of(c).mean(root)).map(|g| -g));
        state.iter().zip(centre).map(|(x, centre)| x + centre).collect()
    });
    follows(&off(&seen, expected)).unwrap();
}

/// Theorem B.4's problem: `A_c = a I`, white noise on b.
fn common_matrix(agents: usize, dim: usize, a: f64, std: f64) -> Arc<dyn Field> {
    let noise = Some(Noise::new(std, 0.0, 0));
    field(&LinearSystems::default().with_agents(agents).with_dim(dim).with_scale(a).with_noise(noise), Law::Iid)
}

#[test]
fn random_talk_follows_theorem_b4_from_talk_to_talk() {
    let (agents, dim, a, std, eta, p) = (4, 2, 1.3, 0.7, 0.1, 0.2);
    let field = common_matrix(agents, dim, a, std);
    let metrics = Metrics::new(&field);
    let settings = method("scafflsa-random", &format!(r#"{{"step_size": {eta}, "talk_probability": {p}}}"#));
    let start: Vec<f64> = field.root().unwrap().iter().map(|r| r + 0.5).collect();
    let seen = means(&field, &*settings, &start, 2000, &recorded(), |run| {
        let seen = metrics.observe(run, None, 0.0);
        vec![seen.mse.unwrap(), seen.control_error.unwrap()]
    });
    let theory = Scaffnew { agents: agents as u64, eta, a, p, sigma: dim as f64 * std * std };
    let x = (0..agents).map(|c| linalg::norm_sq(metrics.ideal_control(c).unwrap())).sum::<f64>() / agents as f64;
    let u = linalg::distance_sq(&start, field.root().unwrap());
    let state = ScaffnewState { u, v: u, c: 0.0, x };
    let expected = |theory: Scaffnew| theory.talks(state, ROUNDS as usize).into_iter().skip(1).map(|s| vec![s.v, s.x]).collect::<Vec<_>>();
    follows(&off(&seen, expected(theory))).unwrap();
    for wrong in [Scaffnew { p: 0.25, ..theory }, Scaffnew { agents: 5, ..theory }, Scaffnew { sigma: 0.9 * theory.sigma, ..theory }] {
        assert!(follows(&off(&seen, expected(wrong))).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_error_of_the_mean_falls_with_the_number_of_agents_and_psi_does_not() {
    let (eta, p) = (0.1, 0.2);
    let settings = method("scafflsa-random", r#"{"step_size": 0.1, "talk_probability": 0.2}"#);
    for (agents, v, psi) in [(1, 0.0526, 0.0526), (10, 0.00526, 0.0803), (100, 0.000526, 0.0830)] {
        let field = common_matrix(agents, 1, 1.0, 1.0);
        let metrics = Metrics::new(&field);
        let (mut v_seen, mut x_seen) = (Mean::default(), Mean::default());
        for seed in 0..60 {
            let mut run = run_from(&field, &*settings, seed, field.root().unwrap());
            let ideal: Vec<Vec<f64>> = (0..agents).map(|c| metrics.ideal_control(c).unwrap().to_vec()).collect();
            run.set_controls(&ideal);
            // One number a seed: talks of one run are not independent.
            let (mut v, mut x) = (0.0, 0.0);
            for t in 0..220 {
                run.step();
                if t >= 20 {
                    let seen = metrics.observe(&run, None, 0.0);
                    v += seen.mse.unwrap() / 200.0;
                    x += seen.control_error.unwrap() / 200.0;
                }
            }
            v_seen.see(v);
            x_seen.see(x);
        }
        let theory = Scaffnew { agents: agents as u64, eta, a: 1.0, p, sigma: 1.0 };
        let limit = *theory.talks(ScaffnewState { u: 0.0, v: 0.0, c: 0.0, x: 0.0 }, 400).last().unwrap();
        follows(&[v_seen.off(limit.v)]).unwrap();
        assert!((limit.v / v - 1.0).abs() < 1e-3);
        assert!(v_seen.error() < 0.05 * limit.v, "the runs settle the limit to 5%");
        if agents > 1 {
            follows(&[x_seen.off(limit.x)]).unwrap();
        } else {
            assert!(x_seen.value() < 1e-25, "one agent's control stays at xi* = 0");
        }
        // After a step, with a talk or without one, U = V + the spread that the controls' noise makes.
        let spread = (1.0 - p) * 2.0 * eta * eta * limit.x / (p * (1.0 - (1.0 - p) * (1.0 - eta)));
        assert!((theory.psi(&ScaffnewState { u: limit.v + spread, ..limit }) - psi).abs() < 5e-5);
    }
}

#[test]
fn the_floor_of_a_method_with_memory_is_that_of_its_mean_noise() {
    // FedHSA and SCAFFLSA at H = 1 on A_c = a I: theta_{t+1} - theta* = (1 - eta a) (..) + eta mean noise,
    // whose floor is eta^2 d std^2 / N / (1 - (1 - eta a)^2).
    let (agents, dim, a, std, eta) = (8, 3, 1.0, 1.0, 0.2);
    let field = common_matrix(agents, dim, a, std);
    let floor = eta * eta * dim as f64 * std * std / agents as f64 / (1.0 - (1.0 - eta * a) * (1.0 - eta * a));
    for kind in ["fedhsa", "scafflsa", "fedlsa"] {
        let settings = method(kind, &format!(r#"{{"step_size": {eta}, "local_steps": 1}}"#));
        let root = field.root().unwrap();
        let seen = means(&field, &*settings, root, 2000, &[40], |run| vec![distance(run.theta(), root).powi(2)]);
        follows(&[seen[0][0].off(floor * (1.0 - (1.0 - eta * a).powi(80)))]).unwrap();
    }
}
