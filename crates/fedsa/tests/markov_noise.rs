//! Runs with additive Gauss-Markov noise, and with samples of finite chains, against predicted mean-square errors.

use std::sync::Arc;

use crate::common::{Mean, engine, follows, method};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::record::OutputRule;
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::td::garnet::Garnet;
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_theory::Accuracy;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::predict::{FloorCache, Forecast, QUANTITIES, Regime};

const SEEDS: u64 = 1500;
const ROUNDS: u64 = 40;
const START: [f64; 2] = [1.5, -0.5];

fn noisy(sampling: Sampling) -> Arc<dyn Field> {
    let settings = r#"{"agents": 3, "dim": 2, "scale": 0.6, "spread": 1, "seed": 3, "noise": {"std": 0.8, "radius": 0.85, "seed": 2}}"#;
    let systems: LinearSystems = fedsa::registry::read(&serde_json::from_str(settings).unwrap()).unwrap();
    systems.field(&NoFiles, sampling, Isa::best()).unwrap()
}

fn methods() -> Vec<Box<dyn MethodSettings>> {
    let settings = r#"{"step_size": 0.2, "local_steps": 4, "global_step_size": 0.9}"#;
    ["fedlsa", "fedhsa", "scafflsa"].into_iter().map(|kind| method(kind, settings)).collect()
}

/// The mean-square error after each round, over seeds.
fn measured(field: &Arc<dyn Field>, method: &dyn MethodSettings, start: &[f64]) -> Vec<Mean> {
    let (root, uplink) = (field.root().unwrap(), Uplink::default());
    let mut means = vec![Mean::default(); ROUNDS as usize];
    for seed in 0..SEEDS {
        let mut run = engine(field, method, &uplink, OutputRule::Last, seed, start.to_vec()).unwrap();
        for mean in &mut means {
            run.step();
            mean.see(linalg::distance_sq(run.theta(), root));
        }
    }
    means
}

fn predicted(field: &Arc<dyn Field>, method: &dyn MethodSettings, start: &[f64]) -> Vec<f64> {
    let rounds: Vec<u64> = (1..=ROUNDS).collect();
    let forecast = Forecast::over(field, method, &Uplink::default());
    forecast.curve(start, &InitialControls::Zero, &rounds).unwrap().iter().map(|point| point.mse()).collect()
}

fn off(means: &[Mean], expected: &[f64]) -> Vec<f64> {
    means.iter().zip(expected).map(|(mean, x)| mean.off(*x)).collect()
}

#[test]
fn runs_with_gauss_markov_noise_follow_their_exact_curves() {
    let markov = |batch, start| Sampling::default().with_kind(Law::Markov).with_batch(batch).with_start(start);
    for sampling in [
        markov(1, ChainStart::Stationary),
        markov(2, ChainStart::State(0)),
        Sampling::default().with_kind(Law::Iid).with_batch(1).with_start(ChainStart::Stationary),
    ] {
        let field = noisy(sampling);
        for method in methods() {
            let what = format!("{method:?} under {sampling:?}");
            let seen = measured(&field, &*method, &START);
            follows(&off(&seen, &predicted(&field, &*method, &START))).unwrap_or_else(|e| panic!("{what}: {e}"));
            // The twin that must fail: the noise's memory left out, or put in.
            let other = if sampling.kind == Law::Iid { markov(1, ChainStart::Stationary) } else { sampling.with_kind(Law::Iid) };
            let other = predicted(&noisy(other.with_start(ChainStart::Stationary)), &*method, &START);
            assert!(follows(&off(&seen, &other)).is_err(), "{what}: the memory of the noise shows");
        }
    }
}

#[test]
fn floors_under_additive_noise_are_the_limits_of_curves() {
    let field = noisy(Sampling::default().with_kind(Law::Markov).with_batch(1).with_start(ChainStart::Stationary));
    for method in methods() {
        let forecast = Forecast::over(&field, &*method, &Uplink::default());
        let floor = forecast.predicted_floor().unwrap();
        assert_eq!(floor.accuracy, Accuracy::Exact);
        let last = &forecast.curve(&START, &InitialControls::Zero, &[2000]).unwrap()[0];
        assert!((floor.value.mse() - last.mse()).abs() < 1e-9 * last.mse(), "{method:?}");
        let outlook = forecast.outlook();
        let (radius, square) = (outlook.radius.clone().unwrap(), outlook.mean_square.clone().unwrap().unwrap());
        assert!((radius * radius - square).abs() < 1e-15 && outlook.regime() == Regime::Stable);
        // What additive noise does not change is not lost over links, and what is not known is refused.
        let lossy = crate::common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
        let said = Forecast::over(&field, &*method, &lossy).knows_floor().unwrap_err().what;
        assert!(said.contains("not i.i.d., and the link"), "{said}");
        let said = Forecast::over(&field, &*method, &Uplink::default()).knows_leading_order().unwrap_err().what;
        assert!(said.contains("finite chains"), "{said}");
    }
}

/// Quantities have an accuracy only where they have a value.
fn labels_belong_to_numbers(forecast: &Forecast, what: &str) {
    let cache = FloorCache::default();
    for quantity in QUANTITIES.iter().filter(|quantity| quantity.accuracy(forecast, &cache).is_some()) {
        let value = quantity.value_with(forecast, &cache);
        assert!(value.is_ok(), "{what}: `{}` is labelled, and {value:?}", quantity.name);
    }
}

