//! Links that alter, lose, weaken and delay messages: engine and halves agree, what is
//! documented to stay stays, what cannot work is refused.

use std::sync::Arc;

use crate::common::{Halves, bits, engine, field, link, method, methods, on_the_wire, problems, run};
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream};
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::uplink::stage::Delay;
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;

const EXACT: &str = r#"{"kind": "exact"}"#;
const COARSE: &str = r#"{"kind": "quantised", "bits": 3}"#;
const ERASURE: &str = r#"{"kind": "erasure", "success": 0.6}"#;
const BURSTS: &str = r#"{"kind": "gilbert-elliott", "to_bad": 0.2, "to_good": 0.3}"#;
const AIR: &str = r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#;
const LATE: &str = r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#;
const FADING_EXACT: &str = r#"{"kind": "bit-budget", "bits": 40, "fading_snr": 3.0}"#;
const FADING: &str = r#"{"kind": "bit-budget", "bits": 3, "fading_snr": 1.0}"#;
const CLIP: &str = r#"{"kind": "clip", "norm": 1.0}"#;
const NOISE: &str = r#"{"kind": "noise", "std": 0.1}"#;
const STALE: &str = r#"{"kind": "delay", "law": "uniform", "max": 5}"#;

/// Links that a real federation knows.
fn links() -> Vec<(&'static str, Uplink)> {
    let dither = r#"{"kind": "quantised", "bits": 2, "rounding": "dither"}"#;
    let mut all = vec![
        ("quantised", link(COARSE, false, &[]).unwrap()),
        ("dithered with feedback", link(dither, true, &[]).unwrap()),
        ("top-k with feedback", link(r#"{"kind": "top-k", "k": 2}"#, true, &[]).unwrap()),
        ("rand-k", link(r#"{"kind": "rand-k", "k": 2}"#, false, &[]).unwrap()),
        ("erasure", link(EXACT, false, &[ERASURE]).unwrap()),
        ("quantised, bursts", link(COARSE, false, &[BURSTS]).unwrap()),
        ("over the air", link(EXACT, false, &[AIR]).unwrap()),
        ("erasure, over the air", link(EXACT, false, &[ERASURE, AIR]).unwrap()),
        ("late", link(EXACT, false, &[LATE]).unwrap()),
        ("budget, quantised with feedback", link(COARSE, true, &[FADING]).unwrap()),
        ("quantised, erasure, late", link(COARSE, false, &[ERASURE, LATE]).unwrap()),
        ("clip, noise, quantised with feedback, erasure", link(COARSE, true, &[CLIP, NOISE, ERASURE]).unwrap()),
        // Where nothing is encoded, agents send as much as the budget carries.
        ("a budget for exact vectors, erasure", link(EXACT, false, &[FADING_EXACT, ERASURE]).unwrap()),
    ];
    let down = link(COARSE, false, &[]).unwrap().codec;
    all.push(("lossy downlink", link(COARSE, false, &[ERASURE]).unwrap().with_downlink(down)));
    all
}

const ROUNDS: u64 = 8;

fn suits(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> bool {
    engine(field, method, uplink, OutputRule::Last, 5, vec![0.0; field.dim()]).is_ok()
}

#[test]
fn engine_and_halves_agree_over_every_link() {
    for (name, uplink) in links() {
        for participants in [None, Some(10)] {
            for (problem, settings) in problems(19).into_iter().take(2).chain(crate::common::objectives(19).into_iter().take(1)) {
                let field = field(&*settings, Law::Markov);
                let second = if participants.is_none() { crate::common::computing_alone() } else { Vec::new() };
                for (kind, method) in methods(participants).into_iter().chain(second).filter(|(_, m)| suits(&field, &**m, &uplink)) {
                    let mut engine = run(&field, &*method, &uplink, 5);
                    let expected: Vec<Vec<u64>> = (0..ROUNDS)
                        .map(|_| {
                            engine.step();
                            bits(engine.theta())
                        })
                        .collect();
                    let mut halves = Halves::new(&field, &*method, &uplink, 5).unwrap();
                    let got: Vec<Vec<u64>> = (0..ROUNDS)
                        .map(|_| {
                            halves.round();
                            bits(halves.server.theta())
                        })
                        .collect();
                    assert_eq!(got, expected, "{kind} on {problem} over {name}, participants {participants:?}");
                    halves.finish();
                    let wire = on_the_wire(engine.ledger());
                    assert_eq!(halves.ledger, wire, "{kind} on {problem} over {name}, participants {participants:?}");
                }
            }
        }
    }
}

#[test]
fn threads_checkpoints_and_links_go_together() {
    let mut all = links();
    all.push(("stale models", link(EXACT, false, &[STALE]).unwrap()));
    all.push(("quantised, stale models, erasure", link(COARSE, false, &[STALE, ERASURE]).unwrap()));
    for (name, uplink) in all {
        for (_, settings) in problems(203).into_iter().skip(1).take(1).chain(crate::common::objectives(203).into_iter().take(1)) {
            let field = field(&*settings, Law::Markov);
            for (kind, method) in
                methods(None).into_iter().chain(crate::common::computing_alone()).filter(|(_, m)| suits(&field, &**m, &uplink))
            {
                let on = |threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    pool.install(|| {
                        let mut whole = run(&field, &*method, &uplink, 5);
                        (0..7).for_each(|_| whole.step());
                        whole.save()
                    })
                };
                let expected = on(1);
                assert_eq!(on(3), expected, "{kind} over {name}");
                let mut first = run(&field, &*method, &uplink, 5);
                (0..3).for_each(|_| first.step());
                let mut second = run(&field, &*method, &uplink, 5);
                second.restore(&first.save().unwrap()).unwrap();
                (3..7).for_each(|_| second.step());
                assert_eq!(second.save(), expected, "{kind} over {name}, resumed");
            }
        }
    }
}

/// `|sum_c p_c xi_c|` after some rounds.
fn control_sum(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, rounds: u64) -> f64 {
    let mut engine = run(field, method, uplink, 5);
    (0..rounds).for_each(|_| engine.step());
    let controls = engine.controls().expect("control variates");
    let mut sum = vec![0.0; field.dim()];
    for (xi, p) in controls.iter().zip(field.weights()) {
        sum.iter_mut().zip(xi).for_each(|(s, x)| *s += p * x);
    }
    fedsa::linalg::norm_sq(&sum).sqrt()
}

#[test]
fn acknowledged_controls_sum_to_zero_whatever_is_altered_or_lost() {
    let settings = LinearSystems::default().with_agents(19).with_dim(3).with_noise(Noise::new(0.3, 0.0, 1));
    let field = field(&settings, Law::Iid);
    for uplink in [link(COARSE, false, &[]), link(EXACT, false, &[ERASURE]), link(COARSE, true, &[FADING, BURSTS])].map(Result::unwrap) {
        for m in ["", r#", "participants": 7"#] {
            let with = |rule: &str| method("scafflsa", &format!(r#"{{"step_size": 0.05, "local_steps": 7, "rule": "{rule}"{m}}}"#));
            let kept = control_sum(&field, &*with("acknowledged"), &uplink, 200);
            assert!(kept < 1e-12, "{kept:e}");
            // To the letter the sum is lost; and auto is the rule that keeps it.
            assert!(control_sum(&field, &*with("literal"), &uplink, 200) > 1e-3);
            assert_eq!(control_sum(&field, &*with("auto"), &uplink, 200), kept);
        }
    }
}

#[test]
fn afresh_forgets_what_links_add_where_the_letter_adds_it_up() {
    // Receiver noise only, mean sampling: the sum of the controls is a random walk to the letter.
    let settings = LinearSystems::default().with_agents(10).with_dim(3);
    let field = field(&settings, Law::Mean);
    let air =
        link(EXACT, false, &[r#"{"kind": "over-the-air", "gain": {"law": "constant", "value": 1.0}, "receiver_noise": 1.0}"#]).unwrap();
    let with = |rule: &str| method("scafflsa", &format!(r#"{{"step_size": 0.05, "local_steps": 7, "rule": "{rule}"}}"#));
    // Noise of standard deviation 1/N a component and round.
    let one_round = 0.1 * 3f64.sqrt();
    assert!(control_sum(&field, &*with("afresh"), &air, 2000) < 3.0 * one_round);
    assert!(control_sum(&field, &*with("literal"), &air, 2000) > 10.0 * one_round);
    // Over an exact link the two are one method, to rounding.
    let exact = Uplink::default();
    let theta = |rule: &str| {
        let method = with(rule);
        let mut engine = run(&field, &*method, &exact, 5);
        (0..50).for_each(|_| engine.step());
        engine.theta().to_vec()
    };
    let apart = fedsa::linalg::distance_sq(&theta("afresh"), &theta("literal")).sqrt();
    assert!(apart < 1e-13, "{apart:e}");
}

/// `||theta - theta*||^2` after some rounds.
fn error_after(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, rounds: u64) -> f64 {
    let mut engine = run(field, method, uplink, 5);
    (0..rounds).for_each(|_| engine.step());
    fedsa::linalg::distance_sq(engine.theta(), field.root().unwrap())
}

#[test]
fn controls_that_move_by_a_share_bear_codecs_of_large_variance() {
    // One of four components, fourfold: zeta = 3. To the letter a control's mean square grows threefold a round.
    let settings = LinearSystems::default().with_agents(10).with_dim(4);
    let field = field(&settings, Law::Mean);
    let uplink = link(r#"{"kind": "rand-k", "k": 1}"#, false, &[]).unwrap();
    let with = |step: f64| method("scafflsa", &format!(r#"{{"step_size": 0.05, "local_steps": 3, "control_step": {step}}}"#));
    let error = error_after(&field, &*with(0.25), &uplink, 3000);
    assert!(error < 1e-20, "{error:e}");
    assert!(control_sum(&field, &*with(0.25), &uplink, 200) < 1e-12);
    let literal = error_after(&field, &*with(1.0), &uplink, 300);
    assert!(literal.is_nan() || literal > 1e3, "{literal:e}");
}

#[test]
fn auto_bears_every_link_with_some_of_the_agents_too() {
    let settings = LinearSystems::default().with_agents(21).with_dim(5);
    let field = field(&settings, Law::Mean);
    let fine = r#"{"kind": "quantised", "bits": 12, "rounding": "dither"}"#;
    let rounded_down = |media: &[&str]| link(EXACT, false, media).unwrap().with_downlink(link(fine, false, &[]).unwrap().codec);
    let air = r#"{"kind": "over-the-air", "gain": {"law": "constant", "value": 1.0}, "receiver_noise": 1.0}"#;
    for (name, uplink) in [
        ("losses and a rounded downlink", rounded_down(&[ERASURE])),
        ("over the air", link(EXACT, false, &[air]).unwrap()),
        ("lost or late", link(EXACT, false, &[ERASURE, LATE]).unwrap()),
    ] {
        let with =
            |rule: &str| method("scafflsa", &format!(r#"{{"step_size": 0.05, "local_steps": 3, "participants": 9, "rule": "{rule}"}}"#));
        let (auto, literal) =
            (error_after(&field, &*with("auto"), &uplink, 10_000), error_after(&field, &*with("literal"), &uplink, 10_000));
        assert!(auto < 0.05 && literal > 3.0 * auto, "{name}: {auto:e}, to the letter {literal:e}");
    }
    // Late alone the letter is right: theta* to rounding.
    let with = |rule: &str| method("scafflsa", &format!(r#"{{"step_size": 0.05, "local_steps": 3, "participants": 9, "rule": "{rule}"}}"#));
    let error = error_after(&field, &*with("auto"), &link(EXACT, false, &[LATE]).unwrap(), 10_000);
    assert!(error < 1e-20, "{error:e}");
}

#[test]
fn a_geometric_delay_has_its_law_and_ends_where_it_is_cut_off() {
    let delays = |mean: f64, max: u64| {
        let delay = Delay::Geometric { mean, max: Some(max) };
        let mut stream = fedsa::random::stream(3, fedsa::random::Purpose::Delay, 0, 0);
        (0..20_000).map(move |t| delay.of(t, 0, &mut stream)).collect::<Vec<u64>>()
    };
    // P(tau >= k) = (3/4)^k at a mean of 3; standard deviations of a share are at most 0.0036.
    let drawn = delays(3.0, 1000);
    for k in 1..8u64 {
        let share = drawn.iter().filter(|tau| **tau >= k).count() as f64 / drawn.len() as f64;
        assert!((share - 0.75f64.powi(k as i32)).abs() < 0.018, "{k}: {share}");
    }
    // However long or short the mean.
    assert!(delays(1e300, 100).iter().all(|tau| *tau == 100));
    assert!(delays(1e-320, 100).iter().chain(&delays(0.0, 100)).all(|tau| *tau == 0));
}

#[test]
fn fedhsa_that_remembers_reaches_the_root_over_losses() {
    let settings = LinearSystems::default().with_agents(10).with_dim(3);
    let field = field(&settings, Law::Mean);
    let uplink = link(EXACT, false, &[ERASURE]).unwrap();
    let error = |missing: &str| {
        let method = method("fedhsa", &format!(r#"{{"step_size": 0.05, "local_steps": 7, "missing": "{missing}"}}"#));
        let mut engine = run(&field, &*method, &uplink, 5);
        (0..500).for_each(|_| engine.step());
        assert_eq!(engine.diverged(), None);
        fedsa::linalg::distance_sq(engine.theta(), field.root().unwrap())
    };
    assert!(error("last") < 1e-20, "{:e}", error("last"));
    assert!(error("zero") > 1e-6, "{:e}", error("zero"));
}

/// `theta_t` for t = 0, 1, .. of local steps on linear agents, written out: `told(t, s)` gives what agents are told beside
/// `theta_s` in round s, and which round is answered in round t.
struct ByHand<'a> {
    field: &'a Arc<dyn Field>,
    eta: f64,
    h: usize,
    alpha: f64,
}

impl ByHand<'_> {
    fn operator(&self, c: usize, theta: &[f64]) -> Vec<f64> {
        let mut g = vec![0.0; theta.len()];
        self.field.mean(c, theta, &mut g);
        g
    }

    fn mean(&self, theta: &[f64]) -> Vec<f64> {
        let each = (0..self.field.agents()).map(|c| (self.field.weights()[c], self.operator(c, theta)));
        each.fold(vec![0.0; theta.len()], |sum, (p, g)| sum.iter().zip(&g).map(|(s, g)| s + p * g).collect())
    }

    /// `E v` of a round that starts at `theta`, with drift `G - g_c(theta)` where there is a G.
    fn moved(&self, theta: &[f64], g: Option<&[f64]>) -> Vec<f64> {
        let mut total = vec![0.0; theta.len()];
        for c in 0..self.field.agents() {
            let at_start = self.operator(c, theta);
            let mut local = theta.to_vec();
            for _ in 0..self.h {
                let own = self.operator(c, &local);
                for i in 0..local.len() {
                    local[i] += self.eta * (own[i] + g.map_or(0.0, |g| g[i] - at_start[i]));
                }
            }
            total.iter_mut().enumerate().for_each(|(i, t)| *t += self.field.weights()[c] * (local[i] - theta[i]));
        }
        total.iter().map(|x| self.alpha * x).collect()
    }

    /// The iterates over a constant delay, `is_late` (push) or at stale models (pull, the first model before), with a
    /// second exchange or without.
    fn iterates(&self, tau: usize, is_late: bool, has_memory: bool, rounds: usize) -> Vec<Vec<f64>> {
        let d = self.field.dim();
        let (mut thetas, mut gs) = (vec![vec![0.0; d]], Vec::<Vec<f64>>::new());
        for t in 0..rounds {
            let old = if is_late { t.checked_sub(tau) } else { Some(t.saturating_sub(tau)) };
            gs.push(old.map_or(vec![0.0; d], |s| self.mean(&thetas[s])));
            let step = old.map_or(vec![0.0; d], |s| self.moved(&thetas[s], has_memory.then_some(&gs[s][..])));
            thetas.push(thetas[t].iter().zip(&step).map(|(x, s)| x + s).collect());
        }
        thetas
    }
}

/// Both exchanges of FedHSA answer the old round, whose G the history keeps; late, the last operators known count, and
/// directions as they come. H local steps and a global step go with delays too.
#[test]
fn delays_of_methods_with_local_steps_are_those_written_out() {
    let agents: Vec<_> = (0..9).map(|c| ([[1.0 + 0.1 * c as f64, 0.3], [-0.2, 0.8]], [c as f64 - 3.0, 1.0])).collect();
    let field = field(&crate::common::linear(&agents), Law::Mean);
    let by_hand = ByHand { field: &field, eta: 0.02, h: 4, alpha: 0.7 };
    let settings = r#""step_size": 0.02, "local_steps": 4, "global_step_size": 0.7"#;
    for (kind, rest, has_memory) in [("fedhsa", r#", "missing": "last""#, true), ("delayed-sa", "", false), ("fedlsa", "", false)] {
        let method = method(kind, &format!("{{{settings}{rest}}}"));
        for medium in ["delay", "late"] {
            for tau in [0, 1, 3] {
                let uplink = link(EXACT, false, &[&format!(r#"{{"kind": "{medium}", "law": "constant", "rounds": {tau}}}"#)]).unwrap();
                // Operators that are known one by one are not known of a past round.
                if kind == "fedhsa" && medium == "delay" {
                    let zero = crate::common::method(kind, &format!("{{{settings}}}"));
                    let mut engine = run(&field, &*zero, &uplink, 5);
                    for theta in &by_hand.iterates(tau, false, true, 40)[1..] {
                        engine.step();
                        assert!(crate::common::distance(engine.theta(), theta) < 1e-12, "{kind} over {medium} {tau}");
                    }
                }
                let mut engine = run(&field, &*method, &uplink, 5);
                for theta in &by_hand.iterates(tau, medium == "late", has_memory, 40)[1..] {
                    engine.step();
                    let apart = crate::common::distance(engine.theta(), theta);
                    assert!(apart < 1e-12, "{kind} over {medium} {tau}: {apart:e}");
                }
            }
        }
    }
}

/// A direction counts where the model that it answers is near the present one, at stale models and late.
#[test]
fn directions_that_count_by_the_distance_of_their_models_are_those_written_out() {
    let agents: Vec<_> = (0..5).map(|c| ([[1.0 + 0.1 * c as f64, 0.3], [-0.2, 0.8]], [c as f64 - 3.0, 1.0])).collect();
    let field = field(&crate::common::linear(&agents), Law::Mean);
    let (step, threshold, tau, d) = (0.1, 0.15, 2, field.dim());
    let by_hand = ByHand { field: &field, eta: step, h: 1, alpha: 1.0 };
    for kind in ["delay-adaptive-sa", "dasa"] {
        let method = method(kind, &format!(r#"{{"step_size": {step}, "threshold": {threshold}}}"#));
        for medium in ["delay", "late"] {
            let uplink = link(EXACT, false, &[&format!(r#"{{"kind": "{medium}", "law": "constant", "rounds": {tau}}}"#)]).unwrap();
            let mut engine = run(&field, &*method, &uplink, 5);
            let (mut thetas, mut skipped) = (vec![vec![0.0; d]], 0);
            for t in 0..60_usize {
                let old = if medium == "late" { t.checked_sub(tau) } else { Some(t.saturating_sub(tau)) };
                let near = old.filter(|s| crate::common::distance(&thetas[t], &thetas[*s]) <= threshold);
                skipped += usize::from(old.is_some() && near.is_none());
                // With equal distances DASA takes the mean of three of the five agents, from another one on in each round.
                let of = |s: usize| match kind {
                    "dasa" => mean_of_half(&field, &thetas[s], t).iter().map(|x| step * x).collect(),
                    _ => by_hand.moved(&thetas[s], None),
                };
                let moved = near.map_or(vec![0.0; d], of);
                thetas.push(thetas[t].iter().zip(&moved).map(|(x, s)| x + s).collect());
                engine.step();
                assert!(crate::common::distance(engine.theta(), &thetas[t + 1]) < 1e-12, "{kind} over {medium}, round {t}");
            }
            assert!((1..50).contains(&skipped), "{kind} over {medium}: {skipped} of 60 rounds are skipped");
        }
    }
}

/// The mean operator of three of five agents: of those from number `3 t mod 5` on.
fn mean_of_half(field: &Arc<dyn Field>, theta: &[f64], t: usize) -> Vec<f64> {
    let mut sum = vec![0.0; theta.len()];
    let mut g = sum.clone();
    for i in 0..3 {
        assert!(field.mean((3 * t + i) % 5, theta, &mut g));
        sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / 3.0);
    }
    sum
}

/// Without noise FedHSA reaches the root whatever the delays, which FedLSA with local steps does not.
#[test]
fn fedhsa_reaches_the_root_over_delays() {
    let settings = LinearSystems::default().with_agents(10).with_dim(3);
    let field = field(&settings, Law::Mean);
    let hsa = |rest: &str| method("fedhsa", &format!(r#"{{"step_size": 0.01, "local_steps": 7{rest}}}"#));
    let pull = link(EXACT, false, &[STALE]).unwrap();
    let push = link(EXACT, false, &[LATE]).unwrap();
    let lossy = link(EXACT, false, &[LATE, ERASURE]).unwrap();
    assert!(error_after(&field, &*hsa(""), &pull, 2000) < 1e-20);
    assert!(error_after(&field, &*hsa(r#", "missing": "last""#), &push, 2000) < 1e-20);
    assert!(error_after(&field, &*hsa(r#", "missing": "last""#), &lossy, 3000) < 1e-20);
}

/// Whether the error of delayed SA over a constant delay decays, noiselessly: its largest value
/// in one window against that in a later one, windows of several periods of its oscillation.
fn decays(field: &Arc<dyn Field>, tau: u64, alpha: f64) -> bool {
    let uplink = link(EXACT, false, &[&format!(r#"{{"kind": "delay", "law": "constant", "rounds": {tau}}}"#)]).unwrap();
    let method = method("delayed-sa", &format!(r#"{{"step_size": {alpha}}}"#));
    let root = field.root().unwrap();
    let start: Vec<f64> = root.iter().map(|x| x + 1.0).collect();
    let mut engine = crate::common::engine(field, &*method, &uplink, OutputRule::Last, 1, start).unwrap();
    let mut window = |from: u64, to: u64| -> f64 {
        while engine.round() < from {
            engine.step();
        }
        let mut largest = 0.0f64;
        while engine.round() < to && engine.diverged().is_none() {
            engine.step();
            largest = largest.max(crate::common::distance(engine.theta(), root));
        }
        largest
    };
    let period = 8 * (tau + 1);
    let early = window(20 * period, 21 * period);
    window(60 * period, 61 * period) < early
}

#[test]
fn a_constant_delay_is_unstable_just_beyond_its_exact_edge() {
    // theta_{t+1} = theta_t - alpha lambda theta_{t - tau}: stable up to 2 sin(pi / (2 (2 tau + 1))) / lambda.
    let field = field(&LinearSystems::default().with_agents(1).with_dim(1).with_scale(2.0), Law::Mean);
    for tau in [0u64, 1, 10, 50] {
        let edge = 2.0 * (std::f64::consts::PI / (2.0 * (2.0 * tau as f64 + 1.0))).sin() / 2.0;
        assert!(decays(&field, tau, 0.99 * edge), "decays at 0.99 of the edge, tau = {tau}");
        assert!(!decays(&field, tau, 1.01 * edge), "grows at 1.01 of the edge, tau = {tau}");
    }
}

#[test]
fn the_edge_of_a_matrix_is_that_of_its_eigenvalues() {
    // An eigenvalue lambda allows 2 sin((pi/2 - |arg lambda|) / (2 tau + 1)) / |lambda|; the least counts.
    for (modulus, angle) in [(2.0f64, 0.3f64), (0.5, 1.0), (1.0, 1.4)] {
        let (re, im) = (modulus * angle.cos(), modulus * angle.sin());
        // Beside the pair re +- i im a real eigenvalue that allows more.
        let field = field(&crate::common::linear(&[([[re, im, 0.0], [-im, re, 0.3], [0.0, 0.0, 0.2]], [1.0, -1.0, 0.5])]), Law::Mean);
        for tau in [0u64, 1, 10, 50] {
            let edge = 2.0 * ((std::f64::consts::FRAC_PI_2 - angle) / (2.0 * tau as f64 + 1.0)).sin() / modulus;
            assert!(decays(&field, tau, 0.99 * edge), "decays at 0.99 of the edge, {modulus} at {angle}, tau = {tau}");
            assert!(!decays(&field, tau, 1.01 * edge), "grows at 1.01 of the edge, {modulus} at {angle}, tau = {tau}");
        }
    }
}

#[test]
fn before_the_first_answer_nothing_moves_where_nothing_arrives() {
    let settings = LinearSystems::default().with_agents(3).with_dim(2);
    let field = field(&settings, Law::Mean);
    let moved = |before: &str| {
        let medium = format!(r#"{{"kind": "delay", "law": "constant", "rounds": 4, "before": "{before}"}}"#);
        let uplink = link(EXACT, false, &[&medium]).unwrap();
        let method = method("delayed-sa", r#"{"step_size": 0.1}"#);
        let mut engine = run(&field, &*method, &uplink, 1);
        (0..6)
            .map(|_| {
                let before = engine.theta().to_vec();
                engine.step();
                before != engine.theta()
            })
            .collect::<Vec<bool>>()
    };
    assert_eq!(moved("nothing"), [false, false, false, false, true, true]);
    assert_eq!(moved("first"), [true; 6]);
}

#[test]
fn a_trace_has_its_delays_agent_by_agent() {
    // Three agents in one dimension, A = 1, b = 3, -1, 4; the last row stays.
    let rows = [[0u64, 2, 1], [1, 1, 0], [2, 0, 3], [0, 3, 1], [1, 2, 0]];
    let row = |t: usize| rows[t.min(rows.len() - 1)];
    let b = [3.0, -1.0, 4.0];
    let field = field(&crate::common::linear(&b.map(|b| ([[1.0]], [b]))), Law::Mean);
    let sa = method("fedtd", r#"{"step_size": 0.3}"#);
    let theta = |kind: &str, before: &str, rounds: usize| {
        let uplink = link(EXACT, false, &[&format!(r#"{{"kind": "{kind}", "law": "trace", "delays": {rows:?}{before}}}"#)]).unwrap();
        let mut engine = run(&field, &*sa, &uplink, 1);
        (0..rounds).for_each(|_| engine.step());
        engine.theta()[0]
    };
    let (mut pull, mut push, mut first) = (vec![0.0], vec![0.0], vec![0.0]);
    for t in 0..12 {
        let mut arrives = [0.0; 3];
        for (c, b) in b.iter().enumerate() {
            let tau = row(t)[c] as usize;
            arrives[0] += if tau <= t { b - pull[t - tau] } else { 0.0 };
            arrives[1] += (0..=t).filter(|s| s + row(*s)[c] as usize == t).map(|s| b - push[s]).sum::<f64>();
            arrives[2] += b - first[t.saturating_sub(tau)];
        }
        pull.push(pull[t] + 0.1 * arrives[0]);
        push.push(push[t] + 0.1 * arrives[1]);
        first.push(first[t] + 0.1 * arrives[2]);
        let got = [theta("delay", r#", "before": "nothing""#, t + 1), theta("late", "", t + 1), theta("delay", "", t + 1)];
        for (got, want) in got.iter().zip([pull[t + 1], push[t + 1], first[t + 1]]) {
            assert!((got - want).abs() < 1e-14, "{got:?} after {} rounds, not {want}", t + 1);
        }
    }
}

/// With a delay that stays, what the server recomputes at an old model (pull) is what the agent
/// sent then (push): the model, the sample and the state of the agent's process are those of that
/// round.
#[test]
fn pull_and_push_are_one_where_every_delay_stays() {
    const AGENTS: usize = 19;
    let each: Vec<usize> = (0..AGENTS).map(|c| (5 * c) % 7).collect();
    for law in [r#""law": "constant", "rounds": 4"#.to_string(), format!(r#""law": "trace", "delays": [{each:?}]"#)] {
        let pull = link(EXACT, false, &[&format!(r#"{{"kind": "delay", "before": "nothing", {law}}}"#)]).unwrap();
        let push = link(EXACT, false, &[&format!(r#"{{"kind": "late", {law}}}"#)]).unwrap();
        for (problem, settings) in problems(AGENTS) {
            for sampling in [Law::Iid, Law::Markov] {
                let field = field(&*settings, sampling);
                for (kind, method) in [("fedtd", r#"{"step_size": 0.1}"#), ("fedlsa", r#"{"step_size": 0.1, "local_steps": 3}"#)] {
                    let method = crate::common::method(kind, method);
                    let theta = |uplink: &Uplink| {
                        let mut engine = run(&field, &*method, uplink, 5);
                        (0..30).for_each(|_| engine.step());
                        engine.theta().to_vec()
                    };
                    // Blocks of a sum are of updates, and before all agents have answered there are fewer.
                    let apart = [theta(&push), theta(&Uplink::default())].map(|other| crate::common::distance(&theta(&pull), &other));
                    assert!(apart[0] < 1e-13 && apart[1] > 1e-4, "{kind} on {problem}, {sampling:?}, {law}: {apart:?}");
                }
            }
        }
    }
}

/// What agent c sends in a round, by the formulas: x is (3, 0, -4, 0), of length 5.
fn altered(uplink: &Uplink, round: u64, exchange: u8, c: usize, feedback: &mut [f64]) -> Vec<f64> {
    let (mut bytes, mut decoded) = (Vec::new(), vec![0.0; 4]);
    let at = MessageKey { seed: 5, round, exchange, agent: c };
    assert!(uplink.encode(at, &[3.0, 0.0, -4.0, 0.0], &mut at.stream(Purpose::Altered), feedback, &mut bytes, &mut decoded));
    decoded
}

#[test]
fn agents_shorten_what_they_send_and_add_noise_of_their_own() {
    let [short, noisy, both, wrong] =
        [&[CLIP][..], &[NOISE], &[CLIP, NOISE], &[NOISE, CLIP]].map(|media| link(EXACT, false, media).unwrap());
    let far = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let (mut all, mut squares, mut longest) = (std::collections::HashSet::new(), crate::common::Mean::default(), 0.0f64);
    for (round, exchange, c) in (0..50).flat_map(|t| (0..2).flat_map(move |e| (0..40).map(move |c| (t, e, c)))) {
        let of = |uplink: &Uplink| altered(uplink, round, exchange, c, &mut []);
        assert!(far(&of(&short), &[0.6, 0.0, -0.8, 0.0]) < 1e-15);
        // The noise is that of the message's key, and that of no other message.
        let mut draws: Stream = MessageKey { seed: 5, round, exchange, agent: c }.stream(Purpose::Altered);
        let noise: [f64; 4] = std::array::from_fn(|_| 0.1 * draws.normal());
        noise.iter().for_each(|e| {
            assert!(all.insert(e.to_bits()));
            squares.see(e * e);
        });
        assert!(far(&of(&noisy), &[3.0 + noise[0], noise[1], noise[2] - 4.0, noise[3]]) < 1e-14);
        // In the order of the list: noise is not shortened after it, and is before it.
        assert!(far(&of(&both), &[0.6 + noise[0], noise[1], noise[2] - 0.8, noise[3]]) < 1e-15);
        assert!((length(&of(&wrong)) - 1.0).abs() < 1e-15);
        longest = longest.max(length(&of(&both)));
    }
    assert!(squares.off(0.01).abs() < 4.0 && longest > 1.1, "{squares:?} {longest}");
}

/// What clip cuts off is gone, and so is the noise: error feedback keeps what the codec left out of the rest.
#[test]
fn error_feedback_keeps_what_the_codec_left_out_of_what_stages_left() {
    let top = link(r#"{"kind": "top-k", "k": 1}"#, true, &[CLIP, NOISE]).unwrap();
    let exact = link(EXACT, false, &[CLIP, NOISE]).unwrap();
    let (mut feedback, mut all, mut sent) = (vec![0.0; 4], vec![0.0; 4], vec![0.0; 4]);
    for round in 0..20 {
        all.iter_mut().zip(altered(&exact, round, 0, 3, &mut [])).for_each(|(all, x)| *all += x);
        sent.iter_mut().zip(altered(&top, round, 0, 3, &mut feedback)).for_each(|(sent, x)| *sent += x);
        for i in 0..4 {
            assert!((all[i] - sent[i] - feedback[i]).abs() < 1e-13, "round {round}");
        }
    }
}

#[test]
fn what_cannot_work_is_refused_with_the_reason() {
    let settings = LinearSystems::default().with_agents(3).with_dim(2);
    let field = field(&settings, Law::Mean);
    let refusal = |kind: &str, settings: &str, media: &[&str]| {
        let (method, uplink) = (method(kind, settings), link(EXACT, false, media).unwrap());
        engine(&field, &*method, &uplink, OutputRule::Last, 1, vec![0.0; 2]).err().expect("refused").to_string()
    };
    let local = r#"{"step_size": 0.1, "local_steps": 3}"#;
    assert!(refusal("dasa", r#"{"step_size": 0.1}"#, &[AIR]).contains("only their sum arrives"));
    assert!(refusal("scafflsa", local, &[STALE]).contains("remember what they sent"));
    assert!(refusal("scafflsa-random", r#"{"step_size": 0.1, "talk_probability": 0.2}"#, &[STALE]).contains("remember what they sent"));
    for kind in ["delay", "late"] {
        let trace = format!(r#"{{"kind": "{kind}", "law": "trace", "delays": [1, [0, 1, 2], [1, 2]]}}"#);
        assert!(refusal("fedtd", r#"{"step_size": 0.1}"#, &[&trace]).contains("2 delays for 3 agents in round 2"));
    }
    let of_dim = |codec: &str, media: &[&str]| {
        let (method, uplink) = (method("fedtd", r#"{"step_size": 0.1}"#), link(codec, false, media).unwrap());
        engine(&field, &*method, &uplink, OutputRule::Last, 1, vec![0.0; 2]).err().map(|e| e.to_string())
    };
    assert!(of_dim(r#"{"kind": "top-k", "k": 3}"#, &[]).expect("refused").contains("uplink.codec.k: 3"));
    // One value of two, of 64 bits, in as many bits as two of 32 have, and not of 31.
    let budget = |bits: u32| format!(r#"{{"kind": "bit-budget", "bits": {bits}}}"#);
    assert_eq!(of_dim(r#"{"kind": "rand-k", "k": 1}"#, &[&budget(32)]), None);
    assert!(of_dim(r#"{"kind": "rand-k", "k": 1}"#, &[&budget(31)]).expect("refused").contains("never carries"));
    let bad = |codec: &str, feedback: bool, media: &[&str]| link(codec, feedback, media).expect_err("refused").to_string();
    for medium in [ERASURE, CLIP, NOISE] {
        assert!(bad(EXACT, false, &[AIR, medium]).contains("leaves only a sum"));
    }
    assert!(bad(EXACT, false, &[STALE, LATE]).contains("two delays"));
    assert!(bad(COARSE, true, &[STALE]).contains("error feedback"));
    assert!(of_dim(EXACT, &[&budget(8)]).expect("refused").contains("never carries"));
    assert!(bad(r#"{"kind": "quantised", "bits": 0}"#, false, &[]).contains("bits"));
    assert!(bad(r#"{"kind": "quantised", "bits": 65}"#, false, &[]).contains("bits"));
    assert!(bad(EXACT, false, &[r#"{"kind": "erasure", "success": 1.5}"#]).contains("1.5"));
    assert!(bad(EXACT, false, &[r#"{"kind": "over-the-air", "receiver_noise": -1}"#]).contains("-1"));
    assert!(bad(EXACT, false, &[r#"{"kind": "delay", "law": "trace", "delays": []}"#]).contains("delays"));
}
