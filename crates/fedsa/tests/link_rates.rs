//! What links do to floors and to speed, measured: floors fall as 1/N through every link,
//! losses and fading slow the mean and no more, delays raise floors only where samples are
//! used again.
//!
//! Agents are alike, `g_c = A (theta* - theta) + w`, w white, so that only noise remains
//! to average. Intervals are three standard errors over seeds. `cargo xtask test --all` measures
//! with many more seeds.

use std::sync::Arc;

use crate::common::{Mean, engine, field, link, method};
use fedsa::linalg::distance_sq;
use fedsa::problem::Field;
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;

const EXACT: &str = r#"{"kind": "exact"}"#;
const SEEDS: u64 = 8;
const MANY_SEEDS: u64 = 200;

/// Alike agents in d dimensions: a matrix that is not symmetric (eigenvalues 1 +- 0.5i, and 1),
/// a root that is not zero.
fn alike(agents: usize, law: Law) -> Arc<dyn Field> {
    let a = vec![vec![1.0, 0.5, 0.0, 0.0], vec![-0.5, 1.0, 0.0, 0.0], vec![0.0, 0.0, 1.0, 0.0], vec![0.0, 0.0, 0.0, 1.0]];
    let systems = LinearSystems::default()
        .with_a(vec![a; agents])
        .with_b(vec![vec![1.0, -2.0, 0.5, 3.0]; agents])
        .with_noise((law != Law::Mean).then_some(WHITE));
    field(&systems, law)
}

const WHITE: Noise = Noise::new(1.0, 0.0, 0);