/// Agents on small chains.
fn chains(agents: usize, states: usize) -> Arc<dyn Field> {
    let garnet = Garnet::default().with_agents(agents).with_states(states).with_features(2).with_min_class(3).with_gamma(0.8).with_seed(4);
    garnet.field(&NoFiles, Sampling::default().with_kind(Law::Markov), Isa::best()).unwrap()
}

#[test]
fn runs_along_finite_chains_follow_what_is_predicted() {
    let settings = r#"{"step_size": 0.6, "local_steps": 3}"#;
    for (agents, states, is_exact) in [(1, 6, true), (2, 4, true), (12, 6, false)] {
        let field = chains(agents, states);
        for kind in ["fedlsa", "fedhsa"] {
            let (what, method) = (format!("{kind} with {agents} agents"), method(kind, settings));
            let forecast = Forecast::over(&field, &*method, &Uplink::default());
            let floor = forecast.predicted_floor().unwrap();
            assert_eq!(floor.accuracy == Accuracy::Exact, is_exact, "{what}: {:?}", floor.accuracy);
            assert_eq!(forecast.curve_accuracy().unwrap() == Accuracy::Exact, is_exact, "{what}");
            let seen = measured(&field, &*method, &START);
            follows(&off(&seen, &predicted(&field, &*method, &START))).unwrap_or_else(|e| panic!("{what}: {e}"));
            let last = &forecast.curve(&START, &InitialControls::Zero, &[3000]).unwrap()[0];
            assert!((floor.value.mse() - last.mse()).abs() < 1e-6 * last.mse(), "{what}: {} {}", floor.value.mse(), last.mse());
            assert_eq!(forecast.floor_accuracy().unwrap(), floor.accuracy, "{what}");
            labels_belong_to_numbers(&forecast, &what);
            // With a step that is too large the floor does not exist.
            labels_belong_to_numbers(&forecast.clone().with_step(50.0), &what);
            // Leading order is near, and no more.
            let leading = forecast.leading_order_floor().unwrap();
            let explanation = forecast.markov_explanation().unwrap();
            assert!((leading.mse() / floor.value.mse() - 1.0).abs() < 0.6, "{what}: {} {}", leading.mse(), floor.value.mse());
            assert!(explanation.noise_over_iid > 0.0 && (0.0..1.0).contains(&explanation.bias_share));
        }
    }
}

#[test]
fn what_is_not_known_under_markov_samples_says_why() {
    let field = chains(12, 6);
    let said =
        |kind: &str, settings: &str| Forecast::over(&field, &*method(kind, settings), &Uplink::default()).knows_floor().unwrap_err().what;
    assert!(said("fedlsa", r#"{"step_size": 0.1, "local_steps": 2, "participants": 3}"#).contains("not all agents participate"));
    assert!(said("fedlsa", r#"{"step_size": 0.1, "local_steps": 2, "global_step_size": 0.5}"#).contains("the server's step is not 1"));
    let batches = Garnet::default().with_agents(12).with_states(6).with_features(2).with_min_class(3).with_gamma(0.8).with_seed(4);
    let batches = batches.field(&NoFiles, Sampling::default().with_kind(Law::Markov).with_batch(2), Isa::best()).unwrap();
    let fedlsa = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 2}"#);
    let forecast = Forecast::over(&batches, &*fedlsa, &Uplink::default());
    assert!(forecast.knows_floor().unwrap_err().what.contains("batches"));
    assert!(forecast.knows_leading_order().unwrap_err().what.contains("batches"));
    labels_belong_to_numbers(&forecast, "batches");
    // Numbers of rounds whose samples do not fit into an integer, and controls in the order of the agents.
    for (agents, states) in [(1, 6), (2, 4), (12, 6)] {
        let field = chains(agents, states);
        let forecast = Forecast::over(&field, &*fedlsa, &Uplink::default());
        assert!(forecast.knows_curve_to(u64::MAX).unwrap_err().what.contains("takes too long"), "{agents} agents");
    }
    let two = chains(2, 4);
    let scafflsa = method("scafflsa", r#"{"step_size": 0.1, "local_steps": 2}"#);
    let given = InitialControls::Given(vec![vec![0.0; 2]; 2]);
    let said = Forecast::over(&two, &*scafflsa, &Uplink::default()).curve(&START, &given, &[1]).unwrap_err().what;
    assert!(said.contains("given control variates"), "{said}");
    // From a state, the closure has no curve, but a floor.
    let garnet = Garnet::default().with_agents(12).with_states(6).with_features(2).with_min_class(3).with_gamma(0.8).with_seed(4);
    let sampling = Sampling::default().with_kind(Law::Markov).with_batch(1).with_start(ChainStart::State(0));
    let fixed = garnet.field(&NoFiles, sampling, Isa::best()).unwrap();
    let forecast = Forecast::over(&fixed, &*fedlsa, &Uplink::default());
    assert!(forecast.knows_curve().unwrap_err().what.contains("stationary laws"));
    forecast.knows_floor().unwrap();
}
