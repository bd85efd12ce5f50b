//! Runs over links against exact first and second moments, seed by seed.
//!
//! Every check has a twin that must fail: the same runs against a prediction that leaves out what the link does.

use std::sync::Arc;

use crate::common::{Mean, engine, field, follows, link, method, small_garnet};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::problem::systems::Moments;
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_theory::RoundSetting;
use fedsa_theory::exact_mse::{ArrivalLaw, ExactMse, FedLsaMse, InitialControls};
use fedsa_theory::link::LinkLaw;
use fedsa_theory::map::LinearMap;
use fedsa_theory::phase::AffinePhase;
use fedsa_theory::predict::{Forecast, Regime};
use fedsa_theory::stability::ControlVariates;

const SEEDS: u64 = 2000;
const ROUNDS: u64 = 60;
const EXACT: &str = r#"{"kind": "exact"}"#;
const COARSE: &str = r#"{"kind": "quantised", "bits": 2}"#;
const DITHER: &str = r#"{"kind": "quantised", "bits": 2, "rounding": "dither"}"#;
const RAND_K: &str = r#"{"kind": "rand-k", "k": 2}"#;
const ERASURE: &str = r#"{"kind": "erasure", "success": 0.6}"#;
const FADING: &str = r#"{"kind": "over-the-air", "receiver_noise": 0.2}"#;
const SENT: &str = r#"{"kind": "noise", "std": 0.3}"#;
const RICIAN: &str = r#"{"kind": "over-the-air", "gain": {"law": "rician", "line_of_sight": 0.6, "scale": 0.3}}"#;

/// Six states, three features, three agents that differ.
fn tiny(kind: Law) -> Arc<dyn Field> {
    let garnet = Garnet::default().with_agents(3).with_states(6).with_features(3).with_min_class(5).with_gamma(0.8).with_seed(4);
    garnet.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
}

fn recorded() -> Vec<u64> {
    (1..=ROUNDS).collect()
}

/// Means over seeds of what `see` reads after each round.
fn means(
    field: &Arc<dyn Field>,
    method: &dyn MethodSettings,
    uplink: &Uplink,
    start: &[f64],
    see: impl Fn(&Run) -> Vec<f64>,
) -> Vec<Vec<Mean>> {
    method.check(field.agents()).unwrap();
    let mut means: Vec<Vec<Mean>> = vec![Vec::new(); ROUNDS as usize];
    for seed in 0..SEEDS {
        let mut run = engine(field, method, uplink, OutputRule::Last, seed, start.to_vec()).unwrap();
        for means in &mut means {
            run.step();
            let seen = see(&run);
            means.resize(seen.len(), Mean::default());
            means.iter_mut().zip(seen).for_each(|(mean, x)| mean.see(x));
        }
    }
    means
}

/// Deviations of means from predictions, in standard errors, all rounds and components; of quantities that do not vary yet,
/// in 1e-12 of their size.
fn off(means: &[Vec<Mean>], expected: impl IntoIterator<Item = Vec<f64>>) -> Vec<f64> {
    let one = |m: &Mean, x: f64| {
        let rounding = 1e-12 * x.abs().max(1.0);
        if m.error() < rounding { (m.value() - x) / rounding } else { m.off(x) }
    };
    means
        .iter()
        .zip(expected)
        .flat_map(|(means, expected)| means.iter().zip(expected).map(|(m, x)| one(m, x)).collect::<Vec<_>>())
        .collect()
}

const START: [f64; 3] = [2.0, -1.0, 0.5];