/// The mean of `||theta - theta*||^2` over the rounds after `settling`, from the root.
fn floor(field: &Arc<dyn Field>, uplink: &Uplink, alpha: f64, seed: u64, settling: u64, rounds: u64) -> f64 {
    let root = field.root().unwrap();
    let method = method("fedtd", &format!(r#"{{"step_size": {alpha}}}"#));
    let mut run = engine(field, &*method, uplink, OutputRule::Last, seed, root.to_vec()).unwrap();
    (0..settling).for_each(|_| run.step());
    let sum: f64 = (0..rounds)
        .map(|_| {
            run.step();
            distance_sq(run.theta(), root)
        })
        .sum();
    assert_eq!(run.diverged(), None);
    sum / rounds as f64
}

/// The slope of the least-squares line through points (x, y).
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let (xx, xy) = points.iter().fold((0.0, 0.0), |(xx, xy), p| (xx + (p.0 - x).powi(2), xy + (p.0 - x) * (p.1 - y)));
    xy / xx
}

/// Slope of log floor against log N, fitted for each seed. (Agents of few are the first of many,
/// and floors of one seed are correlated: fits of different seeds are independent.)
fn slope_in_agents(law: Law, uplink: &Uplink, alpha: f64, seeds: u64) -> Mean {
    let fields: Vec<_> = [1, 2, 4, 8, 16, 32].into_iter().map(|n| (f64::from(n).ln(), alike(n as usize, law))).collect();
    let mut slopes = Mean::default();
    for seed in 0..seeds {
        let point = |(x, field): &(f64, Arc<dyn Field>)| (*x, floor(field, uplink, alpha, seed, 200, 2000).ln());
        slopes.see(slope(&fields.iter().map(point).collect::<Vec<_>>()));
    }
    slopes
}

/// Every kind of link. Left out: top-k, and rounding to nearest with few bits, which without
/// error feedback have a bias that no number of agents averages out, and receiver noise, which
/// falls faster (below).
fn kinds_of_links() -> Vec<(&'static str, Uplink)> {
    let codecs = [
        ("exact", EXACT),
        ("float32", r#"{"kind": "float32"}"#),
        ("quantised", r#"{"kind": "quantised", "bits": 2}"#),
        ("quantised, dither", r#"{"kind": "quantised", "bits": 2, "rounding": "dither"}"#),
        ("rand-k", r#"{"kind": "rand-k", "k": 2}"#),
    ];
    let media = [
        ("erasure", r#"{"kind": "erasure", "success": 0.6}"#),
        ("bursts", r#"{"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.3}"#),
        ("over the air, Rayleigh", r#"{"kind": "over-the-air"}"#),
        ("over the air, Rician", r#"{"kind": "over-the-air", "gain": {"law": "rician", "line_of_sight": 0.8, "scale": 0.4}}"#),
        ("constant delay", r#"{"kind": "delay", "law": "constant", "rounds": 8}"#),
        ("uniform delays", r#"{"kind": "delay", "law": "uniform", "max": 8}"#),
        ("geometric delays", r#"{"kind": "delay", "law": "geometric", "mean": 4}"#),
        ("late answers", r#"{"kind": "late", "law": "uniform", "min": 0, "max": 8}"#),
    ];
    let budgets = [
        ("constant budget", r#"{"kind": "bit-budget", "bits": 3}"#),
        ("fading budget", r#"{"kind": "bit-budget", "bits": 3, "fading_snr": 1}"#),
    ];
    let codecs = codecs.map(|(name, codec)| (name, link(codec, false, &[]).unwrap()));
    let media = media.map(|(name, medium)| (name, link(EXACT, false, &[medium]).unwrap()));
    let budgets = budgets.map(|(name, budget)| (name, link(r#"{"kind": "quantised", "bits": 8}"#, false, &[budget]).unwrap()));
    codecs.into_iter().chain(media).chain(budgets).collect()
}

/// Losses and fading multiply the mean direction too, which raises the floor of one agent by
/// `1 + alpha lambda v / 2` with v the variance of the gain over its squared mean, and that of
/// many agents less. At alpha = 0.02 and v <= 1.5 (bursts, v = 0.67, count for more as they last)
/// that turns the line by at most 0.005.
fn floors_fall_as_one_over_n(seeds: u64) {
    const TURN: f64 = 0.005;
    for (name, uplink) in kinds_of_links() {
        let slopes = slope_in_agents(Law::Iid, &uplink, 0.02, seeds);
        println!("{name:<24} slope {:.4} +- {:.4}", slopes.value(), slopes.error());
        assert!((slopes.value() + 1.0).abs() <= TURN + 3.0 * slopes.error(), "{name}: {:.4} +- {:.4}", slopes.value(), slopes.error());
    }
}

#[test]
fn through_every_link_floors_fall_as_one_over_n() {
    floors_fall_as_one_over_n(SEEDS);
}

#[test]
#[ignore = "many more seeds"]
fn through_every_link_floors_fall_as_one_over_n_more_closely() {
    floors_fall_as_one_over_n(MANY_SEEDS);
}

#[test]
fn receiver_noise_falls_as_one_over_n_squared() {
    // Mean operators: the floor is the receiver's. Fading multiplies a distance that shrinks with N.
    let air = link(EXACT, false, &[r#"{"kind": "over-the-air", "receiver_noise": 1}"#]).unwrap();
    let slopes = slope_in_agents(Law::Mean, &air, 0.02, SEEDS);
    println!("receiver noise           slope {:.4} +- {:.4}", slopes.value(), slopes.error());
    assert!((slopes.value() + 2.0).abs() <= 0.005 + 3.0 * slopes.error(), "{:.4} +- {:.4}", slopes.value(), slopes.error());
}

/// The slope of `ln ||mean over seeds of theta_t - theta*||` over 60 rounds.
fn speed(field: &Arc<dyn Field>, uplink: &Uplink, alpha: f64, seeds: std::ops::Range<u64>) -> f64 {
    let root = field.root().unwrap();
    let start: Vec<f64> = root.iter().map(|x| x + 1.0).collect();
    let method = method("fedtd", &format!(r#"{{"step_size": {alpha}}}"#));
    let mut runs: Vec<_> = seeds.map(|seed| engine(field, &*method, uplink, OutputRule::Last, seed, start.clone()).unwrap()).collect();
    let point = |t: u32| {
        let mut mean = vec![0.0; root.len()];
        for run in &mut runs {
            run.step();
            mean.iter_mut().zip(run.theta()).for_each(|(m, x)| *m += x);
        }
        mean.iter_mut().for_each(|m| *m /= runs.len() as f64);
        (f64::from(t), distance_sq(&mean, root).sqrt().ln())
    };
    slope(&(0..60).map(point).collect::<Vec<_>>())
}

/// Theorems 4.2 and 4.3 of \[T\]: losses of success p slow the mean as a step of `alpha p` over the
/// exact link would, fading of mean m_h as one of `alpha m_h`. Unbiased codecs do not slow it.
///
/// Twenty groups of twenty seeds each; within a group the mean of the error fluctuates by less
/// than 5%, so that its logarithm is off by 0.1% at the end, and the slope by 2e-5.
#[test]
fn losses_and_fading_slow_the_mean_by_their_mean_gain_and_no_more() {
    const ALPHA: f64 = 0.1;
    let field = alike(3, Law::Mean);
    let fading = (0.6 * (2.0 / std::f64::consts::PI).sqrt()).to_string();
    let fading = format!(r#"{{"kind": "over-the-air", "gain": {{"law": "rayleigh", "scale": {fading}}}, "receiver_noise": 0.02}}"#);
    let cases = [
        ("success 0.6", EXACT, r#"{"kind": "erasure", "success": 0.6}"#, 0.6),
        ("success 0.3", EXACT, r#"{"kind": "erasure", "success": 0.3}"#, 0.3),
        ("Rayleigh, mean gain 0.6", EXACT, fading.as_str(), 0.6),
        ("Rayleigh, mean gain 1", EXACT, r#"{"kind": "over-the-air"}"#, 1.0),
        ("2 bits, success 0.6", r#"{"kind": "quantised", "bits": 2}"#, r#"{"kind": "erasure", "success": 0.6}"#, 0.6),
        ("rand-k, all arrives", r#"{"kind": "rand-k", "k": 2}"#, r#"{"kind": "erasure", "success": 1}"#, 1.0),
    ];
    for (name, codec, medium, gain) in cases {
        let exact = speed(&field, &Uplink::default(), gain * ALPHA, 0..1);
        let uplink = link(codec, false, &[medium]).unwrap();
        let mut measured = Mean::default();
        (0..20).for_each(|group| measured.see(speed(&field, &uplink, ALPHA, 20 * group..20 * (group + 1))));
        println!("{name:<24} {:.5} +- {:.5} a round, exact link at alpha times {gain}: {exact:.5}", measured.value(), measured.error());
        assert!((measured.value() - exact).abs() <= 2e-5 + 3.0 * measured.error(), "{name}: {}, {exact}", measured.value());
    }
}

/// How many times a sample is used under pull with delays drawn anew each round: a sum of
/// independent coins, one per delay, so `E m = 1` and `E m^2 = 2 - sum_tau P(tau)^2`; the noise
/// that moves theta slowly is `m w`.
fn second_moment_of_uses(law: &[f64]) -> f64 {
    2.0 - law.iter().map(|p| p * p).sum::<f64>()
}

/// `E ||theta||^2 / d` of `theta_{t+1} = theta_t - alpha theta_{t - tau} + alpha w_{t - tau}`, exactly:
/// `alpha^2 sum_k psi_k^2`, psi the response to one impulse.
fn exact_floor(alpha: f64, tau: usize) -> f64 {
    let mut psi = vec![1.0];
    while psi.len() < (40.0 / alpha) as usize {
        let k = psi.len();
        psi.push(psi[k - 1] - if k > tau { alpha * psi[k - 1 - tau] } else { 0.0 });
    }
    alpha * alpha * psi.iter().map(|x| x * x).sum::<f64>()
}

/// Floors over a link, one a seed, over long runs.
fn long_floors(field: &Arc<dyn Field>, uplink: &Uplink, alpha: f64, seeds: u64) -> Vec<f64> {
    let (settling, rounds) = ((5.0 / alpha) as u64, (80.0 / alpha) as u64);
    (0..seeds).map(|seed| floor(field, uplink, alpha, seed, settling, rounds)).collect()
}

/// ln of the floor over a medium, over that of the exact link with the same seed.
fn raised(field: &Arc<dyn Field>, medium: &str, alpha: f64, exact: &[f64]) -> Mean {
    let mut mean = Mean::default();
    let floors = long_floors(field, &link(EXACT, false, &[medium]).unwrap(), alpha, exact.len() as u64);
    floors.iter().zip(exact).for_each(|(floor, exact)| mean.see((floor / exact).ln()));
    mean
}

/// A = I, root 0, unit white noise.
fn isotropic(agents: usize) -> Arc<dyn Field> {
    field(&LinearSystems::default().with_agents(agents).with_dim(4).with_spread(0.0).with_noise(WHITE), Law::Iid)
}

fn constant_delays_raise_floors(seeds: u64) {
    let field = isotropic(2);
    for alpha in [0.02, 0.002] {
        let exact = long_floors(&field, &Uplink::default(), alpha, seeds);
        for tau in [5usize, 20] {
            let factor = exact_floor(alpha, tau) / exact_floor(alpha, 0);
            for kind in ["delay", "late"] {
                let medium = format!(r#"{{"kind": "{kind}", "law": "constant", "rounds": {tau}}}"#);
                let raised = raised(&field, &medium, alpha, &exact);
                println!("{kind} of {tau} at alpha {alpha}: {:.4} +- {:.4}, exactly {factor:.4}", raised.value().exp(), raised.error());
                assert!(raised.off(factor.ln()).abs() <= 3.0, "{kind} of {tau} at {alpha}: {}, {factor}", raised.value().exp());
            }
            // To first order it is 1 + alpha lambda tau.
            let small = alpha * tau as f64;
            assert!((factor - 1.0 - small).abs() < small * small, "{factor}");
        }
    }
    assert!((exact_floor(0.002, 0) / (0.002 / (2.0 - 0.002)) - 1.0).abs() < 1e-12);
}

#[test]
fn a_constant_delay_raises_the_floor_by_its_exact_factor_which_is_one_at_small_steps() {
    constant_delays_raise_floors(SEEDS);
}

#[test]
#[ignore = "many more seeds"]
fn a_constant_delay_raises_the_floor_by_its_exact_factor_more_closely() {
    constant_delays_raise_floors(MANY_SEEDS);
}

/// Only pull with delays that differ from round to round uses samples several times or never.
/// Beside that the delay itself raises the floor by `1 + alpha lambda tau` at most (tau the longest
/// delay of any weight), as above: 2% here.
fn redrawn_delays_raise_floors(seeds: u64) {
    const ALPHA: f64 = 0.001;
    let field = isotropic(1);
    let uniform = second_moment_of_uses(&[0.1; 10]);
    let exact = long_floors(&field, &Uplink::default(), ALPHA, seeds);
    let geometric: Vec<f64> = (0..=40).map(|k| 0.2 * 0.8f64.powi(k)).collect();
    for (name, medium, factor) in [
        ("pull, uniform 1..10", r#"{"kind": "delay", "law": "uniform", "max": 10}"#, uniform),
        ("pull, geometric of mean 4", r#"{"kind": "delay", "law": "geometric", "mean": 4}"#, second_moment_of_uses(&geometric)),
        ("push, uniform 1..10", r#"{"kind": "late", "law": "uniform", "max": 10}"#, 1.0),
        ("push, geometric of mean 4", r#"{"kind": "late", "law": "geometric", "mean": 4}"#, 1.0),
    ] {
        let raised = raised(&field, medium, ALPHA, &exact);
        println!("{name:<26} raises the floor by {:.4} +- {:.4}, uses say {factor:.4}", raised.value().exp(), raised.error());
        assert!((raised.value() - factor.ln()).abs() <= 0.02 + 3.0 * raised.error(), "{name}: {}, {factor}", raised.value().exp());
    }
}

#[test]
fn redrawn_delays_raise_the_floor_by_the_second_moment_of_a_samples_uses() {
    redrawn_delays_raise_floors(SEEDS);
}

#[test]
#[ignore = "many more seeds"]
fn redrawn_delays_raise_the_floor_by_the_second_moment_of_a_samples_uses_more_closely() {
    redrawn_delays_raise_floors(MANY_SEEDS);
}