/// Holds the exact error of a method without memory to runs, and its twins to fail.
fn exact(what: &str, field: &Arc<dyn Field>, settings: &dyn MethodSettings, uplink: &Uplink) {
    let root = field.root().unwrap();
    // The squared error and, behind it, the iterate.
    let seen = means(field, settings, uplink, &START, |run| [&[linalg::distance_sq(run.theta(), root)], run.theta()].concat());
    let (errors, iterates): (Vec<_>, Vec<_>) = seen.into_iter().map(|mut of| (vec![of.remove(0)], of)).unzip();
    let of = |uplink: &Uplink| Forecast::over(field, settings, uplink).curve(&START, &InitialControls::Zero, &recorded());
    let mse = |uplink: &Uplink| of(uplink).unwrap().into_iter().map(|point| vec![point.mse()]);
    follows(&off(&errors, mse(uplink))).unwrap_or_else(|e| panic!("{what}: {e}"));
    if !uplink.is_clear() && field.sampling().kind == Law::Iid {
        assert!(follows(&off(&errors, mse(&Uplink::default()))).is_err(), "{what}: the link shows");
    }
    let mean = Forecast::over(field, settings, uplink).mean(&START, &recorded()).unwrap();
    follows(&off(&iterates, mean)).unwrap_or_else(|e| panic!("{what}: the mean iterate: {e}"));
}

#[test]
fn the_error_over_losses_and_over_the_air_is_exact() {
    let field = tiny(Law::Iid);
    for (kind, settings) in
        [("fedlsa", r#"{"step_size": 1.5, "local_steps": 4, "global_step_size": 0.8}"#), ("fedtd", r#"{"step_size": 3.0}"#)]
    {
        for media in [&[ERASURE][..], &[FADING], &[ERASURE, RICIAN]] {
            exact(&format!("{kind} over {media:?}"), &field, &*method(kind, settings), &link(EXACT, false, media).unwrap());
        }
    }
    // The randomness of the weights shows beside their mean: losses alone, of operators without noise.
    let (field, uplink) = (tiny(Law::Mean), link(EXACT, false, &[ERASURE]).unwrap());
    let settings = method("fedlsa", r#"{"step_size": 1.5, "local_steps": 4}"#);
    exact("noiseless operators", &field, &*settings, &uplink);
    // A budget that carries a message or not.
    let budget = r#"{"kind": "bit-budget", "bits": 40, "fading_snr": 4}"#;
    exact("a budget", &tiny(Law::Iid), &*settings, &link(EXACT, false, &[budget]).unwrap());
}

#[test]
fn the_error_with_noise_of_agents_is_exact() {
    let field = tiny(Law::Iid);
    let fedlsa = method("fedlsa", r#"{"step_size": 1.5, "local_steps": 4, "global_step_size": 0.8}"#);
    for media in [&[SENT][..], &[SENT, ERASURE], &[SENT, SENT, FADING]] {
        exact(&format!("FedLSA over {media:?}"), &field, &*fedlsa, &link(EXACT, false, media).unwrap());
    }
    // The noise alone, of operators without noise; and with few participants.
    exact("noiseless operators", &tiny(Law::Mean), &*fedlsa, &link(EXACT, false, &[SENT]).unwrap());
    let few = method("fedtd", r#"{"step_size": 3.0, "participants": 2}"#);
    exact("2 of 3", &field, &*few, &link(EXACT, false, &[SENT]).unwrap());
    // Agents of unequal weight: the sum of the squares of the weights is 0.50, twice that of equal ones.
    let local = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 2}"#);
    for law in [Law::Iid, Law::Mean] {
        let unequal = crate::common::unequal(law);
        exact("unequal weights", &unequal, &*local, &link(EXACT, false, &[SENT]).unwrap());
        exact("unequal weights, losses", &unequal, &*local, &link(EXACT, false, &[SENT, ERASURE]).unwrap());
    }
    // Where nothing arrives in the first rounds, no noise does.
    let delay = |rest: &str| format!(r#"{{"kind": {rest}, "law": "constant", "rounds": 3}}"#);
    let slow = method("fedlsa", r#"{"step_size": 0.8, "local_steps": 3, "global_step_size": 0.9}"#);
    for delay in [delay(r#""delay""#), delay(r#""delay", "before": "nothing""#), delay(r#""late""#)] {
        exact(&delay, &field, &*slow, &link(EXACT, false, &[SENT, &delay]).unwrap());
    }
}

#[test]
fn weights_that_are_not_random_are_told_from_those_that_are() {
    let field = tiny(Law::Iid);
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    let moments: Vec<Moments> = (0..systems.kinds.len()).map(|k| field.moments(k).unwrap()).collect();
    let setting = RoundSetting::new(1.5, 4).unwrap();
    let settings = method("fedlsa", r#"{"step_size": 1.5, "local_steps": 4}"#);
    let uplink = link(EXACT, false, &[ERASURE]).unwrap();
    let seen = means(&field, &*settings, &uplink, &START, |run| vec![linalg::distance_sq(run.theta(), root)]);
    let curve = |arrivals: ArrivalLaw| {
        let points = FedLsaMse::arriving(systems, Some(&moments), &setting, 1, &arrivals).unwrap().curve(&START, &recorded()).unwrap();
        points.into_iter().map(|point| vec![point.mse()])
    };
    follows(&off(&seen, curve(ArrivalLaw::by_factors(0.6, 0.6, 0.0, 3)))).unwrap();
    assert!(follows(&off(&seen, curve(ArrivalLaw::by_factors(0.6, 0.36, 0.0, 3)))).is_err(), "a gain of 0.6 is no loss");
}

#[test]
fn the_error_of_few_participants_is_exact() {
    let field = tiny(Law::Iid);
    let few = |m: usize| method("fedlsa", &format!(r#"{{"step_size": 1.5, "local_steps": 4, "participants": {m}}}"#));
    let clear = Uplink::default();
    for m in [1, 2] {
        exact(&format!("{m} of 3"), &field, &*few(m), &clear);
        exact(&format!("{m} of 3, losses"), &field, &*few(m), &link(EXACT, false, &[ERASURE]).unwrap());
    }
    exact("2 of 3 over the air", &field, &*few(2), &link(EXACT, false, &[FADING]).unwrap());
    // All agents' curve is another.
    let root = field.root().unwrap();
    let seen = means(&field, &*few(2), &clear, &START, |run| vec![linalg::distance_sq(run.theta(), root)]);
    let all = Forecast::over(&field, &*few(3), &clear).curve(&START, &InitialControls::Zero, &recorded()).unwrap();
    assert!(follows(&off(&seen, all.into_iter().map(|point| vec![point.mse()]))).is_err());
}

#[test]
fn the_error_over_constant_delays_is_exact() {
    let field = tiny(Law::Iid);
    let delay = |rest: &str| format!(r#"{{"kind": {rest}, "law": "constant", "rounds": 3}}"#);
    let (first, nothing, late) = (delay(r#""delay""#), delay(r#""delay", "before": "nothing""#), delay(r#""late""#));
    let fedlsa = method("fedlsa", r#"{"step_size": 0.8, "local_steps": 3, "global_step_size": 0.9}"#);
    let delayed = method("delayed-sa", r#"{"step_size": 1.5}"#);
    for media in [&[&first[..]][..], &[&nothing], &[&late], &[ERASURE, &first], &[&first, FADING], &[&nothing, FADING], &[ERASURE, &late]] {
        let uplink = link(EXACT, false, media).unwrap();
        exact(&format!("FedLSA over {media:?}"), &field, &*fedlsa, &uplink);
        exact(&format!("delayed SA over {media:?}"), &field, &*delayed, &uplink);
    }
    let few = method("fedtd", r#"{"step_size": 1.5, "participants": 2}"#);
    for medium in [&first, &nothing, &late] {
        exact(&format!("FedTD, 2 of 3, over {medium}"), &field, &*few, &link(EXACT, false, &[medium]).unwrap());
    }
    // The first round's sample used once instead of four times is another curve.
    let (uplink, root) = (link(EXACT, false, &[&first]).unwrap(), field.root().unwrap());
    let seen = means(&field, &*delayed, &uplink, &START, |run| vec![linalg::distance_sq(run.theta(), root)]);
    let other = Forecast::over(&field, &*delayed, &link(EXACT, false, &[&nothing]).unwrap());
    let other = other.curve(&START, &InitialControls::Zero, &recorded()).unwrap();
    assert!(follows(&off(&seen, other.into_iter().map(|point| vec![point.mse()]))).is_err());
}

/// Methods with memory: the noise of agents and receivers alone, which enters the sum of operators of FedHSA and its directions, and where
/// SCAFFLSA's controls are made afresh, all controls.
#[test]
fn the_error_of_methods_with_memory_with_noise_of_the_link_is_exact() {
    let air = r#"{"kind": "over-the-air", "gain": {"law": "constant", "value": 1}, "receiver_noise": 0.6}"#;
    let of = r#""step_size": 1.5, "local_steps": 4, "global_step_size": 0.8"#;
    let afresh = format!(r#"{{{of}, "rule": "afresh"}}"#);
    for (kind, settings) in [("fedhsa", format!("{{{of}}}")), ("scafflsa", afresh)] {
        let settings = method(kind, &settings);
        for (law, media) in [(Law::Iid, &[SENT][..]), (Law::Mean, &[SENT, air]), (Law::Iid, &[air])] {
            let (field, uplink) = (tiny(law), link(EXACT, false, media).unwrap());
            let root = field.root().unwrap();
            let seen = means(&field, &*settings, &uplink, &START, |run| vec![linalg::distance_sq(run.theta(), root)]);
            let forecast = Forecast::over(&field, &*settings, &uplink);
            let points = |forecast: &Forecast| forecast.curve(&START, &InitialControls::Zero, &recorded()).unwrap();
            let mse = |forecast: &Forecast| off(&seen, points(forecast).into_iter().map(|point| vec![point.mse()]));
            follows(&mse(&forecast)).unwrap_or_else(|e| panic!("{kind} over {media:?}: {e}"));
            // A third of the noise more is another curve.
            let louder = forecast.clone().with_release_noise(0.01).unwrap();
            assert!(follows(&mse(&louder)).is_err(), "{kind} over {media:?}: the noise shows");
            let end = forecast.curve(&START, &InitialControls::Zero, &[5000]).unwrap()[0].mse();
            assert!((end / forecast.floor().unwrap().mse() - 1.0).abs() < 1e-9);
            assert_eq!(forecast.outlook().regime(), Regime::Stable);
        }
    }
}

#[test]
fn the_mean_iterate_over_unbiased_codecs_and_delays_drawn_anew_is_exact() {
    let field = tiny(Law::Iid);
    let fedlsa = method("fedlsa", r#"{"step_size": 1.0, "local_steps": 4, "global_step_size": 0.9}"#);
    let uniform = r#"{"kind": "delay", "law": "uniform", "max": 4}"#;
    let geometric = r#"{"kind": "late", "law": "geometric", "mean": 1.5, "max": 6}"#;
    let spikes = r#"{"kind": "delay", "law": "spikes", "probability": 0.3, "rounds": 5, "before": "nothing"}"#;
    let fading = r#"{"kind": "bit-budget", "bits": 1.5, "fading_snr": 2}"#;
    let down = || {
        let codec = link(COARSE, false, &[]).unwrap().codec;
        Uplink::default().with_downlink(codec)
    };
    let links = [
        link(COARSE, false, &[]),
        link(DITHER, false, &[ERASURE]),
        link(RAND_K, false, &[]),
        link(COARSE, false, &[fading]),
        Ok(down()),
        link(EXACT, false, &[uniform]),
        link(COARSE, false, &[ERASURE, geometric]),
        link(EXACT, false, &[spikes]),
    ];
    for uplink in links.map(Result::unwrap) {
        let forecast = Forecast::over(&field, &*fedlsa, &uplink);
        let seen = means(&field, &*fedlsa, &uplink, &START, |run| run.theta().to_vec());
        follows(&off(&seen, forecast.mean(&START, &recorded()).unwrap())).unwrap_or_else(|e| panic!("{uplink:?}: {e}"));
        // The limit is FedLSA's, not theta*: with the push left out it does not fit.
        let clear = Forecast::over(&field, &*fedlsa, &Uplink::default());
        assert_eq!(forecast.limit().unwrap(), clear.limit().unwrap());
        // The mean is known, the mean square is not, and both say so.
        assert_eq!(forecast.outlook().regime(), Regime::InMean);
        let why = forecast.knows_floor().unwrap_err().what;
        assert!(why.contains("depends on the vector") || why.contains("drawn anew"), "{why}");
        if uplink.delay().is_some() || uplink.budget().is_some() {
            assert!(follows(&off(&seen, clear.mean(&START, &recorded()).unwrap())).is_err(), "{uplink:?}");
        }
    }
}

/// The mean of theta and all controls along the rounds of a map of `(u, x_1 .. x_N)`, agents all of their own kind.
fn by_map(field: &Arc<dyn Field>, map: &ControlVariates, start: &[f64]) -> Vec<Vec<f64>> {
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    let push: Vec<f64> = (0..field.agents()).flat_map(|c| systems.of(c).mean(root)).collect();
    let mut state: Vec<f64> = start.iter().zip(root).map(|(x, r)| x - r).chain(push.iter().copied()).collect();
    let centre: Vec<f64> = root.iter().copied().chain(push.iter().map(|g| -g)).collect();
    (0..ROUNDS)
        .map(|_| {
            let before = state.clone();
            map.apply(&before, &mut state);
            state.iter().zip(&centre).map(|(x, c)| x + c).collect()
        })
        .collect()
}

#[test]
fn the_mean_of_control_variates_is_that_of_the_rule_in_force() {
    let field = tiny(Law::Iid);
    let systems = field.systems().unwrap();
    let setting = RoundSetting::new(1.0, 4).unwrap().with_server_step(0.9).unwrap();
    let clear = || ControlVariates::fixed_period(systems, &setting);
    let down = || Uplink::default().with_downlink(link(COARSE, false, &[]).unwrap().codec);
    let cases = [
        (link(COARSE, false, &[]).unwrap(), "acknowledged", None, clear()),
        (link(COARSE, false, &[]).unwrap(), "afresh", None, clear()),
        (link(DITHER, false, &[]).unwrap(), "literal", None, clear()),
        (down(), "auto", None, clear()),
        (link(EXACT, false, &[ERASURE]).unwrap(), "acknowledged", None, clear().arriving(0.6)),
        (link(COARSE, false, &[ERASURE]).unwrap(), "acknowledged", None, clear().arriving(0.6)),
        (link(EXACT, false, &[ERASURE]).unwrap(), "afresh", None, clear().made_anew(0.6)),
        (link(EXACT, false, &[RICIAN]).unwrap(), "auto", None, {
            let gain = LinkLaw::of(&link(EXACT, false, &[RICIAN]).unwrap(), 3).unwrap().gain;
            clear().made_anew(gain)
        }),
        (Uplink::default(), "auto", Some(2), clear().moving_by(0.5)),
        (link(COARSE, false, &[ERASURE]).unwrap(), "acknowledged", Some(2), clear().arriving(0.6).moving_by(0.5)),
    ];
    for (uplink, rule, few, map) in cases {
        let few = few.map_or(String::new(), |m: usize| format!(r#", "participants": {m}"#));
        let json = format!(r#"{{"step_size": 1.0, "local_steps": 4, "global_step_size": 0.9, "rule": "{rule}"{few}}}"#);
        let what = format!("{rule}{few} over {uplink:?}");
        let settings = method("scafflsa", &json);
        let seen = means(&field, &*settings, &uplink, &START, |run| [run.theta().to_vec(), run.controls().unwrap().concat()].concat());
        follows(&off(&seen, by_map(&field, &map, &START))).unwrap_or_else(|e| panic!("{what}: {e}"));
        // A forecast knows the rule.
        let forecast = Forecast::over(&field, &*settings, &uplink);
        let (got, want) = (forecast.radius().unwrap(), map.radius().unwrap());
        assert!((got - want).abs() < 1e-10, "{what}: {got} {want}");
        assert_eq!((forecast.bias_sq().unwrap(), forecast.outlook().regime()), (0.0, Regime::InMean), "{what}");
        assert!(forecast.knows_floor().is_err());
        let plain = by_map(&field, &clear(), &START);
        if map.radius().unwrap() != clear().radius().unwrap() {
            assert!(follows(&off(&seen, plain)).is_err(), "{what}: it shows");
        }
    }
    // What the link loses adds up in controls that are kept to the letter: no statement.
    let literal = method("scafflsa", r#"{"step_size": 1.0, "local_steps": 4, "rule": "literal"}"#);
    let why = Forecast::over(&field, &*literal, &link(EXACT, false, &[ERASURE]).unwrap()).radius().unwrap_err().what;
    assert!(why.contains("to the letter"), "{why}");
}

#[test]
fn the_mean_of_global_memory_over_losses_and_with_few_is_exact() {
    let field = tiny(Law::Iid);
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    let (eta, h, alpha) = (1.0, 4, 0.9);
    let phases: Vec<AffinePhase> = systems.kinds.iter().map(|k| AffinePhase::new(&k.a, eta, h)).collect();
    // u' = u + alpha gain^2 [ mixing Sbar gbar(theta) + (1 - mixing) mean S_c gbar_c(theta) ], agents of equal weight.
    let mean_round = |theta: &[f64], g: &[f64], gain: f64, mixing: f64| -> Vec<f64> {
        let mut next = theta.to_vec();
        for (kind, phase) in systems.kinds.iter().zip(&phases) {
            let own = kind.mean(theta);
            let drift: Vec<f64> = g.iter().zip(own).map(|(g, own)| mixing * g + gain * (1.0 - mixing) * own).collect();
            next.iter_mut().zip(linalg::mat_vec(&phase.sum, &drift)).for_each(|(x, v)| *x += alpha * gain / 3.0 * v);
        }
        next
    };
    let operator = |theta: &[f64]| field.mean_operator(theta).unwrap();
    for (media, codec, rest, gain, mixing) in [
        (&[ERASURE][..], EXACT, "", 0.6, 1.0),
        (&[][..], COARSE, "", 1.0, 1.0),
        (&[][..], EXACT, r#", "participants": 2"#, 1.0, 0.75),
        (&[ERASURE][..], COARSE, r#", "participants": 2"#, 0.6, 0.75),
        (&[ERASURE][..], EXACT, r#", "missing": "last""#, 0.6, 1.0),
    ] {
        let json = format!(r#"{{"step_size": {eta}, "local_steps": {h}, "global_step_size": {alpha}{rest}}}"#);
        let (settings, uplink) = (method("fedhsa", &json), link(codec, false, media).unwrap());
        let seen = means(&field, &*settings, &uplink, &START, |run| run.theta().to_vec());
        let (mut theta, mut kept) = (START.to_vec(), vec![0.0; 3]);
        let expected: Vec<Vec<f64>> = (0..ROUNDS)
            .map(|_| {
                let last = if rest.contains("last") { 1.0 - gain } else { 0.0 };
                kept = operator(&theta).iter().zip(&kept).map(|(g, kept)| gain * g + last * kept).collect();
                theta = mean_round(&theta, &kept, gain, mixing);
                theta.clone()
            })
            .collect();
        follows(&off(&seen, expected.clone())).unwrap_or_else(|e| panic!("{codec} {media:?} {rest}: {e}"));
        // The forecast's limit and radius are those of this recursion.
        let forecast = Forecast::over(&field, &*settings, &uplink);
        let rounds = 20_000;
        let away = |theta: &[f64]| linalg::distance_sq(theta, root);
        let mut limit = theta.clone();
        let mut last = kept.clone();
        for _ in 0..rounds {
            let memory = if rest.contains("last") { 1.0 - gain } else { 0.0 };
            last = operator(&limit).iter().zip(&last).map(|(g, kept)| gain * g + memory * kept).collect();
            limit = mean_round(&limit, &last, gain, mixing);
        }
        let bias = forecast.bias_sq().unwrap();
        assert!((away(&limit) - bias).abs() < 1e-12, "{rest}: {:e} {bias:e}", away(&limit));
        assert_eq!(bias > 1e-6, mixing < 1.0, "{bias:e}");
        assert!(forecast.radius().unwrap() < 1.0 && forecast.knows_floor().is_err());
    }
}

#[test]
fn what_is_not_known_says_why() {
    let (iid, markov) = (tiny(Law::Iid), tiny(Law::Markov));
    let fedlsa = method("fedlsa", r#"{"step_size": 0.5, "local_steps": 4}"#);
    let bursts = r#"{"kind": "gilbert-elliott", "to_bad": 0.1, "to_good": 0.3}"#;
    let stall = r#"{"kind": "delay", "law": "stall", "period": 50, "length": 5}"#;
    for (uplink, why) in [
        (link(r#"{"kind": "top-k", "k": 1}"#, true, &[]), "error feedback"),
        (link(r#"{"kind": "float32"}"#, false, &[]), "biased"),
        (link(EXACT, false, &[bursts]), "bursts"),
        (link(EXACT, false, &[SENT, r#"{"kind": "clip", "norm": 1e9}"#]), "(clip)"),
        (link(EXACT, false, &[stall]), "stall"),
        (link(EXACT, false, &[r#"{"kind": "erasure", "success": 0}"#]), "no message arrives"),
    ] {
        let said = Forecast::over(&iid, &*fedlsa, &uplink.unwrap()).knows_rounds().unwrap_err().what;
        assert!(said.contains(why), "{said}");
    }
    let lossy = link(EXACT, false, &[ERASURE]).unwrap();
    let said = Forecast::over(&markov, &*fedlsa, &lossy).knows_floor().unwrap_err().what;
    assert!(said.contains("samples are not i.i.d."), "{said}");
    let scafflsa = method("scafflsa", r#"{"step_size": 0.5, "local_steps": 4}"#);
    let late = link(EXACT, false, &[r#"{"kind": "late", "law": "constant", "rounds": 2}"#]).unwrap();
    let said = Forecast::over(&iid, &*scafflsa, &late).knows_rounds().unwrap_err().what;
    assert!(said.contains("remembers"), "{said}");
    // A channel that forgets at once is an erasure.
    let forgets = r#"{"kind": "gilbert-elliott", "to_bad": 0.4, "to_good": 0.6}"#;
    let of = |medium: &str| Forecast::over(&iid, &*fedlsa, &link(EXACT, false, &[medium]).unwrap()).floor().unwrap().mse();
    assert!((of(forgets) - of(ERASURE)).abs() < 1e-12);
    // Agents of unequal weight.
    let unequal = crate::common::unequal(Law::Iid);
    let few = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 2, "participants": 2}"#);
    let said = Forecast::over(&unequal, &*few, &Uplink::default()).knows_rounds().unwrap_err().what;
    assert!(said.contains("weight"), "{said}");
}

#[test]
fn floors_over_links_are_where_curves_end_and_steps_are_stable() {
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Iid);
    let fedlsa = method("fedlsa", r#"{"step_size": 0.5, "local_steps": 5, "participants": 3}"#);
    for media in [&[ERASURE][..], &[FADING], &[r#"{"kind": "delay", "law": "constant", "rounds": 4}"#]] {
        let uplink = link(EXACT, false, media).unwrap();
        let forecast = Forecast::over(&field, &*fedlsa, &uplink);
        assert_eq!(forecast.outlook().regime(), Regime::Stable);
        let end = forecast.curve(&[1.0; 4], &InitialControls::Zero, &[20_000]).unwrap()[0].mse();
        assert!((end / forecast.floor().unwrap().mse() - 1.0).abs() < 1e-9);
        let edge = forecast.largest_stable_step().unwrap();
        assert!(edge.in_mean_square && edge.step > 0.5, "{media:?}: {edge:?}");
        let regime = |step: f64| forecast.clone().with_step(step).outlook().regime();
        assert_eq!(regime(0.97 * edge.step), Regime::Stable, "{media:?}");
        assert_ne!(regime(1.05 * edge.step), Regime::Stable, "{media:?}");
    }
}

#[test]
fn long_delays_over_many_rounds_are_refused_with_their_size() {
    let field = field(&LinearSystems::default().with_agents(2).with_dim(24), Law::Iid);
    let delayed = method("delayed-sa", r#"{"step_size": 0.001}"#);
    let uplink = link(EXACT, false, &[r#"{"kind": "delay", "law": "constant", "rounds": 249}"#]).unwrap();
    let forecast = Forecast::over(&field, &*delayed, &uplink);
    forecast.knows_curve_to(700).unwrap();
    for e in [forecast.knows_curve_to(7000).unwrap_err(), forecast.curve(&[0.0; 24], &InitialControls::Zero, &[7000]).unwrap_err()] {
        for part in ["too long", "24 features", "7000 rounds", "delay of 249 rounds"] {
            assert!(e.what.contains(part), "{}", e.what);
        }
    }
}
